"""`privaudit tune`: the best of several trainings, with the tries charged."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from privaudit.cli import FINE
from privaudit.cli.options import Flat, Json, Require, Sign, check_key, kept
from privaudit.cli.output import status_of, tell
from privaudit.cli.plan import number, own_task
from privaudit.files.folder import TRIES, numbered
from privaudit.settings import RunSettings, TrainingSettings
from privaudit.task_settings import changes_of

Plan = Annotated[
    pathlib.Path,
    Parameter(help="The file of a plan, as `privaudit plan --out` writes it."),
]
Grid = Annotated[
    list[str],
    Parameter(
        name="--grid",
        negative=(),
        help="Values of a setting to try, as key=value,value: step_size=0.1,0.3; may "
        "be repeated, for all combinations.",
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Tried:
    """The data, and what is tried on them.

    Parameters
    ----------
    data
        Your data, as `privaudit train` takes them, one data set a node.
    model
        module:function of yours that returns a torch module; or a name, with --classes.
    classes
        How many classes the labels have, where the model is a name.
    loss
        module:function of yours that returns the loss of outputs and targets. Default:
        cross entropy.
    tries
        How many tries on the private data, on average. Default: the number of
        candidates.
    law
        Law of the secret number of tries: poisson, geometric, logarithmic or a shape;
        all: each candidate once, charged for whoever sees every try.
    like
        module:function of public data, inputs and targets, on which all candidates are
        tried instead; only the best is trained on the private data. It costs nothing
        if they are public.
    judge
        module:function of public data on which tries on the private data are judged.
        Default: by a noisy count of the private records, which is charged.
    device
        cpu, cuda or cuda:NUMBER.
    out
        A folder for the run, in which the same command goes on if it was stopped, by
        default one in runs. Until the end its part ``tries``, its owner's alone, has
        what must stay secret.
    """

    data: str
    model: str
    classes: int | None = None
    loss: str | None = None
    tries: float | None = None
    law: str = "poisson"
    like: str | None = None
    judge: str | None = None
    device: str | None = None
    out: pathlib.Path | None = None

    def arguments(self, kept: RunSettings) -> dict[str, Any]:
        """Arguments of `privaudit.tune` but the plan and the grid; ``ValueError``."""
        from privaudit.files.user_code import checked, function_named

        found: dict[str, Any] = {}
        for name, place in (("like", self.like), ("judge", self.judge)):
            if place is not None:
                with checked(f"{name} {place}"):
                    found[name] = function_named(place)()
        if self.loss is not None:
            found["loss"] = function_named(self.loss)
        task = own_task(self.data, self.model, self.classes)
        settings = TrainingSettings(
            **kept.kept(), device=self.device, classes=task.pop("classes")
        )
        own = {"tries": self.tries, "law": number(self.law), "settings": settings}
        return {**task, **found, **own}


def tune(
    plan: Plan,
    /,
    *,
    grid: Grid,
    tried: Annotated[_Tried, Flat],
    settings: Annotated[RunSettings, Flat] = RunSettings(),  # noqa: B008  # frozen
    sign: Sign = None,
    require: Require = None,
    json: Json = False,
) -> int:
    """Train with several settings; keep the best, within the budget of the plan.

    Tries on private data are charged: all have so much noise that the best one meets
    the budget, for whoever sees it and nothing of the others. How many there are is
    drawn, and stays secret; so must the time that they take, and the certificate
    assumes so.
    """
    from privaudit.api.console import Console
    from privaudit.api.trainings import Trained
    from privaudit.api.tuning import tune

    check_key(sign)
    out = tried.out or _folder(plan.stem)
    found = tune(
        plan, _grid(grid), **tried.arguments(settings), out=out, watch=Console()
    )
    done = Trained(out, found.config, found.result, found.result.remarks)
    tell(done, kept(out, sign), as_json=json)
    return FINE if done.status is None else status_of([done.status], require)


def _grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Values by setting; ``ValueError`` for what is no key=value,value."""
    given = changes_of(texts)
    return {x: [number(one) for one in str(given[x]).split(",")] for x in given}


def _folder(name: str) -> pathlib.Path:
    """A folder of tries that were stopped, or a new one."""
    return next(
        path
        for path in numbered(pathlib.Path("runs", f"tune-{name}"))
        if not path.exists()
        or ((path / TRIES).is_dir() and not (path / "result.json").exists())
    )
