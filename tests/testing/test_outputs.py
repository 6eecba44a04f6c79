import enum
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.testing.outputs import Reader, Readings, lowest_bit, parts_of


def _generator():
    yield 1


async def _awaited():
    return 1


async def _streamed():
    yield 1


KINDS = {_generator: "generator", _awaited: "coroutine", _streamed: "async_generator"}


def read(outputs, bits=False):
    return Reader(bits=bits).read(outputs)


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

    def test_a_set_is_read_by_what_is_in_it(self):
        found = read([{"a", "b"}, {"b"}, frozenset("b"), set()])
        assert len(set(found.events)) == 3
        assert found.events[1] == found.events[2]
        reader = Reader(bits=False)
        reader.read([{"a", "b"}])
        assert [reader.name(at) for at in (0, 1)] == [
            "the output['a']",
            "the output['b']",
        ]

    @pytest.mark.parametrize("output", [{0.1, 0.2}, {("a", 0.1)}, {0.1, "a"}])
    def test_floats_in_a_set_are_no_events(self, output):
        def moved(part):
            if isinstance(part, tuple):
                return tuple(map(moved, part))
            return part + 0.001 if isinstance(part, float) else part

        assert len(set(read([output, {moved(part) for part in output}]).events)) == 1

    def test_every_column_is_finite_and_keeps_the_order(self):
        values = [-math.inf, -1e300, -1.0, 0.0, 2.0, math.inf]
        columns = read([math.nan, *values]).columns[:, 0]
        assert np.isfinite(columns).all()
        assert (np.diff(columns) >= 0).all()
        assert np.isfinite(read([10**400, Fraction(1, 3)]).columns).all()

    def test_what_comes_later_is_an_event_and_a_column(self):
        reader = Reader(bits=False)
        first, later = reader.read([[0.1]]), reader.read([[0.1], [0.1, 0.2]])
        assert (first.columns.shape, later.columns.shape) == ((1, 1), (2, 2))
        both = Readings.joined([first, later])
        assert both.columns[0, 1] == both.columns[1, 1] < -1e150
        assert both.events[0] == both.events[1] != both.events[2]


MANY = {
    "numbers": [0.5, 1.5, 0.5],
    "whole numbers": [1, 2, 1],
    "texts": ["a", "b", "a"],
    "rows": [[0.5, 1.0], [0.5, 2.0], [1.5, 1.0]],
    "missing": [0.5, math.nan, math.inf],
}


class TestManyAtOnce:
    @pytest.mark.parametrize("outputs", MANY.values(), ids=MANY)
    def test_arrays_are_read_as_single_outputs(self, outputs):
        single = read(outputs)
        for many_in in (np.array(outputs), outputs, {"a": np.array(outputs)}):
            parts = parts_of(many_in, 3)
            many = (
                read(many_in)
                if parts is None
                else Reader(bits=False).read_arrays(parts)
            )
            assert (many.columns == single.columns).all()
            alike = [
                [one == other for one in found.events for other in found.events]
                for found in (many, single)
            ]
            assert alike[0] == alike[1]

    def test_records_frames_and_masked_arrays(self):
        records = np.array([(1, 0.5), (2, 1.5)], dtype=[("n", int), ("x", float)])
        assert [*parts_of(records, 2)] == [("n",), ("x",)]
        pandas = pytest.importorskip("pandas")
        assert [*parts_of(pandas.DataFrame(records), 2)] == [("n",), ("x",)]
        masked = np.ma.masked_array([1, 2], mask=[True, False])
        assert np.isnan(parts_of(masked, 2)[()]).tolist() == [True, False]

    @pytest.mark.parametrize("given", [np.zeros(3), 0.5, {"a": np.zeros((1, 2))}])
    def test_as_many_as_runs(self, given):
        with pytest.raises(ValueError, match="must give 2 outputs"):
            parts_of(given, 2)

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


class TestNotRead:
    """What equals only itself would hold of any mechanism, as nothing is seen of it."""

    @pytest.mark.parametrize("made", [_generator, _awaited, _streamed])
    @pytest.mark.filterwarnings("ignore:coroutine")
    def test_what_has_not_run(self, made):
        with pytest.raises(ValueError, match=f"got {KINDS[made]}, which has not run"):
            read([made()])

    @pytest.mark.parametrize("output", [object(), [1, object()], lambda: 0])
    def test_objects_without_equality(self, output):
        with pytest.raises(ValueError, match="hashed and compared"):
            read([output])

    def test_kinds_and_members_of_an_enum_are_read(self):
        assert len(set(read([int, float, enum.Flag("Two", "A B").A]).events)) == 3
