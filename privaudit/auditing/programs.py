"""Programs that are not ours, called or started: worlds and seeds in, scores out."""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Worlds = NDArray[np.bool_]
Score = Callable[[Worlds, int], NDArray[np.float64]]


class RunFailedError(Exception):
    """A run of somebody's program gave no score; the message has its last words."""


def function_named(name: str) -> Score:
    """The user's function; ``ValueError`` if it is not to be had."""
    where, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as ``python -m`` has it
    try:
        return getattr(importlib.import_module(where), function)
    except ImportError as error:
        raise ValueError(
            f"cannot import {where}: {error}; is it installed, or its folder in "
            "PYTHONPATH?"
        ) from error
    except AttributeError:
        raise ValueError(f"{where} has no {function}") from None


def scores_of(found: object, runs: int, what: str) -> NDArray[np.float64]:
    """``found`` as finite scores, (runs,). Raises `RunFailedError` if they are not."""
    try:
        scores = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise RunFailedError(f"{what} gave no numbers: {error}") from None
    if scores.shape != (runs,):
        raise RunFailedError(
            f"{what} must give one score a run, ({runs},), got shape {scores.shape}"
        )
    if not np.isfinite(scores).all():
        raise RunFailedError(f"{what} gave a score that is not finite")
    return scores


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """Runs a command for each run of a batch.

    Parameters
    ----------
    text
        With ``{member}`` and ``{seed}``; split as a shell does, run without one.
    time_limit
        Seconds a run may take; infinity for any.
    retries
        How often a run that failed is tried again, with the same seed.
    """

    text: str
    time_limit: float = math.inf
    retries: int = 1

    def __call__(self, worlds: Worlds, seed: int) -> NDArray[np.float64]:
        """Scores of the runs, (runs,); ``seed`` is the first's, others count up."""
        return np.array(
            [self.once(bool(member), seed + i) for i, member in enumerate(worlds)]
        )

    def once(self, member: bool, seed: int) -> float:
        """The score of one run. Raises `RunFailedError` when no try gives one."""
        filled = [
            part.replace("{member}", str(int(member))).replace("{seed}", str(seed))
            for part in shlex.split(self.text)
        ]
        why = ""
        for _ in range(self.retries + 1):
            try:
                done = subprocess.run(
                    filled,
                    capture_output=True,
                    text=True,
                    timeout=None if self.time_limit == math.inf else self.time_limit,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                why = f"it took more than {self.time_limit:g} s"
                continue
            except OSError as error:
                raise RunFailedError(
                    f"cannot run {filled[0]}: {error.strerror}"
                ) from None
            lines = done.stdout.split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "")
            if done.returncode:
                words = done.stderr.strip().splitlines() or ["it said nothing"]
                why = f"exit status {done.returncode}: {words[-1]}"
                continue
            try:
                score = float(last)
            except ValueError:
                why = f"its last line is no number: {last!r}"
                continue
            if math.isfinite(score):
                return score
            why = f"its score is {last.strip()}"
        raise RunFailedError(f"{shlex.join(filled)}: {why}")
