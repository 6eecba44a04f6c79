"""What the algorithms' contract is tried on, and what is expected of whom."""

import dataclasses
from collections.abc import Callable

import torch

from tests.trainers.problems import start
from trainers.algorithms import ALGORITHMS, family_named
from trainers.algorithms.asynchronous.family import AllReduce, Sync
from trainers.algorithms.dinno import Dinno, DinnoFamily
from trainers.algorithms.dsgt import Dsgt
from trainers.algorithms.dyn_d2p import Pushed
from trainers.algorithms.family import Family
from trainers.algorithms.muffliato import Muffliato
from trainers.algorithms.optimisers import OPTIMISERS
from trainers.algorithms.sgp import Sgp
from trainers.network.engine import Inbox, Network, WorksFirst
from trainers.network.named_graphs import mixing
from trainers.runs.training import training_from

STEP = 0.1


@dataclasses.dataclass(frozen=True)
class Case:
    """An algorithm by name, with options; all tests see all cases."""

    name: str
    options: dict = dataclasses.field(default_factory=dict)

    @property
    def family(self):
        return family_named(self.name)

    def make(self, step=lambda k: STEP):
        return self.family.make(step, **self.options)

    def releases(self, rounds):
        values = {"algorithm": self.name, "rounds": rounds, **self.options}
        training = training_from(values, where="a test")
        return self.family.releases(training.setting())

    def network(self, nodes=3, graph="ring", weights="metropolis", step=None, seed=0):
        algorithm = self.make(step or (lambda k: STEP))
        on = mixing(graph, weights, nodes, seed=seed)
        return Network(algorithm, on, self.family.needs)

    @property
    def facts(self):
        algorithm = self.make()
        known = [FACTS[kind] for kind in type(algorithm).__mro__ if kind in FACTS]
        return known[0](algorithm) if known else Facts()

    def __str__(self):
        return "-".join([self.name, *(f"{v}" for v in self.options.values())])


def descent(theta, private, algorithm, rounds):
    """Gradient descent with the step sizes of the rounds."""
    for k in range(rounds):
        theta = theta - algorithm.step_size(k) * private.gradient(theta)
    return theta


def late_descent(theta, private, algorithm, rounds):
    """Gradient descent that begins one round late."""
    for k in range(1, rounds):
        theta = theta - algorithm.step_size(k) * private.gradient(theta)
    return theta


def held_descent(theta, private, algorithm, rounds):
    """T steps of the optimiser a round, held where the round began."""
    optimiser = OPTIMISERS[algorithm.optimiser]
    kept = optimiser.init(theta)
    for k in range(rounds):
        psi = theta
        if algorithm.optimiser_state == "rebuilt":
            kept = optimiser.init(theta)
        for _ in range(algorithm.inner_steps):
            down = private.gradient(psi) + 2 * algorithm.rho(k) * (psi - theta)
            psi, kept = optimiser.step(kept, psi, down, algorithm.step_size(k))
        theta = psi
    return theta


@dataclasses.dataclass(frozen=True)
class Facts:
    """What holds of an algorithm; what a new one is held to if it says nothing.

    Parameters
    ----------
    keeps_mean
        Without gradients, the mean of the models stays.
    alone
        What it is on one node.
    equal_when_complete
        Whether all nodes agree in every round on the complete graph.
    step, rounds, tolerance, options
        With which a quadratic is minimised, and how closely.
    """

    keeps_mean: bool = True
    alone: Callable = descent
    equal_when_complete: bool = False
    step: Callable[[int], float] = lambda k: 1 / (k + 2)
    rounds: int = 3000
    tolerance: float = 5e-3
    options: dict = dataclasses.field(default_factory=dict)


FACTS = {
    # Tracking is exact with constant steps, where descent has a bias.
    Dsgt: lambda algorithm: Facts(
        alone=late_descent,
        equal_when_complete=True,
        step=lambda k: 0.1,
        rounds=400,
        tolerance=1e-6,
    ),
    # What is sent is the stepped parameters, so that the step is averaged too.
    Sgp: lambda algorithm: Facts(equal_when_complete=True),
    Sync: lambda algorithm: Facts(equal_when_complete=True),
    # A step is averaged by its own gossip, plain here.
    Muffliato: lambda algorithm: Facts(equal_when_complete=True),
    # Adam's step is not linear: the penalties no longer add up to 0.
    Dinno: lambda algorithm: Facts(
        keeps_mean=algorithm.optimiser == "sgd" and algorithm.inner_steps == 1,
        alone=held_descent,
        # Adam's steps must shrink, and the dual must be slow beside them: with the
        # default rho, one inner step a round does not keep up and the nodes drift.
        step=lambda k: 0.05 if algorithm.optimiser == "sgd" else 0.05 * 0.999**k,
        rounds=1500 if algorithm.optimiser == "sgd" else 6000,
        tolerance=1e-6 if algorithm.optimiser == "sgd" else 1e-4,
        options={} if algorithm.optimiser == "sgd" else {"rho": lambda k: 0.005},
    ),
}

CASES = [
    # Those that ask an oracle in rounds that all make; others have contracts of
    # their own.
    *(
        Case(name)
        for name, family in ALGORITHMS.items()
        if type(family) in (Family, DinnoFamily, Pushed, AllReduce)
    ),
    # A step each round; of more rounds, see test_muffliato.
    Case("dp-muffliato", {"gossips": 1}),
    Case("muffliato", {"gossips": 1}),
    Case("dp-dinno", {"inner_steps": 3}),
    Case("dp-dinno", {"optimiser": "sgd"}),
    Case("dp-dinno", {"optimiser": "sgd", "inner_steps": 3}),
    Case("dp-dinno", {"optimiser": "adamw", "optimiser_state": "rebuilt"}),
]


class Quadratic:
    """f_i = sum_d a_id (theta_d - c_id)^2 / 2, with no data behind it."""

    def __init__(self, nodes, dims=4):
        self.nodes = nodes
        self.centres = start(dims, nodes=nodes)[0]  # (nodes, dims)
        self.curvatures = 0.5 + 1.5 * torch.sigmoid(start(dims, nodes=nodes, seed=1)[0])

    def gradient(self, at):
        return self.curvatures * (at - self.centres)

    @property
    def optimum(self):
        """Of the sum of all, (dims,)."""
        weighed = (self.curvatures * self.centres).sum(0)
        return weighed / self.curvatures.sum(0)


class Flat:
    """No gradients: what is left of a round is its mixing."""

    def __init__(self, nodes):
        self.nodes = nodes

    def gradient(self, at):
        return torch.zeros_like(at)


def states(network, begin, private, rounds):
    """The algorithm's state after every round."""
    state = network.algorithm.init(begin)
    for k in range(rounds):
        if isinstance(network.algorithm, WorksFirst):
            state = network.algorithm.local(state, private, k)
        sent = network.algorithm.messages(state, k)
        inbox = Inbox(sent, network.mixing, k)
        state = network.algorithm.round(state, inbox, private, k)
        yield state
