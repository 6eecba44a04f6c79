"""Likelihood ratios and matched filters of the canary in one noisy gradient.

And the white-box adversary of accounts, who sums them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from privaudit.accounting.factorization import Buffers, turn_norm, turn_rows
from privaudit.auditing.attacks.canaries import CANARY_NODE, reference_of, repeated
from privaudit.auditing.attacks.contract import Adversary, Scene, Watcher
from trainers.data import Dataset
from trainers.gradients.differentiator import Differentiator
from trainers.oracles.oracle import Mechanism, ReleaseObserver, clip_weights

_MOST_PARTS = 64


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


def clipped_sum(
    scene: Scene, gradients: Differentiator, node: int, index: int, at: Tensor
) -> Tensor:
    """(runs, dims): sum of a node's clipped gradients at ``at``, without a canary."""
    clip, _ = scene.mechanism.at(index)
    own = repeated(scene.problem.shares[node], len(at))
    return gradients.weighted_sum(at, *own, lambda norms: clip_weights(norms, clip))


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
    """Shows a watcher one release for each turn of the canary's part, or of any part.

    Of noise that releases share: y = C g has independent noise, and a record moves y_t
    + j by c_j times its gradient. So sum_j c_j y_t+j / |c|^2 has that gradient and
    noise over |c|: all that its turn tells of it. By buffers c is how far a gradient
    that stays the same moves rows. Turns that end early are left out.
    """

    def __init__(
        self, to: ReleaseObserver, mechanism: Mechanism, *, secret: bool
    ) -> None:
        self._to, self._mechanism, self._secret = to, mechanism, secret
        self._last: list[Tensor] = []
        # first step of each turn, where that is, and its sum so far
        self._open: list[tuple[int, Tensor, Tensor]] = []

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        """Add a release to turns that it is in, and show those that are over."""
        parts, row = self._mechanism.parts, self._row(gradient.double())
        if self._secret or index % parts == 0:
            self._open.append((index, at.clone(), torch.zeros_like(row)))
        before, self._open = self._open, []
        for start, first, total in before:
            shares, norm = self._turn(start // parts)
            total += shares[index - start] * row / (norm * self._mechanism.spread)
            if index - start < len(shares) - 1:
                self._open.append((start, first, total))
            else:
                self._to.release(start, first, total, nodes)

    def _turn(self, turn: int) -> tuple[Sequence[float], float]:
        """Moves of the rows of a turn by a record, and their norm."""
        how = self._mechanism
        if not how.buffers:
            return how.strategy, how.spread
        rows = _rows(how.buffers, how.parts, turn)
        return rows, turn_norm(how.buffers, how.parts, turn)

    def _row(self, released: Tensor) -> Tensor:
        """Row of C g: what is released, and what shares noise with it."""
        how = self._mechanism
        if how.buffers:
            held = self._last or [torch.zeros_like(released)] * len(how.buffers)
            pairs = list(zip(how.buffers, held, strict=True))
            self._last = [decay * (s + released) for (_, decay), s in pairs]
            return released + sum(mass * s for (mass, _), s in pairs)
        self._last = [released, *self._last][: len(how.strategy)]
        if how.summed:
            return released
        row = torch.zeros_like(released)
        for share, one in zip(how.strategy, self._last, strict=False):
            row += share * one
        return row


@functools.lru_cache(maxsize=16)
def _rows(buffers: Buffers, parts: int, turn: int) -> tuple[float, ...]:
    return tuple(turn_rows(buffers, parts, turn + 1)[turn].tolist())


class TurnScores:
    """Scores of canaries by each part that they may be in, of which watchers hold."""

    def __init__(self, mechanism: Mechanism, *, secret: bool):
        self._mechanism = mechanism
        # Places of turns take memory; of very many parts no attack learns much.
        self._secret = secret and mechanism.parts <= _MOST_PARTS

    def none(self, *shape: int) -> Tensor:
        """Scores before the first release: (parts, *shape)."""
        often = self._mechanism.parts if self._secret else 1
        return torch.zeros(often, *shape, dtype=torch.float64)

    def part(self, index: int) -> int:
        """Row of scores that the turn which begins at release ``index`` adds to."""
        return index % self._mechanism.parts if self._secret else 0

    def moved(self, index: int) -> float:
        """Move of the turn that begins there by a record, over the first one's."""
        return self._mechanism.spread_of(index) / self._mechanism.spread

    def mean(self, scores: Tensor) -> Tensor:
        """Log of the mean likelihood ratio of all parts."""
        return torch.logsumexp(scores, 0) - math.log(len(scores))

    def observers(self, to: ReleaseObserver) -> tuple[ReleaseObserver]:
        """Whoever is shown releases for ``to``: itself, where they share no noise."""
        if self._mechanism.parts == 1:
            return (to,)
        return (Turns(to, self._mechanism, secret=self._secret),)


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
                gram + ridge[:, None, None] * eye, (others @ vector[:, :, None])
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
        of_runs = repeated(data, len(theta))
        gradients = self._reference.gradients(theta, *of_runs).double()
        weights = clip_weights(torch.linalg.vector_norm(gradients, dim=2), clip)
        return gradients * weights[:, :, None]


class NoisyGradients(Adversary):
    """All that the canary's node releases, with all other records known."""

    name = "noisy-gradients"
    reads_models = False
    sees = "all noisy gradients of its node, with all other records known"

    def watch(self, runs: int, gradients: Differentiator) -> Watcher:
        return _Watcher(self.scene, gradients, runs)


class _Watcher(Watcher):
    def __init__(self, scene: Scene, gradients: Differentiator, runs: int) -> None:
        self._scene = scene
        self._gradients = gradients
        secret = scene.mechanism.is_secret(scene.rate) and not scene.replaces
        self._turns = TurnScores(scene.mechanism, secret=secret)
        self._total = self._turns.none(runs, len(scene.canary))
        self._filter = (
            None if scene.canary.direction is not None else MatchedFilter(scene)
        )

    @property
    def release_observers(self) -> tuple[ReleaseObserver, ...]:
        return self._turns.observers(self)

    def release(
        self, index: int, at: Tensor, gradient: Tensor, nodes: Sequence[int]
    ) -> None:
        """Add this release's evidence to the running score."""
        if CANARY_NODE not in nodes:
            return
        column = list(nodes).index(CANARY_NODE)
        at, gradient = at[:, column], gradient[:, column]
        score = self._total[self._turns.part(index)]
        if self._filter is not None:
            score += self._filter(index, at, gradient)[:, None]
            return
        scene = self._scene
        clip, noise = scene.scales(index)
        along = scene.canary.along(gradient) * scene.divisors[CANARY_NODE]
        along -= expected_projection(scene, self._gradients, CANARY_NODE, index, at)
        shift = clip * self._turns.moved(index) / noise
        score += log_ratio(along / noise, shift, scene.rate, replaces=scene.replaces)

    def score(self, models: Tensor) -> Tensor:
        return self._turns.mean(self._total)
