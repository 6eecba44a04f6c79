"""Trainings by other tools: a folder with their ledger, and what that is worth.

The folder is one as of `privaudit train`, without curves and models: ``show``,
``verify`` and ``report`` read it. While the tool trains, ``ledger.json`` is never
behind it: what is written counts some releases ahead, until the run is finished.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Self

import msgspec
from msgspec import UNSET, UnsetType

from privaudit.accounting.account import account_nodes
from privaudit.accounting.certificate import Certificate, keep_witness, relation_of
from privaudit.accounting.verdict import verdict_on
from privaudit.files.folder import FolderError, RunFolder
from privaudit.files.manifest import write_result
from privaudit.ledger import Ledger, Recorder
from privaudit.release import Release
from privaudit.results import (
    Bracket,
    Claim,
    Finding,
    Relation,
    Status,
    UpperBound,
    check_delta,
    check_relation,
)
from privaudit.version import __version__


class RecordedRun(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Training by another tool, and the delta of its account: ``config.json``."""

    recorded: str  # the tool and its version, such as ``opacus 1.6.0``
    how: str  # how its ledger came about, in words
    delta: float  # in (0, 1)
    # the neighbour relation; None: the ledger's own, see `Certificate.of`
    relation: Relation | None = None
    claim: Claim | None = None  # what is promised of the run, if anything is
    # what the parties of one run call it, where it has several
    run: str | UnsetType = UNSET
    version: str = __version__

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if self.relation is not None:
            check_relation(self.relation)
        if not self.recorded:
            raise ValueError("say which tool trained: recorded is empty")

    @classmethod
    def of(
        cls,
        recorded: str,
        how: str,
        delta: float,
        *,
        epsilon: float | None = None,
        relation: Relation | None = None,
        run: str | UnsetType = UNSET,
    ) -> Self:
        """Record of a run which was promised to be worth at most ``epsilon``."""
        claim = None
        if epsilon is not None:
            claim = Claim(
                epsilon=epsilon,
                delta=delta,
                relation=relation or "add-or-remove-one",
                source="whoever ran it",
            )
        return cls(
            recorded=recorded,
            how=how,
            delta=delta,
            relation=relation,
            claim=claim,
            run=run,
        )


class RecordedResult(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Worth of the ledger: ``result.json``."""

    nodes: tuple[UpperBound, ...]  # the account of each node
    certificate: Bracket  # epsilon from both sides, of the worst node
    # verdict, status: on the claim, if there is one
    verdict: Finding | None = None
    status: Status | None = None
    # epsilons that the tool itself gives at the same delta, by their names. Nothing
    # here depends on them
    says: dict[str, float] = {}
    # how long the run was recorded; 0 if its ledger was read at its end
    seconds: float = 0.0

    def _repr_html_(self) -> str:
        shown = self.certificate if self.verdict is None else self.verdict
        return shown._repr_html_()

    def upper(self) -> UpperBound:
        """The account of the worst node."""
        return max(self.nodes, key=lambda bound: bound.epsilon)


def worth(
    ledger: Ledger,
    run: RecordedRun,
    says: Mapping[str, float] | None = None,
    seconds: float = 0.0,
) -> RecordedResult:
    """Worth of ``ledger``, as ``run`` asks for it."""
    claimed = None if run.claim is None else run.claim.relation
    relation = run.relation or claimed or relation_of(ledger)
    nodes = account_nodes(ledger, run.delta, relation)
    worst = max(nodes, key=lambda bound: bound.epsilon)
    verdict = None if run.claim is None else verdict_on(run.claim, ledger, worst)
    return RecordedResult(
        nodes=nodes,
        certificate=Certificate.of(ledger, relation).epsilon(run.delta),
        verdict=verdict,
        status=None if verdict is None else verdict.status,
        says=dict(says or {}),
        seconds=seconds,
    )


class RunWriter:
    """A folder whose ledger grows while another tool trains.

    ``out``: a folder that is new or empty. It is this process' alone until `finish` or
    `close`. ``run``: what is trained. ``every``: ``ledger.json`` is written at every so
    manieth of equal releases, and counts so many ahead: it may say more than was
    released until then, and never less. ``nodes``: how many nodes release. Raises
    ``ValueError`` if ``out`` cannot be used, or ``every`` is below 1.

    Examples
    --------
    >>> import tempfile
    >>> from privaudit.release import PoissonSampling
    >>> release = Release.of_sum(
    ...     norm_bound=1.0, noise_multiplier=1.0, sampling=PoissonSampling(0.01)
    ... )
    >>> run = RecordedRun.of("my loop", "written while it trained", 1e-5)
    >>> with tempfile.TemporaryDirectory() as out, RunWriter(out, run) as writer:
    ...     for _ in range(100):
    ...         writer.record(release)  # before what was released is used
    ...     print(writer.finish().certificate.upper < 1.0)
    True
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        run: RecordedRun,
        *,
        every: int = 50,
        nodes: int = 1,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be >= 1, got {every}")
        self.run, self.every = run, every
        self._recorder = Recorder(nodes)
        self._ahead: dict[int, tuple[Release, int]] = {}  # by node: what, how many
        self._began, self._is_over = time.monotonic(), False
        self._stack = contextlib.ExitStack()
        try:
            self._folder = self._stack.enter_context(RunFolder.opened(out))
            if self._folder.has("config.json"):
                raise FolderError(
                    f"{out} holds a run already, and what another tool trained cannot "
                    "go on: choose a new folder"
                )
            self._folder.settle(run)
        except FolderError as error:
            self._stack.close()
            raise ValueError(str(error)) from error
        self._write(self._recorder.ledger())

    def record(self, release: Release, count: int = 1, *, node: int = 0) -> None:
        """Write down ``count`` equal releases of ``node``, before anybody sees them."""
        if self._is_over:
            raise ValueError(
                "this run's folder is closed: nothing can be added to its ledger"
            )
        self._recorder.record(node, release, count)
        known, left = self._ahead.get(node, (None, 0))
        if known == release and left >= count:
            self._ahead[node] = (release, left - count)
            return
        self._ahead[node] = (release, self.every - 1)
        planned = Recorder.of(self._recorder.ledger())
        for place, (what, more) in self._ahead.items():
            planned.record(place, what, more)
        self._write(planned.ledger())

    def replace(self, ledger: Ledger) -> None:
        """Take ``ledger``, of all that was released so far, in the place of all."""
        self._recorder, self._ahead = Recorder.of(ledger), {}
        self._write(ledger)

    def assume(self, what: str) -> None:
        """Say what an account has to assume of the tool; see `Ledger`."""
        self._recorder.assume(what)
        self._ahead = {}
        self._write(self._recorder.ledger())

    @property
    def ledger(self) -> Ledger:
        """All that was released so far."""
        return self._recorder.ledger()

    def finish(
        self, says: Mapping[str, float] | None = None, *, timed: bool = True
    ) -> RecordedResult:
        """Account what was released, end the run and leave its folder.

        ``says`` are epsilons that the tool itself gives. Raises ``ValueError`` if the
        ledger has no account, or the folder cannot be written.
        """
        ledger = self.ledger
        seconds = round(time.monotonic() - self._began, 3) if timed else 0.0
        result = worth(ledger, self.run, says, seconds)
        self._write(ledger)
        keep_witness(self._folder, ledger, result.certificate.relation, self.run.delta)
        try:
            write_result(self._folder, result)
        except FolderError as error:
            raise ValueError(str(error)) from error
        self.close()
        return result

    def close(self) -> None:
        """Leave the folder as it is, finished or not."""
        self._is_over = True
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write(self, ledger: Ledger) -> None:
        try:
            self._folder.write("ledger.json", ledger.to_json().encode())
        except FolderError as error:
            raise ValueError(str(error)) from error


def write(
    out: str | os.PathLike[str],
    run: RecordedRun,
    ledger: Ledger,
    says: Mapping[str, float] | None = None,
) -> RecordedResult:
    """Write the folder of a run that is over, from its ledger; as `RunWriter`."""
    with RunWriter(out, run, nodes=len(ledger.nodes)) as writer:
        writer.replace(ledger)
        return writer.finish(says, timed=False)
