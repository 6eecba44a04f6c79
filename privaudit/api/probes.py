"""Deterministic checks for privacy bugs, of an algorithm or of a function."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

from privaudit.auditing.probes.contract import Check
from privaudit.files.user_code import is_class, is_place
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
    found = _function if foreign else _algorithm
    return Probed(what, settings.seed, tuple(found(what, settings, training or {})))


def _function(
    what: str, settings: ProbeSettings, training: Mapping[str, Any]
) -> list[Check]:
    from privaudit.auditing.probes import function
    from privaudit.files.user_code import function_named

    if training:
        raise ValueError("--set is for our algorithms; a function has no settings")
    if settings.search is not None:
        raise ValueError("--search is for our algorithms; a function is given its seed")
    return function.probe(
        function_named(what),
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
