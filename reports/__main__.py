"""``python -m reports NAME`` and ``python -m reports check``: see `reports.study`."""

from __future__ import annotations

import argparse
import collections
import importlib
import math
import random
import sys
import time
from typing import Any

from reports.study import Cell, Results, Study, code, keep, names, one_thread, plain

TIMES = ("cpu", "took", "calibration")  # and all that ends in seconds
# Relative: what another processor's kernels make of a sum (3e-9 at most was seen), and
# what they make of a training, or a narrower account of a certified figure.
NEAR, ALIKE = 1e-6, 0.02


def parsed(arguments: list[str] | None) -> tuple[argparse.ArgumentParser, Any]:
    """The arguments, with their parser."""
    parser = argparse.ArgumentParser(prog="python -m reports")
    studies = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name in names():
        told = importlib.import_module(f"reports.{name}.cells").__doc__
        of = studies.add_parser(name, description=told, help=f"{told}".split("\n")[0])
        of.add_argument(
            "--quick",
            action="store_true",
            help="few and small cells, in seconds, into quick.json; no page",
        )
        of.add_argument(
            "--only",
            default="*",
            metavar="PATTERN",
            help="cells so named, * standing for anything, and what they need",
        )
        of.add_argument("--list", action="store_true", help="name the cells and stop")
        of.add_argument("--page", action="store_true", help="write the page and stop")
    check = studies.add_parser("check", help="compute some kept cells again, compare")
    check.add_argument("--sample", type=int, default=20, help="cells (20)")
    check.add_argument("--seed", type=int, default=0, help="which ones (0)")
    check.add_argument("--most", type=float, default=math.inf, help="seconds of a cell")
    check.add_argument(
        "--study", default="*", metavar="NAME", help="of one study alone"
    )
    check.add_argument(
        "--known", action="store_true", help="of those that name a commit, or came out"
    )
    check.add_argument("--keep", action="store_true", help="note what came out")
    return parser, parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run a study, or the check, from the command line."""
    parser, given = parsed(arguments)
    if given.name == "check":
        return check(given)
    study = Study(given.name)
    try:
        named = study.named(given.only, quick=given.quick)
    except ValueError as error:
        parser.error(str(error))
    if given.list:
        known = Results.read(study.path(quick=given.quick))
        for cell in named.values():
            state = "kept" if known.is_of(cell) else "to be computed"
            if state != "kept" and cell.name in known:
                state = "to be computed again: its settings changed"
            print(f"{cell.name}: {state}")
        return 0
    if not given.page:
        study.compute(quick=given.quick, only=given.only)
    if not given.quick:
        study.write()
    return 0


def untimed(result: Any) -> Any:
    """A result without what was measured by a clock; None where nothing is left."""
    if isinstance(result, dict):
        kept = {
            name: untimed(value)
            for name, value in result.items()
            if name not in TIMES and not name.endswith("seconds")
        }
        return kept or None
    return [untimed(each) for each in result] if isinstance(result, list) else result


def compared(one: Any, other: Any) -> float:
    """The largest relative difference of two results; infinity where they differ more.

    >>> compared({"a": [1.0, "x"]}, {"a": [1.0, "x"]})
    0.0
    >>> compared({"a": 1.0}, {"a": 1.5}), compared([1], [1, 2])
    (0.5, inf)
    """
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return max((compared(one[k], other[k]) for k in one), default=0.0)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return max(map(compared, one, other), default=0.0)
    if one == other:
        return 0.0
    numbers = [type(each) in (int, float) for each in (one, other)]
    return abs(other - one) / abs(one) if all(numbers) and one else math.inf


def candidates(given: Any) -> list[tuple[Study, Cell]]:
    """Kept cells of present settings that are cheap enough and no measures of time."""
    found = []
    for study in map(Study, names()):
        if given.study not in ("*", study.name):
            continue
        known = study.results()
        for name, cell in study.cells().items():
            if name not in known or not known.is_of(cell):
                continue
            record = known.records[name]
            told = [record["seconds"], record["cpu"]]  # None of old ones
            cost = next((each for each in told if each is not None), math.inf)
            by = record.get("commit") or " with changes"
            again = record.get("again", {}).get("equal", " with changes" not in by)
            timed = not untimed(known[name])
            if not timed and cost <= given.most and (again or not given.known):
                found.append((study, cell))
    return found


def judged(record: dict[str, Any], new: dict[str, Any]) -> tuple[float, str, bool]:
    """Difference of two results, what is said of it, and whether that is a fault.

    Code and kernels that are the same give the same bits. A result that names no commit
    cannot come out by its command, and one that is known to differ is no news.
    """
    off = compared(untimed(plain(record["result"])), untimed(new["result"]))
    same = all(record.get(name) == new.get(name) for name in ("commit", "libraries"))
    by = record.get("commit") or ""
    said = f"{off:.2g}; made by {by or 'no known commit'}, this is {new.get('commit')}"
    if not off:
        return off, "bit by bit", False
    if off <= ALIKE and not same:
        near = NEAR if off <= NEAR else ALIKE
        return off, f"within {near:g}, by other code or kernels: {said}", False
    said = f"otherwise, by {said}"
    known = not by or "with changes" in by or "again" in record
    return off, f"not reproducible: {said}" if known else said, not known


def check(given: Any) -> int:
    """Compute a seeded sample of kept cells again; 1 where one comes out otherwise."""
    one_thread()
    every = candidates(given)
    some = random.Random(given.seed).sample(every, min(given.sample, len(every)))
    counts = collections.Counter[str]()
    for study, cell in some:
        known = study.results()
        record, began = known.records[cell.name], time.process_time()
        new = cell.run({need: known[need] for need in cell.needs})
        if missing := isinstance(new["result"], dict) and new["result"].get("missing"):
            print(f"{study.name}: {cell.name}: not tried, it needs {missing}")
            continue
        off, said, fault = judged(record, new)
        took = time.process_time() - began
        print(f"{study.name}: {cell.name}: {said} ({took:.1f} s)", flush=True)
        other = "within a tolerance" if off <= ALIKE else "not reproducible"
        counts["bit by bit" if not off else "a fault" if fault else other] += 1
        if given.keep:
            note = {"commit": code().get("commit"), "equal": not off}
            if off > ALIKE:
                note["why"] = said
            keep(study.path(), (cell.name, record | {"again": note}), study.cells())
    told = ", ".join(f"{count} {how}" for how, count in counts.items())
    print(f"{told or 'none'}; {len(every)} to choose from")
    return int(counts["a fault"] > 0)


if __name__ == "__main__":
    sys.exit(main())
