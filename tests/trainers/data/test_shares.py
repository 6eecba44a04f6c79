"""A user's own records: what is taken, and what is refused in one sentence."""

import tempfile

import numpy as np
import pandas
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)
from torch.utils.data import Dataset as TorchDataset

from trainers.data import Dataset, PrivateData
from trainers.data.records import ReadAsAsked
from trainers.data.shares import Lazy, OfFile, Users, private_data, shares_of
from trainers.data.transforms import NO_CLASS
from trainers.runs.material import Material
from trainers.runs.owner_advice import at_several_nodes


class _Told:
    """Lines of a file, which outlive the process that reads a record."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile("r")  # noqa: SIM115

    def append(self, index):
        with open(self.file.name, "a") as file:
            file.write(f"{index}\n")

    def __del__(self):
        self.file.close()

    def getvalue(self):
        self.file.seek(0)
        return self.file.read()


class Squares(TorchDataset):
    """Records i, with targets i squared; counts what is read."""

    example = torch.zeros(3), 0.0

    def __init__(self, size=7):
        self.size, self.read = size, _Told()

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        self.read.append(index)
        return torch.full((3,), float(index)), float(index) ** 2


def pair(size=6, width=3, labels=2):
    return np.arange(size * width, dtype=float).reshape(size, width), np.arange(
        size
    ) % labels


class TestForms:
    def test_arrays_tensors_and_torch_datasets_are_the_same(self):
        inputs, targets = pair()
        tensors = torch.from_numpy(inputs), torch.from_numpy(targets)
        backwards = np.ascontiguousarray(inputs[::-1])[::-1], targets
        sparse = tensors[0].to_sparse(), tensors[1]
        forms = (inputs, targets), tensors, TensorDataset(*tensors), backwards, sparse
        for form in forms:
            (share,) = shares_of([form])
            assert share.inputs.dtype == torch.float32
            assert share.targets.dtype == torch.int64
            assert share.inputs.tolist() == inputs.tolist()
            assert share.targets.tolist() == targets.tolist()

    def test_pandas(self):
        pandas = pytest.importorskip("pandas")
        inputs, targets = pair()
        frame = pandas.DataFrame(inputs), pandas.Series(targets)
        (share,) = shares_of([frame])
        assert share.inputs.tolist() == inputs.tolist()
        for kind in ("Int64", "boolean"):  # one that lacks a label changes no type
            column = pandas.Series([None, *(targets[1:] % 2)], dtype=kind)
            (share,) = shares_of([(inputs, column)])
            assert share.targets.tolist() == [NO_CLASS, *(targets[1:] % 2)]
            (share,) = shares_of([(column.astype("boolean"), targets)])
            assert share.inputs.isnan().tolist() == [True] + [False] * (
                len(targets) - 1
            )

    def test_one_data_set_is_dealt(self):
        found = shares_of(pair(10), nodes=4)
        assert [len(share) for share in found] == [3, 3, 2, 2]
        whole = torch.cat([share.inputs for share in found])
        assert sorted(whole[:, 0].tolist()) == [3.0 * i for i in range(10)]

    def test_who_is_where_depends_on_no_record(self):
        inputs, targets = pair(10)
        found = shares_of((inputs, targets), nodes=3)
        targets[4], inputs[4] = 77, np.nan
        other = shares_of((inputs, targets), nodes=3)
        for one, two in zip(found, other, strict=True):
            same = (one.inputs == two.inputs).all(1)
            assert len(one) == len(two)
            assert (~same).sum() == (one.inputs[:, 0] == 12).sum()

    def test_a_file_deals(self, tmp_path):
        (tmp_path / "nodes").write_text("\n".join("0100101"))
        found = shares_of(Squares(), nodes=2, split=f"file:{tmp_path / 'nodes'}")
        assert [len(share) for share in found] == [4, 3]

    def test_a_loader_is_taken_apart(self, caplog):
        def doubled(rows):
            inputs, targets = zip(*rows, strict=True)
            return 2 * torch.stack(inputs), torch.tensor(targets)

        share, other = shares_of(
            [
                DataLoader(TensorDataset(*map(torch.tensor, pair())), shuffle=True),
                DataLoader(
                    TensorDataset(*map(torch.tensor, pair())),
                    batch_size=4,
                    collate_fn=doubled,
                ),
            ]
        )
        every = torch.arange(6)
        assert isinstance(share, Dataset)
        assert isinstance(other, Lazy)
        assert (2 * share.inputs).equal(other.read(every)[0])
        assert share.targets.equal(other.read(every)[1])
        assert caplog.text.count("its sampler and batch size are not") == 2

    def test_what_a_data_set_makes_of_its_tensors(self):
        class Twice(TensorDataset):
            def __getitem__(self, index):
                inputs, target = super().__getitem__(index)
                return 2 * inputs, target

        tensors = [*map(torch.tensor, pair())]
        (share,) = shares_of([Twice(*tensors)])
        assert isinstance(share, Lazy)
        assert share.read(torch.arange(6))[0].equal(2 * tensors[0])

    def test_floats_are_targets(self):
        (share,) = shares_of([Squares()])
        assert share.read(torch.tensor([3, 1]))[1].tolist() == [9, 1]


class TestLargerThanMemory:
    def test_only_what_is_drawn_is_read(self):
        source = Squares(100)
        data = private_data(shares_of([source, Squares(5)]))
        assert isinstance(data, ReadAsAsked)
        inputs, _ = data.records(torch.tensor([0, 1]), torch.tensor([[7, 7], [2, 0]]))
        assert inputs[:, :, 0].tolist() == [[7, 7], [2, 0]]
        assert source.read.getvalue().split() == ["7"]

    def test_it_holds_what_memory_holds(self, tmp_path):
        inputs, targets = pair(20)
        mapped = np.memmap(tmp_path / "inputs", mode="w+", shape=(20, 3))
        mapped[:] = inputs
        lazy = private_data(shares_of([(mapped, targets), (mapped[:5], targets[:5])]))
        held = private_data(shares_of([(inputs, targets), (inputs[:5], targets[:5])]))
        assert isinstance(lazy, ReadAsAsked)
        assert isinstance(held, PrivateData)
        assert (lazy.sizes, lazy.nodes) == (held.sizes, held.nodes)
        assert lazy.values_per_record == held.values_per_record
        assert torch.equal(lazy.present(2, None), held.present(2, None))
        where = torch.tensor([1, 0]), torch.tensor([[4, 0], [19, 3]])
        for ours, theirs in zip(
            lazy.records(*where), held.records(*where), strict=True
        ):
            assert torch.equal(ours.double(), theirs.double())

    @pytest.mark.parametrize("kind", ["f4", ">i8"])
    def test_a_copy_of_what_is_mapped_lies_in_memory(self, kind, tmp_path):
        mapped = np.memmap(tmp_path / "x", dtype="float32", mode="w+", shape=(20, 3))
        mapped[:] = np.arange(60).reshape(20, 3)
        copied = np.memmap(tmp_path / "x", np.float32, "r", shape=(20, 3)).astype(kind)
        (share,) = shares_of([(copied, np.arange(20, dtype=">i8"))])
        assert isinstance(share, Dataset)
        assert share.inputs.flatten().tolist() == list(range(60))
        assert share.targets.tolist() == list(range(20))

    def test_labels_are_checked_as_they_are_read(self, tmp_path):
        mapped = np.memmap(tmp_path / "x", dtype="float32", mode="w+", shape=(20, 3))
        labels = np.where(np.arange(20) < 10, 0, 7)
        material = Material.own(torch.nn.Linear(3, 2), [(mapped, labels)])
        (share,) = material.shares
        assert share.read(torch.arange(5))[1].tolist() == [0] * 5
        assert share.read(torch.tensor([3, 12]))[1].tolist() == [0, -100]

    def test_it_is_dealt_without_being_read(self):
        source = Squares(50)
        found = shares_of(source, nodes=5)
        assert all(isinstance(share, Lazy) for share in found)
        assert sum(map(len, found)) == 50
        assert not source.read.getvalue()


class TestAtSeveralNodes:
    """Equal records are seen however they are given."""

    @pytest.mark.parametrize("kind", ["mapped", "data set", "subset", "of doubles"])
    def test_of_all_kinds(self, kind, tmp_path):
        inputs, targets = map(torch.from_numpy, pair())
        mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=inputs.shape)
        mapped[:] = inputs.numpy()
        mapped[0, 0] = -0.0
        backwards = torch.arange(5, -1, -1)
        twin, equal = {
            "mapped": ((mapped, targets), 6),
            "data set": (Subset(TensorDataset(inputs, targets), backwards), 6),
            "subset": (Subset(TensorDataset(inputs, targets), [5, 1]), 2),
            "of doubles": ((inputs.numpy() * (1 + 1e-12), targets.int().numpy()), 6),
        }[kind]
        shares = shares_of([(inputs, targets), twin])
        assert at_several_nodes(shares) == equal
        assert at_several_nodes([*shares, shares[0]], overlap=2) == equal
        assert at_several_nodes(shares, overlap=2) == 0

    def test_what_differs_is_not_equal(self):
        inputs, targets = pair()
        for other in ((inputs + 1, targets), (inputs, 1 - targets)):
            assert at_several_nodes(shares_of([(inputs, targets), other])) == 0

    def test_nor_is_what_counts_nothing(self):
        void = np.full((6, 3), np.nan), np.zeros(6)
        assert at_several_nodes(shares_of([void, void])) == 0

    def test_a_data_set_is_not_read_whole(self, monkeypatch):
        monkeypatch.setattr("trainers.runs.owner_advice._AT_ONCE", 10)
        sources = [Squares(50), Squares(50)]
        assert at_several_nodes(shares_of(sources)) == 10
        assert max(map(int, sources[0].read.getvalue().split())) < 10
        assert at_several_nodes(shares_of([pair(25), pair(25)])) == 25


def test_yes_and_no_are_numbers():
    frame = pandas.get_dummies(pandas.DataFrame({"age": [1, 2], "town": ["a", "b"]}))
    (share,) = shares_of([(frame, np.array([True, False]))])
    assert share.inputs.tolist() == [[1, 1, 0], [2, 0, 1]]
    assert share.targets.tolist() == [1, 0]
    assert (share.inputs.dtype, share.targets.dtype) == (torch.float, torch.long)


FRAME = pandas.DataFrame(pair()[0]), pandas.Series(pair()[1])


@pytest.mark.parametrize(
    ("data", "users"),
    [
        (FRAME, pandas.Series(range(6)[::-1], index=range(6)[::-1])),
        ((FRAME[0].to_numpy(), FRAME[1]), pandas.Series(range(6), index=range(1, 7))),
        ((FRAME[0], FRAME[1].sample(frac=1, random_state=0)), range(6)),
    ],
)
def test_rows_of_pandas_are_not_joined_by_position(data, users):
    for given, options, labels in ((data, {"nodes": 2}, users), ([data], {}, [users])):
        with pytest.raises(ValueError, match="other indices, so that rows"):
            shares_of(given, users=Users(labels), **options)
    assert len(shares_of(FRAME, nodes=2, users=Users(FRAME[1].index.to_series()))) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.ones(6), np.array(["1"] * 6)),
        (np.ones(6, bool), np.array(["1"] * 6)),
        (np.full(6, 0.1, np.float32), np.full(6, 0.1)),
        ([1.0] * 3 + ["1"] * 3, ["2"] * 6),
    ],
)
def test_users_of_unlike_kinds_are_not_compared(one, other):
    with pytest.raises(ValueError, match=r"different kinds \(.*use one kind at all"):
        shares_of([pair(), pair()], users=Users([one, other]))


def test_whole_users_are_compared_by_value():
    with pytest.raises(ValueError, match="records at 2 nodes"):
        shares_of([pair(), pair()], users=Users([np.ones(6), [1] * 6]))


MASKED = np.ma.masked_less(np.arange(18.0).reshape(6, 3), 1)


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.ones(3), 0


@pytest.mark.parametrize(
    ("shares", "options", "said"),
    [
        (pair(), {}, "give nodes= to deal it"),
        ([], {}, "one data set a node"),
        ("data.npz", {}, "one data set a node"),
        ([(np.zeros((3, 2)), np.zeros(2))], {}, "3 inputs but 2 targets"),
        ([pair(), (np.zeros((0, 3)), np.zeros(0))], {}, "node 1 is empty"),
        ([pair(), pair(width=4)], {}, r"node 0 has \(3,\).* node 1 \(4,\)"),
        ([pair(), (pair()[0], np.zeros(6))], {}, "targets must be of one shape"),
        ([Endless()], {}, "IterableDataset"),
        ([DataLoader(Endless())], {}, "IterableDataset|_InfiniteConstantSampler"),
        ([DataLoader(Squares(), sampler=SubsetRandomSampler([1]))], {}, "Subset of"),
        ([(["a"], [1])], {}, "an array or a tensor, got list"),
        ([(np.array(["a", "b"]), np.zeros(2))], {}, "no number"),
        ([(FRAME[0].set_axis(["a", "b", "a"], axis=1), FRAME[1])], {}, "called a: re"),
        ([(MASKED, pair()[1])], {}, "inputs hold masked entries"),
        ([(pair()[0], MASKED[:, 0])], {}, "targets hold masked entries"),
        ([pair()], {"users": Users([MASKED[:, 0]])}, "data set 0 hold masked"),
        (pair(2), {"nodes": 3}, "cannot be dealt to 3 nodes"),
        (pair(), {"nodes": 0}, "nodes must be >= 1"),
        (Squares(), {"nodes": 2, "split": "classes"}, "use even"),
        (pair(), {"nodes": 2, "split": "classes:1"}, "private records by their labels"),
        (pair(), {"nodes": 2, "split": "dirichlet:1"}, "which are public, would tell"),
        (pair(), {"nodes": 2, "split": "odd"}, "partition must be"),
        ([pair(), pair()], {"split": "classes:0.5"}, "split=classes:0.5 deals one"),
    ],
)
def test_what_is_wrong_is_said(shares, options, said):
    with pytest.raises(ValueError, match=said):
        shares_of(shares, **options)


def test_readers_of_ones_own_are_refused():
    class Own(OfFile):
        def __call__(self, rows, seeds):
            return self.inputs[rows] - self.inputs.mean(0), self.targets[rows]

    read = Own(np.zeros((4, 2), np.float32), np.zeros(4, np.int64))
    with pytest.raises(ValueError, match="got Lazy"):
        shares_of([Lazy(read, torch.arange(4))])
