"""Flower: an accountant for its strategies, and ledgers of its accountants' states.

Flower (1.41) has a protocol for accountants, ``flwr.serverapp.PrivacyAccountant``, and
strategies that ask one before each round, and stop at its budget. The unit is a client.

    Accountant  fulfils the protocol, certified from both sides; private apps are in
                `privaudit.api.flower`
    ledger_of   reads an accountant of Flower's, its state, or a strategy that has one;
                `privaudit.ledger_from` does so too

A ledger of Flower's is conditional: see `ROUNDS` and `FLOATS`.
"""

from __future__ import annotations

import copy
import numbers
from typing import Any

from privaudit.accounting.certificate import Certificate
from privaudit.files.arguments import public
from privaudit.ledger import Ledger, Recorder
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    Sampling,
    SamplingWithoutReplacement,
)
from privaudit.results import Relation

ROUNDS = (
    "each round's sum was of updates clipped to the strategy's norm, of clients "
    "as many and drawn as it says, of equal weight, and noise was added once"
)
FLOATS = (
    "Flower's noise, which is floating point numbers of numpy's generator, hides as "
    "much as exact noise would"
)
_NAMES = ("noise_multiplier", "sample_size", "population_size")
_EXACT = "certified, exact noise"
_SCHEMA = 1  # of a state, as Flower's own accountant writes it


def _sampling(method: str, size: int, population: int) -> Sampling:
    if method == "no-amplification":
        return NoSampling()
    if method == "poisson":
        return PoissonSampling(size / population)
    if method == "without-replacement":
        return SamplingWithoutReplacement(size, population)
    raise ValueError(f"there is no sampling {method!r} of clients")


def _release(event: dict[str, Any], method: str, of: Any) -> Release:
    """A noisy sum of clipped updates: noise over the clip norm, as strategies have it.

    Replacing a client moves the sum by twice the clip norm. ``of``: the population that
    the configuration has.
    """
    noise, size, population = (event[name] for name in _NAMES)
    whole = [isinstance(one, numbers.Integral) for one in (size, population)]
    if not all(whole) or not 1 <= size <= population:
        raise ValueError(
            "an event's sample_size and population_size are whole numbers, 1 <= "
            f"sample_size <= population_size, got {size!r} and {population!r}"
        )
    if population != of:
        raise ValueError(
            f"an event of a population of {population}, where config has {of}"
        )
    sampling = _sampling(method, size, population)
    return Release.of_sum(norm_bound=1.0, noise_multiplier=noise, sampling=sampling)


def _word(value: Any) -> str:
    """A text, or the value of one of Flower's enumerations."""
    return str(getattr(value, "value", value))


def _kind(exact: bool) -> str:
    return "exact" if exact else "floating point"


def is_flower(source: Any) -> bool:
    """Return whether ``source`` is something that `ledger_of` reads."""
    if isinstance(source, dict):
        return "compositions" in source
    return any(
        kind.__module__.partition(".")[0] == "flwr" for kind in type(source).__mro__
    )


def ledger_of(source: Any) -> Ledger:
    """Ledger of what a Flower accountant composed: one node, whose unit is a user.

    Nothing that was composed is no ledger: of what was trained nothing is known then.

    Parameters
    ----------
    source
        An accountant, its ``state_dict()``, or a strategy with an ``accountant``.

    Raises
    ------
    ValueError
        If it is none of these, its state is of another version or has no release, or an
        event is of another population than its configuration.

    Examples
    --------
    >>> event = {"noise_multiplier": 1.0, "sample_size": 10, "population_size": 100}
    >>> state = {
    ...     "schema_version": 1,
    ...     "config": {"sampling_method": "poisson", "population_size": 100},
    ...     "compositions": [{"event": event, "count": 50}],
    ... }
    >>> ledger_of(state).nodes[0][0].count
    50
    """
    ledger = _read(source)
    if not ledger.nodes[0]:
        raise ValueError(
            "no release was composed, and nothing is known of what was trained: give "
            "the strategy its accountant before its rounds, and read it after them"
        )
    return ledger


def _read(source: Any) -> Ledger:
    """As `ledger_of`, of what composed nothing too."""
    known = getattr(source, "accountant", source)
    state = known if isinstance(known, dict) else None
    if state is None and hasattr(known, "state_dict"):
        state = known.state_dict()
    if not isinstance(state, dict) or "compositions" not in state:
        raise ValueError(
            "a ledger of Flower's comes from its accountant, the accountant's state or "
            f"a strategy with an accountant, got {type(source).__name__}"
        )
    if state.get("schema_version") != _SCHEMA:
        raise ValueError(
            f"the accountant's state is of version {state.get('schema_version')!r}, "
            f"and {_SCHEMA} is known"
        )
    try:
        method = _word(state["config"]["sampling_method"])
        population = state["config"]["population_size"]
        recorder = Recorder(1, unit="user")
        for one in state["compositions"]:
            release = _release(one["event"], method, population)
            recorder.record(0, release, one["count"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the accountant's state is not Flower's: {error}") from None
    recorder.assume(ROUNDS)
    if state.get("backend") != _EXACT:
        recorder.assume(FLOATS)
    return recorder.ledger()


class Accountant:
    """Certified account of a Flower server's rounds, for strategies that take one.

    Pass it as ``accountant=`` of ``DifferentialPrivacyServerSideFixedClipping`` and its
    like. Epsilon is an upper bound, by the best of several provers.

    Parameters
    ----------
    config
        A ``flwr.serverapp.PrivacyConfig``.

    Attributes
    ----------
    ledger
        All that was composed, for `privaudit.Certificate` and `privaudit.epsilon`;
        ``ValueError`` if that is nothing.
    exact
        Whether noise is exact, as `privaudit.api.flower.ExactClipping` sets it: its
        ledger does not assume `FLOATS` then. All rounds are of one kind.

    Raises
    ------
    ValueError
        If an event is of another population than ``config``, a value is out of its
        range, or ``exact`` is changed after a round.

    Examples
    --------
    >>> import types
    >>> config = types.SimpleNamespace(
    ...     target_delta=1e-5, population_size=100, max_epsilon=4.0,
    ...     neighboring_relation="add-or-remove-one", sampling_method="poisson",
    ... )
    >>> event = types.SimpleNamespace(
    ...     noise_multiplier=1.0, sample_size=10, population_size=100
    ... )
    >>> accountant = Accountant(config)
    >>> accountant.compose(event, 20)
    >>> 3.4 < accountant.get_epsilon(1e-5) < 3.6
    True
    >>> accountant.would_exceed(event, count=20)
    True
    """

    @public
    def __init__(self, config: Any) -> None:
        self._config = copy.copy(config)  # no later change is of rounds that were
        self._relation: Relation = _word(config.neighboring_relation)  # type: ignore[assignment]
        self._method = _word(config.sampling_method)
        self._composed: list[tuple[dict[str, Any], int]] = []
        self._exact = False

    @property
    def exact(self) -> bool:
        """True if noise is exact, in all rounds."""
        return self._exact

    @exact.setter
    def exact(self, value: bool) -> None:
        if self._composed and value != self._exact:
            raise ValueError(
                f"{self.num_releases} rounds had {_kind(self._exact)} noise, and later "
                f"ones would have {_kind(value)}: use the strategy that they had, or "
                "begin again with a new accountant"
            )
        self._exact = value

    @property
    def config(self) -> Any:
        """A copy of the privacy configuration."""
        return copy.copy(self._config)

    @property
    def num_releases(self) -> int:
        """Number of composed releases."""
        return sum(count for _, count in self._composed)

    @property
    def ledger(self) -> Ledger:
        """All that was composed."""
        return ledger_of(self.state_dict())

    def compose(self, event: Any, count: int = 1) -> None:
        """Add ``count`` equal releases of Flower's ``GaussianPrivacyEvent``."""
        self._composed.append(self._entry(event, count))

    def get_epsilon(self, delta: float) -> float:
        """Return an upper bound on epsilon at ``delta``, in (0, 1)."""
        return self._certificate(()).epsilon(delta).upper if self._composed else 0.0

    def get_delta(self, epsilon: float) -> float:
        """Return an upper bound on delta at ``epsilon``, >= 0."""
        return self._certificate(()).delta(epsilon).upper if self._composed else 0.0

    def get_privacy_spent(self, delta: float | None = None) -> Any:
        """Return what was spent, as ``flwr.serverapp.PrivacySpent``."""
        from flwr.serverapp import PrivacySpent

        at = self._config.target_delta if delta is None else delta
        return PrivacySpent(
            epsilon=self.get_epsilon(at),
            delta=at,
            num_releases=self.num_releases,
            accounting_method="certified",
        )

    def would_exceed(
        self, event: Any, max_epsilon: float | None = None, count: int = 1
    ) -> bool:
        """Return whether ``count`` more releases are not certified to meet the budget.

        ``max_epsilon`` is the budget; None: that of the configuration. Composes
        nothing.
        """
        most = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if most is None:
            raise ValueError("there is no budget: give max_epsilon, here or in config")
        certificate = self._certificate((self._entry(event, count),))
        return not certificate.epsilon(self._config.target_delta).upper <= most

    def state_dict(self) -> dict[str, object]:
        """Return what was composed, as JSON can hold it; Flower's own form."""
        config = self._config
        return {
            "schema_version": _SCHEMA,
            "backend": _EXACT if self.exact else "certified",
            "config": {
                "target_delta": config.target_delta,
                "population_size": config.population_size,
                "neighboring_relation": self._relation,
                "sampling_method": self._method,
                "max_epsilon": config.max_epsilon,
            },
            "compositions": [
                {"event": dict(event), "count": count}
                for event, count in self._composed
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what `state_dict` gave, or that of Flower's own accountant.

        Raises ``ValueError`` if it is of another configuration or kind of noise, or
        this accountant has composed rounds: they would be forgotten.
        """
        _read(state)
        if state["config"] != self.state_dict()["config"]:
            raise ValueError("the state is of another privacy configuration")
        if (exact := state.get("backend") == _EXACT) != self._exact:
            raise ValueError(
                f"the state is of {_kind(exact)} noise, and this accountant of "
                f"{_kind(self._exact)}: make the strategy that its rounds had with "
                "this accountant before the state is loaded"
            )
        if self._composed:
            raise ValueError(
                f"this accountant has composed {self.num_releases} rounds, which the "
                "state would replace: load it into a new accountant, before any round"
            )
        self._composed = [
            self._entry(one["event"], one["count"]) for one in state["compositions"]
        ]

    def _entry(self, event: Any, count: int) -> tuple[dict[str, Any], int]:
        if type(count) is not int or count < 1:
            raise ValueError(f"count must be a whole number from 1 on, got {count!r}")
        if not isinstance(event, dict):
            event = {name: getattr(event, name) for name in _NAMES}
        self._release(event)
        return dict(event), count

    def _release(self, event: dict[str, Any]) -> Release:
        return _release(event, self._method, self._config.population_size)

    def _certificate(self, more: tuple[tuple[dict[str, Any], int], ...]) -> Certificate:
        recorder = Recorder(1, unit="user")
        for event, count in (*self._composed, *more):
            recorder.record(0, self._release(event), count)
        return Certificate.of(recorder.ledger(), self._relation)
