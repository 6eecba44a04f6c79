"""Sizes of the suite, profiles of hypothesis, and no doctests where there are none."""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import os
import pathlib
import re
import sys
from collections.abc import Callable, Generator

import pytest
from _pytest.assertion import rewrite
from hypothesis import settings

from tests import tiers

# The suite runs in several processes; a torch thread pool in each would fight.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples every time, many more at night.
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("full", deadline=None, derandomize=True, max_examples=200)
settings.register_profile("nightly", deadline=None, max_examples=5000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "full" if tiers.FULL else "quick")
)


# Tests that read the charts of a page.
_CHARTS = re.compile(
    "test_page.py::Test(Alone|Laws::test_(equal|odd))|a_square|is_nowhere|is_cond|demo|extra"
)


@pytest.fixture(scope="session", autouse=True)
def quick() -> Generator[None]:
    """Audits simulate less and start one process, and pages have no charts.

    The level of a test by ranks is exact for any number of simulations, and a tuned
    ledger's profile is a bound for any number of epsilons.
    """
    from privaudit.accounting import tuning
    from privaudit.auditing.bounds import family_ranks, ledger_family
    from privaudit.auditing.experiments import reach
    from privaudit.report import attack, limits, plots

    drawn = ((attack, "histogram"), (attack, "roc"), (plots, "quality"))
    drawn += ((limits, "trade_off"), (limits, "against_runs"), (plots, "consensus"))
    drawn += ((plots, "_epsilon_axis"),)

    def seldom(draw: Callable[..., str]) -> Callable[..., str]:
        def here(*given: object, **more: object) -> str:
            now = os.environ.get("PYTEST_CURRENT_TEST", "")
            return draw(*given, **more) if _CHARTS.search(now) else ""

        return here

    ranks = functools.partial(family_ranks.RanksOfFamily, simulations=199)
    with pytest.MonkeyPatch.context() as patch:
        if not tiers.FULL:
            patch.setattr(ledger_family, "RanksOfFamily", ranks)
            patch.setattr(family_ranks, "_MOST", 199)
            patch.setattr(family_ranks, "_PILOT", 50)
            patch.setattr(limits, "_PARTS", 2)
            patch.setattr(tuning, "_LINES", 30)
            for place, name in drawn:
                patch.setattr(place, name, seldom(getattr(place, name)))
            patch.setattr(reach, "_REPEATS", 1)
            patch.setattr(reach, "_LEAST", 1)
            patch.setattr(os, "cpu_count", lambda: 1)  # each takes seconds to start
            for name in ("fsync", "fdatasync"):  # no machine fails meanwhile
                patch.setattr(os, name, lambda file: None, raising=False)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seconds", type=float, help="skip the tests that have not begun by then"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.seconds is not None:
        config.pluginmanager.register(tiers.Deadline(config.option.seconds))
    # As the home of a plugin, all of privaudit would have its asserts rewritten, which
    # takes seconds and changes nothing: its tests are elsewhere.
    hook = config.pluginmanager.rewrite_hook
    getattr(hook, "_must_rewrite", set()).discard("privaudit")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let each of xdist's workers rewrite the asserts of a part of the files, for all.

    All would rewrite all, which takes seconds.
    """
    worker = getattr(session.config, "workerinput", None)
    whole = session.config.args_source == pytest.Config.ArgsSource.TESTPATHS
    if worker is None or not whole or sys.dont_write_bytecode:
        return
    files = sorted((session.config.rootpath / "tests").rglob("test_*.py"))
    mine = slice(int(worker["workerid"][2:]), None, worker["workercount"])
    for file in files[mine]:
        folder = rewrite.get_cache_dir(file)
        kept = folder / (file.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(file, kept) is None and rewrite.try_makedirs(folder):
            stat, code = rewrite._rewrite_test(file, session.config)
            state = session.config.stash[rewrite.assertstate_key]
            rewrite._write_pyc(state, code, stat, kept)


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    tiers.together(items)
    if not tiers.FULL:
        items[:], left = tiers.sampled(items)
        config.hook.pytest_deselected(items=left)


def pytest_collection_finish() -> None:
    """Thousands of tests are no garbage: to look for some among them takes 7 %."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_runtest_setup() -> None:
    if next(_TESTS) % 200 == 0:  # memory that came since is in small ones
        large_pages()


_TESTS = itertools.count()


def large_pages() -> None:
    """Where Linux makes them: a fork for a record, hundreds, copies all page tables."""
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is None or not os.path.exists("/proc/self/maps"):
        return
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    for place, rights, _, _, _, *path in (line.split() for line in maps):
        if rights == "rw-p" and path in ([], ["[heap]"]):
            start, end = (int(part, 16) >> 21 << 21 for part in place.split("-"))
            advise(start + (1 << 21), max(0, end - start - (1 << 21)), 25)  # collapse


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: pathlib.Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """A file without an example need not be imported to find none."""
    found = yield
    if file_path.suffix == ".py" and ">>>" not in file_path.read_text():
        found = [one for one in found if type(one).__name__ != "DoctestModule"]
    return found
