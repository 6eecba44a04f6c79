"""Parties that are killed, by torch.distributed: bits, and no release twice."""

import contextlib
import json
import multiprocessing
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.torch
import torch

pytestmark = pytest.mark.full

MINE = """
import torch

def net():
    return torch.nn.Linear(6, 2)
"""
PATIENCE = 300


def write_data(folder, nodes):
    """A file a node, each with a mark in its numbers; and what says what one is."""
    (folder / "mine.py").write_text(MINE)
    data = folder / "data"
    data.mkdir()
    for node in range(nodes):
        generator = np.random.default_rng(node)
        inputs = generator.normal(size=(50 + 7 * node, 6)).astype(np.float32)
        targets = (inputs.sum(1) > 0).astype(np.int64)
        np.savez(data / f"node-{node}.npz", inputs=inputs, targets=targets)
    return data


def command(folder, out, rounds=40, *, algorithm="dp-dsgt", **more):
    settings = {"rounds": rounds, "batch_size": 10, "graph": "ring", **more}
    return [
        *(sys.executable, "-m", "privaudit", "train", algorithm),
        *("--data", str(folder / "data"), "--model", "mine:net"),
        *("--noise-multiplier", "1.5", "--epsilon", "1000"),
        *(f"--set={name}={value}" for name, value in settings.items()),
        *("--out", str(out)),
    ]


class Forked:
    """A party's process, forked from one that has imported all."""

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainers.runs.parties", "privaudit.report.verify"])

    def __init__(self, number, size, port, arguments, folder):
        self._said = folder / f"said-{number}"
        where = {"RANK": number, "WORLD_SIZE": size, "MASTER_PORT": port}
        self._process = self.context.Process(
            target=_party, args=(where, arguments[3:], folder, self._said)
        )
        self._process.start()

    def send_signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def poll(self):
        return self._process.exitcode

    def communicate(self, timeout):
        self._process.join(timeout)
        assert self._process.exitcode is not None, "it still runs"
        return None, self._said.read_text()

    @property
    def returncode(self):
        return self._process.exitcode


def _party(where, arguments, folder, said):
    with said.open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.chdir(folder)
    torch.set_num_threads(1)
    os.environ.update({name: str(value) for name, value in where.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "LOCAL_RANK": "0"})
    from privaudit.cli import main

    os._exit(main([*arguments, "--parties", "--patience", "30"]))


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def ended(processes):
    """(status, what was said on standard error) of each."""
    found = []
    for process in processes:
        _, said = process.communicate(timeout=PATIENCE)
        found.append((process.returncode, said))
    return found


def models(path):
    tensors = safetensors.torch.load_file(path / "model.safetensors")
    return {name: x for name, x in tensors.items() if name.startswith("node")}


def of_all(out, parties):
    return {
        name: tensor
        for party in range(parties)
        for name, tensor in models(out / f"party-{party}").items()
    }


def same(one, other):
    return one.keys() == other.keys() and all(
        one[name].equal(other[name]) for name in one
    )


def at_work(out, party):
    """Whether it has come, met the others and taken its folder."""
    lock = out / f"party-{party}" / ".lock"
    held = pathlib.Path("/proc/locks").read_text().split()
    return lock.exists() and any(
        word.endswith(f":{lock.stat().st_ino}") for word in held
    )


def written(out, party):
    """When its last checkpoint was."""
    file = out / f"party-{party}" / "checkpoint.pt"
    with contextlib.suppress(FileNotFoundError):
        return file.stat().st_mtime_ns


def killed(arguments, folder, size, look=lambda: None):
    """Train to the end; one of ``size`` is killed at a random moment, ten times.

    Who lives names it. ``look`` is called after each death.
    """
    out, chance = folder / "out", random.Random(1)
    deaths = 0
    for _ in range(200):
        port = free_port()
        parties = [Forked(n, size, port, arguments, folder) for n in range(size)]
        if deaths < 10:
            victim = chance.randrange(size)
            early = chance.random() < 0.1
            while not early and all(one.poll() is None for one in parties):
                if all(at_work(out, party) for party in range(size)):
                    break
                time.sleep(0.01)
            for _ in range(0 if early else chance.randrange(3)):
                before = written(out, victim)
                while written(out, victim) == before and parties[victim].poll() is None:
                    time.sleep(0.01)
            time.sleep(chance.uniform(0.0, 1.0))
            if parties[victim].poll() is None:
                parties[victim].send_signal(signal.SIGKILL)
                deaths += 1
                print("killed", deaths, victim, flush=True)
        found = ended(parties)
        look()
        if all(status == 0 for status, _ in found):
            break
        for number, (status, said) in enumerate(found):
            assert status in (0, 3, -signal.SIGKILL), said
            if status == 3 and -signal.SIGKILL in [s for s, _ in found]:
                last = said.splitlines()[-1]
                assert last.startswith("privaudit: part"), (number, said)
                assert f"party {victim}" in last or "connected" in last, (number, said)
    assert deaths >= 5  # the rest came too late
    print(f"killed {deaths} times")


def test_killed_at_random_moments(tmp_path):
    """Then all go on: the same bits, no release twice."""
    write_data(tmp_path, 4)
    arguments = [*command(tmp_path, tmp_path / "out", 1000), "--seed", "5"]
    killed(arguments, tmp_path, 4)
    alone = [*command(tmp_path, tmp_path / "alone", 1000), "--seed", "5"]
    plain = {**os.environ, "PYTHONPATH": f"{os.getcwd()}:{tmp_path}"}
    subprocess.run(alone, cwd=tmp_path, env=plain, check=True, capture_output=True)
    assert same(of_all(tmp_path / "out", 4), models(tmp_path / "alone"))
    ledger = json.loads((tmp_path / "alone" / "ledger.json").read_text())
    for party in range(4):
        own = json.loads((tmp_path / f"out/party-{party}/ledger.json").read_text())
        assert own["nodes"] == ledger["nodes"][party : party + 1]


def test_killed_by_the_real_clock(tmp_path):
    """No release twice; ledgers have all that journals, which are kept here, have."""
    write_data(tmp_path, 4)
    steps, step_time = 4000, 0.004
    arguments = command(
        *(tmp_path, tmp_path / "out", steps),
        **{"algorithm": "adp2sgd", "clock": "real", "step_time": step_time},
    )
    kept = [tmp_path / f"journal-{party}" for party in range(4)]

    def look():
        for party, link in enumerate(kept):
            file = tmp_path / f"out/party-{party}/key.releases"
            if file.exists() and not link.exists():
                os.link(file, link)

    killed(arguments, tmp_path, 4, look)
    counts = []
    for party, link in enumerate(kept):
        made = [*struct.iter_unpack("<IQB51x", link.read_bytes())][1:]
        assert len({entry[:2] for entry in made}) == len(made)
        ledger = json.loads((tmp_path / f"out/party-{party}/ledger.json").read_text())
        (node,) = ledger["nodes"]
        counts.append(sum(entry["count"] for entry in node))
        assert counts[-1] == len(made)
    # A step that was granted to who died before it released anything is given again.
    assert sum(counts) == steps
    folders = [str(tmp_path / f"out/party-{party}") for party in range(4)]
    words = [sys.executable, "-m", "privaudit", "join", *folders]
    subprocess.run(words, check=True, capture_output=True)
