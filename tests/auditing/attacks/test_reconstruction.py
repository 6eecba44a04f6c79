"""Reconstruction against exact elimination and the law of normal numbers."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting.views import LinearProtocol, Observer
from privaudit.auditing.attacks.reconstruction import reconstruction
from tests.accounting.views import reference
from tests.accounting.views.test_figures import floats, path, ring, some_graph
from tests.tiers import examples


def solved_exactly(rows, of, by):
    """By elimination in fractions: whether the rows' span has the unit vector."""
    rows = [[Fraction(0) if i in by else x for i, x in enumerate(row)] for row in rows]
    unit = [Fraction(int(i == of)) for i in range(len(rows[0]))]
    rank = len(reference.independent(rows))
    return len(reference.independent([*rows, unit])) == rank


@st.composite
def networks(draw):
    nodes = draw(st.integers(3, 6))
    edges = some_graph(nodes, draw(st.integers(0, 1000)))
    by = draw(st.sets(st.integers(0, nodes - 1), min_size=1, max_size=2))
    return reference.metropolis(edges, nodes), draw(st.integers(1, 6)), by


class TestSolves:
    @examples(60)
    @given(networks())
    def test_just_what_elimination_solves(self, network):
        matrix, rounds, by = network
        rows = reference.heard([matrix], rounds, by)
        protocol = LinearProtocol.averaging(floats([matrix]), noise=0.5, rounds=rounds)
        for of in set(range(len(matrix))) - by:
            found = reconstruction(protocol, Observer.of(*by), of)
            assert found.solved[0] == solved_exactly(rows, of, by)
            exact = reconstruction(
                LinearProtocol.averaging(floats([matrix]), 0.0, rounds),
                Observer.of(*by),
                of,
            )
            assert (exact.error[0] < 1e-6) == found.solved[0]

    def test_most_of_a_vector_is_not_all_of_it(self):
        edges = [(0, 1), (0, 5), (1, 2), (1, 3), (2, 4), (3, 4), (3, 6)]
        matrix = reference.metropolis(edges, 7)
        protocol = LinearProtocol.averaging(floats([matrix]), noise=0.0, rounds=4)
        found = reconstruction(protocol, Observer.of(6), 5)
        assert not found.solved[0]
        assert not solved_exactly(reference.heard([matrix], 4, {6}), 5, {6})
        assert 0.8 < found.mixture[0, 5] < 0.9

    def test_a_path_hides_nobody(self):
        matrix = floats([reference.metropolis(path(6), 6)])
        protocol = LinearProtocol.averaging(matrix, noise=0.0, rounds=5)
        vectors = np.random.default_rng(0).normal(size=(6, 20))
        for of in range(5):
            found = reconstruction(protocol, Observer.of(5), of)
            known = vectors * (np.arange(6) == 5)[:, None]
            guess = found(protocol.messages @ vectors, known)
            np.testing.assert_allclose(guess[0], vectors[of], atol=1e-9)

    def test_equal_places_are_told_as_their_mean(self):
        matrix = floats([reference.metropolis(ring(5), 5)])
        protocol = LinearProtocol.averaging(matrix, noise=0.0, rounds=9)
        two_hops = reconstruction(protocol, Observer.of(0, 1), 3)
        assert two_hops.solved[0]
        star = floats([reference.metropolis([(0, 1), (0, 2), (0, 3)], 4)])
        leaf = LinearProtocol.averaging(star, noise=0.0, rounds=9)
        mixture = reconstruction(leaf, Observer.of(1), 2).mixture[0]
        np.testing.assert_allclose(mixture, [0, 0, 0.5, 0.5], atol=1e-9)

    def test_steps_of_training(self):
        protocol = LinearProtocol.gossip(np.full((3, 3), 1 / 3), 4, noise=0.0)
        found = reconstruction(protocol, Observer.of(2), 0)
        assert found.solved.tolist() == [
            True,
            True,
            True,
            False,
        ]  # the last is not sent


class TestGuesses:
    @given(networks(), st.floats(0.1, 3.0), st.floats(0.1, 3.0))
    def test_the_conditional_mean_of_normal_vectors(self, network, noise, spread):
        matrix, rounds, by = network
        nodes = len(matrix)
        protocol = LinearProtocol.averaging(floats([matrix]), noise, rounds)
        observer = Observer.of(*by)
        of = min(set(range(nodes)) - by)
        found = reconstruction(protocol, observer, of, spread)
        told = protocol.messages[protocol.seen_by(observer)]
        told = told * ~np.isin(np.arange(nodes), list(by))
        both = told @ told.T * (spread**2 + noise**2)
        with_it = spread**2 * told[:, of]
        least = spread**2 - with_it @ np.linalg.pinv(both, rcond=1e-11) @ with_it
        assert found.error[0] ** 2 == pytest.approx(least, abs=1e-6 * spread**2)

    def test_noise_that_is_shared_hides_from_others_alone(self):
        protocol = LinearProtocol(
            3,
            [0, 1],
            np.eye(2),
            [0, 1],
            [[0, 0, 1], [0, 0, 1]],
            [[1, 0, 20], [0, 1, -20]],
            known=[[1, 0, 0], [0, 1, 0], [1, 1, 0]],
        )
        alone = reconstruction(protocol, Observer.of(2), 0)
        both = reconstruction(protocol, Observer.of(1, 2), 0)
        assert alone.error[0] > 0.8 > both.error[0]
        generator = np.random.default_rng(1)
        vectors, own = generator.normal(size=(2, 2, 40_000))
        shared = 20 * generator.normal(size=40_000)
        heard = vectors + own + np.stack([shared, -shared])
        known = np.stack([shared, heard[1]])
        off = both(protocol.messages @ heard, known)[0] - vectors[0]
        assert off.std() == pytest.approx(both.error[0], rel=0.03)


@pytest.mark.parametrize(
    ("of", "spread", "words"),
    [(4, 1.0, "there is no node 4"), (0, 0.0, "spread must be")],
)
def test_refused(of, spread, words):
    protocol = LinearProtocol.averaging(np.full((3, 3), 1 / 3))
    with pytest.raises(ValueError, match=words):
        reconstruction(protocol, Observer.of(1), of, spread)
