"""A user's own model and loss, against the plain loop over records."""

import os
import random
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trainers.gradients.bookkeeping import BookKeeping
from trainers.gradients.choose import differentiator
from trainers.gradients.door.enter import enter
from trainers.gradients.door.trace import trace
from trainers.gradients.per_sample import parameter_places, parameter_vector
from trainers.models import cross_entropy
from trainers.models.own import replace_batch_norm
from trainers.runs.material import Material


class Averages(nn.Module):
    """Subtracts a mean that it keeps, slowly enough for outputs not to show it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.register_buffer("mean", torch.zeros(5))

    def forward(self, inputs):
        with torch.no_grad():
            self.mean.lerp_(inputs.mean(0), 1e-6)
        return self.linear(inputs - self.mean)


class Draws(nn.Linear):
    """Adds a random number too small to show."""

    def __init__(self):
        super().__init__(5, 3)

    def forward(self, inputs):
        return super().forward(inputs) + 1e-9 * torch.randn(3)


def rows(size=9, width=5, seed=0):
    return torch.randn(size, width, generator=torch.Generator().manual_seed(seed))


def by_loop(module, loss, inputs, targets):
    """Sum of the records' gradients, one by one, by torch alone."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in parameters]
    for record, target in zip(inputs, targets, strict=True):
        value = loss(module(record[None]), target[None])
        for sum_, part in zip(
            total, torch.autograd.grad(value.sum(), parameters), strict=True
        ):
            sum_ += part
    return torch.cat([part.flatten() for part in total])


def summed(module, loss, inputs, targets):
    taken = enter(module, loss, inputs[0], targets[0])
    gradients = differentiator(taken.module, taken.loss, inputs[0], targets[0])
    at = parameter_vector(module)[None]
    result = gradients.weighted_sum(at, inputs[None], targets[None], torch.ones_like)
    return result[0].float(), gradients


CLASSES = torch.arange(9) % 4
LOSSES = {
    "none given": (None, CLASSES, 4),
    "the mean of a batch": (functional.cross_entropy, CLASSES, 4),
    "a module": (nn.CrossEntropyLoss(label_smoothing=0.1), CLASSES, 4),
    "a sum": (nn.MSELoss(reduction="sum"), rows(9, 4, 1), 4),
    "one number a record": (
        lambda o, t: (o - t).abs().sum(1),
        rows(9, 4, 1),
        4,
    ),
    "a regression": (functional.mse_loss, rows(9, 1, 1), 1),
    "code that looks at values": (
        lambda o, t: (
            (o - t).square().sum() * (2 if float(o.sum().detach()) > 9e9 else 1)
        ),
        rows(9, 4, 1),
        4,
    ),
}


class TestLosses:
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("name", LOSSES)
    def test_gradients_are_those_of_the_loop(self, name):
        loss, targets, outputs = LOSSES[name]
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, outputs))
        found, _ = summed(module, loss, rows(), targets)
        expected = by_loop(module, loss or functional.cross_entropy, rows(), targets)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    def test_tokens(self):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Embedding(11, 4), nn.Linear(4, 11))
        tokens = torch.randint(11, (9, 6))

        def loss(outputs, targets):
            return functional.cross_entropy(outputs.transpose(1, 2), targets)

        found, _ = summed(module, loss, tokens, tokens.roll(1, 1))
        expected = by_loop(module, loss, tokens, tokens.roll(1, 1))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    def test_cross_entropy_is_the_fast_one(self):
        for loss in (None, functional.cross_entropy):
            taken = enter(nn.Linear(5, 4), loss, rows()[0], CLASSES[0])
            assert taken.loss is cross_entropy

    @pytest.mark.parametrize(
        ("loss", "said"),
        [
            (lambda o, t: (o - o.mean(0)).square().sum(), "records alone"),
            (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 9, 1, 1])), "class weights"),
            (lambda o, t: o, "4 numbers for one record"),
            (lambda o: o.sum(), "positional argument"),
            (lambda o, t: 3.0, "not a tensor of floats"),
        ],
    )
    def test_what_is_no_records_own_is_refused(self, loss, said):
        torch.manual_seed(0)  # outputs of which losses may be near each other
        with pytest.raises(ValueError, match=said):
            enter(nn.Linear(5, 4), loss, rows()[0], CLASSES[0])


class TestRows:
    @pytest.mark.parametrize(
        "module",
        [nn.LayerNorm((3, 5)), nn.Conv1d(3, 3, 1), nn.AvgPool1d(1)],
        ids=lambda module: type(module).__name__,
    )
    def test_layers_take_one_record_as_they_take_three(self, module):
        """Of three rows, which a trial has, the first two make something of all."""
        net = nn.Sequential(module, nn.Linear(5, 2))
        if isinstance(module, nn.AvgPool1d):
            enter(net, None, rows()[0], CLASSES[0])
            return
        with pytest.raises(ValueError, match=r"cannot take inputs of shape \(5,\)"):
            enter(net, None, rows()[0], CLASSES[0])


class TestFrozen:
    @pytest.mark.parametrize("whole", [True, False])
    def test_frozen_parameters_have_no_place(self, whole):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4))
        module[0].weight.requires_grad_(False)
        module[0].bias.requires_grad_(not whole)
        found, gradients = summed(module, None, rows(), CLASSES)
        places = parameter_places(module)
        assert "0.weight" not in places
        assert isinstance(gradients, BookKeeping) == whole  # half a layer is not known
        expected = by_loop(module, functional.cross_entropy, rows(), CLASSES)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 4)

    def forward(self, inputs):
        return self.inner(inputs - inputs.mean(0))


class By(nn.Linear):
    """A layer times what a function draws, of what another makes of the inputs."""

    def __init__(self, draw, before=None):
        super().__init__(5, 4)
        self.draw, self.before = draw, before

    def forward(self, inputs):
        inputs = self.before(inputs) if self.before else inputs
        return super().forward(inputs) * float(self.draw())


class Hooked(nn.Linear):
    """A layer, and behind it one of `HOOKED`."""

    def __init__(self, name):
        super().__init__(5, 4)
        self.name = name

    def forward(self, inputs):
        return HOOKED[self.name](super().forward(inputs).tanh())


class Twice(torch.autograd.Function):
    """A gradient that is twice as large."""

    @staticmethod
    def forward(_, x):
        return x

    @staticmethod
    def backward(_, gradient):
        return 2 * gradient


def _on_a_tensor(x):
    x.register_hook(lambda gradient: 3 * gradient)
    return x


def _on_a_grad_fn(x):
    x.grad_fn.register_hook(lambda inputs, _: (3 * inputs[0],))
    return x


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x


def _saved(*hooks):
    def squared(x):
        with torch.autograd.graph.saved_tensors_hooks(*hooks):
            return x.square()

    return squared


def _saved_on_the_cpu(x):
    with torch.autograd.graph.save_on_cpu():
        return x.square()


TORCHS = {
    "checkpointed": lambda x: checkpoint(torch.square, x, use_reentrant=False),
    "saved on the CPU": _saved_on_the_cpu,
}
HOOKED = {
    "on a tensor": _on_a_tensor,
    "on a grad_fn": _on_a_grad_fn,
    "on what is saved": _saved(lambda x: 2 * x, lambda x: x),
    "modules of torch's": _saved(nn.Sequential(Doubled()), nn.Identity()),
    **TORCHS,
}


def _scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would have people export
        return torch.jit.script(nn.Linear(5, 3))


class TestModels:
    def test_what_mixes_records_is_refused(self):
        said = (
            r"mixes the records of a batch: what inner \(Linear\) gets of one depends"
        )
        with pytest.raises(ValueError, match=said):
            enter(Mixing(), None, rows()[0], CLASSES[0])

    def test_what_is_another_model_as_a_copy_is_told(self):
        """A parameter's class may have code, which no copy of its numbers has."""

        class Doubled(nn.Parameter):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                found = super().__torch_function__(func, types, args, kwargs or {})
                return 2 * found if func is nn.functional.linear else found

        module = nn.Sequential(nn.Linear(5, 3))
        module[0].weight = Doubled(module[0].weight.detach())
        said = "another output .* 0.weight is a Doubled, whose code is left behind"
        with pytest.raises(ValueError, match=said):
            enter(module, None, rows()[0], torch.tensor(0))

    def test_large_outputs_that_cancel_mix_nothing(self):
        """Sums of a batch are in another order, and zeros as wrong as terms are."""

        class Large(nn.Linear):
            def forward(self, inputs):
                made = super().forward(inputs) * torch.tensor([0.0, 1.0, 1.0])
                return made + 1e-3 * (len(inputs) > 1)

        module = Large(5, 3)
        with pytest.raises(ValueError, match="mixes the records"):
            enter(module, None, rows()[0], torch.tensor(0))
        module.weight.data *= 1e4
        assert enter(module, None, rows()[0], torch.tensor(0)).why_not is None

    @pytest.mark.parametrize(
        ("module", "said"),
        [
            (
                lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(5, 3)),
                "buffer",
            ),
            (lambda: Averages(), "in the buffer mean"),
            (lambda: Draws(), "draws random numbers"),
            # As one on a GPU, of which there is none.
            (lambda: nn.Linear(5, 3, device="meta"), "is on meta, and a record on cpu"),
            (lambda: nn.LazyLinear(3), "has no shape until the model is called"),
            (lambda: _scripted(), "stateless API"),
        ],
    )
    def test_what_keeps_something_of_records_is_refused(self, module, said):
        with pytest.raises(ValueError, match=said):
            enter(module(), None, rows()[0], CLASSES[0])

    def test_other_shapes_are_refused(self):
        with pytest.raises(ValueError, match=r"inputs of shape \(5,\)"):
            enter(nn.Linear(7, 2), None, rows()[0], CLASSES[0])
        with pytest.raises(ValueError, match=r"and torch\.int64, which is"):
            enter(nn.Linear(5, 2), None, torch.ones(5).long(), CLASSES[0])

    def test_labels_out_of_range(self):
        """In private data they count nothing; data to measure on are public."""
        shares = [(rows(), CLASSES), (rows(), CLASSES + 1)]
        found = Material.own(nn.Linear(5, 4), shares).shares[1].targets
        assert found.tolist() == [-100 if c == 3 else c + 1 for c in CLASSES.tolist()]
        with pytest.raises(ValueError, match="test has the label 4"):
            Material.own(nn.Linear(5, 4), shares[:1], test=shares[1])

    def test_batch_norm_is_replaced(self):
        block = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU())
        module = nn.Sequential(block, nn.BatchNorm2d(6, affine=False), nn.Flatten())
        with torch.no_grad():
            block[1].weight.fill_(2.0)
        found = replace_batch_norm(module, groups=4)
        assert isinstance(module[0][1], nn.BatchNorm2d)  # as it was
        norm = found[0][1]
        assert isinstance(norm, nn.GroupNorm)
        assert (norm.num_groups, norm.num_channels) == (3, 6)
        assert norm.weight.tolist() == [2.0] * 6
        assert not found[1].affine
        enter(nn.Sequential(found, nn.Flatten()), None, torch.ones(3, 5, 5), CLASSES[0])

    def test_of_one_number_a_channel_all_channels_are_normalised(self):
        """As by layer normalisation (Ba et al. 2016), not in groups of one number."""
        module = nn.Sequential(nn.Linear(5, 64), nn.BatchNorm1d(64))
        found = replace_batch_norm(module)
        hidden = found[0](rows(3))
        torch.testing.assert_close(found(rows(3)), functional.layer_norm(hidden, [64]))
        enter(found, None, rows()[0], CLASSES[0])

    def test_draws_of_numpys_and_pythons_are_each_records_own(self):
        numpy, python = np.random.default_rng(0), random.Random(0)
        for draw in (
            numpy.random,
            np.random.rand,
            python.random,
            random.random,
        ):
            taken = enter(By(draw), None, rows()[0], CLASSES[0])
            assert "random numbers of numpy's or Python's" in taken.why_not
            found = taken.module(rows())
            assert not found.equal(rows())
            assert found.flip(0).equal(taken.module(rows().flip(0)))

    def test_draws_by_a_generator_of_torchs_are_refused(self):
        generator = torch.Generator()
        model = By(lambda: 1.0, lambda x: x + torch.randn(5, generator=generator))
        with pytest.raises(ValueError, match=r"from a torch\.Generator of its own"):
            enter(model, None, rows()[0], CLASSES[0])

    def test_why_a_model_fails_in_its_process_is_said_once(self):
        model = By(lambda: 1.0, lambda x: torch.vmap(lambda row: float(row.sum()))(x))
        with pytest.raises(ValueError, match=r"float32: RuntimeError: vmap: It looks"):
            enter(model, None, rows()[0], CLASSES[0])

    def test_draws_that_nothing_can_repeat_are_refused(self):
        for draw in (
            lambda: np.random.default_rng().random(),
            lambda: random.SystemRandom().random(),
            lambda: os.urandom(1)[0],
        ):
            with pytest.raises(ValueError, match="numbers of the system's"):
                enter(By(draw), None, rows()[0], CLASSES[0])

    def test_a_compiled_model_is_traced_as_it_is_written(self):
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(5, 4), nn.Tanh())
        taken = enter(
            torch.compile(plain, backend="eager"), None, rows()[0], CLASSES[0]
        )
        assert taken.why_not is None
        torch.testing.assert_close(taken.module(rows()), plain(rows()))

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("how", HOOKED)
    def test_hooks_on_gradients_are_isolated_and_torchs_own_change_nothing(self, how):
        torch.manual_seed(0)
        model, inputs, targets = Hooked(how), rows()[:2], CLASSES[:2]
        why_not = enter(model, None, inputs[0], targets[0]).why_not
        assert "it changes" in why_not if how not in TORCHS else why_not is None
        found, _ = summed(model, None, inputs, targets)
        expected = by_loop(model, functional.cross_entropy, inputs, targets)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    def test_other_threads_take_gradients_of_their_own_while_one_traces(self):
        def elsewhere():
            x = torch.ones(2, requires_grad=True)
            x.register_hook(lambda gradient: 3 * gradient)
            Twice.apply(HOOKED["on what is saved"](x)).sum().backward()
            return x.grad

        def forward(x):
            with ThreadPoolExecutor(1) as pool:
                found.append(pool.submit(elsewhere).result())
            return x

        found = []
        trace(lambda _, x: forward(x), [], [], [torch.ones(1, 2)])
        torch.testing.assert_close(found[0], torch.full((2,), 24.0))

    @pytest.mark.parametrize("where", ["a parameter", "within torch's function"])
    def test_a_hook_that_no_graph_has_is_isolated(self, where):
        def far(a, b):
            if (found := a - b).requires_grad:
                found.register_hook(lambda gradient: 50 * gradient)
            return found.norm(dim=1)

        def loss(o, t):
            given = o, torch.zeros_like(o), torch.ones_like(o)
            triplet = functional.triplet_margin_with_distance_loss
            return triplet(*given, distance_function=far, margin=9.0)

        model = nn.Linear(5, 4)
        if where == "a parameter":
            loss = None
            model.weight.register_hook(lambda gradient: 50 * gradient)
        taken = enter(model, loss, rows()[0], CLASSES[0])
        assert "a hook on" in taken.why_not
        assert ("weight" in taken.why_not) is (loss is None)

    def test_maps_and_gradients_within_a_model_or_a_loss_are_isolated(self):
        squared = torch.func.grad(lambda row: row.square().sum())
        torch.manual_seed(0)
        model = By(lambda: 1.0, lambda x: torch.vmap(squared)(x))
        taken = enter(model, None, rows()[0], CLASSES[0])
        assert "within itself" in taken.why_not
        torch.testing.assert_close(taken.module(rows()), model(rows()))
        taken = enter(
            nn.Linear(5, 4),
            lambda o, t: torch.vmap(squared)(o).mean(),
            rows()[0],
            CLASSES[0],
        )
        assert "within itself" in taken.why_not
