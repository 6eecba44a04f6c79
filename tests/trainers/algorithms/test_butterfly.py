"""Sums by recursive doubling: the theorem, against the algorithm's own linear map."""

import dataclasses

import numpy as np
import pytest
import torch

import privaudit as pa
from privaudit.accounting import Certificate
from privaudit.accounting.views import Observer, of_observer
from privaudit.accounting.views.butterfly import exchanges, fresh_noises, hears, slots
from privaudit.auditing.attacks.protocols import protocol_of
from privaudit.ledger import Entry, Ledger
from trainers import contract
from trainers.algorithms.butterfly import Butterfly
from trainers.network.engine import Network
from trainers.network.named_graphs import mixing
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

SMALL = {"train": 300, "batch_size": 10.0, "model": "softmax", "digits": (0, 1, 2)}


def made(nodes, rounds, **more):
    """A problem on a few digits."""
    values = {"algorithm": "dp-butterfly", "graph": "butterfly", "nodes": nodes}
    return Problem.of(
        training_from({**values, "rounds": rounds, **SMALL, **more}, where="here")
    )


class TestPlaces:
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("nodes", [2, 4, 8, 16, 64, 1024])
    def test_every_pair_meets_equally_often(self, nodes):
        for apart in {1, nodes // 2, nodes - 1}:
            met = fresh_noises(nodes, nodes - 1, 0, Observer.of(apart))
            for bit in range(exchanges(nodes)):
                assert (met == 1 << bit).sum() == 1 << bit

    @pytest.mark.parametrize("nodes", [2, 4, 8, 16])
    def test_each_step_gives_each_node_a_place_of_its_own(self, nodes):
        assert (np.sort(slots(nodes), axis=1) == np.arange(nodes)).all()

    def test_several_hear_what_the_nearest_hears(self):
        one, other = (fresh_noises(8, 7, 0, Observer.of(v)) for v in (3, 5))
        both = fresh_noises(8, 7, 0, Observer.of(3, 5))
        np.testing.assert_array_equal(both, np.minimum(one, other))

    @pytest.mark.parametrize(
        ("nodes", "graph"),
        [(1, "butterfly"), (129, "butterfly"), (2048, "butterfly"), (65, "chain")],
    )
    def test_other_numbers_of_nodes(self, nodes, graph):
        with pytest.raises(ValueError, match=f"a {graph} has 2 to .* nodes"):
            exchanges(nodes, graph)

    @pytest.mark.parametrize("graph", ["butterfly", "chain"])
    @pytest.mark.parametrize("nodes", [3, 5, 6, 7, 11, 12])
    def test_every_pair_meets_about_equally_often(self, nodes, graph):
        cycle = len(slots(nodes, graph))
        told = [
            (1 / fresh_noises(nodes, cycle, u, Observer.of(v), graph)).mean()
            for u in range(nodes)
            for v in range(nodes)
            if u != v
        ]
        if nodes in (3, 5, 7, 11):  # primes: every pair at all places equally often
            np.testing.assert_allclose(told, told[0])
        assert max(told) < 1.2 * min(told)
        if graph == "chain":  # what a freshly ordered chain tells: 2 / n
            assert np.mean(told) == pytest.approx(2 / nodes)

    @pytest.mark.parametrize("graph", ["butterfly", "chain"])
    @pytest.mark.parametrize("nodes", [2, 3, 6, 7, 8, 13])
    def test_what_is_heard_is_counted_by_hand(self, nodes, graph):
        # Who holds whose releases, set by set; what a node then knows of u is the
        # least set with u, less those within it that it knows.
        steps, each = min(len(slots(nodes, graph)), 12), exchanges(nodes, graph)
        joined = hears(nodes, graph)
        for step in range(steps):
            held = [{node} for node in range(nodes)]
            known = [[] for _ in range(nodes)]
            for r in range(each):
                heard = joined[step * each + r]
                told = [
                    [held[j] for j in np.flatnonzero(heard[i])] for i in range(nodes)
                ]
                for i, sets in enumerate(told):
                    known[i] += sets
                    for one in sets:
                        all_told = one == set(range(nodes))
                        assert all_told or not held[i] & one
                        held[i] = held[i] | one
            assert all(one == set(range(nodes)) for one in held)
            for by in range(nodes):
                known[by].append({by})
                for of in set(range(nodes)) - {by}:
                    least = min((s for s in known[by] if of in s), key=len)
                    inside = [s for s in known[by] if s < least and of not in s]
                    right = len(least - set().union(*inside))
                    met = fresh_noises(nodes, steps, of, Observer.of(by), graph)
                    assert met[step] == right


class TestTheorem:
    @pytest.mark.sampled(4)
    @pytest.mark.parametrize(
        ("nodes", "rounds", "by"),
        [
            (4, 12, Observer.of(1)),
            (4, 7, Observer.of(1)),  # the last step is not finished
            (4, 12, Observer.of(1, 3)),
            (8, 21, Observer.of(2)),
            (8, 21, Observer.of(2, 5, 6)),
            (6, 24, Observer.of(1)),  # folding: some hear one release alone
            (6, 24, Observer.of(0, 4)),
            (7, 28, Observer.of(1, 2, 5)),
            (3, 11, Observer.of(1)),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("momentum", [0.0, 0.9])
    @pytest.mark.parametrize("graph", ["butterfly", "chain"])
    def test_it_is_what_the_messages_tell(self, graph, nodes, rounds, by, momentum):
        each = exchanges(nodes, graph)
        rounds *= 1 if graph == "butterfly" else 2
        problem = made(
            nodes, rounds, momentum=momentum, graph=graph, algorithm=f"dp-{graph}"
        )
        noise = 2.0
        protocol = protocol_of(problem, problem.ledger(noise))
        complete = rounds - rounds % each
        steps = complete // each
        for of in sorted(set(range(nodes)) - set(by.nodes)):
            view = of_observer(protocol, by, of)
            right = noise * np.sqrt(
                fresh_noises(nodes, -(-rounds // each), of, by, graph)
            )
            for found in (view.nobody_reacts, view.certified):
                np.testing.assert_allclose(found[:steps], right[:steps], rtol=1e-9)
                assert (found[steps:] >= right[steps:] * (1 - 1e-9)).all()
            np.testing.assert_allclose(view.everything_seen, noise, rtol=1e-9)

    def test_what_two_of_a_wire_and_all_hear_is_the_ledgers(self):
        for observer in ("edge:1-2", "everybody"):
            found = pa.views(
                "dp-butterfly",
                noise_multiplier=2.0,
                delta=1e-5,
                observer=observer,
                nodes=4,
                graph="butterfly",
                rounds=12,
                **SMALL,
            )
            for pair in found.pairs:
                assert pair.certified == pair.everything_seen

    def test_the_figures_are_those_of_different_steps(self):
        problem = made(8, 42)
        found = pa.views(
            "dp-butterfly",
            noise_multiplier=1.5,
            delta=1e-5,
            observer=3,
            nodes=8,
            graph="butterfly",
            rounds=42,
            **SMALL,
        )
        for pair in found.pairs:
            (entry,) = problem.ledger(1.5).nodes[pair.of]
            sizes = fresh_noises(8, 14, pair.of, Observer.of(3))
            entries = tuple(
                Entry(
                    pa.Release.of_sum(
                        norm_bound=entry.release.norm_bound,
                        noise_multiplier=1.5 * float(size) ** 0.5,
                        sampling=entry.release.sampling,
                    )
                )
                for size in sizes
            )
            right = Certificate.of(Ledger(nodes=(entries,))).epsilon(1e-5)
            assert right.lower <= pair.certified <= right.upper * (1 + 2e-3)
            assert pair.certified < 0.8 * pair.everything_seen

    def test_momentum_of_a_nodes_own_would_break_it(self):
        # What is planted: each node sends its release and half of its last one.
        @dataclasses.dataclass(frozen=True)
        class Resends(Butterfly):
            def local(self, state, private, k):
                if k % self.exchanges:
                    return state
                fresh = private.gradient(at=state.theta)
                mine = fresh + 0.5 * state.velocity
                return dataclasses.replace(state, partial=mine, velocity=fresh)

            def round(self, state, inbox, private, k):
                done = super().round(state, inbox, private, k)
                return dataclasses.replace(done, velocity=state.velocity)

        problem = made(4, 12)
        graph = problem.network.mixing
        wrong = dataclasses.replace(
            problem, network=Network(Resends(lambda k: 0.1, 0.0, 2, 40.0), graph)
        )
        protocol = protocol_of(wrong, problem.ledger(1.0))
        view = of_observer(protocol, Observer.of(1), 0)
        claimed = (1 / fresh_noises(4, 6, 0, Observer.of(1))).sum()
        assert (view.certified**-2.0).sum() > 1.15 * claimed


class TestAlgorithm:
    @pytest.mark.parametrize(
        ("nodes", "graph"),
        [*((n, "butterfly") for n in (2, 3, 4, 6, 8)), (2, "chain"), (5, "chain")],
    )
    def test_all_nodes_are_equal_to_the_bit_and_descend_the_mean(self, nodes, graph):
        class Gradients:
            def __init__(self):
                self.nodes = nodes
                self.asked = []

            def gradient(self, at):
                generator = torch.Generator().manual_seed(len(self.asked))
                self.asked.append(at.clone())
                drawn = torch.randn(at.shape, generator=generator)
                return (drawn * 2**20).round().double()  # of one grid

        k = exchanges(nodes, graph)
        told = graph == "chain" or nodes in (3, 6)
        network = Network(
            Butterfly(lambda _: 0.1, 0.5, k, nodes * 2**20, told),
            mixing(graph, "uniform", nodes),
        )
        begin = torch.randn(2, 1, 5).repeat(1, nodes, 1)
        oracle = Gradients()
        models = network.run(begin, oracle, 5 * k)
        assert len(oracle.asked) == 5
        for at in (*oracle.asked, models):
            assert torch.equal(at, at[:, :1].expand_as(at))
        theta, velocity = begin[:, 0], 0
        again = Gradients()
        for _ in range(5):
            velocity = 0.5 * velocity + again.gradient(begin).mean(1) / 2**20
            theta = theta - 0.1 * velocity
        assert torch.allclose(models[:, 0], theta.float(), atol=1e-5)

    @pytest.mark.parametrize(
        "more",
        [
            {"graph": "ring"},
            {"graph": "complete"},
            {"graph": "exponential"},
            {"weights": "metropolis"},
        ],
        ids=str,
    )
    def test_only_on_its_own_graph(self, more):
        if more == {"weights": "metropolis"}:  # the same: each has one partner
            made(4, 4, **more)
            return
        with pytest.raises(ValueError, match="graph=butterfly"):
            made(4, 4, **more)
        with pytest.raises(ValueError, match="graph=chain"):
            made(4, 4, **{**more, "algorithm": "dp-chain"})

    def test_other_numbers_of_nodes_are_one_sentence(self):
        with pytest.raises(ValueError, match=r"2 to 128 nodes, or 256, .* got 200"):
            made(200, 4, train=500, batch_size=1.0)

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("name", "nodes", "rounds"),
        [("butterfly", 6, 9), ("butterfly", 5, 8), ("chain", 5, 12), ("chain", 4, 8)],
    )
    def test_the_contract(self, name, nodes, rounds):
        settings = {"nodes": nodes, "graph": name, "rounds": rounds}
        contract.check(f"dp-{name}", settings, plain=name)

    @pytest.mark.parametrize(
        ("nodes", "graph", "sent"),
        [(8, "butterfly", 24), (6, "butterfly", 12), (8, "chain", 14)],
    )
    def test_how_many_vectors_go_over_wires(self, nodes, graph, sent):
        # n log2(n); with folding one more there and back a node that folds; a chain's
        # n - 1 and what the last tells n - 1.
        each = exchanges(nodes, graph)
        assert hears(nodes, graph)[:each].sum() == sent

    def test_momentum_out_of_range(self):
        with pytest.raises(ValueError, match="momentum must be in"):
            made(4, 4, momentum=1.0)
