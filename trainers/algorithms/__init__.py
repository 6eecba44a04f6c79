"""One file an algorithm: its state and its round, nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from trainers.algorithms.dsgd import Dsgd
from trainers.algorithms.sgd import Sgd
from trainers.engine import Algorithm, Schedule


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """An algorithm by name.

    Parameters
    ----------
    make
        From a step size schedule to the algorithm.
    private
        Whether its oracle clips and adds noise.
    central
        Whether it runs at one place that holds all data.
    """

    make: Callable[[Schedule], Algorithm]
    private: bool
    central: bool = False


ALGORITHMS: dict[str, Entry] = {
    "dp-sgd": Entry(Sgd, private=True, central=True),
    "sgd": Entry(Sgd, private=False, central=True),
    "dp-dsgd": Entry(Dsgd, private=True),
    "dsgd": Entry(Dsgd, private=False),
}
