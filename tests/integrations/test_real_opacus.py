"""The real Opacus, where it is installed: `make integrations`."""

import importlib
import json

import pytest

import privaudit as pa
from privaudit.cli import main
from privaudit.integrations import opacus as ours
from privaudit.ledger import Ledger

opacus = pytest.importorskip("opacus")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")  # Opacus' own, of its random numbers

DELTA = 1e-5


def private(mode="hooks", *, noise=1.0, poisson=True, seed=0, workers=0, **more):
    """A small training, made private: module, optimizer, loss, loader, engine."""
    torch.manual_seed(seed)
    inputs = torch.randn(400, 5)
    data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
    module = torch.nn.Linear(5, 2)
    engine = opacus.PrivacyEngine(accountant="rdp")
    loss = torch.nn.CrossEntropyLoss()
    given = {"criterion": loss} if mode == "ghost" else {}
    made = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(
            data, batch_size=20, num_workers=workers
        ),
        noise_multiplier=noise,
        max_grad_norm=2.0,
        poisson_sampling=poisson,
        grad_sample_mode=mode,
        **given,
        **more,
    )
    module, optimizer, *own_loss, loader = made
    (loss,) = own_loss or [loss]
    return module, optimizer, loss, loader, engine


def steps(module, optimizer, loss, loader, count, after=lambda done: None):
    done = 0
    while done < count:
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss(module(inputs), targets).backward()
            optimizer.step()
            done += 1
            after(done)
            if done == count:
                break


class TestOneHundredSteps:
    def test_certified_beside_its_own_figures(self, tmp_path, capsys):
        *training, engine = private()
        steps(*training, 100)
        result = ours.write_run(engine, tmp_path / "run", delta=DELTA, epsilon=8.0)
        found = result.certificate
        rdp = engine.accountant.get_epsilon(DELTA)
        prv = opacus.accountants.PRVAccountant()
        prv.history = engine.accountant.history
        assert result.says["RDP"] == rdp
        # A proved bracket is at most what its Renyi divergences say, and within what
        # its privacy random variables say of their own error.
        assert found.lower <= found.upper <= rdp
        assert found.upper == pytest.approx(prv.get_epsilon(DELTA), abs=0.011)
        assert found.standing == "conditional"
        assert result.status == "unproven"  # what only may hold proves no claim
        assert pa.verify(tmp_path / "run").differences == ()
        for command in ("show", "verify", "report"):
            assert main([command, str(tmp_path / "run")]) == 0
        said = capsys.readouterr().out
        assert "Opacus 1." in said
        assert "conditional, no guarantee" in said
        assert "Poisson sampled" in (tmp_path / "run" / "report.html").read_text()


class TestCallback:
    def test_it_writes_what_the_engine_counts(self, tmp_path):
        module, optimizer, loss, loader, engine = private()
        out = tmp_path / "run"
        behind = []

        def after(done):
            there = Ledger.from_json((out / "ledger.json").read_bytes())
            behind.append(done - there.nodes[0][0].count)

        with ours.LedgerCallback(optimizer, loader, out, every=7) as callback:
            steps(module, optimizer, loss, loader, 45, after)
        assert len(behind) == 45
        assert max(behind) <= 0
        assert min(behind) > -7
        ((noise, rate, count),) = engine.accountant.history
        (entry,) = callback.ledger.nodes[0]
        assert (entry.count, entry.release.sampling.rate) == (count, rate)
        assert entry.release.noise / entry.release.norm_bound == noise
        assert pa.ledger_from(out / "ledger.json") == callback.ledger
        assert pa.verify(out).differences == ()
        assert ours.HISTORY not in callback.ledger.assumptions  # it saw the draws
        plain = pa.epsilon(ledger=pa.ledger_from(engine), delta=DELTA)
        assert callback.result.certificate.upper == pytest.approx(plain.upper)

    def test_it_changes_nothing(self, tmp_path):
        weights = []
        for watched in (False, True):
            module, optimizer, loss, loader, _ = private(seed=3)
            if watched:
                callback = ours.LedgerCallback(optimizer, loader, tmp_path / "run")
            steps(module, optimizer, loss, loader, 10)
            weights.append(torch.cat([p.flatten() for p in module.parameters()]))
        assert torch.equal(*weights)
        callback.finish()
        before = len(callback.ledger.nodes[0])
        steps(module, optimizer, loss, loader, 3)  # no longer watched
        assert len(callback.ledger.nodes[0]) == before

    def test_noise_that_changes(self, tmp_path):
        module, optimizer, loss, loader, engine = private()
        scheduler = opacus.schedulers.ExponentialNoise(optimizer, gamma=0.5)
        with ours.LedgerCallback(optimizer, loader, tmp_path / "run") as callback:
            for _ in range(3):
                steps(module, optimizer, loss, loader, 4)
                scheduler.step()
        found = [
            (entry.release.noise / 2.0, entry.release.sampling.rate, entry.count)
            for entry in callback.ledger.nodes[0]
        ]
        assert found == engine.accountant.history
        assert [noise for noise, *_ in found] == [1.0, 0.5, 0.25]

    def test_batches_that_are_summed_are_releases_of_their_own(self, tmp_path):
        """A record may be in both: their union is not a batch of twice the rate."""
        module, optimizer, loss, loader, engine = private()
        module.allow_grad_accumulation()  # what Opacus refuses until it is told
        with ours.LedgerCallback(optimizer, loader, tmp_path / "run") as callback:
            for place, (inputs, targets) in enumerate(loader):
                loss(module(inputs), targets).backward()
                if place % 2:
                    optimizer.step()
                    optimizer.zero_grad()
        (entry,) = callback.ledger.nodes[0]
        assert entry.count == 20
        assert entry.release.noise / 2.0 == pytest.approx(0.5**0.5)
        assert entry.release.sampling.rate == pytest.approx(0.05)
        assert engine.accountant.history == [(1.0, 0.1, 10)]

    def test_batches_in_parts_are_one(self, tmp_path):
        module, optimizer, loss, loader, engine = private()
        manager = importlib.import_module("opacus.utils.batch_memory_manager")
        with (
            manager.BatchMemoryManager(
                data_loader=loader, max_physical_batch_size=4, optimizer=optimizer
            ) as small,
            ours.LedgerCallback(optimizer, small, tmp_path / "run") as callback,
        ):
            for inputs, targets in small:
                optimizer.zero_grad()
                loss(module(inputs), targets).backward()
                optimizer.step()
        (entry,) = callback.ledger.nodes[0]
        assert engine.accountant.history == [(1.0, 0.05, entry.count)]
        assert entry.count == 20

    def test_skipped_steps(self, tmp_path):
        """Four Poisson batches a release: the engine counts one."""
        module, optimizer, loss, loader, engine = private()
        with ours.LedgerCallback(optimizer, loader, tmp_path / "run") as callback:
            for place, (inputs, targets) in enumerate(loader):
                optimizer.signal_skip_step(place % 4 < 3)
                optimizer.zero_grad()
                loss(module(inputs), targets).backward()
                optimizer.step()
        assert engine.accountant.history == [(1.0, 0.05, 5)]
        (entry,) = callback.ledger.nodes[0]
        assert entry.count == 20
        assert entry.release.noise / 2.0 == pytest.approx(0.5)
        # A record of all four batches is four norms away: a lower bound of its own.
        shown = pa.epsilon(
            delta=DELTA, noise_multiplier=0.25, sampling_rate=0.05**4, steps=5
        )
        assert callback.result.certificate.upper >= shown.lower

    @pytest.mark.parametrize("workers", [0, 2])
    def test_loaders_with_workers_draw_ahead(self, workers, tmp_path):
        module, optimizer, loss, loader, engine = private(workers=workers)
        with ours.LedgerCallback(optimizer, loader, tmp_path / "run") as callback:
            steps(module, optimizer, loss, loader, 45)
        ((_, rate, count),) = engine.accountant.history
        (entry,) = callback.ledger.nodes[0]
        assert (entry.count, entry.release.sampling.rate) == (count, rate)

    def test_a_batch_again(self, tmp_path):
        module, optimizer, loss, loader, _ = private()
        module.allow_grad_accumulation()
        with ours.LedgerCallback(optimizer, loader, tmp_path / "run") as callback:
            for inputs, targets in loader:
                optimizer.zero_grad()
                for _ in range(4):
                    loss(module(inputs), targets).backward()
                optimizer.step()
        (entry,) = callback.ledger.nodes[0]
        assert entry.count == 20
        assert entry.release.norm_bound == 8.0
        assert entry.release.noise == pytest.approx(2.0)

    def test_a_loop_that_fails_leaves_an_unfinished_run(self, tmp_path, capsys):
        module, optimizer, loss, loader, _ = private()
        out = tmp_path / "run"

        def fails(done):
            if done == 5:
                raise KeyboardInterrupt

        with (
            pytest.raises(KeyboardInterrupt),
            ours.LedgerCallback(optimizer, loader, out),
        ):
            steps(module, optimizer, loss, loader, 9, fails)
        assert main(["verify", str(out)]) == 3
        assert "was not finished, and cannot go on" in capsys.readouterr().err
        assert pa.ledger_from(out / "ledger.json").nodes[0][0].count >= 5
        with pytest.raises(ValueError, match="holds a run already"):
            ours.LedgerCallback(optimizer, loader, out)


class TestRefused:
    def test_shuffled_batches(self, tmp_path):
        _, optimizer, _, loader, _ = private(poisson=False)
        with pytest.raises(ValueError, match="not Poisson sampled"):
            ours.LedgerCallback(optimizer, loader, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_another_loader(self, tmp_path):
        module, optimizer, loss, loader, _ = private()
        plain = torch.utils.data.DataLoader(loader.dataset, batch_size=20)
        with (
            pytest.raises(ValueError, match="the data loader drew no such batch"),
            ours.LedgerCallback(optimizer, loader, tmp_path / "run"),
        ):
            steps(module, optimizer, loss, plain, 1)

    def test_ghost_clipping(self, tmp_path):
        _, optimizer, _, loader, _ = private("ghost")
        with pytest.raises(ValueError, match="use grad_sample_mode='hooks'"):
            ours.LedgerCallback(optimizer, loader, tmp_path / "run")

    def test_another_optimizer(self, tmp_path):
        module, _, _, loader, _ = private()
        plain = torch.optim.SGD(module.parameters(), lr=0.1)
        with pytest.raises(
            ValueError, match=r"that PrivacyEngine\.make_private returned"
        ):
            ours.LedgerCallback(plain, loader, tmp_path / "run")

    def test_noise_that_is_split(self, tmp_path):
        _, optimizer, _, loader, _ = private(
            clipping="adaptive",
            target_unclipped_quantile=0.5,
            clipbound_learning_rate=0.2,
            max_clipbound=10.0,
            min_clipbound=0.1,
            unclipped_num_std=5.0,
        )
        with pytest.raises(ValueError, match="does not have the count"):
            ours.LedgerCallback(optimizer, loader, tmp_path / "run")


def test_its_own_figures_are_no_evidence(tmp_path):
    """They are kept and shown, and no figure of ours depends on them."""
    *training, engine = private()
    steps(*training, 10)
    out = tmp_path / "run"
    ours.write_run(engine, out)
    result = json.loads((out / "result.json").read_text())
    assert set(result["says"]) == {"RDP", "PRV"}
    assert f"what {opacus.__name__.capitalize()}" in " ".join(pa.verify(out).unchecked)
