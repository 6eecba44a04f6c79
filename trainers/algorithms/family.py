"""Families of algorithms: how each is made, run and accounted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, runtime_checkable

import msgspec

from privaudit.ledger import Ledger
from trainers.algorithms.setting import Options, OptionsType, Setting
from trainers.network.engine import Network, Runner
from trainers.network.mixing import Mixing, Property
from trainers.oracles.capabilities import GivesGradients, gives
from trainers.oracles.oracle import Mechanism, Oracle

Noise = float | tuple[float, ...]  # a noise multiplier of all nodes, or of each


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family(Generic[OptionsType]):
    """An algorithm of the registry; those of a kind of their own override methods."""

    # from a step size schedule, and what its options say, to the algorithm
    make: Callable[..., Any]
    private: bool  # whether its oracle clips and adds noise
    central: bool = False  # whether it runs at one place that holds all data
    over_ranks: bool = True  # whether its nodes can live in several processes
    # words that its name goes before, on why its nodes cannot, why all have one batch
    # size, and why all have one noise multiplier; empty where they need not
    one_process: str = "does not run over several processes"
    no_rates: str = ""
    one_noise: str = ""
    # whether nodes can go on where one is gone, each hearing itself in its place
    outlives: bool = False
    needs: tuple[Property, ...] = ()  # of the mixing matrices
    # what it takes beside the settings that all have
    options: type[OptionsType] = Options  # type: ignore[assignment]
    oracle: Callable[..., Any] = Oracle  # what it is given of the private data
    # settings that a training, and an audit, starts from unless the user sets others
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    audited: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def algorithm(self, setting: Setting[OptionsType]) -> Any:
        """The algorithm, with its schedules over ``setting.rounds``."""
        arguments = setting.options.arguments(setting.rounds)
        return self.make(setting.step_sizes, **arguments)

    def runner(self, algorithm: Any, mixing: Mixing) -> Runner:
        """Runner of ``algorithm``. ``ValueError`` if ``mixing`` lacks what it needs."""
        return Network(algorithm, mixing, self.needs)

    def mechanism(
        self, setting: Setting[OptionsType], noise_multiplier: float
    ) -> Mechanism:
        """Mechanism of gradients: all noise grows with the multiplier."""
        batches = {"sampling": setting.sampling, "rate": setting.sampling_rate}
        if not self.private:
            return Mechanism(setting.batch_size, **batches)
        clip = setting.clip_norm
        return Mechanism(setting.batch_size, clip, noise_multiplier, **batches)

    def noisy(self, setting: Setting[OptionsType], noise: Noise) -> Mechanism:
        """`mechanism`, with ``noise`` of all nodes or of each: sums weigh 1 / noise."""
        if not isinstance(noise, tuple):
            return self.mechanism(setting, noise)
        self._check_nodes(setting, noise)
        if self.one_noise:
            raise ValueError(
                f"{setting.algorithm} {self.one_noise}: give one noise multiplier"
            )
        made = [self.mechanism(setting, own) for own in noise]
        batches = [how.batch(n) for how, n in zip(made, setting.sizes, strict=True)]
        told = sum(size / own for size, own in zip(batches, noise, strict=True))
        each = tuple(
            dataclasses.replace(how, weight=sum(batches) / told / own)
            for how, own in zip(made, noise, strict=True)
        )
        return dataclasses.replace(self.mechanism(setting, max(noise)), by_node=each)

    @property
    def own_defaults(self) -> dict[str, Any]:
        """``defaults`` of its own options, which hold for any model and data."""
        known = self.options.__struct_fields__
        return {name: x for name, x in self.defaults.items() if name in known}

    def releases(self, setting: Setting[OptionsType]) -> int:
        """Number of releases that each node asks of the oracle in all rounds."""
        return setting.rounds

    def ledger(self, setting: Setting[OptionsType], noise_multiplier: float) -> Ledger:
        """Ledger of a run with ``setting.sizes`` records at the nodes."""
        mechanism = self.mechanism(setting, noise_multiplier)
        return mechanism.ledger(setting.sizes, self.releases(setting))

    def planned(self, setting: Setting[OptionsType], noise: Noise) -> Ledger:
        """`ledger`, with ``noise`` of all nodes or of each."""
        if not isinstance(noise, tuple):
            return self.ledger(setting, noise)
        self._check_nodes(setting, noise)
        alike = {own: self.ledger(setting, own) for own in set(noise)}
        nodes = (alike[own].nodes[node] for node, own in enumerate(noise))
        return msgspec.structs.replace(next(iter(alike.values())), nodes=tuple(nodes))

    def _check_nodes(self, setting: Setting[OptionsType], noise: tuple) -> None:
        if len(noise) != len(setting.sizes):
            raise ValueError(
                f"{len(noise)} noise multipliers are given for {len(setting.sizes)} "
                "nodes: give one for each"
            )

    def plans_at_most(self, setting: Setting[OptionsType]) -> bool:
        """Return whether `ledger` is no more than a bound on what a run releases."""
        return False

    def remarks(self, setting: Setting[OptionsType]) -> tuple[str, ...]:
        """Remarks that must stand beside its account, in sentences."""
        return ()

    def whole(self, setting: Setting[OptionsType]) -> str:
        """Reason why all nodes must be in one process; empty if there is none."""
        if self.central:
            return "runs at one place that holds all data"
        return "" if self.over_ranks else self.one_process

    @property
    def takes_optimisers(self) -> bool:
        """Return whether a round is a gradient step, which an optimiser may make."""
        return gives(self.oracle, GivesGradients)

    def stays_home(self, setting: Setting[OptionsType]) -> bool:
        """Return whether the final models never leave their nodes."""
        return False


@runtime_checkable
class HasPaperNoise(Protocol):
    """A family whose paper has an account of its own."""

    def paper_noise(self, setting: Setting, epsilon: float, delta: float) -> float:
        """The noise multiplier by the paper's own account."""
