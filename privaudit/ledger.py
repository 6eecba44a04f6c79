"""Ledger of a run's releases about private data, node by node: the input of accounts.

An entry is one of dp-accounting's events with all that the event leaves implicit: the
bound on a record's norm, the noise in the same unit, the sensitivity under each
neighbour relation, and the sampling. Equal releases in a row are stored once, with a
count. Releases on disjoint records, as one pass over batches makes, say so: they
compose in parallel (`privaudit.accounting.parallel`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, UnsetType

from privaudit.files import json as _json
from privaudit.files.arguments import public, take_fields
from privaudit.release import NoSampling, RandomAllocation, Release
from privaudit.results import Independence, Unit, check_assumed

if TYPE_CHECKING:  # a second of import time, and only for those who want an event
    from dp_accounting import DpEvent

# 2 has passes over disjoint records, and assumptions; 3 random allocation; 4 mechanisms
# with details; 5 an observer; 6 an overlap. What has none of these is written as 1.
VERSIONS = (1, 2, 3, 4, 5, 6)

MOST_RELEASES = int(1e308)  # of a kind: doubles count no more
MOST_NODES = 1000  # that hold one record: their releases are put together one by one

RESUMED = (
    "nobody learns anything from which releases were made again with other sums, when "
    "the run went on with other data, threads or libraries than before it was stopped"
)

OWN_ALGORITHM = (
    "the code of the algorithm {name} takes of records what its oracle releases, and "
    "nothing else"
)

COUNTED = (
    "each party gave the identifiers of its records alone to the count of what they "
    "share: who gives a single one learns whether another party has it"
)

_OBSERVER = re.compile(
    r"any-node|everybody|edge:[0-9]{1,9}-[0-9]{1,9}|[0-9]{1,9}(,[0-9]{1,9})*"
)

PLACED = (
    "within an epoch of random allocation, the run went on with the records that it "
    "had before it was stopped, each in its place"
)


# What an account assumes of units whose gradients are their own in these ways; "by
# construction" needs nothing. Decided by `trainers.models.independence`.
ASSUMED: dict[Independence, str] = {
    "by construction from public tensors": "tensors that the code of the model and the "
    "loss takes besides the model's parameters, such as buffers, say nothing of a "
    "{unit}",
    "by isolation": "the code of the model, the loss and the data holds nothing that "
    "was made of {unit}s, looks up no {unit} but the one it is given, nor what else "
    "runs and for how long, and keeps nothing of a {unit} outside its process",
}


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``count`` equal releases, one after another.

    Parameters
    ----------
    disjoint
        The number of the pass over the node's records to which these releases belong:
        each record enters at most one release of a pass, and no record's value decides
        which. Unset: every record may be in every release.
    dealt
        Of how many parts of the pass a record's is drawn, each with this chance at
        least, in secret and anew for each pass, as shuffling does. Upper sides make no
        use of it. Unset: a record's part may be known.
    """

    release: Release
    count: int = 1
    disjoint: int | UnsetType = UNSET
    dealt: int | UnsetType = UNSET

    def __post_init__(self) -> None:
        if not isinstance(self.release, Release):
            raise ValueError(
                "an entry is a count of a privaudit.release.Release, got "
                f"{self.release!r}"
            )
        if type(self.count) is not int or self.disjoint is not UNSET:
            take_fields(self, "count", "disjoint", "dealt")  # 1000 and 1e3 are one
        if not 1 <= self.count <= MOST_RELEASES:
            raise ValueError(f"count must be >= 1 and <= 1e308, got {self.count}")
        if self.disjoint is not UNSET and self.disjoint < 0:
            raise ValueError(f"a pass has a number >= 0, got disjoint={self.disjoint}")
        if self.dealt is not UNSET and not (self.disjoint is not UNSET and self.dealt):
            raise ValueError(
                "dealt, a number of parts of a pass >= 1, goes with disjoint, got "
                f"dealt={self.dealt}"
            )
        allocated = isinstance(self.release.sampling, RandomAllocation)
        if allocated and self.disjoint is not UNSET:
            raise ValueError(
                "random allocation is no pass over disjoint records: the records of a "
                "batch are drawn; leave disjoint out"
            )


class Ledger(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All releases of a run, node by node; every epsilon is computed from it.

    Parameters
    ----------
    nodes
        ``nodes[i]`` is a tuple of node i's releases, in order of time.
    unit
        What neighbours differ in, and so what the sensitivities are of: "record",
        "node" or "user".
    failure
        Probability, in [0, 1), that some sensitivity does not hold, for reasons that
        do not depend on the data. Accounts subtract it from delta.
    assumes
        What must be true of the run beyond its releases, in sentences. An account that
        rests on such assumptions is conditional, never certified.
    observer
        Against whom an account of these releases holds, in the form of ``privaudit
        views --observer``. Unset: an observer of all releases.
    overlap
        At how many nodes one record, or user, may be. Unset: at one.

    Examples
    --------
    >>> import privaudit as pa
    >>> step = pa.Release.of_sum(
    ...     norm_bound=1.0, noise_multiplier=1.0, sampling=pa.PoissonSampling(0.01)
    ... )
    >>> 1.82 < pa.epsilon(ledger=Ledger.of(step, 1000), delta=1e-5).upper < 1.84
    True
    """

    format: Literal["privaudit-ledger"] = "privaudit-ledger"
    version: int = 1
    nodes: tuple[tuple[Entry, ...], ...]
    unit: Unit = "record"
    failure: float = 0.0
    assumes: tuple[str, ...] | UnsetType = UNSET
    observer: str | UnsetType = UNSET
    overlap: int | UnsetType = UNSET

    def __post_init__(self) -> None:
        take_fields(self, "version", "unit", "failure", "assumes", "observer")
        take_fields(self, "overlap")
        each = self.nodes if isinstance(self.nodes, tuple) else (None,)
        if not all(
            isinstance(entries, tuple) and all(isinstance(e, Entry) for e in entries)
            for entries in each
        ):
            raise ValueError(
                "nodes must be a tuple that has a tuple of privaudit.ledger.Entry for "
                "each node; Ledger.of makes a ledger of equal releases"
            )
        if not 0 <= self.failure < 1:
            raise ValueError(f"failure must be in [0, 1), got {self.failure}")
        if self.version not in VERSIONS:
            raise ValueError(
                f"this is a ledger of version {self.version}; this privaudit reads "
                f"versions {VERSIONS[0]} to {VERSIONS[-1]}: use the one that wrote it, "
                "or write it again"
            )
        if not self.nodes:
            raise ValueError("a ledger must have a node, even one without releases")
        if self.observer is not UNSET:
            if not _OBSERVER.fullmatch(self.observer):
                raise ValueError(
                    f"there is no observer {self.observer[:40]!r}: it is any-node, "
                    "everybody, a node (3), several (3,5) or a wire (edge:1-2)"
                )
            if len(self.nodes) > 1 and self.observing >= set(range(len(self.nodes))):
                raise ValueError(
                    f"observer {self.observer[:40]}: nobody is left to be protected, "
                    "all nodes collude"
                )
        check_assumed(self.assumptions)
        if self.assumes == ():  # one way to say nothing
            msgspec.structs.force_setattr(self, "assumes", UNSET)
        plain = self.unit == "record" and self.failure == 0 and self.assumes is UNSET
        version = 1 if plain else 2
        for entry in (one for entries in self.nodes for one in entries):
            if entry.release.details is not UNSET:
                version = 4
                break
            dealt = entry.dealt is not UNSET
            if dealt or isinstance(entry.release.sampling, RandomAllocation):
                version = 3
            elif entry.disjoint is not UNSET:
                version = max(version, 2)
        version = version if self.observer is UNSET else 5
        if self.overlap is not UNSET:
            version = 6
            if not 1 <= self.overlap <= MOST_NODES:
                raise ValueError(
                    "overlap, at how many nodes one record may be, must be in [1, "
                    f"{MOST_NODES}], got {self.overlap}"
                )
        msgspec.structs.force_setattr(self, "version", version)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """``assumes`` as a tuple; empty if it is unset."""
        return () if isinstance(self.assumes, UnsetType) else self.assumes

    @property
    def most_nodes(self) -> int:
        """``overlap`` as a number: 1 if it is unset."""
        return 1 if isinstance(self.overlap, UnsetType) else self.overlap

    def independent(self, how: Independence) -> Ledger:
        """Add what an account of this assumes if units are independent ``how``."""
        if how not in ASSUMED:
            return self
        return self.assuming(ASSUMED[how].format(unit=self.unit))

    def assuming(self, *more: str) -> Ledger:
        """Add what an account of this assumes besides, each once."""
        assumes = tuple(dict.fromkeys((*self.assumptions, *more)))
        return msgspec.structs.replace(self, assumes=assumes)

    @property
    def observing(self) -> frozenset[int]:
        """Numbers of the observer's own nodes, whose data it knows."""
        named = "" if isinstance(self.observer, UnsetType) else self.observer
        if len(self.nodes) == 1 or not named.replace(",", "").isdigit():
            return frozenset()  # a node's part of a ledger, or no nodes that look
        return frozenset(map(int, named.split(",")))

    @classmethod
    @public
    def of(cls, release: Release, count: int = 1, *, nodes: int = 1) -> Ledger:
        """Make a ledger of ``nodes`` nodes that each made ``count`` equal releases."""
        recorder = Recorder(nodes)
        for node in range(nodes):
            recorder.record(node, release, count)
        return recorder.ledger()

    @classmethod
    def joined(cls, parts: Iterable[Ledger]) -> Ledger:
        """Join the ledgers of parts of a network into one of all nodes, in their order.

        Raises ``ValueError`` if their units differ, or if one is of what an observer
        sees.
        """
        parts = _ledgers(parts)
        if any(part.observer is not UNSET for part in parts):
            raise ValueError(
                "ledgers of what an observer sees cannot be joined: join those of the "
                "runs, and observe the whole"
            )
        if len(parts) == 1:
            return parts[0]
        units = {part.unit for part in parts} or {"record"}
        if len(units) > 1:
            raise ValueError(f"ledgers of different units, {units}, cannot be joined")
        assumed = dict.fromkeys(what for part in parts for what in part.assumptions)
        return cls(
            nodes=tuple(node for part in parts for node in part.nodes),
            unit=units.pop(),
            failure=max((part.failure for part in parts), default=0.0),
            assumes=tuple(assumed),
            overlap=_most_nodes(parts),
        )

    def apart(self) -> list[Ledger]:
        """Split into one ledger per node; `joined` is the inverse.

        Raises ``ValueError`` for a ledger of what an observer sees.
        """
        if self.observer is not UNSET:
            raise ValueError(
                "a ledger of what an observer sees cannot be taken apart: use "
                "Certificate.node"
            )
        return [msgspec.structs.replace(self, nodes=(node,)) for node in self.nodes]

    @classmethod
    def composed(cls, parts: Iterable[Ledger]) -> Ledger:
        """Compose several runs on the same data: each node's releases in sequence.

        The parameters of all runs (noise, rates, steps) must have been fixed
        beforehand, not chosen in view of earlier results; see `privaudit.Budget` for
        that. The chance of failure is paid once for each run.

        Raises
        ------
        ValueError
            If no ledger is given, or if units or numbers of nodes differ, as it is then
            not known which records are the same.
        """
        parts = _ledgers(parts)
        if not parts:
            raise ValueError("give at least one ledger to compose")
        if len(parts) == 1:
            return parts[0]
        units = {part.unit for part in parts}
        if len(units) > 1:
            raise ValueError(
                f"ledgers of different units, {' and '.join(sorted(units))}, cannot be "
                "composed: account each by itself"
            )
        sizes = [len(part.nodes) for part in parts]
        if len(set(sizes)) > 1:
            raise ValueError(
                "ledgers of the same data have the same nodes, got "
                f"{', '.join(map(str, sizes))} of them: which record is at which node "
                "is not known"
            )
        failure = math.fsum(part.failure for part in parts) * (1 + 2**-50)
        if failure >= 1:
            raise ValueError(
                f"the chances of failure add up to {failure:g}: nothing is bounded"
            )
        assumed = dict.fromkeys(what for part in parts for what in part.assumptions)
        return cls(
            nodes=tuple(
                _in_sequence(nodes)
                for nodes in zip(*(part.nodes for part in parts), strict=True)
            ),
            unit=units.pop(),
            failure=failure,
            assumes=tuple(assumed),
            observer=_one_observer(parts),
            overlap=_most_nodes(parts),
        )

    def to_event(self, node: int | None = None) -> DpEvent:
        """Convert all releases of one node into an event of dp-accounting.

        dp-accounting has no event for passes over disjoint records: they are composed
        in sequence, which costs at least as much. ``node`` may be left out if all nodes
        released the same.

        Raises
        ------
        ValueError
            If nodes differ and none is named; or if the ledger has assumptions or a
            chance of failure, so that an account of the event would be no bound.
        """
        import dp_accounting as dpa

        if node is None:
            if len(set(self.nodes)) != 1:
                raise ValueError(
                    f"the {len(self.nodes)} nodes released different things: name one, "
                    "to_event(node)"
                )
            node = 0
        self.check_node(node)
        if (
            self.failure
            or self.assumptions
            or self.observer is not UNSET
            or self.most_nodes > 1
        ):
            raise ValueError(
                "an event has no word for what this ledger assumes, for whom it holds, "
                "at how many nodes a record may be, nor for a chance of failure: an "
                "account of it would claim too much"
            )

        return dpa.ComposedDpEvent(
            [
                dpa.SelfComposedDpEvent(entry.release.event(), entry.count)
                for entry in self.nodes[node]
            ]
        )

    def check_node(self, node: int) -> None:
        """Raise ``ValueError`` unless ``node`` is the number of a node, from 0 on."""
        if node not in range(len(self.nodes)):
            raise ValueError(
                f"nodes are numbered from 0 to {len(self.nodes) - 1}, got {node!r}"
            )

    def to_json(self) -> str:
        """Write this ledger as JSON; equal ledgers give equal text."""
        fields = msgspec.to_builtins(self)
        if self.version == 1:  # as the first version wrote it
            del fields["unit"], fields["failure"]
        return _json.encode(fields).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Ledger:
        """Read a ledger that ``to_json`` wrote.

        Raises ``ValueError`` if the text is something else, has an unknown field, or is
        of another version.
        """
        # The version first: a newer one may have fields that this one does not know.
        head = _json.decode(text, dict)
        if head.get("format") != "privaudit-ledger" or "version" not in head:
            raise ValueError(
                'this is no ledger: it lacks "format": "privaudit-ledger" '
                "or its version"
            )
        if head["version"] not in VERSIONS:
            cls(nodes=(), version=head["version"])  # raises, and says what to do
        return _json.decode(text, cls)


def _ledgers(parts: Iterable[Ledger]) -> list[Ledger]:
    parts = list(parts) if isinstance(parts, Iterable) else [parts]
    for part in parts:
        if not isinstance(part, Ledger):
            raise ValueError(f"parts must be a list of ledgers, got {part!r} in it")
    return parts


def _most_nodes(parts: list[Ledger]) -> int | UnsetType:
    """At how many nodes a record may be, of the parts together; unset: at one."""
    most = max((part.most_nodes for part in parts), default=1)
    return most if most > 1 else UNSET


def _one_observer(parts: Iterable[Ledger]) -> str | UnsetType:
    """Whom all of ``parts`` hold for: what holds for who sees all, does for one."""
    named = {part.observer for part in parts if part.observer is not UNSET}
    if len(named) > 1:
        raise ValueError(
            f"ledgers of what different observers see ({', '.join(map(str, named))}) "
            "cannot be put together: account each by itself"
        )
    return named.pop() if named else UNSET


def _in_sequence(parts: tuple[tuple[Entry, ...], ...]) -> tuple[Entry, ...]:
    """A node's releases of several runs, each with passes and epochs of its own."""
    found: list[Entry] = []
    first = 0
    begun: dict[RandomAllocation, int] = {}
    for entries in parts:
        last = -1
        counts: dict[RandomAllocation, int] = {}
        for entry in entries:
            how = entry.release.sampling
            if isinstance(how, RandomAllocation):
                counts[how] = counts.get(how, 0) + entry.count
            if entry.disjoint is not UNSET:
                last = max(last, entry.disjoint)
                entry = msgspec.structs.replace(entry, disjoint=first + entry.disjoint)
            found.append(entry)
        for how, count in counts.items():
            if begun.get(how, 0) % how.batches:
                raise ValueError(
                    "a run of random allocation ended within an epoch, and another one "
                    f"goes on with epochs of the same {how.batches} batches: they "
                    "cannot be told apart in one ledger"
                )
            begun[how] = begun.get(how, 0) + count
        first += last + 1
    return tuple(found)


class Recorder:
    """Collects the releases of a run as they happen.

    The one mutable thing here: it belongs to whoever releases (the oracle), and gives
    out frozen ledgers.
    """

    def __init__(
        self, nodes: int, *, unit: Unit = "record", failure: float = 0.0
    ) -> None:
        if nodes < 1:
            raise ValueError(f"a ledger needs at least one node, got {nodes}")
        self._unit: Unit = unit
        self._failure = failure
        self._entries: list[list[Entry]] = [[] for _ in range(nodes)]
        self._assumes: tuple[str, ...] = ()
        self._overlap: int | UnsetType = UNSET

    @classmethod
    def of(cls, ledger: Ledger) -> Recorder:
        """One that goes on from ``ledger``. ``ValueError`` if it is an observer's."""
        if ledger.observer is not UNSET:
            raise ValueError(
                f"a ledger of what {ledger.observer} sees cannot go on: go on from the "
                "run's own"
            )
        recorder = cls(len(ledger.nodes), unit=ledger.unit, failure=ledger.failure)
        recorder._entries = [list(entries) for entries in ledger.nodes]
        recorder._assumes = ledger.assumptions
        recorder._overlap = ledger.overlap
        return recorder

    def record(
        self,
        node: int,
        release: Release,
        count: int = 1,
        *,
        disjoint: int | None = None,
        dealt: int | UnsetType = UNSET,
    ) -> None:
        """``count`` releases by ``node``; a repeat of its last one raises the count.

        Those of a pass, ``disjoint``, raise the count of an equal one of that pass
        wherever it stands: their order is of no account. ``dealt``: see `Entry`.
        """
        if count < 0:
            raise ValueError(f"count must be >= 0, got {count}: a release stays made")
        if count == 0:
            return
        one_pass = UNSET if disjoint is None else disjoint
        entries = self._entries[node]
        first = max(len(entries) - 1, 0) if disjoint is None else 0
        for place in range(first, len(entries)):
            known = entries[place]
            if (known.release, known.disjoint, known.dealt) == (
                release,
                one_pass,
                dealt,
            ):
                entries[place] = Entry(release, known.count + count, one_pass, dealt)
                return
        entries.append(Entry(release, count, one_pass, dealt))

    def again(self, node: int, release: Release, others: int) -> None:
        """``release`` was made for ``others`` more sums, before the run was resumed.

        Their batch was the same, so that sampling hides nothing more: each counts as a
        release of all records. Which releases were made again is taken as known.
        """
        if others:
            plain = msgspec.structs.replace(release, sampling=NoSampling())
            self.record(node, plain, others)
            self.assume(RESUMED)

    def assume(self, what: str) -> None:
        """Say, once, what an account of these releases has to assume beside them."""
        if what not in self._assumes:
            self._assumes = (*self._assumes, what)

    def ledger(self) -> Ledger:
        """All that was recorded so far."""
        return Ledger(
            nodes=tuple(tuple(entries) for entries in self._entries),
            unit=self._unit,
            failure=self._failure,
            assumes=self._assumes,
            overlap=self._overlap,
        )
