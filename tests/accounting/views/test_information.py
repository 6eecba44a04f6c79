"""What rows tell, against singular values; what is above it, against eigenvalues."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting.views import (
    LinearProtocol,
    Observer,
    dominating,
    information,
    of_observer,
)
from privaudit.accounting.views.information import _balanced
from tests.accounting.views.networks import gossip
from tests.tiers import examples


def by_singular_values(rows):
    """The projection on the rows' space; they must be far from dependent, or not."""
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    _, sizes, right = np.linalg.svd(rows, full_matrices=False)
    rank = int((sizes > 1e-9).sum())
    assert rank == len(sizes) or sizes[rank] < 1e-13
    assert sizes[rank - 1] > 1e-3
    return right[:rank].T @ right[:rank]


@pytest.mark.parametrize(
    ("rows", "balanced"),
    [
        ([[1, 1, 1], [1, 1, 1], [1, 1, 1]], True),
        ([[1, -1, 0], [-1, 1, -2], [0, -2, 1]], True),
        ([[1, 1, 1], [1, 1, -1], [1, -1, 1]], False),
        ([[1, -1, -1], [-1, 1, -1], [-1, -1, 1]], False),
        ([[1, 0], [0, -1]], False),
    ],
)
def test_balanced_is_what_some_signs_make_nonnegative(rows, balanced):
    matrix = np.array(rows, float)
    signs = (np.array(one) for one in itertools.product((1, -1), repeat=len(matrix)))
    assert any((matrix * np.outer(s, s) >= 0).all() for s in signs) is balanced
    for scale in (1.0, 1e-20, 1e20):
        assert _balanced(scale * matrix) is balanced


@pytest.mark.parametrize("nodes", [3, 5])
def test_a_view_as_one_factorisation_is_the_figure_if_nobody_reacts(nodes):
    """By MFDL's `compute_muffliato_privacy_loss` (Bellet et al. 2025), as it stands.

    mu^2 = sum_st |(B^+ B)_st|, B what is heard after each of the gradients, and the
    attacker's own. In training more is told.
    """
    steps, last = 6, nodes - 1
    path = (np.eye(nodes) + np.eye(nodes, k=1) + np.eye(nodes, k=-1)) / 3
    path[0, 0] = path[-1, -1] = 2 / 3
    powers = [np.linalg.matrix_power(path, k) for k in range(steps)]
    none = np.zeros((nodes, nodes))
    sent = np.block(
        [
            [powers[k - j] if j <= k else none for j in range(steps)]
            for k in range(steps)
        ]
    )
    hears = np.tile(path[last] > 0, steps)
    own = np.eye(nodes * steps)[last::nodes]
    rows = np.concatenate([sent[hears], own])
    told = (np.linalg.pinv(rows) @ rows)[::nodes, ::nodes]
    # A round later all that came after the gradients has been sent.
    protocol = gossip(path, steps + 1, 1.0)
    view = of_observer(protocol, Observer.of(last), 0)
    theirs = abs(told).sum() ** 0.5
    assert theirs == pytest.approx((view.nobody_reacts**-2.0).sum() ** 0.5, rel=1e-6)
    assert (view.certified**-2.0).sum() ** 0.5 > 1.5 * theirs


class TestInformation:
    @pytest.mark.parametrize("part", [1.0, 1e-6, 2.0**-40, 1e-14])
    def test_however_little_comes_without_noise_is_told(self, part):
        """Nothing was taken off that entry: it is no rounding."""
        signal = np.array([[1.0, 0.0], [1.0, part], [0.0, 1.0]])
        noise = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        assert information(signal, noise).bare.tolist() == [False, True]

    @pytest.mark.parametrize(("entries", "size"), [(10, 1.0), (400, 1.0), (2, 1e-4)])
    def test_a_difference_in_one_entry_is_told_however_many_there_are(
        self, entries, size
    ):
        # A few 1e-12 of it: of the row it is less. Their difference tells it alone.
        rows = np.ones((2, entries))
        rows[:, -1] = size
        rows[1, -1] += 5e-12 * size
        assert information(rows, rows).matrix[-1, -1] == pytest.approx(1, rel=1e-6)

    def test_a_difference_of_noise_alone_tells_that_noise(self):
        # By a singular value that would pass for 0. Then three noises hide the sum.
        noise = np.array([[1.0, 1, 1, 1], [1.0, 1, 1, 1 + 3e-12]])
        found = information(np.ones((2, 1)), noise).matrix
        assert found == pytest.approx(1 / 3, rel=1e-6)

    @pytest.mark.parametrize("rounds", [5, 12, 30])
    def test_long_gossip_with_rows_that_repeat(self, rounds):
        ring = np.eye(8) + np.roll(np.eye(8), 1, 0) + np.roll(np.eye(8), -1, 0)
        protocol = gossip(ring / 3, rounds, 1.0)
        rows = protocol.messages[protocol.seen_by(Observer.of(0))]
        rows = np.concatenate([rows, protocol.points])[:, protocol.owner != 0]
        rows = rows[(rows != 0).any(1)]
        order = np.random.default_rng(0).permutation(len(rows))
        right = by_singular_values(rows)
        for some in (rows, rows[order], rows[::-1] * 1e-5):
            found = information(some, some)
            np.testing.assert_allclose(found.matrix, right, atol=1e-10)
            assert not found.bare.any()
        assert information(rows, rows).rounding == 0

    @examples(60)
    @given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 8))
    def test_any_rows_by_the_pseudo_inverse(self, seed, count, inputs):
        rng = np.random.default_rng(seed)
        signal = rng.normal(size=(count, inputs))
        noise = signal @ rng.normal(size=(inputs, inputs + 1))
        right = signal.T @ np.linalg.pinv(noise @ noise.T, rcond=1e-12) @ signal
        found = information(signal, noise).matrix
        np.testing.assert_allclose(found, right, rtol=1e-6, atol=1e-8)

    def test_what_is_diluted_a_million_times_is_told_all_the_same(self):
        rows = np.array([[1e-9, 0.0], [1e-9, 1.0]])
        np.testing.assert_allclose(information(rows, rows).matrix, np.eye(2))

    def test_a_far_node_is_not_taken_for_rounding(self):
        # 40 hops: what is heard of the last is 3^-40 of a message, and all of it.
        nodes = 41
        path = np.eye(nodes) + np.eye(nodes, k=1) + np.eye(nodes, k=-1)
        path[0, 0] = path[-1, -1] = 2
        protocol = LinearProtocol.averaging(path / 3, rounds=nodes)
        view = of_observer(protocol, Observer.of(0), nodes - 1)
        assert view.nobody_reacts[0] == pytest.approx(1, rel=1e-6)

    def test_no_rows_tell_nothing(self):
        found = information(np.zeros((0, 3)), np.zeros((0, 2)))
        assert not found.matrix.any()
        assert not found.bare.any()

    @pytest.mark.parametrize("small", [1e-9, 1e-13, 1e-14, 1e-15, 1e-18])
    def test_an_entry_that_is_given_is_no_rounding(self, small):
        """However small, and whatever other rows are nearly alike."""
        near = [[0, 0, 1, 1], [0, 0, 1, 1 + 3.5e-6]]
        noise = [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], *near]
        signal = [[small], [0], [1], [0], [0]]
        assert information(np.array(signal), np.array(noise)).bare.tolist() == [True]
        noise, signal = [[1, 0, small], [1, 0, 0], [0, 1, 1]], [[small], [0], [1]]
        found = information(np.array(signal, float), np.array(noise))
        assert found.matrix == pytest.approx(np.ones((1, 1)))

    def test_signal_without_noise_is_bare(self):
        found = information(np.array([[1.0, 1], [1, -1]]), np.array([[1.0], [1]]))
        assert found.bare.tolist() == [False, True]


class TestDominating:
    @examples(60)
    @given(st.integers(0, 10_000), st.integers(1, 8))
    def test_it_is_above_and_no_more_than_row_sums(self, seed, count):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(count, rng.integers(1, count + 1)))
        matrix, unit = root @ root.T, rng.uniform(0.1, 3, count)
        found = dominating(matrix, unit)
        assert np.linalg.eigvalsh(np.diag(found) - matrix)[0] >= -1e-12
        least = abs(matrix * unit[:, None] * unit).sum()
        assert (found * unit**2).sum() <= least * (1 + 1e-9)

    @examples(30)
    @given(st.integers(0, 10_000))
    def test_signals_that_reach_it(self, seed):
        # Where entries are positive, or signs make them so: all signals aligned.
        rng = np.random.default_rng(seed)
        signs = rng.choice([-1, 1], 5)
        matrix = rng.uniform(0, 0.2, (5, 5))
        matrix = (matrix + matrix.T + np.eye(5)) * signs[:, None] * signs
        reached = signs @ matrix @ signs
        assert dominating(matrix).sum() == pytest.approx(reached, rel=1e-9)

    def test_signs_that_no_signals_align_cost_less_than_row_sums(self):
        # Three signals, each pair opposed: 120 degrees apart is the worst, 4.5 of 6.
        matrix = np.full((3, 3), -0.5) + 1.5 * np.eye(3)
        assert dominating(matrix).sum() == pytest.approx(4.5, rel=1e-9)

    @examples(40)
    @given(st.integers(0, 10_000), st.integers(3, 30), st.sampled_from([0, 2, 20]))
    def test_where_signals_that_reach_it_are_known_it_is_met(self, seed, count, orders):
        # Unit vectors v_t that diag(D) - M sends to 0, with both >= 0, are the worst
        # signals: sum M_st <v_s, v_t> = sum D, whatever the signals' units.
        rng = np.random.default_rng(seed)
        vectors = rng.normal(size=(count, 2 if count < 6 else 3))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        hidden = np.linalg.qr(vectors, "complete")[0][:, vectors.shape[1] :]
        root = hidden @ rng.normal(size=(hidden.shape[1], hidden.shape[1]))
        above = root @ root.T
        right = np.linalg.eigvalsh(above)[-1] * rng.uniform(1, 2, count)
        unit = 10 ** rng.uniform(-orders / 2, 0, count)
        matrix = (np.diag(right) - above) / unit[:, None] / unit
        found = dominating(matrix, unit)
        assert (found * unit**2).sum() == pytest.approx(right.sum(), rel=1e-9)
