"""Studies: cells that are computed once and kept, and pages made of what is kept.

A study is a folder beside this file with

- ``cells.py``: functions that compute; its ``cells()``, where not all are declared,
  gives the other `Cell` objects, its ``quick()`` those of a quick study;
- ``settings.toml``, if need be: ``[[cells]]``, see `declared`, what they have in
  common, and ``[quick]``, by which the first of each function is `shrunk`;
- ``results.json``: a record for every cell that was computed;
- ``README.md.jinja`` and perhaps other templates: what is said, and all tables, made of
  ``results``, the names of ``cells.py`` (as ``cells``) and `reports.pages`;
- ``pictures.toml``, if need be: charts of results or of the page's
  tables, see `reports.pages.lines` and `dots`;
- ``page.py``, if need be: ``CHARTS``, a function for each chart's file name, and
  ``values(results)``, further variables of the templates.

``python -m reports NAME``, from a clone, computes the cells that are missing or whose
settings changed, and writes the pages; ``python -m reports check --sample 20`` computes
some of those that are kept once more, and compares.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import fnmatch
import functools
import hashlib
import importlib
import math
import os
import pathlib
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy

from privaudit.files.folder import write_whole
from privaudit.files.json import decode, encode
from privaudit.version import __version__
from reports import filled, pages, points, published, study_of, told

HERE = TEMPLATES = pathlib.Path(__file__).parent
Record = dict[str, Any]


def plain(value: Any) -> Any:
    """``value`` as it is read back from a file of results."""
    return decode(encode([value]), list)[0]


def digest(value: Any) -> str:
    """Sixteen letters that differ where two results do."""
    return hashlib.sha256(encode([value], indent=0)).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One thing that a study computes.

    Parameters
    ----------
    name
        Unique in the study.
    compute
        A function of a module, called with ``settings`` by name; its result is kept as
        JSON. A cell with ``needs`` also gets ``found``, the results of these by name.
    settings
        All that the result depends on, but for the code. When they change, the cell is
        computed again.
    needs
        Names of cells whose results it uses. When one of these results changes, the
        cell is computed again.
    """

    name: str
    compute: Callable[..., Any]
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def run(self, found: dict[str, Any]) -> Record:
        """Compute it; the result with what it cost and the code's version."""
        began, cpu = time.monotonic(), time.process_time()
        more = {"found": found} if self.needs else {}
        result = self.compute(**self.settings, **more)
        record = {"settings": self.settings, "result": result}
        if self.needs:
            record["needs"] = {name: digest(found[name]) for name in self.needs}
        return plain(
            record
            | {
                "seconds": round(time.monotonic() - began, 3),
                "cpu": round(time.process_time() - cpu, 3),
                "threads": int(os.environ.get("OMP_NUM_THREADS", 0)) or None,
                **code(),
            }
        )


def shrunk(cell: Cell, **settings: Any) -> Cell:
    """The cell with these settings, of those that it has; dictionaries are updated."""
    changed = {
        name: old | settings[name] if isinstance(old, dict) else settings[name]
        for name, old in cell.settings.items()
        if name in settings
    }
    return dataclasses.replace(cell, settings=cell.settings | changed)


def small(cells: Iterable[Cell], **settings: Any) -> Iterator[Cell]:
    """The first cell of each function with what it needs, `shrunk`: a quick study."""
    every = {cell.name: cell for cell in cells}
    wanted = {cell.compute: cell.name for cell in reversed(every.values())}.values()
    chosen = set(wanted)
    for name in reversed(every):
        if name in chosen:
            chosen.update(every[name].needs)
    for name, cell in every.items():
        if name in chosen:
            yield shrunk(cell, **settings)


def declared(told: Mapping[str, Any], module: Any) -> Iterator[Cell]:
    """Cells of ``[[cells]]`` in settings: one for each of `reports.points` of ``over``.

    Points like one of ``without`` are left out. ``cell`` (its name), ``compute`` and
    ``needs`` are a cell's, all else its settings, `reports.filled` ("{count}" is how
    many cells came before); ``others`` names studies whose settings are there as well.
    """
    count = 0
    for entry in told.get("cells", ()):
        rest = {k: v for k, v in entry.items() if k not in ("over", "without")}
        for known in points(entry.get("over", {}), told):
            if any(each.items() <= known.items() for each in entry.get("without", ())):
                continue
            found = filled(rest, known | {"count": count}, told)
            count += 1
            path = found.pop("compute").split(".")
            compute = functools.reduce(getattr, path, module)
            needs = tuple(found.pop("needs", ()))
            yield Cell(found.pop("cell"), compute, found, needs)


@functools.cache
def code() -> dict[str, str]:
    """Version and, in a clone, commit of the code that computes, and its libraries."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(HERE.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    import torch

    kernels = torch.backends.cpu.get_cpu_capability()
    libraries = f"torch {torch.__version__}, numpy {numpy.__version__}, {kernels}"
    found = {"version": __version__, "libraries": libraries}
    with contextlib.suppress(OSError):  # no git
        if commit := git("rev-parse", "--short=12", "HEAD"):
            changed = " with changes" if git("status", "--porcelain", "*.py") else ""
            found["commit"] = commit + changed
    return found


class Results(Mapping[str, Any]):
    """Results by name of cell, with what they cost."""

    def __init__(self, records: Mapping[str, Record]) -> None:
        self.records = dict(records)

    def __getitem__(self, name: str) -> Any:
        return self.records[name]["result"]

    def __iter__(self) -> Iterator[str]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    @classmethod
    def read(cls, path: pathlib.Path) -> Results:
        """Read the results of a file; nothing where there is none."""
        return cls(decode(path.read_bytes(), dict) if path.exists() else {})

    @property
    def cpu(self) -> float:
        """Processor seconds of all cells; not those of processes that they started."""
        return sum(record["cpu"] or 0.0 for record in self.records.values())

    def starting(self, words: str) -> dict[str, Any]:
        """Results of the cells whose name starts with ``words``, by the rest of it."""
        return {
            name.removeprefix(words): self[name]
            for name in self
            if name.startswith(words)
        }

    def is_of(self, cell: Cell) -> bool:
        """Return whether a result of the cell's present settings and needs is here."""
        record = self.records.get(cell.name)
        if record is None or record["settings"] != plain(cell.settings):
            return False
        needs = record.get("needs", {})
        return set(needs) == set(cell.needs) and all(
            name in self and digest(self[name]) == known
            for name, known in needs.items()
        )

    def origin(self) -> dict[str, Any]:
        """Cells by what computed them, and how many came out again.

        ``again`` counts those that were computed once more, by whether they came out
        bit by bit; ``unknown`` are of no commit or of one with changes beside it.
        """
        versions: dict[str, int] = {}
        for record in self.records.values():
            commit = record.get("commit", "")
            words = " ".join(filter(None, (record.get("version", "earlier"), commit)))
            versions[words] = versions.get(words, 0) + 1
        every = self.records.values()
        tried = [record["again"]["equal"] for record in every if "again" in record]
        return {
            "versions": versions,
            "unknown": sum(" with" in r.get("commit", " with") for r in every),
            "again": {equal: tried.count(equal) for equal in (True, False)},
        }


def keep(path: pathlib.Path, record: tuple[str, Record], order: Iterable[str]) -> None:
    """Put one record into a file, whole or not at all; others may do so meanwhile."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # released with the descriptor
        records = Results.read(path).records | dict([record])
        names = [name for name in order if name in records]
        ordered = {name: records[name] for name in names} | records
        write_whole(path, encode(ordered, indent=1) + b"\n")
    finally:
        os.close(folder)


@dataclasses.dataclass(frozen=True)
class Study:
    """A study by the name of its folder."""

    name: str

    @property
    def folder(self) -> pathlib.Path:
        """Folder of the study."""
        return HERE / self.name

    def _module(self, name: str) -> Any:
        return importlib.import_module(f"reports.{self.name}.{name}")

    def path(self, *, quick: bool = False) -> pathlib.Path:
        """Path of the file of results."""
        return self.folder / ("quick.json" if quick else "results.json")

    def results(self) -> Results:
        """Results so far."""
        return Results.read(self.path())

    def cells(self, *, quick: bool = False) -> dict[str, Cell]:
        """All cells by name, in order; of the quick study few and small ones."""
        found: dict[str, Cell] = {}
        for cell in self._quick() if quick else self._every():
            if cell.name in found:
                raise ValueError(f"two cells of {self.name} are named {cell.name!r}")
            if missing := [name for name in cell.needs if name not in found]:
                raise ValueError(
                    f"{cell.name!r} needs {missing[0]!r}, which does not come before it"
                )
            found[cell.name] = cell
        return found

    def _every(self) -> Iterator[Cell]:
        module = self._module("cells")
        yield from declared(self._told, module)
        yield from getattr(module, "cells", tuple)()

    def _quick(self) -> Iterable[Cell]:
        module = self._module("cells")
        if hasattr(module, "quick"):
            return module.quick()
        return small(self._every(), **self._told.get("quick", {}))

    @property
    def _told(self) -> dict[str, Any]:
        if not (self.folder / "settings.toml").exists():
            return {}
        found = told(str(self.folder / "cells.py"))
        return found | {name: Study(name)._told for name in found.get("others", ())}

    def named(self, pattern: str, *, quick: bool = False) -> dict[str, Cell]:
        """Cells by a pattern of their names; ``ValueError`` if there are none."""
        cells = self.cells(quick=quick)
        found = {
            n: cell for n, cell in cells.items() if fnmatch.fnmatchcase(n, pattern)
        }
        if not found:
            raise ValueError(
                f"no cell of {self.name} is named {pattern!r}; --list names them all"
            )
        return found

    def compute(
        self, *, quick: bool = False, only: str = "*", path: pathlib.Path | None = None
    ) -> Results:
        """Compute what is missing of the cells named by ``only`` and of their needs.

        One thread and one cell at a time; other processes may compute others meanwhile.
        """
        one_thread()
        path = path or self.path(quick=quick)
        cells = self.cells(quick=quick)
        chosen = set(self.named(only, quick=quick))
        for name in reversed(cells):
            if name in chosen:
                chosen.update(cells[name].needs)
        costs: list[float] = []
        for count, name in enumerate(filter(chosen.__contains__, cells), start=1):
            cell, known = cells[name], Results.read(path)
            if known.is_of(cell):
                continue
            record = cell.run({need: known[need] for need in cell.needs})
            command = f"python -m reports {self.name} --only {name!r}"
            keep(path, (name, record | {"command": command}), cells)
            costs.append(record["seconds"])
            left = (len(chosen) - count) * math.fsum(costs) / len(costs)
            told = f"{costs[-1]:.1f} s; about {left / 60:.0f} min left"
            print(f"{count} of {len(chosen)}: {name}: {told}", flush=True)
        return Results.read(path)

    def rendered(self, results: Results) -> dict[str, str]:
        """Text of each page by its file name, from ``results`` alone."""
        page = self._page
        values = getattr(page, "values", lambda results: {})(results)
        templates = pages.environment(self.folder, TEMPLATES)
        known = {"study": self.name, "results": results, "paper": study_of(self.name)}
        known |= {"told": self._told}
        known |= {"cells": self._module("cells"), "page": page, "published": published}
        made = templates.get_template("made.inc").render(known)
        return {
            path.stem: templates.get_template(path.name).render(
                made=made, **known, **values
            )
            for path in sorted(self.folder.glob("*.jinja"))
        }

    @property
    def charts(self) -> dict[str, Callable[[pathlib.Path, Results], None]]:
        """Function that draws each chart, by its file name."""
        path = self.folder / "pictures.toml"
        told = tomllib.loads(path.read_text()) if path.exists() else {}
        drawn = {name: functools.partial(self._drawn, of) for name, of in told.items()}
        return {**drawn, **getattr(self._page, "CHARTS", {})}

    def _drawn(self, of: dict[str, Any], path: pathlib.Path, known: Results) -> None:
        if "lines" in of:
            pages.lines(path, known, study_of(self.name), **of)
        else:
            pages.dots(path, self.rendered(known)["README.md"], **of)

    @property
    def _page(self) -> Any:
        has = (self.folder / "page.py").exists()
        return self._module("page") if has else None

    def draw(self, results: Results, folder: pathlib.Path) -> list[pathlib.Path]:
        """Draw the charts into ``folder``."""
        for name, chart in self.charts.items():
            chart(folder / name, results)
        return [folder / name for name in self.charts]

    def write(self) -> None:
        """Write pages and charts from what was computed so far."""
        results = self.results()
        for name, text in self.rendered(results).items():
            (self.folder / name).write_text(text)
        self.draw(results, self.folder)


def one_thread() -> None:
    """Let this process compute on one thread, and note it in what is kept."""
    import torch

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)


def names() -> list[str]:
    """All studies."""
    return sorted(path.parent.name for path in HERE.glob("*/cells.py"))
