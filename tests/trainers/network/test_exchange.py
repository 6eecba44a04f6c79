"""Contract of trainers.network.exchange: nothing is used that was not due."""

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import threading
import time

import pytest
import torch

from trainers.network.by_torch import joined
from trainers.network.exchange import CameBack, InProcess, PartyLostError, label
from trainers.network.intersection import identifiers_in
from trainers.network.ranks import GO_ON, RankLostError, where_am_i

DUE = torch.zeros(1, 2, 3)
BYTES = DUE.numel() * 4
WHAT = label(DUE, 4, "theta")


@pytest.fixture
def pair():
    here, there = InProcess.all(2, 5)
    here.expects(200)
    there.expects(200)
    return here, there


def refused(exchange, words):
    return pytest.raises(PartyLostError, match=f"party 1 .*{words}")


class TestSound:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
    def test_what_is_sent_comes(self, pair, dtype):
        here, there = pair
        sent = torch.arange(6).to(dtype).view(1, 2, 3)
        there.send(0, sent, 4, "theta")
        assert here.receive(1, DUE.to(dtype), 4, "theta").equal(sent)

    @pytest.mark.parametrize(
        ("sent", "k", "name", "words"),
        [
            (DUE, 5, "theta", "theta of round 5, .* where theta of round 4"),
            (DUE, 4, "tracker", "tracker of round 4"),
            (DUE.double(), 4, "theta", "float64"),
            (DUE[:, :1], 4, "theta", r"\(1, 1, 3\)"),
            (DUE.view(1, 3, 2), 4, "theta", r"\(1, 3, 2\)"),
            (DUE / 0, 4, "theta", "not finite"),
            (DUE + torch.inf, 4, "theta", "not finite"),
        ],
    )
    def test_what_is_not_due_is_refused(self, pair, sent, k, name, words):
        here, there = pair
        there.send(0, sent, k, name)
        with refused(here, f"sent something malformed.*{words}"):
            here.receive(1, DUE, 4, "theta")
        with pytest.raises(PartyLostError, match=r"this party .*, as party 0 says"):
            there.check()

    @pytest.mark.parametrize("size", [0, BYTES - 1, BYTES + 1, 2 * BYTES])
    def test_a_length_that_contradicts_the_shape(self, pair, size):
        here, there = pair
        there._carry(0, "message", WHAT, bytes(size))
        with refused(here, f"{size} bytes as theta of round 4"):
            here.receive(1, DUE, 4, "theta")

    @pytest.mark.parametrize(
        ("kind", "what", "content", "words"),
        [
            ("message", WHAT, bytes(201), "more than the 200 bytes"),
            ("words", "settings", bytes(1 << 20), "more words than are due"),
            ("end", "7 1", b"", "an end without a cause"),
            ("end", "0 9", b"", "an end without a cause"),
            ("end", "all", b"", "malformed"),
            ("pickle", "", b"cos\nsystem\n", "something of kind pickle"),
        ],
    )
    def test_malformed(self, pair, kind, what, content, words):
        here, there = pair
        there._carry(0, kind, what, content)
        with refused(here, words):
            here.check()

    def test_words(self, pair):
        here, there = pair
        there._say("begin", json.dumps([1, 2]).encode())
        assert here.told("begin", [3], list[int]) == [[3], [1, 2]]
        there._carry(0, "words", "begin", b"[]")
        with refused(here, "words on begin twice"):
            here.check()

    @pytest.mark.parametrize("text", [b"cos\nsystem\n", b'["1"]', b"\xff", b""])
    def test_words_that_cannot_be_read(self, pair, text):
        here, there = pair
        there._say("begin", text)
        with refused(here, "words on begin that cannot be read"):
            here.told("begin", [1], list[int])

    def test_who_is_ahead_waits(self):
        """No more than is due is queued, and none before it is known what that is."""
        here, there = InProcess.all(2, 5)
        there.expects(200)
        assert not there._carry(0, "message", WHAT, bytes(BYTES))
        here.expects(2 * BYTES)
        taken = [there._carry(0, "message", WHAT, bytes(BYTES)) for _ in range(3)]
        assert taken == [True, True, False]
        here.receive(1, DUE, 4, "theta")
        there.send(0, DUE, 4, "theta")

    def test_any_of_what_is_due(self, pair):
        here, there = pair
        here.due({1: [("1-0", DUE), ("turn", torch.zeros(2).long())]})
        there.send(0, torch.tensor([1, 2]), 0, "turn")
        there.send(0, DUE, 0, "1-0")
        there.send(0, DUE, 0, "0-1")
        assert here.any_due(1)[1].tolist() == [1, 2]
        assert here.any_due(1)[0] == "1-0"
        with refused(here, "0-1 of round 0, .* which is not due"):
            here.any_due(1)

    def test_who_leaves_when_nobody_is_asked_any_more_is_no_loss(self, pair):
        here, there = pair
        here.due({1: [("1-0", DUE)]})
        said = []

        def serve():
            with pytest.raises(PartyLostError, match="nobody is asked any more"):
                here.any_due(1)
            said.append(here.failure)

        serving = threading.Thread(target=serve)
        serving.start()
        here.due({})
        there.over()
        serving.join(5)
        assert said == [None]

    @pytest.mark.parametrize("rows", [DUE.half(), DUE.view(1, 1, 1, 2, 3)])
    def test_what_cannot_be_a_message(self, pair, rows):
        with pytest.raises(ValueError, match="four dimensions at most: theta is"):
            pair[1].send(0, rows, 4, "theta")

    def test_large_messages_both_ways(self):
        both, rows = InProcess.all(2, 20), torch.ones(1, 1, 100_000)

        def trade(one):
            one.expects(rows.numel() * 8)
            for k in range(20):
                one.send(1 - one.rank, rows, k, "theta")
                one.receive(1 - one.rank, rows, k, "theta")

        threads = [threading.Thread(target=trade, args=(one,)) for one in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert both[0].failure is both[1].failure is None


def at_all(exchanges, work):
    """What ``work`` gives, or raises as `OSError`, with each of ``exchanges``."""
    found = [None] * len(exchanges)

    def run(place):
        try:
            found[place] = work(exchanges[place])
        except OSError as error:
            found[place] = str(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(exchanges))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return found


class TestLost:
    def test_who_waits_for_another_is_not_the_cause(self):
        """Party 0 waits for 1, which waits for 2, which waits for 3, which hangs."""
        every = InProcess.all(4, 0.4)
        every[2].patience = 0.8  # the others are out of patience before
        found = at_all(every[:3], lambda one: one.receive(one.rank + 1, DUE, 4, "x"))
        assert all(words.startswith("party 3 does not answer") for words in found)

    def test_who_claims_to_wait_forever_is_given_up(self):
        here, there, _ = InProcess.all(3, 0.1)
        stopped = threading.Event()

        def claim():
            while not stopped.wait(0.02):
                there._carry(0, "waits", "2", b"")

        claiming = threading.Thread(target=claim)
        claiming.start()
        with refused(here, "does not answer"):
            here.receive(1, DUE, 4, "theta")
        stopped.set()
        claiming.join()

    def test_what_is_sent_again_is_taken_once(self, pair):
        """By a sender who did not hear that it was taken."""
        here, there = pair
        for _ in range(2):
            assert there._carry(0, "message", WHAT, bytes(BYTES), 7)
            assert there._carry(0, "words", "begin", b"1", 8)
        assert here.told("begin", 2, int) == [2, 1]
        here.receive(1, DUE, 4, "theta")
        there.send(0, DUE + 1, 5, "theta")
        assert here.receive(1, DUE, 5, "theta").equal(DUE + 1)


class TestDropped:
    """Where the others go on without who is lost."""

    def exchanges(self, size, patience=0.3):
        found = InProcess.all(size, patience)
        for one in found:
            one.expects(1 << 16)
            one.may_go_on()
            one.begins(0)
        return found

    def test_who_hangs_has_left_for_all_that_hear_it(self):
        every = self.exchanges(5)
        every[1].patience = 0.6

        def work(one):
            """Party r waits for r + 1, and sends to r - 1 what it gets, or not."""
            if one.rank == 4:
                return None
            found = one.receive(one.rank + 1, DUE, 4, "x")
            if one.rank:
                one.send(one.rank - 1, DUE if found is None else found + 1, 4, "x")
            return found

        found = at_all(every[:4], work)
        assert found[3] is None
        assert [part.max() for part in found[:3]] == [2, 1, 0]
        assert [one.left for one in every[:4]] == [{}, {}, {}, {4: 4}]

    @pytest.mark.parametrize(
        "harm",
        [
            lambda one: one.send(0, DUE.double(), 4, "x"),
            lambda one: one.send(0, DUE / 0, 4, "x"),
            lambda one: one._carry(0, "message", WHAT, bytes(1 << 17)),
            lambda one: one._carry(0, "end", "7 1", b""),
            lambda one: one._carry(0, "end", f"{one.rank} 4", b""),
            lambda one: one._carry(0, "end", "0 1", b""),
            lambda one: one._carry(0, "pickle", "", b""),
            lambda one: one.over(),
        ],
    )
    def test_who_sends_something_wrong_has_left(self, harm):
        here, there, third = self.exchanges(3)
        harm(there)
        assert here.receive(1, DUE, 4, "x") is None
        assert [*here.left] == [1]
        third.send(0, DUE + 1, 4, "x")
        assert here.receive(2, DUE, 4, "x").equal(DUE + 1)
        there.send(0, DUE, 4, "x")
        assert here.receive(1, DUE, 4, "x") is None

    def test_nobody_is_believed_who_says_it_of_another(self):
        here, liar, third = self.exchanges(3)
        liar._carry(0, "end", "2 1", b"")
        third.send(0, DUE, 4, "x")
        assert here.receive(2, DUE, 4, "x") is not None
        assert here.left == {}

    def test_half_of_all_are_not_enough(self):
        here, _, _, fourth = self.exchanges(4)
        assert here.receive(1, DUE, 4, "x") is None
        fourth.send(0, DUE, 4, "x")
        assert here.receive(3, DUE, 4, "x") is not None
        with pytest.raises(PartyLostError, match="parties 1, 2 of 4 are lost"):
            here.receive(2, DUE, 4, "x")

    def test_nobody_is_dropped_before_training_begins(self):
        here, _, _ = InProcess.all(3, 0.2)
        here.may_go_on()
        with refused(here, "does not answer"):
            here.told("settings", 1, int)


class TestEnds:
    def test_who_is_silent_is_named_when_patience_ends(self):
        here, _ = InProcess.all(2, 0.2)
        with refused(here, f"does not answer in 0 s; {GO_ON} at every party"):
            here.receive(1, DUE, 4, "theta")

    def test_who_takes_nothing_is_named_when_patience_ends(self):
        here, _ = InProcess.all(2, 0.2)
        with refused(here, "does not answer"):
            here.send(1, DUE, 4, "theta")

    def test_who_leaves_too_early_is_named_to_the_others(self):
        here, there, third = InProcess.all(3, 5)
        there.over()
        with refused(here, "has ended before it had sent all"):
            here.all_kept(3)
        with pytest.raises(PartyLostError, match=r"party 1 has ended, as party 0"):
            third.check()

    def test_who_is_done_is_not_lost(self, pair):
        here, there = pair
        there.kept(3)
        there.over()
        here.all_kept(3)
        here.over()
        here.check()

    def test_an_error_of_its_own(self, pair):
        here, there = pair
        with pytest.raises(KeyError), there:
            raise KeyError
        with refused(here, "ended with an error of its own"):
            here.receive(1, DUE, 4, "theta")

    def test_what_all_see_is_told_to_nobody(self, pair):
        here, there = pair
        with pytest.raises(ValueError, match="rounds differ"), there:
            there.disagree("rounds differ")
        here.check()

    def test_a_number_that_there_is_not(self):
        with pytest.raises(ValueError, match=r"a party's number is in \[0, 2\)"):
            InProcess(2, 2)
        with pytest.raises(ValueError, match="patience"):
            InProcess(0, 2, 0)

    def test_lost_is_of_ranks(self):
        assert issubclass(PartyLostError, RankLostError)
        assert issubclass(RankLostError, OSError)  # status 3


@pytest.mark.parametrize(
    ("rank", "size", "party", "words"),
    [
        ("", "2", None, "parties need RANK"),
        ("0", "", None, "parties need WORLD_SIZE"),
        ("2", "2", None, "RANK is from 0 to WORLD_SIZE - 1"),
        ("1", "2", 0, "party=0 was given where RANK is 1"),
        ("", "2", -1, "a whole number from 0 on"),
        ("", "2", True, "a whole number from 0 on"),
    ],
)
def test_where_am_i(monkeypatch, rank, size, party, words):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(ValueError, match=words):
        where_am_i(party)


@pytest.mark.parametrize(
    ("text", "sizes", "words"),
    [
        (b"a\nb\n", [3], "2 lines, 0 of them empty, where this party has 3 records"),
        (b"a\n\nb\n", [3], "3 lines, 1 of them empty"),
        (b"a\nb\n a\n", [2, 1], "twice, which may be at several of this party's 2"),
        (b"\xff", [1], "cannot read identifiers"),
        (None, [1], "cannot read identifiers"),
    ],
)
def test_identifiers_that_are_refused(tmp_path, text, sizes, words):
    file = tmp_path / "identifiers"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(ValueError, match=words):
        identifiers_in(file, sizes)


def _member(rank, port, work, said):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    if work is _one_comes_back and rank == 2:
        dies = os.fork()  # trains first, and is lost
        if dies:
            os.waitpid(dies, 0)
    try:
        while True:
            with (
                contextlib.suppress(CameBack),
                joined(rank, 3, 2 if work is _one_hangs else 20) as exchange,
            ):
                exchange.expects(1 << 20)
                words = work(exchange)
                break
    except (ValueError, OSError) as error:
        words = str(error)
    said.put((rank, words))


def _trade(one):
    sums = []
    for k in range(3):
        for other in one.others:
            one.send(other, torch.full((1, 2, 3), float(10 * one.rank + k)), k, "theta")
        sums.append(
            sum(one.receive(other, DUE, k, "theta").sum() for other in one.others)
        )
        one.kept(k)
        one.all_kept(k)
    one.over()
    return [float(each) for each in sums]


def _one_dies(one):
    """Party 2 dies; party 0 waits for party 1 alone, which waits for it."""
    if one.rank == 2:
        time.sleep(0.3)
        os._exit(1)
    return one.receive(one.rank + 1, DUE, 0, "theta")


def _one_hangs(one):
    """Party 0 waits for party 1, which answers, and waits for party 2."""
    if one.rank == 2:
        signal.raise_signal(signal.SIGSTOP)
    return one.receive(one.rank + 1, DUE, 0, "theta")


def _one_is_wrong(one):
    if one.rank == 2:
        one.send(1, DUE.double(), 0, "theta")
        return one.receive(1, DUE, 0, "theta")
    return one.receive(one.rank + 1, DUE, 0, "theta")


def _begun(one, done):
    """Party 2 dies, once all others have begun."""
    one.begins(done)
    if one.rank == 2:
        assert one._hear(0, "begun") == one._hear(1, "begun") == b""
        os._exit(1)
    one._say("begun", b"")


def _one_is_dropped(one):
    """Party 2 dies, and the others go on."""
    one.may_go_on()
    _begun(one, 0)
    found = []
    for k in range(2):
        for other in one.others:
            one.send(other, DUE + 1, k, "theta")
        heard = [one.receive(other, DUE, k, "theta") for other in (1 - one.rank, 2)]
        found += [None if rows is None else float(rows.sum()) for rows in heard]
    return [*found, *one.left]


_kept = [0]  # by this process


def _one_comes_back(one):
    """Party 2 dies; the others go on until its next process asks to come in."""
    one.may_go_on()
    done = max(one.told("kept", _kept[0], int))
    if done:
        return [*one.told("there", one.rank, int), *one.left]
    _begun(one, done)
    assert one.receive(2, DUE, 0, "theta") is None
    back = False
    while not back:
        back = one.all_kept(_kept[0])
        _kept[0] += 1
        one.kept(_kept[0])
        time.sleep(0.02)
    return one.begin_anew(_kept[0])


def _one_disagrees(one):
    if one.told("settings", one.rank // 2, int)[2] == 1:
        one.disagree("party 2 has other settings")


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("work", "words"),
    [
        (_trade, [[180.0, 192.0, 204.0], [120.0, 132.0, 144.0], [60.0, 72.0, 84.0]]),
        (_one_hangs, ["party 2 does not answer"] * 2),
        (_one_dies, ["party 2 has ended", "party 2 has ended"]),
        (_one_is_wrong, [*["party 2 sent something malformed"] * 2, "this party sent"]),
        (_one_is_dropped, [[6.0, None, 6.0, None, 2]] * 2),
        (_one_comes_back, [[0, 1, 2]] * 3),
        (_one_disagrees, ["party 2 has other settings"] * 3),
    ],
)
def test_processes(work, words):
    """By torch.distributed: the same rules, and who is the cause is named by all."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainers.network.by_torch"])
    with contextlib.closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    said = context.Queue()
    parties = [
        context.Process(target=_member, args=(rank, port, work, said))
        for rank in range(3)
    ]
    for party in parties:
        party.start()
    found = dict(said.get(timeout=60) for _ in words)
    for party in parties[len(words) :]:
        party.kill()
    for party in parties:
        party.join(30)
        assert party.exitcode is not None
    for rank, due in enumerate(words):
        said = found[rank]
        assert said == due if isinstance(due, list) else said.startswith(due), found
