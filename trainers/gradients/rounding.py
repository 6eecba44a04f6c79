"""Bounds on the rounding error of a clipped sum; proofs in `sums.md`.

All figures are made from public numbers, and rounded to powers of two, so that parties
that know different nodes' sizes go by the same ones, but for large differences.
"""

from __future__ import annotations

import dataclasses
import math

_UNIT = 2.0**-53  # of doubles, in which norms and sums are added up
_SINGLE = 2.0**-24
# More than the few roundings between a sum's terms, and of a weight.
_FEW = 8
SLACK = 2.0**-16  # at least
_LEAST_SHARE, _MOST = 2.0**-20, 2.0**-4


@dataclasses.dataclass(frozen=True, slots=True)
class Rounding:
    """Price of the rounding of norms and sums."""

    # how much of the sizes of its terms is added to a record's norm, where terms may
    # cancel: kappa of ``sums.md``
    slack: float
    # by how much, over the norm that records are clipped to, rounding can add to the
    # distance of two sums that differ in one record
    share: float

    @classmethod
    def of(
        cls,
        positions: int,
        length: int,
        columns: int,
        records: int,
        *,
        coarse: int = 0,
    ) -> Rounding:
        """For sums of up to ``records`` gradients, ``columns`` at once.

        ``positions``: terms of a record's gradient that may cancel in a layer; 0 if all
        are written out. ``length``, ``coarse``: additions in a row that make such a
        layer's norm, in double and in single precision. All at most; ``ValueError`` if
        double precision is not enough.
        """
        error = gamma(columns * max(1, positions) + records + _FEW) * records
        if positions == 0:
            slack, share = 0.0, 2 * error
        else:
            single = gamma(coarse, _SINGLE) if coarse else 0.0
            norm = math.sqrt(gamma(length + _FEW)) + single
            slack = _power_up(max(SLACK, norm, error * 2**11))
            share = 2 * error * (1 + 1 / slack)
        share = _power_up(max(_LEAST_SHARE, share))
        if max(slack, share) > _MOST:
            raise ValueError(
                f"sums over {records:,} records of {positions:,} positions are too "
                "long for double precision: use more nodes, each with fewer records"
            )
        return cls(slack, share)


def gamma(additions: int, unit: float = _UNIT) -> float:
    """Relative error of so many roundings in a row, at most (Higham 2002, 3.1)."""
    product = additions * unit
    return product / (1 - product) * (1 + 2.0**-50)


def _power_up(value: float) -> float:
    """The least power of two that is not below ``value``."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent - (mantissa == 0.5))
