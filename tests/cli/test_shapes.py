"""What commands print with --json is what the documentation's schema says, no less."""

import json
import pathlib
from typing import get_args

import jsonschema
import numpy as np
import pytest

from privaudit import PoissonSampling, Release, results
from privaudit.accounting.recorded import RecordedRun, write
from privaudit.cli import _COMMANDS, FINE, REFUTED, main
from privaudit.ledger import Ledger

SCHEMA = json.loads(
    (pathlib.Path(__file__).parents[2] / "docs/schema.json").read_text()
)
SMALL = ("train=24", "rounds=2", "model=softmax", "digits=0,1", "batch_size=4")
SET = [part for change in SMALL for part in ("--set", change)]
SWEEP = """
[all]
runs = 20
model = "softmax"
rounds = 2
[[audit]]
name = "none"
algorithm = "sgd"
[[audit]]
name = "failed"
algorithm = "dp-sgd"
batch_size = 1000
[[audit]]
name = "made"
algorithm = "dp-sgd"
epsilon = 3
"""


def validator(command):
    one = {**SCHEMA["properties"][command], "$defs": SCHEMA["$defs"]}
    return jsonschema.Draft202012Validator(one)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What each command printed, in one folder, one after the other."""
    folder = tmp_path_factory.mktemp("said")
    (folder / "sweep.toml").write_text(SWEEP)
    (folder / "plan.csv").write_text("noise_multiplier,sampling_rate\n1,.1\n2,.1\n")
    (folder / "own").mkdir()
    for node, size in enumerate((60, 40)):
        inputs, targets = np.ones((size, 5), np.float32), np.zeros(size, int)
        np.savez(folder / f"own/node-{node}.npz", inputs=inputs, targets=targets)
    release = Release.of_sum(
        norm_bound=2.0, noise_multiplier=1.0, sampling=PoissonSampling(0.01)
    )
    own = RecordedRun.of("a tool 3.1", "read from its history", 1e-5)
    write(folder / "recorded", own, Ledger.of(release, 10), {"its own": 1.9})
    printed = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line, (arguments, status) in RUNS.items():
            text = []
            patch.setattr("builtins.print", lambda *said, **_: text.extend(said))  # noqa: B023
            given = line.split()
            assert main([*given, *arguments, "--json"]) == status, (line, text)
            printed[line] = given[0], json.loads(text[-1])
    return printed


BUDGET = ["--epsilon", "1", "--delta", "1e-5"]
STEPS = ["--sampling-rate", "0.1", "--steps", "5"]
RUNS = {
    "noise": ([*BUDGET, *STEPS], FINE),
    "noise --schedule plan.csv": (BUDGET, FINE),
    "noise --growing-budget 2": ([*BUDGET, *STEPS], FINE),
    "epsilon --noise-multiplier 2 --delta 1e-5 --group 2": (STEPS, FINE),
    "epsilon --noise-multiplier 2 --delta 1e-5 --compare": (STEPS, FINE),
    "epsilon --noise-multiplier 1e-300 --delta 0.1": ([], FINE),
    "convert --epsilon 1 --delta 1e-5": ([], FINE),
    "plan --sizes 60,40 --parameters 12 --epsilon 4 --out a-plan.toml": (
        ["--set", "rounds=5"],
        FINE,
    ),
    "plan --sizes 60,40 --parameters 12 --budgets 4,1 --delta 0.1": ([], FINE),
    "tune a-plan.toml --data own --model softmax --classes 2 --law all --out tuned": (
        ["--grid", "step_size=1"],
        FINE,
    ),
    "train dp-dsgd --epsilon 4 --set nodes=3 --out one": (SET, FINE),
    "train dp-dsgd --budgets 4,2,1 --out each": ([*SET, "--set", "nodes=3"], FINE),
    "train sgd --out two": (SET, FINE),
    "federation init dp-dsgd --site a --site b --epsilon 4 --out joint": ([], FINE),
    "views dp-dsgd --noise-multiplier 2 --delta 1e-5": (
        [*SET, "--set", "nodes=3"],
        FINE,
    ),
    "consensus --nodes 4 --dims 2 --rounds 2": ([], FINE),
    "recipes": ([], FINE),
    "recipes copy bayrooti-mnist-dsgt": ([], FINE),
    "audit dp-sgd --runs 40 --out audits": (SET, FINE),
    "audit dsgd --stop-when-refuted --runs 400 --set nodes=1 --out stopped": (
        SET,
        REFUTED,
    ),
    "audit-program numpy:copysign --runs 20 --out program": ([], REFUTED),
    "audit-program numpy:copysign --runs 20 --out other": (
        ["--noise-multiplier", "2", *STEPS],
        REFUTED,
    ),
    "sweep sweep.toml --out sweep": ([], REFUTED),
    "claims 002 --quick": ([], REFUTED),
    "cite 004": ([], FINE),
    "bound program/scores.npz --delta 0.01": ([], FINE),
    "bound program/scores.npz --delta 0.01 --epsilon 1 --method betting": ([], REFUTED),
    "probe operator:add": ([], REFUTED),
    "selfcheck --repeats 2 --runs 100 --estimator clopper-pearson": ([], FINE),
    "show one audits program sweep recorded": ([], REFUTED),
    "verify audits": ([], FINE),
    "report one": ([], FINE),
    "site program --out site": ([], FINE),
}


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "name", ["Independence", "Relation", "Sampling", "Standing", "Status", "Unit"]
)
def test_words_are_those_of_results(name):
    assert SCHEMA["$defs"][name]["enum"] == list(get_args(getattr(results, name)))


def test_every_command_has_one_and_is_run():
    commands = set(SCHEMA["properties"])
    assert commands == set(_COMMANDS) - {"completion"}
    assert {line.split()[0] for line in RUNS} == commands - {"demo", "join"}


@pytest.mark.parametrize("line", RUNS)
def test_what_is_printed_is_of_it(said, line):
    command, value = said[line]
    check = validator(command)
    assert not list(check.iter_errors(value))
    assert value["schema"] == 1
    assert not check.is_valid({key: value[key] for key in value if key != "schema"})
    assert not check.is_valid({**value, "more": 1})
