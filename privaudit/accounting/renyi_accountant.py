"""The Renyi account behind dp-accounting's interface."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from dp_accounting import dp_event
from dp_accounting.privacy_accountant import NeighboringRelation, PrivacyAccountant

from privaudit.accounting import rdp
from privaudit.accounting.accountant import RELATIONS, found_in
from privaudit.accounting.events import UnknownEventError
from privaudit.accounting.renyi import divergence
from privaudit.accounting.tuning import MOST_TRIES, ORDERS, selected_curve
from privaudit.ledger import MOST_RELEASES
from privaudit.release import Release

_ABOVE_1 = 1 + 1e-6  # whose divergence bounds that of order 1


class RenyiAccountant(PrivacyAccountant):
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
        self._curve = np.zeros(chosen.shape)

    @property
    def orders(self) -> np.ndarray:
        """The orders."""
        return self._orders.copy()

    @property
    def rdp(self) -> np.ndarray:
        """At each order, at least the divergence of all that was composed."""
        return self._curve.copy()

    def get_epsilon(self, target_delta: float) -> float:
        """Upper bound on epsilon at ``target_delta`` in [0, 1]."""
        return self.get_epsilon_and_optimal_order(target_delta)[0]

    def get_epsilon_and_optimal_order(self, target_delta: float) -> tuple[float, float]:
        """The same, and the order that gives it."""
        if not 0 <= target_delta <= 1:
            raise ValueError(f"delta must be in [0, 1], got {target_delta}")
        if not self._curve.any():
            return 0.0, math.inf
        found = math.inf, math.inf
        for order, value in zip(self._orders, self._curve, strict=True):
            if order == 1 or value == math.inf:
                continue
            if order == math.inf:
                epsilon = value  # pure
            elif target_delta == 0:
                continue
            else:
                epsilon = rdp.epsilon_at(order, value, target_delta)
            found = min(found, (float(epsilon), float(order)))
        return found

    def get_delta(self, target_epsilon: float) -> float:
        """Upper bound on delta at ``target_epsilon`` >= 0."""
        return self.get_delta_and_optimal_order(target_epsilon)[0]

    def get_delta_and_optimal_order(self, target_epsilon: float) -> tuple[float, float]:
        """The same, and the order that gives it."""
        if not target_epsilon >= 0:
            raise ValueError(f"epsilon must be >= 0, got {target_epsilon}")
        if not self._curve.any():
            return 0.0, math.inf
        found = 1.0, math.inf
        for order, value in zip(self._orders, self._curve, strict=True):
            if order == 1 or value == math.inf:
                continue
            if target_epsilon == math.inf:
                return 0.0, float(order)
            if order == math.inf:
                delta = 0.0 if value <= target_epsilon else 1.0
            else:
                delta = rdp.delta_at(order, value, target_epsilon)
            found = min(found, (float(delta), float(order)))
        return found

    def _maybe_compose(
        self, event: dp_event.DpEvent, count: int, do_compose: bool
    ) -> PrivacyAccountant.CompositionErrorDetails | None:
        try:
            found = self._curve_of(event) if do_compose else self._checked(event)
        except UnknownEventError as error:
            return PrivacyAccountant.CompositionErrorDetails(
                invalid_event=error.event, error_message=error.why
            )
        if found is not None:
            self._curve = self._curve + _times(count, found)
        return None

    def _checked(self, event: dp_event.DpEvent) -> None:
        match event:
            case dp_event.RepeatAndSelectDpEvent():
                self._checked(event.event)
            case dp_event.SelfComposedDpEvent():
                self._checked(event.event)
            case dp_event.ComposedDpEvent():
                for part in event.events:
                    self._checked(part)
            case _:
                for release, _ in found_in(event, 1, self.neighboring_relation):
                    self._known(release, event)

    def _curve_of(self, event: dp_event.DpEvent) -> np.ndarray:
        """Divergences of an event at all orders."""
        match event:
            case dp_event.RepeatAndSelectDpEvent():
                return self._selected(event)
            case dp_event.SelfComposedDpEvent():
                return _times(event.count, self._curve_of(event.event))
            case dp_event.ComposedDpEvent():
                return sum(
                    map(self._curve_of, event.events), np.zeros(self._orders.shape)
                )
        total = np.zeros(self._orders.shape)
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
        if not release.sensitivity_under(relation):
            return np.zeros(self._orders.shape)
        if not release.is_private:
            return np.full(self._orders.shape, np.inf)
        return np.array(
            [
                divergence(release, relation, max(float(order), _ABOVE_1))
                for order in self._orders
            ]
        )

    def _selected(self, event: dp_event.RepeatAndSelectDpEvent) -> np.ndarray:
        mean, shape = float(event.mean), float(event.shape)
        least = 0 if shape == math.inf else 1
        if not shape >= 0 or not least <= mean <= MOST_TRIES:
            raise ValueError(
                "the number of tries has a mean >= 1 and <= 1e10 and a shape >= 0, got "
                f"mean {event.mean} and shape {event.shape}"
            )
        one = self._curve_of(event.event)

        def delta_at(epsilon: float) -> float:
            return min(
                rdp.delta_at(order, value, epsilon) if value < math.inf else 1.0
                for order, value in zip(self._orders, one, strict=True)
                if order > 1
            )

        orders, known = self._orders.tolist(), one.tolist()
        curve = selected_curve(orders, known, max(mean, 1.0), shape, delta_at)
        return np.array(curve)


def _times(count: int, curve: np.ndarray) -> np.ndarray:
    if count > MOST_RELEASES:
        raise ValueError(f"count must be <= 1e308, got {count}")
    return count * curve
