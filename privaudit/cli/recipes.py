"""`privaudit recipes`: the papers' settings, as files to edit."""

from __future__ import annotations

import pathlib
from typing import Literal

from privaudit.cli.accounts import Json
from privaudit.cli.output import emit


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
        Which recipe.
    out
        The new file; NAME.toml in the working directory by default.
    """
    if action == "copy":
        if name is None:
            raise ValueError("recipes copy needs the NAME of a recipe")
        path = _copy(name, out or pathlib.Path(f"{name}.toml"))
        emit({"file": str(path)}, [str(path)], as_json=json)
        return
    if name is not None or out is not None:
        raise ValueError("recipes list takes no name and no --out; did you mean copy?")
    _list(json)


def _list(as_json: bool) -> None:
    from trainers.recipes import named, names

    found = {name: named(name) for name in names()}
    width = max(map(len, found), default=0)
    emit(
        {
            "recipes": [
                {
                    "name": name,
                    "algorithm": recipe.values["algorithm"],
                    "title": recipe.title,
                    "source": recipe.source,
                    "epsilon": recipe.epsilon,
                    "epsilons": [float(text) for text in recipe.at_epsilon],
                }
                for name, recipe in found.items()
            ]
        },
        [f"{name:<{width}}  {recipe.title}" for name, recipe in found.items()],
        as_json=as_json,
    )


def _copy(name: str, path: pathlib.Path) -> pathlib.Path:
    from trainers.recipes import text

    content = text(name)
    try:
        with path.open("x") as file:
            file.write(content)
    except FileExistsError:
        raise ValueError(f"{path} is there; choose another with --out") from None
    return path
