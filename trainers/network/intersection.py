"""Private set intersection between parties: how many identifiers two of them share.

By openmined-psi (Diffie-Hellman on a curve): each sends what its identifiers are as
points, raised to a secret power of its own, so that the other learns how many are its
own too, and not which. That holds for parties that give the identifiers of their
records: one that gives a single identifier learns whether another has it.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.network.exchange import Exchange

_POINT, _SLACK = 40, 64  # bytes of a point, and of what is around all of them
_LENGTH = 8  # bytes, before each message
_MOST = 10_000_000


def identifiers_in(path: str | os.PathLike[str], sizes: Sequence[int]) -> list[str]:
    """Identifiers of this party's records, one a line in the file, each once."""
    try:
        lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read identifiers from {path}: {error}") from None
    found = [line.strip() for line in lines]
    if len(found) != sum(sizes) or not all(found):
        raise ValueError(
            f"{path} has {len(found)} lines, {found.count('')} of them empty, where "
            f"this party has {sum(sizes)} records: give an identifier a line for each"
        )
    if len(sizes) > 1 and len({*found}) < len(found):
        raise ValueError(
            f"{path} has an identifier twice, which may be at several of this party's "
            f"{len(sizes)} nodes: let a party be one node"
        )
    return sorted({*found})


def counted(exchange: Exchange, own: list[str]) -> tuple[int, ...]:
    """Number of identifiers that this party and each have, by rank; of all its own.

    All must call. Raises `trainers.network.exchange.PartyLostError` for what is no
    such message.
    """
    import private_set_intersection.python as psi
    from google.protobuf.message import DecodeError

    many = exchange.told("identifiers", len(own), int)
    for other, count in enumerate(many):
        if not 0 < count <= _MOST:
            exchange.refuse(other, f"{count} identifiers")
    exchange.expects(4 * _room(max(many)))
    client, server = (x.CreateWithNewKey(False) for x in (psi.client, psi.server))
    setup = server.CreateSetupMessage(0.5, len(own), own, psi.DataStructure.RAW)
    request = client.CreateRequest(own)

    def sent(other: int, name: str, message: Any, count: int) -> None:
        content = message.SerializeToString()
        whole = len(content).to_bytes(_LENGTH, "little") + content
        rows = bytearray(whole.ljust(_room(count), b"\0"))
        exchange.send(other, torch.frombuffer(rows, dtype=torch.int64)[None], 0, name)

    def received(
        other: int, name: str, count: int, parse: Callable[[bytes], Any]
    ) -> Any:
        like = torch.empty(1, _room(count) // _LENGTH, dtype=torch.int64)
        rows = exchange.receive(other, like, 0, name)
        assert isinstance(rows, Tensor)  # nobody is left out before training begins
        whole = rows.numpy().tobytes()
        return parse(whole[_LENGTH:][: int.from_bytes(whole[:_LENGTH], "little")])

    for other in exchange.others:
        sent(other, "setup", setup, len(own))
        sent(other, "request", request, len(own))
    setups, found = {}, list(many)
    for other in exchange.others:
        try:
            parse = psi.ServerSetup.FromString
            setups[other] = theirs = received(other, "setup", many[other], parse)
            asked = received(other, "request", many[other], psi.Request.FromString)
            sizes = len(theirs.raw.encrypted_elements), len(asked.encrypted_elements)
            if sizes != (many[other],) * 2 or asked.reveal_intersection:
                raise ValueError(f"{sizes} identifiers for {many[other]}")
            answer = server.ProcessRequest(asked)
        except (ValueError, RuntimeError, DecodeError) as error:
            exchange.refuse(other, f"no set of identifiers ({error})")
        sent(other, "response", answer, many[other])
    for other in exchange.others:
        try:
            answer = received(other, "response", len(own), psi.Response.FromString)
            if len(answer.encrypted_elements) != len(own):
                raise ValueError(f"{len(answer.encrypted_elements)} for {len(own)}")
            found[other] = client.GetIntersectionSize(setups[other], answer)
        except (ValueError, RuntimeError, DecodeError) as error:
            exchange.refuse(other, f"no answer on identifiers ({error})")
    exchange.expects(None)
    return tuple(found)


def _room(count: int) -> int:
    """Bytes of a message of ``count`` points, whole words of them."""
    return _LENGTH * -(-(_LENGTH + _POINT * count + _SLACK) // _LENGTH)
