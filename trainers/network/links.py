"""Connections between parties, with signs of life: whoever fails is named."""

from __future__ import annotations

import _thread
import collections
import contextlib
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor

from privaudit.files import json as _json
from trainers.network.frames import (
    ALIVE,
    BYE,
    END,
    HEADER,
    KEPT,
    MESSAGE,
    WORDS,
    Header,
    words,
)
from trainers.network.ranks import GO_ON, RankLostError, ToldToEnd, by_torchrun

T = TypeVar("T")

BEAT, SILENCE = 0.5, 6.0  # seconds between signs of life; without one, a party hangs
_GRACE = 1.5  # seconds, from a connection's end to taking its party for the cause
_QUEUED = 64  # frames that a party may be ahead
MOST_WORDS = 1 << 20  # bytes of public words that a party may be ahead

# Why a party is the cause of an end, by number: what another party says is no text.
_WHY = {
    1: "has ended",
    2: "does not answer",
    3: "sent something malformed",
    4: "ended with an error of its own, which it says itself",
    5: "did not come",
}
ENDED, HANGS, MALFORMED, OWN_ERROR, ABSENT = _WHY


def cause(header: Header, size: int) -> tuple[int, int]:
    """Who is the cause of an end, and why. ``ValueError`` if that is none."""
    accused, why = divmod(header.round, 256)
    if accused >= size or why not in _WHY:
        raise ValueError("an end without a cause")
    return accused, why


def end(accused: int, why: int) -> bytes:
    """A frame that says who is the cause of an end, and why."""
    return Header(END, accused * 256 + why).pack()


def as_said(accused: int, why: int, by: int) -> str:
    """What ``by`` says of ``accused``."""
    told = "" if accused == by else f", as party {by} says"
    return f"party {accused} {_WHY[why]}{told}; {GO_ON} at every party"


class PartyLostError(RankLostError):
    """Another party is gone, hangs or sent something wrong; the message names it."""


class _Link:
    """A connection to one other party, and what came by it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.lock = threading.Lock()  # of sending: whole frames
        self.frames: dict[int, collections.deque[tuple[Header, bytearray]]] = {
            MESSAGE: collections.deque(),
            WORDS: collections.deque(),
        }
        self.queued = {MESSAGE: 0, WORDS: 0}  # bytes of them
        self.most: int | None = None  # bytes of messages to queue, once it is known
        self.round, self.due = -1, frozenset[Header]()  # messages that are due, of it
        self.heard = time.monotonic()
        self.rest = b""  # of a frame that did not fit, to be sent first
        self.is_whole = True  # no frame was left half sent
        self.is_full = False  # it waits for us, not we for it
        self.waiting: Header | None = None  # of what there is no room for yet
        self.kept = -1
        self.said_bye = False

    def is_heard(self) -> None:
        """Something came: it is alive."""
        self.heard = time.monotonic()


def bytes_of(
    sock: socket.socket,
    length: int,
    told: Callable[[], None] = lambda: None,
    until: float | None = None,
) -> bytearray:
    """The next ``length`` bytes; ``told`` is called at each part of them.

    Raises ``OSError`` if the connection ends before, or at ``until``.
    """
    content = bytearray(length)
    view, done = memoryview(content), 0
    while done < length:
        if until is not None:
            sock.settimeout(max(until - time.monotonic(), 1e-3))
        got = sock.recv_into(view[done:], min(length - done, 1 << 20))
        if not got:
            raise ConnectionError
        done += got
        told()
    return content


class Links:
    """Connections of one party to all others; see `joined`.

    A thread for each reads what comes, so that a party that computes still hears; one
    more sends signs of life and notices who sends none. The first failure is raised at
    the next use, or within two seconds where this is the main thread; and told to all.

    Parameters
    ----------
    rank, size
        Which party this is, of how many.
    socks
        Connected, by the other party's rank.
    """

    def __init__(self, rank: int, size: int, socks: dict[int, socket.socket]) -> None:
        self.rank, self.size = rank, size
        self.failure: PartyLostError | None = None
        self._links = {other: _Link(sock) for other, sock in socks.items()}
        self._changed = threading.Condition()
        self._over = self._is_raised = False
        self._agrees = True
        self._accused: tuple[int, int] = rank, OWN_ERROR
        self._stops = threading.Event()
        self._threads: list[threading.Thread] = []
        self._interrupts = False
        for other, link in self._links.items():
            link.sock.settimeout(None)
            if link.sock.family != socket.AF_UNIX:
                link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.start(self._read, other, link)
        if self._links:
            self.start(self._beat)

    def start(self, work: Any, *arguments: Any) -> None:
        """Let a thread do ``work``, which these connections end: see `close`."""
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    # ---- what the main thread calls

    def send(self, other: int, tensor: Tensor, k: int, name: str) -> None:
        """Send a message of round ``k``, on the CPU."""
        tensor = tensor.detach().contiguous()
        header = Header.of(tensor, k, name)
        content = tensor.view(-1).view(torch.uint8).numpy().data
        self._put(other, header.pack(), content)

    def receive(self, other: int, like: Tensor, k: int, name: str) -> Tensor:
        """The message of round ``k``, of the dtype and shape of ``like``, finite.

        Raises `PartyLostError` if something else comes, or nothing ever will.
        """
        due = Header.of(like, k, name)
        header, content = self._next(other, MESSAGE)
        if header != due:
            self.refuse(other, f"{header}, where {due} was due")
        return self._opened(other, header, content)

    def any_due(self, other: int) -> tuple[str, Tensor]:
        """The next of the messages that are `due`, in whatever order: name, content.

        Raises `PartyLostError` if something else comes, or nothing ever will.
        """
        header, content = self._next(other, MESSAGE)
        if header not in self._links[other].due:
            self.refuse(other, f"{header}, which is not due")
        return header.name, self._opened(other, header, content)

    def _opened(self, other: int, header: Header, content: bytearray) -> Tensor:
        """A message that was due, if it is finite."""
        assert header.dtype is not None  # `_wait_for_room` refuses such
        found = torch.frombuffer(content, dtype=header.dtype).view(header.shape)
        if not found.isfinite().all():
            self.refuse(other, f"{header} with numbers that are not finite")
        return found

    def refuse(self, other: int, what: str) -> None:
        """End all, as ``other`` sent ``what``, or failed itself: `PartyLostError`."""
        self._fail(other, OWN_ERROR if other == self.rank else MALFORMED, what)
        self.check()

    def exchange(self, topic: str, value: Any, kind: type[T]) -> list[T]:
        """What all say of ``topic``, by rank: public words, as JSON of ``kind``."""
        own = _json.encode(value, indent=0)
        for other in self._links:
            self._put(other, words(topic, own), memoryview(own))
        found = []
        for other in range(self.size):
            text, said = own, topic
            if other != self.rank:
                header, content = self._next(other, WORDS)
                text, said = bytes(content), header.name
            try:
                if said != topic:
                    raise ValueError
                found.append(_json.decode(text, kind))
            except ValueError:
                self.refuse(other, f"words on {topic} that cannot be read")
        return found

    def expects(self, most: int) -> None:
        """Say how many bytes of messages a party may be ahead at most, before `due`.

        None is read before.
        """
        with self._changed:
            for link in self._links.values():
                link.most = most
            self._changed.notify_all()

    def due(self, k: int, messages: Mapping[int, Sequence[tuple[str, Tensor]]]) -> None:
        """Say what is due in round ``k``, by rank: names, and tensors alike.

        Nothing else of this round is read, and nothing of an earlier one. Of later ones
        no more than what is due now, and as much again.
        """
        with self._changed:
            for other, link in self._links.items():
                here = [Header.of(like, k, name) for name, like in messages[other]]
                link.round, link.due = k, frozenset(here)
                link.most = 2 * sum(header.length for header in here)
            self._changed.notify_all()

    def begins(self, k: int) -> None:
        """All have kept their state after ``k`` rounds, as they said."""
        with self._changed:
            for link in self._links.values():
                link.kept = max(link.kept, k)

    def kept(self, k: int) -> None:
        """Tell all that this party has kept its state after ``k`` rounds."""
        for other in self._links:
            self._put(other, Header(KEPT, k).pack())

    def all_kept(self, k: int) -> None:
        """Wait until all have kept their state after ``k`` rounds, or more."""
        with self._changed:
            for other, link in self._links.items():
                while link.kept < k:
                    self._check()
                    self._left(other, link)
                    self._changed.wait(1.0)

    def _left(self, other: int, link: _Link) -> None:
        """Raise if ``other``, who is waited for, has said goodbye, or all is closed."""
        if self._stops.is_set():
            raise PartyLostError("this party has closed its connections")
        if link.said_bye:
            self._accused = other, ENDED
            raise PartyLostError(
                f"party {other} {_WHY[ENDED]} before it had sent all that the others "
                f"wait for; {GO_ON} at every party"
            )

    def disagree(self, why: str) -> NoReturn:
        """``ValueError`` for what all see by themselves, so that none is told."""
        self._agrees = False
        raise ValueError(why)

    def over(self) -> None:
        """Nobody is needed any more: who ends now is no loss."""
        self._over = True
        for link in self._links.values():
            self._add(link, Header(BYE).pack(), 0.5)

    def check(self) -> None:
        """Raise what went wrong, if something did."""
        with self._changed:
            self._check()

    def _check(self) -> None:
        if self.failure is not None and not self._over:
            self._is_raised = True
            raise self.failure

    def _next(self, other: int, kind: int) -> tuple[Header, bytearray]:
        link = self._links[other]
        with self._changed:
            while not link.frames[kind]:
                self._check()
                self._left(other, link)
                if kind == MESSAGE and link.round >= 0:
                    self._must_end(other, link)
                self._changed.wait(1.0)
            found = link.frames[kind].popleft()
            link.queued[kind] -= found[0].length
            self._changed.notify_all()
            return found

    def _put(
        self, other: int, header: bytes, content: memoryview | None = None
    ) -> None:
        link = self._links[other]
        with link.lock:
            for view in (memoryview(link.rest + header), content):
                while view is not None and len(view):
                    self.check()
                    if done := self._sent(other, view):
                        view = view[done:]
                        link.rest, link.is_whole = b"", False
            link.is_whole = True

    def _sent(self, other: int, view: memoryview) -> int:
        """How many bytes could be sent at once; all, where nobody is needed any more.

        Raises `PartyLostError` if no more can be: to one who is lost, or after `close`,
        which other threads of this party may do meanwhile.
        """
        link = self._links[other]
        try:
            _, writable, _ = select.select([], [link.sock], [], 0.5)
            part = view[: 1 << 20]
            return link.sock.send(part, socket.MSG_DONTWAIT) if writable else 0
        except BlockingIOError:
            return 0
        except (OSError, ValueError):  # a closed socket has no number to look for
            self._lost(other)
            self.check()
            if not self._over:
                self._left(other, link)
            return len(view)

    # ---- threads

    def _read(self, other: int, link: _Link) -> None:
        """Read frames of ``other`` until its end."""
        try:
            while True:
                header = Header.unpack(bytes_of(link.sock, HEADER.size, link.is_heard))
                if header.kind == ALIVE:
                    continue
                if header.kind == BYE:
                    link.said_bye = True
                    return
                if header.kind == END:
                    self._fail(*cause(header, self.size), by=other)
                    return
                if header.kind == KEPT:
                    with self._changed:
                        link.kept = header.round
                        self._changed.notify_all()
                    continue
                self._wait_for_room(link, header)
                content = bytes_of(link.sock, header.length, link.is_heard)
                with self._changed:
                    link.frames[header.kind].append((header, content))
                    link.queued[header.kind] += header.length
                    self._changed.notify_all()
        except ValueError as error:
            self._fail(other, MALFORMED, str(error))
        except OSError:
            self._lost(other)

    def _lost(self, other: int) -> None:
        """Its connection has ended: it is the cause, unless another one soon is."""
        until = time.monotonic() + _GRACE
        while time.monotonic() < until and self.failure is None and not self._over:
            if self._stops.wait(0.05):
                break
        self._fail(other, ENDED)

    def _wait_for_room(self, link: _Link, header: Header) -> None:
        """Until ``header``'s content may be read; ``ValueError`` if it never may."""
        if header.dtype is None or (
            header.kind == WORDS and header.dtype != torch.uint8
        ):
            raise ValueError("a frame without a content")
        with self._changed:
            while not self._has_room(link, header):
                link.is_full, link.waiting = True, header
                self._changed.notify_all()
                self._changed.wait(1.0)
                if self._stops.is_set():
                    raise OSError
            link.is_full, link.waiting = False, None
            link.heard = time.monotonic()

    @staticmethod
    def _has_room(link: _Link, header: Header) -> bool:
        """Whether it may be queued now. ``ValueError`` as `_wait_for_room`."""
        ahead = len(link.frames[header.kind])
        queued = link.queued[header.kind] + header.length
        most = MOST_WORDS if header.kind == WORDS else link.most
        if header.kind == WORDS and ahead and (ahead >= _QUEUED or queued > MOST_WORDS):
            raise ValueError("more words than are due")
        if header.kind == MESSAGE and link.round >= 0:
            if header.round < link.round or (
                header.round == link.round and header not in link.due
            ):
                raise ValueError(f"{header}, which is not due in round {link.round}")
        elif most is not None and header.length > most:
            raise ValueError(f"{header}: more than the {most} bytes that there may be")
        return most is not None and ahead < _QUEUED and queued <= most

    def _must_end(self, other: int, link: _Link) -> None:
        """Refuse a message of a later round that waits for room where one is due.

        What comes is in order: what is due is not behind it.
        """
        header = link.waiting
        if header is None or header.kind != MESSAGE or header.round <= link.round:
            return
        if not self._has_room(link, header):
            self.refuse(other, f"{header} before what is due in round {link.round}")

    def _beat(self) -> None:
        """Send signs of life, and notice who sends none."""
        alive, last, failed = Header(ALIVE).pack(), time.monotonic(), 0.0
        while not self._stops.wait(BEAT):
            now = time.monotonic()
            if now - last > 3.0:  # it is we who were stopped
                for link in self._links.values():
                    link.heard = now
            last = now
            for other, link in self._links.items():
                self._add(link, alive, 0.0)
                silent = now - link.heard
                if silent > SILENCE and not (link.is_full or link.said_bye):
                    self._fail(other, HANGS, f"in {silent:.0f} s")
            if self.failure is not None and not self._over:
                failed = failed or now
                if (
                    self._interrupts
                    and not self._is_raised
                    and now - failed >= 2 * BEAT
                ):
                    self._is_raised = True
                    _thread.interrupt_main(signal.SIGTERM)

    def _fail(
        self, accused: int, why: int, detail: str = "", by: int | None = None
    ) -> None:
        """Note the first failure, and tell all."""
        with self._changed:
            if self.failure is not None or self._over or self._stops.is_set():
                return
            link = self._links.get(accused)
            if why == ENDED and link is not None and link.said_bye:
                return
            self._accused = accused, why
            who = "this party" if accused == self.rank else f"party {accused}"
            what = f"{_WHY[why]}{': ' if why != HANGS and detail else ' '}{detail}"
            told = "" if by in (None, accused) else f", as party {by} says"
            self.failure = PartyLostError(
                f"{who} {what.strip()}{told}; {GO_ON} at every party"
            )
            self._changed.notify_all()
        self._tell()

    def _tell(self) -> None:
        content = end(*self._accused)
        for link in self._links.values():
            self._add(link, content, 0.5)

    @staticmethod
    def _add(link: _Link, frame: bytes, patience: float) -> None:
        """Send a short frame, if none is being sent; what does not fit comes first."""
        if not link.lock.acquire(timeout=patience):
            return
        try:
            if not link.is_whole:
                return
            if not link.rest or frame[4] != ALIVE:
                link.rest += frame
            done = link.sock.send(link.rest, socket.MSG_DONTWAIT)
            link.rest = link.rest[done:]
        except OSError:
            return
        finally:
            link.lock.release()

    # ---- beginning and end

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While it lasts, a failure interrupts the main thread, and so does SIGTERM.

        Who started this process ends it so when another one fails (torchrun): what is
        said is which party failed.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(signum: int, frame: object) -> NoReturn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            until = time.monotonic() + 2 * _GRACE
            while self.failure is None and time.monotonic() < until:
                time.sleep(0.05)  # reading threads may know more in a moment
            self._is_raised = True
            raise ToldToEnd

        before = signal.signal(signal.SIGTERM, stop)
        self._interrupts = True
        try:
            yield
        except BaseException as error:
            if by_torchrun():  # torchrun ends it; the message goes first
                before = signal.SIG_IGN
            if isinstance(error, ToldToEnd):
                lost = self.failure or PartyLostError(f"this party was ended; {GO_ON}")
                raise lost from None
            raise
        finally:
            self._interrupts = False
            signal.signal(signal.SIGTERM, before)

    def close(self, error: BaseException | None) -> None:
        """End all connections; others are told of an ``error`` that is this party's.

        Threads end first: one that outlived the interpreter could take it down.
        """
        if not self._over:
            if self.failure is not None:
                self._tell()  # the thread that noted it may not have come to that
            elif error is None:
                self.over()
            elif self._agrees:
                self._tell()
        self._stops.set()
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.sock.shutdown(socket.SHUT_RDWR)
        with self._changed:
            self._changed.notify_all()
        until = time.monotonic() + 2.0
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.sock.close()
