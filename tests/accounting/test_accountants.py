"""What dp-accounting 0.6 holds its accountants to, asked of ours in our own words.

Cases of its privacy_accountant_test.py, pld_privacy_accountant_test.py and
rdp_privacy_accountant_test.py, and what is read differently here, with the reason, in
`TestReadOtherwise`.
"""

from __future__ import annotations

import itertools
import math

import dp_accounting as dpa
import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.privacy_accountant import NeighboringRelation, UnsupportedEventError
from scipy import special, stats

from privaudit.accounting import Certificate, tuning
from privaudit.accounting.accountant import CertifiedAccountant, RenyiAccountant
from privaudit.accounting.events import from_json, ledger_of, to_json
from privaudit.accounting.tuning import (
    mean_of,
    parameter_of,
    repeat_and_select,
    selected_profile,
)
from privaudit.ledger import Ledger
from privaudit.mechanisms import RDP
from privaudit.release import NoSampling, Release
from tests.accounting.test_events import EpsilonDeltaDpEvent
from tests.reference import gaussian_delta

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
ALL = (ADD, REPLACE, SPECIAL)

gaussian, laplace = dpa.GaussianDpEvent, dpa.LaplaceDpEvent
poisson, again = dpa.PoissonSampledDpEvent, dpa.SelfComposedDpEvent
together, report = dpa.ComposedDpEvent, dpa.RandomizedResponseDpEvent
mixture = dp_event.MixtureOfGaussiansDpEvent
discrete = dp_event.DiscreteLaplaceDpEvent
select = dp_event.RepeatAndSelectDpEvent
tree = dpa.SingleEpochTreeAggregationDpEvent


class NobodysEvent(dp_event.DpEvent):
    """One that no accountant knows."""


makes = [
    *(lambda r=r: CertifiedAccountant(r) for r in ALL),
    *(lambda r=r: RenyiAccountant([2.0], r) for r in ALL),
]
every = pytest.mark.parametrize(
    "make", makes, ids=[f"{k}-{r.name}" for k in ("certified", "renyi") for r in ALL]
)


def nothing_told(accountant):
    for delta in (1e-12, 0, 1):
        assert accountant.get_epsilon(delta) == 0
    for epsilon in (1e-12, 0, math.inf):
        assert accountant.get_delta(epsilon) == 0


@every
class TestEveryAccountant:
    @pytest.mark.parametrize("event", [dpa.UnsupportedDpEvent(), NobodysEvent()])
    @pytest.mark.parametrize(
        "nest", [lambda e: e, lambda e: together([e]), lambda e: again(e, 10)]
    )
    def test_names_the_event_that_it_does_not_know(self, make, event, nest):
        accountant = make()
        error = accountant._maybe_compose(nest(event), 1, False)
        assert error.invalid_event == event
        assert not accountant.supports(nest(event))
        with pytest.raises(UnsupportedEventError, match="caused by subevent"):
            accountant.compose(nest(event))

    def test_nothing_costs_nothing(self, make):
        nothing_told(make())

    def test_no_operation_costs_nothing(self, make):
        assert make().supports(dpa.NoOpDpEvent())
        nothing_told(make().compose(dpa.NoOpDpEvent()))

    @pytest.mark.parametrize(
        "event",
        [
            dpa.NonPrivateDpEvent(),
            together([dpa.NonPrivateDpEvent()]),
            together([dpa.NoOpDpEvent(), dpa.NonPrivateDpEvent()]),
            again(dpa.NonPrivateDpEvent(), 10),
        ],
    )
    def test_what_is_not_private_has_no_epsilon(self, make, event):
        assert make().supports(event)
        accountant = make().compose(event)
        for delta in (0.99, 0, 1):
            assert accountant.get_epsilon(delta) == math.inf
        for epsilon in (100, 0, math.inf):
            assert accountant.get_delta(epsilon) == 1

    @pytest.mark.parametrize("count", [0, -1])
    def test_counts_are_positive(self, make, count):
        with pytest.raises(ValueError, match="count"):
            make().compose(gaussian(1.0), count)


class TestCertified:
    @pytest.mark.parametrize("relation", ALL)
    @pytest.mark.parametrize(
        "event",
        [
            gaussian(1.0),
            again(gaussian(1.0), 6),
            together([gaussian(1.0), gaussian(2.0)]),
            poisson(0.1, gaussian(1.0)),
            together([poisson(0.1, gaussian(1.0)), gaussian(2.0)]),
        ],
    )
    def test_gaussians_under_every_relation(self, event, relation):
        assert CertifiedAccountant(relation).supports(event)

    def test_rare_reports_of_a_special_record(self):
        p, k = 1 - 2**-40, 10**6
        accountant = CertifiedAccountant(SPECIAL).compose(report(p, k))
        true = math.log1p(2**-40 * (k - 1))  # own * k is 1 + (1 - p) (k - 1)
        assert true <= accountant.get_epsilon(0.0) <= true * (1 + 1e-6)
        assert (
            CertifiedAccountant(SPECIAL).compose(report(1e-17, 5)).get_epsilon(0) < 40
        )

    def test_more_tries_than_can_be_charged_are_refused(self):
        with pytest.raises(ValueError, match="mean >= 1 and <= 1e10"):
            RenyiAccountant().compose(select(gaussian(1.0), 1e300, 0.0))

    @pytest.mark.parametrize(
        ("noises", "wanted"), [((1e-200, 1.0), math.inf), ((1e200, 1e200), 0.0)]
    )
    def test_batches_of_gaussians_far_from_1(self, noises, wanted):
        event = poisson(0.1, together([gaussian(z) for z in noises]))
        assert CertifiedAccountant().compose(event).get_epsilon(1e-5) == wanted

    @pytest.mark.parametrize(
        ("relation", "known"), [(REPLACE, True), (SPECIAL, True), (ADD, False)]
    )
    @pytest.mark.parametrize("kind", [CertifiedAccountant, None])
    @pytest.mark.parametrize("others", [[], [poisson(0.1, gaussian(1.0))]])
    def test_reports_are_replaced(self, relation, known, kind, others):
        accountant = (kind or (lambda r: RenyiAccountant(None, r)))(relation)
        event = together([*others, report(0.1, 3)])
        assert accountant.supports(event) is known
        if not known:
            with pytest.raises(UnsupportedEventError, match="must be `REPLACE_ONE` or"):
                accountant.compose(event)

    @pytest.mark.parametrize(
        "event",
        [
            mixture(1.0, [0.0, 1.0], [0.5, 0.5]),
            poisson(0.1, laplace(1.0)),
        ],
    )
    def test_what_has_no_meaning_for_a_replaced_record(self, event):
        assert not CertifiedAccountant(REPLACE).supports(event)

    @pytest.mark.parametrize("relation", [REPLACE, SPECIAL])
    def test_one_bucket_tells_nothing(self, relation):
        accountant = CertifiedAccountant(relation).compose(report(0.0, 1))
        assert accountant.get_delta(0) == accountant.get_epsilon(0) == 0

    def test_a_report_without_noise(self):
        accountant = CertifiedAccountant(SPECIAL).compose(report(0.0, 3))
        assert accountant.get_delta(1.0) == 1
        assert accountant.get_epsilon(0.01) == math.inf

    @pytest.mark.parametrize(
        ("relation", "noise", "buckets"),
        [
            (REPLACE, 4 / (3 + math.e), 4),
            (SPECIAL, (4 - math.e) / 3, 4),
            (SPECIAL, math.exp(-1), 2),
        ],
    )
    def test_reports_of_epsilon_1(self, relation, noise, buckets):
        accountant = CertifiedAccountant(relation).compose(report(noise, buckets))
        assert accountant.get_delta(1.0) == pytest.approx(0, abs=1e-7)
        assert accountant.get_delta(0.9) > 1e-3

    @pytest.mark.parametrize(
        "event",
        [
            gaussian(0),
            laplace(0),
            discrete(0, 1),
            poisson(0.1, gaussian(0)),
            poisson(0.1, laplace(0)),
            mixture(0, [1, 2], [0.5, 0.5]),
        ],
    )
    def test_no_noise(self, event):
        accountant = CertifiedAccountant().compose(event)
        assert accountant.get_delta(1.0) == 1
        assert accountant.get_epsilon(0.01) == math.inf
        assert accountant.get_true_positive_rates(0.1) == 1
        assert accountant.get_gdp_parameter_estimate() == math.inf

    @pytest.mark.parametrize(
        "event",
        [
            poisson(0, gaussian(1)),
            poisson(0, laplace(1)),
            poisson(0, gaussian(0)),
            poisson(0, laplace(0)),
            mixture(1, [0], [1.0]),
            mixture(0, [0], [1.0]),
        ],
    )
    def test_no_record_in_it(self, event):
        accountant = CertifiedAccountant().compose(event)
        assert accountant.get_delta(0) == accountant.get_epsilon(0) == 0
        assert accountant.get_true_positive_rates(0.5) == pytest.approx(0.5)
        assert accountant.get_gdp_parameter_estimate() == pytest.approx(0, abs=1e-9)

    def test_gaussians(self):
        event = gaussian(math.sqrt(3))
        accountant = CertifiedAccountant().compose(event).compose(event, 2)
        assert accountant.get_delta(1) == pytest.approx(0.126936, abs=1e-6)
        assert accountant.get_epsilon(0.126936) == pytest.approx(1, abs=1e-5)
        truth = stats.norm.cdf(stats.norm.ppf(0.1) + 1)
        found = accountant.get_true_positive_rates(0.1)
        assert truth <= found <= truth + 1e-3
        assert 1 <= accountant.get_gdp_parameter_estimate() <= 1 + 1e-3

    @pytest.mark.parametrize(
        "parts",
        [
            [(poisson(0.2, gaussian(0.5)), 1), (poisson(0.2, gaussian(0.5)), 2)],
            [(again(poisson(0.2, gaussian(0.5)), 3), 1)],
        ],
    )
    def test_sampled_gaussians(self, parts):
        accountant = CertifiedAccountant()
        for event, count in parts:
            accountant.compose(event, count)
        assert accountant.get_delta(1) == pytest.approx(0.15594, abs=1e-3)
        assert accountant.get_epsilon(0.15594) == pytest.approx(1, abs=1e-3)

    @pytest.mark.parametrize(
        ("parts", "epsilon"),
        [
            ([(laplace(1), 3), (laplace(2), 2)], 4),
            (
                [(poisson(0.2, laplace(0.5)), 1), (poisson(0.2, laplace(0.5)), 2)],
                2.46964,
            ),
            pytest.param(
                [(discrete(1, 1), 3), (discrete(0.5, 1), 2)], 4, marks=pytest.mark.full
            ),
        ],
    )
    def test_pure_losses(self, parts, epsilon):
        accountant = CertifiedAccountant()
        for event, count in parts:
            accountant.compose(event, count)
        assert accountant.get_delta(epsilon) == pytest.approx(0, abs=1e-6)
        assert accountant.get_epsilon(1e-14) == pytest.approx(epsilon, abs=1e-3)
        assert accountant.get_epsilon(0) == pytest.approx(epsilon, abs=1e-5)

    @pytest.mark.full
    def test_mixtures_of_gaussians(self):
        accountant = CertifiedAccountant(width=1e-4)
        accountant.compose(mixture(1.0, [0.0, 1.0, 2.0], [0.2, 0.6, 0.2]), 3)
        accountant.compose(mixture(2.0, [0.0, 2.0, 3.0], [0.33, 0.34, 0.33]), 2)
        assert accountant.get_epsilon(1e-6) == pytest.approx(17.193115, rel=1e-4)
        assert accountant.get_delta(17.193115) == pytest.approx(1e-6, rel=2e-3)

    def test_sampled_mixtures_reports_and_zcdp(self):
        event = together(
            [poisson(0.1, mixture(1.0, [0.0, 1.0], [0.5, 0.5])), dpa.ZCDpEvent(0.01)]
        )
        assert 0 < CertifiedAccountant().compose(event, 3).get_epsilon(1e-5) < 7


class TestRenyi:
    def value(self, event, order=3.14159, count=1, relation=ADD):
        return RenyiAccountant([order], relation).compose(event, count).rdp[0]

    def test_divergences_add_up(self):
        event, base = gaussian(3.14159), self.value(gaussian(3.14159))
        six = [
            self.value(event, count=6),
            self.value(again(event, 6)),
            self.value(again(event, 2), count=3),
            self.value(together([event] * 6)),
            self.value(together([again(event, n) for n in (1, 2, 3)])),
        ]
        assert six == pytest.approx([6 * base] * 5)
        more = gaussian(1.61803)
        assert self.value(together([event, more])) == pytest.approx(
            base + self.value(more)
        )

    @pytest.mark.parametrize(
        ("event", "known"),
        [
            (gaussian(1.0), "ar"),
            (dpa.ZCDpEvent(1.0, 2.0), "ar"),
            (again(gaussian(1.0), 6), "ar"),
            (together([gaussian(1.0), gaussian(2.0)]), "ar"),
            (poisson(0.1, gaussian(1.0)), "a"),
            (poisson(0.1, together([gaussian(1.0), gaussian(2.0)])), "a"),
            (dpa.SampledWithoutReplacementDpEvent(1000, 10, gaussian(1.0)), "r"),
            (
                dpa.SampledWithoutReplacementDpEvent(
                    1000, 10, together([gaussian(1.0), gaussian(2.0)])
                ),
                "r",
            ),
            (dpa.SampledWithReplacementDpEvent(1000, 10, gaussian(1.0)), ""),
            (report(0.3, 15), "rs"),
        ],
    )
    def test_supports(self, event, known):
        for letter, relation in zip("ars", ALL, strict=True):
            if letter in known:
                assert RenyiAccountant([2.0], relation).supports(event)
        if "a" not in known:
            assert not RenyiAccountant([2.0], ADD).supports(event)

    @pytest.mark.parametrize("z", [0.0, 1.0])
    def test_no_record_in_it(self, z):
        accountant = RenyiAccountant([3.14159]).compose(poisson(0, gaussian(z)))
        assert accountant.get_epsilon(1e-10) == accountant.get_delta(1e-10) == 0
        fixed = dpa.SampledWithoutReplacementDpEvent(1000, 0, gaussian(1.0))
        accountant = RenyiAccountant([3.14159], REPLACE).compose(fixed)
        assert accountant.get_epsilon(1e-10) == accountant.get_delta(1e-10) == 0

    @pytest.mark.parametrize(
        "event",
        [gaussian(0), dpa.ZCDpEvent(math.inf), poisson(0.1, dpa.ZCDpEvent(0, 1e5))],
    )
    def test_no_noise(self, event):
        assert RenyiAccountant([3.0]).compose(event).get_epsilon(0.1) == math.inf

    def test_gaussians(self):
        assert self.value(gaussian(2.71828)) == pytest.approx(3.14159 / 2 / 2.71828**2)
        event = poisson(1.0, together([gaussian(2.71828), gaussian(6.28319)]))
        wanted = 3.14159 / 2 * (2.71828**-2 + 6.28319**-2)
        assert self.value(event) == pytest.approx(wanted)

    def test_zcdp(self):
        event = together([dpa.ZCDpEvent(2.71828, 3.1), dpa.ZCDpEvent(6.28319, 1.2)])
        assert self.value(event, 2.0) == pytest.approx(4.3 + 2 * (2.71828 + 6.28319))
        assert self.value(dpa.ZCDpEvent(1 / 18)) == pytest.approx(
            self.value(gaussian(3))
        )

    def test_sampled_gaussians(self):
        orders = [1.5, 2.5, 5, 50, 100, math.inf]
        event = again(poisson(0.01, gaussian(2.5)), 50)
        found = RenyiAccountant(orders).compose(event).rdp
        known = [1.08548710e-03, 2.18075656e-03, 2.38460375e-02, 167.416308]
        assert found[1:5] == pytest.approx(known, rel=1e-4)
        # dp-accounting has 6.7058e-4 here; the integral (mpmath) is the first.
        assert 6.50070897e-04 <= found[0] < 6.7058e-04
        assert found[5] == math.inf

    @pytest.mark.parametrize(
        ("relation", "noise", "buckets", "known"),
        [
            (SPECIAL, 0.3, 10, [1.5030552, 1.7801182, 1.9091969, 1.9814517, 1.9878743]),
            (
                SPECIAL,
                0.05,
                20,
                [2.8985312, 2.9615415, 2.9829089, 2.9946855, 2.9957323],
            ),
            (SPECIAL, 0.01, 3, [3.8513453, 4.3349249, 4.5038039, 4.5968954, 4.6051702]),
            (REPLACE, 0.3, 10, [2.6946320, 2.9838654, 3.1131697, 3.1854242, 3.1918472]),
            (
                REPLACE,
                0.05,
                20,
                [5.8503177, 5.9103602, 5.9306331, 5.9418062, 5.9427994],
            ),
            (REPLACE, 0.01, 3, [5.6841268, 5.6926346, 5.6954212, 5.6969570, 5.6970935]),
            (SPECIAL, 0.1, 10, [None] * 4 + [2.302585092994046]),
            (REPLACE, 0.1, 10, [None] * 4 + [4.51085950651685]),
        ],
    )
    def test_reports(self, relation, noise, buckets, known):
        orders = [1.5, 2.5, 5, 50, math.inf]
        accountant = RenyiAccountant(orders, relation).compose(report(noise, buckets))
        for value, wanted in zip(accountant.rdp, known, strict=True):
            assert wanted is None or value == pytest.approx(wanted, rel=1e-4)

    @pytest.mark.parametrize("relation", [SPECIAL, REPLACE])
    @pytest.mark.parametrize(
        ("noise", "buckets", "wanted"), [(1, 2, 0), (0.0, 2, math.inf), (0.1, 1, 0)]
    )
    def test_reports_at_their_ends(self, relation, noise, buckets, wanted):
        found = RenyiAccountant([1.1, 1.2], relation).compose(report(noise, buckets))
        assert found.rdp.tolist() == [wanted, wanted]

    @pytest.mark.parametrize(
        ("event", "words"),
        [
            (report(-1, 10), "noise_parameter must be"),
            (report(2, 10), "noise_parameter must be"),
            (report(0.1, 0), "buckets must be a whole number >= 1"),
            (poisson(-0.1, gaussian(1)), "Sampling rate"),
            (poisson(1.1, gaussian(1)), "Sampling rate"),
            (gaussian(-1), "Noise multiplier"),
            (tree(-1, 1000), "Noise multiplier"),
            (tree(1.0, []), "one of them 1 or more"),
            (tree(1.0, [-100, 5]), "must be non-negative"),
            (select(laplace(1.0), 0.5, 1), "mean >= 1"),
            (select(laplace(1.0), 5, -1), "shape >= 0"),
            (select(laplace(1.0), 5, 1e9), "larger shapes are as poisson"),
        ],
    )
    def test_refuses_what_is_out_of_range(self, event, words):
        with pytest.raises(ValueError, match=words):
            RenyiAccountant([2.0], SPECIAL).compose(event)

    def test_pure(self):
        orders = range(2, 33)
        accountant = RenyiAccountant(orders).compose(dpa.ZCDpEvent(0.0, 1.1))
        epsilon, order = accountant.get_epsilon_and_optimal_order(1e-5)
        assert (epsilon, order) == (pytest.approx(1.32783806176), 32)
        delta, order = accountant.get_delta_and_optimal_order(1.32783806176)
        assert (delta, order) == (pytest.approx(1e-5), 32)

    def test_a_guarantee_tells_all_with_chance_delta(self):
        """Against all outputs of three of the worst mechanisms."""
        p = q = np.ones(1)
        accountant = RenyiAccountant()
        for e, delta in ((0.5, 0.01), (0.5, 0.01), (0.0, 0.002)):
            accountant.compose(EpsilonDeltaDpEvent(e, delta))
            up = (1 - delta) * special.expit(e)
            outputs = np.array([delta, up, 1 - delta - up, 0.0])
            p, q = np.outer(p, outputs).ravel(), np.outer(q, outputs[::-1]).ravel()
        for epsilon in (0.5, 0.9, 1.0):
            found = accountant.get_delta(epsilon)
            assert 0 <= found - np.maximum(p - math.exp(epsilon) * q, 0).sum() < 0.1
            assert accountant.get_epsilon(found) == pytest.approx(epsilon, rel=1e-6)
        least = 1 - 0.99**2 * 0.998
        assert accountant.get_delta(math.inf) == pytest.approx(least, rel=1e-9)
        assert accountant.get_epsilon(least) == math.inf
        assert accountant.get_epsilon(least * (1 + 1e-9)) < 1.02
        chosen = select(EpsilonDeltaDpEvent(0.5, 0.01), 2, 1)
        assert RenyiAccountant().compose(chosen).get_epsilon(0.5) == math.inf

    def test_delta_of_a_gaussian(self):
        accountant = RenyiAccountant(1 + np.arange(1, 500) / 10).compose(gaussian(1))
        for epsilon in np.arange(0, 50, 0.7):
            truth = special.erfc((epsilon - 0.5) / math.sqrt(2)) / 2
            truth -= (
                math.exp(epsilon) * special.erfc((epsilon + 0.5) / math.sqrt(2)) / 2
            )
            found = accountant.get_delta(epsilon)
            assert truth <= found + 1e-300
            if epsilon >= 0.5 and epsilon < 49:
                assert found <= math.exp(-0.5 * (epsilon - 0.5) ** 2) + 1e-300

    @pytest.mark.parametrize("q", [0, 0.01, 0.8, 1.0])
    @pytest.mark.parametrize("z", [0.0, 1.0, 100.0])
    def test_epsilon_and_delta_are_inverse(self, q, z):
        accountant = RenyiAccountant(range(2, 50)).compose(poisson(q, gaussian(z)))
        for delta in (0.9, 0.1, 1e-3, 1e-9):
            epsilon = accountant.get_epsilon(delta)
            back = accountant.get_delta(epsilon)
            if epsilon == math.inf:
                assert back == 1
            elif epsilon == 0:
                assert back <= delta
            else:
                assert back == pytest.approx(delta)

    @pytest.mark.parametrize("relation", [ADD, REPLACE])
    def test_trees_are_of_special_records(self, relation):
        assert not RenyiAccountant(None, relation).supports(tree(1.0, 1))
        assert not CertifiedAccountant(relation).supports(tree(1.0, 1))

    @pytest.mark.parametrize(("noise", "most"), [(1.13, 19.74), (8.83, 2.04)])
    def test_a_tree_of_1600_steps(self, noise, most):
        found = RenyiAccountant(None, SPECIAL).compose(tree(noise, 1600))
        assert found.get_epsilon(1e-6) < most
        exact = CertifiedAccountant(SPECIAL).compose(tree(noise, 1600))
        assert exact.get_epsilon(1e-6) < found.get_epsilon(1e-6)

    @pytest.mark.parametrize("steps", [[400] * 4, [800] * 2, [10, 400, 400, 400, 390]])
    def test_the_highest_of_several_trees_counts(self, steps):
        def value(steps):
            return self.value(tree(1.0, steps), relation=SPECIAL)

        assert value(steps) == pytest.approx(max(value(step) for step in steps))
        assert value(1600) > value(steps)

    @pytest.mark.parametrize("steps", [1, 7, 1024])
    def test_trees_of_one_record_a_step(self, steps):
        height = math.ceil(math.log2(steps + 1))
        found = self.value(tree(2.0, steps), 3.0, relation=SPECIAL)
        assert found == pytest.approx(height * 3 / 2 / 4)

    @pytest.mark.parametrize(("epsilon", "count"), [(0.5, 1), (1.0, 3)])
    def test_laplace(self, epsilon, count):
        a = 2.5
        wanted = math.log(
            a / (2 * a - 1) * math.exp(epsilon * (a - 1))
            + (a - 1) / (2 * a - 1) * math.exp(-epsilon * a)
        ) / (a - 1)
        assert self.value(laplace(1 / epsilon), a, count) == pytest.approx(
            count * wanted
        )
        pure = RenyiAccountant([math.inf]).compose(laplace(1 / epsilon), count)
        assert pure.get_epsilon(0) == pytest.approx(count * epsilon)


class TestSelection:
    @pytest.mark.parametrize("shape", [0, 0.5, 1, 2, 5])
    def test_pure(self, shape):
        """Corollary 3 of Papernot and Steinke."""
        event = select(laplace(1.0), 100, shape)
        accountant = RenyiAccountant([1e10]).compose(event)
        assert accountant.rdp[0] == pytest.approx(2 + shape, abs=1e-6)
        assert accountant.get_epsilon(1e-10) == pytest.approx(2 + shape, abs=1e-6)

    @pytest.mark.parametrize(("shape", "z"), [(0, 1), (0.5, 10), (1, 0.1), (2, 1)])
    def test_one_try_is_what_it_was(self, shape, z):
        orders = [1, 1 + 1e-6, 2, 3, 5, 10, 32, 128, 1024]
        one = RenyiAccountant(orders).compose(gaussian(z)).rdp[1:]
        found = RenyiAccountant(orders).compose(select(gaussian(z), 1, shape)).rdp[1:]
        assert found == pytest.approx(one, rel=1e-4, abs=1e-4)

    @pytest.mark.parametrize("mean", [1.0, 1.5, 4.0])
    def test_a_number_of_tries_that_is_drawn_again_at_none(self, mean):
        """Theorem 6 there for a Gaussian, given that there is a try, by mpmath."""
        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=4.0, sampling=NoSampling()
        )
        one = Ledger.of(release)
        ((entry,),) = repeat_and_select(one, tries=mean, law="poisson").nodes
        curve, none, least = entry.release.details, mpmath.exp(-mean), mpmath.inf
        pairs = zip(curve.orders, curve.divergences, strict=True)
        for order, found in sorted(pairs, reverse=True):
            delta = gaussian_delta(0.25, math.log1p(1 / (order - 1)))
            plain = order / 32 + mean * delta + math.log(mean) / (order - 1)
            least = min(least, plain)
            some = (mpmath.exp((order - 1) * least) - none) / (1 - none)
            wanted = float(mpmath.log(some) / (order - 1))
            assert wanted * (1 - 1e-9) <= found <= wanted * 1.05

    @pytest.mark.parametrize(
        ("shape", "mean", "p", "q", "near"),
        [
            (0.5, 3.7, (0.4, 0.407, 0.193, 0.0), (0.0, 0.0, 0.003, 0.997), 0.99),
            (1.0, 1.2, (0.35, 0.12, 0.30, 0.23), (0.38, 0.20, 0.18, 0.24), 0.85),
            (math.inf, 1.2, (0.33, 0.03, 0.2, 0.44), (0.06, 0.0, 0.87, 0.07), 0.8),
            (0.0, 1.7, (0.5, 0.14, 0.36), (0.47, 0.2, 0.33), 0.7),
            (1.0, 4.0, (0.2, 0.1, 0.3, 0.3, 0.1), (0.1, 0.3, 0.1, 0.3, 0.2), 0.3),
            (math.inf, 9.0, (0.2, 0.1, 0.3, 0.3, 0.1), (0.1, 0.3, 0.1, 0.3, 0.2), 0.3),
        ],
    )
    def test_no_rule_beats_the_profile(self, shape, mean, p, q, near, monkeypatch):
        """By all orders of the outputs, both ways; some order comes ``near``.

        On any grid: of a few cells what one cell is too much would show.
        """
        x = np.linspace(-12, 12, 801)
        gamma = 0.0 if shape == math.inf else parameter_of(mean, shape)

        def told(one, other, epsilon):
            gain = np.subtract(one, np.multiply(math.exp(epsilon), other))
            return np.maximum(gain, 0).sum()

        def best(z):
            """The generating function, but for a constant and a factor."""
            if not gamma:
                return np.exp(mean * z)
            log = np.log1p(-(1 - gamma) * np.minimum(z, 1.0))
            return np.exp(-shape * log) if shape else -log

        def law(each, order):
            found = best(np.append(0.0, np.cumsum(np.array(each)[list(order)])))
            return np.diff(found) / (best(1.0) - best(0.0))

        lines = [
            (x, np.array([told(*pair, epsilon) for epsilon in x]))
            for pair in ((p, q), (q, p))
        ]
        orders = itertools.permutations(range(len(p)))
        laws = [(law(p, order), law(q, order)) for order in orders]
        closest = 0.0
        profiles = [selected_profile(lines, mean, shape)]
        for cells in (5, 12, 40):
            monkeypatch.setattr("privaudit.accounting.tuning._CELLS", cells)
            profiles.append(selected_profile(lines, mean, shape))
        points = itertools.chain(*(zip(*each, strict=True) for each in profiles))
        for epsilon, delta in itertools.islice(points, 0, None, 6):
            pairs = [pair[::step] for pair in laws for step in (1, -1)]
            most = max(told(*pair, epsilon) for pair in pairs)
            assert most <= delta * (1 + 1e-12) + 1e-15
            closest = max(closest, most / delta if most > 1e-9 else 0.0)
        assert near <= closest <= 1

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("law", "less", "share", "far", "near"),
        [
            ("geometric", 0.86, 0.5, 3.0, 0.91),
            ("logarithmic", 0.89, 0.3, 2.0, 0.93),
            ("poisson", 0.97, 0.1, 3.0, 0.88),
        ],
    )
    def test_the_largest_of_gaussians(self, law, less, share, far, near, monkeypatch):
        """Two settings, one of whose scores falls as the other rises: f'(F) q of each.

        Beside Renyi divergences alone; and equal settings cost far less than these.
        """
        monkeypatch.setattr(tuning, "_LINES", 120)  # fewer in the quick tier
        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=0.5, sampling=NoSampling()
        )
        ((entry,),) = repeat_and_select(Ledger.of(release), tries=10, law=law).nodes
        found = Certificate.of(Ledger.of(entry.release)).epsilon(1e-5).upper
        curves = RDP(entry.release.details.orders, entry.release.details.divergences)
        alone = Certificate.of(Ledger.of(Release.of(curves))).epsilon(1e-5).upper
        assert found <= less * alone
        gamma, x = (
            parameter_of(10.0, float(law == "geometric")),
            np.arange(-9, 13, 4e-3),
        )

        def densities(*middles):
            shares = share, 1 - share
            above = sum(
                w * special.ndtr(m - x) for w, m in zip(shares, middles, strict=True)
            )
            if law == "poisson":
                slope = np.exp(-10 * above)
            else:
                rate = -2.0 if law == "geometric" else -1.0
                slope = (gamma + (1 - gamma) * above) ** rate
            found = [
                w * slope * np.exp(-((x - m) ** 2) / 2)
                for w, m in zip(shares, middles, strict=True)
            ]
            return np.array(found) / np.sum(found)

        def apart(epsilon, one, other):
            p, q = densities(*one), densities(*other)
            pairs = ((p, q), (q, p))
            return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in pairs)

        opposed = (0.0, far), (-2.0, far + 2.0)
        assert apart(found, *opposed) <= 1e-5 < apart(near * found - 0.1, *opposed)
        assert apart(11.0, (0.0, 0.0), (-2.0, -2.0)) <= 1e-5 < apart(11.0, *opposed)

    @pytest.mark.parametrize(("rho", "gamma"), [(0.01, 0.01), (1, 0.1), (10, 0.99)])
    @pytest.mark.parametrize("shape", [0, 0.5, 1, 5])
    def test_gaussian(self, rho, gamma, shape):
        """Corollary 4 there."""
        mean = mean_of(gamma, shape)
        rho = min(rho, -math.log(gamma))
        turn = 1 + math.sqrt(math.log(mean) / rho)
        orders = [1, 1.1, 2, math.sqrt(-math.log(gamma) / rho), turn, 3, 10, 1000]
        orders = [order for order in orders if order >= 1]
        event = select(gaussian(math.sqrt(0.5 / rho)), mean, shape)
        found = RenyiAccountant(orders).compose(event).rdp
        rest = 2 * (1 + shape) * math.sqrt(-rho * math.log(gamma)) - shape * rho
        for order, value in zip(orders, found, strict=True):
            wanted = 2 * math.sqrt(rho * math.log(mean)) + rest
            if order > turn:
                wanted = rho * (order - 1) + math.log(mean) / (order - 1) + rest
            assert value == pytest.approx(wanted, rel=1e-6)

    @pytest.mark.parametrize(
        ("epsilon", "mean"), [(1, 1), (0.1, 2), (10, 10), (2, 1000)]
    )
    def test_pure_and_poisson(self, epsilon, mean):
        a = 1 + 1 / math.expm1(epsilon)
        event = select(laplace(1 / epsilon), mean, math.inf)
        found = RenyiAccountant([a, 1e10, 1e100]).compose(event).rdp[0]
        move = math.expm1((1 - 2 * a) * epsilon) * (a - 1) / (2 * a - 1)
        wanted = (
            epsilon + math.log1p(move) / (a - 1) + math.log(mean) * math.expm1(epsilon)
        )
        # Where a higher order has less, this one has no more.
        assert found <= wanted * (1 + 1e-3)
        assert found / wanted == pytest.approx(1, abs=1e-3) or epsilon == 10

    @pytest.mark.parametrize("z", [0.001, 1, 1000])
    @pytest.mark.parametrize("mean", [1, 1000, 1e9])
    def test_gaussian_and_poisson(self, z, mean):
        """Never less than with the true delta of one try."""
        accountant = RenyiAccountant().compose(select(gaussian(z), mean, math.inf))
        wanted = []
        for order in accountant.orders:
            epsilon = math.log1p(1 / (order - 1))
            x, y = ((epsilon * z + s * 0.5 / z) / math.sqrt(2) for s in (-1, 1))
            delta = special.erfc(x) / 2 - math.exp(epsilon) * special.erfc(y) / 2
            wanted.append(
                order / 2 / z**2 + mean * delta + math.log(mean) / (order - 1)
            )
        least = np.minimum.accumulate(wanted[::-1])[::-1]
        assert (accountant.rdp >= least * (1 - 1e-9)).all()

    @pytest.mark.parametrize("shape", [0, 0.5, 1, 2, 10])
    @pytest.mark.parametrize("gamma", [1e-6, 0.1, 0.9])
    def test_parameter_from_the_mean(self, shape, gamma):
        found = parameter_of(mean_of(gamma, shape), shape)
        assert found <= gamma * (1 + 1e-9)
        assert found == pytest.approx(gamma, rel=1e-6)

    def test_means(self):
        assert mean_of(0.1, 1) == pytest.approx(10)
        assert mean_of(0.1, 0) == pytest.approx(9 / math.log(10))
        for shape in (0, 0.5, 3):
            # Definition 1 there: chances (1 - g)^k times a product, k = 1, 2, ...
            k = np.arange(1, 4000)
            log = k * math.log(0.9)
            if shape:
                log += special.gammaln(k + shape) - special.gammaln(k + 1)
            else:
                log -= np.log(k)
            law = np.exp(log - special.logsumexp(log))
            assert mean_of(0.1, shape) == pytest.approx(float(law @ k), rel=1e-9)


@pytest.mark.parametrize("accountant", [CertifiedAccountant, RenyiAccountant])
def test_more_releases_than_doubles_count(accountant):
    event, many = dpa.GaussianDpEvent(1.0), 10**400
    for given in ((event, many), (dpa.SelfComposedDpEvent(event, many),)):
        with pytest.raises(ValueError, match="count must be"):
            accountant().compose(*given).get_epsilon(1e-5)


class TestFiles:
    @pytest.mark.parametrize(
        "event",
        [
            report(0.1, 3),
            discrete(0.5, 2),
            mixture(1.0, [0.0, 1.0], [0.5, 0.5]),
            dpa.ZCDpEvent(0.1, 0.01),
            dpa.TruncatedSubsampledGaussianDpEvent(100, 0.1, 20, 1.0),
            poisson(0.1, discrete(0.5, 2)),
        ],
    )
    def test_events_come_back_and_are_ledgers(self, event):
        assert from_json(to_json(event)) == event
        ledger = ledger_of(event)
        assert ledger.to_event() == together([again(event, 1)])


class TestReadOtherwise:
    """Where dp-accounting refuses, or has a looser figure."""

    @pytest.mark.parametrize("event", [laplace(1.0), discrete(0.1, 1)])
    def test_a_replaced_record_moves_a_sum_twice_as_far(self, event):
        one = CertifiedAccountant(REPLACE).compose(event).get_epsilon(0)
        assert one == pytest.approx(
            2 * CertifiedAccountant().compose(event).get_epsilon(0)
        )

    def test_truncated_batches_cost_less(self):
        accountant = CertifiedAccountant()
        accountant.compose(dpa.TruncatedSubsampledGaussianDpEvent(4, 0.5, 2, 1.0), 3)
        accountant.compose(dpa.TruncatedSubsampledGaussianDpEvent(3, 0.5, 2, 1.0), 2)
        assert 7 < accountant.get_epsilon(1e-6) < 17.904330

    def test_poisson_batches_have_divergences_under_replace_one(self):
        assert RenyiAccountant([2.0], REPLACE).supports(poisson(0.1, gaussian(1.0)))
