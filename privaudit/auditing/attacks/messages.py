"""Adversaries who infer noisy gradients from messages, or from models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privaudit.accounting.views import ANY_NODE, observed_by
from privaudit.accounting.views import Observer as Who
from privaudit.auditing.attacks.canaries import CANARY_NODE
from privaudit.auditing.attacks.contract import Adversary, Scene, Watcher
from privaudit.auditing.attacks.likelihood import (
    MatchedFilter,
    expected_projection,
    log_ratio,
    mixed_ratio,
)
from privaudit.auditing.attacks.linear import LinearMap, Reader, Record
from privaudit.results import Relation, seen_by
from trainers.gradients.differentiator import Differentiator
from trainers.network.engine import Observer
from trainers.oracles.oracle import ReleaseObserver
from trainers.runs.problem import Problem

_EXACT = 1e-6  # a gradient of which less than this share is hidden was read off
_MOST_COINS = 8  # of one record, over all of which a likelihood is summed
_FAINT = 1e-3  # less than this share of it tells nothing
_MOST_GRADIENTS = 5_000  # whose map is square: 200 MB


class LinearAdversary(Adversary):
    """Turns what it sees, by `Record`, into noisy gradients, and weighs these."""

    models = False
    colluding = False  # all other nodes tell their own noisy gradients
    only_final = False  # of models; then too little shows to know where gradients were

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.heard = self.hears(scene)
        self.map = self.map_of(scene.problem, self.heard)
        over = scene.divisors
        scale = [scene.scales(k, node)[1] / over[node] for node, k in self.map.inputs]
        self.reader = Reader.of(self.map, np.array(scale))

    @classmethod
    def map_of(
        cls, problem: Problem, heard: Sequence[Sequence[int]] | None = None
    ) -> LinearMap:
        """Map from gradients to what is seen; see `LinearMap.of`."""
        final = problem.training.rounds if cls.only_final else None
        return LinearMap.of(
            problem, heard, models=cls.models, final=final, colluding=cls.colluding
        )

    def hears(self, scene: Scene) -> list[list[int]] | None:
        """Whose messages are seen, round by round."""
        return None

    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        # Other coordinates are needed only for what other records do in this one.
        canary = self.scene.canary
        crafted = canary.direction is not None
        projects = crafted and (self.only_final or self.scene.silent)
        final = self.scene.problem.training.rounds if self.only_final else None
        record = Record(
            self.heard,
            dims=len(self.scene.start),
            models=self.models,
            final=final,
            along=canary.along if projects else None,
            colluding=self.colluding,
        )
        return _Watcher(self, record, gradients)


class _Watcher(Watcher):
    def __init__(
        self, adversary: LinearAdversary, record: Record, gradients: Differentiator
    ) -> None:
        self._adversary = adversary
        self._scene = adversary.scene
        self._record = record
        self._gradients = gradients

    @property
    def observers(self) -> tuple[Observer, ...]:
        return (self._record,)

    @property
    def release_observers(self) -> tuple[ReleaseObserver, ...]:
        return (self._record,) if self._record.colluding else ()

    def after_round(self, done: int, models: Tensor) -> None:
        self._record.after_round(done, models)

    def score(self, models: Tensor) -> Tensor:
        seen, start = self._record.stacked(), self._scene.start.double()
        if self._scene.canary.direction is None:
            return self._ordinary(seen.numpy(), start.numpy(), models.dtype)
        return self._crafted(seen, start, models)

    def _ordinary(
        self, seen: np.ndarray, start: np.ndarray, dtype: torch.dtype
    ) -> Tensor:
        """A matched filter on each gradient of the canary's node that shows."""
        reader = self._adversary.reader
        gradients = reader.gradients(seen, start)
        points = reader.points(gradients, start)
        matched = MatchedFilter(self._scene)
        total = torch.zeros(len(seen), dtype=torch.float64)
        for index, place in enumerate(reader.map.own):
            share = reader.known[place, place]
            if share > _FAINT:
                at = torch.from_numpy(points[:, place]).to(dtype)
                found = torch.from_numpy(gradients[:, place] / share)
                total += matched(index, at, found)
        return total

    def _crafted(self, seen: Tensor, start: Tensor, models: Tensor) -> Tensor:
        """The likelihood ratio along each canary's; linear where noises are mixed."""
        reader, scene = self._adversary.reader, self._scene
        along, mean = scene.canary.along, None
        if self._record.along is None:
            mean = self._expected(seen.numpy(), start.numpy(), models.dtype)
            seen = along(seen)
        less = seen.numpy()  # (runs, outputs, canaries)
        if mean is not None:
            less = less - reader.map.seen[:, 1:] @ mean
        x = reader.standardised(less, along(start).numpy())
        x = torch.from_numpy(x[:, reader.map.own])  # (runs, releases, canaries)
        known = reader.known[np.ix_(reader.map.own, reader.map.own)]
        scales = [scene.scales(index) for index in range(len(known))]
        shift = np.array([clip / noise for clip, noise in scales])
        if abs(known - np.diag(known.diagonal())).max() < _EXACT:
            # x_t / sqrt(known_t) has unit variance: each release by itself.
            total = torch.zeros(len(x), len(scene.canary), dtype=torch.float64)
            for t, share in enumerate(known.diagonal()):
                if share > _FAINT:
                    size = share**0.5
                    total += log_ratio(
                        x[:, t] / size,
                        shift[t] * size,
                        scene.rate,
                        replaces=scene.replaces,
                    )
            return total
        if len(known) <= _MOST_COINS:
            return mixed_ratio(
                x,
                torch.from_numpy(known),
                torch.from_numpy(shift),
                scene.rate,
                replaces=scene.replaces,
            )
        # Noises are mixed. Least squares: the canary's coins blur its own signal.
        q = scene.rate
        blur = (1.0 if scene.replaces else 0.5) * q * (1 - q) * np.diag(shift**2)
        weights = np.linalg.solve(np.eye(len(known)) + blur @ known, q * shift)
        return torch.einsum("rtc,t->rc", x, torch.from_numpy(weights))

    def _expected(
        self, seen: np.ndarray, start: np.ndarray, dtype: torch.dtype
    ) -> np.ndarray:
        """(runs, inputs, canaries): what others add to each gradient on average.

        Zero where the guess at the canary's node's gradients does not depend on it.
        """
        reader, scene = self._adversary.reader, self._scene
        points = reader.points(reader.gradients(seen, start), start)
        mean = np.zeros((*points.shape[:2], len(scene.canary)))
        weight = abs(reader.known[reader.map.own]).max(0)
        for place in np.flatnonzero(weight > _EXACT).tolist():
            node, index = reader.map.inputs[place]
            at = torch.from_numpy(points[:, place]).to(dtype)
            total = expected_projection(scene, self._gradients, node, index, at)
            mean[:, place] = total.numpy() / scene.divisors[node]
        return mean


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


class Observing(LinearAdversary):
    """All that an observer hears and sends; of ``any-node``, who learns most."""

    name = "observer"
    reads_models = False  # but what of them is sent
    sees = "what is heard and sent by the observer, with all other records known"

    def __init__(self, scene: Scene) -> None:
        named = scene.observer or "everybody"
        self._who = _most_told(scene) if named == ANY_NODE else Who.parse(named)
        words = seen_by(str(self._who.name)).removeprefix("; seen by ")
        self.sees = f"what is heard and sent by {words}, with all other records known"
        super().__init__(scene)

    def hears(self, scene: Scene) -> list[list[int]]:
        """Whose messages it has, round by round: its own among them."""
        mixing, who = scene.problem.training.mixing(), self._who
        graphs = [mixing.at(k) > 0 for k in range(mixing.period)]
        if who.everybody:
            return [list(range(mixing.nodes)) for _ in graphs]
        if who.wire is not None:
            ways = (who.wire, who.wire[::-1])
            heard = [[one for one, by in ways if graph[by, one]] for graph in graphs]
            if not any(heard):
                raise ValueError(
                    f"observer {who.name}: nothing is ever sent between these two "
                    "nodes; choose two that are neighbours"
                )
            return heard
        return heard_by(who.nodes, graphs)


def heard_by(
    nodes: Sequence[int], graphs: Sequence[NDArray[np.bool_]]
) -> list[list[int]]:
    """Whose messages ``nodes`` have in each of ``graphs``: their own among them."""
    own = list(nodes)
    return [
        [node for node in range(len(graph)) if node in own or graph[own, node].any()]
        for graph in graphs
    ]


def _most_told(scene: Scene) -> Who:
    """The node against whose view the canary's releases have the least noise."""
    training = scene.problem.training
    ledger = scene.problem.ledger(scene.noise_multiplier)
    relation: Relation = "replace-one" if scene.replaces else "add-or-remove-one"

    def told(node: int) -> float:
        seen = observed_by(training.algorithm, ledger, str(node), relation)
        entries = seen.nodes[CANARY_NODE]
        return sum(entry.count / entry.release.noise**2 for entry in entries)

    return Who.of(max(set(range(training.nodes)) - {CANARY_NODE}, key=told))
