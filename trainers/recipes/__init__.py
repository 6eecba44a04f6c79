"""The papers' settings, as files that a user can copy and edit.

A recipe is flat TOML: settings of `trainers.runs.training.Training`, options of its
algorithm, and the fields of `Recipe`. A table ``[at_epsilon."0.5"]`` has what differs
where the claimed epsilon is .5.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import os
import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from privaudit.files import json as _json
from privaudit.files import toml as _toml
from privaudit.files.arguments import near
from privaudit.files.errors import explained
from privaudit.files.json import Summary
from privaudit.results import Relation
from privaudit.settings import Compute, NoiseBy, Precision, TrainingSettings
from privaudit.task_settings import laid_over

_COMPUTE = [field.name for field in dataclasses.fields(Compute)]
_FOLDER = importlib.resources.files(__name__)


class MadeFor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Public numbers that `privaudit.plan` chose settings for: table ``[plan]``."""

    sizes: tuple[int, ...]
    parameters: int
    seconds: float | None = None


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A recipe: the settings of one training, as in its file.

    Claim, seed and device are None where the command line's own defaults stand.
    """

    title: str = ""
    source: str = ""  # where its figures come from
    epsilon: float | None = None
    budgets: str | None = None
    noise: NoiseBy | None = None
    delta: float | None = None
    relation: Relation | None = None
    seed: int | None = None
    device: str | None = None
    compiled: bool | None = None
    precision: Precision | None = None
    plan: MadeFor | None = None
    values: dict[str, Any] = {}  # all other keys: settings and options
    at_epsilon: dict[str, dict[str, Any]] = {}  # more of these, by claimed epsilon

    def __post_init__(self) -> None:
        TrainingSettings(**self.run_settings())  # raises

    def run_settings(self) -> dict[str, Any]:
        """Claim, seed and device, by name; what the recipe leaves open is not in it."""
        claim = ("epsilon", "budgets", "noise", "delta", "relation")
        return {
            name: getattr(self, name)
            for name in (*claim, "seed", *_COMPUTE)
            if getattr(self, name) is not None
        }

    @property
    def each_budget(self) -> tuple[float, ...] | None:
        """Epsilon of each node, where ``budgets`` have it."""
        return TrainingSettings(budgets=self.budgets).each_budget

    def settings(self, epsilon: float | None = None) -> dict[str, Any]:
        """Settings and options for a claim of ``epsilon``, over the algorithm's own.

        Raises ``ValueError`` if the recipe has some for others, but none for it.
        """
        epsilon = self.epsilon if epsilon is None else epsilon
        special: Mapping[str, Any] = {}
        if self.at_epsilon:
            found = [
                more for text, more in self.at_epsilon.items() if float(text) == epsilon
            ]
            if not found and epsilon is None:
                raise ValueError(
                    "this recipe has settings for epsilon "
                    f"{', '.join(self.at_epsilon)} only: choose one with --epsilon"
                )
            if not found:
                raise ValueError(
                    f"this recipe has no settings for epsilon {epsilon:g}, only for "
                    f"{', '.join(self.at_epsilon)}: choose one of these, or copy the "
                    "recipe and add a table"
                )
            special = found[0]
        from trainers.algorithms import family_named

        own = family_named(str(self.values["algorithm"])).defaults
        return laid_over(laid_over(own, self.values), special)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Entry for a recipe of the package, read without torch and not checked further."""

    algorithm: str
    title: str = ""
    source: str = ""
    epsilon: float | None = None
    at_epsilon: dict[str, dict[str, Any]] = {}

    @property
    def epsilons(self) -> list[float]:
        """Those that it has settings for."""
        return [float(text) for text in self.at_epsilon]

    summary = Summary("algorithm title source epsilon epsilons")


def listed() -> dict[str, Listed]:
    """The recipes in the package, by name, in order."""
    return {name: _json.convert(tomllib.loads(text(name)), Listed) for name in names()}


def names() -> list[str]:
    """Names of the recipes in the package, in order.

    >>> "bayrooti-mnist-dsgt" in names()
    True
    """
    return sorted(
        file.name.removesuffix(".toml")
        for file in _FOLDER.iterdir()
        if file.name.endswith(".toml")
    )


def text(name: str) -> str:
    """Text of the file of recipe ``name``; ``ValueError`` if there is none."""
    if name not in names():
        raise ValueError(f"there is no recipe {name!r}; {near(name, names())}")
    return (_FOLDER / f"{name}.toml").read_text()


def copied(name: str, path: pathlib.Path) -> pathlib.Path:
    """Copy recipe ``name`` into the new file ``path``, and return ``path``.

    Raises ``ValueError`` if there is no such recipe, or ``path`` exists.
    """
    content = text(name)
    try:
        with path.open("x") as file:
            file.write(content)
    except FileExistsError:
        raise ValueError(f"{path} exists; choose another with --out") from None
    return path


def named(name: str) -> Recipe:
    """The recipe ``name`` of the package; ``ValueError`` if there is none."""
    return parse(text(name), where=f"recipe {name}")


def read(path: str | os.PathLike[str]) -> Recipe:
    """The recipe in the file at ``path``.

    Raises ``ValueError`` if it cannot be read or is none, with the line or the key.
    """
    try:
        found = _toml.read(pathlib.Path(path))
    except OSError as error:
        found = [file.name for file in pathlib.Path().glob("*.toml")]
        advice = near(str(path), found) if found else ""
        raise ValueError(
            f"cannot read {path}: {error.strerror}{'; ' * bool(advice)}{advice}"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return _recipe(found, where=str(path))


def parse(content: str, *, where: str) -> Recipe:
    """The recipe that ``content`` is; ``where`` it is from is named in errors."""
    try:
        found = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: {error}") from None
    return _recipe(found, where=where)


def _recipe(found: dict[str, Any], *, where: str) -> Recipe:
    from trainers.algorithms import ALGORITHMS, family_named
    from trainers.runs.training import Training, training_from

    own = [name for name in Recipe.__struct_fields__ if name != "values"]
    given = {name: found.pop(name) for name in own if name in found}
    if "algorithm" not in found:
        raise ValueError(
            f"{where}: algorithm is missing: choose one of {', '.join(ALGORITHMS)}"
        )
    try:
        options = family_named(str(found["algorithm"])).options
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    known = [*own, *Training.__struct_fields__, *options.__struct_fields__]
    for name in found:
        if name not in known:
            raise ValueError(f"{where}: there is no key {name!r}; {near(name, known)}")
    for name in given.get("plan", ()):
        if name not in MadeFor.__struct_fields__:
            advice = f"write {name} above the line [plan]"
            if name not in known:
                advice = near(name, MadeFor.__struct_fields__)
            raise ValueError(f"{where}: [plan] has no key {name!r}; {advice}")
    try:
        recipe = _json.convert({**given, "values": found}, Recipe)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {explained(error, Recipe)}") from None
    for text in recipe.at_epsilon:
        try:
            right = float(text) > 0
        except ValueError:
            right = False
        if not right:
            raise ValueError(
                f"{where}: at_epsilon has tables by claimed epsilon, > 0, such as "
                f'[at_epsilon."0.5"], got {text!r}'
            )
    for epsilon in recipe.at_epsilon or [None]:
        values = recipe.settings(None if epsilon is None else float(epsilon))
        training_from(values, where=where)
    return recipe
