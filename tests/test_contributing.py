"""CONTRIBUTING.md says what works: its files are written, its commands are run."""

import importlib
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from privaudit.cli import main

ROOT = pathlib.Path(__file__).parents[1]
SECTIONS = {
    text.partition("\n")[0]: text
    for text in (ROOT / "CONTRIBUTING.md").read_text().split("\n## ")[1:]
}
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
NAMED = re.compile(r"(?:# (\S+)|\{# (\S+) #\})\n")
PROGRAMS = {
    "torchrun": ["-m", "torch.distributed.run"],
    "pytest": ["-m", "pytest", "-p", "no:cacheprovider"],
}


def blocks(section):
    return [(kind, text) for kind, text in FENCE.findall(SECTIONS[section])]


def written(section, folder):
    """Write the section's files."""
    for kind, text in blocks(section):
        if kind == "console":
            continue
        name = NAMED.match(text)
        assert name, f"a block of {section!r} has no file's name in its first line"
        file = folder / (name[1] or name[2])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def commands(section):
    """Commands, and the status that each is said to end with."""
    for kind, text in blocks(section):
        for line in text.splitlines() if kind == "console" else []:
            assert line.startswith("$ ")
            command, _, said = line[2:].partition("   # status ")
            yield shlex.split(command), int(said or 0)


RUN = [name for name in SECTIONS if list(commands(name))]


def test_every_kind_of_change_has_its_example():
    kinds = ("algorithm", "account", "lower bound", "adversary", "claim", "study")
    assert all(blocks(f"A new {kind}") for kind in kinds)
    assert [f"A new {kind}" for kind in kinds[:-1]] == RUN


@pytest.mark.full
@pytest.mark.parametrize("section", RUN)
def test_an_example_runs(section, tmp_path, monkeypatch, capsys):
    written(section, tmp_path)
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for file in tmp_path.glob("*.py"):
        monkeypatch.delitem(sys.modules, file.stem, raising=False)
    for (program, *arguments), status in commands(section):
        if program == "privaudit":
            assert main(arguments) == status, (arguments, capsys.readouterr())
            continue
        done = subprocess.run(
            [sys.executable, *PROGRAMS[program], *arguments],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", **paths},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == status, (program, arguments, done.stdout, done.stderr)


class TestChoco:
    """The example of an algorithm, with its row of expectations."""

    @pytest.fixture
    def case(self, tmp_path, monkeypatch):
        from tests.trainers import contract

        written("A new algorithm", tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(contract, "FACTS", dict(contract.FACTS))
        for name in ("choco", "facts"):
            monkeypatch.delitem(sys.modules, name, raising=False)
            importlib.import_module(name)
        return contract.Case("choco:Choco")

    def test_gossip_keeps_the_mean(self, case):
        from tests.trainers.algorithms.test_algorithms import TestConservation

        TestConservation().test_mixing_keeps_the_mean(case, "ring")
        TestConservation().test_agreement_without_gradients_stays(case)

    def test_it_minimises_and_is_descent_alone(self, case):
        from tests.trainers.algorithms.test_algorithms import TestReduction

        TestReduction().test_a_quadratic_is_minimised(case, "ring")
        TestReduction().test_one_node_is_what_it_should_be(case)

    def test_with_all_sent_and_gamma_1_it_is_plain_gossip(self, case):
        """x <- W (x - eta G(x)): what `Sgp` does on such weights."""
        import torch

        from tests.trainers.contract import Case, Quadratic
        from tests.trainers.problems import start

        case = Case("choco:Choco", {"share": 1.0, "gamma": 1.0})
        begin = start(4, nodes=5)
        models = case.network(5).run(begin, Quadratic(5), 20)
        others = Case("sgp").network(5).run(begin, Quadratic(5), 20)
        torch.testing.assert_close(models, others)


def test_a_study(tmp_path, monkeypatch):
    study = pytest.importorskip("reports.study")
    written("A new study", tmp_path)
    reports = importlib.import_module("reports")
    folder = tmp_path / "reports"
    monkeypatch.setattr(reports, "__path__", [*reports.__path__, str(folder)])
    monkeypatch.setattr(study, "HERE", folder)
    noise = study.Study("noise")
    results = noise.compute(quick=True)
    (page,) = noise.rendered(results).values()
    assert f"{results['rounds 10']:.3f}" in page
