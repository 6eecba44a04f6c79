"""A training run by a real clock: a process a worker, in a folder, with its account."""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from privaudit.files.folder import FolderError, RunFolder
from privaudit.ledger import Ledger, Recorder
from trainers.algorithms.asynchronous.real_time import OverProcesses
from trainers.algorithms.family import Noise
from trainers.data import PrivateData
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.runs.measures import CurveRecorder
from trainers.runs.outcome import TrainingResult
from trainers.runs.problem import Problem
from trainers.runs.real_clock.messages import Death, Outcome
from trainers.runs.real_clock.worker import Agreement, Job
from trainers.runs.real_clock.worker_pool import PATIENCE, WorkerPool
from trainers.runs.run import Assignment, Keeper, OneProcess, TrainingRun

_POINTS = 25  # at which models are measured, about
_ACCOUNTS = 5  # at which the spent epsilon is computed: all workers' differ
_JOURNAL = "steps.bin"


def is_by_real_clock(problem: Problem) -> bool:
    """Return whether `RealClock` is what trains it."""
    return isinstance(problem.network, OverProcesses)


class RealClock(OneProcess):
    """A process of its own for every worker.

    The start is the seed's; batches and noise are not: equal noise in two runs of other
    models would be none in their difference. Workers that die pay for the steps they
    began, and are left out of accuracies. A run stopped as a whole cannot go on;
    ``ledger.json`` has what it released. `FolderError` for its folder; ``OSError`` if
    all workers died.
    """

    def __init__(
        self,
        data_dir: pathlib.Path | None = None,  # where each process finds the data
        died: Callable[[Death], None] = lambda death: None,  # called at every death
    ) -> None:
        super().__init__()
        self._data_dir = data_dir
        self._died = died

    def joined(
        self, given: Assignment
    ) -> contextlib.AbstractContextManager[Assignment]:
        """As given: processes are started by `result`."""
        device = given.run.device
        if device != "cpu":
            raise ValueError(f"the real clock runs on cpu only, got device {device}")
        return super().joined(given)

    def result(self, given: Assignment, folder: RunFolder) -> TrainingResult:
        """Start all workers, and listen until the last has ended."""
        run, problem = given.run, given.problem
        pool = worker_pool(run, problem, folder / _JOURNAL, self._data_dir)

        def so_far(outcome: Outcome | None = None) -> Ledger:
            known = {} if outcome is None else outcome.ledgers
            released = ledger_of(problem, run.noise_multiplier, pool.counts(), known)
            return problem.stated(released)

        made = sum(pool.counts())
        if made:
            folder.write("ledger.json", so_far().to_json().encode())
            raise _stopped(folder, made)
        # Raises before anything is released.
        given.account(problem.ledger(run.noise_multiplier))
        keeper = _Keeper(given, folder)

        def report(done: int, models: Mapping[int, Tensor]) -> None:
            keeper.after_round(done, _stacked(models), so_far)

        try:
            outcome = pool.run(report, self._died)
            if not outcome.models:
                deaths = "; ".join(map(str, outcome.deaths))
                raise OSError(f"all workers died: {deaths}")
        except KeyboardInterrupt:
            raise _stopped(folder, sum(pool.counts())) from None
        finally:
            folder.write("ledger.json", so_far().to_json().encode())
        models = _stacked(outcome.models)
        keeper.end(sum(outcome.counts), models, lambda: so_far(outcome))
        values = keeper.recorder.final(models)
        final = outcome.models if given.save_models else None
        told = remarks(run, problem, outcome)
        return keeper.finish(values, so_far(outcome), final, told)


def worker_pool(
    run: TrainingRun,
    problem: Problem,
    journal: pathlib.Path,
    data_dir: pathlib.Path | None = None,
    patience: float = PATIENCE,
) -> WorkerPool:
    """The workers of ``run``, not yet started."""
    network = _processes(problem)
    steps = run.training.rounds
    plan = Agreement(
        clock=network.algorithm.clock,
        steps=steps,
        most=network.most,
        step_time=network.step_time,
        report_every=max(1, steps // _POINTS),
        patience=patience,
        journal=journal,
    )
    return WorkerPool(plan, functools.partial(job, run=run, data_dir=data_dir))


def job(
    worker: int,
    *,
    run: TrainingRun,
    data_dir: pathlib.Path | None,
    key: Key | None = None,
) -> Job:
    """Job of ``worker``, on its own records alone, by ``key`` or a secret one."""
    training = run.training
    problem = run.problem(data_dir=data_dir)
    mechanism = problem.mechanism(run.noise_multiplier)
    oracle = training.family.oracle(
        PrivateData.of(
            [problem.shares[worker]],
            replaces=mechanism.sampling == "without-replacement",
        ),
        problem.gradients(),
        mechanism,
        Streams(key or Key.secret()).of([worker]),
    )
    start = problem.start(run.public_seed)[0, worker].clone()
    return Job(oracle, start, training.step_sizes())


def ledger_of(
    problem: Problem,
    noise_multiplier: Noise,
    counts: list[int],
    known: Mapping[int, Ledger],
) -> Ledger:
    """Ledger of all workers: as ``known`` of a worker, or by its ``counts``."""
    mechanism = problem.mechanism(noise_multiplier)
    parts = []
    for worker, (size, count) in enumerate(zip(problem.sizes, counts, strict=True)):
        recorder = Recorder(1)
        recorder.record(0, mechanism.of(worker).release(0, size), count)
        parts.append(known.get(worker, recorder.ledger()))
    return Ledger.joined(parts)


def remarks(run: TrainingRun, problem: Problem, outcome: Outcome) -> tuple[str, ...]:
    """Report deaths, steps and staleness, in sentences."""
    found = [str(death) for death in outcome.deaths]
    dead = {death.worker for death in outcome.deaths}
    for worker, partners in outcome.lost.items():
        found += [
            f"worker {worker} gave up on worker {partner}, which did not answer"
            for partner in partners
            if partner not in dead
        ]
    steps = sum(outcome.counts)
    most = _processes(problem).most
    spent = all(outcome.counts[worker] == most for worker in outcome.models)
    if spent and steps < run.training.rounds:
        found.append(
            f"it ended after {steps:,} of {run.training.rounds:,} steps, as those who "
            "lived had made their most; raise most_steps for more"
        )
    stale = torch.tensor(outcome.staleness or [0], dtype=torch.float64)
    found.append(
        f"{steps:,} steps in {outcome.seconds:.1f} s, by worker "
        f"{', '.join(map(str, outcome.counts))}; staleness {stale.mean():.2f} on "
        f"average and {int(stale.max())} at most"
    )
    return tuple(found)


def _processes(problem: Problem) -> OverProcesses:
    """Settings of the processes, by its options."""
    if not isinstance(problem.network, OverProcesses):
        raise ValueError(
            f"{problem.training.algorithm} does not run by the real clock; adp2sgd and "
            "adpsgd do, with clock=real"
        )
    return problem.network


def _stopped(folder: RunFolder, made: int) -> FolderError:
    return FolderError(
        f"the run by the real clock in {folder.path} was stopped after {made:,} steps. "
        "It cannot go on, and what it released is in its ledger.json; choose another "
        "folder with --out"
    )


def _stacked(models: Mapping[int, Tensor]) -> Tensor:
    """(1, workers, dims), of those that there are."""
    return torch.stack([models[worker] for worker in sorted(models)])[None]


class _EveryReport(CurveRecorder):
    """Measures at an end that is not known beforehand, in place of a point there."""

    ends = False

    def _is_last(self, done: int) -> bool:
        if self.ends and self.points and self.points[-1].round >= done:
            self.points.pop()
        return self.ends


class _Keeper(Keeper):
    """A `Keeper` without checkpoints or accounts before the end."""

    _ends = False

    _recorder = _EveryReport

    def __init__(self, given: Assignment, folder: RunFolder) -> None:
        self._ledgers: dict[int, Ledger] = {}
        super().__init__(given, folder)

    def _is_accounted(self, done: int) -> bool:
        every = max(1, self._rounds // _ACCOUNTS)
        return self._ends or done // every > self._seen // every

    def _spend(self, done: int, ledger: Ledger) -> float | None:
        if self._ends:
            return super()._spend(done, ledger)
        self._ledgers[done] = ledger
        return None

    def end(self, done: int, models: Tensor, ledger: Callable[[], Ledger]) -> None:
        """Measure the last models, and account all."""
        assert isinstance(self.recorder, _EveryReport)
        self._ends = self.recorder.ends = True
        for before, spent in self._ledgers.items():
            super()._spend(before, spent)
        self.after_round(done, models, ledger)
