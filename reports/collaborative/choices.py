"""Can the deep-Q networks' choices alone tell who was a member? Two attackers.

    OMP_NUM_THREADS=1 python reports/collaborative/choices.py secret|known

Writes choices-secret.json or choices-known.json beside itself. Four records of three
digits at one node, batches of one, a mislabelled digit in the place of one record, a
start far from 0 (gain 3) and noise for epsilon = 0.1. "known": the networks' own coins
are public, as where a seed is written in the program. Half of the runs choose the
score, the single choice whose frequency differs most between the worlds; the other half
is tested by Clopper-Pearson.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time

import torch

from privaudit.accounting import noise_multiplier
from privaudit.auditing.attacks.actions import ActionLog
from privaudit.auditing.attacks.canaries import mislabelled
from privaudit.auditing.bounds import ESTIMATORS
from privaudit.auditing.scores import Scores
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

RUNS, BLOCK, EPSILON, DELTA = 4000, 200, 0.1, 1e-2


def main(coins: str) -> None:
    """Run one attacker's audit."""
    began = time.process_time()
    values = {
        "algorithm": "deep-q",
        "policy": "deep-q",
        "q_seed": 1 if coins == "known" else None,
        "model": "one-vs-all",
        "data": "digits-pca",
        "digits": (0, 1, 2),
        "train": 4,
        "nodes": 1,
        "partition": "even",
        "lot_size": 1,
        "rounds": 4,
        "step_size": 0.5,
        "gain": 3.0,
    }
    problem = Problem.of(training_from(values, where="choices.py"))
    z, _ = noise_multiplier(problem.ledger, EPSILON, DELTA, "replace-one", "gdp")
    canary = mislabelled(problem, 0).record
    seen, worlds = [], []
    for block in range(RUNS // BLOCK):
        streams, log = Streams(7, block * BLOCK), ActionLog()
        planted = streams.worlds(BLOCK)
        problem.train(
            z,
            streams,
            runs=BLOCK,
            canary=canary,
            planted=planted,
            start=problem.start(0, BLOCK),
            observers=(log,),
        )
        seen.append(log.features())
        worlds.append(planted)
    features, member = torch.cat(seen), torch.cat(worlds)
    half = RUNS // 2
    first, rest = slice(0, half), slice(half, RUNS)
    gaps = features[first][member[first]].mean(0) - features[first][
        ~member[first]
    ].mean(0)
    place = int(gaps.abs().argmax())
    score = features[rest, place] * gaps[place].sign()
    bound = ESTIMATORS["clopper-pearson"](
        Scores(member[rest].numpy(), score.numpy(), "coin-flip"),
        DELTA,
        0.95,
        relation="replace-one",
        threat_model="which updates were global",
        seed=0,
    )
    tested = features[rest, place]
    evidence = bound.evidence
    result = {
        "runs": RUNS,
        "claim": EPSILON,
        "delta": DELTA,
        "noise_multiplier": z,
        "frequency among members": float(tested[member[rest]].mean()),
        "frequency among others": float(tested[~member[rest]].mean()),
        "tpr at least": None if evidence.tpr is None else evidence.tpr.low,
        "fpr at most": None if evidence.fpr is None else evidence.fpr.high,
        "tpr": None if evidence.tpr is None else evidence.tpr.hits / evidence.tpr.runs,
        "fpr": None if evidence.fpr is None else evidence.fpr.hits / evidence.fpr.runs,
        "epsilon at least": bound.lower.epsilon,
        "seconds": time.process_time() - began,
    }
    path = pathlib.Path(__file__).parent / f"choices-{coins}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
