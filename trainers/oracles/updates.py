"""The oracle of local updates: each user's update is clipped as a whole, then summed.

A user's update is the change of the parameters by some steps of gradient descent on
that user's records. It is scaled, as one vector over all layers, to L2 norm <=
clip_norm. The oracle returns the noisy sum of the updates of a node's users (McMahan et
al. 2018, DP-FedAvg) with its sign changed, so that algorithms use it as a gradient
(Reddi et al. 2021).

How far a user moves the sum, as the program computes it: updates are computed one user
at a time, in calls that see that user's records and nothing else, so that an update u,
a vector of doubles, is a function of the user and of what is public, to the last bit
(on a GPU also of the order in which its kernels happen to add that user's numbers).
Weights make |w u| <= C' (`trainers.gradients.clip_weights`); each w u is rounded to the
grid of the noise by itself, which moves it by sqrt(d) g / 2 at most in L2; and integers
below 2^51 are added in doubles without any rounding. So with C' = C - sqrt(d) g the sum
moves by at most C with a user, and nothing is left to pay for how sums round.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from privaudit.results import Unit
from trainers.data import PrivateData, forked
from trainers.data.forked import Ended
from trainers.data.records import present_rows
from trainers.gradients.bfloat16 import exact_products
from trainers.gradients.clip_weights import clip_weights
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.per_sample import check_module, saying, trained
from trainers.gradients.rounding import Rounding
from trainers.numerics.device import placed
from trainers.numerics.randomness import Streams
from trainers.oracles.mechanism import Mechanism
from trainers.oracles.oracle import Oracle


@dataclasses.dataclass(frozen=True, slots=True)
class UpdateMechanism(Mechanism):
    """Mechanism of users' updates; ``batch_size`` is the probability of a user.

    A node's sum is divided by the expected number of its users in a batch.
    """

    local_steps: int = 1  # number of steps of each drawn user in each release
    # step size of local steps: a number, or a function of the release's index
    local_step_size: float | Callable[[int], float] = 1.0
    # number of the user's records in the batch of a local step; all, if the user has no
    # more
    local_batch: float = math.inf

    @property
    def unit(self) -> Unit:
        return "user"

    def divisor(self, records: int) -> float:
        return self.batch_size * records / self.weight

    def sampling_rate(self, records: int) -> float:
        return self.batch_size

    def step(self, index: int) -> float:
        size = self.local_step_size
        return size(index) if callable(size) else size


class Users:
    """The users of all nodes, and perhaps a canary: one more user, with one record.

    In the place of data in `Sampler`: ``records`` are rows by node and user, ``sizes``
    users.
    """

    replaced = None  # users are drawn by coins: there is no place to come in
    coordinates = None
    canaries = 1

    def __init__(self, data: PrivateData) -> None:
        self.data, self.nodes, self.device = data, data.nodes, data.device
        self.records = [self._of(node) for node in range(data.nodes)]
        self.sizes = tuple(len(users) for users in self.records)
        self.canary_nodes = data.canary_nodes
        self.direction = data.direction
        for node in data.canary_nodes:
            self.records[node].append(torch.tensor([data.sizes[node]]))

    def _of(self, node: int) -> list[Tensor]:
        if self.data.users is None:
            return [torch.arange(self.data.sizes[node], device="cpu")]
        ordered, places = self.data.users[node].sort(stable=True)
        _, counts = ordered.unique_consecutive(return_counts=True)
        return list(places.split(counts.tolist()))

    def present(self, runs: int, planted: Tensor | None) -> Tensor:
        """Mask of users' rows: (runs, nodes, users + 1) bool; last the canary."""
        return present_rows(self, runs, planted)


class UpdateOracle(Oracle):
    """Noisy mean updates of the nodes' users, as gradients; made like `Oracle`.

    `gradient` is minus the noisy sum of drawn users' clipped updates, over their
    expected number; one that is not finite counts as zero. Not in bfloat16.
    """

    def __init__(
        self,
        data: PrivateData,
        differentiator: Differentiator,
        mechanism: UpdateMechanism,
        streams: Streams,
        **more: Any,
    ) -> None:
        if getattr(differentiator, "lower", False):
            raise ValueError(
                "local updates are made of float32 gradients: leave bf16 out"
            )
        code = differentiator.module, differentiator.loss
        self._alone = any(getattr(one, "alone", False) for one in code)
        if self._alone and data.device.type != "cpu":
            raise ValueError(
                "local updates by code that cannot be traced are made on the CPU, a "
                f"process a user: leave the device {data.device} out"
            )
        super().__init__(data, differentiator, mechanism, streams, **more)
        exact_products()
        self._local = mechanism
        self._words: dict[int, Any] = {}
        check_module(differentiator.module)
        # Copies: parameters are set while it runs, which other threads must not see.
        self._module = copy.deepcopy(differentiator.module).to(data.device)
        self._parameters: list[Tensor] = list(trained(self._module).values())
        self._loss = differentiator.loss

    def _units_of(self, data: PrivateData) -> Users:
        return Users(data)

    def _rounding(self, at: Tensor) -> Rounding:
        """Nothing is paid for the rounding of sums: there is none."""
        return Rounding(0.0, 0.0)

    def _clipped_sum(
        self, at: Tensor, batches: Tensor, nodes: Sequence[int], clip: float
    ) -> Tensor:
        """Minus the sum of clipped updates, (runs, nodes, dims) doubles."""
        step = self._step(self._releases[nodes[0]])
        total = torch.zeros_like(at, dtype=torch.float64)
        drawn = batches.nonzero().tolist()
        calls = [
            functools.partial(self._update, at[run, row], nodes[row], user, run)
            for run, row, user in drawn
        ]
        if self._alone:  # a process for each user
            found = forked.each(calls, [at[0, 0].double()])
        else:
            found = map(forked.tried, calls)
        for (run, row, _), one in zip(drawn, found, strict=True):
            if not isinstance(one, Ended):
                total[run, row] += self._clipped(one[0], clip, step)
        return total

    def _clipped(self, update: Tensor, clip: float, step: float) -> Tensor:
        """``update``, (dims,) doubles, as a whole of norm <= ``clip``, on the grid."""
        finite = update.isfinite().all()
        if clip < math.inf:
            self._watch.count(~finite)
            update = update.where(finite, 0.0)
            norm = torch.linalg.vector_norm(update)
            update = update * clip_weights(norm, clip)
        else:
            self._watch.expect(finite, "a local update is not finite: lower step_size")
        return (update / step).round_() * step if step else update

    def _update(self, start: Tensor, node: int, user: int, run: int) -> tuple[Tensor]:
        """Update of a user, start less end of its steps, (dims,) doubles."""
        start = start.clone()  # at a place of its own in memory, as every other user's
        records = self._units.records[node][user]
        size = self._local.step(self._releases[node])
        vector_to_parameters(start.clone(), self._parameters)
        word = self._differentiator.word
        if isinstance(word, Tensor):  # run by run, a node after another
            word = int(word[run * len(word) // self.runs])
        for step, batch in enumerate(self._local_batches(records, node, user, run)):
            where = placed((node,), start.device)
            inputs, targets = self.data.records(where, batch[None].to(start.device))
            how = saying(self._module, word + step)
            loss = self._loss(self._module(inputs[0], **how), targets[0]).mean()
            down = torch.autograd.grad(
                loss, self._parameters, allow_unused=True, materialize_grads=True
            )
            with torch.no_grad():
                torch._foreach_add_(self._parameters, down, alpha=-size)
        end = parameters_to_vector(self._parameters).detach()
        return (start.double() - end.double(),)

    def _local_batches(
        self, records: Tensor, node: int, user: int, run: int
    ) -> list[Tensor]:
        """The records of each local step, by random numbers of the user's own."""
        steps, most = self._local.local_steps, self._local.local_batch
        if len(records) <= most:
            return [records] * steps
        seed = int(self._own_words(node)[run, user])
        generator = torch.Generator().manual_seed(seed)
        orders = (
            torch.randperm(len(records), generator=generator, device="cpu")
            for _ in range(steps)
        )
        return [records[order[: int(most)]] for order in orders]

    def _own_words(self, node: int) -> Tensor:
        """A word for each user of a node in the release at hand, (runs, users)."""
        index = self._releases[node]
        if self._words.get(node, (None,))[0] != index:
            shape = (self.runs, self._units.sizes[node] + 1)
            rows = self._streams.rows("own", [self._numbers[node]], index, shape)
            self._words[node] = (index, rows.words(torch.device("cpu"))[:, 0])
        return self._words[node][1]
