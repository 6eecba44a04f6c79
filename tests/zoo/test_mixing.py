"""No record moves another node's sum, or its own by more than the clip norm.

Whatever model, loss, transform or data set: it is refused in words, or its records are
independent by construction, or by isolation. Sums are taken without noise, exactly as a
release takes them.
"""

from __future__ import annotations

import contextlib
import gc
from unittest import mock

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.tiers import size
from tests.zoo import late, mixing
from tests.zoo.mixing import (
    CLASSES,
    DATA,
    LOSSES,
    MODELS,
    TRANSFORMS,
    WIDTH,
    By,
    OfClass,
)
from trainers.data.shares import private_data
from trainers.data.transforms import Drawn
from trainers.gradients.choose import differentiator
from trainers.gradients.clipping import summation
from trainers.gradients.per_sample import check_module, parameter_vector
from trainers.numerics.randomness import Streams
from trainers.runs.material import Material

NODES, RECORDS, ROUNDS, CLIP = 3, 6, 6, 1.0
ISOLATED_ROUNDS = size(
    3, 2
)  # of a process for each record; what is late wakes in the second
assert late.HOLDERS  # which adds to them
ALL = [
    *(("model", name) for name in MODELS),
    *(("loss", name) for name in LOSSES),
    *(("transform", name) for name in TRANSFORMS),
    *(("data", name) for name in DATA),
]
# In the quick size the first model, and one that nothing but isolation makes harmless.
QUICK = ALL[0], ("transform", "minus the running mean")
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.full) for case in ALL
]
REFUSED, ISOLATED, CONSTRUCTED = "refused", "by isolation", "by construction"


def made(kind: str, name: str, void: slice = slice(0)) -> Material:
    """As a user gives it; ``ValueError`` if it is refused.

    Records of the first node that are ``void`` have no class, and count nothing.
    """
    mixing.KEPT.clear()
    OfClass.kept = 0.0
    torch.manual_seed(0)
    model = MODELS[name]() if kind == "model" else By(lambda m, x: m.layer(x))
    loss = LOSSES[name]() if kind == "loss" else None
    generator = torch.Generator().manual_seed(1)
    shares = []
    for _ in range(NODES):
        inputs = torch.randn(RECORDS, WIDTH, generator=generator)
        inputs[2] *= 100  # an outlier, which is there or not
        targets = torch.arange(RECORDS) % CLASSES
        if not shares:
            targets[void] = -100
        shares.append(
            DATA[name](inputs, targets) if kind == "data" else (inputs, targets)
        )
    found = Material.own(model, shares, loss=loss)
    if kind == "transform":
        found = found.with_transform(TRANSFORMS[name]())
    return found


def sums(material: Material, without: int | None) -> torch.Tensor:
    """Of some rounds, (rounds, nodes, dims); one record of the first node left out."""
    at = parameter_vector(material.module).repeat(NODES, 1)
    data = material.data(private_data(material.shares))
    if isinstance(data, Drawn):
        data.draws_from(Streams(0), range(NODES))
    gradients = differentiator(material.module, material.loss, *material.example)
    how = summation(gradients, data, at, batch_size=RECORDS, memory_limit=1 << 28)
    batches = torch.ones(NODES, RECORDS + 1, dtype=torch.bool)
    batches[:, RECORDS] = False
    if without is not None:
        batches[0, without] = False
    found = []
    isolated = material.independence == ISOLATED
    for _ in range(ISOLATED_ROUNDS if isolated else ROUNDS):
        torch.rand(3)  # the script draws, too
        found.append(how.clipped_sum(at, batches, torch.arange(NODES), CLIP))
    return torch.stack(found)


def outcome(kind: str, name: str) -> tuple[str, float, float]:
    """How it comes in, and the largest move of its own and of another node's sum."""
    try:
        material = made(kind, name)
    except ValueError:
        return REFUSED, 0.0, 0.0
    torch.manual_seed(0)
    whole = sums(material, None)
    moves = []
    for without in size((2, 0), (2,)):
        material = made(kind, name)
        torch.manual_seed(0)
        moves.append(whole - sums(material, without))
    apart = torch.stack(moves).norm(dim=-1)
    return (
        material.independence,
        float(apart[..., 0].max()),
        float(apart[..., 1:].max()),
    )


def test_there_are_sixty():
    assert len(ALL) >= 60


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_no_record_moves_more_than_its_own(kind, name):
    how, own, others = outcome(kind, name)
    assert how in (REFUSED, ISOLATED, CONSTRUCTED)
    assert own <= CLIP * (1 + 1e-5)
    assert others == 0


class Seen(TorchFunctionMode):
    """Sees every function of torch's."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs or {})


class Dispatched(TorchDispatchMode):
    """Sees every operation of torch's."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs or {})


@contextlib.contextmanager
def hooked():
    handle = nn.modules.module.register_module_forward_hook(lambda *given: None)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def registered(kind, name, key):
    """An operation in torch's own namespace that remembers what it was given."""
    kept = []

    def remembers(x):
        kept.append(x.detach().clone())
        return x + sum(kept)

    library = torch.library.Library("aten", kind)
    if kind == "FRAGMENT":
        library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, remembers, key)
    yield
    del library
    gc.collect()  # which takes it back


FOR_ALL = {
    "functions": Seen,
    "dispatched operations": Dispatched,
    "modules": hooked,
    "calls of modules": lambda: mock.patch.object(
        nn.Module, "_call_impl", lambda module, *given: module.forward(*given)
    ),
    "what is saved": lambda: torch.autograd.graph.saved_tensors_hooks(
        lambda x: x, lambda x: x
    ),
    # 1.25 C of its own node and .94 C of another's, as an operation of torch's.
    "an operation more": lambda: registered("FRAGMENT", "add.mine", "CPU"),
    "an operation's code": lambda: registered("IMPL", "sinc", "CPU"),
    "a composed operation": lambda: registered("IMPL", "mish", ""),
}


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("name", FOR_ALL)
def test_what_is_set_for_all_of_torch_is_refused(name):
    with FOR_ALL[name](), pytest.raises(ValueError, match="set for all of torch"):
        made("model", "late, in a class")
    with torch.autograd.graph.save_on_cpu():  # torch's own
        check_module(nn.Linear(2, 2))
