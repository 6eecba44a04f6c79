"""Checks of noise that was drawn, (releases, runs, nodes, dims)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from privaudit.auditing.probes.rows import DEVIATIONS
from privaudit.release import RandomAllocation

_LONG = 8  # dims at which a thousandth of a deviation is never met by chance
_ENOUGH = 20_000  # draws, to tell
_STEP = 1e-5  # standard deviations between which continuous noise hardly falls twice


def as_written(noise: Tensor, written: Sequence[Sequence[float]]) -> list[str]:
    """The noise of each release has the standard deviation in the ledger.

    ``written[node]`` are those of its releases. Too much noise is a finding too: the
    account is then of another program.
    """
    found = []
    for node, expected_of in enumerate(written):
        if len(expected_of) != len(noise):
            found.append(
                f"node {node}: {len(noise)} releases, {len(expected_of)} written"
            )
        for index, (one, expected) in enumerate(zip(noise, expected_of, strict=False)):
            sample = one[:, node].flatten()
            measured = sample.std().item()
            allowed = DEVIATIONS / math.sqrt(2 * len(sample)) * expected
            if abs(measured - expected) > allowed:
                found.append(
                    f"node {node}, release {index}: noise of {measured:.4g} was "
                    f"measured, {expected:.4g} is in the ledger"
                )
    return found


def repeated(draws: Tensor) -> list[str]:
    """No two of ``draws``, (draws, dims), are equal; those without noise do not count.

    What was added to different sums comes back rounded, so that vectors are compared to
    a thousandth of their scale, and numbers, which meet by chance, exactly.
    """
    draws = draws[draws.abs().sum(1) > 0]
    if not len(draws):
        return []
    if draws.shape[1] >= _LONG:
        draws = (draws / draws.std() * 1e3).round()
    if len(torch.unique(draws, dim=0)) < len(draws):
        return ["the same noise was used twice"]
    return []


def fresh(noise: Tensor) -> list[str]:
    """No two releases, runs or nodes share noise, nor is it correlated.

    The noise must be as large in every coordinate.
    """
    twice = repeated(noise.flatten(0, 2))
    if twice:
        return twice
    found = []
    for what, axis in (("releases", 0), ("runs", 1), ("nodes", 2)):
        rows = noise.movedim(axis, 0).flatten(1)
        rows = rows[rows.std(1) > 0]
        if len(rows) < 2:
            continue
        worst = (torch.corrcoef(rows) - torch.eye(len(rows))).abs().max().item()
        # As many pairs are looked at as there are: the largest of them is judged.
        pairs = len(rows) * (len(rows) - 1) / 2
        allowed = math.sqrt(DEVIATIONS**2 + 2 * math.log(pairs))
        if worst > allowed / math.sqrt(rows.shape[1]):
            found.append(f"noise of two {what} is correlated: {worst:.3f}")
    return found


def fine(draws: Tensor) -> list[str]:
    """Values fall together as seldom as those of continuous noise, (draws, columns).

    Of n Gaussian values, pairs in one step h (in standard deviations) are about
    n^2 h / (4 sqrt(pi)), for the density of a difference at 0 is 1 / (2 sqrt(pi)).
    Half-precision noise has 2^10 values in an octave: tens of times as many. Only what
    is in one column is compared; a column is wholly noise, or none.
    """
    draws = draws.double()[:_ENOUGH]
    if len(draws) < 2 or not draws.shape[1]:
        return []
    draws = draws[:, draws.std(0) > 0]
    pairs = 0.0
    for column in (draws / draws.std(0)).T:
        _, counts = torch.unique((column / _STEP).round(), return_counts=True)
        pairs += (counts.double() * (counts - 1) / 2).sum().item()
    expected = draws.shape[1] * len(draws) ** 2 * _STEP / (4 * math.sqrt(math.pi))
    if pairs > 3 * expected + 20:
        return [
            f"noise is coarse: {pairs:.0f} pairs of equal values, where continuous "
            f"noise has about {expected:.0f}"
        ]
    return []


def evenly_scaled(noise: Tensor) -> list[str]:
    """Noise, in the unit of the sum, is as large in every run, whatever its batch was.

    A divisor that depends on the data, such as the size of the batch drawn, makes it
    larger in some runs than in others.
    """
    dims = noise.shape[3]
    if dims < 2 or not noise.std() > 0:
        return []
    squares = noise.double().pow(2).mean(3)  # (releases, runs, nodes)
    squares = squares / squares.mean(1, keepdim=True).clamp_min(1e-300)
    # Of Gaussian noise, (mean square - 1) sqrt(dims / 2) has variance 1, and its
    # square variance 2 + 12 / dims or so.
    spread = ((squares - 1) ** 2).mean().item() * dims / 2
    allowed = 1 + DEVIATIONS * math.sqrt((2 + 48 / dims) / squares.numel())
    if spread > allowed:
        return [
            "what the sum is divided by differs between runs: the variance of the "
            f"noise's scale is {spread:.2f} times that of a fixed divisor"
        ]
    return []


def allocated(taken: Tensor, how: RandomAllocation) -> list[str]:
    """A record is in as many batches of each epoch as stated, in all places alike.

    ``taken`` is (releases, runs) bool, from the first release on.
    """
    found = []
    for first, epoch in enumerate(taken.split(how.batches)):
        whole = len(epoch) == how.batches
        often = epoch.sum(0)
        if (often > how.taken).any() or (whole and (often != how.taken).any()):
            found.append(
                f"of epoch {first} a record was in {int(often.min())} to "
                f"{int(often.max())} batches; {how.taken} of {how.batches} is in the "
                "ledger"
            )
    first, second = taken[: how.batches], taken[how.batches : 2 * how.batches]
    if how.batches > 1 and taken.shape[1] > 1 and torch.equal(first, second):
        found.append("two epochs have the same batches: each is to be drawn anew")
    deviation = math.sqrt(how.rate * (1 - how.rate) / taken.shape[1])
    share = taken.double().mean(1)
    if ((share - how.rate).abs() > DEVIATIONS * deviation + 1e-12).any():
        found.append(
            f"a record was in batches of one place {share.min():.3f} to "
            f"{share.max():.3f} of the time; {how.rate:.3f} is in the ledger"
        )
    return found


def in_turns(taken: Tensor, parts: int) -> tuple[Tensor, list[str]]:
    """Whole turns in which a record was taken, (turns, runs), and what is wrong there.

    ``taken`` is (releases, runs) bool. Of each turn's ``parts`` releases a record may
    be in one alone, the same in all turns.
    """
    turns = len(taken) // parts
    each = taken[: turns * parts].view(turns, parts, taken.shape[1])
    found = []
    if parts > 1 and (each.any(0).sum(0) > 1).any():
        found.append(
            f"a record was in batches of several of {parts} parts; each record is in "
            "one in the ledger"
        )
    return each.any(1), found


def sampled(taken: Tensor, rate: float) -> list[str]:
    """A record is in releases at the stated ``rate``, each by a coin of its own.

    ``taken`` is (releases, runs) bool. Over shuffled batches a record comes once an
    epoch: the number of its releases then varies too little, and no account of
    independent batches holds.
    """
    releases, runs = taken.shape
    if not taken.numel():  # no turn is whole
        return []
    share = taken.double().mean().item()
    deviation = math.sqrt(rate * (1 - rate) / taken.numel())
    found = []
    if abs(share - rate) > DEVIATIONS * deviation + 1e-12:
        found.append(
            f"a record was in {share:.3f} of the batches; {rate:.3f} is in the ledger"
        )
    spread = releases * share * (1 - share)
    if releases > 1 and runs > 1 and spread > 0:
        measured = taken.double().sum(0).var().item() / spread
        # Kurtosis of a binomial: 3 + (1 - 6 q (1 - q)) / (T q (1 - q)).
        excess = max(0.0, (1 - 6 * share * (1 - share)) / spread)
        allowed = DEVIATIONS * math.sqrt((2 + excess) / runs)
        if abs(measured - 1) > allowed:
            found.append(
                "batches are not drawn independently: the number of batches with a "
                f"given record has {measured:.2f} times the variance that coins give, "
                "as shuffled batches would"
            )
    return found
