"""Audits of programs that are not ours: they train and score, we toss and judge.

A *function* ``module:function(worlds, seed)`` gets a bool array, True where the canary
is to be in the run, and a seed for the whole batch; it returns one score a run, higher
for "member". A *command* is run once a run, with ``{member}`` (0 or 1) and ``{seed}``
filled in, and its last line of output is the score.

Worlds are fair coins of the audit's own seed, so that every estimator is valid. Nothing
is known of what the program releases: there is a lower bound, and no account.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import io
import math
import os
import time
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from privaudit.auditing.bounds import ESTIMATORS, Bound, most_shown
from privaudit.auditing.bounds.contract import Evidence
from privaudit.auditing.experiments.looks import Looks, Stopped
from privaudit.auditing.programs.targets import Command, Score, Worlds, function_of
from privaudit.auditing.rates import AttackRates, attack_rates
from privaudit.auditing.scores import Scores
from privaudit.files import npz as _npz
from privaudit.files.folder import FolderError, RunFolder
from privaudit.files.manifest import write_result
from privaudit.files.user_code import is_place
from privaudit.results import Claim, Finding, LowerBound, Status
from privaudit.version import __version__

_SEEDS = 1 << 31  # what any library takes


class ProgramAudit(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What is audited; equal audits deal equal worlds and seeds.

    Parameters
    ----------
    program
        ``module:function``, or a command with ``{member}`` and ``{seed}``.
    claim
        The promise under test.
    batch
        Runs that a function is called for at once; of a command, that are kept at once.
    estimator, confidence
        Of the lower bound.
    runs
        In both worlds together.
    seed
        Of worlds and of the runs' seeds.
    stop_when_refuted
        Whether to end at the first of its looks at which the claim is refuted.
    """

    program: str
    claim: Claim
    estimator: str = "best"
    confidence: float = 0.95
    runs: int = 1000
    batch: int = 50
    stop_when_refuted: bool = False
    seed: int = 0
    version: str = __version__

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise ValueError(
                f"there is no estimator {self.estimator!r}; choose one of "
                f"{', '.join(ESTIMATORS)}"
            )
        if self.runs < 2 or self.batch < 1:
            raise ValueError(
                f"runs must be >= 2 and batch >= 1, got {self.runs} and {self.batch}"
            )
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must be in (0, 1), got {self.confidence}")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed}")
        if not self.is_function:
            Command(self.program)  # raises if it is none

    @property
    def is_function(self) -> bool:
        """Whether ``program`` is a function, and no command."""
        return is_place(self.program)

    @property
    def batches(self) -> int:
        """How many calls there are."""
        return -(-self.runs // self.batch)

    @property
    def stages(self) -> tuple[int, ...]:
        """Runs after which it may end."""
        if not self.stop_when_refuted:
            return (self.runs,)
        return Looks.of(self.runs, self.batch).at

    def worlds(self, number: int) -> Worlds:
        """Of the runs of batch ``number``, (batch,)."""
        coins = np.random.default_rng([self.seed, number, 0x0C01])
        return coins.random(self.batch) < 0.5

    def batch_seed(self, number: int) -> int:
        """In [0, 2^31), another for every batch of this audit.

        Of a command it is the first run's, and the others of the batch count up.
        """
        offset = hashlib.blake2b(f"{self.seed}".encode(), digest_size=8).digest()
        used = 1 if self.is_function else self.batch
        return (int.from_bytes(offset) + number * used) % _SEEDS


class ProgramResult(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What the audit of a program found."""

    verdict: Finding
    status: Status
    evidence: Evidence
    member_runs: int
    non_member_runs: int
    most_shown: float
    seconds: float
    rates: AttackRates | None = None
    stopped: Stopped | None = None

    def lower(self) -> LowerBound:
        """The audit's bound."""
        assert self.verdict.lower is not None
        return self.verdict.lower


def run(
    audit: ProgramAudit,
    folder: RunFolder,
    *,
    time_limit: float = math.inf,
    retries: int = 1,
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ProgramResult:
    """Call the program for all runs, and judge; go on where an earlier call stopped.

    Parameters
    ----------
    audit, folder
        What to do, and where.
    time_limit, retries
        Of a command's run.
    workers
        Commands at once; a function is called from one thread.
    progress
        Called with the runs done and all runs.

    Raises
    ------
    privaudit.files.user_code.ForeignError
        If a run gave no score. What was done before is kept.
    privaudit.files.folder.FolderError
        If the folder is another audit's, damaged, or cannot be written.
    ValueError
        If there is no such function.
    """
    score: Score
    if audit.is_function:
        score, workers = function_of(audit.program), 1
    else:
        score = Command(audit.program, time_limit, retries)
    if folder.settle(audit) and folder.has("result.json"):
        return folder.read("result.json", ProgramResult)
    done = kept_batches(audit, folder)
    began = time.monotonic()
    kept = time.monotonic()
    progress(min(len(done) * audit.batch, audit.runs), audit.runs)

    def batch(number: int) -> NDArray[np.float64]:
        return score(audit.worlds(number), audit.batch_seed(number))

    pool = concurrent.futures.ThreadPoolExecutor(workers or os.cpu_count() or 1)
    futures: dict[concurrent.futures.Future, int] = {}
    try:
        for runs in audit.stages:
            numbers = range(-(-runs // audit.batch))
            more = {pool.submit(batch, n): n for n in numbers if n not in done}
            futures |= more
            for future in concurrent.futures.as_completed(more):
                done[more[future]] = future.result()
                progress(min(len(done) * audit.batch, audit.runs), audit.runs)
                if time.monotonic() - kept > 1 or audit.is_function:
                    _keep(audit, folder, done)
                    kept = time.monotonic()
            if runs < audit.runs and _is_refuted(audit, done):
                break
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for future, number in futures.items():  # what ended while one failed
            if not future.cancelled() and future.exception() is None:
                done[number] = future.result()
        if done:
            _keep(audit, folder, done)
    result = judge(audit, done, time.monotonic() - began)
    write_result(folder, result)
    return result


def judge(
    audit: ProgramAudit, done: dict[int, NDArray[np.float64]], seconds: float
) -> ProgramResult:
    """The verdict on the scores of all batches."""
    scores = Scores(*arrays(audit, done), "coin-flip")
    estimator = ESTIMATORS[audit.estimator]
    found, confidence, stopped = _bound(audit, scores)
    # Of an audit that may stop early, at every look at once: see `Looks`.
    lower = msgspec.structs.replace(found.lower, confidence=audit.confidence)
    verdict = Finding(claim=audit.claim, lower=lower)
    if stopped and stopped.runs < audit.runs and verdict.status != "refuted":
        raise ValueError(
            f"the audit ended after {len(scores):,} of {audit.runs:,} runs, and the "
            "claim was not refuted"
        )
    return ProgramResult(
        verdict=verdict,
        status=verdict.status,
        evidence=found.evidence,
        member_runs=scores.member_runs,
        non_member_runs=scores.non_member_runs,
        most_shown=most_shown(
            estimator,
            scores.member_runs,
            scores.non_member_runs,
            audit.claim.delta,
            confidence,
            seed=audit.seed,
            worlds=scores.member,
        ),
        seconds=round(seconds, 3),
        stopped=stopped,
        rates=attack_rates(scores, audit.confidence),
    )


def _bound(audit: ProgramAudit, scores: Scores) -> tuple[Bound, float, Stopped | None]:
    """The bound, its own confidence, and at which look it is, if there are several."""
    confidence, stopped = audit.confidence, None
    if audit.stop_when_refuted:
        looks = Looks.of(audit.runs, audit.batch)
        confidence = looks.confidence(len(scores), audit.confidence)
        stopped = Stopped.at(looks, len(scores))
    found = ESTIMATORS[audit.estimator](
        scores,
        audit.claim.delta,
        confidence,
        relation=audit.claim.relation,
        threat_model=f"what {audit.program} scores by",
        seed=audit.seed,
    )
    return found, confidence, stopped


def _is_refuted(audit: ProgramAudit, done: dict[int, NDArray[np.float64]]) -> bool:
    member, score = arrays(audit, done)
    if not 0 < np.count_nonzero(member) < len(member):
        return False
    found, _, _ = _bound(audit, Scores(member, score, "coin-flip"))
    return found.epsilon > audit.claim.epsilon


def arrays(
    audit: ProgramAudit, done: dict[int, NDArray[np.float64]]
) -> tuple[Worlds, NDArray[np.float64]]:
    """Worlds and scores of all runs, in order."""
    numbers = sorted(done)
    member = np.concatenate([audit.worlds(number) for number in numbers])
    score = np.concatenate([done[number] for number in numbers])
    return member[: audit.runs], score[: audit.runs]


def _keep(
    audit: ProgramAudit, folder: RunFolder, done: dict[int, NDArray[np.float64]]
) -> None:
    numbers = sorted(done)
    buffer = io.BytesIO()
    np.savez(
        buffer,
        member=np.concatenate([audit.worlds(number) for number in numbers]),
        score=np.concatenate([done[number] for number in numbers]),
        batch=np.repeat(numbers, audit.batch),
        design=np.array("coin-flip"),
    )
    folder.write("scores.npz", buffer.getvalue())


def kept_batches(
    audit: ProgramAudit, folder: RunFolder
) -> dict[int, NDArray[np.float64]]:
    """The scores of the batches that are done, by their numbers.

    Raises `FolderError` if the file is damaged.
    """
    if not folder.has("scores.npz"):
        return {}
    try:
        with _npz.opened(folder / "scores.npz") as file:
            score, numbers = file["score"], file["batch"].astype(int)
        done = {int(n): score[numbers == n] for n in np.unique(numbers)}
    except (OSError, ValueError) as error:
        raise folder.broken("scores.npz", error) from None
    for number, scores in done.items():
        if not 0 <= number < audit.batches or len(scores) != audit.batch:
            raise FolderError(f"{folder / 'scores.npz'}: batch {number} is not whole")
    return done
