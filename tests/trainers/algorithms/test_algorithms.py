"""The contract that every algorithm passes, present and future."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples
from tests.trainers import checks
from tests.trainers.checks import DIMS, MECHANISM, Messages, Recording
from tests.trainers.contract import CASES, STEP, Case, Flat, Quadratic, states
from tests.trainers.problems import oracle, random_data, start
from trainers.network.mixing import Mixing
from trainers.oracles.oracle import Mechanism

ROUNDS = 4
FULL = Mechanism(batch_size=6.0)  # every record, no clipping, no noise
GRAPHS = ["complete", "ring", "star", "torus", "erdos-renyi:0.5", "fiedler:0.39"]

every = pytest.mark.parametrize("case", CASES, ids=str)
shared = pytest.mark.parametrize(
    "case", [case for case in CASES if not case.family.central], ids=str
)


class TestConservation:
    @pytest.mark.sampled(3)
    @every
    def test_agreement_without_gradients_stays(self, case):
        begin = start(3, nodes=1).repeat(1, 5, 1)
        if case.options.get("optimiser") == "adamw":
            pytest.skip("weights decay, with or without gradients")
        models = case.network(5, "star").run(begin, Flat(5), 7)
        torch.testing.assert_close(models, begin)

    @every
    @pytest.mark.parametrize("graph", GRAPHS)
    def test_mixing_keeps_the_mean(self, case, graph):
        if not case.facts.keeps_mean:
            pytest.skip("not linear in its messages")
        begin = start(3, nodes=6)
        models = case.network(6, graph).run(begin, Flat(6), 7)
        torch.testing.assert_close(models.mean(1), begin.mean(1))

    @pytest.mark.sampled(3)
    @every
    def test_what_is_given_is_left_alone(self, case):
        begin = start(DIMS, runs=2)
        kept = begin.clone()
        case.network().run(begin, oracle(MECHANISM, runs=2), ROUNDS)
        assert torch.equal(begin, kept)

    @examples(40)
    @given(st.sampled_from([*GRAPHS, "exponential", "d-out:3"]), st.integers(0, 1000))
    def test_the_mean_tracker_is_the_mean_of_the_last_noisy_gradients(
        self, graph, seed
    ):
        recording = Recording()
        private = oracle(
            MECHANISM, shares=random_data((5,) * 6), seed=seed, observers=[recording]
        )
        weights = "uniform" if graph in ("exponential", "d-out:3") else "metropolis"
        network = Case("dp-dsgt").network(6, graph, weights, seed=seed)
        begin = start(DIMS, nodes=6, seed=seed)
        for k, state in enumerate(states(network, begin, private, ROUNDS)):
            _, last = recording.releases[k]
            torch.testing.assert_close(state.tracker.mean(1), last.mean(1))
            assert torch.equal(state.last, last)

    @examples(40)
    @given(st.sampled_from(GRAPHS), st.integers(0, 1000), st.integers(1, 3))
    def test_the_duals_add_up_to_nothing(self, graph, seed, inner):
        private = oracle(MECHANISM, shares=random_data((5,) * 6), seed=seed)
        case = Case("dp-dinno", {"inner_steps": inner})
        network = case.network(6, graph, "uniform", seed=seed)
        begin = start(DIMS, nodes=6, seed=seed)
        for state in states(network, begin, private, ROUNDS):
            torch.testing.assert_close(
                state.dual.sum(1), torch.zeros(1, DIMS, dtype=torch.float64)
            )


class TestReduction:
    @pytest.mark.sampled(35)
    @every
    @pytest.mark.parametrize("graph", ["complete", "ring", "star"])
    def test_a_quadratic_is_minimised(self, case, graph):
        facts, quadratic = case.facts, Quadratic(5)
        begin = torch.zeros(1, 5, 4, dtype=torch.float64)
        if case.options.get("optimiser") == "adamw":
            pytest.skip("decay pulls the optimum towards 0")
        if case.options.get("optimiser_state") == "rebuilt":
            pytest.skip("steps of a fixed length do not converge")
        case = dataclasses.replace(case, options=case.options | facts.options)
        network = case.network(5, graph, step=facts.step)
        models = network.run(begin, quadratic, facts.rounds)
        if case.family.central:
            optimum = quadratic.centres
        else:
            optimum = quadratic.optimum.expand(5, -1)
        torch.testing.assert_close(models[0], optimum, rtol=0, atol=facts.tolerance)

    @pytest.mark.sampled(4)
    @every
    def test_one_node_is_what_it_should_be(self, case):
        shares = random_data((6,))
        network = case.network(nodes=1, step=lambda k: STEP / (k + 1))
        begin = start(DIMS, nodes=1)
        models = network.run(begin, oracle(FULL, shares=shares), ROUNDS)
        alone = case.facts.alone
        theta = alone(begin, oracle(FULL, shares=shares), network.algorithm, ROUNDS)
        torch.testing.assert_close(models, theta)
        assert not torch.equal(models, begin)

    @pytest.mark.sampled(4)
    @shared
    def test_on_the_complete_graph(self, case):
        begin = start(DIMS, nodes=3)
        network = case.network(3, "complete", "uniform")
        equal = []
        for state in states(network, begin, oracle(MECHANISM), ROUNDS):
            models = network.algorithm.models(state)
            equal.append(bool((models == models[:, :1]).all()))
        assert equal == [case.facts.equal_when_complete] * ROUNDS

    def test_tracking_on_the_complete_graph_is_descent_on_the_mean(self):
        quadratic, begin = Quadratic(5), start(4, nodes=5)
        step = 0.1
        models = (
            Case("dsgt").network(5, "complete", "uniform").run(begin, quadratic, ROUNDS)
        )
        theta = begin.mean(1, keepdim=True).expand(-1, 5, -1)
        for _ in range(ROUNDS - 1):
            theta = theta - step * quadratic.gradient(theta).mean(1, keepdim=True)
        torch.testing.assert_close(models, theta)


class TestLaws:
    @pytest.mark.sampled(18)
    @every
    def test_batching_does_not_change_numbers(self, case):
        begin = start(DIMS).repeat(4, 1, 1)
        private = oracle(MECHANISM, runs=4, seed=3)
        small = oracle(MECHANISM, runs=4, seed=3)
        small._memory_limit = 700
        one = case.network().run(begin, private, ROUNDS)
        other = case.network().run(begin, small, ROUNDS)
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
        assert private.ledger == small.ledger

    @every
    def test_runs_do_not_see_each_other(self, case):
        quadratic = Quadratic(3)
        begin = start(4, runs=5)
        together = case.network().run(begin, quadratic, ROUNDS)
        apart = [
            case.network().run(begin[m : m + 1], quadratic, ROUNDS) for m in range(5)
        ]
        assert torch.equal(together, torch.cat(apart))

    @pytest.mark.sampled(6)
    @every
    def test_equal_seeds_equal_bits(self, case):
        runs = [
            case.network().run(start(DIMS), oracle(MECHANISM, seed=4), ROUNDS)
            for _ in range(2)
        ]
        assert torch.equal(*runs)

    @pytest.mark.sampled(6)
    @every
    def test_messages_have_the_same_names_and_shapes_in_every_round(self, case):
        seen = Messages()
        case.network().run(start(DIMS), oracle(MECHANISM), ROUNDS, observers=[seen])
        assert len(seen.sent) == ROUNDS
        assert all(set(sent) == set(seen.sent[0]) for sent in seen.sent)
        assert bool(seen.sent[0]) == (not case.family.central)
        for sent in seen.sent:
            for name, tensor in sent.items():
                assert tensor.shape == (1, 3, 1 if name == "w" else DIMS)

    @every
    def test_sizes_must_agree(self, case):
        with pytest.raises(ValueError, match="must be one number"):
            case.network(nodes=4).run(start(DIMS), oracle(MECHANISM), ROUNDS)

    @shared
    def test_a_graph_that_it_is_not_valid_on_is_refused(self, case):
        with pytest.raises(ValueError, match="must be connected"):
            case.network(4, "d-out:1", "uniform")
        need = case.family.needs[0]
        wrong = {
            "undirected": ("directed-ring", "uniform"),
            "column stochastic": ("star", "uniform"),
        }
        graph, weights = wrong.get(need, ("star", "column-stochastic"))
        with pytest.raises(ValueError, match=f"must be {need}"):
            case.network(4, graph, weights)

    @pytest.mark.sampled(3)
    @every
    def test_a_state_s_tensors_are_runs_by_nodes(self, case):
        network = case.network()
        begin = start(DIMS, runs=2)
        for state in states(network, begin, oracle(MECHANISM, runs=2), 2):
            assert network.algorithm.models(state).shape == (2, 3, DIMS)


class TestLedger:
    @pytest.mark.sampled(3)
    @every
    def test_the_noise_measured_is_the_noise_written_down(self, case):
        """Of every release that the algorithm asks for, wherever it asks."""
        recording, runs = Recording(), 100
        private = oracle(MECHANISM, runs=runs, seed=8, observers=[recording])
        case.network().run(start(DIMS).repeat(runs, 1, 1), private, 2)
        noise = checks.noise_of(recording, MECHANISM, runs=runs, seed=8)
        assert checks.noise_is_as_written(noise, private.ledger) == []
        assert checks.noise_is_fresh(noise) == []

    @pytest.mark.sampled(6)
    @every
    def test_what_happened_is_what_was_planned(self, case):
        network = case.network()
        releases = case.releases(ROUNDS)
        assert releases == ROUNDS * case.options.get("inner_steps", 1)
        assert checks.releases_are_counted(network, releases, ROUNDS) == []
        private = oracle(MECHANISM)
        network.run(start(DIMS), private, ROUNDS)
        assert private.ledger == MECHANISM.ledger((7, 5, 9), releases)

    @pytest.mark.sampled(3)
    @every
    def test_nothing_but_releases_is_used(self, case):
        assert checks.only_releases_are_used(case.network(), ROUNDS) == []


class TestSchedules:
    def test_rho_is_a_schedule(self):
        # With no gradients and no primal steps, the dual is the sum of the rhos.
        begin = start(4, nodes=3)
        network = Case("dinno", {"rho": lambda k: 2.0**k, "optimiser": "sgd"}).network(
            3, "complete", "uniform", step=lambda k: 0.0
        )
        (*_, last) = states(network, begin, Flat(3), 3)
        away = 3 * begin - begin.sum(1, keepdim=True)
        torch.testing.assert_close(last.dual, (1 + 2 + 4) * away)

    @pytest.mark.sampled(3)
    @every
    def test_step_sizes_are_of_the_round(self, case):
        asked = []

        def step(k):
            asked.append(k)
            return STEP

        network = case.network(step=step)
        network.run(start(DIMS), oracle(MECHANISM), ROUNDS)
        assert sorted(set(asked)) == list(range(ROUNDS))


def test_matrices_of_a_cycle_follow_the_rounds():
    seen = Messages()
    matrices = [[[0, 1.0], [1, 0]], [[1.0, 0], [0, 1]]]
    network = Case("dsgd").network(2, "complete")
    on = type(network)(network.algorithm, Mixing(matrices))
    begin = torch.tensor([[[1.0], [2.0]]])
    on.run(begin, Flat(2), 4, observers=[seen])
    first = [sent["theta"][0, 0, 0].item() for sent in seen.sent]
    assert first == [1, 2, 2, 1]
