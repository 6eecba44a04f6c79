"""The command that makes a run again, from the settings that were kept."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from privaudit.auditing.experiments.presets import AUDITED
from privaudit.files.user_code import is_place
from privaudit.records import AuditRecord, TrainingRecord
from privaudit.report.load import Finished, FinishedAudit
from privaudit.settings import AuditSettings, RunSettings, TaskChanges, TrainingSettings
from privaudit.task_settings import OWN
from privaudit.version import __version__

_ALWAYS = ("runs", "seed", "adversary", "canary")


def command(run: Finished) -> tuple[str, ...]:
    """The parts of the command line: its head, then an option each.

    Settings where they are not the default; always epsilon, delta, attack, runs, seed,
    and noise in full, so that calibration may change.
    """
    config = run.config
    if isinstance(run, FinishedAudit) and run.config.planted_bug is not None:
        out = shlex.join(["--out", str(run.path.parent)])
        return "privaudit demo", f"--seed {config.seed}", out
    settings = config.settings
    if isinstance(run, FinishedAudit) and run.config.public_seed is not None:
        given = {name: getattr(run.config, name) for name in _OF_AUDITS}
        return (
            shlex.join(["privaudit", "audit", str(run.path.parent)]),
            *(
                f"--{name.replace('_', '-')}"
                + ("" if value is True else f" {shlex.quote(_text(value))}")
                for name, value in given.items()
                if value or name == "seed"
            ),
        )
    head = "privaudit audit" if run.kind == "audit" else "privaudit train"
    out = run.path
    options: dict[str, Any] = {}
    if not isinstance(run, FinishedAudit) and run.config.party is not None:
        head = f"torchrun --nproc-per-node {run.config.party.parties} -m {head}"
        options["parties"], out = True, run.path.parent
    by_node = _by_node(config)
    options |= by_node
    if config.claim is not None and "budgets" not in by_node:
        options["epsilon"] = config.claim.epsilon
    options["delta"] = run.upper.delta
    clip = getattr(config, "clip", None)
    if clip is not None:  # found again, and the noise with it
        options["clip-quantile"] = clip.quantile
    elif config.noise_multiplier and not by_node:
        options["noise-multiplier"] = config.noise_multiplier
    asks, record = (
        (AuditSettings, AuditRecord)
        if isinstance(run, FinishedAudit)
        else (TrainingSettings, TrainingRecord)
    )
    known = {field.name for field in dataclasses.fields(asks)}
    known -= {"noise_multiplier", *by_node}
    if isinstance(run, FinishedAudit) and run.config.one_run:
        known.remove("runs")  # they are the canaries
    if run.kind == "training" and run.upper.relation != "add-or-remove-one":
        options["relation"] = run.upper.relation
    for field in dataclasses.fields(record):
        value = getattr(config, field.name)
        # Without a seed there was a secret key: another run has another.
        if field.name not in known or value is None:
            continue
        if field.name in _ALWAYS or value != field.default:
            options[field.name.replace("_", "-")] = value
    defaults = {**_training_defaults(config.version, settings.algorithm)}
    if isinstance(run, FinishedAudit):
        defaults |= AUDITED if config.version == __version__ else {}
    return (
        shlex.join([*head.split(), settings.algorithm]),
        *(
            f"--{name}" if value is True else shlex.join([f"--{name}", _text(value)])
            for name, value in options.items()
        ),
        *(
            shlex.join(["--set", f"{name}={_text(value)}"])
            for name, value in _flat(config.training)
            if name != "algorithm"
            and (name != "clip_norm" or clip is None)
            and value is not None  # the algorithm's own default, which is not written
            and _text(value) != _text(defaults.get(name))
        ),
        shlex.join(["--out", str(out)]),
    )


def _by_node(config: Any) -> dict[str, str]:
    """Options by which each node has noise or a budget of its own, if it has."""
    budgets = getattr(config, "budgets", None)
    found = {} if budgets is None else {"budgets": _text(budgets)}
    if isinstance(config.noise_multiplier, tuple):
        found["noise"] = "per-node"
    elif budgets is not None:
        found["noise"] = "one"
    return found


def again(run: Finished) -> str:
    """Command that makes ``run`` again, or a call where data have no name."""
    if run.config.settings.data == OWN:
        return _call(run)
    return " \\\n    ".join(command(run))


# Of a training's settings, what `privaudit.train` has as arguments, what is said even
# if it is the default, and what it finds.
_ARGUMENTS = ("graph", "rounds", "epsilon")
_SAID = (
    *_ARGUMENTS,
    *("batch_size", "sampling_rate", "clip_norm", "step_size", "schedule"),
)
_TASK = {field.name for field in dataclasses.fields(TaskChanges)}
_DEFAULTS = {**RunSettings().kept(), "device": "cpu"}
_OF_AUDITS = (
    *("runs", "adversary", "canary", "canaries", "estimator", "confidence", "seed"),
    *("block", "random_records"),
)
_FOUND = ("algorithm", "data", "model", "train", "nodes")


def _call(run: Finished) -> str:
    """The call of `privaudit.train` that makes a run again, given model and data."""
    config = run.config
    if isinstance(config, AuditRecord):
        given = {name: getattr(config, name) for name in _OF_AUDITS}
        lines = [f"    {name}={value!r}," for name, value in given.items() if value]
        return "\n".join(["run.audit(  # of what privaudit.train gave", *lines, ")"])
    assert isinstance(config, TrainingRecord)
    claim = config.claim
    given: dict[str, Any] = {}
    by_node = _by_node(config)
    if "noise" in by_node:
        given["noise"] = by_node["noise"]
    if claim is not None:
        given["epsilon"] = [*config.budgets] if config.budgets else claim.epsilon
    elif config.noise_multiplier:
        given["noise_multiplier"] = config.noise_multiplier
    if config.observer is not None:
        given["observer"] = config.observer
    given["delta"] = run.upper.delta
    if run.upper.relation != "add-or-remove-one":
        given["relation"] = run.upper.relation
    defaults = _training_defaults(config.version, config.settings.algorithm)
    options, clip = {}, config.clip
    for name, value in _flat(config.training):
        if name == "clip_norm" and clip is not None:
            name, value = "clip_quantile", clip.quantile
        changed = _text(value) != _text(defaults.get(name))
        if name in _SAID or (name in _TASK and changed):
            given[name] = value
        elif name not in _FOUND and changed:
            options[name] = value
    given |= {
        name: value
        for name, value in {**config.kept(), "device": config.device}.items()
        if value != _DEFAULTS[name]
    }
    tuning = config.tuning
    if tuning is not None and tuning.is_charged:
        return (
            "privaudit.tune(  # with the plan, grid, model and data that were given\n"
            f"    plan, grid, model, shares, tries={tuning.tries!r}, "
            f"law={tuning.law!r},\n)"
        )
    return "\n".join(
        [
            "privaudit.train(  # with the model, data and loss that were given",
            f'    model, shares, "{config.settings.algorithm}",',
            *(
                f"    {name}={given.pop(name)!r},"
                for name in _ARGUMENTS
                if name in given
            ),
            *([f"    options={options!r},"] if options else []),
            "    settings=privaudit.TrainingSettings(",
            *(f"        {name}={value!r}," for name, value in given.items()),
            "    ),",
            ")",
        ]
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
