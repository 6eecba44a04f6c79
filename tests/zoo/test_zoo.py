"""Every planted bug is caught by what is for it, and right code by nothing.

A probe takes the stated number of runs and about a second. A finding is at five
standard deviations or exact, far beyond confidence 0.99, the least of the audits.
``reports/zoo`` has how often each audit catches its bug, and how long it takes.
"""

import pytest

from tests.zoo.attacks import attacked
from tests.zoo.bugs import BUGS
from tests.zoo.frame import probed
from trainers.oracles.oracle import Oracle


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", BUGS)
def test_is_caught(monkeypatch, name):
    bug = BUGS[name]
    found = probed(monkeypatch, bug)
    assert any(bug.words in one for one in found[bug.check])


SIZES = {(b.algorithm, b.settings, b.runs): b for b in BUGS.values()}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("bug", SIZES.values(), ids=lambda bug: bug.algorithm)
def test_right_code_is_not_accused(monkeypatch, bug):
    found = probed(monkeypatch, bug, oracle=Oracle, changes={})
    assert not any(found.values())


@pytest.mark.full
def test_no_false_alarm_in_200_repeats(monkeypatch):
    bug = BUGS["wrong q"]
    alarms = [
        (seed, found)
        for seed in range(200)
        if any((found := probed(monkeypatch, bug, oracle=Oracle, seed=seed)).values())
    ]
    assert alarms == []


SEEN = {name: bug for name, bug in BUGS.items() if bug.attack is not None}
AUDITED = [
    pytest.param(name, marks=[pytest.mark.full] if bug.attack.runs > 300 else [])
    for name, bug in SEEN.items()
]


def test_what_no_audit_sees_has_its_reason():
    assert all((bug.attack is None) == bool(bug.unseen) for bug in BUGS.values())
    assert len(SEEN) >= 16


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", AUDITED)
def test_an_audit_refutes_what_the_ledger_certifies(name):
    bug = SEEN[name]
    upper, lower = attacked(bug.attack, bug.algorithm, bug.family)
    assert lower.confidence == bug.attack.confidence >= 0.99
    assert lower > upper


@pytest.mark.full
@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", AUDITED)
def test_the_same_audit_of_right_code_does_not(name):
    bug = SEEN[name]
    upper, lower = attacked(bug.attack, bug.algorithm)
    assert not lower > upper
