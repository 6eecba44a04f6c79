"""Contract of privaudit.accounting.papers.dpps."""

import math

import numpy as np
import pytest

from privaudit.accounting.account import account
from privaudit.accounting.papers import dpps
from privaudit.accounting.papers.push_sum_sensitivity import (
    data_independent_sensitivity,
)

S = np.array([2.0, 3.0, 3.0])


def total(sensitivities, delta, **options):
    return account(dpps.ledger(sensitivities, **options), delta, "replace-one", "rdp")


class TestSound:
    def test_a_round_is_the_theorem_s(self):
        assert dpps.round_epsilon(5.0, 0.001) == pytest.approx(5000)
        assert dpps.round_epsilon(5.0, 0.0) == math.inf

    def test_node_level_total_is_at_most_the_sum_of_rounds(self):
        bound = total(S, 1e-5, budget=0.5, noise_rate=1.0, unit="node")
        assert bound.unit == "node"
        assert bound.relation == "replace-one"
        assert 1.0 < bound.epsilon <= 1.5 * (1 + 1e-9)

    def test_record_level_is_by_the_perturbation(self):
        # 2 x 0.1 over scales 2 / 0.5 and 3 / 0.5: pure epsilon 0.05 + 2 / 30.
        bound = total(
            S, 1e-9, budget=0.5, noise_rate=1.0, unit="record", perturbation=0.1
        )
        assert bound.unit == "record"
        assert bound.epsilon == pytest.approx(0.05 + 0.2 / 3, rel=1e-6)

    def test_a_data_independent_run_from_end_to_end(self):
        weights = np.full((4, 4), 0.25)
        scales = data_independent_sensitivity(
            [weights] * 20,
            perturbation=0.1,
            dimension=100,
            budget=0.2,
            noise_rate=0.001,
            failure=1e-7,
        )
        options = {"budget": 0.2, "noise_rate": 0.001}
        node = total(scales, 1e-6, unit="node", **options)
        record = total(scales, 1e-6, unit="record", perturbation=0.1, **options)
        assert record.epsilon <= node.epsilon

    def test_no_noise_is_no_privacy(self):
        bound = total(S, 1e-5, budget=1.0, noise_rate=0.0, unit="node")
        assert bound.epsilon == math.inf


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sensitivities": [1.0, 0.0]}, "one a round"),
        ({"budget": 0.0}, "b must be"),
        ({"noise_rate": -1.0}, "noise rate"),
        ({"unit": "record"}, "needs the bound"),
    ],
)
def test_refuses_with_a_sentence(changed, words):
    good = {"sensitivities": S, "budget": 1.0, "noise_rate": 0.1, "unit": "node"}
    with pytest.raises(ValueError, match=words):
        dpps.ledger(**(good | changed))
