"""Final models as a safetensors file that needs no privaudit to be read."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import safetensors.torch
import torch
from torch import Tensor, nn

from privaudit.accounting.tuning import SECRET_TRIES
from privaudit.files import json as _json
from privaudit.files.manifest import digest
from privaudit.results import UpperBound
from privaudit.version import __version__
from trainers.gradients.per_sample import parameter_places, trained
from trainers.runs.outcome import TrainingResult
from trainers.runs.training import Training

AGREE = 0.01  # nodes agree that are no further from their mean, as a share of its norm


def packed(
    training: Training,
    module: nn.Module,
    models: Mapping[int, Tensor],
    nodes: tuple[UpperBound, ...],
) -> bytes:
    """The models of the nodes, each (dims,), as the content of a safetensors file.

    Prefixes of parameters: ``node3.``; ``every.`` of what all have alike, frozen ones
    and buffers; ``mean.`` where nodes agree to a hundredth. The metadata have, under
    ``privaudit``, version, digests of settings (without noise and seed) and
    certificate, and how many numbers each trained parameter has, in order.
    """
    vectors = {f"node{node}": vector for node, vector in models.items()}
    mean = torch.stack([*models.values()]).double().mean(0)
    apart = max((vector - mean).norm() for vector in models.values())
    if len(models) > 1 and apart <= AGREE * mean.norm():
        vectors["mean"] = mean.to(next(iter(models.values())))
    shapes = {name: value.shape for name, value in trained(module).items()}
    places = parameter_places(module)
    tensors = {
        f"{who}.{name}": vector[place.start : place.stop].reshape(shapes[name])
        for who, vector in vectors.items()
        for name, place in places.items()
    }
    ours = {id(value) for value in trained(module).values()}  # some by two names
    for name, value in module.state_dict(keep_vars=True).items():
        if id(value) not in ours:
            tensors[f"every.{name}"] = value
    # Each of its own memory, as the format wants it.
    tensors = {name: value.detach().cpu().clone() for name, value in tensors.items()}
    about = {
        "version": __version__,
        "settings": digest(_json.encode(training)),
        "certificate": digest(_json.encode(nodes)),
        "parameters": {name: len(place) for name, place in places.items()},
    }
    # One entry: several would be written in an order of chance.
    metadata = {"privaudit": _json.encode(about, indent=0).decode()}
    return safetensors.torch.save(tensors, metadata)


def may_be_released(training: Training, result: TrainingResult) -> bool:
    """Return whether the account of a run covers all of its models, for anybody.

    Not if parts stay at their nodes, noise is not secret, or nothing finite is
    certified.
    """
    return (
        result.protected
        and not training.family.stays_home(training.setting())
        and all(
            (node.standing == "certified" or node.assumes == (SECRET_TRIES,))
            and node.epsilon < float("inf")
            for node in result.nodes
        )
    )


def modules(content: bytes, module: nn.Module) -> dict[int, nn.Module]:
    """The nodes' models by number, of a file's ``content``, in evaluation mode."""
    tensors = safetensors.torch.load(content)
    every = _under("every.", tensors)
    nodes = {name.partition(".")[0] for name in tensors} - {"every", "mean"}
    found = {}
    for node in sorted(int(name.removeprefix("node")) for name in nodes):
        copied = copy.deepcopy(module)
        # Not strict: parameters of several layers are kept once.
        own = _under(f"node{node}.", tensors)
        copied.load_state_dict({**every, **own}, strict=False)
        found[node] = copied.eval()
    return found


def node_files(content: bytes, module: nn.Module) -> dict[str, bytes]:
    """A file a node, by name, which its module's `load_state_dict` takes as it is."""
    found = modules(content, module)
    return {f"node-{node}.safetensors": _alone(own) for node, own in found.items()}


def _alone(module: nn.Module) -> bytes:
    # Tensors that share memory, as tied parameters do, are each written out.
    state = module.state_dict()
    own = {name: value.detach().cpu().clone() for name, value in state.items()}
    return safetensors.torch.save({name: own[name].contiguous() for name in own})


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
