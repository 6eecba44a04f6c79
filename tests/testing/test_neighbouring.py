import collections

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import privaudit as pa
from privaudit.testing import ledgers, neighbours

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
        assert np.array_equal(pair[0], pair[1][:3], equal_nan=True)

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

    @pytest.mark.parametrize(("data", "unit"), [(3, "record"), ("a", "edge")])
    def test_data_of_another_kind(self, data, unit):
        @FEW
        @given(neighbours(st.just(data), relation=ADD, unit=unit))
        def draw(pair):
            pass

        with pytest.raises(ValueError, match="neighbours makes pairs of"):
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
