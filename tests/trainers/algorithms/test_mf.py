"""Noise that releases share: what is drawn, when, and what it is accounted as."""

import dataclasses
import itertools
import math

import msgspec
import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp

import privaudit as pa
from privaudit.accounting.factorization import (
    blt,
    matrix_factorization,
    toeplitz,
    turn_norm,
)
from privaudit.accounting.views import Observer, observed, of_nodes
from privaudit.accounting.views.butterfly import fresh_noises, turns
from privaudit.accounting.views.figures import releases_of
from privaudit.accounting.witness import witness
from privaudit.auditing.attacks.likelihood import Turns, TurnScores, log_ratio
from privaudit.release import PoissonSampling, Release
from tests import reference as ref
from tests.trainers.problems import oracle, random_data, start
from trainers import contract
from trainers.numerics.randomness import Streams
from trainers.oracles.mechanism import Mechanism
from trainers.oracles.recording import Recording
from trainers.oracles.sampler import Sampler
from trainers.oracles.updates import UpdateMechanism, UpdateOracle
from trainers.runs.problem import Observers, Problem
from trainers.runs.training import training_from

DIMS = 15
COLUMN = (1.0, 0.6, 0.25)


def mechanism(**more):
    values = {"batch_size": 5.0, "clip_norm": 1.0, "noise_multiplier": 1e6}
    return Mechanism(**{**values, "strategy": COLUMN, "parts": 4, **more})


def matrix(column, steps):
    """C itself."""
    return sum(c * np.eye(steps, k=-j) for j, c in enumerate(column))


PAIRS = ((0.3, 0.97), (0.5, 0.6))


def buffered(**more):
    """Parts of a node of 40 records, each a batch."""
    values = {"strategy": (1.0,), "batch_size": 10.0, "buffers": PAIRS, **more}
    return mechanism(**values)


def told(ledger):
    """The same, of which a record's part is known."""

    def known(entry):
        how = msgspec.structs.replace(entry.release.sampling, secret=False)
        release = msgspec.structs.replace(entry.release, sampling=how)
        return msgspec.structs.replace(entry, release=release)

    nodes = tuple(tuple(map(known, entries)) for entries in ledger.nodes)
    return msgspec.structs.replace(ledger, nodes=nodes)


@pytest.fixture
def first_part(monkeypatch):
    """Canaries are in the first part, whose turns ledgers have."""
    whole = Sampler._of_part

    def of_part(self, nodes, index, records, planted):
        found = whole(self, nodes, index, records, planted)
        found[:, :, records:] = index % self.mechanism.parts == 0
        return found

    monkeypatch.setattr(Sampler, "_of_part", of_part)


def column_of(how, rounds):
    if not how.buffers:
        return how.strategy
    whole = [sum(m * x**j for m, x in how.buffers) for j in range(rounds)]
    return (1.0, *whole[1:])


def released(how, rounds, runs=1, seed=0, shares=None, **more):
    """(rounds, runs, nodes, dims), each in units of the clip norm and the batch."""
    shares = random_data((40, 60)) if shares is None else shares
    made = oracle(how, runs=runs, seed=seed, shares=shares, **more)
    at = start(DIMS, runs, nodes=2)
    found = [made.gradient(at) for _ in range(rounds)]
    return torch.stack(found) * how.batch_size / how.clip_norm, made


class TestNoise:
    @pytest.mark.parametrize("how", [mechanism(), buffered()])
    def test_its_covariance_is_that_of_the_factorisation(self, how):
        """Nothing else is seen beside so much noise."""
        rounds, runs = 9, 400
        found, _ = released(how, rounds, runs, shares=random_data((40, 40)))
        column = column_of(how, rounds)
        white = np.tensordot(matrix(column, rounds), found.numpy(), 1)
        drawn = white.reshape(rounds, -1) / (1e6 * math.hypot(*column[:4]))
        count = drawn.shape[1]
        assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-6
        covariance = drawn @ drawn.T / count
        assert abs(covariance - np.eye(rounds)).max() < 6 * math.sqrt(2 / count)

    def test_much_of_it_cancels_in_sums(self):
        steps = 40
        column = toeplitz(steps, 8)
        how = mechanism(strategy=column, parts=8, batch_size=2.0)
        sums = released(how, steps, 100)[0].cumsum(0)[-1]
        spread = np.linalg.inv(matrix(column, steps)).sum(0)
        expected = 1e6 * math.hypot(*column) * np.linalg.norm(spread)
        assert expected < 0.55 * 1e6 * math.sqrt(steps)
        assert float(sums.std()) == pytest.approx(expected, rel=0.05)

    def test_each_node_has_its_own(self):
        found, _ = released(mechanism(), 3, 400)
        one, other = found[:, :, 0].flatten(), found[:, :, 1].flatten()
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / math.sqrt(len(one))

    @pytest.mark.parametrize("how", [mechanism(), buffered()])
    def test_it_goes_on_after_a_stop(self, how):
        shares = random_data((40, 40))
        whole, _ = released(how, 9, shares=shares)
        _, first = released(how, 5, shares=shares)
        second = oracle(how, shares=shares)
        second.load_state_dict(first.state_dict())
        at = start(DIMS, nodes=2)
        for k in range(5, 9):
            assert torch.equal(second.gradient(at) * how.batch_size, whole[k])
        assert second.ledger == how.ledger([40, 40], 9)

    def test_a_band_of_one_is_the_plain_mechanism(self):
        plain, _ = released(mechanism(strategy=(1.0,), parts=1), 3)
        given, _ = released(Mechanism(5.0, 1.0, 1e6), 3)
        assert torch.equal(plain, given)

    @pytest.mark.parametrize(("make", "turns"), [(mechanism, 1), (buffered, 3)])
    def test_sums_move_by_no_more_than_is_accounted(self, make, turns, first_part):
        """All that a record's turns move, with next to no noise."""
        # Forty records, four parts, ten a batch: drawn in each turn.
        quiet, moved = make(noise_multiplier=1e-6, batch_size=10.0), []
        column = column_of(quiet, 4 * turns)
        share = random_data((40,))[0]
        for there in (True, False):
            made = oracle(
                quiet,
                shares=[share],
                canary=dataclasses.replace(
                    share, inputs=share.inputs[:1] * 1e6, targets=share.targets[:1]
                ),
                planted=torch.tensor([there]),
            )
            at = start(DIMS, nodes=1)
            found = [made.gradient(at)[0, 0] * 10 for _ in range(4 * turns)]
            moved.append(np.tensordot(matrix(column, 4 * turns), torch.stack(found), 1))
        size = np.linalg.norm(moved[0] - moved[1])
        most = math.hypot(
            *(
                entry.release.sensitivity.add_or_remove_one
                for entry in made.ledger.nodes[0]
                for _ in range(entry.count)
            )
        )
        assert size <= most * (1 + 1e-5) + 1e-4
        assert size >= most * (1 - 1e-2)

    @pytest.mark.parametrize("buffers", [(), ((0.2, 0.99), (0.1, 0.5)), ((0.3, 0.8),)])
    def test_rounding_of_what_is_shared_is_paid_for(
        self, monkeypatch, first_part, buffers
    ):
        """At so much noise that steps of its grid are large, and by the worst luck."""
        column, rounds = (1.0, *[0.2] * 15), 16
        noise = 1e5 if len(buffers) == 1 else 2e6
        how = mechanism(
            strategy=column, parts=16, batch_size=2.5, noise_multiplier=noise
        )
        if buffers:
            how = dataclasses.replace(how, strategy=(1.0,), buffers=buffers)
            column = column_of(how, rounds)
        share = random_data((40,))[0]
        canary = dataclasses.replace(
            share, inputs=share.inputs[:1] * 1e6, targets=share.targets[:1]
        )

        def sums(there, told):
            """What noise is added to, given what is told, in steps."""
            made = oracle(
                how, shares=[share], canary=canary, planted=torch.tensor([there])
            )
            seen = []

            def noisy(self, sums, who, index, deviation, step, point=None):
                seen.append(sums[0, 0].numpy() / step)
                return torch.tensor(told[index] * step).view_as(sums)

            with monkeypatch.context() as patch:
                patch.setattr(Streams, "noisy", noisy)
                for _ in range(rounds):
                    made.gradient(start(DIMS, nodes=1))
            return np.array(seen), made._step(0)

        def shared(own, told, k):
            noise = [c * (told[k - j] - own[k - j]) for j, c in enumerate(column) if j]
            return np.round(sum(noise[:k], np.zeros(DIMS)))

        told = np.zeros((rounds, DIMS))
        both = [sums(there, told)[0] for there in (True, False)]
        for found in both:  # own sums, which do not depend on what is told
            for k in range(rounds):
                found[k] += shared(found, told, k)
        rng = np.random.default_rng(0)
        for k in range(1, rounds):  # what is told makes most of each difference
            tries = rng.integers(-99, 99, (200, DIMS)).astype(float)
            worth = []
            for told[k - 1] in tries:
                one, other = (shared(own, told, k) for own in both)
                worth.append(abs(one - other))
            told[k - 1] = tries[np.argmax(worth, 0), range(DIMS)]
        (one, step), (other, _) = (sums(there, told) for there in (True, False))
        moved = np.linalg.norm(one - other) * step / how.spread
        # If one step alone is paid for, 1.002, and .98 by buffers.
        assert 0.55 < moved <= (0.9 if buffers else 1.0)
        if buffers:  # the part is secret: each row moves by no more than is said
            rows = np.linalg.norm(one - other, axis=1) * step
            assert (rows <= np.array(column)).all()
            assert rows[-1] > 0.5 * column[-1]


class TestParts:
    def test_a_record_is_drawn_in_its_turns_only(self):
        made = oracle(mechanism(), shares=random_data((40, 60)), runs=50)
        drawn = torch.stack([made._sampler.batches([0, 1], k) for k in range(12)])
        assert int(drawn.view(3, 4, 50, 2, -1).any(0).sum(0).max()) == 1
        assert float(drawn.sum(3).double().mean()) == pytest.approx(5.0, abs=0.3)

    def test_parts_and_coins_are_independent(self):
        """The first batch has its share of the first part, as every other one."""
        made = oracle(mechanism(), shares=random_data((40, 40)), runs=2000)
        where = made._sampler._of_part([0, 1], 0, 40, 1)[:, :, :40]
        drawn = made._sampler.batches([0, 1], 0)[:, :, :40]
        assert not (drawn & ~where).any()
        part, heads = int(where.sum()), int(drawn.sum())
        assert stats.binomtest(part, where.numel(), 1 / 4).pvalue > 1e-6
        assert stats.binomtest(heads, part, 4 * 5 / 40).pvalue > 1e-6

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"parts": 2}, "needs as many parts"),
            ({"strategy": (0.5, 1.0)}, "the first of which is 1"),
            ({"strategy": (1.0, 1.2)}, "grows with time"),
            ({"sampling": "without-replacement"}, "drawn by Poisson sampling"),
            ({"clip_norm": lambda k: 1.0}, "one clip norm and one noise multiplier"),
            ({"buffers": PAIRS}, "no other strategy"),
            ({"buffers": PAIRS, "strategy": (1.0,), "parts": 1}, "2 or more parts"),
            ({"buffers": PAIRS, "strategy": (1.0,), "summed": 2}, "single means"),
            ({"buffers": ((0.6, 0.5), (0.5, 0.5)), "strategy": (1.0,)}, "sum at most"),
            ({"buffers": ((0.6, 1.0),), "strategy": (1.0,)}, "0 <= l < 1"),
            ({"buffers": ((-0.1, 0.5),), "strategy": (1.0,)}, "m >= 0"),
            ({"buffers": ((math.nan, 0.5),), "strategy": (1.0,)}, "m >= 0"),
        ],
    )
    def test_refused(self, more, words):
        with pytest.raises(ValueError, match=words):
            dataclasses.replace(mechanism(), **more)

    @pytest.mark.parametrize("shares", [(0.5, 0.2), (math.nan,), (math.inf,)])
    def test_a_ledger_refuses_shares_that_are_none(self, shares):
        with pytest.raises(ValueError, match="sums of 2 parts share noise"):
            PoissonSampling(0.5, 2, shares)

    @pytest.mark.parametrize("sizes", [(40, 60), (34,), (50,)])
    def test_parts_that_are_no_batches_are_refused(self, sizes):
        with pytest.raises(ValueError, match=r"records are [356] parts, not 4"):
            oracle(buffered(), shares=random_data(sizes))

    def test_batches_larger_than_a_part_are_refused(self):
        with pytest.raises(
            ValueError, match="batches of at most 10, or at most 3 parts"
        ):
            oracle(mechanism(batch_size=12.0), shares=random_data((40, 40)))


class TestAccount:
    @pytest.mark.parametrize("rounds", [1, 4, 5, 11])
    def test_a_turn_is_one_release(self, rounds):
        """As often as the part has turns that has most of them."""
        _, made = released(mechanism(), rounds)
        (entry,) = made.ledger.nodes[0]
        assert entry.count == math.ceil(rounds / 4)
        assert entry.release.sampling == PoissonSampling(4 * 5 / 40, 4, COLUMN[1:])
        moved = entry.release.sensitivity.add_or_remove_one
        assert entry.release.noise / moved == pytest.approx(1e6)
        assert moved == pytest.approx(math.hypot(*COLUMN))
        planned = mechanism().ledger([40, 60], rounds)
        assert planned == made.ledger

    @pytest.mark.parametrize("rounds", [4, 12])
    def test_turns_by_buffers_are_the_release_of_the_factorisation(self, rounds):
        how = buffered(noise_multiplier=2.0)
        whole = matrix_factorization(
            matrix(column_of(how, rounds), rounds),
            noise_multiplier=2.0 * how.spread,
            epochs=rounds // 4,
        )
        found = pa.epsilon(ledger=told(how.ledger([40], rounds)), delta=1e-5)
        other = pa.epsilon(ledger=pa.Ledger.of(whole), delta=1e-5)
        assert found.upper == pytest.approx(other.upper, rel=1e-6)
        assert found.lower == pytest.approx(other.lower, rel=1e-6)

    def test_unsampled_it_is_the_release_of_the_factorisation(self):
        """Whose sensitivity has been held against all patterns of participation."""
        rounds, z = 12, 2.0
        whole = matrix_factorization(
            matrix(COLUMN, rounds), noise_multiplier=z, epochs=3
        )
        turns = Mechanism(5.0, 1.0, z, strategy=COLUMN, parts=4, rate=0.25)
        ledger = turns.ledger([40], rounds)
        assert ledger.nodes[0][0].release.sampling.rate == 1
        # The latter's noise is not over C's sensitivity, of which |c| is one turn's.
        given = Release.of_sum(
            norm_bound=whole.sensitivity.add_or_remove_one,
            noise_multiplier=z / math.sqrt(3),
            sampling=whole.sampling,
        )
        one = pa.epsilon(ledger=told(ledger), delta=1e-5)
        other = pa.epsilon(ledger=pa.Ledger.of(given), delta=1e-5)
        # Its last columns are cut, and a turn that begins early is not.
        assert one.upper == pytest.approx(other.upper, rel=1e-3)

    @pytest.mark.parametrize(
        ("more", "secret"),
        [
            ({"batch_size": 5.0}, False),  # coins of a half
            ({"batch_size": 5.1}, True),
            ({"strategy": (1.0, 2e-3)}, True),
            ({"strategy": (1.0, 5e-4)}, False),  # less than what rounding may be
            ({"strategy": (1.0, 0.0, -0.5)}, True),
            ({"strategy": (1.0,), "buffers": PAIRS}, True),
            ({"strategy": (1.0,), "buffers": ((0.3, 0.1),)}, False),
        ],
    )
    def test_where_parts_are_secret_ledger_and_canaries_agree(self, more, secret):
        how = mechanism(**{"batch_size": 10.0, "noise_multiplier": 1.0, **more})
        made = oracle(how, shares=random_data((40,)), runs=40)
        made.gradient(start(DIMS, runs=40, nodes=1))
        (entry,) = made.ledger.nodes[0]
        assert entry.release.sampling.secret == secret
        parts = [made._sampler._of_part([0], k, 40, 1)[:, 0, 40] for k in range(4)]
        drawn = torch.stack(parts).sum(1)  # in how many runs a canary has this part
        assert bool((drawn[1:] > 0).all()) == secret
        assert int(drawn.sum()) == 40

    def test_users_are_drawn_in_turn_too(self):
        how = UpdateMechanism(0.2, 1.0, 1.0, strategy=COLUMN, parts=4)
        shares = [
            dataclasses.replace(one, users=torch.arange(len(one.targets)) // 2)
            for one in random_data((40, 40))
        ]
        made = oracle(how, shares=shares, kind=UpdateOracle)
        for _ in range(5):
            made.gradient(start(DIMS, nodes=2))
        (entry,) = made.ledger.nodes[0]
        assert (entry.count, entry.release.sampling.rate) == (2, 0.8)
        assert made.ledger.unit == "user"


class TestContract:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("name", ["dp-mf", "dp-mf-dsgd", "dp-fedavg"])
    @pytest.mark.parametrize("buffers", [0, 2])
    def test_holds(self, name, buffers):
        more = {"user_rate": 0.5} if name == "dp-fedavg" else {}
        parts = {"dp-mf": 15, "dp-mf-dsgd": 3, "dp-fedavg": 2}[name]
        shared = {"buffers": buffers, "parts": parts} if buffers else {"band": 2}
        contract.check(name, {"rounds": 5, **shared, **more})

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"buffers": 2}, "needs parts"),
            ({"buffers": 2, "parts": 1}, "2 or more, got 1"),
            ({"buffers": 2, "parts": 15, "band": 4}, "one of band and buffers"),
        ],
    )
    def test_options_refused(self, more, words):
        with pytest.raises(ValueError, match=words):
            made(algorithm="dp-mf", **more)

    def test_it_is_audited_turn_by_turn(self):
        """What a watcher is shown has the noise of a release, and grows with turns."""
        how, seen = buffered(noise_multiplier=1.0), []

        class Watcher:
            def release(self, index, at, gradient, nodes):
                seen.append((index, gradient))

        column, rounds = column_of(how, 12), 12
        rng = torch.Generator().manual_seed(0)
        white = torch.randn(rounds, 2000, generator=rng, dtype=torch.double)
        white = white * how.spread
        moved = matrix(column, rounds)[:, ::4].sum(axis=1)
        for sign in (0, 1):
            watched = Turns(Watcher(), how, secret=False)
            rows = white + sign * torch.tensor(moved)[:, None]
            released = np.linalg.solve(matrix(column, rounds), rows.numpy())
            for k, one in enumerate(torch.tensor(released)):
                watched.release(k, one, one, [0])
        assert [index for index, _ in seen] == [0, 4, 8] * 2
        for turn in range(3):
            noise, both = seen[turn][1], seen[3 + turn][1]
            assert float(noise.std()) == pytest.approx(1.0, abs=0.1)
            told = turn_norm(how.buffers, 4, turn) / how.spread
            assert (both - noise).numpy() == pytest.approx(told, rel=1e-6)


class TestLoops:
    def made(self, **more):
        inputs = torch.randn(80, 5, generator=torch.Generator().manual_seed(0))
        values = {"nodes": 2, "noise_multiplier": 1.0, "clip_norm": 1.0, **more}
        data = inputs, (inputs.sum(1) > 0).long()
        return pa.oracle(torch.nn.Linear(5, 2), data, batch_size=8, **values)

    def test_a_budget_is_charged_a_turn_at_a_time(self):
        budget = pa.Budget(epsilon=6.0, delta=1e-5)
        made = self.made(correlated=4, budget=budget)
        asked = 0
        try:
            while asked < 1000:
                made.gradient(made.start)
                asked += 1
        except pa.BudgetExceeded:
            pass
        assert asked % 4 == 0
        assert asked > 0
        assert made.ledger.nodes[0][0].count == asked // 4

    def test_by_buffers_each_turn_is_charged_what_it_adds(self, tmp_path):
        budget = pa.Budget(epsilon=9.0, delta=1e-5)
        more = {"correlated": blt(60, 5, 2), "key_file": tmp_path / "key"}
        made = self.made(**more, budget=budget, noise_multiplier=2.0)
        asked = 0
        try:
            while asked < 100:
                made.gradient(made.start)
                asked += 1
        except pa.BudgetExceeded:
            pass
        assert 10 <= asked < 100
        assert asked % 5 == 0
        assert len(made.ledger.nodes[0]) == asked // 5
        assert pa.epsilon(ledger=made.ledger, delta=1e-5).upper <= 9.0
        made.close()
        with pytest.raises(ValueError, match="noise in buffers is in memory alone"):
            self.made(**more, noise_multiplier=2.0)

    def test_its_state_has_no_noise(self, tmp_path):
        made = self.made(correlated=[1, 0.5], key_file=tmp_path / "key")
        made.gradient(made.start)
        state = made.state_dict()
        assert set(state) == {"key", "releases", "ledger", "seal"}
        made.close()
        again = self.made(correlated=[1, 0.5], key_file=tmp_path / "key")
        again.load_state_dict(state)
        again.gradient(again.start)
        again.gradient(again.start)
        assert again.ledger.nodes[0][0].count == 2

    @pytest.mark.parametrize("given", [0, "8", 1.5, (), [2.0], [(0.5, 1)], [(1,)]])
    def test_refused(self, given):
        with pytest.raises(
            ValueError, match=r"correlated must|a band is|a strategy has|buffers are"
        ):
            self.made(correlated=given)

    @pytest.mark.parametrize("make", [mechanism, buffered])
    def test_of_a_secret_part_the_score_is_the_log_of_the_mixtures_ratio(self, make):
        how = make(noise_multiplier=1.0, batch_size=10.0)
        steps, turns = 12, TurnScores(how, secret=True)
        scores = turns.none(1)

        class Watcher:
            def release(self, index, at, gradient, nodes):
                moved = turns.moved(index)
                found = log_ratio(gradient, moved, 1.0, replaces=False)
                scores[turns.part(index)].add_(found)

        whole = matrix(column_of(how, steps + 4), steps + 4)
        rows = np.random.default_rng(0).normal(size=steps + 4) * how.spread
        (shown,) = turns.observers(Watcher())
        for k, one in enumerate(np.linalg.solve(whole, rows)):
            shown.release(k, torch.zeros(1), torch.tensor([one]), [0])
        found = []
        for part in range(4):  # of whole turns: by buffers others are not shown
            starts = [
                first
                for first in range(part, steps + 4, 4)
                if first + (4 if how.buffers else len(COLUMN)) <= steps + 4
            ]
            moves = np.zeros(steps + 4)
            for first in starts:
                moves += whole[:, first]
            end = starts[-1] + 4 if how.buffers else steps + 4
            moves[end:] = 0.0
            square = moves @ moves / how.spread**2
            found.append(moves @ rows / how.spread**2 - square / 2)
        truth = logsumexp(found) - math.log(4)
        assert turns.mean(scores).numpy() == pytest.approx(truth, rel=1e-9)


class TestGroups:
    def test_several_records_pay_as_if_none_were_sampled(self):
        """They may be in different parts, whose turns overlap."""
        ledger = mechanism(noise_multiplier=4.0).ledger([40], 8)
        plain = pa.Ledger.of(
            Release.of_sum(
                norm_bound=1.0, noise_multiplier=4.0, sampling=PoissonSampling(1.0)
            ),
            2,
        )
        for group in (2, 3):
            found = pa.epsilon(ledger=ledger, delta=1e-5, group=group).upper
            every = pa.epsilon(ledger=plain, delta=1e-5, group=group).upper
            assert found == pytest.approx(every, rel=1e-6)
        same = mechanism(noise_multiplier=4.0, strategy=(1.0,), parts=1, rate=0.5)
        sampled = pa.epsilon(ledger=same.ledger([40], 2), delta=1e-5, group=2)
        assert sampled.upper < 0.9 * pa.epsilon(ledger=plain, delta=1e-5, group=2).upper

    def test_the_kernel_takes_them_so(self):
        ledger = mechanism(noise_multiplier=4.0).ledger([40], 8)
        bracket = pa.Certificate.of(ledger, group=2).epsilon(1e-5)
        sides = (bracket.lower, bracket.upper)
        found = witness(ledger, "add-or-remove-one", 1e-5, sides, group=2)
        (line,) = found["nodes"][0]["groups"][0]["lines"]
        assert line["sampling"] == "none"

    @pytest.mark.parametrize("how", [mechanism(), buffered()])
    def test_whole_nodes_and_views_are_refused(self, how):
        with pytest.raises(ValueError, match="in several parts"):
            of_nodes(how.ledger([40], 8), [40])
        with pytest.raises(ValueError, match="in dp-mf-butterfly only"):
            releases_of(how.ledger([40], 8).nodes[0])

    @pytest.mark.parametrize("group", [1, 2])
    def test_by_buffers_a_group_moves_all_turns(self, group):
        """In any parts: a bound by explicit sums of rows."""
        how = buffered(noise_multiplier=9.0)
        column, rounds = column_of(how, 12), 12
        each = [matrix(column, rounds)[:, j::4].sum(axis=1) for j in range(4)]
        most = max(
            np.linalg.norm(sum(some))
            for some in itertools.combinations_with_replacement(each, group)
        )
        truth = ref.gaussian_delta(most / (9.0 * how.spread), 1.0)
        found = pa.Certificate.of(told(how.ledger([40], 12)), group=group).delta(1.0)
        assert float(truth) * (1 - 1e-6) <= found.upper <= float(truth) * (1 + 1e-6)


class TestButterfly:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "more", [{}, {"graph": "halving"}, {"nodes": 5, "rounds": 12, "momentum": 0.5}]
    )
    def test_keeps_the_contract(self, more):
        some = {"nodes": 4, "rounds": 20, "graph": "butterfly", "band": 3, **more}
        contract.check("dp-mf-butterfly", some)

    def test_the_common_model_is_that_of_shared_noise(self):
        """Minus the sum of C^-1 z over all nodes, beside which sums are nothing."""
        rounds, nodes, z, clip, batch = 24, 4, 2e3, 0.5, 10.0
        problem = made(nodes=nodes, rounds=rounds, band=3, step_size=1.0)
        seen = Recording()
        start = problem.start(0, 200)
        models, _ = problem.train(
            z, Streams(0), runs=200, start=start, observers=Observers(releases=(seen,))
        )
        steps = len(seen.releases)
        column = problem.mechanism(z).strategy
        # What nodes release has independent noise: rows of C x + z.
        white = torch.stack([one.double() for _, one in seen.releases]).numpy()
        size = z * clip * math.hypot(*column)
        assert stats.kstest(white[:, :, 1].ravel()[::37] / size, "norm").pvalue > 1e-6
        shared = np.tensordot(np.linalg.inv(matrix(column, steps)), white, 1)
        moved = (start - models)[:, 0].double().numpy()
        expected = shared.sum((0, 2)) / (nodes * batch)
        assert moved == pytest.approx(expected, rel=1e-4, abs=1e-3 * abs(moved).max())

    @pytest.mark.parametrize("observer", ["1", "1,2"])
    def test_a_turn_tells_what_the_view_as_a_matrix_says(self, observer):
        """All that is heard of one part's turns, by linear algebra."""
        steps, nodes, parts, column = 9, 4, 3, (1.0, 0.6, 0.3)
        who = Observer.parse(observer)
        sizes = fresh_noises(nodes, steps, 0, who)
        worst = np.zeros(steps // parts)
        for first in range(parts):
            # Rows: the atom of each step, with the noise of its nodes.
            signal = matrix(column, steps)[:, first::parts]
            told = signal.T @ np.diag(1 / sizes) @ signal
            assert np.allclose(told, np.diag(told.diagonal()))
            worst = np.maximum(worst, np.sort(told.diagonal())[::-1])
        found = 1 / turns(PoissonSampling(0.5, parts, column[1:]), sizes)
        exact = worst / np.sum(np.square(column))
        assert (found >= exact).all()
        assert found == pytest.approx(exact, abs=2e-6)

    def test_an_observer_of_one_release_learns_all_of_it(self):
        how = PoissonSampling(0.5, 4, COLUMN[1:])
        assert turns(how, np.ones(8, int)) == pytest.approx([1.0, 1.0], rel=1e-5)
        ledger = mechanism(noise_multiplier=4.0).ledger([40] * 4, 8)
        alone = observed(ledger, "everybody")
        assert alone.nodes[0][0].release.noise == pytest.approx(
            ledger.nodes[0][0].release.noise, rel=1e-5
        )
        one = observed(ledger, "any-node")
        assert one.nodes[0][0].release.noise >= alone.nodes[0][0].release.noise
        with pytest.raises(ValueError, match="in dp-mf-butterfly only"):
            releases_of(ledger.nodes[0])

    @pytest.mark.parametrize("nodes", [4, 6])
    def test_any_node_is_no_better_than_each_one(self, nodes):
        ledger = mechanism(noise_multiplier=4.0).ledger([40] * nodes, 40)
        found = observed(ledger, "any-node")
        for of, by in itertools.permutations(range(nodes), 2):
            one = observed(ledger, str(by)).nodes[of]
            every = [
                sorted(e.release.noise for e in each for _ in range(e.count))
                for each in (found.nodes[of], one)
            ]
            assert len(every[0]) == 10
            assert (np.array(every[0]) <= every[1]).all()


def made(**more):
    values = {"algorithm": "dp-mf-butterfly", "graph": "butterfly", "train": 300}
    values |= {"batch_size": 10.0, "model": "softmax", "digits": (0, 1, 2)}
    return Problem.of(training_from({**values, "clip_norm": 0.5, **more}, where="here"))
