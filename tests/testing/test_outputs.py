import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.testing.outputs import Reader, lowest_bit


def read(outputs, bits=False):
    return Reader(outputs, bits=bits).read(outputs)


class TestRead:
    def test_a_number_is_one_column(self):
        assert read([1.5, 2.5]).columns.tolist() == [[1.5], [2.5]]

    @pytest.mark.parametrize(
        "output",
        [
            np.array([1.0, 2.0]),
            [1.0, 2.0],
            (1, 2),
            {"a": 1, "b": [2.0]},
            np.arange(1, 3),
        ],
    )
    def test_parts_are_columns(self, output):
        assert read([output, output]).columns.tolist() == [[1.0, 2.0]] * 2

    def test_equal_floats_are_no_event_and_equal_integers_are(self):
        assert len(set(read([0.1, 0.2, 0.1]).events)) == 1
        assert len(set(read([1, 2, 1]).events)) == 2
        assert len(set(read([np.array([1, 2]), np.array([1, 3])]).events)) == 2
        assert len(set(read([[0.1, "a"], [0.2, "a"], [0.1, "b"]]).events)) == 2

    def test_shapes_and_what_is_not_finite_are_events(self):
        assert len(set(read([[0.1], [0.1, 0.2], []]).events)) == 3
        assert len(set(read([0.1, math.nan, math.inf, -math.inf]).events)) == 4
        assert len(set(read([None, "a", b"a", frozenset({1})]).events)) == 4

    def test_every_column_is_finite_and_keeps_the_order(self):
        values = [-math.inf, -1e300, -1.0, 0.0, 2.0, math.inf]
        columns = read([math.nan, *values]).columns[:, 0]
        assert np.isfinite(columns).all()
        assert (np.diff(columns) >= 0).all()
        assert np.isfinite(read([10**400, Fraction(1, 3)]).columns).all()

    def test_what_comes_later_and_was_not_seen_first_is_an_event(self):
        reader = Reader([[0.1]], bits=False)
        found = reader.read([[0.1], [0.1, 0.2]])
        assert found.columns.shape == (2, 1)
        assert len(set(found.events)) == 2

    def test_arrays_are_read_alike_fast_and_slow(self):
        arrays = [np.array([0.5, 1.5]), np.array([2.5, 3.5])]
        lists = [array.tolist() for array in arrays]
        assert (read(arrays).columns == read(lists).columns).all()


class TestLowestBit:
    @given(st.integers(-(2**52), 2**52), st.integers(-900, 900))
    def test_it_is_that_of_exact_arithmetic(self, whole, exponent):
        value = math.ldexp(whole, exponent)
        found = float(lowest_bit(np.array([value]))[0])
        if whole == 0:
            assert found == math.inf
        else:
            assert Fraction(value) / Fraction(2) ** int(found) % 2 == 1
