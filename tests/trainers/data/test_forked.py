"""Calls in processes of their own: what comes back, and what does not."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import signal
import socket
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
import torch
from torch import nn

from trainers.data import forked
from trainers.data.forked import Ended
from trainers.gradients.door.isolated import Isolated
from trainers.gradients.per_sample import PerSample, parameter_vector
from trainers.models.start import cross_entropy

ONE = torch.ones(1)


def failing(how):
    how()
    return (ONE,)


class TestSound:
    def test_nothing_of_a_call_is_left(self):
        kept, shared = [], torch.zeros(2).share_memory_()
        state = torch.get_rng_state()

        def call():
            kept.append(1)
            shared.add_(1)
            torch.nn.left_behind = kept
            os.environ["LEFT_BEHIND"] = "1"
            return torch.rand(1), torch.tensor(len(kept)), shared.clone()

        for found in forked.each([call] * 3):
            assert [float(part.sum()) for part in found[1:]] == [1, 2]
            assert found[0].equal(torch.rand(1))
            torch.set_rng_state(state)
        assert not kept
        assert not shared.any()
        assert not hasattr(torch.nn, "left_behind")
        assert "LEFT_BEHIND" not in os.environ
        assert torch.equal(torch.get_rng_state(), state)

    def test_memory_may_be_shared_no_more_or_only_now(self, monkeypatch):
        """Since the first was forked; of what was listed before, reading is fatal."""
        monkeypatch.setattr(os, "cpu_count", lambda: 1)
        mapped = [mmap.mmap(-1, 1 << 20)]

        def call():
            mapped[0][:1] = b"x"
            return (ONE,)

        class Calls(list):
            def __iter__(self):
                yield self[0]
                mapped.pop().close()
                mapped.append(mmap.mmap(-1, 1 << 12))
                yield self[1]

        assert forked.each(Calls([call] * 2)) == [(ONE,)] * 2
        assert mapped[0][:1] == b"\0"

    def test_nothing_of_one_is_seen_by_another(self, tmp_path):
        """Mapped files too, though what is written by name is left."""
        mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(5000,))
        mapped[4000] = 3

        def call():
            before = float(mapped[4000])
            mapped[4000] += 1
            return (torch.tensor([before, float(mapped[4000])]),)

        assert [one[0].tolist() for one in forked.each([call] * 3)] == [[3, 4]] * 3
        with open(tmp_path / "y", "w+b", buffering=0) as file:
            file.write(b"abcdef")
            file.seek(2)  # a place in it, which a fork shares
            found = forked.each([lambda: (torch.tensor(file.read(2)[0]),)] * 3)
            assert [chr(one[0]) for one in found] == ["c"] * 3
            assert file.tell() == 2
        assert mapped[4000] == 3
        mapped[4001] = 7  # which is still mapped
        mapped.flush()
        assert np.fromfile(tmp_path / "x", np.float32)[4001] == 7

    @pytest.mark.parametrize(
        ("how", "said"),
        [
            (lambda: 1 / 0, "ZeroDivisionError"),
            (lambda: sys.exit(3), "SystemExit: 3"),
            (lambda: os._exit(3), "ended with status 3"),
            (lambda: os._exit(0), "ended with status 0"),
            (lambda: signal.raise_signal(signal.SIGKILL), "signal 9"),
            (lambda: ctypes.string_at(0), "signal 11"),
            (lambda: signal.raise_signal(signal.SIGINT), "signal 2"),
        ],
    )
    def test_what_fails_or_crashes_is_told(self, how, said, capfd):
        first, other = forked.each([lambda: failing(how), lambda: (ONE,)])
        assert isinstance(first, Ended)
        assert said in str(first)
        assert other[0].equal(ONE)
        with pytest.raises(Ended, match=said):
            forked.one(lambda: failing(how))
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize(
        ("name", "loops"),
        [("_PROCESSOR", "while True: pass"), ("_CLOCK", "time.sleep(1e6)")],
    )
    def test_what_does_not_end_is_ended(self, name, loops, monkeypatch):
        monkeypatch.setattr(forked, name, 1 if name == "_PROCESSOR" else 0.1)
        (found,) = forked.each([lambda: failing(lambda: exec(loops))])
        assert "signal" in str(found)

    def test_a_process_that_it_leaves_behind_holds_nothing_up(self, tmp_path):
        ends, told = tmp_path / "ends", tmp_path / "told"
        for name in (ends, told):
            os.mkfifo(name)
        holds, tells = os.open(ends, os.O_RDWR), os.open(told, os.O_RDWR)

        def call():
            if not os.fork():
                with open(ends, "rb", 0) as file:
                    over = file.read(4)  # which its parent writes once it has an answer
                with open(told, "wb", 0) as file:
                    file.write(over)
                os._exit(0)
            return (ONE,)

        assert forked.one(call)[0].equal(ONE)
        os.write(holds, b"over")
        assert os.read(tells, 4) == b"over"
        for one in (holds, tells):
            os.close(one)

    def test_what_processes_share_is_not_there(self, tmp_path):
        """A pipe, a connection, what counts, a folder's place, a file that is open."""
        (ends, end), (one, other) = os.pipe(), socket.socketpair()
        counts, names = os.eventfd(5, os.EFD_NONBLOCK), os.scandir(tmp_path)
        for name in "abc":
            (tmp_path / name).touch()
        os.write(end, b"123456"), other.send(b"123456")
        with tempfile.TemporaryFile(buffering=0) as file:
            ways = (
                lambda: os.read(ends, 2),
                lambda: one.recv(2),
                lambda: os.eventfd_read(counts).to_bytes(),
                lambda: os.write(end, b"7").to_bytes(),
                lambda: os.pwrite(file.fileno(), b"7", 0).to_bytes(),
                lambda: next(names).name.encode(),
            )
            taken = []
            for way in ways:
                found = forked.each([lambda way=way: (torch.tensor([*way()]),)] * 2)
                taken.append(
                    [None if isinstance(x, Ended) else x[0].tolist() for x in found]
                )
            assert not file.read()
        assert taken[:-1] == [[[]] * 2, *[[None] * 2] * 4]
        assert taken[-1][0] == taken[-1][1] is not None
        assert (os.read(ends, 9), one.recv(9)) == (b"123456",) * 2
        for each in (ends, end, counts):
            os.close(each)
        one.close(), other.close(), names.close()

    def test_clocks_and_numbers_tell_nothing_of_those_before(self, monkeypatch):
        forked.begin()
        begun = {"time": 1e9, "monotonic_ns": 10**12}
        for name, long_ago in begun.items():
            monkeypatch.setitem(forked._begun, name, long_ago)

        def call():
            numbers = os.getpid(), threading.get_native_id()
            late = [getattr(time, name)() / begun[name] - 1 for name in begun]
            with open("/proc/self/oom_score_adj") as file:
                return torch.tensor(late), torch.tensor([*numbers, int(file.read())])

        for late, numbers in forked.each([call] * 2):
            assert late.min() >= 0
            assert late.max() < 0.1
            assert numbers.tolist() == [1 << 22, 1 << 22, 1000]
        assert os.getpid() < 1 << 22
        assert time.time() > 1.5e9

    def test_what_is_unlike_has_ended(self):
        calls = [lambda: (ONE,), lambda: (ONE.double(),), lambda: (ONE, ONE), tuple]
        found = forked.each(calls, [ONE])
        assert [isinstance(one, Ended) for one in found] == [False, True, True, True]

    def test_nothing_but_tensors_comes_back(self):
        (found,) = forked.each([lambda: (object(),)])
        assert isinstance(found, Ended)

    def test_what_is_printed_is_not_shown(self, capfd):
        forked.one(lambda: failing(lambda: print("a record", flush=True)))
        assert capfd.readouterr() == ("", "")

    def test_an_error_of_what_is_public_is_raised(self):
        with pytest.raises(ZeroDivisionError):
            forked.public(lambda: 1 / 0)
        with pytest.raises(Ended, match="status 3"):
            forked.public(lambda: os._exit(3))
        assert forked.public(lambda: {"a": [1, "b"]}) == {"a": [1, "b"]}


class TestTight:
    def test_large_tensors_and_many_calls(self):
        calls = [lambda k=k: (torch.full((300_000,), float(k)),) for k in range(9)]
        found = forked.each(calls)
        assert [float(one[0].sum()) for one in found] == [3e5 * k for k in range(9)]

    def test_gradients_where_its_parent_had_threads(self):
        """Whose locks and workers the child has not."""
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 3))
        inputs, targets = torch.randn(500, 600), torch.arange(500) % 3
        nn.functional.cross_entropy(net(inputs), targets).backward()
        own = PerSample(Isolated(net), cross_entropy)
        at = parameter_vector(net)
        found = own.gradients(at[None], inputs[None, :2], targets[None, :2])
        wanted = PerSample(net, cross_entropy).gradients(
            at[None], inputs[None, :2], targets[None, :2]
        )
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)

    def test_generators_of_the_module_are_each_records_own(self):
        draws = np.random.default_rng(0)

        class Noisy(nn.Linear):
            def forward(self, x):
                return super().forward(x * float(draws.random()))

        own = PerSample(Isolated(Noisy(3, 2)), cross_entropy)
        at = parameter_vector(own.module)[None]
        inputs, targets = torch.randn(1, 2, 3), torch.zeros(1, 2).long()
        first = own.gradients(at, inputs, targets)
        assert own.gradients(at, inputs, targets).equal(first)
        own.word = 5
        assert not own.gradients(at, inputs, targets).equal(first)
        assert own.gradients(at, inputs[:, 1:], targets[:, 1:])[0, 0].equal(
            own.gradients(at, inputs, targets)[0, 1]
        )
        assert gc.isenabled()


def test_a_lock_that_another_thread_has_is_free_in_the_child(monkeypatch):
    monkeypatch.setattr(forked, "_CLOCK", 10)
    lock, has, found = forked.lock(), threading.Event(), []

    def hold():
        with lock:
            has.set()
            time.sleep(0.3)  # which is in the middle of the fork

    def child():
        with lock:
            return "free"

    other = threading.Thread(target=hold)
    other.start()
    has.wait()
    found.append(forked.public(child))
    other.join()
    assert found == ["free"]
