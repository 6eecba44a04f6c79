"""Messages between parties: checked here, carried by engines that others keep.

`Exchange` is what training calls. An engine carries four things: a message to one other
party, public words to all, the cause of an end to all, and what comes of these. A
message is bytes and a label (name, round, dtype, shape), so that no engine decodes
tensors, and nothing is used before its label and its length are those that are due.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Self, TypeVar

import torch
from torch import Tensor

from privaudit.files import json as _json
from trainers.network.ranks import GO_ON, RankLostError

T = TypeVar("T")

PATIENCE = 300.0  # seconds that parties wait for each other
NOBODY = "nobody is asked any more"
_BACK = b"back"
MOST_WORDS = 1 << 20  # bytes of public words that a party may have said
Bytes = bytes | bytearray
_QUEUED = 64  # messages that a party may be ahead
_RECENT = 1024  # of what came, remembered so that it is not taken twice
_LOOK = 0.5  # seconds between looks at whether a party was lost
_DTYPES = (torch.float32, torch.float64, torch.int64)

# Why a party is the cause of an end, by number: what another party says is no text.
_WHY = {
    1: "has ended",
    2: "does not answer",
    3: "sent something malformed",
    4: "ended with an error of its own, which it says itself",
    5: "did not come",
}
ENDED, HANGS, MALFORMED, OWN_ERROR, ABSENT = _WHY


class PartyLostError(RankLostError):
    """Another party is gone, hangs or sent something wrong; the message names it."""


class HasLeft(PartyLostError):
    """Another party is gone, and the rest go on without it."""


def label(tensor: Tensor, k: int, name: str) -> str:
    """Name, round, dtype and shape of a message; ``ValueError`` if it cannot be one.

    >>> label(torch.zeros(1, 2, 3), 4, "theta")
    'theta of round 4, float32 (1, 2, 3)'
    """
    if tensor.dtype not in _DTYPES or tensor.dim() > 4:
        raise ValueError(
            "parties send messages of float32, float64 or int64, (runs, nodes, ...) "
            f"with four dimensions at most: {name} is {tensor.dtype}, "
            f"{tuple(tensor.shape)}"
        )
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{name[:32]} of round {k}, {dtype} {tuple(tensor.shape)}"


def plain(text: str, most: int = 200) -> str:
    """Text of another party, fit to be shown."""
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return shown if len(shown) <= most else f"{shown[:most]}..."


class CameBack(PartyLostError):
    """A party that had left is there again: all begin anew from where they are."""


class Exchange(abc.ABC):
    """Connections of one party to all others, by some engine.

    ``rank``, ``size``: which party this is, of how many. ``patience``: seconds that
    another party is waited for. ``drops_lost``: whether the others go on without who is
    lost, see `may_go_on`. ``left``: parties that the rest went on without, and the
    rounds that they were missed in. An engine has `_carry`, and calls `arrived`. Who
    waits says so to all: who is waited for then is the cause, and not who waits.
    """

    def __init__(self, rank: int, size: int, patience: float = PATIENCE) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"a party's number is in [0, {size}), got {rank}")
        if not 0 < patience < float("inf"):
            raise ValueError(f"patience is a number of seconds > 0, got {patience}")
        self.rank, self.size, self.patience = rank, size, patience
        self.left: dict[int, int] = {}
        self.back: set[int] = set()  # those of them that ask to come in again
        self.drops_lost = self._goes_on = self._said_back = False
        self._round = 0
        self.failure: PartyLostError | None = None
        self._most: int | None = None  # bytes of messages to queue, once it is known
        self._due: dict[int, dict[str, tuple[str, Tensor]]] = {}  # of `any_due`
        self._common = -1  # rounds after which all had kept their state at the start
        self._over = self._is_closed = False
        self._agrees = True
        self._failing = threading.Lock()
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

    @property
    def others(self) -> list[int]:
        """All other parties but those that have left."""
        every = range(self.size)
        return [one for one in every if one != self.rank and one not in self.left]

    def may_go_on(self) -> None:
        """Go on without lost parties from now on, as long as more than half stay."""
        self.drops_lost = True

    # ---- what an engine carries

    @abc.abstractmethod
    def _carry(
        self, other: int, kind: str, what: str, content: Bytes, number: int = 0
    ) -> bool:
        """Have ``arrived`` called at ``other``; what it returned."""

    def _is_silent(self, other: int) -> None:  # noqa: B027 engines may have nothing
        """Look whether ``other``, who is waited for, is there; `PartyLostError`."""

    def _look_who_is_back(self) -> None:  # noqa: B027 engines may hear it by messages
        """Add to ``back`` who left and asks to come in again."""

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
        """Wait until it is ``there``; with ``end`` no longer than the patience.

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
        return what, torch.frombuffer(content, dtype=like.dtype).view(like.shape)

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

    # ---- what training calls

    def send(self, other: int, tensor: Tensor, k: int, name: str) -> None:
        """Send a message of round ``k``, on the CPU; nothing to who has left."""
        rows = tensor.detach().contiguous()
        self._round = k
        with contextlib.suppress(HasLeft):
            self._send(other, label(rows, k, name), rows)

    def receive(self, other: int, like: Tensor, k: int, name: str) -> Tensor | None:
        """The message of round ``k``, of the dtype and shape of ``like``, finite.

        None if ``other`` has left. Raises `PartyLostError` if something else comes, or
        nothing ever will.
        """
        self._round = k
        try:
            return self._checked(other, {label(like, k, name): like})[1]
        except HasLeft:
            return None

    def due(self, messages: Mapping[int, Sequence[tuple[str, Tensor]]]) -> None:
        """Say what `any_due` may give, by rank: names, and tensors alike.

        With nothing it ends, wherever it waits, and who leaves then is no loss.
        """
        self._due = {
            other: {label(like, 0, name): (name, like) for name, like in here}
            for other, here in messages.items()
        }

    def any_due(self, other: int) -> tuple[str, Tensor]:
        """The next of the messages that are `due`, in whatever order: name, content.

        Raises `PartyLostError` if something else comes, or nothing ever will.
        """
        due = self._due.get(other)
        if due is None:
            raise PartyLostError(NOBODY)
        what, rows = self._checked(other, {one: due[one][1] for one in due})
        return due[what][0], rows

    def _checked(self, other: int, due: Mapping[str, Tensor]) -> tuple[str, Tensor]:
        """A message that is due, if it is finite."""
        try:
            what, rows = self._receive(other, due)
            if not rows.isfinite().all():
                raise ValueError(f"{what} with numbers that are not finite")
        except ValueError as error:
            self.refuse(other, str(error))
        return what, rows

    def expects(self, most: int | None) -> None:
        """Say how many bytes of messages a party may be ahead at most.

        None is taken before.
        """
        self._most = most

    def told(self, topic: str, value: Any, kind: type[T]) -> list[T]:
        """Words of all on ``topic``, by rank: public, as JSON of ``kind``."""
        own = _json.encode(value, indent=0)
        self._say(topic, own)
        found = []
        for other in range(self.size):
            text = own if other == self.rank else self._hear(other, topic)
            try:
                found.append(_json.decode(text, kind))
            except ValueError:
                self.refuse(other, f"words on {topic} that cannot be read")
        return found

    def begins(self, k: int) -> None:
        """All have kept their state after ``k`` rounds, as they said."""
        self._common = k
        self._goes_on = self.drops_lost

    def kept(self, k: int) -> None:
        """Tell all that this party has kept its state after ``k`` rounds."""
        self._look_who_is_back()
        self._said_back = bool(self.back)
        self._say(f"kept {k}", _BACK if self.back else b"")

    def all_kept(self, k: int) -> bool:
        """Wait until all have kept their state after ``k`` rounds.

        Returns whether one of them said that a party asks to come in again.
        """
        back = self._said_back
        for other in self.others if k > self._common else ():
            with contextlib.suppress(HasLeft):
                back |= self._hear(other, f"kept {k}") == _BACK
        return back

    def begin_anew(self, k: int) -> NoReturn:
        """Raise `CameBack`, at all, once all have kept their state after ``k``."""
        self.all_kept(k)
        self.over()
        self._agrees = False
        raise CameBack(f"a party that was lost is there again; {GO_ON} at every party")

    def refuse(self, other: int, what: str) -> NoReturn:
        """End all, as ``other`` sent ``what``, or failed itself: `PartyLostError`."""
        raise self._fail(other, OWN_ERROR if other == self.rank else MALFORMED, what)

    def hangs(self, other: int) -> NoReturn:
        """End all, as ``other`` was waited for too long: `PartyLostError`."""
        raise self._fail(other, HANGS, f"in {self.patience:.0f} s")

    def disagree(self, why: str) -> NoReturn:
        """``ValueError`` for what all see by themselves, so that none is told."""
        self._agrees = False
        raise ValueError(why)

    def over(self) -> None:
        """Nobody is needed any more, who ends now is no loss, and all are told so."""
        if not self._over:
            self._over = True
            for other in self.others:
                with contextlib.suppress(OSError):
                    self._carry(other, "bye", "", b"")

    def check(self) -> None:
        if self.failure is not None and not self._over:
            raise self.failure
        if self._is_closed:
            raise PartyLostError("this party has closed its connections")

    def _fail(
        self, accused: int, why: int, detail: str = "", by: int | None = None
    ) -> PartyLostError:
        """Note the first failure and tell all; what is to be raised.

        If all go on, the accused has left; nobody is believed who says it of another.
        """
        if self._goes_on and accused != self.rank:
            return self._lose(accused, why)
        with self._failing:
            if self.failure is not None:
                return self.failure
            who = "this party" if accused == self.rank else f"party {accused}"
            colon = ":" if why in (MALFORMED, OWN_ERROR) and detail else ""
            what = f"{_WHY[why]}{colon} {detail}"
            told = "" if by in (None, accused) else f", as party {by} says"
            self.failure = PartyLostError(
                f"{who} {what.strip()}{told}; {GO_ON} at every party"
            )
        if by is None and not self._over:
            self._tell(accused, why)
        return self.failure

    def _was_told(self, by: int, accused: int, why: int) -> PartyLostError:
        """Note what another party says is the cause; ``ValueError`` if it is none."""
        if not 0 <= accused < self.size or why not in _WHY:
            raise ValueError("an end without a cause")
        if not self._goes_on:
            return self._fail(accused, why, by=by)
        if accused in (by, self.rank):  # who has lost this party sends it nothing more
            return self._lose(by)
        return PartyLostError(f"party {by} says so of party {accused}")

    def _lose(self, other: int, why: int = 0) -> PartyLostError:
        """Go on without ``other``, unless no more than half would be there.

        It is told so, with ``why``, and then loses this party too.
        """
        lost = HasLeft(f"party {other} has left")
        if self._over or other in self.left:
            return lost
        if why:  # by another thread, since it may not answer
            threading.Thread(target=self._tell, args=(other, why), daemon=True).start()
        with self._failing:
            self.left.setdefault(other, self._round)
            gone = ", ".join(map(str, sorted(self.left)))
            if 2 * len(self.left) >= self.size:
                self.failure = self.failure or PartyLostError(
                    f"parties {gone} of {self.size} are lost, and the others are no "
                    f"more than half; {GO_ON} at every party"
                )
                return self.failure
        return lost

    # ---- beginning and end

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is not None and self.failure is None and self._agrees:
            self._tell(self.rank, OWN_ERROR)
        if error is None:
            self.over()
        self._is_closed = True
        self._leave()

    def _leave(self) -> None:
        """Wake who waits, and give back what the engine lent."""
        with self._changed:
            self._changed.notify_all()


class InProcess(Exchange):
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
