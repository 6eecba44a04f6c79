"""A user's own `trainers` beside a script, and privaudit's: both are found."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).parents[2]
OURS = "import privaudit.report.recorded as r; r.TrainingResult.__module__"
MINE = (
    "import trainers; from trainers.mine import f\n"
    "assert (trainers.MINE, f()) == (1, 7)"
)
PROGRAMS = {
    "the script imports none": OURS,
    "its own first": f"{MINE}\n{OURS}\n{MINE}\nfrom trainers import mine, MINE",
    "its own after": f"{OURS}\n{MINE}\nfrom trainers import mine, MINE",
    "by one name": "from trainers.runs import mine; from trainers.runs.deep import x\n"
    f"{OURS}\nimport trainers\nassert trainers.runs.outcome",
    "what neither has": f"{OURS}\nimport trainers\nassert not hasattr(trainers, 'no')",
}


@pytest.fixture(params=["package", "folder"])
def beside(request, tmp_path):
    """A folder with the user's trainers, and perhaps no package."""
    (tmp_path / "trainers").mkdir()
    (tmp_path / "trainers" / "notes.txt").write_text("none of Python's")
    if request.param == "package":
        (tmp_path / "trainers" / "__init__.py").write_text("MINE = 1")
        (tmp_path / "trainers" / "mine.py").write_text("def f(): return 7")
        (tmp_path / "trainers" / "runs").mkdir()
        (tmp_path / "trainers" / "runs" / "__init__.py").write_text("mine = 1")
        (tmp_path / "trainers" / "runs" / "deep.py").write_text("x = 1")
    return tmp_path, request.param


def ended(folder, *arguments):
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )


class TestSound:
    @pytest.mark.sampled(6)
    @pytest.mark.parametrize("program", PROGRAMS)
    def test_a_script(self, beside, program):
        folder, kind = beside
        if kind == "folder" and "mine" in PROGRAMS[program]:
            pytest.skip("it has no modules")
        (folder / "script.py").write_text(PROGRAMS[program])
        found = ended(folder, "script.py")
        assert found.returncode == 0, found.stderr

    def test_a_command(self, beside):
        found = ended(beside[0], "-m", "privaudit", "recipes", "list")
        assert found.returncode == 0, found.stderr
        assert "bayrooti" in found.stdout

    @pytest.mark.full
    def test_processes_of_its_own(self, beside):
        """They look for what they are to do by its name."""
        (beside[0] / "two.toml").write_text(
            '[all]\nalgorithm = "dp-dsgd"\nepsilon = 4\nmodel = "softmax"\n'
            "rounds = 2\nruns = 40\n[grid]\nnodes = [2, 3]\n"
        )
        found = ended(beside[0], "-m", "privaudit", "sweep", "two.toml", "--out", "run")
        assert found.returncode == 0, found.stderr

    @pytest.mark.sampled(2)
    def test_the_users_tests(self, beside):
        """Where privaudit's plugin for pytest is loaded before all of theirs."""
        folder, kind = beside
        test = textwrap.indent(MINE if kind == "package" else OURS, "    ")
        (folder / "test_it.py").write_text(f"def test_it():\n{test}\n")
        found = ended(folder, "-m", "pytest", "-q", "test_it.py")
        assert "1 passed" in found.stdout, found.stdout
