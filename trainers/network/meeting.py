"""How parties find each other: all come to party 0, which tells where they are."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import secrets
import socket
import time
from collections.abc import Iterator
from typing import Any, TypeVar

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

T = TypeVar("T")

PATIENCE = 300.0  # seconds that parties wait for each other; PRIVAUDIT_PATIENCE
_HANDSHAKE = 10.0


class _Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who comes, and where it can be reached."""

    rank: int
    size: int
    token: str
    host: str
    port: int


class _Book(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where all are, by rank."""

    token: str
    places: tuple[tuple[str, int], ...]


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
    with listening:
        if by_torchrun():
            port = listening.getsockname()[1]
            _store(patience).set("party 0", f"{master[0]}:{port}")
        token = secrets.token_hex(16)
        found: dict[int, socket.socket] = {}
        places: dict[int, tuple[str, int]] = {0: master}
        accused = 0, OWN_ERROR

        def told() -> None:
            for sock in found.values():
                with contextlib.suppress(OSError):
                    sock.sendall(end(*accused))
                sock.close()

        undo.callback(told)
        while len(found) < size - 1:
            hello, sock = _accepted(listening, until)
            if hello is None or sock is None:
                missing = [str(r) for r in range(1, size) if r not in found]
                accused = int(missing[0]), ABSENT
                raise PartyLostError(
                    f"{'party' if len(missing) == 1 else 'parties'} "
                    f"{', '.join(missing)} did not come within {patience:.0f} s; start "
                    "all with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE, and "
                    "RANK from 0 on"
                )
            if hello.size != size or not 0 < hello.rank < size:
                sock.close()
                raise PartyLostError(
                    f"a party came as number {hello.rank} of {hello.size}, and here "
                    f"are {size}: WORLD_SIZE is the same at all, and RANK is below it"
                )
            if hello.rank in found:
                sock.close()
                raise PartyLostError(
                    f"two parties came as number {hello.rank}: each has a RANK of its "
                    "own"
                )
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
    with _listening(own or (here, 0)) as listening:
        port = listening.getsockname()[1]
        host = here if own is None else own[0]
        hello = _Hello(rank, size, "", host, port if own is None else own[1])
        _say(sock, hello)
        # Party 0 is the one to say who is missing.
        book = _heard(sock, _Book, until - time.monotonic() + _HANDSHAKE, size)
        if book is None or len(book.places) != size:
            raise PartyLostError(
                "party 0 has ended, or has other parties; start all again, with the "
                "same MASTER_ADDR, MASTER_PORT and WORLD_SIZE"
            )
        until = time.monotonic() + _HANDSHAKE
        found = {0: sock}
        for other in range(1, rank):
            place = peers.get(other) or book.places[other]
            found[other] = _to(place, until, other)
            undo.callback(found[other].close)
            _say(found[other], _Hello(rank, size, book.token, "", 0))
        while len(found) < size - 1:
            come, sock = _accepted(listening, until)
            if come is None or sock is None:
                missing = [r for r in range(size) if r not in found and r != rank]
                raise PartyLostError(
                    f"party {missing[0]} does not reach this one, {rank}, at {host} "
                    f"port {hello.port}; open it, or set PRIVAUDIT_ADDRESS=host:port"
                )
            undo.callback(sock.close)
            if come.token == book.token and rank < come.rank < size:
                found[come.rank] = sock
    return found


def _accepted(
    listening: socket.socket, until: float
) -> tuple[_Hello | None, socket.socket | None]:
    """Who comes next; None if nobody does in time. Strangers are not heard."""
    while (left := until - time.monotonic()) > 0:
        listening.settimeout(left)
        try:
            sock, _ = listening.accept()
        except TimeoutError:
            break
        hello = _heard(sock, _Hello, min(left, 5.0))
        if hello is not None:
            return hello, sock
        sock.close()
    return None, None


def _say(sock: socket.socket, value: msgspec.Struct) -> None:
    text = _json.encode(value, indent=0)
    with contextlib.suppress(OSError):
        sock.sendall(words("hello", text) + text)


def _heard(
    sock: socket.socket, kind: type[T], timeout: float, size: int = 0
) -> T | None:
    """What somebody says of itself; None if that is no ``kind``.

    Raises `PartyLostError` if it says which of ``size`` parties is missing.
    """
    sock.settimeout(timeout)
    try:
        header = Header.unpack(bytes_of(sock, HEADER.size))
        if header.kind == END and size:
            lost = as_said(*cause(header, size), by=0)
            raise PartyLostError(lost)
        if header.kind != WORDS or header.length > MOST_WORDS:
            return None
        return _json.decode(bytes(bytes_of(sock, header.length)), kind)
    except PartyLostError:
        raise
    except (OSError, ValueError):
        return None


def _to(place: tuple[str, int], until: float, other: int) -> socket.socket:
    """A connection to ``other``, tried until it stands."""
    while True:
        try:
            return socket.create_connection(place, timeout=5.0)
        except OSError as error:
            if time.monotonic() > until:
                raise PartyLostError(
                    f"party {other} cannot be reached at {place[0]} port {place[1]} "
                    f"({error.strerror or error}); start it, or see MASTER_ADDR, "
                    "MASTER_PORT and PRIVAUDIT_PEERS"
                ) from None
            time.sleep(0.1)


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
