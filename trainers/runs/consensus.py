"""Private averaging of vectors over a graph, and its account."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from privaudit.accounting import account
from privaudit.figure_settings import ConsensusSettings
from privaudit.files import npz as _npz
from privaudit.files.npz import real_numbers
from privaudit.ledger import Recorder
from privaudit.results import UpperBound, round_up
from trainers.network.named_graphs import mixing as named
from trainers.numerics.randomness import Streams
from trainers.oracles.messages.channel import Channel
from trainers.oracles.messages.dpps import average, with_synchronisation
from trainers.oracles.messages.noise import MessageNoise


@dataclasses.dataclass(frozen=True, slots=True)
class Averaged:
    """Distance of the nodes after each round, and two accounts of it."""

    settings: ConsensusSettings
    noise: MessageNoise
    shape: tuple[int, int]  # (nodes, dims)
    clipped: int  # how many vectors were scaled to the bound
    trace: list[tuple[float, float]]  # real and used sensitivity of each round
    errors: list[float]  # of the worst node after each round, in L2 norm
    # which_node, whole_vector: the accounts: of which node was asked, and of all of one
    # node's vector
    which_node: UpperBound
    whole_vector: UpperBound

    def summary(self) -> dict[str, Any]:
        """All figures, for JSON."""
        settings = self.settings
        return {
            "nodes": self.shape[0],
            "dims": self.shape[1],
            "rounds": [
                {"round": k, "real": real, "used": used, "error": error}
                for k, ((real, used), error) in enumerate(
                    zip(self.trace, self.errors, strict=True)
                )
            ],
            "below_real": sum(used < real for real, used in self.trace),
            "claimed_per_round": settings.b / settings.gamma_n,
            "clip_norm": settings.clip_norm,
            "clipped": self.clipped,
            "which_node": self.which_node.summary(),
            "whole_vector": self.whole_vector.summary(),
        }

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        return [
            *_table(self.trace, self.errors),
            *_words(self.noise, self.trace, self.settings.b / self.settings.gamma_n),
            f"which node was asked, all rounds: {self.which_node}",
            f"all of one node's vector, all rounds: {self.whole_vector}",
        ]


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
        shape=held.shape,
        clipped=int((norms > settings.clip_norm).sum()),
        trace=trace,
        errors=errors,
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
    release = dataclasses.replace(noise, unit="record").release(
        clip_norm, 2 * clip_norm, 1
    )
    assert release is not None
    recorder = Recorder(1, unit="node")
    recorder.record(0, release)
    return account(recorder.ledger(), delta, "replace-one")


def _table(trace: list[tuple[float, float]], errors: list[float]) -> list[str]:
    """Some of the rounds, the first and the last among them."""
    every = max(1, len(trace) // 20)
    lines = ["round   sensitivity: real   used        error (worst node, L2)"]
    for k, ((real, used), error) in enumerate(zip(trace, errors, strict=True)):
        if k % every == 0 or k == len(trace) - 1:
            low = "  below the real one" if used < real else ""
            lines.append(f"{k:5d}   {real:17.4g}   {used:<9.4g}   {error:.4g}{low}")
    return lines


def _words(
    noise: MessageNoise, trace: list[tuple[float, float]], claimed: float
) -> list[str]:
    below = sum(used < real for real, used in trace)
    lines = [
        f"claimed (Theorem 1): epsilon is at most {round_up(claimed)} a round for "
        f"which node was asked, {round_up(claimed * len(trace))} in {len(trace)} rounds"
    ]
    if below:
        lines.append(
            f"the sensitivity used was below the real one in {below} of {len(trace)} "
            "rounds: there, not even the claim holds"
        )
    if noise.broadcasts:
        lines.append(
            f"sensitivity {noise.sensitivity} is no guarantee: it depends on the data "
            "and is known to all, and the norms that it is made of tell two states "
            "apart by the norm of the noise between them and a message"
        )
    return lines
