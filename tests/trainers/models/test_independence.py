"""How it is decided that a record's gradient is its own."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

from trainers.data.shares import shares_of
from trainers.gradients.per_sample import check_module
from trainers.models import make_model
from trainers.models.independence import independence, is_known
from trainers.models.own import replace_batch_norm
from trainers.models.registry import MODELS
from trainers.runs.material import Material


class Experts(nn.Module):
    """Two experts, each of which takes at most ``capacity`` records of a batch."""

    def __init__(self, capacity: int = 3) -> None:
        super().__init__()
        self.capacity = capacity
        self.experts = nn.ModuleList([nn.Linear(5, 2), nn.Linear(5, 2)])

    def forward(self, x):
        first = x[:, 0] > 0
        kept = (first.cumsum(0) <= self.capacity) & first
        return torch.where(kept[:, None], self.experts[0](x), self.experts[1](x))


class Late(nn.Module):
    """Keeps its records' mean, and uses it after 100 calls."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls, self.kept = nn.Linear(5, 2), 0, torch.zeros(5)

    def forward(self, x):
        self.calls += 1
        if self.calls > 100:
            self.kept = 0.9 * self.kept + 0.1 * x.detach().mean(0)
        return self.inner(x - self.kept)


class Flips(Dataset):
    """Flips a record by the global generator."""

    example = torch.zeros(5), 0

    def __init__(self) -> None:
        self.inputs = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return 40

    def __getitem__(self, row):
        return self.inputs[row] * (1 - 2 * torch.randint(2, ())), row % 2


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda layer, given, found: found - found.mean(0))
    return module


def replaced(module: nn.Module) -> nn.Module:
    was = module.forward
    module.forward = lambda x: was(x - x.mean(0))
    return module


LINEAR = nn.Linear(5, 2)
X = torch.randn(40, 5, generator=torch.Generator().manual_seed(1))
Y = (X.sum(1) > 0).long()
CENTRED = X.mean(0).clone()  # made of the records, in memory of its own
ARRAY = CENTRED.numpy()
MASK, LABEL = torch.ones(5, 5).tril(), Y[0].clone()


class TestSound:
    """Nothing that mixes records, or could, is known by construction."""

    @pytest.mark.parametrize("module", [Experts(), Late()], ids=["capacity", "late"])
    def test_code_that_was_not_traced_is_not_known(self, module):
        assert independence(module) == "by isolation"
        assert independence(nn.Sequential(nn.Flatten(), module)) == "by isolation"

    def test_what_mixes_from_a_few_records_on_is_refused(self):
        with pytest.raises(ValueError, match="mixes the records of a batch"):
            Material.own(Experts(), [(X, Y)])

    @pytest.mark.parametrize("module", [Experts(20), Late()], ids=["capacity", "late"])
    def test_what_shows_late_is_left_behind(self, module):
        material = Material.own(module, [(X, Y)])
        keeps = isinstance(module, Late)  # a tensor of zeros, of which nothing is known
        assert len(material.takes) == keeps
        assert material.independence.startswith("by construction")
        whole = material.module(X)
        for _ in range(200):
            material.module(100 * X)
        torch.testing.assert_close(material.module(X.flip(0)).flip(0), whole)

    @pytest.mark.parametrize(
        "module",
        [
            hooked(nn.Linear(5, 2)),
            nn.Sequential(hooked(nn.ReLU())),
            replaced(nn.Linear(5, 2)),
            type("Mine", (nn.Linear,), {})(5, 2),
            nn.utils.parametrizations.weight_norm(nn.Linear(5, 2)),
            nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (-1, 5))),
            nn.Softmax(0),
            nn.Softmax(-2),
            nn.BatchNorm1d(5),
            nn.InstanceNorm1d(5),
            nn.MultiheadAttention(4, 2),
            nn.TransformerEncoderLayer(4, 2),
            nn.LSTM(5, 2),
            nn.Dropout(0.5),
            nn.EmbeddingBag(5, 2),
            nn.Embedding(5, 2, scale_grad_by_freq=True),
        ],
        ids=lambda module: type(module).__name__,
    )
    def test_layers_that_may_mix_rows_are_not_known(self, module):
        assert independence(module) == "by isolation"

    def test_layers_that_somebody_patched_are_not_known(self, monkeypatch):
        net = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2))
        assert is_known(net)
        monkeypatch.setattr(nn.Tanh, "forward", lambda layer, x: x - x.mean(0))
        assert not is_known(net)

    @pytest.mark.parametrize(
        "setting", [torch.tensor(1e-5), np.float64(1e-5), type("Mine", (float,), {})()]
    )
    def test_settings_that_may_run_code_are_not_known(self, setting):
        """They are asked for in each call, which may be as many as a batch needs."""
        assert is_known(nn.LayerNorm(5, eps=1e-5))
        assert not is_known(nn.LayerNorm(5, eps=setting))
        assert not is_known(nn.Sequential(nn.Hardtanh(-1.0, setting)))

    def test_a_hook_on_a_parameter_is_seen(self):
        module = nn.Linear(5, 2)
        module.weight.register_hook(lambda gradient: gradient * 100)
        assert independence(module) == "by isolation"

    def test_own_losses_transforms_and_data_sets_are_not_known(self):
        assert independence(LINEAR, lambda outputs, targets: outputs) == "by isolation"
        wrapped = functools.wraps(functional.mse_loss)(lambda o, t: (o - o.mean()) ** 2)
        assert independence(LINEAR, wrapped) == "by isolation"
        assert independence(LINEAR, hooked(nn.MSELoss())) == "by isolation"
        assert independence(LINEAR, transform=lambda x: x) == "by isolation"
        assert independence(LINEAR, shares=shares_of([Flips()])) == "by isolation"
        assert Material.own(LINEAR, [Flips()]).independence == "by isolation"
        shares = [(X, Y)]
        given = Material.own(LINEAR, shares).with_transform(lambda x: x.flip(0))
        assert given.independence == "by isolation"

    @pytest.mark.parametrize(
        ("change", "takes"),
        [
            (lambda x: x - CENTRED, "a tensor of shape (5,) in aten.sub.Tensor ("),
            (lambda x: x - CENTRED.mean(), "a tensor of shape (5,) in aten.mean"),
            (lambda x: x * torch.tensor([1.0, 2, 3, 4, 5]), "a tensor of shape (5,) "),
            (lambda x: x - torch.from_numpy(ARRAY), "a tensor of shape (5,) "),
            (lambda x: x[:, CENTRED.argsort()], "a tensor of shape (5,) in aten."),
            (lambda x: x * 0.3081 - torch.tensor(0.1307), None),
            (lambda x: x @ torch.ones(5, 5).tril(), None),
            (lambda x: x @ MASK, "a tensor of shape (5, 5) in aten.matmul"),
            (lambda x: x * LABEL, "a tensor of shape () in aten.mul.Tensor ("),
            (lambda x: x + torch.arange(5) - torch.zeros(5), None),
        ],
    )
    def test_tensors_of_the_code_are_a_condition_by_name(self, change, takes):
        def forward(net, x):
            return functional.linear(change(x), net.weight)

        net = type("Net", (nn.Linear,), {"forward": forward})(5, 2)
        found = Material.own(net, [(X, Y)])
        assert [takes is None or word.startswith(takes) for word in found.takes] == (
            [] if takes is None else [True]
        )
        public = "by construction from public tensors"
        assert found.independence == ("by construction" if takes is None else public)

    def test_buffers_and_class_weights_are_a_condition(self):
        def forward(net, x):
            return functional.linear(x - net.mean, net.weight * net.scale)

        net = type("Net", (nn.Linear,), {"forward": forward})(5, 2)
        net.register_buffer("mean", X.mean(0))
        net.register_buffer("unused", X.mean(0))
        net.scale = nn.Parameter(torch.rand(5), requires_grad=False)
        loss = nn.CrossEntropyLoss(torch.tensor([0.3, 0.7]), reduction="sum")
        found = Material.own(net, [(X, Y)], loss=loss)
        mean, weights = found.takes
        assert mean == "the buffer mean of shape (5,)"
        assert weights.startswith("a tensor of shape (2,) in aten.cross_entropy_loss")
        assert found.independence == "by construction from public tensors"

    @pytest.mark.parametrize("frozen", [False, True])
    @pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
    def test_max_norm_is_refused_by_name(self, kind, frozen):
        layer = kind(5, 2, max_norm=1.0)
        layer.weight.requires_grad_(not frozen)
        with pytest.raises(ValueError, match="max_norm"):
            check_module(nn.Sequential(layer, nn.Linear(2, 2)))

    @pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
    def test_dropout_that_would_not_be_applied_is_refused(self, kind):
        layer = kind(3, 4, num_layers=2, dropout=0.5)
        with pytest.raises(ValueError, match="dropout between its layers"):
            check_module(layer, traced=True)
        check_module(layer.eval(), traced=True)


class TestTight:
    """What is known is not held back."""

    @pytest.mark.parametrize("name", list(MODELS))
    def test_models_by_name(self, name):
        shape = (3, 32, 32) if name not in ("lstm", "logistic") else (8, 8)
        assert independence(make_model(name, shape, 2)) == "by construction"

    def test_layers_of_torch_in_sequence(self):
        norm = replace_batch_norm(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
        net = nn.Sequential(
            *(norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            *(nn.Linear(4, 2), nn.LogSoftmax(1)),
        )
        shares = [(torch.randn(9, 3, 5, 5), torch.arange(9) % 2)]
        for loss in (None, functional.nll_loss, nn.NLLLoss()):
            found = Material.own(net, shares, loss=loss)
            assert found.independence == "by construction"

    def test_records_in_memory(self):
        shares = shares_of([(X, Y), TensorDataset(X, Y), (X.numpy(), Y.numpy())])
        assert independence(LINEAR, shares=shares) == "by construction"


class TestReason:
    """The faults that the condition stands for: they are there, and are not tried."""

    def test_capacity_moves_other_records(self):
        module = Experts()
        whole = module(X[X[:, 0] > 0][:6])
        less = module(X[X[:, 0] > 0][1:6])
        assert not torch.allclose(whole[1:], less)
