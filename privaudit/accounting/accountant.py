"""The certified and the Renyi account behind dp-accounting's interface."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence

import numpy as np
from dp_accounting import dp_event
from dp_accounting.privacy_accountant import NeighboringRelation, PrivacyAccountant
from scipy import special

from privaudit.accounting import rdp
from privaudit.accounting.certificate import Certificate
from privaudit.accounting.events import UnknownEventError, count_of, releases
from privaudit.accounting.renyi import divergence
from privaudit.accounting.tuning import MOST_TRIES, ORDERS, selected_curve, shape_of
from privaudit.ledger import MOST_RELEASES, Entry, Ledger
from privaudit.mechanisms import DiscretePair, EpsilonDelta, RandomizedResponse
from privaudit.release import PoissonSampling, Release, SamplingWithoutReplacement
from privaudit.results import Bracket, Relation

# A record replaced by a special one, which counts for nothing, is a record removed.
RELATIONS: dict[NeighboringRelation, Relation] = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "add-or-remove-one",
    NeighboringRelation.REPLACE_ONE: "replace-one",
    NeighboringRelation.REPLACE_SPECIAL: "add-or-remove-one",
}
_FALSE_POSITIVES = np.logspace(-12, math.log10(0.5), 500)
_LEAST_PROFILE = 1e-13
_ABOVE_1 = 1 + 1e-6  # whose divergence bounds that of order 1


def found_in(
    event: dp_event.DpEvent, count: int, relation: NeighboringRelation
) -> list[tuple[Release, int]]:
    """The releases of one event, composed of no others, as ``relation`` has it.

    A report of randomised response by a special record is uniformly random. Raises
    `UnknownEventError` for what has no meaning under the relation.
    """
    special = relation is NeighboringRelation.REPLACE_SPECIAL
    tree = isinstance(event, dp_event.SingleEpochTreeAggregationDpEvent)
    if tree and not special:
        raise UnknownEventError(
            event,
            "neighboring_relation must be `REPLACE_SPECIAL` for "
            f"`SingleEpochTreeAggregationDpEvent`. Found {relation}.",
        )
    found: list[tuple[Release, int]] = []
    for release, times, part in releases(event, count):
        if special and isinstance(release.details, RandomizedResponse):
            p, k = release.details.noise_parameter, release.details.buckets
            # Either chance as a sum of what is >= 0: that next to 0 keeps its digits.
            pair = DiscretePair((1 - p + p / k, p * (1 - 1 / k)), (1 / k, 1 - 1 / k))
            release = Release.of(pair if release.details.tells else EpsilonDelta(0.0))
        why = _refusal(release, RELATIONS[relation])
        if why is not None:
            raise UnknownEventError(part, why)
        if times and release.sampling.rate:
            found.append((release, times))
    return found


def _refusal(release: Release, relation: Relation) -> str | None:
    """Reason why ``release`` cannot be accounted under ``relation``; None if it can."""
    fixed = isinstance(release.sampling, SamplingWithoutReplacement)
    if fixed and relation != "replace-one":
        return (
            "a sample of fixed size has no meaning under add-or-remove-one; "
            "use REPLACE_ONE"
        )
    try:
        release.sensitivity_under(relation)
    except ValueError:
        other = "REPLACE_ONE" if relation != "replace-one" else "ADD_OR_REMOVE_ONE"
        return (
            f"neighboring_relation must be `{other}` or `REPLACE_SPECIAL` for a "
            f"{release.mechanism} mechanism, got {relation}"
        )
    if (
        release.mechanism == "laplace"
        and isinstance(release.sampling, PoissonSampling)
        and relation == "replace-one"
    ):
        return (
            "neighboring_relation must be `ADD_OR_REMOVE_ONE` or `REPLACE_SPECIAL` for "
            "Poisson sampled Laplace noise"
        )
    return None


class _Accountant(PrivacyAccountant):
    @abc.abstractmethod
    def _take(self, event: dp_event.DpEvent, count: int, *, do_compose: bool) -> None:
        """Compose it, or look whether that can be; raises `UnknownEventError`."""

    def _maybe_compose(
        self, event: dp_event.DpEvent, count: int, do_compose: bool
    ) -> PrivacyAccountant.CompositionErrorDetails | None:
        try:
            self._take(event, count, do_compose=do_compose)
        except UnknownEventError as error:
            return PrivacyAccountant.CompositionErrorDetails(
                invalid_event=error.event, error_message=error.why
            )
        return None


class CertifiedAccountant(_Accountant):
    """Certified epsilon and delta of dp-accounting's events, which may all differ.

    A noise multiplier is noise over the bound on *one record's norm*, as the events'
    own documentation has it: under replace-one the sensitivity is twice that bound.
    Batches are Poisson sampled under either relation, of fixed size under replace-one.

    ``neighboring_relation``: add-or-remove-one (the default), replace-one or
    replace-special. ``width``: relative width of the bracket that ``get_epsilon``
    returns the upper side of. Raises ``ValueError`` for any other relation.
    """

    def __init__(
        self,
        neighboring_relation: NeighboringRelation = (
            NeighboringRelation.ADD_OR_REMOVE_ONE
        ),
        width: float = 1e-3,
    ) -> None:
        if neighboring_relation not in RELATIONS:
            raise ValueError(
                f"the certified account has no meaning for {neighboring_relation}; "
                "use ADD_OR_REMOVE_ONE, REPLACE_ONE or REPLACE_SPECIAL"
            )
        super().__init__(neighboring_relation)
        self._width = width
        self._counts: dict[Release, int] = {}

    @property
    def certificate(self) -> Certificate:
        """All that was composed so far; its brackets are narrower on request."""
        entries = [Entry(release, count) for release, count in self._counts.items()]
        return Certificate.of(
            Ledger(nodes=(tuple(entries),)), RELATIONS[self.neighboring_relation]
        )

    def epsilon_bracket(self, target_delta: float) -> Bracket:
        """Lower and upper bound on epsilon."""
        return self.certificate.epsilon(target_delta, self._width)

    def get_epsilon(self, target_delta: float) -> float:
        """Upper bound on epsilon at ``target_delta`` in [0, 1].

        Infinity where anything was released without noise, as dp-accounting's are.
        """
        if not self._is_private:
            return math.inf
        return self.certificate.epsilon(target_delta, self._width, "upper").upper

    def get_delta(self, target_epsilon: float) -> float:
        """Upper bound on delta at ``target_epsilon`` >= 0; 1 where noise is missing."""
        if not self._is_private:
            return 1.0
        return self.certificate.delta(target_epsilon, self._width, "upper").upper

    def get_true_positive_rates(
        self, false_positive_rates: float | np.ndarray, points: int = 120
    ) -> float | np.ndarray:
        """The most true positives of any attack, at each rate of false positives.

        Proved: at most delta + exp(epsilon) a and 1 - exp(-epsilon) (1 - delta - a) at
        every point of the profile, of which ``points`` are taken.
        """
        rates = np.asarray(false_positive_rates, float)
        if not ((rates >= 0) & (rates <= 1)).all():
            raise ValueError(
                f"false positive rates must be in [0, 1], got {false_positive_rates}"
            )
        if not self._is_private:
            found = np.ones(rates.shape)
        else:
            epsilons, deltas = np.zeros(1), np.zeros(1)
            if self._counts:
                epsilons, _, deltas = self.certificate.profile(
                    points, _LEAST_PROFILE, max(self._width, 1e-3), "upper", most=700.0
                )
            a = rates[..., None]
            with np.errstate(over="ignore"):
                first = deltas + np.exp(epsilons) * a
                second = 1 - np.exp(-epsilons) * (1 - deltas - a)
            found = np.minimum(first, second).min(axis=-1)
            slack = 1e-12 if self._counts else 0.0
            found = np.clip(found * (1 + slack), rates, 1.0)
        return float(found) if np.isscalar(false_positive_rates) else found

    def get_gdp_parameter_estimate(
        self, false_positive_rates: np.ndarray | None = None, points: int = 120
    ) -> float:
        """The least mu whose Gaussian trade-off bounds the true positive rates here.

        An estimate and no bound: at these rates of false positives only. Infinity where
        one of them allows every true positive.
        """
        rates = _FALSE_POSITIVES
        if false_positive_rates is not None:
            rates = np.asarray(false_positive_rates, float)
        found = np.asarray(self.get_true_positive_rates(rates, points))
        if (found >= 1).any():
            return math.inf
        return max(0.0, float((special.ndtri(found) - special.ndtri(rates)).max()))

    @property
    def _is_private(self) -> bool:
        relation = RELATIONS[self.neighboring_relation]
        return all(
            release.is_private or not release.sensitivity_under(relation)
            for release in self._counts
        )

    def _take(self, event: dp_event.DpEvent, count: int, *, do_compose: bool) -> None:
        relation = RELATIONS[self.neighboring_relation]
        for release, times in self._found(event, count):
            if do_compose and release.sensitivity_under(relation):
                self._counts[release] = self._counts.get(release, 0) + times

    def _found(self, event: dp_event.DpEvent, count: int) -> list[tuple[Release, int]]:
        match event:
            case dp_event.SelfComposedDpEvent():
                return self._found(event.event, count_of(event) * count)
            case dp_event.ComposedDpEvent():
                return [
                    one for part in event.events for one in self._found(part, count)
                ]
        return found_in(event, count, self.neighboring_relation)


class RenyiAccountant(_Accountant):
    """Renyi divergences, rounded up, of all that dp-accounting 0.6 has events for.

    Also of what is repeated and selected from (`RepeatAndSelectDpEvent`). The noise
    multiplier of an event is over one record's norm, as the events' documentation has
    it: under replace-one a Gaussian costs four times as much.

    ``orders``: Renyi orders, >= 1. None: from 1.1 to 1024. ``neighboring_relation``:
    add-or-remove-one (the default), replace-one or replace-special.

    >>> import dp_accounting as dpa
    >>> accountant = RenyiAccountant().compose(dpa.GaussianDpEvent(2.0), 3)
    >>> round(float(accountant.get_epsilon(1e-5)), 3)
    4.012
    """

    def __init__(
        self,
        orders: Sequence[float] | None = None,
        neighboring_relation: NeighboringRelation = (
            NeighboringRelation.ADD_OR_REMOVE_ONE
        ),
    ) -> None:
        super().__init__(neighboring_relation)
        chosen = np.array(ORDERS if orders is None else orders, float)
        if not chosen.size or not (chosen >= 1).all():
            raise ValueError(f"Renyi orders must be >= 1, got {orders}")
        self._orders = chosen
        # Of (epsilon, delta) the worst mechanism tells all with chance delta, whatever
        # the data are, and else is pure: the last place adds up -log(1 - delta).
        self._curve = np.zeros(chosen.size + 1)

    @property
    def orders(self) -> np.ndarray:
        """The orders."""
        return self._orders.copy()

    @property
    def rdp(self) -> np.ndarray:
        """At each order, at least the divergence of all that was composed."""
        return self._curve[:-1].copy()

    def get_epsilon(self, target_delta: float) -> float:
        """Upper bound on epsilon at ``target_delta`` in [0, 1]."""
        return self.get_epsilon_and_optimal_order(target_delta)[0]

    def get_epsilon_and_optimal_order(self, target_delta: float) -> tuple[float, float]:
        """The same, and the order that gives it."""
        if not 0 <= target_delta <= 1:
            raise ValueError(f"delta must be in [0, 1], got {target_delta}")
        told = float(self._curve[-1])
        if told > 0 and target_delta < 1:  # as if no output told all
            log = math.log1p(-target_delta)
            target_delta = -math.expm1(log + told - 1e-15 * (log - told))
            if target_delta <= 0:
                return math.inf, math.inf

        def epsilon(order: float, value: float) -> float:
            if order == math.inf:
                return value  # pure
            return (
                rdp.epsilon_at(order, value, target_delta) if target_delta else math.inf
            )

        return self._best(epsilon, math.inf)

    def get_delta(self, target_epsilon: float) -> float:
        """Upper bound on delta at ``target_epsilon`` >= 0."""
        return self.get_delta_and_optimal_order(target_epsilon)[0]

    def get_delta_and_optimal_order(self, target_epsilon: float) -> tuple[float, float]:
        """The same, and the order that gives it."""
        if not target_epsilon >= 0:
            raise ValueError(f"epsilon must be >= 0, got {target_epsilon}")

        def delta(order: float, value: float) -> float:
            if math.inf in (order, target_epsilon):
                return 0.0 if value <= target_epsilon else 1.0
            return rdp.delta_at(order, value, target_epsilon)

        found, order = self._best(delta, 1.0)
        told = -math.expm1(-float(self._curve[-1])) * (1 + 1e-15)
        return min(1.0, found + (1 - found) * told * (1 + 1e-15)), order

    def _best(
        self, figure: Callable[[float, float], float], worst: float
    ) -> tuple[float, float]:
        """Least figure of an order and its divergence, and that order."""
        if not self.rdp.any():
            return 0.0, math.inf
        found = worst, math.inf
        for order, value in zip(self._orders.tolist(), self.rdp.tolist(), strict=True):
            if (
                order > 1
                and value < math.inf
                and (one := figure(order, value)) < math.inf
            ):
                found = min(found, (float(one), order))
        return found

    def _take(self, event: dp_event.DpEvent, count: int, *, do_compose: bool) -> None:
        found = self._curve_of(event) if do_compose else self._checked(event)
        if found is not None:
            self._curve = self._curve + _times(count, found)

    def _checked(self, event: dp_event.DpEvent) -> None:
        match event:
            case dp_event.RepeatAndSelectDpEvent() | dp_event.SelfComposedDpEvent():
                self._checked(event.event)
            case dp_event.ComposedDpEvent():
                for part in event.events:
                    self._checked(part)
            case _:
                for release, _ in found_in(event, 1, self.neighboring_relation):
                    self._known(release, event)

    def _curve_of(self, event: dp_event.DpEvent) -> np.ndarray:
        """Divergences of an event at all orders, and -log(1 - its delta)."""
        match event:
            case dp_event.RepeatAndSelectDpEvent():
                return self._selected(event)
            case dp_event.SelfComposedDpEvent():
                return _times(count_of(event), self._curve_of(event.event))
            case dp_event.ComposedDpEvent():
                return sum(
                    map(self._curve_of, event.events), np.zeros(self._curve.shape)
                )
        total = np.zeros(self._curve.shape)
        for release, count in found_in(event, 1, self.neighboring_relation):
            self._known(release, event)
            total += _times(count, self._of(release))
        return total

    def _known(self, release: Release, event: dp_event.DpEvent) -> None:
        """Refuse a release of which no divergence is known."""
        if not release.is_private:
            return
        try:
            found = divergence(release, RELATIONS[self.neighboring_relation], 2.0)
        except ValueError as error:
            raise UnknownEventError(event, str(error)) from None
        name = release.mechanism
        if found == math.inf and name in ("truncated-poisson", "discrete-pair"):
            raise UnknownEventError(event, f"no Renyi divergence of {name} is known")

    def _of(self, release: Release) -> np.ndarray:
        relation = RELATIONS[self.neighboring_relation]
        told, details = 0.0, release.details
        if not release.sensitivity_under(relation):
            return np.zeros(self._curve.shape)
        if not release.is_private:
            return np.append(np.full(self._orders.shape, np.inf), told)
        if isinstance(details, EpsilonDelta) and details.delta:
            told = -math.log1p(-details.delta) * (1 + 1e-15)
            release = Release.of(EpsilonDelta(details.epsilon))  # no less than sampled
        orders = np.maximum(self._orders, _ABOVE_1).tolist()
        return np.array(
            [*(divergence(release, relation, order) for order in orders), told]
        )

    def _selected(self, event: dp_event.RepeatAndSelectDpEvent) -> np.ndarray:
        mean, shape = event.mean, shape_of(event.shape)
        least = 0 if shape == math.inf else 1
        if not least <= mean <= MOST_TRIES:
            raise ValueError(
                f"the number of tries has a mean >= 1 and <= 1e10, got {mean}"
            )
        *one, told = self._curve_of(event.event).tolist()
        if told:  # nothing is known of selecting by what tells all
            return np.append(np.full(self._orders.shape, np.inf), 0.0)

        def delta_at(epsilon: float) -> float:
            return min(
                rdp.delta_at(order, value, epsilon) if value < math.inf else 1.0
                for order, value in zip(self._orders, one, strict=True)
                if order > 1
            )

        orders = self._orders.tolist()
        curve = selected_curve(orders, one, max(mean, 1.0), shape, delta_at)
        return np.append(curve, 0.0)


def _times(count: int, curve: np.ndarray) -> np.ndarray:
    if count > MOST_RELEASES:
        raise ValueError(f"count must be <= 1e308, got {count}")
    return count * curve
