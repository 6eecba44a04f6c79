"""Contract of partpsp and oracle."""

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from privaudit.accounting import account
from tests.trainers.problems import random_data, start
from trainers.algorithms import ALGORITHMS
from trainers.algorithms.partpsp.partpsp import PartPsp
from trainers.data import Dataset, PrivateData
from trainers.gradients.per_sample import PerSample, parameter_places
from trainers.models import cross_entropy
from trainers.network.mixing import Mixing
from trainers.network.named_graphs import mixing
from trainers.numerics.randomness import Streams
from trainers.oracles.capabilities import GivesGradients, GivesMessages, gives
from trainers.oracles.messages.dpps import with_synchronisation
from trainers.oracles.messages.noise import MessageNoise
from trainers.oracles.messages.oracle import (
    MessageMechanism,
    MessageOracle,
    shared_places,
)
from trainers.runs import checkpoint
from trainers.runs.problem import Observers, Problem
from trainers.runs.training import Training

NAMES = ("partpsp", "sgpdp", "pedfl")
SIZES = (6, 6, 6, 6)
FAMILY = ALGORITHMS["partpsp"]
RING = mixing("d-out:2", "uniform", 4)
STEP = 0.3
SMALL = 1e-4  # a clip norm


def two_layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)).double()


DIMS = 27  # 15 + 12


def oracle(
    multiplier=0.1, *, clip=1.0, interval=None, shares=None, on=RING, seed=0, **more
):
    """An oracle over a small problem; ``more`` goes to noise or mechanism."""
    runs, planted = more.pop("runs", 1), more.pop("planted", None)
    batch, sampling = more.pop("batch", 3), more.pop("sampling", "without-replacement")
    clip_by, canary = more.pop("clip_by", "batch"), more.pop("canary", None)
    module = more.pop("module", two_layers)()
    noise = MessageNoise(multiplier, rounds=20, sync_interval=interval, **more)
    mechanism = MessageMechanism(
        float(batch),
        clip,
        sampling=sampling,
        clip_by=clip_by,
        messages=noise,
        mixing=with_synchronisation(on, interval),
    )
    return MessageOracle(
        PrivateData.of(
            shares or random_data(SIZES),
            canary=canary,
            replaces=sampling == "without-replacement",
        ),
        PerSample(module, cross_entropy),
        mechanism,
        Streams(seed),
        runs=runs,
        planted=planted,
    )


def begin(nodes=4, runs=1):
    return start(DIMS, nodes=1).repeat(runs, nodes, 1)


def plain_sgp(private, theta, on, rounds, step=STEP):
    """Stochastic gradient push without privacy: the textbook form, run 0."""
    x, w = theta.clone(), torch.ones(theta.shape[1], dtype=torch.float64)
    for k in range(rounds):
        z = x / w[None, :, None]
        x = x - step * private.exact(z, private.batch())
        weights = torch.tensor(on.at(k))
        x, w = torch.einsum("ij,rjd->rid", weights, x), weights @ w
    return x / w[None, :, None]


class TestReduction:
    @pytest.mark.parametrize("graph", ["d-out:2", "exponential", "complete"])
    def test_without_noise_and_clipping_all_shared_is_sgp(self, graph):
        on = mixing(graph, "uniform", 4)
        private, other = (
            oracle(0.0, clip=math.inf, on=on, sensitivity="real") for _ in range(2)
        )
        algorithm = PartPsp(lambda k: STEP, shared="*")
        models = FAMILY.runner(algorithm, on).run(begin(), private, 7)
        torch.testing.assert_close(models, plain_sgp(other, begin(), on, 7))

    def test_one_node_is_clipped_descent(self):
        on = Mixing([[1.0]])
        data = random_data((6,))
        private, other = (
            oracle(0.0, on=on, shares=data, batch=6, clip=0.2) for _ in range(2)
        )
        algorithm = PartPsp(lambda k: STEP, shared="*")
        models = (
            dataclasses.replace(FAMILY, needs=())
            .runner(algorithm, on)
            .run(begin(1), private, 5)
        )
        theta = begin(1)
        for _ in range(5):
            gradient = other.exact(theta, other.batch())
            norm = gradient.abs().sum().item()
            assert norm > 0.2  # clipping acts
            theta = theta - STEP * gradient * 0.2 / norm
        torch.testing.assert_close(models, theta)

    def test_no_noise_rate_is_no_noise_whatever_the_sensitivity(self):
        algorithm = PartPsp(lambda k: STEP)
        one, *others = (
            FAMILY.runner(algorithm, RING).run(
                begin(), oracle(0.0, sensitivity=name), 5
            )
            for name in ("data-independent", "real", "paper", "certified")
        )
        assert all(torch.equal(one, other) for other in others)

    def test_local_parameters_are_local_descent(self):
        # With the shared ones at rest, each node descends alone on what is its own.
        private, other = oracle(0.0), oracle(0.0)
        algorithm = PartPsp(lambda k: 0.0, local_step_size=STEP)
        models = FAMILY.runner(algorithm, RING).run(begin(), private, 5)
        theta = begin()
        for _ in range(5):
            descent = other.exact(theta, other.batch())
            descent[:, :, :15] = 0
            theta = theta - STEP * descent
        torch.testing.assert_close(models, theta)

    def test_the_shared_gradient_is_taken_after_the_local_step(self):
        private, other = oracle(0.0, clip=0.1), oracle(0.0, clip=0.1)
        on = Mixing(np.full((4, 4), 0.25))
        models = FAMILY.runner(PartPsp(lambda k: STEP), on).run(begin(), private, 1)
        batch, theta = other.batch(), begin()
        first = other.exact(theta, batch)
        first[:, :, :15] = 0
        theta = theta - STEP * first
        change = -STEP * other.clipped(theta, batch, torch.arange(15))
        mean = (theta[:, :, :15] + change).mean(1, keepdim=True).expand(-1, 4, -1)
        torch.testing.assert_close(models[:, :, :15], mean)
        torch.testing.assert_close(models[:, :, 15:], theta[:, :, 15:])


class TestLaws:
    def test_synchronised_nodes_agree_on_what_is_shared(self):
        private = oracle(0.1, interval=3)
        seen = []
        FAMILY.runner(PartPsp(lambda k: STEP, sync_interval=3), RING).run(
            begin(), private, 6, after_round=lambda done, models: seen.append(models)
        )
        spreads = [(m - m[:, :1])[:, :, :15].abs().max().item() for m in seen]
        assert [spread < 1e-12 for spread in spreads] == [False, False, True] * 2
        assert (seen[2][:, 0, 15:] != seen[2][:, 1, 15:]).any()

    def test_equal_seeds_equal_bits_and_resumed_ones_too(self):
        algorithm = PartPsp(lambda k: STEP, sync_interval=4)
        runner = FAMILY.runner(algorithm, RING)
        kept = {}
        private = oracle(0.1, interval=4, sensitivity="certified")

        def keep(done, state):
            kept[done] = checkpoint.pack({"s": state, "d": private.state_dict()})

        whole = runner.run(begin(), private, 9, keep=keep)
        rest = oracle(0.1, interval=4, sensitivity="certified")
        content = checkpoint.unpack(kept[6])
        rest.load_state_dict(content["d"])
        state = checkpoint.like(runner.begin(begin()), content["s"])
        models = runner.run(begin(), rest, 9, resume=(6, state))
        assert torch.equal(models, whole)
        assert rest.ledger == private.ledger

    @pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
    def test_every_batch_is_drawn_anew(self, sampling):
        """What is amplified by sampling must not see one batch in all rounds."""
        private = oracle(runs=40, sampling=sampling)
        batches = [private.batch() for _ in range(3)]
        for one, other in itertools.pairwise(batches):
            assert ((one != other).any(2).sum(0) > 20).all()
        rest = oracle(runs=40, sampling=sampling)
        again = [rest.batch() for _ in range(2)]
        rest.load_state_dict(private.state_dict())
        assert torch.equal(again[1], batches[1])
        assert torch.equal(rest.batch(), private.batch())

    def test_runs_do_not_see_each_other(self):
        quiet = {"multiplier": 0.0, "batch": 6, "sensitivity": "certified"}
        algorithm = PartPsp(lambda k: STEP)
        together = FAMILY.runner(algorithm, RING).run(
            begin(runs=3), oracle(**quiet, runs=3), 4
        )
        alone = FAMILY.runner(algorithm, RING).run(begin(), oracle(**quiet), 4)
        torch.testing.assert_close(together, alone.expand(3, -1, -1))

    @pytest.mark.parametrize("clip_by", ["batch", "sample"])
    def test_what_is_added_is_within_its_bound(self, clip_by):
        huge = [
            Dataset(1000 * share.inputs, share.targets) for share in random_data(SIZES)
        ]
        private = oracle(0.0, clip=0.5, clip_by=clip_by, shares=huge)
        shared = torch.arange(DIMS)
        gradient = private.clipped(3 * begin(), private.batch(), shared)
        norms = gradient.abs().sum(2)
        assert (norms <= 0.5 * (1 + 1e-12)).all()
        if clip_by == "batch":
            torch.testing.assert_close(norms, torch.full_like(norms, 0.5))

    def test_by_sample_each_sample_is_clipped(self):
        private = oracle(0.0, clip=0.3, clip_by="sample", batch=1)
        other = oracle(0.0, clip=0.3, batch=1)
        shared = torch.arange(DIMS)
        one = private.clipped(begin(), private.batch(), shared)
        torch.testing.assert_close(one, other.clipped(begin(), other.batch(), shared))

    def test_several_local_steps_are_bounded_together(self):
        private = oracle(0.0, clip=0.5)
        algorithm = PartPsp(lambda k: STEP, shared="*", local_steps=3)
        FAMILY.runner(algorithm, RING).run(begin(), private, 3)  # the channel checks
        assert algorithm.bound(0, 0.5) == pytest.approx(3 * STEP * 0.5)


class TestLedger:
    def moved(self, **more):
        """How far a canary in a record's place moves node 0's first message."""
        canary = Dataset(
            torch.full((1, 4), 50.0, dtype=torch.float64), torch.tensor([2])
        )

        class Seen:
            def messages(self, k, sent):
                self.sent = sent["s"].clone()

        both = []
        for planted in (True, False):
            private = oracle(
                0.0, canary=canary, planted=torch.tensor([planted]), batch=6, **more
            )
            seen = Seen()
            FAMILY.runner(PartPsp(lambda k: STEP, shared="*"), RING).run(
                begin(), private, 1, observers=[seen]
            )
            both.append(seen.sent)
        return (both[0] - both[1])[0].abs().sum(1)  # (nodes,)

    def test_one_record_moves_a_message_by_at_most_the_sensitivity(self):
        moved = self.moved(clip=0.5)
        assert moved[1:].max() == 0
        release = oracle(clip=0.5).channel.noise.release(STEP * 0.5, 1.0, 6)
        assert 0 < moved[0] <= release.sensitivity.replace_one
        moved = self.moved(clip=0.5, clip_by="sample")
        noise = dataclasses.replace(oracle().channel.noise, samples=6)
        release = noise.release(STEP * 0.5, 1.0, 6)
        assert release.sensitivity.replace_one == pytest.approx(2 * STEP * 0.5 / 6)
        assert 0 < moved[0] <= release.sensitivity.replace_one * (1 + 1e-9)

    def first_messages(self, sign, *, local_steps=1, multiplier=0.1, **more):
        """Of a softmax at 0, where the gradient of a record turns with its input.

        Record 0 of node 0 is ``sign`` along an axis, the others there are 0 and add
        nothing; the clip is so small that several steps see one gradient. Returns the
        messages of all runs, and the oracle.
        """
        shares = random_data(SIZES)
        inputs = torch.zeros_like(shares[0].inputs)
        inputs[0, 0] = sign
        shares[0] = Dataset(inputs, shares[0].targets)
        module = functools.partial(nn.Linear, 4, 3, bias=False, dtype=torch.float64)
        runs = more.get("runs", 1)
        private = oracle(
            multiplier, clip=SMALL, shares=shares, batch=6, module=module, **more
        )
        seen = []

        class Seen:
            def messages(self, k, sent):
                seen.append(sent["s"].clone())

        algorithm = PartPsp(lambda k: STEP, shared="*", local_steps=local_steps)
        zeros = torch.zeros(runs, len(SIZES), 12, dtype=torch.float64)
        FAMILY.runner(algorithm, RING).run(zeros, private, 1, observers=[Seen()])
        return seen[0], private

    @pytest.mark.parametrize("sensitivity", ["data-independent", "perturbation"])
    @pytest.mark.parametrize(
        ("local_steps", "how"),
        [
            (1, {"clip_by": "batch"}),
            (3, {"clip_by": "batch"}),
            (1, {"clip_by": "sample"}),
            (1, {"clip_by": "sample", "samples": 6}),
        ],
    )
    def test_a_crafted_record_moves_a_message_by_its_sensitivity(
        self, sensitivity, local_steps, how
    ):
        """Two neighbouring data sets, through the oracle, with the same noise."""
        more = {"sensitivity": sensitivity, "local_steps": local_steps, **how}
        (one, private), (other, _) = (
            self.first_messages(sign, **more) for sign in (1.0, -1.0)
        )
        moved = (one - other)[0].abs().sum(1)
        assert moved[1:].max() == 0
        (entry,) = private.ledger.nodes[0]
        stated = entry.release.sensitivity.replace_one
        assert moved[0] <= stated * (1 + 1e-9)
        batch = 6 if how["clip_by"] == "sample" else 1
        expected = 2 * local_steps * STEP * SMALL / batch
        assert moved[0] == pytest.approx(expected, rel=1e-4)
        if how != {"clip_by": "sample"}:  # of which the account does not know
            assert moved[0] == pytest.approx(stated, rel=1e-4)

    def test_a_record_more_can_turn_the_gradient_of_a_batch(self):
        """Clipped as a whole, a batch is moved as far by adding as by replacing."""
        shares = random_data(SIZES)
        inputs = torch.zeros_like(shares[0].inputs)
        inputs[:, 0] = torch.tensor([100.0, -1, -1, -1, -1, -1])
        shares[0] = Dataset(inputs, torch.zeros_like(shares[0].targets))
        module = functools.partial(nn.Linear, 4, 3, bias=False, dtype=torch.float64)
        private = oracle(clip=SMALL, shares=shares, batch=6, module=module)
        zeros = torch.zeros(1, len(SIZES), 12, dtype=torch.float64)
        batches = torch.ones(2, 1, len(SIZES), 6, dtype=torch.bool)
        batches[1, 0, 0, 0] = False
        more, less = (
            private.clipped(zeros, batch, torch.arange(12)) for batch in batches
        )
        moved = STEP * (more - less)[0, 0].abs().sum()
        release = private.channel.noise.release(STEP * SMALL, 1.0, 6)
        assert moved == pytest.approx(release.sensitivity.add_or_remove_one, rel=1e-6)

    @pytest.mark.parametrize("sensitivity", ["data-independent", "perturbation"])
    @pytest.mark.parametrize("how", [{}, {"clip_by": "sample", "samples": 6}])
    def test_a_record_is_hidden_by_the_noise_that_is_stated(self, sensitivity, how):
        """Laplace noise has its scale as its mean modulus."""
        more = {"sensitivity": sensitivity, "runs": 300, **how}
        (noisy, private), (quiet, _) = (
            self.first_messages(1.0, multiplier=z, **more) for z in (0.5, 0.0)
        )
        drawn = (noisy - quiet).abs()
        for node, found in enumerate(drawn.mean((0, 2)).tolist()):
            (entry,) = private.ledger.nodes[node]
            sure = 5 / math.sqrt(drawn[:, node].numel())
            assert found == pytest.approx(entry.release.noise, rel=sure)
            # Noise is scaled by no less than what one record can move.
            assert entry.release.noise >= 0.5 * entry.release.sensitivity.replace_one

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("unit", ["record", "node"])
    @pytest.mark.parametrize("name", NAMES)
    def test_what_happened_is_what_was_planned(self, name, unit):
        options = {"unit": unit, "sync_interval": 2, "sensitivity": "data-independent"}
        problem = Problem.of(training(name, rounds=5, options=options))
        _, ledger = problem.train(0.01, Streams(0))
        assert ledger == problem.ledger(0.01)
        assert ledger.unit == unit

    def test_sharing_all_by_sample_is_amplified_and_sharing_a_part_is_not(self):
        bounds = {}
        for name in ("sgpdp", "partpsp"):
            problem = Problem.of(training(name, options={"clip_by": "sample"}))
            bounds[name] = account(problem.ledger(3.0), 1e-4, "replace-one").epsilon
        assert bounds["sgpdp"] < bounds["partpsp"] / 10

    def test_who_only_broadcasts_has_no_guarantee(self):
        problem = Problem.of(training("partpsp", options={"sensitivity": "certified"}))
        with pytest.raises(ValueError, match="no guarantee"):
            problem.ledger(1.0)
        _, ledger = problem.train(0.001, Streams(0))
        assert account(ledger, 1e-4, "replace-one").epsilon == math.inf

    def test_the_paper_s_noise_is_its_theorem_s(self):
        problem = Problem.of(training("partpsp"))
        family = problem.training.family
        assert family.paper_noise(problem.setting, 500.0, 1e-5) == pytest.approx(
            0.01 / 5
        )


def training(name, **more):
    values = {
        "algorithm": name,
        "nodes": 4,
        "train": 200,
        "digits": (0, 1, 2),
        "graph": "d-out:2",
        "model": "tanh-mlp",
        "rounds": 4,
        "batch_size": 10.0,
        "clip_norm": 0.1,
    }
    return Training(**{**values, **more})


class TestSplit:
    PLACES = parameter_places(two_layers())

    @pytest.mark.parametrize(
        ("pattern", "count"),
        [
            ("layers:1", 15),
            ("layers:2", 27),
            ("*", 27),
            ("*.bias", 6),
            ("0.*, 2.bias", 18),
        ],
    )
    def test_patterns(self, pattern, count):
        assert len(shared_places(self.PLACES, pattern)) == count

    @pytest.mark.parametrize("pattern", ["layers:0", "layers:3", "layers:x", "conv*"])
    def test_patterns_that_fit_nothing(self, pattern):
        with pytest.raises(ValueError, match="shared="):
            shared_places(self.PLACES, pattern)

    def test_places_are_those_of_the_vector(self):
        module = two_layers()
        vector = nn.utils.parameters_to_vector(module.parameters())
        bias = vector[list(self.PLACES["2.bias"])]
        assert torch.equal(bias, module[2].bias)


class TestSeam:
    @pytest.mark.parametrize("name", NAMES)
    def test_defaults_are_settings(self, name):
        family = ALGORITHMS[name]
        assert Training(algorithm=name, **family.defaults).family is family
        plain = ALGORITHMS[f"{name}-plain"]
        assert not plain.private

    @pytest.mark.parametrize("name", NAMES)
    def test_weights_must_be_doubly_stochastic_and_connected(self, name):
        for graph, weights in (("star", "column-stochastic"), ("d-out:1", "uniform")):
            with pytest.raises(ValueError, match="not valid on this graph"):
                Problem.of(training(name, graph=graph, weights=weights))

    @pytest.mark.parametrize(
        ("name", "options", "words"),
        [
            ("partpsp", {"sync_interval": -1}, "sync_interval"),
            ("partpsp", {"local_steps": 0}, "local_steps"),
            ("partpsp", {"sensitivity": "guess"}, "guess"),
            ("partpsp", {"clip_by": "sample", "sampling": "poisson"}, "fixed size"),
            ("partpsp", {"decay": 2.0}, "decay"),
            ("sgpdp", {"shared": "layers:1"}, "shared"),
        ],
    )
    def test_options_out_of_range(self, name, options, words):
        with pytest.raises(ValueError, match=words):
            training(name, options=options)

    def test_plain_forms_learn_and_are_not_private(self):
        settings = dict(ALGORITHMS["partpsp"].defaults, rounds=60)
        problem = Problem.of(Training(algorithm="partpsp-plain", **settings))
        models, ledger = problem.train(0.0, Streams(0))
        assert account(ledger, 1e-4, "replace-one").epsilon == math.inf
        from trainers.runs.measures import accuracy

        right = accuracy(problem.gradients(), models, problem.test)
        assert right.mean() > 0.5

    @pytest.mark.parametrize(
        ("name", "options", "words"),
        [
            ("partpsp", {}, ["not publish"]),
            ("sgpdp", {}, []),
            ("sgpdp", {"sensitivity": "paper"}, ["norm of the noise"]),
            ("pedfl", {"unit": "node"}, ["which node was asked"]),
            ("partpsp-plain", {}, []),
        ],
    )
    def test_what_an_account_leaves_out_is_said(self, name, options, words):
        chosen = training(name, options=options)
        said = chosen.family.remarks(chosen.setting())
        assert len(said) == len(words)
        assert all(word in one for word, one in zip(words, said, strict=True))

    def test_no_gradient_is_released(self):
        private = oracle()
        assert gives(private, GivesMessages)
        assert not gives(private, GivesGradients)
        problem = Problem.of(training("partpsp"))
        with pytest.raises(ValueError, match="final-loss"):
            problem.train(0.1, Streams(0), observers=Observers(releases=(object(),)))
