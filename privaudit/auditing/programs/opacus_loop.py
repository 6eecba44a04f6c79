"""Audits of trainings with Opacus: a canary in gradient space, by its optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from privaudit.auditing.programs import torch_loop
from privaudit.ledger import Ledger
from privaudit.results import DELTA
from privaudit.settings import ProgramSettings

# Optimizers that clip layer by layer, without per-sample gradients, to other norms.
_OTHERS = ("PerLayer", "FastGradientClipping", "AdaClip")
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

        ``optimizer``: an ``opacus.optimizers.DPOptimizer``, of flat clipping.
        ``loader``: the private data loader: its ``sample_rate`` is the chance of the
        canary's coin, and its batches are looked at, see `torch_loop.probe_loader`.
        ``sampling_rate``: in its place, without a loader.
        """
        for name in ("clip_and_accumulate", "add_noise", "params"):
            if not hasattr(optimizer, name):
                raise ValueError(
                    "a canary is planted in an Opacus optimizer, such as make_private "
                    f"gives; {type(optimizer).__name__} has no {name}"
                )
        kinds = " ".join(kind.__name__ for kind in type(optimizer).__mro__)
        if any(kind in kinds for kind in _OTHERS) or not isinstance(
            optimizer.max_grad_norm, int | float
        ):
            raise ValueError(
                "a canary needs flat clipping of per-sample gradients to one norm: "
                "use clipping='flat' and grad_sample_mode='hooks' of make_private, "
                f"which gives no {type(optimizer).__name__}"
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
        self._others = np.zeros(0)

    def clip_and_accumulate(self) -> None:
        """Clip and sum, with the canaries among the gradients whose coins fall."""
        params = list(self._optimizer.params)
        bound = float(self._optimizer.max_grad_norm)
        first = all(p.summed_grad is None for p in params)
        others = self._clipped(params, bound)
        self._others = others if first else self._others + others
        if first:  # of several parts of one batch, the first has the canaries
            drawn = self._canary.drawn(bound, self._rate)
            for p, rows in self._parts(params) if drawn.any() else ():
                planted = (_LONG * bound * rows[drawn]).to(p.dtype)
                known = p.grad_sample
                if isinstance(known, list):
                    p.grad_sample = [*known[:-1], torch.cat([known[-1], planted])]
                else:
                    p.grad_sample = torch.cat([known, planted])
        self._clip()

    def add_noise(self) -> None:
        """Add noise, and see what comes out."""
        params = list(self._optimizer.params)
        bound = float(self._optimizer.max_grad_norm)
        before = self._canary.marks(_whole([p.summed_grad for p in params]))
        self._noise()
        whole = _whole([p.grad for p in params])
        seen = (whole @ self._canary.directions(whole)).cpu().numpy()
        left = seen / bound - self._others
        noise = self._canary.marks(whole) - before
        self._canary.weigh(left, float(self._optimizer.noise_multiplier), noise)

    def _clipped(self, params: list[Any], bound: float) -> NDArray[np.float64]:
        """Other records' gradients as they ought to be clipped, in clip norms."""
        rows = []
        for p in params:
            known = p.grad_sample
            whole = torch.cat(known) if isinstance(known, list) else known
            rows.append(whole.detach().double().flatten(1))
        gradients = torch.cat(rows, 1)
        factor = (bound / (gradients.norm(dim=1) + 1e-6)).clamp(max=1.0)
        along = factor @ gradients @ self._canary.directions(gradients[:1].sum(0))
        return along.cpu().numpy() / bound

    def _parts(self, params: list[Any]) -> list[tuple[Any, Any]]:
        """Each parameter, and its part of the directions, (canaries, *its shape)."""
        sizes = [p.numel() for p in params]
        whole = self._canary.directions(params[0].new_zeros(sum(sizes)))
        return [
            (p, part.T.reshape(-1, *p.shape))
            for p, part in zip(params, whole.split(sizes), strict=True)
        ]


def _whole(parts: list[Any]) -> torch.Tensor:
    return torch.cat([part.detach().double().flatten() for part in parts])


def audit(
    train: Callable[[int, Any], object],
    *,
    epsilon: float,
    delta: float = DELTA,
    runs: int = torch_loop.RUNS,
    seed: int = 0,
    ledger: Ledger | None = None,
    confidence: float = 0.95,
    canaries: int | None = None,
) -> torch_loop.AuditedTraining:
    """Test a claim about a training with Opacus by a canary in gradient space.

    As `torch_loop.audit`, but ``train`` plants the canary through its optimizer::

        def train(seed, canary):
            torch.manual_seed(seed)
            model, optimizer, loader = PrivacyEngine().make_private(...)
            canary.on(optimizer, loader)
            ...                                  # the loop, as it is

        found = opacus.audit(train, epsilon=2.0, delta=1e-5)
        found.status, found.findings

    How the optimizer clips, sums and adds noise is under test, and whether the loader
    draws Poisson batches. It cannot see bugs of how per-sample gradients are made.

    Parameters
    ----------
    train
        Called with a seed and an `OpacusCanary`.
    ledger
        What is accounted, such as ``pa.ledger_from(engine)``.
    epsilon, delta, runs, seed, confidence, canaries
        As of `torch_loop.audit`.
    """
    how = ProgramSettings(
        epsilon=epsilon, delta=delta, runs=runs, seed=seed, confidence=confidence
    )
    return torch_loop.audit_with(OpacusCanary, train, ledger, canaries, how)


def loss_scores(
    train: Callable[[int, bool], Any], loss: Callable[[Any], float]
) -> Callable[[Any, int], list[float]]:
    """Black-box scores for `privaudit.audit`: minus the attacked record's ``loss``."""

    def scores_of(worlds: Any, seed: int) -> list[float]:
        return [
            -float(loss(train((1000 * seed + place) % (1 << 31), bool(member))))
            for place, member in enumerate(worlds)
        ]

    return scores_of
