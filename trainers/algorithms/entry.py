"""What an algorithm is registered with, beside its own file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from privaudit.ledger import Ledger
from trainers.network.engine import Algorithm, Network, Runner
from trainers.network.mixing import Property
from trainers.oracles.oracle import Mechanism, Oracle

if TYPE_CHECKING:
    from trainers.runs.problem import Problem
    from trainers.runs.training import Training


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an algorithm takes beside the settings that all have; none by default.

    A subclass has a default for every field, and raises ``ValueError`` for a value out
    of its range.
    """

    def arguments(self, rounds: int) -> dict[str, Any]:
        """What the algorithm is made with, beside its step sizes: set fields, as is."""
        return {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if getattr(self, name) is not None
        }


def clipped_lots(training: Training, noise_multiplier: float) -> Mechanism:
    """Poisson lots, one clip norm, one noise multiplier; neither if not private."""
    if not training.entry.private:
        return Mechanism(training.lot_size)
    return Mechanism(training.lot_size, training.clip_norm, noise_multiplier)


def planned_releases(problem: Problem, noise_multiplier: float) -> Ledger:
    """The same number of releases at every node, as often as the algorithm asks."""
    training = problem.training
    mechanism = training.mechanism(noise_multiplier)
    releases = training.entry.releases(problem.network.algorithm, training.rounds)
    return mechanism.ledger(problem.sizes, releases)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An algorithm by name.

    Parameters
    ----------
    make
        From a step size schedule, and what its options say, to the algorithm.
    private
        Whether its oracle clips and adds noise.
    central
        Whether it runs at one place that holds all data.
    needs
        What must be true of the mixing matrices for it to be valid.
    options
        What it takes beside the settings that all have.
    runner
        What runs it: from algorithm, mixing and ``needs``.
    door
        What it is given of the private data; made like
        `trainers.oracles.oracle.Oracle`.
    mechanism
        From settings and a noise multiplier to how gradients are made private. All
        noise must grow with the multiplier: that is what calibration searches.
    ledger
        What a run would release, from the problem and a noise multiplier.
    paper_noise
        The noise multiplier by the paper's own account, from the problem, epsilon and
        delta; None if that is none other than the usual ones.
    remarks
        What must be said beside its account, in sentences, of given settings.
    defaults
        Settings that training starts from unless the user sets others.
    audited
        Settings that an audit starts from in the place of
        `privaudit.auditing.experiments.presets.AUDITED`'s.
    stays_home
        Whether the final models never leave their nodes, so that no attack may read
        them.
    releases_a_round
        How often an algorithm of this entry asks the oracle in one round.
    """

    make: Callable[..., Any]
    private: bool
    central: bool = False
    needs: tuple[Property, ...] = ()
    options: type[Options] = Options
    runner: Callable[[Any, Any, tuple[Property, ...]], Runner] = Network
    door: Callable[..., Any] = Oracle
    mechanism: Callable[[Training, float], Mechanism] = clipped_lots
    ledger: Callable[[Problem, float], Ledger] = planned_releases
    paper_noise: Callable[[Problem, float, float], float] | None = None
    remarks: Callable[[Training], tuple[str, ...]] = lambda training: ()
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    audited: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stays_home: Callable[[Training], bool] = lambda training: False
    releases_a_round: Callable[[Any], int] = lambda algorithm: 1

    def releases(self, algorithm: Algorithm, rounds: int) -> int:
        """How often ``algorithm``, made by this entry, asks in ``rounds`` rounds."""
        return rounds * self.releases_a_round(algorithm)
