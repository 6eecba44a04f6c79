"""The built wheel in an environment of its own, without extras."""

import json
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.full
ROOT = pathlib.Path(__file__).parents[1]
HEAVY = ("torch", "matplotlib", "sklearn", "networkx", "cryptography", "pytest")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs a program of that environment, in an empty folder."""
    folder = tmp_path_factory.mktemp("wheel")

    def run(program, *arguments, check=0):
        ended = subprocess.run(
            [folder / "env" / "bin" / program, *arguments],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert ended.returncode == check, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    pip = [sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "-w", str(folder)]
    built = subprocess.run([*pip, str(ROOT)], capture_output=True, text=True)
    if built.returncode:
        pytest.skip(f"no wheel can be built here: {built.stderr.strip()[-200:]}")
    (wheel,) = folder.glob("privaudit-*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    pinned = ("-c", str(ROOT / "constraints.txt"))
    installed = subprocess.run(
        [folder / "env/bin/pip", "install", "-q", *pinned, wheel],
        capture_output=True,
        text=True,
    )
    if installed.returncode:
        pytest.skip(f"there is no package index: {installed.stderr.strip()[-200:]}")
    return run


def test_it_is_light(run):
    shown = run("pip", "list", "--format=json", "--disable-pip-version-check")
    names = {one["name"] for one in json.loads(shown.splitlines()[0])}
    assert "privaudit" in names
    assert not names & {*HEAVY, "scikit-learn"}


def test_accounts(run):
    asked = ["--delta", "1e-5", "--sampling-rate", "0.01", "--steps", "1000", "--json"]
    found = json.loads(run("privaudit", "noise", "--epsilon", "1", *asked))
    # dp-accounting: epsilon .9995 at 1.41509, by privacy loss distributions
    assert found["noise_multiplier"] == pytest.approx(1.415, rel=2e-3)
    found = run("python", "-c", "import privaudit as pa; print(pa.__version__)")
    assert found.strip() == run("privaudit", "--version").strip()


def test_help_and_completion(run):
    commands = run("privaudit", "--help")
    for command in ("train", "audit", "noise", "site"):
        assert f"│ {command} " in commands
        assert "Usage: privaudit" in run("privaudit", command, "--help")
    assert "complete -F" in run("privaudit", "completion", "bash")


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["train", "dp-sgd"], "train"),
        (["demo"], "train"),
        (["audit", "dp-dsgd"], "train"),
        (
            [
                "epsilon",
                "--noise-multiplier",
                "1",
                "--delta",
                "1e-5",
                "--plot",
                "a.svg",
            ],
            "report",
        ),
        (["verify", ".", "--signer", "key"], "sign"),
    ],
)
def test_what_needs_an_extra_names_it(run, arguments, extra):
    said = run("privaudit", *arguments, check=3)
    assert f"the extra {extra}" in said
    assert f"[{extra}]" in said
    assert "Traceback" not in said
