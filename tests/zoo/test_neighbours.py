"""Nothing public but the released sums depends on a record, under one key.

Neighbouring data, trained with the same key, leave the same files, of the same sizes
and with the same bytes where nothing released is in them, and the same words.
"""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import privaudit as pa

RECORDS, WIDTH = 24, 5
# What is made of the released sums, and of the clock.
RELEASED = {
    *("accuracy", "worst_accuracy", "loss", "worst_loss", "seconds", "consensus"),
    *("rounds.csv", "curves.json", "model.safetensors", "result.json", "manifest.json"),
}


class Own(nn.Module):
    """Traced, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Sequential(nn.Linear(WIDTH, 6), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return {"logits": self.head(self.inner(x))}


class Looks(Own):
    """Isolated, and failing for large records."""

    def forward(self, x):
        if float(x.detach().abs().max()) > 1e6:
            raise RuntimeError("too large")
        return self.head(self.inner(x))


class Asked(Dataset):
    """Records that are read as they are asked for; some cannot be."""

    def __init__(self, inputs, targets) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row):
        if self.targets[row] == 77:
            raise OSError("unreadable")
        return self.inputs[row] + torch.rand(()), self.targets[row]


RECORD = {
    "ordinary": (torch.ones(WIDTH), 1),
    "zeros": (torch.zeros(WIDTH), 0),
    "huge": (torch.full((WIDTH,), 1e30), 1),
    "not a number": (torch.full((WIDTH,), torch.nan), 1),
    "infinite": (torch.full((WIDTH,), torch.inf), 0),
    "a label out of range": (torch.ones(WIDTH), 77),
}
GIVEN = {
    "traced": (Own, False),
    "isolated": (Looks, False),
    "torch's own layers": (lambda: nn.Sequential(nn.Linear(WIDTH, 2)), False),
    "read as asked for": (Own, True),
}


def left_by(made, lazy, record, place, folder):
    """All that a training leaves: its files, and what it says."""
    inputs = torch.randn(RECORDS, WIDTH, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(RECORDS) % 2
    inputs[place], targets[place] = record
    share = Asked(inputs, targets) if lazy else (inputs, targets)
    clean = inputs.nan_to_num(0, 0, 0).clamp(-9, 9), torch.arange(RECORDS) % 2
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        run = pa.train(
            made(),
            [share, clean],
            epsilon=4,
            rounds=2,
            batch_size=6,
            seed=3,
            out=folder,
        )
    files = {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}
    result = json.loads(files["result.json"].read_text())
    kept = {name: value for name, value in result.items() if name not in RELEASED}
    said = [str(one.message) for one in warned]
    same = {
        name: path.read_bytes() for name, path in files.items() if name not in RELEASED
    }
    return same, kept, said, files["model.safetensors"].stat().st_size, run.ledger


@pytest.mark.sampled(25)
@pytest.mark.parametrize("place", [0, 11])
@pytest.mark.parametrize("record", RECORD)
@pytest.mark.parametrize("given", GIVEN)
def test_neighbours_leave_the_same(given, record, place, tmp_path):
    made, lazy = GIVEN[given]
    one = left_by(made, lazy, (0.5 * torch.ones(WIDTH), 0), place, tmp_path / "a")
    other = left_by(made, lazy, RECORD[record], place, tmp_path / "b")
    assert one == other
