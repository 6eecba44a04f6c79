"""Opacus: read a training's ledger from its history, and write the run's folder.

Opacus (1.x) keeps, in ``PrivacyEngine.accountant.history``, a noise multiplier, a
sampling rate and a number of steps for each stretch of equal steps: noisy sums of
clipped gradients over Poisson batches.

    ledger_of       reads such a history; `privaudit.ledger_from` does so too
    write_run       writes the folder of a finished training, from its engine
    LedgerCallback  writes the folder during training, from optimizer and data loader
    audit           audits a training by canaries in gradient space; see
                    `privaudit.auditing.programs.opacus_loop`

``privaudit show``, ``verify`` and ``report`` read the folder. Its account is
conditional: see `POISSON` and `FLOATS`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Self

from privaudit.accounting.recorded import (
    RecordedResult,
    RecordedRun,
    RunWriter,
    write,
)
from privaudit.files.arguments import public
from privaudit.ledger import Entry, Ledger
from privaudit.release import PoissonSampling, Release
from privaudit.results import DELTA, Relation

POISSON = (
    "batches were Poisson sampled, as Opacus' DPDataLoader does and a history does not "
    "tell"
)
FLOATS = (
    "Opacus' coins, sums and noise, which are floating point numbers of torch's "
    "generators, hide as much as exact ones would"
)
# Of these, noise over clip norm is what is added; others change it, or run in parts.
_OPTIMIZERS = (
    "DPOptimizer",
    "DPOptimizerFastGradientClipping",
    "DPPerLayerOptimizer",
)
_SAMPLER = "UniformWithReplacementSampler"


def history_of(source: Any) -> Any:
    """The history of a ``PrivacyEngine`` or of one of its accountants; else None."""
    accountant = getattr(source, "accountant", source)
    return getattr(accountant, "history", None)


def is_history(source: Any) -> bool:
    """Whether ``source`` looks like a history: a list of three numbers each."""
    return isinstance(source, Sequence) and all(
        isinstance(part, Sequence) and len(part) == 3 and not isinstance(part, str)
        for part in source
    )


@public
def ledger_of(history: Sequence[tuple[float, float, int]]) -> Ledger:
    """Read a ledger from a history: (noise multiplier, sampling rate, steps), in order.

    The ledger assumes, as Opacus' accountants do, that batches were Poisson sampled at
    that rate. With ``poisson_sampling=False`` they are shuffled, which no such account
    covers, and the history does not show which. So the account is conditional.

    Raises ``ValueError`` for numbers out of their range.
    """
    if not is_history(history):
        raise ValueError(
            "an Opacus history is a list of a noise multiplier, a sampling rate and a "
            f"number of steps each, got {history!r}"
        )
    entries = []
    for place, (noise, rate, steps) in enumerate(history):
        if not 0 <= noise < math.inf or not 0 <= rate <= 1 or steps != int(steps):
            raise ValueError(
                f"entry {place} of an Opacus history is a noise multiplier >= 0, a "
                f"sampling rate in [0, 1] and a number of steps, got {noise}, {rate} "
                f"and {steps}"
            )
        if rate == 0 or steps == 0:
            continue
        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=noise, sampling=PoissonSampling(rate)
        )
        entries.append(Entry(release, int(steps)))
    return Ledger(nodes=(tuple(entries),), assumes=(POISSON, FLOATS))


@public
def epsilons(ledger: Ledger, delta: float) -> dict[str, float]:
    """Compute epsilon by Opacus' own accountants, "RDP" and "PRV", for a ledger.

    Accountants that give no figure are left out; without Opacus the result is empty.
    """
    try:
        accountants = importlib.import_module("opacus.accountants")
    except ModuleNotFoundError:
        return {}
    found: dict[str, float] = {}
    for name in ("rdp", "prv"):
        accountant = accountants.create_accountant(name)
        accountant.history = [
            (entry.release.noise / entry.release.norm_bound, rate, entry.count)
            for entry in ledger.nodes[0]
            if (rate := entry.release.sampling.rate) > 0
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                value = float(accountant.get_epsilon(delta=delta))
            except Exception:  # somebody else's code, and its figure is beside ours
                continue
        if value >= 0:  # no nan
            found[name.upper()] = value
    return found


@public
def write_run(
    source: Any,
    out: str | os.PathLike[str],
    *,
    delta: float = DELTA,
    epsilon: float | None = None,
    relation: Relation | None = None,
) -> RecordedResult:
    """Write the folder of a finished Opacus training, which ``privaudit verify`` reads.

    Parameters
    ----------
    source
        A ``PrivacyEngine``, its accountant or the accountant's history.
    out
        A new or an empty folder.
    delta
        The delta at which epsilon is computed.
    epsilon
        The epsilon that was claimed for the run, if any.
    relation
        The neighbour relation. None: add-or-remove-one.

    Returns
    -------
    The run's result: ``certificate`` (bounds on epsilon), ``verdict`` on the claim, and
    ``says``, the figures of Opacus' own accountants.

    Raises
    ------
    ValueError
        If ``source`` has no history, a number is out of its range, or ``out`` cannot be
        used.

    Examples
    --------
    >>> import tempfile
    >>> import privaudit as pa
    >>> with tempfile.TemporaryDirectory() as out:
    ...     result = write_run([(1.0, 0.01, 1000)], out)  # or a PrivacyEngine
    ...     pa.verify(out).differences
    ()
    >>> 1.82 < result.certificate.upper < 1.84, result.certificate.standing
    (True, 'conditional')
    """
    found = history_of(source)
    history = source if found is None else found
    if not is_history(history):
        raise ValueError(
            "give an Opacus PrivacyEngine, its accountant or its history, got "
            f"{type(source).__name__}"
        )
    ledger = ledger_of(history)
    run = _run(
        "read from the history that Opacus kept", delta, epsilon=epsilon, of=relation
    )
    return write(out, run, ledger, epsilons(ledger, delta))


class LedgerCallback:
    """Writes the folder of an Opacus training during the training.

    Before each step changes the model, it reads the clip norm, the noise and the number
    of summed batches from the optimizer, and the sampling rate from the sampler.
    Opacus' own accountant goes on as before.

    Parameters
    ----------
    optimizer, data_loader
        As ``PrivacyEngine.make_private`` gave them.
    out
        A new or an empty folder.
    delta, epsilon, relation
        As in `write_run`.
    every
        Number of steps between two writes. ``ledger.json`` counts these steps before
        they are made, so that it never lists too few.

    Attributes
    ----------
    ledger
        What has been released so far; `privaudit.epsilon` takes it at any time.

    Raises
    ------
    ValueError
        If batches are not Poisson sampled, if the optimizer is not one of Opacus' or
        adds noise in another way, or if ``out`` cannot be used.

    Examples
    --------
    In place of Opacus' own loop::

        model, optimizer, loader = engine.make_private(...)
        with LedgerCallback(optimizer, loader, "runs/mine", delta=1e-5) as callback:
            for inputs, targets in loader:
                ...
                optimizer.step()
        print(callback.result.certificate)  # at the end the folder is finished
    """

    def __init__(
        self,
        optimizer: Any,
        data_loader: Any,
        out: str | os.PathLike[str],
        *,
        delta: float = DELTA,
        epsilon: float | None = None,
        relation: Relation | None = None,
        every: int = 50,
    ) -> None:
        kinds = [kind.__name__ for kind in type(optimizer).__mro__]
        if kinds[0] not in _OPTIMIZERS:
            what = "write_run reads the history of its engine, after training"
            if "DPOptimizer" not in kinds:
                what = "give the one that PrivacyEngine.make_private returned"
            raise ValueError(
                f"the noise of {kinds[0]} is not known from its attributes: {what}"
            )
        self._sampling = PoissonSampling(_rate(data_loader))
        run = _run("written while it trained", delta, epsilon=epsilon, of=relation)
        self.result: RecordedResult | None = None
        self._writer = RunWriter(out, run, every=every)
        self._writer.assume(FLOATS)
        self._optimizer, self._before = optimizer, optimizer.step_hook
        optimizer.attach_step_hook(self._step)

    def _step(self, optimizer: Any) -> None:
        """Before the step that Opacus is about to make."""
        # Batches that were summed: as if each had its share of the noise. A record may
        # be in several, so that one batch of the sum of their rates is not the same.
        batches = optimizer.accumulated_iterations
        norm = float(optimizer.max_grad_norm)
        noise = float(optimizer.noise_multiplier) / math.sqrt(batches)
        if batches > 1:
            noise = math.nextafter(noise, 0.0)
        release = Release.of_sum(
            norm_bound=norm, noise_multiplier=noise, sampling=self._sampling
        )
        self._writer.record(release, batches)
        if self._before is not None:
            self._before(optimizer)

    @property
    def ledger(self) -> Ledger:
        """All that has been released so far."""
        return self._writer.ledger

    def finish(self) -> RecordedResult:
        """Compute the certificate, complete the folder, and end the run."""
        self.close()
        if self.result is None:
            says = epsilons(self.ledger, self._writer.run.delta)
            self.result = self._writer.finish(says)
        return self.result

    def close(self) -> None:
        """Detach from the optimizer; the folder stays as it is."""
        if self._optimizer.step_hook == self._step:
            self._optimizer.attach_step_hook(self._before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()
            self._writer.close()


def version() -> str:
    """Opacus with its version, as a record names it."""
    try:
        return f"Opacus {importlib.metadata.version('opacus')}"
    except importlib.metadata.PackageNotFoundError:
        return "Opacus of unknown version"


def _run(
    how: str, delta: float, *, epsilon: float | None, of: Relation | None
) -> RecordedRun:
    return RecordedRun.of(version(), how, delta, epsilon=epsilon, relation=of)


def _rate(data_loader: Any) -> float:
    """Each record's chance to be in a batch, from the sampler that draws them."""
    known: Iterable[Any] = (
        getattr(data_loader, "batch_sampler", None),
        getattr(getattr(data_loader, "batch_sampler", None), "sampler", None),
    )
    for sampler in known:
        if type(sampler).__name__ == _SAMPLER:
            return float(sampler.sample_rate)
    raise ValueError(
        "the batches of this data loader are not Poisson sampled, so that no account "
        "of Opacus' holds for them: give the loader that PrivacyEngine.make_private "
        "returned, with poisson_sampling=True"
    )


_AUDITS = ("audit", "loss_scores", "OpacusCanary")


def __getattr__(name: str) -> Any:
    """Audits of trainings with Opacus, which need torch: see `opacus_loop`."""
    if name not in _AUDITS:
        raise AttributeError(f"privaudit.integrations.opacus has no {name}")
    return getattr(
        importlib.import_module("privaudit.auditing.programs.opacus_loop"), name
    )
