r"""A DP-SGD loop that knows nothing of privaudit, written to be audited.

    privaudit audit-program examples.plain_dp_sgd:scores --epsilon .46 --delta 1e-2
    privaudit audit-program examples.plain_dp_sgd:buggy_scores --epsilon .46 \
        --delta 1e-2 --runs 1000
    privaudit audit-program --epsilon .46 --delta 1e-2 --runs 60 \
        --command 'python examples/plain_dp_sgd.py --member {member} --seed {seed}'
    privaudit audit-program --epsilon .46 --delta 1e-2 --serve \
        --command 'python examples/plain_dp_sgd.py --serve' \
        --noise-multiplier 3.2 --sampling-rate .2 --steps 20

Logistic regression on 100 made-up records; Poisson batches at rate .2, 20 steps, clip
norm 1, noise multiplier 3.2: `privaudit epsilon --noise-multiplier 3.2 --sampling-rate
.2 --steps 20 --delta 1e-2` says that this is (.4520, 1e-2)-DP. ``buggy_scores`` divides
the noise by the batch size, as if it were part of each record's gradient and averaged
with them. With ``--serve`` it imports torch once, and answers a line "member seed" with
a score until its input ends.
"""

import argparse
import sys

import numpy as np
import torch

RECORDS, FEATURES = 100, 5
RATE, STEPS, CLIP, NOISE, STEP_SIZE = 0.2, 20, 1.0, 3.2, 0.5


def records() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs (records, features) and labels 0 or 1 (records,), without the canary."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(RECORDS, FEATURES, generator=generator)
    return x, (x[:, 0] > 0).float()


def train(member: bool, seed: int, noise: float) -> torch.Tensor:
    """Final weights (features,) of one run; ``member``: the canary is in the data.

    ``noise`` is the noise multiplier: the standard deviation of the noise on a batch's
    sum of clipped gradients, divided by the clip norm.
    """
    generator = torch.Generator().manual_seed(seed)
    x, y = records()
    if member:  # far out, and labelled against everybody else
        x = torch.cat([x, torch.full((1, FEATURES), 3.0)])
        y = torch.cat([y, torch.zeros(1)])
    weights = torch.zeros(FEATURES)
    for _ in range(STEPS):
        batch = torch.rand(len(x), generator=generator) < RATE
        gradients = (torch.sigmoid(x[batch] @ weights) - y[batch])[:, None] * x[batch]
        norms = gradients.norm(dim=1, keepdim=True).clamp_min(CLIP)
        total = (gradients * CLIP / norms).sum(0)
        total += noise * CLIP * torch.randn(FEATURES, generator=generator)
        weights -= STEP_SIZE * total / (RATE * RECORDS)
    return weights


def score(weights: torch.Tensor) -> float:
    """Minus the canary's logit, over 3: higher says "member", as its label is 0."""
    return -float(weights.sum())


def scores(worlds: np.ndarray, seed: int, noise: float = NOISE) -> list[float]:
    """One score a run; `privaudit audit-program module:function` calls it.

    ``worlds`` is (runs,) bool: in which runs the canary is in the data.
    """
    return [
        score(train(bool(member), 1000 * seed + run, noise))
        for run, member in enumerate(worlds)
    ]


def buggy_scores(worlds: np.ndarray, seed: int) -> list[float]:
    """As `scores`, with noise that is divided by the expected batch size: a bug."""
    return scores(worlds, seed, NOISE / (RATE * RECORDS))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--member", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--serve", action="store_true")
    given = parser.parse_args()
    if given.serve:
        for line in sys.stdin:
            member, seed = map(int, line.split())
            print(score(train(bool(member), seed, NOISE)), flush=True)
    else:
        print(score(train(bool(given.member), given.seed, NOISE)))
