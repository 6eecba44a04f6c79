"""Scores that are learned on the first runs."""

import numpy as np
import pytest
import threadpoolctl

from privaudit.testing import learning
from privaudit.testing.outputs import Readings

RUNS = 400


def seen(columns):
    return Readings(np.asarray(columns, float), np.zeros(len(columns), dtype=int))


class TestLaws:
    def test_nothing_is_learned_of_one_world(self):
        for worlds in (np.zeros(RUNS, bool), np.ones(RUNS, bool)):
            past = seen(np.arange(1.0 * RUNS)[:, None])
            assert not [*learning._learned(past, worlds)]

    def test_trees_take_one_thread(self, monkeypatch):
        """Tests side by side would else wait for each other's threads."""
        ensemble = pytest.importorskip("sklearn.ensemble")
        counts = []

        class Watched(ensemble.HistGradientBoostingClassifier):
            def fit(self, *given):
                counts.extend(
                    one["num_threads"] for one in threadpoolctl.threadpool_info()
                )
                return super().fit(*given)

            def decision_function(self, *given):
                counts.extend(
                    one["num_threads"] for one in threadpoolctl.threadpool_info()
                )
                return super().decision_function(*given)

        monkeypatch.setattr(ensemble, "HistGradientBoostingClassifier", Watched)
        random = np.random.default_rng(0)
        worlds = random.random(RUNS) < 0.5
        table = seen(random.normal(size=(RUNS, 2)) + 2.0 * worlds[:, None])
        with threadpoolctl.threadpool_limits(2):
            found = dict(learning._learned(table, worlds))["boosted trees"](table)
        assert set(counts) == {1}
        assert len(counts) > 1
        assert found[worlds].mean() > found[~worlds].mean()
