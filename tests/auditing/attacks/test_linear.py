"""What is seen, as a linear map: gradients are read off to rounding."""

import types

import numpy as np
import pytest

from privaudit.auditing.attacks.linear import LinearMap, Reader, Record
from tests.trainers.contract import Case
from tests.trainers.problems import oracle, random_data, start
from trainers.oracles.oracle import Mechanism

DIMS, ROUNDS = 15, 6
CASES = [
    Case("dp-dsgd"),
    Case("dp-dsgt"),
    Case("dp-dinno", {"optimiser": "sgd"}),
    Case("dp-dinno", {"optimiser": "sgd", "inner_steps": 3}),
]


class Releases:
    """Keeps what an oracle gave out and where it was asked."""

    def __init__(self):
        self.seen = []

    def release(self, index, at, gradient, nodes):
        self.seen.append((at.clone(), gradient.clone()))


def trained(case, nodes=3, graph="ring", runs=2, heard=None, models=False):
    """A run in double precision: its map, what was seen and what was released."""
    network = case.network(nodes, graph)
    problem = types.SimpleNamespace(
        shares=[None] * nodes,
        network=network,
        training=types.SimpleNamespace(rounds=ROUNDS, algorithm=case.name),
    )
    linear = LinearMap.of(problem, heard, models=models)
    record, kept = Record(heard, models=models), Releases()
    record.dims = DIMS
    private = oracle(
        Mechanism(batch_size=3.0, clip_norm=0.5, noise_multiplier=2.0),
        shares=None if nodes == 3 else random_data((7,) * nodes),
        runs=runs,
        observers=(kept,),
    )
    begin = start(DIMS, runs=1, nodes=1).repeat(runs, nodes, 1)
    network.run(
        begin, private, ROUNDS, observers=(record,), after_round=record.after_round
    )
    return linear, record.stacked().numpy(), begin[0, 0].numpy(), kept.seen


def truth(linear, seen, which):
    """(runs, inputs, dims) of what was released (1), or where it was asked (0)."""
    return np.stack(
        [seen[index][which][:, node].numpy() for node, index in linear.inputs], 1
    )


class TestSound:
    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_the_map_is_the_algorithm(self, case):
        linear, seen, begin, released = trained(case, heard=[[0, 1, 2]])
        everything = np.concatenate(
            [np.broadcast_to(begin, (2, 1, DIMS)), truth(linear, released, 1)], 1
        )
        np.testing.assert_allclose(linear.seen @ everything, seen, atol=1e-10)
        np.testing.assert_allclose(
            linear.asked @ everything, truth(linear, released, 0), atol=1e-10
        )

    def test_adam_is_refused(self):
        with pytest.raises(ValueError, match="not linear"):
            trained(Case("dp-dinno"), heard=[[0, 1, 2]])

    def test_what_is_not_heard_is_said(self):
        with pytest.raises(ValueError, match="sends nothing"):
            trained(Case("dp-dsgd"), heard=[[]])


class TestTight:
    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_who_hears_all_reads_every_gradient_but_the_last(self, case):
        linear, seen, begin, released = trained(case, heard=[[0, 1, 2]])
        reader = Reader.of(linear, np.ones(len(linear.inputs)))
        own = linear.own
        shares = reader.known.diagonal()[own]
        found = reader.gradients(seen, begin)
        real = truth(linear, released, 1)
        if case.options.get("inner_steps", 1) == 1:
            np.testing.assert_allclose(shares[:-1], 1, atol=1e-9)
            assert shares[-1] < 1e-9
            np.testing.assert_allclose(found[:, own[:-1]], real[:, own[:-1]], atol=1e-9)
            points = reader.points(found, begin)
            np.testing.assert_allclose(
                points[:, own], truth(linear, released, 0)[:, own], atol=1e-9
            )
        else:  # of the inner steps only one mean shows
            assert (shares < 0.99).all()

    def test_all_models_show_the_last_gradient_too(self):
        linear, seen, begin, released = trained(Case("dp-dsgd"), models=True)
        reader = Reader.of(linear, np.ones(len(linear.inputs)))
        np.testing.assert_allclose(
            reader.gradients(seen, begin), truth(linear, released, 1), atol=1e-9
        )

    def test_unheard_noise_leaves_the_best_linear_guess(self):
        # On a ring of five, node 1 hears 0, 1, 2; node 0 hears node 4 as well.
        linear, seen, begin, released = trained(
            Case("dp-dsgd"), nodes=5, runs=400, heard=[[0, 1, 2]]
        )
        # The gradients' own scale, nearly all noise: 2 * 0.5 / 3.
        reader = Reader.of(linear, np.full(len(linear.inputs), 1 / 3))
        own = linear.own[:-1]
        shares = reader.known.diagonal()[own]
        assert (shares > 0.05).all()
        assert (shares < 0.999).any()
        # Along one coordinate, guess and truth agree as well as the share says.
        found = reader.gradients(seen, begin)[:, own]
        real = truth(linear, released, 1)[:, own]
        away = ((found - real) * 3).var(axis=(0, 2))
        np.testing.assert_allclose(away, 1 - shares, rtol=0.2, atol=0.02)
