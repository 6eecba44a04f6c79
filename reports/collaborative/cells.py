"""Tables I and II of paper 002 on stand-ins for its data, and accuracy by epsilon.

Then: can the deep-Q networks' choices alone tell who was a member? Two attackers.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

from privaudit.accounting import Certificate, account, noise_multiplier
from privaudit.accounting.closed_forms import OutsideTheorem
from privaudit.auditing.attacks.actions import ActionLog
from privaudit.auditing.attacks.canaries import mislabelled
from privaudit.auditing.bounds import ESTIMATORS
from privaudit.auditing.scores import Scores
from reports import told
from reports.papers.running import planned_noise
from trainers.numerics.randomness import Streams
from trainers.runs.material import Material
from trainers.runs.measures import accuracy
from trainers.runs.problem import Observers, Planted, Problem
from trainers.runs.training import training_from

DATA = ("glyphs-pca", "forest")
NODES = (1, 3, 5, 10, 20)
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 16.0)
SETTINGS = told(__file__)
COMMON, POLICIES = SETTINGS["COMMON"], SETTINGS["POLICIES"]


@functools.cache
def prepared(data: str, train: int, nodes: int, drawn: int = 0) -> Problem:
    """Data and model, dealt once for all policies.

    With ``drawn``, each node draws so many by itself of the same ``train`` records, so
    that several nodes hold a record.
    """
    dealt = {"data": data, "train": train, "nodes": nodes}
    coin = {**COMMON, **dealt, **POLICIES["coin"], "step_size": 0.1}
    chosen = training_from(coin, where=__name__)
    if not drawn:
        return Problem.of(chosen)
    whole = Material.by_name(training_from({**coin, "nodes": 1}, where=__name__), 0)
    places = torch.Generator().manual_seed(0)
    (every,) = whole.shares
    shares = [
        every.select(torch.randperm(train, generator=places)[:drawn])
        for _ in range(nodes)
    ]
    return Problem.of(chosen, material=dataclasses.replace(whole, shares=shares))


def problem_of(training: dict[str, Any], drawn: int = 0) -> Problem:
    """The problem of one cell."""
    chosen = training_from(training, where=__name__)
    base = prepared(training["data"], training["train"], training["nodes"], drawn)
    network = chosen.family.runner(chosen.make(), chosen.mixing())
    return dataclasses.replace(base, training=chosen, network=network)


def trained(
    training: dict[str, Any],
    noise: str,
    epsilon: float,
    seeds: int,
    tested: int,
    drawn: int = 0,
    roots: bool = False,
) -> dict[str, Any]:
    """Runs as one block, each with its own batches, noise and networks.

    ``account`` is of a record at one node; with ``drawn``, see `prepared`,
    ``held by all`` is of one that every node drew. ``roots``: steps are 1 / sqrt(t).
    """
    if roots:
        steps = (f"{t}={(t + 1) ** -0.5}" for t in range(1, training["rounds"]))
        training = {
            **training,
            "step_size": 1.0,
            "schedule": f"parts:{','.join(steps)}",
        }
        training.pop("final_step_size", None)
    problem = problem_of(training, drawn)
    family = problem.training.family
    records = training["nodes"] * drawn or training["train"]
    delta = float(records) ** -2
    multiplier, found = 0.0, {}
    if family.private:
        # Exact where there is no sampling.
        sampled = training["algorithm"] == "dp-sgd-with-replacement"
        account_ = "rdp" if sampled else "gdp"
        if noise == "joint":  # of all classes
            multiplier, _ = noise_multiplier(
                problem.ledger, epsilon, delta, "replace-one", account_
            )
        else:
            multiplier = paper_noise(training, epsilon, delta)
        ledger = problem.ledger(multiplier)
        bound = account(ledger, delta, "replace-one", account_)
        found = {"account": bound.epsilon, "standing": bound.standing}
        if drawn:
            certificate = Certificate.of(
                ledger, "replace-one", overlap=training["nodes"]
            )
            found["held by all"] = certificate.epsilon(delta).upper
    models, _ = problem.train(multiplier, Streams(0), runs=seeds)
    if training.get("policy") != "never":
        models = models[:, :1]  # all nodes have the global one
    test = problem.test.select(torch.arange(min(tested, len(problem.test))))
    right = accuracy(problem.gradients(), models, test).mean(1)
    return {"accuracy": right.tolist(), "noise_multiplier": multiplier, **found}


def paper_noise(training: dict[str, Any], epsilon: float, delta: float) -> float:
    """As the paper has it, for one class."""
    try:
        return planned_noise(problem_of(training), epsilon, delta, "paper")
    except OutsideTheorem:  # epsilon = 1, and said so on the page
        printed = problem_of({**training, "paper_noise": "as-printed"})
        return planned_noise(printed, epsilon, delta, "paper")


def choices(
    training: dict[str, Any],
    epsilon: float,
    delta: float,
    runs: int,
    block: int,
    seed: int,
) -> dict[str, Any]:
    """Leakage of the public choice of global updates alone, without any model.

    A mislabelled digit is in the place of one record or not. Half of the runs choose
    the score, the single choice whose frequency differs most between the worlds; the
    other half is tested by Clopper-Pearson.
    """
    problem = Problem.of(training_from(training, where=__name__))
    z, _ = noise_multiplier(problem.ledger, epsilon, delta, "replace-one", "gdp")
    canary = mislabelled(problem, 0).record
    seen, worlds = [], []
    for number in range(runs // block):
        streams, log = Streams(seed, number * block), ActionLog()
        planted = streams.worlds(block)
        problem.train(
            z,
            streams,
            runs=block,
            start=problem.start(0, block),
            planted=Planted(canary, planted),
            observers=Observers((log,)),
        )
        seen.append(log.features())
        worlds.append(planted)
    features, member = torch.cat(seen), torch.cat(worlds)
    half = runs // 2
    first, trial = features[:half], member[:half]
    gaps = first[trial].mean(0) - first[~trial].mean(0)
    place = int(gaps.abs().argmax())
    tested, member = features[half:, place], member[half:]
    score = tested * gaps[place].sign()
    bound = ESTIMATORS["clopper-pearson"](
        Scores(member.numpy(), score.numpy(), "coin-flip"),
        delta,
        0.95,
        relation="replace-one",
        threat_model="which updates were global",
        seed=0,
    )
    tpr, fpr = bound.evidence.tpr, bound.evidence.fpr
    return {
        "runs": runs,
        "claim": epsilon,
        "delta": delta,
        "noise_multiplier": z,
        "frequency among members": float(tested[member].mean()),
        "frequency among others": float(tested[~member].mean()),
        "tpr at least": None if tpr is None else tpr.low,
        "fpr at most": None if fpr is None else fpr.high,
        "tpr": None if tpr is None else tpr.hits / tpr.runs,
        "fpr": None if fpr is None else fpr.hits / fpr.runs,
        "epsilon at least": bound.lower.epsilon,
    }
