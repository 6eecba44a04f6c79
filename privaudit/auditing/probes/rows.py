"""Rules of the noise of releases, a row a run, without torch.

All probes of a function of somebody's hold its releases against these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privaudit.auditing.scores import real_numbers

Rows = NDArray[np.float64]  # (runs, coordinates)
DEVIATIONS = 5  # that an estimate may be off, of its own standard deviation
NAMED = 3  # coordinates that one finding names
RARE = 1e-9  # chance below which what is seen is no chance


def row(found: Any) -> Rows:
    """All numbers of one release; ``ValueError`` unless they are finite."""
    if isinstance(found, Mapping):
        found = [found[key] for key in sorted(found, key=repr)]
    if hasattr(found, "detach"):
        found = found.detach().cpu().numpy()
    try:
        numbers = real_numbers(found).ravel()
    except ValueError as error:
        raise ValueError(f"the release gave no numbers: {error}") from None
    if not len(numbers) or not np.isfinite(numbers).all():
        raise ValueError(
            "a release must be finite numbers to be probed, got "
            f"{numbers[:5]} of length {len(numbers)}"
        )
    return numbers.astype(float)


def stacked(releases: Iterable[Any]) -> Rows:
    """A row for each release; ``ValueError`` unless they have one length."""
    rows: list[Rows] = []
    for found in releases:
        rows.append(row(found))
        if len(rows[-1]) != len(rows[0]):
            raise ValueError(
                f"releases must have one length to be probed, got {len(rows[0])} and "
                f"{len(rows[-1])}"
            )
    return np.stack(rows)


def still(rows: Rows) -> NDArray[np.bool_]:
    """Coordinates that are the same in all runs.  # (coordinates,)"""
    return (rows == rows[0]).all(axis=0)


def together(rows: Rows) -> list[str]:
    """Coordinates whose noise is the same but for sign and scale."""
    moving = np.flatnonzero(~still(rows))
    if len(moving) < 2:
        return []
    same = np.abs(np.corrcoef(rows[:, moving].T)) > 1 - 1e-6
    pairs = moving[np.argwhere(np.triu(same, 1))[:NAMED]]
    return [f"coordinates {i} and {j} share noise" for i, j in pairs]


def off_scale(
    rows: Rows, promised: float, *, kurtosis: float = 3.0, more: bool = True
) -> list[str]:
    """Moving coordinates whose standard deviation is not as promised.

    ``kurtosis`` is the least that is reckoned with: a sample's own is too small for
    long tails. ``more``: whether too much is a finding as well.
    """
    centred = rows - rows.mean(axis=0)
    square = (centred**2).mean(axis=0)
    own = (centred**4).mean(axis=0) / np.maximum(square**2, 1e-300)
    relative = np.sqrt((np.maximum(own, kurtosis) - 1) / (4 * len(rows)))
    measured = np.sqrt(square)
    off = measured / promised - 1
    wrong = (np.abs(off) > DEVIATIONS * relative) & ((off < 0) | more) & ~still(rows)
    return [
        f"noise of standard deviation {measured[at]:.4g} was measured in "
        f"coordinate {at}; {promised:.4g} is promised"
        for at in np.flatnonzero(wrong)[:NAMED]
    ]
