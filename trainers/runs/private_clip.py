"""Clip norm found in the data: a quantile of gradients' norms, by noisy counts.

Each node counts its records by norm at the start, between powers of two: one Gaussian
release, in which a record moves one count by one. It sets a scale, as norms change;
adaptive clipping (Andrew et al. 2021) would cost a release a round.
"""

from __future__ import annotations

import math
import pathlib

import msgspec
import torch

from privaudit.files.folder import RunFolder
from privaudit.records import ClipRecord
from privaudit.results import Claim
from privaudit.settings import TrainingSettings
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.runs.planning import is_planned, two_digits
from trainers.runs.problem import Problem
from trainers.runs.run import TrainingRun
from trainers.runs.training import Training
from trainers.runs.tuned import count_noise

_LEAST, _MOST = -16, 16  # powers of two between which norms are told apart
_SEEN = 2.0  # deviations of its noise, at which a count is taken for some records


def clip_record(
    problem: Problem, claim: Claim, settings: TrainingSettings, *, together: bool
) -> ClipRecord:
    """Counts for the budget of ``claim``, of the quantile that ``settings`` ask for."""
    assert settings.clip_quantile is not None
    training = problem.training
    if not is_planned(training):
        raise ValueError(
            f"clip_quantile is of the norms of records' gradients, and "
            f"{training.algorithm} clips something else: give clip_norm"
        )
    if settings.noise_multiplier is not None or settings.calibrate == "paper":
        raise ValueError(
            "clip_quantile takes a part of a budget that is certified: give epsilon, "
            "or clip_norm"
        )
    if together or settings.observer or settings.canaries:
        raise ValueError(
            "clip_quantile is found by one process, and accounted for who sees all "
            "releases: leave parties, torchrun, observer and canaries out, or give "
            "clip_norm"
        )
    budgets = settings.each_budget or (claim.epsilon,)
    noise = two_digits(count_noise(budgets, claim.delta))
    return ClipRecord(quantile=settings.clip_quantile, noise_multiplier=noise)


def known_clip(folder: pathlib.Path, record: ClipRecord) -> float | None:
    """Clip norm that a run which was stopped in ``folder`` has found; None if none."""
    there = RunFolder(folder)
    if there.has("result.json") or not there.has("config.json"):
        return None
    known = there.read("config.json", TrainingRun)
    return known.training.clip_norm if known.clip == record else None


def clipped(
    problem: Problem,
    record: ClipRecord,
    settings: TrainingSettings,
    known: float | None = None,
) -> Training:
    """The training of ``problem`` with the clip norm of ``record``, or ``known``."""
    training = problem.training
    clip = _found(problem, record, settings) if known is None else known
    step = training.step_size
    if settings.step_size is None:
        step = two_digits(step * training.clip_norm / clip)
    return msgspec.structs.replace(training, clip_norm=clip, step_size=step)


def _found(problem: Problem, record: ClipRecord, settings: TrainingSettings) -> float:
    """Clip norm at the quantile of ``record``, by counts with its noise."""
    seed = settings.seed
    key = Key.secret() if seed is None else Key.study(f"clip {seed}")
    streams = Streams(key, device=settings.compute.device)
    start = problem.start(settings.public_seed).to(streams.device)
    edges = 2.0 ** torch.arange(_LEAST, _MOST + 1, dtype=torch.float64)
    counts = problem.oracle(0.0, streams).norm_counts(
        start, edges.to(start.device), record.noise_multiplier
    )
    deviation = record.noise_multiplier * math.sqrt(len(problem.sizes))
    return quantile_of(counts[0].sum(0).tolist(), record.quantile, deviation)


def quantile_of(counts: list[float], quantile: float, deviation: float) -> float:
    """Norm at a quantile of noisy ``counts`` between powers of two.

    Counts that may be of noise alone are left out, so that many empty ones do not add
    up to something; within one, norms are taken to be even in their logarithm.

    >>> quantile_of([0.0] * 16 + [40.0, 100.0, 60.0] + [0.0] * 15, 0.5, 1.0)
    1.5
    """
    seen = [count if count > _SEEN * deviation else 0.0 for count in counts]
    if not any(seen):
        seen[max(range(len(counts)), key=counts.__getitem__)] = 1.0
    left = quantile * sum(seen)
    for kind, count in enumerate(seen):
        if count and left <= count:
            return two_digits(2.0 ** (_LEAST - 1 + kind + left / count))
        left -= count
    return 2.0**_MOST
