"""Contract of a run by the real clock: no ledger is short, and models are as good."""

import json
import statistics
import threading

import pytest
import torch

from privaudit.cli import main
from privaudit.files.folder import FolderError, RunFolder
from privaudit.ledger import Ledger
from privaudit.results import Claim
from trainers.algorithms import ALGORITHMS
from trainers.algorithms.asynchronous.real_time import Model
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.outcome import Curves
from trainers.runs.problem import Problem
from trainers.runs.real_clock import ClockAlone
from trainers.runs.run import Assignment, TrainingRun, train
from trainers.runs.training import training_from

SMALL = {
    "algorithm": "adp2sgd",
    "nodes": 4,
    "train": 400,
    "rounds": 120,
    "batch_size": 10,
    "model": "softmax",
    "clock": "real",
}


def run_of(noise_multiplier=4.0, epsilon=None, account="rdp", **values):
    training = training_from({**SMALL, **values}, where="a test")
    claim = None
    if epsilon is not None:
        claim = Claim(
            epsilon=epsilon,
            delta=1e-4,
            relation="replace-one",
            unit="record",
            source="a test",
        )
    return TrainingRun(
        training=training,
        claim=claim,
        noise_multiplier=noise_multiplier,
        account=account,
    )


def trained(run, path, **more):
    given = Assignment(run=run, problem=run.problem(), delta=1e-4, **more)
    return train(given, RunFolder.opened(path), ClockAlone())


def counts_in(path):
    ledger = Ledger.from_json((path / "ledger.json").read_text())
    return [sum(e.count for e in entries) for entries in ledger.nodes]


class TestLedgers:
    def test_each_worker_pays_for_its_own_steps(self, tmp_path):
        run = run_of(speed="one-slow:20", step_time=0.02, rounds=60)
        result = trained(run, tmp_path)
        ledger = Ledger.from_json((tmp_path / "ledger.json").read_text())
        counts = counts_in(tmp_path)
        assert sum(counts) == 60
        assert counts[0] < 0.6 * min(counts[1:])
        assert result.nodes[0].epsilon < result.nodes[1].epsilon
        assert "60 steps were made here" in result.remarks[-1]
        planned = Problem.of(run.training).ledger(4.0)  # of the most that each may make
        for entries, worst in zip(ledger.nodes, planned.nodes, strict=True):
            (entry,), (most,) = entries, worst
            assert entry.release == most.release
            assert entry.count <= most.count == 30
        curves = RunFolder(tmp_path).read("curves.json", Curves)
        assert curves.rounds[-1] == 60
        assert curves.epsilon[-1] == result.upper().epsilon
        assert curves.accuracy[-1] == result.accuracy
        # What was trained once is not trained again.
        assert trained(run, tmp_path) == result

    def test_it_ends_when_all_have_made_their_most(self, tmp_path):
        result = trained(run_of(most_steps=20), tmp_path)
        assert counts_in(tmp_path) == [20] * 4
        assert "80 steps were made here" in result.remarks[-1]

    def test_goes_on_without_a_release_made_twice(self, tmp_path):
        """Before the first checkpoint: what was released is paid, and not used."""

        def stop(now):
            if now.done >= 30:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            trained(run_of(), tmp_path, progress=stop)
        result = trained(run_of(), tmp_path)
        made = int(result.remarks[-1].split()[0])
        assert 30 <= 120 - made <= 34
        assert sum(counts_in(tmp_path)) == 120

    def test_a_budget_that_was_spent_for_nothing_is_warned_of(self, tmp_path, caplog):
        def stop(now):
            if now.done >= 29:  # when the last step is begun
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            trained(run_of(rounds=30), tmp_path, progress=stop)
        assert not caplog.records
        result = trained(run_of(rounds=30), tmp_path)
        assert result.remarks[-1].startswith("0 steps were made here")
        (warned,) = caplog.messages
        assert "no step that was made here is in the models" in warned

    def test_what_processes_began_does_not_go_on(self, tmp_path):
        run = run_of()
        with RunFolder.opened(tmp_path) as folder:
            folder.settle(run)
            folder.write("steps.bin", b"\0\0")
        with pytest.raises(FolderError, match="It cannot go on"):
            trained(run, tmp_path)


def test_noise_is_not_of_the_seed(tmp_path):
    """Of two runs of one seed, releases would differ by no noise at all."""
    models = []
    for turn in range(2):
        trained(run_of(rounds=1), tmp_path / str(turn), save_models=True)
        models.append((tmp_path / str(turn) / "model.safetensors").read_bytes())
    assert models[0] != models[1]


def test_steps_and_averages_come_in_turn():
    """A step that comes while the model is out with a partner waits for its return."""
    model = Model(torch.zeros(1))
    out, back = threading.Event(), threading.Event()

    def swap(own):
        out.set()
        back.wait()
        return own + 8

    averaging = threading.Thread(target=model.average, args=(swap,))
    averaging.start()
    out.wait()
    stepping = threading.Thread(target=model.step, args=(torch.ones(1),))
    stepping.start()
    stepping.join(0.05)
    assert stepping.is_alive()
    back.set()
    averaging.join()
    stepping.join()
    assert model.copy() == 5  # (0 + 8) / 2 + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clock": "virtual", "step_time": "0.1"}, "step_time is of the real clock"),
        ({"clock": "virtual", "most_steps": "3"}, "most_steps is of the real clock"),
        ({"pairing": "graph"}, "must be bipartite-ring"),
        ({"speed": "one-slow:10"}, "set step_time > 0"),
        ({"link_time": "1"}, "set step_time > 0"),
        ({"step_time": "-1"}, "step_time must be >= 0, got -1"),
        ({"most_steps": "0"}, "most_steps must be >= 1, got 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        run_of(**options)


def test_only_where_it_is_meant():
    with pytest.raises(ValueError, match="clock=virtual"):
        Problem.of(run_of().training).train(1.0, Streams(0))
    with pytest.raises(ValueError, match="sync has no use for clock"):
        run_of(algorithm="sync")
    assert (
        "not reproducible"
        in ALGORITHMS["adp2sgd"].remarks(run_of().training.setting())[0]
    )


@pytest.mark.full
def test_as_good_as_by_the_virtual_clock(tmp_path):
    """Equal settings, equal noise; five runs of each."""
    values = {
        "train": 1400,
        "rounds": 400,
        "batch_size": 32,
        "step_size": 0.3,
        "most_steps": 400,
    }
    found = {"real": [], "virtual": []}
    for seed in range(5):
        run = run_of(2.0, **values)
        result = trained(run, tmp_path / str(seed))
        found["real"].append(result.accuracy)
    values.pop("most_steps")
    problem = Problem.of(run_of(clock="virtual", **values).training)
    for seed in range(5):
        models, _ = problem.train(2.0, Streams(seed))
        right = accuracy(problem.gradients(), models, problem.test)
        found["virtual"].append(float(right.mean()))
    apart = statistics.mean(found["real"]) - statistics.mean(found["virtual"])
    spread = statistics.fmean(map(statistics.variance, found.values()))
    assert abs(apart) < 4 * (2 * spread / 5) ** 0.5 + 0.005, found
    assert statistics.mean(found["virtual"]) > 0.8  # and it is learnt


@pytest.mark.full
def test_on_the_command_line(tmp_path, capsys):
    command = [
        *("train", "adp2sgd", "--json", "--epsilon", "4", "--out", str(tmp_path)),
        *(
            f"--set={name}={value}"
            for name, value in SMALL.items()
            if name != "algorithm"
        ),
    ]
    assert main(command) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == "consistent"
    assert said["certified"] < 4  # planned for more steps than anybody made
    assert "not reproducible" in said["remarks"][0]
    assert "120 steps were made" in said["remarks"][-1]
