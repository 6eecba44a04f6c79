"""Bounds on the spread of push-sum nodes' states: the sensitivity that DPPS needs.

Node i holds s_i. In each round it adds a perturbation eps_i, sends s_i + gamma_n n_i
with Laplace noise n_i of scale S / b, and the sent states are mixed by W. A query asks
one node; neighbouring queries ask another one. The sensitivity of a round is therefore
max_ij ||s_i + eps_i - s_j - eps_j||_1, before the round's noise.

Three answers, by what they are worth:

*claimed*: `PaperEstimate`, equation 22 of the DPPS paper, with constants C' and
lambda chosen by hand. `least_constant` computes the C' that a schedule of mixing
matrices needs. It is never below 1: two nodes with opposite perturbations of norm e are
2 e apart at once, and the estimate says 2 C' e. The paper's 0.78 and 0.95 are too
little on every graph.

*certified, given the norms*: `Spread`, from the mixing matrices and a bound on what
each node added in each round.

*certified, from no data*: `data_independent_sensitivity`, from the clip norm and a
bound on the noise that holds but for a stated probability.

The first two have nodes broadcast norms. Where perturbations are always clipped, their
norm is known, and the broadcast gives away ||n_i||_1; a message and the norm of its
noise tell two candidate states apart with certainty. No epsilon covers that. The third
broadcasts nothing.

References
----------
"Differentially private perturbed push-sum protocol and its application in non-convex
optimization", equations 11 and 22, and Theorem 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privaudit.files.arguments import Checked
from privaudit.task_settings import Inside, NotNegative, Positive

Floats = NDArray[np.float64]

_UNIT = 2.0**-53


@dataclasses.dataclass(frozen=True, slots=True)
class PaperEstimate(Checked):
    """One step of equation 22, of C', lambda and gamma_n, where noise depends on S."""

    constant: Positive
    decay: Inside
    noise_rate: NotNegative

    def first(self, perturbation: ArrayLike, start: ArrayLike) -> Floats:
        """Sensitivity S_i(0); with ``start`` 0, that after states were set equal."""
        return 2 * self.constant * (_norms(start) + _norms(perturbation))

    def after(
        self, last: ArrayLike, perturbation: ArrayLike, noise: ArrayLike
    ) -> Floats:
        """S_i(t) from S_i(t-1), ||eps_i(t)||_1 and ||n_i(t-1)||_1."""
        carried = self.decay * self.noise_rate * _norms(noise)
        added = 2 * self.constant * (_norms(perturbation) + carried)
        return self.decay * _norms(last) + added


def least_constant(matrices: Sequence[ArrayLike], decay: float) -> float:
    """Least C' for which equation 11 holds for all perturbations on this schedule.

    With Phi(t, k) = W(t-1) ... W(k), nodes i and j are at most sum_kl |Phi_il - Phi_jl|
    ||u_l(k)|| apart, attained by aligned u, while the estimate is the largest of
    2 C' sum_k lambda^(t-k) ||u_l(k)|| over l. The worst u puts each node's whole share
    into one round, which gives

        C' = max_t max_ij 1/2 sum_l max_k |Phi_il(t, k) - Phi_jl(t, k)| lambda^(k-t),

    enough and necessary. At k = t, Phi = I, the sum is 2: C' is at least 1.

    ``matrices``: W(0), ..., W(T-1) between two rounds in which states are set equal;
    shape (nodes, nodes), entry ij the weight that i gives to what j sends. ``decay``:
    lambda in (0, 1).
    """
    if not 0 < decay < 1:
        raise ValueError(f"the decay lambda must be in (0, 1), got {decay}")
    checked = [_mixing(matrix) for matrix in matrices]
    if not checked:
        return 1.0
    nodes = len(checked[0])
    products: list[Floats] = [np.eye(nodes)]
    worst = 1.0 if nodes > 1 else 0.0
    for matrix in checked:
        products = [matrix @ product for product in products] + [np.eye(nodes)]
        # (rounds, nodes, nodes), the oldest first
        stack = np.array(products)
        ages = np.arange(len(products) - 1, -1, -1)
        with np.errstate(over="ignore"):
            weights = decay ** (-ages.astype(np.float64))
        for i in range(nodes):
            gaps = np.abs(stack[:, i, None, :] - stack) * weights[:, None, None]
            worst = max(worst, float(gaps.max(axis=0).sum(axis=-1).max()) / 2)
    return worst * (1 + 1e-12)


@dataclasses.dataclass(frozen=True, slots=True)
class _Past:
    """A state that was: what was known of it, and what mixed it since."""

    product: Floats  # (nodes, nodes)
    mixes: int
    spread: float
    largest_norm: float

    def mixed(self, weights: Floats) -> _Past:
        return dataclasses.replace(
            self, product=weights @ self.product, mixes=self.mixes + 1
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """A certified bound on max_ij ||s_i - s_j||_1, given a bound on all that was added.

    With Phi(t, k) the product of the mixing matrices between rounds k and t, and u_l(k)
    what node l added in round k,

        s_i - s_j = sum_kl (Phi_il(t, k) - Phi_jl(t, k)) u_l(k).

    The sum over the latest ``window`` rounds is bounded term by term. All before them
    is one state, whose spread D and largest norm R were bounded when it was current;
    with p and m the positive and the negative part of Phi_i - Phi_j summed, it adds at
    most min(p, m) D + |p - m| R: pair off a mass min(p, m), each pair at most D apart.
    For doubly stochastic W, p = m, and that is the Dobrushin coefficient times D; for
    column stochastic ones the norms count, and need not decay.

    A value: every method returns a new one. Start with `start`.
    """

    nodes: int
    window: int
    base: _Past
    rounds: tuple[tuple[_Past, Floats], ...]  # and the norms added, shape (nodes,)

    @classmethod
    def start(cls, norms: ArrayLike, *, window: int = 64) -> Spread:
        """States with ||s_i||_1 <= ``norms``, (nodes,); ``window`` rounds apart."""
        norms = _norms(norms, 1)
        return cls.equal(len(norms), 0.0, window=window).added(norms)

    @classmethod
    def equal(cls, nodes: int, norm: float, *, window: int = 64) -> Spread:
        """Equal states of L1 norm at most ``norm``; ``window`` as `start`."""
        if window < 1:
            raise ValueError(f"a window must be >= 1 round, got {window}")
        return cls(nodes, window, _Past(np.eye(nodes), 0, 0.0, float(_norms(norm))), ())

    @property
    def bound(self) -> float:
        """At least max_ij ||s_i - s_j||_1 now, rounding included."""
        return self._bounds()[0]

    @property
    def largest_norm(self) -> float:
        """At least max_i ||s_i||_1 now."""
        return self._bounds()[1]

    def added(self, norms: ArrayLike) -> Spread:
        """After node i added a vector of L1 norm at most ``norms[i]``; one for all."""
        norms = np.broadcast_to(_norms(norms), (self.nodes,))
        rounds = self.rounds
        if rounds and rounds[-1][0].mixes == 0:  # nothing was mixed since
            norms, rounds = norms + rounds[-1][1], rounds[:-1]
        past = _Past(np.eye(self.nodes), 0, 0.0, 0.0)
        fresh = dataclasses.replace(self, rounds=(*rounds, (past, norms)))
        spread, largest = fresh._bounds()
        past = dataclasses.replace(past, spread=spread, largest_norm=largest)
        rounds = (*rounds, (past, norms))
        if len(rounds) <= self.window:
            return dataclasses.replace(self, rounds=rounds)
        return dataclasses.replace(self, base=rounds[0][0], rounds=rounds[1:])

    def mixed(self, matrix: ArrayLike) -> Spread:
        """After s_i became sum_j W_ij s_j, shape (nodes, nodes), W_ij >= 0."""
        weights = _mixing(matrix)
        if len(weights) != self.nodes:
            raise ValueError(
                f"the mixing matrix is for {len(weights)} nodes, there are {self.nodes}"
            )
        return dataclasses.replace(
            self,
            base=self.base.mixed(weights),
            rounds=tuple((past.mixed(weights), norms) for past, norms in self.rounds),
        )

    def synchronised(self) -> Spread:
        """After all states were set to their average, or to any one of them."""
        return self.equal(self.nodes, self.largest_norm, window=self.window)

    def _bounds(self) -> tuple[float, float]:
        from scipy.spatial import distance

        product, largest = self.base.product, self.base.largest_norm
        gaps = product[:, None, :] - product  # (nodes, nodes, nodes)
        above = np.maximum(gaps, 0).sum(-1)
        below = np.maximum(-gaps, 0).sum(-1)
        pairs = (
            np.minimum(above, below) * self.base.spread
            + np.abs(above - below) * largest
        )
        totals = product.sum(1) * largest
        if self.rounds:
            # (nodes, rounds * nodes): cityblock distances are the sums over k and l
            terms = np.hstack([past.product * norms for past, norms in self.rounds])
            pairs = pairs + distance.cdist(terms, terms, "cityblock")
            totals = totals + terms.sum(1)
        # An entry of a product of m non-negative matrices has a relative error of at
        # most m (nodes + 2) roundings; the differences above have it of the norms.
        terms_added = self.nodes * (len(self.rounds) + 1)
        rounding = 8 * _UNIT * ((self.nodes + 2) * (self.base.mixes + 1) + terms_added)
        norm = float(totals.max()) * (1 + rounding)
        return float(pairs.max()) * (1 + rounding) + rounding * norm, norm


def data_independent_sensitivity(
    # W(0), ..., W(T-1), shape (nodes, nodes) each; T is the number of rounds
    matrices: Sequence[ArrayLike],
    *,
    perturbation: float,  # bound on ||eps_i||_1: gamma_s times the clip norm, >= 0
    dimension: int,  # coordinates of a shared state, >= 1
    budget: float,  # b > 0: the noise has scale S(t) / b
    noise_rate: float,  # gamma_n >= 0
    failure: float,  # in (0, 1): the probability that any noise exceeds its bound
    # bound on ||s_i(0)||_1 for states that differ; equal ones may have 0, whatever
    # they are, if W is doubly stochastic
    start: float = 0.0,
    # states are set equal before every round that is a multiple of it
    sync_interval: int | None = None,
) -> Floats:
    """S(t) for every round, from no data and no broadcast: certified, (rounds,).

    `Spread` with ||eps_i||_1 at its bound, and noise's norm at one that a Gamma exceeds
    with probability ``failure`` / (rounds nodes): ``failure`` is simply added to delta.
    """
    from scipy import special

    if not 0 < failure < 1:
        raise ValueError(f"failure must be in (0, 1), got {failure}")
    if not budget > 0 or dimension < 1:
        raise ValueError(
            f"b must be > 0 and dimension >= 1, got {budget} and {dimension}"
        )
    PaperEstimate(1.0, 0.5, noise_rate)  # checks the rate
    checked = [_mixing(matrix) for matrix in matrices]
    if not checked:
        return np.zeros(0)
    nodes = len(checked[0])
    # The norm over the scale is Gamma(dimension, 1). The last factor is for scipy's
    # inverse, whose relative error was seen below 1e-12.
    each = failure / (len(checked) * nodes)
    quantile = float(special.gammainccinv(dimension, each)) * (1 + 1e-9)
    spread = Spread.start(np.full(nodes, float(start)))
    found = []
    for t, matrix in enumerate(checked):
        if sync_interval is not None and t and t % sync_interval == 0:
            spread = spread.synchronised()
        spread = spread.added(perturbation)
        found.append(spread.bound)
        spread = spread.added(noise_rate * found[-1] / budget * quantile).mixed(matrix)
    return np.array(found)


def _norms(value: ArrayLike, dimensions: int | None = None) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    if not ((array >= 0) & (array < np.inf)).all():
        raise ValueError("L1 norms must be finite numbers >= 0, got one that is not")
    if dimensions is not None and array.ndim != dimensions:
        raise ValueError(
            f"expected an array of {dimensions} dimensions, got {array.ndim}"
        )
    return array


def _mixing(matrix: ArrayLike) -> Floats:
    weights = np.asarray(matrix, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise ValueError(f"a mixing matrix must be square, got {weights.shape}")
    if not ((weights >= 0) & (weights < np.inf)).all():
        raise ValueError("the weights of a mixing matrix must be finite and >= 0")
    return weights
