"""The real Lightning, where it is installed: `make integrations`."""

import importlib
import types

import pytest

import privaudit as pa
from privaudit.cli import main
from privaudit.integrations import opacus as ours
from privaudit.integrations.lightning import PrivacyCallback
from trainers.oracles.oracle import Oracle

lightning = pytest.importorskip("lightning")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own

DELTA = 1e-5
INPUTS = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
DATA = INPUTS, (INPUTS.sum(1) > 0).long()


def an_oracle(net):
    return pa.oracle(
        net,
        DATA,
        nodes=2,
        noise_multiplier=1.0,
        clip_norm=1.0,
        batch_size=10,
        seed=1,  # one in twenty alarms in 150 runs: 0 does, and not in 600
    )


class ByOracle(lightning.LightningModule):
    """A loop of one's own: averages noisy gradients of two nodes."""

    def __init__(self, fails_at=None, oracle=None):
        super().__init__()
        self.automatic_optimization = False
        self.net = torch.nn.Linear(5, 2)
        self.oracle = an_oracle(self.net) if oracle is None else oracle
        self.at = self.oracle.start
        self.fails_at = fails_at

    def training_step(self, batch, place):
        noisy = self.oracle.gradient(self.at)
        self.at = (self.at - 0.5 * noisy).mean(0).expand(2, -1)
        if place == self.fails_at:
            raise RuntimeError("out of memory")

    def configure_optimizers(self):
        return None


def trainer(*callbacks, epochs=3, **more):
    return lightning.Trainer(
        callbacks=list(callbacks),
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **more,
    )


class TestOracle:
    def test_epsilon_is_logged_and_the_folder_is_evidence(self, tmp_path, capsys):
        module = ByOracle()
        out = tmp_path / "run"
        callback = PrivacyCallback(module.oracle, out, delta=DELTA, epsilon=50.0)
        fit = trainer(callback)
        fit.fit(module, torch.utils.data.DataLoader(range(4), batch_size=1))
        # What dp-accounting says of the same: 12 steps at a rate of a tenth.
        theirs = pa.epsilon(
            delta=DELTA, noise_multiplier=1.0, sampling_rate=0.1, steps=12
        )
        logged = float(fit.callback_metrics["epsilon"])
        assert theirs.lower * 0.999 <= logged <= theirs.upper * 1.001
        told = pa.Certificate.of(module.oracle.ledger).epsilon(DELTA, sides="upper")
        assert logged >= told.upper  # though metrics are of single precision
        assert callback.result.certificate.standing == "certified"
        assert callback.result.says == {}
        assert callback.result.status == "consistent"
        assert pa.ledger_from(out / "ledger.json") == module.oracle.ledger
        for command in ("show", "verify", "report"):
            assert main([command, str(out)]) == 0
        assert "trained by Lightning 2." in capsys.readouterr().out

    def test_a_training_that_fails_leaves_its_ledger(self, tmp_path, capsys):
        module = ByOracle(fails_at=2)
        callback = PrivacyCallback(lambda m: m.oracle, tmp_path / "run", every=100)
        with pytest.raises(RuntimeError, match="out of memory"):
            trainer(callback).fit(module, torch.utils.data.DataLoader(range(4)))
        kept = pa.ledger_from(tmp_path / "run" / "ledger.json")
        assert kept.nodes[0][0].count == 3
        assert main(["show", str(tmp_path / "run")]) == 3

    def test_a_training_that_asks_for_nothing_has_no_certificate(self, tmp_path):
        class Unasked(ByOracle):
            def training_step(self, batch, place):
                return None

        module = Unasked()
        callback = PrivacyCallback(module.oracle, tmp_path / "run")
        with pytest.raises(ValueError, match="released nothing"):
            trainer(callback, epochs=1).fit(
                module, torch.utils.data.DataLoader(range(4))
            )
        assert not (tmp_path / "run" / "result.json").exists()

    def test_nothing_is_written_or_logged_unless_asked(self, tmp_path):
        module = ByOracle()
        callback = PrivacyCallback(module.oracle, log=None)
        fit = trainer(callback, epochs=1)
        fit.fit(module, torch.utils.data.DataLoader(range(4)))
        assert not fit.callback_metrics
        assert callback.result.certificate.standing == "certified"
        assert callback.ledger().nodes[0][0].count == 4

    def test_releases_before_the_fit_are_not_its_own(self, tmp_path):
        """Certified, 1.033 was said of a training by plain gradients."""
        module = ByOracle()
        module.oracle.gradient(module.at)
        plain = ByOpacus(module.net, torch.optim.SGD(module.net.parameters(), lr=0.1))
        for out in (None, tmp_path / "run"):
            callback = PrivacyCallback(module.oracle, out)
            fit = trainer(callback)
            with pytest.raises(ValueError, match="released nothing in this fit"):
                fit.fit(plain, LOADER)
            assert not fit.callback_metrics
            assert callback.result is None
        assert not (tmp_path / "run" / "result.json").exists()

    def test_other_processes_are_not_counted(self):
        """Of two, each with noise of its own, 3.593 was certified for 4.69."""
        module = ByOracle()
        callback = PrivacyCallback(module.oracle)
        two = types.SimpleNamespace(world_size=2)
        with pytest.raises(
            ValueError, match=r"the trainer has 2.* use Trainer\(devices"
        ):
            callback.on_train_start(two, module)
        callback._process = 0  # as a child, forked or begun anew, has it
        with pytest.raises(ValueError, match="or began another"):
            trainer(callback).fit(module, LOADER)


class ByOpacus(lightning.LightningModule):
    def __init__(self, net, optimizer):
        super().__init__()
        self.net, self.optimizer = net, optimizer

    def training_step(self, batch, place):
        inputs, targets = batch
        return torch.nn.functional.cross_entropy(self.net(inputs), targets)

    def configure_optimizers(self):
        return self.optimizer


LOADER = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(*DATA), batch_size=20
)


def private(**more):
    """A module that was made private, its loader and its engine."""
    opacus = pytest.importorskip("opacus")
    net = torch.nn.Linear(5, 2)
    engine = opacus.PrivacyEngine(accountant="rdp")
    net, optimizer, *_, loader = engine.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        max_grad_norm=1.0,
        **{"data_loader": LOADER, "noise_multiplier": 1.0, **more},
    )
    return ByOpacus(net, optimizer), loader, engine


class MadeLate(ByOpacus):
    """Makes itself private where Lightning asks for its optimizer."""

    def __init__(self):
        super().__init__(torch.nn.Linear(5, 2), None)
        self.engine = pytest.importorskip("opacus").PrivacyEngine()

    def configure_optimizers(self):
        self.net, optimizer, _ = self.engine.make_private(
            module=self.net,
            optimizer=torch.optim.SGD(self.net.parameters(), lr=0.1),
            data_loader=LOADER,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        return optimizer


LOSS = torch.nn.CrossEntropyLoss()
ADAPTIVE = {
    "clipping": "adaptive",
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 10.0,
    "min_clipbound": 0.1,
    "unclipped_num_std": 5.0,
}


class TestOpacus:
    def test_sums_are_counted(self, tmp_path):
        module, loader, engine = private()
        callback = PrivacyCallback(engine, tmp_path / "run", delta=DELTA)
        fit = trainer(callback, epochs=2)
        fit.fit(module, loader)
        assert engine.accountant.history == [(1.0, 0.1, 20)]
        assert callback.ledger().nodes == ours.ledger_of([(1.0, 0.1, 20)]).nodes
        assert set(callback.ledger().assumptions) == {ours.FLOATS, ours.WHOLE}
        logged = float(fit.callback_metrics["epsilon_conditional"])
        assert logged <= engine.get_epsilon(DELTA)
        assert "epsilon" not in fit.callback_metrics
        assert callback.result.says["RDP"] == engine.get_epsilon(DELTA)
        checked = pa.verify(tmp_path / "run")
        assert checked.differences == ()
        assert "with Opacus 1." in checked.found.lines()[0]

    def test_a_training_that_goes_on(self):
        module, loader, engine = private()
        first, again = PrivacyCallback(engine), PrivacyCallback(engine)
        for callback in (first, first, again):
            trainer(callback, epochs=1).fit(module, loader)
        nodes = ours.ledger_of(engine.accountant.history).nodes
        assert nodes == ours.ledger_of([(1.0, 0.1, 30)]).nodes == again.ledger().nodes
        assert ours.HISTORY in again.ledger().assumptions  # of what was before it
        assert ours.HISTORY not in first.ledger().assumptions
        assert first.ledger().nodes == ours.ledger_of([(1.0, 0.1, 20)]).nodes

    def test_a_plain_loader_is_refused(self, tmp_path):
        """Its batches are no Poisson samples: 3.592 was logged for at least 6.572."""
        module = MadeLate()
        callback = PrivacyCallback(lambda module: module.engine, tmp_path / "run")
        fit = trainer(callback)
        with pytest.raises(ValueError, match="not Poisson sampled"):
            fit.fit(module, LOADER)
        assert module.engine.accountant.history == []
        assert not fit.callback_metrics

    def test_another_private_loader_is_not_it(self):
        module, loader, engine = private()
        other = private()[1]

        class Swaps(ByOpacus):
            def training_step(self, batch, place):
                return super().training_step(next(self.others), place)

        swapped = Swaps(module.net, module.optimizer)
        swapped.others = iter(other)
        with pytest.raises(ValueError, match=r"loader drew no such|parts of"):
            trainer(PrivacyCallback(engine)).fit(swapped, loader)

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            (ADAPTIVE, "use clipping='flat' or 'per_layer'"),
            ({"grad_sample_mode": "ghost", "criterion": LOSS}, "mode='hooks'"),
        ],
    )
    def test_what_cannot_be_counted_is_refused(self, more, said):
        """Their history was taken: 3.593 of adaptive clipping that spent 6.4."""
        module, loader, engine = private(**more)
        self.refuses(PrivacyCallback(engine), module, loader, said)

    def refuses(self, callback, module, loader, said, **how):
        fit = trainer(callback, **how)
        with pytest.raises(ValueError, match=said):
            fit.fit(module, loader)
        return fit

    def test_optimizers_are_one_of_the_engine(self):
        module, loader, engine = private()
        callback = PrivacyCallback(engine)
        trainer(callback, epochs=1).fit(module, loader)
        optimizer = module.optimizer
        for other, said in (
            (optimizer.original_optimizer, "SGD clips, sums and adds is not known"),
            ([optimizer, optimizer.original_optimizer], "optimizers returned 2"),
        ):
            module.optimizer = other
            module.automatic_optimization = False
            for each in (callback, PrivacyCallback(engine)):
                fit = self.refuses(each, module, loader, said)
                assert not fit.callback_metrics

    def test_an_optimizer_that_is_another_later(self):
        module, loader, engine = private()

        class Changes(ByOpacus):
            def on_train_batch_end(self, *_):
                self.trainer.optimizers = [self.optimizer.original_optimizer]

        said = "optimizer is another than as this fit began"
        changes = Changes(module.net, module.optimizer)
        self.refuses(PrivacyCallback(engine), changes, loader, said)

    def test_steps_between_two_fits_are_missed(self):
        """4.690 was said for 5.151."""
        module, loader, engine = private()
        callback = PrivacyCallback(engine)
        trainer(callback, epochs=1).fit(module, loader)
        engine.accountant.step(noise_multiplier=1.0, sample_rate=0.1)
        self.refuses(callback, module, loader, "counted no step between")
        again = PrivacyCallback(engine)
        trainer(again, epochs=1).fit(module, loader)
        assert again.ledger().nodes == ours.ledger_of([(1.0, 0.1, 21)]).nodes

    def test_a_ledger_callback_that_is_finished(self, tmp_path):
        module, loader, _ = private()
        source = ours.LedgerCallback(module.optimizer, loader, tmp_path / "run")
        trainer(PrivacyCallback(source), epochs=1).fit(module, loader)
        source.finish()
        said = "the LedgerCallback released nothing in this fit"
        self.refuses(PrivacyCallback(source), module, loader, said)

    def test_parts_of_batches(self):
        """A trainer breaks off after as many as it expects."""
        module, loader, engine = private()
        manager = importlib.import_module("opacus.utils.batch_memory_manager")
        with manager.BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=8, optimizer=module.optimizer
        ) as small:
            said = r"in place of BatchMemoryManager's"
            self.refuses(PrivacyCallback(engine), module, small, said)

    def test_a_loader_that_is_another_later(self):
        """18 steps at a rate of a tenth were counted."""
        module, loader, engine = private()
        big = importlib.import_module("opacus.data_loader").DPDataLoader(
            LOADER.dataset, sample_rate=0.5
        )

        class Reloads(ByOpacus):
            def train_dataloader(self):
                return self.loaders.pop(0)

        for second, rates in ((big, [0.1, 0.5]), (LOADER, None)):
            reloads = Reloads(module.net, module.optimizer)
            reloads.loaders = [loader, second]
            callback = PrivacyCallback(engine)
            fit = trainer(callback, epochs=2, reload_dataloaders_every_n_epochs=1)
            if rates is None:
                with pytest.raises(ValueError, match="this DataLoader are not Poisson"):
                    fit.fit(reloads)
                continue
            fit.fit(reloads)
            entries = callback.ledger().nodes[0]
            assert [one.release.sampling.rate for one in entries] == rates

    def test_several_loaders(self):
        module, loader, engine = private()
        both = {"a": loader, "b": loader}
        said = "of this dict are not Poisson sampled.*give the one loader"
        self.refuses(PrivacyCallback(engine), module, both, said)

    def test_records_are_rows_of_the_first_tensor(self):
        class Named(torch.utils.data.TensorDataset):
            def __getitem__(self, place):
                x, y = super().__getitem__(place)
                return {"id": f"record {place}", "number": [3], "x": x, "y": y}

        class ByName(ByOpacus):
            def training_step(self, batch, place):
                return super().training_step((batch["x"], batch["y"]), place)

        module, loader, engine = private(
            data_loader=torch.utils.data.DataLoader(Named(*DATA), batch_size=20)
        )
        callback = PrivacyCallback(engine)
        trainer(callback, epochs=1).fit(ByName(module.net, module.optimizer), loader)
        assert callback.ledger().nodes == ours.ledger_of([(1.0, 0.1, 10)]).nodes

    def test_statistics_of_batches_beside_its_module(self):
        module, loader, engine = private()
        module.norm = torch.nn.BatchNorm1d(5)
        said = "layer norm: BatchNorm1d uses the statistics of the batch"
        self.refuses(PrivacyCallback(engine), module, loader, said)
        module.norm.eval()
        trainer(PrivacyCallback(engine), epochs=1).fit(module, loader)


def by_oracle(path):
    module = ByOracle(oracle=an_oracle(torch.nn.Linear(5, 2)))
    return module, torch.utils.data.DataLoader(range(4)), module.oracle


def by_opacus(path):
    return private()


class TestResumed:
    """What a checkpoint has released is in the ledger, or nothing is."""

    @pytest.mark.parametrize("make", [by_oracle, by_opacus])
    @pytest.mark.parametrize("known", [True, False])
    def test_what_is_not_in_the_ledger_is_missed(self, make, known, tmp_path):
        module, loader, source = make(tmp_path)
        callback = PrivacyCallback(source)
        fit = trainer(*[callback] * known, epochs=1)
        fit.fit(module, loader)
        fit.save_checkpoint(tmp_path / "kept")
        resumed = {"ckpt_path": tmp_path / "kept", "weights_only": False}
        # Whoever has them in the ledger goes on.
        on = trainer(callback, epochs=2)
        on.fit(module, loader, **resumed)
        counts = [entry.count for entry in callback.ledger().nodes[0]]
        assert sum(counts) == 2 * len(loader)
        module, loader, source = make(tmp_path)
        again = PrivacyCallback(source, tmp_path / "run")
        with pytest.raises(ValueError, match="the ledger has 0"):
            trainer(again, epochs=2).fit(module, loader, **resumed)
        assert not (tmp_path / "run").exists()


class TestRefused:
    def test_values(self, tmp_path):
        with pytest.raises(ValueError, match="every must be >= 1"):
            PrivacyCallback(None, every=0)
        with pytest.raises(ValueError, match="delta must be in"):
            PrivacyCallback(None, delta=0.0)
        with pytest.raises(ValueError, match=r"a neighbour relation is .* got 'x'"):
            PrivacyCallback(None, relation="x")
        with pytest.raises(ValueError, match="log must be a metric's name or None"):
            PrivacyCallback(None, log=3)

    def test_a_source_without_a_ledger(self):
        with pytest.raises(ValueError, match="got int"):
            PrivacyCallback(3).ledger()


class TestAudit:
    """A trainer's fit is the loop, run again and again."""

    @pytest.mark.parametrize(("part", "status"), [(1, "consistent"), (4, "refuted")])
    def test_with_an_oracle(self, part, status, monkeypatch):
        """Noise of which only a ``part`` is added is seen."""
        noisy = Oracle._noisy

        def less(self, total, nodes, deviation, step):
            return noisy(self, total, nodes, deviation / part, step)

        def loop(oracle):
            module = ByOracle(oracle=oracle)
            trainer(epochs=2).fit(module, torch.utils.data.DataLoader(range(4)))

        monkeypatch.setattr(Oracle, "_noisy", less)
        torch.manual_seed(0)  # the start decides: one honest audit in 20 may exceed
        oracle = an_oracle(torch.nn.Linear(5, 2))
        found = oracle.audit(loop, epsilon=6, runs=150)
        assert found.upper.epsilon <= 6
        assert found.status == status

    @pytest.mark.parametrize("status", ["refuted", "unproven"])
    def test_with_opacus(self, status):
        """Noise of which its optimizer adds a part alone is seen, whatever it says."""

        def train(seed, canary):
            torch.manual_seed(seed)
            module, loader, _ = private(noise_multiplier=4.0)
            if status == "refuted":
                too_little(module.optimizer)
            canary.on(module.optimizer, loader)
            trainer(epochs=2).fit(module, loader)

        found = ours.audit(train, epsilon=1.0, delta=DELTA, runs=30)
        assert not found.findings
        assert found.status == status


def too_little(optimizer):
    """Let ``optimizer`` add a fortieth of its noise."""

    def add():
        for p in optimizer.params:
            p.grad = p.summed_grad.view_as(p) + 0.1 * torch.randn_like(p)

    optimizer.add_noise = add
