"""Audits of trainings with Opacus: a canary in gradient space, through its optimizer.

Opacus itself is not imported: what is planted stands before two methods of the
optimizer that a training made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from privaudit.integrations import torch_loop
from privaudit.ledger import Ledger

_LONG = 10.0  # clip norms, that the canary's gradient is long before it is clipped


class OpacusCanary(torch_loop.GradientCanary):
    """A canary in gradient space, planted through an Opacus optimizer."""

    def on(
        self, optimizer: Any, loader: Any = None, *, sampling_rate: float | None = None
    ) -> None:
        """Plant it in the steps that ``optimizer`` makes from now on.

        In the steps whose coin falls, one more per-sample gradient, ten clip norms
        long, is clipped, summed and hidden by the optimizer itself; what is seen is
        ``p.grad`` after it added noise.

        Parameters
        ----------
        optimizer
            An ``opacus.optimizers.DPOptimizer``, of flat clipping.
        loader
            The private data loader: its ``sample_rate`` is the chance of the canary's
            coin, and its batches are looked at, see `torch_loop.probe_loader`.
        sampling_rate
            In its place, without a loader.

        Raises
        ------
        ValueError
            If the optimizer has no per-sample gradients, as with ghost clipping, clips
            layer by layer, or neither a loader nor a rate is given.
        """
        for name in ("clip_and_accumulate", "add_noise", "params"):
            if not hasattr(optimizer, name):
                raise ValueError(
                    "a canary is planted in an Opacus optimizer, such as make_private "
                    f"gives; {type(optimizer).__name__} has no {name}"
                )
        if "FastGradientClipping" in type(optimizer).__name__:
            raise ValueError(
                "with ghost clipping there are no per-sample gradients to plant a "
                "canary among: use grad_sample_mode='hooks'"
            )
        clip = optimizer.max_grad_norm
        if not isinstance(clip, int | float):
            raise ValueError(
                "a canary needs flat clipping: max_grad_norm must be one number, got "
                f"{type(clip).__name__}"
            )
        if loader is None and sampling_rate is None:
            raise ValueError("give the private data loader, or its sampling_rate")
        rate = sampling_rate
        if rate is None:
            rate = getattr(loader, "sample_rate", None) or 1 / len(loader)
        if loader is not None and self.checks:
            self.checks.append(
                torch_loop.probe_loader(loader, sampling_rate=float(rate))
            )
        _Planted(self, optimizer, float(rate))


class _Planted:
    """Stands before two methods of an optimizer."""

    def __init__(self, canary: OpacusCanary, optimizer: Any, rate: float) -> None:
        self._canary, self._optimizer, self._rate = canary, optimizer, rate
        self._clip = optimizer.clip_and_accumulate
        self._noise = optimizer.add_noise
        optimizer.clip_and_accumulate = self.clip_and_accumulate
        optimizer.add_noise = self.add_noise
        self._there = 0.0

    def clip_and_accumulate(self) -> None:
        """Clip and sum, with the canary among the gradients if its coin falls."""
        params = list(self._optimizer.params)
        bound = float(self._optimizer.max_grad_norm)
        first = all(p.summed_grad is None for p in params)
        if first:  # of several parts of one batch, the first has it
            self._there = 0.0
            if self._canary.drawn(bound, self._rate):
                self._there = _LONG / (_LONG + 1e-6 / bound)
                for p, part in self._parts(params):
                    row = (_LONG * bound * part).to(p.dtype)[None]
                    known = p.grad_sample
                    if isinstance(known, list):
                        p.grad_sample = [*known[:-1], torch.cat([known[-1], row])]
                    else:
                        p.grad_sample = torch.cat([known, row])
        self._clip()

    def add_noise(self) -> None:
        """Add noise, and see what comes out."""
        params = list(self._optimizer.params)
        bound = float(self._optimizer.max_grad_norm)
        before = self._along(params, "summed_grad") / bound - self._there
        self._noise()
        after = self._along(params, "grad") / bound
        self._canary.seen(before, after, float(self._optimizer.noise_multiplier))

    def _parts(self, params: list[Any]) -> list[tuple[Any, Any]]:
        """Each parameter, and its part of the direction in its shape."""
        sizes = [p.numel() for p in params]
        whole = self._canary.direction(params[0].new_zeros(sum(sizes)))
        parts = whole.split(sizes)
        return [(p, part.view_as(p)) for p, part in zip(params, parts, strict=True)]

    def _along(self, params: list[Any], name: str) -> float:
        return float(
            sum(
                (getattr(p, name).double() * part.double()).sum()
                for p, part in self._parts(params)
            )
        )


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
) -> torch_loop.AuditedTraining:
    """Test a claim about a training with Opacus by a canary in gradient space.

    As `torch_loop.audit`, but ``train`` plants the canary through its optimizer::

        def train(seed, canary):
            torch.manual_seed(seed)
            model, optimizer, loader = PrivacyEngine().make_private(...)
            canary.on(optimizer, loader)
            ...                                  # the loop, as it is

        found = opacus_audit.audit(train, epsilon=2.0, delta=1e-5)
        found.status, found.findings

    How the optimizer clips, sums and adds noise is under test, and whether the loader
    draws Poisson batches. It cannot see bugs of how per-sample gradients are made.

    Parameters
    ----------
    train
        Called with a seed and an `OpacusCanary`.
    ledger
        What is accounted, such as ``pa.ledger_from(engine)``.
    """
    return torch_loop.audit_with(
        OpacusCanary,
        train,
        ledger,
        epsilon=epsilon,
        delta=delta,
        runs=runs,
        seed=seed,
        confidence=confidence,
        method=method,
    )


def loss_scores(
    train: Callable[[int, bool], Any], loss: Callable[[Any], float]
) -> Callable[[Any, int], list[float]]:
    """Black-box scores for `privaudit.audit`: minus the loss of the attacked record.

    Parameters
    ----------
    train
        Called with a seed and whether the record is among the data; returns a model.
    loss
        From a model to the record's loss under it.
    """

    def scores_of(worlds: Any, seed: int) -> list[float]:
        return [
            -float(loss(train((1000 * seed + place) % (1 << 31), bool(member))))
            for place, member in enumerate(worlds)
        ]

    return scores_of
