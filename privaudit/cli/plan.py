"""`privaudit plan`: settings of a training for a budget, from public numbers."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Any

from privaudit.cli.options import Changes, Flat, Json
from privaudit.cli.output import emit
from privaudit.results import DELTA
from privaudit.settings import NoiseBy, TrainingSettings
from privaudit.task_settings import OPEN, changes_of, placed


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Asked:
    """The nodes, the model and the budget.

    Parameters
    ----------
    sizes
        Number of records of each node, such as 150,110,80.
    parameters
        Number of trained parameters.
    data
        Instead of sizes: your data, as `privaudit train` takes them; only sizes and
        shapes are looked at.
    model
        Instead of parameters, with --data: module:function, or a model's name.
    classes
        How many classes the labels have, where the model is a name.
    epsilon
        The budget of every node. Default: 1.
    budgets
        Instead of it: the budget of each node, such as 2,2,1.
    delta
        Delta of the budget, in (0, 1).
    noise
        one: the noise that all nodes' budgets need, at all of them. per-node: each adds
        as little as its own needs. Default: one, with --budgets per-node.
    algorithm
        An algorithm that releases noisy gradients.
    graph
        Who hears whom. Default: complete, of more than 16 nodes exponential.
    overlap
        At how many nodes one record may be.
    like
        module:function of public data, inputs and targets, of the shape of yours, on
        which three step sizes are tried. It costs nothing if they are public.
    out
        A new file for the plan, which `privaudit train` takes as a recipe.
    """

    sizes: str | None = None
    parameters: int | None = None
    data: str | None = None
    model: str | None = None
    classes: int | None = None
    epsilon: float | None = None
    budgets: str | None = None
    delta: float = DELTA
    noise: NoiseBy | None = None
    algorithm: str = "dp-dsgt"
    graph: str | None = None
    overlap: int = 1
    like: str | None = None
    out: pathlib.Path | None = None

    def task(self) -> dict[str, Any]:
        """Model and shares, as `privaudit.plan` takes them; ``ValueError``."""
        if (self.sizes is None) == (self.data is None):
            raise ValueError("give --sizes with --parameters, or --data with --model")
        if self.sizes is not None:
            if self.parameters is None or self.model or self.classes:
                raise ValueError("with --sizes give --parameters, and no model")
            try:
                sizes = [int(size) for size in self.sizes.split(",")]
            except ValueError:
                raise ValueError(
                    "--sizes are whole numbers, one a node, such as 150,110,80, got "
                    f"{self.sizes}"
                ) from None
            return {"model": self.parameters, "shares": sizes}
        assert self.data is not None
        if self.model is None or self.parameters is not None:
            raise ValueError("with --data give --model, and no --parameters")
        task = own_task(self.data, self.model, self.classes)
        return {name: task[name] for name in ("model", "shares", "classes")}


def own_task(data: str, model: str, classes: int | None) -> dict[str, Any]:
    """A user's model and data, as `privaudit.train` takes them; ``ValueError``."""
    from privaudit.files.user_code import is_place
    from trainers.runs.material import OwnData, model_made

    found = OwnData.load(placed(data))
    if found.nodes is None:
        raise ValueError(
            f"{data} gives one data set, and a plan is for nodes: have it give a list "
            "with one a node, or plan with --sizes and --parameters"
        )
    return {
        "model": model_made(model, 0) if is_place(model) else model,
        "shares": found.shares,
        "classes": found.classes if classes is None else classes,
        "test": found.test,
    }


def number(text: str) -> Any:
    """A number, where ``text`` is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip()


def plan(
    *,
    asked: Annotated[_Asked, Flat] = _Asked(),  # frozen
    changes: Changes = (),  # type: ignore[assignment]  # cyclopts' empty list
    json: Json = False,
) -> None:
    """Choose settings of a training for a budget, from sizes, model and epsilon.

    Of data nothing but their sizes and shapes is looked at, so a plan costs no privacy.
    Rounds, sampling rate (or batch size), clip norm, step size and schedule stay as
    --set has them.
    """
    from privaudit.api.planning import plan

    budgets = TrainingSettings(epsilon=asked.epsilon, budgets=asked.budgets).each_budget
    given = changes_of(changes)
    for name in given:
        if name not in OPEN:
            raise ValueError(f"--set {name} is not planned: {', '.join(OPEN)} are")
    values = {name: number(text) for name, text in given.items()}
    task = asked.task()
    if asked.like is not None:
        from privaudit.files.user_code import checked, function_named

        if asked.data is None:
            raise ValueError("--like is of a model: give --model and --data")
        with checked(f"like {asked.like}"):
            task["like"] = function_named(asked.like)()
    found = plan(
        task.pop("model"),
        task.pop("shares"),
        budgets or (1.0 if asked.epsilon is None else asked.epsilon),
        algorithm=asked.algorithm,
        graph=asked.graph,
        delta=asked.delta,
        noise=asked.noise,
        overlap=asked.overlap,
        **task,
        **values,
    )
    if asked.out is not None:
        found.save(asked.out)
    out = None if asked.out is None else str(asked.out)
    lines = [*found.lines(), *([f"the plan is in {out}"] if out else [])]
    emit({**found.summary(), "out": out}, lines, as_json=json)
