"""Test that batches are drawn as accounted: every record by its own coin."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from scipy import special

from privaudit.auditing.probes import Check
from privaudit.auditing.probes.rows import DEVIATIONS, RARE


def check_batches(
    passes: Sequence[Sequence[Sequence[int]]], records: int, rate: float
) -> Check:
    """Test these batches against Poisson samples of ``records`` at ``rate``.

    ``passes``: the numbers of the records in each batch of each pass over the data.
    ``records``: how many there are. ``rate``: the chance, in (0, 1], by which each is
    said to be in a batch.
    """
    batches = [batch for one in passes for batch in one]
    found = []
    if not batches:
        found.append("there was no batch at all")
    elif rate < 1:
        found += _fixed(passes, records, rate) or _sizes(batches, records, rate)
        drawn = sum(len(batch) for batch in batches)
        share = drawn / (records * len(batches))
        deviation = math.sqrt(rate * (1 - rate) / (records * len(batches)))
        if abs(share - rate) > DEVIATIONS * deviation:
            found.append(
                f"a record is in a batch with chance {share:.4g}, and {rate:.4g} is "
                "accounted"
            )
        found += [*_again(batches, records, rate), *_counts(batches, records, rate)]
    elif any(sorted(batch) != list(range(records)) for batch in batches):
        found.append("some batch lacks a record, though rate 1 is accounted")
    return Check(
        name="batches",
        what="every record is in each batch by its own coin, of the accounted rate",
        findings=tuple(found),
    )


def _fixed(
    passes: Sequence[Sequence[Sequence[int]]], records: int, rate: float
) -> list[str]:
    """Return whether records are dealt to batches: each in one, in each pass."""
    counts = [Counter(index for batch in one for index in batch) for one in passes]
    chance = 1.0
    for one in passes:  # of being in just one of them, by coins
        many = len(one)
        chance *= (many * rate * (1 - rate) ** max(0, many - 1)) ** min(records, 400)
    dealt = all(len(count) and max(count.values()) == 1 for count in counts)
    # A last batch may be dropped.
    most = sum(len(count) for count in counts) >= 0.9 * records * len(counts)
    if dealt and most and chance < RARE:
        return [
            f"in each of {len(passes)} passes every record was in just one batch: "
            "batches are shuffled, not Poisson sampled, and an account of Poisson "
            "batches does not cover them (with Opacus, poisson_sampling=True; or an "
            "account with --sampling shuffled)"
        ]
    return []


def _sizes(batches: Sequence[Sequence[int]], records: int, rate: float) -> list[str]:
    """Return whether all batches have one size, which coins hardly give."""
    sizes = Counter(len(batch) for batch in batches)
    # The likeliest size of all has at most this chance.
    mode = min(1.0, 1 / math.sqrt(2 * math.pi * max(records * rate * (1 - rate), 0.16)))
    if len(sizes) == 1 and mode ** (len(batches) - 1) < RARE:
        return [
            f"all {len(batches)} batches have {next(iter(sizes))} records: they are "
            "drawn with a fixed size, and Poisson sampling is accounted"
        ]
    return []


def _again(batches: Sequence[Sequence[int]], records: int, rate: float) -> list[str]:
    """Return whether batches are drawn once and used again, or hold records twice."""
    found = []
    if any(len(set(batch)) < len(batch) for batch in batches):
        found.append("some batch has a record twice, which is then clipped twice")
    many = len(batches)
    same = many - len({tuple(sorted(batch)) for batch in batches})
    # Whatever came before, the next batch is one of those with at most this chance:
    # the likeliest of all has the larger chance of each coin.
    chance = min(1.0, (many - 1) * max(rate, 1 - rate) ** records)
    if same and special.bdtrc(same - 1, many - 1, chance) < RARE:
        found.append(
            f"{same} of {many} batches are equal to others: coins are not tossed "
            "again for each batch and in each pass, and independent batches are "
            "accounted"
        )
    return found


def _counts(batches: Sequence[Sequence[int]], records: int, rate: float) -> list[str]:
    """Return whether some record is in more, or fewer, batches than its coins give."""
    many = len(batches)
    times = Counter(index for batch in batches for index in set(batch))
    tails = {
        count: min(
            special.bdtr(count, many, rate),
            special.bdtrc(count - 1, many, rate) if count else 1.0,
        )
        for count in {0, *times.values()}
    }
    counts = (times[index] for index in (*times, *range(records)))
    least = min(counts, key=tails.__getitem__)
    if 2 * records * tails[least] >= RARE:
        return []
    return [
        f"some record is in {least} of {many} batches, where {rate * many:.4g} are "
        "expected: records are drawn by unequal chances, or not by coins"
    ]
