"""Runs the audits of a sweep, each in a process of its own.

A worker gets one after the other through a pipe. One that dies takes its audit with it,
and another is started; all end when the process that started them does.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import pathlib
import signal
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection

from privaudit.auditing.experiments.experiment import run
from privaudit.auditing.experiments.outcome import AuditResult
from privaudit.auditing.experiments.plan import Audit
from privaudit.auditing.experiments.sweep import Planned, Sweep
from privaudit.auditing.experiments.sweep_folder import FAILURES, PLAN, SweepFolder
from privaudit.files import json as _json
from privaudit.files.folder import MANIFEST, FolderError, RunFolder
from privaudit.files.manifest import seal
from trainers.oracles.oracle import MEMORY_LIMIT
from trainers.runs.supervisor import Exit, Supervisor

_PATIENCE = 10.0  # seconds for a killed sweep's workers to leave their folders


@dataclasses.dataclass(slots=True)
class Progress:
    """Progress of one audit: ``done`` of ``total`` runs, ``result`` or ``failure``."""

    name: str
    total: int
    done: int = 0
    result: AuditResult | None = None
    failure: str | None = None

    @property
    def ended(self) -> bool:
        """Return whether there is nothing more to come."""
        return self.result is not None or self.failure is not None


def run_sweep(
    plan: Sweep,
    folder: SweepFolder,
    *,
    workers: int | None = None,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> list[Progress]:
    """All audits of ``plan``, in its order; goes on where an earlier call was stopped.

    What ``folder`` has is not done again; what failed is tried again. ``workers``:
    processes, with threads where audits are fewer; each has a share of memory. ``tell``
    is called with `Progress`. `FolderError` if ``folder`` cannot be written.
    """
    workers = workers or os.cpu_count() or 1
    # By the plan, not by what is left of it: scores must not depend on a kill.
    processes = max(1, min(workers, len(plan.audits)))
    threads, memory_limit = max(1, workers // processes), MEMORY_LIMIT // processes
    folder.write(PLAN, _json.encode(plan))
    failures = folder.failures()
    states = {one.name: Progress(one.name, one.audit.runs) for one in plan.audits}
    waiting: collections.deque[Planned] = collections.deque()
    for one in plan.audits:
        state = states[one.name]
        state.result = _finished(one, folder / one.name)
        if state.result is None:
            waiting.append(one)
        else:
            state.done = state.total
        tell(state)
    if waiting:
        folder.remove(MANIFEST)  # of what was finished before
    busy: dict[int, Planned] = {}
    idle: list[int] = []
    with Supervisor(_work) as supervisor:
        while waiting or busy:
            while waiting and len(busy) < processes:
                task = waiting.popleft()
                worker = idle.pop() if idle else supervisor.start(threads, memory_limit)
                busy[worker] = task
                supervisor.send(worker, (folder / task.name, task))
                tell(states[task.name])
            for worker, news in supervisor.listen():
                if worker in idle:  # and has died
                    idle.remove(worker)
                    continue
                state = states[busy[worker].name]
                if isinstance(news, tuple):
                    state.done, state.total = news
                elif isinstance(news, AuditResult):
                    state.result = news
                else:
                    state.failure = _death(news) if isinstance(news, Exit) else news
                if state.ended:
                    del busy[worker]
                    if not isinstance(news, Exit):
                        idle.append(worker)
                    _note(folder, failures, state)
                tell(state)
    seal(folder, folder.manifests())
    return list(states.values())


def goes_on(plan: Sweep, folder: SweepFolder) -> bool:
    """Return whether ``folder`` holds a sweep, and no audit by other settings."""
    if not folder.has(PLAN):
        return False
    for one in plan.audits:
        there = RunFolder(folder / one.name)
        with contextlib.suppress(FolderError):  # damaged, which that audit will say
            begun = there.has("scores.npz") and there.has("config.json")
            if begun and there.read("config.json", Audit) != one.settled(there):
                return False
    return True


def _finished(planned: Planned, path: pathlib.Path) -> AuditResult | None:
    """Finding of the audit, if it is finished; whatever is amiss is the worker's."""
    folder = RunFolder(path)
    try:
        if not (folder.has("result.json") and folder.has("config.json")):
            return None
        if folder.read("config.json", Audit) != planned.settled(folder):
            return None
        return folder.read("result.json", AuditResult)
    except FolderError:
        return None


def _note(folder: SweepFolder, failures: dict[str, str], state: Progress) -> None:
    """Keep in the folder why the audit failed, or that it no longer does."""
    before = dict(failures)
    failures.pop(state.name, None)
    if state.failure is not None:
        failures[state.name] = state.failure
    if failures != before:
        folder.write(FAILURES, _json.encode(failures))


def _death(how: Exit) -> str:
    if how.status == -signal.SIGKILL:
        return "its process was killed: was there too little memory? Try fewer workers"
    return f"its process died with status {how.status}"


def _work(pipe: Connection, threads: int, memory_limit: int) -> None:
    """Serve as a worker's process, until its pipe ends."""
    with contextlib.suppress(EOFError):
        while True:
            path, planned = pipe.recv()
            pipe.send(_outcome(planned, path, threads, memory_limit, pipe.send))


def _outcome(
    planned: Planned,
    path: pathlib.Path,
    threads: int,
    memory_limit: int,
    say: Callable[[Iterable[int]], None],
) -> AuditResult | str:
    """Finding of the audit, or why it found nothing."""
    try:
        with RunFolder.opened(path, patience=_PATIENCE) as folder:
            if not folder.has("scores.npz"):  # nothing is lost, settings may be mended
                for name in ("ledger.json", "curves.json", "config.json"):
                    folder.remove(name)
            return run(
                planned.settled(folder),
                folder,
                workers=threads,
                memory_limit=memory_limit,
                progress=lambda done, total: say((done, total)),
            )
    except (ValueError, FolderError) as error:
        return " ".join(str(error).split())
    except Exception as error:  # one audit's, whatever it is: the others go on
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
