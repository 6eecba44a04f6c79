"""Verdicts on the pairs of one test: new, known, and cheap ones for shrinking.

The k-th new pair of a test is tested at alpha / (k (k + 1)), which adds up to alpha, on
a stream of (seed, k) of its own. What hypothesis executes a second time is answered
from memory: it is no new evidence, and no test of it can flake.

Once a pair is refuted, hypothesis looks for smaller ones. They are only *suspected*, by
a few runs and the attack that refuted the first: no level is spent, nothing is claimed,
and the time is a part of what the search took. The smallest one is judged once, at the
end, at its own level.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator
from typing import Any

from privaudit.results import round_down
from privaudit.testing import record
from privaudit.testing.coins import Stage, chance_together
from privaudit.testing.fingerprints import fingerprint
from privaudit.testing.judging import Verdict, judge
from privaudit.testing.pasting import called, dp, name_of, repeat
from privaudit.testing.sampling import Mechanism, Sampler, Scoring

_AGAIN = 4  # times the runs of the first refutation are spent on a later pair
_SHRINKING = 0.5  # of the seconds of the search; about as much is left to confirm
_LEAST_SECONDS = 0.25  # of shrinking, however soon the search was over
_FEW = 256  # runs of a cheap look, or a part of those of the first refutation
_SUSPECTED = 0.01  # p-value of a cheap look
_STOPS = (
    "runs stop at the first look that refutes the claim: with more of them the bound "
    "may be much larger"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """Arguments of an assertion; see `privaudit.testing.assert_private`."""

    mechanism: Mechanism
    pair: tuple[Any, Any]
    epsilon: float
    delta: float
    confidence: float
    runs: int
    score: Scoring
    seed: int
    vectorised: bool

    @property
    def claim(self) -> str:
        """Fingerprint of the mechanism and what is claimed of it."""
        return fingerprint((self.mechanism, self.epsilon, self.delta))

    def told(self, found: Verdict, runs: int) -> str:
        """A verdict of at most ``runs`` runs, with the call that repeats it."""
        given = called(self.score) if callable(self.score) else repr(self.score)
        more = f", score={given}" if self.score is not None else ""
        more += ", vectorised=True" if self.vectorised else ""
        bound = round_down(found.bound)
        bound = bound.rstrip("0").rstrip(".") if "." in bound else bound
        shown = f"above {bound}" if found.bound else "at least 0"
        call = (
            f"privaudit.testing.judge({called(self.mechanism)}, pair, "
            f"epsilon={found.epsilon!r}, delta={found.delta!r}, "
            f"confidence={self.confidence!r}, runs={runs}, seed={found.seed}, "
            f"k={found.k}{more})"
        )
        levels = [
            f"{round_down(100 * one, 6)} %" for one in (found.level, self.confidence)
        ]
        return "\n".join(
            [
                f"  bound:       epsilon is {shown} at delta {found.delta:g}, with "
                f"confidence {levels[0]} in this pair, {levels[1]} in the whole test",
                f"  evidence:    {found.runs:,} runs of at most {runs:,}; "
                f"by {found.by}",
                *([f"  note:        {_STOPS}"] if found.stopped == "refuted" else []),
                *repeat(self.pair, call),
            ]
        )


def verdict_of(
    assertion: str, test: record.Asserted, asked: Asked
) -> tuple[Verdict | None, str]:
    """The verdict on one pair, and how it is told; None for one that passes unjudged.

    For a pair that is suspected it is the verdict on the first one.
    """
    context = _context()
    claim, data = asked.claim, fingerprint(asked.pair)
    given = asked.score, asked.confidence, asked.runs, asked.seed, asked.vectorised
    key = fingerprint((claim, data, given))
    with _untraced(asked, context):
        if context is None or key not in test.verdicts:
            first = test.evidence.get(claim)
            shrinks = context is not None and first and assertion == "assert_private"
            if shrinks and not (context.is_final and test.suspects.get(key)):
                if key not in test.suspects:
                    test.suspects[key] = _suspected(test, asked, first)
                return (first[0], first[1]) if test.suspects[key] else (None, "")
            _judge(assertion, test, asked, key, first, searched=context is not None)
            if fingerprint(asked.pair) != data:
                name = name_of(asked.mechanism)
                raise ValueError(f"{name} changed its data: give it a copy")
    found, shown = test.verdicts[key]
    if test.suspects.get(key) and not found.refuted:
        return test.evidence[claim][:2]  # it failed, and must fail again
    if context is not None:
        from hypothesis import errors, target

        _take_no_time(context.data, found.seconds)
        # Another assertion of this test may lead already.
        label = f"leak of {name_of(asked.mechanism)}"
        with contextlib.suppress(errors.InvalidArgument):
            target(found.bound + found.growth, label=label)
    return found, shown


def _judge(
    assertion: str,
    test: record.Asserted,
    asked: Asked,
    key: str,
    first: tuple[Verdict, str, float] | None,
    *,
    searched: bool,
) -> None:
    limit = asked.runs
    if searched and first:
        limit = min(asked.runs, max(1000, _AGAIN * first[0].runs))
    test.pairs += 1
    found = judge(
        asked.mechanism,
        asked.pair,
        epsilon=asked.epsilon,
        delta=asked.delta,
        confidence=asked.confidence,
        runs=limit,
        score=asked.score,
        seed=asked.seed,
        k=test.pairs,
        seconds=max(0.0, record.seconds_left(test)),
        vectorised=asked.vectorised,
    )
    test.seconds += found.seconds
    shown = asked.told(found, limit)
    test.verdicts[key] = found, shown
    if found.refuted:
        test.evidence.setdefault(asked.claim, (found, shown, test.seconds))
    _note(
        test.row(assertion, name_of(asked.mechanism), dp(asked.epsilon, asked.delta)),
        found,
        asked.confidence,
    )


def _suspected(
    test: record.Asserted, asked: Asked, first: tuple[Verdict, str, float]
) -> bool:
    """Suspicion of a pair: a few runs look as those of the first refuted one did."""
    verdict, _, seconds = first
    limit = max(_LEAST_SECONDS, _SHRINKING * seconds)
    if test.shrinking >= limit or verdict.attack is None:
        return False
    began = time.monotonic()
    sampler = Sampler.of(
        asked.mechanism,
        asked.pair,
        asked.score,
        asked.vectorised,
        (asked.seed, 0, len(test.suspects)),
        verdict.attack.reader,
    )
    runs = max(_FEW, verdict.runs // _AGAIN)
    worlds, readings = sampler.run(runs)
    stage = Stage(*verdict.attack.guessed(readings, worlds), runs, 0.0)
    found = chance_together([stage], asked.epsilon, asked.delta)
    seconds = time.monotonic() - began
    test.shrinking += seconds
    test.seconds += seconds
    return found <= _SUSPECTED


def _note(row: record.Row, found: Verdict, confidence: float) -> None:
    row.confidence = min(confidence, row.confidence or 1.0)
    row.pairs += 1
    row.runs += found.runs
    row.seconds += found.seconds
    row.bound = max(found.bound, row.bound or 0.0)
    row.seed = found.seed
    row.early = row.early or found.stopped == "refuted"
    row.most = max(found.most, row.most or 0.0)
    row.idle = row.most <= found.epsilon
    wrong = found.refuted == (row.assertion == "assert_private")
    if wrong or row.status == "fails":
        row.status = "fails"
    elif found.stopped == "seconds":
        row.status = "stopped"


def _context() -> Any:
    """Hypothesis' context of the example that is being executed; None outside of it."""
    if "hypothesis" not in sys.modules:
        return None
    from hypothesis import control

    if not control.currently_in_test_context():
        return None
    return control.current_build_context()


def _take_no_time(data: Any, seconds: float) -> None:
    """Leave ``seconds`` out of hypothesis' deadline: runs are meant to take long."""
    times = getattr(data, "_stateful_run_times", None)
    if times is not None:
        times["privaudit"] = times.get("privaudit", 0.0) + seconds


@contextlib.contextmanager
def _untraced(asked: Asked, context: Any) -> Iterator[None]:
    """Without the tracer by which hypothesis explains a failure, which is slow.

    It sees the mechanism once on each data set, so that its lines are explained.
    """
    tracer = sys.gettrace()
    owner = type(getattr(tracer, "__self__", None)).__module__
    if context is None or not owner.startswith("hypothesis."):
        yield
        return
    stream = (asked.seed, 0, 0)
    Sampler.of(
        asked.mechanism, asked.pair, None, asked.vectorised, stream, None
    ).show_once()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
