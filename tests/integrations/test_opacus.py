"""Ledgers from what Opacus keeps, without Opacus: its own shapes."""

import importlib.util
import math
import sys
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
    for said in (
        "parameters and buffers change by the engine's noisy steps only",
        "each record's gradient clipped to the norm that the noise multiplies",
        "nothing else was released (no adaptive clip norm)",
    ):
        assert said in opacus.HISTORY
    assert opacus.HISTORY in pa.ledger_from(HISTORY).assumptions


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


@pytest.mark.parametrize(
    "entry",
    [
        *[(-1, 0.1, 1), (1, 1.1, 1), (1, 0.1, 1.5), (1, 0.1, -3), (1, 0.1, math.inf)],
        *[("1", 0.1, 3), (1, None, 3)],
    ],
)
def test_numbers_out_of_range(entry):
    with pytest.raises(ValueError, match="entry 0 of an Opacus history"):
        pa.ledger_from([entry])


@pytest.mark.parametrize("history", [[], [(1.0, 0.1, 0)]])
def test_no_step_is_no_epsilon_of_0(history):
    engine = types.SimpleNamespace(accountant=types.SimpleNamespace(history=history))
    for source in (history, engine):
        with pytest.raises(ValueError, match="no step of Opacus' optimizer was"):
            pa.ledger_from(source)


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
    """What the callback uses of Opacus' own, without torch: rows are counted alone."""

    noise_multiplier, max_grad_norm = 1.5, 2.0

    def __init__(self):
        self.params = [types.SimpleNamespace(grad_sample=None, summed_grad=None)]
        self.original_optimizer = Plain()
        self.noised = 0
        self._skip = []

    def signal_skip_step(self, do_skip=True):
        self._skip.append(do_skip)

    def backward(self, batch):
        (p,) = self.params
        known = p.grad_sample or []
        p.grad_sample = [*known, batch]

    def clip_and_accumulate(self):
        (p,) = self.params
        p.summed_grad = (p.summed_grad or 0) + sum(map(len, p.grad_sample))
        p.grad_sample = None

    def add_noise(self):
        self.noised += 1

    def step(self):
        self.clip_and_accumulate()
        if self._skip and self._skip.pop(0):
            return
        self.add_noise()
        self.params[0].summed_grad = None
        self.original_optimizer.step()


class Plain:
    def __init__(self):
        self.hooks = []

    def register_step_pre_hook(self, hook):
        self.hooks.append(hook)
        return types.SimpleNamespace(remove=self.hooks.clear)

    def step(self):
        for hook in self.hooks:
            hook(self, (), {})


class UniformWithReplacementSampler:
    """Of sizes that are given; each batch is a list of as many records."""

    def __init__(self, *sizes, rate=0.02):
        self.sizes, self.sample_rate = sizes, rate

    def __iter__(self):
        for size in self.sizes:
            yield [0] * size


def loader_of(*sizes):
    return types.SimpleNamespace(batch_sampler=UniformWithReplacementSampler(*sizes))


def recorded(callback):
    """Norm bound, noise over it, rate and count of each entry."""
    return [
        (
            entry.release.norm_bound,
            pytest.approx(entry.release.noise / entry.release.norm_bound, rel=1e-12),
            entry.release.sampling.rate,
            entry.count,
        )
        for entry in callback.ledger.nodes[0]
    ]


@pytest.fixture
def watched(tmp_path):
    """A function: an optimizer, its loader of batches of such sizes, and a callback."""
    made = []

    def of(*sizes, **more):
        optimizer, loader = DPOptimizer(), loader_of(*sizes)
        callback = opacus.LedgerCallback(optimizer, loader, tmp_path / "run", **more)
        made.append(callback)
        return optimizer, loader.batch_sampler, callback

    yield of
    for callback in made:
        callback.close()


class TestSums:
    """What is released is what was clipped and summed, however the loop is written.

    By the optimizer's rule: noise 1.5 times the norm 2 on all that was summed.
    """

    def test_a_batch_a_step(self, watched):
        optimizer, batches, callback = watched(3, 0, 5)
        for batch in batches:
            optimizer.backward(batch)
            optimizer.step()
        assert recorded(callback) == [(2.0, 1.5, 0.02, 3)]
        assert optimizer.noised == 3

    def test_skipped_steps_sum_batches_that_a_record_may_all_be_in(self, watched):
        optimizer, batches, callback = watched(3, 4, 5, 6)
        for place, batch in enumerate(batches):
            optimizer.signal_skip_step(place < 3)
            optimizer.backward(batch)
            optimizer.step()
        assert recorded(callback) == [(2.0, 0.75, 0.02, 4)]

    def test_gradients_that_pile_up_are_the_same(self, watched):
        optimizer, batches, callback = watched(3, 4, 5, 6)
        for batch in batches:
            optimizer.backward(batch)
        optimizer.step()
        assert recorded(callback) == [(2.0, 0.75, 0.02, 4)]

    def test_a_batch_four_times_in_a_sum_moves_it_four_times_as_far(self, watched):
        optimizer, batches, callback = watched(3)
        for batch in batches:
            for _ in range(4):
                optimizer.backward(batch)
            optimizer.step()
        assert recorded(callback) == [(8.0, 0.375, 0.02, 1)]

    def test_one_once_and_one_twice(self, watched):
        optimizer, batches, callback = watched(3, 7)
        for batch, times in zip(batches, (1, 2), strict=True):
            for _ in range(times):
                optimizer.backward(batch)
            optimizer.signal_skip_step(times == 1)
            optimizer.step()
        shared = 1.5 / 5**0.5
        assert recorded(callback) == [(2.0, shared, 0.02, 1), (4.0, shared, 0.02, 1)]

    def test_a_batch_in_several_steps_tosses_no_new_coins(self, watched):
        optimizer, batches, callback = watched(3, 7)
        for batch in batches:
            for _ in range(3):
                optimizer.backward(batch)
                optimizer.step()
        found = recorded(callback)
        assert found == [(2.0, 1.5, 0.02, 1), (2.0, 1.5, 1.0, 3)] * 2

    def test_parts_of_a_batch_are_one(self, watched):
        optimizer, batches, callback = watched(10, 10)
        for batch in batches:
            for begin in range(0, 10, 4):
                optimizer.signal_skip_step(begin < 8)
                optimizer.backward(batch[begin : begin + 4])
                optimizer.step()
        assert recorded(callback) == [(2.0, 1.5, 0.02, 2)]

    def test_batches_that_are_drawn_ahead(self, watched):
        optimizer, batches, callback = watched(3, 0, 5, 5)
        for batch in list(batches):
            optimizer.backward(batch)
            optimizer.step()
        assert recorded(callback) == [(2.0, 1.5, 0.02, 4)]

    def test_norm_and_noise_are_those_of_their_time(self, watched):
        optimizer, batches, callback = watched(3, 4, 5)
        for place, batch in enumerate(batches):
            optimizer.max_grad_norm = (20.0, 2.0, 2.0)[place]
            optimizer.noise_multiplier = (1.5, 1.5, 0.1)[place]
            optimizer.signal_skip_step(place == 0)
            optimizer.backward(batch)
            optimizer.step()
        shared = 1.5 * 2 / (20**2 + 2**2) ** 0.5
        found = [(20.0, shared, 0.02, 1), (2.0, shared, 0.02, 1), (2.0, 0.1, 0.02, 1)]
        assert recorded(callback) == found

    def test_the_rate_is_that_of_its_time(self, watched):
        optimizer, batches, callback = watched(3, 4)
        for batch in batches:
            optimizer.backward(batch)
            optimizer.step()
            batches.sample_rate = 0.5
        assert [entry[2] for entry in recorded(callback)] == [0.02, 0.5]

    def test_layers_have_norms_of_their_own(self, watched):
        optimizer, batches, callback = watched(3)
        optimizer.max_grad_norms = [3.0, 4.0]
        for batch in batches:
            optimizer.backward(batch)
            optimizer.step()
        assert recorded(callback) == [(5.0, 0.6, 0.02, 1)]  # noise is 3

    def test_a_sum_that_is_thrown_away_is_no_release(self, watched):
        optimizer, batches, callback = watched(3, 4)
        for batch in batches:
            optimizer.params[0].summed_grad = None
            optimizer.signal_skip_step(len(batch) == 3)
            optimizer.backward(batch)
            optimizer.step()
        assert recorded(callback) == [(2.0, 1.5, 0.02, 1)]

    def test_noise_is_counted_whoever_adds_it(self, watched):
        optimizer, batches, callback = watched(3)
        for batch in batches:
            optimizer.backward(batch)
            optimizer.clip_and_accumulate()
            optimizer.add_noise()
        assert recorded(callback) == [(2.0, 1.5, 0.02, 1)]


class TestSumsThatAreRefused:
    def test_none_at_all_is_no_epsilon_of_0(self, watched, tmp_path):
        """Gradients without noise may have gone into the parameters all the same."""
        optimizer, (batch, *_), callback = watched(3)
        optimizer.backward(batch)
        with pytest.raises(ValueError, match="no step of Opacus' optimizer was"):
            callback.finish()
        with pytest.raises(ValueError, match="no step of Opacus' optimizer was"):
            opacus.write_run([], tmp_path / "history")

    def refuses(self, optimizer, batch, said):
        noised = optimizer.noised
        optimizer.backward(batch)
        with pytest.raises(ValueError, match=said):
            optimizer.step()
        assert optimizer.noised == noised  # before there is a release

    def test_batches_of_another_loader(self, watched):
        optimizer, *_ = watched(3)
        self.refuses(optimizer, [0] * 3, "the data loader drew no such batch")

    def test_another_loader_beside_it(self, watched):
        optimizer, batches, _ = watched(3, 5)
        first, _ = batches
        optimizer.backward(first)
        optimizer.step()
        self.refuses(optimizer, [0] * 6, "the data loader drew no such batch")

    def test_two_rows_a_record(self, watched):
        optimizer, batches, _ = watched(3)
        (batch,) = batches
        self.refuses(optimizer, batch * 2, "the data loader drew no such batch")

    def test_a_part_alone(self, watched):
        optimizer, batches, _ = watched(3)
        (batch,) = batches
        self.refuses(optimizer, batch[:2], "parts of batches")

    def test_a_batch_again_that_may_be_the_next(self, watched):
        optimizer, batches, _ = watched(3, 2)
        first, _ = list(batches)
        optimizer.backward(first)
        optimizer.step()
        self.refuses(optimizer, first, "with num_workers=0 only")

    def test_a_step_without_noise(self, watched):
        optimizer, batches, callback = watched(3, 3)
        for batch in batches:
            optimizer.backward(batch)
            optimizer.step()
        with pytest.raises(ValueError, match="gradients without noise"):
            optimizer.original_optimizer.step()
        callback.close()
        optimizer.original_optimizer.step()


class TestCallback:
    """As in test_real_opacus.py, of which this is what runs anywhere."""

    def test_the_folder_is_evidence(self, watched, tmp_path):
        optimizer, batches, callback = watched(3, 4, 5)
        for batch in batches:
            optimizer.backward(batch)
            optimizer.step()
        callback.finish()
        assert pa.verify(tmp_path / "run").differences == ()
        assert pa.ledger_from(callback) == callback.ledger
        assert len(callback.ledger.assumptions) == 2
        optimizer.backward([0] * 9)
        optimizer.step()  # no longer watched
        assert optimizer.noised == 4

    def test_a_release_is_written_before_there_is_noise(self, watched, tmp_path):
        counts = []

        class Counting(DPOptimizer):
            def add_noise(self):
                kept = pa.ledger_from(tmp_path / "run" / "ledger.json")
                counts.append(sum(entry.count for entry in kept.nodes[0]))

        Counting.__name__ = "DPOptimizer"
        optimizer, loader = Counting(), loader_of(3, 4, 5)
        with opacus.LedgerCallback(optimizer, loader, tmp_path / "run", every=1):
            for batch in loader.batch_sampler:
                optimizer.backward(batch)
                optimizer.step()
        assert counts == [1, 2, 3]

    def test_what_is_refused(self, tmp_path):
        shuffled = types.SimpleNamespace(batch_sampler=object())
        ghost = type("DPOptimizerFastGradientClipping", (DPOptimizer,), {})()
        adaptive = type("AdaClipDPOptimizer", (DPOptimizer,), {})()
        loader = loader_of(3)
        for optimizer, given, said in (
            (DPOptimizer(), shuffled, "not Poisson sampled"),
            (DPOptimizer(), None, "not Poisson sampled"),
            (object(), loader, "what object clips, sums and adds is not known"),
            (type("Adaptive", (DPOptimizer,), {})(), loader, "write_run reads"),
            (adaptive, loader, "history does not have the count that is released"),
            (ghost, loader, "use grad_sample_mode='hooks'; or write_run reads"),
        ):
            with pytest.raises(ValueError, match=said):
                opacus.LedgerCallback(optimizer, given, tmp_path / "run")
        with pytest.raises(ValueError, match="delta must be in"):
            opacus.LedgerCallback(DPOptimizer(), loader, tmp_path / "run", delta=1.0)
        assert not (tmp_path / "run").exists()
        assert type(loader.batch_sampler) is UniformWithReplacementSampler


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

    @pytest.mark.parametrize(("rdp", "asked"), [(3.0, 2), (1e3, 1), (None, 1)])
    def test_prv_is_asked_where_it_has_room(self, rdp, asked, monkeypatch, caplog):
        """Its memory grows with epsilon, without bound."""
        names = []

        def created(name):
            names.append(name)
            return types.SimpleNamespace(get_epsilon=lambda delta: rdp)

        fake = types.SimpleNamespace(create_accountant=created)
        monkeypatch.setitem(sys.modules, "opacus.accountants", fake)
        monkeypatch.setitem(sys.modules, "opacus", types.SimpleNamespace())
        found = opacus.epsilons(pa.ledger_from(HISTORY), 1e-5)
        assert len(names) == asked
        assert found == (
            {} if rdp is None else dict.fromkeys(("RDP", "PRV")[:asked], rdp)
        )
        assert ("is not asked" in caplog.text) == (asked == 1)

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
