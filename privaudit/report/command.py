"""The command that makes a run again, from the settings that were kept."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from privaudit.auditing.experiments.presets import AUDITED
from privaudit.files.user_code import is_place
from privaudit.report.load import Finished, FinishedAudit
from privaudit.version import __version__

# What the command line takes if nothing is said; a test holds it against the command.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "audit": {
        "account": "certified",
        "runs": 2000,
        "block": 50,
        "adversary": "final-loss",
        "canary": "blank",
        "estimator": "best",
        "confidence": 0.95,
        "seed": 0,
    },
    "training": {
        "relation": "add-or-remove-one",
        "account": "certified",
        "seed": None,
        "public-seed": 0,
        "device": "cpu",
    },
}
_ALWAYS = ("runs", "seed")


def command(run: Finished) -> tuple[str, ...]:
    """The parts of the command line: its head, then an option each.

    Epsilon, delta, noise, runs and seed are always said, other settings where they are
    not the default. The noise is said in full, so that the command gives the same run
    even if calibration changes.
    """
    config = run.config
    if isinstance(run, FinishedAudit) and run.config.planted_bug is not None:
        out = shlex.join(["--out", str(run.path.parent)])
        return "privaudit demo", f"--seed {config.seed}", out
    settings = config.settings
    head = "privaudit audit" if run.kind == "audit" else "privaudit train"
    options: dict[str, Any] = {}
    if config.claim is not None:
        options["epsilon"] = config.claim.epsilon
    options["delta"] = run.upper.delta
    if config.noise_multiplier:
        options["noise-multiplier"] = config.noise_multiplier
    if isinstance(run, FinishedAudit):
        given = {name: getattr(run.config, name) for name in _DEFAULTS["audit"]}
    else:
        given = {
            "relation": run.upper.relation,
            "account": config.account,
            "seed": config.seed,
            "public-seed": run.config.public_seed,
            "device": run.config.device,
        }
    for name, value in given.items():
        if value is None:  # a secret key: another run has another
            continue
        if name in _ALWAYS or value != _DEFAULTS[run.kind][name]:
            options[name] = value
    defaults = {**_training_defaults(config.version, settings.algorithm)}
    if isinstance(run, FinishedAudit):
        defaults |= AUDITED if config.version == __version__ else {}
    return (
        shlex.join([*head.split(), settings.algorithm]),
        *(shlex.join([f"--{name}", _text(value)]) for name, value in options.items()),
        *(
            shlex.join(["--set", f"{name}={_text(value)}"])
            for name, value in _flat(config.training)
            if name != "algorithm"
            and value is not None  # the algorithm's own default, which is not written
            and _text(value) != _text(defaults.get(name))
        ),
        shlex.join(["--out", str(run.path)]),
    )


def versions(run: Finished) -> tuple[str, ...]:
    """The programs that made the run, as far as it recorded them."""
    return (f"privaudit {run.config.version}", f"torch {run.config.torch_version}")


def _flat(training: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Settings and the algorithm's options alike, as the command line has them."""
    for name, value in training.items():
        if name == "options":
            yield from value.items()
        else:
            yield name, value


def _training_defaults(version: str, algorithm: str) -> Mapping[str, Any]:
    """Settings that need not be said; none if this is not the version that ran."""
    if version != __version__ or is_place(algorithm):  # a user's may have changed
        return {}
    try:
        from trainers.algorithms import ALGORITHMS
        from trainers.runs.training import Training
    except ModuleNotFoundError:  # without the extra `train`, all settings are said
        return {}
    own = {
        field.name: field.default
        for field in msgspec.structs.fields(Training)
        if field.default is not msgspec.NODEFAULT
    }
    family = ALGORITHMS.get(algorithm)
    return own if family is None else {**own, **family.defaults}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(_text(item) for item in value)
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return str(value)
