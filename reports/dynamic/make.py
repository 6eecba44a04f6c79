"""Compute this report: ``python -m reports.dynamic.make [--quick]``.

Every cell is kept in results.json as soon as it is computed; the same command goes on
where it was stopped, and writes README.md and accuracy.svg when all are there.
"""

from __future__ import annotations

import argparse
import pathlib

import torch

from reports.dynamic import page
from reports.dynamic.study import (
    CALIBRATIONS,
    GRAPHS,
    METHODS,
    NODES,
    QUICK,
    Results,
    Scale,
    Study,
)

HERE = pathlib.Path(__file__).parent


def main() -> None:
    """Compute what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute, for a look")
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    given = parser.parse_args()
    torch.set_num_threads(1)
    scale = QUICK if given.quick else Scale()
    given.out.mkdir(parents=True, exist_ok=True)
    study = Study(scale, Results(given.out / "results.json"))
    study.cell("sgp", 0.0, "none")
    for how in reversed(CALIBRATIONS):  # the fair one first
        for epsilon in sorted(scale.epsilons, key=lambda e: abs(e - 1)):
            for method in METHODS:
                study.cell(method, epsilon, how)
    for graph in GRAPHS:
        study.cell("dyn-d2p", 1.0, "certified", graph=graph)
    for nodes in NODES:
        study.cell("dyn-d2p", 1.0, "certified", nodes=nodes)
    page.write(given.out, scale, study)


if __name__ == "__main__":
    main()
