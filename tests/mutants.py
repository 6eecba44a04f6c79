"""Plant faults in the code that bounds privacy and see that a near test falls.

``python -m tests.mutants --seed 0 --count 200`` draws faults (``tests/faults.py``),
plants each in a copy of the tree, and runs the tests of its area that call the function
it is in: what killed it before first, then near ones, then the shortest. The record is
``tests/mutants.toml`` (with ``--only privaudit/kernel.py --count 100`` it is
``tests/mutants_kernel.toml``; else a file in ``build/mutants``). There a survivor needs
a judgement, a field ``judged``, or the status is 1. A run that was stopped goes on
where it was. Tests are of the quick size unless ``PRIVAUDIT_TESTS`` says otherwise.

With ``--judge --only privaudit/accounting`` the accounts write certificates with each
fault, and the kernel judges those that are false: ``tests/mutants_judged.toml``.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import collections
import contextlib
import functools
import gc
import hashlib
import importlib
import inspect
import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.faults import Mutant, nodes_of, planted, sample

ROOT = Path(__file__).parents[1]
STORE = ROOT / "tests" / "mutants.toml"
WORK = ROOT / "build" / "mutants"
AREAS = {  # code, and where its rules are tested; doctests count too
    "privaudit/accounting": "tests/accounting tests/test_kernel.py",
    "privaudit/auditing/bounds": "tests/auditing/bounds",
    "privaudit/files/manifest.py": "tests/files",
    "privaudit/report/difference.py": "tests/report/test_verify.py",
    "privaudit/report/planned.py": "tests/report/test_verify.py",
    "privaudit/report/verify.py": "tests/report/test_verify.py",
    "trainers/gradients": "tests/trainers/gradients tests/trainers/models",
    "trainers/numerics": "tests/trainers/numerics",
    "trainers/oracles": "tests/trainers/oracles",
}
KERNEL = {"privaudit/kernel.py": "tests/test_kernel.py"}  # a record of its own
# Imported once, before each child is forked; nothing of our own.
HEAVY = "numpy scipy.stats torch dp_accounting hypothesis mpmath statsmodels.api"
SLOW = 8.0  # processor seconds of a test after which it is not watched further
BUDGET = 20.0  # processor seconds of tests, as measured before, that a mutant gets


def files_of(place: str, prefix: str = "") -> list[str]:
    """Python files at or below a place whose names have a prefix."""
    found = [ROOT / place, *(ROOT / place).rglob("*")]
    found = [one for one in found if one.suffix == ".py"]
    names = (str(x.relative_to(ROOT)) for x in found if x.name.startswith(prefix))
    return sorted(names)


QUIET = ("-q", "-s", "-p", "no:cacheprovider")
SOURCES = [file for area in AREAS | KERNEL for file in files_of(area)]


def copy_tree(to: Path) -> None:
    """Copy what git knows of the checkout, with its times."""
    names = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(names, cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def forked(work: Callable[[], object], limit: float, quiet: bool = True) -> object:
    """Result of ``work`` in a child, None if it died or took more than ``limit``.

    The limit is of processor time; of time by the clock it gets ten times as much.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 9))
        if quiet:
            log = os.open(WORK / "child.log", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            os.dup2(log, 1)
            os.dup2(log, 2)
        try:
            with os.fdopen(writing, "w") as out:
                json.dump(work(), out)
            os._exit(0)  # nothing of the parent's is cleaned up here
        except BaseException:
            traceback.print_exc()
        os._exit(3)
    os.close(writing)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
    signal.alarm(int(10 * limit))
    try:
        with os.fdopen(reading, "rb") as said:
            text = said.read()
        _, status = os.waitpid(child, 0)
    finally:
        signal.alarm(0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # and what it left running
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError(f"a child failed by itself: see {WORK / 'child.log'}")
    return json.loads(text) if text else None


class _TooSlow(BaseException):
    """A test used up its time."""


class Learner:
    """Pytest plugin: what each test calls, and how long it takes, up to ``SLOW``."""

    def __init__(self) -> None:
        self.ended: dict[str, str] = {}  # those that did not pass
        self.rows: dict[str, dict] = {}
        self.shared: set[str] = set()  # called by imports and by fixtures of many tests
        self.called: set[str] = set()
        self.caches: list = []
        builtins._called = self.called.add

    def pytest_collection_finish(self) -> None:
        self.shared |= self.called
        self.caches = caches()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        for one in self.caches:  # or only the first to ask calls what is cached
            _clear_of(one)()
        self.called.clear()
        began = time.process_time()
        signal.signal(signal.SIGPROF, _stop)
        signal.setitimer(signal.ITIMER_PROF, SLOW)
        yield
        signal.setitimer(signal.ITIMER_PROF, 0)
        took = round(time.process_time() - began, 2)
        self.rows[item.nodeid] = {"seconds": took, "calls": {*self.called}}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: object) -> Iterator[None]:
        before = set(self.called)
        yield
        if fixturedef.scope != "function":
            self.shared |= self.called - before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            slow = "_TooSlow" in str(report.longrepr)
            self.ended[report.nodeid] = "slow" if slow else report.outcome


def caches() -> list:
    """Functions of ours that remember what they found."""
    ours = ("tests.", "privaudit", "trainers")
    modules = [m for name, m in [*sys.modules.items()] if name.startswith(ours)]
    inside = [one for m in modules for one in vars(m).values()]
    inside += [o for c in inside if isinstance(c, type) for o in vars(c).values()]
    return [one for one in inside if callable(_clear_of(one))]


def _clear_of(one: object) -> object:
    return inspect.getattr_static(one, "cache_clear", None) and one.cache_clear


def _stop(*_: object) -> None:
    raise _TooSlow


def in_tree(tree: Path, files: list[str], plugin: object) -> None:
    """Run pytest in this process, on a tree and with the packages of that tree."""
    os.chdir(tree)
    os.environ["PYTHONPATH"] = str(tree)
    sys.dont_write_bytecode = False  # children import what others did
    sys.path[:] = [str(tree), *(one for one in sys.path if one not in ("", str(ROOT)))]
    for name in [one for one in sys.modules if one.split(".")[0] == "tests"]:
        del sys.modules[name]  # ours, of the checkout
    given = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # imported before
    pytest.main([*QUIET, *given, *files], [plugin])


def instrument(tree: Path) -> None:
    """Let each function of a copy say that it was called."""
    for file in SOURCES:
        if file == "trainers/numerics/loops.py":  # compiled: calls of its file count
            continue
        parsed = ast.parse((tree / file).read_text())
        for function, node in [*nodes_of(parsed)]:
            if isinstance(node, ast.FunctionDef):
                where = int(ast.get_docstring(node) is not None)
                said = "__import__('builtins').__dict__.get('_called', id)"
                call = ast.parse(f"{said}({f'{file}:{function}'!r})").body
                node.body[where:where] = call
        (tree / file).write_text(ast.unparse(parsed))


def tests_of(area: str) -> list[str]:
    """Files with the tests of an area: its own, and modules that have doctests."""
    own = [f for f in files_of(area) if ">>>" in (ROOT / f).read_text()]
    places = (AREAS | KERNEL)[area].split()
    return [file for place in places for file in files_of(place, "test_")] + own


def learn(area: str) -> dict[str, dict]:
    """See what each test calls, and for how long, from a run of what has changed."""
    kept = WORK / "calls.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    files = tests_of(area)
    digest = {f: hashlib.sha256((ROOT / f).read_bytes()).hexdigest() for f in files}
    todo = [f for f in files if known.get(f, {}).get("digest") != digest[f]]
    if todo:
        with tempfile.TemporaryDirectory() as place:
            tree = Path(place) / "tree"
            copy_tree(tree)
            instrument(tree)
            clock = Clock(len(todo))
            for file in todo:
                rows = forked(functools.partial(_learnt, tree, file), 1200)
                known[file] = {"digest": digest[file], "tests": rows or {}}
                write(kept, json.dumps(known))
                clock.say(f"learnt {file}: {len(rows)} tests")
    return {name: row for f in files for name, row in known[f]["tests"].items()}


def _learnt(tree: Path, file: str) -> dict[str, dict]:
    plugin = Learner()
    in_tree(tree, [file], plugin)
    ended, shared = plugin.ended, plugin.shared
    return {  # a test that does not pass without a fault says nothing
        name: row | {"calls": sorted(row["calls"] | shared), "slow": name in ended}
        for name, row in plugin.rows.items()
        if ended.get(name, "slow") == "slow"
    }


def chosen(one: Mutant, tests: dict[str, dict], killer: str) -> list[str]:
    """Tests of a mutant: what killed it before, then near ones, then the shortest."""
    stem = Path(one.file).stem.strip("_")
    called: list[str] = []
    # What runs when imported is called by whoever calls its file; what is compiled, as
    # trainers/numerics/loops.py, by whoever calls its folder.
    place, folder = f"{one.file}:{one.function}", f"{Path(one.file).parent}/"
    near = (
        place.__eq__,
        *(lambda c, p=p: c.startswith(p) for p in (f"{one.file}:", folder)),
    )
    for here in near:
        called = called or [n for n, r in tests.items() if any(map(here, r["calls"]))]

    def order(name: str) -> tuple:
        far = stem not in Path(name.partition("::")[0]).stem
        return name != killer, far, tests[name]["seconds"], name

    left, taken = BUDGET, []
    for name in sorted(called, key=order):
        cost = 3 * SLOW if tests[name]["slow"] else tests[name]["seconds"]
        if cost <= left or not taken:
            left -= cost
            taken.append(name)
    return taken


class Clock:
    """Print lines with how far a list is and about how long the rest takes."""

    def __init__(self, count: int) -> None:
        self.count, self.done, self.began = count, 0, time.monotonic()

    def say(self, line: str) -> None:
        self.done += 1
        each = (time.monotonic() - self.began) / self.done
        left = each * (self.count - self.done) / 60
        print(f"[{self.done}/{self.count}, {left:.0f} min left] {line}", flush=True)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


def key_of(row: dict) -> str:
    """The key of the mutant of a row."""
    names = ("file", "function", "operator", "before", "after", "ordinal")
    return "\n".join(str(row[name]) for name in names)


def read(path: Path) -> dict[str, dict]:
    """Rows of a record by their keys."""
    rows = tomllib.loads(path.read_text())["mutants"] if path.exists() else []
    return {key_of(row): row for row in rows}


def rows_of(log: Path) -> dict[str, dict]:
    """Rows of a log by their keys: of equal ones the last."""
    lines = log.read_text().splitlines() if log.exists() else []
    return {key_of(row): row for row in map(json.loads, lines)}


def record(path: Path, seed: int, rows: list[dict], drawn: int) -> None:
    """Write a record: a row a line, in the order of their keys."""
    rows = sorted(rows, key=key_of)
    said = (json.dumps(v, ensure_ascii=False) for row in rows for v in row.values())
    lines = [
        "  {" + ", ".join(f"{name} = {next(said)}" for name in row) + "},"
        for row in rows
    ]
    top = [f"# {one}" for one in summary(seed, rows, drawn)]
    write(path, "\n".join([*top, "mutants = [", *lines, "]", ""]))


def summary(seed: int, rows: list[dict], drawn: int) -> list[str]:
    """Figures of a record, a line each."""
    kinds = collections.Counter(
        row["result"]
        if row["result"] != "survived"
        else "survived, judged " + row.get("judged", "not yet").partition(":")[0]
        for row in rows
    )
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return [
        f"Made by `python -m tests.mutants {' '.join(sys.argv[1:]) or '--seed 0'}`.",
        f"Of {drawn} drawn {len(rows)} were tried: {told}.",
    ]


class Planter:
    """Pytest plugin: of the tests collected, run those of each mutant in a child."""

    def __init__(
        self,
        tree: Path,
        mutants: list[Mutant],
        tests: dict[str, dict],
        done: Callable[[Mutant, dict], None],
        kept: dict[str, dict],
    ) -> None:
        self.tree, self.mutants, self.tests = tree, mutants, tests
        self.done, self.kept = done, kept
        self.stamps = itertools.count(int(time.time()) - 10**6)
        self.failed: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("tests cannot be collected")
        self.items = {item.nodeid: item for item in session.items}
        tests = {n: row for n, row in self.tests.items() if n in self.items}
        for one in self.mutants:
            killer = self.kept.get(one.key, {}).get("by", "")
            named = chosen(one, tests, killer)
            seconds = sum(tests[name]["seconds"] for name in named)
            self.done(one, self.trial(one, named, seconds))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def trial(self, one: Mutant, named: list[str], seconds: float) -> dict:
        """Plant a mutant, run the tests named, and take it out again."""
        place = self.tree / one.file
        text, times = place.read_bytes(), place.stat()
        changed = planted(one, text)
        place.write_bytes(changed)  # for what is started, and imports it
        os.utime(place, (time.time(), next(self.stamps)))  # as no compiled file
        try:
            work = functools.partial(self._fallen, str(place), changed, named)
            fallen = forked(work, 10 + 3 * seconds) if named else []
        finally:
            place.write_bytes(text)
            os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))
        return {"result": "timeout"} if fallen is None else self.result(fallen, named)

    def result(self, fallen: list[str], named: list[str]) -> dict:
        """Fields of a row: what fell."""
        if fallen:
            return {"result": "killed", "by": fallen[0]}
        return {"result": "survived", "tests": len(named)}

    def _fallen(self, file: str, changed: bytes, named: list[str]) -> list[str]:
        """In a child: the first test that fails, if one does."""
        if not exchanged(file, changed):  # runs when imported: import anew
            command = [sys.executable, "-m", "pytest", "-x", "-rfE", *QUIET, *named]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            said = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.M)
            return said or (["collection"] if done.returncode not in (0, 5) else [])
        for name, following in itertools.pairwise([*named, None]):
            item, after = self.items[name], self.items.get(following)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self.failed:
                break
        return self.failed


def exchanged(file: str, changed: bytes) -> bool:
    """Give all functions of a file that live the code of its changed text, if any."""
    codes, found = [compile(changed, file, "exec")], {}
    for code in codes:  # which grows
        codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
        found[code.co_qualname, code.co_firstlineno] = code
    some = False
    for one in gc.get_objects():
        if type(one) is types.FunctionType and one.__code__.co_filename == file:
            old = one.__code__
            new = found.get((old.co_qualname, old.co_firstlineno), old)
            if new != old and new.co_freevars == old.co_freevars:
                one.__code__, some = new, True
    return some


def certificates() -> list[dict | None]:
    """Certificates that the accounts of this tree write; None for what they refuse."""
    found: list[dict | None] = []
    for make in importlib.import_module("tests.test_kernel").certificates():
        try:
            found.append(make())
        except Exception:  # what is refused claims nothing
            found.append(None)
    return found


def judged(right: list[dict]) -> str:
    """Judge what certificates claim, beside the ``right`` ones, by the kernel.

    A claim is false where it leaves the bracket of the right ones.
    """
    kernel = importlib.import_module("privaudit.kernel")
    result = "right"
    for one, true in zip(certificates(), right, strict=True):
        for side, other, false in (
            ("upper", "lower", float.__lt__),
            ("lower", "upper", float.__gt__),
        ):
            if one is None or None in (one[side], true[other]):
                continue
            if false(float(one[side]), float(true[other])):
                result = "false, refused"
                with contextlib.suppress(Exception):
                    if kernel.Certificate(json.dumps(one | {other: None})).check(id):
                        return "false, accepted"
    return result


class Judge(Planter):
    """Planter whose trials are certificates that the kernel judges."""

    def run(self) -> None:
        """Judge what all mutants lead to."""
        os.chdir(self.tree)
        sys.path[:] = [
            str(self.tree),
            *(x for x in sys.path if x not in ("", str(ROOT))),
        ]
        for name in [one for one in sys.modules if one.split(".")[0] == "tests"]:
            del sys.modules[name]  # ours, of the checkout
        self.right = certificates()
        assert None not in self.right
        self.caches = caches()
        for one in self.mutants:
            self.done(one, self.trial(one, ["certificates"], 4))

    def result(self, fallen: list[str], named: list[str]) -> dict:
        """Fields of a row: what the kernel says."""
        return {"result": fallen[0]}

    def _fallen(self, file: str, changed: bytes, named: list[str]) -> list[str]:
        if exchanged(file, changed):
            for one in self.caches:
                _clear_of(one)()
            return [judged(self.right)]
        right = self.tree / "right.json"
        right.write_text(json.dumps(self.right))
        code = "import json; from tests import mutants; print(mutants.judged(json.load("
        command = [sys.executable, "-c", code + f"open({str(right)!r}))))"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return [done.stdout.strip() or "nothing runs"]


def main() -> int:
    """Run a sample; the status is 1 if a survivor is not judged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", default="", help="files whose path has this")
    parser.add_argument("--judge", action="store_true", help="by the kernel")
    parser.add_argument("--again", action="store_true", help="survivors once more")
    asked = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    whole = (asked.seed, asked.count, asked.only) == (0, 200, "")
    name = f"seed-{asked.seed}-{asked.count}{asked.only.replace('/', '-')}"
    path = STORE if whole else WORK / f"{name}.toml"
    if asked.judge:
        name, path = f"judged-{name}", STORE.with_name("mutants_judged.toml")
    elif asked.only in KERNEL:
        path = STORE.with_name("mutants_kernel.toml")
    log = WORK / f"{name}.jsonl"  # of this run, which goes on if it is stopped
    kept = read(STORE) | read(path)
    done = rows_of(log)
    areas = KERNEL if asked.only in KERNEL else AREAS
    files = [file for area in areas for file in files_of(area) if asked.only in file]
    drawn = sample(ROOT, files, asked.seed, asked.count)
    if asked.again:
        done = {k: row for k, row in done.items() if row["result"] != "survived"}
    todo = [one for one in drawn if one.key not in done]
    for module in HEAVY.split():
        importlib.import_module(module)
    clock = Clock(len(todo))

    def note(one: Mutant, result: dict) -> None:
        told = asdict(one)
        del told["span"], told["line"]  # which change with the lines around it
        row = told | result
        with log.open("a") as out:
            print(json.dumps(row), file=out)
        what = f"{one.before[:60]} -> {one.after[:60]}"
        clock.say(f"{row['result']:8} {one.file}:{one.line} {what}")

    for area in areas:
        here = [one for one in todo if one.file.startswith(area)]
        if here and asked.judge:
            with tempfile.TemporaryDirectory() as place:
                tree = Path(place) / "tree"
                copy_tree(tree)
                forked(Judge(tree, here, {}, note, {}).run, 1e6, quiet=False)
        elif here:
            tests = learn(area)
            with tempfile.TemporaryDirectory() as place:
                tree = Path(place) / "tree"
                copy_tree(tree)
                plugin = Planter(tree, here, tests, note, kept)
                work = functools.partial(in_tree, tree, tests_of(area), plugin)
                forked(work, 1e6, quiet=False)
            clock.done += len(here)
    done = rows_of(log)
    rows = [done[one.key] for one in drawn if one.key in done]
    for row in rows:
        judged = kept.get(key_of(row), {}).get("judged")
        if row["result"] == "survived" and judged:
            row["judged"] = judged
    record(path, asked.seed, rows, len(drawn))
    print(*summary(asked.seed, rows, len(drawn)), f"The record is {path}.", sep="\n")
    if len(rows) < len(drawn):
        return 1
    log.unlink()
    open_ = [row for row in rows if row["result"] in ("survived", "false, accepted")]
    return int(any("judged" not in row for row in open_))


if __name__ == "__main__":
    sys.exit(main())
