"""Sensitivities of correlated noise: jax-privacy's public cases, and all subsets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from privaudit.accounting.certificate import Certificate
from privaudit.accounting.factorization import (
    blt,
    matrix_factorization,
    toeplitz,
    toeplitz_error,
    tree_aggregation,
    turn_norm,
)
from privaudit.ledger import Ledger
from tests import reference as ref

BANDED = np.array(
    [[1.0, 0, 0, 0], [2.0, 1.0, 0, 0], [0, 1.0, 1.0, 0], [0, 0, 1.0, -6.0]]
)


def moved(strategy, **more):
    release = matrix_factorization(strategy, noise_multiplier=1.0, **more)
    assert release.sensitivity.replace_one == 2 * release.sensitivity.add_or_remove_one
    return release.sensitivity.add_or_remove_one


class TestOfJaxPrivacy:
    """The cases of its sensitivity_test.py."""

    def test_one_participation(self):
        strategy = BANDED.copy()
        strategy[3, 2] = 3.0
        assert moved(strategy) == pytest.approx(6.0)
        assert moved(strategy[:3, :3]) == pytest.approx(math.sqrt(5))
        assert moved([[3]]) == pytest.approx(3.0)

    @pytest.mark.parametrize("apart", [2, 3])
    def test_banded(self, apart):
        assert moved(BANDED, min_separation=apart) == pytest.approx(math.sqrt(41))

    def test_diagonal(self):
        strategy = np.diag([0.0, 3.0, 0.0, 1.0, 2.0])
        assert moved(strategy, min_separation=2) == pytest.approx(math.sqrt(13))
        once = {"min_separation": 2, "max_participations": 1}
        assert moved(strategy, **once) == pytest.approx(3.0)
        assert moved(BANDED, **once) == pytest.approx(6.0)

    @pytest.mark.parametrize("n", [1, 2, 5, 10])
    def test_as_far_apart_as_there_are_steps(self, n):
        assert moved(np.tri(n), min_separation=n) == pytest.approx(math.sqrt(n))

    @pytest.mark.parametrize("epochs", [1, 2, 4, 8, 16])
    def test_identity(self, epochs):
        assert moved(np.eye(16), epochs=epochs) == pytest.approx(math.sqrt(epochs))

    def test_every_step(self):
        strategy = np.abs(np.random.default_rng(0).normal(size=(16, 16))) * np.tri(16)
        wanted = np.linalg.norm(strategy.sum(axis=1))
        assert moved(strategy, epochs=16) == pytest.approx(wanted)

    @pytest.mark.parametrize(
        ("strategy", "more", "words"),
        [
            (np.tri(3) * [[1], [2], [3]], {"min_separation": 2}, "must be orthogonal"),
            (BANDED, {"min_separation": 1}, "must be orthogonal"),
            (np.eye(16), {"epochs": 0}, "whole number >= 1 that divides the 16"),
            (np.eye(16), {"epochs": 3}, "divides the 16 steps, got 3"),
            (np.eye(3), {"min_separation": 4}, "from 1 to the 3 steps, got 4"),
            (np.eye(3), {"min_separation": 1, "epochs": 3}, "give one of"),
            (np.eye(3), {"max_participations": 2}, "goes with min_separation"),
            (
                np.eye(3),
                {"min_separation": 1, "max_participations": 0},
                "whole number >= 1, got 0",
            ),
            (np.zeros(3), {}, r"got one of shape \(3,\)"),
        ],
    )
    def test_refused(self, strategy, more, words):
        with pytest.raises(ValueError, match=words):
            moved(strategy, **more)


class TestExact:
    @pytest.mark.parametrize("most", [None, 1, 2, 5])
    @pytest.mark.parametrize("seed", range(5))
    def test_banded_over_all_patterns(self, seed, most):
        random, n, apart = np.random.default_rng(seed), 8, 3
        strategy = random.normal(size=(n, n)) * (np.tri(n) - np.tri(n, k=-apart))
        best = 0.0
        for size in range(1, (most or n) + 1):
            for steps in itertools.combinations(range(n), size):
                if all(b - a >= apart for a, b in itertools.pairwise(steps)):
                    signs = itertools.product((-1, 1), repeat=size)
                    for sign in signs:
                        total = strategy[:, list(steps)] @ np.array(sign)
                        best = max(best, float(np.linalg.norm(total)))
        found = moved(strategy, min_separation=apart, max_participations=most)
        assert found == pytest.approx(best)

    @pytest.mark.parametrize(
        "column", [(1, 0.9, 0.9, 0.4, 0.2, 0.1, 0), (2, 1, 1, 1, 1, 1, 1)]
    )
    @pytest.mark.parametrize(("apart", "most"), [(1, 3), (2, None), (3, 2), (5, None)])
    def test_columns_that_fall_over_all_patterns(self, column, apart, most):
        strategy = TestToeplitz.matrix(column, 7)
        best = max(
            np.linalg.norm(strategy[:, list(steps)].sum(axis=1))
            for size in range(1, (most or 7) + 1)
            for steps in itertools.combinations(range(7), size)
            if all(b - a >= apart for a, b in itertools.pairwise(steps))
        )
        found = moved(strategy, min_separation=apart, max_participations=most)
        assert found == pytest.approx(best)

    @pytest.mark.parametrize(
        "column", [(1, 0.1, 0.9, 0, 0, 0, 0), (1, 0.5, 0, 0, -0.5, -0.5, -0.5)]
    )
    def test_columns_that_rise_or_fall_below_0_are_refused(self, column):
        with pytest.raises(ValueError, match="first column falls and is >= 0"):
            moved(TestToeplitz.matrix(column, 7), min_separation=2)

    @pytest.mark.parametrize("epochs", [2, 3])
    def test_cycles_over_all_signs(self, epochs):
        strategy = np.tri(6) * np.array([1.0, -1, 1, 1, -1, 1])
        best = 0.0
        for first in range(6 // epochs):
            steps = list(range(first, 6, 6 // epochs))
            for sign in itertools.product((-1, 1), repeat=epochs):
                total = strategy[:, steps] @ np.array(sign)
                best = max(best, float(np.linalg.norm(total)))
        assert moved(strategy, epochs=epochs) == pytest.approx(best)

    def test_signs_that_none_attain_are_refused(self):
        gram = np.array([[1.0, 0.5, -0.3], [0.5, 1.0, 0.5], [-0.3, 0.5, 1.0]])
        with pytest.raises(ValueError, match="exact sensitivity is not known"):
            moved(np.linalg.cholesky(gram).T, epochs=3)


class TestTrees:
    @pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 8, 1600])
    def test_a_record_of_one_step_is_in_one_node_a_level(self, steps):
        release = tree_aggregation(steps, noise_multiplier=1.0)
        height = math.ceil(math.log2(steps + 1))
        assert release.sensitivity.add_or_remove_one == pytest.approx(math.sqrt(height))

    def test_several_epochs_by_counting(self):
        release = tree_aggregation(6, noise_multiplier=1.0, epochs=2)
        # Steps 0 and 3: leaves 1, 1; pairs 01 and 23 one each; 0123 has both.
        assert release.sensitivity.add_or_remove_one**2 == pytest.approx(
            1 + 1 + 1 + 1 + 4
        )

    def test_the_account_is_the_gaussians(self):
        release = tree_aggregation(1600, noise_multiplier=8.83)
        bracket = Certificate.of(Ledger.of(release)).delta(1.0)
        truth = float(ref.gaussian_delta(math.sqrt(11) / 8.83, 1.0))
        assert bracket.lower <= truth * (1 + 1e-9)
        assert truth <= bracket.upper <= truth * 1.0001

    def test_dp_accountings_figure_is_met(self):
        """Its test: at most 2.04 at 1e-6, by Renyi."""
        release = tree_aggregation(1600, noise_multiplier=8.83)
        assert Certificate.of(Ledger.of(release)).epsilon(1e-6).upper < 2.04


class TestToeplitz:
    @staticmethod
    def matrix(column, steps):
        return sum(c * np.eye(steps, k=-j) for j, c in enumerate(column))

    @pytest.mark.parametrize(("steps", "band"), [(1, 1), (7, 3), (30, 30), (40, 5)])
    def test_the_error_is_that_of_the_matrices(self, steps, band):
        column = toeplitz(steps, band)
        sums = np.tri(steps) @ np.linalg.inv(self.matrix(column, steps))
        square = np.sum(np.square(column)) * np.sum(np.square(sums)) / steps
        assert toeplitz_error(column, steps) == pytest.approx(square)

    @pytest.mark.parametrize(("steps", "band"), [(16, 2), (50, 4), (200, 16)])
    def test_no_neighbour_is_better(self, steps, band):
        column, random = np.array(toeplitz(steps, band)), np.random.default_rng(0)
        least = toeplitz_error(column, steps)
        for size in (1e-3, 1e-2, 0.1):
            for _ in range(30):
                other = column + size * random.normal(size=band) * np.arange(band).clip(
                    0, 1
                )
                assert toeplitz_error(other, steps) >= least * (1 - 1e-9)

    def test_wider_is_better_down_to_the_logarithm(self):
        found = [toeplitz_error(toeplitz(256, band), 256) for band in (1, 2, 8, 64)]
        assert found == sorted(found, reverse=True)
        assert found[0] == pytest.approx(257 / 2)
        # No factorisation is below (log(n) / pi)^2 (Henzinger et al. 2023).
        assert (math.log(256) / math.pi) ** 2 < found[-1] < 9

    def test_refused(self):
        with pytest.raises(ValueError, match="from 1 to the 4 steps wide, got 5"):
            toeplitz(4, 5)


class TestBuffers:
    @staticmethod
    def matrix(pairs, steps):
        column = [sum(m * x**j for m, x in pairs) for j in range(steps)]
        return TestToeplitz.matrix((1.0, *column[1:]), steps)

    @staticmethod
    def error(pairs, parts, steps):
        """By explicit matrices, of a record of the first part."""
        strategy = TestBuffers.matrix(pairs, steps)
        sums = np.tri(steps) @ np.linalg.inv(strategy)
        moved = strategy[:, ::parts].sum(axis=1)
        return np.sum(np.square(moved)) * np.sum(np.square(sums))

    @pytest.mark.parametrize("pairs", [((0.6, 0.9),), ((0.3, 0.99), (0.7, 0.2))])
    @pytest.mark.parametrize(("parts", "steps"), [(2, 8), (3, 9), (3, 7), (4, 4)])
    def test_turns_over_all_patterns_and_signs(self, pairs, parts, steps):
        strategy, best = self.matrix(pairs, steps), 0.0
        for first in range(parts):
            for signs in itertools.product(
                (-1, 0, 1), repeat=len(strategy[0, first::parts])
            ):
                rows = strategy[:, first::parts] @ np.array(signs)
                best = max(best, float(rows @ rows))
        turns = range(-(-steps // parts))
        found = sum(turn_norm(pairs, parts, turn) ** 2 for turn in turns)
        assert found >= best
        if (
            steps % parts == 0
        ):  # what is not, is accounted as if its last turn were whole
            assert found == pytest.approx(best)

    def test_each_turn_by_itself(self):
        pairs, parts = ((0.3, 0.99), (0.6, 0.5)), 3
        moved = self.matrix(pairs, 30)[:, ::parts].sum(axis=1)
        for turn in range(10):
            own = np.linalg.norm(moved[parts * turn : parts * (turn + 1)])
            assert own <= turn_norm(pairs, parts, turn) <= own * (1 + 1e-9)

    @pytest.mark.parametrize(
        ("steps", "parts", "buffers"), [(60, 12, 2), (100, 100, 3)]
    )
    def test_no_neighbour_is_better(self, steps, parts, buffers):
        pairs, random = blt(steps, parts, buffers), np.random.default_rng(0)
        least = self.error(pairs, parts, steps)
        for size in (0.01, 0.1):
            for _ in range(20):
                mass, decay = np.array(pairs).T
                mass = mass * np.exp(size * random.normal(size=buffers))
                away = (1 - decay) * np.exp(size * random.normal(size=buffers))
                other = list(zip(mass / max(1, mass.sum()), 1 - away, strict=True))
                assert self.error(other, parts, steps) >= least * (1 - 1e-5)

    def test_more_are_better_down_to_the_best_of_all(self):
        found = [self.error(blt(256, 256, n), 256, 256) / 256 for n in (1, 2, 3)]
        assert found == sorted(found, reverse=True)
        whole = toeplitz_error(toeplitz(256, 256), 256)
        assert whole <= found[-1] <= 1.01 * whole

    @pytest.mark.parametrize("steps", [30, 1000])
    def test_its_inverse_sums_up_to_2(self, steps):
        """By which roundings of w are bounded; close to it, or nothing is bounded."""
        column = self.matrix(blt(steps, 10, 3), steps)[:, 0]
        inverse = np.zeros(steps)
        for k in range(steps):
            inverse[k] = (k == 0) - inverse[:k] @ column[k:0:-1]
        assert 1.5 < np.abs(inverse).sum() <= 2

    def test_refused(self):
        with pytest.raises(ValueError, match="1 to 8 buffers and records"):
            blt(10, 4, 9)
        with pytest.raises(ValueError, match="got 1 and 11"):
            blt(10, 11, 1)
