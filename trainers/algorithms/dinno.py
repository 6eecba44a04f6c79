"""Distributed neural network optimisation by ADMM, private if its oracle is."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import torch
from torch import Tensor

from privaudit.schedules import Geometric
from privaudit.task_settings import AtLeastOne, Positive
from trainers.algorithms.dsgd import OfParameters
from trainers.algorithms.dsgd import State as Parameters
from trainers.algorithms.family import Family
from trainers.algorithms.optimisers import OPTIMISERS, OptimiserName
from trainers.algorithms.setting import Options, Setting
from trainers.network.engine import Gradients, Inbox, Schedule, per_round

RHO = 0.5  # of the paper's published settings
OptimiserState = Literal["kept", "rebuilt"]


class DinnoOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `Dinno`. ``ValueError`` for a value out of its range.

    Parameters
    ----------
    rho
        Weight of the penalty that pulls neighbours' models together, > 0.
    rho_growth
        What ``rho`` is multiplied by in each round, > 0.
    inner_steps
        Number of steps by gradients in a round, each of which is a release.
    optimiser
        What makes these steps: adam, adamw, sgd or momentum.
    optimiser_state
        Whether its state is "kept" from round to round, or "rebuilt" in each.
    """

    rho: Positive = RHO
    rho_growth: Positive = 1.0
    inner_steps: AtLeastOne = 1
    optimiser: OptimiserName = "adam"
    optimiser_state: OptimiserState = "kept"

    def arguments(self, rounds: int) -> dict[str, Any]:
        """With rho as a schedule. ``ValueError`` if it grows beyond all bounds."""
        # Of the logarithm, which does not overflow.
        power = math.log(self.rho) + (rounds - 1) * math.log(self.rho_growth)
        if not abs(power) < 100:
            raise ValueError(
                f"rho = {self.rho:g} times {self.rho_growth:g} in each of {rounds:,} "
                f"rounds ends near e^{power:.0f}; use a rho_growth closer to 1"
            )
        last = self.rho if self.rho_growth == 1 else math.exp(power)
        return {
            "rho": per_round(Geometric(self.rho, last), rounds),
            "inner_steps": self.inner_steps,
            "optimiser": self.optimiser,
            "optimiser_state": self.optimiser_state,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class State(Parameters):
    """Parameters and dual, (runs, nodes, dims), and what the optimiser keeps."""

    dual: Tensor
    optimiser: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Dinno(OfParameters):
    """Dual ascent on consensus, and T steps down the augmented loss, each round.

    DP-DiNNO of Bayrooti, Gao and Prorok 2023 (Algorithm 3) where the oracle clips and
    adds noise, DiNNO (Yu, Vincent and Schwager 2022) where it does not::

        y_i <- y_i + rho_k sum_{j in N_i} (theta_i - theta_j);   psi <- theta_i
        T times:  psi <- step down  G_i(psi) + grad_psi( psi . y_i
                      + rho_k sum_{j in N_i} |psi - (theta_i + theta_j) / 2|^2 )
        theta_i <- psi

    Line 15 of the paper's listing adds the gradient; this descends. A node is its own
    neighbour, as there. K rounds are K T releases, of which others see the last psi.
    Edges must be undirected, or the duals do not add up to 0. On one node the dual is
    0.
    """

    rho: Schedule = lambda k: RHO  # of the round, as ``step_size``
    inner_steps: int = 1  # T
    # what steps: ``adam`` as in the paper, ``adamw`` or ``sgd``
    optimiser: OptimiserName = "adam"
    # ``kept`` from round to round, or ``rebuilt`` in each as in the paper's published
    # code: Adam then begins anew, so that with T = 1 only a gradient's signs count
    optimiser_state: OptimiserState = "kept"

    def init(self, start: Tensor) -> State:
        dual = torch.zeros_like(start)
        return State(start, dual, OPTIMISERS[self.optimiser].init(start))

    def round(self, state: State, inbox: Inbox, private: Gradients, k: int) -> State:
        optimiser, rho = OPTIMISERS[self.optimiser], self.rho(k)
        near, degree = inbox.neighbour_sum("theta"), inbox.degree  # with the node's own
        dual = state.dual + rho * (degree * state.theta - near)
        middles = (degree * state.theta + near) / 2  # sum of the (theta_i + theta_j)/2
        psi, kept = state.theta, state.optimiser
        if self.optimiser_state == "rebuilt":
            kept = optimiser.init(psi)
        for _ in range(self.inner_steps):
            penalty = 2 * rho * (degree * psi - middles)
            descent = private.gradient(at=psi) + dual + penalty
            psi, kept = optimiser.step(kept, psi, descent, self.step_size(k))
        return State(theta=psi, dual=dual, optimiser=kept)


class DinnoFamily(Family[DinnoOptions]):
    """DiNNO asks for a gradient in every inner step, and has optimisers of its own."""

    takes_optimisers = False

    def releases(self, setting: Setting[DinnoOptions]) -> int:
        return setting.rounds * setting.options.inner_steps
