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


def unprotected(noise_multiplier: float) -> str:
    """Why nobody may rely on a trained model, for whoever reads its figures.

    It stands until noise comes from secret keys; SECURITY.md has the details.
    """
    if not noise_multiplier:
        return "This training added no noise: the model is not protected."
    return (
        "The noise of every training by this version of privaudit can be recovered by "
        "whoever sees its releases, whatever the seed: the model is not protected. The "
        "certificate holds for the algorithm with ideal noise."
    )


class TrainingResult(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What a training run gave.

    ``nodes`` are the accounts of each node, ``accuracy`` the mean over nodes on test
    data. ``verdict`` is None if nothing was claimed. ``remarks`` say what else must be
    known of the run, such as workers that died, in sentences.

    ``protected`` is False in this version, and ``noise`` says why, whatever a file has
    there. ``ValueError`` if ``protected`` is True.
    """

    nodes: tuple[UpperBound, ...]
    verdict: Verdict | None
    status: Status | None
    noise_multiplier: float
    accuracy: float
    worst_accuracy: float
    seconds: float
    remarks: tuple[str, ...] = ()
    protected: bool = False
    noise: str = ""

    def __post_init__(self) -> None:
        if self.protected:
            raise ValueError("protected is true, but no training by this version is")
        msgspec.structs.force_setattr(self, "noise", unprotected(self.noise_multiplier))

    @property
    def warning(self) -> str:
        """What is said wherever the figures are."""
        return f"NOT PROTECTED. {self.noise}"

    def upper(self) -> UpperBound:
        """The account of the worst node."""
        return max(self.nodes, key=lambda bound: bound.epsilon)
