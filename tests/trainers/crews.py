"""What the workers of test_crew.py do; made in their own processes."""

import functools
import time

import torch

from privaudit.ledger import Ledger
from trainers.clock import Clock, Speed, bipartite_ring
from trainers.crew import Crew
from trainers.worker import Job, Plan

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


def crew(path, job=flat, workers=4, speed="constant", link_time=0.0, **more):
    """A crew on a ring, and its journal in ``path``."""
    clock = Clock(bipartite_ring(workers), Speed(speed, workers), link_time)
    settings = {
        "steps": 200,
        "most": 200,
        "step_time": 0.0,
        "report_every": 1000,
        "patience": 20.0,
        **more,
    }
    return Crew(Plan(clock, journal=path / "steps.bin", **settings), job)


slowly = functools.partial(flat, seconds=0.005)
