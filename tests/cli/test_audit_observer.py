"""`privaudit audit --observer`: attacks by what one observer sees, and its account."""

import json

import numpy as np
import pytest

from privaudit.accounting import Certificate
from privaudit.accounting.views import observed
from privaudit.auditing.attacks import ADVERSARIES, Scene
from privaudit.auditing.attacks.canaries import CANARIES
from privaudit.auditing.experiments.presets import training_named
from privaudit.cli import main
from privaudit.ledger import Ledger
from privaudit.report.attempts import together
from privaudit.report.load import load
from trainers.runs.problem import Problem

RUN = [
    *["audit", "dp-butterfly", "--canary", "gradient", "--runs", "60"],
    *["--noise-multiplier", "2", "--epsilon", "9", "--set", "rounds=6"],
]


def made(path, *more):
    """The folder of such an audit."""
    assert main([*RUN, *more, "--out", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory.mktemp("audits") / "any", "--observer", "any-node")


class TestSound:
    def test_the_account_is_that_of_the_observer(self, folder, capsys):
        assert main(["show", str(folder), "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)["runs"]
        ledger = Ledger.from_json((folder / "ledger.json").read_text())
        claim = load(folder).config.claim
        right = Certificate.of(observed(ledger, "any-node"), claim.relation)
        every = Certificate.of(ledger, claim.relation).epsilon(claim.delta).upper
        assert found["certified"] == right.epsilon(claim.delta).upper < 0.9 * every
        assert found["observer"] == "any-node"
        assert found["gap"]["account"] < 0.1

    def test_each_figure_says_for_whom(self, folder, capsys):
        assert main(["show", str(folder)]) == 0
        lines = capsys.readouterr().out.splitlines()
        for line in lines[1:4]:
            assert "seen by any one other node" in line

    def test_its_evidence_is_checked(self, folder, capsys):
        assert main(["verify", str(folder)]) == 0
        file = folder / "config.json"
        text = file.read_text()
        file.write_text(text.replace('"observer": "any-node"', '"observer": "1"'))
        assert main(["verify", str(folder)]) != 0
        file.write_text(text)

    def test_audits_for_others_are_of_another_claim(self, folder):
        two = made(folder.parent / "two", "--observer", "2,3")
        same = made(folder.parent / "same", "--observer", "2,3", "--seed", "1")
        runs = [load(path) for path in (folder, two, same)]
        (found,) = together(runs)
        assert {one.path.name for one in found.attempts} == {"two", "same"}
        assert "seen by nodes 2,3 together" in str(found)


class TestSees:
    """What of the engine's run reaches the attack."""

    def heard(self, observer, graph="butterfly", **settings):
        texts = [f"{name}={value}" for name, value in settings.items()]
        training = training_named(
            f"dp-{graph}", [f"graph={graph}", "nodes=4", "rounds=12", *texts]
        )
        problem = Problem.of(training)
        scene = Scene(
            problem=problem,
            canary=CANARIES["gradient"](problem, 0),
            noise_multiplier=1.0,
            start=problem.start(0)[0, 0],
            observer=observer,
        )
        return ADVERSARIES["observer"](scene)

    def test_what_is_known_is_what_the_account_says(self):
        # Projection of the canary's noises on what is seen: 1 / s_t, by the account.
        for graph in ("butterfly", "chain"):
            for observer in ("1", "2", "2,3", "any-node", "everybody"):
                reader = self.heard(observer, graph).reader
                told = reader.known[np.ix_(reader.map.own, reader.map.own)]
                assert abs(told - np.diag(told.diagonal())).max() < 1e-9
                steps = Ledger.of(_release(), len(told), nodes=4)
                if observer == "any-node":
                    parts = [
                        _mu2(observed(steps, str(node), graph=graph))
                        for node in (1, 2, 3)
                    ]
                    assert told.trace() == pytest.approx(max(parts))
                else:
                    seen = observed(steps, observer, graph=graph)
                    assert told.trace() == pytest.approx(_mu2(seen))

    def test_a_wire_hears_no_more_than_all_and_not_nothing(self):
        wire = self.heard("edge:0-1").reader.known.diagonal()
        every = self.heard("everybody").reader.known.diagonal()
        assert 0 < wire[:4].sum() < every[:4].sum()

    def test_the_attacker_is_named(self):
        assert "by nodes 2,3 together" in self.heard("2,3").sees


def _release():
    from privaudit.release import NoSampling, Release

    return Release.of_sum(norm_bound=1.0, noise_multiplier=1.0, sampling=NoSampling())


def _mu2(ledger):
    return sum(entry.count / entry.release.noise**2 for entry in ledger.nodes[0])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            ["dp-dsgd", "--observer", "1"],
            "proved for dp-butterfly, dp-chain, dp-mf-butterfly",
        ),
        (["dp-butterfly", "--observer", "0"], "the canary is at node 0"),
        (["dp-butterfly", "--observer", "9"], "there is no node 9"),
        (
            ["dp-butterfly", "--observer", "1", "--adversary", "final-loss"],
            "final-loss sees something else",
        ),
        (["dp-butterfly", "--observer", "1", "--one-run"], "leave --observer"),
        (["dp-butterfly", "--observer", "me"], "an observer is a node"),
    ],
)
def test_bad_usage_is_one_sentence(capsys, tmp_path, more, words):
    assert main(["audit", *more, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
