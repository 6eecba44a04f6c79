"""Optimisers and step sizes are torch's own, and no ledger knows of them."""

import itertools

import pytest
import torch

import privaudit as pa
from trainers import contract
from trainers.algorithms.dsgd import Dsgd
from trainers.algorithms.optimisers import Optimised, optimiser_named
from trainers.network.engine import Network
from trainers.network.graphs import complete
from trainers.network.mixing import Mixing
from trainers.runs.training import training_from

ROUNDS = 30
SCALES = torch.tensor([1.0, 10.0, 0.1])


class Bowl:
    """The gradient of sum_i s_i x_i^2 / 2, as an oracle of one node."""

    nodes = 1

    def gradient(self, at):
        return at * SCALES


def ours(text, rates):
    algorithm = Optimised(Dsgd(lambda k: rates[k]), optimiser_named(text))
    network = Network(algorithm, Mixing.of(complete(1), "uniform"))
    return network.run(torch.ones(1, 1, 3), Bowl(), len(rates))[0, 0]


def theirs(make, schedule=None):
    at = torch.nn.Parameter(torch.ones(3))
    optimiser = make([at])
    after = None if schedule is None else schedule(optimiser)
    for _ in range(ROUNDS):
        at.grad = at.detach() * SCALES
        optimiser.step()
        if after is not None:
            after.step()
    return at.detach()


def sizes(**settings):
    values = {"algorithm": "dp-dsgd", "rounds": ROUNDS, "step_size": 0.05, **settings}
    step = training_from(values, where="the test").step_sizes()
    return [step(k) for k in range(ROUNDS)]


class TestIsTorchs:
    @pytest.mark.parametrize(
        ("text", "make"),
        [
            ("momentum", lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)),
            ("momentum:decay=0.5", lambda p: torch.optim.SGD(p, 0.05, momentum=0.5)),
            (
                "momentum:weight_decay=0.2",
                lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.2),
            ),
            ("adam", lambda p: torch.optim.Adam(p, 0.05)),
            (
                "adam:first_decay=0.8,second_decay=0.9,epsilon=0.01",
                lambda p: torch.optim.Adam(p, 0.05, betas=(0.8, 0.9), eps=0.01),
            ),
            ("adamw", lambda p: torch.optim.AdamW(p, 0.05)),
        ],
    )
    def test_an_optimiser(self, text, make):
        found = ours(text, [0.05] * ROUNDS)
        assert torch.allclose(found, theirs(make), rtol=1e-5, atol=1e-6)

    def test_cosine(self):
        def schedule(optimiser):
            return torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, ROUNDS)

        expected = theirs(lambda p: torch.optim.SGD(p, 0.05), schedule)
        found = ours("momentum:decay=0", sizes(schedule="cosine"))
        assert torch.allclose(found, expected, rtol=1e-5)

    def test_parts(self):
        def schedule(optimiser):
            return torch.optim.lr_scheduler.MultiStepLR(optimiser, [10, 20], 0.5)

        expected = theirs(lambda p: torch.optim.SGD(p, 0.05), schedule)
        found = sizes(schedule="parts:10=0.025,20=0.0125")
        assert torch.allclose(ours("momentum:decay=0", found), expected, rtol=1e-5)

    def test_a_warm_up_rises_by_equal_steps(self):
        found = sizes(warm_up=4, schedule="cosine", final_step_size=0.01)
        assert found[:5] == pytest.approx([0.01, 0.02, 0.03, 0.04, 0.05])
        assert all(one > other for one, other in itertools.pairwise(found[4:]))
        assert found[-1] > 0.01


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "settings", "plain"),
    [
        ("dp-dsgd", {"optimiser": "adam"}, "dsgd"),
        ("dp-dsgt", {"optimiser": "momentum", "schedule": "cosine"}, "dsgt"),
        ("dp-fedavg", {"optimiser": "adamw", "warm_up": 2}, "fedavg"),
        ("dyn-d2p", {"optimiser": "momentum"}, "sgp"),
    ],
)
def test_the_contract_is_kept(name, settings, plain):
    contract.check(name, settings, plain=plain)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["dp-sgd", "dp-dsgd", "dp-dsgt", "dp-fedavg"])
def test_no_figure_of_the_ledger_changes(name):
    inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    data = inputs, (inputs.sum(1) > 0).long()
    nodes = 1 if name == "dp-sgd" else 2
    how = {"nodes": nodes, "epsilon": 4, "rounds": 5, "batch_size": 10, "seed": 0}
    how["classes"] = 2
    runs = [
        pa.train("softmax", data, name, **how, **changes)
        for changes in (
            {},
            {"optimiser": "adam", "schedule": "cosine", "warm_up": 2},
        )
    ]
    assert runs[0].ledger == runs[1].ledger
    assert runs[0].result.nodes == runs[1].result.nodes
    one, other = (run.models[0].state_dict() for run in runs)
    assert not all(torch.equal(one[part], other[part]) for part in one)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"optimiser": "foo"}, "no optimiser 'foo'; choose one of adam"),
        ({"optimiser": "adam:x=1"}, "adam has no option 'x'"),
        ({"optimiser": "adam:epsilon=x"}, "epsilon is a number"),
        (
            {"optimiser": "momentum:decay=2"},
            r"optimiser momentum: decay must be in \[0, 1\)",
        ),
        ({"optimizer": "adam"}, "did you mean optimiser"),
        ({"schedule": "cosin"}, "got cosin"),
        ({"schedule": "parts:a"}, "first rounds and their step sizes"),
        ({"schedule": "parts:9=0.1,3=0.2"}, "one after another"),
        ({"warm_up": -1}, "warm_up must be >= 0"),
        ({"warm_up": 30}, "leaves none of 30"),
        ({"algorithm": "partpsp", "optimiser": "adam"}, "partpsp has no use for"),
        ({"algorithm": "adp2sgd", "optimiser": "adam"}, "adp2sgd has no use for"),
        (
            {"algorithm": "deep-q", "model": "one-vs-all", "optimiser": "adam"},
            "deep-q has no use for",
        ),
    ],
)
def test_what_is_wrong_is_said(values, said):
    with pytest.raises(ValueError, match=said):
        training_from({"algorithm": "dp-dsgt", "rounds": 30, **values}, where="here")


def test_dinno_keeps_its_own():
    values = {"algorithm": "dp-dinno", "optimiser": "adamw"}
    found = training_from(values, where="here")
    assert (found.optimiser, found.options) == (None, {"optimiser": "adamw"})
