"""The plugin for pytest: fixtures, a report of all assertions, a budget of seconds.

Loaded in every pytest of an environment that has privaudit, it imports nothing but
pytest and a page of plain Python until an assertion is used.
"""

from __future__ import annotations

import importlib
import math
import pathlib
import types
import zlib
from typing import TYPE_CHECKING

import pytest

from privaudit.testing import record

if TYPE_CHECKING:
    from collections.abc import Generator

    import numpy as np


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    group = parser.getgroup("privacy", "assertions of privaudit.testing")
    group.addoption(
        "--privacy-report",
        metavar="FILE",
        help="write one page of all privacy assertions with their bounds: a web page "
        "(.html) or Markdown (any other name)",
    )
    group.addoption(
        "--privacy-budget",
        metavar="SECONDS",
        type=float,
        default=math.inf,
        help="seconds that the runs of one test may take together; pairs that come "
        "later are not tested, and reported as stopped (default: no limit)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read the options. Workers of xdist leave the report to their controller."""
    seconds = config.getoption("--privacy-budget")
    if not seconds > 0:
        raise pytest.UsageError(f"--privacy-budget must be > 0 seconds, got {seconds}")
    record.set_budget(seconds)
    file = config.getoption("--privacy-report")
    if not hasattr(config, "workerinput"):
        page = pathlib.Path(config.invocation_params.dir, file) if file else None
        config.pluginmanager.register(Collector(page), "privaudit-collector")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that is executed again gives the verdicts that it gave."""
    record.forget(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what was asserted on the report, which xdist sends to its controller."""
    report = yield
    if report.when == "call" or (report.when == "setup" and not report.passed):
        rows = record.rows_of(item.nodeid)
        if rows:
            report.privaudit = rows  # type: ignore[attr-defined]
        if report.failed:
            lines = [_line(record.row_from(row)) for row in rows]
            report.sections += [("privacy assertions", "\n".join(lines))] * bool(lines)
            if rows and call.excinfo is not None:
                said = {item.nodeid: str(call.excinfo.value)}
                report.privaudit_said = said  # type: ignore[attr-defined]
    return report


class Collector:
    """All rows of a session, from whichever process, and the page of them."""

    def __init__(self, page: pathlib.Path | None) -> None:
        self.page = page
        self.rows: list[record.Row] = []
        self.said: dict[str, str] = {}  # by failing tests

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the assertions of one test."""
        self.rows += map(record.row_from, getattr(report, "privaudit", ()))
        self.said |= getattr(report, "privaudit_said", {})

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        """Write the page; say what was not seen, not checked, or ran out of seconds."""
        page = importlib.import_module("privaudit.testing.page")
        blind = [(row, said) for row in self.rows if (said := page.unseen(row))]
        if blind:
            terminalreporter.section("privacy assertions that say little", yellow=True)
            for row, said in blind:
                terminalreporter.line(f"{row.test}: {said}: {_line(row)}", yellow=True)
            terminalreporter.line(
                "raise runs=, or try other pairs, queries or a score=; a planted bug "
                "(assert_refuted) shows whether a test can fail"
            )
        skipped = [row for row in self.rows if row.skipped]
        if skipped:
            terminalreporter.section("privacy checks that were not made", yellow=True)
            for row in skipped:
                line = f"{row.test}: {row.assertion} {row.what}: {row.skipped}"
                terminalreporter.line(line, yellow=True)
        stopped = [row for row in self.rows if row.status == "stopped"]
        if stopped:
            terminalreporter.section("privacy budget")
            for row in stopped:
                terminalreporter.line(f"{row.test}: seconds ran out: {_line(row)}")
        if self.page is None:
            return
        try:
            as_html = self.page.suffix == ".html"
            self.page.write_text(page.page(self.rows, self.said, as_html))
        except OSError as error:
            raise pytest.UsageError(
                f"cannot write --privacy-report {self.page}: {error.strerror}"
            ) from error
        terminalreporter.line(f"privacy report: {self.page}")


@pytest.fixture(scope="session")
def privacy() -> types.ModuleType:
    """The module `privaudit.testing`, as in ``privacy.assert_private(...)``."""
    return importlib.import_module("privaudit.testing")


@pytest.fixture
def privacy_rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A numpy generator seeded by the test's name, to make failures repeatable."""
    import numpy as np

    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


def _line(row: record.Row) -> str:
    from privaudit.testing.page import shown

    bound = "" if row.bound is None else f", epsilon at least {shown(row)}"
    seed = "" if row.seed is None else f", seed {row.seed}"
    return (
        f"{row.assertion} {row.what} {row.claim}: {row.status}; {row.pairs:,} pairs, "
        f"{row.runs:,} runs, {row.seconds:.1f} s{bound}{seed}"
    )
