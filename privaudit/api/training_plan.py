"""A plan: settings of a training for a budget, and what they are worth."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from privaudit.accounting.account import account_nodes
from privaudit.files.arguments import public_class
from privaudit.files.json import Summary
from privaudit.files.notebook import box
from privaudit.results import DELTA, Claim, Relation, round_up
from privaudit.settings import NoiseBy, TrainingSettings
from privaudit.task_settings import OWN, laid_over

if TYPE_CHECKING:
    from trainers.recipes import MadeFor
    from trainers.runs.training import Training

MOST_SAID = 12  # nodes that have a line of their own


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
    (0.16, [2.0, 2.0, 2.0, 2.0, 2.0])
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

    @property
    def budgets(self) -> tuple[float, ...]:
        """Epsilon of each node."""
        if isinstance(self.epsilon, tuple):
            return self.epsilon
        return (self.epsilon,) * len(self.sizes)

    def under(self, settings: TrainingSettings) -> TrainingSettings:
        """``settings``, with its budget where they leave that open.

        Raises ``ValueError`` if they have another delta.
        """
        if settings.delta not in (None, self.delta):
            raise ValueError(
                f"the plan is for delta {self.delta:g}, got {settings.delta:g}: leave "
                "delta out, or make a plan for it"
            )
        own = {"overlap": self.settings.get("overlap"), "relation": self.relation}
        if settings.noise_multiplier is None:
            own["noise"] = self.noise
            if settings.budget is None:
                own |= setting_of(self.epsilon)
        return settings.over(delta=self.delta, **own)

    def over(self, given: Mapping[str, Any], shares: Sequence[Any] | None) -> Any:
        """Its settings for ``shares``, with those ``given`` in their place.

        Raises ``ValueError`` if it is for nodes of other sizes.
        """
        if shares is not None:
            check_planned(self.sizes, [*map(len, shares)])
        apart = ("algorithm", "graph", "nodes", "overlap")
        own = {name: x for name, x in self.settings.items() if name not in apart}
        return laid_over(own, given)

    summary = Summary(
        "settings sizes parameters epsilon delta relation noise noise_multiplier "
        "certified signal_to_noise seconds remarks"
    )

    def lines(self) -> list[str]:
        """A table for the terminal, and remarks in sentences."""
        told = {**self.settings, "clip_norm": f"{self.settings['clip_norm']:g}"}
        width = max(map(len, told))
        lines = [f"{name:<{width}}  {value}" for name, value in told.items()]
        rows = list(zip(self.sizes, self.noise_multiplier, self.certified, strict=True))
        lines += ["", f"{'node':>4}  {'records':>9}  {'noise':>8}  certified epsilon"]
        for node, (size, noise, epsilon) in enumerate(rows[:MOST_SAID]):
            lines.append(f"{node:>4}  {size:>9,}  {noise:>8.4g}  {round_up(epsilon)}")
        if len(rows) > MOST_SAID:
            least, most = min(self.certified), max(self.certified)
            left = len(rows) - MOST_SAID
            lines.append(
                f"and {left:,} more; all from {round_up(least)} to {round_up(most)}"
            )
        ordinary = round_up(statistics.median_high(self.certified))
        if ordinary != round_up(max(self.certified)):
            lines.append(f"an ordinary node, the median, spends {ordinary}")
        lines.append("")
        lines.append(
            f"signal to noise, at most {self.signal_to_noise:.3g} over all rounds "
            f"({self.parameters:,} parameters, {sum(self.sizes):,} records)"
        )
        if self.seconds is not None:
            lines.append(
                f"gradients and noise take about {self.seconds:.3g} s on this machine, "
                "beside some milliseconds a round"
            )
        return [*lines, *self.remarks]

    def to_toml(self) -> str:
        """A recipe's file, which ``privaudit train`` takes, and `TrainingPlan.read`."""
        own = {name: value for name, value in self.settings.items() if name != "nodes"}
        own |= setting_of(self.epsilon)
        if self.noise is not None:
            own["noise"] = self.noise
        own |= {"delta": self.delta, "relation": self.relation}
        made_for: dict[str, Any] = {"sizes": self.sizes, "parameters": self.parameters}
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
    def of(cls, plan: TrainingPlan | str | os.PathLike[str]) -> TrainingPlan:
        """``plan`` itself, or that in the file of this name."""
        return plan if isinstance(plan, TrainingPlan) else cls.read(plan)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> TrainingPlan:
        """The plan in a file that `save` wrote, with noise and figures computed anew.

        Raises ``ValueError`` if there is none.
        """
        from trainers import recipes

        recipe = recipes.read(path)
        if recipe.plan is None:
            raise ValueError(f"{path} is no plan: it has no table [plan]")
        budget = recipe.epsilon if recipe.budgets is None else recipe.each_budget
        if budget is None:
            raise ValueError(f"{path} is no plan: it has no epsilon")
        return worth(
            recipe.settings(),
            recipe.plan,
            budget,
            DELTA if recipe.delta is None else recipe.delta,
            recipe.relation,
            recipe.noise,
        )

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return box("a plan", self.lines())


def check_planned(planned: Sequence[int], sizes: Sequence[int]) -> None:
    """``ValueError`` if a plan is for nodes of other ``sizes``."""
    if tuple(planned) != tuple(sizes):
        raise ValueError(
            f"the plan is for nodes of {list(planned)} records, and these have "
            f"{list(sizes)}: make one for these, or give its own data (--data)"
        )


def _table(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {json.dumps(value)}" for name, value in values.items()]


def worth(
    settings: dict[str, Any],
    made_for: MadeFor,
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
    training = training_of(settings, sizes)
    more = {"delta": delta, "noise": noise, "relation": relation}
    asked = TrainingSettings(**setting_of(epsilon), **more)
    claim = claimed(training, "privaudit.plan", asked)
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


def budget_of(epsilon: Any) -> float | tuple[float, ...]:
    """Budget of all nodes, or, given as a list or an array, of each."""
    if hasattr(epsilon, "tolist"):
        epsilon = epsilon.tolist()
    several = isinstance(epsilon, Sequence)
    return tuple(map(float, epsilon)) if several else float(epsilon)


def setting_of(epsilon: float | tuple[float, ...]) -> dict[str, Any]:
    """Setting that has the budget of all nodes, or of each."""
    if isinstance(epsilon, tuple):
        return {"budgets": ",".join(map(repr, epsilon))}
    return {"epsilon": epsilon}


def claimed(
    training: Training,
    source: str,
    settings: TrainingSettings,
    observer: str | UnsetType = UNSET,
) -> Claim:
    """Claim of a training with the budget in ``settings``; infinite without one."""
    assert settings.delta is not None
    return Claim(
        epsilon=max(settings.each_budget or (settings.epsilon or math.inf,)),
        delta=settings.delta,
        relation=training.relation(settings.relation),
        unit=training.unit,
        source=source,
        observer=observer,
        overlap=training.told_overlap,
    )


def training_of(values: Mapping[str, Any], sizes: tuple[int, ...]) -> Training:
    from trainers.runs.training import training_from

    own = {"data": OWN, "model": OWN, "partition": "given", "train": sum(sizes)}
    return training_from({**own, **values}, where="privaudit.plan")
