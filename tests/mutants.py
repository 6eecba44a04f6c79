"""Plant faults in the code that bounds privacy and see that a near test falls.

``python -m tests.mutants --seed 0 --count 200`` draws a seeded sample of faults made by
operators, plants each in a copy of the tree, and runs the tests of its area that call the
function it is in, the nearest and shortest first. The record is ``tests/mutants.toml``
(for another seed or count a file in ``build/mutants``): a survivor needs a judgement
there, in a field ``judged``, or the status is 1. A run that was stopped goes on where it
was. Tests are of the quick size, unless PRIVAUDIT_TESTS says otherwise.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import collections
import contextlib
import functools
import hashlib
import importlib
import inspect
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STORE = ROOT / "tests" / "mutants.toml"
WORK = ROOT / "build" / "mutants"
AREAS = {  # code, and where its rules are tested; doctests count too
    "privaudit/accounting": ["tests/accounting"],
    "privaudit/auditing/bounds": ["tests/auditing/bounds"],
    "privaudit/files/manifest.py": ["tests/files"],
    "privaudit/report/verify.py": ["tests/report/test_verify.py"],
    "trainers/gradients": ["tests/trainers/gradients"],
    "trainers/numerics": ["tests/trainers/numerics"],
    "trainers/oracles": ["tests/trainers/oracles"],
}
# Imported once, before each child is forked; nothing of our own.
HEAVY = "numpy scipy.stats torch dp_accounting hypothesis mpmath statsmodels.api"
SLOW = (
    8.0  # processor seconds after which a test is called slow and looked at no longer
)
BUDGET = 40.0  # processor seconds of tests, as measured before, that a mutant gets


# ------------------------------------------------------------------------- operators


@dataclass(frozen=True)
class Mutant:
    """One fault: where it is, and what stands there before and after."""

    file: str
    line: int
    function: str
    operator: str
    before: str
    after: str
    ordinal: int  # among equal ones of its function
    span: tuple[int, int] = (0, 0)  # bytes of the file that are replaced

    @property
    def key(self) -> str:
        """Name that stays when other lines of the file change."""
        parts = (self.file, self.function, self.operator, self.before, self.after)
        return "\n".join((*parts, str(self.ordinal)))

    def rank(self, seed: int) -> bytes:
        """Place in the order of ``seed``: an edit elsewhere moves no mutant."""
        return hashlib.sha256(f"{seed}\n{self.key}".encode()).digest()


_COMPARE = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip
_PAIRS = "min max,minimum maximum,amin amax,floor ceil,any all,fmin fmax,log log1p,"
_PAIRS += "exp expm1,cumsum cumprod,argmin argmax,clamp_min clamp_max,sum max"
_NAMES = {a: b for pair in _PAIRS.split(",") for a, b in (pair.split(),)}
_NAMES |= {b: a for a, b in _NAMES.items() if b not in _NAMES}
_SYMMETRIC = {"min", "max", "isinstance", "minimum", "maximum", "zip", "getattr"}


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """All faults that can be made of one node, by name of the operator."""
    match node:
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", ast.Constant(value / 2 if value else 1.0)
        case ast.Compare(left, operators, right):
            for i, operator in enumerate(operators):
                for other in _COMPARE[type(operator)]:
                    new = [*operators[:i], other(), *operators[i + 1 :]]
                    yield "comparison", ast.Compare(left, new, right)
        case ast.Attribute(value, "lower" | "upper" as side):
            other = "upper" if side == "lower" else "lower"
            yield "name", ast.Attribute(value, other)
        case ast.BoolOp(operator, values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and or", ast.BoolOp(other, values)
            for i in range(len(values)):
                rest = values[:i] + values[i + 1 :]
                yield (
                    "dropped",
                    rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest),
                )
        case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC:
            yield "arithmetic", ast.BinOp(left, _ARITHMETIC[type(operator)](), right)
            yield "dropped", left
            if not isinstance(operator, ast.Sub | ast.Div | ast.Pow):
                yield "dropped", right
        case ast.AugAssign(target, operator, value):
            if type(operator) in _ARITHMETIC:
                other = _ARITHMETIC[type(operator)]()
                yield "arithmetic", ast.AugAssign(target, other, value)
            yield "dropped", ast.Pass()
        case ast.Expr(ast.Call()):
            yield "dropped", ast.Pass()
        case ast.UnaryOp(ast.USub() | ast.Not(), operand):
            yield "dropped", operand
        case ast.IfExp(test, body, orelse):
            yield "swapped", ast.IfExp(test, orelse, body)
        case ast.Call(function, args, keywords):
            name = getattr(function, "attr", getattr(function, "id", ""))
            if name in _NAMES:
                other = ast.parse(ast.unparse(function), mode="eval").body
                setattr(
                    other, "attr" if "attr" in other._fields else "id", _NAMES[name]
                )
                yield "name", ast.Call(other, args, keywords)
            plain = not any(isinstance(one, ast.Starred) for one in args)
            if name in ("min", "max", "minimum", "maximum") and len(args) > 1 and plain:
                for one in args:
                    yield "dropped", one
            elif plain and len(args) > 1 and name not in _SYMMETRIC:
                swapped = [args[1], args[0], *args[2:]]
                yield "swapped", ast.Call(function, swapped, keywords)


def _walk(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Nodes that do something: no annotations, decorators, messages or strings."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert | ast.Import):
        return
    if isinstance(node, ast.keyword) and node.arg in ("strict", "stacklevel"):
        return
    skipped = {"annotation", "returns", "decorator_list", "bases"}
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".strip(".")
    yield function, node
    for name, value in ast.iter_fields(node):
        if name not in skipped:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _walk(child, function)


def mutants_of(file: str) -> Iterator[Mutant]:
    """All mutants of a file of the checkout."""
    text = (ROOT / file).read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen: dict[str, int] = {}
    for function, node in _walk(ast.parse(text)):
        for operator, new in _changes(node):
            before, after = ast.unparse(node), ast.unparse(new)
            span = (
                starts[node.lineno - 1] + node.col_offset,
                starts[node.end_lineno - 1] + node.end_col_offset,
            )
            one = Mutant(file, node.lineno, function, operator, before, after, 0, span)
            seen[one.key] = seen.get(one.key, -1) + 1
            if before != after:
                yield replace(one, ordinal=seen[one.key])


def planted(one: Mutant, text: bytes) -> bytes | None:
    """Text of its file with the mutant in it, or None where that is no Python."""
    statement = one.after == "pass" or isinstance(
        ast.parse(one.after).body[0], ast.AugAssign
    )
    put = one.after if statement else f"({one.after})"
    whole = text[: one.span[0]] + put.encode() + text[one.span[1] :]
    try:
        ast.parse(whole)
    except SyntaxError:
        return None
    return whole


def sample(seed: int, count: int, only: str = "") -> list[Mutant]:
    """The first ``count`` mutants in the order of ``seed``."""
    every = [one for file in sources() if only in file for one in mutants_of(file)]
    every.sort(key=lambda one: one.rank(seed))
    drawn = (one for one in every if planted(one, (ROOT / one.file).read_bytes()))
    return list(itertools.islice(drawn, count))


def sources() -> list[str]:
    """Files that mutants are drawn from."""
    found = [one for area in AREAS for one in (ROOT / area, *(ROOT / area).rglob("*"))]
    return sorted(str(one.relative_to(ROOT)) for one in found if one.suffix == ".py")


# ------------------------------------------------------------- a copy, and children in it


def copy_tree(to: Path) -> None:
    """Copy what git knows of the checkout, with its times."""
    names = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(names, cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def forked(work: Callable[[], object], limit: float) -> object:
    """Result of ``work`` in a child, None if it died or took more than ``limit``.

    The limit is of processor time; a child that waits for others may take ten times that.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 9))
        nowhere = os.open(WORK / "child.log", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            with os.fdopen(writing, "w") as out:
                json.dump(work(), out)
        except BaseException:
            traceback.print_exc()
        os._exit(0)  # nothing of the parent's is cleaned up here
    os.close(writing)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
    signal.alarm(int(10 * limit))
    with os.fdopen(reading, "rb") as said:
        text = said.read()
    os.waitpid(child, 0)
    signal.alarm(0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it left running
    return json.loads(text) if text else None


class _TooSlow(BaseException):
    """A test used up its time."""


class Plugin:
    """Of pytest: run chosen tests in an order, or each with a limit and what it calls."""

    def __init__(self, order: list[str] | None = None) -> None:
        self.order = order
        self.ended: dict[str, str] = {}  # those that did not pass
        self.rows: dict[str, dict] = {}
        self.shared: set[str] = set()  # called by imports and by fixtures of many tests
        self.called: set[str] = set()
        self.caches: list = []
        builtins._called = self.called.add

    @pytest.hookimpl(trylast=True)  # of what the size of the suite leaves
    def pytest_collection_modifyitems(self, items: list) -> None:
        if self.order is not None:
            rank = {name: i for i, name in enumerate(self.order)}
            items[:] = [one for one in items if one.nodeid in rank]
            items.sort(key=lambda one: rank[one.nodeid])
        self.shared |= self.called
        ours = ("tests.", "privaudit", "trainers")
        modules = [m for name, m in [*sys.modules.items()] if name.startswith(ours)]
        inside = [one for m in modules for one in vars(m).values()]
        inside += [o for c in inside if isinstance(c, type) for o in vars(c).values()]
        self.caches = [one for one in inside if callable(_clear_of(one))]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if self.order is not None:
            yield
            return
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

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.ended[report.nodeid or "collection"] = "failed"


def _clear_of(one: object) -> object:
    return inspect.getattr_static(one, "cache_clear", None) and one.cache_clear


def _stop(*_: object) -> None:
    raise _TooSlow


def run_tests(tree: Path, files: list[str], plugin: Plugin) -> Plugin:
    """Run pytest in this process, on a tree and with the packages of that tree."""
    os.chdir(tree)
    os.environ["PYTHONPATH"] = str(tree)
    sys.dont_write_bytecode = False  # each child imports them anew
    sys.path[:] = [str(tree), *(one for one in sys.path if one not in ("", str(ROOT)))]
    for name in [one for one in sys.modules if one.split(".")[0] == "tests"]:
        del sys.modules[name]  # ours, of the checkout
    given = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
    given += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # imported before
    pytest.main(given if plugin.order is None else ["-x", *given], [plugin])
    return plugin


# ------------------------------------------------------------- which test calls what


def instrument(tree: Path) -> None:
    """Let each function of a copy say that it was called."""
    for file in sources():
        if file == "trainers/numerics/loops.py":  # compiled: calls of its file count
            continue
        parsed = ast.parse((tree / file).read_text())
        for function, node in [*_walk(parsed)]:
            if isinstance(node, ast.FunctionDef):
                where = int(ast.get_docstring(node) is not None)
                said = "__import__('builtins').__dict__.get('_called', id)"
                call = ast.parse(f"{said}({f'{file}:{function}'!r})").body
                node.body[where:where] = call
        (tree / file).write_text(ast.unparse(parsed))


def tests_of(area: str) -> list[str]:
    """Files with the tests of an area: its own, and modules that have doctests."""
    places = [p for one in AREAS[area] for p in (ROOT / one, *(ROOT / one).rglob("*"))]
    found = [p for p in places if p.name.startswith("test_") and p.suffix == ".py"]
    own = [ROOT / one for one in sources() if one.startswith(area)]
    found += [one for one in own if ">>>" in one.read_text()]
    return sorted({str(one.relative_to(ROOT)) for one in found})


def learn(areas: list[str]) -> dict[str, dict]:
    """Give what each test calls and the time it takes, from a run of all that changed."""
    kept = WORK / "calls.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    files = sorted({one for area in areas for one in tests_of(area)})
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
                if rows is None:
                    raise RuntimeError(f"{file} did not end: {WORK / 'child.log'}")
                known[file] = {"digest": digest[file], "tests": rows}
                write(kept, json.dumps(known))
                clock.say(f"learnt {file}: {len(rows)} tests")
    return {name: row for f in files for name, row in known[f]["tests"].items()}


def _learnt(tree: Path, file: str) -> dict[str, dict]:
    plugin = run_tests(tree, [file], Plugin())
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
    # What runs when imported is called by whoever calls its class, or its file.
    place = f"{one.file}:{one.function}"
    for here in (place.__eq__, lambda c: c.startswith(f"{one.file}:")):
        called = called or [n for n, r in tests.items() if any(map(here, r["calls"]))]

    def order(name: str) -> tuple:
        far = stem not in Path(name.partition("::")[0]).stem
        return name != killer, far, tests[name]["seconds"], name

    left, taken = BUDGET, []
    for name in sorted(called, key=order):
        left -= 3 * SLOW if tests[name]["slow"] else tests[name]["seconds"]
        if left >= 0 or not taken:
            taken.append(name)
    return taken


# --------------------------------------------------------------------------- the record


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


def record(path: Path, seed: int, rows: list[dict]) -> None:
    """Write a record: a row a line, in the order of their places."""
    rows = sorted(rows, key=lambda row: (row["file"], row["line"], key_of(row)))
    said = (json.dumps(v, ensure_ascii=False) for row in rows for v in row.values())
    lines = [
        "  {" + ", ".join(f"{name} = {next(said)}" for name in row) + "},"
        for row in rows
    ]
    top = [f"# {one}" for one in summary(seed, rows)]
    write(path, "\n".join([*top, "mutants = [", *lines, "]", ""]))


def summary(seed: int, rows: list[dict]) -> list[str]:
    """Figures of a record, a line each."""
    kinds = collections.Counter(
        row["result"]
        if row["result"] != "survived"
        else "survived, judged " + row.get("judged", "not yet").partition(":")[0]
        for row in rows
    )
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return [
        f"Made by `python -m tests.mutants --seed {seed}`.",
        f"{len(rows)}: {told}.",
    ]


def tried(
    one: Mutant, tree: Path, tests: dict[str, dict], killer: str
) -> dict[str, str]:
    """Plant a mutant in the tree, run its tests, and take it out again."""
    place = tree / one.file
    text, times = place.read_bytes(), place.stat()
    place.write_bytes(planted(one, text))
    os.utime(place, (time.time(), next(_STAMPS)))  # no compiled file has this time
    try:
        named = chosen(one, tests, killer)
        near = list(dict.fromkeys(name.partition("::")[0] for name in named))[:2]
        first = [name for name in named if name.partition("::")[0] in near]
        for order in (first, [name for name in named if name not in first]):
            seconds = sum(tests[name]["seconds"] for name in order)
            work = functools.partial(_fallen, tree, order)
            fallen = forked(work, 30 + 3 * seconds) if order else []
            if fallen is None:
                return {"result": "timeout"}
            if fallen:
                return {"result": "killed", "by": fallen[0]}
        return {"result": "survived", "tests": len(named)}
    finally:
        place.write_bytes(text)
        os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))


_STAMPS = itertools.count(int(time.time()) - 10**6)


def _fallen(tree: Path, order: list[str]) -> list[str]:
    files = list(dict.fromkeys(name.partition("::")[0] for name in order))
    return [*run_tests(tree, files, Plugin(order)).ended]


def main() -> int:
    """Run a sample; the status is 1 if a survivor is not judged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", default="", help="files whose path has this")
    parser.add_argument("--again", action="store_true", help="survivors once more")
    asked = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    whole = (asked.seed, asked.count, asked.only) == (0, 200, "")
    name = f"seed-{asked.seed}-{asked.count}{asked.only.replace('/', '-')}"
    path = STORE if whole else WORK / f"{name}.toml"
    log = WORK / f"{name}.jsonl"  # of this run, which goes on if it is stopped
    kept = read(STORE) | read(path)
    lines = log.read_text().splitlines() if log.exists() else []
    done = {key_of(row): row for row in map(json.loads, lines)}
    drawn = sample(asked.seed, asked.count, asked.only)
    if asked.again:
        done = {k: row for k, row in done.items() if row["result"] != "survived"}
    todo = [one for one in drawn if one.key not in done]
    for module in HEAVY.split():
        importlib.import_module(module)
    tests = learn(
        [area for area in AREAS if any(x.file.startswith(area) for x in todo)]
    )
    with tempfile.TemporaryDirectory() as place, log.open("a") as out:
        tree = Path(place) / "tree"
        copy_tree(tree)
        clock = Clock(len(todo))
        for one in todo:
            killer = kept.get(one.key, {}).get("by", "")
            row = {k: v for k, v in asdict(one).items() if k != "span"}
            row |= tried(one, tree, tests, killer)
            done[one.key] = row
            print(json.dumps(row), file=out, flush=True)
            what = f"{one.before[:60]} -> {one.after[:60]}"
            clock.say(f"{row['result']:8} {one.file}:{one.line} {what}")
    rows = [done[one.key] | {"line": one.line} for one in drawn]
    for row in rows:
        judged = kept.get(key_of(row), {}).get("judged")
        if row["result"] == "survived" and judged:
            row["judged"] = judged
    record(path, asked.seed, rows)
    log.unlink()
    print(*summary(asked.seed, rows), f"The record is {path}.", sep="\n")
    return int(any(row["result"] == "survived" and "judged" not in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
