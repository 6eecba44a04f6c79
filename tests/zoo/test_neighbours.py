"""Nothing public but the released sums depends on a record, under one key.

Neighbouring data, trained with the same key, leave the same files, of the same sizes
and with the same bytes where nothing released is in them, the same words, warnings and
exit status. A hundred trainings, drawn from all families of algorithms, forms of data,
models and losses, each with ten records in the place of one.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import random
import re
import shutil
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import privaudit as pa
from privaudit.cli import main
from tests.tiers import size
from trainers.algorithms import ALGORITHMS

RECORDS, WIDTH, VOCABULARY, CASES, RECORDS_TRIED = 8, 5, 9, 100, 10
# What is made of the released sums, and of the clock.
RELEASED = {
    *("accuracy", "worst_accuracy", "loss", "worst_loss", "seconds", "consensus"),
    *("rounds.csv", "curves.json", "model.safetensors", "result.json", "manifest.json"),
}
FAMILIES = [
    name
    for name, family in ALGORITHMS.items()
    if family.private and name not in ("deep-q", "dp-sgd-with-replacement")
]


class Traced(nn.Module):
    """With dropout, and an output that is a dictionary."""

    def __init__(self, outputs) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, 6), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(6, outputs)

    def forward(self, x):
        return {"logits": self.head(self.inner(x))}


class Isolated(Traced):
    """One that fails, or leaves, for some records."""

    def forward(self, x):
        most = float(x.detach().abs().max())
        if most > 1e6:
            raise RuntimeError("too large")
        if most == 0:
            warnings.warn("zeros", stacklevel=1)
            raise SystemExit(5)
        return self.head(self.inner(x))


class Tokens(nn.Module):
    def __init__(self, outputs) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 4)
        self.head = nn.Linear(4, outputs)

    def forward(self, x):
        return self.head(self.table(x).mean(1))


def plain(outputs):
    return nn.Sequential(nn.Linear(WIDTH, outputs))


def bags(outputs):
    return nn.Sequential(
        nn.Embedding(VOCABULARY, 3), nn.Flatten(), nn.Linear(3 * WIDTH, outputs)
    )


def looks(outputs, targets):
    if int(targets.max()) > 1:
        raise RuntimeError(f"no class {targets}")
    return F.cross_entropy(outputs, targets)


def logs(outputs, targets):
    if not bool(outputs.isfinite().all()):
        raise ArithmeticError
    return (outputs[:, 0] - targets).square().mean() + 0 * outputs.sum()


# Of each task: models by their number of outputs, and losses.
TASKS = {
    "classes": (
        [plain, Traced, Isolated],
        [
            *(None, F.cross_entropy, looks, lambda o, t: F.multi_margin_loss(o, t)),
            lambda o, t: -o.log_softmax(1).gather(1, t[:, None]).mean(),
            lambda o, t: F.mse_loss(o, F.one_hot(t, 2).float()),
        ],
    ),
    "numbers": (
        [plain, Traced, Isolated],
        [
            lambda o, t: F.mse_loss(o[:, 0], t),
            lambda o, t: F.huber_loss(o[:, 1], t),
            lambda o, t: F.binary_cross_entropy(o[:, 0].sigmoid(), t),
            logs,
        ],
    ),
    "tokens": ([Tokens, bags], [None, looks, lambda o, t: F.cross_entropy(o, t)]),
}


class Asked(Dataset):
    """Records that are read as they are asked for; of some kinds they cannot be."""

    def __init__(self, inputs, targets, fault) -> None:
        self.inputs, self.targets, self.fault = inputs, targets, fault

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row):
        input, target = self.inputs[row], self.targets[row]
        if self.fault is not None and row == self.fault[0]:
            return FAULTS[self.fault[1]](input, target)
        return input + torch.rand(()).to(input), target


def _raise(error):
    raise error


FAULTS = [
    lambda x, y: _raise(OSError("unreadable")),
    lambda x, y: _raise(SystemExit(7)),
    lambda x, y: (x[:2], y),
    lambda x, y: (x, y.to(torch.int8)),
    lambda x, y: ("text", y),
    lambda x, y: None,
]


def _pandas(x, y):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(x.numpy()), pandas.Series(y.numpy())


FORMS = {
    "tensors": lambda x, y, fault: (x, y),
    "arrays": lambda x, y, fault: (x.numpy(), y.numpy()),
    "pandas": lambda x, y, fault: _pandas(x, y),
    "data set": Asked,
    "loader": lambda x, y, fault: DataLoader(Asked(x, y, fault), batch_size=5),
    "command line": None,
}
NUMBERS = [0.5, 0.0, 1e30, -3e38, 1e-40, -0.0, torch.nan, torch.inf, -torch.inf]
LABELS = [0, 1, 2, 77, -1, -100, 2**62, -(2**62)]


def case(number):
    """A training, by its number: what it is of, and what is the same in each pair."""
    drawn = random.Random(number)
    task = drawn.choice(list(TASKS))
    models, losses = TASKS[task]
    model, loss = drawn.choice(models), drawn.choice(losses)
    form = drawn.choice(list(FORMS))
    generator = torch.Generator().manual_seed(number)
    shape = (2 * RECORDS, WIDTH)
    if task == "tokens":
        inputs = torch.randint(0, VOCABULARY, shape, generator=generator)
    else:
        inputs = torch.randn(shape, generator=generator)
    targets = torch.arange(2 * RECORDS) % 2
    if task == "numbers":
        targets = torch.rand(2 * RECORDS, generator=generator)
    return FAMILIES[number % len(FAMILIES)], model, loss, form, inputs, targets, drawn


def record(like, target, drawn):
    """Another record, ordinary or not."""
    input = like.clone()
    every = slice(None) if drawn.random() < 0.5 else drawn.randrange(WIDTH)
    if input.is_floating_point():
        input[every] = drawn.choice(NUMBERS)
    else:
        input[every] = drawn.choice([*LABELS, VOCABULARY])
    kinds = NUMBERS if target.is_floating_point() else LABELS
    return input, torch.tensor(drawn.choice(kinds), dtype=target.dtype)


def left_by(number, made, inputs, targets, fault, folder):
    """All that a training leaves: its files, what it says, and how it ends."""
    family, model, loss, form, *_ = made
    torch.manual_seed(number)
    module = model(2)
    said, log = io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger("privaudit").addHandler(handler)
    parts = list(zip(inputs.split(RECORDS), targets.split(RECORDS), strict=True))
    if ALGORITHMS[family].central:
        parts = parts[:1]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    out, ended = folder / "out", None
    try:
        with (
            warnings.catch_warnings(record=True) as warned,
            contextlib.redirect_stderr(said),
            contextlib.redirect_stdout(said),
        ):
            warnings.simplefilter("always")
            if form == "command line":
                ended = _commanded(family, module, loss, parts, folder, out)
            else:
                shares = [
                    FORMS[form](*part, None if node else fault)
                    for node, part in enumerate(parts)
                ]
                pa.train(
                    *(module, shares, family),
                    **dict(loss=loss, noise_multiplier=1.0, rounds=2, batch_size=3),
                    **dict(seed=3, out=out),
                )
    except (Exception, SystemExit) as error:
        ended = repr(error)
    finally:
        logging.getLogger("privaudit").removeHandler(handler)
    files = {one.name: one for one in sorted(out.glob("*")) if one.is_file()}
    kept = {}
    if "result.json" in files:
        result = json.loads(files["result.json"].read_text())
        kept = {name: value for name, value in result.items() if name not in RELEASED}
    same = {
        name: one.read_bytes() for name, one in files.items() if name not in RELEASED
    }
    long = {name: one.stat().st_size for name, one in files.items() if "model" in name}
    words = re.sub(r"[\d.]+", "0", said.getvalue())
    texts = [str(one.message) for one in warned]
    return ended, same, kept, long, words, log.getvalue(), texts, sorted(files)


def _commanded(family, module, loss, parts, folder, out):
    GIVEN.update(module=module, loss=loss)
    for node, (inputs, targets) in enumerate(parts):
        np.savez(
            folder / f"node-{node}.npz", inputs=inputs.numpy(), targets=targets.numpy()
        )
    given = ["--set", "rounds=2", "--set", "batch_size=3"]
    if loss is not None:
        given += ["--loss", f"{__name__}:given_loss"]
    return main(
        [
            *("train", family, *given, "--noise-multiplier", "1", "--seed", "3"),
            *("--model", f"{__name__}:given_model", "--data", f"folder:{folder}"),
            *("--out", str(out)),
        ]
    )


GIVEN = {}


def given_model():
    return GIVEN["module"]


def given_loss(outputs, targets):
    return GIVEN["loss"](outputs, targets)


@pytest.mark.sized
@pytest.mark.sampled(10)
@pytest.mark.parametrize("number", range(CASES))
def test_neighbours_leave_the_same(number, tmp_path, monkeypatch):
    # A shape is tried on made-up records alone, and most of the time.
    monkeypatch.setattr("trainers.gradients.shapes._TRIED", 1)
    *made, inputs, targets, drawn = case(number)
    one = left_by(number, made, inputs, targets, None, tmp_path / "here")
    assert one[-1] or one[0] is not None
    for _ in range(size(RECORDS_TRIED, 2)):
        others, other_targets = inputs.clone(), targets.clone()
        place = drawn.choice([0, drawn.randrange(RECORDS)])
        fault = None
        if made[3] in ("data set", "loader") and drawn.random() < 0.5:
            fault = place, drawn.randrange(len(FAULTS))
        else:
            others[place], other_targets[place] = record(
                inputs[place], targets[place], drawn
            )
        other = left_by(
            number, made, others, other_targets, fault, tmp_path / "here"
        )
        assert one == other, (made, place, fault, others[place], other_targets[place])


def test_trainings_come_to_an_end():
    """That nothing is told is not since nothing is trained."""
    assert len(FAMILIES) >= 19
