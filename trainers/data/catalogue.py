"""Data sets by name."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from privaudit.files.arguments import near
from privaudit.task_settings import IDX, check_no_table
from trainers.data import glyphs as drawn
from trainers.data import idx
from trainers.data.fetched import Arrays, fetch_covertype, fetch_images
from trainers.data.forest import TRAIN
from trainers.data.forest import forest as drawn_forest
from trainers.data.records import Dataset


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A data set by name."""

    classes: int  # how many it has
    records: int  # how many it has to train on; the most that may be asked for
    # from the folder for data, or None, to the arrays; None for the digits of
    # scikit-learn, which are divided by class
    load: Callable[[str | pathlib.Path | None], Arrays] | None = None
    # the data set of which this one is the `principal_components`
    reduces: str | None = None


def _glyphs(data_dir: str | pathlib.Path | None) -> Arrays:
    images, digits = drawn.glyphs(data_dir=data_dir)
    return Arrays(images[:, None], digits, drawn.TRAIN, 255.0)


def _forest(data_dir: str | pathlib.Path | None) -> Arrays:
    rows, classes = drawn_forest()
    return Arrays(rows, classes, TRAIN)


def _images(
    name: str, number: int, shape: tuple[int, ...], train: int
) -> Callable[[str | pathlib.Path | None], Arrays]:
    return lambda data_dir: (
        idx.installed(name) or fetch_images(name, number, shape, train, data_dir)
    )


_SMALL, _PHOTO = (1, 28, 28), (3, 32, 32)
# The numbers are OpenML's, each of one version that never changes.
DATASETS: dict[str, Source] = {
    "digits": Source(10, 1_787, None),
    "glyphs": Source(10, drawn.TRAIN, _glyphs),
    "mnist": Source(10, 60_000, _images("mnist", 554, _SMALL, 60_000)),
    "fashion-mnist": Source(
        10, 60_000, _images("fashion-mnist", 40_996, _SMALL, 60_000)
    ),
    "cifar-10": Source(10, 50_000, _images("cifar-10", 40_927, _PHOTO, 50_000)),
    "cifar-100": Source(100, 50_000, _images("cifar-100", 41_983, _PHOTO, 50_000)),
    "covertype": Source(7, 464_809, fetch_covertype),
    "forest": Source(7, TRAIN, _forest),
    "digits-pca": Source(10, 1_737, reduces="digits"),
    "glyphs-pca": Source(10, drawn.TRAIN, reduces="glyphs"),
    "mnist-pca": Source(10, 60_000, reduces="mnist"),
    "fashion-mnist-pca": Source(10, 60_000, reduces="fashion-mnist"),
}


def check_dataset(name: str) -> Source:
    """The data set's entry, also of ``idx:FOLDER``; ``ValueError`` if there is none."""
    if name in DATASETS:
        return DATASETS[name]
    if name.startswith(IDX):
        folder = name.removeprefix(IDX)
        return Source(*idx.sizes(folder), lambda _: idx.read_folder(folder))
    check_no_table(name)
    other = (
        "idx:FOLDER, your own as module:function, or a folder with node-0.npz and so on"
    )
    raise ValueError(f"there is no data set {name!r}; {near(name, DATASETS, other)}")


def load_dataset(
    name: str,  # in `DATASETS`
    *,
    # how many records to train on, taken at random from those that are for it
    train: int,
    # which classes to keep, in order, numbered anew; None for all
    labels: tuple[int, ...] | None = None,
    seed: int = 0,  # of what is taken
    # where data are kept; by default `trainers.data.fetched.data_folder` for what is
    # drawn, scikit-learn's own cache for what is fetched
    data_dir: str | pathlib.Path | None = None,
) -> tuple[Dataset, Dataset]:
    """Records to train on and to test on, or `DataUnavailableError`.

    Inputs are (samples, ...) in single precision, images in [0, 1].
    """
    source = check_dataset(name)
    if labels is None:
        labels = tuple(range(source.classes))
    if source.reduces is not None:
        how: dict[str, Any] = {"train": train, "seed": seed, "data_dir": data_dir}
        return principal_components(*load_dataset(source.reduces, labels=labels, **how))
    if source.load is None:
        return load_digits(labels, train=train, seed=seed)
    arrays = source.load(data_dir)
    rng = np.random.default_rng(seed)
    if arrays.train is None:
        first, rest = np.split(rng.permutation(len(arrays.targets)), [source.records])
    else:
        first, rest = np.split(np.arange(len(arrays.targets)), [arrays.train])
    first, rest = (x[np.isin(arrays.targets[x], labels)] for x in (first, rest))
    if not 0 < train <= len(first):
        raise ValueError(
            f"{name} has {len(first)} records of these {len(labels)} classes to train "
            f"on, so that train must be between 1 and {len(first)}, got {train}"
        )
    first = np.sort(rng.permutation(first)[:train])

    def dataset(index: np.ndarray) -> Dataset:
        inputs = torch.from_numpy(arrays.inputs[index]).float().div_(arrays.scale)
        classes = np.searchsorted(labels, arrays.targets[index]).astype(np.int64)
        return Dataset(inputs, torch.from_numpy(classes))

    return dataset(first), dataset(np.sort(rest))


def load_digits(
    digits: tuple[int, ...] = tuple(range(10)), *, train: int, seed: int = 0
) -> tuple[Dataset, Dataset]:
    """The handwritten digits that come with scikit-learn, split in train and test.

    1 797 real 8x8 images (UCI "Optical recognition of handwritten digits", its test
    set), in [0, 1], (samples, 1, 8, 8); classes are numbered as ``digits``, split by
    class and seed.
    """
    from sklearn.datasets import load_digits as load

    images, labels = load(return_X_y=True)
    shuffle = np.random.default_rng(seed).permutation(len(labels))
    images, labels = images[shuffle] / 16, labels[shuffle]
    chosen, rest = [], []
    for number, digit in enumerate(digits):
        places = np.flatnonzero(labels == digit)
        share = train // len(digits) + (number < train % len(digits))
        if not 0 < share < len(places):
            raise ValueError(
                f"{train} training images need {share} of the digit {digit}, of which "
                f"there are {len(places)}; use between {len(digits)} and "
                f"{len(digits) * (len(places) - 1)}"
            )
        chosen.append(places[:share])
        rest.append(places[share:])

    def dataset(parts: list[np.ndarray]) -> Dataset:
        index = np.sort(np.concatenate(parts))
        classes = np.searchsorted(digits, labels[index])
        inputs = torch.tensor(images[index], dtype=torch.float32).view(-1, 1, 8, 8)
        return Dataset(inputs, torch.tensor(classes, dtype=torch.long))

    return dataset(chosen), dataset(rest)


COMPONENTS = 50


def principal_components(
    train: Dataset, test: Dataset, components: int = COMPONENTS
) -> tuple[Dataset, Dataset]:
    """Both sets in the coordinates of the test set's principal components.

    Mean and directions are of ``test`` alone, without labels, which is taken as public:
    nothing of ``train`` is released. Inputs become (samples, components) at most.
    """
    public = test.inputs.flatten(1).double()
    components = min(components, public.shape[1])
    if len(public) <= components:
        raise ValueError(
            f"{components} principal components need more than {components} records "
            f"outside the training data, got {len(public)}: train on fewer"
        )
    mean = public.mean(0)
    _, _, rows = torch.linalg.svd(public - mean, full_matrices=False)
    # A direction has no sign of its own: the largest entry is positive.
    places = rows.abs().argmax(1, keepdim=True)
    rows = (rows * rows.gather(1, places).sign())[:components]

    def seen(data: Dataset) -> Dataset:
        values = (data.inputs.flatten(1).double() - mean) @ rows.T
        return Dataset(values.to(data.inputs.dtype), data.targets)

    return seen(train), seen(test)
