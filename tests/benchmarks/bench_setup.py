"""What is done once, or once a block, and grows: with nodes, and with runs of an audit.

Run as ``python tests/benchmarks/bench_setup.py``; ``--json FILE`` keeps the rows. Of
networks: making the weights of an exponential graph and what is known of them; one
rank's plan of messages, a node a rank; the account of all nodes' ledgers. Of audits:
keeping one block of 50 runs when so many are kept; judging all of them.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
from measuring import Row

from privaudit.accounting import account_nodes
from privaudit.auditing.experiments.experiment import Block, Progress
from privaudit.auditing.experiments.judgement import judge
from privaudit.auditing.experiments.plan import Audit
from privaudit.auditing.experiments.presets import AUDITED
from privaudit.files.folder import RunFolder
from privaudit.results import Claim
from trainers.network.named_graphs import mixing
from trainers.network.over_ranks import Exchange
from trainers.network.ranks import Ranks
from trainers.oracles.oracle import Mechanism
from trainers.runs.training import Training


def processor(step: Callable[[], object]) -> float:
    """Seconds of the processor's time, once."""
    began = time.process_time()
    step()
    return time.process_time() - began


def network(nodes: int) -> Row:
    """Once a training."""
    row: Row = {"nodes": nodes}

    def graph() -> None:
        on = mixing("exponential", "uniform", nodes)
        on.require(("doubly stochastic", "connected"), "this")
        on.heard(0)

    row["graph"] = processor(graph)
    on = mixing("exponential", "uniform", nodes)
    heard = on.heard(0)
    row["plan"] = processor(lambda: Exchange.of(heard, Ranks(0, nodes, nodes)))
    ledger = Mechanism(64.0, 1.0, 1.0).ledger([600] * nodes, 1000)
    row["account"] = processor(
        lambda: account_nodes(ledger, 1e-5, "add-or-remove-one", "certified")
    )
    return row


def audit(runs: int) -> Row:
    """One block's keeping, when ``runs`` are kept; and their judgement."""
    training = Training(algorithm="dp-dsgd", **AUDITED)
    plan = Audit(
        claim=Claim(
            epsilon=1.0, delta=1e-2, relation="add-or-remove-one", source="bench"
        ),
        training=training,
        noise_multiplier=8.0,
        runs=runs,
    )
    random = np.random.default_rng(0)
    ledger = training.mechanism(8.0).ledger([100] * 3, training.rounds)

    def block() -> Block:
        member = random.random(plan.block) < 0.5
        score = random.normal(size=plan.block) + 0.5 * member
        return Block(member, score, np.full(plan.block, 0.9), ledger)

    with (
        tempfile.TemporaryDirectory() as path,
        RunFolder.opened(pathlib.Path(path) / "audit") as folder,
    ):
        state = Progress(plan, folder)
        for number in range(1, plan.blocks):
            made = block()
            state.done[number] = (made.member, made.score, made.accuracy)
        last = block()
        keep = processor(lambda: state.add(0, last, None))
        arrays = state.arrays()
    return {
        "runs": runs,
        "keep": keep,
        "judge": processor(lambda: judge(plan, ledger, arrays, 0.0, "nothing")),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--nodes", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument(
        "--runs", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000]
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    network(8)  # imports
    kept: dict[str, list[Row]] = {"network": [], "audit": []}
    for nodes in given.nodes:
        row = network(nodes)
        print(
            f"{nodes:9,} nodes   graph {row['graph']:8.3f} s   plan {row['plan']:8.3f} "
            f"s   account {row['account']:8.3f} s",
            flush=True,
        )
        kept["network"].append(row)
    for runs in given.runs:
        row = audit(runs)
        print(
            f"{runs:9,} runs    keeping a block {row['keep']:8.4f} s   "
            f"judging {row['judge']:8.2f} s",
            flush=True,
        )
        kept["audit"].append(row)
    if given.json:
        given.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
