"""Privacy bugs to plant in an audited training, of which no ledger knows."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from privaudit.ledger import Ledger
from trainers.algorithms.family import Noise
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Problem


class HalfNoise(Problem):
    """Trains with half the noise that its ledger states."""

    def train(
        self, noise_multiplier: Noise, streams: Streams, **more: Any
    ) -> tuple[Tensor, Ledger]:
        if isinstance(noise_multiplier, tuple):
            half: Noise = tuple(each / 2 for each in noise_multiplier)
        else:
            half = noise_multiplier / 2
        models, _ = super().train(half, streams, **more)
        return models, self.ledger(noise_multiplier)


PLANTED: dict[str, type[Problem]] = {"half-noise": HalfNoise}
