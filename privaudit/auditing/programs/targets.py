"""User programs as targets: worlds and seeds in, scores out."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import os
import pathlib
import reprlib
import shlex
import subprocess
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from privaudit.files.manifest import digest
from privaudit.files.npz import real_numbers
from privaudit.files.user_code import ForeignError, function_named, held, is_place

_SEEDS = 1 << 31  # what any library takes
_APART = 1_327_217_885  # odd, and about _SEEDS over the golden ratio

Worlds = NDArray[np.bool_]
Score = Callable[[Worlds, int], NDArray[np.float64]]


def spread_seed(seed: int, number: int) -> int:
    """The ``number``-th seed of a sequence from ``seed``: in [0, 2^31), none twice.

    Any two of N are about 2^31 / N apart, so that programs which count up from theirs,
    as in ``seed + step``, share no random numbers.

    >>> [spread_seed(5, n) for n in range(3)]
    [5, 1327217890, 506952127]
    """
    return (seed + number * _APART) % _SEEDS


class SharedSeedError(ValueError):
    """Runs of one call shared their random numbers; no bound holds for them."""


Call = tuple[Worlds, NDArray[np.float64]]


def is_alike(call: Call) -> bool:
    """Return whether all runs of a world have one score."""
    member, score = call
    worlds = (score[member], score[~member])
    return all((runs == runs[0]).all() for runs in worlds if len(runs))


def share_random_numbers(calls: Sequence[Call]) -> bool:
    """Return whether the runs of each call, worlds and scores, seem to be one run.

    True where all runs of a world in one call have one score, calls differ, and the
    chance of that for independent runs is below 1e-9: each run repeats the score of its
    call's first with a chance of at most about the share of the commonest score.

    >>> from privaudit.auditing.programs.targets import share_random_numbers
    >>> worlds = np.arange(50) < 25
    >>> share_random_numbers([(worlds, worlds + 0.3), (worlds, worlds + 0.7)])
    True
    >>> share_random_numbers([(worlds, worlds + 0.3)] * 2)  # it draws nothing at all
    False
    """
    if not all(map(is_alike, calls)):
        return False
    chance = 0.0  # its logarithm
    for world in (False, True):
        groups = [score[member == world] for member, score in calls]
        _, counts = np.unique(np.concatenate(groups), return_counts=True)
        runs, repeats = sum(map(len, groups)), sum(len(g) - 1 for g in groups if len(g))
        if repeats:
            chance += repeats * math.log(counts.max() / runs)
    return chance < math.log(1e-9)


def source_of(program: str | Callable[..., object]) -> str | None:
    """The SHA-256 of the files that a program is in, in hexadecimal; None if in none.

    Of a function its module's file, of a command those it names; not their imports.
    """
    if callable(program):
        # A notebook's module is in no file, but its functions have a text.
        for of in (inspect.getmodule(program) or program, program):
            with contextlib.suppress(OSError, TypeError):
                return digest(inspect.getsource(of).encode())
        return None
    with contextlib.suppress(ValueError, ForeignError):  # said where it is called
        if is_place(program):
            return source_of(function_named(program))
        named = filter(os.path.isfile, shlex.split(program))
        known = [pathlib.Path(one).read_bytes() for one in named]
        return digest(b"".join(known)) if known else None
    return None


def about(program: str | Callable[..., object]) -> str | None:
    """The first line of a function's docstring; None of a command, or without one."""
    with contextlib.suppress(ValueError, ForeignError):
        if isinstance(program, str) and is_place(program):
            program = function_named(program)
        doc = None if isinstance(program, str) else inspect.getdoc(program)
        return doc.strip().partition("\n")[0] if doc and doc.strip() else None
    return None


def function_of(name: str) -> Score:
    """The user's function, held to one finite score a run, or `ForeignError`."""
    return checked(function_named(name), name)


def checked(function: Callable[..., object], name: str) -> Score:
    """``function`` as a `Score`, which raises `ForeignError` with its ``name``."""

    def score(worlds: Worlds, seed: int) -> NDArray[np.float64]:
        with held(name):
            given = function(worlds, seed)
        try:
            found = real_numbers(given)
        except ValueError as error:
            raise ForeignError(f"{name} gave no numbers: {error}") from None
        if found.shape != worlds.shape:
            raise ForeignError(
                f"{name} must give one score a run, ({len(worlds)},), got shape "
                f"{found.shape}"
            )
        if not np.isfinite(found).all():
            raise ForeignError(f"{name} gave a score that is not finite")
        return found

    return score


def parts_of(command: str) -> list[str]:
    """The parts of a command line; ``ValueError`` if it is none."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ValueError(f"the command {command!r} cannot be read: {error}") from None


def one_by_one(
    once: Callable[[bool, int], float], worlds: Worlds, seed: int
) -> NDArray[np.float64]:
    """Scores of the runs, (runs,); ``seed`` is the first's, see `spread_seed`."""
    runs = enumerate(worlds.tolist())
    return np.array([once(member, spread_seed(seed, i)) for i, member in runs])


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """Runs a command for each run of a batch.

    Raises ``ValueError`` if the text cannot be split, or does not say where the two go.
    """

    # with ``{member}`` and ``{seed}``; split as a shell does, run without one
    text: str
    time_limit: float = math.inf  # seconds a run may take; infinity for any
    retries: int = 1  # how often a run that failed is tried again, with the same seed

    def __post_init__(self) -> None:
        parts_of(self.text)  # raises
        for name in ("{member}", "{seed}"):
            if name not in self.text:
                raise ValueError(
                    f"the command must say {name} where it goes, got {self.text!r}"
                )

    def __call__(self, worlds: Worlds, seed: int) -> NDArray[np.float64]:
        """As a `Score`, see `one_by_one`."""
        return one_by_one(self.once, worlds, seed)

    def once(self, member: bool, seed: int) -> float:
        """The score of one run. Raises `ForeignError` when no try gives one."""
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
                    encoding="utf-8",
                    errors="replace",
                    timeout=None if self.time_limit == math.inf else self.time_limit,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                why = f"it took more than {self.time_limit:g} s"
                continue
            except OSError as error:
                raise ForeignError(
                    f"cannot run {filled[0]}: {error.strerror}"
                ) from None
            lines = done.stdout.split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "")
            if done.returncode:
                words = done.stderr.strip().splitlines() or ["it said nothing"]
                why = f"exit status {done.returncode}: {words[-1][:500]}"
                continue
            try:
                score = float(last)
            except ValueError:
                why = f"its last line is no number: {reprlib.repr(last)}"
                continue
            if math.isfinite(score):
                return score
            why = f"its score is {last.strip()}"
        raise ForeignError(f"{shlex.join(filled)}: {why}")
