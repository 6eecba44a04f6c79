"""Numbers of the normal quantile and of the logarithm, whatever compiles their loops.

Normal quantiles: x / u is a ratio of polynomials in w = -log(1 - u^2), the first of
each degree last; interpolated at 25 Chebyshev nodes of 0 <= w <= 11.2071, beyond |x| =
4.5, by mpmath. Relative error 4e-17 there, before doubles; beyond, it grows with w.
"""

from __future__ import annotations

import math

OVER = (
    3.5748214227427514e-13, 1.1429123720159481e-10, 3.777538333485936e-09,
    8.63645033499098e-08, 1.4885462069763026e-06, 1.985299934162031e-05,
    0.00020884104946284872, 0.0017558239727358284, 0.01177939943397442,
    0.06195984745749365, 0.2527310709845896, 0.7123706962262434,
    1.2533141373155001,
)  # fmt: skip
UNDER = (
    2.1045266651831807e-15, 6.6113982012337105e-12, 5.758696137561351e-10,
    1.2158655203217315e-08, 2.993263545464568e-07, 3.760112880110876e-06,
    5.347764122453828e-05, 0.00043196680982127795, 0.0037789337962026255,
    0.019709426761867866, 0.10835305797793926, 0.3065901922881545,
    1.0,
)  # fmt: skip
# (log((1 + s) / (1 - s)) / s - 2) / s^2 by powers of s^2, the last first, at 7 such
# nodes of |s| <= 0.1716: 1e-17 of the logarithm.
LOG = (
    0.14616721179861816, 0.15331699633543858, 0.18182889786191042,
    0.2222221112572281, 0.28571428626031065, 0.3999999999989938, 0.666666666666667,
)  # fmt: skip
LN2 = math.log(2.0)
UNDER_ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2)
MOST = (1 << 63) - 1  # of a word
