"""Zhou, Xue and Chen, perturbed push-sum and PartPSP: cells, and what they say."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from reports.papers.manifest import published, table
from reports.papers.programme import Case, Shown, per_cent, results_of, within
from reports.papers.running import staged
from reports.pushsum.cells import DECAY, GAMMA_N, GRAPHS, MLP
from reports.study import Cell, Results

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
NEAR = 25  # per cent between two peaks of one setting
DEGREES = ("exponential", "d-out:4", "d-out:6", "d-out:8")
BUDGETS = (1.0, 2.0, 3.0, None)


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
    """Cell of Figures 3 and 4: noise by the published estimate, C' = 0.95."""
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


def cells() -> Iterator[Cell]:
    """Figure 2 and Table 3, then Tables 2 and 4, then Figures 3 and 4."""
    for _, replay in replays():
        yield replay
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


NAME = re.compile(
    r"(?P<how>Esti|Real)?(?:(?P<nodes>\d+)D(?P<degree>\d+)|E[xX][pP]\d?)b(?P<b>\d)"
    r"(?:C(?P<C>[\d.]+)L(?P<decay>\d+))?SP(?P<sync>\d)MLP(?:SL)?(?P<shared>\d)?"
)


def replayed(trace: str) -> Cell | None:
    """A stored trace of the MLP by the settings that its name has; None for others.

    Glyphs stand for MNIST, whose strokes are as thick; all else is theirs, but the
    start: of the pretrained ones, that of two shared layers alone is stored. D1 is what
    their plots draw as the exponential graph. Nothing is clipped: with a threshold of
    none, 200 or 1 in the name the first estimate is of the same gradient of norm 64.
    """
    folder, _, name = trace.rpartition("/")
    told = NAME.match(name)
    if told is None:
        return None
    shared = int(
        told["shared"] or folder[-1] if "layer" in folder else told["shared"] or 1
    )
    nodes, degree = int(told["nodes"] or 10), int(told["degree"] or 1)
    real = told["how"] == "Real"
    epoch = TRAINING["train"] // (nodes * 100)
    whole = "ACC" in folder
    steps = [[4, 1.0], [5, 0.1], [3, 0.01]] if whole else [[2, 1.0]]
    training = {
        **TRAINING,
        **METHODS[f"PartPSP-{shared}" if shared < 3 else "SGPDP"],
        "data": "glyphs",
        "model": f"reports.papers.networks:published_{min(shared, 2)}",
        "graph": f"d-out:{degree}" if degree > 1 else "exponential",
        "nodes": nodes,
        "sensitivity": "real" if real else "published",
        "sync_interval": int(told["sync"]),
        "clip_norm": 1e9,
    }
    if not real:
        training["constant"] = float(told["C"])
        training["decay"] = float(f"0.{told['decay']}")
    stages = [[epochs * epoch, factor, factor] for epochs, factor in steps]
    settings = {"training": training, "stages": stages, "multiplier": GAMMA_N / 5}
    return Cell(f"trace {trace}", staged, {**settings, "seed": 0})


def replays() -> Iterator[tuple[dict[str, str], Cell]]:
    """Stored traces of the MLP with the cells that replay them."""
    for line in table("zhou-traces"):
        if cell := replayed(line["trace"]):
            yield line, cell


def traces(own: Results) -> Iterator[tuple]:
    """The authors' stored traces of the MLP, and ours of the same settings."""
    for line, cell in replays():
        ours, peak = own.get(cell.name), float(line["real at most"])
        if ours and "most" in ours:
            yield (
                line["trace"].partition("elr")[0],
                int(line["rounds"]),
                ours["rounds"],
                f"{peak:.1f}",
                f"{ours['most']:.1f}",
                f"{ours['most'] / peak - 1:+.0%}",
                f"{float(line['real in the mean']):.1f}",
                f"{ours['ras']:.1f}",
                int(line["below"]),
                ours["below"],
            )


def folders() -> Iterator[tuple]:
    """Facts of the stored traces, by folder."""
    every = table("zhou-traces")
    for name, lines in itertools.groupby(every, lambda x: x["trace"].rsplit("/", 1)[0]):
        group = list(lines)
        of = [
            line
            for line in group
            if not line["trace"].split("/")[-1].startswith("Real")
        ]
        counts = [int(line["rounds"]) for line in of]
        yield (
            name,
            len(group),
            len(of),
            f"{min(counts)} to {max(counts)}",
            sum(counts),
            sum(int(line["below"]) for line in of),
        )


def _estimates(own: Results) -> Iterator[Case]:
    """By the authors' own traces; then by ours of their settings."""
    for name, _, _, _, rounds, below in folders():
        yield Case(f"theirs, {name}", below == 0, f"{below} of {rounds}")
    ours = [line for line in traces(own) if abs(int(line[5].rstrip("%"))) <= NEAR]
    if ours:
        rounds, below = (sum(line[column] for line in ours) for column in (2, 9))
        name = f"here, by the settings of {len(ours)} of them"
        yield Case(name, below == 0, f"{below} of {rounds}")


def _one_class(own: Results) -> Iterator[Case]:
    for name, one in results_of("pushsum").starting("one class a node ").items():
        yield Case(name, one["below"] == 0, f"{one['below']} of {one['rounds']}")


def _epsilons(own: Results) -> list[Case]:
    known = results_of("pushsum")
    return within(
        {
            f"b = {b}, 2-Out, 1 000 records a node": (one["round"], one["record"])
            for b in (1, 5)
            if (one := known.get(f"epsilon {b} 0.001 720")) and one["record"]
        }
    )


def shown(own: Results) -> Iterator[Shown]:
    """Table 2 of two graphs, and the one account that there is of all rounds."""
    known = results_of("pushsum")
    if total := known.get("epsilon 1 0.001 720"):
        where = "PartPSP, d-out:2, b = 1 (glyphs, 1 000 records a node)"
        yield Shown(where, total["round"], total["record"])
    for line in published("zhou")["table_2"]:
        for b in (1.0, 3.0, None):
            for graph in ("exponential", "d-out:8"):
                method, noise = line["method"], "none" if b is None else f"{b:.1f}"
                whole = own.get(table_2(method, graph, b).name)
                right = (whole or known[f"table 2 {method} {graph} {b}"])["accuracy"]
                yield Shown(
                    f"{method}, {graph}, "
                    + ("no noise" if b is None else f"b = {b:g}")
                    + (" (at size)" if whole else ""),
                    None if b is None else b / GAMMA_N,
                    printed=line[graph][noise],
                    ours=per_cent(right) if whole else tuple(right or ()),
                )


def _order(own: Results) -> Iterator[Case]:
    """One layer above two and all, in more than three of four; then each."""
    each = []
    for b, graph in itertools.product(BUDGETS[:3], DEGREES):
        right = [
            per_cent(own.get(table_2(method, graph, b).name, {}).get("accuracy"))
            for method in list(METHODS)[:3]
        ]
        if all(right):
            one, *others = (value for (value,) in right)
            told = f"{one - max(others):+.1f}"
            each.append((one > max(others), f"b = {b:g}, {graph}", told))
    if each:
        best = sum(wins for wins, *_ in each)
        yield Case("", best > 0.75 * len(each), f"best in {best} of {len(each)}")
        for _, name, told in each:
            yield Case(name, None, told)


RAS_GRAPHS = ("exponential", "d-out:2", "d-out:4", "d-out:6", "d-out:8")
SHARED = ("layers:1", "layers:2", "*")
SCALES = (10, 20, 30, 40, 50)


def _mean_sensitivities(own: Results, places: Iterable[tuple]) -> list[Any]:
    """Means of Figures 3 and 4 by graph, nodes and shared part; None if not run."""
    return [
        own.get(average(3 if nodes == 10 else 4, graph, nodes, shared).name, {}).get(
            "ras"
        )
        for graph, nodes, shared in places
    ]


def _by_layers(own: Results) -> Iterator[Case]:
    for graph in RAS_GRAPHS:
        found = _mean_sensitivities(own, [(graph, 10, shared) for shared in SHARED])
        if None not in found:
            two, three = (each / found[0] for each in found[1:])
            yield Case(graph, two > 2 and three > 3, f"{two:.1f} and {three:.1f}")


def _by_degree(own: Results) -> Iterator[Case]:
    lines = [(10, shared) for shared in SHARED]
    for nodes, shared in [*lines, *((nodes, SHARED[0]) for nodes in SCALES[1:])]:
        places = [(graph, nodes, shared) for graph in RAS_GRAPHS[1:]]
        found = _mean_sensitivities(own, places)
        if None not in found:
            told = ", ".join(f"{each:.1f}" for each in found)
            falls = sorted(found, reverse=True) == found
            yield Case(f"{nodes} nodes, {shared}", falls, told)


def _by_nodes(own: Results) -> Iterator[Case]:
    """Six and eight of ten nodes are the exceptions that the paper names."""
    for graph in RAS_GRAPHS[1:]:
        scales = SCALES[1:] if graph in ("d-out:6", "d-out:8") else SCALES
        found = _mean_sensitivities(own, [(graph, n, SHARED[0]) for n in scales])
        if None not in found:
            told = ", ".join(f"{each:.1f}" for each in found)
            yield Case(graph, max(found) <= 1.5 * min(found), told)


def _cost_of_estimate(own: Results) -> Iterator[Case]:
    for graph, shared in itertools.product(GRAPHS, (1, 2)):
        real = own.get(f"zhou table 3 {graph} {shared} b=5 gamma constant", {})
        used = own.get(figure_2(graph, shared).name, {})
        right = (*per_cent(real.get("accuracy")), *per_cent(used.get("accuracy")))
        if len(right) == 2:
            lost = right[0] - right[1]
            yield Case(f"{graph}, {shared} shared", lost <= 10, f"{lost:.1f}")


JUDGES = {
    "estimates": _estimates,
    "one_class": _one_class,
    "epsilons": _epsilons,
    "cost_of_estimate": _cost_of_estimate,
    "order": _order,
    "by_layers": _by_layers,
    "by_degree": _by_degree,
    "by_nodes": _by_nodes,
}
