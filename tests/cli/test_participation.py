"""`epsilon` and `noise` for random allocation and for shuffled batches."""

import itertools
import json
import math

import numpy as np
import pytest

import privaudit as pa
from privaudit.accounting import Certificate, gdp
from privaudit.accounting.plans import Plan
from privaudit.cli import BAD_USAGE, FINE, main
from privaudit.ledger import Entry, Ledger


def call(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


RUN = ("--delta", 1e-5, "--sampling-rate", 0.01)


class TestRandomAllocation:
    def test_epsilon(self, capsys):
        status, out, err = call(
            capsys,
            *("epsilon", "--noise-multiplier", 1, *RUN, "--steps", 300, "--json"),
            *("--sampling", "random-allocation"),
        )
        found = json.loads(out)
        assert (status, err) == (FINE, "")
        assert found["sampling"] == "random-allocation"
        assert found["relation"] == "add-or-remove-one"
        assert found["standing"] == "certified"
        released = pa.Release.of_sum(
            norm_bound=1.0, noise_multiplier=1.0, sampling=pa.RandomAllocation(100)
        )
        account = Certificate.of(Ledger.of(released, 300)).epsilon(1e-5)
        assert found["upper"] == pytest.approx(account.upper, rel=2e-3)
        one = pa.epsilon(
            delta=1e-5,
            noise_multiplier=1.0,
            sampling_rate=0.01,
            steps=300,
            sampling="random-allocation",
        )
        assert one.upper == account.upper

    @pytest.mark.full
    def test_noise(self, capsys):
        status, out, _ = call(
            capsys,
            *("noise", "--epsilon", 1, *RUN, "--steps", 100, "--json"),
            *("--sampling", "random-allocation"),
        )
        assert status == FINE
        found = json.loads(out)
        assert 0.99 < found["epsilon"]["upper"] <= 1
        poisson = pa.noise_multiplier(
            epsilon=1, delta=1e-5, sampling_rate=0.01, steps=100
        )
        assert 0.9 * poisson < found["noise_multiplier"] < poisson

    @pytest.mark.parametrize(
        ("rate", "steps", "batches", "taken"),
        [(0.01, 5, 100, 1), (1 / 3, 9, 3, 1), (0.03, 200, 100, 3), (0.5, 2, 2, 1)],
    )
    def test_a_rate_is_k_of_t(self, rate, steps, batches, taken):
        plan = Plan.constant(1.0, rate, steps, "random-allocation")
        (entry,) = plan.ledger().nodes[0]
        assert entry.release.sampling == pa.RandomAllocation(batches, taken)
        assert entry.count == steps

    @pytest.mark.parametrize(("batches", "taken"), [(100, 2), (3, 2), (100, 10)])
    def test_k_that_is_said_is_not_reduced(self, batches, taken):
        """2 of 100 is no 1 of 50: half an epoch of it tells more."""
        plan = Plan.constant(
            1.0, taken / batches, 10, sampling := f"random-allocation:{taken}"
        )
        (entry,) = plan.ledger().nodes[0]
        assert entry.release.sampling == pa.RandomAllocation(batches, taken)
        with pytest.raises(ValueError, match=r"would be .* of .* batches"):
            Plan.constant(1.0, 0.87 * taken / batches, 10, sampling).ledger()

    @pytest.mark.parametrize("sampling", ["poison", "random-allocation:", ""])
    def test_a_scheme_that_is_none(self, capsys, sampling):
        """In Python as well: it was taken for batches of a fixed size."""
        run = {"noise_multiplier": 1.0, "sampling_rate": 0.1, "delta": 1e-5}
        with pytest.raises(ValueError, match="random-allocation:k"):
            pa.epsilon(**run, sampling=sampling)
        with pytest.raises(ValueError, match="random-allocation:k"):
            pa.epsilon(delta=1e-5, schedule=[(1.0, 0.1)], sampling=sampling)
        status, _, err = call(
            capsys,
            *("epsilon", "--noise-multiplier", 1, *RUN, f"--sampling={sampling}"),
        )
        assert status == BAD_USAGE
        assert "random-allocation:k" in err

    def test_a_rate_that_is_no_epochs(self, capsys):
        status, _, err = call(
            capsys,
            *("epsilon", "--noise-multiplier", 1, "--delta", 1e-5, "--steps", 300),
            *("--sampling", "random-allocation", "--sampling-rate", 0.3333),
        )
        assert status == BAD_USAGE
        assert "3,333 of 10,000 batches" in err

    def test_rates_that_change_are_refused(self):
        with pytest.raises(ValueError, match="must not change from step to step"):
            Plan(
                noise_multiplier=np.ones(2),
                sampling_rate=np.array([0.1, 0.2]),
                scheme="random-allocation",
            )


class TestShuffled:
    def test_one_release_a_pass(self, capsys):
        status, out, err = call(
            capsys,
            *("epsilon", "--noise-multiplier", 4, *RUN, "--steps", 901, "--json"),
            *("--sampling", "shuffled"),
        )
        found = json.loads(out)
        assert status == FINE
        assert "Draw batches by random allocation or by Poisson sampling" in err
        assert found["relation"] == "replace-one"
        # ten passes, the last one begun; a record is replaced by its opposite
        exact = float(gdp.epsilon(math.sqrt(10) * 2 / 4, 1e-5))
        assert found["upper"] == pytest.approx(exact, rel=1e-9)

    def test_more_parts_than_are_dealt_tell_nothing_from_below(self):
        noisy = pa.Release.of_sum(
            norm_bound=1.0, noise_multiplier=1.0, sampling=pa.NoSampling()
        )
        for parts, known in ((2, True), (3, False)):
            entry = Entry(noisy, parts, 0, dealt=2)
            found = Certificate.of(Ledger(nodes=((entry,),)), "replace-one").delta(1.0)
            assert (found.lower > 0) == known

    @pytest.mark.parametrize("steps", [3, 7])
    def test_laplace_from_below_is_by_what_lies_beyond(self, steps):
        """Of 7 batches ``steps``: the two laws of the count, by sums of products."""
        plan = Plan(
            noise_multiplier=np.array([1.5]),
            sampling_rate=np.array([1 / 7]),
            count=steps,
            scheme="shuffled",
            mechanism="laplace",
        )
        far = math.exp(-2 / 1.5) / 2
        one, rest = np.ones(1), np.ones(1)
        for _ in range(steps):
            rest, one = np.convolve(rest, [1 - far, far]), rest
        p = steps / 7 * np.convolve(one, [0.5, 0.5]) + (1 - steps / 7) * rest
        wanted = max(
            np.maximum(a - math.exp(0.1) * b, 0).sum()
            for a, b in ((p, rest), (rest, p))
        )
        found = Certificate.of(plan.ledger()).delta(0.1).lower
        assert wanted * 0.95 <= found <= wanted * (1 + 1e-9)

    @pytest.mark.parametrize(
        ("records", "law", "near"),
        [(4, "gaussian", 0.99), (5, "gaussian", 0.5), (4, "laplace", 0.5)],
    )
    def test_the_lower_side_is_that_of_all_orders(self, records, law, near):
        """Two batches of two, by all orders of the records, on a grid of outcomes."""
        plan = Plan(
            noise_multiplier=np.array([1.5]),
            sampling_rate=np.array([2 / records]),
            count=2,
            scheme="shuffled",
            mechanism=law,
        )
        x = np.arange(-14, 12, 0.05)

        def noise(far):
            return np.exp(-(far**2) / 4.5 if law == "gaussian" else -far / 1.5)

        def density(vectors):
            orders = list(itertools.permutations(vectors))
            first, second = (
                [noise(np.abs(x - sum(order[i : i + 2]))) for order in orders]
                for i in (0, 2)
            )
            return np.einsum("ij,ik->jk", first, second) / len(orders)

        p, q = density([1, -1, -1, -1, -1][:records]), density([-1] * records)
        for epsilon in (0.1, 1.0)[: 2 if law == "gaussian" else 1]:
            each = [
                np.maximum(a - math.exp(epsilon) * b, 0) for a, b in ((p, q), (q, p))
            ]
            truth = max(one.sum() for one in each) / q.sum()
            found = Certificate.of(plan.ledger()).delta(epsilon)
            assert truth * near <= found.lower <= truth
            assert truth < found.upper

    def test_batches_that_do_not_fill_a_pass_are_counted_in_fewer(self):
        plan = Plan.constant(1.0, 0.3, 7, "shuffled")  # three batches a pass
        assert [e.disjoint for e in plan.ledger().nodes[0]] == [0, 1, 2]
        assert [e.count for e in plan.ledger().nodes[0]] == [3, 3, 1]

    def test_different_steps_pay_for_the_worst_of_each_pass(self):
        plan = Plan(
            noise_multiplier=np.array([2.0, 3.0, 5.0, 4.0]),
            sampling_rate=np.full(4, 0.5),
            scheme="shuffled",
        )
        found = Certificate.of(plan.ledger()).epsilon(1e-5)
        exact = float(gdp.epsilon(math.hypot(2 / 2, 2 / 4), 1e-5))
        assert found.upper == pytest.approx(exact, rel=1e-9)

    def test_adding_a_record_shifts_all_batches(self, capsys):
        status, _, err = call(
            capsys,
            *("epsilon", "--noise-multiplier", 4, *RUN, "--steps", 100),
            *("--sampling", "shuffled", "--relation", "add-or-remove-one"),
        )
        assert status == BAD_USAGE
        assert "account it under replace-one" in err
