"""Contract of privaudit.integrations.flower, and the real Flower where it is there."""

import json
import math
from types import SimpleNamespace

import pytest

import privaudit as pa
from privaudit.integrations.flower import FLOATS, Accountant, ledger_of

DELTA = 1e-5


def config(method="no-amplification", **changes):
    relation = "add-or-remove-one"
    if method == "without-replacement":
        relation = "replace-one"
    given = {"target_delta": DELTA, "population_size": 100, "max_epsilon": 4.0}
    given |= {"neighboring_relation": relation, "sampling_method": method, **changes}
    return SimpleNamespace(**given)


def event(noise=8.0, size=10, population=100):
    return SimpleNamespace(
        noise_multiplier=noise, sample_size=size, population_size=population
    )


class TestSound:
    def test_rounds_without_amplification_are_one_gaussian(self):
        """Closed form of Balle and Wang (2018): k releases are one of z / sqrt(k)."""
        accountant = Accountant(config())
        accountant.compose(event(), 16)
        epsilon = accountant.get_epsilon(DELTA)
        mu = math.sqrt(16) / 8.0
        normal = lambda x: math.erfc(-x / math.sqrt(2)) / 2  # noqa: E731
        delta = normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal(
            -mu / 2 - epsilon / mu
        )
        assert delta <= DELTA
        assert delta == pytest.approx(DELTA, rel=1e-2)
        assert accountant.get_delta(epsilon) == pytest.approx(DELTA, rel=1e-2)

    def test_replacing_a_client_moves_a_sum_by_twice_the_clip_norm(self):
        accountant = Accountant(config("without-replacement"))
        accountant.compose(event(noise=4.0, size=100), 5)
        plain = Accountant(config())
        plain.compose(event(noise=2.0, size=100), 5)
        assert accountant.get_epsilon(DELTA) == pytest.approx(
            plain.get_epsilon(DELTA), rel=1e-3
        )

    def test_the_budget_stops(self):
        accountant = Accountant(config("poisson"))
        rounds = 0
        while not accountant.would_exceed(event(noise=1.0)):
            accountant.compose(event(noise=1.0))
            rounds += 1
        assert accountant.get_epsilon(DELTA) <= 4.0
        assert accountant.would_exceed(event(noise=1.0), count=2)
        assert not accountant.would_exceed(event(noise=1.0), max_epsilon=9.0)
        assert accountant.num_releases == rounds > 10
        assert Accountant(config()).get_epsilon(DELTA) == 0.0

    def test_its_state_is_of_one_configuration(self):
        accountant = Accountant(config())
        accountant.compose(event(), 3)
        state = json.loads(json.dumps(accountant.state_dict()))
        again = Accountant(config())
        again.load_state_dict(state)
        assert again.get_epsilon(DELTA) == accountant.get_epsilon(DELTA)
        with pytest.raises(ValueError, match="another privacy configuration"):
            Accountant(config(max_epsilon=5.0)).load_state_dict(state)

    def test_a_state_replaces_no_rounds(self):
        accountant = Accountant(config())
        before = accountant.state_dict()
        Accountant(config()).load_state_dict(before)
        accountant.compose(event(), 3)
        for state in (before, accountant.state_dict()):
            with pytest.raises(ValueError, match="has composed 3 rounds, which"):
                accountant.load_state_dict(state)
        assert accountant.num_releases == 3

    def test_what_released_nothing_has_no_ledger(self):
        """An epsilon of 0 would be of a training that nobody counted."""
        accountant = Accountant(config())
        for source in (accountant.state_dict(), accountant.state_dict() | {"a": 1}):
            with pytest.raises(ValueError, match="no release was composed"):
                pa.ledger_from(source)
        with pytest.raises(ValueError, match="no release was composed"):
            _ = accountant.ledger

    def test_its_configuration_stays(self):
        """What is counted at one rate is not counted again at another."""
        given = config("poisson")
        accountant = Accountant(given)
        accountant.compose(event(), 5)
        given.population_size = accountant.config.population_size = 1000
        with pytest.raises(ValueError, match="of 1000, where config has 100"):
            accountant.compose(event(population=1000))
        assert accountant.state_dict()["config"]["population_size"] == 100

    def test_a_state_is_of_one_population(self):
        accountant = Accountant(config("poisson"))
        accountant.compose(event(), 5)
        state = accountant.state_dict()
        state["compositions"][0]["event"]["population_size"] = 1000
        with pytest.raises(ValueError, match="of 1000, where config has 100"):
            ledger_of(state)

    def test_rounds_keep_their_kind_of_noise(self):
        kinds = Accountant(config()), Accountant(config())
        kinds[1].exact = True
        for one, other in (kinds, kinds[::-1]):
            one.compose(event(), 3)
            assert (FLOATS in one.ledger.assumptions) is not one.exact
            state = one.state_dict()
            again = Accountant(config())
            again.exact = one.exact
            again.load_state_dict(state)
            assert again.ledger == one.ledger
            with pytest.raises(ValueError, match="later ones would have"):
                again.exact = not one.exact
            with pytest.raises(ValueError, match="make the strategy that its rounds"):
                other.load_state_dict(state)

    def test_a_ledger_says_what_it_assumes(self):
        accountant = Accountant(config())
        accountant.compose(event(), 3)
        ledger = pa.ledger_from(accountant.state_dict())
        assert ledger == accountant.ledger
        assert ledger.unit == "user"
        found = pa.epsilon(ledger=ledger, delta=DELTA)
        assert found.standing == "conditional"

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda one: one.compose(event(population=7, size=7)), "population of 7"),
            (lambda one: one.compose(event(), 0), "count must be a whole number"),
            (lambda one: one.compose(event(size="10")), "got '10' and 100"),
            (lambda one: one.compose(event(size=10.5)), "got 10.5 and 100"),
            (lambda one: one.compose(event(size=0)), "got 0 and 100"),
            (lambda one: one.compose(event(size=101)), "got 101 and 100"),
            (lambda one: one.compose(event(size=0, population=0)), "got 0 and 0"),
            (lambda one: one.compose(event(noise=-1.0)), "noise"),
            (lambda one: one.load_state_dict({"compositions": []}), "of version None"),
            (lambda one: ledger_of(3), "got int"),
            (
                lambda one: ledger_of({"compositions": [1], "schema_version": 1}),
                "not F",
            ),
        ],
    )
    def test_bad_input(self, call, words):
        with pytest.raises(ValueError, match=words):
            call(Accountant(config()))

    def test_without_a_budget_nothing_is_exceeded_or_not(self):
        with pytest.raises(ValueError, match="there is no budget"):
            Accountant(config(max_epsilon=None)).would_exceed(event())


@pytest.mark.filterwarnings("ignore")  # Flower's own
class TestReal:
    @pytest.fixture
    def flower(self):
        return pytest.importorskip("flwr.serverapp")

    def config(self, flower, method):
        from flwr.supercore.privacy_accounting import (
            NeighboringRelation,
            SamplingMethod,
        )

        return flower.PrivacyConfig(
            target_delta=DELTA,
            population_size=100,
            neighboring_relation=NeighboringRelation(
                config(method).neighboring_relation
            ),
            sampling_method=SamplingMethod(method),
            max_epsilon=4.0,
        )

    @pytest.mark.parametrize("method", ["no-amplification", "poisson"])
    def test_no_more_than_flowers_own(self, flower, method):
        """And no less than the true one's lower bound; by Flower's own state too."""
        from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

        theirs = RdpAccountant(self.config(flower, method))
        ours = Accountant(self.config(flower, method))
        for noise, count in ((4.0, 5), (8.0, 20)):
            one = flower.GaussianPrivacyEvent(noise, 10, 100)
            theirs.compose(one, count)
            ours.compose(one, count)
        spent = ours.get_privacy_spent()
        assert isinstance(spent, flower.PrivacySpent)
        assert 0.3 * theirs.get_epsilon(DELTA) < spent.epsilon
        assert spent.epsilon <= theirs.get_epsilon(DELTA)
        assert pa.ledger_from(theirs) == ours.ledger
        again = Accountant(self.config(flower, method))
        again.load_state_dict(theirs.state_dict())
        assert again.get_epsilon(DELTA) == spent.epsilon

    def test_a_strategy_takes_it(self, flower):
        from flwr.serverapp.strategy import (
            DifferentialPrivacyServerSideFixedClipping,
            FedAvg,
        )

        ours = Accountant(self.config(flower, "no-amplification"))
        strategy = DifferentialPrivacyServerSideFixedClipping(
            FedAvg(), 4.0, 1.0, 10, accountant=ours
        )
        messages = [object()] * 10
        rounds = 0
        while not ours.would_exceed(flower.GaussianPrivacyEvent(4.0, 10, 100)):
            strategy._prepare_accounting(rounds, messages)
            strategy._compose_release(strategy._pop_pending_event(rounds))
            rounds += 1
        with pytest.raises(Exception, match="would exceed max_epsilon"):
            strategy._prepare_accounting(rounds, messages)
        assert rounds == ours.num_releases > 3
        assert ours.get_epsilon(DELTA) <= 4.0
        assert pa.ledger_from(strategy) == ours.ledger
        assert strategy.privacy_spent().num_releases == rounds
