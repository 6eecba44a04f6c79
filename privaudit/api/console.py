"""Progress on standard error: bars in a terminal or a notebook, lines in a log."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from privaudit.api.watch import SILENT, Watch
from privaudit.files.text import visible
from privaudit.results import Claim, round_down, round_up, stated

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.table import Table

    from privaudit.auditing.experiments.sweep_run import Progress as SweepProgress
    from privaudit.auditing.selfcheck import Row
    from trainers.runs.measures import Measured
    from trainers.runs.run import Progress


def speaks() -> bool:
    """Return whether this process shows progress: of ranks at one screen, the first."""
    return os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) == "0"


class Seldom:
    """Says when a log may have another line: after 15 seconds, then once a minute."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._next = self.began + 15

    def due(self) -> bool:
        """Return whether it is time; the next is a minute later."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + 60
        return True


class Pace:
    """Estimate of the time left, at the pace since the first call."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def left(self, done: int, total: int) -> str:
        """The end of a line of progress: ``", about 40 s left"``, or "" if unknown."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
        began, before = self._first
        if done <= before:
            return ""
        return f", {duration((total - done) * (now - began) / (done - before))} left"


def duration(seconds: float) -> str:
    """Seconds as one would say them.

    >>> duration(42.4), duration(600), duration(9000)
    ('about 42 s', 'about 10 min', 'about 2.5 h')
    """
    if seconds < 120:
        return f"about {seconds:.0f} s"
    minutes = seconds / 60
    return (
        f"about {minutes:.0f} min" if minutes < 120 else f"about {minutes / 60:.1f} h"
    )


def bars() -> Bars:
    """Bars on standard error, with counts and times; disabled where none are seen."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (console.is_terminal or console.is_jupyter),
    )


def note(message: str) -> None:
    """A line about what is going on, on standard error; of ranks, the first speaks."""
    if speaks():
        print(visible(message), file=sys.stderr, flush=True)


def _outcome(state: SweepProgress) -> str:
    if state.result is None:
        return f"FAILED: {state.failure}"
    result = state.result
    return (
        f"{result.status}, epsilon is at least {round_down(result.lower().epsilon)}"
        f" of {stated(result.verdict.claim.epsilon)} claimed ({result.seconds:.0f} s)"
    )


_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 40  # of the curve, in characters


def sparkline(values: list[float]) -> str:
    """Values in [0, 1] as a line of bars, evenly thinned to the width of the curve."""
    top, last = len(_BARS) - 1, len(values) - 1
    if len(values) > _WIDTH:
        step = len(values) / _WIDTH
        values = [values[min(int(i * step) - 1, last)] for i in range(1, _WIDTH + 1)]
    return "".join(_BARS[round(top * min(1.0, max(0.0, value)))] for value in values)


class _View:
    def __init__(self, name: str, claimed: float | None) -> None:
        self._name = name
        self._claimed = claimed
        self._began = time.monotonic()
        self._first: int | None = None
        self._now: Progress | None = None
        self._measured: Measured | None = None
        self._epsilon: float | None = None
        self._qualities: list[float] = []

    def update(self, now: Progress) -> None:
        if self._first is None:
            self._first = now.done - 1
        self._now = now
        if now.measured is not None:
            self._measured = now.measured
            self._qualities += now.measured.quality[1:2]
        if now.epsilon is not None:
            self._epsilon = now.epsilon

    def pace(self) -> str:
        """Share that is done, and time left."""
        if self._now is None:
            return "starting ..."
        done, rounds = self._now.done, self._now.rounds
        fresh = done - (self._first or 0)
        rate = fresh / max(1e-9, time.monotonic() - self._began)
        left = (rounds - done) / max(1e-9, rate)
        return (
            f"round {done:,} of {rounds:,}, {rate:.3g} a second, {duration(left)} left"
        )

    def line(self) -> str:
        """The pace and the last accuracy or loss, for a log."""
        known = ""
        if self._measured is not None and self._measured.quality:
            kind, mean, _ = self._measured.quality
            known = f"; {kind} {mean:.4f}"
        return f"{self._name}: {self.pace()}{known}"

    def table(self) -> Table:
        from rich.markup import escape
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        table.add_row(escape(visible(self._name)), self.pace())
        if self._measured is not None:
            if self._measured.quality:
                kind, mean, worst = self._measured.quality
                known = f"{mean:.4f} mean, {worst:.4f} worst node"
                table.add_row(kind, f"{known}  {sparkline(self._qualities)}")
            if self._measured.consensus is not None:
                table.add_row("consensus", f"distance {self._measured.consensus:.4g}")
        if self._epsilon is not None:
            told = self._claimed
            claimed = "" if told is None else f" of {stated(told)} claimed"
            spent = round_up(self._epsilon)
            table.add_row("epsilon", f"at most {spent} spent{claimed}")
        return table


class Console(Watch):
    """Bars where standard error is a terminal, else a line now and then."""

    def note(self, message: str) -> None:
        note(message)

    def warn(self, message: str) -> None:
        note(f"warning: {message}")

    @contextlib.contextmanager
    def runs(self) -> Iterator[Callable[[int, int], None]]:
        """A bar on standard error, or lines, moved by calling it with (done, total)."""
        if not speaks():
            yield lambda done, total: None
            return
        drawn = bars()
        if drawn.disable:
            lines, pace = Seldom(), Pace()

            def tell(done: int, total: int) -> None:
                left = pace.left(done, total)
                if lines.due():
                    note(f"runs: {done:,} of {total:,}{left}")

            yield tell
            return
        with drawn as bar:
            task = bar.add_task("runs", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    @contextlib.contextmanager
    def training(
        self, algorithm: str, claim: Claim | None
    ) -> Iterator[Callable[[Progress], None]]:
        """A view on standard error, moved by each round; or lines, seldom."""
        from rich.console import Console as Screen
        from rich.live import Live

        console = Screen(stderr=True)
        if not speaks():
            yield lambda now: None
            return
        view = _View(algorithm, None if claim is None else claim.epsilon)
        if not (console.is_terminal or console.is_jupyter):
            lines = Seldom()

            def tell(now: Progress) -> None:
                view.update(now)
                if lines.due():
                    note(view.line())

            yield tell
            return
        with Live(
            view.table(), console=console, transient=True, auto_refresh=False
        ) as live:
            last = 0.0

            def show(now: Progress) -> None:
                nonlocal last
                view.update(now)
                if time.monotonic() - last > 0.1 or now.done == now.rounds:
                    last = time.monotonic()
                    live.update(view.table(), refresh=True)

            yield show

    @contextlib.contextmanager
    def sweep(self, audits: int) -> Iterator[Callable[[SweepProgress], None]]:
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
                    line = visible(
                        f"[{ended} of {audits}] {state.name}: {_outcome(state)}"
                    )
                    if not drawn.disable:
                        drawn.console.print(line, markup=False, highlight=False)
                    else:
                        note(line)
                    return
                if drawn.disable and lines.due():
                    runs = "; ".join(
                        f"{name}: {done:,} of {total:,} runs"
                        for name, (done, total) in at_work.items()
                    )
                    note(f"{ended} of {audits} audits{left}; at work: {runs}")
                if state.name not in tasks:
                    shown = visible(state.name)
                    tasks[state.name] = drawn.add_task(shown, total=state.total)
                drawn.update(tasks[state.name], completed=state.done)  # type: ignore[arg-type]

            yield tell

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
