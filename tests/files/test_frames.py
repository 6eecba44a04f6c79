"""pandas in and out."""

import subprocess
import sys

import numpy as np
import pytest

import privaudit as pa
from trainers.runs.outcome import Curves

pandas = pytest.importorskip("pandas")


class TestOut:
    def test_curves(self):
        curves = Curves(rounds=(0, 5), accuracy=(0.1, 0.9), consensus=(0.0, 1.5))
        expected = pandas.DataFrame(
            {"accuracy": [0.1, 0.9], "consensus": [0.0, 1.5]},
            index=pandas.Index([0, 5], name="round"),
        )
        pandas.testing.assert_frame_equal(curves.to_pandas(), expected, check_like=True)

    def test_curves_of_a_training(self):
        torch = pytest.importorskip("torch")
        inputs = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        data = inputs, (inputs.sum(1) > 0).long()
        run = pa.train(
            torch.nn.Linear(3, 2),
            data,
            nodes=2,
            epsilon=8,
            rounds=4,
            batch_size=5,
            test=data,
            seed=0,
        )
        frame = run.curves.to_pandas()
        assert list(frame["accuracy"]) == list(run.curves.accuracy)
        assert list(frame.index) == list(run.curves.rounds)

    def test_a_sweep(self, tmp_path):
        file = tmp_path / "mine.toml"
        file.write_text(
            '[all]\nruns = 20\nnodes = 2\nbatch_size = 10\nmodel = "softmax"\n'
            "rounds = 1\ntrain = 40\n"
            'digits = [0, 1]\n[grid]\nalgorithm = ["dsgd"]\n'
            '[[audit]]\nalgorithm = "dp-sgd"\n'
        )
        found = pa.sweep(file, out=tmp_path / "sweep", workers=1)
        frame = found.to_pandas()
        assert len(frame) == len(found.rows) == 2
        assert frame.index.name == "name"
        for row in found.rows:
            there = frame.loc[row.name]
            assert there["algorithm"] == row.finished.config.settings.algorithm
            assert there["certified"] == row.finished.upper.epsilon
            assert there["runs_member"] == row.finished.result.member_runs
        assert row.name in found._repr_html_()

    def test_without_pandas_it_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
            Curves().to_pandas()


class TestSchedules:
    STEPS = ((1.0, 0.01), (0.9, 0.02))

    def test_columns_are_found_by_name(self):
        frame = pandas.DataFrame(
            [(rate, 3, noise) for noise, rate in self.STEPS],
            columns=["sampling_rate", "steps", "noise_multiplier"],
            index=[7, 3],
        )
        asked = {"delta": 1e-5}
        assert pa.epsilon(schedule=frame, **asked) == pa.epsilon(
            schedule=[(*step, 3) for step in self.STEPS], **asked
        )
        with pytest.raises(ValueError, match="no use for the column 'count'"):
            pa.epsilon(schedule=frame.rename(columns={"steps": "count"}), **asked)

    def test_a_column_that_is_missing(self):
        frame = pandas.DataFrame(self.STEPS, columns=["noise_multiplier", "rate"])
        with pytest.raises(ValueError, match=r"no sampling_rate; its columns: noise_"):
            pa.epsilon(schedule=frame, delta=1e-5)

    def test_what_is_no_number(self):
        frame = pandas.DataFrame({"noise_multiplier": ["much"], "sampling_rate": [0.1]})
        with pytest.raises(ValueError, match="much"):
            pa.epsilon(schedule=frame, delta=1e-5)


class TestScores:
    coins = np.random.default_rng(0).random(400) < 0.5
    scores = np.random.default_rng(1).normal(size=400) + 3 * coins

    def test_series(self):
        index = np.random.default_rng(2).permutation(400)
        found = pa.lower_bound(
            pandas.Series(self.scores, index),
            pandas.Series(self.coins, index),
            delta=1e-5,
        )
        assert found == pa.lower_bound(self.scores, self.coins, delta=1e-5)

    def test_one_series(self):
        found = pa.lower_bound(list(self.scores), pandas.Series(self.coins), delta=1e-5)
        assert found == pa.lower_bound(self.scores, self.coins, delta=1e-5)

    def test_rows_in_another_order_are_refused(self):
        """By position this would be a bound of pairs that never were."""
        sorted_ones = pandas.Series(self.scores).sort_values()
        with pytest.raises(ValueError, match="other indices, so that rows"):
            pa.lower_bound(sorted_ones, pandas.Series(self.coins), delta=1e-5)


def test_pandas_is_imported_only_when_it_is_used():
    program = (
        "import sys, privaudit as pa\n"
        "pa.epsilon(delta=1e-5, noise_multiplier=1.0)\n"
        "pa.epsilon(delta=1e-5, schedule=[(1.0, 0.5)])\n"
        "import trainers.runs.outcome\n"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False"]
