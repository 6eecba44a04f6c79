"""Contract of collaborative: what is released, how far it moves, and noise."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from privaudit.accounting import account, gdp
from tests.tiers import examples
from tests.trainers import collaborative as checks
from tests.trainers.collaborative import (
    CLASSES,
    FEATURES,
    SIZES,
    begin,
    one_pass,
    oracle,
    publications,
)
from tests.trainers.problems import random_data
from tests.zoo.test_mixing import FOR_ALL
from trainers.algorithms.collaborative.logistic import (
    Constants,
    gradient,
    losses,
    signs,
    unit_rows,
)
from trainers.algorithms.collaborative.one_pass import paper_multiplier
from trainers.algorithms.collaborative.oracle import Participants
from trainers.algorithms.collaborative.policies import Choices, exploration
from trainers.algorithms.collaborative.resampling import Resampling
from trainers.algorithms.collaborative.runner import Collaboration, Collaborative
from trainers.data import Dataset
from trainers.numerics.randomness import TOO_SMALL

POLICIES = ["coin", "always-global", "never", "deep-q"]


def run(private, start, outcome="global", rounds=10, **more):
    return Collaboration(Collaborative(outcome), None).run(
        start, private, rounds, **more
    )


class TestLoss:
    @examples(40)
    @given(st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 2.0]))
    def test_the_gradient_is_that_of_the_loss(self, seed, lam):
        g = torch.Generator().manual_seed(seed)
        weights = torch.randn(CLASSES, FEATURES, generator=g, dtype=torch.float64)
        (share,) = random_data((5,), FEATURES, CLASSES, seed=seed)
        rows, own = unit_rows(share.inputs), signs(share.targets, CLASSES).double()
        constants = Constants(lam)
        weights.requires_grad_()
        losses(weights, rows, own, constants).sum().backward()
        found = gradient(weights.detach(), rows, own, constants)
        torch.testing.assert_close(found, weights.grad)
        # Against torch's own logistic loss.
        wanted = functional.binary_cross_entropy_with_logits(
            rows @ weights.detach().T, (own > 0).double(), reduction="none"
        ).mean(0) + lam / 2 * weights.detach().square().sum(1)
        torch.testing.assert_close(
            losses(weights.detach(), rows, own, constants), wanted
        )

    @given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=3, max_size=3))
    def test_rows_are_never_longer_than_one(self, row):
        for dtype in (torch.float32, torch.float64):
            scaled = unit_rows(torch.tensor([row], dtype=dtype))
            assert torch.isfinite(scaled).all()
            length = np.linalg.norm(scaled.double().numpy())
            assert length <= 1
            assert length == 0 or length > 1 - 1e-4

    def test_rows_without_a_length_are_refused(self):
        with pytest.raises(ValueError, match="not finite"):
            unit_rows(torch.tensor([[1.0, float("inf")]]))


@st.composite
def neighbours(draw):
    """A pass, its two worlds' oracles, and where they start."""
    lam = draw(st.sampled_from([0.0, 1e-4, 0.5]))
    most = Constants(lam).largest_step
    shares = draw(st.lists(st.floats(0.05, 1.0), min_size=5, max_size=5))
    policy = draw(st.sampled_from(["coin", "always-global"]))
    mechanism = one_pass(
        policy,
        step=lambda k: most * shares[k % 5],
        lam=lam,
        noise=draw(st.just(0.0) | st.floats(1e-6, 3)),
    )
    seed = draw(st.integers(0, 10**6))
    g = torch.Generator().manual_seed(seed)
    canary = Dataset(
        torch.randn(1, FEATURES, generator=g, dtype=torch.float64),
        torch.randint(0, CLASSES, (1,), generator=g),
    )
    mechanism = dataclasses.replace(
        mechanism, choices=Choices(policy, 0.4, 0.4, draw(st.integers(0, 99)))
    )
    data = random_data((14, 6), FEATURES, CLASSES, seed=seed)
    worlds = [
        oracle(mechanism, shares=data, seed=seed, canary=canary, at=at) for at in (0, 1)
    ]
    return worlds, begin(
        nodes=2, scale=draw(st.sampled_from([0.0, 1.0, 30.0])), seed=seed
    )


class TestSensitivity:
    @examples(80)
    @given(neighbours())
    def test_lemma_4(self, case):
        """The first update that differs moves by at most max 2 eta L / b a class."""
        worlds, start = case
        mechanism = worlds[0].mechanism
        left, right = (publications(world, start) for world in worlds)
        differs = torch.zeros(CLASSES, dtype=torch.bool)
        since = [0] * CLASSES  # the batch after node 0's last update, class by class
        for one, other in zip(left, right, strict=True):
            turn, node, here, mine, _ = one
            assert torch.equal(here, other[2])
            for number in range(CLASSES):
                if not here[0, number] or differs[number]:
                    continue
                moved = (mine - other[3])[0, number].norm().item()
                if node:
                    assert moved <= 1e-12
                    continue
                steps = [mechanism.step_size(k) for k in range(since[number], turn + 1)]
                since[number] = turn + 1
                allowed = 2 * max(steps) / mechanism.batch_size
                assert moved <= allowed * (1 + 1e-9)
                differs[number] = moved > 1e-12

    @pytest.mark.parametrize("policy", ["coin", "always-global"])
    def test_the_bound_is_nearly_reached(self, policy):
        # Opposite rows that are both far on the wrong side.
        angle = 1.5
        rows = torch.zeros(2, FEATURES, dtype=torch.float64)
        rows[:, 0] = np.cos(angle)
        rows[0, 1], rows[1, 1] = np.sin(angle), -np.sin(angle)
        data = [Dataset(rows[:1].repeat(8, 1), torch.zeros(8, dtype=torch.long))]
        canary = Dataset(rows[1:], torch.tensor([0]))
        start = torch.zeros(1, 1, CLASSES, FEATURES, dtype=torch.float64)
        start[..., 0] = -1000.0
        mechanism = one_pass(policy, noise=0.0, batch_size=8.0)
        mechanism = dataclasses.replace(mechanism, choices=Choices(policy, 1.0, 1.0))
        moved = [
            publications(
                oracle(mechanism, shares=data, canary=canary, at=at), start.flatten(2)
            )[0][3]
            for at in (0, 1)
        ]
        distance = (moved[0] - moved[1])[0, 0].norm().item()
        allowed = 2 * 0.3 / 8
        assert 0.99 * allowed < distance <= allowed

    @pytest.mark.parametrize(("lam", "most"), [(0.0, 0.5), (1.0, 0.25)])
    def test_steps_beyond_the_lemma_are_refused(self, lam, most):
        oracle(one_pass(step=lambda k: most, lam=lam))
        with pytest.raises(ValueError, match="Lemma 4"):
            oracle(one_pass(step=lambda k: most * 1.01, lam=lam))
        oracle(one_pass(step=lambda k: 3.0, lam=lam, noise=0.0))  # nothing is promised

    def test_beyond_the_lemma_it_is_false(self):
        """At 2 eta above 2 / smoothness, local steps drive two worlds apart."""
        from trainers.algorithms.collaborative.logistic import gradient

        lam, step, batch = 5.0, 0.5, 1.0
        constants = Constants(lam)
        assert step > constants.largest_step
        rows = torch.eye(FEATURES, dtype=torch.float64)[:1]
        own = torch.ones(1, 1, dtype=torch.float64)
        left = torch.zeros(1, FEATURES, dtype=torch.float64)
        right = left + 2 * step * 2 * rows / batch
        for _ in range(3):
            left = left - 2 * step * gradient(left, rows, own, constants)
            right = right - 2 * step * gradient(right, rows, own, constants)
        assert (left - right).norm() / 2 > 2 * step / batch


class TestLedger:
    @pytest.mark.parametrize("policy", POLICIES)
    @pytest.mark.parametrize("step", [lambda k: 0.3, lambda k: 0.4 * 0.8**k])
    def test_what_is_planned_is_what_happens(self, policy, step):
        mechanism = one_pass(policy, step=step, batch_size=2.0)
        private = oracle(mechanism, runs=2)
        planned = mechanism.ledger_of(private.sizes, CLASSES)
        run(private, begin(2))

        def content(ledger):
            return [
                sorted((e.disjoint, e.release.noise, e.count) for e in entries)
                for entries in ledger.nodes
            ], ledger.assumes

        assert content(private.ledger) == content(planned)
        assert (planned.nodes == ((), (), ())) == (policy == "never")

    def test_all_classes_are_accounted_together(self):
        private = oracle(one_pass("always-global", noise=20.0))
        run(private, begin())
        bound = account(private.ledger, 1e-5, "replace-one", "gdp")
        # A record moves a class's model by 2, and rounding by 2^-20 of the noise more.
        exact = gdp.epsilon((2 + 20 * 2.0**-20) * CLASSES**0.5 / 20.0, 1e-5)
        assert bound.epsilon == pytest.approx(exact, rel=1e-9)
        assert bound.epsilon > gdp.epsilon(2 * CLASSES**0.5 / 20.0, 1e-5)
        assert bound.standing == "certified"
        with pytest.raises(ValueError, match="no sensitivity under add-or-remove-one"):
            account(private.ledger, 1e-5, "add-or-remove-one")

    def test_private_choices_are_never_certified(self):
        private = oracle(one_pass("deep-q", noise=20.0))
        run(private, begin())
        bound = account(private.ledger, 1e-5, "replace-one")
        assert bound.standing == "conditional"
        assert "nobody learns anything from which updates are global" in str(bound)

    @pytest.mark.parametrize("step", [lambda k: 0.3, lambda k: 0.4 * 0.7**k])
    @pytest.mark.parametrize("policy", ["coin", "always-global"])
    def test_noise_is_as_written(self, policy, step):
        assert not checks.noise_is_as_written(mechanism=one_pass(policy, step=step))

    def test_noise_of_deep_q_is_never_below_what_is_written(self):
        runs = 20
        mechanism = one_pass("deep-q", step=lambda k: 0.4 * 0.7**k)
        private = oracle(mechanism, runs=runs)
        (written,) = {
            e.release.noise
            for entries in mechanism.ledger_of(private.sizes, CLASSES).nodes
            for e in entries
        }
        for turn, _, here, gave, exact in publications(private, begin(runs)):
            noise = (gave - exact)[here]
            # Of the batch of the turn itself, which has the smallest step.
            measured = noise.std().item() * mechanism.batch_size
            slack = 1 - 5 / (2 * noise.numel()) ** 0.5
            assert measured / mechanism.step_size(turn) >= written * slack

    def test_noise_is_fresh(self):
        assert not checks.noise_is_fresh()

    @pytest.mark.parametrize("kind", [Participants, Resampling])
    def test_no_mode_that_is_set_meanwhile_sees_batches(self, kind):
        one = one_pass("always-global") if kind is Participants else checks.resampled()
        private = oracle(one, kind=kind)
        private.begin(begin())
        action = private.choose(0)
        shared = begin()[:, 0].unflatten(1, (-1, private.features))
        with FOR_ALL["functions"](), pytest.raises(ValueError, match="set for all"):
            private.publish(0, 0, action, shared)

    def test_a_record_enters_one_batch(self):
        assert not checks.a_record_enters_one_batch()


class TestGrid:
    def test_updates_are_whole_steps_and_their_rounding_is_paid(self):
        mechanism = one_pass("always-global", noise=20.0)
        for dims in (1, 3, 785, 100_000):
            step = mechanism.grid(0.3, dims)
            assert math.frexp(step)[0] == 0.5
            assert math.sqrt(dims) * step <= 0.3 * 2.0**-20
        ((release, _),) = mechanism.released([1.0])
        bound = mechanism.constants.lipschitz
        moved = 2 * bound + release.noise * 2.0**-20
        assert release.sensitivity.replace_one >= moved * (1 - 1e-15)
        private, turn = oracle(mechanism), 0
        shared = begin()
        private.begin(shared)
        shape = private.local_models.shape
        action = private.choose(turn)
        new = private.publish(turn, 0, action, private.local_models[:, 0])
        deviation = 20.0 * bound * mechanism.step_size(turn) / mechanism.batch_size
        step = mechanism.grid(deviation, shape[3])
        assert action[:, 0].all()
        assert torch.equal(new / step, (new / step).round())

    def test_noise_that_is_lost_is_a_condition(self):
        private = oracle(one_pass("always-global", noise=1e-90))
        run(private, begin())
        assert TOO_SMALL in private.ledger.assumptions


class TestPlantedBugs:
    def test_one_class_s_noise_for_all_classes(self):
        class Shared(Participants):
            def _noisy(self, node, new, scale):
                noise = super()._noisy(node, new, scale) - new
                return new + noise[:, :1] * (scale / scale[:, :1])[..., None]

        assert not checks.noise_is_as_written(Shared)  # its size gives nothing away
        assert any("is related" in text for text in checks.noise_is_fresh(Shared))

    def test_a_batch_visited_twice(self):
        class Twice(Participants):
            def _batch(self, turn, nodes):
                return super()._batch(turn - turn % 2, nodes)

        (text,) = checks.a_record_enters_one_batch(Twice)
        assert "in 2 batches" in text

    def test_noise_of_the_last_batch_alone(self):
        class Late(Participants):
            def publish(self, turn, node, action, shared):
                self._peak.zero_()
                return super().publish(turn, node, action, shared)

        mechanism = one_pass(step=lambda k: 0.4 * 0.5**k)
        assert any(
            "was measured" in text
            for text in checks.noise_is_as_written(Late, mechanism)
        )

    def test_a_release_without_a_note(self):
        class Silent(Participants):
            def _note(self, turn, action):
                if turn:
                    super()._note(turn, action)

        assert checks.noise_is_as_written(Silent, one_pass("always-global"))


class TestPolicies:
    def test_never_is_local_descent(self):
        mechanism = one_pass("never", lam=0.1)
        private = oracle(mechanism, runs=2)
        found = run(private, begin(2), "local").unflatten(2, (CLASSES, FEATURES))
        again = oracle(mechanism, runs=2)
        again.begin(begin(2))
        for node, turns in enumerate((6, 4, 7)):
            weights = begin(2)[:, node].unflatten(1, (CLASSES, FEATURES))
            for turn in range(turns):
                rows, own = again._batch(turn, [node])
                down = gradient(weights, rows[:, 0], own[:, 0], mechanism.constants)
                weights = weights - 0.6 * down
            torch.testing.assert_close(found[:, node], weights)
        assert torch.equal(run(oracle(mechanism, runs=2), begin(2)), begin(2))

    def test_alone_and_always_global_is_descent(self):
        mechanism = one_pass("always-global", noise=0.0)
        shares = random_data((9,), FEATURES, CLASSES)
        found = run(oracle(mechanism, shares=shares), begin(nodes=1))
        again = oracle(mechanism, shares=shares)
        again.begin(begin(nodes=1))
        weights = begin(nodes=1)[:, 0].unflatten(1, (CLASSES, FEATURES))
        for turn in range(4):
            rows, own = again._batch(turn, [0])
            down = gradient(weights, rows[:, 0], own[:, 0], mechanism.constants)
            weights = weights - 0.3 * down
        torch.testing.assert_close(found[:, 0], weights.flatten(1))

    def test_a_coin_of_one_is_always_global(self):
        always = one_pass("always-global")
        coin = dataclasses.replace(always, choices=Choices("coin", 1.0, 1.0))
        assert torch.equal(run(oracle(always), begin()), run(oracle(coin), begin()))

    def test_noise_is_all_that_differs_without_it(self):
        quiet = run(oracle(one_pass("coin", noise=0.0)), begin())
        noisy = run(oracle(one_pass("coin", noise=1e-9)), begin())
        torch.testing.assert_close(quiet, noisy, rtol=0, atol=1e-7)

    def test_the_coin_looks_at_nothing(self):
        seen = []
        for seed in range(2):
            shares = random_data(SIZES, FEATURES, CLASSES, seed=seed)
            watch = Watching()
            run(oracle(shares=shares, seed=seed, runs=3), begin(3), observers=[watch])
            seen.append(watch.actions)
        assert torch.equal(*seen)
        assert (seen[0] == seen[0][:, :1]).all()  # equal in all runs
        assert 0 < seen[0].mean() < 1

    def test_the_coin_has_the_annealed_chance(self):
        table = Choices("coin").table(400, 50, 10)
        for turn, chance in ((0, 0.5), (100, 0.275), (200, 0.05), (399, 0.05)):
            around = table[max(0, turn - 2) : turn + 3]
            assert around.mean() == pytest.approx(chance, abs=0.03)
        assert [exploration(k, 100) for k in (0, 25, 50, 99)] == pytest.approx(
            [1, 0.55, 0.1, 0.1]
        )

    def test_nodes_stop_when_their_records_are_used_up(self):
        watch = Watching()
        run(oracle(one_pass("always-global")), begin(), observers=[watch])
        assert watch.actions[:, 0, :, 0].sum(0).tolist() == [6, 4, 7]

    @pytest.mark.parametrize("policy", POLICIES)
    def test_stopped_and_resumed_to_equal_bits(self, policy):
        from trainers.runs import checkpoint

        mechanism, kept = one_pass(policy), {}

        def keep(done, state):
            content = {"state": state, "oracle": first.state_dict()}
            kept[done] = checkpoint.pack(content)

        first = oracle(mechanism, runs=2)
        whole = run(first, begin(2), keep=keep)
        content = checkpoint.unpack(kept[2])
        second = oracle(mechanism, runs=2)
        second.load_state_dict(content["oracle"])
        state = checkpoint.like(
            Collaboration(Collaborative("global"), None).begin(begin(2)),
            content["state"],
        )
        assert torch.equal(run(second, begin(2), resume=(2, state)), whole)
        assert second.ledger == first.ledger


class Watching:
    """Keeps all actions, (turns, runs, nodes, classes)."""

    def __init__(self):
        self._kept = []

    def messages(self, k, sent):
        self._kept.append(sent["actions"].clone())

    @property
    def actions(self):
        return torch.stack(self._kept)


class TestPaper:
    def test_noise_as_printed(self):
        # c Delta / epsilon with Delta = 2 eta L / b, over eta / b.
        c = (2 * np.log(1.25 / 1e-5)) ** 0.5
        assert paper_multiplier(Constants(0.0), 0.5, 1e-5) == pytest.approx(2 * c / 0.5)
        assert paper_multiplier(Constants(1e-4), 0.5, 1e-5) == pytest.approx(
            4 * c / 0.5
        )

    @pytest.mark.full
    @given(st.floats(0.25, 0.99), st.sampled_from([1e-3, 1e-5, 1e-8]))
    def test_it_promises_one_class_and_not_all(self, epsilon, delta):
        z = paper_multiplier(Constants(0.0), epsilon, delta)
        one = one_pass("always-global", noise=z).ledger_of((8,), 1)
        ten = one_pass("always-global", noise=z).ledger_of((8,), 10)
        assert account(one, delta, "replace-one", "gdp").epsilon <= epsilon
        assert account(ten, delta, "replace-one", "gdp").epsilon > 1.5 * epsilon
