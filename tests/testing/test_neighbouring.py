import collections
import math
import operator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import privaudit as pa
from privaudit.testing import assert_private, ledgers, neighbours
from privaudit.testing.extremes import beside, records_of
from tests.tiers import size

ADD, REPLACE = "add-or-remove-one", "replace-one"
FEW = settings(max_examples=40, suppress_health_check=list(HealthCheck))
RECORDS = st.lists(st.integers(0, 3), min_size=1, max_size=5)


def differ(one, other):
    """How many records are in one and not in the other, and the other way about."""
    one, other = (collections.Counter(map(repr, records)) for records in (one, other))
    return (one - other).total(), (other - one).total()


class TestRecords:
    @FEW
    @given(neighbours(RECORDS, relation=ADD))
    def test_lists_one_more(self, pair):
        assert differ(*pair) == (0, 1)
        assert len(pair[0]) >= 1

    @FEW
    @given(neighbours(RECORDS, relation=REPLACE))
    def test_lists_another_in_its_place(self, pair):
        assert len(pair[0]) == len(pair[1])
        assert sum(a != b for a, b in zip(*pair, strict=True)) <= 1

    def test_lists_do_differ(self):
        found = []

        @FEW
        @given(neighbours(RECORDS, relation=REPLACE))
        def collect(pair):
            found.append(pair[0] != pair[1])

        collect()
        assert sum(found) > 5

    @FEW
    @given(neighbours(hnp.arrays(np.float32, (3, 2)), relation=ADD))
    def test_rows_of_arrays(self, pair):
        assert pair[1].shape == (4, 2)
        assert pair[1].dtype == np.float32
        without = [np.delete(pair[1], place, axis=0) for place in range(4)]
        assert any(np.array_equal(pair[0], one, equal_nan=True) for one in without)

    @FEW
    @given(neighbours(hnp.arrays(int, 4), relation=REPLACE))
    def test_rows_of_vectors(self, pair):
        assert pair[1].shape == (4,)
        assert (pair[0] != pair[1]).sum() <= 1

    @FEW
    @given(
        neighbours(
            st.lists(st.fixed_dictionaries({"age": st.integers(0, 99)}), min_size=1),
            relation=ADD,
        )
    )
    def test_tables_of_dictionaries(self, pair):
        assert differ(*pair) == (0, 1)

    @pytest.mark.parametrize("relation", [ADD, REPLACE])
    def test_data_frames(self, relation):
        pandas = pytest.importorskip("pandas")
        frames = st.lists(st.integers(0, 9), min_size=1, max_size=4).map(
            lambda ages: pandas.DataFrame({"age": ages, "name": "x"})
        )

        @FEW
        @given(neighbours(frames, relation=relation))
        def check(pair):
            rows = [frame.values.tolist() for frame in pair]
            assert (pair[0].dtypes == pair[1].dtypes).all()
            less, more = differ(*rows)
            assert more <= 1
            assert less == (0 if relation == ADD else more)
            assert len(rows[1]) - len(rows[0]) == (relation == ADD)

        check()


class TestPlaces:
    """Records come and go anywhere, a person's several together."""

    def test_the_middle_the_start_and_the_end(self):
        places = collections.Counter()

        @settings(FEW, max_examples=200)
        @given(
            neighbours(
                st.lists(st.integers(0, 99), min_size=2, max_size=4, unique=True),
                relation=ADD,
            )
        )
        def collect(pair):
            one, other = pair
            many = len(one)
            at = next((k for k in range(many) if one[k] != other[k]), many)
            assert [*other[:at], *other[at + 1 :]] == one
            assert many >= 2
            places["start" if at == 0 else "end" if at == many else "middle"] += 1

        collect()
        assert min(places[where] for where in ("start", "middle", "end")) > 10

    def test_a_record_goes_only_where_the_strategy_makes_as_few(self):
        """Data in order stay so where a record is removed, and mostly do not else."""
        ordered = collections.Counter()

        @settings(FEW, max_examples=100)
        @given(neighbours(st.integers(2, 9).map(lambda n: [*range(n)]), relation=ADD))
        def collect(pair):
            assert len(pair[0]) >= 2
            ordered[sorted(set(pair[1])) == pair[1]] += 1

        collect()
        assert min(ordered[True], ordered[False]) > 10

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("relation", [ADD, REPLACE])
    @pytest.mark.parametrize(
        "strategy",
        [
            st.lists(st.integers(0, 9), min_size=3, max_size=5),
            st.sets(st.integers(0, 30), min_size=3, max_size=5),
            hnp.arrays(np.int64, st.tuples(st.integers(3, 5), st.just(2))),
        ],
    )
    def test_rows_of_one_person(self, strategy, relation):
        sizes = collections.Counter()

        @settings(FEW, max_examples=100)
        @given(neighbours(strategy, relation=relation, unit="user", rows_per_user=3))
        def collect(pair):
            gone, come = differ(*pair)
            assert gone == (0 if relation == ADD else come)
            assert (relation == ADD) <= come <= 3
            assert min(map(len, pair)) >= 3
            assert len(pair[1]) - len(pair[0]) == (come if relation == ADD else 0)
            sizes[come] += 1

        collect()
        assert min(sizes[many] for many in (1, 2, 3)) > 3

    def test_rows_of_one_person_in_frames(self):
        pandas = pytest.importorskip("pandas")
        frames = st.lists(st.integers(0, 99), min_size=1, max_size=4).map(
            lambda ages: pandas.DataFrame({"age": ages, "name": "x"})
        )

        @FEW
        @given(neighbours(frames, relation=ADD, unit="user", rows_per_user=2))
        def check(pair):
            gone, come = differ(*(frame.values.tolist() for frame in pair))
            assert gone == 0
            assert 1 <= come <= 2
            assert (pair[0].dtypes == pair[1].dtypes).all()

        check()

    @pytest.mark.parametrize("relation", [ADD, REPLACE])
    def test_rows_of_a_window_stand_side_by_side(self, relation):
        wide = collections.Counter()

        @settings(FEW, max_examples=100)
        @given(
            neighbours(
                st.lists(st.integers(0, 99), min_size=4, max_size=6, unique=True),
                relation=relation,
                unit="window",
                rows_per_user=3,
            )
        )
        def check(pair):
            one, other = pair
            if relation == ADD:
                wide[len(other) - len(one)] += 1
                left = len(other) - len(one)
                cuts = [other[:at] + other[at + left :] for at in range(len(other))]
                assert one in cuts
            else:
                places = [at for at in range(len(one)) if one[at] != other[at]]
                assert places[-1] - places[0] < 3
                wide[len(places)] += 1

        check()
        assert set(wide) == {1, 2, 3}

    @pytest.mark.parametrize(
        "wrong",
        [
            {"unit": "user"},
            {"unit": "window"},
            {"unit": "user", "rows_per_user": 0},
            {"unit": "record", "rows_per_user": 2},
        ],
    )
    def test_bad_rows_per_user(self, wrong):
        with pytest.raises(ValueError, match="rows_per_user"):
            neighbours(RECORDS, relation=ADD, **wrong)


def variation(data, rng):
    """Steps of a series, clipped to 1 each: a record inside changes two of them."""
    steps = np.abs(np.diff(data)).clip(0, 1) if len(data) > 1 else np.zeros(1)
    return float(steps.sum()) + rng.laplace(scale=0.5)


def clipped_sum(data, rng):
    """A row moves it by 1; a person with three rows by 3."""
    return float(np.clip(data, 0, 1).sum()) + rng.laplace(scale=0.5)


def alternating(data, rng):
    """A record at the end moves it by 1; at the start it turns all signs."""
    signs = (-1.0) ** np.arange(len(data))
    return float(signs @ np.clip(data, 0, 1)) + rng.laplace(scale=0.5)


SERIES = st.lists(st.sampled_from([0.0, 1.0]) | st.floats(0, 1), max_size=6)


class TestPlantedFaults:
    """Each is right about a record at the end, which is all that was tried once."""

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        ("mechanism", "unit", "longest"),
        [
            (clipped_sum, {"unit": "user", "rows_per_user": 3}, 2),
            (variation, {}, 4),
            (alternating, {}, 5),
        ],
    )
    def test_it_is_found_and_shown_small(self, mechanism, unit, longest):
        seen = []

        @settings(FEW, max_examples=100)
        @given(neighbours(SERIES, relation=ADD, **unit))
        def run(pair):
            seen.append(pair)
            assert_private(mechanism, pair, epsilon=2.2, runs=1000)

        with pytest.raises(AssertionError, match=f"{mechanism.__name__} is not"):
            run()
        # hypothesis executes the smallest failing example last.
        assert len(seen[-1][0]) <= longest

    @pytest.mark.sized
    @pytest.mark.parametrize(
        ("unit", "epsilon"),
        [({}, 2.0), ({"unit": "user", "rows_per_user": 3}, 6.0)],
    )
    def test_a_right_claim_is_not_refuted(self, unit, epsilon):
        @settings(FEW, max_examples=size(30, 4))
        @given(neighbours(SERIES, relation=ADD, **unit))
        def run(pair):
            assert_private(clipped_sum, pair, epsilon=epsilon, runs=5000)

        run()


class TestHistograms:
    @pytest.mark.parametrize("most", [None, 3])
    @pytest.mark.parametrize("relation", [ADD, REPLACE])
    @pytest.mark.parametrize(
        "make",
        [
            list,
            tuple,
            np.array,
            lambda counts: np.array([counts, counts]).astype(float),
            lambda counts: dict(zip("abcdefgh", counts, strict=False)),
            lambda counts: pytest.importorskip("pandas").Series(counts),
        ],
    )
    def test_counts_come_or_move(self, make, relation, most):
        counts = st.lists(st.integers(0, 5), min_size=2, max_size=4).map(make)

        @settings(FEW, max_examples=20)
        @given(neighbours(counts, relation=relation, unit="count", rows_per_user=most))
        def check(pair):
            assert type(pair[0]) is type(pair[1])
            one, other = (
                collections.Counter(one) if isinstance(one, dict) else np.ravel(one)
                for one in pair
            )
            if isinstance(one, dict):
                places = sorted({*one, *other})
                one, other = ([seen[at] for at in places] for seen in (one, other))
            moved = np.subtract(other, one)
            assert min(*one, *other) >= 0
            come = moved.clip(0).sum()
            assert 1 <= come <= (most or 1)
            assert -moved.clip(None, 0).sum() == (0 if relation == ADD else come)

        check()

    def test_categories_that_may_be_missing_go_and_come(self):
        seen = collections.Counter()
        names = st.lists(st.sampled_from("abc"), min_size=1, max_size=3)

        @settings(FEW, max_examples=60)
        @given(
            neighbours(names.map(collections.Counter), relation=REPLACE, unit="count")
        )
        def check(pair):
            seen[len(pair[1]) - len(pair[0])] += 1

        check()
        assert set(seen) == {-1, 0, 1}

    @pytest.mark.parametrize("optional", [None, {"c": st.integers(1, 2)}])
    def test_categories_that_are_always_there_stay_in_their_order(self, optional):
        always = {"a": st.integers(1, 2), "b": st.integers(1, 2)}
        counts = st.fixed_dictionaries(always, optional=optional)

        @settings(FEW, max_examples=60)
        @given(neighbours(counts, relation=REPLACE, unit="count"))
        def check(pair):
            orders = [[key for key in one if key in always] for one in pair]
            assert orders[0] == orders[1]
            assert len(orders[0]) == 2

        check()


class TestTables:
    """With types from a schema."""

    @pytest.mark.parametrize("relation", [ADD, REPLACE])
    def test_of_pandas_keep_their_types_and_start_at_the_ends(self, relation):
        extra = pytest.importorskip("hypothesis.extra.pandas")
        columns = [
            extra.column("age", elements=st.integers(18, 99), dtype="int8"),
            extra.column("pay", elements=st.floats(0, 9)),
            extra.column("in", dtype=bool),
        ]
        frames = extra.data_frames(columns, index=extra.range_indexes(1, 4))
        tried = []

        @FEW
        @given(neighbours(frames, relation=relation))
        def check(pair):
            tried.append(pair)
            assert [*map(str, pair[1].dtypes)] == ["int8", "float64", "bool"]
            assert list(pair[1].index) == [*range(len(pair[1]))]
            less, more = differ(*(frame.values.tolist() for frame in pair))
            assert (less, more) == (int(relation == REPLACE), 1)

        check()
        first = tried[0][1].values.tolist()
        assert [99, 9.0, True] in first
        assert first.count([18, 0.0, False]) == len(first) - 1
        ends = {tuple(row) for pair in tried for row in pair[1].values.tolist()}
        assert {(18, 9.0, False), (99, 5e-324, True)} & ends

    def test_a_series_over_time_stays_in_order(self):
        extra = pytest.importorskip("hypothesis.extra.pandas")
        pandas = pytest.importorskip("pandas")
        days = st.lists(st.integers(1, 99), min_size=1, max_size=5).map(sorted)
        series = extra.series(
            elements=st.floats(0, 1),
            index=days.map(lambda at: pandas.to_datetime(at, unit="D")),
        )

        @FEW
        @given(neighbours(series, relation=ADD, unit="user", rows_per_user=2))
        def check(pair):
            for one in pair:
                assert one.index.is_monotonic_increasing
                assert one.dtype == float
            assert 1 <= len(pair[1]) - len(pair[0]) <= 2

        check()

    @pytest.mark.parametrize("relation", [ADD, REPLACE])
    @pytest.mark.parametrize(
        ("module", "make"), [("polars", "DataFrame"), ("pyarrow", "table")]
    )
    def test_of_polars_and_arrow_keep_their_types(self, module, make, relation):
        kind = pytest.importorskip(module)
        tables = st.lists(
            st.tuples(st.integers(0, 9), st.text("ab")), min_size=1, max_size=4
        ).map(
            lambda rows: getattr(kind, make)(
                {"n": [row[0] for row in rows], "t": [row[1] for row in rows]}
            )
        )

        @FEW
        @given(neighbours(tables, relation=relation))
        def check(pair):
            assert pair[0].schema == pair[1].schema
            listed = [one.to_pydict() if make == "table" else one for one in pair]
            rows = [
                list(zip(list(one["n"]), list(one["t"]), strict=True)) for one in listed
            ]
            less, more = differ(*rows)
            assert (less, more) == (int(relation == REPLACE), 1)

        check()


class TestLedgers:
    @settings(FEW, max_examples=5)
    @given(neighbours(ledgers(max_releases=2, max_count=20), relation=ADD))
    def test_one_release_more_never_costs_less(self, pair):
        less, more = (pa.epsilon(ledger=ledger, delta=1e-5) for ledger in pair)
        assert less.lower <= more.upper

    @FEW
    @given(neighbours(ledgers(), relation=REPLACE))
    def test_another_release_in_its_place(self, pair):
        one, other = (ledger.nodes[0] for ledger in pair)
        assert len(one) == len(other)
        assert sum(a != b for a, b in zip(one, other, strict=True)) <= 1


def edges_of(matrix):
    return {(i, j) for i, j in np.argwhere(matrix).tolist() if i < j}


@st.composite
def matrices(draw):
    many = draw(st.integers(3, 5))
    upper = np.triu(
        draw(hnp.arrays(np.int64, (many, many), elements=st.integers(0, 1))), 1
    )
    return upper + upper.T


@st.composite
def edge_lists(draw):
    return sorted(edges_of(draw(matrices())))


class TestGraphs:
    @FEW
    @given(neighbours(matrices(), relation=ADD, unit="edge"))
    def test_a_matrix_with_one_edge_more(self, pair):
        one, other = map(edges_of, pair)
        assert (len(one - other), len(other - one)) == (0, 1)
        assert (pair[1] == pair[1].T).all()

    @FEW
    @given(neighbours(matrices(), relation=REPLACE, unit="edge"))
    def test_a_matrix_with_another_edge(self, pair):
        one, other = map(edges_of, pair)
        assert (len(one - other), len(other - one)) == (1, 1)

    @FEW
    @given(neighbours(matrices(), relation=ADD, unit="node"))
    def test_a_matrix_with_one_node_more(self, pair):
        assert len(pair[1]) == len(pair[0]) + 1
        assert (pair[0] == pair[0].T).all()

    @FEW
    @given(neighbours(matrices(), relation=REPLACE, unit="node"))
    def test_a_matrix_with_another_node(self, pair):
        changed = edges_of(pair[0]) ^ edges_of(pair[1])
        assert not changed or set.intersection(*map(set, changed))
        assert (np.diag(pair[1]) == 0).all()

    @FEW
    @given(neighbours(edge_lists(), relation=ADD, unit="edge"))
    def test_a_list_with_one_edge_more(self, pair):
        assert differ(*pair) == (0, 1)

    @FEW
    @given(neighbours(edge_lists(), relation=REPLACE, unit="edge"))
    def test_a_list_with_another_edge(self, pair):
        assert differ(*pair) == (1, 1)
        assert len(set(map(frozenset, pair[1]))) == len(pair[1])

    @FEW
    @given(neighbours(edge_lists(), relation=ADD, unit="node"))
    def test_a_list_with_one_node_more(self, pair):
        more = set(pair[1]) - set(pair[0])
        assert more
        assert set.intersection(*map(set, more))
        assert set(pair[0]) <= set(pair[1])

    @FEW
    @given(neighbours(edge_lists(), relation=REPLACE, unit="node"))
    def test_a_list_with_another_node(self, pair):
        changed = set(map(frozenset, pair[0])) ^ set(map(frozenset, pair[1]))
        assert not changed or frozenset.intersection(*changed)

    @pytest.mark.parametrize("unit", ["edge", "node"])
    @pytest.mark.parametrize(
        ("turned", "may"),
        [
            (lambda edge: edge, lambda one, two: one < two),
            (lambda edge: edge[::-1], lambda one, two: one > two),
            (  # of two sides, whose names cannot be compared
                lambda edge: (edge[0], f"item {edge[1]}"),
                lambda one, two: (type(one), type(two)) == (int, str),
            ),
        ],
    )
    def test_edges_are_turned_as_the_strategy_draws_them(self, unit, turned, may):
        edges = edge_lists().map(lambda found: list(map(turned, found)))

        @settings(FEW, max_examples=15)
        @given(neighbours(edges, relation=REPLACE, unit=unit))
        def check(pair):
            assert all(may(*edge) for edge in pair[1])

        check()

    @pytest.mark.parametrize("unit", ["edge", "node"])
    @pytest.mark.parametrize("side", [np.triu, np.tril])
    def test_a_matrix_keeps_its_triangle(self, unit, side):
        @settings(FEW, max_examples=15)
        @given(neighbours(matrices().map(side), relation=REPLACE, unit=unit))
        def check(pair):
            assert (pair[1] == side(pair[1])).all()

        check()

    @pytest.mark.parametrize("unit", ["edge", "node"])
    def test_a_directed_graph_keeps_its_direction(self, unit):
        networkx = pytest.importorskip("networkx")
        graphs = matrices().map(
            lambda matrix: networkx.from_numpy_array(
                np.tril(matrix), 0, networkx.DiGraph
            )
        )

        @settings(FEW, max_examples=15)
        @given(neighbours(graphs, relation=REPLACE, unit=unit))
        def check(pair):
            assert all(one > two for one, two in pair[1].edges)

        check()

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("relation", [ADD, REPLACE])
    @pytest.mark.parametrize("unit", ["edge", "node"])
    @pytest.mark.parametrize("directed", [False, True])
    def test_networkx(self, relation, unit, directed):
        networkx = pytest.importorskip("networkx")
        kind = networkx.DiGraph if directed else networkx.Graph
        graphs = matrices().map(
            lambda matrix: networkx.from_numpy_array(matrix, 0, kind)
        )

        @FEW
        @given(neighbours(graphs, relation=relation, unit=unit))
        def check(pair):
            one, other = (
                set(graph.edges) if directed else set(map(frozenset, graph.edges))
                for graph in pair
            )
            changed, more = one ^ other, len(pair[1]) - len(pair[0])
            assert more == (unit == "node" and relation == ADD)
            if unit == "edge":
                assert len(changed) == (1 if relation == ADD else 2)
            else:
                assert not changed or set.intersection(*map(set, changed))

        check()


class TestUsage:
    def test_what_is_unknown(self):
        with pytest.raises(ValueError, match="relation must be"):
            neighbours(RECORDS, relation="one")
        with pytest.raises(ValueError, match="unit must be"):
            neighbours(RECORDS, relation=ADD, unit="row")

    @pytest.mark.parametrize(
        ("data", "unit", "said"),
        [
            (3, "record", "neighbours makes pairs of"),
            ("a", "edge", "neighbours makes pairs of"),
            (([0.5], 3), "record", "draw public arguments as their own argument"),
            ([0.5], "edge", "each a tuple of two nodes, got 0.5"),
            ([(0, 1, 0.5)], "node", "each a tuple of two nodes"),
        ],
    )
    def test_data_of_another_kind(self, data, unit, said):
        @FEW
        @given(neighbours(st.just(data), relation=ADD, unit=unit))
        def draw(pair):
            pass

        with pytest.raises(ValueError, match=said):
            draw()


class TestSets:
    @given(neighbours(st.sets(st.integers(0, 9)), relation=ADD))
    def test_one_element_more(self, pair):
        assert pair[0] < pair[1]
        assert len(pair[1] - pair[0]) == 1

    @given(neighbours(st.frozensets(st.text("ab"), min_size=1), relation="replace-one"))
    def test_another_element_in_its_place(self, pair):
        assert type(pair[1]) is frozenset
        assert len(pair[0] - pair[1]) == len(pair[1] - pair[0]) == 1


class TestExtremes:
    @pytest.mark.parametrize(
        ("strategy", "ends"),
        [
            (st.lists(st.floats(-1, 2)), [-1.0, 2.0, 0.0, 5e-324, -5e-324]),
            (st.lists(st.integers(3, 9)), [3, 9]),
            (st.lists(st.booleans() | st.just(7)), [False, True, 7]),
            (
                st.lists(st.tuples(st.booleans(), st.integers(0, 3))),
                [(False, 0), (True, 3), (False, 3), (True, 0)],
            ),
            (
                st.lists(st.fixed_dictionaries({"age": st.integers(0, 99)})),
                [{"age": 0}, {"age": 99}],
            ),
            (
                st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=2)),
                [[0, 0], [1, 1], [0], [1]],
            ),
            (st.lists(st.text()), []),
            (st.sets(st.integers(0, 9)), []),
            (st.lists(st.integers(), unique=True), []),
        ],
    )
    def test_they_are_ends_that_the_strategy_allows(self, strategy, ends):
        assert records_of(strategy) == ends

    def test_infinities_and_nan_where_allowed(self):
        found = records_of(st.lists(st.floats()))
        assert {math.inf, -math.inf} < set(found)
        assert any(math.isnan(end) for end in found)

    def test_of_arrays(self):
        floats = st.floats(0, 1)
        found = records_of(hnp.arrays("f4", (3, 2), elements=floats, fill=st.nothing()))
        assert [end.tolist() for end in found[:2]] == [[0.0, 0.0], [1.0, 1.0]]

    @pytest.mark.parametrize(
        ("module", "make"),
        [("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")],
    )
    def test_of_lists_that_are_made_tables(self, module, make):
        made = getattr(pytest.importorskip(module), make)
        rows = st.lists(st.floats(-1, 1), max_size=3).map(lambda x: made({"a": x}))
        assert [float(end["a"][0]) for end in records_of(rows)][:2] == [-1.0, 1.0]
        seen = []

        @FEW
        @given(neighbours(rows, relation=ADD))
        def check(pair):
            seen.append([float(str(x)) for x in pair[1]["a"]])

        check()
        assert seen[0] == [1.0]  # the first pair: nothing, and one at an end

    def test_of_tables_of_polars_with_strategies_of_their_columns(self):
        polars = pytest.importorskip("polars")
        parametric = pytest.importorskip("polars.testing.parametric")
        columns = [
            parametric.column("a", polars.Int64, st.integers(0, 9)),
            parametric.column("b", polars.Float64, st.floats(0, 1)),
        ]
        found = records_of(parametric.dataframes(columns))
        assert [end.row(0) for end in found[:2]] == [(0, 0.0), (9, 1.0)]
        columns[0].strategy = None
        assert records_of(parametric.dataframes(columns)) == []

    def test_records_at_one_end_may_differ_in_one_field(self):
        """As sums by group need: one record moves from one group to the other."""
        seen = set()
        records = st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.booleans())

        @settings(FEW, max_examples=40)
        @given(neighbours(st.lists(records, min_size=2), relation=REPLACE))
        def check(pair):
            (changed,) = [two for two in zip(*pair, strict=True) if two[0] != two[1]]
            seen.add(sum(map(operator.ne, *changed)))

        check()
        assert seen == {1, 2, 3}
        far = records_of(st.lists(records))
        assert len(beside(far[0], far)) == 3
        assert beside(0.0, [0.0, 1.0]) == []

    def test_half_of_the_records_may_be_at_another_end(self):
        """As what looks at the middle rank needs: one record moves a median."""
        seen = set()

        @settings(FEW, max_examples=300)
        @given(neighbours(st.lists(st.floats(0, 9), min_size=5), relation=REPLACE))
        def check(pair):
            one, other = map(np.median, pair)
            seen.add(abs(one - other))

        check()
        assert 9 in seen

    def test_nodes_with_the_most_edges_come_first(self):
        networkx = pytest.importorskip("networkx")
        star = networkx.star_graph(3)
        edges = [(0, 1), (0, 2), (0, 3)]
        pairs = []
        for graph in (star, networkx.to_numpy_array(star), edges):

            @settings(FEW, max_examples=1)
            @given(neighbours(st.just(graph), relation=ADD, unit="node"))
            def check(pair):
                pairs.append(pair[0])

            check()
        assert pairs[0].number_of_edges() == pairs[1].sum() == len(pairs[2]) == 0

    def test_a_fault_at_one_end_is_found_at_once(self):
        def overflows(data, rng):
            """Records are clipped but for infinities."""
            clipped = [x if math.isinf(x) else min(max(x, 0.0), 1.0) for x in data]
            return sum(clipped) + rng.laplace()

        tried = []

        @settings(FEW, max_examples=40)
        @given(neighbours(st.lists(st.floats(allow_nan=False)), relation=ADD))
        def run(pair):
            tried.append(pair)
            assert_private(overflows, pair, epsilon=1.0, runs=500)

        with pytest.raises(AssertionError, match="overflows is not"):
            run()
        assert any(math.isinf(value) for value in tried[-1][1])
