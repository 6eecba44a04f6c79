"""`privaudit noise` and `privaudit epsilon`: from settings to figures, no training."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from privaudit.cli.output import emit, upper_json
from privaudit.results import Relation

Json = Annotated[bool, Parameter("--json", help="One JSON object, nothing else.")]
NoiseMultiplier = Annotated[
    float,
    Parameter(
        help="Standard deviation of the noise on the SUM of a lot's clipped gradients, "
        "divided by the clip norm. Not divided by the lot size."
    ),
]
Account = Annotated[
    str, Parameter(help="The account: pld (tight) or rdp (quick, for any delta).")
]
SamplingRate = Annotated[
    float,
    Parameter(
        help="Probability with which each record enters a lot, by its own coin "
        "(Poisson sampling); 1 for no sampling. Shuffled batches are not this."
    ),
]


def _ledger(noise_multiplier: float, sampling_rate: float, steps: int):
    from privaudit.ledger import Ledger, NoSampling, PoissonSampling, Release

    if not 0 < sampling_rate <= 1:
        raise ValueError(
            f"--sampling-rate must be in (0, 1], got {sampling_rate:g}; it is the "
            "expected lot size over the number of records"
        )
    if steps < 0:
        raise ValueError(f"--steps must be >= 0, got {steps}")
    if not noise_multiplier > 0:
        raise ValueError(f"--noise-multiplier must be > 0, got {noise_multiplier:g}")
    sampling = NoSampling() if sampling_rate == 1 else PoissonSampling(sampling_rate)
    release = Release.of_sum(
        norm_bound=1.0, noise_multiplier=noise_multiplier, sampling=sampling
    )
    return Ledger.of(release, steps)


def noise(
    *,
    epsilon: float,
    delta: float,
    sampling_rate: SamplingRate = 1.0,
    steps: int = 1,
    relation: Relation = "add-or-remove-one",
    account: Account = "certified",
    json: Json = False,
) -> None:
    """The least noise multiplier of a sampled Gaussian that meets a budget.

    Parameters
    ----------
    epsilon
        The budget, > 0.
    delta
        The budget, in (0, 1).
    steps
        How many releases.
    relation
        What neighbouring data sets differ in.
    """
    from privaudit.accounting import noise_multiplier

    multiplier, bound = noise_multiplier(
        lambda z: _ledger(z, sampling_rate, steps), epsilon, delta, relation, account
    )
    emit(
        {"noise_multiplier": multiplier, "epsilon": upper_json(bound)},
        [
            f"noise multiplier {multiplier:.6g}: "
            f"{multiplier:.6g} times the clip norm, added to the sum of each lot",
            str(bound),
        ],
        as_json=json,
    )


def epsilon(
    *,
    noise_multiplier: NoiseMultiplier,
    delta: float,
    sampling_rate: SamplingRate = 1.0,
    steps: int = 1,
    relation: Relation = "add-or-remove-one",
    account: Account = "certified",
    json: Json = False,
) -> None:
    """An upper bound on the epsilon of repeated sampled Gaussian releases.

    Parameters
    ----------
    delta
        In (0, 1).
    steps
        How many releases.
    relation
        What neighbouring data sets differ in.
    """
    from privaudit.accounting import account as account_of

    ledger = _ledger(noise_multiplier, sampling_rate, steps)
    bound = account_of(ledger, delta, relation, account)
    emit(upper_json(bound), [str(bound)], as_json=json)
