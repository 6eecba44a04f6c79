"""Every adversary: silent where nothing leaks, sure where nothing is hidden."""

import dataclasses
import runpy

import numpy as np
import pytest
import torch

from privaudit.auditing.attacks import ADVERSARIES
from privaudit.auditing.attacks.canaries import CANARIES
from privaudit.auditing.attacks.likelihood import log_ratio, mixed_ratio
from tests.auditing.attacks.scenes import SMALL, problem, right, scene, scores
from tests.tiers import size
from trainers.runs.material import Material
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

ALGORITHMS = {
    "dp-dsgd": {},
    "dp-dsgt": {},
    "dp-dinno": {"options": {"optimiser": "sgd"}},
}
# Choices are made in collaborative training only: see
# tests/auditing/attacks/test_actions.py.
EACH = pytest.mark.parametrize("name", [n for n in ADVERSARIES if n != "actions"])


def each_with(*canaries):
    """All pairs; a crafted gradient has no probability, which rmia would read.

    To those of final models nothing else has a direction.
    """
    pairs = [
        (name, canary)
        for name in ADVERSARIES
        for canary in canaries
        if name != "actions"
        and not (name == "rmia" and canary.endswith("gradient"))
        and (not name.startswith("final-models") or canary.endswith("gradient"))
    ]
    return pytest.mark.parametrize(("name", "canary"), pairs)


class TestSound:
    @pytest.mark.sampled(3)
    @each_with("gradient", "blank")
    def test_scores_know_nothing_of_worlds_that_are_alike(self, name, canary):
        of = scene(problem(), canary)
        runs = 200
        _, found = scores(name, of, runs, planted=torch.zeros(runs) > 0)
        member = np.arange(runs) % 2 > 0  # coins that decided nothing
        assert abs(right(member, found) - 0.5) < 4 * 0.5 / np.sqrt(runs / 3)

    @pytest.mark.sampled(3)
    @EACH
    def test_equal_seeds_give_equal_bits(self, name):
        canary = "blank" if name == "rmia" else "random-gradient"
        of = scene(problem(rounds=2), canary)
        np.testing.assert_array_equal(scores(name, of, 20)[1], scores(name, of, 20)[1])

    def test_central_training_has_no_neighbours(self):
        with pytest.raises(ValueError, match="nobody hears"):
            ADVERSARIES["neighbour"](scene(problem("dp-sgd", batch_size=5.0)))

    def test_a_crafted_gradient_has_no_probability(self):
        with pytest.raises(ValueError, match="choose a canary that is a record"):
            ADVERSARIES["rmia"](scene(problem()))

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("name", "algorithm"),
        [
            ("noisy-gradients", "dp-dsgd"),
            ("neighbour", "dp-dsgd"),
            ("final-models", "dp-sgd"),
            ("final-models-colluding", "dp-dsgt"),
            ("all-models", "dp-dsgd"),
            ("neighbour", "dp-dinno"),  # by `adam`
            ("observer", "dp-butterfly"),
        ],
    )
    def test_of_several_canaries_each_is_told_by_its_own_coin_alone(
        self, name, algorithm
    ):
        nodes = {"dp-sgd": 1, "dp-butterfly": 4}.get(algorithm, 3)
        graph = {"graph": "butterfly"} if algorithm == "dp-butterfly" else {}
        of = problem(algorithm, batch_size=15.0, nodes=nodes, **graph)
        member, found = scores(name, scene(of, noise=0.3, many=3), 200)
        assert member.shape == (200, 3)
        for own, other in np.ndindex(3, 3):
            chance = right(member[:, own], found[:, other])
            if own == other:
                assert chance > 0.65
            else:
                assert abs(chance - 0.5) < 4 * 0.5 / np.sqrt(200 / 3)


class TestTight:
    def test_crafted_losses_carry_releases_to_the_end(self):
        """Of `examples/hidden_state.py`; where losses are flat .71."""
        example = runpy.run_path("examples/hidden_state.py")
        own = Material.own(
            example["Landscape"](8), example["shares"](200), loss=example["loss"]
        )
        settings = example["TRAINING"] | {
            "algorithm": "dp-dsgd",
            "data": "own",
            "model": "own",
            "partition": "given",
            "nodes": 3,
            "train": 600,
            "rounds": 24,
            "sampling_rate": 0.5,
        }
        landscape = Problem.of(training_from(settings, where="a test"), material=own)
        of = scene(landscape, noise=2.0, many=8)
        assert right(*scores("final-models", of, 60)) > 0.75

    @pytest.mark.sampled(6)
    @each_with(*CANARIES)
    def test_no_noise_is_caught(self, name, canary):
        # Without noise and with every record in every batch, worlds are apart.
        of = scene(problem(batch_size=20.0, rounds=3), canary, noise=0.0)
        member, found = scores(name, of, 30)
        assert right(member, found) == 1

    @pytest.mark.full
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_the_neighbour_sees_as_much_as_the_white_box_but_a_round(self, algorithm):
        of = scene(problem(algorithm, **ALGORITHMS[algorithm]), "gradient")
        member, white = scores("noisy-gradients", of, 3000)
        _, heard = scores("neighbour", of, 3000)
        assert right(member, white) > 0.6
        # Three of four releases: the shift shrinks by about sqrt(3 / 4).
        ratio = (right(member, heard) - 0.5) / (right(member, white) - 0.5)
        assert 0.7 < ratio < 1.02

    def test_all_models_see_all_that_the_white_box_sees(self):
        of = scene(problem(), "gradient")
        _, white = scores("noisy-gradients", of, 50)
        _, models = scores("all-models", of, 50)
        np.testing.assert_allclose(models, white, atol=1e-3)

    @pytest.mark.parametrize(
        ("settings", "noise", "divisor"),
        [
            ({"algorithm": "dp-dsgd"}, (2.5, 1.0, 9.0), 6.2963),
            pytest.param(
                {"algorithm": "dp-fedavg", "user_rate": 0.5, "train": 12, "rounds": 2},
                *(3.0, 1.0),
                marks=pytest.mark.full,
            ),
        ],
    )
    def test_scores_are_likelihood_ratios(self, settings, noise, divisor):
        """Whatever divides a node's sums: exp(score) is 1 on average without it."""
        training = training_from(SMALL | settings, where="a test")
        data = Material.by_name(training, 0)
        twos = [
            dataclasses.replace(share, users=torch.arange(len(share.inputs)) // 2)
            for share in data.shares
        ]
        of = Problem.of(training, material=dataclasses.replace(data, shares=twos))
        seen = scene(of, noise=noise)
        assert seen.divisors[0] == pytest.approx(divisor, rel=1e-4)
        for name in ("noisy-gradients", "all-models"):
            member, found = scores(name, seen, 500)
            assert np.exp(found[~member]).mean() == pytest.approx(1, abs=0.1)
            assert np.exp(-found[member]).mean() == pytest.approx(1, abs=0.1)

    def test_final_models_tell_all_where_no_batch_is_drawn(self):
        """Of one node: its weights are the sum, which is sufficient."""
        of = scene(problem("dp-sgd", nodes=1, train=20, batch_size=20.0), "gradient")
        _, white = scores("noisy-gradients", of, 200)
        _, final = scores("final-models", of, 200)
        assert np.corrcoef(white, final)[0, 1] > 1 - 1e-6

    @pytest.mark.sized
    def test_final_models_of_several_nodes_tell_less(self):
        """The noise of all is mixed into each: by sqrt(nodes) at most."""
        of = scene(problem(batch_size=20.0), "gradient")
        runs = size(2000, 500)
        member, white = scores("noisy-gradients", of, runs)
        _, final = scores("final-models", of, runs)

        def apart(found):
            within = np.mean([found[member].var(), found[~member].var()])
            return (found[member].mean() - found[~member].mean()) / within**0.5

        nodes = of.problem.training.nodes
        assert nodes > 1
        assert 1 / nodes**0.5 - 0.05 < apart(final) / apart(white) < 0.97

    def test_final_models_tell_a_sum_under_all_noise_and_the_last_release(self):
        """As docs/auditing.md says of dp-dsgd and three nodes: no score knows more."""
        attack = ADVERSARIES["final-models"](scene(problem(graph="complete")))
        reader, rounds = attack.reader, SMALL["rounds"]
        known = np.full((rounds, rounds), 1 / (3 * rounds))
        known[-1, -1] += 2 / 3
        np.testing.assert_allclose(
            reader.known[np.ix_(reader.map.own, reader.map.own)], known, atol=1e-9
        )

    @pytest.mark.full
    def test_where_all_others_collude_final_models_tell_all_again(self):
        """Every noise but the canary's node's is known; so are all that is mixed."""
        of = scene(problem(batch_size=20.0), "gradient")
        _, white = scores("noisy-gradients", of, 200)
        _, final = scores("final-models-colluding", of, 200)
        assert np.corrcoef(white, final)[0, 1] > 0.98

    def test_final_models_need_a_crafted_gradient(self):
        with pytest.raises(ValueError, match="choose the canary gradient"):
            ADVERSARIES["final-models"](scene(problem(), "blank"))

    def test_records_that_reach_the_direction_are_taken_off(self):
        of = scene(problem(rounds=6), "random-gradient", noise=0.5)
        assert not of.silent
        member, heard = scores("neighbour", of, 400)
        _, white = scores("noisy-gradients", of, 400)
        assert right(member, white) > 0.75
        assert right(member, heard) > 0.72

    @pytest.mark.full
    def test_a_neighbour_that_does_not_hear_all_is_less_sure(self):
        settings = dict(nodes=5, graph="ring", train=100)
        of = scene(problem(**settings), "gradient", noise=0.7)
        member, white = scores("noisy-gradients", of, 1500)
        _, heard = scores("neighbour", of, 1500)
        assert 0.52 < right(member, heard) < right(member, white)


class TestLogRatio:
    @pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
    @pytest.mark.parametrize("replaces", [False, True])
    def test_it_is_the_ratio_of_the_densities(self, rate, replaces):
        x = torch.linspace(-6, 6, 41, dtype=torch.float64)
        shift = 0.8

        def density(sign):
            normal = torch.distributions.Normal(0.0, 1.0)
            there = normal.log_prob(x - sign * shift).exp()
            return (1 - rate) * normal.log_prob(x).exp() + rate * there

        expected = density(1) / density(-1 if replaces else 0)
        found = log_ratio(x, shift, rate, replaces=replaces)
        torch.testing.assert_close(found, expected.log())

    @pytest.mark.parametrize("replaces", [False, True])
    def test_of_mixed_noise_it_is_the_ratio_of_the_densities(self, replaces):
        """Of two numbers that hold three releases, whose coins are all tried."""
        random = torch.Generator().manual_seed(0)
        rows = torch.randn(2, 3, generator=random, dtype=torch.float64)
        back = torch.linalg.pinv(rows)
        shift = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
        seen = torch.randn(5, 2, generator=random, dtype=torch.float64)

        def density(sign):
            total = torch.zeros(5, dtype=torch.float64)
            for coins in np.ndindex(2, 2, 2):
                b = torch.tensor(coins).double()
                normal = torch.distributions.MultivariateNormal(
                    rows @ (sign * shift * b), rows @ rows.T
                )
                chance = 0.3 ** b.sum() * 0.7 ** (3 - b.sum())
                total += chance * normal.log_prob(seen).exp()
            return total

        found = mixed_ratio(
            (seen @ back.T)[:, :, None], back @ rows, shift, 0.3, replaces=replaces
        )
        expected = density(1) / density(-1 if replaces else 0)
        torch.testing.assert_close(found[:, 0], expected.log())

    def test_far_away_it_stays_finite(self):
        x = torch.tensor([-1e8, 1e8], dtype=torch.float64)
        assert torch.isfinite(log_ratio(x, 1e3, 0.1, replaces=True)).all()
