"""Tests of privacy claims, their sources, and the papers' settings as files."""

from __future__ import annotations

import pathlib
from typing import Annotated, Literal

from cyclopts import Parameter

from privaudit.cli.options import Json, Require
from privaudit.cli.output import emit, status_of


def recipes(
    action: Literal["list", "copy"] = "list",
    name: str | None = None,
    /,
    *,
    out: pathlib.Path | None = None,
    json: Json = False,
) -> None:
    """List the recipes in the package, or copy one into a file to be edited.

    `privaudit train` takes a recipe's name, or such a file.

    Parameters
    ----------
    action
        ``list``, or ``copy`` with a name.
    name
        Name of the recipe to copy.
    out
        The new file; NAME.toml in the working directory by default.
    """
    from trainers.recipes import copied, listed

    if action == "copy":
        if name is None:
            raise ValueError("recipes copy needs the NAME of a recipe")
        path = copied(name, out or pathlib.Path(f"{name}.toml"))
        emit({"file": str(path)}, [str(path)], as_json=json)
        return
    if name is not None or out is not None:
        raise ValueError("recipes list takes no name and no --out; did you mean copy?")
    found = listed()
    width = max(map(len, found), default=0)
    emit(
        {"recipes": [{"name": x, **recipe.summary()} for x, recipe in found.items()]},
        [f"{name:<{width}}  {recipe.title}" for name, recipe in found.items()],
        as_json=json,
    )


Which = Annotated[
    str | None,
    Parameter(
        help="A paper, 000 to 004; network, accounts of decentralised "
        "training that papers share; or a .toml file of your own claims."
    ),
]


def claims(
    which: Which = None,
    /,
    *,
    quick: bool = False,
    out: pathlib.Path = pathlib.Path("runs/claims"),
    workers: int | None = None,
    require: Require = None,
    json: Json = False,
) -> int:
    """Test claims of epsilon from above and below; all five papers' by default.

    Status 1 if one is refuted by an attack, or disproved by a calculation.

    Parameters
    ----------
    quick
        From accounts alone: seconds, no attack, no torch.
    out
        Where the attacks keep their runs; what is there is not run again.
    workers
        Number of threads of an attack.
    """
    from privaudit.api.claims import findings_on
    from privaudit.api.console import Console

    findings = findings_on(
        which, quick=quick, out=out, workers=workers, watch=Console()
    )
    lines = [line for finding in findings for line in finding.lines()]
    emit({"claims": [one.summary() for one in findings]}, lines, as_json=json)
    return status_of((one.verdict for one in findings), require)


def cite(what: str, /, *, json: Json = False) -> None:
    """Print BibTeX of a claim's paper, and of the methods behind a run or a claim.

    Parameters
    ----------
    what
        A finished run's folder; a claim, such as 000/uniform-sample; or a paper's
        number, for all of its claims.
    """
    from privaudit.api.claims import cite

    text = cite(what)
    emit({"of": what, "bibtex": text}, text.splitlines(), as_json=json)
