"""Principal components of images, fitted on public records."""

from __future__ import annotations

import torch

from trainers.data.records import Dataset

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
