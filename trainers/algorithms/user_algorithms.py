"""Algorithms of a user's: ``module:Class`` wherever a name of the registry goes.

What is at that place is a class with ``init``, ``messages``, ``round`` and ``models``
(`trainers.network.engine.Algorithm`), a `Family`, or a subclass of `Family` that can be
made without arguments. A class is made with its step size schedule; its other
parameters are its options, each with a default. What more there is to say of it are
plain attributes of the class, all of which may be left out::

    private = True      # False: its oracle neither clips nor adds noise
    needs = ("doubly stochastic", "connected")
    defaults = {"step_size": 0.1}

    def releases(self, rounds): ...  # gradients a node asks for; as many by default
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, cast

import msgspec

from privaudit.files import json as _json
from privaudit.files.user_code import ForeignError, held, object_named, told
from trainers.algorithms.family import Family
from trainers.algorithms.setting import Options, Setting

METHODS = {
    "init": "init(start)",
    "messages": "messages(state, k)",
    "round": "round(state, inbox, private, k)",
    "models": "models(state)",
}
_SAID = ("private", "central", "over_ranks", "outlives", "needs", "defaults", "audited")
_PLAIN = (bool, int, float, str, type(None))


class UserFamily(Family):
    """The family of a class that is no `Family` itself."""

    def releases(self, setting: Setting) -> int:
        """As the class says; one a round if it says nothing."""
        asked = getattr(self.algorithm(setting), "releases", None)
        return setting.rounds if asked is None else asked(setting.rounds)


def family_at(name: str) -> Family:
    """The family of the algorithm at ``module:Class``."""
    found = object_named(name, "class")
    if isinstance(found, Family):
        return found
    if not isinstance(found, type):
        raise ValueError(
            f"{name} is no algorithm, but of type {type(found).__name__}: an algorithm "
            f"is a class with {', '.join(METHODS)}"
        )
    if issubclass(found, Family):
        try:
            return cast(Callable[[], Family], found)()
        except TypeError as error:
            raise ValueError(
                f"{name} cannot be made without arguments ({error}); give its fields "
                "defaults"
            ) from None
    return _family_of(name, found)


@functools.lru_cache(maxsize=64)  # so that its options are one type
def _family_of(name: str, kind: type) -> Family:
    for method, how in METHODS.items():
        if not callable(getattr(kind, method, None)):
            raise ValueError(
                f"{name} has no method {how}: an algorithm has {', '.join(METHODS)}"
            )
    fields, make = _options_of(name, kind), _theirs(_telling(name, kind), name)

    def check(options: UserOptions) -> None:
        make(lambda k: 1.0, **options.arguments(1))

    options = msgspec.defstruct(
        f"{kind.__name__}Options",
        [(field, *how) for field, how in fields.items()],
        bases=(UserOptions,),
        namespace={"__post_init__": check},
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    try:
        _json.convert({}, options)
    except TypeError as error:
        raise ValueError(f"an option of {name} is of no plain type: {error}") from None
    said: dict[str, Any] = {"private": True}
    said |= {field: getattr(kind, field) for field in _SAID if hasattr(kind, field)}
    return UserFamily(make=make, options=cast(type[Options], options), **said)


class UserOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of a user's algorithm: all of its options, None as well."""

    def arguments(self, rounds: int) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def _options_of(name: str, kind: type) -> dict[str, tuple[Any, Any]]:
    """Type and default of each parameter behind the step size."""
    with held(name):
        parameters = [*inspect.signature(kind).parameters.values()]
        # A dataclass' own __init__ has its parents' types, by names that it lacks.
        written = inspect.getfile(kind.__init__) != "<string>"
        types = typing.get_type_hints(kind.__init__ if written else kind)
    if not parameters:
        raise ValueError(
            f"{name} takes no step size: it is made with a schedule, a function of the "
            "round, as its first argument"
        )
    found = {}
    for one in parameters[1:]:
        if not isinstance(one.default, _PLAIN):
            raise ValueError(
                f"the option {one.name} of {name} has no plain default: give it a "
                "number, a text, true or false, or None"
            )
        found[one.name] = (types.get(one.name, type(one.default)), one.default)
    return found


def _telling(name: str, kind: type) -> type:
    """``kind``; what fails in its methods is told as the user's own fault."""
    methods = {
        method: _theirs(getattr(kind, method), f"{name}.{method}")
        for method in (*METHODS, "local", "releases")
        if callable(getattr(kind, method, None))
    }
    return type(kind.__name__, (kind,), {"__slots__": (), **methods})


def _theirs(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``call``, whose faults are `ForeignError`; a ``ValueError`` stays what it is."""

    @functools.wraps(call, updated=())
    def called(*given: Any, **more: Any) -> Any:
        try:
            return call(*given, **more)
        except (ValueError, ForeignError, MemoryError):
            raise
        except Exception as error:
            raise ForeignError(f"{name}: {told(error)}") from error

    return called
