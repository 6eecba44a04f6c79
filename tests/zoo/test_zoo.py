"""Every planted bug is caught by the check that is for it, and right code by none.

Each takes the stated number of runs and about a second. A finding is at five standard
deviations or exact, far beyond confidence 0.99.
"""

import pytest

from tests.zoo.bugs import BUGS
from tests.zoo.frame import probed
from trainers.oracle import Oracle


@pytest.mark.parametrize("name", BUGS)
def test_is_caught(monkeypatch, name):
    bug = BUGS[name]
    found = probed(monkeypatch, bug)
    assert any(bug.words in one for one in found[bug.check])


SIZES = {(b.algorithm, b.settings, b.runs): b for b in BUGS.values()}


@pytest.mark.parametrize("bug", SIZES.values(), ids=str)
def test_right_code_is_not_accused(monkeypatch, bug):
    found = probed(monkeypatch, bug, door=Oracle, changes={})
    assert not any(found.values())


@pytest.mark.slow
def test_no_false_alarm_in_200_repeats(monkeypatch):
    bug = BUGS["wrong q"]
    alarms = [
        (seed, found)
        for seed in range(200)
        if any((found := probed(monkeypatch, bug, door=Oracle, seed=seed)).values())
    ]
    assert alarms == []
