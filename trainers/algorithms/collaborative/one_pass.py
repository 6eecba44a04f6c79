"""One pass over disjoint batches: its noise, and what its ledger says.

Between two global updates a node's batches go into its local model alone; the next
global update releases them all at once. Each batch is thus in one release, or none, of
each class's model, and the releases of a class are one pass over disjoint records
(`privaudit.accounting.parallel`); the classes' passes, over the same records, compose
in sequence, which is the factor sqrt(classes) on the noise.

**Sensitivity** (paper 002, Lemma 4). Let batch k of b records have step size eta_k. If
it is the batch of the global update itself, replacing a record moves eta_k grad by at
most 2 eta_k L / b. If it went into the local model, by a step of 2 eta_k, it moves that
by at most 4 eta_k L / b; all later local steps are the same maps in both worlds, which
for 2 eta <= 2 / smoothness do not expand; and the global update halves the local
model: 2 eta_k L / b again. So the noise that the global update at t adds to each
coordinate, z L max_k(eta_k) / b over the batches k that it releases, is at least
z times eta_k L / b, the norm bound of one record of batch k; it is exactly that, times
max(eta) / eta_k, which is what the ledger has.

Updates are rounded to a grid, of a step so small that this brings two of them apart, in
L2, by 2^-20 of the noise at most: the bounds in the ledger are with it.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from privaudit.ledger import Ledger, Recorder
from privaudit.release import NoSampling, Release, Sensitivity
from trainers.algorithms.collaborative.deep_q import QSettings
from trainers.algorithms.collaborative.logistic import Constants
from trainers.algorithms.collaborative.policies import Choices
from trainers.numerics.noise import grid
from trainers.numerics.randomness import rounding_up
from trainers.oracles.oracle import Mechanism

LEAK = (
    "nobody learns anything from which updates are global: deep-Q networks choose them "
    "from private losses, all nodes see the choices, and no noise covers them"
)

_ROUNDING = 20  # bits: rounding moves an update by less than 2^-20 of its noise


def _constant(turn: int) -> float:
    return 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class OnePass(Mechanism):
    """Mechanism of one pass over the nodes' batches.

    ``batch_size``: b; last records that fill none are left out. ``noise_multiplier``: z
    above. ``step_size``: of the turn, never of the data. ``rounds``: turns at most.
    """

    step_size: Callable[[int], float] = _constant
    rounds: int = 1
    constants: Constants = Constants(0.0)  # noqa: RUF009  # frozen
    choices: Choices = Choices("coin")  # noqa: RUF009  # frozen
    networks: QSettings = QSettings()  # noqa: RUF009  # frozen

    def turns(self, records: int) -> int:
        """Number of turns a node of so many ``records`` has."""
        self.sampling_rate(records)
        return min(self.rounds, records // int(self.batch_size))

    def steps(self, turns: int) -> np.ndarray:
        """The step sizes of the turns; ``ValueError`` if Lemma 4 does not hold."""
        steps = np.array([self.step_size(turn) for turn in range(turns)])
        if self.at(0)[1] > 0:
            for step in np.unique(steps):
                self.constants.check_step(float(step))
        return steps

    @staticmethod
    def grid(deviation: float, dims: int) -> float:
        """Step of the grid for noise of ``deviation`` on ``dims`` numbers."""
        step = grid(deviation, _ROUNDING + math.frexp(math.sqrt(dims))[1])
        assert rounding_up(step, dims) <= deviation * 2.0**-_ROUNDING
        return step

    def released(self, steps: Sequence[float]) -> list[tuple[Release, int]]:
        """One class's release of batches with ``steps``: as what, for how many."""
        _, multiplier = self.at(0)
        return _released(multiplier, self.constants.lipschitz, tuple(steps))

    def ledger_of(self, sizes: Sequence[int], classes: int) -> Ledger:
        """Ledger of a run over nodes of ``sizes`` records; what it writes at most."""
        recorder = Recorder(len(sizes))
        turns = [self.turns(size) for size in sizes]
        steps = self.steps(max(turns))
        if self.choices.looks:
            recorder.assume(LEAK)
            for node, own in enumerate(turns):
                for number in range(classes):
                    for release, count in self.released([1.0]):
                        recorder.record(node, release, own * count, disjoint=number)
            return recorder.ledger()
        table = self.choices.table(max(turns), len(sizes), classes)
        for node, own in enumerate(turns):
            for number in range(classes):
                ends = np.flatnonzero(table[:own, node, number]) + 1
                segments = collections.Counter(
                    tuple(steps[first:end].tolist())
                    for first, end in zip([0, *ends], ends, strict=False)
                )
                for segment, times in segments.items():
                    for release, count in self.released(segment):
                        recorder.record(node, release, times * count, disjoint=number)
        return recorder.ledger()


@functools.lru_cache(4096)  # segments of a table repeat, and a calibration asks again
def _released(
    multiplier: float, bound: float, steps: tuple[float, ...]
) -> list[tuple[Release, int]]:
    ratios, counts = np.unique(max(steps) / np.asarray(steps), return_counts=True)
    found = []
    for ratio, count in zip(ratios.tolist(), counts.tolist(), strict=True):
        noise = multiplier * ratio * bound
        rounded = bound + noise * 2.0 ** -(_ROUNDING + 1)
        release = Release(
            mechanism="gaussian",
            norm_bound=rounded,
            noise=noise,
            # Batches of fixed size: one record more would shift all others.
            sensitivity=Sensitivity(replace_one=2 * rounded),
            sampling=NoSampling(),
        )
        found.append((release, count))
    return found


def paper_multiplier(constants: Constants, epsilon: float, delta: float) -> float:
    """The noise multiplier as the paper has it, of any epsilon as printed.

    sigma = c Delta / epsilon, c^2 = 2 ln(1.25 / delta), Delta = 2 eta L / b of *one*
    class's model (Theorems 1 and 2): proved of one for epsilon < 1; all need
    sqrt(classes) more.
    """
    if not (epsilon > 0 and 0 < delta < 1):
        raise ValueError(
            f"epsilon must be > 0 and delta in (0, 1), got {epsilon} and {delta}"
        )
    factor = math.sqrt(2 * math.log(1.25 / delta))
    return 2 * constants.paper_lipschitz * factor / (constants.lipschitz * epsilon)
