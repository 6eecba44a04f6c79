"""One file an algorithm: its state and its round, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainers.algorithms import deep_q
from trainers.algorithms.dinno import Dinno, DinnoOptions
from trainers.algorithms.dsgd import Dsgd
from trainers.algorithms.dsgt import Dsgt
from trainers.algorithms.entry import Entry, Options
from trainers.algorithms.sgd import Sgd
from trainers.collaborative.door import Participants
from trainers.collaborative.runner import Collaboration
from trainers.engine import Algorithm
from trainers.mixing import Property

__all__ = ["ALGORITHMS", "Entry", "Options"]


def _entries(name: str, make: Callable[..., Algorithm], **more: Any) -> dict:
    """The private and the plain form of an algorithm."""
    return {
        f"dp-{name}": Entry(make=make, private=True, **more),
        name: Entry(make=make, private=False, **more),
    }


# Gossip keeps the mean, at which all nodes then meet, if and only if W is doubly
# stochastic and the graph connected over time; it need not be undirected (DSGD: Nedic
# and Ozdaglar 2009; gradient tracking: Nedic, Olshevsky and Shi 2017).
_GOSSIP: tuple[Property, ...] = ("doubly stochastic", "connected")


def _collaborative(*, private: bool) -> Entry:
    """One pass with local and global models (paper 002)."""
    return Entry(
        make=deep_q.make,
        private=private,
        options=deep_q.CollaborativeOptions,
        runner=Collaboration,
        door=Participants,
        mechanism=deep_q.one_pass,
        ledger=deep_q.planned,
        paper_noise=deep_q.paper_noise if private else None,
        defaults=deep_q.DEFAULTS,
        audited=deep_q.AUDITED,
        stays_home=deep_q.stays_home,
    )


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
    "deep-q": _collaborative(private=True),
    "deep-q-noiseless": _collaborative(private=False),
}
