"""Test files at or above what changed since a commit, nearest first.

Run as ``python -m tests.changed [COMMIT]``: the commit defaults to the newest one that
is half a day older than HEAD. A test file is above the modules that it imports, itself
or by others, and above the one whose place it mirrors.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

import grimp

PACKAGES = ("privaudit", "trainers", "reports", "tests")


def nearest_first(graph: grimp.ImportGraph, changed: set[str]) -> list[str]:
    """Modules that import one of ``changed``, by the number of imports between them.

    >>> graph = grimp.ImportGraph()
    >>> for one, other in (("tests.test_a", "a"), ("b", "a"), ("tests.test_b", "b")):
    ...     graph.add_import(importer=one, imported=other)
    >>> nearest_first(graph, {"a"})
    ['a', 'b', 'tests.test_a', 'tests.test_b']
    """
    found = sorted(changed & graph.modules)
    front = list(found)
    while front:
        above = {
            m for one in front for m in graph.find_modules_that_directly_import(one)
        }
        # A folder is what its files are to those that import it.
        front = sorted(above - set(found))
        found += front
    return found


def mirrored(module: str) -> str:
    """Folder or file of tests whose place is that of a module.

    >>> mirrored("privaudit.accounting.gdp"), mirrored("trainers.runs.run")
    ('tests/accounting/test_gdp.py', 'tests/trainers/runs/test_run.py')
    """
    parts = module.split(".")
    if parts[0] == "privaudit":
        parts = parts[1:]
    return "/".join(["tests", *parts[:-1], f"test_{parts[-1]}.py"]) if parts else ""


def files_above(changed: list[str]) -> list[str]:
    """Test files at or above changed files, nearest first."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    modules = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in changed
        if path.endswith(".py")
    }
    found: dict[str, None] = {}
    for module in nearest_first(graph, modules):
        own = module.replace(".", "/") + ".py"
        for path in (mirrored(module), own):
            name = path.rpartition("/")[2]
            if name.startswith("test_") and pathlib.Path(path).is_file():
                found[path] = None
    return list(found)


def since(commit: str = "") -> list[str]:
    """Paths that differ between a commit and the working tree."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    if not commit:
        newest = int(git("log", "-1", "--format=%ct"))
        commit = git("rev-list", "-1", f"--before={newest - 43_200}", "HEAD")
    if not commit:  # a history that is younger, or was not cloned: all of it is new
        return git("ls-files", "*.py").splitlines()
    return git("diff", "--name-only", commit).splitlines()


if __name__ == "__main__":
    print("\n".join(files_above(since(*sys.argv[1:2]))))
