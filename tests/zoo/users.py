"""Bugs in the oracle of users' updates; the ledger is what the right one writes."""

import torch

from tests.zoo.attacks import Attack
from tests.zoo.frame import Bug
from trainers.gradients.per_sample import parameter_places
from trainers.numerics.randomness import grid_step
from trainers.oracles.updates import UpdateOracle


class ClipsAfterNoise(UpdateOracle):
    """Noise goes onto the sum of whole updates, and that is scaled to the clip norm."""

    def _clipped(self, update, clip, step):
        self._clip = clip
        return update.nan_to_num(0.0, 0.0, 0.0)

    def _noisy(self, total, nodes, deviation, step):
        total = super()._noisy(total, nodes, deviation, grid_step(deviation, 1e6))
        norms = torch.linalg.vector_norm(total, dim=2, keepdim=True)
        return total * (self._clip / norms.clamp_min(self._clip))


class ClipsALayer(UpdateOracle):
    """Of an update, the last parameter is clipped, and no other."""

    def _clipped(self, update, clip, step):
        last = [*parameter_places(self._module).values()][-1].start
        part = super()._clipped(update[last:], clip, step)
        return torch.cat([update[:last], part])


class ClipsLayerByLayer(UpdateOracle):
    """Each parameter's part is clipped to the whole norm."""

    def _clipped(self, update, clip, step):
        places = parameter_places(self._module).values()
        return torch.cat(
            [
                super(ClipsLayerByLayer, self)._clipped(
                    update[at.start : at.stop], clip, step
                )
                for at in places
            ]
        )


class ClipsSteps(UpdateOracle):
    """Each local step is clipped, and not what they make together."""

    def _clipped(self, update, clip, step):
        return super()._clipped(update, clip * self._local.local_steps, step)


class DividesByUsersDrawn(UpdateOracle):
    """The sum is divided by how many users came, not by how many were expected."""

    def _divisor(self, nodes, total):
        drawn = self._drawn.sum(2, keepdim=True).clamp_min(1)
        return drawn.to(total)

    def _batches(self, nodes):
        self._drawn = super()._batches(nodes)
        return self._drawn


class HalfTheNoise(UpdateOracle):
    """The deviation is halved on its way."""

    def _noisy(self, total, nodes, deviation, step):
        return super()._noisy(total, nodes, deviation / 2, step)


_SMALL = {"local_steps": 2, "user_rate": 1.0}
_LOUD = ("step_size=10", "local_steps=2")

BUGS: dict[str, Bug] = {
    "clipped after the noise": Bug(
        ClipsAfterNoise,
        "noise",
        "was measured",
        runs=30,
        algorithm="dp-fedavg",
        settings=_LOUD,
        attack=Attack(200, canary="loud", settings={**_SMALL, "step_size": 10.0}),
    ),
    "one layer clipped": Bug(
        ClipsALayer,
        "sensitivity",
        "one record moved the sum",
        runs=30,
        algorithm="dp-fedavg",
        settings=_LOUD,
        attack=Attack(
            200, noise=8.0, canary="contrary", settings={**_SMALL, "step_size": 1.0}
        ),
    ),
    "each layer clipped": Bug(
        ClipsLayerByLayer,
        "sensitivity",
        "one record moved the sum",
        runs=30,
        algorithm="dp-fedavg",
        settings=_LOUD,
        unseen="a sum that moves 1.4 times as far takes more runs than a test has",
    ),
    "each step clipped": Bug(
        ClipsSteps,
        "sensitivity",
        "one record moved the sum",
        runs=30,
        algorithm="dp-fedavg",
        settings=_LOUD,
        unseen="twice the sum takes more runs than a test has",
    ),
    "divided by the users that came": Bug(
        DividesByUsersDrawn,
        "noise",
        "was measured",
        runs=30,
        algorithm="dp-fedavg",
        settings=("user_rate=0.5",),
        unseen="no audit here reads the length of a user's release",
    ),
    "half the noise": Bug(
        HalfTheNoise,
        "noise",
        "was measured",
        runs=30,
        algorithm="dp-fedavg",
        settings=_LOUD,
        attack=Attack(100, settings=_SMALL),
    ),
}
