"""Audits of programs that are not ours: they train and score, we toss and judge.

A *function* ``module:function(worlds, seed)`` gets a bool array, True where the canary
is to be in the run, and one seed for all of them; it returns one score a run, higher
for "member". Runs must share no random numbers. Where they are seen to, the audit ends
with an error and without a verdict, so that no bound gains by it. A *command* is run
once a run, with ``{member}`` (0 or 1) and ``{seed}`` filled in, and its last line of
output is the score; or it stays alive and is *served* by: it reads a line "member seed"
a run, and answers with the score.

Worlds are fair coins of the audit's own seed, so that every estimator is valid. With a
ledger of what one run releases there is an account beside the lower bound.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import math
import os
import time
from collections.abc import Callable
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from privaudit.accounting import Certificate, account_nodes
from privaudit.auditing.bounds import ESTIMATORS, Estimator
from privaudit.auditing.bounds.ledger_family import FAMILY
from privaudit.auditing.conclude import Tested, conclude, deciding
from privaudit.auditing.experiments.judgement import (
    end,
    estimator_named,
    outcome_of,
    tested_by,
)
from privaudit.auditing.experiments.looks import stages
from privaudit.auditing.experiments.outcome import Outcome
from privaudit.auditing.programs.server import (
    TIME_LIMIT,
    Processes,
    Servers,
    check_command,
)
from privaudit.auditing.programs.targets import (
    Command,
    Score,
    SharedSeedError,
    Worlds,
    checked,
    function_of,
    is_alike,
    share_random_numbers,
    spread_seed,
)
from privaudit.auditing.scores import Scores
from privaudit.files import npz as _npz
from privaudit.files.arguments import check_limits
from privaudit.files.folder import FolderError, RunFolder
from privaudit.files.manifest import digest
from privaudit.files.user_code import is_place
from privaudit.ledger import Ledger
from privaudit.results import Claim, UpperBound, could_show
from privaudit.task_settings import Natural
from privaudit.version import __version__

_EARLY = 10  # calls, up to which each is looked at for shared seeds
_REST = 0.2  # seconds at least between two writings of what is done


def digest_of_ledger(ledger: Ledger) -> str:
    """The SHA-256 of a ledger as a folder keeps it, in hexadecimal."""
    return digest(ledger.to_json().encode())


class ProgramAudit(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Plan of an audit of a program; equal audits deal equal worlds and seeds."""

    program: str  # ``module:function``, or a command with ``{member}`` and ``{seed}``
    claim: Claim  # the promise under test
    # estimator, confidence: of the lower bound; one that is valid for a family stands
    # beside the verdict's
    estimator: str = "best"
    confidence: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    runs: Annotated[int, Meta(ge=2)] = 1000  # in both worlds together
    # runs that a function is called for at once; of a command, that are kept at once
    batch: Annotated[int, Meta(ge=1)] = 50
    # whether to end at the first of its looks at which the claim is refuted
    stop_when_refuted: bool = False
    seed: Natural = 0  # of worlds and of the runs' seeds
    # whether the command stays alive, see `privaudit.auditing.programs.server`
    serve: bool = False
    # the SHA-256 of the ledger that comes with it, None if there is none
    ledger: str | None = None
    # what the program is and what its attacker sees, in a sentence
    about: str | None = None
    # the SHA-256 of the program's files, see `source_of`; None if it is in none
    source: str | None = None
    version: str = __version__

    def __post_init__(self) -> None:
        known = [*ESTIMATORS, *([FAMILY] if self.ledger else [])]
        if self.estimator not in known:
            needs = "" if self.ledger else f" ({FAMILY} needs a ledger)"
            raise ValueError(
                f"there is no estimator {self.estimator!r}; choose one of "
                f"{', '.join(known)}{needs}"
            )
        check_limits(self)
        if self.serve and self.is_function:
            raise ValueError(
                "--serve is for a command that stays alive, and this is a function: "
                "leave --serve out"
            )
        if self.serve:
            check_command(self.program)  # raises if it is none
        elif not self.is_function:
            Command(self.program)

    @property
    def is_function(self) -> bool:
        """Return whether ``program`` is a function, and no command."""
        return is_place(self.program)

    @property
    def name(self) -> str:
        """The program as people call it: without what marks a function given as one."""
        return self.program.removeprefix(GIVEN)

    @property
    def is_given(self) -> bool:
        """Return whether it is a function given in Python, which no place names."""
        return self.program.startswith(GIVEN)

    @property
    def one_run(self) -> bool:
        """Never: its scores are of runs."""
        return False

    @property
    def batches(self) -> int:
        """Number of calls."""
        return -(-self.runs // self.batch)

    @property
    def block(self) -> int:
        """Number of runs between two looks at least, as of audits of algorithms."""
        return self.batch

    def worlds(self, number: int) -> Worlds:
        """Worlds of the runs of batch ``number``, (batch,)."""
        coins = np.random.default_rng([self.seed, number, 0x0C01])
        return coins.random(self.batch) < 0.5

    def batch_seed(self, number: int) -> int:
        """In [0, 2^31), another for every batch; the first run's of a command."""
        offset = hashlib.blake2b(f"{self.seed}".encode(), digest_size=8).digest()
        used = 1 if self.is_function else self.batch
        return spread_seed(int.from_bytes(offset), number * used)


GIVEN = "own:"  # in `ProgramAudit.program`, of a function that was given in Python
SAME_SCORE = (
    "All runs got the same score, which shows nothing of who was there: score by "
    "something that the record may change, such as its loss."
)


class ProgramResult(Outcome, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Finding of the audit of a program."""

    most_shown: float
    nodes: tuple[UpperBound, ...] = ()
    one_score: bool = False  # all runs have it

    def upper(self) -> UpperBound | None:
        """The account of the ledger's worst node; None without a ledger."""
        return self.verdict.upper

    summary = Outcome.summary + "most_shown"

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        figures = (self.verdict.claim, self.upper(), self.lower())
        known = [str(figure) for figure in figures if figure is not None]
        return [*known, *self.limits(), str(self.verdict)]

    def limits(self) -> list[str]:
        """As there, with what could have been shown at most, and how well it told."""
        said = [could_show(self.most_shown, "runs", self.lower().method)]
        if self.beside_gap is not None and self.beside is not None:
            said.append(could_show(self.beside_gap.most, "runs", self.beside.method))
        said = [*filter(None, said)]
        said += [SAME_SCORE] * self.one_score
        said += [str(one) for one in (self.stopped, self.rates) if one is not None]
        return [*super().limits(), *said]


def run(
    audit: ProgramAudit,
    folder: RunFolder,
    *,
    function: Callable[..., object] | None = None,
    ledger: Ledger | None = None,
    time_limit: float = math.inf,
    retries: int = 1,
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ProgramResult:
    """Call the program for all runs, and judge; go on where an earlier call stopped.

    ``function``: where no name finds it. ``ledger``: what one run releases.
    ``time_limit``, ``retries``: of a command's run. ``workers``: commands at once, or
    processes of a function. `ForeignError` if a run gave no score: what was done before
    is kept. `FolderError`; ``ValueError`` if there is no such function, or runs share
    random numbers.
    """
    many = workers or (1 if audit.is_function else os.cpu_count() or 1)
    scores = contextlib.ExitStack()
    score: Score
    if audit.is_function and many > 1:
        called = audit.program if function is None else function
        if function is None:
            function_of(audit.program)  # raises before there are processes
        score = scores.enter_context(Processes(called, audit.name, many))
    elif audit.is_function:
        score = (
            function_of(audit.program)
            if function is None
            else checked(function, audit.name)
        )
    elif audit.serve:
        limit = TIME_LIMIT if time_limit == math.inf else time_limit
        score = scores.enter_context(Servers(audit.program, limit, retries, many))
    else:
        score = Command(audit.program, time_limit, retries)
    if folder.settle(audit) and folder.has("result.json"):
        scores.close()
        return folder.read("result.json", ProgramResult)
    if ledger is not None:
        folder.write("ledger.json", ledger.to_json().encode())
    done = kept_batches(audit, folder)
    began = kept = time.monotonic()
    progress(min(len(done) * audit.batch, audit.runs), audit.runs)

    def batch(number: int) -> NDArray[np.float64]:
        return score(audit.worlds(number), audit.batch_seed(number))

    pool = concurrent.futures.ThreadPoolExecutor(many)
    futures: dict[concurrent.futures.Future, int] = {}
    try:
        for runs in stages(audit):
            numbers = range(-(-runs // audit.batch))
            more = {pool.submit(batch, n): n for n in numbers if n not in done}
            futures |= more
            for future in concurrent.futures.as_completed(more):
                done[more[future]] = future.result()
                if 1 < len(done) < _EARLY:
                    _check_seeds(audit, done, batch)
                progress(min(len(done) * audit.batch, audit.runs), audit.runs)
                if time.monotonic() - kept > _REST:
                    _keep(audit, folder, done)
                    kept = time.monotonic()
            here = {number: done[number] for number in numbers}
            _check_seeds(audit, here, batch)
            if runs < audit.runs and _is_refuted(audit, here, ledger):
                done = here  # an earlier call may have begun more
                break
    except SharedSeedError:
        done, futures = {}, {}
        folder.remove("scores.npz")
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        scores.close()
        for future, number in futures.items():  # what ended while one failed
            if not future.cancelled() and future.exception() is None:
                done[number] = future.result()
        if done:
            _keep(audit, folder, done)
    result = judge(audit, done, time.monotonic() - began, ledger)
    end(folder, audit.claim, ledger, result)
    return result


def _check_seeds(
    audit: ProgramAudit,
    done: dict[int, NDArray[np.float64]],
    batch: Callable[[int], NDArray[np.float64]],
) -> None:
    """Raise `SharedSeedError` if the runs of each call of a function seem to be one."""
    if not audit.is_function:
        return
    calls = [(audit.worlds(number), score) for number, score in done.items()]
    if len(calls) == 1 and is_alike(calls[0]):
        calls.append((audit.worlds(1), batch(1)))
    if share_random_numbers(calls):
        raise SharedSeedError(
            f"{audit.name} gave all runs of a world in one call the same score, and "
            "other scores in other calls: its runs share random numbers; seed the i-th "
            "run of a call by numpy.random.default_rng([seed, i]), or make one run a "
            "call (--batch 1)"
        )


def judge(
    audit: ProgramAudit,
    done: dict[int, NDArray[np.float64]],
    seconds: float,
    ledger: Ledger | None = None,
) -> ProgramResult:
    """The verdict on the scores of all batches, and a ``ledger``'s worst node."""
    scores = Scores(*arrays(audit, done), "coin-flip")
    nodes, attacked = attacked_part(audit, ledger)
    upper = max(nodes, key=lambda bound: bound.epsilon, default=None)
    tested = _tested(audit, scores)
    found = conclude(
        tested,
        audit.estimator,
        _named(audit, attacked),
        ledger=ledger,
        upper=upper,
        stronger="a score that sees more of what is released, and more runs, show more",
    )
    relation = audit.claim.relation
    own = None if attacked is None else Certificate.of(attacked, relation).node(0)
    return ProgramResult(
        most_shown=found.most,
        nodes=nodes,
        one_score=bool((scores.score == scores.score[0]).all()),
        **outcome_of(audit, tested, found, own, upper, seconds),
    )


def attacked_part(
    audit: ProgramAudit, ledger: Ledger | None
) -> tuple[tuple[UpperBound, ...], Ledger | None]:
    """The account of each node of ``ledger``, and the part of the worst one."""
    if ledger is None:
        return (), None
    nodes = account_nodes(ledger, audit.claim.delta, audit.claim.relation)
    worst = max(range(len(nodes)), key=lambda node: nodes[node].epsilon)
    return nodes, msgspec.structs.replace(ledger, nodes=(ledger.nodes[worst],))


def _named(audit: ProgramAudit, attacked: Ledger | None) -> Callable[[str], Estimator]:
    entries = () if attacked is None else attacked.nodes[0]
    return lambda name: estimator_named(name, entries, audit.claim.relation)


def _tested(audit: ProgramAudit, scores: Scores) -> Tested:
    return tested_by(audit, scores, f"what {audit.program} scores by")


def _is_refuted(
    audit: ProgramAudit, done: dict[int, NDArray[np.float64]], ledger: Ledger | None
) -> bool:
    member, score = arrays(audit, done)
    if not 0 < np.count_nonzero(member) < len(member):
        return False
    named = _named(audit, attacked_part(audit, ledger)[1])
    estimator = named(deciding(audit.estimator, named, ours=False))
    tested = _tested(audit, Scores(member, score, "coin-flip"))
    return tested.bound(estimator).epsilon > audit.claim.epsilon


def arrays(
    audit: ProgramAudit, done: dict[int, NDArray[np.float64]]
) -> tuple[Worlds, NDArray[np.float64]]:
    """Worlds and scores of all runs, in order."""
    numbers = sorted(done)
    member = np.concatenate([audit.worlds(number) for number in numbers])
    score = np.concatenate([done[number] for number in numbers])
    return member[: audit.runs], score[: audit.runs]


def _keep(
    audit: ProgramAudit, folder: RunFolder, done: dict[int, NDArray[np.float64]]
) -> None:
    numbers = sorted(done)
    content = _npz.packed(
        member=np.concatenate([audit.worlds(number) for number in numbers]),
        score=np.concatenate([done[number] for number in numbers]),
        batch=np.repeat(numbers, audit.batch),
        design="coin-flip",
    )
    folder.write("scores.npz", content)


def kept_batches(
    audit: ProgramAudit, folder: RunFolder
) -> dict[int, NDArray[np.float64]]:
    """The scores of the batches that are done, by their numbers."""
    if not folder.has("scores.npz"):
        return {}
    try:
        with _npz.opened(folder / "scores.npz") as file:
            score, numbers = file["score"], file["batch"].astype(int)
        done = {int(n): score[numbers == n] for n in np.unique(numbers)}
    except (OSError, ValueError) as error:
        raise folder.broken("scores.npz", error) from None
    for number, scores in done.items():
        if not 0 <= number < audit.batches or len(scores) != audit.batch:
            raise FolderError(f"{folder / 'scores.npz'}: batch {number} is not whole")
    return done
