"""The certificate of a ledger: brackets for every node and both directions.

The one place that turns a ledger into figures. It takes the best of several provers
(`privaudit.accounting.provers`) and settles what is around the releases:

- *Nodes* hold disjoint records, so that a record is touched by its own node's releases
  only and the worst node speaks for all. With ``overlap=k`` a record may be at k of
  them; then the releases of the worst k nodes are composed.
- *Passes over disjoint records*: the worst way through them from above, what every
  record enters from below (`privaudit.accounting.parallel`).
- *Chance of failure*: if a mechanism is (epsilon, d)-DP but for an event of probability
  f, it is (epsilon, d + f)-DP. So f is paid once from delta, for the composition and
  not for each prover's step; a record at k nodes pays it k times, since ledgers joined
  of several parts keep the largest of theirs. What may fail is attained by no known
  data: there is no lower side.
- *Units*: of all that one node holds, no data are known to attain the sensitivities,
  and there is no lower side.
- *Observers*: what is seen by some nodes bounds what they learn of all others. Of
  their own records nothing is hidden from them: these nodes' figures are infinite, and
  the worst node is the worst of the others.
- *Assumptions*: they make the upper side conditional.
- *Releases without noise*: nothing bounds epsilon; from below it is infinite where
  delta is less than the probability that some release holds the record. A ledger
  without releases is worth 0.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fractions
import functools
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import ArrayLike, NDArray

from privaudit.accounting.allocation import dealt_passes, is_allocated
from privaudit.accounting.groups import of_group
from privaudit.accounting.overlaps import together
from privaudit.accounting.parallel import outside_passes, views, worst_way
from privaudit.accounting.pld.cells import Direction
from privaudit.accounting.pld.composition import Side
from privaudit.accounting.provers import (
    NOTHING,
    Proof,
    Proved,
    Quantity,
    Question,
    Steps,
    likely_epsilon,
    prove,
)
from privaudit.accounting.witness import coarse, witness
from privaudit.files import json as _json
from privaudit.files.arguments import public
from privaudit.files.folder import CERTIFICATE, RunFolder
from privaudit.files.notebook import box
from privaudit.ledger import Entry, Ledger
from privaudit.results import (
    Bracket,
    Independence,
    Relation,
    check_relation,
    held_at,
    own_by,
    seen_by,
    symbols,
)

Floats = NDArray[np.float64]
Entries = tuple[Entry, ...]

_NO_NOISE = "no noise"
_OWN = "the observer's own node"
_SHOWN = (1e-5, 1e-8)  # deltas, in a notebook
_WIDTHS, _MANY_KINDS = (1e-3, 1e-2), 64  # what is asked for of few kinds, and of many
_MEETS_WIDTHS = (0.1, 0.02, 0.004, 0.001)


@dataclasses.dataclass(frozen=True)
class _Releases:
    """All releases that one record may be in: of one node, or of several."""

    entries: Entries
    relation: Relation
    own: bool = False  # of a node that looks

    @property
    def is_private(self) -> bool:
        return not self.own and all(one.release.is_private for one in self.entries)

    @functools.cached_property
    def ways(self) -> tuple[Steps, ...]:
        """Steps that a record can enter, way by way; the worst bounds all."""
        return tuple(
            _steps(view, self.relation) for view in views(self.entries, self.relation)
        )

    @functools.cached_property
    def shared(self) -> Steps | None:
        """Steps that every record enters, if not all: for lower sides."""
        outside = outside_passes(self.entries)
        allocated = any(map(is_allocated, outside))
        if len(outside) == len(self.entries) and not allocated:
            return None
        dealt = dealt_passes(self.entries)
        steps = Steps.of(outside, self.relation, dealt)
        if not (steps.epochs or steps.attained) and allocated:
            outside = tuple(entry for entry in outside if not is_allocated(entry))
            steps = Steps.of(outside, self.relation)
        return None if len(outside) == len(self.entries) else steps

    @property
    def directions(self) -> tuple[Direction, ...]:
        if not self.is_private:
            return ("remove",)
        return max((way.directions for way in self.ways), key=len)

    def prove(
        self, question: Question, sides: Side, ways: tuple[Direction, ...] | None
    ) -> dict[Direction, Proved]:
        """Both sides of each direction."""
        if self.own:
            most = Proof(question.trivial.value, _OWN)
            return {"remove": Proved(most, most)}
        if not self.entries:
            return {"remove": Proved(NOTHING, Proof(0.0, "closed form"))}
        if not self.is_private:
            return {"remove": self._without_noise(question)}
        found: dict[Direction, Proved] = {}
        if sides != "lower":
            found = dict(_above(self.entries, self.relation, question, ways))
            # What proves the upper side sometimes proves the lower one as well.
            most = max(proved.upper.value for proved in found.values())
            if question.reached(max(p.lower.value for p in found.values()), most):
                return found
            if self.shared is None and self.ways[0].composition.is_bounded_at_once:
                return found
        if sides != "upper":
            steps, known = self.ways[0], {way: p.upper for way, p in found.items()}
            if self.shared is not None:
                steps, known = self.shared, {}
            for way, proved in prove(steps, question, "lower", ways, known).items():
                upper = found[way].upper if way in found else question.trivial
                found[way] = Proved(proved.lower, upper)
        return found

    def _without_noise(self, question: Question) -> Proved:
        seen = [
            entry.count * math.log1p(-rate) if rate < 1 else -math.inf
            for entry in outside_passes(self.entries)
            if not entry.release.is_private
            and entry.release.sensitivity_under(self.relation) > 0
            and (rate := entry.release.sampling.rate) > 0
        ]
        chance = -math.expm1(math.fsum(seen)) * (1 - 1e-14)
        if question.quantity == "delta":
            return Proved(Proof(max(chance, 0.0), _NO_NOISE), Proof(1.0, _NO_NOISE))
        low = math.inf if question.at < chance else 0.0
        return Proved(Proof(low, _NO_NOISE), Proof(question.trivial.value, _NO_NOISE))


@functools.lru_cache(maxsize=4)  # both sides ask for the same ones
def _steps(view: Entries, relation: Relation) -> Steps:
    return Steps.of(view, relation)


@functools.lru_cache(maxsize=128)  # an account, its page and its check ask alike
def _above(
    entries: Entries,
    relation: Relation,
    question: Question,
    ways: tuple[Direction, ...] | None,
) -> dict[Direction, Proved]:
    """Upper sides over all ways through the passes; asked for often."""
    releases = _Releases(entries, relation)
    if ways is not None and len(ways) < len(releases.directions):
        # The worse direction is as narrow in the answer for both.
        both = _above(entries, relation, question, None)
        most = max(proved.upper.value for proved in both.values())
        if all(both[way].upper.value == most for way in ways):
            return {way: both[way] for way in ways}

    def proved(view: Entries) -> dict[Direction, Proved]:
        found = prove(_steps(view, relation), question, "upper", ways)
        if releases.shared is None:
            return found
        return {way: Proved(NOTHING, each.upper) for way, each in found.items()}

    return worst_way(entries, relation, proved, _worse_each)


@functools.lru_cache(maxsize=16)  # a page draws it twice
def _curve(certificate: Certificate) -> tuple[Floats, Floats]:
    """Epsilons of a trade-off curve, and the delta at each."""
    epsilons, _, deltas = certificate.profile(40, 1e-6, 0.02, "upper", most=50.0)
    return epsilons, deltas


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Proved bounds on the epsilon and delta of a ledger; made by `Certificate.of`.

    ``ledger``, ``relation``, ``overlap``, ``group``: as given to `of`, or as chosen;
    for a group, the ledger of a group's releases. ``attained``: whether some data are
    known to attain the ledger's sensitivities for the group. ``own``: whether this is
    an observer's own node, from which nothing of its own is hidden. ``holder``: a node
    that holds the record, which may be at others too; None: any node. ``single``: of a
    group, the ledger as given to `of`, of single records. ``independence``: how it is
    known that a record's gradient is its own, if the run said so.
    """

    ledger: Ledger
    relation: Relation
    overlap: int = 1
    group: int = 1
    attained: bool = True
    own: bool = False
    holder: int | None = None
    single: Ledger | None = None
    independence: Independence | None = dataclasses.field(default=None, compare=False)

    @classmethod
    @public
    def of(
        cls,
        ledger: Ledger,
        relation: Relation | None = None,
        *,
        overlap: int = 1,
        group: int = 1,
    ) -> Certificate:
        """Make the certificate of a ledger; figures are computed when asked for.

        Parameters
        ----------
        ledger
            What was released.
        relation
            The neighbour relation. None: add-or-remove-one if every release has a
            meaning under it, else replace-one.
        overlap
            At how many nodes one record may be. 1: nodes hold disjoint records, unless
            the ledger says more.
        group
            Number of records of one node that are protected together, such as those of
            one user (`privaudit.accounting.groups`).

        Raises
        ------
        ValueError
            If an argument is out of its range, or ``overlap`` makes more than 256
            combinations of different nodes, or the ledger's unit is a node.
            When a figure is asked for: if a release has no meaning under the relation,
            or passes over disjoint records have more than 256 ways through them.

        >>> from privaudit.accounting.plans import Plan
        >>> ledger = Plan.constant(1.0, 0.01, 10_000).ledger()
        >>> bracket = Certificate.of(ledger).epsilon(1e-5)
        >>> print(bracket.method, 6.184 <= bracket.lower <= bracket.upper <= 6.191)
        privacy loss distributions True
        """
        if relation is None:
            relation = relation_of(ledger)
        check_relation(relation)
        if overlap < 1:
            raise ValueError(
                f"overlap (at how many nodes a record may be) must be a whole number "
                f">= 1, got {overlap}"
            )
        held = max(min(int(overlap), len(ledger.nodes)), ledger.most_nodes)
        overlap = max(int(overlap), held)
        if overlap > 1 and ledger.unit == "node":
            raise ValueError(
                f"overlap={overlap} speaks of what several nodes hold, and the "
                f"unit of this ledger is a {ledger.unit}; leave it at 1"
            )
        if overlap > 1 and ledger.observer is not UNSET:
            raise ValueError(
                "what an observer learns is accounted for records at one node: leave "
                "overlap at 1"
            )
        if group == 1:
            return cls(ledger, relation, held)
        if overlap > 1:
            raise ValueError(
                "groups of records at several nodes are not accounted: leave overlap "
                "or group at 1"
            )
        grouped, attained = of_group(ledger, group, relation)
        return cls(grouped, relation, 1, int(group), attained, single=ledger)

    @property
    def standing(self) -> Literal["certified", "conditional"]:
        """Standing of its upper bounds: certified, or conditional on assumptions."""
        return "conditional" if self.ledger.assumptions else "certified"

    @property
    def has_passes(self) -> bool:
        """Return whether a record enters only some of the releases."""
        return any(
            len(outside_passes(one.entries)) < len(one.entries) for one in self._cases
        )

    @property
    def has_many_kinds(self) -> bool:
        """Return whether so many kinds of releases differ that figures take longer."""
        return any(len(one) > _MANY_KINDS for one in self.ledger.nodes)

    @property
    def nodes(self) -> tuple[Certificate, ...]:
        """A certificate of each node's own releases alone; equal nodes share one."""
        known: dict[tuple[Entries, bool], Certificate] = {}
        looking, found = self.ledger.observing, []
        for index, entries in enumerate(self.ledger.nodes):
            own = entries, index in looking
            if own not in known:
                known[own] = self.node(index)
            found.append(known[own])
        return tuple(found)

    @property
    def told_overlap(self) -> int | UnsetType:
        """At how many nodes a record may be; unset where there is no other node."""
        alone = len(self.ledger.nodes) == 1 and self.ledger.overlap is UNSET
        return UNSET if alone or self.ledger.unit == "node" else self.overlap

    def held_by(self, index: int) -> Certificate:
        """The certificate of records that one node holds, and perhaps others."""
        if self.overlap == 1:
            return self.node(index)
        self.ledger.check_node(index)
        first = self.ledger.nodes.index(self.ledger.nodes[index])  # nodes alike are one
        return dataclasses.replace(self, holder=first)

    def node(self, index: int) -> Certificate:
        """The certificate of one node's own releases alone."""
        self.ledger.check_node(index)
        if len(self.ledger.nodes) == 1 and self.overlap == 1:
            return self
        part = Ledger(
            nodes=(self.ledger.nodes[index],),
            unit=self.ledger.unit,
            failure=self.ledger.failure,
            assumes=self.ledger.assumes,
            observer=self.ledger.observer,
        )
        own = range(len(self.ledger.nodes))[index] in self.ledger.observing
        known = dataclasses.replace(self, ledger=part, overlap=1, own=own)
        return dataclasses.replace(known, holder=None, single=None)

    def _repr_html_(self) -> str:
        """Epsilon at some deltas, from above; see `epsilon` for both sides."""
        rows = []
        for delta in _SHOWN:
            try:
                found = self.epsilon(delta, 0.01, "upper")
            except ValueError as error:
                return box("A certificate without a figure", [str(error)])
            rows.append((symbols(found), found.upper_by))
        return box(self.standing.capitalize(), self._about(), rows)

    def __str__(self) -> str:
        """Standing, size and assumptions; no figure, which needs a delta."""
        first, *assumed = self._about()
        return "\n".join(
            [f"{self.standing}, {first}; figures: epsilon(delta)", *assumed]
        )

    def _about(self) -> list[str]:
        counts = [sum(e.count for e in entries) for entries in self.ledger.nodes]
        nodes = "1 node" if len(counts) == 1 else f"{len(counts):,} nodes"
        releases = f"{max(counts):,} release{'' if max(counts) == 1 else 's'}"
        about = (
            f"{nodes}, {releases}{'' if len(counts) == 1 else ' at most each'}; under "
            f"{self.relation}, unit: {self.ledger.unit}"
            f"{seen_by(self.ledger.observer)}"
            f"{held_at(self.told_overlap, self.ledger.unit)}"
        )
        how = self.independence
        own = [] if how is None else [own_by(how, self.ledger.unit)]
        assumed = (f"assuming that {what}" for what in self.ledger.assumptions)
        return [about, *own, *assumed]

    @public
    def epsilon(
        self,
        delta: float,
        width: float | None = None,
        sides: Side = "both",
        *,
        tolerance: float = 1e-4,
        refined: bool = True,
    ) -> Bracket:
        """Bound the least epsilon for which the ledger is (epsilon, delta)-DP.

        The figure is that of the worst node, or of the worst ``overlap`` nodes
        together.

        Parameters
        ----------
        delta
            The delta, in [0, 1].
        width
            Relative width of the bracket at which the computation stops, in (0, 1].
            None: .1 %, or 1 % where more than 64 kinds of releases differ.
        sides
            ``both``; or ``upper`` or ``lower``, to compute that side only, and leave
            the other side perhaps trivial.
        tolerance
            Absolute width of the bracket at which it stops as well, >= 0: of a small
            epsilon a small part is dear, and worth little.
        refined
            Whether grids become finer until that is reached. If not, the upper side is
            what the first one gives, in about a third of the time.
        """
        if not 0 <= tolerance < math.inf:
            raise ValueError(f"tolerance must be >= 0 and finite, got {tolerance}")
        delta = _checked_delta(delta)
        return self._bracket(
            "epsilon", delta, width, sides, tolerance=tolerance, refined=refined
        )

    @public
    def delta(
        self, epsilon: float, width: float | None = None, sides: Side = "both"
    ) -> Bracket:
        """Bound the least delta at ``epsilon``, in [0, infinity]; see `epsilon`."""
        if not epsilon >= 0:
            raise ValueError(
                f"epsilon must be >= 0 (infinity is allowed), got {epsilon}"
            )
        return self._bracket("delta", float(epsilon), width, sides)

    @public
    def directions(
        self,
        delta: float,
        width: float | None = None,
        sides: Side = "both",
        *,
        tolerance: float = 1e-4,
    ) -> dict[Direction, Bracket]:
        """Bound epsilon separately for each direction: a record removed, or added.

        The guarantee is the larger one, and which one it is may change with delta. A
        symmetric relation (replace-one) has one entry, ``remove``. Arguments as
        `epsilon`.
        """
        delta, ways = _checked_delta(delta), self.orders
        return {
            way: self._bracket(
                *("epsilon", delta, width, sides, (way,) if len(ways) > 1 else None),
                tolerance=tolerance,
            )
            for way in ways
        }

    @property
    def orders(self) -> tuple[Direction, ...]:
        """The directions that differ: both, or ``remove`` alone."""
        return max((one.directions for one in self._cases), key=len)

    @public
    def profile(
        self,
        points: int = 49,
        least: float = 1e-10,
        width: float = 0.05,
        sides: Side = "both",
        *,
        most: float = 1e4,
    ) -> tuple[Floats, Floats, Floats]:
        """Compute the privacy profile: epsilons, and both bounds on delta at each.

        There are ``points`` epsilons, from 0 to about where delta falls to ``least``
        above the ledger's chance of failure, but not beyond ``most``. ``width`` and
        ``sides`` are as in `delta`.
        """
        if points < 1 or not 0 < least <= 1 or not most > 0:
            raise ValueError(
                f"points must be >= 1, least in (0, 1] and most > 0, got {points}, "
                f"{least} and {most}"
            )
        start = min(float(self._paid) + least, 1.0)
        top = min(self.epsilon(start, 0.1, "upper").upper, most)
        epsilons = np.linspace(0.0, top or 1.0, points)
        found = [self.delta(e, width, sides) for e in epsilons.tolist()]
        lower, upper = ([one.lower for one in found], [one.upper for one in found])
        return epsilons, np.array(lower), np.array(upper)

    def trade_off(self, false_positive_rates: ArrayLike) -> Floats:
        """Bound any attack's false negative rate from below, at false positive rates.

        It is proved for every point (eps, delta) of the profile that the rate at a is
        at least 1 - delta - exp(eps) a and exp(-eps) (1 - delta - a) (Dong, Roth and Su
        2022, eq. 5); the largest over forty points is returned.
        """
        try:
            rates = np.asarray(false_positive_rates, float)
        except (TypeError, ValueError):
            raise ValueError(
                f"false positive rates must be numbers, got {false_positive_rates!r}"
            ) from None
        if not ((rates >= 0) & (rates <= 1)).all():
            raise ValueError("false positive rates must be in [0, 1]")
        epsilons, deltas = _curve(self)
        a = rates[..., None]
        first = 1 - deltas - np.exp(epsilons) * a
        second = np.exp(-epsilons) * (1 - deltas - a)
        best = np.maximum(first, second).max(axis=-1)
        return np.clip(best - 1e-12, 0.0, 1.0)

    @public
    def meets(self, epsilon: float, delta: float) -> bool:
        """Return whether the ledger is proved to be (epsilon, delta)-DP.

        False if it is not, or if a bracket .1 % wide cannot tell. Faster than
        `epsilon`.
        """
        if not epsilon >= 0:
            raise ValueError(f"epsilon must be >= 0, got {epsilon}")
        for width in _MEETS_WIDTHS:
            upper = self.epsilon(delta, width, "upper").upper
            if upper <= epsilon:
                return True
            far = upper > (1 + 4 * width) * epsilon
            if far and self.epsilon(delta, width, "lower").lower > epsilon:
                return False
        return False

    def witness(self, delta: float) -> dict[str, object]:
        """Document of what is claimed at a delta, which `privaudit.kernel` checks.

        Claims are a thousandth wider than the figures of `epsilon`; of batches of a
        fixed size, as wide as the kernel can prove.
        """
        delta = _checked_delta(delta)
        if self.holder is not None or self.own:
            raise ValueError(
                "a certificate of one node of several that hold a record, or of an "
                "observer's own, is not written: write that of the whole ledger"
            )
        if not all(one.is_private for one in self._cases):
            raise ValueError("no certificate is written of releases without noise")
        ledger = self.single or self.ledger
        rough: dict[Side, Ledger] = {
            side: coarse(ledger, self.relation, side) for side in ("lower", "upper")
        }
        found = {
            side: dataclasses.replace(self, ledger=part, single=None)
            if self.group == 1
            else Certificate.of(part, self.relation, group=self.group)
            for side, part in rough.items()
        }
        if rough["lower"] == rough["upper"]:
            known = found["upper"].epsilon(delta)
            lower, upper = known.lower, known.upper
        else:
            lower = found["lower"].epsilon(delta, sides="lower").lower
            upper = found["upper"].epsilon(delta, sides="upper").upper
        return witness(
            ledger,
            self.relation,
            delta,
            (lower, upper),
            overlap=self.overlap,
            group=self.group,
        )

    def write(self, path: str | Path, *, delta: float) -> Path:
        """Write `witness` into a file, which ``python kernel.py FILE`` checks."""
        target = Path(path)
        target.write_bytes(_json.encode(self.witness(delta)) + b"\n")
        return target

    def upper_by(
        self, prover: Callable[[Entries, float, Relation], float], delta: float
    ) -> float:
        """Upper bound on epsilon by one account alone, to compare accounts.

        ``prover`` takes releases in sequence, delta in (0, 1) and the relation.
        """
        left, worst = self._left(_checked_delta(delta)), 0.0

        def cost(view: Entries) -> float:
            return prover(view, left, self.relation)

        for one in self._cases:
            if not one.entries and not one.own:
                continue
            if not one.is_private or not left > 0:
                return math.inf
            worst = max(worst, worst_way(one.entries, self.relation, cost, max))
        return worst

    @public
    def guess(self, delta: float, *, scouted: bool = False) -> float:
        """Estimate epsilon quickly. This is no bound; searches start from it.

        ``scouted``: as the account does before it composes, within some per cent,
        in 10 to 100 ms; else by a closed form, within a factor or so.
        """
        left = self._left(_checked_delta(delta))
        if not left > 0 or not all(one.is_private for one in self._cases):
            return math.inf
        steps = itertools.chain.from_iterable(one.ways for one in self._cases)
        return max((likely_epsilon(some, left, scouted) for some in steps), default=0.0)

    @functools.cached_property
    def _cases(self) -> tuple[_Releases, ...]:
        """The releases that a record may be in: each different node, or combination."""
        nodes, looking = self.ledger.nodes, self.ledger.observing
        if self.own:
            return (_Releases(nodes[0], self.relation, own=True),)
        if self.overlap == 1 and self.holder is None:
            hidden = (one for index, one in enumerate(nodes) if index not in looking)
            cases = tuple(dict.fromkeys(hidden))
        else:
            cases = together(nodes, self.overlap, self.holder)
        return tuple(_Releases(entries, self.relation) for entries in cases)

    @property
    def _paid(self) -> fractions.Fraction:
        """The chance that a sensitivity fails at any of a record's nodes, exactly."""
        return self.overlap * fractions.Fraction(self.ledger.failure)

    def _left(self, delta: float) -> float:
        """Delta less the chance of failure, rounded down; below 0 if that is more."""
        exact = fractions.Fraction(delta) - self._paid
        left = float(exact)
        return left if left <= exact else math.nextafter(left, -math.inf)

    def _bracket(
        self,
        quantity: Quantity,
        at: float,
        width: float | None,
        sides: Side,
        ways: tuple[Direction, ...] | None = None,
        tolerance: float = 0.0,
        refined: bool = True,
    ) -> Bracket:
        width = _WIDTHS[self.has_many_kinds] if width is None else width
        if not 0 < width <= 1:
            raise ValueError(
                f"width must be in (0, 1], got {width}; it is relative, 0.01 is one "
                "percent"
            )
        left = self._left(at) if quantity == "epsilon" and at < 1 else at
        known_below = self.ledger.unit != "node" and not self._paid and self.attained
        if not known_below:
            sides = "upper"  # the other is not proved
        # Where delta does not even cover the chance of failure nothing is proved.
        question = Question(quantity, max(left, 0.0), width, tolerance, refined)
        lower, upper = NOTHING, Proof(0.0, "none")
        here = min(self.overlap, len(self.ledger.nodes))
        for one in self._cases:
            of_all = sides if here == self.overlap else "upper"
            known = ways is None or set(ways) <= set(one.directions)
            # Of one that is its own mirror image that one, else the worse direction.
            proved = one.prove(question, of_all, ways if known else None).values()
            worst = functools.reduce(_worse, proved)
            if left < 0 and one.entries:
                worst = Proved(NOTHING, Proof(math.inf, "none"))
            # Of equal upper sides the last.
            lower, upper = lower.greatest(worst.lower), worst.upper.greatest(upper)
        if (
            quantity == "delta"
            and self._paid
            and any(one.entries for one in self._cases)
        ):
            more = math.nextafter(upper.value + float(self._paid), math.inf)
            upper = Proof(min(1.0, more), upper.by)
        if not known_below:
            lower = NOTHING
        elif here < self.overlap:  # nodes that are not here may release nothing
            lower = NOTHING
            if sides != "upper":
                fewer = dataclasses.replace(self, overlap=here)
                below = fewer._bracket(quantity, at, width, "lower", ways, tolerance)
                lower = Proof(below.lower, below.lower_by)
        elif self.overlap > 1 and not lower.value and upper.value and sides != "upper":
            # A record may be at one node only.
            held = self.nodes if self.holder is None else [self.node(self.holder)]
            for one in {node: None for node in held}:
                alone = one._bracket(quantity, at, width, "lower", ways, tolerance)
                lower = lower.greatest(Proof(alone.lower, alone.lower_by))
        return Bracket(
            quantity=quantity,
            at=at,
            lower=lower.value,
            upper=upper.value,
            reached=question.reached(lower.value, upper.value),
            lower_by=lower.by,
            upper_by=upper.by,
            relation=self.relation,
            unit=self.ledger.unit,
            standing=self.standing,
            assumptions=self.ledger.assumptions,
            overlap=self.told_overlap,
            observer=self.ledger.observer,
        )


def keep_witness(
    folder: RunFolder, ledger: Ledger, relation: Relation, delta: float
) -> None:
    """Write the certificate of a run's ledger into its folder, for `privaudit.kernel`.

    None without noise, or where only another account has a meaning for releases.
    """
    with contextlib.suppress(ValueError):
        witness = Certificate.of(ledger, relation).witness(delta)
        folder.write(CERTIFICATE, _json.encode(witness))


def relation_of(ledger: Ledger) -> Relation:
    """Add-or-remove-one if every release has a meaning under it, else replace-one."""
    for entry in itertools.chain.from_iterable(ledger.nodes):
        if entry.release.sensitivity.add_or_remove_one is None:
            return "replace-one"
    return "add-or-remove-one"


def _checked_delta(delta: float) -> float:
    if not 0 <= delta <= 1:
        raise ValueError(f"delta must be in [0, 1], got {delta}")
    return float(delta)


def _worse(known: Proved, more: Proved) -> Proved:
    """The larger of either side: what holds for both."""
    return Proved(known.lower.greatest(more.lower), more.upper.greatest(known.upper))


def _worse_each(
    known: dict[Direction, Proved], more: dict[Direction, Proved]
) -> dict[Direction, Proved]:
    return known | {way: _worse(known.get(way, one), one) for way, one in more.items()}
