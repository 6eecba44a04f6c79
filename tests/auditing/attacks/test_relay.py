"""The relay refutes the linear account, and never the certified one."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privaudit as pa
from privaudit.accounting.views import Observer
from privaudit.auditing.attacks.relay import Relay
from tests.tiers import examples

DELTA = 1e-2
PATH = {
    "algorithm": "dp-dsgd",
    "nodes": 3,
    "graph": "path",
    "weights": "metropolis",
    "rounds": 4,
}


def shown(relay, runs, confidence=0.99, seed=0):
    scores = relay.scores(runs, seed)
    return pa.lower_bound(
        scores.score, scores.member, delta=relay.delta, confidence=confidence
    ).epsilon


def not_above(name, nodes, seed, noise, runs):
    """The relay on a random graph, by a random node, against what is certified."""
    pushed = name == "const-d2p"
    values = {
        "algorithm": name,
        "nodes": nodes,
        "graph": "exponential" if pushed else "erdos-renyi:0.5",
        "weights": "column-stochastic" if pushed else "metropolis",
        "graph_seed": seed,
        "rounds": 6,
        **({"gossips": 2} if name == "dp-muffliato" else {}),
    }
    try:
        relay = Relay.of(
            values,
            Observer.of(1 + seed % (nodes - 1)),
            noise_multiplier=noise,
            delta=DELTA,
        )
    except ValueError as error:  # not every random graph is connected
        assert re.search("connected|hears nothing", str(error))  # noqa: PT017
        return
    assert shown(relay, runs, 0.9999, seed) <= relay.pair.certified


class TestRefutes:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("noise", [0.5, 0.7])
    def test_a_path_of_three(self, noise):
        relay = Relay.of(PATH, Observer.of(2), noise_multiplier=noise, delta=DELTA)
        found = shown(relay, 2000)
        assert relay.pair.nobody_reacts < found <= relay.pair.certified

    def test_far_nodes_learn_as_much(self):
        far = {**PATH, "nodes": 5, "rounds": 6}
        relay = Relay.of(far, Observer.of(4), noise_multiplier=0.5, delta=DELTA)
        assert shown(relay, 2000) > 10 * relay.pair.nobody_reacts

    def test_runs_are_repeated_by_their_seed(self):
        relay = Relay.of(PATH, Observer.of(2), noise_multiplier=1.0, delta=DELTA)
        one, same, other = (relay.scores(40, seed).score for seed in (3, 3, 4))
        np.testing.assert_array_equal(one, same)
        assert (one != other).all()


class TestSound:
    @pytest.mark.full  # in the quick tier a path of three
    @examples(12)
    @given(
        st.sampled_from(["dp-dsgd", "dp-dsgt", "dp-muffliato", "const-d2p"]),
        st.integers(3, 5),
        st.integers(0, 100),
        st.sampled_from([0.5, 1.0, 2.0]),
    )
    def test_no_attack_shows_more_than_is_certified(self, name, nodes, seed, noise):
        not_above(name, nodes, seed, noise, 400)

    @pytest.mark.full
    @examples(150)
    @given(
        st.sampled_from(["dp-dsgd", "dp-dsgt", "dp-muffliato", "const-d2p"]),
        st.integers(3, 8),
        st.integers(0, 10_000),
        st.floats(0.2, 3.0),
    )
    def test_nor_does_a_long_search(self, name, nodes, seed, noise):
        not_above(name, nodes, seed, noise, 2000)

    def test_without_the_record_nothing_is_shown(self):
        relay = Relay.of(PATH, Observer.of(2), noise_multiplier=0.5, delta=DELTA)
        still = dataclasses.replace(relay, noise_multiplier=50.0)
        # The same thresholds under a hundred times the noise: a coin's worth.
        assert shown(still, 400) < 0.5


class TestRefused:
    def test_its_own_node(self):
        with pytest.raises(ValueError, match="relay is of node 0"):
            Relay.of(PATH, Observer.of(0, 2), noise_multiplier=1.0, delta=DELTA)

    def test_who_hears_nothing_of_it(self):
        with pytest.raises(ValueError, match="hears nothing"):
            Relay.of(
                {**PATH, "rounds": 3}, Observer.of(2), noise_multiplier=1.0, delta=DELTA
            )
