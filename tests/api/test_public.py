"""The public list: names, docstrings, types, and what they give."""

import ast
import fractions
import inspect
import math
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import privaudit as pa
import privaudit.testing

FUNCTIONS = [name for name in pa.__all__ if inspect.isfunction(getattr(pa, name))]


class TestArguments:
    @pytest.mark.parametrize("name", [*FUNCTIONS, "AuditSettings", "ProgramSettings"])
    def test_a_name_that_is_not_known_is_answered_with_those_that_are(self, name):
        known = [*inspect.signature(getattr(pa, name)).parameters]
        if name == "views":  # takes settings of the training by name, and checks them
            return
        with pytest.raises(TypeError) as found:
            getattr(pa, name)(**{f"{known[-1]}x": 1})
        told = f"{name} has no argument '{known[-1]}x'; did you mean {known[-1]}?"
        assert str(found.value) == told

    def test_a_setting_is_told_where_it_goes(self):
        with pytest.raises(TypeError, match=r"=privaudit\.ProgramSettings\(epsilon="):
            pa.audit_program("numpy:copysign", epsilon=1)

    @pytest.mark.parametrize(
        ("call", "said"),
        [
            (lambda: pa.epsilon(delta="1e-5"), "delta must be a number, got '1e-5'"),
            (lambda: pa.epsilon(delta=None), "delta must be a number, got None"),
            (
                lambda: pa.epsilon(delta=1e-5, steps=2.5),
                "steps must be a whole number, got 2.5",
            ),
            (
                lambda: pa.noise_multiplier(epsilon=1, delta=1e-5, steps=math.nan),
                "steps must be a whole number, got nan",
            ),
            (
                lambda: pa.lower_bound([1.0], [True], delta=[1e-5]),
                "delta must be a number, got [1e-05]",
            ),
            (lambda: pa.verify(3), "folder must be a path, got 3"),
            (lambda: pa.join(["a"], overlap="b"), "overlap must be a whole number"),
            (lambda: pa.Budget(epsilon="1", delta=0), "epsilon must be a number"),
            (
                lambda: pa.audit_program("a:b", pa.AuditSettings()),
                "settings must be ProgramSettings, got AuditSettings",
            ),
            (
                lambda: pa.AuditSettings(runs=True),
                "runs must be a whole number, got True",
            ),
        ],
    )
    def test_a_value_of_another_type(self, call, said):
        with pytest.raises(ValueError, match=re.escape(said)):
            call()

    @pytest.mark.parametrize("value", [None, 3, "x", [], object(), math.nan, [None]])
    def test_nothing_is_of_every_type(self, value):
        """What takes none of these says so in a line of its own, and never takes it."""
        step = pa.Release.of_sum(
            norm_bound=1.0, noise_multiplier=2.0, sampling=pa.NoSampling()
        )
        certificate = pa.Certificate.of(pa.Ledger.of(step))
        for call in (
            pa.replace_batch_norm,
            pa.Certificate.of,
            pa.Ledger.of,
            lambda x: pa.Ledger.joined([x]),
            lambda x: pa.Ledger.composed([x]),
            lambda x: pa.Ledger(nodes=x),
            lambda x: pa.Ledger(nodes=(x,)),
            pa.Ledger.from_json,
            pa.Claim.from_json,
            lambda x: pa.mechanisms.RDP(x, x),
            pa.join,
            lambda x: pa.testing.neighbours(x, relation="replace-one"),
            certificate.node,
        ):
            with pytest.raises(ValueError, match=r"^[^\n]+$"):
                call(value)
        for call in (
            pa.mechanisms.ZCDP,
            lambda x: pa.mechanisms.EpsilonDelta(1.0, x),
            lambda x: pa.mechanisms.DiscreteGaussian(1.0, x),
            lambda x: pa.Release.of_sum(
                norm_bound=1.0, noise_multiplier=x, sampling=pa.NoSampling()
            ),
            certificate.delta,
            lambda x: certificate.meets(x, 1e-5),
            certificate.epsilon,
            lambda x: pa.Ledger.of(step, x),
            lambda x: pa.Ledger.of(step, nodes=x),
            lambda x: pa.Certificate.of(pa.Ledger.of(step), group=x),
            lambda x: pa.testing.assert_accounts([(9.0, 0.01, 1)], x, 1e-5),
        ):
            if value != 3:
                with pytest.raises(ValueError, match=r"^[^\n]+$"):
                    call(value)

    def test_what_is_said_of_a_figure_is_one_of_few_words(self):
        said = {"epsilon": 1, "delta": 0, "method": "m", "source": "s"}
        for name in ("relation", "unit", "standing", "sampling"):
            given = {"relation": "replace-one", "standing": "certified", name: "x"}
            with pytest.raises(ValueError, match=f"^{name} must be .* or "):
                pa.UpperBound(**said, **given)

    def test_a_sampling_that_there_is_not_is_no_other(self):
        torch = pytest.importorskip("torch")
        data = torch.zeros(9, 2), torch.arange(9) % 2
        how = {"noise_multiplier": 1, "clip_norm": 1, "batch_size": 3, "nodes": 1}
        said = r"sampling must be poisson, .* got Poisson"
        with pytest.raises(ValueError, match=said):
            pa.oracle(torch.nn.Linear(2, 2), data, **how, sampling="Poisson")

    def test_seeds_are_not_negative(self):
        torch = pytest.importorskip("torch")
        data = torch.zeros(9, 2), torch.arange(9) % 2
        for call in (
            lambda: pa.train(
                torch.nn.Linear(2, 2), data, noise_multiplier=1, nodes=2, public_seed=-1
            ),
            lambda: pa.probe(lambda data, seed: data.sum(0), seed=-1),
        ):
            with pytest.raises(ValueError, match="seed must be >= 0, got -1"):
                call()

    def test_numbers_of_other_libraries_are_numbers(self):
        run = {"delta": np.float32(1e-3), "noise_multiplier": np.float64(2)}
        more = {"sampling_rate": fractions.Fraction(1, 4), "steps": np.int64(10)}
        assert pa.epsilon(**run, **more).upper > 0
        assert pa.epsilon(**run, steps=1e2) == pa.epsilon(**run, steps=100)


class TestList:
    def test_every_name_is_there_and_in_the_map(self):
        for name in pa.__all__:
            assert getattr(pa, name).__name__.removeprefix("privaudit.") == name
            assert name in pa.__doc__
        assert set(pa.__all__) <= set(dir(pa))

    def test_its_types_are_those_of_the_stub(self):
        stub = pathlib.Path(pa.__file__).with_suffix(".pyi")
        found = {
            alias.asname: (node.module, alias.name)
            for node in ast.parse(stub.read_text()).body
            for alias in node.names
        }
        assert found.pop("__version__") == ("privaudit.version", "__version__")
        assert sorted(found) == sorted(pa.__all__)
        assert found.pop("mechanisms") == ("privaudit", "mechanisms")  # a module
        for name, (module, own) in found.items():
            assert getattr(sys.modules[getattr(pa, name).__module__], own) is getattr(
                pa, name
            )
            assert getattr(pa, name).__module__ == module

    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_a_docstring_says_all(self, name):
        text = inspect.getdoc(getattr(pa, name))
        for part in ("Parameters", "Raises", "Examples", ">>>"):
            assert part in text
        given = inspect.signature(getattr(pa, name)).parameters
        for one in given:
            assert one in text

    def test_importing_it_imports_nothing(self):
        heavy = "{'numpy', 'torch', 'scipy'}"
        program = f"import sys, privaudit; print(*{heavy} & {{*sys.modules}})"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == []

    def test_an_unknown_name_is_one_sentence(self):
        with pytest.raises(AttributeError, match="privaudit has no epsilom; it has"):
            _ = pa.epsilom


class TestEpsilon:
    def test_one_figure_whichever_way_it_is_said(self):
        said = {"sampling_rate": 0.02, "steps": 50}
        one = pa.epsilon(delta=1e-5, noise_multiplier=1.1, **said)
        schedule = pa.epsilon(delta=1e-5, schedule=[(1.1, 0.02)] * 50)
        release = pa.Release.of_sum(
            norm_bound=3.0, noise_multiplier=1.1, sampling=pa.PoissonSampling(0.02)
        )
        ledger = pa.epsilon(delta=1e-5, ledger=pa.Ledger.of(release, 50))
        assert one.upper == pytest.approx(schedule.upper, rel=2e-3)
        assert one.upper == pytest.approx(ledger.upper, rel=1e-9)
        assert one.relation == "add-or-remove-one"
        assert isinstance(one, pa.Bracket)

    def test_equal_steps_in_a_row_are_one_row(self):
        short = [(1.4, 0.004, 25), (1.0, 0.008, 75)]
        long = [(1.4, 0.004)] * 25 + [(1.0, 0.008)] * 75
        assert pa.epsilon(delta=1e-5, schedule=short) == pa.epsilon(
            delta=1e-5, schedule=long
        )

    def test_a_ledger_is_read_from_its_file(self, tmp_path):
        ledger = pa.ledger_from([(1.0, 0.01, 10)])
        path = tmp_path / "ledger.json"
        path.write_text(ledger.to_json())
        assert pa.epsilon(delta=1e-5, ledger=path) == pa.epsilon(
            delta=1e-5, ledger=ledger
        )

    def test_an_exact_gaussian(self):
        found = pa.epsilon(delta=1e-5, noise_multiplier=1.0)
        assert found.lower <= found.upper
        assert found.lower == pytest.approx(4.377178, rel=1e-6)  # dp-accounting's

    def test_laplace_noise(self):
        """One release in closed form: 1 / scale + 2 log(1 - delta)."""
        truth = 0.5 + 2 * math.log1p(-0.01)
        said = {"delta": 0.01, "mechanism": "laplace"}
        found = pa.epsilon(noise_multiplier=2.0, **said)
        assert found.lower <= truth * (1 + 1e-9)
        assert truth <= found.upper * (1 + 1e-9) <= truth * 1.002
        noise = pa.noise_multiplier(epsilon=truth, **said)
        assert noise == pytest.approx(2.0, rel=2e-3)
        with pytest.raises(ValueError, match="gaussian or laplace, got 'cauchy'"):
            pa.epsilon(delta=0.01, noise_multiplier=2.0, mechanism="cauchy")

    def test_fixed_batches_are_of_replace_one(self):
        found = pa.epsilon(
            delta=1e-5,
            noise_multiplier=4.0,
            sampling_rate=0.01,
            steps=10,
            sampling="without-replacement",
        )
        assert found.relation == "replace-one"

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({}, "just one of .* got 0"),
            ({"noise_multiplier": 1, "schedule": [(1, 1)]}, "got 2"),
            ({"schedule": [(1, 1)], "steps": 3}, "leave sampling_rate"),
            ({"schedule": [1, 2]}, r"shape \(2,\)"),
            ({"schedule": [(2, 0.1, 9), (2, 0.1)]}, "three in every row"),
            ({"schedule": [(1, 1, 0.5)]}, "row 0: steps must be a whole number"),
            ({"noise_multiplier": 0}, "noise_multiplier must be > 0"),
            ({"noise_multiplier": 1, "sampling_rate": 2}, "sampling_rate"),
            ({"noise_multiplier": 1, "relation": "x"}, "relation must be add-or-"),
        ],
    )
    def test_what_is_wrong_is_one_sentence(self, given, words):
        with pytest.raises(ValueError, match=words):
            pa.epsilon(delta=1e-5, **given)


class TestNoise:
    @pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
    def test_the_budget_is_met_and_less_noise_does_not(self, sampling):
        run = {"delta": 1e-5, "sampling_rate": 0.05, "steps": 20, "sampling": sampling}
        z = pa.noise_multiplier(epsilon=2, **run)
        assert pa.epsilon(noise_multiplier=z, **run).upper <= 2 * (1 + 1e-3)
        assert pa.epsilon(noise_multiplier=0.99 * z, **run).upper > 2

    def test_what_else_is_released_is_paid_from_the_budget(self):
        besides = pa.Ledger.of(
            pa.Release.of_sum(
                norm_bound=1, noise_multiplier=20, sampling=pa.NoSampling()
            )
        )
        plan = [(1.4, 0.01, 100), (1.0, 0.02, 100)]
        budget = {"epsilon": 1, "delta": 1e-5}
        scale = pa.noise_multiplier(**budget, schedule=plan, ledger=besides)
        assert scale > 1.001 * pa.noise_multiplier(**budget, schedule=plan)
        parts = [
            besides,
            *(
                pa.Ledger.of(
                    pa.Release.of_sum(
                        norm_bound=1,
                        noise_multiplier=scale * z,
                        sampling=pa.PoissonSampling(q),
                    ),
                    steps,
                )
                for z, q, steps in plan
            ),
        ]
        assert 0.999 < pa.epsilon(delta=1e-5, ledger=parts).upper <= 1


class TestLowerBound:
    def test_noise_shows_nothing_and_a_leak_something(self):
        rng = np.random.default_rng(3)
        coins = rng.random(2000) < 0.5
        noise = rng.normal(size=2000)
        assert pa.lower_bound(noise, coins, delta=1e-5).epsilon < 0.2
        shown = pa.lower_bound(noise + 2 * coins, coins, delta=1e-5)
        assert isinstance(shown, pa.LowerBound)
        assert shown.epsilon > 1

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"method": "worst"}, "there is no method 'worst'"),
            ({"design": "coins"}, "design must be coin-flip, fixed or one-run"),
            ({"relation": "replace_one"}, "add-or-remove-one or replace-one"),
        ],
    )
    def test_what_is_wrong_is_one_sentence(self, more, words):
        coins = np.arange(40) % 2 == 0
        with pytest.raises(ValueError, match=words):
            pa.lower_bound(np.arange(40.0), coins, delta=1e-5, **more)
