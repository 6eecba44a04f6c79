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

    def test_partial_sums_tell_what_no_coordinate_does(self):
        """A one among zeros comes sooner in one world; where is as likely in both."""
        random = np.random.default_rng(1)
        worlds = random.random(RUNS) < 0.5
        first = random.integers(0, 20, RUNS)
        table = np.zeros((RUNS, 21))
        table[np.arange(RUNS), first] = 1
        table[np.arange(RUNS), np.where(worlds, first + 1, 20)] += 1
        table[:, 20] = 0
        past, half = seen(table), np.arange(RUNS) % 2 == 0
        scores = dict(learning._learned(past[half], worlds[half]))
        found = scores["bins of partial sums"](past[~half])
        assert found[worlds[~half]].mean() > found[~worlds[~half]].mean() + 1
        assert "bins of partial sums" not in dict(
            learning._learned(seen(table + 0.5), worlds)
        )

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
