"""Contract of privaudit.schedules."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.schedules import (
    Constant,
    Geometric,
    Growing,
    Listed,
    Quotient,
    Schedule,
    Shrinking,
    values_of,
)

ALL = (
    Constant(2.0),
    Growing(0.5, 3.0),
    Shrinking(7.0, 10.0),
    Geometric(0.1, 0.0005),
    Listed((1.0, 2.0, 5.0, 4.0)),
    Quotient(Shrinking(7.0, 2.0), Growing(0.5, 3.0)),
)


class TestLaws:
    @pytest.mark.parametrize("schedule", ALL)
    def test_a_call_is_one_of_the_values(self, schedule):
        values = schedule.values(4)
        assert values.shape == (4,)
        assert [schedule(k, 4) for k in range(4)] == values.tolist()
        for k in (-1, 4):
            with pytest.raises(ValueError, match=r"not one of 0, \.\.\., 3"):
                schedule(k, 4)

    @pytest.mark.parametrize("schedule", ALL)
    def test_survives_json_and_is_frozen(self, schedule):
        text = msgspec.json.encode(schedule)
        assert msgspec.json.decode(text, type=Schedule) == schedule
        assert hash(schedule) == hash(msgspec.json.decode(text, type=Schedule))
        with pytest.raises(AttributeError):
            schedule.value = 3

    def test_an_unknown_field_or_type_is_refused(self):
        for text in (
            b'{"type": "constant", "value": 1, "rho": 2}',
            b'{"type": "falling", "value": 1}',
        ):
            with pytest.raises(msgspec.ValidationError):
                msgspec.json.decode(text, type=Schedule)

    @given(st.floats(1e-3, 10), st.floats(1e-3, 10), st.integers(0, 100))
    def test_geometric_takes_both_ends(self, initial, final, steps):
        values = Geometric(initial, final).values(steps)
        assert len(values) == steps
        if steps:
            assert values[0] == initial
        if steps > 1:
            assert values[-1] == final
            factors = values[1:] / values[:-1]
            np.testing.assert_allclose(factors, factors[0], rtol=1e-9)

    @given(st.floats(0.1, 10), st.floats(1, 10), st.integers(1, 100))
    def test_the_paper_s_indices(self, initial, rho, steps):
        # k = 0, ..., K - 1: the last value stops one step short of rho.
        growing = Growing(initial, rho).values(steps)
        assert growing[0] == initial
        assert growing[-1] == pytest.approx(initial * rho ** ((steps - 1) / steps))
        assert Shrinking(initial, rho).values(steps) * growing == pytest.approx(
            np.full(steps, initial**2)
        )

    def test_noise_of_dyn_d2p(self):
        # sigma_k = C0/mu0 (rho_c rho_mu)^(-k/K)
        noise = Quotient(Shrinking(7.0, 2.0), Growing(0.5, 3.0))
        expected = Shrinking(14.0, 6.0).values(10)
        assert noise.values(10) == pytest.approx(expected)

    def test_no_steps(self):
        assert Growing(1.0, 2.0).values(0).shape == (0,)


class TestListed:
    def test_reads_a_column(self, tmp_path):
        path = tmp_path / "steps.csv"
        path.write_text("noise_multiplier,sampling_rate\n1.5,0.1\n2,0.2\n")
        assert Listed.from_csv(path, "sampling_rate").items == (0.1, 0.2)
        with pytest.raises(ValueError, match=r"missing: mu.*noise_multiplier"):
            Listed.from_csv(path, "mu")

    @pytest.mark.parametrize("cell", ["x", "", "0", "nan", "-1"])
    def test_a_bad_cell_is_named(self, tmp_path, cell):
        path = tmp_path / "steps.csv"
        path.write_text(f"mu,other\n1,1\n{cell},1\n")
        with pytest.raises(ValueError, match=r"steps\.csv, column 'mu'"):
            Listed.from_csv(path, "mu")

    def test_runs_out(self):
        assert Listed((1.0, 2.0)).values(1).tolist() == [1.0]
        with pytest.raises(ValueError, match="lists 2 steps, 3 were asked"):
            Listed((1.0, 2.0)).values(3)


class TestValuesOf:
    def test_takes_schedules_and_lists(self):
        assert values_of(Constant(2.0), 2).tolist() == [2.0, 2.0]
        assert values_of([1, 2]).tolist() == [1.0, 2.0]

    @pytest.mark.parametrize(
        ("what", "steps", "words"),
        [
            (Constant(1.0), None, "needs the number of steps"),
            ([1.0, 2.0], 3, "3 values are needed"),
            ([1.0, 0.0], None, "step 1 must be > 0, got 0.0"),
            ([math.inf], None, "step 0"),
        ],
    )
    def test_refuses(self, what, steps, words):
        with pytest.raises(ValueError, match=words):
            values_of(what, steps)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Constant(0.0), "value must be > 0"),
        (lambda: Growing(1.0, 0.5), "rho must be >= 1"),
        (lambda: Shrinking(math.nan, 2.0), "initial must be > 0"),
        (lambda: Listed(()), "at least one"),
        (lambda: Listed((1.0, -1.0)), "step 1"),
        (lambda: Constant(1.0).values(-1), "steps must be >= 0"),
    ],
)
def test_refuses_with_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()
