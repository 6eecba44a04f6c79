"""Without extras: accounts work, and what needs more says which, and how it is had."""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

from privaudit.cli import BAD_USAGE, COULD_NOT, FINE, REFUTED
from privaudit.files.extras import EXTRAS, need

ROOT = pathlib.Path(__file__).parents[2]
MODULES = {
    "openmined-psi": "private_set_intersection",
    "scikit-learn": "sklearn",
    "python-flint": "flint",
}  # of distributions, where the name is another
SCORES = "member,score\n" + "".join(f"{n % 2},{n % 2 + n / 100}\n" for n in range(60))
RUN = ["audit-program", "numpy:copysign", "--runs", "20", "--out"]
SUITE = ["--epsilon", "1", "--delta", "1e-5"]
COMMANDS = [
    (["--help"], FINE, None),
    (["train", "--help"], FINE, None),
    (["completion", "bash"], FINE, None),
    (["noise", *SUITE, "--sampling-rate", "0.01", "--steps", "10"], FINE, None),
    (["epsilon", "--delta", "1e-5", "--noise-multiplier", "2"], FINE, None),
    (["convert", "--mu", "1", "--delta", "1e-5"], FINE, None),
    (["bound", "scores.csv", "--delta", "0.01", "--design", "fixed"], FINE, None),
    (["claims", "004", "--quick"], REFUTED, None),
    ([*RUN, "run"], REFUTED, None),
    (["show", "run"], REFUTED, None),
    (["verify", "run"], FINE, None),
    (["verify", "run", "--signer", "key.pem"], COULD_NOT, "sign"),
    (["report", "run"], COULD_NOT, "report"),
    (["site", "run", "--out", "site"], COULD_NOT, "report"),
    (["train", "dp-sgd", "--epsilon", "1"], COULD_NOT, "train"),
    (["train", "nonsense"], COULD_NOT, "train"),
    (["audit", "dp-sgd"], COULD_NOT, "train"),
    (["demo"], COULD_NOT, "train"),
    (["recipes"], FINE, None),
    (["train", "dp-dsgt", "--help"], FINE, None),
    (["noise", "--epsilon", "1"], BAD_USAGE, None),
]
PROGRAM = """
import contextlib, io, json, sys
for module in json.loads(sys.argv[1]):
    sys.modules[module] = None
from privaudit.cli import main
for command in json.loads(sys.argv[2]):
    error = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
        status = main(command)
    print(json.dumps([status, error.getvalue()]))
"""


def test_they_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, modules in EXTRAS.items():
        asked = project["optional-dependencies"][extra]
        named = (re.match(r"[\w-]+", one).group() for one in asked)
        own = {MODULES.get(name, name) for name in named} - {"privaudit"}
        assert own == set(modules)


def test_what_is_missing_is_named_before_the_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    need("this", "train")
    with pytest.raises(ModuleNotFoundError, match=r"needs jinja2.*'\.\[report\]'"):
        need("this", "train", "report")


@pytest.mark.full
def test_a_base_installation(tmp_path):
    (tmp_path / "scores.csv").write_text(SCORES)
    modules = sorted({module for extra in EXTRAS.values() for module in extra})
    asked = json.dumps([command for command, _, _ in COMMANDS])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(modules), asked],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for (command, status, extra), (given, error) in zip(COMMANDS, found, strict=True):
        assert given == status, (command, error)
        assert error.count("\n") == (status in (BAD_USAGE, COULD_NOT)), error
        if extra is not None:
            assert f"extra {extra};" in error, (command, error)
            assert f"'.[{extra}]'" in error
            assert f"whl[{extra}]'" in error
