"""Likelihood ratios and matched filters of the canary in one noisy gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from privaudit.accounting.factorization import turn_norm, turn_rows
from privaudit.auditing.attacks.canaries import CANARY_NODE, reference_of
from privaudit.auditing.attacks.contract import Differentiator, Known, Scene
from trainers.data import Dataset
from trainers.oracles.oracle import Mechanism, ReleaseObserver, clip_weights


def log_ratio(x: Tensor, shift: float, rate: float, *, replaces: bool) -> Tensor:
    """Log of how much likelier ``x`` is if the canary is there, elementwise.

    N(0, 1) without it, with it N(shift, 1) where its coin of ``rate`` falls; if it
    ``replaces`` a record of the opposite gradient, against -shift.
    """

    def ratio(sign: float) -> Tensor:
        return mixture_ratio(sign * shift * x - shift * shift / 2, rate)

    return ratio(1.0) - ratio(-1.0) if replaces else ratio(1.0)


def mixed_ratio(
    x: Tensor, known: Tensor, shift: Tensor, rate: float, *, replaces: bool
) -> Tensor:
    """As `log_ratio`, of releases whose noises are seen through a projection.

    ``x``: (runs, releases, canaries); ``known``: P, (releases, releases): x ~ N(0, P),
    or N(P D b, P) with ``shift`` on D's diagonal and coins b, over all of which is
    summed.
    """
    releases = len(shift)
    coins = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * releases).double()
    moved = coins.view(-1, releases) * shift  # (patterns, releases)
    found = coins.view(-1, releases).mean(1) * releases  # how often it is drawn
    chance = torch.special.xlogy(found, torch.tensor(rate))
    chance = chance + torch.special.xlogy(releases - found, torch.tensor(1 - rate))
    size = torch.einsum("bt,ts,bs->b", moved, known, moved) / 2
    along = torch.einsum("bt,rtc->brc", moved, x)
    fixed = (chance - size)[:, None, None]
    ratio = torch.logsumexp(fixed + along, 0)
    return ratio - torch.logsumexp(fixed - along, 0) if replaces else ratio


def mixture_ratio(exponent: Tensor, rate: float) -> Tensor:
    """log(1 - q + q exp(a)), elementwise."""
    if rate >= 1:
        return exponent
    there = exponent + math.log(rate)
    return torch.logaddexp(there, torch.full_like(there, math.log1p(-rate)))


def of_canary_node(
    at: Tensor, gradient: Tensor, nodes: Sequence[int]
) -> tuple[Tensor, Tensor] | None:
    """Models and release, (runs, dims), of the canary's among ``nodes``; or None."""
    if CANARY_NODE not in nodes:
        return None
    column = list(nodes).index(CANARY_NODE)
    return at[:, column], gradient[:, column]


def clipped_sum(
    scene: Known, gradients: Differentiator, node: int, index: int, at: Tensor
) -> Tensor:
    """(runs, dims): sum of a node's clipped gradients at ``at``, without a canary."""
    clip, _ = scene.mechanism.at(index)
    own, runs = scene.problem.shares[node], len(at)
    return gradients.weighted_sum(
        at,
        own.inputs.expand(runs, *own.inputs.shape),
        own.targets.expand(runs, *own.targets.shape),
        lambda norms: clip_weights(norms, clip),
    )


def expected_projection(
    scene: Scene, gradients: Differentiator, node: int, index: int, at: Tensor
) -> Tensor:
    """(runs, canaries): mean of a node's clipped sum along crafted ones, none there."""
    canary = scene.canary
    if scene.silent:
        return torch.zeros(len(at), len(canary), dtype=torch.float64)
    total = clipped_sum(scene, gradients, node, index, at)
    return scene.rates[node] / scene.mechanism.parts * canary.along(total)


class Turns:
    """Shows a watcher one release for each turn of the canary's part.

    Of noise that releases share: y = C g has independent noise, and a record moves y_t
    + j by c_j times its gradient. So sum_j c_j y_t+j / |c|^2 has that gradient and
    noise over |c|: all that its turn tells of it. By buffers c is how far a gradient
    that stays the same moves rows. Turns that end early are left out.
    """

    def __init__(self, to: ReleaseObserver, mechanism: Mechanism) -> None:
        self._to, self._mechanism = to, mechanism
        self._last: list[Tensor] = []

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        """Add a release to its turn, and show that when it is over."""
        how, shares = self._mechanism, self._mechanism.strategy
        turn, back = divmod(index, how.parts)
        released, norm = gradient.double(), how.spread
        if how.buffers:
            norm = turn_norm(how.buffers, how.parts, turn)
            if back == 0:
                self._rows = turn_rows(how.buffers, how.parts, turn + 1)[turn]
            shares, held = self._rows.tolist(), self._last or [0.0] * len(how.buffers)
            pairs = list(zip(how.buffers, held, strict=True))
            self._last = [decay * (s + released) for (_, decay), s in pairs]
            released = released + sum(mass * s for (mass, _), s in pairs)
        else:
            self._last = [released, *self._last][: len(shares)]
        if back == 0:
            self._first, self._sum = at.clone(), torch.zeros_like(released)
        if back >= len(shares):
            return
        if not how.summed and not how.buffers:
            released = sum(
                share * one for share, one in zip(shares, self._last, strict=False)
            )
        self._sum += shares[back] * released / (norm * how.spread)
        if back == len(shares) - 1:
            self._to.release(index - back, self._first, self._sum, nodes)


def by_turns(to: ReleaseObserver, mechanism: Mechanism) -> tuple[ReleaseObserver]:
    """Whoever is shown releases for ``to``: itself, where they share no noise."""
    return (to if mechanism.parts == 1 else Turns(to, mechanism),)


class MatchedFilter:
    """Score of a noisy gradient for an ordinary canary at its node.

    What the node's known other records give on average is taken off, and directions
    weighed by how much batch and noise blur them: t = g' S^-1 (x - E x), S = q (1 - q)
    G'G + s^2 I over their clipped gradients G; log(1 - q + q exp(t - g' S^-1 g / 2)) is
    the likelihood ratio were that normal. s is estimated from the part of x that no
    record can reach, so that noise which is not there does not blind the filter.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._reference = reference_of(scene.problem)

    def __call__(self, index: int, at: Tensor, gradient: Tensor) -> Tensor:
        """(runs,): evidence of the ``index``-th ``gradient``, in units of its noise."""
        scene = self.scene
        clip, _ = scene.mechanism.at(index)
        own, rate = scene.problem.shares[CANARY_NODE], scene.rate
        canary = self._clipped(at, scene.canary.record, clip)[:, 0]  # (runs, dims)
        others = self._clipped(at, own, clip)  # (runs, records, dims)
        released = gradient.double() * scene.divisors[CANARY_NODE]
        surprise = released - rate / scene.mechanism.parts * others.sum(1)

        gram = others @ others.mT
        floor = 1e-9 * gram.diagonal(dim1=1, dim2=2).mean(1) + 1e-12
        eye = torch.eye(gram.shape[1], dtype=gram.dtype)

        def outside(vector: Tensor, ridge: Tensor) -> Tensor:
            inner = torch.linalg.solve(
                gram + ridge[:, None, None] * eye,
                (others @ vector[:, :, None]),
            )
            return vector - (others.mT @ inner)[:, :, 0]

        free = max(1, at.shape[1] - len(own))
        noise = outside(surprise, floor).square().sum(1) / free  # variance, (runs,)
        ridge = noise / max(rate * (1 - rate), 1e-12) + floor
        filtered = outside(canary, ridge)
        found = (filtered * surprise).sum(1) / (noise + floor)
        size = (filtered * canary).sum(1) / (noise + floor)
        return mixture_ratio(found - size / 2, rate)

    def _clipped(self, theta: Tensor, data: Dataset, clip: float) -> Tensor:
        runs = len(theta)
        gradients = self._reference.gradients(
            theta,
            data.inputs.expand(runs, *data.inputs.shape),
            data.targets.expand(runs, *data.targets.shape),
        ).double()
        weights = clip_weights(torch.linalg.vector_norm(gradients, dim=2), clip)
        return gradients * weights[:, :, None]
