"""Forest: artificial data in the shape of Covertype, made here.

As many rows, columns (ten measured, an area of four, a soil of forty) and classes, as
frequent (Blackard and Dean 1999), of which a linear model gets two thirds right.
"""

from __future__ import annotations

import numpy as np

RECORDS, TRAIN, CLASSES = 581_012, 464_809, 7
_COUNTS = (211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510)
_MEASURED, _AREAS, _SOILS = 10, 4, 40


def forest(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows (581 012, 54), float32, of length at most 1, and classes from 0."""
    rng = np.random.default_rng(seed)
    targets = rng.permutation(np.repeat(np.arange(CLASSES), _COUNTS))
    centres = rng.uniform(0.42, 0.58, (CLASSES, _MEASURED))
    spread = rng.uniform(0.12, 0.2, _MEASURED)
    rows = np.zeros((RECORDS, _MEASURED + _AREAS + _SOILS), np.float32)
    rows[:, :_MEASURED] = rng.standard_normal((RECORDS, _MEASURED), np.float32)
    rows[:, :_MEASURED] *= spread
    rows[:, :_MEASURED] += centres[targets]
    rows[:, :_MEASURED] = rows[:, :_MEASURED].clip(0, 1)
    first = _MEASURED
    for kinds, evenness in ((_AREAS, 2.0), (_SOILS, 2.0)):
        shares = rng.dirichlet(np.full(kinds, evenness), CLASSES).cumsum(1)
        coins = rng.random(RECORDS)[:, None]
        kind = (coins > shares[targets]).sum(1).clip(max=kinds - 1)
        rows[np.arange(RECORDS), first + kind] = 1.0
        first += kinds
    rows /= np.linalg.norm(rows, axis=1, keepdims=True).clip(1, None)
    return rows, targets.astype(np.int64)
