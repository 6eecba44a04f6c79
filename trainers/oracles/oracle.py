"""The oracle of noisy gradients: sample, clip, sum, add noise, divide, record.

Numbers of records are public. Sums are rounded to a grid and noise is an exactly
rounded Gaussian number of it (`trainers/numerics/noise.md`); records are clipped to a
little less than the clip norm, by as much as rounding can move a sum: that in floating
point (`trainers/gradients/sums.md`), and that to the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from privaudit.ledger import PLACED, Ledger, Recorder
from privaudit.release import NoSampling, RandomAllocation, Release
from trainers.data import PrivateData
from trainers.data.transforms import Drawn, plain
from trainers.gradients.clip_weights import clip_weights
from trainers.gradients.clipping import Summation, summation
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.door.traced import drops
from trainers.gradients.per_sample import check_hooks
from trainers.gradients.rounding import Rounding
from trainers.numerics import noise
from trainers.numerics.deferred_checks import Watch
from trainers.numerics.device import placed
from trainers.numerics.randomness import Streams, grid_step, rounding_up
from trainers.oracles.mechanism import Mechanism
from trainers.oracles.sampler import Sampler

MEMORY_LIMIT = 1 << 30  # bytes, for what one call keeps alive
_LONG = 8.0  # clip norms, of a crafted gradient before it is clipped
MOST_SUMMED = 2.0**50  # steps of a grid: with noise and halves, exact in doubles


class ReleaseObserver(Protocol):
    """Is shown every release of an oracle."""

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        """See release ``index`` of ``nodes``; ``at`` and it (runs, nodes, dims)."""


def check_memory(limit: int) -> None:
    """``ValueError`` if ``limit``, in bytes, is less than any call needs."""
    if limit < 1 << 20:
        raise ValueError(f"memory_limit must be at least 1 MiB, got {limit} bytes")


class Oracle:
    """Noisy gradients of the nodes' data, for a block of runs at once.

    ``data``: the nodes' records. ``differentiator``: computes gradients:
    `trainers.gradients.choose.differentiator`. ``mechanism``: batch size, clip norm and
    noise. ``streams``: random numbers of this block of runs. ``runs``: number of runs
    in the block. ``planted``: (runs,) or (runs, canaries) bool: in which runs each of
    the data's canaries is a record of its node. ``memory_limit``: memory of one call in
    bytes, about; larger batches are computed in parts. ``observers``: shown every
    release.

    Raises ``ValueError`` if a node has too few records for a batch, or ``memory_limit``
    is too small.

    Examples
    --------
    >>> import torch
    >>> from trainers.data import Dataset, PrivateData
    >>> from trainers.gradients.choose import differentiator
    >>> from trainers.models.start import cross_entropy
    >>> x, y = torch.ones(40, 3), torch.zeros(40, dtype=torch.long)
    >>> data = PrivateData.of([Dataset(x, y)] * 2)  # two nodes
    >>> of = differentiator(torch.nn.Linear(3, 2), cross_entropy, x[0], y[0])
    >>> mechanism = Mechanism(8, clip_norm=1.0, noise_multiplier=2.0)
    >>> oracle = Oracle(data, of, mechanism, Streams(0), runs=4)
    >>> oracle.gradient(torch.zeros(4, 2, 8)).shape  # 8 parameters
    torch.Size([4, 2, 8])
    >>> oracle.ledger.nodes[1][0].count
    1
    """

    def __init__(
        self,
        data: PrivateData,
        differentiator: Differentiator,
        mechanism: Mechanism,
        streams: Streams,
        *,
        runs: int = 1,
        planted: Tensor | None = None,
        memory_limit: int = MEMORY_LIMIT,
        observers: Sequence[ReleaseObserver] = (),
    ) -> None:
        check_memory(memory_limit)
        self.data, self.nodes = data, data.nodes
        self.mechanism = mechanism
        self.runs = runs
        self.observers = tuple(observers)
        self._differentiator = differentiator
        self._memory_limit = memory_limit
        self._summations: dict[tuple[Any, ...], Summation] = {}
        self._streams = streams
        self._point: Tensor | None = None  # that noise is added at
        self._units = self._units_of(data)
        self._sampler = Sampler(
            self._units, mechanism, streams, runs=runs, planted=planted
        )
        self._numbers = self._sampler.numbers
        self._recorder = Recorder(data.nodes, unit=mechanism.unit)
        self._releases = [0] * data.nodes
        # Noise of the last releases, or their sums, by number modulo how many, or its
        # buffers: (runs, nodes, these, dims)
        self._past: Tensor | None = None
        # An accelerator is not waited for: what must hold is looked at now and then,
        # and batches are as wide as they may get, which is some more work.
        self._unseen = data.device.type != "cpu"
        self._watch = Watch(at_once=not self._unseen)
        self._drops = drops(differentiator.module)
        if isinstance(data, Drawn):
            data.draws_from(streams, self._numbers)
        self._width = self._sampler.most()

    def _units_of(self, data: PrivateData) -> Any:
        """Units that are drawn and clipped as one: records."""
        return data

    def settle(self) -> None:
        """Wait for the accelerator; ``ValueError`` if a gradient could not be taken."""
        self._watch.settle()

    @property
    def ledger(self) -> Ledger:
        """All releases so far, by node; each of the runs has made them."""
        self.settle()
        return self._recorder.ledger()

    def releases_of(self, node: int) -> int:
        return self._releases[node]

    def next_release(self, nodes: Sequence[int]) -> int:
        """Index of the next release of ``nodes`` together, or ``ValueError``."""
        check_hooks()  # which an algorithm or a loop may have set meanwhile
        if not nodes or len(set(nodes)) < len(nodes):
            raise ValueError(
                f"nodes must be different, at least one, got {list(nodes)}: noise is "
                "never used twice"
            )
        if not all(0 <= node < self.nodes for node in nodes):
            raise ValueError(
                f"nodes are numbered from 0 to {self.nodes - 1}, got {list(nodes)}"
            )
        index = self._releases[nodes[0]]
        if any(self._releases[node] != index for node in nodes):
            raise ValueError(
                "nodes that ask at once must have asked equally often; ask one by one"
            )
        return index

    def state_dict(self) -> dict[str, Any]:
        """Number of releases and ledger of each node, for a checkpoint."""
        self.settle()
        past = {} if self._past is None else {"past": self._past}
        return {
            **past,
            "releases": list(self._releases),
            "ledger": [part.to_json() for part in self.ledger.apart()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of an oracle that was made with the same arguments.

        By random allocation ``ValueError`` if a node has another number of records;
        that they are in the same order within an epoch is an assumption in the ledger.
        """
        self._releases, self._past = list(state["releases"]), state.get("past")
        known = Ledger.joined(Ledger.from_json(text) for text in state["ledger"])
        self._recorder = Recorder.of(known)
        for node, entries in enumerate(known.nodes):
            how = self.mechanism.allocation(self._units.sizes[node])
            drawn = [one.release.sampling for one in entries]
            before = [one for one in drawn if isinstance(one, RandomAllocation)]
            if how is None or not before:
                continue
            if before[-1] != how:
                raise ValueError(
                    f"node {node} had another number of records before: its epochs "
                    f"were of {before[-1].batches:,} batches and would be of "
                    f"{how.batches:,}; go on with the same data"
                )
            if self._releases[node] % how.batches:
                self._recorder.assume(PLACED)

    def gradient(self, at: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        """Noisy mean gradients of the nodes' losses, each at its own parameters.

        A batch of each node's records; gradients scaled to L2 norm <= clip_norm;
        summed; N(0, (noise_multiplier * clip_norm)^2) on each coordinate; divided by
        batch_size whatever the batch has (Abadi et al. 2016, Algorithm 1). One that is
        not finite counts as zero, so that the data cannot end a run. ``at``: (runs,
        len(nodes), dims); ``nodes`` must have asked equally often. Returns that shape
        and precision; where ``summed``, sums in doubles. ``ValueError`` if parameters,
        or without clipping a gradient, are not finite.
        """
        nodes, at = range(self.nodes) if nodes is None else nodes, plain(at)
        if at.shape[:2] != (self.runs, len(nodes)):
            raise ValueError(
                f"parameters must have shape (runs, nodes, dims) = ({self.runs}, "
                f"{len(nodes)}, ...), got {tuple(at.shape)}"
            )
        index = self.next_release(nodes)
        clip, multiplier = self.mechanism.at(index)  # the most of all nodes' noise
        step = self._step(index)
        if clip < math.inf:
            self._watch.expect(
                # One pass; what is no number is neither the least nor the largest.
                torch.isfinite(torch.stack(at.aminmax())),
                "parameters are not finite: lower the step size",
            )
            # With shared noise also what it is rounded by, in all later releases.
            rounded = step * max(map(self.mechanism.rounded, self._sampler.rates))
            dims = self._differentiator.dims  # of which ``at`` may be a shard
            clip = _clip_left(clip, self._rounding(at).share, rounded, dims)
        self._say(index, nodes)
        batches = self._batches(nodes)
        crafted = self._crafted(batches, nodes, clip, at.shape[2])
        total = self._clipped_sum(at, batches, nodes, clip)
        self._differentiator.word = 0
        for row, share in crafted:
            total[:, row] += share
        if multiplier > 0:
            self._point = at
            total = self._noisy_by_node(total, nodes, index)
        self._record(nodes, index)
        gradient = total
        if not self.mechanism.summed:
            gradient = total.div_(self._divisor(nodes, total)).to(at.dtype)
        for observer in self.observers:
            observer.release(index, at, gradient, nodes)
        return gradient

    def norm_counts(self, at: Tensor, edges: Tensor, deviation: float) -> Tensor:
        """Noisy numbers of records by the norm of their gradient, whatever the batches.

        One release, before any other: a record is in one count at most. ``edges``:
        ascending norms; ``deviation``: of the noise. (runs, nodes, len(edges) + 1);
        what is not finite counts nowhere.
        """
        nodes = range(self.nodes)
        index = self.next_release(nodes)
        counts = at.new_zeros(
            (at.shape[0] * at.shape[1], len(edges) + 1), dtype=torch.float64
        )

        def count(whose: Tensor, taken: Tensor, norms: Tensor) -> Tensor:
            kinds = torch.bucketize(norms, edges)
            places = whose[:, None] * counts.shape[1] + kinds
            known = (taken & norms.isfinite()).double()
            counts.view(-1).index_add_(0, places.flatten(), known.flatten())
            return torch.zeros_like(norms)

        self._say(index, nodes)
        self._summation(at).clipped_sum(
            at.flatten(0, 1),
            self._units.present(self.runs, None).flatten(0, 1),
            placed(tuple(nodes), at.device),
            1.0,  # nothing is clipped: all weights are 0
            watch=self._watch,
            weigh=count,
        )
        self._differentiator.word = 0
        told = counts.view(*at.shape[:2], -1)
        told = self._streams.noisy(told, self._numbers, index, deviation)
        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=deviation, sampling=NoSampling()
        )
        for node in nodes:
            self._record_of(node, index, release)
        return told

    def _say(self, index: int, nodes: Sequence[int]) -> None:
        """Tell transforms and dropout of the release that they are a function of."""
        if isinstance(self.data, Drawn):
            self.data.release = index
        if self._drops:
            self._differentiator.word = self._dropped_by(index, nodes)

    def _dropped_by(self, index: int, nodes: Sequence[int]) -> int | Tensor:
        """Numbers that dropout is a function of: one, or one for each replica."""
        number = [self._numbers[nodes[0]]]
        rows = self._streams.rows("transform", number, index, (self.runs, 1))
        # Another than the one that a transform of the first record has.
        words = rows.words(torch.device("cpu"))[:, 0, 0] ^ 1 << 41
        if self.runs == 1:
            return int(words)
        return words.to(self.data.device).repeat_interleave(len(nodes))

    def _record(self, nodes: Sequence[int], index: int) -> None:
        made: dict[tuple[int, int], Release] = {}
        for node in nodes:
            how, size = self.mechanism.of(self._numbers[node]), self._units.sizes[node]
            key = (id(how), size)
            if key not in made:
                made[key] = how.release(index, size)
            self._record_of(node, index, made[key])

    def _record_of(self, node: int, index: int, release: Release) -> None:
        if index % self.mechanism.parts == 0:  # as often as a record of the first part
            self._recorder.record(node, release)
        others = self._streams.others("noise", self._numbers[node], index)
        self._recorder.again(node, release, others)
        self._releases[node] += 1

    def skip_begun(self) -> None:
        """Put releases that the journal has beyond the state into the ledger.

        For algorithms that cannot repeat them exactly: they count, and later ones have
        new batches and noise. ``ValueError`` if the journal is older than the state.
        """
        if self._streams.journal is None:
            return
        for node, number in enumerate(self._numbers):
            begun = self._streams.begun("noise", number)
            if self.mechanism.noise_multiplier and begun < self._releases[node]:
                raise ValueError(
                    f"the journal has {begun} releases of node {number}, the "
                    f"checkpoint {self._releases[node]}: the journal is an older one, "
                    "and nobody knows what was released; begin again in another folder"
                )
            if begun > self._releases[node] and self._past is not None:
                self._past[:, node] = 0.0  # that of these is not known
            for index in range(self._releases[node], begun):
                self._record([node], index)

    def sync(self) -> None:
        """Wait until the journal, if there is one, is on the disk: for `skip_begun`."""
        if self._streams.journal is not None:
            self._streams.journal.sync()

    @property
    def not_finite(self) -> int:
        """Number of drawn gradients that counted as zero: private, without noise."""
        return self._watch.counted

    def _step(self, index: int) -> float:
        """Coarsest step of all nodes' grids, by which each of them clips."""
        alike = dict.fromkeys(self.mechanism.by_node or (self.mechanism,))
        return max(self._step_of(how, index) for how in alike)

    def _step_of(self, how: Mechanism, index: int) -> float:
        """Step of the grid of the noise of release ``index``; 0 without noise."""
        clip, multiplier = how.at(index)
        if not multiplier:
            return 0.0
        planted = 1 if self._units.coordinates is not None else self._units.canaries
        most = (max(self._units.sizes) + planted) * clip
        deviation = multiplier * clip * how.spread
        if not self.mechanism.summed:
            return grid_step(deviation, most)
        step = noise.grid(deviation)  # all nodes', whatever their records
        if how.strategy[1:]:  # as far as c_0 x_k + c_1 x_k-1 + ... can be wrong
            most *= len(how.strategy) * math.fsum(map(abs, how.strategy))
        if most * self.mechanism.summed > step * MOST_SUMMED:
            raise ValueError(
                f"with noise multiplier {multiplier:g} the sums of "
                f"{self.mechanism.summed} nodes do not add up exactly: use more noise"
            )
        return step

    def _rounding(self, at: Tensor) -> Rounding:
        """Price of the rounding of `_clipped_sum`."""
        return self._summation(at).rounding

    def _summation(self, at: Tensor) -> Summation:
        """Plan of `_clipped_sum` for ``at``: made once for each shape."""
        clips = self.mechanism.clip_norm != math.inf
        key = (at.shape, at.dtype, self._memory_limit, torch.get_num_threads())
        if key not in self._summations:
            models = at.flatten(0, 1)
            shards = getattr(self._differentiator, "shards", None)
            if shards is not None:
                models = at.new_zeros(1, 1).expand(
                    len(models), self._differentiator.dims
                )
            self._summations[key] = summation(
                self._differentiator,
                self.data,
                models,
                batch_size=self.mechanism.batch_size,
                memory_limit=self._memory_limit,
                clips=clips,
                varies=self.mechanism.varies,
                width=self._width if self._unseen else None,
            )
            if shards is not None:
                made = self._summations[key]
                plan = (made.rows, made.shape, made.rounding)
                shards.agree("shapes of calls", plan)
        return self._summations[key]

    def _clipped_sum(
        self, at: Tensor, batches: Tensor, nodes: Sequence[int], clip: float
    ) -> Tensor:
        """Sum over the batches of clipped gradients, (runs, nodes, dims) doubles."""
        total = self._summation(at).clipped_sum(
            at.flatten(0, 1),
            batches.flatten(0, 1),
            placed(tuple(nodes), at.device),
            clip,
            watch=self._watch,
            width=self._width if self._unseen else None,
        )
        return total.view_as(at)

    def _divisor(self, nodes: Sequence[int], total: Tensor) -> float | Tensor:
        """Divisor of the sums: of public numbers."""
        found = [
            self.mechanism.of(self._numbers[node]).divisor(self._units.sizes[node])
            for node in nodes
        ]
        if len(set(found)) == 1:
            return found[0]
        return placed(tuple(found), total.device, total.dtype)[:, None]

    def _batches(self, nodes: Sequence[int]) -> Tensor:
        """A fresh sample of each node's records, (runs, nodes, records)."""
        return self._sampler.batches(nodes, self._releases[nodes[0]])

    def _crafted(
        self, batches: Tensor, nodes: Sequence[int], clip: float, dims: int
    ) -> list[tuple[int, Tensor]]:
        """Take crafted gradients out of ``batches``: their nodes, and (runs, dims)."""
        data, found = self._units, []
        for row, node in enumerate(nodes):
            if node not in data.canary_nodes:
                continue
            place = data.sizes[node]
            if data.coordinates is not None:
                rows = slice(place, place + data.canaries)
                times = batches[:, row, rows].double()
                batches[:, row, rows] = False
                share = times.new_zeros(len(times), dims)
                share[:, data.coordinates] = times * _clipped(times.new_ones(1), clip)
                found.append((row, share))
            elif data.direction is not None:
                vector = _clipped(data.direction.double(), clip)
                times = batches[:, row, place].double()
                batches[:, row, place] = False
                if data.replaced is not None:
                    times -= batches[:, row, data.replaced].double()
                    batches[:, row, data.replaced] = False
                found.append((row, times[:, None] * vector))
        return found

    def _noisy_by_node(self, total: Tensor, nodes: Sequence[int], index: int) -> Tensor:
        """``total`` with noise, of nodes that have equal noise in one call."""
        alike: dict[Mechanism, list[int]] = {}
        for row, node in enumerate(nodes):
            how = self.mechanism.of(self._numbers[node])
            alike.setdefault(how, []).append(row)

        def noisy(how: Mechanism, total: Tensor, nodes: Sequence[int]) -> Tensor:
            clip, multiplier = how.at(index)
            step = self._step_of(how, index)
            return self._noisy(total, nodes, multiplier * clip * how.spread, step)

        if len(alike) == 1:
            return noisy(next(iter(alike)), total, nodes)
        at = self._point
        for how, rows in alike.items():
            here = placed(tuple(rows), total.device)
            self._point = None if at is None else at[:, here]
            total[:, here] = noisy(how, total[:, here], [nodes[row] for row in rows])
        return total

    def _noisy(
        self, total: Tensor, nodes: Sequence[int], deviation: float, step: float
    ) -> Tensor:
        """``total``, (runs, nodes, dims), on a grid, with each node's own noise.

        Noise w_k = z_k - c_1 w_k-1 - c_2 w_k-2 ..., z of ``deviation``: a release is a
        sum that the records and earlier releases determine, plus z_k. By buffers the
        rest is a sum of m s, s the sum of l w_k-1, l^2 w_k-2 and so on. Where sums of
        nodes are ``summed`` it is x_k + c_1 x_k-1 + ... + z_k, of sums x, from which
        who has all of them takes off c_1 and so on times those before.
        """
        who = [self._numbers[node] for node in nodes]
        index = self._releases[nodes[0]]
        shares, buffers = self.mechanism.strategy[1:], self.mechanism.buffers

        def noisy(total: Tensor) -> Tensor:
            return self._streams.noisy(
                *(total, who, index, deviation, step), point=self._point
            )

        if not shares and not buffers:
            return noisy(total)
        own = (total / step).round_().mul_(step)
        if self._past is None:
            shape = (self.runs, self.nodes, len(shares or buffers), total.shape[2])
            self._past = own.new_zeros(shape)
        past, rows = self._past.to(own.device), list(nodes)
        rest = torch.zeros_like(own)
        for back, share in enumerate(shares, 1):
            rest += past[:, rows, (index - back) % len(shares)] * share
        for held, (mass, _) in enumerate(buffers):
            rest += past[:, rows, held] * mass
        rest = rest.div_(step).round_().mul_(step)
        summed = self.mechanism.summed > 0
        found = noisy(own + rest if summed else own - rest)
        kept = own if summed else found - own
        if shares:
            past[:, rows, index % len(shares)] = kept
        for held, (_, decay) in enumerate(buffers):
            past[:, rows, held] = (past[:, rows, held] + kept) * decay
        self._past = past
        return found


def _clipped(vector: Tensor, clip: float) -> Tensor:
    """A crafted gradient, made far longer than ``clip`` and clipped as all are."""
    if clip == math.inf:
        return vector
    norm = torch.linalg.vector_norm(vector)
    # By a power of two, which rounds nothing.
    long = 2.0 ** math.ceil(math.log2(_LONG * clip / float(norm)))
    return vector * long * clip_weights(norm * long, clip)


def _clip_left(clip: float, share: float, step: float, dims: int) -> float:
    """``clip``, less what rounding of sums (``share``) and to the grid can add."""
    left = (clip - rounding_up(step, dims)) / (1 + share)
    if not left > 0.5 * clip:
        raise ValueError(
            f"{dims:,} parameters are rounded to steps of {step:g}, too coarse for "
            f"clip_norm {clip:g}: use less noise"
        )
    return left * (1 - 2.0**-50)
