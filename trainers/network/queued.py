"""Exchanges by engines that hand over what came, and that of one process."""

from __future__ import annotations

import abc
import collections
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

import torch
from torch import Tensor

from trainers.network.exchange import (
    ENDED,
    MALFORMED,
    NOBODY,
    PATIENCE,
    Exchange,
    HasLeft,
    PartyLostError,
    plain,
)

MOST_WORDS = 1 << 20  # bytes of public words that a party may have said
Bytes = bytes | bytearray
_QUEUED = 64  # messages that a party may be ahead
_RECENT = 1024  # of what came, remembered so that it is not taken twice
_LOOK = 0.5  # seconds between looks at whether a party was lost


class Queued(Exchange):
    """An `Exchange` by an engine that hands over what came: see `arrived`.

    Who waits says so to all: who is waited for then is the cause, and not who waits.
    """

    def __init__(self, rank: int, size: int, patience: float = PATIENCE) -> None:
        super().__init__(rank, size, patience)
        self._changed = threading.Condition()
        self._messages: dict[int, collections.deque[tuple[str, Bytes]]] = {
            other: collections.deque() for other in self.others
        }
        self._queued = dict.fromkeys(self.others, 0)  # bytes of them
        self._words: dict[int, dict[str, Bytes]] = {other: {} for other in self.others}
        self._waits: dict[int, tuple[int, float]] = {}  # who for whom, and when said
        self._busy: dict[int, float] = {}  # when one said that it will have time later
        self._awaited: int | None = None  # by this party
        self._said = 0.0  # when that began, or was said last
        self._numbers = itertools.count(1)
        self._taken: dict[int, collections.deque[int]] = {
            other: collections.deque(maxlen=_RECENT) for other in self.others
        }

    @abc.abstractmethod
    def _carry(
        self, other: int, kind: str, what: str, content: Bytes, number: int = 0
    ) -> bool:
        """Have ``arrived`` called at ``other``; what it returned."""

    def _is_silent(self, other: int) -> None:
        """Look whether ``other``, who is waited for, is there; `PartyLostError`."""

    def arrived(
        self, other: int, kind: str, what: str, content: Bytes, number: int = 0
    ) -> bool:
        """Take what ``other`` sent; False if there is no room yet.

        ``kind`` is message, words, end, bye or waits. What has a ``number`` may come
        again, if its sender did not hear that it was taken.
        """
        try:
            with self._changed:
                if other not in self._messages or other in self.left:
                    return True  # of nobody who has a part in this
                if kind == "message" and not self._has_room(other, what, content):
                    return False
                if number and number in self._taken[other]:
                    return True
                self._take(other, kind, what, content)
                if number:
                    self._taken[other].append(number)
                self._changed.notify_all()
        except ValueError as error:
            self._fail(other, MALFORMED, str(error))
        return True

    def _has_room(self, other: int, what: str, content: Bytes) -> bool:
        """Return whether a message may be queued; ``ValueError`` if it never may."""
        if self._most is None:
            return False
        if len(content) > self._most:
            raise ValueError(f"more than the {self._most} bytes that there may be")
        queue = self._messages[other]
        return not queue or (
            len(queue) < _QUEUED and self._queued[other] + len(content) <= self._most
        )

    def _take(self, other: int, kind: str, what: str, content: Bytes) -> None:
        words = self._words[other]
        if kind == "message":
            self._messages[other].append((what, content))
            self._queued[other] += len(content)
        elif kind == "words":
            if what in words:
                raise ValueError(f"words on {plain(what)} twice")
            if sum(map(len, [*words, *words.values(), what, content])) > MOST_WORDS:
                raise ValueError("more words than are due")
            words[what] = content
        elif kind == "end":
            accused, why = map(int, what.split())
            self._was_told(other, accused, why)
        elif kind == "bye":
            words.setdefault("bye", b"")
        elif kind == "waits":
            self._waits[other] = int(what), time.monotonic()
        else:
            raise ValueError(f"something of kind {plain(kind)}")

    def _await(
        self, other: int, there: Callable[[], bool], *, end: bool = True
    ) -> None:
        """Until it is ``there``; with ``end`` within the patience.

        Raises `PartyLostError` if a party is lost meanwhile.
        """
        began = time.monotonic()
        with self._waiting(other if end else None):
            while not there():
                self.check()
                if other in self.left:
                    raise HasLeft(f"party {other} has left")
                if not end and other not in self._due:
                    raise PartyLostError(NOBODY)
                if "bye" in self._words[other] and not there():
                    why = "before it had sent all that the others wait for"
                    raise self._fail(other, ENDED, why)
                if end and self._is_late(other, began):
                    self.hangs(other)
                self._say_who()
                self._is_silent(other)
                with self._changed:  # of others no lock is taken under this one
                    if not there() and self.failure is None:
                        self._changed.wait(min(_LOOK, self.patience / 16))

    @contextlib.contextmanager
    def _waiting(self, other: int | None) -> Iterator[None]:
        """While this party waits for ``other``."""
        self._said, self._awaited = time.monotonic(), other
        try:
            yield
        finally:
            self._awaited = None

    def _say_who(self) -> None:
        """Tell all whom this party waits for, if it does for long."""
        other, now = self._awaited, time.monotonic()
        if other is not None and now > self._said + self.patience / 8:
            self._said = now
            for third in self.others:
                self._carry(third, "waits", str(other), b"")

    def _is_late(self, other: int, began: float) -> bool:
        """Return whether to give up ``other``, waited for since ``began``.

        Not as long as it waits for a third, who is given up by it, unless it says so
        for longer than there are others to be given up.
        """
        now = time.monotonic()
        if now < max(began, self._busy.get(other, began)) + self.patience:
            return False
        third, when = self._waits.get(other, (other, 0.0))
        waits = third not in (other, self.rank) and now < when + self.patience / 2
        return not waits or now > began + self.size * self.patience

    def _receive(self, other: int, due: Mapping[str, Tensor]) -> tuple[str, Tensor]:
        queue = self._messages[other]
        # Whoever may send in any order may also have nothing to send.
        self._await(other, lambda: bool(queue), end=other not in self._due)
        with self._changed:
            what, content = queue.popleft()
            self._queued[other] -= len(content)
            self._changed.notify_all()
        like = due.get(what)
        if like is None:
            one = f", where {next(iter(due))} was due" if len(due) == 1 else ""
            raise ValueError(f"{plain(what)}{one or ', which is not due'}")
        if len(content) != like.numel() * like.element_size():
            raise ValueError(f"{len(content)} bytes as {what}")
        # What an engine received into it may write to, and need not be copied.
        content = content if isinstance(content, bytearray) else bytearray(content)
        rows = torch.frombuffer(content, dtype=like.dtype)
        return what, rows.view(like.shape)

    def _send(self, other: int, what: str, rows: Tensor) -> None:
        self._put(other, "message", what, bytearray(rows.numpy().data.cast("B")))

    def _put(self, other: int, kind: str, what: str, content: Bytes) -> None:
        began, number = time.monotonic(), next(self._numbers)
        with self._waiting(other):
            while other not in self.left and not self._carry(
                other, kind, what, content, number
            ):
                self.check()
                if self._is_late(other, began):
                    self.hangs(other)
                self._say_who()
                time.sleep(0.002)
        self.check()

    def _say(self, topic: str, text: bytes) -> None:
        for other in self.others:
            with contextlib.suppress(HasLeft):
                self._put(other, "words", topic, text)

    def _hear(self, other: int, topic: str) -> bytes:
        self._await(other, lambda: topic in self._words[other])
        return bytes(self._words[other][topic])

    def _tell(self, accused: int, why: int) -> None:
        for other in {*self.others, accused} - {self.rank}:
            with contextlib.suppress(OSError):
                self._carry(other, "end", f"{accused} {why}", b"")

    def over(self) -> None:
        """Nobody is needed any more, and all are told so."""
        if not self._over:
            super().over()
            for other in self.others:
                with contextlib.suppress(OSError):
                    self._carry(other, "bye", "", b"")

    def _leave(self) -> None:
        with self._changed:
            self._changed.notify_all()


class InProcess(Queued):
    """Parties that are threads of one process: see `InProcess.all`."""

    _all: Sequence[InProcess] = ()

    @classmethod
    def all(cls, size: int, patience: float = PATIENCE) -> list[Self]:
        """The exchanges of ``size`` parties, connected."""
        found = [cls(rank, size, patience) for rank in range(size)]
        for one in found:
            one._all = found
        return found

    def _carry(
        self, other: int, kind: str, what: str, content: Bytes, number: int = 0
    ) -> bool:
        return self._all[other].arrived(self.rank, kind, what, content, number)
