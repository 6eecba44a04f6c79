"""The contract that every algorithm keeps, and `check`, which tests one for it.

The registry's algorithms pass. Test your own ``module:Class`` in the same way::

    from trainers import contract

    def test_mine():
        contract.check("mine:Gossip")

An algorithm promises that

- it trains: models are finite, (runs, nodes, dims), and the start is not changed;
- it releases what was planned, so that the noise is calibrated to what really happens;
- it is repeatable, and other noise gives other models;
- messages and final models depend on the data only through what the oracle gave out;
- runs that are made together equal runs made alone, to the bit (gradients of a batch
  of runs may round otherwise);
- a run that was stopped and resumed ends with the same bits;
- a node knows of others only what they sent, so that each may be a process of its own;
- a run without the canary equals one without any canary, and one with it differs by
  that record alone;
- without noise and clipping it equals its plain form, if it has one.

A promise is not tested if it does not apply: if the oracle gives out no gradients, or
the network cannot run in several processes. `check` does not prove privacy.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from privaudit.files.user_code import ForeignError
from privaudit.ledger import Entry, Ledger
from trainers.algorithms import family_named
from trainers.data import Dataset
from trainers.network.engine import Network, WorksFirst, begun
from trainers.network.over_ranks import RankInbox, Routes
from trainers.network.ranks import Ranks
from trainers.numerics.randomness import Streams
from trainers.oracles.capabilities import GivesGradients, gives
from trainers.oracles.recording import Messages, Recording, Tape
from trainers.runs import checkpoint
from trainers.runs.problem import Observers, Planted, Problem
from trainers.runs.training import training_from

SMALL: dict[str, Any] = {
    "nodes": 5,
    "graph": "ring",
    "digits": (0, 1, 2),
    "train": 150,
    "model": "softmax",
    "rounds": 4,
    "batch_size": 10.0,
    "clip_norm": 0.5,
    "step_size": 0.1,
}
_NOISE, _RUNS = 1.0, 3
_NO_CLIP = 1e15


def check(
    algorithm: str | type,
    settings: Mapping[str, Any] | None = None,
    *,
    plain: str | None = None,
) -> None:
    """Test an algorithm for the whole contract, in about a second.

    Parameters
    ----------
    algorithm
        A name of the registry, a user's ``module:Class``, or that class.
    settings
        Settings of the training and options of the algorithm that replace those in
        `SMALL`.
    plain
        The name of its plain form (without noise and clipping), if there is one.

    Raises
    ------
    AssertionError
        If it breaks a promise; the message says which.
    ValueError
        If the settings do not fit, or the algorithm does not exist.
    """
    if isinstance(algorithm, type):
        algorithm = f"{algorithm.__module__}:{algorithm.__qualname__}"
    case = Case(algorithm, dict(settings or {}), plain)
    for promise, broken in PROMISES.items():
        found = broken(case)
        if found:
            raise AssertionError(
                f"{algorithm} breaks the contract ({promise}): {found}"
            )


@dataclasses.dataclass(frozen=True)
class Seen:
    """One training, all that was to be seen of it, and what it ended with."""

    models: Tensor
    ledger: Ledger
    messages: Messages
    recording: Recording


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """An algorithm by name, with settings upon `SMALL`."""

    name: str
    settings: Mapping[str, Any]
    plain: str | None = None

    @functools.cached_property
    def problem(self) -> Problem:
        """A small one."""
        return self.of()

    def of(self, **more: Any) -> Problem:
        """The problem with ``more`` settings."""
        family = family_named(self.name)
        beneath = {**family.defaults, **SMALL, **family.audited}
        beneath["graph"] = family.defaults.get("graph", SMALL["graph"])
        values = {**beneath, "algorithm": self.name, **self.settings, **more}
        return Problem.of(training_from(values, where="the contract"))

    @property
    def gives_gradients(self) -> bool:
        """Return whether its oracle gives out gradients."""
        return gives(self.problem.training.family.oracle, GivesGradients)

    @functools.cached_property
    def seen(self) -> Seen:
        """Messages and models of the noisy training."""
        return self.trained(self.problem)

    def trained(
        self,
        problem: Problem,
        *,
        noise: float = _NOISE,
        runs: int = _RUNS,
        first: int = 0,
        **more: Any,
    ) -> Seen:
        """Train ``runs`` at once; equal calls are equal."""
        messages, recording = Messages(), Recording()
        models, ledger = problem.train(
            noise,
            Streams(0, first),
            runs=runs,
            observers=Observers(
                (messages,), (recording,) if self.gives_gradients else ()
            ),
            **more,
        )
        return Seen(models, ledger, messages, recording)


def trains(case: Case) -> str:
    """Models are finite and of the right shape, messages have names in each round."""
    problem, start = case.problem, case.problem.start(0, _RUNS)
    kept = start.clone()
    seen = case.trained(problem, start=start)
    if not torch.equal(start, kept):
        return "it changes the parameters that it starts from, in place"
    if seen.models.shape != start.shape:
        return (
            f"models have shape {tuple(seen.models.shape)}, and must have (runs, "
            f"nodes, dims) = {tuple(start.shape)}"
        )
    if not seen.models.isfinite().all():
        return "its models are not finite"
    shapes = _shapes(seen)
    for k, shape in enumerate(shapes):
        if shape.keys() != shapes[0].keys():
            return f"round {k} sends {[*shape]}, and round 0 sent {[*shapes[0]]}"
        for name, each in shape.items():
            if each[:2] != start.shape[:2]:
                return f"message {name} has shape {each}, not (runs, nodes, ...)"
    return ""


def releases_what_was_planned(case: Case) -> str:
    """The ledger is the family's own, composition knowing no order."""
    problem = case.problem
    try:
        plan = problem.ledger(_NOISE)
    except ValueError:
        if problem.training.family.private:
            raise
        return ""  # what has no noise may have no plan
    at_most = problem.training.family.plans_at_most(problem.setting)
    for node, (one, other) in enumerate(
        zip(case.seen.ledger.nodes, plan.nodes, strict=True)
    ):
        written, planned = _amounts(one), _amounts(other)
        if at_most and written <= planned:
            continue
        if written.total() != planned.total():
            return (
                f"node {node} made {written.total()} releases, and {planned.total()} "
                "were planned"
            )
        if written != planned:
            return f"what node {node} released is not what was planned"
    return ""


def _amounts(entries: tuple[Entry, ...]) -> collections.Counter[Any]:
    amounts: collections.Counter[Any] = collections.Counter()
    for entry in entries:
        amounts[entry.release, entry.disjoint] += entry.count
    return amounts


def is_repeatable(case: Case) -> str:
    """Equal seeds give equal bits; other noise gives other models."""
    again = case.trained(case.problem)
    unequal = case.seen.messages.differs_from(again.messages)
    if unequal:
        return f"under equal seeds, {unequal[0]} differs"
    if not torch.equal(case.seen.models, again.models):
        return "under equal seeds, the final models differ"
    other = case.trained(case.problem, first=100)
    family = case.problem.training.family
    if family.private and torch.equal(other.models, case.seen.models):
        return "noise makes no difference to its models"
    if _shapes(other) != _shapes(case.seen):
        return "how many numbers it sends depends on what it is given"
    return ""


def _shapes(seen: Seen) -> list[dict[str, tuple[int, ...]]]:
    """Shapes of the messages of each round, by name."""
    return [
        {name: tuple(sent.shape) for name, sent in round_.items()}
        for round_ in seen.messages.sent
    ]


def runs_are_independent(case: Case) -> str:
    """A run of a block is the same run alone; to the bit, but for its gradients'."""
    problem, together = case.problem, case.seen.models
    for run in range(_RUNS):
        alone = case.trained(problem, runs=1, first=run).models
        same = torch.allclose(alone[0], together[run], rtol=1e-4, atol=1e-6)
        if case.gives_gradients:
            tape = _tape(case.seen.recording, len(problem.shares), runs=[run])
            rounds = problem.training.rounds
            again = problem.network.run(problem.start(0), tape, rounds)
            same = same and torch.equal(again[0], together[run])
        if not same:
            return f"run {run} of {_RUNS} that are made together is not that run alone"
    return ""


def goes_on_after_a_stop(case: Case) -> str:
    """From a checkpoint of any round to the same bits and the same ledger."""
    kept: dict[int, bytes] = {}
    problem = case.problem
    problem.train(
        _NOISE,
        Streams(0),
        runs=_RUNS,
        observers=Observers(
            keep=lambda done, middle: kept.update({done: checkpoint.pack(middle())})
        ),
    )
    for done, content in kept.items():
        models, ledger = problem.train(
            _NOISE, Streams(0), runs=_RUNS, resume=checkpoint.unpack(content)
        )
        if not torch.equal(models, case.seen.models):
            return f"stopped after round {done}, it goes on to other models"
        if ledger != case.seen.ledger:
            return f"stopped after round {done}, it goes on to another ledger"
    return ""


def uses_nothing_but_releases(case: Case) -> str:
    """Replayed from what the oracle gave out, without any data, all is the same."""
    if not case.gives_gradients:
        return ""
    problem, messages = case.problem, Messages()
    tape = _tape(case.seen.recording, len(problem.shares))
    try:
        models = problem.network.run(
            problem.start(0, _RUNS),
            tape,
            problem.training.rounds,
            observers=(messages,),
        )
    except (AttributeError, StopIteration, ForeignError) as error:
        return f"it asks the oracle for something else than a gradient ({error})"
    unequal = case.seen.messages.differs_from(messages)
    if unequal:
        return f"{unequal[0]} is no function of what the oracle gave out"
    if not torch.equal(models, case.seen.models):
        return "the final models are no function of what the oracle gave out"
    return ""


def nodes_may_live_alone(case: Case) -> str:
    """Each node by itself, with what it hears and nothing else, ends as in one process.

    Nodes are given their own rows of the state and of what the oracle gave out, and an
    inbox of those that they hear.
    """
    problem = case.problem
    network = problem.network
    if not (case.gives_gradients and problem.training.family.over_ranks):
        return ""
    if not isinstance(network, Network):
        return "its runner is no Network, so that it cannot live in several processes"
    nodes, start = range(network.nodes), problem.start(0, _RUNS)
    ranks = [Ranks(node, len(nodes), len(nodes)) for node in nodes]
    tapes = [_tape(case.seen.recording, 1, nodes=[node]) for node in nodes]
    alone = [problem.training.make() for _ in nodes]
    try:
        states = [
            begun(alone[i], start[:, i : i + 1].clone(), range(i, i + 1)) for i in nodes
        ]
        for k in range(problem.training.rounds):
            sent: list[dict[str, Tensor]] = []
            for i, algorithm in enumerate(alone):
                if isinstance(algorithm, WorksFirst):
                    states[i] = algorithm.local(states[i], tapes[i], k)
                sent.append(algorithm.messages(states[i], k))
            together = {
                name: torch.cat([one[name] for one in sent], 1) for name in sent[0]
            }
            for name, whole in together.items():
                if not torch.equal(whole, case.seen.messages.sent[k][name]):
                    return _KNOWS.format(f"what it sends as {name} in round {k}")
            for i, algorithm in enumerate(alone):
                places = Routes.of(network.mixing.heard(k), ranks[i]).places
                heard = {name: all_[:, list(places)] for name, all_ in together.items()}
                held = ranks[i].held
                inbox = RankInbox(heard, network.mixing, k, held, places)
                states[i] = algorithm.round(states[i], inbox, tapes[i], k)
    except (RuntimeError, IndexError, StopIteration, ForeignError) as error:
        return f"a node that lives alone cannot make a round: {error}"
    models = torch.cat([a.models(s) for a, s in zip(alone, states, strict=True)], 1)
    if not torch.equal(models, case.seen.models):
        return _KNOWS.format("its final model")
    return ""


_KNOWS = "a node knows something of others that they did not send: alone, {} differs"


def _tape(
    recording: Recording,
    count: int,
    *,
    runs: Sequence[int] = range(_RUNS),
    nodes: Sequence[int] | None = None,
) -> Tape:
    """Tape of the releases in ``runs``, of ``nodes`` (all by default), as an oracle."""
    own = Recording()
    for (at, given), asked in zip(recording.releases, recording.nodes, strict=True):
        rows = [asked.index(n) for n in (asked if nodes is None else nodes)]
        own.releases.append((at[list(runs)][:, rows], given[list(runs)][:, rows]))
    return Tape(own, count)


def worlds_differ_by_the_canary_alone(case: Case) -> str:
    """Not planted, a canary is nothing; planted, node 0 alone has a record for it."""
    problem = case.problem
    record = Dataset(problem.test.inputs[:1] * 3.0, problem.test.targets[:1])
    worlds = [
        case.trained(problem, planted=Planted(record, torch.full((_RUNS,), joins)))
        for joins in (False, True)
    ]
    without, within = worlds
    if not torch.equal(without.models, case.seen.models):
        return "a canary that is not planted changes its models"
    if within.ledger != without.ledger:
        return "what it releases depends on whether the canary is there"
    pairs = zip(without.recording.releases, within.recording.releases, strict=True)
    for (_, one), (_, other) in [*pairs][:1]:
        if not torch.equal(one[:, 1:], other[:, 1:]):
            return "a canary of node 0 changes the first release of another node"
    if torch.equal(within.models, without.models):
        return "a canary that is planted is never used"
    return ""


def without_noise_it_is_plain(case: Case) -> str:
    """With no noise, and nothing clipped, it trains as its plain form does."""
    if case.plain is None:
        return ""
    problem = case.of(clip_norm=_NO_CLIP)
    options = family_named(case.plain).options.__struct_fields__
    known = {k: v for k, v in problem.training.options.items() if k in options}
    other = msgspec.structs.replace(
        problem.training, algorithm=case.plain, options=known
    )
    models = case.trained(problem, noise=0.0).models
    if not torch.equal(case.trained(Problem.of(other), noise=0.0).models, models):
        return f"without noise and clipping it is not {case.plain}"
    return ""


PROMISES: dict[str, Callable[[Case], str]] = {
    "it trains": trains,
    "releases": releases_what_was_planned,
    "repeatable": is_repeatable,
    "nothing but releases": uses_nothing_but_releases,
    "runs": runs_are_independent,
    "checkpoints": goes_on_after_a_stop,
    "nodes": nodes_may_live_alone,
    "worlds": worlds_differ_by_the_canary_alone,
    "plain form": without_noise_it_is_plain,
}
