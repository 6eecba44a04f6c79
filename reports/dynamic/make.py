"""Dyn-D2P's Table 2 twice: by the paper's account, and at equal certified epsilon.

    OMP_NUM_THREADS=1 python -m reports.dynamic.make [--quick] [--workers 2]

Every cell is kept in results.json as soon as it is computed: the same command goes on
where it was stopped. Then README.md and accuracy.svg are written beside it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import pathlib

import torch

from reports.dynamic import page
from reports.dynamic.study import CALIBRATIONS, QUICK, Results, Scale, Study

HERE = pathlib.Path(__file__).parent


def part(how: str, scale: Scale, path: pathlib.Path) -> None:
    """Compute the cells of one calibration."""
    torch.set_num_threads(1)
    Study(scale, Results(path)).everything(how)


def main() -> None:
    """Compute what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute, for a look")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    given = parser.parse_args()
    scale = QUICK if given.quick else Scale()
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "results.json"
    with concurrent.futures.ProcessPoolExecutor(given.workers) as pool:
        done = [pool.submit(part, how, scale, path) for how in CALIBRATIONS]
    for one in done:
        one.result()
    page.write(given.out, Study(scale, Results(path)))


if __name__ == "__main__":
    main()
