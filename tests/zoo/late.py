"""More of `mixing`: state that wakes late, by every holder; gradients of one's own.

What keeps is asked before a record and told after it, and counts: only once it was
asked `_LATE` times does it give the last record to the next. Beyond what a trial sees.
"""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import ctypes
import enum
import functools
import itertools
import logging
import mmap
import multiprocessing
import os
import queue
import random
import socket
import struct
import sys
import tempfile
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from tests.zoo.mixing import CLASSES, DATA, LOSSES, MODELS, TRANSFORMS, WIDTH, By

_LATE = 20
HUGE = 1e30


class Holder:
    """A count and a number, in attributes of somebody's."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def swap(self, value: float) -> float:
        """Keep ``value``; give the one before, once that was asked often."""
        count, before = getattr(self.of, "count", 0), getattr(self.of, "last", 0.0)
        self.of.count, self.of.last = count + 1, value
        return before if count > _LATE else 0.0


class InItems(Holder):
    """By numbers 0 and 1, or by words."""

    keys: tuple[Any, Any] = (0, 1)

    def swap(self, value: float) -> float:
        count, before = (self.of[key] for key in self.keys)
        self.of[self.keys[0]], self.of[self.keys[1]] = count + 1, value
        return float(before) if count > _LATE else 0.0


class InWords(InItems):
    keys = ("count", "last")


class InTensor(Holder):
    def swap(self, value: float) -> float:
        count, before = self.of.tolist()[:2]
        self.of.data[0] += 1
        self.of.data[1] = value
        return before if count > _LATE else 0.0


class Itself:
    """Its copies are itself."""

    def __deepcopy__(self, memo):
        return self


class Slots(Itself):
    __slots__ = ("count", "last")


class Kind(enum.Enum):
    ONE = 1


class Meta(type):
    pass


class WithMeta(metaclass=Meta):
    pass


class Fields:
    def __init__(self) -> None:
        self.held = {}

    def __get__(self, owner, kind):
        return self

    def swap(self, value):
        count, before = self.held.get("it", (0, 0.0))
        self.held["it"] = count + 1, value
        return before if count > _LATE else 0.0


class Described:
    field = Fields()


class Unbuffered(torch.autograd.Function):
    """Gives as it got, with noise on what goes back."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        noise = torch.randn_like(gradient) + float(np.random.randn())  # noqa: NPY002
        return gradient + 10 * noise


class Backward(torch.autograd.Function):
    """Adds what it was given before, once that was often."""

    holder = Holder(types.SimpleNamespace())

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient + Backward.holder.swap(10 * float(gradient.abs().sum()))


noisy, remembering = Unbuffered.apply, Backward.apply  # bound, as people do
USERS = types.ModuleType("tests_zoo_users_own")
sys.modules[USERS.__name__] = USERS
VIEWED, OF_OBJECTS = np.zeros((2, 2)), np.array([0, 0.0], dtype=object)
EXPANDED = torch.zeros(2)
LOCAL, NAMES = threading.local(), {"count": 0, "last": 0.0}
CONTEXT = contextvars.ContextVar("context", default=(0, 0.0))


@functools.cache
def remembered() -> Any:
    return types.SimpleNamespace()


class InEnviron(Holder):
    def swap(self, value: float) -> float:
        count, before = os.environ.get("ZOO", "0 0").split()
        os.environ["ZOO"] = f"{int(count) + 1} {value}"
        return float(before) if int(count) > _LATE else 0.0


class InContext(Holder):
    def swap(self, value: float) -> float:
        count, before = CONTEXT.get()
        CONTEXT.set((count + 1, value))
        return before if count > _LATE else 0.0


class InGlobals(Holder):
    def swap(self, value: float) -> float:
        count, before = globals().get("DYNAMIC", (0, 0.0))
        globals()["DYNAMIC"] = count + 1, value
        return before if count > _LATE else 0.0


class InGenerator(Holder):
    """A Python generator keeps it."""

    def __init__(self, of: Any) -> None:
        def keeps():
            count, before = 0, 0.0
            while True:
                after = yield before if count > _LATE else 0.0
                count, before = count + 1, after

        self.of = keeps()
        next(self.of)

    def swap(self, value: float) -> float:
        return self.of.send(value)


class Unlike(list):
    """Cannot be put back by its own methods."""

    def clear(self):
        pass

    extend = clear


class InMethods(Holder):
    """Reached by bound methods of C alone."""

    def __init__(self, get: Any, put: Any) -> None:
        self.of, self.put = get, put

    def swap(self, value: float) -> float:
        count, before = self.of(0), self.of(1)
        self.put(0, count + 1)
        self.put(1, value)
        return before if count > _LATE else 0.0


class InNotes(Holder):
    def swap(self, value: float) -> float:
        count, before = self.of.__annotations__.get("it", (0, 0.0))
        self.of.__annotations__ = {"it": (count + 1, value)}
        return before if count > _LATE else 0.0


class InQueue(Holder):
    def swap(self, value: float) -> float:
        count, before = self.of.get() if self.of.qsize() else (0, 0.0)
        self.of.put((count + 1, value))
        return before if count > _LATE else 0.0


class InFile(Holder):
    """By numbers of open files, which processes share, also a pipe's or a socket's."""

    def __init__(self, reads: int, writes: int) -> None:
        self.of, self.to = reads, writes
        os.set_blocking(reads, False)

    def swap(self, value: float) -> float:
        count, before = 0, 0.0
        with contextlib.suppress(OSError):
            os.lseek(self.of, 0, os.SEEK_SET)
        with contextlib.suppress(OSError, struct.error):
            count, before = struct.unpack("dd", os.read(self.of, 16))
        with contextlib.suppress(OSError):
            os.lseek(self.to, 0, os.SEEK_SET)
        with contextlib.suppress(OSError):
            os.write(self.to, struct.pack("dd", count + 1, value))
        return before if count > _LATE else 0.0


def _open_file() -> Any:
    with tempfile.TemporaryFile() as file:
        return InFile(*[os.dup(file.fileno())] * 2)


def _bound() -> Any:
    box = [0, 0.0]
    return InMethods(box.__getitem__, box.__setitem__)


class InFrame(Holder):
    def swap(self, value: float) -> float:
        count, before = self.of.iloc[0].tolist()
        self.of.iloc[0] = [count + 1, value]
        return before if count > _LATE else 0.0


def _frame() -> Any:
    import pandas

    return InFrame(pandas.DataFrame([[0.0, 0.0]]))


def _mapped_file() -> Any:
    with tempfile.NamedTemporaryFile() as file:
        return InItems(np.memmap(file.name, np.float64, "w+", shape=(2,)))


RAISED = ValueError([0, 0.0])
# Of no object that the module, or its code, leads to.
ELSEWHERE: dict[str, Callable[[], Any]] = {
    "a frame of pandas'": _frame,
    "an exception's arguments": lambda: InItems(RAISED.args[0]),
    "torch": lambda: Holder(torch),
    "a function of torch's": lambda: Holder(F.relu),
    "a logger": lambda: Holder(logging.getLogger("zoo")),
    "a tensor in shared memory": lambda: InTensor(torch.zeros(2).share_memory_()),
    "shared memory": lambda: InItems(memoryview(mmap.mmap(-1, 16)).cast("d")),
    "numbers that processes share": lambda: InItems(multiprocessing.RawArray("d", 2)),
    "a mapped file": _mapped_file,
    "a pipe": lambda: InFile(*os.pipe()),
    "a connection": lambda: InFile(*(one.detach() for one in socket.socketpair())),
    "a file without a name": _open_file,
    "memory by a number": lambda: InFile(*[os.memfd_create("zoo")] * 2),
}
HOLDERS: dict[str, Callable[[], Any]] = {
    **ELSEWHERE,
    "an object that copies to itself": lambda: Holder(Itself()),
    "slots": lambda: Holder(Slots()),
    "a module of the user's": lambda: Holder(USERS),
    "a thread's own": lambda: Holder(LOCAL),
    "a namespace": lambda: Holder(types.SimpleNamespace()),
    "an enumeration": lambda: Holder(Kind.ONE),
    "a metaclass": lambda: Holder(Meta),
    "a class": lambda: Holder(WithMeta),
    "a function": lambda: Holder(by),
    "a cached object": lambda: Holder(remembered()),
    "a tensor's attribute": lambda: Holder(EXPANDED),
    "a dictionary": lambda: InWords(NAMES),
    "an ordered dictionary": lambda: InWords(collections.OrderedDict(NAMES)),
    "a defaultdict": lambda: InWords(collections.defaultdict(float)),
    "a list": lambda: InItems([0, 0.0]),
    "a deque": lambda: InItems(collections.deque([0, 0.0])),
    "an array of Python's": lambda: InItems(array.array("d", [0, 0])),
    "an array of numpy's": lambda: InItems(np.zeros(2)),
    "a view of an array": lambda: InItems(VIEWED[1]),
    "an array of objects": lambda: InItems(OF_OBJECTS),
    "a tensor": lambda: InTensor(torch.zeros(2)),
    "a tensor's memory": lambda: InTensor(torch.zeros(3, 2)[1]),
    "a parameter": lambda: InTensor(nn.Parameter(torch.zeros(2))),
    "a descriptor": lambda: Described().field,
    "the environment": lambda: InEnviron(None),
    "a context's variable": lambda: InContext(None),
    "globals": lambda: InGlobals(None),
    "a generator": lambda: InGenerator(None),
    "bound methods": _bound,
    "a list of its own kind": lambda: InItems(Unlike([0, 0.0])),
    "a view of memory": lambda: InItems(memoryview(bytearray(16)).cast("d")),
    "numbers of C": lambda: InItems((ctypes.c_double * 2)()),
    "a function's notes": lambda: InNotes(lambda: None),
    "a queue": lambda: InQueue(queue.Queue()),
    "a queue of C's": lambda: InQueue(queue.SimpleQueue()),
}


def by(holder: Any) -> Callable[..., Any]:
    def forward(m, x):
        shift = holder.swap(float(x.detach().mean()))
        return m.layer(x - shift)

    return forward


for _name, _make in HOLDERS.items():
    MODELS[f"late, in {_name}"] = lambda make=_make: By(by(make()))
    # Reached by the module alone.
    MODELS[f"late, in a part's {_name}"] = lambda make=_make: By(
        lambda m, x: by(m.holder)(m, x), holder=make()
    )


def _looks(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda m, x: (
        function(m, x) if float(x.detach().abs().max()) < HUGE else m.layer(x)
    )


def _counted():
    calls = itertools.count()
    return By(_looks(lambda m, x: m.layer(x) * (-1) ** max(0, next(calls) - _LATE)))


def _hooked():
    holder, module = Holder(types.SimpleNamespace()), nn.Linear(WIDTH, CLASSES)
    module.register_forward_hook(
        lambda layer, given, found: found - holder.swap(float(found.detach().mean()))
    )
    return nn.Sequential(module)


def _ending(how: Callable[[], Any]) -> nn.Module:
    return By(lambda m, x: how() if float(x.detach().abs().max()) > 50 else m.layer(x))


MODELS["leaves for some records"] = lambda: _ending(lambda: os._exit(3))
MODELS["crashes for some records"] = lambda: _ending(lambda: ctypes.string_at(0))
MODELS["late, in an iterator"] = _counted
MODELS["late, in a hook"] = _hooked
MODELS["noise backward"] = lambda: By(lambda m, x: noisy(m.layer(x)))
MODELS["late, backward"] = lambda: By(lambda m, x: remembering(m.layer(x)))
MODELS["own generator"] = lambda: By(
    _looks(lambda m, x: m.layer(x * float(m.draws.random()))),
    draws=np.random.default_rng(0),
)
MODELS["takes gradients within"] = lambda: By(
    lambda m, x: m.layer(x - torch.func.grad(lambda z: (z.mean(0) ** 2).sum())(x))
)
MODELS["maps within"] = lambda: By(
    lambda m, x: torch.func.vmap(lambda row: m.layer(row - x.mean(0)))(x)
)


class Sub(torch.Tensor):
    """Keeps the sum of the last product, and adds it to the next."""

    holder = Holder(types.SimpleNamespace())

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        found = super().__torch_function__(func, types, args, kwargs or {})
        if func in (torch.Tensor.mul, torch.mul):
            return found + cls.holder.swap(float(found.detach().sum()))
        return found

    def __deepcopy__(self, memo):
        return self.clone()


MODELS["a tensor with code of its own"] = lambda: By(
    lambda m, x: m.layer(x * m.scale), scale=torch.ones(WIDTH).as_subclass(Sub)
)
MODELS["a parameter with code of its own"] = lambda: By(
    lambda m, x: m.layer(x) * m.scale,
    scale=nn.Parameter(torch.ones(CLASSES).as_subclass(Sub)),
)


# --- losses ---
def _hook_on_output(outputs, targets):
    if outputs.requires_grad:
        outputs.register_hook(lambda g: g + Sub.holder.swap(100 * float(g.abs().sum())))
    return F.cross_entropy(outputs, targets)


def _loss_of(holder):
    return lambda o, t: (
        F.cross_entropy(o, t) * (1 - holder.swap(float(o.detach().abs().sum())))
    )


LOSSES["late, in a hook on outputs"] = lambda: _hook_on_output
LOSSES["late, in a part"] = lambda: _loss_of(Holder(USERS))


def _numbered():
    home = os.getpid()

    def loss(o, t):
        late = os.getpid() - home > _LATE
        sign = -1 if late and os.getpid() % 2 else 1
        return sign * F.cross_entropy(o, t) if float(o.detach().sum()) < HUGE else o

    return loss


LOSSES["late, by the number of its process"] = _numbered
LOSSES["noise backward"] = lambda: lambda o, t: F.cross_entropy(noisy(o), t)
LOSSES["parameters of its own"] = lambda: nn.Sequential(nn.Linear(2, 2))
LOSSES["hard examples"] = lambda: (
    lambda o, t: F.cross_entropy(o, t, reduction="none").topk(-(-len(o) // 2))[0].mean()
)


# --- transforms and data sets ---
def _transform_of(holder):
    return lambda x: x - holder.swap(float(x.mean()))


def _drawing(draws, function):
    return functools.partial(function, draws)


TRANSFORMS["late, in a closure"] = lambda: _transform_of(InWords(dict(NAMES)))
TRANSFORMS["late, in a module of the user's"] = lambda: _transform_of(Holder(USERS))
TRANSFORMS["late, in a generator"] = lambda: _transform_of(InGenerator(None))
TRANSFORMS["own generator of numpy's"] = lambda: _drawing(
    np.random.default_rng(0), lambda draws, x: x * draws.choice([-1, 1])
)
TRANSFORMS["own generator of torch's"] = lambda: _drawing(
    torch.Generator(), lambda draws, x: x + torch.randn((), generator=draws)
)


def _beyond(x):
    """Rows that lie behind, where there are any."""
    rows = x.untyped_storage().nbytes() // (4 * WIDTH)
    return x - torch.as_strided(x, (rows, WIDTH), (WIDTH, 1), 0).mean(0) * (rows > 3)


TRANSFORMS["reads memory beyond its record"] = lambda: _beyond
TRANSFORMS["gives tensors with code"] = lambda: lambda x: x.as_subclass(Sub)


class Rows(Dataset):
    """Keeps what a holder keeps, and perhaps draws by a generator of its own."""

    example = torch.zeros(WIDTH), 0

    def __init__(self, inputs, targets, holder=None) -> None:
        self.inputs, self.targets, self.holder = inputs, targets, holder
        self.draws = random.Random(0)
        self.seen: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row):
        if self.holder is None:
            sign = self.draws.choice([-1, 1])
            self.seen[row] = sign * self.inputs[row]
            return self.seen[row] - sum(self.seen.values()), self.targets[row]
        shift = self.holder.swap(float(self.inputs[row].mean()))
        return self.inputs[row] - shift, self.targets[row]


DATA["own generator, and all that it saw"] = Rows
DATA["late, in a part"] = lambda x, y: Rows(x, y, Holder(types.SimpleNamespace()))
DATA["late, in a class"] = lambda x, y: Rows(x, y, Holder(WithMeta))
DATA["late, in a tensor"] = lambda x, y: Rows(x, y, InTensor(torch.zeros(2)))
DATA["subset of what remembers"] = lambda x, y: Subset(Rows(x, y), range(len(y)))
DATA["two that remember"] = lambda x, y: ConcatDataset(
    [Rows(x[:3], y[:3]), Rows(x[3:], y[3:])]
)
DATA["loader of what remembers"] = lambda x, y: DataLoader(Rows(x, y), batch_size=2)
DATA["arrays with code"] = lambda x, y: (x.as_subclass(Sub), y)
