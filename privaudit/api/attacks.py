"""From the scores of an attack to a lower bound."""

from __future__ import annotations

from numpy.typing import ArrayLike

from privaudit.auditing.bounds import ESTIMATORS
from privaudit.auditing.scores import Design, Scores
from privaudit.results import LowerBound, Relation, check_relation


def lower_bound(
    scores: ArrayLike,
    member: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    design: Design = "coin-flip",
    method: str = "best",
    relation: Relation = "add-or-remove-one",
    seed: int = 0,
) -> LowerBound:
    """Lower bound on epsilon from attack scores, with a stated confidence.

    Parameters
    ----------
    scores
        (runs,): what the attack says of each run; higher or lower for members, either
        is found.
    member
        (runs,) bool: whether the record was in the run's training data.
    delta
        In [0, 1).
    confidence
        Chance that the bound is not above the true epsilon, in (0, 1).
    design
        "coin-flip": every run tossed a fair coin for its world. "fixed": the numbers of
        both worlds were set beforehand.
    method
        A name of `privaudit bound --method`: best, rank-walk, two-binomial,
        clopper-pearson or betting hold for any mechanism.
    relation
        What the two worlds differ in.
    seed
        Of the method's own coins.

    Raises
    ------
    ValueError
        If a value is out of its range, scores are no numbers, or fair coins hardly give
        such counts of the worlds.

    Examples
    --------
    >>> import numpy as np
    >>> import privaudit as pa
    >>> coins = np.random.default_rng(0).random(1000) < 0.5
    >>> scores = np.random.default_rng(1).normal(size=1000) + 3 * coins
    >>> 1 < pa.lower_bound(scores, coins, delta=1e-5).epsilon < 10
    True
    """
    if method not in ESTIMATORS:
        raise ValueError(
            f"there is no method {method!r}; choose one of {', '.join(ESTIMATORS)}"
        )
    found = ESTIMATORS[method](
        Scores(member, scores, design),
        delta,
        confidence,
        relation=check_relation(relation),
        threat_model="what the scores were made from",
        seed=seed,
    )
    return found.lower
