"""What is planted in the oracle of users' updates is caught, and the right one is not.

A probe sees each bug in seconds. Audits of a user: the canary is one user more, whose
update is crafted, or of a record far beyond any clip; what is certified is of a user.
"""

import pytest

from tests.zoo.attacks import attacked
from tests.zoo.frame import probed
from tests.zoo.users import BUGS
from trainers.oracles.updates import UpdateOracle


@pytest.mark.full
@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", BUGS)
def test_a_probe_catches_it(monkeypatch, name):
    bug = BUGS[name]
    found = probed(monkeypatch, bug)
    assert any(bug.words in one for one in found[bug.check])


@pytest.mark.full
@pytest.mark.parametrize("settings", {bug.settings for bug in BUGS.values()})
def test_right_code_is_not_accused(monkeypatch, settings):
    bug = next(bug for bug in BUGS.values() if bug.settings == settings)
    found = probed(monkeypatch, bug, oracle=UpdateOracle)
    assert not any(found.values())


SEEN = [name for name, bug in BUGS.items() if bug.attack is not None]


@pytest.mark.full
@pytest.mark.parametrize("name", SEEN)
def test_an_audit_of_a_user_refutes_what_is_certified(name):
    bug = BUGS[name]
    upper, lower = attacked(bug.attack, bug.algorithm, bug.family)
    assert upper.unit == "user"
    assert lower > upper


@pytest.mark.full
@pytest.mark.parametrize("name", SEEN)
def test_the_same_audit_of_right_code_does_not(name):
    bug = BUGS[name]
    upper, lower = attacked(bug.attack, bug.algorithm)
    assert lower.epsilon <= upper.epsilon
