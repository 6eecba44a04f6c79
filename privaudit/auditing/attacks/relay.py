"""The relay attack: reads a node's sum from gradients at a model that holds it.

An observer hears node u's first noisy sum diluted, under the noise of others; but
gradients of u's other records are taken at a model that holds it undiluted, and are
sent as well. Records of absolute loss |x - c| with thresholds c side by side count
those below x: n of them raise x to n / (8 standard deviations) times itself. Of any
linear protocol the message is used that holds most of that later sum. It attacks a
*form of account*, "the view is a Gaussian mechanism"; thresholds, records and start are
the attacker's, coins, noise and engine privaudit's own.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import torch
from torch import Tensor, nn

from privaudit.accounting.views import LinearProtocol, Observer, Pair, figures
from privaudit.auditing.attacks.canaries import CANARY_NODE
from privaudit.auditing.attacks.linear import Record
from privaudit.auditing.attacks.protocols import protocol_of
from privaudit.auditing.scores import Scores
from trainers.data import Dataset
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.runs.material import Material
from trainers.runs.problem import Observers, Planted, Problem
from trainers.runs.training import training_from

_WIDE = 4.0  # standard deviations on each side that thresholds cover
_BLOCK = 500
_FAR = 1e4  # a threshold that nothing reaches, in numbers of records


class _Coordinate(nn.Module):
    """One parameter, from 0."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        """(records, 1)."""
        return inputs * self.at


def _absolute(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).abs().sum(-1)


@dataclasses.dataclass(frozen=True, eq=False)
class Relay:
    """A training whose records relay, and the message in which it is heard."""

    problem: Problem  # the training: one coordinate, absolute loss
    noise_multiplier: float  # of its mechanism
    observer: Observer  # who listens
    message: int  # the number of the message that is read, of all that are sent
    sign: float  # 1 if the record raises it, else -1
    pair: Pair  # what accounts say of node 0 and the observer, at ``delta``
    delta: float

    @classmethod
    def of(
        cls,
        settings: dict,
        observer: Observer,
        *,
        noise_multiplier: float,
        delta: float,
        records: int = 100,
    ) -> Relay:
        """Relay for an algorithm by its settings, with so many records a node."""
        if CANARY_NODE in observer.nodes:
            raise ValueError("the relay is of node 0: it cannot be the observer's own")
        plain = _problem(settings, np.full(records, _FAR * records), records)
        ledger = plain.ledger(noise_multiplier)
        protocol = protocol_of(plain, ledger)
        first, later = _relayed(protocol)
        row = _loudest(protocol, protocol.seen_by(observer), later)
        # Before the thresholds all records pull one way, at every earlier sum of it.
        own = np.flatnonzero(protocol.owner == CANARY_NODE)
        before = own[own < later]
        weights = protocol.points[later] / records  # of sums: gradients are over them
        centre = weights[before].sum() * records
        spread = float(np.sqrt(((weights @ protocol.noise) ** 2).sum()))
        reach = abs(weights[first]) + _WIDE * spread
        thresholds = centre + np.linspace(-reach, reach, records)
        (pair,) = (
            one
            for one in figures(protocol, ledger, delta, [observer])
            if one.of == CANARY_NODE
        )
        # A sum above its thresholds grows, as the record's own gradient does.
        sign = np.sign(weights[first] * protocol.messages[row, later])
        return cls(
            _problem(settings, thresholds, records),
            noise_multiplier,
            observer,
            row,
            float(sign),
            pair,
            delta,
        )

    def scores(self, runs: int, seed: int = 0) -> Scores:
        """The attack's scores of so many runs, each with a fair coin for its world."""
        rng = np.random.default_rng([seed, runs])
        member = rng.random(runs) < 0.5
        found = []
        far = _FAR * len(self.problem.shares[CANARY_NODE])
        canary = Dataset(torch.ones(1, 1), torch.full((1, 1), -far))
        for block, first in enumerate(range(0, runs, _BLOCK)):
            planted = torch.from_numpy(member[first : first + _BLOCK])
            heard = Record([list(range(self.problem.training.nodes))], dims=1)
            self.problem.train(
                self.noise_multiplier,
                Streams(Key.study(f"relay {seed}"), block),
                runs=len(planted),
                planted=Planted(canary, planted),
                observers=Observers(messages=(heard,)),
            )
            found.append(heard.rows[self.message][:, 0].double())
        return Scores(member, self.sign * torch.cat(found).numpy(), "coin-flip")


def _problem(settings: dict, thresholds: np.ndarray, records: int) -> Problem:
    """Node 0 has records of these thresholds, all others pairs that cancel."""
    values = {
        "step_size": float(records),
        **settings,
        "batch_size": float(records),
        "clip_norm": 1.0,
        "data": "own",
        "model": "own",
    }
    training = training_from(values, where="the relay")
    still = np.where(np.arange(records) % 2, 1.0, -1.0) * _FAR * records
    each = [thresholds] + [still] * (training.nodes - 1)
    shares = [
        Dataset(torch.ones(records, 1), torch.tensor(some)[:, None].float())
        for some in each
    ]
    material = dataclasses.replace(_material(), shares=shares)
    return Problem.of(training, material=material)


@functools.cache
def _material() -> Material:
    """Model and loss, with one record."""
    one = Dataset(torch.ones(1, 1), torch.zeros(1, 1))
    return Material.own(_Coordinate(), [one], loss=_absolute)


def _relayed(protocol: LinearProtocol) -> tuple[int, int]:
    """Node 0's first sum, and the next one that is taken where that is held."""
    own = np.flatnonzero(protocol.owner == CANARY_NODE)
    held = own[protocol.points[own, own[0]] != 0] if len(own) else own
    if not len(held):
        raise ValueError("node 0 takes no gradient that holds an earlier one: no relay")
    return int(own[0]), int(held[0])


def _loudest(protocol: LinearProtocol, told: np.ndarray, later: int) -> int:
    """The message that holds most of the sum ``later``, over its noise."""
    noise = np.sqrt(((protocol.messages @ protocol.noise) ** 2).sum(1))
    share = np.where(told, abs(protocol.messages[:, later]), 0.0)
    share = np.divide(share, noise, out=np.zeros_like(share), where=noise > 0)
    if not share.any():
        raise ValueError("the observer hears nothing of what node 0 says later")
    return int(share.argmax())
