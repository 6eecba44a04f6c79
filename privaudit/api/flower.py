"""Flower apps made private: at each client by record, or at the server by client.

`PrivateClient` is a client's mod: gradients are of a `privaudit.oracle`, with a key
of this client alone, and what leaves it is the model and the metrics that are named.
`ExactClipping` is a strategy whose noise is an exactly rounded Gaussian number.
"""

from __future__ import annotations

import logging
import math
import numbers
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping
from torch import Tensor, nn
from torch.utils.data import default_collate

from privaudit.accounting.filters import Budget
from privaudit.accounting.recorded import RecordedRun, write
from privaudit.api.loops import GradientOracle, oracle
from privaudit.files import json as _json
from privaudit.ledger import Recorder
from privaudit.report.verify import sign, verify
from privaudit.results import DELTA
from trainers.gradients.clip_weights import clip_weights
from trainers.gradients.per_sample import parameter_vector, trained
from trainers.numerics.keys import Key
from trainers.numerics.noise import rounding_l2_up
from trainers.numerics.randomness import Streams, grid_step

ONLY_BY_STEPS = (
    "the client app reads its records by PrivateClient.steps alone, and what it sends "
    "is the model and metrics of public data"
)
_STATE = "privaudit"  # record of a client's Context
_OLD = ("fitins.", "evaluateins.")  # records of a message to a NumPyClient
_LOG = logging.getLogger("privaudit")


class PrivateClient:
    """Mod of a Flower client whose training is private by record.

    Its ledger and how much was released are in the client's ``Context``; the secret
    key, with a journal of releases, is in ``folder``, which must be of this client
    alone. A client that was killed goes on, by whatever node id, and releases nothing
    twice. What leaves it is one ``ArrayRecord``, of names and shapes of the model that
    was trained. A ``NumPyClient``, whose arrays have no names, is refused.

    Parameters
    ----------
    folder
        Where ``RUN-NODE/key`` and ``RUN-NODE/evidence`` are written, NODE being the
        first node id in the run; `privaudit.verify` and `privaudit.join` read the
        latter. Or a function from the client's ``Context`` to it, where clients share a
        machine, as in a simulation.
    noise_multiplier, clip_norm, batch_size
        As of `privaudit.oracle`.
    epsilon
        Budget of this client in one run of Flower, if there is one: the step that would
        exceed it raises ``BudgetExceeded``, so that Flower hears of a client that
        failed. Each run, by its id, has a key, a ledger and a budget of its own.
    delta
        In (0, 1).
    metrics
        Names of metrics that may leave the client. All others are dropped from its
        replies, as an account of gradients does not cover what is computed of its
        records. The number of examples is public.
    key
        File with a private key that signs the evidence.

    Examples
    --------
    In a client app, with ``optimizer`` of the model's parameters::

        private = PrivateClient(
            "runs/ward", noise_multiplier=1.0, clip_norm=1.0, batch_size=32, epsilon=4.0
        )
        app = ClientApp(mods=[private])
        ...
        for _ in private.steps(model, records, epochs):
            optimizer.step()
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | Callable[[Any], str | os.PathLike[str]],
        *,
        noise_multiplier: float,
        clip_norm: float,
        batch_size: float,
        epsilon: float | None = None,
        delta: float = DELTA,
        metrics: Sequence[str] = ("num-examples",),
        key: str | os.PathLike[str] | None = None,
    ) -> None:
        self._folder, self._key = folder, key
        self._how = {
            "noise_multiplier": noise_multiplier,
            "clip_norm": clip_norm,
            "batch_size": batch_size,
        }
        self._epsilon, self._delta, self._metrics = epsilon, delta, frozenset(metrics)
        self._context: Any = None
        self._open: tuple[GradientOracle, pathlib.Path] | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}  # of the model that was trained

    def __call__(
        self, message: Any, context: Any, call_next: Callable[..., Any]
    ) -> Any:
        """Call the app, and take from its reply what may not leave the client.

        The evidence is written first, and steps that were left unfinished cannot go on.
        Raises ``ValueError`` if it trained in another way than by `steps`.
        """
        if any(name.startswith(_OLD) for name in message.content):
            raise ValueError(
                "a NumPyClient's replies have arrays without names and the number of "
                "examples elsewhere: write the client app by @app.train()"
            )
        self._context, self._shapes = context, {}
        try:
            reply = call_next(message, context)
        finally:
            self._context = None
            if self._open is not None:
                self._open[0].close()
                self._write(context, *self._open)
                self._open = None
        if reply.has_error():
            return reply
        content = reply.content
        arrays = [*content.array_records.values()]
        sent = {name: tuple(one.shape) for each in arrays for name, one in each.items()}
        if len(arrays) > 1 or not sent.items() <= self._shapes.items():
            raise ValueError(
                f"{len(arrays)} ArrayRecord, of {', '.join(sent)}, is to leave this "
                "client that was not trained by PrivateClient.steps: send one, of the "
                "model that steps trained, as ArrayRecord(model.state_dict())"
            )
        for name in [*content.config_records]:
            del content[name]
        for record in content.metric_records.values():
            for name in {*record} - self._metrics:
                del record[name]
        return reply

    def steps(
        self,
        model: nn.Module,
        records: Any,
        epochs: int = 1,
        loss: Callable[..., Any] | None = None,
    ) -> Iterator[int]:
        """Put a noisy gradient into ``model`` and yield the step's number, in turn.

        A step's batch is sampled by coins; ``epochs`` are as many steps as would see
        all ``records`` so often: a list of pairs (input, target), or a data set as of
        `privaudit.train`.

        Raises as `privaudit.oracle` and `GradientOracle.gradient`, and ``ValueError``
        outside of a client app that has this mod, or if ``epochs`` is no whole number
        from 1 on.
        """
        if self._context is None:
            raise ValueError(
                "PrivateClient.steps is called by a client app: ClientApp(mods=[...])"
            )
        if not isinstance(epochs, numbers.Integral) or epochs < 1:
            raise ValueError(f"epochs must be a whole number from 1 on, got {epochs!r}")
        context = self._context
        given = self._folder(context) if callable(self._folder) else self._folder
        folder, run = pathlib.Path(given), context.run_id
        # A client that is begun again has another node id, and the budget that it had.
        new = folder / f"{run}-{context.node_id}"
        place, *others = sorted(folder.glob(f"{run}-*")) or [new]
        if others:
            raise ValueError(
                f"{folder} has {place.name} and {others[0].name}, two budgets in one "
                "run, and must be of one client alone: give each client its own folder "
                "(a function of its Context), and begin a new run"
            )
        place.mkdir(parents=True, exist_ok=True)
        if isinstance(records, list):
            records = tuple(default_collate(records))
        budget = None
        if self._epsilon is not None:
            budget = Budget(epsilon=self._epsilon, delta=self._delta)
        here = oracle(
            *(model, [records]),
            **self._how,
            loss=loss,
            budget=budget,
            key_file=place / "key",
        )
        self._open = here, place
        if _STATE in context.state.config_records:
            text = str(context.state.config_records[_STATE]["oracle"])
            here.load_state_dict(_json.decode(text.encode(), dict))
        parameters = [*trained(model).values()]
        per_epoch = math.ceil(here.sizes[0] / self._how["batch_size"])
        try:
            for step in range(epochs * per_epoch):
                at = parameter_vector(model).detach().cpu()
                (down,) = here.gradient(at[None])
                state = model.state_dict().items()  # with more than tensors in some
                tensors = ((name, one) for name, one in state if torch.is_tensor(one))
                self._shapes = {name: tuple(one.shape) for name, one in tensors}
                self._keep(context, here)
                parts = down.split([one.numel() for one in parameters])
                for one, part in zip(parameters, parts, strict=True):
                    one.grad = part.view_as(one).to(one)
                yield step
        finally:
            here.close()

    def _keep(self, context: Any, here: GradientOracle) -> None:
        text = _json.encode(here.state_dict(), indent=0).decode()
        context.state[_STATE] = ConfigRecord({"oracle": text})

    def _write(self, context: Any, here: GradientOracle, place: pathlib.Path) -> None:
        """The evidence so far, in the place of that of earlier rounds."""
        if not here.ledger.nodes[0]:
            return
        recorder = Recorder.of(here.ledger)
        recorder.assume(ONLY_BY_STEPS)
        run = RecordedRun.of(
            "a Flower client",
            "written by privaudit.oracle at each release",
            self._delta,
            epsilon=self._epsilon,
            run=f"Flower's run {context.run_id}",
        )
        new, old = place / "evidence.new", place / "evidence"
        shutil.rmtree(new, ignore_errors=True)
        write(new, run, recorder.ledger())
        if self._key is not None:
            sign(verify(new), self._key)
        shutil.rmtree(old, ignore_errors=True)
        new.rename(old)


class ExactClipping(DifferentialPrivacyServerSideFixedClipping):
    """Flower's server-side clipping, whose noise is exact: private by client.

    In the place of ``DifferentialPrivacyServerSideFixedClipping``, with its arguments.
    Updates are clipped, rounded to a grid and summed without rounding, whatever weights
    clients state; noise is an exactly rounded Gaussian number by a secret key. One that
    cannot be read counts as none, and the log names its node. Metrics of clients are
    dropped and no evaluation is asked of them: no account covers what they compute.

    Raises ``ValueError`` if the clipping norm is too small for so many parameters.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        if self.accountant is not None and hasattr(self.accountant, "exact"):
            self.accountant.exact = True

    def __repr__(self) -> str:
        """As Flower's own."""
        return "Differential Privacy Strategy Wrapper (exact noise, privaudit)"

    def configure_evaluate(self, *_: Any, **__: Any) -> list[Any]:
        """No message: of what clients compute on their records nothing is private."""
        return []

    def aggregate_evaluate(self, *_: Any, **__: Any) -> None:
        """Nothing, whoever sends it."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Any]
    ) -> tuple[ArrayRecord | None, None]:
        """The model moved by the noisy mean of the clipped updates."""
        found = list(replies)
        event = self._pop_pending_event(server_round)
        failed = [reply for reply in found if reply.has_error()]
        if failed or len(found) != self.num_sampled_clients:
            return None, None
        before = self.current_arrays.to_numpy_ndarrays()
        start = _vector(before)
        deviation = self.noise_multiplier * self.clipping_norm
        most = self.clipping_norm * self.num_sampled_clients
        step = grid_step(deviation, most)
        clip = self.clipping_norm - rounding_l2_up(step, len(start), 2)
        if clip <= 0:
            raise ValueError(
                f"a clipping norm of {self.clipping_norm:g} is less than what rounding "
                f"moves {len(start):,} parameters by: choose a larger one"
            )
        total = torch.zeros_like(start)
        for reply in found:
            total += _clipped(reply, start, before, clip, step)
        # A key a release: no round number that comes again has noise that was used.
        streams = Streams(Key.secret())
        noisy = streams.noisy(total[None, None], [0], 0, deviation, step)[0, 0]
        after = start + noisy / self.num_sampled_clients
        parts = after.split([one.size for one in before])
        new = {
            name: Array(part.view(one.shape).numpy().astype(one.dtype))
            for name, one, part in zip(self.current_arrays, before, parts, strict=True)
        }
        self._compose_release(event)
        return ArrayRecord(new), None


def _vector(arrays: Sequence[Any]) -> Tensor:
    return torch.cat([torch.as_tensor(one).double().flatten() for one in arrays])


def _clipped(
    reply: Any, start: Tensor, before: Sequence[Any], clip: float, step: float
) -> Tensor:
    """An update of norm <= ``clip``, (dims,) doubles on the grid; zeros of none."""
    try:
        (arrays,) = reply.content.array_records.values()
        given = arrays.to_numpy_ndarrays()
        if [one.shape for one in given] != [one.shape for one in before]:
            raise ValueError("its arrays have other shapes than the model's")
        update = _vector(given) - start
        if not update.isfinite().all():
            raise ValueError("its arrays are not finite")
    except Exception as error:  # whether a round ends is not a client's to say
        node = reply.metadata.src_node_id
        _LOG.warning("the reply of node %s counts as no update: %s", node, error)
        return torch.zeros_like(start)
    update = update * clip_weights(torch.linalg.vector_norm(update), clip)
    return (update / step).round_() * step
