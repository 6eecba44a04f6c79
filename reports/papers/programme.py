"""What each paper's file is made of: rows of tables and figures, and claims."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from scipy.special import stdtrit

from privaudit.results import round_up
from reports.papers.size import Size, of_records
from reports.study import Results, Study

VERDICTS = ("holds", "holds in part", "does not hold", "cannot say", "not settled")
ALONE = "one case alone is against it"
NOTHING = "nothing was run"
DRAWN = "nothing to compute"


@dataclasses.dataclass(frozen=True)
class Row:
    """A table or figure of a paper, or a part of one.

    Parameters
    ----------
    item
        As the paper has it, such as "Table 2".
    part
        Which part, where parts differ in what can be computed; "" for all.
    shows
        What it is about.
    printed
        Its size; None where nothing is computed, as in a drawing.
    data
        The paper's.
    assumed
        What of ``printed`` the paper does not print.
    differs
        What is else here, and why.
    sources
        Studies, each with patterns of the names of its cells that have results of it.
    pilot
        Cell that tells what it costs.
    unsettled
        Why results are not of the printed setting, whatever their size; "" if they are.
    """

    item: str
    shows: str
    printed: Size | None = None
    data: str = ""
    part: str = ""
    assumed: str = ""
    differs: str = ""
    sources: tuple[tuple[str, ...], ...] = ()
    pilot: str = ""
    unsettled: str = ""

    @property
    def name(self) -> str:
        """The item with its part."""
        return f"{self.item}, {self.part}" if self.part else self.item


@dataclasses.dataclass(frozen=True)
class Found:
    """What is known of a row.

    Parameters
    ----------
    study
        Which has the results; "" for none.
    size, data
        Of these.
    factor
        By which they are reduced; infinity for none.
    """

    study: str = ""
    size: Size | None = None
    data: str = ""
    factor: float = math.inf

    @property
    def status(self) -> str:
        """In one of three words."""
        if self.size is None:
            return "not run"
        if self.factor <= 1.0:
            return "at size"
        return f"reduced {_rounded_up(self.factor)} times"


def _rounded_up(factor: float) -> str:
    step = 10.0 ** (math.floor(math.log10(factor)) - 1)
    rounded = math.ceil(factor / step - 1e-9) * step
    return f"{rounded:,.1f}" if rounded < 10 else f"{rounded:,.0f}"


@functools.cache
def results_of(study: str) -> Results:
    """Of another study, those of its present settings alone."""
    cells, known = Study(study).cells(), Study(study).results()
    records = known.records.items()
    return Results(
        {n: record for n, record in records if n in cells and known.is_of(cells[n])}
    )


def found(row: Row, own: Results) -> Found:
    """The least reduced results of a row."""
    best = Found()
    if row.printed is None:
        return best
    for study, *patterns in row.sources:
        known = own if study == "papers" else results_of(study)
        records = [
            record
            for name, record in known.records.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
            and _has_result(record)
        ]
        if not records:
            continue
        size = of_records(records)
        factor = row.printed.reduced(size)
        if factor < best.factor:
            data = {_data(record) for record in records}
            best = Found(study, size, ", ".join(sorted(data)), factor)
    return best


def _has_result(record: dict[str, Any]) -> bool:
    result = record["result"]
    return not isinstance(result, dict) or result.get("accuracy", 0) is not None


def _data(record: dict[str, Any]) -> str:
    settings = record["settings"]
    if "shape" in settings:
        return "inputs of chance"
    data = (settings.get("training") or settings["values"]).get("data", "digits")
    return "fashion-mnist" if data.startswith("idx:") else data


def hours(row: Row, own: Results) -> float | None:
    """Core-hours of the row as printed, by its pilot; None if it has none."""
    record = own.records.get(f"pilot {row.pilot}")
    if row.printed is None or record is None:
        return None
    measured = record["result"]["cpu"]
    if "training" not in record["settings"]:  # of one whole run
        return measured * row.printed.runs * row.printed.cells / 3600
    training = record["settings"]["training"]
    each = training["rounds"] * training["batch_size"]
    if training["algorithm"] != "adp2sgd":  # whose round is one node's
        each *= training.get("nodes", 1)
    return measured / each * row.printed.gradients / 3600


@dataclasses.dataclass(frozen=True)
class Shown:
    """A line of a paper's picture: what is printed, and what is known of it.

    Parameters
    ----------
    label
        Of the setting.
    claimed, certified
        Epsilon as printed, and what the paper's own noise for it is certified for.
    printed, ours
        Accuracy in per cent as printed, and of each seed here, at ``claimed`` certified
        where the line has one.
    """

    label: str
    claimed: float | None = None
    certified: float | None = None
    printed: float | None = None
    ours: tuple[float, ...] = ()


def per_cent(values: float | Sequence[float | None] | None) -> tuple[float, ...]:
    """Of one accuracy or several, without those that a refused run lacks."""
    several = values if isinstance(values, Sequence) else [values]
    return tuple(100 * value for value in several if value is not None)


class Judged(NamedTuple):
    """How results judge a claim.

    ``word`` is one of `VERDICTS`, ``note`` what it needs beside it; ``told`` are the
    numbers that it rests on, ``brief`` the same in a line where they are many;
    ``against`` counts the cases that are.
    """

    word: str
    told: str
    brief: str = ""
    note: str = ""
    against: int = 0

    @classmethod
    def of(
        cls,
        cases: Sequence[bool | None],
        told: str,
        brief: str = "",
        *,
        always: bool = False,
    ) -> Judged:
        """Judge cases by `verdict`."""
        word = verdict(cases, always=always)
        note = ALONE if word == "not settled" else ""
        return cls(word, told, brief, note, cases.count(False))

    def __str__(self) -> str:
        return f"**{self.word}**" + (f": {self.note}" if self.note else "")


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of the paper's text, or of ``ours`` about it, in our words.

    ``judge`` says what results make of it; ``printed`` are the paper's numbers;
    ``unsettled`` is why no results of this kind can settle it.
    """

    text: str
    judge: Callable[[Results], Judged]
    printed: str = ""
    ours: bool = False
    unsettled: str = ""

    def judged(self, results: Results) -> Judged:
        """The judgement; "not settled" where results cannot settle it."""
        found = self.judge(results)
        if not self.unsettled or found.word == "cannot say":
            return found
        why = self.unsettled.partition(". ")[0]
        return found._replace(word="not settled", note=why)


def within(cases: Mapping[str, tuple[float, float]]) -> Judged:
    """Whether certified epsilons are at most the claimed ones; pairs by a name.

    A certified epsilon is an upper bound: one above a claim does not refute it.
    """
    if not cases:
        return Judged("cannot say", NOTHING)
    words = [
        f"{name}: {round_up(certified)} for {claimed:g}"
        for name, (claimed, certified) in cases.items()
    ]
    times = sorted(certified / claimed for claimed, certified in cases.values())
    least, most = (round_up(each, 3) for each in (times[0], times[-1]))
    kept = sum(each <= 1 for each in times)
    return Judged(
        "holds" if kept == len(times) else "cannot say",
        f"certified at most {', '.join(words)}",
        f"certified for at most {least} to {most} times the claim",
        ""
        if kept == len(times)
        else f"not certified in {len(times) - kept} of {len(times)}",
    )


def unknown(why: str) -> Callable[[Results], Judged]:
    """The judge of what nothing was computed for."""
    return lambda results: Judged("cannot say", why)


def verdict(cases: Sequence[bool | None], *, always: bool = False) -> str:
    """Of several cases in which a statement holds, does not, or nobody can tell (None).

    One that is about ``always`` fails with any case. One case alone settles nothing.
    """
    if True not in cases and False not in cases:
        return "cannot say"
    if all(cases):
        return "holds"
    if True in cases and not (False in cases and always):
        return "holds in part"
    return "does not hold" if cases.count(False) > 1 else "not settled"


def above(
    one: Sequence[float], other: Sequence[float], *, paired: bool = False
) -> tuple[bool | None, str]:
    """Whether the mean is higher, and by how much, in points ± its standard error.

    None: nobody can tell, as there are fewer than three seeds, or the difference is
    less than the standard error times Student's quantile of 97.5 per cent (Welch's
    degrees of freedom). ``paired``: equal places had equal seeds.
    """
    gain = 100 * (statistics.mean(one) - statistics.mean(other))
    seeds = min(len(one), len(other))
    if seeds < 2:
        return None, f"{gain:+.1f}"
    groups = (one, other)
    if paired:
        groups = ([a - b for a, b in zip(one, other, strict=True)],)
    parts = [(statistics.variance(each) / len(each), len(each) - 1) for each in groups]
    squared = sum(part for part, _ in parts)
    told = f"{gain:+.1f} ± {100 * squared**0.5:.1f}"
    if seeds < 3:
        return None, told
    if not squared:
        return (gain > 0 if gain else None), told
    freedom = squared**2 / sum(part**2 / count for part, count in parts)
    least = 100 * squared**0.5 * float(stdtrit(freedom, 0.975))
    return (gain > 0 if abs(gain) > least else None), told


def loses(
    one: Sequence[float], other: Sequence[float], most: float
) -> tuple[bool | None, str]:
    """Whether ``other`` is at most ``most`` points below ``one``, and by how many.

    As `above` has it: None where the loss is not beyond error on either side of
    ``most``.
    """
    kept, _ = above([value + most / 100 for value in other], one)
    return kept, above(one, other)[1]


def both(*cases: bool | None) -> bool | None:
    """Whether all hold; None where nobody can tell."""
    if False in cases:
        return False
    return None if None in cases else True


def compared(found: Mapping[str, tuple[bool | None, str]]) -> Judged:
    """Of several differences, each by `above` and under its name."""
    if not found:
        return Judged("cannot say", NOTHING)
    cases = [wins for wins, _ in found.values()]
    gains = sorted((points.split(" ")[0] for _, points in found.values()), key=float)
    higher = sum(float(gain) > 0 for gain in gains)
    told = ", ".join(f"{points} ({name})" for name, (_, points) in found.items())
    clear, reverse = cases.count(True), cases.count(False)
    return Judged.of(
        cases,
        f"holds {clear}, reversed {reverse}, unclear {cases.count(None)}; "
        f"points: {told}",
        f"above in {higher} of {len(cases)}, beyond error in {clear}; below beyond "
        f"error in {reverse}; {gains[0]} to {gains[-1]} points",
    )
