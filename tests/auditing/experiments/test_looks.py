"""Audits that stop once their claim is refuted."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

import privaudit as pa
from privaudit.auditing.experiments.looks import Looks, Stopped, stages
from privaudit.auditing.programs.audit import ProgramAudit, _is_refuted, judge
from privaudit.results import Claim

CLAIM = Claim(
    epsilon=0.5,
    delta=1e-5,
    relation="add-or-remove-one",
    unit="record",
    source="a test",
)


def leaking(member, seed):
    """Tells the truth half of the time, and else nothing."""
    random = np.random.default_rng(seed)
    told = random.random(len(member)) < 0.5
    return np.where(told, 2.0 * member - 1, 0.0) + 0.01 * random.normal(
        size=len(member)
    )


def silent(member, seed):
    return np.random.default_rng(seed).normal(size=len(member))


class TestSound:
    @pytest.mark.parametrize(
        ("runs", "block"),
        [(2, 50), (39, 1), (50, 50), (1000, 50), (1000, 7), (8000, 1)],
    )
    def test_the_looks_share_all_of_alpha(self, runs, block):
        looks = Looks.of(runs, block)
        assert sum(looks.share(at) for at in looks.at) == pytest.approx(1)
        assert looks.at[-1] == runs
        assert all(at % block == 0 for at in looks.at[:-1])
        assert list(looks.at) == sorted(set(looks.at))

    def test_nowhere_else(self):
        with pytest.raises(ValueError, match=r"300 runs are none of those .* 250, 500"):
            Looks.of(1000, 50).share(300)

    def test_false_alarms_of_all_looks_together(self):
        """Randomised response at its own epsilon: any look that refutes is an error."""
        alarms, repeats = 0, 150
        for repeat in range(repeats):
            plan = ProgramAudit(
                program="own:any",
                claim=CLAIM,
                estimator="clopper-pearson",
                confidence=0.8,
                runs=1600,
                batch=100,
                seed=repeat,
                stop_when_refuted=True,
            )
            random, done = np.random.default_rng([3, repeat]), {}
            for number in range(plan.batches):
                member = plan.worlds(number)
                true = random.random(100) < 1 / (1 + np.exp(-0.5))
                done[number] = np.where(true, member, ~member).astype(float)
            looks = [{n: done[n] for n in range(runs // 100)} for runs in stages(plan)]
            alarms += any(_is_refuted(plan, some, None) for some in looks)
        assert alarms <= stats.binom.isf(1e-4, repeats, 0.2)

    def test_what_stopped_for_another_reason_is_no_audit(self):
        plan = ProgramAudit(
            program="own:any", claim=CLAIM, runs=800, stop_when_refuted=True
        )
        done = {n: silent(plan.worlds(n), n) for n in range(4)}
        with pytest.raises(ValueError, match="200 of 800 runs, and the claim was not"):
            judge(plan, done, 0.0)
        with pytest.raises(ValueError, match="150 runs are none of those"):
            judge(plan, {n: done[n] for n in range(3)}, 0.0)


class TestTight:
    def test_a_program_that_leaks_is_stopped(self, tmp_path, monkeypatch):
        calls = []

        def counted(member, seed):
            calls.append(len(member))
            return leaking(member, seed)

        monkeypatch.setattr(
            "privaudit.auditing.programs.audit.function_of", lambda _: counted
        )
        settings = pa.ProgramSettings(epsilon=0.5, runs=4000, stop_when_refuted=True)
        found = pa.audit_program("own:leaking", settings, out=tmp_path / "a")
        stopped = found.result.stopped
        assert found.status == "refuted"
        assert sum(calls) == stopped.runs < stopped.planned == 4000
        assert found.result.member_runs + found.result.non_member_runs == stopped.runs
        assert found.lower.confidence == 0.95
        assert found.summary()["stopped"]["look"] == stopped.look
        assert str(stopped) in found.lines()
        assert pa.verify(tmp_path / "a").differences == ()
        # The same call finds it finished, and calls nothing.
        before = len(calls)
        again = pa.audit_program("own:leaking", settings, out=tmp_path / "a")
        assert again.result == found.result
        assert len(calls) == before

    def test_verify_sees_a_stop_that_was_none(self, tmp_path, monkeypatch):
        monkeypatch.setattr(
            "privaudit.auditing.programs.audit.function_of", lambda _: leaking
        )
        settings = pa.ProgramSettings(epsilon=0.5, runs=2000, stop_when_refuted=True)
        pa.audit_program("own:leaking", settings, out=tmp_path / "a")
        config = tmp_path / "a" / "config.json"
        told = json.loads(config.read_text())
        config.write_text(json.dumps({**told, "stop_when_refuted": False}))
        assert pa.verify(tmp_path / "a").differences

    def test_a_program_that_is_silent_makes_all_runs(self, tmp_path, monkeypatch):
        monkeypatch.setattr(
            "privaudit.auditing.programs.audit.function_of", lambda _: silent
        )
        settings = pa.ProgramSettings(epsilon=0.5, runs=400, stop_when_refuted=True)
        found = pa.audit_program("own:silent", settings, out=tmp_path / "a")
        assert found.status == "unproven"
        assert found.result.stopped == Stopped.at(Looks.of(400, 50), 400)
        assert pa.verify(tmp_path / "a").differences == ()


class TestOfAnAlgorithm:
    def test_what_an_earlier_call_began_beyond_a_look_is_cut(self, tmp_path):
        settings = pa.AuditSettings(
            adversary="noisy-gradients", runs=800, block=50, stop_when_refuted=True
        )
        given = {"training": {"rounds": 2}, "out": tmp_path / "a"}
        first = pa.audit_algorithm("dsgd", settings, **given)
        with np.load(tmp_path / "a" / "scores.npz") as file:
            kept = dict(file)
        more = {
            name: np.concatenate([values, values[:50]])
            for name, values in kept.items()
            if values.ndim
        }
        more["block"][-50:] = 2  # of the next stage
        np.savez(tmp_path / "a" / "scores.npz", **kept | more)
        (tmp_path / "a" / "result.json").unlink()
        (tmp_path / "a" / "manifest.json").unlink()
        again = pa.audit_algorithm("dsgd", settings, **given)
        assert again.result.verdict == first.result.verdict
        assert again.result.stopped == first.result.stopped
        assert pa.verify(tmp_path / "a").differences == ()

    def test_it_stops_and_is_made_again(self, tmp_path):
        settings = pa.AuditSettings(
            adversary="noisy-gradients", runs=800, block=50, stop_when_refuted=True
        )
        found = pa.audit_algorithm(
            "dsgd", settings, training={"rounds": 2}, out=tmp_path / "a"
        )
        assert found.status == "refuted"  # there is no noise
        stopped = found.result.stopped
        assert (stopped.runs, stopped.planned) == (100, 800)
        assert "refuted and stopped after 100 of 800 runs" in "\n".join(found.lines())
        assert pa.verify(tmp_path / "a").differences == ()
        assert dataclasses.replace(settings, runs=2000).stop_when_refuted
