"""The registry of algorithms, `ALGORITHMS`: one file each, one folder a family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from privaudit.files.arguments import near
from privaudit.files.user_code import is_place
from trainers.algorithms import dyn_d2p
from trainers.algorithms.asynchronous.family import (
    AllReduce,
    ClockOptions,
    PrivateWorkers,
    Sync,
    Untimed,
    WorkerOptions,
    Workers,
)
from trainers.algorithms.butterfly import Butterfly, ButterflyFamily, ButterflyOptions
from trainers.algorithms.collaborative.family import FAMILIES as _COLLABORATIVE
from trainers.algorithms.decor import Decor, DecorFamily, DecorOptions
from trainers.algorithms.dinno import Dinno, DinnoFamily, DinnoOptions
from trainers.algorithms.dsgd import Dsgd
from trainers.algorithms.dsgt import Dsgt
from trainers.algorithms.family import Family
from trainers.algorithms.fedavg import Fedavg, FedavgFamily, FedavgOptions
from trainers.algorithms.mf import (
    MfButterflyFamily,
    MfButterflyOptions,
    MfFamily,
    MfOptions,
)
from trainers.algorithms.muffliato import Muffliato, MuffliatoFamily, MuffliatoOptions
from trainers.algorithms.partpsp.family import (
    NoisyMessages,
    PartPspOptions,
    PedflOptions,
    PlainMessages,
    SgpdpOptions,
)
from trainers.algorithms.partpsp.partpsp import PartPsp
from trainers.algorithms.setting import Options
from trainers.algorithms.sgd import Sgd
from trainers.algorithms.sgp import Sgp
from trainers.algorithms.user_algorithms import family_at
from trainers.network.mixing import Property
from trainers.network.push_sum import NEEDS as _PUSH_SUM
from trainers.oracles.messages.dpps import NEEDS as _DPPS
from trainers.oracles.messages.oracle import MessageOracle
from trainers.oracles.secrets import PairedOracle
from trainers.oracles.updates import UpdateOracle

__all__ = ["ALGORITHMS", "Family", "Options", "family_named"]


def _both(
    name: str, make: Callable[..., Any], kind: type[Family] = Family, **more: Any
) -> dict:
    """The private and the plain form of an algorithm."""
    return {
        f"dp-{name}": kind(make=make, private=True, **more),
        name: kind(make=make, private=False, **more),
    }


_SHARED_DIGITS: dict[str, Any] = {
    "nodes": 10,
    "graph": "d-out:2",
    "model": "tanh-mlp",
    "rounds": 200,
    "batch_size": 50.0,
    # At epsilon 1, noise leaves room for tiny steps of what is shared only.
    "clip_norm": 1e-4,
    "step_size": 0.5,
}


def _messages(name: str, options: type[PartPspOptions]) -> dict:
    """The private and the plain form of an algorithm whose messages have noise."""
    more: dict[str, Any] = {
        "make": PartPsp,
        "needs": _DPPS,
        "options": options,
        "oracle": MessageOracle,
        "defaults": _SHARED_DIGITS,
    }
    return {
        name: NoisyMessages(private=True, **more),
        f"{name}-plain": PlainMessages(private=False, **more),
    }


# The time-varying directed graph of Dyn-D2P's experiments.
_PUSHED: dict[str, Any] = {"graph": "exponential", "weights": "column-stochastic"}


def _d2p(options: type[dyn_d2p.ConstD2p]) -> Family:
    """A variant of Dyn-D2P: stochastic gradient push with schedules of its own."""
    return dyn_d2p.Pushed(
        make=Sgp, private=True, needs=_PUSH_SUM, options=options, defaults=_PUSHED
    )


# As many exchanges a step as the number of nodes has bits: 200 steps.
_SUMS: dict[str, Any] = {
    "graph": "butterfly",
    "nodes": 8,
    "rounds": 600,
    "model": "softmax",
    "step_size": 1.0,
}
_AUDITED_SUMS: dict[str, Any] = {"nodes": 4, "graph": "butterfly", "split": 0.0}

# Gossip keeps the mean, at which all nodes then meet, if and only if W is doubly
# stochastic and the graph connected over time; it need not be undirected (DSGD: Nedic
# and Ozdaglar 2009; gradient tracking: Nedic, Olshevsky and Shi 2017).
_GOSSIP: tuple[Property, ...] = ("doubly stochastic", "connected")

ALGORITHMS: dict[str, Family] = {
    **_both("sgd", Sgd, central=True),
    "dp-mf": MfFamily(make=Sgd, private=True, central=True, options=MfOptions),
    "dp-mf-dsgd": MfFamily(
        make=Dsgd, private=True, needs=_GOSSIP, options=MfOptions, outlives=True
    ),
    **_both("dsgd", Dsgd, needs=_GOSSIP, outlives=True),
    **_both("dsgt", Dsgt, needs=_GOSSIP, defaults={"step_size": 0.5}, outlives=True),
    **_both(
        "muffliato",
        Muffliato,
        MuffliatoFamily,
        needs=_GOSSIP,
        options=MuffliatoOptions,
        # As a step is four rounds: 50 steps.
        defaults={"rounds": 200, "model": "softmax", "step_size": 1.0},
    ),
    **_both(
        "decor",
        Decor,
        DecorFamily,
        needs=(*_GOSSIP, "undirected"),
        options=DecorOptions,
        oracle=PairedOracle,
        over_ranks=False,
        one_process="draws what pairs of nodes share from one key",
    ),
    **_both(
        "dinno",
        Dinno,
        DinnoFamily,
        needs=("undirected", "connected"),
        outlives=True,
        options=DinnoOptions,
        # On digits at epsilon 1, plain steps reached .65 where Adam's reached .33.
        defaults={"optimiser": "sgd", "rho": 0.1, "step_size": 0.5},
    ),
    **_both(
        "fedavg",
        Fedavg,
        FedavgFamily,
        needs=_GOSSIP,
        options=FedavgOptions,
        oracle=UpdateOracle,
        defaults={"step_size": 0.1},
        # A user's steps are made one user at a time.
        audited={"model": "softmax", "rounds": 10, "local_steps": 2, "clip_norm": 1.0},
    ),
    # Global steps, not rounds of all. On digits at epsilon 1, a model of few parameters
    # and few steps reached .65 where the small CNN reached .19.
    "adp2sgd": PrivateWorkers(
        make=Untimed,
        private=True,
        needs=("connected",),
        options=WorkerOptions,
        defaults={"rounds": 200, "model": "softmax", "step_size": 1.0},
    ),
    "adpsgd": Workers(
        make=Untimed,
        private=False,
        needs=("connected",),
        options=WorkerOptions,
        defaults={"rounds": 800},
    ),
    **_both(
        "sync",
        Sync,
        AllReduce,
        needs=_GOSSIP,
        options=ClockOptions,
        defaults={"model": "softmax", "step_size": 1.0},
    ),
    **_both(
        "butterfly",
        Butterfly,
        ButterflyFamily,
        needs=("connected",),
        options=ButterflyOptions,
        defaults=_SUMS,
        audited=_AUDITED_SUMS,
    ),
    **_both(
        "chain",
        Butterfly,
        ButterflyFamily,
        graph="chain",
        needs=("connected",),
        options=ButterflyOptions,
        # As many exchanges a step as nodes: 200 steps.
        defaults={**_SUMS, "graph": "chain", "rounds": 1600},
        audited={**_AUDITED_SUMS, "graph": "chain", "rounds": 12},
    ),
    "dp-mf-butterfly": MfButterflyFamily(
        make=Butterfly,
        private=True,
        needs=("connected",),
        options=MfButterflyOptions,
        defaults=_SUMS,
        audited=_AUDITED_SUMS,
    ),
    **_messages("partpsp", PartPspOptions),
    **_messages("sgpdp", SgpdpOptions),
    **_messages("pedfl", PedflOptions),
    "dyn-d2p": _d2p(dyn_d2p.DynD2p),
    "dyn-c-d2p": _d2p(dyn_d2p.DynCD2p),
    "dyn-mu-d2p": _d2p(dyn_d2p.DynMuD2p),
    "const-d2p": _d2p(dyn_d2p.ConstD2p),
    "general-d2p": _d2p(dyn_d2p.GeneralD2p),
    "sgp": Family(make=Sgp, private=False, needs=_PUSH_SUM, defaults=_PUSHED),
    **_COLLABORATIVE,
}


def family_named(name: str) -> Family:
    """The family of a registered algorithm, or of a user's ``module:Class``."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if is_place(name):
        return family_at(name)
    raise ValueError(
        f"there is no algorithm {name!r}; "
        f"{near(name, ALGORITHMS, 'your own as module:Class')}"
    )


def option_names(*more: str) -> set[str]:
    """Options that some algorithm takes: one of the registry, or one of ``more``."""
    families = [*ALGORITHMS.values(), *map(family_named, more)]
    return {name for family in families for name in family.options.__struct_fields__}
