"""A CNN on Fashion-MNIST, private: all data at one place, and one class a node.

Cells of Opacus need it installed, as `make integrations` does in an environment of its
own; the others need the Debian package dataset-fashion-mnist only.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import time
from typing import Any

import torch

import privaudit as pa
from privaudit.accounting import noise_multiplier
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

DELTA = 1e-5


def trained(
    tool: str,
    training: dict[str, Any],
    epsilon: float | None,
    seed: int,
    found: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Accuracy on all test data, and what it took; Opacus within the time of others."""
    problem = Problem.of(training_from(training, where=__name__))
    if tool == "Opacus":
        assert found is not None
        (ours,) = found.values()
        return _with_opacus(problem, epsilon, seed, ours["cpu"])
    began = time.process_time()
    multiplier, certified = 0.0, None
    if epsilon is not None:
        multiplier, bound = noise_multiplier(problem.ledger, epsilon, DELTA)
        certified = bound.epsilon
    calibrated = time.process_time()
    models, _ = problem.train(multiplier, Streams(seed))
    taken = time.process_time() - calibrated
    right = accuracy(problem.gradients(), models, problem.test)[0]
    return {
        "accuracy": round(float(right.mean()), 4),
        "worst": round(float(right.min()), 4),
        "rounds": problem.training.rounds,
        "multiplier": multiplier,
        "certified": certified,
        "calibration": round(calibrated - began, 2),
        "cpu": round(taken, 2),
    }


def _with_opacus(
    problem: Problem, epsilon: float | None, seed: int, budget: float
) -> dict[str, Any]:
    """As many steps as ``budget`` seconds of processor time allow.

    Same data, start, batches, clip norm, step size and account.
    """
    assert epsilon is not None
    rates = {
        mode: _opacus(problem, mode, 1.0, seed, 12)[1] for mode in ("hooks", "ghost")
    }
    mode = min(rates, key=lambda mode: rates[mode])
    steps = max(1, int(budget / rates[mode]))
    training = problem.training
    rate = training.expected_batch() / problem.sizes[0]
    multiplier = pa.noise_multiplier(
        epsilon=epsilon, delta=DELTA, sampling_rate=rate, steps=steps
    )
    module, cost, engine = _opacus(problem, mode, multiplier, seed, steps)
    history = engine.accountant.history
    bracket = pa.epsilon(ledger=pa.ledger_from(history), delta=DELTA)
    parameters = torch.cat([p.detach().flatten() for p in module.parameters()])
    right = accuracy(problem.gradients(), parameters[None, None], problem.test)
    return {
        "accuracy": round(float(right), 4),
        "rounds": steps,
        "multiplier": multiplier,
        "certified": bracket.upper,
        "theirs": float(engine.get_epsilon(DELTA)),
        "mode": mode,
        "cpu": round(cost * steps, 2),
    }


def _opacus(
    problem: Problem, mode: str, multiplier: float, seed: int, steps: int
) -> tuple[Any, float, Any]:
    """The module after so many steps, seconds a step, and the engine."""
    opacus = importlib.import_module("opacus")
    training, (data,) = problem.training, problem.shares
    torch.manual_seed(seed)
    module = copy.deepcopy(problem.module)
    places = torch.nn.utils.vector_to_parameters
    places(problem.start(seed)[0, 0], module.parameters())
    optimizer: Any = torch.optim.SGD(module.parameters(), lr=training.step_size)
    loader: Any = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(data.inputs, data.targets),
        batch_size=int(training.expected_batch()),
    )
    engine = opacus.PrivacyEngine(accountant="prv")
    loss: Any = torch.nn.CrossEntropyLoss()
    made = engine.make_private(
        module=module,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=multiplier,
        max_grad_norm=training.clip_norm,
        grad_sample_mode=mode,
        **({"criterion": loss} if mode == "ghost" else {}),
    )
    module, optimizer, *more, loader = made
    (loss,) = more or [loss]
    batches = itertools.chain.from_iterable(loader for _ in itertools.count())
    began = time.process_time()
    for inputs, targets in itertools.islice(batches, steps):
        optimizer.zero_grad()
        loss(module(inputs), targets).backward()
        optimizer.step()
    return module, (time.process_time() - began) / steps, engine
