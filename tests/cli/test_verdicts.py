"""One word a verdict, and one exit status, whichever command says it."""

import dataclasses
import json
import re

import msgspec
import pytest

from privaudit.claims.accounts import single
from privaudit.cli import BAD_USAGE, FINE, REFUTED, main
from privaudit.cli.output import status_of
from tests.trainers.planted import NoiseDividedTwice
from trainers.algorithms import ALGORITHMS

FEW = [
    f"--set={one}" for one in ("rounds=20", "batch_size=10", "train=40", "digits=0,1")
]
FALSE = ["--epsilon", "1", "--noise-multiplier", ".5", *FEW]


def call(capsys, *arguments):
    status = main([str(each) for each in arguments])
    return (status, *capsys.readouterr())


class TestStatus:
    @pytest.mark.parametrize(
        ("verdict", "plain", "required"),
        [
            ("refuted", REFUTED, REFUTED),
            ("disproved", REFUTED, REFUTED),
            ("unproven", FINE, REFUTED),
            ("consistent", FINE, FINE),
            ("no theorem", FINE, FINE),
            (None, FINE, REFUTED),
        ],
    )
    def test_of_each_verdict(self, verdict, plain, required):
        assert status_of([verdict]) == plain
        assert status_of([verdict], "consistent") == required
        assert status_of(["consistent", verdict], "consistent") == required
        assert status_of([]) == FINE

    @pytest.mark.parametrize("command", ["claims", "audit", "train", "sweep", "show"])
    def test_is_told_by_help(self, capsys, command):
        said = " ".join(
            re.sub("[^ -~]", " ", call(capsys, command, "--help")[1]).split()
        )
        assert "refuted" in said
        assert "disprove" in said
        assert "--require" in said
        status, _, err = call(capsys, command, "x", "--require", "proof")
        assert status == BAD_USAGE
        assert "consistent" in err


class TestOneWord:
    def test_train_show_and_page_disprove_what_claims_does(self, capsys, tmp_path):
        path = tmp_path / "run"
        status, out, _ = call(capsys, "train", "dp-sgd", *FALSE, "--out", path)
        assert status == REFUTED
        (line,) = [line for line in out.splitlines() if "DISPROVED: " in line]
        status, out, _ = call(capsys, "show", path)
        assert (status, line in out.splitlines()) == (REFUTED, True)
        status, out, _ = call(capsys, "show", path, "--json")
        (run,) = json.loads(out)["runs"]
        assert (status, run["verdict"]) == (REFUTED, "disproved")
        assert 1 < run["certified_lower"] <= run["certified"]
        assert call(capsys, "report", path)[0] == FINE
        page = (path / "report.html").read_text()
        assert 'class="statement disproved"' in page
        assert f"<strong>Disproved:</strong> {line.removeprefix('DISPROVED: ')}" in page

        file = tmp_path / "claims.toml"
        file.write_text(
            '[[claim]]\nname = "it"\nepsilon = 1.0\ndelta = 1e-5\n'
            'ledger = "run/ledger.json"\n'
        )
        status, out, _ = call(capsys, "claims", file, "--json")
        (claim,) = json.loads(out)["claims"]
        assert (status, claim["verdict"]) == (REFUTED, "disproved")
        assert claim["certified_as_printed"] == pytest.approx(
            run["certified"], rel=0.01
        )

    def test_a_result_of_an_older_version_still_reads(self, capsys, tmp_path):
        path = tmp_path / "run"
        assert call(capsys, "train", "dp-sgd", *FALSE, "--out", path)[0] == REFUTED
        result = json.loads((path / "result.json").read_text())
        del result["verdict"]["proved"]
        result["status"] = "unproven"
        (path / "result.json").write_text(json.dumps(result))
        (path / "manifest.json").unlink()
        config = json.loads((path / "config.json").read_text()) | {"version": "0.1.0"}
        (path / "config.json").write_text(json.dumps(config))
        status, out, _ = call(capsys, "show", path, "--json")
        (run,) = json.loads(out)["runs"]
        assert (status, run["verdict"]) == (FINE, "unproven")
        assert run["certified_lower"] is None
        assert call(capsys, "show", path, "--require", "consistent")[0] == REFUTED

    def test_an_audit_that_shows_nothing_of_a_false_claim(self, capsys, tmp_path):
        status, out, _ = call(
            capsys,
            *("audit", "dp-dsgd", "--noise-multiplier", ".4", "--runs", "10"),
            *("--epsilon", 1, "--set", "rounds=5", "--out", tmp_path / "a", "--json"),
        )
        found = json.loads(out)
        assert (status, found["verdict"]) == (REFUTED, "disproved")
        assert found["epsilon_lower"] <= 1 < found["certified_lower"]


class TestRequire:
    def own(self, tmp_path, epsilon):
        ledger = msgspec.structs.replace(single(1.0), assumes=("nobody looks",))
        (tmp_path / "ledger.json").write_text(ledger.to_json())
        file = tmp_path / "claims.toml"
        file.write_text(
            f'[[claim]]\nname = "ours"\nepsilon = {epsilon}\ndelta = 1e-5\n'
            'ledger = "ledger.json"\n'
        )
        return file

    def test_an_unproven_claim_fails_where_consistent_is_required(
        self, capsys, tmp_path
    ):
        file = self.own(tmp_path, 5.0)
        assert call(capsys, "claims", file)[0] == FINE
        assert call(capsys, "claims", file, "--require", "consistent")[0] == REFUTED
        (tmp_path / "ledger.json").write_text(single(1.0).to_json())
        assert call(capsys, "claims", file, "--require", "consistent")[0] == FINE

    def test_train(self, capsys, tmp_path):
        limit = ["dp-sgd", "--noise-multiplier", "20", "--account", "gdp-clt", *FEW]
        limit += ["--epsilon", 1]
        first = ("train", *limit, "--out", tmp_path / "a")
        status, out, _ = call(capsys, *first, "--json")
        assert (status, json.loads(out)["verdict"]) == (FINE, "unproven")
        second = ("train", *limit, "--require", "consistent", "--out", tmp_path / "b")
        assert call(capsys, *second)[0] == REFUTED

    @pytest.mark.full
    @pytest.mark.parametrize(("noise", "met"), [(0.1, False), (1.0, True)])
    def test_scores_that_do_not_fit_the_account(
        self, capsys, tmp_path, monkeypatch, noise, met
    ):
        """A mean of ten whose noise is divided by ten, under too large a claim."""
        module = f"mean_of_ten_{met}"
        (tmp_path / f"{module}.py").write_text(
            "import numpy as np\n"
            "def released(member, seed):\n"
            "    rng = np.random.default_rng(seed)\n"
            f"    return member + {noise} * rng.normal(size=len(member))\n"
        )
        monkeypatch.chdir(tmp_path)
        what = ("audit-program", f"{module}:released", "--noise-multiplier", "1")
        what = (*what, "--epsilon", "12", "--delta", "1e-5", "--runs", "400")
        status, out, _ = call(capsys, *what, "--out", "a")
        word = "CONSISTENT" if met else "UNPROVEN"
        assert (status, f"{word}: a certified account meets" in out) == (FINE, True)
        require = ("--require", "consistent")
        expected = FINE if met else REFUTED
        status, out, _ = call(capsys, *what, *require, "--out", "b", "--json")
        found = json.loads(out)
        assert status == expected
        assert (found["verdict"], found["account_contradicted"]) == (
            word.lower(),
            not met,
        )
        assert call(capsys, "show", "b")[0] == FINE
        assert call(capsys, "show", "b", *require)[0] == expected
        assert call(capsys, "report", "b")[0] == FINE
        page = (tmp_path / "b" / "report.html").read_text()
        assert f'class="statement {word.lower()}"' in page
        assert (found["certified"] < found["epsilon_lower"]) == (not met)

    @pytest.mark.full
    @pytest.mark.parametrize("oracle", [None, NoiseDividedTwice])
    def test_an_algorithm_with_a_bug(self, capsys, tmp_path, monkeypatch, oracle):
        family = ALGORITHMS["dp-dsgd"]
        if oracle is not None:
            family = dataclasses.replace(family, oracle=oracle)
        monkeypatch.setitem(ALGORITHMS, "dp-dsgd", family)
        status, out, _ = call(
            capsys,
            *("audit", "dp-dsgd", "--epsilon", "50", "--noise-multiplier", "6"),
            *("--adversary", "noisy-gradients", "--runs", "150"),
            *("--set", "rounds=10", "--require", "consistent", "--out", tmp_path / "a"),
        )
        assert status == (FINE if oracle is None else REFUTED)
        assert ("contradicts that account" in out) == (oracle is not None)

    def test_without_a_claim_or_an_account_it_is_told_at_once(self, capsys, tmp_path):
        require = ("--require", "consistent", "--out", tmp_path / "a")
        status, _, err = call(capsys, "train", "sgd", *require)
        assert (status, "makes none" in err) == (BAD_USAGE, True)
        status, _, err = call(capsys, "audit", "math:sqrt", *require)
        assert (status, "privaudit audit-program" in err) == (BAD_USAGE, True)
        status, _, err = call(capsys, "audit-program", "mine:train", *require)
        assert (status, "--require" in err) == (BAD_USAGE, True)
        assert not (tmp_path / "a").exists()


class TestNothingIsClaimedThatNobodySaid:
    """A noise multiplier is no claim."""

    NOISE = ("--noise-multiplier", "1", "--seed", "0", "--set", "rounds=20")

    def test_of_a_training(self, tmp_path, capsys):
        run = str(tmp_path / "run")
        assert main(["train", "dp-sgd", *self.NOISE, "--out", run]) == 0
        assert main(["verify", run]) == 0
        assert main(["report", run]) == 0
        said = capsys.readouterr().out
        assert "certified: epsilon is at most" in said
        assert "claimed" not in said
        assert "DISPROVED" not in said
        result = json.loads((tmp_path / "run" / "result.json").read_text())
        assert result.get("verdict") is None
        assert "that there is no verdict" in (tmp_path / "run/report.html").read_text()

    def test_unless_they_say_it(self, tmp_path):
        given = ("train", "dp-sgd", *self.NOISE, "--epsilon", "0.01")
        assert main([*given, "--out", str(tmp_path / "run")]) == 1

    def test_no_claim_is_not_consistent(self, capsys):
        assert main(["train", "dp-sgd", *self.NOISE, "--require", "consistent"]) == 2
        assert "say what with --epsilon" in capsys.readouterr().err

    @pytest.mark.full
    def test_an_audit_tests_the_account(self, tmp_path, capsys):
        given = ("audit", "dp-sgd", *self.NOISE, "--runs", "40")
        assert main([*given, "--out", str(tmp_path / "run")]) == 0
        said = capsys.readouterr().out
        assert "(the account of its noise)" in said
        assert "CONSISTENT" in said
