"""Views of nodes on each other, by averaging and by training, and their price."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import torch

import privaudit as pa
from privaudit.accounting.views import Observer, figures, of_observer
from privaudit.auditing.attacks.canaries import mislabelled
from privaudit.auditing.attacks.linear import Record
from privaudit.auditing.attacks.protocols import protocol_of
from reports import told
from reports.views import accuracy, seen  # noqa: F401  # settings.toml has their cells
from trainers.gradients.per_sample import PerSample
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Observers, Planted, Problem
from trainers.runs.training import training_from

NODES, NOISE, DELTA, STEPS = 8, 1.0, 1e-5, 12
DIRECTED = ("exponential", "directed-ring", "d-out:3")
SETTINGS = told(__file__)
GOSSIP = SETTINGS["GOSSIP"]
# Exchanges a step of sums at a common model.
SUMS = {"butterfly": 3, "chain": 8}
ORDINARY, HEARS = (0.1, 0.5, 4.0), (1, 2, 3)  # step sizes, and who hears node 0
FIGURES = ("nobody_reacts", "certified", "everything_seen")


def learnt(
    algorithm: str, graph: str, rounds: int, options: dict[str, Any]
) -> dict[str, dict[str, float]]:
    """Mean, least and largest of each figure over all pairs of nodes."""
    weights = "uniform" if graph in (*DIRECTED, *SUMS) else "metropolis"
    pairs = pa.views(
        algorithm,
        noise_multiplier=NOISE,
        delta=DELTA,
        nodes=NODES,
        graph=graph,
        weights=weights,
        rounds=rounds,
        train=320,
        batch_size=10.0,
        model="softmax",
        digits=(0, 1),
        **options,
    ).pairs
    found = {}
    for name in FIGURES:
        each = [getattr(pair, name) for pair in pairs]
        found[name] = {
            "mean": statistics.fmean(each),
            "least": min(each),
            "most": max(each),
        }
    return found


def reacting(step: float, observer: int, rounds: int, runs: int) -> dict[str, float]:
    """Part of the first figure that survives in an ordinary training, as attacked.

    DP-DSGD on a ring, softmax on digits, whole shares as batches; the record is
    mislabelled. The attack is linear discriminant analysis of all that the observer
    hears and sends along the record's gradient at the start, trained on half of the
    runs and tested on the others.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    delta = 1e-2
    values = {**SETTINGS["ORDINARY"], "rounds": rounds, "step_size": step}
    problem = Problem.of(training_from(values, where="the study"))
    ledger = problem.ledger(NOISE)
    who = Observer.of(observer)
    protocol = protocol_of(problem, ledger)
    (pair,) = (p for p in figures(protocol, ledger, delta, [who]) if p.of == 0)
    still = of_observer(protocol, who, 0).nobody_reacts
    record = mislabelled(problem, 0).record
    begin = problem.start(0)[0, 0]
    along = PerSample(problem.module, problem.material.loss).gradients(
        begin[None], record.inputs[None], record.targets[None]
    )[0, 0]
    along = (along / along.norm()).double()
    member = np.random.default_rng(0).random(runs) < 0.5
    found = []
    for first in range(0, runs, 500):
        heard = Record(
            [[observer - 1, observer, (observer + 1) % NODES]],
            along=lambda row: row.double() @ along,
        )
        heard.dims = len(begin)
        planted = torch.from_numpy(member[first : first + 500])
        problem.train(
            NOISE,
            Streams(0, first),
            runs=len(planted),
            planted=Planted(record, planted),
            observers=Observers(messages=(heard,)),
        )
        found.append(heard.stacked().numpy())
    every, half = np.concatenate(found), runs // 2
    attack = LinearDiscriminantAnalysis(solver="eigen", shrinkage=1e-4)
    scores = attack.fit(every[:half], member[:half]).decision_function(every[half:])
    inside, outside = scores[member[half:]], scores[~member[half:]]
    shown = pa.lower_bound(scores, member[half:], delta=delta, confidence=0.99)
    return {
        "mu_nobody_reacts": float(np.sqrt((still**-2.0).sum())),
        "mu_attack": float((inside.mean() - outside.mean()) / outside.std()),
        "shown": shown.epsilon,
        "nobody_reacts": pair.nobody_reacts,
        "certified": pair.certified,
        "everything_seen": pair.everything_seen,
    }
