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
    """What all schedules share."""

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
        return np.full(_check_steps(steps), float(self.value))


class Growing(_Schedule, frozen=True, tag="growing"):
    """``initial`` * ``rho``^(k/K): the growing budget of the Dyn-D2P paper (eq. 7).

    Parameters
    ----------
    initial
        Value at step 0 (mu_0), > 0.
    rho
        Growth over all K steps, >= 1; the paper's tables give 1/rho.
    """

    initial: float
    rho: float

    def __post_init__(self) -> None:
        _check_positive("initial", self.initial)
        _check_ratio(self.rho)

    def values(self, steps: int) -> NDArray[np.float64]:
        return self.initial * self.rho ** _share(steps)


class Shrinking(_Schedule, frozen=True, tag="shrinking"):
    """``initial`` * ``rho``^(-k/K): the shrinking clip norm of the Dyn-D2P paper.

    Parameters
    ----------
    initial
        Value at step 0 (C_0), > 0.
    rho
        Decrease over all K steps, >= 1; the paper's tables give 1/rho.
    """

    initial: float
    rho: float

    def __post_init__(self) -> None:
        _check_positive("initial", self.initial)
        _check_ratio(self.rho)

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
        if _check_steps(steps) < 2:
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
        return np.asarray(self.items[: _check_steps(steps)], dtype=np.float64)


class Quotient(_Schedule, frozen=True, tag="quotient"):
    """One schedule over another, such as the noise sigma_k = C_k / mu_k."""

    over: Schedule
    under: Schedule

    def values(self, steps: int) -> NDArray[np.float64]:
        return self.over.values(steps) / self.under.values(steps)


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


def dynamic_noise(clip: Schedule, budget: Schedule) -> Quotient:
    """Noise sigma_k = C_k / mu_k that makes step k exactly mu_k-GDP without sampling.

    Dyn-D2P is ``dynamic_noise(Shrinking(C0, rho_c), Growing(mu0, rho_mu))``.
    """
    return Quotient(clip, budget)


def _share(steps: int) -> NDArray[np.float64]:
    return np.arange(_check_steps(steps)) / max(steps, 1)


def _check_steps(steps: int) -> int:
    if steps < 0:
        raise ValueError(f"the number of steps must be >= 0, got {steps}")
    return steps


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be > 0 and finite, got {value}")


def _check_ratio(rho: float) -> None:
    if not 1 <= rho < math.inf:
        raise ValueError(
            f"rho must be >= 1 and finite, got {rho}; "
            "the paper's tables give its inverse, 1/rho"
        )
