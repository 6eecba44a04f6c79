"""Recomputes a folder's figures from its evidence, and compares them.

Of a run: the digests of its files against its manifest, the account from its ledger,
the bound and the verdict from its scores, and its ledger against its settings. Only the
last needs torch.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Collection, Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from privaudit.accounting.recorded import worth
from privaudit.accounting.verdict import verdict_by_node
from privaudit.accounting.views import account_observed
from privaudit.auditing.experiments.judgement import judge
from privaudit.auditing.experiments.sweep_folder import SweepFolder
from privaudit.auditing.programs import audit as programs
from privaudit.files import manifest as _manifest
from privaudit.files import npz as _npz
from privaudit.files import signature as _signature
from privaudit.files.folder import (
    CERTIFICATE,
    MANIFEST,
    PAGE,
    SIGNATURE,
    FolderError,
    RunFolder,
)
from privaudit.files.json import Summary
from privaudit.records import IN_THE_RUN
from privaudit.report.difference import Difference, cannot_be, differ, first_unequal
from privaudit.report.load import (
    FinishedAudit,
    FinishedTraining,
    Paged,
    audits_of,
    load_any,
)
from privaudit.report.planned import assumes_unlike, ledger_by_settings, promises
from privaudit.report.program import FinishedProgram
from privaudit.report.proved import proved
from privaudit.report.recorded import FinishedRecord
from privaudit.report.sweep import PLAN, FoundSweep, is_sweep, load_sweep
from privaudit.results import UpperBound, own_by, worst_bound
from privaudit.version import __version__
from trainers.runs.outcome import TrainingResult

PROVED = "proved by the kernel: "
_GIVEN = "model", "data", "loss", "transform", "classes"
_TOLD = 20  # differences that are printed, a line each; `summary` has all


class EvidenceError(Exception):
    """A folder's figures disagree with its evidence."""

    def __init__(self, differences: tuple[Difference, ...]) -> None:
        super().__init__("; ".join(map(str, differences)))
        self.differences = differences


@dataclasses.dataclass(frozen=True, slots=True)
class Verification:
    """The result of `privaudit.verify`: what was checked in a folder, and what differs.

    It is true if nothing differs.

    ``path``: the folder. ``found``: the run or sweep that it holds; None if it cannot
    be read. ``checked``, ``unchecked``: what was checked, and what could not be, in
    words. ``differences``: one per file that disagrees; empty if all that was checked
    agrees. ``manifest``: the bytes of manifest.json. ``has_manifest``: whether the
    folder, or each folder of a sweep, has a manifest. ``signer``: the public key that
    its signature was checked against.
    """

    path: pathlib.Path
    found: Paged | FinishedProgram | FoundSweep | None
    checked: tuple[str, ...]
    unchecked: tuple[str, ...]
    differences: tuple[Difference, ...]
    manifest: bytes | None
    has_manifest: bool
    signer: str | None = None

    def __bool__(self) -> bool:
        """Return whether nothing differs."""
        return not self.differences

    @property
    def is_proved(self) -> bool:
        """Return whether the kernel proved the certificates that were to be checked."""
        about = [one for one in self.unchecked if CERTIFICATE in one]
        return any(one.startswith(PROVED) for one in self.checked) and not about

    @property
    def is_signed(self) -> bool:
        """Return whether the folder has a signature, checked or not."""
        return (self.path / SIGNATURE).is_file()

    def __str__(self) -> str:
        if self.differences:
            return "\n".join(self._differing())
        text = f"checked against its evidence: {', '.join(self.checked) or 'nothing'}"
        if self.signer is not None:
            text += (
                f"; signed by the holder of the key of {self.signer}, as was checked"
            )
        elif self.is_signed:
            text += "; signed, by whom was not checked (give --signer)"
        elif self.has_manifest:
            text += (
                "; not signed: anyone who can write to it could have forged all of it"
            )
        if not self.has_manifest:
            text += (
                "; there is no manifest, so nothing says that the files are those "
                "that the run wrote"
            )
        return text

    def lines(self) -> list[str]:
        """Lines on what disagrees; or what was checked, and what was not."""
        if self.differences:
            return self._differing()
        unchecked = "; ".join(self.unchecked)
        return [
            f"{self.path}: {self}",
            *([f"not checked: {unchecked}"] * bool(unchecked)),
        ]

    def _differing(self) -> list[str]:
        more = len(self.differences) - _TOLD
        told = [str(one) for one in self.differences[:_TOLD]]
        return [*told, f"and {more:,} more"] if more > 0 else told

    @property
    def independence(self) -> str | None:
        """Reason why a record's gradient is its own; None where the run says none."""
        run = getattr(self.found, "result", None)
        return getattr(run, "independence", None) or None

    summary = Summary(
        "folder=path agrees=__bool__ manifest=has_manifest signed=is_signed signer "
        "proved=is_proved independence checked not_checked=unchecked differences"
    )


def verify(
    path: str | os.PathLike[str],
    *,
    settings: bool = False,
    signer: str | os.PathLike[str] | None = None,
) -> Verification:
    """Compare the folder at ``path``, of a run or a sweep, with its evidence.

    Parameters
    ----------
    path
        Nothing is locked or changed.
    settings
        Whether the ledger is compared with the settings too, which needs torch.
    signer
        A file with the public key of who must have signed the manifest.

    Raises
    ------
    privaudit.files.folder.FolderError
        If there is no finished run, or a file is damaged that no manifest lists.
    ValueError
        If ``signer`` is no such file.
    """
    path = pathlib.Path(path)
    key = None if signer is None else _signature.public_key(signer)
    done = _sweep(path, settings) if is_sweep(path) else _run(path, settings)
    if key is None:
        return done
    sealed = _manifest.regular(path / SIGNATURE)
    if sealed and done.manifest and _signature.is_good(sealed, done.manifest, key):
        return dataclasses.replace(done, signer=str(signer))
    wrong = Difference(
        path / SIGNATURE,
        "its signature",
        "another key's, or of another manifest" if sealed else "missing",
        f"that of {MANIFEST} by {signer}",
        "--signer asks for",
    )
    return dataclasses.replace(done, differences=(*done.differences, wrong))


def verified(path: str | os.PathLike[str], **how: Any) -> Verification:
    """As `verify`; `EvidenceError` if anything differs."""
    found = verify(path, **how)
    if found.differences:
        raise EvidenceError(found.differences)
    return found


def sign(checked: Verification, key: str | os.PathLike[str]) -> pathlib.Path:
    """Sign the manifest of a folder that was ``checked``; where the signature is.

    ``key``: a private key's file, see `privaudit.files.signature.private_key`.
    `EvidenceError` if figures disagree with the evidence; `FolderError` if there is no
    manifest.
    """
    signs = _signature.private_key(key)
    if checked.differences:
        raise EvidenceError(checked.differences)
    if checked.manifest is None or not checked.has_manifest:
        raise FolderError(
            f"{checked.path} has no {MANIFEST} that could be signed: is it of an older "
            "version, or was it stopped? The command that made it goes on from there"
        )
    # The bytes that were checked, whatever the file holds by now.
    RunFolder(checked.path).write(SIGNATURE, signs.sign(checked.manifest))
    return checked.path / SIGNATURE


def _sweep(path: pathlib.Path, settings: bool) -> Verification:
    found, folder = load_sweep(path), SweepFolder(path)
    manifest = _manifest.content(folder)
    digests = _digests(folder, manifest, folder.manifests())
    planned = {one["name"]: one for one in folder.read(PLAN, dict)["audits"]}
    differ = dict(digests or {})
    for row in found.rows:
        if row.finished is not None and row.name in planned:
            differ |= _planned_unlike(row.finished, planned[row.name])
    parts = [
        _run(path / row.name, settings)
        for row in found.rows
        if (path / row.name / "result.json").exists()
    ]
    unchecked = [what for part in parts for what in part.unchecked]
    unchecked += [
        f"{row.name}: {row.why}" for row in found.rows if row.finished is None
    ]
    checked = [what for part in parts for what in part.checked]
    return Verification(
        path=path,
        found=found,
        checked=tuple(dict.fromkeys(checked)),
        unchecked=tuple(dict.fromkeys([*unchecked, *_page_in(path)])),
        differences=(
            *differ.values(),
            *(one for part in parts for one in part.differences),
        ),
        manifest=manifest,
        has_manifest=digests is not None and all(part.has_manifest for part in parts),
    )


def _planned_unlike(run: Any, planned: dict[str, Any]) -> dict[str, Difference]:
    """Difference of an audit's settings from what the sweep planned, by its folder."""
    left = {"version", "torch_version"}
    left |= {"noise_multiplier"} if planned.get("calibrate") else set()
    own, plan = RunFolder(run.path).read("config.json", dict), planned.get("audit")
    kept = {key: own.get(key) for key in left}
    wanted = {**plan, **kept} if isinstance(plan, dict) else kept
    where, had, asked = first_unequal(own, wanted)
    file, by = run.path / "config.json", f"{PLAN} has"
    return {run.path.name: Difference(file, where, had, asked, by)} if where else {}


def _page_in(path: pathlib.Path) -> list[str]:
    """Say that a page in the folder is no evidence: it is written after all else."""
    if not os.path.lexists(path / PAGE):
        return []
    return [
        f"{PAGE}, which no digest and no signature covers: anyone who can write to the "
        "folder could have made it; privaudit report writes it again from the evidence"
    ]


def _run(path: pathlib.Path, settings: bool) -> Verification:
    folder = RunFolder(path)
    manifest = _manifest.content(folder)
    digests = _digests(folder, manifest, _manifest.audits_in(folder))
    differ = dict(digests or {})
    for file in folder.secrets:
        told = "still here", "none is left: the same command, again, removes it"
        differ[file.name] = Difference(file, "a secret", *told, "of a run that ended")
    checked = [] if digests is None else ["the manifest's digests"]
    unchecked: list[str] = []
    run = None
    try:
        run = load_any(path)
        for one in _figures(run, checked, unchecked, settings):
            # What follows from a file that was changed is not said of another.
            if not digests or one.file.name in digests:
                differ[one.file.name] = one
    except FolderError:
        if not differ:
            raise
    return Verification(
        path=path,
        found=run,
        checked=tuple(checked),
        unchecked=(*unchecked, *_page_in(path)),
        differences=tuple(differ.values()),
        manifest=manifest,
        has_manifest=digests is not None,
    )


def _digests(
    folder: RunFolder, content: bytes | None, more: Collection[str] = ()
) -> dict[str, Difference] | None:
    """Differences from the manifest, by file, and ``more``; None if there is none."""
    if content is None:
        return None
    manifest = _manifest.parsed(folder, content)
    # Links too, wherever they lead.
    there = {*more} | {
        entry.name
        for entry in folder.path.iterdir()
        if not folder.holds(entry)
        or (entry.name in folder.files and entry.name not in _manifest.NOT_EVIDENCE)
    }
    found = {}
    for name in sorted({*manifest.files, *there}):
        listed, file = manifest.files.get(name), folder / name
        expected = "nothing" if listed is None else _short(listed.sha256)
        # What is not listed is not read.
        actual = None if listed is None else _manifest.digest_of(file)
        if listed is not None and actual == listed.sha256:
            continue
        recorded = "nothing, no file" if actual is None else _short(actual)
        if actual is None and os.path.lexists(file):
            recorded = "none, as it is no file"
            if file.is_file() and not file.is_symlink():
                recorded = "not asked for"
        told = recorded, expected, "manifest.json has"
        found[name] = Difference(file, "its SHA-256", *told)
    if manifest.settings is not None and not found:
        kept = _manifest.settings_in(folder) or {}
        where, one, other = first_unequal(manifest.settings, kept)
        if where:
            told = f"the setting {where}", one, other, "config has"
            found[MANIFEST] = Difference(folder / MANIFEST, *told)
    return found


def _short(digest: str) -> str:
    return f"{digest[:16]}..."


def _figures(
    run: Paged | FinishedProgram,
    checked: list[str],
    unchecked: list[str],
    settings: bool,
) -> Iterator[Difference]:
    """Differences of figures; ``checked`` and ``unchecked`` list what was compared."""
    loose = run.config.version != __version__
    if loose:
        unchecked.append(
            f"details that depend on the version: {run.config.version} wrote it, and "
            f"this is {__version__}"
        )
    if isinstance(run, FinishedProgram):
        again, by = _program_again(run), "scores.npz gives"
        checked += ["the worlds by its seed", "the bound from its scores"]
        if run.ledger is not None:
            checked.append("the account from its ledger")
            unchecked.append("that the ledger is what the program releases")
        unchecked.append("what the program does")
    elif isinstance(run, FinishedRecord):
        again, by = _record_again(run), "ledger.json gives"
        checked.append("the account from its ledger")
        unchecked.append(f"that the ledger is what {run.config.recorded} did")
        if run.result.says:
            unchecked.append(f"what {run.config.recorded} says itself")
    elif isinstance(run, FinishedAudit):
        again, by = _audit_again(run, unchecked), "ledger.json and scores.npz give"
        checked += ["the account from its ledger", "the bound from its scores"]
        unchecked.append("that the scores are those of the settings' runs")
    else:
        again, by = _training_again(run), "ledger.json gives"
        checked.append("the account from its ledger")
        yield from _audits_of(run, checked, unchecked, settings)
        unchecked.append("accuracies and curves, which need the data")
        if run.result.independence:
            said = own_by(run.result.independence, run.upper.unit)
            unchecked.append(f"that {said}, which is as the run says")
        if run.result.remarks:
            unchecked.append("remarks, which are the run's own words")
    checked.append("the verdict")
    if isinstance(again, Difference):
        yield again
        return
    recorded = msgspec.to_builtins(run.result)
    first = next(differ(recorded, msgspec.to_builtins(again), loose), None)
    if first is not None:
        yield Difference(run.path / "result.json", *first, by)
    by_kernel = proved(run.path, run.ledger)
    if by_kernel is not None and by_kernel.wrong is not None:
        yield Difference(run.path / CERTIFICATE, *by_kernel.wrong, "ledger.json gives")
    elif by_kernel is not None and by_kernel.status == "proved":
        told = [line.partition(" is ")[0] for line in by_kernel.says]
        beyond = "as it was asked, about a thousandth beyond the account"
        checked.append(f"{PROVED}{', '.join(told)} ({beyond})")
    elif by_kernel is not None:
        why = "; ".join(by_kernel.says)
        unchecked.append(f"{CERTIFICATE} by the kernel: {by_kernel.status or why}")
    if settings and not isinstance(run, FinishedProgram | FinishedRecord):
        found = ledger_by_settings(run, checked, unchecked)
        if found is not None:
            yield found


def _audits_of(
    run: FinishedTraining, checked: list[str], unchecked: list[str], settings: bool
) -> Iterator[Difference]:
    """Differences in the audits that lie in the folder of ``run``."""
    own = {one.path.name for one in RunFolder(run.path).audits}
    for name in IN_THE_RUN if run.config.canaries else ():
        if f"audit-canaries-{name}" not in own:
            path, by = run.path / f"audit-canaries-{name}", "config.json has"
            planted = f"of {run.config.canaries} canaries"
            yield Difference(path, "its audit", "missing", planted, by)
    for one in RunFolder(run.path).audits:
        if not one.has("result.json"):
            unchecked.append(f"{one.path.name}, an audit that is not finished")
            continue
        done = _run(one.path, settings)
        yield from done.differences or _of_another(run, done.found)
        checked += [f"{what} ({one.path.name})" for what in done.checked]
        unchecked += [f"{what} ({one.path.name})" for what in done.unchecked]


def _of_another(run: FinishedTraining, audit: Any) -> Iterator[Difference]:
    """Settings of an audit in the folder of ``run`` that are of another training."""
    file, by = audit.path / "config.json", "that of the run says"
    pairs = [
        (name, getattr(audit.config, name), getattr(run.config, name))
        for name in ("training", "noise_multiplier")
    ]
    if audit.path.name.startswith("audit-canaries-"):
        pairs += [("canaries", audit.config.runs, run.config.canaries)]
    for name, one, other in pairs:
        if isinstance(one, dict):  # what Python was given has no name there
            left = {key: value for key, value in one.items() if key in _GIVEN}
            inner, one, other = first_unequal(one, {**other, **left})
            name = f"{name}.{inner}"
        if one != other:
            yield Difference(file, name, str(one), str(other), by)


def _training_again(run: FinishedTraining) -> Any:
    claim, worst = run.config.claim, run.upper
    asked = worst if claim is None else claim
    observer, at = run.config.observer, (asked.delta, worst.relation, run.account)

    def account(seen_by: str | None) -> tuple[UpperBound, ...]:
        return account_observed(run.trained_by, run.ledger, seen_by, *at)

    how = run.result.independence
    if how is not UNSET and run.ledger.independent(how) != run.ledger:
        return assumes_unlike(run, f"independence {how}", "result.json")
    if run.config.version == __version__:
        file = run.path / "result.json"
        written = RunFolder(run.path).read("result.json", TrainingResult)
        if written.protected != run.result.protected:
            told = str(written.protected), str(run.result.protected)
            return Difference(file, "protected", *told, "config.json says")
        party = run.config.party
        others = {*range(party.parties)} - {party.party} if party else set()
        gone = [number for number, _ in (*run.left, *run.returned)]
        if not others >= {*gone} or len({*gone}) < len(gone):
            told = str(gone), "other parties, each once"
            return Difference(file, "who was lost", *told, "config.json has")
        if how is UNSET and promises(run):
            told = "not said", "said"
            return Difference(file, "independence", *told, "this version has it")
    try:
        nodes = account(observer)
        every = UNSET if observer is None else worst_bound(account(None))
        verdict = None
        if claim is not None:
            verdict = verdict_by_node(claim, run.config.own_budgets, run.ledger, nodes)
    except ValueError as error:
        return cannot_be(run, error)
    again = msgspec.structs.replace(
        run.result,
        nodes=nodes,
        verdict=verdict,
        status=None if verdict is None else verdict.status,
        noise_multiplier=run.config.noise_multiplier,
        seen_by_all=every,
    )
    audits = audits_of(RunFolder(run.path))
    return again if audits is UNSET else again.audited(audits)


def _record_again(run: FinishedRecord) -> Any:
    try:
        return worth(run.ledger, run.config, run.result.says, run.result.seconds)
    except ValueError as error:
        return cannot_be(run, error)


def _audit_again(run: FinishedAudit, unchecked: list[str]) -> Any:
    with _npz.opened(run.path / "scores.npz") as file:
        accuracy = file.get("accuracy")
    if accuracy is None:
        unchecked.append("the accuracy")
        accuracy = np.array([run.result.accuracy], dtype=float)
    arrays = *run.scores.by_run(), accuracy
    sees = run.result.lower().threat_model
    try:
        return judge(run.config, run.ledger, arrays, run.result.seconds, sees)
    except (ValueError, KeyError) as error:
        return cannot_be(run, error)


def _program_again(run: FinishedProgram) -> Any:
    done = programs.kept_batches(run.config, RunFolder(run.path))
    worlds = programs.arrays(run.config, done)[0]
    wrong = np.flatnonzero(worlds != run.scores.member)
    if len(wrong):
        where = int(wrong[0])
        had, wanted = (str(bool(x[where])) for x in (run.scores.member, worlds))
        file, what = run.path / "scores.npz", f"the world of run {where}"
        return Difference(file, what, had, wanted, "the seed in config.json gives")
    try:
        return programs.judge(run.config, done, run.result.seconds, run.ledger)
    except ValueError as error:
        return cannot_be(run, error)
