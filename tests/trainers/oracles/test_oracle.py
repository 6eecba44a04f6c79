"""Contract of oracle: what is released is bounded, noised and written down."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privaudit.ledger import PLACED
from privaudit.release import (
    PoissonSampling,
    RandomAllocation,
    SamplingWithoutReplacement,
)
from tests.tiers import examples
from tests.trainers.problems import oracle, random_data, softmax, start
from trainers.data import Dataset, PrivateData
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.numerics.releases import ReleaseJournal
from trainers.oracles.oracle import Mechanism, clip_weights

DIMS = 15
few = examples(40)


def blank(value=3.0):
    return Dataset(torch.full((1, 4), value, dtype=torch.float64), torch.tensor([0]))


def mean_gradients(at, shares):
    """Plain unclipped sum of every node's gradients over its records."""
    module = softmax()
    rows = []
    for node, share in enumerate(shares):
        weight, bias = at[0, node, :12].view(3, 4), at[0, node, 12:]
        residual = torch.softmax(share.inputs @ weight.T + bias, 1)
        residual[torch.arange(len(share)), share.targets] -= 1
        rows.append(torch.cat([(residual.T @ share.inputs).flatten(), residual.sum(0)]))
    assert sum(p.numel() for p in module.parameters()) == DIMS
    return torch.stack(rows)[None]


class TestJournal:
    """Of who cannot make its releases again, as by the real clock."""

    def journaled(self, tmp_path):
        path = tmp_path / "journal"
        if not path.exists():
            ReleaseJournal.create(path, Key(bytes(32), bytes(16)))
        journal = ReleaseJournal(path, Key(bytes(32), bytes(16)))
        shares = random_data((5, 5, 5), seed=0)
        mechanism = Mechanism(batch_size=5.0, clip_norm=1.0, noise_multiplier=1.0)
        one = oracle(mechanism, shares=shares)
        one._streams = Streams(Key(bytes(32), bytes(16)), journal=journal)
        return one, journal

    def test_what_it_has_beyond_the_state_is_paid_for(self, tmp_path):
        one, journal = self.journaled(tmp_path)
        for _ in range(3):
            one.gradient(start(DIMS))
        one.sync()
        journal.close()
        other, journal = self.journaled(tmp_path)
        other.skip_begun()
        assert [other.releases_of(node) for node in range(3)] == [3, 3, 3]
        assert [entry.count for (entry,) in other.ledger.nodes] == [3, 3, 3]
        journal.close()

    def test_one_that_is_older_than_the_state_is_refused(self, tmp_path):
        one, journal = self.journaled(tmp_path)
        one.gradient(start(DIMS))
        one.gradient(start(DIMS))
        state = one.state_dict()
        journal.close()
        (tmp_path / "journal").unlink()
        other, journal = self.journaled(tmp_path)
        other.load_state_dict(state)
        with pytest.raises(ValueError, match="has 0 releases of node 0, the checkp"):
            other.skip_begun()
        journal.close()


class TestSound:
    @few
    @given(st.integers(0, 10**6), st.floats(1e-2, 1e2), st.floats(0.1, 1e4))
    def test_one_record_moves_the_release_by_at_most_the_sensitivity(
        self, seed, clip, scale
    ):
        # Same streams, no noise, every record drawn: with and without a canary.
        mechanism = Mechanism(batch_size=5.0, clip_norm=clip)
        shares = random_data((5, 5, 5), seed=seed)
        at = scale * start(DIMS, seed=seed)
        with_it, without = (
            oracle(
                mechanism,
                shares=shares,
                seed=seed,
                canary=blank(scale),
                planted=torch.tensor([planted]),
            )
            for planted in (True, False)
        )
        moved = (with_it.gradient(at) - without.gradient(at)) * 5.0
        release = with_it.ledger.nodes[0][0].release
        assert moved[:, 0].norm() <= release.sensitivity_under("add-or-remove-one")
        assert torch.equal(moved[:, 1:], torch.zeros_like(moved[:, 1:]))

    @given(st.floats(0, 1e30), st.floats(1e-6, 1e6))
    def test_clipping_never_exceeds_the_bound(self, norm, clip):
        for dtype in (torch.float32, torch.float64):
            norms = torch.tensor([[norm]], dtype=dtype)
            scaled = norms * clip_weights(norms, clip)
            assert scaled.item() <= clip * (1 + torch.finfo(dtype).eps)
            if norm < 0.99 * clip:
                assert scaled.item() == pytest.approx(norms.item(), rel=1e-6)

    def test_the_noise_is_what_the_ledger_says(self):
        mechanism = Mechanism(batch_size=2.0, clip_norm=0.5, noise_multiplier=3.0)
        noisy = oracle(mechanism, runs=400, seed=1)
        exact = oracle(Mechanism(batch_size=2.0, clip_norm=0.5), runs=400, seed=1)
        at = start(DIMS, runs=400)
        noise = (noisy.gradient(at) - exact.gradient(at)) * mechanism.batch_size
        for node in range(3):
            release = noisy.ledger.nodes[node][0].release
            assert release.noise == 1.5
            sample = noise[:, node].flatten().numpy() / release.noise
            # Standard normal, by Kolmogorov and Smirnov and by its variance.
            assert stats.kstest(sample, "norm").pvalue > 1e-4
            assert sample.var() == pytest.approx(1, abs=5 * math.sqrt(2 / len(sample)))
        flat = noise.permute(1, 0, 2).reshape(3, -1)
        assert torch.corrcoef(flat).fill_diagonal_(0).abs().max() < 5 / 6000**0.5

    def test_noise_differs_from_release_to_release(self):
        noisy = oracle()
        at = start(DIMS)
        seen = torch.stack([noisy.gradient(at) for _ in range(50)])
        assert len({tuple(row.flatten().tolist()) for row in seen}) == 50

    def test_an_empty_batch_still_releases_noise(self):
        mechanism = Mechanism(batch_size=1e-9, clip_norm=1.0, noise_multiplier=1.0)
        private = oracle(mechanism)
        gradient = private.gradient(start(DIMS)) * 1e-9
        assert 0.5 < gradient.std() < 2
        assert private.ledger.nodes[0][0].count == 1

    def test_every_record_is_drawn_at_its_rate(self):
        private = oracle(Mechanism(batch_size=2.0), runs=4000)
        batches = private._batches(range(3))
        for node, size in enumerate((7, 5, 9)):
            rate = batches[:, node, :size].double().mean(0)
            spread = math.sqrt(2 / size * (1 - 2 / size) / 4000)
            assert (rate - 2 / size).abs().max() < 5 * spread
            sampling = PoissonSampling(2 / size)
            assert private.mechanism.release(0, size).sampling == sampling
        assert not batches[:, 0, 7:].any()  # the canary's row, not planted
        # Poisson: the size of a batch varies as a sum of coins does, and is never cut.
        sizes = batches[:, 2].sum(1).double()
        assert sizes.var() == pytest.approx(9 * 2 / 9 * 7 / 9, rel=0.15)
        assert sizes.max() >= 6

    def test_a_canary_is_drawn_like_any_record_where_it_is_planted(self):
        planted = torch.arange(4000) % 2 == 0
        private = oracle(
            Mechanism(batch_size=2.0), runs=4000, canary=blank(), planted=planted
        )
        drawn = private._batches(range(3))[:, 0, 7]
        assert not drawn[~planted].any()
        assert drawn[planted].double().mean() == pytest.approx(2 / 7, abs=0.05)

    def test_the_divisor_does_not_depend_on_the_batch(self):
        full = oracle(Mechanism(batch_size=5.0), shares=random_data((5, 5, 5)))
        at = start(DIMS)
        wanted = mean_gradients(at, random_data((5, 5, 5))) / 5
        torch.testing.assert_close(full.gradient(at), wanted)
        canary = oracle(
            Mechanism(batch_size=5.0),
            shares=random_data((5, 5, 5)),
            canary=random_data((1,), seed=9)[0],
            planted=torch.tensor([True]),
        )
        shares = random_data((5, 5, 5))
        more = random_data((1,), seed=9)[0]
        shares[0] = Dataset(
            torch.cat([shares[0].inputs, more.inputs]),
            torch.cat([shares[0].targets, more.targets]),
        )
        wanted = mean_gradients(at, shares) / 5
        torch.testing.assert_close(canary.gradient(at), wanted)

    @pytest.mark.parametrize("bad", [math.inf, math.nan])
    def test_gradients_that_are_not_finite_count_nothing(self, bad):
        """No run ends by what the data are, and nothing else changes."""
        mechanism = Mechanism(batch_size=5.0, clip_norm=1.0)
        at, without = start(DIMS), random_data((5, 5, 5))
        without[1].inputs[2] = 0.0  # in its place, one of which the gradient is known
        shares = random_data((5, 5, 5))
        shares[1].inputs[2, 0] = bad
        private = oracle(mechanism, shares=shares)
        got = private.gradient(at)
        assert private.not_finite == 1
        assert torch.isfinite(got).all()
        wanted = oracle(mechanism, shares=without).gradient(at)
        assert torch.equal(got[:, [0, 2]], wanted[:, [0, 2]])
        moved = 5.0 * (wanted - got)[:, 1]
        assert not moved[:, :12].any()  # of an input of zeros, only the offsets
        assert 0 < moved.norm() <= 1
        noisy = Mechanism(batch_size=5.0, clip_norm=1.0, noise_multiplier=1.0)
        assert torch.isfinite(oracle(noisy, shares=shares).gradient(at)).all()

    def test_without_clipping_they_are_an_error(self):
        shares = random_data((5, 5, 5))
        shares[1].inputs[2, 0] = math.nan
        private = oracle(Mechanism(batch_size=5.0), shares=shares)
        with pytest.raises(ValueError, match="not finite"):
            private.gradient(start(DIMS))

    def test_no_clipping_is_written_down_as_no_bound(self):
        private = oracle(Mechanism(batch_size=2.0))
        private.gradient(start(DIMS))
        release = private.ledger.nodes[0][0].release
        assert release.norm_bound == math.inf
        assert not release.is_private


class TestLedger:
    def test_what_happened_is_what_was_planned(self):
        private = oracle()
        for _ in range(4):
            private.gradient(start(DIMS))
        assert private.ledger == private.mechanism.ledger((7, 5, 9), 4)
        assert [entries[0].count for entries in private.ledger.nodes] == [4, 4, 4]

    def test_schedules_are_followed_release_by_release(self):
        mechanism = Mechanism(
            batch_size=2.0,
            clip_norm=lambda k: 1.0 / (k + 1),
            noise_multiplier=lambda k: 2.0 + (k > 1),
        )
        private = oracle(mechanism)
        for _ in range(3):
            private.gradient(start(DIMS))
        releases = [entry.release for entry in private.ledger.nodes[0]]
        assert [r.norm_bound for r in releases] == [1.0, 1 / 2, 1 / 3]
        assert [r.noise for r in releases] == [2.0, 1.0, 1.0]
        assert private.ledger == mechanism.ledger((7, 5, 9), 3)

    @few
    @given(st.integers(1, 6), st.integers(0, 1000))
    def test_the_ledger_does_not_depend_on_batching(self, runs, seed):
        def ledger(**more):
            private = oracle(seed=seed, **more)
            for _ in range(2):
                private.gradient(start(DIMS, runs=more.get("runs", 1)))
            return private.ledger

        assert ledger(runs=runs) == ledger() == ledger(memory_limit=1 << 20)


class TestLaws:
    def test_equal_seeds_equal_bits(self):
        at = start(DIMS, runs=3)
        one, other = (oracle(runs=3, seed=5).gradient(at) for _ in range(2))
        assert torch.equal(one, other)
        assert not torch.equal(one, oracle(runs=3, seed=6).gradient(at))
        assert not torch.equal(one, oracle(runs=3, seed=5, block=1).gradient(at))

    def test_numbers_do_not_depend_on_chunks(self, monkeypatch):
        at = start(DIMS, runs=3)
        whole = oracle(runs=3, seed=2).gradient(at)
        private = oracle(runs=3, seed=2)
        private._memory_limit = 600  # bytes: two samples at a time
        torch.testing.assert_close(private.gradient(at), whole, rtol=1e-12, atol=1e-12)

    def test_a_canary_elsewhere_changes_nothing_else(self):
        planted = torch.tensor([True, False])
        at = start(DIMS, runs=1).expand(2, -1, -1)
        private = oracle(runs=2, canary=blank(), planted=planted)
        plain = oracle(runs=2)
        theirs, ours = plain.gradient(at), private.gradient(at)
        assert torch.equal(ours[1], theirs[1])
        assert torch.equal(ours[:, 1:], theirs[:, 1:])


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (Mechanism(batch_size=6.0), "larger than a node's data"),
        (Mechanism(batch_size=0.0), "batch_size"),
        (Mechanism(2.0, clip_norm=0.0), "clip_norm"),
        # Of gradients this small, single precision has no norm but 0.
        (Mechanism(2.0, clip_norm=1e-24), "clip_norm"),
        (Mechanism(2.0, clip_norm=1e39), "clip_norm"),
        (Mechanism(2.0, clip_norm=math.nan), "clip_norm"),
        (Mechanism(2.0, 1.0, -1.0), "noise_multiplier"),
        (Mechanism(2.0, 1.0, math.nan), "noise_multiplier"),
        (Mechanism(2.0, math.inf, 1.0), "finite clip_norm"),
    ],
)
def test_a_mechanism_out_of_range_is_refused(mechanism, message):
    with pytest.raises(ValueError, match=message):
        oracle(mechanism).gradient(start(DIMS))


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"\(runs, nodes, dims\)"):
        oracle().gradient(start(DIMS, nodes=2))
    with pytest.raises(ValueError, match="no canary"):
        oracle(planted=torch.tensor([True]))
    with pytest.raises(ValueError, match="no records"):
        PrivateData.of(random_data((3, 0)))
    with pytest.raises(ValueError, match="memory_limit"):
        oracle(memory_limit=5)


class TestFixedBatches:
    """Sampling without replacement: a uniform subset, in both worlds."""

    MECHANISM = Mechanism(3.0, 0.5, 2.0, sampling="without-replacement")

    def test_batches_are_uniform_subsets(self):
        private = oracle(self.MECHANISM, runs=4000)
        batches = private._batches(range(3))
        assert (batches.sum(2) == 3).all()
        for node, size in enumerate((7, 5, 9)):
            rate = batches[:, node, :size].double().mean(0)
            spread = math.sqrt(3 / size * (1 - 3 / size) / 4000)
            assert (rate - 3 / size).abs().max() < 5 * spread
            sampling = SamplingWithoutReplacement(3, size)
            assert private.mechanism.release(0, size).sampling == sampling

    def test_a_canary_comes_in_a_records_place(self):
        planted = torch.arange(400) % 2 == 0
        private = oracle(
            self.MECHANISM, runs=400, canary=blank(), planted=planted, replaces=True
        )
        batches = private._batches(range(3))
        assert (batches.sum(2) == 3).all()
        assert not batches[planted, 0, 0].any()
        assert not batches[~planted, 0, 7].any()
        # The same batches in both worlds, but for who is in the first record's place.
        other = oracle(
            self.MECHANISM, runs=400, canary=blank(), planted=~planted, replaces=True
        )
        swapped = other._batches(range(3))
        assert torch.equal(batches[:, 0, 7], swapped[:, 0, 0] & planted)
        assert torch.equal(batches[:, 0, 1:7], swapped[:, 0, 1:7])

    def test_a_batch_is_a_whole_number(self):
        with pytest.raises(ValueError, match="whole number of records, got"):
            oracle(Mechanism(2.5, sampling="without-replacement"))

    def test_it_is_for_replace_one(self):
        private = oracle(self.MECHANISM)
        private.gradient(start(DIMS))
        release = private.ledger.nodes[0][0].release
        assert release.sensitivity_under("replace-one") == 1.0
        with pytest.raises(ValueError, match="no sensitivity under add-or-remove"):
            release.sensitivity_under("add-or-remove-one")


class TestRandomAllocation:
    """Each record is by itself in k of an epoch's t batches."""

    @pytest.mark.parametrize(
        ("sampling", "taken", "batches"),
        [("random-allocation", 1, (4, 2, 4)), ("random-allocation:2", 2, (7, 5, 9))],
    )
    def test_each_epoch_has_each_record_as_often(self, sampling, taken, batches):
        mechanism = Mechanism(2.0, 0.5, 2.0, sampling=sampling)
        private = oracle(mechanism, runs=300)
        drawn = []
        for _ in range(2 * max(batches)):
            drawn.append(private._batches(range(3)))
            private.gradient(start(DIMS, runs=300))
        for node, (size, many) in enumerate(zip((7, 5, 9), batches, strict=True)):
            epochs = torch.stack(drawn[: 2 * many])[:, :, node, :size].double()
            for epoch in epochs.split(many):
                assert (epoch.sum(0) == taken).all()
                # Uniform over batches, and not all records together.
                rate = epoch.mean((1, 2))
                spread = math.sqrt(taken / many * (1 - taken / many) / (300 * size))
                assert (rate - taken / many).abs().max() <= 5 * spread
            assert not torch.equal(epochs[:many], epochs[many:])  # drawn anew
            (entry,) = private.ledger.nodes[node]
            assert entry.release.sampling == RandomAllocation(many, taken)
            planned = mechanism.ledger((7, 5, 9), 2 * max(batches))
            assert planned == private.ledger

    def test_a_canary_moves_no_other_record(self):
        planted = torch.arange(40) % 2 == 0
        mechanism = Mechanism(2.0, 0.5, 2.0, sampling="random-allocation")
        both = [
            oracle(mechanism, runs=40, canary=blank(), planted=one)._batches(range(3))
            for one in (planted, ~planted)
        ]
        assert torch.equal(both[0][:, 0, :7], both[1][:, 0, :7])
        assert torch.equal(both[0][:, 1:], both[1][:, 1:])
        assert not both[0][~planted, 0, 7].any()
        assert both[0][planted, 0, 7].any()

    def test_an_oracle_that_goes_on_is_in_the_same_epoch(self):
        mechanism = Mechanism(2.0, 0.5, 2.0, sampling="random-allocation")
        whole, resumed = oracle(mechanism), oracle(mechanism)
        at = start(DIMS)
        whole.gradient(at)
        resumed.load_state_dict(whole.state_dict())
        torch.testing.assert_close(whole.gradient(at), resumed.gradient(at))
        assert whole.ledger.nodes == resumed.ledger.nodes
        assert resumed.ledger.assumptions == (PLACED,)  # who knows what the data were

    def test_an_assumption_stays_however_often_it_goes_on(self):
        mechanism = Mechanism(2.0, 0.5, 2.0, sampling="random-allocation")
        one, two, three = (oracle(mechanism) for _ in range(3))
        one.gradient(start(DIMS))
        two.load_state_dict(one.state_dict())
        for _ in range(3):  # to the end of epochs
            two.gradient(start(DIMS))
        three.load_state_dict(two.state_dict())
        assert three.ledger.assumptions == (PLACED,)

    def test_between_epochs_nothing_is_assumed(self):
        mechanism = Mechanism(2.0, 0.5, 2.0, sampling="random-allocation")
        whole, resumed = oracle(mechanism), oracle(mechanism)
        for _ in range(4):  # epochs are of 4, 2 and 4 batches
            whole.gradient(start(DIMS))
        resumed.load_state_dict(whole.state_dict())
        assert resumed.ledger.assumptions == ()

    def test_epochs_keep_their_length(self):
        whole, other = (
            oracle(Mechanism(size, 0.5, 2.0, sampling="random-allocation"))
            for size in (2.0, 3.0)
        )
        whole.gradient(start(DIMS))
        with pytest.raises(ValueError, match="node 0 had another number of records"):
            other.load_state_dict(whole.state_dict())

    def test_too_many_batches(self):
        with pytest.raises(ValueError, match="too many"):
            oracle(Mechanism(1e-9, sampling="random-allocation"))


class TestOneNodeAtATime:
    def test_equals_all_at_once(self):
        mechanism = Mechanism(3.0, clip_norm=0.5, noise_multiplier=2.0)
        whole, single = oracle(mechanism, runs=2), oracle(mechanism, runs=2)
        at = start(DIMS, runs=2)
        wanted = whole.gradient(at)
        for node in (2, 0, 1):
            one = single.gradient(at[:, [node]], [node])
            torch.testing.assert_close(one, wanted[:, [node]])
        assert single.ledger == whole.ledger

    def test_each_node_has_its_own_schedule(self):
        private = oracle(Mechanism(3.0, lambda k: 1.0 / (k + 1), 2.0))
        at = start(DIMS)
        for node in (0, 0, 1):
            private.gradient(at[:, [node]], [node])
        bounds = [
            [entry.release.norm_bound for entry in entries]
            for entries in private.ledger.nodes
        ]
        assert bounds == [[1.0, 0.5], [1.0], []]
        with pytest.raises(ValueError, match="asked equally often"):
            private.gradient(at)
