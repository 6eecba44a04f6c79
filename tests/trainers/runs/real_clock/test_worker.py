"""Contract of worker: alone it is what the virtual clock makes, to the bit."""

import pytest
import torch
import torch.distributed as dist

from privaudit.ledger import Ledger
from tests.trainers.checks import DIMS
from tests.trainers.problems import oracle, random_data, start
from tests.trainers.worker_pools import Counted
from trainers.algorithms.asynchronous.clock import Clock, Speed
from trainers.algorithms.asynchronous.virtual_time import Adp2sgd, Asynchronous
from trainers.network.named_graphs import mixing
from trainers.oracles.oracle import Mechanism
from trainers.runs.real_clock.messages import Report, Stopped, counted
from trainers.runs.real_clock.worker import Agreement, Job, Worker

ALONE = Clock(((),), Speed("constant", 1))
MECHANISM = Mechanism(3.0, 0.5, 2.0, sampling="without-replacement")


def worker(path, private, begin, *, kind=Worker, tell=lambda message: None, **more):
    settings = {"steps": 20, "most": 100, "report_every": 8, **more}
    plan = Agreement(ALONE, step_time=0.0, patience=5.0, journal=path, **settings)
    job = Job(private, begin, lambda k: 0.1 / (k + 1))
    return kind(0, plan, job, dist.HashStore(), tell)


def test_one_worker_is_the_virtual_one(tmp_path):
    shares = random_data((7,))
    told = []
    private = oracle(MECHANISM, shares=shares)
    begin = start(DIMS, nodes=1)
    shutdown = worker(
        tmp_path / "steps.bin", private, begin[0, 0], tell=told.append
    ).run()
    virtual = Asynchronous(
        Adp2sgd(lambda k: 0.1 / (k + 1), ALONE), mixing("complete", "uniform", 1)
    )
    again = oracle(MECHANISM, shares=shares)
    models = virtual.run(begin, again, 20)
    assert torch.equal(torch.from_numpy(shutdown.model), models[0, 0])
    assert Ledger.from_json(shutdown.ledger) == again.ledger
    assert shutdown.staleness == (0,) * 20
    assert [message.done for message in told if isinstance(message, Report)] == [8, 16]
    assert told[-1] == Stopped()
    assert counted(tmp_path / "steps.bin", 1) == [20]


def test_its_own_limit(tmp_path):
    private = oracle(MECHANISM, shares=random_data((7,)))
    begin = start(DIMS, nodes=1)[0, 0]
    shutdown = worker(tmp_path / "steps.bin", private, begin, most=6).run()
    assert len(shutdown.staleness) == 6
    assert Ledger.from_json(shutdown.ledger).nodes[0][0].count == 6


class CountsLate(Worker):
    """A planted bug: the step is in the journal when the next one begins."""

    _late = False

    def _begin(self):
        if self._late:
            self._journal.count(self._number)
        self._late = True
        return self._counters.begin(self._number, self._plan.steps)


def test_a_step_that_is_counted_after_its_release(tmp_path):
    for kind, clean in ((Worker, True), (CountsLate, False)):
        path = tmp_path / f"{kind.__name__}.bin"
        one = worker(path, Counted(path, 0), torch.zeros(3), kind=kind)
        if clean:
            one.run()
        else:
            with pytest.raises(ValueError, match="in no journal"):
                one.run()


def test_a_full_disk_stops_it_before_the_data_are_asked():
    private = oracle(MECHANISM, shares=random_data((7,)))
    one = worker("/dev/full", private, start(DIMS, nodes=1)[0, 0])
    with pytest.raises(OSError, match="No space left"):
        one.run()
    assert private.releases_of(0) == 0
