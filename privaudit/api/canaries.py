"""Canaries for one run of a user's own training, and what their scores show."""

from __future__ import annotations

import dataclasses
import operator
import secrets
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privaudit.accounting import account_nodes
from privaudit.auditing.bounds import Estimator, OneRun
from privaudit.auditing.conclude import AuditedScores, Tested, conclude, stronger
from privaudit.auditing.experiments.one_run_bounds import one_run_estimator
from privaudit.auditing.scores import Scores
from privaudit.files.arguments import public
from privaudit.ledger import Ledger
from privaudit.results import DELTA, Relation, check_relation
from privaudit.settings import MOST_CANARIES, claim_of

KINDS = ("mislabelled", "noise")
_FAR = [0.05 * k for k in range(1, 11)]  # copies move until they differ, in deviations


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Canaries:
    """Canaries for one run: all of them, and which ones to train on; see `canaries`.

    Parameters
    ----------
    inputs, targets
        All canaries, as numpy arrays (canaries, ...). Score each of them under the
        trained model.
    member
        (canaries,) bool: which ones to train on, each by its own fair coin.
    instead
        Under replace-one, inputs and targets of the records that take the places of
        canaries that are not members. None under add-or-remove-one.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    member: NDArray[np.bool_]
    instead: tuple[NDArray[Any], NDArray[Any]] | None = None

    def __len__(self) -> int:
        return len(self.member)

    @property
    def included(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Inputs and targets of the records to train on, in addition to the data."""
        if self.instead is None:
            return self.inputs[self.member], self.targets[self.member]
        inputs, targets = (part.copy() for part in self.instead)
        inputs[self.member] = self.inputs[self.member]
        targets[self.member] = self.targets[self.member]
        return inputs, targets

    @property
    def relation(self) -> Relation:
        """The neighbour relation: what one coin changes about the training data."""
        return "add-or-remove-one" if self.instead is None else "replace-one"

    def audit(
        self,
        scores: ArrayLike,
        *,
        epsilon: float,
        delta: float = DELTA,
        ledger: Ledger | None = None,
        relation: Relation | None = None,
        confidence: float = 0.95,
        method: str = "best",
    ) -> AuditedScores:
        """Test a claim by the canaries' scores in one run; return the verdict.

        Parameters
        ----------
        scores
            (canaries,): one score per canary, in order; a Series is numbered 0, 1, 2,
            ... Members may score higher or lower. An example is the fall of the
            canary's loss in training.
        epsilon, delta, relation
            The claim. The relation is that of the canaries, and may be left out.
        ledger
            What the run released, if it is known. The result then has its account as an
            upper bound, and another lower bound that is valid for its family; it also
            decides how many guesses are made.
        confidence
            Probability that a bound is not above the true epsilon, for each bound.
        method
            "best": valid for any mechanism. "family" is valid for the ledger's family,
            of which nobody knows that the training is: it stands beside "best".

        Returns
        -------
        An `AuditedScores` with ``status``, ``lower``, ``upper``, ``beside`` (the other
        lower bound) and ``most_shown``, the most that so many canaries could have
        shown.

        Raises
        ------
        ValueError
            If a value is out of its range, or there is not one score per canary.
        """
        if relation not in (None, self.relation):
            raise ValueError(
                f"these canaries' coins decide about {self.relation}, and nothing they "
                f"show is about {relation}: make them by canaries(..., "
                f"relation={relation!r})"
            )
        relation = self.relation
        found = Scores(self.member, scores, "one-run")
        claim = claim_of(epsilon, delta, relation, source="privaudit.canaries")
        if not 0 < confidence < 1:
            raise ValueError(f"confidence must be in (0, 1), got {confidence}")
        if method not in ("best", "family"):
            raise ValueError(f"method is best or family, got {method!r}")
        if ledger is None and method == "family":
            raise ValueError("method='family' needs a ledger: give ledger=...")
        upper, entries = None, ()
        if ledger is not None:
            nodes = account_nodes(ledger, delta, relation)
            worst = max(range(len(nodes)), key=lambda node: nodes[node].epsilon)
            upper, entries = nodes[worst], ledger.nodes[worst]

        def named(name: str) -> Estimator:
            if ledger is None:
                return OneRun()
            return one_run_estimator(
                name, entries, relation, len(self), delta=delta, confidence=confidence
            )

        tested = Tested(
            scores=found, claim=claim, sees="one score a canary", confidence=confidence
        )
        concluded = conclude(
            tested,
            method,
            named,
            ledger=ledger,
            upper=upper,
            stronger=stronger("releases", "record"),
        )
        return AuditedScores.of(concluded, found)


@public
def canaries(
    count: int,
    *,
    like: Any,
    kind: str = "mislabelled",
    relation: Relation = "add-or-remove-one",
    seed: int | None = None,
) -> Canaries:
    """Make canaries with which a single run of your own training can be audited.

    Train once on your data and on ``included``, score every canary, members and others
    alike, and give the scores to `Canaries.audit` (the method of Steinke, Nasr and
    Jagielski 2023).

    Parameters
    ----------
    count
        Number of canaries; about half of them become members.
    like
        Data that they shall resemble: a pair of arrays or tensors (inputs, targets), or
        a torch Dataset of such pairs: finite inputs, and targets that are classes. For
        "mislabelled" it should be held out from training.
    kind
        "mislabelled": records of ``like`` with a wrong label; in the place of records
        that come again, slightly changed copies, of whole numbers by whole numbers
        within their range. "noise": uniform over the range of ``like``.
    relation
        What a coin decides. "add-or-remove-one": whether the canary is among the data.
        "replace-one": whether it or another record of its kind is; of "mislabelled",
        another record of ``like``.
    seed
        Seed of the coins and the records, for a study. None: drawn from the operating
        system.

    Raises
    ------
    ValueError
        If a value is out of its range, or ``like`` is data of another form, or of too
        few values for so many canaries that differ.

    Examples
    --------
    >>> import numpy as np
    >>> import privaudit as pa
    >>> random = np.random.default_rng(0)
    >>> held_out = random.normal(size=(50, 8)), random.integers(0, 3, 50)
    >>> planted = pa.canaries(1000, like=held_out, seed=0)
    >>> x, y = planted.included  # to be trained on, beside the data
    >>> x.shape[1:], len(planted)
    ((8,), 1000)
    >>> scores = 3.0 * planted.member + random.normal(size=1000)  # of your training
    >>> planted.audit(scores, epsilon=1, delta=1e-5).status
    'refuted'
    """
    count = operator.index(count)  # of numpy's too
    if not 10 <= count <= MOST_CANARIES:
        raise ValueError(
            f"count must be a whole number between 10 and {MOST_CANARIES:,}, got "
            f"{count!r}"
        )
    if kind not in KINDS:
        raise ValueError(f"kind is {' or '.join(KINDS)}, got {kind!r}")
    if seed is not None and seed < 0:
        raise ValueError(f"seed must be >= 0, got {seed}")
    check_relation(relation)
    inputs, targets = _pair(like)
    random = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
    member = random.random(count) < 0.5
    places, pairs = np.arange(count), relation == "replace-one"
    if pairs:  # two places each, which no cycle through the data makes one
        places = np.append(places, places + count + (count % len(inputs) == 0))
    made, labels = _made(places, inputs, targets, kind, random)
    if _come_again(made).any():
        raise ValueError(
            f"like has too few values for {len(made):,} records that differ: give "
            "other records, or ask for fewer canaries"
        )
    instead = (made[count:], labels[count:]) if pairs else None
    return Canaries(made[:count], labels[:count], member, instead)


def _made(
    places: NDArray[np.int64],
    inputs: NDArray[Any],
    targets: NDArray[Any],
    kind: str,
    random: np.random.Generator,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs and targets of records of a ``kind``, by their places in shuffled data."""
    count = len(places)
    classes = np.unique(targets)
    if len(classes) < 2:
        raise ValueError("like must have records of two classes or more")
    if kind == "noise":
        if not np.issubdtype(inputs.dtype, np.floating):
            raise ValueError(
                f"canaries of noise are floats, and inputs are {inputs.dtype}: use "
                "kind='mislabelled'"
            )
        low, high = float(inputs.min()), float(inputs.max())
        drawn = random.random((count, *inputs.shape[1:]))
        made = (low * (1 - drawn) + high * drawn).astype(inputs.dtype)
        return made, random.choice(classes, count)
    chosen = random.permutation(len(inputs))[places % len(inputs)]
    made = inputs[chosen].copy()
    for far in _FAR:
        again = _come_again(made)
        if not again.any():
            break
        apart = far * float(inputs.std())
        made[again] = _changed(inputs[chosen[again]], inputs, apart, random)
    place = np.searchsorted(classes, targets[chosen])
    shift = random.integers(1, len(classes), count)
    return made, classes[(place + shift) % len(classes)]


def _come_again(made: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the inputs that are those of one before."""
    first: dict[int, int] = {}
    rows = enumerate(made)
    return np.array([first.setdefault(hash(x.tobytes()), at) != at for at, x in rows])


def _changed(
    copies: NDArray[Any], like: NDArray[Any], apart: float, random: np.random.Generator
) -> NDArray[Any]:
    """Copies of records of ``like``, moved by about ``apart``, > 0."""
    if np.issubdtype(like.dtype, np.floating):
        return copies + random.normal(0, apart, copies.shape).astype(like.dtype)
    # Most whole numbers move by 1 or more; what would leave the range turns back.
    low, high = float(like.min()), float(like.max())
    moves = np.rint(random.normal(0, max(1.0, apart), copies.shape))
    there = copies + moves
    there = np.where((there < low) | (there > high), copies - moves, there)
    return there.clip(low, high).astype(like.dtype)


def _pair(like: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs and targets of a user's data, as arrays of equal length."""
    wrong = (
        "like is a pair of arrays or tensors (inputs, targets), or a torch Dataset of "
        "such pairs"
    )
    if not (isinstance(like, tuple | list) and len(like) == 2):
        try:
            pairs = [like[place] for place in range(len(like))]
            like = (
                np.stack([np.asarray(x) for x, _ in pairs]),
                np.stack([np.asarray(y) for _, y in pairs]),
            )
        except (TypeError, ValueError, KeyError) as error:
            raise ValueError(f"{wrong}, got {type(like).__name__}") from error
    inputs, targets = (np.asarray(part) for part in like)
    if not len(inputs) or len(inputs) != len(targets) or targets.ndim != 1:
        raise ValueError(
            f"{wrong}, one target a record, got shapes {inputs.shape} and "
            f"{targets.shape}"
        )
    if inputs.dtype.kind not in "biuf" or targets.dtype.kind not in "biufSU":
        raise ValueError(f"{wrong} of numbers, got {inputs.dtype} and {targets.dtype}")
    if not np.isfinite(inputs).all():
        raise ValueError("inputs of like must be finite: leave other records out")
    if targets.dtype.kind == "f" and not (targets == np.rint(targets)).all():
        raise ValueError("targets of like must be classes: whole numbers or texts")
    return inputs, targets
