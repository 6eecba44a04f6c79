"""View of a run as a linear map of all its noisy gradients.

Gossip, gradient tracking, push-sum and steps down a gradient are linear in the start
and in the gradients, and treat all coordinates alike; gradients enter nowhere else. So
one run of the algorithm itself, from zero, in which coordinate c stands for the c-th
gradient (the first for the start), writes down the whole map: nothing of an algorithm
has to be said twice. A random run checks that it is linear.

With noise of known scale in every gradient, x = M (a + S xi) + start; what is seen
fixes the projection of xi on the rows of M S, and nothing else of it. A gradient that
lies in them is read off exactly; of another, that projection is the best linear guess
(what a Kalman filter and smoother would give), its share Pi_tt of the variance known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from privaudit.auditing.attacks.canaries import CANARY_NODE
from trainers.algorithms.collaborative.runner import Collaboration
from trainers.network.engine import KnowsPlaces
from trainers.runs.problem import Problem

_MOST_VALUES = 20_000_000  # of the map: 160 MB
_LINEAR = 1e-9  # relative departure of a random run that is still rounding

MODEL = "model"  # what no message is named: a model after so many rounds
Told = tuple[int, str, int]  # round, name of the message, and whose


@dataclasses.dataclass(eq=False)
class Record:
    """Keeps, in a fixed order, what is seen; all coordinates, or what is made of them.

    ``heard``: whose messages, for round k number k modulo their number; None: none.
    ``models``: all after each round; ``final``: number of rounds, after the last alone.
    ``along``: what is kept of (runs, dims); None: all. ``colluding``: all nodes but the
    canary's tell their noisy gradients, after all else, in `LinearMap.inputs`' order.
    """

    heard: Sequence[Sequence[int]] | None
    _: dataclasses.KW_ONLY
    dims: int | None = None  # of messages that are kept
    models: bool = False
    final: int | None = None
    along: Callable[[Tensor], Tensor] | None = None
    colluding: bool = False
    # (runs, dims), or what is kept of them
    rows: list[Tensor] = dataclasses.field(default_factory=list, init=False)
    # of each row
    told: list[Told] = dataclasses.field(default_factory=list, init=False)
    _told_by: dict[tuple[int, int], Tensor] = dataclasses.field(
        default_factory=dict, init=False
    )

    def messages(self, k: int, sent: Mapping[str, Tensor]) -> None:
        """See what the heard ones send in round ``k``."""
        if self.heard is None:
            return
        for name in sorted(sent):
            # Weights of push-sum and other numbers of the graph alone say nothing.
            if sent[name].shape[-1] == self.dims:
                for node in self.heard[k % len(self.heard)]:
                    self._keep(sent[name][:, node], (k, name, node))

    def after_round(self, done: int, models: Tensor) -> None:
        """See all models."""
        if self.models and self.final in (None, done):
            for node in range(models.shape[1]):
                self._keep(models[:, node], (done, MODEL, node))

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        """See the noisy gradients of those that collude."""
        for column, node in enumerate(nodes):
            if node != CANARY_NODE:
                self._told_by[node, index] = self._made(gradient[:, column])

    def _keep(self, row: Tensor, told: Told) -> None:
        self.told.append(told)
        self.rows.append(self._made(row))

    def _made(self, row: Tensor) -> Tensor:
        return row.clone() if self.along is None else self.along(row)

    def stacked(self) -> Tensor:
        """(runs, outputs, dims), or what is kept of these, in double precision."""
        also = [self._told_by[key] for key in sorted(self._told_by)]
        return torch.stack(self.rows + also, 1).double()


class _Script:
    """An oracle that answers with given gradients and keeps where it was asked."""

    def __init__(self, nodes: int, answers: Mapping[tuple[int, int], Tensor]) -> None:
        self.nodes = nodes
        self.runs = 1
        self.answers = answers
        self.asked: dict[tuple[int, int], Tensor] = {}  # (node, index): (dims,)
        self._count = [0] * nodes

    def releases_of(self, node: int) -> int:
        """Number of releases of ``node``."""
        return self._count[node]

    def gradient(self, at: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        result = torch.zeros_like(at)
        for row, node in enumerate(range(self.nodes) if nodes is None else nodes):
            key = (node, self._count[node])
            self._count[node] += 1
            self.asked[key] = at[0, row].clone()
            if key in self.answers:
                result[0, row] = self.answers[key]
        return result


@dataclasses.dataclass(frozen=True, eq=False)
class LinearMap:
    """x = seen @ (start, gradients), coordinate by coordinate."""

    inputs: tuple[tuple[int, int], ...]  # (node, index) of each gradient
    seen: np.ndarray  # (outputs, 1 + inputs): the first column is the start's
    # (inputs, 1 + inputs): where each gradient was asked for, likewise
    asked: np.ndarray
    told: tuple[Told, ...]  # (outputs,): round, name and node of each output
    # places in ``inputs``, in the order in which gradients were asked for
    turns: tuple[int, ...]

    @classmethod
    def of(
        cls,
        problem: Problem,
        heard: Sequence[Sequence[int]] | None,
        *,
        models: bool,
        final: int | None = None,
        colluding: bool = False,
    ) -> LinearMap:
        """The map of a problem's algorithm, for what a `Record` of these would keep."""
        nodes, name = len(problem.shares), problem.training.algorithm
        if isinstance(problem.network, Collaboration):
            raise ValueError(
                f"{name} releases updates of a model, not gradients: attacks by its "
                "messages find none; try final-loss, or actions"
            )
        if isinstance(problem.network.algorithm, KnowsPlaces):
            raise ValueError(
                f"{name} sends parts of vectors with these settings, which are not put "
                "together here: of graph=butterfly the same is learned"
            )
        inputs: tuple[tuple[int, int], ...] = ()

        def run(values: Tensor) -> tuple[_Script, Record]:
            """From the first of ``values``, with the others for gradients."""
            oracle = _Script(nodes, dict(zip(inputs, values[1:], strict=True)))
            dims = values.shape[1]
            record = Record(heard, dims=dims, models=models, final=final)
            problem.network.run(
                values[0].repeat(1, nodes, 1),
                oracle,
                problem.training.rounds,
                observers=(record,),
                after_round=record.after_round,
            )
            return oracle, record

        try:
            dry, record = run(torch.zeros(1, 2, dtype=torch.float64))
        except (AttributeError, TypeError) as error:
            raise ValueError(
                f"{name} wants more of private data than noisy gradients, and what it "
                "sends is not linear in these; choose another"
            ) from error
        inputs, told = tuple(sorted(dry.asked)), tuple(record.told)
        if not told:
            raise ValueError(
                f"{name} sends nothing that a neighbour could hear; choose another "
                "adversary"
            )
        width = 1 + len(inputs)
        if len(told) * width > _MOST_VALUES:
            raise ValueError(
                f"the map of {len(told):,} messages of {len(inputs):,} gradients is "
                "too large for this adversary: audit fewer rounds or nodes"
            )
        oracle, record = run(torch.eye(width, dtype=torch.float64))
        seen = record.stacked()[0].numpy()
        asked = torch.stack([oracle.asked[key] for key in inputs]).numpy()

        generator = torch.Generator().manual_seed(0)
        given = torch.randn(width, 3, generator=generator, dtype=torch.float64)
        tried = run(given)[1].stacked()[0].numpy()
        away = abs(tried - seen @ given.numpy()).max()
        if not away <= _LINEAR * max(1.0, abs(tried).max()):
            raise ValueError(
                f"{name} is not linear in its gradients with these settings, which "
                "this adversary needs; for dp-dinno set optimiser=sgd"
            )
        place = {key: number for number, key in enumerate(inputs)}
        if colluding:
            others = [p for p, (node, _) in enumerate(inputs) if node != CANARY_NODE]
            seen = np.concatenate([seen, np.eye(width)[1:][others]])
        return cls(inputs, seen, asked, told, tuple(place[key] for key in dry.asked))

    @property
    def own(self) -> np.ndarray:
        """Places in ``inputs`` of the gradients of the canary's node, in order."""
        return np.array([p for p, (n, _) in enumerate(self.inputs) if n == CANARY_NODE])


@dataclasses.dataclass(frozen=True, eq=False)
class Reader:
    """The best linear guess at every gradient's noise from what is seen."""

    map: LinearMap  # what is seen
    scale: np.ndarray  # (inputs,): standard deviation of the noise in each gradient
    # (inputs, outputs): from what is seen, less what is known, to gradients over their
    # noise
    read: np.ndarray
    # (inputs, inputs): the projection on what is seen; Pi_tt = 1 if exact
    known: np.ndarray

    @classmethod
    def of(cls, linear: LinearMap, scale: np.ndarray) -> Reader:
        """By the pseudo-inverse; directions below 1e-10 of the largest are noise."""
        scaled = linear.seen[:, 1:] * scale
        # Outputs may be of very different size; each alike, for the cut to make sense.
        size = np.sqrt((scaled**2).sum(1))
        weight = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
        read = np.linalg.pinv(scaled * weight[:, None], rcond=1e-10) * weight
        return cls(linear, scale, read, read @ scaled)

    def standardised(self, seen: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Gradients over noise as far as they show, (..., inputs, dims) or less."""
        return self.read @ (seen - self.map.seen[:, :1] * start)

    def gradients(self, seen: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Gradients (runs, inputs, dims) from (runs, outputs, dims), if ``known``."""
        return self.standardised(seen, start) * self.scale[:, None]

    def points(self, gradients: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Points at which each gradient was asked for, (runs, inputs, dims)."""
        return self.map.asked[:, :1] * start + self.map.asked[:, 1:] @ gradients
