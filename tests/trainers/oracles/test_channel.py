"""Contract of channel, sensitivities and dpps."""

import contextlib
import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privaudit.accounting import account
from privaudit.accounting.papers.push_sum_sensitivity import (
    data_independent_sensitivity,
)
from tests.accounting.papers.test_push_sum_sensitivity import paper_estimates
from tests.tiers import examples
from tests.trainers.message_checks import (
    RING,
    averages_are_reached,
    noise,
    noise_is_as_promised,
)
from tests.trainers.problems import start
from trainers.network.mixing import Mixing
from trainers.network.named_graphs import mixing
from trainers.network.push_sum import PushSum
from trainers.numerics.keys import Key
from trainers.numerics.randomness import TOO_SMALL, Streams
from trainers.oracles.messages.channel import Channel, FeedsItself
from trainers.oracles.messages.dpps import (
    Sent,
    average,
    with_synchronisation,
)
from trainers.oracles.messages.noise import MessageNoise, planned
from trainers.runs import checkpoint

GRAPHS = [
    "complete",
    "ring",
    "torus",
    "star",
    "directed-ring",
    "exponential",
    "d-out:2",
    "d-out:4",
    "erdos-renyi:0.5",
]


def weighed(graph, nodes, seed):
    if graph == "d-out:4" and nodes < 4:
        graph = "complete"
    if graph in ("ring", "torus", "erdos-renyi:0.5"):
        return mixing(graph, "metropolis", nodes, seed=seed)
    if graph == "star":
        return mixing(graph, "column-stochastic", nodes, seed=seed)
    return mixing(graph, "uniform", nodes, seed=seed)


@st.composite
def protocols(draw):
    nodes = draw(st.integers(2, 50))
    return {
        "graph": draw(st.sampled_from(GRAPHS)),
        "nodes": nodes,
        "rounds": draw(st.integers(1, 200 if nodes < 8 else 15)),
        "interval": draw(st.sampled_from([None, 1, 3, 5])),
        "multiplier": draw(st.sampled_from([0.0, 1e-3, 0.02])),
        "seed": draw(st.integers(0, 2**20)),
        "runs": draw(st.integers(1, 2)),
        "equal": draw(st.booleans()),
        "opposite": draw(st.booleans()),
    }


def simulate(run, sensitivity):
    """Real and used sensitivities, (rounds, runs), of random or opposite changes."""
    try:
        plain = weighed(run["graph"], run["nodes"], run["seed"])
    except ValueError:  # a torus of a prime number of nodes, say
        plain = weighed("d-out:2", run["nodes"], 0)
    on = with_synchronisation(plain, run["interval"])
    how = MessageNoise(
        run["multiplier"],
        sensitivity,
        run["rounds"],
        sync_interval=run["interval"],
        failure=1e-12,
    )
    trace = []
    channel = Channel(
        how,
        on,
        Streams(run["seed"]),
        runs=run["runs"],
        watch=lambda k, real, used: trace.append((real, used)),
    )
    random = torch.Generator().manual_seed(run["seed"])
    shape = (run["runs"], run["nodes"], 3)
    states = torch.randn(shape, generator=random, dtype=torch.float64)
    equal = run["equal"] and "doubly stochastic" in plain.properties
    states = states[:1, :1].expand(shape).clone() if equal else states
    bound = None if equal else float(states.abs().sum(2).max())
    channel.begin(states, bound=bound)
    held = PushSum.begin(states)
    with contextlib.suppress(FeedsItself):
        for k in range(run["rounds"]):
            if run["opposite"]:
                change = torch.zeros(shape, dtype=torch.float64)
                change[:, :, 0] = (-1.0) ** torch.arange(run["nodes"])
            else:
                change = torch.randn(shape, generator=random, dtype=torch.float64)
                change /= change.abs().sum(2, keepdim=True)
            held = held.plus(change)
            sent, _ = channel.send(held.x, change, bound=1.0)
            held = PushSum(on(sent, k), on(held.weight, k))
    return np.array([real for real, _ in trace]), np.array([used for _, used in trace])


class TestSound:
    @examples(40)
    @given(protocols())
    def test_certified_is_never_below_the_real_one(self, run):
        real, used = simulate(run, "certified")
        assert (real <= used).all()

    @examples(40)
    @given(protocols())
    def test_data_independent_is_never_below_the_real_one(self, run):
        real, used = simulate(run, "data-independent")
        assert (real <= used * (1 + 1e-12)).all()
        assert (used == used[:, :1]).all()

    @pytest.mark.parametrize("graph", ["star", "d-out:2"])
    @pytest.mark.parametrize("sensitivity", ["certified", "data-independent"])
    def test_noise_and_weights_alone_move_nodes_apart(self, sensitivity, graph):
        """Much noise beside what is added, and equal states that are not small."""
        trace = []
        on = weighed(graph, 5, 0)
        channel = Channel(
            MessageNoise(5.0, sensitivity, 3),
            on,
            Streams(0),
            watch=lambda k, real, used: trace.append((real[0], used[0])),
        )
        states = torch.full((1, 5, 3), 70.0, dtype=torch.float64)
        channel.begin(states)
        change = torch.zeros_like(states)
        change[0, :, 0] = 0.125 * (-1.0) ** torch.arange(5)
        for k in range(3):
            states = states + change
            states = on(channel.send(states, change, bound=0.125)[0], k)
        assert all(real <= used * (1 + 1e-9) for real, used in trace)

    def test_the_paper_s_constant_falls_below_at_once(self):
        run = {
            "graph": "d-out:2",
            "nodes": 10,
            "rounds": 1,
            "interval": 5,
            "multiplier": 2e-4,
            "seed": 0,
            "runs": 1,
            "equal": True,
            "opposite": True,
        }
        real, used = simulate(run, "published")
        assert real[0, 0] == pytest.approx(2.0)
        assert used[0, 0] == pytest.approx(1.56)

    def test_what_was_sent_before_a_kill_is_in_the_ledger(self, monkeypatch):
        others = {("message", 2, 0): 3, ("message", 1, 1): 1}  # releases of a journal
        monkeypatch.setattr(Streams, "others", lambda _, *which: others.get(which, 0))
        channel = Channel(noise(), RING, Streams(0))
        states = torch.zeros(1, 5, 2, dtype=torch.float64)
        channel.begin(states)
        for _ in range(2):
            channel.send(states, states, bound=1.0)
        counts = [sum(one.count for one in node) for node in channel.ledger.nodes]
        assert counts == [2, 3, 5, 2, 2]

    @pytest.mark.parametrize("sensitivity", ["data-independent", "certified"])
    def test_noise_is_what_the_ledger_says(self, sensitivity):
        if sensitivity == "data-independent":
            assert noise_is_as_promised() == []
        else:  # written as what it is: no protection that could be accounted
            channel = Channel(noise(sensitivity), RING, Streams(0))
            channel.begin(torch.zeros(1, 5, 2, dtype=torch.float64))
            channel.send(start(2, nodes=5), start(2, nodes=5), bound=10.0)
            bound = account(channel.ledger, 1e-4, "replace-one")
            assert bound.epsilon == math.inf

    def test_averages_are_reached(self):
        assert averages_are_reached() == []

    def test_a_change_beyond_its_bound_is_refused(self):
        channel = Channel(noise(), RING, Streams(0))
        channel.begin(torch.zeros(1, 5, 2, dtype=torch.float64))
        change = torch.full((1, 5, 2), 0.6, dtype=torch.float64)
        with pytest.raises(ValueError, match="above the bound 1 "):
            channel.send(change, change, bound=1.0)

    def test_states_that_differ_need_a_bound(self):
        channel = Channel(noise(), RING, Streams(0))
        with pytest.raises(ValueError, match="need a bound"):
            channel.begin(start(2, nodes=5))

    def test_failure_is_taken_off_delta(self):
        how = noise(unit="node", failure=1e-5)
        ledger = planned(how, RING, [1.0] * 3, 4, (1,) * 5)
        assert ledger.unit == "node"
        assert ledger.failure == 1e-5
        assert account(ledger, 9e-6, "replace-one").epsilon == math.inf
        bound = account(ledger, 1e-4, "replace-one")
        assert bound.unit == "node"
        whole = dataclasses.replace(how, failure=1e-9)
        other = planned(whole, RING, [1.0] * 3, 4, (1,) * 5)
        assert bound.epsilon > account(other, 9e-5, "replace-one").epsilon * 0.999


class FloatChannel(Channel):
    """Adds what `_draw` gives, in floats."""

    def _noisy(self, states, step):
        return states + self._draw(states) * self._scales


class TestGrid:
    """Public scales: exactly rounded noise, on a grid that the ledger pays for."""

    @pytest.mark.parametrize(
        ("sensitivity", "unit"),
        [
            ("data-independent", "node"),
            ("data-independent", "record"),
            ("perturbation", "record"),
        ],
    )
    @pytest.mark.parametrize("samples", [None, 4])
    def test_messages_are_whole_steps(self, sensitivity, unit, samples):
        how = MessageNoise(0.7, sensitivity, 3, unit=unit, samples=samples)
        channel = Channel(
            how, RING, Streams(Key.secret()), runs=1, populations=(20,) * 5
        )
        states = torch.zeros(1, 5, 50, dtype=torch.float64)
        channel.begin(states)
        change = torch.rand(1, 5, 50, dtype=torch.float64) / 50
        sent, _ = channel.send(states + change, change, bound=1.0)
        (entry,) = channel.ledger.nodes[0]
        step, rounding = how.on_grid(2.0, 50)
        assert math.frexp(step)[0] == 0.5
        assert rounding >= 50 * step  # each of two messages by half a step
        assert torch.equal(sent / step, (sent / step).round())
        assert not torch.equal(change / step, (change / step).round())
        # The ledger has the rounding, in what moves and in the noise for it.
        release = entry.release
        moved = (2.0 if unit == "node" or samples is None else 2.0 / 4) + rounding
        assert release.sensitivity.replace_one == pytest.approx(moved, rel=1e-14)
        assert release.noise == pytest.approx(0.7 * (2.0 + rounding), rel=1e-14)

    @pytest.mark.parametrize("sensitivity", ["real", "paper", "certified"])
    def test_scales_of_the_data_have_no_grid_and_no_epsilon(self, sensitivity):
        how = MessageNoise(0.7, sensitivity, 3)
        assert how.on_grid(2.0, 50) == (0.0, 0.0)
        release = how.release(1.0, 2.0, 20)
        assert release.noise == 0
        assert release.sensitivity.replace_one == math.inf

    def test_rounding_of_more_than_the_sensitivity_is_refused(self):
        with pytest.raises(ValueError, match="are rounded by more than that in sum"):
            MessageNoise(1e3).on_grid(1.0, 10**6)

    def test_noise_that_is_lost_beside_the_states_is_a_condition(self):
        for size, assumed in ((1.0, ()), (1e9, (TOO_SMALL,))):
            channel = Channel(MessageNoise(1.0), RING, Streams(0), runs=2)
            states = torch.full((2, 5, 3), 1.0, dtype=torch.float64)
            states[1] = size
            change = torch.full_like(states, 0.1)
            channel.begin(states[:, :1].expand(-1, 5, -1).clone())
            sent, _ = channel.send(states, change, bound=0.3)
            assert channel.ledger.assumptions == assumed
            assert (sent != states).all()

    def test_other_messages_have_other_noise(self):
        streams = Streams(Key.secret())
        noises = []
        for size in (0.1, 0.1, 0.2):
            channel = Channel(MessageNoise(1.0), RING, streams)
            states = torch.full((1, 5, 3), size, dtype=torch.float64)
            channel.begin(0 * states)
            noises.append(channel.send(states, states, bound=0.6)[0] - states)
        assert torch.equal(noises[0], noises[1])
        assert (noises[0] - noises[2]).abs().min() > 1e-6


class TestPlanted:
    def test_noise_in_floats_is_no_less(self):
        assert noise_is_as_promised(FloatChannel) == []

    def test_a_sensitivity_of_the_round_before(self):
        class Late(Channel):
            last = None

            def _perturbed(self, states, norms, bound):
                now = super()._perturbed(states, norms, bound)
                used, self.last = self.last, now
                return now if used is None else used

        assert any("the real is" in f for f in noise_is_as_promised(Late))

    def test_noise_of_s_times_b(self):
        class Times(FloatChannel):
            def _draw(self, like):
                return super()._draw(like) * 4.0**2

        assert any("promised" in f for f in noise_is_as_promised(Times))

    def test_gaussian_noise(self):
        class Gauss(FloatChannel):
            def _draw(self, like):
                drawn = torch.randn(like.shape, dtype=torch.float64)
                return drawn * math.sqrt(math.pi / 2)  # of the same mean modulus

        assert any("not Laplace" in f for f in noise_is_as_promised(Gauss))

    def test_one_generator_for_all_nodes(self):
        class Same(FloatChannel):
            def _draw(self, like):
                return super()._draw(like)[:, :1].expand_as(like)

        assert any("correlated" in f for f in noise_is_as_promised(Same))

    def test_a_weight_that_is_not_mixed(self, monkeypatch):
        def unmixed(state, inbox):
            held = PushSum(inbox["s"], state.held.weight)
            return Sent(held, state.message, state.said)

        monkeypatch.setattr(Sent, "received", unmixed)
        assert any("star" in f for f in averages_are_reached())


class TestLaws:
    @pytest.mark.parametrize("graph", GRAPHS)
    def test_sums_are_kept(self, graph):
        on = with_synchronisation(weighed(graph, 6, 1), 4)
        how = MessageNoise(0.01, "data-independent", 20, sync_interval=4)
        channel = Channel(how, on, Streams(0))
        vectors = start(3, nodes=6)
        channel.begin(vectors, bound=20.0)
        state, total = Sent.begin(vectors), vectors.sum(1)
        for k in range(8):
            state = state.perturbed(None, channel, 0.0)
            total = total + (state.message - state.held.x).sum(1)
            sent = state.messages(broadcasts=False)
            state = state.received({name: on(m, k) for name, m in sent.items()})
            torch.testing.assert_close(state.held.x.sum(1), total)
            assert float(state.held.weight.sum()) == pytest.approx(6)
            assert (state.held.weight > 0).all()
            if how.synchronises(k):
                assert (state.held.z - state.held.z[:, :1]).abs().max() < 1e-9

    def test_a_plan_is_what_is_written(self):
        how = noise(sync_interval=3)
        on = with_synchronisation(RING, 3)
        bounds = [1.0, 0.5, 0.25, 0.2, 0.1]
        channel = Channel(how, on, Streams(0), runs=2)
        states = torch.ones(2, 5, 3, dtype=torch.float64)
        channel.begin(states)
        for k, bound in enumerate(bounds):
            sent, _ = channel.send(states, 0 * states, bound=bound)
            states = on(sent, k)
        assert channel.ledger == planned(how, on, bounds, 3, (1,) * 5)

    def test_data_independent_is_that_of_the_accounts(self):
        how = noise(rounds=12, sync_interval=5)
        on = with_synchronisation(RING, 5)
        ledger = planned(how, on, [0.5] * 12, 7, (1,) * 5)
        written = [e.release.noise for e in ledger.nodes[0] for _ in range(e.count)]
        scales = data_independent_sensitivity(
            [on.at(k) for k in range(12)],
            perturbation=0.5,
            dimension=7,
            budget=4.0,
            noise_rate=0.02,
            failure=how.failure,
            sync_interval=5,
        )
        # Rounding to the grid is on top of what the paper's numbers give.
        assert (written >= 0.02 * scales / 4.0).all()
        np.testing.assert_allclose(written, 0.02 * scales / 4.0, rtol=1e-7)

    @pytest.mark.parametrize("published", [False, True])
    def test_the_paper_s_estimate_is_that_of_the_accounts(self, published):
        name = "published" if published else "paper"
        how = noise(name, sync_interval=3)
        on = with_synchronisation(RING, 3)
        used, noises, norms = [], [], []
        channel = Channel(
            how, on, Streams(0), watch=lambda k, real, u: used.append(float(u[0]))
        )
        states = torch.ones(1, 5, 3, dtype=torch.float64)
        channel.begin(states)
        for k in range(7):
            change = start(3, nodes=5, seed=k)
            states = states + change
            sent, _ = channel.send(states, change, bound=50.0)
            norms.append(change.abs().sum(2)[0].tolist())
            noises.append((sent - states).abs().sum(2)[0].tolist())
            states = on(sent, k)
        expected = paper_estimates(
            norms,
            noises,
            constant=0.78,
            decay=0.55,
            noise_rate=1.0,
            start=0.0 if published else 3.0,
            sync_interval=3,
            from_network_maximum=published,
        )
        np.testing.assert_allclose(used, expected, rtol=1e-12)

    @pytest.mark.parametrize("sensitivity", ["paper", "certified", "data-independent"])
    def test_it_goes_on_from_where_it_stood(self, sensitivity):
        def sends(channel, first, last, states):
            for k in range(first, last):
                change = 0.1 * start(3, nodes=5, seed=k)
                sent, _ = channel.send(states + change, change, bound=5.0)
                states = RING(sent, k)
            return states

        begin = torch.ones(1, 5, 3, dtype=torch.float64)
        whole, broken, rest = (
            Channel(noise(sensitivity), RING, Streams(1)) for _ in range(3)
        )
        whole.begin(begin)
        broken.begin(begin)
        middle = sends(broken, 0, 3, begin)
        content = checkpoint.unpack(checkpoint.pack(broken.state_dict()))
        rest.load_state_dict(content)
        last = sends(rest, 3, 6, middle)
        assert torch.equal(last, sends(whole, 0, 6, begin))
        assert rest.ledger == whole.ledger

    def test_runs_have_their_own_certified_sensitivity(self):
        seen = []
        channel = Channel(
            noise("certified"),
            RING,
            Streams(0),
            runs=2,
            watch=lambda k, real, used: seen.append(used),
        )
        channel.begin(torch.zeros(2, 5, 1, dtype=torch.float64))
        change = torch.ones(2, 5, 1, dtype=torch.float64)
        change[1] *= 3
        channel.send(change, change, bound=3.0)
        np.testing.assert_allclose(seen[0], [2.0, 6.0])

    def test_nodes_broadcast_only_what_depends_on_the_data(self):
        for name in ("real", "paper", "published", "certified"):
            assert noise(name).broadcasts
            assert not noise(name).guarantees
        assert not noise("data-independent").broadcasts
        assert noise("data-independent", unit="node").guarantees
        assert noise("perturbation").guarantees
        assert not noise("perturbation", unit="node").guarantees


class TestAveraging:
    def test_it_is_near_the_mean_when_noise_is_small(self):
        on = mixing("exponential", "uniform", 8)
        channel = Channel(MessageNoise(1e-6, rounds=30), on, Streams(0))
        vectors = start(4, nodes=8)
        views, ledger = average(vectors, channel, 30, bound=30.0)
        mean = vectors.mean(1, keepdim=True)
        assert (views - mean).abs().max() < 0.01
        # Of one record: the first message alone has something new.
        assert [sum(e.count for e in node) for node in ledger.nodes] == [1] * 8

    @pytest.mark.parametrize("sensitivity", ["data-independent", "perturbation"])
    def test_a_vector_moves_its_message_by_all_that_is_stated(self, sensitivity):
        """From one end of the ball to the other, with the same noise."""
        sent = []
        for sign in (1.0, -1.0):
            vectors = torch.zeros(1, 5, 3, dtype=torch.float64)
            vectors[0, 0, 0] = 4.0 * sign
            channel = Channel(noise(sensitivity), RING, Streams(0))
            channel.begin(vectors, bound=4.0)
            sent.append(channel.send(vectors)[0])
        moved = (sent[0] - sent[1])[0].abs().sum(1)
        (entry,) = channel.ledger.nodes[0]
        stated = entry.release.sensitivity.replace_one
        step, rounding = channel.noise.on_grid(8.0, 3)
        assert stated == pytest.approx(8 + rounding, rel=1e-12)
        assert abs(moved[0] - 8) <= step
        assert moved[1:].max() == 0
        assert entry.release.noise >= channel.noise.noise_multiplier * stated

    @pytest.mark.parametrize("sensitivity", ["data-independent", "perturbation"])
    def test_a_node_alone_is_hidden_too(self, sensitivity):
        """No other node is apart from it, but its record moves what it sends."""
        channel = Channel(noise(sensitivity), Mixing([[1.0]]), Streams(0))
        change = torch.tensor([[[3.0, 0.0]]], dtype=torch.float64)
        channel.begin(0 * change)
        channel.send(change, change, bound=3.0)
        (entry,) = channel.ledger.nodes[0]
        rounding = channel.noise.on_grid(6.0, 2)[1]
        assert rounding > 0
        stated = entry.release.sensitivity.replace_one  # change and -change
        assert stated == pytest.approx(6 + rounding, rel=1e-12)
        assert entry.release.noise >= channel.noise.noise_multiplier * 6 * (1 - 1e-12)

    def test_two_nodes_are_as_far_apart_as_is_stated(self):
        """Which node was asked: the messages of the farthest two, before noise."""
        channel = Channel(noise(unit="node"), RING, Streams(0))
        states = torch.zeros(1, 5, 3, dtype=torch.float64)
        channel.begin(states)
        far = []
        for k in range(3):
            change = torch.zeros_like(states)
            change[0, :, 0] = (-1.0) ** torch.arange(5)
            states = states + change
            far.append(float((states[0, :, None] - states[0]).abs().sum(-1).max()))
            states = RING(channel.send(states, change, bound=1.0)[0], k)
        stated = [
            entry.release.sensitivity.replace_one
            for entry in channel.ledger.nodes[0]
            for _ in range(entry.count)
        ]
        assert all(real <= bound for real, bound in zip(far, stated, strict=True))
        assert far[0] == 2
        rounding = channel.noise.on_grid(2.0, 3)[1]
        assert stated[0] == pytest.approx(2 + rounding, rel=1e-12)

    def test_noise_that_feeds_itself_is_refused(self):
        channel = Channel(MessageNoise(1.0, rounds=99), RING, Streams(0))
        with pytest.raises(ValueError, match="feeds itself"):
            average(start(50, nodes=5), channel, 99, bound=100.0)

    def test_a_weight_that_vanishes_is_refused(self):
        on = Mixing([[0.5, 0.5], [0.9, 0.1]])
        channel = Channel(MessageNoise(1.0), on, Streams(0))
        with pytest.raises(ValueError, match="column stochastic"):
            average(start(2, nodes=2), channel, 1, bound=100.0)

    def test_synchronisation_makes_all_equal(self):
        on = with_synchronisation(mixing("exponential", "uniform", 8), 4)
        assert on.period == 12
        assert (on.at(3) == 1 / 8).all()
        assert (on.at(2) != 1 / 8).any()
        with pytest.raises(ValueError, match="cycle of"):
            with_synchronisation(mixing("exponential", "uniform", 8), 9973)

    def test_observers_see_all_that_leaves_a_node(self):
        channel = Channel(noise(), RING, Streams(0))
        channel.begin(start(2, nodes=5), bound=20.0)
        state = Sent.begin(start(2, nodes=5)).perturbed(None, channel, 0.0)
        for broadcasts, names in ((False, {"s", "a"}), (True, {"s", "a", "S"})):
            assert set(state.messages(broadcasts=broadcasts)) == names


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"sensitivity": "none"}, "data-independent"),
        ({"sync_interval": 0}, "sync_interval"),
        ({"failure": 0.0}, "failure"),
        ({"window": 0}, "window"),
        ({"constant": 0.0}, "constant"),
        ({"decay": 1.0}, "decay"),
    ],
)
def test_refuses_with_a_sentence(changed, words):
    with pytest.raises(ValueError, match=words):
        MessageNoise(**({"noise_multiplier": 0.1} | changed))
