"""Attack scores of runs, and the world of each: member, with the canary, or not."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import os
import pathlib
import reprlib
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from privaudit.files import csv as _csv
from privaudit.files import npz as _npz
from privaudit.files.folder import write_whole
from privaudit.files.frames import check_aligned
from privaudit.files.npz import check_unmasked, real_numbers

Design = Literal["coin-flip", "fixed", "one-run"]
DESIGNS: tuple[Design, ...] = get_args(Design)
CANARY_NODE = 0  # the node whose data the canary joins
_WORLDS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}  # in a .csv
LEAST_CHANCE = 1e-6  # of what is seen of the worlds, for coins to be believed


@dataclasses.dataclass(frozen=True, slots=True)
class Roc:
    """The ROC curve of an attack: the rates of ``score >= threshold``."""

    # infinity, then every distinct score in falling order, (distinct + 1,)
    thresholds: NDArray[np.float64]
    # fpr, tpr: share of the non-members, and of the members, at or above each threshold
    fpr: NDArray[np.float64]
    tpr: NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Attack scores of independent runs, and which runs held the canary.

    Parameters
    ----------
    member
        Whether the run held the canary; booleans, or the numbers 0 and 1.  # (runs,)
    score
        Finite; a higher score says "member". Ties are allowed.  # (runs,)
    design
        How membership was decided. ``coin-flip``: by a fair coin in each run, which
        rank tests need. ``fixed``: in any other way. ``one-run``: "runs" are the
        canaries of a single run, each in it by its own fair coin.
    in_family
        What bounds within a family read in their place: canaries that share a run are
        independent there, by the noise that is, and nowhere else. None: the same.

    Raises
    ------
    ValueError
        If lengths differ, a score is not finite, all or no runs are members, or the
        design has fair coins but they would give such counts with a chance below 1e-6.
        Counts that pass prove nothing: declare ``fixed`` if there were no fair coins.

    Examples
    --------
    >>> Scores([True, False, True], [0.3, 0.1, 0.1], design="coin-flip").roc().tpr
    array([0. , 0.5, 1. ])
    """

    member: NDArray[np.bool_]
    score: NDArray[np.float64]
    design: Design
    in_family: Scores | None = None

    def __init__(
        self,
        member: ArrayLike,
        score: ArrayLike,
        design: Design,
        in_family: Scores | None = None,
    ) -> None:
        worlds, scores = checked_runs(member, score)
        object.__setattr__(self, "in_family", in_family)
        object.__setattr__(self, "member", worlds)
        object.__setattr__(self, "score", scores)
        object.__setattr__(self, "design", design)
        if not (self.member_runs and self.non_member_runs):
            raise ValueError(
                "an audit compares two worlds, but there are "
                f"{self.member_runs:,} member and {self.non_member_runs:,} non-member "
                "runs; run it in both"
            )
        if design not in DESIGNS:
            raise ValueError(
                f"design must be one of {', '.join(DESIGNS)}, got {design!r}; "
                "say fixed unless each run tossed a fair coin for its world"
            )
        chance = chance_of_counts(self.member_runs, self.non_member_runs)
        if design != "fixed" and chance < LEAST_CHANCE:
            what, mend = "runs", "declare the design fixed"
            if design == "one-run":
                what = "canaries"
                mend = "toss a fair coin for each, as privaudit.canaries does"
            raise ValueError(
                f"{self.member_runs:,} member and {self.non_member_runs:,} non-member "
                f"{what} are refused as {design}: fair coins deal worlds so unevenly "
                f"with chance {chance_in_words(chance)}, below {LEAST_CHANCE:g}; {mend}"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scores):
            return NotImplemented
        return (
            self.design == other.design
            and np.array_equal(self.member, other.member)
            and np.array_equal(self.score, other.score)
            and self.in_family == other.in_family
        )

    @classmethod
    def of_runs(cls, member: NDArray, score: NDArray, design: Design) -> Scores:
        """Scores of one canary a run, (runs,); or of several, (runs, canaries).

        Of several, those of one canary are the scores, and all are ``in_family``: of
        the first that some runs held and others not, which coins alone tell.
        """
        if member.ndim == 1:
            return cls(member, score, design)
        whole = cls(member.ravel(), score.ravel(), design)
        one = int(np.argmax(member.any(axis=0) & ~member.all(axis=0)))
        return cls(member[:, one], score[:, one], design, whole)

    def shuffled(self) -> Scores:
        """Return the same runs, in an order that their own digest deals.

        Estimators' coins are fixed by a seed. They are worth what they should be where
        rows know neither worlds nor scores, as somebody's may that were sorted.
        """
        digest = hashlib.blake2b(self.member.tobytes() + self.score.tobytes()).digest()
        rows = np.random.default_rng(list(digest)).permutation(len(self))
        return Scores(self.member[rows], self.score[rows], self.design, self.in_family)

    def by_run(self) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Worlds and scores as `of_runs` takes them."""
        if self.in_family is None:
            return self.member, self.score
        shape = (len(self), -1)
        return self.in_family.member.reshape(shape), self.in_family.score.reshape(shape)

    def __len__(self) -> int:
        return len(self.score)

    @property
    def member_runs(self) -> int:
        """Number of runs that held the canary."""
        return int(np.count_nonzero(self.member))

    @property
    def non_member_runs(self) -> int:
        """Number of runs that did not hold the canary."""
        return len(self.member) - self.member_runs

    @property
    def members(self) -> NDArray[np.float64]:
        """Scores of the runs that held the canary, in order.  # (member_runs,)"""
        return self.score[self.member]

    @property
    def non_members(self) -> NDArray[np.float64]:
        """Scores of the runs that did not hold it, in order.  # (non_member_runs,)"""
        return self.score[~self.member]

    def roc(self) -> Roc:
        """Compute the empirical ROC: a point per distinct score, (0, 0) to (1, 1)."""
        distinct, place = np.unique(self.score, return_inverse=True)
        hits = np.bincount(place[self.member], minlength=len(distinct))[::-1]
        alarms = np.bincount(place[~self.member], minlength=len(distinct))[::-1]
        return Roc(
            thresholds=np.concatenate([[np.inf], distinct[::-1]]),
            fpr=np.concatenate([[0], np.cumsum(alarms)]) / self.non_member_runs,
            tpr=np.concatenate([[0], np.cumsum(hits)]) / self.member_runs,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the scores to ``path``: .npz with the design, or .csv (member, score).

        An interrupted write leaves no partial file. Raises ``ValueError`` for another
        suffix.
        """
        path = pathlib.Path(path)
        suffix = _suffix(path)
        if suffix == ".npz":
            arrays = run_arrays(*self.by_run())
            write_whole(path, _npz.packed(**arrays, design=self.design))
        else:
            text = io.StringIO()
            rows = csv.writer(text, lineterminator="\n")
            rows.writerow(("member", "score"))
            rows.writerows(
                zip(self.member.astype(int), self.score.tolist(), strict=True)
            )
            write_whole(path, text.getvalue().encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str], design: Design | None = None) -> Scores:
        """Read scores from a .npz or .csv file, by ``save`` or by another tool.

        A .csv does not hold the ``design``, which must be given; a .npz's must agree.
        """
        path = pathlib.Path(path)
        if _suffix(path) == ".npz":
            member, score, known = read_npz(path)
        else:
            member, score, known = *_read_csv(path), None
        if known and design and known != design:
            raise ValueError(
                f"{path} says that its design is {known}, not {design}; "
                "leave the design out"
            )
        chosen = design or known
        if chosen is None:
            raise ValueError(
                f"{path} does not say how the worlds were dealt; give the design: "
                "coin-flip if each run tossed a fair coin for its world, else fixed"
            )
        try:
            return cls.of_runs(np.asarray(member), np.asarray(score), chosen)
        except ValueError as error:
            raise ValueError(f"cannot use {path}: {error}") from error


def chance_of_counts(member_runs: int, non_member_runs: int) -> float:
    """Chance that fair coins deal two worlds at least as unevenly: two-sided, exact.

    >>> chance_of_counts(0, 10) == 2 / 2**10
    True
    """
    fewer, runs = min(member_runs, non_member_runs), member_runs + non_member_runs
    return min(1.0, 2 * float(special.bdtr(fewer, runs, 0.5)))


def chance_in_words(chance: float) -> str:
    """A small chance for a message; 0 is what is left of one below 1e-300."""
    return f"{chance:.1e}" if chance else "less than 1e-300"


def checked_runs(
    member: ArrayLike, score: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Worlds and scores of any number of runs, read-only, checked as in ``Scores``."""
    check_aligned(score, member, ("scores", "member"), by_place=True)
    check_unmasked(member, "worlds in member")
    given = np.asarray(member)
    if given.ndim != 1:
        raise ValueError(f"member must be one number a run, got shape {given.shape}")
    try:
        known = given.dtype == np.bool_ or np.isin(given, (0, 1)).all()
    except TypeError:  # a gap of pandas', which is neither equal nor unequal
        known = False
    if not known:
        raise ValueError(
            "member must hold 0 (not a member) and 1 (member) only, and no gaps: leave "
            "runs out of which the world is not known"
        )
    try:
        scores = real_numbers(score)
    except ValueError as error:
        raise ValueError(f"scores must be numbers: {error}") from error
    if scores.ndim != 1:
        raise ValueError(f"score must be one number a run, got shape {scores.shape}")
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        raise ValueError(
            f"scores must be finite, but {len(wrong):,} of {len(scores):,} are not "
            f"(the first is {scores[wrong[0]]} in row {wrong[0]}); a run that "
            "diverged needs a finite score that is given in both worlds alike"
        )
    worlds = given.astype(np.bool_)
    if len(worlds) != len(scores):
        raise ValueError(
            f"every run needs a world and a score, got {len(worlds):,} "
            f"worlds and {len(scores):,} scores"
        )
    for array in (worlds, scores):
        array.setflags(write=False)
    return worlds, scores


def _suffix(path: pathlib.Path) -> str:
    if path.suffix not in (".npz", ".csv"):
        raise ValueError(f"scores are kept as .npz or .csv, got {path.name!r}")
    return path.suffix


def run_arrays(member: NDArray, score: NDArray) -> dict[str, NDArray]:
    """Arrays of a .npz file, of worlds and scores as `Scores.of_runs` takes them."""
    if member.ndim == 1:
        return {"member": member, "score": score}
    first = run_arrays(member[:, 0], score[:, 0])
    return {**first, "others_member": member[:, 1:], "others_score": score[:, 1:]}


def read_npz(
    path: pathlib.Path,
) -> tuple[NDArray[np.generic], NDArray[np.generic], Design | None]:
    """Worlds and scores, as `Scores.of_runs` takes them, and their design if told."""
    try:
        with _npz.opened(path) as file:
            known: Any = str(file["design"]) if "design" in file else None
            member, score = file["member"], file["score"]
            if member.ndim != 1:
                raise ValueError(
                    f"member must be one number a run, got shape {member.shape}"
                )
            if "others_member" in file:
                member = np.column_stack([member, file["others_member"]])
                score = np.column_stack([score, file["others_score"]])
    except ValueError as error:
        raise ValueError(
            f"{path} is no scores file; it needs arrays member and score ({error})"
        ) from error
    return member, score, known


def _read_csv(path: pathlib.Path) -> tuple[list[int], list[float]]:
    member: list[int] = []
    score: list[float] = []
    try:
        for line, (world, value) in _csv.rows(path, ("member", "score")):
            try:
                member.append(_WORLDS[world.strip().lower()])
                score.append(float(value))
            except (KeyError, ValueError):
                raise ValueError(
                    f"line {line}: member must be 0 or 1 and score a number, got "
                    f"{reprlib.repr(world)} and {reprlib.repr(value)}"
                ) from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return member, score
