"""Finds graphs and mixing weights by name."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Literal

import numpy as np

from privaudit.files.arguments import near
from privaudit.files.folder import MOST_TEXT, opened_regular
from trainers.network import graphs
from trainers.network.mixing import Mixing, WeightName
from trainers.network.topology import Topology

_PLAIN: dict[str, Callable[[int], Topology]] = {
    "complete": graphs.complete,
    "path": graphs.path,
    "ring": graphs.ring,
    "torus": graphs.torus,
    "star": graphs.star,
    "directed-ring": graphs.directed_ring,
    "butterfly": graphs.of_sums,
    "halving": functools.partial(graphs.of_sums, kind="halving"),
    "chain": functools.partial(graphs.of_sums, kind="chain"),
    "exponential": graphs.exponential,
    "exp": graphs.exponential,
}
_WITH_NUMBER: dict[str, Callable[[int, float, int], Topology]] = {
    "erdos-renyi": graphs.erdos_renyi,
    "fiedler": graphs.with_fiedler,
    "d-out": lambda nodes, number, seed: graphs.d_out(nodes, _whole(number)),
}
GRAPHS = (
    *_PLAIN,
    "erdos-renyi:PROBABILITY",
    "fiedler:VALUE",
    "d-out:D",
    "edges:FILE",
    "arcs:FILE",
    "matrix:FILE",
)
Weights = WeightName | Literal["given"]


def check_graph(name: str) -> None:
    """``ValueError`` unless ``name`` begins as one of `GRAPHS` does."""
    if name.partition(":")[:2] not in {one.partition(":")[:2] for one in GRAPHS}:
        raise ValueError(f"there is no graph {name!r}; {near(name, GRAPHS)}")


def topology(name: str, nodes: int, *, seed: int = 0) -> Topology:
    """The graph that ``name`` says: one of `GRAPHS` but ``matrix``.

    ``edges:FILE`` and ``arcs:FILE`` read two node numbers a line, with a comma between
    them, joined both ways or from the first to the second. ``seed`` is that of random
    graphs.
    """
    check_graph(name)
    kind, _, text = name.partition(":")
    if kind in _PLAIN:
        return _PLAIN[kind](nodes)
    if kind in _WITH_NUMBER:
        try:
            number = float(text)
        except ValueError:
            raise ValueError(f"graph {name!r}: {text!r} is no number") from None
        return _WITH_NUMBER[kind](nodes, number, seed)
    table = _read(pathlib.Path(text))
    if table.ndim != 2 or table.shape[1] != 2 or (table != table.astype(int)).any():
        raise ValueError(f"{text}: an edge is two whole numbers, with a comma")
    pairs = [(int(one), int(other)) for one, other in table]
    return Topology.of_edges(nodes, pairs, directed=kind == "arcs")


def mixing(name: str, weights: Weights, nodes: int, *, seed: int = 0) -> Mixing:
    """Weights by name on a graph by name.

    ``matrix:FILE`` reads the weights themselves, a row a line with commas; ``weights``
    must then be ``given``, and may not be so elsewhere.
    """
    if not name.startswith("matrix:"):
        if weights == "given":
            raise ValueError(f"graph {name!r} gives no weights: only matrix:FILE does")
        return Mixing.of(topology(name, nodes, seed=seed), weights)
    if weights != "given":
        raise ValueError(
            f"graph {name!r} has weights of its own, but {weights} ones were set; "
            "set weights=given"
        )
    matrix = Mixing(_read(pathlib.Path(name.removeprefix("matrix:"))))
    if matrix.nodes != nodes:
        raise ValueError(
            f"graph {name!r} has {matrix.nodes} nodes, but nodes = {nodes} was set"
        )
    return matrix


def _read(path: pathlib.Path) -> np.ndarray:
    try:
        with opened_regular(path, MOST_TEXT):  # settings may be anybody's
            return np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as numbers: {error}") from error


def _whole(number: float) -> int:
    if number != int(number):
        raise ValueError(f"d of a d-out graph must be a whole number, got {number:g}")
    return int(number)
