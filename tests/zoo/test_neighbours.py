"""Nothing public but the released sums depends on a record, under one key.

Neighbouring data, trained with the same key, leave the same files, of the same sizes
and with the same bytes where nothing released is in them; the same words, warnings,
status and account. A thousand pairs at full size: of each way of giving data, one run
of ordinary records, and others in which one record is another.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import pathlib
import re
import tempfile
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import privaudit as pa
from privaudit.cli import main
from privaudit.files.folder import NODE_MODEL, RunFolder
from trainers.gradients.clipping import Summation
from trainers.oracles.updates import UpdateOracle

RECORDS, WIDTH, TOKENS, EACH = 24, 5, 7, 84
# What is made of the released sums, and of the clock.
RELEASED = {
    *("accuracy", "worst_accuracy", "loss", "worst_loss", "seconds", "consensus"),
    *("rounds.csv", "curves.json", "model.safetensors", "result.json", "manifest.json"),
}
TO_THEMSELVES = re.compile(r".* Keep this to yourself.*\n")  # on standard error alone
CLOCK = re.compile(r"\d+(\.\d+)? m?s\b")


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
    """Isolated; fails for some records, warns of others, and leaves for a third."""

    def forward(self, x):
        largest = float(x.detach().abs().max())
        if largest > 1e20:
            raise SystemExit(7)
        if largest > 1e6:
            raise RuntimeError("too large")
        if largest > 3:
            warnings.warn("large", stacklevel=1)
        return self.head(self.inner(x))


class Words(nn.Module):
    """Of tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows, self.head = nn.Embedding(TOKENS, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.rows(x).mean(1))


def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 2))


class Asked(Dataset):
    """Records that are read as they are asked for; some cannot be, or are unlike."""

    example = torch.zeros(WIDTH), 0

    def __init__(self, inputs, targets) -> None:
        self.inputs, self.targets = inputs, targets
        self.draws = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row):
        input, target = self.inputs[row], self.targets[row]
        if target == 77:
            raise OSError("unreadable")
        if target == -1:
            return input[:2], target
        if target < -9:
            return input.tolist(), "a word"
        if input.abs().max() > 1e20:
            raise SystemExit(9)
        return input + torch.rand(()) + float(self.draws.random()), target


def harsh(outputs, targets):
    """Isolated; fails for some labels."""
    assert int(targets.max()) < 50, "a label"
    return F.cross_entropy(outputs, targets.clamp(0, 1))


def failing(x):
    if x.abs().max() > 1e20:
        raise KeyError("huge")
    return x / x.abs().max() if x.abs().max() > 3 else x + torch.rand(())


NUMBERS = (0.0, 1.0, 4.0, 1e7, 1e30, -3e38, 1e-42, torch.nan, torch.inf, -torch.inf)
LABELS = (1, 0, 1, 77, -1, -100, 2**62, 2)


def record(number: int, tokens: bool) -> tuple[torch.Tensor, int]:
    """The inputs and the label of the ``number``-th other record."""
    generator = torch.Generator().manual_seed(number)
    label = LABELS[number % len(LABELS)]
    if tokens:
        found = torch.randint(TOKENS, (WIDTH,), generator=generator)
        if number % 3:
            found[number % WIDTH] = (TOKENS, -1, 10**9, -(2**62))[number % 4]
        return found, label
    found = torch.randn(WIDTH, generator=generator)
    value = NUMBERS[number % len(NUMBERS)]
    if number % 4 == 1:
        found[:] = value
    elif number % 4:
        found[number % WIDTH] = value
    return found, label


@dataclasses.dataclass(frozen=True)
class Way:
    """How a user gives a model and data."""

    model: Callable[[], nn.Module] | str = plain
    share: Callable[[Any, Any], Any] = lambda inputs, targets: (inputs, targets)
    how: dict[str, Any] = dataclasses.field(default_factory=dict)
    tokens: bool = False
    floats: bool = False  # of targets
    users: bool = False
    files: bool = False


WAYS = {
    "torch's own layers": Way(),
    "traced": Way(Own),
    "isolated": Way(Looks),
    "tokens": Way(Words, tokens=True),
    "a regression": Way(plain, floats=True, how={"loss": F.mse_loss}),
    "a loss that fails": Way(plain, how={"loss": harsh}),
    "a transform that fails": Way(plain, how={"transform": failing}),
    "a Dataset": Way(Own, Asked),
    "a DataLoader": Way(plain, lambda x, y: DataLoader(Asked(x, y), batch_size=5)),
    "files": Way(files=True),
    "users": Way(Own, users=True),
    "users, isolated": Way(Looks, users=True),
}
PAIRS = [(way, number) for way in WAYS for number in range(EACH)]


def data_of(way: Way, number: int | None) -> list[Any]:
    """Two shares, of which the first has another record; None: not."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2, RECORDS, WIDTH, generator=generator)
    if way.tokens:
        inputs = torch.randint(TOKENS, inputs.shape, generator=generator)
    targets = torch.stack([torch.arange(RECORDS) % 2] * 2)
    if number is not None:
        place = number * 5 % RECORDS
        inputs[0, place], targets[0, place] = record(number, way.tokens)
    if way.floats:
        targets = targets[..., None].float().expand(-1, -1, 2).clone()
        if number is not None:
            targets[0, place] = NUMBERS[number // 4 % len(NUMBERS)]
    return [way.share(*share) for share in zip(inputs, targets, strict=True)]


def run(way: Way, number: int | None) -> Any:
    """Train in the folder at hand; what Python, or the command, gives of it."""
    shares = data_of(way, number)
    if way.files:
        os.mkdir("data")
        for node, (inputs, targets) in enumerate(shares):
            np.savez(f"data/node-{node}.npz", inputs=inputs, targets=targets)
        given = "--model softmax --classes 2 --data data --epsilon 4 --seed 3 --out out"
        small = "--set rounds=2 --set batch_size=6"
        return main(["train", "dp-dsgd", *given.split(), *small.split()])
    more: dict[str, Any] = {"batch_size": 6}
    if way.users:
        users = [np.arange(RECORDS) // 3] * 2
        options = {"local_steps": 2, "user_rate": 0.5}
        more = {"algorithm": "dp-fedavg", "batch_size": 2, "options": options}
        more |= {"users": [u + 100 * k for k, u in enumerate(users)]}
    settings = {"epsilon": 4, "rounds": 2, "seed": 3, "out": "out", **more, **way.how}
    found = pa.train(way.model, shares, **settings)
    return found.ledger, found.result.independence, found.result.warning


def left_by(
    way: Way,
    number: int | None,
    capfd: Any,
    caplog: Any,
    seen: Callable[[pathlib.Path], Any] = lambda path: seen_of(path),
    times: int = 1,
) -> dict[str, Any]:
    """All that a training leaves: its files, and what it says and gives.

    ``times``: how often it is begun, where it is killed in between.
    """
    before = os.getcwd()
    capfd.readouterr(), caplog.clear()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                gave, left = [], {}
                for _ in range(times):
                    try:
                        gave.append(run(way, number))
                    except BaseException as error:
                        gave.append(repr(error))
                    files = sorted(pathlib.Path("out").rglob("*"))
                    left |= {
                        (len(gave), str(path)): (path.stat().st_mode, seen(path))
                        for path in files
                        if path.is_file()
                    }
        finally:
            os.chdir(before)
    out, errors = capfd.readouterr()
    said = [CLOCK.sub("", out), CLOCK.sub("", TO_THEMSELVES.sub("", errors))]
    logged = [
        record.getMessage()
        for record in caplog.records
        if not record.name.startswith("torch.")
        and "Keep this to yourself" not in record.getMessage()
    ]
    words = [str(one.message) for one in warned]
    return {"gave": gave, "said": said, "logged": logged, "warned": words, **left}


def released(name: str) -> bool:
    return name in RELEASED or NODE_MODEL.fullmatch(name) is not None


def seen_of(path: pathlib.Path) -> Any:
    """What of a file is not of released sums: their shapes, and all else."""
    content = path.read_bytes()
    if path.suffix == ".html":
        return CLOCK.sub("", content.decode())
    if not released(path.name):
        return content
    if path.suffix == ".json":
        return shaped(json.loads(content))
    return content.count(b"\n") if path.suffix == ".csv" else len(content)


def shaped(value: Any) -> Any:
    """The same, with nothing in the place of what is released, or a digest."""
    if isinstance(value, dict):
        return {
            key: None if released(key) else shaped(each) for key, each in value.items()
        }
    if isinstance(value, list):
        return [shaped(each) for each in value]
    return None if isinstance(value, float) else value


@functools.cache
def usual(way: str) -> dict[str, dict[str, Any]]:
    """What the ordinary records of each way left; filled as they are asked for."""
    return {}


def test_there_are_a_thousand():
    assert len(PAIRS) >= 1000


@pytest.mark.sampled(600)
@pytest.mark.parametrize(("name", "number"), PAIRS)
def test_neighbours_leave_the_same(name, number, capfd, caplog):
    way, kept = WAYS[name], usual(name)
    if not kept:
        kept["all"] = left_by(way, None, capfd, caplog)
        assert kept["all"]["gave"][0] == 0 or kept["all"]["gave"][0][0].nodes  # trained
    other = left_by(way, number, capfd, caplog)
    assert kept["all"] == other


ALL = {"batch_size": RECORDS}  # so that the record is in each
KINDS = {
    "dp-dsgt": Way(how=ALL),  # unless another algorithm is named
    "dp-dsgd": Way(Own, how={"algorithm": "dp-dsgd", **ALL}),
    "dp-butterfly": Way(how={"algorithm": "dp-butterfly", **ALL}),
    "partpsp": Way(how={"algorithm": "partpsp", **ALL}),
    "dp-fedavg": Way(Own, users=True, how={"options": {"user_rate": 1.0}, **ALL}),
    "isolated": Way(Looks, Asked, how=ALL),
    "a transform": Way(how={"transform": failing, **ALL}),
}
# nan; what raises; what is of another length; a word; what leaves; what is large.
NOTED = (17, 3, 4, 5, 14, 33)
WHOLE = [(kind, number) for kind in KINDS for number in NOTED]


class Killed(BaseException):
    """In the middle of a training."""


@pytest.fixture
def pinned(monkeypatch):
    """Sums are made, and are then 0: with a key's noise, and a clock that counts.

    What differs now does so by a way that no noise covers.
    """
    for oracle, name in ((Summation, "clipped_sum"), (UpdateOracle, "_clipped_sum")):
        made = getattr(oracle, name)
        monkeypatch.setattr(
            oracle,
            name,
            lambda *given, made=made, **more: torch.zeros_like(made(*given, **more)),
        )
    write, ticks, kept = RunFolder.write, itertools.count(), []

    def written(folder, name, *content):
        write(folder, name, *content)
        if name == "checkpoint.pt":
            kept.append(content)
            if len(kept) == 1:
                raise Killed

    monkeypatch.setattr(RunFolder, "write", written)
    clock = types.SimpleNamespace(monotonic=lambda: 10.0 * next(ticks))
    monkeypatch.setattr("trainers.runs.run.time", clock)

    def again():
        nonlocal ticks
        ticks = itertools.count()
        kept.clear()

    return again


@functools.cache
def whole(kind: str) -> dict[str, Any]:
    """What ordinary records of a kind left, filled as they are asked for."""
    return {}


@pytest.mark.sampled(len(WHOLE))
@pytest.mark.parametrize(("kind", "number"), WHOLE)
def test_every_byte_but_of_sums_is_the_same(kind, number, capfd, caplog, pinned):
    """Of trainings that are killed after a round, and go on."""
    way, kept, found = KINDS[kind], whole(kind), []
    for one in (None, number):
        if one is None and kept:
            found.append(kept["all"])
            continue
        pinned()
        found.append(left_by(way, one, capfd, caplog, pathlib.Path.read_bytes, 2))
        kept.setdefault("all", found[0])
    first, other = found
    assert first["gave"][0] == "Killed()"
    assert first["gave"][1][1] in ("by construction", "by isolation")
    assert first.keys() == other.keys()
    assert [name for name in first if first[name] != other[name]] == []
