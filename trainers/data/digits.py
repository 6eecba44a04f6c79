"""The handwritten digits that come with scikit-learn."""

from __future__ import annotations

import numpy as np
import torch

from trainers.data.records import Dataset


def load_digits(
    digits: tuple[int, ...] = tuple(range(10)),
    *,
    train: int,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
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
        inputs = torch.tensor(images[index], dtype=dtype).view(-1, 1, 8, 8)
        return Dataset(inputs, torch.tensor(classes, dtype=torch.long))

    return dataset(chosen), dataset(rest)
