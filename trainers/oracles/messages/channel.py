"""The channel of noisy messages: scales noise, adds it, sends, and keeps the ledger."""

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

# Numbers of the nodes here, (runs, nodes here, any), and a round; of all nodes.
Broadcast = Callable[[Tensor, int], Tensor]


class FeedsItself(ValueError):
    """Noise makes nodes differ, which asks for more noise, beyond all bounds."""


class Channel:
    """Noisy messages for a block of runs at once."""

    def __init__(
        self,
        noise: MessageNoise,  # how messages are made private
        mixing: Mixing,  # weights of all rounds: which node hears which. Public
        # random numbers of this block of runs. If they are those of some nodes alone
        # (`Streams.of`), the channel is too: see `over`
        streams: Streams,
        *,
        runs: int = 1,  # number of runs in the block
        # number of records at each node, public; by default one
        populations: tuple[int, ...] | None = None,
        # for studies: is shown the true and the used sensitivity of every round
        watch: Watch | None = None,
    ) -> None:
        self.noise = noise
        self.mixing = mixing
        self.runs = runs
        self.watch = watch
        self._here = streams.numbers or tuple(range(mixing.nodes))
        self._broadcast: Broadcast | None = None
        if self._is_part and noise.sensitivity == "real" and noise.noise_multiplier:
            raise ValueError(
                "sensitivity=real is of what all nodes hold, which no process knows "
                "that has some of them: choose another, or train in one process"
            )
        self._populations = populations or (1,) * len(self._here)
        self._streams = streams
        self._recorder = noise.recorder(len(self._here))
        self._tracker: Tracker | None = None
        self._log: dict[str, Any] = {}  # what the tracker was told since it last forgot
        self._last: tuple[np.ndarray, np.ndarray] | None = None  # noises, widths
        self._fresh = 0.0  # bound of what the next message reveals of the start
        self._done = 0
        self._scales: Tensor | None = None  # of the noise of the round, (runs, 1, 1)

    @property
    def ledger(self) -> Ledger:
        """All messages so far, as releases, by node; each run has made them."""
        return self._recorder.ledger()

    @property
    def _is_part(self) -> bool:
        """Return whether other nodes are elsewhere."""
        return len(self._here) < self.mixing.nodes

    def over(self, broadcast: Broadcast) -> None:
        """Send what nodes broadcast between processes, by ``broadcast``."""
        self._broadcast = broadcast

    def _of_all(self, own: np.ndarray, k: int) -> np.ndarray:
        """Broadcasts of all nodes in round ``k``, (runs, nodes, any), of those here."""
        if not self._is_part:
            return own
        if not self.noise.broadcasts:
            return np.zeros((len(own), self.mixing.nodes, own.shape[2]))
        if self._broadcast is None:
            raise RuntimeError("some nodes are elsewhere: say how to reach them")
        return self._broadcast(torch.from_numpy(own), k).numpy()

    def begin(self, states: Tensor, *, bound: float | None = None) -> None:
        """Start from states (runs, nodes, dims), private ones of norms <= ``bound``."""
        if states.shape[:2] != (self.runs, len(self._here)):
            raise ValueError(
                f"states must be (runs, nodes, dims) = ({self.runs}, "
                f"{len(self._here)}, ...), got {tuple(states.shape)}"
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
        self._last = None
        every = norms
        if self._is_part:  # public starts are equal; of others, the bound is known
            every = norms[:, :1] if equal else np.full((self.runs, 1), bound)
            every = every.repeat(self.mixing.nodes, 1)
        self._tracker.begin(every, bound, equal=equal)
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
        """Add noise to ``states``, which nodes send in the next round; record it.

        ``states``, (runs, nodes, dims) doubles, have ``change``, of L1 norm up to the
        public ``bound``, from own data. Returns the messages, and what each node says
        of the sensitivity, (runs, nodes, 1), which it broadcasts where
        `MessageNoise.broadcasts`. `FeedsItself` if noise grows beyond bounds.
        """
        if self._tracker is None:
            raise RuntimeError("a channel must begin before it sends")
        k, here = self._done, len(self._here)
        norms = np.zeros((self.runs, here)) if change is None else _norms(change)
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
        if self.watch is not None and not self._is_part:
            self.watch(k, real_sensitivity(_array(states)), scale)
        width = self.noise.noise_multiplier * torch.from_numpy(scale)
        self._scales = width[:, None, None].to(states.device)
        sent = self._noisy(states, step)
        self._record(bound + self._fresh, float(scale[0]), rounding)
        self._fresh = 0.0
        self._told(k, norms, bound, _norms(sent - states), width.numpy())
        self._done += 1
        own = said[:, self._here[0] : self._here[-1] + 1]
        return sent, torch.from_numpy(own)[:, :, None].to(states.device)

    def _perturbed(self, states: Any, norms: Any, bound: float) -> np.ndarray:
        """Broadcasts of all nodes, from what they added, and from the last noise."""
        assert self._tracker is not None
        if self._is_part and self.noise.sensitivity == "real":
            return np.zeros((self.runs, self.mixing.nodes))  # no noise is scaled by it
        noises, width = self._last or (np.zeros_like(norms), None)
        k = self._done
        told = self._of_all(np.stack([norms, noises], 2), k)
        norms, noises = told[:, :, 0], told[:, :, 1]
        if width is not None:
            ends = self.noise.synchronises(k - 1)
            matrix = self.mixing.at(k - 1)
            self._tracker.sent(noises, width, matrix, synchronises=ends)
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
            *(states.double(), self._here, self._done),
            *(float(self._scales[0]), step),
            purpose="message",
            law=LAPLACE,
        )
        if not is_exact:
            self._recorder.assume(TOO_SMALL)
        return sent

    def _draw(self, like: Tensor) -> Tensor:
        """Laplace of scale 1, (runs, nodes, dims), where no epsilon covers scales."""
        if self.noise.noise_multiplier == 0:
            return torch.zeros_like(like)
        shape = (self.runs, like.shape[2])
        assert self._scales is not None  # `send` says by what it will be scaled
        scales = self._scales.expand(-1, len(self._here), 1)
        drawn = self._streams.unit_noise(
            *("message", self._here, self._done, shape, LAPLACE),
            hides=torch.cat([like.double(), scales.double()], 2),
        )
        return drawn.to(like)

    def _record(self, bound: float, scale: float, rounding: float) -> None:
        for node, population in enumerate(self._populations):
            release = self.noise.release(bound, scale, population, rounding)
            if release is not None:
                self._recorder.record(node, release)
                others = self._streams.others("message", self._here[node], self._done)
                self._recorder.again(node, release, others)

    def _told(self, k: int, norms: Any, bound: float, noises: Any, width: Any) -> None:
        """Write down what the tracker is told of round ``k``: the noise in the next."""
        self._last = noises, width
        own = [torch.from_numpy(np.array(part)) for part in (norms, noises)]
        self._log["rounds"].append((k, bound, *own, tuple(width.tolist())))

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint, see `trainers.runs.checkpoint`."""
        return {
            "ledger": [part.to_json() for part in self.ledger.apart()],
            "log": self._log and {**self._log, "rounds": tuple(self._log["rounds"])},
            "fresh": self._fresh,
            "done": self._done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        ledgers = map(Ledger.from_json, state["ledger"])
        self._recorder = Recorder.of(Ledger.joined(ledgers))
        self._fresh = state["fresh"]
        log = state["log"]
        if log:
            norms = log["begin"].numpy()
            self._restart(log["dims"], norms, log["bound"], equal=log["equal"])
            for k, bound, *own, width in log["rounds"]:
                norms, noises = (part.numpy() for part in own)
                if self.noise.sensitivity != "real":
                    self._done = k
                    self._perturbed(np.zeros(0), norms, bound)
                self._told(k, norms, bound, noises, np.array(width))
        self._done = state["done"]


def _norms(values: Tensor) -> np.ndarray:
    """L1, (runs, nodes)."""
    return _array(values.double().abs().sum(2))


def _array(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
