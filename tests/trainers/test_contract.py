"""Every algorithm keeps the contract, by its name; a user's own does as well.

Broken ones are below: each breaks one promise, and is caught by the check that is for
it.
"""

import dataclasses

import pytest
import torch

from trainers import contract
from trainers.algorithms import ALGORITHMS, family_named
from trainers.algorithms.collaborative.oracle import Participants
from trainers.algorithms.dsgd import Dsgd, State
from trainers.algorithms.dsgt import Dsgt
from trainers.algorithms.dsgt import State as TrackerState
from trainers.oracles.capabilities import (
    GivesGradients,
    GivesMessages,
    gives,
)

PLAIN = {
    **{name: name.removeprefix("dp-") for name in ALGORITHMS if name[:3] == "dp-"},
    **{name: f"{name}-plain" for name in ("partpsp", "sgpdp", "pedfl")},
    **{name: "sgp" for name in ALGORITHMS if name.endswith("d2p")},
    "adp2sgd": "adpsgd",
    "deep-q": "deep-q-noiseless",
}
for _name in ("dp-sgd-with-replacement", "dp-mf", "dp-mf-dsgd", "dp-mf-butterfly"):
    del PLAIN[_name]  # no plain form, and other batches than that of their namesake


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_registry_keeps_the_contract(name):
    contract.check(name, plain=PLAIN.get(name))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("dp-dinno", {"inner_steps": 3}),
        ("dp-dinno", {"optimiser": "adamw", "optimiser_state": "rebuilt"}),
        ("dp-dsgt", {"graph": "exponential"}),
        ("dyn-d2p", {"sampling": "without-replacement", "rho_c": 3.0}),
        ("adp2sgd", {"pairing": "graph", "speed": "uniform:0.5,1.5", "rounds": 20}),
        ("adpsgd", {"rounds": 20}),
        ("partpsp", {"shared": "*", "clip_by": "sample", "local_steps": 2}),
        ("deep-q", {"policy": "deep-q"}),
        ("deep-q", {"policy": "never"}),
    ],
)
def test_with_options_it_is_kept_as_well(name, settings):
    contract.check(name, settings)


def test_each_oracle_has_one_capability():
    for name in ALGORITHMS:
        oracle = family_named(name).oracle
        kinds = [gives(oracle, kind) for kind in (GivesGradients, GivesMessages)]
        assert sum(kinds) + issubclass(oracle, Participants) == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["sgd", "dsgd", "butterfly"])
def test_a_band_of_one_shares_no_noise(name):
    contract.check(f"dp-mf-{name}".removesuffix("-sgd"), {"band": 1}, plain=name)


_FOR_PUBLISHED = {"sensitivity": "published"}
_SLOW = {"rounds": 20, "speed": "uniform:0.5,1.5"}


# Each option where it has something to do: what stands beside it, and another value.
@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("name", "option", "other", "beside"),
    [
        ("dp-mf", "band", 3, {}),
        ("dp-mf", "parts", 9, {}),
        ("dp-mf", "buffers", 1, {"parts": 15}),
        ("dp-mf-butterfly", "band", 2, {}),
        ("dp-mf-butterfly", "parts", 2, {"band": 1, "rounds": 20}),
        ("dp-muffliato", "gossips", 2, {"rounds": 12}),
        ("dp-muffliato", "accelerated", False, {}),
        ("dp-decor", "correlated", 3.0, {}),
        ("dp-dinno", "rho", 1.0, {}),
        ("dp-dinno", "rho_growth", 1.5, {}),
        ("dp-dinno", "inner_steps", 2, {}),
        ("dp-dinno", "optimiser", "adamw", {}),
        ("dp-dinno", "optimiser_state", "rebuilt", {"optimiser": "adam"}),
        ("dp-fedavg", "band", 2, {"user_rate": 0.3, "train": 300}),
        ("dp-fedavg", "parts", 4, {"user_rate": 0.2, "band": 2}),
        ("dp-fedavg", "buffers", 1, {"user_rate": 0.5, "parts": 2}),
        ("dp-fedavg", "local_steps", 3, {}),
        ("dp-fedavg", "user_rate", 0.5, {}),
        ("dp-fedavg", "global_step_size", 0.5, {}),
        ("adp2sgd", "speed", "uniform:0.5,1.5", {}),
        ("adp2sgd", "link_time", 0.7, _SLOW),
        ("adp2sgd", "clock_seed", 1, _SLOW),
        ("adp2sgd", "pairing", "graph", _SLOW),
        ("dp-butterfly", "momentum", 0.5, {}),
        ("partpsp", "shared", "layers:2", {"model": "tanh-mlp"}),
        ("partpsp", "sensitivity", "real", {}),
        ("partpsp", "unit", "node", {}),
        ("partpsp", "sync_interval", 2, {}),
        ("partpsp", "local_step_size", 0.3, {"model": "tanh-mlp"}),
        ("partpsp", "local_steps", 2, {}),
        ("partpsp", "clip_by", "sample", {}),
        ("partpsp", "sampling", "poisson", {}),
        ("partpsp", "constant", 0.5, _FOR_PUBLISHED),
        ("partpsp", "decay", 0.5, {**_FOR_PUBLISHED, "sync_interval": 3}),
        ("partpsp", "failure", 1e-3, {"sync_interval": 3}),
        ("partpsp", "window", 1, {"sync_interval": 4, "rounds": 8}),
        ("dyn-d2p", "rho_c", 1.5, {}),
        ("dyn-d2p", "rho_mu", 1.5, {}),
        ("deep-q", "policy", "never", {}),
        ("deep-q", "regularisation", 0.5, {"step_size": 0.1}),
        ("deep-q", "global_first", 0.9, {"rounds": 20}),
        ("deep-q", "global_last", 0.3, {}),
        ("deep-q", "coin_seed", 1, {}),
        ("deep-q", "q_seed", 1, {"policy": "deep-q", "rounds": 20}),
        ("deep-q", "outcome", "local", {}),
        ("dp-sgd-with-replacement", "passes", 1, {"rounds": 10}),
        ("dp-sgd-with-replacement", "order_seed", 1, {}),
    ],
)
def test_an_option_changes_what_is_trained(name, option, other, beside):
    one, two = (
        contract.Case(name, {**beside, **more}).seen for more in ({}, {option: other})
    )
    if option != "unit":
        assert not torch.equal(one.models, two.models)
    else:
        assert one.ledger.nodes != two.ledger.nodes


class Mine(Dsgd):
    needs = ("doubly stochastic", "connected")


class MineTracked(Dsgt):
    defaults = {"graph": "exponential"}  # noqa: RUF012  # as a user writes it


@pytest.mark.parametrize("kind", [Mine, MineTracked])
def test_a_user_s_own_keeps_it(kind):
    contract.check(kind)


class ReadsStates(Dsgd):
    """Steps from the mean of all nodes' parameters, of which none was sent."""

    def round(self, state, inbox, private, k):
        gradient = private.gradient(at=state.theta)
        everybody = state.theta.mean(1, keepdim=True)
        return State(everybody.expand_as(gradient) - self.step_size(k) * gradient)


class LeavesOut(Dsgt):
    """Trackers are mixed, though none was sent."""

    def messages(self, state, k):
        return {"theta": state.theta}

    def round(self, state, inbox, private, k):
        ring = (1, -1, 0)
        tracker = sum(state.tracker.roll(by, 1) for by in ring) / len(ring)
        theta = inbox["theta"] - self.step_size(k) * tracker
        last = private.gradient(at=theta)
        return TrackerState(theta, last + (tracker - state.last), last)


class Twice(Dsgd):
    """Two gradients a round, of which one is planned."""

    def round(self, state, inbox, private, k):
        private.gradient(at=state.theta)
        return super().round(state, inbox, private, k)


class PastTheOracle(Dsgd):
    """Looks at the records themselves."""

    def round(self, state, inbox, private, k):
        state = super().round(state, inbox, private, k)
        looked = private.data.inputs.flatten(2).mean(1)
        return State(state.theta + 1e-3 * looked.mean(1)[None, :, None])


class Unnoised(Dsgd):
    """Steps along what the oracle keeps to itself, where it is to be had."""

    def round(self, state, inbox, private, k):
        gradient = private.gradient(at=state.theta)
        seen = getattr(private, "runs", 0)  # nothing that was released
        return State(inbox["theta"] - self.step_size(k) * gradient * (1 + seen))


class OtherDice(Dsgd):
    """Random numbers that no key decides."""

    def round(self, state, inbox, private, k):
        state = super().round(state, inbox, private, k)
        return State(state.theta + 1e-3 * torch.randn_like(state.theta))


class SeesRuns(Dsgd):
    """Runs of a block move each other."""

    def round(self, state, inbox, private, k):
        theta = super().round(state, inbox, private, k).theta
        return State(theta + 1e-3 * theta.mean(0, keepdim=True))


class Hides(Dsgd):
    """Keeps something beside its state, which no checkpoint has."""

    def round(self, state, inbox, private, k):
        last = 0.0 if k == 0 else HIDDEN[0]
        HIDDEN[:] = [private.gradient(at=state.theta)]
        return State(inbox["theta"] - self.step_size(k) * (HIDDEN[0] + last))


HIDDEN = [0.0]


class InPlace(Dsgd):
    """Changes what it is given."""

    def init(self, start):
        start += 1.0
        return State(start)


class Diverges(Dsgd):
    """Ends in no numbers."""

    def models(self, state):
        return state.theta / 0.0


class OtherShape(Dsgd):
    """Gives the mean of its nodes alone."""

    def models(self, state):
        return state.theta.mean(1)


class NotARow(Dsgd):
    """Sends one message for all nodes."""

    def messages(self, state, k):
        return {"theta": state.theta, "mean": state.theta.mean(1)}


class NewNames(Dsgd):
    """Sends more in a later round."""

    def messages(self, state, k):
        return {"theta": state.theta} | ({"more": state.theta} if k else {})


class Sparse(Dsgd):
    """Sends as many numbers as are above 0 somewhere."""

    def messages(self, state, k):
        some = (state.theta > 0).sum(2).max()
        return {"theta": state.theta, "some": state.theta[:, :, :some]}


class Deaf(Dsgd):
    """Never asks; so nothing is private, and nothing is learnt."""

    def round(self, state, inbox, private, k):
        return State(inbox["theta"])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (ReadsStates, "a node knows something of others that they did not send"),
        (LeavesOut, "a node knows something of others that they did not send"),
        (Twice, "node 0 made 8 releases, and 4 were planned"),
        (Deaf, "node 0 made 0 releases, and 4 were planned"),
        (PastTheOracle, "it asks the oracle for something else than a gradient"),
        (Unnoised, "no function of what the oracle gave out"),
        (OtherDice, "under equal seeds, message theta of round 1 differs"),
        (SeesRuns, "run 0 of 3 that are made together is not that run alone"),
        (Hides, "stopped after round 1, it goes on to other models"),
        (InPlace, "changes the parameters that it starts from"),
        (Diverges, "its models are not finite"),
        (OtherShape, "models have shape"),
        (NotARow, r"message mean has shape .* not \(runs, nodes, ...\)"),
        (NewNames, "round 1 sends .* and round 0 sent"),
        (Sparse, "how many numbers it sends depends on what it is given"),
    ],
)
def test_what_is_broken_is_said(kind, says):
    with pytest.raises(AssertionError, match=says):
        contract.check(kind)


def test_more_noise_is_no_plain_form():
    @dataclasses.dataclass(frozen=True)
    class Case(contract.Case):
        def trained(self, problem, *, noise=1.0, **more):
            return super().trained(problem, noise=noise or 0.1, **more)

    case = Case("dp-dsgd", {}, "dsgd")
    assert "it is not dsgd" in contract.without_noise_it_is_plain(case)
