"""Checks a certificate of differential privacy by ball and whole-number arithmetic.

`python kernel.py certificate.json` prints a line for each side and PROVED (status 0),
NOT PROVED (1) or NOT COVERED: why (3). No float decides anything, no hint is believed.
P and Q are the laws of what is told with a record and without it, a loss is log dP/dQ,
delta at epsilon = log a is H(a) = E_Q[(dP/dQ - a)+]. Lemmas, proved in docs/kernel.md:

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
   2009); delta pays for failures. k records of a node move k times as far, Binomial(k,
   q) of them in a Poisson batch (Ganesh 2024). Releases chosen as one goes may use up
   copies of a pair above each, or squares of Gaussian moves (Smith, Thakurta 2022).
7. Observers. Told rows R of sums with noise N, and where they are taken, one learns at
   most what sums with noise s say, if R (N N' - diag s^2) R' has no negative square.
8. FLINT. arb encloses; fmpq and fmpz are exact; fmpz_poly // rounds what is >= 0 down.
"""

import re
import sys
import time
from bisect import bisect_left, bisect_right
from fractions import Fraction
from functools import partial
from itertools import accumulate, chain, combinations, pairwise
from json import loads
from typing import Any

from flint import arb, ctx, fmpq, fmpq_mat, fmpz_poly

SECONDS, LETTERS, POINTS = 1800, 1 << 24, 1 << 20  # at most
SUMS, POWERS = ("gaussian", "laplace"), {"discrete-gaussian": 2, "discrete-laplace": 1}
FORMS = """groups|bits,(far,)?lost,(orders,)?spacing,widen|count,moves,noise,points,told
|(above,(below,)?)?lines(,pass)?(,view)?|count,(noise(,p,q)?|moves,noise,norm|delta,epsilon
,noise),rate,sampling|count,(moves,noise,rate,sampling,scale|noise,p,rate,sampling,shifts)
|assumes,delta,failure,format,group,hints,lower,nodes(,observer)?,overlap,relation,unit
,upper"""  # an object's names


def need(fact, why="there are too many points or nodes, or it takes too long"):
    if not fact:
        raise ValueError(why)


def number(given, low=0, high=10**300, whole=False) -> Any:
    """Read the exact number that a decimal or a ratio of two says (lemma 8)."""
    form = r"-?[0-9]{1,400}(\.[0-9]{1,400})?(e[+-]?[0-9]{1,3})?"
    need(re.fullmatch(f"{form}(/{form})?", str(given)), f"{given!s:.40} is no number")
    top, _, bottom = str(given).partition("/")
    value = fmpq(*(Fraction(top) / Fraction(bottom or 1)).as_integer_ratio())
    need(low <= value <= high and value.q**whole == 1, f"{given!s:.40} is out of range")
    return int(value.p) if whole else value


count = partial(number, whole=True)


def tail(x):
    """P(N > x), N standard normal."""
    return (x / arb(2).sqrt()).erfc() / 2


# A pair (lemma 1) is a function of a loss and its exp, a, as last arguments: balls p, q
# of one event, which shrinks as a grows, where p - a q encloses H(a) or is above it.
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
    for _ in range(99):  # any x is sound, its own r being used: Newton's method
        x, *rows = law
        at = [((s * x - s * s / 2).exp(), s, p, q) for s, p, q in rows]
        one, other = (sum(row[0] * row[i] for row in at) for i in (2, 3))
        rise = sum(e * s * (p / one - q / other) for e, s, p, q in at)
        r: Any = one / other
        step = ((r.log() - loss) / rise).mid()
        law[0] = (x - step.max(-1).min(1)).mid()
        if abs(law[0] - x) < arb(2) ** (56 - ctx.prec):
            break
    over, more = [(tail(x - s), p, q) for s, p, q in rows], r - a
    p, q = (sum(row[0] * row[i] for row in over) for i in (1, 2))
    return p + arb(0).union(more.max(0) - more * q), q


def atoms(law, loss, a):
    """Outputs of masses (p, q); one of which a ball does not say p > a q may be in."""
    gaps = [(p - a * q, p, q) for p, q in law]
    p, q = (sum((x[i] for x in gaps if x[0] > 0), arb(0)) for i in (1, 2))
    return p + sum(gap.max(0) for gap, *_ in gaps if not gap > 0), q


def discrete(scale, power, s):
    """exp(-abs(x / scale)^power / power) on whole numbers x, moved by s; power <= 2."""
    w = [arb(1)]
    while len(w) < s + 2 or not w[-s - 1] < arb(2) ** (-2 * ctx.prec):
        need(len(w) < POINTS >> 4, "it moves too far, or is too wide")
        w.append((-arb((len(w) / scale) ** power / power)).exp())
    f = len(w) - s - 1  # beyond it at most rest, of both laws; in no event
    rest = arb(0).union(2 * w[f] / (1 - w[f] / w[f - 1]))  # a geometric series, twice
    total = 2 * sum(w) - 1 + rest
    law = [(w[abs(x - s)] / total, w[abs(x)] / total) for x in range(-f, f + s + 1)]
    return partial(atoms, [*law, (rest / total, arb(0))])


def guarantee(e, d):
    """Pair that dominates all (e, d)-DP mechanisms (Kairouz, Oh, Viswanath 2015)."""
    p, q = ((1 - d) / (1 + arb(x).exp()) for x in (-e, e))
    return partial(atoms, [(d, arb(0)), (p, q), (q, p), (arb(0), d)])


def sampled(of, rate, loss, a):
    """``of``, Poisson sampled (2); not covered where t may be 0, its log no number."""
    t = (a - 1 + rate) / rate
    p, less = (arb(1), arb(1)) if t <= 0 else of(t.log(), t)
    return less + rate * (p - less), less


def either(of, loss, a):
    """The larger H of both orders of ``of``, of which each may be chosen (1, 2)."""
    (p, q), (v, u) = of(loss, a), of(-loss, 1 / a)
    one, other = p - a * q, 1 - u - a * (1 - v)
    if one > other or (p, q) == (1 - u, 1 - v):
        return p, q
    return one.max(other) + a * (1 - v), 1 - v


def over(one, other):
    """Return whether lemma 5 puts a line above another, whatever their counts."""
    apart = ("count", "rate", "moves", "norm")[: 4 if one["noise"] in SUMS else 1]
    same = one == {**other, **{x: one[x] for x in apart}}
    return same and all(number(one[x]) >= number(other[x]) for x in apart[1:])


def pays(unit, lines, one):
    """Return whether copies of a line pay for all of some, or for any one (5, 6)."""
    squares = not one and (unit["noise"], unit["sampling"]) == ("gaussian", "none")
    fits = all(x["noise"] == "gaussian" if squares else over(unit, x) for x in lines)
    each = [(count(x["count"], 1), x) for x in (unit, *lines)]
    paid, *costs = (n * (number(x["moves"]) ** 2 if squares else 1) for n, x in each)
    return fits and (one or sum(costs) <= paid)


def observed(view, lines):
    """Check that an observer is told no more than lines say, one a sum (lemma 7)."""
    exact, names = partial(number, low=-(10**9)), ("told", "points", "noise")
    told, points, noise = ([[*map(exact, row)] for row in view[x]] for x in names)
    need(0 < len(told) <= 256 >= len(noise), "a view is too large")
    columns, spread = zip(*told, strict=True), fmpq_mat(len(noise), len(noise))
    sums = zip(columns, points, lines, view["moves"], strict=True)
    for p, (held, point, line, moves) in enumerate(sums):
        need(not any(held) or not any(point) or point in told, "a point is hidden")
        own = line and (line["noise"], line["count"]) == ("gaussian", view["count"])
        other = line is None and not (any(held) and number(moves))
        need(own or other, "a sum is not what its line says")
        spread[p, p] = (number(moves) / number(line["moves"])) ** 2 if own else 0
    rows, each = fmpq_mat(told), fmpq_mat(noise)
    gap = rows * (each * each.transpose() - spread) * rows.transpose()
    signs = [(-1) ** k * x for k, x in enumerate(gap.charpoly().coeffs()[::-1])]
    need(all(x >= 0 for x in signs), "an observer is told more than the lines say")


class Certificate:
    """Claims of a document, and a grid, of which any is sound, for laws of losses."""

    def __init__(self, text):
        def once(items):
            names = ",".join(sorted(name.replace(",", "?") for name, _ in items))
            need(re.fullmatch(FORMS, names, re.X), f"unknown or twice: {names:.80}")
            return dict(items)

        need(len(text) <= LETTERS)
        self.c = c = loads(text, parse_float=str, parse_int=str, object_pairs_hook=once)
        need(c["format"] == "privaudit-certificate-3", "this is no such certificate")
        self.replaced = ("add-or-remove-one", "replace-one").index(c["relation"]) == 1
        self.overlap = count(c["overlap"], 1, len(c["nodes"]))
        self.group = count(c["group"], 1, 64)
        failure = self.overlap * self.group * number(c["failure"])
        self.left = number(c["delta"], 0, 1) - failure
        known = failure == 0 and c["unit"] != "node"
        need(known or c["lower"] is None, "no data are known to attain this")
        self.bits = count(c["hints"]["bits"], 32, 20000)
        self.unit, ctx.prec = 1 << self.bits, self.bits + 64
        self.h = arb(number(c["hints"]["spacing"], fmpq(1, 1 << 40), 1 << 10))
        hints = {"far": POINTS, "orders": 2, **c["hints"]}
        names = "widen", "lost", "far", "orders"
        self.widen, self.lost, self.far, self.orders = (count(hints[x]) for x in names)
        self.until = time.monotonic() + SECONDS

    def units(self, x, up):
        """A whole number of units, >= 0, that is at least x, or at most x or 0 (8)."""
        x = (x * self.unit).upper().ceil() if up else (x * self.unit).lower().floor()
        need(x.is_finite(), "there are numbers out of range at this precision")
        return max(int(x.unique_fmpz()), 0)

    def knots(self, pair):
        """Rows (j, exp(j h), p, q), till far or so little is beyond; and turned (2)."""
        rows = {}
        for way in (1, -1):
            j, rest = min(way, 0), arb(1)
            while rest * self.unit > self.lost and abs(j) < self.far:
                need(abs(j) < POINTS and time.monotonic() < self.until)
                a = (j * self.h).exp()
                p, q = pair(j * self.h, a)
                rows[j], rest = (j, a, p, q), a * q if way > 0 else (1 - p) / a
                j += way * (1 + abs(j) // self.widen)
        rows = [rows[j] for j in sorted(rows)]
        return rows, [(-j, 1 / a, 1 - q, 1 - p) for j, a, p, q in rows[::-1]]

    def above(self, rows):
        """P's masses at losses (low + i) h and infinity, of chords, up (lemma 3)."""
        curve = [(arb(0), arb(1)), *((a, p - a * q) for _, a, p, q in rows)]
        slopes = [(v - u) / (b - a) for (a, u), (b, v) in pairwise(curve)]
        low, masses = rows[0][0], [0] * (rows[-1][0] - rows[0][0] + 1)
        for (j, a, *_), one, two in zip(rows, slopes, [*slopes[1:], 0], strict=True):
            masses[j - low] = self.units(a * (two - one), up=True)
        return low, [fmpz_poly(masses)], self.units(curve[-1][1], up=True)

    def below(self, rows):
        """P's masses of labels and where Q has none, down, and Q's, up (lemma 4)."""
        low, high, beyond, last = rows[0][0], rows[-1][0], 0, (1, 1)
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
        return low, [*map(fmpz_poly, masses)], beyond

    def product(self, one, other):
        """The product, rounded; ends of little mass are infinite, or none (3, 4, 8)."""
        (low, masses, p), (high, others, q) = one, other
        size = len(masses[-1]) + len(others[-1])
        need(size * max(1, self.bits >> 7) < POINTS and time.monotonic() < self.until)
        found = [x * y // self.unit for x, y in zip(masses, others, strict=True)]
        found[-1] += fmpz_poly([1] * (size - 1))  # P's from above, or Q's
        sums = [*accumulate(found[0].coeffs(), initial=0)]
        first = bisect_right(sums, self.lost) - 1
        last = bisect_left(sums, sums[-1] - self.lost)
        found = [x.truncate(last).right_shift(first) for x in found]
        t, u = int(masses[0](1)), int(others[0](1))
        beyond, cut = (t + p) * (u + q) - t * u, int(sums[-1] - found[0](1))
        beyond = cut - -beyond // self.unit if len(found) == 1 else beyond // self.unit
        need(max(beyond, int(found[-1](1))) <= 9 * self.unit)  # or rounding is all
        return low + high + first, found, beyond

    def powers(self, steps, sides):
        """Each side's products of pairs, in both orders, by bits of how often (1)."""
        if half := len(steps) // 2:
            one, two = (self.powers(x, sides) for x in (steps[:half], steps[half:]))
            both = {b: [*map(self.product, one[b], two[b])] for b in {*one} & {*two}}
            return one | two | both
        ((pairs, n),) = steps
        known = {x: self.knots(x or guarantee(0, 0)) for x in {pairs[k] for k in sides}}
        rows = [(k, x) for k in sides for x in known[pairs[k]][: (2, self.orders)[k]]]
        laws = [self.below(x) if k else self.above(x) for k, x in rows]
        return {bit: laws for bit in range(n.bit_length()) if n >> bit & 1}

    def power(self, steps, sides):
        """Each side's products of pairs, each so many times, in both orders."""
        parts, found = self.powers(steps, sides), []
        for bit in range(max(parts), -1, -1):  # squares of what higher bits have
            for other in (found, parts.get(bit, [])):
                found = [*map(self.product, found, other)] or found or other
        return found

    def delta_of(self, law, epsilon):
        """A bound on delta at epsilon, from above or from below (lemmas 3, 4)."""
        low, masses, beyond = law
        found, a, above = arb(beyond), arb(epsilon).exp(), len(masses) == 1
        for i, (p, *q) in enumerate(zip(*(x.coeffs() for x in masses), strict=False)):
            part = p - a * (q[0] if q else p * (-(low + i) * self.h).exp())
            found += (part.upper() if above else part.lower()).max(0)
        return (found / self.unit).upper() if above else (found / self.unit).lower()

    def pairs(self, line):
        """Pairs above a release, and attained, each None if there is none (1, 2, 6)."""
        noise, how, k = line["noise"], line["sampling"], self.group
        rate, fixed = number(line["rate"], 0, 1), how == "fixed" and self.replaced
        covered = rate == 1 if how == "none" else how == "poisson" or fixed
        need(covered and (noise in SUMS or not fixed), f"sampling {how!s:.40} here")
        moves = number(line["moves"]) if noise in (*SUMS, *POWERS) else fmpq(1)
        norm = number(line["norm"]) if noise in SUMS else moves
        need(moves <= 2 * norm, "a record moves further than it is long")
        if not rate or not moves:
            return None, None
        q, m, c, attained = arb(rate), arb(moves), arb(norm), noise != "guarantee"
        given = ([*map(number, line[x])] for x in ("p", "q") if x in line)
        laws = [[arb(x / t) for x in row] for row in given for t in [sum(row)]]
        if noise in SUMS:  # first the pair of a release of all records
            pair = partial(gaussian if noise == "gaussian" else laplace, k * m)
        elif noise in POWERS:
            pair = discrete(number(line["scale"]), POWERS[noise], k * count(moves))
        elif noise == "guarantee":
            e, d = arb(number(line["epsilon"], 0, 700)), arb(number(line["delta"]))
            pair = guarantee(k * e, (d * sum((i * e).exp() for i in range(k))).min(1))
        elif noise == "pair" and k == 1:
            one, other = laws
            pair = partial(atoms, [*zip(one, other, strict=True)])
        else:
            need([noise, k, self.replaced] == ["mixture", 1, 0], f"{noise!s:.40} here")
            law = zip(map(number, line["shifts"]), *laws, strict=True)
            rows = ((arb(s), p, 0) for s, p in law)
            pair = partial(normal, [arb(0), (0, 0, 1), *rows])
        if rate < 1 and k == 1 and (fixed or not self.replaced):
            pair = partial(sampled, pair, q)
        elif rate < 1 and noise == "gaussian" and not self.replaced:
            law = (arb(k).bin(i) * q**i * (1 - q) ** (k - i) for i in range(k + 1))
            rows = ((i * m, p, 0) for i, p in enumerate(law))
            pair = partial(normal, [arb(0), (0, 0, 1), *rows])
        elif rate < 1 and k == 1 and noise in SUMS:
            if noise == "laplace":  # from the largest of all losses to minus it
                ends = (1 - q + q * c.exp()) / (1 - q + q * (c - m).exp())
                return guarantee(ends.log(), arb(0)), None
            both = ([(0, 1 - q, 1 - q), (s, q, 0), (-s, 0, q)] for s in (c, m / 2))
            both = [partial(normal, [arb(0), *law]) for law in both]
            return both[:1] * 2 if moves == 2 * norm else both
        elif rate < 1:  # as if unsampled
            attained = False
        return partial(either, pair) if self.replaced else pair, attained and pair

    def steps(self, nodes):
        """Pairs of all that a record enters at ``nodes``, and how often (6)."""
        for group in chain(*(node["groups"] for node in nodes)):
            need(time.monotonic() < self.until)
            lines = group["lines"]
            if "view" in group:
                alone = self.overlap * self.group == 1 and self.c["lower"] is None
                need(alone, "overlap, groups, or a lower side, of what is observed")
                observed(group["view"], lines)
                lines = [x for x in lines if x is not None]
            steps = [(self.pairs(x), count(x["count"], 1)) for x in lines]
            if {"above", "pass"} & {*group}:
                above, one = group["above"], count(group.get("pass", 0))
                need(self.group == 1 and pays(above, lines, one), "it is not above")
                below, n = group.get("below"), count(above["count"], 1)
                more = sum(count(x["count"]) for x in lines if below and over(x, below))
                need(not below or n <= more * (not one), "it is not below")
                steps = [((self.pairs(above)[0], below and self.pairs(below)[1]), n)]
            yield from steps

    def check(self, tell=print):
        """Tell a line for each side; return whether all claims are proved."""
        c, d, told = self.c, arb(self.left), {}
        sides = [(k, x) for k, x in enumerate(("upper", "lower")) if c[x] is not None]
        need(sides, "nothing is claimed")
        claims = [number(c[side], 0, 10**6) for _, side in sides]
        found = [[arb(0)] for _ in sides]
        for nodes in combinations(c["nodes"], self.overlap):
            steps = [x for x in self.steps(nodes) if x[0][0]]
            laws = self.power(steps, [k for k, _ in sides]) if steps else ()
            for i, law in enumerate(laws):
                found[i // 2].append(self.delta_of(law, claims[i // 2]))
        for (k, side), deltas in zip(sides, found, strict=True):
            good = any(x > d for x in deltas) if k else all(x <= d for x in deltas)
            says = f"{side}: epsilon {'<>'[k]}= {c[side]} at delta {c['delta']} is "
            says += f"{'' if good else 'not '}proved; delta there: "
            told[says + f"{float(max(deltas, key=float)):.5g}"] = good
        for line in [*told, *(f"assuming that {x!a:.200}" for x in c["assumes"])]:
            tell(line)
        return all(told.values())


def main(path):
    """Check a file; return the status."""
    try:
        with open(path, encoding="utf-8") as file:
            good = Certificate(file.read(LETTERS + 1)).check()
    except Exception as why:  # of a stranger's file: anything
        print("NOT COVERED:", ascii(str(why))[1:-1][:200])
        return 3
    print("PROVED" if good else "NOT PROVED")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
