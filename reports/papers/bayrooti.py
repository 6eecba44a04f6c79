"""Bayrooti, Gao and Prorok (2023), consensus algorithms: cells, and what they say."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from typing import Any

from privaudit.results import round_down
from reports import published as facts
from reports import told
from reports.consensus import cells as consensus
from reports.papers.programme import (
    Case,
    Shown,
    above,
    both,
    loses,
    per_cent,
    results_of,
)
from reports.papers.running import trained
from reports.study import Cell, Results

SETTINGS = told(__file__)["bayrooti"]
VALUES = SETTINGS["VALUES"]
SEEDS = 3
INVARIANT = ("DSGT", "DiNNO")
ENDS = (consensus.GRAPHS[0], consensus.GRAPHS[-1])
SPARSER = consensus.GRAPHS[-2:]
SEARCHED = 200  # rounds of each try


def _name(method: str, epsilon: float | None, graph: str, split: float) -> str:
    budget = "none" if epsilon is None else f"{epsilon:g}"
    return f"{method} {budget} {graph} t={split:g}"


def _starts(method: str, epsilon: float | None) -> list[dict[str, Any]]:
    """Starts of a search: the published settings whole, then our own."""
    published, ours = consensus.starts(method, epsilon)
    return [{**published, **(SETTINGS["CENTRAL"] if method == "central" else {})}, ours]


def tuned(
    method: str,
    epsilon: float | None,
    values: dict[str, Any],
    seed: int,
    found: dict[str, Any],
) -> dict[str, Any]:
    """One run with what its search chose."""
    (search,) = found.values()
    training = consensus.settings_of(method, epsilon, {**values, **search["chosen"]})
    return trained(training, epsilon, consensus.DELTA, "certified", seed)


def published(
    method: str, epsilon: float | None, graph: str, split: float, seed: int = 0
) -> Cell:
    """One run with the published settings as they stand."""
    values = {**VALUES, "graph": graph, "split": split}
    point = _starts(method, epsilon)[0]
    training = consensus.settings_of(method, epsilon, {**values, **point})
    known = {"epsilon": epsilon, "delta": consensus.DELTA, "how": "certified"}
    settings = {"training": training, **known, "seed": seed}
    where = _name(method, epsilon, graph, split) + (f" seed={seed}" if seed else "")
    return Cell(f"published bayrooti {where}", trained, settings)


def _places() -> dict[tuple[str, float | None, str, float], None]:
    """Table 1, then what Table 2 has besides; the ends of both tables first."""
    epsilons = sorted(consensus.EPSILONS, key=lambda e: e not in (10.0, 1.0))
    graphs = (*consensus.GRAPHS[::3], *consensus.GRAPHS[1:3])
    return consensus.places(*itertools.product(epsilons, graphs, consensus.METHODS))


def cells() -> Iterator[Cell]:
    """Published settings, then a search and seeds for each cell of the tables."""
    for place in _places():
        yield published(*place)
        if place[2] in (*ENDS, *SPARSER) and place[3] == 1.0:
            for seed in range(1, SEEDS):
                yield published(*place, seed)
    searched: set[str] = set()
    for method, epsilon, graph, split in _places():
        settings: dict[str, Any] = {"method": method, "epsilon": epsilon}
        # At both ends of connectivity; other graphs and splits take the sparsest's.
        at = consensus.GRAPHS[0 if graph == consensus.GRAPHS[0] else -1]
        search = f"search bayrooti {_name(method, epsilon, at, 1.0)}"
        if search not in searched:
            searched.add(search)
            short = {**VALUES, "graph": at, "split": 1.0, "rounds": SEARCHED}
            more = {"values": short, "begin": _starts(method, epsilon)}
            yield Cell(search, consensus.find, {**settings, **more})
        settings["values"] = {**VALUES, "graph": graph, "split": split}
        for seed in range(SEEDS):
            name = f"bayrooti {_name(method, epsilon, graph, split)} seed={seed}"
            yield Cell(name, tuned, {**settings, "seed": seed}, needs=(search,))


def _accuracies(
    method: str, epsilon: float | None, graph: str, split: float = 1.0
) -> list[float]:
    known = results_of("consensus").get(f"{method} {epsilon} {graph} {split}")
    return [] if known is None else known["accuracy"]


def shown(own: Results) -> Iterator[Shown]:
    """Table 1 at both ends of connectivity; the CNN's where it was computed."""
    cnn = {epsilon: _runs(own, epsilon) for epsilon in consensus.EPSILONS}
    for graph in ENDS:
        for method, printed in facts("bayrooti")["table_1"][graph].items():
            for epsilon, (mean, _) in zip(consensus.EPSILONS, printed, strict=True):
                whole = per_cent(cnn[epsilon].get((method, graph)))
                where = f"{method}, {graph}, {_budget(epsilon)}"
                yield Shown(
                    where + (" (CNN)" if whole else ""),
                    claimed=epsilon,
                    printed=mean,
                    ours=whole or per_cent(_accuracies(method, epsilon, graph)),
                )


def _budget(epsilon: float | None) -> str:
    return "no privacy" if epsilon is None else f"epsilon {epsilon:g}"


def _loses(
    own: Results, methods: str, most: str, least: str, *graphs: str
) -> Iterator[Case]:
    """Points lost to a sparser graph, from end to end unless said, from a budget on."""
    between = [consensus.GRAPHS[int(graph)] for graph in graphs or (0, -1)]
    for name, epsilon in itertools.product(methods.split("+"), consensus.EPSILONS):
        ends = [_accuracies(name, epsilon, graph) for graph in between]
        if all(ends) and (epsilon is None or epsilon >= float(least)):
            of = f"{name}, " if graphs else ""
            yield Case(of + _budget(epsilon), *loses(ends[0], ends[1], float(most)))


def _by_split(own: Results, method: str, most: str) -> Iterator[Case]:
    """Points lost from shares that are alike to one class a node, sparsest graph."""
    for epsilon in (10.0, 0.5):
        ends = [_accuracies(method, epsilon, ENDS[1], split) for split in (0.0, 1.0)]
        yield Case(_budget(epsilon), *loses(ends[0], ends[1], float(most)))


def _less_by_split(own: Results, one: str, other: str, at: str) -> Iterator[Case]:
    """Points that ``other`` loses more than ``one`` by the split, pairs of seeds."""

    def lost(name: str) -> list[float]:
        ends = [_accuracies(name, float(at), ENDS[1], split) for split in (0.0, 1.0)]
        return [even - alone for even, alone in zip(*ends, strict=True)]

    yield Case(_budget(float(at)), *above(lost(other), lost(one)))


def _drops(own: Results, epsilon: str, least: str, *methods: str) -> Iterator[Case]:
    """Methods that lose more than ``least`` points there."""
    for method in methods:
        cases = {case.name.split()[-1]: case for case in _by_split(own, method, least)}
        _, kept, told, seeds, _ = cases[epsilon]
        yield Case(method, None if kept is None else not kept, told, seeds)


def _central(own: Results, most: str = "", at: str = "") -> Iterator[Case]:
    """Against the best of the others that were run, each told."""
    for epsilon in [float(at)] if at else consensus.EPSILONS:
        runs = {
            f"{method} ({graph})": accuracy
            for method in list(consensus.METHODS)[1:]
            for graph in consensus.GRAPHS
            if (accuracy := _accuracies(method, epsilon, graph))
        }
        if runs and (central := _accuracies("central", epsilon, "complete")):
            best = max(runs, key=lambda name: statistics.mean(runs[name]))
            name = f"{_budget(epsilon)}, of {len(runs)} {best}"
            near = loses(central, runs[best], float(most or 0))
            yield Case(name, *(near if most else above(central, runs[best])))


def _audited(own: Results) -> Iterator[Case]:
    known = results_of("audits").starting("black-box clipbkd ")
    larger = own.starting("audit bayrooti dp-")  # without privacy nothing is claimed
    found = {**known, **{f"dp-{name} (CNN)": one for name, one in larger.items()}}
    for name, one in found.items():
        yield Case(name, one["best"] <= one["epsilon"], round_down(one["best"], 2))


def _sparsest_alone(own: Results, method: str, least: str) -> Iterator[Case]:
    """Points lost from Fiedler 0.7 to 0.39 and to 0.06, all three tuned alike."""
    most = float(least)
    for epsilon in consensus.EPSILONS:
        runs = [_accuracies(method, epsilon, graph) for graph in consensus.GRAPHS[1:]]
        if all(runs):
            there, elsewhere = (loses(runs[0], runs[k], most) for k in (2, 1))
            alone = both(None if there[0] is None else not there[0], elsewhere[0])
            told = f"{there[1].split()[0]} there, {elsewhere[1].split()[0]} before"
            yield Case(_budget(epsilon), alone, told, there[2])


def _runs(own: Results, epsilon: float | None, study: str = "published ") -> Any:
    """Accuracies of seeds by method and graph, one class a node; as published."""
    found: dict[tuple[str, str], list[float]] = {}
    for place in itertools.product(consensus.METHODS, consensus.GRAPHS):
        name = f"{study}bayrooti {_name(place[0], epsilon, place[1], 1.0)}"
        for at in (name, *(f"{name} seed={seed}" for seed in range(SEEDS))):
            if at in own:
                found.setdefault(place, []).append(own[at]["accuracy"])
    return found


def _with_cnn(own: Results) -> Iterator[Case]:
    """Points lost from end to end where settings were searched for."""
    for epsilon, method in itertools.product(consensus.EPSILONS, INVARIANT):
        if all(ends := [_runs(own, epsilon, "").get((method, at), []) for at in ENDS]):
            kept, lost, seeds = loses(ends[0], ends[1], 5)
            name = f"{method}, {_budget(epsilon)}, tuned for these data, seeds: {seeds}"
            yield Case(name, kept, lost, seeds)


def _as_published(own: Results, at: str, *given: str) -> Iterator[Case]:
    """Table 1 by published settings: who is first there, points beside and lost."""
    epsilon = None if at == "none" else float(at)
    runs, (first, near, least) = _runs(own, epsilon), given or ("central", "3", "5")
    if not (central := runs.pop(("central", ENDS[0]), [])):
        return
    ends = central, runs[best := max(runs, key=lambda of: statistics.mean(runs[of]))]
    if first == "central":
        yield Case(f"central above the best, {' on '.join(best)}", *above(*ends))
    if first in ("central", "level"):
        yield Case(f"the best within {near} points", *loses(*ends, int(near)))
    else:
        yield Case(f"{first} above central", *above(runs[first, ENDS[0]], central))
    most_lost = ("DSGT", 2), ("DiNNO", int(least)), ("DSGD", 2)
    for (method, most), graph in itertools.product(most_lost, SPARSER):
        ends = runs[method, ENDS[0]], runs[method, graph]
        if (method, graph) == ("DSGD", ENDS[1]):  # the one that is to lose
            yield Case(f"DSGD lower on {graph}", *above(*ends))
        else:
            yield Case(f"{method} within {most} points on {graph}", *loses(*ends, most))
