"""docs/integrations.md runs as it stands, section by section, where its tools are."""

import pathlib
import re
import shlex

import pytest

from privaudit.cli import main

PAGE = (pathlib.Path(__file__).parents[2] / "docs/integrations.md").read_text()
SECTIONS = dict(
    part.split("\n", 1) for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
)
TOOLS = ("opacus", "lightning", "jax_privacy", "pandas", "torch")


def blocks(section, kind):
    return re.findall(rf"```{kind}\n(.*?)```", SECTIONS[section], re.DOTALL)


WITH_CODE = [name for name in SECTIONS if blocks(name, "python")]


def test_there_are_six():
    assert len(WITH_CODE) == 6


@pytest.mark.filterwarnings("ignore")  # of the other tools
@pytest.mark.parametrize("section", WITH_CODE)
def test_a_section_runs(section, tmp_path, monkeypatch, capsys):
    code = "\n".join(blocks(section, "python"))
    for tool in TOOLS:
        if re.search(rf"^(import|from) {tool}\b", code, re.MULTILINE):
            pytest.importorskip(tool)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, f"docs/integrations.md, {section}", "exec"), {})
    assert capsys.readouterr().out
    for line in "".join(blocks(section, "console")).splitlines():
        command = line.removeprefix("$ privaudit ")
        assert command != line
        assert main(shlex.split(command)) == 0
        assert capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_figures_of_opacus_are_what_comes_out(tmp_path, monkeypatch):
    pytest.importorskip("opacus")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(blocks("Opacus", "python")[0], names)
    result = names["callback"].result
    shown = dict(re.findall(r"^\| (.*?) \| ([\d.]+) \|$", PAGE, re.MULTILINE))
    below, above = (float(shown[f"privaudit, from {way}, proved"]) for way in SIDES)
    assert below <= result.certificate.lower <= result.certificate.upper <= above
    assert above - below < 3e-3
    for name, value in result.says.items():
        (told,) = (text for words, text in shown.items() if f"Opacus, {name} " in words)
        assert 0 <= float(told) - value < 1e-3


SIDES = ("below", "above")
