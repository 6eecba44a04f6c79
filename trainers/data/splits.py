"""Partitions of records among nodes."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import pathlib
import zipfile
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from trainers.data.records import Dataset


def class_shares(nodes: int, classes: int, t: float) -> np.ndarray:
    """A(t): the share of each class that each node holds, (nodes, classes).

    Eq. 8 of the paper of DP-DSGD: (1 - t) / N off i = j mod N, the rest there.
    """
    if not 0 <= t <= 1:
        raise ValueError(f"the split t must be in [0, 1], got {t}")
    shares = np.full((nodes, classes), (1 - t) / nodes)
    owner = np.arange(classes) % nodes
    shares[owner, np.arange(classes)] += t
    return shares


def split_by_class(data: Dataset, nodes: int, t: float) -> list[Dataset]:
    """Deal ``data`` to ``nodes`` nodes by `class_shares`; samples keep their order."""
    classes = int(data.targets.max()) + 1
    bounds = np.cumsum(class_shares(nodes, classes, t), axis=0)
    parts: list[list[Tensor]] = [[] for _ in range(nodes)]
    for label in range(classes):
        places = torch.nonzero(data.targets == label)[:, 0]
        # Rounded up or down by turns over the classes, so that nodes come out even.
        turn = (label + 0.5) / classes + 1e-9
        ends = np.floor(bounds[:, label] * len(places) + turn).astype(int)
        ends[-1] = len(places)
        for node, (start, end) in enumerate(
            zip(np.concatenate([[0], ends[:-1]]), ends, strict=True)
        ):
            parts[node].append(places[start:end])
    shares = [data.select(torch.sort(torch.cat(part)).values) for part in parts]
    for node, share in enumerate(shares):
        if len(share) == 0:
            raise ValueError(
                f"node {node} of {nodes} gets no records at t = {t}: there are "
                f"{classes} classes; use fewer nodes or a smaller t"
            )
    return shares


def split_evenly(data: Dataset, nodes: int, seed: int = 0) -> list[Dataset]:
    """Deal shuffled ``data``, sizes differing by one at most; samples keep order."""
    if nodes > len(data):
        raise ValueError(
            f"{len(data)} records cannot be dealt to {nodes} nodes; use fewer nodes"
        )
    shuffled = np.random.default_rng(seed).permutation(len(data))
    return _select(data, np.array_split(shuffled, nodes))


def split_by_dirichlet(
    data: Dataset, nodes: int, alpha: float, seed: int = 0
) -> list[Dataset]:
    """Deal each class by shares drawn from Dirichlet(alpha, ..., alpha).

    Hsu, Qi and Brown 2019. Drawn again, up to 100 times, while a node has no records.
    """
    if not 0 < alpha < math.inf:
        raise ValueError(f"the split's alpha must be > 0 and finite, got {alpha}")
    rng = np.random.default_rng(seed)
    targets = data.targets.numpy()
    for _ in range(100):
        owners = np.empty(len(data), dtype=int)
        for label in np.unique(targets):
            places = rng.permutation(np.flatnonzero(targets == label))
            shares = rng.dirichlet(np.full(nodes, alpha))
            ends = np.rint(np.cumsum(shares) * len(places)).astype(int)
            ends[-1] = len(places)
            owners[places] = np.searchsorted(ends, np.arange(len(places)), "right")
        if len(np.unique(owners)) == nodes:
            return _select(data, [np.flatnonzero(owners == n) for n in range(nodes)])
    raise ValueError(
        f"Dirichlet({alpha:g}) leaves one of {nodes} nodes without records, 100 times "
        "over; use a larger alpha or fewer nodes"
    )


def split_by_file(data: Dataset, nodes: int, path: str | pathlib.Path) -> list[Dataset]:
    """Deal by a file with the node's number, from 0, of each record in order.

    A .npz's array ``node``; else text, a number a line, or a CSV's column ``node``.
    """
    path = pathlib.Path(path)
    try:
        owners = _owners(path)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"cannot read node numbers from {path}: {error}; it takes one whole number "
            "a line, a CSV with a column node, or a .npz with an array node"
        ) from error
    if owners.shape != (len(data),):
        raise ValueError(
            f"{path} deals {len(owners)} records, but there are {len(data)}"
        )
    wrong = owners[(owners < 0) | (owners >= nodes)]
    if len(wrong):
        raise ValueError(
            f"{path} gives a record to node {wrong[0]}; nodes are 0 to {nodes - 1}"
        )
    missing = np.setdiff1d(np.arange(nodes), owners)
    if len(missing):
        raise ValueError(f"{path} gives no records to node {missing[0]} of {nodes}")
    return _select(data, [np.flatnonzero(owners == node) for node in range(nodes)])


def _owners(path: pathlib.Path) -> np.ndarray:
    content = path.read_bytes()
    if path.suffix == ".npz":
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            owners = np.asarray(file["node"])
        if not np.issubdtype(owners.dtype, np.integer):
            raise ValueError(f"its array node holds {owners.dtype}, not whole numbers")
        return owners.reshape(-1).astype(np.int64)
    rows = [row for row in csv.reader(io.StringIO(content.decode())) if row]
    column = 0
    if rows and not rows[0][0].strip().lstrip("-").isdigit():
        names = [name.strip() for name in rows[0]]
        if "node" not in names:
            raise ValueError(f"no column node among {', '.join(names)}")
        column, rows = names.index("node"), rows[1:]
    if any(len(row) <= column for row in rows):
        raise ValueError("a line is too short")
    return np.array([int(row[column]) for row in rows], dtype=np.int64)


def _select(data: Dataset, places: list[np.ndarray]) -> list[Dataset]:
    return [data.select(torch.from_numpy(np.sort(index))) for index in places]


@dataclasses.dataclass(frozen=True, slots=True)
class Partition:
    """A way of dealing: "classes", "even", "dirichlet:ALPHA", "file:PATH", "given"."""

    kind: Literal["classes", "even", "dirichlet", "file", "given"]
    value: str = ""

    @classmethod
    def parse(cls, text: str) -> Partition:
        kind, _, value = text.partition(":")
        if kind in ("classes", "even", "given") and not value:
            return cls(kind)
        if kind == "file" and value:
            return cls("file", value)
        if kind == "dirichlet":
            try:
                alpha = float(value)
            except ValueError:
                alpha = math.nan
            if 0 < alpha < math.inf:
                return cls("dirichlet", value)
        raise ValueError(
            f"the partition must be classes, even, dirichlet:ALPHA with ALPHA > 0, or "
            f"file:PATH, got {text!r}"
        )

    def __call__(
        self, data: Dataset, nodes: int, *, t: float = 0.0, seed: int = 0
    ) -> list[Dataset]:
        """Deal ``data`` to ``nodes`` nodes; ``t`` is that of A(t)."""
        if self.kind == "given":
            raise ValueError(
                "partition=given is of data that come as one set a node, and these are "
                "one set for all: choose classes, even, dirichlet:ALPHA or file:PATH"
            )
        if self.kind == "even":
            return split_evenly(data, nodes, seed)
        if self.kind == "dirichlet":
            return split_by_dirichlet(data, nodes, float(self.value), seed)
        if self.kind == "file":
            return split_by_file(data, nodes, self.value)
        return split_by_class(data, nodes, t)
