"""Models, losses, transforms and data sets through which a record reaches others.

Each is made anew by a function, as a user would give it. All are for records of five
numbers and two classes. What a record may move is its own node's sum, by the clip norm:
see `test_mixing`.
"""

from __future__ import annotations

import collections
import random
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.data import DataLoader, Dataset, TensorDataset

from trainers.data import Dataset as Records

WIDTH, CLASSES = 5, 2
MODELS: dict[str, Callable[[], nn.Module]] = {}
LOSSES: dict[str, Callable[[], Callable[..., Any]]] = {}
TRANSFORMS: dict[str, Callable[[], Callable[..., Any]]] = {}
DATA: dict[str, Callable[[Any, Any], Any]] = {}
KEPT: dict[str, Any] = {}


class By(nn.Module):
    """A module whose forward pass is a function of itself and the input."""

    def __init__(self, function, **parts) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Linear(WIDTH, CLASSES)
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


class Plain:
    """Attributes that are no tensors of a module's."""

    def __init__(self, **parts) -> None:
        vars(self).update(parts)


def model(name: str) -> Callable[..., Any]:
    def keep(make: Callable[..., Any]) -> Callable[..., Any]:
        MODELS[name] = make
        return make

    return keep


def simple(name: str, function: Callable[..., Any], **parts: Callable[[], Any]) -> None:
    MODELS[name] = lambda: By(function, **{k: v() for k, v in parts.items()})


# --- statistics of the batch, in disguise ---
simple("batch norm", lambda m, x: m.layer(m.n(x)), n=lambda: nn.BatchNorm1d(WIDTH))
simple(
    "batch norm without statistics",
    lambda m, x: m.layer(m.n(x)),
    n=lambda: nn.BatchNorm1d(WIDTH, track_running_stats=False),
)
simple(
    "functional batch norm",
    lambda m, x: m.layer(F.batch_norm(x, None, None, training=True)),
)
simple("minus the mean", lambda m, x: m.layer(x - x.mean(0)))
simple(
    "minus the mean, kept dimension", lambda m, x: m.layer(x - x.mean(0, keepdim=True))
)
simple("over the deviation", lambda m, x: m.layer(x / (x.std(0, unbiased=False) + 1)))
simple("over the largest", lambda m, x: m.layer(x / x.abs().max()))
simple("over the norm of all", lambda m, x: m.layer(x / x.norm()))
simple("softmax over the batch", lambda m, x: m.layer(x).softmax(0))
simple("layer norm over all", lambda m, x: m.layer(F.layer_norm(x, x.shape)))
simple("median", lambda m, x: m.layer(x - x.median(0).values))
simple("rank within the batch", lambda m, x: m.layer(x * x.argsort(0).float()))
simple("sorted batch", lambda m, x: m.layer(x.sort(0).values))
simple("reversed batch", lambda m, x: m.layer(x + x.flip(0)))
simple("rolled batch", lambda m, x: m.layer(x + x.roll(1, 0)))
simple("cumulated sums over the batch", lambda m, x: m.layer(x.cumsum(0)))
simple("first record added", lambda m, x: m.layer(x + x[:1]))
simple(
    "mix-up with the next",
    lambda m, x: m.layer(0.5 * x + 0.5 * torch.cat([x[1:], x[:1]])),
)
simple(
    "instance norm that takes the batch for channels",
    lambda m, x: m.layer(F.instance_norm(x.T[None])[0].T),
)
simple(
    "group norm over the batch",
    lambda m, x: m.layer(
        F.group_norm(x.T.reshape(1, WIDTH, -1), 1).reshape(WIDTH, -1).T
    ),
)
simple(
    "convolution over the batch",
    lambda m, x: m.layer(x + m.c(x.T[None])[0].T),
    c=lambda: nn.Conv1d(WIDTH, WIDTH, 3, padding=1),
)
simple(
    "pooling over the batch",
    lambda m, x: m.layer(x + F.max_pool1d(x.T[None], 3, 1, 1)[0].T),
)
simple("statistics under no_grad", lambda m, x: m.layer(x - _no_grad_mean(x)))
simple(
    "statistics by einsum",
    lambda m, x: m.layer(x - torch.einsum("bi,bj->ij", x, x).diagonal() / 9),
)
simple(
    "decorrelated batch",
    lambda m, x: m.layer(x @ torch.linalg.inv(x.T @ x + torch.eye(WIDTH))),
)
simple(
    "flattened and split again", lambda m, x: m.layer(x.T.reshape(-1, WIDTH)[: len(x)])
)
simple(
    "only where the batch is large",
    lambda m, x: m.layer(x - x.mean(0) if len(x) > 12 else x),
)


def _no_grad_mean(x):
    with torch.no_grad():
        return x.mean(0)


# --- attention, routing and capacity ---
simple("attention over the batch", lambda m, x: m.layer((x @ x.T).softmax(1) @ x))
simple(
    "attention of torch's, batch for time",
    lambda m, x: m.layer(m.a(x[:, None], x[:, None], x[:, None])[0][:, 0]),
    a=lambda: nn.MultiheadAttention(WIDTH, 1),
)
simple(
    "transformer, batch for time",
    lambda m, x: m.layer(m.t(x[:, None])[:, 0]),
    t=lambda: nn.TransformerEncoderLayer(WIDTH, 1, 8, 0.0),
)
simple(
    "LSTM, batch for time",
    lambda m, x: m.layer(m.r(x[:, None])[0][:, 0]),
    r=lambda: nn.LSTM(WIDTH, WIDTH),
)


def _capacity(m, x):
    first = x[:, 0] > 0
    kept = (first.cumsum(0) <= 3) & first
    return torch.where(kept[:, None], m.layer(x), m.e(x))


simple("experts of a capacity", _capacity, e=lambda: nn.Linear(WIDTH, CLASSES))


def _dispatch(m, x):
    """Switch's dense dispatch: what is beyond an expert's capacity is dropped."""
    which = F.one_hot(m.g(x).argmax(1), 2)
    place = which.cumsum(0) * which
    slots = (
        F.one_hot((place - 1).clamp(0, 3), 4) * ((place > 0) & (place <= 4))[..., None]
    )
    slots = slots.float()
    given = torch.einsum("bec,bi->eci", slots, x)
    made = torch.stack([m.layer(given[0]), m.e(given[1])])
    return torch.einsum("bec,eco->bo", slots, made)


simple(
    "Switch's dense dispatch",
    _dispatch,
    g=lambda: nn.Linear(WIDTH, 2),
    e=lambda: nn.Linear(WIDTH, CLASSES),
)
simple(
    "experts choose records",
    lambda m, x: m.layer(x) * ((s := m.g(x)) >= s.topk(min(3, len(x)), 0).values[-1:]),
    g=lambda: nn.Linear(WIDTH, 1),
)
simple(
    "balanced by Sinkhorn", lambda m, x: _sinkhorn(m, x), g=lambda: nn.Linear(WIDTH, 2)
)


def _sinkhorn(m, x):
    p = m.g(x).exp()
    for _ in range(3):
        p = p / p.sum(0)
        p = p / p.sum(1, keepdim=True)
    return m.layer(x) * p


simple(
    "graph of nearest neighbours",
    lambda m, x: m.layer((torch.cdist(x, x) < 1).float() @ x),
)
simple(
    "memory of prototypes, updated",
    lambda m, x: _prototypes(m, x),
    memory=lambda: torch.randn(3, WIDTH),
)


def _prototypes(m, x):
    near = torch.cdist(x, m.memory).argmin(1)
    m.memory[near] = 0.5 * m.memory[near] + 0.5 * x.detach()
    return m.layer(x - m.memory[near])


# --- state that is kept, at once or late ---
def _late(m, x):
    m.calls += 1
    if m.calls > 3:
        m.mean = 0.5 * m.mean + 0.5 * x.detach().mean(0)
    return m.layer(x - m.mean)


class Late(By):
    def __init__(self) -> None:
        super().__init__(_late)
        self.calls, self.mean = 0, torch.zeros(WIDTH)


class LateBuffer(By):
    """As `Late`, in a buffer, counted in a buffer."""

    def __init__(self) -> None:
        super().__init__(None)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.mean.lerp_(x.detach().mean(0), 0.5 * float(self.calls > 3))
        return self.layer(x - self.mean)


class LateBufferSmooth(LateBuffer):
    def forward(self, x):
        self.calls.add_(1)
        rate = 0.5 * (self.calls > 3)
        self.mean.copy_((1 - rate) * self.mean + rate * x.detach().mean(0))
        return self.layer(x - self.mean)


MODELS["mean in an attribute, late"] = Late
MODELS["mean in a buffer, late"] = LateBuffer
MODELS["mean in a buffer, late, without an if"] = LateBufferSmooth


def _late_if(m, x):
    """As `_late`, in code that looks at its values, so that it is not traced."""
    if float(x.detach().sum()) > 1e9:
        return m.layer(x)
    return _late(m, x)


class LateUntraced(Late):
    def __init__(self) -> None:
        super().__init__()
        self.function = _late_if


MODELS["mean in an attribute, late, looks at values"] = LateUntraced


def _global(m, x):
    KEPT["calls"] = KEPT.get("calls", 0) + 1
    mean = KEPT.get("mean", torch.zeros(WIDTH))
    KEPT["mean"] = 0.5 * mean + 0.5 * x.detach().mean(0)
    return m.layer(x - mean)


def _global_if(m, x):
    if float(x.detach().sum()) > 1e9:
        return m.layer(x)
    return _global(m, x)


simple("mean in a global", _global)
simple("mean in a global, looks at values", _global_if)


@model("mean in a closure, looks at values")
def _closure():
    kept = torch.zeros(WIDTH)

    def forward(m, x):
        nonlocal kept
        found = m.layer(x - kept) if float(x.sum()) < 1e9 else m.layer(x)
        kept = 0.5 * kept + 0.5 * x.detach().mean(0)
        return found

    return By(forward)


@model("mean in a default argument, looks at values")
def _default():
    def forward(m, x, kept=[0.0]):  # noqa: B006
        found = m.layer(x - kept[0])
        kept[0] = float(x.detach().mean())
        return found

    return By(forward)


class OfClass(nn.Module):
    kept = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        found = self.layer(x - type(self).kept)
        type(self).kept = float(x.detach().mean())
        return found


MODELS["mean in a class's attribute, looks at values"] = OfClass


def _queue(m, x):
    m.queue.append(x.detach().mean(0))
    return m.layer(x - torch.stack(list(m.queue)).mean(0))


simple("queue in an attribute", _queue, queue=lambda: collections.deque(maxlen=4))
simple(
    "queue in a list, looks at values",
    lambda m, x: _queue(m, x) if float(x.sum()) < 1e9 else None,
    queue=list,
)
simple(
    "momentum queue in a buffer",
    lambda m, x: _momentum(m, x),
    queue=lambda: torch.zeros(4, WIDTH),
)


def _momentum(m, x):
    m.queue = torch.cat([x.detach()[:1], m.queue[:-1]])
    return m.layer(x - m.queue.mean(0))


simple(
    "state in a plain object",
    lambda m, x: _object(m, x),
    state=lambda: Plain(mean=torch.zeros(WIDTH)),
)


def _object(m, x):
    mean, m.state.mean = m.state.mean, x.detach().mean(0)
    return m.layer(x - mean)


simple("cache by the first call", lambda m, x: m.layer(x - _cached(m, x)), cache=dict)


def _cached(m, x):
    return m.cache.setdefault("mean", x.detach().mean(0))


simple("parameter moved through data", lambda m, x: _moved(m, x))


def _moved(m, x):
    with torch.no_grad():
        m.layer.bias.add_(x.mean())
    return m.layer(x)


simple("weight overwritten", lambda m, x: _overwritten(m, x))


def _overwritten(m, x):
    m.layer.weight.data[0] = x.detach().mean(0)
    return m.layer(x)


simple("parameter replaced", lambda m, x: _replaced(m, x))


def _replaced(m, x):
    m.layer.bias = nn.Parameter(m.layer.bias.detach() + x.detach().mean())
    return m.layer(x)


simple(
    "max_norm",
    lambda m, x: m.layer(x + m.e((x[:, :1] > 0).long())[:, 0]),
    e=lambda: nn.Embedding(2, WIDTH, max_norm=0.1),
)
simple(
    "max_norm, functional",
    lambda m, x: m.layer(x + F.embedding((x[:, 0] > 0).long(), m.w, max_norm=0.1)),
    w=lambda: torch.randn(2, WIDTH),
)


def _tied(m, x):
    return m.layer(x @ m.e.weight[:WIDTH] + m.e((x > 0).long()).mean(1))


simple(
    "max_norm, frozen and tied",
    _tied,
    e=lambda: nn.Embedding(WIDTH, WIDTH, max_norm=1).requires_grad_(False),
)


def _codes(m, x):
    """Codes of a VQ-VAE, which follow what is nearest to them."""
    near = torch.cdist(x, m.codes).argmin(1)
    found = m.codes[near]
    m.codes = 0.9 * m.codes + 0.1 * x.detach().mean(0)
    return m.layer(x + (found - x).detach())


simple("codes that follow records", _codes, codes=lambda: torch.randn(4, WIDTH))


def _first_batch(m, x):
    """ActNorm: the first batch decides where it is centred."""
    if not bool(m.begun):
        m.mean = x.detach().mean(0)
        m.begun.fill_(True)
    return m.layer(x - m.mean)


simple(
    "centred by the first batch",
    _first_batch,
    begun=lambda: torch.tensor(False),
    mean=lambda: torch.zeros(WIDTH),
)
simple(
    "observer of ranges",
    lambda m, x: m.layer(m.seen(x)),
    seen=torch.ao.quantization.FakeQuantize,
)


def _teacher(m, x):
    with torch.no_grad():
        m.teacher.weight.lerp_(m.layer.weight * x.mean(), 0.1)
    return m.layer(x) + m.teacher(x)


simple(
    "teacher that follows",
    _teacher,
    teacher=lambda: nn.Linear(WIDTH, CLASSES).requires_grad_(False),
)
simple(
    "leaves early where all are sure",
    lambda m, x: (
        m.layer(x) if m.layer(x).softmax(1).amax(1).mean() > 0.8 else m.layer(2 * x)
    ),
)
# Of rounding, which must be a record's own as well.
simple("sine of millions", lambda m, x: torch.sin(1e7 * m.layer(x)))
simple("fraction of billions", lambda m, x: (1e9 * m.layer(x)).frac() * m.layer(x))
MODELS["layers that take three rows for a record"] = lambda: nn.Sequential(
    nn.LayerNorm((3, WIDTH)), nn.Linear(WIDTH, CLASSES)
)
MODELS["softmax of torch's over the batch"] = lambda: nn.Sequential(
    nn.Linear(WIDTH, CLASSES), nn.Softmax(0)
)
simple(
    "spectral norm",
    lambda m, x: m.s(x),
    s=lambda: parametrizations.spectral_norm(nn.Linear(WIDTH, CLASSES)),
)
simple(
    "weight norm with a running scale",
    lambda m, x: m.w(x) / _scale(m, x),
    w=lambda: parametrizations.weight_norm(nn.Linear(WIDTH, CLASSES)),
    scale=lambda: torch.ones(()),
)


def _scale(m, x):
    m.scale.mul_(0.5).add_(x.detach().abs().mean())
    return m.scale


simple(
    "instance norm with statistics",
    lambda m, x: m.layer(m.n(x[:, None])[:, 0]),
    n=lambda: nn.InstanceNorm1d(1, track_running_stats=True),
)

# --- tricks in place, hooks, gradients of one's own ---
simple("in place over the batch", lambda m, x: m.layer(x.clone().sub_(x.mean(0))))
simple("first row written", lambda m, x: _written(m, x))


def _written(m, x):
    x = x.clone()
    x[0] = x.sum(0)
    return m.layer(x + x[0])


class Mixed(torch.autograd.Function):
    """Gives each record the mean of all gradients."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.mean(0, keepdim=True) + gradient * 0 + 50


class Remembers(torch.autograd.Function):
    """Adds the last record's gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        last = KEPT.get("gradient", torch.zeros(()))
        KEPT["gradient"] = 10 * gradient.detach().sum()
        return gradient + last


simple("a gradient over the batch", lambda m, x: Mixed.apply(m.layer(x)))
simple("a gradient that remembers", lambda m, x: Remembers.apply(m.layer(x)))


@model("hook that centres")
def _hook():
    module = nn.Sequential(nn.Linear(WIDTH, CLASSES))
    module.register_forward_hook(lambda layer, given, found: found - found.mean(0))
    return module


@model("hook before, with a late state")
def _hook_late():
    module, seen = nn.Linear(WIDTH, CLASSES), []

    def hook(layer, given):
        seen.append(given[0].detach().mean(0))
        return (given[0] - torch.stack(seen).mean(0),)

    module.register_forward_pre_hook(hook)
    return module


@model("hook on the output's gradient")
def _hook_gradient():
    def forward(m, x):
        out = m.layer(x)
        if out.requires_grad:
            out.register_hook(lambda g: g.mean(0, keepdim=True).expand_as(g) * 9)
        return out

    return By(forward)


@model("hook on a parameter")
def _hook_parameter():
    module, kept = nn.Sequential(nn.Linear(WIDTH, CLASSES)), []

    def hook(gradient):
        kept.append(gradient.detach())
        return 100 * sum(kept)

    module[0].weight.register_hook(hook)
    return module


@model("forward replaced on the instance")
def _instance():
    module = nn.Linear(WIDTH, CLASSES)
    was = module.forward
    module.forward = lambda x: was(x - x.mean(0))
    return module


simple("noise of the batch", lambda m, x: m.layer(x + torch.randn(len(x), 1)))
simple(
    "drop-connect by the global generator",
    lambda m, x: m.layer(x * (torch.rand(WIDTH) > 0.5)),
)


def _depth(m, x):
    """Stochastic depth, as torchvision has it."""
    kept = torch.empty((len(x), 1)).bernoulli_(0.8).div_(0.8)
    return m.layer(x + m.branch(x) * kept)


simple("stochastic depth", _depth, branch=lambda: nn.Linear(WIDTH, WIDTH))


# --- what torch lets people put in its own place ---
class Counts:
    """Stands for a tensor in torch's functions, and looks at the batch in the end."""

    def __init__(self, tensor) -> None:
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        KEPT["calls"] = KEPT.get("calls", 0) + 1
        args = [one.tensor if isinstance(one, Counts) else one for one in args]
        found = function(*args, **(kwargs or {}))
        return found - (KEPT["calls"] > 8) * found.mean(0)


class Follows(nn.Module):
    """Parametrization that is another one after twenty calls."""

    calls = 0

    def forward(self, weight):
        self.calls += 1
        return weight if self.calls < 20 else weight * 0 + KEPT["mean"]


class Transposed(nn.Module):
    """Tied by memory: one weight is a view of another, and lies the other way."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.layer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.back = nn.Parameter(self.inner.weight.data.T)

    def forward(self, x):
        return self.layer(self.inner(x) @ self.back)


simple(
    "an object in a tensor's place",
    lambda m, x: F.linear(Counts(x), m.layer.weight, m.layer.bias),
)
MODELS["tied by memory"] = Transposed
simple(
    "torch.cond",
    lambda m, x: torch.cond(x.sum() > 0, m.layer, lambda z: -m.layer(z), (x,)),
)


@model("parametrization that counts")
def _follows():
    module = By(lambda m, x: (KEPT.update(mean=x.mean()), m.layer(x))[1])
    nn.utils.parametrize.register_parametrization(module.layer, "weight", Follows())
    return module


@model("exported, by records of a batch")
def _exported():
    module = By(lambda m, x: m.layer(x - x.mean(0)))
    return torch.export.export(module, (torch.zeros(6, WIDTH),)).module()


@model("scripted")
def _scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would have people export
        return torch.jit.script(nn.Sequential(nn.Linear(WIDTH, CLASSES)))


simple(
    "numpy's mean",
    lambda m, x: m.layer(x - torch.from_numpy(x.detach().numpy().mean(0))),
)
simple(
    "mean by tolist", lambda m, x: m.layer(x - sum(x.flatten().tolist()) / x.numel())
)
simple(
    "stride into the next record",
    lambda m, x: m.layer(
        torch.as_strided(x, x.shape, x.stride(), WIDTH if len(x) > 1 else 0)
    ),
)
simple(
    "raises for some records",
    lambda m, x: m.layer(x) if float(x.abs().max()) < 50 else 1 / 0,
)


# --- losses ---
def _contrastive(o, t):
    o = F.normalize(o)
    return F.cross_entropy(o @ o.T, torch.arange(len(o)))


def _rank(o, t):
    return F.relu(1 - (o[:, None, 0] - o[None, :, 0])).mean()


class Centred(nn.Module):
    """Keeps the mean loss."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, o, t):
        loss = F.cross_entropy(o, t)
        self.mean.mul_(0.5).add_(loss.detach())
        return loss * self.mean


class Weighted:
    """Weighs by the labels that it has seen."""

    def __init__(self) -> None:
        self.seen = torch.ones(CLASSES)

    def __call__(self, o, t):
        self.seen += F.one_hot(t, CLASSES).sum(0)
        return F.cross_entropy(o, t, self.seen)


def _global_loss(o, t):
    last = KEPT.get("loss", 1.0)
    KEPT["loss"] = float(o.detach().abs().sum())
    return F.cross_entropy(o, t) * last


LOSSES["contrastive"] = lambda: _contrastive
LOSSES["rank"] = lambda: _rank
LOSSES["variance of outputs"] = lambda: (
    lambda o, t: F.cross_entropy(o, t) + o.var(0, unbiased=False).sum()
)
LOSSES["the largest of the batch"] = lambda: (
    lambda o, t: F.cross_entropy(o, t, reduction="none").max()
)
LOSSES["log of the mean"] = lambda: lambda o, t: F.cross_entropy(o, t).add(1).log()
LOSSES["distance to the mean output"] = lambda: (
    lambda o, t: (o - o.mean(0)).square().sum()
)
LOSSES["redundancy of outputs"] = lambda: (
    lambda o, t: ((o - o.mean(0)).T @ (o - o.mean(0))).square().sum()
)
LOSSES["overlap over the batch"] = lambda: (
    lambda o, t: 1 - (o.softmax(1)[:, 1] * t).sum() / (o.softmax(1)[:, 1] + t).sum()
)
LOSSES["over the positives"] = lambda: (
    lambda o, t: F.cross_entropy(o, t, reduction="sum") / t.sum().clamp(min=1)
)
LOSSES["class weights under a mean"] = lambda: nn.CrossEntropyLoss(
    torch.tensor([1.0, 9.0])
)
LOSSES["running mean in a buffer"] = Centred
LOSSES["labels counted"] = Weighted
LOSSES["in a global, looks at values"] = lambda: _global_loss
LOSSES["a constant that grows"] = lambda: Growing()


class Growing:
    def __init__(self) -> None:
        self.calls = 0.0

    def __call__(self, o, t):
        self.calls += float(o.detach().abs().sum())
        return F.cross_entropy(o, t) * self.calls


# --- transforms and data sets ---
def _running():
    seen = []

    def transform(x):
        seen.append(x)
        return x - torch.stack(seen).mean(0)

    return transform


TRANSFORMS["flips by torch"] = lambda: lambda x: x * (1 - 2 * torch.randint(2, ()))
TRANSFORMS["flips by numpy"] = lambda: lambda x: x * (1 - 2 * np.random.randint(2))  # noqa: NPY002
TRANSFORMS["flips by random"] = lambda: lambda x: x * random.choice([-1, 1])
TRANSFORMS["minus the running mean"] = _running
TRANSFORMS["raises for some"] = lambda: lambda x: x if x.abs().max() < 50 else 1 / 0


def _follows():
    kept = torch.zeros(WIDTH).share_memory_()
    return lambda x: x - kept.lerp_(x, 0.5)


TRANSFORMS["minus a mean in shared memory"] = _follows


def _mixed(records):
    """Mix-up of a batch, by a loader's ``collate_fn``."""
    inputs, targets = map(torch.stack, zip(*records, strict=True))
    return inputs.mean(0).expand_as(inputs), targets


class Batches(Dataset):
    """Gives records one by one, and otherwise if it is asked for several."""

    example = torch.zeros(WIDTH), 0

    def __init__(self, inputs, targets) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row):
        return self.inputs[row], self.targets[row]

    def __getitems__(self, rows):
        mean = self.inputs[rows].mean(0)
        return [(self.inputs[row] - mean, self.targets[row]) for row in rows]


class Own(Dataset):
    """Records by a function of the data set and the number."""

    example = torch.zeros(WIDTH), 0

    def __init__(self, inputs, targets, read) -> None:
        self.inputs, self.targets, self.read = inputs, targets, read

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row):
        return self.read(self, row), self.targets[row]


DATA["flips by the global generator"] = lambda x, y: Own(
    x, y, lambda d, i: d.inputs[i] * (1 - 2 * torch.randint(2, ()))
)
DATA["noise by numpy"] = lambda x, y: Own(
    x,
    y,
    lambda d, i: d.inputs[i] + float(np.random.randn()),  # noqa: NPY002
)
DATA["flips by random"] = lambda x, y: Own(
    x, y, lambda d, i: d.inputs[i] * random.choice([-1, 1])
)
DATA["centred in place"] = lambda x, y: Own(
    x, y, lambda d, i: d.inputs.sub_(0.1 * d.inputs[i])[i].clone()
)
DATA["several at once"] = Batches
DATA["mixed by a loader"] = lambda x, y: DataLoader(
    TensorDataset(x, y), batch_size=3, collate_fn=_mixed
)


class Rows(np.memmap):
    """Gives rows less the mean of those that are asked for."""

    def __getitem__(self, rows):
        found = super().__getitem__(rows)
        return found - np.asarray(found).mean(0) if np.ndim(rows) else found


def _mapped(x, y):
    with tempfile.NamedTemporaryFile() as file:
        mapped = Rows(file.name, np.float32, "w+", shape=tuple(x.shape))
    np.asarray(mapped)[:] = x
    return mapped, y


DATA["a mapped file with code"] = _mapped


class Less(torch.Tensor):
    """Rows of it are less their mean."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        found = super().__torch_function__(func, types, args, kwargs or {})
        return found - found.mean(0) if func is torch.Tensor.index_select else found


DATA["a data set with code"] = lambda x, y: Records(x.as_subclass(Less), y)
