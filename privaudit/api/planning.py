"""Chooses a plan from public numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from privaudit.api.own_training import PLAIN
from privaudit.api.training_plan import TrainingPlan, budget_of, training_of, worth
from privaudit.files.arguments import public, with_changes
from privaudit.files.extras import need
from privaudit.results import DELTA
from privaudit.settings import TrainingSettings
from privaudit.task_settings import OPEN

if TYPE_CHECKING:
    from torch import nn

    from trainers.runs.training import Training

FEW = 16  # nodes that all hear each other; more are joined by an exponential graph
TOLD = ("delta", "noise", "relation", "classes", "overlap")
_TIMED = 64  # made-up records, by which the time of a gradient is measured
_REACHES = (0.3, 1.0, 3.0)  # times the step size, tried on public data


@public
def plan(
    model: nn.Module | Callable[[], nn.Module] | str | int,
    shares: Any,
    epsilon: float | Sequence[float],
    *,
    algorithm: str = "dp-dsgt",
    graph: str | None = None,
    rounds: int | None = None,
    like: Any = None,
    loss: Callable[..., Any] | None = None,
    settings: TrainingSettings = PLAIN,
    **changes: Any,
) -> TrainingPlan:
    """Choose settings of a training for a budget, from public numbers alone.

    Of the shares only their sizes and the shape of a record are looked at, which are
    public; so a plan costs no privacy. What is given stays, the rest is chosen to fit.

    Parameters
    ----------
    model
        As in `privaudit.train`; or the number of trained parameters.
    shares
        As in `privaudit.train`, one data set a node; or the number of records of each.
    epsilon
        The budget; a list has that of each node.
    algorithm, graph, rounds, loss
        As in `privaudit.train`. The graph is complete for up to 16 nodes, and
        exponential for more.
    like
        A public or made-up data set, inputs and targets, of the shape of the shares.
        The step size is then the best of three on it, at a noise that leaves as much
        signal; it costs no privacy only if it is public.
    settings, changes
        `TrainingSettings`, or fields of it by name: delta, noise, relation, classes and
        overlap; and batch_size, sampling_rate, clip_norm, step_size and schedule where
        they are to be these.

    Returns
    -------
    A `TrainingPlan`, for ``privaudit.train(model, shares, plan=plan)``.

    Raises
    ------
    ValueError
        If a value is out of its range, the algorithm cannot be planned, or the budget
        cannot be met.

    Examples
    --------
    >>> import privaudit as pa
    >>> print(pa.plan(1000, [400, 300], epsilon=4, rounds=100).lines()[-1])
    signal to noise, at most 14 over all rounds (1,000 parameters, 700 records)
    """
    need("privaudit.plan", "train")
    from trainers.algorithms import family_named
    from trainers.recipes import MadeFor
    from trainers.runs import planning

    settings = with_changes(settings, changes).given(rounds=rounds)
    settings.check_only(
        (*OPEN, *TOLD), "a plan is of the budget and of what is trained, not of a run"
    )
    classes = settings.classes
    sizes, parameters, material = _measured(model, shares, classes, loss)
    values = {name: x for name, x in settings.changes().items() if name in OPEN}
    delta, overlap = settings.delta or DELTA, settings.overlap or 1
    network = {
        "algorithm": algorithm,
        "graph": graph or ("complete" if len(sizes) <= FEW else "exponential"),
        "nodes": len(sizes),
        **family_named(algorithm).own_defaults,
        **({} if overlap == 1 else {"overlap": overlap}),
    }
    budget = budget_of(epsilon)
    training = training_of({**network, **values}, sizes)
    if not planning.is_planned(training):
        raise ValueError(
            f"{algorithm} is not planned for: it releases no gradients of records, or "
            "adds no noise; choose another algorithm, such as dp-dsgt"
        )
    task = planning.Task(
        sizes=sizes,
        parameters=parameters,
        epsilon=budget if isinstance(budget, tuple) else (budget,),
        delta=delta,
        overlap=overlap,
        releases=planning.releases_of(training),
    )
    chosen = planning.chosen(task, values)
    if like is not None and settings.step_size is None:
        from privaudit.api.public_search import PublicJudge

        judge = PublicJudge.of(like, model, classes, loss)
        first = chosen["step_size"]
        steps = [planning.two_digits(first * factor) for factor in _REACHES]
        chosen["step_size"] = max(
            steps, key=lambda step: judge({**chosen, "step_size": step}, task)
        )
    planned = {**network, **chosen}
    seconds = None
    if material is not None:
        seconds = _seconds(material, training_of(planned, sizes), sizes)
    made_for = MadeFor(sizes=sizes, parameters=parameters, seconds=seconds)
    return worth(planned, made_for, budget, delta, settings.relation, settings.noise)


def _measured(
    model: Any, shares: Any, classes: int | None, loss: Any
) -> tuple[tuple[int, ...], int, Any]:
    """Sizes, number of parameters, and what a user gave, where there are data."""
    from trainers.gradients.per_sample import parameter_count, trained
    from trainers.runs.material import Material

    if not (isinstance(shares, Sequence) and all(isinstance(n, int) for n in shares)):
        if isinstance(model, int):
            raise ValueError(
                "with the number of parameters, give the number of records of each "
                "node; or the model with the shares"
            )
        material = Material.own(model, shares, classes=classes, loss=loss)
        parameters = parameter_count(material.module)
        return tuple(map(len, material.shares)), parameters, material
    sizes = tuple(shares)
    if not sizes or min(sizes) < 1:
        raise ValueError(f"each node has one record or more, got {list(sizes)}")
    if isinstance(model, str):
        raise ValueError(
            f"how many parameters {model} has depends on the data: give the shares, or "
            "the number of parameters"
        )
    made = model
    if not isinstance(model, int):
        module = model() if not hasattr(model, "parameters") else model
        made = sum(value.numel() for value in trained(module).values())
    if not made > 0:
        raise ValueError(f"a model has parameters to train, got {made}")
    return sizes, made, None


def _seconds(material: Any, training: Training, sizes: tuple[int, ...]) -> float:
    """About how long a training takes, by the time of gradients of made-up records."""
    import torch

    from trainers.gradients.choose import differentiator
    from trainers.gradients.per_sample import parameter_vector

    input, target = material.example
    of = differentiator(material.module, material.loss, input, target)
    at = parameter_vector(material.module)[None]
    inputs = input.expand(1, _TIMED, *input.shape).clone()
    targets = target.expand(1, _TIMED, *target.shape).clone()
    least = math.inf
    for _ in range(3):
        began = time.perf_counter()
        of.weighted_sum(at, inputs, targets, torch.ones_like)
        least = min(least, time.perf_counter() - began)
    batches = training.expected_batch(sizes) * len(sizes)
    drawn = 3e-8 * at.shape[1] * len(sizes)  # of noise, 30 ns a number
    return training.rounds * (least / _TIMED * batches + drawn)
