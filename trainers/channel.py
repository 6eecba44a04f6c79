"""The one way out for messages: scale Laplace noise, add it, send, write it down.

What the oracle is to gradients, the channel is to messages. A protocol hands over what
its nodes are about to send; what comes back is noisy, and the ledger already has it.

Two units of privacy can be written down.

*node*: which node was asked (Theorem 1 of Zhou, Xue and Chen). Two nodes' messages are
at most the sensitivity S apart.

*record*: one record of one node. What enters a message anew in a round is at most
``bound`` in L1 norm, and so moves by at most twice that; all else in it came by noisy
messages. With clipping of whole batches nothing better is true, and then the figure
covers any number of the node's records at once.

Where S depends on the data, in the clear, no epsilon covers what it gives away: such a
message is written as one without noise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privaudit.ledger import (
    Ledger,
    NoSampling,
    Recorder,
    Release,
    SamplingWithoutReplacement,
    Sensitivity,
)
from privaudit.results import Unit
from trainers.mixing import Mixing
from trainers.randomness import Streams
from trainers.sensitivities import (
    SENSITIVITIES,
    Certified,
    DataIndependent,
    Paper,
    Perturbation,
    Real,
    SensitivityName,
    Tracker,
    noise_quantile,
    real_sensitivity,
)

MOST_SENSITIVITY = 1e30  # beyond it, noise is no number that a model could hold

# Round, real sensitivity (runs,), and the one by which noise was scaled (runs,).
Watch = Callable[[int, np.ndarray, np.ndarray], None]


class FeedsItself(ValueError):
    """Noise makes nodes differ, which asks for more noise, beyond all bounds."""


@dataclasses.dataclass(frozen=True, slots=True)
class MessageNoise:
    """How messages are made private.

    Parameters
    ----------
    noise_multiplier
        gamma_n / b: scale of the Laplace noise over the sensitivity; 0 for none.
    sensitivity
        One of `trainers.sensitivities.SENSITIVITIES`.
    rounds
        How many rounds there will be.
    unit
        What the ledger is about.
    sync_interval
        After every so many rounds the noisy states are set equal all over the network.
    constant, decay
        C' and lambda of equation 22, where it is used.
    failure
        Probability that some noise exceeds the bound that a data-independent
        sensitivity assumes.
    window
        Of `privaudit.accounting.sensitivity.Spread`.
    samples
        Clipping is by sample, lots are of this fixed size, and nothing but messages
        carries a record from round to round; None: clipping is by lot.

    Raises
    ------
    ValueError
        If a number is out of its range.
    """

    noise_multiplier: float
    sensitivity: SensitivityName = "data-independent"
    rounds: int = 1
    unit: Unit = "record"
    sync_interval: int | None = None
    constant: float = 0.78
    decay: float = 0.55
    failure: float = 1e-6
    window: int = 16
    samples: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(
                f"noise_multiplier must be finite and >= 0, got {self.noise_multiplier}"
            )
        if self.sensitivity not in SENSITIVITIES:
            raise ValueError(
                f"there is no sensitivity {self.sensitivity!r}; choose one of "
                f"{', '.join(SENSITIVITIES)}"
            )
        if self.sync_interval is not None and self.sync_interval < 1:
            raise ValueError(f"sync_interval must be >= 1, got {self.sync_interval}")
        if not 0 < self.failure < 1:
            raise ValueError(f"failure must be in (0, 1), got {self.failure}")
        if self.window < 1:
            raise ValueError(f"window must be >= 1 round, got {self.window}")
        Paper(self.constant, self.decay, published=False)  # checks the two

    @property
    def guarantees(self) -> bool:
        """Whether the scale of the noise tells nothing of the data, and is enough."""
        return self.sensitivity == "data-independent" or (
            self.sensitivity == "perturbation" and self.unit == "record"
        )

    @property
    def broadcasts(self) -> bool:
        """Whether nodes tell each other, in the clear, by what to scale the noise."""
        return self.sensitivity not in ("data-independent", "perturbation")

    def synchronises(self, k: int) -> bool:
        """Whether all states are equal after round ``k``."""
        return self.sync_interval is not None and (k + 1) % self.sync_interval == 0

    def tracker(self, mixing: Mixing, dims: int) -> Tracker:
        """A fresh one, for messages of ``dims`` numbers over ``mixing``."""
        match self.sensitivity:
            case "real":
                return Real()
            case "perturbation":
                return Perturbation()
            case "certified":
                return Certified(self.window)
            case "data-independent":
                rounds = max(self.rounds, 1)
                quantile = noise_quantile(dims, mixing.nodes, rounds, self.failure)
                doubly = "doubly stochastic" in mixing.properties
                return DataIndependent(self.window, quantile, keeps_mean=doubly)
            case name:
                return Paper(self.constant, self.decay, published=name == "published")

    def release(self, bound: float, scale: float, population: int) -> Release | None:
        """What one message is accounted as; None if it needs no account.

        ``bound`` is of what is new in it, in L1; noise has ``scale``. The node holds
        ``population`` records.
        """
        moved = {"node": scale, "record": 2 * bound}[self.unit]
        if self.unit == "record" and bound == 0:
            return None  # nothing of a record enters here but by noisy messages
        if not self.guarantees or self.noise_multiplier == 0:
            return Release(
                mechanism="laplace",
                norm_bound=math.inf,
                noise=0.0,
                sensitivity=Sensitivity(
                    replace_one=math.inf,
                    add_or_remove_one=math.inf if self.unit == "record" else None,
                ),
                sampling=NoSampling(),
            )
        noise = self.noise_multiplier * scale
        if self.unit == "record" and self.samples is not None:
            return Release.of_sum(
                norm_bound=bound / self.samples,
                noise_multiplier=noise * self.samples / bound,
                sampling=SamplingWithoutReplacement(self.samples, population),
                mechanism="laplace",
            )
        return Release(
            mechanism="laplace",
            norm_bound=moved / 2,
            noise=noise,
            sensitivity=Sensitivity(
                replace_one=moved,
                add_or_remove_one=moved if self.unit == "record" else None,
            ),
            sampling=NoSampling(),
        )

    def recorder(self, nodes: int) -> Recorder:
        """A ledger to be written. A record's account needs no bound on the noise."""
        failure = self.failure if self.unit == "node" and self.guarantees else 0.0
        return Recorder(nodes, unit=self.unit, failure=failure)


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
        self._streams = [
            streams.generator("message", node) for node in range(mixing.nodes)
        ]
        self._recorder = noise.recorder(mixing.nodes)
        self._tracker: Tracker | None = None
        self._log: dict[str, Any] = {}  # what the tracker was told since it last forgot
        self._fresh = 0.0  # bound of what the next message reveals of the start
        self._done = 0

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
        said = self._perturbed(states.double().numpy(), norms, bound)
        scale = said.max(1)  # (runs,)
        if not (scale < MOST_SENSITIVITY).all():
            raise FeedsItself(
                f"the noise feeds itself: in round {k} of {self.noise.rounds} it would "
                f"be scaled by {scale.max():.3g}; use a smaller sync_interval (1 keeps "
                "it constant), less noise, or share fewer parameters"
            )
        if self.watch is not None:
            self.watch(k, real_sensitivity(states.double().numpy()), scale)
        width = self.noise.noise_multiplier * torch.from_numpy(scale)
        noise = self._draw(states) * width[:, None, None]
        self._record(bound + self._fresh, float(scale[0]))
        self._fresh = 0.0
        self._told(k, norms, bound, _norms(noise), width.numpy())
        self._done += 1
        return states + noise, torch.from_numpy(said)[:, :, None]

    def _perturbed(self, states: Any, norms: Any, bound: float) -> np.ndarray:
        assert self._tracker is not None
        try:
            return self._tracker.perturbed(states, norms, bound)
        except ValueError:  # a norm is not finite
            return np.full(norms.shape, np.inf)

    def _draw(self, like: Tensor) -> Tensor:
        """Laplace of scale 1, like (runs, nodes, dims), by each node's own generator.

        A difference of two exponential variables.
        """
        noise = torch.zeros_like(like)
        if self.noise.noise_multiplier == 0:
            return noise
        for node, generator in enumerate(self._streams):
            pair = torch.empty((2, self.runs, like.shape[2]), dtype=torch.float64)
            pair.exponential_(generator=generator)
            noise[:, node] = pair[0] - pair[1]
        return noise

    def _record(self, bound: float, scale: float) -> None:
        for node, population in enumerate(self._populations):
            release = self.noise.release(bound, scale, population)
            if release is not None:
                self._recorder.record(node, release)

    def _told(self, k: int, norms: Any, bound: float, noises: Any, width: Any) -> None:
        assert self._tracker is not None
        ends = self.noise.synchronises(k)
        self._tracker.sent(noises, width, self.mixing.at(k), synchronises=ends)
        told = [torch.from_numpy(np.array(part)) for part in (norms, noises, width)]
        self._log["rounds"].append([k, bound, *told])

    def state_dict(self) -> dict[str, Any]:
        """Where it stands, for `trainers.checkpoint`."""
        return {
            "streams": [generator.get_state() for generator in self._streams],
            "ledger": self.ledger.to_json(),
            "log": self._log,
            "fresh": self._fresh,
            "done": self._done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where a channel stood, made like this one."""
        for generator, kept in zip(self._streams, state["streams"], strict=True):
            generator.set_state(kept)
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


def planned(
    noise: MessageNoise,
    mixing: Mixing,
    bounds: list[float],
    dims: int,
    populations: tuple[int, ...],
) -> Ledger:
    """What a channel would write if node states start equal and public.

    ``bounds``, one a round, are of what nodes add; messages have ``dims`` numbers.
    """
    recorder = noise.recorder(mixing.nodes)
    ones = np.ones((1, mixing.nodes))
    tracker = noise.tracker(mixing, dims)
    tracker.begin(0 * ones, 0.0, equal=True)
    scale = 1.0
    for k, bound in enumerate(bounds):
        if noise.guarantees:
            try:
                scale = float(tracker.perturbed(np.zeros(0), ones, bound).max())
            except ValueError:  # beyond all doubles
                scale = math.inf
            scale = min(scale, MOST_SENSITIVITY)
            width = noise.noise_multiplier * scale * np.ones(1)
            ends = noise.synchronises(k)
            tracker.sent(ones, width, mixing.at(k), synchronises=ends)
        for node, population in enumerate(populations):
            release = noise.release(bound, scale, population)
            if release is not None:
                recorder.record(node, release)
    return recorder.ledger()


def _norms(values: Tensor) -> np.ndarray:
    """L1, (runs, nodes)."""
    return values.double().abs().sum(2).numpy()
