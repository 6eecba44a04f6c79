"""Contract of clock: virtual time, in order, from a public seed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.algorithms.asynchronous.clock import (
    Clock,
    Speed,
    any_neighbour,
    bipartite_ring,
)

SPEEDS = [
    "constant",
    "random-slowdown:2",
    "one-slow:10",
    "uniform:0.5,1.5",
    "exponential:1",
    "lognormal:0.5",
]


def clock(nodes=6, speed="constant", **more):
    return Clock(bipartite_ring(nodes), Speed(speed, nodes), **more)


class TestLaws:
    @pytest.mark.parametrize("speed", SPEEDS)
    def test_steps_are_in_order_and_staleness_is_counted(self, speed):
        steps = clock(speed=speed).steps(300)
        times = [step.time for step in steps]
        assert times == sorted(times)
        last = {}
        for number, step in enumerate(steps):
            assert step.staleness == number - last.get(step.worker, 0)
            last[step.worker] = number + 1

    @given(st.integers(2, 9), st.sampled_from(SPEEDS), st.integers(0, 99))
    def test_more_steps_begin_as_fewer_do(self, nodes, speed, seed):
        one = clock(nodes, speed, seed=seed)
        assert one.steps(60)[:25] == one.steps(25)
        assert sum(one.counts(60)) == 60
        together = [step for instant in one.instants(60) for step in instant]
        assert together == list(one.steps(60))

    def test_equal_speeds_are_one_instant_a_round(self):
        instants = list(clock(6).instants(18))
        assert [len(instant) for instant in instants] == [6, 6, 6]
        assert [step.worker for step in instants[0]] == list(range(6))

    def test_the_counter_stops_in_the_middle_of_an_instant(self):
        assert [len(instant) for instant in clock(6).instants(8)] == [6, 2]

    @pytest.mark.parametrize("speed", ["lognormal:20", "lognormal:400"])
    def test_a_worker_is_in_an_instant_once(self, speed):
        """Steps may take no time beside what has passed, or time may be at its end."""
        clock = Clock(bipartite_ring(4), Speed(speed, 4))
        found = list(clock.instants(200))
        assert tuple(step for instant in found for step in instant) == clock.steps(200)
        times = [instant[0].time for instant in found]
        assert len(set(times)) < len(times)
        for instant in found:
            assert len({step.worker for step in instant}) == len(instant)

    def test_the_seed_decides(self):
        one, same, other = (
            clock(speed="lognormal:1", seed=seed).steps(50) for seed in (1, 1, 2)
        )
        assert one == same
        assert one != other


class TestSpeeds:
    def test_one_slow_worker_makes_a_tenth_of_the_steps(self):
        counts = clock(6, "one-slow:10").counts(510)
        assert counts == [10, 100, 100, 100, 100, 100]

    def test_a_random_slowdown_costs_each_its_share(self):
        counts = clock(4, "random-slowdown:2").counts(40_000)
        assert np.allclose(counts, 10_000, rtol=0.02)
        (last,) = clock(4, "random-slowdown:2").steps(40_000)[-1:]
        assert last.time == pytest.approx(10_000 * 1.25, rel=0.02)

    def test_barriers_wait_for_the_slowest(self):
        for speed, seconds in (
            ("constant", 1.0),
            ("one-slow:10", 10.0),
            ("random-slowdown:2", 2.0),
        ):
            ends = clock(4, speed, link_time=0.5).barriers(5)
            assert ends.tolist() == [(seconds + 0.5) * k for k in range(1, 6)]

    def test_links_take_their_time(self):
        steps = clock(2, link_time=3.0).steps(6)
        assert [step.time for step in steps] == [1, 1, 5, 5, 9, 9]

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("fast", "there is no speed 'fast'"),
            ("one-slow", "takes 1 numbers > 0"),
            ("one-slow:-1", "takes 1 numbers > 0"),
            ("uniform:1", "takes 2 numbers > 0"),
            ("uniform:2,1", "LOW <= HIGH"),
        ],
    )
    def test_errors_are_sentences(self, name, message):
        with pytest.raises(ValueError, match=message):
            Speed(name, 3)


class TestPartners:
    @pytest.mark.parametrize("nodes", [2, 5, 8])
    def test_senders_draw_receivers(self, nodes):
        partners = bipartite_ring(nodes)
        for worker, choice in enumerate(partners):
            assert choice == (tuple(range(1, nodes, 2)) if worker % 2 == 0 else ())
        drawn = {step.partner for step in clock(nodes).steps(400)}
        assert drawn == {None, *range(1, nodes, 2)}

    def test_neighbours_of_a_graph(self):
        ring = np.roll(np.eye(5, dtype=bool), 1, 0) | np.roll(
            np.eye(5, dtype=bool), -1, 0
        )
        assert any_neighbour(ring)[0] == (1, 4)
        with pytest.raises(ValueError, match="undirected"):
            any_neighbour(np.roll(np.eye(5, dtype=bool), 1, 0))
