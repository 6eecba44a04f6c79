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
conditional: see `HISTORY`, `WHOLE` and `FLOATS`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import math
import numbers
import os
import warnings
from collections.abc import Sequence
from typing import Any, Self

from privaudit.accounting.recorded import (
    RecordedResult,
    RecordedRun,
    RunWriter,
    write,
)
from privaudit.files.arguments import public
from privaudit.integrations.opacus_batches import (
    Batches,
    Sums,
    Watch,
    check_optimizer,
    sampler_of,
)
from privaudit.ledger import Entry, Ledger
from privaudit.release import PoissonSampling, Release
from privaudit.results import DELTA, Relation

HISTORY = (
    "each step summed one batch of the engine's own loader, Poisson sampled anew, each "
    "record once, none skipped, each record's gradient clipped to the norm that the "
    "noise multiplies, nothing else was released (no adaptive clip norm), and "
    "parameters and buffers change by the engine's noisy steps only, which a history "
    "does not tell"
)
WHOLE = (
    "each gradient that was clipped is one record's alone, of the batches that the "
    "loader drew, as their numbers agree, and parameters and buffers change by noisy "
    "steps only"
)
FLOATS = (
    "Opacus' coins, sums and noise, which are floating point numbers of torch's "
    "generators, hide as much as exact ones would"
)

_MOST_PRV = 50.0  # epsilon, up to which PRV's grids fit into memory


def history_of(source: Any) -> Any:
    """The history of a ``PrivacyEngine`` or of one of its accountants; else None."""
    accountant = getattr(source, "accountant", source)
    return getattr(accountant, "history", None)


def is_history(source: Any) -> bool:
    """Return whether ``source`` looks like a history: a list of three numbers each."""
    return isinstance(source, Sequence) and all(
        isinstance(part, Sequence) and len(part) == 3 and not isinstance(part, str)
        for part in source
    )


@public
def ledger_of(history: Sequence[tuple[float, float, int]]) -> Ledger:
    """Read a ledger from a history: (noise multiplier, sampling rate, steps), in order.

    The ledger assumes, as Opacus' accountants do, that each step summed one batch,
    Poisson sampled at that rate. With ``poisson_sampling=False`` batches are shuffled,
    and ``signal_skip_step`` sums several, which no such account covers, and the history
    does not show either. So the account is conditional.

    Raises ``ValueError`` for numbers out of their range, or a history without steps.
    """
    ledger = read(history)
    check_any(ledger)
    return ledger


def read(history: Sequence[tuple[float, float, int]]) -> Ledger:
    """Read a ledger as `ledger_of`, of no step too."""
    if not is_history(history):
        raise ValueError(
            "an Opacus history is a list of a noise multiplier, a sampling rate and a "
            f"number of steps each, got {history!r}"
        )
    entries = []
    for place, entry in enumerate(history):
        noise, rate, steps = entry
        if (
            not all(isinstance(one, numbers.Real) for one in entry)
            or not (0 <= noise < math.inf and 0 <= rate <= 1)
            or not (0 <= steps < math.inf and steps == int(steps))
        ):
            raise ValueError(
                f"entry {place} of an Opacus history is a noise multiplier >= 0, a "
                f"sampling rate in [0, 1] and a number of steps >= 0, got {noise!r}, "
                f"{rate!r} and {steps!r}"
            )
        if rate == 0 or steps == 0:
            continue
        release = Release.of_sum(
            norm_bound=1.0, noise_multiplier=noise, sampling=PoissonSampling(rate)
        )
        entries.append(Entry(release, int(steps)))
    return Ledger(nodes=(tuple(entries),), assumes=(HISTORY, FLOATS))


def check_any(ledger: Ledger) -> None:
    """Raise ``ValueError`` for a ledger without releases, which is worth epsilon 0.

    Gradients were then not used, or without noise, and that is in no ledger.
    """
    if not ledger.nodes[0]:
        raise ValueError(
            "no step of Opacus' optimizer was counted, and nothing is known of what "
            "was trained: step the one that PrivacyEngine.make_private returned"
        )


@public
def epsilons(ledger: Ledger, delta: float) -> dict[str, float]:
    """Compute epsilon by Opacus' own accountants, "RDP" and "PRV", for a ledger.

    Accountants that give no figure are left out; without Opacus the result is empty.
    PRV is not asked where RDP says more than 50, and the log says so.
    """
    try:
        accountants = importlib.import_module("opacus.accountants")
    except ModuleNotFoundError:
        return {}
    found: dict[str, float] = {}
    for name in ("rdp", "prv"):
        if name == "prv" and not (rdp := found.get("RDP", math.inf)) <= _MOST_PRV:
            logging.getLogger("privaudit").warning(
                "Opacus' PRV accountant is not asked, whose memory grows with epsilon: "
                "by RDP it is %g",
                rdp,
            )
            break
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
        If ``source`` has no history or one without steps, a number is out of its
        range, or ``out`` cannot be used.

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

    Whenever the optimizer adds noise, the ledger gets what it is added to: the batches
    that the loader drew and whose gradients were clipped and summed since, each as
    often as it is in the sum, with clip norms and noise as they were when they were
    used; see `privaudit.integrations.opacus_batches`. Opacus' own accountant, which
    counts steps, goes on as before.

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
        If batches are not Poisson sampled, if the optimizer is not one of Opacus',
        clips what cannot be counted (ghost clipping) or adds noise in another way
        (adaptive clipping, several processes), or if ``out`` cannot be used. During
        training, before the release: if gradients are clipped of which the loader drew
        no batch, noise is added to parts of batches, or a step is made without noise.

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
        check_optimizer(optimizer)
        sampler_of(data_loader)  # both raise before there is a folder
        batches = Batches()
        run = _run("written while it trained", delta, epsilon=epsilon, of=relation)
        self.result: RecordedResult | None = None
        self._writer = RunWriter(out, run, every=every)
        for what in (FLOATS, WHOLE):
            self._writer.assume(what)
        self._watch = Watch(data_loader, batches)
        self._sums = Sums(optimizer, batches, self._writer.record)

    @property
    def ledger(self) -> Ledger:
        """All that has been released so far."""
        return self._writer.ledger

    def finish(self) -> RecordedResult:
        """Compute the certificate, complete the folder, and end the run."""
        self.close()
        if self.result is None:
            check_any(self.ledger)
            says = epsilons(self.ledger, self._writer.run.delta)
            self.result = self._writer.finish(says)
        return self.result

    def close(self) -> None:
        """Detach from optimizer and loader; the folder stays as it is."""
        self._watch.close()
        self._sums.close()

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


_AUDITS = ("audit", "loss_scores", "OpacusCanary")


def __getattr__(name: str) -> Any:
    """Audits of trainings with Opacus, which need torch: see `opacus_loop`."""
    if name not in _AUDITS:
        raise AttributeError(f"privaudit.integrations.opacus has no {name}")
    return getattr(
        importlib.import_module("privaudit.auditing.programs.opacus_loop"), name
    )
