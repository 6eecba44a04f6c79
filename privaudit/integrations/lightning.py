"""Lightning: a callback that keeps a training's ledger and logs its epsilon."""

from __future__ import annotations

import importlib
import importlib.metadata
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from privaudit.accounting.certificate import Certificate
from privaudit.accounting.recorded import RecordedResult, RecordedRun, RunWriter, worth
from privaudit.integrations import opacus
from privaudit.integrations.opacus_batches import (
    Batches,
    Sums,
    check_optimizer,
    sampler_of,
)
from privaudit.ledger import Ledger, Recorder
from privaudit.results import DELTA, Relation, single_above


def _callback() -> Any:
    """Lightning's class, under either of its names; a plain one without Lightning."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return importlib.import_module(name).Callback
        except ModuleNotFoundError:
            continue
    return object


_Callback: Any = _callback()


class PrivacyCallback(_Callback):
    """Logs the certified epsilon of what was released, and writes the run's folder.

    Pass it in ``Trainer(callbacks=[...])``. It adds no noise itself: use Opacus or
    `privaudit.oracle` for that. What is conditional is logged as such, with
    ``_conditional`` added to its name.

    Of an Opacus engine, what the optimizer clips and sums is held against the batches
    of the trainer's loader, as `privaudit.integrations.opacus.LedgerCallback` does.
    Where that cannot be (ghost or adaptive clipping, several optimizers, parts of
    batches), the fit is refused, and so is one in other processes than this.

    Parameters
    ----------
    source
        Where the ledger comes from: an oracle of `privaudit.oracle`, an Opacus
        ``PrivacyEngine`` (a batch's first tensor has a row a record), or a
        `privaudit.integrations.opacus.LedgerCallback`, which looks into no batch; or a
        function from the LightningModule to one of these.
    out
        A new or an empty folder for the ledger and, at the end, its certificate, which
        ``privaudit show``, ``verify`` and ``report`` read. None: nothing is written.
    delta, epsilon, relation
        The delta at which epsilon is computed; the epsilon that was claimed, if any;
        and the neighbour relation. None: the ledger's own.
    log
        Name of the metric that is logged at the end of each epoch; one that is not
        certified has its standing added, ``epsilon_conditional``. None: none is.
    every
        Number of batches between two writes of ``ledger.json``. If a run is killed, it
        may have released more than the file lists, if its models left the process.

    Attributes
    ----------
    result
        After training: ``certificate`` (bounds on epsilon) and ``verdict``.

    Raises
    ------
    ValueError
        If a value is out of its range; at the start of training, if ``out`` cannot be
        used or, with an engine, what it sums cannot be counted or the trainer's loader
        is not Poisson sampled; during it, if gradients are not those of its batches, or
        an epoch ends and ``source`` released nothing; if ``source`` has no ledger, or
        a checkpoint, or an engine that made steps between two fits, has releases that
        are not in it.
    ModuleNotFoundError
        If Lightning is not installed.

    Examples
    --------
    With Opacus, whose engine made optimizer and data loader private before. It is the
    loader that ``make_private`` returned which is to be trained on::

        callback = PrivacyCallback(engine, "runs/mine", delta=1e-5)
        Trainer(callbacks=[callback]).fit(module, loader)
        print(callback.result.certificate)
    """

    def __init__(
        self,
        source: Any,
        out: str | os.PathLike[str] | None = None,
        *,
        delta: float = DELTA,
        epsilon: float | None = None,
        relation: Relation | None = None,
        log: str | None = "epsilon",
        every: int = 1,
    ) -> None:
        if _Callback is object:
            raise ModuleNotFoundError(
                "PrivacyCallback is a callback of Lightning's, which is not installed: "
                "pip install lightning"
            )
        super().__init__()
        if every < 1:
            raise ValueError(f"every must be >= 1, got {every}")
        if not isinstance(log, str | None):
            raise ValueError(f"log must be a metric's name or None, got {log!r}")
        self._source, self._out, self._log, self._every = source, out, log, every
        how = "written while it trained"
        self._run = RecordedRun.of(
            _made_by(), how, delta, epsilon=epsilon, relation=relation
        )
        self._writer: RunWriter | None = None
        self._sums: Sums | None = None
        self._batches = Batches()
        self._counted: Recorder | None = None
        self._left: object = None  # the engine, and its history when counting stopped
        self._process, self._begun = os.getpid(), 0  # begun: releases before the fit
        self._before: list[int] | None = None  # releases of each node, by a checkpoint
        self.result: RecordedResult | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take the folder, and look at what Opacus will clip and sum."""
        if trainer.world_size > 1 or os.getpid() != self._process:
            raise ValueError(
                "the ledger is of the process that made this callback, and the trainer "
                f"has {trainer.world_size}, or began another, whose releases it would "
                "lack: use Trainer(devices=1) without ddp"
            )
        ledger = self.ledger(pl_module)
        self._check_resumed(trainer, ledger)
        self._begun = sum(_releases(ledger))
        run = self._run
        if _by_opacus(ledger):
            self._count(trainer, pl_module)
            both = f"{run.recorded} with {opacus.version()}"
            run = msgspec.structs.replace(run, recorded=both)
        if self._out is not None:
            self._writer = RunWriter(self._out, run)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch."""
        if self._sums is not None:
            if trainer.optimizers != [self._sums.optimizer]:
                raise ValueError(
                    "the trainer's optimizer is another than as this fit began, and "
                    "what it releases is not counted: use it in a fit of its own"
                )
            self._batches.draw(next(_rows(batch), 0), _rate(trainer))

    def on_train_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Write the ledger."""
        if self._writer is not None and (batch_idx + 1) % self._every == 0:
            self._writer.replace(self.ledger(pl_module))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log epsilon."""
        ledger = self._grown(pl_module)
        if self._log is not None:
            found = Certificate.of(ledger, self._run.relation)
            bracket = found.epsilon(self._run.delta, sides="upper")
            name = self._log
            if bracket.standing != "certified":
                name += f"_{bracket.standing}"
            pl_module.log(name, single_above(bracket.upper), rank_zero_only=True)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Account what was released, and finish the folder."""
        writer, ledger = self._close(pl_module), self._grown(pl_module)
        # Opacus is asked of its own releases only.
        says = opacus.epsilons(ledger, self._run.delta) if _by_opacus(ledger) else {}
        if writer is None:
            self.result = worth(ledger, self._run, says)
        else:
            writer.replace(ledger)
            self.result = writer.finish(says)

    def on_exception(self, trainer: Any, pl_module: Any, exception: Any) -> None:
        """Leave the folder unfinished, with all that was released."""
        writer = self._close(pl_module)
        if writer is not None:
            writer.replace(self.ledger(pl_module))
            writer.close()

    def on_save_checkpoint(
        self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Keep how many releases there were."""
        checkpoint[_RELEASES] = _releases(self.ledger(pl_module))

    def on_load_checkpoint(
        self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Take how many releases there were, which the ledger must have."""
        self._before = checkpoint.get(_RELEASES)

    def _check_resumed(self, trainer: Any, ledger: Ledger) -> None:
        """``ValueError`` if the training goes on from what the ledger has not."""
        now, before, self._before = _releases(ledger), self._before, None
        if before is None:  # a checkpoint of a training without this callback
            before = [int(trainer.global_step > 0 or trainer.current_epoch > 0)]
        if len(now) < len(before) or any(map(operator.lt, now, before)):
            raise ValueError(
                f"this training goes on from at least {max(before):,} releases, and "
                f"the ledger has {max(now):,}, so that epsilon would be of the rest "
                "alone: fit on in the process that began; or restore them first, by "
                "oracle.load_state_dict with its key_file or engine.accountant."
                "load_state_dict; or train without this callback, and account for all "
                "steps by privaudit.epsilon"
            )

    def _grown(self, pl_module: Any) -> Ledger:
        """The ledger. ``ValueError`` if the fit added nothing to it."""
        ledger = self.ledger(pl_module)
        if sum(_releases(ledger)) <= self._begun:
            raise ValueError(
                f"the {type(self._source_of(pl_module)).__name__} released nothing in "
                "this fit, and nothing is known of what was trained: train by the "
                "oracle's gradient(), or by what make_private of the engine returned"
            )
        return ledger

    def ledger(self, pl_module: Any = None) -> Ledger:
        """Ledger of the releases so far, as ``source`` has it."""
        if self._counted is not None:
            return self._counted.ledger()
        source = self._source_of(pl_module)
        found = _ledger(source)
        if found is None:
            raise ValueError(
                "a ledger comes from privaudit.oracle, an Opacus engine or a function "
                f"of the module that gives one of them, got {type(source).__name__}"
            )
        return found

    def _source_of(self, pl_module: Any) -> Any:
        source = self._source
        if _ledger(source) is None and isinstance(source, Callable):
            return source(pl_module)
        return source

    def _count(self, trainer: Any, pl_module: Any) -> None:
        """Count sums from now on. ``ValueError`` if that cannot be."""
        if len(trainer.optimizers) != 1:
            raise ValueError(
                "what Opacus releases is counted of one optimizer, and "
                f"configure_optimizers returned {len(trainer.optimizers)}: return that "
                "of make_private alone, or fit without this callback and account for "
                "the engine's history by privaudit.integrations.opacus.write_run"
            )
        (optimizer,) = trainer.optimizers
        check_optimizer(optimizer)
        layers = importlib.import_module("trainers.gradients.per_sample")  # with torch
        layers.check_statistics(pl_module)
        _rate(trainer)
        engine = self._source_of(pl_module)
        history = opacus.history_of(engine)
        if history is None:  # of a LedgerCallback, which counts by itself
            return
        if self._counted is None:
            earlier = Recorder.of(opacus.read(history))
            self._counted = earlier if history else Recorder(1)
        elif self._left != (engine, [*history]):
            raise ValueError(
                "the engine's history is not what it was after the last fit, and this "
                "callback counted no step between: make a new PrivacyCallback(engine), "
                "which takes all of its history"
            )
        for what in (opacus.FLOATS, opacus.WHOLE):
            self._counted.assume(what)
        self._batches, counted = Batches(), self._counted
        self._sums = Sums(optimizer, self._batches, lambda one: counted.record(0, one))

    def _close(self, pl_module: Any) -> RunWriter | None:
        """Stop counting, and give out the folder's writer; what was counted stays."""
        if self._sums is not None:
            self._sums.close()
            self._sums = None
            engine = self._source_of(pl_module)
            self._left = engine, [*opacus.history_of(engine)]
        writer, self._writer = self._writer, None
        return writer


_RELEASES = "privaudit_releases"  # in a checkpoint


def _releases(ledger: Ledger) -> list[int]:
    return [sum(entry.count for entry in node) for node in ledger.nodes]


def _ledger(source: Any) -> Ledger | None:
    known = getattr(source, "ledger", None)
    if isinstance(known, Ledger):
        return known
    history = opacus.history_of(source)
    return None if history is None else opacus.read(history)


def _rows(batch: Any) -> Iterator[int]:
    """Rows of each tensor that a batch has; those of the first are its records."""
    parts = batch.values() if isinstance(batch, Mapping) else batch
    if getattr(parts, "shape", ()):
        yield len(parts)
    elif isinstance(batch, Mapping | list | tuple):
        for part in parts:
            yield from _rows(part)


def _rate(trainer: Any) -> float:
    """Rate of the loader that is trained on. ``ValueError`` if it is not Poisson."""
    loader = trainer.train_dataloader
    sampler = sampler_of(loader)
    if sampler is not loader.batch_sampler:
        raise ValueError(
            "a trainer ends an epoch after as many parts of batches as it expects, "
            "whatever was drawn, which no account covers: give the loader that "
            "PrivacyEngine.make_private returned in place of BatchMemoryManager's"
        )
    return float(sampler.sample_rate)


def _by_opacus(ledger: Ledger) -> bool:
    return opacus.FLOATS in ledger.assumptions


def _made_by() -> str:
    for name in ("lightning", "pytorch-lightning"):
        try:
            return f"Lightning {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return "Lightning"
