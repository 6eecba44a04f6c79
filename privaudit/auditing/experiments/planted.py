"""Privacy bugs to plant in an audited training, so that audits can be tested.

No ledger knows of its bug, and neither does the attacker.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from privaudit.ledger import Ledger
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Problem


class HalfNoise(Problem):
    """Trains with half the noise that its ledger states."""

    def train(
        self, noise_multiplier: float, streams: Streams, **more: Any
    ) -> tuple[Tensor, Ledger]:
        """See `trainers.runs.problem.Problem.train`."""
        models, _ = super().train(noise_multiplier / 2, streams, **more)
        return models, self.ledger(noise_multiplier)


PLANTED: dict[str, type[Problem]] = {"half-noise": HalfNoise}
