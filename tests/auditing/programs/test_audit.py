"""Contract of audit: a stranger's runs, dealt and judged."""

import hashlib
import importlib
import linecache
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from privaudit.api.audits import audit_program
from privaudit.auditing.programs import audit as anybody
from privaudit.auditing.programs.audit import ProgramAudit, digest_of_ledger, run
from privaudit.auditing.programs.targets import (
    Command,
    share_random_numbers,
    source_of,
    spread_seed,
)
from privaudit.files.folder import FolderError, RunFolder
from privaudit.files.user_code import ForeignError
from privaudit.ledger import Ledger
from privaudit.release import PoissonSampling, Release
from privaudit.report.limits import sentences
from privaudit.report.load import load, load_any
from privaudit.report.program import content
from privaudit.results import Claim
from privaudit.settings import ProgramSettings

HERE = "tests.auditing.programs.test_audit"


def silent(worlds, seed):
    return np.random.default_rng(seed).normal(size=len(worlds))


def tells(worlds, seed):
    return worlds + 0.5 * np.random.default_rng(seed).normal(size=len(worlds))


def slow(worlds, seed):
    time.sleep(0.02)
    return tells(worlds, seed)


def trained(member, seed):  # exactly (1, 0)-DP
    return member + np.random.default_rng(seed).laplace()


def one_seed(worlds, seed):
    return [trained(member, seed) for member in worlds]


def own_seeds(worlds, seed):
    return [trained(member, [seed, i]) for i, member in enumerate(worlds)]


def rare(worlds, seed):  # a member is given away in one run of a hundred
    return worlds & (np.random.default_rng(seed).random(len(worlds)) < 0.01)


def constant(worlds, seed):
    return np.zeros(len(worlds))


def no_noise(worlds, seed):
    return 1.0 * worlds


def wrong_shape(worlds, seed):
    return [0.0]


def not_finite(worlds, seed):
    return np.full(len(worlds), math.nan)


def plan(function="silent", epsilon=0.5, **more):
    claim = Claim(
        epsilon=epsilon, delta=1e-3, relation="add-or-remove-one", source="a test"
    )
    return ProgramAudit(program=f"{HERE}:{function}", claim=claim, **more)


def done(path, what, **more):
    with RunFolder.opened(path) as folder:
        return run(what, folder, **more)


class TestSound:
    def test_no_leak_is_not_refuted(self, tmp_path):
        for seed in range(5):
            result = done(tmp_path / str(seed), plan(seed=seed))
            assert result.status == "unproven"
            assert result.lower().epsilon < 0.3

    def test_a_leak_is(self, tmp_path):
        result = done(tmp_path, plan("tells", runs=500))
        assert result.status == "refuted"
        assert 0.5 < result.lower().epsilon <= result.most_shown

    def test_worlds_are_fair_coins_and_seeds_differ(self):
        many = plan(runs=100_000)
        worlds = np.concatenate([many.worlds(n) for n in range(many.batches)])
        assert abs(worlds.mean() - 0.5) < 5 * 0.5 / math.sqrt(len(worlds))
        seeds = {many.batch_seed(n) for n in range(many.batches)}
        assert len(seeds) == many.batches
        assert all(0 <= seed < 1 << 31 for seed in seeds)
        # Programs that count up from their seeds share none of them.
        ordered = np.sort(list(seeds))
        assert np.diff(ordered).min() > 0.3 * (1 << 31) / many.batches
        other = plan(runs=100_000, seed=1)
        assert (other.worlds(0) != many.worlds(0)).any()


class TestSharedSeeds:
    """Runs that are one run give no bound; that ends the audit, whatever they say."""

    @pytest.mark.parametrize("runs", [1000, 80, 50, 9])  # 50 are one call
    def test_refused(self, tmp_path, runs):
        called = []

        def function(worlds, seed):
            called.append(seed)
            return one_seed(worlds, seed)

        with pytest.raises(ValueError, match=r"default_rng\(\[seed, i\]\).*--batch 1"):
            done(tmp_path, plan("one_seed", runs=runs), function=function)
        assert len(called) == 2 or runs == 1000  # or some are under way
        assert not (tmp_path / "scores.npz").exists()  # so that a mended one may start
        done(tmp_path, plan("one_seed", runs=runs), function=own_seeds)

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("function", ["own_seeds", "rare", "constant", "no_noise"])
    @pytest.mark.parametrize("batch", [2, 50, 500])
    def test_independent_runs_are_not(self, tmp_path, function, batch):
        done(tmp_path, plan(function, runs=200, batch=batch))

    def test_one_run_a_call_shares_nothing(self, tmp_path):
        what = plan("one_seed", epsilon=1.0, batch=1, runs=300, confidence=0.999)
        result = done(tmp_path, what)
        assert result.status == "unproven"

    def test_runs_of_few_scores_are_seldom_alike(self):
        random = np.random.default_rng(0)
        for _ in range(2000):  # of coins, of two and of three runs a call
            calls = [
                (random.random(size) < 0.5, random.integers(0, 2, size))
                for size in random.integers(2, 4, 12)
            ]
            assert not share_random_numbers(calls)

    def test_a_constant_score_is_told(self, tmp_path):
        result = done(tmp_path / "one", plan("constant", runs=40))
        assert any("All runs got the same score" in line for line in result.lines())
        said = sentences(load_any(tmp_path / "one"))  # on the page
        assert any("All runs got the same score" in line for line in said)
        other = done(tmp_path / "two", plan("no_noise", runs=40))
        assert not any("same score" in line for line in other.lines())


class TestAccount:
    """Scores that no mechanism of the ledger's family gives are told."""

    @pytest.mark.full
    @pytest.mark.parametrize(("spread", "fits"), [(0.05, False), (20.0, True)])
    def test_scores_that_do_not_fit(self, tmp_path, spread, fits):
        def function(worlds, seed):
            noise = np.random.default_rng(seed).normal(size=len(worlds))
            return worlds + spread * noise

        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=1.0, sampling=PoissonSampling(0.2)
        )
        ledger = Ledger.of(release, 20)
        what = plan(epsilon=7.0, runs=200, ledger=digest_of_ledger(ledger))
        result = done(tmp_path, what, function=function, ledger=ledger)
        assert result.status == ("consistent" if fits else "unproven")
        assert result.beside is not None
        assert (result.beside.epsilon > result.upper().epsilon) == (not fits)
        whole = content(load_any(tmp_path))
        assert whole["title"].startswith("Audit of ")
        assert "The attacker sees one number for each run" in " ".join(whole["story"])
        (most,) = [line for line in result.lines() if "the most that" in line]
        assert "by the method best: " in most  # a family's limit is its least noise
        page = whole["verdict"]
        for said in (*result.lines()[-1:], page):
            assert ("scores do not fit the account" in said) == (not fits)
        assert any("attack showed more than" in line for line in result.lines()) != fits
        assert sum("Gap of" in line for line in result.lines()) == 1


class TestResume:
    @pytest.mark.full
    def test_equal_scores_after_a_kill(self, tmp_path):
        program = (
            f"from {HERE} import *; "
            "done(sys.argv[1], plan('slow', runs=2000, batch=20))"
        )
        whole = done(tmp_path / "whole", plan("slow", runs=2000, batch=20))
        child = subprocess.Popen([sys.executable, "-c", program, tmp_path / "parts"])
        for _ in range(600):
            if (tmp_path / "parts" / "scores.npz").exists():
                break
            time.sleep(0.02)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert not (tmp_path / "parts" / "result.json").exists()
        parts = done(tmp_path / "parts", plan("slow", runs=2000, batch=20))
        assert parts.verdict == whole.verdict
        with (
            np.load(tmp_path / "whole" / "scores.npz") as one,
            np.load(tmp_path / "parts" / "scores.npz") as other,
        ):
            for name in ("member", "score", "batch"):
                np.testing.assert_array_equal(one[name], other[name])

    def test_what_was_done_is_kept_when_a_run_fails(self, tmp_path, monkeypatch):
        calls = []

        def breaks(worlds, seed):
            calls.append(seed)
            if len(calls) == 4:
                raise ForeignError("out of luck")
            return silent(worlds, seed)

        monkeypatch.setattr(anybody, "function_of", lambda name: breaks)
        with pytest.raises(ForeignError, match="out of luck"):
            done(tmp_path, plan(runs=300))
        done(tmp_path, plan(runs=300))
        assert len(set(calls)) == 6  # the seed that failed was called again
        assert len(calls) == 7

    def test_an_audit_that_may_stop_goes_on_between_its_looks(
        self, tmp_path, monkeypatch
    ):
        asked = {"runs": 800, "epsilon": 0.1, "stop_when_refuted": True}
        calls = []

        def breaks(worlds, seed):
            calls.append(seed)
            if len(calls) == 4:
                raise ForeignError("out of luck")
            return tells(worlds, seed) if len(calls) > 4 else silent(worlds, seed)

        monkeypatch.setattr(anybody, "function_of", lambda name: breaks)
        with pytest.raises(ForeignError, match="out of luck"):
            done(tmp_path, plan(**asked))
        result = done(tmp_path, plan(**asked))
        assert result.status == "refuted"
        assert result.stopped.runs < 800
        assert len(load_any(tmp_path).scores) == result.stopped.runs

    def test_shown(self, tmp_path):
        result = done(tmp_path, plan(runs=75))
        shown = load_any(tmp_path)
        assert shown.summary()["epsilon_lower"] == result.lower().epsilon
        assert len(shown.scores) == 75
        assert any("75 runs" in line for line in shown.lines())
        with pytest.raises(FolderError, match="privaudit show"):
            load(tmp_path)


class TestErrors:
    @pytest.mark.parametrize(
        ("function", "message"),
        [
            ("wrong_shape", r"one score a run, \(50,\), got"),
            ("not_finite", "not finite"),
        ],
    )
    def test_bad_scores(self, tmp_path, function, message):
        with pytest.raises(ForeignError, match=message):
            done(tmp_path, plan(function))

    def test_no_such_function(self, tmp_path):
        with pytest.raises(ValueError, match="has no function nothing"):
            done(tmp_path, plan("nothing"))
        claim = plan().claim
        with pytest.raises(ValueError, match="cannot import nowhere"):
            done(tmp_path / "b", ProgramAudit(program="nowhere:f", claim=claim))

    def test_a_command_says_where_member_and_seed_go(self):
        with pytest.raises(ValueError, match=r"must say \{seed\}"):
            ProgramAudit(program="train --member {member}", claim=plan().claim)


def python(text, **more):
    return Command(f"{sys.executable} -c '{text}' {{member}} {{seed}}", **more)


def told(what, **more):
    """The audit of a command that prints ``what`` as its score."""
    command = f"{sys.executable} -S -c 'import sys; print({what})'"
    program = f"{command} {{member}} {{seed}}"
    return ProgramAudit(program=program, claim=plan().claim, **more)


class TestCommands:
    def test_the_last_line_is_the_score(self):
        command = python("import sys; print(7); print(sys.argv[1] + sys.argv[2])")
        found = command(np.array([True, False]), 40).tolist()
        assert found == [140, spread_seed(40, 1)]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("print(1); raise SystemExit(4)", "exit status 4"),
            ("print()", "its last line is no number"),
            ('print("nan")', "its score is nan"),
            ("import time; time.sleep(9)", "more than 0.5 s"),
        ],
    )
    def test_failures_are_sentences(self, text, message):
        with pytest.raises(ForeignError, match=message):
            python(text, retries=0, time_limit=0.5 if "sleep" in text else 60)(
                np.array([True]), 0
            )

    def test_it_is_tried_again(self, tmp_path):
        text = (
            f'import pathlib; p = pathlib.Path("{tmp_path}/tried"); n = p.exists(); '
            "p.touch(); print(1 if n else 1/0)"
        )
        assert python(text, retries=1).once(True, 0) == 1

    def test_no_such_program(self):
        with pytest.raises(ForeignError, match="cannot run /nowhere"):
            Command("/nowhere {member} {seed}").once(True, 0)

    def test_no_two_runs_have_one_seed(self, tmp_path):
        """Whatever the batch: runs that share their noise are not independent."""
        done(tmp_path, told("sys.argv[2]", runs=12, batch=4), workers=2)
        assert len(np.unique(load_any(tmp_path).scores.score)) == 12

    def test_many_at_once_in_a_folder(self, tmp_path):
        result = done(tmp_path, told("float(sys.argv[1])", runs=24, batch=1), workers=4)
        assert result.member_runs + result.non_member_runs == 24
        scores = load_any(tmp_path).scores
        np.testing.assert_array_equal(scores.score, scores.member)


class TestSource:
    """A finished folder answered for a program that had changed."""

    def write(self, tmp_path, monkeypatch, leak):
        (tmp_path / "watched.py").write_text(
            "import numpy as np\n\n\ndef scores(member, seed):\n"
            "    random = np.random.default_rng(seed)\n"
            f"    return {leak} * member + random.normal(size=len(member))\n"
        )
        monkeypatch.chdir(tmp_path)
        sys.modules.pop("watched", None)
        importlib.invalidate_caches()

    def audited(self):
        settings = ProgramSettings(epsilon=1, delta=1e-5, runs=100)
        return audit_program("watched:scores", settings, out="out")

    def test_a_changed_program_is_no_finished_one(self, tmp_path, monkeypatch):
        self.write(tmp_path, monkeypatch, "0")
        first = self.audited()
        assert self.audited().lower == first.lower
        self.write(tmp_path, monkeypatch, "9.5")
        with pytest.raises(FolderError, match="has changed since the audit in out"):
            self.audited()

    def test_of_a_notebook(self, monkeypatch):
        def cell(text):
            lines = text.splitlines(keepends=True)
            monkeypatch.setitem(linecache.cache, "<cell>", (1, None, lines, "<cell>"))
            space = {"__name__": "of_no_file"}
            exec(compile(text, "<cell>", "exec"), space)
            return source_of(space["f"])

        one = cell("def f(member, seed):\n    return member\n")
        assert one is not None
        assert one != cell("def f(member, seed):\n    return 2 * member\n")

    def test_of_what_is_where(self, tmp_path):
        script = tmp_path / "train.sh"
        script.write_text("echo 1")
        command = f"sh {script} {{member}} {{seed}}"
        known = source_of(command)
        assert known == hashlib.sha256(b"echo 1").hexdigest()
        script.write_text("echo 2")
        assert source_of(command) != known
        assert source_of("nowhere:scores") is None
        assert source_of("train {member} {seed}") is None
        assert source_of(self.audited) == source_of(TestSource.write)


def test_what_a_program_is_comes_from_its_docstring_or_its_user(tmp_path):
    def tells(worlds, seed):
        """A noisy count; the score is the count.

        More of it.
        """
        return worlds + np.random.default_rng(seed).normal(size=len(worlds))

    for about, said in (
        (None, "A noisy count; the score is the count."),
        ("the clinic's count", "the clinic's count"),
    ):
        out = tmp_path / str(about)
        audit_program(tells, ProgramSettings(runs=100, about=about), out=out)
        assert content(load_any(out))["story"][0] == f"Its user says: {said}"
