"""Sensitivities by which noise of messages is scaled, round by round.

The sensitivity of a round is max_ij ||s_i - s_j||_1 over what the nodes are about to
send: no node knows it. A `Tracker` says what each node believes it to be, and the
largest of these is used. Where nodes believe different things they must broadcast them,
and what they broadcast depends on the data: `MessageNoise.broadcasts`.

=================  ==============================================  ===================
name               what a node says                                worth
=================  ==============================================  ===================
real               the sensitivity itself, which nobody can know   for study
paper              equation 22 with C' and lambda                  claimed
published          the same from the network's maximum, without    claimed
                   the start, as the paper's published code
certified          a bound from all norms and the known weights    holds, but the norms
                                                                   are broadcast
data-independent   a bound from public numbers only                holds
perturbation       twice the bound of what a node adds             holds for records,
                                                                   says nothing of
                                                                   which node was asked
=================  ==============================================  ===================

Only the last two are guarantees of differential privacy. The others make the scale of
the noise a function of the data, in the clear: where perturbations are always clipped,
the broadcast gives away the norm of the noise, and a message and the norm of its noise
tell two candidates apart with certainty.

References
----------
Zhou, Xue and Chen, "Differentially private perturbed push-sum protocol and its
application in non-convex optimization", equation 22 and Theorem 1.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.papers.push_sum_sensitivity import PaperEstimate, Spread

Floats = NDArray[np.float64]
SensitivityName = Literal[
    "real", "paper", "published", "certified", "data-independent", "perturbation"
]
SENSITIVITIES: tuple[SensitivityName, ...] = get_args(SensitivityName)


class Tracker:
    """Sensitivity that nodes believe, in the runs of a block, round by round.

    By itself it remembers nothing of how it began and what was sent.
    """

    def begin(self, norms: Floats, bound: float, *, equal: bool) -> None:
        """States of L1 norms ``norms``, (runs, nodes), none above ``bound``."""

    def perturbed(self, states: Floats, norms: Floats, bound: float) -> Floats:
        """Broadcast of each node, (runs, nodes), before noise; ``norms`` were added."""
        raise NotImplementedError

    def sent(
        self, noises: Floats, scale: Floats, matrix: Floats, *, synchronises: bool
    ) -> None:
        """Noise of L1 ``norms`` and ``scale`` was added, and ``matrix`` mixed all."""


def real_sensitivity(states: Floats) -> Floats:
    """max_ij ||s_i - s_j||_1 in every run, (runs,), of (runs, nodes, dims)."""
    from scipy.spatial import distance

    return np.array(
        [max(distance.pdist(run, "cityblock"), default=0.0) for run in states]
    )


class Real(Tracker):
    """The sensitivity itself: what an omniscient observer would say."""

    def perturbed(self, states: Floats, norms: Floats, bound: float) -> Floats:
        return np.repeat(real_sensitivity(states)[:, None], states.shape[1], 1)


class Paper(Tracker):
    """Equation 22, or the paper's published code: from the network's maximum."""

    def __init__(self, constant: float, decay: float, *, published: bool) -> None:
        self._step = PaperEstimate(constant, decay, 1.0)
        self._published = published
        self._start: Floats | None = None
        self._last: Floats = np.zeros(0)
        self._noises: Floats = np.zeros(0)

    def begin(self, norms: Floats, bound: float, *, equal: bool) -> None:
        """The start counts with its norm, but not in the published code."""
        self._start = np.zeros_like(norms) if self._published else norms

    def perturbed(self, states: Floats, norms: Floats, bound: float) -> Floats:
        if self._start is not None:
            self._last = self._step.first(norms, self._start)
        else:
            last = self._last
            if self._published:
                last = np.broadcast_to(last.max(1, keepdims=True), last.shape)
            self._last = self._step.after(last, norms, self._noises)
        self._start = None
        return self._last

    def sent(
        self, noises: Floats, scale: Floats, matrix: Floats, *, synchronises: bool
    ) -> None:
        """gamma_n ||n_i||_1 is the norm of the noise that was added."""
        self._noises = noises
        if synchronises:
            self._start = np.zeros_like(noises)


class Certified(Tracker):
    """`Spread` of each run, from the norms that all nodes broadcast."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._spreads: list[Spread] = []

    def begin(self, norms: Floats, bound: float, *, equal: bool) -> None:
        """Equal states have no spread, however large."""
        self._spreads = [
            Spread.equal(len(run), float(run.max()), window=self._window)
            if equal
            else Spread.start(run, window=self._window)
            for run in norms
        ]

    def perturbed(self, states: Floats, norms: Floats, bound: float) -> Floats:
        self._spreads = [
            spread.added(run) for spread, run in zip(self._spreads, norms, strict=True)
        ]
        bounds = np.array([spread.bound for spread in self._spreads])
        return np.repeat(bounds[:, None], norms.shape[1], 1)

    def sent(
        self, noises: Floats, scale: Floats, matrix: Floats, *, synchronises: bool
    ) -> None:
        mixed = [
            spread.added(run).mixed(matrix)
            for spread, run in zip(self._spreads, noises, strict=True)
        ]
        self._spreads = [s.synchronised() if synchronises else s for s in mixed]


class DataIndependent(Tracker):
    """`Spread` from bounds that everyone knows: the same number in every run.

    ``quantile`` bounds a node's noise over its scale; where that fails, so does this.
    Never below twice the bound of one perturbation. Where mixing ``keeps_mean`` (doubly
    stochastic weights), what equal states have in common does not count.
    """

    def __init__(self, window: int, quantile: float, *, keeps_mean: bool) -> None:
        self._window = window
        self._quantile = quantile
        self._keeps_mean = keeps_mean
        self._spread: Spread | None = None

    def begin(self, norms: Floats, bound: float, *, equal: bool) -> None:
        nodes = norms.shape[1]
        self._spread = (
            self._equal(nodes, bound)
            if equal
            else Spread.start(np.full(nodes, bound), window=self._window)
        )

    def perturbed(self, states: Floats, norms: Floats, bound: float) -> Floats:
        assert self._spread is not None
        self._spread = self._spread.added(bound)
        return np.full(norms.shape, max(self._spread.bound, 2 * bound))

    def sent(
        self, noises: Floats, scale: Floats, matrix: Floats, *, synchronises: bool
    ) -> None:
        assert self._spread is not None
        mixed = self._spread.added(float(scale[0]) * self._quantile).mixed(matrix)
        self._spread = (
            self._equal(mixed.nodes, mixed.largest_norm) if synchronises else mixed
        )

    def _equal(self, nodes: int, norm: float) -> Spread:
        norm = 0.0 if self._keeps_mean else norm
        return Spread.equal(nodes, norm, window=self._window)


class Perturbation(Tracker):
    """Twice the bound of what a node adds: how far one record can move a message."""

    def __init__(self) -> None:
        self._fresh = 0.0

    def begin(self, norms: Floats, bound: float, *, equal: bool) -> None:
        """Count a start that is private as what the first message adds."""
        self._fresh = 0.0 if equal else bound

    def perturbed(self, states: Floats, norms: Floats, bound: float) -> Floats:
        said = np.full(norms.shape, 2 * (bound + self._fresh))
        self._fresh = 0.0
        return said


def noise_quantile(dims: int, nodes: int, rounds: int, failure: float) -> float:
    """Bound that no node's ||n||_1 / scale exceeds in any round, but for ``failure``.

    The norm of ``dims`` independent Laplace variables of scale 1 is Gamma(dims, 1).
    """
    from scipy import special

    each = failure / (rounds * nodes)
    # For scipy's inverse, whose relative error was seen below 1e-12.
    return float(special.gammainccinv(max(dims, 1), each)) * (1 + 1e-9)
