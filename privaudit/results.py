"""Results: bounds, brackets and verdicts, each with its direction.

An upper bound on epsilon (an account), a lower bound (an audit) and a claim (somebody's
statement) are three types. They are compared only as a verdict compares them; putting
two of one direction against each other is a ``TypeError``.
A `Bracket` holds an upper and a lower bound, both proved, of one figure.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from privaudit.files import json as _json
from privaudit.files.arguments import public, take_fields
from privaudit.files.notebook import box

Relation = Literal["add-or-remove-one", "replace-one"]
Unit = Literal["record", "node", "user"]
Sampling = Literal[
    "poisson", "without-replacement", "random-allocation", "reshuffled", "none", "mixed"
]
# How it is known that a record's gradient is its own.
Independence = Literal[
    "by construction", "by construction from public tensors", "by isolation"
]
Standing = Literal["certified", "conditional", "asymptotic", "claimed"]
Status = Literal["refuted", "disproved", "unproven", "consistent"]
S = TypeVar("S")  # a status, or None
U = TypeVar("U")  # an upper bound, or None

# What is said of a claim, the worst first, and what it means for a reader. A paper may
# also have promised nothing that could be true or false: "no theorem".
MEANING: dict[Status | Literal["no theorem"], str] = {
    "refuted": "an attack on the running program shows more than was claimed",
    "disproved": "a calculation shows more than was claimed, no attack needed",
    "unproven": "nothing that we have proves it, and nothing refutes it",
    "consistent": "a certified account meets it, and no attack contradicts it",
    "no theorem": "the paper proves nothing here: conditions fail, or no claim",
}


def worst(found: Iterable[Status]) -> Status:
    """The first of `MEANING` among ``found``, which has at least one."""
    return min(found, key=list(MEANING).index)


def decided(
    claimed: float,
    *,
    upper: float | None = None,
    proved: float | None = None,
    audited: float | None = None,
) -> Status:
    """Status of a claim of at most ``claimed``, by figures about one thing.

    Parameters
    ----------
    upper, proved
        What it is at most, and at least, both proved.
    audited
        What an attack showed that it is at least.

    >>> decided(1.0, upper=2.0), decided(1.0, proved=1.5), decided(1.0, upper=1.0)
    ('unproven', 'disproved', 'consistent')
    """
    if audited is not None and audited > claimed:
        return "refuted"
    if proved is not None and proved > claimed:
        return "disproved"
    return "consistent" if upper is not None and upper <= claimed else "unproven"


def check_assumed(assumes: tuple[str, ...]) -> None:
    """Raise ``ValueError`` for an assumption without words."""
    if not all(map(str.strip, assumes)):
        raise ValueError("assumes has an empty text: say what is assumed, or nothing")


class CrossedSides(AssertionError):
    """A proved lower bound above a proved upper one: a defect of privaudit itself."""


def check_sides(
    lower: float, upper: float, lower_by: str = "", upper_by: str = ""
) -> None:
    """Raise `CrossedSides` if ``lower`` is above ``upper``, or either is nan."""
    if not lower <= upper:
        low, high = (f" (by {by})" if by else "" for by in (lower_by, upper_by))
        raise CrossedSides(
            f"the lower side {lower!r}{low} is above the upper side {upper!r}{high}: "
            "one of the two is wrong, and no figure of this account can be trusted; "
            "please report it"
        )


RELATIONS: tuple[Relation, ...] = ("add-or-remove-one", "replace-one")


def check_relation(relation: str) -> Relation:
    """``relation`` if it is one, else ``ValueError``."""
    if relation not in RELATIONS:
        raise ValueError(
            f"a neighbour relation is {' or '.join(RELATIONS)}, got {relation!r}"
        )
    return relation


DELTA = 1e-5  # of a claim that gives none, on the command line and in Python


def check_delta(delta: float) -> float:
    """``delta`` if it is in (0, 1), else ``ValueError``."""
    if not 0 < delta < 1:
        raise ValueError(
            f"delta must be in (0, 1), got {delta}; "
            "choose well below one over the number of records"
        )
    return float(delta)


def check_epsilon(epsilon: float) -> float:
    """``epsilon`` if it is a positive number, else ``ValueError``."""
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be > 0 and finite, got {epsilon}")
    return float(epsilon)


# Relative: 10.000000000000002, the sum of a hundred .1, is "10.000001" and not "10.01".
_ULPS = decimal.Decimal("1e-9")


def _round(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return "infinity" if value > 0 else "-infinity"
    if value == 0:
        return "0"
    exact = decimal.Decimal(value)
    context = decimal.Context(prec=1100, rounding=rounding)

    def rounded_to(digits: int, *, nearest: bool = False) -> decimal.Decimal:
        place = decimal.Decimal(1).scaleb(exact.adjusted() - digits + 1)
        way = decimal.ROUND_HALF_EVEN if nearest else rounding
        return exact.quantize(place, way, context)

    rounded, close = rounded_to(digits), rounded_to(digits, nearest=True)
    if rounded != close and abs(exact - close) <= abs(exact) * _ULPS:
        # Past a short number by the rounding of a sum: digits more, not a step up.
        rounded = rounded_to(digits + 4)
    if -5 <= exact.adjusted() < 7:
        return f"{rounded:f}"
    return f"{rounded.normalize(context):e}"


def round_up(value: float, digits: int = 4) -> str:
    """``value`` as text, never below it: ``digits`` significant, towards infinity.

    >>> round_up(0.99999), round_up(1 / 3), round_up(float("inf"))
    ('1.0000', '0.3334', 'infinity')
    >>> round_up(math.fsum([0.1] * 100) * (1 + 2**-52))
    '10.000001'
    """
    return _round(value, digits, decimal.ROUND_CEILING)


def single_above(value: float) -> float:
    """The least number of single precision, which logs have, that is no smaller.

    >>> single_above(0.1) >= 0.1, single_above(1.0)
    (True, 1.0)
    """
    import numpy as np

    single = np.float32(value)
    if float(single) < value:  # as Python numbers: numpy would compare singles
        single = np.nextafter(single, np.float32(np.inf))
    return float(single)


def round_down(value: float, digits: int = 4) -> str:
    """``value`` as text, never above it.

    >>> round_down(0.99999), round_down(2 / 3), round_down(0.0)
    ('0.9999', '0.6666', '0')
    """
    return _round(value, digits, decimal.ROUND_FLOOR)


def stated(value: float) -> str:
    """A claimed figure as it was stated; one of many digits, never below it.

    >>> stated(1.0), stated(2.5), stated(1 / 3), stated(float("inf"))
    ('1', '2.5', '0.3333334', 'infinity')
    """
    text = f"{value:.15g}"
    return text if math.isfinite(value) and len(text) <= 8 else round_up(value, 7)


def could_show(most: float, counted: str, method: str) -> str:
    """Limit of so many runs in words; "" if they are no limit.

    >>> could_show(6.11, "runs", "best")
    'the most that so many runs could have shown by the method best: 6.110'
    """
    if most == math.inf:
        return ""
    return (
        f"the most that so many {counted} could have shown by the method {method}: "
        f"{round_down(most)}"
    )


def seen_by(observer: str | UnsetType) -> str:
    """For whom a figure holds, as the end of a list in words; "" if for everybody.

    >>> seen_by("any-node"), seen_by("3,5"), seen_by(UNSET)
    ('; seen by any one other node', '; seen by nodes 3,5 together', '')
    """
    if isinstance(observer, UnsetType):
        return ""
    who = observer.removeprefix("edge:")
    if observer == "any-node":
        who = "any one other node"
    elif who != observer:
        who = f"whoever hears what goes between {who}"
    elif observer != "everybody":
        who = f"nodes {observer} together" if "," in observer else f"node {observer}"
    return f"; seen by {who}"


def held_at(overlap: int | UnsetType, unit: Unit) -> str:
    """At how many nodes a record is, as an item in a list of words; "" if there is one.

    >>> held_at(1, "record"), held_at(3, "user"), held_at(UNSET, "record")
    ('; a record is at one node only', '; a user may be at 3 nodes', '')
    """
    if isinstance(overlap, UnsetType):
        return ""
    return f"; a {unit} " + (
        "is at one node only" if overlap == 1 else f"may be at {overlap} nodes"
    )


def own_by(how: Independence, unit: Unit) -> str:
    """Sentence that says by what one unit's part of a sum is its own.

    >>> print(own_by("by construction", "record"))
    a record's gradient is its own by construction
    """
    part = "update" if unit == "user" else "gradient"
    return f"a {unit}'s {part} is its own {how}"


class Judged(Generic[S, U]):
    """Verdict and account of the ``result`` of its subclass, which has both."""

    @property
    def status(self) -> S:
        """The verdict in a word; None if nothing was claimed."""
        held: Any = self
        return held.result.status

    @property
    def upper(self) -> U:
        """Upper bound on epsilon: the account of the worst node; None without one."""
        held: Any = self
        return held.result.upper()


class _Written(msgspec.Struct, frozen=True):
    """Figures that are a JSON object, and a box in a notebook."""

    @public
    def to_json(self, *, indent: int = 2) -> str:
        """This figure as a JSON object; ``from_json`` reads it back."""
        return _json.encode(self, indent=indent).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The figure that ``to_json`` wrote; ``ValueError`` for anything else."""
        return _json.decode(text, cls)

    def _repr_html_(self) -> str:
        figure: Any = self
        return box(symbols(figure), [str(self)])


class _Figure(
    _Written,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
):
    """An epsilon at a delta, and all that must be said with it."""

    epsilon: float
    delta: float
    relation: Relation
    unit: Unit = "record"
    method: str
    source: str
    observer: str | UnsetType = UNSET  # for whom it holds; unset: whoever sees all
    # At how many nodes a record may be, where it holds; unset: there is one node.
    overlap: int | UnsetType = UNSET

    def __post_init__(self) -> None:
        take_fields(self, "epsilon", "delta", "relation", "unit")
        take_fields(self, "method", "source", "observer", "overlap")
        if not self.epsilon >= 0:
            raise ValueError(
                f"epsilon must be >= 0 (infinity is allowed), got {self.epsilon}"
            )
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must be in [0, 1), got {self.delta}")

    def _about(self) -> str:
        return (
            f"at delta {self.delta:.15g} under {self.relation} (unit: "
            f"{self.unit}{held_at(self.overlap, self.unit)}{seen_by(self.observer)})"
        )


class UpperBound(_Figure, frozen=True, kw_only=True, tag="upper-bound"):
    """An upper bound on epsilon from an account: the mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon, delta
        The guarantee; ``epsilon`` may be infinity.
    relation
        The neighbour relation under which it holds.
    unit
        What neighbours differ in: one record, all that one node holds, or all records
        of one user.
    method, source
        The account that computed it, and the theorem or paper behind that account.
    standing
        How far it can be trusted: ``certified`` (proved, numerical error included),
        ``conditional`` (proved if what it ``assumes`` is true), ``asymptotic`` (true in
        a limit only), or ``claimed`` (a formula that is not checked).
    sampling
        The sampling scheme that was accounted.
    assumes
        What must be true beyond the releases, in sentences; empty if certified.
    """

    standing: Standing
    sampling: Sampling = "none"
    assumes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        take_fields(self, "standing", "sampling", "assumes")
        if self.assumes and self.standing == "certified":
            raise ValueError(
                f"what assumes something ({self.assumes[0]}) is not certified; its "
                "standing is conditional"
            )
        check_assumed(self.assumes)
        if self.standing == "conditional" and not self.assumes:
            raise ValueError("a conditional bound must say what it assumes")

    def __str__(self) -> str:
        worth = {
            "certified": "certified: epsilon is at most",
            "conditional": "conditional, no guarantee: epsilon is at most",
            "asymptotic": "asymptotic, no guarantee: epsilon is about",
            "claimed": "claimed, not checked: epsilon is at most",
        }[self.standing]
        text = f"{worth} {round_up(self.epsilon)} {self._about()} ({self.method})"
        if self.assumes:
            text += f", assuming that {'; and that '.join(self.assumes)}"
        return text

    summary = _json.Summary(
        "upper=epsilon delta relation unit sampling method standing observer? overlap? "
        "assumes?"
    )

    def __lt__(self, other: object) -> bool:
        """Return whether it is below a lower bound: one of the two is wrong."""
        if not isinstance(other, LowerBound):
            return _refuse_order(self, other)
        return other > self


def worst_bound(nodes: Iterable[UpperBound]) -> UpperBound:
    """The account of the worst node; of those for an observer, if there are any.

    An observer's own nodes have accounts of all that is released.
    """
    nodes = list(nodes)
    asked = [bound for bound in nodes if bound.observer is not UNSET]
    return max(asked or nodes, key=lambda bound: bound.epsilon)


class Claim(_Figure, frozen=True, kw_only=True, tag="claim"):
    """A claim that is under test: "this is (epsilon, delta)-differentially private".

    ``source`` says who promises it and where; ``method`` the formula used, if known.
    """

    standing: ClassVar[Standing] = "claimed"

    method: str = "as stated"

    def __str__(self) -> str:
        return (
            f"claimed: epsilon is at most {stated(self.epsilon)} {self._about()} "
            f"({self.source})"
        )

    def __lt__(self, other: object) -> bool:
        """Return whether a lower bound lies above this claim, that is, refutes it."""
        if not isinstance(other, LowerBound):
            return _refuse_order(self, other)
        return other > self


class LowerBound(_Figure, frozen=True, kw_only=True, tag="lower-bound"):
    """A lower bound on epsilon from an audit; it holds with probability ``confidence``.

    Parameters
    ----------
    epsilon, delta
        If the mechanism were (e, delta)-DP for any e below ``epsilon``, scores like
        these would come up with probability at most ``1 - confidence``.
    confidence
        In (0, 1), for this one bound. To look at several bounds, split 1 - confidence
        among them.
    threat_model
        What the attacker saw, in words.
    valid_for
        The mechanisms that the method is valid for: "any mechanism", or a family.
    member_runs, non_member_runs
        How many runs of each world it rests on.
    """

    confidence: float
    threat_model: str
    member_runs: int
    non_member_runs: int
    valid_for: str = "any mechanism"

    def __post_init__(self) -> None:
        super().__post_init__()
        take_fields(self, "confidence", "threat_model", "valid_for")
        take_fields(self, "member_runs", "non_member_runs")
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must be in (0, 1), got {self.confidence}")
        if min(self.member_runs, self.non_member_runs) < 0:
            raise ValueError(
                "numbers of runs must be >= 0, got "
                f"{self.member_runs} and {self.non_member_runs}"
            )

    summary = _json.Summary("epsilon_lower=epsilon method valid_for")

    @property
    def in_one_run(self) -> bool:
        """Return whether its "runs" are the canaries of a single run."""
        return self.method.startswith("one-run")

    @property
    def sees(self) -> str:
        """``threat_model`` for people: a function that was given by its name alone."""
        return self.threat_model.replace("what own:", "what ", 1)

    @property
    def counted(self) -> str:
        """Describe in words which scores were counted."""
        return "canaries of one run" if self.in_one_run else "runs"

    def __str__(self) -> str:
        runs = f"{self.member_runs:,} + {self.non_member_runs:,} {self.counted}"
        family = "" if self.valid_for == "any mechanism" else f", {self.valid_for} only"
        return (
            f"audited with {100 * self.confidence:g} % confidence: epsilon is at least "
            f"{round_down(self.epsilon)} {self._about()} "
            f"({self.method}{family}; {runs}; the attacker sees {self.sees})"
        )

    def __gt__(self, other: object) -> bool:
        """Return whether this lower bound contradicts a claim or an upper bound.

        Raises ``TypeError`` against anything else, ``ValueError`` if the two speak of
        different things: another relation or unit, or a delta below the claim's.
        """
        if not isinstance(other, Claim | UpperBound):
            return _refuse_order(self, other)
        _same_meaning(self, other)
        if self.delta < other.delta:
            raise ValueError(
                f"a lower bound at delta {self.delta:g} says nothing of a promise at "
                f"delta {other.delta:g}: audit at {other.delta:g} or above"
            )
        return self.epsilon > other.epsilon


class Bracket(
    _Written,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="bracket",
):
    """A proved lower and upper bound on one figure: lower <= the true figure <= upper.

    Parameters
    ----------
    quantity, at
        What is bounded: ``epsilon`` at delta ``at``, or ``delta`` at epsilon ``at``.
    lower, upper
        The two bounds. ``upper`` may be infinity; ``lower`` is 0 if nothing is known.
    reached
        Whether the requested width was reached. If not, both are still bounds.
    lower_by, upper_by
        The prover that gave each side; ``none`` for a trivial one.
    relation, unit
        The neighbour relation, and what neighbours differ in.
    standing, assumptions
        Whether ``upper`` is ``certified``, or ``conditional`` on the assumptions.
    overlap
        At how many nodes one record may be. Unset: there is one node alone.
    observer
        Against whom it holds. Unset: an observer of all releases.
    """

    quantity: Literal["epsilon", "delta"]
    at: float
    lower: float
    upper: float
    reached: bool
    lower_by: str
    upper_by: str
    relation: Relation
    unit: Unit = "record"
    standing: Standing = "certified"
    assumptions: tuple[str, ...] = ()
    overlap: int | UnsetType = UNSET
    observer: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        take_fields(self, "at", "lower", "upper", "lower_by", "upper_by")
        take_fields(self, "relation", "unit", "standing", "assumptions")
        take_fields(self, "overlap", "observer")
        most = math.inf if self.quantity == "epsilon" else 1.0
        for name, value, top in (
            ("lower side", self.lower, most),
            ("upper side", self.upper, most),
            ("point", self.at, 1.0 if self.quantity == "epsilon" else math.inf),
        ):
            if not 0 <= value <= top:
                raise ValueError(
                    f"the {name} of a bracket on {self.quantity} must be in "
                    f"[0, {top:g}], got {value}"
                )
        check_sides(self.lower, self.upper, self.lower_by, self.upper_by)
        if bool(self.assumptions) != (self.standing == "conditional"):
            raise ValueError(
                "a bracket is conditional exactly if it assumes something, got "
                f"standing {self.standing} and {len(self.assumptions)} assumptions"
            )

    @property
    def method(self) -> str:
        """The prover that gave both sides, or the two that gave one each."""
        if self.lower_by in (self.upper_by, "none"):
            return self.upper_by
        return f"{self.upper_by} from above, {self.lower_by} from below"

    def __str__(self) -> str:
        other = "delta" if self.quantity == "epsilon" else "epsilon"
        worth = "certified"
        if self.standing != "certified":
            worth = f"{self.standing}, no guarantee"
        parts = [
            f"{worth}: {self.quantity} is at most {round_up(self.upper)} "
            f"at {other} {self.at:.15g} under {self.relation} (unit: {self.unit}"
            f"{held_at(self.overlap, self.unit)}{seen_by(self.observer)}; "
            f"{self.upper_by})"
        ]
        if self.assumptions:
            parts.append(f"assuming that {'; and that '.join(self.assumptions)}")
        if self.lower > 0:
            parts.append(
                f"the true figure is at least {round_down(self.lower)} "
                f"({self.lower_by})"
            )
        return "; ".join(parts)


def symbols(figure: _Figure | Bracket) -> str:
    """A figure in symbols, rounded to its safe side, and for whom it holds.

    >>> symbols(Claim(epsilon=1, delta=1e-5, relation="replace-one", source="a paper"))
    'ε = 1 at δ = 1e-05'
    """
    whom = seen_by(figure.observer)
    if isinstance(figure, Bracket):
        name, other = "ε", "δ"
        if figure.quantity == "delta":
            name, other = other, name
        if figure.lower == math.inf:
            return f"{name} = ∞ at {other} = {figure.at:.15g}{whom}"
        below = f"{round_down(figure.lower)} ≤ " if figure.lower > 0 else ""
        above = f" ≤ {round_up(figure.upper)}" if figure.upper < math.inf else ""
        text = f"{below}{name}{above}" if below or above else f"{name}: no bound"
        return f"{text} at {other} = {figure.at:.15g}{whom}"
    if isinstance(figure, LowerBound):
        text = f"ε ≥ {round_down(figure.epsilon)}"
    elif isinstance(figure, Claim):
        text = f"ε = {stated(figure.epsilon)}"
    else:
        assert isinstance(figure, UpperBound)
        sign = "≈" if figure.standing == "asymptotic" else "≤"
        known = figure.epsilon < math.inf
        text = f"ε {sign} {round_up(figure.epsilon)}" if known else "ε: no bound"
    return f"{text} at δ = {figure.delta:.15g}{whom}"


def _refuse_order(left: object, right: object) -> Any:
    raise TypeError(
        f"a {type(left).__name__} cannot be ordered against a {type(right).__name__}: "
        "only a LowerBound against a Claim or an UpperBound decides anything; "
        "to pick the larger of a kind, compare their .epsilon"
    )


def _same_meaning(one: _Figure | Bracket, other: _Figure) -> None:
    for field in ("relation", "unit", "observer"):
        if getattr(one, field) != getattr(other, field):
            raise ValueError(
                f"these speak of different guarantees: {field} "
                f"{getattr(one, field)!r} against {getattr(other, field)!r}; "
                "compute both for the same one"
            )


_CONTRADICTED = (
    "The program does not do what its ledger says or its account assumes, the attacker "
    "saw what no ledger covers, or this is the rare unlucky audit."
)


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The verdict on a claim, with the bounds that it follows from.

    ``status`` is ``refuted`` if the audit's lower bound is above the claim,
    ``disproved`` if the lower bound that an account proves is, ``consistent`` if a
    certified upper bound meets the claim and no scores contradict that bound, and
    ``unproven`` otherwise.

    Parameters
    ----------
    claim
        The claim under test.
    upper, lower
        The account's upper bound, and the audit's lower bound; None if there is none.
    proved
        A bracket at the claim's delta, for its proved lower side; the verdict does not
        use its upper side.
    misfit
        Another lower bound from the audit's scores that exceeds the certified upper
        bound, as by `held_against`; None if there is none. It refutes nothing, since it
        may be valid for the account's mechanism alone.
    most
        The largest bound that so many scores could have given by the same method, with
        an attack that never errs. Unset without an audit.
    most_by
        The method of ``most`` where it is another: runs do not limit a family's.
    stronger
        What would show more, in a sentence. Unset where that is not known.

    Examples
    --------
    >>> import numpy as np
    >>> import privaudit as pa
    >>> member = np.random.default_rng(0).random(1000) < 0.5
    >>> shown = pa.lower_bound(1.0 * member, member, delta=1e-5)  # scores tell all
    >>> relation = "add-or-remove-one"
    >>> claim = pa.Claim(epsilon=1, delta=1e-5, relation=relation, source="a paper")
    >>> pa.Finding(claim=claim, lower=shown).status
    'refuted'
    """

    claim: Claim
    upper: UpperBound | None = None
    lower: LowerBound | None = None
    proved: Bracket | None = None
    misfit: LowerBound | None = None
    most: float | UnsetType = UNSET
    most_by: str | UnsetType = UNSET
    stronger: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        for name, kind in (
            ("claim", Claim),
            ("upper", UpperBound | None),
            ("lower", LowerBound | None),
            ("proved", Bracket | None),
            ("misfit", LowerBound | None),
        ):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(
                    f"the {name} of a finding must be {kind}, "
                    f"got {type(getattr(self, name)).__name__}"
                )
        # All comparisons refuse figures that do not belong together.
        if self.upper is not None:
            _same_meaning(self.upper, self.claim)
        if self.lower is not None:
            _ = self.lower > self.claim
        if self.proved is not None:
            self._check_proved(self.proved)

    def _check_proved(self, proved: Bracket) -> None:
        _same_meaning(proved, self.claim)
        if (proved.quantity, proved.at) != ("epsilon", self.claim.delta):
            at = "delta" if proved.quantity == "epsilon" else "epsilon"
            raise ValueError(
                f"a lower side of {proved.quantity} at {at} {proved.at:g} decides "
                f"nothing about epsilon at delta {self.claim.delta:g}: compute it there"
            )
        upper = self.upper
        if (
            upper is not None
            and upper.standing == "certified"
            and upper.delta <= proved.at
        ):
            check_sides(proved.lower, upper.epsilon, proved.lower_by, upper.method)

    @property
    def status(self) -> Status:
        """``refuted``, ``disproved``, ``unproven`` or ``consistent``."""
        upper = self.upper
        proves = (
            upper is not None
            and upper.standing == "certified"
            and upper.delta <= self.claim.delta
            and not self.account_contradicted  # it may be no account of this run
        )
        return decided(
            self.claim.epsilon,
            upper=upper.epsilon if proves and upper is not None else None,
            proved=self.certified_lower,
            audited=None if self.lower is None else self.lower.epsilon,
        )

    @property
    def certified_lower(self) -> float | None:
        """The lower bound that an account proves; None if it was not needed."""
        return None if self.proved is None else self.proved.lower

    @property
    def account_contradicted(self) -> bool:
        """Return whether a lower bound from the scores exceeds a proved upper bound.

        Then the code does not do what its ledger says or its account assumes, or the
        attack saw something that the ledger leaves out; the account proves no claim
        about what was run. At confidence c chance alone does this, by each bound, in at
        most a share 1 - c of audits.
        """
        return any(map(self._contradicted_by, (self.lower, self.misfit)))

    def _contradicted_by(self, lower: LowerBound | None) -> bool:
        return (
            lower is not None
            and self.upper is not None
            and self.upper.standing in ("certified", "conditional")
            and lower.delta >= self.upper.delta
            and lower > self.upper
        )

    def held_against(self, beside: LowerBound | None) -> Finding:
        """Keep ``beside``, of the same scores, as `misfit` if the account excludes it.

        Returns this finding itself otherwise.
        """
        if not self._contradicted_by(beside):
            return self
        return msgspec.structs.replace(self, misfit=beside)

    @property
    def limits(self) -> str:
        """Most that the audit could have shown, and what would show more, or ""."""
        if self.lower is None or self.most is UNSET:
            return ""
        method = self.lower.method if self.most_by is UNSET else self.most_by
        said = [could_show(self.most, self.lower.counted, method)]
        said += [] if self.stronger is UNSET else [self.stronger]
        return "; ".join(filter(None, said))

    def _repr_html_(self) -> str:
        known = (self.claim, self.upper, self.lower)
        return box(
            self.status.capitalize(),
            [self.reason, *(str(one) for one in known if one is not None)],
        )

    @property
    def reason(self) -> str:
        """Explain why the status is what it is, in sentences."""
        attack = (
            "no attack was tried"
            if self.lower is None
            else "no attack tried here refutes it"
        )
        proved = "0"
        if self.proved is not None:
            proved = f"{round_down(self.proved.lower)} ({self.proved.lower_by})"
        upper, misfit = self.upper, self.misfit
        reached = upper is not None and upper.epsilon <= self.claim.epsilon
        text = {
            "refuted": "an attack on the running algorithm shows more than was "
            "claimed.",
            "disproved": "the account proves more than was claimed, no attack needed: "
            f"epsilon is at least {proved}.",
            "unproven": "a certified account meets the claim, but the audit "
            "contradicts that account."
            if reached and self.account_contradicted
            else f"no certified account reaches the claim, and {attack}.",
            "consistent": f"a certified account meets the claim, and {attack}.",
        }[self.status]
        if self._contradicted_by(self.lower):
            assert upper is not None
            text += f" The audit exceeds the {upper.standing} bound. {_CONTRADICTED}"
        elif misfit is not None and upper is not None and self.account_contradicted:
            text += (
                " The scores do not fit the account: if the program released what its "
                f"ledger says, the bound for {misfit.valid_for} would be at most "
                f"{round_up(upper.epsilon)} in at least {100 * misfit.confidence:g} % "
                f"of audits, and it is {round_down(misfit.epsilon)}. {_CONTRADICTED}"
            )
        return text

    def __str__(self) -> str:
        return f"{self.status.upper()}: {self.reason}"
