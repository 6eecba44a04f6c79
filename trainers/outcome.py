"""What training gave. Reading it back needs no torch."""

from __future__ import annotations

import msgspec

from privaudit.results import Status, UpperBound, Verdict


class Curves(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How training went, as means over runs, after some of the rounds.

    ``accuracy`` on test data is the mean over nodes, ``worst_accuracy`` that of the
    worst node; ``consensus`` the root mean square distance from the mean model;
    ``epsilon`` what the rounds before have spent at the worst node, at most, where it
    was accounted.
    """

    rounds: tuple[int, ...] = ()
    accuracy: tuple[float, ...] = ()
    worst_accuracy: tuple[float, ...] = ()
    consensus: tuple[float, ...] = ()
    epsilon: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("accuracy", "worst_accuracy", "consensus", "epsilon"):
            if getattr(self, name) is None:
                continue
            if len(getattr(self, name)) != len(self.rounds):
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} points, "
                    f"but rounds has {len(self.rounds)}"
                )


class TrainingResult(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What a training run gave.

    ``nodes`` are the accounts of each node, ``accuracy`` the mean over nodes on test
    data. ``verdict`` is None if nothing was claimed. ``remarks`` say what else must be
    known of the run, such as workers that died, in sentences.
    """

    nodes: tuple[UpperBound, ...]
    verdict: Verdict | None
    status: Status | None
    noise_multiplier: float
    accuracy: float
    worst_accuracy: float
    seconds: float
    remarks: tuple[str, ...] = ()

    def upper(self) -> UpperBound:
        """The account of the worst node."""
        return max(self.nodes, key=lambda bound: bound.epsilon)
