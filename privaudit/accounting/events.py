"""dp-accounting: its events, read as releases and in files, and its accounts.

dp-accounting 0.6.0 reads the noise multiplier of an event in two ways (see
`privaudit.release.Release.event`); which one is said at each place below.
"""

from __future__ import annotations

import contextlib
import functools
import math
import numbers
import reprlib
from collections.abc import Iterator
from typing import Any, Literal

import attrs
import numpy as np
from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant

from privaudit import mechanisms
from privaudit.accounting.closed_forms import OutsideTheorem
from privaudit.files import json as _json
from privaudit.ledger import MOST_RELEASES, Entry, Ledger
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    RandomAllocation,
    Release,
    Sampling,
    SamplingWithoutReplacement,
    sampled,
)
from privaudit.results import Relation


class UnknownEventError(ValueError):
    """An event that is no release that a ledger knows."""

    def __init__(self, event: DpEvent, why: str) -> None:
        super().__init__(f"{type(event).__name__}: {why}")
        self.event, self.why = event, why


def releases(event: DpEvent, count: int = 1) -> Iterator[tuple[Release, int, DpEvent]]:
    """The releases of an event, each with its number and the event that it was.

    A noise multiplier is noise over the bound on *one record's norm*, as the events'
    own documentation has it. Raises `UnknownEventError`.
    """
    match event:
        case dp_event.NoOpDpEvent():
            pass
        case dp_event.NonPrivateDpEvent():
            yield _of_sum(0.0, NoSampling()), count, event
        case dp_event.SelfComposedDpEvent():
            yield from releases(event.event, count_of(event) * count)
        case dp_event.ComposedDpEvent():
            for part in event.events:
                yield from releases(part, count)
        case dp_event.PoissonSampledDpEvent():
            sampling = PoissonSampling(float(event.sampling_probability))
            if sampling.rate and not _is_nothing(event.event):
                yield _release(event, event.event, sampling), count, event
        case dp_event.SampledWithoutReplacementDpEvent():
            fixed = SamplingWithoutReplacement(
                event.sample_size, event.source_dataset_size
            )
            if fixed.rate and not _is_nothing(event.event):
                yield _release(event, event.event, fixed), count, event
        case dp_event.SingleEpochTreeAggregationDpEvent():
            release = _of_sum(_noise(event), NoSampling())
            yield release, count * tree_height(event.step_counts), event
        case _:
            yield _release(event, event, NoSampling()), count, event


def tree_height(step_counts: int | list[int]) -> int:
    """Number of nodes of a binary tree over the steps one record is in.

    Of several trees, a record being in one of them, the highest. Raises ``ValueError``
    for no step, or fewer.
    """
    steps = step_counts if isinstance(step_counts, list | tuple) else [step_counts]
    if not all(map(_is_count, steps)) or max(steps, default=0) < 1:
        raise ValueError(
            "step_counts of a tree must be non-negative, whole, and one of them 1 or "
            f"more, got {reprlib.repr(step_counts)}"
        )
    return int(max(steps)).bit_length()


def _is_count(value: Any) -> bool:
    if not issubclass(type(value), numbers.Real) or not 0 <= value < math.inf:
        return False
    return value == int(value) <= MOST_RELEASES


def count_of(event: dp_event.SelfComposedDpEvent) -> int:
    """The count of an event; ``ValueError`` if it is none."""
    if not _is_count(event.count):
        told = reprlib.repr(event.count)
        raise ValueError(f"count must be a whole number from 0 to 1e308, got {told}")
    return int(event.count)


def _noise(event: Any) -> float:
    """The noise multiplier of an event; ``ValueError`` if it is none."""
    noise = math.inf
    with contextlib.suppress(OverflowError, TypeError, ValueError):
        noise = float(event.noise_multiplier)
    if not 0 <= noise < math.inf:
        told = reprlib.repr(event.noise_multiplier)
        raise ValueError(f"Noise multiplier must be non-negative, finite, got {told}")
    return noise


def ledger_of(event: DpEvent) -> Ledger:
    """The ledger of one node that released ``event``. Raises `UnknownEventError`."""
    entries = [
        Entry(release, count)
        for release, count, _ in releases(event)
        if count and release.sampling.rate
    ]
    return Ledger(nodes=(tuple(entries),))


def to_json(event: DpEvent) -> str:
    """``event`` as JSON: its named tuple's fields, a dictionary for each event."""
    return _json.encode(_fields(event)).decode()


def from_json(text: str | bytes) -> DpEvent:
    """The event in ``text``, as `to_json` writes it.

    That is dp-accounting's own named tuple, ``DpEvent.to_named_tuple``, with its fields
    as keys, ``class_name`` among them. Raises ``ValueError`` if it is none.
    """
    return _event(_json.decode(text, dict))


def _release(event: DpEvent, inner: DpEvent, sampling: Sampling) -> Release:
    noise = _gaussian_inside(inner)
    if noise is not None:
        return _of_sum(noise, sampling)
    if isinstance(inner, dp_event.LaplaceDpEvent):
        return _of_sum(_noise(inner), sampling, "laplace")
    details = _details(event, inner)
    if details is None:
        return _of_sum(0.0, sampling)
    try:
        # How far a replaced record moves a sum is not said of all coordinates at once.
        moved = isinstance(details, mechanisms.ZCDP) and hasattr(inner, "dimension")
        relation = "add-or-remove-one" if moved else None
        return Release.of(details, sampling, relation=relation)
    except ValueError as error:
        raise UnknownEventError(event, str(error)) from None


def _of_sum(
    noise: float,
    sampling: Sampling,
    mechanism: Literal["gaussian", "laplace"] = "gaussian",
) -> Release:
    return Release.of_sum(
        norm_bound=1.0, noise_multiplier=noise, sampling=sampling, mechanism=mechanism
    )


def _is_nothing(event: DpEvent) -> bool:
    match event:
        case dp_event.NoOpDpEvent():
            return True
        case dp_event.SelfComposedDpEvent():
            return count_of(event) == 0 or _is_nothing(event.event)
        case dp_event.ComposedDpEvent():
            return all(map(_is_nothing, event.events))
    return False


def _gaussian_inside(event: DpEvent) -> float | None:
    """Noise multiplier of an event that is Gaussians of one batch; None if it is not.

    They compose to one: the squares of what noise is over, one by one, add up.
    """
    match event:
        case dp_event.GaussianDpEvent():
            return _noise(event)
        case dp_event.SelfComposedDpEvent():
            one, count = _gaussian_inside(event.event), count_of(event)
            if one is None or count == 1:
                return one
            return one / math.sqrt(count) * (1 - 1e-15)
        case dp_event.ComposedDpEvent():
            some = [part for part in event.events if not _is_nothing(part)]
            each = [_gaussian_inside(part) for part in some]
            if not each or None in each:
                return None
            if not all(each):
                return 0.0
            told = math.hypot(*(1 / one for one in each if one))
            return (1 - 1e-15) / told if told else math.inf
    return None


def _details(event: DpEvent, inner: DpEvent) -> mechanisms.Any | None:
    """The mechanism of ``inner``; None if it has no noise."""
    match inner:
        case dp_event.RandomizedResponseDpEvent():
            noise, buckets = inner.noise_parameter, inner.num_buckets
            if noise == 0:
                return None if buckets > 1 else mechanisms.RandomizedResponse(1.0, 1)
            return mechanisms.RandomizedResponse(noise, buckets)
        case dp_event.DiscreteLaplaceDpEvent():
            if inner.noise_parameter == 0:
                return None
            return mechanisms.DiscreteLaplace(inner.noise_parameter, inner.sensitivity)
        case dp_event.MixtureOfGaussiansDpEvent():
            deviation = inner.standard_deviation
            if deviation == 0 and any(inner.sensitivities):
                return None
            return mechanisms.MixtureOfGaussians(
                deviation or 1.0,
                tuple(inner.sensitivities),
                tuple(inner.sampling_probs),
            )
        case dp_event.ZCDpEvent():
            if max(inner.rho, inner.xi) > 1e4:  # as no guarantee, also at infinity
                return None
            return mechanisms.ZCDP(inner.rho, inner.xi)
        case dp_event.TruncatedSubsampledGaussianDpEvent():
            told = mechanisms.TruncatedPoisson(
                inner.noise_multiplier or 1.0,
                inner.sampling_probability,
                inner.truncated_batch_size,
                inner.dataset_size,
            )
            return told if inner.noise_multiplier or not told.tells else None
    told = attrs.asdict(inner, recurse=False)
    match type(inner).__name__:  # events that dp-accounting 0.6 does not have
        case "ExponentialMechanismDpEvent":
            return mechanisms.ExponentialMechanism(**told)
        case "PermuteAndFlipDpEvent":
            return mechanisms.PermuteAndFlip(**told)
        case "EpsilonDeltaDpEvent":
            return mechanisms.EpsilonDelta(**told)
        case "DiscreteGaussianDpEvent":
            sigma, moved = told["sigma"], told["sensitivity"]
            if not (0 <= moved < math.inf and 0 <= sigma < math.inf):
                why = f"sensitivity and sigma are >= 0 and finite, got {moved}, {sigma}"
                raise UnknownEventError(event, why)
            if not sigma:
                return None
            if told["dimension"] == 1:  # an integer, which floats may be just below
                return mechanisms.DiscreteGaussian(sigma, math.ceil(moved))
            # Of several coordinates no pair is known: Canonne et al. 2020, theorem 14.
            return mechanisms.ZCDP((moved / sigma) ** 2 / 2 * (1 + 1e-15))
    raise UnknownEventError(
        event,
        f"{type(inner).__name__} is not accounted here: Gaussian and Laplace events "
        "are, and those that docs/accounts.md lists",
    )


def _fields(value: Any) -> Any:
    if isinstance(value, DpEvent):
        kind, parts = type(value), attrs.asdict(value, recurse=False)
        told = {"module_name": kind.__module__, "class_name": kind.__name__}
        return told | {name: _fields(part) for name, part in parts.items()}
    if isinstance(value, (list, tuple)):
        return [_fields(part) for part in value]
    return value


@functools.cache
def _known() -> dict[str, type[DpEvent]]:
    return {
        name: kind
        for name, kind in vars(dp_event).items()
        if isinstance(kind, type) and issubclass(kind, DpEvent) and kind is not DpEvent
    }


_LISTS = ("step_counts", "sensitivities", "sampling_probs")  # of numbers, in events


def _fits(key: str, part: Any) -> bool:
    """Return whether a field is of the kind its name says: events, or else numbers."""
    if key == "event":
        return isinstance(part, DpEvent)
    if key == "events":
        return isinstance(part, list) and all(isinstance(x, DpEvent) for x in part)
    every = part if isinstance(part, list) and key in _LISTS else [part]
    return all(isinstance(x, int | float) and not isinstance(x, bool) for x in every)


def _event(value: Any) -> Any:
    if isinstance(value, list):
        return [_event(part) for part in value]
    if not isinstance(value, dict):
        return value
    name = value.get("class_name")
    if not isinstance(name, str) or name not in _known():
        raise ValueError(
            f"this is no event of dp-accounting's: its class_name is {name!r}; known: "
            f"{', '.join(_known())}"
        )
    fields = {
        key: _event(part)
        for key, part in value.items()
        if key not in ("module_name", "class_name")
    }
    for key, part in fields.items():
        if not _fits(key, part):
            raise ValueError(f"{name}: {key} cannot be {value[key]!r}")
    try:
        return _known()[name](**fields)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None


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
        events = [
            _event_of(entry.release, noise)
            for entry, noise in zip(entries, found, strict=True)
        ]
    else:
        accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE)
        events = [_pld_replace_one(entry.release) for entry in entries]
    try:
        for event, entry in zip(events, entries, strict=True):
            accountant.compose(event, entry.count)
        # Some compositions come out a rounding error below zero.
        return max(0.0, float(accountant.get_epsilon(delta)))
    except OverflowError as error:
        raise ValueError(
            "the pld account cannot compute with such noise, between "
            f"{least:.3g} and {most:.3g} times the sensitivity: a number overflows "
            "in dp-accounting; use the certified account"
        ) from error


def _event_of(release: Release, multiplier: float) -> DpEvent:
    """The event with noise over *sensitivity*."""
    gaussian = release.mechanism == "gaussian"
    kind = dp_event.GaussianDpEvent if gaussian else dp_event.LaplaceDpEvent
    return sampled(kind(multiplier), release.sampling)


def _pld_replace_one(release: Release) -> DpEvent:
    """The event as the PLD accountant reads it under replace-one.

    It takes the Gaussian's noise over the norm bound and doubles the sensitivity
    itself: N(+C) against N(-C), each mixed with N(0) when Poisson sampled, which is the
    worst pair (two half-spaces are best at once against N(0) and N(-C), by
    Neyman-Pearson). Where half the sensitivity is less than the norm bound, C is that
    bound, as `privaudit.release.Release.opposed_norm` has it.
    """
    if release.mechanism != "gaussian" or isinstance(
        release.sampling, SamplingWithoutReplacement | RandomAllocation
    ):
        raise ValueError(
            "the pld account knows Gaussian releases only under replace-one, unsampled "
            f"or Poisson sampled; got {release.mechanism} with {release.sampling}"
        )
    multiplier = 2 * release.noise_over_sensitivity("replace-one")
    if multiplier == math.inf:
        return dp_event.NoOpDpEvent()
    if isinstance(release.sampling, PoissonSampling) and release.sampling.rate < 1:
        event = dp_event.GaussianDpEvent(release.noise / release.opposed_norm())
        return dp_event.PoissonSampledDpEvent(release.sampling.rate, event)
    return dp_event.GaussianDpEvent(multiplier)


def divergences(
    noise: float, orders: list[float], rate: float = 1.0, kind: str = "gaussian"
) -> np.ndarray:
    """Renyi divergences by its RDP accountant at ``orders``, up to its rounding.

    ``noise`` is over the sensitivity; ``rate`` of Poisson sampling, of a Gaussian.
    """
    event = (
        dp_event.GaussianDpEvent if kind == "gaussian" else dp_event.LaplaceDpEvent
    )(noise)
    if rate < 1:
        event = dp_event.PoissonSampledDpEvent(rate, event)
    return np.array(RdpAccountant(orders).compose(event).rdp)
