import dataclasses
import datetime
import functools
import importlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import privaudit as pa
from privaudit.files.pasting import called, pasted, repeat

ATOMS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
)
KEYS = st.integers() | st.text() | st.booleans()
PLAIN = st.recursive(
    ATOMS | st.frozensets(KEYS, max_size=3) | st.sets(KEYS, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=5,
)


@dataclasses.dataclass(frozen=True)
class Person:
    age: int
    wage: float


class Opaque:
    def __reduce__(self):
        raise TypeError("cannot be pickled")


def again(pair):
    """The pair that the lines make in an empty module."""
    found: dict = {}
    exec("\n".join(pasted(pair)[1]), found)
    return found["pair"]


class TestAgain:
    @given(st.tuples(PLAIN, PLAIN))
    def test_plain_values(self, pair):
        assert repr(again(pair)) == repr(pair) or again(pair) == pair

    @given(
        arrays.arrays(
            st.sampled_from(["f8", "f4", "i8", "u1", "?", "U3", "c8"]),
            arrays.array_shapes(min_dims=0, min_side=0, max_side=3),
        )
    )
    def test_arrays(self, array):
        other = again((array, 1))[0]
        np.testing.assert_array_equal(other, array)
        assert (other.dtype, other.shape) == (array.dtype, array.shape)

    def test_frames(self):
        pandas = pytest.importorskip("pandas")
        frames = (
            pandas.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": [0.5, math.nan]}),
            pandas.DataFrame({"a": pandas.to_datetime(["2020-01-01"])}, index=[7]),
            pandas.DataFrame({"a": []}, dtype="int8"),
            pandas.DataFrame([[1, 2]], columns=["a", "a"]),
        )
        for frame in frames:
            pandas.testing.assert_frame_equal(again((frame, 1))[0], frame)
        days = pandas.DatetimeIndex(["2026-01-01", "2026-01-03"])
        series = pandas.Series([1, 2], index=days, name="v", dtype="int8")
        pandas.testing.assert_series_equal(again((series, 1))[0], series)
        assert "pickle" not in pasted((series, 1))[1][0]

    def test_frames_of_polars_and_arrow(self):
        polars, arrow = map(pytest.importorskip, ("polars", "pyarrow"))
        day = datetime.datetime(2026, 1, 1)
        columns = {"a": [1, None], "b": ["x", "y"], "t": [day, None]}
        types = {"a": polars.Int8, "b": polars.Categorical, "t": polars.Datetime("us")}
        frame = polars.DataFrame(columns, schema=types)
        table = arrow.table(columns)
        for one in (frame, frame[:0], table, table.slice(0, 0)):
            other = again((one, 1))[0]
            assert other.equals(one)
            assert other.schema == one.schema
            assert "pickle" not in pasted((one, 1))[1][0]

    def test_graphs(self):
        networkx = pytest.importorskip("networkx")
        several = networkx.MultiDiGraph([("a", "b"), ("a", "b")])
        several.add_node("alone")
        named = networkx.Graph()
        named.add_node(1, colour="red")
        weighted = networkx.DiGraph([(1, 0, {"weight": 0.5})], year=2026)
        plain = networkx.path_graph(3), networkx.DiGraph([(1, 0)]), networkx.Graph()
        for graph in (*plain, several, named, weighted):
            assert "pickle" not in pasted((graph, 1))[1][0]
            assert " at 0x" not in pasted((graph, 1))[0]
            other = again((graph, 1))[0]
            assert type(other) is type(graph)
            assert networkx.utils.graphs_equal(other, graph)

    def test_records_of_classes_and_ledgers(self):
        release = pa.Release.of_sum(
            norm_bound=1.0, noise_multiplier=2.0, sampling=pa.NoSampling()
        )
        pair = Person(3, 0.5), pa.Ledger.of(release, 2)
        assert again(pair) == pair

    def test_tensors(self):
        torch = pytest.importorskip("torch")
        pair = torch.ones(2, 1), torch.tensor([3])
        assert all(one.equal(two) for one, two in zip(again(pair), pair, strict=True))

    def test_long_data_that_are_mostly_alike_are_packed(self):
        pair = np.zeros(500), np.ones(500)
        shown, lines = pasted(pair)
        assert "\n" not in shown
        assert "pickle" in lines[0]
        np.testing.assert_array_equal(again(pair)[1], pair[1])


@pytest.mark.parametrize(
    "data", [np.random.default_rng(0).random(999), Opaque(), lambda: 0]
)
def test_no_line_where_none_can_be_pasted(data):
    assert pasted((data, 1))[1] == []


def test_a_partial_function_is_called_with_what_it_is_given():
    partial = functools.partial(sum, start=1.5)
    assert called(partial) == "functools.partial(sum, start=1.5)"
    assert eval(called(partial))([1]) == 2.5
    assert called(functools.partial(sum, start=Opaque())) == "sum"
    lines = repeat(([], [1.0]), f"judge({called(partial)}, pair)")
    assert "    import functools" in lines


def test_functions_are_imported_where_they_can_be(tmp_path, monkeypatch):
    def inner():
        pass

    lines = repeat(([], [1]), "judge()", functools.partial(again, pair=1), len, inner)
    made = f"import {again.__name__}"
    assert any(line.strip().startswith(f"from {__name__} {made}") for line in lines)
    assert any("not imported" in line and ".inner" in line for line in lines)
    assert not any("builtins" in line for line in lines)
    assert called(Opaque()) == "mechanism"
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "test_pasted.py").write_text("def noisy():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "suite")
    noisy = importlib.import_module("test_pasted").noisy
    expected = "    from test_pasted import noisy  # run it in suite"
    assert expected in repeat(([], [1]), "judge(noisy, pair)", noisy)
