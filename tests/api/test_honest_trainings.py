"""A hundred honest trainings of models and data of one's own: no audit refutes any."""

import itertools

import pytest
import torch
from torch import nn

import privaudit as pa
from privaudit.auditing.experiments import judgement

pytestmark = pytest.mark.full
RECORDS = 40


@pytest.fixture(autouse=True)
def no_gap(monkeypatch):
    """Nothing is simulated that no verdict depends on: it takes most of the time."""
    monkeypatch.setattr(judgement, "gap_of", lambda *args: None)


class Words(nn.Module):
    """A bag of embedded words, normalised."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(12, 6)
        self.norm, self.out = nn.LayerNorm(6), nn.Linear(6, 2)

    def forward(self, words):
        return self.out(self.norm(self.table(words).mean(1)))


def table(count, generator):
    """Rows of a table, of two classes."""
    rows = torch.randn(count, 5, generator=generator)
    return rows, (rows.sum(1) > 0).long()


def images(count, generator):
    """Small images, of two classes."""
    drawn = torch.randn(count, 1, 6, 6, generator=generator)
    return drawn, (drawn[:, 0, :3].sum((1, 2)) > 0).long()


def sentences(count, generator):
    """Five words a record, of two classes."""
    words = torch.randint(12, (count, 5), generator=generator)
    return words, (words.float().mean(1) > 5.5).long()


def numbers(count, generator):
    """Targets that are numbers."""
    rows, _ = table(count, generator)
    return rows, rows.sum(1, keepdim=True)


MODELS = {
    "linear": (lambda: nn.Linear(5, 2), table, {}),
    "dropout": (
        lambda: nn.Sequential(
            nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2)
        ),
        table,
        {},
    ),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.GroupNorm(1, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(48, 2),
        ),
        images,
        {},
    ),
    "words": (Words, sentences, {}),
    "regression": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1)),
        numbers,
        {"loss": nn.functional.mse_loss},
    ),
}  # fmt: skip
KINDS = {
    "default": {},
    "one-node": {"algorithm": "dp-sgd", "count": 1},
    "ring": {"algorithm": "dp-dsgd", "graph": "ring", "count": 5},
    "uneven": {"sizes": (40, 25, 60), "sampling_rate": 0.2, "batch_size": None},
    "replace-one": {"relation": "replace-one"},
    "full-batches": {"batch_size": RECORDS, "rounds": 5},
    "adam": {"optimiser": "adam", "clip_norm": 0.3},
    "momentum": {"optimiser": "momentum", "clip_norm": 3.0, "epsilon": 1},
    "allocation": {"sampling": "random-allocation", "epsilon": 3},
    "cosine": {"schedule": "cosine", "warm_up": 2, "rounds": 20},
    "large-noise": {"epsilon": 0.3},
    "little-noise": {"epsilon": 12, "rounds": 12},
    "gossip": {"algorithm": "dp-muffliato", "count": 4},
    "shared-noise": {"algorithm": "dp-decor", "count": 3},
    "dinno": {"algorithm": "dp-dinno", "rounds": 4},
    "users": {"algorithm": "dp-fedavg", "rounds": 6},
    "asynchronous": {"algorithm": "adp2sgd", "rounds": 30},
    "synchronous": {"algorithm": "dp-sync", "rounds": 6},
    "butterfly": {"algorithm": "dp-butterfly", "count": 4, "observer": "any-node"},
    "a-record": {"planted": True, "delta": 1e-3},
}
CASES = [(*case, seed) for seed, case in enumerate(itertools.product(KINDS, MODELS))]


@pytest.mark.parametrize(("kind", "model", "seed"), CASES)
def test_is_not_refuted(kind, model, seed):
    """Each bound is above the truth in one of a hundred at most, and far less often."""
    make, draw, more = MODELS[model]
    given = {"epsilon": 2, "rounds": 8, "batch_size": 10, **KINDS[kind], **more}
    sizes = given.pop("sizes", [RECORDS] * given.pop("count", 2))
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        net = make()
    planted = given.pop("planted", False)
    run = pa.train(net, [draw(size, generator) for size in sizes], **given)
    attack = {"runs": 500, "confidence": 0.99, "seed": seed}
    if planted:
        x, y = draw(1, generator)
        attack["record"] = x[0] if model == "words" else 20 * x[0], y[0]
    found = run.audit(**attack)
    assert found.status == "consistent"
    assert all(one.finding.lower is not None for one in run.result.audits)
