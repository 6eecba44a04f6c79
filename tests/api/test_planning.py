"""Plans from public numbers, budgets by node, and warnings before a training."""

import contextlib
import math

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

import privaudit as pa
from privaudit.accounting import gdp
from privaudit.api import watch
from privaudit.cli import main
from privaudit.report.verify import verify
from tests.tiers import examples
from trainers.runs.planning import Task, chosen

SIZES = [60, 40, 20]


def shares(sizes=SIZES):
    inputs = torch.randn(sum(sizes), 4, generator=torch.Generator().manual_seed(0))
    targets = (inputs.sum(1) > 0).long()
    return list(zip(inputs.split(sizes), targets.split(sizes), strict=True))


def net():
    torch.manual_seed(1)
    return nn.Linear(4, 2)


def told(caplog, **changes):
    """What is said before a training begins."""
    caplog.clear()
    given = {"epsilon": 2, "rounds": 20, "sampling_rate": 0.5, **changes}
    sizes = given.pop("sizes", SIZES)
    pa.train(given.pop("model", None) or net(), shares(sizes), **given)
    return [one.getMessage() for one in caplog.records]


class TestPlan:
    def test_every_node_spends_its_budget(self):
        for epsilon in (2, [2, 1, 0.5]):
            plan = pa.plan(10, SIZES, epsilon)
            budgets = epsilon if isinstance(epsilon, list) else [epsilon] * 3
            for own, spent in zip(budgets, plan.certified, strict=True):
                assert 0.99 * own < spent <= own

    def test_what_is_planned_is_what_is_trained(self, tmp_path):
        plan = pa.plan(net(), shares(), [2, 2, 1], rounds=10)
        plan.save(tmp_path / "plan.toml")
        run = pa.train(net(), shares(), plan=str(tmp_path / "plan.toml"))
        assert tuple(node.epsilon for node in run.result.nodes) == plan.certified
        assert run.result.noise_multiplier == plan.noise_multiplier
        assert plan.seconds > 0

    def test_without_one_a_training_is_planned_alike(self):
        plan = pa.plan(net(), shares(), 2, rounds=10)
        ledgers = [
            pa.train(net(), shares(), seed=0, **how).ledger
            for how in ({"plan": plan}, {"epsilon": 2, "rounds": 10})
        ]
        assert ledgers[0] == ledgers[1]

    def test_what_is_given_stays(self):
        plan = pa.plan(10, SIZES, 2, batch_size=8, step_size=0.3, schedule="constant")
        kept = ("batch_size", "step_size", "schedule")
        assert [plan.settings[name] for name in kept] == [8, 0.3, "constant"]
        assert "sampling_rate" not in plan.settings

    def test_an_ordinary_node_is_told_where_nodes_differ(self):
        plan = pa.plan(10, [20, 200, 220], 2, batch_size=8, rounds=5)
        middle = sorted(plan.certified)[1]
        assert middle < 1 < 1.98 < max(plan.certified)
        (line,) = [one for one in plan.lines() if "ordinary" in one]
        assert 0 <= float(line.split()[-1]) - middle < 1e-3
        assert "ordinary" not in str(pa.plan(10, [20, 200, 220], 2, rounds=5))

    def test_it_never_looks_at_records(self):
        def other(rows):
            return [(1e6 * x + 7, 1 - y) for x, y in rows]

        plans = [pa.plan(net(), data, 2) for data in (shares(), other(shares()))]
        first, second = (
            {name: x for name, x in plan.summary().items() if name != "seconds"}
            for plan in plans
        )
        assert first == second

    def test_a_file_gives_it_back_and_is_a_recipe(self, tmp_path, capsys):
        file = tmp_path / "plan.toml"
        for epsilon in (2.0, (2.0, 1.0, 1.0)):
            plan = pa.plan(10, SIZES, epsilon, rounds=7)
            file.unlink(missing_ok=True)
            plan.save(file)
            assert pa.TrainingPlan.read(file) == plan
        for node, (x, y) in enumerate(shares()):
            np.savez(tmp_path / f"node-{node}.npz", inputs=x, targets=y)
        file.rename(tmp_path.parent / "plan.toml")
        given = ["--data", str(tmp_path), "--model", "softmax", "--classes", "2"]
        out = tmp_path.parent / "run"
        what = str(tmp_path.parent / "plan.toml")
        assert main(["train", what]) == 2  # digits, which it is not for
        assert "the plan is for nodes of [60, 40, 20] rec" in capsys.readouterr().err
        assert main(["train", what, *given, "--out", str(out), "--json"]) == 0
        assert not verify(out, settings=True).differences

    def test_public_data_choose_the_step(self):
        like = shares([200])[0]
        steps = {
            pa.plan(net(), shares(), 8, rounds=10, like=data).settings["step_size"]
            for data in (like, (like[0] * 0, like[1]))
        }
        first = pa.plan(net(), shares(), 8, rounds=10).settings["step_size"]
        factors = [step / first for step in steps]
        assert all(min(abs(f - k) for k in (0.3, 1, 3)) < 0.1 for f in factors)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ((10, SIZES, -1), "epsilon"),
            ((10, SIZES, [1, 2]), "2 budgets are given for 3 nodes"),
            ((10, [5, 0], 1), "each node has one record or more"),
            ((10, shares(), 1), "give the number of records"),
            (("softmax", SIZES, 1), "how many parameters softmax has"),
        ],
    )
    def test_what_is_wrong_is_said(self, arguments, said):
        with pytest.raises(ValueError, match=said):
            pa.plan(*arguments)

    def test_of_other_sizes_it_is_refused(self):
        plan = pa.plan(10, [60, 40, 30], 2)
        with pytest.raises(ValueError, match=r"nodes of \[60, 40, 30\] records"):
            pa.train(net(), shares(), plan=plan)

    @examples(20)
    @given(
        st.lists(st.integers(2, 10**5), min_size=1, max_size=20),
        st.integers(1, 10**7),
        st.floats(0.05, 30),
        st.integers(1, 2000),
    )
    def test_settings_are_in_their_ranges(self, sizes, parameters, epsilon, rounds):
        task = Task(
            sizes=tuple(sizes), parameters=parameters, epsilon=(epsilon,), delta=1e-5
        )
        found = chosen(task, {"rounds": rounds})
        assert 0 < found["sampling_rate"] <= 1
        assert min(sizes) * found["sampling_rate"] >= 0.9
        assert 0 < found["step_size"] < math.inf

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        ("algorithm", "rounds"),
        [("dp-butterfly", 450), ("dp-chain", 1200), ("adp2sgd", 1200)],
    )
    def test_a_step_of_many_rounds_is_as_long(self, algorithm, rounds):
        """Of eight nodes: exchanges of the logarithm, of all, and one node a round."""
        graph = algorithm.removeprefix("dp-") if "dp-" in algorithm else None
        plan = pa.plan(650, [170] * 8, 2, algorithm=algorithm, graph=graph)
        same = pa.plan(650, [170] * 8, 2)
        assert plan.settings["rounds"] == rounds
        for name in ("step_size", "sampling_rate"):
            assert plan.settings[name] == same.settings[name]

    def test_options_of_an_algorithm_are_its_own_defaults(self):
        """Adam on noisy gradients learns nothing."""
        plan = pa.plan(net(), shares(), 8, algorithm="dp-dinno", rounds=20)
        assert plan.settings["optimiser"] == "sgd"
        run = pa.train(net(), shares(), "dp-dinno", epsilon=8, rounds=20, seed=0)
        assert run.config.training.options["optimiser"] == "sgd"

    def test_signal_to_noise_by_hand(self):
        """With all in each batch T n C over z C (T N d)^(1/2), z = T^(1/2) / mu."""
        task = Task(sizes=(30, 70), parameters=8, epsilon=(1.0,), delta=1e-5)
        mu = float(gdp.mu(1.0, 1e-5))
        assert task.signal_to_noise(9, 1.0) == pytest.approx(mu * 100 / 4)
        plan = pa.plan(8, (30, 70), 1.0, rounds=9, sampling_rate=1.0)
        assert plan.signal_to_noise == pytest.approx(mu * 100 / 4, rel=1e-3)


class TestBudgets:
    def test_each_node_has_its_own_and_evidence_agrees(self, tmp_path):
        run = pa.train(net(), shares(), epsilon=[2, 1, 0.5], rounds=5)
        spent = [node.epsilon for node in run.result.nodes]
        assert spent == pytest.approx([2, 1, 0.5], rel=0.01)
        assert run.result.status == "consistent"
        run.save(tmp_path / "run")
        assert not verify(tmp_path / "run", settings=True).differences

    def test_a_node_above_its_own_is_no_consistent_claim(self, tmp_path):
        run = pa.train(net(), shares(), epsilon=[2, 1, 0.5], rounds=5)
        run.save(tmp_path / "run")
        file = tmp_path / "run" / "config.json"
        file.write_text(file.read_text().replace("0.5", "0.4"))
        (tmp_path / "run" / "manifest.json").unlink()
        found = verify(tmp_path / "run", settings=True).differences
        assert any("verdict" in one.what or "status" in one.what for one in found)

    @pytest.mark.full
    def test_noise_by_node_spends_what_one_batch_size_leaves(self):
        least = {}
        for noise in ("one", "per-node"):
            run = pa.train(
                net(), shares(), epsilon=2, rounds=5, batch_size=8, noise=noise
            )
            least[noise] = min(node.epsilon for node in run.result.nodes)
        assert least["one"] < 1.5
        assert least["per-node"] > 1.98

    @pytest.mark.full
    def test_a_run_goes_on_to_the_same_bits(self, tmp_path):
        """Stopped in the middle, as by a kill, and called again."""

        def call(out, **more):
            return pa.train(
                net(), shares(), epsilon=[2, 1, 1], rounds=8, seed=3, out=out, **more
            )

        class Stopped(Exception):
            pass

        class Early(type(watch.SILENT)):
            def training(self, algorithm, claim):
                def tell(now):
                    if now.done == 5:
                        raise Stopped

                return contextlib.nullcontext(tell)

        whole = call(tmp_path / "whole")
        with pytest.raises(Stopped):
            call(tmp_path / "parts", watch=Early())
        parts = call(tmp_path / "parts")
        for one, other in zip(whole.models, parts.models, strict=True):
            assert torch.equal(one.weight, other.weight)
        assert whole.ledger == parts.ledger


class TestWarnings:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"delta": 0.01}, "delta 0.01 is no less than one over"),
            ({"sampling_rate": None, "batch_size": 15}, "of its budget 2"),
            ({"epsilon": 20}, "epsilon 20 promises little"),
            ({"sampling_rate": 0.01}, "a record is drawn 0.2 times"),
            ({"sampling_rate": 0.04}, "a batch of node 2 has 0.8 records"),
            ({"epsilon": 0.05}, "noise drowns the signal"),
            ({"step_size": 1e-4}, "hardly moves"),
            ({"step_size": 1e3}, "is thrown about"),
            ({"step_size": 100, "rounds": 10}, "is thrown about"),
            ({"seed": 0}, "with a seed this is a study"),
            ({"model": nn.Sequential(net(), nn.Softmax(1))}, "ends in a softmax"),
        ],
    )
    def test_a_mistake_is_told_in_a_line(self, caplog, changes, said):
        lines = told(caplog, **changes)
        assert any(said in line for line in lines)
        assert not any("\n" in line for line in lines)

    def test_records_at_two_nodes_are_told(self, caplog):
        (share,) = shares([40])
        pa.train(net(), [share, share], epsilon=2, rounds=2)
        assert "40 records lie at more than 1 node" in caplog.text

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("columns", "factor", "said"),
        [
            (0, math.nan, "60 records hold NaN"),
            (0, 1e3, "differ in spread by a factor of 9"),
            (slice(None), 90.0, "the inputs are about "),
        ],
    )
    def test_what_a_table_holds_is_told(self, caplog, columns, factor, said):
        data = shares()
        for x, _ in data if factor < math.inf else data[:1]:
            x[:, columns] *= factor
        pa.train(net(), data, epsilon=2, rounds=20, sampling_rate=0.5)
        assert said in caplog.text

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"labels": 1}, "labels are not among the model's classes"),
            ({"test": True}, "60 test records are at nodes too"),
            ({"clip_norm": 500.0}, "times as long as a usual gradient at the start"),
            ({"scaled": True}, "mean 0 and deviation 1 over these very records"),
            ({"told": True}, "column 1 of the inputs, counted from 0, is the target"),
            ({"same": True}, "all labels are the same"),
            ({"rare": True}, "80.0% of the labels are the same"),
            ({"again": True}, "120 records equal another one of their node"),
        ],
    )
    def test_what_only_records_show_is_told_to_their_owner(self, caplog, given, said):
        data = [(x, y + given.pop("labels", 0)) for x, y in shares()[:1]] + shares()[1:]
        if given.pop("again", False):
            data = [(x.repeat(2, 1), y.repeat(2)) for x, y in data]
        test = data[0] if given.pop("test", False) else None
        if given.pop("told", False):
            data = [
                (x.index_copy(1, torch.tensor([1]), y[:, None] * 2.0), y)
                for x, y in data
            ]
        if given.pop("rare", False):
            data = [(x, (torch.arange(len(x)) % 5 == 0).long()) for x, _ in data]
        if given.pop("same", False):
            data = [(x, 0 * y) for x, y in data]
        if given.pop("scaled", False):
            x, y = data[2]
            data[2] = (x - x.mean(0)) / x.std(0), y
        more = {"sampling_rate": 0.5, "test": test, **given}
        run = pa.train(net(), data, epsilon=2, rounds=20, **more)
        (line,) = (one for one in caplog.messages if said in one)
        assert "Keep this to yourself" in line
        assert said not in str(run)

    @pytest.mark.parametrize(
        ("branch", "head", "still"),
        [
            (nn.Identity(), 0.0, ""),  # what begins at 0 lets gradients through later
            (nn.Dropout(1.0), 1.0, "no record moves 1.weight in the first steps"),
            (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), 0.0, "0.0.bias, 1.weight in"),
        ],
    )
    def test_what_no_record_moves_is_told(self, caplog, branch, head, still):
        model = nn.Sequential(branch, nn.Linear(4, 2))
        for parameter in (*branch.parameters(), *model[1].parameters()):
            parameter.data.mul_(head)
        pa.train(model, shares(), epsilon=2, rounds=2, sampling_rate=0.5)
        assert still in caplog.text
        assert ("no record moves" in caplog.text) == bool(still)

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"lr": 0.1}, "did you mean step_size"),
            ({"max_grad_norm": 1.0}, "did you mean clip_norm"),
            ({"algorithm": "dpsgd"}, "did you mean dp-sgd"),
            ({"graph": "rign"}, "did you mean ring"),
            ({"algorithm": "dp-sgd"}, "give one data set"),
        ],
    )
    def test_what_others_call_it_is_known(self, given, said):
        with pytest.raises((TypeError, ValueError), match=said):
            pa.train(net(), shares(), epsilon=2, **given)

    def test_targets_are_classes(self):
        x, y = shares([40])[0]
        pa.train(net(), [(x, y == 1)], epsilon=2, rounds=2)  # yes and no
        with pytest.raises(
            ValueError, match=r"a class is one whole .* targets\[:, 0\]"
        ):
            pa.train(net(), [(x, y[:, None])], epsilon=2)
        with pytest.raises(ValueError, match="one output, of which cross entropy is 0"):
            pa.train(nn.Linear(4, 1), [(x, y)], epsilon=2)
        with pytest.raises(ValueError, match="which is for tokens: give floats"):
            pa.train(net(), [(x.byte(), y)], epsilon=2)
        for model, said in ((net(), "are they the inputs"), ("softmax", "this order")):
            with pytest.raises(ValueError, match=rf"shape \(4,\).*{said}"):
                pa.train(model, [(y, x)], epsilon=2, classes=2)
        with pytest.raises(ValueError, match=r"as records are held: give model\.float"):
            pa.train(net().double(), [(x, y)], epsilon=2)
        each = nn.MSELoss(reduction="none")
        with pytest.raises(ValueError, match=r"shape \(1,\), its target has \(\)"):
            pa.train(nn.Linear(4, 1), [(x, x[:, 0])], loss=each, epsilon=2)
        frame = pandas.DataFrame({"age": [1.0], "ill": [0]})
        with pytest.raises(ValueError, match=r"frame.drop\(columns='ill'\)"):
            pa.train(net(), [frame], epsilon=2)
        with pytest.raises(ValueError, match="floats may come of a missing label"):
            pa.train(net(), [(x, y.where(y == 1, torch.nan))], epsilon=2)
        with pytest.raises(ValueError, match=r"\(<U3\): .*astype\(int\)"):
            pa.train(net(), [(x, np.full(40, "yes"))], epsilon=2)

    def test_data_by_name(self):
        x, y = shares([40])[0]
        with pytest.raises(ValueError, match=r"\(data\['a'\], data\['b'\]\) is one"):
            pa.train(net(), [{"a": x, "b": y}], epsilon=2)
        with pytest.raises(ValueError, match=r"list\(data.values\(\)\) .*one a node"):
            pa.train(net(), {"north": (x, y), "south": (x, y)}, epsilon=2)

    def test_text_in_a_table_is_named(self):
        frame = pandas.DataFrame({"age": [1.0, 2.0], "name": ["a", "b"]})
        with pytest.raises(ValueError, match=r"no number, in columns name: .*astype"):
            pa.train(nn.Linear(2, 2), (frame, frame.age), nodes=1, epsilon=2)
        with pytest.raises(ValueError, match="no number, in column name"):
            pa.train(
                nn.Linear(1, 2), (frame[["age"]], frame["name"]), nodes=1, epsilon=2
            )
        with pytest.raises(ValueError, match=r"got str \(pandas.read_csv"):
            pa.train(nn.Linear(1, 2), "a.csv", nodes=1, epsilon=2)
        with pytest.raises(ValueError, match="epsilon must be a number, a list or"):
            pa.train(nn.Linear(4, 2), shares(), epsilon="2")

    def test_a_csv_is_no_data_set_of_nodes(self, capsys):
        task = ["--model", "softmax", "--data", "a.csv"]
        for what in (["train", "a.csv"], ["train", "dp-dsgt", *task], ["plan", *task]):
            assert main(what) == 2
            assert "give --data FILE.toml" in capsys.readouterr().err

    def test_what_is_right_is_silent(self, caplog):
        assert told(caplog, sizes=[400, 300]) == []

    @pytest.mark.full
    def test_the_setting_that_is_named_spends_the_budget(self, caplog):
        lines = told(caplog, sampling_rate=None, batch_size=10)
        (line,) = [one for one in lines if "of its budget" in one]
        rate = float(line.partition("sampling_rate=")[2].partition(",")[0])
        assert not any(
            "of its budget" in one for one in told(caplog, sampling_rate=rate)
        )


class TestHome:
    def test_a_file_a_node_loads_strictly(self, tmp_path):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.one = nn.Linear(4, 4, bias=False)
                self.two = nn.Linear(4, 4, bias=False)
                self.two.weight = self.one.weight
                self.out = nn.Linear(4, 2)
                self.out.bias.requires_grad_(False)
                self.register_buffer("scale", torch.tensor(2.0))

            def forward(self, x):
                return self.out(torch.tanh(self.two(self.one(x))) * self.scale)

        run = pa.train(Tied(), shares(), epsilon=2, rounds=3)
        run.save(tmp_path / "run")
        x = shares()[0][0]
        for node, model in enumerate(run.models):
            assert not model.training
            fresh = Tied()
            fresh.load_state_dict(load_file(tmp_path / f"run/node-{node}.safetensors"))
            assert torch.equal(fresh(x), model(x))
        assert not verify(tmp_path / "run").differences
        (tmp_path / "run/node-1.safetensors").write_bytes(b"another's")
        assert verify(tmp_path / "run").differences

    def test_only_what_may_leave_is_public(self, tmp_path):
        run = pa.train(net(), shares(), epsilon=2, rounds=3)
        run.save(tmp_path / "run", public=True)
        names = {file.name for file in (tmp_path / "run").iterdir()}
        assert {f"node-{node}.safetensors" for node in range(3)} <= names
