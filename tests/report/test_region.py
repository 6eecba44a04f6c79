"""The region of (epsilon, delta)-DP, against the bound that reads it backwards."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privaudit.auditing.bounds.clopper_pearson import epsilon_from_limits
from privaudit.report.meaning import allowed_tpr, most_right


class TestSound:
    """What lies on its edge shows this epsilon, no less."""

    @pytest.mark.parametrize("delta", [0.0, 1e-5, 0.1])
    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
    def test_edge_gives_epsilon_back(self, epsilon, delta):
        fpr = np.linspace(1e-4, 0.8, 50)
        least, most = allowed_tpr(epsilon, delta, fpr)
        inside = most < 1
        shown = epsilon_from_limits(most[inside], fpr[inside], delta)
        assert shown == pytest.approx(epsilon)
        assert (least <= fpr).all()
        assert (fpr <= most).all()

    @pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, 50.0])
    def test_right_guesses_are_the_best_of_the_edge(self, epsilon):
        fpr = np.linspace(0, 1, 100_001)
        _, most = allowed_tpr(epsilon, 0.01, fpr)
        best = ((most + 1 - fpr) / 2).max()
        assert most_right(epsilon, 0.01) == pytest.approx(best, abs=1e-5)

    def test_infinity_forbids_nothing(self):
        least, most = allowed_tpr(math.inf, 0.0, np.array([0.0, 0.5, 1.0]))
        assert (least == 0).all()
        assert (most == 1).all()
