"""Nodes of uneven sizes: one rate for all, and noise that each node needs itself."""

import dataclasses
import math

import pytest
import torch
from scipy import stats

from privaudit.release import PoissonSampling, SamplingWithoutReplacement
from tests.trainers.oracles.test_oracle import DIMS, mean_gradients
from tests.trainers.problems import oracle, random_data, start
from trainers.algorithms import ALGORITHMS
from trainers.oracles.oracle import Mechanism
from trainers.runs.training import training_from

SIZES = (60, 40, 20)


def shares():
    return random_data(SIZES, seed=0)


def setting(algorithm="dp-dsgd", **changes):
    values = {"algorithm": algorithm, "nodes": 3, "sampling_rate": 0.25, **changes}
    return training_from(values, where="a test")


def by_node(noise, **changes):
    """The mechanism by which a training adds ``noise`` of each node."""
    return setting(clip_norm=1.0, **changes).mechanism(noise, SIZES)


class TestRate:
    def test_the_mean_of_nodes_is_the_mean_of_all_records(self):
        how = Mechanism(batch_size=40.0, rate=1.0)  # no clipping, no noise
        at = start(DIMS, runs=1)
        found = oracle(how, shares=shares()).gradient(at)
        expected = mean_gradients(at, shares()).sum(1) / sum(SIZES)
        assert torch.allclose(found.mean(1), expected, rtol=1e-5)

    def test_each_record_is_drawn_as_often_at_every_node(self):
        one = oracle(Mechanism(10.0, rate=0.25), shares=shares(), runs=1500)
        drawn = one._sampler.batches([0, 1, 2], 0)
        for node, size in enumerate(SIZES):
            heads = int(drawn[:, node, :size].sum())
            assert stats.binomtest(heads, 1500 * size, 0.25).pvalue > 1e-6

    @pytest.mark.parametrize(
        ("sampling", "expected"),
        [
            ("poisson", [PoissonSampling(0.25)] * 3),
            (
                "without-replacement",
                [SamplingWithoutReplacement(size // 4, size) for size in SIZES],
            ),
        ],
    )
    def test_the_ledger_has_it(self, sampling, expected):
        how = Mechanism(10.0, 1.0, 2.0, sampling, rate=0.25)
        one = oracle(how, shares=shares())
        one.gradient(start(DIMS, runs=1))
        made = [entries[0].release.sampling for entries in one.ledger.nodes]
        assert made == expected
        assert one.ledger.nodes == how.ledger(SIZES, 1).nodes

    def test_epochs_are_as_long_at_every_node(self):
        how = Mechanism(10.0, 1.0, 2.0, "random-allocation", rate=0.25)
        assert {how.allocation(size).batches for size in (*SIZES, 7)} == {4}

    @pytest.mark.parametrize("algorithm", ["dp-fedavg", "deep-q"])
    def test_it_is_refused_where_it_means_nothing(self, algorithm):
        more = {"model": "one-vs-all", "data": "digits-pca"}
        with pytest.raises(ValueError, match=r"leave sampling_rate=0\.25 out"):
            setting(algorithm, **(more if algorithm == "deep-q" else {}))

    @pytest.mark.parametrize("rate", [0.0, 1.5, -0.1, math.nan])
    def test_it_is_a_probability(self, rate):
        with pytest.raises(ValueError, match=r"sampling_rate must be in \(0, 1\]"):
            setting(sampling_rate=rate)

    def test_batch_size_and_rate_are_not_both_given(self):
        with pytest.raises(ValueError, match="not both"):
            setting(batch_size=8)

    @pytest.mark.parametrize(
        "algorithm",
        ["dp-sgd", "dp-muffliato", "dp-decor", "dp-dinno", "dyn-d2p", "adp2sgd"],
    )
    def test_families_that_sample_know_it(self, algorithm):
        chosen = setting(algorithm)
        sizes = (120,) if chosen.family.central else SIZES
        ledger = chosen.family.ledger(chosen.setting(sizes), 3.0)
        rates = {
            getattr(entry.release.sampling, "rate", None)
            or entry.release.sampling.batch / entry.release.sampling.population
            for entries in ledger.nodes
            for entry in entries
        }
        assert rates == {0.25}

    def test_sums_at_a_common_model_are_of_all_records(self):
        chosen = setting("dp-butterfly", graph="butterfly", nodes=4)
        assert chosen.make((60, 40, 20, 8)).divisor == pytest.approx(0.25 * 128)


class TestNoiseByNode:
    def test_each_adds_its_own(self):
        noise = (2.0, 5.0, 9.0)
        how = by_node(noise)
        one = oracle(how, shares=shares(), runs=400)
        at = start(DIMS, runs=400)
        plain = dataclasses.replace(how, noise_multiplier=0.0, by_node=())
        still = oracle(plain, shares=shares(), runs=400).gradient(at)
        found = one.gradient(at)
        for node, own in enumerate(noise):
            # A grid cell less of clipping may be seen, of a thousandth of the noise.
            told = how.of(node).divisor(SIZES[node])
            drawn = (found[:, node] * told - still[:, node] * plain.batch_size) / own
            assert stats.kstest(drawn.double().flatten().numpy(), "norm").pvalue > 1e-4

    def test_the_ledger_says_which(self):
        one = oracle(by_node((2.0, 5.0, 9.0)), shares=shares())
        one.gradient(start(DIMS, runs=1))
        made = [entries[0].release.noise for entries in one.ledger.nodes]
        assert made == [2.0, 5.0, 9.0]
        chosen = setting(clip_norm=1.0, rounds=1)
        planned = chosen.family.planned(chosen.setting(SIZES), (2.0, 5.0, 9.0))
        assert planned.nodes == one.ledger.nodes

    def test_equal_noise_is_the_one_noise_to_the_bit(self):
        at = start(DIMS, runs=2)
        one = oracle(by_node(3.0), shares=shares(), runs=2).gradient(at)
        each = oracle(by_node((3.0,) * 3), shares=shares(), runs=2).gradient(at)
        assert torch.equal(one, each)

    def test_asked_alone_a_node_has_the_noise_that_it_has_among_all(self):
        how = by_node((2.0, 5.0, 5.0))
        at = start(DIMS, runs=1)
        whole = oracle(how, shares=shares()).gradient(at)
        alone = oracle(how, shares=shares())
        for node in (2, 0, 1):
            own = alone.gradient(at[:, [node]], [node])
            assert torch.allclose(own[:, 0], whole[:, node], rtol=1e-6)

    def test_weights_are_of_equal_noise_and_add_up(self):
        how = by_node((2.0, 5.0, 9.0))
        divisors = [how.of(node).divisor(size) for node, size in enumerate(SIZES)]
        noises = [z / d for z, d in zip((2.0, 5.0, 9.0), divisors, strict=True)]
        assert noises == pytest.approx([noises[0]] * 3)
        batches = [0.25 * size for size in SIZES]
        told = sum(b / d for b, d in zip(batches, divisors, strict=True))
        assert told == pytest.approx(3)

    @pytest.mark.parametrize(
        "algorithm", ["dp-butterfly", "dp-chain", "dp-decor", "partpsp"]
    )
    def test_it_is_refused_where_noise_hides_others(self, algorithm):
        own = ALGORITHMS[algorithm].defaults
        chosen = training_from({**own, "algorithm": algorithm}, where="a test")
        with pytest.raises(ValueError, match="give one noise multiplier"):
            chosen.mechanism((1.0,) * chosen.nodes, (50,) * chosen.nodes)

    def test_there_is_one_for_each_node(self):
        with pytest.raises(ValueError, match="2 noise multipliers are given for 3"):
            by_node((1.0, 2.0))
