"""What long work says of itself where nobody sees a terminal."""

from __future__ import annotations

import time

import pytest

from privaudit.api.console import Console
from privaudit.auditing.experiments.sweep_run import Progress as Swept
from privaudit.settings import claim_of
from trainers.runs.measures import Measured
from trainers.runs.run import Progress

CLAIM = claim_of(1.0, 1e-5, "add-or-remove-one")


@pytest.fixture
def clock(monkeypatch):
    """Seconds, moved by hand."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


class TestInALog:
    def test_a_line_after_a_while_then_each_minute(self, clock, capsys):
        with Console().runs() as bar:
            for second in range(200):
                clock[0] = float(second)
                bar(second * 10, 2000)
        assert capsys.readouterr().err.splitlines() == [
            "runs: 150 of 2,000, about 3 min left",
            "runs: 750 of 2,000, about 2 min left",
            "runs: 1,350 of 2,000, about 65 s left",
            "runs: 1,950 of 2,000, about 5 s left",
        ]

    def test_what_was_done_before_is_no_pace(self, clock, capsys):
        with Console().runs() as bar:
            bar(1000, 2000)  # resumed
            clock[0] = 20.0
            bar(1100, 2000)
        assert capsys.readouterr().err == "runs: 1,100 of 2,000, about 3 min left\n"

    def test_a_sweep_says_what_is_at_work(self, clock, capsys):
        with Console().sweep(2) as tell:
            tell(Swept("one", 100))
            clock[0] = 20.0
            tell(Swept("one", 100, done=50))
            clock[0] = 80.0
            tell(Swept("two", 400, done=100))
        assert capsys.readouterr().err.splitlines() == [
            "0 of 2 audits, about 60 s left; at work: one: 50 of 100 runs",
            "0 of 2 audits, about 2 min left; at work: one: 50 of 100 runs; "
            "two: 100 of 400 runs",
        ]

    def test_training_says_how_long_it_takes(self, clock, capsys):
        with Console().training("dp-dsgd", CLAIM) as show:
            for done in range(1, 41):
                clock[0] = done / 2
                measured = Measured(20, 0.5, 0.4, 0.0) if done == 20 else None
                show(Progress(done, 100, measured, None))
        assert capsys.readouterr().err.splitlines() == [
            "dp-dsgd: round 30 of 100, 2 a second, about 35 s left; accuracy 0.5000"
        ]

    def test_short_work_says_nothing(self, clock, capsys):
        with Console().runs() as bar, Console().training("sgd", None) as show:
            bar(1, 1)
            show(Progress(1, 1, None, None))
        assert capsys.readouterr().err == ""

    def test_other_ranks_are_silent(self, clock, capsys, monkeypatch):
        monkeypatch.setenv("RANK", "1")
        with Console().runs() as bar, Console().training("sgd", None) as show:
            clock[0] = 100.0
            bar(1, 2)
            show(Progress(1, 2, None, None))
        assert capsys.readouterr().err == ""
