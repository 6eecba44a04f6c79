"""Opacus' own record of a training, read as a ledger.

Opacus (1.x) keeps, in ``PrivacyEngine.accountant.history``, a noise multiplier, a
sampling rate and a number of steps for each stretch of equal steps: noisy sums of
clipped gradients over Poisson batches.

``audit`` tests a training with Opacus by canaries in gradient space; see
`privaudit.auditing.programs.opacus_loop`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from privaudit.ledger import Entry, Ledger
from privaudit.release import PoissonSampling, Release

POISSON = (
    "batches were Poisson sampled, as Opacus' DPDataLoader does and a history does not "
    "tell"
)


def history_of(source: Any) -> Any:
    """The history of a ``PrivacyEngine`` or of one of its accountants; else None."""
    accountant = getattr(source, "accountant", source)
    return getattr(accountant, "history", None)


def is_history(source: Any) -> bool:
    """Whether ``source`` looks like a history: a list of three numbers each."""
    return isinstance(source, Sequence) and all(
        isinstance(part, Sequence) and len(part) == 3 and not isinstance(part, str)
        for part in source
    )


def ledger_of(history: Sequence[tuple[float, float, int]]) -> Ledger:
    """The ledger of a history: (noise multiplier, sampling rate, steps), in order.

    The ledger assumes, as Opacus' accountants do, that batches were Poisson sampled at
    that rate: with ``poisson_sampling=False`` they were shuffled, which no such account
    covers, and the history does not tell. So its account is conditional.

    Raises ``ValueError`` for numbers out of their range.
    """
    entries = []
    for place, (noise, rate, steps) in enumerate(history):
        if not 0 <= noise < math.inf or not 0 <= rate <= 1 or steps != int(steps):
            raise ValueError(
                f"entry {place} of an Opacus history is a noise multiplier >= 0, a "
                f"sampling rate in [0, 1] and a number of steps, got {noise}, {rate} "
                f"and {steps}"
            )
        if rate == 0 or steps == 0:
            continue
        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=noise, sampling=PoissonSampling(rate)
        )
        entries.append(Entry(release, int(steps)))
    return Ledger(nodes=(tuple(entries),), assumes=(POISSON,))


_AUDITS = ("audit", "loss_scores", "OpacusCanary")


def __getattr__(name: str) -> Any:
    """Audits of trainings with Opacus, which need torch: see `opacus_loop`."""
    if name not in _AUDITS:
        raise AttributeError(f"privaudit.integrations.opacus has no {name}")
    return getattr(
        importlib.import_module("privaudit.auditing.programs.opacus_loop"), name
    )
