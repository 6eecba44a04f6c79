"""What larger networks and audits would take, from measured costs and counted work.

    OMP_NUM_THREADS=1 PYTHONPATH=. python reports/scale/make.py

Runs tests/benchmarks/bench_growth.py and bench_setup.py, half an hour on one core,
where results.json has not their rows; counts what a GPU would have to do, which needs
none; then writes README.md, time.svg and audits.svg. `--again` measures anew.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

HERE = pathlib.Path(__file__).parent
BENCHMARKS = HERE.parents[1] / "tests" / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # they are no package

import torch  # noqa: E402  # what follows needs the path
from counting import counted  # noqa: E402
from page import write  # noqa: E402

from trainers.algorithms import ALGORITHMS  # noqa: E402
from trainers.data import Dataset, PrivateData  # noqa: E402
from trainers.gradients.choose import differentiator  # noqa: E402
from trainers.models import cross_entropy  # noqa: E402
from trainers.network.engine import Network  # noqa: E402
from trainers.network.named_graphs import mixing  # noqa: E402
from trainers.numerics.randomness import Streams  # noqa: E402
from trainers.oracles.oracle import Mechanism, Oracle  # noqa: E402
from trainers.runs.problem import Problem  # noqa: E402

DIMS, LOT = 100_000_000, 64
WIDTH = 9603  # of dense layers with as many parameters


def measured(program: str, *arguments: str) -> dict[str, Any]:
    """The rows of a benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.json"
        command = [sys.executable, str(BENCHMARKS / program), *arguments]
        subprocess.run([*command, "--json", str(path)], check=True)
        return json.loads(path.read_text())


def dense(lot: int) -> dict[str, float]:
    """A round of DP-DSGD of one node with 100 million parameters, but for mixing."""
    module = torch.nn.Sequential(
        torch.nn.Linear(784, WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, 10),
    )
    dims = sum(each.numel() for each in module.parameters())
    data = Dataset(torch.zeros(600, 784), torch.zeros(600, dtype=torch.long))
    door = Oracle(
        PrivateData.of([data]).to("meta"),
        differentiator(module, cross_entropy, torch.zeros(784)),
        Mechanism(float(lot), 1.0, 1.0),
        Streams(0, device="meta"),
        memory_limit=64 << 30,
    )
    family = ALGORITHMS["dp-dsgd"]
    network = Network(family.make(lambda k: 0.1), mixing("complete", "uniform", 1))
    start = torch.zeros(1, 1, dims, device="meta")
    work = counted(lambda: network.run(start, door, 1))
    return {
        "dims": dims,
        "flops": work.flops,
        "bytes": work.bytes,
        "launches": work.launches,
    }


def audited(block: int) -> dict[str, float]:
    """A round of ``block`` runs of the audit."""
    from privaudit.auditing.experiments.presets import AUDITED
    from trainers.runs.training import Training

    problem = Problem.of(Training(algorithm="dp-dsgd", **AUDITED))
    fast = problem.gradients()  # is tried with numbers
    object.__setattr__(problem, "gradients", lambda: fast)
    streams = Streams(0, device="meta")
    work = counted(
        lambda: problem.train(3.5, streams, runs=block, memory_limit=8 << 30)
    )
    rounds = problem.training.rounds
    return {
        "block": block,
        "flops": work.flops / rounds,
        "bytes": work.bytes / rounds,
        "launches": work.launches / rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    path = HERE / "results.json"
    known = json.loads(path.read_text()) if path.exists() and not given.again else {}
    if "growth" not in known:
        known["growth"] = measured("bench_growth.py", "--repeats", "3")
    if "setup" not in known:
        known["setup"] = measured("bench_setup.py")
    known["dense"] = [dense(lot) for lot in (4, LOT)]
    known["audited"] = [audited(block) for block in (1000, 10_000)]
    path.write_text(json.dumps(known, indent=1) + "\n")
    write(HERE, known)


if __name__ == "__main__":
    main()
