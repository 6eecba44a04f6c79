"""Kinds of models and data that users have: numbers, tokens, images, frozen parts."""

import math

import pytest
import torch
from torch import nn

import privaudit as pa


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class Attention(nn.Module):
    """Tokens to classes by one layer of self-attention over a record's positions."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.mixed = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, 2)

    def forward(self, tokens):
        found = self.embed(tokens)
        found, _ = self.mixed(found, found, found, need_weights=False)
        return self.out(found.mean(1))


class Recurrent(nn.Module):
    """Tokens to classes by an LSTM."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.states = nn.LSTM(8, 8, batch_first=True)
        self.out = nn.Linear(8, 2)

    def forward(self, tokens):
        found, _ = self.states(self.embed(tokens))
        return self.out(found[:, -1])


def tokens():
    """Class 1 where a text has more of the upper ten tokens."""
    texts = torch.randint(0, 20, (160, 4), generator=generator())
    texts[:, -1] = torch.randint(0, 2, (160,), generator=generator(1)) * 10 + 5
    return texts, (texts[:, -1] >= 10).long()


def images():
    """Which half of an image is bright."""
    bright = torch.randint(0, 2, (160,), generator=generator())
    shade = torch.zeros(160, 1, 8, 8)
    shade[bright == 1, :, :, 4:] = 1.0
    shade[bright == 0, :, :, :4] = 1.0
    return shade + 0.1 * torch.randn(160, 1, 8, 8, generator=generator(1)), bright


def numbers():
    inputs = torch.randn(160, 5, generator=generator())
    return inputs, (inputs @ torch.tensor([1.0, -1.0, 0.5, 0.0, 2.0]))[:, None]


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 2),
    )


def trained(model, data, **changes):
    torch.manual_seed(0)
    how = {"nodes": 2, "epsilon": 60, "rounds": 40, "batch_size": 20, "seed": 0}
    how |= {"test": data, "graph": "ring", **changes}
    return pa.train(model(), data, **how)


@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "data"),
    [(Attention, tokens), (Recurrent, tokens), (cnn, images)],
)
def test_classes_are_learnt(model, data):
    run = trained(model, data(), optimiser="adam", step_size=0.02)
    assert run.result.accuracy > 0.85
    assert run.certificate.epsilon(1e-5).upper <= 60


@pytest.mark.full
def test_a_regression_is_learnt():
    loss = nn.functional.mse_loss
    runs = [
        trained(
            lambda: nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)),
            numbers(),
            loss=loss,
            step_size=0.05,
            rounds=rounds,
            optimiser="momentum",
        )
        for rounds in (2, 60)
    ]
    assert runs[1].result.loss < 0.5 * runs[0].result.loss


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("model", "data"), [(Attention, tokens), (Recurrent, tokens), (cnn, images)]
)
def test_users_of_all_kinds(model, data):
    run = trained(model, data(), unit="user", rounds=3)
    assert run.ledger.unit == "user"
    assert math.isfinite(run.certificate.epsilon(1e-5).upper)


class LowRank(nn.Module):
    """A frozen linear layer, and a trained product of rank 2 (Hu et al. 2022, LoRA)."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(0.1 * torch.randn(2, layer.in_features))
        self.up = nn.Parameter(torch.zeros(layer.out_features, 2))

    def forward(self, inputs):
        return self.layer(inputs) + inputs @ self.down.T @ self.up.T


class TestFineTuning:
    def adapted(self):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 1))
        net.requires_grad_(False)
        net[0], net[2] = LowRank(net[0]), LowRank(net[2])
        return net

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("unit", ["record", "user"])
    def test_adapters_move_and_what_is_frozen_does_not(self, unit):
        begun, loss = self.adapted(), nn.functional.mse_loss
        run = trained(self.adapted, numbers(), loss=loss, rounds=5, unit=unit)
        for model in run.models:
            for name, value in model.named_parameters():
                before = begun.get_parameter(name)
                assert torch.equal(value, before) == (".layer." in name)

    def test_it_is_the_adapters_alone_that_get_noise(self):
        oracle = pa.oracle(
            self.adapted(),
            numbers(),
            nodes=2,
            loss=nn.functional.mse_loss,
            noise_multiplier=1.0,
            clip_norm=1.0,
            batch_size=10,
        )
        trained = 2 * 5 + 12 * 2 + 2 * 12 + 1 * 2
        assert oracle.start.shape == (2, trained)

    @pytest.mark.full
    def test_it_learns(self):
        loss = nn.functional.mse_loss
        how = {"loss": loss, "step_size": 0.05, "optimiser": "adam"}
        before, after = (
            trained(self.adapted, numbers(), rounds=rounds, **how).result.loss
            for rounds in (1, 60)
        )
        assert after < 0.7 * before
