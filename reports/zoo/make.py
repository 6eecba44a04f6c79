"""The zoo of privacy bugs: what catches each, in how many runs and seconds.

    OMP_NUM_THREADS=1 python reports/zoo/make.py [--caught 10] [--repeats 200]

Every figure is put into results.json as soon as it is there, so that a stopped one goes
on where it was; then README.md is written. Bugs and attacks are in tests/zoo.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import time
from typing import Any
from unittest import mock

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))  # tests are no part of what is installed

from privaudit.auditing.experiments.presets import training_named  # noqa: E402
from privaudit.auditing.probes.algorithm import PROBED, probe  # noqa: E402
from tests.zoo.attacks import CONFIDENCE, DELTA, Attack, attacked  # noqa: E402
from tests.zoo.bugs import BUGS  # noqa: E402
from tests.zoo.frame import Bug  # noqa: E402
from trainers.algorithms import ALGORITHMS  # noqa: E402

PATH = HERE / "results.json"
EMPTY: dict[str, Any] = {"bugs": {}, "right": {}}


def kept() -> dict[str, Any]:
    """All figures so far."""
    return json.loads(PATH.read_text()) if PATH.exists() else EMPTY


def keep(kind: str, key: str, value: Any) -> None:
    """Put a figure into results.json."""
    results = kept()
    results[kind][key] = value
    part = PATH.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.replace(PATH)


def caught(bug: Bug, repeats: int) -> dict[str, Any]:
    """What probe and audit say of a bug."""
    began = time.monotonic()
    with mock.patch.dict(ALGORITHMS, {bug.algorithm: bug.family}):
        training = training_named(bug.algorithm, list(bug.settings), **PROBED)
        checks = probe(training, runs=bug.runs)
    found = any(
        bug.words in finding
        for check in checks
        if check.name == bug.check
        for finding in check.findings
    )
    figures: dict[str, Any] = {
        "algorithm": bug.algorithm,
        "check": bug.check,
        "probe_runs": bug.runs,
        "probed": found,
        "probe_seconds": round(time.monotonic() - began, 1),
        "unseen": bug.unseen,
    }
    if bug.attack is None:
        return figures
    seconds, lowers, refuted = [], [], 0
    for seed in range(repeats):
        began = time.monotonic()
        upper, lower = attacked(bug.attack, bug.algorithm, bug.family, seed)
        seconds.append(time.monotonic() - began)
        lowers.append(lower.epsilon)
        refuted += lower > upper
    return figures | {
        "certified": upper.epsilon,
        "lower": statistics.median(lowers),
        "refuted": refuted,
        "repeats": repeats,
        "seconds": round(max(seconds), 1),
        "runs": bug.attack.runs,
        "adversary": bug.attack.adversary,
        "canary": bug.attack.canary,
        "estimator": bug.attack.estimator,
        "key": key_of(bug),
    }


def key_of(bug: Bug) -> str:
    """Of what the bug's audit is of right code; equal for equal audits."""
    return f"{bug.algorithm} {bug.attack!r}"


def alarms(key: str, attack: Attack, algorithm: str, repeats: int) -> None:
    """Count how often right code is refuted."""
    figures = kept()["right"].get(key, {"repeats": 0, "alarms": 0, "seconds": 0.0})
    while figures["repeats"] < repeats:
        began = time.monotonic()
        for _ in range(min(20, repeats - figures["repeats"])):
            # Seeds of their own: not those by which runs were chosen.
            seed = 1000 + figures["repeats"]
            upper, lower = attacked(attack, algorithm, seed=seed)
            figures["repeats"] += 1
            figures["alarms"] += int(lower > upper)
        figures["seconds"] += time.monotonic() - began
        keep("right", key, figures)


def page(results: dict[str, Any]) -> str:
    """README.md."""
    lines = [
        "# The zoo: planted privacy bugs, and what catches each",
        "",
        "Made by",
        "",
        "    OMP_NUM_THREADS=1 python reports/zoo/make.py",
        "",
        "on two cores that others used as well. Bugs are in `tests/zoo/bugs.py`, audits in `tests/zoo/attacks.py`; no ledger knows of its bug. A probe looks at a few runs and needs no statistics; it asks about twelve times for as many runs as are named. An audit's claim is what the ledger certifies at delta "
        f"{DELTA:g}; it is refuted where a lower bound lies above it. *Lower* is the median of the bounds, *seconds* the slowest of the audits. *Family*: the bound holds within the family of the ledger's releases with more or less noise, at confidence {CONFIDENCE['family']:g}: an attack that sees all that is released attains the certified curve, so that at 0.99 right code is accused as often as that allows (6 of 2,000 audits were; these are others). *Best*: for any mechanism, at {CONFIDENCE['best']:g}. *Alarms*: how often the same audit refuted right code.",
        "",
        "| bug | probe (check, runs, seconds) | audit: attacker, canary | runs | certified | lower | refuted | seconds | alarms |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in results["bugs"].items():
        probe_cell = f"{row['check']}, {row['probe_runs']}, {row['probe_seconds']:.0f}"
        if not row["probed"]:
            probe_cell = "missed"
        cells = [name, probe_cell]
        if "runs" not in row:
            cells += [f"none: {row['unseen']}", *[""] * 6]
        else:
            right = results["right"].get(row["key"])
            cells += [
                f"{row['adversary']}, {row['canary']}, {row['estimator']}",
                f"{row['runs']:,}",
                f"{row['certified']:.2f}",
                f"{row['lower']:.2f}",
                f"{row['refuted']} of {row['repeats']}",
                f"{row['seconds']:.0f}",
                "" if right is None else f"{right['alarms']} of {right['repeats']}",
            ]
        lines.append(f"| {' | '.join(cells)} |")
    total = sum(right["repeats"] for right in results["right"].values())
    wrong = sum(right["alarms"] for right in results["right"].values())
    lines += [
        "",
        f"Right code: {wrong} alarms in {total:,} audits of {len(results['right'])} kinds (bugs whose audits are equal share them).",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Make what is missing, and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--caught", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=200)
    given = parser.parse_args()
    for name, bug in BUGS.items():
        if name not in kept()["bugs"]:
            keep("bugs", name, caught(bug, given.caught))
            print(name, kept()["bugs"][name], flush=True)
    (HERE / "README.md").write_text(page(kept()))
    for name, bug in BUGS.items():
        if bug.attack is not None:
            alarms(key_of(bug), bug.attack, bug.algorithm, given.repeats)
            print(name, kept()["right"][key_of(bug)], flush=True)
            (HERE / "README.md").write_text(page(kept()))


if __name__ == "__main__":
    main()
