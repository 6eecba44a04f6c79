"""Gradient canaries: a plain loop, and a stand-in with Opacus' attributes.

Opacus itself is not among what the tests install: the stand-in has the methods of its
``DPOptimizer`` (1.6) that the adapter stands before, in the order it calls them.
"""

import math

import numpy as np
import pytest
import torch
from torch import nn

import privaudit as pa
from privaudit.auditing.programs.torch_loop import TOLD
from privaudit.integrations import opacus as opacus_audit
from privaudit.integrations import torch_loop
from tests.tiers import size

NOISE, STEPS = 2.0, 4


class DPOptimizer:
    """What Opacus' optimizer does, with an error where one is asked for."""

    def __init__(self, params, noise, generator, bug=""):
        self.params = list(params)
        self.noise_multiplier, self.max_grad_norm = noise, 1.0
        self.generator, self.bug = generator, bug

    @property
    def grad_samples(self):
        return [p.grad_sample for p in self.params]

    def clip_and_accumulate(self):
        norms = torch.stack(
            [g.flatten(1).norm(dim=1) for g in self.grad_samples], 1
        ).norm(dim=1)
        factor = (self.max_grad_norm / (norms + 1e-6)).clamp(max=1.0)
        if self.bug == "clip":
            factor = factor * 2
        for p in self.params:
            p.summed_grad = torch.einsum("i,i...", factor, p.grad_sample)

    def add_noise(self):
        scale = self.noise_multiplier * (0.5 if self.bug == "noise" else 1.0)
        for p in self.params:
            drawn = torch.randn(p.shape, generator=self.generator)
            p.grad = p.summed_grad + scale * drawn

    def step(self):
        self.clip_and_accumulate()
        self.add_noise()
        for p in self.params:
            p.data -= 0.05 * p.grad
            p.grad_sample = p.summed_grad = None


class Loader:
    """Batches of a data set, shuffled or by coins."""

    def __init__(self, shuffled):
        self.dataset, self.sample_rate = range(40), 0.25
        self.batch_sampler = self
        self.shuffled = shuffled

    def __len__(self):
        return 4

    def __iter__(self):
        if self.shuffled:
            yield from torch.randperm(40).view(4, 10).tolist()
        else:
            for _ in range(4):
                yield (torch.rand(40) < 0.25).nonzero().flatten().tolist()


def training(bug="", shuffled=False, rate=None):
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))

    def train(seed, canary):
        torch.manual_seed(seed)
        model, loader = nn.Linear(6, 3), Loader(shuffled)
        for p in model.parameters():
            p.grad_sample = p.summed_grad = None
        drawn = torch.Generator().manual_seed(seed)
        optimizer = DPOptimizer(model.parameters(), NOISE, drawn, bug)
        canary.on(optimizer, loader, sampling_rate=rate)
        for batch in loader:
            output = model(x[batch])
            error = torch.softmax(output, 1) - torch.eye(3)[0]
            model.weight.grad_sample = error[:, :, None] * x[batch][:, None]
            model.bias.grad_sample = error
            optimizer.step()

    return train


def gaussian_loop(noise, said=NOISE, rate=1.0, steps=STEPS):
    def train(seed, canary):
        random = torch.Generator().manual_seed(seed)
        for _ in range(steps):
            others = torch.randn(30, generator=random)
            total = canary.add(others, clip_norm=2.0, sampling_rate=rate)
            total = total + noise * 2.0 * torch.randn(30, generator=random)
            canary.see(total, noise_multiplier=said)

    return train


TRUTH = pa.epsilon(noise_multiplier=NOISE, steps=STEPS, delta=1e-5).upper


class TestLoop:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("canaries", [1, None])
    def test_right_noise_contradicts_nothing_and_nearly_all_is_shown(self, canaries):
        runs = 4000 if canaries is None else 1000
        found = torch_loop.audit(
            gaussian_loop(NOISE), epsilon=TRUTH, runs=runs, canaries=canaries
        )
        assert found.status == "unproven"
        assert not found.audited.verdict.account_contradicted
        assert found.upper.standing == "conditional"
        assert found.upper.assumes == (TOLD,)
        assert found.upper.epsilon == pytest.approx(TRUTH)
        assert (
            found.audited.beside.epsilon > (0.85 if canaries is None else 0.7) * TRUTH
        )
        assert 0.3 * TRUTH < found.lower.epsilon < found.audited.beside.epsilon
        assert not found.findings

    @pytest.mark.full
    @pytest.mark.sized
    def test_never_above_the_truth_too_often(self):
        above = 0
        for seed in range(size(12, 4)):
            found = torch_loop.audit(
                gaussian_loop(NOISE),
                epsilon=TRUTH,
                runs=300,
                seed=seed,
                confidence=0.9,
            )
            above += found.lower.epsilon > TRUTH
        # Of 12 or 4 at 10 %: more has a chance of 5e-4, or 1e-4.
        assert above <= size(5, 3)

    @pytest.mark.parametrize("canaries", [1, 30])
    @pytest.mark.parametrize("steps", [1, 2, 3, STEPS])
    @pytest.mark.parametrize("seeds", [1, 3])
    def test_of_trainings_that_share_their_noise_nothing_is_concluded(
        self, seeds, steps, canaries
    ):
        loop = gaussian_loop(NOISE, steps=steps)
        asked = {"epsilon": TRUTH, "runs": 400, "canaries": canaries}
        with pytest.raises(ValueError, match="had the same noise, so that no bound"):
            torch_loop.audit(lambda seed, canary: loop(seed % seeds, canary), **asked)
        assert torch_loop.audit(loop, **asked).findings == []

    def test_few_numbers_that_agree_by_chance_are_no_finding(self):
        """One number in single precision is one of some 2^24."""

        def loop(seed, canary):
            total = canary.add(torch.zeros(1), clip_norm=1.0, sampling_rate=1.0)
            noise = torch.randn(1, generator=torch.Generator().manual_seed(seed))
            canary.see(total + noise, noise_multiplier=1.0)

        assert torch_loop.audit(loop, epsilon=5.0, runs=10_000).findings == []

    def test_noise_that_was_forgotten_is_a_finding_and_refuted(self):
        found = torch_loop.audit(gaussian_loop(0.0, NOISE), epsilon=0.5, runs=400)
        assert found.findings == ["noise: there was no noise where some was said"]
        assert found.status == "refuted"
        assert found.upper is None

    def test_each_training_releases_the_same(self):
        """The account would be that of the first, and nobody's else."""
        one, other = gaussian_loop(NOISE), gaussian_loop(NOISE, steps=STEPS + 1)
        for late in (other, gaussian_loop(NOISE, said=NOISE + 1)):

            def loop(seed, canary, late=late):
                (late if seed else one)(seed, canary)

            with pytest.raises(ValueError, match="where the first made 4, or with"):
                torch_loop.audit(loop, epsilon=TRUTH, runs=100)

    @pytest.mark.full
    def test_half_the_noise_is_refuted_for_any_mechanism(self):
        loop = gaussian_loop(NOISE / 3, NOISE)
        found = torch_loop.audit(loop, epsilon=TRUTH, runs=2000, canaries=1)
        assert found.status == "refuted"
        assert found.lower.valid_for == "any mechanism"

    def test_half_the_noise_contradicts_the_account_from_fewer_runs(self):
        """Within its family alone, which nobody knows that the loop is of."""
        loop = gaussian_loop(NOISE / 2, NOISE)
        found = torch_loop.audit(loop, epsilon=TRUTH, runs=1000)
        assert found.status == "unproven"
        assert found.audited.beside.epsilon > TRUTH > found.lower.epsilon
        assert found.audited.verdict.account_contradicted

    def test_another_account_is_a_finding(self):
        release = pa.Release.of_sum(
            norm_bound=1.0, noise_multiplier=3.0, sampling=pa.PoissonSampling(1.0)
        )
        found = torch_loop.audit(
            gaussian_loop(NOISE),
            epsilon=TRUTH,
            runs=64,
            ledger=pa.Ledger.of(release, STEPS),
        )
        (finding,) = found.findings
        assert "noise multiplier 2" in finding
        assert "noise multiplier 3" in finding

    def test_canaries_of_one_training_are_no_runs_for_any_mechanism(self):
        found = torch_loop.audit(gaussian_loop(NOISE), epsilon=TRUTH, runs=300)
        assert found.lower.method == "one-run"
        assert "steps and directions" in found.audited.beside.valid_for

    @pytest.mark.parametrize(
        ("train", "why"),
        [
            (lambda seed, canary: None, "released nothing that the canary saw"),
            (
                lambda seed, canary: canary.see(torch.zeros(2), noise_multiplier=1),
                "without canary.add",
            ),
            (
                lambda seed, canary: [
                    canary.add(torch.zeros(2), clip_norm=1, sampling_rate=1)
                    for _ in range(2)
                ],
                "called twice",
            ),
            (
                lambda seed, canary: canary.add(
                    torch.zeros(2), clip_norm=1, sampling_rate=7
                ),
                "sampling_rate must be in",
            ),
        ],
    )
    def test_wrong_use_is_named(self, train, why):
        with pytest.raises(ValueError, match=why):
            torch_loop.audit(train, epsilon=1.0)

    def test_too_many_canaries(self):
        with pytest.raises(ValueError, match="need as many parameters"):
            torch_loop.audit(gaussian_loop(NOISE), epsilon=1.0, canaries=31)
        with pytest.raises(ValueError, match="canaries must be >= 1 and <= runs"):
            torch_loop.audit(gaussian_loop(NOISE), epsilon=1.0, runs=5, canaries=20)


class TestOpacus:
    def test_right_contradicts_nothing(self):
        epsilon = pa.epsilon(
            noise_multiplier=NOISE, sampling_rate=0.25, steps=4, delta=1e-5
        ).upper
        found = opacus_audit.audit(training(), epsilon=epsilon, runs=2100)
        assert found.status == "unproven"
        assert found.upper.standing == "conditional"
        assert not found.audited.verdict.account_contradicted
        assert not found.findings
        assert found.upper.epsilon == pytest.approx(epsilon)
        assert found.audited.beside.epsilon > 0.5 * epsilon

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("bug", ["noise", "clip"])
    def test_bugs_of_the_optimizer_contradict_its_account(self, bug):
        epsilon = pa.epsilon(
            noise_multiplier=NOISE, sampling_rate=0.25, steps=4, delta=1e-5
        ).upper
        found = opacus_audit.audit(training(bug), epsilon=epsilon, runs=2100)
        assert found.status == "unproven"
        assert found.audited.verdict.account_contradicted

    def test_a_shuffled_loader_is_found(self):
        found = opacus_audit.audit(training(shuffled=True), epsilon=2.0, runs=42)
        assert "batches are shuffled, not Poisson sampled" in found.findings[0]
        assert found.status == "unproven"  # the account is of Poisson batches
        assert found.upper is None

    def test_what_cannot_be_audited(self):
        canary = opacus_audit.OpacusCanary(np.array([True]), 0)
        with pytest.raises(ValueError, match="planted in an Opacus optimizer"):
            canary.on(torch.optim.SGD([torch.zeros(1)], lr=1))
        optimizer = DPOptimizer([torch.zeros(1)], 1.0, None)
        with pytest.raises(ValueError, match="give the private data loader"):
            canary.on(optimizer)
        optimizer.max_grad_norm = [1.0, 2.0]
        others = ("PerLayerOptimizer", "OptimizerFastGradientClipping")
        kinds = [type(f"DP{name}", (DPOptimizer,), {}) for name in others]
        kinds.append(type("AdaClipDPOptimizer", (DPOptimizer,), {}))
        made = [kind([torch.zeros(1)], 1.0, None) for kind in kinds]
        for one in (optimizer, *made):
            with pytest.raises(ValueError, match="needs flat clipping"):
                canary.on(one, sampling_rate=0.1)

    def test_black_box_scores(self):
        scores_of = opacus_audit.loss_scores(
            lambda seed, member: 3.0 if member else 1.0, lambda model: -model
        )
        found = pa.audit(scores_of, epsilon=0.1, runs=200)
        assert found.status == "refuted"


class TestLoader:
    def test_coins_pass(self):
        for seed in range(20):
            torch.manual_seed(seed)
            assert torch_loop.probe_loader(Loader(False)).status == "ok"

    def test_another_rate_is_found(self):
        check = torch_loop.probe_loader(Loader(False), sampling_rate=0.1)
        assert "0.1 is accounted" in check.findings[0]

    def test_torchs_own_loaders(self):
        data = torch.utils.data.TensorDataset(torch.zeros(60, 1))
        for options in ({"shuffle": True}, {}, {"shuffle": True, "drop_last": True}):
            loader = torch.utils.data.DataLoader(data, batch_size=7, **options)
            (finding,) = torch_loop.probe_loader(loader).findings[:1]
            assert "shuffled" in finding or "fixed size" in finding

    def test_coins_of_one_pass_are_found(self):
        torch.manual_seed(0)
        loader = Loader(False)
        loader.batch_sampler = list(loader)
        found = torch_loop.probe_loader(loader).findings
        assert "28 of 32 batches" in " ".join(found)

    @pytest.mark.parametrize("rate", [0, -1.0, 2, math.nan, "a"])
    def test_rates(self, rate):
        with pytest.raises(ValueError, match=r"sampling_rate must be .* in \(0, 1\]"):
            torch_loop.probe_loader(Loader(False), sampling_rate=rate)

    def test_what_has_no_batch(self):
        data = torch.utils.data.TensorDataset(torch.zeros(60, 1))
        loader = torch.utils.data.DataLoader(data, batch_sampler=[])
        with pytest.raises(ValueError, match="give sampling_rate"):
            torch_loop.probe_loader(loader)
        found = torch_loop.probe_loader(loader, sampling_rate=0.5).findings
        assert found == ("there was no batch at all",)
        loader = Loader(False)
        loader.dataset = []
        with pytest.raises(ValueError, match="data set is empty"):
            torch_loop.probe_loader(loader)

    def test_what_has_no_sampler(self):
        with pytest.raises(ValueError, match="this one has none"):
            torch_loop.probe_loader([[1, 2]])
