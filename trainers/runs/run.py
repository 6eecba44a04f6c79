"""One training run in a folder: trained, accounted, kept, and resumed when stopped."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import torch

from privaudit.accounting import account_nodes, verdict_on
from privaudit.files import json as _json
from privaudit.files.folder import (
    KEY,
    KEY_ID,
    MODEL,
    RELEASES,
    FolderError,
    RunFolder,
)
from privaudit.files.manifest import write_result
from privaudit.ledger import Ledger
from privaudit.results import Relation
from privaudit.settings import TrainingRecord
from privaudit.version import __version__
from trainers.numerics.device import check_device
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.numerics.releases import ReleaseJournal
from trainers.runs import checkpoint
from trainers.runs.final_models import may_be_released, packed
from trainers.runs.measures import CurveRecorder, Measured, as_figures, measured
from trainers.runs.outcome import TrainingResult, protection
from trainers.runs.problem import Observers, Problem
from trainers.runs.training import Training

KEEP_EVERY = 5.0  # seconds between checkpoints, at least,
KEEP_SHARE = 0.05  # and so many that they take this share of the time, at most
_POINTS = 200  # of the rounds, at which models are measured
_ACCOUNTS = 20  # of them, at which the spent epsilon is computed


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRun(TrainingRecord[Training]):
    """What is trained, with how much noise, and what is claimed of it.

    Raises ``ValueError`` if there is no such device, or a seed is negative.
    """

    training: Training
    torch_version: str = str(torch.__version__)
    version: str = __version__

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device(self.device)


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; ``epsilon`` is spent at most, where it was computed."""

    done: int
    rounds: int
    measured: Measured | None = None
    epsilon: float | None = None


def train(
    run: TrainingRun,
    folder: RunFolder,
    *,
    delta: float,
    relation: Relation = "add-or-remove-one",
    problem: Problem | None = None,
    progress: Callable[[Progress], None] = lambda now: None,
    key_file: pathlib.Path | None = None,
    save_models: bool = True,
) -> TrainingResult:
    """Train once, account at ``delta``, and keep all in ``folder``.

    A folder that holds the result of the same run gives it back; one that holds a
    checkpoint of it goes on from there, to the same bits.

    Parameters
    ----------
    run, folder
        What to do, and where.
    delta, relation
        Of the account; those of the claim, where there is one.
    problem
        `Problem.of` (run.training), if it is at hand.
    progress
        Called after every round.
    key_file
        Where the secret key is kept while the run can go on; in the folder by default.
    save_models
        Whether the final models are kept, in ``model.safetensors``.

    Raises
    ------
    privaudit.files.folder.FolderError
        If the folder is another run's or cannot be written.
    ValueError
        If the settings do not fit the data, or training diverges.
    """
    problem = problem or Problem.of(
        run.training,
        seed=run.public_seed,
        compiled=run.compiled,
        precision=run.precision,
    )
    key_file = key_file or folder / KEY
    if folder.settle(run) and folder.has("result.json"):
        forget_key(folder, key_file)
        return folder.read("result.json", TrainingResult)
    key = key_of(run, folder, key_file)
    under = run.claim.relation if run.claim else relation

    def account(ledger: Ledger) -> tuple:
        return account_nodes(ledger, delta, under, run.account)

    keeper = Keeper(run, folder, problem, account, progress)
    with journal_of(key, key_file) as journal:
        models, ledger = problem.train(
            run.noise_multiplier,
            Streams(key, device=run.device, journal=journal),
            start=problem.start(run.public_seed),
            observers=Observers(after_round=keeper.after_round, keep=keeper.keep),
            resume=keeper.resume,
        )
        further = 0 if journal is None else journal.further
    values = measured(problem, keeper.gradients, models)
    final = dict(enumerate(models[0])) if save_models else None
    result = keeper.finish(values, ledger, final, resumed(further))
    forget_key(folder, key_file)
    return result


def resumed(further: int) -> tuple[str, ...]:
    """What is said of a run that made ``further`` releases again, with other sums."""
    if not further:
        return ()
    return (
        f"{further:,} releases were made again with other sums, as the run went on "
        "with other data, threads or libraries than before it was stopped: each counts "
        "as a further release, and the account is conditional",
    )


@contextlib.contextmanager
def journal_of(key: Key, file: pathlib.Path) -> Iterator[ReleaseJournal | None]:
    """The journal of releases beside the secret key in ``file``; none of a study.

    Raises `FolderError` if it is missing, damaged, of another key or in use.
    """
    if key.seed is not None:
        yield None
        return
    path = releases_file(file)
    try:
        journal = ReleaseJournal(path, key)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FolderError(
            f"the journal of releases {path} cannot be used ({why}), so that nobody "
            "knows what the run released before it was stopped: it cannot go on; "
            "choose another folder with --out"
        ) from None
    try:
        yield journal
    finally:
        journal.close()


def releases_file(key_file: pathlib.Path) -> pathlib.Path:
    """Where the journal is: beside the key."""
    return key_file.with_name(key_file.name + RELEASES)


def key_of(run: TrainingRun, folder: RunFolder, file: pathlib.Path) -> Key:
    """The study's key, or the secret one in ``file``, made if the run begins.

    Raises `FolderError` if a run would go on without the key that it began with, as
    what it released since its checkpoint would have noise twice, or with the key of
    another run.
    """
    if run.seed is not None:
        return Key.study(run.seed)
    try:
        if file.exists():
            key = Key.load(file)
            if not _is_of(key, folder, file):
                raise FolderError(
                    f"{file} holds the key of another run than {folder.path}, and no "
                    "key is used twice; choose another file with --key-file"
                )
            return key
        if folder.has("checkpoint.pt") or folder.has(KEY_ID):
            raise FolderError(
                f"{folder.path} holds a run that was stopped, but not its key "
                f"({file.name}): it cannot go on; choose another folder with --out"
            )
        key = Key.secret()
        ReleaseJournal.create(releases_file(file), key)
        if not _is_inside(folder, file):
            folder.write(KEY_ID, key.run)
        key.save(file)
        if file == folder / KEY:  # a key that gets lost is missed from here on
            folder.write(KEY_ID, key.run)
        return key
    except OSError as error:
        raise FolderError(
            f"cannot keep the key in {file}: {error.strerror or error}"
        ) from None
    except ValueError as error:
        raise FolderError(f"{file} is damaged or not ours ({error})") from None


def forget_key(folder: RunFolder, file: pathlib.Path) -> None:
    """Remove the secret key of a run that ended, and its journal of releases.

    Another file stays as it is.
    """
    with contextlib.suppress(OSError, ValueError):
        if _is_of(Key.load(file), folder, file):
            releases_file(file).unlink(missing_ok=True)
            file.unlink()
    folder.remove(KEY_ID)


def _is_of(key: Key, folder: RunFolder, file: pathlib.Path) -> bool:
    """Whether ``key``, which is in ``file``, is that of the run in ``folder``."""
    known = folder / KEY_ID
    return _is_inside(folder, file) or (
        known.is_file() and known.read_bytes() == key.run
    )


def _is_inside(folder: RunFolder, file: pathlib.Path) -> bool:
    return file.parent.resolve() == folder.path.resolve()


class Keeper:
    """Measures, accounts and keeps a run as it goes."""

    def __init__(
        self,
        run: TrainingRun,
        folder: RunFolder | None,
        problem: Problem,
        account: Callable[[Ledger], tuple],
        progress: Callable[[Progress], None],
    ) -> None:
        self.gradients = problem.gradients()
        self.recorder = self._recorder(problem, _POINTS)
        self.resume: dict[str, Any] | None = None
        self._run = run
        self._folder = folder
        self._module = problem.module
        self._quality = problem.material.quality
        self._account = account
        self._progress = progress
        self._rounds = run.training.rounds
        self._every = max(1, self._rounds // _ACCOUNTS)
        self._seen = 0  # rounds done, at the last look
        self._epsilons: dict[int, float] = {}  # by round
        self._before = 0.0  # seconds of earlier processes
        self._began = self._kept = time.monotonic()
        self._cost = 0.0  # of the last checkpoint, in seconds
        if folder is not None and folder.has("checkpoint.pt"):
            self._restore(folder)

    @property
    def seconds(self) -> float:
        """Spent on the run, in all processes that had a part in it."""
        return self._before + time.monotonic() - self._began

    def after_round(
        self, done: int, models: torch.Tensor, ledger: Callable[[], Ledger]
    ) -> None:
        """Measure and account, where it is due."""
        measured = self.recorder(done, models)
        due = self._is_accounted(done)
        epsilon = self._spend(done, ledger()) if due else None
        self._seen = done
        self._progress(Progress(done, self._rounds, measured, epsilon))

    def _is_accounted(self, done: int) -> bool:
        passed = done // self._every > self._seen // self._every
        return passed or done == self._rounds

    def _spend(self, done: int, ledger: Ledger) -> float | None:
        self._epsilons[done] = max(bound.epsilon for bound in self._account(ledger))
        return self._epsilons[done]

    def keep(self, done: int, middle: Callable[[], Any]) -> None:
        """Write a checkpoint, where it is due."""
        began = time.monotonic()
        due = began - self._kept >= max(KEEP_EVERY, self._cost / KEEP_SHARE)
        if not due or done == self._rounds:
            return
        self._write(middle())
        self._kept = time.monotonic()
        self._cost = self._kept - began

    def _write(self, middle: Any) -> None:
        assert self._folder is not None
        self._folder.write("rounds.csv", self.table())
        content = {
            "middle": middle,
            "points": [tuple(point) for point in self.recorder.points],
            "epsilons": dict(self._epsilons),
            "seconds": self.seconds,
        }
        self._folder.write("checkpoint.pt", checkpoint.pack(content))

    def finish(
        self,
        values: torch.Tensor | None,
        ledger: Ledger,
        models: Mapping[int, torch.Tensor] | None,
        remarks: tuple[str, ...] = (),
    ) -> TrainingResult:
        """Account and write all.

        ``values``, (runs, nodes), is the final quality; ``models`` are those of the
        nodes by number, each (dims,), or None where they are not kept.
        """
        assert self._folder is not None
        run, nodes = self._run, self._account(ledger)
        worst = max(nodes, key=lambda bound: bound.epsilon)
        verdict = verdict_on(run.claim, ledger, worst) if run.claim else None
        protected, noise = protection(
            run.noise_multiplier,
            run.seed,
            run.version,
            stays_home=run.training.family.stays_home(run.training.setting()),
            compiled=run.compiled,
        )
        result = TrainingResult(
            nodes=nodes,
            verdict=verdict,
            status=None if verdict is None else verdict.status,
            noise_multiplier=run.noise_multiplier,
            **as_figures(self._quality, values),  # type: ignore[arg-type]
            seconds=round(self.seconds, 3),
            remarks=remarks,
            protected=protected,
            noise=noise,
        )
        self._folder.write("ledger.json", ledger.to_json().encode())
        curves = msgspec.structs.replace(
            self.recorder.curves(), epsilon=tuple(self.spent())
        )
        self._folder.write("curves.json", _json.encode(curves))
        self._folder.write("rounds.csv", self.table())
        released = []
        if models is not None:
            content = packed(run.training, self._module, models, nodes)
            self._folder.write(MODEL, content)
            if may_be_released(run.training, result):
                released.append(MODEL)
        write_result(self._folder, result, released)
        self._folder.remove("checkpoint.pt")
        return result

    def _recorder(self, problem: Problem, points: int) -> CurveRecorder:
        return CurveRecorder(problem, self.gradients, points)

    def _restore(self, folder: RunFolder) -> None:
        path = folder / "checkpoint.pt"
        try:
            content = checkpoint.unpack(path.read_bytes())
            self.resume = content["middle"]
            self.recorder.points = [Measured(*point) for point in content["points"]]
            self._epsilons = content["epsilons"]
            self._before = content["seconds"]
            self._seen = self.resume["done"]
            self.recorder.resume(self._seen)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise folder.broken("checkpoint.pt", error) from None

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
