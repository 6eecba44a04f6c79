"""Averaging against a brute force, and what holds between the three figures."""

import random
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting import Certificate
from privaudit.accounting.views import (
    LinearProtocol,
    Observer,
    butterfly,
    figures,
    of_nodes,
    of_observer,
)
from privaudit.ledger import Entry, Ledger
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    RandomAllocation,
    Release,
    SamplingWithoutReplacement,
)
from tests.accounting.views import reference
from tests.accounting.views.networks import gossip, gossip_ledger, releases
from tests.tiers import examples

DELTA = 1e-5


def path(nodes):
    return [(i, i + 1) for i in range(nodes - 1)]


def ring(nodes):
    return [*path(nodes), (nodes - 1, 0)]


def some_graph(nodes, seed):
    """A random connected graph: a tree and some edges more."""
    draw = random.Random(seed)
    edges = {(draw.randrange(i), i) for i in range(1, nodes)}
    pairs = [(i, j) for j in range(nodes) for i in range(j)]
    return sorted(edges | set(draw.sample(pairs, nodes // 2)))


def exponential(nodes):
    """Half to itself, half to the node 2^k ahead, by turns: directed."""
    half, cycle, hop = reference.Fraction(1, 2), [], 1
    while hop < nodes:
        matrix = [[reference.Fraction(0)] * nodes for _ in range(nodes)]
        for sender in range(nodes):
            matrix[sender][sender] += half
            matrix[(sender + hop) % nodes][sender] += half
        cycle.append(matrix)
        hop *= 2
    return cycle


def undirected(edges):
    nodes = 1 + max(map(max, edges))
    return [reference.metropolis(edges, nodes)]


CYCLES = {
    "path of 5": undirected(path(5)),
    "path of 16": undirected(path(16)),
    "ring of 8": undirected(ring(8)),
    "exponential of 8": exponential(8),
    "exponential of 6": exponential(6),
    "random of 7": undirected(some_graph(7, 1)),
    "random of 9": undirected(some_graph(9, 2)),
}


def floats(cycle):
    return np.array([[[float(x) for x in row] for row in matrix] for matrix in cycle])


class TestAgainstBruteForce:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("by", [{0}, {2}, {1, 3}], ids=str)
    @pytest.mark.parametrize("rounds", [1, 3, 7])
    @pytest.mark.parametrize("name", CYCLES)
    def test_averaging(self, name, rounds, by):
        cycle = CYCLES[name]
        nodes, noise = len(cycle[0]), 3.0
        protocol = LinearProtocol.averaging(floats(cycle), noise, rounds)
        rows = reference.heard(cycle, rounds, by)
        for of in sorted({0, 1, nodes // 2, nodes - 1} - by):
            view = of_observer(protocol, Observer.of(*by), of)
            right = reference.squared_mu(rows, of, by) / noise**2
            found = 1 / float(view.nobody_reacts[0]) ** 2
            assert right <= found <= right * (1 + mp.mpf(1e-9))
            # Vectors are fixed: that they are taken nowhere gives nothing away.
            assert view.certified[0] == view.nobody_reacts[0]

    def test_epsilon_of_averaging(self):
        cycle = CYCLES["path of 5"]
        protocol = LinearProtocol.averaging(floats(cycle), 2.0, 4)
        ledger = Ledger(nodes=((Entry(releases(2.0)),),) * 5)
        pairs = figures(protocol, ledger, DELTA, [Observer.of(4)])
        rows = reference.heard(cycle, 4, {4})
        for pair in pairs:
            mu = mp.sqrt(reference.squared_mu(rows, pair.of, {4})) / 2
            right = reference.gaussian_epsilon(mu, DELTA) if mu else 0
            assert right <= pair.nobody_reacts <= right * (1 + mp.mpf(1e-8))
            assert pair.distance == 4 - pair.of

    def test_signs_that_cancel(self):
        # b and c share a secret s: b + s and c - s are heard, the second later on as
        # well, less a. What is heard of b is b + c (noise 2), and no more.
        messages = np.array([[0, 1, 0], [0, 0, 1], [-1, 0, 1]])
        noise = np.array([[1, 0, 0, 0], [0, 1, 0, 1e6], [0, 0, 1, -1e6]])
        protocol = LinearProtocol(
            4,
            [0, 1, 2],
            messages,
            [1, 2, 2],
            np.array([[0, 0, 0, 1]] * 3),
            noise,
            known=[[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 1, 0]],
        )
        view = of_observer(protocol, Observer.of(3), 1)
        assert view.nobody_reacts[0] == pytest.approx(2**0.5, rel=1e-6)
        # With whoever shares the secret, noise of its own is all that hides it.
        view = of_observer(protocol, Observer.of(2, 3), 1)
        assert view.nobody_reacts[0] == pytest.approx(1, rel=1e-9)
        assert view.everything_seen[0] == pytest.approx(1, rel=1e-9)

    def test_what_is_seen_without_noise(self):
        # The difference of two sums under one noise is bare.
        protocol = LinearProtocol(
            3,
            [0, 1],
            np.eye(2),
            [0, 1],
            np.array([[0, 0, 1]] * 2),
            np.ones((2, 1)),
            known=np.zeros((1, 3)),
        )
        assert of_observer(protocol, Observer.of(2), 0).nobody_reacts[0] == 0
        ledger = Ledger(nodes=((Entry(releases(1.0)),),) * 2 + ((),))
        (first, _) = figures(protocol, ledger, DELTA, [Observer.of(2)])
        assert first.nobody_reacts == first.everything_seen == np.inf


class TestSound:
    def test_a_relay_is_certified_at_what_is_relayed(self):
        # A path u - j - v, two rounds: j's second sum is taken at what u said. With one
        # record of absolute loss the truth is about 7.3.
        path = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
        protocol = gossip(path, 3, 0.3, mixed=True)
        ledger = gossip_ledger(protocol, 0.3)
        (of_u, _) = figures(protocol, ledger, 1e-2, [Observer.of(2)])
        assert of_u.nobody_reacts == pytest.approx(2.49, abs=0.01)
        mu = mp.mpf(1) / mp.mpf("0.3")
        seen = reference.gaussian_epsilon(mu, 1e-2)  # u's first sum in full
        assert of_u.certified >= seen
        assert of_u.certified == pytest.approx(float(seen), rel=1e-6)

    def test_its_own_point_relays_too(self):
        # One node, two sums, the second taken at a hidden first; only the second heard.
        protocol = LinearProtocol(
            2,
            [0, 0],
            [[1.0, 1.0]],
            [0],
            [[0, 1]],
            [3.0, 0.3],
            points=[[0, 0], [1, 0]],
        )
        view = of_observer(protocol, Observer.of(1), 0)
        np.testing.assert_allclose(view.certified, [3.0, 0.3], rtol=1e-9)
        np.testing.assert_allclose(view.nobody_reacts**2, (3**2 + 0.3**2) / 2)

    def test_an_observers_own_point_is_told(self):
        # Node 1 hears nothing of node 0, and takes its own sum at node 0's noisy one.
        protocol = LinearProtocol(
            2, [0, 1], [[0, 0]], [0], [[0, 1]], 1.0, points=[[0, 0], [1, 0]]
        )
        ledger = Ledger(nodes=((Entry(releases(1.0)),),) * 2)
        (pair,) = figures(protocol, ledger, DELTA, [Observer.of(1)])
        alone = Certificate.of(ledger).node(0).epsilon(DELTA)
        for told in (pair.nobody_reacts, pair.certified):
            assert told == pytest.approx(alone.upper, rel=2e-3)

    @examples(100)
    @given(st.integers(0, 10_000))
    def test_what_is_told_of_one_sum_is_what_exact_algebra_gives(self, seed):
        """Random points and messages: heard rows, own points, and theirs in turn."""
        rng = np.random.default_rng(seed)
        nodes, count = int(rng.integers(2, 5)), int(rng.integers(1, 4))
        owner = [0, *rng.integers(1, nodes, rng.integers(1, 5))]
        inputs = len(owner)
        points = np.tril(rng.integers(-2, 3, (inputs, inputs)), -1)
        points *= rng.random((inputs, inputs)) < 0.5
        messages = rng.integers(-2, 3, (count, inputs))
        heard = rng.random((count, nodes)) < 0.5
        sender = rng.integers(0, nodes, count)
        by = int(rng.integers(1, nodes))
        protocol = LinearProtocol(
            nodes, owner, messages, sender, heard, 1.0, points=points
        )
        view = of_observer(protocol, Observer.of(by), 0)
        own = {place for place in range(inputs) if owner[place] == by}
        rows = [
            messages[m] for m in range(count) if heard[m, by] or sender[m] == by
        ] + [points[place] for place in own]
        for name in ("nobody_reacts", "certified"):
            exact = [[Fraction(int(x)) for x in row] for row in rows]
            square = float(reference.squared_mu(exact, 0, own)) if exact else 0.0
            found = getattr(view, name)[0] ** -2.0
            assert found == pytest.approx(square, rel=1e-7, abs=1e-9)
            held = set()
            while more := {
                place
                for place in range(inputs)
                if place not in held and any(row[place] for row in rows)
            }:
                held |= more
                rows += [points[place] for place in more]

    @pytest.mark.parametrize("rate", [1.0, 0.1])
    def test_who_hears_all_is_told_everything_but_what_is_not_sent(self, rate):
        protocol = gossip(np.full((3, 3), 1 / 3), 4, 2.0)
        ledger = gossip_ledger(protocol, 2.0, rate)
        for pair in figures(protocol, ledger, DELTA):
            sent = Certificate.of(Ledger.of(releases(2.0, rate), 3)).epsilon(DELTA)
            every = Certificate.of(Ledger.of(releases(2.0, rate), 4)).epsilon(DELTA)
            assert pair.nobody_reacts >= sent.lower
            assert pair.nobody_reacts == pytest.approx(sent.upper, rel=2e-3)
            assert pair.everything_seen == pytest.approx(every.upper, rel=2e-3)

    def test_a_node_is_not_hidden_by_sampling(self):
        protocol = gossip(np.full((2, 2), 1 / 2), 2, 50.0)
        ledger = gossip_ledger(protocol, 50.0, 0.1)
        whole = of_nodes(ledger, [10, 10])
        found = figures(protocol, whole, DELTA)[0].everything_seen
        mu = mp.sqrt(2) * 20 / 50
        assert found == pytest.approx(float(reference.gaussian_epsilon(mu, DELTA)))


@st.composite
def networks(draw):
    """A random gossip run: weights, rounds and noise."""
    nodes = draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    cycle = rng.random((draw(st.integers(1, 2)), nodes, nodes))
    cycle *= rng.random(cycle.shape) < draw(st.sampled_from([0.3, 0.6, 1.0]))
    cycle[:, range(nodes), range(nodes)] += 0.1
    cycle /= cycle.sum(2, keepdims=True)
    noise = rng.uniform(0.5, 2.0, nodes)[:, None] * np.ones(draw(st.integers(1, 4)))
    return gossip(cycle, noise.shape[1], noise, draw(st.sampled_from([1.0, -0.5])))


class TestLaws:
    @examples(20)
    @given(networks(), st.sampled_from([1.0, 0.2]))
    def test_each_figure_is_at_most_the_next(self, protocol, rate):
        ledger = gossip_ledger(protocol, protocol.noise.diagonal(), rate)
        for pair in figures(protocol, ledger, DELTA):
            assert 0 <= pair.nobody_reacts <= pair.certified <= pair.everything_seen
            alone = Certificate.of(Ledger(nodes=(ledger.nodes[pair.of],)))
            assert pair.everything_seen <= alone.epsilon(DELTA).upper * (1 + 2e-3)

    @examples(60)
    @given(networks())
    def test_more_observers_never_learn_less(self, protocol):
        if protocol.nodes < 3:
            return
        one = of_observer(protocol, Observer.of(1), 0)
        two = of_observer(protocol, Observer.of(1, 2), 0)
        for name in ("nobody_reacts", "certified", "everything_seen"):
            few, many = (np.sum(getattr(view, name) ** -2.0) for view in (one, two))
            assert few <= many * (1 + 1e-6)
        wire = of_observer(protocol, Observer(wire=(0, 1)), 0)
        every = of_observer(protocol, Observer(everybody=True), 0)
        for name in ("nobody_reacts", "certified"):
            few, many = (np.sum(getattr(view, name) ** -2.0) for view in (wire, every))
            assert few <= many * (1 + 1e-6)

    @examples(40)
    @given(networks())
    def test_the_independent_releases_are_above_what_is_told(self, protocol):
        # By the definition: rows' covariance less what the releases explain is >= 0.
        view = of_observer(protocol, Observer.of(1), 0)
        rows = protocol.messages[protocol.seen_by(Observer.of(1))]
        hidden = protocol.owner != 1
        noise = rows[:, hidden] @ protocol.noise[np.ix_(hidden, hidden)]
        signal = rows[:, protocol.owner == 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.where(np.isinf(view.nobody_reacts), 0, view.nobody_reacts)
        assert (signal[:, np.isinf(view.nobody_reacts)] == 0).all()
        rest = noise @ noise.T - signal * spread**2 @ signal.T
        assert np.linalg.eigvalsh(rest)[0] >= -1e-9 * np.trace(noise @ noise.T)

    def test_a_wire_is_reached_at_the_end_that_sends(self):
        turn = np.roll(np.eye(4), 1, 0)  # node i hears i - 1 alone
        protocol = gossip((np.eye(4) + turn) / 2, 5, 1.0)
        pairs = figures(
            protocol, gossip_ledger(protocol, 1.0), DELTA, [Observer(wire=(1, 2))]
        )
        assert [pair.distance for pair in pairs] == [2, 1, 4, 3]

    def test_of_all_nodes_together_nobody_is_left(self):
        protocol = gossip(np.full((3, 3), 1 / 3), 2, 1.0)
        ledger = gossip_ledger(protocol, 1.0)
        assert figures(protocol, ledger, DELTA, [Observer.of(0, 1, 2)]) == ()

    def test_a_relabelled_network_has_the_same_figures(self):
        protocol = LinearProtocol.averaging(floats(CYCLES["random of 7"]), 1.0, 3)
        order = np.random.default_rng(0).permutation(7)
        back = np.argsort(order)
        other = LinearProtocol.averaging(
            floats(CYCLES["random of 7"])[:, order][:, :, order], 1.0, 3
        )
        one = of_observer(protocol, Observer.of(0), 5).nobody_reacts
        same = of_observer(other, Observer.of(back[0]), back[5]).nobody_reacts
        np.testing.assert_allclose(one, same, rtol=1e-10)


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("x", "an observer is a node"),
            ("edge:1", "an observer is a node"),
            ("edge:1-1", "two nodes"),
            ("-1", "an observer is a node"),
            ("2,2", "must differ"),
            ("", "an observer is a node"),
        ],
    )
    def test_no_observer(self, text, words):
        with pytest.raises(ValueError, match=words):
            Observer.parse(text)

    def test_a_node_that_is_not_there(self):
        protocol = gossip(np.eye(2), 1, 1.0)
        with pytest.raises(ValueError, match="no node 7; the nodes are 0 to 1"):
            figures(protocol, gossip_ledger(protocol, 1.0), DELTA, [Observer.of(7)])

    @pytest.mark.parametrize(
        ("release", "words"),
        [
            (
                Release.of_sum(
                    norm_bound=1,
                    noise_multiplier=1,
                    sampling=NoSampling(),
                    mechanism="laplace",
                ),
                "laplace",
            ),
            (releases(1.0, RandomAllocation(4)), "random allocation"),
        ],
        ids=["laplace", "allocation"],
    )
    def test_releases_that_have_no_such_account(self, release, words):
        protocol = LinearProtocol.averaging(np.eye(2))
        with pytest.raises(ValueError, match=words):
            figures(protocol, Ledger(nodes=((Entry(release),),) * 2), DELTA)

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"points": [[0, 1], [0, 0]]}, "earlier inputs only"),
            ({"sender": [0]}, "sender must have the shape"),
            ({"owner": [0, 9]}, "owner must be nodes"),
            ({"owner": []}, "one input or more"),
            ({"messages": [[np.nan, 0], [0, 1]]}, "messages must be finite"),
            ({"noise": np.ones((2, 3))}, "needs known"),
        ],
    )
    def test_arrays_that_do_not_fit(self, given, words):
        right = {
            "nodes": 2,
            "owner": [0, 1],
            "messages": np.eye(2),
            "sender": [0, 1],
            "heard": np.ones((2, 2)),
        }
        with pytest.raises(ValueError, match=words):
            LinearProtocol(**{**right, **given})

    def test_a_ledger_of_another_run(self):
        protocol = gossip(np.eye(2), 2, 1.0)
        with pytest.raises(ValueError, match="has 1 releases in the ledger and 2"):
            figures(protocol, Ledger(nodes=((Entry(releases(1.0)),),) * 2), DELTA)
        with pytest.raises(ValueError, match="2 nodes and the ledger 1"):
            figures(protocol, Ledger.of(releases(1.0)), DELTA)


class TestSampling:
    def test_fixed_batches_are_of_replace_one(self):
        protocol = gossip(np.full((2, 2), 1 / 2), 3, 4.0)
        ledger = gossip_ledger(protocol, 4.0, SamplingWithoutReplacement(5, 50))
        pair = figures(protocol, ledger, DELTA)[0]
        sent = releases(4.0, SamplingWithoutReplacement(5, 50))
        right = Certificate.of(Ledger.of(sent, 2)).epsilon(DELTA)
        assert right.lower <= pair.certified <= right.upper * 1.01

    def test_rounds_that_are_tied_are_not_amplified_one_by_one(self):
        # Four sums of u are heard as one, under noise of another node: with one coin
        # for all four the record is in or out as a whole.
        protocol = LinearProtocol(
            3,
            [0, 0, 0, 0, 1],
            [[1, 1, 1, 1, 1]],
            [0],
            [[0, 0, 1]],
            [1.0, 1, 1, 1, 2],
        )
        view = of_observer(protocol, Observer.of(2), 0)
        # The noise's variance is 8: M is 1/8 throughout, and D = 4/8.
        np.testing.assert_allclose(view.nobody_reacts, 2**0.5, rtol=1e-9)
        rate = PoissonSampling(0.1)
        nodes = ((Entry(releases(1.0, rate), 4),), (Entry(releases(2.0, rate)),), ())
        found = figures(protocol, Ledger(nodes=nodes), DELTA, [Observer.of(2)])[0]
        above = Certificate.of(Ledger.of(releases(2**0.5, rate), 4)).epsilon(DELTA)
        assert found.nobody_reacts == pytest.approx(above.upper, rel=2e-3)


@pytest.mark.parametrize("graph", ["butterfly", "halving", "chain"])
@pytest.mark.parametrize("nodes", [4, 6, 8])
def test_any_nodes_noises_are_no_more_than_those_of_each(graph, nodes):
    steps = 11
    for of in range(nodes):
        any_of_them = butterfly._sizes(nodes, steps, of, None, graph)
        for by in {*range(nodes)} - {of}:
            met = butterfly.fresh_noises(nodes, steps, of, Observer.of(by), graph)
            for most in range(nodes + 1):
                assert (any_of_them <= most).sum() >= (met <= most).sum()
