"""Contract of supervisor: workers are heard, missed when they die, and never left."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from trainers.runs.supervisor import Exit, Supervisor


def echo(pipe, prefix):
    """Say who is there, then everything that is said, until told to end."""
    pipe.send((os.getpid(), torch.get_num_threads()))
    while (said := pipe.recv()) != "end":
        if isinstance(said, int):
            os._exit(said)
        pipe.send(prefix + said)


def heard(supervisor, timeout=60.0):
    return list(supervisor.listen(timeout))


def alive(process):
    """Whether it runs: a zombie's memory is gone."""
    try:
        with open(f"/proc/{process}/statm") as file:
            return file.read().split()[0] != "0"
    except OSError:
        return False


def gone(process, seconds=20.0):
    end = time.monotonic() + seconds
    while alive(process) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(process)


class TestLaws:
    def test_each_is_told_and_heard(self):
        with Supervisor(echo) as supervisor:
            pids = {}
            for prefix in "ab":
                worker = supervisor.start(prefix)
                ((pids[worker], threads),) = [m for _, m in heard(supervisor)]
                assert threads == 1
            assert supervisor.workers == {0, 1} == pids.keys()
            assert len({os.getpid(), *pids.values()}) == 3
            supervisor.send(1, "x")
            assert heard(supervisor) == [(1, "bx")]
            assert heard(supervisor, 0.01) == []
            supervisor.send(0, "end")
            assert heard(supervisor) == [(0, Exit(0))]
            assert supervisor.workers == {1}
        assert gone(pids[1])

    @pytest.mark.parametrize(
        ("how", "status", "words"),
        [
            (7, 7, "exit status 7"),
            (signal.SIGKILL, -9, "killed by SIGKILL"),
            (signal.SIGSEGV, -11, "killed by SIGSEGV"),
        ],
    )
    def test_a_death_is_heard_once_and_says_how(self, how, status, words):
        with Supervisor(echo) as supervisor:
            first, second = supervisor.start(""), supervisor.start("")
            pids = dict([*heard(supervisor), *heard(supervisor, 5.0)])
            if isinstance(how, signal.Signals):
                os.kill(pids[first][0], how)
            else:
                supervisor.send(first, how)
            assert heard(supervisor) == [(first, Exit(status))]
            assert str(Exit(status)) == words
            assert supervisor.start("") == 2  # no number is used twice
            assert supervisor.workers == {second, 2}

    def test_who_is_told_after_its_death_is_heard_of(self):
        with Supervisor(echo) as supervisor:
            worker = supervisor.start("")
            ((_, (pid, _)),) = heard(supervisor)
            os.kill(pid, signal.SIGKILL)
            assert gone(pid)
            supervisor.send(worker, "x")
            assert heard(supervisor) == [(worker, Exit(-9))]

    def test_an_error_here_leaves_none_behind(self):
        found = []

        def interrupted():
            with Supervisor(echo) as supervisor:
                supervisor.start("")
                found.extend(heard(supervisor))
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        ((_, (pid, _)),) = found
        assert gone(pid)


class TestItsOwnDeath:
    PROGRAM = (
        "import time; from tests.trainers.runs.test_supervisor import *\n"
        # Shells have what runs in their background ignore it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with Supervisor(echo) as supervisor:\n"
        "    supervisor.start('')\n"
        "    print(heard(supervisor)[0][1][0], flush=True)\n"
        "    time.sleep(100)\n"
    )

    @pytest.mark.full
    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
    def test_workers_end_with_it(self, how):
        """Ctrl-C goes to all processes of a terminal; workers wait for their end."""
        command = [sys.executable, "-c", self.PROGRAM]
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        worker = int(child.stdout.readline())
        if how is signal.SIGINT:
            os.kill(worker, how)
            time.sleep(0.2)
            assert alive(worker)
        os.kill(child.pid, how)
        _, said = child.communicate(timeout=60)
        assert gone(worker)
        assert "worker" not in said  # no traceback of its own
