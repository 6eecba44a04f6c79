"""Figures without a training: noise for a budget, epsilon of planned releases."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from privaudit.accounting import METHODS, Certificate, gdp, noise_multiplier
from privaudit.accounting import noise_scale as scale_of
from privaudit.accounting.account import bound_of
from privaudit.accounting.closed_forms import clt_distance
from privaudit.accounting.plans import Plan
from privaudit.accounting.tuning import repeat_and_select
from privaudit.api.accounts import ledger_from
from privaudit.figure_settings import (
    FigureSettings,
    Mechanism,
    ReleaseSettings,
    WorthSettings,
)
from privaudit.files import json as _json
from privaudit.files.folder import write_whole
from privaudit.files.json import Summary
from privaudit.ledger import Ledger
from privaudit.results import UpperBound, check_sides, round_down, round_up

_BESIDE = 2e-3  # width of what is printed beside an answer, relative
_UNITS = "({} of the noise on a batch's sum, over the clip norm{})"
_UNITS_OF = {
    "gaussian": _UNITS.format("standard deviation", ""),
    "laplace": _UNITS.format("scale b", " in L1"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one account: an epsilon, or noise and the epsilon that it gives."""

    certificate: Certificate  # of the releases; with noise, of those with that noise
    figure: dict[str, Any]  # as `figure_of` returns it: ``upper`` bounds epsilon
    # Empty where epsilon was asked for. Else "noise_multiplier"; or, of a schedule,
    # "scale", "noise_multiplier_least" and "noise_multiplier_most"; or, of a growing
    # budget, "mu0", "noise_multiplier_first" and "noise_multiplier_last".
    noise: dict[str, float] = dataclasses.field(default_factory=dict)
    mechanism: Mechanism = "gaussian"  # distribution of that noise

    def summary(self) -> dict[str, Any]:
        """All figures, for JSON."""
        return {**self.noise, "epsilon": self.figure} if self.noise else self.figure

    def words(self) -> str:
        """The noise, in words; rounded to the safe side."""
        z = {name: told(name, value) for name, value in self.noise.items()}
        if "scale" in z:
            least, most = z["noise_multiplier_least"], z["noise_multiplier_most"]
            return f"scale {z['scale']}, noise multipliers {least} to {most}"
        if "mu0" in z:
            first, last = z["noise_multiplier_first"], z["noise_multiplier_last"]
            return f"noise multiplier {first} at first, {last} at last, mu0 {z['mu0']}"
        return ", ".join(f"noise multiplier {value}" for value in z.values())

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        noise = [self.words(), _UNITS_OF[self.mechanism]] if self.noise else []
        if "scale" in self.noise:
            noise[1:1] = [
                "(multiply every noise multiplier of the schedule by the scale)"
            ]
        return [*noise, sentence(self.figure)]


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """The answer of one account among all, or why there is none, in a sentence."""

    method: str
    answer: Answer | None
    reason: str = ""

    summary = Summary("method applies reason? *answer.noise epsilon?=answer.figure")

    @property
    def applies(self) -> bool:
        """Return whether it has an answer."""
        return self.answer is not None

    def __str__(self) -> str:
        if self.answer is None:
            return f"{self.method:20} -           {' '.join(self.reason.split())}"
        figure, words = self.answer.figure, self.answer.words()
        row = f"{self.method:20} {round_up(figure['upper']):11} "
        return f"{row}{figure['standing']:11}  {words}".rstrip()


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """The answers of all accounts to one question."""

    accounts: tuple[Compared, ...]

    summary = Summary("accounts")

    def lines(self) -> list[str]:
        """A table with a row for each account."""
        return [f"{'account':20} {'epsilon':11} standing", *map(str, self.accounts)]


def noise_for(
    run: ReleaseSettings,
    epsilon: float,
    delta: float,
    how: FigureSettings,
    besides: Sequence[pathlib.Path] = (),
    *,
    directions: bool = True,
) -> Answer | Comparison:
    """The least noise of ``run`` that meets the budget, by the account in ``how``.

    Files of ledgers in ``besides`` say what else is released of the same data. With
    ``directions`` the certified figure tells those of the relation apart. Raises
    ``ValueError`` if a setting is out of its range, or no noise meets the budget.
    """
    plan, relation = Plan.of(run), run.chosen_relation
    planned = plan.beside(map(ledger_from, besides))
    search = noise_multiplier if run.schedule is None else scale_of

    def solve(name: str) -> Answer:
        scale, _ = search(planned, epsilon, delta, relation, name)
        values = (plan.noise_multiplier * scale).tolist()
        noise: dict[str, float] = {"noise_multiplier": scale}
        if run.growing_budget is not None and values:
            noise = {
                "mu0": 1 / values[0],
                "noise_multiplier_first": values[0],
                "noise_multiplier_last": values[-1],
            }
        elif run.schedule is not None:
            noise = {
                "scale": scale,
                "noise_multiplier_least": min(values),
                "noise_multiplier_most": max(values),
            }
        found = Certificate.of(planned(scale), relation)
        figure = figure_of(
            *(found, delta, name),
            width=_BESIDE,
            directions=directions,
            upper_only=how.upper_only,
        )
        return _kept(Answer(found, figure, noise, run.mechanism), delta, how)

    return _answered(solve, how, planned(1.0), _MOST_COMPARED // _TRIES)


def epsilon_of(
    certificate: Certificate,
    delta: float,
    how: FigureSettings,
    *,
    directions: bool = True,
) -> Answer | Comparison:
    """The epsilon of ``certificate`` at ``delta``, by the account that ``how`` names.

    With ``how.compare`` by all accounts; with ``how.plot`` the profile is drawn. With
    ``directions`` the certified figure tells those of the relation apart. Raises
    ``ValueError`` if the account does not apply.
    """

    def solve(name: str) -> Answer:
        figure = figure_of(
            *(certificate, delta, name),
            directions=directions,
            upper_only=how.upper_only,
        )
        return _kept(Answer(certificate, figure), delta, how)

    return _answered(solve, how, certificate.ledger, _MOST_COMPARED)


def certificate_of(
    run: ReleaseSettings,
    noise_multiplier: float | None,
    ledgers: Sequence[pathlib.Path] = (),
    worth: WorthSettings | None = None,
) -> Certificate:
    """The certificate of planned releases, or of what is in files of ledgers.

    With ``ledgers``, releases of the same data, which compose, ``run`` has the relation
    only. ``noise_multiplier`` is that of the first step. ``worth`` says for how many
    records, nodes or tries the figure must hold. Raises ``ValueError`` unless exactly
    one of noise, schedule and ledgers is given, or for a file that holds no ledger.
    """
    worth = worth or WorthSettings()
    if ledgers:
        if noise_multiplier is not None or dataclasses.replace(run, relation=None) != (
            ReleaseSettings()
        ):
            raise ValueError(
                "--ledger says what was released; leave --noise-multiplier and the "
                "settings of the run out"
            )
        released = Ledger.composed(map(ledger_from, ledgers))
    else:
        if (noise_multiplier is None) == (run.schedule is None):
            raise ValueError(
                "give one of --noise-multiplier (of the first step), --schedule and "
                "--ledger"
            )
        if noise_multiplier is not None and not noise_multiplier > 0:
            raise ValueError(
                f"--noise-multiplier must be > 0, got {noise_multiplier:g}"
            )
        if worth.overlap != 1:
            raise ValueError("--overlap speaks of the nodes of a --ledger; give one")
        released = Plan.of(run).ledger(noise_multiplier or 1.0)
    relation = run.chosen_relation
    if worth.tries is not None:
        released = repeat_and_select(
            released, tries=worth.tries, law=worth.tries_law, relation=relation
        )
    return Certificate.of(released, relation, overlap=worth.overlap, group=worth.group)


def write_event(certificate: Certificate, path: pathlib.Path) -> None:
    """Write what was released as dp-accounting's event, in JSON, into ``path``.

    ``ValueError`` if nodes differ, an event has no word for it, or it cannot be
    written.
    """
    from privaudit.accounting import events

    _write(path, events.to_json(certificate.ledger.to_event()).encode())


def _write(path: pathlib.Path, content: bytes) -> None:
    try:
        write_whole(path, content)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error}") from error


def _kept(answer: Answer, delta: float, how: FigureSettings) -> Answer:
    """``answer``, once its certificate is written where ``how`` asks for it."""
    if how.certificate is not None:
        _write(how.certificate, _json.encode(answer.certificate.witness(delta)))
    return answer


def figure_of(
    certificate: Certificate,
    delta: float,
    method: str,
    *,
    width: float | None = None,
    directions: bool = True,
    upper_only: bool = False,
) -> dict[str, Any]:
    """Epsilon of ``certificate`` at ``delta`` by one account, as plain values.

    The certified one with a lower side, within ``width`` where that can be had, and
    with ``directions`` the upper side of each.
    """
    bound = bound_of(certificate, delta, method)
    figure = bound.summary()
    figure["steps"] = max(
        sum(entry.count for entry in node) for node in certificate.ledger.nodes
    )
    if certificate.group > 1:
        figure["group"] = certificate.group
    if method == "certified":
        above = certificate.epsilon(delta, sides="upper")
        figure["upper_by"] = above.upper_by
        if not upper_only:
            below = certificate.epsilon(delta, width)
            check_sides(below.lower, above.upper, below.lower_by, above.upper_by)
            figure = {"lower": below.lower, **figure, "lower_by": below.lower_by}
        if directions:
            figure["directions"] = {
                way: min(bracket.upper, above.upper)
                for way, bracket in certificate.directions(delta, sides="upper").items()
            }
    if method == "gdp-clt":
        figure["distance_from_limit"] = certificate.upper_by(
            lambda entries, *_: clt_distance(entries), delta
        )
    return figure


def sentence(figure: dict[str, Any]) -> str:
    """Sentence for what `figure_of` returned, rounded to the safe side."""
    names = UpperBound.__struct_fields__
    values = {key: value for key, value in figure.items() if key in names}
    by = figure.get("upper_by")
    if by is not None:
        values["method"] = by
    text = str(UpperBound(epsilon=figure["upper"], source="", **values))
    if "group" in figure:
        text += f"; for any {figure['group']} records together"
    if "lower" in figure:
        lower = round_down(figure["lower"])
        text += f"; the true figure is no less than {lower} ({figure['lower_by']})"
    if "distance_from_limit" in figure:
        text += (
            f"; used {figure['distance_from_limit']:.2g} from its limit, to be seen "
            f"beside delta {figure['delta']:g}"
        )
    return text


@dataclasses.dataclass(frozen=True, slots=True)
class Converted:
    """Two of mu, epsilon and delta, and the third that follows."""

    mu: float
    epsilon: float
    delta: float
    name: str  # of the third: the largest mu, or the least epsilon or delta

    summary = Summary("mu epsilon delta")

    def lines(self) -> list[str]:
        """All three, in a sentence."""
        side = "largest" if self.name == "mu" else "least"
        value = self.summary()
        found = told(self.name, value.pop(self.name))
        known = " and ".join(f"{key} {x:.15g}" for key, x in value.items())
        return [f"{side} {self.name} for {known}: {found}"]


def converted(
    mu: float | None, epsilon: float | None, delta: float | None
) -> Converted:
    """Convert between mu-GDP and (epsilon, delta)-DP.

    By Corollary 2.13 of Dong, Roth and Su, arXiv:1905.02383.

    Two are given; the third is found, on the safe side. Raises ``ValueError`` unless
    two are given, each in its range.

    >>> converted(1.0, None, 1e-5).lines()
    ['least epsilon for mu 1 and delta 1e-05: 4.378']
    """
    given = {"mu": mu, "epsilon": epsilon, "delta": delta}
    known = {name: value for name, value in given.items() if value is not None}
    find = {"mu": gdp.mu, "epsilon": gdp.epsilon, "delta": gdp.delta}
    sought = [name for name in given if name not in known]
    if len(sought) != 1:
        raise ValueError("give two of --mu, --epsilon and --delta; the third is found")
    (name,) = sought
    known[name] = float(find[name](*known.values()))
    return Converted(**known, name=name)


def told(name: str, value: float) -> str:
    """An epsilon rounded to the safe side, as all commands do; or finer."""
    if name == "epsilon":
        return round_up(value)
    return round_down(value, 6) if name in ("mu", "mu0") else round_up(value, 6)


# Of a table of all accounts: releases that differ, each some tenths of a second by
# dp-accounting, and how often a search asks.
_MOST_COMPARED, _TRIES = 40, 10


def _answered(
    solve: Callable[[str], Answer], how: FigureSettings, released: Ledger, most: int
) -> Answer | Comparison:
    if not how.compare:
        answer = solve(how.account)
        if how.plot is not None:
            from privaudit.report.svg import draw_profile

            draw_profile(answer.certificate, how.plot)
        return answer
    found: list[Compared] = []
    entries = max(map(len, released.nodes), default=0)
    for name in METHODS:
        answer, reason = None, ""
        if name == "pld" and entries > most:
            reason = (
                f"left out of the table: it composes {entries:,} different releases "
                "one by one, which takes long; ask for it alone, --account pld"
            )
        else:
            try:
                answer = solve(name)
            except ValueError as error:
                reason = str(error)
        found.append(Compared(name, answer, reason))
    if not any(one.applies for one in found):
        raise ValueError(found[0].reason)
    return Comparison(tuple(found))
