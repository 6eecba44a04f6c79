"""Models, data and losses of the user's own at the command line."""

import json
import math
import pathlib
import sys

import numpy as np
import pytest
import safetensors.torch

import privaudit as pa
from privaudit.cli import BAD_USAGE, FINE, main
from privaudit.task_settings import OPEN
from trainers.data.shares import shares_of
from trainers.runs.material import OwnData

SMALL = ("--set", "rounds=3", "--set", "batch_size=10", "--seed", "0", "--json")
MINE = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))

def shares():
    x = torch.randn(100, 5, generator=torch.Generator().manual_seed(0))
    return [(part, (part.sum(1) > 0).long()) for part in x.split(20)]

def public():
    return shares()[0]

def whole():
    x, y = zip(*shares())
    return {"shares": (torch.cat(x), torch.cat(y)), "test": shares()[0]}

def twice():
    return [shares()[0], shares()[0], shares()[1]]

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)

def images():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    nn.init.zeros_(net[1].weight)
    nn.init.zeros_(net[1].bias)
    return net

def dark(record):
    return 0 * record

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


def test_what_is_open_is_chosen_for_the_budget_as_in_python(here, capsys):
    """A setting that is given stays; parties and one process choose alike."""
    module = sys.modules[here]
    given = ("--model", f"{here}:net", "--data", f"{here}:shares", "--out", "one")
    main(["train", "dp-dsgt", *given, "--epsilon", "2", "--set", "rounds=3"])
    more = {"rounds": 3, "out": "two"}
    pa.train(module.net(), module.shares(), epsilon=2, **more)
    one, two = (
        json.loads(pathlib.Path(name, "config.json").read_text())["training"]
        for name in ("one", "two")
    )
    assert "batch_size" not in one
    for name in OPEN:
        assert one.get(name) == two.get(name)


def test_a_plan_by_public_data_is_that_of_python(here, capsys):
    module = sys.modules[here]
    given = ("--model", f"{here}:net", "--data", f"{here}:shares", "--set", "rounds=3")
    main(["plan", *given, "--like", f"{here}:public", "--json"])
    found = json.loads(capsys.readouterr().out)
    plans = [
        pa.plan(module.net(), module.shares(), 1, rounds=3, like=like)
        for like in (module.public(), None)
    ]
    steps = [plan.settings["step_size"] for plan in plans]
    assert found["settings"]["step_size"] == steps[0] != steps[1]


def test_one_data_set_is_dealt_and_measured(here, capsys):
    given = ("--model", "softmax", "--data", f"{here}:whole", "--set", "nodes=4")
    given = (*given, "--classes", "2")
    assert 0 <= trained(capsys, *given)["accuracy"] <= 1


def test_a_loss(here, capsys):
    given = ("--model", f"{here}:net", "--data", f"{here}:whole")
    found = trained(capsys, *given, "--loss", f"{here}:loss", "--set", "nodes=2")
    assert found["accuracy"] is None
    assert 0.3 < found["loss"] < 3


def test_a_model_of_ones_own_starts_as_it_is_on_data_that_we_know(here, capsys):
    given = ("--model", f"{here}:images", "--set", "step_size=1e-30", "--out", "out")
    trained(capsys, *given, "--set", "train=100", "--epsilon", "2")
    found = safetensors.torch.load_file("out/model.safetensors")
    assert found["node3.1.weight"].abs().max() < 1e-20


def test_a_transform(here, capsys, tmp_path):
    """Of pixels that it turns to 0, there is no gradient."""
    given = ("--model", f"{here}:images", "--set", "train=40", "--set", "rounds=2")
    given += ("--set", "nodes=2", "--set", "batch_size=2", "--seed", "0", "--json")
    norms = []
    for out, transform in (("plain", ()), ("dark", ("--transform", f"{here}:dark"))):
        assert main(["train", "dsgt", *given, *transform, "--out", out]) == FINE
        found = safetensors.torch.load_file(f"{out}/model.safetensors")
        norms.append(found["node0.1.weight"].norm())
        assert main(["verify", out]) == FINE
    assert norms[0] > norms[1] == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--data HERE:three --model HERE:net", "got int"),
        ("--data HERE:none --model HERE:net", "no function none"),
        ("--data data --model HERE:three", "torch.nn.Module or makes one, got int"),
        ("--data data --model HERE:net --loss HERE:nope", "no function nope"),
        ("--loss HERE:loss", "for data of your own"),
        ("--data . --model HERE:net", "must hold node-0.npz"),
        ("--data nowhere --model HERE:net", "or a folder with node-0.npz"),
        ("--model HERE:net", "cannot take inputs of shape (1, 8, 8)"),
        ("--model HERE:net", "the data were digits, and --data gives others"),
        ("--transform HERE:nope", "no function nope"),
        ("--transform flip", "module:function, got transform=flip"),
        ("--transform HERE:three", "the transform fails on a record"),
        ("--data HERE:shares --model tanh-mlp --set hidden=3", "NAME:hidden=3"),
        ("--data HERE:shares --model softmax", "by classes=2 or --classes 2"),
        ("--data HERE:shares --model softmax --classes 1", "classes must be >= 2"),
        ("--classes 2", "classes are of data of your own, and digits has 10"),
        ("--data HERE:shares --model HERE:net --set split=1", "deals one data set"),
    ],
)
def test_what_is_wrong_is_said(here, capsys, given, said):
    given = given.replace("HERE", here).split()
    assert main(["train", "dp-dsgt", *given, *SMALL]) == BAD_USAGE
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""


@pytest.mark.parametrize(
    ("file", "arrays", "said"),
    [
        ("node-01.npz", {}, "holds both node-01.npz and node-1.npz: remove one"),
        ("node-1.pt", {}, "holds both node-1.npz and node-1.pt: remove one"),
        ("test.pt", {}, "holds both test.npz and test.pt: remove one"),
        ("node-1.npz", {"weights": np.ones(9)}, "has 'weights', for which there is no"),
        ("node-1.npz", {"classes": math.nan}, "classes is one whole number"),
        ("node-1.npz", {"classes": 2.5}, "classes is one whole number >= 1, got"),
        ("node-1.npz", {"classes": [2]}, "classes is one whole number"),
        ("node-1.npz", {"inputs": 1.0}, "inputs have a row for each record, got a num"),
    ],
)
def test_files_of_nodes_that_are_none(here, tmp_path, file, arrays, said):
    whole = {"inputs": np.zeros((9, 5)), "targets": np.zeros(9), **arrays}
    np.savez(tmp_path / "data/test.npz", inputs=np.zeros((9, 5)), targets=np.zeros(9))
    with (tmp_path / "data" / file).open("wb") as target:
        np.savez(target, **whole)
    with pytest.raises(ValueError, match=said):
        shares_of(OwnData.load(f"folder:{tmp_path / 'data'}").shares)


def test_records_at_two_nodes(here, capsys):
    """Paid for with --overlap 2; without it they are told to whoever runs it alone."""
    given = ("--model", "softmax", "--classes", "2", "--data", f"{here}:twice", *SMALL)
    found, told = [], []
    for more in ((), ("--overlap", "2")):
        out = f"out{len(more)}"
        asked = [*given, *more, "--epsilon", "2", "--out", out]
        assert main(["train", "dp-dsgt", *asked]) == FINE
        printed = capsys.readouterr()
        found.append(json.loads(printed.out))
        told.append(printed.err)
        assert "lie at more than" not in printed.out
        assert main(["verify", out]) == FINE
        capsys.readouterr()
    assert "warning: 20 records lie at more than 1 node" in told[0]
    assert "lie at more than" not in told[1]
    assert [one["overlap"] for one in found] == [1, 2]
    noise = [one["noise_multiplier"] for one in found]
    assert 1.2 * noise[0] < noise[1] < 2 * noise[0]
    asked = ["epsilon", "--delta", "1e-5", "--ledger"]
    assert main([*asked, "out0/ledger.json", "--overlap", "2", "--json"]) == FINE
    once = json.loads(capsys.readouterr().out)
    assert main([*asked, "out2/ledger.json", "--json"]) == FINE
    twice = json.loads(capsys.readouterr().out)
    assert once["overlap"] == twice["overlap"] == 2
    assert once["lower"] > 2 >= twice["upper"]
