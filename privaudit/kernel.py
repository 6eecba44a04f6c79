"""Checks a certificate of differential privacy by ball and whole-number arithmetic.

`python kernel.py certificate.json` prints a line for each side and PROVED (status 0),
NOT PROVED (1) or NOT COVERED: why (3). It needs python-flint alone. No float decides
anything, and no hint of the certificate is believed. P and Q are the laws of what is
told with a record and without it; a loss is log dP/dQ; delta at epsilon = log a is
H(a) = E_Q[(dP/dQ - a)+]; Q against P is the pair "turned". Each function names the
lemmas that it stands on, of these eight, which are proved in docs/kernel.md:

1. Pairs. If no neighbours' H is above a pair's, in each of several releases, then of
   all none is above that of the pairs' product (Zhu, Dong, Wang 2022, Theorem 10).
2. Sampling. At rate q a Poisson sample has (1-q) Q + q P for P; unsampled is above it.
   Turned, H is 1 - a + a H(1 / a). Fixed sizes, replaced: the larger (Balle 2018).
3. Above. Chords of H, from (0, 1) and flat beyond the last knot, are the H of masses on
   knots. More P-mass, larger and infinite losses have more (Doroshenko et al. 2022).
4. Below. Over any labels of outputs the sum of (P - a Q)+ is at most delta; less so for
   P less and Q more (Neyman, Pearson 1933).
5. Order. Less noise over what a record moves, and a higher rate, have the larger H.
6. Ledgers. Nodes hold disjoint records; a record enters one release of a pass (McSherry
   2009); delta pays for failures. k records of a group move k times as far, Binomial(k,
   q) of them in a Poisson batch (Ganesh 2024). Releases chosen as one goes may use up
   copies of a pair above each, or squares of Gaussian moves (Smith, Thakurta 2022).
7. Observers. Told rows R of sums with noise N, and the points where they are taken, one
   learns at most what a node's sums with noise s say, if R (N N' - diag s^2) R' has no
   negative square (views.md; Cyffers et al. 2022).
8. FLINT. arb encloses; fmpq and fmpz are exact; // of an fmpz_poly by a whole number
   rounds coefficients >= 0 down.
"""

import itertools
import json
import math
import re
import sys
import time
from bisect import bisect_left, bisect_right
from fractions import Fraction
from functools import partial
from typing import Any

from flint import arb, ctx, fmpq, fmpq_mat, fmpz_poly

SECONDS, LETTERS, POINTS, BITS = 1800, 1 << 24, 1 << 20, 1 << 27  # at most
ONES = fmpz_poly([1] * POINTS)
SUMS = ("gaussian", "laplace")
TOO_LONG = "there are too many points, or it takes too long"


def need(fact, why):
    if not fact:
        raise ValueError(why)


def number(given, low=0, high=10**300, whole=False) -> Any:
    """Read the exact number that a decimal or a ratio of two says (lemma 8)."""
    form = r"-?[0-9]{1,400}(\.[0-9]{1,400})?(e[+-]?[0-9]{1,3})?"
    need(re.fullmatch(f"{form}(/{form})?", str(given)), f"{given!s:.40} is no number")
    top, _, bottom = str(given).partition("/")
    value = fmpq(*(Fraction(top) / Fraction(bottom or 1)).as_integer_ratio())
    fits = low <= value <= high and (value.q == 1 or not whole)
    need(fits, f"{given!s:.40} is out of range")
    return int(value.p) if whole else value


count = partial(number, whole=True)


def divided(given):
    """Balls of chances that are in proportion to numbers (lemma 8)."""
    total = sum(p := [*map(number, given)])
    need(len(p) <= 4096 and total > 0, "a law has no mass, or too many outputs")
    return [arb(x / total) for x in p]


def tail(x):
    """P(N > x), N standard normal."""
    return (x / arb(2).sqrt()).erfc() / 2


# A pair (lemma 1) is a function of a loss and its exp, a, as last arguments. It gives P
# and Q of an event with all outputs of larger losses and no lesser: H(a) = p - a q.


def gaussian(m, loss, a):
    """N(m, 1) against N(0, 1): the loss at x is m x - m^2 / 2."""
    return tail(loss / m - m / 2), tail(loss / m + m / 2)


def laplace(m, loss, a):
    """Laplace noise about m against 0, scale 1: the loss at x in [0, m] is 2x - m."""
    if loss >= m or loss <= -m:
        return (arb(0), arb(0)) if loss >= m else (arb(1), arb(1))
    need(-m < loss < m, "a grid point is too near to the largest loss")
    return 1 - ((loss - m) / 2).exp() / 2, (-(loss + m) / 2).exp() / 2


def normal(law, loss, a):
    """N(s, 1) at chances p under P and q under Q, where P's density is r times Q's at x
    and r grows: P(X > x) - r Q(X > x) is H(r), and H(a) is at most r - a above H(r)."""
    for _ in range(99):  # any x is sound: Newton's method from the last one
        x, *rows = law
        at = [((s * x - s * s / 2).exp(), s, p, q) for s, p, q in rows]
        one, other = (sum(row[0] * row[i] for row in at) for i in (2, 3))
        r: Any = one / other
        rise = sum(e * s * (p / one - q / other) for e, s, p, q in at)
        step = ((r.log() - loss) / rise).mid()
        if abs(step) < arb(2) ** (-0.75 * ctx.prec):
            break
        law[0] = (x - step.max(-1).min(1)).mid()
    over, more = [(tail(x - s), p, q) for s, p, q in rows], r - a
    p, q = (sum(row[0] * row[i] for row in over) for i in (1, 2))
    return p + arb(0).union(more.max(0) - more * q), q


def atoms(law, loss, a):
    """Outputs of masses (p, q): of some a ball does not say whether p > a q."""
    gaps = [(p - a * q, p, q) for p, q in law]
    p, q = (sum((x[i] for x in gaps if x[0] > 0), arb(0)) for i in (1, 2))
    return p + sum(gap.max(0) for gap, *_ in gaps if not gap > 0), q


def discrete(scale, power, s):
    """exp(-abs(x / scale)^power / power) on whole numbers x, moved by s; power <= 2."""
    w = [arb(1)]
    while len(w) < s + 2 or not w[-s - 1] < arb(2) ** (-2 * ctx.prec):
        need(len(w) < POINTS >> 4, "it moves too far, or is too wide")
        w.append((-arb((len(w) / scale) ** power / power)).exp())
    f = len(w) - s - 1
    rest = arb(0).union(2 * w[f] / (1 - w[f] / w[f - 1]))  # a geometric series, twice
    total = 2 * sum(w) - 1 + rest
    law = [(w[abs(x - s)] / total, w[abs(x)] / total) for x in range(-f, f + s + 1)]
    return partial(atoms, [*law, (rest / total, arb(0))])


def guarantee(e, d):
    """Any (e, d)-DP mechanism (Kairouz, Oh, Viswanath 2015)."""
    law = [((1 - d) / (1 + (-x).exp()), (1 - d) / (1 + x.exp())) for x in (e, -e)]
    need(law[0][1] > 0, "a guarantee has no bound")
    return partial(atoms, [(d, arb(0)), *law, (arb(0), d)])


def sampled(of, rate, loss, a):
    """``of``, Poisson sampled (lemma 2)."""
    t = (a - 1 + rate) / rate
    if t <= 0:
        return arb(1), arb(1)
    need(t > 0, "a grid point is too near to the least loss")
    p, less = of(t.log(), t)
    return (1 - rate) * less + rate * p, less


def either(of, loss, a):
    """The larger H of both orders of ``of``, of which each may be chosen (1, 2)."""
    (p, q), (v, u) = of(loss, a), of(-loss, 1 / a)
    one, other = p - a * q, 1 - u - a * (1 - v)
    q = q if one > other else 1 - v
    return one.max(other) + a * q, q


class Grid:
    """Laws: P's masses in units of 2^-bits at losses (low + i) h, from above; or P's
    from below and, on the same labels, Q's from above; P's at infinity; steps. Any grid
    is sound: h, bits, how wide cells become; an end may lose ``small`` a step."""

    def __init__(self, hints, delta, steps, until=math.inf):
        self.bits, self.until = count(hints["bits"], 32, 20000), until
        self.small = delta / (steps << count(hints["window"], 1, 99))
        self.unit, ctx.prec = 1 << self.bits, self.bits + 64
        self.h = arb(number(hints["spacing"], fmpq(1, 1 << 40), 1 << 10))
        self.wide, self.grow = (
            count(hints[x], 1, POINTS) for x in ("widest", "growth")
        )

    def units(self, x, up):
        """A whole number of units, >= 0, that is at least x, or at most x or 0 (8)."""
        x = (x * self.unit).upper().ceil() if up else (x * self.unit).lower().floor()
        need(x.is_finite(), "there are numbers out of range at this precision")
        return max(int(x.unique_fmpz()), 0)

    def tables(self, pair):
        """Knots (j, exp(j h), p, q), till hardly any loss is beyond; and turned (2)."""
        rows, small = [], arb(self.small)
        for way in (1, -1):
            j, more = min(way, 0), True
            while more:
                need(abs(j) < POINTS and time.monotonic() < self.until, TOO_LONG)
                a = (j * self.h).exp()
                p, q = pair(j * self.h, a)
                rows.append((j, a, p, q))
                more = (a * q if way > 0 else (1 - p) / a) > small
                j += way * min(1 + abs(j) // self.grow, self.wide)
        rows.sort(key=lambda row: row[0])
        return rows, [(-j, 1 / a, 1 - q, 1 - p) for j, a, p, q in rows[::-1]]

    def above(self, rows):
        """The law of chords, rounded up (lemma 3)."""
        curve = [(arb(0), arb(1)), *((a, p - a * q) for _, a, p, q in rows)]
        slopes = [(v - u) / (b - a) for (a, u), (b, v) in itertools.pairwise(curve)]
        low, masses = rows[0][0], [0] * (rows[-1][0] - rows[0][0] + 1)
        for (j, a, *_), one, two in zip(rows, slopes, [*slopes[1:], 0], strict=True):
            masses[j - low] = self.units(a * (two - one), up=True)
        return low, [fmpz_poly(masses)], self.units(curve[-1][1], up=True), 1

    def below(self, rows):
        """The laws of labels under P, rounded down, and Q, rounded up (lemma 4)."""
        low, high, beyond, last = rows[0][0], rows[-1][0], 0, (arb(1), arb(1))
        masses = [[0] * (high - low + 1) for _ in "PQ"]
        for *_, u, v in [*rows, (arb(0), arb(0))]:
            if u < last[0] or v < last[1]:  # or its event is in the last one
                p, q, last = last[0] - u, last[1] - v, (u, v)
                if q == 0:
                    beyond += self.units(p, up=False)
                elif p > 0:  # any label is sound
                    loss = ((p / q).mid().log() / self.h).mid() if q > 0 else high
                    label = min(max(round(float(loss)), low), high) - low
                    masses[0][label] += self.units(p, up=False)
                    masses[1][label] += self.units(q, up=True)
        return low, list(map(fmpz_poly, masses)), beyond, 1

    def product(self, one, other):
        """The product, rounded, and without ends of little mass (lemmas 3, 4 and 8)."""
        (low, masses, p, n), (high, others, q, k) = one, other
        both = list(zip(masses, others, strict=True))
        size = sum(map(len, both[-1])) * max(1, self.bits >> 7)
        need(size < POINTS and time.monotonic() < self.until, TOO_LONG)
        *_, up = found = [x * y for x, y in both]
        found = [x // self.unit for x in found]
        found[-1] += ONES.truncate(len(up))  # P's from above, or Q's
        small = (self.small * (n + k) * self.unit).floor()
        sums = [*itertools.accumulate(found[0].coeffs(), initial=0)]
        first = bisect_right(sums, small) - 1
        last = bisect_left(sums, sums[-1] - small)
        found = [x.truncate(last).right_shift(first) for x in found]
        t, u = (int(x(1)) for x in both[0])
        beyond = (t + p) * (u + q) - t * u
        if len(found) == 1:  # up, and what was cut off is infinite
            beyond += int(sums[-1] - found[0](1) + 1) * self.unit
        return low + high + first, found, beyond // self.unit, n + k

    def delta(self, law, epsilon):
        """A bound on delta at epsilon, from above or from below (lemmas 3, 4)."""
        low, masses, beyond, _ = law
        found, a, above = arb(beyond), arb(epsilon).exp(), len(masses) == 1
        for i, (p, *q) in enumerate(zip(*(x.coeffs() for x in masses), strict=False)):
            part = p - a * (q[0] if q else p * (-(low + i) * self.h).exp())
            found += (part.upper() if above else part.lower()).max(0)
        found /= self.unit
        return found.upper() if above else found.lower()


def over(one, other):
    """Return whether lemma 5 puts a line above another."""
    if one["noise"] not in SUMS:
        return one == other
    same = all(one[x] == other[x] for x in ("noise", "sampling"))
    more = (number(one[x]) >= number(other[x]) for x in ("rate", "moves", "norm"))
    return same and all(more)


def pays(unit, lines):
    """Return whether copies of a line pay for releases chosen as one goes (5, 6)."""
    squares = (unit["noise"], unit["sampling"]) == ("gaussian", "none")
    fits = all(x["noise"] == "gaussian" if squares else over(unit, x) for x in lines)
    power, all_ = 2 if squares else 0, (unit, *lines)
    moved = (number(x.get("moves", 1)) ** power for x in all_)
    paid, *costs = (count(x["count"], 1) * m for x, m in zip(all_, moved, strict=True))
    return fits and sum(costs) <= paid


def ways(nodes):
    """Ways of a record at all of ``nodes`` (6): lists of (line above, whether data
    attain it, count). Of budgets and passes it is said what is above."""
    steps, passes, wrong = [(None, False, 1)], [], "what is said to be above is not"
    for group in itertools.chain(*(node["groups"] for node in nodes)):
        lines, above = group["lines"], group.get("above")
        if group.get("pass"):
            need(lines and all(any(over(y, x) for y in above) for x in lines), wrong)
            passes.append([(x, False, 1) for x in above])
        elif above:
            need(pays(above, lines), wrong)
            steps.append((above, False, count(above["count"], 1)))
        else:
            steps += [(x, True, count(x["count"], 1)) for x in lines]
    need(math.prod(map(len, passes)) < 256, "there are too many ways through passes")
    return [[*steps, *way] for way in itertools.product(*passes)]


def observed(node):
    """Check that an observer is told no more of a node than its lines say (lemma 7)."""
    exact = partial(number, low=-(10**9))
    lines = [line for group in node["groups"] for line in group["lines"]]
    left = [count(line["count"]) for line in lines]
    for view in node["views"]:
        names = ("told", "points", "noise")
        told, points, noise = ([[*map(exact, row)] for row in view[x]] for x in names)
        need(0 < len(told) <= 256 >= len(noise), "a view is too large")
        for held, point in zip(zip(*told, strict=True), points, strict=True):
            need(not any(held) or not any(point) or point in told, "a point is hidden")
        spread = fmpq_mat(len(noise), len(noise))
        for p, k in enumerate(view["lines"]):
            if k is not None:  # a sum of the node's own, and the line that says it
                line = lines[count(k)]
                left[count(k)] -= count(view["count"])
                need(line["noise"] == "gaussian", "noise of an observed sum")
                spread[p, p] = (exact(view["moves"][p]) / exact(line["moves"])) ** 2
        rows, each = fmpq_mat(told), fmpq_mat(noise)
        gap = rows * (each * each.transpose() - spread) * rows.transpose()
        signs = [(-1) ** k * x for k, x in enumerate(gap.charpoly().coeffs()[::-1])]
        need(all(x >= 0 for x in signs), "an observer is told more than the lines say")
    need(all(n >= 0 for n in left), "an observer is told of more sums than lines say")


class Certificate:
    """Claims of a document on records in ``overlap`` nodes, or on groups of them."""

    def __init__(self, c):
        need(c["format"] == "privaudit-certificate", "this is no certificate")
        self.replaced = ("add-or-remove-one", "replace-one").index(c["relation"]) == 1
        self.overlap, self.group = count(c["overlap"], 1, 64), count(c["group"], 1, 64)
        self.c, self.delta = c, number(c["delta"], 0, 1)
        self.left = self.delta - self.overlap * self.group * number(c["failure"])
        need(self.left >= 0, "the chance of failure is above delta")
        views = [observed(node) for node in c["nodes"] if "views" in node]
        known = self.left == self.delta and c["unit"] != "node" and not views
        need(known or c["lower"] is None, "no data are known to attain this")

    def alone(self, line):
        """The pair of a release of all records, of which a group changes (1, 6)."""
        noise, get, group = line["noise"], line.get, self.group
        if noise in SUMS:
            m = arb(group * number(get("moves")))
            return partial(gaussian if noise == "gaussian" else laplace, m)
        if noise == "guarantee":
            e, d = arb(number(get("epsilon"), 0, 700)), arb(number(get("delta")))
            return guarantee(group * e, sum((i * e).exp() * d for i in range(group)))
        if noise in ("discrete-laplace", "discrete-gaussian"):
            power = 1 + (noise == "discrete-gaussian")
            return discrete(number(get("scale")), power, group * count(get("moves")))
        need(group == 1, f"groups and noise {noise!s:.40}")
        if noise == "mixture" and not self.replaced:
            law = zip(map(number, get("shifts")), divided(get("p")), strict=True)
            law = ((arb(s), p, 0) for s, p in law)
            return partial(normal, [arb(0), (0, 0, 1), *law])
        need(noise == "pair", f"noise {noise!s:.40} of this relation")
        law = zip(divided(get("p")), divided(get("q")), strict=True)
        return partial(atoms, [x for x in law if any(x)])

    def pairs(self, line):
        """The pair above a line's releases and one that data attain (1, 2, 6); none
        where nothing is told, or nothing is known to be."""
        rate = line and number(line["rate"], 0, 1)
        if not rate or not number(line.get("moves", 1)):
            return None, None
        noise, how, k = line["noise"], line["sampling"], self.group
        fixed = how == "fixed" and self.replaced and noise in SUMS
        known = rate == 1 if how == "none" else how == "poisson" or fixed
        need(known, f"sampling {how!s:.40} here")
        q, pair, attained = arb(rate), self.alone(line), noise != "guarantee"
        if rate == 1 or (k > 1 and (noise != "gaussian" or self.replaced)):
            attained &= rate == 1  # or not known: as if unsampled
        elif k > 1:
            law = (math.comb(k, i) * q**i * (1 - q) ** (k - i) for i in range(k + 1))
            m = arb(number(line["moves"]))
            law = ((m * i, c, 0) for i, c in enumerate(law))
            pair = partial(normal, [arb(0), (0, 0, 1), *law])
        elif fixed or not self.replaced:
            pair = partial(sampled, pair, q)
        elif noise in SUMS:
            moves, norm = (number(line[x]) for x in ("moves", "norm"))
            c, m = arb(max(moves / 2, norm)), arb(moves)
            if noise == "laplace":  # from the largest of all losses to minus it
                ends = (1 - q + q * c.exp()) / (1 - q + q * (c - m).exp())
                return guarantee(ends.log(), arb(0)), None
            both = ([(0, 1 - q, 1 - q), (s, q, 0), (-s, 0, q)] for s in (c, m / 2))
            return [partial(normal, [arb(0), *law]) for law in both]
        else:
            attained = False
        return partial(either, pair) if self.replaced else pair, attained and pair

    def laws(self, grid, steps):
        """The product of ``steps`` (1): above in both orders, below in one."""
        if len(steps) > 1:
            n = len(steps) // 2
            both = self.laws(grid, steps[:n]), self.laws(grid, steps[n:])
            return list(map(grid.product, *both))
        ((line, known, n),) = steps
        (pair, attained), one = self.pairs(line), fmpz_poly([grid.unit])
        laws = [(0, [one] * size, 0, 1) for size in (1, 1, 2)]  # where nothing is told
        if both := pair and grid.tables(pair):
            orders = both[:1] if self.replaced else both
            laws[: len(orders)] = map(grid.above, orders)
        if attained and known and self.c["lower"] is not None:
            both = both if attained is pair else grid.tables(attained)
            laws[2] = grid.below(both[self.c["hints"]["order"] == "add"])
        found = laws
        for bit in f"{n:b}"[1:]:
            found = list(map(grid.product, found, found))
            if bit == "1":
                found = list(map(grid.product, found, laws))
        return found

    def check(self, tell=print):
        """Tell a line for each side; return whether all claims are proved (6)."""
        c, nodes, above, below, proved = self.c, self.c["nodes"], [], [], []
        upper, lower = (number(c[x] or 0, 0, 10**6) for x in ("upper", "lower"))
        until = time.monotonic() + SECONDS
        for some in itertools.combinations(nodes, min(self.overlap, len(nodes))):
            for steps in ways(some):
                grid = Grid(c["hints"], self.left, sum(n for *_, n in steps), until)
                *laws, least = self.laws(grid, steps)
                above += [grid.delta(law, upper) for law in laws]
                below.append(grid.delta(least, lower))
        for side, sign, deltas, good in (
            ("upper", "<=", above, all(x <= arb(self.left) for x in above)),
            ("lower", ">=", below, any(x > arb(self.delta) for x in below)),
        ):
            if c[side] is not None:
                proved.append(good)
                says = f"{side}: epsilon {sign} {c[side]} at delta {c['delta']} is "
                says += f"{'' if good else 'not '}proved; delta there: "
                tell(says + f"{float(max(deltas, key=float)):.5g}")
        for what in c["assumes"]:
            tell(f"assuming that {what!a:.200}")
        need(proved, "nothing is claimed")
        return all(proved)


def main(path):
    """Check a file; return the status."""

    def once(items):
        need(len(dict(items)) == len(items), "a name is there twice")
        return dict(items)

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LETTERS + 1)
        need(len(text) <= LETTERS, "it is too long")
        exact = {"parse_float": str, "parse_int": str, "object_pairs_hook": once}
        good = Certificate(json.loads(text, **exact)).check()
    except Exception as why:  # of a stranger's file: anything
        print(f"NOT COVERED: {why!s:.200}".replace("\n", " "))
        return 3
    print("PROVED" if good else "NOT PROVED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
