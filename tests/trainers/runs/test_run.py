"""Contract of trainers.runs.run: a run in a folder, whole whenever it is killed."""

import base64
import collections
import csv
import dataclasses
import json
import math
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest
import torch

from privaudit.accounting import account_nodes
from privaudit.files.folder import FolderError, RunFolder
from privaudit.ledger import RESUMED, Ledger
from privaudit.release import NoSampling
from privaudit.report.verify import verify
from privaudit.results import Claim
from trainers.gradients.choose import differentiator
from trainers.numerics import noise
from trainers.numerics.keys import Key
from trainers.numerics.releases import ReleaseJournal
from trainers.runs import checkpoint
from trainers.runs import run as runs
from trainers.runs.problem import Problem
from trainers.runs.run import Assignment, OneProcess, TrainingRun, train
from trainers.runs.run_keys import journal_of, key_of, releases_file
from trainers.runs.training import Training

KEPT = ("curves.json", "rounds.csv", "ledger.json")


def plan(algorithm="dp-dsgt", *, rounds=40, seed=0, **settings):
    return TrainingRun(
        training=Training(
            **dict(
                algorithm=algorithm, nodes=3, train=120, rounds=rounds, batch_size=8
            ),
            **settings,
        ),
        claim=Claim(
            epsilon=3.0, delta=1e-3, relation="add-or-remove-one", source="a test"
        ),
        noise_multiplier=2.0,
        seed=seed,
    )


def done(path, what, key_file=None, **more):
    more.setdefault("problem", what.problem())
    given = Assignment(run=what, delta=1e-3, **more)
    return train(given, RunFolder.opened(path), OneProcess(key_file))


@pytest.fixture
def eager(monkeypatch):
    """A checkpoint after every round."""
    monkeypatch.setattr(runs, "KEEP_EVERY", 0.0)
    monkeypatch.setattr(runs, "KEEP_SHARE", math.inf)


class Stopped(Exception):
    pass


def stop_at(rounds):
    def progress(now):
        if now.done == rounds:
            raise Stopped

    return progress


class TestResume:
    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("algorithm", ["dp-sgd", "dp-dsgd", "dp-dsgt", "dp-dinno"])
    def test_equal_bits_wherever_it_stopped(self, tmp_path, eager, algorithm):
        what = plan(algorithm)
        whole = done(tmp_path / "whole", what)
        for rounds in (2, 3, 25, 40):
            with pytest.raises(Stopped):
                done(tmp_path / "parts", what, progress=stop_at(rounds))
            assert (tmp_path / "parts" / "checkpoint.pt").exists()
        parts = done(tmp_path / "parts", what)
        assert (parts.accuracy, parts.nodes) == (whole.accuracy, whole.nodes)
        assert (whole.test_records, whole.test_size) == (500, 1677)
        for name in KEPT:
            one, other = (tmp_path / run / name for run in ("whole", "parts"))
            assert one.read_bytes() == other.read_bytes()
        assert not (tmp_path / "parts" / "checkpoint.pt").exists()

    def test_it_does_not_begin_anew(self, tmp_path, eager):
        with pytest.raises(Stopped):
            done(tmp_path, plan(), progress=stop_at(30))
        seen = []
        done(tmp_path, plan(), progress=lambda now: seen.append(now.done))
        assert seen == list(range(30, 41))

    def test_a_damaged_checkpoint_is_one_sentence(self, tmp_path, eager):
        with pytest.raises(Stopped):
            done(tmp_path, plan(), progress=stop_at(5))
        (tmp_path / "checkpoint.pt").write_bytes(b"nothing")
        with pytest.raises(FolderError, match=r"checkpoint.pt is damaged"):
            done(tmp_path, plan())

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        ("own", "other", "words"),
        [
            ({"seed": None}, {}, "another key or seed"),
            ({"seed": None}, {"seed": None}, "another key or seed"),
            ({}, {"seed": None}, "another key or seed"),
            ({}, {"seed": 1}, "another key or seed"),
            ({}, {"rounds": 50}, "other settings"),
            ({}, {"step_size": 0.1}, "other settings"),
            ({"algorithm": "dp-dsgd"}, {}, "other settings"),
            ({}, None, "of an older version"),
        ],
    )
    def test_the_checkpoint_of_another_run_is_refused(
        self, tmp_path, eager, own, other, words
    ):
        for name, settings in (("own", own), ("other", other or {})):
            with pytest.raises(Stopped):
                done(tmp_path / name, plan(**settings), progress=stop_at(5))
        path = tmp_path / "own" / "checkpoint.pt"
        content = (tmp_path / "other" / "checkpoint.pt").read_bytes()
        if other is None:
            known = checkpoint.unpack(content)
            content = checkpoint.pack({"middle": known["middle"]})
        path.write_bytes(content)
        said = rf"{path} is of a run with .*{words}.*: put back .*, or choose another"
        with pytest.raises(FolderError, match=said):
            done(tmp_path / "own", plan(**own))

    @pytest.mark.full
    def test_killed_at_any_moment(self, tmp_path):
        program = (
            "import math, sys; from tests.trainers.runs.test_run import *\n"
            "runs.KEEP_EVERY, runs.KEEP_SHARE = 0.0, math.inf\n"
            "def slowly(now): print(now.done, flush=True); time.sleep(0.01)\n"
            "done(sys.argv[1], plan(), progress=slowly)"
        )
        done(tmp_path / "whole", plan())
        for rounds in ("3", "17", "38"):
            child = subprocess.Popen(
                [sys.executable, "-c", program, str(tmp_path / "parts")],
                stdout=subprocess.PIPE,
                text=True,
            )
            for line in child.stdout:
                if line.strip() == rounds:
                    break
            time.sleep(0.005)
            os.kill(child.pid, signal.SIGKILL)
            child.stdout.close()
            child.wait()
        done(tmp_path / "parts", plan())
        for name in KEPT:
            one, other = (tmp_path / run / name for run in ("whole", "parts"))
            assert one.read_bytes() == other.read_bytes()


class TestSecret:
    def test_two_runs_differ_and_leave_no_key(self, tmp_path):
        what = plan(seed=None, rounds=5)
        results = [done(tmp_path / name, what) for name in "ab"]
        ledgers = [(tmp_path / name / "ledger.json").read_bytes() for name in "ab"]
        curves = [(tmp_path / name / "curves.json").read_bytes() for name in "ab"]
        assert ledgers[0] == ledgers[1]
        assert curves[0] != curves[1]
        for name, result in zip("ab", results, strict=True):
            assert result.protected
            assert "secret key" in result.noise
            assert not (tmp_path / name / "key").exists()
            config = json.loads((tmp_path / name / "config.json").read_text())
            assert config["seed"] is None
            assert config["public_seed"] == 0

    def test_the_key_is_in_its_file_alone_and_its_owners(self, tmp_path, eager):
        with pytest.raises(Stopped):
            done(tmp_path, plan(seed=None), progress=stop_at(20))
        key = (tmp_path / "key").read_bytes()
        assert len(key) == 48
        for file in tmp_path.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
            if file.name != "key":
                content = file.read_bytes()
                for secret in (key[:32], key[:32].hex().encode(), key[:16]):
                    assert secret not in content

    def test_the_folder_of_a_run_that_ended_holds_no_key(self, tmp_path, eager):
        keys = []

        def look(now):
            keys.append((tmp_path / "key").read_bytes())

        done(tmp_path, plan(seed=None, rounds=5), progress=look)
        (key,) = set(keys)
        files = [file for file in tmp_path.iterdir() if file.name != ".lock"]
        assert {"config.json", "ledger.json", "result.json"} <= {f.name for f in files}
        for file in files:
            content = file.read_bytes()
            for part in (key[:32], key[32:], key[:16], key[16:32]):
                for text in (part, part.hex().encode(), base64.b64encode(part)):
                    assert text not in content, file

    def test_killed_at_the_very_end_it_leaves_what_the_next_start_removes(
        self, tmp_path, eager, monkeypatch
    ):
        what = plan(seed=None, rounds=3)
        with monkeypatch.context() as patch:
            patch.setattr(OneProcess, "end", lambda run, folder: None)
            result = done(tmp_path, what)
        left = {"key", "key.releases", "key-id"}
        found = verify(tmp_path).differences
        assert {one.file.name for one in found} == left
        assert (tmp_path / "checkpoint.pt").exists()
        assert done(tmp_path, what) == result
        assert verify(tmp_path)
        assert not (left | {"checkpoint.pt"}) & {x.name for x in tmp_path.iterdir()}

    def test_it_goes_on_to_the_same_bits(self, tmp_path, eager):
        what = plan(seed=None)
        with pytest.raises(Stopped):
            done(tmp_path / "one", what, progress=stop_at(20))
        shutil.copytree(tmp_path / "one", tmp_path / "other")
        with pytest.raises(Stopped):
            done(tmp_path / "other", what, progress=stop_at(30))
        for name in ("one", "other"):
            done(tmp_path / name, what)
        for name in KEPT:
            one, other = (tmp_path / run / name for run in ("one", "other"))
            assert one.read_bytes() == other.read_bytes()

    def test_without_its_key_it_does_not_go_on(self, tmp_path, eager):
        file = tmp_path / "elsewhere"
        with pytest.raises(Stopped):
            done(tmp_path / "a", plan(seed=None), progress=stop_at(5), key_file=file)
        assert file.exists()
        assert not (tmp_path / "a" / "key").exists()
        with pytest.raises(FolderError, match="not its key"):
            done(tmp_path / "a", plan(seed=None))
        done(tmp_path / "a", plan(seed=None), key_file=file)
        assert not file.exists()

    @pytest.mark.full
    def test_the_key_of_another_run_is_neither_taken_nor_removed(self, tmp_path, eager):
        file = tmp_path / "key"
        with pytest.raises(Stopped):
            done(tmp_path / "a", plan(seed=None), progress=stop_at(5), key_file=file)
        kept = file.read_bytes()
        for _ in range(2):  # also when the folder is there already
            with pytest.raises(FolderError, match="the key of another run"):
                done(tmp_path / "b", plan(seed=None, rounds=3), key_file=file)
        done(tmp_path / "c", plan(seed=None, rounds=3))
        done(tmp_path / "c", plan(seed=None, rounds=3), key_file=file)  # had ended
        assert file.read_bytes() == kept
        done(tmp_path / "a", plan(seed=None), key_file=file)
        assert not file.exists()
        assert not (tmp_path / "a" / "key-id").exists()

    def test_a_file_that_is_no_key_is_left_alone(self, tmp_path):
        file = tmp_path / "thesis.txt"
        file.write_text("years of work")
        done(tmp_path / "a", plan(seed=None, rounds=3))
        done(tmp_path / "a", plan(seed=None, rounds=3), key_file=file)
        with pytest.raises(FolderError, match="holds no key"):
            done(tmp_path / "b", plan(seed=None, rounds=3), key_file=file)
        assert file.read_text() == "years of work"

    def test_a_key_that_is_lost_before_any_checkpoint_is_missed(self, tmp_path):
        """Else the first rounds would be released again, under noise of their own."""
        with pytest.raises(Stopped):
            done(tmp_path, plan(seed=None), progress=stop_at(5))
        assert not (tmp_path / "checkpoint.pt").exists()
        (tmp_path / "key").unlink()
        with pytest.raises(FolderError, match="not its key"):
            done(tmp_path, plan(seed=None))

    def test_a_damaged_key_is_one_sentence(self, tmp_path):
        tmp_path.joinpath("key").write_bytes(b"short")
        with pytest.raises(FolderError, match="key is damaged or not ours"):
            done(tmp_path, plan(seed=None))

    def test_models_that_stay_home_are_not_protected(self, tmp_path):
        what = plan("partpsp", seed=None, rounds=2, model="tanh-mlp", graph="d-out:2")
        result = done(tmp_path, dataclasses.replace(what, claim=None))
        assert not result.protected
        assert "the models are not protected" in result.noise

    def test_a_study_is_not_protected(self, tmp_path):
        result = done(tmp_path, plan(rounds=2))
        assert not result.protected
        assert "Study" in result.noise
        assert not (tmp_path / "key").exists()


def changed(what, node=1):
    """The problem of ``what``, with other records at a node."""
    problem = Problem.of(what.training, seed=what.public_seed)
    shares = list(problem.shares)
    shares[node] = dataclasses.replace(
        shares[node], inputs=shares[node].inputs.flip(-1)
    )
    return dataclasses.replace(problem, shares=shares)


class ByThreads(torch.nn.Module):
    """In place of a kernel that rounds otherwise on more threads."""

    def forward(self, inputs):
        return inputs * (1 + 2.0**-20 * (torch.get_num_threads() - 1))


@pytest.fixture
def kept(monkeypatch):
    """Of each (node, release), the sums on the grid and their noise, each time."""
    found, add = collections.defaultdict(list), noise.add_noise_

    def watched(sums, rows, *law):
        before = sums.clone()
        after = add(sums, rows, *law)
        for column, node in enumerate(rows.nodes):
            own = before[:, column], after[:, column] - before[:, column]
            found[node, rows.release].append(own)
        return after

    monkeypatch.setattr(noise, "add_noise_", watched)
    return found


class TestJournal:
    """No two sums under one noise, and other sums are further releases."""

    @pytest.fixture(autouse=True)
    def keeps_nothing_by_the_clock(self, monkeypatch):
        monkeypatch.setattr(runs, "KEEP_EVERY", math.inf)

    def stopped(self, path, rounds=12, **more):
        with pytest.raises(Stopped):
            done(path, plan(seed=None), progress=stop_at(rounds), **more)

    @pytest.mark.full
    def test_killed_it_goes_on_to_the_same_bits_at_no_cost(self, tmp_path):
        program = (
            "import sys; from tests.trainers.runs.test_run import *\n"
            "runs.KEEP_EVERY, runs.KEEP_SHARE = 0.0, 1e9\n"
            "def slowly(now): print(now.done, flush=True); time.sleep(0.01)\n"
            "done(sys.argv[1], plan(seed=None), progress=slowly)"
        )
        one, other = tmp_path / "one", tmp_path / "other"
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(one)], stdout=subprocess.PIPE, text=True
        )
        assert any(line.strip() == "17" for line in child.stdout)
        os.kill(child.pid, signal.SIGKILL)
        child.stdout.close()
        child.wait()
        assert stat.S_IMODE((one / "key.releases").stat().st_mode) == 0o600
        shutil.copytree(one, other)
        (other / "checkpoint.pt").unlink()  # all are made again
        for path in (one, other):
            assert done(path, plan(seed=None)).remarks == ()
            assert sorted(file.name for file in path.glob("key*")) == []
        for name in KEPT:
            assert (one / name).read_bytes() == (other / name).read_bytes()
        done(tmp_path / "whole", plan(rounds=40))
        whole = (tmp_path / "whole" / "ledger.json").read_bytes()
        assert (one / "ledger.json").read_bytes() == whole

    @pytest.mark.full
    def test_other_data_pay_for_what_is_released_again(self, tmp_path):
        what = plan(seed=None)
        self.stopped(tmp_path, 12)
        result = done(tmp_path, what, problem=changed(what))
        ledger = Ledger.from_json((tmp_path / "ledger.json").read_text())
        counts = [[entry.count for entry in node] for node in ledger.nodes]
        further = [sum(counts[node]) - 40 for node in range(3)]
        assert further[1] == 12
        assert all(10 <= more <= 12 for more in further)
        plain = [e for e in ledger.nodes[1] if e.release.sampling == NoSampling()]
        assert sum(entry.count for entry in plain) == 12
        (said,) = result.remarks
        assert said.startswith(f"{sum(further)} releases were made again with other")
        assert RESUMED in ledger.assumptions
        bounds = account_nodes(ledger, 1e-3, "add-or-remove-one", "certified")
        assert result.nodes == bounds
        whole = done(tmp_path / "whole", plan())
        assert result.upper().epsilon > whole.upper().epsilon
        assert result.upper().standing != "certified"
        assert not list(tmp_path.glob("key*"))

    @pytest.mark.full
    @pytest.mark.parametrize("threads", [2, 1])
    def test_on_other_threads_no_noise_is_used_twice(self, tmp_path, threads, kept):
        """Equal sums repeat their noise; others have their own, and are counted."""
        what = plan(seed=None)
        problem = Problem.of(what.training, seed=what.public_seed)
        module = torch.nn.Sequential(ByThreads(), problem.module)
        way = differentiator(module, problem.material.loss, *problem.material.example)
        problem = dataclasses.replace(problem, gradients=lambda: way)
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            self.stopped(tmp_path, 12, problem=problem)
            assert {len(pairs) for pairs in kept.values()} == {1}
            torch.set_num_threads(threads)
            done(tmp_path, what, problem=problem)
        finally:
            torch.set_num_threads(before)
        again = {at: pairs for at, pairs in kept.items() if len(pairs) > 1}
        assert len(again) >= 3 * 11  # the twelfth may not have been made by all
        others = collections.Counter()
        for (node, _), ((one, first), (two, second)) in again.items():
            same = torch.equal(one, two)
            others[node] += not same
            assert torch.equal(first, second) == same
            assert same or (first != second).double().mean() > 0.99
        assert sum(others.values()) == (0 if threads == 1 else len(again))
        ledger = Ledger.from_json((tmp_path / "ledger.json").read_text())
        for node, entries in enumerate(ledger.nodes):
            assert sum(entry.count for entry in entries) == 40 + others[node]

    def test_every_change_counts(self, tmp_path):
        """A third sum is one more, and the first again is none."""
        what = plan(seed=None)
        self.stopped(tmp_path, 12)
        self.stopped(tmp_path, 6, problem=changed(what))
        done(tmp_path, what)  # as it was begun
        ledger = Ledger.from_json((tmp_path / "ledger.json").read_text())
        assert sum(entry.count for entry in ledger.nodes[1]) == 46

    def test_what_was_kept_is_not_made_again(self, tmp_path, eager):
        what = plan(seed=None)
        self.stopped(tmp_path, 12)
        result = done(tmp_path, what, problem=changed(what))
        assert len(result.remarks) <= 1
        ledger = Ledger.from_json((tmp_path / "ledger.json").read_text())
        assert sum(entry.count for entry in ledger.nodes[1]) <= 41  # one round at most

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        ("spoil", "why"),
        [
            (lambda content, other: content[:-5], "it was cut"),
            (lambda content, other: b"", "it was cut"),
            (lambda content, other: other, "of another key"),
            (lambda content, other: content[:64] + other[64:], "of another key"),
            (lambda content, other: content[:64] + content[128:], "it was changed"),
            (lambda content, other: content[:70] + b"x" + content[71:], "was changed"),
        ],
    )
    def test_a_journal_that_is_damaged_is_one_sentence(self, tmp_path, spoil, why):
        self.stopped(tmp_path / "a", 3)
        self.stopped(tmp_path / "b", 3)
        path = tmp_path / "a" / "key.releases"
        other = (tmp_path / "b" / "key.releases").read_bytes()
        path.write_bytes(spoil(path.read_bytes(), other))
        with pytest.raises(FolderError, match=rf"key.releases cannot .*{why}"):
            done(tmp_path / "a", plan(seed=None))

    def test_a_journal_is_no_older_than_its_checkpoint(self, tmp_path, eager):
        """The machine's death may cost it what came later, and no more."""
        self.stopped(tmp_path, 12)
        path = tmp_path / "key.releases"
        content = path.read_bytes()
        path.write_bytes(content[: 64 * (1 + 3 * 10)])
        with pytest.raises(FolderError, match=r"ends before checkpoint\.pt.*cannot go"):
            done(tmp_path, plan(seed=None))
        path.write_bytes(content[:-64])
        assert done(tmp_path, plan(seed=None)).remarks == ()

    def test_without_its_journal_it_does_not_go_on(self, tmp_path):
        self.stopped(tmp_path / "a", 3)
        (tmp_path / "a" / "key.releases").unlink()
        with pytest.raises(FolderError, match="No such file"):
            done(tmp_path / "a", plan(seed=None))

    def test_two_copies_cannot_share_a_key_file_at_once(self, tmp_path):
        file = tmp_path / "file"

        def second(now):
            with pytest.raises(FolderError, match="another process goes on"):
                done(tmp_path / "b", plan(seed=None), key_file=file)
            raise Stopped

        self.stopped(tmp_path / "a", 3, key_file=file)
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        with pytest.raises(Stopped):
            done(tmp_path / "a", plan(seed=None), key_file=file, progress=second)

    def test_a_file_in_its_place_is_left_alone(self, tmp_path):
        (tmp_path / "file.releases").write_text("notes")
        with pytest.raises(FolderError, match="is no journal of releases"):
            done(tmp_path / "a", plan(seed=None), key_file=tmp_path / "file")
        assert (tmp_path / "file.releases").read_text() == "notes"

    @pytest.mark.parametrize("inside", [True, False])
    @pytest.mark.parametrize(
        ("of", "name"), [(Key, "save"), (ReleaseJournal, "create")]
    )
    @pytest.mark.parametrize("room", [0, 40])  # bytes, of 48 and 64
    def test_where_there_was_no_room_for_a_key_it_begins(
        self, tmp_path, monkeypatch, room, of, name, inside
    ):
        real, limit = getattr(of, name), resource.getrlimit(resource.RLIMIT_FSIZE)

        def cramped(*given):
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, limit[1]))
            try:
                real(*given)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limit)

        (tmp_path / "it").mkdir()
        folder, file = (
            RunFolder(tmp_path / "it"),
            tmp_path / ("it/key" * inside or "key"),
        )
        with monkeypatch.context() as patch:
            patch.setattr(of, name, cramped)
            with pytest.raises(FolderError, match="cannot keep the key in"):
                key_of(None, folder, file)
        releases_file(file).touch()  # as an earlier version left it
        key = key_of(None, folder, file)
        with journal_of(key, file) as journal:
            assert journal.further == 0
        assert key_of(None, folder, file).run == key.run

    def test_a_study_has_none(self, tmp_path):
        with pytest.raises(Stopped):
            done(tmp_path, plan(), progress=stop_at(3))
        assert not list(tmp_path.glob("key*"))


class TestCurves:
    def test_rounds_and_what_they_spent(self, tmp_path):
        result = done(tmp_path, plan())
        with (tmp_path / "rounds.csv").open() as file:
            rows = list(csv.DictReader(file))
        rounds = [int(row["round"]) for row in rows]
        assert rounds == list(range(4, 41, 4))
        spent = [float(row["epsilon"]) for row in rows]
        assert spent == sorted(spent)
        assert spent[-1] == result.upper().epsilon
        assert float(rows[-1]["accuracy"]) == pytest.approx(result.accuracy)
        # No round has spent more than its row says.
        ledger = Ledger.from_json((tmp_path / "ledger.json").read_text())
        (entry,) = ledger.nodes[0]
        from privaudit.accounting import account

        for place in (0, 3, 8):
            true = account(Ledger.of(entry.release, rounds[place]), 1e-3)
            assert true.epsilon <= spent[place]
        assert json.loads((tmp_path / "curves.json").read_text())["epsilon"] == spent

    def test_without_noise_all_is_spent(self, tmp_path):
        what = TrainingRun(
            training=plan("dsgd").training, claim=None, noise_multiplier=0.0
        )
        done(tmp_path, what)
        with (tmp_path / "rounds.csv").open() as file:
            assert {row["epsilon"] for row in csv.DictReader(file)} == {"inf"}
