"""Gradient canaries in a plain torch loop of the user's, and their audit.

The record under attack is in gradient space: a vector as long as the clip norm, in a
fixed direction, that joins the sum of a batch by its own coin in the runs that it is a
member of. Who attacks knows all other records and batches, which the guarantee allows,
sees every noisy sum, and scores by the likelihood ratio of what is left::

    def train(seed, canary):
        ...
        for batch in batches:                     # Poisson sampled at RATE
            total = clipped_gradients(batch).sum(0)
            total = canary.add(total, clip_norm=CLIP, sampling_rate=RATE)
            noisy = total + NOISE * CLIP * torch.randn_like(total)
            canary.see(noisy, noise_multiplier=NOISE)

    found = torch_loop.audit(train, epsilon=2.0, delta=1e-5, runs=2000)

What this cannot see: how the loop clips and samples its other records. `probe_loader`
looks at batches, and `privaudit.probe` at clipping.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privaudit.api.audits import AuditedScores
from privaudit.api.audits import audit as audit_scores
from privaudit.auditing.probes.batches import check_batches
from privaudit.auditing.probes.contract import Check
from privaudit.ledger import Entry, Ledger
from privaudit.release import PoissonSampling, Release
from privaudit.results import LowerBound, Relation, Status, UpperBound

_DIRECTION = 0x19  # seed of the canary's direction, which is the same in every run
_PASSES = 8  # over the data, that a loader is asked for


class GradientCanary:
    """One run's canary: whether it is there, and what was seen of it.

    Parameters
    ----------
    member
        Whether it is among the data.
    seed
        Of its coins.
    """

    def __init__(self, member: bool, seed: int) -> None:
        self.member = member
        self.checks: list[Check] = []
        self._coins = np.random.default_rng([seed, 0xCA9A])
        self._score = 0.0
        self._releases: list[tuple[float, float]] = []  # noise multiplier, rate
        self._others: float | None = None  # along the direction, in clip norms
        self._clip, self._rate = 1.0, 1.0
        self._unit: Tensor | None = None

    @property
    def score(self) -> float:
        """The log likelihood ratio of all that was seen; higher says member."""
        if not self._releases:
            raise ValueError(
                "the training released nothing that the canary saw: call canary.add "
                "and canary.see in each step, or plant it with canary.on(optimizer)"
            )
        return self._score

    @property
    def ledger(self) -> Ledger:
        """What was released, by the noise and the rate that were stated."""
        entries: list[Entry] = []
        for noise, rate in self._releases:
            release = Release.of_sum(
                norm_bound=1.0, noise_multiplier=noise, sampling=PoissonSampling(rate)
            )
            if entries and entries[-1].release == release:
                entries[-1] = Entry(release, entries[-1].count + 1)
            else:
                entries.append(Entry(release, 1))
        return Ledger(nodes=(tuple(entries),))

    def add(self, total: Tensor, *, clip_norm: float, sampling_rate: float) -> Tensor:
        """The sum of a batch's clipped gradients with the canary, if it is in it.

        ``total`` is a vector, the same parameters in every step.
        """
        vector = self.direction(total)
        there = self.drawn(clip_norm, sampling_rate)
        self._others = float(total.double().flatten() @ vector.double()) / clip_norm
        if not there:
            return total
        return total + (clip_norm * vector).to(total.dtype).view_as(total)

    def see(self, noisy: Tensor, *, noise_multiplier: float) -> None:
        """The noisy sum, before it is divided by anything."""
        along = float(noisy.double().flatten() @ self.direction(noisy).double())
        self._weigh(along / self._clip, noise_multiplier)

    def direction(self, like: Tensor) -> Tensor:
        """(values,): of norm 1, the same in every run."""
        if self._unit is None or len(self._unit) != like.numel():
            generator = torch.Generator().manual_seed(_DIRECTION)
            drawn = torch.randn(like.numel(), generator=generator, dtype=torch.float64)
            self._unit = (drawn / drawn.norm()).to(like.device)
        return self._unit

    def drawn(self, clip_norm: float, rate: float) -> bool:
        """Whether it is in the next batch."""
        if not 0 < clip_norm < math.inf:
            raise ValueError(f"clip_norm must be > 0 and finite, got {clip_norm}")
        if not 0 < rate <= 1:
            raise ValueError(f"sampling_rate must be in (0, 1], got {rate}")
        if self._others is not None:
            raise ValueError(
                "canary.add was called twice: call canary.see with the noisy sum after "
                "each"
            )
        self._clip, self._rate = clip_norm, rate
        coin = bool(self._coins.random() < rate)
        return self.member and coin

    def seen(self, others: float, along: float, noise_multiplier: float) -> None:
        """As `see`, with both sums' parts along the direction, in clip norms."""
        self._others = others
        self._weigh(along, noise_multiplier)

    def _weigh(self, along: float, noise_multiplier: float) -> None:
        """Add what a noisy sum says; ``along`` the direction, in clip norms."""
        if self._others is None:
            raise ValueError("canary.see was called without canary.add before it")
        if not 0 <= noise_multiplier < math.inf:
            raise ValueError(
                f"noise_multiplier must be >= 0 and finite, got {noise_multiplier}"
            )
        left, self._others = along - self._others, None
        noise = noise_multiplier or 1.0
        exponent = (left - 0.5) / noise**2
        if self._rate < 1:
            exponent = float(
                np.logaddexp(exponent + math.log(self._rate), math.log1p(-self._rate))
            )
        self._score += exponent
        self._releases.append((float(noise_multiplier), float(self._rate)))


@dataclasses.dataclass(frozen=True, slots=True)
class AuditedTraining:
    """What the audit of a user's loop found.

    Parameters
    ----------
    audited
        Claim, account and audit together.
    ledger
        What a run releases.
    checks
        What was looked at without statistics.
    """

    audited: AuditedScores
    ledger: Ledger
    checks: tuple[Check, ...] = ()

    @property
    def status(self) -> Status:
        """The verdict in a word; it holds where there are no ``findings``."""
        return self.audited.status

    @property
    def lower(self) -> LowerBound:
        """What the scores showed."""
        return self.audited.lower

    @property
    def upper(self) -> UpperBound | None:
        """The account of the ledger."""
        return self.audited.upper

    @property
    def findings(self) -> list[str]:
        """Each bug that was found without statistics, in a sentence."""
        return [f"{one.name}: {bug}" for one in self.checks for bug in one.findings]

    def summary(self) -> dict[str, Any]:
        """All figures, for JSON."""
        return {**self.audited.summary(), "findings": self.findings}

    def __str__(self) -> str:
        return "\n".join([str(self.audited), *self.findings])


def audit(
    train: Callable[[int, Any], object],
    *,
    epsilon: float,
    delta: float = 1e-5,
    runs: int = 2000,
    seed: int = 0,
    ledger: Ledger | None = None,
    confidence: float = 0.95,
    method: str = "family",
) -> AuditedTraining:
    """Test a claim about a user's loop by a canary in gradient space.

    Parameters
    ----------
    train
        Called with a seed and a `GradientCanary`, which it plants; its noise must come
        from the seed, or be fresh in each call.
    epsilon, delta
        The claim, when one record is added or removed.
    runs
        How many trainings, with and without the canary; there is one more, to see what
        a run releases.
    seed
        Of the worlds and of the seeds.
    ledger
        What is accounted; by default what the canary was told of noise and rates. Where
        the two differ that is a finding.
    confidence
        Of the lower bound.
    method
        "family": within the releases of the ledger, with more or less noise. "best":
        for any mechanism. The other one stands beside it.

    Raises
    ------
    ValueError
        If a value is out of its range, or the training fails or plants no canary.

    Examples
    --------
    >>> import torch
    >>> from privaudit.integrations import torch_loop
    >>> def train(seed, canary):
    ...     noise = torch.Generator().manual_seed(seed)
    ...     total = canary.add(torch.zeros(20), clip_norm=1.0, sampling_rate=1.0)
    ...     total = total + 0.5 * torch.randn(20, generator=noise)  # 1 is said
    ...     canary.see(total, noise_multiplier=1.0)
    >>> torch_loop.audit(train, epsilon=4.4, runs=500).status
    'refuted'
    """
    return audit_with(
        GradientCanary,
        train,
        ledger,
        epsilon=epsilon,
        delta=delta,
        runs=runs,
        seed=seed,
        confidence=confidence,
        method=method,
    )


def audit_with(
    kind: type[GradientCanary],
    train: Callable[[int, Any], object],
    ledger: Ledger | None,
    **claim: Any,
) -> AuditedTraining:
    """As `audit`, by another kind of canary."""
    if not callable(train):
        raise ValueError(
            "train is a function of a seed and a canary, got " + type(train).__name__
        )
    first = kind(False, 0)
    first.checks.append(_PENDING)  # asks for the checks that one run is enough for
    train(claim["seed"], first)
    _ = first.score  # raises
    seen = first.ledger
    relation: Relation = "add-or-remove-one"
    checks = [one for one in first.checks if one is not _PENDING]
    if ledger is not None:
        checks.append(_against(seen, ledger))

    def scores_of(worlds: np.ndarray, start: int) -> list[float]:
        found = []
        for place, member in enumerate(worlds):
            own = (1000 * start + place) % (1 << 31)
            canary = kind(bool(member), own)
            train(own, canary)
            found.append(canary.score)
        return found

    audited = audit_scores(scores_of, ledger=ledger or seen, relation=relation, **claim)
    return AuditedTraining(audited, ledger or seen, tuple(checks))


_PENDING = Check(name="pending", what="")


def _against(seen: Ledger, ledger: Ledger) -> Check:
    """Whether what was accounted is what the training said while it ran."""
    amounts = []
    for one in (seen, ledger):
        counts: dict[tuple[float, Any], int] = {}
        for entry in one.nodes[0]:
            release = entry.release
            ratio = round(release.noise / release.norm_bound, 9)
            key = (ratio, release.sampling)
            counts[key] = counts.get(key, 0) + entry.count
        amounts.append(counts)
    found = ()
    if amounts[0] != amounts[1]:
        words = [
            ", ".join(
                f"{count:,} releases of noise multiplier {noise:g} ({sampling})"
                for (noise, sampling), count in one.items()
            )
            for one in amounts
        ]
        found = (f"the training made {words[0]}; accounted are {words[1]}",)
    return Check(
        name="ledger",
        what="what a run releases is what is accounted",
        findings=found,
    )


def probe_loader(
    loader: Any, *, sampling_rate: float | None = None, passes: int = _PASSES
) -> Check:
    """Whether a torch ``DataLoader`` draws batches as Poisson sampling does.

    No record is read: only its batch sampler is asked, for some passes. It cannot see
    what the training does with a batch, such as cutting or repeating it.

    Parameters
    ----------
    loader
        With a ``batch_sampler``, as `torch.utils.data.DataLoader` and Opacus'
        ``DPDataLoader`` have.
    sampling_rate
        What is accounted; by default the loader's own ``sample_rate``, or one over its
        number of batches, as Opacus has it.
    passes
        How many, >= 2.

    Raises
    ------
    ValueError
        If the loader has no batch sampler.

    Examples
    --------
    >>> import torch
    >>> from privaudit.integrations.torch_loop import probe_loader
    >>> data = torch.utils.data.TensorDataset(torch.zeros(100, 3))
    >>> loader = torch.utils.data.DataLoader(data, batch_size=10, shuffle=True)
    >>> probe_loader(loader).status
    'finding'
    """
    sampler = getattr(loader, "batch_sampler", None)
    if sampler is None or not hasattr(loader, "dataset"):
        raise ValueError(
            "a loader is probed by its batch sampler, and this one has none: "
            f"{type(loader).__name__}"
        )
    if passes < 2:
        raise ValueError(f"passes must be >= 2, got {passes}")
    records = len(loader.dataset)
    rate = sampling_rate or getattr(loader, "sample_rate", None) or 1 / len(loader)
    seen = [[list(batch) for batch in sampler] for _ in range(passes)]
    return check_batches(seen, records, float(rate))
