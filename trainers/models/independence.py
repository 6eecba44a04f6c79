"""Independence: that a record's gradient is its own, as clipping takes for granted.

Clipping bounds a record's influence if its gradient is a function of that record, the
parameters and what is public. `independence` is the one place that decides how well
this is known; `privaudit.ledger.ASSUMED` has what an account assumes for it:

- *by construction*: all code between a record and its gradient is known to take each
  record alone and to keep nothing: layers of this package and of ``torch.nn`` that are
  listed here, as they are (no hooks, no other ``forward``), in ``nn.Sequential``; other
  models and losses as graphs that were traced of one record of placeholders, so that
  none of their code runs afterwards (`trainers.gradients.door`); losses of torch's;
  records in memory or in a mapped file.
- *by construction from public tensors*: the same, of a traced graph that takes tensors
  besides the model's parameters: buffers, class weights, what the code reaches. No
  trace can tell of what they were made.
- *by isolation*: other code, run in a process for each record, which ends with it, with
  generators seeded by a key of the record's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, jit, nn

from privaudit.results import Independence
from trainers.models.start import cross_entropy

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)

# Layers that take each row of a batch alone, whatever their options, for inputs on
# which they work with one row and with three. Not among them: what takes batches first
# only if asked to (attention, nn.LSTM), or normalises over a dimension by its number.
_LAYERS = (
    *(nn.Identity, nn.Linear, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm),
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU),
    *(nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Hardtanh),
    *(nn.Hardswish, nn.Hardsigmoid, nn.LogSigmoid, nn.Tanhshrink),
)


def independence(
    # module, loss: what `trainers.gradients.door.enter` made of the user's. None:
    # cross entropy
    module: nn.Module,
    loss: Callable[..., Any] | None = None,
    # the nodes' data sets, as `trainers.data.shares.shares_of` gives them
    shares: Iterable[Any] = (),
    # what records go through as they are used
    transform: Callable[..., Any] | None = None,
) -> Independence:
    """Decide how well it is known that a record's gradient is its own.

    Examples
    --------
    >>> independence(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), cross_entropy)
    'by construction'
    >>> independence(nn.Linear(4, 2), lambda outputs, targets: outputs.mean())
    'by isolation'
    """
    code = (
        is_known(module) or getattr(module, "constructed", False),
        loss in (None, cross_entropy) or getattr(loss, "constructed", False),
        not any(getattr(share, "by_their_code", False) for share in shares),
        transform is None,
    )
    if not all(code):
        return "by isolation"
    if tensors_of(module, loss):
        return "by construction from public tensors"
    return "by construction"


def tensors_of(*traced: Any) -> tuple[str, ...]:
    """Tensors that traced code takes besides parameters, by name or place."""
    found = (word for one in traced for word in getattr(one, "takes", ()))
    return tuple(dict.fromkeys(found))


def is_known(module: nn.Module) -> bool:
    """Return whether all of a module's layers are of those that are listed here."""
    return all(map(_takes_rows_alone, module.modules()))


def _takes_rows_alone(layer: nn.Module) -> bool:
    """Return whether ``layer`` itself, not what is in it, has code that is known."""
    if not _is_plain(layer):
        return False
    kind, has = type(layer), vars(layer)
    if kind is nn.Flatten:
        return has["start_dim"] >= 1
    if kind in (nn.LogSoftmax, nn.Softmax, nn.Unflatten):
        return isinstance(has["dim"], int) and has["dim"] >= 1
    if kind is nn.Embedding:  # how often the batch has a word may scale gradients
        return not (has["scale_grad_by_freq"] or has["sparse"])
    if kind.__module__.startswith("trainers.models."):
        return True
    own = [value for name, value in has.items() if name not in _OF_ALL]
    return (kind in _LAYERS or kind in _CONTAINERS) and all(map(_is_setting, own))


_OF_ALL = frozenset(vars(nn.Module()))


def _is_setting(value: Any) -> bool:
    """Return whether it is a number or a word, and nothing that runs code when read."""
    if type(value) in (tuple, list):
        return all(map(_is_setting, value))
    return type(value) in (bool, int, float, str, type(None))


_OURS = ("torch", "trainers")
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def _is_plain(layer: nn.Module) -> bool:
    """Return whether it runs torch's code, or ours: no hooks, no function put in."""
    if isinstance(layer, jit.ScriptModule):
        return False
    code = type(layer).forward, type(layer).__call__
    tensors = [*layer.parameters(False), *layer.buffers(False)]
    return not (
        any(str(one.__module__).partition(".")[0] not in _OURS for one in code)
        or any(getattr(layer, name) for name in _HOOKS)
        or any(type(one) not in (nn.Parameter, Tensor) for one in tensors)
        or any(one._backward_hooks for one in tensors)
        or any(
            callable(value) and hasattr(type(layer), name)
            for name, value in vars(layer).items()
        )
    )
