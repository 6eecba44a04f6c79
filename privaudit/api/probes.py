"""Deterministic checks for privacy bugs, of an algorithm or of a function."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privaudit.auditing.probes import Check
from privaudit.figure_settings import ProbeSettings
from privaudit.files.arguments import public
from privaudit.files.json import Summary
from privaudit.files.user_code import ForeignError, function_named, is_class, is_place
from privaudit.results import Relation


@dataclasses.dataclass(frozen=True, slots=True)
class Probed:
    """The result of probing an algorithm or a function: checks and findings."""

    what: str
    seed: int
    checks: tuple[Check, ...]
    unseen: tuple[str, ...] = ()

    @property
    def findings(self) -> list[str]:
        """A sentence for each bug that was found."""
        return [f"{one.name}: {bug}" for one in self.checks for bug in one.findings]

    summary = Summary("probed=what checks findings cannot_see=unseen seed")

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
        unseen = [f"not seen: {what}" for what in self.unseen]
        last = f"{end}; probes find bugs, they prove nothing"
        return [*table, *self.findings, *unseen, last]


@public
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
    null: ArrayLike | None = None,
) -> Probed:
    """Look for privacy bugs in your own release by checks that need no statistics.

    Parameters
    ----------
    release
        A function ``release(data, seed)`` that takes (records, features) floats and a
        whole number, and returns all that is released, as a vector. Equal seeds must
        give equal noise and equal batches. ``release(data, rng)``, the form of
        `privaudit.testing`, is called with ``numpy.random.default_rng(seed)``.
    sensitivity
        The promised bound on how far one record moves the release, in L2 norm. None:
        it is not checked.
    noise
        The promised standard deviation of the noise in each coordinate. None: it is not
        checked.
    rate
        The promised probability that a record is used at all, in (0, 1]. None: it is
        not checked.
    relation
        What neighbours differ in.
    records, features
        Shape of the made-up data.
    runs
        Number of seeds that it is called with, at least 20.
    seed
        The first of these seeds.
    null
        (features,): a record that contributes nothing or little; zeros by default. It
        takes the place of an absent record if one record more would change which random
        numbers are drawn, as with torch's samplers.

    Returns
    -------
    A `Probed`, with all ``checks``, ``findings`` (a sentence each), and ``unseen``,
    what was not looked at. Probes find bugs; no findings do not prove privacy.

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
        checks = tuple(_function(release, settings, null))
        return Probed(name, seed, checks, _unseen(checks, settings))
    except ForeignError as error:
        raise ValueError(str(error)) from error


def probe_named(
    what: str, settings: ProbeSettings, *, training: Mapping[str, Any] | None = None
) -> Probed:
    """Look for privacy bugs by deterministic checks, which need no statistics.

    ``what`` is an algorithm's name, ``module:Class`` or ``module:function``, and
    ``training`` has settings and options of an algorithm's training by name. Raises
    ``ValueError`` for a setting that is not for such a target, and
    `privaudit.files.user_code.ForeignError` if the function fails.
    """
    if ":" not in what or (is_place(what) and is_class(what)):
        checks = _algorithm(what, settings, training or {})
        return Probed(what, settings.seed, tuple(checks))
    if training:
        raise ValueError("--set is for our algorithms; a function has no settings")
    if settings.search is not None:
        raise ValueError("--search is for our algorithms; a function is given its seed")
    checks = _function(function_named(what), settings)
    return Probed(what, settings.seed, tuple(checks), _unseen(checks, settings))


def _unseen(checks: Sequence[Check], settings: ProbeSettings) -> tuple[str, ...]:
    """Faults that probes of a function cannot see, in words."""
    from privaudit.auditing.probes.function import PAIRED

    lines = [
        f"data other than {settings.records} made-up records of {settings.features} "
        "numbers",
        f"what happens in fewer than about one of {settings.runs} runs",
        "noise that depends on the seed in a way that others could repeat",
    ]
    if any(PAIRED in check.what for check in checks):
        lines.append(
            "what a record's presence alone gives away, but in the mean: one more "
            "shifts what is drawn"
        )
    if settings.rate is None:
        lines.append(
            "whether batches are Poisson sampled or shuffled: no rate is promised"
        )
    return tuple(lines)


def _function(
    release: Callable[[Any, int], Any],
    settings: ProbeSettings,
    null: ArrayLike | None = None,
) -> list[Check]:
    from privaudit.auditing.probes import function

    if null is not None:
        try:
            null = np.asarray(null, float)
        except (TypeError, ValueError):
            raise ValueError(f"null must be a list of numbers, got {null!r}") from None
        if null.shape != (settings.features,) or not np.isfinite(null).all():
            raise ValueError(
                f"null is one record of {settings.features} finite numbers, got shape "
                f"{null.shape}"
            )
    return function.probe(release, settings, null)


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
    made = training_upon(what, training, algorithm.PROBED, "--set")
    return algorithm.probe(made, settings)
