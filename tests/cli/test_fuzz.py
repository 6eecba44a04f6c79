"""Whatever is typed or lies in a file: an answer or one line, never a fault of ours.

Quick: some hundred cases, by fixed seeds. ``PRIVAUDIT_FUZZ=20000 pytest -m slow
tests/cli/test_fuzz.py`` tries so many.
"""

import contextlib
import gzip
import io
import json
import os
import pathlib
import random
import shutil
import struct

import numpy as np
import pytest

from privaudit import PoissonSampling, ProgramSettings, Release, audit_program
from privaudit.accounting.recorded import RecordedRun, write
from privaudit.cli import main
from privaudit.ledger import Ledger
from tests import tiers
from tests.report import runs

VALUES = (
    *("0", "1", "-1", "2", "0.5", "1e-5", "1e-300", "1e300", "nan", "inf", "-inf"),
    *("", " ", "x", "é", "\x00", "1e", "0x1", "1_0", "--", "-", "10", "3.7", "true"),
    *("99999999999999999999", "1e-320", "[]", "{}", "a=b", "=", "certified", "rdp"),
    *("poisson", "replace-one", "none", "laplace", "gaussian", "/", ".", "nowhere"),
)
OPTIONS = {
    "noise": "epsilon delta sampling-rate steps sampling mechanism relation "
    "growing-budget schedule account",
    "epsilon": "delta noise-multiplier sampling-rate steps sampling mechanism relation "
    "growing-budget schedule ledger overlap group tries tries-law account",
    "convert": "mu epsilon delta",
    "plan": "sizes parameters epsilon budgets delta noise algorithm graph overlap set",
    "tune": "grid data model classes tries law like judge seed",
    "bound": "delta confidence method relation design order seed epsilon",
    "consensus": "dims rounds b gamma-n delta decay clip-norm seed",
    "views": "noise-multiplier delta set colluding",
    "probe": "runs search seed set",
    "selfcheck": "estimator confidence",
    "recipes": "out",
    "cite": "json",
    "show": "require signer",
    "verify": "signer sign",
    "join": "overlap signer out",
    "report": "signer",
    "claims": "require",
    "train": "epsilon delta noise-multiplier calibrate relation seed public-seed set "
    "model data loss transform evaluate observer precision save log-dir",
    "audit": "epsilon delta adversary canary estimator confidence set block canaries",
    "audit-program": "epsilon delta relation confidence estimator ledger batch about "
    "noise-multiplier sampling-rate steps",
}
BARE = (  # what stands where no option of that name does
    *(["--graph", "ring"], ["--batch-size=3"], ["--rho"], ["graph=ring"], ["=", "-"]),
    *(["--help"], ["-h"], ["--"], ["-x"], ["ring"], ["--=", "--set"], [""], ["-=x"]),
)
FILES = {  # of each, the commands that read it
    "ledger.json": ["epsilon", "--delta", "1e-5", "--ledger"],
    "event.json": ["epsilon", "--delta", "1e-5", "--ledger"],
    "plan.csv": ["epsilon", "--delta", "1e-5", "--schedule"],
    "scores.csv": ["bound", "--delta", "1e-5", "--design", "fixed"],
    "scores.npz": ["bound", "--delta", "1e-5"],
    "claims.toml": ["claims", "--quick"],
    "sweep.toml": ["sweep", "--out", "swept"],
    "recipe.toml": ["train", "--out", "trained"],
    "claims.json": ["site", "--out", "site"],
}
SMALL = ["train=9", "rounds=1", "model=softmax", "digits=0,1", "batch_size=3"]
LEDGER = Ledger.of(
    Release.of_sum(norm_bound=2.0, noise_multiplier=1.0, sampling=PoissonSampling(0.1)),
    10,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A sound file of each kind, and sound folders."""
    folder = tmp_path_factory.mktemp("whole")
    texts = {
        "ledger.json": LEDGER.to_json(),
        "event.json": '{"event": "Gaussian", "noise_multiplier": 1}',
        "plan.csv": "noise_multiplier,sampling_rate\n1,0.1\n2,0.1\n",
        "scores.csv": "member,score\n" + "0,1\n1,2\n" * 9,
        "claims.toml": '[[claim]]\nname="a"\nepsilon=2.0\ndelta=1e-5\n'
        'ledger="ledger.json"\n',
        "sweep.toml": '[all]\nruns=9\nrounds=0\n[grid]\nalgorithm=["sgd"]\n',
        "recipe.toml": 'title="a"\nsource="b"\nalgorithm="sgd"\nrounds=0\n',
        "claims.json": '{"schema": 1, "claims": []}',
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    main(["epsilon", "--delta", "1e-5", "--ledger", str(folder / "ledger.json"),
          "--event", str(folder / "event.json")])  # fmt: skip
    np.savez(folder / "scores.npz", member=[0, 1] * 9, score=range(18), design="fixed")
    audit_program("numpy:copysign", ProgramSettings(runs=9), out=folder / "program")
    runs.write_training(folder / "training", upper=runs.accounted())
    runs.Made(worlds=runs.noise(9, 9)).write(folder / "audit")
    own = RecordedRun.of("a tool", "read", 1e-5)
    write(folder / "recorded", own, LEDGER, {"its own": 1.9})
    (folder / "idx").mkdir()
    for part, many in (("train", 20), ("t10k", 10)):
        for kind, size in (("images-idx3", (4, 4)), ("labels-idx1", ())):
            head = struct.pack(
                f">HBB{1 + len(size)}I", 0, 8, 1 + len(size), many, *size
            )
            values = bytes(n % 2 for n in range(many * int(np.prod(size))))
            (folder / f"idx/{part}-{kind}-ubyte").write_bytes(head + values)
    return folder


def worse(random, content):
    """``content`` with something wrong."""
    kind = random.randrange(6)
    at = random.randrange(len(content) + 1)
    if kind == 0:
        return content[:at]
    if kind == 1:
        return (
            content[:at] + random.randbytes(random.choice((1, 8))) + content[at + 1 :]
        )
    if kind == 2:
        return random.choice((b"", b"\xef\xbb\xbf", b"\x00", b"[", b"{}", b"[]", b"1"))
    if kind == 3:
        return content[:at] + content[at // 2 : at] + content[at:]
    value = random.choice(VALUES).encode("utf-8")
    words = content.replace(b",", b"\n").split(b"\n")
    word = random.choice(words).rpartition(b":")[2].rpartition(b"=")[2].strip()
    if kind == 4 and word:
        return content.replace(word, value, 1)
    return gzip.compress(content) if random.random() < 0.1 else content + value


def altered(random, content):
    """A value within JSON, or a byte of anything."""
    try:
        fields = json.loads(content)
    except ValueError:
        return worse(random, content)
    inner = fields
    while isinstance(inner, dict | list) and inner:
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        key = random.choice(keys)
        if not isinstance(inner[key], dict | list) or random.random() < 0.2:
            if random.random() < 0.2:
                del inner[key]
            else:
                inner[key] = random.choice(
                    (None, -1, 0, 1e308, 10**30, "inf", "", [], {}, True, 0.5, "x", 3)
                )
            return json.dumps(fields).encode()
        inner = inner[key]
    return worse(random, content)


def typed(random):
    """A command with some options, and values that may be anything."""
    command = random.choice(list(OPTIONS))
    words = [command]
    if command in ("train", "audit", "views", "probe"):
        words += [
            random.choice(("dp-sgd", "dp-dsgd", "sgd", "operator:add", "x", "a:b"))
        ]
        words += [part for one in SMALL for part in ("--set", one)]
    elif command == "audit-program":
        words += [random.choice(("operator:add", "x", "os:nothing", "x:"))]
        words += ["--runs", "9"]
    elif command == "selfcheck":
        words += ["--runs", "9", "--repeats", "1"]
    elif command == "consensus":
        words += ["--nodes", random.choice(("2", "5", "x", "0"))]
    elif command not in ("noise", "epsilon", "convert"):
        words += [random.choice((*VALUES, "training", "program", "000"))]
    if command == "audit":
        words += ["--runs", random.choice(("9", "20", "0", "x"))]
    if command == "claims":
        words += ["--quick"]
    if command in ("train", "audit", "audit-program"):
        words += ["--out", "made"]
    for option in random.sample(names := OPTIONS[command].split(), min(4, len(names))):
        value = random.choice(VALUES)
        if option == "set":
            keys = "nodes graph clip_norm step_size hidden weights partition nothing"
            value = f"{random.choice(keys.split())}={value}"
        words += [f"--{option}"] if option == "json" else [f"--{option}", value]
    return words + random.choice(BARE) if random.random() < 0.2 else words


def case(random, whole, folder):
    """The words of a case, and its files in ``folder``."""
    kind = random.randrange(4)
    if kind == 0:
        return typed(random)
    if kind == 1:
        place = random.choice(("program", "training", "audit", "recorded"))
        shutil.copytree(whole / place, folder / place)
        file = random.choice(sorted((folder / place).iterdir()))
        file.write_bytes(altered(random, file.read_bytes()))
        if random.random() < 0.7:  # else the digests tell
            (folder / place / "manifest.json").unlink(missing_ok=True)
        command = random.choice((["show"], ["verify"], ["join"], ["cite"]))
        return [*command, place]
    if kind == 2 and random.random() < 0.2:
        shutil.copytree(whole / "idx", folder / "idx")
        file = random.choice(sorted((folder / "idx").iterdir()))
        file.write_bytes(worse(random, file.read_bytes()))
        words = [part for one in SMALL for part in ("--set", one)]
        return ["train", "sgd", "--data", "idx:idx", "--out", "trained", *words]
    name = random.choice(list(FILES))
    shutil.copy(whole / "ledger.json", folder)
    content = (whole / name).read_bytes()
    (folder / name).write_bytes(altered(random, content))
    command, *rest = FILES[name]
    if rest and rest[-1] in ("--ledger", "--schedule"):
        return [command, *rest, name]
    return [command, name, *rest]


def tried(seed, whole, folder):
    """What is wrong with a case, in words; None if nothing."""
    folder.mkdir()
    words = case(random.Random(seed), whole, folder)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder):
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = main([*words, *(["--json"] if seed % 2 else [])])
        except BaseException as error:
            return f"{seed}: {words} raised {error!r}"
    shutil.rmtree(folder)
    said = err.getvalue()
    wrong = [
        status not in (0, 1, 2, 3),
        "Traceback" in said or "fault of privaudit" in said,
        status in (2, 3) and not (said.strip() or out.getvalue().strip()),
        "nan" in out.getvalue().replace("nano", "").split(),
    ]
    return f"{seed}: {words} {status}: {said[-400:]}" if any(wrong) else None


@pytest.mark.sized
def test_some(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVAUDIT_TRACEBACK", "")
    seeds = range(tiers.size(150, 60))
    faults = [tried(seed, whole, tmp_path / "case") for seed in seeds]
    assert not list(filter(None, faults))


@pytest.mark.parametrize(
    "change",
    [{"class_name": []}, {"noise_multiplier": None}, {"noise_multiplier": [1.0]}],
)
def test_an_event_that_is_none(whole, tmp_path, change, capsys):
    """What many cases found."""
    event = json.loads((whole / "event.json").read_text())
    inner = event
    while "noise_multiplier" not in inner:
        inner = inner["events"][0] if "events" in inner else inner["event"]
    inner.update(change)
    (tmp_path / "event.json").write_text(json.dumps(event))
    command = ["epsilon", "--delta", "1e-5", "--ledger", str(tmp_path / "event.json")]
    assert main(command) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_event_with_more_steps_than_can_be_added(whole, tmp_path, capsys):
    event = json.loads((whole / "event.json").read_text())
    event["events"][0]["count"] = 1e308
    (tmp_path / "event.json").write_text(json.dumps(event))
    command = ["epsilon", "--delta", "1e-5", "--ledger", str(tmp_path / "event.json")]
    assert main(command) == 0
    assert "epsilon is at most" in capsys.readouterr().out


@pytest.mark.parametrize("steps", [1, 3])
def test_delta_0(steps, capsys):
    """Laplace noise has a finite epsilon there, 1 over it a step; Gaussian none."""
    settings = ["--delta", "0", "--noise-multiplier", "2", "--steps", str(steps)]
    assert main(["epsilon", *settings, "--mechanism", "laplace", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lower"] <= steps / 2 <= found["upper"] < steps / 2 + 1e-9
    assert main(["epsilon", *settings]) == 0
    assert "at most infinity at delta 0" in capsys.readouterr().out
    assert main(["epsilon", *settings, "--account", "rdp"]) == 2


def test_a_list_in_json_is_a_name_like_any_other(capsys):
    assert main(["show", "[]"]) == 3
    assert "no folder []" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.filterwarnings("default")
def test_many(whole, tmp_path):
    cases = int(os.environ.get("PRIVAUDIT_FUZZ", "20000"))
    first = int(os.environ.get("PRIVAUDIT_FUZZ_FROM", "1000"))
    faults = []
    for seed in range(first, first + cases):
        if found := tried(seed, whole, tmp_path / f"case{seed}"):
            faults.append(found)
            if log := os.environ.get("PRIVAUDIT_FUZZ_LOG"):
                with pathlib.Path(log).open("a") as file:
                    file.write(found + "\n")
    assert not faults
