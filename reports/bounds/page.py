"""README.md of the bounds, from their figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_HEAD = """# Lower bounds where epsilon is known

Made by

    OMP_NUM_THREADS=1 python reports/bounds/make.py

on a machine of two cores that others used as well: times are above those of a machine
at rest. All at confidence 0.95.

"""
_RATIO = """## How much of the truth is shown

Scores N(0, 1) against N(1, 1), whose epsilon is 4.377178 at delta 1e-5 and 2.317789 at
1e-2; every run tosses a coin for its world. *Ratio*: median bound over the truth, and
how many of the bounds exceeded it; one in twenty may. `top-half`, `betting-gaussian`
and `one-run-gaussian` hold for Gaussian DP only, the others for any mechanism.

"""
_TIMES = """## Seconds of a call

Median, at 100 000 runs a world; in brackets the least, which says more where others
compute as well.

"""
_POWER = """## Runs a world until halved noise is refuted

A Gaussian mechanism with half the noise that its claim at delta 1e-5 needs. `top-half`:
the least number by which 90 % of 1 000 audits refute. `betting-gaussian`, which may be
looked at after every run: the mean number when it stops, its standard error, and the
number by which 90 % have stopped.

| claim | top-half, 90 % | betting, mean | betting, 90 % |
| --- | --- | --- | --- |
"""
_CHECK = """## Do they keep their confidence?

The table of `privaudit selfcheck`: 1 000 runs of both worlds together, from mechanisms
whose epsilon is known. *Exceeded*: audits whose bound is above the truth; *allowed*:
the most that chance explains, one in twenty being allowed. An estimator or mechanism
that has no row was not run yet.

| estimator | mechanism | delta | truth | median | exceeded | of | allowed |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def page(
    results: dict[str, dict[str, Any]],
    names: Sequence[str],
    runs: Sequence[int],
    claims: Sequence[float],
) -> str:
    """All that there is so far."""
    text = _HEAD
    if results["power"]:
        text += _POWER
        for claim in claims:
            top = results["power"].get(f"top-half {claim:g}")
            bet = results["power"].get(f"betting-gaussian {claim:g}")
            if top and bet:
                text += (
                    f"| {claim:g} | {top['runs']} | {bet['mean']:.0f} "
                    f"± {bet['error']:.1f} | {bet['ninety']:.0f} |\n"
                )
        text += "\n"
    if results["ratio"]:
        text += _RATIO + _ratios(results["ratio"], names, runs)
        text += _TIMES + _times(results["ratio"], names, runs[-1])
    if results["check"]:
        text += _CHECK + "\n".join(_checks(results["check"])) + "\n"
    return text.rstrip() + "\n"


def _ratios(ratios: dict[str, Any], names: Sequence[str], runs: Sequence[int]) -> str:
    cells = [(delta, n) for delta in ("1e-05", "0.01") for n in runs]
    head = " | ".join(f"{float(delta):.0e}, {n:,}" for delta, n in cells)
    lines = [f"| estimator | {head} |", "| --- " * (len(cells) + 1) + "|"]
    for name in names:
        row = []
        for delta, n in cells:
            cell = ratios.get(f"{name} {delta} {n}")
            row.append(
                f"{cell['ratio']:.3f} ({cell['exceeded']} of {cell['repeats']})"
                if cell
                else ""
            )
        lines.append(f"| {name} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n\n"


def _times(ratios: dict[str, Any], names: Sequence[str], runs: int) -> str:
    lines = ["| estimator | seconds |", "| --- | --- |"]
    for name in names:
        cell = ratios.get(f"{name} 1e-05 {runs}")
        if cell:
            seconds, least = cell["seconds"], cell["least_seconds"]
            lines.append(f"| {name} | {seconds:.3f} ({least:.3f}) |")
    return "\n".join(lines) + "\n\n"


def _checks(checks: dict[str, Any]) -> list[str]:
    return [
        f"| {row['estimator']} | {row['mechanism']} | {row['delta']:.0e} | "
        f"{row['true_epsilon']:.4f} | {row['median']:.4f} | {row['exceeded']} | "
        f"{row['repeats']:,} | {row['allowed']} |"
        for figures in checks.values()
        for row in figures["rows"]
    ]
