"""Values that change from step to step: clip norms, budgets, step sizes.

A schedule is a frozen function of the step k = 0, ..., steps - 1, and of the number of
steps; never of the data. Accountants and trainers read the same one. It can be written
in a TOML or JSON file, where the field ``type`` says which it is.

The Dyn-D2P paper counts its steps from 0 to K - 1 and scales by rho^(k/K), so that the
first step has the initial value, and the last one rho^((K-1)/K) times it, not rho.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from privaudit.files import csv as _csv


class _Schedule(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"
):
    """Base of all schedules."""

    def __call__(self, k: int, steps: int) -> float:
        """Value at step ``k`` of ``steps``.

        Raises ``ValueError`` if ``k`` is not one of 0, ..., ``steps`` - 1.
        """
        if not 0 <= k < steps:
            raise ValueError(
                f"step {k} is not one of 0, ..., {steps - 1} (there are {steps} steps)"
            )
        return float(self.values(steps)[k])

    def values(self, steps: int) -> NDArray[np.float64]:
        """Values at all steps, shape (steps,)."""
        raise NotImplementedError


class Constant(_Schedule, frozen=True, tag="constant"):
    """The same ``value`` > 0 at every step."""

    value: float

    def __post_init__(self) -> None:
        _check_positive("value", self.value)

    def values(self, steps: int) -> NDArray[np.float64]:
        return np.full(checked_steps(steps), float(self.value))


class _Changing(_Schedule, frozen=True):
    initial: float
    rho: float

    def __post_init__(self) -> None:
        _check_positive("initial", self.initial)
        if not 1 <= self.rho < math.inf:
            raise ValueError(
                f"rho must be >= 1 and finite, got {self.rho}; "
                "the paper's tables give its inverse, 1/rho"
            )


class Growing(_Changing, frozen=True, tag="growing"):
    """``initial`` * ``rho``^(k/K): the growing budget of the Dyn-D2P paper (eq. 7).

    Parameters
    ----------
    initial
        Value at step 0 (mu_0), > 0.
    rho
        Growth over all K steps, >= 1; the paper's tables give 1/rho.
    """

    def values(self, steps: int) -> NDArray[np.float64]:
        return self.initial * self.rho ** _share(steps)


class Shrinking(_Changing, frozen=True, tag="shrinking"):
    """``initial`` * ``rho``^(-k/K): the shrinking clip norm of the Dyn-D2P paper.

    Parameters
    ----------
    initial
        Value at step 0 (C_0), > 0.
    rho
        Decrease over all K steps, >= 1; the paper's tables give 1/rho.
    """

    def values(self, steps: int) -> NDArray[np.float64]:
        return self.initial * self.rho ** -_share(steps)


class Geometric(_Schedule, frozen=True, tag="geometric"):
    """From ``initial`` at step 0 to ``final`` at step K - 1, by equal factors.

    Both ends are taken: these are the step sizes, log-spaced, of the published code of
    DP-DSGD (Bayrooti, Gao and Prorok 2023). A single step has the initial value.
    """

    initial: float
    final: float

    def __post_init__(self) -> None:
        _check_positive("initial", self.initial)
        _check_positive("final", self.final)

    def values(self, steps: int) -> NDArray[np.float64]:
        if checked_steps(steps) < 2:
            return np.full(steps, float(self.initial))
        return np.geomspace(self.initial, self.final, steps)


class Listed(_Schedule, frozen=True, tag="listed"):
    """One value > 0 a step, as written; runs of fewer steps use the first ones."""

    items: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.items:
            raise ValueError("a listed schedule needs at least one value, got none")
        for k, value in enumerate(self.items):
            _check_positive(f"the value of step {k}", value)

    @classmethod
    def from_csv(cls, path: str | pathlib.Path, column: str) -> Listed:
        """The values in ``column`` of a CSV file with a header, one row a step.

        Raises ``ValueError`` if there is no such column, or a cell is no number > 0.
        """
        try:
            cells = _csv.rows(pathlib.Path(path), (column,))
            return cls(tuple(float(cell) for _, (cell,) in cells))
        except ValueError as error:
            raise ValueError(f"{path}, column {column!r}: {error}") from error

    def values(self, steps: int) -> NDArray[np.float64]:
        if steps > len(self.items):
            raise ValueError(
                f"this schedule lists {len(self.items)} steps, {steps} were asked for; "
                "list more, or run fewer"
            )
        return np.asarray(self.items[: checked_steps(steps)], dtype=np.float64)


class Quotient(_Schedule, frozen=True, tag="quotient"):
    """One schedule over another, such as the noise sigma_k = C_k / mu_k."""

    over: Schedule
    under: Schedule

    def values(self, steps: int) -> NDArray[np.float64]:
        return self.over.values(steps) / self.under.values(steps)


class Cosine(_Schedule, frozen=True, tag="cosine"):
    """From ``initial`` down to ``final``, not reached, by half a cosine.

    Loshchilov and Hutter 2017 (equation 5, without restarts).
    """

    initial: float
    final: float = 0.0

    def __post_init__(self) -> None:
        _check_positive("initial", self.initial)
        if not 0 <= self.final < math.inf:
            raise ValueError(f"final must be >= 0 and finite, got {self.final}")

    def values(self, steps: int) -> NDArray[np.float64]:
        half = (1 + np.cos(np.pi * _share(steps))) / 2
        return self.final + (self.initial - self.final) * half


class Parts(_Schedule, frozen=True, tag="parts"):
    """``initial``, and from each step in ``starts`` on the value in ``then``."""

    initial: float
    starts: tuple[int, ...]
    then: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_positive("initial", self.initial)
        if len(self.starts) != len(self.then):
            raise ValueError("a schedule by parts has a value for each start")
        if list(self.starts) != sorted({0, *self.starts} - {0}):
            raise ValueError(
                f"parts start after round 0, one after another, got {self.starts}"
            )
        for value in self.then:
            _check_positive("the value of a part", value)

    @classmethod
    def parsed(cls, initial: float, text: str) -> Parts:
        """From text such as ``100=0.1,150=0.01``; raises ``ValueError``."""
        try:
            pairs = [part.split("=") for part in text.split(",")]
            starts = tuple(int(start) for start, _ in pairs)
            then = tuple(float(value) for _, value in pairs)
        except ValueError:
            raise ValueError(
                "parts are first rounds and their step sizes, as in "
                f"parts:100=0.1,150=0.01, got parts:{text}"
            ) from None
        return cls(initial, starts, then)

    def values(self, steps: int) -> NDArray[np.float64]:
        found = np.full(checked_steps(steps), float(self.initial))
        for start, value in zip(self.starts, self.then, strict=True):
            found[start:] = value
        return found


class WarmUp(_Schedule, frozen=True, tag="warm-up"):
    """Rises to ``then``'s first value by equal steps over ``rounds``, then as that."""

    then: Constant | Geometric | Cosine | Parts
    rounds: int

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"a warm-up takes 1 round or more, got {self.rounds}")

    def values(self, steps: int) -> NDArray[np.float64]:
        if self.rounds >= checked_steps(steps):
            raise ValueError(
                f"a warm-up of {self.rounds} rounds leaves none of {steps}: use fewer"
            )
        rest = self.then.values(steps - self.rounds)
        rise = np.arange(1, self.rounds + 1) / (self.rounds + 1)
        return np.concatenate([rise * rest[0], rest])


Schedule = Constant | Growing | Shrinking | Geometric | Listed | Quotient


@runtime_checkable
class HasValues(Protocol):
    """Anything that gives its values at all steps, as a schedule does."""

    def values(self, steps: int) -> NDArray[np.float64]:
        """Shape (steps,)."""
        ...


def values_of(
    schedule: HasValues | Iterable[float], steps: int | None = None
) -> NDArray[np.float64]:
    """Values of a schedule over ``steps``, or of any list of numbers > 0 as it is.

    Raises ``ValueError`` if a schedule comes without ``steps``, a list has another
    length, or a value is not > 0 and finite.
    """
    if isinstance(schedule, HasValues):
        if steps is None:
            raise ValueError("a schedule needs the number of steps, got none")
        values = schedule.values(steps)
    else:
        values = np.asarray(list(schedule), dtype=np.float64)
        if steps is not None and len(values) != steps:
            raise ValueError(
                f"{steps} values are needed, one a step; got {len(values)}"
            )
    wrong = ~((values > 0) & np.isfinite(values))
    if wrong.any():
        k = int(np.argmax(wrong))
        raise ValueError(f"the value of step {k} must be > 0, got {values[k]}")
    return values


def _share(steps: int) -> NDArray[np.float64]:
    return np.arange(checked_steps(steps)) / max(steps, 1)


def checked_steps(steps: int) -> int:
    """``steps``; ``ValueError`` for less than 0."""
    if steps < 0:
        raise ValueError(f"the number of steps must be >= 0, got {steps}")
    return steps


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be > 0 and finite, got {value}")
