"""Probes of what is released on two neighbouring data sets, without torch.

Other probes look inside trainings and at whole programs; these need one function and
two data sets. A right release is accused with a chance of about 1e-6: what is random is
allowed five standard deviations, or a chance of 1e-9.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from privaudit.auditing.probes import Check, low_bits, pipelines, rows
from privaudit.auditing.probes.low_bits import Floats, lowest_bit
from privaudit.files.arguments import Checked
from privaudit.files.fingerprints import check_differ
from privaudit.files.pasting import pasted
from privaudit.files.user_code import by_generator
from privaudit.task_settings import Positive

__tracebackhide__ = True  # pytest shows where a test calls, and its mechanism

_LAPLACE = 6  # kurtosis
_ROUNDING = 1e-9  # of what is released, in comparisons of differences
_BATCHES = 8  # of runs in which low bits are sought, at most
_SEARCHED = 250  # pairs; the optimiser of hypothesis is slow with many more


Mechanism = Callable[..., Any]
_More = Callable[[int], tuple[Floats, Floats]]
_ACCEPTED = Check(
    name="low bits",
    what="low bits of floats do not tell the data sets apart",
    findings=(),
    skipped="low_bits=False accepts them",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Promises(Checked):
    """Promises of a release; see `privaudit.testing.assert_probes`."""

    sensitivity: Positive | None = None
    norm: int = 2
    noise: Positive | None = None
    low_bits: bool = True
    deterministic: Callable[[Any], Any] | None = None
    pairs: Any = None
    spent: Callable[[], float] | None = None
    budget: Positive | None = None
    timing: bool = False

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.norm not in (1, 2):
            raise ValueError(f"norm must be 1 or 2, got {self.norm!r}")
        if self.sensitivity is None and self.pairs is not None:
            raise ValueError("pairs are searched for a sensitivity: say which")
        if self.spent is None and self.budget is not None:
            raise ValueError("budget goes with spent, which reads what was spent")


def probe(
    release: Mechanism, pair: tuple[Any, Any], promises: Promises, runs: int, seed: int
) -> list[Check]:
    """All checks; parameters are those of `privaudit.testing.assert_probes`."""
    check_differ(pair)
    if runs < 100:
        raise ValueError(f"runs must be >= 100, for noise to be measured, got {runs}")
    here, again, there, other = (
        _released(release, data, seed, stream, runs)
        for data, stream in ((pair[0], 0), (pair[0], 0), (pair[1], 0), (pair[1], 1))
    )
    if here.shape != other.shape:
        return [_lengths(here, other)]
    repeatable = bool((here == again).all())

    def more(batch: int) -> tuple[Floats, Floats]:
        one, two = (
            _released(release, data, seed, 2 * batch + world, runs)
            for world, data in enumerate(pair)
        )
        return one, two

    draws = itertools.count()
    called = by_generator(release)

    def run(data: Any) -> Any:
        return called(copy.deepcopy(data), np.random.default_rng((seed, next(draws))))

    checks = [
        _noisy(here),
        _fresh(here, again if not repeatable else None, other),
        pipelines.stateless(other, [here] if repeatable else [here, again]),
        pipelines.seeding(run, pair[0]),
        _scale(here, promises.noise),
        _moved(release, pair, (here, there), promises, repeatable),
        _low_bits(here, other, more) if promises.low_bits else _ACCEPTED,
    ]
    if promises.spent is not None:
        checks.append(pipelines.spending(run, pair, promises.spent, promises.budget))
    if promises.timing:
        checks.append(pipelines.timing(run, pair, runs, seed))
    return checks


def _lengths(here: Floats, other: Floats) -> Check:
    one, two = here.shape[1], other.shape[1]
    return Check(
        name="length",
        what="how many numbers are released does not tell the data sets apart",
        findings=(
            f"all releases on one data set have {one:,} numbers, on the other {two:,}: "
            "their length tells them apart, and nothing else was looked at",
        ),
    )


def _noisy(here: Floats) -> Check:
    return Check(
        name="noise",
        what="every coordinate has noise",
        findings=tuple(
            f"coordinate {at} is the same in all {len(here):,} runs: it has no noise, "
            "or noise of a fixed seed"
            for at in np.flatnonzero(rows.still(here))[: rows.NAMED]
        ),
    )


def _fresh(here: Floats, again: Floats | None, other: Floats) -> Check:
    """No noise is used twice; ``again`` are runs that drew from elsewhere."""
    moving = ~rows.still(here)
    findings, coarse = rows.together(here), False
    here, other = here[:, moving], other[:, moving]
    if here.size:
        # Chance that two values meet, for the grid and the size of the noise: the
        # integral of its squared density is .28 / deviation if it is Gaussian, .35 if
        # Laplace; differences have more noise, and meet less often.
        grid = np.exp2(lowest_bit(np.concatenate([here, other])).min(axis=0))
        meet = _meet(here, grid)
        coarse = meet > 1 / 20
        drawn = [here] if again is None else [here, again[:, moving]]
        if _too_many_equal(np.concatenate(drawn), meet):
            findings.append("runs released exactly the same: their noise is one")
        step = _ROUNDING * max(1e-300, float(np.abs([here, other]).max()))
        # Their generators differ, so that each difference has noise of its own.
        apart = [np.round((other - one) / step) for one in drawn]
        meets = _meet(here, np.maximum(grid, step))
        if any(_too_many_equal(each, meets) for each in apart):
            findings.append(
                "the same noise was added to both data sets: releases under different "
                "seeds differ by the same amount again and again"
            )
    return Check(
        name="fresh noise",
        what="no two runs, data sets or coordinates share noise",
        findings=tuple(findings),
        skipped="" if findings or not coarse else "the values meet by chance",
    )


def _meet(here: Floats, grid: Floats) -> float:
    return float(np.prod(np.minimum(0.5 * grid / here.std(axis=0), 1.0)))


def _too_many_equal(found: Floats, meet: float) -> bool:
    """Return whether more pairs are equal than five times the chance that they meet."""
    _, counts = np.unique(found, axis=0, return_counts=True)
    pairs = float((counts * (counts - 1.0)).sum() / 2)
    expected = 5 * meet * len(found) ** 2 / 2
    return pairs > 0 and float(special.gammainc(pairs, expected)) < rows.RARE


def _scale(here: Floats, noise: float | None) -> Check:
    off = rows.off_scale(here, noise, kurtosis=_LAPLACE) if noise is not None else []
    return Check(
        name="scale of noise",
        what="its standard deviation is as promised",
        findings=tuple(off),
        skipped="" if noise is not None else "none is promised",
    )


def _moved(
    release: Mechanism,
    pair: tuple[Any, Any],
    runs: tuple[Floats, Floats],
    promises: Promises,
    repeatable: bool,
) -> Check:
    exact, promised, norm = promises.deterministic, promises.sensitivity, promises.norm

    def move(tried: tuple[Any, Any]) -> float:
        """By equal noise, or none."""
        if exact is None:
            one, two = (_released(release, data, 0, 0, 1) for data in tried)
        else:
            one, two = (rows.row(exact(copy.deepcopy(data)))[None] for data in tried)
        return _farthest(one, two, norm)

    farthest, at, skipped = _farthest(*runs, norm), "", ""
    if exact is None and not repeatable:
        if promised is not None:
            raise ValueError(
                "a sensitivity is measured with equal noise, and equal generators "
                "give different releases: draw all noise from rng, or give "
                "deterministic=, what is released but for the noise"
            )
        skipped = "equal generators give different releases: it draws from elsewhere"
    elif promised is None:
        skipped = f"none is promised; it moved by up to {farthest:.4g}"
    else:
        if exact is not None:
            farthest = move(pair)
        if promises.pairs is not None:
            found, worst = pipelines.searched(move, promises.pairs, _SEARCHED)
            if worst is not None and found > farthest:
                farthest, at = found, f", on the pair {pasted(worst)[0]}"
    wrong = not skipped and promised and farthest > promised * (1 + 1e-6)
    return Check(
        name="sensitivity",
        what="the record moves what is released no further than promised",
        findings=(
            f"the record moved what is released by {farthest:.4g} in L{norm} norm; "
            f"{promised:.4g} is promised{at}",
        )
        if wrong
        else (),
        skipped=skipped,
    )


def _farthest(here: Floats, there: Floats, norm: int) -> float:
    """The largest distance of rows, but for what rounding comes to."""
    if here.shape != there.shape:
        return math.inf
    rounding = _ROUNDING * float(np.abs([here, there]).max())
    far = float(np.linalg.norm(there - here, ord=norm, axis=1).max())
    return max(0.0, far - rounding)


def _low_bits(here: Floats, other: Floats, more: _More) -> Check:
    """Further runs are made while a coordinate is suspected and not yet convicted."""
    many = here.shape[1]
    lone = [low_bits.lone(here[:, at], other[:, at], rows.RARE) for at in range(many)]
    bar, wealth = math.log(many / rows.RARE), np.zeros(many)
    for batch in range(_BATCHES):
        suspected = np.flatnonzero((wealth < bar) & ((wealth > 0) | (batch == 0)))
        if any(lone) or not len(suspected):
            break
        one, two = more(batch) if batch else (here, other)
        for at in suspected:
            wealth[at] += low_bits.log_e_value(one[:, at], two[:, at])
    often = "one data set has low bits more often than the other, at equal sizes"
    findings = [
        f"coordinate {at}: {lone[at] or often}: round to a grid that depends on no "
        "data, or accept it with low_bits=False"
        for at in range(many)
        if lone[at] or wealth[at] >= bar
    ]
    return Check(
        name="low bits",
        what="low bits of floats do not tell the data sets apart",
        findings=tuple(findings[: rows.NAMED]),
    )


def _released(
    release: Mechanism, data: Any, seed: int, stream: int, runs: int
) -> Floats:
    """Releases under each of ``runs`` generators.  # (runs, coordinates)"""
    data, called = copy.deepcopy(data), by_generator(release)
    seeds = np.random.SeedSequence((seed, stream)).spawn(runs)
    return rows.stacked(called(data, np.random.default_rng(one)) for one in seeds)
