"""Secret parts, held against the mixture itself: integrated, or drawn."""

import itertools
import math

import msgspec
import numpy as np
import pytest
from scipy import special

import privaudit as pa
from privaudit import mechanisms
from privaudit.accounting.bins import (
    _least_overlaps,
    _nest,
    _overlaps,
    _tree,
    bins_of,
)
from privaudit.accounting.factorization import blt, toeplitz, turn_rows
from privaudit.accounting.overlaps import may_be_worst
from privaudit.accounting.pld.allocation import Epoch, epoch_masses
from privaudit.accounting.witness import witness
from privaudit.ledger import Entry

ADD = "add-or-remove-one"
PAIRS = ((0.3, 0.97), (0.5, 0.6))


def turns(parts, often, noise, shares=(), buffers=(), *, secret=True):
    """Entries of so many turns, as a run has them; ``noise`` over the first's norm."""
    how = pa.PoissonSampling(1.0, parts, tuple(shares), tuple(buffers), secret=secret)
    norms = [math.hypot(1.0, *shares)] * often
    if buffers:
        norms = np.linalg.norm(turn_rows(how.buffers, parts, often), axis=1).tolist()
    made = [
        pa.Release.of_sum(
            norm_bound=norm,
            noise_multiplier=noise * norms[0] / norm,
            sampling=msgspec.structs.replace(how, turn=number if buffers else 0),
        )
        for number, norm in enumerate(norms)
    ]
    if buffers:
        return tuple(map(Entry, made))
    return (Entry(made[0], often),)


def known(entries, relation=ADD):
    """Whether all turns count as those of known parts."""
    bins, rest = bins_of(entries, relation)
    assert not rest
    assert {turn for one in bins for turn in one.turns} == set(entries)
    return all(one.square is None for one in bins)


def certificate(*args, **more):
    return pa.Certificate.of(pa.Ledger(nodes=(turns(*args, **more),)))


def gram(parts, often, noise, shares=(), buffers=()):
    """Inner products of what each part moves, by C's rows written out."""
    steps = parts * often
    column = np.zeros(steps)
    if buffers:
        column += turn_rows(tuple(buffers), steps, 1)[0]
    else:
        column[: len(shares) + 1] = (1.0, *shares)[:steps]
    first = column[:parts] if buffers else column
    moves = np.zeros((steps, parts))
    for part in range(parts):
        for start in range(part, steps, parts):
            moves[start:, part] += column[: steps - start]
    return moves.T @ moves / (noise**2 * (first @ first))


def drawn(inner, epsilon, often=100_000, seed=0):
    """delta of the mixture against noise, both ways, and its error, by simulation."""
    rng = np.random.default_rng(seed)
    size, half = len(inner), np.diag(inner) / 2
    root = np.linalg.cholesky(inner + 1e-12 * np.eye(size) * inner[0, 0])
    noise = rng.standard_normal((often, size)) @ root.T
    there = inner[rng.integers(0, size, often)] + noise - half
    losses = np.log(np.exp(there).mean(1)), -np.log(np.exp(noise - half).mean(1))
    found = [
        np.maximum(0.0, -np.expm1(epsilon - np.maximum(x, epsilon))) for x in losses
    ]
    return [(one.mean(), one.std() / math.sqrt(often)) for one in found]


def integrated(inner, epsilon):
    """delta of two parts, the larger of both ways, on a fine grid of outputs."""
    root = np.linalg.cholesky(inner)
    at = np.linspace(-12, 12, 2401)
    first, second = np.meshgrid(at, at, indexing="ij")
    weight = np.exp(-(first**2 + second**2) / 2) / (2 * math.pi) * (at[1] - at[0]) ** 2
    along = root[:, 0, None, None] * first + root[:, 1, None, None] * second
    ratio = np.exp(along - np.diag(inner)[:, None, None] / 2).mean(0)
    remove = (weight * np.maximum(0.0, ratio - math.exp(epsilon))).sum()
    add = (weight * np.maximum(0.0, 1 - math.exp(epsilon) * ratio)).sum()
    return max(remove, add)


class TestBrackets:
    @pytest.mark.parametrize(
        ("often", "noise", "more"),
        [
            (1, 1.0, {"buffers": ((0.4, 0.9),)}),
            (3, 3.0, {"buffers": PAIRS}),
            (1, 0.7, {"shares": (0.9,)}),
            (3, 2.5, {"shares": (0.5,)}),
            (4, 2.0, {"shares": (-0.5,)}),
        ],
    )
    @pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
    def test_two_parts_integrated(self, often, noise, more, epsilon):
        truth = integrated(gram(2, often, noise, **more), epsilon)
        found = certificate(2, often, noise, **more).delta(epsilon)
        assert found.lower <= truth * (1 + 1e-4)
        assert truth * (1 - 1e-4) <= found.upper
        known = certificate(2, often, noise, **more, secret=False).delta(epsilon)
        assert found.upper <= known.upper * (1 + 1e-9)

    @pytest.mark.parametrize("seed", range(12))
    def test_more_parts_drawn(self, seed):
        rng = np.random.default_rng([seed, 26])
        parts, often = int(rng.integers(3, 60)), int(rng.integers(1, 6))
        more = {
            0: lambda: {"buffers": blt(parts * often, parts, int(rng.integers(1, 4)))},
            1: lambda: {
                "shares": toeplitz(parts * often, int(rng.integers(2, parts)))[1:]
            },
            2: lambda: {"shares": rng.uniform(-0.5, 0.5, min(parts - 1, 6)).tolist()},
        }[seed % 3]()
        noise = float(np.exp(rng.uniform(-0.3, 0.7))) * math.sqrt(often)
        made = certificate(parts, often, noise, **more)
        inner = gram(parts, often, noise, **more)
        for epsilon in (0.2, 0.8):
            found = made.delta(epsilon)
            (remove, error), (add, other) = drawn(inner, epsilon, seed=seed)
            # Of what is rare none may be drawn.
            assert found.lower <= max(remove + 5 * error, add + 5 * other) + 2e-4
            assert found.upper >= max(remove - 5 * error, add - 5 * other)

    @pytest.mark.parametrize(("parts", "often"), [(7, 1), (20, 5)])
    def test_noise_that_is_not_shared_is_random_allocation(self, parts, often):
        """Of as many batches, each of all turns together."""
        how = pa.RandomAllocation(parts)
        one = pa.Release.of_sum(
            norm_bound=1.0, noise_multiplier=3.0 / math.sqrt(often), sampling=how
        )
        other = pa.epsilon(ledger=pa.Ledger.of(one, parts), delta=1e-5)
        found = certificate(parts, often, 3.0).epsilon(1e-5)
        assert found.upper == pytest.approx(other.upper, rel=1e-3)
        assert found.lower == pytest.approx(other.lower, rel=1e-3)

    @pytest.mark.parametrize(
        "more", [{"shares": toeplitz(200, 8)[1:]}, {"buffers": blt(200, 20, 2)}]
    )
    def test_a_secret_part_is_worth_something(self, more):
        known = certificate(20, 10, 8.0, **more, secret=False).epsilon(1e-5)
        found = certificate(20, 10, 8.0, **more).epsilon(1e-5)
        assert found.upper < 0.85 * known.upper
        assert found.lower > 0.4 * found.upper

    @pytest.mark.parametrize("often", [1, 4])
    @pytest.mark.parametrize(
        "more", [{"shares": toeplitz(100, 4)[1:]}, {"buffers": PAIRS}, {}]
    )
    @pytest.mark.parametrize("parts", [7, 100])
    def test_as_much_as_the_first_part_alone_tells_at_any_noise(
        self, parts, more, often
    ):
        """Whose chance is one of so many: by thresholds along what it moves."""
        at = np.linspace(-10, 60, 4000)
        for noise in (0.05, 0.5, 20.0):
            far = math.sqrt(gram(parts, often, noise, **more)[0, 0])
            found = certificate(parts, often, noise, **more)
            there = special.ndtr(far - at) / parts
            truth = (there - math.exp(0.1) * special.ndtr(-at)).max()
            upper = found.delta(0.1, sides="upper").upper
            assert upper >= truth * (1 - 1e-9) - 1e-300

    def test_less_noise_tells_more(self):
        found = [
            certificate(20, 5, z, buffers=PAIRS).epsilon(1e-5).upper
            for z in np.geomspace(1.0, 20.0, 12)
        ]
        assert (np.diff(found) < 0).all()


class TestOverlaps:
    @pytest.mark.parametrize("seed", range(20))
    def test_bins_told_apart_have_no_more_in_common(self, seed):
        """Whatever a record's gradients are: they may turn with the signs of C."""
        rng = np.random.default_rng([seed, 27])
        parts, often = int(rng.integers(2, 14)), int(rng.integers(1, 5))
        shares = rng.uniform(-1, 1, int(rng.integers(0, parts))) ** 3
        more = {"shares": shares.tolist()} if seed % 2 else {"buffers": PAIRS}
        how = turns(parts, often, 1.0, **more)[0].release.sampling
        scale = 1 + shares @ shares if seed % 2 else 1.0
        sizes = {"shares": np.abs(shares)} if seed % 2 else more
        inner = gram(parts, often, 1.0, **sizes) * scale
        if not seed % 2:
            inner *= np.square(turn_rows(PAIRS, parts, 1)).sum()
        assert inner.diagonal().max() <= _overlaps(how, often)[0] * (1 + 1e-9)
        for noise in (0.1, 0.3, 1.0, 5.0):
            nest = _nest(how, often, 1 / noise**2)
            whole = nest.common + nest.block + nest.own
            assert whole * noise**2 >= inner.diagonal().max() * (1 - 1e-9)
            bins = [
                parts // nest.blocks * k + nest.apart * r
                for k in range(nest.blocks)
                for r in range(nest.bins)
            ]
            assert len({one % parts for one in bins}) == len(bins)
            common = np.kron(np.eye(nest.blocks), np.ones((nest.bins, nest.bins)))
            for first in range(parts):
                some = (first + np.array(bins)) % parts
                most = nest.common + common * nest.block + np.eye(len(bins)) * nest.own
                assert (inner[np.ix_(some, some)] <= most * noise**2 + 1e-9).all()

    @pytest.mark.parametrize("seed", range(40))
    def test_a_tree_has_no_more_in_common(self, seed):
        rng = np.random.default_rng([seed, 29])
        parts, often = int(rng.integers(2, 40)), int(rng.integers(1, 5))
        shares = np.sort(rng.uniform(0, 1, int(rng.integers(0, min(parts, 12)))))[::-1]
        more = {"shares": shares.tolist()} if seed % 2 else {"buffers": PAIRS}
        how = turns(parts, often, 1.0, **more)[0].release.sampling
        first = shares if seed % 2 else turn_rows(PAIRS, parts, 1)[0, 1:]
        for noise in (0.3, 1.0, 5.0):
            epoch, common = _tree(how, often, 1 / noise**2)
            inner = gram(parts, often, noise, **more) * (1 + first @ first)
            tree, level = np.zeros((1, 1)), epoch.inner
            levels = []
            while level is not None:
                levels.append(level.shifts[0] ** 2)
                assert (level.counts, level.batches) == ((2,), 2)
                level = level.inner
            for square in levels[::-1]:
                tree = np.kron(np.eye(2), tree + square)
            squares = np.repeat(np.square(epoch.shifts), epoch.counts)[::-1]
            size = len(tree)
            assert size * len(squares) <= parts <= size * epoch.batches
            whole = np.full((parts, parts), common)
            for block, square in enumerate(squares):
                some = slice(block * size, (block + 1) * size)
                whole[some, some] += tree + square
            assert (whole <= inner + 1e-9).all()

    @pytest.mark.parametrize("seed", range(20))
    def test_blocks_have_no_less(self, seed):
        rng = np.random.default_rng([seed, 28])
        parts, often = int(rng.integers(2, 40)), int(rng.integers(1, 5))
        shares = rng.uniform(0, 1, int(rng.integers(0, min(parts, 8))))
        more = {"shares": shares.tolist()} if seed % 2 else {"buffers": PAIRS}
        how = turns(parts, often, 1.0, **more)[0].release.sampling
        first = shares if seed % 2 else turn_rows(PAIRS, parts, 1)[0, 1:]
        inner = gram(parts, often, 1.0, **more) * (1 + first @ first)
        last, held, common = _least_overlaps(how, often)
        assert inner.min() >= common - 1e-9
        begin = 0
        for end, some in zip(last, held, strict=True):
            section = inner[begin : end + 1, begin : end + 1]
            for apart in range(len(section)):
                assert np.diag(section, apart).min() >= some[apart] - 1e-9
            begin = end + 1


class TestEntries:
    def test_a_record_replaced_has_a_known_part(self):
        entries = turns(5, 2, 3.0, (0.5,))
        assert known(entries, "replace-one")
        ledgers = [
            pa.Ledger(nodes=(turns(5, 2, 3.0, (0.5,), secret=secret),))
            for secret in (True, False)
        ]
        one, other = (
            pa.epsilon(ledger=each, delta=1e-5, relation="replace-one")
            for each in ledgers
        )
        assert one.upper == pytest.approx(other.upper, rel=1e-9)
        assert one.lower == 0  # who is not told the part learns less

    def test_of_turns_of_different_noise_most_are_of_known_parts(self):
        """A record may have one part in all of them."""
        loud, quiet = turns(10, 2, 8.0, (0.5,)), turns(10, 3, 4.0, (0.5,))
        (first, second), rest = bins_of((*loud, *quiet), ADD)
        assert (first.turns, second.turns, rest) == (loud, quiet, [])
        assert first.square is None
        assert second.square is not None
        beside = turns(10, 2, 8.0, (0.5,), secret=False)
        both, other = (
            pa.epsilon(ledger=pa.Ledger(nodes=(each,)), delta=1e-5)
            for each in ((*loud, *quiet), (*beside, *quiet))
        )
        assert both.upper == pytest.approx(other.upper, rel=1e-9)

    def test_turns_that_are_not_the_strategys_are_known(self):
        whole = turns(4, 3, 3.0, buffers=PAIRS)
        assert not known(whole)
        twice = (*whole[:2], Entry(whole[2].release, 2))
        for some in (whole[1:], whole[2:], whole[1:2], (*whole, whole[1]), twice):
            assert known(some)
        clipped = turns(10, 2, 8.0, (0.5,))
        release = msgspec.structs.replace(clipped[0].release, norm_bound=1.0)
        moved = msgspec.structs.replace(
            release.sensitivity, add_or_remove_one=1.0, replace_one=2.0
        )
        other = Entry(msgspec.structs.replace(release, sensitivity=moved))
        assert known((*clipped, other))

    def test_what_moves_nothing_is_left_out(self):
        some = turns(10, 2, 8.0, (0.5,))
        release = msgspec.structs.replace(
            some[0].release,
            sensitivity=msgspec.structs.replace(
                some[0].release.sensitivity, add_or_remove_one=0.0, replace_one=0.0
            ),
        )
        assert bins_of((*some, Entry(release, 3)), ADD) == bins_of(some, ADD)

    def test_coins_beside_a_secret_part(self):
        """With most of them the part hides more, with few the coins do."""
        how = pa.PoissonSampling(0.99, 100, secret=True)
        one = pa.Release.of_sum(norm_bound=1.0, noise_multiplier=4.0, sampling=how)
        found = pa.epsilon(ledger=pa.Ledger.of(one, 10), delta=1e-5)
        whole = certificate(100, 10, 4.0).epsilon(1e-5)
        assert found.upper == pytest.approx(whole.upper, rel=1e-9)
        assert found.lower == 0
        few = msgspec.structs.replace(
            one, sampling=pa.PoissonSampling(0.05, 3, secret=True)
        )
        plain = msgspec.structs.replace(one, sampling=pa.PoissonSampling(0.05))
        found = pa.epsilon(ledger=pa.Ledger.of(few, 10), delta=1e-5)
        other = pa.epsilon(ledger=pa.Ledger.of(plain, 10), delta=1e-5)
        assert found.upper == pytest.approx(other.upper, rel=1e-9)

    def test_a_budget_pays_turn_by_turn_as_if_the_part_were_known(self):
        """Later turns are of the part that earlier ones have told."""
        (entry,) = turns(1000, 1, 1.2)
        typical = pa.Release.of(mechanisms.EpsilonDelta(0.05, 1e-7))
        for more in ({}, {"typical": typical}):
            rooms = [
                pa.Budget(epsilon=2, delta=1e-5, **more).room(one)
                for one in (entry.release, entry.release.of_known_part())
            ]
            assert rooms[0] == rooms[1] == 0
        many = turns(100, 1, 9.0)[0].release
        budget = pa.Budget(epsilon=2, delta=1e-5)
        budget.spend(many)
        other = pa.Budget(epsilon=2, delta=1e-5)
        other.spend(many.of_known_part())
        assert budget.left == other.left

    def test_a_node_whose_parts_are_others_may_be_the_worst(self):
        """A rate of 1 is no larger sample, if it is of a part."""
        secret = turns(100, 10, 4.0)
        coins = Entry(
            msgspec.structs.replace(
                secret[0].release, sampling=pa.PoissonSampling(0.99, 100)
            ),
            10,
        )
        assert may_be_worst([secret, (coins,)], 1) == (0, 1)
        first, second = turns(100, 10, 8.0, (0.5,)), turns(50, 10, 8.0, (0.5,))
        for nodes in ((first, first, second), (first, second, second)):
            ledger = pa.Ledger(nodes=nodes)
            found = pa.Certificate.of(ledger, overlap=2).epsilon(1e-5)
            one = pa.epsilon(ledger=pa.Ledger(nodes=(second,)), delta=1e-5)
            assert found.upper > one.lower > 0

    def test_other_releases_are_composed(self):
        plain = Entry(
            pa.Release.of_sum(
                norm_bound=1.0, noise_multiplier=2.0, sampling=pa.NoSampling()
            )
        )
        some = turns(10, 2, 8.0, (0.5,))
        alone = pa.epsilon(ledger=pa.Ledger(nodes=(some,)), delta=1e-5)
        both = pa.epsilon(ledger=pa.Ledger(nodes=((*some, plain),)), delta=1e-5)
        known = turns(10, 2, 8.0, (0.5,), secret=False)
        most = pa.epsilon(ledger=pa.Ledger(nodes=((*known, plain),)), delta=1e-5)
        assert alone.upper < both.lower < both.upper < most.upper

    def test_two_runs_may_deal_parts_anew(self):
        """Less is told then than by one part in both."""
        one, whole = turns(10, 1, 2.0), certificate(10, 2, 2.0).delta(0.5)
        both = pa.Ledger.composed([pa.Ledger(nodes=(one,))] * 2)
        found = pa.Certificate.of(both).delta(0.5)
        assert (found.lower, found.upper) == (0, pytest.approx(whole.upper, rel=1e-9))
        inner = gram(10, 1, 2.0)
        pairs = np.kron(inner, np.ones((10, 10))) + np.kron(np.ones((10, 10)), inner)
        (remove, error), _ = drawn(pairs, 0.5)
        assert remove + 5 * error < whole.lower

    def test_a_group_has_known_parts(self):
        found = [
            pa.epsilon(
                ledger=pa.Ledger(nodes=(turns(10, 2, 8.0, (0.5,), secret=secret),)),
                delta=1e-5,
                group=2,
            )
            for secret in (True, False)
        ]
        assert found[0].upper == found[1].upper
        assert found[0].lower == 0 < found[1].lower

    def test_the_kernel_is_told_that_it_does_not_cover_them(self):
        ledger = pa.Ledger(nodes=(turns(10, 2, 8.0, (0.5,)),))
        found = witness(ledger, ADD, 1e-5, (0.0, 9.0))
        (line,) = found["nodes"][0]["groups"][0]["lines"]
        assert line["sampling"] == "secret-parts"

    def test_a_ledger_keeps_them(self):
        ledger = pa.Ledger(nodes=(turns(4, 3, 3.0, buffers=PAIRS),))
        assert pa.Ledger.from_json(ledger.to_json()) == ledger

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"rate": 0.5, "parts": 3, "secret": True, "turn": -1}, "number 0, 1"),
            ({"rate": 1.0, "parts": 1, "secret": True}, "2 or more"),
            ({"rate": 1.0, "parts": 3, "buffers": ((0.5, 1.0),)}, "0 <= l < 1"),
            ({"rate": 1.0, "parts": 3, "buffers": ((math.nan, 0.5),)}, "m >= 0"),
            (
                {"rate": 1.0, "parts": 3, "shares": (0.1,), "buffers": PAIRS},
                "without shares",
            ),
        ],
    )
    def test_refused(self, more, words):
        with pytest.raises(ValueError, match=words):
            pa.PoissonSampling(**more)

    def test_very_long_runs_have_known_parts(self, monkeypatch):
        monkeypatch.setattr("privaudit.accounting.bins._MOST_ROWS", 11)
        assert known(turns(4, 3, 3.0, buffers=PAIRS))
        assert not known(turns(4, 2, 3.0, buffers=PAIRS))


class TestNested:
    """Epochs whose batches are one of several, of which the law is known otherwise."""

    @staticmethod
    def deltas(epoch, epsilon):
        """From below, and from above in both directions."""
        law = epoch_masses(epoch, "below", 1e-12)
        below = [
            np.maximum(law.p - math.exp(epsilon) * law.q, 0.0).sum(),
            np.maximum(law.q - math.exp(epsilon) * law.p, 0.0).sum(),
        ]
        above = []
        for way in ("remove", "add"):
            law = epoch_masses(epoch, way, 1e-12)
            one, other = (law.p, law.q) if way == "remove" else (law.q, law.p)
            lacking = law.lacking if way == "remove" else 0.0
            above.append(
                np.maximum(one - math.exp(epsilon) * other, 0.0).sum() + lacking
            )
        return below, above

    @pytest.mark.parametrize("epsilon", [0.1, 0.7])
    @pytest.mark.parametrize(("shift", "inner"), [(0.4, 0.3), (0.9, 0.2), (0.1, 0.8)])
    def test_one_of_one_adds_squares(self, shift, inner, epsilon):
        nested = Epoch((shift,), (9,), 9, inner=Epoch((inner,), (1,), 1))
        plain = Epoch((math.hypot(shift, inner),), (9,), 9)
        for found, known in zip(
            itertools.chain(*self.deltas(nested, epsilon)),
            itertools.chain(*self.deltas(plain, epsilon)),
            strict=True,
        ):
            assert found == pytest.approx(known, rel=0.01)

    @pytest.mark.parametrize("epsilon", [0.1, 0.7])
    @pytest.mark.parametrize("seed", range(4))
    def test_trees_drawn(self, seed, epsilon):
        rng = np.random.default_rng([seed, 30])
        shifts, counts = rng.uniform(0.2, 0.9, 3), rng.integers(1, 5, 3)
        epoch, inner = None, np.zeros((1, 1))
        for shift, count in zip(shifts.tolist(), counts.tolist(), strict=True):
            epoch = Epoch((shift,), (count,), count, inner=epoch)
            inner = np.kron(np.eye(count), inner + shift**2)
        truth = drawn(inner, epsilon, often=400_000, seed=seed)
        below, above = self.deltas(epoch, epsilon)
        for (mean, error), low, high in zip(truth, below, above, strict=True):
            assert low <= mean + 5 * error
            assert high >= mean - 5 * error
            assert high - low <= 0.02 * high
