"""Zhou, Xue and Chen, perturbed push-sum and PartPSP: every table and figure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reports import unsettled
from reports.papers.programme import (
    DRAWN,
    NOTHING,
    Claim,
    Judged,
    Row,
    Shown,
    per_cent,
    results_of,
    unknown,
    within,
)
from reports.papers.running import pilot, staged
from reports.papers.size import Size, parameters
from reports.pushsum.cells import DECAY, GAMMA_N, GRAPHS, MLP
from reports.pushsum.page import TABLE_2
from reports.study import Cell, Results

TITLE = "PartPSP: partial push-sum with Laplace noise"
LABELS = (
    "b / gamma_n, of one round",
    "certified, 720 rounds, one record, data-independent noise",
)
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
ROUNDS = 'rounds are "thousands" in the text, 720 assumed (twelve epochs)'
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
    Row("Table 1", f"symbols and what they mean: {DRAWN}"),
    Row("Figure 1", f"a drawing of full and partial communication: {DRAWN}"),
    Row(
        "Figure 2",
        "real and estimated sensitivity by round, two graphs, one or two layers",
        _mlp(4),
        "MNIST",
        part="MLP",
        assumed="rounds",
        differs=f"{STAND_IN}; rounds are not printed, 720 assumed",
        sources=(
            ("papers", "zhou figure 2 * constant"),
            ("pushsum", "figure 2 * published"),
        ),
        pilot="zhou mlp",
        unsettled=unsettled.PARTPSP,
    ),
    _large("Figure 2", "ResNet-18", "the same", 4),
    Row(
        "Figure 3",
        "mean real sensitivity by shared layers and graph",
        _mlp(15),
        "MNIST",
        assumed="rounds",
        differs=f"{STAND_IN}; {ROUNDS}",
        sources=(("papers", "zhou figure 3 *"), ("pushsum", "figure 3 *")),
        pilot="zhou mlp",
        unsettled=unsettled.PARTPSP,
    ),
    Row(
        "Figure 4",
        "mean real sensitivity by number of nodes and graph",
        _mlp(20, nodes=50),
        "MNIST",
        part="MLP",
        assumed="rounds",
        differs=f"{STAND_IN}; {ROUNDS}; ten nodes are Figure 3's cells of one layer",
        sources=(
            ("papers", "zhou figure 4 *", "zhou figure 3 d-out:* layers:1 *"),
            ("pushsum", "figure 4 *"),
        ),
        pilot="zhou mlp",
        unsettled=unsettled.PARTPSP,
    ),
    _large("Figure 4", "ResNet-18", "the same", 20),
    Row(
        "Table 2",
        "accuracy by method, b and graph",
        _mlp(64),
        "MNIST",
        part="MLP",
        assumed="rounds, of its code",
        differs=f"{STAND_IN} (drawn digits where reduced); one seed, as there",
        sources=(("papers", "zhou table 2 * constant"), ("pushsum", "table 2 *")),
        pilot="zhou mlp",
        unsettled=unsettled.PARTPSP,
    ),
    _large("Table 2", "ResNet-18", "the same", 64),
    _large("Table 2", "ViT", "the same", 64),
    Row(
        "Table 3",
        "accuracy with noise by the real and by the estimated sensitivity",
        _mlp(8),
        "MNIST",
        part="MLP",
        assumed="rounds, of its code",
        differs=STAND_IN,
        sources=(
            ("papers", "zhou figure 2 * constant", "zhou table 3 *"),
            ("pushsum", "table 3 *"),
        ),
        pilot="zhou mlp",
        unsettled=unsettled.PARTPSP,
    ),
    _large("Table 3", "ResNet-18", "the same", 8),
    Row(
        "Table 4",
        "seconds of training and accuracy, without noise, SGPDP and PartPSP-1 at b = 3",
        _mlp(12),
        "MNIST",
        part="MLP",
        assumed="rounds, of its code",
        differs=f"{STAND_IN}; processor seconds of one core without a network, another "
        "quantity than the printed seconds of a GPU and links of 1 Gbps: both below",
        sources=(
            (
                "papers",
                "zhou table 2 SGPDP * b=3 gamma constant",
                "zhou table 2 SGPDP * b=none *",
                "zhou table 2 PartPSP-1 * b=3 gamma constant",
            ),
        ),
        pilot="zhou mlp",
        unsettled=unsettled.PARTPSP,
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


def _span(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"


def _estimates(own: Results) -> Judged:
    """Rounds in which the published estimate, of which the noise is, was too low."""
    second = own.starting("zhou figure 2 ")
    later = own.starting("zhou figure 3 ") | own.starting("zhou figure 4 ")
    reduced = results_of("pushsum").starting("figure 2 ")
    short = [one for name, one in reduced.items() if name.endswith("published")]
    rounds, runs = (sum(one[of] for one in short) for of in ("rounds", "runs"))
    early = [
        sum(used < real for used, real in zip(one["used"], one["real"], strict=True))
        for one in second.values()
    ]
    parts = {
        "of the first 50 of 720 in Figure 2's {} runs": early,
        "of all 720 in them": [one["below"] for one in second.values()],
        "of 720 in Figures 3 and 4's {} runs": [one["below"] for one in later.values()],
        f"of {rounds} in reports/pushsum's {runs} runs": [
            sum(one["below"] for one in short)
        ],
    }
    told = [
        f"{_span(counts)} {name.format(len(counts))}"
        for name, counts in parts.items()
        if counts
    ]
    cases = [not any(counts) for counts in parts.values() if counts]
    return Judged.of(cases, f"rounds below: {', '.join(told)}")


def _one_class(own: Results) -> Judged:
    known = results_of("pushsum").starting("one class a node ")
    told = [f"{one['below']} of {one['rounds']} ({n})" for n, one in known.items()]
    cases = [one["below"] == 0 for one in known.values()]
    return Judged.of(cases, f"rounds below: {', '.join(told)}", always=True)


def _epsilons(own: Results) -> Judged:
    known = results_of("pushsum")
    cases = {
        f"b = {b}, gamma_n = 0.001, 720 rounds, one record": (found["round"], total)
        for b in (1, 5)
        if (found := known.get(f"epsilon {b} 0.001 720")) and (total := found["record"])
    }
    found = within(cases)
    where = (
        "on the 2-Out graph with 1 000 records a node (glyphs), not 6 000, and noise "
        "by the data-independent sensitivity: by the published estimate none is "
        "certified"
    )
    return found._replace(told=f"{found.told}; {where}")


def shown(own: Results) -> Iterator[Shown]:
    """Table 2 of two graphs, and the one account that there is of all rounds."""
    known = results_of("pushsum")
    if total := known.get("epsilon 1 0.001 720"):
        yield Shown(
            "PartPSP, d-out:2, b = 1 (glyphs, 1 000 records a node)",
            total["round"],
            total["record"],
        )
    for (method, b), both in TABLE_2.items():
        for graph, printed in zip(("exponential", "d-out:8"), both, strict=True):
            whole = own.get(table_2(method, graph, b).name)
            ours = whole or known.get(f"table 2 {method} {graph} {b}", {})
            right = ours.get("accuracy")
            yield Shown(
                f"{method}, {graph}, "
                + ("no noise" if b is None else f"b = {b:g}")
                + (" (at size)" if whole else ""),
                None if b is None else b / 0.001,
                printed=printed,
                ours=per_cent(right) if whole else tuple(right or ()),
            )


def _order(own: Results) -> Judged:
    cases, words = [], []
    for b in BUDGETS[:3]:
        for graph in DEGREES:
            found = [
                own.get(table_2(method, graph, b).name)
                for method in ("PartPSP-1", "PartPSP-2", "SGPDP")
            ]
            if all(one is not None and one["accuracy"] is not None for one in found):
                right = [100 * one["accuracy"] for one in found if one]
                cases.append(right[0] > max(right[1:]))
                told = ", ".join(f"{value:.1f}" for value in right)
                words.append(f"b = {b:g}, {graph}: {told}")
    if not cases:
        return Judged("cannot say", NOTHING)
    brief = f"best in {sum(cases)} of {len(cases)}, one seed each"
    most = [True] if sum(cases) > 0.75 * len(cases) else cases
    return Judged.of(most, f"{brief}; one layer, two, all: {'; '.join(words)}", brief)


RAS_GRAPHS = ("exponential", "d-out:2", "d-out:4", "d-out:6", "d-out:8")
SHARED = ("layers:1", "layers:2", "*")
SCALES = (10, 20, 30, 40, 50)


def _mean_sensitivity(own: Results, graph: str, nodes: int, shared: str) -> Any:
    """Of Figures 3 and 4; None if it was not run."""
    figure = 3 if nodes == SCALES[0] else 4
    return own.get(average(figure, graph, nodes, shared).name, {}).get("ras")


def sensitivities(own: Results) -> Iterator[tuple]:
    """A line for each graph: by shared layers, then by nodes with one layer shared."""
    for graph in RAS_GRAPHS:
        by_layers = [_mean_sensitivity(own, graph, 10, shared) for shared in SHARED]
        by_nodes = [_mean_sensitivity(own, graph, n, SHARED[0]) for n in SCALES[1:]]
        found = (*by_layers, *by_nodes)
        yield graph, *("" if each is None else f"{each:.1f}" for each in found)


def _by_layers(own: Results) -> Judged:
    cases, words = [], []
    for graph in RAS_GRAPHS:
        found = [_mean_sensitivity(own, graph, 10, shared) for shared in SHARED]
        if None not in found:
            times = [each / found[0] for each in found[1:]]
            cases.append(times[0] > 2 and times[1] > 3)
            words.append(f"{times[0]:.1f} and {times[1]:.1f} times ({graph})")
    told = f"two and three layers have {', '.join(words)} that of one; one seed"
    return Judged.of(cases, told if words else NOTHING)


def _by_degree(own: Results) -> Judged:
    lines = [(10, shared) for shared in SHARED]
    lines += [(nodes, SHARED[0]) for nodes in SCALES[1:]]
    cases, words = [], []
    for nodes, shared in lines:
        found = [_mean_sensitivity(own, each, nodes, shared) for each in RAS_GRAPHS[1:]]
        if None not in found:
            cases.append(sorted(found, reverse=True) == found)
            told = ", ".join(f"{each:.1f}" for each in found)
            words.append(f"{told} ({nodes} nodes, {shared})")
    told = f"of d-out:2, 4, 6 and 8: {'; '.join(words)}; one seed"
    brief = f"falls at each step in {sum(cases)} of {len(cases)} series, one seed each"
    return Judged.of(cases, told, brief) if words else Judged("cannot say", NOTHING)


def _by_nodes(own: Results) -> Judged:
    """Six and eight of ten nodes are the exceptions that the paper names."""
    cases, words = [], []
    for graph in RAS_GRAPHS[1:]:
        scales = SCALES[1:] if graph in ("d-out:6", "d-out:8") else SCALES
        found = [_mean_sensitivity(own, graph, nodes, SHARED[0]) for nodes in scales]
        if None not in found:
            cases.append(max(found) <= 1.5 * min(found))
            told = ", ".join(f"{each:.1f}" for each in found)
            words.append(f"{graph}: {told}")
    told = f"of 10 to 50 nodes, or 20 to 50: {'; '.join(words)}; one seed"
    return Judged.of(cases, told) if words else Judged("cannot say", NOTHING)


# Table 4, MLP: seconds on EXP and the graphs of degree 4, 6 and 8.
TABLE_4 = {
    "without noise (SGP)": ("SGPDP", None, (68.33, 68.85, 70.12, 70.89)),
    "SGPDP, b = 3": ("SGPDP", 3.0, (78.39, 78.93, 80.92, 81.92)),
    "PartPSP-1, b = 3": ("PartPSP-1", 3.0, (74.64, 74.36, 75.68, 76.22)),
}


def seconds(own: Results) -> Iterator[tuple]:
    """A line for each method of Table 4: ours, and the printed in italics."""
    for name, (method, b, printed) in TABLE_4.items():
        line = []
        for graph, theirs in zip(DEGREES, printed, strict=True):
            known = own.records.get(table_2(method, graph, b).name)
            ours = "" if known is None else f"{known['cpu']:.0f} "
            line.append(f"{ours}(*{theirs:.0f}*)")
        yield name, *line


def _cost_of_estimate(own: Results) -> Judged:
    cases, words = [], []
    for graph in GRAPHS:
        for shared in (1, 2):
            real = own.get(f"zhou table 3 {graph} {shared} b=5 gamma constant")
            used = own.get(figure_2(graph, shared).name)
            if real and used and None not in (real["accuracy"], used["accuracy"]):
                lost = 100 * (real["accuracy"] - used["accuracy"])
                cases.append(lost <= 10)
                words.append(f"{graph}, {shared} shared: {lost:.1f} points")
    told = f"{'; '.join(words)}; one seed" if words else NOTHING
    return Judged.of(cases, told)


CLAIMS = [
    Claim(
        "The estimated sensitivity, as the published code has it, is above the real "
        "one in all experiments",
        _estimates,
        unsettled=unsettled.PARTPSP,
    ),
    Claim(
        "It is with one class a node, too",
        _one_class,
        ours=True,
        unsettled=unsettled.PARTPSP,
    ),
    Claim(
        "Does b / gamma_n, which Theorem 1 has of one iteration, cover all rounds?",
        _epsilons,
        ours=True,
    ),
    Claim(
        "What the estimate costs in accuracy is acceptable (within 10 points)",
        _cost_of_estimate,
        "7.76 per cent in the mean of four MLPs",
        unsettled=unsettled.PARTPSP,
    ),
    Claim(
        "Sharing one layer is best in almost all runs with noise, before two and all "
        "(in more than three of four)",
        _order,
        unsettled=unsettled.PARTPSP,
    ),
    Claim(
        "The mean real sensitivity grows faster than the number of shared layers",
        _by_layers,
        unsettled=unsettled.PARTPSP,
    ),
    Claim(
        "It falls with the degree of the graph",
        _by_degree,
        unsettled=unsettled.PARTPSP,
    ),
    Claim(
        "It is similar for any number of nodes (within a factor of 1.5), but where the "
        "degree is near it",
        _by_nodes,
        unsettled=unsettled.PARTPSP,
    ),
    Claim(
        "The same with ResNet-18 and ViT",
        unknown("no such network was trained"),
    ),
]


def answer(own: Results) -> str:
    """In a sentence."""
    return (
        "b / gamma_n is of one round alone. What was trained is not settled: "
        f"{unsettled.PARTPSP}."
    )
