"""Ranks: processes, the nodes that they hold, and how they find each other.

Processes are started by torchrun, which tells each its rank; nothing here starts any.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import signal
from collections.abc import Iterator
from typing import Any, NoReturn

import torch
import torch.distributed as dist

# Before any group is there: torch.func.grad imports it later, and
# its default arguments would then hold the group for ever. Gloo's threads outlive the
# interpreter then, and now and then a finished run ends with SIGABRT.
import torch.distributed.nn.functional

from privaudit.records import dealt

GO_ON = "the same command goes on from the last checkpoint"
TIMEOUT = 60.0  # seconds that a rank waits for another


class ToldToEnd(BaseException):
    """Raised by a signal, wherever the program is; who waits for it says why.

    No `OSError`: `import` takes one, while it looks for a file, for a file that is not
    there.
    """


class RankLostError(OSError):
    """Another rank does not answer, or has ended; the message says what to do."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ranks:
    """``nodes`` dealt to ``size`` ranks in order, as evenly as they can be."""

    rank: int
    size: int
    nodes: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ValueError(f"a rank is in [0, {self.size}), got {self.rank}")
        if self.size > self.nodes:
            raise ValueError(
                f"{self.size} ranks are more than the {self.nodes} nodes that they "
                "would hold; start fewer, or set nodes"
            )

    def held_by(self, rank: int) -> range:
        return dealt(rank, self.size, self.nodes)

    @property
    def held(self) -> range:
        return self.held_by(self.rank)

    def holder(self, node: int) -> int:
        return next(r for r in range(self.size) if node in self.held_by(r))


def where_am_i(party: int | None = None) -> tuple[int, int]:
    """(rank, number of parties) by RANK and WORLD_SIZE.

    ``party`` is what the caller says of itself. Raises ``ValueError``.
    """
    if party is not None and (type(party) is not int or party < 0):
        raise ValueError(f"party is a whole number from 0 on, got {party!r}")
    found: list[int] = []
    for name, given in (("RANK", party), ("WORLD_SIZE", None)):
        text = os.environ.get(name) or ("" if given is None else str(given))
        if not text.isdigit():
            raise ValueError(
                f"parties need {name} in the environment, a whole number"
                f"{', got ' + repr(text) if text else ''}: start them by torchrun, or "
                "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT at each"
            )
        found.append(int(text))
    rank, size = found
    if not 0 <= rank < size:
        raise ValueError(f"RANK is from 0 to WORLD_SIZE - 1, got {rank} of {size}")
    if party is not None and party != rank:
        raise ValueError(f"party={party} was given where RANK is {rank}")
    return rank, size


def launched() -> bool:
    """Return whether torchrun started this process, as one of several."""
    many = os.environ.get("WORLD_SIZE", "")
    return many.isdigit() and int(many) > 1


def by_torchrun() -> bool:
    """Return whether torchrun started this process, and has a store at MASTER_PORT."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def own_gpu(device: str, gpus: int) -> int:
    """The number of this rank's GPU among the ``gpus`` of this machine."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if ":" in device:
        raise ValueError(
            f"several ranks cannot share {device}: each takes a GPU of its own; use "
            "--device cuda"
        )
    if here > gpus:
        raise ValueError(
            f"{here} ranks are more than the {gpus} GPUs of this machine; start fewer"
        )
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextlib.contextmanager
def joined(device: str = "cpu", timeout: float = TIMEOUT) -> Iterator[tuple[int, int]]:
    """(rank, number of ranks), connected for as long as the context lasts.

    gloo on the CPU; on ``device`` cuda NCCL for tensors there, each rank with a GPU of
    its own, and gloo for all else. Raises `RankLostError` if the others do not come, or
    one is lost meanwhile; ``ValueError`` if there are more ranks here than GPUs.
    """
    backend = "gloo"
    if device != "cpu":
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(own_gpu(device, torch.cuda.device_count()))
    wait = datetime.timedelta(seconds=timeout)
    with ended_by_torchrun():
        with explained():
            dist.init_process_group(backend, timeout=wait)
        try:
            yield dist.get_rank(), dist.get_world_size()
        finally:
            dist.destroy_process_group()


@contextlib.contextmanager
def ended_by_torchrun() -> Iterator[None]:
    """torchrun ends the others when one fails: say so, rather than end in silence."""

    def end(signum: int, frame: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # there is nothing to add
        raise ToldToEnd

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except ToldToEnd:
        raise RankLostError(
            f"torchrun ends this rank, as another one ended; {GO_ON}"
        ) from None
    except BaseException:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until the message is out
        raise
    signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turns what torch says of a lost connection into a `RankLostError`."""
    try:
        yield
    except (RuntimeError, ConnectionError) as error:
        if not _is_of_the_network(error):
            raise
        why = str(error).splitlines()[0]
        raise RankLostError(
            f"lost contact with another rank ({why}); {GO_ON}"
        ) from error


def _is_of_the_network(error: Exception) -> bool:
    words = ("connection", "gloo", "nccl", "timed out", "timeout", "socket", "peer")
    text = str(error).lower()
    return isinstance(error, ConnectionError | dist.DistError) or any(
        word in text for word in words
    )


def gathered(value: Any) -> list[Any] | None:
    """Every rank's ``value``, in order, at rank 0; None at the others."""
    into = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    with explained():
        dist.gather_object(value, into)
    return into


def told(value: Any) -> Any:
    """Rank 0's ``value``, at every rank."""
    box = [value]
    with explained():
        dist.broadcast_object_list(box, src=0)
    return box[0]


def summed(value: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The sum of the ``value`` of every rank, of ``group`` or all, at each of them."""
    total = value.clone()
    with explained():
        dist.all_reduce(total, group=group)
    return total
