"""A user's own training loop: noisy gradients from an oracle that keeps the ledger."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from privaudit.files.arguments import public
from privaudit.files.extras import need
from privaudit.ledger import Ledger
from privaudit.release import NoSampling, RandomAllocation

if TYPE_CHECKING:
    from torch import Tensor, nn

    from privaudit.accounting.filters import Budget
    from trainers.oracles.oracle import Oracle
    from trainers.runs.material import Material


class GradientOracle:
    """Gives noisy gradients of the nodes' data, and keeps their ledger; see `oracle`.

    Attributes
    ----------
    nodes
        Number of nodes.
    start
        (nodes, dims): the model's parameters as a vector, in the order of
        ``module.parameters()``, once for each node.
    """

    def __init__(
        self, inner: Oracle, material: Material, budget: Budget | None = None
    ) -> None:
        from trainers.gradients.per_sample import parameter_vector

        self._inner = inner
        self._module = material.given or material.module
        self._budget = budget
        self._independence = material.independence
        self.nodes = inner.nodes
        self.start: Tensor = parameter_vector(material.module).repeat(self.nodes, 1)

    def gradient(self, at: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        """Return each node's noisy mean gradient at parameters ``at``, (nodes, dims).

        Each node samples a batch, scales each record's gradient to at most the clip
        norm, sums them, adds noise and divides by the batch size. The release is in the
        ledger when this returns.

        Parameters
        ----------
        at
            (nodes, dims): the parameters of each node that is asked.
        nodes
            Numbers of the nodes that are asked. None: all.

        Raises
        ------
        ValueError
            If a node does not exist or is named twice, ``at`` has another shape, or a
            parameter is not finite. Nothing is released and nothing is charged.
        BudgetExceeded
            If the oracle holds a budget and this would exceed it; nothing is released.
        """
        asked = _numbers(range(self.nodes) if nodes is None else nodes)
        self._inner.next_release(asked)
        shape, found = (len(asked), self.start.shape[1]), getattr(at, "shape", None)
        if found is None or tuple(found) != shape:
            given = type(at).__name__ if found is None else tuple(found)
            raise ValueError(
                f"parameters are a tensor of shape (nodes, dims) = {shape}, got {given}"
            )
        at = at.detach().to(self.start.dtype)
        if not at.isfinite().all():
            raise ValueError("parameters are not finite: the training diverged")
        if self._budget is not None:  # last: what is refused is not paid for
            self._pay(self._budget, asked)
        return self._inner.gradient(at[None], asked)[0]

    def _pay(self, budget: Budget, asked: Sequence[int]) -> None:
        """Spend what is released by the node with the least records of those that ask.

        All have the same noise, so that no other record of theirs pays more. Of a
        random allocation an epoch is paid as its first batch is asked for: the releases
        that a record is in, as if it were known which ones these are.
        """
        mechanism, sizes = self._inner.mechanism, self._inner.data.sizes
        release = mechanism.release(0, min(sizes[node] for node in asked))
        if not isinstance(release.sampling, RandomAllocation):
            budget.spend(release)
            return
        for node in asked:
            how = mechanism.allocation(sizes[node])
            if how is not None and self._inner.releases_of(node) % how.batches == 0:
                plain = msgspec.structs.replace(release, sampling=NoSampling())
                budget.spend(plain, how.taken)
                return

    @property
    def ledger(self) -> Ledger:
        """What each node has released so far.

        It says what its account assumes, if your code decides whether a record's
        gradient is its own.
        """
        return self._inner.ledger.independent(self._independence)

    def module(self, at: Tensor) -> nn.Module:
        """A copy of the model with the parameters ``at``, (dims,)."""
        from trainers.gradients.per_sample import trained

        copied = copy.deepcopy(self._module)
        parameters = trained(copied).values()
        parts = at.detach().split([one.numel() for one in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.data.copy_(part.view_as(parameter))
        return copied


def _numbers(nodes: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(operator.index(node) for node in nodes)
    except TypeError:
        raise ValueError(
            f"nodes must be a list of nodes' numbers, got {nodes!r}"
        ) from None


@public
def oracle(
    model: nn.Module | Callable[[], nn.Module],
    shares: Any,
    *,
    noise_multiplier: float,
    clip_norm: float,
    batch_size: float,
    sampling: str = "poisson",
    loss: Callable[..., Any] | None = None,
    nodes: int | None = None,
    split: str = "even",
    transform: Callable[[Tensor], Any] | None = None,
    budget: Budget | None = None,
    seed: int | None = None,
    device: str = "cpu",
) -> GradientOracle:
    """Give noisy gradients to a training loop of your own, and keep their ledger.

    Whatever the loop computes from them is post-processing: it costs no more privacy,
    as long as the loop reads the private data in no other way.

    Parameters
    ----------
    model, shares, loss, nodes, split, transform
        As in `privaudit.train`.
    noise_multiplier
        Standard deviation of the noise on the sum of a batch's clipped gradients, over
        the clip norm; > 0.
    clip_norm
        L2 bound on each record's gradient.
    batch_size
        Expected number of records in a node's batch, and the divisor of the sum.
    sampling
        How batches are drawn. "poisson": each record by its own coin.
        "random-allocation": each record in one of an epoch's batches, where an epoch is
        as many calls as bring the expected size nearest to ``batch_size``;
        "random-allocation:k": in k of them. A budget is then charged for a whole epoch
        as it begins, without amplification by sampling.
    budget
        A `privaudit.Budget` that is charged before each call, so that the loop may
        choose its next step in view of earlier results. ``gradient`` raises
        ``BudgetExceeded`` instead of exceeding it.
    seed
        Seed of a study: makes noise and sampling repeatable. A model trained with a
        seed is not protected. None: a secret key, held in memory.
    device
        "cpu" or "cuda".

    Returns
    -------
    An oracle with ``start``, ``gradient(at)``, ``ledger`` and ``module(at)``.

    Raises
    ------
    ValueError
        If a value is out of its range, or model, data and loss do not fit each other.

    Examples
    --------
    >>> import privaudit as pa, torch
    >>> inputs = torch.randn(80, 5, generator=torch.Generator().manual_seed(0))
    >>> data = inputs, (inputs.sum(1) > 0).long()
    >>> oracle = pa.oracle(
    ...     torch.nn.Linear(5, 2), data, nodes=2,
    ...     noise_multiplier=1.0, clip_norm=1.0, batch_size=8, seed=0,
    ... )
    >>> at = oracle.start
    >>> for _ in range(5):  # gradient descent, and averaging over all nodes
    ...     at = (at - 0.5 * oracle.gradient(at)).mean(0).expand(2, -1)
    >>> pa.epsilon(ledger=oracle.ledger, delta=1e-5).upper < 7
    True
    """
    need("privaudit.oracle", "train")
    from privaudit.accounting.filters import Budget
    from trainers.data.shares import private_data
    from trainers.gradients.choose import differentiator
    from trainers.numerics.device import check_device
    from trainers.numerics.keys import Key
    from trainers.numerics.randomness import Streams
    from trainers.oracles.mechanism import Mechanism
    from trainers.oracles.oracle import Oracle
    from trainers.runs.material import Material

    for name, value in (
        ("noise_multiplier", noise_multiplier),
        ("clip_norm", clip_norm),
        ("batch_size", batch_size),
    ):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be > 0 and finite, got {value}")
    if budget is not None and not isinstance(budget, Budget):
        raise ValueError(f"budget must be a privaudit.Budget or None, got {budget!r}")
    check_device(device)
    material = Material.own(model, shares, loss=loss, nodes=nodes, split=split)
    if transform is not None:
        material = material.with_transform(transform)
    inner = Oracle(
        material.data(private_data(material.shares).to(device)),
        differentiator(material.module, material.loss, *material.example),
        Mechanism(batch_size, clip_norm, noise_multiplier, sampling),
        Streams(Key.secret() if seed is None else seed, device=device),
    )
    return GradientOracle(inner, material, budget)
