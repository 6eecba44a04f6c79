"""Contract of trainers.network.over_ranks: ranks make what one process makes."""

import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from privaudit.files.folder import FolderError, RunFolder
from privaudit.ledger import Ledger
from tests.trainers.rank_program import TRAINED, noise, training
from trainers.network.named_graphs import mixing
from trainers.network.over_ranks import RankInbox, Routes
from trainers.network.ranks import Ranks
from trainers.numerics.randomness import Streams
from trainers.runs.over_ranks import _keep_ids
from trainers.runs.problem import Problem

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def torchrun(ranks, *arguments, timeout=600, **more):
    return subprocess.run(
        [*TORCHRUN, "--nproc-per-node", str(ranks), "-m", *map(str, arguments)],
        env=ENVIRONMENT,
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
        **more,
    )


@pytest.mark.full
@pytest.mark.sized
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_models_and_ledgers_of_one_process(tmp_path, ranks):
    """Same seeds: models to the last bit; bytes are the graph's."""
    done = torchrun(ranks, "tests.trainers.rank_program", "train", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in TRAINED:
        parts = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        problem = Problem.of(training(name))
        whole, ledger = problem.train(noise(name), Streams(3), runs=2)
        models = torch.cat([models for models, _ in parts], 1)
        assert models.equal(whole), name
        joined = Ledger.joined(Ledger.from_json(text) for _, text in parts)
        assert joined == ledger


@pytest.mark.full
@pytest.mark.parametrize(("graph", "rounds"), [("butterfly", 13), ("halving", 26)])
def test_a_butterfly_has_the_bits_of_one_process(tmp_path, graph, rounds):
    command = ["privaudit", "train", "dp-butterfly", "--observer", "any-node"]
    for setting in ("nodes=4", "train=300", "batch_size=10"):
        command += ["--set", setting]
    command += ["--set", f"graph={graph}", "--set", f"rounds={rounds}"]
    command += ["--epsilon", "1", "--seed", "0", "--out"]
    done = torchrun(2, *command, tmp_path / "ranks")
    assert done.returncode == 0, done.stderr[-3000:]
    alone = [sys.executable, "-m", *command, str(tmp_path / "alone")]
    subprocess.run(alone, env=ENVIRONMENT, check=True, capture_output=True)
    for name in ("model.safetensors", "ledger.json"):
        one, other = (
            (tmp_path / run / name).read_bytes() for run in ("ranks", "alone")
        )
        assert one == other


@pytest.mark.full
def test_a_rank_that_ends_ends_the_others(tmp_path):
    done = torchrun(2, "tests.trainers.rank_program", "fail", tmp_path)
    assert done.returncode != 0
    lost = (tmp_path / "lost-0.txt").read_text()
    # Whichever comes first: a broken connection, or torchrun's signal.
    assert re.match("lost contact with another rank|torchrun ends this rank", lost)
    assert "goes on from the last checkpoint" in lost


SETTINGS = [
    *("train", "dp-dsgt", "--noise-multiplier", "3", "--json"),
    *("--set", "nodes=4", "--set", "rounds=60", "--set", "train=200"),
    *("--set", "batch_size=16", "--set", "hidden=8", "--set", "graph=ring"),
    *("--seed", "0", "--epsilon", "100"),
]


@pytest.mark.full
def test_goes_on_with_another_number_of_ranks(tmp_path):
    """Killed on two ranks, finished on three and alone; as the undisturbed one."""
    command = ["privaudit", *SETTINGS, "--out"]
    child = subprocess.Popen(
        [*TORCHRUN, "--nproc-per-node", "2", "-m", *command, str(tmp_path / "parts")],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    for _ in range(600):
        if (tmp_path / "parts" / "checkpoint.pt").exists():
            break
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert not (tmp_path / "parts" / "result.json").exists()
    done = torchrun(3, *command, tmp_path / "parts")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("\n") == 1  # one object, of rank 0
    alone = subprocess.run(
        [sys.executable, "-m", *command, str(tmp_path / "whole")],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert alone.returncode == 0, alone.stderr
    one, other = (
        (tmp_path / run / "ledger.json").read_bytes() for run in ("parts", "whole")
    )
    assert one == other
    one, other = (
        (tmp_path / run / "rounds.csv").read_text().splitlines()
        for run in ("parts", "whole")
    )
    assert len(one) == len(other) == 11
    for left, right in zip(one[1:], other[1:], strict=True):
        assert list(map(float, left.split(","))) == pytest.approx(
            list(map(float, right.split(","))), rel=1e-4
        )


@pytest.mark.full
def test_a_key_that_a_rank_lost_is_missed(tmp_path):
    """Before any checkpoint, too; and each rank has a key and a journal of its own."""
    at = SETTINGS.index("--seed")
    command = ["privaudit", *SETTINGS[:at], *SETTINGS[at + 2 :], "--out"]
    command[command.index("rounds=60")] = "rounds=6000"
    path = tmp_path / "run"
    child = subprocess.Popen(
        [*TORCHRUN, "--nproc-per-node", "2", "-m", *command, str(path)],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    journals = [path / f"key-{rank}.releases" for rank in (0, 1)]
    for _ in range(6000):
        if all(file.exists() and file.stat().st_size > 64 for file in journals):
            break
        time.sleep(0.01)
    workers = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text()
    for one in (child.pid, *map(int, workers.split())):  # of sessions of their own
        os.kill(one, signal.SIGKILL)
    child.wait()
    assert not (path / "checkpoint.pt").exists()
    keys = [(path / f"key-{rank}").read_bytes() for rank in (0, 1)]
    assert keys[0] != keys[1]
    assert (path / "key-id").read_bytes() == keys[0][32:] + keys[1][32:]
    for file in (path / "key-1", *journals):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (path / "key-1").unlink()
    again = torchrun(2, *command, path)
    assert again.returncode != 0
    assert "not its key (key-1)" in again.stderr


def test_ranks_agree_on_whose_keys_they_have(tmp_path):
    folder, ids = RunFolder(tmp_path), [b"a" * 16, b"b" * 16]
    _keep_ids(folder, ids)
    _keep_ids(folder, ids)
    for other in ([ids[0], b"c" * 16], ids[::-1], [*ids, b"d" * 16]):
        with pytest.raises(FolderError, match="not the key of rank"):
            _keep_ids(folder, other)


@pytest.mark.full
def test_audits_over_ranks_have_the_same_scores(tmp_path):
    """Begun on two ranks, stopped, finished on three: bits of one process."""
    command = [
        *(
            "privaudit",
            "audit",
            "dp-dsgd",
            "--noise-multiplier",
            "3",
            "--delta",
            "1e-2",
        ),
        *("--json", "--set", "rounds=3", "--set", "hidden=4", "--runs", "320", "--out"),
    ]
    child = subprocess.Popen(
        [*TORCHRUN, "--nproc-per-node", "2", "-m", *command, str(tmp_path / "parts")],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    for _ in range(1200):
        if (tmp_path / "parts" / "scores.npz").exists():
            break
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    done = torchrun(3, *command, tmp_path / "parts")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("\n") == 1
    alone = subprocess.run(
        [sys.executable, "-m", *command, str(tmp_path / "whole")],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert alone.returncode == 0, alone.stderr
    with (
        np.load(tmp_path / "parts" / "scores.npz") as one,
        np.load(tmp_path / "whole" / "scores.npz") as other,
    ):
        for name in ("member", "score", "accuracy", "block"):
            np.testing.assert_array_equal(one[name], other[name])
    file = tmp_path / "parts" / "result.json"
    file.write_text(file.read_text().replace('"seconds"', '"seconds" '))
    done = torchrun(2, *command, tmp_path / "parts")
    assert f"{file}: its SHA-256 is" in done.stdout
    assert "verdict" not in done.stdout


class TestPlans:
    @pytest.mark.parametrize("graph", ["ring", "complete", "star", "directed-ring"])
    @pytest.mark.parametrize("size", [1, 2, 3, 7])
    def test_what_one_sends_another_receives(self, graph, size):
        heard = mixing(graph, "uniform", 7).heard(0)
        plans = [Routes.of(heard, Ranks(rank, size, 7)) for rank in range(size)]
        for sender, plan in enumerate(plans):
            for receiver, nodes in plan.sends.items():
                assert plans[receiver].receives[sender] == nodes
        for rank, plan in enumerate(plans):
            held = Ranks(rank, size, 7).held
            needed = {other for node in held for other, _ in heard[node]} | {*held}
            assert [*plan.places] == sorted(needed)

    @pytest.mark.parametrize("size", range(1, 8))
    def test_every_node_is_held_once(self, size):
        held = [node for rank in range(size) for node in Ranks(rank, size, 7).held]
        assert held == list(range(7))

    def test_more_ranks_than_nodes(self):
        with pytest.raises(ValueError, match="3 ranks are more than the 2 nodes"):
            Ranks(0, 3, 2)


def test_in_the_place_of_one_that_is_gone_a_node_hears_itself():
    """What remains of a symmetric matrix is symmetric and doubly stochastic."""
    on, nodes = mixing("ring", "metropolis", 5), range(4)
    sent = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(0)).double()
    inbox = RankInbox(
        {"x": sent}, on, 0, nodes, dict(enumerate(range(5))), lambda: frozenset({4})
    )
    whole = torch.tensor(on.matrices[0].copy())
    rest = whole[:4, :4] + torch.diag(whole[:4, 4])
    torch.testing.assert_close(inbox["x"][0], rest @ sent[0, :4])
    torch.testing.assert_close(rest, rest.T)
    torch.testing.assert_close(rest.sum(0), torch.ones(4).double())
    heard = (whole != 0).double()
    heard = heard[:4, :4] + torch.diag(heard[:4, 4])
    torch.testing.assert_close(inbox.neighbour_sum("x")[0], heard @ sent[0, :4])
    assert inbox.degree.flatten().tolist() == [3, 3, 3, 3]
