"""Deep-Q collaborative DP-SGD: one model accounted where ten are trained.

A decentralised DP-SGD in which a deep-Q network chooses, at each turn, between a local
and a global update.
"""

from __future__ import annotations

import math

from privaudit.accounting.closed_forms import classical_sigma
from privaudit.claims.accounts import UNBOUNDED, bracket, calibrated, single
from privaudit.claims.claim import PaperClaim, claims_beside

_RECORDS = 600_000  # ten nodes of 60,000
_DELTA = 1 / _RECORDS**2
_claim = claims_beside(__file__, delta=_DELTA)


def _noise(epsilon: float) -> float:
    """The paper's noise over sensitivity, at any epsilon."""
    if epsilon < 1:
        return classical_sigma(epsilon, _DELTA)
    return math.sqrt(2 * math.log(1.25 / _DELTA)) / epsilon


def _theorem_2(key: str, epsilon: float, models: int, **words: str) -> PaperClaim:
    corrected = None
    if models > 1:
        corrected = lambda: calibrated(  # noqa: E731
            "single", epsilon, _DELTA, math.sqrt(models) / 2, relation="replace-one"
        )[1]
    return _claim(
        key,
        models=models,
        **words,
        epsilon=epsilon,
        claimed=epsilon,
        printed=lambda: bracket(
            single(_noise(epsilon), moved=math.sqrt(models) / 2),
            _DELTA,
            "replace-one",
        ),
        corrected=corrected,
    )


CLAIMS: tuple[PaperClaim, ...] = (
    _theorem_2("theorem2-one-class", 0.5, 1),
    _theorem_2("theorem2", 0.5, 10, what="Digits", number="ten"),
    _theorem_2("theorem2", 0.5, 7, what="Kinds of forest", number="seven"),
    _theorem_2("epsilon1-classical", 1.0, 1),
    _claim(
        "choice-of-action",
        printed=lambda: UNBOUNDED,
        corrected=lambda: bracket(
            single(_noise(0.5), moved=0.5), _DELTA, "replace-one"
        ),
    ),
)
