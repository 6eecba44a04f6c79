"""Slow, obviously right twins on mpmath."""

import mpmath

DIGITS = 60


def delta(mu: float, epsilon: float) -> mpmath.mpf:
    """The textbook formula; with digits to spare for its cancellation."""
    spare = 20 + 2 * max(0, int(-mpmath.log10(mu)))
    with mpmath.workdps(DIGITS + spare):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        a = mu / 2 - epsilon / mu
        b = -mu / 2 - epsilon / mu
        half = mpmath.mpf(1) / 2
        root = mpmath.sqrt(2)
        return half * mpmath.erfc(-a / root) - mpmath.exp(epsilon) * half * mpmath.erfc(
            -b / root
        )


def composed(mus) -> mpmath.mpf:
    with mpmath.workdps(DIGITS):
        return mpmath.sqrt(mpmath.fsum(mpmath.mpf(mu) ** 2 for mu in mus))


def clt_mu(mus, rate: float) -> mpmath.mpf:
    """Eq. 6 of the Dyn-D2P paper."""
    with mpmath.workdps(DIGITS):
        squares = (mpmath.expm1(mpmath.mpf(mu) ** 2) for mu in mus)
        return mpmath.mpf(rate) * mpmath.sqrt(mpmath.fsum(squares))
