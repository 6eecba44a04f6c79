"""Commands that stay alive, and functions in several processes."""

import math
import sys
import time

import numpy as np
import pytest

import privaudit as pa
from privaudit.auditing.programs.server import Server, Servers, check_command
from privaudit.auditing.programs.targets import spread_seed
from privaudit.cli import main
from privaudit.files.user_code import ForeignError

SERVER = """
import sys, time
mode = sys.argv[1]
starts = open(sys.argv[2], "a"); starts.write("started\\n"); starts.close()
if mode == "dies": sys.exit("out of memory")
for line in sys.stdin:
    member, seed = map(int, line.split())
    if mode == "hangs": time.sleep(60)
    if mode == "words": print("hello", flush=True); continue
    if mode == "nan": print("nan", flush=True); continue
    if mode == "twice": print("1.0\\n2.0", flush=True); continue
    if mode == "dies-later" and seed == int(sys.argv[3]): sys.exit(7)
    print(member + seed / 1000, flush=True)
"""


@pytest.fixture
def command(tmp_path):
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    third = spread_seed(1, 2)
    starts = tmp_path / "starts"
    return lambda mode: f"{sys.executable} {file} {mode} {starts} {third}"


def tells(worlds, seed):
    return worlds + np.random.default_rng(seed).normal(size=len(worlds))


def fails(worlds, seed):
    raise RuntimeError("no data here")


class TestServer:
    def test_one_process_answers_all(self, command, tmp_path):
        with Servers(command("right"), 30) as served:
            scores = served(np.array([True, False, True]), 5)
        seeds = [spread_seed(5, run) for run in range(3)]
        assert scores.tolist() == [
            member + seed / 1000 for member, seed in zip((1, 0, 1), seeds, strict=True)
        ]
        assert (tmp_path / "starts").read_text() == "started\n"

    @pytest.mark.parametrize(
        ("mode", "why"),
        [
            ("dies", r"ended \(exit status 1\) before it answered '1 5': out of mem"),
            ("words", "its answer to '1 5' is no number: 'hello'"),
            ("nan", "its score of '1 5' is nan"),
        ],
    )
    def test_names_what_is_wrong(self, command, mode, why):
        server = Server(command(mode), 30)
        with pytest.raises(ForeignError, match=why):
            server.ask(True, 5)
        server.close()

    @pytest.mark.full
    def test_one_that_hangs_is_stopped(self, command):
        server, began = Server(command("hangs"), 0.5), time.monotonic()
        with pytest.raises(ForeignError, match=r"gave no score for '0 1' in 0.5 s"):
            server.ask(False, 1)
        server.close()
        assert time.monotonic() - began < 30

    def test_two_lines_for_one_question(self, command):
        server = Server(command("twice"), 30)
        server.ask(True, 1)
        time.sleep(0.2)
        with pytest.raises(ForeignError, match="without being asked"):
            server.ask(True, 2)
        server.close()

    def test_a_dead_one_is_started_again(self, command, tmp_path):
        with (
            pytest.raises(ForeignError, match="exit status 7"),
            Servers(command("dies-later"), 30, retries=1) as served,
        ):
            served(np.ones(4, bool), 1)
        assert (tmp_path / "starts").read_text().count("started") == 2

    @pytest.mark.parametrize("text", ["", "a 'b", "train --member {member}"])
    def test_refuses_what_is_no_command(self, text):
        with pytest.raises(ValueError, match="command"):
            check_command(text)

    def test_no_such_program(self):
        server = Server("nowhere-to-be-found")
        with pytest.raises(ForeignError, match="cannot run nowhere-to-be-found"):
            server.ask(True, 1)
        server.close()


class TestCommandLine:
    @pytest.mark.full
    def test_serve_with_an_account(self, command, tmp_path, capsys):
        out = tmp_path / "out"
        asked = ["--command", command("right"), "--serve", "--runs", "40"]
        account = ["--noise-multiplier", "2", "--sampling-rate", ".5", "--steps", "3"]
        status = main(
            ["audit-program", *asked, *account, "--epsilon", "9", "--out", str(out)]
        )
        said = capsys.readouterr().out
        assert status == 0
        assert "certified: epsilon is at most" in said
        assert "CONSISTENT" in said
        assert pa.verify(out).differences == ()
        assert main(["report", str(out)]) == 0
        assert "Audit of the program " in (out / "report.html").read_text()

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            (["--steps", "3"], "need a noise_multiplier"),
            (["--ledger", "x.json", "--noise-multiplier", "1"], "leave it out"),
            (["--noise-multiplier", "-1"], "noise_multiplier must be > 0"),
            (["--noise-multiplier", "1", "--sampling-rate", "2"], "in (0, 1]"),
            (["--serve"], "--serve is for a command"),
            (["--estimator", "family"], "family needs a ledger"),
        ],
    )
    def test_refuses_in_one_sentence(self, options, why, capsys):
        assert main(["audit-program", "operator:add", *options]) == 2
        said = capsys.readouterr().err
        assert why in said
        assert len(said.strip().splitlines()) == 1


class TestAccount:
    def ledger(self, noise=1.0):
        release = pa.Release.of_sum(
            norm_bound=1.0, noise_multiplier=noise, sampling=pa.PoissonSampling(1.0)
        )
        return pa.Ledger.of(release, 1)

    @pytest.mark.full
    def test_a_ledger_brings_family_and_gap(self, tmp_path):
        file = tmp_path / "ledger.json"
        file.write_text(self.ledger().to_json())
        settings = pa.ProgramSettings(
            epsilon=5.0, delta=1e-5, runs=600, ledger=file, estimator="family"
        )
        found = pa.audit_program(tells, settings, out=tmp_path / "run")
        assert found.upper.epsilon == pytest.approx(4.3772, abs=1e-3)
        assert found.status == "consistent"
        assert found.lower.method == "best"
        assert found.result.beside.method == "ranks-of-family"
        assert found.result.gap.attained == pytest.approx(4.3772, abs=1e-2)
        assert pa.verify(tmp_path / "run").differences == ()
        other = self.ledger(2.0).to_json()
        (tmp_path / "run" / "ledger.json").write_text(other)
        assert pa.verify(tmp_path / "run").differences

    def test_a_claim_below_the_account_is_disproved(self):
        found = pa.audit(tells, epsilon=1.0, ledger=self.ledger(), runs=100)
        assert found.status in ("disproved", "refuted")
        assert found.upper.epsilon > 4
        assert found.beside is not None

    def test_without_noise_there_is_no_family(self):
        release = pa.Release.of_sum(
            norm_bound=1.0, noise_multiplier=0.0, sampling=pa.PoissonSampling(1.0)
        )
        found = pa.audit(tells, epsilon=1.0, ledger=pa.Ledger.of(release), runs=100)
        assert found.upper.epsilon == math.inf
        assert found.beside is None


class TestProcesses:
    def test_scores_do_not_depend_on_how_many(self):
        one, two = (
            pa.audit(tells, epsilon=1, runs=60, batch=20, workers=workers)
            for workers in (1, 2)
        )
        assert one.summary() == two.summary()

    def test_errors_come_back_in_a_sentence(self):
        with pytest.raises(ValueError, match="RuntimeError: no data here"):
            pa.audit(fails, epsilon=1, runs=20, workers=2)

    def test_what_cannot_be_sent(self):
        with pytest.raises(ValueError, match="cannot be sent to other processes"):
            pa.audit(lambda worlds, seed: worlds, epsilon=1, runs=20, workers=2)
