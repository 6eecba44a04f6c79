"""Randomness that one more record shifts, and loaders that shuffle."""

import numpy as np
import pytest
import torch

import privaudit as pa
from privaudit.auditing.probes.batches import check_batches

CLIP, NOISE, RATE = 1.0, 2.0, 0.3


def dp_sum(data, seed, *, bug="", shuffled=False):
    """A clipped noisy sum; torch draws the batch, then the noise, from one stream."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.as_tensor(data)
    if shuffled:
        batch = torch.randperm(len(x), generator=generator)[: round(RATE * len(x))]
    else:
        batch = torch.rand(len(x), generator=generator) < RATE
    norms = x[batch].norm(dim=1, keepdim=True).clamp_min(CLIP)
    total = (x[batch] * (CLIP if bug != "clip" else 3 * CLIP) / norms).sum(0)
    if bug == "count":
        total += 10.0 * len(x)
    noise = torch.randn(x.shape[1], generator=generator, dtype=x.dtype)
    return (total + NOISE * CLIP * noise).numpy()


def probed(relation="add-or-remove-one", **how):
    return pa.probe(
        lambda data, seed: dp_sum(data, seed, **how),
        sensitivity=CLIP,
        noise=NOISE * CLIP,
        rate=RATE,
        relation=relation,
    )


class TestPaired:
    def test_right_code_is_not_accused(self):
        found = probed()
        assert found.findings == []
        assert any("one place" in check.what for check in found.checks)
        assert any("presence" in line for line in found.unseen)
        assert "not seen: what a record's presence" in "\n".join(found.lines())

    def test_clipping_by_too_much_is_found(self):
        (finding,) = [x for x in probed(bug="clip").findings if "sensitivity" in x]
        assert "two records in one place" in finding

    def test_presence_that_tells_is_found_in_the_mean(self):
        assert any("presence moved" in x for x in probed(bug="count").findings)

    def test_no_shift_is_compared_directly(self):
        def release(data, seed):
            noise = np.random.default_rng(seed).normal(size=data.shape[1])
            norms = np.maximum(np.linalg.norm(data, axis=1, keepdims=True), 1.0)
            return (1.5 * data / norms).sum(0) + noise

        found = pa.probe(release, sensitivity=1.0, relation="add-or-remove-one")
        (finding,) = found.findings
        assert "one record moved what is released by 1.5" in finding

    @pytest.mark.parametrize("relation", ["add-or-remove-one", "replace-one"])
    def test_a_loader_that_shuffles_is_found(self, relation):
        found = pa.probe(
            lambda data, seed: dp_sum(data, seed, shuffled=True),
            rate=RATE,
            records=20,
            relation=relation,
        )
        assert any("batches have a fixed size" in x for x in found.findings)

    def test_batches_alone_may_shift(self):
        def release(data, seed):  # noise from a stream of its own
            total = dp_sum(data, seed, shuffled=True) - dp_sum(0 * data, seed)
            return total + np.random.default_rng(seed).normal(size=data.shape[1])

        found = pa.probe(
            release, sensitivity=1.0, rate=RATE, relation="add-or-remove-one"
        )
        assert not any(x.startswith("sensitivity: one record") for x in found.findings)

    def test_a_null_record_has_the_datas_shape(self):
        with pytest.raises(ValueError, match="null is one record of 5 finite numbers"):
            pa.probe(dp_sum, null=[0.0, 1.0])


class TestBatches:
    def test_right_batches_pass(self):
        random = np.random.default_rng(0)
        for _ in range(200):
            passes = [
                [np.flatnonzero(random.random(30) < 0.2).tolist() for _ in range(5)]
                for _ in range(6)
            ]
            assert not check_batches(passes, 30, 0.2).findings

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            (lambda passes: passes[:1] * 6, "25 of 30 batches are equal to others"),
            (lambda passes: [one[:1] * 5 for one in passes], "24 of 30 batches are"),
            (lambda passes: [[{0, *b} for b in one] for one in passes], "in 30 of 30"),
            (lambda passes: [[[*b, *b[:1]] for b in one] for one in passes], "twice"),
        ],
    )
    def test_coins_that_are_not_tossed_again(self, changed, said):
        random = np.random.default_rng(3)
        passes = [
            [np.flatnonzero(random.random(200) < 0.2).tolist() for _ in range(5)]
            for _ in range(6)
        ]
        assert not check_batches(passes, 200, 0.2).findings
        assert said in " ".join(check_batches(changed(passes), 200, 0.2).findings)

    def test_small_data_repeat_by_chance(self):
        """Two records have four batches; a record may be in none of a few."""
        random = np.random.default_rng(4)
        passes = [
            [np.flatnonzero(random.random(2) < 0.4).tolist() for _ in range(9)]
            for _ in range(9)
        ]
        assert not check_batches(passes, 2, 0.4).findings

    def test_whole_batches_at_rate_one(self):
        assert not check_batches([[range(5)]] * 2, 5, 1.0).findings
        assert check_batches([[range(4)]] * 2, 5, 1.0).findings
        assert check_batches([[]], 5, 0.5).findings == ("there was no batch at all",)
