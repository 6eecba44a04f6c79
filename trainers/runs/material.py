"""What is trained, on which data, by which loss: by name, or a user's own."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trainers.data import Dataset, Partition, load_dataset
from trainers.data.shares import Lazy, example, shares_of
from trainers.gradients.per_sample import Loss, check_module
from trainers.models import cross_entropy
from trainers.models.own import check_labels, check_model, few, own_loss
from trainers.numerics.randomness import public_generator
from trainers.runs.training import Training

Quality = Literal["accuracy", "loss"]
_TEST = 10_000  # records of the test data, at most, if they are not in memory


@dataclasses.dataclass(frozen=True, slots=True)
class Material:
    """Data, model and loss of a training.

    Parameters
    ----------
    shares
        One data set a node, in memory or read as asked for.
    test
        Data to measure models on; None: they are not measured.
    module
        The model.
    loss
        From outputs and targets to one number a record.
    starts_as_it_is
        Whether training starts at the module's own parameters; if not, they are drawn
        from the public seed.
    """

    shares: Sequence[Dataset | Lazy]
    test: Dataset | None
    module: nn.Module
    loss: Loss = cross_entropy
    starts_as_it_is: bool = False

    @property
    def example(self) -> tuple[Tensor, Tensor]:
        """The input and the target of one record."""
        return example(self.shares[0])

    @property
    def quality(self) -> Quality:
        """What is measured of models: accuracy where targets are classes."""
        return "accuracy" if self.loss is cross_entropy else "loss"

    @classmethod
    def by_name(
        cls,
        training: Training,
        seed: int,
        data_dir: str | pathlib.Path | None = None,
        held_out: float = 0.0,
    ) -> Material:
        """What ``training`` names; ``seed`` deals the data. See `problem.Problem`."""
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
        shares = Partition.parse(training.partition)(
            train, nodes, t=training.split, seed=seed
        )
        module = training.module(tuple(train.inputs.shape[1:]))
        return cls(shares, test, module)

    @classmethod
    def own(
        cls,
        model: nn.Module | Callable[[], nn.Module],
        shares: Any,
        *,
        loss: Callable[..., Any] | None = None,
        test: Any = None,
        nodes: int | None = None,
        split: str = "even",
        seed: int = 0,
    ) -> Material:
        """A user's module, data and loss, checked.

        Parameters
        ----------
        model
            A module, whose parameters are the start, or what makes one.
        shares, nodes, split, seed
            See `trainers.data.shares.shares_of`.
        loss
            See `trainers.models.own.own_loss`; cross entropy if None.
        test
            A data set to measure models on, as one of ``shares``.

        Raises
        ------
        ValueError
            If they do not fit each other, or the model or the loss mixes records.
        """
        found = shares_of(shares, nodes=nodes, split=split, seed=seed)
        module = model if isinstance(model, nn.Module) else model()
        if not isinstance(module, nn.Module):
            raise ValueError(
                f"model is a torch.nn.Module or makes one, got {type(module).__name__}"
            )
        check_module(module)
        inputs, targets = few(found[0].read, len(found[0]))
        outputs = check_model(module, inputs)
        tested = None if test is None else _in_memory(test)
        if loss is None and not targets.is_floating_point() and outputs.dim() > 1:
            named = {f"node {n}": share for n, share in enumerate(found)}
            for name, share in {**named, "test": tested}.items():
                if isinstance(share, Dataset):
                    check_labels(share.targets, outputs.shape[1], name)
        each = own_loss(loss, outputs, targets)
        return cls(found, tested, module, each, starts_as_it_is=True)


def _in_memory(test: Any) -> Dataset:
    (found,) = shares_of([test])
    if isinstance(found, Dataset):
        return found
    return Dataset(*found.read(torch.arange(min(len(found), _TEST))))
