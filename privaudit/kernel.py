"""Checks a certificate of differential privacy by ball and whole-number arithmetic.

    python kernel.py certificate.json

prints a line for each side and PROVED (status 0), NOT PROVED (1) or NOT COVERED: why
(3). It needs the standard library and python-flint, and nothing else of the project. No
float decides anything, and no hint of the certificate is believed.

H(a) = E_Q[(dP/dQ - a)+] for output laws P, Q: a pair is (log a, H(a))-DP. P is the law
with the record, Q without ("remove"); "add" is the other order. Believed, with proofs
in docs/kernel.md:

 1. Pairs. If every neighbours' H is below a pair's in each of several releases, chosen
    as one goes or not, H of all is below that of the product (Zhu, Dong, Wang 2022,
    Thm 10). The pair of each mechanism is the one that its class here names.
 2. Sampling and order. Poisson sampling of rate q makes H(a) into q H(1 + (a - 1) / q),
    1 - a below 1 - q; the other order's is 1 - a + a H(1 / a). Samples of fixed size,
    one record replaced: the former for a >= 1, its own mirror image below (Balle,
    Barthe, Gaboardi 2018; Zhu, Dong, Wang 2022).
 3. Dots. Chords of H between knots, from (0, 1) to a flat line beyond the last knot,
    are the H of masses on the knots, and above H (Doroshenko et al. 2022).
 4. Upwards. To add P-mass, to raise a loss, or to call it infinite, raises H of every
    product. (So masses are rounded up, and ends of windows moved.)
 5. Downwards. For any map of outputs to labels, the sum over labels of
    (P - exp(epsilon) Q)+ is at most delta(epsilon); so it is for P less and Q more.
 6. Order of noise. A smaller noise over the same sensitivity and a higher rate have the
    larger H. (So unlike steps may share a node, and passes keep their worst.)
 7. Ledgers. Nodes hold disjoint records; a record enters one release of a pass
    (McSherry 2009); a chance of failure is paid from delta; k records of a group move
    sums k times as far, Binomial(k, q) of them in a Poisson batch (Ganesh 2024); a
    budget's unit pays for what it is above, chosen as one goes.
 8. FLINT: arb encloses, fmpz is exact, and // of fmpz_poly by a whole number rounds
    coefficients that are not negative down.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from fractions import Fraction
from operator import ge

from flint import arb, ctx, fmpz, fmpz_poly

MOST = 1 << 21  # points of a grid, characters of a number's list, ...: bounded work
RELATIONS = ("add-or-remove-one", "replace-one")


class NotCovered(Exception):
    """Says why a certificate cannot be judged."""


def need(fact, why):
    if not fact:
        raise NotCovered(why)


def number(given, low=0, high=math.inf):
    """Parse a decimal or ratio, given as a string, as the exact number it says."""
    form = r"-?\d{1,400}(\.\d{0,400})?(e[+-]?\d{1,3})?(/\d{1,400})?"
    text = given if isinstance(given, str) else repr(given)
    need(re.fullmatch(form, text), f"{text[:40]!r} is no number")
    top, _, bottom = text.partition("/")
    value = Fraction(top) / (Fraction(bottom or 1) or need(False, "a ratio to 0"))
    need(low <= value <= high, f"{text[:40]} is not from {low} to {high}")
    return value


def whole(given, low=0, high=10**12):
    value = number(given, low, high)
    need(value.denominator == 1, f"{given!r} is no whole number")
    return int(value)


def ball(x):
    """Enclose a rational number."""
    x = Fraction(x)
    return arb(fmpz(x.numerator)) / arb(fmpz(x.denominator))


def tail(x):
    """P(N > x) of a standard normal N."""
    return (x / arb(2).sqrt()).erfc() / 2


# Pairs (lemma 1). tails(l, a), l = log a, gives P and Q of an event that holds all
# outputs of loss above l and none below, so that H(a) = p - a q; events are nested.


class Gaussian:
    """N(m, 1) against N(0, 1)."""

    symmetric = True

    def __init__(self, m):
        self.m = m

    def tails(self, l, a):
        x = l / self.m + self.m / 2
        return tail(x - self.m), tail(x)


class Laplace:
    """Laplace noise of scale 1 moved by m: losses are 2x - m for x in [0, m]."""

    symmetric = True

    def __init__(self, m):
        self.m = m

    def tails(self, l, a):
        if l >= self.m:
            return arb(0), arb(0)
        if l <= -self.m:
            return arb(1), arb(1)
        need(-self.m < l < self.m, "a grid point too near to the largest loss")
        x = (l + self.m) / 2
        return 1 - (x - self.m).exp() / 2, (-x).exp() / 2


class Opposed:
    """(1-q) N(0) + q N(c) against (1-q) N(0) + q N(-c): a Poisson sample's record
    replaced. The ratio a is at exp(c x) = y, the root of a quadratic equation."""

    symmetric = True

    def __init__(self, c, q):
        self.c, self.q = c, q

    def tails(self, l, a):
        c, q, sign = self.c, self.q, 1 if l >= 0 else -1
        b = (1 - q) * ((sign * l).exp() - 1)
        g = q * (-c * c / 2).exp()
        y = (b + (b * b + 4 * (sign * l).exp() * g * g).sqrt()) / (2 * g)
        x = sign * y.log() / c
        rest = (1 - q) * tail(x)
        return rest + q * tail(x - c), rest + q * tail(x + c)


class Mixture:
    """Sum of w N(s, 1), all s > 0, against N(0, 1): the ratio grows with x."""

    symmetric = False

    def __init__(self, parts):
        self.parts = parts  # (w, s)

    def ratio(self, x):
        each = [(w * (s * x - s * s / 2).exp(), s) for w, s in self.parts]
        return sum(r for r, _ in each), sum(r * s for r, s in each)

    def tails(self, l, a):
        # Newton on log(ratio), convex, from the right; then the root is bracketed.
        x = min((((l - w.log()) / s + s / 2).mid() for w, s in self.parts), key=float)
        for _ in range(200):
            value, slope = self.ratio(x)
            step = (value.log() - l) * value / slope
            x = (x - step).mid()
            if abs(step) < arb(2) ** (24 - ctx.prec) * (1 + abs(x)):
                break
        r = arb(2) ** (32 - ctx.prec) * (1 + abs(x))
        inside = self.ratio(x - r)[0] < a and self.ratio(x + r)[0] > a
        need(inside, "no root of a mixture's ratio at this precision")
        x = (x - r).union(x + r)
        return sum(w * tail(x - s) for w, s in self.parts), tail(x)


class Atoms:
    """Finitely many outputs (p, q), the largest p / q first; ``rest`` bounds both laws'
    mass that was left out at each end."""

    def __init__(self, atoms, rest=0, symmetric=False):
        need(len(atoms) <= MOST >> 4, "too many atoms")
        self.atoms, self.symmetric = atoms, symmetric
        self.rest = arb(0).union(ball(rest) if rest == 0 else rest)
        self.sums = [(arb(0), arb(0))]
        for (p, q), (u, v) in itertools.pairwise(atoms):
            need(not u * q > p * v, "atoms out of order")
        for p, q in atoms:
            self.sums.append((self.sums[-1][0] + p, self.sums[-1][1] + q))

    def tails(self, l, a):
        low, high = 0, len(self.atoms)  # all before low are above a
        while low < high:
            k = (low + high) // 2
            p, q = self.atoms[k]
            low, high = (k + 1, high) if p > a * q else (low, k)
        p, q = self.sums[low]
        if low == len(self.atoms) and self.rest == 0:
            return arb(1), arb(1)
        unclear = self.rest
        for more, less in self.atoms[low:]:
            if more <= a * less:
                break
            unclear = unclear + arb(0).union((more - a * less).abs_upper())
        return p + unclear, q + self.rest


class Sampled:
    """``of``, Poisson sampled at rate q (lemma 2)."""

    symmetric = False

    def __init__(self, of, q):
        self.of, self.q = of, q

    def tails(self, l, a):
        t = (a - 1 + self.q) / self.q
        if t <= 0:
            return arb(1), arb(1)
        need(t > 0, "a grid point too near to the least loss")
        p, q = self.of.tails(t.log(), t)
        return (1 - self.q) * q + self.q * p, q


class Either:
    """The larger H of both orders of ``of``; of a sample of fixed size (``above``) the
    first order's above a = 1, the other's below. Only p - a q has a meaning."""

    symmetric = True

    def __init__(self, of, above=False):
        self.of, self.above = of, above

    def tails(self, l, a):
        (p, q), (u, v) = self.of.tails(l, a), self.of.tails(-l, 1 / a)
        one, other = p - a * q, 1 - v - a * (1 - u)
        if (p == 1 and q == 1 and v == 0) or (self.above and l >= 0) or one >= other:
            return p, q
        if (self.above and l < 0) or other >= one:
            return 1 - v, 1 - u
        return one.max(other) + a * q, q


def discrete_gaussian(sigma, s):
    """exp(-x^2 / 2 sigma^2) on the integers, moved by s. Beyond f the weights are below
    a geometric series of ratio exp(-f / sigma^2)."""
    f = math.isqrt(int(3 * ctx.prec * sigma * sigma)) + 2
    need(f < MOST >> 6, "a discrete Gaussian too wide")
    scale = ball(1 / (2 * sigma * sigma))
    w = [(-scale * x * x).exp() for x in range(f + s + 1)]
    over = (-scale * f * f).exp() / (1 - (-2 * scale * f).exp())
    total = w[0] + 2 * sum(w[1 : f + 1]) + arb(0).union(2 * over)
    w = [one / total for one in w]
    atoms = [(w[abs(x - s)], w[abs(x)]) for x in range(f, s - f - 1, -1)]
    need(len(atoms) > 0, "a discrete Gaussian too narrow")
    return Atoms(atoms, (over / total).upper() * 2, True)


def discrete_laplace(t, s):
    """exp(-t |x|) on the integers, moved by s: losses t (2x - s), x = 0..s."""
    need(s < MOST >> 5, "too far a move")
    t = ball(t)
    e = 1 + (-t).exp()
    q = [1 / e, *((-t * x).exp() * (1 - (-t).exp()) / e for x in range(1, s))]
    q.append((-t * s).exp() / e)
    return Atoms(list(zip(q, reversed(q), strict=True)), symmetric=True)


def exact_atoms(p, q, **more):
    need(0 < len(p) == len(q) and sum(p) > 0 and sum(q) > 0, "no pair of laws")
    p, q = ([x / sum(some) for x in some] for some in (p, q))
    both = [(x, y) for x, y in zip(p, q, strict=True) if x or y]
    both.sort(key=lambda one: (one[1] == 0, one[1] and one[0] / one[1]), reverse=True)
    return Atoms([(ball(x), ball(y)) for x, y in both], **more)


def guarantee(e, d):
    """Any (e, d)-DP mechanism (Kairouz, Oh, Viswanath 2015)."""
    need(d < 1, "a guarantee of delta 1")
    high, low = (1 - d) / (1 + (-e).exp()), (1 - d) / (1 + e.exp())
    middle = [(1 - d, 1 - d)] if e == 0 else [(high, low), (low, high)]
    ends = ([], []) if d == 0 else ([(d, arb(0))], [(arb(0), d)])
    return Atoms([*ends[0], *middle, *ends[1]], symmetric=True)


def mixture(shifts, chances):
    """N(s, 1) with chances against N(0, 1); shifts of 0 are as not sampled."""
    moved = sum(c for c, s in zip(chances, shifts, strict=True) if s)
    parts = [(c / moved, s) for c, s in zip(chances, shifts, strict=True) if c and s]
    if not parts:
        return None
    pair = Mixture([(ball(c), ball(s)) for c, s in parts])
    return pair if moved == 1 else Sampled(pair, ball(moved))


def pairs(line, relation, group):
    """The pair above a line's releases and one that data attain (lemmas 1, 2, 7);
    None: nothing is told, or nothing is known to be."""
    kind, get, replaced = line.get("noise"), line.get, relation == RELATIONS[1]
    sampling, q = line.get("sampling", "none"), Fraction(1)
    need(sampling in ("none", "poisson", "fixed"), f"sampling {sampling!r}")
    if sampling == "poisson":
        q = number(get("rate"), 0, 1)
    elif sampling == "fixed":
        size, population = whole(get("size")), whole(get("population"), 1)
        need(replaced and size <= population, "a sample of fixed size")
        q = Fraction(size, population)
    if q == 0:
        return None, None
    plain = q == 1
    if kind in ("gaussian", "laplace"):
        scale, moves = number(get("scale")), group * number(get("moves"))
        if moves == 0:
            return None, None
        need(scale > 0, "a release without noise has no bound")
        m = ball(moves / scale)
        pair = Gaussian(m) if kind == "gaussian" else Laplace(m)
        if plain:
            return pair, pair
        if sampling == "poisson" and not replaced and kind == "gaussian" and group > 1:
            each = [q**i * (1 - q) ** (group - i) for i in range(group + 1)]
            chances = [math.comb(group, i) * one for i, one in enumerate(each)]
            far = [moves / scale * i / group for i in range(group + 1)]
            return (mixture(far, chances),) * 2
        if group > 1 or (sampling == "poisson" and replaced and kind == "laplace"):
            if group == 1:  # losses are within two ends
                c, q = ball(max(moves / 2, number(get("norm"))) / scale), ball(q)
                ends = (1 - q + q * c.exp()) / (1 - q + q * (c - m).exp())
                return guarantee(ends.log(), arb(0)), None
            return pair, None  # as without sampling
        if sampling == "fixed":
            pair = Sampled(pair, ball(q))
            return Either(pair, above=True), pair
        if replaced:
            c = max(moves / 2, number(get("norm"))) / scale
            return Opposed(ball(c), ball(q)), Opposed(m / 2, ball(q))
    elif kind == "guarantee":
        e, delta = number(get("epsilon"), 0, 700), ball(number(get("delta"), 0, 1))
        delta = sum((i * ball(e)).exp() * delta for i in range(group))
        pair = guarantee(ball(e * group), delta)
        plain = plain or replaced or group > 1
        return (pair if plain else Sampled(pair, ball(q))), None
    elif kind == "discrete-gaussian":
        moves = group * whole(get("moves"), 0, 10**6)
        pair = moves and discrete_gaussian(number(get("sigma"), Fraction(1, 100)), moves)
    elif kind == "discrete-laplace":
        moves = group * whole(get("moves"), 0, 10**6)
        pair = moves and discrete_laplace(number(get("parameter")), moves)
    elif kind == "mixture":
        need(not replaced and group == 1, "a mixture of this relation or group")
        scale, chances = number(get("scale")), list(map(number, get("chances")))
        shifts = [number(s) / scale for s in get("shifts")]
        need(len(shifts) == len(chances) <= 1000 and scale, "a mixture")
        pair = mixture(shifts, [c / sum(chances) for c in chances])
    elif kind == "randomised-response":
        need(replaced and group == 1 and plain, "reports of this relation or group")
        k, p = whole(get("buckets"), 1), number(get("chance"), 0, 1)
        high, low = 1 - p + p / k, p / k
        rest = [1 - high - low] if k > 1 else []
        pair = k > 1 and p < 1 and exact_atoms([high, *rest, low], [low, *rest, high])
    elif kind == "pair":
        need(group == 1, "a group of records and a pair")
        p, q0 = (list(map(number, get(name))) for name in "pq")
        pair = p != q0 and exact_atoms(p, q0)
        if pair and replaced:
            return Either(pair), pair if plain else None
    else:
        raise NotCovered(f"noise {str(kind)[:40]!r}")
    if not pair:
        return None, None
    if plain:
        return pair, pair
    need(sampling == "poisson", "a sample of fixed size of this noise")
    if replaced or group > 1:
        return pair, None  # as without sampling
    return (Sampled(pair, ball(q)),) * 2


class Grid:
    """Masses in units of 2^-bits on losses that are multiples of h. Any choice is
    sound; a good one is narrow, and fast."""

    def __init__(self, hints, epsilon, delta, steps):
        log2 = math.log2(float(delta) or 1e-30) - 1.45 * float(epsilon)
        bits = whole(hints.get("bits", math.ceil(100 - log2 + math.log2(steps))), 64)
        need(bits <= 20000, "too many bits")
        ctx.prec, self.bits, self.steps = bits + 96, bits, steps
        h = number(hints.get("spacing"), Fraction(1, 1 << 40), 1 << 10)
        self.h = ball(Fraction(round(h * (1 << 80)), 1 << 80))
        self.wide = whole(hints.get("widest", 1), 1, MOST)
        self.small = delta * Fraction(1, 1 << 13) / steps

    def up(self, x):
        """The least whole number of units that is at least x and 0."""
        x = (x * arb(2) ** self.bits).upper()
        need(x.is_finite(), "numbers of this size at this precision")
        return max(int(x.ceil().unique_fmpz()), 0)

    def down(self, x):
        """The largest whole number of units, >= 0, that is at most x, or 0."""
        x = (x * arb(2) ** self.bits).lower()
        need(x.is_finite(), "numbers of this size at this precision")
        return max(int(x.floor().unique_fmpz()), 0)

    def table(self, pair):
        """Knots (j, exp(j h), p, q), to where hardly any loss lies beyond."""
        rows, small = [], ball(self.small) / 64
        for way in (1, -1):
            j = 0 if way > 0 else -1
            while True:
                a = (j * self.h).exp()
                p, q = pair.tails(j * self.h, a)
                rows.append((j, a, p, q))
                if a * q <= small if way > 0 else 1 - p <= small * a:
                    break
                j += way * min(1 + abs(j) // 64, self.wide)
                need(len(rows) < MOST >> 4 and abs(j) < MOST, "a grid of so many points")
        return sorted(rows, key=lambda row: row[0])

    def above(self, rows):
        """Law of dots (lemma 3), rounded up (lemma 4)."""
        curve = [(arb(0), arb(1)), *((a, p - a * q) for _, a, p, q in rows)]
        slopes = [(v - u) / (b - a) for (a, u), (b, v) in itertools.pairwise(curve)]
        masses = [0] * (rows[-1][0] - rows[0][0] + 1)
        for row, left, right in zip(rows, slopes, [*slopes[1:], 0], strict=True):
            masses[row[0] - rows[0][0]] = self.up(row[1] * (right - left))
        return Law(self, rows[0][0], (fmpz_poly(masses),), self.up(curve[-1][1]), 1)

    def below(self, rows):
        """Laws of labels under P, rounded down, and Q, rounded up (lemma 5)."""
        ends = [(arb(1), arb(1)), *((p, q) for _, _, p, q in rows), (arb(0), arb(0))]
        first, last = rows[0][0], rows[-1][0]
        masses, infinite = [[0] * (last - first + 1) for _ in "PQ"], 0
        for (p, q), (u, v) in itertools.pairwise(ends):
            p, q = p - u, q - v
            if q == 0:
                infinite += self.down(p)
            elif p > 0:
                loss = float((p / q).abs_upper().log() / self.h)
                label = min(max(round(loss), first), last) - first
                masses[0][label] += self.down(p)
                masses[1][label] += self.up(q)
        return Law(self, first, tuple(map(fmpz_poly, masses)), infinite, 1)

    def compose(self, parts):
        """The product of laws, each as often as its count says."""
        product = None
        for bit in reversed(range(max(n for _, n in parts).bit_length())):
            queue = [product * product] if product else []
            queue += [law for law, n in parts if n >> bit & 1]
            while len(queue) > 1:
                queue.append(queue.pop(0) * queue.pop(0))
            product = queue[0]
        return product


class Law:
    """Masses at (low + i) h, in polys, and P's at infinity: P's alone, from above; or
    P's from below and, of the same labels, Q's from above."""

    def __init__(self, grid, low, polys, infinite, size):
        self.grid, self.low, self.polys, self.infinite = grid, low, polys, infinite
        self.size = size  # how many steps

    def __mul__(self, other):
        grid, size, exact = self.grid, self.size + other.size, []
        need(len(self.polys[0]) + len(other.polys[0]) < MOST, "a grid of so many points")
        for x, y in zip(self.polys, other.polys, strict=True):
            exact.append(x * y // fmpz(1 << grid.bits))
        length = len(self.polys[-1]) + len(other.polys[-1]) - 1
        exact[-1] += fmpz_poly([1] * length)  # up: P's above, Q's below
        t, u = int(self.polys[0](1)), int(other.polys[0](1))
        infinite = self.infinite * (u + other.infinite) + t * other.infinite
        rounded = -((-infinite) >> grid.bits) if len(exact) == 1 else infinite >> grid.bits
        return Law(grid, self.low + other.low, tuple(exact), rounded, size).cut()

    def cut(self):
        """Ends of little mass moved up or dropped (lemmas 4 and 5)."""
        masses = self.polys[0].coeffs()
        small = int(self.grid.small * self.size * (1 << self.grid.bits))
        last, top = len(masses), fmpz(0)
        while last > 1 and top + masses[last - 1] <= small:
            last, top = last - 1, top + masses[last - 1]
        first, bottom = 0, fmpz(0)
        while first < last - 1 and bottom + masses[first] <= small:
            first, bottom = first + 1, bottom + masses[first]
        self.polys = tuple(fmpz_poly(x.coeffs()[first:last]) for x in self.polys)
        self.low += first
        if len(self.polys) == 1:
            self.polys = (self.polys[0] + fmpz_poly([bottom]),)
            self.infinite += int(top)
        return self

    def delta(self, epsilon):
        """A bound on delta at epsilon: from above, or from below."""
        scale, e = 1 << self.grid.bits, ball(epsilon)
        if len(self.polys) == 1:
            found = arb(self.infinite)
            for i, mass in enumerate(self.polys[0].coeffs()):
                part = 1 - (e - (self.low + i) * self.grid.h).exp()
                if mass and not part <= 0:
                    found += arb(mass) * part.upper()
            return found / scale
        most = (e.exp() * (1 << 64)).upper().ceil().unique_fmpz()
        found = fmpz(self.infinite) << 64
        for p, q in zip(*(x.coeffs() for x in self.polys), strict=False):
            found += max((p << 64) - most * q, 0)
        return arb(found) / (scale << 64)


def ratios(line):
    """The numbers of a noisy sum in the order of lemma 6; None for other lines."""
    if line.get("noise") not in ("gaussian", "laplace"):
        return None
    sampling, scale = line.get("sampling", "none"), number(line.get("scale"))
    need(scale > 0, "a release without noise has no bound")
    moves, norm = (number(line.get(name, 0)) / scale for name in ("moves", "norm"))
    if sampling == "fixed":
        rate = Fraction(whole(line["size"]), whole(line["population"], 1))
    else:
        rate = number(line["rate"], 0, 1) if sampling == "poisson" else Fraction(1)
    return moves, norm, rate


def alike(lines):
    """Whether lemma 6 orders ``lines``."""
    kinds = {(line.get("noise"), line.get("sampling", "none")) for line in lines}
    return len(kinds) == 1 and ratios(lines[0]) is not None


def node(lines, pick):
    """One line above all (``pick`` max) or below all (min) of ``lines``."""
    if len(lines) == 1:
        return lines[0]
    need(alike(lines), "a group of unlike lines")
    moves, norm, rate = map(pick, zip(*map(ratios, lines), strict=True))
    size = {"size": str(rate.numerator), "population": str(rate.denominator)}
    found = {**lines[0], "scale": "1", "moves": str(moves), "norm": str(norm)}
    return {**found, "rate": str(rate), **size}


def worst(lines):
    """Those of a pass that no other is above (lemmas 6 and 7)."""
    kept = []
    for line in lines:
        over = [k for k in kept if line == k or alike([line, k])]
        more = [all(map(ge, ratios(k), ratios(line))) for k in over if k != line]
        if line not in kept and not any(more):
            kept.append(line)
    return kept


def told(where, above):
    """Ways through a node's lines, each a list of (line, count)."""
    lines, counts = where["lines"], [whole(x.get("count", 1), 1) for x in where["lines"]]
    unit = where.get("unit")
    if unit is not None:  # of a budget: whatever it pays for, chosen as one goes
        need(above, "what of a budget is used is not known from below")
        most = whole(where.get("units"), 1)
        need(all(alike([unit, x]) for x in lines), "a release of another kind than the unit")
        pairs_ = list(map(ratios, [unit, *lines]))
        if all(r[2] == 1 for r in pairs_) and unit["noise"] == "gaussian":
            used = sum(n * r[0] ** 2 for n, r in zip(counts, pairs_[1:], strict=True))
            need(used <= most * pairs_[0][0] ** 2, "more is used than the budget's units")
        else:
            need(sum(counts) <= most, "more releases than the budget's units")
            below = all(all(map(ge, pairs_[0], r)) for r in pairs_[1:])
            need(below, "a release that the budget's unit is not above")
        return [[(unit, most)]]
    shared = [i for i, x in enumerate(lines) if "pass" not in x]
    parted = {}
    for x in lines:
        if "pass" in x:
            parted.setdefault(x["pass"], []).append({k: x[k] for k in x if k not in ("pass", "count")})
    groups = [[i for i in some if i in shared] for some in where.get("groups", [])]
    seen = [i for some in groups for i in some]
    need(len(seen) == len(set(seen)), "a line in two groups")
    groups = [some for some in groups if some] + [[i] for i in shared if i not in set(seen)]
    pick = max if above else min
    base = [(node([lines[i] for i in some], pick), sum(counts[i] for i in some)) for some in groups]
    if not above:
        return [base]
    return [base + [(x, 1) for x in way] for way in itertools.product(*map(worst, parted.values()))]


def bounds(steps, claim, hints, above):
    """Bounds on delta at the claim's epsilon, for each order of the two laws."""
    epsilon, relation, delta, group = claim
    grid = Grid(hints, epsilon, delta, sum(n for _, n in steps))
    parts, squares = [], arb(0)
    for line, n in steps:
        pair = pairs(line, relation, group)[0 if above else 1]
        if isinstance(pair, Gaussian):  # these are together one
            squares += n * pair.m * pair.m
        elif pair is not None:
            parts.append((pair, n))
    if squares > 0:
        parts.append((Gaussian(squares.sqrt()), 1))
    if not parts:
        return {"both": arb(0)}
    need(len(parts) <= 5000, "more than 5000 unlike releases")
    same = all(pair.symmetric for pair, _ in parts)
    if len(parts) == 1 and parts[0][1] == 1:
        l = ball(epsilon)
        tables = [[(0, l.exp(), *parts[0][0].tails(l, l.exp()))]]
        if not same:
            rows = [(0, l.exp(), *parts[0][0].tails(-l, (-l).exp()))]
            tables.append([(0, a, 1 - q, 1 - p) for _, a, p, q in rows])
        found = [p - a * q for ((_, a, p, q),) in tables]
    else:
        make, found = grid.above if above else grid.below, []
        tables = [(grid.table(pair), n) for pair, n in parts]
        for turned in (False,) if same else (False, True):
            laws = [(make(turn(rows) if turned else rows), n) for rows, n in tables]
            found.append(grid.compose(laws).delta(epsilon))
    return dict(zip(("both",) if same else ("remove", "add"), found, strict=True))


def turn(rows):
    """The other order's rows (lemma 2)."""
    return [(-j, 1 / a, 1 - q, 1 - p) for j, a, p, q in reversed(rows)]


def together(nodes, overlap):
    """All that records at ``overlap`` of the nodes enter, the different ways."""
    need(0 < len(nodes), "no nodes")
    if overlap == 1:
        return list({json.dumps(one, sort_keys=True): one for one in nodes}.values())
    ways = {}
    need(math.comb(len(nodes), overlap) <= 4096, "so many combinations of nodes")
    for some in itertools.combinations(nodes, overlap):
        key = json.dumps(sorted(json.dumps(one, sort_keys=True) for one in some))
        lines, groups = [], []
        for i, one in enumerate(some):
            need("unit" not in one, "a budget's record at several nodes")
            groups += [[len(lines) + k for k in g] for g in one.get("groups", [])]
            lines += [
                {**x, **({"pass": f"{i}/{x['pass']}"} if "pass" in x else {})}
                for x in one["lines"]
            ]
        ways[key] = {"lines": lines, "groups": groups}
    need(len(ways) <= 64, "so many combinations of nodes")
    return list(ways.values())


def check(c):
    """Print a line for each side; return whether all that is claimed is proved."""
    need(c.get("format") == "privaudit-certificate", "this is no certificate")
    need(c.get("version") == "1", "a certificate of another version")
    relation, delta = c.get("relation"), number(c.get("delta"), 0, 1)
    need(relation in RELATIONS, f"relation {relation!r}")
    overlap, group = whole(c.get("overlap", 1), 1, 64), whole(c.get("group", 1), 1, 500)
    failure = overlap * group * number(c.get("failure", 0), 0, 1)
    overlap = min(overlap, len(c["nodes"]))
    need(overlap == 1 or group == 1, "groups of records at several nodes")
    cases = together(c["nodes"], overlap)
    sides = [side for side in ("upper", "lower") if c.get(side) is not None]
    need(sides, "no side is claimed")
    proved = []
    for side in sides:
        epsilon, above = number(c[side], 0, 10**6), side == "upper"
        if not above:
            known = failure == 0 and c.get("unit", "record") != "node"
            need(known, "no data are known to attain this from below")
        claim = epsilon, relation, max(delta - failure, 0), group
        found = {}
        for case in cases:
            need(group == 1 or all("pass" not in x for x in case["lines"]), "a group in passes")
            for steps in told(case, above):
                for way, some in bounds(steps, claim, c.get("hints", {}).get(side, {}), above).items():
                    found[way] = some if way not in found else found[way].max(some)
        most = max(found.values(), key=float)
        if above:
            done = all(some + ball(failure) <= ball(delta) or some == 0 for some in found.values())
        else:
            done = most > ball(delta)
        text = ", ".join(f"{float(x.upper() if above else x.lower()):.6g} ({w})" for w, x in found.items())
        sign = "<=" if above else ">="
        print(f"{side}: epsilon {sign} {c[side]} at delta {c['delta']}: delta {sign} {text}: {'proved' if done else 'not proved'}")
        proved.append(done)
    return all(proved)


def main(path):
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(1 << 26)
        given = json.loads(text, parse_float=str, parse_int=str)
        proved = check(given)
    except NotCovered as why:
        print(f"NOT COVERED: {why}")
        return 3
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError,
            RecursionError, OSError, MemoryError) as why:
        print(f"NOT COVERED: this is no certificate ({type(why).__name__})")
        return 3
    print("PROVED" if proved else "NOT PROVED")
    return 0 if proved else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
