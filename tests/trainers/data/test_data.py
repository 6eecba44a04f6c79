"""Contract of trainers.data."""

import itertools
import types
import urllib.error
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples
from trainers.data import (
    DATASETS,
    Dataset,
    DataUnavailableError,
    Partition,
    check_dataset,
    glyphs,
    idx,
    load_dataset,
)
from trainers.data.catalogue import load_digits
from trainers.data.fetched import cached, data_folder
from trainers.data.splits import (
    class_shares,
    split_by_class,
    split_by_dirichlet,
    split_by_file,
    split_evenly,
)


class TestDigits:
    def test_real_images_split_without_overlap(self):
        train, test = load_digits(train=1000)
        assert len(train) == 1000
        assert len(train) + len(test) == 1797
        assert train.inputs.shape[1:] == (1, 8, 8)
        assert 0 <= train.inputs.min() <= train.inputs.max() <= 1
        assert (torch.bincount(train.targets) == 100).all()
        both = torch.cat([train.inputs, test.inputs]).flatten(1)
        assert len(torch.unique(both, dim=0)) == 1797

    def test_classes_follow_the_digits_asked_for(self):
        train, test = load_digits((1, 7), train=21)
        assert torch.bincount(train.targets).tolist() == [11, 10]
        assert set(test.targets.tolist()) == {0, 1}

    def test_seeds(self):
        one, other = load_digits(train=50)[0], load_digits(train=50, seed=1)[0]
        assert torch.equal(one.inputs, load_digits(train=50)[0].inputs)
        assert not torch.equal(one.inputs, other.inputs)

    @pytest.mark.parametrize("train", [9, 1797])
    def test_too_few_or_too_many(self, train):
        with pytest.raises(ValueError, match="use between"):
            load_digits(train=train)


class TestSplit:
    @given(st.integers(1, 30), st.integers(1, 30), st.floats(0, 1))
    def test_every_class_is_dealt_whole(self, nodes, classes, t):
        shares = class_shares(nodes, classes, t)
        np.testing.assert_allclose(shares.sum(0), 1)
        off = shares[(np.arange(classes) % nodes) != np.arange(nodes)[:, None]]
        np.testing.assert_allclose(off, (1 - t) / nodes)

    @examples(50)
    @given(st.integers(1, 6), st.floats(0, 1))
    def test_a_partition(self, nodes, t):
        targets = torch.arange(120) % 6
        data = Dataset(torch.arange(120.0)[:, None], targets)
        shares = split_by_class(data, nodes, t)
        together = torch.cat([share.inputs[:, 0] for share in shares])
        assert sorted(together.tolist()) == list(range(120))
        for share in shares:
            assert torch.equal(share.targets, targets[share.inputs[:, 0].long()])

    def test_the_ends(self):
        data = Dataset(torch.zeros(30, 1), torch.arange(30) % 3)
        apart = split_by_class(data, 3, 1.0)
        assert [set(share.targets.tolist()) for share in apart] == [{0}, {1}, {2}]
        even = split_by_class(data, 3, 0.0)
        assert all(len(share) == 10 for share in even)

    def test_a_node_without_records_is_an_error(self):
        data = Dataset(torch.zeros(30, 1), torch.arange(30) % 3)
        with pytest.raises(ValueError, match="node 3 of 4"):
            split_by_class(data, 4, 1.0)
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            split_by_class(data, 2, 1.5)


def numbered(count, classes=3):
    """Every sample's input is its place."""
    return Dataset(torch.arange(float(count))[:, None], torch.arange(count) % classes)


def places(shares):
    return [share.inputs[:, 0].long().tolist() for share in shares]


class TestOtherSplits:
    @given(st.integers(1, 8), st.integers(8, 50), st.integers(0, 100))
    def test_even(self, nodes, count, seed):
        data = numbered(count)
        shares = split_evenly(data, nodes, seed)
        assert sorted(itertools.chain(*places(shares))) == list(range(count))
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1
        assert places(shares) == places(split_evenly(data, nodes, seed))
        for share in shares:
            assert torch.equal(share.targets, share.inputs[:, 0].long() % 3)

    @examples(50)
    @given(st.integers(1, 5), st.floats(0.3, 100), st.integers(0, 100))
    def test_dirichlet_is_a_partition(self, nodes, alpha, seed):
        data = numbered(300)
        shares = split_by_dirichlet(data, nodes, alpha, seed)
        assert sorted(itertools.chain(*places(shares))) == list(range(300))
        assert all(len(share) for share in shares)
        assert places(shares) == places(split_by_dirichlet(data, nodes, alpha, seed))

    def test_dirichlet_is_as_uneven_as_alpha_says(self):
        def spread(alpha):
            counts = [
                torch.bincount(share.targets, minlength=3).double()
                for share in split_by_dirichlet(numbered(3000), 5, alpha)
            ]
            return torch.stack(counts).std().item()

        # Shares of Dirichlet(alpha) over 5 nodes have variance 4 / 25 / (5 alpha + 1).
        for alpha in (0.3, 3.0, 100.0):
            wanted = 1000 * (4 / 25 / (5 * alpha + 1)) ** 0.5
            assert wanted / 2 < spread(alpha) < wanted * 2

    def test_dirichlet_that_leaves_nothing(self):
        with pytest.raises(ValueError, match="larger alpha"):
            split_by_dirichlet(numbered(20, classes=1), 10, 1e-3)
        with pytest.raises(ValueError, match="> 0"):
            split_by_dirichlet(numbered(20), 2, 0.0)
        with pytest.raises(ValueError, match="fewer nodes"):
            split_evenly(numbered(2), 3)

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.txt", "0\n1\n1\n0\n"),
            ("a.csv", "record, node\n5,0\n6,1\n7,1\n8,0\n"),
            ("a.npz", None),
        ],
    )
    def test_by_file(self, tmp_path, name, content):
        path = tmp_path / name
        if content is None:
            np.savez(path, node=np.array([0, 1, 1, 0]))
        else:
            path.write_text(content)
        assert places(split_by_file(numbered(4), 2, path)) == [[0, 3], [1, 2]]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("0\n1\n", "deals 2 records, but there are 4"),
            ("0\n1\n2\n0\n", "to node 2; nodes are 0 to 1"),
            ("0\n-1\n1\n0\n", "to node -1"),
            ("0\n0\n0\n0\n", "no records to node 1"),
            ("0\n1.5\n0\n0\n", "cannot read node numbers"),
            ("who\n1\n0\n0\n", "no column node among who"),
            ("a,node\n1\n", "too short"),
        ],
    )
    def test_a_file_that_does_not_fit(self, tmp_path, content, message):
        path = tmp_path / "a.csv"
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            split_by_file(numbered(4), 2, path)

    def test_a_file_that_is_not_there(self, tmp_path):
        for name in ("none.csv", "none.npz"):
            with pytest.raises(ValueError, match="cannot read node numbers"):
                split_by_file(numbered(4), 2, tmp_path / name)
        np.savez(tmp_path / "floats.npz", node=np.zeros(4))
        with pytest.raises(ValueError, match="not whole numbers"):
            split_by_file(numbered(4), 2, tmp_path / "floats.npz")

    def test_partitions_by_name(self, tmp_path):
        data = numbered(30)
        path = tmp_path / "a.txt"
        path.write_text("0\n1\n2\n" * 10)
        for text, wanted in [
            ("classes", split_by_class(data, 3, 0.5)),
            ("even", split_evenly(data, 3, 7)),
            ("dirichlet:2", split_by_dirichlet(data, 3, 2.0, 7)),
            (f"file:{path}", split_by_file(data, 3, path)),
        ]:
            shares = Partition.parse(text)(data, 3, t=0.5, seed=7)
            assert places(shares) == places(wanted)

    @pytest.mark.parametrize(
        "text", ["", "odd", "even:3", "classes:1", "dirichlet", "dirichlet:-1", "file:"]
    )
    def test_no_such_partition(self, text):
        with pytest.raises(ValueError, match="file:PATH, got"):
            Partition.parse(text)


class TestGlyphs:
    def test_ten_classes_of_images(self):
        drawn = glyphs.draw(230, seed=1)
        images, digits = drawn["images"], drawn["digits"]
        assert images.shape == (230, 28, 28)
        assert images.dtype == digits.dtype == np.uint8
        assert np.bincount(digits).tolist() == [23] * 10
        # Ink in the middle of every picture, paper at its border.
        assert (images[:, 6:22, 6:22].reshape(230, -1).max(1) > 100).all()
        border = np.concatenate([images[:, :2], images[:, -2:]], 1)
        assert np.median(border) < 30
        assert len(np.unique(images.reshape(230, -1), axis=0)) == 230

    def test_seeds(self):
        one, other = glyphs.draw(5, seed=3), glyphs.draw(5, seed=3)
        np.testing.assert_array_equal(one["images"], other["images"])
        assert (glyphs.draw(5, seed=4)["images"] != one["images"]).any()

    def test_a_linear_model_learns_some_of_it(self):
        # That digits can be told apart; what a CNN reaches is measured elsewhere.
        drawn = glyphs.draw(2200)
        rows = torch.from_numpy(drawn["images"]).flatten(1).double() / 255
        onehot = torch.nn.functional.one_hot(torch.from_numpy(drawn["digits"]).long())
        gram = rows[:2000].T @ rows[:2000] + 10 * torch.eye(784)
        weights = torch.linalg.solve(gram, rows[:2000].T @ onehot[:2000].double())
        right = (rows[2000:] @ weights).argmax(1) == onehot[2000:].argmax(1)
        assert 0.6 < right.double().mean() < 0.97

    def test_kept_in_the_folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr(glyphs, "TRAIN", 60)
        monkeypatch.setattr(glyphs, "TEST", 20)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        images, _ = glyphs.glyphs()
        (file,) = (tmp_path / "privaudit").iterdir()
        assert file.name == f"glyphs-v{glyphs.VERSION}-seed0.npz"
        monkeypatch.setattr(glyphs, "draw", None)  # not drawn again
        np.testing.assert_array_equal(glyphs.glyphs()[0], images)
        assert len(images) == 80


class TestCache:
    def test_the_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert data_folder() == tmp_path / "privaudit"
        assert data_folder(tmp_path / "mine") == tmp_path / "mine"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert data_folder() == tmp_path / ".cache" / "privaudit"

    def test_made_once_and_anew_if_damaged(self, tmp_path):
        made = []

        def make():
            made.append(1)
            return {"x": np.arange(3)}

        path = tmp_path / "deep" / "file.npz"
        for _ in range(2):
            np.testing.assert_array_equal(cached(path, make)["x"], np.arange(3))
        assert len(made) == 1
        path.write_bytes(path.read_bytes()[:40])
        np.testing.assert_array_equal(cached(path, make)["x"], np.arange(3))
        assert len(made) == 2
        assert [file.name for file in path.parent.iterdir()] == ["file.npz"]

    def test_a_folder_that_cannot_be_written_to(self, tmp_path):
        (tmp_path / "file").touch()
        path = tmp_path / "file" / "under.npz"
        assert cached(path, lambda: {"x": np.ones(1)})["x"] == 1


def pictures(count, values, classes):
    rng = np.random.default_rng(0)
    return types.SimpleNamespace(
        data=rng.integers(0, 256, (count, values)).astype(float),
        target=np.array([str(n % classes) for n in range(count)], dtype=object),
    )


class TestNamed:
    @pytest.fixture(autouse=True)
    def _own_folder(self, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    @pytest.mark.full
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("name", ["cifar-100", "covertype"])
    def test_no_network(self, monkeypatch, tmp_path, name):
        def fails(*what, **more):
            raise urllib.error.URLError("no route")

        monkeypatch.setattr("sklearn.datasets._openml.urlopen", fails)
        monkeypatch.setattr("sklearn.datasets._base.urlretrieve", fails)
        with pytest.raises(DataUnavailableError, match="no route"):
            load_dataset(name, train=10, data_dir=tmp_path)

    @pytest.mark.parametrize(
        ("name", "shape", "classes"),
        [
            ("mnist", (1, 28, 28), 10),
            ("fashion-mnist", (1, 28, 28), 10),
            ("cifar-10", (3, 32, 32), 10),
            ("cifar-100", (3, 32, 32), 100),
        ],
    )
    def test_images_of_openml(self, monkeypatch, name, shape, classes):
        count = DATASETS[name].records
        raw = pictures(300, int(np.prod(shape)), classes)

        asked = []

        def fetch_openml(**more):
            asked.append(more)
            return raw

        monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
        monkeypatch.setattr(idx, "installed", lambda name: None)
        with pytest.raises(ValueError, match="between 1 and 300"):
            load_dataset(name, train=301)
        train, test = load_dataset(name, train=300)
        assert count in (50_000, 60_000)
        assert len(asked) == 1  # then kept
        assert len(test) == 0
        assert train.inputs.shape == (300, *shape)
        wanted = torch.from_numpy(raw.data[7]).view(shape).float() / 255
        torch.testing.assert_close(train.inputs[7], wanted)
        assert train.targets[7] == 7 % classes

    def test_covertype(self, monkeypatch):
        rng = np.random.default_rng(0)
        raw = types.SimpleNamespace(
            data=np.concatenate(
                [rng.uniform(-100, 7000, (50, 10)), rng.integers(0, 2, (50, 44))], 1
            ),
            target=rng.integers(1, 8, 50),
        )
        monkeypatch.setattr("sklearn.datasets.fetch_covtype", lambda **asked: raw)
        train, _ = load_dataset("covertype", train=50)
        assert train.inputs.shape == (50, 54)
        assert train.inputs.norm(dim=1).max() <= 1 + 1e-6
        assert set(train.targets.tolist()) <= set(range(7))

    @pytest.mark.parametrize("name", ["mnist", "covertype"])
    @pytest.mark.parametrize(
        "error", [urllib.error.URLError("no route"), OSError("no cache")]
    )
    def test_neither_cache_nor_network(self, monkeypatch, name, error):
        def fails(**asked):
            warnings.warn("trying again", stacklevel=1)
            raise error

        monkeypatch.setattr("sklearn.datasets.fetch_openml", fails)
        monkeypatch.setattr("sklearn.datasets.fetch_covtype", fails)
        with pytest.raises(DataUnavailableError, match=f"{name} is neither in"):
            load_dataset(name, train=10)

    def test_glyphs_by_class(self, tmp_path, monkeypatch):
        monkeypatch.setattr(glyphs, "TRAIN", 100)
        monkeypatch.setattr(glyphs, "TEST", 50)
        train, test = load_dataset("glyphs", train=15, labels=(3, 8), data_dir=tmp_path)
        assert train.inputs.shape == (15, 1, 28, 28)
        assert 0 <= train.inputs.min() <= train.inputs.max() <= 1
        assert set(train.targets.tolist()) == set(test.targets.tolist()) == {0, 1}
        again, _ = load_dataset("glyphs", train=15, labels=(3, 8), data_dir=tmp_path)
        assert torch.equal(train.inputs, again.inputs)

    def test_digits(self):
        ours, theirs = (
            load_dataset("digits", train=50, seed=2),
            load_digits(train=50, seed=2),
        )
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one.inputs, other.inputs)

    def test_no_such_data(self):
        with pytest.raises(ValueError, match="did you mean cifar-10"):
            check_dataset("cifar10")
