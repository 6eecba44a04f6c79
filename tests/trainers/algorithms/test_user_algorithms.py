"""A user's own ``module:Class`` is as good as a name of the registry."""

import json
import sys

import pytest

from privaudit.cli import main
from privaudit.files.user_code import ForeignError
from trainers import contract
from trainers.algorithms import ALGORITHMS, family_named
from trainers.network.mixing import Mixing
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Oracle
from trainers.runs.training import training_from

MODULE = """
import dataclasses
from trainers.algorithms import Family, Options
from trainers.algorithms.dsgd import Dsgd, State
from trainers.algorithms.dinno import Dinno, DinnoFamily, DinnoOptions

@dataclasses.dataclass(frozen=True)
class Slow(Dsgd):
    factor: float = 0.5
    name: str | None = None
    needs = ("doubly stochastic", "connected")
    defaults = {"step_size": 0.25, "nodes": 5}
    def __post_init__(self):
        if self.factor <= 0:
            raise ValueError(f"factor must be > 0, got {self.factor}")
    def round(self, state, inbox, private, k):
        down = self.factor * self.step_size(k) * private.gradient(at=state.theta)
        return State(inbox["theta"] - down)

class Plain(Slow):
    private = False

class Twice(Slow):
    def releases(self, rounds):
        return 2 * rounds
    def round(self, state, inbox, private, k):
        private.gradient(at=state.theta)
        return super().round(state, inbox, private, k)

@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnFamily(Family):
    make: object = Dsgd
    private: bool = True

DUALS = DinnoFamily(make=Dinno, private=True, options=DinnoOptions)

class Fails(Slow):
    def round(self, state, inbox, private, k):
        return state.nothing

class Looks(Slow):
    def round(self, state, inbox, private, k):
        from tests.zoo.test_mixing import FOR_ALL
        with FOR_ALL[self.name]():
            return super().round(state, inbox, private, k)

class NoRound:
    def __init__(self, step_size): ...
    def init(self, start): ...
    def messages(self, state, k): ...
    def models(self, state): ...

class NoStep(Slow):
    def __init__(self): ...

class NoDefault(Slow):
    def __init__(self, step_size, factor): ...

class BadDefault(Slow):
    def __init__(self, step_size, factors=()): ...

class BadType(Slow):
    def __init__(self, step_size, factor: list | tuple = None): ...

class NeedsMore(Family): ...

def function(member, seed): return member * 1.0

number = 3
"""
SMALL = ["model=softmax", "rounds=3", "batch-size=32", "train=300"]
SETTINGS = [part for setting in SMALL for part in ("--set", setting)]


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    """A module of a user, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_gossip", raising=False)
    (tmp_path / "my_gossip.py").write_text(MODULE)


def training(name, **more):
    return training_from({"algorithm": f"my_gossip:{name}", **more}, where="a test")


class TestFamily:
    def test_a_class_says_what_it_is(self):
        slow = training("Slow", factor=0.125)
        assert slow.family.private
        assert slow.family.needs == ("doubly stochastic", "connected")
        assert slow.family.defaults == {"step_size": 0.25, "nodes": 5}
        assert slow.family.oracle is Oracle
        assert slow.make().factor == 0.125
        assert slow.options == {"factor": 0.125}  # as they were given, and no more
        assert not training("Plain").family.private

    def test_options_that_are_not_set_are_its_own(self):
        made = training("Slow").make()
        assert (made.factor, made.name) == (0.5, None)

    def test_releases(self):
        assert training("Slow", rounds=7).family.releases(training("Slow").setting())
        twice = training("Twice", rounds=7)
        assert twice.family.releases(twice.setting()) == 14

    def test_a_family_goes_as_well(self):
        duals = training("DUALS", inner_steps=3, rounds=7)
        assert duals.family.releases(duals.setting()) == 21
        own = training("OwnFamily")
        assert type(own.make()) is type(ALGORITHMS["dp-dsgd"].make(lambda k: 1.0))

    def test_its_options_are_one_type(self):
        first, second = training("Slow"), training("Slow")
        assert first.family.options is second.family.options
        assert first == second

    def test_what_the_graph_must_be_is_asked(self):
        slow = training("Slow")
        wrong = Mixing([[0.5, 0.5], [0.25, 0.75]])
        with pytest.raises(ValueError, match=r"SLOW is not valid .* doubly stochastic"):
            slow.family.runner(slow.make(), wrong)

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("my_gossip:NoRound", r"has no method round\(state, inbox, private, k\)"),
            ("my_gossip:NoStep", "takes no step size"),
            ("my_gossip:NoDefault", "the option factor of .* has no plain default"),
            ("my_gossip:BadDefault", "the option factors of .* has no plain default"),
            ("my_gossip:BadType", "option of my_gossip:BadType is of no plain type"),
            ("my_gossip:NeedsMore", "cannot be made without arguments"),
            ("my_gossip:function", "is no algorithm, but of type function"),
            ("my_gossip:number", "is no algorithm, but of type int"),
            ("my_gossip:Nothing", "my_gossip has no class Nothing"),
            ("no_gossip:Slow", "cannot import no_gossip"),
            ("gossip", "choose one of dp-sgd, .* or your own as module:Class"),
        ],
    )
    def test_what_is_wrong_is_said_in_a_sentence(self, name, says):
        with pytest.raises(ValueError, match=says):
            family_named(name)

    def test_its_settings_are_checked_as_others_are(self):
        with pytest.raises(ValueError, match="factor must be > 0, got -1"):
            training("Slow", factor=-1)
        with pytest.raises(ValueError, match="did you mean factor"):
            training("Slow", factr=1)
        with pytest.raises(ValueError, match="Expected `float`"):
            training("Slow", factor="x")

    @pytest.mark.parametrize("name", ["functions", "modules", "what is saved"])
    def test_it_sees_releases_alone(self, name):
        """No mode or hook that it sets is there while records' gradients are taken."""
        problem = contract.Case("my_gossip:Looks", {"name": name}).problem
        with pytest.raises(ValueError, match="is set for all of torch"):
            problem.train(1.0, Streams(0))

    def test_what_fails_in_it_is_told_as_its_own(self):
        with pytest.raises(ForeignError, match=r"Fails.round: .*'nothing'.*gossip.py"):
            training("Fails").make().round(None, None, None, 0)


class TestCommands:
    """By the real command line; sweeps and ranks: `tests/test_contributing.py`."""

    def test_train_show_and_verify(self, capsys):
        begun = ["train", "my_gossip:Slow", *SETTINGS, "--seed", "1", "--epsilon", "4"]
        assert main([*begun, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["algorithm"] == "my_gossip:Slow"
        assert found["out"] == "runs/train-my_gossip-Slow"
        assert found["certified"] <= 4
        with open(f"{found['out']}/config.json") as file:
            assert json.load(file)["training"]["algorithm"] == "my_gossip:Slow"
        for command in ("show", "verify", "report"):
            assert main([command, found["out"]]) == 0
        said = capsys.readouterr().out
        assert "the ledger against the settings, which needs my_gossip:Slow" in said
        with open(f"{found['out']}/ledger.json") as file:
            (assumed,) = json.load(file)["assumes"]
        assert assumed.startswith("the code of the algorithm my_gossip:Slow takes")

    def test_a_folder_is_read_without_its_code(self, capsys, tmp_path):
        begun = ["train", "my_gossip:Slow", *SETTINGS, "--noise-multiplier", "9"]
        assert main(begun) == 0
        (tmp_path / "my_gossip.py").write_text("raise RuntimeError('was run')")
        sys.modules.pop("my_gossip")
        for command in ("show", "verify", "report"):
            assert main([command, "runs/train-my_gossip-Slow"]) == 0

    def test_more_releases_than_were_planned_are_accounted(self, capsys):
        there = "my_gossip:Hidden"
        with open("my_gossip.py", "a") as file:
            file.write("\nclass Hidden(Twice):\n    releases = None\n")
        begun = ["train", there, *SETTINGS, "--epsilon", "1", "--json"]
        assert main(begun) == 1
        found = json.loads(capsys.readouterr().out)
        assert found["verdict"] == "disproved"

    def test_an_audit_tells_a_class_from_a_function(self, capsys):
        few = ["--runs", "20", "--noise-multiplier", "1", "--json"]
        assert main(["audit", "my_gossip:Slow", *SETTINGS, *few]) in (0, 1)
        assert json.loads(capsys.readouterr().out)["certified"] is not None
        program = ["my_gossip:function", "--runs", "20", "--json"]
        assert main(["audit", *program]) == 2
        assert "privaudit audit-program" in capsys.readouterr().err
        assert main(["audit-program", *program]) in (0, 1)
        assert json.loads(capsys.readouterr().out)["certified"] is None

    def test_what_fails_ends_with_a_sentence(self, capsys):
        noisy = ["--noise-multiplier", "1", *SETTINGS]
        assert main(["train", "my_gossip:Fails", *noisy]) == 3
        assert "privaudit: my_gossip:Fails.round: Attrib" in capsys.readouterr().err
        assert main(["train", "my_gossip:NoRound", *noisy]) == 2
        assert main(["audit", "my_gossip:Nothing", *noisy]) == 2
        assert "my_gossip has no" in capsys.readouterr().err
