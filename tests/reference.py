"""Slow twins on mpmath, obviously right, to check the fast ones against."""

from __future__ import annotations

from collections.abc import Sequence

import mpmath as mp

mp.mp.dps = 60


def sampled_gaussian_delta(
    shift: float, rate: float, epsilon: float, direction: str
) -> mp.mpf:
    """delta(epsilon) of (1 - q) N(0) + q N(m) against N(0), or reversed."""
    m, q, e = mp.mpf(shift), mp.mpf(rate), mp.mpf(epsilon)
    if direction == "add":
        flipped = sampled_gaussian_delta(shift, rate, -epsilon, "remove")
        return 1 - mp.e**e + mp.e**e * flipped
    odds = (mp.e**e - 1 + q) / q
    if odds <= 0:
        return 1 - mp.e**e
    x = mp.log(odds) / m + m / 2
    return (1 - q) * mp.ncdf(-x) + q * mp.ncdf(m - x) - mp.e**e * mp.ncdf(-x)


def two_steps_delta(
    steps: Sequence[tuple[float, float]], epsilon: float, direction: str
) -> mp.mpf:
    """delta of two sampled Gaussians: the first by quadrature, given the second.

    H_a of a product is the mean under the first Q of r H_(a / r), r its density ratio.
    """
    (m, q), second = steps
    m, q, e = mp.mpf(m), mp.mpf(q), mp.mpf(epsilon)

    def inner(x: mp.mpf) -> mp.mpf:
        ratio = 1 - q + q * mp.e ** (m * x - m * m / 2)
        density = mp.npdf(x)
        p = density * ratio if direction == "remove" else density
        loss = mp.log(ratio) if direction == "remove" else -mp.log(ratio)
        return p * sampled_gaussian_delta(*second, e - loss, direction)

    ends = [-12, -6, -3, -1, 0, 1, 2, 3, 4, 6, 9, 12 + m]
    return mp.quad(inner, sorted(ends))


def gaussian_delta(shift: float, epsilon: float) -> mp.mpf:
    """Balle and Wang 2018, theorem 8."""
    return sampled_gaussian_delta(shift, 1, epsilon, "remove")


def laplace_delta(shift: float, epsilon: float) -> mp.mpf:
    """Of one Laplace release moved by ``shift`` scales, for epsilon >= 0."""
    return max(mp.mpf(0), 1 - mp.e ** ((mp.mpf(epsilon) - shift) / 2))
