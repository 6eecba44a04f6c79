"""Messages between parties: checked here, carried by engines that others keep.

`Exchange` is what training calls. An engine carries four things: a message to one other
party, public words to all, the cause of an end to all, and what comes of these. A
message is bytes and a label (name, round, dtype, shape), so that no engine decodes
tensors, and nothing is used before its label and its length are those that are due.
"""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor

from privaudit.files import json as _json
from trainers.network.ranks import GO_ON, RankLostError

T = TypeVar("T")

PATIENCE = 300.0  # seconds that parties wait for each other
NOBODY = "nobody is asked any more"
_BACK = b"back"
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
    rounds that they were missed in.
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

    @property
    def others(self) -> list[int]:
        """All other parties but those that have left."""
        every = range(self.size)
        return [one for one in every if one != self.rank and one not in self.left]

    def may_go_on(self) -> None:
        """Once training begins, who is lost has left, if more than half are there."""
        self.drops_lost = True

    # ---- what an engine carries

    @abc.abstractmethod
    def _send(self, other: int, what: str, rows: Tensor) -> None:
        """Carry ``rows``, on the CPU, labelled ``what``; may wait for room."""

    @abc.abstractmethod
    def _receive(self, other: int, due: Mapping[str, Tensor]) -> tuple[str, Tensor]:
        """The next message of ``other``: its label, and rows alike those of ``due``.

        Raises ``ValueError`` for a label or a length that is not due, and
        `PartyLostError` if nothing will ever come.
        """

    @abc.abstractmethod
    def _say(self, topic: str, text: bytes) -> None:
        """Carry public words to all others. A topic is said once."""

    @abc.abstractmethod
    def _hear(self, other: int, topic: str) -> bytes:
        """Wait for what ``other`` says of ``topic``; raises `PartyLostError`."""

    @abc.abstractmethod
    def _tell(self, accused: int, why: int) -> None:
        """Tell all others who is the cause of an end; raises nothing."""

    @abc.abstractmethod
    def _leave(self) -> None:
        """Give back what the engine lent."""

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
        """Nobody is needed any more: who ends now is no loss."""
        self._over = True

    def check(self) -> None:
        """Raise what went wrong, if something did."""
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
            told = threading.Thread(target=self._tell, args=(other, why), daemon=True)
            told.start()
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
