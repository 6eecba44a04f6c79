"""`privaudit recipes`: the papers' settings, as files to edit."""

from __future__ import annotations

import pathlib
from typing import Literal

from privaudit.cli.options import Json
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
