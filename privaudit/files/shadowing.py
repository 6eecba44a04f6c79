"""Imports of `trainers`: privaudit's own, also where a folder of that name comes first.

A script's folder comes before what is installed. Privaudit's modules import the package
beside them; a user's file what it would without privaudit until then, and from then on
``trainers`` is privaudit's, and what that lacks the user's.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pathlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_NAME = "trainers"
_OWN = pathlib.Path(__file__).resolve().parents[2] / _NAME
_before: list[ModuleType] = []  # the user's, where it was imported first


class _Finder:
    """Says where `trainers` is, by who asks."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As importlib asks of a finder; None: where it would be without this one."""
        if name.partition(".")[0] != _NAME:
            return None
        if name == _NAME:
            return _own_spec() if _asked_by_us() else None
        if not _is_own(sys.modules[_NAME].__path__):
            if not _asked_by_us():
                return None
            _give_way()
            parent = importlib.import_module(name.rpartition(".")[0])
            return PathFinder.find_spec(name, parent.__path__)
        if PathFinder.find_spec(name, path) is None:
            inner = name.split(".")[:-1]
            others = [str(pathlib.Path(place, *inner)) for place in sys.path]
            return PathFinder.find_spec(name, others)
        return None


def install() -> None:
    """Find `trainers` so from now on."""
    if _Finder not in sys.meta_path and (_OWN / "__init__.py").is_file():
        sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]


def of_users(name: str) -> Any:
    """Member ``name`` of the user's own package; ``AttributeError`` if nothing."""
    module = None if name.startswith("_") else _users()
    if module is None or not hasattr(module, name):
        raise AttributeError(
            f"module {_NAME}, privaudit's in {_OWN}, has no attribute {name!r}"
        )
    return getattr(module, name)


@functools.cache
def _users() -> ModuleType | None:
    if _before:
        return _before[0]
    spec = PathFinder.find_spec(_NAME)
    if spec is None or spec.loader is None or _is_own(spec.submodule_search_locations):
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _give_way() -> None:
    """Put privaudit's package in the place of the user's, and of its modules."""
    _before.append(sys.modules[_NAME])
    for name in [name for name in sys.modules if name.partition(".")[0] == _NAME]:
        there = _OWN.joinpath(*name.split(".")[1:])
        if there.is_dir() or there.with_suffix(".py").is_file():
            del sys.modules[name]
    own = _own_spec()
    if own is None or own.loader is None:
        return
    module = sys.modules[_NAME] = importlib.util.module_from_spec(own)
    own.loader.exec_module(module)


def _own_spec() -> ModuleSpec | None:
    return importlib.util.spec_from_file_location(
        _NAME, _OWN / "__init__.py", submodule_search_locations=[str(_OWN)]
    )


def _is_own(places: Sequence[str] | None) -> bool:
    return _OWN in [pathlib.Path(place).resolve() for place in places or ()]


def _asked_by_us() -> bool:
    """Return whether privaudit imports, or multiprocessing for it; not a user."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    while frame.f_back and frame.f_globals.get("__name__") == "importlib":
        frame = frame.f_back
    root = str(frame.f_globals.get("__name__")).partition(".")[0]
    if root == _NAME:
        file = pathlib.Path(frame.f_globals.get("__file__", ""))
        return _OWN in file.resolve().parents
    return root in ("privaudit", "multiprocessing")
