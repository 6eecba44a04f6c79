"""Checks a certificate of differential privacy by ball and whole-number arithmetic.

    python kernel.py certificate.json

prints a line for each side and PROVED (status 0), NOT PROVED (1) or NOT COVERED: why
(3). It needs the standard library and python-flint, and nothing else of this project.
No float decides anything, and no hint of the certificate is believed.

For laws P, Q of outputs and a = exp(epsilon), delta is H(a) = E_Q[(dP/dQ - a)+]. P is
the law with the record, Q without, "remove"; "add" is the other order. Losses are
log dP/dQ. Believed, with proofs in docs/kernel.md:

 1. Pairs. If no neighbours' H is above a pair's, in each of several releases, then of
    all together none is above that of the pairs' product (Zhu, Dong, Wang 2022, Thm
    10). Each mechanism's pair is the one that its function here names.
 2. Sampling, order. Poisson sampling at rate q makes q H(1 + (a - 1) / q) of H(a), and
    1 - a below 1 - q; no sampling is above that. The other order is 1 - a + a H(1 / a).
    A record replaced in a sample of fixed size: the former for a >= 1, below its mirror
    image (Balle, Barthe, Gaboardi 2018).
 3. Dots. Chords of H between knots, from (0, 1) on and flat beyond the last one, are
    above H, and are the H of masses on the knots (Doroshenko et al. 2022).
 4. Upwards. To add P-mass, to raise losses, to call them infinite raises delta.
 5. Downwards. Of outputs mapped to labels, the sum of (P - exp(epsilon) Q)+ over any
    labels is at most delta; less so for P less and Q more.
 6. Order. Less noise over what a record moves, and a higher rate, have the larger H.
 7. Ledgers. Nodes hold disjoint records. A record enters one release of a pass at most
    (McSherry 2009). A chance of failure is paid from delta. k records of a group move a
    sum k times as far, Binomial(k, q) of them in a Poisson batch (Ganesh 2024). Units
    of a budget pay, as one goes, for releases that a unit is above.
 8. FLINT: arb encloses, fmpz is exact, and // of an fmpz_poly by a whole number rounds
    coefficients >= 0 down.
"""

import itertools
import json
import math
import re
import sys
from fractions import Fraction
from operator import ge

from flint import arb, ctx, fmpz, fmpz_poly

MOST = 1 << 21  # points of a grid
SUMS = ("gaussian", "laplace")  # lines that lemma 6 orders


def need(fact, why):
    if not fact:
        raise ValueError(why)


def number(given, low=0, high=10**400):
    """Read the exact number that a decimal or a ratio says."""
    form = r"-?\d{1,400}(\.\d{1,400})?(e[+-]?\d{1,3})?"
    need(re.fullmatch(f"{form}(/{form})?", str(given)), f"{given!s:.40} is no number")
    top, *bottom = map(Fraction, str(given).split("/"))
    value = top / bottom[0] if bottom else top
    need(low <= value <= high, f"{given!s:.40} is out of range")
    return value


def whole(given, low=0, high=10**12):
    value = number(given, low, high)
    need(value.denominator == 1, f"{given!s:.40} is no whole number")
    return int(value)


def ball(x):
    """Enclose a rational number."""
    return arb(fmpz(Fraction(x).numerator)) / arb(fmpz(Fraction(x).denominator))


def tail(x):
    """P(N > x), N standard normal."""
    return (x / arb(2).sqrt()).erfc() / 2


# A pair (lemma 1) is a function of a loss and its exp, a. It gives P and Q of an event
# with all outputs of larger losses and none of lesser ones, so that H(a) = p - a q.


def gaussian(m):
    """N(m, 1) against N(0, 1)."""
    return lambda loss, a: (tail(loss / m - m / 2), tail(loss / m + m / 2))


def laplace(m):
    """Laplace noise about m against 0, scale 1: the loss at x in [0, m] is 2x - m."""

    def pair(loss, a):
        if loss >= m or loss <= -m:
            return (arb(0), arb(0)) if loss >= m else (arb(1), arb(1))
        need(-m < loss < m, "a grid point is too near to the largest loss")
        return 1 - ((loss - m) / 2).exp() / 2, (-(loss + m) / 2).exp() / 2

    return pair


def opposed(c, q):
    """(1-q) N(0) + q N(c) against (1-q) N(0) + q N(-c), a Poisson sample's record
    replaced. exp(c x) at a loss >= 0 solves a quadratic equation; minus it, at -x."""

    def pair(loss, a):
        sign = 1 if loss >= 0 else -1
        a = (sign * loss).exp()
        b, g = (1 - q) * (a - 1), q * (-c * c / 2).exp()
        x = sign * ((b + (b * b + 4 * a * g * g).sqrt()) / (2 * g)).log() / c
        rest = (1 - q) * tail(x)
        return rest + q * tail(x - c), rest + q * tail(x + c)

    return pair


def mixture(chances, shifts):
    """Some N(s, 1), s >= 0, against N(0, 1). Shifts of 0 are as records not sampled; of
    the others the ratio grows with x."""
    law = [(c, s) for c, s in zip(chances, shifts, strict=True) if c * s > 0]
    moved = sum(c for c, _ in law)
    parts = [(ball(c / moved), ball(s)) for c, s in law]

    def ratio(x):
        each = [(w * (s * x - s * s / 2).exp(), s) for w, s in parts]
        return sum((r for r, _ in each), arb(0)), sum((r * s for r, s in each), arb(0))

    def pair(loss, a):
        # Newton on the convex log of the ratio; then the root is bracketed.
        starts = [((loss - w.log()) / s + s / 2).mid() for w, s in parts]
        x: arb = min(starts, key=float)
        for _ in range(100):
            value, slope = ratio(x)
            step = (value.log() - loss) * value / slope
            x, r = (x - step).mid(), arb(2) ** (32 - ctx.prec) * (1 + x.abs_upper())
            if abs(step) < r:
                break
        inside = ratio(x - r)[0] < a and ratio(x + r)[0] > a
        need(inside, "a mixture's ratio has no root at this precision")
        x = (x - r).union(x + r)
        return sum(w * tail(x - s) for w, s in parts), tail(x)

    return parts and sampled(pair, moved / sum(chances))


def atoms(law, rest=0):
    """Outputs of masses (p, q), the largest ratios first; of both laws up to ``rest``
    was left out at either end."""
    sums, rest = [(arb(0), arb(0))], arb(0).union(rest) if rest else arb(0)
    for (p, q), (u, v) in itertools.pairwise([*law, law[-1]]):
        need(not u * q > p * v, "outputs are out of order")
        sums.append((sums[-1][0] + p, sums[-1][1] + q))

    def pair(loss, a):
        low, high = 0, len(law)
        while low < high:  # all before low have larger losses
            k = (low + high) // 2
            low, high = (k + 1, high) if law[k][0] > a * law[k][1] else (low, k)
        if low == len(law) and rest == 0:
            return arb(1), arb(1)
        unclear = rest
        for p, q in itertools.takewhile(lambda x: not x[0] <= a * x[1], law[low:]):
            unclear += arb(0).union((p - a * q).abs_upper())
        return sums[low][0] + unclear, sums[low][1] + rest

    return pair


def discrete(kind, scale, s):
    """exp(-x^2 / 2 scale^2), or exp(-|x| / scale), on whole numbers, moved by s."""
    if kind == "discrete-laplace":
        # Losses (2x - s) / scale at x = 0..s; all that lies beyond is in the ends.
        need(s < MOST >> 4, "it moves too far")
        e = (-1 / ball(scale)).exp()
        w = [e**x * (1 - e if 0 < x < s else 1) / (1 + e) for x in range(s + 1)]
        return atoms(list(zip(w, reversed(w), strict=True)))
    f, t = math.isqrt(int(4 * ctx.prec * scale**2)) + 2, 1 / (2 * scale**2)
    need(s <= 2 * f < MOST >> 4, "it moves too far, or is too wide")
    w = [(-ball(t * x * x)).exp() for x in range(f + s + 1)]
    beyond = w[f] / (1 - (-2 * ball(t * f)).exp())  # a geometric series is above it
    total = w[0] + 2 * sum(w[1 : f + 1]) + arb(0).union(2 * beyond)
    w = [one / total for one in w]
    law = [(w[abs(x - s)], w[abs(x)]) for x in range(f + s, -f - 1, -1)]
    return atoms(law, 2 * beyond / total)


def exact(p, q):
    """Any two laws on finitely many outputs, divided by their sums."""
    need(len(p) == len(q) and sum(p) * sum(q) > 0, "a pair is no two laws")
    law = [(x / sum(p), y / sum(q)) for x, y in zip(p, q, strict=True) if x or y]
    law.sort(key=lambda one: (not one[1], one[1] and one[0] / one[1]), reverse=True)
    return atoms([(ball(x), ball(y)) for x, y in law])


def guarantee(e, d):
    """Any (e, d)-DP mechanism (Kairouz, Oh, Viswanath 2015)."""
    high, low = (1 - d) / (1 + (-e).exp()), (1 - d) / (1 + e.exp())
    need(low > 0, "a guarantee has no bound")
    law = [(1 - d, 1 - d)] if e == 0 else [(high, low), (low, high)]
    return atoms(law if d == 0 else [(d, arb(0)), *law, (arb(0), d)])


def sampled(of, q):
    """``of``, Poisson sampled at rate q (lemma 2)."""

    def pair(loss, a):
        t = (a - 1 + rate) / rate
        if t <= 0:
            return arb(1), arb(1)
        need(t > 0, "a grid point is too near to the least loss")
        p, less = of(t.log(), t)
        return (1 - rate) * less + rate * p, less

    rate = ball(q)
    return pair if q < 1 else of


def either(of, fixed=False):
    """The larger H of both orders of ``of``, of which each may be chosen anew for each
    release; or, ``fixed``, the first order's for a >= 1 and else the other's."""

    def pair(loss, a):
        (p, q), (v, u) = of(loss, a), of(-loss, 1 / a)
        one, other = p - a * q, 1 - u - a * (1 - v)
        if (fixed and loss >= 0) or one >= other or (p == 1 and q == 1 and u == 0):
            return p, q
        return (1 - u, 1 - v) if fixed or other >= one else (one.max(other) + a * q, q)

    return pair


def read(line):
    """A line's sampling and rate; what a record moves and its norm, over the noise."""
    how, rate, ratios = line.get("sampling", "none"), Fraction(1), (Fraction(0),) * 2
    need(how in ("none", "poisson", "fixed"), f"sampling {how!s:.40}")
    if how == "fixed":
        rate = Fraction(whole(line["size"]), whole(line["population"], 1))
    elif how == "poisson":
        rate = number(line["rate"])
    need(rate <= 1, "a rate is above 1")
    if line.get("noise") in SUMS:
        scale = number(line["scale"])
        need(scale > 0, "a release without noise has no bound")
        ratios = number(line["moves"]) / scale, number(line.get("norm", 0)) / scale
    return how if rate < 1 else "none", rate, *ratios


def noisy_sum(line, replaced, group):
    """See `pairs`; m stands for the pair of an unsampled Gaussian."""
    how, q, moves, norm = read(line)
    normal, m = line["noise"] == "gaussian", ball(moves * group)
    need(how != "fixed" or replaced, "a sample of fixed size replaces records")
    if not moves or not q:
        return None, None
    if how == "poisson" and not replaced and normal and group > 1:
        some = range(group + 1)
        law = [math.comb(group, i) * q**i * (1 - q) ** (group - i) for i in some]
        return (mixture(law, [moves * i for i in some]),) * 2
    pair = gaussian(m) if normal else laplace(m)
    if how == "none" or group > 1:
        pair = m if normal else pair
        return pair, pair if how == "none" else None
    some = sampled(pair, q)
    if not replaced or how == "fixed":
        return either(some, fixed=True) if replaced else some, some
    c, q = ball(max(moves / 2, norm)), ball(q)
    if normal:
        return opposed(c, q), opposed(m / 2, q)
    ends = (1 - q + q * c.exp()) / (1 - q + q * (c - m).exp())  # of all losses
    return guarantee(ends.log(), arb(0)), None


def pairs(line, replaced, group):
    """The pair above a line's releases and one that data attain (lemmas 1, 2, 7); None
    where nothing is told, or nothing is known to be."""
    kind, get, attained = line.get("noise"), line.get, True
    if kind in SUMS:
        return noisy_sum(line, replaced, group)
    how, q, *_ = read(line)
    discretes = ("discrete-gaussian", "discrete-laplace")
    need(how != "fixed", f"noise {kind!s:.40} in samples of fixed size")
    need(group == 1 or kind in ("guarantee", *discretes), f"groups and {kind!s:.40}")
    if kind == "guarantee":
        e, d = ball(number(get("epsilon"), 0, 700)), ball(number(get("delta")))
        pair = guarantee(group * e, sum((i * e).exp() * d for i in range(group)))
        attained = False
    elif kind in discretes:
        scale = number(get("scale"), Fraction(1, 10**9))
        moves = group * whole(get("moves"))
        pair = moves and discrete(kind, scale, moves)
    elif kind == "mixture" and not replaced:
        scale = number(get("scale"), Fraction(1, 10**300))
        shifts = [number(s) / scale for s in get("shifts")]
        pair = mixture(list(map(number, get("chances"))), shifts)
    elif kind == "randomised-response" and replaced and q == 1:
        k, p = whole(get("buckets"), 2), number(get("chance"), 0, 1)
        law = [1 - p + p / k, (k - 2) * p / k, p / k]
        pair = exact(law, law[::-1])
    else:
        need(kind == "pair", f"noise {kind!s:.40} of this relation or sampling")
        pair = exact(list(map(number, get("p"))), list(map(number, get("q"))))
        if replaced:
            return either(pair), pair if q == 1 else None
    if not pair or not q:
        return None, None
    pair = pair if replaced or group > 1 else sampled(pair, q)
    attained &= q == 1 or (group == 1 and not replaced)
    return pair, pair if attained else None


class Law:
    """Masses in units of 2^-bits at losses (low + i) h: P's from above; or P's from
    below and, on the same labels, Q's from above. ``beyond`` is P's at infinity. Any h,
    bits and widest cells are sound; ``small`` is what a step may lose at an end."""

    def __init__(self, low, masses, beyond, steps=1):
        self.low, self.masses, self.beyond, self.steps = low, masses, beyond, steps

    @classmethod
    def settle(cls, hints, epsilon, delta, steps):
        size = 1.45 * float(epsilon) - math.log2(float(delta) or 1e-30)
        bits = hints.get("bits", int(110 + size + math.log2(steps)))
        cls.bits = whole(bits, 64, 20000)
        ctx.prec = cls.bits + 96
        h = number(hints["spacing"], Fraction(1, 1 << 40), 1 << 10)
        cls.h, cls.small = (
            ball(Fraction(round(h * 2**80), 2**80)),
            delta / (steps << 18),
        )
        cls.wide = whole(hints.get("widest", 1), 1, MOST)

    @classmethod
    def units(cls, x, up):
        """A whole number of units, >= 0, that is at least x, or at most x or 0."""
        x *= arb(2) ** cls.bits
        need(x.is_finite(), "there are numbers out of range at this precision")
        return max(
            int((x.upper().ceil() if up else x.lower().floor()).unique_fmpz()), 0
        )

    @classmethod
    def table(cls, pair):
        """Knots (j, exp(j h), p, q), until hardly any loss lies beyond them."""
        rows, small = [], ball(cls.small) / 64
        for way in (1, -1):
            j = min(way, 0)
            while True:
                a = (j * cls.h).exp()
                p, q = pair(j * cls.h, a)
                rows.append((j, a, p, q))
                if a * q <= small if way > 0 else 1 - p <= small * a:
                    break
                j += way * min(1 + abs(j) // 64, cls.wide)
                fits = abs(j) < MOST and len(rows) < MOST >> 6
                need(fits, "there are too many points of a grid")
        return sorted(rows, key=lambda row: row[0])

    @classmethod
    def above(cls, rows):
        """The law of dots, rounded up (lemmas 3 and 4)."""
        curve = [(arb(0), arb(1)), *((a, p - a * q) for _, a, p, q in rows)]
        slopes = [(v - u) / (b - a) for (a, u), (b, v) in itertools.pairwise(curve)]
        masses, low = [0] * (rows[-1][0] - rows[0][0] + 1), rows[0][0]
        for (j, a, *_), one, two in zip(rows, slopes, [*slopes[1:], 0], strict=True):
            masses[j - low] = cls.units(a * (two - one), up=True)
        return cls(low, [fmpz_poly(masses)], cls.units(curve[-1][1], up=True))

    @classmethod
    def below(cls, rows):
        """The laws of labels under P, rounded down, and Q, rounded up (lemma 5)."""
        ends = [(arb(1), arb(1)), *(row[2:] for row in rows), (arb(0), arb(0))]
        low, high, beyond = rows[0][0], rows[-1][0], 0
        masses = [[0] * (high - low + 1) for _ in "PQ"]
        for (p, q), (u, v) in itertools.pairwise(ends):
            p, q = p - u, q - v
            if q == 0:
                beyond += cls.units(p, up=False)
            elif p > 0:
                loss = ((p / q).mid().log() / cls.h).mid() if q > 0 else high
                label = min(max(round(float(loss)), low), high) - low
                masses[0][label] += cls.units(p, up=False)
                masses[1][label] += cls.units(q, up=True)
        return cls(low, list(map(fmpz_poly, masses)), beyond)

    def __mul__(self, other):
        """The product, rounded, and without ends of little mass (lemmas 4 and 5)."""
        both = list(zip(self.masses, other.masses, strict=True))
        length, steps = sum(map(len, both[-1])) - 1, self.steps + other.steps
        fits = length < MOST and length * self.bits < MOST << 10
        need(fits, "there are too many points of a grid")
        found = [x * y // fmpz(1 << self.bits) for x, y in both]
        found[-1] += fmpz_poly([1] * length)  # up: P's from above, or Q's
        p, small = found[0].coeffs(), int(self.small * steps * (1 << self.bits))
        first, last, bottom, top = 0, len(p), 0, 0
        while last > 1 and top + p[last - 1] <= small:
            last, top = last - 1, top + p[last - 1]
        while first < last - 1 and bottom + p[first] <= small:
            first, bottom = first + 1, bottom + p[first]
        found = [fmpz_poly(x.coeffs()[first:last]) for x in found]
        t, u = (int(x(1)) for x in both[0])
        beyond = self.beyond * (u + other.beyond) + t * other.beyond
        if len(found) == 1:
            found[0] += fmpz_poly([bottom])
            beyond = -(-beyond >> self.bits) + int(top)
        else:
            beyond >>= self.bits
        return Law(self.low + other.low + first, found, beyond, steps)

    @staticmethod
    def product(laws):
        """The product of laws, each as often as its count says."""
        queue = []
        for bit in reversed(range(max(n for _, n in laws).bit_length())):
            queue = [law * law for law in queue]
            queue += [law for law, n in laws if n >> bit & 1]
            while len(queue) > 1:
                queue.append(queue.pop(0) * queue.pop(0))
        return queue[0]

    def delta(self, epsilon):
        """A bound on delta at epsilon, from above or from below."""
        if len(self.masses) == 1:
            found = arb(self.beyond)
            for i, mass in enumerate(self.masses[0].coeffs()):
                part = 1 - (ball(epsilon) - (self.low + i) * self.h).exp()
                found += 0 if part <= 0 else arb(mass) * part.upper()
            return found / (1 << self.bits)
        a = (ball(epsilon).exp() * (1 << 64)).upper().ceil().unique_fmpz()
        rows = zip(*(x.coeffs() for x in self.masses), strict=False)
        gained = sum(max((p << 64) - a * q, 0) for p, q in rows)
        return arb(gained + (fmpz(self.beyond) << 64)) / (1 << self.bits + 64)


def bounds(steps, epsilon, replaced, group, above):
    """Bounds on delta at epsilon of (line, count), in both orders of P and Q."""
    found, squares = [], arb(0)
    for line, n in steps:
        pair = pairs(line, replaced, group)[0 if above else 1]
        if isinstance(pair, arb):  # unsampled Gaussians are one, of all squares' sum
            squares += n * pair * pair
        elif pair:
            found.append((pair, n))
    found += [(gaussian(squares.sqrt()), 1)] if squares > 0 else []
    need(len(found) < 5000, "there are too many unlike releases")
    make, orders = Law.above if above else Law.below, ([], [])
    for pair, n in found:
        rows = Law.table(pair)
        orders[0].append((make(rows), n))
        if not (replaced and above):  # what is above is then its own mirror image
            rows = [(-j, 1 / a, 1 - q, 1 - p) for j, a, p, q in reversed(rows)]
            orders[1].append((make(rows), n))
    return [Law.product(laws).delta(epsilon) for laws in orders if laws] or [arb(0)]


def over(one, other):
    """Return whether lemma 6 puts a line above another."""
    same = all(one.get(x) == other.get(x) for x in ("noise", "sampling"))
    same = same and one["noise"] in SUMS
    return one == other or (same and all(map(ge, read(one)[1:], read(other)[1:])))


def extreme(lines, pick):
    """One line above (max) or below (min) all of ``lines`` (lemma 6)."""
    kinds = {(x["noise"], x.get("sampling")) for x in lines}
    need(len(kinds) == 1 and lines[0]["noise"] in SUMS, "unlike lines share a node")
    rate, moves, norm = map(pick, zip(*(read(x)[1:] for x in lines), strict=True))
    found = {"rate": rate, "size": rate.numerator, "population": rate.denominator}
    return lines[0] | found | {"scale": 1, "moves": moves, "norm": norm}


def ways(nodes, above):
    """Ways of a record at all of ``nodes``: lists of (line, count) (lemma 7)."""
    shared, passes = {}, {}
    for i, node in enumerate(nodes):
        lines, unit = node["lines"], node.get("budget")
        if unit:
            used = sum(whole(line["count"]) for line in lines)
            fits = used <= whole(unit["count"]) and all(over(unit, x) for x in lines)
            need(above and fits, "a budget's units are not above its releases")
            lines = [unit]
        for k, line in enumerate(lines):
            if "pass" in line:
                kept = passes.setdefault((i, line["pass"]), [])
                if not any(over(one, line) for one in kept):
                    kept[:] = [x for x in kept if not over(line, x)] + [line]
            else:
                shared.setdefault((i, line.get("like", (k,))), []).append(line)
    pick, steps = max if above else min, []
    for lines in shared.values():
        one = extreme(lines, pick) if len(lines) > 1 else lines[0]
        steps.append((one, sum(whole(line["count"], 1) for line in lines)))
    worst = itertools.product(*passes.values()) if above else [()]
    return [steps + [(line, 1) for line in some] for some in worst]


def check(c, tell=print):
    """Tell a line for each side; return whether all that is claimed is proved."""
    need(c["format"] == "privaudit-certificate", "this is no certificate")
    replaced = ("add-or-remove-one", "replace-one").index(c["relation"]) == 1
    overlap, group = whole(c.get("overlap", 1), 1, 64), whole(c.get("group", 1), 1, 500)
    delta, proved, nodes = number(c["delta"], 0, 1), [], c["nodes"]
    left = delta - overlap * group * number(c.get("failure", 0))
    need(left >= 0, "the chance of failure is above delta")
    for side, above in (("upper", True), ("lower", False)):
        if c.get(side) is None:
            continue
        known = left == delta and c.get("unit", "record") != "node"
        need(above or known, "no data are known to attain this")
        epsilon, found = number(c[side], 0, 10**6), []
        for some in itertools.combinations(nodes, min(overlap, len(nodes))):
            for steps in ways(some, above):
                total = sum(n for _, n in steps) or 1
                Law.settle(c["hints"][side], epsilon, left, total)
                found += bounds(steps, epsilon, replaced, group, above)
                need(len(found) < 256, "there are too many ways through a ledger")
        good = [x <= ball(left) if above else x > ball(delta) for x in found]
        proved.append(all(good) if above else any(good))
        most = max((x.upper() if above else x.lower() for x in found), key=float)
        says = "is proved" if proved[-1] else "is not proved"
        claim = f"{'<=' if above else '>='} {c[side]} at delta {c['delta']}"
        tell(f"{side}: epsilon {claim} {says}; delta there: {float(most):.5g}")
    for what in c.get("assumes", []):
        tell(f"assuming that {what!r:.200}")
    need(proved, "nothing is claimed")
    return all(proved)


def main(path):
    """Check a file; return the status."""
    try:
        with open(path, encoding="utf-8") as file:
            done = check(json.load(file, parse_float=str, parse_int=str))
    except Exception as why:  # of a stranger's file: anything
        print(f"NOT COVERED: {why!s:.200}".replace("\n", " "))
        return 3
    print("PROVED" if done else "NOT PROVED")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
