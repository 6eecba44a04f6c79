"""A(DP)2SGD: noise for the mean of a batch, added to its sum.

Xu, Zhang and Wang, "A(DP)2SGD: asynchronous decentralized parallel stochastic gradient
descent with differential privacy".
"""

from __future__ import annotations

import functools
import math

from privaudit.accounting.papers.xu_theorem_2 import TheoremTwo
from privaudit.claims.accounts import bracket, calibrated, fixed
from privaudit.claims.claim import Attack, Certified, PaperClaim

_DELTA = 1e-5
_FORMULA = "sigma^2 = 20 G^2 T alpha / (K^2 n^2 mu epsilon)"
_CONDITIONS = (
    "epsilon <= 10 B^2 T alpha / (3 K^2 n^2 mu)",
    "alpha <= log(K^3 n^3 mu epsilon / (K^2 n^2 mu epsilon B + 5 T alpha B^3))",
)


def sigma(epsilon: float, steps: int, workers: int, records: int, batch: int) -> float:
    """Least noise of Theorem 2, G = 1, or ``ValueError`` if it says nothing."""
    return TheoremTwo(
        steps=steps,
        workers=workers,
        records=records,
        batch=batch,
        epsilon=epsilon,
        delta=_DELTA,
    ).least_sigma()[0]


def _admissible(epsilon: float, setting: tuple[int, int, int, int]) -> PaperClaim:
    steps, workers, records, batch = setting
    try:
        noise = sigma(epsilon, *setting)
    except ValueError:
        noise = None
    own = steps // workers
    size = f"T {steps:,}, K {workers}, n {records:,}, B {batch}"
    plain = (
        "The theorem gives noise only if some number mu in (0, 1) meets two "
        "inequalities. Whether one exists is decided exactly: the first is a "
        "quadratic, the second holds on one interval. "
    )
    plain += (
        "Here none does, so that the theorem says nothing, and a program must say so "
        "instead of taking mu = 1/2."
        if noise is None
        else "Here one does, though a very small one that a coarse search misses; the "
        "first inequality then leaves noise of sqrt(6) G/B at the least."
    )
    return PaperClaim(
        paper="004",
        name=f"theorem2-epsilon{epsilon:g}-T{steps}-K{workers}-B{batch}",
        says=f"at {size}, the noise on the mean gives ({epsilon:g}, 1e-5)-DP",
        where="Theorem 2, with equation 7",
        formula=_FORMULA,
        conditions=_CONDITIONS,
        claimed=None if noise is None else epsilon,
        applies=noise is not None,
        delta=_DELTA,
        relation="replace-one",
        plain=plain,
        printed=lambda: (
            Certified(math.inf, 0.0, "no noise is prescribed")
            if noise is None
            else bracket(
                fixed(batch * noise, own, batch, records), _DELTA, "replace-one"
            )
        ),
        corrected=None
        if noise is not None
        else lambda: _corrected(epsilon, steps, workers, records, batch),
        correction=""
        if noise is not None
        else "noise from a certified account of a worker's own steps",
        methods=("wbk", "pld"),
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
            corrected_noise=calibrated(
                "fixed", 4.0, _DELTA, own, batch, records, relation="replace-one"
            )[0],
            runs=500,
            block=250,
            seed=1,
            planted="a record of worker 0, with a crafted gradient in one world and "
            "the opposite one in the other",
            seen="all noisy gradients of worker 0",
            caveat="Digits for CIFAR-10, and a model of a few dozen parameters: the "
            "guarantee is for every model.",
        )
    return PaperClaim(
        paper="004",
        name=f"noise-on-sum-T{steps}-K{workers}-B{batch}",
        says=f"adding N(0, {noise:.3g}^2) to the SUM of {batch} gradients of norm at "
        f"most 1 (T {steps:,}, K {workers}, n {records:,}) is (4, 1e-5)-DP",
        where="Algorithm 1, line 7, against Theorem 2's proof (appendix E)",
        formula=_FORMULA + ", sensitivity 2G/B",
        conditions=_CONDITIONS,
        claimed=4.0,
        delta=_DELTA,
        relation="replace-one",
        plain="The proof says that replacing a record moves the gradient by 2G/B: "
        "true of the mean of B gradients. The listing adds the noise to their sum, "
        f"which moves by 2G: {batch} times as much. So the noise is {batch} times too "
        f"small. A worker makes T/K = {steps // workers} of the steps here and draws a "
        f"record in {batch / records:.1%} of them, about "
        f"{steps * batch / workers / records:.3g} times in all; each time the "
        f"sum moves by up to 2, which is {2 / noise:.3g} times "
        "the noise, and gives the record away. Where a program averages the "
        "batch before it adds the noise, as the proof does, the fault is not there.",
        printed=lambda: bracket(
            fixed(noise, own, batch, records), _DELTA, "replace-one"
        ),
        corrected=lambda: _corrected(4.0, *setting),
        correction="noise on the sum from a certified account",
        attack=attack,
        methods=("wbk", "pld"),
    )


def _of_rate(epsilon: float, setting: tuple[int, int, int, int]) -> Certified:
    steps, _, records, batch = setting
    noise = batch * sigma(epsilon, *setting)
    # All T steps may have been this worker's, where speed is not bounded.
    return bracket(fixed(noise, steps, batch, records), _DELTA, "replace-one")


def _after(done: int) -> Certified:
    _, workers, records, batch = _SUM
    noise = batch * sigma(4.0, *_SUM)
    return bracket(fixed(noise, done // workers, batch, records), _DELTA, "replace-one")


CLAIMS: tuple[PaperClaim, ...] = (
    _admissible(1.0, (58_500, 16, 3125, 256)),
    _admissible(1.0, (1_000_000, 100, 60_000, 8)),
    _admissible(4.0, _SUM),
    _on_the_sum(_ATTACKED, attacked=True),
    _on_the_sum(_SUM, attacked=False),
    PaperClaim(
        paper="004",
        name="amplification-by-workers",
        says="(4, 1e-5)-DP for every worker, whatever share of the steps it makes",
        where="proof of Theorem 2, appendix E",
        formula="sampling rate B / (K n)",
        conditions=("nobody sees which worker makes a step",),
        claimed=4.0,
        delta=_DELTA,
        relation="replace-one",
        plain="Sampling protects because nobody knows what was drawn. Which worker "
        "makes a step is seen by its partner, who gets its model. So the rate is the "
        "worker's own, B/n, over the steps that it makes. If every worker makes an "
        "equal share of the steps, the two ways differ little here; if the fast ones "
        "make most (the figure is for one that makes all T), they differ much.",
        printed=lambda: _of_rate(4.0, _SUM),
        corrected=lambda: _corrected(4.0, *_SUM),
        correction="each worker's own rate and own steps, certified",
        methods=("wbk", "pld"),
    ),
    PaperClaim(
        paper="004",
        name="remark1-first-tenth",
        says="after a tenth of the steps a model is (sqrt(.1) 4, 1e-5)-DP",
        where="Remark 1",
        formula="(sqrt(t/T) epsilon, delta)",
        conditions=(*_CONDITIONS, "both at the smaller epsilon as well"),
        claimed=4.0 * math.sqrt(0.1),
        delta=_DELTA,
        relation="replace-one",
        plain="The remark scales the theorem down to fewer steps, but the theorem's "
        "second condition must then hold at the smaller epsilon, and it fails there "
        "long before it fails at the whole. What a run has "
        "spent after a tenth of its steps can be computed directly: here, with the "
        "noise on the mean and equal shares of the steps, the promise is kept though "
        "its proof has a gap.",
        printed=lambda: _after(_SUM[0] // 10),
        methods=("wbk", "pld"),
    ),
)
