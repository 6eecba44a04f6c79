"""The certified account behind dp-accounting's interface."""

from __future__ import annotations

from dp_accounting import dp_event
from dp_accounting.privacy_accountant import NeighboringRelation, PrivacyAccountant

from privaudit.accounting.certificate import Certificate
from privaudit.ledger import Entry, Ledger
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    Sampling,
    SamplingWithoutReplacement,
)
from privaudit.results import Bracket, Relation

_RELATIONS: dict[NeighboringRelation, Relation] = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "add-or-remove-one",
    NeighboringRelation.REPLACE_ONE: "replace-one",
}
_NO_NOISE = Release.of_sum(norm_bound=1.0, noise_multiplier=0.0, sampling=NoSampling())


class CertifiedAccountant(PrivacyAccountant):
    """Certified epsilon and delta of Gaussian and Laplace events that may all differ.

    A noise multiplier is noise over the bound on *one record's norm*, as the events'
    own documentation has it: under replace-one the sensitivity is twice that bound.
    Lots are Poisson sampled under either relation, of fixed size under replace-one.

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
        sampling: Sampling = NoSampling()
        inner = event
        match event:
            case dp_event.NoOpDpEvent():
                return None
            case dp_event.NonPrivateDpEvent():
                if do_compose and count:
                    self._counts[_NO_NOISE] = self._counts.get(_NO_NOISE, 0) + count
                return None
            case dp_event.SelfComposedDpEvent():
                return self._maybe_compose(event.event, event.count * count, do_compose)
            case dp_event.ComposedDpEvent():
                for part in event.events:
                    error = self._maybe_compose(part, count, do_compose)
                    if error is not None:
                        return error
                return None
            case dp_event.PoissonSampledDpEvent():
                sampling = PoissonSampling(float(event.sampling_probability))
                inner = event.event
            case dp_event.SampledWithoutReplacementDpEvent():
                sampling = SamplingWithoutReplacement(
                    event.sample_size, event.source_dataset_size
                )
                inner = event.event
            case _:
                pass
        return self._compose_release(event, inner, sampling, count, do_compose)

    def _compose_release(
        self,
        event: dp_event.DpEvent,
        inner: dp_event.DpEvent,
        sampling: Sampling,
        count: int,
        do_compose: bool,
    ) -> PrivacyAccountant.CompositionErrorDetails | None:
        def refuse(why: str) -> PrivacyAccountant.CompositionErrorDetails:
            return PrivacyAccountant.CompositionErrorDetails(
                invalid_event=event, error_message=why
            )

        relation = _RELATIONS[self.neighboring_relation]
        fixed = isinstance(sampling, SamplingWithoutReplacement)
        if fixed and relation != "replace-one":
            return refuse(
                "a sample of fixed size has no meaning under add-or-remove-one; "
                "use REPLACE_ONE"
            )
        if isinstance(inner, dp_event.GaussianDpEvent):
            mechanism = "gaussian"
        elif isinstance(inner, dp_event.LaplaceDpEvent):
            mechanism = "laplace"
            if isinstance(sampling, PoissonSampling) and relation == "replace-one":
                return refuse(
                    "Poisson sampled Laplace noise is accounted under "
                    "add-or-remove-one only"
                )
        else:
            return refuse("only Gaussian and Laplace events are accounted")
        if not do_compose or count == 0 or sampling.rate == 0:
            return None
        release = Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=float(inner.noise_multiplier),
            sampling=sampling,
            mechanism=mechanism,
        )
        self._counts[release] = self._counts.get(release, 0) + count
        return None
