"""Records, and who holds them."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Dataset:
    """Samples with labels.

    Parameters
    ----------
    inputs
        (samples, ...), float
    targets
        (samples,), integer classes
    """

    inputs: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise ValueError(
                f"{len(self.inputs)} inputs but {len(self.targets)} targets"
            )

    def __len__(self) -> int:
        return len(self.targets)

    def select(self, index: Tensor) -> Dataset:
        """The samples at ``index``."""
        return Dataset(self.inputs[index], self.targets[index])


@dataclasses.dataclass(frozen=True, slots=True)
class PrivateData:
    """The records of all nodes, stacked, and perhaps one canary.

    Parameters
    ----------
    inputs
        (nodes, records + 1, ...): rows beyond a node's own are padding, never used; the
        row after its last is the canary's place.
    targets
        (nodes, records + 1)
    sizes
        How many records each node has, without a canary. Public.
    canary_node
        Which node's extra row holds a canary; None if there is none.
    """

    inputs: Tensor
    targets: Tensor
    sizes: tuple[int, ...]
    canary_node: int | None = None

    @classmethod
    def of(
        cls,
        shares: list[Dataset],
        *,
        canary: Dataset | None = None,
        canary_node: int = 0,
    ) -> PrivateData:
        """Stack one dataset a node, and plant ``canary`` (one sample) at a node.

        Raises ``ValueError`` if a node has no record, or the canary is not one sample
        of the same shape.
        """
        sizes = tuple(len(share) for share in shares)
        for node, size in enumerate(sizes):
            if size == 0:
                raise ValueError(
                    f"node {node} has no records: use fewer nodes or another split"
                )
        first = shares[0].inputs
        inputs = first.new_zeros(len(shares), max(sizes) + 1, *first.shape[1:])
        targets = torch.zeros(len(shares), max(sizes) + 1, dtype=torch.long)
        for node, share in enumerate(shares):
            inputs[node, : len(share)] = share.inputs
            targets[node, : len(share)] = share.targets
        if canary is None:
            return cls(inputs, targets, sizes)
        if len(canary) != 1 or canary.inputs.shape[1:] != first.shape[1:]:
            raise ValueError(
                "a canary is one sample of the records' shape "
                f"{tuple(first.shape[1:])}, got {tuple(canary.inputs.shape)}"
            )
        inputs[canary_node, sizes[canary_node]] = canary.inputs[0]
        targets[canary_node, sizes[canary_node]] = canary.targets[0]
        return cls(inputs, targets, sizes, canary_node)

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.sizes)

    @property
    def values_per_record(self) -> int:
        """Numbers in one record's inputs."""
        return self.inputs[0, 0].numel()

    def present(self, runs: int, planted: Tensor | None) -> Tensor:
        """Which rows are records, run by run: bool, (runs, nodes, records + 1).

        ``planted``, (runs,) bool, says in which runs the canary is there; None: none.
        """
        rows = torch.arange(self.inputs.shape[1], device=self.inputs.device)
        sizes = torch.tensor(self.sizes, device=self.inputs.device)
        present = (rows < sizes[:, None]).repeat(runs, 1, 1)
        if planted is not None:
            if self.canary_node is None:
                raise ValueError("there is no canary in these data to be planted")
            if planted.shape != (runs,):
                raise ValueError(
                    f"planted must have one entry a run, ({runs},), "
                    f"got {tuple(planted.shape)}"
                )
            place = self.sizes[self.canary_node]
            present[:, self.canary_node, place] = planted.to(present.device)
        return present

    def records(self, node: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of records ``index`` (rows, samples) of nodes ``node``."""
        return self.inputs[node[:, None], index], self.targets[node[:, None], index]

    def to(self, device: str) -> PrivateData:
        """The same on another device."""
        return dataclasses.replace(
            self, inputs=self.inputs.to(device), targets=self.targets.to(device)
        )


def load_digits(
    digits: tuple[int, ...] = tuple(range(10)),
    *,
    train: int,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> tuple[Dataset, Dataset]:
    """The handwritten digits that come with scikit-learn, split in train and test.

    1 797 real 8x8 images (UCI "Optical recognition of handwritten digits", its test
    set), pixels scaled to [0, 1]. Inputs are (samples, 1, 8, 8); classes are numbered
    in the order of ``digits``. The split is by class, as even as it goes, and by seed.

    Raises
    ------
    ValueError
        If ``train`` leaves no sample of a digit to test on.
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
        return Dataset(
            torch.tensor(images[index], dtype=dtype).view(-1, 1, 8, 8),
            torch.tensor(classes, dtype=torch.long),
        )

    return dataset(chosen), dataset(rest)


def class_shares(nodes: int, classes: int, t: float) -> np.ndarray:
    """A(t): the share of each class that each node holds, (nodes, classes).

    Eq. 8 of the paper of DP-DSGD: (1 - t) / N off i = j mod N, the
    rest there. t = 0 deals every class evenly, t = 1 gives every class to one node.
    Columns add up to one.
    """
    if not 0 <= t <= 1:
        raise ValueError(f"the split t must be in [0, 1], got {t}")
    shares = np.full((nodes, classes), (1 - t) / nodes)
    owner = np.arange(classes) % nodes
    shares[owner, np.arange(classes)] += t
    return shares


def split_by_class(data: Dataset, nodes: int, t: float) -> list[Dataset]:
    """Deal ``data`` to ``nodes`` nodes by `class_shares`, every sample to one node.

    Shares are rounded so that each class is dealt whole; samples keep their order.

    Raises
    ------
    ValueError
        If t is outside [0, 1] or a node is left without records.
    """
    classes = int(data.targets.max()) + 1
    bounds = np.cumsum(class_shares(nodes, classes, t), axis=0)
    parts: list[list[Tensor]] = [[] for _ in range(nodes)]
    for label in range(classes):
        places = torch.nonzero(data.targets == label)[:, 0]
        # Rounded up or down by turns over the classes, so that nodes come out even.
        turn = (label + 0.5) / classes + 1e-9
        ends = np.floor(bounds[:, label] * len(places) + turn).astype(int)
        ends[-1] = len(places)
        for node, (start, end) in enumerate(
            zip(np.concatenate([[0], ends[:-1]]), ends, strict=True)
        ):
            parts[node].append(places[start:end])
    shares = [data.select(torch.sort(torch.cat(part)).values) for part in parts]
    for node, share in enumerate(shares):
        if len(share) == 0:
            raise ValueError(
                f"node {node} of {nodes} gets no records at t = {t}: there are "
                f"{classes} classes; use fewer nodes or a smaller t"
            )
    return shares
