"""Contract of trainers.numerics.releases: what was released is known after a kill."""

import stat

import pytest
import torch
from msgspec import UNSET

from privaudit.ledger import RESUMED
from privaudit.release import NoSampling
from tests.trainers import collaborative
from tests.trainers.message_checks import RING
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.numerics.releases import ReleaseJournal
from trainers.oracles.messages.channel import Channel
from trainers.oracles.messages.noise import MessageNoise

KEY = Key.secret()
A, B, C = (letter * 32 for letter in (b"a", b"b", b"c"))


@pytest.fixture
def path(tmp_path):
    ReleaseJournal.create(tmp_path / "j", KEY)
    return tmp_path / "j"


def entered(path, *releases):
    """Enter releases in a process of its own; then what each had beside it."""
    journal = ReleaseJournal(path, KEY)
    for release in releases:
        journal.enter("noise", [7], *release)
    found = [journal.others("noise", 7, index) for index, _ in releases]
    journal.close()
    return found, journal.further


class TestReleaseJournal:
    def test_equal_sums_are_no_further_release(self, path):
        assert entered(path, (0, [A]), (1, [B])) == ([0, 0], 0)
        size = path.stat().st_size
        assert entered(path, (0, [A]), (1, [B])) == ([0, 0], 0)
        assert path.stat().st_size == size == 3 * 64
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_each_other_sum_is_one(self, path):
        assert entered(path, (0, [A])) == ([0], 0)
        assert entered(path, (0, [B]), (1, [B])) == ([1, 0], 1)
        assert entered(path, (0, [C]), (1, [B])) == ([2, 0], 2)
        assert entered(path, (0, [A]), (1, [A])) == ([2, 1], 3)

    def test_addresses_are_apart(self, path):
        journal = ReleaseJournal(path, KEY)
        journal.enter("noise", [1, 2], 0, [A, B])
        journal.close()
        journal = ReleaseJournal(path, KEY)
        journal.enter("noise", [1, 2], 0, [A, C])
        journal.enter("message", [1], 0, [B])
        assert [journal.others("noise", node, 0) for node in (1, 2)] == [0, 1]
        assert journal.others("message", 1, 0) == 0
        journal.close()

    def test_it_is_written_before_the_release(self, path, monkeypatch):
        journal = ReleaseJournal(path, KEY)
        streams = Streams(KEY, journal=journal)
        sizes = []
        rows = Streams.rows

        def look(*given, **more):
            sizes.append(path.stat().st_size)
            return rows(*given, **more)

        monkeypatch.setattr(Streams, "rows", look)
        for release in range(2):
            streams.noisy(torch.zeros(1, 3, 4), range(3), release, 1.0)
        assert sizes == [64 * 4, 64 * 7]
        journal.close()

    def test_another_key_or_file_is_refused(self, path):
        with pytest.raises(ValueError, match="of another key"):
            ReleaseJournal(path, Key.secret())
        path.write_bytes(path.read_bytes() + b"more")
        with pytest.raises(ValueError, match="cut, or has more"):
            ReleaseJournal(path, KEY)
        with pytest.raises(FileNotFoundError):
            ReleaseJournal(path.with_name("none"), KEY)

    def test_grid_and_noise_are_part_of_what_is_equal(self):
        sums = torch.ones(1, 1, 3, dtype=torch.int64)
        marks = {KEY.fingerprints(sums, *more) for more in ((), (1.0, 2.0), (2.0, 1.0))}
        assert len(marks) == 3


def twice(path, release):
    """What ``release`` writes of two sums, in two processes."""
    for size in (0.1, 0.2):
        journal = ReleaseJournal(path, KEY)
        ledger = release(Streams(KEY, journal=journal), size)
        journal.close()
    return ledger


class TestLedgers:
    def test_messages(self, path):
        def release(streams, size):
            how = MessageNoise(1.0, "perturbation", samples=2)
            channel = Channel(how, RING, streams, populations=(9,) * 5)
            states = torch.zeros(1, 5, 3, dtype=torch.float64)
            channel.begin(states)
            states[:, 3] = size
            channel.send(states, states, bound=0.6)
            return channel.ledger

        ledger = twice(path, release)
        assert [sum(e.count for e in node) for node in ledger.nodes] == [1, 1, 1, 2, 1]
        first, further = ledger.nodes[3]
        assert further.release.sampling == NoSampling()
        assert further.release.sensitivity == first.release.sensitivity
        assert RESUMED in ledger.assumptions

    def test_collaborative_updates(self, path):
        def release(streams, size):
            mechanism = collaborative.one_pass("always-global", noise=2.0)
            private = collaborative.oracle(mechanism)
            private._streams = streams
            private.begin(collaborative.begin())
            action = private.choose(0)
            shared = private.local_models[:, 0] + size
            private.publish(0, 1, action, shared)
            return private.ledger

        ledger = twice(path, release)
        (entry,) = ledger.nodes[1]  # of every class, one more
        assert entry.count == collaborative.CLASSES
        assert entry.disjoint is UNSET  # of no pass: records were in it before
        assert RESUMED in ledger.assumptions
