"""Records of nodes, in memory or read when sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.data.transforms import Drawn


@dataclasses.dataclass(frozen=True, slots=True)
class Dataset:
    """Samples with labels."""

    inputs: Tensor  # (samples, ...), floats or integers such as tokens
    targets: Tensor  # (samples, ...), integer classes or floats
    # (samples,): the number of each sample's user, where samples are of users
    users: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise ValueError(
                f"{len(self.inputs)} inputs but {len(self.targets)} targets"
            )

    def __len__(self) -> int:
        return len(self.targets)

    def select(self, index: Tensor) -> Dataset:
        users = None if self.users is None else self.users[index]
        return Dataset(self.inputs[index], self.targets[index], users)

    @property
    def example(self) -> tuple[Tensor, Tensor]:
        """An input and a target, of which shape and type are looked at."""
        return self.inputs[0], self.targets[0]

    def read(self, index: Tensor, seeds: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the samples at ``index``, which draw nothing."""
        return self.inputs[index], self.targets[index]


@dataclasses.dataclass(frozen=True, slots=True)
class PrivateData:
    """The records of all nodes, stacked, and perhaps canaries."""

    # (nodes, records + canaries, ...): rows beyond a node's own are padding, never
    # used; those after its last are the canaries' places, one at least
    inputs: Tensor
    targets: Tensor  # (nodes, records + canaries)
    sizes: tuple[int, ...]  # how many records each node has, without a canary. Public
    # nodes whose extra rows hold canaries, which are dealt to them in turn; () if there
    # are none
    canary_nodes: tuple[int, ...] = ()
    # the row of the node in whose place the canary comes; None if it is one more
    replaced: int | None = None
    # (dims,): the canary's gradient points there whatever the parameters, as long as
    # clipping allows, and that of the record which it replaces the other way: the pair
    # that is hardest to hide. None if it is an ordinary record
    direction: Tensor | None = None
    # of each node, the numbers of its records' users, (records,); None where each
    # node's records are one user's
    users: tuple[Tensor, ...] | None = None
    # (canaries,): the gradient of each canary is along a parameter of its own, whatever
    # the parameters, as long as clipping allows. None if they are ordinary records, or
    # there is a ``direction``
    coordinates: Tensor | None = None
    canaries: int = 1  # how many rows there are for canaries

    @classmethod
    def of(
        cls,
        shares: list[Dataset],
        *,
        canary: Dataset | None = None,
        canary_nodes: tuple[int, ...] = (0,),
        replaces: bool = False,
        direction: Tensor | None = None,
        coordinates: Tensor | None = None,
    ) -> PrivateData:
        """Stack one dataset a node, and deal the samples of ``canary`` to some.

        They are records more, or one ``replaces`` the node's first. ``ValueError`` if a
        node has no record, or the canaries are of another shape.
        """
        sizes = tuple(len(share) for share in shares)
        for node, size in enumerate(sizes):
            if size == 0:
                raise ValueError(
                    f"node {node} has no records: use fewer nodes or another split"
                )
        first = shares[0].inputs
        many = 1 if canary is None else len(canary)
        rows, kind = max(sizes) + max(1, many), shares[0].targets
        inputs = first.new_zeros(len(shares), rows, *first.shape[1:])
        targets = kind.new_zeros(len(shares), rows, *kind.shape[1:])
        for node, share in enumerate(shares):
            inputs[node, : len(share)] = share.inputs
            targets[node, : len(share)] = share.targets
        users = users_of(shares)
        if canary is None:
            return cls(inputs, targets, sizes, users=users)
        if not many or canary.inputs.shape[1:] != first.shape[1:]:
            raise ValueError(
                "a canary is one sample of the records' shape "
                f"{tuple(first.shape[1:])}, got {tuple(canary.inputs.shape)}"
            )
        if many > 1 and replaces:
            raise ValueError(
                "one canary can come in a record's place, several are records more: "
                "use sampling=poisson"
            )
        for node in canary_nodes:
            inputs[node, sizes[node] : sizes[node] + many] = canary.inputs
            targets[node, sizes[node] : sizes[node] + many] = canary.targets
        place = 0 if replaces else None
        return cls(
            *(inputs, targets, sizes, canary_nodes, place, direction),
            users=users,
            coordinates=coordinates,
            canaries=many,
        )

    @property
    def nodes(self) -> int:
        return len(self.sizes)

    @property
    def device(self) -> torch.device:
        return self.inputs.device

    @property
    def values_per_record(self) -> int:
        return self.inputs[0, 0].numel()

    def present(self, runs: int, planted: Tensor | None) -> Tensor:
        """Mask of rows that are records: bool, (runs, nodes, records + canaries)."""
        return present_rows(self, runs, planted)

    def records(self, node: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of records ``index`` (rows, samples) of nodes ``node``."""
        place = node[:, None] * self.inputs.shape[1] + index
        return _taken(self.inputs, place), _taken(self.targets, place)

    def to(self, device: str) -> PrivateData:
        names = ("inputs", "targets", "direction", "coordinates")
        parts = {name: getattr(self, name) for name in names}
        moved = {name: one.to(device) for name, one in parts.items() if one is not None}
        return dataclasses.replace(self, **moved)


def _taken(part: Tensor, place: Tensor) -> Tensor:
    """Rows at ``place`` of (nodes, records, ...), counted through: a fast index."""
    found = part.flatten(0, 1).index_select(0, place.flatten())
    return found.view(*place.shape, *part.shape[2:])


class ReadAsAsked(Drawn):
    """As `PrivateData`, without a canary: a batch is read when it is drawn.

    ``shares``: one a node, a `Dataset` or `trainers.data.shares.Lazy`.
    """

    canary_nodes = ()
    replaced = direction = coordinates = None
    canaries = 1

    def __init__(self, shares: Sequence[Any], device: str = "cpu") -> None:
        super().__init__()
        self.shares = tuple(shares)
        self.sizes = tuple(len(share) for share in shares)
        self.users = users_of(shares)
        self.device = torch.device(device)

    @property
    def nodes(self) -> int:
        return len(self.sizes)

    @property
    def values_per_record(self) -> int:
        return self.shares[0].example[0].numel()

    def present(self, runs: int, planted: Tensor | None) -> Tensor:
        if planted is not None:
            raise ValueError("records that are read as asked for have no canary")
        return present_rows(self, runs, None)

    def records(self, node: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """As `PrivateData.records`; each record of a row is read once."""
        parts = []
        for who, wanted in zip(node.tolist(), index.cpu(), strict=True):
            # What fills up an empty batch is the row's first record, which is there.
            once, places = wanted.unique(return_inverse=True)
            share, seeds = self.shares[who], None
            if self._streams is not None and getattr(share, "by_their_code", False):
                seeds = self._seeds(who)[once]
            inputs, targets = share.read(once, seeds)
            parts.append((inputs[places], targets[places]))
        inputs, targets = (torch.stack(column) for column in zip(*parts, strict=True))
        return inputs.to(self.device), targets.to(self.device)

    def to(self, device: str) -> ReadAsAsked:
        return ReadAsAsked(self.shares, device)


def users_of(shares: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """The users of each share's records; None where none are told apart."""
    found = [getattr(share, "users", None) for share in shares]
    known = tuple(one for one in found if one is not None)
    return known if len(known) == len(found) else None


def present_rows(data: Any, runs: int, planted: Tensor | None) -> Tensor:
    """`PrivateData.present`, of whatever has sizes and perhaps canaries."""
    rows = torch.arange(max(data.sizes) + max(1, data.canaries), device=data.device)
    sizes = torch.tensor(data.sizes, device=data.device)
    present = (rows < sizes[:, None]).repeat(runs, 1, 1)
    if planted is not None:
        if not data.canary_nodes:
            raise ValueError("there is no canary in these data to be planted")
        expected = (runs,) if data.canaries == 1 else (runs, data.canaries)
        if planted.shape not in (expected, (runs, data.canaries)):
            raise ValueError(
                f"planted must have one entry a run, {expected}, "
                f"got {tuple(planted.shape)}"
            )
        planted = planted.to(present.device).view(runs, data.canaries)
        nodes = data.canary_nodes
        for first, node in enumerate(nodes):
            rows = present[:, node, data.sizes[node] :][:, : data.canaries]
            rows[:, first :: len(nodes)] = planted[:, first :: len(nodes)]
            if data.replaced is not None:
                present[:, node, data.replaced] = ~planted[:, 0]
    return present
