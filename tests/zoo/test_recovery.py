"""Noise is found from one release, by blank pixels and a search, and taken off.

What SECURITY.md tells of version 0.1.0, with fewer keys to try. The attacker knows the
ledger, the batch size, the model and the program, and sees one release of each node.
The weights of a pixel that is blank in every image get no gradient, so that what is
released there is noise alone.
"""

import pytest
import torch

from privaudit.auditing.experiments.presets import training_named
from privaudit.auditing.probes.algorithm import PROBED
from tests.zoo import old_generator
from tests.zoo.bugs import SeedOf32Bits
from trainers.data import PrivateData
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Oracle
from trainers.runs.problem import Problem

PIXELS = (0, 32, 39)  # of 8 x 8, blank in scikit-learn's digits
MULTIPLIER = 1.0


def blank_weights(classes):
    """Which parameters of the softmax model belong to the three pixels."""
    return [64 * label + pixel for label in range(classes) for pixel in PIXELS]


@pytest.fixture(scope="module")
def problem():
    return Problem.of(training_named("dp-dsgd", [], **PROBED))


def released(problem, kind, key, noise_multiplier=MULTIPLIER):
    """One release of each node, as a sum, (nodes, dims)."""
    mechanism = problem.training.mechanism(noise_multiplier)
    private = kind(
        PrivateData.of(problem.shares),
        problem.gradients(),
        mechanism,
        Streams(key),
    )
    return private.gradient(problem.start(0))[0].double() * mechanism.batch_size


def found(release, deviation, candidates):
    """The noise in ``release``, (dims,), by trial: that which the blank pixels show."""
    where = blank_weights(3)
    seen = release[where] / deviation
    for candidate in candidates:
        if (candidate[where] - seen).abs().max() < 1e-5:
            return candidate * deviation
    return None


def generators(bits, dims):
    """Noise of a first release under each seed of the old generator."""
    for seed in range(1 << bits):
        generator = torch.Generator().manual_seed(seed)
        yield old_generator.standard_normal((1, dims), generator)[0]


def studies(seeds, node, dims):
    """Noise of a first release under each seed of a study."""
    for seed in seeds:
        yield Streams(seed).unit_noise("noise", [node], 0, (1, dims))[0, 0]


def test_the_pixels_are_blank(problem):
    for share in problem.shares:
        assert not share.inputs.flatten(1)[:, list(PIXELS)].any()


def attacked(problem, bits):
    """Noise is found at every node, and taken off to float precision."""
    kind = type("Small", (SeedOf32Bits,), {"bits": bits})
    key = Key.secret()
    noisy = released(problem, kind, key)
    exact = released(problem, kind, key, noise_multiplier=0.0)
    deviation = MULTIPLIER * PROBED["clip_norm"]
    for release, wanted in zip(noisy, exact, strict=True):
        noise = found(release, deviation, generators(bits, len(release)))
        assert noise is not None
        assert (release - wanted).abs().max() > deviation  # it was hidden
        assert (release - noise - wanted).abs().max() < 3e-6 * deviation


def test_few_keys_are_searched(problem):
    attacked(problem, bits=8)


@pytest.mark.full
def test_many_keys_are_searched(problem):
    attacked(problem, bits=16)


def test_a_study_is_not_protected(problem):
    noisy, exact = (released(problem, Oracle, 77, m) for m in (MULTIPLIER, 0.0))
    for node, release in enumerate(noisy):
        noise = found(release, 1.0, studies(range(100), node, len(release)))
        assert noise is not None
        assert (release - noise - exact[node]).abs().max() < 3e-6


@pytest.mark.full
def test_a_secret_key_is_not_found(problem):
    for node, release in enumerate(released(problem, Oracle, Key.secret())):
        dims = len(release)
        assert found(release, 1.0, generators(16, dims)) is None
        assert found(release, 1.0, studies(range(1 << 12), node, dims)) is None
