"""What runs on a device stays there, and waits for nobody: tried without one.

torch's "meta" device has shapes and no numbers: whoever looks at a number there, mixes
it with a tensor of the host, or copies it to the host fails.
"""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from privaudit import settings
from privaudit.auditing.experiments import plan
from privaudit.auditing.experiments.experiment import Audit, attacker, train_block
from privaudit.cli import BAD_USAGE, main
from privaudit.results import Claim
from trainers.algorithms import ALGORITHMS
from trainers.network import ranks
from trainers.numerics.deferred_checks import Watch
from trainers.numerics.device import check_device, follow
from trainers.numerics.randomness import Streams
from trainers.oracles.oracle import Oracle
from trainers.runs import checkpoint
from trainers.runs.problem import Observers, Problem
from trainers.runs.training import training_from

SMALL = {"nodes": 4, "train": 200, "rounds": 3, "batch_size": 6}
# These scale noise by sensitivities that the host calculates, round by round.
ON_THE_HOST = {
    name for name, family in ALGORITHMS.items() if family.oracle is not Oracle
}


@pytest.fixture
def copies(monkeypatch):
    """Copies to the host, which are let through as zeros: a list of their shapes."""
    seen = []
    cpu = torch.Tensor.cpu

    def counted(tensor):
        if tensor.device.type != "meta":
            return cpu(tensor)
        seen.append(tuple(tensor.shape))
        return torch.zeros(tensor.shape, dtype=tensor.dtype)

    monkeypatch.setattr(torch.Tensor, "cpu", counted)
    monkeypatch.setattr(Watch, "settle", lambda self: None)
    return seen


def training(name, **more):
    family = ALGORITHMS[name]
    own = {k: v for k, v in family.defaults.items() if k in ("weights", "graph")}
    logistic = (
        family.oracle is not Oracle and "psp" not in family.oracle.__name__.lower()
    )
    model = {"hidden": 4}
    if "model" in family.defaults and logistic:
        model = {"model": family.defaults["model"]}
    values = {**SMALL, **model, **own, **more, "algorithm": name}
    return training_from(values, where="the test")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - ON_THE_HOST))
def test_rounds_look_at_no_number(name, copies):
    problem = Problem.of(training(name))
    fast = problem.gradients()  # is tried with numbers
    object.__setattr__(problem, "gradients", lambda: fast)
    kinds = []
    models, _ = problem.train(
        1.0,
        Streams(0, device="meta"),
        runs=2,
        observers=Observers(
            after_round=lambda done, models, ledger: kinds.append(models.device.type)
        ),
    )
    assert models.device.type == "meta"
    assert set(kinds) == {"meta"}
    assert copies == []


class Sends(TorchFunctionMode):
    """What is made of the host's numbers: an accelerator waits for these too."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = function.__name__
        index = args[1] if name in ("__getitem__", "__setitem__") else ()
        parts = index if isinstance(index, tuple) else (index,)
        if name in ("tensor", "as_tensor", "from_numpy") or any(
            isinstance(part, list) for part in parts
        ):
            self.seen.append(name)
        return function(*args, **(kwargs or {}))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["dp-dsgd", "dp-dsgt", "dp-dinno", "sgp", "sync"])
def test_rounds_after_the_first_send_no_number(name, copies):
    problem = Problem.of(training(name))
    fast = problem.gradients()
    object.__setattr__(problem, "gradients", lambda: fast)
    with Sends() as sends:
        problem.train(
            1.0,
            Streams(0, device="meta"),
            runs=2,
            observers=Observers(
                after_round=lambda done, *_: sends.seen.clear() if done == 1 else None
            ),
        )
    assert sends.seen == []


def test_the_mode_sees_what_is_sent():
    with Sends() as sends:
        table = torch.tensor([1, 2])
        table[[0, 1]] += 1
        table[:1] += 1
    assert sends.seen == ["tensor", "__getitem__", "__setitem__"]


@pytest.fixture(autouse=True)
def watched(monkeypatch):
    """The mode that watches here is one that oracles would refuse."""
    for name in (
        "algorithms.collaborative.oracle",
        "algorithms.collaborative.resampling",
        "gradients.clipping",
        "gradients.per_sample",
        "oracles.oracle",
        "oracles.messages.oracle",
    ):
        monkeypatch.setattr(f"trainers.{name}.check_hooks", lambda: None)


class Unplaced(TorchFunctionMode):
    """The functions that made a tensor without being told where."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        makes = function in _device_constructors()
        if makes and (kwargs or {}).get("device") is None:
            self.seen.append(function.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", sorted(ON_THE_HOST))
def test_what_is_made_is_placed(name):
    problem = Problem.of(training(name))
    fast = problem.gradients()
    object.__setattr__(problem, "gradients", lambda: fast)
    start = problem.start(0, 2)
    with Unplaced() as unplaced:
        problem.train(1.0, Streams(0), runs=2, start=start)
    assert unplaced.seen == []


def test_the_mode_sees_what_is_not_placed():
    with Unplaced() as unplaced:
        torch.zeros(3)
        torch.zeros(3, device="cpu")
        torch.ones(2, dtype=torch.bool)
    assert unplaced.seen == ["zeros", "ones"]


class TestAudits:
    def block(self, monkeypatch, adversary):
        monkeypatch.setattr(plan, "check_device", str)
        monkeypatch.setattr(settings, "check_device_name", str)
        own = training("dp-dsgd", digits=(0, 1, 2))
        claim = Claim(
            epsilon=1.0, delta=1e-2, relation="add-or-remove-one", source="the test"
        )
        audit = Audit(
            claim=claim,
            training=own,
            noise_multiplier=1.0,
            adversary=adversary,
            device="meta",
            block=6,
            runs=12,
        )
        problem = Problem.of(own)
        fast = problem.gradients()
        object.__setattr__(problem, "gradients", lambda: fast)
        return train_block(audit, [attacker(audit, problem)], 1)[0][0]

    def test_only_what_is_final_comes_to_the_host(self, monkeypatch, copies):
        block = self.block(monkeypatch, "final-loss")
        dims = copies[-1][-1]  # accuracy, once, then the models for each attacker
        assert copies == [(6, 4), (6, 4, dims)]
        assert block.score.shape == (6,)

    def test_worlds_do_not_depend_on_the_device(self, monkeypatch, copies):
        block = self.block(monkeypatch, "final-loss")
        tossed = Streams(0, 6).worlds(6)
        assert (block.member == tossed.numpy()).all()

    def test_a_watcher_is_shown_copies(self, monkeypatch, copies):
        self.block(monkeypatch, "all-losses")
        assert len(copies) == 3 + 2  # of each round


class TestDevices:
    @pytest.mark.parametrize("name", ["gpu", "cuda:x", "cpu:1x", "meta", ""])
    def test_unknown_names(self, name):
        with pytest.raises(ValueError, match="cpu, cuda or cuda:NUMBER"):
            check_device(name)

    def test_no_such_gpu(self):
        number = torch.cuda.device_count()
        with pytest.raises(ValueError, match=f"torch sees {number} GPUs"):
            check_device(f"cuda:{number}")

    @pytest.mark.parametrize("command", ["train", "audit"])
    def test_the_command_line_says_so(self, capsys, command):
        number = f"cuda:{torch.cuda.device_count()}"
        fixed = ["--noise-multiplier", "3", "--set", "hidden=4"]
        assert main([command, "dp-dsgd", "--device", number, *fixed]) == BAD_USAGE
        assert f"there is no device {number}" in capsys.readouterr().err

    def test_each_rank_has_a_gpu_of_its_own(self, monkeypatch):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
        monkeypatch.setenv("LOCAL_RANK", "3")
        assert ranks.own_gpu("cuda", 4) == 3
        with pytest.raises(ValueError, match="4 ranks are more than the 2 GPUs"):
            ranks.own_gpu("cuda", 2)
        with pytest.raises(ValueError, match="cannot share cuda:1"):
            ranks.own_gpu("cuda:1", 4)

    def test_modules_follow_only_for_buffers(self):
        module = torch.nn.Sequential(torch.nn.Linear(2, 2))
        follow(module, torch.device("meta"))
        assert module[0].weight.device.type == "cpu"
        module.register_buffer("scale", torch.ones(2))
        follow(module, torch.device("meta"))
        assert module.scale.device.type == "meta"

    def test_checkpoints_go_to_where_the_run_goes_on(self):
        kept = checkpoint.unpack(checkpoint.pack({"a": torch.ones(2)}))
        back = checkpoint.like({"a": torch.empty(2, device="meta")}, kept)
        assert back["a"].device.type == "meta"
