"""The channel of noisy messages: scales noise, adds it, sends, and keeps the ledger.

What the oracle is to gradients, the channel is to messages. A protocol hands over what
its nodes are about to send; what comes back is noisy, and the ledger already has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privaudit.ledger import Ledger, Recorder
from trainers.network.mixing import Mixing
from trainers.numerics.noise import LAPLACE
from trainers.numerics.randomness import TOO_SMALL, Streams
from trainers.oracles.messages.noise import MOST_SENSITIVITY, MessageNoise
from trainers.oracles.messages.sensitivities import Tracker, real_sensitivity

# Round, real sensitivity (runs,), and the one by which noise was scaled (runs,).
Watch = Callable[[int, np.ndarray, np.ndarray], None]


class FeedsItself(ValueError):
    """Noise makes nodes differ, which asks for more noise, beyond all bounds."""


class Channel:
    """Noisy messages for a block of runs at once.

    Parameters
    ----------
    noise
        How they are made private.
    mixing
        Who will hear whom, known to all.
    streams
        Where this block's randomness comes from.
    runs
        How many runs there are in the block.
    populations
        How many records each node holds (public); one each by default.
    watch
        Told, for study, of the real sensitivity of every round, and of what was used.
    """

    def __init__(
        self,
        noise: MessageNoise,
        mixing: Mixing,
        streams: Streams,
        *,
        runs: int = 1,
        populations: tuple[int, ...] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.noise = noise
        self.mixing = mixing
        self.runs = runs
        self.watch = watch
        self._populations = populations or (1,) * mixing.nodes
        self._streams = streams
        self._recorder = noise.recorder(mixing.nodes)
        self._tracker: Tracker | None = None
        self._log: dict[str, Any] = {}  # what the tracker was told since it last forgot
        self._fresh = 0.0  # bound of what the next message reveals of the start
        self._done = 0
        self._scales: Tensor | None = None  # of the noise of the round, (runs, 1, 1)

    @property
    def ledger(self) -> Ledger:
        """All that was sent so far, node by node, in each of the runs."""
        return self._recorder.ledger()

    def begin(self, states: Tensor, *, bound: float | None = None) -> None:
        """Before round 0, from what nodes hold, (runs, nodes, dims).

        ``bound`` on their L1 norms makes them private, of that bound; without it they
        are public, and the same at all nodes.
        """
        if states.shape[:2] != (self.runs, self.mixing.nodes):
            raise ValueError(
                f"states must be (runs, nodes, dims) = ({self.runs}, "
                f"{self.mixing.nodes}, ...), got {tuple(states.shape)}"
            )
        norms = _norms(states)
        public = bound is None
        if bound is None:
            if not (states == states[:, :1]).all():
                raise ValueError(
                    "states that differ need a bound on their norms: give one"
                )
            bound = float(norms.max())
        elif (norms > bound * (1 + 1e-9)).any():
            raise ValueError(
                f"a state of L1 norm {norms.max():.4g} is above the bound {bound:g}: "
                "clip it"
            )
        self._fresh = 0.0 if public else bound
        self._restart(states.shape[2], norms, bound, equal=public)

    def _restart(self, dims: int, norms: Any, bound: float, *, equal: bool) -> None:
        self._tracker = self.noise.tracker(self.mixing, dims)
        self._tracker.begin(norms, bound, equal=equal)
        self._log = {
            "dims": dims,
            "begin": torch.from_numpy(norms),
            "bound": bound,
            "equal": equal,
            "rounds": [],
        }

    def send(
        self, states: Tensor, change: Tensor | None = None, *, bound: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """What nodes send in the next round: ``states`` with noise.

        Parameters
        ----------
        states
            (runs, nodes, dims), doubles, what the nodes hold now.
        change
            Of which this is what they added in this round from their own data.
        bound
            On the L1 norm of any node's ``change``; public.

        Returns
        -------
        The messages, (runs, nodes, dims), and what each node says of the sensitivity,
        (runs, nodes, 1), which it broadcasts where `MessageNoise.broadcasts`.

        Raises
        ------
        ValueError
            If a change exceeds its bound; `FeedsItself` if noise grows beyond bounds.
        """
        if self._tracker is None:
            raise RuntimeError("a channel must begin before it sends")
        k, nodes = self._done, self.mixing.nodes
        norms = np.zeros((self.runs, nodes)) if change is None else _norms(change)
        if not (norms <= bound * (1 + 1e-9)).all():
            raise ValueError(
                f"round {k}: a node added {norms.max():.6g} in L1 norm, above the "
                f"bound {bound:g} that is accounted"
            )
        said = self._perturbed(_array(states), norms, bound)
        scale = said.max(1)  # (runs,)
        if not (scale < MOST_SENSITIVITY).all():
            raise FeedsItself(
                f"the noise feeds itself: in round {k} of {self.noise.rounds} it would "
                f"be scaled by {scale.max():.3g}; use a smaller sync_interval (1 keeps "
                "it constant), less noise, or share fewer parameters"
            )
        # Where there is a grid, the scale is public, and the same in all runs.
        step, rounding = self.noise.on_grid(float(scale[0]), states.shape[2])
        scale = scale + rounding
        if self.watch is not None:
            self.watch(k, real_sensitivity(_array(states)), scale)
        width = self.noise.noise_multiplier * torch.from_numpy(scale)
        self._scales = width[:, None, None].to(states.device)
        sent = self._noisy(states, step)
        self._record(bound + self._fresh, float(scale[0]), rounding)
        self._fresh = 0.0
        self._told(k, norms, bound, _norms(sent - states), width.numpy())
        self._done += 1
        return sent, torch.from_numpy(said)[:, :, None].to(states.device)

    def _perturbed(self, states: Any, norms: Any, bound: float) -> np.ndarray:
        assert self._tracker is not None
        try:
            return self._tracker.perturbed(states, norms, bound)
        except ValueError:  # a norm is not finite
            return np.full(norms.shape, np.inf)

    def _noisy(self, states: Tensor, step: float) -> Tensor:
        """``states`` with noise: on a grid of ``step``, or in floats if that is 0."""
        assert self._scales is not None
        if not step:
            return states + self._draw(states) * self._scales
        sent, is_exact = self._streams.noisy_if_it_fits(
            *(states.double(), range(self.mixing.nodes), self._done),
            *(float(self._scales[0]), step),
            purpose="message",
            law=LAPLACE,
        )
        if not is_exact:
            self._recorder.assume(TOO_SMALL)
        return sent

    def _draw(self, like: Tensor) -> Tensor:
        """Laplace of scale 1, like (runs, nodes, dims), each node's its own.

        For noise that is scaled by what depends on the data: no epsilon covers that,
        and so not the rounding of floats here.
        """
        if self.noise.noise_multiplier == 0:
            return torch.zeros_like(like)
        shape = (self.runs, like.shape[2])
        nodes = range(self.mixing.nodes)
        assert self._scales is not None  # `send` says by what it will be scaled
        scales = self._scales.expand(-1, self.mixing.nodes, 1)
        drawn = self._streams.unit_noise(
            *("message", nodes, self._done, shape, LAPLACE),
            hides=torch.cat([like.double(), scales.double()], 2),
        )
        return drawn.to(like)

    def _record(self, bound: float, scale: float, rounding: float) -> None:
        for node, population in enumerate(self._populations):
            release = self.noise.release(bound, scale, population, rounding)
            if release is not None:
                self._recorder.record(node, release)
                others = self._streams.others("message", node, self._done)
                self._recorder.again(node, release, others)

    def _told(self, k: int, norms: Any, bound: float, noises: Any, width: Any) -> None:
        assert self._tracker is not None
        ends = self.noise.synchronises(k)
        self._tracker.sent(noises, width, self.mixing.at(k), synchronises=ends)
        told = [torch.from_numpy(np.array(part)) for part in (norms, noises, width)]
        self._log["rounds"].append([k, bound, *told])

    def state_dict(self) -> dict[str, Any]:
        """Where it stands, for `trainers.runs.checkpoint`."""
        return {
            "ledger": self.ledger.to_json(),
            "log": self._log,
            "fresh": self._fresh,
            "done": self._done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where a channel stood, made like this one."""
        self._recorder = Recorder.of(Ledger.from_json(state["ledger"]))
        self._fresh = state["fresh"]
        log = state["log"]
        if log:
            norms = log["begin"].numpy()
            self._restart(log["dims"], norms, log["bound"], equal=log["equal"])
            assert self._tracker is not None
            for k, bound, *told in log["rounds"]:
                norms, noises, width = (part.numpy() for part in told)
                if self.noise.sensitivity != "real":
                    self._tracker.perturbed(np.zeros(0), norms, bound)
                self._told(k, norms, bound, noises, width)
        self._done = state["done"]


def _norms(values: Tensor) -> np.ndarray:
    """L1, (runs, nodes)."""
    return _array(values.double().abs().sum(2))


def _array(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
