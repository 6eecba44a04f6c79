"""Contract of deferred_checks: what does not hold is told, at once or when settled."""

import math

import pytest
import torch

from trainers.numerics.deferred_checks import Watch, finite


class TestWatch:
    def test_it_counts_all(self):
        watch = Watch()
        for which in ([True, False, True], [False], [True]):
            watch.count(torch.tensor(which))
        assert watch.counted == 3

    def test_on_a_cpu_it_raises_at_once(self):
        with pytest.raises(ValueError, match="not finite"):
            finite(torch.tensor([1.0, math.nan]), Watch())
        finite(torch.tensor([1.0, 2.0]), Watch())

    def test_else_when_it_is_settled_whatever_came_after(self):
        watch = Watch(at_once=False)
        finite(torch.tensor([math.inf]), watch)
        finite(torch.tensor([1.0]), watch)
        with pytest.raises(ValueError, match="not finite"):
            watch.settle()
        finite(torch.tensor([1.0]), watch)
        watch.settle()
