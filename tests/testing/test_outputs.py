import collections
import dataclasses
import datetime
import decimal
import enum
import itertools
import math
from fractions import Fraction

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.testing.outputs import Reader, Readings, lowest_bit


def _generator():
    yield 1


async def _awaited():
    return 1


async def _streamed():
    yield 1


KINDS = {_generator: "generator", _awaited: "coroutine", _streamed: "async_generator"}


def read(outputs, bits=False):
    return Reader(bits=bits).read(outputs)


def read_many(given, runs):
    return Reader(bits=False).read_many(given, runs)


def told(one, other):
    """Whether outputs are told apart, by an event and by a column."""
    found = read([one, other])
    different = found.columns[0] != found.columns[1]
    return bool(found.events[0] != found.events[1]), bool(different.any())


@dataclasses.dataclass(frozen=True)
class Point:
    n: int
    x: float


LOOP = []
LOOP.append(LOOP)


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


LATE, SOON = datetime.datetime(2020, 1, 2), datetime.datetime(2020, 1, 1)
KINDS_OF = {
    "list and tuple": ([0.5], (0.5,)),
    "list and array": ([0.5], np.array([0.5])),
    "kinds of floats": (np.ones(2), np.ones(2, np.float32)),
    "shapes": (np.ones((2, 3)), np.ones((3, 2))),
    "axes": (np.ones(6), np.ones((2, 3))),
    "shapes of nothing": (np.ones((0, 3)), np.ones((3, 0))),
    "shapes of integers": (np.ones((2, 3), int), np.ones((3, 2), int)),
    "masks": (np.ma.array([0.5, 1.5], mask=[0, 1]), np.ma.array([0.5, 1.5], mask=0)),
    "index": (pandas.Series([0.5], index=[1]), pandas.Series([0.5], index=[2])),
    "order": (pandas.Series([1, 2], ["a", "b"]), pandas.Series([2, 1], ["b", "a"])),
    "labels": (pandas.Series([1], [(0.5, "a")]), pandas.Series([1], [(0.5, "b")])),
    "name": (pandas.Series([0.5], name="a"), pandas.Series([0.5], name="b")),
    "columns": (pandas.DataFrame({"a": [0.5]}), pandas.DataFrame({"b": [0.5]})),
    "times": (LATE, SOON),
    "dates": (LATE.date(), SOON.date()),
    "zones": (SOON, SOON.replace(tzinfo=datetime.UTC)),
    "times of day": (datetime.time(1), datetime.time(2)),
    "durations": (LATE - SOON, 2 * (LATE - SOON)),
    "times of numpy": (np.array([LATE], "M8[s]"), np.array([SOON], "M8[s]")),
    "records": (np.array([(1, 0.5)], "i4,f8"), np.array([(2, 0.5)], "i4,f8")),
    "integers": (10**200, 10**200 + 1),
    "and their signs": (10**400, -(10**400)),
}  # fmt: skip
SAME = {
    "yes and 1": (True, 1),
    "floats of numpy": (0.5, np.float64(0.5)),
    "rounded": (np.float32(0.5), 0.5),
    "order of keys": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "parts of": ({"a": 0.5}, collections.Counter({"a": 0.5})),
    "texts": (np.array(["a", "b"])[:1], np.array(["a"])),
}
REAL = {
    "complex": (complex(0.5), complex(0.75), complex(0, 1.5)),
    "complex array": (np.array([0.5j]), np.array([0.75j])),
    "decimal": (decimal.Decimal("0.5"), decimal.Decimal("0.75")),
    "fraction": (Fraction(1, 3), Fraction(10**400, 3), -Fraction(10**400, 3)),
    "large": (1e200, 1.1e200, -1e300),
    "index": (pandas.Series([1], [0.5]), pandas.Series([1], [0.75])),
    "list": ([0.5, 1.5], [0.75, 1.5]),
    "record": (np.array([(1, 0.5)], "i4,f8"), np.array([(1, 0.75)], "i4,f8")),
    "dataclass": (Point(1, 0.5), Point(1, 0.75)),
}


class TestNothingIsUnread:
    @pytest.mark.parametrize(("one", "other"), KINDS_OF.values(), ids=KINDS_OF)
    def test_what_is_exact_is_an_event_and_a_column(self, one, other):
        assert told(one, other) == (True, True)

    @pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
    def test_what_python_calls_equal_is_equal(self, one, other):
        assert told(one, other) == (False, False)

    @pytest.mark.parametrize("outputs", REAL.values(), ids=REAL)
    def test_real_numbers_are_columns_and_no_events(self, outputs):
        for one, other in itertools.pairwise(outputs):
            assert told(one, other) == (False, True)

    def test_tensors_of_all_kinds(self):
        torch = pytest.importorskip("torch")
        half = torch.ones(1, dtype=torch.bfloat16)
        assert told(half, 2 * half) == (False, True)
        assert told(half, half.float()) == (True, True)
        assert told(half, half.float().numpy()) == (True, True)

    def test_forms_that_never_change_are_no_columns(self):
        assert Reader(bits=False).read([decimal.Decimal(1)]).columns.shape == (1, 1)
        assert read([Fraction(1, 2), Fraction(1, 3)]).columns.shape == (2, 1)
        assert read([pandas.Series([0.5], ["a"])] * 2).columns.tolist() == [[0.5]] * 2

    def test_outputs_of_many_parts_are_read_whole(self):
        wide = [0] * 5000
        assert told([*wide, 0.5], [*wide, 0.75]) == (False, True)
        assert told({"a": [*wide, 0.5]}, {"a": [*wide, 0.75]}) == (False, True)

    def test_parts_of_ever_new_names_share_a_column(self, monkeypatch):
        monkeypatch.setattr("privaudit.testing.outputs._WIDEST", 4)
        reader = Reader(bits=False)
        found = reader.read([{at: at + 0.5} for at in range(9)])
        assert found.columns[:, -1].tolist() == [0, 0, 0, 0, 4.5, 5.5, 6.5, 7.5, 8.5]
        assert reader.name(4) == "the sum of further parts of the output"

    def test_the_type_has_a_name(self):
        reader = Reader(bits=False)
        reader.read([{"a": [0.5]}, {"a": (0.5,)}])
        assert {reader.name(at) for at in (0, 1)} == {
            "the output['a'][0]",
            "the type of the output['a']",
        }

    @pytest.mark.parametrize("output", [LOOP, {"a": LOOP}])
    def test_what_contains_itself(self, output):
        with pytest.raises(ValueError, match="contains itself"):
            read([output])


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
            many = read_many(many_in, 3)
            assert (many.columns == single.columns).all()
            alike = [
                [one == other for one in found.events for other in found.events]
                for found in (many, single)
            ]
            assert alike[0] == alike[1]

    def test_records_frames_and_masked_arrays(self):
        records = np.array([(1, 0.5), (2, 1.5)], dtype=[("n", int), ("x", float)])
        assert read_many(records, 2).columns.tolist() == [[1, 0.5], [2, 1.5]]
        frame = pandas.DataFrame(records)
        assert read_many(frame, 2).columns.tolist() == [[1, 0.5], [2, 1.5]]
        with pytest.raises(ValueError, match="must number the runs"):
            read_many(frame[::-1], 2)
        masked = np.ma.masked_array([1.5, 2], mask=[True, False])
        assert (read_many(masked, 2).columns[:, 0] < -1e150).tolist() == [True, False]
        masked = np.ma.masked_array([1, 2], mask=[True, False])
        assert read_many(masked, 2).columns.tolist() == [[1, 0], [0, 2]]

    @pytest.mark.parametrize(
        "given", [np.zeros(3), 0.5, {"a": np.zeros((1, 2))}, {}, (), {"a": ()}]
    )
    def test_as_many_as_runs(self, given):
        with pytest.raises(ValueError, match="must give 2 outputs"):
            read_many(given, 2)

    def test_kinds_of_many_are_told_apart(self):
        reader = Reader(bits=False)
        many = [{0: np.zeros(2)}, (np.zeros(2),), (np.zeros(2, np.float32),)]
        found = [reader.read_many(given, 2) for given in many]
        assert len({int(one.events[0]) for one in found}) == 3

    def test_texts_beside_objects(self):
        given = {"a": np.array([1, None], object), "b": np.array([0.5, 1.5])}
        found = read_many(given, 2)
        assert len(set(found.events)) == 2
        assert [0.5, 1.5] in found.columns.T.tolist()

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
