"""Lightning: a callback that keeps a training's ledger and logs its epsilon."""

from __future__ import annotations

import importlib
import importlib.metadata
import operator
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from privaudit.accounting.certificate import Certificate
from privaudit.accounting.recorded import RecordedResult, RecordedRun, RunWriter
from privaudit.integrations import opacus
from privaudit.integrations.opacus_batches import Batches, Sums, is_counted, sampler_of
from privaudit.ledger import Ledger, Recorder
from privaudit.results import DELTA, Relation, check_delta, single_above


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
    Where that cannot be (ghost or adaptive clipping, ``BatchMemoryManager``, several
    processes or optimizers), the engine's history is taken, with what that assumes.

    Parameters
    ----------
    source
        Where the ledger comes from: an oracle of `privaudit.oracle`, an Opacus
        ``PrivacyEngine``, or a `privaudit.integrations.opacus.LedgerCallback`; or a
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
        used or, with an engine, the trainer's loader is not Poisson sampled; during it,
        if gradients are not those of its batches; if ``source`` has no ledger, or a
        checkpoint has releases that are not in it.
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
        self._source, self._out, self._log, self._every = source, out, log, every
        self._delta, self._relation = check_delta(delta), relation
        self._run = RecordedRun.of(
            _made_by(), _HOW, delta, epsilon=epsilon, relation=relation
        )
        self._writer: RunWriter | None = None
        self._sums: Sums | None = None
        self._batches, self._sampler = Batches(), None
        self._counted: Recorder | None = None
        self._before: list[int] | None = None  # releases of each node, by a checkpoint
        self.result: RecordedResult | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take the folder, and look at what Opacus will clip and sum."""
        self._check_resumed(trainer, self.ledger(pl_module))
        self._count(trainer, pl_module)
        if self._out is not None and trainer.is_global_zero:
            run = self._run
            if _by_opacus(self.ledger(pl_module)):
                both = f"{run.recorded} with {opacus.version()}"
                run = msgspec.structs.replace(run, recorded=both)
            self._writer = RunWriter(self._out, run)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch."""
        if self._sums is not None:
            rate = float(self._sampler.sample_rate)  # type: ignore[union-attr]
            self._batches.draw(_records(batch), rate)

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
        if self._log is not None:
            found = Certificate.of(self.ledger(pl_module), self._relation)
            bracket = found.epsilon(self._delta, sides="upper")
            name = self._log
            if bracket.standing != "certified":
                name += f"_{bracket.standing}"
            pl_module.log(name, single_above(bracket.upper), rank_zero_only=True)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Account what was released, and finish the folder."""
        self._close()
        if self._writer is not None:
            ledger = self.ledger(pl_module)
            self._writer.replace(ledger)
            if opacus.history_of(self._source_of(pl_module)) is not None:
                opacus.check_any(ledger)
            elif not any(ledger.nodes):
                raise ValueError(
                    "the oracle released nothing, and nothing is known of what was "
                    "trained: train by its gradient()"
                )
            # Opacus is asked of its own releases only.
            says = opacus.epsilons(ledger, self._delta) if _by_opacus(ledger) else {}
            self.result = self._writer.finish(says)

    def on_exception(self, trainer: Any, pl_module: Any, exception: Any) -> None:
        """Leave the folder unfinished, with all that was released."""
        self._close()
        if self._writer is not None:
            self._writer.replace(self.ledger(pl_module))
            self._writer.close()

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
        """Count sums from now on, where an engine alone would say what was released."""
        history = opacus.history_of(self._source_of(pl_module))
        optimizers = trainer.optimizers
        if history is None or len(optimizers) != 1 or not is_counted(optimizers[0]):
            return
        loader = trainer.train_dataloader
        self._sampler = sampler_of(loader)
        if self._sampler is not loader.batch_sampler:
            return  # parts of batches, which a trainer does not tell apart
        counted = self._counted or Recorder(1)
        if history and self._counted is None:  # of an earlier training
            counted = Recorder.of(opacus.ledger_of(history))
        for what in (opacus.FLOATS, opacus.WHOLE):
            counted.assume(what)
        self._batches, self._counted = Batches(), counted
        self._sums = Sums(
            optimizers[0], self._batches, lambda one: counted.record(0, one)
        )

    def _close(self) -> None:
        """Stop counting; what was counted stays."""
        if self._sums is not None:
            self._sums.close()
            self._sums = None


_HOW = "written while it trained"
_RELEASES = "privaudit_releases"  # in a checkpoint


def _releases(ledger: Ledger) -> list[int]:
    return [sum(entry.count for entry in node) for node in ledger.nodes]


def _ledger(source: Any) -> Ledger | None:
    known = getattr(source, "ledger", None)
    if isinstance(known, Ledger):
        return known
    history = opacus.history_of(source)
    return None if history is None else opacus.ledger_of(history)


def _records(batch: Any) -> int:
    """Number of records a batch has: rows of its first tensor."""
    if hasattr(batch, "shape"):
        return len(batch)
    parts = batch.values() if isinstance(batch, Mapping) else batch
    return _records(next(iter(parts)))


def _by_opacus(ledger: Ledger) -> bool:
    return opacus.FLOATS in ledger.assumptions


def _made_by() -> str:
    for name in ("lightning", "pytorch-lightning"):
        try:
            return f"Lightning {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return "Lightning"
