"""Contract of trainers.algorithms.sgp: what it is elsewhere, and its planted bugs."""

import dataclasses

import pytest
import torch

from tests.trainers.checks import DIMS, MECHANISM, Recording
from tests.trainers.contract import STEP, Case, Flat, Quadratic, states
from tests.trainers.problems import oracle, start
from trainers.algorithms.sgp import Sgp
from trainers.network.engine import Network
from trainers.network.named_graphs import mixing
from trainers.network.push_sum import NEEDS, PushSum
from trainers.runs import checkpoint

DIRECTED = ["directed-ring", "exponential", "d-out:2", "star", "erdos-renyi:0.5"]


def network(nodes, graph, step=lambda k: STEP, kind=Sgp):
    return Network(kind(step), mixing(graph, "column-stochastic", nodes), NEEDS)


class WeightNotMixed(Sgp):
    """Planted: values are mixed, weights are not."""

    def round(self, state, inbox, private, k):
        return PushSum(x=inbox["x"], weight=state.weight)


class GradientAtX(Sgp):
    """Planted: gradients are taken where the numerator is."""

    def local(self, state, private, k):
        return state.plus(private.gradient(at=state.x) * -self.step_size(k))


def comes_to_the_mean(kind, graph):
    """Without gradients, all nodes end at the mean of the start."""
    begin = start(3, nodes=7)
    models = network(7, graph, kind=kind).run(begin, Flat(7), 300)
    mean = begin.mean(1, keepdim=True).expand_as(begin)
    return torch.allclose(models, mean, rtol=1e-6, atol=1e-6)


def finds_the_optimum(kind, graph):
    """With shrinking steps, all nodes end near the optimum of the sum."""
    quadratic = Quadratic(5)
    on = network(5, graph, lambda k: 1 / (k + 2), kind)
    models = on.run(torch.zeros(1, 5, 4, dtype=torch.float64), quadratic, 3000)
    return bool((models - quadratic.optimum).abs().max() < 1e-2)


class TestReduction:
    def test_with_constant_doubly_stochastic_weights_it_is_step_then_average(self):
        on = Case("sgp").network(5, "ring", "metropolis", step=lambda k: 0.1 / (k + 1))
        quadratic, begin = Quadratic(5), start(4, nodes=5)
        matrix, theta = torch.tensor(on.mixing.at(0)), begin
        for k in range(6):
            stepped = theta - 0.1 / (k + 1) * quadratic.gradient(theta)
            theta = torch.einsum("ij,rjd->rid", matrix, stepped)
        torch.testing.assert_close(on.run(begin, quadratic, 6), theta)

    @pytest.mark.sampled(9)
    @pytest.mark.parametrize("graph", DIRECTED)
    def test_the_optimum_of_the_sum_is_found_where_degrees_differ(self, graph):
        assert finds_the_optimum(Sgp, graph)

    @pytest.mark.parametrize("graph", DIRECTED)
    def test_the_mean_moves_by_the_mean_of_the_steps(self, graph):
        recording = Recording()
        private = oracle(MECHANISM, observers=[recording])
        begin = start(DIMS)
        moved = begin.mean(1)
        for k, state in enumerate(states(network(3, graph), begin, private, 5)):
            moved = moved - STEP * recording.releases[k][1].mean(1)
            torch.testing.assert_close(state.x.mean(1), moved)

    def test_gradients_are_asked_before_anything_is_sent(self):
        # One round: each node has the average of stepped starts, its own among them.
        quadratic, begin = Quadratic(4), start(4, nodes=4)
        stepped = begin - STEP * quadratic.gradient(begin)
        models = network(4, "complete").run(begin, quadratic, 1)
        torch.testing.assert_close(
            models, stepped.mean(1, keepdim=True).expand_as(begin)
        )


class TestPlantedBugs:
    @pytest.mark.parametrize("graph", ["star", "erdos-renyi:0.5"])
    def test_a_weight_that_is_not_mixed_is_noticed(self, graph):
        assert comes_to_the_mean(Sgp, graph)
        assert not comes_to_the_mean(WeightNotMixed, graph)

    def test_a_gradient_at_the_biased_parameters_is_noticed(self):
        assert not finds_the_optimum(GradientAtX, "star")


class TestState:
    def test_the_weight_is_a_double_and_the_values_what_they_were(self):
        begin = start(DIMS).float()
        *_, state = states(network(3, "star"), begin, Flat(3), 2)
        assert state.weight.dtype == torch.float64
        assert state.x.dtype == state.z.dtype == torch.float32

    def test_it_is_packed_and_goes_on(self):
        on, begin, private = network(3, "star"), start(DIMS), Quadratic(3, DIMS)
        kept = {}

        def keep(done, state):
            kept[done] = checkpoint.pack(state)

        whole = on.run(begin, private, 6, keep=keep)
        state = checkpoint.like(on.begin(begin), checkpoint.unpack(kept[3]))
        assert dataclasses.is_dataclass(state)
        assert torch.equal(on.run(begin, private, 6, resume=(3, state)), whole)
