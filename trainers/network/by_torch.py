"""Messages between parties by torch.distributed (gloo): one trust domain, a cluster.

All goes from party to party, who meet at a store that party 0 keeps (torchrun's, where
that started them). Nothing is encrypted, and nobody proves who it is: see
docs/parties.md for FLARE, which does both.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import queue
import threading
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist

from trainers.network.exchange import (
    ENDED,
    MALFORMED,
    MOST_WORDS,
    PATIENCE,
    Bytes,
    Exchange,
    PartyLostError,
    plain,
)
from trainers.network.ranks import GO_ON, by_torchrun, ended_by_torchrun

_LAST = b"last"
_HEAD = 256  # bytes that say what comes
_AHEAD = 8  # messages that wait to be sent to one party
_URGENT = ("end", "waits")  # pass by what waits for room
_FOREVER = datetime.timedelta(days=100)  # out of patience, gloo ends all connections
_GRACE = 0.5  # seconds, from a lost connection to taking its party for the cause


class ByTorch(Exchange):
    """An `Exchange` by torch.distributed, where it has a group; see `joined`."""

    def __init__(
        self, store: dist.Store, rank: int, size: int, patience: float = PATIENCE
    ) -> None:
        super().__init__(rank, size, patience)
        self._store = store
        self._going: dict[tuple[int, bool], queue.Queue[tuple[bytearray, Bytes]]] = {}
        self._threads: list[threading.Thread] = []
        for lane in itertools.product(self.others, (False, True)):
            self._going[lane] = queue.Queue()
            for work in (self._sends, self._hears):
                thread = threading.Thread(target=work, args=lane, daemon=True)
                thread.start()
                self._threads.append(thread)

    def _carry(
        self, other: int, kind: str, what: str, content: Bytes, number: int = 0
    ) -> bool:
        going = self._going[other, kind in _URGENT]
        if kind == "message" and going.qsize() >= _AHEAD:
            return False
        head = f"{kind} {len(content)} {number} {what}".encode()
        going.put((bytearray(head[:_HEAD].ljust(_HEAD, b"\0")), content))
        return True

    def _look_who_is_back(self) -> None:
        with contextlib.suppress(RuntimeError, ConnectionError):  # party 0 is lost
            if self._store.check([f"{self.rank} again"]):
                self._store.set(f"{self.rank} is here", "")
            for other in self.left:
                if self._store.check([f"{other} again"]):
                    self.back.add(other)

    def _sends(self, other: int, urgent: bool) -> None:
        """Send in order what is to go to ``other``, until nothing more will."""
        going = self._going[other, urgent]
        with contextlib.suppress(RuntimeError, OSError):  # who hears notes the loss
            while True:
                head, content = going.get()
                for part in (head, content) if content else (head,):
                    whole = part if isinstance(part, bytearray) else bytearray(part)
                    rows = torch.frombuffer(whole, dtype=torch.uint8)
                    _done(dist.isend(rows, other, tag=int(urgent)))
                if head.startswith(_LAST):
                    return

    def _hears(self, other: int, urgent: bool) -> None:
        """Take in order what comes of ``other``, until nothing more will."""

        def received(size: int) -> bytearray:
            into = bytearray(size)
            if size:
                rows = torch.frombuffer(into, dtype=torch.uint8)
                _done(dist.irecv(rows, other, tag=int(urgent)))
            return into

        try:
            while not (head := received(_HEAD)).startswith(_LAST):
                text = head.rstrip(b"\0").decode(errors="replace")
                kind, size, number, what = (*text.split(" ", 3), "", "", "")[:4]
                while kind == "message" and self._most is None:
                    if self._is_closed:
                        return
                    time.sleep(0.01)
                if not size.isdecimal() or int(size) > max(self._most or 0, MOST_WORDS):
                    raise ValueError(f"{plain(size)} bytes at once")
                content = received(int(size))
                number = int(number) if number.isdecimal() else 0
                while not self.arrived(other, kind, what, content, number):
                    if self._is_closed:
                        return
                    time.sleep(0.001)
        except ValueError as error:
            self._fail(other, MALFORMED, str(error))
        except (RuntimeError, OSError):
            time.sleep(_GRACE)  # who ended may have said why, or who is the cause
            if not self._is_closed and "bye" not in self._words[other]:
                self._fail(other, ENDED)

    def _leave(self) -> None:
        """Wait until what was said last has gone, and for the others' last word."""
        super()._leave()
        del self._store  # of whose port party 0 has need, should all meet anew
        for going in self._going.values():
            going.put((bytearray(_LAST.ljust(_HEAD, b"\0")), b""))
        until = time.monotonic() + (10.0 if self.failure is None else _GRACE)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


def _done(work: dist.Work | None) -> None:
    assert work is not None
    work.wait(_FOREVER)


@contextlib.contextmanager
def joined(rank: int, size: int, patience: float = PATIENCE) -> Iterator[Exchange]:
    """This party, connected to all others for as long as the context lasts.

    All meet at MASTER_ADDR and MASTER_PORT. Raises `PartyLostError` if others do not
    come within ``patience`` seconds, ``ValueError`` where there is no address.
    """
    store = _expected(rank, size, patience)
    try:
        _wait_for_all(store, rank, size, patience)
        store.set("met", "")
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
        with ended_by_torchrun(), ByTorch(store, rank, size, patience) as exchange:
            yield exchange
    finally:
        dist.destroy_process_group()
        del store


def _expected(rank: int, size: int, patience: float) -> dist.Store:
    """The store where this party is due; one that was lost waits until all meet anew.

    ``ValueError`` if there is another party of this number.
    """
    while True:
        store = _store(rank, size, patience)
        if store.add(f"{rank} came", 1) == 1:
            return store
        with contextlib.suppress(RuntimeError, ConnectionError):  # as party 0 ends it
            if store.check(["met"]):
                store.set(f"{rank} again", "")
                while not store.check([f"{rank} is here"]):
                    time.sleep(0.2)
            raise ValueError(
                f"another party came as number {rank}: each has a RANK of its own"
            )


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
