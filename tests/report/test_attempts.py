"""Several audits of one claim: what they show together, and where that is said."""

import json
import shutil

import numpy as np
import pytest

import privaudit as pa
from privaudit.api.evidence import show
from privaudit.auditing.bounds import ESTIMATORS
from privaudit.cli import main
from privaudit.report.attempts import beside
from privaudit.report.load import load_any

RUNS = 400


def scores(member, seed):
    return member + np.random.default_rng(seed).normal(size=len(member))


def audited(out, *, seed=0, epsilon=3.0, function=scores, **more):
    settings = {"epsilon": epsilon, "delta": 1e-2, "runs": RUNS, "seed": seed, **more}
    return pa.audit_program(function, pa.ProgramSettings(**settings), out=out)


def bound(folder, confidence):
    run = load_any(folder)
    seed = run.config.seed
    best = ESTIMATORS["best"]
    return best(run.scores, 1e-2, confidence, threat_model="x", seed=seed).epsilon


@pytest.fixture
def three(tmp_path):
    for seed in range(3):
        audited(tmp_path / f"run{seed}", seed=seed)
    return tmp_path


class TestSound:
    def test_each_is_held_to_a_third_of_alpha(self, three):
        paths = [three / f"run{seed}" for seed in range(3)]
        (found,) = show(paths).together
        alone = [bound(path, confidence=1 - 0.05 / 3) for path in paths]
        assert found.epsilon == max(alone)
        assert found.confidence == 0.95
        assert (
            0 < found.epsilon < max(load_any(p).result.lower().epsilon for p in paths)
        )

    def test_the_luckiest_of_many_refutes_nothing(self, tmp_path):
        first = audited(tmp_path / "trial")
        claim = first.lower.epsilon * 0.98
        found = audited(tmp_path / "a", epsilon=claim)
        assert found.status == "refuted"
        for seed in range(1, 5):
            audited(tmp_path / f"b{seed}", epsilon=claim, seed=seed, runs=100)
        together = beside(load_any(tmp_path / "a"))
        assert len(together.attempts) == 5  # not the trial, which had another claim
        assert not together.refuted
        assert "5 times, 800 scores in all" in str(together)
        assert "of them, taken alone, would" in str(together)

    def test_looks_share_what_is_left(self, tmp_path):
        for seed in range(2):
            audited(tmp_path / f"{seed}", seed=seed, stop_when_refuted=True)
        found = beside(load_any(tmp_path / "0"))
        assert len(load_any(tmp_path / "0").scores) == RUNS  # stopped at no look
        bounds = [
            bound(tmp_path / str(seed), confidence=1 - 0.05 / 2) for seed in range(2)
        ]
        assert found.epsilon <= max(bounds)

    def test_what_was_begun_counts(self, three):
        shutil.copytree(three / "run0", three / "run9")
        (three / "run9" / "result.json").unlink()
        found = beside(load_any(three / "run1"))
        assert "4 times, 1,200 scores in all (1 not finished)" in str(found)


class TestTight:
    def test_what_all_show_stays_refuted(self, tmp_path):
        for seed in range(3):
            audited(tmp_path / f"{seed}", seed=seed, epsilon=0.2)
        assert beside(load_any(tmp_path / "0")).refuted

    def test_other_claims_and_programs_are_apart(self, tmp_path):
        def others(member, seed):
            return scores(member, seed)

        audited(tmp_path / "a")
        audited(tmp_path / "b", epsilon=2.0)
        audited(tmp_path / "c", function=others)
        assert beside(load_any(tmp_path / "a")) is None
        assert show([tmp_path / name for name in "abc"]).together == []


class TestSaid:
    def test_by_show(self, three, capsys):
        folders = [str(three / f"run{seed}") for seed in range(3)]
        assert main(["show", *folders]) == 0
        assert "together: the claim of epsilon 3 " in capsys.readouterr().out
        assert main(["show", *folders, "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)["together"]
        assert found["folders"] == folders
        assert found["runs"] == 3 * RUNS
        assert not found["refuted"]

    @pytest.mark.full
    def test_on_a_page(self, tmp_path, capsys):
        asked = {"epsilon": 6.0, "noise_multiplier": 1.0}
        audited(tmp_path / "a", **asked)
        page = tmp_path / "a" / "report.html"
        assert main(["report", str(tmp_path / "a")]) == 0
        assert "More than once" not in page.read_text()
        audited(tmp_path / "b", seed=1, **asked)
        assert main(["report", str(tmp_path / "a")]) == 0
        assert "was attacked 2 times, 800 scores in all" in page.read_text()
