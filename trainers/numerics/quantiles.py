"""Numbers of the normal quantile and of the logarithm, whatever compiles their loops.

Normal quantiles: x / u is a ratio of polynomials in w = -log(1 - u^2), the first of
each degree last; interpolated at 17 Chebyshev nodes of 0 <= w <= 5.2233, beyond |x| =
3, by mpmath. Relative error 8e-17 there, before doubles; beyond, it grows with w.
"""

from __future__ import annotations

import math

OVER = (
    5.407312060900367e-08, 1.8801619872882803e-06, 3.432651343122369e-05,
    4.235035384911688e-04, 3.8627569846381134e-03, 2.6688664964585166e-02,
    1.36535681160696e-01, 5.056636265754253e-01, 1.2533141373155003,
)  # fmt: skip
UNDER = (
    2.275428239139265e-09, 2.8157175753224387e-07, 6.078854298164747e-06,
    9.003564370719921e-05, 1.0833597359945057e-03, 6.6839887560864635e-03,
    5.8820699180169765e-02, 1.4166181280497583e-01, 1.0,
)  # fmt: skip
# (log((1 + s) / (1 - s)) / s - 2) / s^2 by powers of s^2, the last first, at 7 such
# nodes of |s| <= 0.1716: 1e-17 of the logarithm.
LOG = (
    0.14616721179861816, 0.15331699633543858, 0.18182889786191042,
    0.2222221112572281, 0.28571428626031065, 0.3999999999989938, 0.666666666666667,
)  # fmt: skip
TINY = 1e-300  # what a logarithm is taken of, at least
LN2 = math.log(2.0)
UNDER_ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2)
