"""The certified account behind dp-accounting's interface."""

from __future__ import annotations

from dp_accounting import dp_event
from dp_accounting.privacy_accountant import NeighboringRelation, PrivacyAccountant

from privaudit.accounting.certificate import Certificate
from privaudit.accounting.events import UnknownEventError, releases
from privaudit.ledger import Entry, Ledger
from privaudit.release import PoissonSampling, Release, SamplingWithoutReplacement
from privaudit.results import Bracket, Relation

_RELATIONS: dict[NeighboringRelation, Relation] = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "add-or-remove-one",
    NeighboringRelation.REPLACE_ONE: "replace-one",
}


class CertifiedAccountant(PrivacyAccountant):
    """Certified epsilon and delta of Gaussian and Laplace events that may all differ.

    A noise multiplier is noise over the bound on *one record's norm*, as the events'
    own documentation has it: under replace-one the sensitivity is twice that bound.
    Batches are Poisson sampled under either relation, of fixed size under replace-one.

    Parameters
    ----------
    neighboring_relation
        Add-or-remove-one (the default) or replace-one.
    width
        Relative width of the bracket that ``get_epsilon`` returns the upper side of.

    Raises
    ------
    ValueError
        For any other relation.
    """

    def __init__(
        self,
        neighboring_relation: NeighboringRelation = (
            NeighboringRelation.ADD_OR_REMOVE_ONE
        ),
        width: float = 1e-3,
    ) -> None:
        if neighboring_relation not in _RELATIONS:
            raise ValueError(
                f"the certified account has no meaning for {neighboring_relation}; "
                "use ADD_OR_REMOVE_ONE or REPLACE_ONE"
            )
        super().__init__(neighboring_relation)
        self._width = width
        self._counts: dict[Release, int] = {}

    @property
    def certificate(self) -> Certificate:
        """All that was composed so far; its brackets are narrower on request."""
        entries = [Entry(release, count) for release, count in self._counts.items()]
        return Certificate.of(
            Ledger(nodes=(tuple(entries),)), _RELATIONS[self.neighboring_relation]
        )

    def epsilon_bracket(self, target_delta: float) -> Bracket:
        """Lower and upper bound on epsilon."""
        return self.certificate.epsilon(target_delta, self._width)

    def get_epsilon(self, target_delta: float) -> float:
        """Upper bound on epsilon at ``target_delta`` in [0, 1]."""
        return self.certificate.epsilon(target_delta, self._width, "upper").upper

    def get_delta(self, target_epsilon: float) -> float:
        """Upper bound on delta at ``target_epsilon`` >= 0."""
        return self.certificate.delta(target_epsilon, self._width, "upper").upper

    def _maybe_compose(
        self, event: dp_event.DpEvent, count: int, do_compose: bool
    ) -> PrivacyAccountant.CompositionErrorDetails | None:
        found: list[tuple[Release, int]] = []
        try:
            for release, times, part in releases(event, count):
                why = self._refusal(release)
                if why is not None:
                    raise UnknownEventError(part, why)
                found.append((release, times))
        except UnknownEventError as error:
            return PrivacyAccountant.CompositionErrorDetails(
                invalid_event=error.event, error_message=error.why
            )
        for release, times in found:
            if do_compose and times and release.sampling.rate:
                self._counts[release] = self._counts.get(release, 0) + times
        return None

    def _refusal(self, release: Release) -> str | None:
        """Why ``release`` cannot be accounted under the relation; None if it can."""
        relation = _RELATIONS[self.neighboring_relation]
        fixed = isinstance(release.sampling, SamplingWithoutReplacement)
        if fixed and relation != "replace-one":
            return (
                "a sample of fixed size has no meaning under add-or-remove-one; "
                "use REPLACE_ONE"
            )
        if (
            release.mechanism == "laplace"
            and isinstance(release.sampling, PoissonSampling)
            and relation == "replace-one"
        ):
            return (
                "Poisson sampled Laplace noise is accounted under add-or-remove-one "
                "only"
            )
        return None
