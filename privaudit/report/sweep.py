"""A sweep's folder, read back: all its runs in one table. Without torch."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Iterable
from typing import Any, Literal

from privaudit.auditing.experiments.sweep_folder import PLAN, SweepFolder
from privaudit.files.folder import FolderError
from privaudit.files.frames import frame_of
from privaudit.files.json import Summary
from privaudit.files.notebook import box
from privaudit.report.load import FinishedAudit, load
from privaudit.results import Status, round_down, round_up, stated, worst

_HEAD = (
    *("audit", "neighbours", "delta", "claimed", "at most", "at least"),
    *("most shown", "beside", "runs", "verdict"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One audit: what it found, or why there is nothing."""

    name: str
    finished: FinishedAudit | None
    why: str = ""
    failed: bool = False

    summary = Summary("name state verdict=finished.status why? *finished")

    @property
    def state(self) -> str:
        """finished, failed or not finished."""
        if self.finished is not None:
            return "finished"
        return "failed" if self.failed else "not finished"

    def cells(self) -> tuple[str, ...]:
        """In the order of the table's head."""
        if self.finished is None:
            return (self.name, *[""] * (len(_HEAD) - 2), self.why)
        result = self.finished.result
        claim, lower, beside = result.verdict.claim, result.lower(), result.beside
        upper = result.upper()
        worth = "" if upper.standing == "certified" else f" {upper.standing}"
        return (
            self.name,
            claim.relation,
            f"{claim.delta:g}",
            stated(claim.epsilon),
            round_up(upper.epsilon) + worth,
            round_down(lower.epsilon),
            ""
            if result.gap is None or result.gap.most == math.inf
            else round_down(result.gap.most),
            "" if beside is None else round_down(beside.epsilon),
            f"{self.finished.config.runs:,}",
            result.status,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class FoundSweep:
    """All audits of a sweep, finished or not."""

    path: pathlib.Path
    rows: tuple[Row, ...]
    kind: Literal["sweep"] = "sweep"

    @property
    def finished(self) -> tuple[FinishedAudit, ...]:
        """Those that have a verdict."""
        return tuple(row.finished for row in self.rows if row.finished is not None)

    @property
    def statuses(self) -> list[Status]:
        """Their verdicts."""
        return [one.status for one in self.finished]

    @property
    def complete(self) -> bool:
        """Return whether all have."""
        return len(self.finished) == len(self.rows)

    @property
    def status(self) -> Status | None:
        """The worst verdict; None if some are missing and no other claim fails."""
        found = worst([*self.statuses, "consistent"])
        return found if self.complete or found in ("refuted", "disproved") else None

    @property
    def failed(self) -> int:
        """Number of those that ended with an error."""
        return sum(row.failed for row in self.rows)

    summary = Summary(
        "folder=path kind audits=rows finished=#finished failed verdict=status"
    )

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` by audit, with the figures of `summary`.

        Those that are not finished have none. Raises ``ModuleNotFoundError`` without
        pandas.
        """
        return frame_of([row.summary() for row in self.rows], index="name")

    def _repr_html_(self) -> str:
        head, *lines = self.lines()
        cells = [_HEAD, *(row.cells() for row in self.rows)]
        return box(head, lines[len(cells) :], cells)

    def lines(self) -> list[str]:
        """The table, and what it says in sum."""
        refuted, disproved = map(self.statuses.count, ("refuted", "disproved"))
        failed = self.failed
        rest = len(self.rows) - len(self.finished) - failed
        counts = [f"{len(self.finished)} of {len(self.rows)} audits are finished"]
        counts += [f"{refuted} refute their claim"] if refuted else []
        counts += [f"{disproved} are disproved by their account"] if disproved else []
        counts += [f"{failed} failed"] if failed else []
        counts += [f"{rest} to be done"] if rest else []
        return [
            f"{self.path}: {', '.join(counts)}",
            *table([_HEAD, *(row.cells() for row in self.rows)]),
            *self._legend(),
        ]

    def _legend(self) -> list[str]:
        if not self.finished:
            return []
        lowers = [one.result.lower() for one in self.finished]
        levels = _together(f"{100 * lower.confidence:g} %" for lower in lowers)
        methods = _together(lower.method for lower in lowers)
        besides = [one.result.beside for one in self.finished]
        others = _together(bound.valid_for for bound in besides if bound is not None)
        lines = [
            "at most: an upper bound of epsilon, of the worst node, certified "
            "unless it says otherwise; at least: a "
            f"lower bound at {levels} confidence, each for itself ({methods}); most "
            "shown: what an attack that never errs would have shown in so many runs"
        ]
        if others:
            lines.append(f"beside: another lower bound, for {others}")
        if len(lowers) > 1:
            chance = sum(1 - lower.confidence for lower in lowers)
            lines.append(
                f"by chance: were all {len(lowers)} claims true, {chance:.2g} of them "
                "would be refuted on average, or fewer; a higher confidence has fewer"
            )
        return lines


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of text in columns; the first and the last begin at the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.ljust(width) if place in (0, last) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def is_sweep(path: pathlib.Path) -> bool:
    """Return whether there is a sweep's folder."""
    return (path / PLAN).exists()


def load_sweep(path: pathlib.Path) -> FoundSweep:
    """The sweep in the folder at ``path``, however far it is; nothing is locked."""
    folder = SweepFolder(path)
    plan, failures = folder.read(PLAN, dict), folder.failures()
    try:
        names = [str(audit["name"]) for audit in plan["audits"]]
    except (KeyError, TypeError) as error:
        raise folder.broken(PLAN, error) from None
    for name in names:
        plain = bool(name) and pathlib.PurePath(name).name == name
        if not plain or names.count(name) > 1:
            raise folder.broken(PLAN, f"{name!r} is no folder's name, or two audits'")
    # A file may have named others before.
    names += sorted(
        entry.name
        for entry in path.iterdir()
        if entry.name not in names and (entry / "result.json").exists()
    )
    return FoundSweep(path, tuple(_row(path, name, failures) for name in names))


def _row(path: pathlib.Path, name: str, failures: dict[str, str]) -> Row:
    why = failures.get(name)
    if why is None and not (path / name / "result.json").exists():
        return Row(name, None, "not finished")
    if why is None:
        try:
            run = load(path / name)
        except FolderError as error:
            why = str(error)
        else:
            if isinstance(run, FinishedAudit):
                return Row(name, run)
            why = "this is no audit's folder"
    return Row(name, None, f"failed: {why}", failed=True)


def _together(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))
