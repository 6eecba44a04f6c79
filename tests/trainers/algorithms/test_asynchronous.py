"""Contract of A(DP)2SGD, AD-PSGD and SYNC: right without staleness, counted with it."""

import dataclasses
import math

import msgspec
import pytest
import torch

from privaudit.accounting import Certificate, account, account_nodes
from privaudit.ledger import Ledger
from privaudit.release import SamplingWithoutReplacement
from tests.trainers import checks
from tests.trainers.checks import DIMS, Recording
from tests.trainers.contract import Flat, Quadratic
from tests.trainers.planted import FloatNoise
from tests.trainers.problems import oracle, start
from trainers.algorithms import ALGORITHMS
from trainers.algorithms.asynchronous.clock import Clock, Speed, bipartite_ring
from trainers.algorithms.asynchronous.family import (
    Untimed,
    staleness,
)
from trainers.algorithms.asynchronous.virtual_time import Adp2sgd, Asynchronous
from trainers.network.named_graphs import mixing
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism
from trainers.runs import checkpoint
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

MECHANISM = Mechanism(3.0, 0.5, 2.0, sampling="without-replacement")
STEP = 0.1


class Served:
    """What `Asynchronous` asks of an oracle, of functions without data."""

    def __init__(self, inner):
        self.nodes = inner.nodes
        self._inner = inner
        self._asked = [0] * inner.nodes

    def releases_of(self, node):
        return self._asked[node]

    def gradient(self, at, nodes):
        whole = at.new_zeros(at.shape[0], self.nodes, at.shape[2])
        whole[:, nodes] = at
        for node in nodes:
            self._asked[node] += 1
        return self._inner.gradient(whole)[:, nodes]


def runner(nodes=3, speed="constant", step=lambda k: STEP, seed=0):
    clock = Clock(bipartite_ring(nodes), Speed(speed, nodes), seed=seed)
    on = mixing("complete", "uniform", nodes)
    return Asynchronous(Adp2sgd(step, clock), on)


class TestReductions:
    def test_equal_speeds_are_synchronous_pairing(self):
        """Rounds of: all gradients where all stand, pairs average, all step."""
        nodes, rounds = 6, 12
        here = runner(nodes, seed=3)
        quadratic = Quadratic(nodes)
        begin = start(4, nodes=nodes)
        models = here.run(begin, Served(quadratic), nodes * rounds)
        steps = here.algorithm.clock.steps(nodes * rounds)
        w = begin.clone()
        for k in range(rounds):
            gradient = quadratic.gradient(w)
            for step in steps[k * nodes : (k + 1) * nodes]:
                if step.partner is not None:
                    pairing = torch.eye(nodes, dtype=w.dtype)
                    for i in (step.worker, step.partner):
                        for j in (step.worker, step.partner):
                            pairing[i, j] = 0.5
                    w = torch.einsum("ij,rjd->rid", pairing, w)
            w = w - STEP * gradient
        torch.testing.assert_close(models, w, rtol=1e-12, atol=1e-12)

    def test_one_worker_is_gradient_descent(self):
        clock = Clock(((),), Speed("exponential:1", 1))
        alone = Asynchronous(
            Adp2sgd(lambda k: STEP, clock), mixing("complete", "uniform", 1)
        )
        quadratic, w = Quadratic(1), start(4, nodes=1)
        models = alone.run(w, Served(quadratic), 20)
        for _ in range(20):
            w = w - STEP * quadratic.gradient(w)
        torch.testing.assert_close(models, w)

    @pytest.mark.parametrize("speed", ["constant", "one-slow:10", "exponential:1"])
    def test_averaging_keeps_the_mean(self, speed):
        begin = start(4, nodes=5)
        models = runner(5, speed).run(begin, Served(Flat(5)), 300)
        torch.testing.assert_close(models.mean(1), begin.mean(1))
        apart = (models - models.mean(1, keepdim=True)).norm()
        assert apart < 0.2 * (begin - begin.mean(1, keepdim=True)).norm()

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "speed", ["constant", "random-slowdown:2", "lognormal:0.5"]
    )
    def test_the_optimum_is_found_in_spite_of_staleness(self, speed):
        nodes = 4
        quadratic = Quadratic(nodes)
        here = runner(nodes, speed, step=lambda k: 2 / (k / nodes + 10))
        models = here.run(start(4, nodes=nodes), Served(quadratic), 12_000)
        assert (models - quadratic.optimum).abs().max() < 0.05

    def test_a_gradient_is_of_the_copy_that_was_made(self):
        """A slow worker's gradient is of where it stood, not of where it stands."""
        recording = Recording()
        private = oracle(MECHANISM, observers=[recording])
        here = runner(3, "one-slow:3")
        begin = start(DIMS)
        here.run(begin, private, 7)
        asked = zip(recording.releases, recording.nodes, strict=True)
        first = next(at for (at, _), nodes in asked if nodes == (0,))
        assert torch.equal(first[:, 0], begin[:, 0])

    def test_sync_keeps_one_model(self):
        family = ALGORITHMS["sync"]
        network = family.runner(
            family.make(lambda k: STEP), mixing("ring", "uniform", 5)
        )
        quadratic, w = Quadratic(5), start(4, nodes=5).mean(1, keepdim=True)
        models = network.run(w.expand(1, 5, 4).contiguous(), quadratic, 30)
        for _ in range(30):
            w = w - STEP * quadratic.gradient(w).mean(1, keepdim=True)
        torch.testing.assert_close(models, w.expand(1, 5, 4))


class TestLedgers:
    @pytest.mark.parametrize("speed", ["constant", "one-slow:10", "lognormal:1"])
    def test_each_worker_pays_for_its_own_steps(self, speed):
        recording = Recording()
        private = oracle(MECHANISM, runs=60, observers=[recording])
        here = runner(3, speed)
        here.run(start(DIMS).repeat(60, 1, 1), private, 45)
        counts = here.algorithm.clock.counts(45)
        written = [sum(e.count for e in entries) for entries in private.ledger.nodes]
        assert written == counts
        release = private.ledger.nodes[0][0].release
        assert release.sampling == SamplingWithoutReplacement(3, 7)
        # The noise that was added, against what is written.
        quiet = oracle(dataclasses.replace(MECHANISM, noise_multiplier=0.0), runs=60)
        for (at, gradient), nodes in zip(
            recording.releases, recording.nodes, strict=True
        ):
            noise = (gradient - quiet.gradient(at, nodes)) * 3.0
            assert noise.std().item() == pytest.approx(release.noise, rel=0.15)

    def test_what_happens_is_what_was_planned(self):
        training = training_from(
            {
                "algorithm": "adp2sgd",
                "nodes": 3,
                "train": 90,
                "rounds": 40,
                "batch_size": 5,
                "hidden": 4,
                "speed": "one-slow:4",
            },
            where="a test",
        )
        problem = Problem.of(training)
        _, ledger = problem.train(2.0, Streams(0))
        assert ledger == problem.ledger(2.0)
        slow, fast = (sum(e.count for e in entries) for entries in ledger.nodes[:2])
        assert fast > 3 * slow
        nodes = account_nodes(ledger, 1e-3, "replace-one")
        assert nodes[0].epsilon < nodes[1].epsilon

    def test_it_goes_on_with_equal_bits(self):
        here, begin = runner(3, "lognormal:1"), start(DIMS, runs=2)
        kept = {}
        private = oracle(MECHANISM, runs=2)

        def keep(done, state):
            kept[done] = checkpoint.pack({"s": state, "oracle": private.state_dict()})

        models = here.run(begin, private, 30, keep=keep)
        again = oracle(MECHANISM, runs=2)
        middle = checkpoint.unpack(kept[17])
        again.load_state_dict(middle["oracle"])
        state = checkpoint.like(here.begin(begin), middle["s"])
        assert torch.equal(here.run(begin, again, 30, resume=(17, state)), models)
        assert again.ledger == private.ledger


def problem_at(**values):
    settings = {
        "algorithm": "adp2sgd",
        "nodes": 4,
        "train": 400,
        "rounds": 200,
        "batch_size": 10,
        "hidden": 4,
        **values,
    }
    return Problem.of(training_from(settings, where="a test"))


class TestPlantedBugs:
    def test_noise_for_the_mean_added_to_the_sum(self):
        """A batch too little: the measured noise is not what is written."""

        class OnTheSum(FloatNoise):
            def _draw_noise(self, like, nodes):
                return super()._draw_noise(like, nodes) / self.mechanism.batch_size

        for kind, clean in ((checks.Oracle, True), (OnTheSum, False)):
            private, recording = checks.asked(kind, MECHANISM, runs=100, releases=2)
            noise = checks.noise_of(recording, MECHANISM, runs=100, kind=checks.Oracle)
            assert (checks.noise_is_as_written(noise, private.ledger) == []) == clean

    def test_amplification_by_the_choice_of_the_worker(self):
        """Claimed as B/(K n) over all T steps: below what a worker really spends."""
        problem = problem_at()
        ledger = problem.ledger(3.0)
        (entry,) = ledger.nodes[0]
        true = account(Ledger.of(entry.release, entry.count), 1e-4, "replace-one")
        claimed_release = msgspec.structs.replace(
            entry.release, sampling=SamplingWithoutReplacement(10, 400)
        )
        claimed = account(Ledger.of(claimed_release, 200), 1e-4, "replace-one")
        spent = Certificate.of(Ledger.of(entry.release, entry.count), "replace-one")
        lower = spent.epsilon(1e-4).lower
        assert claimed.epsilon < lower <= true.epsilon

    def test_a_batch_visited_twice(self):
        """Steps that the ledger does not have are seen by counting releases."""

        class Twice(Asynchronous):
            def instant(self, state, steps, private, done, observers=()):
                for step in steps:
                    private.gradient(state.copy[:, [step.worker]], [step.worker])
                return super().instant(state, steps, private, done, observers)

        for kind, clean in ((Asynchronous, True), (Twice, False)):
            base = runner(3)
            private = oracle(MECHANISM)
            kind(base.algorithm, base.mixing).run(start(DIMS), private, 12)
            planned = base.algorithm.clock.counts(12)
            written = [sum(e.count for e in n) for n in private.ledger.nodes]
            assert (written == planned) == clean


class TestTheorems:
    def test_theorem_two_is_refused_where_it_says_nothing(self):
        problem = problem_at()
        noise = ALGORITHMS["adp2sgd"].paper_noise
        with pytest.raises(ValueError, match="mu"):
            noise(problem.setting, 0.5, 1e-5)

    def test_the_sum_gets_a_batch_less_noise_than_the_mean(self):
        # The setting of ten thousand steps at which the theorem has a mu, epsilon 4.
        def noise(noise_on):
            values = {
                "algorithm": "adp2sgd",
                "nodes": 16,
                "rounds": 10_000,
                "batch_size": 64,
                "clip_norm": 1.0,
                "noise_on": noise_on,
            }
            setting = training_from(values, where="a test").setting((3125,) * 16)
            return ALGORITHMS["adp2sgd"].paper_noise(setting, 4.0, 1e-5)

        on_sum, on_mean = noise("sum"), noise("mean")
        assert on_sum == pytest.approx(0.03827, rel=1e-3)
        assert on_mean == pytest.approx(64 * on_sum)

    def test_remark_one_against_the_certified_account(self):
        """sqrt(t/T) eps is claimed of the first t steps; here the account is above."""
        problem = problem_at(rounds=400)
        ledger = problem.ledger(4.0)
        (entry,) = ledger.nodes[0]
        whole = account(Ledger.of(entry.release, entry.count), 1e-4, "replace-one")
        quarter = account(
            Ledger.of(entry.release, entry.count // 4), 1e-4, "replace-one"
        )
        claimed = whole.epsilon / 2
        assert quarter.epsilon > 0.9 * claimed  # near it, and not always below

    def test_staleness_is_bounded_where_speeds_are(self):
        clock = Clock(bipartite_ring(8), Speed("uniform:0.9,1.1", 8))
        mean, most = staleness(clock, 4000)
        assert 6 < mean < 8
        assert most <= 7 * math.ceil(1.1 / 0.9)


def test_partners_by_the_graph():
    options = ALGORITHMS["adp2sgd"].options(pairing="graph")
    algorithm = Untimed(lambda k: STEP, options)
    family = dataclasses.replace(ALGORITHMS["adp2sgd"], needs=())
    here = family.runner(algorithm, mixing("ring", "uniform", 5))
    assert {step.partner for step in here.algorithm.clock.steps(300)} == set(range(5))
    with pytest.raises(ValueError, match="undirected"):
        family.runner(algorithm, mixing("directed-ring", "uniform", 5))


def test_a_run_says_how_stale_its_steps_are():
    training = problem_at(speed="one-slow:5").training
    (said,) = training.family.remarks(training.setting())
    clock = Clock(bipartite_ring(4), Speed("one-slow:5", 4))
    late = [step.staleness for step in clock.steps(200)]
    assert f"200 steps, staleness {sum(late) / 200:.2f} on average" in said
    assert f"and {max(late)} at most" in said
    assert max(late) >= 15  # while it took one, the three others took five each
