"""One file an algorithm: its state and its round, nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from trainers.algorithms import dyn_d2p as d2p
from trainers.algorithms.asynchronous.family import (
    ClockOptions,
    Sync,
    Untimed,
    WorkerOptions,
    all_reduce,
    asynchronous,
    by_theorem_two,
    fixed_lots,
    ledger_of_turns,
)
from trainers.algorithms.asynchronous.family import remarks as _of_the_clock
from trainers.algorithms.collaborative import family as deep_q
from trainers.algorithms.dinno import Dinno, DinnoOptions
from trainers.algorithms.dsgd import Dsgd
from trainers.algorithms.dsgt import Dsgt
from trainers.algorithms.entry import Entry, Options
from trainers.algorithms.partpsp import family as perturbed
from trainers.algorithms.partpsp.family import (
    PartPspOptions,
    PedflOptions,
    SgpdpOptions,
)
from trainers.algorithms.partpsp.partpsp import PartPsp
from trainers.algorithms.sgd import Sgd
from trainers.algorithms.sgp import Sgp
from trainers.network.engine import Algorithm
from trainers.network.mixing import Property
from trainers.network.push_sum import NEEDS as _PUSH_SUM
from trainers.oracles.messages.dpps import NEEDS as _DPPS
from trainers.oracles.messages.oracle import MessageDoor

__all__ = ["ALGORITHMS", "Entry", "Options"]


def _entries(name: str, make: Callable[..., Algorithm], **more: Any) -> dict:
    """The private and the plain form of an algorithm."""
    return {
        f"dp-{name}": Entry(make=make, private=True, **more),
        name: Entry(make=make, private=False, **more),
    }


def _perturbed_messages(name: str, options: type[PartPspOptions]) -> dict:
    """The private and the plain form of an algorithm whose messages have noise."""
    entry = Entry(
        make=PartPsp,
        private=True,
        needs=_DPPS,
        options=options,
        runner=perturbed.network,
        door=MessageDoor,
        mechanism=perturbed.mechanism,
        ledger=perturbed.ledger,
        paper_noise=perturbed.paper_noise,
        remarks=perturbed.remarks,
        defaults=_SHARED_DIGITS,
        stays_home=perturbed.keeps_parameters,
    )
    plain = dataclasses.replace(entry, private=False, remarks=lambda training: ())
    return {name: entry, f"{name}-plain": plain}


_SHARED_DIGITS: dict[str, Any] = {
    "nodes": 10,
    "graph": "d-out:2",
    "model": "tanh-mlp",
    "rounds": 200,
    "lot_size": 50.0,
    # At epsilon 1, noise leaves room for tiny steps of what is shared only.
    "clip_norm": 1e-4,
    "step_size": 0.5,
}
# The time-varying directed graph of Dyn-D2P's experiments.
_PUSHED: dict[str, Any] = {"graph": "exponential", "weights": "column-stochastic"}


def _d2p(options: type[d2p.ConstD2p]) -> Entry:
    """A variant of Dyn-D2P: stochastic gradient push with schedules of its own."""
    return Entry(
        make=Sgp,
        private=True,
        needs=_PUSH_SUM,
        options=options,
        mechanism=d2p.scheduled,
        paper_noise=d2p.by_the_paper,
        defaults=_PUSHED,
    )


# Gossip keeps the mean, at which all nodes then meet, if and only if W is doubly
# stochastic and the graph connected over time; it need not be undirected (DSGD: Nedic
# and Ozdaglar 2009; gradient tracking: Nedic, Olshevsky and Shi 2017).
_GOSSIP: tuple[Property, ...] = ("doubly stochastic", "connected")

ALGORITHMS: dict[str, Entry] = {
    **_entries("sgd", Sgd, central=True),
    **_entries("dsgd", Dsgd, needs=_GOSSIP),
    **_entries("dsgt", Dsgt, needs=_GOSSIP, defaults={"step_size": 0.5}),
    **_entries(
        "dinno",
        Dinno,
        needs=("undirected", "connected"),
        options=DinnoOptions,
        # On digits at epsilon 1, plain steps reached .65 where Adam's reached .33.
        defaults={"optimiser": "sgd", "rho": 0.1, "step_size": 0.5},
        releases_a_round=lambda algorithm: algorithm.inner_steps,
    ),
    **{
        name: Entry(
            make=Untimed,
            private=private,
            needs=("connected",),
            options=WorkerOptions,
            runner=asynchronous,
            mechanism=fixed_lots,
            ledger=ledger_of_turns,
            paper_noise=by_theorem_two if private else None,
            remarks=_of_the_clock,
            # Global steps, not rounds of all. On digits at epsilon 1, a model of few
            # parameters and few steps reached .65 where the small CNN reached .19.
            defaults={"rounds": 200, "model": "softmax", "step_size": 1.0}
            if private
            else {"rounds": 800},
        )
        for name, private in {"adp2sgd": True, "adpsgd": False}.items()
    },
    **_entries(
        "sync",
        Sync,
        needs=_GOSSIP,
        options=ClockOptions,
        runner=all_reduce,
        mechanism=fixed_lots,
        defaults={"model": "softmax", "step_size": 1.0},
    ),
    **_perturbed_messages("partpsp", PartPspOptions),
    **_perturbed_messages("sgpdp", SgpdpOptions),
    **_perturbed_messages("pedfl", PedflOptions),
    "dyn-d2p": _d2p(d2p.DynD2p),
    "dyn-c-d2p": _d2p(d2p.DynCD2p),
    "dyn-mu-d2p": _d2p(d2p.DynMuD2p),
    "const-d2p": _d2p(d2p.ConstD2p),
    "general-d2p": _d2p(d2p.GeneralD2p),
    "sgp": Entry(make=Sgp, private=False, needs=_PUSH_SUM, defaults=_PUSHED),
    **deep_q.ENTRIES,
}
