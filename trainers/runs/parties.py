"""A training run over parties: each keeps its own nodes' folder, and trusts nobody's.

What all must agree on crosses at the start as public words; after that only the
algorithm's messages do, and the numbers of rounds after which a party kept its state.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import pathlib
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from msgspec import UNSET
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from privaudit.files import json as _json
from privaudit.files.extras import need
from privaudit.files.folder import RunFolder
from privaudit.files.manifest import digest
from privaudit.files.user_code import code_digest
from privaudit.records import PartyRecord, as_nodes
from privaudit.settings import TrainingSettings
from privaudit.task_settings import is_own, is_table
from privaudit.version import __version__
from trainers.algorithms.family import Noise
from trainers.data import tables
from trainers.network.by_torch import joined
from trainers.network.exchange import Exchange, plain
from trainers.network.intersection import counted, identifiers_in
from trainers.network.kit import Kit
from trainers.network.over_ranks import Party
from trainers.network.ranks import own_gpu, where_am_i
from trainers.runs import checkpoint
from trainers.runs.material import Material
from trainers.runs.measures import CurveRecorder
from trainers.runs.outcome import TrainingResult
from trainers.runs.problem import units
from trainers.runs.run import Assignment, Keeper, OneProcess, Part
from trainers.runs.training import Training

_SAME_NOISE = 1e-6  # relative: of one account, computed on two machines
APART = (
    "accuracies are of this party's own nodes, on its own test data; how far apart the "
    "parties' models are was not measured"
)


class Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Public facts of a party's data."""

    sizes: tuple[int, ...]  # of its nodes
    kind: str  # shapes and dtypes of a record's input and target
    columns: str = ""  # digest of what is said of a table's columns, if it is one


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first ``runs/NAME-number`` in which a party could go on."""

    number: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


def sizes_of(
    party: Party, shares: Sequence[Any], training: Training
) -> tuple[int, ...]:
    """Number of records, or users, each node of the network has, as its party says.

    ``shares`` are this party's. Raises ``ValueError``, at all, if records are unlike.
    """
    exchange, data = party.exchange, training.data
    kind = str([(*value.shape, str(value.dtype)) for value in shares[0].example])
    said = tables.columns(pathlib.Path(data)) if is_table(data) else ""
    own = Facts(sizes=units(shares, training.unit), kind=kind, columns=said)
    all_facts = exchange.told("data", own, Facts)
    known = [facts.columns for facts in all_facts if facts.columns]
    for other, facts in enumerate(all_facts):
        held = party.ranks.held_by(other)
        if facts.kind != all_facts[0].kind:
            exchange.disagree(
                f"party {other} has records of another kind than party 0: shapes and "
                f"dtypes of inputs and targets are {plain(facts.kind)}, and "
                f"{plain(all_facts[0].kind)} there"
            )
        if facts.columns not in ("", *known[:1]):
            exchange.disagree(
                f"party {other} says other things of its table's columns than others: "
                "give all the same target and columns, in the same order"
            )
        if len(facts.sizes) != len(held) or min(facts.sizes, default=0) < 1:
            exchange.disagree(
                f"party {other} says that it has records for {len(facts.sizes)} nodes, "
                f"where it is to hold {len(held)}"
            )
    return tuple(size for facts in all_facts for size in facts.sizes)


def agreed(exchange: Exchange, settings: Mapping[str, Any]) -> None:
    """Raise ``ValueError``, at all, that names the party with other ``settings``."""
    own = {name: _json.encode(one, indent=0).decode() for name, one in settings.items()}
    said = exchange.told("settings", own, dict[str, str])
    for other, theirs in enumerate(said):
        for name in {**said[0], **theirs}:
            here, there = said[0].get(name, "unset"), theirs.get(name, "unset")
            if here != there:
                exchange.disagree(
                    f"party {other} has other settings than party 0: "
                    f"{plain(name)} is {plain(there)}, and {plain(here)} there"
                )


def public_settings(training: Training, settings: TrainingSettings) -> dict[str, Any]:
    """Settings that must be equal at all parties, by name; not where data lie."""
    own = ("data", "train") if is_own(training.data) else ()
    fields = msgspec.to_builtins(training)
    options = fields.pop("options")
    asked = dataclasses.asdict(settings)
    return {
        **{name: value for name, value in fields.items() if name not in own},
        **options,
        **{name: value for name, value in asked.items() if name not in _OWN},
        "identifiers": settings.identifiers is not None,
        "version": __version__,
        "torch_version": str(torch.__version__).partition("+")[0],
    }


# What each party may choose for itself.
_OWN = (
    *("data_dir", "key_file", "device", "compiled", "save"),
    *("parties", "exchange", "kit", "patience", "identifiers"),
)


def place_of(settings: TrainingSettings, party: int | None = None) -> tuple[int, int]:
    """(number of this party, number of parties): its kit's, or its process's.

    ``party`` is its number, if its process was not told.
    """
    if settings.kit is None:
        return where_am_i(party)
    kit = Kit.read(settings.kit)
    return kit.rank, len(kit.sites)


def _opened(
    settings: TrainingSettings, rank: int, size: int
) -> contextlib.AbstractContextManager[Exchange]:
    if settings.kit is None:
        return joined(rank, size, settings.patience)
    need("--exchange flare", "flare")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # read as it is loaded
    from trainers.network.by_flare import by_kit

    return by_kit(Kit.read(settings.kit), settings.patience)


@contextlib.contextmanager
def connected(
    training: Training,
    settings: TrainingSettings,
    material: Material | None,
    exchange: Exchange | int | None = None,
    note: Callable[[str], None] = lambda message: None,
    choose: Callable[[Material, tuple[int, ...]], Training] | None = None,
) -> Iterator[tuple[Training, Material | None, Party | None]]:
    """The training, this party's data, and what all know of others', while it lasts.

    As given, without a party, if ``settings`` do not ask for parties. ``exchange`` is
    what carries messages; without one, that of ``settings``, for the party of that
    number, or of what its kit or its process says. ``note`` is told what takes long,
    and ``choose`` makes the training once sizes are known.
    """
    if not settings.parties:
        if settings.drop_lost or settings.identifiers is not None:
            name = "--drop-lost" if settings.drop_lost else "--identifiers"
            raise ValueError(f"{name} is of parties: give --parties too")
        yield training, material, None
        return
    with contextlib.ExitStack() as stack:
        if not isinstance(exchange, Exchange):
            rank, size = place_of(settings, exchange)
            check_parties(training, size, drop_lost=settings.drop_lost)
            note(f"party {rank} of {size} waits for the others ...")
            opened = _opened(settings, rank, size)
        else:
            opened = exchange
            drops = settings.drop_lost or exchange.drops_lost
            check_parties(training, exchange.size, drop_lost=drops)
        exchange = stack.enter_context(opened)
        if settings.drop_lost:
            exchange.may_go_on()
        agreed(exchange, public_settings(training, settings))
        party = Party(exchange, training.nodes)
        if material is None:
            seed, held = settings.public_seed, party.ranks.held
            material = Material.by_name(training, seed, settings.data_dir, held=held)
        sizes = sizes_of(party, material.shares, training)
        shared = None
        if settings.identifiers is not None:
            need("--identifiers", "psi")
            note("counting the records that parties share ...")
            held = party.ranks.held
            own = identifiers_in(settings.identifiers, sizes[held.start : held.stop])
            shared = counted(exchange, own)
        if choose is not None:
            training = choose(material, sizes)
        if is_own(training.data):
            training = msgspec.structs.replace(training, train=sum(sizes))
        yield training, material, dataclasses.replace(party, sizes=sizes, shared=shared)


def settled(
    party: Party,
    noise: Noise,
    out: str | os.PathLike[str] | None,
    name: str,
    seed: int | None,
) -> tuple[Noise, pathlib.Path, PartyRecord]:
    """The noise that all add, this party's folder, and what its record says."""
    exchange = party.exchange
    noise = agreed_noise(exchange, noise)
    folder = folder_of(exchange, None if out is None else pathlib.Path(out), name)
    run = run_name(exchange, RunFolder(folder), seed)
    rank, size = exchange.rank, exchange.size
    record = PartyRecord(
        party=rank, parties=size, sizes=party.sizes, run=run, shared=party.shared
    )
    return noise, folder, record


def check_parties(training: Training, parties: int, *, drop_lost: bool = False) -> None:
    if drop_lost and not (
        training.family.outlives and "symmetric" in training.mixing().properties
    ):
        raise ValueError(
            f"{training.algorithm} cannot go on without a party: its nodes must "
            "average with symmetric weights, as dp-dsgd and dp-dsgt do on an "
            "undirected graph with weights=metropolis; leave --drop-lost out"
        )
    if why := training.family.whole(training.setting()):
        raise ValueError(f"{training.algorithm} {why}: leave --parties out")
    if training.overlap > 1 and training.unit == "record":
        raise ValueError(
            "a party's account is of its own releases, whatever other parties release "
            "of a record: leave overlap out, and give it to `privaudit join`"
        )
    if training.nodes < parties:
        raise ValueError(
            f"{parties} parties are more than the {training.nodes} nodes that they "
            "would hold: start fewer, or set nodes"
        )


def agreed_noise(exchange: Exchange, own: Noise) -> Noise:
    """The most of what the parties' accounts ask for: they differ by rounding alone."""
    each = own if isinstance(own, tuple) else (own,)
    told = {str(place): value for place, value in enumerate(each)}
    said = exchange.told("noise", told, dict[str, float])
    most = []
    for place in told:
        values = [theirs.get(place, math.nan) for theirs in said]
        for other, value in enumerate(values):
            if not math.isclose(value, values[0], rel_tol=_SAME_NOISE):
                exchange.disagree(
                    f"party {other} has other settings than party 0: noise_multiplier "
                    f"is {value:g}, and {values[0]:g} there"
                )
        most.append(max(values))
    return tuple(most) if isinstance(own, tuple) else most[0]


def folder_of(exchange: Exchange, out: pathlib.Path | None, name: str) -> pathlib.Path:
    """This party's folder: in ``out``, or in the first ``runs/NAME`` to go on in."""
    own = f"party-{exchange.rank}"
    if out is not None:
        return out / own
    default = pathlib.Path("runs") / name

    def numbered(number: int) -> pathlib.Path:
        place = default if number == 1 else default.with_name(f"{name}-{number}")
        return place / own

    free = next(
        number
        for number in itertools.count(1)
        if not RunFolder(numbered(number)).has("result.json")
    )
    said = exchange.told("place", Place(number=free), Place)
    return numbered(min(theirs.number for theirs in said))


def run_name(exchange: Exchange, folder: RunFolder, seed: int | None) -> str:
    """Name of this run: as the folder has it, if it goes on."""
    known = ""
    if folder.has("config.json"):
        config = folder.read("config.json", dict)
        known = str((config.get("party") or {}).get("run", ""))
    words = {"run": known, "new": secrets.token_hex(8)}
    said = exchange.told("run", words, dict[str, str])
    begun = {
        name: other for other, theirs in enumerate(said) if (name := theirs.get("run"))
    }
    if len(begun) > 1:
        one, two = sorted(begun.values())[:2]
        exchange.disagree(
            f"the folders of parties {one} and {two} hold different runs: give all the "
            "folders of one run, or new ones, with --out"
        )
    new = f"study {seed}" if seed is not None else said[0].get("new", "")
    return plain(next(iter(begun), new), 64)


class Parties(OneProcess):
    """Each process has some of the nodes, their data, and a folder of its own.

    A checkpoint is of its own nodes. All keep theirs after the same rounds, the last
    two of them, so that all have one in common whenever any is killed.

    `trainers.network.exchange.PartyLostError` if another party ends, hangs or sends
    something malformed.
    """

    def __init__(self, party: Party, key_file: pathlib.Path | None = None) -> None:
        super().__init__(key_file)
        self._party = party
        self._common = self._rounds = 0
        self._unknown: list[str] = []  # functions that could not be compared

    @contextlib.contextmanager
    def joined(self, given: Assignment) -> Iterator[Assignment]:
        """As given: parties are connected by now."""
        if given.run.device != "cpu":
            torch.cuda.set_device(own_gpu(given.run.device, torch.cuda.device_count()))
        yield given

    def begins(self, given: Assignment, folder: RunFolder, *, ended: bool) -> None:
        """Agree on where all start, and after which round all go on."""
        exchange = self._party.exchange
        self._mixing = given.run.training.mixing()
        self._rounds = rounds = given.run.training.rounds
        start = given.problem.start(given.run.public_seed)[0, 0].numpy().tobytes()
        own = [rounds] if ended else self.kept(folder)
        self._losses = losses = Losses.of(folder)
        material = given.problem.material
        words = Begin(
            start=digest(start),
            kept=own,
            lost=[*losses.lost],
            python=f"{sys.version_info.major}.{sys.version_info.minor}",
            loss=Code.of(material.given_loss),
            transform=Code.of(material.transform),
        )
        said = exchange.told("begin", words, Begin)
        self._unknown = [
            name
            for name in ("loss", "transform")
            if not _same_code(exchange, name, said)
        ]
        for other, theirs in enumerate(said):
            if theirs.start != said[0].start:
                exchange.disagree(
                    f"the models of party {other} start at other parameters than those "
                    "of party 0: make them the same, as with torch.manual_seed"
                )
        lost = {other for theirs in said for other in theirs.lost}
        # Who was lost goes on from where it is itself, if it has kept that; a study has
        # no journal of what it released since then.
        back = {other for other in lost if max(said[other].kept, default=0) > 0}
        back -= set() if given.run.seed is None else lost
        every = range(len(said))
        here = [other for other in every if other not in back] or every
        common = _common(said, every) or {
            done
            for done in _common(said, here)
            if all(max(said[other].kept) <= done for other in back)
        }
        if not common:
            last = min(here, key=lambda other: max(said[other].kept, default=-1))
            exchange.disagree(
                f"party {last} has kept nothing of this run after the rounds that the "
                "others can go on from: give the folder that it began with, or begin "
                "again in new ones, with --out"
            )
        self._common = max(common)
        if self._common not in own and not ended:
            losses.back = max(own)
            losses.missed.append((losses.back, self._common))
        exchange.begins(self._common)
        if ended:
            exchange.over()

    def kept(self, folder: RunFolder) -> list[int]:
        """After which rounds this party can go on with a run that has not ended."""
        return kept_rounds(folder)

    def keeper(self, given: Assignment, folder: RunFolder) -> PartyKeeper:
        others = self._party.exchange
        return PartyKeeper(given, folder, others, self._common, self._losses)

    def gathered(self, part: Part) -> list[Part] | None:
        """This party's alone, once all others can end without it."""
        exchange = self._party.exchange
        exchange.all_kept(self._rounds)
        exchange.over()
        return [part]

    def numbered(self, models: Tensor) -> dict[int, Tensor]:
        return dict(zip(self._party.ranks.held, models, strict=True))

    def remarks(self, parts: Sequence[Part]) -> tuple[str, ...]:
        unknown = (
            f"the parties' functions for the {name} could not be compared: that they "
            "do the same is assumed"
            for name in self._unknown
        )
        return (*super().remarks(parts), APART, *self._gone(), *unknown)

    def _gone(self) -> Iterator[str]:
        """Sentences on who left, what remained of the graph, whose releases stopped."""
        ranks, gone = self._party.ranks, set[int]()
        for party, k in sorted(self._party.exchange.left.items()):
            held = ranks.held_by(party)
            gone |= {*held}
            yield (
                f"party {party} ({as_nodes(held)}) was lost in round {k}, and this one "
                "went on: its releases stopped, and are in its own ledger alone; its "
                "weight in each average is the node's own since then"
            )
        for party, k in sorted(self._losses.lost.items()):
            if party not in self._party.exchange.left:
                yield f"party {party} was lost in round {k}, and came back later"
        for one, two in self._losses.missed:
            yield (
                f"this party was lost, and came back with its models of round {one} "
                f"when the others had done {two}"
            )
        here = [node for node in range(ranks.nodes) if node not in gone]
        ever = np.asarray(self._mixing.matrices).sum(0)[np.ix_(here, here)]
        many, _ = connected_components(ever, connection="strong")
        if gone and many > 1:
            yield f"without them the graph falls into {many} parts, which do not meet"


def _common(said: Sequence[Begin], parties: Sequence[int]) -> set[int]:
    """Rounds after which all of ``parties`` can go on."""
    return set.intersection(*(set(said[other].kept) for other in parties))


@dataclasses.dataclass
class Losses:
    """Losses of parties by round, as this party has kept them.

    ``missed`` is where it was lost itself: the round of the state with which it came
    back, and how many the others had done by then.
    """

    lost: dict[int, int]
    missed: list[tuple[int, int]]
    back: int | None = None  # round of the state with which it comes back now

    @classmethod
    def of(cls, folder: RunFolder) -> Losses:
        """As the last checkpoint in ``folder`` has them, or the result."""
        if folder.has("result.json"):
            found = folder.read("result.json", TrainingResult)
            return cls(dict((*(found.left or ()), *(found.returned or ()))), [])
        lost, missed = (contents(folder) or [{}])[-1].get("losses", ((), ()))
        return cls(dict(lost), [(one, two) for one, two in missed])


class Code(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A party's function: what it is called, and a digest; none where none is had."""

    name: str = ""
    digest: str = ""

    @classmethod
    def of(cls, function: Callable[..., Any] | None) -> Code:
        """Code of a function; of no function an empty one."""
        if function is None:
            return cls()
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return cls(name=name, digest=code_digest(function) or "")


def _same_code(exchange: Exchange, what: str, said: Sequence[Begin]) -> bool:
    """Return whether all are known to have the same function."""
    known = [getattr(theirs, what) for theirs in said]
    first, sure = known[0], True
    for other, theirs in enumerate(known):
        if bool(theirs.name) == bool(first.name):
            alike = theirs.digest and first.digest
            alike = alike and said[other].python == said[0].python
            sure &= bool(alike) or not first.name
            if not alike or theirs.digest == first.digest:
                continue
        one, two = (plain(each.name) or "none" for each in (theirs, first))
        exchange.disagree(
            f"party {other} has another {what} than party 0: {one}, and {two} there"
            f"{', of other code' if one == two else ''}; give all the same function"
        )
    return sure


class Begin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start of a party's models, the rounds after which it can go on, and its code.

    ``lost`` are parties that this one went on without before.
    """

    start: str
    kept: list[int]
    lost: list[int]
    python: str
    loss: Code
    transform: Code


def kept_rounds(folder: RunFolder) -> list[int]:
    """After which rounds a run can go on: the last two that were kept."""
    return [0, *(content["middle"]["done"] for content in contents(folder))][-2:]


def contents(folder: RunFolder) -> list[dict[str, Any]]:
    """Checkpoints that were kept, the last one first."""
    if not folder.has("checkpoint.pt"):
        return []
    try:
        kept = checkpoint.unpack((folder / "checkpoint.pt").read_bytes())["kept"]
        found = [checkpoint.unpack(part) for part in kept]
        for content in found:
            _ = content["middle"]["done"] + 0
        return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise folder.broken("checkpoint.pt", error) from None


class PartyRecorder(CurveRecorder):
    """A `CurveRecorder` of this party's nodes: how far apart all are is not known."""

    def _apart(self, models: Tensor) -> None:
        return None


class PartyKeeper(Keeper):
    """A `Keeper` of one party's nodes: it goes on after the round that all have."""

    _recorder = PartyRecorder

    def __init__(
        self,
        given: Assignment,
        folder: RunFolder,
        exchange: Exchange,
        common: int,
        losses: Losses,
    ) -> None:
        self._others, self._common, self._losses = exchange, common, losses
        self._states: list[tuple[int, bytes]] = []
        super().__init__(given, folder)

    def _restore(self) -> None:
        for content in contents(self._folder):
            done = content["middle"]["done"]
            if done <= self._common:
                self._states.append((done, checkpoint.pack(content)))
            came_back = done == self._losses.back
            if done == self._common or came_back:
                content["middle"] |= {"done": self._common, "came_back": came_back}
                self._take(content)

    def losses(self) -> dict[str, Any]:
        left = self._others.left
        returned = {n: k for n, k in self._losses.lost.items() if n not in left}
        return {
            "left": tuple(sorted(left.items())) or UNSET,
            "returned": tuple(sorted(returned.items())) or UNSET,
            "missed": tuple(self._losses.missed) or UNSET,
        }

    def keep(self, done: int, middle: Callable[[], Any]) -> None:
        """Write a checkpoint where epsilon is computed, and after the last round.

        That before it stays until all have a later one.
        """
        if done % self._every and done != self._rounds:
            return
        back = bool(self._states) and self._others.all_kept(self._states[-1][0])
        self._write(middle())
        self._others.kept(done)
        if back and done != self._rounds:  # as all know, who heard the same of all
            self._others.begin_anew(done)

    def _store(self, content: dict[str, Any]) -> None:
        done = content["middle"]["done"]
        self._losses.lost.update(self._others.left)
        losses = [*self._losses.lost.items()], self._losses.missed
        content = {**content, "losses": losses}
        self._states = [*self._states, (done, checkpoint.pack(content))][-2:]
        whole = checkpoint.pack({"kept": [part for _, part in self._states]})
        self._folder.write("checkpoint.pt", whole)
