"""From a file to the audits of a sweep."""

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from privaudit.auditing.experiments.presets import AUDITED, training_upon
from privaudit.auditing.experiments.sweep import Sweep
from trainers.runs.training import Training


def planned(text):
    import tomllib

    return Sweep.of(tomllib.loads(text), where="f.toml")


# Names that are given; "dsgd" is what the last audit is called by its settings.
_NAMES = st.text(min_size=1, max_size=300).filter(lambda name: name != "dsgd")
GRID = """
[all]
runs = 400
[grid]
algorithm = ["dp-dsgd", "dp-dsgt"]
epsilon = [1.0, 4.0]
canary = ["blank", "gradient"]
[[audit]]
algorithm = "dp-dinno"
inner-steps = 3
noise_multiplier = 2.0
runs = 100
[[audit]]
name = "ours"
algorithm = "dsgd"
digits = [0, 1]
"""


class TestLaws:
    def test_a_product_and_more(self):
        audits = {one.name: one for one in planned(GRID).audits}
        assert len(audits) == 2 * 2 * 2 + 2
        one = audits["dp-dsgt,epsilon=4,canary=gradient"]
        assert one.calibrate
        assert one.audit.claim.epsilon == 4
        assert one.audit.canary == "gradient"
        assert one.audit.runs == 400
        assert one.audit.training == training_upon("dp-dsgt", {}, AUDITED, "")
        dinno = audits["dp-dinno,inner_steps=3,noise_multiplier=2,runs=100"]
        assert not dinno.calibrate
        assert dinno.audit.noise_multiplier == 2
        assert dinno.audit.training.options["inner_steps"] == 3
        assert dinno.audit.runs == 100
        assert audits["ours"].audit.training.digits == (0, 1)
        assert not audits["ours"].calibrate  # it adds no noise
        assert audits["ours"].audit.noise_multiplier == 0

    def test_settings_by_their_former_names(self):
        text = '[all]\n{} = 20.0\n[[audit]]\nname = "one"\nalgorithm = "dp-dsgd"\n'
        assert planned(text.format("batch-size")) == planned(text.format("batch_size"))
        given = {"batch_size": 20.0}
        found = training_upon("dp-dsgd", given, AUDITED, "a file of claims")
        assert found.batch_size == 20
        rate = training_upon("dp-mf", {"sampling_rate": 0.1}, AUDITED, "--set")
        assert (rate.batch_size, rate.sampling_rate) == (UNSET, 0.1)

    def test_a_name_follows_from_the_audit_alone(self):
        more = GRID.replace('"dp-dsgt"]', '"dp-dsgt", "dp-sgd"]')
        before, after = planned(GRID).audits, planned(more).audits
        assert len(after) == len(before) + 4
        assert {one.name: one for one in before}.items() <= {
            one.name: one for one in after
        }.items()

    def test_numbers_as_text_are_read_as_by_set(self):
        (one,) = planned(
            '[[audit]]\nalgorithm = "dp-dsgd"\nstep_size = ".3"\nepsilon = ".5"'
        ).audits
        assert one.audit.training.step_size == 0.3
        assert one.audit.claim.epsilon == 0.5

    @given(st.lists(st.floats(1e-3, 1e3), unique=True, min_size=1, max_size=5))
    def test_other_numbers_other_names(self, epsilons):
        values = {"all": {"algorithm": "dsgd"}, "grid": {"epsilon": epsilons}}
        assert len(Sweep.of(values, where="x").audits) == len(epsilons)

    @given(st.lists(_NAMES, unique=True, max_size=4))
    def test_a_name_is_a_folders(self, names):
        audits = [{"algorithm": "dsgd", "name": name} for name in names]
        audits += [{"algorithm": "dsgd"}]
        found = [one.name for one in Sweep.of({"audit": audits}, where="x").audits]
        assert len(set(found)) == len(audits)
        for name in found:
            assert pathlib.PurePath(name).name == name
            assert name not in ("", ".", "..")
            assert len(name.encode()) < 255

    def test_the_example(self):
        example = pathlib.Path(__file__).parents[3] / "examples" / "sweep.toml"
        assert len(Sweep.read(example).audits) == 7

    def test_it_is_what_privaudit_audit_does(self):
        (one,) = planned('[[audit]]\nalgorithm = "dp-sgd"').audits
        audit = one.audit
        assert (audit.adversary, audit.canary, audit.estimator, audit.runs) == (
            "noisy-gradients",
            "gradient",
            "best",
            2000,
        )
        assert isinstance(audit.training, Training)
        assert audit.training.rounds == AUDITED["rounds"]


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("", "has no audit"),
            ("[gird]\nx = [1]", r"no table \[gird\]; did you mean grid\?"),
            ("[grid]\nepsilon = 1.0", r"Expected `array`.*grid"),
            ("[grid]\nepsilom = [1.0]", "'epsilom'; did you mean epsilon"),
            ("[all]\ncanery = 'blank'", r"\[all\].*did you mean canary"),
            ("[[audit]]\nalgorithm = 'dp-sgd'\nroundz = 1", "did you mean rounds"),
            ("[grid]\nalgorithm = []", "algorithm has no value"),
            ("[grid]\nepsilon = [1.0]", "says no algorithm"),
            ("[[audit]]\nalgorithm = 'dp-sgb'", "no algorithm 'dp-sgb'"),
            ("[[audit]]\nalgorithm = 'dp-sgd'\nrho = 1", "no use for rho"),
            ("[[audit]]\nalgorithm = 'dp-sgd'\nepsilon = -1", "epsilon must be > 0"),
            ("[[audit]]\nalgorithm = 'dp-sgd'\ndelta = 2", "delta must be in"),
            (
                "[[audit]]\nalgorithm = 'dp-sgd'\nepsilon = 'x'",
                "Expected `float . null`",
            ),
            ("[[audit]]\nalgorithm = 'dp-sgd'\naccount = 'x'", "no account 'x'"),
            ("[[audit]]\nalgorithm = 'dp-sgd'\nadversary = 'x'", "no adversary 'x'"),
            ("[[audit]]\nalgorithm = 'dp-sgd'\nruns = 1", "runs must be"),
            ("[[audit]]\nalgorithm = 'dp-sgd'\nnoise_multiplier = 0", "must be > 0"),
            ("[[audit]]\nalgorithm = 'dsgd'\nnoise_multiplier = 1", "adds no noise"),
            ("[[audit]]\nalgorithm = 'dp-sgd'\n" * 2, "two audits are called"),
            ("[[audit]]\nalgorithm = 'a:b'", "cannot import a: "),
        ],
    )
    def test_each_mistake_has_its_sentence(self, text, says):
        with pytest.raises(ValueError, match=says):
            planned(text)

    def test_too_many(self):
        grid = {"seed": list(range(200)), "runs": list(range(2, 102))}
        with pytest.raises(ValueError, match="20,000 audits"):
            Sweep.of({"grid": grid}, where="x")

    def test_files(self, tmp_path):
        with pytest.raises(ValueError, match="cannot be read"):
            Sweep.read(tmp_path / "none.toml")
        (tmp_path / "bad.toml").write_text("[grid")
        with pytest.raises(ValueError, match=r"bad\.toml"):
            Sweep.read(tmp_path / "bad.toml")
