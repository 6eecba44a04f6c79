"""`privaudit federation`: a project and a job of NVIDIA FLARE."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Literal

from cyclopts import Parameter

from privaudit.cli import FINE
from privaudit.cli.options import Changes, Flat, Json
from privaudit.cli.output import emit
from privaudit.files.arguments import given_fields
from privaudit.settings import TrainingSettings
from privaudit.task_settings import changes_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Flare:
    """Options for how messages go.

    Parameters
    ----------
    server
        Host by which sites reach FLARE's server.
    relay
        Host of a relay, by which the sites reach the server; by default they do so
        themselves.
    sealed
        Whether messages are encrypted from site to site. --no-sealed is for FLARE's
        simulator, which has no certificates.
    """

    server: str = "localhost"
    relay: str | None = None
    sealed: Annotated[bool, Parameter(negative="--no-sealed")] = True


def federation(
    do: Literal["init"],
    what: str,
    /,
    *,
    sites: Annotated[list[str], Parameter(name="--site", negative=())],
    out: pathlib.Path,
    settings: Annotated[TrainingSettings, Flat] = TrainingSettings(),  # frozen
    changes: Changes = (),  # type: ignore[assignment]  # cyclopts' empty list
    flare: Annotated[_Flare, Flat] = _Flare(),  # frozen
    json: Json = False,
) -> int:
    """Write a FLARE project and job, by which sites of several organisations train.

    `privaudit federation init WHAT` writes them into --out.

    Each site is a party, with its own data, key, ledger and folder; messages go by
    FLARE's server, sealed from site to site. docs/parties.md has all steps.

    Parameters
    ----------
    do
        init.
    what
        An algorithm, by name, or your own as module:Class.
    sites
        Names of the sites, in the order of the nodes; given once for each.
    out
        A new folder, for project.yml and job/. Its name is the run's at every site.
    """
    from privaudit.api.federation import Job, write

    job = Job(
        name=out.name,
        what=what,
        settings=given_fields(settings),
        changes=changes_of(changes),
        sites=tuple(sites),
    )
    lines = write(out, job, **dataclasses.asdict(flare))
    emit({"out": str(out), "next": lines}, lines, as_json=json)
    return FINE
