"""One release of private data: its mechanism, bound, noise, sensitivity and sampling.

What one of dp-accounting's events leaves implicit is said here, under each neighbouring
relation.
"""

from __future__ import annotations

import functools
import math
import typing
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from privaudit import mechanisms
from privaudit.files.arguments import number, take_fields
from privaudit.results import Relation, check_relation

if TYPE_CHECKING:  # a second of import time, and only for those who want an event
    from dp_accounting import DpEvent


def _are_buffers(pairs: tuple[tuple[float, float], ...]) -> bool:
    mass = math.fsum(m for m, _ in pairs)
    return mass <= 1 and all(m >= 0 <= decay < 1 for m, decay in pairs)


def _doubles(struct: msgspec.Struct, *names: str) -> None:
    """Make fields plain floats: of a shorter kind, sums would be rounded to it."""
    for name in names:
        value = getattr(struct, name)
        if value is not None and type(value) is not float:
            msgspec.structs.force_setattr(struct, name, float(value))


class PoissonSampling(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag="poisson",
    omit_defaults=True,
):
    """Each record enters a batch by its own coin, with probability ``rate``.

    ``parts``: each record is in one of so many, whose turns come one after another; a
    release is a turn of a part, and other parts have no more. Records of one group may
    be in several. ``shares``: how far a turn moves the sums that follow its first, over
    that; or ``buffers``, by which it moves all later ones, of its part's turns number
    ``turn`` = 0, 1, ... ``secret``: whether each record's part is drawn uniformly and
    by itself, once, and stays secret as coins do. See docs/factorisation.md.
    """

    rate: float
    parts: int = 1
    shares: tuple[float, ...] = ()
    buffers: tuple[tuple[float, float], ...] = ()
    turn: int = 0
    secret: bool = False

    def __post_init__(self) -> None:
        if type(self.rate) is not float:
            take_fields(self, "rate")
        if not 0 <= self.rate <= 1:
            raise ValueError(
                f"Sampling rate of Poisson sampling must be in [0, 1], got {self.rate}"
            )
        if type(self.parts) is not int:
            take_fields(self, "parts")
        if not self.parts >= 1:
            raise ValueError(f"records are in one part or more, got {self.parts}")
        if self.shares and not (
            len(self.shares) < self.parts and all(map(math.isfinite, self.shares))
        ):
            raise ValueError(
                f"sums of {self.parts} parts share noise with fewer than so many "
                f"others, by finite numbers, got {self.shares}"
            )
        if self.buffers and (self.shares or not _are_buffers(self.buffers)):
            raise ValueError(
                "buffers are pairs (m, l), 0 <= l < 1, m >= 0 of sum at most 1, and "
                f"come without shares, got {self.buffers}"
            )
        if type(self.turn) is not int:
            take_fields(self, "turn")
        if not self.turn >= 0 or (self.turn and not self.buffers):
            raise ValueError(
                f"turns by buffers are number 0, 1, and so on, got {self.turn}"
            )
        if self.secret and not self.parts > 1:
            raise ValueError(f"parts that stay secret are 2 or more, got {self.parts}")
        _doubles(self, "rate")


class SamplingWithoutReplacement(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="without-replacement"
):
    """Each batch is a uniform draw of exactly ``size`` of ``population`` records."""

    size: int
    population: int

    def __post_init__(self) -> None:
        take_fields(self, "size", "population")
        if not 0 <= self.size <= self.population:
            raise ValueError(
                f"a batch of {self.size} cannot be drawn without replacement from "
                f"{self.population} records; it must be between 0 and that number"
            )

    @property
    def rate(self) -> float:
        """Share of the records that are in a batch."""
        return self.size / self.population if self.population else 0.0


class NoSampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="none"):
    """Every record is used in the release."""

    @property
    def rate(self) -> float:
        """Always 1."""
        return 1.0


class RandomAllocation(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="random-allocation"
):
    """Each record enters ``taken`` of an epoch's ``batches`` batches, drawn at random.

    The batches of a record are drawn uniformly, independently of other records and anew
    for every epoch, and stay secret. In a node's ledger, every ``batches`` releases in
    a row with equal values of this are one epoch. ``shuffled``: not by itself, but as a
    uniform order of all records, drawn anew and in secret for every epoch, is cut into
    ``batches`` of one size; what is left over, less than a batch, is in none.
    """

    batches: int
    taken: int = 1
    shuffled: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        take_fields(self, "batches", "taken", "shuffled")
        if self.shuffled is not UNSET and (self.taken > 1 or not self.shuffled):
            raise ValueError(
                "of shuffled batches a record is in one: leave taken at 1, and "
                f"shuffled true or out, got taken={self.taken}, "
                f"shuffled={self.shuffled}"
            )
        if not 1 <= self.taken <= self.batches:
            raise ValueError(
                f"a record cannot be in {self.taken} of {self.batches} batches of an "
                "epoch; it is in at least one and at most all"
            )

    @property
    def rate(self) -> float:
        """Share of the batches that a record is in."""
        return self.taken / self.batches


_RELATIONS = {
    "add-or-remove-one": "add_or_remove_one",
    "replace-one": "replace_one",
}
Sampling = PoissonSampling | SamplingWithoutReplacement | RandomAllocation | NoSampling
_SAMPLINGS = typing.get_args(Sampling)
_NAMED = msgspec.Meta(
    extra_json_schema={"enum": ["gaussian", "laplace", *mechanisms.NAMES.values()]}
)


class Sensitivity(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """Largest move of a release by one record, before noise, under each relation.

    It is in the norm and the unit of the release. None means that a relation has no
    meaning, as add-or-remove-one for a sample of fixed size. For such samples
    ``replace_one`` must bound the distance of any two different records, since a record
    that is not in the sample leaves its place to another.
    """

    add_or_remove_one: float | None = None
    replace_one: float | None = None

    def __post_init__(self) -> None:
        take_fields(self, "add_or_remove_one", "replace_one")
        for name in ("add_or_remove_one", "replace_one"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"sensitivity {name} must be >= 0, got {value}")
        _doubles(self, "add_or_remove_one", "replace_one")


@functools.lru_cache(maxsize=64)  # a plan has as many releases as steps
def _of_sum(norm_bound: float, fixed: bool) -> Sensitivity:
    return Sensitivity(
        add_or_remove_one=None if fixed else norm_bound, replace_one=2 * norm_bound
    )


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One release: a vector computed from private data, published with noise.

    Parameters
    ----------
    mechanism
        ``gaussian`` (sensitivity in L2) or ``laplace`` (in L1), independent in each
        coordinate.
    norm_bound
        Largest norm of what one record (or one unit, if that is not a record)
        contributes: L2 for gaussian, L1 for laplace; infinity if nothing bounds it.
    noise
        Standard deviation (gaussian) or scale b (laplace) per coordinate, in the unit
        of ``norm_bound``. Public factors, such as a step size, are left out of both.
        Zero means that the exact value was published.
    sensitivity
        The sensitivity under each relation, in the same unit.
    sampling
        How the records of the release were drawn.
    details
        Parameters of any other mechanism (`privaudit.mechanisms`), which ``mechanism``
        names. Then ``norm_bound`` and ``noise`` are 1, and a sensitivity is 1, 0 if the
        release reveals nothing, or None if the relation has no meaning. Made by `of`.
    """

    mechanism: Annotated[str, _NAMED]
    norm_bound: float
    noise: float
    sensitivity: Sensitivity
    sampling: Sampling
    details: mechanisms.Any | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.details is not UNSET:
            self._check_details()
        elif self.mechanism not in ("gaussian", "laplace"):
            raise ValueError(
                f"a mechanism is gaussian or laplace, got {self.mechanism!r}; "
                "others are in privaudit.mechanisms, for Release.of"
            )
        if not isinstance(self.sampling, _SAMPLINGS):
            raise ValueError(
                "sampling is PoissonSampling(rate), SamplingWithoutReplacement(size, "
                "population), RandomAllocation(batches) or NoSampling(), got "
                f"{self.sampling!r}"
            )
        if not isinstance(self.sensitivity, Sensitivity):
            raise ValueError(
                "sensitivity is a privaudit.release.Sensitivity, got "
                f"{self.sensitivity!r}"
            )
        if not type(self.norm_bound) is type(self.noise) is float:
            take_fields(self, "norm_bound", "noise")
            _doubles(self, "norm_bound", "noise")
        if not self.norm_bound > 0:
            raise ValueError(f"norm_bound must be > 0, got {self.norm_bound}")
        if not self.noise >= 0:
            raise ValueError(f"noise must be finite and >= 0, got {self.noise}")
        if self.noise > 0 and self.norm_bound == math.inf:
            raise ValueError(
                "noise without a bound on each record's norm protects nothing: "
                "clip, or record the release with noise 0"
            )
        if self.noise == math.inf:
            raise ValueError("noise must be finite and >= 0, got inf")

    def _check_details(self) -> None:
        assert self.details is not UNSET
        name = mechanisms.NAMES.get(type(self.details))
        if name is None or name != self.mechanism:
            raise ValueError(
                f"details of a {self.mechanism} mechanism are one of "
                f"privaudit.mechanisms, got {self.details!r}; use Release.of"
            )
        if (self.norm_bound, self.noise) != (1.0, 1.0):
            raise ValueError(
                f"the noise of a {name} mechanism is in its details: norm_bound and "
                f"noise are 1, got {self.norm_bound} and {self.noise}"
            )
        moved = self.sensitivity
        told = {moved.add_or_remove_one, moved.replace_one} - {None}
        if told != {1.0 if self.details.tells else 0.0}:
            raise ValueError(
                f"the sensitivities of a {name} mechanism are 1, 0 if it tells "
                f"nothing, or null without a meaning, got {moved}; use Release.of"
            )
        absent = set(_RELATIONS) - set(self.details.relations)
        if any(getattr(moved, _RELATIONS[relation]) is not None for relation in absent):
            raise ValueError(
                f"a {name} mechanism has a meaning under "
                f"{' and '.join(self.details.relations)} only"
            )
        if not isinstance(self.sampling, PoissonSampling | NoSampling):
            raise ValueError(
                f"a {name} mechanism is accounted unsampled or Poisson sampled, got "
                f"{self.sampling}"
            )
        if name == "truncated-poisson" and not isinstance(self.sampling, NoSampling):
            raise ValueError(
                "a truncated Poisson batch is sampled already: its rate is in the "
                "details, and sampling is NoSampling()"
            )

    def of_known_part(self) -> Release:
        """Return the release of a record whose part is known; itself if none is secret.

        What a turn alone is accounted as: all turns of a record are of one part.
        """
        how = self.sampling
        if not (isinstance(how, PoissonSampling) and how.secret):
            return self
        known = msgspec.structs.replace(how, secret=False)
        return msgspec.structs.replace(self, sampling=known)

    @classmethod
    def of(
        cls,
        mechanism: mechanisms.Any,
        sampling: Sampling | None = None,
        *,
        relation: Relation | None = None,
    ) -> Release:
        """Make a release by one of `privaudit.mechanisms`.

        Parameters
        ----------
        mechanism
            The mechanism that was run, with its parameters.
        sampling
            How its records were drawn: `NoSampling` (the default), or
            `PoissonSampling`, which is accounted under add-or-remove-one.
        relation
            The only relation under which the mechanism's parameters hold. None: every
            relation under which the mechanism has a meaning.

        >>> from privaudit.mechanisms import EpsilonDelta
        >>> release = Release.of(EpsilonDelta(1.0, 1e-6), relation="replace-one")
        >>> release.mechanism, release.sensitivity.add_or_remove_one
        ('epsilon-delta', None)
        """
        name = mechanisms.NAMES.get(type(mechanism))
        if name is None:
            raise ValueError(
                "a mechanism is one of privaudit.mechanisms: "
                f"{', '.join(kind.__name__ for kind in mechanisms.NAMES)}; got "
                f"{mechanism!r}"
            )
        if relation is not None and check_relation(relation) not in mechanism.relations:
            raise ValueError(
                f"a {name} mechanism has a meaning under "
                f"{' and '.join(mechanism.relations)} only, got {relation!r}"
            )
        moved = 1.0 if mechanism.tells else 0.0
        held = mechanism.relations if relation is None else (relation,)
        return cls(
            mechanism=name,  # pyrefly: ignore[bad-argument-type]
            norm_bound=1.0,
            noise=1.0,
            sensitivity=Sensitivity(
                **{_RELATIONS[one]: moved if one in held else None for one in held}
            ),
            sampling=NoSampling() if sampling is None else sampling,
            details=mechanism,
        )

    @classmethod
    def of_sum(
        cls,
        *,
        norm_bound: float,
        noise_multiplier: float,
        sampling: Sampling,
        mechanism: Literal["gaussian", "laplace"] = "gaussian",
    ) -> Release:
        """Make a noisy sum of sampled records' vectors, each of norm <= ``norm_bound``.

        ``noise_multiplier`` is the noise divided by ``norm_bound``. Adding or removing
        a record moves the sum by at most ``norm_bound``, replacing one by at most twice
        that. A sample of fixed size has no meaning under add-or-remove-one.
        """
        fixed = isinstance(sampling, SamplingWithoutReplacement) or (
            isinstance(sampling, RandomAllocation) and sampling.shuffled is True
        )
        norm_bound = number("norm_bound", norm_bound)  # 10 and 10.0 are one ledger
        noise_multiplier = number("noise_multiplier", noise_multiplier)
        return cls(
            mechanism=mechanism,
            norm_bound=norm_bound,
            noise=noise_multiplier * norm_bound if noise_multiplier else 0.0,
            sensitivity=_of_sum(norm_bound, fixed),
            sampling=sampling,
        )

    @property
    def is_private(self) -> bool:
        """Return whether any noise was added."""
        return self.noise > 0

    def sensitivity_under(self, relation: Relation) -> float:
        """Sensitivity under ``relation``; ``ValueError`` if it has no meaning."""
        value = getattr(self.sensitivity, _RELATIONS[check_relation(relation)])
        if value is None:
            other = (
                "replace-one"
                if relation == "add-or-remove-one"
                else "add-or-remove-one"
            )
            why = ""
            if other == "replace-one" and self.details is UNSET:
                why = (
                    ", as where batches, shuffled or drawn, have a fixed size and one "
                    "record more moves others"
                )
            raise ValueError(
                f"this release has no sensitivity under {relation}: it is known under "
                f"{other} only{why}; account it under {other}"
            )
        return value

    def noise_over_sensitivity(self, relation: Relation) -> float:
        """Noise divided by the sensitivity under ``relation``.

        Infinity if the release reveals nothing. Raises ``ValueError`` for a mechanism
        with details, whose noise is not one number.
        """
        sensitivity = self.sensitivity_under(relation)
        if sensitivity == 0:
            return math.inf
        if self.details is not UNSET:
            raise ValueError(
                f"a {self.mechanism} mechanism has no noise over sensitivity; use the "
                "certified account"
            )
        return self.noise / sensitivity

    def opposed_norm(self) -> float:
        """Norm C for which two opposite records are the worst pair of a Poisson batch.

        Under replace-one the two outputs are N(u) and N(v), each mixed with N(0): what
        tells them apart is how far u is from v, and how far both are from 0. N(C) and
        N(-C) are at least as far in both ways: C is half the sensitivity, or the norm
        bound if that is more; 0 if no replacement moves anything.
        """
        moved = self.sensitivity_under("replace-one")
        return max(moved / 2, self.norm_bound) if moved else 0.0

    def event(self) -> DpEvent:
        """dp-accounting's event for this release, noise over *norm bound* as it says.

        Where a sensitivity is more than that bound makes it, noise over that.

        Its accountants do not agree on what that means under replace-one (0.6.0: the
        PLD accountant doubles the sensitivity, the RDP accountant does not), so ours
        read ``sensitivity`` instead.
        """
        import dp_accounting as dpa

        if not self.is_private:
            return dpa.NonPrivateDpEvent()
        if not isinstance(self.details, UnsetType):
            event = _event_of(self.details)
            if isinstance(self.sampling, PoissonSampling):
                return dpa.PoissonSampledDpEvent(self.sampling.rate, event)
            return event
        kind = {"gaussian": dpa.GaussianDpEvent, "laplace": dpa.LaplaceDpEvent}
        moved = self.sensitivity
        bound = max(
            self.norm_bound, moved.add_or_remove_one or 0, (moved.replace_one or 0) / 2
        )
        return sampled(kind[self.mechanism](self.noise / bound), self.sampling)


def sampled(event: DpEvent, sampling: Sampling) -> DpEvent:
    """dp-accounting's event of ``event`` on batches."""
    import dp_accounting as dpa

    match sampling:
        case PoissonSampling(rate=rate):
            return dpa.PoissonSampledDpEvent(rate, event)
        case SamplingWithoutReplacement(size=size, population=population):
            return dpa.SampledWithoutReplacementDpEvent(population, size, event)
        case RandomAllocation():
            raise ValueError(
                "dp-accounting 0.6 has no event for random allocation: use the "
                "certified account, and to keep what was released the ledger itself "
                "(Ledger.to_json), which --ledger reads as well"
            )
        case NoSampling():
            return event


def _event_of(details: mechanisms.Any) -> DpEvent:
    import dp_accounting as dpa
    from dp_accounting import dp_event

    match details:
        case mechanisms.RandomizedResponse():
            return dpa.RandomizedResponseDpEvent(
                details.noise_parameter, details.buckets
            )
        case mechanisms.DiscreteLaplace():
            return dp_event.DiscreteLaplaceDpEvent(
                details.parameter, details.sensitivity
            )
        case mechanisms.MixtureOfGaussians():
            return dp_event.MixtureOfGaussiansDpEvent(
                details.standard_deviation,
                list(details.sensitivities),
                list(details.probabilities),
            )
        case mechanisms.ZCDP():
            return dpa.ZCDpEvent(details.rho, details.xi)
        case mechanisms.TruncatedPoisson():
            return dpa.TruncatedSubsampledGaussianDpEvent(
                details.records,
                details.sampling_rate,
                details.batch_size,
                details.noise_multiplier,
            )
    newer: dict[type, str] = {
        mechanisms.ExponentialMechanism: "ExponentialMechanismDpEvent",
        mechanisms.PermuteAndFlip: "PermuteAndFlipDpEvent",
        mechanisms.EpsilonDelta: "EpsilonDeltaDpEvent",
        mechanisms.DiscreteGaussian: "DiscreteGaussianDpEvent",
    }
    kind = getattr(dp_event, newer.get(type(details), ""), None)
    if kind is None:
        raise ValueError(
            f"this dp-accounting has no event for {type(details).__name__}; use the "
            "certified account"
        )
    fields = msgspec.structs.asdict(details)
    return kind(**fields, **({"dimension": 1} if "sigma" in fields else {}))
