"""What the ranks of test_network.py do: train, and tell the test what came out."""

import os
import pathlib
import sys

import torch
import torch.distributed as dist

from trainers.network.over_ranks import RankNetwork
from trainers.network.ranks import gathered, joined, leave
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Observers, Problem
from trainers.runs.training import Training, training_from

CASES = {
    "dp-dsgd": {"graph": "ring"},
    "dsgt": {"graph": "fiedler:0.39", "weights": "metropolis"},
    "dp-dsgt": {"graph": "exponential"},
    "dyn-d2p": {"graph": "star", "weights": "column-stochastic"},
    "dp-dinno": {"graph": "star", "inner_steps": 2, "rho": 0.01, "optimiser": "sgd"},
}


def training(name, rounds=100) -> Training:
    values = {
        "algorithm": name,
        "nodes": 6,
        "train": 300,
        "rounds": rounds,
        "batch_size": 16,
        "hidden": 8,
        "step_size": 0.1,
        **CASES[name],
    }
    return training_from(values, where="the test")


def traffic(network: RankNetwork, rounds: int, rows: list[int]):
    """Messages and bytes that the graph has leave this rank, counted edge by edge."""
    ranks = network.ranks
    pairs = 0
    for k in range(rounds):
        matrix = network.mixing.at(k) > 0
        for node in ranks.held:
            hearing = {ranks.holder(i) for i in range(ranks.nodes) if matrix[i, node]}
            pairs += len(hearing - {ranks.rank})
    return pairs * len(rows), pairs * sum(rows)


def main(out: pathlib.Path) -> None:
    torch.set_num_threads(1)
    with joined() as where:
        for name in CASES:
            problem = Problem.of(training(name), ranks=where)
            assert len(problem.shares) == len(problem.ranks.held)
            models, ledger = problem.train(1.0, Streams(3), runs=2)
            network = problem.network
            rows = [models.shape[2] * 4]  # bytes, a message
            rows += rows if "dsgt" in name else [8] if "d2p" in name else []
            counted = (network.traffic.messages, network.traffic.bytes // 2)  # 2 runs
            assert counted == traffic(network, 100, rows), counted
            parts = gathered((models, ledger.to_json()))
            if parts is not None:
                torch.save(parts, out / f"{name}.pt")
    assert not left_over(), left_over()


def left_over() -> list[str]:
    """Gloo's threads in this process, where the system names them.

    Those that outlive the group may end the process with SIGABRT when it exits.
    """
    names = [
        path.read_text() for path in pathlib.Path("/proc/self").glob("task/*/comm")
    ]
    return [name for name in names if "gloo" in name]


def fail(out: pathlib.Path) -> None:
    """Rank 1 ends in round 5."""
    from trainers.network.ranks import RankLostError

    def dies(done, models, ledger):
        if done == 5 and dist.get_rank() == 1:
            os._exit(9)

    try:
        with joined(timeout=20) as where:
            problem = Problem.of(training("dp-dsgd", 100_000), ranks=where)
            problem.train(1.0, Streams(3), observers=Observers(after_round=dies))
    except RankLostError as error:
        (out / f"lost-{os.environ['RANK']}.txt").write_text(str(error))
        os._exit(3)


if __name__ == "__main__":
    {"train": main, "fail": fail}[sys.argv[1]](pathlib.Path(sys.argv[2]))
    leave(0)
