"""Sweeps: many audits side by side, that neither failures nor kills change."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import msgspec
import numpy as np
import pytest

from privaudit.auditing.experiments import sweep_run
from privaudit.auditing.experiments.experiment import run
from privaudit.auditing.experiments.outcome import AuditResult
from privaudit.auditing.experiments.sweep import Sweep
from privaudit.auditing.experiments.sweep_folder import SweepFolder
from privaudit.auditing.experiments.sweep_run import goes_on, run_sweep
from privaudit.cli import COULD_NOT, FINE, REFUTED, main
from privaudit.files import json as _json
from privaudit.files.folder import FolderError, RunFolder
from privaudit.report.sweep import load_sweep
from privaudit.report.verify import verify

SMALL = {"runs": 60, "block": 20, "rounds": 3, "model": "softmax"}


def plan_of(**tables):
    return Sweep.of({"all": SMALL, **tables}, where="a test")


TWO = [
    {"algorithm": "dp-dsgd", "noise_multiplier": 4.0},
    {"algorithm": "dsgd", "adversary": "noisy-gradients"},
]
NAMES = ["dp-dsgd,noise_multiplier=4", "dsgd,adversary=noisy-gradients"]
# Of a central algorithm nobody hears anything.
BAD = {"name": "bad", "algorithm": "dp-sgd", "adversary": "neighbour"}


def swept(path, plan, workers=1, **more):
    with SweepFolder.opened(path) as folder:
        return run_sweep(plan, folder, workers=workers, **more)


def kept(path):
    """Scores of all finished audits, to the bit."""
    found = {}
    for scores in sorted(path.glob("*/scores.npz")):
        with np.load(scores) as file:
            found[scores.parent.name] = {
                name: file[name].tobytes()
                for name in ("member", "score", "accuracy", "block")
            }
    return found


def results(path):
    return {
        each.parent.name: msgspec.structs.replace(
            RunFolder(each.parent).read("result.json", AuditResult), seconds=0
        )
        for each in sorted(path.glob("*/result.json"))
    }


def toml(path, common, grid):
    lines = [
        "[all]",
        *(f"{key} = {json.dumps(value)}" for key, value in common.items()),
    ]
    lines += ["[grid]", *(f"{key} = {json.dumps(each)}" for key, each in grid.items())]
    path.write_text("\n".join(lines))
    return path


class TestGoesOn:
    """Which folder a sweep without --out goes on in."""

    def test_of_the_same_settings_as_far_as_there_are_scores(self, tmp_path):
        plan = plan_of(audit=TWO)
        with SweepFolder.opened(tmp_path) as folder:
            assert not goes_on(plan, folder)
            folder.write("sweep.json", _json.encode(plan))
            begun = RunFolder(tmp_path / NAMES[0])
            begun.path.mkdir()
            begun.write("config.json", _json.encode(plan.audits[0].audit))
            other = plan_of(audit=TWO, all={**SMALL, "seed": 5})
            assert goes_on(other, folder)  # nothing is lost
            begun.write("scores.npz", b"")
            assert goes_on(plan, folder)
            assert goes_on(plan_of(audit=[*TWO, BAD]), folder)  # a file may grow
            assert not goes_on(other, folder)
            begun.write("config.json", b"{")  # which that audit will say
            assert goes_on(plan, folder)


class TestRun:
    @pytest.mark.full
    def test_audits_are_those_of_one_alone(self, tmp_path, capsys):
        """And one that fails stops no other, is told, and is tried again."""
        plan, path = plan_of(audit=[BAD, *TWO]), tmp_path / "a"
        told = []
        states = swept(
            path, plan, tell=lambda state: told.append((state.name, state.done))
        )
        assert [state.name for state in states] == ["bad", *NAMES]
        assert "nobody hears" in states[0].failure
        assert [state.result is not None for state in states] == [False, True, True]
        assert {(name, 60) for name in NAMES} <= set(told)
        for one in plan.audits[1:]:
            with RunFolder.opened(tmp_path / "b" / one.name) as folder:
                run(one.audit, folder, workers=1)
        assert kept(path) == kept(tmp_path / "b")
        assert results(path) == results(tmp_path / "b")
        found = load_sweep(path)
        assert [row.failed for row in found.rows] == [True, False, False]
        assert found.status == "refuted"
        assert main(["report", str(path)]) == COULD_NOT
        assert main(["show", str(path)]) == REFUTED
        shown = capsys.readouterr().out
        assert "1 refute their claim, 1 failed" in shown
        assert "were all 2 claims true, 0.1 of them would be refuted" in shown

        # Again: what is done is not touched, what failed is tried.
        before = (path / NAMES[0] / "scores.npz").stat().st_mtime_ns
        mended = plan_of(audit=[{**BAD, "adversary": "final-loss"}, *TWO])
        states = swept(path, mended)
        assert all(state.result is not None for state in states)
        assert (path / NAMES[0] / "scores.npz").stat().st_mtime_ns == before
        assert load_sweep(path).complete

    @pytest.mark.full
    def test_a_worker_that_dies_takes_one_audit_with_it(self, tmp_path):
        killed = []

        def kill_once(state):
            if state.name == NAMES[0] and state.done and not killed:
                (child,) = multiprocessing.active_children()
                os.kill(child.pid, signal.SIGKILL)
                killed.append(child.pid)

        plan = plan_of(audit=TWO)
        states = swept(tmp_path, plan, tell=kill_once)
        assert killed
        assert "killed" in states[0].failure
        assert states[1].result is not None
        assert not multiprocessing.active_children()

    def test_other_settings_in_a_known_folder_are_refused(self, tmp_path):
        one, other = plan_of(
            audit=[{"algorithm": "dsgd", "seed": seed} for seed in (0, 1)]
        ).audits
        with RunFolder.opened(tmp_path) as folder:
            folder.settle(one.audit)
            folder.write("scores.npz", b"")
        said = sweep_run._outcome(other, tmp_path, 1, 1 << 30, print)
        assert "seed = 0, not 1" in said

    def test_audits_are_those_that_were_planned(self, tmp_path):
        """Not each other's, nor of a folder elsewhere."""
        path = tmp_path / "sweep"
        swept(path, plan_of(audit=TWO))
        assert verify(path)
        (path / "manifest.json").unlink()
        one, other = (path / name for name in NAMES)
        for there, here in ((one, path / "x"), (other, one), (path / "x", other)):
            there.rename(here)
        found = [each.what for each in verify(path).differences]
        assert len(found) == 2
        for name in ("../sweep/x", "", ".", NAMES[1]):
            plan = json.loads((path / "sweep.json").read_text())
            plan["audits"][0]["name"] = name
            (path / "sweep.json").write_text(json.dumps(plan))
            with pytest.raises(FolderError, match="no folder's name, or two audits'"):
                verify(path)

    def test_an_unfinished_sweep_can_be_shown(self, tmp_path):
        plan = plan_of(audit=TWO)
        with SweepFolder.opened(tmp_path) as folder:
            folder.write("sweep.json", msgspec.json.encode(plan))
        found = load_sweep(tmp_path)
        assert not found.complete
        assert found.status is None
        assert [row.why for row in found.rows] == ["not finished"] * 2

    def test_two_sweeps_in_one_folder(self, tmp_path):
        with (
            SweepFolder.opened(tmp_path),
            pytest.raises(FolderError, match="another process"),
            SweepFolder.opened(tmp_path),
        ):
            pass
        (tmp_path / "thesis.tex").write_text("dear")
        with (
            pytest.raises(FolderError, match=r"no sweep's folder \(it holds thesis"),
            SweepFolder.opened(tmp_path),
        ):
            pass


class TestCommand:
    @pytest.mark.full
    def test_sweep_and_show(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(sweep_run, "_PATIENCE", 0.0)
        file, path = tmp_path / "f.toml", tmp_path / "out"
        toml(file, SMALL, {"algorithm": ["dp-dsgd"], "noise_multiplier": [8.0, 16.0]})
        arguments = ["sweep", str(file), "--out", str(path), "--workers", "1"]
        status = main([*arguments, "--json"])
        out, err = capsys.readouterr()
        assert status == FINE, err
        found = json.loads(out)
        assert found.pop("schema") == 1
        assert found["finished"] == 2
        assert found["verdict"] == "consistent"
        assert [each["certified"] < 1 for each in found["audits"]] == [True, True]
        assert len(err.splitlines()) == 2  # one an audit
        assert main(["show", str(path), "--json"]) == FINE
        assert json.loads(capsys.readouterr().out)["runs"] == [found]
        (path / "dp-dsgd,noise_multiplier=8" / "result.json").unlink()
        assert main(["show", str(path)]) == COULD_NOT
        shown = capsys.readouterr().out
        assert "1 of 2 audits are finished, 1 to be done" in shown
        assert "not finished" in shown

    def test_bad_files_are_status_two(self, tmp_path, capsys):
        file = toml(tmp_path / "f.toml", {}, {"algorithm": ["dp-dsgd"], "epsilo": [1]})
        assert main(["sweep", str(file), "--out", str(tmp_path / "x")]) == 2
        assert "did you mean epsilon?" in capsys.readouterr().err
        assert main(["sweep", str(file), "--workers", "0"]) == 2
        assert not (tmp_path / "x").exists()


def killed_at_random(tmp_path, kills, algorithms, *, runs, workers, seed):
    """How many of so many kills hit a sweep amid its scores.

    A kill comes at a random moment of the start, or a random while after a random
    number of blocks more. A sweep that is finished before is compared and begun anew;
    checks that scores and results are those of an undisturbed one.
    """
    claim = {"delta": 1e-2, "noise_multiplier": 4.0}  # consistent
    common = {**SMALL, **claim, "runs": runs, "rounds": 10}
    file = toml(tmp_path / "f.toml", common, {"algorithm": algorithms})
    path = tmp_path / "killed"
    plan = Sweep.read(file)
    swept(tmp_path / "whole", plan, workers)
    arguments = [sys.executable, "-m", "privaudit", "sweep", str(file)]
    arguments += ["--workers", str(workers), "--out", str(path)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def blocks():
        return sum(each.stat().st_size for each in path.glob("*/scores.npz"))

    def same_in_the_end():
        assert kept(path) == kept(tmp_path / "whole")
        assert results(path) == results(tmp_path / "whole")
        assert len(results(path)) == len(plan.audits)

    moments, amid, finished = random.Random(seed), 0, 0
    for _ in range(kills):
        child = subprocess.Popen([*arguments], **quiet)
        if moments.random() < 0.3:
            time.sleep(moments.uniform(0, 5))
        else:
            for _ in range(moments.randint(1, 4)):
                before = blocks()
                while blocks() == before and child.poll() is None:
                    time.sleep(0.01)
            time.sleep(moments.uniform(0, 0.3))
        child.send_signal(signal.SIGKILL)
        if child.wait() == 0:
            same_in_the_end()
            shutil.rmtree(path)
            finished += 1
        amid += blocks() > 0 and len(results(path)) < len(plan.audits)
    subprocess.run([*arguments], check=True, **quiet)
    same_in_the_end()
    print(f"{kills} kills, {amid} amid scores; {finished + 1} sweeps finished")
    return amid


class TestKilled:
    @pytest.mark.full
    def test_killed_twice(self, tmp_path):
        killed_at_random(tmp_path, 2, ["dp-dsgd"], runs=200, workers=1, seed=1)

    @pytest.mark.full
    def test_killed_twenty_times_at_random_moments(self, tmp_path):
        both = ["dp-dsgd", "dp-dsgt"]
        amid = killed_at_random(tmp_path, 20, both, runs=600, workers=2, seed=2)
        assert amid > 10
