"""DP-DSGD, DP-DSGT and DP-DiNNO: a sound account, of another neighbour than defined.

Bayrooti, Gao and Prorok, "Differentially private decentralized deep learning with
consensus algorithms" (2023).
"""

from __future__ import annotations

from privaudit.accounting import account
from privaudit.claims.accounts import bracket, calibrated, poisson
from privaudit.claims.claim import Certified, PaperClaim, claims_beside
from privaudit.results import stated

_DELTA = 1e-5
_claim = claims_beside(__file__, delta=_DELTA)


def _relations(noise: float, rate: float, steps: int, name: str) -> list[PaperClaim]:
    ledger = poisson(noise, steps, rate)
    claimed = account(ledger, _DELTA, method="rdp").epsilon  # the paper's own
    setting = f"q = {rate:.4g}, {steps:,} steps, noise multiplier {noise:g}"
    words = {"of": name, "setting": setting, "promised": stated(claimed)}
    return [
        _claim(
            "rdp-add-remove",
            **words,
            claimed=claimed,
            printed=lambda: bracket(ledger, _DELTA),
        ),
        _claim(
            "rdp-replace-one",
            **words,
            claimed=claimed,
            printed=lambda: bracket(ledger, _DELTA, "replace-one"),
            corrected=lambda: calibrated(
                "poisson", claimed, _DELTA, steps, rate, relation="replace-one"
            )[1],
        ),
    ]


# CIFAR-100 as published: ten agents with 5,000 images each, 25,000 rounds, a nominal
# epsilon of 10; five Poisson batches of 50 share one noise, accounted as one of them.
_SHARE, _ROUNDS, _BATCHES = 50 / 5000, 25_000, 5


def _five_batches() -> Certified:
    """Five batches, one noise: between a record's being in at least one, and in all.

    A record is in at least one with probability 1 - (1-q)^5, and then moves the sum by
    its clip norm or more. Moving less, or more rarely, leaks less, hence the lower
    figure. Five Poisson batches with a noise of their own each, of a fifth of the
    variance, add up to the same sum: publishing the five leaks more, hence the upper.
    """
    noise = calibrated("poisson", 10.0, _DELTA, _ROUNDS, _SHARE)[0]
    once = 1 - (1 - _SHARE) ** _BATCHES
    below = bracket(poisson(noise, _ROUNDS, once), _DELTA)
    above = bracket(poisson(noise / _BATCHES**0.5, _ROUNDS * _BATCHES, _SHARE), _DELTA)
    return Certified(above.upper, below.lower, above.how)


_DINNO_NOISE = 1.218  # published for epsilon 10, q = 1/24, 2,000 steps

CLAIMS: tuple[PaperClaim, ...] = (
    *_relations(7.656, 1 / 24, 2000, "epsilon1"),
    *_relations(1.218, 1 / 24, 2000, "epsilon10"),
    *_relations(2.0, 256 / 6000, 2000, "noise2"),
    _claim(
        "appendix-d-audit",
        printed=lambda: calibrated("poisson", 1.0, 1e-2, 100, 0.32)[1],
    ),
    _claim(
        "code-five-batches-as-one",
        printed=_five_batches,
        corrected=lambda: calibrated(
            "poisson", 10.0, _DELTA, _ROUNDS, _SHARE * _BATCHES
        )[1],
    ),
    _claim(
        "code-dinno-inner-steps",
        printed=lambda: bracket(poisson(_DINNO_NOISE, 4000, 1 / 24), _DELTA),
        corrected=lambda: calibrated("poisson", 10.0, _DELTA, 4000, 1 / 24)[1],
    ),
)
