"""Many runs in two worlds, as one batched program that survives being killed."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privaudit.auditing.attacks import ADVERSARIES, Adversary, Scene
from privaudit.auditing.attacks.canaries import (
    CANARIES,
    RECORD,
    Canary,
    quiet_gradients,
)
from privaudit.auditing.attacks.contract import Watcher
from privaudit.auditing.attacks.final_loss import OwnScore
from privaudit.auditing.experiments import one_run
from privaudit.auditing.experiments.judgement import end, is_refuted, judge
from privaudit.auditing.experiments.looks import stages
from privaudit.auditing.experiments.outcome import AuditResult
from privaudit.auditing.experiments.plan import Audit as Audit
from privaudit.auditing.experiments.plan import planted_together
from privaudit.auditing.scores import read_npz, run_arrays
from privaudit.files import json as _json
from privaudit.files import npz as _npz
from privaudit.files.folder import FolderError, RunFolder
from privaudit.ledger import Ledger as Ledger
from trainers.network.ranks import gathered, joined, told
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import MEMORY_LIMIT
from trainers.runs.measures import CurveRecorder, accuracy
from trainers.runs.outcome import Curves
from trainers.runs.problem import Observers, Problem


@dataclasses.dataclass(frozen=True, slots=True)
class _Copied:
    """Stands before an observer, which calculates on the host, in doubles."""

    to: Any  # an observer of messages, or of releases

    def messages(self, k: int, sent: Mapping[str, Tensor]) -> None:
        self.to.messages(k, {name: each.cpu() for name, each in sent.items()})

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        self.to.release(index, at.cpu(), gradient.cpu(), nodes)


_SHOWN = 10  # runs that the training curves are the mean of


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Given:
    """Objects of the user's that an audit has no name for."""

    canary: Canary | None = None  # what is planted, where it is a record
    # functions that score a final model, by the name of the adversary
    scores: Mapping[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.canary is not None or bool(self.scores)


NOTHING = Given()


def attacker(
    audit: Audit, problem: Problem, given: Given = NOTHING, many: int | None = None
) -> Adversary:
    """Adversary of an audit, with what is planted; ``many`` canaries a run."""
    kind = ADVERSARIES.get(audit.adversary)
    if (
        OwnScore if kind is None else kind
    ).reads_models and audit.training.family.stays_home(audit.training.setting()):
        raise ValueError(
            f"the models of {audit.training.algorithm}, or parts of them, stay at "
            f"their nodes with these settings: {audit.adversary} would read what "
            "nobody is shown and no account covers; choose neighbour or another"
        )
    canary = given.canary
    if canary is None and audit.canary == RECORD:
        raise ValueError("the canary is a record that must be given")
    many, seed = many or planted_together(audit, problem), audit.start_seed
    if canary is None and many > 1:
        canary = quiet_gradients(problem, many, seed)
    scene = Scene(
        problem=problem,
        canary=canary or CANARIES[audit.canary](problem, seed),
        noise_multiplier=audit.noise_multiplier,
        # The start is not part of a block: equal in every run of the audit.
        start=problem.start(audit.start_seed)[0, 0],
        replaces=audit.claim.relation == "replace-one",
        observer=audit.observer,
    )
    if kind is not None:
        return kind(scene)
    if audit.adversary not in given.scores:
        raise ValueError(f"the adversary {audit.adversary} must be given again")
    return OwnScore(scene, given.scores[audit.adversary], audit.adversary)


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Results of one block of runs."""

    member: np.ndarray  # (block,) bool, or (block, canaries)
    score: np.ndarray  # float64, likewise
    accuracy: np.ndarray  # (block,) float64
    ledger: Ledger


class Progress:
    """Blocks that are done, with their results; `scores.npz` between kills."""

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
            member, score, _ = read_npz(self.folder / "scores.npz")
            with _npz.opened(self.folder / "scores.npz") as file:
                blocks = file["block"].astype(int)
                arrays = member, score, file["accuracy"]
        except (OSError, ValueError) as error:
            raise self.folder.broken("scores.npz", error) from None
        for array in arrays:
            if len(array) != len(blocks):
                raise self.folder.broken("scores.npz", "its arrays differ in length")
        for number in np.unique(blocks):
            rows = blocks == number
            known = 0 <= number < self.audit.blocks
            if not known or rows.sum() != self._size(number):
                raise self.folder.broken("scores.npz", f"block {number} is not whole")
            member, score, right = (array[rows] for array in arrays)
            self.done[int(number)] = (member, score, right)

    def _size(self, number: int) -> int:
        return min(self.audit.block, self.audit.runs - number * self.audit.block)

    @property
    def runs(self) -> int:
        """Number of runs that are done."""
        return sum(len(kept[0]) for kept in self.done.values())

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
        kept = self._size(number)
        self.done[number] = (
            block.member[:kept],
            block.score[:kept],
            block.accuracy[:kept],
        )
        self._write()

    def _write(self) -> None:
        numbers = sorted(self.done)
        member, score, right = self.arrays()
        content = _npz.packed(
            **run_arrays(member, score),
            design="coin-flip",
            accuracy=right,
            block=np.repeat(numbers, [len(self.done[n][0]) for n in numbers]),
        )
        self.folder.write("scores.npz", content)

    def arrays(
        self, blocks: int | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Worlds, scores and accuracies of the first ``blocks``, by default all."""
        columns = zip(
            *(self.done[number] for number in sorted(self.done)[:blocks]), strict=True
        )
        member, score, right = (np.concatenate(column) for column in columns)
        return member, score, right

    def cut(self, blocks: int) -> None:
        """Leave those after the first ``blocks`` out: an earlier call began more."""
        self.done = {n: kept for n, kept in self.done.items() if n < blocks}
        self._write()


def train_block(
    audit: Audit,
    adversaries: Sequence[Adversary],
    number: int,
    *,
    memory_limit: int = MEMORY_LIMIT,
) -> list[tuple[Block, Curves | None]]:
    """Train block ``number`` in its worlds; score it by each: a pure function."""
    # Worlds are tossed on the CPU: who is a member is the same on any device.
    first = number * audit.block
    tossed = Streams(audit.seed, first)
    planted = tossed.worlds(audit.block, len(adversaries[0].scene.canary))
    streams = Streams(audit.seed, first, audit.device)
    scene = adversaries[0].scene
    problem = scene.problem
    gradients = problem.gradients()
    watchers = [one.watch(audit.block, gradients) for one in adversaries]
    curve = CurveRecorder(problem, gradients)

    def after_round(done: int, models: torch.Tensor, _: object) -> None:
        for one in watchers:
            if type(one).after_round is not Watcher.after_round:  # it looks at them
                one.after_round(done, models.cpu())
        if number == 0:
            curve(done, models[:_SHOWN])

    models, ledger = problem.train(
        audit.noise_multiplier,
        streams,
        runs=audit.block,
        start=scene.start.repeat(audit.block, len(problem.shares), 1),
        planted=scene.canary.planted(planted, replaces=scene.replaces),
        observers=Observers(
            tuple(_Copied(seen) for one in watchers for seen in one.observers),
            tuple(_Copied(seen) for one in watchers for seen in one.release_observers),
            after_round,
        ),
        memory_limit=memory_limit,
    )
    right = np.full(audit.block, np.nan)
    if problem.test is not None and problem.material.quality == "accuracy":
        right = accuracy(gradients, models, problem.test).mean(1).numpy()
    found, final = [], models.cpu()
    for watcher in watchers:
        score = watcher.score(final).numpy().astype(np.float64)
        score = score.reshape(planted.shape)
        block = Block(planted.numpy(), score, right, ledger)
        found.append((block, None if number else curve.curves()))
    return found


def run(
    audit: Audit,
    folder: RunFolder,
    *,
    workers: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: Callable[[int, int], None] = lambda done, total: None,
    problem: Problem | None = None,
    given: Given = NOTHING,
) -> AuditResult:
    """Train, score, account and judge; go on where an earlier call was stopped.

    ``folder`` must be this audit's or empty. ``workers``: threads, with a block each.
    ``memory_limit``: bytes of all, by which last bits may differ. ``progress`` is
    called with the runs done and all runs. ``problem``, ``given``: what the audit
    describes, and what it has no name for. `FolderError`; ``ValueError`` if settings do
    not fit the data.
    """
    if audit.one_run:
        return one_run.run(audit, folder, memory_limit=memory_limit, progress=progress)
    problem = audit.problem() if problem is None else problem
    (found,) = run_all(
        [audit],
        [folder],
        problem,
        given=given,
        workers=workers,
        memory_limit=memory_limit,
        progress=progress,
    )
    return found


def run_all(
    audits: Sequence[Audit],
    folders: Sequence[RunFolder],
    problem: Problem,
    *,
    given: Given = NOTHING,
    workers: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[AuditResult]:
    """As `run`, several ``audits`` by the same runs, each in its own folder."""
    audit, states, adversaries = audits[0], [], []
    ended = [
        folder.settle(one) and folder.has("result.json")
        for one, folder in zip(audits, folders, strict=True)
    ]
    if all(ended):
        return [folder.read("result.json", AuditResult) for folder in folders]
    many = min(planted_together(one, problem) for one in audits)  # all see one scene
    for one, folder in zip(audits, folders, strict=True):
        adversaries.append(attacker(one, problem, given, many))
        states.append(Progress(one, folder))
    state = min(states, key=lambda one: one.runs)
    began = time.monotonic()
    # A block fills a GPU. Not those that are missing: a resumed audit must sum in the
    # same parts.
    most = 1 if audit.device != "cpu" else audit.blocks
    workers = min(workers or os.cpu_count() or 1, most)
    memory_limit //= workers
    progress(state.runs, audit.runs)

    # One torch thread a worker: the bits of a sum depend on how threads share it.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = concurrent.futures.ThreadPoolExecutor(
        workers, initializer=torch.set_num_threads, initargs=(1,)
    )
    try:
        for runs in stages(audit):
            futures = {
                pool.submit(
                    train_block, audit, adversaries, n, memory_limit=memory_limit
                ): n
                for n in range(-(-runs // audit.block))
                if n not in state.done
            }
            for future in concurrent.futures.as_completed(futures):
                for one, gave in zip(states, future.result(), strict=True):
                    one.add(futures[future], *gave)
                progress(state.runs, audit.runs)
            assert state.ledger is not None
            blocks = -(-runs // audit.block)
            if runs < audit.runs and is_refuted(
                audit, state.ledger, state.arrays(blocks)
            ):
                state.cut(blocks)
                break
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(threads)
    seconds = time.monotonic() - began
    results = []
    for one, kept, by, folder in zip(audits, states, adversaries, folders, strict=True):
        assert kept.ledger is not None
        results.append(judge(one, kept.ledger, kept.arrays(), seconds, by.told))
        end(folder, one.claim, kept.ledger, results[-1])
    return results


def run_on_ranks(
    audit: Audit,
    opened: contextlib.AbstractContextManager[RunFolder],
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> AuditResult | None:
    """As `run`, over the ranks that torchrun started; None but at rank 0.

    Blocks are dealt out one a rank at a time; scores are one process's, bit for bit.
    All ranks must call, with equal arguments; rank 0 alone enters ``opened``.
    `FolderError` at every rank; `RankLostError` if another one ends, or does not answer
    in time.
    """
    if audit.stop_when_refuted:
        raise ValueError(
            "stop_when_refuted is for one process: ranks make all runs; leave it out"
        )
    adversary = attacker(audit, audit.problem())
    torch.set_num_threads(1)  # the bits of a sum depend on how threads share it
    with joined(audit.device) as (rank, size), contextlib.ExitStack() as stack:
        folder, known, state, missing = None, None, None, []
        with _told_to_all():
            if rank == 0:
                folder = stack.enter_context(opened)
                if folder.settle(audit) and folder.has("result.json"):
                    known = folder.read("result.json", AuditResult)
                else:
                    state = Progress(audit, folder)
                    missing = [n for n in range(audit.blocks) if n not in state.done]
        finished, missing = told((known is not None, missing))
        if finished:
            return known
        began = time.monotonic()
        for first in range(0, len(missing), size):
            mine = missing[first + rank : first + rank + 1]
            found = [(n, *train_block(audit, [adversary], n)[0]) for n in mine]
            blocks = gathered(found)
            with _told_to_all():
                if blocks is not None and state is not None:
                    for block in (block for each in blocks for block in each):
                        state.add(*block)
                    progress(state.runs, audit.runs)
        if state is None or folder is None:
            return None
        assert state.ledger is not None
        seconds = time.monotonic() - began
        result = judge(audit, state.ledger, state.arrays(), seconds, adversary.told)
        end(folder, audit.claim, state.ledger, result)
        return result


@contextlib.contextmanager
def _told_to_all() -> Iterator[None]:
    """Raise at every rank the errors of rank 0 in here."""
    why = ""
    try:
        yield
    except FolderError as error:
        why = str(error)
    why = told(why)
    if why:
        raise FolderError(why)
