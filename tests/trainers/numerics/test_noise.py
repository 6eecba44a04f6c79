"""Noise is exactly rounded; coins, subsets and permutations are exactly fair."""

import fractions
import itertools
import math
import random
import sys

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.tiers import size
from trainers.numerics import keys, loops, noise, quantiles
from trainers.numerics.keys import Key, Piece, Rows, scratch
from trainers.numerics.noise import GAUSSIAN, LAPLACE, add_noise_, coins, noisy

CPU = torch.device("cpu")
KEY = Key.study("tests of noise")
LOWEST, HIGHEST = -(2**63), 2**63 - 1
LAWS = pytest.mark.parametrize("law", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
SCALES = pytest.mark.parametrize("power", [4, 10, 20, 26, 30])


@pytest.fixture(autouse=True, scope="module", params=["torch", "numba"])
def way(request):
    """All of it by torch's first pass, and by numba's loops."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "LATER", 0 if request.param == "numba" else math.inf)
        patch.setattr(noise, "_loops", noise._Loops())
        yield request.param


def cumulative(law, x):
    """P(-x < X < x), by other formulas than the module's."""
    if law is GAUSSIAN:
        return mpmath.erf(x / mpmath.sqrt(2))
    return mpmath.sign(x) * -mpmath.expm1(-abs(x))


class Fixed(Rows):
    """Words that were chosen, and the bits after them."""

    def pieces(self, device):
        held = torch.zeros(self.padded, dtype=torch.int64)
        held[: self.width] = torch.tensor(self.given)
        yield Piece(self, held, range(1), range(1), range(self.width))

    def more(self, row, column, position, level):
        assert row == column == 0
        return self.later

    def further(self):
        """The next of their 512 bits, again and again."""
        shift = 448 - 64 * (self.level % 8)
        word = (self.later >> shift & 2**64 - 1) + LOWEST
        return fixed([word] * self.width, self.later, self.level + 1)


def fixed(words, later=0, level=0):
    rows = Fixed(KEY, "noise", (0,), 0, len(words), range(1), level=level)
    object.__setattr__(rows, "given", list(words))
    object.__setattr__(rows, "later", later)
    return rows


def drawn(rows, scale, law=GAUSSIAN):
    """Noise alone; if it is little, both ways to add it are asked."""
    zeros = torch.zeros(rows.shape, dtype=torch.int64)
    found = add_noise_(zeros.clone(), rows, scale, law)
    if found.numel() <= 1 << 14:
        assert torch.equal(noisy(zeros.double(), 1.0, rows, scale, law).long(), found)
    return found


def rows(width, *, release=0, nodes=(0,), runs=range(1), purpose="noise"):
    return KEY.rows(purpose, nodes=nodes, release=release, width=width, runs=runs)


def wrong(words, found, scale, law):
    """How many are not round(scale x) anywhere in their word's interval."""
    count = 0
    with mpmath.workdps(60):
        for word, k in zip(words, found, strict=True):
            low, high = (mpmath.mpf(word + end) / 2**63 for end in (0, 1))
            below, above = (
                cumulative(law, (k + mpmath.mpf(half)) / scale) for half in (-0.5, 0.5)
            )
            count += not (below < high and low < above)
    return count


def doubtful(words, found, scale, law):
    """Which are not round(scale x), or within 1e-11 of a border, by scipy's doubles."""
    words, k = np.array(words), np.abs(np.array(found))
    if (np.sign(found) * np.where(words < 0, -1, 1) < 0).any():
        return range(len(words))  # a sign is wrong
    high = (2**63 - 1) - np.where(words < 0, -1 - words, words)
    low, up = (np.ldexp((high + end).astype(float), -64) for end in (0, 1))
    ends = [np.maximum((k + half) / scale, 0) for half in (0.5, -0.5)]
    if law is GAUSSIAN:
        below, above = (stats.norm.sf(x) for x in ends)
    else:
        below, above = (np.exp(-x) / 2 for x in ends)
    clear = (below * (1 + 1e-11) < low) & ((up < above * (1 - 1e-11)) | (k == 0))
    return np.flatnonzero(~clear)


def everywhere(count, seed, tails=4):
    """Words over the whole range, 2 of ``tails`` of them in the tails."""
    random = np.random.default_rng(seed)
    words = random.integers(LOWEST, HIGHEST, count, endpoint=True)
    tail = random.integers(0, 2**63, count) >> random.integers(0, 63, count)
    words[1::tails] = HIGHEST - tail[1::tails]
    words[tails - 1 :: tails] = LOWEST + tail[tails - 1 :: tails]
    words[2::16] >>= 40  # next to 0
    return words.tolist()


class TestSound:
    @pytest.mark.sampled(7)
    @LAWS
    @SCALES
    def test_equals_mpmath(self, law, power):
        words = everywhere(1000, power)
        words += [0, -1, 1, HIGHEST, LOWEST, HIGHEST - 1, LOWEST + 1]
        scale = 2.0**power * (1 if power in (4, 30) else 1.23456789)
        found = drawn(fixed(words, 2**511 + 12345), scale, law)
        assert wrong(words, found.flatten().tolist(), scale, law) == 0

    @pytest.mark.full
    @LAWS
    def test_equals_mpmath_a_million_times(self, law):
        """Those next to a border, and 1 of 20 others; scipy's doubles say which."""
        asked = 0
        for power, seed in itertools.product((4, 12, 20, 26, 30), range(4)):
            words = everywhere(50_000, seed, tails=16)
            at = fixed(words, 2**511 + 12345)
            found = drawn(at, 2.0**power, law).flatten().tolist()
            some = {*doubtful(words, found, 2.0**power, law), *range(0, 50_000, 20)}
            asked += len(some)
            words, found = ([of[i] for i in some] for of in (words, found))
            assert wrong(words, found, 2.0**power, law) == 0
        assert 50_000 < asked < 300_000

    @pytest.mark.sized
    @pytest.mark.sampled(4)
    @LAWS
    def test_what_is_clear_is_right(self, law):
        """The doubles of the test above pass nothing that mpmath would not."""
        words = everywhere(size(3000, 500), 5)
        for power in (4, 20, 30):
            found = drawn(fixed(words, 2**511 + 12345), 2.0**power, law).flatten()
            found = found.tolist()
            for off in (-1, 1):
                bad = [k + off for k in found]
                assert len(doubtful(words, bad, 2.0**power, law)) == len(words)

    @pytest.mark.sampled(30)
    @LAWS
    @SCALES
    def test_words_at_the_borders(self, law, power):
        """The word that holds a border is decided by its further bits, no other is."""
        scale, random = 2.0**power, np.random.default_rng(power)
        ks = [0, 1, *random.integers(2, int(6 * scale), 30).tolist()]
        for k in ks:
            with mpmath.workdps(400):
                border = cumulative(law, (k + mpmath.mpf(0.5)) / scale) * 2**63
                word = int(mpmath.floor(border))
                # Further bits are of the upper tail: 0 is the highest u.
                rest = int(mpmath.floor((1 - (border - word)) * 2**512))
            near = [word - 1, word, word + 1]
            for mirror in (False, True):
                given = [-1 - w if mirror else w for w in near]
                for further, middle in ((rest + 1, k), (rest - 1, k + 1)):
                    found = drawn(fixed(given, further), scale, law).flatten().abs()
                    assert found[1] == middle
                    if k < 2 * scale:  # further out a word holds many borders
                        assert found[[0, 2]].tolist() == [k, k + 1]

    @LAWS
    def test_extreme_words_have_no_end(self, law):
        """The tail goes on beyond what 64 bits can say."""
        found = [
            int(drawn(fixed([LOWEST], further), 16.0, law)[0, 0, 0])
            for further in (2**512 - 1, 2**400, 2**12)
        ]
        with mpmath.workdps(300):
            for k, further in zip(found, (2**512 - 1, 2**400, 2**12), strict=True):
                tail = (further + mpmath.mpf(0.5)) / mpmath.mpf(2) ** 576
                x = (
                    -mpmath.log(2 * tail)
                    if law is LAPLACE
                    else mpmath.findroot(
                        lambda x, t=tail: (
                            mpmath.log(mpmath.erfc(x / mpmath.sqrt(2)) / 2)
                            - mpmath.log(t)
                        ),
                        -k / 16,
                    )
                )
                assert k == -int(mpmath.nint(16 * x))
        assert int(drawn(fixed([HIGHEST], 2**400), 16.0, law)[0, 0, 0]) == -found[1]

    @pytest.mark.sampled(3)
    @LAWS
    def test_the_doubles_are_as_exact_as_assumed(self, law):
        """A hundredfold: what noise.md assumes of torch on this machine."""
        random, worst = np.random.default_rng(0), 0.0
        u = np.concatenate([random.random(1500), 2.0 ** -random.uniform(0, 60, 500)])
        first = law.quantile(torch.from_numpy(u.copy()))
        tails = 2.0 ** -random.uniform(1, 64, 2000)
        far = law.far(torch.from_numpy(tails))
        with mpmath.workdps(50):
            for value, x in zip(u.tolist(), first.tolist(), strict=True):
                if abs(x) <= law.limit:
                    v = mpmath.mpf(value)
                    true = mpmath.erfinv(v) if law is GAUSSIAN else -mpmath.log1p(-v)
                    worst = max(worst, abs(float((x - true) / true)))
            for tail, x in zip(tails.tolist(), far.tolist(), strict=True):
                if tail < 0.49:
                    slope = -mpmath.npdf(x) if law is GAUSSIAN else -mpmath.exp(-x) / 2
                    off = (law.tail(mpmath, mpmath.mpf(x)) - tail) / slope
                    worst = max(worst, abs(float(off / x)))
        assert worst < noise.ERROR / 100

    @pytest.mark.sampled(3)
    @LAWS
    def test_the_loops_are_as_exact_as_assumed(self, law):
        random = np.random.default_rng(0)
        words = random.integers(LOWEST, HIGHEST, 2000, endpoint=True)
        words[::4] >>= random.integers(0, 60, 500)
        words[1::4] = HIGHEST - (words[1::4] >> random.integers(0, 10, 500))
        worst = asked = 0.0
        with mpmath.workdps(50):
            for word in words.tolist():
                v = mpmath.mpf(word) / 2**63
                if law is GAUSSIAN:
                    true = mpmath.erfinv(v) * mpmath.sqrt(2)
                else:
                    true = -mpmath.sign(v) * mpmath.log1p(-abs(v))
                if abs(true) <= law.reach:
                    x = loops._quantile(word, law is GAUSSIAN)
                    asked += 1
                    # The middle of the word: a spread that `slip` has beside the error.
                    spread = 2.0**-65 / float(law.density(abs(float(true))))
                    worst = max(worst, abs(float(x - true)) - spread)
        assert asked > 1000
        assert worst < noise.ERROR * law.reach / 100

    def test_the_loops_leave_out_what_is_near_a_border(self):
        values, made = np.zeros((1, 1, 4000)), np.zeros((1, 1, 4000))
        words, unsure = np.array([[everywhere(4000, 3)]]), np.zeros((1, 1, 4000), bool)
        margin = 5.0, 0.45, 3.0
        loops.noisy(
            values, made, (1.0, 1.0, 1e9), words, unsure, (0, 0, 0), margin, True
        )
        x = np.array([loops._quantile(word, True) for word in words[0, 0].tolist()])
        left = (np.abs(5 * x - np.rint(5 * x)) > 0.45) | (np.abs(x) > 3)
        assert 100 < left.sum() < 4000
        assert (unsure == left).all()
        assert (made == np.where(left, 0, np.rint(5 * x))).all()

    def test_beyond_the_limit_the_loops_stay_there(self):
        """The ratio's slope has the sign of a polynomial without negative numbers."""
        over, under = np.poly1d(quantiles.OVER), np.poly1d(quantiles.UNDER)
        assert ((over.deriv() * under - over * under.deriv()).coeffs > 0).all()
        most = loops._quantile(HIGHEST, True)
        assert most == -loops._quantile(LOWEST, True) > GAUSSIAN.reach
        most = loops._quantile(HIGHEST, False)
        assert most == -loops._quantile(LOWEST, False) > LAPLACE.reach

    def test_where_numba_is_not(self, monkeypatch, way):
        wanted = drawn(rows(1000), 2.0**28)
        monkeypatch.setitem(sys.modules, "trainers.numerics.loops", None)
        monkeypatch.setattr(noise, "_loops", noise._Loops())
        assert torch.equal(drawn(rows(1000), 2.0**28), wanted)
        assert noise._loops.fit(wanted) is None

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("wrong", [None, ValueError("no such instruction")])
    def test_loops_that_fail_are_not_used(self, monkeypatch, way, wrong):
        """A compiler that fails, or makes other numbers, ends no training."""

        def add_noise(sums, words, *_):
            if wrong:
                raise wrong
            sums += 1

        wanted = drawn(rows(1000), 2.0**28)
        monkeypatch.setattr(noise, "LATER", 0)
        monkeypatch.setattr(noise, "_loops", noise._Loops())
        monkeypatch.setattr(loops, "add_noise", add_noise)
        with pytest.warns(RuntimeWarning, match=str(wrong or "other numbers")):
            found = drawn(rows(1000), 2.0**28)
        assert torch.equal(found, wanted)

    def test_loops_are_loaded_where_it_pays(self, monkeypatch):
        monkeypatch.setattr(noise, "_loops", noise._Loops())
        monkeypatch.setattr(noise, "LATER", 2500)
        taken = [noise._loops.fit(torch.zeros(1000)) for _ in range(3)]
        assert taken == [None, None, loops]
        assert noise._loops.fit(torch.zeros(1000, dtype=torch.bfloat16)) is None
        assert noise._loops.fit(torch.zeros(20, 50).T) is None

    def test_the_first_pass_leaves_few(self):
        """Else it would be slow; and the margin is there at all."""
        words = rows(1 << 16).words(CPU).flatten()
        memory = [
            torch.empty(1 << 16, dtype=kind)
            for kind in (torch.double, torch.double, torch.bool)
        ]
        shares = [
            float(noise._first_pass(words, scale, GAUSSIAN, memory)[1].double().mean())
            for scale in (2.0**20, 2.0**30)
        ]
        assert 0.002 < shares[0] < 0.0035
        assert shares[0] < shares[1] < 0.005

    @LAWS
    @pytest.mark.parametrize("millions", [1, pytest.param(100, marks=pytest.mark.full)])
    def test_distribution(self, law, millions):
        scale, most, n = 16.0, 40 if law is GAUSSIAN else 100, millions * 10**6
        counts = np.zeros(2 * most + 1)
        moments = np.zeros(4)
        for release in range(millions):
            k = drawn(rows(10**6, release=release), scale, law).numpy().ravel()
            clipped = k.clip(-most, most) + most
            counts += np.bincount(clipped, minlength=2 * most + 1)
            moments += [float((k**power).sum()) for power in (1, 2, 3, 4)]
        model = stats.norm(scale=scale) if law is GAUSSIAN else stats.laplace(0, scale)
        edges = np.arange(-most, most) + 0.5
        chances = np.diff(np.concatenate([[0], model.cdf(edges), [1]]))
        assert stats.chisquare(counts, n * chances).pvalue > 1e-3
        mean, square, cube, fourth = moments / n / scale ** np.arange(1, 5)
        two, four, eight = (1, 3, 105) if law is GAUSSIAN else (2, 24, 40320)
        assert abs(mean) < 4 * math.sqrt(two / n)
        assert abs(square - two - 1 / 12 / scale**2) < 4 * math.sqrt(four / n)
        assert abs(cube) < 4 * math.sqrt((15 if law is GAUSSIAN else 720) / n)
        grid = two / 2 / scale**2 + 1 / 80 / scale**4  # Sheppard
        assert abs(fourth - four - grid) < 4 * math.sqrt(eight / n)

    def test_far_tails(self):
        k = torch.cat([drawn(rows(10**6, release=r), 16.0).flatten() for r in range(4)])
        for beyond in (3, 4, 5):
            expected = 4e6 * 2 * stats.norm.sf((16 * beyond + 0.5) / 16)
            found = int((k.abs() > 16 * beyond).sum())
            assert abs(found - expected) < 4 * math.sqrt(expected) + 1

    def test_low_bits_are_fair(self):
        """What plain floats gave away (Mironov 2012)."""
        k = drawn(rows(10**6), 2.0**20).flatten()
        for bit in range(12):
            ones = int(((k >> bit) & 1).sum())
            assert abs(ones - 5e5) < 4 * 500

    @LAWS
    @given(
        st.floats(0.0, 6.0), st.floats(2.0**20, 2.0**30), st.integers(-(2**20), 2**20)
    )
    def test_at_half_an_integer_the_tail_decides(self, law, x, scale, beside):
        """The tail at a half-integer, to 64 bits and some units beside it."""
        below = math.floor(x * scale)
        with mpmath.workprec(400):
            tail = law.tail(mpmath, (mpmath.mpf(below) + 0.5) / mpmath.mpf(scale))
            high = int(mpmath.floor(tail * 2**64)) + beside
        found, sure = noise._third_pass(
            np.array([high]), np.array([below + 0.5]), scale, law
        )
        if sure[0]:  # and then it is as mpmath says, which knows no table
            assert beside
            assert found[0] == below + (beside < 0)
        # It must be sure but for a hundredth of what the second pass leaves.
        assert sure[0] or abs(beside) < 5000 + 2.0**64 * 1e-15 * law.density(x)

    @LAWS
    def test_tails_of_the_table(self, law):
        """Between its points the integral of the density makes the tail."""
        for number in (0, 1, 63, 64, 320):
            with mpmath.workprec(200):
                tail = (1 - cumulative(law, mpmath.mpf(number) / 64)) / 2
                known = mpmath.mpf(noise._tail_at(law, number))
                assert abs(tail * 2**64 - known) <= 1


class TestLaws:
    @LAWS
    @pytest.mark.parametrize("piece", [64, 1000, 1 << 16])
    def test_equal_bits_in_pieces_of_any_size(self, monkeypatch, law, piece):
        where = {"nodes": (4, 1, 7), "release": 3}
        wanted = drawn(rows(200, runs=range(10, 15), **where), 2.0**28, law)
        monkeypatch.setattr(keys, "PIECE", piece // 8 * 8)
        assert torch.equal(
            drawn(rows(200, runs=range(10, 15), **where), 2.0**28, law), wanted
        )
        for run, column in itertools.product(range(5), range(3)):
            alone = {"nodes": where["nodes"][column : column + 1], "release": 3}
            one = drawn(
                rows(200, runs=range(10 + run, 11 + run), **alone), 2.0**28, law
            )
            assert torch.equal(one[0, 0], wanted[run, column])

    @pytest.mark.sampled(3)
    @LAWS
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("width", [3, 64, 501])
    @pytest.mark.parametrize("piece", [64, 1 << 17])
    def test_in_one_or_in_three(self, monkeypatch, law, dtype, width, piece):
        monkeypatch.setattr(keys, "PIECE", piece)
        with scratch(piece, (torch.double, torch.double, torch.bool), CPU) as memory:
            memory[2].fill_(True)  # what is left there by others
        at = rows(width, nodes=range(3), runs=range(40))
        values = 1e3 * torch.randn(40, 3, width, dtype=dtype)
        step = 2.0**-10
        sums = add_noise_(noise.to_grid(values, step), at, 2.0**29, law)
        three = noise.from_grid(sums, step, dtype)
        assert torch.equal(noisy(values, step, at, 2.0**29, law), three)
        found = noisy(values, step, at, 2.0**29, law, spent=True)
        assert torch.equal(found, three)
        inside = found.data_ptr() == values.data_ptr()
        assert inside == (dtype == torch.float64)

    def test_what_is_added_is_added(self):
        sums = torch.arange(-30, 30).view(2, 3, 10) * 2**55
        at = rows(10, nodes=range(3), runs=range(2))
        assert torch.equal(add_noise_(sums.clone(), at, 1e5) - sums, drawn(at, 1e5))

    def test_a_device_gives_the_same(self, monkeypatch):
        class Elsewhere:
            type = "elsewhere"

        table, scratch = keys.table, keys.scratch
        monkeypatch.setattr(keys, "table", lambda data, device: table(data, CPU))
        monkeypatch.setattr(
            noise, "scratch", lambda n, kinds, _: scratch(n, kinds, CPU)
        )
        at = rows(300, nodes=range(2), runs=range(9))
        found = torch.empty(at.shape, dtype=torch.int64)

        def use(piece, whole, spare):
            found[piece.where] = piece.arranged(whole.long())

        monkeypatch.setattr(noise, "LATER", math.inf)
        monkeypatch.setattr(noise, "_loops", noise._Loops())
        first = noise._first(found, use, None)
        places, left = noise._draw(at, 2.0**30, GAUSSIAN, Elsewhere(), first)
        found[places] += left.long()
        assert len(left)
        assert torch.equal(found, drawn(at, 2.0**30))

    @given(st.floats(1e-200, 1e200), st.integers(4, 29))
    def test_grid(self, deviation, bits):
        step = noise.grid(deviation, bits)
        assert math.frexp(step)[0] == 0.5
        assert 2**bits <= deviation / step < 2 ** (bits + 1)

    def test_rounding_is_within_what_it_is_said_to_cost(self):
        values = torch.randn(50, 1, 30, dtype=torch.float64)
        off = noise.to_grid(values, 0.25).double() * 0.25 - values
        assert off.norm(dim=2).max() <= noise.rounding_l2_up(0.25, 30)
        assert off.abs().sum(2).max() <= noise.rounding_l1_up(0.25, 30)
        assert noise.rounding_l2_up(0.25, 16, 3) == pytest.approx(1.5)
        assert noise.rounding_l2_up(0.25, 3) ** 2 >= fractions.Fraction(3, 64)
        assert noise.rounding_l1_up(0.25, 30, 2) == 7.5

    @pytest.mark.sampled(2)
    def test_without_numbers(self, monkeypatch):
        """Shapes are right, and after the first time nothing is sent to a device."""
        meta = torch.device("meta")

        def all_of_it():
            at = rows(19, nodes=range(2), runs=range(3))
            values = torch.empty(at.shape, device=meta)
            made = [
                add_noise_(noise.to_grid(values, 0.5), at, 2.0**20),
                noisy(values, 0.5, at, 2.0**20, LAPLACE),
                coins(at, 1e-9, meta),
                noise.subsets(at, 4, meta),
            ]
            assert all(one.shape == at.shape and one.device == meta for one in made)

        all_of_it()
        for name in ("from_numpy", "tensor", "as_tensor"):
            monkeypatch.delattr(torch, name)
        all_of_it()


class TestCoins:
    @given(st.floats(0, 1), st.integers(0, 2**512 - 2), st.integers(-1, 1))
    def test_exact_for_the_float(self, rate, further, beside):
        scaled = fractions.Fraction(rate) * 2**64
        word = min(max(math.floor(scaled) + beside, 0), 2**64 - 1)
        u = (word + fractions.Fraction(further, 2**512 - 1)) / 2**64  # again and again
        assert bool(coins(fixed([word + LOWEST], further), rate, CPU)) == (u < rate)

    @pytest.mark.parametrize("rate", [5e-324, 3 * 2.0**-66, 2.0**-64, 1e-18])
    def test_small_rates(self, rate):
        """Their word alone does not decide."""
        border = math.floor(fractions.Fraction(rate) * 2**64) + LOWEST
        rest = fractions.Fraction(rate) * 2**576 % 2**512
        for further in {0, 2**512 - 1, math.ceil(rest), max(0, math.ceil(rest) - 1)}:
            expected = further < rest
            assert bool(coins(fixed([border], further), rate, CPU)) == expected

    @pytest.mark.parametrize("beside", [-1, 0, 1])
    def test_equal_bits_leave_it_to_the_next(self, beside):
        rate = fractions.Fraction((3 << 512) + 5, 1 << 1024)
        assert noise._less(rate, [3, 5 + beside].__getitem__) == (beside < 0)

    def test_ends(self):
        at = rows(1000)
        assert coins(at, 1.0, CPU).all()
        assert not coins(at, 0.0, CPU).any()

    @pytest.mark.parametrize("rate", [0.5, 0.01, 1 / 3])
    def test_frequency(self, rate):
        count = int(coins(rows(10**6), rate, CPU).sum())
        assert abs(count - 1e6 * rate) < 4 * math.sqrt(1e6 * rate * (1 - rate))


class TestSubsets:
    def test_all_are_as_likely(self):
        chosen = noise.subsets(rows(5, runs=range(50_000)), 2, CPU)[:, 0]
        assert (chosen.sum(1) == 2).all()
        codes = (chosen * 2 ** torch.arange(5)).sum(1)
        counts = codes.unique(return_counts=True)[1]
        assert len(counts) == 10
        assert stats.chisquare(counts.numpy()).pvalue > 1e-3

    def test_permutations_are_as_likely(self):
        order = noise.permutations(rows(4, runs=range(50_000)))[:, 0]
        counts = (order * 4 ** torch.arange(4)).sum(1).unique(return_counts=True)[1]
        assert len(counts) == 24
        assert stats.chisquare(counts.numpy()).pvalue > 1e-3

    def test_equal_words_are_no_bias(self, monkeypatch):
        """Further bits decide: not the place in the row."""
        words = [7, 1, 7, 7, 9, 7]
        at = fixed(words)
        monkeypatch.setattr(Fixed, "further", lambda _: fixed([40, 0, 10, 30, 0, 20]))
        chosen = noise.subsets(at, 3, CPU)[0, 0].nonzero().flatten().tolist()
        assert chosen == [1, 2, 5]
        assert noise.permutations(at)[0, 0].tolist() == [1, 2, 5, 3, 0, 4]

    @pytest.mark.parametrize("size", [0, 5])
    def test_ends(self, size):
        assert (noise.subsets(rows(5), size, CPU).sum(2) == size).all()


class TestAllocations:
    def test_integers_are_exact(self):
        """Uniform numbers of infinitely many bits, at the borders and beside them."""
        more = random.Random(0)
        for _ in range(300):
            below, further = more.randrange(1, 2**31), more.randrange(2**512 - 1)
            border = -(-more.randrange(below) * 2**64 // below)
            word = min(max(border + more.randrange(-1, 2), 0), 2**64 - 1)
            u = (word + fractions.Fraction(further, 2**512 - 1)) / 2**64
            at = fixed([word + LOWEST], further)
            drawn = noise.integers(at, torch.tensor([below]))
            assert int(drawn) == math.floor(u * below)

    @pytest.mark.parametrize(("batches", "taken"), [(5, 1), (5, 2), (4, 3), (3, 3)])
    def test_all_choices_are_as_likely(self, batches, taken):
        at = rows(2 * taken, runs=range(40_000))
        made = torch.stack(noise.allocations(at, batches, taken), 3)[:, 0]
        codes = (2**made).sum(2)  # of each record
        assert all(int(code).bit_count() == taken for code in codes.unique())
        kinds = math.comb(batches, taken)
        pairs = codes[:, 0] * 2**batches + codes[:, 1]  # two records are independent
        counts = pairs.unique(return_counts=True)[1]
        assert len(counts) == kinds**2
        if kinds > 1:
            assert stats.chisquare(counts.numpy()).pvalue > 1e-3


class TestRefused:
    @pytest.mark.parametrize("value", [math.inf, math.nan, 2.0**53, -(2.0**53)])
    def test_sums_that_could_overflow(self, value):
        values = torch.zeros(1, 1, 9, dtype=torch.float64)
        values[0, 0, 8] = value
        for refused in (
            lambda: noise.to_grid(values, 1.0),
            lambda: noisy(values, 1.0, rows(9), 16.0),
        ):
            with pytest.raises(ValueError, match="not finite or above"):
                refused()

    def test_many_parts_may_each_be_less(self):
        values = torch.full((1, 1, 1), 2.0**51, dtype=torch.float64)
        noise.to_grid(values, 1.0, parts=2**11)
        with pytest.raises(ValueError, match="adding up could overflow"):
            noise.to_grid(values, 1.0, parts=2**12)

    @pytest.mark.parametrize("value", [LOWEST, HIGHEST, 2**62, -(2**62)])
    def test_noise_that_overflows(self, value):
        sums = torch.tensor([[[0, value]]])
        with pytest.raises(ValueError, match=r"beyond 2\^62"):
            add_noise_(sums, rows(2), 16.0)
        assert sums.tolist() == [[[0, value]]]

    @pytest.mark.parametrize("scale", [15.9, 2.0**30.1, math.nan, math.inf])
    def test_scales(self, scale):
        with pytest.raises(ValueError, match=r"2\^4 to 2\^30 steps"):
            drawn(rows(2), scale)

    @pytest.mark.parametrize("step", [0.3, 0.0, -0.5, math.inf, math.nan])
    def test_steps(self, step):
        with pytest.raises(ValueError, match="power of two"):
            noise.to_grid(torch.zeros(1), step)

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: noise.grid(0.0), "deviation in"),
            (lambda: noise.grid(math.nan), "deviation in"),
            (lambda: noise.grid(1.0, 30), r"2\^4 to 2\^29"),
            (lambda: add_noise_(torch.zeros(1, 1, 2), rows(2), 16.0), "int64 of shape"),
            (lambda: noisy(torch.zeros(1, 2), 1.0, rows(2), 16.0), "of shape"),
            (lambda: coins(rows(2), 1.1, CPU), "rate must be"),
            (lambda: coins(rows(2), math.nan, CPU), "rate must be"),
            (lambda: noise.subsets(rows(2), 3, CPU), "0 to 2 elements"),
        ],
    )
    def test_the_rest(self, call, message):
        with pytest.raises(ValueError, match=message):
            call()
