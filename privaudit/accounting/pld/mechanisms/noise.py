"""A step's loss on a grid, whichever its noise; batches of a fixed size from both."""

from __future__ import annotations

import numpy as np

from privaudit.accounting.pld.cells import Cells, Direction, Outputs, Step
from privaudit.accounting.pld.mechanisms import gaussian, laplace

_NOISE = {"gaussian": gaussian, "laplace": laplace}


def total_variation(step: Step) -> float:
    """Total variation of the unsampled pair."""
    return _NOISE[step.noise].total_variation(step.shift)


def loss_cells(
    step: Step,
    direction: Direction,
    spacing: float,
    reach: float,
    limit: int,
    offset: float = 0.0,
) -> Cells:
    """The masses of ``step`` on a grid that covers all but its far tails.

    Parameters
    ----------
    step, direction
        The pair: as `Step` says, or reversed for ``add``.
    spacing
        Distance of the grid points.
    reach
        The grid ends where less than Phi(-reach) of any of the mixed variables is left.
    limit
        Largest number of cells; what lies further out is counted as below or above.
    offset
        Added to every grid point, for Poisson sampled pairs (subtracted for ``add``).
    """
    if step.scheme == "replace":
        if step.noise != "gaussian":
            raise ValueError(
                "Poisson sampling under replace-one is accounted for Gaussian noise "
                f"only, got {step.noise}; account the release unsampled"
            )
        return gaussian.opposed(step, spacing, reach, limit)
    if step.noise == "gaussian":
        found = gaussian.outputs(step, spacing, reach, limit, offset)
    else:
        found = laplace.outputs(step, spacing, limit, offset)
    if step.scheme == "fixed":
        return _symmetric(found, (1 - step.rate) * total_variation(step))
    return found.towards(direction)


def _symmetric(cells: Outputs, atom: float) -> Cells:
    """Losses above 0 from the pair, below 0 from its reverse, the rest of P at 0."""
    skip = -2 * cells.start
    log_a, log_b = cells.log_a[skip:], cells.log_b[skip:]
    return Cells(
        -(log_a.size // 2),
        np.concatenate([log_a[::-1], log_b]),
        np.concatenate([log_b[::-1], log_a]),
        cells.above,
        cells.above[::-1],
        atom,
        cells.accuracy,
        None,
    )
