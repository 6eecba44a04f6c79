"""Planted bugs are caught by the probes, each by the one that is for it, in seconds.

What the right code does under the same probes is part of each test.
"""

import pytest

from tests.trainers import checks, planted
from tests.trainers.checks import DIMS, MECHANISM, Recording
from tests.trainers.problems import oracle, start
from trainers.algorithms.dinno import Dinno
from trainers.algorithms.dsgt import Dsgt
from trainers.network.engine import Network
from trainers.network.graphs import complete, ring
from trainers.network.mixing import Mixing
from trainers.network.named_graphs import mixing
from trainers.oracles.oracle import Oracle

ROUNDS, RUNS = 4, 60
RING = mixing("ring", "metropolis", 3)


def noise(kind):
    """The noise of four releases at three nodes, and the ledger."""
    private, recording = checks.asked(kind, runs=RUNS, releases=4)
    return checks.noise_of(recording, MECHANISM, runs=RUNS), private.ledger


def sensitivity(kind):
    return checks.one_record_moves_at_most_the_sensitivity(kind)


def batches(kind):
    return checks.batches_are_as_written(kind, runs=600)


def scale(kind):
    return checks.noise_is_as_written(*noise(kind))


def freshness(kind):
    return checks.noise_is_fresh(noise(kind)[0])


class TestOracles:
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        ("probe", "bug", "words"),
        [
            (sensitivity, planted.ClipsPerBatch, "one record moved the sum by"),
            (scale, planted.NoiseDividedTwice, "was measured"),
            (scale, planted.NoiseMissingAtNode, "node 0, release 0"),
            (freshness, planted.EqualNoiseTwice, "the same noise was used twice"),
            (batches, planted.FiveBatches, "of the batches"),
        ],
    )
    def test_is_caught(self, probe, bug, words):
        assert any(words in found for found in probe(bug))
        assert probe(Oracle) == []

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("probe", [sensitivity, batches, scale, freshness])
    def test_an_oracle_that_only_remembers_is_right(self, probe):
        assert probe(planted.RemembersNoise) == []

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("probe", "bug"),
        [
            (batches, planted.NoiseDividedTwice),
            (sensitivity, planted.EqualNoiseTwice),
            (scale, planted.EqualNoiseTwice),
            (freshness, planted.NoiseDividedTwice),
        ],
    )
    def test_other_probes_are_not_misled(self, probe, bug):
        assert probe(bug) == []


class TestAlgorithms:
    def test_inner_steps_planned_once_are_caught(self):
        network = Network(planted.DINNO, RING)
        found = checks.releases_are_counted(network, ROUNDS, ROUNDS)
        assert found == ["12 releases happened, 4 were planned"]
        assert checks.releases_are_counted(network, 3 * ROUNDS, ROUNDS) == []

    def test_inner_steps_accounted_once_are_caught(self):
        def found(kind):
            recording, runs = Recording(), 100
            private = oracle(MECHANISM, kind=kind, runs=runs, observers=[recording])
            begin = start(DIMS).repeat(runs, 1, 1)
            Network(planted.DINNO, RING).run(begin, private, 2)
            drawn = checks.noise_of(recording, MECHANISM, runs=runs)
            return checks.noise_is_as_written(drawn, private.ledger)

        assert found(planted.CountsOnce) == [
            f"node {node}: 6 releases, 2 written" for node in range(3)
        ]
        assert found(Oracle) == []

    def test_a_tracker_fed_without_noise_is_caught(self):
        def found(algorithm, kind=planted.RemembersNoise):
            network = Network(algorithm(lambda k: 0.1), RING)
            return checks.only_releases_are_used(network, ROUNDS, kind)

        caught = found(planted.TracksTheExact)
        assert "message tracker of round 1 is no function of the releases" in caught
        assert found(Dsgt) == []
        # Where nothing remembers the noise, the same code is right.
        assert found(planted.TracksTheExact, Oracle) == []

    @pytest.mark.parametrize("graph", [complete(4), ring(4)], ids=["complete", "ring"])
    def test_mixing_in_place_is_caught(self, graph):
        matrices = Mixing.of(graph, "metropolis").matrices
        found = checks.mixing_is_simultaneous(planted.MixesInPlace(matrices))
        assert "round 0: mixed messages are not W times what was sent" in found
        found = checks.mixing_is_simultaneous(planted.MixesOverWhatWasSent(matrices))
        assert "round 0: mixing changed the messages" in found
        assert checks.mixing_is_simultaneous(Mixing(matrices)) == []

    def test_the_right_ones_are_silent_under_all(self):
        for algorithm in (Dsgt(lambda k: 0.1), planted.DINNO, Dinno(lambda k: 0.1)):
            network = Network(algorithm, RING)
            releases = ROUNDS * getattr(algorithm, "inner_steps", 1)
            assert checks.releases_are_counted(network, releases, ROUNDS) == []
            assert checks.only_releases_are_used(network, ROUNDS) == []


def test_five_batches_are_written_down_as_one():
    private, recording = checks.asked(planted.FiveBatches, runs=2, releases=3)
    assert len(recording.releases) == 3
    assert private.ledger == MECHANISM.ledger((7, 5, 9), 3)
