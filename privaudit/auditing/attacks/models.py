"""Adversaries who see the models of all nodes: after every round, or the final ones."""

from __future__ import annotations

from collections.abc import Sequence

from privaudit.auditing.attacks.contract import Scene
from privaudit.auditing.attacks.linear import LinearMap
from privaudit.auditing.attacks.messages import LinearAdversary
from trainers.runs.problem import Problem

_MOST_GRADIENTS = 5_000  # whose map is square: 200 MB


class AllModels(LinearAdversary):
    """Reads off the models what gradients were added to them."""

    name = "all-models"
    sees = "the models of all nodes after every round, with all other records known"
    models = True


class FinalModels(LinearAdversary):
    """Weighs the final weights of all nodes along the canary's crafted gradient.

    The hidden state against a gradient chosen beforehand (Cebere, Bellet and Papernot
    2025, arXiv:2405.14457): weights are its sum and noise's; what others add is noise.
    """

    name = "final-models"
    sees = (
        "the final models of all nodes (hidden state), with a canary whose gradient "
        "was crafted beforehand"
    )
    models = True
    only_final = True

    def __init__(self, scene: Scene) -> None:
        if scene.canary.direction is None:
            raise ValueError(
                "final-models weighs final weights along a crafted gradient: choose "
                "the canary gradient, or final-loss, to which it may be a record"
            )
        super().__init__(scene)

    @classmethod
    def map_of(
        cls, problem: Problem, heard: Sequence[Sequence[int]] | None = None
    ) -> LinearMap:
        """As there. Raises ``ValueError`` as well if there are too many rounds."""
        if len(problem.shares) * problem.training.rounds > _MOST_GRADIENTS:
            raise ValueError(
                f"final-models solves for the gradients of all rounds, and there are "
                f"more than {_MOST_GRADIENTS:,}: choose final-loss"
            )
        return super().map_of(problem, heard)


class FinalModelsOfColluders(FinalModels):
    """As `FinalModels`, by all other nodes together, who know what they added."""

    name = "final-models-colluding"
    sees = (
        "the final models of all nodes (hidden state) and what every other node added "
        "itself, with a canary whose gradient was crafted beforehand"
    )
    colluding = True
