"""What the workers of test_worker_pool.py do; made in their own processes."""

import functools
import os
import time

import torch

from privaudit.ledger import Ledger
from trainers.algorithms.asynchronous.clock import Clock, Speed, bipartite_ring
from trainers.runs.real_clock.messages import counted
from trainers.runs.real_clock.worker import Agreement, Job
from trainers.runs.real_clock.worker_pool import WorkerPool

DIMS = 6


class Flat:
    """Gradients that are zero, after ``seconds``."""

    def __init__(self, seconds=0.0):
        self._seconds = seconds

    def gradient(self, at):
        time.sleep(self._seconds)
        return torch.zeros_like(at)

    @property
    def ledger(self):
        return Ledger(nodes=((),))


def flat(worker, seconds=0.0):
    """Models start apart, at whole numbers, and only averages move them."""
    start = torch.arange(DIMS, dtype=torch.float32) + 10 * worker
    return Job(Flat(seconds), start, lambda k: 1.0)


def pool(path, job=flat, workers=4, speed="constant", link_time=0.0, **more):
    """A worker pool on a ring, and its journal in ``path``."""
    clock = Clock(bipartite_ring(workers), Speed(speed, workers), link_time)
    settings = {
        "steps": 200,
        "most": 200,
        "step_time": 0.0,
        "report_every": 1000,
        "patience": 20.0,
        **more,
    }
    return WorkerPool(Agreement(clock, journal=path / "steps.bin", **settings), job)


slowly = functools.partial(flat, seconds=0.005)


class Counted(Flat):
    """Fails unless its step is in the journal before it is asked for a gradient."""

    def __init__(self, path, worker):
        super().__init__(0.002)
        self._path, self._worker, self._asked = path, worker, 0

    def gradient(self, at):
        self._asked += 1
        if counted(self._path, 4)[self._worker] != self._asked:
            raise ValueError("a step was begun that is in no journal")
        return super().gradient(at)


def journalled(worker, path):
    """A `Job` that looks whether its steps are counted first."""
    start = flat(worker).start
    return Job(Counted(path, worker), start, lambda k: 1.0)


class Dying(Flat):
    """Ends its process in its ``last``-th gradient."""

    def __init__(self, last):
        super().__init__(0.005)
        self._left = last

    def gradient(self, at):
        self._left -= 1
        if not self._left:
            os._exit(7)
        return super().gradient(at)


def dying(worker, who, last):
    """A `Job` at which worker ``who`` dies in its ``last``-th step."""
    one = slowly(worker)
    return Job(Dying(last), one.start, one.step_size) if worker == who else one


class Refusing(Flat):
    """An oracle that says no."""

    def gradient(self, at):
        raise ValueError("a sample's gradient is not finite")


def refusing(worker):
    """A `Job` that fails at worker 2."""
    one = slowly(worker)
    return Job(Refusing(), one.start, one.step_size) if worker == 2 else one


class Hanging(Flat):
    """Makes its steps, and never hands in its ledger."""

    @property
    def ledger(self):
        time.sleep(1000)


def hanging(worker, who):
    """A `Job` at which worker ``who`` hangs when all is done."""
    one = slowly(worker)
    return Job(Hanging(), one.start, one.step_size) if worker == who else one
