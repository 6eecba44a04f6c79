"""One training run in a folder: trained, accounted, kept, and resumed when stopped."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
import torch
from msgspec import UNSET

from privaudit.accounting.certificate import keep_witness
from privaudit.accounting.verdict import verdict_by_node
from privaudit.accounting.views import account_observed
from privaudit.files import json as _json
from privaudit.files.folder import KEY, MODEL, FolderError, RunFolder
from privaudit.files.manifest import write_result
from privaudit.ledger import COUNTED, Ledger
from privaudit.records import TrainingRecord
from privaudit.results import Relation, UpperBound, worst_bound
from privaudit.task_settings import is_own
from privaudit.version import __version__
from trainers.network.over_ranks import Traffic
from trainers.numerics.device import check_device
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.numerics.releases import ReleaseJournal
from trainers.oracles.oracle import ReleaseObserver
from trainers.runs import checkpoint
from trainers.runs.advice import large_delta
from trainers.runs.final_models import may_be_released, node_files, packed
from trainers.runs.measures import CurveRecorder, Measured, as_figures
from trainers.runs.outcome import TrainingResult, protection
from trainers.runs.problem import Observers, Planted, Problem
from trainers.runs.run_keys import check_journal, forget_key, journal_of, key_of
from trainers.runs.training import Training
from trainers.runs.tuned import tuned_ledger, with_counts

T = TypeVar("T")
Measure = Callable[[torch.Tensor], torch.Tensor | None]  # of models

KEEP_EVERY = 5.0  # seconds between checkpoints, at least,
KEEP_SHARE = 0.05  # and so many that they take this share of the time, at most
_POINTS = 200  # of the rounds, at which models are measured
_ACCOUNTS = 20  # of them, at which the spent epsilon is computed
_FEW = 5  # tensors of the code that a remark names


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRun(TrainingRecord[Training]):
    """Training, its noise, and the claim under test.

    Raises ``ValueError`` if there is no such device, or a seed is negative.
    """

    training: Training
    torch_version: str = str(torch.__version__)
    version: str = __version__

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device(self.device)

    def problem(self, **more: Any) -> Problem:
        """Problem that it describes; ``more`` is of `Problem.of`."""
        found = Problem.of(
            self.training,
            seed=self.public_seed,
            compiled=self.compiled,
            precision=self.precision,
            **more,
        )
        return found.with_counts(self.clip)


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run; ``epsilon`` is spent at most, where it was computed."""

    done: int
    rounds: int
    measured: Measured | None = None
    epsilon: float | None = None


class Planting(Protocol):
    """Canaries of a run that is kept, and who scores them."""

    def planted(self, streams: Streams) -> Planted:
        """Canaries to join node 0, by coins of the run's own key."""

    @property
    def observers(self) -> tuple[ReleaseObserver, ...]:
        """Observers of all releases."""

    @property
    def state(self) -> list[dict[str, Any]]:
        """State of the observers after the releases so far, as data to be packed."""

    def goes_on(self, state: list[dict[str, Any]]) -> None:
        """Take the ``state`` of an earlier process."""

    def ends(self, models: torch.Tensor, measure: Measure) -> None:
        """See the final models, (1, nodes, dims), and measure some like them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assignment:
    """A run, on data that there are: what a runner is given."""

    run: TrainingRun  # what to train
    problem: Problem  # the whole of it, as `TrainingRun.problem` makes it
    # delta, relation: of the account. The relation is the claim's, where there is one;
    # None: what the sampling has a meaning for
    delta: float
    relation: Relation | None = None
    progress: Callable[[Progress], None] = lambda now: None  # called after every round
    # whether the final models are kept, in ``model.safetensors``
    save_models: bool = True
    # what joins nodes in this very run, and who watches; None: nothing and nobody
    planting: Planting | None = None
    # adds what that showed to the result, before anything says that the run has ended
    judged: Callable[[RunFolder, TrainingResult], TrainingResult] = lambda _, found: (
        found
    )

    def account(
        self, ledger: Ledger, observer: str | None = None
    ) -> tuple[UpperBound, ...]:
        """Bounds of each node, for ``observer``; None: who sees all releases."""
        name, how, under = self.run.training.algorithm, self.run.account, self._under
        return account_observed(name, ledger, observer, self.delta, under, how)

    @property
    def _under(self) -> Relation:
        claim = self.run.claim
        return self.run.training.relation(claim.relation if claim else self.relation)

    def with_tries(self, ledger: Ledger) -> Ledger:
        """``ledger`` of this run, with its tries, and what counts of records assume."""
        tuning = self.run.tuning
        if self.run.party is not None and self.run.party.shared is not None:
            ledger = ledger.assuming(COUNTED)
        if self.run.clip is not None:
            return with_counts(ledger, self.run.clip.noise_multiplier, first=True)
        if tuning is None or not tuning.is_charged:
            return ledger
        planned = tuned_ledger(self.run.training, tuning, self._under)
        assumed = ledger.assuming(*planned.assumptions).assumes
        return msgspec.structs.replace(planned, assumes=assumed)


class Keeper:
    """Measures, accounts and keeps a run as it goes."""

    _recorder: type[CurveRecorder] = CurveRecorder
    _least: float | None = None  # seconds between checkpoints, if not as of all runs

    def __init__(self, given: Assignment, folder: RunFolder) -> None:
        run, self.gradients = given.run, given.problem.own_gradients()
        self.recorder = self._recorder(
            given.problem, self.gradients, _POINTS, run.evaluate, run.public_seed
        )
        self.resume: dict[str, Any] | None = None
        self._given = given
        self._folder = folder
        self._is_tuned = run.tuning is not None and run.tuning.is_charged
        self._rounds = run.training.rounds
        self._every = max(1, self._rounds // _ACCOUNTS)
        self._seen = 0  # rounds done, at the last look
        self._epsilons: dict[int, float] = {}  # by round
        self._before = 0.0  # seconds of earlier processes
        self._began = self._kept = time.monotonic()
        self._cost = 0.0  # of the last checkpoint, in seconds

    @property
    def seconds(self) -> float:
        """Spent on the run, in all processes that had a part in it."""
        return self._before + time.monotonic() - self._began

    def losses(self) -> dict[str, Any]:
        """Fields of the result about parties that were lost."""
        return {}

    def after_round(
        self, done: int, models: torch.Tensor, ledger: Callable[[], Ledger]
    ) -> None:
        """Measure and account, where it is due."""
        measured = self.recorder(done, models)
        epsilon = self._spend(done, ledger()) if self._is_accounted(done) else None
        self._seen = done
        self._given.progress(Progress(done, self._rounds, measured, epsilon))

    def _is_accounted(self, done: int) -> bool:
        passed = done // self._every > self._seen // self._every
        # Tries are accounted together, at the end.
        return not self._is_tuned and (passed or done == self._rounds)

    def _spend(self, done: int, ledger: Ledger) -> float | None:
        ledger = self._given.with_tries(ledger)
        bounds = self._given.account(ledger, self._given.run.observer)
        self._epsilons[done] = worst_bound(bounds).epsilon
        return self._epsilons[done]

    def keep(self, done: int, middle: Callable[[], Any]) -> None:
        """Write a checkpoint, where it is due."""
        began = time.monotonic()
        least = KEEP_EVERY if self._least is None else self._least
        due = began - self._kept >= max(least, self._cost / KEEP_SHARE)
        if not due or done == self._rounds:
            return
        self._write(middle())
        self._kept = time.monotonic()
        self._cost = self._kept - began

    def _write(self, middle: Any, sent: Traffic | None = None) -> None:
        sent = sent or self._given.problem.traffic
        self._folder.write("rounds.csv", self.table())
        self._store(
            {
                **self._binding,
                "middle": middle,
                "sent": None if sent is None else [sent.messages, sent.bytes],
                "epsilons": dict(self._epsilons),
                **self.measured,
            }
        )

    def _store(self, content: dict[str, Any]) -> None:
        self._folder.write("checkpoint.pt", checkpoint.pack(content))

    def finish(
        self,
        values: torch.Tensor | None,
        ledger: Ledger,
        models: Mapping[int, torch.Tensor] | None,
        remarks: tuple[str, ...] = (),
        sent: Traffic | None = None,
    ) -> TrainingResult:
        """Account and write all: ``values``, (runs, nodes), and ``models``."""
        run, problem = self._given.run, self._given.problem
        if self._is_tuned:
            self._spend(self._rounds, ledger)
        ledger = self._given.with_tries(ledger)
        nodes = every = self._given.account(ledger)
        if run.observer is not None:
            nodes = self._given.account(ledger, run.observer)
        worst = worst_bound(nodes)
        verdict = None
        if run.claim:
            verdict = verdict_by_node(run.claim, run.own_budgets, ledger, nodes)
        private = run.training.family.private
        stays = run.training.family.stays_home(run.training.setting())
        protected, noise = protection(
            run.noise_multiplier, run.seed, run.version, stays_home=stays
        )
        warned: tuple[str, ...] = ()
        if run.compiled and run.device == "cpu":
            warned = ("compiled changes nothing on a CPU: it is for CUDA graphs",)
        by_record = private and run.training.unit != "user"
        if private:
            warned += large_delta(worst.delta, sum(problem.sizes), run.training.unit)
            if problem.material.why_not is not None:
                warned += (
                    "gradients were taken one record a call, which is slow: "
                    f"{problem.material.why_not}",
                )
            if problem.material.takes:
                warned += (
                    "tensors that the code takes besides the model's parameters must "
                    "not be made of the records, which no trace can tell; those that "
                    "forward makes itself, as by torch.arange, are no condition: "
                    f"{_some(problem.material.takes)}",
                )
            why = getattr(self.gradients, "why", None)
            if why is not None and by_record:
                warned += (
                    "each record's gradient was written out, by torch.func, which is "
                    f"slower and takes more memory than book-keeping: {why}",
                )
        if run.tuning is not None:
            warned += run.tuning.remarks()
        if run.clip is not None:
            warned += (run.clip.remark(run.training.clip_norm),)
        result = TrainingResult(
            nodes=nodes,
            verdict=verdict,
            status=None if verdict is None else verdict.status,
            noise_multiplier=run.noise_multiplier,
            **as_figures(problem.material.quality, values),  # type: ignore[arg-type]
            seconds=round(self.seconds, 3),
            remarks=(*remarks, *warned),
            protected=protected,
            noise=noise,
            seen_by_all=UNSET if run.observer is None else worst_bound(every),
            test_records=self.recorder.test_records,
            test_size=None if problem.test is None else len(problem.test),
            messages_sent=UNSET if sent is None else sent.messages,
            bytes_sent=UNSET if sent is None else sent.bytes,
            **self.losses(),
            gradients=self.gradients.ways if by_record else UNSET,
            independence=problem.material.independence if private else UNSET,
        )
        self._folder.write("ledger.json", ledger.to_json().encode())
        if private:
            keep_witness(self._folder, ledger, worst.relation, worst.delta)
        curves, spent = self.recorder.curves(), tuple(self.spent())
        curves = msgspec.structs.replace(curves, epsilon=spent)
        self._folder.write("curves.json", _json.encode(curves))
        self._folder.write("rounds.csv", self.table())
        released = []
        if models is not None:
            files = {MODEL: packed(run.training, problem.module, models, nodes)}
            if is_own(run.training.data):
                files |= node_files(files[MODEL], problem.material.whole)
            for name, content in files.items():
                self._folder.write(name, content)
            if may_be_released(run.training, result):
                released += files
        result = self._given.judged(self._folder, result)
        write_result(self._folder, result, released)
        return result

    def restore(self, key: Key) -> None:
        """Go on from the checkpoint, if there is one of this run with this ``key``."""
        self._binding = self._bound_to(key)
        self._restore()

    def _bound_to(self, key: Key) -> dict[str, bytes]:
        """The key's public id, and a keyed hash of the settings, for checkpoints."""
        config = (self._folder / "config.json").read_bytes()
        seal = key.derive(b"checkpoint", key.run + config)[:16]
        return {"key": key.run, "seal": seal}

    def _check(self, content: dict[str, Any]) -> None:
        """`FolderError` if a checkpoint's ``content`` is of another run."""
        for name, other in (
            ("key", "another key or seed, or of an older version"),
            ("seal", "other settings"),
        ):
            if content.get(name) != self._binding[name]:
                raise FolderError(
                    f"{self._folder / 'checkpoint.pt'} is of a run with {other}: put "
                    "back that of this run, or choose another folder with --out"
                )

    def _restore(self) -> None:
        path = self._folder / "checkpoint.pt"
        if not path.exists():
            return
        try:
            self._take(checkpoint.unpack(path.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._folder.broken("checkpoint.pt", error) from None

    def _take(self, content: dict[str, Any]) -> None:
        self._check(content)
        self.resume = content["middle"]
        self.measure_as(content)
        self._epsilons = content["epsilons"]
        traffic = self._given.problem.traffic
        if traffic is not None:  # a run of one process had none
            traffic.messages, traffic.bytes = content["sent"] or (0, 0)
        self._seen = content["middle"]["done"]
        self.recorder.resume(self._seen)

    @property
    def measured(self) -> dict[str, Any]:
        """Measurements so far, as data that can be packed; see `measure_as`."""
        points = [tuple(point) for point in self.recorder.points]
        return {"points": points, "seconds": self.seconds}

    def measure_as(self, known: Mapping[str, Any]) -> None:
        """Take what an earlier keeper of the same training `measured`."""
        self.recorder.points = [Measured(*point) for point in known["points"]]
        self._before = known["seconds"]

    def spent(self) -> list[float]:
        """At every point, the epsilon of the next round that was accounted: no less."""
        found = []
        for point in self.recorder.points:
            later = [k for k in self._epsilons if k >= point.round]
            if not later:
                break
            found.append(self._epsilons[min(later)])
        return found

    def table(self) -> bytes:
        """All points as CSV; what is not yet accounted is left empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        first = self.recorder.points[0].known if self.recorder.points else {}
        writer.writerow([*first, "epsilon"])
        spent = self.spent()
        spent += [""] * (len(self.recorder.points) - len(spent))
        for point, epsilon in zip(self.recorder.points, spent, strict=True):
            writer.writerow([*point.known.values(), epsilon])
        return text.getvalue().encode()


def train(
    given: Assignment,
    opened: contextlib.AbstractContextManager[RunFolder],
    runner: OneProcess | None = None,
) -> TrainingResult | None:
    """Train once, account, and keep all in a folder; None but at rank 0.

    A folder with the same run's result gives it back, one with its checkpoint goes on,
    to the same bits. ``runner``: `OneProcess` by default, or `OverRanks`.
    `FolderError` if the folder is another run's.
    """
    runner, run = runner or OneProcess(), given.run
    with runner.joined(given) as given, contextlib.ExitStack() as stack:
        folder = RunFolder(runner.at_first(lambda: stack.enter_context(opened).path))
        ended = runner.at_first(
            lambda: folder.settle(run) and folder.has("result.json")
        )
        runner.begins(given, folder, ended=bool(ended))
        if not ended:
            result = runner.result(given, folder)
        elif runner.is_first:
            result = folder.read("result.json", TrainingResult)
        else:
            result = None
        runner.end(folder)
        return result


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Result of the nodes of one process.

    ``models``: (nodes, dims) or None; ``values``: final quality, (runs, nodes);
    ``further``: releases made again with other sums; ``sent``: what went to other
    processes.
    """

    models: torch.Tensor | None
    values: torch.Tensor | None
    ledger: str
    further: int
    sent: Traffic | None


class OneProcess:
    """Runs all nodes here. Others say what they do in another way.

    ``key_file`` is where the secret key is kept while the run can go on; in the folder
    by default.
    """

    is_first = True  # who keeps the folder

    def __init__(self, key_file: pathlib.Path | None = None) -> None:
        self._key_file = key_file

    def joined(
        self, given: Assignment
    ) -> contextlib.AbstractContextManager[Assignment]:
        """All processes that have a part in it, connected; and what is given of it."""
        return contextlib.nullcontext(given)

    def at_first(self, work: Callable[[], T]) -> T:
        """Do ``work`` where the folder is kept; tell all its result, or raise there."""
        return work()

    def begins(self, given: Assignment, folder: RunFolder, *, ended: bool) -> None:
        """Settle what processes must agree on, or that all has ``ended``."""

    def key_file(self, folder: RunFolder) -> pathlib.Path:
        """File of the key of the nodes here."""
        return self._key_file or folder / KEY

    def key(
        self, run: TrainingRun, folder: RunFolder, stack: contextlib.ExitStack
    ) -> tuple[Key, ReleaseJournal | None]:
        """The study's key, or a secret one; with its journal, open as ``stack`` is."""
        file = self.key_file(folder)
        key = key_of(run.seed, folder, file)
        return key, stack.enter_context(journal_of(key, file))

    def check_journal(
        self, journal: ReleaseJournal | None, marks: Sequence[bytes], folder: RunFolder
    ) -> None:
        """`FolderError` if the journal here, if any, is older than a checkpoint."""
        if journal is not None:
            check_journal(journal, marks, self.key_file(folder))

    def keeper(self, given: Assignment, folder: RunFolder) -> Keeper:
        return Keeper(given, folder)

    def gathered(self, part: Part) -> list[Part] | None:
        """The parts of all processes; None but at who keeps the folder."""
        return [part]

    def result(self, given: Assignment, folder: RunFolder) -> TrainingResult | None:
        """Train, or go on, to the end; what came out is in the folder."""
        keeper = self.keeper(given, folder)
        return self.finished(keeper, self.trained(given, folder, keeper))

    def trained(self, given: Assignment, folder: RunFolder, keeper: Keeper) -> Part:
        """Train, or go on, to the end: the nodes here."""
        run, problem = given.run, given.problem
        with contextlib.ExitStack() as stack:
            key, journal = self.key(run, folder, stack)
            keeper.restore(key)
            if keeper.resume is not None:
                self.check_journal(journal, keeper.resume["journal"], folder)
            streams, planting = Streams(key, device=run.device, journal=journal), None
            observers = Observers(after_round=keeper.after_round, keep=keeper.keep)
            if (canaries := given.planting) is not None:
                planting = canaries.planted(streams)
                if keeper.resume is not None:
                    canaries.goes_on(keeper.resume["planting"])
                observers = dataclasses.replace(
                    observers,
                    releases=canaries.observers,
                    keep=lambda done, middle: keeper.keep(
                        done, lambda: {**middle(), "planting": canaries.state}
                    ),
                )
            models, ledger = problem.train(
                run.noise_multiplier,
                streams,
                start=problem.start(run.public_seed),
                planted=planting,
                observers=observers,
                resume=keeper.resume,
            )
            if canaries is not None:
                canaries.ends(models, keeper.recorder.final)
            further = 0 if journal is None else journal.further
        return Part(
            models[0].cpu() if given.save_models else None,
            keeper.recorder.final(models),
            ledger.to_json(),
            further,
            problem.traffic,
        )

    def finished(self, keeper: Keeper, part: Part) -> TrainingResult | None:
        """Write what came out of all processes' parts, where the folder is kept."""
        parts = self.gathered(part)
        if parts is None:
            return None
        final = beside([part.models for part in parts], 0)
        return keeper.finish(
            beside([part.values for part in parts], 1),
            Ledger.joined(Ledger.from_json(part.ledger) for part in parts),
            None if final is None else self.numbered(final),
            self.remarks(parts),
            Traffic.of_all(part.sent for part in parts),
        )

    def numbered(self, models: torch.Tensor) -> dict[int, torch.Tensor]:
        """The models of `gathered` parts, (nodes, dims), by their nodes' numbers."""
        return dict(enumerate(models))

    def remarks(self, parts: Sequence[Part]) -> tuple[str, ...]:
        """Remarks on how it was run, in sentences."""
        return resumed(sum(part.further for part in parts))

    def end(self, folder: RunFolder) -> None:
        """Forget the key of a run that has its result, and where it went on from."""
        folder.remove("checkpoint.pt")
        forget_key(folder, self.key_file(folder))


def beside(parts: Sequence[torch.Tensor | None], dim: int) -> torch.Tensor | None:
    """Join the parts of all processes along ``dim``; None if there are none."""
    there = [part for part in parts if part is not None]
    return torch.cat(there, dim) if there else None


def resumed(further: int) -> tuple[str, ...]:
    """Warning of a run that made ``further`` releases again, with other sums."""
    if not further:
        return ()
    return (
        f"{further:,} releases were made again with other sums, as the run went on "
        "with other data, threads or libraries than before it was stopped: each counts "
        "as a further release, and the account is conditional",
    )


def _some(words: Sequence[str]) -> str:
    """The first few of a list, and how many there are besides."""
    more = f"; and {len(words) - _FEW} more" if len(words) > _FEW else ""
    return "; ".join(words[:_FEW]) + more
