"""Whatever is edited in a folder is noticed by verify, show and report."""

import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privaudit.accounting import account
from privaudit.accounting.certificate import keep_witness
from privaudit.auditing.experiments.experiment import run as run_audit
from privaudit.cli import main
from privaudit.files import json as _json
from privaudit.files.folder import FolderError, RunFolder
from privaudit.files.manifest import amend, audits_in, seal
from privaudit.ledger import Ledger
from privaudit.report.difference import agree
from privaudit.report.load import load
from privaudit.report.verify import (
    Difference,
    EvidenceError,
    _training_again,
    sign,
    verify,
)
from tests.auditing.audits import audit
from tests.cli.test_shapes import validator
from tests.files.test_signature import written
from tests.report import runs
from tests.trainers.runs import test_run as resumable
from tests.trainers.runs.test_run import done as trained
from tests.trainers.runs.test_run import plan
from trainers.algorithms.dsgd import Dsgd


def done(path, what):
    with RunFolder.opened(path) as folder:
        return run_audit(what, folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A finished training, and a finished audit."""
    path = tmp_path_factory.mktemp("finished")
    trained(path / "training", plan("dp-dsgd", rounds=5))
    done(path / "audit", audit(runs=60, rounds=2))
    return path


@pytest.fixture
def training(folders, tmp_path):
    return shutil.copytree(folders / "training", tmp_path / "training")


@pytest.fixture
def audited(folders, tmp_path):
    return shutil.copytree(folders / "audit", tmp_path / "audit")


def edited(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def epsilon_is(value):
    def change(content):
        content["nodes"] = [{**node, "epsilon": value} for node in content["nodes"]]
        content["verdict"]["upper"]["epsilon"] = value
        met = value <= content["verdict"]["claim"]["epsilon"]
        content["status"] = "consistent" if met else "unproven"

    return change


def more_noise(content):
    for node in content["nodes"]:
        for entry in node:
            entry["release"]["noise"] *= 10


class Own(Dsgd):
    """An algorithm of the user's own."""


def fewer(content):
    for node in content["nodes"]:
        if node[-1]["count"] == 1:
            del node[-1]
        for entry in node:
            entry["count"] = max(1, entry["count"] // 2)


def forged(path):
    """Make figures, certificate and digests those of what lies in the folder."""
    (path / "certificate.json").unlink(missing_ok=True)
    run = load(path)
    again = _training_again(run)
    if not isinstance(again, Difference):
        RunFolder(path).write("result.json", _json.encode(again))
        keep_witness(RunFolder(path), run.ledger, run.upper.relation, run.upper.delta)
    seal(RunFolder(path), audits_in(RunFolder(path)))
    return verify(path, settings=True)


def flipped(file, place):
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def score_flipped(path):
    with np.load(path / "scores.npz") as file:
        arrays = dict(file)
    member, score = arrays["member"], arrays["score"]
    worst = np.argmin(np.where(member, score, np.inf))
    score[worst] = -score[worst] + 1
    np.savez(path / "scores.npz", **arrays)


def noticed(capsys, path, *names):
    """All three commands say so in one line that names the file; its values."""
    lines = []
    for command in ("verify", "show", "report"):
        assert main([command, str(path)]) == 1
        out, err = capsys.readouterr()
        assert "certified" not in out
        assert err == ""
        assert not (path / "report.html").exists()
        (line,) = out.splitlines()
        assert any(line.startswith(f"{path / name}: ") for name in names), line
        lines.append(line)
    assert lines[0] == lines[1] == lines[2]
    return lines[0]


class TestSound:
    """An edit is found, and nothing is printed as certified."""

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("epsilon", [0.011, 7.5])
    @pytest.mark.parametrize("has_manifest", [True, False])
    def test_epsilon_edited(self, training, capsys, epsilon, has_manifest):
        ledger = Ledger.from_json((training / "ledger.json").read_text())
        right = account(ledger, 1e-3).epsilon
        edited(training / "result.json", epsilon_is(epsilon))
        if not has_manifest:
            (training / "manifest.json").unlink()
        line = noticed(capsys, training, "result.json")
        assert f"is {epsilon:g}, ledger.json gives {right:.6g}" in line

    def test_noise_times_ten(self, training, capsys):
        edited(training / "ledger.json", more_noise)
        for command in ("show", "report", "verify"):
            assert main([command, str(training)]) == 1
            (line,) = capsys.readouterr().out.splitlines()
            assert line.startswith(f"{training / 'ledger.json'}: ")
        assert "release.noise of node 0 is 20, config.json says 2" in line

    def test_the_manifest_has_the_settings(self, training, capsys):
        config = json.loads((training / "config.json").read_text())
        manifest = json.loads((training / "manifest.json").read_text())
        assert manifest["settings"] == config
        edited(
            training / "manifest.json",
            lambda content: content["settings"].update(noise_multiplier=99.0),
        )
        line = noticed(capsys, training, "manifest.json")
        assert "the setting noise_multiplier is 99.0, config has 2.0" in line
        edited(
            training / "manifest.json",
            lambda content: content.update(
                settings=config | {"training": config["training"] | {"rounds": 10**15}}
            ),
        )
        line = noticed(capsys, training, "manifest.json")
        rounds = config["training"]["rounds"]
        assert f"the setting training.rounds is {10**15}, config has {rounds}" in line
        assert "algorithm" not in line  # that one alone, not all of the training

    def test_noise_times_ten_without_a_manifest(self, training, capsys):
        (training / "manifest.json").unlink()
        edited(training / "ledger.json", more_noise)
        for command in ("show", "report"):
            assert main([command, str(training)]) == 1
            assert "ledger.json gives" in capsys.readouterr().out

    def test_a_forged_folder_is_held_against_its_settings(self, training, capsys):
        """Noise, figures and digests that agree: the settings do not."""
        edited(training / "ledger.json", more_noise)
        ledger = Ledger.from_json((training / "ledger.json").read_text())
        edited(training / "result.json", epsilon_is(account(ledger, 1e-3).epsilon))
        seal(RunFolder(training))
        assert main(["verify", str(training)]) == 1
        out = capsys.readouterr().out
        assert "release.noise of node 0 is 20, config.json says 2" in out

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda c: c["nodes"].pop(), "number of nodes is 2, config.json says 3"),
            (
                lambda c: c["nodes"][1][0].update(count=4),
                "number of releases of node 1 is 4, config.json says 5",
            ),
            (  # as of a run that was resumed, which this one was not
                lambda c: c["nodes"][1].append(c["nodes"][1][0]),
                "number of releases of node 1 is 10, config.json says 5",
            ),
        ],
    )
    def test_another_number_than_was_released(self, training, change, says):
        edited(training / "ledger.json", change)
        seal(RunFolder(training))
        # A result of as few nodes: what is left to see is what the settings say.
        ledger = Ledger.from_json((training / "ledger.json").read_text())
        edited(
            training / "result.json",
            lambda c: c.update(nodes=c["nodes"][: len(ledger.nodes)]),
        )
        seal(RunFolder(training))
        assert says in str(verify(training, settings=True).differences[-1])

    @pytest.mark.sampled(6)
    @pytest.mark.parametrize(
        "change",
        [
            {"extra": 1},
            {"model": "nosuch"},
            {"data": "nosuch"},
            {"weights": "bogus"},
            {"partition": "zzz"},
            {"schedule": "bogus"},
            {"optimiser": "bogus"},
            {"options": {"nosuch": 1}},
            {"warm_up": 1_000_000},
            {"algorithm": "nosuch"},
            {"algorithm": "mine:Own"},
            {"loss": "mine:loss"},
            {"overlap": 2},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_settings_that_cannot_be_hide_nothing(self, training, change):
        """A forger's: with them a ledger of half the releases was compared no more."""
        edited(training / "ledger.json", fewer)
        edited(training / "config.json", lambda c: c["training"].update(change))
        assert not forged(training)

    @pytest.mark.parametrize("missed", [[], [[0, 0]], [[0, 3]], [[3, 9]], [[2, 1]]])
    def test_who_was_not_lost_missed_nothing(self, training, missed):
        edited(training / "ledger.json", fewer)
        edited(training / "result.json", lambda c: c.update(missed=missed))
        (one,) = forged(training).differences
        assert one.what == "what it missed"

    @pytest.mark.parametrize("key", ["left", "returned"])
    def test_nobody_is_lost_without_parties(self, training, key):
        edited(training / "result.json", lambda c: c.update({key: [[1, 3]]}))
        (one,) = forged(training).differences
        assert one.what == "who was lost"

    def test_what_a_study_says_of_its_noise(self, training):
        edited(training / "result.json", lambda c: c.update(protected=True))
        seal(RunFolder(training))
        (one,) = verify(training).differences
        assert (one.what, one.recorded, one.expected) == ("protected", "True", "False")

    def test_independence_is_said(self, training):
        edited(training / "result.json", lambda c: c.pop("independence"))
        seal(RunFolder(training))
        (one,) = verify(training).differences
        assert one.what == "independence"

    def test_no_version_makes_a_record_be_at_more_nodes(self, training):
        def more(content):
            for upper in (*content["nodes"], content["verdict"]["upper"]):
                upper["overlap"] = 2

        edited(training / "config.json", lambda c: c.update(version="0.1.0"))
        assert not verify(training, settings=True).differences[1:]
        edited(training / "result.json", more)
        seal(RunFolder(training))
        (one,) = verify(training, settings=True).differences
        assert one.what == "nodes[0].overlap"

    @pytest.mark.parametrize(
        ("name", "value"), [("graph", "completex"), ("graph", ""), ("schedule", "")]
    )
    def test_settings_that_no_run_takes(self, training, name, value):
        edited(training / "config.json", lambda c: c["training"].update({name: value}))
        seal(RunFolder(training))
        (one,) = verify(training, settings=True).differences
        assert one.file.name == "config.json"
        assert name in one.expected

    def test_canaries_at_no_node(self, training):
        edited(training / "config.json", lambda c: c.update(canary_nodes=[-1]))
        seal(RunFolder(training))
        with pytest.raises(FolderError, match=r">= 0.*canary_nodes"):
            verify(training)

    def test_a_file_that_is_not_here_is_no_difference(self, training):
        edited(training / "config.json", lambda c: c["training"].update(data="idx:no"))
        seal(RunFolder(training))
        found = verify(training, settings=True)
        assert found, found.unchecked
        assert any("against the settings (no" in one for one in found.unchecked)

    def test_messages_without_their_model_are_counted(self, tmp_path):
        """Their noise goes by how many parameters are shared, which nobody knows."""
        run = dataclasses.replace(plan("partpsp", rounds=4), claim=None)
        trained(tmp_path, run, relation="replace-one")
        (tmp_path / "model.safetensors").unlink()
        found = forged(tmp_path)
        assert found
        assert "the noise of messages, which needs the model" in found.unchecked
        edited(tmp_path / "ledger.json", fewer)
        assert "number of releases" in str(forged(tmp_path).differences)

    def test_an_own_algorithm_is_assumed(self, tmp_path, capsys):
        """What settings say of it needs none of its code."""
        how = ["--model", "softmax", "--set", "rounds=2", "--set", "nodes=2"]
        name = "tests.report.test_verify:Own"
        path = tmp_path / "own"
        assert not main(["train", name, *how, "--epsilon", "4", "--out", str(path)])
        assert verify(path, settings=True)
        for change, says in (
            (lambda c: c.pop("assumes"), "what its account assumes"),
            (lambda c: c.update(overlap=2), "the number of nodes at which a record"),
        ):
            copied = shutil.copytree(path, tmp_path / "copied", dirs_exist_ok=True)
            edited(copied / "ledger.json", change)
            (one,) = forged(copied).differences
            assert one.what.startswith(says)

    def test_one_score_flipped(self, audited, capsys):
        score_flipped(audited)
        noticed(capsys, audited, "scores.npz")

    def test_one_score_flipped_without_a_manifest(self, tmp_path, capsys):
        done(tmp_path, audit(runs=200, rounds=1, estimator="clopper-pearson"))
        (tmp_path / "manifest.json").unlink()
        with np.load(tmp_path / "scores.npz") as file:
            arrays = dict(file)
        arrays["score"] = arrays["member"] + arrays["score"] * 1e-9
        np.savez(tmp_path / "scores.npz", **arrays)
        noticed(capsys, tmp_path, "result.json")

    def test_one_byte_of_the_model(self, training, capsys):
        flipped(training / "model.safetensors", -1)
        line = noticed(capsys, training, "model.safetensors")
        assert "its SHA-256 is" in line
        assert "manifest.json has" in line

    @pytest.mark.parametrize(
        "name", ["model.safetensors", "rounds.csv", "curves.json", "ledger.json"]
    )
    def test_a_file_that_is_gone(self, training, name):
        (training / name).unlink()
        (difference,) = verify(training).differences
        assert difference.file == training / name
        assert difference.recorded == "nothing, no file"

    def test_a_file_that_was_added(self, folders, tmp_path):
        trained(tmp_path, plan("dp-dsgd", rounds=2), save_models=False)
        shutil.copy(folders / "training" / "model.safetensors", tmp_path)
        (difference,) = verify(tmp_path).differences
        assert difference.file == tmp_path / "model.safetensors"

    def test_a_link_in_a_files_place(self, training, tmp_path):
        shutil.move(training / "rounds.csv", tmp_path / "elsewhere")
        (training / "rounds.csv").symlink_to(tmp_path / "elsewhere")
        (difference,) = verify(training).differences
        assert difference.file == training / "rounds.csv"

    def test_a_link_that_leads_nowhere(self, training, capsys):
        (training / "scores.npz").symlink_to(training / "nowhere")
        line = noticed(capsys, training, "scores.npz")
        assert "none, as it is no file" in line

    def test_worse_settings_than_were_run(self, audited):
        edited(audited / "config.json", lambda c: c.update(confidence=0.5))
        (difference,) = verify(audited).differences
        assert difference.file == audited / "config.json"

    def test_figures_of_another_version_claim_no_more(self, tmp_path, capsys):
        """Its account may differ from ours, but not prove less than it says."""
        path = tmp_path / "old"
        runs.write_training(path)
        ledger = Ledger.from_json((path / "ledger.json").read_text())
        right = account(ledger, 1e-4, method="pld").epsilon
        for factor, status in ((1.0, 0), (1.05, 0), (0.95, 1), (0.01, 1)):
            runs.write_training(path, upper=right * factor, claim=2 * right)
            assert main(["show", str(path)]) == status
            out = capsys.readouterr().out
            assert ("certified: epsilon is at most" in out) == (status == 0)
            assert ("there is no manifest" in out) == (status == 0)

    @pytest.mark.parametrize("loose", [True, False])
    def test_a_bound_of_another_version_may_only_be_weaker(self, loose):
        for side, weaker in (("lower", 0.5), ("upper", 2.0)):
            where = f"verdict.{side}.epsilon"
            assert agree(1.0, 1.0, where, loose)
            assert agree(weaker, 1.0, where, loose) is loose
            assert not agree(1.0, weaker, where, loose)
            assert not agree(weaker, 1.0, f"{side}.tpr", loose)

    @pytest.mark.parametrize("name", ["notes.txt", "key.pem", "more/model.safetensors"])
    def test_whatever_was_added(self, training, capsys, name):
        (training / name).parent.mkdir(exist_ok=True)
        (training / name).write_text("planted")
        noticed(capsys, training, name.split("/")[0])

    def test_the_noise_of_the_settings(self, training, capsys):
        edited(training / "config.json", lambda c: c.update(noise_multiplier=20.0))
        noticed(capsys, training, "config.json")

    def test_an_unfinished_run_is_no_evidence(self, training):
        (training / "result.json").unlink()
        (training / "manifest.json").unlink()
        with pytest.raises(FolderError, match="not finished"):
            verify(training)


class TestResumed:
    def test_further_releases_agree_and_none_may_be_missing(self, tmp_path):
        """Of a run that went on with other data: more than planned, never less."""
        what = resumable.plan(seed=None, rounds=8)
        what = dataclasses.replace(what, claim=None)
        with pytest.raises(resumable.Stopped):
            resumable.done(tmp_path, what, progress=resumable.stop_at(4))
        resumable.done(tmp_path, what, problem=resumable.changed(what))
        assert verify(tmp_path, settings=True).differences == ()

        def fewer(ledger):
            del ledger["nodes"][1][0]

        edited(tmp_path / "ledger.json", fewer)
        seal(RunFolder(tmp_path))
        said = str(verify(tmp_path, settings=True).differences[-1])
        assert "number of releases" in said

        def none(ledger):
            for node in ledger["nodes"]:
                node[:] = [
                    e for e in node if e["release"]["sampling"] != {"type": "none"}
                ]

        edited(tmp_path / "ledger.json", none)
        (one,) = forged(tmp_path).differences
        assert one.what.startswith("the number of releases, some made again")


class TestSigned:
    """Who vouches for a folder is checked by a key, and by nothing less."""

    @pytest.fixture
    def keys(self, tmp_path):
        return written(tmp_path)

    @pytest.fixture
    def signed(self, training, keys):
        assert main(["verify", str(training), "--sign", str(keys[0])]) == 0
        return training

    def all_refuse(self, capsys, path, signer, says):
        capsys.readouterr()
        for command in ("verify", "show", "report"):
            assert main([command, str(path), "--signer", str(signer)]) == 1
            out, err = capsys.readouterr()
            assert err == ""
            assert "certified" not in out
            (line,) = out.splitlines()[-1:]
            assert line.startswith(f"{path / 'manifest.sig'}: its signature is {says}")
            assert str(signer) in line
            assert not (path / "report.html").exists()

    def test_all_say_who_signed(self, signed, keys, capsys):
        for command in ("verify", "show", "report"):
            assert main([command, str(signed), "--signer", str(keys[1])]) == 0
        out = capsys.readouterr().out
        assert out.count(f"signed by the holder of the key of {keys[1]}") == 2
        assert f"key of {keys[1]}" in (signed / "report.html").read_text()
        assert main(["verify", str(signed), "--signer", str(keys[1]), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["signed"], found["signer"]) == (True, str(keys[1]))

    def test_without_the_key_nobody_is_named(self, signed, capsys):
        assert main(["verify", str(signed)]) == 0
        out = capsys.readouterr().out
        assert "signed, by whom was not checked (give --signer)" in out

    def test_whose_signature_is_replaced_is_told(self, signed, keys, tmp_path, capsys):
        other = tmp_path / "other"
        other.mkdir()
        own, public = written(other, Ed25519PrivateKey.generate())
        again = ["verify", str(signed), "--sign"]
        assert main([*again, str(keys[0])]) == 0
        assert "replaced" not in capsys.readouterr().out  # the same, by the same key
        assert main([*again, str(own)]) == 0
        assert "replaced: a signature by another key" in capsys.readouterr().out
        assert main([*again, str(keys[0]), "--signer", str(public)]) == 0
        assert f"by the holder of the key of {public}" in capsys.readouterr().out

    def test_no_signature(self, training, keys, capsys):
        self.all_refuse(capsys, training, keys[1], "missing")

    def test_a_link_is_no_signature(self, signed, keys, tmp_path, capsys):
        shutil.move(signed / "manifest.sig", tmp_path / "elsewhere")
        (signed / "manifest.sig").symlink_to(tmp_path / "elsewhere")
        self.all_refuse(capsys, signed, keys[1], "missing")

    def test_another_key(self, training, keys, tmp_path, capsys):
        (tmp_path / "other").mkdir()
        other = written(tmp_path / "other", Ed25519PrivateKey.generate())
        assert main(["verify", str(training), "--sign", str(other[0])]) == 0
        self.all_refuse(capsys, training, keys[1], "another key's")

    def test_a_changed_manifest(self, signed, keys, capsys):
        """Forged to the end, so that all figures and digests agree."""
        seconds = {"seconds": 1e-3}
        edited(signed / "result.json", lambda content: content.update(seconds))
        signature = (signed / "manifest.sig").read_bytes()
        seal(RunFolder(signed))
        assert not (signed / "manifest.sig").exists()  # it was of another manifest
        (signed / "manifest.sig").write_bytes(signature)
        assert main(["verify", str(signed)]) == 0
        self.all_refuse(capsys, signed, keys[1], "another key's, or of another")

    def test_what_disagrees_is_not_signed(self, training, keys, capsys):
        edited(training / "result.json", epsilon_is(0.011))
        assert main(["verify", str(training), "--sign", str(keys[0])]) == 1
        assert "result.json" in capsys.readouterr().out
        assert not (training / "manifest.sig").exists()

    def test_what_has_no_manifest_is_not_signed(self, training, keys, capsys):
        (training / "manifest.json").unlink()
        assert main(["verify", str(training), "--sign", str(keys[0])]) == 3
        assert "no manifest.json that could be signed" in capsys.readouterr().err

    def test_a_bad_key_is_bad_usage_before_the_work(self, tmp_path, keys, capsys):
        out = tmp_path / "run"
        keys[0].chmod(0o644)
        for command in (
            ["train", "dp-dsgd", "--out", str(out)],
            ["audit", "dp-dsgd", "--out", str(out)],
            ["audit-program", "tests.zoo.attacks:scores", "--out", str(out)],
            ["sweep", str(tmp_path / "none.toml"), "--out", str(out)],
        ):
            assert main([*command, "--sign", str(keys[0])]) == 2
            assert "chmod 600" in capsys.readouterr().err
        assert not out.exists()

    def test_a_training_is_signed_as_it_ends(self, tmp_path, keys, capsys):
        command = [
            *("train", "dp-dsgd", "--out", str(tmp_path / "run")),
            *("--set", "rounds=2", "--set", "nodes=2", "--noise-multiplier", "2"),
            *("--sign", str(keys[0])),
        ]
        assert main(command) in (0, 1)
        assert "and signed" in capsys.readouterr().out
        key = str(keys[1])
        assert main(["verify", str(tmp_path / "run"), "--signer", key]) == 0


class TestLaws:
    def test_what_was_run_agrees(self, training, audited, capsys):
        for path in (training, audited):
            assert main(["verify", str(path)]) == 0
            out = capsys.readouterr().out
            assert "the ledger against the settings" in out.splitlines()[0]
            assert main(["show", str(path)]) == 0
            assert "checked against its evidence" in capsys.readouterr().out

    def test_a_page_does_not_break_it(self, audited, capsys):
        assert main(["report", str(audited)]) == 0
        page = (audited / "report.html").read_text()
        assert "checked against its evidence" in page
        assert main(["verify", str(audited)]) == 0

    def test_json_has_both_values(self, training, capsys):
        edited(training / "result.json", epsilon_is(0.011))
        assert main(["verify", str(training), "--json"]) == 1
        found = json.loads(capsys.readouterr().out)
        assert found["agrees"] is False
        (difference,) = found["differences"]
        assert difference["recorded"] == "0.011"
        assert difference["expected_by"] == "ledger.json gives"

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        "algorithm", ["adp2sgd", "deep-q", "dp-dinno", "dyn-d2p", "partpsp"]
    )
    def test_other_families_agree_with_their_settings(self, tmp_path, algorithm):
        model = {"model": "one-vs-all"} if algorithm == "deep-q" else {}
        run = dataclasses.replace(plan(algorithm, rounds=4, **model), claim=None)
        trained(tmp_path, run, relation="replace-one")
        found = verify(tmp_path, settings=True)
        assert found
        if algorithm != "deep-q":  # whose releases do not tell how many records are
            assert "the ledger against the settings" in found.checked
        if algorithm not in ("deep-q", "adp2sgd"):  # may have released less
            edited(tmp_path / "ledger.json", fewer)
            assert not forged(tmp_path)

    def test_releases_in_another_order_are_those_of_the_settings(self, tmp_path):
        few = ("--set", "nodes=2", "--set", "rounds=3", "--noise-multiplier", "3")
        path = tmp_path / "it"
        assert main(["train", "deep-q", *few, "--seed", "0", "--out", str(path)]) == 0
        assert verify(path, settings=True).differences == ()

    def test_needs_no_torch(self, audited):
        program = (
            "import sys\n"
            "class NoTorch:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name == 'torch':\n"
            "            raise ModuleNotFoundError('no torch', name=name)\n"
            "sys.meta_path.insert(0, NoTorch())\n"
            "from privaudit.cli import main\n"
            f"sys.exit(main(['verify', {str(audited)!r}]))"
        )
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        (line,) = (x for x in ended.stdout.splitlines() if x[:13] == "not checked: ")
        assert "the ledger against the settings" in line


SMALL = ("--set", "rounds=2", "--epsilon", "4")
AGAIN = {  # commands that show again what is finished
    "train": ("train", "dp-dsgd", *SMALL),
    "audit": ("audit", "dp-dsgd", *SMALL, "--runs", "40"),
    "one run": ("audit", "dp-dsgd", *SMALL, "--one-run", "--canaries", "30"),
    "program": ("audit-program", "numpy:copysign", "--runs", "40"),
    "sweep": ("sweep", "sweep.toml"),
    "claims": ("claims", "own.toml"),
}
SWEEP = """[[audit]]
algorithm = "dp-dsgd"
epsilon = 4
runs = 40
rounds = 2
"""
OWN = """[[claim]]
name = "mine"
epsilon = 4
delta = 1e-5
algorithm = "dp-dsgd"
noise_multiplier = 3
try = ["audit"]
runs = 40
settings.rounds = 2
"""


class TestShownAgain:
    """A finished folder is checked by whatever shows its result again."""

    @pytest.mark.parametrize("kind", AGAIN)
    def test_a_figure_that_was_changed_is_not_shown(
        self, capsys, tmp_path, monkeypatch, kind
    ):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "sweep.toml").write_text(SWEEP)
        (tmp_path / "own.toml").write_text(OWN)
        command = [*AGAIN[kind], "--out", "it"]
        status, before = main(command), capsys.readouterr().out
        assert (main(command), capsys.readouterr().out) == (status, before)
        (file,) = pathlib.Path("it").rglob("result.json")
        edited(file, lambda c: c.update(seconds=1.25))
        assert main(command) == 1
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith(f"{file}: its SHA-256 is ")
        assert main([*command, "--json"]) == 1
        said = json.loads(capsys.readouterr().out)
        assert said == {"schema": 1, "differences": [line]}
        validator(command[0]).validate(said)

    def test_a_run_that_was_changed_is_not_audited(self, training, capsys):
        edited(training / "result.json", epsilon_is(0.011))
        assert main(["audit", str(training), "--runs", "40"]) == 1
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith(f"{training}/result.json: nodes[0].epsilon is 0.011, ")
        assert not [*training.glob("audit-*")]
        with pytest.raises(FolderError, match=r"is not the file that manifest\.json"):
            amend(RunFolder(training), load(training).result)

    def test_an_audit_that_was_stopped_before_it_joined_its_run_joins_it(
        self, training, capsys, monkeypatch
    ):
        """Killed before the manifest, or between the manifest and the result."""
        command = ["audit", str(training), "--runs", "40", "--json"]
        before = {
            x: (training / x).read_bytes() for x in ("manifest.json", "result.json")
        }
        status, out = main(command), capsys.readouterr().out
        for names in (["result.json"], [*before]):
            for name in names:
                (training / name).write_bytes(before[name])
            assert not verify(training)
            assert (main(command), capsys.readouterr().out) == (status, out)
            assert verify(training)

    @pytest.mark.parametrize(
        "name", ["key", "key-1", "key.releases", "key-id", "tries"]
    )
    def test_a_secret_that_was_left_is_named(self, training, capsys, name):
        if name == "tries":
            (training / name).mkdir()
        else:
            (training / name).write_bytes(b"k")
        noticed(capsys, training, name)
        with pytest.raises(EvidenceError, match="a secret is still here"):
            sign(verify(training), written(training.parent)[0])
