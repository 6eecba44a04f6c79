"""Models, data and losses of the user's own at the command line."""

import json
import sys

import numpy as np
import pytest

from privaudit.cli import BAD_USAGE, FINE, main

SMALL = ("--set", "rounds=3", "--set", "batch_size=10", "--seed", "0", "--json")
MINE = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))

def shares():
    x = torch.randn(100, 5, generator=torch.Generator().manual_seed(0))
    return [(part, (part.sum(1) > 0).long()) for part in x.split(20)]

def whole():
    x, y = zip(*shares())
    return {"shares": (torch.cat(x), torch.cat(y)), "test": shares()[0]}

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)

def three():
    return 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a module of the user's, and its data as files."""
    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "data").mkdir()
    module = __import__(name)
    for node, (inputs, targets) in enumerate(module.shares()):
        arrays = {"inputs": inputs.numpy(), "targets": targets.numpy()}
        np.savez(tmp_path / "data" / f"node-{node}.npz", **arrays)
    return name


def trained(capsys, *given):
    status = main(["train", "dp-dsgt", *given, *SMALL])
    out, err = capsys.readouterr()
    assert status == FINE, err
    return json.loads(out)


def test_a_module_and_a_folder_say_the_same(here, capsys, tmp_path):
    model = ("--model", f"{here}:net", "--epsilon", "2")
    one = trained(capsys, *model, "--data", f"{here}:shares", "--out", "one")
    two = trained(capsys, *model, "--data", "data", "--out", "two")
    assert one["certified"] == two["certified"] <= 2
    first, second = (
        (tmp_path / name / "ledger.json").read_bytes() for name in ("one", "two")
    )
    assert first == second
    for name in ("one", "two"):
        assert main(["verify", name]) == FINE
        assert main(["report", name]) == FINE


def test_one_data_set_is_dealt_and_measured(here, capsys):
    given = ("--model", "softmax", "--data", f"{here}:whole", "--set", "nodes=4")
    assert 0 <= trained(capsys, *given)["accuracy"] <= 1


def test_a_loss(here, capsys):
    given = ("--model", f"{here}:net", "--data", f"{here}:whole")
    found = trained(capsys, *given, "--loss", f"{here}:loss", "--set", "nodes=2")
    assert found["accuracy"] is None
    assert 0.3 < found["loss"] < 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--data HERE:three --model HERE:net", "got int"),
        ("--data HERE:none --model HERE:net", "no function none"),
        ("--data data --model HERE:three", "torch.nn.Module or makes one, got int"),
        ("--data data --model HERE:net --loss HERE:nope", "no function nope"),
        ("--loss HERE:loss", "for data of your own"),
        ("--data . --model HERE:net", "must hold node-0.npz"),
    ],
)
def test_what_is_wrong_is_said(here, capsys, given, said):
    given = given.replace("HERE", here).split()
    assert main(["train", "dp-dsgt", *given, *SMALL]) == BAD_USAGE
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""
