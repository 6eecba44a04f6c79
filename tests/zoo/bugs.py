"""Bugs in oracles, by name; the ledger is what the right oracle writes.

Beside those of `tests.trainers.planted`, which are here by name too.
"""

import math

import torch

from tests.trainers import planted
from tests.trainers.planted import FloatNoise
from tests.zoo import old_generator
from tests.zoo.attacks import Attack
from tests.zoo.frame import Bug
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Oracle
from trainers.oracles.sampler import Sampler


class NodesSeededAlike(FloatNoise):
    """All nodes draw noise from node 0's stream."""

    def _draw_noise(self, like, nodes):
        index, shape = self._releases[nodes[0]], (len(like), like.shape[2])
        drawn = [self._streams.unit_noise("noise", [0], index, shape) for _ in nodes]
        return torch.cat(drawn, 1).to(like)


class RoundsSeededAlike(FloatNoise):
    """Every round's noise is that of the first."""

    def _draw_noise(self, like, nodes):
        who, shape = [self._numbers[node] for node in nodes], (len(like), like.shape[2])
        return self._streams.unit_noise("noise", who, 0, shape).to(like)


class SeedOf32Bits(FloatNoise):
    """However long the key, noise comes from few bits of it, as in version 0.1.0."""

    bits = old_generator.BITS

    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        seed = int.from_bytes(self._streams.key.derive(b"seed", b""))
        self._generators = [
            old_generator.generator(seed, node, bits=self.bits)
            for node in self._numbers
        ]

    def _draw_noise(self, like, nodes):
        shape = (len(like), like.shape[2])
        drawn = [
            old_generator.standard_normal(shape, self._generators[node])
            for node in nodes
        ]
        return torch.stack(drawn, 1).to(like)


class SeedOf12Bits(SeedOf32Bits):
    """As that, with so few keys that a probe can try all."""

    bits = 12


class DefaultSeed(Oracle):
    """All noise is that of seed 0, whatever the run's key."""

    def _noisy(self, total, nodes, deviation, step):
        secret, self._streams = self._streams, Streams(0, self._streams.first)
        total = super()._noisy(total, nodes, deviation, step)
        self._streams = secret
        return total


class CoinsOfUniforms(Sampler):
    """Its coins are made of uniform numbers that others may ask for as well."""

    _WIDTH = 1024  # of records, at most

    def drawn(self, nodes, index):
        shape = (self.runs, self._WIDTH)
        who = [self.numbers[node] for node in nodes]
        return self.streams.uniforms("sampling", who, index, shape)

    def coins(self, nodes, index, records, rate):
        return self.drawn(nodes, index)[..., :records] < rate


class SamplingSharesNoise(FloatNoise):
    """Noise is made of the uniform numbers that the coins of a batch were made of."""

    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self._sampler.__class__ = CoinsOfUniforms

    def _draw_noise(self, like, nodes):
        index = self._releases[nodes[0]]
        drawn = self._sampler.drawn(nodes, index)
        normal = torch.special.ndtri(drawn.clamp_min(2.0**-54))
        return normal[..., : like.shape[2]].to(like)


class NoiseOfTheNext(FloatNoise):
    """Node 1's noise is minus what node 0's will be in the next round.

    No two nodes, rounds or runs as a whole are alike: single releases are.
    """

    def _draw_noise(self, like, nodes):
        index, shape = self._releases[nodes[0]], (len(like), like.shape[2])
        noise = super()._draw_noise(like, nodes)
        ahead = self._streams.unit_noise("noise", [0], index + 1, shape)
        noise[:, 1] = -ahead[:, 0].to(noise)
        return noise


class HalfPrecision(FloatNoise):
    """Noise is drawn as 16-bit floats."""

    def _draw_noise(self, like, nodes):
        return super()._draw_noise(like, nodes).half().to(like.dtype)


class Shuffles(Oracle):
    """Batches of a shuffled pass, for batches of Poisson sampling."""

    _place = 0

    def _batches(self, nodes):
        present = self._sampler.present(nodes)
        drawn = torch.zeros_like(present)
        for row, node in enumerate(nodes):
            batches = math.ceil(1 / self._sampler.rates[node])
            turn = self._releases[node] % batches
            if turn == 0 or not hasattr(self, "_passes"):
                self._passes = getattr(self, "_passes", {})
                shape = (self.runs, present.shape[2])
                drawn_at = self._streams.uniforms("sampling", [node], turn, shape)
                self._passes[node] = (drawn_at[:, 0] * batches).long()
            drawn[:, row] = self._passes[node] == turn
        return drawn & present


class DoubleRate(Oracle):
    """Batches are drawn at twice the rate that is written down."""

    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        sampler = self._sampler
        sampler.rates = [min(1.0, 2 * rate) for rate in sampler.rates]


class NoiseBeforeClipping(FloatNoise):
    """The sum with its noise is clipped, and no sample before that."""

    def _clipped_sum(self, at, batches, nodes, clip):
        total = super()._clipped_sum(at, batches, nodes, 1e6 * clip)
        _, multiplier = self.mechanism.at(self._releases[nodes[0]])
        total = total + multiplier * clip * FloatNoise._draw_noise(self, at, nodes)
        norms = total.norm(dim=2, keepdim=True)
        return total * (clip / norms.clamp_min(clip))

    def _draw_noise(self, like, nodes):
        return torch.zeros_like(like)


class ForgetsOne(Oracle):
    """The third release of each node is not written down."""

    def gradient(self, at, nodes=None):
        recorder = self._recorder
        if self._releases[0] == 2:
            self._recorder = type(recorder)(self.nodes)
        gradient = super().gradient(at, nodes)
        self._recorder = recorder
        return gradient


class SensitivityHalved(Oracle):
    """Gradients are clipped at twice the norm that noise and ledger go by."""

    def _clipped_sum(self, at, batches, nodes, clip):
        return super()._clipped_sum(at, batches, nodes, 2 * clip)


class DividesByTheBatchDrawn(Oracle):
    """The sum is divided by the size of the batch that was drawn, not by the stated.

    Opacus and others did, by default or for a time.
    """

    def _batches(self, nodes):
        self._drawn = super()._batches(nodes)
        return self._drawn

    def gradient(self, at, nodes=None):
        observers, self.observers = self.observers, ()
        gradient = super().gradient(at, nodes)
        sizes = self._drawn.sum(2, keepdim=True).clamp_min(1)
        gradient *= self.mechanism.batch_size / sizes
        self.observers = observers
        nodes = range(self.nodes) if nodes is None else nodes
        for observer in observers:
            observer.release(self._releases[nodes[0]] - 1, at, gradient, nodes)
        return gradient


class TooMuchNoise(FloatNoise):
    """Noise is scaled by the sensitivity under replace-one, and accounted by C."""

    def _draw_noise(self, like, nodes):
        return 2 * super()._draw_noise(like, nodes)


class RunsSeededAlike(FloatNoise):
    """All runs of a block have one run's noise."""

    def _draw_noise(self, like, nodes):
        noise = super()._draw_noise(like, nodes)
        return noise[:1].expand_as(noise).clone()


# A start at which all classes are alike, so that the contrary record is.
_CONTRARY = {
    "nodes": 2,
    "digits": (0, 1),
    "train": 40,
    "split": 1.0,
    "gain": 1e-6,
    "batch_size": 20.0,
}
_FEW = {"batch_size": 5.0}

_NO_KEY = "an audit's statistics know no keys; tests/zoo/test_recovery.py attacks it"

BUGS = {
    "noise of a seed of few bits": Bug(
        SeedOf12Bits,
        "unknown noise",
        "torch.Generator (doubles) gives under seed",
        unseen=_NO_KEY,
    ),
    "noise that no key decides": Bug(
        SeedOf32Bits,
        "streams",
        "comes from elsewhere",
        unseen=_NO_KEY,
    ),
    "a default seed": Bug(
        DefaultSeed,
        "unknown noise",
        "a study gives under seed 0",
        unseen=_NO_KEY,
    ),
    "a stream shared by two nodes": Bug(
        NodesSeededAlike,
        "streams",
        "drawn twice",
        attack=Attack(100, noise=4.0, adversary="nodes-apart", estimator="best"),
    ),
    "a stream shared by two rounds": Bug(
        RoundsSeededAlike,
        "streams",
        "drawn twice",
        attack=Attack(100, noise=4.0, adversary="rounds-apart", estimator="best"),
    ),
    "a stream shared by sampling and noise": Bug(
        SamplingSharesNoise,
        "streams",
        "drawn twice",
        unseen="no audit here reads from its noise who is in a batch",
    ),
    "noise that tells who was sampled": Bug(
        SamplingSharesNoise,
        "sampling",
        "whether a record is in a batch goes with coordinate",
        unseen="no audit here reads from its noise who is in a batch",
    ),
    "noise that is a multiple of another's": Bug(
        NoiseOfTheNext,
        "fresh noise",
        "-1 times that of",
        unseen="no audit here combines releases of two nodes and rounds",
    ),
    "noise in floating point": Bug(
        FloatNoise,
        "grid",
        "no multiples of",
        unseen="no audit here reads the last digits of releases",
    ),
    "noise seeded alike on two nodes": Bug(
        NodesSeededAlike,
        "fresh noise",
        "the same noise was used twice",
        attack=Attack(100, noise=4.0, adversary="nodes-apart", estimator="best"),
    ),
    "noise seeded alike in two rounds": Bug(
        RoundsSeededAlike,
        "fresh noise",
        "the same noise was used twice",
        attack=Attack(100, noise=4.0, adversary="rounds-apart", estimator="best"),
    ),
    "noise seeded alike in all runs": Bug(
        RunsSeededAlike,
        "fresh noise",
        "the same noise was used twice",
        unseen="an audit needs runs that are independent of each other",
    ),
    "equal noise on two rounds": Bug(
        planted.EqualNoiseTwice,
        "fresh noise",
        "the same noise was used twice",
        attack=Attack(100, noise=4.0, adversary="rounds-apart", estimator="best"),
    ),
    "float16 noise": Bug(
        HalfPrecision,
        "fine noise",
        "noise is coarse",
        attack=Attack(100, noise=4.0, adversary="grid", estimator="best"),
    ),
    "shuffled batches for Poisson batches": Bug(
        Shuffles,
        "sampling",
        "not drawn independently",
        runs=200,
        attack=Attack(400, noise=0.2, settings={"rounds": 2}),
    ),
    "gradient clipped with the batch": Bug(
        planted.ClipsPerBatch,
        "sensitivity",
        "one record moved the sum",
        attack=Attack(
            300,
            noise=2.0,
            adversary="own-gradient",
            canary="contrary",
            settings=_CONTRARY,
        ),
    ),
    "wrong q": Bug(
        DoubleRate,
        "sampling",
        "of the batches",
        attack=Attack(600, noise=0.7, settings=_FEW),
    ),
    "five batches accounted as one": Bug(
        planted.FiveBatches,
        "sampling",
        "of the batches",
        attack=Attack(200, noise=0.7, settings=_FEW),
    ),
    "noise before clipping": Bug(
        NoiseBeforeClipping,
        "noise",
        "was measured",
        attack=Attack(200, canary="loud"),
    ),
    "noise divided by the batch twice": Bug(
        planted.NoiseDividedTwice, "noise", "was measured", attack=Attack(100)
    ),
    "a node without noise": Bug(
        planted.NoiseMissingAtNode, "noise", "node 0", attack=Attack(100)
    ),
    "more noise than accounted": Bug(
        TooMuchNoise,
        "noise",
        "was measured",
        unseen="it is more private than said, not less",
    ),
    "a release is missing in the ledger": Bug(
        ForgetsOne,
        "ledger",
        "releases happened, 7 are in the ledger",
        attack=Attack(1500, noise=0.7, settings={"rounds": 3, "batch_size": 20.0}),
    ),
    "inner steps accounted once": Bug(
        planted.CountsOnce,
        "ledger",
        "releases happened",
        algorithm="dp-dinno",
        settings=("inner_steps=3",),
        attack=Attack(
            800,
            settings={"rounds": 2, "inner_steps": 3, "optimiser": "sgd", "rho": 0.1},
        ),
    ),
    "sensitivity halved": Bug(
        SensitivityHalved,
        "sensitivity",
        "one record moved the sum",
        attack=Attack(300, canary="loud"),
    ),
    "divided by the batch that was drawn": Bug(
        DividesByTheBatchDrawn,
        "divisor",
        "differs between runs",
        attack=Attack(
            300,
            noise=8.0,
            adversary="norm",
            canary="blank",
            settings={"train": 3, "rounds": 2, "batch_size": 0.5},
        ),
    ),
    "a tracker fed without noise": Bug(
        planted.RemembersNoise,
        "nothing else",
        "no function of the releases",
        algorithm="dp-dsgt",
        changes={"make": planted.TracksTheExact},
        attack=Attack(150, adversary="neighbour"),
    ),
}
