"""Sums by recursive doubling, attacked by one node and by several that collude.

Attackers know all records but the canary, and the algorithm as it runs. What they show
is never above what is certified of them, and near it; where a node keeps something of
its own, or sends a release twice, an audit refutes the account.
"""

import dataclasses

import pytest
import torch

from tests.zoo.attacks import Attack, attacked, played
from trainers.algorithms import ALGORITHMS
from trainers.algorithms.butterfly import Butterfly, State

NAME = "dp-butterfly"
SETTINGS = {"nodes": 4, "graph": "butterfly", "partition": "even", "rounds": 12}


@dataclasses.dataclass(frozen=True, slots=True)
class Keeps(State):
    """With a release of a node's own, and how far that is summed again."""

    own: torch.Tensor
    again: torch.Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class OwnMomentum(Butterfly):
    """Each node sends its release and most of all that it sent before."""

    def init(self, start):
        zero = torch.zeros_like(start, dtype=torch.float64)
        return Keeps(start, torch.zeros_like(start), zero, zero, zero)

    def local(self, state, private, k):
        if k % self.exchanges:
            return state
        fresh = private.gradient(at=state.theta) + 0.9 * state.own
        return dataclasses.replace(state, partial=fresh, own=fresh)

    def round(self, state, inbox, private, k):
        done = Butterfly.round(self, state, inbox, private, k)
        return Keeps(*_values(done), state.own, state.again)


@dataclasses.dataclass(frozen=True, slots=True)
class SentAgain(OwnMomentum):
    """A step's releases are summed again along with the next, in its places."""

    def local(self, state, private, k):
        if k % self.exchanges:
            return state
        fresh = private.gradient(at=state.theta)
        return dataclasses.replace(state, partial=fresh, own=fresh, again=state.own)

    def messages(self, state, k):
        return {"partial": state.partial, "again": state.again}

    def round(self, state, inbox, private, k):
        done = OwnMomentum.round(self, state, inbox, private, k)
        return dataclasses.replace(done, again=inbox.neighbour_sum("again"))


def _values(state):
    return state.theta, state.velocity, state.partial


def family(kind):
    """With this in the algorithm's place."""

    def made(steps, momentum, exchanges, divisor, told):
        return kind(steps, momentum, exchanges, divisor, told)

    return dataclasses.replace(ALGORITHMS[NAME], make=made)


def gaussian(nodes, observer, runs, noise=2.0):
    """Without sampling, over two cycles of 4 nodes or one of 8."""
    settings = {**SETTINGS, "nodes": nodes, "train": 4 * nodes, "batch_size": 4.0}
    settings["rounds"] = {4: 12, 8: 21, 6: 40}[nodes]
    return Attack(runs, noise=noise, settings=settings, observer=observer)


class TestRightCode:
    @pytest.mark.parametrize(
        ("nodes", "observer"),
        [(4, "1"), (4, "2,3"), pytest.param(8, "3,6", marks=pytest.mark.full)],
    )
    def test_the_best_attack_learns_what_is_certified(self, nodes, observer):
        # Of all records the attack is a Gaussian mechanism's: how far apart its scores
        # are, over their spread, is mu.
        scores, ledger, _ = played(gaussian(nodes, observer, 1000, noise=1.0), NAME)
        apart = scores.score[scores.member].mean() - scores.score[~scores.member].mean()
        found = apart / scores.score[~scores.member].std()
        mu2 = sum(entry.count / entry.release.noise**2 for entry in ledger.nodes[0])
        assert found == pytest.approx(mu2**0.5, rel=0.1)
        steps = sum(entry.count for entry in ledger.nodes[0])
        assert mu2 < 0.85 * steps  # of everything seen

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize(
        ("graph", "observer"),
        [
            ("butterfly", "1"),
            pytest.param("butterfly", "1,5", marks=pytest.mark.full),
            ("chain", "3"),
            pytest.param("chain", "2,3", marks=pytest.mark.full),
        ],
    )
    def test_of_six_nodes(self, graph, observer):
        # Four sum by recursive doubling, two fold; or all along a chain.
        attack = gaussian(6, observer, 1000, noise=1.0)
        settings = {**attack.settings, "graph": graph, "train": 24}
        settings["rounds"] = 10 * (4 if graph == "butterfly" else 6)
        attack = dataclasses.replace(attack, settings=settings)
        scores, ledger, _ = played(attack, f"dp-{graph}")
        apart = scores.score[scores.member].mean() - scores.score[~scores.member].mean()
        found = apart / scores.score[~scores.member].std()
        mu2 = sum(entry.count / entry.release.noise**2 for entry in ledger.nodes[0])
        assert found == pytest.approx(mu2**0.5, rel=0.1)
        assert mu2 < (7 if len(observer) == 1 else 8)  # of 10 of everything seen

    @pytest.mark.full
    @pytest.mark.parametrize(
        ("nodes", "observer"), [(4, "1"), (4, "2,3"), (8, "5"), (8, "3,6")]
    )
    def test_no_attack_of_sampled_steps_is_above(self, nodes, observer):
        settings = {**SETTINGS, "nodes": nodes, "train": 20 * nodes}
        settings["rounds"] = {4: 12, 8: 21}[nodes]
        attack = Attack(
            2000, noise=2.0, settings=settings, observer=observer, estimator="best"
        )
        upper, lower = attacked(attack, NAME)
        assert 0.2 * upper.epsilon < lower.epsilon <= upper.epsilon


@pytest.mark.full
class TestAudits:
    @pytest.mark.parametrize("observer", ["1", "2,3"])
    def test_right_code_is_not_refuted_and_the_bound_is_close(self, observer):
        upper, lower = attacked(gaussian(8, observer, 3000, noise=1.0), NAME)
        assert 0.85 * upper.epsilon < lower.epsilon <= upper.epsilon

    @pytest.mark.parametrize(
        ("kind", "observer"),
        [(OwnMomentum, "1"), (OwnMomentum, "2,3"), (SentAgain, "1")],
    )
    def test_a_bug_is_caught(self, kind, observer):
        attack = gaussian(8, observer, 3000, noise=1.0)
        upper, lower = attacked(attack, NAME, family(kind))
        assert lower > upper


def test_partial_sums_are_whole_steps_of_one_grid():
    # What is sent in later exchanges is exactly a sum of releases, to the last bit.
    from tests.trainers.algorithms.test_butterfly import made
    from trainers.numerics import noise
    from trainers.numerics.randomness import Streams
    from trainers.runs.problem import Observers

    problem, sent = made(8, 6), []

    class Seen:
        def messages(self, k, messages):
            sent.append(messages["partial"].clone())

    problem.train(1.3, Streams(0), observers=Observers(messages=(Seen(),)))
    step = noise.grid(1.3 * problem.training.clip_norm)
    for partial in sent:
        assert partial.dtype == torch.float64
        whole = partial / step
        assert torch.equal(whole, whole.round())
        assert (whole % 2).any()
    # Exchange by exchange, all sums together double.
    for first in (0, 3):
        sums = [partial.sum(1) for partial in sent[first : first + 3]]
        assert torch.equal(2 * sums[0], sums[1])
        assert torch.equal(4 * sums[0], sums[2])
