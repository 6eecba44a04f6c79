"""Somebody else's code: found by ``module:function``, called, and never trusted.

What it prints goes to standard error; what it raises ends as one sentence.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any, Literal

from privaudit.files.arguments import near

# Frames that say nothing of where somebody's code went wrong.
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_NOT_THEIRS = (
    "<frozen",
    contextlib.__file__,
    *(os.path.join(_HERE, ours, "") for ours in ("privaudit", "trainers")),
)
_TORCH = os.path.join("site-packages", "torch", "")


class ForeignError(Exception):
    """Somebody's code failed; the message says how, and where in it."""


def is_place(name: str) -> bool:
    """Return whether ``name`` is of the form ``module:function``."""
    module, colon, function = name.partition(":")
    return bool(colon) and all(
        part.isidentifier() for part in [*module.split("."), function]
    )


def function_named(name: str) -> Callable[..., Any]:
    """The function at ``module:function``, in the working directory or installed."""
    found = object_named(name, "function")
    if not callable(found):
        raise ValueError(f"{name} is no function, but of type {type(found).__name__}")
    return found


def object_named(name: str, kind: Literal["function", "class"]) -> Any:
    """Object at ``module:name``, or ``mine.py:name``, called ``kind`` in errors.

    ``ValueError`` if it is not to be had, `ForeignError` if its module fails.
    """
    where, _, what = name.partition(":")
    if not is_place(name):
        raise ValueError(
            f"a {kind} is given as module:{kind}, such as "
            f"{'train:scores' if kind == 'function' else 'train:Gossip'}, got {name}"
        )
    if where.endswith(".py") and os.path.isfile(where):  # a file's name for a module's
        where = where.removesuffix(".py")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as ``python -m`` has it
    try:
        with held(f"import {where}"):
            module = importlib.import_module(where)
            found = getattr(module, what, None)
    except ForeignError as error:
        if isinstance(error.__cause__, ImportError):
            raise ValueError(
                f"cannot import {where}: {error.__cause__}; is it installed, or its "
                "folder in PYTHONPATH?"
            ) from error
        raise
    if found is None:
        own = [name for name, one in vars(module).items() if callable(one)]
        raise ValueError(f"{where} has no {kind} {what}; {near(what, own)}")
    return found


def takes(function: Callable[..., Any], *names: str) -> bool:
    """Return whether ``function`` can be called with arguments of these names alone."""
    try:
        inspect.signature(function).bind(**dict.fromkeys(names))
    except TypeError:
        return False
    except ValueError:  # it does not tell
        pass
    return True


_GENERATORS = ("rng", "generator", "gen", "random")
_SEEDS = ("seed", "random_state")


def _draws(function: Callable[..., Any], before: int = 1) -> tuple[str, bool]:
    """The name of the parameter that draws are made by, and whether it is given by it.

    It is the first of those names after ``before`` others, else the next parameter, if
    it is needed: one that may be left out is an option. ``ValueError`` if the function
    cannot be called so.
    """
    if not callable(function):
        raise ValueError(f"give a function of data and a generator, got {function!r}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # it does not tell
        return "", False
    parameters = [*signature.parameters.values()]
    places = [one for one in parameters if one.kind <= one.VAR_POSITIONAL]
    names = [one.name for one in parameters[before:]]
    name = next((one for one in names if one in (*_GENERATORS, *_SEEDS)), "")
    following = next(iter(places[before:] or places[-1:]), None)
    named = bool(name) and (following is None or following.name != name)
    problem = "none is the generator's"
    needed = following is None or following.default is following.empty
    if name or needed:
        given = [None] * (before if named else before + 1)
        try:
            signature.bind(*given, **({name: None} if named else {}))
        except TypeError as error:
            problem = str(error)
        else:
            return name, named
    size = "size" in signature.parameters
    taken = ("data and size" if before > 1 else "data") + " and a generator alone"
    raise ValueError(
        f"{getattr(function, '__name__', 'the mechanism')}{signature} cannot be given "
        f"{taken} ({problem}): name the generator rng or seed, or bind the other "
        "arguments by functools.partial"
        + ("; one of (data, size, rng) is vectorised" if size or before > 1 else "")
    )


def by_seed(function: Callable[..., Any]) -> Callable[[Any, int], Any]:
    """``function(data, seed)``, where ``function`` may be ``(data, rng)`` as well.

    A parameter that is named as a generator gets ``numpy.random.default_rng(seed)``.
    """
    from numpy.random import default_rng

    name, named = _draws(function)

    def run(data: Any, seed: int) -> Any:
        drawn = default_rng(seed) if name in _GENERATORS else seed
        return function(data, **{name: drawn}) if named else function(data, drawn)

    return run


def by_generator(function: Callable[..., Any], before: int = 1) -> Callable[..., Any]:
    """``function(data, rng)``, where ``function`` may be ``(data, seed)`` as well.

    ``before``: how many other arguments there are.
    """
    name, named = _draws(function, before)

    def run(*all_given: Any) -> Any:
        __tracebackhide__ = True
        *given, rng = all_given
        # numpy's older generators take no larger seed, and so many libraries do not.
        drawn = int(rng.integers(2**32)) if name in _SEEDS else rng
        return function(*given, **{name: drawn}) if named else function(*given, drawn)

    return run


def is_class(name: str) -> bool:
    """Return whether ``module:name`` is an algorithm's class or `Family`."""
    found = object_named(name, "function")
    return isinstance(found, type) or hasattr(found, "algorithm")


def code_digest(function: Callable[..., Any]) -> str | None:
    """A digest of what ``function`` does, by its code; None where that is not known.

    Equal in other processes with this version of Python, whatever names, comments and
    files are. Of a function it is the code, with that of functions of its module that
    it calls, and its defaults; of what an installed package has at its top, the name;
    of a module of torch, its class and settings. Values that a function closes over,
    and tensors, are not in it: they may be of somebody's data.

    >>> code_digest(lambda x: x + 1) == code_digest(lambda x: x + 1)
    True
    >>> code_digest(lambda x: x + 1) == code_digest(lambda x: x + 2)
    False
    """
    try:
        found = repr(_code(function, set()))
    except TypeError:
        return None
    return hashlib.sha256(found.encode()).hexdigest()


_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))


def _code(value: Any, seen: set[Any]) -> Any:
    """As nested tuples of plain values; ``TypeError`` where it is not known."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, tuple | list | frozenset):
        parts = [_code(part, seen) for part in value]
        ordered = sorted(parts, key=repr) if isinstance(value, frozenset) else parts
        return type(value).__name__, *ordered
    if isinstance(value, types.CodeType):
        parts = (value.co_names, value.co_consts, value.co_varnames, value.co_freevars)
        return value.co_code, value.co_argcount, *(_code(part, seen) for part in parts)
    if isinstance(value, functools.partial):
        named = tuple(sorted(value.keywords.items()))
        return "partial", *(_code(one, seen) for one in (value.func, value.args, named))
    if isinstance(value, types.FunctionType) and not _is_of(value, "torch"):
        if value.__code__ in seen:
            return "again"
        seen.add(value.__code__)
        called = [
            _code(other, seen)
            for name in value.__code__.co_names
            if isinstance(other := value.__globals__.get(name), types.FunctionType)
            and other.__module__ == value.__module__
        ]
        named = tuple(sorted((value.__kwdefaults__ or {}).items()))
        return (
            _code(value.__code__, seen),
            *(_code(one, seen) for one in (value.__defaults__, named)),
            *called,
        )
    if _is_of(type(value), "torch") and hasattr(value, "named_parameters"):
        settings = sorted(
            (name, one)
            for name, one in vars(value).items()
            if name[0] != "_" and name != "training" and isinstance(one, _PLAIN)
        )
        inside = [(name, _code(one, seen)) for name, one in value.named_children()]
        return type(value).__qualname__, *settings, *inside
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return value.__module__, value.__qualname__
    raise TypeError("its code is not known")


def _is_of(value: Any, package: str) -> bool:
    return str(value.__module__).partition(".")[0] == package


@contextlib.contextmanager
def held(what: str) -> Iterator[None]:
    """Run somebody's code inside: `ForeignError` says that ``what`` failed, and why."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        raise ForeignError(f"{what}: {told(error)}") from error


@contextlib.contextmanager
def checked(what: str) -> Iterator[None]:
    """As `held`, for what is tried before a run: a failure is a ``ValueError``."""
    try:
        with held(what):
            yield
    except ForeignError as error:
        raise ValueError(str(error)) from error


def told(error: BaseException) -> str:
    """The error in one line, with the innermost place that it came from."""
    words = " ".join(str(error).split())[:500]
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {words}"
    if isinstance(error, ForeignError):  # which says so itself
        return words
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        frame
        for frame in frames
        if not frame.filename.startswith(_NOT_THEIRS) and _TORCH not in frame.filename
    ]
    at = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
    return f"{type(error).__name__}{': ' if words else ''}{words}{at}"
