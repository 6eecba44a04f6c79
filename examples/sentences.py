# %% [markdown]
# Sentences of tokens at three offices of uneven sizes, and a transformer of one block,
# written as usual: what is certified is that a sentence's gradient is its own, as the
# model is tensor operations that can be traced.

# %%
import numpy as np
import torch
from torch import Tensor, nn

import privaudit as pa

TOKENS, LENGTH, WIDTH, TOPICS = 40, 12, 8, 4
rng = np.random.default_rng(0)
topics = rng.dirichlet([0.3] * TOKENS, TOPICS)


def sentences(count: int) -> tuple[Tensor, Tensor]:
    """Made-up sentences, and their topics."""
    about = rng.integers(0, TOPICS, count)
    drawn = [rng.choice(TOKENS, LENGTH, p=topics[own]) for own in about]
    return torch.tensor(np.array(drawn)), torch.tensor(about)


class Reader(nn.Module):
    """One block of attention over tokens and their places."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.place = nn.Parameter(torch.randn(LENGTH, WIDTH) / WIDTH**0.5)
        self.block = nn.TransformerEncoderLayer(
            WIDTH, nhead=2, dim_feedforward=2 * WIDTH, dropout=0.0, batch_first=True
        )
        self.out = nn.Linear(WIDTH, TOPICS)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.block(self.embed(x) + self.place).mean(1))


# %%
offices = [sentences(count) for count in (800, 500, 200)]
plan = pa.plan(Reader(), offices, epsilon=4, rounds=60)
print(plan)

# %%
run = pa.train(Reader(), offices, plan=plan, test=sentences(500))
print(run)
