"""The demo: three audits of one training, as sentences and on one page."""

import dataclasses
import json
import pathlib
import re
import shutil

import msgspec
import pytest
import torch

from privaudit.auditing.experiments import demo
from privaudit.auditing.experiments.demo import run_demo
from privaudit.auditing.experiments.plan import Audit, HalfNoise
from privaudit.auditing.experiments.presets import AUDITED, training_upon
from privaudit.auditing.experiments.sweep import Sweep
from privaudit.cli import FINE, REFUTED, main
from privaudit.ledger import Ledger
from privaudit.report.command import command
from privaudit.report.demo import load_views, write
from privaudit.report.load import load
from privaudit.results import round_down
from tests.cli.test_shapes import validator
from tests.report.test_page import read
from tests.tiers import size
from trainers.numerics.randomness import Streams
from trainers.runs.problem import Problem

pytestmark = pytest.mark.sized

RUNS = size(1200, 150)
NAMES = ["neighbour", "final-model", "planted-bug"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a small demo; not to be changed."""
    path = tmp_path_factory.mktemp("demo") / "runs"
    run_demo(path, runs=RUNS, workers=1)
    write(path, load_views(path))
    return path


@pytest.fixture
def copied(made, tmp_path, monkeypatch):
    """A copy of it, that `privaudit demo` takes for its own."""
    monkeypatch.setattr(demo, "RUNS", RUNS)
    return shutil.copytree(made, tmp_path / "runs")


def scores(path):
    return {
        each.parent.name: each.stat().st_mtime_ns for each in path.glob("*/scores*")
    }


def replaced(view, epsilon):
    """The view, had its audit shown ``epsilon``."""
    verdict = view.run.result.verdict
    lower = msgspec.structs.replace(verdict.lower, epsilon=epsilon)
    verdict = msgspec.structs.replace(verdict, lower=lower)
    result = msgspec.structs.replace(
        view.run.result, verdict=verdict, status=verdict.status
    )
    return dataclasses.replace(view, run=dataclasses.replace(view.run, result=result))


class TestEvidence:
    """A demo's folder is verified as any sweep's is."""

    def test_it_has_a_manifest_and_agrees(self, copied, capsys):
        assert main(["verify", str(copied)]) == FINE
        assert "there is no manifest" not in capsys.readouterr().out
        assert "checked against its evidence" in (copied / "report.html").read_text()

    @pytest.mark.full
    def test_its_page_says_nothing_that_was_edited(self, copied, capsys):
        file = copied / "planted-bug" / "result.json"
        result = json.loads(file.read_text())
        result["verdict"]["lower"]["epsilon"] = 9.9
        file.write_text(json.dumps(result))
        (copied / "report.html").unlink()
        assert main(["demo", "--out", str(copied)]) == REFUTED
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith(f"{file}: ")
        assert not (copied / "report.html").exists()

    def test_a_run_that_its_manifest_does_not_list(self, copied, capsys):
        shutil.copytree(copied / "neighbour", copied / "another")
        assert main(["verify", str(copied)]) == REFUTED
        out = capsys.readouterr().out
        assert out.startswith(f"{copied / 'another' / 'manifest.json'}: ")


class TestSound:
    def test_bug_halves_the_noise_and_not_the_ledger(self):
        training = training_upon("dp-dsgd", demo._TRAINING, {}, "a test")
        right, bug = Problem.of(training), HalfNoise.of(training)
        models, ledger = bug.train(2.0, Streams(0), runs=2)
        assert torch.equal(models, right.train(1.0, Streams(0), runs=2)[0])
        assert ledger == right.train(2.0, Streams(0), runs=2)[1]

    def test_one_claim_one_account_and_only_the_bug_is_refuted(self, made):
        runs = [view.run for view in load_views(made)]
        assert [run.status for run in runs] == ["consistent", "consistent", "refuted"]
        first = runs[0].config
        for run in runs:
            assert run.config.claim == first.claim
            assert run.config.training == first.training
            assert run.config.noise_multiplier == first.noise_multiplier
            assert run.ledger == runs[0].ledger
            assert isinstance(run.ledger, Ledger)
        assert [run.config.planted_bug for run in runs] == [None, None, "half-noise"]
        assert runs[0].config.seed == 0

    def test_the_bug_is_told_wherever_its_folder_is_read(self, made, capsys):
        path = made / "planted-bug"
        assert main(["show", str(path)]) == REFUTED
        assert "dp-dsgd with a planted bug (half-noise)" in capsys.readouterr().out
        assert main(["show", str(path), "--json"]) == REFUTED
        found = json.loads(capsys.readouterr().out)["runs"][0]
        assert found["planted_bug"] == "half-noise"
        assert command(load(path))[:2] == ("privaudit demo", "--seed 0")
        main(["show", str(made / "neighbour"), "--json"])
        found = json.loads(capsys.readouterr().out)["runs"][0]
        assert found["planted_bug"] is None

    def test_an_unknown_bug_is_refused(self, made):
        config = json.loads((made / "planted-bug" / "config.json").read_text())
        with pytest.raises(ValueError, match="choose one of half-noise"):
            msgspec.convert({**config, "planted_bug": "of-tomorrow"}, Audit)


class TestSentences:
    def test_figures_are_rounded_down(self, made):
        for view in load_views(made):
            least = round_down(view.run.result.lower().epsilon)
            assert f"at least {least}" in view.sentence
            assert view.sentence.count(".") == 1 + len(
                re.findall(r"\d\.", view.sentence)
            )

    @pytest.mark.parametrize(
        ("place", "epsilon", "end"),
        [
            (0, 3.2, "3.200 of the certified 4.000: the truth lies between the two."),
            (0, 2.9055, "2.905 of the certified 4.000: more runs may show more."),
            (0, 4.1, "chance has it in at most one audit of 100."),
            (1, 0.1, "at least 0.1000: a low figure is not safety, only what this "),
            (2, 8.0095, "at least 8.009 of a claimed 4: REFUTED."),
            (2, 3.0, "at least 3.000 of a claimed 4: not refuted, in so few runs."),
        ],
    )
    def test_end_by_what_was_found(self, made, place, epsilon, end):
        sentence = replaced(load_views(made)[place], epsilon).sentence
        assert end in sentence
        assert ("lies between" in sentence) == (epsilon == 3.2)
        assert ("REFUTED" in sentence) == (epsilon == 8.0095)


class TestPage:
    def test_three_audits_on_one_axis(self, made):
        text = (made / "report.html").read_text(encoding="utf-8")
        reader = read(text)
        assert text.count("<svg") == 2  # a wide one, and one for phones
        (said, other) = re.findall(r'aria-label="([^"]*)"', text)
        assert said == other
        assert said.startswith(
            "One axis of epsilon: claimed ε = 4; certified ε ≤ 4.000"
        )
        for view, label in zip(
            load_views(made), ("neighbour", "final model", "planted bug"), strict=True
        ):
            least = f"ε ≥ {round_down(view.run.result.lower().epsilon)}"
            assert f"{label} {least}" in said
            assert least in reader.words
            assert view.sentence in reader.words
        assert reader.words.count(": consistent") == 2
        assert "3. With a planted bug: refuted" in reader.words
        assert "The bug is planted on purpose" in reader.words

    def test_one_file_without_scripts(self, made):
        text = (made / "report.html").read_text(encoding="utf-8")
        reader = read(text)
        assert reader.tags.isdisjoint({"script", "link", "img", "iframe", "object"})
        assert "http" not in text
        assert len(reader.ids) == len(set(reader.ids))
        names = set(re.findall(r"var\((--[\w-]+)\)", text))
        assert all(f"{name}:" in text for name in names)

    @pytest.mark.full
    def test_each_audit_has_a_page_of_its_own(self, copied, capsys):
        assert main(["report", str(copied / "planted-bug")]) == FINE
        words = read((copied / "planted-bug" / "report.html").read_text()).words
        assert "A bug was planted in it: its noise is half of what its ledger" in words


class TestCommand:
    def test_what_is_there_is_taken_and_what_is_missing_is_made(self, copied, capsys):
        before = scores(copied)
        shutil.rmtree(copied / "planted-bug")
        status = main(["demo", "--out", str(copied), "--json"])
        out, err = capsys.readouterr()
        assert (status, err) == (FINE, "")
        found = json.loads(out)
        validator("demo").validate(found)
        assert found["page"] == str(copied / "report.html")
        assert [each["name"] for each in found["audits"]] == NAMES
        assert [each["verdict"] for each in found["audits"]][2] == "refuted"
        for each in found["audits"]:
            assert {"sentence", "epsilon_lower", "certified", "claimed"} <= each.keys()
        after = scores(copied)
        assert after.keys() == before.keys() == set(NAMES)
        assert [after[name] == before[name] for name in NAMES] == [True, True, False]

    def test_three_sentences_and_the_path(self, copied, capsys):
        before = scores(copied)
        assert main(["demo", "--out", str(copied)]) == FINE
        lines = capsys.readouterr().out.splitlines()
        assert lines[:3] == [view.sentence for view in load_views(copied)]
        assert "99 % confidence each" in lines[3]
        assert "this run's releases with more or less noise" in lines[3]
        assert "the exit status is 0" in lines[3]
        assert lines[4].endswith(str(copied / "report.html"))
        assert scores(copied) == before
        assert main(["show", str(copied)]) == REFUTED  # a table of all three

    def test_other_folders_are_refused_and_left_alone(self, copied, tmp_path, capsys):
        (tmp_path / "thesis").mkdir()
        (tmp_path / "thesis" / "thesis.tex").write_text("dear")
        (tmp_path / "file").write_text("")
        sweep = tmp_path / "sweep"
        (sweep / "dp-dsgd").mkdir(parents=True)
        (sweep / "sweep.json").write_text("{}")
        for arguments, why in (
            (["--out", str(tmp_path / "thesis")], "it holds thesis.tex"),
            (["--out", str(tmp_path / "file")], "is a file"),
            (["--out", str(sweep)], "it holds dp-dsgd"),
            (["--out", str(copied), "--seed", "1"], "another seed"),
            (["--out", str(copied), "--workers", "0"], "--workers must be >= 1"),
        ):
            assert main(["demo", *arguments]) == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert why in line
        assert sorted(each.name for each in tmp_path.iterdir()) == [
            "file",
            "runs",
            "sweep",
            "thesis",
        ]
        assert len(list((tmp_path / "thesis").iterdir())) == 1
        assert (sweep / "sweep.json").read_text() == "{}"


def test_the_example_of_one_loss_can_be_swept():
    examples = pathlib.Path(__file__).parents[2] / "examples"
    (one,) = Sweep.read(examples / "one-loss.toml").audits
    assert (one.audit.adversary, one.audit.canary) == ("final-loss", "blank")
    assert one.audit.training == training_upon("dp-dsgd", {}, AUDITED, "a test")
