"""Values of the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from privaudit.auditing.bounds import ESTIMATORS, ONE_RUN
from reports.study import Results

NAMES = (*ESTIMATORS, *ONE_RUN)
CLAIMS = (1, 8)
RUNS = (1000, 5000, 100_000)
COLUMNS = [(delta, runs) for delta in ("1e-05", "0.01") for runs in RUNS]


def power(known: Results) -> Iterable[tuple]:
    """Runs a world until halved noise is refuted."""
    for claim in CLAIMS:
        top = known[f"power top-half {claim}"]
        bet = known[f"power betting-gaussian {claim}"]
        mean = f"{bet['mean']:.0f} ± {bet['error']:.1f}"
        yield claim, top["runs"], mean, f"{bet['ninety']:.0f}"


def ratios(known: Results) -> Iterable[tuple]:
    """Bounds over the truth; empty where an estimator was not run."""
    for name in NAMES:
        cells = [known.get(f"ratio {name} {delta} {runs}") for delta, runs in COLUMNS]
        texts = [
            f"{cell['ratio']:.3f} ({cell['exceeded']} of {cell['repeats']})"
            if cell
            else ""
            for cell in cells
        ]
        yield name, *texts


def times(known: Results) -> Iterable[tuple]:
    """Seconds of a call."""
    for name in NAMES:
        if cell := known.get(f"ratio {name} 1e-05 {RUNS[-1]}"):
            yield name, f"{cell['seconds']:.3f} ({cell['least_seconds']:.3f})"


def checks(known: Results) -> Iterable[tuple]:
    """Rows of the self-check."""
    for rows in known.starting("check ").values():
        for row in rows:
            figures = f"{row['true_epsilon']:.4f}", f"{row['median']:.4f}"
            counts = row["exceeded"], f"{row['repeats']:,}", row["allowed"]
            delta = f"{row['delta']:.0e}"
            yield row["estimator"], row["mechanism"], delta, *figures, *counts


def values(known: Results) -> dict[str, Any]:
    """Values of the template."""
    columns = [f"{float(delta):.0e}, {runs:,}" for delta, runs in COLUMNS]
    return {
        "power": power(known),
        "ratio_head": ["estimator", *columns],
        "ratios": ratios(known),
        "times": times(known),
        "checks": checks(known),
    }
