"""Contract of trainers.network.links: whoever fails is named, and nobody else."""

import contextlib
import itertools
import json
import socket
import struct
import sys
import threading
import time

import pytest
import torch

from trainers.network import links as _links
from trainers.network.frames import (
    ALIVE,
    BYE,
    END,
    HEADER,
    MESSAGE,
    Header,
    words,
)
from trainers.network.links import Links, PartyLostError
from trainers.network.meeting import joined, where_am_i

LIKE = torch.zeros(1, 2, 3)


@pytest.fixture
def pair():
    """Party 0 of two, and the other end of its connection, which a test plays."""
    here, there = socket.socketpair()
    links = Links(0, 2, {1: here})
    links.expects(1 << 12)
    yield links, there
    links.close(None)
    there.close()


def message(tensor, k=4, name="theta"):
    return Header.of(tensor, k, name).pack() + tensor.numpy().tobytes()


def _end_in(sock):
    """The cause in the end that comes, after signs of life."""
    while True:
        content = sock.recv(HEADER.size, socket.MSG_WAITALL)
        assert len(content) == HEADER.size, "no end came"
        header = Header.unpack(content)
        if header.kind == END:
            return header.round


class TestSound:
    def test_what_is_sent_comes(self, pair):
        links, there = pair
        sent = torch.randn(1, 2, 3)
        there.sendall(Header(ALIVE).pack() + message(sent))
        assert links.receive(1, LIKE, 4, "theta").equal(sent)
        links.send(1, sent, 4, "theta")
        got = there.recv(1 << 12, socket.MSG_WAITALL | socket.MSG_DONTWAIT)
        assert message(sent) in got

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"GET / HTTP/1.1\r\n".ljust(HEADER.size), "no frame of this program"),
            (message(torch.zeros(1, 2, 4)), r"float32 \(1, 2, 4\), where"),
            (message(torch.zeros(2, 3)), "where theta of round 4"),
            (message(LIKE.double()), "float64"),
            (message(LIKE, k=5), "theta of round 5"),
            (message(LIKE, name="other"), "other of round 4"),
            (message(torch.full((1, 2, 3), torch.nan)), "not finite"),
            (message(torch.full((1, 2, 3), -torch.inf)), "not finite"),
            (message(torch.zeros(1, 2, 3000)), "more than the 4096 bytes"),
            (message(LIKE).replace(b"theta", b"\x1b[31m"), "a name that is no text"),
            (message(LIKE)[:-24].replace(b"PVA1", b"PVA2"), "no frame"),
            (Header(END, 5 * 256 + 1).pack(), "an end without a cause"),
            (Header(END, 256 + 77).pack(), "an end without a cause"),
            (Header(MESSAGE, 4, "theta").pack(), "without a content"),
        ],
    )
    def test_malformed(self, pair, content, why):
        """It is named, and told that it is; at once."""
        links, there = pair
        began = time.monotonic()
        there.sendall(content)
        match = f"party 1 sent something malformed: .*{why}.*goes on from"
        with pytest.raises(PartyLostError, match=match):
            links.receive(1, LIKE, 4, "theta")
        assert time.monotonic() - began < 10
        told = b""
        while Header(END, 256 + 3).pack() not in told:
            told += there.recv(1 << 12)

    @pytest.mark.parametrize(
        ("place", "value"),
        [
            (struct.calcsize("<4s"), 99),  # a kind
            (5, 9),  # a dtype
            (6, 7),  # dimensions
            (7, 1),  # what is always 0
            (-1, 0x7F),  # the length
            (-9, 1),  # a fourth dimension
        ],
    )
    def test_headers_that_contradict_themselves(self, place, value):
        header = bytearray(Header.of(LIKE, 4, "theta").pack())
        header[place] = value
        with pytest.raises(
            ValueError, match=r"no frame|unknown|contradicts|a frame of"
        ):
            Header.unpack(header)

    def test_headers_come_back(self):
        for header in (Header.of(LIKE, 4, "theta"), Header(END, 3), Header(ALIVE)):
            assert Header.unpack(header.pack()) == header

    def test_words_are_of_their_kind(self, pair):
        links, there = pair
        there.sendall(words("start", b'["x"]') + b'["x"]')
        with pytest.raises(PartyLostError, match="words on start that cannot be read"):
            links.exchange("start", {"a": "b"}, dict[str, str])

    def test_no_pickles(self, pair):
        """Words that would run code are no words."""
        links, there = pair
        code = b"cos\nsystem\n(S'touch hacked'\ntR."
        there.sendall(words("start", code) + code)
        with pytest.raises(PartyLostError, match="party 1 sent something malformed"):
            links.exchange("start", {"a": "b"}, dict[str, str])

    def test_what_is_queued_is_bounded(self, pair):
        """Whoever sends ahead waits, whatever it says; what was sent comes in order."""
        links, there = pair
        links.expects(100)  # of 24 bytes each: four
        sent = [torch.full((1, 2, 3), float(k)) for k in range(40)]
        threading.Thread(
            target=lambda: [
                there.sendall(message(one, k)) for k, one in enumerate(sent)
            ]
        ).start()
        link = links._links[1]
        for k, one in enumerate(sent):
            until = time.monotonic() + 60
            while time.monotonic() < until and not link.is_full and k < 30:
                time.sleep(0.01)
            content = [len(part) for _, part in link.frames[MESSAGE]]
            assert sum(content) == link.queued[MESSAGE] <= 100
            assert links.receive(1, LIKE, k, "theta").equal(one)
        assert link.queued[MESSAGE] == 0

    @pytest.mark.parametrize(
        "header",
        [
            Header.of(LIKE.double(), 4, "theta"),
            Header.of(LIKE, 4, "other"),
            Header.of(LIKE, 3, "theta"),
            Header.of(torch.zeros(1, 2, 1 << 20), 4, "theta"),
        ],
    )
    def test_what_is_due_is_checked_before_it_is_read(self, pair, header):
        """By its header alone: the content never comes."""
        links, there = pair
        links.due(4, {1: [("theta", LIKE)]})
        there.sendall(header.pack())
        with pytest.raises(PartyLostError, match="party 1 sent something malformed"):
            links.receive(1, LIKE, 4, "theta")

    @pytest.mark.parametrize("early", [False, True])
    def test_a_later_message_without_room_is_no_way_to_hang(self, pair, early):
        """It waited for room behind what was due, and its sender was not missed."""
        links, there = pair
        links.due(4, {1: [("theta", LIKE)]})
        large = Header.of(torch.zeros(1, 2, 1 << 20), 7, "theta").pack()
        late = threading.Timer(0.0 if early else 0.5, there.sendall, [large])
        late.start()
        if early:
            time.sleep(0.2)
        with pytest.raises(PartyLostError, match="before what is due in round 4"):
            links.receive(1, LIKE, 4, "theta")

    def test_what_is_due_is_read(self, pair):
        """Before it is said what is due, and after; of the next round as well."""
        links, there = pair
        there.sendall(message(LIKE + 1, 4) + message(LIKE + 2, 5))
        for k in (4, 5):
            links.due(k, {1: [("theta", LIKE)]})
            assert links.receive(1, LIKE, k, "theta").equal(LIKE + k - 3)
        there.sendall(message(LIKE, 6))
        links.due(6, {1: [("theta", LIKE)]})
        assert links.receive(1, LIKE, 6, "theta").equal(LIKE)

    def test_both_send_a_round_before_they_receive(self):
        """Of several messages each, all larger than any buffer: none waits for ever."""
        here, there = socket.socketpair()
        both = Links(0, 2, {1: here}), Links(1, 2, {0: there})
        large, found = torch.ones(1, 1, 1 << 20), [0.0, 0.0]

        def trade(rank):
            links, names = both[rank], ("a", "b", "c")
            links.expects(large.numel() * 4)  # less than a round has
            for k in range(3):
                links.due(k, {1 - rank: [(name, large) for name in names]})
                for name in names:
                    links.send(1 - rank, large, k, name)
                for name in names:
                    got = links.receive(1 - rank, large, k, name)
                    found[rank] += float(got.mean())

        threads = [threading.Thread(target=trade, args=(rank,)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert found == [9.0, 9.0]
        for one in both:
            one.close(None)

    def test_words_ahead_are_bounded(self, pair):
        links, there = pair
        text = b'"' + b"x" * 500_000 + b'"'
        there.sendall((words("start", text) + text) * 2 + words("start", text))
        with pytest.raises(PartyLostError, match="more words than are due"):
            links.receive(1, LIKE, 4, "theta")

    def test_too_many_words(self, pair):
        links, there = pair
        there.sendall(words("start", b"{}" * (1 << 23) + b" "))
        with pytest.raises(PartyLostError, match="more than"):
            links.exchange("start", {}, dict[str, str])


class TestLost:
    def test_a_connection_that_ends(self, pair):
        links, there = pair
        there.close()
        with pytest.raises(PartyLostError, match="party 1 has ended; the same command"):
            links.receive(1, LIKE, 4, "theta")

    @pytest.mark.parametrize("ends", ["before", "meanwhile"])
    def test_closed_while_a_thread_sends(self, pair, ends):
        """Another thread of this party ends it: nobody else is blamed."""
        links, _ = pair
        if ends == "before":
            links.close(KeyboardInterrupt())
        else:
            threading.Timer(0.3, links.close, [KeyboardInterrupt()]).start()
        with pytest.raises(PartyLostError, match="this party has closed"):
            links.send(1, torch.zeros(1, 1, 1 << 20), 4, "theta")

    def test_nobody_is_needed_any_more(self, pair):
        links, there = pair
        links.over()
        there.close()
        links.send(1, LIKE, 4, "theta")

    def test_silence(self, pair, monkeypatch):
        links, _ = pair
        monkeypatch.setattr(_links, "SILENCE", 0.5)
        with pytest.raises(PartyLostError, match="party 1 does not answer in 1 s"):
            links.receive(1, LIKE, 4, "theta")

    @pytest.mark.full
    def test_a_failure_while_modules_are_sought(self, pair):
        """No import takes it for a file that is not there."""
        links, there = pair

        class Finder:
            @staticmethod
            def find_spec(*_):
                with contextlib.suppress(OSError):  # as `importlib` has it
                    for _ in range(400):
                        time.sleep(0.05)

        there.close()
        sys.meta_path.append(Finder)
        try:
            with (
                pytest.raises(PartyLostError, match="party 1 has ended"),
                links.watched(),
            ):
                import no_such_module_anywhere  # noqa: F401
        finally:
            sys.meta_path.remove(Finder)

    @pytest.mark.full
    def test_who_computes_long_is_not_lost(self, pair, monkeypatch):
        links, there = pair
        monkeypatch.setattr(_links, "SILENCE", 1.5)
        ended = threading.Event()

        def beats():
            while not ended.wait(0.2):
                with contextlib.suppress(OSError):
                    there.send(Header(ALIVE).pack())

        threading.Thread(target=beats, daemon=True).start()
        time.sleep(2.5)
        links.check()
        ended.set()

    def test_who_was_stopped_itself_blames_nobody(self, pair, monkeypatch):
        """Its own clock jumped: it was asleep, not the others."""
        links, there = pair
        monkeypatch.setattr(_links, "SILENCE", 5.0)
        jump = itertools.chain([100.0], itertools.repeat(100.0))
        real = time.monotonic
        monkeypatch.setattr(_links.time, "monotonic", lambda: real() + next(jump))
        there.send(Header(ALIVE).pack())
        time.sleep(1.2)
        links.check()

    def test_what_another_says(self):
        """Of three: 1 tells that 2 hangs; who says so is said."""
        ends = [socket.socketpair() for _ in range(2)]
        links = Links(0, 3, {1: ends[0][0], 2: ends[1][0]})
        ends[0][1].sendall(Header(END, 2 * 256 + 2).pack())
        with pytest.raises(
            PartyLostError, match="party 2 does not answer, as party 1 says"
        ):
            links.receive(1, LIKE, 0, "theta")
        links.close(None)
        for _, there in ends:
            there.close()

    def test_who_closes_has_told(self, monkeypatch):
        """Of three: 1 is malformed; 0 closes before the thread that saw it tells."""
        ends = [socket.socketpair() for _ in range(2)]
        links = Links(0, 3, {1: ends[0][0], 2: ends[1][0]})
        closed, tell = threading.Event(), links._tell

        def late():
            if threading.current_thread() is not threading.main_thread():
                closed.wait(60)
            tell()

        monkeypatch.setattr(links, "_tell", late)
        ends[0][1].sendall(b"x" * HEADER.size)
        with pytest.raises(PartyLostError, match="party 1 sent something") as lost:
            links.receive(2, LIKE, 0, "theta")
        links.close(lost.value)
        closed.set()
        assert _end_in(ends[1][1]) == 1 * 256 + 3
        for _, there in ends:
            there.close()

    def test_who_leaves_too_early_is_named_to_the_others(self):
        """Of three: 1 says goodbye where a message of it is due at 0."""
        ends = [socket.socketpair() for _ in range(2)]
        links = Links(0, 3, {1: ends[0][0], 2: ends[1][0]})
        ends[0][1].sendall(Header(BYE).pack())
        with pytest.raises(PartyLostError, match="party 1 has ended before") as lost:
            links.receive(1, LIKE, 0, "theta")
        links.close(lost.value)
        assert _end_in(ends[1][1]) == 1 * 256 + 1
        for _, there in ends:
            there.close()

    def test_who_waits_to_send_tells_all_the_same(self):
        """Nothing of its message was sent: the end comes in its place."""
        ends = [socket.socketpair() for _ in range(2)]
        links = Links(0, 3, {1: ends[0][0], 2: ends[1][0]})
        with contextlib.suppress(BlockingIOError):
            while True:  # 2 reads nothing, and has no room
                ends[1][0].send(Header(ALIVE).pack(), socket.MSG_DONTWAIT)
        waits = threading.Timer(0.3, ends[0][1].sendall, [b"x" * HEADER.size])
        waits.start()
        with pytest.raises(PartyLostError, match="party 1 sent something"):
            links.send(2, LIKE, 0, "theta")
        assert links._links[2].is_whole
        links.close(links.failure)
        for _, there in ends:
            there.close()

    def test_an_error_of_its_own(self):
        here, there = socket.socketpair()
        one, two = Links(0, 2, {1: here}), Links(1, 2, {0: there})
        one.close(ValueError("bad data"))
        with pytest.raises(
            PartyLostError, match="party 0 ended with an error of its own"
        ):
            two.receive(0, LIKE, 0, "theta")
        two.close(None)

    def test_who_is_done_is_not_lost(self):
        here, there = socket.socketpair()
        one, two = Links(0, 2, {1: here}), Links(1, 2, {0: there})
        one.close(None)
        time.sleep(0.3)
        two.check()
        two.close(None)

    def test_large_messages_both_ways(self):
        """Both send more than any buffer has before either receives."""
        here, there = socket.socketpair()
        both = Links(0, 2, {1: here}), Links(1, 2, {0: there})
        large = torch.randn(1, 4, 1 << 20)
        found = [None, None]

        def trade(rank):
            both[rank].expects(1 << 26)
            both[rank].send(1 - rank, large + rank, 0, "theta")
            found[rank] = both[rank].receive(1 - rank, large, 0, "theta")

        threads = [threading.Thread(target=trade, args=(rank,)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert found[0].equal(large + 1)
        assert found[1].equal(large)
        for one in both:
            one.close(None)


def free_port(monkeypatch):
    """Where parties are to meet."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    return port


class TestMeeting:
    def test_who_does_not_come_is_named(self, monkeypatch):
        port = free_port(monkeypatch)
        with (
            pytest.raises(PartyLostError, match="parties 1, 2 did not come within 1 s"),
            joined(0, 3, patience=1.0),
        ):
            pass
        with (
            pytest.raises(PartyLostError, match=f"party 0 cannot be .* port {port}"),
            joined(1, 3, patience=0.5),
        ):
            pass

    def test_who_came_is_told_who_did_not(self, monkeypatch):
        free_port(monkeypatch)
        found = {}

        def meet(rank):
            try:
                with joined(rank, 3, patience=1.5):
                    pass
            except PartyLostError as error:
                found[rank] = str(error)

        threads = [threading.Thread(target=meet, args=(rank,)) for rank in (0, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert found[0].startswith("party 1 did not come within 2 s")
        assert found[2].startswith("party 1 did not come, as party 0 says; the same")

    def test_strangers_are_not_heard(self, monkeypatch):
        """Who says something else is left alone; three parties meet all the same."""
        port = free_port(monkeypatch)
        found = {}

        def meet(rank):
            with joined(rank, 3, patience=30) as links:
                found[rank] = links.exchange("who", {"rank": rank}, dict[str, int])

        threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(3)]
        threads[0].start()
        for _ in range(100):
            try:
                with socket.create_connection(("127.0.0.1", port)) as stranger:
                    stranger.sendall(b"GET / HTTP/1.1\r\n\r\n".ljust(HEADER.size))
                break
            except OSError:
                time.sleep(0.05)
        for thread in threads[1:]:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [*found.values()] == [[{"rank": rank} for rank in range(3)]] * 3

    def test_strangers_hold_up_nobody(self, monkeypatch):
        """Many, who say nothing, or a byte now and then: each would take 5 s."""
        port = free_port(monkeypatch)
        found, ended, strangers = {}, threading.Event(), []

        def meet(rank):
            with joined(rank, 3, patience=30) as links:
                found[rank] = links.exchange("who", {"rank": rank}, dict[str, int])

        threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(3)]
        threads[0].start()
        until = time.monotonic() + 60
        while len(strangers) < 60 and time.monotonic() < until:
            with contextlib.suppress(OSError):
                strangers.append(socket.create_connection(("127.0.0.1", port)))

        def drip():
            for byte in itertools.cycle(words("hello", b"{}")):
                for stranger in strangers[::2]:
                    with contextlib.suppress(OSError):
                        stranger.send(bytes([byte]), socket.MSG_DONTWAIT)
                if ended.wait(0.1):
                    return

        threading.Thread(target=drip).start()
        try:
            for thread in threads[1:]:
                thread.start()
            for thread in threads:
                thread.join(60)
        finally:
            ended.set()
            for stranger in strangers:
                stranger.close()
        assert [*found.values()] == [[{"rank": rank} for rank in range(3)]] * 3

    @pytest.mark.parametrize(
        "hello",
        [
            {"rank": 1, "size": 2, "token": "", "host": "h", "port": 1 << 16},
            {"rank": 1, "size": 2, "token": "", "host": "h", "port": -1},
            {"rank": 1, "size": 2, "token": "", "host": "h" * 256, "port": 1},
            {"rank": 1, "size": 2, "token": "t" * 5000, "host": "h", "port": 1},
            {"rank": 1},
            "x",
        ],
    )
    def test_what_is_no_hello(self, monkeypatch, hello):
        """It is a stranger's: the party that is waited for did not come."""
        port = free_port(monkeypatch)
        text = json.dumps(hello).encode()

        def says():
            until = time.monotonic() + 60
            while time.monotonic() < until:
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", port)) as stranger,
                ):
                    stranger.sendall(words("hello", text) + text)
                    return

        threading.Thread(target=says).start()
        with (
            pytest.raises(PartyLostError, match="party 1 did not come"),
            joined(0, 2, patience=0.5),
        ):
            pass

    @pytest.mark.parametrize(
        "hellos",
        [
            [{"rank": 7, "size": 9}],
            [{"rank": 0, "size": 3}, {"rank": -1, "size": 3}, {"rank": 3, "size": 3}],
            [{"rank": 1, "size": 3}],  # and silent ever after
            [{"rank": 1, "size": 3}, {"rank": 1, "size": 3}, {"rank": 2, "size": 3}],
            [{"rank": 1, "size": 3, "host": "a\0b", "port": 1}],
        ],
    )
    def test_who_says_wrong_things_ends_nobody(self, monkeypatch, hellos):
        """They come first, and stay: three parties meet all the same."""
        port = free_port(monkeypatch)
        found, strangers = {}, []

        def meet(rank):
            with joined(rank, 3, patience=30) as links:
                found[rank] = links.exchange("who", {"rank": rank}, dict[str, int])

        threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(3)]
        threads[0].start()
        until = time.monotonic() + 60
        while len(strangers) < len(hellos) and time.monotonic() < until:
            with contextlib.suppress(OSError):
                stranger = socket.create_connection(("127.0.0.1", port))
                more = {"token": "", "host": "127.0.0.1", "port": 1}
                text = json.dumps(more | hellos[len(strangers)]).encode()
                stranger.sendall(words("hello", text) + text)
                strangers.append(stranger)
        time.sleep(0.2)  # they are heard first
        for thread in threads[1:]:
            thread.start()
        for thread in threads:
            thread.join(60)
        for stranger in strangers:
            stranger.close()
        assert [*found.values()] == [[{"rank": rank} for rank in range(3)]] * 3

    def test_who_came_twice_and_who_came_again(self, monkeypatch):
        """A second party of one number is sent away; one whose first ended is not."""
        free_port(monkeypatch)
        found = {}

        def meet(name, rank, patience):
            try:
                with joined(rank, 3, patience=patience) as links:
                    found[name] = links.exchange("who", {"rank": rank}, dict[str, int])
            except PartyLostError as error:
                found[name] = str(error)

        threads = [
            threading.Thread(target=meet, args=("first", 0, 30)),
            threading.Thread(target=meet, args=("one", 1, 30)),
        ]
        for thread in threads:
            thread.start()
            time.sleep(0.3)
        meet("second", 1, 5)
        assert "no place for number 1 of 3" in found.pop("second")
        threads.append(threading.Thread(target=meet, args=("two", 2, 30)))
        threads[-1].start()
        for thread in threads:
            thread.join(60)
        assert [*found.values()] == [[{"rank": rank} for rank in range(3)]] * 3

    def test_who_was_sent_away_is_named_in_the_end(self, monkeypatch):
        free_port(monkeypatch)

        def meet():
            with contextlib.suppress(PartyLostError), joined(2, 9, patience=2.0):
                pass

        threading.Thread(target=meet).start()
        with (
            pytest.raises(PartyLostError, match="came as number 2 of 9 was sent away"),
            joined(0, 3, patience=2.0),
        ):
            pass

    @pytest.mark.parametrize("host", ["a\0b", "x" * 70 + ".org"])
    def test_an_address_that_is_none(self, monkeypatch, host):
        """What another party says of where it is may be any text."""
        port = free_port(monkeypatch)

        def first():
            places = [["127.0.0.1", port], [host, 9], ["127.0.0.1", 9]]
            text = json.dumps({"token": "t", "places": places}).encode()
            with (
                socket.create_server(("127.0.0.1", port)) as listening,
                listening.accept()[0] as sock,
            ):
                sock.sendall(words("hello", text) + text)
                while sock.recv(1 << 12):
                    pass

        threading.Thread(target=first).start()
        with (
            pytest.raises(PartyLostError, match=r"party 1 says .* no address"),
            joined(2, 3, patience=30.0),
        ):
            pass

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({}, "parties need RANK"),
            ({"RANK": "0"}, "parties need WORLD_SIZE"),
            ({"RANK": "x", "WORLD_SIZE": "2"}, "parties need RANK .* got 'x'"),
            ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is from 0"),
        ],
    )
    def test_where_am_i(self, monkeypatch, given, words):
        for name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ValueError, match=words):
            where_am_i()

    @pytest.mark.parametrize("text", ["soon", "0", "inf", "nan"])
    def test_patience_is_a_number(self, monkeypatch, text):
        monkeypatch.setenv("PRIVAUDIT_PATIENCE", text)
        with pytest.raises(ValueError, match="a number of seconds"), joined(0, 2):
            pass

    def test_who_says_otherwise(self, monkeypatch):
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert where_am_i(1) == (1, 2)
        with pytest.raises(ValueError, match="party=0 was given where RANK is 1"):
            where_am_i(0)
        for number in ("1", True, -1, 1.0):
            with pytest.raises(ValueError, match="party is a whole number from 0 on"):
                where_am_i(number)
