"""Runs of a mechanism on a pair of data sets, one by one or many at once."""

from __future__ import annotations

import contextlib
import dataclasses
import reprlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from privaudit.auditing.scores import real_numbers
from privaudit.files.user_code import by_generator
from privaudit.testing.coins import Worlds
from privaudit.testing.outputs import Reader, Readings

__tracebackhide__ = True  # pytest shows where a test calls, and its mechanism

Mechanism = Callable[..., Any]
Scoring = Callable[[Any], Any] | Literal["bits"] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Sampler:
    """Runs of a mechanism on a pair, each on a data set by its own coin."""

    mechanism: Mechanism
    pair: tuple[Any, Any]
    score: Scoring
    vectorised: bool
    coins: np.random.Generator
    draws: np.random.Generator
    reader: Reader

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        pair: tuple[Any, Any],
        score: Scoring,
        vectorised: bool,
        stream: tuple[int, ...],
        reader: Reader | None = None,
    ) -> Sampler:
        """The sampler whose random numbers are those of ``stream``.

        ``reader``: one that has read other runs, for attacks that were learned on them.
        """
        coins, draws = (
            np.random.default_rng(one)
            for one in np.random.SeedSequence(stream).spawn(2)
        )
        called = by_generator(mechanism, 2 if vectorised else 1)
        reader = reader or Reader(bits=score == "bits")
        return cls(called, pair, score, vectorised, coins, draws, reader)

    def show_once(self) -> None:
        """Run once on each data set, for whoever watches."""
        for data in self.pair:
            given = (data, 1) if self.vectorised else (data,)
            self.mechanism(*given, self.draws)

    def run(self, runs: int) -> tuple[Worlds, Readings]:
        """The data set of each of ``runs``, and what they gave."""
        worlds = self.coins.random(runs) < 0.5
        if self.vectorised:
            worlds = np.sort(worlds)
            parts = [
                self._many(data, size)
                for data, size in zip(
                    self.pair, np.bincount(worlds, minlength=2).tolist(), strict=True
                )
                if size
            ]
            return worlds, Readings.joined(parts)
        outputs = [self.mechanism(self.pair[int(one)], self.draws) for one in worlds]
        if callable(self.score):
            return worlds, self.reader.read(_scored(self.score, outputs))
        return worlds, self.reader.read(outputs)

    def _many(self, data: Any, size: int) -> Readings:
        outputs = self.mechanism(data, size, self.draws)
        if callable(self.score):
            outputs = np.array(_numbers(self.score(outputs), size))
        return self.reader.read_many(outputs, size)


def _scored(score: Callable[[Any], float], outputs: list[object]) -> list[float]:
    given = [score(output) for output in outputs]
    # Neither "1", nor None, which would count as not a number.
    if any(isinstance(value, (str, bytes, type(None))) for value in given):
        given = given[:1] * (len(outputs) + 1)
    return _numbers(given, len(outputs))


def _numbers(given: Any, runs: int) -> list[float]:
    found = np.zeros(0)
    with contextlib.suppress(ValueError):
        found = real_numbers(given)
    if found.shape != (runs,):
        first = given[0] if isinstance(given, list) else given
        raise ValueError(
            f"a score must give one number an output, got {reprlib.repr(first)}"
        )
    return found.astype(float).tolist()
