"""Runs that have not happened: noise and sampling step by step, as a ledger."""

from __future__ import annotations

import fractions
import functools
import math
import pathlib
import reprlib

import msgspec
import numpy as np
from numpy.typing import NDArray

from privaudit.files import csv as _csv
from privaudit.files import toml as _toml
from privaudit.ledger import Ledger, Recorder
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    Sampling,
    SamplingWithoutReplacement,
)
from privaudit.schedules import Growing, Schedule
from privaudit.settings import Mechanism, ReleaseSettings, Scheme

_MOST_LISTED = 10_000_000
_MOST_RECORDS = 10**12


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a TOML plan says; a schedule is a table with its ``type``."""

    steps: int
    noise_multiplier: float | Schedule
    sampling_rate: float | Schedule = 1.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Noise multipliers and sampling rates of each step, at one node.

    Parameters
    ----------
    noise_multiplier
        Noise over a record's norm bound, one a step; relative if it is to be scaled.
    sampling_rate
        In (0, 1], one a step.
    count
        How many times each step is made, one after another.
    scheme, mechanism
        Of every step.
    """

    noise_multiplier: NDArray[np.float64]
    sampling_rate: NDArray[np.float64]
    count: int = 1
    scheme: Scheme = "poisson"
    mechanism: Mechanism = "gaussian"

    def __post_init__(self) -> None:
        for name, low, high in (
            ("noise_multiplier", 0.0, math.inf),
            ("sampling_rate", 0.0, 1.0),
        ):
            values = getattr(self, name)
            wrong = ~((values > low) & (values <= high) & np.isfinite(values))
            if wrong.any():
                k = int(np.argmax(wrong))
                allowed = "> 0 and finite" if high == math.inf else "in (0, 1]"
                raise ValueError(f"{name} must be {allowed}, got {values[k]:g} at {k}")
        if self.scheme == "none" and (self.sampling_rate < 1).any():
            raise ValueError(
                "a sampling rate below 1 needs a sampling scheme: poisson or "
                "without-replacement"
            )

    @classmethod
    def of(cls, settings: ReleaseSettings) -> Plan:
        """Noise relative to the first step's (or as the schedule says)."""
        kind = settings.sampling or "poisson", settings.mechanism
        if settings.schedule is not None:
            return cls.from_file(settings.schedule, *kind)
        rate, steps = settings.sampling_rate, settings.steps
        if settings.growing_budget is not None:
            return cls.growing_budget(settings.growing_budget, rate, steps, *kind)
        return cls.constant(1.0, rate, steps, *kind)

    @classmethod
    def constant(
        cls,
        noise_multiplier: float,
        sampling_rate: float,
        steps: int,
        scheme: Scheme = "poisson",
        mechanism: Mechanism = "gaussian",
    ) -> Plan:
        """``steps`` equal steps."""
        return cls(
            noise_multiplier=np.array([float(noise_multiplier)]),
            sampling_rate=np.array([float(sampling_rate)]),
            count=_checked_steps(steps),
            scheme=scheme,
            mechanism=mechanism,
        )

    @classmethod
    def growing_budget(
        cls,
        rho: float,
        sampling_rate: float,
        steps: int,
        scheme: Scheme = "poisson",
        mechanism: Mechanism = "gaussian",
    ) -> Plan:
        """Noise that falls as 1 / mu_k, mu_k = rho^(k/K) (Dyn-D2P, eq. 7), mu_0 = 1."""
        budgets = Growing(1.0, rho).values(_checked_steps(steps))
        return cls(
            noise_multiplier=1 / budgets,
            sampling_rate=np.full(steps, float(sampling_rate)),
            scheme=scheme,
            mechanism=mechanism,
        )

    @classmethod
    def from_file(
        cls,
        path: pathlib.Path,
        scheme: Scheme = "poisson",
        mechanism: Mechanism = "gaussian",
    ) -> Plan:
        """A CSV with the columns noise_multiplier and sampling_rate, or a TOML file.

        A TOML file has ``steps``, and for each of the two a number or a schedule, such
        as ``noise_multiplier = {type = "shrinking", initial = 2.0, rho = 1.5}``.

        Raises ``ValueError`` if it is neither, or a value is out of range.
        """
        try:
            if path.suffix == ".csv":
                noise, rate = _read_csv(path)
            elif path.suffix == ".toml":
                noise, rate = _read_toml(path)
            else:
                raise ValueError("a plan is a .csv or a .toml file")
            return cls(
                noise_multiplier=noise,
                sampling_rate=rate,
                scheme=scheme,
                mechanism=mechanism,
            )
        except (ValueError, msgspec.DecodeError) as error:
            raise ValueError(f"{path}: {error}") from error
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror}") from error

    def ledger(self, scale: float = 1.0, steps: int | None = None) -> Ledger:
        """What it would release, with all noise times ``scale``.

        ``steps`` replaces the count of a constant plan.
        """
        recorder = Recorder(1)
        count = self.count if steps is None else steps
        of_rate = functools.cache(lambda rate: _sampling(self.scheme, rate))
        for z, rate in zip(
            (self.noise_multiplier * scale).tolist(),
            self.sampling_rate.tolist(),
            strict=True,
        ):
            release = Release.of_sum(
                norm_bound=1.0,
                noise_multiplier=z,
                sampling=of_rate(rate),
                mechanism=self.mechanism,
            )
            recorder.record(0, release, count)
        return recorder.ledger()


def _sampling(scheme: Scheme, rate: float) -> Sampling:
    if scheme == "none" or (rate == 1 and scheme == "poisson"):
        return NoSampling()
    if scheme == "poisson":
        return PoissonSampling(rate)
    # As written in decimals, so that .01 is 1 of 100; never less.
    written = fractions.Fraction(repr(rate))
    share = written.limit_denominator(_MOST_RECORDS)
    if share < written:
        share = fractions.Fraction(math.ceil(written * _MOST_RECORDS), _MOST_RECORDS)
    return SamplingWithoutReplacement(share.numerator, share.denominator)


def _checked_steps(steps: int) -> int:
    if steps < 0:
        raise ValueError(f"the number of steps must be >= 0, got {steps}")
    return steps


def _read_csv(path: pathlib.Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    values = []
    for line, cells in _csv.rows(path, ("noise_multiplier", "sampling_rate")):
        try:
            values.append([float(cell) for cell in cells])
        except ValueError:
            noise, rate = map(reprlib.repr, cells)
            raise ValueError(
                f"line {line} must hold two numbers, got {noise} and {rate}"
            ) from None
    if not values:
        raise ValueError("there is no step in it")
    columns = np.array(values, dtype=np.float64).T
    return columns[0], columns[1]


def _read_toml(path: pathlib.Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    plan = msgspec.convert(_toml.read(path), _File)
    if not 0 <= plan.steps <= _MOST_LISTED:
        raise ValueError(f"steps must be from 0 to {_MOST_LISTED:,}, got {plan.steps}")
    arrays = [
        np.full(plan.steps, value)
        if isinstance(value, float)
        else value.values(plan.steps)
        for value in (plan.noise_multiplier, plan.sampling_rate)
    ]
    return arrays[0], arrays[1]
