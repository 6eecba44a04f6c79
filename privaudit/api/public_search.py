"""Judges settings on public data, which costs no privacy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from privaudit.api.own_training import train
from privaudit.api.watch import Watch
from privaudit.settings import TrainingSettings

if TYPE_CHECKING:
    from trainers.runs.planning import Task

# What a training on public data has of a plan's settings.
_TAKEN = ("rounds", "clip_norm", "step_size", "schedule", "optimiser", "warm_up")


class _Unseen(Watch):
    def warn(self, message: str) -> None:
        """Say nothing: made-up budgets are nobody's."""


_UNSEEN = _Unseen()


@dataclasses.dataclass(frozen=True)
class PublicJudge:
    """Quality of settings on public data like the shares.

    Four fifths are trained on, with the shares' signal to noise; a fifth judges.
    """

    # as in `privaudit.train`
    model: Any
    classes: int | None
    loss: Callable[..., Any] | None
    own: Any  # inputs and targets to train on
    held_out: Any  # and to judge by

    @classmethod
    def of(
        cls, like: Any, model: Any, classes: int | None, loss: Callable[..., Any] | None
    ) -> PublicJudge:
        """Split the data set ``like``; ``ValueError`` if it is none."""
        import torch

        from trainers.data.shares import Lazy, data_set

        if isinstance(model, int):
            raise ValueError(
                "like is for a model that can be trained on it, not a number"
            )
        whole = data_set(like, "like")
        if isinstance(whole, Lazy):
            inputs, targets = whole.read(torch.arange(len(whole)))
        else:
            inputs, targets = whole.inputs, whole.targets
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
        left = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
        parts = ((inputs[rows], targets[rows]) for rows in left)
        return cls(model, classes, loss, *parts)

    def __call__(self, values: Mapping[str, Any], task: Task) -> float:
        """Score of ``values`` for a ``task``, the higher the better."""
        rounds, rate = values["rounds"], task.rate(values)
        ratio = task.signal_to_noise(rounds, rate)
        noise = rate * math.sqrt(rounds) * len(self.own[0])
        noise /= ratio * math.sqrt(task.parameters)
        try:
            run = train(
                self.model,
                [self.own],
                "dp-sgd",
                loss=self.loss,
                test=self.held_out,
                settings=TrainingSettings(
                    noise_multiplier=noise,
                    classes=self.classes,
                    sampling_rate=rate,
                    evaluate="all",
                    seed=0,
                    **{name: values[name] for name in _TAKEN if name in values},
                ),
                watch=_UNSEEN,
            )
        except ValueError as error:
            if "not finite" not in str(error):
                raise
            return -math.inf
        result = run.result
        if result.accuracy is not None:
            return result.accuracy
        return -math.inf if result.loss is None else -result.loss
