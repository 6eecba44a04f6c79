"""What nodes learn of each other on twelve graphs, by averaging and by training."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from reports.study import Cell

NODES, NOISE, DELTA, STEPS = 8, 1.0, 1e-5, 12
DIRECTED = ("exponential", "directed-ring", "d-out:3")
GOSSIP = (
    "path",
    "ring",
    "directed-ring",
    "d-out:3",
    "torus",
    "exponential",
    "erdos-renyi:0.4",
    "fiedler:0.39",
    "star",
    "complete",
)
# Exchanges a step of sums at a common model.
SUMS = {"butterfly": 3, "chain": 8}
FIGURES = ("nobody_reacts", "certified", "everything_seen")


def learnt(
    algorithm: str, graph: str, rounds: int, options: dict[str, Any]
) -> dict[str, dict[str, float]]:
    """Of each figure the mean over all pairs of nodes, the least and the most."""
    import privaudit as pa

    weights = "uniform" if graph in (*DIRECTED, *SUMS) else "metropolis"
    pairs = pa.views(
        algorithm,
        noise_multiplier=NOISE,
        delta=DELTA,
        nodes=NODES,
        graph=graph,
        weights=weights,
        rounds=rounds,
        train=320,
        batch_size=10.0,
        model="softmax",
        digits=(0, 1),
        **options,
    ).pairs
    found = {}
    for name in FIGURES:
        each = [getattr(pair, name) for pair in pairs]
        found[name] = {
            "mean": statistics.fmean(each),
            "least": min(each),
            "most": max(each),
        }
    return found


def cells(quick: bool) -> Iterator[Cell]:
    """Averaging is one noisy vector a node and three rounds of gossip."""
    for graph in ("star",) if quick else GOSSIP:
        for name, algorithm, rounds, options in (
            ("averaging", "dp-muffliato", 3, {"gossips": 3, "accelerated": False}),
            ("training", "dp-dsgd", 3 if quick else STEPS, {}),
        ):
            settings = {"algorithm": algorithm, "graph": graph, "rounds": rounds}
            yield Cell(f"{name} {graph}", learnt, {**settings, "options": options})
    for graph, each in SUMS.items():
        rounds = each * (1 if quick else STEPS)
        settings = {"algorithm": f"dp-{graph}", "graph": graph, "rounds": rounds}
        yield Cell(f"training {graph}", learnt, {**settings, "options": {}})
