"""Ledgers of planned runs: noise and sampling given step by step."""

from __future__ import annotations

import fractions
import functools
import math
import pathlib
import reprlib
from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from privaudit.figure_settings import Mechanism, ReleaseSettings, check_scheme
from privaudit.files import csv as _csv
from privaudit.files import json as _json
from privaudit.files import toml as _toml
from privaudit.ledger import Ledger, Recorder
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    RandomAllocation,
    Release,
    Sampling,
    SamplingWithoutReplacement,
    Sensitivity,
)
from privaudit.schedules import Growing, Schedule, checked_steps
from privaudit.task_settings import batches_taken

COLUMNS = ("noise_multiplier", "sampling_rate", "steps")  # of a schedule's .csv
_MOST_LISTED = 10_000_000
_MOST_RECORDS = 10**12

SHUFFLED = (
    "shuffled batches: from above one release a pass and record, without "
    "amplification; from below what some data attain if each pass is shuffled anew, in "
    "secret, and the last, smaller batch is dropped (Chua et al. 2024). Draw "
    "batches by random allocation or by Poisson sampling to get amplification; "
    "reshuffled has some, if every pass surely is"
)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of a TOML plan; a schedule is a table with its ``type``."""

    steps: int
    noise_multiplier: float | Schedule
    sampling_rate: float | Schedule = 1.0


class Plan(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The noise multiplier and sampling rate of each step of a run, at one node."""

    # noise divided by a record's norm bound, one per step; relative if the plan is to
    # be scaled
    noise_multiplier: NDArray[np.float64]
    sampling_rate: NDArray[np.float64]  # sampling rates in (0, 1], one per step
    # how many times each step is repeated in a row: one number, or one per step
    count: int | NDArray[np.int64] = 1
    # scheme, mechanism: sampling scheme and noise distribution of every step
    scheme: str = "poisson"
    mechanism: Mechanism = "gaussian"

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.sampling_rate, "step {}".format)
        check_scheme(self.scheme)
        if self.scheme == "none" and (self.sampling_rate < 1).any():
            raise ValueError(
                "a sampling rate below 1 needs a sampling scheme: poisson, "
                "random-allocation, shuffled, reshuffled or without-replacement"
            )
        epochs = "shuffled" in self.scheme or batches_taken(self.scheme)
        if epochs and np.unique(self.sampling_rate).size > 1:
            raise ValueError(
                f"the batches of an epoch with sampling {self.scheme} have one "
                "sampling rate; it must not change from step to step"
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
        scheme: str = "poisson",
        mechanism: Mechanism = "gaussian",
    ) -> Plan:
        """Make a plan of ``steps`` equal steps."""
        return cls(
            noise_multiplier=np.array([float(noise_multiplier)]),
            sampling_rate=np.array([float(sampling_rate)]),
            count=checked_steps(steps),
            scheme=scheme,
            mechanism=mechanism,
        )

    @classmethod
    def growing_budget(
        cls,
        rho: float,
        sampling_rate: float,
        steps: int,
        scheme: str = "poisson",
        mechanism: Mechanism = "gaussian",
    ) -> Plan:
        """Noise that falls as 1 / mu_k, mu_k = rho^(k/K) (Dyn-D2P, eq. 7), mu_0 = 1."""
        return cls(
            noise_multiplier=1 / Growing(1.0, rho).values(steps),
            sampling_rate=np.full(steps, float(sampling_rate)),
            scheme=scheme,
            mechanism=mechanism,
        )

    @classmethod
    def from_file(
        cls,
        path: pathlib.Path,
        scheme: str = "poisson",
        mechanism: Mechanism = "gaussian",
    ) -> Plan:
        """A CSV with the columns noise_multiplier and sampling_rate, or a TOML file.

        A column steps says how many steps a row stands for. A TOML file has ``steps``,
        and numbers or schedules: ``noise_multiplier = {type = "shrinking", initial =
        2.0, rho = 1.5}``.
        """
        try:
            if path.suffix == ".csv":
                table = _read_csv(path)
            elif path.suffix == ".toml":
                table = _read_toml(path)
            else:
                raise ValueError("a plan is a .csv or a .toml file")
            return cls.from_table(table, scheme, mechanism)
        except (ValueError, msgspec.DecodeError) as error:
            raise ValueError(f"{path}: {error}") from error
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror}") from error

    @classmethod
    def from_table(
        cls,
        table: NDArray[np.float64],
        scheme: str = "poisson",
        mechanism: Mechanism = "gaussian",
    ) -> Plan:
        """Plan from noise multipliers, rates, perhaps steps.  # (rows, 2 or 3)"""
        if table.ndim != 2 or table.shape[1] not in (2, 3):
            raise ValueError(
                "a schedule has a noise multiplier and a sampling rate for every step, "
                "or these two and how many such steps there are, got an array of shape "
                f"{table.shape}"
            )
        return cls(
            noise_multiplier=table[:, 0],
            sampling_rate=table[:, 1],
            count=1 if table.shape[1] == 2 else _counts(table[:, 2], "row {}".format),
            scheme=scheme,
            mechanism=mechanism,
        )

    def ledger(self, scale: float = 1.0, steps: int | None = None) -> Ledger:
        """Make the ledger, with noise times ``scale``; ``steps`` of a constant."""
        recorder = Recorder(1)
        noise = self.noise_multiplier * scale
        counts = np.broadcast_to(self.count if steps is None else steps, noise.shape)
        self._check_epochs(int(counts.sum()))
        made = 0
        for z, sampling, rate, count in zip(
            noise.tolist(),
            self._samplings,
            self.sampling_rate.tolist(),
            counts.tolist(),
            strict=True,
        ):
            release = Release.of_sum(
                norm_bound=1.0,
                noise_multiplier=z,
                sampling=sampling,
                mechanism=self.mechanism,
            )
            if self.scheme == "shuffled":
                parts = math.ceil(1 / _share(rate))  # with a shorter one, left out
                # A record that is gone shifts the batches of all others.
                moved = Sensitivity(replace_one=release.sensitivity.replace_one)
                one = msgspec.structs.replace(release, sensitivity=moved)
                for one_pass, some in _passes(made, count, rate):
                    recorder.record(0, one, some, disjoint=one_pass, dealt=parts)
                made += count
            else:
                recorder.record(0, release, count)
        return recorder.ledger()

    @functools.cached_property
    def _samplings(self) -> list[Sampling]:
        of_rate = functools.cache(lambda rate: _sampling(self.scheme, rate))
        return [of_rate(rate) for rate in self.sampling_rate.tolist()]

    def beside(self, others: Iterable[Ledger]) -> Callable[[float], Ledger]:
        """From a scale to what it would release, after what ``others`` did."""
        released = list(others)
        return lambda scale: Ledger.composed([self.ledger(scale), *released])

    def _check_epochs(self, steps: int) -> None:
        if batches_taken(self.scheme) is None or not self.sampling_rate.size:
            return
        rate = float(self.sampling_rate[0])
        how = _allocation(self.scheme, rate)
        if how.taken > 1 and how.batches > max(steps, 1) and ":" not in self.scheme:
            raise ValueError(
                f"a sampling rate of {rate:g} is {how.taken:,} of {how.batches:,} "
                f"batches, more than the {steps:,} steps; give one over the number of "
                "batches of an epoch, in all its digits"
            )


def _sampling(scheme: str, rate: float) -> Sampling:
    if scheme in ("none", "shuffled") or (rate == 1 and scheme == "poisson"):
        return NoSampling()
    if scheme == "poisson":
        return PoissonSampling(rate)
    if batches_taken(scheme) is not None:
        return _allocation(scheme, rate)
    share = _share(rate)
    if scheme == "reshuffled":
        return RandomAllocation(math.floor(1 / share), shuffled=True)
    return SamplingWithoutReplacement(share.numerator, share.denominator)


def _allocation(scheme: str, rate: float) -> RandomAllocation:
    """In lowest terms, unless the scheme says how many batches a record is in."""
    share = _share(rate)
    if ":" not in scheme:
        return RandomAllocation(share.denominator, share.numerator)
    batches = (batches_taken(scheme) or 1) / share
    if batches.denominator > 1:
        raise ValueError(
            f"a sampling rate of {rate:g} with sampling {scheme} would be "
            f"{batches_taken(scheme)} of {float(batches):g} batches; give k over the "
            "number of batches of an epoch, in all its digits"
        )
    return RandomAllocation(int(batches), batches_taken(scheme) or 1)


def _share(rate: float) -> fractions.Fraction:
    """Fraction that ``rate`` is in decimals (.01 is 1 of 100), or a little more."""
    written = fractions.Fraction(repr(rate))
    share = written.limit_denominator(_MOST_RECORDS)
    if share < written:
        share = fractions.Fraction(math.ceil(written * _MOST_RECORDS), _MOST_RECORDS)
    return share


def _passes(made: int, count: int, rate: float) -> Iterator[tuple[int, int]]:
    """Number of each pass and its steps, for ``count`` steps after ``made``."""
    batches = math.floor(1 / _share(rate))
    while count:
        some = min(count, batches - made % batches)
        yield made // batches, some
        made, count = made + some, count - some


def _counts(
    steps: NDArray[np.float64], place: Callable[[int], str]
) -> NDArray[np.int64]:
    """Number of steps each row stands for, checked."""
    wrong = ~((steps >= 0) & (steps <= _MOST_RECORDS) & (steps == np.floor(steps)))
    if wrong.any():
        k = int(np.argmax(wrong))
        raise ValueError(
            f"{place(k)}: steps must be a whole number from 0 to {_MOST_RECORDS:g}, "
            f"got {steps[k]:g}"
        )
    return steps.astype(np.int64)


def _read_csv(path: pathlib.Path) -> NDArray[np.float64]:
    values, numbers = [], []
    for line, cells in _csv.rows(path, COLUMNS[:2], COLUMNS[2:]):
        try:
            values.append([float(cell) for cell in cells])
        except ValueError:
            told = " and ".join(map(reprlib.repr, cells))
            raise ValueError(f"line {line} must hold numbers, got {told}") from None
        numbers.append(line)
    if not values:
        raise ValueError("there is no step in it")
    table = np.array(values, dtype=np.float64)

    def place(k: int) -> str:
        return f"line {numbers[k]}"

    _check(table[:, 0], table[:, 1], place)
    if table.shape[1] > 2:
        _counts(table[:, 2], place)
    return table


def _check(
    noise: NDArray[np.float64],
    rate: NDArray[np.float64],
    place: Callable[[int], str],
) -> None:
    """Raise ``ValueError`` for what is out of range, and say in which ``place``."""
    for name, values, most, allowed in (
        ("noise_multiplier", noise, math.inf, "> 0 and finite"),
        ("sampling_rate", rate, 1.0, "in (0, 1]"),
    ):
        wrong = ~((values > 0) & (values <= most) & np.isfinite(values))
        if wrong.any():
            k = int(np.argmax(wrong))
            raise ValueError(f"{place(k)}: {name} must be {allowed}, got {values[k]:g}")


def _read_toml(path: pathlib.Path) -> NDArray[np.float64]:
    plan = _json.convert(_toml.read(path), _File)
    if not 0 <= plan.steps <= _MOST_LISTED:
        raise ValueError(f"steps must be from 0 to {_MOST_LISTED:,}, got {plan.steps}")
    arrays = [
        np.full(plan.steps, value)
        if isinstance(value, float)
        else value.values(plan.steps)
        for value in (plan.noise_multiplier, plan.sampling_rate)
    ]
    return np.stack(arrays, axis=1)
