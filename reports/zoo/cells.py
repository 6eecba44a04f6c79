"""The zoo of privacy bugs: what catches each, in how many runs and processor seconds.

Bugs and attacks are in tests/zoo.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from typing import Any
from unittest import mock

from privaudit.auditing.experiments.presets import training_named
from privaudit.auditing.probes.algorithm import PROBED, probe
from privaudit.figure_settings import ProbeSettings
from reports.study import Cell
from tests.zoo.attacks import attacked
from tests.zoo.bugs import BUGS
from tests.zoo.frame import Bug
from trainers.algorithms import ALGORITHMS


def spent() -> float:
    """Processor seconds of this process and of its children that ended."""
    return sum(os.times()[:4])


def caught(bug: str, runs: int, audit: str | None, repeats: int) -> dict[str, Any]:
    """Findings of probe and audit on a bug; ``runs`` and ``audit`` as it has them."""
    planted = BUGS[bug]
    began = spent()
    with mock.patch.dict(ALGORITHMS, {planted.algorithm: planted.family}):
        training = training_named(planted.algorithm, list(planted.settings), **PROBED)
        checks = probe(training, ProbeSettings(runs=runs))
    found = any(
        planted.words in finding
        for check in checks
        if check.name == planted.check
        for finding in check.findings
    )
    figures: dict[str, Any] = {
        "algorithm": planted.algorithm,
        "check": planted.check,
        "probe_runs": runs,
        "probed": found,
        "probe_seconds": round(spent() - began, 1),
        "unseen": planted.unseen,
    }
    attack = planted.attack
    if attack is None:
        return figures
    seconds, audits = [], []
    for seed in range(repeats):
        began = spent()
        audits.append(attacked(attack, planted.algorithm, planted.family, seed))
        seconds.append(spent() - began)
    return figures | {
        "certified": audits[-1][0].epsilon,
        "lower": statistics.median(lower.epsilon for _, lower in audits),
        "refuted": sum(lower > upper for upper, lower in audits),
        "repeats": repeats,
        "seconds": round(max(seconds), 1),
        "runs": attack.runs,
        "adversary": attack.adversary,
        "canary": attack.canary,
        "estimator": attack.estimator,
        "key": audit,
    }


def alarms(bug: str, audit: str, repeats: int) -> dict[str, Any]:
    """Frequency at which the audit of a bug refutes right code."""
    planted, refuted = BUGS[bug], 0
    assert planted.attack is not None
    for repeat in range(repeats):
        # Seeds of their own: not those by which runs were chosen.
        upper, lower = attacked(planted.attack, planted.algorithm, seed=1000 + repeat)
        refuted += int(lower > upper)
    return {"repeats": repeats, "alarms": refuted}


def key_of(bug: Bug) -> str | None:
    """Key of the bug's audit of right code; equal for equal audits."""
    return None if bug.attack is None else f"{bug.algorithm} {bug.attack!r}"


def cells() -> Iterator[Cell]:
    """Every bug, then every audit of right code."""
    audits: dict[str, str] = {}
    for name, bug in BUGS.items():
        audit = key_of(bug)
        settings = {"bug": name, "runs": bug.runs, "audit": audit, "repeats": 10}
        yield Cell(f"bug {name}", caught, settings)
        if audit is not None:
            audits.setdefault(audit, name)
    for audit, name in audits.items():
        settings = {"bug": name, "audit": audit, "repeats": 200}
        yield Cell(f"right {audit}", alarms, settings)
