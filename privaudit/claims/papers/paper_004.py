"""A(DP)2SGD: noise for the mean of a batch, added to its sum.

Xu, Zhang and Wang, "A(DP)2SGD: asynchronous decentralized parallel stochastic gradient
descent with differential privacy".
"""

from __future__ import annotations

import functools
import math

from privaudit.accounting.papers.xu_theorem_2 import TheoremTwo
from privaudit.claims.accounts import bracket, calibrated, fixed
from privaudit.claims.claim import Attack, Certified, PaperClaim, claims_beside

_DELTA = 1e-5
_claim = claims_beside(__file__, delta=_DELTA)


def sigma(epsilon: float, steps: int, workers: int, records: int, batch: int) -> float:
    """Least noise of Theorem 2, G = 1, or ``ValueError`` if it says nothing."""
    given = {"steps": steps, "workers": workers, "records": records, "batch": batch}
    return TheoremTwo(**given, epsilon=epsilon, delta=_DELTA).least_sigma()[0]


def _admissible(epsilon: float, setting: tuple[int, int, int, int]) -> PaperClaim:
    steps, workers, records, batch = setting
    own = steps // workers
    size = f"T {steps:,}, K {workers}, n {records:,}, B {batch}"
    words = {"steps": steps, "workers": workers, "batch": batch, "size": size}
    try:
        noise = sigma(epsilon, *setting)
    except ValueError:
        return _claim(
            "theorem2-silent",
            **words,
            epsilon=epsilon,
            applies=False,
            printed=lambda: Certified(math.inf, 0.0, "no noise is prescribed"),
            corrected=lambda: _corrected(epsilon, steps, workers, records, batch),
        )
    return _claim(
        "theorem2",
        **words,
        epsilon=epsilon,
        claimed=epsilon,
        printed=lambda: bracket(
            fixed(batch * noise, own, batch, records), _DELTA, "replace-one"
        ),
    )


@functools.cache
def _corrected(
    epsilon: float, steps: int, workers: int, records: int, batch: int
) -> Certified:
    return calibrated(
        "fixed",
        epsilon,
        _DELTA,
        math.ceil(steps / workers),
        batch,
        records,
        relation="replace-one",
    )[1]


_ATTACKED = (1000, 8, 200, 8)  # T, K, n, B
_CERTIFIED_NOISE = 1.8553358128596376  # for it, of stored attacks; no longer the least
_SUM = (10_000, 16, 3125, 64)


def _on_the_sum(setting: tuple[int, int, int, int], *, attacked: bool) -> PaperClaim:
    steps, workers, records, batch = setting
    noise = sigma(4.0, *setting)
    own = math.ceil(steps / workers)
    attack = None
    if attacked:
        attack = Attack(
            algorithm="adp2sgd",
            settings=(
                f"nodes={workers}",
                "digits=0,1,2,3,4,5,6,7,8,9",
                f"train={workers * records}",
                "split=0",
                "model=privaudit.claims.probe:pixels",
                f"rounds={steps}",
                f"batch_size={batch}",
                "clip_norm=1",
            ),
            noise_multiplier=round(noise, 6),
            corrected_noise=_CERTIFIED_NOISE,
            runs=500,
            block=250,
            seed=1,
            planted="a record of worker 0, with a crafted gradient in one world and "
            "the opposite one in the other",
            seen="all noisy gradients of worker 0",
            caveat="Digits for CIFAR-10, and a model of a few dozen parameters: the "
            "guarantee is for every model.",
        )
    return _claim(
        "noise-on-sum",
        steps=steps,
        workers=workers,
        batch=batch,
        noise=noise,
        records=records,
        own=steps // workers,
        rate=batch / records,
        times=steps * batch / workers / records,
        moves=2 / noise,
        printed=lambda: bracket(
            fixed(noise, own, batch, records), _DELTA, "replace-one"
        ),
        corrected=lambda: _corrected(4.0, *setting),
        attack=attack,
    )


def _after(own: int) -> Certified:
    """Epsilon of so many steps of one worker."""
    *_, records, batch = _SUM
    noise = batch * sigma(4.0, *_SUM)
    return bracket(fixed(noise, own, batch, records), _DELTA, "replace-one")


CLAIMS: tuple[PaperClaim, ...] = (
    _admissible(1.0, (58_500, 16, 3125, 256)),
    _admissible(1.0, (1_000_000, 100, 60_000, 8)),
    _admissible(4.0, _SUM),
    _on_the_sum(_ATTACKED, attacked=True),
    _on_the_sum(_SUM, attacked=False),
    _claim(
        "amplification-by-workers",
        # All T steps may have been this worker's, where speed is not bounded.
        printed=lambda: _after(_SUM[0]),
        corrected=lambda: _corrected(4.0, *_SUM),
    ),
    _claim(
        "remark1-first-tenth",
        claimed=4.0 * math.sqrt(0.1),
        printed=lambda: _after(_SUM[0] // 10 // _SUM[1]),
    ),
)
