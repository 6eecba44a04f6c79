"""A user's own data as one data set a node."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import mmap
from collections.abc import Callable, Mapping, Sequence, Sized
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)
from torch.utils.data import Dataset as TorchDataset

from privaudit.files.frames import check_aligned
from privaudit.files.npz import check_unmasked
from trainers.data import forked
from trainers.data.forked import Ended
from trainers.data.records import Dataset, PrivateData, ReadAsAsked
from trainers.data.splits import Partition
from trainers.data.transforms import NO_CLASS, Alone, plain, void
from trainers.numerics.randomness import public_generator

_READ = 0x5DEECE66D  # so that a transform of the same record draws other numbers
_FORMS = (
    "a pair of arrays or tensors (inputs, targets), pandas' frames among them, or a "
    "torch Dataset or DataLoader of such pairs"
)


Pair = forked.Tensors  # the input and the target of a record, or of several


@dataclasses.dataclass(frozen=True, slots=True)
class OneByOne:
    """Records of a torch Dataset: each by itself, and like what is declared."""

    code: Alone
    like: Pair

    def found(self, rows: np.ndarray, seeds: np.ndarray) -> list[Pair | Ended]:
        """Each record at its own seed, or why there is none."""
        given = rows.tolist(), (seeds ^ _READ).tolist(), rows.tolist()
        return self.code.each(*given, like=self.like)

    def __call__(self, rows: np.ndarray, seeds: np.ndarray) -> Pair:
        made = self.found(rows, seeds)
        pairs = [void(self.like) if isinstance(one, Ended) else one for one in made]
        inputs, targets = zip(*pairs, strict=True)
        return torch.stack(inputs), torch.stack(targets)


@dataclasses.dataclass(frozen=True, slots=True)
class OfFile:
    """Records that numpy maps from a file."""

    inputs: np.memmap
    targets: np.ndarray

    def __call__(self, rows: np.ndarray, seeds: np.ndarray) -> tuple[Any, ...]:
        return _mapped(self.inputs, rows), self.targets[rows]


@dataclasses.dataclass(frozen=True, slots=True)
class Lazy:
    """Records that are read when they are asked for, and not kept."""

    # from records' numbers, and a seed for each, to their inputs and targets
    rows: OneByOne | OfFile
    records: Tensor  # the numbers, (samples,)
    # how many there are, where targets are classes: others are `NO_CLASS`, once they
    # are read
    classes: int | None = None
    users: Tensor | None = None  # of each of ``records``
    like: Pair | None = None  # a made-up record, where one is declared

    def __len__(self) -> int:
        return len(self.records)

    @property
    def by_their_code(self) -> bool:
        """Reading by a torch Dataset, which may do anything."""
        return not isinstance(self.rows, OfFile)

    @property
    def example(self) -> tuple[Tensor, Tensor]:
        """As `Dataset.example`: what was declared, if it was."""
        if self.like is not None:
            input, target = self.like
            return input, target
        inputs, targets = self.read(torch.zeros(1, dtype=torch.long))
        return inputs[0], targets[0]

    def read(self, index: Tensor, seeds: Tensor | None = None) -> tuple[Tensor, Tensor]:
        rows = self.records[index]
        given = (rows if seeds is None else seeds).numpy()
        inputs, targets = self.rows(rows.numpy(), given)
        inputs, targets = _tensors(inputs, targets)
        if self.classes is not None:
            targets = within_classes(targets, self.classes)
        return inputs, targets

    def select(self, index: Tensor) -> Lazy:
        users = None if self.users is None else self.users[index]
        return dataclasses.replace(self, records=self.records[index], users=users)


@dataclasses.dataclass(frozen=True, slots=True)
class Users:
    """Whose records are, where it is users that are protected."""

    # as records are given: an array for each share, or one for the one data set
    labels: Any
    overlap: int = 1  # at how many nodes one user may have records, as is paid for


def shares_of(
    shares: Any,
    *,
    nodes: int | None = None,
    split: str = "even",
    seed: int = 0,
    users: Users | None = None,
) -> list[Dataset | Lazy]:
    """One data set a node, checked.

    ``shares``: a sequence with one data set a node or, with ``nodes``, one data set for
    all. A data set is a pair of arrays or tensors, or of pandas' frames, or a torch
    Dataset, or the one of a DataLoader, see `of_loader`. What numpy maps from a file
    and other torch Datasets than TensorDataset are read as records are drawn: they may
    be larger than memory. ``nodes``: to how many nodes the one data set is dealt.
    ``split``: how: "even", shuffled; or "file:PATH", see
    `trainers.data.splits.split_by_file`. Nothing reads labels: they are private. A
    torch Dataset of somebody's has ``example``, a made-up record of the shape of all.
    ``seed``: of the dealing. Public. ``users``: whose each record is; of the one data
    set, "even" then deals users.

    Returns each (samples, ...) inputs, floats in single precision and integers in 64
    bits. Raises ``ValueError`` if a share is empty or of another form or shape than the
    others; if users are not told of every record, or one has records at more nodes than
    are paid for. What a record holds is no reason: one that cannot be used counts
    nothing.

    Examples
    --------
    >>> import numpy as np
    >>> inputs, targets = np.zeros((10, 3)), np.arange(10) % 2
    >>> [len(share) for share in shares_of((inputs, targets), nodes=4)]
    [3, 3, 2, 2]
    """
    names: list[Any] = []
    if nodes is None and split != "even":
        raise ValueError(
            f"split={split} deals one data set: give nodes=, or leave split out of "
            "shares, which are dealt"
        )
    if nodes is not None:
        if nodes < 1:
            raise ValueError(f"nodes must be >= 1, got {nodes}")
        if isinstance(shares, list) and isinstance(shares[0], tuple):
            raise ValueError(
                "shares are dealt already, one data set a node: leave nodes out"
            )
        whole = data_set(shares, "the data set")
        if users is not None:
            (whole,), names = _with_users([whole], [users.labels], [shares])
        found = _dealt(whole, nodes, split, seed)
    else:
        if isinstance(shares, (str, bytes, Tensor, np.ndarray, TorchDataset)) or not (
            isinstance(shares, Sequence) and shares
        ):
            raise ValueError(
                "shares is a list with one data set a node, got "
                f"{type(shares).__name__}{_advice(shares)}; give nodes= to deal one "
                "data set"
            )
        if len(shares) == 2 and all(_is_array(each) for each in shares):
            raise ValueError(
                "shares is a list with one data set a node, got one pair of arrays: "
                "give nodes= to deal it, or [pair] for a single node"
            )
        found = [
            data_set(share, f"the share of node {node}")
            for node, share in enumerate(shares)
        ]
        if users is not None:
            found, names = _with_users(found, users.labels, shares)
    first = found[0].example
    for node, share in enumerate(found):
        check_alike(share, first, f"node {node}")
    if users is not None:
        _check_overlap(found, names, users.overlap)
    return found


def private_data(shares: Sequence[Dataset | Lazy], **canary: Any) -> Any:
    """`PrivateData` where all records are in memory, and `ReadAsAsked` where not."""
    if all(isinstance(share, Dataset) for share in shares):
        return PrivateData.of(list(shares), **canary)  # type: ignore[arg-type]
    return ReadAsAsked(shares)


def check_labels(targets: Tensor, classes: int, name: str) -> None:
    """Raise ``ValueError`` for a class that is not in [0, ``classes``)."""
    wrong = targets[(targets < 0) | (targets >= classes)]
    if len(wrong):
        raise ValueError(
            f"{name} has the label {int(wrong[0])}, but the model tells {classes} "
            f"classes apart: labels are 0 to {classes - 1}"
        )


def within_classes(targets: Tensor, classes: int) -> Tensor:
    """Labels, `NO_CLASS` (no loss) for those outside of [0, ``classes``)."""
    return targets.where((targets >= 0) & (targets < classes), NO_CLASS)


def data_set(data: Any, name: str) -> Dataset | Lazy:
    """One data set, checked, as `shares_of` takes them; errors call it ``name``."""
    if isinstance(data, DataLoader):
        data = of_loader(data, name)
    if isinstance(data, Dataset):  # without code of somebody's, in it or its tensors
        found = Dataset(plain(data.inputs), plain(data.targets), data.users)
    elif type(data) is Lazy and type(data.rows) in (OneByOne, OfFile):
        found = data
    elif (
        isinstance(data, TensorDataset)
        and len(data.tensors) == 2
        and type(data).__getitem__ is TensorDataset.__getitem__  # else theirs counts
    ):
        inputs, targets = data.tensors
        found = _pair(inputs, targets, name)
    elif isinstance(data, TorchDataset):
        if not isinstance(data, Sized):
            raise ValueError(
                f"{name} has no length: records are drawn by their numbers, so that a "
                "torch Dataset must know how many it has, not an IterableDataset"
            )
        if len(data) == 0:
            raise ValueError(f"{name} is empty: every node needs a record")
        rows: TorchDataset = data
        like = _declared(data, name)
        read = OneByOne(Alone(lambda row: rows[row], _record), like)
        found = Lazy(read, torch.arange(len(data)), like=like)
    elif isinstance(data, (tuple, list)) and len(data) == 2:
        inputs, targets = data
        found = _pair(inputs, targets, name)
    else:
        raise ValueError(
            f"{name} is {_FORMS}, got {type(data).__name__}{_advice(data)}"
        )
    if len(found) == 0:
        raise ValueError(f"{name} is empty: every node needs a record")
    try:
        input, target = found.example
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise ValueError(f"{name}: its first record cannot be read: {error}") from error
    for part, value in (("input", input), ("target", target)):
        if value.is_complex():
            raise ValueError(f"{name}: {part}s are numbers, got {value.dtype}")
    return found


def _advice(data: Any) -> str:
    """The way from ``data`` to a data set or several, in words that read no record."""
    if isinstance(data, str):
        return " (pandas.read_csv reads a file)"
    if hasattr(data, "columns"):
        return ": (frame.drop(columns='ill'), frame.ill) is a data set"
    if isinstance(data, Mapping):
        if len(data) == 2 and all(map(_is_array, data.values())):
            return f": (data[{', data['.join(f'{name!r}]' for name in data)}) is one"
        return ": list(data.values()) has its values, one a node"
    return ""


def of_loader(loader: DataLoader, name: str) -> TorchDataset:
    """The data set of a loader, each record by ``collate_fn`` of it alone."""
    sampler, batches = loader.sampler, loader.batch_sampler
    every = type(sampler) in (SequentialSampler, RandomSampler)
    if not every or type(batches) not in (BatchSampler, type(None)):
        kind = type(batches if every else sampler).__name__
        raise ValueError(
            f"{name} is a DataLoader with a {kind}: batches are drawn otherwise here, "
            "and which records it leaves out is not known; give its data set, or a "
            "torch.utils.data.Subset of that"
        )
    logging.getLogger("privaudit").warning(
        "%s is a DataLoader: its data set and collate_fn are used, its sampler and "
        "batch size are not, since batches are drawn as the account has it",
        name,
    )
    if loader.collate_fn is default_collate:
        return loader.dataset
    return _Collated(loader.dataset, loader.collate_fn)


class _Collated(TorchDataset):
    """Records of ``data``, each of which went through ``collate`` alone."""

    def __init__(self, data: Any, collate: Callable[..., Any]) -> None:
        self._data, self._collate = data, collate

    @property
    def example(self) -> Any:
        return self._alone(_declared(self._data, "the data set of a DataLoader"))

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        return self._alone(self._data[index])

    def _alone(self, record: Any) -> Any:
        input, target = self._collate([record])
        return input[0], target[0]


def _pair(inputs: Any, targets: Any, name: str) -> Dataset | Lazy:
    for part, values in (("inputs", inputs), ("targets", targets)):
        if not _is_array(values):
            raise ValueError(
                f"{name}: {part} are an array or a tensor, got {type(values).__name__}"
            )
        if not len(values.shape):
            raise ValueError(f"{name}: {part} have a row for each record, got a number")
        check_unmasked(values, f"{name}: {part}")
    if len(inputs) != len(targets):
        raise ValueError(f"{name} has {len(inputs)} inputs but {len(targets)} targets")
    check_aligned(inputs, targets, (f"{name}: inputs", "targets"))
    if isinstance(inputs, np.memmap):
        # Without code of somebody's: a kind of memmap may read rows as it likes.
        mapped = np.ndarray.view(inputs, np.memmap)
        if mapped._mmap is not None:  # type: ignore[attr-defined]  # else a copy
            return Lazy(OfFile(mapped, np.asarray(targets)), torch.arange(len(mapped)))
    return Dataset(*_tensors(inputs, targets, name))


def _is_array(values: Any) -> bool:
    return hasattr(values, "shape") and hasattr(values, "__len__")


def _tensor(values: Any, name: str = "a record", yes: Any = torch.float) -> Tensor:
    """As a tensor on the CPU: single precision, 64 bits; yes and no as ``yes``."""
    own: Any = getattr(values, "dtype", None)
    if hasattr(own, "numpy_dtype"):  # pandas' with gaps, which must change no type
        whole = own.kind in "iu" or (own.kind == "b" and yes == torch.long)
        kind, gap = (np.int64, NO_CLASS) if whole else (float, np.nan)
        values = values.to_numpy(kind, na_value=gap)
    if hasattr(values, "to_numpy"):  # pandas
        columns = [str(x) for x in getattr(values, "columns", ())]
        if twice := [x for at, x in enumerate(columns) if x in columns[:at]]:
            raise ValueError(
                f"{name} has several columns called {twice[0]}: rename them, or leave "
                "all but one out"
            )
        frame, values = values, values.to_numpy()
        kinds = dict(getattr(frame, "dtypes", {})) if values.ndim == 2 else {}
        text = [str(x) for x, own in kinds.items() if own.kind not in "biuf"]
        if values.dtype == object and (text or values.ndim == 1):
            own = None if text else getattr(frame, "name", None)
            one = "a column" if own is None else f"column {own}"
            which = f"columns {', '.join(text)}" if text else one
            raise ValueError(
                f"{name} holds what is no number, in {which}: leave it out, or write "
                "it as numbers; classes are 0, 1, ..., as (frame.column == 'yes')"
                ".astype(int) makes them"
            )
        if values.dtype == object:  # of columns of numbers, and of yes and no
            values = frame.astype(float).to_numpy()
    try:
        if not isinstance(values, Tensor):
            values = np.require(values, requirements=["C", "W"])
            native = values.dtype.newbyteorder("=")  # torch takes no other
            values = torch.as_tensor(values.astype(native, copy=False))
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} holds what is no number ({getattr(values, 'dtype', 'no array')}): "
            "write it as numbers; classes are 0, 1, ..., as (column == 'yes').astype("
            "int) makes them"
        ) from None
    if values.layout is not torch.strided:
        values = values.to_dense()
    found = plain(values).cpu()
    if found.is_floating_point():
        return found.float()
    if found.dtype == torch.bool:
        return found.to(yes)
    return found if found.is_complex() else found.long()


def _tensors(inputs: Any, targets: Any, *name: str) -> tuple[Tensor, Tensor]:
    return _tensor(inputs, *name), _tensor(targets, *name, yes=torch.long)


def _mapped(values: np.memmap, rows: np.ndarray) -> np.ndarray:
    """A copy of ``rows``; what was read is not kept in this process's memory."""
    found = values[rows]
    # Of a private mapping, changes that were not written would be lost.
    if values.mode != "c":
        values._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
    return found


def _declared(data: Any, name: str) -> Pair:
    """Made-up record of a torch Dataset, as that declares it: no private one is read.

    Of torch's own data sets it is what they have of it.
    """
    declares = inspect.getattr_static(data, "example", None) is not None
    if isinstance(data, Subset) and not declares:
        return _declared(data.dataset, name)
    if isinstance(data, ConcatDataset) and not declares:
        return _declared(data.datasets[0], name)
    if not declares and not isinstance(data, TensorDataset):
        raise ValueError(
            f"{name} is a {type(data).__name__}, whose code reads each record, and the "
            "shape of all is public: say it by a made-up record, such as "
            "data.example = (torch.zeros(3, 32, 32), 0)"
        )

    own: Any = data

    def made() -> Pair:
        if declares:
            return _record(own.example, 0)
        return _record([part.new_zeros(part.shape[1:]) for part in data.tensors], 0)

    try:
        return forked.one(made)
    except Ended as error:
        raise ValueError(
            f"{name}: its example must be an input and a target: {error}"
        ) from error


def _record(found: Any, row: int) -> Pair:
    input, target = found
    for value in (input, target):
        check_unmasked(value, f"parts of record {row}")
    return _tensors(input, target)


def check_finite(data: Dataset, name: str) -> None:
    """Raise ``ValueError`` for a number that is not finite, in data that are public."""
    for part, values in (("inputs", data.inputs), ("targets", data.targets)):
        if not (fine := values.isfinite()).all():
            raise ValueError(
                f"{name}: the {part} of record {int((~fine).nonzero()[0, 0])} are not "
                "finite; fill in or leave out what is missing"
            )


def check_alike(share: Dataset | Lazy, first: Pair, name: str) -> None:
    """Raise ``ValueError`` if a share's records are unlike node 0's ``first``."""
    parts = zip(("inputs", "targets"), share.example, first, strict=True)
    for part, ours, theirs in parts:
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            raise ValueError(
                f"all {part} must be of one shape and kind: node 0 has "
                f"{tuple(theirs.shape)} of {theirs.dtype}, {name} "
                f"{tuple(ours.shape)} of {ours.dtype}"
            )


def _with_users(
    found: list[Dataset | Lazy], users: Any, given: Sequence[Any]
) -> tuple[list[Dataset | Lazy], list[Any]]:
    """The shares with their users' numbers, and what the users are called."""
    if isinstance(users, (str, bytes)) or not hasattr(users, "__len__"):
        raise ValueError(
            "users are labels, one for each record: an array for each share, or one "
            f"array with nodes=, got {type(users).__name__}"
        )
    if len(users) != len(found):
        raise ValueError(
            f"users has {len(users)} entries for {len(found)} data sets: give an array "
            "of labels for each"
        )
    columns, kinds = [], set[str]()
    each = zip(found, users, given, strict=True)
    for node, (share, labels, data) in enumerate(each):
        check_unmasked(labels, f"users of data set {node}")
        column = np.asarray(labels)
        if column.ndim != 1 or len(column) != len(share):
            raise ValueError(
                f"users of data set {node} have shape {column.shape}, but it has "
                f"{len(share)} records: give one label for each"
            )
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            raise ValueError(f"users of data set {node} hold nan or infinity")
        for part in data if isinstance(data, (tuple, list)) else ():
            check_aligned(part, labels, (f"data set {node}", "its users"))
        columns.append(column)
        as_given = isinstance(labels, (tuple, list)) or column.dtype == object
        kinds |= {_kind(type(x)) for x in (labels if as_given else column[:1])}
    try:
        if len(kinds) > 1:
            raise TypeError
        names, numbers = np.unique(np.concatenate(columns), return_inverse=True)
    except TypeError:
        raise ValueError(
            f"users' labels are of different kinds ({', '.join(sorted(kinds))}), and "
            "one user's could differ: use one kind at all nodes"
        ) from None
    parts = torch.from_numpy(numbers.reshape(-1)).split([len(c) for c in columns])
    found = [
        dataclasses.replace(share, users=part)
        for share, part in zip(found, parts, strict=True)
    ]
    return found, list(names)


def _kind(label: type) -> str:
    """The name of all types of which labels are compared by their value."""
    if label is not bool and issubclass(label, (Integral, float)):
        return "number"  # of 64 bits: those of 32 round otherwise
    return "str" if issubclass(label, str) else label.__name__


def _check_overlap(
    found: Sequence[Dataset | Lazy], names: Sequence[Any], overlap: int
) -> None:
    """``ValueError`` if a user has records at more nodes than is paid for."""
    where: dict[int, list[int]] = {}
    for node, share in enumerate(found):
        assert share.users is not None
        for user in share.users.unique().tolist():
            where.setdefault(user, []).append(node)
    user, nodes = max(where.items(), key=lambda held: len(held[1]))
    if len(nodes) > overlap:
        at = f"{', '.join(map(str, nodes[:-1]))} and {nodes[-1]}"
        raise ValueError(
            f"user {names[user]} has records at {len(nodes)} nodes ({at}), each of "
            f"which releases updates of that user: keep a user at one node, or pay "
            f"with overlap={len(nodes)}"
        )


def _dealt(
    data: Dataset | Lazy, nodes: int, split: str, seed: int
) -> list[Dataset | Lazy]:
    """By public numbers alone: whose record is where may not depend on what it is."""
    if split == "even" and data.users is not None:
        return _users_dealt(data, nodes, seed)
    kind = split.partition(":")[0]
    if kind in ("classes", "dirichlet"):
        raise ValueError(
            f"the split {split} deals private records by their labels: one would say "
            "at which nodes others are, and the nodes' sizes, which are public, would "
            "tell labels; use even or file:PATH, or give one data set a node"
        )
    return list(Partition.parse(split)(data, nodes, seed=seed))  # type: ignore[arg-type]


def _users_dealt(data: Dataset | Lazy, nodes: int, seed: int) -> list[Dataset | Lazy]:
    """Users, with all of their records, dealt evenly."""
    assert data.users is not None
    count = int(data.users.max()) + 1
    if count < nodes:
        raise ValueError(
            f"{count} users cannot be dealt to {nodes} nodes: every node needs one"
        )
    order = torch.randperm(count, generator=public_generator(seed, "users"))
    owner = torch.empty(count, dtype=torch.long)
    owner[order] = torch.arange(count) % nodes
    return [
        data.select((owner[data.users] == node).nonzero()[:, 0])
        for node in range(nodes)
    ]
