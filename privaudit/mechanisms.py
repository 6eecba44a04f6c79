"""Mechanisms that a ledger can hold besides sums with Gaussian or Laplace noise.

Make a release of one, and a ledger of releases::

    Release.of(RandomizedResponse(0.5, 4))            a report, one record replaced
    Release.of(DiscreteGaussian(2.0), PoissonSampling(0.01))
    Release.of(EpsilonDelta(1.0, 1e-6), relation="replace-one")

Each is accounted by a dominating pair: two output distributions that are at least as
easy to tell apart as those of any two neighbours. The pairs and their proofs are in
``privaudit/accounting/pld/mechanisms/``. A ``sensitivity`` bounds *one record's norm*:
replacing a record moves a sum by twice that.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar, get_args

import msgspec

from privaudit.files.arguments import take_fields
from privaudit.results import Relation

_BOTH: tuple[Relation, ...] = ("add-or-remove-one", "replace-one")
_LEAST, _MOST = 1e-9, 1e6  # of parameters; beyond, doubles do not tell losses apart
_MOST_ATOMS = 1 << 20


class Mechanism(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base class of the mechanisms in this module."""

    relations: ClassVar[tuple[Relation, ...]] = _BOTH

    @property
    def tells(self) -> bool:
        """Return whether its output reveals anything about a record."""
        return True

    def pure_under(self, relation: Relation) -> float | Fraction | None:
        """Epsilon at delta 0 where it is one of the parameters, without rounding."""
        return None


def _tuples(struct: msgspec.Struct, *names: str) -> None:
    """Make fields tuples of floats, from lists and arrays as well."""
    for name in names:
        given = getattr(struct, name)
        try:
            values = tuple(float(value) for value in given)
        except (TypeError, ValueError):
            raise ValueError(
                f"{name} must be a list of numbers, got {given!r}"
            ) from None
        msgspec.structs.force_setattr(struct, name, values)


def _float(struct: msgspec.Struct, name: str) -> float:
    """Make a field a plain float: with one of another kind, sums would be rounded."""
    take_fields(struct, name)
    value = float(getattr(struct, name))
    msgspec.structs.force_setattr(struct, name, value)
    return value


def _within(struct: msgspec.Struct, name: str, low: float, high: float) -> None:
    value = _float(struct, name)
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low:g} and {high:g}, got {value}")


def _whole(
    struct: msgspec.Struct, name: str, least: int, most: float = math.inf
) -> None:
    take_fields(struct, name)
    value = getattr(struct, name)
    if not least <= value <= most:
        top = "" if most == math.inf else f" and <= {most:g}"
        raise ValueError(f"{name} must be a whole number >= {least}{top}, got {value}")


class RandomizedResponse(Mechanism, frozen=True, tag="randomized-response"):
    """Randomized response: each record reports one of ``buckets`` values.

    With probability ``noise_parameter``, in (0, 1], the report is drawn uniformly from
    all buckets; otherwise it is the record's own value. It is accounted under
    replace-one only, since the presence of a report is not hidden.
    """

    relations: ClassVar[tuple[Relation, ...]] = ("replace-one",)
    noise_parameter: float
    buckets: int = 2

    def __post_init__(self) -> None:
        _within(self, "noise_parameter", 1e-300, 1.0)
        _whole(self, "buckets", 1)

    @property
    def tells(self) -> bool:
        """False if there is one bucket, or every report is drawn."""
        return self.buckets > 1 and self.noise_parameter < 1


class DiscreteGaussian(Mechanism, frozen=True, tag="discrete-gaussian"):
    """An integer sum with discrete Gaussian noise of parameter ``sigma``.

    Noise x has a probability proportional to exp(-x^2 / (2 sigma^2)). ``sensitivity``
    bounds the size of one record's integer. It is for one coordinate only: the joint
    privacy loss of several is not known to be this one.
    """

    sigma: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        _within(self, "sigma", 0.01, 1e4)
        _whole(self, "sensitivity", 0, 1e6)
        if self.sensitivity > 1000 * self.sigma:
            raise ValueError(
                f"sigma must be at least a thousandth of the sensitivity "
                f"{self.sensitivity}, got {self.sigma}"
            )

    @property
    def tells(self) -> bool:
        """False if every record's integer is 0."""
        return self.sensitivity > 0


class DiscreteLaplace(Mechanism, frozen=True, tag="discrete-laplace"):
    """Integer sums with discrete Laplace noise.

    Noise x has a probability proportional to ``exp(-parameter * abs(x))`` in each
    coordinate. ``sensitivity`` bounds the L1 norm of one record's integers.
    """

    parameter: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        _within(self, "parameter", _LEAST, _MOST)
        _whole(self, "sensitivity", 0, _MOST_ATOMS / 2)

    @property
    def tells(self) -> bool:
        """False if all integers of every record are 0."""
        return self.sensitivity > 0

    def pure_under(self, relation: Relation) -> Fraction:
        """The parameter times how far a record moves the sum."""
        moved = self.sensitivity * (2 if relation == "replace-one" else 1)
        return Fraction(self.parameter) * moved


class MixtureOfGaussians(Mechanism, frozen=True, tag="mixture-of-gaussians"):
    """A Gaussian release whose sensitivity is random (arXiv:2310.15526).

    Without the record the output is N(0, standard_deviation^2). With it the output is
    N(c, standard_deviation^2), where c is ``sensitivities[i]`` >= 0 with probability
    ``probabilities[i]`` (Choquette-Choo et al.). For add-or-remove-one.
    """

    relations: ClassVar[tuple[Relation, ...]] = ("add-or-remove-one",)
    standard_deviation: float
    sensitivities: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        _tuples(self, "sensitivities", "probabilities")
        _within(self, "standard_deviation", 1e-100, 1e100)
        if not 0 < len(self.sensitivities) == len(self.probabilities) <= 1000:
            raise ValueError(
                "a mixture of Gaussians has as many sensitivities as probabilities, 1 "
                f"to 1000, got {len(self.sensitivities)} and {len(self.probabilities)}"
            )
        for value in self.sensitivities:
            if not 0 <= value < math.inf:
                raise ValueError(f"sensitivities must be >= 0 and finite, got {value}")
            if value > 1e3 * self.standard_deviation:
                raise ValueError(
                    "standard_deviation must be at least a thousandth of every "
                    f"sensitivity, got {self.standard_deviation} for {value}"
                )
        _law("probabilities", self.probabilities)

    @property
    def tells(self) -> bool:
        """False if all sensitivities are 0."""
        shares = zip(self.sensitivities, self.probabilities, strict=True)
        return any(value and share for value, share in shares)


class TruncatedPoisson(Mechanism, frozen=True, tag="truncated-poisson"):
    """A Gaussian sum over a Poisson batch, cut at random to a largest size.

    Parameters
    ----------
    noise_multiplier
        Standard deviation of the noise divided by the norm bound.
    sampling_rate
        Probability that a record is drawn, before the batch is cut.
    batch_size
        Largest batch size. Of a larger batch a uniform draw of so many is kept.
    records
        Number of records in the data set.
    """

    noise_multiplier: float
    sampling_rate: float
    batch_size: int
    records: int

    def __post_init__(self) -> None:
        _within(self, "noise_multiplier", 2e-3, 1e4)
        _within(self, "sampling_rate", 0.0, 1.0)
        if 0 < self.sampling_rate < 1e-6:
            raise ValueError(
                f"sampling_rate must be 0 or at least 1e-6, got {self.sampling_rate}"
            )
        _whole(self, "batch_size", 0)
        _whole(self, "records", 0, 1e15)

    @property
    def tells(self) -> bool:
        """False if all batches are empty."""
        return self.sampling_rate > 0 and self.batch_size > 0 and self.records > 0


class _Selection(Mechanism, frozen=True):
    epsilon: float

    def __post_init__(self) -> None:
        _within(self, "epsilon", 0.0, 700.0)

    @property
    def tells(self) -> bool:
        """False if epsilon is 0."""
        return self.epsilon > 0

    def pure_under(self, relation: Relation) -> float:
        """Epsilon."""
        return self.epsilon


class ExponentialMechanism(_Selection, frozen=True, tag="exponential"):
    """The exponential mechanism, which is ``epsilon``-DP by its own theorem.

    Its privacy losses lie in an interval of length ``epsilon`` whose place depends on
    the data (bounded range: Durfee and Rogers 2019). That costs less than epsilon-DP
    alone.
    """


class PermuteAndFlip(_Selection, frozen=True, tag="permute-and-flip"):
    """Permute and flip, which is ``epsilon``-DP by its own theorem.

    So is a report of the noisy maximum with exponential or Laplace noise, of scale
    twice a score's sensitivity over ``epsilon``. All cost as much as Laplace noise of
    scale 1 / ``epsilon``, which is less than epsilon-DP alone.
    """


class EpsilonDelta(Mechanism, frozen=True, tag="epsilon-delta"):
    """Any mechanism of which only (epsilon, delta)-DP is known.

    The mechanism that was run may be more private; so a certificate has no lower side.
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        _within(self, "epsilon", 0.0, 700.0)
        if not 0 <= _float(self, "delta") < 1:
            raise ValueError(f"delta must be in [0, 1), got {self.delta}")

    @property
    def tells(self) -> bool:
        """Not if both are 0."""
        return self.epsilon > 0 or self.delta > 0

    def pure_under(self, relation: Relation) -> float | None:
        """Epsilon, if delta is 0."""
        return None if self.delta else self.epsilon


class ZCDP(Mechanism, frozen=True, tag="zcdp"):
    """Any mechanism of which (xi, rho)-zCDP is known (Bun and Steinke 2016).

    Its Renyi divergence of each order a > 1 is at most xi + rho a.
    """

    rho: float
    xi: float = 0.0

    def __post_init__(self) -> None:
        _within(self, "rho", 0.0, 1e4)
        _within(self, "xi", 0.0, 1e4)

    @property
    def tells(self) -> bool:
        """Not if both are 0."""
        return self.rho > 0 or self.xi > 0


class RDP(Mechanism, frozen=True, tag="rdp", omit_defaults=True):
    """Any mechanism whose Renyi divergence at ``orders[i]`` is <= ``divergences[i]``.

    The bounds hold in both directions; orders are > 1. If ``epsilons``, which rise from
    0, and ``deltas`` are given, it is also (epsilons[i], deltas[i])-DP for each i.
    """

    orders: tuple[float, ...]
    divergences: tuple[float, ...]
    epsilons: tuple[float, ...] = ()
    deltas: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _tuples(self, "orders", "divergences", "epsilons", "deltas")
        apart = zip(self.epsilons, self.epsilons[1:], strict=False)
        if len(self.epsilons) != len(self.deltas) or not (
            all(a < b <= 700 for a, b in apart) and not sum(self.epsilons[:1])
        ):
            raise ValueError(
                "epsilons rise from 0 to 700 at most, and each has a delta"
            )
        if not all(0 <= delta <= 1 for delta in self.deltas):
            raise ValueError(f"deltas must be in [0, 1], got {max(self.deltas)}")
        if not 0 < len(self.orders) == len(self.divergences) <= 1000:
            raise ValueError(
                "a Renyi curve has as many orders as divergences, 1 to 1000, got "
                f"{len(self.orders)} and {len(self.divergences)}"
            )
        if not all(order > 1 for order in self.orders):
            raise ValueError(f"Renyi orders must be > 1, got {min(self.orders)}")
        if not all(value >= 0 for value in self.divergences):
            raise ValueError(
                f"Renyi divergences must be >= 0, got {min(self.divergences)}"
            )

    @property
    def tells(self) -> bool:
        """False if all divergences are 0."""
        return any(value > 0 for value in self.divergences)


class DiscretePair(Mechanism, frozen=True, tag="discrete-pair"):
    """A mechanism given by a dominating pair on finitely many outputs.

    Output i has probability ``p[i]`` with the record, and ``q[i]`` without it; under
    replace-one, with one record and with the other, in either order. No two neighbours
    may be easier to tell apart than ``p`` and ``q``.
    """

    p: tuple[float, ...]
    q: tuple[float, ...]

    def __post_init__(self) -> None:
        _tuples(self, "p", "q")
        if not 0 < len(self.p) == len(self.q) <= _MOST_ATOMS:
            raise ValueError(
                "a pair has as many chances p as q, of the same outputs, got "
                f"{len(self.p)} and {len(self.q)}"
            )
        _law("p", self.p)
        _law("q", self.q)

    @property
    def tells(self) -> bool:
        """False if p and q are equal."""
        return self.p != self.q


def _law(name: str, values: tuple[float, ...]) -> None:
    for value in values:
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be in [0, 1], got {value}")
    if abs(math.fsum(values) - 1) > 1e-9:
        raise ValueError(f"{name} must sum to 1, got {math.fsum(values)}")


Any = (
    RandomizedResponse
    | DiscreteGaussian
    | DiscreteLaplace
    | MixtureOfGaussians
    | TruncatedPoisson
    | ExponentialMechanism
    | PermuteAndFlip
    | EpsilonDelta
    | ZCDP
    | RDP
    | DiscretePair
)
NAMES: dict[type, str] = {
    kind: str(kind.__struct_config__.tag) for kind in get_args(Any)
}
