"""Docstrings that begin with a riddle: what is told comes second, if at all.

Part of ``make lint``. A docstring begins with a verb or a noun of the field.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys

FOLDERS = ("privaudit", "trainers", "reports")
RIDDLE = re.compile(
    r"(What|Of|Whether|How|Where|Which|That|Who|When|Why|(By|In|From|To) (how|which))\b"
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def riddles(source: str) -> list[tuple[int, str]]:
    """Line and beginning of each docstring that starts with a question."""
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, DOCUMENTED)]
    told = [(n.body[0].lineno, ast.get_docstring(n)) for n in nodes if n.body]
    return [
        (line, text.split("\n")[0])
        for line, text in told
        if text and RIDDLE.match(text)
    ]


def main(root: pathlib.Path) -> int:
    """Print them with their places; 1 if there are any."""
    files = (file for name in FOLDERS for file in sorted((root / name).rglob("*.py")))
    found = [(file, *one) for file in files for one in riddles(file.read_text())]
    for file, line, text in found:
        print(f"{file.relative_to(root)}:{line}: {text}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(__file__).parent.parent))
