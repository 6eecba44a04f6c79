"""Warnings about records for their owner alone: in no file, and without effect."""

from __future__ import annotations

import contextlib
import functools
import math
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from privaudit.task_settings import is_table
from trainers.data import forked, tables
from trainers.data.forked import Ended
from trainers.data.records import Dataset
from trainers.data.shares import Lazy, OneByOne
from trainers.data.transforms import NO_CLASS
from trainers.gradients.choose import differentiator
from trainers.gradients.per_sample import trained
from trainers.runs.planning import is_planned
from trainers.runs.problem import Problem

_SPREAD = 100.0  # of a table's columns: a tenth of a percent of a norm is then lost
_LARGE = 10.0  # root mean square of inputs; of bytes, as of pixels, 70, of ages 50
_IN_TEST = 0.1  # share of test records; in coarse tables a few are equal by chance
_AT_ONCE = 4096  # records, whose words are widened at once
_SAMPLE = 16  # records, whose gradients are taken
_STEPS = 4  # at most, of that
_UNEVEN = 0.75  # share of the commonest class, from which on accuracy says little
_SECRET = "Keep this to yourself: it depends on private data, and is in no file"
_TOO_LONG = 5.0  # clip norm over the norm of a usual gradient


def of_records(problem: Problem) -> list[str]:
    """Warnings of what the records in memory are, a line each."""
    training, found = problem.training, []
    if training.unit == "record" and problem.party is None:
        found = of_nodes(problem.shares, training.overlap)
    lines = (line if line.endswith("?") else f"{line}." for line in _warnings(problem))
    return [*found, *(f"{line} {_SECRET}" for line in lines)]


_PAY = "overlap=k counts up to k nodes"


def of_nodes(
    shares: Sequence[Dataset | Lazy], overlap: int = 1, *, pay: str = _PAY
) -> list[str]:
    """A warning of records that lie at more than ``overlap`` nodes, if there are.

    ``pay``: how to account for them.
    """
    many = at_several_nodes(shares, overlap)
    line = (
        f"{many:,} records lie at more than {overlap} node{'s' if overlap > 1 else ''},"
        " equal in every number: of one person's more is released than the account "
        f"says; {pay}. {_SECRET}"
    )
    return [line] if many else []


def of_public(public: Dataset, shares: Sequence[Dataset | Lazy]) -> list[str]:
    """A warning of ``public`` records that lie at nodes too, if there are many."""
    why = (
        "they are declared public, and what is chosen by them tells of private ones, "
        "which no account counts; choose by others"
    )
    return [f"{x}. {_SECRET}" for x in _at_nodes(public, shares, "public", why)]


def _at_nodes(
    some: Dataset, shares: Sequence[Dataset | Lazy], what: str, why: str
) -> Iterator[str]:
    held = [_digests(share)[0] for share in shares if isinstance(share, Dataset)]
    own = _digests(some)[0]
    both = int(np.isin(own, np.concatenate(held)).sum()) if held else 0
    if both > _IN_TEST * len(own):
        yield f"{both:,} {what} records are at nodes too, equal in every number: {why}"


def _warnings(problem: Problem) -> Iterator[str]:
    training, shares = problem.training, problem.shares
    if is_table(training.data):
        yield from tables.unread(pathlib.Path(training.data))
    held = [share for share in shares if isinstance(share, Dataset)]
    for node, share in enumerate(shares):
        if (why := _unreadable(share)) is not None:
            yield (
                f"none of the first records of node {node} can be used, and they count "
                f"nothing: {why}"
            )
    if void := void_records(held):
        yield (
            f"{void:,} records hold NaN or infinity, and count nothing: fill these in "
            "by rules that look at no other record"
        )
    if problem.material.quality == "accuracy":
        beyond = sum(int((share.targets == NO_CLASS).sum()) for share in held)
        if beyond:
            yield (
                f"{beyond:,} labels are not among the model's classes, and their "
                "records count nothing: classes are 0, 1, ..., one output each"
            )
        most = commonest_label(held)
        if problem.party is None and most == 1:
            yield (
                "all labels are the same, so that there is nothing to learn: is the "
                "word that makes them the one in the file, as in frame.ill == 'yes'?"
            )
        elif problem.party is None and most > _UNEVEN:
            yield (
                f"{most:.1%} of the labels are the same, and so accurate is a model "
                "that always gives that one: count what it gives of the others, or "
                "weigh them more by a loss"
            )
    elif (size := size_of(held[0].targets if held else torch.zeros(1))) > _LARGE:
        yield (
            f"the targets are about {size:,.0f} in size, and losses, step sizes and "
            "clip norms are made for about 1: shift and divide them by what their "
            "field knows"
        )
    if (column := column_of_targets(held)) is not None:
        yield (
            f"column {column} of the inputs, counted from 0, is the target itself, or "
            "that in another unit: leave it out, as frame.drop(columns='ill') does"
        )
    if (spread := spread_of_columns(held)) > _SPREAD:
        yield (
            f"columns of the inputs differ in spread by a factor of {spread:,.0f}: the "
            "largest decide what is clipped; divide each by a range that its field "
            "knows"
        )
    elif (size := size_of(held[0].inputs if held else torch.zeros(1))) > _LARGE:
        yield (
            f"the inputs are about {size:,.0f} in size, and models, step sizes and "
            "clip norms are made for about 1: shift and divide them by what their "
            "field knows, as ages by (age - 50) / 20 and pixels by 255"
        )
    if any(map(are_scaled_by_themselves, [held, *([one] for one in held)])):
        yield (
            "the columns of the inputs have mean 0 and deviation 1 over these very "
            "records: if that is how they were scaled, each record moved all others, "
            "which no account counts; take means and ranges that the field knows"
        )
    test = problem.material.test
    if test is not None:
        why = "what is measured on them tells of private records, and flatters; test"
        yield from _at_nodes(test, held, "test", f"{why} on others")
    if training.unit == "record" and (same := repeated(held)):
        yield (
            f"{same:,} records equal another one of their node in every number: if "
            "these are one person's, more is released of that person than the account "
            "says; keep one of each, or give users= and train dp-fedavg"
        )
    usual, still = _first_gradients(problem, held)
    if still:
        yield (
            f"no record moves {', '.join(still[:4])}{' ...' if still[4:] else ''} in "
            "the first steps, so that noise alone would: is there a Dropout(1.0), a "
            "layer of zeros before another, or one that is not used?"
        )
    if max(usual * _TOO_LONG, 1.0) < training.clip_norm < math.inf:
        yield (
            f"clip_norm {training.clip_norm:g} is {training.clip_norm / usual:.2g} "
            "times as long as a usual gradient at the start, and noise grows with it: "
            f"try clip_norm={usual:.1g}, or clip_quantile=0.5"
        )


def _first_gradients(
    problem: Problem, held: Sequence[Dataset]
) -> tuple[float, list[str]]:
    """Median norm of a few records' gradients at the start, and what they never move.

    That is the names of parameters whose gradients are 0 in `_STEPS` steps: what begins
    at 0, as the last layer of a branch, lets gradients through after one. Infinity and
    none where no gradient is taken.
    """
    material = problem.material
    if not (held and is_planned(problem.training)) or not (
        material.why_not is material.transform is None
    ):
        return math.inf, []
    names = {name: one.numel() for name, one in trained(material.module).items()}
    still = [*names]
    rows = torch.linspace(0, len(held[0]) - 1, min(_SAMPLE, len(held[0]))).long()
    norms: list[Tensor] = []

    def weigh(found: Tensor) -> Tensor:
        norms.append(found[found.isfinite()])
        return torch.ones_like(found)

    with contextlib.suppress(RuntimeError, ValueError, IndexError):
        of = differentiator(material.module, material.loss, *material.example)
        inputs, targets = (part[None] for part in held[0].read(rows))
        at = problem.start(0)[:, 0]
        for _ in range(_STEPS):
            total = of.weighted_sum(at, inputs, targets, weigh)
            parts = dict(zip(names, total.split([*names.values()], 1), strict=True))
            still = [name for name in still if not parts[name].any()]
            if not still:
                break
            at = at - (total / total.norm().clamp_min(1e-9)).to(at.dtype)
    usual = float(norms[0].median()) if norms and len(norms[0]) else math.inf
    return usual, still if len(norms) == _STEPS else []


def repeated(held: Sequence[Dataset]) -> int:
    """Count the records that equal another of their node, where these are many.

    Records of few numbers, or of whole ones alone, are often equal by chance.

    >>> x = torch.rand(20, 4, generator=torch.Generator().manual_seed(0))
    >>> tables = x, x[:5].repeat(4, 1), x.ceil()
    >>> [repeated([Dataset(one, torch.zeros(20))]) for one in tables]
    [0, 15, 0]
    """
    found = [len(share) - len(_digests(share)[0]) for share in held]
    numbers = [share.inputs[:_AT_ONCE] for share in held if share.inputs[0].numel() > 3]
    if not any(x.is_floating_point() and (x.frac() != 0).any() for x in numbers):
        return 0
    count = sum(found) - void_records(held)
    return count if count > _IN_TEST * sum(map(len, held)) else 0


def at_several_nodes(shares: Sequence[Dataset | Lazy], overlap: int = 1) -> int:
    """Count the different records that lie at more than ``overlap`` nodes.

    By digests of 64 bits. Of what somebody's code reads, a torch Dataset, the first
    `_AT_ONCE` of a node are looked at. Records that count nothing are not counted.

    >>> one, other = torch.eye(4), torch.zeros(4).long()
    >>> shares = [Dataset(one, other), Dataset(one[:3], other[:3])]
    >>> at_several_nodes(shares), at_several_nodes(shares, overlap=2)
    (3, 0)
    """
    if len(shares) <= overlap:
        return 0
    found = []
    for share in shares:
        digests = functools.partial(_digests, share)
        found += forked.each([digests]) if _is_code(share) else [digests()]
    every = np.concatenate([one[0] for one in found if not isinstance(one, Ended)])
    return int((np.unique(every, return_counts=True)[1] > overlap).sum())


def void_records(held: Sequence[Dataset]) -> int:
    """Count the records that hold a number which is not finite.

    >>> void_records([Dataset(torch.tensor([[1.0], [torch.nan]]), torch.zeros(2))])
    1
    """
    return sum(int((~one.inputs.flatten(1).isfinite()).any(1).sum()) for one in held)


def spread_of_columns(held: Sequence[Dataset]) -> float:
    """Largest standard deviation of a table's columns over the median; 1 of others.

    Columns that hardly vary, as pixels at an edge, do no harm.

    >>> x = torch.tensor([[0.0, 0.0, 1.0], [1.0, 500.0, 0.0]])
    >>> round(spread_of_columns([Dataset(x, torch.zeros(2))]))
    500
    """
    whole = _table(held)
    if len(whole) < 2:
        return 1.0
    deviations = whole.std(0)
    middle = float(deviations.median())
    return float(deviations.max()) / middle if middle else 1.0


def size_of(numbers: Tensor) -> float:
    """Root mean square of some records' numbers; 0 of tokens and classes.

    >>> size_of(torch.tensor([60.0, 80.0, torch.nan])), size_of(torch.tensor([9]))
    (70.710..., 0.0)
    """
    numbers = numbers[:_AT_ONCE]
    if not numbers.is_floating_point():
        return 0.0
    numbers = numbers[numbers.isfinite()].double()
    return float(numbers.square().mean().sqrt().nan_to_num())


def commonest_label(held: Sequence[Dataset]) -> float:
    """Share of the records that have the commonest class; 0 of fewer than two.

    >>> commonest_label([Dataset(torch.eye(4), torch.tensor([1, 1, 0, 1]))])
    0.75
    """
    labels = torch.cat([torch.zeros(0), *(one.targets.flatten() for one in held)])
    counts = labels.unique(return_counts=True)[1]
    return float(counts.max()) / len(labels) if len(labels) > 1 else 0.0


def column_of_targets(held: Sequence[Dataset]) -> int | None:
    """Return the first column of a table that says all targets, by a line through them.

    >>> x = torch.tensor([[0.0, 3.0], [5.0, 1.0], [1.0, 3.0]])
    >>> column_of_targets([Dataset(x, torch.tensor([0, 1, 0]))])
    1
    """
    pairs = [
        torch.cat([share.inputs, share.targets[:, None]], 1)[:_AT_ONCE]
        for share in held
        if share.inputs.dim() == 2 and share.targets.dim() == 1
    ]
    whole = _table([Dataset(pair, pair[:, 0]) for pair in pairs])
    if len(whole) < 3:  # through two points there is always a line
        return None
    whole = whole - whole.mean(0)
    whole = whole / whole.norm(dim=0)
    found = ((whole[:, :-1] * whole[:, -1:]).sum(0).abs() > 1 - 1e-9).nonzero()
    return int(found[0]) if len(found) else None


def are_scaled_by_themselves(held: Sequence[Dataset]) -> bool:
    """Return whether all columns have mean 0 and deviation 1, as of no other records.

    >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    >>> scaled = (x - x.mean(0)) / x.std(0)
    >>> [are_scaled_by_themselves([Dataset(one, x)]) for one in (x, scaled)]
    [False, True]
    """
    whole = _table(held)
    if len(whole) < 2:
        return False
    deviations = whole.std(0)
    vary = deviations > 0
    # Of n or of n - 1 records; means in single precision are so exact.
    wide = (deviations[vary] - 1).abs() < 1 / len(whole)
    centred = whole.mean(0).abs() < 1e-5
    return bool(vary.any() and wide.all() and centred.all())


def _table(held: Sequence[Dataset]) -> Tensor:
    """Rows of inputs without gaps, if they are tables; (0, 1) if not."""
    every = (share.inputs for share in held)
    tables = [x for x in every if x.dim() == 2 and x.is_floating_point()]
    whole = torch.cat(tables).double() if tables else torch.zeros(0, 1)
    return whole[whole.isfinite().all(1)]


def _unreadable(share: Dataset | Lazy) -> Ended | None:
    """Reason why no first record of a torch Dataset can be used; None if one can."""
    code = getattr(share, "rows", None)
    if not isinstance(code, OneByOne):
        return None
    rows = share.records[:_SAMPLE].numpy()  # type: ignore[union-attr]
    found = code.found(rows, rows)
    whys = [one for one in found if isinstance(one, Ended)]
    return whys[0] if len(whys) == len(found) else None


def _digests(share: Dataset | Lazy) -> tuple[Tensor]:
    """One of each different record: a random linear function of its words."""
    count = min(len(share), _AT_ONCE) if _is_code(share) else len(share)
    found = []
    for rows in torch.arange(count).split(_AT_ONCE):
        total, fine = np.zeros(len(rows), np.uint64), np.ones(len(rows), bool)
        for part in share.read(rows):
            # No -0.0: what is equal in every number has equal words.
            values = (part + 0).reshape(len(rows), -1).contiguous().numpy()
            fine &= np.isfinite(values).all(1)
            words = values.view(np.uint32)
            factors = np.random.default_rng(words.shape[1]).integers(
                1 << 63, size=words.shape[1], dtype=np.uint64
            )
            total *= np.uint64(0x9E3779B97F4A7C15)  # odd: inputs and targets in order
            total += words.astype(np.uint64) @ (2 * factors + 1)
        found.append(total[fine])
    return (torch.from_numpy(np.unique(np.concatenate(found)).view(np.int64)),)


def _is_code(share: Dataset | Lazy) -> bool:
    return isinstance(share, Lazy) and share.by_their_code
