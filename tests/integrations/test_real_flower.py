"""Private Flower apps, where Flower is installed: `make integrations`."""

import difflib
import json
import math
import os
import pathlib
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import GaussianPrivacyEvent, PrivacyConfig
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.privacy_accounting import NeighboringRelation, SamplingMethod
from flwr.supercore.task_identity import TaskIdentity

import privaudit as pa
from privaudit.api.flower import ExactClipping, PrivateClient
from privaudit.integrations.flower import FLOATS, Accountant
from trainers.numerics.randomness import Streams

pytestmark = pytest.mark.filterwarnings("ignore")  # Flower's own
HOW = {"noise_multiplier": 1.0, "clip_norm": 1.0, "batch_size": 16}


def records(node):
    generator = torch.Generator().manual_seed(node)
    inputs = torch.randn(80, 5, generator=generator)
    return inputs, (inputs.sum(1) > 0).long()


@pytest.fixture(autouse=True, scope="module")
def task():
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 7, 1


class App:
    """A client app as of Flower's quickstart, made private."""

    def __init__(self, folder, node, train_by=None, **more):
        self.private = PrivateClient(folder, **{**HOW, **more})
        self.app = ClientApp(mods=[self.private])
        self.context = Context(7, node, {}, RecordDict(), {})
        self.node, train_by = node, train_by or App.train_by

        @self.app.train()
        def train(message, context):
            model = torch.nn.Linear(5, 2)
            model.load_state_dict(message.content["arrays"].to_torch_state_dict())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
            train_by(self.private, model, optimizer, Records(node))
            loss = MetricRecord({"train_loss": 0.3, "num-examples": 80})
            arrays = ArrayRecord(model.state_dict())
            return Message(RecordDict({"arrays": arrays, "m": loss}), reply_to=message)

    @staticmethod
    def train_by(private, model, optimizer, records):
        for _ in private.steps(model, records):
            optimizer.step()

    def round(self, model):
        content = RecordDict({"arrays": ArrayRecord(model.state_dict())})
        message = Message(content, dst_node_id=self.node, message_type="train")
        return self.app(message, self.context)


class Records(torch.utils.data.TensorDataset):
    def __init__(self, node):
        super().__init__(*records(node))


@pytest.fixture(scope="module")
def clients(tmp_path_factory, task):
    """Three clients, each trained for two rounds."""
    folder = tmp_path_factory.mktemp("clients")
    every = [App(folder / f"{node}", node, epsilon=20.0) for node in range(3)]
    model = torch.nn.Linear(5, 2)
    replies = [[client.round(model) for client in every] for _ in range(2)]
    return folder, every, replies


class TestPrivateClient:
    def test_nothing_leaves_but_the_model_and_what_is_named(self, clients):
        for replies in clients[2]:
            for reply in replies:
                assert dict(reply.content["m"]) == {"num-examples": 80}
                assert {*reply.content["arrays"]} == {"weight", "bias"}

    def test_its_ledger_grows_in_its_context(self, clients):
        for client in clients[1]:
            state = client.context.state["privaudit"]["oracle"]
            (ledger,) = json.loads(state)["ledger"]
            (entry,) = json.loads(ledger)["nodes"][0]
            assert entry["count"] == 2 * math.ceil(80 / 16)

    def test_one_statement_of_all_clients(self, clients):
        folders = [clients[0] / f"{node}/7-{node}/evidence" for node in range(3)]
        joint = pa.join(folders)
        step = pa.Release.of_sum(
            norm_bound=1.0,
            noise_multiplier=1.0,
            sampling=pa.PoissonSampling(16 / 80),
        )
        alone = pa.epsilon(ledger=pa.Ledger.of(step, 10), delta=1e-5).upper
        assert joint.upper.epsilon == pytest.approx(alone, rel=1e-9)
        assert joint.upper.standing == "conditional"
        assert joint.status == "unproven"  # for what it assumes
        assert "by PrivateClient.steps alone" in joint.page()
        assert pa.join(folders, overlap=2).upper.epsilon > alone
        with pytest.raises(ValueError, match="is of another training than"):
            pa.join([*folders[:2], _other_run(clients)])

    @pytest.mark.parametrize(
        "form",
        [
            records(0),
            list(zip(*records(0), strict=True)),
            [(x, int(y)) for x, y in zip(*records(0), strict=True)],
            torch.utils.data.DataLoader(Records(0), batch_size=7, shuffle=True),
        ],
    )
    def test_an_epoch_is_of_all_records(self, tmp_path, form):
        app = App(tmp_path, 0)
        app.private._context = app.context
        steps = list(app.private.steps(torch.nn.Linear(5, 2), form, 2))
        assert steps == list(range(2 * 80 // 16))

    def test_killed_before_its_context_was_kept(self, clients, tmp_path):
        """What it released is known by the journal, and not released again."""
        app = App(tmp_path, 0)
        app.round(torch.nn.Linear(5, 2))
        app.context = Context(7, 0, {}, RecordDict(), {})
        app.round(torch.nn.Linear(5, 2))
        ledger = pa.Ledger.from_json(
            (tmp_path / "7-0/evidence/ledger.json").read_text()
        )
        assert sum(one.count for one in ledger.nodes[0]) == 10

    def test_begun_again_by_another_node_id(self, tmp_path):
        """Each had a budget: of two, 3.883 was stated for 4.987."""
        app = App(tmp_path, 11, epsilon=5.0)
        app.round(torch.nn.Linear(5, 2))
        app.context = Context(7, 12, {}, RecordDict(), {})
        app.round(torch.nn.Linear(5, 2))
        app.context = Context(7, 13, {}, RecordDict(), {})
        with pytest.raises(pa.BudgetExceeded):
            app.round(torch.nn.Linear(5, 2))
        (evidence,) = tmp_path.glob("*/evidence")
        (entry,) = pa.ledger_from(evidence / "ledger.json").nodes[0]
        assert entry.count == 10

    def test_two_budgets_of_one_run(self, tmp_path):
        """As versions before made them."""
        for node in (1, 2):
            (tmp_path / f"7-{node}").mkdir()
        with pytest.raises(ValueError, match=r"has 7-1 and 7-2, two budgets in one"):
            App(tmp_path, 3).round(torch.nn.Linear(5, 2))

    def test_folders_of_clients_that_share_a_machine(self, tmp_path):
        for node in (1, 2):
            app = App(lambda context: tmp_path / f"{context.node_id}", node)
            app.round(torch.nn.Linear(5, 2))
            assert (tmp_path / f"{node}/7-{node}/evidence").is_dir()

    @pytest.mark.parametrize(
        "more",
        [
            {"raw": ArrayRecord({"x": Array(records(0)[0].numpy())})},
            {"raw": ArrayRecord({"weight": Array(np.zeros((2, 5)))})},  # a second one
            {"arrays": ArrayRecord({"weight": Array(records(0)[0].numpy())})},
            {"arrays": ArrayRecord({"Miller, 54": Array(np.zeros((2, 5)))})},
        ],
    )
    def test_arrays_are_one_model(self, tmp_path, more):
        app = App(tmp_path, 0)

        def reply(message, context):
            app.private._context = context
            list(app.private.steps(torch.nn.Linear(5, 2), Records(0)))
            arrays = ArrayRecord(torch.nn.Linear(5, 2).state_dict())
            return Message(RecordDict({"arrays": arrays, **more}), reply_to=message)

        content = RecordDict({"arrays": ArrayRecord()})
        message = Message(content, dst_node_id=0, message_type="train")
        with pytest.raises(ValueError, match="send one, of the model that steps"):
            app.private(message, app.context, reply)

    def test_a_client_of_arrays_without_names(self, tmp_path):
        content = RecordDict({"fitins.parameters": ArrayRecord()})
        message = Message(content, dst_node_id=0, message_type="train")
        with pytest.raises(ValueError, match=r"write the client app by @app\.train"):
            PrivateClient(tmp_path, **HOW)(message, None, None)

    def test_a_key_that_was_lost(self, tmp_path):
        app = App(tmp_path, 0)
        app.round(torch.nn.Linear(5, 2))
        for file in (tmp_path / "7-0").glob("key*"):
            file.unlink()
        with pytest.raises(ValueError, match="the key of this state was lost"):
            app.round(torch.nn.Linear(5, 2))

    def test_other_terms(self, tmp_path):
        """The refusal names no argument that a client does not have."""
        App(tmp_path, 0).round(torch.nn.Linear(5, 2))
        with pytest.raises(ValueError, match="begin again with a key elsewhere"):
            App(tmp_path, 0, noise_multiplier=5.0).round(torch.nn.Linear(5, 2))

    def test_the_budget_stops(self, tmp_path):
        app = App(tmp_path, 0, epsilon=6.0)
        rounds = (app.round(torch.nn.Linear(5, 2)) for _ in range(20))
        with pytest.raises(pa.BudgetExceeded):
            list(rounds)
        assert pa.verify(tmp_path / "7-0/evidence").found.upper.epsilon <= 6.0

    def test_a_model_that_was_trained_otherwise(self, tmp_path):
        def begun(private, model, optimizer, records):
            model.weight.data[:] = records.tensors[0][:2]
            unused.append(private.steps(model, records))

        unused = []
        with pytest.raises(ValueError, match="was not trained by"):
            App(tmp_path, 0, begun).round(torch.nn.Linear(5, 2))
        with pytest.raises(ValueError, match="called by a client app"):
            next(unused[0])  # no message is answered

    @pytest.mark.parametrize("epochs", [0, -1, 0.5])
    def test_epochs_are_whole(self, tmp_path, epochs):
        def none(private, model, optimizer, records):
            list(private.steps(model, records, epochs))

        with pytest.raises(ValueError, match="epochs must be a whole number from 1"):
            App(tmp_path, 0, none).round(torch.nn.Linear(5, 2))

    def test_evidence_is_there_before_the_reply(self, tmp_path):
        """Steps that are left open cannot go on, or hide what they released."""
        left = []

        def two(private, model, optimizer, records):
            left.append(private.steps(model, records))
            for _ in range(2):
                next(left[-1])
                optimizer.step()

        app = App(tmp_path, 0, two)
        for number in (1, 2):
            app.round(torch.nn.Linear(5, 2))
            ledger = pa.Ledger.from_json(
                (tmp_path / "7-0/evidence/ledger.json").read_text()
            )
            assert ledger.nodes[0][0].count == 2 * number
            with pytest.raises(ValueError, match="was closed"):
                next(left[-1])

    def test_outside_of_an_app(self, tmp_path):
        with pytest.raises(ValueError, match="called by a client app"):
            next(PrivateClient(tmp_path, **HOW).steps(torch.nn.Linear(5, 2), None))


def _other_run(clients):
    app = App(clients[0], 9, epsilon=20.0)
    app.context = Context(8, 9, {}, RecordDict(), {})
    app.round(torch.nn.Linear(5, 2))
    return clients[0] / "8-9/evidence"


class TestExactClipping:
    def strategy(self, noise=1.0, clip=1.0, most=None):
        config = PrivacyConfig(
            target_delta=1e-5,
            population_size=4,
            neighboring_relation=NeighboringRelation("add-or-remove-one"),
            sampling_method=SamplingMethod("no-amplification"),
            max_epsilon=most,
        )
        accountant = Accountant(config)
        return ExactClipping(FedAvg(), noise, clip, 4, accountant=accountant)

    def aggregated(self, strategy, start, updates, number=1):
        replies = [_reply(start + update) for update in updates]
        return self.after(strategy, start, replies, number)

    def after(self, strategy, start, replies, number=1):
        strategy.current_arrays = ArrayRecord({"w": _array(start)})
        strategy._pending_events[number] = GaussianPrivacyEvent(
            strategy.noise_multiplier, 4, 4
        )
        arrays, metrics = strategy.aggregate_train(number, replies)
        assert metrics is None
        return torch.as_tensor(arrays["w"].numpy())

    def test_noise_and_clipping(self):
        """A mean of clipped updates; 40,000 deviations of noise over four clients."""
        strategy, start = self.strategy(noise=2.0, clip=3.0), torch.zeros(40_000)
        updates = [torch.full((40_000,), float(i)) for i in range(4)]
        found = self.aggregated(strategy, start, updates) * 4
        clipped = 3 * 3.0 / math.sqrt(40_000)
        assert float(found.mean()) == pytest.approx(clipped, abs=5 * 6 / 200)
        assert float(found.std()) == pytest.approx(6.0, rel=0.03)

    def test_a_client_moves_the_sum_by_the_clipping_norm_at_most(self, monkeypatch):
        strategy, start = self.strategy(noise=1.0), torch.zeros(300)
        sums = []
        monkeypatch.setattr(
            Streams, "noisy", lambda _, total, *__: sums.append(total) or total
        )
        others = [torch.randn(300) for _ in range(3)]
        for one in (torch.zeros(300), 1e6 * torch.randn(300), torch.full((300,), 1e-9)):
            self.aggregated(strategy, start, [*others, one], number=len(sums) + 1)
        for one in sums[1:]:
            assert float((one - sums[0]).norm()) <= 1.0

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_what_is_not_finite_counts_nothing(self, bad):
        strategy, start = self.strategy(noise=1e-6), torch.zeros(3)
        updates = [*[torch.zeros(3)] * 3, torch.tensor([bad, 0.0, 0.0])]
        assert self.aggregated(strategy, start, updates).abs().max() < 1e-4

    @pytest.mark.parametrize(
        "bad",
        [
            {},
            {name: ArrayRecord([np.zeros(3)]) for name in ("one", "two")},
            {"arrays": ArrayRecord({"w": Array(np.array(["a", "b", "c"]))})},
            {
                "arrays": ArrayRecord(
                    {"w": Array("float32", (3,), "numpy.ndarray", b"")}
                )
            },
        ],
    )
    def test_a_reply_that_cannot_be_read_counts_nothing(self, bad, caplog):
        """As its weight does not: whether a round ends is not a client's to say."""
        strategy, start = self.strategy(noise=1e-6), torch.zeros(3)
        replies = [*[_reply(start)] * 3, _reply(start, **{"arrays": None, **bad})]
        assert self.after(strategy, start, replies).abs().max() < 1e-4
        assert "the reply of node 1 counts as no update" in caplog.text

    def test_weights_that_clients_state_are_not_used(self):
        strategy, start = self.strategy(noise=1e-6, clip=9.0), torch.zeros(3)
        heavy = _reply(start + 4, metrics=MetricRecord({"num-examples": 500}))
        found = self.after(strategy, start, [*[_reply(start)] * 3, heavy])
        assert found.tolist() == pytest.approx([1.0] * 3, abs=1e-3)

    def test_started_again_it_has_other_noise(self):
        """Of a round of the same number: equal noise tells equal updates."""
        strategy, start = self.strategy(), torch.zeros(5)
        updates = [torch.ones(5)] * 4
        one, other = (self.aggregated(strategy, start, updates) for _ in range(2))
        assert (one != other).all()

    def test_nobody_is_asked_for_an_evaluation(self):
        """And what comes unasked is dropped: no account has it."""
        strategy = self.strategy()
        asked = strategy.configure_evaluate(1, ArrayRecord(), ConfigRecord(), Grid())
        assert list(asked) == []
        metrics = RecordDict({"metrics": MetricRecord({"num-examples": 5, "acc": 0.5})})
        reply = Message(metrics, dst_node_id=1, message_type="evaluate")
        assert strategy.aggregate_evaluate(1, [reply] * 4) is None

    def test_its_ledger_assumes_no_floating_point(self):
        strategy = self.strategy()
        self.aggregated(strategy, torch.zeros(3), [torch.ones(3)] * 4)
        ledger = pa.ledger_from(strategy)
        assert FLOATS not in ledger.assumptions
        assert ledger.nodes[0][0].count == 1

    def test_a_norm_that_rounding_exceeds(self):
        strategy = self.strategy(noise=1e12, clip=1.0)
        with pytest.raises(ValueError, match="choose a larger one"):
            self.aggregated(strategy, torch.zeros(3), [torch.ones(3)] * 4)


class Grid:
    """Four connected clients."""

    def get_node_ids(self):
        return [1, 2, 3, 4]


def _array(tensor):
    return Array(tensor.numpy())


def _reply(tensor, **more):
    records = {
        "arrays": ArrayRecord({"w": _array(tensor)}),
        "metrics": MetricRecord({"num-examples": 5}),
        **more,
    }
    content = RecordDict({name: one for name, one in records.items() if one})
    return Message(content, dst_node_id=1, message_type="train")


# A Flower app of the shape of its PyTorch quickstart: `flwr run` takes the folder.
CLIENT = """
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

app = ClientApp()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))


def load_data(number, batch_size):
    inputs = torch.randn(80, 5, generator=torch.Generator().manual_seed(number))
    records = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    return DataLoader(records, batch_size=batch_size, shuffle=True)


def train_fn(model, loader, epochs, lr):
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    running_loss = 0.0
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(loader))


@app.train()
def train(msg: Message, context: Context):
    model = net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    loader = load_data(context.node_config["number"], 16)
    loss = train_fn(model, loader, 1, msg.content["config"]["lr"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(loader.dataset)})
    arrays = ArrayRecord(model.state_dict())
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)
"""
LOOP = CLIENT[CLIENT.index("    for _ in range") : CLIENT.index("\n\n@app.train")]
PRIVATE = {  # lines of it, and what they become
    "app = ClientApp()\n": """
from privaudit.api.flower import PrivateClient

private = PrivateClient(
    lambda context: f"{FOLDER}/{context.node_config['number']}",
    noise_multiplier=1.0, clip_norm=1.0, batch_size=16, epsilon=20.0,
)
app = ClientApp(mods=[private])
""",
    LOOP: """    for _ in private.steps(model, loader, epochs):
        optimizer.step()
    return running_loss
""",
}
SERVER = """
from client import net
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    FedAvg(fraction_evaluate=0.0).start(
        grid=grid,
        initial_arrays=ArrayRecord(net().state_dict()),
        train_config=ConfigRecord({"lr": 0.1}),
        num_rounds=2,
    )
"""
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "quick"
version = "1.0.0"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "tests"
[tool.flwr.app.components]
serverapp = "server:app"
clientapp = "client:app"
"""


def free_ports(many):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(many)]
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


def test_the_quickstart_made_private(tmp_path):
    """By Flower's own processes, in at most ten changed lines."""
    folder, app, home = tmp_path / "kept", tmp_path / "app", tmp_path / "home"
    client = CLIENT
    for before, after in PRIVATE.items():
        assert client.count(before) == 1
        client = client.replace(before, after)
    changed = difflib.ndiff(CLIENT.splitlines(), client.splitlines())
    assert sum(line[0] == "+" and line[2:].strip() != "" for line in changed) <= 10
    app.mkdir()
    home.mkdir()
    (app / "client.py").write_text(client.replace("{FOLDER}", str(folder)))
    (app / "server.py").write_text(SERVER)
    (app / "pyproject.toml").write_text(PROJECT)
    at, *ports = free_ports(3)
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\n'
        f'address = "127.0.0.1:{at}"\ninsecure = true\n'
    )
    found = pathlib.Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{found}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.getcwd(),
        "PYTHONWARNINGS": "ignore",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
    }

    def begin(*words):
        command = [f"{found}/{words[0]}", "--insecure", *map(str, words[1:])]
        said = (tmp_path / "said").open("ab")
        how = {"stdout": said, "stderr": said, "cwd": tmp_path}
        return subprocess.Popen(command, env=environment, **how)

    running = [begin("flower-superlink", "--port", at)]
    try:
        for number, port in enumerate(ports):
            where = ("--superlink", f"127.0.0.1:{at}", "--port", port)
            running.append(
                begin("flower-supernode", *where, "--node-config", f"number={number}")
            )
        end = time.monotonic() + 300
        submit = [f"{found}/flwr", "run", str(app)]
        how = {"env": environment, "cwd": tmp_path, "capture_output": True}
        while subprocess.run(submit, **how).returncode:
            assert time.monotonic() < end, (tmp_path / "said").read_text()
            time.sleep(1)

        def spent():
            """Steps of each client that its evidence has."""
            for path in folder.glob("*/*/evidence/ledger.json"):
                ledger = pa.Ledger.from_json(path.read_text())
                yield sum(one.count for one in ledger.nodes[0])

        while [*spent()] != [10, 10]:
            assert time.monotonic() < end, (tmp_path / "said").read_text()
            time.sleep(1)
    finally:
        for one in running:
            one.terminate()
            one.wait()
    joint = pa.join([*folder.glob("*/*/evidence")], overlap=1)
    assert 1 < joint.upper.epsilon < 20
    assert joint.upper.standing == "conditional"
