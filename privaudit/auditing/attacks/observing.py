"""An observer of the network: nodes that collude, a wire, or whoever hears all."""

from __future__ import annotations

from privaudit.accounting.views import ANY_NODE, Observer, observed_by
from privaudit.auditing.attacks.canaries import CANARY_NODE
from privaudit.auditing.attacks.contract import Scene
from privaudit.auditing.attacks.messages import LinearAdversary
from privaudit.results import Relation, seen_by


class Observing(LinearAdversary):
    """All that an observer hears and sends; of ``any-node``, who learns most."""

    name = "observer"
    reads_models = False  # but what of them is sent
    sees = "what is heard and sent by the observer, with all other records known"

    def __init__(self, scene: Scene) -> None:
        named = scene.observer or "everybody"
        self._who = _most_told(scene) if named == ANY_NODE else Observer.parse(named)
        words = seen_by(str(self._who.name)).removeprefix("; seen by ")
        self.sees = f"what is heard and sent by {words}, with all other records known"
        super().__init__(scene)

    def hears(self, scene: Scene) -> list[list[int]]:
        """Whose messages it has, round by round: its own among them."""
        mixing, who = scene.problem.training.mixing(), self._who
        graphs = [mixing.at(k) > 0 for k in range(mixing.period)]
        nodes = range(mixing.nodes)
        if who.everybody:
            return [list(nodes) for _ in graphs]
        if who.wire is not None:
            ways = (who.wire, who.wire[::-1])
            heard = [[one for one, by in ways if graph[by, one]] for graph in graphs]
            if not any(heard):
                raise ValueError(
                    f"observer {who.name}: nothing is ever sent between these two "
                    "nodes; choose two that are neighbours"
                )
            return heard
        own = list(who.nodes)
        return [
            [node for node in nodes if node in own or graph[own, node].any()]
            for graph in graphs
        ]


def _most_told(scene: Scene) -> Observer:
    """The node against whose view the canary's releases have the least noise."""
    training = scene.problem.training
    ledger = scene.problem.ledger(scene.noise_multiplier)
    relation: Relation = "replace-one" if scene.replaces else "add-or-remove-one"

    def told(node: int) -> float:
        seen = observed_by(training.algorithm, ledger, str(node), relation)
        entries = seen.nodes[CANARY_NODE]
        return sum(entry.count / entry.release.noise**2 for entry in entries)

    return Observer.of(max(set(range(training.nodes)) - {CANARY_NODE}, key=told))
