"""Releases of random allocations: which are one epoch's, and what bounds them.

A record is by itself in k of an epoch's t batches, drawn in secret. Two bounds, both
with their proof in ``pld/allocation.md``: the record's batches known, that is, the k
releases that cost most, without sampling; and for Gaussian noise under
add-or-remove-one the mixture over all batches (`privaudit.accounting.pld.allocation`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import msgspec

from privaudit.accounting.pld.allocation import Epoch
from privaudit.accounting.pld.allocation_below import AllocatedBelow
from privaudit.accounting.pld.mechanisms import Loss
from privaudit.ledger import Entry
from privaudit.release import NoSampling, RandomAllocation, Release
from privaudit.results import Relation

Entries = tuple[Entry, ...]


def is_allocated(entry: Entry) -> bool:
    """Return whether the entry's releases are some of a random allocation."""
    return isinstance(entry.release.sampling, RandomAllocation)


@dataclasses.dataclass(frozen=True)
class Allocated:
    """``often`` equal epochs: the releases of one, each with its number."""

    how: RandomAllocation
    releases: tuple[tuple[Release, int], ...]
    often: int

    def known_batches(self, relation: Relation) -> Iterator[Entry]:
        """Releases that a record enters at most, if its batches were known.

        Of each shape of noise the ``taken`` releases with the least noise over their
        sensitivity.
        """
        for mechanism in sorted({release.mechanism for release, _ in self.releases}):
            ranked = sorted(
                (item for item in self.releases if item[0].mechanism == mechanism),
                key=lambda item: item[0].noise_over_sensitivity(relation),
            )
            wanted = self.how.taken
            for release, count in ranked:
                some = min(wanted, count)
                if some:
                    plain = msgspec.structs.replace(release, sampling=NoSampling())
                    yield Entry(plain, some * self.often)
                wanted -= some

    def above(self) -> Iterator[tuple[Epoch, int]]:
        """As mixtures over the batches, and how often: of blocks, if it is in more."""
        epoch, taken = self._epoch, self.how.taken
        if taken == 1:
            yield epoch, self.often
            return
        shift = max(epoch.shifts)
        block, longer = divmod(self.how.batches, taken)
        yield Epoch((shift,), (block,), block), self.often * (taken - longer)
        if longer:
            yield Epoch((shift,), (block + 1,), block + 1), self.often * longer

    def below(self) -> tuple[Loss, int] | None:
        """Loss that some data attain, and its count; None if that is not known."""
        loss = AllocatedBelow.of(self._epoch, self.how.taken)
        return None if loss is None else (loss, self.often)

    @property
    def tells(self) -> bool:
        """Return whether any of its releases depends on the record."""
        return bool(self._epoch.shifts)

    @functools.cached_property
    def _epoch(self) -> Epoch:
        shifts: dict[float, int] = {}
        for release, count in self.releases:
            shift = release.sensitivity_under("add-or-remove-one") / release.noise
            if shift > 0:
                shifts[shift] = shifts.get(shift, 0) + count
        rows = sorted(shifts.items())
        kinds, counts = tuple(s for s, _ in rows), tuple(n for _, n in rows)
        return Epoch(kinds, counts, self.how.batches)


def epochs_of(entries: Sequence[Entry]) -> list[Allocated]:
    """The epochs of the allocations among a node's ``entries``, in their order.

    The last one of each allocation may have batches that were not released.
    """
    found: dict[tuple[RandomAllocation, tuple[tuple[Release, int], ...]], int] = {}
    open_: dict[RandomAllocation, dict[Release, int]] = {}

    def close(how: RandomAllocation, releases: dict[Release, int], often: int) -> None:
        key = how, tuple(releases.items())
        found[key] = found.get(key, 0) + often

    for entry in filter(is_allocated, entries):
        how, left = entry.release.sampling, entry.count
        assert isinstance(how, RandomAllocation)
        begun = open_.setdefault(how, {})
        if begun:
            some = min(left, how.batches - sum(begun.values()))
            begun[entry.release] = begun.get(entry.release, 0) + some
            left -= some
            if sum(begun.values()) == how.batches:
                close(how, begun, 1)
                begun = open_[how] = {}
        whole, rest = divmod(left, how.batches)
        if whole:
            close(how, {entry.release: how.batches}, whole)
        if rest:
            begun[entry.release] = rest
    for how, begun in open_.items():
        if begun:
            close(how, begun, 1)
    return [Allocated(*key, often) for key, often in found.items()]
