"""Contract of principal components, and of trainers.data.forest."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from trainers.data import Dataset, load_dataset
from trainers.data.catalogue import principal_components
from trainers.data.forest import CLASSES, RECORDS, TRAIN, forest


def images(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Dataset(
        torch.rand(count, 1, 4, 4, generator=generator), torch.zeros(count).long()
    )


def test_components_are_those_of_the_public_records():
    train, test = images(30), images(90, seed=1)
    found, public = principal_components(train, test, 5)
    fitted = PCA(5).fit(test.inputs.flatten(1).double().numpy())
    for mine, data in ((found, train), (public, test)):
        wanted = fitted.transform(data.inputs.flatten(1).double().numpy())
        np.testing.assert_allclose(
            np.abs(mine.inputs.numpy()), np.abs(wanted), atol=1e-5
        )


def test_no_private_record_has_a_part_in_another():
    train, test = images(30), images(90, seed=1)
    changed = Dataset(train.inputs.clone(), train.targets)
    changed.inputs[7] = 100.0
    before, _ = principal_components(train, test, 5)
    after, _ = principal_components(changed, test, 5)
    others = torch.arange(30) != 7
    assert torch.equal(before.inputs[others], after.inputs[others])
    assert not torch.equal(before.inputs[7], after.inputs[7])


def test_too_few_public_records():
    with pytest.raises(ValueError, match="more than 5 records outside"):
        principal_components(images(30), images(5), 5)


def test_digits():
    train, test = load_dataset("digits-pca", train=100)
    assert train.inputs.shape == (100, 50)
    whole, rest = load_dataset("digits", train=100)
    assert torch.equal(train.targets, whole.targets)
    assert len(test) == len(rest)


@pytest.mark.full
def test_forest_has_the_shape_of_covertype():
    rows, targets = forest()
    assert rows.shape == (RECORDS, 54)
    assert TRAIN < RECORDS
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-6
    assert (rows[:, 10:14] > 0).sum(1).max() == 1
    assert (rows[:, 14:] > 0).sum(1).min() == 1
    counts = np.bincount(targets)
    assert len(counts) == CLASSES
    # The commonest class of Covertype has 283 301 of its rows.
    assert counts.max() == 283_301
    assert counts.sum() == RECORDS
    again, _ = forest()
    assert np.array_equal(rows, again)
