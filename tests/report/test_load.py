"""Reading finished folders back."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys

import pytest

from privaudit.api import place
from privaudit.cli import main
from privaudit.files import json as _json
from privaudit.files.folder import FolderError, RunFolder
from privaudit.report.command import command
from privaudit.report.load import (
    AuditConfig,
    FinishedAudit,
    FinishedTraining,
    TrainingConfig,
    load,
)
from tests.report import runs


@pytest.fixture
def folder(tmp_path):
    """A finished audit's folder."""
    path = tmp_path / "run"
    runs.Made(worlds=runs.separated(40, 50)).write(path)
    return path


class TestLaws:
    """What was written is what is read."""

    def test_audit(self, folder):
        run = load(folder)
        assert isinstance(run, FinishedAudit)
        assert run.status == "refuted"
        assert len(run.scores) == 90
        summary = json.loads(_json.encode(run.summary()))
        assert summary["runs"] == {"member": 40, "non_member": 50}
        assert summary["epsilon_lower"] == run.result.lower().epsilon
        assert len(run.lines()) == 5

    @pytest.mark.parametrize("claim", [1.0, None])
    def test_training(self, tmp_path, claim):
        result = runs.write_training(tmp_path, claim=claim)
        run = load(tmp_path)
        assert isinstance(run, FinishedTraining)
        assert run.result == result
        assert run.summary()["claimed"] == claim
        assert str(run.upper) in run.lines()

    def test_no_file_makes_a_model_protected(self, tmp_path):
        # Runs of 0.1.0 have neither key, and a file can be edited.
        result = runs.write_training(tmp_path)
        file = tmp_path / "result.json"
        written = json.loads(file.read_text())
        assert written.pop("protected") is False
        assert "not protected" in written.pop("noise")
        for change in ({}, {"noise": "Nobody can find it."}, {"protected": True}):
            file.write_text(json.dumps(written | change))
            assert load(tmp_path).result == result

    def test_settings_by_their_former_names(self, folder):
        run = load(folder)
        file = folder / "config.json"
        text = file.read_text()
        assert '"batch_size"' in text
        file.write_text(text.replace('"batch_size"', '"lot_size"'))
        assert load(folder).config == run.config

    def test_reading_changes_nothing(self, folder):
        before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
        load(folder)
        assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before

    def test_needs_neither_torch_nor_matplotlib(self, folder):
        program = (
            "import sys; from privaudit.report.load import load; "
            f"load({str(folder)!r}); "
            "assert not {'torch', 'matplotlib', 'jinja2'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_knows_the_fields_that_runs_write(self):
        pytest.importorskip("torch")
        from privaudit.auditing.experiments.experiment import Audit
        from trainers.runs.run import TrainingRun

        for written, read in ((Audit, AuditConfig), (TrainingRun, TrainingConfig)):
            names = [
                {field.name for field in dataclasses.fields(kind)}
                for kind in (read, written)
            ]
            assert names[0] == names[1]


class TestRefused:
    """One clear line for a folder that is not what it should be."""

    @pytest.mark.parametrize(
        "name", ["config.json", "ledger.json", "curves.json", "result.json"]
    )
    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"x": 1}', b"\xff"])
    def test_damaged(self, folder, name, content, capsys):
        (folder / name).write_bytes(content)
        with pytest.raises(FolderError, match=str(folder)):
            load(folder)
        assert main(["show", str(folder)]) == 3
        assert len(capsys.readouterr().err.splitlines()) == 1

    def test_options_that_are_no_table(self, folder, capsys):
        path = folder / "config.json"
        config = json.loads(path.read_bytes())
        config["training"]["options"] = 3
        path.write_text(json.dumps(config))
        for name in ("show", "report"):
            assert main([name, str(folder)]) == 3
            (line,) = capsys.readouterr().err.splitlines()
            assert "Expected `object`, got `int` - at `$.options`" in line

    @pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY", b"x" * 100])
    def test_damaged_scores(self, folder, content):
        (folder / "scores.npz").write_bytes(content)
        with pytest.raises(FolderError, match="scores"):
            load(folder)

    @pytest.mark.parametrize(
        "name",
        ["config.json", "ledger.json", "curves.json", "result.json", "scores.npz"],
    )
    def test_missing(self, folder, name):
        (folder / name).unlink()
        with pytest.raises(FolderError):
            load(folder)

    def test_unfinished(self, folder):
        (folder / "result.json").unlink()
        with pytest.raises(FolderError, match="not finished"):
            load(folder)

    def test_no_folder(self, tmp_path):
        with pytest.raises(FolderError, match="no folder"):
            load(tmp_path / "nothing")
        (tmp_path / "file").touch()
        with pytest.raises(FolderError, match="no folder"):
            load(tmp_path / "file")

    def test_foreign(self, tmp_path):
        (tmp_path / "config.json").write_text('{"name": "a package"}')
        with pytest.raises(FolderError, match="somebody else"):
            load(tmp_path)

    @pytest.mark.parametrize(
        ("name", "other"),
        [
            ("result.json", runs.Made(worlds=runs.separated(40, 50), claim=2.0)),
            ("scores.npz", runs.Made(worlds=runs.separated(41, 49))),
            ("ledger.json", runs.Made(worlds=runs.separated(40, 50), nodes=2)),
        ],
    )
    def test_files_of_two_runs(self, folder, tmp_path, name, other):
        other.write(tmp_path / "other")
        (tmp_path / "other" / name).replace(folder / name)
        with pytest.raises(FolderError, match="damaged or not ours"):
            load(folder)

    def test_a_verdict_that_its_figures_do_not_give(self, folder):
        content = json.loads((folder / "result.json").read_text())
        content["status"] = "consistent"
        (folder / "result.json").write_text(json.dumps(content))
        with pytest.raises(FolderError, match="status"):
            load(folder)


class TestCommand:
    """The command on the page is the one that makes the run."""

    @pytest.fixture(autouse=True)
    def made_up(self, monkeypatch):
        """Folders here have the settings of one run, and figures of another."""
        monkeypatch.setattr(place, "verified", lambda path, **how: None)

    @pytest.mark.parametrize(
        "settings", [{}, {"rounds": 7, "graph": "ring", "digits": (3, 5), "nodes": 2}]
    )
    def test_audit(self, tmp_path, settings, capsys):
        pytest.importorskip("sklearn")
        from privaudit.auditing.experiments.experiment import Audit
        from trainers.runs.training import Training

        path = tmp_path / "run"
        runs.Made(worlds=runs.noise(40, 50), source="the command line").write(path)
        known = load(path).config
        audit = Audit(
            claim=known.claim,
            training=Training(**{**runs.TRAINING, **settings}),
            noise_multiplier=1 / 3,
            adversary="noisy-gradients",
            runs=known.runs,
            seed=known.seed,
        )
        RunFolder(path).write("config.json", _json.encode(audit))
        line = " ".join(command(load(path)))
        assert ("--set" in line) == bool(settings)
        # The folder is finished: the command finds its own settings, or refuses.
        program, *arguments = shlex.split(line)
        assert program == "privaudit"
        assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
        assert json.loads(capsys.readouterr().out)["runs"]["member"] == 40

    def test_training(self, tmp_path, capsys):
        pytest.importorskip("sklearn")
        from trainers.runs.run import TrainingRun
        from trainers.runs.training import Training

        runs.write_training(tmp_path)
        run = TrainingRun(
            training=Training(algorithm="dp-sgd", batch_size=50.5, step_size=1e-3),
            claim=load(tmp_path).config.claim,
            noise_multiplier=0.1 + 0.2,
            account="rdp",
            seed=5,
        )
        RunFolder(tmp_path).write("config.json", _json.encode(run))
        arguments = shlex.split(" ".join(command(load(tmp_path))))[1:]
        assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
        assert json.loads(capsys.readouterr().out)["noise_multiplier"] == 0.1 + 0.2

    def test_where_it_was_computed(self, tmp_path):
        for write in (
            runs.Made(worlds=runs.noise(4, 4)).write,
            runs.write_training,
        ):
            path = tmp_path / write.__name__
            write(path)
            plain = command(load(path))
            assert not [part for part in plain if part.startswith("--comp")]
            content = json.loads((path / "config.json").read_text())
            content |= {"device": "cuda:1", "compiled": True}
            (path / "config.json").write_text(json.dumps(content))
            assert {"--device cuda:1", "--compiled"} <= {*command(load(path))}
            content |= {"compiled": False, "precision": "bf16"}
            (path / "config.json").write_text(json.dumps(content))
            assert "--precision bf16" in command(load(path))

    def test_another_version_says_every_setting(self, tmp_path):
        runs.Made(worlds=runs.noise(4, 4)).write(tmp_path)
        content = json.loads((tmp_path / "config.json").read_text())
        content["version"] = "0.0.9"
        (tmp_path / "config.json").write_text(json.dumps(content))
        assert sum(part.startswith("--set") for part in command(load(tmp_path))) == (
            len(runs.TRAINING) - 1
        )
