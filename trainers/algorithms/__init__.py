"""One file an algorithm: its state and its round, nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from trainers.algorithms.dinno import Dinno
from trainers.algorithms.dsgd import Dsgd
from trainers.algorithms.dsgt import Dsgt
from trainers.algorithms.sgd import Sgd
from trainers.engine import Algorithm
from trainers.mixing import Property


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """An algorithm by name.

    Parameters
    ----------
    make
        From a step size schedule, and ``options`` by name, to the algorithm.
    private
        Whether its oracle clips and adds noise.
    central
        Whether it runs at one place that holds all data.
    needs
        What must be true of the mixing matrices for it to be valid.
    options
        Which arguments ``make`` has beside the step size; all have defaults.
    releases_a_round
        How often an algorithm of this entry asks the oracle in one round.
    """

    make: Callable[..., Algorithm]
    private: bool
    central: bool = False
    needs: tuple[Property, ...] = ()
    options: frozenset[str] = frozenset()
    releases_a_round: Callable[[Any], int] = lambda algorithm: 1

    def releases(self, algorithm: Algorithm, rounds: int) -> int:
        """How often ``algorithm``, made by this entry, asks in ``rounds`` rounds."""
        return rounds * self.releases_a_round(algorithm)


def _entries(name: str, make: Callable[..., Algorithm], **more: Any) -> dict:
    """The private and the plain form of an algorithm."""
    return {
        f"dp-{name}": Entry(make, private=True, **more),
        name: Entry(make, private=False, **more),
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
        options=frozenset({"rho", "inner_steps", "optimiser", "optimiser_state"}),
        releases_a_round=lambda algorithm: algorithm.inner_steps,
    ),
}
