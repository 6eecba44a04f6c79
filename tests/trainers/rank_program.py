"""What the ranks of test_network.py do: train, and tell the test what came out."""

import os
import pathlib
import sys

import torch
import torch.distributed as dist

from privaudit.__main__ import leave
from tests.tiers import size
from trainers.network.over_ranks import RankNetwork
from trainers.network.ranks import gathered, joined
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Observers, Problem
from trainers.runs.training import Training, training_from

_PSP = {"graph": "d-out:2", "model": "tanh-mlp", "sync_interval": 5}
_TURNS = {"model": "one-vs-all", "hidden": None, "gain": 1e-3, "step_size": 0.5}
_TURNS["batch_size"] = 3  # with ten classes no whole vectors, whoever has which nodes
CASES = {
    "dp-dsgd": {"graph": "ring"},
    "dsgt": {"graph": "fiedler:0.39", "weights": "metropolis"},
    "dp-dsgt": {"graph": "exponential"},
    "dyn-d2p": {"graph": "star", "weights": "column-stochastic"},
    "partpsp": {**_PSP, "clip_norm": 1e-4, "sync_interval": 1},
    "partpsp-plain": _PSP,
    "sgpdp": {**_PSP, "clip_norm": 1e-4, "sensitivity": "certified"},
    "pedfl": {**_PSP, "clip_norm": 1e-4, "sensitivity": "paper"},
    "deep-q": {**_TURNS, "policy": "deep-q"},
    "deep-q-noiseless": {**_TURNS, "policy": "coin"},
    "dp-dinno": {"graph": "star", "inner_steps": 2, "rho": 0.01, "optimiser": "sgd"},
}
TRAINED = size(list(CASES), list(CASES)[:1])


def rounds(name: str) -> int:
    """As many as a case has."""
    return size(20 if CASES[name].get("model") else 100, 20)


def training(name, **more) -> Training:
    values = {
        "algorithm": name,
        "nodes": 6,
        "train": 300,
        "rounds": rounds(name),
        "batch_size": 16,
        "hidden": 8,
        "step_size": 0.1,
        **CASES[name],
        **more,
    }
    values = {key: value for key, value in values.items() if value is not None}
    return training_from(values, where="the test")


def message_bytes(name: str, dims: int) -> list[int]:
    """Of what a node sends in a round: models, in doubles where they are DPPS's."""
    if "psp" in name or "pdp" in name or "pedfl" in name:
        shared = 64 * 8 + 8 if "part" in name else dims
        says = [8] if name in BROADCAST else []  # S_i
        return [8 * shared, 8, *says]
    own = [4 * dims]
    return own + own if "dsgt" in name else [*own, 8] if "d2p" in name else own


BROADCAST = ("sgpdp", "pedfl")  # by their sensitivities above


def noise(name: str) -> float:
    """Its multiplier: little where noise that makes nodes differ asks for more."""
    return 1e-3 if name in BROADCAST else 1.0


def traffic(network: RankNetwork, rounds: int, rows: list[int]):
    """Messages and bytes that the graph has leave this rank, counted edge by edge.

    Where norms are broadcast, two numbers of each node go to every other rank.
    """
    ranks = network.ranks
    pairs = 0
    norms = 0
    if getattr(network.algorithm, "broadcasts", False):
        norms = rounds * len(ranks.held) * (ranks.size - 1)
    for k in range(rounds):
        matrix = network.mixing.at(k) > 0
        for node in ranks.held:
            hearing = {ranks.holder(i) for i in range(ranks.nodes) if matrix[i, node]}
            pairs += len(hearing - {ranks.rank})
    return pairs * len(rows) + norms, pairs * sum(rows) + norms * 16


def main(out: pathlib.Path) -> None:
    torch.set_num_threads(1)
    with joined() as where:
        for name in TRAINED:
            problem = Problem.of(training(name), ranks=where)
            assert len(problem.shares) == len(problem.ranks.held)
            models, ledger = problem.train(noise(name), Streams(3), runs=2)
            network = problem.carrier
            counted = (network.traffic.messages, network.traffic.bytes // 2)  # 2 runs
            dims = models.shape[2]
            expected = traffic(network, rounds(name), message_bytes(name, dims))
            if "deep-q" in name:  # each passes the model on, the last one to all others
                turns, last = 50 // _TURNS["batch_size"], where[1] - 1
                sent = turns * (last if where[0] == last else 1)
                own = (
                    len(network.ranks.held) * last
                )  # for how many turns it has batches
                expected = sent + own, sent * 4 * dims + own * 4
            assert counted == expected, (name, counted, expected)
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
            problem = Problem.of(training("dp-dsgd", rounds=100_000), ranks=where)
            problem.train(1.0, Streams(3), observers=Observers(after_round=dies))
    except RankLostError as error:
        (out / f"lost-{os.environ['RANK']}.txt").write_text(str(error))
        os._exit(3)


if __name__ == "__main__":
    {"train": main, "fail": fail}[sys.argv[1]](pathlib.Path(sys.argv[2]))
    leave(0)
