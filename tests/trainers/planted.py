"""Privacy bugs that were met in the field or are easily made, to be caught.

Oracles go where `trainers.oracles.oracle.Oracle` goes; what they write in the ledger is
what the right one writes, so that no account knows of the bug.
"""

import dataclasses

import torch

from trainers.algorithms.dinno import Dinno
from trainers.algorithms.dsgt import Dsgt, State
from trainers.network.mixing import Mixing
from trainers.oracles.oracle import Oracle


class _OfWholeBatches:
    """A differentiator that clips the sum of a batch, as if that were one sample."""

    def __init__(self, right):
        self._right = right

    def __getattr__(self, name):
        return getattr(self._right, name)

    def weighted_sum(self, at, inputs, targets, weigh, slack=0.0):
        total = self._right.weighted_sum(
            at, inputs, targets, lambda norms: weigh.mask.to(norms)
        )
        norms = total.norm(dim=1, keepdim=True)
        return total * (weigh.bound / norms.clamp_min(weigh.bound))


class ClipsPerBatch(Oracle):
    """The sum of a batch is clipped, not each sample's gradient: moved by up to 2 C."""

    def __init__(self, data, differentiator, *given, **more):
        super().__init__(data, _OfWholeBatches(differentiator), *given, **more)


class FloatNoise(Oracle):
    """Noise in floating point, added to sums that are on no grid (Mironov 2012)."""

    def _noisy(self, total, nodes, deviation, step):
        return total.add_(self._draw_noise(total, nodes), alpha=deviation)

    def _draw_noise(self, like, nodes):
        """Standard normal, (runs, nodes, dims)."""
        who, shape = [self._numbers[node] for node in nodes], (len(like), like.shape[2])
        index = self._releases[nodes[0]]
        return self._streams.unit_noise("noise", who, index, shape).to(like)


class NoiseDividedTwice(FloatNoise):
    """The noise is divided by the batch size once more."""

    def _draw_noise(self, like, nodes):
        return super()._draw_noise(like, nodes) / self.mechanism.batch_size


class NoiseMissingAtNode(FloatNoise):
    """All nodes but one add noise."""

    def _draw_noise(self, like, nodes):
        noise = super()._draw_noise(like, nodes)
        noise[:, 0] = 0
        return noise


class EqualNoiseTwice(FloatNoise):
    """Every second release has the noise of the one before: their difference none."""

    def _draw_noise(self, like, nodes):
        if self._releases[nodes[0]] % 2 == 0:
            self._kept = super()._draw_noise(like, nodes)
        return self._kept.clone()


class FiveBatches(FloatNoise):
    """Five batches are summed under one noise, and one of them is accounted.

    So did the published code of Bayrooti et al. 2023 for CIFAR-100.
    """

    def gradient(self, at, nodes=None):
        observers, self.observers = self.observers, ()
        total = super().gradient(at, nodes)
        right = self._draw_noise, self._recorder, list(self._releases)
        self._draw_noise = lambda like, nodes: torch.zeros_like(like)
        self._recorder = type(self._recorder)(self.nodes)
        for _ in range(4):
            total = total + super().gradient(at, nodes)
        self._draw_noise, self._recorder, self._releases = right
        self.observers = observers
        for observer in observers:
            index = self._releases[0] - 1
            observer.release(index, at, total, nodes or range(self.nodes))
        return total


class RemembersNoise(FloatNoise):
    """Keeps what it added last, for whoever looks: the bug is in who does."""

    last = 0.0
    _drawn = 0.0

    def gradient(self, at, nodes=None):
        index = self._releases[0]
        gradient = super().gradient(at, nodes)
        clip, multiplier = self.mechanism.at(index)
        scale = multiplier * clip / self.mechanism.batch_size
        self.last = torch.as_tensor(self._drawn * scale).to(at.dtype)
        return gradient

    def _draw_noise(self, like, nodes):
        self._drawn = super()._draw_noise(like, nodes)
        return self._drawn


class CountsOnce(Oracle):
    """Of DiNNO's ``inner`` releases a round, the first is accounted."""

    inner = 3

    def gradient(self, at, nodes=None):
        recorder = self._recorder
        if self._releases[0] % self.inner:
            self._recorder = type(recorder)(self.nodes)
        gradient = super().gradient(at, nodes)
        self._recorder = recorder
        return gradient


@dataclasses.dataclass(frozen=True, slots=True)
class TracksTheExact(Dsgt):
    """The tracker takes the gradient without noise; `RemembersNoise` gives it."""

    def round(self, state, inbox, private, k):
        tracker = inbox["tracker"]
        theta = inbox["theta"] - self.step_size(k) * tracker
        exact = private.gradient(at=theta) - getattr(private, "last", 0.0)
        return State(theta=theta, tracker=exact + (tracker - state.last), last=exact)


class MixesInPlace(Mixing):
    """Agent after agent, each from what those before it already have.

    So did the published code of Bayrooti et al. 2023.
    """

    def __call__(self, sent, k):
        mixed = sent.clone()
        weights = torch.tensor(self.at(k), dtype=sent.dtype)
        for node in range(self.nodes):
            mixed[:, node] = torch.einsum("j,rjd->rd", weights[node], mixed)
        return mixed


class MixesOverWhatWasSent(MixesInPlace):
    """As that, and in the messages themselves."""

    def __call__(self, sent, k):
        return sent.copy_(super().__call__(sent, k))


DINNO = Dinno(step_size=lambda k: 0.1, inner_steps=CountsOnce.inner)
