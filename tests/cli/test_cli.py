"""The command line as a user meets it: output, exit status, one line an error."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import privaudit as pa
from privaudit.cli import BAD_USAGE, COULD_NOT, FINE, REFUTED, main
from privaudit.report.command import again
from privaudit.report.load import load
from privaudit.results import round_up


def call(capsys, *arguments):
    """Exit status, standard output and standard error of ``privaudit arguments``."""
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


COMMAND = "echo {member}{seed}"
QUICK = ("--set", "rounds=2", "--set", "hidden=4")
BUDGET = ("--epsilon", 1, "--delta", 1e-2)
POISSON = ("--sampling-rate", 0.01, "--steps", 1000)


class TestAccounts:
    def test_noise(self, capsys):
        status, out, err = call(
            capsys, "noise", "--epsilon", 1, "--delta", 1e-5, *POISSON, "--json"
        )
        assert (status, err) == (FINE, "")
        result = json.loads(out)
        assert result["noise_multiplier"] == pytest.approx(1.4147, abs=2e-3)
        bound = result["epsilon"]
        assert 0.99 < bound["upper"] <= 1
        assert bound["delta"] == 1e-5
        assert bound["relation"] == "add-or-remove-one"
        assert bound["sampling"] == "poisson"
        assert bound["standing"] == "certified"

    def test_epsilon_of_that_noise(self, capsys):
        status, out, _ = call(
            capsys,
            *("epsilon", "--noise-multiplier", 1, "--delta", 1e-5),
            *("--sampling-rate", 0.01, "--steps", 10_000, "--account", "pld", "--json"),
        )
        assert status == FINE
        assert json.loads(out)["upper"] == pytest.approx(6.188, abs=1e-3)

    @pytest.mark.parametrize(
        "command",
        [("epsilon", "--noise-multiplier", 1, *BUDGET[2:]), ("noise", *BUDGET)],
    )
    def test_the_lower_side_may_be_left_out(self, capsys, command):
        for more, sides in (((), {"lower", "upper"}), (("--upper-only",), {"upper"})):
            _, out, _ = call(capsys, *command, *more, "--json")
            found = json.loads(out)
            assert {"lower", "upper"} & found.get("epsilon", found).keys() == sides

    def test_people_get_sentences(self, capsys):
        status, out, _ = call(
            capsys, "epsilon", "--noise-multiplier", 1, "--delta", 1e-5
        )
        assert status == FINE
        assert "certified: epsilon is at most 4.37" in out
        assert "add-or-remove-one" in out


class TestRuns:
    def test_train_show_report(self, capsys, tmp_path):
        path = tmp_path / "run"
        status, out, _ = call(
            capsys, "train", "dp-dsgd", *QUICK, "--out", path, "--json"
        )
        assert status == FINE
        result = json.loads(out)
        assert result["certified"] <= result["claimed"] == 1
        assert result["verdict"] == "consistent"
        assert 0 <= result["accuracy"] <= 1
        assert sorted(os.listdir(path)) == [
            ".lock",
            "certificate.json",
            "config.json",
            "curves.json",
            "ledger.json",
            "manifest.json",
            "model.safetensors",
            "result.json",
            "rounds.csv",
        ]
        assert result["protected"] is True
        again = call(capsys, "train", "dp-dsgd", *QUICK, "--out", path, "--json")
        assert json.loads(again[1]) == result
        status, out, _ = call(capsys, "show", path)
        assert status == FINE
        assert "certified" in out
        status, out, _ = call(capsys, "report", path)
        assert status == FINE
        assert (path / "report.html").stat().st_size > 10_000

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("what", [("dp-dsgd",), ("mine.toml",)])
    def test_a_study_is_said_not_to_be_protected(
        self, capsys, tmp_path, monkeypatch, what
    ):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine.toml").write_text('algorithm = "dp-dsgd"\nepsilon = 2\n')
        train = ("train", *what, *QUICK, "--seed", 2**61 + 12345, "--out", "run")
        status, out, _ = call(capsys, *train)
        assert status == FINE
        (line,) = [one for one in out.splitlines() if one.startswith("NOT PROTECTED. ")]
        assert "Study: anyone who knows the seed knows the noise" in line
        assert "this model is not protected" in line
        why = line.removeprefix("NOT PROTECTED. ")
        kept = json.loads((tmp_path / "run" / "result.json").read_text())
        for found in (
            kept,
            json.loads(call(capsys, *train, "--json")[1]),
            json.loads(call(capsys, "show", "run", "--json")[1])["runs"][0],
        ):
            assert found["protected"] is False
            assert found["noise"] == why
        assert line in call(capsys, "show", "run")[1].splitlines()

    def test_help_promises_nothing_for_a_seed(self, capsys):
        for command in ("train", "audit"):
            words = " ".join(
                call(capsys, command, "--help")[1].replace("│", "").split()
            )
            assert "A model trained with a seed is not protected." in words

    def test_training_without_noise_certifies_nothing(self, capsys, tmp_path):
        status, out, _ = call(
            capsys, "train", "dsgd", *QUICK, "--out", tmp_path, "--json"
        )
        assert status == FINE
        result = json.loads(out)
        assert result["certified"] == "inf"
        assert result["claimed"] is None
        assert result["protected"] is False
        assert "no noise" in result["noise"]

    def test_train_measures_on_all_where_that_is_asked(self, capsys, tmp_path):
        quick = ("train", "dp-dsgd", *QUICK, "--set", "train=400", "--seed", 0)
        _, out, _ = call(capsys, *quick, "--out", tmp_path / "tenth")
        assert "on 500 of 1,397 test records" in out
        given = (*quick, "--evaluate", "all", "--out")
        _, out, _ = call(capsys, *given, tmp_path / "all", "--json")
        assert json.loads(out)["test_records"] == json.loads(out)["test_size"] == 1397
        assert "--evaluate all" in again(load(tmp_path / "all"))
        status, _, err = call(capsys, *given, tmp_path / "tenth")
        assert status == COULD_NOT
        assert "a run with evaluate = tenth, not all" in err

    @pytest.mark.full
    def test_audit(self, capsys, tmp_path):
        status, out, _ = call(
            capsys,
            *("audit", "dp-dsgd", *BUDGET, "--runs", 100, *QUICK),
            *("--out", tmp_path / "a", "--json"),
        )
        assert status == FINE
        result = json.loads(out)
        assert result["claimed"] == 1.0
        assert result["certified"] <= 1
        assert result["epsilon_lower"] <= 1
        assert result["confidence"] == 0.95
        assert result["delta"] == 0.01
        assert sum(result["runs"].values()) == 100
        assert result["verdict"] == "consistent"
        assert {"accuracy", "seconds"} <= set(result)

    @pytest.mark.full
    def test_a_refuted_claim_is_exit_status_one(self, capsys, tmp_path):
        status, out, _ = call(
            capsys,
            *("audit", "dsgd", *BUDGET, "--runs", 200, "--set", "rounds=5"),
            *("--adversary", "noisy-gradients", "--out", tmp_path / "a", "--json"),
        )
        assert status == REFUTED
        assert json.loads(out)["verdict"] == "refuted"
        status, out, _ = call(capsys, "show", tmp_path / "a")
        assert status == REFUTED
        assert "REFUTED" in out

    @pytest.mark.parametrize(
        "arguments", [("train", "--help"), ("recipes",), ("convert", "--mu", "1")]
    )
    def test_a_reader_that_went_is_no_refuted_claim(self, arguments):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            command = [sys.executable, "-m", "privaudit", *arguments]
            ended = subprocess.run(command, stdout=writer, stderr=writer, check=False)
        finally:
            os.close(writer)
        assert ended.returncode in (BAD_USAGE, COULD_NOT)

    def test_by_a_real_clock_no_seed_makes_a_run_again(self, capsys):
        status, _, err = call(
            capsys,
            *("train", "adp2sgd", "--set", "clock=real", "--noise-multiplier", 1),
            *("--seed", 1),
        )
        assert status == BAD_USAGE
        assert "--seed is not for clock=real" in err

    def test_another_seed_needs_another_folder(self, capsys, tmp_path):
        first = ("train", "sgd", *QUICK, "--out", tmp_path)
        assert call(capsys, *first)[0] == FINE
        status, out, err = call(capsys, *first, "--seed", 1)
        assert status == COULD_NOT
        assert out == ""
        assert "seed = None, not 1" in err
        assert "is shown again" not in err

    def test_of_no_noise_no_epsilon_is_claimed(self, capsys):
        status, _, err = call(capsys, "train", "sgd", *QUICK, "--epsilon", 4)
        assert status == BAD_USAGE
        assert "sgd adds no noise, so that no epsilon holds" in err

    @pytest.mark.parametrize("many", ["", "two", "2"])
    def test_it_ends_with_its_status_whatever_is_said_of_ranks(self, many):
        """At once, without loading torch, which a key would interrupt."""
        command = [sys.executable, "-X", "importtime", "-m", "privaudit", "convert"]
        ended = subprocess.run(
            [*command, "--epsilon", "1", "--delta", "1e-5"],
            env={**os.environ, "WORLD_SIZE": many},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == FINE
        assert "mu" in ended.stdout
        assert "Traceback" not in ended.stderr
        assert "trainers.network" not in ended.stderr

    def test_a_word_is_no_number_of_ranks(self, capsys, tmp_path, monkeypatch):
        monkeypatch.setenv("WORLD_SIZE", "two")
        assert call(capsys, "train", "sgd", *QUICK, "--out", tmp_path)[0] == FINE

    def test_a_file_that_is_meant(self, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "plan.toml").touch()
        for meant in ("pla.toml", "plan.tml"):
            status, _, err = call(capsys, "train", meant)
            assert (status, err.count("\n")) == (BAD_USAGE, 1)
            assert "did you mean plan.toml?" in err

    def test_without_out_another_run_has_another_folder(
        self, capsys, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        first = ("train", "sgd", *QUICK, "--json")

        def folder(*arguments):
            status, out, err = call(capsys, *arguments)
            assert status == FINE
            path = json.loads(out)["out"]
            assert (path in err) == (path != "runs/train-sgd")
            return path

        assert folder(*first) == "runs/train-sgd"
        assert folder(*first, "--seed", 1) == "runs/train-sgd-2"
        assert folder(*first) == "runs/train-sgd-3"  # the first is finished
        os.remove("runs/train-sgd-2/result.json")  # as if it had been killed
        assert folder(*first, "--seed", 1) == "runs/train-sgd-2"
        given = (*first, "--seed", 2, "--out", "runs/train-sgd")
        assert call(capsys, *given)[0] == COULD_NOT

    @pytest.mark.parametrize(
        ("what", "ends"),  # without noise the account alone disproves any claim
        [
            (("audit", "dsgd", *QUICK), REFUTED),
            (("audit-program", "--command", COMMAND), FINE),
        ],
    )
    def test_audits_too(self, capsys, tmp_path, monkeypatch, what, ends):
        monkeypatch.chdir(tmp_path)
        for seed in (0, 1):
            arguments = (*what, *BUDGET, "--runs", 4, "--seed", seed)
            status, out, _ = call(capsys, *arguments)
            assert status == ends
        first, second = sorted(os.listdir("runs"))
        assert second == f"{first}-2"
        assert out.rstrip().endswith(f"kept in runs/{second}")


class TestWhereItIsComputed:
    """Device, compiled and precision are settings of every run, and are kept."""

    def config(self, path):
        return json.loads((path / "config.json").read_text())

    def test_a_recipe_says_it_and_the_command_line_goes_first(self, capsys, tmp_path):
        recipe = tmp_path / "mine.toml"
        recipe.write_text('algorithm = "dsgd"\nprecision = "bf16"\nrounds = 2\n')
        run = ("train", recipe, "--set", "hidden=4", "--out")
        assert call(capsys, *run, tmp_path / "a")[0] == FINE
        assert self.config(tmp_path / "a")["precision"] == "bf16"
        run = (*run, tmp_path / "b", "--precision", "float32", "--compiled")
        status, out, _ = call(capsys, *run)
        assert status == FINE
        assert "compiled changes nothing on a CPU" in out
        assert self.config(tmp_path / "b")["precision"] == "float32"

    def test_an_audit_keeps_it_and_another_does_not_go_on(self, capsys, tmp_path):
        audit = ("audit", "dsgd", *QUICK, "--runs", 4, "--out", tmp_path / "a")
        assert call(capsys, *audit, "--precision", "bf16")[0] == REFUTED
        assert self.config(tmp_path / "a")["precision"] == "bf16"
        status, _, err = call(capsys, *audit)
        assert status == COULD_NOT
        assert "precision = bf16, not float32" in err


class TestJson:
    @pytest.mark.sampled(6)  # test_shapes.py has one of each command
    @pytest.mark.parametrize(
        "arguments",
        [
            ("noise", *BUDGET),
            ("epsilon", "--noise-multiplier", 3, "--delta", 0.1),
            ("convert", "--mu", 1, "--delta", 0.1),
            pytest.param(("claims", "004", "--quick"), marks=pytest.mark.full),
            ("cite", "004"),
            ("recipes",),
        ],
    )
    def test_it_has_the_number_of_its_schema(self, capsys, arguments):
        _, out, _ = call(capsys, *arguments, "--json")
        assert json.loads(out)["schema"] == 1


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("noise", "--epsilon", 0, "--delta", 1e-5), "epsilon must be > 0"),
            (("noise", "--epsilon", -1, "--delta", 1e-5), "epsilon must be > 0"),
            (("noise", "--epsilon", "nan", "--delta", 1e-5), "epsilon must be > 0"),
            (("noise", "--epsilon", 1, "--delta", 0), "ask for a delta above 0"),
            (("noise", "--epsilon", 1, "--delta", -1e-9), "delta must be in (0, 1)"),
            (("noise", "--epsilon", 1, "--delta", 1), "delta must be in (0, 1)"),
            (("noise", "--epsilon", "x", "--delta", 1), "float"),
            (("noise", "--epsilon", 1), "--delta"),
            (("nose",), "noise"),
            (("noise", *BUDGET, "--sampling-rate", 1.5), "(0, 1]"),
            (("noise", *BUDGET, "--sampling-rate", 0), "(0, 1]"),
            (("noise", *BUDGET, "--steps", -3), "steps must be >= 0"),
            (("noise", *BUDGET, "--account", "magic"), "choose one of"),
            (("noise", *BUDGET, "--relation", "swap"), "replace-one"),
            (("epsilon", "--noise-multiplier", 0, "--delta", 0.1), "> 0"),
            (("train", "dp-adam"), "choose one of"),
            (("train", "dp-dgst"), "'dp-dgst'; did you mean dp-dsgt? choose one of"),
            (("train", "dp-sgd", "--plan", "p.toml"), "comes first: privaudit train"),
            (("train", "dp-sgd", "--set", "batchsize=3"), "did you mean batch_size"),
            (("train", "dp-sgd", "--set", "rounds=many"), "rounds"),
            (("train", "dp-sgd", "--set", "rounds=0"), "rounds must be >= 1"),
            (("train", "dp-sgd", *QUICK, "--set", "rounds=3"), "given twice"),
            (("train", "dp-sgd", *QUICK, "--noise-multiplier", 1e40), "<= 1e+30"),
            (("train", "dp-sgd", "--set", "weights=some"), "metropolis, max-degree"),
            (("train", "deep-q", "--set", "policy=some"), "coin, deep-q, always-"),
            (("claims", "--workers", 0, "--quick"), "--workers"),
            (("train", "dp-sgd", "--set", "batch_size=5000"), "larger than"),
            (("train", "dsgd", "--noise-multiplier", 1), "adds no noise"),
            (("train", "dp-sgd", "--set", "digits=7"), "two or more"),
            (("audit", "dp-dsgd", "--set", "batch_size=101"), "larger than"),
            (("audit", "dp-dsgd", "--runs", 1, *QUICK), "runs must be"),
            (("audit", "dp-dsgd", "--confidence", 2, *QUICK), "confidence"),
            (("audit", "dp-dsgd", "--adversary", "fate", *QUICK), "choose one of"),
            (("audit", "dp-dsgd", "--workers", 0, *QUICK), "--workers"),
            (("audit", "dp-dsgd", "--time-limit", 3, *QUICK), "program of yours"),
            (("audit",), "needs an algorithm"),
            (("audit", "math:sqrt", "--adversary", "all-losses"), "audit-program"),
            (("audit", "--command", COMMAND, "--retries", 3), "audit-program"),
            (("audit-program", "math:sqrt", "--adversary", "x"), "--adversary"),
            (("audit-program", "math:sqrt", "--adversary", "neighbour"), "--adversary"),
            (("audit-program", "math:sqrt", "--command", COMMAND), "or --command"),
            (("audit-program",), "takes a module:function, or --command"),
            (("audit-program", "dp-dsgd"), "module:function"),
            (("audit-program", "../math:sqrt"), "module:function"),
            (("audit-program", "--command", "math:sqrt"), "leave --command out"),
            (("audit-program", "--command", "echo '{member} {seed}"), "cannot be read"),
            (("audit-program", "math:sqrt", "--time-limit", 0), "time_limit must be"),
            (("train", "dp-sgd", "--precision", "fp8"), "bf16"),
            (("train", "dp-sgd", "--device", "gpu"), "cpu, cuda or cuda:NUMBER"),
            (("verify", __file__), "python -m privaudit.kernel"),
        ],
    )
    def test_bad_usage_is_one_line(self, capsys, arguments, message):
        status, out, err = call(capsys, *arguments)
        err = re.sub("calibrating the noise to epsilon 1 at delta .* ...\n", "", err)
        assert (status, out) == (BAD_USAGE, "")
        assert err.count("\n") == 1
        assert message in err
        assert "Traceback" not in err

    def test_a_fault_is_no_refutation(self, capsys, monkeypatch):
        # Python ends with 1 after a traceback, which would say: a claim is refuted.
        from privaudit.accounting import gdp

        monkeypatch.setattr(gdp, "epsilon", lambda *_: 1 / 0)
        status, out, err = call(capsys, "convert", "--mu", 1, "--delta", 0.1, "--json")
        assert (status, out) == (COULD_NOT, "")
        assert err.count("\n") == 1
        assert "ZeroDivisionError" in err

    def test_stopped_by_hand(self, capsys, monkeypatch):
        from privaudit.accounting import gdp

        def stopped(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(gdp, "epsilon", stopped)
        status, out, err = call(capsys, "convert", "--mu", 1, "--delta", 0.1)
        assert (status, out) == (COULD_NOT, "")
        assert "what is in a folder goes on by the same command" in err

    def test_folders_that_are_not_runs(self, capsys, tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
        for command in (
            ("train", "sgd", *QUICK, "--out", tmp_path),
            ("show", tmp_path),
            ("report", tmp_path),
            ("show", tmp_path / "nowhere"),
        ):
            status, out, err = call(capsys, *command)
            assert (status, out) == (COULD_NOT, "")
            assert err.count("\n") == 1
            assert "Traceback" not in err
        assert os.listdir(tmp_path) == ["notes.txt"]


def test_help_imports_nothing_heavy():
    program = (
        "import sys; from privaudit.cli import main; main(['--help']);"
        "heavy = {'numpy', 'scipy', 'torch', 'dp_accounting'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL
    )


def test_help_reads_no_source(capsys, monkeypatch):
    """It takes its time; and what is looked for otherwise is as it was afterwards."""
    from docstring_parser import parser

    look = parser.add_attribute_docstrings
    monkeypatch.setattr("inspect.getsource", lambda thing: pytest.fail(str(thing)))
    assert "Probability that a record" in call(capsys, "noise", "--help")[1]
    assert parser.add_attribute_docstrings is look


class TestMoreAccounts:
    """Schedules, comparisons, conversions."""

    def test_convert_all_three_ways(self, capsys):
        for arguments, name, value in (
            (("--mu", 1, "--delta", 1e-5), "epsilon", 4.377178),
            (("--mu", 1, "--epsilon", 1), "delta", 0.126937),
            (("--epsilon", 1, "--delta", 1e-5), "mu", 0.268051),
        ):
            status, out, _ = call(capsys, "convert", *arguments, "--json")
            assert status == FINE
            assert json.loads(out)[name] == pytest.approx(value, abs=1e-6)
        assert call(capsys, "convert", "--mu", 1)[0] == BAD_USAGE

    def test_growing_budget(self, capsys):
        status, out, _ = call(
            capsys,
            *("noise", "--epsilon", 1, "--delta", 1e-4, "--growing-budget", 2),
            *("--steps", 50, "--sampling-rate", 0.05, "--json"),
        )
        assert status == FINE
        found = json.loads(out)
        first, last = found["noise_multiplier_first"], found["noise_multiplier_last"]
        assert found["mu0"] == pytest.approx(1 / first)
        assert first / last == pytest.approx(2 ** (49 / 50))
        assert 0.998 < found["epsilon"]["lower"] <= found["epsilon"]["upper"] <= 1

    def test_schedule_files_and_ledgers_say_the_same(self, capsys, tmp_path):
        rows = [(2.0, 0.1), (2.0, 0.1), (1.5, 0.2)]
        text = "noise_multiplier,sampling_rate\n" + "".join(
            f"{z},{q}\n" for z, q in rows
        )
        (tmp_path / "plan.csv").write_text(text)
        status, out, _ = call(
            capsys,
            *("epsilon", "--schedule", tmp_path / "plan.csv"),
            *("--delta", 1e-5, "--json"),
        )
        assert status == FINE
        from privaudit.accounting.plans import Plan

        ledger = Plan.from_file(tmp_path / "plan.csv").ledger()
        (tmp_path / "ledger.json").write_text(ledger.to_json())
        again = call(
            capsys,
            *("epsilon", "--ledger", tmp_path / "ledger.json"),
            *("--delta", 1e-5, "--json"),
        )
        assert json.loads(again[1]) == json.loads(out)
        assert [entry.count for entry in ledger.nodes[0]] == [2, 1]

    @pytest.mark.parametrize("failure", [9e-6, 1e-5])
    def test_a_chance_of_failure_is_paid_in_all_figures(
        self, capsys, tmp_path, failure
    ):
        """Both directions pay what the guarantee pays; from below nothing is proved."""
        import msgspec

        from privaudit.claims.accounts import poisson

        path = tmp_path / "ledger.json"
        ledger = msgspec.structs.replace(poisson(1.0, 200, 0.01), failure=failure)
        path.write_text(ledger.to_json())
        _, out, _ = call(capsys, "epsilon", "--ledger", path, "--delta", 1e-5, "--json")
        found = json.loads(out, parse_constant=float)
        worst = max(map(float, found["directions"].values()))
        assert found["lower"] == 0
        assert worst == pytest.approx(float(found["upper"]), rel=2e-3)

    def test_a_plan_with_a_column_twice_is_refused(self, capsys, tmp_path):
        # The last would be taken: too much noise, and too small an epsilon.
        path = tmp_path / "plan.csv"
        path.write_text("noise_multiplier,sampling_rate,noise_multiplier\n1,.1,100\n")
        status, out, err = call(
            capsys, "epsilon", "--schedule", path, "--delta", 1e-5, "--json"
        )
        assert (status, out) == (BAD_USAGE, "")
        assert "noise_multiplier more than once" in err

    def test_toml_plan(self, capsys, tmp_path):
        (tmp_path / "plan.toml").write_text(
            "steps = 20\nsampling_rate = 0.1\n"
            'noise_multiplier = {type = "shrinking", initial = 2.0, rho = 1.5}\n'
        )
        status, out, _ = call(
            capsys,
            *("noise", "--epsilon", 0.5, "--delta", 1e-5),
            *("--schedule", tmp_path / "plan.toml", "--json"),
        )
        assert status == FINE
        found = json.loads(out)
        assert found["epsilon"]["upper"] <= 0.5
        assert found["noise_multiplier_most"] == pytest.approx(2 * found["scale"])

    def test_a_row_stands_for_so_many_steps(self, capsys, tmp_path):
        path, short = tmp_path / "long.csv", tmp_path / "short.csv"
        path.write_text("noise_multiplier,sampling_rate\n" + "1.2,0.01\n" * 300)
        short.write_text("noise_multiplier,steps,sampling_rate\n1.2,300,0.01\n")
        run = ("epsilon", "--delta", 1e-5, "--json", "--schedule")
        _, one, _ = call(capsys, *run, path)
        _, other, _ = call(capsys, *run, short)
        assert one == other

    def test_a_column_that_nobody_knows_is_refused(self, capsys, tmp_path):
        """A row for 2 500 steps was taken for one, and .29 was certified for 4.66."""
        path = tmp_path / "plan.csv"
        path.write_text("noise_multiplier,sampling_rate,count\n1.4,0.004,2500\n")
        code, _, err = call(capsys, "epsilon", "--delta", 1e-6, "--schedule", path)
        assert code == 2
        assert "no use for the column 'count'" in err

    def test_noise_beside_what_else_is_released(self, capsys, tmp_path):
        event = tmp_path / "event.json"
        laplace = ("--noise-multiplier", 20, "--mechanism", "laplace")
        call(capsys, "epsilon", "--delta", 1e-6, *laplace, "--event", event)
        run = ("noise", "--epsilon", 1, "--delta", 1e-6, "--json")
        _, alone, _ = call(capsys, *run)
        _, both, _ = call(capsys, *run, "--ledger", event)
        one, other = (json.loads(out)["noise_multiplier"] for out in (alone, both))
        assert other > 1.01 * one

    def test_a_schedule_is_the_same_in_python(self, capsys, tmp_path):
        plan = [(1.5, 0.01), (1.2, 0.02), (1.0, 0.01)]
        path = tmp_path / "plan.csv"
        rows = [f"{z},{q}" for z, q in plan]
        path.write_text("\n".join(["noise_multiplier,sampling_rate", *rows]))
        _, out, _ = call(capsys, "noise", *BUDGET, "--schedule", path, "--json")
        budget = dict(zip(("epsilon", "delta"), BUDGET[1::2], strict=True))
        scale = pa.noise_multiplier(**budget, schedule=plan)
        assert scale == json.loads(out)["scale"]
        assert scale == pa.noise_multiplier(**budget, schedule=str(path))
        scaled = [(scale * z, q) for z, q in plan]
        found = pa.epsilon(delta=budget["delta"], schedule=scaled)
        assert 0.999 * budget["epsilon"] < found.upper <= budget["epsilon"]

    def test_a_table_does_not_wait_for_many_different_steps(self, capsys, tmp_path):
        """dp-accounting composes them one by one: hours for a schedule."""
        path = tmp_path / "plan.csv"
        rows = [f"{2 + k / 100},0.01" for k in range(60)]
        path.write_text("\n".join(["noise_multiplier,sampling_rate", *rows]))
        _, out, _ = call(
            capsys,
            *("epsilon", "--delta", 1e-5, "--schedule", path, "--compare", "--json"),
        )
        accounts = {row["method"]: row for row in json.loads(out)["accounts"]}
        assert accounts["certified"]["applies"]
        assert "60 different releases" in accounts["pld"]["reason"]

    @pytest.mark.parametrize(
        ("row", "said"),
        [("0,0.1", "noise_multiplier must be"), ("1,1.5", "sampling_rate must be")],
    )
    def test_a_wrong_row_is_named_by_its_line(self, capsys, tmp_path, row, said):
        path = tmp_path / "plan.csv"
        path.write_text(f"noise_multiplier,sampling_rate\n\n1,0.1\n{row}\n")
        run = ("epsilon", "--delta", 1e-5, "--schedule", path)
        status, out, err = call(capsys, *run)
        assert (status, out) == (BAD_USAGE, "")
        assert f"plan.csv: line 4: {said}" in err

    def test_compare_says_what_applies_and_why_not(self, capsys):
        status, out, _ = call(
            capsys,
            *("epsilon", "--noise-multiplier", 1, "--delta", 1e-5),
            *("--sampling-rate", 0.01, "--steps", 100, "--compare", "--json"),
        )
        assert status == FINE
        accounts = {row["method"]: row for row in json.loads(out)["accounts"]}
        certified = accounts["certified"]["epsilon"]
        assert certified["lower"] <= certified["upper"]
        assert accounts["rdp"]["epsilon"]["upper"] >= certified["lower"]
        assert accounts["gdp-clt"]["epsilon"]["standing"] == "asymptotic"
        assert accounts["gdp-clt"]["epsilon"]["distance_from_limit"] > 0
        assert not accounts["gdp"]["applies"]
        assert "sampling" in accounts["gdp"]["reason"]

    def test_what_an_account_cannot_compute_leaves_the_others(self, capsys):
        run = ("epsilon", "--delta", 1e-5, "--noise-multiplier")
        for noise, why in ((1e-300, "at least 0.01"), (1e160, "overflows")):
            status, out, err = call(capsys, *run, noise, "--compare", "--json")
            assert (status, err) == (FINE, "")
            rows = {row["method"]: row for row in json.loads(out)["accounts"]}
            assert why in rows["pld"]["reason"]
            for name in ("certified", "rdp", "gdp"):
                assert rows[name]["applies"]
            status, out, err = call(capsys, *run, noise, "--account", "pld")
            assert (status, out, err.count("\n")) == (BAD_USAGE, "", 1)
            assert why in err

    def test_the_gdp_account_refuses_fixed_size_batches(self, capsys):
        status, out, err = call(
            capsys,
            *("epsilon", "--noise-multiplier", 1, "--delta", 1e-5, "--account", "gdp"),
            *("--sampling", "without-replacement", "--sampling-rate", 0.05),
        )
        assert (status, out, err.count("\n")) == (BAD_USAGE, "", 1)
        assert "without sampling only" in err

    @pytest.mark.parametrize("damage", ["compression", "encrypted"])
    @pytest.mark.parametrize("command", ["bound", "consensus"])
    def test_archives_that_python_cannot_open(self, capsys, tmp_path, damage, command):
        path = tmp_path / "scores.npz"
        np.savez(path, member=np.array([0, 1] * 20), score=np.arange(40.0))
        content = bytearray(path.read_bytes())
        for head, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            for found in re.finditer(re.escape(head), bytes(content)):
                if damage == "compression":
                    content[found.start() + flags + 2] = 99
                else:
                    content[found.start() + flags] |= 1
        path.write_bytes(content)
        arguments = {
            "bound": (path, "--delta", 1e-5, "--design", "fixed"),
            "consensus": ("--vectors", path),
        }[command]
        status, out, err = call(capsys, command, *arguments)
        assert (status, out, err.count("\n")) == (BAD_USAGE, "", 1)
        assert str(path) in err
        assert {"compression": "compression", "encrypted": "password"}[damage] in err

    def test_one_figure_is_rounded_alike_by_all_commands(self, capsys, tmp_path):
        run = ("--noise-multiplier", 1, "--delta", 1e-5)
        for more in ((), ("--sampling-rate", 0.01, "--steps", 300)):
            _, exact, _ = call(capsys, "epsilon", *run, *more, "--json")
            _, alone, _ = call(capsys, "epsilon", *run, *more)
            _, table, _ = call(capsys, "epsilon", *run, *more, "--compare")
            upper = json.loads(exact)["upper"]
            told = re.search(r"at most (\S+)", alone).group(1)
            assert told == round_up(upper)
            assert re.search(r"certified +(\S+)", table).group(1) == told
        _, out, _ = call(capsys, "convert", "--mu", 1, "--delta", 1e-5)
        _, alone, _ = call(capsys, "epsilon", *run, "--account", "gdp")
        assert out.split()[-1] == re.search(r"at most (\S+)", alone).group(1)

    def test_a_budget_is_printed_no_larger_than_found(self, capsys):
        run = ("--growing-budget", 2, "--steps", 9, "--sampling-rate", 0.1)
        _, out, _ = call(capsys, "noise", *BUDGET, *run)
        _, exact, _ = call(capsys, "noise", *BUDGET, *run, "--json")
        found = json.loads(exact)
        first, last = map(float, re.findall(r" ([\d.]+) at (?:first|last)", out))
        assert float(re.search(r"mu0 ([\d.]+)", out).group(1)) <= found["mu0"]
        assert first >= found["noise_multiplier_first"]
        assert last >= found["noise_multiplier_last"]
        assert found["epsilon"]["steps"] == 9

    def test_fixed_size_batches_are_replace_one(self, capsys):
        run = ("--noise-multiplier", 2, "--delta", 1e-5, "--sampling-rate", 0.05)
        fixed = ("--sampling", "without-replacement")
        status, out, _ = call(capsys, "epsilon", *run, *fixed, "--json")
        assert status == FINE
        found = json.loads(out)
        assert found["relation"] == "replace-one"
        assert found["sampling"] == "without-replacement"
        status, _, err = call(
            capsys, "epsilon", *run, *fixed, "--relation", "add-or-remove-one"
        )
        assert status == BAD_USAGE
        assert "replace-one" in err

    def test_plot(self, capsys, tmp_path):
        status, _, _ = call(
            capsys,
            *("epsilon", "--noise-multiplier", 1, "--delta", 1e-5),
            *("--plot", tmp_path / "profile.svg"),
        )
        assert status == FINE
        assert "<svg" in (tmp_path / "profile.svg").read_text()
        assert os.listdir(tmp_path) == ["profile.svg"]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("epsilon", "--delta", 0.1), "--noise-multiplier"),
            (("epsilon", "--delta", 0.1, "--ledger", "nowhere.json"), "cannot read"),
            (("epsilon", "--delta", 0.1, "--schedule", "nowhere.csv"), "cannot read"),
            (("epsilon", "--delta", 0.1, "--schedule", "plan.txt"), ".csv or a .toml"),
            (("noise", *BUDGET, "--growing-budget", 0.5, "--steps", 9), "rho"),
            (("noise", "--epsilon", 2, "--delta", 0.1, "--account",
              "classical-gaussian"), "epsilon < 1"),
            (("epsilon", "--delta", 0.1, "--noise-multiplier", 1, "--plot", "x.doc"),
             "must end in .svg"),
            (("epsilon", "--delta", 0.1, "--noise-multiplier", 1, "--plot", "no/x.svg"),
             "there is no folder no"),
            (("epsilon", "--delta", 0.1, "--noise-multiplier", 1, "--plot", "x.svg",
              "--compare"), "one account"),
        ],
    )  # fmt: skip
    def test_bad_usage_is_one_line(self, capsys, arguments, message):
        status, out, err = call(capsys, *arguments)
        assert (status, out) == (BAD_USAGE, "")
        assert err.count("\n") == 1
        assert message in err
