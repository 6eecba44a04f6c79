"""Users' updates: whole, clipped, of that user alone, and written down as a user's."""

import math

import pytest
import torch
from torch import nn

from trainers.data import Dataset, PrivateData
from trainers.gradients.choose import differentiator
from trainers.models import cross_entropy
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.oracles.updates import UpdateMechanism, UpdateOracle

SIZES = (12, 7)


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def shares(seed=0):
    generator = torch.Generator().manual_seed(seed)
    found = []
    for size in SIZES:
        inputs = torch.randn(size, 4, generator=generator)
        targets = torch.randint(0, 3, (size,), generator=generator)
        found.append(Dataset(inputs, targets, torch.arange(size) % 3))
    return found


def oracle(mechanism, data=None, *, kind=UpdateOracle, runs=1, **more):
    data = shares() if data is None else data
    example = data[0].inputs[0]
    return kind(
        PrivateData.of(data, **{k: more.pop(k) for k in ("canary",) if k in more}),
        differentiator(net(), cross_entropy, example),
        mechanism,
        Streams(Key.study(0)),
        runs=runs,
        **more,
    )


def start(nodes=2, runs=1):
    vector = nn.utils.parameters_to_vector(net().parameters()).detach()
    return vector.repeat(runs, nodes, 1)


def by_hand(share, users, size, steps):
    """Plain torch: minus the mean update of ``users``, by torch's own SGD."""
    total = 0.0
    for user in users:
        model, rows = net(), share.users == user
        descent = torch.optim.SGD(model.parameters(), lr=size)
        for _ in range(steps):
            descent.zero_grad()
            out = model(share.inputs[rows])
            nn.functional.cross_entropy(out, share.targets[rows]).backward()
            descent.step()
        end = nn.utils.parameters_to_vector(model.parameters()).detach()
        total = total + (start()[0, 0] - end).double()
    return total


class TestSound:
    def test_without_noise_it_is_the_mean_of_local_sgd(self):
        mechanism = UpdateMechanism(1.0, local_steps=3, local_step_size=0.2)
        found = oracle(mechanism).gradient(start())
        for node, share in enumerate(shares()):
            expected = by_hand(share, range(3), 0.2, 3) / 3
            assert torch.allclose(found[0, node].double(), expected, atol=1e-6)

    @pytest.mark.parametrize("size", [0.1, 100.0])
    def test_a_user_moves_the_sum_by_the_clip_norm_at_most(self, size):
        """Over all layers, on the very numbers that get the noise."""
        mechanism = UpdateMechanism(
            *(1.0, 0.25, 1.0), local_steps=4, local_step_size=size
        )
        full, less = shares(), shares()
        kept = less[0].users != 1
        less[0] = Dataset(
            less[0].inputs[kept], less[0].targets[kept], less[0].users[kept]
        )
        sums = []
        for data in (full, less):
            private = _Exact(data, mechanism)
            private.gradient(start())
            sums.append(private.exact[0, 0])
        moved = (sums[0] - sums[1]).norm().item()
        assert 0 < moved <= 0.25
        if size == 100.0:
            assert moved > 0.2499

    def test_an_update_is_of_that_user_alone_to_the_last_bit(self):
        mechanism = UpdateMechanism(
            1.0, 1.0, 1.0, local_steps=2, local_step_size=0.3, local_batch=2
        )
        others = shares(seed=9)
        ours = shares()[0]
        mine = ours.users == 0
        mixed = Dataset(
            torch.where(mine[:, None], ours.inputs, others[0].inputs * 1e6),
            torch.where(mine, ours.targets, others[0].targets),
            ours.users,
        )
        found = [
            oracle(mechanism, [share, shares()[1]])._update(start()[0, 0], 0, 0, 0)[0]
            for share in (ours, mixed)
        ]
        assert torch.equal(*found)
        assert found[0].any()

    def test_what_is_not_finite_counts_nothing(self):
        mechanism = UpdateMechanism(1.0, 1.0, local_steps=2, local_step_size=0.1)
        broken = shares()
        broken[0].inputs[broken[0].users == 2] = math.inf
        private = oracle(mechanism, broken)
        found = private.gradient(start())[0, 0].double() * 3
        clean = [by_hand(shares()[0], [user], 0.1, 2) for user in (0, 1)]
        expected = sum(one * min(1.0, 1 / one.norm().item()) for one in clean)
        assert torch.allclose(found, expected, atol=1e-6)
        assert private.not_finite == 1

    def test_noise_is_the_ledgers(self):
        mechanism = UpdateMechanism(0.5, 0.5, 2.0, local_steps=1)
        private = oracle(mechanism, runs=400)
        quiet = oracle(UpdateMechanism(0.5, 0.5, 0.0, local_steps=1), runs=400)
        at = start(runs=400)
        noise = (private.gradient(at) - quiet.gradient(at)) * 0.5 * 3
        (entry,) = private.ledger.nodes[0]
        assert entry.release.noise == 1.0
        assert noise.std().item() == pytest.approx(1.0, rel=0.02)
        assert abs(noise.mean().item()) < 0.02

    def test_the_ledger_is_of_users_drawn_by_coins(self):
        mechanism = UpdateMechanism(0.5, 0.5, 2.0)
        private = oracle(mechanism)
        private.gradient(start())
        ledger = private.ledger
        assert ledger.unit == "user"
        (entry,) = ledger.nodes[1]
        assert (entry.count, entry.release.sampling.rate) == (1, 0.5)
        assert ledger == mechanism.ledger((3, 3), 1)
        other = oracle(mechanism)
        other.load_state_dict(private.state_dict())
        assert other.ledger == ledger

    def test_users_are_drawn_at_their_rate(self):
        mechanism = UpdateMechanism(0.25, 1.0)
        private = oracle(mechanism, runs=2000)
        batches = private._batches(range(2))[:, :, :3].double()
        assert batches.mean().item() == pytest.approx(0.25, abs=0.02)

    def test_without_labels_a_node_is_one_user(self):
        data = [Dataset(one.inputs, one.targets) for one in shares()]
        private = oracle(UpdateMechanism(1.0, local_steps=2, local_step_size=0.2), data)
        found = private.gradient(start())[0, 0].double()
        whole = Dataset(data[0].inputs, data[0].targets, torch.zeros(SIZES[0]))
        assert torch.allclose(found, by_hand(whole, [0], 0.2, 2), atol=1e-6)


class _Exact(UpdateOracle):
    """Keeps the sums to which noise is added, as they are."""

    def __init__(self, data, mechanism):
        super().__init__(
            PrivateData.of(data),
            differentiator(net(), cross_entropy, data[0].inputs[0]),
            mechanism,
            Streams(Key.study(0)),
        )

    def _noisy(self, total, nodes, deviation, step):
        assert torch.equal((total / step).round() * step, total)  # on the grid
        self.exact = total.clone()
        return super()._noisy(total, nodes, deviation, step)


class TestRefused:
    def test_bfloat16(self):
        example = shares()[0].inputs[0]
        lower = differentiator(net(), cross_entropy, example, precision="bf16")
        with pytest.raises(ValueError, match="leave bf16 out"):
            UpdateOracle(
                PrivateData.of(shares()), lower, UpdateMechanism(1.0), Streams(0)
            )
