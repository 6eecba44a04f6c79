"""Plans of sweeps: many audits from one TOML file.

    [all]                       # what every audit has in common
    runs = 500

    [grid]                      # every combination is an audit
    algorithm = ["dp-dsgd", "dp-dsgt"]
    epsilon = [1.0, 4.0]
    adversary = ["neighbour", "final-loss"]

    [[audit]]                   # one more each
    algorithm = "dp-dinno"
    inner_steps = 3

A setting is one of `privaudit.settings.AuditSettings`, of
`privaudit.task_settings.TaskSettings`, or an option of the algorithm. Audits that name
no seed share one, and with it the worlds of their runs. An audit's name, which is its
folder's, follows from its own settings, so that a file can grow: what is done stays
done.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, Self

import msgspec

from privaudit.auditing.experiments.plan import Audit, certified_claim, planned
from privaudit.files import json as _json
from privaudit.files import toml as _toml
from privaudit.files.arguments import near
from privaudit.files.errors import explained
from privaudit.files.folder import RunFolder
from privaudit.files.user_code import is_place
from privaudit.settings import AccountSettings, AuditSettings
from privaudit.task_settings import renamed
from trainers.algorithms import option_names
from trainers.runs.budget import noise_of
from trainers.runs.problem import Problem
from trainers.runs.training import Training

_MOST = 10_000  # audits of a sweep
_LONG = 100  # characters of a name
_CHOICES = [field.name for field in dataclasses.fields(AuditSettings)]


class Planned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One audit of a sweep."""

    name: str  # of its folder
    audit: Audit  # what to do; its noise is 0 where it is still to be calibrated
    calibrate: bool  # whether it is

    def settled(self, folder: RunFolder) -> Audit:
        """The audit with its noise: as ``folder`` has it, or else calibrated."""
        audit = self.audit
        if not self.calibrate:
            return audit
        if folder.has("config.json"):
            known = folder.read("config.json", Audit).noise_multiplier
        else:
            account = AccountSettings(account=audit.account)
            known = noise_of(Problem.of(audit.training), audit.claim, account)
        return dataclasses.replace(audit, noise_multiplier=known)


class Sweep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The audits of a sweep, in order; ``sweep.json`` of its folder."""

    audits: tuple[Planned, ...]

    @classmethod
    def read(cls, path: pathlib.Path) -> Self:
        """The plan of a file. ``ValueError`` says what is wrong with it, and where."""
        try:
            values = _toml.read(path)
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return cls.of(values, where=str(path))

    @classmethod
    def of(cls, values: Mapping[str, Any], *, where: str) -> Self:
        """The plan of a file's ``values``; errors tell ``where`` they are from."""
        known = _File.__struct_fields__
        for name in values:
            if name not in known:
                raise ValueError(
                    f"{where}: there is no table [{name}]; {near(name, known)}"
                )
        try:
            file = _json.convert(values, _File)
        except msgspec.ValidationError as error:
            raise ValueError(f"{where}: {error}") from None
        audits: dict[str, Planned] = {}
        for name, settings in file.entries(where):
            if name in audits:
                raise ValueError(
                    f"{where}: two audits are called {name!r}; give one of them "
                    "another name"
                )
            audits[name] = _planned(name, settings, f"{where}, audit {name!r}")
        if not audits:
            raise ValueError(
                f"{where} has no audit: say [grid] with lists, or [[audit]]"
            )
        return cls(audits=tuple(audits.values()))


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    all: dict[str, Any] = {}
    grid: dict[str, list[Any]] = {}
    audit: tuple[dict[str, Any], ...] = ()

    def entries(self, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Name and settings of each audit."""
        known = self.known(where)
        common = _checked(self.all, known, f"{where}, [all]")
        grid = _checked(self.grid, known, f"{where}, [grid]")
        for setting, choices in grid.items():
            if not choices:
                raise ValueError(f"{where}, [grid]: {setting} has no value in its list")
        count = math.prod(map(len, grid.values())) if grid else 0
        if count > _MOST:
            raise ValueError(
                f"{where}: [grid] makes {count:,} audits, more than {_MOST:,}; use "
                "several files"
            )
        for choice in itertools.product(*grid.values()) if grid else ():
            own = dict(zip(grid, choice, strict=True))
            yield _name(own), {**common, **own}
        for number, each in enumerate(self.audit, 1):
            own = dict(each)
            name = own.pop("name", None)
            own = _checked(own, known, f"{where}, [[audit]] {number}")
            yield _name(own) if name is None else _safe(str(name)), {**common, **own}

    def known(self, where: str) -> set[str]:
        """All settings that there are, with the options of a user's own algorithms."""
        tables = [self.all, self.grid, *self.audit]
        said = [table["algorithm"] for table in tables if "algorithm" in table]
        each = (one if isinstance(one, list) else [one] for one in said)
        users = filter(is_place, map(str, itertools.chain.from_iterable(each)))
        try:
            options = option_names(*users)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        settings = {name for name in Training.__struct_fields__ if name != "options"}
        return {*_CHOICES} | settings | options


def _checked(
    settings: Mapping[str, Any], known: set[str], where: str
) -> dict[str, Any]:
    """``settings`` by today's names. ``ValueError`` for one that is not ``known``."""
    found = renamed({name.replace("-", "_"): x for name, x in settings.items()})
    for name in found:
        if name not in known:
            hint = near(name, sorted(known))
            raise ValueError(f"{where}: there is no setting {name!r}; {hint}")
    return found


def _planned(name: str, settings: dict[str, Any], where: str) -> Planned:
    own = {key: _json.spelled(settings[key]) for key in _CHOICES if key in settings}
    rest = {key: value for key, value in settings.items() if key not in own}
    algorithm = rest.pop("algorithm", None)
    if algorithm is None:
        raise ValueError(f"{where} says no algorithm")
    try:
        chosen = _json.convert(own, AuditSettings, strict=False)
        # Told apart, so that noise that was given is not taken for the least.
        given = chosen.noise_multiplier is not None
        audit = planned(
            str(algorithm),
            chosen,
            rest,
            where="its training",
            source="the sweep's file" + (", with its noise" if given else ""),
        )
        if given and chosen.epsilon is None:
            claim = certified_claim(audit, Problem.of(audit.training))
            audit = dataclasses.replace(audit, claim=claim)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {explained(error, AuditSettings, own)}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    to_calibrate = audit.training.family.private and not given
    return Planned(name=name, audit=audit, calibrate=to_calibrate)


def _name(own: Mapping[str, Any]) -> str:
    """A name from an audit's own settings: the algorithm, then the others."""
    parts = [str(own["algorithm"])] if "algorithm" in own else []
    parts += [f"{key}={_text(own[key])}" for key in own if key != "algorithm"]
    return _safe(",".join(parts))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(_text, value))
    short = f"{value:g}" if isinstance(value, float) else ""
    return short if short and float(short) == value else str(value)


def _safe(name: str) -> str:
    """``name`` as a folder's, by one name each: what is left out, a digest tells."""
    plain = "".join(c if c.isalnum() or c in "=,.+-_ " else "-" for c in name)
    plain = plain.strip(". ")
    if plain == name and 0 < len(name) <= _LONG:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    return f"{plain[: _LONG - 9]}-{digest}"
