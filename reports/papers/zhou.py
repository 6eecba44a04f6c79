"""Zhou, Xue and Chen, perturbed push-sum and PartPSP: cells, and what they say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from statistics import mean
from typing import Any

from reports import published, table, told
from reports.papers.programme import Case, Shown, per_cent, results_of, within
from reports.papers.running import staged
from reports.pushsum.cells import GAMMA_N
from reports.study import Cell, Results

SETTINGS = told(__file__)["zhou"]
METHODS, TRAINING = SETTINGS["METHODS"], SETTINGS["MLP"]
# Of its published code: steps and the noise's factor gamma_n fall tenfold with the
# fifth and the tenth of twelve epochs; its text has gamma_n constant.
WHOLE, FIRST = [[4, 1.0], [5, 0.1], [3, 0.01]], [[2, 1.0]]
NEAR = 25  # per cent between two peaks of one setting
DEGREES = ("exponential", "d-out:4", "d-out:6", "d-out:8")
BUDGETS = (1.0, 2.0, 3.0, None)


def _stages(epochs: list[list[float]], nodes: int) -> list[list[float]]:
    each = TRAINING["train"] // (nodes * 100)
    return [[count * each, factor, factor] for count, factor in epochs]


def name_of(method: str, graph: str, b: float | None) -> str:
    """By what a number of Table 2 is kept."""
    return f"zhou table 2 {method} {graph} b={'none' if b is None else f'{b:g}'}"


def one_class() -> Iterator[Cell]:
    """Figure 2 of the MLP by its stored settings, but that a node holds one class."""
    for line, replay in replays():
        if "Sensitivity/MLP" in line["trace"]:
            old = replay.settings["training"]
            training = {**old, "partition": "classes", "split": 1.0}
            name = f"zhou one class a node {old['graph']} {old['shared']}"
            yield Cell(name, staged, {**replay.settings, "training": training})


def cells() -> Iterator[Cell]:
    """Stored traces, which are Figures 2 to 4 and Table 3."""
    for _, replay in replays():
        yield replay
    yield from one_class()


def replays() -> Iterator[tuple[dict[str, Any], Cell]]:
    """Stored traces, each with the cell that replays it by the settings of its name.

    MLP: glyphs stand for MNIST, whose strokes are as thick; all else is theirs, but the
    start: of the pretrained ones, that of two shared layers alone is stored. D1 is what
    their plots draw as the exponential graph. Nothing is clipped: with a threshold of
    none, 200 or 1 in the name the first estimate is of the same gradient of norm 64.

    ResNet-18: with group norm, on Fashion-MNIST, from a start of ours, and two periods
    of synchronisation of ten nodes or one of more; what is real starts anew in each.
    """
    for line in table("zhou-traces"):
        nodes, sync, constant = line["nodes"], line["sync_interval"], line["constant"]
        net = SETTINGS["RESNET"] if "ResNet" in line["trace"] else {}
        parts = METHODS | SETTINGS["RESNETS"]
        training = {**TRAINING, **net, **parts[line["method"]]}
        training |= {key: line[key] for key in ("graph", "nodes", "sync_interval")}
        training |= {"sensitivity": "real", "step_size": line["step"]}
        if constant:
            training |= {"constant": constant, "decay": line["lambda"]}
            training["sensitivity"] = "published"
        settings: dict[str, Any] = {"multiplier": GAMMA_N / 5, "seed": 0}
        settings["stages"] = _stages(WHOLE if "ACC" in line["trace"] else FIRST, nodes)
        if net:
            settings["stages"] = [[sync * (2 if nodes == 10 else 1), 1.0, 1.0]]
            settings["tested"] = 100
        settings["training"] = training
        yield line, Cell(f"trace {line['trace']}", staged, settings)


def traces(own: Results, net: str) -> Iterator[tuple]:
    """The authors' stored traces of a network, and ours of the same settings."""
    for line, cell in replays():
        ours, peak = own.get(cell.name), line["real at most"]
        if net in line["trace"] and ours and "most" in ours:
            whole = ours["rounds"] == line["rounds"]
            theirs = line["real in the mean" if whole else "of the first 20"]
            yield (
                line["trace"].partition("elr")[0],
                line["rounds"],
                ours["rounds"],
                f"{peak:,.1f}",
                f"{ours['most']:,.1f}",
                f"{ours['most'] / peak - 1:+.0%}",
                f"{theirs:,.1f}",
                f"{ours['ras']:,.1f}",
                line["below"],
                ours["below"],
            )


def near(lines: Iterable[tuple]) -> list[tuple]:
    """Those whose peaks come out again."""
    return [line for line in lines if abs(int(line[5].rstrip("%"))) <= NEAR]


def folders() -> Iterator[tuple]:
    """Facts of the stored traces, by folder."""
    every = table("zhou-traces")
    for name, lines in itertools.groupby(every, lambda x: x["trace"].rsplit("/", 1)[0]):
        group = list(lines)
        of = [line for line in group if "/Real" not in line["trace"]]
        counts = [line["rounds"] for line in of]
        span, below = f"{min(counts)} to {max(counts)}", sum(x["below"] for x in of)
        yield name, len(group), len(of), span, sum(counts), below


def _estimates(own: Results) -> Iterator[Case]:
    """By the authors' own traces; then by ours of their settings."""
    for name, _, _, _, rounds, below in folders():
        yield Case(f"theirs, {name}", below == 0, f"{below} of {rounds}")
    if ours := near(traces(own, "MLP")):
        rounds, below = (sum(line[column] for line in ours) for column in (2, 9))
        name = f"here, by the settings of {len(ours)} of them"
        yield Case(name, below == 0, f"{below} of {rounds}")


def _figure_2() -> Iterator[tuple[str, float, float]]:
    """Largest estimate and largest real sensitivity of the authors' own traces."""
    for line in table("zhou-traces"):
        name = line["trace"].partition("elr")[0].removeprefix("Real_vs_Esti/")
        if name.startswith("Sensitivity"):
            yield name, float(line["estimated at most"]), float(line["real at most"])


def _peaks(own: Results) -> Iterator[Case]:
    for name, estimated, real in _figure_2():
        more = 100 * (estimated / real - 1)
        yield Case(f"theirs, {name}", 0 <= more <= 10, f"{more:.1f}")


def _partly(own: Results) -> Iterator[Case]:
    one, two = (real for name, _, real in _figure_2() if "MLP/10D2" in name)
    yield Case("theirs", one < 300 and two > 800, f"{one:.0f} of {two:.0f}")


def _one_class(own: Results) -> Iterator[Case]:
    for cell in one_class():
        if one := own.get(cell.name):
            name = cell.name.removeprefix("zhou one class a node ")
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


def _noise(b: float | None) -> str:
    return "none" if b is None else f"{b:.1f}"


def shown(own: Results) -> Iterator[Shown]:
    """Table 2 of two graphs, and the one account that there is of all rounds."""
    known = results_of("pushsum")
    if total := known.get("epsilon 1 0.001 720"):
        where = "PartPSP, d-out:2, b = 1 (glyphs, 1 000 records a node)"
        yield Shown(where, total["round"], total["record"])
    for method, printed in published("zhou")["table_2"].items():
        for b, graph in itertools.product((1.0, 3.0, None), DEGREES[::3]):
            if ours := own.get(name_of(method, graph, b)):
                noise = "no noise" if b is None else f"b = {b:g}"
                yield Shown(
                    f"{method}, {graph}, {noise}",
                    None if b is None else b / GAMMA_N,
                    printed=printed[_noise(b)][DEGREES.index(graph)],
                    ours=per_cent(ours["accuracy"]),
                )


def _order(own: Results) -> Iterator[Case]:
    """One layer above two and all, in more than three of four; then each."""
    each = []
    for b, graph in itertools.product(BUDGETS[:3], DEGREES):
        right = [
            per_cent(own.get(name_of(method, graph, b), {}).get("accuracy"))
            for method in METHODS
        ]
        if all(right):
            one, *others = (value for (value,) in right)
            told = f"{one - max(others):+.1f}"
            each.append((one > max(others), f"b = {b:g}, {graph}", told))
    if each:
        best = sum(wins for wins, *_ in each)
        yield Case("of all", best > 0.75 * len(each), f"best in {best} of {len(each)}")
        yield from (Case(name, None, told) for _, name, told in each)


def _counts(own: Results, claimed: str, method: str, *others: str) -> Iterator[Case]:
    """Cells with noise in which a method is above others: printed, then of our MLPs."""
    printed = published("zhou")["table_2"]
    wins = cells = ours = run = 0
    for b in BUDGETS[:3]:
        rows = [printed[name][_noise(b)] for name in (method, *others)]
        wins += sum(one > max(rest) for one, *rest in zip(*rows, strict=True))
        cells += len(rows[0])
        for graph in DEGREES:
            cells_of = (name_of(name, graph, b) for name in (method, *others))
            right = [own.get(name, {}).get("accuracy") for name in cells_of]
            if None not in right:
                ours, run = ours + (right[0] > max(right[1:])), run + 1
    yield Case("the printed table", wins == int(claimed), f"{wins} of {cells}")
    if run:
        yield Case("here, of those that were run", None, f"{ours} of {run}")


def _means(own: Results, column: str, of: slice) -> dict[str, dict[tuple, float]]:
    """Mean real sensitivities by nodes, graph and shared part, in order of degree."""
    found: dict[str, dict[tuple, float]] = {"theirs": {}, "here": {}}
    folder = "Partial_Test" if of.stop is None else "Network_Scale"
    for line, cell in replays():
        if line["trace"].startswith(folder):
            training = cell.settings["training"]
            shared = "ResNet-18" if "ResNet" in line["trace"] else training["shared"]
            key = training["nodes"], training["graph"], shared
            found["theirs"][key] = line[column]
            if real := own.get(cell.name, {}).get("real"):
                ours = own[cell.name]["ras"] if of.stop is None else mean(real[of])
                found["here"][key] = ours
    degree = lambda item: (item[0][0], int(item[0][1].partition(":")[2] or 0))  # noqa: E731
    return {
        whose: dict(sorted(means.items(), key=degree)) for whose, means in found.items()
    }


def figure_3(own: Results) -> dict[str, dict[tuple, float]]:
    """Means of all rounds, as the authors draw them."""
    return _means(own, "real in the mean", slice(None))


def figure_4(own: Results) -> dict[str, dict[tuple, float]]:
    """Means of the first 20 rounds, as the authors draw them."""
    return _means(own, "of the first 20", slice(20))


def _by_layers(own: Results) -> Iterator[Case]:
    for whose, means in figure_3(own).items():
        for (nodes, graph, shared), value in means.items():
            if shared != "layers:1":
                one = means.get((nodes, graph, "layers:1"), math.inf)
                many = 2 if shared == "layers:2" else 3
                told = f"{value / one:.1f}"
                yield Case(f"{whose}, {many} layers, {graph}", value > many * one, told)


def _lines(own: Results, along: int) -> Iterator[tuple[str, list[float]]]:
    """Means by degree (``along`` 1) or by number of nodes (0), in order."""
    for figure in (figure_3, figure_4)[1 - along :]:
        for whose, means in figure(own).items():
            lines: dict[tuple, list[float]] = {}
            for key, value in means.items():
                if key[1] != "exponential" or not along:
                    line = lines.setdefault((*key[:along], *key[along + 1 :]), [])
                    line.append(value)
            for key, values in lines.items():
                if len(values) > 3:
                    yield f"{whose}, {key[0]}, {key[1]}", values


def _by_degree(own: Results) -> Iterator[Case]:
    for name, values in _lines(own, 1):
        told = ", ".join(f"{value:.1f}" for value in values)
        yield Case(name, sorted(values, reverse=True) == values, told)


def _by_nodes(own: Results) -> Iterator[Case]:
    """Six and eight of ten nodes are the exceptions that the paper names."""
    for name, values in _lines(own, 0):
        of = values[1:] if "d-out:6" in name or "d-out:8" in name else values
        told = ", ".join(f"{value:.1f}" for value in of)
        yield Case(name, max(of) <= 1.5 * min(of), told)


def _cost_of_estimate(own: Results) -> Iterator[Case]:
    """Table 3, whose printed accuracies are the last of the stored ones."""
    stored = {line["trace"]: line for line in table("zhou-traces")}
    for name, line in stored.items():
        folder, _, trace = name.rpartition("/")
        if "ACC" not in folder or not trace.startswith("Esti"):
            continue
        graph, layers = trace[4:7], trace.partition("SL")[2][0]
        start, end = f"{folder}/Real{graph}", f"SL{layers}"
        (real,) = (one for one in stored if one.startswith(start) and end in one)
        of = f"{folder.rpartition('/')[2]}, {graph}, {layers} shared"
        lost = stored[real]["accuracy"] - line["accuracy"]
        yield Case(f"theirs, {of}", lost <= 10, f"{lost:.1f}")
        right = [own.get(f"trace {each}", {}).get("accuracy") for each in (real, name)]
        if None not in right:
            lost = 100 * (right[0] - right[1])
            yield Case(f"here, {of}", lost <= 10, f"{lost:.1f}")
