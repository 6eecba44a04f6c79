"""Records, and who holds them."""

from __future__ import annotations

import dataclasses

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
    replaced
        The row of that node in whose place the canary comes; None if it is one more.
    direction
        (dims,): the canary's gradient points there whatever the parameters, as long as
        clipping allows, and that of the record which it replaces the other way: the
        pair that is hardest to hide. None if it is an ordinary record.
    """

    inputs: Tensor
    targets: Tensor
    sizes: tuple[int, ...]
    canary_node: int | None = None
    replaced: int | None = None
    direction: Tensor | None = None

    @classmethod
    def of(
        cls,
        shares: list[Dataset],
        *,
        canary: Dataset | None = None,
        canary_node: int = 0,
        replaces: bool = False,
        direction: Tensor | None = None,
    ) -> PrivateData:
        """Stack one dataset a node, and plant ``canary`` (one sample) at a node.

        It is one record more there, or comes in the place of the node's first if it
        ``replaces`` one. ``direction`` as above.

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
        targets = shares[0].targets.new_zeros(inputs.shape[:2], dtype=torch.long)
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
        place = 0 if replaces else None
        return cls(inputs, targets, sizes, canary_node, place, direction)

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
            planted = planted.to(present.device)
            present[:, self.canary_node, place] = planted
            if self.replaced is not None:
                present[:, self.canary_node, self.replaced] = ~planted
        return present

    def records(self, node: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of records ``index`` (rows, samples) of nodes ``node``."""
        return self.inputs[node[:, None], index], self.targets[node[:, None], index]

    def to(self, device: str) -> PrivateData:
        """The same on another device."""
        direction = self.direction
        return dataclasses.replace(
            self,
            inputs=self.inputs.to(device),
            targets=self.targets.to(device),
            direction=None if direction is None else direction.to(device),
        )
