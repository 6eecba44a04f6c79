"""Messages between parties by torch.distributed (gloo): one trust domain, a cluster.

Messages go from party to party; words, and the cause of an end, by the store at party 0
(torchrun's, where that started the parties). Nothing is encrypted, and nobody proves
who it is: see docs/parties.md for FLARE, which does both.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from trainers.network.exchange import (
    ENDED,
    HANGS,
    NOBODY,
    PATIENCE,
    Exchange,
    PartyLostError,
    plain,
)
from trainers.network.ranks import GO_ON, by_torchrun, ended_by_torchrun

_LABEL = 160  # bytes
_AHEAD = 64  # messages that wait to be sent to one party
_FOREVER = 1e7  # seconds
_BEAT = 1.0  # seconds, in which there are two signs of life
_GRACE = 0.5  # seconds, from a lost connection to taking its party for the cause


class ByTorch(Exchange):
    """An `Exchange` by torch.distributed, where it has a group; see `joined`."""

    def __init__(
        self, rank: int, size: int, store: dist.Store, patience: float = PATIENCE
    ) -> None:
        super().__init__(rank, size, patience)
        self._store = store
        store.set(f"{rank} alive", "")
        threading.Thread(target=self._beat, daemon=True).start()
        self._queues: dict[int, queue.Queue[tuple[Tensor, Tensor]]] = {}
        for other in self.others:
            self._queues[other] = queue.Queue(_AHEAD)
            threading.Thread(target=self._sender, args=(other,), daemon=True).start()

    def _send(self, other: int, what: str, rows: Tensor) -> None:
        head = torch.zeros(_LABEL, dtype=torch.uint8)
        text = what.encode()[:_LABEL]
        head[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        # One item, so that threads' messages do not mix.
        try:
            self._queues[other].put((head, rows.clone()), timeout=self.patience)
        except queue.Full:
            self.hangs(other)
        self.check()

    def _sender(self, other: int) -> None:
        """Send in order what is queued; receivers may send meanwhile."""
        try:
            while not self._is_closed:
                with contextlib.suppress(queue.Empty):
                    for part in self._queues[other].get(timeout=1.0):
                        dist.send(part, other)
        except (RuntimeError, OSError) as error:
            if not self._is_closed:
                self._lost(other, error)

    def _receive(self, other: int, due: Mapping[str, Tensor]) -> tuple[str, Tensor]:
        head = torch.empty(_LABEL, dtype=torch.uint8)
        self._wait(other, head)
        what = bytes(head).rstrip(b"\0").decode(errors="replace")
        found = {one.encode()[:_LABEL].decode(errors="replace"): one for one in due}
        if what not in found:
            one = f", where {next(iter(due))} was due" if len(due) == 1 else ""
            raise ValueError(f"{plain(what)}{one or ', which is not due'}")
        rows = torch.empty_like(due[found[what]], memory_format=torch.contiguous_format)
        self._wait(other, rows)
        return found[what], rows

    def _wait(self, other: int, into: Tensor) -> None:
        self.check()
        # Whoever may send in any order may also have nothing to send.
        is_asked = other in self._due
        wait = _FOREVER if is_asked else self.patience
        try:
            work = dist.irecv(into, other)
            assert work is not None
            work.wait(datetime.timedelta(seconds=wait))
        except (RuntimeError, OSError) as error:
            if is_asked and other not in self._due:
                raise PartyLostError(NOBODY) from None
            raise self._lost(other, error) from None
        self.check()

    def _lost(self, other: int, error: Exception) -> PartyLostError:
        """Error that names who ended the connection to ``other``."""
        began, hangs = time.monotonic(), "timed out" in str(error).lower()
        wait = _GRACE
        try:
            if hangs:
                # Out of patience, gloo ends all connections of this party. Others see
                # that, and wait for who hangs, which may be none that this one heard.
                self._store.set("looking", "")
                other = self._silent(other)
            while time.monotonic() < began + wait and self.failure is None:
                if self._store.check(["cause"]):
                    accused, why, by = map(int, self._store.get("cause").split())
                    return self._was_told(by, accused, why)
                if not hangs and self._store.check(["looking"]):
                    wait = _GRACE + 3 * _BEAT
                time.sleep(0.05)
        except (RuntimeError, OSError):
            return self._fail(0, ENDED)  # its store has ended, and so others could
        detail = f"in {self.patience:.0f} s" if hangs else ""
        return self._fail(other, HANGS if hangs else ENDED, detail)

    def _silent(self, awaited: int) -> int:
        """Rank that gives no sign of life; ``awaited`` if all do."""
        before = [self._store.get(f"{other} alive") for other in self.others]
        time.sleep(2 * _BEAT)
        for other, sign in zip(self.others, before, strict=True):
            if self._store.get(f"{other} alive") == sign:
                return other
        return awaited

    def _beat(self) -> None:
        """Give signs of life."""
        with contextlib.suppress(RuntimeError, OSError):
            for number in itertools.count():
                if self._is_closed:
                    return
                self._store.set(f"{self.rank} alive", str(number))
                time.sleep(_BEAT / 2)

    def _say(self, topic: str, text: bytes) -> None:
        with self._stored():
            self._store.set(f"{self.rank} {topic}", text.decode())

    def _hear(self, other: int, topic: str) -> bytes:
        key, until = f"{other} {topic}", time.monotonic() + self.patience
        with self._stored():
            while not self._store.check([key]):
                self.check()
                if self._store.check(["cause"]):
                    accused, why, by = map(int, self._store.get("cause").split())
                    raise self._was_told(by, accused, why)
                if time.monotonic() > until:
                    self.hangs(other)
                time.sleep(0.01)
            return self._store.get(key)

    @contextlib.contextmanager
    def _stored(self) -> Iterator[None]:
        """Turns a lost store into the loss of party 0, who keeps it."""
        try:
            yield
        except PartyLostError:
            raise
        except (RuntimeError, ConnectionError):
            raise self._fail(0, ENDED) from None

    def _tell(self, accused: int, why: int) -> None:
        with contextlib.suppress(RuntimeError, OSError):
            self._store.compare_set("cause", "", f"{accused} {why} {self.rank}")

    def _leave(self) -> None:
        """Leave the group; party 0, whose store others still read, as the last one."""
        with contextlib.suppress(RuntimeError, OSError):
            self._store.set(f"{self.rank} left", "")
            until = time.monotonic() + (10.0 if self.failure is None else _GRACE)
            left = [f"{other} left" for other in self.others]
            while self.rank == 0 and time.monotonic() < until:
                if self._store.check(left):
                    break
                time.sleep(0.01)


@contextlib.contextmanager
def joined(rank: int, size: int, patience: float = PATIENCE) -> Iterator[Exchange]:
    """This party, connected to all others for as long as the context lasts.

    All meet at MASTER_ADDR and MASTER_PORT. Raises `PartyLostError` if others do not
    come within ``patience`` seconds, ``ValueError`` where there is no address.
    """
    store = _store(rank, size, patience)
    try:
        if store.add(f"{rank} came", 1) > 1:
            raise ValueError(
                f"another party came as number {rank}: each has a RANK of its own"
            )
        _wait_for_all(store, rank, size, patience)
        dist.init_process_group(
            "gloo",
            store=dist.PrefixStore("group", store),
            rank=rank,
            world_size=size,
            timeout=datetime.timedelta(seconds=patience),
        )
    except (RuntimeError, ConnectionError) as error:
        raise PartyLostError(
            f"parties could not be connected ({str(error).splitlines()[0]}); start all "
            "with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE, and RANK from 0 on"
        ) from None
    try:
        with ended_by_torchrun(), ByTorch(rank, size, store, patience) as exchange:
            yield exchange
    finally:
        dist.destroy_process_group()


def _wait_for_all(store: dist.Store, rank: int, size: int, patience: float) -> None:
    until = time.monotonic() + patience
    while missing := [r for r in range(size) if not store.check([f"{r} came"])]:
        if store.check(["absent"]):
            missing, until = store.get("absent").decode().split(), 0.0
        if time.monotonic() > until:
            names = ", ".join(map(str, missing))
            store.set("absent", names.replace(",", ""))
            raise PartyLostError(
                f"{'party' if len(missing) == 1 else 'parties'} {names} did not come "
                f"within {patience:.0f} s; start all with the same MASTER_ADDR, "
                "MASTER_PORT and WORLD_SIZE, and RANK from 0 on"
            )
        time.sleep(0.02)


def _store(rank: int, size: int, patience: float) -> dist.Store:
    """Party 0's, or torchrun's."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(
            "parties meet at party 0: set MASTER_ADDR and MASTER_PORT, the same at "
            f"all, or start them by torchrun; got {host!r} and {port!r}"
        )
    mine = rank == 0 and not by_torchrun()
    try:
        store = dist.TCPStore(
            host,
            int(port),
            None,
            is_master=mine,
            timeout=datetime.timedelta(seconds=patience),
            wait_for_workers=False,
        )
    except (RuntimeError, ConnectionError) as error:
        why = str(error).splitlines()[0]
        if mine:
            raise ValueError(
                f"this party cannot listen at {host} port {port} ({why}): give an "
                "address of this machine and a free port"
            ) from None
        raise PartyLostError(
            f"party 0 cannot be reached at {host} port {port} ({why}); start it, or "
            f"see MASTER_ADDR and MASTER_PORT; {GO_ON} at every party"
        ) from None
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"privaudit {again}", store)
