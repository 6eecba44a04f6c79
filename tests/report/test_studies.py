"""The programs behind reports/ still fit the code that they import."""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parents[2]
REPORTS = sorted(path.parent for path in HERE.glob("reports/*/make.py"))
# As `python make.py` finds its neighbours, and make.py goes first: it may say where
# others are.
PROGRAM = """
import pathlib, runpy, sys
folder = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(folder))
for file in sorted(folder.glob("*.py"), key=lambda file: file.name != "make.py"):
    runpy.run_path(str(file), run_name=file.stem)
"""


def test_every_program_belongs_to_a_report():
    """So that none is left out below."""
    assert {file.parent for file in HERE.glob("reports/**/*.py")} == set(REPORTS)


@pytest.mark.parametrize("folder", REPORTS, ids=lambda folder: folder.name)
def test_it_imports(folder):
    done = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM, folder],
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
