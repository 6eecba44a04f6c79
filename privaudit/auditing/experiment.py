"""Many runs in two worlds, as one batched program that survives being killed."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import os
import time
import zipfile
from collections.abc import Callable

import msgspec
import numpy as np
import torch

from privaudit import __version__, _json
from privaudit.accounting import account_nodes
from privaudit.auditing.adversaries import ADVERSARIES
from privaudit.auditing.bounds import ESTIMATORS, Bound
from privaudit.auditing.canaries import blank
from privaudit.auditing.outcome import AuditResult
from privaudit.auditing.scores import Scores
from privaudit.folder import FolderError, RunFolder
from privaudit.ledger import Ledger
from privaudit.results import Claim, Relation, Verdict
from trainers.measures import CurveRecorder, accuracy
from trainers.oracle import MEMORY_LIMIT
from trainers.outcome import Curves
from trainers.problem import Problem
from trainers.randomness import MAX_BLOCKS, Streams
from trainers.training import Training

BLOCK = 50  # runs that share generators; part of what numbers depend on
_SHOWN = 10  # runs that the training curves are the mean of


class Audit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is audited, and how; equal audits give equal scores, bit for bit.

    Parameters
    ----------
    claim
        The promise under test.
    training, noise_multiplier
        The algorithm as it runs.
    adversary, estimator
        Names in `ADVERSARIES` and `privaudit.auditing.bounds.ESTIMATORS`.
    account
        The account that certifies the run's ledger.
    confidence
        Of the lower bound, in (0, 1).
    runs
        In both worlds together; each tosses a fair coin for its world.
    seed
        Of everything random.
    """

    claim: Claim
    training: Training
    noise_multiplier: float
    adversary: str = "final-loss"
    estimator: str = "clopper-pearson"
    account: str = "certified"
    confidence: float = 0.95
    runs: int = 2000
    seed: int = 0
    torch_version: str = str(torch.__version__)
    version: str = __version__

    def __post_init__(self) -> None:
        for value, known, kind in (
            (self.adversary, ADVERSARIES, "adversary"),
            (self.estimator, ESTIMATORS, "estimator"),
        ):
            if value not in known:
                raise ValueError(
                    f"there is no {kind} {value!r}; choose one of {', '.join(known)}"
                )
        tested = tested_relation(self.training)
        if self.claim.relation != tested:
            raise ValueError(
                f"an audit of this training tests {tested}: that is what its two "
                f"worlds differ in; got the relation {self.claim.relation}"
            )
        if not 2 <= self.runs <= MAX_BLOCKS * BLOCK:
            raise ValueError(
                f"runs must be between 2 and {MAX_BLOCKS * BLOCK:,}, got {self.runs}"
            )
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must be in (0, 1), got {self.confidence}")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed}")

    @property
    def blocks(self) -> int:
        """How many blocks the runs fill."""
        return -(-self.runs // BLOCK)


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """What one block of runs gave."""

    member: np.ndarray  # (block,) bool
    score: np.ndarray  # (block,) float64
    accuracy: np.ndarray  # (block,) float64
    ledger: Ledger


def train_block(
    audit: Audit, problem: Problem, number: int, *, memory_limit: int = MEMORY_LIMIT
) -> tuple[Block, Curves | None]:
    """Train block ``number`` in the worlds that its coins say, and score it.

    A pure function of its arguments: the same on whichever worker, in whatever order.
    """
    streams = Streams(audit.seed, number)
    coins = torch.rand(BLOCK, generator=streams.generator("world"))
    planted = coins < 0.5
    canary = blank(problem.test.inputs[0])
    gradients = problem.gradients()
    adversary = ADVERSARIES[audit.adversary](problem, gradients, canary, BLOCK)
    curve = CurveRecorder(problem, gradients)

    def watched(done: int, models: torch.Tensor, _: object) -> None:
        curve(done, models[:_SHOWN])

    models, ledger = problem.train(
        audit.noise_multiplier,
        streams,
        runs=BLOCK,
        canary=canary,
        planted=planted,
        # The start is not part of the block: equal in every run of the audit.
        start=problem.start(audit.seed, BLOCK),
        observers=adversary.observers,
        release_observers=adversary.release_observers,
        after_round=watched if number == 0 else None,
        memory_limit=memory_limit,
    )
    block = Block(
        member=planted.numpy(),
        score=adversary.score(models).numpy().astype(np.float64),
        accuracy=accuracy(gradients, models, problem.test).mean(1).numpy(),
        ledger=ledger,
    )
    return block, None if number else curve.curves()


class _Progress:
    """Which blocks are done and what they gave; `scores.npz` between kills."""

    def __init__(self, audit: Audit, folder: RunFolder) -> None:
        self.audit = audit
        self.folder = folder
        self.done: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self.ledger: Ledger | None = None
        if folder.has("scores.npz"):
            self._read()

    def _read(self) -> None:
        # Written in the order ledger, curves, scores: scores vouch for the others.
        self.ledger = self.folder.read("ledger.json", Ledger)
        try:
            # Read whole first: numpy leaves a damaged file open.
            content = io.BytesIO((self.folder / "scores.npz").read_bytes())
            with np.load(content, allow_pickle=False) as file:
                blocks = file["block"].astype(int)
                arrays = tuple(file[name] for name in ("member", "score", "accuracy"))
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise self.folder.broken("scores.npz", error) from None
        for array in arrays:
            if len(array) != len(blocks):
                raise self.folder.broken("scores.npz", "its arrays differ in length")
        for number in np.unique(blocks):
            rows = blocks == number
            expected = min(BLOCK, self.audit.runs - number * BLOCK)
            if not 0 <= number < self.audit.blocks or rows.sum() != expected:
                raise self.folder.broken("scores.npz", f"block {number} is not whole")
            member, score, right = (array[rows] for array in arrays)
            self.done[int(number)] = (member, score, right)

    def add(self, number: int, block: Block, curves: Curves | None) -> None:
        """Keep a finished block."""
        if self.ledger is None:
            self.ledger = block.ledger
            self.folder.write("ledger.json", block.ledger.to_json().encode())
        elif block.ledger != self.ledger:
            raise FolderError(
                f"block {number} released something else than the blocks before it: "
                "an algorithm's releases must not depend on the data or on chance"
            )
        if curves is not None:
            self.folder.write("curves.json", _json.encode(curves))
        kept = min(BLOCK, self.audit.runs - number * BLOCK)
        self.done[number] = (
            block.member[:kept],
            block.score[:kept],
            block.accuracy[:kept],
        )
        buffer = io.BytesIO()
        numbers = sorted(self.done)
        member, score, right = self.arrays()
        np.savez(
            buffer,
            member=member,
            score=score,
            design=np.array("coin-flip"),
            accuracy=right,
            block=np.repeat(numbers, [len(self.done[n][0]) for n in numbers]),
        )
        self.folder.write("scores.npz", buffer.getvalue())

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Worlds, scores and accuracies of the finished runs, in order."""
        columns = zip(*(self.done[number] for number in sorted(self.done)), strict=True)
        member, score, right = (np.concatenate(column) for column in columns)
        return member, score, right


def run(
    audit: Audit,
    folder: RunFolder,
    *,
    workers: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> AuditResult:
    """Train, score, account and judge; go on where an earlier call was stopped.

    Parameters
    ----------
    audit
        What to do.
    folder
        Where; it must be this audit's or empty.
    workers
        Threads, each with a block of its own; as many as there are processors by
        default. Scores do not depend on it.
    memory_limit
        Bytes for all workers together.
    progress
        Called with the runs done and all runs.

    Raises
    ------
    FolderError
        If the folder is another audit's, damaged, or cannot be written.
    ValueError
        If the settings do not fit the data, or training diverges.
    """
    problem = Problem.of(audit.training)
    if folder.settle(audit) and folder.has("result.json"):
        return folder.read("result.json", AuditResult)
    state = _Progress(audit, folder)
    began = time.monotonic()
    missing = [n for n in range(audit.blocks) if n not in state.done]
    workers = min(workers or os.cpu_count() or 1, max(1, len(missing)))
    progress(sum(len(kept[0]) for kept in state.done.values()), audit.runs)

    # One torch thread a worker: the bits of a sum depend on how threads share it.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = concurrent.futures.ThreadPoolExecutor(
        workers, initializer=torch.set_num_threads, initargs=(1,)
    )
    try:
        futures = {
            pool.submit(
                train_block, audit, problem, n, memory_limit=memory_limit // workers
            ): n
            for n in missing
        }
        for future in concurrent.futures.as_completed(futures):
            state.add(futures[future], *future.result())
            progress(sum(len(kept[0]) for kept in state.done.values()), audit.runs)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(threads)
    result = judge(audit, state, time.monotonic() - began)
    folder.write("result.json", _json.encode(result))
    return result


def judge(audit: Audit, state: _Progress, seconds: float) -> AuditResult:
    """The verdict on finished runs."""
    member, score, right = state.arrays()
    assert state.ledger is not None
    nodes = account_nodes(
        state.ledger, audit.claim.delta, audit.claim.relation, audit.account
    )
    bound: Bound = ESTIMATORS[audit.estimator](
        Scores(member, score, "coin-flip"),
        audit.claim.delta,
        audit.confidence,
        relation=tested_relation(audit.training),
        threat_model=ADVERSARIES[audit.adversary].sees,
        seed=audit.seed,
    )
    verdict = Verdict(
        claim=audit.claim,
        upper=max(nodes, key=lambda upper: upper.epsilon),
        lower=bound.lower,
    )
    return AuditResult(
        verdict=verdict,
        status=verdict.status,
        evidence=bound.evidence,
        nodes=nodes,
        noise_multiplier=audit.noise_multiplier,
        accuracy=float(right.mean()),
        member_runs=int(member.sum()),
        non_member_runs=int((~member).sum()),
        seconds=round(seconds, 3),
    )


def tested_relation(training: Training) -> Relation:
    """What the two worlds differ in: a canary added, or one put in a record's place.

    The second under sampling without replacement, where a record more would change the
    chances of all others.
    """
    fixed = training.mechanism(1.0).sampling == "without-replacement"
    return "replace-one" if fixed else "add-or-remove-one"
