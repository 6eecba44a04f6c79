"""A federation of NVIDIA FLARE: its project, its job, and what each site lets run."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

import msgspec

from privaudit.files import json as _json
from privaudit.files import toml
from privaudit.files.arguments import check_limits, near
from privaudit.files.user_code import is_place
from privaudit.results import DELTA
from privaudit.settings import TrainingSettings
from privaudit.task_settings import FOLDER, IDX, placed

TASK = "train"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
# What a site chooses for itself, and a job cannot.
_OWN = (
    *("data_dir", "key_file", "device", "save"),
    *("parties", "exchange", "kit", "observer", "identifiers"),
)
_OF_SITES = ("data", "data_dir", "nodes")


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Training of a federation: names and settings, and no code.

    Raises ``ValueError`` for a name that could be a path, and for settings that are
    each site's own.
    """

    name: str  # of the run's folder at each site: a job of the same name goes on
    what: str  # an algorithm, or ``module:Class``; no recipe, which may have a seed
    settings: dict[str, Any] = {}  # of a training, as far as they are of all sites
    changes: dict[str, Any] = {}  # settings and options of the training, by name
    # names of FLARE's sites, in the order of the nodes
    sites: Annotated[tuple[str, ...], msgspec.Meta(min_length=2)]

    def __post_init__(self) -> None:
        check_limits(self)
        for name in (self.name, *self.sites):
            if not _NAME.fullmatch(name):
                raise ValueError(
                    "names of jobs and sites are letters, digits, - and _, 64 at most, "
                    f"got {name!r}"
                )
        if len(set(self.sites)) < len(self.sites):
            raise ValueError(f"sites have one name twice: {', '.join(self.sites)}")
        for name in {*_OWN, *_OF_SITES} & {*self.settings, *self.changes}:
            raise ValueError(
                f"{name} is each site's own: leave it out of the job, and let the "
                "sites' privaudit.toml say it"
            )
        for value in (self.what, *self.changes.values()):
            if isinstance(value, str) and (
                value.startswith((FOLDER, IDX, "file:", "edges:"))
                or re.search(r"[/\\]|\.toml$", value)
            ):
                raise ValueError(
                    f"{value!r} would be a file of each site: a job has names alone"
                )
        if not is_place(self.what):
            from trainers.algorithms import ALGORITHMS

            if self.what not in ALGORITHMS:
                raise ValueError(
                    f"there is no algorithm {self.what!r}; "
                    f"{near(self.what, ALGORITHMS, 'module:Class of the sites')}"
                )
        self.training_settings()

    @property
    def modules(self) -> set[str]:
        """Modules of which it names a function or a class."""
        named = (self.what, *self.changes.values())
        return {
            value.partition(":")[0]
            for value in named
            if isinstance(value, str) and is_place(value)
        }

    @property
    def needed(self) -> int:
        """Number of sites that must end the training."""
        drops = self.training_settings().drop_lost
        return len(self.sites) // 2 + 1 if drops else len(self.sites)

    def training_settings(self) -> TrainingSettings:
        """Its settings, of a party; ``ValueError`` as of these."""
        known = {field.name for field in dataclasses.fields(TrainingSettings)}
        for name in self.settings.keys() - known:
            raise ValueError(f"there is no setting {name!r} of a training")
        return TrainingSettings(**self.settings, parties=True)


class SiteFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``privaudit.toml`` of a site: where its data and folders are, what may run."""

    out: str  # folder of its runs, each in a folder of the job's name
    # its records: module:function, or a folder with node-N.npz; None: public data that
    # the algorithm loads by default
    data: str | None = None
    # as of ``privaudit train``; ``key`` signs the finished folder
    data_dir: str | None = None
    key_file: str | None = None
    device: str = "cpu"
    identifiers: str | None = None
    key: str | None = None
    modules: tuple[str, ...] = ()  # whose functions and classes a job may name
    # the largest budget that one job may ask for; without an ``epsilon`` it asks for
    # any. Jobs on the same records add up, which is for the site to see
    most_epsilon: Annotated[float, msgspec.Meta(gt=0)]
    most_delta: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 1e-5
    studies: bool = False  # whether a job may have a seed: who knows it knows the noise
    # all that train, in the order of the nodes, for ``privaudit train --kit``; a job
    # names them itself
    sites: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: pathlib.Path) -> Self:
        """The file at ``path``; ``ValueError`` if it is none."""
        try:
            return _json.convert(toml.read(path), cls)
        except FileNotFoundError:
            raise ValueError(
                f"{path} is not there: it says where this site's data and folders are, "
                "and what it lets run"
            ) from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def accepted(self, asked: Mapping[str, Any]) -> Job:
        """Job that was ``asked``, if this site lets it run; ``ValueError`` if not."""
        job = _json.convert(asked, Job)
        settings = job.training_settings()
        if unknown := job.modules - {*self.modules}:
            raise ValueError(
                f"the job names code of {', '.join(sorted(unknown))}, which is not "
                "among the modules that this site lets run"
            )
        if settings.seed is not None and not self.studies:
            raise ValueError(
                "the job has a seed, by which anybody knows the noise: this site lets "
                "no studies run"
            )
        if settings.epsilon is None or settings.epsilon > self.most_epsilon:
            raise ValueError(
                f"the job asks for epsilon {settings.epsilon}, where this site lets "
                f"{self.most_epsilon:g} be spent at most"
            )
        certified = (None, "certified", "certified")
        asked_by = settings.noise_multiplier, settings.account, settings.calibrate
        if asked_by != certified and not self.studies:
            raise ValueError(
                "the job chooses its noise otherwise than by the certified account, so "
                "that its epsilon may be larger than what it claims: leave "
                "noise_multiplier, account and calibrate out"
            )
        delta = DELTA if settings.delta is None else settings.delta
        if delta > self.most_delta:
            raise ValueError(
                f"the job asks for delta {delta:g}, where this site lets "
                f"{self.most_delta:g} at most"
            )
        return job

    def over(self, settings: TrainingSettings) -> TrainingSettings:
        """The job's settings with this site's own."""
        return dataclasses.replace(
            settings,
            data_dir=_path(self.data_dir),
            key_file=_path(self.key_file),
            device=self.device,
            identifiers=_path(self.identifiers),
        )

    def changes(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The job's changes with this site's data."""
        data = {} if self.data is None else {"data": placed(self.data)}
        return {**changes, **data}


def _path(text: str | None) -> pathlib.Path | None:
    return None if text is None else pathlib.Path(text)


def write(
    folder: str | os.PathLike[str],
    job: Job,
    *,
    server: str = "localhost",
    relay: str | None = None,
    sealed: bool = True,
) -> list[str]:
    """Write a federation's ``project.yml`` and ``job``; what to do next, in sentences.

    Parameters
    ----------
    folder
        A new one, or an empty one.
    job
        What is to be trained.
    server
        Under which name the sites reach FLARE's server.
    relay
        Under which name they reach a relay that goes on to it; None: there is none.
    sealed
        False for FLARE's simulator, whose sites have no certificates: the relay then
        reads all messages.

    Raises ``ValueError`` if there is something in ``folder``.
    """
    there = pathlib.Path(folder)
    if there.exists() and any(there.iterdir()):
        raise ValueError(f"{there} is not empty: choose a new folder")
    for host in (server, relay or server):
        if not re.fullmatch(r"[A-Za-z0-9.-]{1,253}", host):
            raise ValueError(
                f"the name of a server or a relay is that of a host, got {host!r}"
            )
    if len({server, _named(relay), *job.sites}) < 2 + len(job.sites):
        raise ValueError("server, relay and sites have names of their own")
    asked = {**msgspec.to_builtins(job), "sealed": sealed}
    app = there / "job" / "app" / "config"
    app.mkdir(parents=True)
    many = len(job.sites)
    _write(
        there / "job" / "meta.json",
        {
            "name": job.name,
            "resource_spec": {},
            "min_clients": job.needed,
            **({"mandatory_clients": [*job.sites]} if job.needed == many else {}),
            "deploy_map": {"app": ["server", *job.sites]},
        },
    )
    patience, here = job.training_settings().patience, "privaudit.api.flare"
    terms = {"sites": [*job.sites], "needed": job.needed, "patience": patience}
    together = {"id": TASK, "path": f"{here}.Together", "args": terms}
    site = {"tasks": [TASK], "executor": {"path": f"{here}.Site", "args": asked}}
    for who, parts in (
        ("server", {"workflows": [together]}),
        ("client", {"executors": [site]}),
    ):
        whole = {"format_version": 2, **parts, "components": []}
        _write(app / f"config_fed_{who}.json", whole)
    (there / "project.yml").write_text(_project(job, server, relay))
    return [
        f"nvflare provision -p {there}/project.yml -w {there}/kits: one kit a site, "
        "with its certificate; give each its own, and no other",
        "each site fills in local/privaudit.toml of its kit, which says where its data "
        "are and what it lets run, and starts startup/start.sh",
        f"nvflare job submit -j {there}/job --startup-kit KIT, by the admin with its "
        "kit; the same again goes on",
        "privaudit join of all sites' folders, in the end",
    ]


def _write(path: pathlib.Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


SITE = """\
# What this site lets run, and where its own things are. Nobody else reads it.
out = "/srv/privaudit/runs"      # a folder of this site alone
data = "/srv/privaudit/data"     # with node-N.npz, or module:function
modules = []                     # whose functions a job may name, such as ["mine"]
most_epsilon = 4.0
most_delta = 1e-5
studies = false                  # whether a job may have a seed
"""


def _named(relay: str | None) -> str | None:
    """Name of a relay: FLARE writes paths of names, with dots between."""
    return None if relay is None else relay.replace(".", "-")


def _project(job: Job, server: str, relay: str | None) -> str:
    """FLARE's project: server, relay, sites and an admin, with a certificate each."""
    orgs = [site.replace("-", "_") for site in job.sites]
    by = "" if relay is None else f"    connect_to:\n      name: {_named(relay)}\n"
    sites = "".join(
        f"  - name: {site}\n    type: client\n    org: {org}\n{by}"
        for site, org in zip(job.sites, orgs, strict=True)
    )
    if relay is not None:
        sites += (
            f"  - name: {_named(relay)}\n    type: relay\n    org: {orgs[0]}\n"
            "    listening_host:\n      scheme: grpc\n      port: 8004\n"
            f"      connection_security: mtls\n      default_host: {relay}\n"
        )
    return f"""\
api_version: 3
name: {job.name}
description: a training by privaudit
participants:
  - name: {server}
    type: server
    org: {orgs[0]}
    fed_learn_port: 8002
    admin_port: 8003
    connection_security: mtls
{sites}  - name: admin@federation.example
    type: admin
    org: {orgs[0]}
    role: project_admin
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args:
      config_folder: config
      scheme: grpc
  - path: privaudit.api.flare.Kits
    args:
      sites: [{", ".join(job.sites)}]
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""
