"""Probes of random numbers: streams that can be made again or are used twice.

Three attackers need no statistics. One knows the ledger and tries seeds, until a
release less its sum is the noise of one. One looks for random words that a run uses
twice. One reads the last digits of releases: exactly rounded noise leaves a multiple of
a public step there, floating point leaves more (Mironov 2012).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privaudit.ledger import Ledger
from trainers.numerics.keys import Key, Rows
from trainers.numerics.randomness import Streams, grid_step
from trainers.oracles.sampler import OF_PARTS

SEARCH = 1 << 12  # seeds that are tried by default
_STUDIES = 64  # seeds of a study, of which each makes all noise anew
_MATCHED = 8  # numbers that are compared: by chance, all agree once in 1e24
# deviations within which noise is the same: a sum was subtracted as floats
_NEAR = 1e-3
_SHOWN = 3  # findings of a kind

Drawn = Callable[[int, int], NDArray[np.float64]]  # from seed and count


def _torch(kind: torch.dtype, seed: int, count: int) -> NDArray[np.float64]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, generator=generator, dtype=kind).double().numpy()


# Of 16 numbers or more, torch's normals are others than of fewer.
GENERATORS: dict[str, Drawn] = {
    "torch.Generator (doubles)": functools.partial(_torch, torch.float64),
    "torch.Generator (floats)": functools.partial(_torch, torch.float32),
    "numpy.random.default_rng": lambda seed, count: np.random.default_rng(
        seed
    ).standard_normal(count),
    "numpy.random.RandomState": lambda seed, count: np.random.RandomState(
        seed
    ).standard_normal(count),
}


def hidden(seed: int) -> Key:
    """A key by which a run behaves as under a secret one: no study's, but repeatable.

    Whoever searches the seeds of studies or of known generators does not meet it.
    """
    made = hashlib.blake2b(f"{seed}".encode(), digest_size=48, person=b"probe").digest()
    return Key(made[:32], made[32:])


class Watched(Streams):
    """Streams that keep what was asked of them."""

    def __init__(self, key: Key | int, first: int = 0, device: str = "cpu") -> None:
        super().__init__(key, first, device)
        self.asked: list[Rows] = []

    def rows(self, *given: object, **more: object) -> Rows:
        """As of `Streams`, and kept."""
        rows = super().rows(*given, **more)  # type: ignore[arg-type]
        self.asked.append(rows)
        return rows


def used_twice(asked: Sequence[Rows], *, by_epoch: bool = False) -> list[str]:
    """No word stands at two places of a run: nodes, releases, runs or purposes.

    ``by_epoch``: the batches of an epoch are made of one draw, which all ask for again;
    all turns do for that of the parts.
    Words have 64 bits: among a million, two are equal by chance once in 3e7 runs.
    """
    asked = list(
        {
            (rows.release, tuple(rows.nodes), tuple(rows.runs), rows.shape)
            if rows.purpose == "sampling" and (by_epoch or rows.release == OF_PARTS)
            else number: rows
            for number, rows in enumerate(asked)
        }.values()
    )
    if not asked:
        return []
    device = torch.device("cpu")
    words = np.concatenate([rows.words(device).flatten().numpy() for rows in asked])
    order = np.argsort(words, kind="stable")
    same = np.flatnonzero(np.diff(words[order]) == 0)
    starts = np.cumsum([0] + [int(np.prod(rows.shape)) for rows in asked])

    def where(index: int) -> str:
        which = int(np.searchsorted(starts, index, side="right")) - 1
        rows = asked[which]
        run, node, _ = np.unravel_index(index - starts[which], rows.shape)
        return (
            f"{rows.purpose} of node {rows.nodes[node]}, release {rows.release}, "
            f"run {rows.runs[int(run)]}"
        )

    pairs = ((where(int(order[i])), where(int(order[i + 1]))) for i in same[:1000])
    found = [
        f"the random words for {one} are drawn twice: what is made of them is not "
        "independent; count its releases"
        if one == other
        else f"the same random words are used for {one} and for {other}: give each an "
        "address (purpose, node, release) of its own"
        for one, other in pairs
    ]
    return list(dict.fromkeys(found))[:_SHOWN]


def from_elsewhere(
    asked: Sequence[Rows], ledger: Ledger, *, each: bool = True
) -> list[str]:
    """Each release with noise that the ledger names drew noise by the run's key.

    Without ``each``, at least one of a node's did.
    """
    found = []
    for node, entries in enumerate(ledger.nodes):
        written = sum(entry.count for entry in entries if entry.release.noise > 0)
        drawn = sum(
            node in rows.nodes for rows in asked if rows.purpose in ("noise", "message")
        )
        if drawn < (written if each else min(written, 1)):
            found.append(
                f"node {node}: {written} releases with noise are in the ledger, but "
                f"the run's key drew noise {drawn} times: the rest comes from "
                "elsewhere, which no secret key protects; draw it by Streams.noisy"
            )
    return found[:_SHOWN]


@functools.lru_cache(maxsize=16)
def _starts(name: str, search: int) -> Tensor:
    """First normal numbers of a known generator under each seed, (search, few)."""
    drawn = GENERATORS[name]
    firsts = [drawn(seed, 4 * _MATCHED)[:_MATCHED] for seed in range(search)]
    return torch.from_numpy(np.stack(firsts))


def known(noise: Tensor, search: int = SEARCH) -> list[str]:
    """Whose noise this is, if somebody who tries seeds can make it again.

    ``noise``: (releases, runs, nodes, dims), in standard deviations: a release, less
    its sum; of eight dims or more. ``search``: how many seeds are tried, from 0 on,
    each at the start of its stream; of our own studies the first 64 at most.
    """
    noise = noise.double()
    releases, runs, nodes, dims = noise.shape
    if dims < _MATCHED:
        raise ValueError(f"noise must have {_MATCHED} dims or more, got {dims}")
    found = []
    firsts = noise[..., :_MATCHED].reshape(-1, _MATCHED)
    for name in GENERATORS:
        far = torch.cdist(_starts(name, search), firsts, p=torch.inf)
        for seed, place in (far < _NEAR).nonzero()[:_SHOWN].tolist():
            release, rest = divmod(place, runs * nodes)
            found.append(_known(rest % nodes, release, name, seed, search))
    for seed in range(min(search, _STUDIES)):
        for release in range(releases):
            again = Streams(seed).unit_noise(
                "noise", range(nodes), release, (runs, dims)
            )
            near = (again - noise[release]).abs().amax(2) < _NEAR
            for node in near.any(0).nonzero().flatten().tolist():
                found.append(_known(node, release, "a study", seed, search))
    return found[:_SHOWN]


def _known(node: int, release: int, name: str, seed: int, search: int) -> str:
    return (
        f"the noise of node {node}, release {release} is what {name} gives under seed "
        f"{seed}: whoever tries {search:,} seeds takes it off; draw noise by a secret "
        "key of 256 bits"
    )


def off_the_grid(
    releases: Iterator[tuple[Tensor, Tensor]], divisors: Sequence[float]
) -> list[str]:
    """Releases are multiples of a step that only public numbers decide.

    A sum on the grid of its noise, rounded to a float and divided, is one of few
    floats. Noise in floating point leaves others, which ones depending on the sum.

    ``releases``: pairs of a release, (runs, nodes, dims), and its noise in the ledger,
    (nodes,). ``divisors``: of each node's sums.
    """
    found = []
    for index, (release, deviations) in enumerate(releases):
        for node, deviation in enumerate(deviations.tolist()):
            if not deviation > 0:
                continue
            step, divisor = grid_step(deviation), divisors[node]
            values = release[:, node].flatten()
            whole = (values.double() * divisor / step).round()
            # Larger ones have no digits left below the step.
            small = whole.abs() < 0.5 / torch.finfo(values.dtype).eps
            values, whole = values[small], whole[small]
            steps = whole * step
            off = values != (steps / divisor).to(values.dtype)  # rounded last, or first
            off = int((off & (values != steps.to(values.dtype).div_(divisor))).sum())
            if off:
                found.append(
                    f"node {node}, release {index}: {off} of {len(values)} small "
                    f"numbers are no multiples of {step:.3g}, the step of the "
                    "ledger's noise: noise in floating point shows the sum in its last "
                    "digits; round sum and noise to a grid, by Streams.noisy"
                )
    return found[:_SHOWN]


def proportional(noise: Tensor) -> list[str]:
    """No noise is a multiple of another's, (releases, runs, nodes, dims)."""
    releases, _, nodes, dims = noise.shape
    few = noise[:, : max(1, 1000 // (releases * nodes)), :, :64].double()
    rows = few.flatten(0, 2)
    if dims < _MATCHED:
        return []
    norms = rows.norm(dim=1, keepdim=True)
    units = rows / norms.clamp_min(1e-300)
    close = (units @ units.T).abs().triu_(1) > 1 - 1e-6
    found = []
    for pair in close.nonzero()[:_SHOWN].tolist():
        names = []
        for place in pair:
            release, rest = divmod(place, few.shape[1] * nodes)
            run, node = divmod(rest, nodes)
            names.append(f"node {node}, release {release}, run {run}")
        factor = (rows[pair[1]] @ rows[pair[0]] / norms[pair[0]] ** 2).item()
        found.append(
            f"the noise of {names[1]} is {factor:.4g} times that of {names[0]}: their "
            "combination has none; give each an address of its own"
        )
    return found


def told_by_noise(noise: Tensor, taken: Tensor) -> list[str]:
    """The coin of a record is independent of every coordinate of its batch's noise.

    ``noise`` is (releases, runs, dims), of the record's node, ``taken`` (releases,
    runs) bool: whether the record was in the batch.
    """
    coins = taken.flatten().double()
    draws = noise.flatten(0, 1).double()
    if not 0 < coins.mean() < 1:
        return []
    coins, draws = coins - coins.mean(), draws - draws.mean(0)
    together = (coins @ draws) / (coins.norm() * draws.norm(dim=0)).clamp_min(1e-300)
    worst = int(together.abs().argmax())
    allowed = np.sqrt(36 + 2 * np.log(draws.shape[1])) / np.sqrt(len(coins))
    if abs(together[worst]) > allowed:
        return [
            f"whether a record is in a batch goes with coordinate {worst} of its noise "
            f"(correlation {together[worst]:.2f}): whoever sees the release knows the "
            "batch; draw sampling and noise for purposes of their own"
        ]
    return []
