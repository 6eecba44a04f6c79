"""One file an algorithm: its state and its round, nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from trainers.algorithms import partpsp
from trainers.algorithms.dinno import Dinno, DinnoOptions
from trainers.algorithms.dsgd import Dsgd
from trainers.algorithms.dsgt import Dsgt
from trainers.algorithms.entry import Entry, Options
from trainers.algorithms.partpsp import (
    PartPsp,
    PartPspOptions,
    PedflOptions,
    SgpdpOptions,
)
from trainers.algorithms.sgd import Sgd
from trainers.dpps import NEEDS as _DPPS
from trainers.engine import Algorithm
from trainers.message_door import MessageDoor
from trainers.mixing import Property

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
        runner=partpsp.network,
        door=MessageDoor,
        mechanism=partpsp.mechanism,
        ledger=partpsp.ledger,
        paper_noise=partpsp.paper_noise,
        defaults=_SHARED_DIGITS,
    )
    return {name: entry, f"{name}-plain": dataclasses.replace(entry, private=False)}


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

# Gossip keeps the mean, at which all nodes then meet, if and only if W is doubly
# stochastic and the graph connected over time; it need not be undirected (DSGD: Nedic
# and Ozdaglar 2009; gradient tracking: Nedic, Olshevsky and Shi 2017).
_GOSSIP: tuple[Property, ...] = ("doubly stochastic", "connected")

ALGORITHMS: dict[str, Entry] = {
    **_entries("sgd", Sgd, central=True),
    **_entries("dsgd", Dsgd, needs=_GOSSIP),
    **_entries("dsgt", Dsgt, needs=_GOSSIP),
    **_entries(
        "dinno",
        Dinno,
        needs=("undirected", "connected"),
        options=DinnoOptions,
        releases_a_round=lambda algorithm: algorithm.inner_steps,
    ),
    **_perturbed_messages("partpsp", PartPspOptions),
    **_perturbed_messages("sgpdp", SgpdpOptions),
    **_perturbed_messages("pedfl", PedflOptions),
}
