"""Claimed, certified and audited figures of many things: in rows, and on one axis."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from privaudit.report.joint import Joint
from privaudit.report.numbers import claimed, down, up
from privaudit.report.svg import COLOURS, drawing, inline
from privaudit.report.verify import Verification
from privaudit.results import Finding, LowerBound, UpperBound


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """A line of an overview; ``proved``: from below; ``why``: what is wrong with it."""

    name: str
    kind: str
    page: str | None = None
    claimed: float | None = None
    certified: float | None = None
    proved: float = 0.0
    standing: str = ""
    audited: float | None = None
    delta: float | None = None
    relation: str = ""
    verdict: str | None = None
    why: str = ""

    @classmethod
    def of(cls, checked: Verification, name: str, page: str | None) -> Item:
        """A run whose figures agree with its evidence."""
        run: Any = checked.found
        result = run.result
        if hasattr(result, "lower"):
            lower, attack = result.lower(), None
        else:  # a training, which may have been attacked
            attack = result.strongest() if hasattr(result, "strongest") else None
            lower = None if attack is None else attack.finding.lower
        about = {"name": name, "kind": run.kind, "page": page}
        item = cls._stating(result.verdict, result.upper(), lower, **about)
        if attack is not None and attack.finding.status == "refuted":
            return dataclasses.replace(item, verdict="refuted")  # without a claim too
        return item

    @classmethod
    def joint(cls, joint: Joint, name: str, page: str) -> Item:
        """Item for what the parties of a run state together."""
        about = {"name": name, "kind": "joint", "page": page}
        return cls._stating(joint.verdict, joint.upper, None, **about)

    @classmethod
    def _stating(
        cls,
        verdict: Finding | None,
        upper: UpperBound | None,
        lower: LowerBound | None,
        **about: Any,
    ) -> Item:
        claim = None if verdict is None else verdict.claim
        first = next(one for one in (upper, lower, claim) if one is not None)
        return cls(
            **about,
            claimed=None if claim is None else claim.epsilon,
            certified=None if upper is None else upper.epsilon,
            proved=0.0 if verdict is None else verdict.certified_lower or 0.0,
            standing="" if upper is None else upper.standing,
            audited=None if lower is None else lower.epsilon,
            delta=first.delta,
            relation=first.relation,
            verdict=None if verdict is None else verdict.status,
        )

    def cells(self) -> list[tuple[str, str, float | str]]:
        """Cells of a row: head, text, and the value to sort by."""
        worth = "" if self.standing in ("", "certified") else f" {self.standing}"
        figures = (
            ("claimed", self.claimed, claimed, ""),
            ("certified", self.certified, up, worth),
            ("audited", self.audited, down, ""),
            ("delta", self.delta, "{:g}".format, ""),
        )
        verdict = self.why or self.verdict or ""
        return [
            ("verdict", verdict, verdict),
            *(
                (
                    head,
                    "" if value is None else said(value) + more,
                    -1.0 if value is None else min(value, 1e300),
                )
                for head, value, said, more in figures
            ),
            ("neighbours", self.relation, self.relation),
            ("what", self.kind, self.kind),
        ]

    @property
    def drawn(self) -> bool:
        """Return whether there is anything to draw."""
        return any(self._positive())

    def _positive(self) -> list[float]:
        return [one for one in (*_marks(self), self.proved) if 0 < one < math.inf]

    def __str__(self) -> str:
        said = [
            f"{word} {text(value)}"
            for word, value, text in (
                ("claimed", self.claimed, claimed),
                ("certified at most", self.certified, up),
                ("proved at least", self.proved or None, down),
                ("audited at least", self.audited, down),
            )
            if value is not None
        ]
        return f"{self.name}: {', '.join(said)}"


def together(lines: Sequence[Item], *, width: float, name: str) -> str:
    """A row a thing: what audit and account leave, from both sides, and the claim.

    Logarithmic. What has no positive finite figure is left out; an audit that showed
    nothing begins at the left; an arrow at the right end is no bound, proved.
    """
    lines = [line for line in lines if line.drawn]
    if not lines:
        return ""
    every = [value for line in lines for value in line._positive()]
    low, high = min(every) / 2, max(every) * 2
    wide = width > 600
    step = 24 if wide else 40  # points from row to row
    labels = _labels(lines, math.log(high / low) / (0.7 if wide else 0.95) / width)
    room = 0.2 + 18 / step * (1 + max(label.level for label in labels))
    with drawing(width, 46 + step * (len(lines) + room)) as (figure, axes):
        axes.set_xscale("log")
        for place, line in enumerate(lines):
            failed = line.verdict in ("refuted", "disproved")
            role = "refuted" if failed else "allowed"
            colour, ink = COLOURS[role], COLOURS["ink"]
            left = max(line.audited or low, line.proved, low)
            right = high if line.certified is None else min(line.certified, high)
            if line.certified is not None or line.audited is not None:
                axes.plot(
                    (left, max(left, right)), (-place, -place), color=colour, lw=6,
                    alpha=0.35, solid_capstyle="butt",
                )  # fmt: skip
            if line.proved == math.inf:  # beyond any axis
                axes.plot(high, -place, ">", color=colour, ms=12, clip_on=False)
            if line.certified is not None and line.certified < math.inf:
                axes.plot(line.certified, -place, "<", color=colour, ms=8)
            if line.audited:
                axes.plot(line.audited, -place, ">", color=COLOURS["audited"], ms=8)
            if line.claimed is not None and line.claimed < math.inf:
                axes.plot(line.claimed, -place, "|", color=ink, ms=15, mew=2)
        axes.set_xlim(low, high)
        ticks = _ticks(low, high, 8 if wide else 5)
        axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_ylim(-len(lines) + 0.4, 0.4 + room)
        behind = {"facecolor": COLOURS["paper"], "edgecolor": "none", "pad": 1.0}
        for label in labels:
            height = (0.5 if wide else 0.62) + 18 / step * (label.level + 0.4)
            axes.plot(
                (label.at, label.at), (-label.row + 0.25, height - 8 / step),
                color=COLOURS["faint"], lw=0.7,
            )  # fmt: skip
            axes.text(
                label.at, height, label.text, ha="center", va="center", fontsize=11,
                bbox=behind,
            )  # fmt: skip
        names = [line.name for line in lines]
        if wide:
            axes.set_yticks([-place for place in range(len(lines))], map(_short, names))
            right = axes.get_yaxis_transform()
            for place, line in enumerate(lines):
                said = line.verdict or ""
                axes.text(1.02, -place, said, transform=right, va="center", fontsize=11)
        else:
            axes.set_yticks([])
            for place, each in enumerate(names):
                said = lines[place].verdict
                each = f"{_short(each)}: {said}" if said else _short(each)
                axes.text(
                    low, 0.42 - place, each, va="center", fontsize=11, bbox=behind
                )
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("epsilon: the less, the more private (logarithmic axis)")
        said = "; ".join(map(str, lines))
        return inline(figure, name, f"Epsilon, item by item: {said}.")


@dataclasses.dataclass(frozen=True, slots=True)
class _Label:
    """Label of a mark, at the first row that has it, ``level`` lines above all rows."""

    text: str
    at: float
    row: int
    level: int


def _labels(lines: Sequence[Item], point: float) -> list[_Label]:
    """Words for each kind of mark; ``point`` is how much of log epsilon a point is."""
    words = ("certified: at most", "audited: at least", "claimed")
    row = max(lines, key=lambda line: sum(map(bool, _marks(line))))
    at = lines.index(row)
    placed: list[_Label] = []
    ends: list[float] = []  # of the texts of each level, in logarithms
    marks = [pair for pair in zip(_marks(row), words, strict=True) if pair[0]]
    for value, text in sorted(marks):
        left = math.log(value) - 3.3 * len(text) * point
        level = next((n for n, end in enumerate(ends) if end < left), len(ends))
        ends[level:] = [left + 6.6 * (len(text) + 1) * point, *ends[level + 1 :]]
        placed.append(_Label(text, value, at, level))
    return placed


def _marks(line: Item) -> tuple[float, float, float]:
    """Certified, audited, claimed; 0 for what has no mark."""
    drawn = lambda value: value if value and value < math.inf else 0.0  # noqa: E731
    return drawn(line.certified), drawn(line.audited), drawn(line.claimed)


def _ticks(low: float, high: float, most: int) -> list[float]:
    """At most ``most`` round figures, so that no two labels touch; high / low >= 4."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = [
        float(f"{n}e{power}") for power in range(first, last + 1) for n in range(1, 10)
    ]
    for digits in (range(1, 10), (1, 2, 5), (1, 3), (1,)):
        ticks = [x for x in every if low <= x <= high and int(f"{x:e}"[0]) in digits]
        if len(ticks) <= most:
            return ticks
    return ticks[:: math.ceil(len(ticks) / most)]


def _short(name: str) -> str:
    return name if len(name) <= 44 else f"{name[:20]}…{name[-23:]}"
