"""The self-check: a fast version of it, and that it catches what is wrong."""

import math

import numpy as np
import pytest

from privaudit.auditing import selfcheck
from privaudit.auditing.bounds import ESTIMATORS, ONE_RUN, RankWalk
from privaudit.auditing.bounds.contract import Estimator, Evidence
from tests.tiers import size


class Boastful(Estimator):
    """Says the observed accuracy's epsilon, with no limit: right half of the time."""

    name = "boastful"
    source = "none"

    def find(self, scores, delta, alpha, seed):
        right = np.mean((scores.score > 0) == scores.member)
        return math.log(right / (1 - right)), Evidence()


class TestSound:
    @pytest.mark.sized
    def test_every_estimator_keeps_its_confidence(self):
        """Audits at 80 %: at most as many as chance has once in 10 000."""
        # The walk is valid with any number of simulations; few of them are quick.
        kinds = {**ESTIMATORS, **ONE_RUN, RankWalk.name: RankWalk(simulations=199)}
        for slow in ("best", "betting", "betting-gaussian"):
            del kinds[slow]
        quick = list(kinds.values())
        repeats = size(20, 4)
        rows = selfcheck.selfcheck(repeats, runs=100, confidence=0.8, estimators=quick)
        assert {row.estimator for row in rows} == {one.name for one in quick}
        assert all(row.passed for row in rows), selfcheck.table(rows)

    @pytest.mark.full
    def test_every_estimator_keeps_its_confidence_at_length(self):
        rows = selfcheck.selfcheck(500)
        assert all(row.passed for row in rows), selfcheck.table(rows)

    def test_catches_an_estimate_that_is_called_a_bound(self):
        rows = selfcheck.selfcheck(
            60,
            runs=200,
            estimators=[Boastful()],
            mechanisms=[selfcheck._leaky(1.0, 0.0)],
            deltas=[0.0],
        )
        assert not rows[0].passed
        assert "TOO OFTEN" in selfcheck.table(rows)


class TestLaws:
    @pytest.mark.parametrize("delta", [0.0, 0.01, 0.05, 0.3])
    def test_epsilon_of_leaky_randomised_response(self, delta):
        """Against the hockey-stick divergence of the four outcomes."""
        leak, told = 0.01, 0.99 / (1 + math.exp(-2))
        lie = 0.99 - told
        epsilon = selfcheck._leaky(2.0, leak).epsilon(delta)
        if delta < leak:
            assert epsilon == math.inf
        else:
            divergence = leak + max(0, told - math.exp(epsilon) * lie)
            assert divergence == pytest.approx(delta) or epsilon in (0.0, 2.0)
