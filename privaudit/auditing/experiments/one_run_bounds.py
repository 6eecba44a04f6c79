"""The estimators of one run with many canaries, with their guesses planned.

How many canaries are guessed at, and on which sides, is chosen by the ledger, which is
public, before the scores are seen: largest in all but one of ten simulated runs under
the best attack (`reach`). A tenth of alpha is kept for other numbers.
"""

from __future__ import annotations

import functools

import numpy as np

from privaudit.auditing.bounds.contract import Estimator, generator
from privaudit.auditing.bounds.ledger_family import FAMILY
from privaudit.auditing.bounds.one_run import OneRun, OneRunGaussian
from privaudit.auditing.bounds.one_run_curve import one_run_family
from privaudit.auditing.experiments.reach import ideal_scores
from privaudit.auditing.scores import Scores
from privaudit.ledger import Entry
from privaudit.results import Relation

_SHARES = (0.8, 0.6, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.04, 0.02)
_OTHERS = (1.0, 0.4, 0.05)
_PLANNED, _REVERSED = 0.9, 0.02  # of alpha
_REPEATS, _MOST_DRAWN = 20, 1 << 24  # simulated runs, and their normal numbers
NAMES = ("best", FAMILY)  # what an audit's estimator may be


def one_run_estimator(
    name: str,
    entries: tuple[Entry, ...],
    relation: Relation,
    canaries: int,
    *,
    delta: float,
    confidence: float,
) -> Estimator:
    """The estimator called ``name``, "best" (any mechanism) or "family".

    ``entries``, ``relation``: what the canaries' nodes released; () where that differs.
    ``delta``, ``confidence`` decide how many guesses are planned.
    """
    if name not in NAMES:
        raise ValueError(
            "one run with many canaries is judged by the estimators best, for any "
            f"mechanism, and family, that of its releases; got {name!r}"
        )
    if not entries:
        if name == FAMILY:
            raise ValueError(
                "the canaries' nodes release different things, which are of no one "
                "family: choose best"
            )
        return OneRun()
    kind = OneRun if name == "best" else OneRunGaussian
    planned = _planned(kind, entries, relation, canaries, delta, confidence)
    if planned is None:
        shares, weights, one_sided = OneRun().shares, (), 0
    else:
        share, one_sided = planned
        shares, rest = (share, *_OTHERS), (1 - _PLANNED) / len(_OTHERS)
        weights = (_PLANNED, *(rest for _ in _OTHERS))
    if name == FAMILY:
        return one_run_family(entries, relation, shares, weights, one_sided)
    return OneRun(shares, _REVERSED, weights, one_sided)


@functools.lru_cache(maxsize=32)
def _planned(
    kind: type[OneRun] | type[OneRunGaussian],
    entries: tuple[Entry, ...],
    relation: Relation,
    canaries: int,
    delta: float,
    confidence: float,
) -> tuple[float, int] | None:
    """The share of canaries to guess at, and whether (1) on one side; or None."""
    alpha = 1 - confidence
    drawn = canaries * sum(entry.count for entry in entries)
    choices = [(share, sides) for sides in (0, 1) for share in _SHARES]
    one_each = [kind((share,), _REVERSED, (_PLANNED,), one) for share, one in choices]
    found = []
    for repeat in range(max(5, min(_REPEATS, _MOST_DRAWN // max(1, drawn)))):
        random = generator(repeat, "guesses are planned")
        member = random.permutation(np.arange(canaries) % 2 == 0)
        scores = ideal_scores(entries, relation, member, random)
        if scores is None:
            return None
        simulated = Scores(member, scores, "one-run")
        found.append([one.find(simulated, delta, alpha, 0)[0] for one in one_each])
    low = np.quantile(found, 0.1, axis=0)
    return choices[int(np.argmax(low))]
