"""Items and claims of a paper's file of facts, and the one rule that judges them."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from statistics import stdev
from typing import Any, NamedTuple

from scipy.stats import ttest_ind_from_stats, ttest_rel

from privaudit.results import round_up
from reports import published
from reports.pages import gain, mean
from reports.papers.size import Size, of_records
from reports.study import Results, Study

VERDICTS = ("holds", "holds in part", "does not hold", "cannot say")
DRAWN = "nothing to compute"
SEEDS = 3  # of each side, from which a difference has an error


@dataclasses.dataclass(frozen=True)
class Row:
    """A table or figure of a paper, or a ``part`` of one that differs in its cost.

    Parameters
    ----------
    name, part, shows, data, size
        As the paper has them; no size where nothing is computed.
    assumed
        Of its size, what the paper does not print.
    differs
        Everything else that is not as printed, and why.
    sources
        Studies, each with patterns of the names of its cells that have results of it.
    pilot
        Cell that tells what it costs.
    missing
        Key of what the file says is missing in any results so far; "" for nothing.
    """

    name: str
    shows: str
    size: Size | None = None
    data: str = ""
    part: str = ""
    assumed: str = ""
    differs: str = ""
    sources: tuple[tuple[str, ...], ...] = ()
    pilot: str = ""
    missing: str = ""

    @property
    def title(self) -> str:
        """The item with its part."""
        return f"{self.name}, {self.part}" if self.part else self.name


@functools.cache
def rows_of(paper: str) -> list[Row]:
    """All items of a paper, in its order."""
    return [
        Row(**(item | {"size": Size(**item["size"])} if "size" in item else item))
        for item in published(paper)["item"]
    ]


@dataclasses.dataclass(frozen=True)
class Found:
    """Results of a row: of which ``study``, what ``size``, and how much reduced."""

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
        step = 10.0 ** (math.floor(math.log10(self.factor)) - 1)
        rounded = math.ceil(self.factor / step - 1e-9) * step
        times = f"{rounded:,.1f}" if rounded < 10 else f"{rounded:,.0f}"
        return f"reduced {times} times"


@functools.cache
def results_of(study: str) -> Results:
    """Results of another study, those of its present settings alone."""
    cells, known = Study(study).cells(), Study(study).results()
    records = known.records.items()
    return Results(
        {n: record for n, record in records if n in cells and known.is_of(cells[n])}
    )


def found(row: Row, own: Results) -> Found:
    """The least reduced results of a row."""
    best = Found()
    for study, *patterns in row.sources if row.size is not None else ():
        known = own if study == "papers" else results_of(study)
        records = [
            record
            for name, record in known.records.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
            and _has_result(record)
        ]
        if not records or row.size is None:
            continue
        size = of_records(records)
        factor = row.size.reduced(size)
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
    if row.size is None or record is None:
        return None
    measured = record["result"]["cpu"]
    if "training" not in record["settings"]:  # of one whole run
        return measured * row.size.runs * row.size.cells / 3600
    training = record["settings"]["training"]
    each = training["rounds"] * training["batch_size"]
    if training["algorithm"] != "adp2sgd":  # whose round is one node's
        each *= training.get("nodes", 1)
    return measured / each * row.size.gradients / 3600


@dataclasses.dataclass(frozen=True)
class Shown:
    """A line of a paper's picture.

    ``claimed`` and ``certified`` are epsilons, as printed and of the paper's own noise;
    ``printed`` and ``ours`` accuracies in per cent, the latter of each seed.
    """

    label: str
    claimed: float | None = None
    certified: float | None = None
    printed: float | None = None
    ours: tuple[float, ...] = ()


def per_cent(values: float | Sequence[float | None] | None) -> tuple[float, ...]:
    """One accuracy or several, without those that a refused run lacks."""
    several = values if isinstance(values, Sequence) else [values]
    return tuple(100 * value for value in several if value is not None)


class Case(NamedTuple):
    """One comparison: whether it ``holds`` (None: nobody can tell), and its number.

    ``seeds`` are the fewest of its sides, 0 where there are none; ``epsilon`` is that
    at which both were tuned.
    """

    name: str
    holds: bool | None
    text: str
    seeds: int = 0
    epsilon: float | None = None


class Judged(NamedTuple):
    """A verdict with the ``cases`` it rests on and the key of what stands against it.

    ``note`` is "missing" (what the file of facts says; see `missing`), "search",
    "alone" or "seeds": see `settle`. ``hours`` are those of what is missing.
    """

    word: str
    cases: tuple[Case, ...] = ()
    note: str = ""
    lacks: tuple[str, ...] = ()
    hours: float | None = None

    def count(self, holds: bool | None) -> int:
        """Number of cases that hold."""
        return sum(case.holds is holds for case in self.cases)

    @property
    def ends(self) -> tuple[str, str] | None:
        """The least and the largest number that cases begin with, if all do."""
        firsts = [case.text.split(" ")[0] for case in self.cases]
        try:
            ordered = sorted(firsts, key=float)
        except ValueError:
            return None
        return (ordered[0], ordered[-1]) if ordered else None


class Search(NamedTuple):
    """Points of the authors' grid that a side tried at an epsilon, of how many."""

    side: str
    epsilon: float | None
    tried: int
    grid: int


def equal_at(searches: Iterable[Search]) -> set[float | None]:
    """Epsilons at which two sides or more were searched, each over its whole grid."""
    by_epsilon: dict[float | None, list[Search]] = {}
    for one in searches:
        by_epsilon.setdefault(one.epsilon, []).append(one)
    return {
        epsilon
        for epsilon, found in by_epsilon.items()
        if len({one.side for one in found}) > 1
        and all(one.tried >= one.grid > 0 for one in found)
    }


def settle(
    cases: Sequence[Case],
    searches: Iterable[Search] = (),
    *,
    lacks: bool = False,
    always: bool = False,
) -> tuple[str, str]:
    """The one rule of verdicts: a word of `VERDICTS`, and what kept it from another.

    Nothing is said of results that lack what the paper's file asks for. "does not
    hold" needs two cases against and none for, each with three seeds a side at an
    epsilon of `equal_at`; a claim about ``always`` fails with cases for it, too.
    """
    told = [None if case.holds is None else bool(case.holds) for case in cases]
    against = [case for case, holds in zip(cases, told, strict=True) if holds is False]
    if lacks:
        return "cannot say", "missing"
    if True not in told and not against:
        return "cannot say", ""
    if all(told):
        return "holds", ""
    if True in told and not (against and always):
        return "holds in part", ""
    equal = equal_at(searches)
    if any(case.epsilon not in equal for case in against):
        return "cannot say", "search"
    if len(against) < 2:
        return "cannot say", "alone"
    if min(case.seeds for case in against) < SEEDS:
        return "cannot say", "seeds"
    return "does not hold", ""


def searches_of(paper: str, key: str) -> list[Search]:
    """Searches of each side at each epsilon, by what the file says is missing.

    A point counts once, where it is on the authors' grid and was tried for this side at
    this epsilon, a cell's own or of what it needs; "1/rho" has inverses of rho.
    """
    told = published(paper)["missing"].get(key, {})
    found = []
    for (name, side), epsilon in itertools.product(
        told.get("sides", {}).items(), told.get("epsilons", ())
    ):
        study, *patterns = side["tried"].get(str(epsilon), [""])
        known = results_of(study).records if study else {}
        at = None if epsilon == "none" else epsilon
        points: list[dict[str, Any]] = []
        for cell, record in known.items():
            settings, result = record["settings"], record["result"]
            of = settings.get("training", settings).get("algorithm")
            needs = [known[need]["settings"] for need in record.get("needs", ())]
            if (
                any(fnmatch.fnmatchcase(cell, pattern) for pattern in patterns)
                and name in (of, settings.get("method"))
                and at in [each.get("epsilon", -1.0) for each in (settings, *needs)]
            ):
                points += [settings.get("options", {})]
                points += result.get("tried", ()) if isinstance(result, dict) else ()
        axes = [[(axis, x) for x in values] for axis, values in side["grid"].items()]
        grid = list(itertools.product(*axes))
        tried = sum(any(_is_at(point, place) for point in points) for place in grid)
        found.append(Search(name, at, tried, len(grid)))
    return found


def _is_at(point: dict[str, Any], place: Iterable[tuple[str, float]]) -> bool:
    return all(
        math.isclose(point.get(axis.removeprefix("1/"), 0.0) * x, 1.0)
        if axis.startswith("1/")
        else math.isclose(point.get(axis, math.nan), x)
        for axis, x in place
    )


def lacking(paper: str, key: str, own: Results) -> tuple[tuple[str, ...], float | None]:
    """Reasons of the file that still hold, and their core-hours.

    A search that was made up for is no longer missing.
    """
    told, searches = published(paper)["missing"][key], searches_of(paper, key)
    (row,) = (row for row in rows_of(paper) if row.title == told["item"])
    whole = hours(row, own)
    if not searches:
        return (told["why"],), whole
    short = [one for one in searches if one.tried < one.grid]
    if not short:
        return (), None
    runs = sum(one.grid - one.tried + told["seeds"] for one in short)
    if whole is not None and row.size is not None:
        whole *= runs / (row.size.cells * row.size.runs)
    left = (
        f"{one.side} at {'no privacy' if one.epsilon is None else one.epsilon}: "
        f"{one.tried} of {one.grid} points"
        for one in short
    )
    return (told["why"], *left), whole


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of the paper's text, or a question of ``ours`` about it.

    ``judge`` gives its cases; ``of`` tells what their numbers are, ``printed`` the
    paper's; ``artefact`` is a key of what its authors published, and ``missing`` of
    what results lack.
    """

    text: str
    judge: str = ""
    of: str = ""
    printed: str = ""
    artefact: str = "text"
    missing: str = ""
    ours: bool = False
    always: bool = False

    def judged(self, paper: str, judges: dict[str, Any], own: Results) -> Judged:
        """The judgement of results by a function of ``judges``; arguments follow it."""
        name, _, arguments = self.judge.partition(" ")
        cases: Iterable[Case] = ()
        if name:
            cases = judges[f"_{name}"](own, *filter(None, arguments.split(",")))
        cases = tuple(cases)
        lacks, cost = (), None
        if self.missing:
            lacks, cost = lacking(paper, self.missing, own)
        searches = searches_of(paper, self.missing)
        word, note = settle(cases, searches, lacks=bool(lacks), always=self.always)
        return Judged(word, cases, note, lacks, cost)


@functools.cache
def claims_of(paper: str) -> list[Claim]:
    """All claims of a paper, in the order of its file."""
    return [Claim(**claim) for claim in published(paper)["claim"]]


def within(pairs: dict[str, tuple[float, float]]) -> list[Case]:
    """Certified epsilons beside the claimed ones; pairs by a name.

    A certified epsilon is an upper bound: one above a claim does not refute it.
    """
    return [
        Case(
            name,
            certified <= claimed or None,
            f"{round_up(certified / claimed, 3)} times ({round_up(certified)} for "
            f"{claimed:g})",
        )
        for name, (claimed, certified) in pairs.items()
    ]


def above(
    one: Sequence[float], other: Sequence[float], *, paired: bool = False
) -> tuple[bool | None, str, int]:
    """Return whether the mean is higher, points ± their standard error, and seeds.

    None: nobody can tell, as there are fewer than three seeds, or the difference is
    less than the standard error times Student's quantile of 97.5 per cent (Welch's
    degrees of freedom). ``paired``: equal places had equal seeds.
    """
    seeds = min(len(one), len(other))
    if seeds < 2:
        return None, f"{mean(one) - mean(other):+.1f}", seeds
    points, error = gain(one, other, paired=paired)
    told = f"{points:+.1f} ± {error:.1f}"
    if seeds < SEEDS or not points:
        return None, told, seeds
    if error <= 1e-9:
        return points > 0, told, seeds
    if paired:
        p = ttest_rel(one, other).pvalue
    else:
        sides = [(mean(each), 100 * stdev(each), len(each)) for each in (one, other)]
        p = ttest_ind_from_stats(*sides[0], *sides[1], equal_var=False).pvalue
    return (points > 0 if p < 0.05 else None), told, seeds


def loses(
    one: Sequence[float], other: Sequence[float], most: float
) -> tuple[bool | None, str, int]:
    """Return whether ``other`` is at most ``most`` points below ``one``, and the loss.

    As `above` has it: None where the loss is not beyond error on either side of
    ``most``.
    """
    kept, _, seeds = above([value + most / 100 for value in other], one)
    return kept, above(one, other)[1], seeds


def both(*cases: bool | None) -> bool | None:
    """Return whether all hold; None where nobody can tell."""
    return False if False in cases else None if None in cases else True
