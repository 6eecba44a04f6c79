"""Contract of trainers.runs.real_clock.messages: no step is ever missing."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.runs.real_clock.messages import Journal, counted


def written(path, workers):
    journal = Journal(path)
    for worker in workers:
        journal.count(worker)
    journal.close()


@given(st.lists(st.integers(0, 4), max_size=30))
def test_steps_are_counted_by_worker(tmp_path_factory, workers):
    path = tmp_path_factory.mktemp("journal") / "steps.bin"
    written(path, workers)
    assert counted(path, 5) == [workers.count(k) for k in range(5)]


def test_no_file_is_no_step(tmp_path):
    assert counted(tmp_path / "steps.bin", 3) == [0, 0, 0]


def test_a_file_that_was_cut_in_a_step_has_it_for_everybody(tmp_path):
    path = tmp_path / "steps.bin"
    written(path, [0, 1, 1, 2])
    path.write_bytes(path.read_bytes()[:-1])
    assert counted(path, 3) == [2, 3, 1]


def test_a_worker_that_there_is_not(tmp_path):
    path = tmp_path / "steps.bin"
    written(path, [0, 3])
    with pytest.raises(ValueError, match="a step of worker 3 of 3"):
        counted(path, 3)


def test_many_write_at_once(tmp_path):
    path = tmp_path / "steps.bin"
    threads = [
        threading.Thread(target=written, args=(path, [worker] * 500))
        for worker in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted(path, 4) == [500] * 4


def test_a_step_that_cannot_be_written_is_not_made():
    journal = Journal("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        journal.count(0)
    journal.close()


def test_a_link_is_not_written_through(tmp_path):
    (tmp_path / "victim").write_bytes(b"dear")
    (tmp_path / "steps.bin").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic link"):
        Journal(tmp_path / "steps.bin")
    assert (tmp_path / "victim").read_bytes() == b"dear"
