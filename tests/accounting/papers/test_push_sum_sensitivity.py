"""Contract of push_sum_sensitivity, on simulated push-sum runs."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting.papers.push_sum_sensitivity import (
    PaperEstimate,
    Spread,
    data_independent_sensitivity,
    least_constant,
)
from tests.tiers import examples


def d_out(nodes, degree, t):
    weights = np.zeros((nodes, nodes))
    for i in range(nodes):
        for hop in range(degree):
            weights[(i + hop) % nodes, i] += 1 / degree
    return weights


def exponential(nodes, t):
    hop = 2 ** (t % (int(math.log2(max(nodes - 1, 1))) + 1))
    return (np.eye(nodes) + np.roll(np.eye(nodes), hop, axis=0)) / 2


def doubly_stochastic(nodes, random):
    shares = random.dirichlet(np.ones(4))
    permutations = [np.eye(nodes)[random.permutation(nodes)] for _ in shares]
    return sum(s * p for s, p in zip(shares, permutations, strict=True))


def column_stochastic(nodes, random):
    weights = np.eye(nodes) + (random.random((nodes, nodes)) < 0.3)
    return weights / weights.sum(0)


def graph(kind, nodes, random):
    def at(t):
        return {
            "2-out": lambda: d_out(nodes, 2, t),
            "4-out": lambda: d_out(nodes, min(4, nodes), t),
            "exp": lambda: exponential(nodes, t),
            "ring": lambda: d_out(nodes, 2, t),
            "doubly": lambda: doubly_stochastic(nodes, random),
            "column": lambda: column_stochastic(nodes, random),
        }[kind]()

    return at


KINDS = ["2-out", "4-out", "exp", "ring", "doubly", "column"]


def real_spread(s):
    return float(np.abs(s[:, None, :] - s[None]).sum(-1).max())


@st.composite
def runs(draw):
    nodes = draw(st.integers(2, 50))
    return {
        "kind": draw(st.sampled_from(KINDS)),
        "nodes": nodes,
        "rounds": draw(st.integers(1, 200 if nodes < 12 else 25)),
        "sync": draw(st.sampled_from([None, 1, 4, 5, 50])),
        "seed": draw(st.integers(0, 2**31)),
        "window": draw(st.sampled_from([1, 2, 7, 64])),
        "aligned": draw(st.booleans()),
        "noise": draw(st.sampled_from([0.0, 0.1, 3.0])),
    }


def paper_estimates(
    eps,
    noise,
    *,
    constant,
    decay,
    noise_rate,
    start=0.0,
    sync_interval=None,
    from_network_maximum=False,
):
    """Equation 22, written out for norms of shape (rounds, nodes).

    With ``from_network_maximum`` as the published code has it.
    """
    found, last = [], np.zeros(0)
    for t, added in enumerate(np.asarray(eps)):
        fresh = t == 0 or (sync_interval is not None and t % sync_interval == 0)
        if fresh:
            each = 2 * constant * (added + (start if t == 0 else 0.0))
        else:
            before = last.max() if from_network_maximum else last
            again = decay * noise_rate * np.asarray(noise[t - 1])
            each = decay * before + 2 * constant * (added + again)
        found.append(each.max())
        last = each
    return np.array(found)


class TestSound:
    @examples(120)
    @given(runs())
    def test_the_certified_bound_is_never_below_the_real_one(self, run):
        random = np.random.default_rng(run["seed"])
        nodes, dims = run["nodes"], 1 if run["aligned"] else 3
        mixing = graph(run["kind"], nodes, random)
        s = random.normal(size=(nodes, dims)) * random.choice([0, 1, 100])
        spread = Spread.start(np.abs(s).sum(1), window=run["window"])
        for t in range(run["rounds"]):
            if run["sync"] and t and t % run["sync"] == 0:
                s[:] = s.mean(0)
                spread = spread.synchronised()
            eps = random.normal(size=s.shape) * 10 ** random.uniform(-3, 1)
            s += eps
            spread = spread.added(np.abs(eps).sum(1))
            assert real_spread(s) <= spread.bound
            assert np.abs(s).sum(1).max() <= spread.largest_norm * (1 + 1e-12)
            noise = run["noise"] * random.laplace(size=s.shape)
            spread = spread.added(np.abs(noise).sum(1)).mixed(weights := mixing(t))
            s = weights @ (s + noise)

    @examples(60)
    @given(runs())
    def test_the_data_independent_one_holds_too(self, run):
        random = np.random.default_rng(run["seed"])
        nodes, dims, clip = run["nodes"], 4, 0.5
        matrices = [graph(run["kind"], nodes, random)(t) for t in range(run["rounds"])]
        matrices = matrices[:40]
        options = {"budget": 5.0, "noise_rate": 0.05, "sync_interval": run["sync"]}
        scales = data_independent_sensitivity(
            matrices, perturbation=clip, dimension=dims, failure=1e-12, **options
        )
        s = np.zeros((nodes, dims))
        for t, weights in enumerate(matrices):
            if run["sync"] and t and t % run["sync"] == 0:
                s[:] = s.mean(0)
            eps = random.laplace(size=s.shape)
            s += eps * (clip / np.abs(eps).sum(1, keepdims=True))
            assert real_spread(s) <= scales[t] * (1 + 1e-12)
            s += 0.05 * random.laplace(scale=scales[t] / 5.0, size=s.shape)
            s = weights @ s

    @examples(60)
    @given(runs(), st.floats(0.3, 0.95))
    def test_the_least_constant_is_enough(self, run, decay):
        random = np.random.default_rng(run["seed"])
        nodes, rounds = run["nodes"], min(run["rounds"], 8)
        kind = run["kind"] if run["kind"] != "column" else "doubly"
        matrices = [graph(kind, nodes, random)(t) for t in range(rounds)]
        constant = least_constant(matrices, decay)
        s, eps_norms, noise_norms, real = np.zeros((nodes, 2)), [], [], []
        for weights in matrices:
            eps = random.normal(size=s.shape) * random.exponential(size=(nodes, 1)) ** 3
            noise = random.laplace(size=s.shape)
            eps_norms.append(np.abs(eps).sum(1))
            noise_norms.append(np.abs(noise).sum(1))
            s = s + eps
            real.append(real_spread(s))
            s = weights @ (s + 0.1 * noise)
        estimate = paper_estimates(
            eps_norms, noise_norms, constant=constant, decay=decay, noise_rate=0.1
        )
        assert (np.array(real) <= estimate * (1 + 1e-12)).all()

    def test_the_paper_s_constant_fails_at_once(self):
        # Opposite perturbations of norm 1: 2 apart, estimated 1.56.
        eps = np.ones((1, 10))
        estimate = paper_estimates(
            eps, 0 * eps, constant=0.78, decay=0.55, noise_rate=0.01
        )
        s = np.ones((10, 1))
        s[0] = -1
        assert estimate[0] == pytest.approx(1.56)
        assert real_spread(s) == 2.0
        assert Spread.equal(10, 3.0).added(1.0).bound == pytest.approx(2.0)


class TestTight:
    def test_aligned_worst_case_is_attained(self):
        # One round: the worst perturbation on a line reaches the bound exactly.
        random = np.random.default_rng(0)
        weights = doubly_stochastic(6, random)
        spread = Spread.equal(6, 0.0).added(1.0).mixed(weights)
        gaps = weights[:, None] - weights
        i, j = np.unravel_index(np.abs(gaps).sum(-1).argmax(), (6, 6))
        s = weights @ np.sign(gaps[i, j])[:, None]
        assert spread.bound == pytest.approx(real_spread(s), rel=1e-9)

    def test_weights_that_do_not_keep_the_mean_move_equal_states_apart(self):
        weights = np.array([[1.0, 0.5], [0.0, 0.5]])
        s = weights @ np.array([[3.0], [3.0]])
        found = Spread.equal(2, 3.0).mixed(weights).bound
        assert found == pytest.approx(real_spread(s), rel=1e-9)

    def test_the_noise_of_a_round_is_within_its_quantile(self):
        """Two nodes that hear nobody: opposite steps, and noise as large as may be."""
        clip, budget, rate, dims, failure = 0.5, 5.0, 0.3, 4, 1e-6
        first, second = data_independent_sensitivity(
            [np.eye(2)] * 2,
            perturbation=clip,
            dimension=dims,
            budget=budget,
            noise_rate=rate,
            failure=failure,
        )
        assert first == pytest.approx(2 * clip, rel=1e-9)
        largest = (second - 4 * clip) / 2 / (rate * first / budget)
        # ||n||_1 of scale 1 is Gamma(dims, 1); there are two nodes and two rounds.
        beyond = mpmath.gammainc(dims, largest, regularized=True)
        assert float(beyond) == pytest.approx(failure / 4, rel=1e-6)
        assert beyond <= failure / 4

    @pytest.mark.parametrize(
        ("matrices", "decay"),
        [
            ([d_out(10, 2, t) for t in range(5)], 0.55),
            ([exponential(10, t) for t in range(5)], 0.55),
        ],
    )
    def test_the_least_constant_is_necessary(self, matrices, decay):
        # The adversary of the proof, at the last round: each node in its best round.
        constant = least_constant(matrices, decay)
        products = [np.eye(10)]
        worst = 0.0
        for weights in matrices:
            products = [weights @ p for p in products] + [np.eye(10)]
            stack = np.array(products)
            scale = decay ** -np.arange(len(products) - 1, -1, -1.0)
            gaps = (stack[:, :, None] - stack[:, None]) * scale[:, None, None, None]
            reached = np.abs(gaps).max(0).sum(-1).max()
            worst = max(worst, reached / 2)
        assert constant == pytest.approx(max(worst, 1.0), rel=1e-9)
        assert constant > 0.95  # the paper's largest

    def test_a_short_window_costs_little_on_a_fast_graph(self):
        spreads = [Spread.start(np.ones(8), window=w) for w in (3, 200)]
        for t in range(60):
            weights = exponential(8, t)
            spreads = [s.added(1.0).mixed(weights) for s in spreads]
        assert spreads[0].bound == pytest.approx(spreads[1].bound, rel=1e-6)
        assert len(spreads[0].rounds) == 3


class TestLaws:
    def test_a_window_shorter_than_the_graph_is_safe_but_does_not_decay(self):
        spread = Spread.start(np.ones(10), window=2)
        for t in range(50):
            spread = spread.added(0.0).mixed(d_out(10, 2, t))
        assert spread.bound == pytest.approx(2.0)

    def test_memory_is_bounded_and_values_are_not_changed(self):
        first = Spread.start(np.ones(5), window=4)
        before, spread = first.bound, first
        for t in range(50):
            spread = spread.added(0.1).mixed(exponential(5, t))
        assert len(spread.rounds) <= 4
        assert first.bound == before

    def test_decays_without_perturbation(self):
        spread = Spread.start(np.ones(10), window=16)
        for t in range(800):
            spread = spread.added(0.0).mixed(d_out(10, 2, t))
        assert spread.bound < 1e-8

    def test_synchronising_forgets_the_spread(self):
        spread = Spread.start(np.full(4, 5.0)).added(1.0).synchronised()
        assert spread.bound < 1e-10
        assert spread.added(1.0).bound == pytest.approx(2.0)


class TestPublishedTraces:
    """Recursions of the published code: C' 0.78, gamma_n 0.001, b 5, ten nodes."""

    def test_resnet(self):
        # .00156 = 2 C' gamma_s clip; the noise has d unit exponentials times S/b.
        dims, random = 157_504, np.random.default_rng(0)
        state = PaperEstimate(0.78, 0.7, 0.001)
        found = [float(np.max(state.first(1e-5 * 100, 0.0)))]
        for _ in range(3):
            noise = found[-1] / 5 * random.gamma(dims, size=10)
            found.append(float(np.max(state.after(found[-1], 1e-3, noise))))
        assert found == pytest.approx([0.00156, 0.05648, 1.9906, 70.2726], rel=0.01)

    def test_mlp(self):
        # The perturbations are not published: those that the estimates imply must be
        # of one size, the first being 10.011 / (2 C').
        estimates = [10.011, 29.256, 65.943, 137.297, 273.081]
        state = PaperEstimate(0.78, 0.55, 0.001)
        largest = 1 + 1.54 / math.sqrt(7850)  # of ten averages of exponentials
        eps = [estimates[0] / 1.56]
        for last, now in itertools.pairwise(estimates):
            noise = last / 5 * 7850 * largest
            eps.append((now - float(state.after(last, 0.0, noise))) / 1.56)
        assert eps[0] == pytest.approx(6.417, abs=1e-3)
        assert all(5 < each < 9 for each in eps), eps

    def test_network_maximum_is_never_less(self):
        random = np.random.default_rng(0)
        eps, noise = random.random((2, 30, 6))
        options = {"constant": 1.0, "decay": 0.5, "noise_rate": 0.1, "sync_interval": 7}
        own = paper_estimates(eps, noise, **options)
        network = paper_estimates(eps, noise, from_network_maximum=True, **options)
        assert (network >= own - 1e-12).all()
        assert own[7] == pytest.approx(2 * eps[7].max())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Spread.start([-1.0]), "L1 norms"),
        (lambda: Spread.start([1.0], window=0), "window"),
        (lambda: Spread.start([1.0, 1.0]).mixed([[1.0]]), "is for 1 nodes"),
        (lambda: Spread.start([1.0]).mixed([[-1.0]]), "weights"),
        (lambda: Spread.start([1.0]).mixed([1.0]), "square"),
        (lambda: PaperEstimate(0.0, 0.5, 0.1), "constant must be"),
        (lambda: PaperEstimate(1.0, 1.0, 0.1), "decay must be in"),
        (lambda: least_constant([np.eye(2)], 0.0), "decay lambda"),
    ],
)
def test_refuses_with_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()
