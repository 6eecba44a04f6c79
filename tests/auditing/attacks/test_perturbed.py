"""Contract of privaudit.auditing.attacks.perturbed: messages that carry noise."""

import numpy as np
import pytest
import torch

from privaudit.auditing.attacks import ADVERSARIES
from privaudit.auditing.attacks.perturbed import PerturbedWatcher
from tests.auditing.attacks.scenes import problem, right, scene, scores
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Observers

# All of a node's records in every batch.
ALL = {"batch_size": 20.0, "partition": "even"}


def perturbed(algorithm="sgpdp", canary="clipbkd", noise=1.0, **settings):
    return scene(problem(algorithm, **{"clip_norm": 0.1, **settings}), canary, noise)


class Increments(PerturbedWatcher):
    """Keeps what node 0 added, and what the attacker expected of each world."""

    seen = ()

    def messages(self, k, sent):
        before = (
            self._scene.start[self._shared].double() if k == 0 else self._held.clone()
        )
        expect = self._expected

        def kept(theta, held, k):
            points, theta = expect(theta, held, k)
            self.seen = (*self.seen, (sent["s"][:, 0] - before, points))
            return points, theta

        self._expected = kept
        super().messages(k, sent)
        del self._expected


def watched(of, runs=6):
    planted = torch.arange(runs) % 2 == 0
    watcher = Increments(of, of.problem.gradients())
    of.problem.train(
        of.noise_multiplier,
        Streams(0, 0),
        runs=runs,
        start=of.start.repeat(runs, len(of.problem.shares), 1),
        planted=of.canary.planted(planted),
        observers=Observers(watcher.observers),
    )
    return planted, watcher


class TestExact:
    @pytest.mark.parametrize("clip_by", ["batch", "sample"])
    def test_without_noise_it_knows_each_worlds_message(self, clip_by):
        of = perturbed(noise=0.0, options={"clip_by": clip_by}, **ALL)
        planted, watcher = watched(of)
        for added, points in watcher.seen:
            expected = torch.where(planted[:, None], points[1], points[2])
            torch.testing.assert_close(added, expected, rtol=1e-5, atol=1e-7)
        assert len(watcher.seen) == 4

    def test_several_local_steps_are_near(self):
        # Later steps are asked where worlds stand apart; the attacker takes one point.
        options = {"sync_interval": 1, "local_steps": 3}
        of = perturbed("pedfl", noise=0.0, options=options, **ALL)
        planted, watcher = watched(of)
        for added, points in watcher.seen:
            right, wrong = (
                torch.where(world[:, None], points[1], points[2])
                for world in (planted, ~planted)
            )
            near = (added - right).abs().sum(1)
            assert (near < 0.2 * (added - wrong).abs().sum(1)).all()

    def test_noise_is_as_wide_as_the_channel_makes_it(self):
        of = perturbed(noise=3.0, rounds=40, step_size=0.01, **ALL)
        planted, watcher = watched(of, runs=40)
        for (added, points), scale in zip(watcher.seen, watcher._scales, strict=True):
            expected = torch.where(planted[:, None], points[1], points[2])
            # The mean of |Laplace(b)| is b, with standard deviation b.
            width = float((added - expected).abs().mean())
            assert width == pytest.approx(3.0 * scale, rel=5 / np.sqrt(added.numel()))


class TestSound:
    @pytest.mark.parametrize("algorithm", ["partpsp", "sgpdp"])
    def test_scores_know_nothing_of_worlds_that_are_alike(self, algorithm):
        runs = 200
        more = {"model": "tanh-mlp:hidden=4"}
        of = perturbed(algorithm, **more)
        _, found = scores("neighbour", of, runs, planted=torch.zeros(runs) > 0)
        member = np.arange(runs) % 2 > 0  # coins that decided nothing
        assert abs(right(member, found) - 0.5) < 4 * 0.5 / np.sqrt(runs / 3)

    def test_who_does_not_hear_all_is_refused(self):
        options = {"sync_interval": 0}
        of = perturbed(nodes=5, train=100, graph="ring", options=options)
        with pytest.raises(ValueError, match="set graph=complete or sync_interval=1"):
            ADVERSARIES["neighbour"](of).watch(2, of.problem.gradients())

    def test_crafted_gradients_are_refused(self):
        of = perturbed(canary="gradient")
        with pytest.raises(ValueError, match="plant a record, such as clipbkd"):
            ADVERSARIES["neighbour"](of).watch(2, of.problem.gradients())


class TestTight:
    def test_no_noise_is_caught(self):
        member, found = scores("neighbour", perturbed(noise=0.0, **ALL), 30)
        assert right(member, found) == 1

    def test_more_noise_shows_less(self):
        shown = []
        for noise in (0.003, 0.03, 10.0):
            member, found = scores("neighbour", perturbed(noise=noise, **ALL), 400)
            shown.append(right(member, found))
        assert shown[0] > 0.9
        assert shown[0] > shown[1] > shown[2]
