"""The adversary who sees only which node updates the global model, and when."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from privaudit.auditing.attacks.contract import Adversary, Scene, Watcher
from trainers.gradients.differentiator import Differentiator
from trainers.network.engine import Observer
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Observers, Planted

SHADOWS, _BLOCK = 600, 50  # runs that the attacker makes for itself, and at a time
_STUDY = "shadows of the actions"  # a key of their own: no audit has it


class ActionLog:
    """Keeps every node's choices, (runs, turns * nodes * classes)."""

    def __init__(self) -> None:
        self._turns: list[Tensor] = []

    def messages(self, k: int, sent: Mapping[str, Tensor]) -> None:
        """See one turn. Raises ``ValueError`` if nobody says what it chose."""
        if "actions" not in sent:
            raise ValueError(
                "nodes of this algorithm choose nothing that others see; the adversary "
                "actions is for deep-q"
            )
        self._turns.append(sent["actions"].double())

    def features(self) -> Tensor:
        """Each choice, and whether it repeats the turn before, (runs, features)."""
        turns = torch.stack(self._turns, 1)  # (runs, turns, nodes, classes)
        repeats = turns[:, 1:] * turns[:, :-1]
        return torch.cat([turns.flatten(1), repeats.flatten(1)], 1)


class Actions(Adversary):
    """Learns from runs of its own which choices members make, and reads nothing else.

    It fits a logistic regression to the choices in both worlds; the score is its logit.
    """

    name = "actions"
    sees = "which updates were global, and nothing of the models"
    reads_models = False

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        from sklearn.linear_model import LogisticRegression

        seen, worlds = [], []
        for number in range(SHADOWS // _BLOCK):
            streams = Streams(Key.study(_STUDY), number * _BLOCK)
            planted = torch.arange(_BLOCK) % 2 == 0
            log = ActionLog()
            scene.problem.train(
                scene.noise_multiplier,
                streams,
                runs=_BLOCK,
                start=scene.start.repeat(_BLOCK, len(scene.problem.shares), 1),
                planted=Planted(scene.canary.record, planted),
                observers=Observers((log,)),
            )
            seen.append(log.features())
            worlds.append(planted)
        self.centre = torch.cat(seen).mean(0)
        fitted = LogisticRegression(C=0.03, max_iter=1000).fit(
            (torch.cat(seen) - self.centre).numpy(), torch.cat(worlds).numpy()
        )
        self.weights = torch.from_numpy(fitted.coef_[0])

    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        return _Watcher(self)


class _Watcher(ActionLog, Watcher):
    def __init__(self, by: Actions) -> None:
        super().__init__()
        self._by = by

    @property
    def observers(self) -> tuple[Observer, ...]:
        return (self,)

    def score(self, models: Tensor) -> Tensor:
        return (self.features() - self._by.centre) @ self._by.weights
