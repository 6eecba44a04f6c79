"""Progress of a training, on standard error."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from privaudit.api.progress import Seldom, duration, note, speaks
from privaudit.files.text import visible
from privaudit.results import round_up, stated

if TYPE_CHECKING:
    from rich.table import Table

    from trainers.runs.measures import Measured
    from trainers.runs.run import Progress

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 40  # of the curve, in characters


def sparkline(values: list[float], width: int = _WIDTH) -> str:
    """Values in [0, 1] as a line of bars, the last ``width`` of them evenly thinned."""
    if len(values) > width:
        step = len(values) / width
        values = [
            values[min(int((i + 1) * step) - 1, len(values) - 1)] for i in range(width)
        ]
    top = len(_BARS) - 1
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
                table.add_row(
                    kind,
                    f"{mean:.4f} mean, {worst:.4f} worst node  "
                    f"{sparkline(self._qualities)}",
                )
            if self._measured.consensus is not None:
                table.add_row("consensus", f"distance {self._measured.consensus:.4g}")
        if self._epsilon is not None:
            told = self._claimed
            claimed = "" if told is None else f" of {stated(told)} claimed"
            spent = round_up(self._epsilon)
            table.add_row("epsilon", f"at most {spent} spent{claimed}")
        return table


@contextlib.contextmanager
def live_view(name: str, claimed: float | None) -> Iterator[Callable[[Progress], None]]:
    """A view on standard error, moved by each round's progress; or lines, seldom."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if not speaks():
        yield lambda now: None
        return
    view = _View(name, claimed)
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
