"""Progress of commands, on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from privaudit.api.progress import Pace, Seldom, bars, note, progress_bar
from privaudit.api.watch import SILENT, Watch
from privaudit.files.text import visible
from privaudit.results import Claim, round_down, stated

if TYPE_CHECKING:
    from privaudit.auditing.experiments.sweep_run import Progress as SweepProgress
    from privaudit.auditing.selfcheck import Row
    from trainers.runs.run import Progress


class Console(Watch):
    """Bars where standard error is a terminal, else a line now and then."""

    def note(self, message: str) -> None:
        note(message)

    def warn(self, message: str) -> None:
        note(f"warning: {message}")

    def runs(self) -> contextlib.AbstractContextManager[Callable[[int, int], None]]:
        return progress_bar("runs")

    def training(
        self, algorithm: str, claim: Claim | None
    ) -> contextlib.AbstractContextManager[Callable[[Progress], None]]:
        from privaudit.api.live import live_view

        return live_view(algorithm, None if claim is None else claim.epsilon)

    def sweep(
        self, audits: int
    ) -> contextlib.AbstractContextManager[Callable[[SweepProgress], None]]:
        return sweep_view(audits)

    def row(self, row: Row) -> None:
        from privaudit.auditing.selfcheck import table

        note(table([row]).splitlines()[1])


def watching(watch: Watch | str | None) -> Watch:
    """Listener of a long call: ``watch``, "bar", "none"; None: bars, where seen."""
    if isinstance(watch, Watch):
        return watch
    if watch not in (None, "bar", "none"):
        raise ValueError(
            f'watch is "bar", "none" or a privaudit.api.watch.Watch, got {watch!r}'
        )
    shown = sys.stderr.isatty() or "ipykernel" in sys.modules
    if watch == "none" or (watch is None and not shown):
        return SILENT
    return Console()


@contextlib.contextmanager
def sweep_view(audits: int) -> Iterator[Callable[[SweepProgress], None]]:
    """A bar for the sweep and for each audit at work, or lines now and then."""
    ended = 0
    lines, pace = Seldom(), Pace()
    at_work: dict[str, tuple[int, int]] = {}  # runs done, of how many
    with bars() as drawn:
        whole = drawn.add_task("audits", total=audits)
        tasks: dict[str, int] = {}

        def tell(state: SweepProgress) -> None:
            nonlocal ended
            if state.ended:
                ended += 1
                at_work.pop(state.name, None)
            else:
                at_work[state.name] = state.done, state.total
            share = sum(done / max(1, total) for done, total in at_work.values())
            left = pace.left(round(1000 * (ended + share)), 1000 * audits)
            if state.ended:
                drawn.update(whole, completed=ended)
                if state.name in tasks:
                    drawn.remove_task(tasks.pop(state.name))  # type: ignore[arg-type]
                line = visible(f"[{ended} of {audits}] {state.name}: {_outcome(state)}")
                if not drawn.disable:
                    drawn.console.print(line, markup=False, highlight=False)
                else:
                    note(line)
            else:
                if drawn.disable and lines.due():
                    runs = "; ".join(
                        f"{name}: {done:,} of {total:,} runs"
                        for name, (done, total) in at_work.items()
                    )
                    note(f"{ended} of {audits} audits{left}; at work: {runs}")
                if state.name not in tasks:
                    tasks[state.name] = drawn.add_task(
                        visible(state.name), total=state.total
                    )
                drawn.update(tasks[state.name], completed=state.done)  # type: ignore[arg-type]

        yield tell


def _outcome(state: SweepProgress) -> str:
    if state.result is None:
        return f"FAILED: {state.failure}"
    result = state.result
    return (
        f"{result.status}, epsilon is at least {round_down(result.lower().epsilon)}"
        f" of {stated(result.verdict.claim.epsilon)} claimed ({result.seconds:.0f} s)"
    )
