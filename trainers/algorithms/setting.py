"""Settings of an algorithm, as plain values."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from privaudit.files.arguments import check_limits
from trainers.network.engine import Schedule
from trainers.network.mixing import Mixing


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of an algorithm beside the settings that all have; all with defaults."""

    def __post_init__(self) -> None:
        check_limits(self)

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
    """The values that an algorithm, its mechanism and its ledger are made from."""

    algorithm: str  # its name, for messages
    options: OptionsType  # what only this algorithm takes
    rounds: int
    # expected number of records in a node's batch; with a ``sampling_rate``, the chance
    # of a record, in that of a node of mean size (of size 1 before data are dealt)
    batch_size: float
    sampling_rate: float | None
    sampling: str
    clip_norm: float
    step_sizes: Schedule
    nodes: int
    model: str
    labels: int  # how many classes are told apart
    graph: Callable[[], Mixing]  # called when mixing matrices are first asked for
    sizes: tuple[int, ...] = ()  # records of each node; none before data are dealt
    # where each parameter lies in the model's vector; none before it is made
    places: Mapping[str, range] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def mixing(self) -> Mixing:
        """The mixing matrices: who hears whom, with which weights; made once."""
        return self.graph()
