"""`privaudit sweep`: many audits from one file."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from privaudit.cli import COULD_NOT, FINE
from privaudit.cli.accounts import Json
from privaudit.cli.output import emit, note
from privaudit.cli.place import Out, Place
from privaudit.cli.signing import Sign, check_key, kept
from privaudit.cli.verdicts import Require, status_of
from privaudit.results import round_down, stated

if TYPE_CHECKING:
    from privaudit.auditing.experiments.sweep_run import Progress


def sweep(
    file: pathlib.Path,
    /,
    *,
    out: Out = None,
    workers: int | None = None,
    require: Require = None,
    sign: Sign = None,
    json: Json = False,
) -> int:
    """Make all audits that a file names: algorithms, budgets, adversaries, settings.

    The tables of the file: [all] has what all audits have in common, [grid] lists of
    which every combination is an audit, and each [[audit]] is one more. Settings are
    those of privaudit audit and its --set: algorithm, epsilon, adversary, canary, runs,
    rounds, ... Each audit has a folder of its own in --out; one that fails does not
    stop the others. Status 1 if a claim is refuted or disproved, else 3 if an audit
    failed.

    Parameters
    ----------
    file
        A .toml file.
    workers
        Audits made at once; as many as processors by default.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"--workers must be >= 1, got {workers}")
    from privaudit.auditing.experiments.sweep import Plan
    from privaudit.auditing.experiments.sweep_folder import SweepFolder
    from privaudit.auditing.experiments.sweep_run import goes_on, run_sweep
    from privaudit.report.sweep import load_sweep

    check_key(sign)
    plan = Plan.read(file)
    place = Place(out, f"sweep-{file.stem}")
    opened = place.opened(SweepFolder, lambda there: goes_on(plan, there))
    with opened as folder, sweep_view(len(plan.audits)) as tell:
        run_sweep(plan, folder, workers=workers, tell=tell)
    found = load_sweep(place.path)
    emit(found.summary(), [*found.lines(), kept(place.path, sign)], as_json=json)
    # A claim that does not hold is the status, whatever else failed.
    return status_of(found.statuses, require) or (FINE if found.complete else COULD_NOT)


@contextlib.contextmanager
def sweep_view(audits: int) -> Iterator[Callable[[Progress], None]]:
    """A bar for the sweep and one for each audit at work, on standard error.

    A line for each audit that ends; these alone where standard error is no terminal.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    ended = 0
    with Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:
        whole = bars.add_task("audits", total=audits)
        tasks: dict[str, int] = {}

        def tell(state: Progress) -> None:
            nonlocal ended
            if state.ended:
                ended += 1
                bars.update(whole, completed=ended)
                if state.name in tasks:
                    bars.remove_task(tasks.pop(state.name))  # type: ignore[arg-type]
                line = f"[{ended} of {audits}] {state.name}: {_outcome(state)}"
                if console.is_terminal:
                    console.print(line, markup=False, highlight=False)
                else:
                    note(line)
            else:
                if state.name not in tasks:
                    tasks[state.name] = bars.add_task(state.name, total=state.total)
                bars.update(tasks[state.name], completed=state.done)  # type: ignore[arg-type]

        yield tell


def _outcome(state: Progress) -> str:
    if state.result is None:
        return f"FAILED: {state.failure}"
    result = state.result
    return (
        f"{result.status}, epsilon is at least {round_down(result.lower().epsilon)}"
        f" of {stated(result.verdict.claim.epsilon)} claimed ({result.seconds:.0f} s)"
    )
