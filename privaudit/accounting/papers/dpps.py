"""The Laplace accounts of DPPS: by node or by record, in a round or in all of them.

References
----------
The DPPS paper, Theorem 1: a round is b / gamma_n differentially private, for which node
was asked. Over rounds it composes.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from privaudit.ledger import Ledger, Recorder
from privaudit.release import NoSampling, Release, Sensitivity


def round_epsilon(budget: float, noise_rate: float) -> float:
    """Epsilon of one round for which node was asked: b / gamma_n, Theorem 1.

    It holds if the noise was scaled by a true sensitivity.

    >>> round_epsilon(5, 0.01)
    500.0
    """
    _positive("b", budget)
    return math.inf if _rate(noise_rate) == 0 else budget / noise_rate


def ledger(
    # s(t) by which the noise was scaled, shape (rounds,), > 0
    sensitivities: ArrayLike,
    *,
    # budget, noise_rate: b and gamma_n: the noise has scale gamma_n S(t) / b
    budget: float,
    noise_rate: float,
    # ``node``: which node was asked, a distance of S(t). ``record``: one record of
    # the node replaced, which moves its perturbation by at most twice its bound.
    # The local parameters carry a record's trace into every later round, so that
    # all rounds count, whichever batch the record was in
    unit: Literal["node", "record"],
    # for ``record``: bound on ||eps_i||_1, that is gamma_s times the clip norm
    perturbation: float | None = None,
) -> Ledger:
    """Ledger of one node's releases, for neighbours that differ in ``unit``."""
    scales = np.asarray(sensitivities, dtype=np.float64)
    _positive("b", budget)
    if scales.ndim != 1 or not ((scales > 0) & (scales < np.inf)).all():
        raise ValueError("sensitivities must be finite and > 0, one a round")
    if unit == "record" and perturbation is None:
        raise ValueError("a record's account needs the bound on the perturbation")
    recorder = Recorder(1, unit=unit)
    for scale in scales.tolist():
        moved = scale if unit == "node" else 2 * _positive("bound", perturbation)
        recorder.record(
            0,
            Release(
                mechanism="laplace",
                norm_bound=moved if unit == "node" else moved / 2,
                noise=_rate(noise_rate) * scale / budget,
                sensitivity=Sensitivity(replace_one=moved),
                sampling=NoSampling(),
            ),
        )
    return recorder.ledger()


def _positive(name: str, value: float | None) -> float:
    if value is None or not 0 < value < math.inf:
        raise ValueError(f"{name} must be > 0 and finite, got {value}")
    return float(value)


def _rate(noise_rate: float) -> float:
    if not 0 <= noise_rate < math.inf:
        raise ValueError(f"the noise rate must be >= 0, got {noise_rate}")
    return float(noise_rate)
