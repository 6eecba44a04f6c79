"""IDX files, written here by hand."""

import gzip
import struct

import numpy as np
import pytest

from trainers.data import DataUnavailableError, idx, load_dataset
from trainers.data.catalogue import check_dataset
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

TYPES = {"u1": 8, "i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}


def written(array, kind="u1"):
    sizes = struct.pack(f">{array.ndim}i", *array.shape)
    head = bytes([0, 0, TYPES[kind], array.ndim])
    return head + sizes + array.astype(kind).tobytes()


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for part, size in (("train", 30), ("t10k", 12)):
        images = rng.integers(0, 256, (size, 4, 4))
        name = f"{part}-images-idx3-ubyte"
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(written(images)))
        labels = np.arange(size) % 3
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(written(labels))
    return tmp_path


@pytest.mark.parametrize("kind", TYPES)
def test_all_types_are_read(tmp_path, kind):
    array = np.arange(24).reshape(2, 3, 4)
    (tmp_path / "file").write_bytes(written(array, kind))
    found = idx.read_idx(tmp_path / "file")
    assert found.tolist() == array.tolist()
    assert found.dtype.isnative


def test_a_folder_is_a_data_set(folder):
    name = f"idx:{folder}"
    source = check_dataset(name)
    assert (source.classes, source.records) == (3, 30)
    train, test = load_dataset(name, train=20)
    assert (len(train), len(test)) == (20, 12)
    assert train.inputs.shape == (20, 1, 4, 4)
    assert 0.5 < float(train.inputs.max()) <= 1
    training = training_from(
        {"algorithm": "dp-dsgd", "data": name, "train": 20, "model": "softmax"},
        where="test",
    )
    assert training.labels == (0, 1, 2)


def test_debians_package_is_found(folder, monkeypatch):
    monkeypatch.setattr(idx, "DEBIAN", folder.parent)
    found = idx.installed(folder.name)
    assert found is not None
    assert (len(found.inputs), found.train) == (42, 30)
    assert idx.installed("nothing") is None


def test_a_relative_folder_is_no_function(folder, monkeypatch):
    """``idx:name`` looks like ``module:function``."""
    monkeypatch.chdir(folder.parent)
    there = folder.rename(folder.with_name("images"))
    values = {"algorithm": "dp-dsgd", "data": f"idx:{there.name}", "model": "softmax"}
    values |= {"train": 30, "nodes": 3, "batch_size": 2, "rounds": 1}
    problem = Problem.of(training_from(values, where="test"))
    assert sum(map(len, problem.shares)) == 30
    assert len(problem.test) == 12


def test_fashion_mnist_is_debians_where_it_is_installed(folder, monkeypatch):
    there = folder.rename(folder.with_name("fashion-mnist"))
    monkeypatch.setattr(idx, "DEBIAN", there.parent)
    train, test = load_dataset("fashion-mnist", train=30)
    assert (len(train), len(test)) == (30, 12)


def test_without_it_the_package_is_named(tmp_path, monkeypatch):
    def fails(**asked):
        raise OSError("no route")

    monkeypatch.setattr(idx, "DEBIAN", tmp_path)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", fails)
    with pytest.raises(DataUnavailableError, match="package dataset-fashion-mnist"):
        load_dataset("fashion-mnist", train=30, data_dir=tmp_path)
    with pytest.raises(DataUnavailableError, match=r"\(no route\); connect to"):
        load_dataset("mnist", train=30, data_dir=tmp_path)


def damage(folder, name, content):
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("train-labels-idx1-ubyte", None, "no file train-labels"),
        ("train-labels-idx1-ubyte", b"", "no IDX file"),
        ("train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x05abc", "3 numbers, not 5"),
        ("train-labels-idx1-ubyte", written(np.zeros(7)), "do not fit"),
        ("train-images-idx3-ubyte.gz", b"\x1f\x8bjunk", "no IDX file"),
    ],
)
def test_what_is_wrong_is_said(folder, name, content, said):
    damage(folder, name, content)
    with pytest.raises(DataUnavailableError, match=said):
        idx.read_folder(folder)
