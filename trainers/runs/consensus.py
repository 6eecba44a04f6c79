"""Private averaging of vectors over a graph, and its account."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import torch

from privaudit.accounting import account
from privaudit.figure_settings import ConsensusSettings
from privaudit.files import npz as _npz
from privaudit.files.json import Summary
from privaudit.files.npz import real_numbers
from privaudit.ledger import Recorder
from privaudit.results import UpperBound, round_up
from trainers.network.named_graphs import mixing as named
from trainers.numerics.randomness import Streams
from trainers.oracles.messages.channel import Channel
from trainers.oracles.messages.dpps import average, with_synchronisation
from trainers.oracles.messages.noise import MessageNoise


class Round(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A round: sensitivities, and how far the worst node was off after it, in L2."""

    round: int
    real: float
    used: float
    error: float


@dataclasses.dataclass(frozen=True, slots=True)
class Averaged:
    """Distance of the nodes after each round, and two accounts of it."""

    settings: ConsensusSettings
    noise: MessageNoise
    nodes: int
    dims: int
    clipped: int  # how many vectors were scaled to the bound
    rounds: list[Round]
    # which_node, whole_vector: the accounts: of which node was asked, and of all of one
    # node's vector
    which_node: UpperBound
    whole_vector: UpperBound

    summary = Summary(
        "nodes dims rounds below_real claimed_per_round=claimed "
        "clip_norm=settings.clip_norm clipped which_node whole_vector"
    )

    @property
    def claimed(self) -> float:
        """Epsilon a round that Theorem 1 of DPPS claims."""
        return self.settings.b / self.settings.gamma_n

    @property
    def below_real(self) -> int:
        """Number of rounds whose noise was for less than the real sensitivity."""
        return sum(one.used < one.real for one in self.rounds)

    def lines(self) -> list[str]:
        return [
            *self._table(),
            *self._words(),
            f"which node was asked, all rounds: {self.which_node}",
            f"all of one node's vector, all rounds: {self.whole_vector}",
        ]

    def _table(self) -> list[str]:
        """Some of the rounds, the first and the last among them."""
        lines = ["round   sensitivity: real   used        error (worst node, L2)"]
        many = len(self.rounds)
        for at in sorted({*range(0, many, max(1, many // 20)), many - 1}):
            one = self.rounds[at]
            row = f"{one.round:5d}   {one.real:17.4g}   {one.used:<9.4g}   "
            low = "  below the real one" if one.used < one.real else ""
            lines.append(f"{row}{one.error:.4g}{low}")
        return lines

    def _words(self) -> list[str]:
        many, claimed = len(self.rounds), self.claimed
        lines = [
            f"claimed (Theorem 1): epsilon is at most {round_up(claimed)} a round for "
            f"which node was asked, {round_up(claimed * many)} in {many} rounds"
        ]
        if self.below_real:
            lines.append(
                f"the sensitivity used was below the real one in {self.below_real} of "
                f"{many} rounds: there, not even the claim holds"
            )
        if self.noise.broadcasts:
            lines.append(
                f"sensitivity {self.noise.sensitivity} is no guarantee: it depends on "
                "the data and is known to all, and the norms that it is made of tell "
                "two states apart by the norm of the noise between them and a message"
            )
        return lines


def consensus(settings: ConsensusSettings) -> Averaged:
    """Average vectors over a graph by DPPS: how far off, and how private."""
    held = vectors_of(settings)
    norms = abs(held).sum(1, keepdims=True)
    held = held * (settings.clip_norm / norms.clip(min=settings.clip_norm))
    sync = settings.sync_interval or None
    mixing = named(settings.graph, settings.weights, len(held))
    noise = MessageNoise(
        settings.gamma_n / settings.b,
        settings.sensitivity,
        settings.rounds,
        unit="node",
        sync_interval=sync,
        constant=settings.constant,
        decay=settings.decay,
        failure=settings.delta / 100,
        window=64,
    )
    trace: list[tuple[float, float]] = []
    errors: list[float] = []
    mean = torch.from_numpy(held.mean(0))

    def far(done: int, views: torch.Tensor) -> None:
        errors.append(float((views[0] - mean).norm(dim=1).max()))

    channel = Channel(
        noise,
        with_synchronisation(mixing, sync),
        Streams(settings.seed),
        watch=lambda k, real, used: trace.append((float(real[0]), float(used[0]))),
    )
    start = torch.from_numpy(held)[None]
    average(start, channel, settings.rounds, bound=settings.clip_norm, after_round=far)
    return Averaged(
        settings=settings,
        noise=noise,
        nodes=held.shape[0],
        dims=held.shape[1],
        clipped=int((norms > settings.clip_norm).sum()),
        rounds=[
            Round(k, *moved, error)
            for k, (moved, error) in enumerate(zip(trace, errors, strict=True))
        ],
        which_node=account(channel.ledger, settings.delta, "replace-one"),
        whole_vector=_first_message(noise, settings.clip_norm, settings.delta),
    )


def vectors_of(settings: ConsensusSettings) -> np.ndarray:
    """One vector a node, (nodes, dims). ``ValueError`` for a file that has none."""
    path = settings.vectors
    if path is None:
        random = np.random.default_rng(settings.seed)
        drawn = random.laplace(size=(settings.nodes, settings.dims))
        return drawn / abs(drawn).sum(1, keepdims=True)
    try:
        if path.suffix == ".npz":
            with _npz.opened(path) as file:
                found = real_numbers(file[file.files[0]])
        elif path.read_bytes().strip():
            found = np.loadtxt(path, delimiter=",", ndmin=2, encoding="utf-8-sig")
        else:
            found = np.zeros((0, 0))
    except (OSError, ValueError, IndexError, TypeError) as error:
        raise ValueError(f"{path} cannot be read as vectors: {error}") from None
    if found.ndim != 2 or 0 in found.shape or not np.isfinite(found).all():
        raise ValueError(
            f"{path} must hold finite numbers, a vector a row, got shape {found.shape}"
        )
    return found


def _first_message(noise: MessageNoise, clip_norm: float, delta: float) -> UpperBound:
    """The account of one node's whole vector: of the first message alone."""
    alone = dataclasses.replace(noise, unit="record")
    release = alone.release(clip_norm, 2 * clip_norm, 1)
    assert release is not None
    recorder = Recorder(1, unit="node")
    recorder.record(0, release)
    return account(recorder.ledger(), delta, "replace-one")
