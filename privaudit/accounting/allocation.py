"""Releases of random allocations: which are one epoch's, and what bounds them.

A record is by itself in k of an epoch's t batches, drawn in secret. Two bounds, both
with their proof in ``pld/allocation.md``: the record's batches known, that is, the k
releases that cost most, without sampling; and for Gaussian noise the mixture over all
batches (`privaudit.accounting.pld.allocation`).
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
from msgspec import UNSET

from privaudit.accounting.pld.allocation import AllocatedBelow, Epoch, alike
from privaudit.accounting.pld.allocation_plane import (
    MOST_APART,
    MOST_PARTED,
    MOST_PARTED_SHIFT,
    MOST_SHIFT,
    MOST_TAKEN,
    is_mostly,
)
from privaudit.accounting.pld.mechanisms import Loss
from privaudit.ledger import Entry
from privaudit.release import NoSampling, RandomAllocation, Release
from privaudit.results import Relation

Entries = tuple[Entry, ...]
# Of the variance, which is half of that of epsilon; where a record is in three and more
# cones are wide enough to lose more than that.
_LITTLE, _LITTLE_OF_MORE = 0.002, 0.003
# Released batches that are not taken for alike and whole, a record in four or five of
# all: of different shifts, or of one. Of more that is no narrower, and slower.
_MOST_DIFFERENT, _MOST_CUT = 128, 40
_FEW = 16  # different batches of which a record replaced is removed and added


def is_allocated(entry: Entry) -> bool:
    """Return whether the entry's releases are some of a random allocation."""
    return isinstance(entry.release.sampling, RandomAllocation)


@dataclasses.dataclass(frozen=True)
class Allocated:
    """``often`` equal epochs: the releases of one, each with its number.

    ``shuffled``: batches of a fixed size, of which there may be less.
    """

    how: RandomAllocation
    releases: tuple[tuple[Release, int], ...]
    often: int
    shuffled: bool = False

    def halved(self, relation: Relation) -> tuple[list[Allocated], list[Entry]]:
        """Split into an allocation to at most half of the batches, and bare releases.

        k of t equal batches are t - k of them, and 2 k - t releases without sampling;
        half of them, replaced, as many at more noise: ``pld/allocation.md``, "More than
        half".
        """
        (release, count), *others = self.releases
        more = 2 * self.how.taken - self.how.batches
        moved = release.sensitivity_under(relation)
        alike = relation != "replace-one" or moved == 2 * release.opposed_norm()
        whole = not others and count == self.how.batches and not self.shuffled
        few = more < 0 or (more == 0 and relation != "replace-one")
        if few or not whole or not alike or release.mechanism != "gaussian":
            return [self], []
        plain = msgspec.structs.replace(release, sampling=NoSampling())
        if not more:
            half = msgspec.structs.replace(plain, noise=math.sqrt(2) * release.noise)
            return [], [Entry(half, self.how.taken * self.often)]
        fewer = self.how.taken - more
        rest: list[Allocated] = []
        if fewer:
            how = RandomAllocation(self.how.batches, fewer)
            rest = [dataclasses.replace(self, how=how)]
        return rest, [Entry(plain, more * self.often)]

    def known_batches(self, relation: Relation) -> Iterator[Entry]:
        """The ``taken`` releases with least noise a shape: batches that are known."""
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

    def above(
        self, relation: Relation, *, most: int = MOST_PARTED
    ) -> tuple[list[tuple[Epoch, int]], list[Entry]]:
        """Mixtures over batches, and how often, whole or blocks; releases beside."""
        gaussian = all(one.mechanism == "gaussian" for one, _ in self.releases)
        if self.how.shuffled is True and gaussian and relation == "replace-one":
            epoch = self._epoch(relation, attained=False)
            most_moved = (max(epoch.shifts),)  # of batches that differ
            t = self.how.batches
            epoch = Epoch(most_moved, (t,), t, opposed=True, blocks=1, shuffled=True)
            return [(epoch, self.often)], []
        if self.shuffled:
            return [], list(self.known_batches(relation))
        return list(self._mixtures(relation, most)), []

    def _mixtures(self, relation: Relation, most: int) -> Iterator[tuple[Epoch, int]]:
        opposed = relation == "replace-one"
        epoch, taken = self._epoch(relation, attained=False), self.how.taken
        if taken == 1:
            yield epoch, self.often
            return
        shift = max(epoch.shifts)
        # What blocks of one add to the variance of L, over that: (k - 1) / 2 t times a
        # ratio's; and what blocks of different sizes do. Blocks have one law of shifts
        # in all places.
        t = self.how.batches
        ends = [(2 * i * t + taken) // (2 * taken) for i in range(taken + 1)]
        added = (taken - 1) / (2 * t) * math.expm1(min(shift, 20) ** 2)
        if taken > 2:
            added += sum(t / taken**2 / (b - a) for a, b in pairwise(ends)) - 1
        quick = most == 1
        most = min(taken, most, MOST_PARTED if shift <= MOST_SHIFT else 2)
        few = taken
        if is_mostly(shift, t, taken) and not opposed:
            few = t - taken + 1
        # With its own shifts; of four or five cones are wide, and wider of many.
        differ = len(epoch.shifts) > 1
        own = _MOST_DIFFERENT if differ else min(_MOST_CUT, t - 1)
        apart = few == taken and sum(epoch.counts) <= own and shift <= MOST_PARTED_SHIFT
        whole = few <= min(most, MOST_APART if apart else MOST_TAKEN)
        little = _LITTLE if taken == 2 else _LITTLE_OF_MORE
        if opposed and differ and t <= _FEW and taken <= min(most, MOST_TAKEN):
            yield epoch, self.often
            return
        if opposed or (added < little and (len(epoch.shifts) == 1 or not whole)):
            most, whole = 1, False
        if whole:
            yield epoch, self.often
            return
        if t < 2 * taken or shift > MOST_PARTED_SHIFT:
            most = min(most, MOST_TAKEN)
        groups = -(-taken // most)
        cuts = [round(i * taken / groups) for i in range(groups + 1)]
        kinds = collections.Counter(
            (ends[b] - ends[a], b - a) for a, b in pairwise(cuts)
        )
        shifts, loud = ((shift,), 0.0) if quick else alike(epoch)
        for (size, some), often in kinds.items():
            one = Epoch(shifts, (size,), size, some, opposed, len(kinds), loud)
            yield one, self.often * often

    def below(self, relation: Relation) -> tuple[list[tuple[Loss, int]], list[Entry]]:
        """Losses that some data attain, and how often; releases beside."""
        epoch = self._epoch(relation, attained=True)
        gaussian, *others = {
            release.mechanism == "gaussian" for release, _ in self.releases
        }
        if others or not (gaussian or self.shuffled):
            return [], []
        if self.how.shuffled is True and relation != "replace-one":
            return [], []
        if epoch.is_many:  # the outputs' mean, N(+-k / Q, 1 / Q), Q the sum of 1 / s^2
            release = self.releases[0][0]
            spread = math.fsum(
                n / s**2 for s, n in zip(epoch.shifts, epoch.counts, strict=True)
            )
            moved = release.sensitivity_under(relation) * (1 + 1e-14)
            noise = moved * math.sqrt(spread) / (2 * epoch.taken)
            mean = msgspec.structs.replace(release, sampling=NoSampling(), noise=noise)
            return [], [Entry(mean, self.often)]
        loss = AllocatedBelow.of(epoch) if gaussian else AllocatedBelow.counted(epoch)
        return [] if loss is None else [(loss, self.often)], []

    def tells(self, relation: Relation) -> bool:
        """Return whether any of its releases depends on the record."""
        return bool(self._epoch(relation, attained=True).shifts)

    def _epoch(self, relation: Relation, *, attained: bool) -> Epoch:
        """Records C and -C under replace-one; 2 C in a batch of a shuffled pass."""
        opposed = relation == "replace-one" and not (self.shuffled and attained)
        shifts: dict[float, int] = {}
        for release, count in self.releases:
            moved = release.sensitivity_under(relation)
            if opposed:
                moved = moved / 2 if attained else release.opposed_norm()
            shift = moved / release.noise
            if shift > 0:
                shifts[shift] = shifts.get(shift, 0) + count
        rows = sorted(shifts.items())
        kinds, counts = tuple(s for s, _ in rows), tuple(n for _, n in rows)
        # Of shuffled batches what is left over may hold the record.
        batches = self.how.batches + (attained and self.how.shuffled is True)
        return Epoch(kinds, counts, batches, self.how.taken, opposed)


def dealt_passes(entries: Sequence[Entry]) -> list[Allocated]:
    """Passes dealt in secret, from below: ``pld/allocation.md``, "Shuffled passes"."""
    passes: dict[int, list[Entry]] = collections.defaultdict(list)
    for entry in entries:
        if entry.disjoint is not UNSET:
            passes[entry.disjoint].append(entry)
    found: collections.Counter[tuple[int, tuple[tuple[Release, int], ...]]]
    found = collections.Counter()
    for some in passes.values():
        (dealt, *others), size = {e.dealt for e in some}, sum(e.count for e in some)
        if not others and dealt is not UNSET and size <= dealt:
            found[dealt, tuple((e.release, e.count) for e in some)] += 1
    return [
        Allocated(RandomAllocation(dealt), releases, often, shuffled=True)
        for (dealt, releases), often in found.items()
    ]


def epochs_of(entries: Sequence[Entry]) -> list[Allocated]:
    """The epochs of allocations among ``entries``, in order, the last perhaps cut."""
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
    return [
        Allocated(*key, often, shuffled=key[0].shuffled is True)
        for key, often in found.items()
    ]
