"""Recomputes a folder's figures from its evidence, and compares them.

Of a run: the digests of its files against its manifest, the account from its ledger,
the bound and the verdict from its scores, and its ledger against its settings. Only the
last needs torch.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import pathlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
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
from privaudit.files import json as _json
from privaudit.files import manifest as _manifest
from privaudit.files import npz as _npz
from privaudit.files import signature as _signature
from privaudit.files.folder import (
    CERTIFICATE,
    MANIFEST,
    MODEL,
    PAGE,
    SIGNATURE,
    FolderError,
    RunFolder,
)
from privaudit.files.json import Summary
from privaudit.files.user_code import is_place
from privaudit.ledger import COUNTED, OWN_ALGORITHM, RESUMED, Entry, Ledger
from privaudit.records import IN_THE_RUN
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    RandomAllocation,
    Release,
    SamplingWithoutReplacement,
)
from privaudit.report.load import (
    Finished,
    FinishedAudit,
    FinishedTraining,
    Paged,
    audits_of,
    load_any,
)
from privaudit.report.program import FinishedProgram
from privaudit.report.proved import proved
from privaudit.report.recorded import FinishedRecord
from privaudit.report.sweep import PLAN, FoundSweep, is_sweep, load_sweep
from privaudit.results import UpperBound, own_by, worst_bound
from privaudit.task_settings import batches_taken, is_own
from privaudit.version import __version__
from trainers.runs.outcome import TrainingResult

_SAME = 1e-6  # relative: figures of one version, computed on two machines
_OTHER = 2e-3  # of two versions, whose accounts stop at .1 % of the true epsilon
PROVED = "proved by the kernel: "
_GIVEN = "model", "data", "loss", "transform", "classes"
_FILES = "idx", "edges", "arcs", "matrix", "file"  # what names of files begin with
_ANY = Release.of_sum(norm_bound=1.0, noise_multiplier=1.0, sampling=NoSampling())
_TOLD = 20  # differences that are printed, a line each; `summary` has all
# What another version may say or compute otherwise, and what time decides.
_OF_A_VERSION = {
    "source",
    "method",
    "evidence",
    "gap",
    "misfit",
    "beside",
    "beside_gap",
    "proved",
    "rates",
    "overlap",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A figure of ``file`` that is not what the evidence gives."""

    file: pathlib.Path
    what: str
    recorded: str
    expected: str
    by: str  # where the other value is from
    summary = Summary("file what recorded expected expected_by=by")

    def __str__(self) -> str:
        return f"{self.file}: {self.what} is {self.recorded}, {self.by} {self.expected}"


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
    where, had, asked = _first_unequal(own, wanted)
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
        found[name] = Difference(
            file, "its SHA-256", recorded, expected, "manifest.json has"
        )
    if manifest.settings is not None and not found:
        where, one, other = _first_unequal(
            manifest.settings, _manifest.settings_in(folder) or {}
        )
        if where:
            found[MANIFEST] = Difference(
                folder / MANIFEST, f"the setting {where}", one, other, "config has"
            )
    return found


def _first_unequal(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, str, str]:
    """Return the first key, dotted, whose values are unequal, and both; "" if none."""
    for key in {**other, **one}:
        of_one, of_other = one.get(key), other.get(key)
        if isinstance(of_one, dict) and isinstance(of_other, dict):
            inner, *texts = _first_unequal(of_one, of_other)
            if inner:
                return f"{key}.{inner}", texts[0], texts[1]
        elif of_one != of_other:
            return key, str(of_one), str(of_other)
    return "", "", ""


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
    first = next(_differ(recorded, msgspec.to_builtins(again), loose), None)
    if first is not None:
        where, one, other = first
        yield Difference(run.path / "result.json", where, one, other, by)
    by_kernel = proved(run.path, run.ledger)
    if by_kernel is not None and by_kernel.wrong is not None:
        where, one, other = by_kernel.wrong
        yield Difference(run.path / CERTIFICATE, where, one, other, "ledger.json gives")
    elif by_kernel is not None and by_kernel.status == "proved":
        told = [line.partition(" is ")[0] for line in by_kernel.says]
        beyond = "as it was asked, about a thousandth beyond the account"
        checked.append(f"{PROVED}{', '.join(told)} ({beyond})")
    elif by_kernel is not None:
        why = "; ".join(by_kernel.says)
        unchecked.append(f"{CERTIFICATE} by the kernel: {by_kernel.status or why}")
    if settings and not isinstance(run, FinishedProgram | FinishedRecord):
        found = _ledger_by_settings(run, checked, unchecked)
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
            inner, one, other = _first_unequal(one, {**other, **left})
            name = f"{name}.{inner}"
        if one != other:
            yield Difference(file, name, str(one), str(other), by)


def _again(run: Any, error: Exception, by: str = "its ledger and scores") -> Difference:
    return Difference(
        run.path / "config.json",
        "what is to be computed",
        "set",
        f"say that it cannot be: {error}",
        by,
    )


def _training_again(run: FinishedTraining) -> Any:
    claim, worst = run.config.claim, run.upper
    asked = worst if claim is None else claim
    algorithm, observer = run.config.settings.algorithm, run.config.observer

    def account(seen_by: str | None) -> tuple[UpperBound, ...]:
        return account_observed(
            algorithm,
            run.ledger,
            seen_by,
            asked.delta,
            worst.relation,
            run.config.account,
        )

    how = run.result.independence
    if how is not UNSET and run.ledger.independent(how) != run.ledger:
        return _unlike(
            run,
            "what its account assumes",
            "; ".join(run.ledger.assumptions) or "nothing",
            f"independence {how}",
            "result.json",
        )
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
        if how is UNSET and _promises(run):
            told = "not said", "said"
            return Difference(file, "independence", *told, "this version has it")
    try:
        nodes = account(observer)
        every = UNSET if observer is None else worst_bound(account(None))
        verdict = None
        if claim is not None:
            budgets = run.config.own_budgets
            verdict = verdict_by_node(claim, budgets, run.ledger, nodes)
    except ValueError as error:
        return _again(run, error)
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
        return _again(run, error)


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
        return _again(run, error)


def _program_again(run: FinishedProgram) -> Any:
    folder = RunFolder(run.path)
    done = programs.kept_batches(run.config, folder)
    worlds = programs.arrays(run.config, done)[0]
    wrong = np.flatnonzero(worlds != run.scores.member)
    if len(wrong):
        where = int(wrong[0])
        return Difference(
            run.path / "scores.npz",
            f"the world of run {where}",
            str(bool(run.scores.member[where])),
            str(bool(worlds[where])),
            "the seed in config.json gives",
        )
    try:
        return programs.judge(run.config, done, run.result.seconds, run.ledger)
    except ValueError as error:
        return _again(run, error)


def _differ(
    recorded: Any, again: Any, loose: bool, where: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Differences of two trees, with both values."""
    if isinstance(recorded, dict) and isinstance(again, dict):
        for key in {**recorded, **again}:
            # 0.1.0 says no overlap; one that is said must be the ledger's.
            unsaid = key != "overlap" or recorded.get(key) is None
            if loose and key in _OF_A_VERSION and unsaid:
                continue
            inner = f"{where}.{key}" if where else key
            yield from _differ(recorded.get(key), again.get(key), loose, inner)
    elif isinstance(recorded, list | tuple) and isinstance(again, list | tuple):
        if len(recorded) != len(again):
            yield f"the length of {where}", str(len(recorded)), str(len(again))
        for place, (one, other) in enumerate(zip(recorded, again, strict=False)):
            yield from _differ(one, other, loose, f"{where}[{place}]")
    elif isinstance(recorded, float | int) and isinstance(again, float | int):
        if not _agree(float(recorded), float(again), where, loose):
            yield where, _text(recorded), _text(again)
    elif loose and (recorded, again) == ("unproven", "disproved"):
        return  # 0.1.0 did not look from below
    elif recorded != again:
        yield where, _text(recorded), _text(again)


def _agree(recorded: float, again: float, where: str, loose: bool) -> bool:
    if recorded == again:
        return True
    if loose and where.endswith("epsilon"):
        # A bound by another method is one too, if it claims no more.
        if "lower" in where:
            return recorded <= again * (1 + _OTHER)
        return recorded >= again * (1 - _OTHER)
    return math.isclose(recorded, again, rel_tol=_SAME, abs_tol=1e-12)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _ledger_by_settings(
    run: Finished, checked: list[str], unchecked: list[str]
) -> Difference | None:
    """The ledger against what the settings say would be released, to nodes so large."""
    try:
        from trainers.runs.training import Training
        from trainers.runs.tuned import changed, tuned_ledger, with_counts
    except ModuleNotFoundError as error:
        unchecked.append(f"the ledger against the settings, which needs {error.name}")
        return None
    name = run.config.settings.algorithm
    if is_place(name):  # evidence is read, code that it names is not run
        unchecked.append(f"the ledger against the settings, which needs {name} itself")
        return _by_own_algorithm(run)
    try:
        training = _json.convert(run.config.training, Training, strict=False)
        nodes = 1 if training.family.central else training.nodes
        party = getattr(run.config, "party", None)
        held = range(nodes) if party is None else party.nodes
        kept = getattr(run.config, "known_sizes", None)
        if kept is not None and len(kept) != nodes:
            return Difference(
                run.path / "config.json",
                "the number of nodes whose sizes are known",
                *(str(len(kept)), str(nodes), "its settings have"),
            )
        if len(run.ledger.nodes) != len(held):
            return _unlike(run, "the number of nodes", len(run.ledger.nodes), len(held))
        # With a rate, batches of each size are; sizes are known where they are whole.
        batch = None if training.batch_size is UNSET else training.batch_size
        tuning = getattr(run.config, "tuning", None)
        if tuning is not None and (
            changed(training, tuning.best.settings) != training
            or tuning.best.noise_multiplier not in (0.0, run.config.noise_multiplier)
        ):
            file = run.path / "config.json"
            what = "the settings that came out of its tries"
            own = f"{tuning.best.settings}, of {len(tuning.sizes)} nodes"
            return Difference(file, what, own, "others", "its training has")
        known: tuple[int | None, ...] = kept or _sizes(run.ledger, batch)
        least = max(1, math.ceil(batch or 1))
        sizes = tuple(least if size is None else size for size in known)
        # How far noisy messages move depends on how many parameters are shared.
        places, plan = _places(run), training
        needs_model = not places and "shared" in plan.family.options.__struct_fields__
        if needs_model:
            places = {"*": range(1)}
            plan = msgspec.structs.replace(
                plan, options={**plan.options, "shared": "*"}
            )

        def planned_for(sizes: tuple[int, ...]) -> Ledger:
            if tuning is not None and tuning.is_charged:
                relation = run.upper.relation
                return tuned_ledger(training, tuning, relation)
            setting = plan.setting(sizes, places)
            whole = training.family.planned(setting, run.config.noise_multiplier)
            clip = getattr(run.config, "clip", None)
            noise = None if clip is None else clip.noise_multiplier
            return with_counts(whole, noise, first=True)

        expected = planned_for(sizes)
        if None in known and planned_for((2 * least,) * nodes) != planned_for(
            (least,) * nodes
        ):
            # Releases without sampling, where none was asked for, hide nothing more.
            wanted = {type(e.release.sampling) for n in expected.nodes for e in n}
            for node in run.ledger.nodes:
                had = {type(e.release.sampling) for e in node}
                if had and not had & wanted:
                    named = (
                        " and ".join(sorted(k.__name__ for k in each))
                        for each in (had, wanted)
                    )
                    return _unlike(run, "how records are sampled", *named)
            unchecked.append(
                "the ledger against the settings, as it does not say how many records "
                "the nodes have"
            )
            return None
        most = training.family.plans_at_most(training.setting(sizes))
    except (ValueError, KeyError, OSError) as error:
        # Settings of this version were taken when it began, but for files that they
        # name, which may be others by now, and what promises nothing.
        own = run.config.settings
        files = own.data, own.graph, own.partition
        if not any(one.partition(":")[0] in _FILES for one in files) and (
            run.config.version == __version__ and _promises(run)
        ):
            return _again(run, error, "its ledger")
        unchecked.append(f"the ledger against the settings ({error})")
        return None
    whole = party is None and training.unit == "record"
    known_here = kept is not None or run.config.version == __version__
    whole = whole and (known_here or not is_own(training.data))
    if whole and None not in known and sum(sizes) != training.train:
        # Batches of random allocation are whole, and sizes known to within half of one.
        allocated = batches_taken(training.sampling) or training.options.get("buffers")
        slack = nodes * (1 + (batch or 1) / 2) if allocated and kept is None else 0
        if abs(sum(sizes) - training.train) > slack:
            what = "the number of records that its sampling rates are of"
            return _unlike(run, what, f"{sum(sizes):,}", f"{training.train:,}")
    if (unlike := _overlap_unlike(run, training.overlap, training.unit)) is not None:
        return unlike
    if party is not None and party.shared is not None:
        expected = expected.assuming(COUNTED)
    for missing in set(expected.assumptions) - set(run.ledger.assumptions):
        had = "; ".join(run.ledger.assumptions) or "nothing"
        return _unlike(run, "what its account assumes", had, missing)
    unchecked.append("how many records each node has, which needs the data")
    if needs_model:
        unchecked.append("the noise of messages, which needs the model")
    checked.append("the ledger against the settings")
    planned_here = expected.nodes[held.start : held.stop]
    many = [
        [sum(entry.count for entry in node) for node in nodes]
        for nodes in (run.ledger.nodes, planned_here)
    ]
    if isinstance(run, FinishedTraining) and run.has_missed:
        unchecked.append("how many rounds it missed, which the others know")
        if (unlike := _missed_unlike(run, training.rounds, *many)) is not None:
            return unlike
    elif RESUMED in run.ledger.assumptions and not most:
        had, planned = map(sum, many)
        if had <= planned:
            what = "the number of releases, some made again with other sums,"
            return _unlike(run, what, f"{had:,}", f"more than {planned:,}")
    for node, own, planned in zip(held, run.ledger.nodes, planned_here, strict=True):
        more = RESUMED in run.ledger.assumptions
        if needs_model:
            own, planned = (tuple(map(_counted, each)) for each in (own, planned))
        if _has_all(own, planned) and (more or _has_all(planned, own)):
            continue  # in whatever order
        if getattr(run, "has_missed", False) and _has_part(run.ledger, own, planned):
            continue
        counts = sum(e.count for e in own), sum(e.count for e in planned)
        if counts[0] > counts[1] or (counts[0] < counts[1] and not most):
            what = f"the number of releases of node {node}"
            return _unlike(run, what, counts[0], f"{'at most ' * most}{counts[1]}")
        for one, other in zip(own, planned, strict=False):
            if one == other:
                continue
            pair = (msgspec.to_builtins(each) for each in (one, other))
            for where, had, wanted in _differ(*pair, loose=False):
                if where != "count" or not most:
                    return _unlike(run, f"{where} of node {node}", had, wanted)
    return None


def _counted(entry: Entry) -> Entry:
    """As many releases, of which no more is said."""
    return msgspec.structs.replace(entry, release=_ANY)


def _promises(run: Finished) -> bool:
    """Return whether a finite epsilon is certified."""
    return math.isfinite(run.upper.epsilon)


def _by_own_algorithm(run: Finished) -> Difference | None:
    """Difference from the settings where the algorithm is code that is not run."""
    settings, party = run.config.settings, getattr(run.config, "party", None)
    assumed = OWN_ALGORITHM.format(name=settings.algorithm)
    if _promises(run) and assumed not in run.ledger.assumptions:
        had = "; ".join(run.ledger.assumptions) or "nothing"
        return _unlike(run, "what its account assumes", had, assumed)
    kept = getattr(run.config, "known_sizes", None)
    held = kept if party is None else party.nodes
    if held is not None and len(run.ledger.nodes) != len(held):
        return _unlike(run, "the number of nodes", len(run.ledger.nodes), len(held))
    return _overlap_unlike(run, settings.overlap, run.ledger.unit)


def _overlap_unlike(run: Finished, overlap: int, unit: str) -> Difference | None:
    """Difference of the number of nodes at which a unit may be from the settings."""
    ledger, party = run.ledger, getattr(run.config, "party", None)
    # Of a party that is said, since it cannot know what others have.
    unsaid = party is not None and ledger.overlap is UNSET and unit != "node"
    if ledger.most_nodes == overlap and not (unsaid and party.parties > 1):
        return None
    had = "not said" if unsaid else ledger.most_nodes
    return _unlike(run, f"the number of nodes at which a {unit} may be", had, overlap)


def _missed_unlike(
    run: FinishedTraining, rounds: int, had: Sequence[int], planned: Sequence[int]
) -> Difference | None:
    """Difference of the rounds that a party missed from how many it released in."""
    pairs, wanted = run.result.missed or (), ""
    if run.config.party is None:
        wanted = "nothing: there are no parties"
    elif not pairs or any(not 0 <= one <= two <= rounds for one, two in pairs):
        wanted = f"some of its {rounds:,} rounds"
    else:
        done = rounds - len({k for pair in pairs for k in range(*pair)})
        for own, whole in zip(had, planned, strict=True):
            if own < whole * done // rounds:
                wanted = f"more rounds, as {own:,} of {whole:,} releases are there"
    if not wanted:
        return None
    file, by = run.path / "result.json", "config and ledger have"
    return Difference(file, "what it missed", str(pairs), wanted, by)


def _places(run: Finished) -> dict[str, range]:
    """Places of the parameters in the model that the run kept; empty if it kept none.

    As `trainers.gradients.per_sample.parameter_places` has them.
    """
    file = RunFolder(run.path) / MODEL
    if not file.is_file():
        return {}
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np") as model:
            about = _json.decode((model.metadata() or {})["privaudit"], dict)
        ends = [0, *itertools.accumulate(about["parameters"].values())]
        places = itertools.starmap(range, itertools.pairwise(ends))
        return dict(zip(about["parameters"], places, strict=True))
    except (SafetensorError, OSError, ValueError, LookupError, TypeError):
        return {}  # of an older version


def _unlike(
    run: Finished, what: str, had: object, wanted: object, by: str = "config.json"
) -> Difference:
    """Difference of the ledger from the settings."""
    file = run.path / "ledger.json"
    return Difference(file, what, str(had), str(wanted), f"{by} says")


def _has_part(ledger: Ledger, own: Sequence[Entry], planned: Sequence[Entry]) -> bool:
    """Return whether ``own``, of a party that came back, is of what was planned."""
    if RESUMED in ledger.assumptions:
        own = [e for e in own if not isinstance(e.release.sampling, NoSampling)]
    return _has_all(planned, own)


def _has_all(own: Sequence[Entry], planned: Sequence[Entry]) -> bool:
    """Return whether ``own`` has what was planned, or more, as of a resumed run."""
    had, wanted = Counter[Any](), Counter[Any]()
    for counts, entries in ((had, own), (wanted, planned)):
        for entry in entries:
            counts[entry.release, entry.disjoint, entry.dealt] += entry.count
    return wanted <= had


def _sizes(ledger: Ledger, batch_size: float | None) -> tuple[int | None, ...]:
    """Number of records of each node, by its sampling; None where that says nothing."""
    sizes: list[int | None] = []
    for entries in ledger.nodes:
        # Further releases of a run that was resumed have none.
        known = (entry.release.sampling for entry in entries)
        sampling = next((one for one in known if not isinstance(one, NoSampling)), None)
        if isinstance(sampling, SamplingWithoutReplacement):
            sizes.append(sampling.population)
        elif batch_size is None:
            sizes.append(None)
        elif isinstance(sampling, PoissonSampling) and sampling.rate > 0:
            sizes.append(round(batch_size * sampling.parts / sampling.rate))
        elif isinstance(sampling, RandomAllocation):  # a number that gives as many
            sizes.append(max(round(batch_size / sampling.rate), math.ceil(batch_size)))
        else:
            sizes.append(None)
    return tuple(sizes)
