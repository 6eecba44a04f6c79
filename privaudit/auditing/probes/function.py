"""Probes of a user's mechanism, given as a function.

A *mechanism* is ``function(data, seed)``, or ``function(data, rng)``: from records, a
float array (records, features), and a seed, or numpy's generator of that seed, to all
that it releases, a vector or an array of one length for all data and seeds. Equal seeds
must give equal noise and equal batches, drawn so that what one record does moves no
other's coin.

One record more may shift all that is drawn after it, as torch's samplers do: noise and
batches are then others, and no difference says anything. That is noticed, and two
records are compared in one place, one of them a null record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from privaudit.auditing.probes import Check, rows
from privaudit.auditing.probes import noise as law
from privaudit.figure_settings import ProbeSettings
from privaudit.files.user_code import by_seed, held

Vector = NDArray[np.float64]
Function = Callable[[Vector, Any], object]
_SCALES = (0.0, 1.0, 100.0)  # of the record that differs
_OPPOSED = (1.0, -1.0, 100.0, -100.0)  # the same, against a null record
_FEW = 30  # seeds that every record is changed under, for the sizes of batches
_MOST = 60  # records that this is done for


def probe(
    mechanism: Function, promise: ProbeSettings, null: Vector | None = None
) -> list[Check]:
    """All checks of ``mechanism`` on made-up data, Gaussian.

    ``null``, (features,): a record that gives nothing or little, zeros by default; it
    stands in the place of one that is not there where one more shifts what is drawn.
    ``ValueError`` if the mechanism gives no finite vector of one length.
    """
    runs, seed = promise.runs, promise.seed
    if null is None:
        null = np.zeros(promise.features)
    shape = promise.records, promise.features
    data = np.random.default_rng(seed).normal(size=shape)
    plain = _released(mechanism, data, range(seed, seed + runs))
    again = _released(mechanism, data, [seed])
    repeatable = bool((plain[:1] == again).all())
    if repeatable:
        found, of_one = (), _of_one_record(mechanism, promise, data, plain, null)
    else:
        found = ("two calls with equal data and seed differ: it draws from elsewhere",)
        of_one = [
            Check(name=name, what=what, skipped="equal seeds differ")
            for name, what in (("sensitivity", _FAR), ("sampling", _RATE))
        ]
    what = "equal seeds give equal bits, so that comparisons mean something"
    first = Check(name="repeatable", what=what, findings=found)
    return [first, *of_one, *_of_noise(plain, promise)]


_FAR = "one record moves what is released no further than promised"
_RATE = "a record is used as often as promised"


def _of_one_record(
    mechanism: Function,
    promise: ProbeSettings,
    data: Vector,
    plain: Vector,
    null: Vector,
) -> list[Check]:
    """The same seeds with one record more, one less, or another in its place."""
    seeds = range(promise.seed, promise.seed + len(plain))
    if promise.relation != "replace-one":
        with_null = _released(mechanism, np.concatenate([data, null[None]]), seeds)
        if _shifted(with_null - plain, plain, promise.sensitivity):
            return _in_one_place(mechanism, promise, data, with_null, plain)
    moved = []
    for scale in _SCALES:
        record = np.full((1, data.shape[1]), scale)
        replaces = promise.relation == "replace-one"
        parts = [record, data[1:]] if replaces else [data, record]
        moved.append(_released(mechanism, np.concatenate(parts), seeds) - plain)
    norms = np.linalg.norm(np.stack(moved), axis=2)  # (neighbours, runs)
    rounding = 1e-6 * float(np.linalg.norm(plain, axis=1).max())
    farthest = float(norms.max())
    promised, found, skipped = promise.sensitivity, [], ""
    if promised is None:
        skipped = f"none is promised; it moved by up to {farthest:.4g}"
    elif farthest > promised * (1 + 1e-6) + rounding:
        found.append(
            f"one record moved what is released by {farthest:.4g}; "
            f"{promised:.4g} is promised"
        )
    used = norms[-1] > rounding
    return [
        Check(name="sensitivity", what=_FAR, findings=tuple(found), skipped=skipped),
        _sampling(mechanism, promise, data, plain, used),
    ]


def _shifted(difference: Vector, plain: Vector, sensitivity: float | None) -> bool:
    """Return whether a null record more changes what is drawn, noise or batches.

    Both are (runs, dims). Other noise makes the difference 1.4 times as wide as one
    release; other batches move it too far, and otherwise in most runs.
    """
    wide = plain.std(0)
    noisy = wide > 0
    if not noisy.any():
        return False
    if np.median(difference.std(0)[noisy] / wide[noisy]) > 0.7:
        return True
    rounding = 1e-6 * float(np.abs(plain).max())
    distinct = len(np.unique((difference / max(rounding, 1e-300)).round(), axis=0))
    far = np.linalg.norm(difference, axis=1).max() > (sensitivity or math.inf)
    return bool(far and distinct > len(plain) / 2)


def _in_one_place(
    mechanism: Function,
    promise: ProbeSettings,
    data: Vector,
    with_null: Vector,
    plain: Vector,
) -> list[Check]:
    """As `_of_one_record`: several records in the place of a null one."""
    seeds = range(promise.seed, promise.seed + len(plain))
    placed = [with_null]
    for scale in _OPPOSED:
        record = np.full((1, data.shape[1]), scale)
        placed.append(_released(mechanism, np.concatenate([data, record]), seeds))
    rounding = 1e-6 * float(np.linalg.norm(plain, axis=1).max())
    stacked = np.stack(placed)
    apart = max(
        float(np.linalg.norm(stacked[i] - stacked[j], axis=1).max())
        for i in range(len(placed))
        for j in range(i)
    )
    promised, found, skipped = promise.sensitivity, [], ""
    if promised is None:
        skipped = f"none is promised; two records in one place differ by {apart:.4g}"
    else:
        if apart > 2 * promised * (1 + 1e-6) + rounding:
            found.append(
                f"two records in one place moved what is released by {apart:.4g}, and "
                f"each by {promised:.4g} at most is promised, so {2 * promised:.4g} "
                "together"
            )
        # Its presence alone, in the mean: the noise of both is independent.
        mean = float(np.linalg.norm((with_null - plain).mean(0)))
        runs, dims = plain.shape
        error = float(plain.std(0).max()) * math.sqrt(2 / runs)
        most = promised + error * (math.sqrt(dims) + rows.DEVIATIONS)
        if mean > most:
            found.append(
                f"a null record's presence moved what is released by {mean:.4g} in the "
                f"mean; {promised:.4g} is promised"
            )
    used = np.linalg.norm(stacked[-1] - with_null, axis=1) > rounding
    base = np.concatenate([data, np.zeros((1, data.shape[1]))])
    return [
        Check(
            name="sensitivity",
            what=f"{_FAR}; {PAIRED}",
            findings=tuple(found),
            skipped=skipped,
        ),
        _sampling(mechanism, promise, base, with_null, used),
    ]


PAIRED = (
    "one record more shifts what is drawn, so that two records were compared in one "
    "place, and twice the promise is allowed"
)


def _sampling(
    mechanism: Function,
    promise: ProbeSettings,
    data: Vector,
    plain: Vector,
    used: NDArray[np.bool_],
) -> Check:
    """Test that a record is ``used``, (runs,), as often as promised, by its own coin.

    ``plain`` is what ``data`` gave under the seeds.
    """
    found = []
    rate = promise.rate
    if rate is not None:
        share = float(used.mean())
        deviation = math.sqrt(rate * (1 - rate) / len(used))
        if abs(share - rate) > rows.DEVIATIONS * deviation + 1e-12:
            found.append(
                f"a record was used in {share:.3f} of the runs; {rate:.3f} is promised"
            )
        elif rate < 1 and len(data) <= _MOST:
            found += _one_size(mechanism, data, plain[:_FEW], rate, promise.seed)
    return Check(
        name="sampling",
        what=_RATE,
        findings=tuple(found),
        skipped="" if rate is not None else "no rate is promised",
    )


def _one_size(
    mechanism: Function, data: Vector, plain: Vector, rate: float, seed: int
) -> list[str]:
    """Fault if each run uses the same number of records, which coins hardly give."""
    seeds = range(seed, seed + len(plain))
    used = np.zeros(len(plain), int)
    rounding = 1e-6 * float(np.linalg.norm(plain, axis=1).max())
    for record in range(len(data)):
        other = data.copy()
        other[record] += 100.0
        moved = np.linalg.norm(_released(mechanism, other, seeds) - plain, axis=1)
        used += moved > rounding
    mode = float(stats.binom.pmf(math.floor((len(data) + 1) * rate), len(data), rate))
    if len(set(used.tolist())) == 1 and mode ** (len(plain) - 1) < rows.RARE:
        return [
            f"each of {len(plain)} runs used {used[0]} of {len(data)} records: batches "
            "have a fixed size, as those of a loader that shuffles, and are not drawn "
            "record by record; an account of Poisson sampling does not cover them"
        ]
    return []


def _of_noise(plain: Vector, promise: ProbeSettings) -> list[Check]:
    """Test what differs between seeds, (runs, dims), against the promised noise."""
    still = rows.still(plain)
    bare = [
        f"coordinate {at} of what is released has no noise"
        for at in np.flatnonzero(still)[: rows.NAMED]
    ]
    found = bare
    if promise.noise is not None:
        # Between seeds batches differ too, which can only add to the noise.
        more = promise.rate in (None, 1.0)
        found = [*bare, *rows.off_scale(plain, promise.noise, more=more)]
    # In units of each coordinate's own scale, for noise need not be as large in all.
    centred = plain[:, ~still] - plain[:, ~still].mean(0)
    moving = centred / np.maximum(centred.std(0, ddof=1), 1e-300)
    whole = bool((plain == plain.round()).all())
    numbers = "values are whole numbers, which meet by chance" if whole else ""
    return [
        Check(
            name="noise",
            what="its standard deviation is as promised in what is released",
            findings=tuple(found),
            skipped="" if promise.noise is not None or bare else "none is promised",
        ),
        Check(
            name="fresh noise",
            what="no two seeds, nor two coordinates, share noise",
            findings=()
            if whole
            else (*law.repeated(torch.from_numpy(moving)), *rows.together(plain)),
            skipped=numbers,
        ),
        Check(
            name="fine noise",
            what="noise has the values of at least single precision",
            findings=() if whole else tuple(law.fine(torch.from_numpy(moving))),
            skipped=numbers,
        ),
    ]


def _released(mechanism: Function, data: Vector, seeds: range | list[int]) -> Vector:
    """Releases under each seed, (seeds, dims). ``data`` is a copy each time."""
    mechanism = by_seed(mechanism)

    def run(seed: int) -> object:
        with held("the function"):
            return mechanism(data.copy(), seed)

    return rows.stacked(map(run, seeds))
