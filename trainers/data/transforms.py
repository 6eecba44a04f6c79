"""What records go through as they are used: each by itself, with its own randomness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from privaudit.files.user_code import checked
from trainers.data.drawn import Seeds, drawn_from, set_aside
from trainers.data.records import spoiled

Transform = Callable[[Tensor], Any]  # of one record's input, to one like it


class Transformed:
    """Private data whose inputs go through ``transform`` as they are read.

    What comes of a record is a function of that record, its node and number, the
    release and the key: the same in every batch and whoever else is drawn, so that a
    clipped sum moves no further with it than without a transform.

    Parameters
    ----------
    data
        `trainers.data.PrivateData`, or what is read as asked for.
    transform
        As `check_transform` takes it.
    """

    def __init__(self, data: Any, transform: Transform) -> None:
        self._data = data
        self._transform = transform
        self.seeds = Seeds(data.sizes)

    def drawn(self) -> list[Seeds]:
        """All seeds of what is read here, of the data beneath first."""
        return [*self._data.drawn(), self.seeds]

    def records(self, node: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of records ``index`` (rows, samples) of nodes ``node``."""
        inputs, targets = self._data.records(node, index)
        found = inputs.cpu().clone()
        with set_aside():
            for row, (who, wanted) in enumerate(
                zip(node.tolist(), index.tolist(), strict=True)
            ):
                made: dict[int, Tensor] = {}
                for place, record in enumerate(wanted):
                    if record not in made:
                        seed = self.seeds.of(who, record)
                        given = found[row, place].clone()
                        try:
                            made[record] = _applied(self._transform, given, seed)
                        except MemoryError:
                            raise
                        except Exception:  # of that record alone, as what comes of it
                            made[record] = spoiled(given)
                    found[row, place] = made[record]
        return found.to(inputs.device), targets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)


def check_transform(transform: Transform, inputs: Tensor) -> None:
    """Try ``transform`` on some records, (samples, ...).

    Raises
    ------
    ValueError
        If it fails, gives something else than an input of the same shape and kind, or
        another one where records come in another order: it keeps something of one for
        the next.
    """
    if not callable(transform):
        raise ValueError(
            "transform is a function of one record's input, got "
            f"{type(transform).__name__}"
        )
    places = range(len(inputs))
    with set_aside(), checked("the transform fails on a record"):
        first = [_applied(transform, inputs[i].clone(), i) for i in places]
        second = [_applied(transform, inputs[i].clone(), i) for i in reversed(places)]
    if not all(each.isfinite().all() for each in first):
        raise ValueError("the transform makes an input that is not finite")
    if not all(map(torch.equal, first, reversed(second))):
        raise ValueError(
            "the transform of a record depends on more than the record and its random "
            "numbers: what it keeps of one record reaches others, which clipping does "
            "not bound; draw from torch's, numpy's or Python's own generator"
        )


def _applied(transform: Transform, input: Tensor, seed: int) -> Tensor:
    drawn_from(seed)
    found = transform(input)
    if not isinstance(found, Tensor):
        found = torch.as_tensor(found)
    found = found.detach().to(input.dtype)
    if found.shape != input.shape:
        raise ValueError(
            f"the transform makes an input of shape {tuple(found.shape)} of one of "
            f"{tuple(input.shape)}: it must keep the shape"
        )
    return found
