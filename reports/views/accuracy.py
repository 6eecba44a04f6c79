"""Accuracy on Fashion-MNIST at one proved figure: dp-butterfly beside four others.

All take as many records a step, and as many steps; those "within the bytes" as many
steps as the bytes of dp-butterfly, by doubling, are enough for: in its cheaper form, or
for gossip, with or without gradient tracking, on a ring.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from privaudit.accounting import noise_multiplier
from privaudit.accounting.views import ANY_NODE, observed_by
from privaudit.ledger import Ledger
from reports import told
from reports.consensus.cells import EPSILONS as PAPER_EPSILONS
from reports.consensus.cells import STEP_SIZES
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import NOBODY, Observers, Problem
from trainers.runs.search import chosen, climb, untried
from trainers.runs.training import training_from

NODES, EPSILONS, DELTA = (8, 16, 64), (1.0, 4.0), 1e-5
METHODS = told(__file__)["accuracy"]["METHODS"]
RELATION = "add-or-remove-one"
HELD_OUT, MOST = 0.2, 20
LATTICE = {"step_size": (1 / 2, 2.0)}
OURS = {"clip_norm": 1.0, "fall": 0.1, "step_size": 16.0}
PUBLISHED = {"dp-dsgt": "DSGT", "dp-dsgd": "DSGD"}  # names in Bayrooti et al.
VECTORS = {"dp-dsgt": 2, "dp-dsgd": 1}  # of floats, that a node sends a neighbour


def exchanges(nodes: int) -> int:
    """Exchanges in a step of dp-butterfly, and messages heard on an exponential one."""
    return nodes.bit_length() - 1


def starts(
    method: str, nodes: int, epsilon: float, steps: int
) -> Iterator[dict[str, Any]]:
    """Starts of a search: for gossip on several graphs, one as published.

    That is for epsilon 100, 10, 1 and .5: we take that of the next one above, on the
    graph that it is for, or within the bytes on the better connected one.

    An exchange of dp-butterfly sends a vector of doubles: as many bytes as two of
    floats.
    """
    algorithm, within_bytes = METHODS[method], method.endswith(", bytes")
    if algorithm not in PUBLISHED:
        rounds = {
            "central": steps,
            "butterfly, bytes": steps * exchanges(nodes) // 2 * 2 * exchanges(nodes),
        }
        yield {**OURS, "rounds": rounds.get(method, steps * exchanges(nodes))}
        return
    at = max(i for i, e in enumerate(PAPER_EPSILONS) if e is not None and e >= epsilon)
    first, last = STEP_SIZES[PUBLISHED[algorithm]][at]
    published = {"clip_norm": 10.0, "fall": last / first, "step_size": first}
    rounds = {"ring": steps, "exponential": steps, "complete": steps}
    if within_bytes:  # one neighbour a round on an exponential graph, two on a ring
        most = steps * exchanges(nodes) * 2 // VECTORS[algorithm]
        rounds = {"ring": most // 2, "exponential": most}
    for graph, count in rounds.items():
        if graph == ("exponential" if within_bytes else "complete"):
            yield {**published, "graph": graph, "rounds": count}
        yield {**OURS, "graph": graph, "rounds": count}


@functools.lru_cache(2)
def _prepared(data: tuple, nodes: int, held_out: float) -> Problem:
    """Data and model, dealt once for all settings."""
    values = {
        **dict(data),
        "nodes": nodes,
        "algorithm": "dp-dsgd" if nodes > 1 else "dp-sgd",
    }
    return Problem.of(training_from(values, where=__name__), held_out=held_out)


def problem_of(
    method: str,
    nodes: int,
    common: Mapping[str, Any],
    batch: int,
    point: Mapping[str, Any],
    held_out: float = 0.0,
) -> Problem:
    """The problem of one try."""
    values: dict[str, Any] = {**common, **point, "algorithm": METHODS[method]}
    values["final_step_size"] = values["step_size"] * values.pop("fall")
    here = 1 if METHODS[method] == "dp-sgd" else nodes
    values |= {"nodes": here, "batch_size": batch / here}
    if METHODS[method] == "dp-butterfly":
        values["graph"] = "halving" if method == "butterfly, bytes" else "butterfly"
    training = training_from(values, where=__name__)
    base = _prepared(tuple(common.items()), here, held_out)
    network = training.family.runner(training.make(), training.mixing())
    return dataclasses.replace(base, training=training, network=network)


@dataclasses.dataclass
class _Bytes:
    """Bytes that a node sends, in the mean."""

    problem: Problem
    total: float = 0.0

    def messages(self, k: int, sent: Mapping[str, torch.Tensor]) -> None:
        mixing = self.problem.training.mixing()
        hear = sum(mixing.degree(k)) / mixing.nodes - 1
        for each in sent.values():
            self.total += hear * each.shape[2] * each.element_size()


def compared(
    method: str,
    nodes: int,
    epsilon: float,
    steps: int,
    common: dict[str, Any],
    batch: int,
    seeds: int,
) -> dict[str, Any]:
    """Tuned on a fifth of the training data, then trained on all of them."""
    noises: dict[int, float] = {}

    def noise(problem: Problem) -> float:
        def seen(z: float) -> Ledger:
            who = ANY_NODE if method.startswith("butterfly") else None
            return observed_by(METHODS[method], problem.ledger(z), who, RELATION)

        rounds = problem.training.rounds
        if rounds not in noises:
            noises[rounds] = noise_multiplier(seen, epsilon, DELTA)[0]
        return noises[rounds]

    def trained(
        point: Mapping[str, Any], held_out: float, runs: int, *, count: bool = False
    ) -> tuple[torch.Tensor, float]:
        problem = problem_of(method, nodes, common, batch, point, held_out)
        z = noise(problem_of(method, nodes, common, batch, point))
        sent = _Bytes(problem)
        begin = torch.cat([problem.start(seed) for seed in range(runs)])
        watch = Observers(messages=(sent,)) if count else NOBODY
        try:
            models, _ = problem.train(
                z, Streams(0), runs=runs, start=begin, observers=watch
            )
        except ValueError as error:
            if "not finite" not in str(error):
                raise
            return torch.zeros(runs), sent.total
        return accuracy(problem.gradients(), models, problem.test).mean(1), sent.total

    tried = climb(
        lambda point: float(trained(point, HELD_OUT, 1)[0].mean()),
        list(starts(method, nodes, epsilon, steps)),
        LATTICE,
        most=MOST,
    )
    point, _ = chosen(tried)
    right, sent = trained(point, 0.0, seeds, count=METHODS[method] != "dp-sgd")
    return {
        "accuracy": right.tolist(),
        "noise_multiplier": noises[point["rounds"]],
        "bytes": sent,
        "chosen": point,
        "tried": [{**each, "accuracy": score} for each, score in tried],
        "at_edge": bool(untried(tried, LATTICE)),
    }


def name_of(method: str, nodes: int, epsilon: float) -> str:
    """By what a cell is kept; one of all nodes together is of no number of nodes."""
    where = "" if method == "central" else f" nodes={nodes}"
    return f"accuracy {method}{where} epsilon={epsilon:g}"
