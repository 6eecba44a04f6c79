"""The honest-but-curious neighbour, who sees the messages sent to one node."""

from __future__ import annotations

from collections.abc import Callable

from privaudit.auditing.attacks.adam import AdamWatcher, adam_of
from privaudit.auditing.attacks.canaries import CANARY_NODE
from privaudit.auditing.attacks.contract import (
    Adversary,
    Differentiator,
    Scene,
    Watcher,
)
from privaudit.auditing.attacks.messages import LinearAdversary
from privaudit.auditing.attacks.perturbed import PerturbedWatcher, perturbs
from trainers.algorithms.asynchronous.virtual_time import Asynchronous


class Neighbour(LinearAdversary):
    """The messages that one neighbour of the canary's node hears, and its own.

    The neighbour that hears most of what the node does; it knows what is public, and
    all records but the canary. What it does not hear is noise. DiNNO's Adam is read by
    `adam`, for crafted gradients where it hears all; PartPSP and its kin by
    `perturbed`.
    """

    name = "neighbour"
    reads_models = False  # but what of them is sent
    sees = (
        "all that one neighbour of its node receives and sends, with all other records "
        "known"
    )

    def __init__(self, scene: Scene) -> None:
        self._by: Callable[[Scene, Differentiator], Watcher] | None = None
        if perturbs(scene):
            self._by = PerturbedWatcher
        elif adam_of(scene) is not None and self._hears_all(scene):
            self._by = AdamWatcher
        if self._by is None:
            super().__init__(scene)
        else:
            Adversary.__init__(self, scene)

    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        if self._by is not None:
            return self._by(self.scene, gradients)
        return super().watch(runs, gradients)

    def _hears_all(self, scene: Scene) -> bool:
        """Return whether it hears all that the canary's node hears, in every round."""
        mixing = scene.problem.training.mixing()
        return all(
            mixing.at(k)[CANARY_NODE, node] == 0 or node in heard
            for k, heard in enumerate(self.hears(scene))
            for node in range(mixing.nodes)
        )

    def hears(self, scene: Scene) -> list[list[int]]:
        """Whom it hears, itself too, by round or exchange of the matrices' cycle."""
        network = scene.problem.network
        if isinstance(network, Asynchronous):
            return _exchanges(network, scene.problem.training.rounds)
        mixing = scene.problem.training.mixing()
        graphs = [mixing.at(k) > 0 for k in range(mixing.period)]
        nodes = range(mixing.nodes)

        def worth(node: int) -> int:
            own = sum(int(graph[node, CANARY_NODE]) for graph in graphs)
            both = sum(int((g[node] & g[CANARY_NODE]).sum()) for g in graphs)
            return both if own else -1

        others = [node for node in nodes if node != CANARY_NODE and worth(node) > 0]
        if not others:
            raise ValueError(
                f"nobody hears the canary's node with {scene.problem.training.nodes} "
                f"nodes of {scene.problem.training.algorithm}; choose another adversary"
            )
        listener = max(others, key=worth)
        return [
            [node for node in nodes if node == listener or graph[listener, node]]
            for graph in graphs
        ]


def _exchanges(network: Asynchronous, steps: int) -> list[list[int]]:
    """By global step: the pair that exchanges, if the busiest neighbour is of it."""
    pairs: list[list[int]] = [
        [] if step.partner is None else [step.worker, step.partner]
        for instant in network.algorithm.clock.instants(steps)
        for step in instant
    ]
    partners = [node for pair in pairs if CANARY_NODE in pair for node in pair]
    others = [node for node in partners if node != CANARY_NODE]
    if not others:
        raise ValueError(
            f"nobody exchanges models with the canary's node in {steps} steps; "
            "use more rounds, which are global steps here"
        )
    listener = max(sorted(set(others)), key=others.count)
    return [pair if listener in pair else [] for pair in pairs]
