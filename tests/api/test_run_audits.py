"""Audits of a training that was made: both sides of it, on one page."""

import shutil
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn

import privaudit as pa
from privaudit.cli import main
from privaudit.files.folder import RunFolder
from privaudit.files.manifest import seal
from privaudit.report import page
from privaudit.report.load import load
from privaudit.report.site import Site
from tests.files.test_signature import written
from tests.report.test_verify import edited
from trainers.gradients.clip_weights import ClipTo
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Oracle
from trainers.oracles.sampler import Sampler
from trainers.runs.material import Material
from trainers.runs.problem import Problem
from trainers.runs.training import training_from


def shares(nodes=2, records=40, seed=0):
    """Classes that a line tells apart."""
    generator = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(records, 4, generator=generator) for _ in range(nodes)]
    return [(x, (x.sum(1) > 0).long()) for x in inputs]


def net(dropout=0.0):
    """A small model, the same each time."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        layers = [nn.Linear(4, 6), nn.ReLU(), nn.Dropout(dropout), nn.Linear(6, 2)]
    return nn.Sequential(*layers)


def trained(**more):
    """A run of a few rounds."""
    given = {"epsilon": 2, "rounds": 8, "batch_size": 10, **more}
    return pa.train(given.pop("model", net()), given.pop("shares", shares()), **given)


@pytest.fixture(scope="module")
def audited():
    """A run, and what attacks on it showed."""
    run = trained()
    return run, run.audit(runs=200)


@pytest.fixture(scope="module")
def kept(audited, tmp_path_factory):
    """Its folder, with a page."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    audited[0].save(folder)
    return folder


class TestKept:
    """A folder that stays has its page, with how many records each node has."""

    @pytest.fixture
    def there(self, tmp_path):
        held = [(x[:n], y[:n]) for (x, y), n in zip(shares(), (23, 17), strict=True)]
        how = {"batch_size": None, "sampling_rate": 0.5, "out": tmp_path / "run"}
        return trained(shares=held, rounds=2, **how)

    def test_the_page_is_there_and_goes_along(self, there, tmp_path):
        page = tmp_path / "run" / "report.html"
        text = page.read_text()
        assert '<th scope="col">records</th>' in text
        assert all(f'"records">{n}</td>' in text for n in (23, 17))
        assert "all noisy gradients of its node" not in text
        there.audit(runs=20, adversary="noisy-gradients", estimator="best")
        assert "all noisy gradients of its node" in page.read_text()

    @pytest.mark.parametrize("forged", [[20, 17], [40]])
    def test_other_sizes_are_seen(self, there, tmp_path, forged):
        path = tmp_path / "run"
        assert pa.verify(path).differences == ()
        edited(path / "config.json", lambda config: config.update(sizes=forged))
        seal(RunFolder(path))
        (one,) = pa.verify(path).differences
        assert "records" in str(one) or "sizes" in str(one)


class TestBothSides:
    def test_certified_and_audited_stand_together(self, audited):
        run, found = audited
        assert 0 <= found.lower.epsilon < found.upper.epsilon <= 2
        seen = {one.finding.lower.threat_model for one in run.result.audits}
        assert len(seen) == 2
        assert any("all noisy gradients" in one for one in seen)
        assert any("final model" in one for one in seen)
        assert run.result.verdict.lower == found.lower
        assert str(found.lower) in str(run)

    def test_each_finding_says_its_limits(self, audited, kept):
        run, found = audited
        page = (kept / "report.html").read_text()
        for one in run.result.audits:
            limits = one.finding.limits
            assert "noisy-gradients" in limits or "more runs" in limits
            assert "by the method best, for any mechanism: 3.82" in limits
            assert limits in str(one)
            assert f"  {limits}" in found.lines()
            assert limits in page

    def test_says_that_no_certificate_covers_it(self, audited):
        run, found = audited
        assert "covered by no certificate" in found.private
        assert found.private in str(run)

    def test_in_the_folder(self, audited, kept, capsys):
        _, found = audited
        checked = pa.verify(kept)
        assert checked.differences == ()
        assert any("audit-noisy-gradients" in one for one in checked.checked)
        text = (kept / "report.html").read_text()
        assert "covered by no certificate" in text
        assert text.count("all noisy gradients of its node") >= 1
        assert "audited" in text
        assert "no attack was tried" not in text
        assert main(["show", str(kept)]) == 0
        assert str(found.lower) in capsys.readouterr().out
        listed = RunFolder(kept).audits
        assert [one.path.name for one in listed] == [*sorted(found.results)]

    def test_a_site_has_both_figures(self, audited, kept):
        made = Site()
        made.add(kept)
        (item,) = made.items
        assert item.audited == audited[1].lower.epsilon
        assert item.verdict == "consistent"

    def test_an_audit_has_a_page(self, kept, tmp_path):
        shutil.copytree(kept / "audit-final-models", tmp_path / "alone")
        page.write(tmp_path / "alone")

    def test_nothing_of_it_is_public(self, tmp_path):
        run = trained()
        run.save(tmp_path / "before", public=True)
        run.audit(runs=20, adversary="noisy-gradients")
        run.save(tmp_path / "after", public=True)
        names = [
            sorted(p.name for p in (tmp_path / x).iterdir())
            for x in ("before", "after")
        ]
        assert names[0] == names[1]
        assert all(name.endswith(".safetensors") for name in names[1])

    def test_a_bound_that_was_changed_is_seen(self, kept, tmp_path):
        shutil.copytree(kept, tmp_path / "run")
        file = tmp_path / "run/audit-noisy-gradients/scores.npz"
        kept = dict(np.load(file))
        kept["score"] = kept["score"] + 5.0 * kept["member"]
        np.savez(file, **kept)
        assert any(one.file == file for one in pa.verify(tmp_path / "run").differences)

    def test_the_same_call_gives_what_is_there(self, audited):
        run, found = audited
        again = run.audit(runs=200)
        assert again.results == found.results

    def test_another_call_has_a_folder_of_its_own(self):
        run = trained()
        first = run.audit(runs=20, adversary="final-loss")
        second = run.audit(runs=40, adversary="final-loss")
        assert [*first.results, *second.results] == [
            "audit-final-loss",
            "audit-final-loss-2",
        ]
        assert len(run.result.audits) == 2


class TestWhatIsAttacked:
    def test_the_run_s_own_noise_and_ledger(self, audited):
        run, found = audited
        kept = load(run._trained.folder.path / "audit-noisy-gradients")
        assert kept.config.noise_multiplier == run.result.noise_multiplier
        assert kept.ledger == run.ledger
        assert found.results["audit-noisy-gradients"].upper() == run.result.upper()

    def test_starts_where_the_model_starts(self):
        model = net()
        seen = []
        train = Problem.train

        def spy(self, *args, **more):
            seen.append(more["start"][0, 0].clone())
            return train(self, *args, **more)

        run = trained(model=model)
        with mock.patch.object(Problem, "train", spy):
            run.audit(runs=20, adversary="final-loss", workers=1)
        assert all(
            torch.equal(one, nn.utils.parameters_to_vector(model.parameters()))
            for one in seen
        )

    def test_a_record_of_the_user(self):
        found = trained().audit(
            runs=60, adversary="noisy-gradients", record=(50 * torch.ones(4), 1)
        )
        assert found.training.audits[0].canary == "record"

    @pytest.mark.full
    def test_another_record_is_another_audit(self):
        run = trained()
        found = [
            run.audit(
                runs=60, adversary="noisy-gradients", record=(x * torch.ones(4), 1)
            )
            for x in (0.0, 50.0)
        ]
        names = [name for one in found for name in one.results]
        assert names == ["audit-noisy-gradients", "audit-noisy-gradients-2"]
        first, second = (load(found[0].path / name).scores.score for name in names)
        assert not np.array_equal(first, second)

    def test_a_score_of_the_user_s_sees_the_final_model(self):
        """Beside the loss of the same record, which it takes again."""
        record = 50 * torch.ones(4), 0  # of the other class

        def loss(model):
            assert not model.training
            out = model(record[0][None].float())
            return -float(nn.functional.cross_entropy(out, torch.tensor([record[1]])))

        run = trained()
        found = run.audit(
            runs=40, adversary=[loss, "final-loss"], canary=record, workers=2
        )
        scores = [load(found.path / name).scores for name in found.results]
        assert list(found.results) == ["audit-own-loss", "audit-final-loss"]
        np.testing.assert_allclose(scores[0].score, scores[1].score, rtol=1e-5)
        assert "as own:loss scores it" in found.lines()[1]
        assert pa.verify(found.path).differences == ()

    @pytest.mark.full
    def test_all_attackers_score_the_canaries_of_one_scene(self):
        """One alone where one of them takes no more."""
        seen = ["noisy-gradients", "lira"]
        run = trained(noise_multiplier=0.01, epsilon=None)
        found = run.audit(runs=40, adversary=seen, canary="gradient")
        alone = [load(found.path / name).scores for name in found.results]
        assert [one.in_family for one in alone] == [None, None]
        assert np.median(alone[0].members) > alone[0].non_members.max()

    @pytest.mark.full
    def test_of_noise_by_node_the_canary_s_own_promise_is_tested(self):
        run = trained(shares=shares(2, 20), epsilon=[1.0, 4.0], rounds=4)
        assert len(set(run.result.noise_multiplier)) == 2
        found = run.audit(runs=40, adversary="noisy-gradients")
        (one,) = found.results.values()
        assert one.verdict.claim.epsilon == 1
        assert one.verdict.upper == one.nodes[0]
        assert found.status == "consistent"
        kept = load(found.path / "audit-noisy-gradients").config
        assert kept.noise_multiplier == run.result.noise_multiplier

        half, all_of = np.array(run.result.noise_multiplier) / [2, 1], Problem.train

        def less(self, noise, *args, **more):
            models, _ = all_of(self, tuple(half), *args, **more)
            return models, self.stated(self.ledger(noise))

        with mock.patch.object(Problem, "train", less):
            # 2.1 at node 0, less than the network's 4 and more than its own promise.
            bad = run.audit(runs=400, adversary="noisy-gradients", seed=1)
        assert bad.status == "refuted"

    @pytest.mark.full
    def test_a_record_in_another_s_place(self):
        run = trained(relation="replace-one")
        found = run.audit(runs=60, adversary="noisy-gradients")
        assert found.lower.relation == "replace-one"

    @pytest.mark.full
    def test_random_records_in_the_place_of_the_data(self):
        """Equal whatever the data are."""
        runs = [
            trained(shares=shares(seed=seed), noise_multiplier=2.0, epsilon=None)
            for seed in (0, 1)
        ]
        found = [
            run.audit(runs=30, adversary="noisy-gradients", random_records=True)
            for run in runs
        ]
        first, second = (
            load(one.path / "audit-noisy-gradients").scores.score for one in found
        )
        assert np.array_equal(first, second)
        assert "tell nothing" in found[0].private

    @pytest.mark.full
    @pytest.mark.parametrize("observer", ["any-node"])
    def test_by_the_observer_that_the_certificate_is_for(self, observer):
        run = trained(
            shares=shares(4, 20), algorithm="dp-butterfly", observer=observer, rounds=4
        )
        found = run.audit(runs=40)
        claims = {one.finding.claim.observer or None for one in run.result.audits}
        assert claims == {observer, None}
        assert found.status == "consistent"


class TestDropout:
    def test_runs_of_a_block_are_those_trained_alone(self):
        """Each has masks of its own, so that no two runs share random numbers."""
        data = shares(1)
        settings = {
            "algorithm": "dp-sgd",
            "data": "own",
            "model": "own",
            "partition": "given",
            "nodes": 1,
            "train": 40,
            "rounds": 3,
            "batch_size": 10,
        }
        problem = Problem.of(
            training_from(settings, where="a test"),
            material=Material.own(net(0.5), data),
        )
        together, _ = problem.train(1.0, Streams(0, 0), runs=3)
        alone = [problem.train(1.0, Streams(0, run), runs=1)[0] for run in range(3)]
        torch.testing.assert_close(together, torch.cat(alone))

    @pytest.mark.full
    def test_masks_differ_between_runs(self):
        seen = []
        whole = Oracle._clipped_sum

        def spy(self, *args):
            seen.append(self._differentiator.word)
            return whole(self, *args)

        run = trained(model=net(0.5), rounds=2)
        with mock.patch.object(Oracle, "_clipped_sum", spy):
            run.audit(runs=20, adversary="final-loss", workers=1)
        assert len(seen[0].unique()) == len(seen[0]) // 2 > 1  # two nodes a run
        assert not torch.equal(seen[0], seen[1])


_noisy, _batches, _crafted = Oracle._noisy, Sampler.batches, Oracle._crafted


def _half(self, total, nodes, deviation, step):
    return _noisy(self, total, nodes, deviation / 2, step)


def _twice(self, *args):
    return [(row, 2 * share) for row, share in _crafted(self, *args)]


def _first(self, nodes, index):
    return _batches(self, nodes, 0)


def _unclipped(norms, bound):
    return torch.ones_like(norms)


BUGS = {
    "batch-not-drawn-again": (Sampler, "batches", _first),
    "noise-halved": (Oracle, "_noisy", _half),
    "record-twice": (Oracle, "_crafted", _twice),
    "clip-forgotten": (ClipTo, "weights", staticmethod(_unclipped)),
}


class TestBugs:
    """The certificate believes the program; the audit does not."""

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("bug", BUGS)
    def test_are_refuted(self, bug):
        with mock.patch.object(*BUGS[bug]):
            run = trained(model=net(0.2))
            found = run.audit(runs=400, adversary="noisy-gradients")
        assert run.certificate.epsilon(1e-5).upper <= 2
        assert found.status == run.result.status == "refuted"

    @pytest.mark.full
    def test_the_page_says_so_where_nothing_was_claimed(self, tmp_path):
        with mock.patch.object(*BUGS["clip-forgotten"]):
            run = trained(epsilon=None, noise_multiplier=2.0)
            found = run.audit(runs=200, adversary="noisy-gradients")
        assert found.status == "refuted"
        run.save(tmp_path / "run")
        assert "Refuted" in (tmp_path / "run/report.html").read_text()
        made = Site()
        made.add(tmp_path / "run")
        assert made.items[0].verdict == "refuted"


class TestRefused:
    def test_no_promise(self):
        run = trained(algorithm="dsgt", epsilon=None)
        with pytest.raises(ValueError, match="promises nothing"):
            run.audit(runs=20)

    def test_two_canaries(self):
        with pytest.raises(ValueError, match="leave canary or record out"):
            trained().audit(runs=20, canary="blank", record=(torch.ones(4), 0))

    def test_a_record_of_another_shape(self):
        with pytest.raises(ValueError, match="record"):
            trained().audit(runs=20, record=(torch.ones(5), 0))

    @pytest.mark.parametrize("label", [2, -1, -100])
    def test_a_record_of_another_class(self, label):
        with pytest.raises(ValueError, match=f"record has the label {label}, but the"):
            trained().audit(runs=20, record=(torch.ones(4), label))


def given_net():
    """By name."""
    return net()


def given_shares():
    """By name."""
    return shares()


def other_shares():
    """Nodes of another size."""
    return shares(records=30)


@pytest.fixture(scope="module")
def unaudited(tmp_path_factory):
    """A run's folder, without audits."""
    folder = tmp_path_factory.mktemp("unaudited") / "run"
    trained().save(folder)
    return folder


class TestCommand:
    @pytest.fixture
    def folder(self, unaudited, tmp_path):
        shutil.copytree(unaudited, tmp_path / "run")
        return str(tmp_path / "run")

    def names(self, data="given_shares"):
        return ["--model", f"{__name__}:given_net", "--data", f"{__name__}:{data}"]

    @pytest.mark.full
    def test_of_a_folder(self, folder, tmp_path, capsys):
        """Files of the nodes' models, which lie there too, stay what they were."""
        what = ["audit", folder, *self.names(), "--runs", "60", "--seed", "1"]
        key, public = map(str, written(tmp_path))
        assert main([*what, "--sign", key]) == 0
        said = capsys.readouterr().out
        assert said.count("\naudited with 97.5 % confidence") == 2
        assert "covered by no certificate" in said
        assert main(["verify", folder, "--signer", public]) == 0
        assert "gone" not in capsys.readouterr().out
        assert main(what) == 0
        assert "signature was that of the folder before" in capsys.readouterr().out

    def test_scores_are_those_of_python(self, folder, tmp_path):
        more = ["--runs", "40", "--adversary", "noisy-gradients"]
        assert main(["audit", folder, *self.names(), *more]) == 0
        there = load(f"{folder}/audit-noisy-gradients").scores
        assert len(there) == 40

    def test_needs_names(self, folder, capsys):
        assert main(["audit", folder]) == 2
        assert "--model and --data" in capsys.readouterr().err

    def test_of_other_data(self, folder, capsys):
        assert main(["audit", folder, *self.names("other_shares")]) == 2
        assert "as many records" in capsys.readouterr().err

    def test_asks_nothing_that_the_folder_says(self, folder, capsys):
        assert main(["audit", folder, *self.names(), "--epsilon", "1"]) == 2
        assert "leave --epsilon out" in capsys.readouterr().err

    def test_of_an_algorithm_with_own_model_and_data(self, tmp_path, capsys):
        out = str(tmp_path / "audit")
        more = ["--runs", "40", "--set", "rounds=4", "--set", "batch_size=10"]
        given = [*self.names(), *more, "--out", out]
        assert main(["audit", "dp-dsgt", "--epsilon", "2", *given]) == 0
        assert pa.verify(out).differences == ()

    def test_of_an_algorithm_with_objects(self, tmp_path):
        found = pa.audit_algorithm(
            "dp-dsgd",
            pa.AuditSettings(runs=40, epsilon=2),
            model=net(0.2),
            data=shares(),
            training={"rounds": 4, "batch_size": 10},
            out=tmp_path / "audit",
        )
        assert found.upper.epsilon <= 2
        assert pa.verify(tmp_path / "audit").differences == ()
