"""Tuning: what the tries cost, against outcomes that are computed exactly."""

import json
import math
import shutil
import tempfile

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from scipy import integrate, stats
from torch import nn

import privaudit as pa
from privaudit.accounting.tuning import SECRET_TRIES, draw_tries, parameter_of
from privaudit.api import tuning
from privaudit.cli import main
from privaudit.ledger import Entry, Ledger
from privaudit.report.verify import verify
from trainers.gradients.per_sample import parameter_vector
from trainers.numerics.randomness import Streams
from trainers.runs import run as run_module
from trainers.runs import tuned as tuned_runs
from trainers.runs.material import Material
from trainers.runs.run import Keeper
from trainers.runs.tries import Tries
from trainers.runs.tuned import calibrated

SIZES = [60, 40]
STEPS = {"step_size": [1e-4, 1.0]}  # the first learns nothing


def shares(sizes=SIZES, seed=0):
    inputs = torch.randn(sum(sizes), 4, generator=torch.Generator().manual_seed(seed))
    targets = (inputs.sum(1) > 0).long()
    return list(zip(inputs.split(sizes), targets.split(sizes), strict=True))


(PUBLIC,) = shares([200], seed=1)


def net():
    return nn.Linear(4, 2)


def tuned(grid=STEPS, epsilon=4, data=None, **more):
    torch.manual_seed(1)
    made = net()
    plan = pa.plan(made, shares(), epsilon, rounds=10)
    # Quicker to charge than the Poisson law.
    return pa.tune(
        plan, grid, made, data or shares(), **{"seed": 0, "law": "geometric", **more}
    )


_NOISE = {}


@pytest.fixture(autouse=True)
def known_noise(monkeypatch):
    """The noise of equal tries is looked for once."""

    def once(*given):
        if str(given) not in _NOISE:
            _NOISE[str(given)] = calibrated(*given)
        return _NOISE[str(given)]

    monkeypatch.setattr(tuned_runs, "calibrated", once)


def generating(law, tries):
    """Derivative of E[u^K], at u, from the laws' closed forms."""
    if law == "poisson":
        return lambda u: tries * np.exp(tries * u) / np.expm1(tries)
    gamma = parameter_of(tries, {"geometric": 1.0, "logarithmic": 0.0}[law])
    if law == "geometric":
        return lambda u: gamma / (1 - (1 - gamma) * u) ** 2
    return lambda u: (1 - gamma) / (1 - (1 - gamma) * u) / -math.log(gamma)


class TestCharge:
    @pytest.mark.parametrize("law", ["poisson", "geometric", "logarithmic"])
    @pytest.mark.parametrize("tries", [3.0, 12.0])
    def test_the_best_of_gaussian_numbers_by_integration(self, law, tries):
        """The largest of K: its density is that of one times E[K F^(K - 1)]."""
        z, delta, slope = 2.0, 1e-4, generating(law, tries)
        one = Ledger.of(
            pa.Release.of_sum(
                norm_bound=1.0, noise_multiplier=z, sampling=pa.NoSampling()
            )
        )

        def density(x, mean):
            return stats.norm.pdf(x, mean, z) * slope(stats.norm.cdf(x, mean, z))

        x = np.linspace(-20, 20, 40_001)

        def true_delta(epsilon):
            one, other = density(x, 0.0), density(x, 1.0)
            return max(
                integrate.simpson(np.maximum(0, p - math.exp(epsilon) * q), x=x)
                for p, q in ((one, other), (other, one))
            )

        charged = pa.epsilon(
            ledger=pa.repeat_and_select(one, tries=tries, law=law), delta=delta
        )
        assert true_delta(charged.upper) <= delta
        # Which a charge of one try alone does not hold.
        assert true_delta(pa.epsilon(ledger=one, delta=delta).upper) > delta

    @pytest.mark.parametrize(("law", "most"), [("geometric", 3), ("logarithmic", 2)])
    def test_the_worst_of_three_outcomes_by_enumeration(self, law, most):
        """The middle one comes out of tries none of which gave the best: e^2 or e^3."""
        gamma = parameter_of(1000.0, 1.0 if law == "geometric" else 0.0)

        def none_above(chance):  # E u^K, of tries that are each below
            rest = 1 - (1 - gamma) * (1 - chance)
            if law == "geometric":
                return gamma * (1 - chance) / rest
            return math.log(rest) / math.log(gamma)

        def middle(best, second):
            return none_above(best) - none_above(best + second)

        one = Ledger.of(pa.Release.of(pa.mechanisms.EpsilonDelta(1.0, 0.0)))
        selected = pa.repeat_and_select(one, tries=1000.0, law=law)
        charged = pa.epsilon(ledger=selected, delta=1e-7).upper
        p, q = middle(0.05, 0.005), middle(0.05 * math.e, 0.005 / math.e)
        assert p - math.exp(charged) * q <= 1e-7
        assert p - math.exp(most - 0.3) * q > 1e-5  # so much is needed

    def test_candidates_that_differ_cost_as_the_worst(self):
        loud, quiet = (
            Ledger.of(
                pa.Release.of_sum(
                    norm_bound=1.0, noise_multiplier=z, sampling=pa.NoSampling()
                )
            )
            for z in (3.0, 6.0)
        )
        both, alone, least = (
            pa.epsilon(ledger=pa.repeat_and_select(x, tries=4), delta=1e-5).upper
            for x in ([quiet, loud], loud, quiet)
        )
        assert least < alone
        assert both == pytest.approx(alone, rel=1e-6)  # their grids differ

    @pytest.mark.parametrize(
        ("law", "tries"),
        [("poisson", 4.0), ("geometric", 7.0), ("logarithmic", 7.0), (0.5, 7.0)],
    )
    def test_the_number_of_tries_has_its_law(self, law, tries):
        """Against scipy's laws; those that allow 0, given that it is not."""
        if law == "poisson":
            known = stats.poisson(tries)
        elif law == "logarithmic":
            known = stats.logser(1 - parameter_of(tries, 0.0))
        else:
            shape = 1.0 if law == "geometric" else law
            known = stats.nbinom(shape, parameter_of(tries, shape))
        for u in np.linspace(0.003, 0.997, 151):
            none = known.cdf(0)
            assert draw_tries(tries, law, u) == known.ppf(none + u * (1 - none))


@pytest.fixture(scope="module")
def plainly():
    return tuned()


class TestTune:
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("law", ["poisson", "geometric", "all"])
    def test_the_certificate_is_of_all_tries(self, law):
        run = tuned(law=law, tries=2)
        found = run.config.tuning
        noise, rate = run.result.noise_multiplier, run.config.training.sampling_rate
        step, count = (
            pa.Release.of_sum(norm_bound=1.0, noise_multiplier=z, sampling=how)
            for z, how in (
                (noise, pa.PoissonSampling(rate)),
                (found.score_noise, pa.NoSampling()),
            )
        )
        one = Ledger(nodes=((Entry(step, 10), Entry(count)),))
        by_hand = (
            Ledger.composed([one, one])
            if law == "all"
            else pa.repeat_and_select(one, tries=2, law=law)
        )
        upper = run.certificate.epsilon(1e-5).upper
        secret = () if law == "all" else (SECRET_TRIES,)
        assert run.ledger.assumptions == run.result.upper().assumes == secret
        assert (run.certificate.standing == "certified") == (law == "all")
        assert upper == pytest.approx(pa.epsilon(ledger=by_hand, delta=1e-5).upper)
        assert 3.98 < upper <= 4
        assert pa.epsilon(ledger=one, delta=1e-5).upper < 3.5

    @pytest.mark.parametrize("how", [{}, {"judge": PUBLIC}])
    def test_the_best_comes_out(self, how):
        run = tuned(law="all", **how)
        assert run.config.tuning.best.settings == {"step_size": 1.0}
        assert (run.config.tuning.score_noise is None) == ("judge" in how)
        assert "step_size=1.0 came out" in run.result.remarks[-1]
        assert ("declared public" in run.result.remarks[-1]) == ("judge" in how)

    def test_public_data_cost_nothing(self, caplog):
        run = tuned(like=PUBLIC)
        plan = pa.plan(net(), shares(), 4, rounds=10)
        assert run.result.noise_multiplier == plan.noise_multiplier[0]
        assert run.config.tuning.best.settings == {"step_size": 1.0}
        assert "declared public" in run.result.remarks[-1]
        assert len(caplog.records) == 1  # that it is a study, once

    @pytest.mark.parametrize("how", ["like", "judge"])
    def test_private_records_are_not_public(self, how, caplog):
        tuned(law="all", **{how: shares()[0]})
        said = "60 public records are at nodes too, equal in every number: they are"
        assert sum(said in record.message for record in caplog.records) == 1

    @pytest.mark.full
    def test_nodes_with_budgets_of_their_own(self):
        run = tuned(epsilon=[4, 1], tries=2)
        spent = [node.epsilon for node in run.result.nodes]
        assert spent == pytest.approx([4, 1], rel=0.01)
        assert run.result.status == "unproven"  # only if the tries stay secret

    @pytest.mark.full
    def test_candidates_that_cost_unlike(self):
        grid = {"rounds": [5, 10], "sampling_rate": [0.2, 0.6]}
        run = tuned(grid, tries=2)
        noises = {one.noise_multiplier for one in run.config.tuning.candidates}
        assert len(noises) == 4
        assert 3.98 < run.result.upper().epsilon <= 4

    @pytest.mark.full
    def test_a_study_repeats_and_a_secret_does_not(self):
        first, again, secret = (tuned(seed=seed, tries=2) for seed in (5, 5, None))
        weights = [run.models[0].weight for run in (first, again, secret)]
        assert torch.equal(weights[0], weights[1])
        assert not torch.equal(weights[0], weights[2])
        assert secret.result.protected

    def test_tries_are_drawn_evenly(self):
        drawn = [list(tuning._tries(4, 3.0, "poisson", seed)) for seed in range(1500)]
        mean = 3 / -math.expm1(-3)
        assert abs(np.mean([len(one) for one in drawn]) - mean) < 5 * 1.7 / 1500**0.5
        counts = np.bincount([k for one in drawn for k, _ in one])
        assert stats.chisquare(counts).pvalue > 1e-4

    def test_a_record_moves_the_count_by_one(self, monkeypatch, plainly):
        """Of neighbours, under one model, before the noise."""
        run, counts = plainly, []
        models = torch.stack([parameter_vector(one) for one in run.models])
        monkeypatch.setattr(Streams, "noisy", lambda self, sums, *more: sums)
        one, other = shares()
        for factor, flipped in ((1, 0), (-50, 0), (-50, 1), (math.nan, 0)):
            x, y = (part.clone() for part in one)
            x[0], y[0] = x[0] * factor, abs(flipped - y[0])
            material = Material.own(net(), [(x, y), other])
            problem = run.config.problem(material=material)
            counts.append(tuning._score(problem, models, None, 5.0, 0))
        assert {*counts} <= {min(counts), min(counts) + 1}
        assert 20 < min(counts) == int(min(counts))

    @pytest.mark.full
    def test_a_strategy_draws_candidates(self):
        grid = st.fixed_dictionaries({"step_size": st.floats(0.1, 3)})
        run = tuned(grid, tries=2)
        steps = [one.settings["step_size"] for one in run.config.tuning.candidates]
        assert len(steps) > 5
        assert all(0.1 <= step <= 3 for step in steps)

    @pytest.mark.full
    def test_tries_that_diverge_do_not_end_it(self):
        run = tuned({"step_size": [1e39, 1.0]}, law="all")
        assert run.config.tuning.best.settings == {"step_size": 1.0}
        with pytest.raises(ValueError, match="diverges in all tries"):
            tuned({"step_size": [1e39]})

    def test_it_is_not_audited_as_one_training(self, plainly):
        with pytest.raises(ValueError, match="best of several tries"):
            plainly.audit(runs=50)

    def test_under_torchrun_it_is_refused(self, monkeypatch):
        monkeypatch.setattr("trainers.network.ranks.launched", lambda: True)
        with pytest.raises(ValueError, match="trained in one process"):
            tuned()

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ({"grid": {"nodes": [2, 3]}}, "nodes is not tuned"),
            ({"grid": {}}, "grid has a list of values"),
            ({"grid": {"step_size": 1.0}}, "grid has a list of values"),
            ({"grid": [{"warm_up": 2}, {"step_size": 1}]}, "candidates set the same"),
            ({"grid": {"batch_size": [4], "sampling_rate": [0.1]}}, "not both"),
            ({"tries": 0.5}, "tries on average are 1 to 500"),
            ({"law": "fish"}, "geometric, logarithmic, poisson or a number"),
            ({"like": PUBLIC, "judge": PUBLIC}, "leave judge out"),
            ({"like": PUBLIC, "grid": {"graph": ["ring"]}}, "graph cannot be judged"),
            ({"loss": nn.functional.multi_margin_loss}, "public data to judge by"),
        ],
    )
    def test_what_is_wrong_is_said(self, more, said):
        with pytest.raises(ValueError, match=said):
            tuned(**more)


def stopped_at(monkeypatch, call):
    """Let scoring, of which this returns the calls, end the process at one of them."""
    calls, score = [], tuning._score

    def counted(*given):
        calls.append(given)
        if len(calls) == call:
            raise KeyboardInterrupt
        return score(*given)

    monkeypatch.setattr(tuning, "_score", counted)
    return calls


class TestStopped:
    def test_without_a_folder_tries_are_on_no_disk(self, tmp_path, monkeypatch):
        """So that a kill at any moment leaves nothing of them."""
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        seen, score = [], tuning._score

        def scored(*given):
            seen.append([*tmp_path.glob("privaudit*")])
            return score(*given)

        monkeypatch.setattr(tuning, "_score", scored)
        run = tuned(law="all", seed=None)
        assert seen == [[], []]
        assert len([*tmp_path.glob("privaudit*")]) == 1  # the best
        assert len(run.models) == 2

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("seed", [3, None])
    def test_it_goes_on_with_the_tries_that_were_drawn(
        self, tmp_path, monkeypatch, seed
    ):
        grid, law, out = {"step_size": [1e-4, 0.3, 1.0, 3.0]}, "all", tmp_path / "run"
        drawn = []
        monkeypatch.setattr(
            tuning,
            "_tries",
            lambda *x: drawn.append(x) or [(k, seed) for k in range(4)],
        )
        calls = stopped_at(monkeypatch, 3)
        with pytest.raises(KeyboardInterrupt):
            tuned(grid, law=law, seed=seed, out=out)
        tries = out / "tries"
        assert sorted(one.name for one in tries.iterdir()) == ["2", "state.pt"]
        for one in (tries, *tries.rglob("*")):
            assert not one.stat().st_mode & 0o077, one
        with pytest.raises(ValueError, match="tries of another tuning"):
            tuned(grid, law=law, seed=seed, out=out, epsilon=3)
        run = tuned(grid, law=law, seed=seed, out=out)
        assert len(drawn) == 1
        assert len(calls) == 3 + 2  # the one that was stopped, again, and the last
        assert not tries.exists()
        assert not verify(out, settings=True).differences
        assert (out / "node-1.safetensors").exists()
        if seed is not None:
            whole = tuned(grid, law=law, seed=seed)
            assert torch.equal(run.models[0].weight, whole.models[0].weight)
        with pytest.raises(ValueError, match="holds a finished run"):
            tuned(grid, law=law, seed=seed, out=out)

    def test_it_goes_on_with_the_same_data_and_code(self, tmp_path, monkeypatch):
        how = {"law": "all", "out": tmp_path / "run", "judge": PUBLIC}
        given = {**how, "transform": lambda x: 2 * x, "data": shares()}
        calls = stopped_at(monkeypatch, 2)
        with pytest.raises(KeyboardInterrupt):
            tuned(**given)
        for other in (
            {"data": shares(seed=2)},
            {"data": [shares()[0], tuple(x.flip(0) for x in shares()[1])]},
            {"judge": shares([200], seed=3)[0]},
            {"transform": lambda x: 3 * x},
            {"transform": None},
            {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)},
        ):
            with pytest.raises(
                ValueError, match="tries on other data, or with another"
            ):
                tuned(**{**given, **other})
        tuned(**{**given, "transform": lambda x: 2 * x, "data": shares()})
        assert len(calls) == 3

    @pytest.mark.parametrize("seed", [3, None])
    def test_what_was_drawn_is_missed(self, tmp_path, monkeypatch, seed):
        """Else secret tries would be drawn again; by a seed they are the same."""
        stopped_at(monkeypatch, 2)
        one = {"law": "all", "seed": seed, "out": tmp_path / "run"}
        with pytest.raises(KeyboardInterrupt):
            tuned(**one)
        (tmp_path / "run" / "tries" / "state.pt").unlink()
        if seed is not None:
            tuned(**one)
            return
        with pytest.raises(ValueError, match=r"not what was drawn \(state\.pt\)"):
            tuned(**one)

    def test_a_try_goes_on_in_its_midst(self, tmp_path, monkeypatch):
        """A secret try, by its key and checkpoint: no release is made anew."""
        # As if its data were read as asked for, of which no fingerprint is taken.
        monkeypatch.setattr(Tries, "_given_by_user", lambda self: "")
        rounds, done, keep = [], [], Keeper.keep
        monkeypatch.setattr(run_module, "KEEP_EVERY", 0.0)
        monkeypatch.setattr(run_module, "KEEP_SHARE", math.inf)

        def kept(self, now, middle):
            rounds.append(now)
            keep(self, now, middle)
            if now == 6 and not done:
                done.append(now)
                raise KeyboardInterrupt

        monkeypatch.setattr(Keeper, "keep", kept)
        one = {"grid": {"step_size": [1.0]}, "law": "all", "seed": None}
        with pytest.raises(KeyboardInterrupt):
            tuned(**one, out=tmp_path / "run")
        assert (tmp_path / "run" / "tries" / "0" / "key").exists()
        other = shutil.copytree(tmp_path / "run", tmp_path / "other")
        (other / "tries" / "0" / "checkpoint.pt").unlink()
        x, y = shares()[0]
        with pytest.raises(ValueError, match="made again with other sums, which no"):
            tuned(**one, out=other, data=[(x.flip(0) + 1, y), *shares()[1:]])
        rounds[6:] = []
        run = tuned(**one, out=tmp_path / "run")
        assert rounds == [*range(1, 7), *range(7, 11)]
        assert sum(entry.count for entry in run.ledger.nodes[0]) == 10 + 1
        assert not (tmp_path / "run" / "tries").exists()


class TestEvidence:
    def test_a_folder_is_checked_and_forgeries_are_seen(self, tmp_path, plainly):
        run = plainly
        run.save(tmp_path / "run")
        found = verify(tmp_path / "run", settings=True)
        assert not found.differences
        assert "the ledger against the settings" in found.checked
        file = tmp_path / "run" / "config.json"
        (tmp_path / "run" / "manifest.json").unlink()
        whole = json.loads(file.read_text())
        others = [k for k in range(2) if k != whole["tuning"]["chosen"]]
        for forged in (
            {"tries": 1.5},
            {"law": "logarithmic"},
            {"score_noise": 100.0},
            {"chosen": others[0]},
            {"law": "public"},
        ):
            whole_but = {**whole, "tuning": {**whole["tuning"], **forged}}
            file.write_text(json.dumps(whole_but))
            assert verify(tmp_path / "run", settings=True).differences, forged
        file.write_text(json.dumps(whole))
        ledger = tmp_path / "run" / "ledger.json"
        known = json.loads(ledger.read_text())
        assert known.pop("assumes") == [SECRET_TRIES]
        ledger.write_text(json.dumps(known))
        found = [
            str(one) for one in verify(tmp_path / "run", settings=True).differences
        ]
        assert any("what its account assumes" in one for one in found), found

    @pytest.mark.full
    def test_the_command(self, tmp_path, capsys):
        for node, (x, y) in enumerate(shares()):
            np.savez(tmp_path / f"node-{node}.npz", inputs=x, targets=y)
        plan, out = tmp_path / "plan.toml", tmp_path / "run"
        given = ["--data", str(tmp_path), "--model", "softmax", "--classes", "2"]
        assert not main(["plan", *given, "--set", "rounds=5", "--out", str(plan)])
        what = [
            "tune",
            str(plan),
            *given,
            "--grid",
            "step_size=.1,1",
            "--out",
            str(out),
        ]
        capsys.readouterr()
        assert main([*what, "--tries", "2", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["certified"] <= 1
        assert not verify(out, settings=True).differences
        assert main([*what[:-3], "--tries", "0"]) == 2
