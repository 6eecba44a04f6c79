"""How parties find each other: all come to party 0, which tells where they are."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
import os
import secrets
import selectors
import socket
import time
from collections.abc import Generator, Iterator
from typing import Annotated, Any

import msgspec
import torch.distributed as dist

from privaudit.files import json as _json
from trainers.network.frames import END, HEADER, WORDS, Header, words
from trainers.network.links import (
    ABSENT,
    MOST_WORDS,
    OWN_ERROR,
    Links,
    PartyLostError,
    as_said,
    bytes_of,
    cause,
    end,
)
from trainers.network.ranks import by_torchrun

PATIENCE = 300.0  # seconds that parties wait for each other; PRIVAUDIT_PATIENCE
_HANDSHAKE = 10.0
_HELLO = 5.0  # seconds that a hello may take, as a whole,
_MOST_HELLO = 1 << 12  # and bytes that it may have
_STRANGERS = 256  # connections whose hellos are read at once; the oldest gives way

_Host = Annotated[str, msgspec.Meta(max_length=255)]
_Port = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]


class _Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who comes, and where it can be reached."""

    rank: int
    size: int
    token: str
    host: _Host
    port: _Port


class _Book(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where all are, by rank; without places, party 0 asks for a hello with ``token``.

    Who does not answer is not there: a connection that says a number and nothing more
    takes nobody's place.
    """

    token: str
    places: tuple[tuple[_Host, _Port], ...]


@contextlib.contextmanager
def joined(rank: int, size: int, patience: float | None = None) -> Iterator[Links]:
    """This party, connected to all others for as long as the context lasts.

    Party 0 listens at MASTER_ADDR and MASTER_PORT (under torchrun, where its store is,
    at a port that the store tells), and tells all where the others are: at an address
    from which they reached it, or PRIVAUDIT_ADDRESS, host:port, where it is set.
    PRIVAUDIT_PEERS, such as ``2=127.0.0.1:9002``, says where this party reaches others
    if not there.

    Raises
    ------
    PartyLostError
        If others do not come within ``patience`` seconds; None: PRIVAUDIT_PATIENCE,
        or five minutes.
    ValueError
        If an address is none.
    """
    if not 0 <= rank < size:
        raise ValueError(f"a party's number is in [0, {size}), got {rank}")
    wait = _patience() if patience is None else patience
    links = Links(rank, size, _connected(rank, size, wait))
    error: BaseException | None = None
    try:
        with links.watched():
            yield links
    except BaseException as raised:
        error = raised
        raise
    finally:
        links.close(error)


def _connected(rank: int, size: int, patience: float) -> dict[int, socket.socket]:
    if size == 1:
        return {}
    until = time.monotonic() + patience
    peers = _peers()
    own = _address(os.environ.get("PRIVAUDIT_ADDRESS"), "PRIVAUDIT_ADDRESS")
    with contextlib.ExitStack() as undo:
        if rank == 0:
            found = _gathered(size, own, patience, until, undo)
        else:
            found = _introduced(rank, size, own, peers, until, undo)
        undo.pop_all()
    return found


def _gathered(
    size: int,
    own: tuple[str, int] | None,
    patience: float,
    until: float,
    undo: contextlib.ExitStack,
) -> dict[int, socket.socket]:
    """Party 0's connections: all come to it."""
    master = _master()
    listening = _listening(own or (master if not by_torchrun() else (master[0], 0)))
    come = _arrivals(listening, until, answering=True)
    with listening, contextlib.closing(come) as arrivals:
        if by_torchrun():
            port = listening.getsockname()[1]
            _store(patience).set("party 0", f"{master[0]}:{port}")
        token = secrets.token_hex(16)
        found: dict[int, socket.socket] = {}
        places: dict[int, tuple[str, int]] = {0: master}
        accused, sent_away = (0, OWN_ERROR), ""

        def told() -> None:
            for sock in found.values():
                with contextlib.suppress(OSError):
                    sock.sendall(end(*accused))
                sock.close()

        undo.callback(told)
        while len(found) < size - 1:
            hello, sock = next(arrivals, (None, None))
            if hello is None or sock is None:
                missing = [str(r) for r in range(1, size) if r not in found]
                accused = int(missing[0]), ABSENT
                raise PartyLostError(
                    f"{'party' if len(missing) == 1 else 'parties'} "
                    f"{', '.join(missing)} did not come within {patience:.0f} s; start "
                    "all with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE, and "
                    f"RANK from 0 on{sent_away}"
                )
            # Anybody may say anything: who is sent away ends no one else's meeting.
            if hello.size != size or not 0 < hello.rank < size:
                sent_away = (
                    f"; a party that came as number {hello.rank} of {hello.size} was "
                    f"sent away, as here are {size}"
                )
                sock.close()
                continue
            if hello.rank in found:
                if not _has_ended(found[hello.rank]):
                    sent_away = (
                        f"; a second party that came as number {hello.rank} was sent "
                        "away: each has a RANK of its own"
                    )
                    sock.close()
                    continue
                found[hello.rank].close()
            found[hello.rank] = sock
            places[hello.rank] = hello.host, hello.port
    book = _Book(token, tuple(places[other] for other in range(size)))
    for sock in found.values():
        _say(sock, book)
    return found


def _introduced(
    rank: int,
    size: int,
    own: tuple[str, int] | None,
    peers: dict[int, tuple[str, int]],
    until: float,
    undo: contextlib.ExitStack,
) -> dict[int, socket.socket]:
    """Another party's: it goes to party 0, and then to those of lower rank."""
    first = peers.get(0) or _first(until)
    sock = _to(first, until, 0)
    undo.callback(sock.close)
    here = sock.getsockname()[0]
    with contextlib.ExitStack() as ends:
        listening = ends.enter_context(_listening(own or (here, 0)))
        port = listening.getsockname()[1]
        host = here if own is None else own[0]
        hello = _Hello(rank, size, "", host, port if own is None else own[1])
        _say(sock, hello)
        # Party 0 is the one to say who is missing.
        book = _told(sock, until + _HANDSHAKE, size)
        if book is not None and not book.places:
            _say(sock, msgspec.structs.replace(hello, token=book.token))
            book = _told(sock, until + _HANDSHAKE, size)
        if book is None or len(book.places) != size:
            raise PartyLostError(
                f"party 0 has ended, or has no place for number {rank} of {size}: "
                "start all again, with the same MASTER_ADDR, MASTER_PORT and "
                "WORLD_SIZE, and a RANK of its own for each"
            )
        until = time.monotonic() + _HANDSHAKE
        found = {0: sock}
        for other in range(1, rank):
            place = peers.get(other) or book.places[other]
            found[other] = _to(place, until, other)
            undo.callback(found[other].close)
            _say(found[other], _Hello(rank, size, book.token, "", 0))
        arrivals = ends.enter_context(contextlib.closing(_arrivals(listening, until)))
        while len(found) < size - 1:
            come, sock = next(arrivals, (None, None))
            if come is None or sock is None:
                missing = [r for r in range(size) if r not in found and r != rank]
                raise PartyLostError(
                    f"party {missing[0]} does not reach this one, {rank}, at {host} "
                    f"port {hello.port}; open it, or set PRIVAUDIT_ADDRESS=host:port"
                )
            if come.token == book.token and rank < come.rank < size:
                found[come.rank] = sock
                undo.callback(sock.close)
            else:
                sock.close()
    return found


def _arrivals(
    listening: socket.socket, until: float, *, answering: bool = False
) -> Generator[tuple[_Hello, socket.socket]]:
    """Who comes, and says so, before the time is over.

    Strangers are not heard, and hold up nobody: all are read as their bytes come. With
    ``answering``, who came is asked to say so again with a token.
    """
    coming: dict[socket.socket, _Coming] = {}
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        listening.setblocking(False)
        selector.register(listening, selectors.EVENT_READ)

        def leave(sock: socket.socket) -> None:
            selector.unregister(sock)
            del coming[sock]

        def refuse(sock: socket.socket) -> None:
            leave(sock)
            sock.close()

        stack.callback(lambda: [refuse(sock) for sock in [*coming]])
        while (now := time.monotonic()) < until:
            for sock in [sock for sock, one in coming.items() if one.ends <= now]:
                refuse(sock)
            next_end = min([until, *(one.ends for one in coming.values())])
            for key, _ in selector.select(next_end - now):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is listening:
                    with contextlib.suppress(OSError):
                        come, _ = listening.accept()
                        come.setblocking(False)
                        coming[come] = _Coming(time.monotonic() + _HELLO)
                        selector.register(come, selectors.EVENT_READ)
                    if len(coming) > _STRANGERS:
                        refuse(next(iter(coming)))
                elif sock in coming:
                    one = coming[sock]
                    try:
                        hello = _more_of(sock, one.said)
                        if hello is not None and one.asked not in (None, hello):
                            raise ValueError("another hello than was asked for")
                    except (OSError, ValueError):
                        refuse(sock)
                        continue
                    if hello is not None and answering and one.asked is None:
                        token = secrets.token_hex(16)
                        one.asked = msgspec.structs.replace(hello, token=token)
                        one.said.clear()
                        _say(sock, _Book(token, ()))
                    elif hello is not None:
                        leave(sock)
                        sock.setblocking(True)
                        yield hello, sock


@dataclasses.dataclass
class _Coming:
    """A connection that has not yet said who it is."""

    ends: float  # when it is closed
    said: bytearray = dataclasses.field(default_factory=bytearray)
    asked: _Hello | None = None  # what it is to say now


def _has_ended(sock: socket.socket) -> bool:
    """Whether the other side has closed a connection on which nothing is due."""
    try:
        return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _more_of(sock: socket.socket, said: bytearray) -> _Hello | None:
    """The hello that ``said`` becomes by what can be read now; None: not yet.

    Raises ``ValueError`` or ``OSError`` for what will be none.
    """
    length = 0
    if len(said) >= HEADER.size:
        length = _words_of(said[: HEADER.size], _MOST_HELLO)
    part = sock.recv(HEADER.size + length - len(said))
    if not part:
        raise ConnectionError
    said += part
    if len(said) == HEADER.size:
        _words_of(said, _MOST_HELLO)
    elif len(said) == HEADER.size + length:
        return _json.decode(bytes(said[HEADER.size :]), _Hello)
    return None


def _words_of(content: bytes | bytearray, most: int) -> int:
    """How many bytes of words follow. ``ValueError`` if it is something else."""
    header = Header.unpack(content)
    if header.kind != WORDS or not 0 < header.length <= most:
        raise ValueError("what is no hello")
    return header.length


def _say(sock: socket.socket, value: msgspec.Struct) -> None:
    text = _json.encode(value, indent=0)
    with contextlib.suppress(OSError):
        sock.sendall(words("hello", text) + text)


def _told(sock: socket.socket, until: float, size: int) -> _Book | None:
    """Where all are, as party 0 says; None if it does not, in time.

    Raises `PartyLostError` if it says which of ``size`` parties is missing.
    """
    try:
        content = bytes_of(sock, HEADER.size, until=until)
        header = Header.unpack(content)
        if header.kind == END:
            raise PartyLostError(as_said(*cause(header, size), by=0))
        length = _words_of(content, MOST_WORDS)
        return _json.decode(bytes(bytes_of(sock, length, until=until)), _Book)
    except PartyLostError:
        raise
    except (OSError, ValueError):
        return None


def _to(place: tuple[str, int], until: float, other: int) -> socket.socket:
    """A connection to ``other``, tried until it stands."""
    while True:
        try:
            if not place[0].isprintable():
                raise ValueError
            return socket.create_connection(place, timeout=5.0)
        except OSError as error:
            if time.monotonic() > until:
                raise PartyLostError(
                    f"party {other} cannot be reached at {place[0]} port {place[1]} "
                    f"({error.strerror or error}); start it, or see MASTER_ADDR, "
                    "MASTER_PORT and PRIVAUDIT_PEERS"
                ) from None
            time.sleep(0.1)
        except ValueError:
            raise PartyLostError(
                f"party {other} says that it is at {place[0]!r} port {place[1]}, which "
                "is no address"
            ) from None


def _listening(place: tuple[str, int]) -> socket.socket:
    try:
        family = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0][0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
        sock.listen(128)
    except OSError as error:
        raise ValueError(
            f"this party cannot listen at {place[0]} port {place[1]} "
            f"({error.strerror or error}): give an address of this machine and a free "
            "port"
        ) from None
    return sock


def _store(patience: float) -> Any:
    """torchrun's, where party 0 says at which port it is."""
    host, port = _master()
    store = dist.TCPStore(
        host, port, is_master=False, timeout=datetime.timedelta(seconds=patience)
    )
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"privaudit {again}", store)


def _first(until: float) -> tuple[str, int]:
    """Where party 0 listens."""
    if not by_torchrun():
        return _master()
    left = max(1.0, until - time.monotonic())
    found = _address(_store(left).get("party 0").decode(), "the store")
    assert found is not None
    return found


def _master() -> tuple[str, int]:
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not host or not port:
        raise ValueError(
            "parties meet at party 0: set MASTER_ADDR and MASTER_PORT, the same at "
            "all, or start them by torchrun"
        )
    found = _address(f"{host}:{port}", "MASTER_ADDR:MASTER_PORT")
    assert found is not None
    return found


def _patience() -> float:
    text = os.environ.get("PRIVAUDIT_PATIENCE") or str(PATIENCE)
    with contextlib.suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise ValueError(f"PRIVAUDIT_PATIENCE is a number of seconds, got {text!r}")


def _peers() -> dict[int, tuple[str, int]]:
    found = {}
    for part in filter(None, os.environ.get("PRIVAUDIT_PEERS", "").split(",")):
        rank, _, place = part.partition("=")
        address = _address(place, "PRIVAUDIT_PEERS")
        if not rank.strip().isdigit() or address is None:
            raise ValueError(
                "PRIVAUDIT_PEERS is as in 0=host:port,2=host:port, got " + repr(part)
            )
        found[int(rank)] = address
    return found


def _address(text: str | None, where: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{where} has {text!r}, which is no host:port")
    return host.strip("[]"), int(port)


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
