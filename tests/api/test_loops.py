"""Noisy gradients for a loop of one's own: what they are, and what is written down."""

import contextlib
import copy
import json
import math
import os
import pickle
import re
import threading
from unittest import mock

import msgspec
import numpy as np
import pandas
import pytest
import torch
from torch import nn

import privaudit as pa
from privaudit.auditing.attacks.canaries import planted_together
from privaudit.auditing.programs.oracle_loop import _asked
from privaudit.ledger import Ledger
from trainers.oracles.oracle import Oracle

MECHANISM = {"noise_multiplier": 2.0, "clip_norm": 0.5, "batch_size": 10.0}


def data(size=40):
    inputs = torch.randn(size, 5, generator=torch.Generator().manual_seed(0))
    return inputs, (inputs.sum(1) > 0).long()


def made(**changes):
    torch.manual_seed(1)
    settings = {**MECHANISM, "nodes": 4, "seed": 0, **changes}
    return pa.oracle(nn.Linear(5, 2), data(), **settings)


class TestGradients:
    def test_noise_is_what_the_ledger_says(self):
        oracle = made()
        # At a point that is right with certainty, gradients are nothing but noise.
        inputs, targets = data()
        sure = oracle.module(oracle.start[0])
        with torch.no_grad():
            sure.weight.copy_(1e4 * torch.stack([-torch.ones(5), torch.ones(5)]))
            sure.bias.zero_()
        at = torch.cat([sure.weight.flatten(), sure.bias]).repeat(4, 1)
        assert (sure(inputs).argmax(1) == targets).all()
        found = torch.stack([oracle.gradient(at) for _ in range(300)])
        (entries,) = set(oracle.ledger.nodes)
        release = entries[0].release
        assert (entries[0].count, release.noise, release.norm_bound) == (300, 1.0, 0.5)
        spread = float(found.std()) * MECHANISM["batch_size"]
        assert spread == pytest.approx(release.noise, rel=0.03)  # 1.4e4 draws: .006

    def test_without_noise_to_speak_of_it_is_the_mean_gradient(self):
        oracle = made(noise_multiplier=1e-6, clip_norm=1e3, nodes=1, batch_size=40.0)
        inputs, targets = data()
        module = oracle.module(oracle.start[0])
        loss = nn.functional.cross_entropy(module(inputs), targets)
        true = torch.autograd.grad(loss, list(module.parameters()))
        expected = torch.cat([part.flatten() for part in true])
        torch.testing.assert_close(
            oracle.gradient(oracle.start)[0], expected, atol=1e-3, rtol=0
        )

    def test_a_seed_is_no_less_than_0(self):
        with pytest.raises(ValueError, match="seed must be >= 0, got -1"):
            made(seed=-1)

    def test_a_seed_repeats_and_none_does_not(self):
        one, two, other = made(), made(), made(seed=None)
        assert torch.equal(one.gradient(one.start), two.gradient(two.start))
        assert not torch.equal(one.gradient(one.start), other.gradient(other.start))

    def test_a_budget_stops_it_before_it_is_exceeded(self):
        """Whatever the loop sees, and whoever asks."""
        budget = pa.Budget(epsilon=3.0, delta=1e-5)
        oracle = made(budget=budget, noise_multiplier=8.0)

        def loop() -> None:
            at = oracle.start
            for _ in range(10_000):
                step = oracle.gradient(at)
                at = at - step if float(step.sum()) > 0 else oracle.start

        with pytest.raises(pa.BudgetExceeded):
            loop()
        before = oracle.ledger
        assert sum(entry.count for entry in before.nodes[0]) > 1
        with pytest.raises(pa.BudgetExceeded):
            oracle.gradient(oracle.start)
        assert oracle.ledger == before, "nothing is released that is not paid for"
        assert pa.epsilon(ledger=before, delta=1e-5).upper <= 3.0

    def test_the_smallest_node_that_asks_is_paid_for(self):
        budget, other = (pa.Budget(epsilon=3.0, delta=1e-5) for _ in range(2))
        shares = [data(40), data(20)]
        oracle = pa.oracle(nn.Linear(5, 2), shares, **MECHANISM, budget=budget)
        for nodes, rate in ((None, 0.5), ([0], 0.25)):
            at = oracle.start if nodes is None else oracle.start[nodes]
            oracle.gradient(at, nodes)
            other.spend(
                pa.Release.of_sum(
                    norm_bound=0.5,
                    noise_multiplier=2.0,
                    sampling=pa.PoissonSampling(rate),
                )
            )
            assert budget.spent == other.spent > 0

    def test_an_epoch_of_an_allocation_is_paid_as_it_begins(self):
        """Two releases without sampling, the record's batches known."""
        budget, other = (pa.Budget(epsilon=3.0, delta=1e-5) for _ in range(2))
        plain = pa.Release.of_sum(
            norm_bound=0.5, noise_multiplier=10.0, sampling=pa.NoSampling()
        )
        oracle = made(
            budget=budget, noise_multiplier=10.0, sampling="random-allocation:2"
        )
        for call in range(5):  # 2 of an epoch's 2 batches
            if call % 2 == 0:
                other.spend(plain, 2)
            oracle.gradient(oracle.start)
            assert budget.spent == other.spent > 0
        (entry,) = oracle.ledger.nodes[0]
        assert entry.release.sampling == pa.RandomAllocation(2, 2)

    @pytest.mark.parametrize(
        ("nodes", "message"),
        [
            ([-1], "numbered from 0 to 1"),
            ([2], "numbered from 0 to 1"),
            ([], "at least one"),
            ([0, 0], "noise is never used twice"),
            ([0.0], "a list of nodes' numbers"),
            ("01", "a list of nodes' numbers"),
            (1, "a list of nodes' numbers"),
            (None, "asked equally often"),
        ],
    )
    def test_what_is_refused_is_not_paid_for(self, nodes, message):
        budget = pa.Budget(epsilon=3.0, delta=1e-5)
        oracle = made(budget=budget, noise_multiplier=10.0, nodes=2)
        oracle.gradient(oracle.start[:1], [0])
        before, spent = oracle.ledger, budget.spent
        for at in (oracle.start, oracle.start[:1], oracle.start[:0]):
            with pytest.raises(ValueError, match=message):
                oracle.gradient(at, nodes)
        for at in (oracle.start.tolist(), oracle.start.double() * math.inf):
            with pytest.raises(ValueError, match="parameters are"):
                oracle.gradient(at[1:], [1])
        assert (oracle.ledger, budget.spent) == (before, spent)

    def test_a_loop_sees_releases_alone(self):
        """No code that runs with its parameters, or a hook, is given single records."""
        seen = []

        class Looks(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                found = super().__torch_function__(func, types, args, kwargs or {})
                seen.append(tuple(getattr(found, "shape", ())))
                return found

        budget = pa.Budget(epsilon=3.0, delta=1e-5)
        oracle = made(budget=budget, noise_multiplier=10.0)
        hooks = torch.autograd.graph.saved_tensors_hooks(seen.append, lambda x: x)
        with hooks, pytest.raises(ValueError, match="set for all of torch"):
            oracle.gradient(oracle.start)
        assert budget.spent == 0
        found = oracle.gradient(oracle.start.as_subclass(Looks))
        assert type(found) is torch.Tensor
        assert set(seen) <= {(), (4, 12), (1, 4, 12)}
        torch.testing.assert_close(
            found, made(noise_multiplier=10.0).gradient(oracle.start)
        )

    def test_threads_take_turns(self, monkeypatch):
        """A release that waits in the middle is not made twice, nor paid for once."""
        oracle, inside = made(nodes=1), threading.Event()
        drawn, both, batches = [], threading.Event(), Oracle._batches

        def slow(inner, nodes):
            drawn.append(inner.releases_of(nodes[0]))
            (both if inside.is_set() else inside).set()
            both.wait(0.2)
            return batches(inner, nodes)

        monkeypatch.setattr(Oracle, "_batches", slow)
        threads = [
            threading.Thread(target=oracle.gradient, args=(oracle.start + place,))
            for place in range(2)
        ]
        for one in threads:
            one.start()
            inside.wait()
        for one in threads:
            one.join()
        assert drawn == [0, 1]
        assert oracle.ledger.nodes[0][0].count == 2

    def test_another_process_has_no_oracle(self, monkeypatch, tmp_path):
        oracle = made()
        monkeypatch.setattr(os, "getpid", lambda: -1)
        for use in (oracle.gradient, oracle.save):
            with pytest.raises(ValueError, match="in the process that uses it"):
                use(oracle.start if use == oracle.gradient else tmp_path / "run")

    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_there_is_one_of_it(self, copied):
        with pytest.raises(TypeError, match="an oracle is neither pickled nor copied"):
            copied(made())

    def test_a_folder_without_releases_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="released nothing"):
            made().save(tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_a_budget_is_a_budget(self):
        with pytest.raises(ValueError, match=r"budget must be a privaudit\.Budget"):
            made(budget=3.0)

    def test_data_on_disk_give_the_same(self, tmp_path):
        inputs, targets = data()
        mapped = np.memmap(tmp_path / "x", dtype="float32", mode="w+", shape=(40, 5))
        mapped[:] = inputs
        torch.manual_seed(1)
        lazy = pa.oracle(
            nn.Linear(5, 2), (mapped, targets), nodes=4, seed=0, **MECHANISM
        )
        held = made()
        assert torch.equal(lazy.gradient(lazy.start), held.gradient(held.start))


class TestLedger:
    def test_every_question_is_in_it(self):
        oracle = made()
        oracle.gradient(oracle.start)
        oracle.gradient(oracle.start[:1], nodes=[2])
        counts = [sum(e.count for e in node) for node in oracle.ledger.nodes]
        assert counts == [1, 1, 2, 1]

    def test_records_at_two_nodes_are_told_with_what_counts_them(self, caplog):
        oracle = pa.oracle(nn.Linear(5, 2), [data()] * 2, **MECHANISM)
        (line,) = caplog.messages
        assert "40 records lie at more than 1 node" in line
        assert "privaudit.Certificate.of(oracle.ledger, overlap=k) counts" in line
        oracle.gradient(oracle.start)
        one, both = (pa.Certificate.of(oracle.ledger, overlap=k) for k in (1, 2))
        assert both.epsilon(1e-5).upper > one.epsilon(1e-5).upper

    def test_its_account_is_the_programmes_one(self):
        oracle = made()
        for _ in range(7):
            oracle.gradient(oracle.start)
        planned = pa.epsilon(
            delta=1e-5, noise_multiplier=2.0, sampling_rate=1.0, steps=7
        )
        found = pa.epsilon(ledger=oracle.ledger, delta=1e-5)
        assert found == msgspec.structs.replace(planned, overlap=1)
        assert isinstance(oracle.ledger, Ledger)


def test_frozen_parameters_stay():
    module = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 2))
    module[0].requires_grad_(False)
    oracle = pa.oracle(module, data(), nodes=2, seed=0, **MECHANISM)
    assert oracle.start.shape == (2, 8)
    moved = oracle.module(oracle.start[0] - oracle.gradient(oracle.start)[0])
    assert torch.equal(moved[0].weight, module[0].weight)
    assert not torch.equal(moved[1].weight, module[1].weight)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier must be > 0"),
        ({"clip_norm": float("inf")}, "clip_norm must be > 0 and finite"),
        ({"batch_size": 50.0}, "batch|batch"),
        ({"nodes": None}, "give nodes="),
        ({"device": "abacus"}, "device"),
    ],
)
def test_what_is_wrong_is_said(changes, said):
    with pytest.raises(ValueError, match=said):
        made(**changes)


def test_points_of_other_shapes_are_refused():
    oracle = made()
    with pytest.raises(ValueError, match=r"\(nodes, dims\) = \(4, 12\), got \(12,\)"):
        oracle.gradient(oracle.start[0])
    with pytest.raises(ValueError, match="not finite"):
        oracle.gradient(oracle.start * float("nan"))
    assert oracle.ledger.nodes == ((), (), (), ())
    with pytest.raises(ValueError, match=r"\(nodes, dims\) = \(4, 12\), got ndarray"):
        oracle.gradient(oracle.start.numpy())


def test_a_compiled_model_is_taken():
    """It has a length, which torch takes from the module within: Linear has none."""
    net = torch.compile(nn.Linear(5, 2), backend="eager")
    oracle = pa.oracle(net, data(), nodes=4, seed=0, **MECHANISM)
    assert oracle.gradient(oracle.start).shape == (4, 12)


class TestTakenUp:
    """A loop that was killed goes on; `made` is then another process's oracle."""

    @pytest.fixture
    def key(self, tmp_path):
        return tmp_path / "key"

    def asked(self, oracle, times):
        return [oracle.gradient(oracle.start) for _ in range(times)]

    def stopped(self, key, times, after=0, **changes):
        """The state after ``times`` releases of a process that is killed ``after``."""
        oracle = made(seed=None, key_file=key, **changes)
        given = self.asked(oracle, times)
        state = json.loads(json.dumps(oracle.state_dict()))
        given += self.asked(oracle, after)
        oracle._inner._streams.journal.close()
        return state, given

    def counts(self, oracle):
        return [sum(one.count for one in node) for node in oracle.ledger.nodes]

    @pytest.mark.parametrize("loaded", [True, False])
    def test_no_release_is_made_twice(self, key, loaded):
        """What the journal has beyond the state is paid for, and has a noise alone."""
        state, given = self.stopped(key, 5, 2)
        oracle = made(seed=None, key_file=key)
        if loaded:
            oracle.load_state_dict(state)
        assert self.counts(oracle) == [7] * 4
        given += self.asked(oracle, 3)
        assert self.counts(oracle) == [10] * 4
        whole = torch.stack(given).flatten(1)
        assert len(whole.unique(dim=0)) == 10
        # Less the gradient that they share: of 48 numbers, the noise of one another.
        apart = torch.corrcoef(whole - whole.mean(0)).fill_diagonal_(0)
        assert apart.abs().max() < 0.7

    def test_a_lost_key_is_missed(self, key):
        state, _ = self.stopped(key, 3)
        key.unlink()
        with pytest.raises(ValueError, match="the key of this state was lost"):
            made(seed=None, key_file=key).load_state_dict(state)
        with pytest.raises(ValueError, match="the key of this state was lost"):
            made(seed=None).load_state_dict(state)

    @pytest.mark.parametrize("content", [None, b"", b"privaudit releases 1"])
    def test_a_lost_journal_is_missed(self, key, content):
        self.stopped(key, 3)
        journal = key.with_name("key.releases")
        if content is None:
            journal.unlink()
        else:
            journal.write_bytes(content)
        with pytest.raises(ValueError, match="nobody knows what was released"):
            made(seed=None, key_file=key)

    def test_an_older_journal_is_missed(self, key):
        _, _ = self.stopped(key, 1)
        old = key.with_name("key.releases").read_bytes()
        state, _ = self.stopped(key, 2)
        key.with_name("key.releases").write_bytes(old)
        with pytest.raises(ValueError, match="the journal is an older one"):
            made(seed=None, key_file=key).load_state_dict(state)

    def test_a_key_in_use_is_no_others(self, key):
        first = made(seed=None, key_file=key)
        with pytest.raises(ValueError, match="another process goes on with this run"):
            made(seed=None, key_file=key)
        assert self.asked(first, 1)

    def test_a_state_comes_before_the_first_release(self, key):
        oracle = made(seed=None, key_file=key)
        state = oracle.state_dict()
        self.asked(oracle, 1)
        with pytest.raises(ValueError, match="has released something"):
            oracle.load_state_dict(state)

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("sampling", ["poisson", "random-allocation"])
    def test_a_budget_is_charged_for_what_was_released(self, key, sampling):
        def limit():
            return pa.Budget(epsilon=3.0, delta=1e-5)

        plain = made(noise_multiplier=3.0, budget=limit(), sampling=sampling, nodes=1)
        fits = 0
        with contextlib.suppress(pa.BudgetExceeded):
            while plain.gradient(plain.start) is not None:
                fits += 1
        assert fits > 10
        given = {"noise_multiplier": 3.0, "sampling": sampling, "nodes": 1}
        state, _ = self.stopped(key, 3, 2, **given)
        oracle = made(seed=None, key_file=key, budget=limit(), **given)
        oracle.load_state_dict(state)
        self.asked(oracle, fits - 5)
        with pytest.raises(pa.BudgetExceeded):
            oracle.gradient(oracle.start)

    def test_its_folder_agrees_with_its_evidence(self, key, tmp_path):
        state, _ = self.stopped(key, 3)
        oracle = made(seed=None, key_file=key)
        oracle.load_state_dict(state)
        self.asked(oracle, 2)
        oracle.save(tmp_path / "mine", epsilon=20.0)
        assert not key.exists()
        assert not key.with_name("key.releases").exists()
        found = pa.verify(tmp_path / "mine")
        assert not found.differences
        ledger = Ledger.from_json((tmp_path / "mine/ledger.json").read_text())
        assert ledger == oracle.ledger
        with pytest.raises(ValueError, match="or its folder is written"):
            oracle.gradient(oracle.start)

    def test_what_cannot_be(self, key):
        with pytest.raises(ValueError, match="a study has no secret"):
            made(key_file=key)

    @pytest.mark.parametrize(
        "changes", [{"noise_multiplier": 9.0}, {"batch_size": 5.0}, {"nodes": 2}]
    )
    def test_what_was_released_keeps_its_noise(self, key, changes):
        """A process with other arguments writes nothing down of the one before it."""
        state, _ = self.stopped(key, 1)
        with pytest.raises(ValueError, match="other noise, batches or numbers"):
            made(seed=None, key_file=key, **changes)
        made(seed=None, key_file=key).load_state_dict(state)
        other = made(**changes)
        with pytest.raises(ValueError, match="other noise, batches or numbers"):
            other.load_state_dict(made().state_dict())

    def test_a_state_comes_back_as_it_was(self, key):
        state, _ = self.stopped(key, 2)
        oracle = made(seed=None, key_file=key)
        less = {name: state[name] for name in state if name != "ledger"}
        for wrong, said in (
            (None, "Expected `object`, got `null`"),
            ({}, "missing required field `key`"),
            ({1: 2}, "Expected `str`"),
            (less, "missing required field `ledger`"),
            ({**state, "past": 1}, "unknown field `past`"),
            ({**state, "key": 3}, "Expected `str`, got `int` - at `$.key`"),
            ({**state, "key": "00"}, "the key of this state was lost"),
            ({**state, "releases": ["a"]}, "got `str` - at `$.releases[0]`"),
            ({**state, "releases": [-5] * 4}, "the state was changed"),
            ({**state, "releases": [2]}, "the state was changed"),
            ({**state, "ledger": None}, "got `null` - at `$.ledger`"),
            ({**state, "ledger": []}, "the state was changed"),
            ({**state, "ledger": ["", *state["ledger"][1:]]}, "the state was changed"),
        ):
            with pytest.raises(ValueError, match=re.escape(said)):
                oracle.load_state_dict(wrong)
        oracle.load_state_dict(state)
        assert self.counts(oracle) == [2] * 4


class TestAudit:
    """A loop of one's own is attacked through oracles like the one it asks."""

    def oracle(self):
        inputs = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
        data = inputs, (inputs.sum(1) > 0).long()
        how = {"noise_multiplier": 2.0, "clip_norm": 1.0, "batch_size": 20}
        return pa.oracle(torch.nn.Linear(3, 2), data, nodes=2, **how)

    def loop(self, oracle):
        at = oracle.start
        for _ in range(3):
            at = at - 0.5 * oracle.gradient(at)

    def claim(self):
        ledger = self.oracle()
        self.loop(ledger)
        return pa.epsilon(ledger=ledger.ledger, delta=1e-5).upper

    @pytest.mark.full
    def test_an_honest_one_is_consistent(self):
        oracle = self.oracle()
        found = oracle.audit(self.loop, epsilon=self.claim() + 1e-9, runs=200)
        assert found.status == "consistent"
        assert found.lower.epsilon < found.upper.epsilon
        assert found.verdict.limits
        assert not any(oracle.ledger.nodes)  # it released nothing

    @pytest.mark.full
    def test_half_the_noise_is_refuted(self):
        noisy = Oracle._noisy

        def half(self, total, nodes, deviation, step):
            return noisy(self, total, nodes, deviation / 2, step)

        with mock.patch.object(Oracle, "_noisy", half):
            found = self.oracle().audit(self.loop, epsilon=self.claim(), runs=200)
        assert found.status == "refuted"

    @pytest.mark.parametrize(
        ("batch", "noise", "planted"), [(10, 1.0, 1), (10, 50.0, 12), (100, 1.0, 12)]
    )
    def test_canaries_share_a_run_where_batches_do_not_hide_them(
        self, batch, noise, planted
    ):
        inputs = torch.randn(100, 5, generator=torch.Generator().manual_seed(0))
        oracle = pa.oracle(
            torch.nn.Linear(5, 2),
            (inputs, (inputs.sum(1) > 0).long()),
            nodes=1,
            noise_multiplier=noise,
            clip_norm=1.0,
            batch_size=batch,
        )
        made = oracle._inner.mechanism
        asked = _asked(oracle._material.in_memory(), made)
        assert planted_together(asked, made) == planted

    def test_refuses_a_loop_that_asks_for_nothing(self):
        with pytest.raises(ValueError, match="asked node 0 for nothing"):
            self.oracle().audit(lambda oracle: None, epsilon=1, runs=10)

    def test_refuses_a_loop_that_asks_unequally(self):
        asked = []

        def loop(oracle):
            asked.append(1)
            for _ in asked:
                oracle.gradient(oracle.start)

        with pytest.raises(ValueError, match="something else"):
            self.oracle().audit(loop, epsilon=1, runs=10)


class TestRecordsInTheCode:
    """What a model or a loss reaches of the records that are trained on is refused."""

    def records(self):
        inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
        return inputs, torch.arange(8) % 3

    @pytest.mark.parametrize(
        "form", ["tensors", "arrays", "read-only", "frame", "dataset", "a part"]
    )
    def test_of_a_model(self, form):
        inputs, targets = self.records()
        reached = inputs[2:4] if form == "a part" else inputs
        locked, frame = inputs.numpy()[:], pandas.DataFrame(inputs.numpy(), copy=False)
        locked.flags.writeable = False

        class Centred(nn.Linear):
            def forward(self, x):
                return super().forward(x - reached.mean(0))

        share = {
            "arrays": (inputs.numpy(), targets.numpy()),
            "read-only": (locked, targets.numpy()),
            "frame": (frame, targets),
            "dataset": torch.utils.data.TensorDataset(inputs, targets),
        }.get(form, (inputs, targets))
        with pytest.raises(ValueError, match="the records that are trained on"):
            pa.oracle(
                Centred(6, 3),
                [share],
                noise_multiplier=1.0,
                clip_norm=1.0,
                batch_size=2,
            )
        reached = reached.clone()  # of which nobody can tell whose it is
        pa.oracle(
            Centred(6, 3), [share], noise_multiplier=1.0, clip_norm=1.0, batch_size=2
        )

    def test_of_a_loss_and_of_a_buffer(self):
        inputs, targets = self.records()

        def weighted(outputs, target):
            often = nn.functional.one_hot(targets, 3).sum(0) + 1.0
            return nn.functional.cross_entropy(outputs, target, weight=often)

        model, how = (
            nn.Linear(6, 3),
            {"noise_multiplier": 1.0, "clip_norm": 1.0, "batch_size": 2},
        )
        with pytest.raises(ValueError, match="the records that are trained on"):
            pa.oracle(model, [(inputs, targets)], loss=weighted, **how)
        model.register_buffer("seen", inputs[:2])
        with pytest.raises(ValueError, match="seen of the model is, or is a part"):
            pa.oracle(model, [(inputs, targets)], **how)


@pytest.mark.parametrize("form", ["backwards", "read-only"])
def test_arrays_that_torch_takes_by_copy_alone(form):
    inputs = np.ones((8, 6), np.float32)
    inputs = inputs[::-1] if form == "backwards" else inputs
    inputs.flags.writeable = form != "read-only"
    share, how = (inputs, np.arange(8) % 3), {"clip_norm": 1.0, "batch_size": 2}
    pa.oracle(nn.Linear(6, 3), [share], noise_multiplier=1.0, **how)


def test_under_autocast_nothing_is_released():
    """Norms would be of rounded factors, and sums not: 64 clip norms were seen."""
    share = torch.randn(8, 6), torch.arange(8) % 3
    how = {"noise_multiplier": 1.0, "clip_norm": 1.0, "batch_size": 2}
    oracle = pa.oracle(nn.Linear(6, 3), [share], **how)
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(ValueError, match="autocast is on"):
            oracle.gradient(oracle.start)
        with pytest.raises(ValueError, match="autocast is on"):
            pa.oracle(nn.Linear(6, 3), [share], **how)
    assert oracle.gradient(oracle.start).shape == (1, 21)
