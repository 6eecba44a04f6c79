"""Messages between parties by NVIDIA FLARE: between organisations, sealed on the way.

FLARE's sites have certificates of one federation. A message goes from site to site by
its server and relays; it is encrypted for the certificate of its receiver and signed by
that of its sender, so that those who relay it read none of it and forge none.

A site takes part by a job (`privaudit.api.flare`), or by a command of its own with its
kit: see `by_kit`.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.apis.signal import Signal
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.stats_pool import StatsPoolManager
from nvflare.fuel.sec.authn import set_add_auth_headers_filters
from nvflare.fuel.utils.url_utils import make_url
from nvflare.private.defs import ClientType
from nvflare.private.fed.authenticator import Authenticator

from trainers.network.exchange import ENDED, PATIENCE, Bytes, Exchange, PartyLostError
from trainers.network.kit import Kit
from trainers.network.ranks import GO_ON

_CHANNEL, _TOPIC = "privaudit", "exchange"
_TAKEN, _FULL, _LATER = b"taken", b"full", b"later"
_STOP = 10.0  # seconds that FLARE has to end its own threads
_LOOK = 5.0  # seconds between questions to a silent party whether it is there
_GONE = (ReturnCode.TARGET_UNREACHABLE, ReturnCode.INVALID_TARGET)


class ByFlare(Exchange):
    """An `Exchange` of one site, by the cell of its job."""

    def __init__(
        self,
        cell: Cell,  # FLARE's, of this job's process
        places: Sequence[str],  # names of all parties' cells, by rank
        rank: int,  # which of them is this site
        patience: float = PATIENCE,  # seconds that another site is waited for
        *,
        # whether messages are encrypted from site to site; only FLARE's simulator,
        # which has no certificates, cannot
        sealed: bool = True,
        aborted: Callable[[], bool] = lambda: False,  # whether FLARE has ended the job
    ) -> None:
        super().__init__(rank, len(places), patience)
        self._cell, self._places, self._sealed = cell, places, sealed
        self._aborted = aborted
        self._ranks = {place: rank for rank, place in enumerate(places)}
        self._life = secrets.token_hex(8)  # of this process, among a site's
        self._lives: dict[int, str] = {}
        self._there: set[int] = set()  # who has answered
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
        life, number, kind, what, *_ = (
            *head.decode(errors="replace").split(" ", 3),
            *[""] * 3,
        )
        if self._lives.setdefault(other, life) != life:
            # It is another process, which knows of nothing.
            if not self._goes_on:
                self._fail(other, ENDED)
                return make_reply(ReturnCode.SERVICE_UNAVAILABLE)
            if "bye" not in self._words[other]:  # where all begin anew, it was first
                self._lose(other)
                self.back.add(other)
            return make_reply(ReturnCode.OK, body=_LATER)
        taken = kind == "alive" or self.arrived(
            other, kind, what, content, int(number) if number.isdecimal() else 0
        )
        return make_reply(ReturnCode.OK, body=_TAKEN if taken else _FULL)

    def _carry(
        self, other: int, kind: str, what: str, content: Bytes, number: int = 0
    ) -> bool:
        how = {"secure": self._sealed, "optional": True}
        where, there = {"channel": _CHANNEL, "topic": _TOPIC}, self._places[other]
        if other not in self._there and not self._answers(other):
            time.sleep(0.1)
            return False
        head = f"{self._life} {number} {kind} {what}\n".encode()
        message = Message(payload=head + content)
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
            said = bytes(reply.payload or b"")
            if said == _LATER:
                self._busy[other] = time.monotonic()
                time.sleep(0.5)
            return said == _TAKEN
        # It is gone, if it was there; where all can go on without, it may come back.
        if code in _GONE and other in self._met and kind != "end" and not self._goes_on:
            raise self._fail(other, ENDED)
        time.sleep(0.1)
        return False

    def _answers(self, other: int) -> bool:
        """Return whether ``other`` is there, by a question that is not sealed.

        FLARE waits forever for the certificate of a site that is not.
        """
        reply = self._cell.send_request(
            channel=_CHANNEL,
            topic=_TOPIC,
            target=self._places[other],
            request=Message(payload=f"{self._life} 0 alive \n".encode()),
            timeout=min(10.0, self.patience),
            secure=False,
            optional=True,
        )
        code = (reply.headers or {}).get(MessageHeaderKey.RETURN_CODE)
        if code in (ReturnCode.OK, ReturnCode.UNAUTHENTICATED):
            self._there.add(other)
        return other in self._there

    def _is_silent(self, other: int) -> None:
        now = time.monotonic()
        if other in self._met and now - self._looked[other] > _LOOK:
            self._looked[other] = now
            self._carry(other, "alive", "", b"")

    def check(self) -> None:
        super().check()
        if self._aborted() and not self._over:
            raise PartyLostError(f"the job was aborted; {GO_ON} at every party")


@contextlib.contextmanager
def by_kit(kit: Kit, patience: float = PATIENCE) -> Iterator[Exchange]:
    """This site, connected to FLARE's server by its kit, as long as the context lasts.

    The server knows it by its certificate, and it the server; FLARE's own client of
    this site must not run meanwhile. Raises `PartyLostError` if no server answers
    within ``patience`` seconds, or it does not let this site in.

    FLARE's threads may wait forever for a site that is gone: who has used this ends its
    process by `trainers.network.ranks.leave`.
    """
    # Who is lost is said in a line, not in FLARE's, one for each message.
    logging.getLogger("nvflare").addHandler(logging.NullHandler())
    flare_decomposers.register()
    credentials = {
        DriverParams.CA_CERT.value: kit.authority,
        DriverParams.CLIENT_CERT.value: kit.certificate,
        DriverParams.CLIENT_KEY.value: kit.key,
        # With it FLARE holds each certificate against the name that its site claims.
        DriverParams.CONNECTION_SECURITY.value: "mtls",
    }
    places, url = [*kit.places], make_url(kit.scheme, kit.target, True)
    above = {} if kit.relay is None else {kit.relay: FQCN.split(kit.relay)[-1]}
    cell = Cell(
        fqcn=places[kit.rank],
        root_url=url if kit.relay is None else None,
        parent_url=None if kit.relay is None else url,
        secure=True,
        credentials=credentials,
        create_internal_listener=False,
        auth_identity=kit.name,
        auth_identity_map={FQCN.ROOT_SERVER: kit.server, **above, **kit.places},
    )
    cell.start()
    try:
        asks = Authenticator(
            cell=cell,
            project_name=kit.project,
            client_name=kit.name,
            client_type=ClientType.REGULAR,
            expected_sp_identity=kit.server,
            secure_mode=True,
            root_cert_file=kit.authority,
            private_key_file=kit.key,
            cert_file=kit.certificate,
            msg_timeout=5.0,
            retry_interval=1.0,
            timeout=patience,
        )
        try:
            token, signature, ssid, _ = asks.authenticate(FLContext(), Signal())
        except (FLCommunicationError, RuntimeError) as error:
            raise PartyLostError(
                f"FLARE's server does not let {kit.name} in by {url}: {error}"
            ) from None
        set_add_auth_headers_filters(cell, kit.name, token, signature, ssid)
        with ByFlare(cell, places, kit.rank, patience) as exchange:
            yield exchange
    finally:
        # Threads of a cell that lost a site may keep it from ending.
        ending = threading.Thread(target=cell.stop, daemon=True)
        ending.start()
        ending.join(_STOP)
        # FLARE keeps its names, by which a process could train once alone.
        for kept in (CoreCell.ALL_CELLS, StatsPoolManager.pools):
            for name in [*kept]:
                if name.rpartition("@")[2] == places[kit.rank]:
                    del kept[name]
