"""Ledgers from what Opacus keeps, without Opacus: its own shapes."""

import importlib.util
import types

import dp_accounting as dpa
import pytest

import privaudit as pa
from privaudit.accounting import events
from privaudit.cli import main
from privaudit.integrations import opacus
from privaudit.release import PoissonSampling

HISTORY = [(1.1, 0.01, 100), (0.9, 0.02, 50)]


def test_engine_accountant_and_history_are_one():
    accountant = types.SimpleNamespace(history=HISTORY)
    engine = types.SimpleNamespace(accountant=accountant)
    ledgers = {pa.ledger_from(each) for each in (HISTORY, accountant, engine)}
    assert len(ledgers) == 1
    (entries,) = ledgers.pop().nodes
    assert [entry.count for entry in entries] == [100, 50]
    assert [entry.release.noise for entry in entries] == [1.1, 0.9]
    assert entries[1].release.sampling == PoissonSampling(0.02)


def test_what_a_history_does_not_tell_is_assumed():
    found = pa.epsilon(ledger=pa.ledger_from(HISTORY), delta=1e-5)
    assert found.standing == "conditional"
    assert "Poisson" in str(found)


def test_its_account_is_that_of_the_same_events():
    step = [
        dpa.SelfComposedDpEvent(
            dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(noise)), steps
        )
        for noise, rate, steps in HISTORY
    ]
    theirs = dpa.pld.PLDAccountant()
    theirs.compose(dpa.ComposedDpEvent(step))
    ours = pa.epsilon(ledger=pa.ledger_from(HISTORY), delta=1e-5)
    assert ours.lower <= theirs.get_epsilon(1e-5) * (1 + 1e-4)
    assert ours.upper == pytest.approx(theirs.get_epsilon(1e-5), rel=2e-3)


@pytest.mark.parametrize("entry", [(-1, 0.1, 1), (1, 1.1, 1), (1, 0.1, 1.5)])
def test_numbers_out_of_range(entry):
    with pytest.raises(ValueError, match="entry 0 of an Opacus history"):
        pa.ledger_from([entry])


class TestFiles:
    def test_an_event(self, tmp_path):
        event = dpa.GaussianDpEvent(2.0)
        path = tmp_path / "event.json"
        path.write_text(events.to_json(event))
        assert pa.ledger_from(path) == pa.ledger_from(event)

    def test_a_ledger(self, tmp_path):
        ledger = pa.ledger_from(HISTORY)
        path = tmp_path / "ledger.json"
        path.write_text(ledger.to_json())
        assert pa.ledger_from(str(path)) == ledger

    @pytest.mark.parametrize(
        ("content", "said"),
        [("{}", "no ledger"), ("[", "truncated"), ('{"class_name": "X"}', "no event")],
    )
    def test_neither(self, tmp_path, content, said):
        path = tmp_path / "file.json"
        path.write_text(content)
        with pytest.raises(ValueError, match=f"file.json: .*{said}"):
            pa.ledger_from(path)

    def test_none(self, tmp_path):
        with pytest.raises(ValueError, match="cannot read"):
            pa.ledger_from(tmp_path / "none.json")
        with pytest.raises(ValueError, match="got float"):
            pa.ledger_from(3.0)


class DPOptimizer:
    """What the callback reads of Opacus' own, without torch."""

    noise_multiplier, max_grad_norm, accumulated_iterations = 1.5, 2.0, 1

    def __init__(self):
        self.seen = []
        self.step_hook = self.seen.append  # Opacus' accountant

    def attach_step_hook(self, hook):
        self.step_hook = hook

    def step(self, count=1):
        for _ in range(count):
            self.step_hook(self)


class UniformWithReplacementSampler:
    sample_rate = 0.02


LOADER = types.SimpleNamespace(batch_sampler=UniformWithReplacementSampler())


class TestCallback:
    """As in test_real_opacus.py, of which this is what runs anywhere."""

    def test_releases_are_those_of_the_optimizer(self, tmp_path):
        optimizer = DPOptimizer()
        with opacus.LedgerCallback(optimizer, LOADER, tmp_path / "run") as callback:
            optimizer.step(10)
            optimizer.noise_multiplier = 1.0
            optimizer.step(5)
            optimizer.accumulated_iterations = 4
            optimizer.step(3)
        found = [
            (entry.release.noise, entry.release.norm_bound, entry.count)
            for entry in callback.ledger.nodes[0]
        ]
        assert found == [(3.0, 2.0, 10), (2.0, 2.0, 5), (pytest.approx(1.0), 2.0, 12)]
        assert found[2][0] <= 1.0
        assert optimizer.seen == [optimizer] * 18
        assert pa.verify(tmp_path / "run").differences == ()
        assert pa.ledger_from(callback) == callback.ledger
        optimizer.step()
        assert len(optimizer.seen) == 19  # the accountant goes on alone

    def test_noise_is_written_before_the_accountant_and_the_step(self, tmp_path):
        optimizer = DPOptimizer()
        counts = []

        def count(_):
            kept = pa.ledger_from(tmp_path / "run" / "ledger.json")
            counts.append(sum(entry.count for entry in kept.nodes[0]))

        optimizer.step_hook = count
        with opacus.LedgerCallback(optimizer, LOADER, tmp_path / "run", every=1):
            optimizer.step(3)
        assert counts == [1, 2, 3]

    def test_what_is_refused(self, tmp_path):
        shuffled = types.SimpleNamespace(batch_sampler=object())
        for optimizer, loader, said in (
            (DPOptimizer(), shuffled, "not Poisson sampled"),
            (DPOptimizer(), None, "not Poisson sampled"),
            (object(), LOADER, "the noise of object is not known"),
            (type("Adaptive", (DPOptimizer,), {})(), LOADER, "write_run reads"),
        ):
            with pytest.raises(ValueError, match=said):
                opacus.LedgerCallback(optimizer, loader, tmp_path / "run")
        with pytest.raises(ValueError, match="delta must be in"):
            opacus.LedgerCallback(DPOptimizer(), LOADER, tmp_path / "run", delta=1.0)
        assert not (tmp_path / "run").exists()


class TestEventsOut:
    def test_the_command_writes_what_it_accounts(self, tmp_path, capsys):
        path = tmp_path / "event.json"
        run = ["--noise-multiplier", "1.1", "--sampling-rate", "0.01", "--steps", "50"]
        assert main(["epsilon", "--delta", "1e-5", *run, "--event", str(path)]) == 0
        said = capsys.readouterr().out
        # dp-accounting's own named tuples, read back by itself.
        event = events.from_json(path.read_text())
        step = dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.1))
        assert event == dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(step, 50)])
        assert main(["epsilon", "--delta", "1e-5", "--ledger", str(path)]) == 0
        assert capsys.readouterr().out == said

    @pytest.mark.parametrize(
        ("ledger", "said"),
        [
            (pa.ledger_from(HISTORY), "an event has no word for what this ledger"),
            (
                pa.Ledger(
                    nodes=(
                        pa.ledger_from(dpa.GaussianDpEvent(1.0)).nodes[0],
                        pa.ledger_from(dpa.GaussianDpEvent(2.0)).nodes[0],
                    )
                ),
                "nodes released different things",
            ),
        ],
    )
    def test_what_an_event_cannot_say(self, ledger, said, tmp_path, capsys):
        path = tmp_path / "ledger.json"
        path.write_text(ledger.to_json())
        out = tmp_path / "event.json"
        given = ["epsilon", "--delta", "1e-5", "--ledger", str(path)]
        assert main([*given, "--event", str(out)]) == 2
        assert said in capsys.readouterr().err
        assert not out.exists()

    def test_a_file_that_cannot_be_written(self, tmp_path, capsys):
        given = ["epsilon", "--delta", "1e-5", "--noise-multiplier", "1"]
        assert main([*given, "--event", str(tmp_path / "no" / "event.json")]) == 2
        assert "cannot write" in capsys.readouterr().err


class TestRunsThatAreOver:
    def test_a_folder_from_a_history(self, tmp_path):
        result = opacus.write_run(HISTORY, tmp_path / "run", epsilon=0.01)
        assert result.certificate.standing == "conditional"
        assert result.status == "disproved"
        checked = pa.verify(tmp_path / "run")
        assert checked.differences == ()
        assert "the account from its ledger" in checked.checked
        assert len(pa.ledger_from(tmp_path / "run" / "ledger.json").assumptions) == 2

    def test_what_has_no_history(self, tmp_path):
        with pytest.raises(
            ValueError, match=r"give an Opacus PrivacyEngine, .* got int"
        ):
            opacus.write_run(3, tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_without_lightning_the_callback_says_what_to_install():
    if importlib.util.find_spec("lightning"):
        pytest.skip("Lightning is installed")
    from privaudit.integrations.lightning import PrivacyCallback

    with pytest.raises(ModuleNotFoundError, match="pip install lightning"):
        PrivacyCallback(None)
