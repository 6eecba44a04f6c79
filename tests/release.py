"""A release: wheel and sdist, each tried in an empty environment, and its notes.

``make release`` builds both into ``build/release``. The wheel is installed at the
tested versions, and the lines of README that need no clone are run. The sdist is
unpacked: it must have each file that git knows, and its own tests of the documentation
must pass. ``notes.md`` is the section of CHANGELOG.md of this version. The tag is made
by hand: ``git tag -s v`` and the version.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEFT_OUT = (".ci", ".git", ".gitignore")


def run(*command: object, where: Path, home: Path | None = None, **more: str) -> str:
    """Output of a command, which must end well."""
    if home is not None:
        more = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    else:
        more = {**os.environ, **more}
    done = subprocess.run(
        [str(one) for one in command],
        cwd=where,
        env=more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{command}: status {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def notes(version: str) -> str:
    """The section of CHANGELOG.md that is of ``version``."""
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    own = [
        one for one in sections if version.partition(".dev")[0] in one.split("\n")[0]
    ]
    if len(own) != 1:
        raise SystemExit(f"CHANGELOG.md has {len(own)} sections of {version}, not one")
    return f"# privaudit {own[0]}"


def tried(wheel: Path, folder: Path) -> None:
    """Install a wheel with all extras, and run what README promises of it."""
    run(sys.executable, "-m", "venv", folder / "env", where=folder)
    programs = folder / "env" / "bin"
    pinned = ("-c", ROOT / "constraints.txt", f"{wheel}[all,testing]")
    run(programs / "pip", "install", "-q", *pinned, where=folder)
    readme = (ROOT / "README.md").read_text()
    for k, block in enumerate(re.findall(r"```python\n(.*?)```", readme, re.DOTALL)):
        (folder / f"lines{k}.py").write_text(block)
        run(programs / "python", f"lines{k}.py", where=folder, home=folder)
    said = run(programs / "privaudit", "verify", "folder", where=folder, home=folder)
    print(said.strip())


def unpacked(sdist: Path, folder: Path) -> None:
    """Unpack a source distribution, compare it with git, and try some of its tests."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = (one for one in folder.iterdir() if one.is_dir())
    known = run("git", "ls-files", where=ROOT).splitlines()
    lost = [
        one
        for one in known
        if one.split("/")[0] not in LEFT_OUT and not (tree / one).is_file()
    ]
    if lost:
        raise SystemExit(f"the sdist has no {', '.join(lost[:9])}")
    quick = ("tests/test_docs.py", "tests/test_house.py", "tests/test_settings.py")
    # Programs that tests start in other folders are this tree's too.
    own = {"PYTHONPATH": str(tree)}
    said = run(sys.executable, "-m", "pytest", "-q", *quick, where=tree, **own)
    print(said[-60:].strip())


def main() -> None:
    """Try what was built, and write the notes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="with one wheel and one sdist")
    folder = parser.parse_args().folder.resolve()
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    version = wheel.name.split("-")[1]
    (folder / "notes.md").write_text(notes(version))
    with tempfile.TemporaryDirectory() as place:
        tried(wheel, Path(place))
    with tempfile.TemporaryDirectory() as place:
        unpacked(sdist, Path(place))
    print(f"{wheel.name}, {sdist.name} and notes.md are in {folder}")


if __name__ == "__main__":
    main()
