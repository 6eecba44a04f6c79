"""Several audits of one claim, and what they show together.

Each is judged again at 1 - (1 - confidence) / N, so that by the union bound the highest
of N holds at the lowest of their confidences. Tries elsewhere are not counted.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from privaudit.auditing.bounds import Estimator
from privaudit.auditing.conclude import deciding
from privaudit.auditing.experiments.judgement import entries_of, estimator_of, seen_in
from privaudit.auditing.experiments.looks import Looks
from privaudit.auditing.programs.audit import attacked_part
from privaudit.files import json as _json
from privaudit.files.folder import FolderError, RunFolder
from privaudit.files.json import Summary
from privaudit.report.load import FinishedAudit, load_any
from privaudit.report.program import FinishedProgram
from privaudit.results import Claim, LowerBound, round_down, seen_by, stated

Attempt = FinishedAudit | FinishedProgram


@dataclasses.dataclass(frozen=True, slots=True)
class Together:
    """Audits of one claim about one mechanism."""

    claim: Claim  # the promise under test
    # the audits, two or more with those that are not finished
    attempts: tuple[Attempt, ...]
    unfinished: tuple[pathlib.Path, ...]  # folders of such that were begun
    # epsilon, confidence: lower bound of all of them together
    epsilon: float
    confidence: float

    @classmethod
    def of(
        cls, attempts: Sequence[Attempt], unfinished: Sequence[pathlib.Path] = ()
    ) -> Together:
        """Judges each again, at a confidence that allows for all."""
        confidence = min(one.config.confidence for one in attempts)
        alpha = (1 - confidence) / (len(attempts) + len(unfinished))
        return cls(
            claim=attempts[0].config.claim,
            attempts=tuple(attempts),
            unfinished=tuple(unfinished),
            epsilon=max(_bound(one, 1 - alpha).epsilon for one in attempts),
            confidence=confidence,
        )

    @property
    def refuted(self) -> bool:
        """Return whether they refute the claim, all of them allowed for."""
        return self.epsilon > self.claim.epsilon

    @property
    def runs(self) -> int:
        """Number of scores of all of them."""
        return sum(len(one.scores) for one in self.attempts)

    @property
    def refuted_alone(self) -> int:
        """Number of those that refute the claim, if no other is allowed for."""
        return sum(one.status == "refuted" for one in self.attempts)

    summary = Summary(
        "claimed=claim.epsilon delta=claim.delta relation=claim.relation "
        "folders=attempts.path unfinished runs refuted_alone audited=epsilon "
        "confidence refuted"
    )

    def __str__(self) -> str:
        many = len(self.attempts) + len(self.unfinished)
        began, alone = len(self.unfinished), self.refuted_alone
        shown = (
            "they refute it"
            if self.refuted
            else "they do not refute it"
            + (f", though {alone} of them, taken alone, would" if alone else "")
        )
        return (
            f"the claim of epsilon {stated(self.claim.epsilon)} at delta "
            f"{self.claim.delta:g}{seen_by(self.claim.observer)} was attacked {many} "
            f"times, {self.runs:,} scores in all"
            + (f" ({began} not finished)" if began else "")
            + f": with {100 * self.confidence:g} % confidence for all of them together "
            f"epsilon is at least {round_down(self.epsilon)}, and {shown}"
        )


def together(found: Iterable[Any]) -> list[Together]:
    """Those claims that several of the finished runs are audits of."""
    groups: dict[bytes | None, list[Attempt]] = {}
    for one in found:
        if isinstance(one, FinishedAudit | FinishedProgram):
            groups.setdefault(_key(one.config), []).append(one)
    return [Together.of(group) for group in groups.values() if len(group) > 1]


def beside(run: Attempt) -> Together | None:
    """``run`` and the other audits of its claim in its folder's folder; or None."""
    own, key = run.path.resolve(), _key(run.config)
    attempts, unfinished = [run], []
    for path in sorted(own.parent.iterdir()):
        if path == own or not (path / "config.json").is_file():
            continue
        try:
            config = RunFolder(path).read("config.json", dict)
            if _key_of(config) != key:
                continue
            if (path / "result.json").exists():
                other = load_any(path)
                assert isinstance(other, FinishedAudit | FinishedProgram)
                attempts.append(other)
            else:
                unfinished.append(path)
        except FolderError:
            continue
    many = len(attempts) + len(unfinished)
    return Together.of(attempts, unfinished) if many > 1 else None


def _key(config: Any) -> bytes | None:
    return _key_of(_json.decode(_json.encode(config), dict))


def _key_of(config: dict[str, Any]) -> bytes | None:
    """Equal for audits of one claim about one mechanism, however it is attacked."""
    claim = config.get("claim")
    if not isinstance(claim, dict) or not {"adversary", "program"} & config.keys():
        return None
    about = ["epsilon", "delta", "relation", "unit", "observer"]
    what = ["training", "noise_multiplier", "planted_bug", "program", "ledger"]
    parts = [claim.get(name) for name in about] + [config.get(name) for name in what]
    return msgspec.json.encode(parts, order="deterministic")


def _bound(run: Attempt, confidence: float) -> LowerBound:
    """The lower bound of one audit, by its own method, at another confidence."""
    config, scores = run.config, run.scores
    if config.stop_when_refuted:
        looks = Looks.of(config.runs, config.block)
        confidence = looks.confidence(len(scores), confidence)
    found = _estimator(run, confidence)(
        scores,
        config.claim.delta,
        confidence,
        relation=config.claim.relation,
        threat_model="",
        seed=config.seed,
    )
    return found.lower


def _estimator(run: Attempt, confidence: float) -> Estimator:
    config = run.config
    if isinstance(run, FinishedProgram):
        _, part = attacked_part(run.config, run.ledger)
        entries = () if part is None else part.nodes[0]
    else:
        entries = entries_of(run.config, seen_in(run.config, run.ledger))
    many = len(run.scores)

    def named(name: str) -> Estimator:
        return estimator_of(config, name, entries, many, confidence)

    ours = not isinstance(run, FinishedProgram)
    return named(deciding(config.estimator, named, ours=ours))
