"""Contract of trainers.algorithms.dyn_d2p: the paper's schedules are what is added."""

import json
import math

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from privaudit.accounting import account, gdp, noise_multiplier
from privaudit.cli import main
from privaudit.release import PoissonSampling, SamplingWithoutReplacement
from tests.tiers import examples
from tests.trainers import checks
from tests.trainers.checks import DIMS, Recording, noise_of
from tests.trainers.contract import Case
from tests.trainers.problems import oracle, random_data, start
from trainers.algorithms import ALGORITHMS
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Mechanism, Oracle
from trainers.runs.problem import Problem
from trainers.runs.training import Training, training_from

ROUNDS = 6
PRIVATE = [name for name in ALGORITHMS if name.endswith("d2p")]
# By name: rho_c and rho_mu of Algorithms 1, 3, 4 and 5.
RHOS = {
    "dyn-d2p": (4.0, 3.0),
    "dyn-c-d2p": (4.0, 1.0),
    "dyn-mu-d2p": (1.0, 3.0),
    "const-d2p": (1.0, 1.0),
}
every = pytest.mark.parametrize("name", RHOS)


def options_of(name):
    rho_c, rho_mu = RHOS[name]
    fields = ALGORITHMS[name].options.__struct_fields__
    return {
        key: value
        for key, value in (("rho_c", rho_c), ("rho_mu", rho_mu))
        if key in fields
    }


def training(name, rounds=ROUNDS, **more):
    values = {"clip_norm": 0.5, "batch_size": 3.0, "nodes": 3, "train": 90}
    options = {} if name == "general-d2p" else options_of(name)
    values |= ALGORITHMS[name].defaults | options | more
    return training_from(
        {"algorithm": name, "rounds": rounds, **values}, where="a test"
    )


def sigmas(name, clip, mu0, rounds):
    """sigma_k by the listing: (C0 / mu0) (rho_c rho_mu)^(-k/K), in plain loops."""
    rho_c, rho_mu = RHOS[name]
    return [clip / mu0 * (rho_c * rho_mu) ** (-k / rounds) for k in range(rounds)]


class TestSchedules:
    @every
    def test_they_are_the_paper_s(self, name):
        mechanism = training(name).mechanism(0.8)
        rho_c, _ = RHOS[name]
        expected = sigmas(name, 0.5, 1 / 0.8, ROUNDS)
        for k in range(ROUNDS):
            clip, multiplier = mechanism.at(k)
            assert clip == pytest.approx(0.5 * rho_c ** (-k / ROUNDS))
            assert clip * multiplier == pytest.approx(expected[k])

    def test_any_sequence_can_be_given(self, tmp_path):
        clips, noises = [1.0, 0.5, 2.0], [3.0, 1.0, 1.0]
        table = tmp_path / "mine.csv"
        rows = [f"{c},{s}" for c, s in zip(clips, noises, strict=True)]
        table.write_text("\n".join(["clip_schedule,noise_schedule", *rows]))
        listed = {
            "clip_schedule": {"type": "listed", "items": clips},
            "noise_schedule": {"type": "listed", "items": noises},
        }
        read = {"clip_schedule": str(table), "noise_schedule": str(table)}
        for options in (listed, read):
            mechanism = training("general-d2p", 3, **options).mechanism(0.7)
            for k in range(3):
                clip, multiplier = mechanism.at(k)
                assert clip == pytest.approx(0.5 * clips[k])
                assert clip * multiplier == pytest.approx(0.7 * 0.5 * noises[k])

    def test_the_general_form_has_dyn_d2p_in_it(self):
        general = training(
            "general-d2p",
            clip_schedule={"type": "shrinking", "initial": 1.0, "rho": 4.0},
            noise_schedule={"type": "shrinking", "initial": 1.0, "rho": 12.0},
        )
        one, other = general.mechanism(0.8), training("dyn-d2p").mechanism(0.8)
        for k in range(ROUNDS):
            assert one.at(k) == pytest.approx(other.at(k))

    @every
    def test_what_stays_the_same_is_one_number(self, name):
        # So that the ledger of Const-D2P has one line, whatever the rounds.
        mechanism = training(name, 1000).mechanism(0.8)
        rho_c, rho_mu = RHOS[name]
        assert callable(mechanism.clip_norm) == (rho_c > 1)
        assert callable(mechanism.noise_multiplier) == (rho_mu > 1)
        lines = len(mechanism.ledger((30,), 1000).nodes[0])
        assert lines == (1 if name == "const-d2p" else 1000)

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("dyn-d2p", {"rho_c": 0.5}, "rho_c must be >= 1"),
            ("dyn-d2p", {"rho_mu": "inf"}, "rho_mu must be >= 1"),
            ("dyn-mu-d2p", {"rho_c": 2.0}, "no use for rho_c"),
            ("const-d2p", {"sampling": "shuffled"}, "shuffled"),
            ("general-d2p", {"clip_schedule": "none.csv"}, "none.csv cannot be read"),
            (
                "general-d2p",
                {"noise_schedule": {"type": "listed", "items": [1.0, -1.0]}},
                "step 1 must be > 0",
            ),
        ],
    )
    def test_bad_options_are_named(self, name, options, message):
        with pytest.raises(ValueError, match=message):
            training(name, **options)

    def test_a_list_too_short_is_told(self):
        short = {"type": "listed", "items": [1.0, 1.0]}
        with pytest.raises(ValueError, match="lists 2 steps, 6 were asked for"):
            training("general-d2p", noise_schedule=short).mechanism(1.0)

    @pytest.mark.parametrize("name", PRIVATE)
    def test_settings_are_kept_as_json(self, name):
        one = training(name)
        text = msgspec.json.encode(one)
        assert msgspec.json.decode(text, type=Training) == one


class WrongStep(Oracle):
    """Planted: the noise added is that of the step before."""

    def gradient(self, at, nodes=None):
        right = self.mechanism
        self.mechanism = Mechanism(
            right.batch_size,
            right.clip_norm,
            lambda k: right.at(max(0, k - 1))[1],
        )
        gradient = super().gradient(at, nodes)
        self.mechanism = right
        # What it writes down is what should have been added.
        self._recorder = type(self._recorder).of(
            right.ledger(self.data.sizes, self._releases[0])
        )
        return gradient


def measured(name, kind=Oracle, runs=300):
    """The noise of a run, (releases, runs, nodes, dims), and what was written."""
    recording, mechanism = Recording(), training(name).mechanism(0.8)
    private = oracle(mechanism, kind=kind, runs=runs, seed=5, observers=[recording])
    network = Case(name).network(3, "directed-ring", "column-stochastic")
    network.run(start(DIMS).repeat(runs, 1, 1), private, ROUNDS)
    return noise_of(recording, mechanism, runs=runs, seed=5), private.ledger


class TestNoise:
    @pytest.mark.sampled(2)
    @every
    def test_it_is_the_ledger_s_and_the_paper_s(self, name):
        noise, ledger = measured(name)
        assert checks.noise_is_as_written(noise, ledger) == []
        assert checks.noise_is_fresh(noise) == []
        expected = sigmas(name, 0.5, 1 / 0.8, ROUNDS)
        for k, one in enumerate(noise):
            spread = one.std().item() / expected[k]
            assert abs(spread - 1) < 5 / math.sqrt(2 * one.numel())

    @pytest.mark.parametrize("name", ["dyn-d2p", "dyn-mu-d2p"])
    def test_the_noise_of_the_wrong_step_is_noticed(self, name):
        noise, ledger = measured(name, WrongStep)
        found = checks.noise_is_as_written(noise, ledger)
        # In every release but the first, at every node.
        assert len(found) == 3 * (ROUNDS - 1)

    def test_gradients_are_clipped_to_the_step_s_norm(self):
        # Batches of all records with nothing else: sums of clipped gradients of 6
        # records.
        recording = Recording()
        mechanism = training("dyn-d2p", batch_size=6.0).mechanism(0.0)
        data = random_data((6, 6, 6))
        for share in data:
            share.inputs.mul_(100)  # all gradients are far above every clip norm
        private = oracle(mechanism, shares=data, observers=[recording], seed=1)
        at = torch.zeros(1, 3, DIMS, dtype=torch.float64)
        for _ in range(ROUNDS):
            private.gradient(at)
        sums = torch.stack([released for _, released in recording.releases])
        norms = sums.norm(dim=3) / sums[:1].norm(dim=3)  # (releases, runs, nodes)
        expected = [4.0 ** (-k / ROUNDS) for k in range(ROUNDS)]
        assert norms[:, 0, 0].tolist() == pytest.approx(expected, rel=1e-9)


class TestSampling:
    def test_each_is_accounted_as_what_it_is(self):
        problem = Problem.of(training("dyn-d2p"))
        release = problem.ledger(1.0).nodes[0][2].release
        assert release.sampling == PoissonSampling(0.1)
        assert release.sensitivity_under("add-or-remove-one") == release.norm_bound
        fixed = Problem.of(
            training("dyn-d2p", sampling="without-replacement", batch_size=1.0)
        )
        release = fixed.ledger(1.0).nodes[0][2].release
        assert release.sampling == SamplingWithoutReplacement(1, 30)
        assert release.sensitivity_under("replace-one") == 2 * release.norm_bound
        with pytest.raises(ValueError, match="add-or-remove-one"):
            release.sensitivity_under("add-or-remove-one")

    def test_one_record_is_drawn_in_each_round(self):
        one = training("const-d2p", sampling="without-replacement", batch_size=1.0)
        private = oracle(one.mechanism(0.0), runs=400)
        drawn = private._batches((0, 1, 2))
        assert bool((drawn.sum(2) == 1).all())


class TestPaperNoise:
    @every
    @examples(15)
    @given(st.floats(0.2, 4), st.sampled_from([1e-6, 1e-4, 1e-2]), st.integers(1, 3000))
    def test_it_solves_the_paper_s_equations(self, name, epsilon, delta, rounds):
        """mu_0 by scipy, from eqs. 4 and 6 as they stand."""
        problem = Problem.of(training(name, rounds, batch_size=2.0))
        z = problem.training.family.paper_noise(problem.setting, epsilon, delta)

        def excess(mu):  # eq. 4
            cdf = stats.norm.cdf
            gap = cdf(-epsilon / mu + mu / 2)
            return gap - np.exp(epsilon) * cdf(-epsilon / mu - mu / 2) - delta

        total = optimize.brentq(excess, 1e-2, 50, xtol=1e-14)
        _, rho_mu = RHOS[name]
        mus = rho_mu ** (np.arange(rounds) / rounds) / z
        composed = 2 / 30 * np.sqrt(np.expm1(mus**2).sum())  # eq. 6, p = L/J
        assert composed == pytest.approx(total, rel=1e-6)

    def test_equation_10_of_the_general_form(self):
        schedules = {
            "clip_schedule": {"type": "shrinking", "initial": 1.0, "rho": 2.0},
            "noise_schedule": {"type": "shrinking", "initial": 1.0, "rho": 4.0},
        }
        problem = Problem.of(training("general-d2p", 2000, clip_norm=1.0, **schedules))
        z = problem.training.family.paper_noise(problem.setting, 1.0, 1e-4)
        mu, k = float(gdp.mu(1.0, 1e-4)), np.arange(2000) / 2000
        scale = 3 / 30 / mu * math.sqrt(2 * (4.0**k).sum())  # (C_k / sigma~_k)^2
        assert z == pytest.approx(scale)

    def test_where_equation_10_is_not_proved_it_is_refused(self):
        # Large budgets: mu_k^2 > 1.
        problem = Problem.of(training("general-d2p", 2))
        with pytest.raises(ValueError, match="mu_k\\^2 <= 1"):
            problem.training.family.paper_noise(problem.setting, 3.0, 1e-2)

    def test_it_claims_more_than_is_certified(self):
        """The paper's regime, J = 2500 and one record a batch: no bound, by far."""
        mechanism = training("dyn-d2p", 2500, batch_size=1.0, rho_mu=2.0).mechanism
        options = training("dyn-d2p", 2500, rho_mu=2.0).algorithm_options()
        z = options.paper_noise(float(gdp.mu(1.0, 1e-4)), 1 / 2500, 2500)
        bound = account(mechanism(z).ledger((2500,), 2500), 1e-4)
        assert bound.standing == "certified"
        assert 3.5 < bound.epsilon < 4.0


class TestCalibration:
    def test_the_certified_one_meets_the_budget_and_wastes_little(self):
        problem = Problem.of(training("dyn-d2p", 20))
        z, bound = noise_multiplier(problem.ledger, 1.0, 1e-4)
        assert 0.995 < bound.epsilon <= 1
        assert account(problem.ledger(0.99 * z), 1e-4).epsilon > 1

    def test_the_command_line_says_whose_account_made_the_noise(self, capsys, tmp_path):
        said = {}
        for how, status in (("paper", 1), ("certified", 0)):
            call = ["train", "dyn-d2p", "--calibrate", how, "--json", "--out"]
            small = ["--set", "rounds=3", "--set", "hidden=4", "--set", "batch_size=1"]
            assert main([*call, str(tmp_path / how), *small]) == status
            said[how] = json.loads(capsys.readouterr().out)
        assert said["paper"]["claim_source"] == "the paper's own account of dyn-d2p"
        assert said["certified"]["claim_source"] == "the command line"
        assert said["certified"]["certified"] <= 1 < said["paper"]["certified"]
        assert said["certified"]["verdict"] == "consistent"
        assert said["paper"]["verdict"] == "disproved"


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
def test_what_training_releases_is_what_was_planned(sampling):
    problem = Problem.of(training("dyn-d2p", sampling=sampling))
    models, ledger = problem.train(0.8, Streams(0))
    assert ledger == problem.ledger(0.8)
    assert bool(torch.isfinite(models).all())
    assert not torch.equal(models, problem.start(0))
