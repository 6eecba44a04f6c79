"""Messages between parties by NVIDIA FLARE: between organisations, sealed on the way.

FLARE's sites have certificates of one federation. A message goes from site to site by
its server and relays; it is encrypted for the certificate of its receiver and signed by
that of its sender, so that those who relay it read none of it and forge none.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message

from trainers.network.exchange import ENDED, PATIENCE, PartyLostError
from trainers.network.queued import Queued
from trainers.network.ranks import GO_ON

_CHANNEL, _TOPIC = "privaudit", "exchange"
_TAKEN, _FULL = b"taken", b"full"
_LOOK = 5.0  # seconds between questions to a silent party whether it is there
_GONE = (ReturnCode.TARGET_UNREACHABLE, ReturnCode.INVALID_TARGET)


class ByFlare(Queued):
    """An `Exchange` of one site, by the cell of its job.

    Parameters
    ----------
    cell
        FLARE's, of this job's process.
    places
        Names of all parties' cells, by rank.
    rank
        Which of them is this site.
    patience
        Seconds that another site is waited for.
    sealed
        Whether messages are encrypted from site to site; only FLARE's simulator, which
        has no certificates, cannot.
    aborted
        Whether FLARE has ended the job.
    """

    def __init__(
        self,
        cell: Cell,
        places: Sequence[str],
        rank: int,
        patience: float = PATIENCE,
        *,
        sealed: bool = True,
        aborted: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(rank, len(places), patience)
        self._cell, self._places, self._sealed = cell, places, sealed
        self._aborted = aborted
        self._ranks = {place: rank for rank, place in enumerate(places)}
        self._met: set[int] = set()  # to whom a message got through
        self._looked = dict.fromkeys(self.others, time.monotonic())
        cell.register_request_cb(channel=_CHANNEL, topic=_TOPIC, cb=self._came)
        threading.Thread(target=self._says, daemon=True).start()

    def _says(self) -> None:
        """Tell all whom this site waits for, also while FLARE carries a message."""
        while not self._is_closed:
            time.sleep(self.patience / 16)
            with contextlib.suppress(PartyLostError):
                self._say_who()

    def _came(self, request: Message) -> Any:
        """Take what came; FLARE has checked who signed it, where it is sealed."""
        headers, payload = request.headers or {}, request.payload
        other = self._ranks.get(str(headers.get(MessageHeaderKey.ORIGIN, "")))
        if other is None or not isinstance(payload, bytes | bytearray | memoryview):
            return make_reply(ReturnCode.INVALID_REQUEST)
        if self._sealed and not headers.get(MessageHeaderKey.SECURE):
            return make_reply(ReturnCode.UNAUTHENTICATED)
        if self._is_closed:
            return make_reply(ReturnCode.SERVICE_UNAVAILABLE)
        head, _, content = bytes(payload).partition(b"\n")
        number, kind, what = (*head.decode(errors="replace").split(" ", 2), "", "")[:3]
        taken = kind == "alive" or self.arrived(
            other, kind, what, content, int(number) if number.isdecimal() else 0
        )
        return make_reply(ReturnCode.OK, body=_TAKEN if taken else _FULL)

    def _carry(
        self, other: int, kind: str, what: str, content: bytes, number: int = 0
    ) -> bool:
        how = {"secure": self._sealed, "optional": True}
        where, there = {"channel": _CHANNEL, "topic": _TOPIC}, self._places[other]
        message = Message(payload=f"{number} {kind} {what}\n".encode() + content)
        if kind == "waits":  # needs no answer
            self._cell.fire_and_forget(**where, targets=there, message=message, **how)
            return True
        wait = self.patience if kind == "message" else min(10.0, self.patience)
        reply = self._cell.send_request(
            **where, target=there, request=message, timeout=wait, **how
        )
        code = (reply.headers or {}).get(MessageHeaderKey.RETURN_CODE)
        if code == ReturnCode.OK:
            self._met.add(other)
            return bytes(reply.payload or b"") == _TAKEN
        # It is gone, if it was there; where all can go on without, it may come back.
        if code in _GONE and other in self._met and kind != "end" and not self._goes_on:
            raise self._fail(other, ENDED)
        time.sleep(0.1)
        return False

    def _is_silent(self, other: int) -> None:
        now = time.monotonic()
        if other in self._met and now - self._looked[other] > _LOOK:
            self._looked[other] = now
            self._carry(other, "alive", "", b"")

    def check(self) -> None:
        """As `Exchange.check`; and whether FLARE has ended the job."""
        super().check()
        if self._aborted() and not self._over:
            raise PartyLostError(f"the job was aborted; {GO_ON} at every party")
