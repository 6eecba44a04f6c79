"""Model, data and loss of a training: by name, or a user's own."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import pickle
import reprlib
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from privaudit.files.user_code import checked, function_named, is_place, takes, told
from privaudit.results import Independence
from privaudit.task_settings import FOLDER, check_no_table, is_own, is_table
from trainers.data import Dataset, Partition, forked, load_dataset, tables
from trainers.data.shares import (
    Lazy,
    Users,
    check_alike,
    check_finite,
    check_labels,
    data_set,
    shares_of,
    within_classes,
)
from trainers.data.transforms import Transform, Transformed, check_transform
from trainers.gradients.door.enter import enter, placeholders
from trainers.gradients.door.trace import apart_from, check_apart
from trainers.gradients.per_sample import Loss
from trainers.models import cross_entropy, make_model
from trainers.models.independence import independence, tensors_of
from trainers.numerics.randomness import public_generator
from trainers.runs.training import Training

Quality = Literal["accuracy", "loss"]
_MOST_READ = 1 << 28  # numbers of records that are read from where they lie
_TEST = 10_000  # records of the test data, at most, if they are not in memory


@dataclasses.dataclass(frozen=True, slots=True)
class Material:
    """Data, model and loss of a training."""

    # one data set a node, in memory or read as asked for
    shares: Sequence[Dataset | Lazy]
    test: Dataset | None  # data to measure models on; None: they are not measured
    module: nn.Module  # the model
    loss: Loss = cross_entropy  # from outputs and targets to one number a record
    # whether training starts at the module's own parameters; if not, they are drawn
    # from the public seed
    starts_as_it_is: bool = False
    # what each record's input goes through, by itself, each time it is used
    transform: Transform | None = None
    # the user's module, of which ``module`` was made; None if it is as it was given
    given: nn.Module | None = None
    # the user's, of which ``loss`` was made; None if none was given
    given_loss: Callable[..., Any] | None = None
    # why it is not by construction that a record's gradient is its own, as far as the
    # model and the loss are concerned; None where it is
    why_not: str | None = None
    # whether cross entropy is taken of outputs that are probabilities already
    has_softmax: bool = False
    # how many classes the model tells apart, where that was seen: labels are below it
    classes: int | None = None

    @property
    def example(self) -> tuple[Tensor, Tensor]:
        """A made-up input and target, of the shape and type of a record's."""
        input, target = self.shares[0].example
        return placeholders(self.module, input, 1)[0], torch.zeros_like(target)

    @property
    def whole(self) -> nn.Module:
        """The user's module, of which ``module`` was made; or that itself."""
        return self.module if self.given is None else self.given

    @property
    def quality(self) -> Quality:
        """Quality to measure of models: accuracy where targets are classes."""
        return "accuracy" if self.loss is cross_entropy else "loss"

    @property
    def independence(self) -> Independence:
        """Independence of records' gradients, and how well it is known."""
        return independence(self.module, self.loss, self.shares, self.transform)

    @property
    def takes(self) -> tuple[str, ...]:
        """Tensors that traced code takes besides parameters: in words, for people."""
        return tensors_of(self.module, self.loss)

    def with_transform(self, transform: Callable[[Tensor], Any]) -> Material:
        """The same, with a transform of records; ``ValueError`` if it is none."""
        input, _ = self.shares[0].example
        check_transform(transform, placeholders(self.module, input, 3))
        return dataclasses.replace(self, transform=transform)

    def in_memory(self) -> Material:
        """The same with all records in memory, where a canary can be planted."""
        if all(isinstance(share, Dataset) for share in self.shares):
            return self
        input, target = self.shares[0].example
        numbers = sum(map(len, self.shares)) * (input.numel() + target.numel())
        if numbers > _MOST_READ:
            raise ValueError(
                f"a canary is planted among records in memory, and these are "
                f"{numbers:,} numbers, of at most {_MOST_READ:,}: audit fewer records"
            )
        read = [Dataset(*one.read(torch.arange(len(one)))) for one in self.shares]
        return dataclasses.replace(self, shares=read)

    def at_random(self, seed: int) -> Material:
        """Random records of the same shapes and numbers in the place of the data."""
        input, target = self.example
        generator = torch.Generator().manual_seed(seed)

        def made(count: int) -> Dataset:
            inputs = placeholders(self.module, input, count)
            order = torch.randperm(count, generator=generator)
            return Dataset(inputs[order], target.repeat(count, *[1] * target.dim()))

        shares = [made(len(share)) for share in self.shares]
        return dataclasses.replace(self, shares=shares)

    def data(self, stacked: Any) -> Any:
        """``stacked``, of `trainers.data.shares.private_data`, with the transform."""
        if self.transform is None:
            return stacked
        return Transformed(stacked, self.transform)

    @classmethod
    def by_name(
        cls,
        training: Training,
        seed: int,
        data_dir: str | pathlib.Path | None = None,
        held_out: float = 0.0,
        held: range | None = None,
    ) -> Material:
        """Material that ``training`` names; of the nodes ``held`` alone, if given."""
        if is_own(training.data):
            found = _own_by_name(training, seed, held)
        else:
            found = cls._of_known_data(training, seed, data_dir, held_out, held)
        if training.transform is None:
            return found
        return found.with_transform(function_named(training.transform))

    @classmethod
    def _of_known_data(
        cls,
        training: Training,
        seed: int,
        data_dir: str | pathlib.Path | None,
        held_out: float,
        held: range | None,
    ) -> Material:
        if not 0 <= held_out < 1:
            raise ValueError(f"held_out must be in [0, 1), got {held_out}")
        train, test = load_dataset(
            training.data,
            train=training.train,
            labels=training.labels,
            seed=seed,
            data_dir=data_dir,
        )
        if held_out:
            generator = public_generator(seed, "held out")
            order = torch.randperm(len(train), generator=generator)
            left = len(train) - round(held_out * len(train))
            train, test = train.select(order[:left]), train.select(order[left:])
        nodes = 1 if training.family.central else training.nodes
        deal = Partition.parse(training.partition)
        shares = deal(train, nodes, t=training.split, seed=seed)
        if held is not None:
            shares = list(shares)[held.start : held.stop]
        if is_place(training.model):
            with checked(f"model {training.model}"):
                function = function_named(training.model)
            if not takes(function, "input_shape", "classes"):
                try:
                    return cls.own(model_made(training.model, seed), shares, test=test)
                except ValueError as error:
                    raise ValueError(
                        f"{error}; the data were {training.data}, and --data gives "
                        "others"
                    ) from error
        module = training.module(tuple(train.inputs.shape[1:]))
        if is_place(training.model):  # somebody's code, too
            taken = enter(module, None, *shares[0].example)
            more = {"given": module, "why_not": taken.why_not}
            return cls(shares, test, taken.module, taken.loss, **more)
        return cls(shares, test, module)

    @classmethod
    def own(
        cls,
        model: nn.Module | Callable[[], nn.Module] | str,
        shares: Any,
        *,
        classes: int | None = None,
        loss: Callable[..., Any] | None = None,
        test: Any = None,
        **how: Any,
    ) -> Material:
        """A user's module, data and loss, checked.

        ``model``: a module, whose parameters are the start, what makes one, or a name
        in `trainers.models.MODELS`. ``shares``, ``how``: see
        `trainers.data.shares.shares_of`. ``classes`` are public, and never counted in
        the data: None only without a name. ``loss``: see
        `trainers.gradients.door.enter.enter`. ``ValueError`` if they do not fit each
        other, or the model or the loss mixes records.
        """
        found = shares_of(shares, **how)
        if isinstance(model, str):
            module = _named(model, found, classes)
        elif callable(model) and not isinstance(model, nn.Module):
            with checked("the model cannot be made"):
                module = model()
        else:
            module = model
        if not isinstance(module, nn.Module):
            raise ValueError(
                f"model is a torch.nn.Module or makes one, got {type(module).__name__}"
            )
        input, targets = found[0].example
        with apart_from([*_tensors(shares), *_tensors(found)]):
            for name, held in (*module.named_parameters(), *module.named_buffers()):
                check_apart(held, f"{name} of the model")
            entered = enter(module, loss, input, targets)
        outputs = entered.outputs
        tested = None if test is None else _in_memory(test)
        if tested is not None:
            check_alike(tested, found[0].example, "test")
        told, classifies = None, loss is None or entered.loss is cross_entropy
        if classifies and not targets.is_floating_point() and outputs.dim() > 1:
            if classes not in (None, outputs.shape[1]):
                raise ValueError(
                    f"classes={classes}, but the model tells {outputs.shape[1]} apart: "
                    "leave classes out, which is for models by name"
                )
            told = outputs.shape[1]
            if tested is not None:
                check_labels(tested.targets, told, "test")
            found = [_of_classes(share, told) for share in found]
        return cls(
            *(found, tested, entered.module, entered.loss),
            starts_as_it_is=not isinstance(model, str),
            given=module,
            given_loss=loss,
            why_not=entered.why_not,
            has_softmax=classifies and _are_probabilities(outputs),
            classes=told,
        )


def _tensors(given: Any, depth: int = 3) -> Iterator[Tensor]:
    """Tensors of records in what was given: in lists of pairs, or of their datasets."""
    if hasattr(given, "to_numpy"):  # pandas, which may give its own memory
        given = given.to_numpy()
    if isinstance(given, np.ndarray):
        # What torch takes without a copy: others no tensor can share memory with.
        with contextlib.suppress(TypeError, ValueError), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            given = torch.from_numpy(given)
    if isinstance(given, Tensor):
        if given.layout is torch.strided:
            yield given
    elif isinstance(given, Dataset):
        yield from (given.inputs, given.targets)
    elif isinstance(given, torch.utils.data.TensorDataset):
        yield from given.tensors
    elif isinstance(given, list | tuple | dict) and depth:
        for one in given.values() if isinstance(given, dict) else given:
            yield from _tensors(one, depth - 1)


def _are_probabilities(outputs: Tensor) -> bool:
    """Return whether each row, of several, is of shares of 1."""
    sums = outputs.sum(-1)
    return outputs.shape[-1] > 1 and bool(
        (outputs >= 0).all() and torch.allclose(sums, torch.ones_like(sums), atol=1e-5)
    )


def _of_classes(share: Dataset | Lazy, classes: int) -> Dataset | Lazy:
    """The same, where a record of another class counts nothing."""
    if isinstance(share, Lazy):
        return dataclasses.replace(share, classes=classes)
    targets = within_classes(share.targets, classes)
    return dataclasses.replace(share, targets=targets)


def _in_memory(test: Any) -> Dataset:
    found = data_set(test, "test")
    if not isinstance(found, Dataset):
        rows = torch.arange(min(len(found), _TEST))  # public: all by one process
        found = Dataset(*forked.one(functools.partial(found.read, rows)))
    check_finite(found, "test")
    return found


def _named(
    model: str, shares: Sequence[Dataset | Lazy], classes: int | None
) -> nn.Module:
    inputs, target = shares[0].example
    if target.is_floating_point() or target.dim():
        raise ValueError(
            f"the model {model} tells classes apart, and targets, of shape "
            f"{tuple(target.shape)}, are no classes: give a module for other data, or "
            "pairs (inputs, targets) in this order"
        )
    if classes is None:
        raise ValueError(
            f"the model {model} tells classes apart, and how many there are is not "
            "counted in private labels, since the model's shape would show it: say "
            "how many there can be, by classes=2 or --classes 2, or give a module"
        )
    return make_model(model, tuple(inputs.shape), classes)


@dataclasses.dataclass(frozen=True, slots=True)
class OwnData:
    """Data of ``module:function`` or a folder: shares, or one data set to be dealt."""

    shares: Any  # as `trainers.data.shares.shares_of` takes them
    test: Any = None  # a data set to measure models on, or None
    # labels of records, as `trainers.data.shares.shares_of` takes them, or None
    users: Any = None
    classes: int | None = None  # how many targets tell apart; None: as the settings say

    @classmethod
    def load(cls, data: str, held: range | None = None) -> OwnData:
        """From ``module:function``, called with nothing, or ``folder:PATH``.

        The function gives shares, or a dictionary with ``shares`` and perhaps ``test``,
        ``users``, ``classes``; with ``held``, called with a node's number, ``share``. A
        folder has ``node-0.npz`` or .pt, ... with ``inputs``, ``targets`` and perhaps
        ``users``, ``classes``; and perhaps ``test.npz``; files of nodes not ``held``
        are not read.
        """
        if data.startswith(FOLDER):
            return cls._of_folder(pathlib.Path(data.removeprefix(FOLDER)), held)
        check_no_table(data)
        if is_table(data):
            found = tables.load(pathlib.Path(data))
            if held is not None and len(held) != len(found["shares"]):
                raise ValueError(
                    f"data {data} has {len(found['shares'])} nodes, and this party "
                    f"{len(held)}: of parties each has a file of its own records"
                )
            return cls(**found)
        if not is_place(data):
            raise ValueError(
                f"data={data} is in no place that can be loaded; give module:function"
            )
        if held is not None:
            return cls._of_nodes(data, held)
        with checked(f"data {data}"):
            found = function_named(data)()
        shares, test, users, classes = _fields(found, "shares", data)
        told = None if classes is None else _classes(classes, data)
        return cls(shares, test, users, told)

    @classmethod
    def _of_nodes(cls, data: str, held: range) -> OwnData:
        parts = []
        for node in held:
            with checked(f"data {data}, which parties call with a node's number"):
                found = function_named(data)(node)
            parts.append(_fields(found, "share", data))
        return cls._of_parts(parts, data)

    @classmethod
    def _of_folder(cls, folder: pathlib.Path, held: range | None) -> OwnData:
        files: dict[int, list[pathlib.Path]] = {}
        for path in folder.glob("node-*"):
            number = path.stem.removeprefix("node-")
            if number.isdecimal() and path.suffix in (".npz", ".pt"):
                files.setdefault(int(number), []).append(path)
        tests = [path for path in map(folder.joinpath, _TESTS) if path.is_file()]
        for several in (*files.values(), tests):
            if len(several) > 1:
                one, other, *_ = sorted(path.name for path in several)
                raise ValueError(
                    f"{folder} holds both {one} and {other}: remove one of them"
                )
        missing = [node for node in held or () if node not in files]
        if missing:
            raise ValueError(
                f"{folder} must hold node-{missing[0]}.npz, or .pt, with arrays inputs "
                "and targets: this party has that node"
            )
        if held is None and (not files or sorted(files) != list(range(len(files)))):
            raise ValueError(
                f"{folder} must hold node-0.npz, node-1.npz and so on, or .pt, with "
                "arrays inputs and targets"
            )
        test = _arrays_in(tests[0])[:2] if tests else None
        found = [_arrays_in(*files[number]) for number in held or sorted(files)]
        return cls._of_parts([(one[:2], test, *one[2:]) for one in found], str(folder))

    @classmethod
    def _of_parts(cls, parts: Sequence[Sequence[Any]], where: str) -> OwnData:
        """Data from nodes' shares, test data, users and classes."""
        shares, tests, users, classes = map(list, zip(*parts, strict=True))
        if any(one is None for one in users) and any(one is not None for one in users):
            raise ValueError(f"{where}: only some of the nodes have users")
        told = [_classes(one, where) for one in classes if one is not None]
        if len(set(told)) > 1:
            raise ValueError(f"{where}: the nodes have different numbers of classes")
        test = next((one for one in tests if one is not None), None)
        known = None if users[0] is None else users
        return cls(shares, test, known, told[0] if told else None)

    @property
    def nodes(self) -> int | None:
        """Number of nodes; None if the data are to be dealt."""
        return len(self.shares) if isinstance(self.shares, list) else None


_TESTS = ("test.npz", "test.pt")


def _classes(value: Any, where: str) -> int:
    """``value`` as a number of classes; ``ValueError`` if it is none."""
    found = np.asarray(value)
    number = not found.shape and found.dtype.kind in "iuf" and 1 <= found <= 1e9
    if not number or found != np.floor(found):
        raise ValueError(
            f"{where}: classes is one whole number >= 1, got {reprlib.repr(value)}"
        )
    return int(found)


def _fields(found: Any, first: str, data: str) -> list[Any]:
    """The ``first``, test data, users and classes of what somebody's function gives."""
    found = found if isinstance(found, dict) else {first: found}
    if first not in found:
        raise ValueError(
            f"data {data} gives a dictionary without {first}: {', '.join(found)}"
        )
    names = (first, "test", "users", "classes")
    _check_names(data, found, names)
    return [found.get(name) for name in names]


def _check_names(data: str, found: dict[str, Any], names: Sequence[str]) -> None:
    """``ValueError`` for a key that nothing would be made of."""
    others = [name for name in found if name not in names]
    if others:
        raise ValueError(
            f"data {data} has {others[0]!r}, for which there is no use: its keys are "
            f"{', '.join(names)}"
        )


def _arrays_in(path: pathlib.Path) -> tuple[Any, ...]:
    try:
        if path.suffix == ".pt":
            found = torch.load(path, weights_only=True)
        else:
            with np.load(path, allow_pickle=False) as file:
                found = dict(file.items())
        names = ("inputs", "targets", "users", "classes")
        made = found["inputs"], found["targets"], *map(found.get, names[2:])
    except OSError as error:
        why = error.strerror or told(error)
        raise ValueError(f"{path} cannot be read: {why}") from error
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"{path} must hold arrays inputs and targets: {told(error)}"
        ) from error
    except (zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{path} cannot be read: {told(error)}") from error
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} must hold a dictionary of tensors and nothing else, as torch.load "
            "reads with weights_only"
        ) from error
    _check_names(str(path), found, names)
    return made


def model_made(model: str, seed: int) -> Any:
    """Model that ``module:function`` makes: its start, equal at all ranks."""
    with torch.random.fork_rng(devices=()), checked(f"model {model}"):
        torch.manual_seed(seed)
        return function_named(model)()


def _own_by_name(training: Training, seed: int, held: range | None = None) -> Material:
    data = OwnData.load(training.data, held)
    split = training.partition
    if split == "given" and data.nodes is not None:
        split = "even"  # nothing is dealt
    elif split == "classes":  # of labels that are public
        split = f"classes:{training.split}" if training.split else "even"
    model: Any = training.model
    classes = data.classes if training.classes is None else training.classes
    if data.classes not in (None, classes):
        raise ValueError(
            f"classes={classes}, but the data say {data.classes}: say it once"
        )
    if is_place(model):
        model = model_made(model, seed)
    users = None
    if data.users is not None and training.unit == "user":
        users = Users(data.users, training.overlap)
    return Material.own(
        model,
        data.shares,
        classes=classes,
        loss=None if training.loss is None else function_named(training.loss),
        test=data.test,
        nodes=training.nodes if data.nodes is None else None,
        split=split,
        seed=seed,
        users=users,
    )
