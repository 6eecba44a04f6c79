"""Collaborative one-pass training with local and global models, by any policy."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Literal

from privaudit.accounting.closed_forms import classical_sigma
from privaudit.ledger import Ledger
from privaudit.task_settings import AtLeastOne, Natural, NotNegative, Share
from trainers.algorithms.collaborative.deep_q import QSettings
from trainers.algorithms.collaborative.logistic import Constants
from trainers.algorithms.collaborative.one_pass import OnePass, paper_multiplier
from trainers.algorithms.collaborative.oracle import Participants
from trainers.algorithms.collaborative.policies import Choices, PolicyName
from trainers.algorithms.collaborative.resampling import Resampled, Resampling
from trainers.algorithms.collaborative.runner import (
    Collaboration,
    Collaborative,
    Outcome,
)
from trainers.algorithms.family import Family
from trainers.algorithms.setting import Options, OptionsType, Setting
from trainers.network.mixing import Mixing


class CollaborativeOptions(Options, frozen=True, kw_only=True):
    """Options of collaborative training beside the settings that all have.

    Parameters
    ----------
    policy
        Who decides between local and global updates. "coin": a table of coins known
        beforehand; "always-global"; "never"; "deep-q": networks that see private
        losses, whose visible choices no account covers.
    regularisation
        lambda; 0 is the convex case, above it the strongly convex one.
    global_first, global_last, coin_seed
        Of the coin; see `trainers.algorithms.collaborative.policies.Choices`.
    q_seed
        Of the deep-Q networks' own coins, known to all; None: secret. See
        `trainers.algorithms.collaborative.deep_q.QSettings`.
    outcome
        "global" or "local" models; None: local where there is never a global update.
    paper_noise
        Whether ``--calibrate paper`` refuses epsilon >= 1, where the classical Gaussian
        mechanism proves nothing ("checked"), or computes it "as-printed".
    """

    policy: PolicyName = "coin"
    regularisation: NotNegative = 0.0
    global_first: Share = 0.5
    global_last: Share = 0.05
    coin_seed: Natural = 0
    q_seed: Natural | None = None
    outcome: Outcome | None = None
    paper_noise: Literal["checked", "as-printed"] = "checked"

    def choices(self) -> Choices:
        return Choices(self.policy, self.global_first, self.global_last, self.coin_seed)

    def given(self) -> Outcome:
        """Models that a run gives: local or global."""
        return self.outcome or ("local" if self.policy == "never" else "global")


class ResamplingOptions(Options, frozen=True, kw_only=True):
    """Options of the baseline beside the settings that all have.

    Parameters
    ----------
    regularisation
        lambda.
    passes
        How many a node's batches fill at most.
    order_seed
        Of who updates when; public.
    paper_noise
        As of `CollaborativeOptions`.
    """

    regularisation: NotNegative = 0.0
    passes: AtLeastOne = 5
    order_seed: Natural = 0
    paper_noise: Literal["checked", "as-printed"] = "checked"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneVsAll(Family[OptionsType], abc.ABC):
    """One-vs-all logistic regression, whose constants the noise rests on."""

    no_rates: str = "goes once through disjoint batches of batch_size records"
    one_noise: str = "has one model, to which all nodes add noise in turn"

    def algorithm(self, setting: Setting[OptionsType]) -> Collaborative:
        """Made without step sizes: they are the oracle's, as noise depends on them."""
        return self.make("local" if self.stays_home(setting) else "global")

    def runner(self, algorithm: Collaborative, mixing: Mixing) -> Collaboration:
        return Collaboration(algorithm, mixing, self.needs)

    @abc.abstractmethod
    def mechanism(
        self, setting: Setting[OptionsType], noise_multiplier: float
    ) -> OnePass:
        """Mechanism that makes it private. ``ValueError`` for another model."""

    def ledger(self, setting: Setting[OptionsType], noise_multiplier: float) -> Ledger:
        mechanism = self.mechanism(setting, noise_multiplier)
        return mechanism.ledger_of(setting.sizes, setting.labels)


class NoiselessOnePass(OneVsAll[CollaborativeOptions]):
    """One pass over disjoint batches, by any policy."""

    def mechanism(
        self, setting: Setting[CollaborativeOptions], noise_multiplier: float
    ) -> OnePass:
        options = setting.options
        return OnePass(
            **_shared(setting, Constants(options.regularisation)),
            noise_multiplier=noise_multiplier if self.private else 0.0,
            choices=options.choices(),
            networks=QSettings(seed=options.q_seed),
        )

    def plans_at_most(self, setting: Setting[CollaborativeOptions]) -> bool:
        """With a policy that looks at data, what is released depends on them."""
        return setting.options.choices().looks

    def stays_home(self, setting: Setting[CollaborativeOptions]) -> bool:
        return setting.options.given() == "local"


class PrivateOnePass(NoiselessOnePass):
    """The same with the paper's account, of one class's model."""

    def paper_noise(
        self, setting: Setting[CollaborativeOptions], epsilon: float, delta: float
    ) -> float:
        """By the classical Gaussian mechanism."""
        return _paper_noise(setting.options, epsilon, delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithReplacement(OneVsAll[ResamplingOptions]):
    """The baseline: batches drawn anew in every update."""

    over_ranks: bool = False
    one_process: str = (
        "draws who updates next among all nodes, so that the model would go to and fro"
    )

    def mechanism(
        self, setting: Setting[ResamplingOptions], noise_multiplier: float
    ) -> Resampled:
        options = setting.options
        return Resampled(
            **_shared(setting, Constants(options.regularisation)),
            noise_multiplier=noise_multiplier,
            choices=Choices("always-global", coin_seed=options.order_seed),
            passes=options.passes,
        )

    def paper_noise(
        self, setting: Setting[ResamplingOptions], epsilon: float, delta: float
    ) -> float:
        """The paper's noise of the baseline: (epsilon / 5, delta / 5) an update.

        It leaves out that records are drawn, not taken in turn, and is of one class.
        """
        options = setting.options
        return _paper_noise(options, epsilon / options.passes, delta / options.passes)


def _paper_noise(
    options: CollaborativeOptions | ResamplingOptions, epsilon: float, delta: float
) -> float:
    if options.paper_noise == "checked":
        classical_sigma(epsilon, delta)
    return paper_multiplier(Constants(options.regularisation), epsilon, delta)


def _shared(setting: Setting, constants: Constants) -> dict[str, Any]:
    """Arguments of both mechanisms. ``ValueError`` for another model or data."""
    if not setting.labels:
        raise ValueError(
            f"{setting.algorithm} trains one-vs-all logistic regression on data whose "
            "classes are known by name, and no model or data of your own; choose "
            "another algorithm, such as dp-dsgt"
        )
    if setting.model != "one-vs-all":
        raise ValueError(
            f"{setting.algorithm} trains one-vs-all logistic regression, whose "
            f"constants the noise rests on, got model={setting.model}; set "
            "model=one-vs-all"
        )
    return {
        "batch_size": setting.batch_size,
        "clip_norm": constants.lipschitz,
        "sampling": "without-replacement",
        "step_size": setting.step_sizes,
        "rounds": setting.rounds,
        "constants": constants,
    }


DEFAULTS: dict[str, Any] = {
    "model": "one-vs-all",
    "data": "digits-pca",
    "partition": "even",
    "gain": 1e-3,
    "batch_size": 175.0,
    "step_size": 0.5,
    "rounds": 2,
}
# Of an audit: 300 digits of three classes, as for the others, in batches of ten.
AUDITED: dict[str, Any] = {
    "model": "one-vs-all",
    "hidden": None,
    "partition": "classes",
    "gain": 1e-3,
    "batch_size": 10.0,
    "rounds": 10,
    "step_size": 0.5,
}


_ONE_PASS: dict[str, Any] = {
    "make": Collaborative,
    "options": CollaborativeOptions,
    "oracle": Participants,
    "defaults": DEFAULTS,
    "audited": AUDITED,
}
FAMILIES: dict[str, Family] = {
    "deep-q": PrivateOnePass(private=True, **_ONE_PASS),
    "deep-q-noiseless": NoiselessOnePass(private=False, **_ONE_PASS),
    "dp-sgd-with-replacement": WithReplacement(
        make=Collaborative,
        private=True,
        options=ResamplingOptions,
        oracle=Resampling,
        defaults={**DEFAULTS, "rounds": 10},
        audited=AUDITED,
    ),
}
