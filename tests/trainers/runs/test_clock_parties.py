"""By the real clock over parties: what was begun is paid, and no release made twice."""

import contextlib
import os
import struct
import threading

import pytest
import torch

import privaudit as pa
from privaudit.api.watch import Watch
from tests.trainers.runs.test_parties import together, train
from trainers.algorithms.asynchronous.clock import Clock, Speed, bipartite_ring
from trainers.algorithms.asynchronous.real_time import RealTime
from trainers.algorithms.asynchronous.virtual_time import Adp2sgd
from trainers.network.exchange import InProcess, PartyLostError
from trainers.network.named_graphs import mixing
from trainers.network.over_ranks import Party, RankNetwork

REAL = {"algorithm": "adp2sgd", "seed": None, "options": {"clock": "real"}}
STEPS = 40
ENTRY = struct.Struct("<IQB51x")  # of the journal: node, release, purpose, hashes


def trained(party, out, **changes):
    return train(party, out, **{"rounds": STEPS, **REAL, **changes})


def together_trained(out, **changes):
    parts = together(lambda party: trained(party, out, **changes))
    for part in parts:
        if isinstance(part, BaseException):
            raise part
    return parts


def counts(runs):
    return [sum(e.count for e in node) for run in runs for node in run.ledger.nodes]


@pytest.mark.full
def test_steps_are_counted_together_and_paid_by_who_made_them(tmp_path):
    parts = together_trained(tmp_path)
    assert sum(counts(parts)) == STEPS
    assert max(counts(parts)) <= 16  # twice an equal share of five workers
    sent = [part.result.messages_sent for part in parts]
    assert sent[0] == sent[1] > 0  # a model for a model
    for party, part in enumerate(parts):
        assert part.result.bytes_sent == sent[party] * 10 * 4
        assert not pa.verify(tmp_path / f"party-{party}").differences
        made = sum(counts([part]))
        assert any(f"{made} steps were made here" in one for one in part.result.remarks)
    joint = pa.join([tmp_path / f"party-{party}" for party in range(2)])
    worst = max(part.result.upper().epsilon for part in parts)
    assert joint.upper.epsilon == worst


class Stops(Watch):
    """Ends its party after some of all steps."""

    def __init__(self, at):
        self.at = at

    def training(self, algorithm, claim):
        def look(now):
            if now.done >= self.at:
                raise KeyboardInterrupt

        return contextlib.nullcontext(look)


def releases(file):
    """(node, release) as the journal has them, in its order."""
    content = file.read_bytes()
    return [entry[:2] for entry in ENTRY.iter_unpack(content)][1:]


@pytest.mark.full
def test_goes_on_without_a_release_made_twice(tmp_path):
    """Twice stopped; the journals, which outlive the runs, have what ledgers count."""
    kept = [tmp_path / f"journal-{party}" for party in range(2)]
    for who, at in ((1, 9), (0, 20)):
        found = together(
            lambda party, who=who, at=at: trained(
                party, tmp_path, watch=Stops(at) if party.rank == who else None
            )
        )
        assert isinstance(found[who], KeyboardInterrupt)
        assert f"party {who} ended with an error of its own" in str(found[1 - who])
        for party, link in enumerate(kept):
            if not link.exists():
                os.link(tmp_path / f"party-{party}/key.releases", link)
    before = [releases(link) for link in kept]
    parts = together_trained(tmp_path)
    made = [releases(link) for link in kept]
    for party, part in enumerate(parts):
        assert len(set(made[party])) == len(made[party]) > len(before[party]) > 0
        own = [[one for one in made[party] if one[0] == node] for node in range(5)]
        assert counts([part]) == [len(one) for one in own if one]
        assert not any("made again" in text for text in part.result.remarks)
        assert not pa.verify(tmp_path / f"party-{party}").differences
    assert sum(counts(parts)) == STEPS
    assert max(counts(parts)) <= 16


def test_who_lost_its_folder_is_told(tmp_path):
    """It would begin again, and its records pay for what no ledger has."""
    together(
        lambda party: trained(party, tmp_path, watch=Stops(20) if party.rank else None)
    )
    for file in (tmp_path / "party-1").iterdir():
        file.unlink()
    for error in together(lambda party: trained(party, tmp_path)):
        assert "party 1 has kept nothing of this run" in str(error)


@pytest.mark.full
def test_who_had_ended_waits_for_the_others(tmp_path):
    """Killed between the last step and its result: it ends alone, with what it had."""
    parts = together_trained(tmp_path)
    again = together_trained(tmp_path)
    assert counts(again) == counts(parts)


@pytest.mark.parametrize("changes", [{"seed": 1}, {"options": {}, "seed": 1}])
def test_what_cannot_be(tmp_path, changes):
    for error in together(lambda party: trained(party, tmp_path, **changes)):
        assert isinstance(error, ValueError)
        assert str(error).startswith(("--seed is not for clock=real", "adp2sgd averag"))


class Still:
    """An oracle without data: gradients of zeros."""

    def __init__(self, nodes):
        self._asked = [0] * nodes

    def skip_begun(self):
        pass

    def sync(self):
        pass

    def releases_of(self, node):
        return self._asked[node]

    def gradient(self, at, nodes):
        self._asked[nodes[0]] += 1
        return torch.zeros_like(at)


NODES, DIMS = 5, 3
STARTS = torch.randn(
    1, NODES, DIMS, generator=torch.Generator().manual_seed(0)
).double()


def of_party(exchange, most=20):
    clock = Clock(bipartite_ring(NODES), Speed("constant", NODES))
    algorithm = Adp2sgd(lambda k: 0.1, clock)
    on = mixing("complete", "uniform", NODES)
    party = Party(exchange, NODES)
    plain = RankNetwork(algorithm, on, ranks=party.ranks)
    carrier = party.network(plain, DIMS)
    return RealTime(algorithm, on, (), most, carrier=carrier)


def test_averages_keep_the_mean():
    """Without gradients the sum of all models stays, and they come together.

    Who averages when is the machine's to say: what holds for every order is that no
    spread grows, and that what was sent has made it smaller.
    """

    def work(party):
        network = of_party(party)
        held = network.carrier.ranks.held
        start = STARTS[:, held.start : held.stop]
        models = network.run(start, Still(len(held)), 60)
        party.over()
        return models, network.carrier.traffic

    (first, one), (second, two) = together(work)
    models = torch.cat([first, second], 1)
    assert torch.allclose(models.mean(1), STARTS.mean(1), rtol=0, atol=1e-12)
    assert (models.std(1) <= STARTS.std(1) + 1e-12).all()
    assert models.var(1).sum() < 0.9 * STARTS.var(1).sum()
    assert one.messages == two.messages > 0
    assert one.bytes == one.messages * DIMS * 8


@pytest.mark.parametrize(
    ("name", "rows", "why"),
    [
        ("3-0", torch.zeros(DIMS, dtype=torch.float64), "an answer, 3-0, that nobody"),
        ("2-1", torch.full((DIMS,), torch.nan, dtype=torch.float64), "not finite"),
        ("2-1", torch.zeros(DIMS), "which is not due"),
        ("2-0", torch.zeros(DIMS, dtype=torch.float64), "which is not due"),
        ("4-1", torch.zeros(DIMS + 1, dtype=torch.float64), "which is not due"),
        ("turn", torch.zeros(2, dtype=torch.int64), "which is not due"),
    ],
)
def test_what_is_malformed_is_named(name, rows, why):
    """Party 0 has workers 0 and 1, and 2 and 4 ask: no other message may come."""
    here, there = InProcess.all(2, 10)
    network = of_party(here)
    there._say("steps begun", b'{"steps": 0}')
    for _ in range(25):  # more often than it could be asked for
        there.send(0, rows, 0, name)
    with pytest.raises(
        PartyLostError, match=f"party 1 sent something malformed.*{why}"
    ):
        network.run(STARTS[:, :2], Still(2), 60)


def test_more_steps_than_there_can_be_are_refused():
    """Party 1 has three workers, of 20 steps at most each, resumed or not."""
    here, there = InProcess.all(2, 10)
    there._say("steps begun", b'{"steps": 61}')
    with pytest.raises(PartyLostError, match=r"party 1 sent .* 61 steps begun"):
        of_party(here).run(STARTS[:, :2], Still(2), 60)


@pytest.mark.parametrize("before", [-1, 61])
def test_a_count_of_steps_that_cannot_be_is_refused(before):
    there, here = InProcess.all(2, 10)
    there._say("steps begun", b'{"steps": 0}')
    there.expects(1 << 16)
    network = of_party(here)

    def answer():
        asked = torch.zeros(2, dtype=torch.int64)
        there.receive(1, asked, 0, "step")
        there.send(1, torch.tensor([before, 1]), 0, "turn")

    asked = threading.Thread(target=answer)
    asked.start()
    with pytest.raises(PartyLostError, match=r"party 0 sent .* count of steps"):
        network.run(STARTS[:, 2:], Still(3), 60)
    asked.join()
