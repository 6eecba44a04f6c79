"""A user's own claims from a TOML file, tested as the papers' are.

    [[claim]]
    name = "our run"
    epsilon = 2.0
    delta = 1e-5
    relation = "add-or-remove-one"
    ledger = "runs/train/ledger.json"   # or function = "module:function", or algorithm

A file can be kept under test: `privaudit claims FILE` ends with 1 if one is refuted or
disproved, with --require consistent also if one is unproven.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Literal

import msgspec

from privaudit.claims.accounts import bracket
from privaudit.claims.attacks import audit_of, training_of
from privaudit.claims.claim import PaperClaim, PaperFinding
from privaudit.files import json as _json
from privaudit.files import toml as _toml
from privaudit.files.errors import explained
from privaudit.files.user_code import ForeignError, function_named, held
from privaudit.ledger import Ledger
from privaudit.results import (
    LowerBound,
    Relation,
    Unit,
    check_delta,
    check_epsilon,
    stated,
)
from privaudit.settings import AttackSettings, Precision

Try = Literal["account", "audit"]

_ATTACK = AttackSettings(
    adversary="noisy-gradients", canary="gradient", runs=1000, confidence=0.99
)


class OwnClaim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One promise of a user's.

    runs, ..., precision
        Of the audit: the fields of `privaudit.settings.AttackSettings`.
    """

    # name, epsilon, delta, relation, unit: the promise; its unit is that of the ledger
    name: str
    epsilon: float
    delta: float
    relation: Relation = "add-or-remove-one"
    unit: Unit = "record"
    ledger: str | None = None  # a run's ledger.json, relative to the file of claims; or
    # ``module:function``, called without arguments, that returns a
    # `privaudit.ledger.Ledger`; or
    function: str | None = None
    # a name as `privaudit train` takes it, with ``noise_multiplier`` and ``settings``
    algorithm: str | None = None
    noise_multiplier: float | None = None
    settings: dict[str, Any] = {}
    # ``try`` in the file: "account", and for an algorithm also "audit"
    tries: tuple[Try, ...] = msgspec.field(default=("account",), name="try")
    runs: int = _ATTACK.runs
    block: int = _ATTACK.block
    seed: int = _ATTACK.seed
    adversary: str | None = _ATTACK.adversary
    canary: str | None = _ATTACK.canary
    estimator: str = _ATTACK.estimator
    confidence: float = _ATTACK.confidence
    stop_when_refuted: bool = _ATTACK.stop_when_refuted
    device: str = _ATTACK.device
    compiled: bool = _ATTACK.compiled
    precision: Precision = _ATTACK.precision
    one_run: bool = _ATTACK.one_run
    canaries: int | None = _ATTACK.canaries

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("a claim needs a name that is not blank")
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        given = [self.ledger, self.function, self.algorithm]
        if sum(one is not None for one in given) != 1:
            raise ValueError(
                f"claim {self.name!r} needs exactly one of ledger, function and "
                "algorithm: what is it about?"
            )
        if self.algorithm is not None and self.noise_multiplier is None:
            raise ValueError(f"claim {self.name!r} needs the noise_multiplier")
        _ = self.attack  # raises
        if "audit" in self.tries and self.algorithm is None:
            raise ValueError(
                f"claim {self.name!r}: only an algorithm can be attacked; leave audit "
                "out of try"
            )
        if "audit" in self.tries and self.unit == "node":
            raise ValueError(
                f"claim {self.name!r}: audits test what one record or user gives away, "
                "not a node; leave audit out of try"
            )

    @property
    def attack(self) -> AttackSettings:
        """Attack of its audit: a claim here is for whoever sees all releases."""
        names = {field.name for field in dataclasses.fields(AttackSettings)}
        names.remove("observer")
        return AttackSettings(**{name: getattr(self, name) for name in names})

    @property
    def folder(self) -> str:
        """The name of the folder of its audit."""
        return "".join(c if c.isalnum() or c in " ,+=_-" else "-" for c in self.name)

    def quickly(self) -> OwnClaim:
        """This claim without its audit."""
        return msgspec.structs.replace(self, tries=("account",))


_KNOWN = "a claim has the keys " + ", ".join(
    field.encode_name for field in msgspec.structs.fields(OwnClaim)
)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    claim: tuple[OwnClaim, ...]


def read(path: pathlib.Path) -> tuple[OwnClaim, ...]:
    """The claims of a file; ``ValueError`` says what is wrong with it."""
    try:
        values = _toml.read(path)
        if not values.get("claim"):
            raise ValueError(
                "it has no claim: it needs one [[claim]] or more, each with name, "
                "epsilon, delta and what it is about"
            )
        own = _json.convert(values, _File, strict=False).claim
        folders = [one.folder for one in own]
        for one in own:
            if folders.count(one.folder) > 1:
                raise ValueError(
                    f"two claims are called {one.name!r}, or much the same; give one "
                    "of them another name"
                )
        return own
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.ValidationError as error:
        keys = f"; {_KNOWN}" if "field" in str(error) else ""
        raise ValueError(f"{path}: {explained(error, _File)}{keys}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def tested_own(
    own: OwnClaim, file: pathlib.Path, runs: pathlib.Path, workers: int | None
) -> PaperFinding:
    """The finding on one claim of ``file``; an audit keeps its runs in ``runs``."""
    ledger = _ledger(own, file)
    if ledger.unit != own.unit:
        raise ValueError(
            f"claim {own.name!r} is about one {own.unit}, and its ledger about one "
            f'{ledger.unit}: say unit = "{ledger.unit}" if that is meant'
        )
    certified = bracket(ledger, own.delta, own.relation)
    claim = PaperClaim(
        paper=file.name,
        name=own.name,
        says=f"{own.name} is ({stated(own.epsilon)}, {own.delta:g})-DP",
        where=str(file),
        formula="as stated",
        plain="",
        claimed=own.epsilon,
        delta=own.delta,
        relation=own.relation,
        unit=own.unit,
        printed=lambda: certified,
    )
    lower: LowerBound | None = None
    if "audit" in own.tries:
        assert own.algorithm is not None
        assert own.noise_multiplier is not None
        lower = audit_of(
            claim,
            training_of(own.algorithm, own.settings, claim.key),
            own.noise_multiplier,
            own.attack,
            runs / own.folder,
            workers,
        )
    return PaperFinding(claim, certified, None, lower)


def _ledger(own: OwnClaim, file: pathlib.Path) -> Ledger:
    if own.ledger is not None:
        path = file.parent / own.ledger
        try:
            return Ledger.from_json(path.read_bytes())
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ValueError(f"claim {own.name!r}: {path}: {error}") from None
    if own.function is not None:
        try:
            function = function_named(own.function)
            with held(own.function):
                made = function()
        except (ValueError, ForeignError) as error:
            raise ValueError(f"claim {own.name!r}: {error}") from error
        if not isinstance(made, Ledger):
            raise ValueError(
                f"claim {own.name!r}: {own.function} must return a "
                f"privaudit.ledger.Ledger; got {type(made).__name__}"
            )
        return made
    from trainers.runs.problem import Problem

    assert own.algorithm is not None
    assert own.noise_multiplier is not None
    problem = Problem.of(training_of(own.algorithm, own.settings, own.name))
    return problem.ledger(own.noise_multiplier)
