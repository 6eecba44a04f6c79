"""The account by dp-accounting's privacy loss distributions.

dp-accounting 0.6.0 reads the noise multiplier of an event in two ways (see
`privaudit.release.Release.event`); which one is said at each place below.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from privaudit.accounting.closed_forms import OutsideTheorem
from privaudit.ledger import Entry
from privaudit.release import (
    PoissonSampling,
    RandomAllocation,
    Release,
    SamplingWithoutReplacement,
    sampled,
)
from privaudit.results import Relation

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.privacy_accountant import PrivacyAccountant

# Below this delta the rounding of the FFT, which dp-accounting's bound leaves out, is
# no longer small beside delta: at 1e-12 it was seen 0.5 % below the truth.
LEAST_PLD_DELTA = 1e-9
# Below this noise over sensitivity one release has millions of cells of 1e-4, or more
# than there are: it takes gigabytes, or ends in an overflow.
_LEAST_NOISE = 0.01


def pld_epsilon(entries: tuple[Entry, ...], delta: float, relation: Relation) -> float:
    """Upper bound on epsilon from dp-accounting's PLD accountant, discretised at 1e-4.

    Gaussian and Laplace, unsampled or Poisson sampled; replace-one for the Gaussian and
    the unsampled Laplace. ``ValueError`` below `LEAST_PLD_DELTA`, where it is no bound,
    and for others.
    """
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation

    if delta < LEAST_PLD_DELTA:
        raise ValueError(
            f"the pld account is certified for delta >= {LEAST_PLD_DELTA:g} only "
            f"(its rounding error is not bounded below), got {delta:g}; "
            "use the rdp account"
        )
    found = [entry.release.noise_over_sensitivity(relation) for entry in entries]
    least, most = min(found), max(found)
    if least < _LEAST_NOISE:
        raise OutsideTheorem(
            f"the pld account takes noise of at least {_LEAST_NOISE:g} times the "
            f"sensitivity, got {least:.3g}; use the certified account"
        )
    if relation == "add-or-remove-one":
        accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
        events = [_event(entry.release, relation) for entry in entries]
    else:
        accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE)
        events = [_pld_replace_one(entry.release) for entry in entries]
    try:
        for event, entry in zip(events, entries, strict=True):
            accountant.compose(event, entry.count)
        return _epsilon(accountant, delta)
    except OverflowError as error:
        raise ValueError(
            "the pld account cannot compute with such noise, between "
            f"{least:.3g} and {most:.3g} times the sensitivity: a number overflows "
            "in dp-accounting; use the certified account"
        ) from error


def _epsilon(accountant: PrivacyAccountant, delta: float) -> float:
    # Some compositions come out a rounding error below zero.
    return max(0.0, float(accountant.get_epsilon(delta)))


def _event(release: Release, relation: Relation) -> DpEvent:
    """The event with noise over *sensitivity*."""
    import dp_accounting as dpa

    multiplier = release.noise_over_sensitivity(relation)
    gaussian = release.mechanism == "gaussian"
    kind = dpa.GaussianDpEvent if gaussian else dpa.LaplaceDpEvent
    return sampled(kind(multiplier), release.sampling)


def _pld_replace_one(release: Release) -> DpEvent:
    """The event as the PLD accountant reads it under replace-one.

    It takes the Gaussian's noise over the norm bound and doubles the sensitivity
    itself: N(+C) against N(-C), each mixed with N(0) when Poisson sampled, which is the
    worst pair (two half-spaces are best at once against N(0) and N(-C), by
    Neyman-Pearson). Where half the sensitivity is less than the norm bound, C is that
    bound, as `privaudit.release.Release.opposed_norm` has it.
    """
    import dp_accounting as dpa

    if release.mechanism != "gaussian" or isinstance(
        release.sampling, SamplingWithoutReplacement | RandomAllocation
    ):
        raise ValueError(
            "the pld account knows Gaussian releases only under replace-one, unsampled "
            f"or Poisson sampled; got {release.mechanism} with {release.sampling}"
        )
    multiplier = 2 * release.noise_over_sensitivity("replace-one")
    if multiplier == math.inf:
        return dpa.NoOpDpEvent()
    if isinstance(release.sampling, PoissonSampling) and release.sampling.rate < 1:
        event = dpa.GaussianDpEvent(release.noise / release.opposed_norm())
        return dpa.PoissonSampledDpEvent(release.sampling.rate, event)
    return dpa.GaussianDpEvent(multiplier)
