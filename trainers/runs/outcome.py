"""The result of a training. Reading it needs no torch."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from privaudit.files.frames import frame_of
from privaudit.files.json import Summary
from privaudit.results import Finding, Independence, Status, UpperBound, worst_bound


class Curves(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Curves of a training, as means over runs, after some of the rounds.

    ``accuracy`` on test data is the mean over nodes, ``worst_accuracy`` that of the
    worst node; ``loss`` and ``worst_loss`` come in their place where targets are no
    classes, and neither without test data; ``consensus`` the root mean square distance
    from the mean model, None at a party, which does not know it; ``epsilon`` what the
    rounds before have spent at the worst node, at most, where it was accounted.
    """

    rounds: tuple[int, ...] = ()
    accuracy: tuple[float, ...] | None = None
    worst_accuracy: tuple[float, ...] | None = None
    consensus: tuple[float, ...] | None = None
    epsilon: tuple[float, ...] | None = None
    loss: tuple[float, ...] | None = None
    worst_loss: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__[1:]:
            curve = getattr(self, name)
            if curve is not None and len(curve) != len(self.rounds):
                raise ValueError(
                    f"{name} has {len(curve)} points, but rounds has {len(self.rounds)}"
                )

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` by round, a column for each curve that there is.

        Raises ``ModuleNotFoundError`` without pandas.
        """
        known = {name: getattr(self, name) for name in self.__struct_fields__}
        known["round"] = known.pop("rounds")
        columns = {name: curve for name, curve in known.items() if curve is not None}
        return frame_of(columns, index="round")


PRIVATE = (
    "The audit trained on the private data many times over: its figures, scores and "
    "folder are covered by no certificate, and are to stay with whoever has the data."
)
PLANTED = (
    "Canaries of the run itself are gradients that were crafted without the data, each "
    "along a parameter of its own, and scored by what is released: the certificate "
    "covers these figures. "
)
RANDOM = (
    "The audit trained on random records in the place of the private data: its figures "
    "tell nothing of them but their number."
)


class RunAudit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Finding of one attacker in shadow runs of a training, as its folder has it.

    ``folder``, within the training's, holds the audit; ``canary`` is what was planted
    in ``runs`` runs, both worlds together; with ``random_records`` these trained on
    others than the private ones; ``finding`` has claim, account and bound. Canaries
    ``in_the_run`` were in the training itself, ``runs`` of them.
    """

    folder: str
    canary: str
    runs: int
    finding: Finding
    random_records: bool = False
    in_the_run: bool = False
    summary = Summary(
        "folder epsilon_lower=finding.lower.epsilon "
        "confidence=finding.lower.confidence threat_model=finding.lower.threat_model "
        "claimed=finding.claim.epsilon runs verdict=finding.status"
    )

    def __str__(self) -> str:
        said = f"{self.finding.lower}; {self.finding.status.upper()}"
        return f"{said} ({limits})" if (limits := self.finding.limits) else said


def protection(
    noise_multiplier: float | tuple[float, ...],
    seed: int | None,
    version: str,
    *,
    stays_home: bool = False,
) -> tuple[bool, str]:
    """Return whether a trained model's noise is secret, and what is said of it.

    ``seed``: of a study; ``version``: that trained; ``stays_home``: part is never sent.
    """
    if not noise_multiplier:
        return False, "This training added no noise: the model is not protected."
    if version.startswith("0.1."):
        return False, (
            "The noise of every training by version 0.1.0 can be recovered by whoever "
            "sees its releases, whatever the seed: the model is not protected. The "
            "certificate holds for the algorithm with ideal noise. See SECURITY.md."
        )
    if seed is not None:
        return False, (
            "Study: anyone who knows the seed knows the noise; this model is not "
            "protected. The certificate holds for the algorithm."
        )
    if stays_home:
        return False, (
            "The noise of what was sent came from a secret key, but parts of the "
            "models stay at their nodes, have no noise and are in no account: the "
            "models are not protected."
        )
    return True, (
        "The noise came from a secret key, which was removed when the run ended: "
        "nobody without it can take the noise off. Rounding of sums of gradients, "
        "before the noise is added, is paid for in the clip norm; rounding of messages "
        "and of collaborative updates is not in the certificate."
    )


def _shown(finding: Finding) -> float:
    return -1.0 if finding.lower is None else finding.lower.epsilon


class TrainingResult(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Result of a training run.

    ``nodes`` are the accounts of each node, ``accuracy`` the mean over nodes on test
    data, ``loss`` the mean loss where targets are no classes. ``verdict`` is None if
    nothing was claimed. ``remarks`` say what else must be known of the run, such as
    workers that died, in sentences.

    They are measured on ``test_records`` of the ``test_size`` test records that there
    are; None if there are none, and in results of earlier versions, which used all.

    ``messages_sent`` and ``bytes_sent`` are what the processes sent each other to
    train, or this party the others: a message for each process that a node's goes to,
    without frames' headers. Unset where all was in one process.

    ``left`` has the parties that were lost, each with the round in which it was missed,
    where the others went on, ``returned`` those that came back. ``missed`` is of such a
    party: the round of the state with which it did, and how many the others had done by
    then.

    Where the accounts are for an observer, ``seen_by_all`` is that of whoever sees all
    releases.

    ``independence`` says how it is known that a record's gradient is its own; what is
    not known by construction is among what the accounts assume. Unset in results of
    earlier versions, and where nothing is promised.

    ``gradients`` says how each layer's gradients of a record were taken.

    ``audits`` are of shadow runs on the same data, by one attacker each; their figures
    tell of the data beyond the account, so that they are private as the data are.
    ``without_canaries`` is the accuracy, or loss, of the models less what canaries in
    the run are expected to have added.

    ``protected`` says whether the noise is secret, and ``noise`` why; what a file has
    there is not believed, see `protection`.
    """

    nodes: tuple[UpperBound, ...]
    verdict: Finding | None
    status: Status | None
    noise_multiplier: float | tuple[float, ...]
    accuracy: float | None
    worst_accuracy: float | None
    seconds: float
    remarks: tuple[str, ...] = ()
    protected: bool = False
    noise: str = ""
    loss: float | None = None
    worst_loss: float | None = None
    seen_by_all: UpperBound | UnsetType = UNSET
    test_records: int | None = None
    test_size: int | None = None
    messages_sent: int | UnsetType = UNSET
    bytes_sent: int | UnsetType = UNSET
    left: tuple[tuple[int, int], ...] | UnsetType = UNSET
    returned: tuple[tuple[int, int], ...] | UnsetType = UNSET
    missed: tuple[tuple[int, int], ...] | UnsetType = UNSET
    independence: Independence | UnsetType = UNSET
    gradients: str | UnsetType = UNSET
    audits: tuple[RunAudit, ...] | UnsetType = UNSET
    without_canaries: float | UnsetType = UNSET

    def audited(self, audits: tuple[RunAudit, ...]) -> TrainingResult:
        """This result with ``audits``, whose bounds of its claim the verdict heeds."""
        verdict = self.verdict
        if verdict is not None:
            same = [one.finding for one in audits if one.finding.claim == verdict.claim]
            strongest = max(same, key=_shown, default=verdict)
            verdict = msgspec.structs.replace(
                verdict, lower=strongest.lower, misfit=strongest.misfit
            )
        status = None if verdict is None else verdict.status
        return msgspec.structs.replace(
            self, audits=audits, verdict=verdict, status=status
        )

    @property
    def test_data(self) -> str:
        """Test data of the models, in words."""
        used, there = self.test_records, self.test_size
        if used is None or there is None or used == there:
            return "test data"
        return f"{used:,} of {there:,} test records"

    @property
    def quality(self) -> str:
        """Quality of the models, in words; says so if nothing was measured."""
        kind = "accuracy" if self.accuracy is not None else "loss"
        mean, worst = getattr(self, kind), getattr(self, f"worst_{kind}")
        if mean is None:
            return (
                'no test data (test=, or "test" beside "shares"), so that nothing was '
                "measured"
            )
        why = "" if kind == "accuracy" else " (accuracy is of cross entropy alone)"
        return (
            f"{kind} {mean:.4f} on {self.test_data}, mean of nodes; {worst:.4f} at the "
            f"worst node{why}"
        )

    @property
    def warning(self) -> str:
        """Warning that stands wherever the figures are."""
        return self.noise if self.protected else f"NOT PROTECTED. {self.noise}"

    def upper(self) -> UpperBound:
        """The account of the worst node."""
        return worst_bound(self.nodes)

    def everything_seen(self) -> UpperBound:
        """The account of the worst node, for an observer of all releases."""
        return self.upper() if self.seen_by_all is UNSET else self.seen_by_all

    def sent(self) -> dict[str, int]:
        """Traffic to other processes, by name; nothing where there were none."""
        if self.messages_sent is UNSET or self.bytes_sent is UNSET:
            return {}
        return {"messages_sent": self.messages_sent, "bytes_sent": self.bytes_sent}

    def with_bounds(self) -> list[RunAudit]:
        """Audits that have a lower bound."""
        return [one for one in self.audits or () if one.finding.lower is not None]

    def strongest(self) -> RunAudit | None:
        """Audit that showed most; None where there was none."""
        return max(self.audits or (), key=lambda one: _shown(one.finding), default=None)

    def shown(self) -> list[str]:
        """Findings of audits of this training, in sentences."""
        return [*map(str, self.audits or ()), *self.said_of_audits()]

    def said_of_audits(self) -> list[str]:
        """Sentences on whether audits' figures tell of the private data."""
        audits = self.audits or ()
        alike = {one.random_records for one in audits if not one.in_the_run}
        said = [PRIVATE] * (False in alike) + [RANDOM] * (True in alike)
        if any(one.in_the_run for one in audits):
            said.append(PLANTED + self._cost_of_canaries)
        return said

    @property
    def _cost_of_canaries(self) -> str:
        kind = "accuracy" if self.loss is None else "loss"
        if (without := self.without_canaries) is UNSET:
            return (
                f"What they cost in {kind}, a run without them shows, which uses the "
                "data a second time."
            )
        return (
            f"Without what they are expected to have added to the models, {kind} is "
            f"{without:.4f} on {self.test_data}, and {getattr(self, kind):.4f} with it."
        )

    def also(self) -> list[str]:
        """Beside an observer's account, that of all releases; and what was sent."""
        found = []
        if self.seen_by_all is not UNSET:
            found.append(f"for an observer of all releases: {self.seen_by_all}")
        if sent := self.sent():
            messages, size = sent.values()
            found.append(
                f"sent to other processes: {messages:,} messages, {size:,} bytes"
            )
        return found
