"""Mechanisms other than sums with Gaussian or Laplace noise, as a ledger names them.

    Release.of(RandomizedResponse(0.5, 4))            a report, one record replaced
    Release.of(DiscreteGaussian(2.0), PoissonSampling(0.01))
    Release.of(EpsilonDelta(1.0, 1e-6), relation="replace-one")

Each is accounted by a pair of outputs that no neighbours are easier to tell apart than;
the pairs and their proofs are in ``privaudit/accounting/pld/mechanisms/``. Bounds on a
record's share are on *one record's norm*: replacing a record moves a sum by twice that.
"""

from __future__ import annotations

import math
from typing import ClassVar

import msgspec

from privaudit.results import Relation

_BOTH: tuple[Relation, ...] = ("add-or-remove-one", "replace-one")
_LEAST, _MOST = 1e-9, 1e6  # of parameters; beyond, doubles do not tell losses apart
_MOST_ATOMS = 1 << 20


class Mechanism(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the mechanisms here have in common."""

    relations: ClassVar[tuple[Relation, ...]] = _BOTH

    @property
    def tells(self) -> bool:
        """Whether anything at all can be learned from it."""
        return True


def _tuples(struct: msgspec.Struct, *names: str) -> None:
    """Make fields tuples of floats, from lists and arrays as well."""
    for name in names:
        values = tuple(float(value) for value in getattr(struct, name))
        msgspec.structs.force_setattr(struct, name, values)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low:g} and {high:g}, got {value}")


def _whole(name: str, value: float, least: int, most: float = math.inf) -> None:
    if value != int(value) or not least <= value <= most:
        top = "" if most == math.inf else f" and <= {most:g}"
        raise ValueError(f"{name} must be a whole number >= {least}{top}, got {value}")


class RandomizedResponse(Mechanism, frozen=True, tag="randomized-response"):
    """One record's own report of one of ``buckets`` values.

    With probability ``noise_parameter``, in (0, 1], it is drawn uniformly from all
    buckets, else it is the record's. Only for replace-one: a report is there or not.
    """

    relations: ClassVar[tuple[Relation, ...]] = ("replace-one",)
    noise_parameter: float
    buckets: int = 2

    def __post_init__(self) -> None:
        _within("noise_parameter", self.noise_parameter, 1e-300, 1.0)
        _whole("buckets", self.buckets, 1)

    @property
    def tells(self) -> bool:
        """Not if there is one bucket, or every report is drawn."""
        return self.buckets > 1 and self.noise_parameter < 1


class DiscreteGaussian(Mechanism, frozen=True, tag="discrete-gaussian"):
    """A sum of integers with a weight of exp(-x^2 / (2 sigma^2)) on each noise x.

    ``sensitivity`` bounds the size of one record's integer. One coordinate: of several
    in one release the joint loss is not known to be this one.
    """

    sigma: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        _within("sigma", self.sigma, 0.01, 1e4)
        _whole("sensitivity", self.sensitivity, 0, 1e6)
        if self.sensitivity > 1000 * self.sigma:
            raise ValueError(
                f"sigma must be at least a thousandth of the sensitivity "
                f"{self.sensitivity}, got {self.sigma}"
            )

    @property
    def tells(self) -> bool:
        """Not if no record's integer is other than 0."""
        return self.sensitivity > 0


class DiscreteLaplace(Mechanism, frozen=True, tag="discrete-laplace"):
    """Sums of integers with a weight of ``exp(-parameter |x|)`` on each noise x.

    ``sensitivity`` bounds the L1 norm of one record's integers.
    """

    parameter: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        _within("parameter", self.parameter, _LEAST, _MOST)
        _whole("sensitivity", self.sensitivity, 0, _MOST_ATOMS / 2)

    @property
    def tells(self) -> bool:
        """Not if no record's integers are other than 0."""
        return self.sensitivity > 0


class MixtureOfGaussians(Mechanism, frozen=True, tag="mixture-of-gaussians"):
    """N(c, standard_deviation^2) with c drawn, against N(0, standard_deviation^2).

    With the record c is ``sensitivities[i]`` >= 0 with ``probabilities[i]``, without it
    0 (Choquette-Choo et al., arXiv:2310.15526). For add-or-remove-one.
    """

    relations: ClassVar[tuple[Relation, ...]] = ("add-or-remove-one",)
    standard_deviation: float
    sensitivities: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        _tuples(self, "sensitivities", "probabilities")
        _within("standard_deviation", self.standard_deviation, 1e-100, 1e100)
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
        """Not if all sensitivities are 0."""
        shares = zip(self.sensitivities, self.probabilities, strict=True)
        return any(value and share for value, share in shares)


class TruncatedPoisson(Mechanism, frozen=True, tag="truncated-poisson"):
    """A Gaussian sum of a Poisson batch that is cut to a largest size at random.

    Parameters
    ----------
    noise_multiplier
        Noise over the norm bound.
    sampling_rate
        Chance of each record to be drawn, before the batch is cut.
    batch_size
        Largest batch: of more, so many are kept, all choices alike.
    records
        How many records the data set has.
    """

    noise_multiplier: float
    sampling_rate: float
    batch_size: int
    records: int

    def __post_init__(self) -> None:
        _within("noise_multiplier", self.noise_multiplier, 2e-3, 1e4)
        _within("sampling_rate", self.sampling_rate, 0.0, 1.0)
        if 0 < self.sampling_rate < 1e-6:
            raise ValueError(
                f"sampling_rate must be 0 or at least 1e-6, got {self.sampling_rate}"
            )
        _whole("batch_size", self.batch_size, 0)
        _whole("records", self.records, 0)

    @property
    def tells(self) -> bool:
        """Not if all batches are empty."""
        return self.sampling_rate > 0 and self.batch_size > 0 and self.records > 0


class ExponentialMechanism(Mechanism, frozen=True, tag="exponential"):
    """The exponential mechanism that is ``epsilon``-DP by its own theorem.

    Its losses lie in some interval of length ``epsilon`` that depends on the data
    (bounded range: Durfee and Rogers 2019), which costs less than epsilon-DP does.
    """

    epsilon: float

    def __post_init__(self) -> None:
        _within("epsilon", self.epsilon, 0.0, 700.0)

    @property
    def tells(self) -> bool:
        """Not if epsilon is 0."""
        return self.epsilon > 0


class EpsilonDelta(Mechanism, frozen=True, tag="epsilon-delta"):
    """Any mechanism of which only (epsilon, delta)-DP is known.

    The one that was run may give less: a certificate has no lower side.
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        _within("epsilon", self.epsilon, 0.0, 700.0)
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must be in [0, 1), got {self.delta}")

    @property
    def tells(self) -> bool:
        """Not if both are 0."""
        return self.epsilon > 0 or self.delta > 0


class ZCDP(Mechanism, frozen=True, tag="zcdp"):
    """Any mechanism whose Renyi divergence of each order a is at most xi + rho a.

    Zero-concentrated differential privacy (Bun and Steinke 2016).
    """

    rho: float
    xi: float = 0.0

    def __post_init__(self) -> None:
        _within("rho", self.rho, 0.0, 1e4)
        _within("xi", self.xi, 0.0, 1e4)

    @property
    def tells(self) -> bool:
        """Not if both are 0."""
        return self.rho > 0 or self.xi > 0


class RDP(Mechanism, frozen=True, tag="rdp"):
    """Any mechanism whose Renyi divergence at ``orders[i]`` is <= ``divergences[i]``.

    In both directions; orders are > 1.
    """

    orders: tuple[float, ...]
    divergences: tuple[float, ...]

    def __post_init__(self) -> None:
        _tuples(self, "orders", "divergences")
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
        """Not if all divergences are 0."""
        return any(value > 0 for value in self.divergences)


class DiscretePair(Mechanism, frozen=True, tag="discrete-pair"):
    """Outputs with chances ``p`` with the record, and ``q`` without it.

    No two neighbours may be easier to tell apart. Under replace-one of one record and
    of the other, in whichever order.
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
        """Not if p and q are the same."""
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
    | EpsilonDelta
    | ZCDP
    | RDP
    | DiscretePair
)
NAMES: dict[type, str] = {
    kind: str(kind.__struct_config__.tag)
    for kind in (
        RandomizedResponse,
        DiscreteGaussian,
        DiscreteLaplace,
        MixtureOfGaussians,
        TruncatedPoisson,
        ExponentialMechanism,
        EpsilonDelta,
        ZCDP,
        RDP,
        DiscretePair,
    )
}
