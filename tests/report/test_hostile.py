"""Folders made to mislead whoever checks them: one line, soon, and true."""

import contextlib
import copy
import io
import json
import os
import pathlib
import random
import shutil
import time

import pytest

from privaudit.accounting import account
from privaudit.cli import main
from privaudit.files.folder import RunFolder
from privaudit.files.manifest import seal
from privaudit.files.text import visible
from privaudit.ledger import Ledger
from privaudit.report import recorded
from tests.auditing.audits import audit
from tests.files.test_signature import written
from tests.report.test_verify import done, edited, trained
from tests.tiers import size
from tests.trainers.runs.test_run import plan

MANY = int(os.environ.get("PRIVAUDIT_FUZZ", "0"))
SECONDS = 10.0  # of processor, in this process, where imports are done
ODD = (
    *(0, -1, 1, 0.5, 1e308, -1e308, 5e-324, 10**15, 2**63, 2**64, 10**400),
    *("nan", "inf", "-inf", "", None, True, [], {}, [[]], {"a": 1}, ["a"] * 1000),
    *("x" * 100_000, "\x1b[2Kx\nsigned by you\r", "\u202e\x9b31m\u2028", "numpy:sum"),
    *("idx:/dev", "edges:/dev/zero", "matrix:/dev/zero", "../..", "/dev/zero"),
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A training of named data, and an audit."""
    path = tmp_path_factory.mktemp("sound")
    trained(path / "training", plan("dp-dsgd", rounds=5))
    done(path / "audit", audit(runs=40, rounds=1, estimator="clopper-pearson"))
    return path


@pytest.fixture
def training(folders, tmp_path):
    return shutil.copytree(folders / "training", tmp_path / "training")


def said(*command):
    """The exit status, and all lines; the time is bounded, and nothing acts."""
    out, err = io.StringIO(), io.StringIO()
    began = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(map(str, command)))
    assert time.process_time() - began < SECONDS
    text = out.getvalue() + err.getvalue()
    assert "fault of privaudit" not in text, text
    assert "Traceback" not in text, text
    lines = text.removesuffix("\n").split("\n")
    assert all(visible(line) == line for line in lines), text
    return status, lines


def one_line(*command, status=(1, 3)):
    found, lines = said(*command)
    assert found in status, lines
    assert len(lines) == 1, lines
    return lines[0]


def in_ledger(path, change):
    """Change each entry of the ledger, and seal the folder again."""

    def each(ledger):
        for node in ledger["nodes"]:
            for entry in node:
                change(entry)

    edited(path / "ledger.json", each)
    seal(RunFolder(path))


def figures_follow(path):
    """Write the figures that the ledger gives, and seal the folder again."""
    ledger = Ledger.from_json((path / "ledger.json").read_text())

    def follow(result):
        least = account(ledger, 1e-3)
        for node in result["nodes"]:
            node.update(epsilon=least.epsilon, sampling=least.sampling)
        result["verdict"]["upper"].update(
            epsilon=least.epsilon, sampling=least.sampling
        )
        met = least.epsilon <= result["verdict"]["claim"]["epsilon"]
        result["status"] = "consistent" if met else "unproven"

    edited(path / "result.json", follow)
    (path / "certificate.json").unlink(missing_ok=True)  # of figures that were true
    seal(RunFolder(path))


class TestSound:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("factor", [0.1, 0.9, 0.999])
    def test_rates_contradict_the_number_of_records(self, training, factor):
        def smaller(entry):
            entry["release"]["sampling"]["rate"] *= factor

        in_ledger(training, smaller)
        figures_follow(training)
        line = one_line("verify", training, status=(1,))
        assert line.startswith(f"{training / 'ledger.json'}: ")
        assert "config.json says" in line

    def test_rates_of_more_records_are_said_as_such(self, training):
        def smaller(entry):
            entry["release"]["sampling"]["rate"] /= 10

        in_ledger(training, smaller)
        figures_follow(training)
        line = one_line("verify", training, status=(1,))
        told = "the number of records that its sampling rates are of is 1,200"
        assert f"{told}, config.json says 120" in line

    def test_no_sampling_does_not_hide_what_else_differs(self, training):
        def hidden(entry):
            entry["release"]["sampling"] = {"type": "none"}
            entry["release"]["noise"] *= 100

        in_ledger(training, hidden)
        figures_follow(training)
        assert "how records are sampled" in one_line("verify", training, status=(1,))

    @pytest.mark.parametrize("name", ["config.json", "ledger.json", "result.json"])
    @pytest.mark.parametrize("sealed", [True, False])
    def test_a_pipe_is_not_waited_for(self, training, name, sealed):
        (training / name).unlink()
        os.mkfifo(training / name)
        if not sealed:
            (training / "manifest.json").unlink()
        for command in ("verify", "show", "report"):
            one_line(command, training)

    @pytest.mark.parametrize("name", ["manifest.json", "config.json", "scores.npz"])
    def test_a_device_is_not_read(self, folders, tmp_path, name):
        path = shutil.copytree(folders / "audit", tmp_path / "audit")
        (path / name).unlink()
        (path / name).symlink_to("/dev/zero")
        one_line("verify", path)
        (path / "manifest.json").unlink()
        said("verify", path)

    def test_a_file_that_weighs_more_than_is_read(self, training):
        for most in (1 << 27, 1 << 40):
            os.truncate(training / "config.json", most)
            assert "at most" in one_line("verify", training)

    def test_a_file_of_holes_is_not_read(self, training):
        os.truncate(training / "model.safetensors", 1 << 35)
        for command in ("verify", "show", "report"):
            assert "holes" in one_line(command, training)

    @pytest.mark.parametrize(
        "setting", [("nodes", 10**9), ("rounds", 10**15), ("train", 10**400)]
    )
    def test_counts_without_bound(self, training, setting):
        edited(
            training / "config.json",
            lambda config: config["training"].update([setting]),
        )
        seal(RunFolder(training))
        one_line("verify", training)

    def test_a_ledger_without_end(self, training, monkeypatch):
        monkeypatch.setattr(recorded, "_MOST_ENTRIES", 500)

        def many(ledger):
            (entry,) = ledger["nodes"][0]
            ledger["nodes"][0] = [
                {**entry, "release": {**entry["release"], "noise": 2.0 + n / 1e3}}
                for n in range(600)
            ]

        edited(training / "ledger.json", many)
        seal(RunFolder(training))
        assert "602 releases that differ, and at most 500" in one_line(
            "verify", training, status=(3,)
        )

    def test_a_manifest_of_other_folders(self, training):
        (training.parent / "secret").write_text("a password")

        def elsewhere(manifest):
            manifest["files"]["../secret"] = {"sha256": "0" * 64}

        edited(training / "manifest.json", elsewhere)
        assert "not within its folder" in one_line("verify", training)

    def test_what_is_not_listed_is_not_read(self, training):
        os.mkfifo(training / "more")
        assert "its SHA-256 is none" in one_line("verify", training, status=(1,))

    def test_no_line_is_forged(self, training):
        """By a terminal's characters, in any command that prints what a folder says."""
        forged = "dp-dsgd\x1b[2K\rx\nsigned by the holder of the key of you.pem\x9b"
        edited(
            training / "config.json",
            lambda config: config["training"].update(algorithm=forged),
        )
        seal(RunFolder(training))
        status, lines = said("show", training)
        assert status == 0
        assert "dp-dsgd\\u001b[2K\\u000d" in lines[0]
        assert not any(line.startswith("signed") for line in lines)
        for command in ("verify", "cite"):
            said(command, training)
        status, (line,) = said("show", training, "--json")
        assert json.loads(line)["runs"][0]["algorithm"] == forged
        said("report", training)
        page = training / "report.html"
        assert not page.exists() or visible(page.read_text(), keep="\n\t")

    def test_a_page_has_no_markup_of_others(self, training):
        edited(
            training / "config.json",
            lambda config: config["claim"].update(
                source="<script>x\x1b\u202e</script>"
            ),
        )
        edited(
            training / "result.json",
            lambda result: result["verdict"]["claim"].update(
                source="<script>x\x1b\u202e</script>"
            ),
        )
        seal(RunFolder(training))
        assert said("report", training)[0] == 0
        page = (training / "report.html").read_text()
        assert "<script" not in page
        assert visible(page, keep="\n\t") == page

    def test_a_study_with_a_script_gets_no_page(self, tmp_path):
        (tmp_path / "study").mkdir()
        (tmp_path / "study" / "README.md").write_text("# A\n![b](c.svg)\n")
        (tmp_path / "study" / "results.json").write_text("{}")
        head = '<svg viewBox="0 0 9 9" xmlns="http://www.w3.org/2000/svg">'
        (tmp_path / "study" / "c.svg").write_text(
            f"{head}<script>alert(1)</script></svg>"
        )
        command = ("site", tmp_path / "study", "--out", tmp_path / "site")
        one_line(*command, status=(1,))
        assert "an element <script>" in (tmp_path / "site/site.json").read_text()
        assert not (tmp_path / "site/pages").exists()
        (tmp_path / "study" / "c.svg").write_text(f"{head}</svg>")
        assert said(*command)[0] == 0

    def test_a_page_is_not_vouched_for(self, training, tmp_path):
        key, signer = written(tmp_path)
        assert said("verify", training, "--sign", key)[0] == 0
        (training / "report.html").write_text("epsilon is at most 0.001")
        status, lines = said("verify", training, "--signer", signer)
        assert status == 0
        (line,) = [line for line in lines if "report.html" in line]
        assert line.startswith("not checked: ")
        assert "report.html, which no digest and no" in line


def leaves(tree, at=()):
    """The places of all values within a tree."""
    if isinstance(tree, dict | list):
        keys = tree if isinstance(tree, dict) else range(len(tree))
        for key in keys:
            yield from leaves(tree[key], (*at, key))
    yield at


def put(tree, at, change):
    if not at:
        return change(tree)
    tree = copy.copy(tree)
    tree[at[0]] = put(tree[at[0]], at[1:], change)
    return tree


def altered(draw, value):
    if type(value) in (int, float) and draw.random() < 0.6:
        return draw.choice(
            [value * 10, value / 10, -value, value + 1, value * 1.001, value * 1e12]
        )
    if isinstance(value, list) and draw.random() < 0.5:
        return draw.choice([value * 2, value[:-1], value * 50, value[::-1]])
    return draw.choice(ODD)


def figures(path):
    """What a folder says of privacy: epsilon, delta, relation, unit, standing."""
    result = json.loads((path / "result.json").read_text())
    bounds = [*result["nodes"], result["verdict"]["upper"]]
    return [
        [one[name] for name in ("epsilon", "delta", "relation", "unit", "standing")]
        for one in bounds
    ]


@pytest.mark.sized
@pytest.mark.parametrize("kind", ["training", "audit"])
def test_whatever_is_changed_nothing_more_is_claimed(folders, tmp_path, kind):
    """Every command on a folder with one other value, sealed again, by a fixed seed."""
    draw, sound = random.Random(kind), folders / kind
    names = ["config.json", "ledger.json", "result.json", "manifest.json"]
    names += ["curves.json", "certificate.json"]
    said("verify", sound)  # imports
    for case in range(
        MANY or size({"training": 60, "audit": 25}, {"training": 8, "audit": 4})[kind]
    ):
        path = shutil.copytree(sound, tmp_path / "run" / str(case))
        name = draw.choice(names)
        tree = json.loads((path / name).read_text())
        place = draw.choice(list(leaves(tree)))
        try:
            text = json.dumps(put(tree, place, lambda value: altered(draw, value)))
        except ValueError:  # an integer of too many digits for Python to write
            continue
        (path / name).write_text(text.replace("Infinity", "1e999"))
        if name != "manifest.json":
            with contextlib.suppress(Exception):
                seal(RunFolder(path))
        status, lines = said("verify", path)
        assert status in (0, 1, 3), (name, place, lines)
        if status == 0 and name != "certificate.json":
            assert figures(path) == figures(sound), (name, place, text[:2000])
        else:
            assert len(lines) <= 3, (name, place, lines)
        # Pages draw, which is dear.
        command = draw.choices(["show", "join", "report", "site"], [5, 3, 1, 1])[0]
        more = ["--out", tmp_path / "site" / str(case)] * (command == "site")
        said(command, path, *more)
        shutil.rmtree(path)


def test_links_to_files_are_as_before(training, tmp_path):
    """Without a manifest, where files are looked for by their names alone."""
    (training / "manifest.json").unlink()
    moved = pathlib.Path(shutil.move(training / "curves.json", tmp_path / "elsewhere"))
    (training / "curves.json").symlink_to(moved)
    assert said("verify", training)[0] == 0
