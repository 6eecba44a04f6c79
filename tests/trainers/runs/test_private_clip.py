"""Clip norm by a private quantile: its counts, its price, and what is kept of it."""

import json
import math

import pytest
import torch
from torch import nn

import privaudit as pa
from privaudit.cli import main
from privaudit.ledger import Entry, Ledger
from privaudit.report.verify import verify
from trainers.numerics.randomness import Streams
from trainers.runs import private_clip
from trainers.runs import run as run_module
from trainers.runs.material import Material
from trainers.runs.private_clip import quantile_of
from trainers.runs.run import Keeper

SIZES = [60, 40]


def shares(scale=1.0):
    inputs = torch.randn(sum(SIZES), 4, generator=torch.Generator().manual_seed(0))
    targets = (inputs.sum(1) > 0).long()
    return list(zip((scale * inputs).split(SIZES), targets.split(SIZES), strict=True))


def net():
    torch.manual_seed(1)
    return nn.Linear(4, 2)


def trained(scale=1.0, algorithm="dp-dsgt", **more):
    given = {"epsilon": 4, "rounds": 10, "clip_quantile": 0.5, "seed": 0, **more}
    return pa.train(net(), shares(scale), algorithm, **given)


class TestSound:
    def test_counts_are_those_of_a_twin_and_move_by_one(self, monkeypatch):
        """Before the noise, of neighbours, records without a finite norm among them."""
        run, found = trained(), []
        monkeypatch.setattr(Streams, "noisy", lambda self, sums, *more: sums)
        oracle = run.config.problem(material=Material.own(net(), shares()))
        edges = 2.0 ** torch.arange(-16, 17, dtype=torch.float64)

        def counts(data):
            problem = run.config.problem(material=Material.own(net(), data))
            start = problem.start(0)
            return problem.oracle(0.0, Streams(0)).norm_counts(start, edges, 1.0)[0]

        assert oracle.counted == run.config.clip.noise_multiplier
        for factor in (1, 0, 300, math.nan):
            (x, y), other = shares()
            x = x.clone()
            x[0] *= factor
            found.append(counts([(x, y), other]))
            norms = []
            for record, target in zip(x, y, strict=True):
                module = net()
                nn.functional.cross_entropy(module(record), target).backward()
                norms.append(
                    torch.cat([p.grad.flatten() for p in module.parameters()]).norm()
                )
            finite = torch.stack(norms).double()
            finite = finite[finite.isfinite()]
            kinds = torch.bucketize(finite, edges)
            assert torch.equal(found[-1][0], torch.bincount(kinds, minlength=34))
        for one in found:
            for other in found:
                # A record changed: out of one count, into another one.
                moved = one - other
                assert moved.abs().max() <= 1
                assert moved.abs().sum() <= 2
        assert torch.equal(found[-1].sum(1), torch.tensor([59.0, 40.0]).double())

    def test_counts_have_the_noise_of_the_account(self):
        problem = trained().config.problem(material=Material.own(net(), shares()))
        edges = 2.0 ** torch.arange(-16, 480, dtype=torch.float64)  # empty, but a few
        oracle = problem.oracle(0.0, Streams(1))
        noise = oracle.norm_counts(problem.start(0), edges, 50.0)[0, :, 40:]
        assert noise.std() == pytest.approx(50, rel=0.1)  # of 914 numbers
        (entry,) = oracle.ledger.nodes[1]
        assert entry.release.noise == 50

    @pytest.mark.parametrize(
        "algorithm", ["dp-dsgt", "dp-sgd", "dp-dinno", "dp-decor", "dp-sync"]
    )
    @pytest.mark.sampled(3)
    def test_the_account_has_the_counts(self, algorithm):
        data = shares()
        if algorithm == "dp-sgd":
            data = [tuple(map(torch.cat, zip(*data, strict=True)))]
        run = pa.train(
            *(net(), data, algorithm),
            **{"epsilon": 4, "rounds": 10, "clip_quantile": 0.5, "seed": 0},
        )
        count = pa.Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=run.config.clip.noise_multiplier,
            sampling=pa.NoSampling(),
        )
        problem = run.config.problem(material=Material.own(net(), data))
        alone = run.config.training.family.planned(
            problem.setting, run.result.noise_multiplier
        )
        for had, planned in zip(run.ledger.nodes, alone.nodes, strict=True):
            assert had == (Entry(count), *planned)
        upper = run.certificate.epsilon(1e-5).upper
        assert 3.98 < upper <= 4
        by_hand = Ledger(nodes=((Entry(count), *alone.nodes[0]),))
        assert upper >= pa.epsilon(ledger=by_hand, delta=1e-5).upper * 0.999
        # Of which the training alone leaves a part.
        assert pa.epsilon(ledger=alone, delta=1e-5).upper < 3.9

    def test_nodes_with_budgets_of_their_own(self):
        run = trained(epsilon=[4, 1])
        spent = [node.epsilon for node in run.result.nodes]
        assert spent == pytest.approx([4, 1], rel=0.01)
        assert all(own <= most for own, most in zip(spent, (4, 1), strict=True))


class TestUse:
    @pytest.mark.full
    def test_gradients_of_another_scale(self):
        """Of a loss in other units: a clip of 1 is all noise."""

        def loss(outputs, targets):
            return 1e-3 * nn.functional.mse_loss(outputs, targets)

        data = [(x, x.sum(1, keepdim=True)) for x, _ in shares()]
        losses = []
        for more in ({}, {"clip_quantile": 0.5}):
            run = pa.train(
                *(nn.Linear(4, 1), data),
                **{"epsilon": 8, "loss": loss, "test": data[0]},
                **{"seed": 0, "rounds": 30, **more},
            )
            losses.append(1e3 * run.result.loss)
        assert run.config.training.clip_norm < 0.02
        assert losses[1] < 1 < losses[0]

    def test_steps_stay_as_long(self):
        plain, found = trained(clip_quantile=None), trained()
        lengths = [
            run.config.training.step_size * run.config.training.clip_norm
            for run in (plain, found)
        ]
        assert lengths[0] == pytest.approx(lengths[1], rel=0.1)
        assert trained(step_size=0.3).config.training.step_size == 0.3

    def test_empty_counts_do_not_add_up(self):
        noise = torch.randn(300, 33, generator=torch.Generator().manual_seed(0)) * 10
        noise[:, 15] += 300
        found = [quantile_of(one.tolist(), 0.5, 10.0) for one in noise]
        assert sum(0.25 <= one <= 0.5 for one in found) > 280

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ({"clip_norm": 1.0}, "leave clip_norm or clip_quantile out"),
            ({"clip_quantile": 1.0}, r"clip_quantile must be in \(0, 1\)"),
            ({"epsilon": None, "noise_multiplier": 1.0}, "give epsilon, or clip_norm"),
            ({"canaries": 20}, "found by one process"),
            ({"algorithm": "dsgt", "epsilon": None}, "clips something else"),
            ({"algorithm": "dp-fedavg", "options": {}}, "clips something else"),
        ],
    )
    def test_what_cannot_be_is_refused(self, more, said):
        with pytest.raises(ValueError, match=said):
            trained(**more)


class TestEvidence:
    def test_a_folder_is_checked_and_proved(self, tmp_path, capsys):
        run = trained()
        assert "which the account has" in run.result.remarks[-1]
        out = tmp_path / "run"
        run.save(out)
        assert main(["verify", str(out), "--kernel"]) == 0
        assert "proved by the kernel" in capsys.readouterr().out
        found = verify(out, settings=True)
        assert not found.differences
        assert "the ledger against the settings" in found.checked
        file = out / "config.json"
        (out / "manifest.json").unlink()
        whole = json.loads(file.read_text())
        for forged in (None, {**whole["clip"], "noise_multiplier": 60.0}):
            file.write_text(json.dumps({**whole, "clip": forged}))
            assert verify(out, settings=True).differences, forged

    def test_a_run_that_goes_on_counts_once(self, tmp_path, monkeypatch):
        monkeypatch.setattr(run_module, "KEEP_EVERY", 0.0)
        monkeypatch.setattr(run_module, "KEEP_SHARE", math.inf)
        made, find, keep = [], private_clip._found, Keeper.keep

        def stopped(self, now, middle):
            keep(self, now, middle)
            if now == 5 and len(made) == 1:
                made.append("stopped")
                raise KeyboardInterrupt

        monkeypatch.setattr(Keeper, "keep", stopped)
        monkeypatch.setattr(
            private_clip, "_found", lambda *x: made.append("found") or find(*x)
        )
        with pytest.raises(KeyboardInterrupt):
            trained(seed=None, out=tmp_path / "run")
        run = trained(seed=None, out=tmp_path / "run")
        assert made == ["found", "stopped"]
        assert [entry.count for entry in run.ledger.nodes[0]] == [1, 10]
