"""A plan: settings of a training for a budget, chosen from public numbers."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from privaudit.accounting.account import account_nodes
from privaudit.files import json as _json
from privaudit.files.arguments import public, public_class
from privaudit.files.extras import need
from privaudit.files.notebook import box
from privaudit.results import DELTA, Claim, Relation, round_up
from privaudit.settings import NoiseBy, TrainingSettings
from privaudit.task_settings import OWN, laid_over

if TYPE_CHECKING:
    from torch import nn

    from trainers.runs.training import Training

FEW = 16  # nodes that all hear each other; more are joined by an exponential graph
MOST_SAID = 12  # nodes that have a line of their own
_TIMED = 64  # made-up records, by which the time of a gradient is measured
_REACHES = (0.3, 1.0, 3.0)  # times the step size, tried on public data


@public_class
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Settings of a training for a budget, and what they are worth: `privaudit.plan`.

    Parameters
    ----------
    settings
        Settings of the training by name, as `privaudit.train` and recipes take them.
    sizes
        Number of records of each node.
    parameters
        Number of trained parameters.
    epsilon, delta, relation
        The budget, of all nodes or of each, and what neighbouring data sets differ in.
    noise
        "one" or "per-node"; None: as `privaudit.train` chooses.
    noise_multiplier
        The noise of each node.
    certified
        Epsilon of each node that is certified with this noise.
    signal_to_noise
        Length of all clipped gradients of the training, at most, over that of the noise
        in them; below about 1, noise drowns what there is to learn.
    seconds
        About how long it takes, as measured on made-up records; None: not measured.
    remarks
        What else must be known, in sentences.

    Examples
    --------
    >>> import privaudit as pa
    >>> plan = pa.plan(62, [150, 110, 80, 50, 36], epsilon=2)
    >>> plan.settings["sampling_rate"], [round(each, 2) for each in plan.certified]
    (0.17, [2.0, 2.0, 2.0, 2.0, 2.0])
    """

    settings: dict[str, Any]
    sizes: tuple[int, ...]
    parameters: int
    epsilon: float | tuple[float, ...]
    delta: float
    relation: Relation
    noise: NoiseBy | None
    noise_multiplier: tuple[float, ...]
    certified: tuple[float, ...]
    signal_to_noise: float
    seconds: float | None = None
    remarks: tuple[str, ...] = ()

    def arguments(self) -> dict[str, Any]:
        """Arguments of `privaudit.train` beside the model and the shares."""
        own = {**self.settings}
        own.pop("nodes")
        epsilon = self.epsilon
        return {
            **own,
            "epsilon": [*epsilon] if isinstance(epsilon, tuple) else epsilon,
            "delta": self.delta,
            "relation": self.relation,
            "noise": self.noise,
        }

    def over(self, given: Mapping[str, Any], shares: Sequence[Any] | None) -> Any:
        """Its settings for ``shares``, with those ``given`` in their place.

        Raises ``ValueError`` if it is for nodes of other sizes.
        """
        sizes = None if shares is None else tuple(map(len, shares))
        if sizes not in (None, self.sizes):
            raise ValueError(
                f"the plan is for nodes of {list(self.sizes)} records, and the shares "
                f"have {list(sizes or ())}: make one for these"
            )
        apart = ("algorithm", "graph", "nodes", "overlap")
        own = {name: x for name, x in self.settings.items() if name not in apart}
        return laid_over(own, given)

    def summary(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return msgspec.to_builtins(dataclasses.asdict(self))

    def lines(self) -> list[str]:
        """A table for the terminal, and remarks in sentences."""
        told = {**self.settings, "clip_norm": f"{self.settings['clip_norm']:g}"}
        width = max(map(len, told))
        lines = [f"{name:<{width}}  {value}" for name, value in told.items()]
        rows = list(zip(self.sizes, self.noise_multiplier, self.certified, strict=True))
        lines += ["", f"{'node':>4}  {'records':>9}  {'noise':>8}  certified epsilon"]
        for node, (size, noise, epsilon) in enumerate(rows[:MOST_SAID]):
            lines.append(f"{node:>4}  {size:>9,}  {noise:>8.4g}  {_up(epsilon)}")
        if len(rows) > MOST_SAID:
            least, most = min(self.certified), max(self.certified)
            left = len(rows) - MOST_SAID
            lines.append(f"and {left:,} more; all from {_up(least)} to {_up(most)}")
        lines.append("")
        lines.append(
            f"signal to noise, at most {self.signal_to_noise:.3g} over all rounds "
            f"({self.parameters:,} parameters, {sum(self.sizes):,} records)"
        )
        if self.seconds is not None:
            lines.append(f"about {self.seconds:.3g} s on this machine")
        return [*lines, *self.remarks]

    def to_toml(self) -> str:
        """A recipe's file, which ``privaudit train`` takes, and `TrainingPlan.read`."""
        own = {name: value for name, value in self.settings.items() if name != "nodes"}
        if isinstance(self.epsilon, tuple):
            own["budgets"] = ",".join(map(repr, self.epsilon))
        else:
            own["epsilon"] = self.epsilon
        if self.noise is not None:
            own["noise"] = self.noise
        own |= {"delta": self.delta, "relation": self.relation}
        made_for: dict[str, Any] = {
            "sizes": list(self.sizes),
            "parameters": self.parameters,
        }
        if self.seconds is not None:
            made_for["seconds"] = self.seconds
        tables = ["", *_table(own), "", "[plan]", *_table(made_for), ""]
        return "\n".join([*(f"# {line}".rstrip() for line in self.lines()), *tables])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file of `to_toml`; ``ValueError`` if it cannot be written."""
        try:
            with pathlib.Path(path).open("x", encoding="utf-8") as file:
                file.write(self.to_toml())
        except FileExistsError:
            raise ValueError(f"{path} exists; choose another file") from None
        except OSError as error:
            raise ValueError(f"cannot write {path}: {error.strerror}") from None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> TrainingPlan:
        """The plan in a file that `save` wrote, with noise and figures computed anew.

        Raises ``ValueError`` if there is none.
        """
        from trainers import recipes

        recipe = recipes.read(path)
        try:
            made_for = _json.convert(recipe.plan, _MadeFor)
        except ValueError as error:
            raise ValueError(f"{path} is no plan: its table [plan] ({error})") from None
        budget = recipe.epsilon if recipe.budgets is None else recipe.each_budget
        if budget is None:
            raise ValueError(f"{path} is no plan: it has no epsilon")
        return _worth(
            recipe.settings(),
            made_for,
            budget,
            DELTA if recipe.delta is None else recipe.delta,
            recipe.relation,
            recipe.noise,
        )

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return box("a plan", self.lines())


class _MadeFor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sizes: tuple[int, ...]
    parameters: int
    seconds: float | None = None


def _table(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {json.dumps(value)}" for name, value in values.items()]


def _up(value: float) -> str:
    return f"{round_up(value, 4)}"


def _worth(
    settings: dict[str, Any],
    made_for: _MadeFor,
    epsilon: float | tuple[float, ...],
    delta: float,
    relation: Relation | None,
    noise: NoiseBy | None,
) -> TrainingPlan:
    """The plan of chosen ``settings``, with its noise and what that is worth."""
    from trainers.runs import advice, planning
    from trainers.runs.budget import noise_by_node

    sizes, parameters = made_for.sizes, made_for.parameters
    settings = {"nodes": len(sizes), **settings}
    training = _training(settings, sizes)
    asked = TrainingSettings(
        **_asked(epsilon),
        noise=noise,
        delta=delta,
    )
    claim = Claim(
        epsilon=max(asked.each_budget or (asked.epsilon or math.inf,)),
        delta=delta,
        relation=training.relation(relation),
        unit=training.unit,
        source="privaudit.plan",
        overlap=training.told_overlap,
    )
    problem = planning.Sized(training, sizes)
    found = noise_by_node(problem, claim, asked)
    ledger = problem.ledger(found)
    bounds = account_nodes(ledger, delta, claim.relation)
    return TrainingPlan(
        settings=settings,
        sizes=sizes,
        parameters=parameters,
        epsilon=epsilon,
        delta=delta,
        relation=claim.relation,
        noise=noise,
        noise_multiplier=found if isinstance(found, tuple) else (found,) * len(sizes),
        certified=tuple(bound.epsilon for bound in bounds),
        signal_to_noise=advice.signal_to_noise(problem, found, parameters),
        seconds=made_for.seconds,
        remarks=advice.advice(problem, found, claim, asked.each_budget, parameters),
    )


def _asked(epsilon: float | tuple[float, ...]) -> dict[str, Any]:
    """Epsilon of all nodes, or the budgets of each, as `TrainingSettings` has them."""
    if isinstance(epsilon, tuple):
        return {"budgets": ",".join(map(repr, epsilon))}
    return {"epsilon": epsilon}


@public
def plan(
    model: nn.Module | Callable[[], nn.Module] | str | int,
    shares: Any,
    epsilon: float | Sequence[float],
    *,
    delta: float = DELTA,
    algorithm: str = "dp-dsgt",
    graph: str | None = None,
    noise: NoiseBy | None = None,
    relation: Relation | None = None,
    classes: int | None = None,
    loss: Callable[..., Any] | None = None,
    overlap: int = 1,
    rounds: int | None = None,
    batch_size: float | None = None,
    sampling_rate: float | None = None,
    clip_norm: float | None = None,
    step_size: float | None = None,
    schedule: str | None = None,
    like: Any = None,
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
    epsilon, delta
        The budget; a list has that of each node.
    algorithm, graph, noise, relation, classes, loss, overlap
        As in `privaudit.train`. The graph is complete for up to 16 nodes, and
        exponential for more.
    rounds, batch_size, sampling_rate, clip_norm, step_size, schedule
        As in `privaudit.train`, where they are to be these.
    like
        A public or made-up data set, inputs and targets, of the shape of the shares.
        The step size is then the best of three on it, at a noise that leaves as much
        signal; it costs no privacy only if it is public.

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
    signal to noise, at most 15.5 over all rounds (1,000 parameters, 700 records)
    """
    need("privaudit.plan", "train")
    from trainers.runs import planning

    sizes, parameters, material = _measured(model, shares, classes, loss)
    given = {
        "rounds": rounds,
        "batch_size": batch_size,
        "sampling_rate": sampling_rate,
        "clip_norm": clip_norm,
        "step_size": step_size,
        "schedule": schedule,
    }
    values = {name: value for name, value in given.items() if value is not None}
    network = {
        "algorithm": algorithm,
        "graph": graph or ("complete" if len(sizes) <= FEW else "exponential"),
        "nodes": len(sizes),
        **({} if overlap == 1 else {"overlap": overlap}),
    }
    each = tuple(epsilon) if isinstance(epsilon, Sequence) else (epsilon,)
    task = planning.Task(
        sizes=sizes,
        parameters=parameters,
        epsilon=tuple(map(float, each)),
        delta=delta,
        overlap=overlap,
    )
    training = _training({**network, **planning.chosen(task, values)}, sizes)
    if not planning.is_planned(training):
        raise ValueError(
            f"{algorithm} is not planned for: it releases no gradients of records, or "
            "adds no noise; choose another algorithm, such as dp-dsgt"
        )
    chosen = planning.chosen(task, values)
    if like is not None and step_size is None:
        factor = _best_on(like, model, classes, loss, {**network, **chosen}, task)
        chosen["step_size"] = planning.two_digits(chosen["step_size"] * factor)
    settings = {**network, **chosen}
    seconds = None
    if material is not None:
        seconds = _seconds(material, _training(settings, sizes), sizes)
    made_for = _MadeFor(sizes=sizes, parameters=parameters, seconds=seconds)
    budget = task.epsilon if isinstance(epsilon, Sequence) else float(epsilon)
    assert budget is not None
    return _worth(settings, made_for, budget, delta, relation, noise)


def _training(values: Mapping[str, Any], sizes: tuple[int, ...]) -> Training:
    from trainers.runs.training import training_from

    own = {"data": OWN, "model": OWN, "partition": "given", "train": sum(sizes)}
    return training_from({**own, **values}, where="privaudit.plan")


def _measured(
    model: Any, shares: Any, classes: int | None, loss: Any
) -> tuple[tuple[int, ...], int, Any]:
    """Sizes, number of parameters, and what a user gave, where there are data."""
    from trainers.gradients.per_sample import parameter_vector, trained
    from trainers.runs.material import Material

    if not (isinstance(shares, Sequence) and all(isinstance(n, int) for n in shares)):
        if isinstance(model, int):
            raise ValueError(
                "with the number of parameters, give the number of records of each "
                "node; or the model with the shares"
            )
        material = Material.own(model, shares, classes=classes, loss=loss)
        parameters = parameter_vector(material.module).numel()
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


def _best_on(
    like: Any,
    model: Any,
    classes: int | None,
    loss: Any,
    values: dict[str, Any],
    task: Any,
) -> float:
    """What the step size is best multiplied by, on public data like the shares.

    Four fifths are trained on by one node, with noise that leaves as much signal in
    them as the budget leaves in the shares; a fifth judges.
    """
    import torch

    from privaudit.api.own_training import train
    from trainers.data.shares import Lazy, data_set

    if isinstance(model, int):
        raise ValueError("like is for a model that can be trained on it, not a number")
    whole = data_set(like, "like")
    if isinstance(whole, Lazy):
        inputs, targets = whole.read(torch.arange(len(whole)))
    else:
        inputs, targets = whole.inputs, whole.targets
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    left = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
    (own, judge) = ((inputs[rows], targets[rows]) for rows in left)
    rounds, rate = values["rounds"], values.get("sampling_rate", 1.0)
    ratio = task.signal_to_noise(rounds, rate)
    noise = rate * math.sqrt(rounds) * len(left[0])
    noise /= ratio * math.sqrt(task.parameters)

    def score(factor: float) -> float:
        run = train(
            model,
            [own],
            "dp-sgd",
            noise_multiplier=noise,
            classes=classes,
            loss=loss,
            rounds=rounds,
            sampling_rate=rate,
            clip_norm=values["clip_norm"],
            step_size=values["step_size"] * factor,
            schedule=values.get("schedule"),
            test=judge,
            evaluate="all",
            seed=0,
        )
        result = run.result
        if result.accuracy is not None:
            return result.accuracy
        return -math.inf if result.loss is None else -result.loss

    return max(_REACHES, key=score)
