"""A user's own model on a user's own data: what comes out, and what is refused."""

import dataclasses
import html
import json
import subprocess
import sys
from typing import ClassVar

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import privaudit as pa
from privaudit.report.command import again
from privaudit.report.load import load
from privaudit.report.planned import ledger_by_settings

SCRIPT = """
import sys, torch, privaudit as pa
from torch import nn

torch.manual_seed(0)
inputs = torch.randn(200, 5)
shares = [(x, (x.sum(1) > 0).long()) for x in inputs.split(50)]
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))  # "pretrained"
net[0].requires_grad_(False)
settings = pa.TrainingSettings(seed=0, batch_size=10)
run = pa.train(net, shares, "dp-dsgt", graph="ring", epsilon=4, rounds=20,
               settings=settings, out=sys.argv[1])
torch.save([m.state_dict() for m in run.models], sys.argv[2] + ".pt")
"""


def data(size=80):
    inputs = torch.randn(size, 5, generator=torch.Generator().manual_seed(0))
    return inputs, (inputs.sum(1) > 0).long()


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))


def trained(**changes):
    settings = {"nodes": 4, "epsilon": 4.0, "rounds": 6, "batch_size": 10, **changes}
    return pa.train(net(), data(), **settings)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("split", "nodes", "said"),
    [
        ("even", 4, {"partition": "even", "split": 0.0}),
        (None, None, {"partition": "given", "split": 0.0}),
    ],
)
def test_its_manifest_says_how_the_data_came(tmp_path, split, nodes, said):
    x, y = data()
    shares = [(x[:40], y[:40]), (x[40:], y[40:])] if nodes is None else data()
    more = {} if split is None else {"split": split}
    how = {"epsilon": 4, "rounds": 2, "batch_size": 8, "out": tmp_path / "run"}
    pa.train(net(), shares, nodes=nodes, **how, **more)
    settings = json.loads((tmp_path / "run/manifest.json").read_text())["settings"]
    training = settings["training"]
    assert {name: training[name] for name in said} == said
    assert training["train"] == 80
    assert "digits" not in training  # these are none


class TestSound:
    def test_the_budget_is_met_and_used(self):
        run = trained()
        found = run.certificate.epsilon(1e-5)
        assert 3.98 < found.lower <= found.upper <= 4
        assert len(run.models) == len(run.ledger.nodes) == 4
        assert run.result.status == "consistent"
        assert run.result.protected

    @pytest.mark.full
    def test_random_allocation(self, tmp_path):
        """The certificate is its ledger's, and the folder says how it was sampled."""
        run = trained(nodes=2, sampling="random-allocation:2", out=tmp_path / "run")
        (entry,) = run.ledger.nodes[1]
        assert entry.release.sampling == pa.RandomAllocation(8, 2)
        upper = run.certificate.epsilon(1e-5).upper
        assert 3.98 < upper <= 4
        assert upper == pa.epsilon(ledger=run.ledger, delta=1e-5).upper
        assert pa.verify(tmp_path / "run").differences == ()

    def test_it_starts_at_the_users_parameters(self):
        """A step that moves nothing leaves them as they were."""
        run = trained(step_size=1e-30, seed=0)
        for model in run.models:
            for ours, theirs in zip(
                model.parameters(), net().parameters(), strict=True
            ):
                assert torch.equal(ours, theirs)

    def test_frozen_parameters_and_buffers_stay(self):
        module = net()
        module[0].requires_grad_(False)
        module.register_buffer("mean", torch.arange(3.0))
        run = pa.train(module, data(), nodes=2, epsilon=4, rounds=5, step_size=0.5)
        for model in run.models:
            assert torch.equal(model[0].weight, module[0].weight)
            assert torch.equal(model.mean, module.mean)
            assert not torch.equal(model[2].weight, module[2].weight)
            assert [p.requires_grad for p in model.parameters()] == [
                *(False, False, True, True)
            ]

    def test_it_learns(self):
        run = trained(rounds=60, step_size=1.0, epsilon=50, test=data())
        assert run.result.accuracy > 0.85
        assert run.curves.accuracy[-1] == pytest.approx(run.result.accuracy)

    def test_regression_has_a_loss(self):
        inputs, _ = data()
        shares = inputs, inputs.sum(1, keepdim=True)
        how = {"nodes": 2, "epsilon": 50, "step_size": 0.3, "seed": 0}
        runs = [
            pa.train(
                nn.Linear(5, 1),
                shares,
                loss=nn.functional.mse_loss,
                test=shares,
                rounds=rounds,
                **how,
            )
            for rounds in (1, 40)
        ]
        before, after = (run.result for run in runs)
        assert (after.accuracy, runs[1].curves.accuracy) == (None, None)
        assert after.loss < 0.5 * before.loss
        assert "(accuracy is of cross entropy alone)" in str(runs[1])

    def test_without_test_data_nothing_is_measured(self):
        run = trained(rounds=2)
        assert "nothing was measured" in str(run)
        assert run.result.test_records is None

    def test_measured_on_a_tenth_or_on_all(self, tmp_path):
        how = {"test": data(600), "seed": 0, "rounds": 2}
        tenth, whole = (trained(evaluate=e, **how) for e in ("tenth", "all"))
        assert (tenth.result.test_records, tenth.result.test_size) == (500, 600)
        assert "on 500 of 600 test records" in str(tenth)
        assert whole.result.test_records == 600
        assert "on test data" in str(whole)
        inputs, targets = data(600)
        right = [
            (model(inputs).argmax(1) == targets).double().mean()
            for model in whole.models
        ]
        assert whole.result.accuracy == pytest.approx(float(sum(right)) / 4)
        assert tenth.ledger == whole.ledger
        whole.save(tmp_path / "run")
        assert "evaluate='all'" in again(load(tmp_path / "run"))
        with pytest.raises(ValueError, match="evaluate must be tenth or all, got"):
            trained(evaluate="half")

    def test_a_registered_model(self):
        how = {"nodes": 2, "epsilon": 1, "rounds": 2, "seed": 0, "classes": 2}
        run, again = (pa.train("softmax", data(), **how) for _ in range(2))
        found = [list(one.models[0].parameters()) for one in (run, again)]
        assert [p.shape for p in found[0]] == [(2, 5), (2,)]
        assert all(map(torch.equal, *found))


class TestClasses:
    """How many classes there are is declared, and never counted in private labels."""

    @pytest.mark.parametrize("label", [0, 1, 7])
    def test_labels_do_not_shape_what_is_released(self, label):
        inputs, targets = data()
        targets[3] = label
        given = "softmax", [(inputs, targets)]
        said = r"not counted in private labels, .* by classes=2"
        with pytest.raises(ValueError, match=said):
            pa.train(*given, epsilon=0.1, rounds=2)
        if label < 2:
            run = pa.train(*given, epsilon=0.1, rounds=2, classes=2)
            assert run.models[0][1].weight.shape == (2, 5)

    def test_more_may_be_declared_than_there_are(self, tmp_path):
        run = pa.train("softmax", [data()], epsilon=1, rounds=2, classes=5)
        assert run.models[0][1].weight.shape == (5, 5)
        run.save(tmp_path / "run")
        assert pa.verify(tmp_path / "run")
        assert "classes=5" in again(load(tmp_path / "run"))

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"classes": 1}, "classes must be >= 2, got 1"),
            ({"classes": 5}, "classes=5, but the model tells 2 apart"),
            ({"options": {"classes": 2}}, "leave classes out of options"),
        ],
    )
    def test_what_is_wrong_is_said(self, changes, said):
        with pytest.raises(ValueError, match=said):
            trained(**changes)


class TestOverlap:
    """A record that several nodes hold is paid for, or the condition is named."""

    SHARES = (data(), data())
    HOW: ClassVar = {"rounds": 5, "batch_size": 10, "seed": 0, "epsilon": 2}

    def test_the_budget_is_of_a_record_at_both_nodes(self, tmp_path):
        run = pa.train(
            net(), list(self.SHARES), **self.HOW, overlap=2, out=tmp_path / "a"
        )
        noise = run.result.noise_multiplier
        both = pa.epsilon(
            noise_multiplier=noise, steps=10, delta=1e-5, sampling_rate=1 / 8
        )
        found = run.certificate.epsilon(1e-5)
        assert found.upper == pytest.approx(both.upper, rel=2e-3)
        assert 1.98 < found.lower <= found.upper <= 2
        assert found.overlap == run.result.upper().overlap == run.ledger.overlap == 2
        checked = pa.verify(tmp_path / "a")
        assert checked
        assert checked.found.config.settings.overlap == 2
        assert checked.found.config.claim.overlap == 2
        assert checked.found.status == "consistent"
        assert checked.found.summary()["overlap"] == 2
        for text in (str(run), str(found), *checked.found.lines()[1:3]):
            assert "a record may be at 2 nodes" in text
        assert "overlap=2" in again(checked.found)

    def test_without_it_the_condition_is_named_everywhere(self, tmp_path):
        run = pa.train(net(), list(self.SHARES), **self.HOW)
        said = "a record is at one node only"
        held_twice = pa.Certificate.of(run.ledger, overlap=2).epsilon(1e-5)
        assert held_twice.lower > 2.4
        assert said in str(run)
        assert said in str(run.certificate.epsilon(1e-5))
        alone = pa.train(net(), [data()], **self.HOW)
        assert "node" not in str(alone.certificate.epsilon(1e-5))
        pytest.importorskip("matplotlib")
        run.save(tmp_path / "run")
        assert said in (tmp_path / "run" / "report.html").read_text()

    def test_a_ledger_that_hides_it_is_seen(self, tmp_path):
        pa.train(net(), list(self.SHARES), **self.HOW, overlap=2, out=tmp_path / "a")
        ledger = json.loads((tmp_path / "a" / "ledger.json").read_text())
        run = load(tmp_path / "a")
        del ledger["overlap"]
        told = "the number of nodes at which a record may be is 1, config.json says 2"
        less = dataclasses.replace(run, ledger=pa.Ledger.from_json(json.dumps(ledger)))
        found = ledger_by_settings(less, [], [])
        assert told in str(found)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"overlap": 3}, "must be at most the number of nodes .* 2, got 3"),
            ({"overlap": 0}, "overlap must be >= 1"),
            ({"overlap": 2, "sampling": "random-allocation"}, "leave overlap at 1"),
            (
                {"overlap": 2, "algorithm": "dp-butterfly", "observer": "any-node"},
                "leave overlap at 1",
            ),
        ],
    )
    def test_what_is_wrong_is_said(self, changes, said):
        with pytest.raises(ValueError, match=said):
            pa.train(net(), list(self.SHARES), **self.HOW, **changes)

    @pytest.mark.full
    def test_equal_records_are_told_to_whoever_runs_it_alone(self, tmp_path, caplog):
        """Not in a file, and nothing else is otherwise."""
        inputs, targets = data()
        other = inputs + 1, targets
        runs = {}
        for name, second in (("apart", other), ("both", (inputs[:7], targets[:7]))):
            second = tuple(torch.cat([part] * 12)[:80] for part in second)
            caplog.clear()
            run = pa.train(net(), [data(), second], **self.HOW, out=tmp_path / name)
            told = [one.getMessage() for one in caplog.records]
            assert ("7 records lie at more than 1 node" in "".join(told)) == (
                name == "both"
            )
            runs[name] = run
            for file in (tmp_path / name).iterdir():
                assert b"lie at more than" not in file.read_bytes()
        assert runs["apart"].ledger == runs["both"].ledger
        both = [runs[name].result.upper() for name in runs]
        assert both[0] == both[1]
        caplog.clear()
        pa.train(net(), list(self.SHARES), overlap=2, **self.HOW)
        assert "lie at more than" not in caplog.text

    def test_an_oracle_tells_of_them_too(self, caplog):
        how = {"noise_multiplier": 1.0, "clip_norm": 1.0, "batch_size": 4, "seed": 0}
        x, y = data()
        pa.oracle(net(), [(x, y), (x + 1, y)], **how)
        assert "lie at more than" not in caplog.text
        pa.oracle(net(), [(x, y), (x[:7], y[:7])], **how)
        assert "7 records lie at more than 1 node" in caplog.text


@pytest.mark.full
def test_a_delta_for_whole_records_is_warned_of(caplog):
    run = trained(delta=0.1, rounds=2)
    said = "delta 0.1 is no less than one over the number of records, 80"
    assert said in caplog.text
    assert said in run.result.remarks[0]
    caplog.clear()
    assert not trained(delta=1 / 81, rounds=2).result.remarks
    assert "delta" not in caplog.text


class Mine(nn.Module):
    """A linear layer behind code of the user's own, which looks at its values."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 2)

    def forward(self, x):
        return self.inner(x) if float(x.sum()) < 1e9 else 0 * self.inner(x)


class Traced(nn.Module):
    """Code of the user's own that is tensor operations alone, with dropout."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.inner, self.drop = nn.Linear(5, 2), nn.Dropout(0.2)

    def forward(self, x):
        return {"logits": self.inner(self.drop(x))}


class TestIndependence:
    """What is not proved of a user's code is named wherever the figure is."""

    def test_tensors_of_the_code_are_named_everywhere(self, tmp_path):
        model = Traced()
        model.register_buffer("mean", data(20)[0].mean(0))
        model.drop.forward = lambda x: x - model.mean
        given = {"epsilon": 1, "rounds": 2, "batch_size": 2}
        run = pa.train(model, [data(20)], **given, out=tmp_path / "run")
        said = "such as buffers, say nothing of a record"
        checked = pa.verify(tmp_path / "run")
        assert run.certificate.standing == "conditional"
        assert checked
        assert said in str(run)
        assert said in str(checked.found.summary()["assumes"])
        assert "must not be made of the records" in str(run.result.remarks)
        assert "of shape (5,)" in str(run.result.remarks)
        how = {"noise_multiplier": 1.0, "clip_norm": 1.0, "batch_size": 2}
        assert said in str(pa.oracle(model, [data(20)], **how).ledger.assumptions)

    SAID = "keeps nothing of a record outside its process"

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize(
        "changes",
        [
            {"model": Mine()},
            {"loss": lambda o, t: o[:, 0] * t if float(o.detach().sum()) < 1e9 else 0},
            {"transform": lambda record: record},
            {"shares": "lazy"},
        ],
        ids=["model", "loss", "transform", "data set"],
    )
    def test_own_code_is_conditional_everywhere(self, changes, tmp_path):
        given = {"model": net(), "shares": [data(20), data(20)], **changes}
        if given["shares"] == "lazy":
            both = [torch.utils.data.TensorDataset(*data(20)) for _ in range(2)]
            given["shares"] = [torch.utils.data.ConcatDataset([one]) for one in both]
        how = {"epsilon": 1, "rounds": 2, "batch_size": 2}
        run = pa.train(**given, **how, out=tmp_path / "run")
        found = run.certificate.epsilon(1e-5)
        assert found.standing == run.certificate.standing == "conditional"
        stored = json.loads((tmp_path / "run" / "result.json").read_text())
        assert stored["independence"] == "by isolation"
        assert {node["standing"] for node in stored["nodes"]} == {"conditional"}
        checked = pa.verify(tmp_path / "run")
        assert checked
        shown = checked.found
        for text in (str(run), str(found), *shown.lines()[2:3], str(stored["nodes"])):
            assert self.SAID in text
        assert self.SAID in str(shown.summary()["assumes"])
        assert shown.summary()["independence"] == "by isolation"
        assert checked.summary()["independence"] == "by isolation"
        assert shown.status == "unproven"
        pytest.importorskip("matplotlib")
        run.save(tmp_path / "page")
        page = html.unescape((tmp_path / "page" / "report.html").read_text())
        assert self.SAID in page
        assert "conditional" in page

    def test_what_is_known_is_certified(self):
        run = trained(rounds=2)
        assert run.certificate.standing == "certified"
        assert run.result.independence == "by construction"
        traced = pa.train(
            Traced(),
            [data()],
            loss=lambda o, t: nn.functional.cross_entropy(o, t),
            epsilon=4,
            rounds=2,
        )
        assert traced.certificate.standing == "certified"
        assert traced.result.independence == "by construction"
        free = pa.train(Mine(), [data(8)], "dsgt", rounds=1, batch_size=4)
        assert free.result.upper().assumes == ()

    def test_why_it_is_not_by_construction_is_said(self):
        run = pa.train(Mine(), [data(8)], epsilon=1, rounds=1, batch_size=2)
        (said,) = (one for one in run.result.remarks if "traced" in one)
        assert "looks at the values" in said
        assert "test_own_training.py, line" in said

    def test_dropout_is_a_function_of_the_key(self):
        how = {"epsilon": 4, "rounds": 3, "nodes": 2, "test": data()}
        first, again, other = (
            pa.train(Traced(), data(), seed=seed, **how) for seed in (0, 0, 1)
        )
        assert first.result.accuracy == again.result.accuracy
        weights = [run.models[0].inner.weight for run in (first, again, other)]
        assert isinstance(first.models[0], Traced)
        assert not torch.equal(weights[0], weights[2])

    def test_a_condition_that_was_taken_out_is_seen(self, tmp_path):
        how = {"epsilon": 1, "rounds": 2, "batch_size": 4}
        pa.train(Mine(), [data(20)], **how, out=tmp_path / "run")
        file = tmp_path / "run" / "ledger.json"
        ledger = json.loads(file.read_text())
        del ledger["assumes"]
        file.write_text(json.dumps(ledger))
        (tmp_path / "run" / "manifest.json").unlink()
        assert "what its account assumes is nothing" in str(pa.verify(tmp_path / "run"))

    def test_a_loop_of_ones_own(self):
        how = {"noise_multiplier": 1.0, "clip_norm": 1.0, "batch_size": 8}
        for model, standing in ((Mine(), "conditional"), (net(), "certified")):
            oracle = pa.oracle(model, [data(16)], **how)
            oracle.gradient(oracle.start)
            found = pa.Certificate.of(oracle.ledger).epsilon(1e-5)
            assert found.standing == standing


def test_without_noise_nothing_is_promised():
    run = trained(algorithm="dsgt", epsilon=None, rounds=2)
    assert run.result.status is None
    assert run.certificate.epsilon(1e-5).upper == float("inf")
    assert str(run).count("NOT PROTECTED") == 1


class TestFolder:
    def test_it_is_verified_and_read_without_privaudit(self, tmp_path):
        run = trained(test=data())
        run.save(tmp_path / "run")
        assert not pa.verify(tmp_path / "run").differences
        tensors = load_file(tmp_path / "run" / "model.safetensors")
        plain = net()
        plain.load_state_dict(
            {
                name.removeprefix("node2."): value
                for name, value in tensors.items()
                if name.startswith("node2.")
            }
        )
        for ours, theirs in zip(
            plain.parameters(), run.models[2].parameters(), strict=True
        ):
            assert torch.equal(ours, theirs)

    def test_frozen_parameters_and_buffers_are_in_the_file(self, tmp_path):
        module = net()
        module[0].requires_grad_(False)
        module.register_buffer("mean", torch.arange(3.0))
        run = pa.train(module, data(), nodes=2, epsilon=4, rounds=2)
        run.save(tmp_path / "run")
        tensors = load_file(tmp_path / "run" / "model.safetensors")
        plain = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
        plain.register_buffer("mean", torch.zeros(3))
        plain.load_state_dict(
            {
                name.partition(".")[2]: value
                for name, value in tensors.items()
                if name.startswith(("every.", "node1."))
            }
        )
        for name, value in run.models[1].state_dict().items():
            assert torch.equal(plain.state_dict()[name], value)

    def test_what_may_leave_the_party(self, tmp_path):
        trained().save(tmp_path / "public", public=True)
        assert sorted(p.name for p in (tmp_path / "public").iterdir()) == [
            "model.safetensors",
            *(f"node-{node}.safetensors" for node in range(4)),
        ]
        with pytest.raises(ValueError, match="nothing of this run may leave"):
            trained(seed=0).save(tmp_path / "study", public=True)

    def test_a_folder_that_holds_something_is_left(self, tmp_path):
        (tmp_path / "mine").write_text("mine")
        with pytest.raises(ValueError, match="not empty"):
            trained(rounds=1).save(tmp_path)

    def test_a_finished_run_is_not_taken_for_another(self, tmp_path):
        trained(rounds=1, out=tmp_path / "run")
        with pytest.raises(ValueError, match="holds a finished run"):
            pa.train(net(), data(), nodes=4, epsilon=4.0, out=tmp_path / "run")

    def test_ours_goes_with_the_run(self):
        run = trained(rounds=1)
        path = run._trained.folder.path
        assert path.is_dir()
        del run
        assert not path.exists()


@pytest.mark.full
def test_ranks_give_the_same(tmp_path):
    (tmp_path / "user.py").write_text(SCRIPT)
    alone = [sys.executable]
    ranks = [*alone, "-m", "torch.distributed.run", "--standalone"]
    for name, how in (("one", alone), ("two", [*ranks, "--nproc-per-node", "2"])):
        done = subprocess.run(
            [*how, tmp_path / "user.py", tmp_path / name, tmp_path / f"models-{name}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
    one, two = (torch.load(tmp_path / f"models-{name}.pt") for name in ("one", "two"))
    for ours, theirs in zip(one, two, strict=True):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm": "dsgt"}, "adds no noise"),
        ({"epsilon": None}, "give one of epsilon"),
        ({"noise_multiplier": 1.0}, "give one of epsilon"),
        ({"nodes": None}, "give nodes="),
        ({"algorithm": "dp-dsgg"}, "no algorithm 'dp-dsgg'"),
        ({"batch_size": 100}, "batch|batch"),
        ({"epsilon": -1.0}, "epsilon must be > 0"),
        ({"options": {"colour": 3}}, "no setting 'colour'"),
        ({"options": {"rounds": 3}}, "leave rounds out"),
        ({"options": {"transform": "a:b"}}, "leave transform out"),
        ({"loss": lambda o, t: o.sum() * o.mean()}, "records alone"),
        (
            {"algorithm": "adp2sgd", "seed": 1, "options": {"clock": "real"}},
            "clock=real",
        ),
        ({"algorithm": "deep-q"}, "no model or data of your own"),
        ({"algorithm": "dp-sgd"}, "4 nodes have data, .* give one data set"),
        ({"loss": "mse"}, "a function of outputs and targets, got str"),
        ({"test": (torch.zeros(3, 7), torch.zeros(3).long())}, r"test \(7,\)"),
        ({"test": (torch.zeros(3, 5) / 0, torch.zeros(3).long())}, "^test: the inputs"),
    ],
)
def test_what_is_wrong_is_said(changes, said):
    with pytest.raises(ValueError, match=said):
        trained(**changes)


def test_its_page_says_how_it_is_made_again(tmp_path):
    pytest.importorskip("matplotlib")
    more = {"graph": "ring", "options": {"weights": "metropolis"}, "step_size": 0.1}
    run = trained(**more, test=data(), seed=3)
    run.save(tmp_path / "run")
    page = html.unescape((tmp_path / "run" / "report.html").read_text())
    call = page[page.index("privaudit.train(") : page.index("</code></pre>")]
    inputs = {"model": net(), "shares": None, "privaudit": _Calls()}
    eval(call, inputs)
    settings = inputs["privaudit"].given.pop("settings")
    assert settings.delta == 1e-5
    assert settings.kept()["seed"] == 3
    assert settings.changes() == {
        **{"batch_size": 10.0, "clip_norm": 1.0, "step_size": 0.1},
        "schedule": "cosine",
    }
    assert inputs["privaudit"].given == {
        **{"epsilon": 4.0, "graph": "ring", "rounds": 6},
        "options": {"weights": "metropolis", "partition": "even"},
    }
    assert "On the test data that were given." in page
    assert "share is taken as given" in page
    assert "--set data=own" not in page


class _Calls:
    TrainingSettings = pa.TrainingSettings

    def train(self, model, shares, algorithm, **given):
        assert algorithm == "dp-dsgt"
        self.given = given


LARGE = """
import resource, sys
import numpy as np, torch
import privaudit as pa

with open(sys.argv[1], "wb") as file:
    file.truncate(4 << 30)  # reads as zeros, and takes no place
inputs = np.memmap(sys.argv[1], "float32", "r", shape=(4, 1 << 18, 1 << 10))
shares = [(rows, np.zeros(len(rows), int)) for rows in inputs]
pa.train(torch.nn.Linear(1 << 10, 2), shares, epsilon=1, rounds=30)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
"""


@pytest.mark.full
def test_four_gigabytes_are_trained_on_in_less_than_one(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LARGE, tmp_path / "inputs"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) < 10**9


def test_a_model_without_book_keeping_is_told():
    tied = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Linear(5, 2))
    tied[2].weight = tied[0].weight
    run = pa.train(tied, [data(20)], epsilon=1, rounds=1)
    assert "2.weight shares its values" in run.result.remarks[-1]
    assert run.result.gradients == "written out by torch.func: all"
    for one in (nn.PReLU(), nn.RMSNorm(4)):
        model = nn.Sequential(nn.Linear(5, 4), one, nn.Linear(4, 2))
        run = pa.train(model, [data(20)], epsilon=1, rounds=1)
        assert not any("book-keeping" in each for each in run.result.remarks)
    plain = pa.train(net(), [data(20)], epsilon=1, rounds=1)
    assert not any("book-keeping" in one for one in plain.result.remarks)


def test_each_layers_way_is_told_in_result_and_page(tmp_path):
    pytest.importorskip("matplotlib")

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(5))
            self.norm, self.wide = nn.LayerNorm(5), nn.Linear(5, 2)

        def forward(self, x):
            return self.wide(self.norm(x * self.scale))

    run = pa.train(Own(), [data(20)], epsilon=1, rounds=1)
    run.save(tmp_path / "run")
    told = "of a copy for each record: scale; written out: norm; ghost norms: wide"
    assert sorted(run.result.gradients.split("; ")) == sorted(told.split("; "))
    page = html.unescape((tmp_path / "run" / "report.html").read_text())
    assert f"Gradients of a record, by layer: {run.result.gradients}." in page
    own = "a record's gradient is its own by construction"
    assert f"A{own[1:]}." in page
    checked = pa.verify(tmp_path / "run")
    assert checked.summary()["independence"] == "by construction"
    for text in (
        checked.lines()[1],
        str(run.certificate),
        str(run.certificate.node(0)),
    ):
        assert own in text
