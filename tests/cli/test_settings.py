"""What --set takes is told: after an algorithm's help, and where it was left out."""

import subprocess
import sys

import pytest

from privaudit.cli import main
from privaudit.cli.settings import lines
from privaudit.task_settings import TaskSettings
from trainers import recipes
from trainers.algorithms import ALGORITHMS
from trainers.recipes import names


class TestHelp:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_every_setting_has_a_value_and_a_meaning(self, algorithm):
        told = lines("train", algorithm)
        family = ALGORITHMS[algorithm]
        defaults = {**family.defaults}
        wanted = {*TaskSettings.__struct_fields__, *family.options.__struct_fields__}
        for name in wanted - {"algorithm", "options"}:
            at = [
                n
                for n, line in enumerate(told)
                if any(
                    word.startswith((f"{name}=", f"{name} (not set)"))
                    for word in line.split("  ")
                )
            ]
            assert at, name
            assert told[at[0] + 1].startswith("      "), name  # what it means
            if name in defaults and name not in ("digits", "optimiser", "sampling"):
                value = defaults[name]
                shown = f"{value:g}" if isinstance(value, float) else str(value)
                assert f"{name}={shown}" in told[at[-1]], name

    def test_it_follows_the_commands_own_help(self, capsys):
        assert main(["train", "dp-dinno", "--help"]) == 0
        out = capsys.readouterr().out
        assert out.index("--epsilon") < out.index("Settings of dp-dinno")
        assert "rho=0.1" in out
        assert main(["audit", "dp-dsgd", "--help"]) == 0
        assert "Settings of dp-dsgd" in capsys.readouterr().out
        assert main(["train", "--help"]) == 0
        assert "Settings of" not in capsys.readouterr().out

    def test_what_is_no_algorithm_is_said(self, capsys):
        assert main(["train", "dp-dsgdd", "--help"]) == 2
        assert "did you mean dp-dsgd?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--graph", "ring"], "--graph is a setting: use --set graph=..."),
        (["--gain", "8"], "--gain is a setting: use --set gain=..."),
        (["--rho", "3"], "--rho is a setting: use --set rho=..."),
        (["graph=ring"], "graph=ring is a setting: use --set graph=ring"),
        (["--grap", "ring"], "Unknown option"),
        (["graph"], "graph is more than it takes"),
        (["patients.csv"], "give --data FILE.toml"),
        (["--seed", "1", "--seed", "2"], "--seed is given more than once"),
    ],
)
@pytest.mark.parametrize("command", ["train", "audit", "probe"])
def test_a_setting_by_itself(capsys, command, arguments, said):
    assert main([command, "dp-dsgd", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_recipes_are_listed_without_torch():
    program = (
        "import sys; from privaudit.cli import main; main(['recipes', 'list']); "
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    listed = [line.split()[0] for line in done.stdout.splitlines()]
    assert listed == names()
    for name, one in recipes.listed().items():  # as they are when they are checked
        whole = recipes.named(name)
        assert (one.algorithm, one.title) == (whole.values["algorithm"], whole.title)
        assert (one.epsilon, [*one.at_epsilon]) == (whole.epsilon, [*whole.at_epsilon])
