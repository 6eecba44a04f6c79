"""Parts of a job of NVIDIA FLARE: `Together` at its server, `Site` at its sites.

The job, which `privaudit federation` writes, carries names and settings. Data, key,
ledger and folder are each site's own, as its `SiteFile` says; so is what it lets run.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller, Task
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.lighter.ctx import ProvisionContext
from nvflare.lighter.entity import Project
from nvflare.lighter.spec import Builder

from privaudit.api.federation import SITE, TASK, SiteFile
from privaudit.api.trainings import run_training
from privaudit.api.watch import Watch
from privaudit.files.folder import FolderError
from privaudit.report.verify import EvidenceError, sign, verify
from trainers.network.by_flare import ByFlare
from trainers.network.exchange import PATIENCE

RUN = ("Together", "Site")  # classes that a job names; sites let no others run


class Kits(Builder):
    """In ``project.yml``: lets all run what is here, and gives sites a `SiteFile`."""

    def __init__(self, sites: Sequence[str]) -> None:
        self._sites = list(sites)

    def build(self, project: Project, ctx: ProvisionContext) -> None:
        """Write into the folders ``local`` of all kits."""
        for one in (project.get_server(), *project.get_clients()):
            local = pathlib.Path(ctx.get_local_dir(one))
            file = local / "resources.json.default"
            resources = json.loads(file.read_text())
            resources["class_allow_list"] = [
                f"{Site.__module__}.{name}" for name in RUN
            ]
            resources["allow_log_streaming"] = False  # a site's log is its own
            file.write_text(json.dumps(resources, indent=2))
            if one is not project.get_server():
                named = f"sites = {json.dumps(self._sites)}  # for train --kit\n"
                (local / "privaudit.toml").write_text(SITE + named)


class Together(Controller):
    """At the server: starts the training at all ``sites``, and waits for their end.

    It went well if it did so at ``needed`` of them; None: at all. Where one fails, or
    may be missing, the others are waited for ``patience`` seconds after each answer:
    who was killed gives none.
    """

    def __init__(
        self,
        sites: Sequence[str],
        needed: int | None = None,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__()
        self._sites, self._patience = list(sites), patience
        self._needed = len(self._sites) if needed is None else needed

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is to be made ready."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is to be given back."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Send the task to all, with nothing in it."""
        data = DXO(data_kind=DataKind.APP_DEFINED, data={}).to_shareable()
        said: dict[str, str] = {}
        end = math.inf

        def note(client_task: Any, fl_ctx: FLContext) -> None:
            nonlocal end
            code = client_task.result.get_return_code()
            said[client_task.client.name] = code
            if code != ReturnCode.OK or self._needed < len(self._sites):
                end = time.monotonic() + self._patience

        task = Task(name=TASK, data=data, result_received_cb=note)
        self.broadcast(task, fl_ctx, self._sites, min_responses=len(self._sites))
        while task.completion_status is None and time.monotonic() < end:
            if abort_signal.triggered:
                break
            time.sleep(0.2)
        self.cancel_task(task, fl_ctx=fl_ctx)
        ended = sum(code == ReturnCode.OK for code in said.values())
        if ended < self._needed:
            missing = (f"{one}: {said.get(one, 'lost')}" for one in self._sites)
            self.system_panic("; ".join(missing), fl_ctx)


class Site(Executor):
    """At a site: one party of a training, by FLARE's cells.

    Parameters
    ----------
    name, what, settings, changes, sites
        Of the job, as `privaudit.api.federation.Job` checks them.
    sealed
        False in FLARE's simulator alone, which has no certificates.
    """

    def __init__(
        self,
        name: str,
        what: str,
        settings: Mapping[str, Any],
        changes: Mapping[str, Any],
        sites: Sequence[str],
        sealed: bool = True,
    ) -> None:
        super().__init__()
        self._sealed, self._sites = sealed, list(sites)
        self._asked: dict[str, Any] = {"name": name, "what": what}
        self._asked |= {"settings": dict(settings), "changes": dict(changes)}
        self._asked |= {"sites": tuple(sites)}

    def execute(
        self,
        task_name: str,
        shareable: Shareable,
        fl_ctx: FLContext,
        abort_signal: Signal,
    ) -> Shareable:
        """Train, and reply with nothing but whether it went well."""
        if task_name != TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        try:
            self._train(fl_ctx, abort_signal)
        except (ValueError, OSError, FolderError, EvidenceError) as error:
            self.log_error(fl_ctx, f"privaudit: {error}")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        return make_reply(ReturnCode.OK)

    def _train(self, fl_ctx: FLContext, abort_signal: Signal) -> None:
        workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
        given = os.environ.get("PRIVAUDIT_SITE")
        local = pathlib.Path(workspace.get_site_config_dir())
        site = SiteFile.read(pathlib.Path(given) if given else local / "privaudit.toml")
        job = site.accepted(self._asked)
        engine: Any = fl_ctx.get_engine()
        cells = [engine.get_client_from_name(one) for one in self._sites]
        if None in cells:
            raise ValueError(f"not all of {', '.join(self._sites)} have this job")
        exchange = ByFlare(
            engine.get_cell(),
            [FQCN.join([c.get_fqcn(), fl_ctx.get_job_id()]) for c in cells],
            self._sites.index(fl_ctx.get_identity_name()),
            job.training_settings().patience,
            sealed=self._sealed,
            aborted=lambda: abort_signal.triggered,
        )
        found = run_training(
            job.what,
            site.over(job.training_settings()),
            changes=site.changes(job.changes),
            out=pathlib.Path(site.out) / job.name,
            claimed=True,  # of an algorithm without noise nothing leaves a site
            watch=_Logged(lambda text: self.log_info(fl_ctx, text)),
            exchange=exchange,
        )
        assert found is not None
        if site.key is not None:
            sign(verify(found.path, settings=True), pathlib.Path(site.key))
        for line in [*found.lines(), f"kept in {found.path}"]:
            self.log_info(fl_ctx, line)


class _Logged(Watch):
    """Watch that writes progress into the site's own log."""

    def __init__(self, say: Any) -> None:
        self._say = say

    def note(self, message: str) -> None:
        self._say(message)

    def warn(self, message: str) -> None:
        self._say(message)
