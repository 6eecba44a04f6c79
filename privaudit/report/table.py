"""The ledger as a table, one row a node."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from privaudit.ledger import Entry, Ledger
from privaudit.release import NoSampling, PoissonSampling, RandomAllocation, Sampling
from privaudit.report.numbers import exact, up
from privaudit.results import Relation, UpperBound, round_down, round_up

COLUMNS = (
    *("node", "releases", "sampling", "norm bound", "noise", "sensitivity"),
    "ε at most",
)


def rows(
    ledger: Ledger, bounds: Sequence[UpperBound], sizes: Sequence[int] | None = None
) -> list[tuple[str, ...]]:
    """``COLUMNS`` and a line a node; equal neighbours in one.

    ``sizes`` are how many records or users each has, a column where that is known.
    """
    head: tuple[str, ...] = COLUMNS
    lines: list[tuple[str, ...]] = [
        _node_line(entries, bound)
        for entries, bound in zip(ledger.nodes, bounds, strict=True)
    ]
    if sizes is not None:
        head = (COLUMNS[0], f"{bounds[0].unit}s", *COLUMNS[1:])
        lines = [(f"{n:,}", *line) for n, line in zip(sizes, lines, strict=True)]
    table = [head]
    for line, group in itertools.groupby(range(len(lines)), key=lines.__getitem__):
        numbers = list(group)
        if len(lines) <= 16 or len(numbers) == 1:
            table.extend((str(number), *line) for number in numbers)
        else:
            table.append((f"{numbers[0]} to {numbers[-1]}", *line))
    return table


def _node_line(entries: Sequence[Entry], bound: UpperBound) -> tuple[str, ...]:
    releases = [entry.release for entry in entries]
    if not releases:
        return ("none", "", "", "", "", up(bound.epsilon))
    mechanisms = dict.fromkeys(
        one.mechanism if one.is_private else f"exact (no {one.mechanism} noise)"
        for one in releases
    )
    count = sum(entry.count for entry in entries)
    return (
        f"{count:,} × {', '.join(mechanisms)}",
        _together(_sampling(release.sampling) for release in releases),
        _between([release.norm_bound for release in releases], round_up),
        _between([release.noise for release in releases], round_down),
        _sensitivities(entries, bound.relation),
        up(bound.epsilon),
    )


def _sensitivities(entries: Sequence[Entry], relation: Relation) -> str:
    try:
        values = [entry.release.sensitivity_under(relation) for entry in entries]
    except ValueError:  # of no meaning under this relation
        return "none"
    return _between(values, round_up)


def _sampling(sampling: Sampling) -> str:
    if isinstance(sampling, NoSampling):
        return "none"
    rate = exact(sampling.rate, round_up)
    if isinstance(sampling, PoissonSampling):
        if sampling.secret:
            return f"one of {sampling.parts:,} secret parts"
        return f"Poisson, rate {rate}"
    if isinstance(sampling, RandomAllocation):
        how = "reshuffled" if sampling.shuffled is True else "allocated"
        return f"{how}, {sampling.taken:,} of {sampling.batches:,} batches"
    return f"{sampling.size:,} of {sampling.population:,}"


def _together(texts: Iterable[str]) -> str:
    different = list(dict.fromkeys(texts))
    if len(different) > 3:
        return f"{different[0]} to {different[-1]} ({len(different)} kinds)"
    return "; ".join(different)


def _between(values: list[float], rounded: Callable[[float, int], str]) -> str:
    least, most = exact(min(values), rounded), exact(max(values), rounded)
    return least if least == most else f"{least} to {most}"
