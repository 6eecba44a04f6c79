"""Deep-Q learning based collaborative SGD without replacement: tables and figures.

The paper has no short name of authors here; elsewhere it is called paper 002.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

from reports import unsettled
from reports.collaborative import cells as collaborative
from reports.collaborative.page import PRINTED
from reports.papers.programme import (
    NOTHING,
    Claim,
    Judged,
    Row,
    Shown,
    above,
    compared,
    per_cent,
    verdict,
    within,
)
from reports.papers.size import Size, parameters
from reports.study import Cell, Results

TITLE = "Deep-Q collaboration without replacement"
LABELS = (
    "claimed, of one class",
    "certified for the paper's noise, all classes (ten nodes, 6 000 records each)",
)
FIGURES = {  # data and case; Covertype's stand-in is forest
    "Figure 1": ("forest", "convex"),
    "Figure 2": ("forest", "strongly convex"),
    "Figure 3": ("fashion-mnist-pca", "convex"),
    "Figure 4": ("fashion-mnist-pca", "strongly convex"),
}
EPSILONS = (0.25, 0.5, 1.0)
POLICIES = ("noiseless", "fully collaborative", "DP-SGD with replacement", "deep-Q")
NODES, RECORDS, BATCH = 10, 6000, 50  # 60 000 over ten nodes
PRINTED_RECORDS = 60_000  # a node, in the tables
TABLES_RECORDS = 20_000  # as many as forest has for twenty nodes
TABLES = {"Table I": "forest", "Table II": "glyphs-pca"}  # as collaborative has them
SEEDS = 3
FIVE = "the baseline makes five passes, in the paper too, the others one"
STEPS = {
    "forest": "convex steps of 0.5, printed 0.1",
    "strongly convex": "steps from 0.45 to 0.045 where strongly convex",
    "baseline": "the baseline's steps are those of the others, printed 1 / sqrt(t)",
}
PAPERS_DATA = {"forest": "Covertype", "fashion-mnist-pca": "MNIST"}


def _figure(item: str) -> Row:
    data, case = FIGURES[item]
    return Row(
        item,
        f"accuracy by policy and epsilon, {case}, ten nodes",
        Size(
            RECORDS / BATCH,
            NODES,
            BATCH,
            parameters("one-vs-all", data),
            cells=(len(POLICIES) - 1) * len(EPSILONS) + 1,
        ),
        f"{PAPERS_DATA[data]}, 60 000 records",
        assumed=f"{len(EPSILONS)} epsilons: size is of records and nodes",
        differs="; ".join(
            (
                "a drawn stand-in for Covertype"
                if data == "forest"
                else "Fashion-MNIST for MNIST",
                *([STEPS["forest"]] if (data, case) == ("forest", "convex") else []),
                *([STEPS[case]] if case in STEPS else []),
                STEPS["baseline"],
                FIVE,
            )
        ),
        sources=(("papers", f"deep-q {data} | {case} | joint | *"),),
        pilot=f"deep-q {data}",
    )


def _table(item: str, stand_in: str) -> Row:
    data = TABLES[item]
    return Row(
        item,
        "accuracy by policy and number of nodes, convex and strongly convex, epsilon 1",
        Size(PRINTED_RECORDS / BATCH, 20, BATCH, parameters("one-vs-all", data), 1, 28),
        f"{'Covertype' if data == 'forest' else 'MNIST'}, 60 000 records a node",
        differs="; ".join(
            (
                stand_in,
                *([STEPS["forest"]] if data == "forest" else []),
                STEPS["strongly convex"],
            )
        ),
        sources=(
            ("papers", f"deep-q {item} | *"),
            ("collaborative", f"{data} | * | * | * | joint | 1.0"),
        ),
        pilot="deep-q fashion-mnist-pca" if data != "forest" else "deep-q forest",
    )


ROWS = [
    *map(_figure, FIGURES),
    _table(
        "Table I",
        "a drawn stand-in for Covertype; so many disjoint records are not to be had",
    ),
    _table(
        "Table II",
        "Fashion-MNIST for MNIST; each node draws its records of the same 60 000, so "
        "that epsilon 1 is of a record at one node alone",
    ),
]


def cell(data: str, case: str, policy: str, noise: str, epsilon: float) -> Cell:
    """One curve's point of a figure: some runs as one block."""
    step = collaborative.STEPS.get(data, {"convex": 0.1}).get(case, 0.45)
    training: dict[str, Any] = {
        **collaborative.COMMON,
        "data": data,
        "train": NODES * RECORDS,
        "nodes": NODES,
        "rounds": RECORDS // BATCH,
        "step_size": step,
        **collaborative.CASES[case],
        **collaborative.POLICIES[policy],
    }
    if policy == "DP-SGD with replacement":
        training["rounds"] = 5 * RECORDS // BATCH
    settings = {"training": training, "noise": noise, "epsilon": epsilon}
    settings |= {"seeds": SEEDS, "tested": 10_000}
    name = " | ".join((f"deep-q {data}", case, noise, policy, f"{epsilon:g}"))
    return Cell(name, collaborative.trained, settings)


def table(item: str, nodes: int, case: str, policy: str) -> Cell:
    """One number of Table I or II, under the exact account of all classes."""
    data = TABLES[item]
    older = collaborative.cell(data, nodes, case, policy, "joint").settings
    training = {
        **older["training"],
        "train": nodes * TABLES_RECORDS,
        "rounds": TABLES_RECORDS // BATCH,
    }
    settings = {**older, "training": training, "seeds": 1}
    if item == "Table II":
        # There are no more images: a node draws its own of the same ones.
        training |= {"data": "fashion-mnist-pca", "train": PRINTED_RECORDS}
        settings["drawn"] = TABLES_RECORDS
    name = f"deep-q {item} | {nodes} | {case} | {policy}"
    return Cell(name, collaborative.trained, settings)


def pilots() -> Iterator[Cell]:
    """The costliest policy, some turns."""
    for data in ("forest", "fashion-mnist-pca"):
        one = cell(data, "convex", "deep-Q", "joint", 1.0)
        training = {**one.settings["training"], "rounds": 10, "train": 20_000}
        settings = {**one.settings, "training": training, "seeds": 1, "tested": 100}
        yield Cell(f"pilot deep-q {data}", one_run, settings)


def one_run(**settings: Any) -> dict[str, float]:
    """Processor seconds of a training whose data are at hand."""
    collaborative.trained(**settings)  # data are read, and kept
    began = time.process_time()
    collaborative.trained(**settings)
    return {"cpu": time.process_time() - began}


def cells() -> Iterator[Cell]:
    """All points of the four figures, under the exact account and the paper's noise."""
    for noise in ("joint", "paper"):
        for data, case in FIGURES.values():
            for policy in POLICIES:
                for epsilon in EPSILONS if policy != "noiseless" else (0.0,):
                    if policy == "noiseless" and noise == "paper":
                        continue
                    yield cell(data, case, policy, noise, epsilon)
    for item, case, nodes in itertools.product(
        TABLES, collaborative.CASES, collaborative.NODES
    ):
        for policy in ("noiseless", "fully collaborative", "deep-Q"):
            if (nodes, policy) != (1, "deep-Q"):  # as in the paper
                yield table(item, nodes, case, policy)


def _differences(own: Results, other: str, noise: str) -> dict[str, Any]:
    """Points of deep-Q above another policy, by figure and epsilon."""
    points = {}
    for item, (data, case) in FIGURES.items():
        for epsilon in EPSILONS:
            found = [
                own.get(cell(data, case, policy, noise, epsilon).name)
                for policy in ("deep-Q", other)
            ]
            if all(found):
                name = f"{item}, epsilon {epsilon:g}"
                points[name] = above(*(one["accuracy"] for one in found if one))
    return points


def _above(own: Results, other: str, noise: str) -> Judged:
    """Whether deep-Q is above another policy in each figure and epsilon."""
    return compared(_differences(own, other, noise))


def _with_paper_s_noise(own: Results) -> Judged:
    """Against DP-SGD with replacement, whose certified epsilons differ much."""
    other = "DP-SGD with replacement"
    judged = _above(own, other, "paper")
    times = []
    for (data, case), epsilon in itertools.product(FIGURES.values(), EPSILONS):
        found = [
            own.get(cell(data, case, policy, "paper", epsilon).name)
            for policy in ("deep-Q", other)
        ]
        if all(found):
            one, less = (each["account"] for each in found if each)
            times.append(one / less)
    if not times:
        return judged
    unequal = (
        f"certified epsilons of deep-Q are {min(times):.0f} to {max(times):.0f} times "
        "the other's"
    )
    return judged._replace(
        told=f"{judged.told}; {unequal}", brief=f"{judged.brief}; {unequal}"
    )


def _single(own: Results, item: str, nodes: int, case: str, policy: str) -> Any:
    """Accuracy of a cell of the tables, of one seed; None if it was not run."""
    return own.get(table(item, nodes, case, policy).name, {}).get("accuracy", [None])[0]


PLACES = tuple(itertools.product(TABLES, collaborative.CASES))


def _together(apart: dict[str, float]) -> Judged:
    """Of differences that have one seed each: their mean must be above 0."""
    if not apart:
        return Judged("cannot say", NOTHING)
    higher = sum(each > 0 for each in apart.values())
    wins, points = above([*apart.values()], [0.0] * len(apart), paired=True)
    least, most = (f"{100 * pick(apart.values()):+.1f}" for pick in (min, max))
    brief = (
        f"above in {higher} of {len(apart)}, one seed each; {points} in the mean, "
        f"{least} to {most}"
    )
    word = verdict([wins]) if wins is None or higher == len(apart) else "holds in part"
    each = ", ".join(f"{100 * gain:+.1f} ({name})" for name, gain in apart.items())
    return Judged(word, f"{brief}: {each}", brief)


def _in_tables(own: Results) -> Judged:
    """Deep-Q against full collaboration in Tables I and II; figures are beside."""
    apart = {}
    for (item, case), nodes in itertools.product(PLACES, collaborative.NODES[1:]):
        found = [
            _single(own, item, nodes, case, policy)
            for policy in ("deep-Q", "fully collaborative")
        ]
        if None not in found:
            apart[f"{item}, {case}, {nodes} nodes"] = found[0] - found[1]
    judged = _together(apart)
    figures = _above(own, "fully collaborative", "joint")
    beside = figures.brief or figures.told
    return judged._replace(told=f"{judged.told}; Figures 1 to 4, three seeds: {beside}")


def _by_nodes(own: Results) -> Judged:
    """Both policies, from three to twenty nodes of Tables I and II."""
    apart = {}
    for item, case in PLACES:
        for policy in ("deep-Q", "fully collaborative"):
            few, many = (_single(own, item, n, case, policy) for n in (3, 20))
            if None not in (few, many):
                apart[f"{item}, {case}, {policy}"] = many - few
    return _together(apart)


def _near(own: Results) -> Judged:
    """Deep-Q below the noiseless at twenty nodes."""
    cases, words = [], []
    for item, case in PLACES:
        most = 4 if TABLES[item] == "forest" else 6
        found = [_single(own, item, 20, case, p) for p in ("noiseless", "deep-Q")]
        if None not in found:
            lost = 100 * (found[0] - found[1])
            cases.append(lost <= most)
            words.append(f"{lost:.1f} of {most} ({item}, {case})")
    if not cases:
        return Judged("cannot say", NOTHING)
    told = f"points lost: {', '.join(words)}; a third of the records, one seed"
    return Judged.of(cases, told)


def _theirs(own: Results, data: str, case: str) -> float | None:
    """What the paper's noise for epsilon 1 is certified for, at a figure's size."""
    name = cell(data, case, "fully collaborative", "paper", 1.0).name
    return own.get(name, {}).get("account")


def shown(own: Results) -> Iterator[Shown]:
    """Tables I and II with ten nodes; ours at epsilon 1 for all classes together."""
    place = collaborative.NODES.index(10)
    items = {data: item for item, data in TABLES.items()}
    for (data, case, policy), printed in PRINTED.items():
        item = items[data]
        private = policy != "noiseless"
        figures = "forest" if data == "forest" else "fashion-mnist-pca"
        yield Shown(
            f"{item}, {case}, {policy}",
            1.0 if private else None,
            _theirs(own, figures, case) if private else None,
            printed[place],
            per_cent(_single(own, item, 10, case, policy)),
        )


def _epsilons(own: Results) -> Judged:
    """At the figures' size."""
    found = {
        f"{item}, {case}": (1.0, certified)
        for item, (data, case) in FIGURES.items()
        if (certified := _theirs(own, data, case)) is not None
    }
    return within(found)


def _drawn_by_several(own: Results) -> Judged:
    """Of Table II, where each node draws its records by itself from the same ones."""
    cases = {}
    for nodes in collaborative.NODES[1:]:
        name = table("Table II", nodes, "convex", "fully collaborative").name
        if name in own:
            cases[f"{nodes} nodes"] = (1.0, own[name]["held by all"])
    judged = within(cases)
    return judged._replace(told=f"{judged.told}; delta = 1 / n^2, n counting copies")


CLAIMS = [
    Claim(
        "Deep-Q is above full collaboration, at the same epsilon for all classes "
        "together (Tables I and II)",
        _in_tables,
        "above in 16 of 16; +0.6 to +12.9 points",
    ),
    Claim(
        "Deep-Q is above full collaboration with the paper's noise (Figures 1 to 4)",
        lambda own: _above(own, "fully collaborative", "paper"),
    ),
    Claim(
        "Deep-Q is above DP-SGD with replacement at the same epsilon, the latter in "
        "five passes (Figures 1 to 4)",
        lambda own: _above(own, "DP-SGD with replacement", "joint"),
        unsettled=unsettled.BASELINE,
    ),
    Claim(
        "Deep-Q is above DP-SGD with replacement with the paper's noise",
        _with_paper_s_noise,
        unsettled=unsettled.BASELINE,
    ),
    Claim(
        "The paper's noise for epsilon 1 is certified for all classes' models together",
        _epsilons,
        ours=True,
    ),
    Claim(
        "In Table II nodes hold the same images (60 000 a node of MNIST's 60 000, "
        "read literally, is every image at every node): noise for epsilon 1 of a "
        "record at one node is enough for one that all nodes hold",
        _drawn_by_several,
        ours=True,
    ),
    Claim(
        "The more nodes, the higher the accuracy, of deep-Q and full collaboration "
        "(from 3 to 20)",
        _by_nodes,
    ),
    Claim(
        "With twenty nodes privacy costs deep-Q at most 6 points on MNIST and 4 on "
        "Covertype",
        _near,
        "5.8 and 6.0; 2.9 and 3.7",
    ),
]


def answer(own: Results) -> str:
    """In a sentence."""
    with_replacement = _above(own, "DP-SGD with replacement", "joint")
    return (
        f"Deep-Q against full collaboration: {_in_tables(own).brief} (and only if "
        "nobody looks at who updates); against DP-SGD with replacement at the same "
        f"epsilon: {with_replacement.brief or with_replacement.told} (not settled: "
        f"{unsettled.BASELINE}); the paper's noise is {_epsilons(own).brief}, of all "
        "classes."
    )
