"""Settings that `--set` takes: shown after an algorithm's help, and where they lack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from privaudit.task_settings import OPEN, TaskSettings, check_no_table

if TYPE_CHECKING:
    import cyclopts

    from trainers.runs.training import Training

SETTING = ("train", "audit", "probe", "views")  # commands that have --set
_SHOWN_ONCE = ("algorithm", "options")


def hint(command: str, error: cyclopts.CycloptsError) -> str:
    """Text of ``error``, and how to give a setting that stands there by itself."""
    import cyclopts

    said = str(error)
    if isinstance(error, cyclopts.RepeatArgumentError) and error.token is not None:
        return f"{error.token.keyword} is given more than once: give it once"
    if command in ("train", "tune") and said.startswith("Unknown option: --plan"):
        return f"a plan's file comes first: privaudit {command} plan.toml"
    if command == "train" and "parameter WHAT" in said:
        return "say first what trains: an algorithm, such as dp-dsgt, or a plan's file"
    unused = getattr(error, "unused_tokens", None)
    tokens = unused or [getattr(getattr(error, "token", None), "keyword", None) or ""]
    token = str(tokens[0])
    dashes, name, value = re.fullmatch(r"(-*)([^=]*)=?(.*)", token, re.S).groups()  # type: ignore[union-attr]
    name = name.replace("-", "_")
    if command == "audit" and name in ("command", "batch", "time_limit", "retries"):
        return f"{token} is for a program of yours: see privaudit audit-program"
    if command in SETTING and (dashes or "=" in token) and name in _names():
        return f"{token} is a setting: use --set {name}={value or '...'}"
    if dashes or not unused or token == command:  # no command
        return said
    try:
        check_no_table(token)
    except ValueError as error:
        enough = "; a plan needs none: --sizes and --parameters are enough"
        return f"{error}{enough * (command == 'plan')}"
    return f"{token} is more than it takes: see privaudit {command} --help"


def _names() -> set[str]:
    """Settings of trainings, and options of algorithms where trainers are installed."""
    names = set(TaskSettings.__struct_fields__).difference(_SHOWN_ONCE)
    try:
        from trainers.algorithms import option_names
    except ModuleNotFoundError:
        return names
    return names | option_names()


def lines(command: str, what: str) -> list[str]:
    """The settings of ``what``, an algorithm or a recipe: defaults and meanings.

    Raises ``ValueError`` if it is neither.
    """
    training = _training(command, what)
    values = {name: getattr(training, name) for name in training.__struct_fields__}
    options = training.algorithm_options()
    chosen = {name: getattr(options, name) for name in options.__struct_fields__}
    found = [f"Settings of {what}, as --set NAME=VALUE, with their defaults:", ""]
    from trainers.runs.planning import is_planned

    if command == "train" and is_planned(training):
        found.insert(1, f"(of your own data, by the budget: {', '.join(OPEN)})")
    found += _told(_meanings([TaskSettings]), values)
    if chosen:
        found += [f"Options of {training.algorithm} alone, also by --set:", ""]
        found += _told(_meanings(type(options).__mro__), chosen)
    return found


def _training(command: str, what: str) -> Training:
    if command in ("train", "views"):
        from privaudit.api.trainings import recipe_of
        from trainers.runs.training import training_from

        return training_from(recipe_of(what).settings(), where=what)
    from privaudit.auditing.experiments.presets import AUDITED, training_upon

    defaults = AUDITED
    if command == "probe":
        from privaudit.auditing.probes.algorithm import PROBED

        defaults = PROBED
    return training_upon(what, {}, defaults, what)


def _meanings(kinds: Sequence[type]) -> list[tuple[list[str], str]]:
    """Names that are explained together, and how, of the nearest class that does."""
    from docstring_parser import parse

    found: list[tuple[list[str], str]] = []
    known: set[str] = set()
    for kind in kinds:
        for one in parse(kind.__doc__ or "").params:
            names = [name.strip() for name in one.arg_name.split(",")]
            if known.isdisjoint(names):
                found.append((names, " ".join((one.description or "").split())))
                known.update(names)
    return found


def _told(
    meanings: Iterable[tuple[list[str], str]], values: dict[str, Any]
) -> list[str]:
    """``name=default`` of each, and what they mean, wrapped."""
    from textwrap import wrap

    told: list[str] = []
    known = _known()
    left = dict(values)
    for names, meaning in meanings:
        here_names = [name for name in names if name in left]
        here = [_given(name, left.pop(name)) for name in here_names]
        if not here or set(names) & set(_SHOWN_ONCE):
            continue
        plain = re.sub(r"`+", "", meaning).replace("None:", "Not set:")
        for name in known.keys() & set(here_names):
            plain += f" Names: {', '.join(known[name])}."
        told += [f"  {'  '.join(here)}", *(f"      {x}" for x in wrap(plain, 74)), ""]
    for name in _SHOWN_ONCE:
        left.pop(name, None)
    return told + [f"  {_given(name, value)}" for name, value in left.items()]


def _given(name: str, value: Any) -> str:
    if value is None:
        return f"{name} (not set)"
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    if isinstance(value, float):
        value = f"{value:g}"
    return f"{name}={str(value).lower() if isinstance(value, bool) else value}"


def _known() -> dict[str, Iterable[str]]:
    """Names that a setting may have."""
    from trainers.data import DATASETS
    from trainers.models import MODELS
    from trainers.network.named_graphs import GRAPHS

    return {"graph": GRAPHS, "data": DATASETS, "model": MODELS}
