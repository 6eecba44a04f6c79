"""Two sizes of one suite: ``make test`` in minutes, ``make test-full`` all of it.

What is smaller in the quick size says so where it stands:

- ``@pytest.mark.full``: not in the quick one at all;
- ``@pytest.mark.sampled(k)``: of the cases of one test every k-th, evenly;
- ``@pytest.mark.sized``: as many runs, draws or steps as ``size(full, quick)`` says;
- a test by hypothesis: ``examples(full)``, or a tenth of the profile's.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from typing import TypeVar

import hypothesis
import pytest

FULL = os.environ.get("PRIVAUDIT_TESTS") == "full"

T = TypeVar("T")


def size(full: T, quick: T) -> T:
    """The one of two that this run asks for; the test is marked ``sized``."""
    return full if FULL else quick


def examples(full: int) -> hypothesis.settings:
    """Settings of a test by hypothesis with a count of its own."""
    return hypothesis.settings(max_examples=size(full, -(-full // 10)))


def sampled(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Items of the quick size, and those that it leaves out."""
    cases = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    left = set()
    for group in cases.values():
        mark = group[0].get_closest_marker("sampled")
        if mark is not None:
            (step,) = mark.args
            left.update(item.nodeid for k, item in enumerate(group) if k % step)
    left.update(item.nodeid for item in items if item.get_closest_marker("full"))
    return (
        [item for item in items if item.nodeid not in left],
        [item for item in items if item.nodeid in left],
    )


# What starts processes, by a server that takes four seconds of work to start.
_SERVED = re.compile("Supervisor|sweep_run|SWEEP")


def together(items: list[pytest.Item]) -> None:
    """Let tests of files that make something once run in one process."""
    texts = {path: path.read_text() for path in {item.path for item in items}}
    for item in items:
        if _SERVED.search(texts[item.path]):
            item.add_marker(pytest.mark.xdist_group("served"))
        elif 'scope="module"' in texts[item.path]:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


class Deadline:
    """Tests that would begin after so many seconds are skipped, and counted as that."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def pytest_runtest_setup(self) -> None:
        if time.monotonic() > self._end:
            pytest.skip("no time left for this one at full size")
