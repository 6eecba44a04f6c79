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
import functools
import math
import pathlib
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from privaudit.files.arguments import number
from privaudit.files.fingerprints import fingerprint
from privaudit.files.pasting import called, dp, name_of, pasted, repeat
from privaudit.results import round_down
from privaudit.testing import record
from privaudit.testing.coins import Ranking, Stage, Worlds, chance_together
from privaudit.testing.judging import Verdict, judge
from privaudit.testing.outputs import Floats
from privaudit.testing.sampling import Mechanism, Sampler, Scoring

__tracebackhide__ = True  # pytest shows where a test calls, and its mechanism

_AGAIN = 4  # times the runs of the first refutation are spent on a later pair
_SHRINKING = 0.5  # of the seconds of the search; about as much is left to confirm
_LEAST_SECONDS = 0.03  # of shrinking, however soon the search was over
_FEW = 128  # runs of the first cheap look; then twice as many, and so on
_SUSPECTED, _CLEARED = 0.005, 0.5  # p-values, each of two tests, that end cheap looks
_OURS = str(pathlib.Path(__file__).parents[1])
_STOPS = (
    "runs stop at the first look that refutes the claim: with more of them the bound "
    "may be much larger"
)


@dataclasses.dataclass(frozen=True)
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

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta", "confidence"):
            object.__setattr__(self, name, number(name, getattr(self, name)))

    def stated(self) -> str:
        """Fingerprint of the mechanism as it is now, and of what is claimed of it."""
        return fingerprint((self.mechanism, self.epsilon, self.delta))

    @functools.cached_property
    def claim(self) -> str:
        """The claim, by the mechanism as it was before any of its own runs."""
        stated = self.stated()
        return record.current().same.get(stated, stated)

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
                *repeat(self.pair, call, self.mechanism, self.score),
            ]
        )


def verdict_of(
    assertion: str, test: record.Asserted, asked: Asked
) -> tuple[Verdict | None, str]:
    """The verdict on one pair, and how it is told; None for one that passes unjudged.

    For a pair that is suspected it is the verdict on the first one.
    """
    context, claim = _context(), asked.claim
    with _untraced(context) as traced:
        found, shown, settled = _verdict(assertion, test, asked, context)
    if traced and settled:
        # The tracer sees the mechanism once on each data set, to explain its lines.
        given = asked.mechanism, asked.pair, None, asked.vectorised
        Sampler.of(*given, (asked.seed, 0, 0), None).show_once()
    test.same[asked.stated()] = claim  # runs may change what the mechanism reads
    return found, shown


def _verdict(
    assertion: str, test: record.Asserted, asked: Asked, context: Any
) -> tuple[Verdict | None, str, bool]:
    """`verdict_of`, and whether it is more than a lack of runs or of time."""
    claim, data = asked.claim, fingerprint(asked.pair)
    given = asked.score, asked.confidence, asked.runs, asked.seed, asked.vectorised
    key = fingerprint((claim, data, given))
    first = test.evidence.get(claim)
    shrinks = context is not None and first and assertion == "assert_private"
    # A pass ends the tries by which hypothesis explains a failure, in which one pair
    # may be made a hundred times.
    explains = shrinks and any(name == "_explain" for name, _ in _callers())
    if explains and not context.is_final and _late(test, first):
        return None, "", False
    if context is None or key not in test.verdicts:
        if shrinks and not (context.is_final and test.suspects.get(key)):
            if key not in test.suspects:
                test.suspects[key] = _suspected(test, asked, first)
            suspect = test.suspects[key]
            return (*first[:2], True) if suspect else (None, "", suspect is not None)
        _judge(assertion, test, asked, key, first, searched=context is not None)
    found, shown = test.verdicts[key]
    if test.suspects.get(key) and not found.refuted:
        return (*test.evidence[claim][:2], True)  # it failed, and must fail again
    if context is not None:
        from hypothesis import errors, target

        _take_no_time(context.data, found.seconds)
        # Another assertion of this test may lead already.
        label = f"leak of {name_of(asked.mechanism)}"
        with contextlib.suppress(errors.InvalidArgument):
            target(found.bound + found.growth, label=label)
    return found, shown, True


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
        seconds = time.monotonic() - test.began
        test.evidence.setdefault(asked.claim, (found, shown, seconds))
        if searched and assertion == "assert_private":
            _end(
                "ConjectureRunner", first_bug_found_at=1, first_bug_found_time=-math.inf
            )
    row = test.row(assertion, name_of(asked.mechanism), dp(asked.epsilon, asked.delta))
    if found.bound > (row.bound or 0.0):
        text, lines = pasted(asked.pair)
        row.pair = "\n".join(lines) or text
    _note(row, found, asked.confidence)


def _suspected(
    test: record.Asserted, asked: Asked, first: tuple[Verdict, str, float]
) -> bool | None:
    """Suspicion of a pair: a few runs look as those of the first refuted one did.

    None where they settle nothing, or no time is left for them.
    """
    verdict = first[0]
    if verdict.attack is None or _late(test, first):
        _end("Shrinker", max_stall=0)  # the tries without success
        return None
    began, reader = time.monotonic(), verdict.attack.reader
    stream = (asked.seed, 0, len(test.suspects))
    given = asked.mechanism, asked.pair, asked.score, asked.vectorised
    sampler = Sampler.of(*given, stream, reader)
    stages: list[Stage] = []
    seen: list[tuple[Worlds, Floats]] = []
    done, found = 0, 0.1
    while done < verdict.runs and _SUSPECTED < found < _CLEARED:
        runs = max(_FEW, done)
        worlds, readings = sampler.run(runs)
        done += runs
        stages.append(Stage(*verdict.attack.guessed(readings, worlds), runs, 0.0))
        found = chance_together(stages, asked.epsilon, asked.delta)
        if reader.is_number:  # a ranking knows no place, which other data may move
            seen.append((worlds, readings.columns[:, 0]))
            coins, score = (np.concatenate(part) for part in zip(*seen, strict=True))
            ranking = Ranking.of(score, coins, sampler.coins, asked.delta, _SUSPECTED)
            found = min(found, ranking.chance(asked.epsilon, asked.delta))
    test.seconds += time.monotonic() - began
    return found <= _SUSPECTED or (None if found < _CLEARED else False)


def _end(phase: str, **values: float) -> None:
    """End a phase of hypothesis, which undocumented attributes of its class do: more
    failures are not looked for, and what would take longer than it may is not tried.
    """
    for _, owner in _callers():
        if type(owner).__name__ == phase:
            for name in values.keys() & vars(owner).keys():
                setattr(owner, name, values[name])
            return


def _callers() -> Iterator[tuple[str, Any]]:
    """Names of the functions that are running, the innermost first, and their self."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        yield frame.f_code.co_name, frame.f_locals.get("self")
        frame = frame.f_back


def _late(test: record.Asserted, first: tuple[Verdict, str, float]) -> bool:
    """Return whether shrinking has taken its part of the time of the search."""
    seconds = first[2]
    since = time.monotonic() - test.began - seconds
    return since > max(_LEAST_SECONDS, _SHRINKING * seconds)


def _note(row: record.Row, found: Verdict, confidence: float) -> None:
    row.confidence = min(confidence, row.confidence or 1.0)
    row.pairs += 1
    row.runs += found.runs
    row.seconds += found.seconds
    row.still = found.still and (row.still or row.bound is None)
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
    _explain_users_lines()
    return control.current_build_context()


@functools.cache
def _explain_users_lines() -> None:
    """Have hypothesis explain failures by the user's lines, not by ours."""
    with contextlib.suppress(ImportError, AttributeError):  # undocumented
        from hypothesis.internal import scrutineer

        traced = scrutineer.should_trace_file
        scrutineer.should_trace_file = functools.cache(
            lambda name: not name.startswith(_OURS) and traced(name)
        )


def _take_no_time(data: Any, seconds: float) -> None:
    """Leave ``seconds`` out of hypothesis' deadline: runs are meant to take long."""
    times = getattr(data, "_stateful_run_times", None)
    if times is not None:
        times["privaudit"] = times.get("privaudit", 0.0) + seconds


@contextlib.contextmanager
def _untraced(context: Any) -> Iterator[bool]:
    """Without the tracer by which hypothesis explains a failure, which is slow."""
    tracer = sys.gettrace()
    owner = type(getattr(tracer, "__self__", None)).__module__
    if context is None or not owner.startswith("hypothesis."):
        yield False
        return
    sys.settrace(None)
    try:
        yield True
    finally:
        sys.settrace(tracer)
