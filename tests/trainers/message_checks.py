"""Deterministic probes for bugs in noisy messages: findings in sentences; else nothing.

As `tests.trainers.checks`, for channels and protocols.
"""

import math

import numpy as np
import torch

from tests.trainers.problems import start
from trainers.network.named_graphs import mixing
from trainers.numerics.randomness import Streams
from trainers.oracles.messages.channel import Channel
from trainers.oracles.messages.dpps import average
from trainers.oracles.messages.noise import MessageNoise

B, GAMMA = 4.0, 0.02  # so that S b and S / b are far apart
RING = mixing("d-out:2", "uniform", 5)


def noise(sensitivity="data-independent", rounds=6, **more):
    return MessageNoise(GAMMA / B, sensitivity, rounds, **more)


def noise_is_as_promised(kind=Channel, runs=400, dims=20, **options):
    """Laplace of scale gamma_n S / b, with the S of that round; as the ledger has it.

    Perturbations grow, so that another round's S is not this one's.
    """
    how = noise(unit="node", **options)
    scales = []
    channel = kind(
        how,
        RING,
        Streams(3),
        runs=runs,
        watch=lambda k, real, used: scales.append((real.max(), used.max())),
    )
    states = torch.zeros(runs, 5, dims, dtype=torch.float64)
    channel.begin(states)
    found, all_noise = [], []
    for k in range(4):
        bound = 3.0**k
        change = torch.zeros_like(states)
        change[:, :, 0] = bound * (-1.0) ** torch.arange(5, dtype=torch.float64)
        states = states + change
        sent, _ = channel.send(states, change, bound=bound)
        drawn = sent - states
        all_noise.append(drawn)
        real, used = scales[-1]
        if used < real * (1 - 1e-12):
            found.append(f"round {k}: scaled by {used:.4g}, the real is {real:.4g}")
        measured = drawn.abs().mean().item()  # of Laplace: its scale
        expected = GAMMA * used / B
        if abs(measured / expected - 1) > 5 / math.sqrt(drawn.numel()):
            found.append(f"round {k}: scale {measured:.4g}, promised {expected:.4g}")
        entry = [e for e in channel.ledger.nodes[0] for _ in range(e.count)][k].release
        if abs(entry.noise - expected) > 1e-9 * expected:
            found.append(f"round {k}: {entry.noise:.4g} written, {expected:.4g} used")
        # The fourth moment tells Laplace (6) from Gauss (3).
        kurtosis = (drawn**4).mean() / (drawn**2).mean() ** 2
        if not 5 < kurtosis < 7:
            found.append(f"round {k}: kurtosis {kurtosis:.2f}, not Laplace noise")
        states = RING(sent, k)
    drawn = torch.stack(all_noise).transpose(0, 2).flatten(1)  # (nodes, ...)
    worst = np.abs(np.corrcoef(drawn.numpy()) - np.eye(5)).max()
    if worst > 5 / math.sqrt(drawn.shape[1]):
        found.append(f"noise of two nodes is correlated: {worst:.3f}")
    return found


def averages_are_reached(rounds=400):
    """Without noise, every node's view goes to the mean, on directed graphs too."""
    found = []
    for graph, weights in (
        ("star", "column-stochastic"),
        ("exponential", "column-stochastic"),
        ("d-out:3", "uniform"),
    ):
        on = mixing(graph, weights, 6)
        vectors = start(4, runs=2, nodes=6)
        channel = Channel(MessageNoise(0.0, "real", rounds), on, Streams(0), runs=2)
        views, _ = average(vectors, channel, rounds, bound=100.0)
        far = (views - vectors.mean(1, keepdim=True)).abs().max().item()
        if far > 1e-9:
            found.append(f"{graph}: {far:.3g} from the mean after {rounds} rounds")
    return found
