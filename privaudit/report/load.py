"""A finished run's folder, read back: without locking, without torch."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from privaudit.auditing.experiments.outcome import AuditResult
from privaudit.auditing.scores import Scores
from privaudit.files import json as _json
from privaudit.files.folder import FolderError, RunFolder
from privaudit.files.json import Summary
from privaudit.ledger import Ledger
from privaudit.records import AuditRecord, TrainingRecord
from privaudit.report.program import FinishedProgram, load_program
from privaudit.report.recorded import (
    FinishedRecord,
    check_belongs,
    ledger_in,
    load_record,
)
from privaudit.results import Judged, Status, UpperBound
from privaudit.task_settings import TaskSettings, renamed
from trainers.runs.outcome import Curves, RunAudit, TrainingResult, protection


class _Kept:
    """A ``config.json``, whose ``training`` keeps all keys."""

    training: dict[str, Any]

    @property
    def settings(self) -> TaskSettings:
        """The settings that this version knows; other keys are left out."""
        return _json.convert(self.training, TaskSettings)


class TrainingConfig(_Kept, TrainingRecord[dict[str, Any]]):
    """Contents of the ``config.json`` of a training; ``training`` keeps all keys."""


class AuditConfig(_Kept, AuditRecord[dict[str, Any]]):
    """Contents of the ``config.json`` of an audit; see `TrainingConfig`."""


# Keys that all results of a training have.
FIGURES = (
    "claimed=result.verdict.claim.epsilon certified=upper.epsilon "
    "certified_lower=result.verdict.certified_lower standing=upper.standing "
    "assumes=upper.assumes independence=result.independence "
    "gradients=result.gradients overlap=upper.overlap delta=upper.delta "
    "relation=upper.relation observer=upper.observer "
    "everything_seen=result.everything_seen.epsilon "
    "noise_multiplier=result.noise_multiplier accuracy=result.accuracy "
    "worst_accuracy=result.worst_accuracy loss=result.loss "
    "worst_loss=result.worst_loss test_records=result.test_records "
    "test_size=result.test_size seconds=result.seconds verdict=result.status "
    "remarks=result.remarks audits=result.with_bounds protected=result.protected "
    "noise=result.noise"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTraining(Judged[Status | None, UpperBound]):
    """A finished training, as read from its folder by `load`.

    ``path``: the folder. ``config``: what was asked for. ``ledger``: all that each node
    released. ``curves``: accuracy or loss over the rounds. ``result``: figures, account
    and verdict, as stored: `privaudit.verify` computes them again. ``kind``:
    "training".
    """

    path: pathlib.Path
    config: TrainingConfig
    ledger: Ledger
    curves: Curves
    result: TrainingResult
    kind: Literal["training"] = "training"

    @property
    def trained_by(self) -> str:
        """The algorithm."""
        return self.config.settings.algorithm

    @property
    def account(self) -> str:
        """Tool that its figures were made by."""
        return self.config.account

    @property
    def left(self) -> tuple[tuple[int, int], ...]:
        """Parties that were lost, and in which rounds."""
        return self.result.left or ()

    @property
    def returned(self) -> tuple[tuple[int, int], ...]:
        """Parties that were lost, in which rounds, and came back."""
        return self.result.returned or ()

    @property
    def has_missed(self) -> bool:
        """Return whether it was lost, and has released less than was planned."""
        return self.result.missed is not UNSET

    @property
    def protected(self) -> bool:
        """Return whether its noise is secret."""
        return self.result.protected

    @property
    def warning(self) -> str:
        """Warning that stands wherever the figures are."""
        return self.result.warning

    summary = Summary(f"folder=path kind algorithm=config.settings.algorithm {FIGURES}")

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        result, verdict = self.result, self.result.verdict
        figures = [str(self.upper)]
        if verdict is not None:
            figures = [str(verdict.claim), *figures, str(verdict)]
        figures += [*result.also(), *result.shown()]
        # As such: of a folder that is not signed anybody may have written them.
        remarks = [f"remark: {each}" for each in result.remarks]
        head = f"{self.path}: {self.trained_by}, trained once; {result.quality}"
        return [head, *figures, *remarks, result.warning]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FinishedAudit(Judged[Status, UpperBound]):
    """A finished audit of an algorithm, as read from its folder by `load`.

    ``path``: the folder. ``config``: what was asked for. ``ledger``: all that each node
    releases in one run. ``curves``: accuracy or loss over the rounds. ``scores``: the
    attack's score of each run, and whether the canary was in it. ``result``: bounds and
    verdict, as stored: `privaudit.verify` computes them again. ``kind``: "audit".
    """

    path: pathlib.Path
    config: AuditConfig
    ledger: Ledger
    curves: Curves
    scores: Scores
    result: AuditResult
    kind: Literal["audit"] = "audit"

    summary = Summary(
        "folder=path kind algorithm=config.settings.algorithm "
        "planted_bug=config.planted_bug *result"
    )

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        config, result, verdict = self.config, self.result, self.result.verdict
        bug, right, many = config.planted_bug, result.accuracy, f"{config.runs:,}"
        planted = "" if bug is None else f" with a planted bug ({bug})"
        runs = f"one run with {many} canaries" if config.one_run else f"{many} runs"
        quality = "" if right is None else f"; accuracy {right:.4f} on test images"
        what = f"{config.settings.algorithm}{planted}"
        return [
            f"{self.path}: {what}, audited in {runs}{quality}",
            *map(str, (verdict.claim, self.upper, result.lower())),
            *result.limits(),
            str(verdict),
        ]


Finished = FinishedAudit | FinishedTraining
Paged = Finished | FinishedRecord  # what has a page


def load_any(path: str | os.PathLike[str]) -> Paged | FinishedProgram:
    """The finished run of any kind in the folder at ``path``; raises as `load`."""
    folder = RunFolder(path)
    fields = folder.read("config.json", dict) if folder.has("config.json") else {}
    if "program" in fields:
        _finished(folder)
        return load_program(folder)
    return load_record(folder) if "recorded" in fields else load(path)


def _finished(folder: RunFolder) -> None:
    if not folder.has("result.json"):
        raise FolderError(
            f"the run in {folder.path} is not finished; the command that began it "
            "goes on from there"
        )


def load(path: str | os.PathLike[str]) -> Finished:
    """The finished audit or training in the folder at ``path``, which is not locked.

    `FolderError` if there is none, it is not finished, or a file is damaged or
    another's.
    """
    folder = RunFolder(path)
    if not folder.path.is_dir():
        raise FolderError(f"there is no folder {folder.path}")
    if folder.has("sweep.json"):
        raise FolderError(
            f"{folder.path} is a sweep's folder; `privaudit show` compares its audits, "
            "and each of their folders has a page of its own"
        )
    config = _config(folder)
    _finished(folder)
    if isinstance(config, AuditConfig):
        return _audit(folder, config)
    return _training(folder, config)


def audits_of(folder: RunFolder) -> tuple[RunAudit, ...] | UnsetType:
    """Findings of finished audits in a training's folder; unset without any."""
    found = [
        RunAudit(
            folder=done.path.name,
            canary=done.config.canary,
            runs=len(done.scores),
            random_records=done.config.random_records,
            in_the_run=done.config.one_run,
            finding=done.result.verdict,
        )
        for done in audits_in(folder)
    ]
    return tuple(found) or UNSET


def audits_in(folder: RunFolder) -> Iterator[FinishedAudit]:
    """The finished audits that lie in the folder of a training."""
    for one in folder.audits:
        if one.has("result.json"):
            done = load(one.path)
            if not isinstance(done, FinishedAudit):
                raise one.broken("config.json", "it is no audit's")
            yield done


def _config(folder: RunFolder) -> AuditConfig | TrainingConfig:
    fields = folder.read("config.json", dict)
    kind = AuditConfig if "adversary" in fields else TrainingConfig
    if "program" in fields:
        raise FolderError(
            f"{folder.path} is of a user program; `privaudit show` and `report` have "
            "its figures"
        )
    if not {"training", "noise_multiplier"} <= fields.keys():
        raise FolderError(
            f"{folder.path} is no run's folder: its config.json is somebody else's"
        )
    try:
        if isinstance(fields["training"], dict):
            fields["training"] = renamed(fields["training"])
        config = _json.decode(_json.encode(fields), kind)
        _ = config.settings
    except ValueError as error:
        known = fields.get("version")
        raise folder.broken(
            "config.json", f"{error}; it was written by privaudit {known}"
        ) from None
    return config


def _audit(folder: RunFolder, config: AuditConfig) -> FinishedAudit:
    result = folder.read("result.json", AuditResult)
    ledger = ledger_in(folder)
    verdict = result.verdict
    if verdict.upper is None or verdict.lower is None:
        raise folder.broken("result.json", "an audit has an account and a bound")
    check_belongs(folder, config.claim, result, ledger)
    try:
        scores = Scores.load(folder / "scores.npz")
    except (OSError, ValueError) as error:
        raise folder.broken("scores.npz", error) from None
    counts = (scores.member_runs, scores.non_member_runs)
    if counts != (result.member_runs, result.non_member_runs):
        raise folder.broken("scores.npz", "not the runs that result.json counts")
    return FinishedAudit(
        path=folder.path,
        config=config,
        ledger=ledger,
        curves=folder.read("curves.json", Curves),
        scores=scores,
        result=result,
    )


def _training(folder: RunFolder, config: TrainingConfig) -> FinishedTraining:
    result = folder.read("result.json", TrainingResult)
    ledger = ledger_in(folder)
    check_belongs(folder, config.claim, result, ledger)
    protected, noise = protection(config.noise_multiplier, config.seed, config.version)
    if result.protected or not protected:  # no file makes a model protected
        result = msgspec.structs.replace(result, protected=protected, noise=noise)
    return FinishedTraining(
        path=folder.path,
        config=config,
        ledger=ledger,
        curves=folder.read("curves.json", Curves),
        result=result,
    )
