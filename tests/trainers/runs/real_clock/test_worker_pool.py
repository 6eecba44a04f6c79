"""Contract of worker_pool: processes of their own, which may die one by one."""

import functools
import multiprocessing
import os
import signal

import pytest
import torch

from tests.trainers.worker_pools import (
    dying,
    flat,
    hanging,
    journalled,
    pool,
    refusing,
    slowly,
)
from trainers.runs.real_clock.messages import counted

slowest = functools.partial(flat, seconds=0.01)


def process(worker):
    """Of a worker that runs now."""
    return next(
        child
        for child in multiprocessing.active_children()
        if child.name == f"worker {worker}"
    )


def mean_of_starts(workers):
    return torch.stack([flat(worker).start for worker in range(workers)]).mean(0)


class TestLaws:
    @pytest.mark.parametrize("workers", [2, 4, 5])
    def test_averaging_keeps_the_mean(self, tmp_path, workers):
        outcome = pool(tmp_path, slowly, workers, steps=40 * workers).run()
        models = torch.stack(list(outcome.models.values()))
        assert len(models) == workers
        mean = mean_of_starts(workers)
        torch.testing.assert_close(models.mean(0), mean, rtol=1e-5, atol=1e-4)
        assert (models - mean).abs().max() < 0.1 * 10

    def test_the_counter_stops_all(self, tmp_path):
        outcome = pool(tmp_path, steps=203).run()
        assert sum(outcome.counts) == 203 == len(outcome.staleness)
        assert counted(tmp_path / "steps.bin", 4) == list(outcome.counts)

    def test_nobody_makes_more_than_the_most(self, tmp_path):
        outcome = pool(tmp_path, steps=200, most=30).run()
        assert outcome.counts == (30, 30, 30, 30)

    def test_who_is_slower_makes_fewer_and_staler_steps(self, tmp_path):
        outcome = pool(tmp_path, speed="one-slow:10", step_time=0.01, steps=120).run()
        slow, *fast = outcome.counts
        assert slow < 0.4 * min(fast)
        assert max(outcome.staleness) >= 10
        # Staleness counts the steps of others: of all together, at most (K - 1) each.
        assert sum(outcome.staleness) <= 3 * 120

    def test_every_step_is_counted_before_the_data_are_asked(self, tmp_path):
        job = functools.partial(journalled, path=tmp_path / "steps.bin")
        assert sum(pool(tmp_path, job, steps=80).run().counts) == 80

    def test_models_are_reported_on_the_way(self, tmp_path):
        seen = []
        pool(tmp_path, slowly, report_every=40).run(
            lambda done, models: seen.append((done, sorted(models)))
        )
        assert len(seen) >= 3
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        assert all(workers == [0, 1, 2, 3] for _, workers in seen)


class TestDeaths:
    @pytest.mark.full
    @pytest.mark.parametrize("victim", [2, 3])  # a sender, a receiver
    def test_the_others_go_on(self, tmp_path, victim):
        killed, told = [], []

        def kill(done, models):
            if not killed:
                killed.append(done)
                os.kill(process(victim).pid, signal.SIGKILL)

        one = pool(tmp_path, slowest, report_every=20, steps=500)
        outcome = one.run(kill, told.append)
        (death,) = outcome.deaths
        assert told == [death]
        assert (death.worker, death.why) == (victim, "killed by SIGKILL")
        assert sorted(outcome.models) == [k for k in range(4) if k != victim]
        # The others made what was left, but for one that may have been given out just
        # when it died.
        assert sum(outcome.counts) in (499, 500)
        assert outcome.counts[victim] == death.made
        assert death.made < min(outcome.counts[k] for k in outcome.models)
        assert killed[0] <= death.at < 500
        assert f"worker {victim} died (killed by SIGKILL) after {death.made} of" in str(
            death
        )

    def test_a_step_that_was_begun_is_paid(self, tmp_path):
        """It died in its sixth gradient, which nobody saw; it was counted before."""
        job = functools.partial(dying, who=1, last=6)
        outcome = pool(tmp_path, job).run()
        (death,) = outcome.deaths
        assert (death.made, death.why) == (6, "exit status 7")
        assert outcome.counts[1] == 6

    def test_a_journal_that_is_lost_is_made_up_for_by_the_counter(self, tmp_path):
        job = functools.partial(dying, who=1, last=6)
        one = pool(tmp_path, job)
        outcome = one.run(died=lambda death: (tmp_path / "steps.bin").unlink())
        assert outcome.counts[1] == 6
        assert one.counts() == list(outcome.counts)

    def test_what_the_dead_asked_for_is_not_counted_late(self, tmp_path):
        """The counter may get it after the death; nobody lived to be answered."""
        one = pool(tmp_path, functools.partial(dying, who=1, last=6))
        outcome = one.run(died=lambda death: one._counters.begin(1, 200))
        assert outcome.counts[1] == outcome.deaths[0].made == 6

    def test_all_die(self, tmp_path):
        job = functools.partial(dying_all, last=3)
        outcome = pool(tmp_path, job).run()
        assert outcome.models == {}
        assert outcome.counts == (3, 3, 3, 3)
        assert len(outcome.deaths) == 4

    @pytest.mark.full
    def test_who_does_not_answer_is_ended(self, tmp_path):
        stopped = []

        def stop(done, models):
            if not stopped:
                stopped.append(process(2).pid)
                os.kill(stopped[0], signal.SIGSTOP)

        one = pool(tmp_path, slowest, report_every=20, steps=500, patience=2.0)
        outcome = one.run(stop)
        assert [death.worker for death in outcome.deaths] == [2]
        assert sum(outcome.counts) in (499, 500)

    @pytest.mark.full
    def test_who_hangs_after_its_last_step_is_ended(self, tmp_path):
        job = functools.partial(hanging, who=0)
        outcome = pool(tmp_path, job, steps=400, most=6, patience=4.0).run()
        assert [death.worker for death in outcome.deaths] == [0]
        assert outcome.counts == (6, 6, 6, 6)

    def test_a_refusal_stops_all(self, tmp_path):
        with pytest.raises(ValueError, match="worker 2: a sample's gradient is not"):
            pool(tmp_path, refusing).run()
        assert multiprocessing.active_children() == []


def dying_all(worker, last):
    return dying(worker, worker, last)
