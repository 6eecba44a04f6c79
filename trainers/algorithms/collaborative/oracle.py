"""The oracle of collaborative training: local models inside, noisy global ones out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from privaudit.ledger import Ledger, Recorder
from trainers.algorithms.collaborative.deep_q import QNetworks
from trainers.algorithms.collaborative.logistic import (
    gradient,
    losses,
    signs,
    unit_rows,
)
from trainers.algorithms.collaborative.one_pass import LEAK, OnePass
from trainers.data import PrivateData
from trainers.gradients.per_sample import check_hooks
from trainers.numerics.device import placed
from trainers.numerics.randomness import TOO_SMALL, Streams


class Participants:
    """The nodes' batches, local models and choices, for a block of runs at once.

    Made like `trainers.oracles.oracle.Oracle`; the runner calls `begin`, then each turn
    `choose`, `locally` and, node by node, `publish`. Rows are scaled to length 1, each
    by itself; batches are drawn once: a permutation of a node's places, cut into
    pieces.
    """

    def __init__(
        self,
        data: PrivateData,
        differentiator: object,
        mechanism: OnePass,
        streams: Streams,
        *,
        runs: int = 1,
        planted: Tensor | None = None,
        memory_limit: int = 0,
        observers: Sequence[object] = (),
    ) -> None:
        if observers:
            raise ValueError(
                "what is released here are updates of a model, not gradients, so that "
                "attacks on noisy gradients see nothing; use final-loss or actions"
            )
        if data.direction is not None:
            raise ValueError(
                "a crafted gradient cannot be planted here: nothing is clipped, and "
                "every gradient is that of a row; use a canary that is a record, such "
                "as clipbkd"
            )
        self.mechanism = mechanism
        self.runs = runs
        self.sizes = data.sizes
        self._rows = unit_rows(data.inputs.flatten(2))  # (nodes, records, features)
        self._targets = data.targets
        self._turns = [mechanism.turns(size) for size in data.sizes]
        self._all_turns = self._turns  # with those of nodes that are elsewhere
        self._steps = mechanism.steps(self.turns)  # of each turn
        self._streams = streams
        # The nodes' numbers in the whole network.
        self._numbers = streams.numbers or tuple(range(len(data.sizes)))
        self._updates = [0] * self.nodes  # turns that there were
        self._choices = 0  # times that the networks asked for random numbers
        self._choosing = streams
        self._order = self._permutations(data, planted)
        self._recorder = Recorder(self.nodes)
        self._networks: QNetworks | None = None

    def over(self, broadcast: Callable[[Tensor, int], Tensor]) -> None:
        """Other nodes are elsewhere: all hear for how many turns each has batches."""
        own = torch.tensor(self._turns, dtype=torch.float64)[None, :, None]
        self._all_turns = broadcast(own, 0).flatten().long().tolist()
        self._steps = self.mechanism.steps(self.turns)

    @property
    def nodes(self) -> int:
        return len(self.sizes)

    @property
    def features(self) -> int:
        """Values in a row."""
        return self._rows.shape[-1]

    @property
    def turns(self) -> int:
        """Until the last node's batches are used up."""
        return max(self._all_turns)

    @property
    def ledger(self) -> Ledger:
        return self._recorder.ledger()

    @property
    def local_models(self) -> Tensor:
        """Private: (runs, nodes, classes, features)."""
        return self._local

    def _permutations(self, data: PrivateData, planted: Tensor | None) -> list[Tensor]:
        """Each node's rows in the order of its batches, (runs, its records) a node."""
        present = data.present(self.runs, planted)
        found = []
        for node, size in enumerate(data.sizes):
            order = self._places(node, size)
            # The canary stands in the place of the record that it comes for.
            if node in data.canary_nodes:
                if data.replaced is None:
                    raise ValueError(
                        "batches of fixed size have no place for one record more"
                    )
                here = present[:, node, size][:, None]
                order = torch.where(here & (order == data.replaced), size, order)
            found.append(order)
        return found

    def _places(self, node: int, size: int) -> Tensor:
        """The places of a node's records, (runs, size), in the order they are taken."""
        who = [self._numbers[node]]
        return self._streams.permutations(who, 0, (self.runs, size))[:, 0]

    def begin(self, start: Tensor) -> None:
        """All local models start from ``start``, (runs, nodes, dims)."""
        if start.shape[2] % self.features or start.shape[2] == self.features:
            raise ValueError(
                f"one-vs-all models of {self.features} features have as many "
                f"parameters a class, got {start.shape[2]}: use the model one-vs-all"
            )
        self._local = start.unflatten(2, (-1, self.features)).clone()
        shape = self._local.shape[:3]
        # The largest step size of what is in the local model and not yet released.
        self._peak = torch.zeros(shape, dtype=torch.float64, device=start.device)
        classes, choices = shape[2], self.mechanism.choices
        self._pending: list[list[list[float]]] = [
            [[] for _ in range(classes)] for _ in range(self.nodes)
        ]
        if choices.looks:
            known = self.mechanism.networks.seed
            if known is not None:
                self._choosing = Streams(known, 0, str(start.device))
            self._recorder.assume(LEAK)
            self._networks = QNetworks(
                (shape[0], shape[1], shape[2]),
                self.features + 1,
                self.turns,
                self.mechanism.networks,
                self._draw_choices,
                start.device,
            )
            self._before: tuple[Tensor, Tensor] | None = None  # state, action
            self._table = None
        else:
            table = choices.table(self.turns, len(self._all_turns), classes)
            here = table[:, list(self._numbers)]
            self._table = torch.from_numpy(here).to(start.device)

    def _batch(self, turn: int, nodes: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Rows (runs, nodes, batch, features), signs (..., classes) of a turn."""
        check_hooks()
        size = int(self.mechanism.batch_size)
        rows, own = [], []
        for node in nodes:
            turn_here = min(turn, self._turns[node] - 1)
            places = self._order[node][:, turn_here * size : (turn_here + 1) * size]
            rows.append(self._rows[node][places])
            own.append(self._targets[node][places])
        classes = self._local.shape[2]
        batch = torch.stack(rows, 1).to(self._local.dtype)
        return batch, signs(torch.stack(own, 1), classes).to(batch.dtype)

    def _by_node(self, function: Callable[..., Tensor], *batch: Tensor) -> Tensor:
        """``function`` of each node's model and batch, one by one, for equal bits."""
        parts = zip(self._local.unbind(1), *(x.unbind(1) for x in batch), strict=True)
        known = self.mechanism.constants
        return torch.stack([function(*part, known) for part in parts], 1)

    def _active(self, turn: int) -> Tensor:
        """Mask of nodes that have a batch left, (nodes, 1)."""
        active = tuple(turn < own for own in self._turns)
        return placed(active, self._rows.device, torch.bool)[:, None]

    def choose(self, turn: int) -> Tensor:
        """Choose the global updates, bool, (runs, nodes, classes); seen by all."""
        active = self._active(turn)
        if self._table is not None:
            return (self._table[turn] & active).expand(self.runs, -1, -1)
        assert self._networks is not None
        loss = self._by_node(losses, *self._batch(turn, range(self.nodes)))
        state = torch.cat([self._local, loss[..., None]], -1).float()
        if self._before is not None:
            last = self._batch(turn - 1, range(self.nodes))
            reward = -self._by_node(losses, *last).float()
            self._networks.remember(*self._before, reward, state)
            self._networks.learn()
        action = self._networks.choose(state, turn)
        self._before = (state, action)
        return action & active

    def locally(self, turn: int, action: Tensor) -> None:
        """wL <- wL - 2 eta grad f(wL) for what is not global; nothing comes out."""
        batch = self._batch(turn, range(self.nodes))
        step = float(self._steps[turn])
        down = self._by_node(gradient, *batch)
        here = ~action & self._active(turn)
        moved = self._local - 2 * step * down
        self._local = torch.where(here[..., None], moved, self._local)
        self._peak = torch.where(here, self._peak.clamp_min(step), self._peak)
        self._note(turn, action)

    def _note(self, turn: int, action: Tensor) -> None:
        """Write this turn's batches down: as released, or as pending."""
        step = float(self._steps[turn])
        for node, own in enumerate(self._turns):
            if turn >= own:
                continue
            for number in range(self._local.shape[2]):
                pending = self._pending[node][number]
                if self.mechanism.choices.looks:
                    pending = []  # whichever update releases it, at least this noise
                pending.append(step)
                if self.mechanism.choices.looks or bool(action[0, node, number]):
                    for release, count in self.mechanism.released(pending):
                        self._recorder.record(node, release, count, disjoint=number)
                    pending.clear()

    def publish(self, turn: int, node: int, action: Tensor, shared: Tensor) -> Tensor:
        """wG <- (wG + wL) / 2 - eta (grad f(wG) + N), and wL <- wG, where global."""
        here = action[:, node]  # (runs, classes)
        self._updates[node] += 1  # whether or not there is one: streams stay alike
        if not here.any():
            return shared
        step = float(self._steps[turn])
        rows, own = self._batch(turn, [node])
        how = self.mechanism
        down = gradient(shared, rows[:, 0], own[:, 0], how.constants)
        _, multiplier = how.at(0)
        peak = self._peak[:, node].clamp_min(step)
        scale = multiplier * how.constants.lipschitz * peak / how.batch_size
        new = (shared + self._local[:, node]) / 2 - step * down
        new = self._noisy(node, new, scale.where(here, 0.0))
        new = torch.where(here[..., None], new, shared)
        self._local[:, node] = torch.where(here[..., None], new, self._local[:, node])
        self._peak[:, node] = torch.where(here, 0.0, self._peak[:, node])
        return new

    def _draw_choices(self, shape: tuple[int, int]) -> Tensor:
        """Uniform numbers, (runs, nodes, count), for the networks of all nodes."""
        index, self._choices = self._choices, self._choices + 1
        return self._choosing.uniforms("message", self._numbers, index, shape)

    def _noisy(self, node: int, new: Tensor, scale: Tensor) -> Tensor:
        """Updates, (runs, classes, features), on grids, with noise of ``scale``."""
        found, classes = new.clone(), new.shape[1]
        (plain,) = {release for release, _ in self.mechanism.released([1.0])}
        for number in range(classes):
            index = self._updates[node] * classes + number
            for value in scale[:, number].unique().tolist():
                if value == 0:
                    continue
                rows = scale[:, number] == value
                noisy, is_exact = self._streams.noisy_if_it_fits(
                    *(new[:, number, None], [self._numbers[node]], index, value),
                    self.mechanism.grid(value, new.shape[2]),
                )
                if not is_exact:
                    self._recorder.assume(TOO_SMALL)
                found[rows, number] = noisy[rows, 0]
            # At least the noise of any record that it has, whichever its batch.
            others = self._streams.others("noise", self._numbers[node], index)
            self._recorder.again(node, plain, others)
        return found

    def state_dict(self) -> dict[str, Any]:
        """State for `trainers.runs.checkpoint`; private."""
        networks = self._networks
        return {
            "updates": list(self._updates),
            "choices": self._choices,
            "ledger": [part.to_json() for part in self.ledger.apart()],
            "local": self._local,
            "peak": self._peak,
            "pending": self._pending,
            "networks": None if networks is None else networks.state_dict(),
            "before": None if networks is None else self._before,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where an oracle stood, made like this one."""
        self.begin(state["local"].flatten(2))
        self._updates, self._choices = list(state["updates"]), state["choices"]
        ledgers = map(Ledger.from_json, state["ledger"])
        self._recorder = Recorder.of(Ledger.joined(ledgers))
        self._peak, self._pending = state["peak"], state["pending"]
        if self._networks is not None:
            self._networks.load_state_dict(state["networks"])
            self._before = state["before"]
