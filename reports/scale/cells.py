"""Costs of larger networks and audits, from measured costs and counted work.

Runs tests/benchmarks/bench_growth.py and bench_setup.py, half an hour on one core;
counts what a GPU would have to do, which needs none.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import torch

from privaudit.auditing.experiments.presets import AUDITED
from tests.benchmarks.counting import counted
from trainers.algorithms import ALGORITHMS
from trainers.data import Dataset, PrivateData
from trainers.gradients.choose import differentiator
from trainers.models import cross_entropy
from trainers.network.engine import Network
from trainers.network.named_graphs import mixing
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle
from trainers.runs.problem import Problem
from trainers.runs.training import Training

BENCHMARKS = pathlib.Path(__file__).parents[2] / "tests" / "benchmarks"


def measured(program: str, arguments: list[str]) -> dict[str, Any]:
    """The rows of a benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.json"
        command = [sys.executable, str(BENCHMARKS / program), *arguments]
        subprocess.run([*command, "--json", str(path)], check=True)
        return json.loads(path.read_text())


def dense(batch: int, width: int) -> dict[str, float]:
    """A round of DP-DSGD of one node and dense layers, but for mixing."""
    module = torch.nn.Sequential(
        torch.nn.Linear(784, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, 10),
    )
    dims = sum(each.numel() for each in module.parameters())
    data = Dataset(torch.zeros(600, 784), torch.zeros(600, dtype=torch.long))
    oracle = Oracle(
        PrivateData.of([data]).to("meta"),
        differentiator(module, cross_entropy, torch.zeros(784)),
        Mechanism(float(batch), 1.0, 1.0),
        Streams(0, device="meta"),
        memory_limit=64 << 30,
    )
    family = ALGORITHMS["dp-dsgd"]
    network = Network(family.make(lambda k: 0.1), mixing("complete", "uniform", 1))
    start = torch.zeros(1, 1, dims, device="meta")
    work = counted(lambda: network.run(start, oracle, 1))
    return {
        "dims": dims,
        "flops": work.flops,
        "bytes": work.bytes,
        "launches": work.launches,
    }


def audited(block: int, rounds: int) -> dict[str, float]:
    """A round of ``block`` runs of the audit."""
    problem = Problem.of(Training(algorithm="dp-dsgd", **AUDITED | {"rounds": rounds}))
    fast = problem.gradients()  # is tried with numbers
    object.__setattr__(problem, "gradients", lambda: fast)
    streams = Streams(0, device="meta")
    work = counted(
        lambda: problem.train(3.5, streams, runs=block, memory_limit=8 << 30)
    )
    return {
        "block": block,
        "flops": work.flops / rounds,
        "bytes": work.bytes / rounds,
        "launches": work.launches / rounds,
    }
