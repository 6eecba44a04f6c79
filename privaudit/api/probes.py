"""Deterministic checks for privacy bugs, of an algorithm or of a function."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from privaudit.auditing.probes.contract import Check
from privaudit.files.user_code import ForeignError, function_named, is_class, is_place
from privaudit.results import Relation
from privaudit.settings import ProbeSettings


@dataclasses.dataclass(frozen=True, slots=True)
class Probed:
    """What the checks of one algorithm or function found."""

    what: str
    seed: int
    checks: tuple[Check, ...]

    @property
    def findings(self) -> list[str]:
        """Each bug, in a sentence."""
        return [f"{one.name}: {bug}" for one in self.checks for bug in one.findings]

    def summary(self) -> dict[str, Any]:
        """All checks, for JSON."""
        return {
            "probed": self.what,
            "checks": [
                {**msgspec.to_builtins(one), "status": one.status}
                for one in self.checks
            ],
            "findings": self.findings,
            "seed": self.seed,
        }

    def lines(self) -> list[str]:
        """A table, the findings, and what they are worth."""
        wide = max(len(one.name) for one in self.checks)
        table = [
            f"{one.name:<{wide}}  {one.status:<13}  {one.skipped or one.what}"
            for one in self.checks
        ]
        many = len(self.findings)
        count = "one finding" if many == 1 else f"{many} findings"
        end = count if many else "nothing was found"
        return [*table, *self.findings, f"{end}; probes find bugs, they prove nothing"]


def probe(
    release: Callable[[Any, int], Any],
    *,
    sensitivity: float | None = None,
    noise: float | None = None,
    rate: float | None = None,
    relation: Relation = "replace-one",
    records: int = 20,
    features: int = 5,
    runs: int = 200,
    seed: int = 0,
) -> Probed:
    """Look for privacy bugs of a user's own release that need no statistics.

    Parameters
    ----------
    release
        From records, (records, features) floats, and a seed to a vector: all that is
        released. Equal seeds must give equal noise and equal batches.
    sensitivity
        The most that one record is said to move it, in L2 norm; None: nothing is said.
    noise
        Its noise's standard deviation in each coordinate, as is said.
    rate
        How likely a record is used at all, in (0, 1].
    relation
        What neighbours differ in.
    records, features
        Shape of the made-up data.
    runs
        Seeds that it is called with, at least 20.
    seed
        The first of them.

    Returns
    -------
    All checks, and ``findings``, a sentence each. Probes find bugs and prove nothing.

    Raises
    ------
    ValueError
        If a value is out of its range, or ``release`` fails or gives no finite vector
        of one length.

    Examples
    --------
    >>> import numpy as np
    >>> import privaudit as pa
    >>> def noisy_sum(data, seed):  # records are not clipped
    ...     return data.sum(0) + 2 * np.random.default_rng(seed).normal(size=5)
    >>> found = pa.probe(noisy_sum, sensitivity=1.0, noise=2.0)
    >>> [check.name for check in found.checks if check.findings]
    ['sensitivity']
    """
    if not callable(release):
        raise ValueError(
            f"release is a function of data and a seed, got {type(release).__name__}"
        )
    settings = ProbeSettings(
        sensitivity=sensitivity,
        noise=noise,
        rate=rate,
        relation=relation,
        records=records,
        features=features,
        runs=runs,
        seed=seed,
    )
    name = getattr(release, "__name__", type(release).__name__)
    try:
        return Probed(name, seed, tuple(_function(release, settings)))
    except ForeignError as error:
        raise ValueError(str(error)) from error


def probe_named(
    what: str,
    settings: ProbeSettings,
    *,
    training: Mapping[str, Any] | None = None,
) -> Probed:
    """Look for privacy bugs that need no statistics: one record or the noise differs.

    Parameters
    ----------
    what
        An algorithm's name, your own as ``module:Class``, or ``module:function``.
    settings
        What is probed, and how often.
    training
        Settings and options of an algorithm's training by name.

    Raises
    ------
    ValueError
        If a setting is out of its range, or is not for such a target.
    privaudit.files.user_code.ForeignError
        If the function fails.
    """
    foreign = ":" in what and not (is_place(what) and is_class(what))
    if foreign:
        checks = _named_function(what, settings, training or {})
    else:
        checks = _algorithm(what, settings, training or {})
    return Probed(what, settings.seed, tuple(checks))


def _named_function(
    what: str, settings: ProbeSettings, training: Mapping[str, Any]
) -> list[Check]:
    if training:
        raise ValueError("--set is for our algorithms; a function has no settings")
    if settings.search is not None:
        raise ValueError("--search is for our algorithms; a function is given its seed")
    return _function(function_named(what), settings)


def _function(
    release: Callable[[Any, int], Any], settings: ProbeSettings
) -> list[Check]:
    from privaudit.auditing.probes import function

    return function.probe(
        release,
        function.Promise(
            relation=settings.relation,
            sensitivity=settings.sensitivity,
            noise=settings.noise,
            rate=settings.rate,
        ),
        records=settings.records,
        features=settings.features,
        runs=settings.runs,
        seed=settings.seed,
    )


def _algorithm(
    what: str, settings: ProbeSettings, training: Mapping[str, Any]
) -> list[Check]:
    from privaudit.auditing.experiments.presets import training_upon
    from privaudit.auditing.probes import algorithm

    for name in ("sensitivity", "noise", "rate"):
        if getattr(settings, name) is not None:
            raise ValueError(
                f"--{name} is for a function of yours; our algorithms are held "
                "against their ledger"
            )
    return algorithm.probe(
        training_upon(what, training, algorithm.PROBED, "--set"),
        noise_multiplier=settings.noise_multiplier,
        runs=settings.runs,
        seed=settings.seed,
        search=algorithm.SEARCH if settings.search is None else settings.search,
    )
