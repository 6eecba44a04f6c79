"""Data, model and network of a training, made once and shared by all of its runs."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import torch
from msgspec import UNSET
from torch import Tensor, nn

from privaudit.files.user_code import is_place
from privaudit.ledger import OWN_ALGORITHM, Ledger
from privaudit.records import ClipRecord
from privaudit.results import Unit
from privaudit.settings import Precision, check_precision
from trainers.algorithms.family import Noise
from trainers.algorithms.setting import Setting
from trainers.data import Dataset
from trainers.data.records import users_of
from trainers.data.shares import private_data
from trainers.gradients.bookkeeping import BookKeeping
from trainers.gradients.choose import differentiator
from trainers.gradients.differentiator import Differentiator
from trainers.gradients.per_sample import parameter_count, parameter_places, trained
from trainers.models import initial_parts
from trainers.network.engine import Network, Observer, Runner
from trainers.network.over_ranks import Party, RankNetwork, Traffic
from trainers.network.ranks import Ranks
from trainers.network.shards import Shards
from trainers.numerics.randomness import Streams, public_generator
from trainers.oracles.capabilities import HearsAll
from trainers.oracles.mechanism import Mechanism
from trainers.oracles.oracle import MEMORY_LIMIT, Oracle, ReleaseObserver
from trainers.runs import checkpoint
from trainers.runs.material import Material
from trainers.runs.training import Training
from trainers.runs.tuned import with_counts


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Planted:
    """A sample, or several, that join a node, or replace a record, in some runs."""

    record: Dataset  # one sample, or several
    runs: Tensor  # (runs,) bool, or (runs, samples): which each joins
    # (dims,): where its gradient points, if it is a crafted one. Of several, (samples,)
    # whole numbers: along which parameter each one's is
    direction: Tensor | None = None
    # whether it comes in the place of a record, whatever the sampling
    replaces: bool = False
    # which it joins; several samples are dealt to these in turn
    nodes: tuple[int, ...] = (0,)


@dataclasses.dataclass(frozen=True, slots=True)
class Observers:
    """Observers while a block trains."""

    # messages, releases: shown all messages, and all releases
    messages: tuple[Observer, ...] = ()
    releases: tuple[ReleaseObserver, ...] = ()
    # called with the number of rounds done, the models, and how to get the ledger so
    # far
    after_round: Callable[[int, Tensor, Callable[[], Ledger]], None] | None = None
    # called with the number of rounds done and what gives all that is needed to go on
    # from there, for `trainers.runs.checkpoint.pack`
    keep: Callable[[int, Callable[[], Any]], None] | None = None


NOBODY = Observers()


def units(shares: Sequence[Any], unit: Unit) -> tuple[int, ...]:
    """Number of records of each share; or of users, one if none are told."""
    if unit != "user":
        return tuple(map(len, shares))
    users = users_of(shares)
    if users is None:
        return (1,) * len(shares)
    return tuple(len(of_node.unique()) for of_node in users)


@dataclasses.dataclass(frozen=True)
class Problem:
    """Data, model and network, made once and shared by all runs."""

    training: Training
    material: Material
    # of the nodes here: `trainers.data.Dataset`, or read as asked for
    shares: list[Any]
    network: Runner
    gradients: Callable[[], Differentiator]  # one for each worker
    ranks: Ranks | None = None  # who holds which nodes, where not all are here
    party: Party | None = None  # where each process has its own data alone
    counted: float | None = None  # noise of counts from which the clip norm is
    shards: Shards | None = None  # which coordinates of its nodes are here, if not all

    @classmethod
    def of(
        cls,
        training: Training,
        *,
        seed: int = 0,
        data_dir: str | pathlib.Path | None = None,
        held_out: float = 0.0,
        ranks: tuple[int, int] | Party | None = None,
        compiled: bool = False,
        precision: Precision = "float32",
        material: Material | None = None,
    ) -> Problem:
        """The problem that ``training`` describes; ``seed`` deals the data.

        ``material``: data, model and loss without names. ``held_out``: a share of the
        training data in the test data's place. ``compiled``, ``precision``: see
        `differentiator`. ``ranks``, (rank, number of ranks), or a `Party`: only their
        nodes are here. ``ValueError`` if the settings do not fit the data;
        `DataUnavailableError` if these are not to be had.
        """
        check_precision(precision)
        nodes = 1 if training.family.central else training.nodes
        party = ranks if isinstance(ranks, Party) else None
        if material is None:
            held = None if party is None else party.ranks.held
            material = Material.by_name(training, seed, data_dir, held_out, held)
        shares = list(material.shares)
        sizes = units(shares, training.unit) if party is None else party.sizes
        if len(sizes) != nodes:
            mean = "give one data set a node, or one for all to be dealt"
            if training.family.central:
                mean = "give one data set, [(inputs, targets)], or take dp-dsgt"
            raise ValueError(
                f"{len(sizes)} nodes have data, but {training.algorithm} is to run on "
                f"{nodes}: {mean}"
            )
        # The smallest first, which says what fits all.
        for node, size in sorted(enumerate(sizes), key=lambda one: one[1]):
            try:
                training.mechanism(0.0, sizes).sampling_rate(size)
            except ValueError as error:
                raise ValueError(f"node {node}: {error}") from None
        network: Any = training.family.runner(training.make(sizes), training.mixing())
        if isinstance(ranks, Party):
            dealt: Ranks | None = ranks.ranks
        else:
            dealt = None if ranks is None else Ranks(*ranks, nodes)
        if dealt is not None:
            if why := training.family.whole(training.setting()):
                start = "torchrun" if party is None else "--parties"
                raise ValueError(f"{training.algorithm} {why}: leave {start} out")
            carrier = RankNetwork(
                network.algorithm, network.mixing, network.needs, ranks=dealt
            )
            if party is None:
                shares = shares[dealt.held.start : dealt.held.stop]
            else:
                carrier = party.network(carrier, parameter_count(material.module))
            if isinstance(network, Network):
                network = carrier
            else:
                network = dataclasses.replace(network, carrier=carrier)
        return cls(
            training=training,
            material=material,
            shares=shares,
            network=network,
            gradients=lambda: differentiator(
                material.module,
                material.loss,
                *material.example,
                compiled=compiled,
                precision=precision,
            ),
            ranks=dealt,
            party=party,
        )

    def with_counts(self, clip: ClipRecord | None) -> Problem:
        """This problem, with the counts that its clip norm is from, if from any."""
        noise = None if clip is None else clip.noise_multiplier
        return dataclasses.replace(self, counted=noise)

    def over(self, shards: Shards) -> Problem:
        """This problem, of whose nodes some coordinates are here.

        ``ValueError`` for an algorithm, a mechanism or a model that is computed from
        more than that.
        """
        training, why = self.training, ""
        how = self.mechanism(1.0)
        if not getattr(self.network.algorithm, "by_coordinate", False):
            why = f"{training.algorithm} is not computed coordinate by coordinate"
        elif training.family.oracle is not Oracle or how.strategy[1:] or how.buffers:
            why = f"the noise of {training.algorithm} is not of one release alone"
        elif self.counted is not None:
            why = "counts of norms are made by one process"
        if why:
            raise ValueError(f"{why}: leave shards out")

        def gradients() -> Differentiator:
            found = self.gradients()
            other = found.graphs is not None
            if not isinstance(found, BookKeeping) or found.lower or other:
                raise ValueError(
                    "shards are for gradients by book-keeping in float32 "
                    f"({getattr(found, 'why', None) or 'not compiled, not bf16'}): "
                    "leave shards out"
                )
            found.shards = shards
            return found

        network = self.network
        if isinstance(network, RankNetwork):
            network = dataclasses.replace(network, shards=shards)
        return dataclasses.replace(
            self, network=network, gradients=gradients, shards=shards
        )

    @property
    def module(self) -> nn.Module:
        return self.material.module

    @property
    def test(self) -> Any:
        """Data to measure models on, a `trainers.data.Dataset`, or None."""
        return self.material.test

    @functools.cached_property
    def setting(self) -> Setting:
        return self.training.setting(self.sizes, parameter_places(self.module))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of protected units, records or users, of each node of the network."""
        if self.party is not None:
            return self.party.sizes
        return units(self.shares, self.training.unit)

    @property
    def traffic(self) -> Traffic | None:
        """Traffic from here to other processes; None where there are none."""
        return None if self.carrier is None else self.carrier.traffic

    @property
    def carrier(self) -> RankNetwork | None:
        """Carrier of messages to other processes; None where there are none."""
        if isinstance(self.network, RankNetwork):
            return self.network
        return getattr(self.network, "carrier", None)

    def ledger(self, noise: Noise) -> Ledger:
        """Ledger of a run, with as many releases as its algorithm asks for."""
        planned = self.training.family.planned(self.setting, noise)
        return self._held(with_counts(planned, self.counted, first=True))

    def mechanism(self, noise: Noise) -> Mechanism:
        """The oracle's mechanism, with ``noise`` of all nodes or of each."""
        return self.training.mechanism(noise, self.sizes)

    def stated(self, ledger: Ledger) -> Ledger:
        """``ledger``, of a run of this, with all that an account has to know of it."""
        if not self.training.family.private:
            return ledger  # promises nothing
        found = self._held(ledger).independent(self.material.independence)
        if is_place(name := self.training.algorithm):
            found = found.assuming(OWN_ALGORITHM.format(name=name))
        return found

    def _held(self, ledger: Ledger) -> Ledger:
        """``ledger`` with the number of nodes at which a record may be."""
        told = self.training.told_overlap
        if told is UNSET or (told == 1 and self.party is None):
            return ledger
        return msgspec.structs.replace(ledger, overlap=told)

    def start(self, seed: int, runs: int = 1) -> Tensor:
        """Initial parameters, (runs, nodes, dims): one draw for all nodes and runs."""
        parts, done = [], 0
        for part in self.start_parts(seed):
            if self.shards is not None:  # what is held elsewhere is not kept
                held = self.shards.held
                first, last = max(held.start - done, 0), max(held.stop - done, 0)
                done += len(part)
                part = part[first:last].clone()
            parts.append(part)
        return torch.cat(parts).repeat(runs, len(self.shares), 1)

    def start_parts(self, seed: int) -> Iterator[Tensor]:
        """Yield the initial parameters of whole nodes, one after the other, flat."""
        if self.material.starts_as_it_is:
            for each in trained(self.module).values():
                yield each.detach().flatten()
        else:
            generator = public_generator(seed, "start")
            yield from initial_parts(self.module, generator, gain=self.training.gain)

    @functools.cached_property
    def _here(self) -> threading.local:
        return threading.local()

    def own_gradients(self) -> Differentiator:
        """This thread's `gradients`, which all blocks that it trains share."""
        here = self._here
        if not hasattr(here, "gradients"):
            here.gradients = self.gradients()
        return here.gradients

    def oracle(
        self,
        noise_multiplier: Noise,
        streams: Streams,
        *,
        runs: int = 1,
        planted: Planted | None = None,
        memory_limit: int = MEMORY_LIMIT,
        observers: tuple[ReleaseObserver, ...] = (),
    ) -> Any:
        """Make the oracle that a block of runs asks; arguments as of `train`."""
        mechanism = self.mechanism(noise_multiplier)
        if self.ranks is not None:
            streams = streams.of(self.ranks.held)
        if self.shards is not None:
            streams = streams.within(self.shards)
        return self.training.family.oracle(
            self.material.data(
                private_data(
                    self.shares,
                    canary=None if planted is None else planted.record,
                    canary_nodes=(0,) if planted is None else planted.nodes,
                    replaces=mechanism.sampling == "without-replacement"
                    or (planted is not None and planted.replaces),
                    **crafted(planted),
                ).to(streams.device)
            ),
            self.own_gradients(),
            mechanism,
            streams,
            runs=runs,
            planted=None if planted is None else planted.runs,
            memory_limit=memory_limit,
            observers=observers,
        )

    def train(
        self,
        noise_multiplier: Noise,
        streams: Streams,
        *,
        runs: int = 1,
        start: Tensor | None = None,
        planted: Planted | None = None,
        observers: Observers = NOBODY,
        resume: Any = None,
        memory_limit: int = MEMORY_LIMIT,
    ) -> tuple[Tensor, Ledger]:
        """Train a block of runs: final models (runs, nodes, dims), and their ledger.

        ``noise_multiplier``: what the mechanism makes its noise from, or each node's.
        ``start``: (runs, nodes, dims), by default the seed's. ``planted``: a sample of
        some runs. ``resume``: what `Observers.keep` was given, unpacked.
        ``memory_limit``: bytes of one call of the oracle, about. ``ValueError`` if
        training diverges.
        """
        oracle = self.oracle(
            noise_multiplier,
            streams,
            runs=runs,
            planted=planted,
            memory_limit=memory_limit,
            observers=observers.releases,
        )
        if self.carrier is not None and isinstance(oracle, HearsAll):
            oracle.over(self.carrier.broadcast)
        begin = self.start(streams.seed, runs) if start is None else start
        begin = begin.to(streams.device)
        middle, journal = None, streams.journal
        if resume is not None:
            oracle.load_state_dict(resume["oracle"])
            if resume.get("came_back"):  # what it released since then is not repeated
                oracle.skip_begun()
                oracle.load_state_dict(oracle.state_dict())  # perhaps within an epoch
            state = checkpoint.like(self.network.begin(begin), resume["state"])
            middle = (resume["done"], state)

        def measured(done: int, models: Tensor) -> None:
            if observers.after_round is not None:
                observers.after_round(done, models, lambda: self.stated(oracle.ledger))

        def kept(done: int, state: Any) -> None:
            if observers.keep is not None:
                observers.keep(
                    done,
                    lambda: {
                        "done": done,
                        "state": state,
                        "oracle": oracle.state_dict(),
                        "journal": [] if journal is None else [journal.mark()],
                    },
                )

        if middle is not None and resume.get("came_back"):
            kept(*middle)  # if it ends again, it goes on from here as all others do
        models = self.network.run(
            begin,
            oracle,
            self.training.rounds,
            observers=observers.messages,
            after_round=measured if observers.after_round else None,
            keep=kept if observers.keep else None,
            resume=middle,
        )
        return models, self.stated(oracle.ledger)


def crafted(planted: Planted | None) -> dict[str, Tensor | None]:
    """Crafted gradients, as `trainers.data.PrivateData.of` takes them."""
    direction = None if planted is None else planted.direction
    many = direction is not None and not direction.is_floating_point()
    return {"coordinates" if many else "direction": direction}
