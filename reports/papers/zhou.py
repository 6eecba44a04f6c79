"""Zhou, Xue and Chen, perturbed push-sum and PartPSP: every table and figure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reports.papers.programme import (
    Claim,
    Row,
    Shown,
    per_cent,
    results_of,
    unknown,
    verdict,
    within,
)
from reports.papers.running import pilot, staged
from reports.papers.size import Size, parameters
from reports.pushsum.cells import DECAY, GAMMA_N, GRAPHS, MLP
from reports.pushsum.page import TABLE_2
from reports.study import Cell, Results

TITLE = "PartPSP: partial push-sum with Laplace noise"
EPOCH = 60  # rounds: ten nodes and batches of 100 of 60 000 records
# Of its published code: steps fall tenfold after every five of twelve epochs, and the
# factor of the noise, gamma_n, with them; its text has gamma_n constant.
SCHEDULE = f"parts:{5 * EPOCH}=0.01,{10 * EPOCH}=0.001"
STAGES = {
    "constant": [[12 * EPOCH, 1.0, 1.0]],
    "falls": [
        [5 * EPOCH, 1.0, 1.0],
        [5 * EPOCH, 0.1, 0.1],
        [2 * EPOCH, 0.01, 0.01],
    ],
}
TRAINING: dict[str, Any] = {
    **MLP,
    "data": "fashion-mnist",
    "train": 60_000,
    "partition": "even",
}
METHODS: dict[str, dict[str, Any]] = {
    "PartPSP-1": {"algorithm": "partpsp", "shared": "layers:1"},
    "PartPSP-2": {"algorithm": "partpsp", "shared": "layers:2"},
    "SGPDP": {"algorithm": "sgpdp", "shared": "*"},
    "PEDFL": {
        "algorithm": "pedfl",
        "shared": "*",
        "sync_interval": 0,
        "local_steps": 1,
    },
}
DEGREES = ("exponential", "d-out:4", "d-out:6", "d-out:8")
BUDGETS = (1.0, 2.0, 3.0, None)
STAND_IN = "Fashion-MNIST for MNIST"
NO_LARGE = "on two cores without a GPU no cell ends in a day"


def _mlp(cells: float, **more: float) -> Size:
    settings = {"rounds": 12 * EPOCH, "nodes": 10, "batch": 100, "cells": cells}
    settings["parameters"] = parameters("tanh-mlp", "fashion-mnist")
    return Size(**(settings | more))


def _resnet(cells: float, **more: float) -> Size:
    return _mlp(cells, parameters=parameters("resnet18", "fashion-mnist"), **more)


def _large(item: str, of: str, shows: str, cells: float) -> Row:
    if of == "ViT":
        size = _mlp(cells, rounds=600, parameters=parameters("vit", "cifar-10"))
        return Row(
            item,
            shows,
            size,
            "CIFAR-10",
            part="ViT",
            differs="CIFAR-10 cannot be had without a network; its ViT's size is not "
            "printed",
            pilot="zhou vit",
        )
    return Row(
        item,
        shows,
        _resnet(cells),
        "Fashion-MNIST",
        part="ResNet-18",
        differs=NO_LARGE,
        pilot="zhou resnet18",
    )


ROWS = [
    Row("Table 1", "symbols and what they mean: nothing to compute"),
    Row("Figure 1", "a drawing of full and partial communication: nothing to compute"),
    Row(
        "Figure 2",
        "real and estimated sensitivity by round, two graphs, one or two layers",
        _mlp(4),
        "MNIST",
        part="MLP",
        differs=f"{STAND_IN}; rounds are not printed, 720 assumed",
        sources=(
            ("papers", "zhou figure 2 * constant"),
            ("pushsum", "figure 2 * published"),
        ),
        pilot="zhou mlp",
    ),
    _large("Figure 2", "ResNet-18", "the same", 4),
    Row(
        "Figure 3",
        "mean real sensitivity by shared layers and graph",
        _mlp(15),
        "MNIST",
        differs=f"{STAND_IN} (drawn digits where reduced)",
        sources=(("papers", "zhou figure 3 *"), ("pushsum", "figure 3 *")),
        pilot="zhou mlp",
    ),
    Row(
        "Figure 4",
        "mean real sensitivity by number of nodes and graph",
        _mlp(20, nodes=50),
        "MNIST",
        part="MLP",
        differs=f"{STAND_IN} (drawn digits where reduced)",
        sources=(("papers", "zhou figure 4 *"), ("pushsum", "figure 4 *")),
        pilot="zhou mlp",
    ),
    _large("Figure 4", "ResNet-18", "the same", 20),
    Row(
        "Table 2",
        "accuracy by method, b and graph",
        _mlp(64),
        "MNIST",
        part="MLP",
        differs=f"{STAND_IN} (drawn digits where reduced); one seed, as there",
        sources=(("papers", "zhou table 2 * constant"), ("pushsum", "table 2 *")),
        pilot="zhou mlp",
    ),
    _large("Table 2", "ResNet-18", "the same", 64),
    _large("Table 2", "ViT", "the same", 64),
    Row(
        "Table 3",
        "accuracy with noise by the real and by the estimated sensitivity",
        _mlp(8),
        "MNIST",
        part="MLP",
        differs=STAND_IN,
        sources=(
            ("papers", "zhou figure 2 * constant", "zhou table 3 *"),
            ("pushsum", "table 3 *"),
        ),
        pilot="zhou mlp",
    ),
    _large("Table 3", "ResNet-18", "the same", 8),
    Row(
        "Table 4",
        "seconds of training and accuracy, without noise, SGPDP and PartPSP-1 at b = 3",
        _mlp(12),
        "MNIST",
        part="MLP",
        differs=f"{STAND_IN}; processor seconds of one core, no network between nodes",
        sources=(
            (
                "papers",
                "zhou table 2 SGPDP * b=3 gamma constant",
                "zhou table 2 SGPDP * b=none *",
                "zhou table 2 PartPSP-1 * b=3 gamma constant",
            ),
        ),
        pilot="zhou mlp",
    ),
    _large("Table 4", "ResNet-18", "the same", 12),
    _large("Table 4", "ViT", "the same", 12),
]


def cell(name: str, stages: str, b: float | None, **more: Any) -> Cell:
    """One run of all 720 rounds."""
    training = {**TRAINING, **more}
    if stages == "constant":
        training["schedule"] = SCHEDULE
    if b is None:
        training["algorithm"] += "-plain"
        for option in ("sensitivity", "constant", "decay"):
            training.pop(option, None)
    settings = {
        "training": training,
        "stages": STAGES[stages],
        "multiplier": 0.0 if b is None else GAMMA_N / b,
        "seed": 0,
    }
    budget = "none" if b is None else f"{b:g}"
    return Cell(f"zhou {name} b={budget} gamma {stages}", staged, settings)


def figure_2(graph: str, shared: int, stages: str = "constant") -> Cell:
    """Noise by the published estimate: of Figure 2, and half of Table 3."""
    return cell(
        f"figure 2 {graph} {shared}",
        stages,
        5.0,
        **METHODS[f"PartPSP-{shared}"],
        graph=graph,
        sensitivity="published",
        constant=0.78,
        decay=DECAY[shared],
    )


def table_2(method: str, graph: str, b: float | None, stages: str = "constant") -> Cell:
    """Noise by the real sensitivity."""
    return cell(
        f"table 2 {method} {graph}",
        stages,
        b,
        **METHODS[method],
        graph=graph,
        sensitivity="real",
    )


def average(figure: int, graph: str, nodes: int, shared: str) -> Cell:
    """Of Figures 3 and 4: noise by the published estimate, C' = 0.95."""
    return cell(
        f"figure {figure} {graph} {nodes} {shared}",
        "constant",
        5.0,
        algorithm="partpsp",
        shared=shared,
        graph=graph,
        nodes=nodes,
        sensitivity="published",
        constant=0.95,
        decay=0.55,
        sync_interval=4,
    )


def pilots() -> Iterator[Cell]:
    """The MLP; ResNet-18 and ViT of two nodes and few images."""
    common = {"algorithm": "partpsp", "graph": "exponential", "sync_interval": 5}
    small = {**common, "shared": "layers:1", "model": "tanh-mlp", "nodes": 10}
    large = {**common, "nodes": 2, "batch_size": 50.0, "rounds": 1}
    for name, training, shape in (
        ("zhou mlp", {**small, "batch_size": 100.0, "rounds": 20}, [1, 28, 28]),
        (
            "zhou resnet18",
            {**large, "model": "resnet18", "shared": "0.*,1.*"},
            [1, 28, 28],
        ),
        ("zhou vit", {**large, "model": "vit", "shared": "0.*,2.weight"}, [3, 32, 32]),
    ):
        settings = {"training": training, "shape": shape, "classes": 10}
        yield Cell(f"pilot {name}", pilot, settings)


def cells() -> Iterator[Cell]:
    """Figure 2 and Table 3, then Tables 2 and 4, then Figures 3 and 4."""
    for shared in (1, 2):
        for graph in GRAPHS:
            yield figure_2(graph, shared)
            yield cell(
                f"table 3 {graph} {shared}",
                "constant",
                5.0,
                **METHODS[f"PartPSP-{shared}"],
                graph=graph,
                sensitivity="real",
            )
    for shared in (1, 2):  # as in the published code
        for graph in GRAPHS:
            yield figure_2(graph, shared, "falls")
    for b in (3.0, None, 1.0, 2.0):
        for graph in (DEGREES[0], *DEGREES[:0:-1]):
            for method in METHODS:
                yield table_2(method, graph, b)
    for method in list(METHODS)[:3]:  # as in the published code; PEDFL has none
        yield table_2(method, DEGREES[0], 3.0, "falls")
    for graph in ("exponential", "d-out:2", "d-out:4", "d-out:6", "d-out:8"):
        for shared in ("layers:1", "layers:2", "*"):
            yield average(3, graph, 10, shared)
    for nodes in (20, 30, 40, 50):
        for graph in ("d-out:2", "d-out:4", "d-out:6", "d-out:8"):
            yield average(4, graph, nodes, "layers:1")


def _estimates(skewed: bool, own: Results) -> tuple[str, str]:
    """Of all rounds in which noise was scaled by the published estimate."""
    known = results_of("pushsum")
    found = {}
    for graph in GRAPHS:
        if skewed:
            found[graph] = known.get(f"one class a node {graph} 1")
            continue
        for shared in (1, 2):
            name = f"{graph}, {shared} shared"
            found[name] = known.get(f"figure 2 {graph} {shared} published")
            for stages in STAGES:
                whole = own.get(figure_2(graph, shared, stages).name)
                found[f"{name}, at size, gamma_n {stages}"] = whole
    cases = {name: one for name, one in found.items() if one and "below" in one}
    told = [f"{name}: {one['below']} of {one['rounds']}" for name, one in cases.items()]
    judged = verdict([one["below"] == 0 for one in cases.values()], always=True)
    return judged, f"rounds below: {', '.join(told)}"


def _epsilons(own: Results) -> tuple[str, str]:
    known = results_of("pushsum")
    cases = {
        f"b = {b}, gamma_n = 0.001, 720 rounds, one record": (found["round"], total)
        for b in (1, 5)
        if (found := known.get(f"epsilon {b} 0.001 720")) and (total := found["record"])
    }
    return within(cases)


def shown(own: Results) -> Iterator[Shown]:
    """Table 2 of two graphs; what b claims, b / gamma_n, is of one round and record."""
    known = results_of("pushsum")
    for (method, b), both in TABLE_2.items():
        for graph, printed in zip(("exponential", "d-out:8"), both, strict=True):
            whole = own.get(table_2(method, graph, b).name)
            ours = whole or known.get(f"table 2 {method} {graph} {b}", {})
            right = ours.get("accuracy")
            total = None if b is None else known.get(f"epsilon {b:g} 0.001 720")
            yield Shown(
                f"{method}, {graph}, "
                + ("no noise" if b is None else f"b = {b:g}")
                + (" (at size)" if whole else ""),
                None if b is None else b / 0.001,
                None if total is None else total["record"],
                printed,
                per_cent(right) if whole else tuple(right or ()),
            )


def _order(own: Results) -> tuple[str, str]:
    cases, words = [], []
    for b in BUDGETS[:3]:
        for graph in DEGREES:
            found = [
                own.get(table_2(method, graph, b).name)
                for method in ("PartPSP-1", "PartPSP-2", "SGPDP")
            ]
            if all(one is not None and one["accuracy"] is not None for one in found):
                right = [100 * one["accuracy"] for one in found if one]
                cases.append(right[0] > right[1] and right[0] > right[2])
                told = ", ".join(f"{value:.1f}" for value in right)
                words.append(f"b = {b:g}, {graph}: {told}")
    return verdict(cases), "; ".join(words) or "no cell of it was reached"


def _learns(own: Results) -> tuple[str, str]:
    cases, words = [], []
    for method in ("SGPDP", "PEDFL"):
        for b in BUDGETS[:3]:
            for graph in DEGREES:
                known = own.get(table_2(method, graph, b).name)
                if known is None:
                    continue
                ends = known["accuracy"]
                cases.append(ends is not None and ends > known["start"])
                told = "refused" if ends is None else f"{100 * ends:.1f}"
                words.append(
                    f"{method}, b = {b:g}, {graph}: {told} "
                    f"(start {100 * known['start']:.1f})"
                )
    return verdict(cases), "; ".join(words) or "no cell of it was reached"


def _cost_of_estimate(own: Results) -> tuple[str, str]:
    cases, words = [], []
    for graph in GRAPHS:
        for shared in (1, 2):
            real = own.get(f"zhou table 3 {graph} {shared} b=5 gamma constant")
            used = own.get(figure_2(graph, shared).name)
            if real and used and None not in (real["accuracy"], used["accuracy"]):
                lost = 100 * (real["accuracy"] - used["accuracy"])
                cases.append(lost <= 10)
                words.append(f"{graph}, {shared} shared: {lost:.1f} points")
    return verdict(cases), "; ".join(words) or "no cell of it was reached"


CLAIMS = [
    Claim(
        "The estimated sensitivity, as the published code has it, is never below the "
        "real one on evenly dealt data",
        lambda own: _estimates(False, own),
    ),
    Claim(
        "Nor is it with one class a node (which the paper does not try)",
        lambda own: _estimates(True, own),
    ),
    Claim("b / gamma_n, printed of a round, covers all rounds", _epsilons),
    Claim(
        "What the estimate costs in accuracy is acceptable (within 10 points)",
        _cost_of_estimate,
    ),
    Claim("Sharing one layer is better than sharing two or all, with noise", _order),
    Claim("SGPDP and PEDFL learn at b of 1 to 3 (end above their start)", _learns),
    Claim(
        "The same with ResNet-18 and ViT",
        unknown("no such network was trained"),
    ),
]
