"""Push-sum: averages over directed graphs, by a weight that travels with the values.

Column-stochastic mixing keeps the sum of what the nodes hold, but not an agreement: a
node that hears more ends with more. A scalar that starts at 1 everywhere and is mixed
alike knows how much more, and x / w is the mean in the limit (Kempe, Dobra and Gehrke
2003; stochastic gradient push: Assran et al. 2019).

Weights never vanish
--------------------
w(k + 1) = P_k w(k), w(0) = 1. Let A be the product of one period's matrices, and v > 0
with A v = v. As 1 >= v / max v, entry by entry, and no P_k has a negative entry, w at
the end of every period is >= v / max v, and r rounds later >= P_r ... P_1 v / max v.
Where each P_k is column stochastic, has a positive diagonal, and the graph is connected
over time, A is irreducible and v exists (Perron), so the least of these is > 0, and
holds for all time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from trainers.network.mixing import Property

# Any of them missing, and some weight can be 0, fall to 0, or tell no mean.
NEEDS: tuple[Property, ...] = ("column stochastic", "connected", "positive diagonal")


@dataclasses.dataclass(frozen=True, slots=True)
class PushSum:
    """State of each node: numerator and weight.

    ``weight`` is the same in all runs and depends on no data. It is kept in doubles, so
    that its sum stays the number of nodes over many rounds.
    """

    x: Tensor  # (runs, nodes, dims)
    weight: Tensor  # (runs, nodes, 1), float64, > 0

    @classmethod
    def begin(cls, start: Tensor) -> PushSum:
        """All at ``start``, (runs, nodes, dims), with weight 1."""
        ones = torch.ones(start.shape[:2], dtype=torch.float64, device=start.device)
        return cls(x=start, weight=ones[:, :, None])

    @property
    def z(self) -> Tensor:
        """x / w, (runs, nodes, dims): each node's own view of the mean."""
        return self.x / self.weight.to(self.x.dtype)

    def plus(self, change: Tensor) -> PushSum:
        """With ``change``, (runs, nodes, dims), added to x; the mean of x moves by its
        mean, whatever the weights are."""
        return PushSum(x=self.x + change, weight=self.weight)

    def messages(self) -> dict[str, Tensor]:
        """Both, as x and w: what a node sends to those that hear it."""
        return {"x": self.x, "w": self.weight}

    @classmethod
    def received(cls, inbox: Mapping[str, Tensor]) -> PushSum:
        """State of a node after a round, from its mixed x and w."""
        return cls(x=inbox["x"], weight=inbox["w"])
