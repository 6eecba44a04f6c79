"""Settings of an algorithm, as plain values."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from trainers.network.engine import Schedule
from trainers.network.mixing import Mixing


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of an algorithm beside the settings that all have; all with defaults."""

    def arguments(self, rounds: int) -> dict[str, object]:
        """Keyword arguments of the algorithm's class beside its step size: all set."""
        return {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if getattr(self, name) is not None
        }


OptionsType = TypeVar("OptionsType", bound=Options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting(Generic[OptionsType]):
    """The values that an algorithm, its mechanism and its ledger are made from.

    Parameters
    ----------
    algorithm
        The algorithm's name, for messages.
    options
        What only this algorithm takes.
    rounds, sampling, clip_norm, step_sizes
        As in `trainers.runs.training.Training`.
    batch_size
        Expected number of records in a node's batch; with a ``sampling_rate``, in that
        of a node of mean size (of size 1 before the data are dealt).
    sampling_rate
        Probability that a record is in a batch; None: ``batch_size`` decides it.
    nodes
        How many nodes there are.
    model
        The model's name.
    labels
        How many classes are told apart.
    graph
        Makes the mixing matrices; called when they are first asked for.
    sizes
        How many records each node has; none before the data are dealt.
    places
        Where each of the model's parameters lies in its vector; none before it is made.
    """

    algorithm: str
    options: OptionsType
    rounds: int
    batch_size: float
    sampling_rate: float | None
    sampling: str
    clip_norm: float
    step_sizes: Schedule
    nodes: int
    model: str
    labels: int
    graph: Callable[[], Mixing]
    sizes: tuple[int, ...] = ()
    places: Mapping[str, range] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def mixing(self) -> Mixing:
        """The mixing matrices: who hears whom, with which weights; made once."""
        return self.graph()
