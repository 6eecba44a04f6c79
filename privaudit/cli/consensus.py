"""`privaudit consensus`: private averaging of vectors over a graph."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from privaudit.cli.accounts import Json
from privaudit.cli.output import emit, upper_json
from privaudit.results import round_up

if TYPE_CHECKING:
    import numpy as np

    from privaudit.results import UpperBound
    from trainers.oracles.messages.noise import MessageNoise
    from trainers.oracles.messages.sensitivities import SensitivityName
else:
    SensitivityName = Literal[
        "real", "paper", "published", "certified", "data-independent"
    ]

Weights = Literal["uniform", "metropolis", "max-degree", "column-stochastic"]
Budget = Annotated[
    float,
    Parameter(name="--b", help="b: Laplace noise has scale gamma_n S / b."),
]
NoiseRate = Annotated[
    float,
    Parameter(name="--gamma-n", help="gamma_n: each round is b / gamma_n private."),
]


def consensus(
    *,
    vectors: pathlib.Path | None = None,
    nodes: int = 10,
    dims: int = 10,
    graph: str = "d-out:2",
    weights: Weights = "uniform",
    rounds: int = 20,
    b: Budget = 1.0,
    gamma_n: NoiseRate = 0.01,
    sensitivity: SensitivityName = "data-independent",
    constant: float = 0.78,
    decay: float = 0.55,
    sync_interval: int = 0,
    clip_norm: float = 1.0,
    delta: float = 1e-4,
    seed: int = 0,
    json: Json = False,
) -> None:
    """Average vectors over a graph by DPPS: how far off, and how private.

    Each node holds a vector, and sends its state with Laplace noise to those that hear
    it, again and again. Two units of privacy are accounted: the node that was asked (a
    round is b / gamma_n, and rounds add up), and all of one node's vector (only the
    first message holds it, the rest follows from messages with noise).

    Parameters
    ----------
    vectors
        A CSV (a vector a line) or an npz file (its first array), one vector a node.
        Random ones by default.
    nodes, dims
        Of random vectors.
    graph
        Who hears whom, such as d-out:2, exponential, complete, ring.
    weights
        The rule of the mixing weights.
    rounds
        How many.
    sensitivity
        What S is: data-independent (the only guarantee), certified, paper or published
        (equation 22, and the paper's code), real (for study).
    constant, decay
        C' and lambda of equation 22.
    sync_interval
        Every so many rounds all nodes hear all; 0: never.
    clip_norm
        L1 bound on each vector, public; longer ones are scaled to it.
    delta
        Of the account over all rounds, in (0, 1).
    seed
        Seed of a study: makes the random vectors and the noise repeatable. Vectors
        averaged with a seed are not protected.
    """
    import torch

    from privaudit.accounting import account
    from privaudit.accounting.account import check_delta
    from trainers.network.named_graphs import mixing as named
    from trainers.numerics.randomness import Streams
    from trainers.oracles.messages.channel import Channel
    from trainers.oracles.messages.dpps import average, with_synchronisation
    from trainers.oracles.messages.noise import MessageNoise

    check_delta(delta)
    for name, value in (("b", b), ("gamma-n", gamma_n), ("clip-norm", clip_norm)):
        if not 0 < value < float("inf"):
            raise ValueError(f"--{name} must be > 0 and finite, got {value:g}")
    if rounds < 1 or sync_interval < 0 or seed < 0:
        raise ValueError(
            "--rounds must be >= 1, --sync-interval and --seed >= 0, got "
            f"{rounds}, {sync_interval} and {seed}"
        )
    held = _vectors(vectors, nodes, dims, seed)
    norms = abs(held).sum(1, keepdims=True)
    held = held * (clip_norm / norms.clip(min=clip_norm))
    mixing = with_synchronisation(
        named(graph, weights, len(held)), sync_interval or None
    )
    noise = MessageNoise(
        gamma_n / b,
        sensitivity,
        rounds,
        unit="node",
        sync_interval=sync_interval or None,
        constant=constant,
        decay=decay,
        failure=delta / 100,
        window=64,
    )
    trace: list[tuple[float, float]] = []
    errors: list[float] = []
    mean = torch.from_numpy(held.mean(0))

    def far(done: int, views: torch.Tensor) -> None:
        errors.append(float((views[0] - mean).norm(dim=1).max()))

    channel = Channel(
        noise,
        mixing,
        Streams(seed),
        watch=lambda k, real, used: trace.append((float(real[0]), float(used[0]))),
    )
    start = torch.from_numpy(held)[None]
    average(start, channel, rounds, bound=clip_norm, after_round=far)
    node = account(channel.ledger, delta, "replace-one")
    vector = _first_message(noise, clip_norm, delta)
    emit(
        {
            "nodes": len(held),
            "dims": held.shape[1],
            "rounds": [
                {"round": k, "real": real, "used": used, "error": error}
                for k, ((real, used), error) in enumerate(
                    zip(trace, errors, strict=True)
                )
            ],
            "below_real": sum(used < real for real, used in trace),
            "claimed_per_round": b / gamma_n,
            "clip_norm": clip_norm,
            "clipped": int((norms > clip_norm).sum()),
            "which_node": upper_json(node),
            "whole_vector": upper_json(vector),
        },
        [
            *_table(trace, errors),
            *_words(noise, trace, b / gamma_n),
            f"which node was asked, all rounds: {node}",
            f"all of one node's vector, all rounds: {vector}",
        ],
        as_json=json,
    )


def _vectors(path: pathlib.Path | None, nodes: int, dims: int, seed: int) -> np.ndarray:
    """One vector a node, (nodes, dims). ``ValueError`` for a file that has none."""
    import numpy as np

    from privaudit.auditing.scores import real_numbers
    from privaudit.files import npz as _npz

    if path is None:
        if nodes < 1 or dims < 1:
            raise ValueError(f"--nodes and --dims must be >= 1, got {nodes} and {dims}")
        random = np.random.default_rng(seed)
        drawn = random.laplace(size=(nodes, dims))
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
    """The account of one node's whole vector: of the first message alone.

    Data-independent noise is scaled by at least twice the bound there, surely.
    """
    from privaudit.accounting import account
    from privaudit.ledger import Recorder

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
