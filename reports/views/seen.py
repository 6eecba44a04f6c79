"""Images of other nodes, as one node solves for them from what it hears."""

from __future__ import annotations

from typing import Any

import numpy as np

from privaudit.accounting.views import LinearProtocol, Observer
from privaudit.auditing.attacks.reconstruction import reconstruction

ROUNDS, NOISE = 8, 0.2
DISTANCES = (1, 2, 3)  # of nodes 1, 2 and 3 from node 0, who looks


def metropolis(edges: list[list[int]]) -> np.ndarray:
    """Weights 1 / (1 + the larger degree)."""
    nodes = 1 + max(map(max, edges))
    degree = np.bincount(np.ravel(edges), minlength=nodes)
    matrix = np.zeros((nodes, nodes))
    for one, other in edges:
        matrix[[one, other], [other, one]] = 1 / (1 + degree[[one, other]].max())
    return matrix + np.diag(1 - matrix.sum(1))


def solved(
    edges: list[list[int]], noise: float, rounds: int, data: str, seed: int
) -> dict[str, Any]:
    """Guesses by node 0 of what nodes 1 to 3 hold, an image each, after averaging.

    Pixels are in [0, 1]; their mean and spread are known.
    """
    from trainers.data import load_dataset

    matrix = metropolis(edges)
    nodes = len(matrix)
    _, test = load_dataset(data, train=100)
    images = np.stack([test.inputs[i].numpy().ravel() for i in range(len(test))])
    generator = np.random.default_rng(seed)
    vectors = images[generator.choice(len(images), 10, replace=False)[:nodes]]
    mean, spread = float(images.mean()), float(images.std())
    noisy = vectors + noise * generator.normal(size=vectors.shape)
    protocol = LinearProtocol.averaging(matrix, noise, rounds)
    known = np.where(np.arange(nodes)[:, None] == 0, noisy, mean)
    found: dict[str, Any] = {"guesses": []}
    for of in DISTANCES:
        one = reconstruction(protocol, Observer.of(0), of, spread)
        guess = mean + one(protocol.messages @ noisy, known)[0]
        found["guesses"].append(
            {
                "solved": bool(one.solved[0]),
                "of": [round(float(share), 4) for share in one.mixture[0]],
                "error": round(float(one.error[0] / spread), 4),
                "off": round(float(np.sqrt(((guess - vectors[of]) ** 2).mean())), 4),
                "image": packed(guess),
                "true": packed(vectors[of]),
            }
        )
    return found


def packed(image: np.ndarray) -> str:
    """Encode an image, (side, side) in [0, 1], as text, two letters a pixel."""
    return np.round(255 * image.clip(0, 1)).astype(np.uint8).tobytes().hex()


def unpacked(text: str) -> np.ndarray:
    """Decode what `packed` gave: (side, side), in [0, 255]."""
    pixels = np.frombuffer(bytes.fromhex(text), np.uint8)
    return pixels.reshape(round(len(pixels) ** 0.5), -1)
