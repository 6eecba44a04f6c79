"""Contract of privaudit.folder."""

import errno
import multiprocessing
import os
import pathlib

import msgspec
import pytest

from privaudit.folder import FolderError, RunFolder


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: int = 3
    name: str = "a"


def test_a_new_folder_is_made_and_settled(tmp_path):
    with RunFolder.opened(tmp_path / "a" / "b") as folder:
        assert folder.settle(Config()) is False
        assert folder.settle(Config()) is True
        folder.write("scores.npz", b"abc")
        assert (folder / "scores.npz").read_bytes() == b"abc"


def test_other_settings_are_named(tmp_path):
    with RunFolder.opened(tmp_path) as folder:
        folder.settle(Config())
        with pytest.raises(FolderError, match="runs = 3, not 4"):
            folder.settle(Config(runs=4))


def test_somebody_elses_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear")
    with (
        pytest.raises(FolderError, match=r"thesis\.tex"),
        RunFolder.opened(tmp_path),
    ):
        pass
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_scores_without_settings_are_nobodys(tmp_path):
    (tmp_path / "scores.npz").write_bytes(b"")
    with (
        RunFolder.opened(tmp_path) as folder,
        pytest.raises(FolderError, match="no config"),
    ):
        folder.settle(Config())


@pytest.mark.parametrize("content", [b"", b"{", b'{"runs": "x"}', b'{"other": 1}'])
def test_damaged_settings(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with (
        RunFolder.opened(tmp_path) as folder,
        pytest.raises(FolderError, match="damaged"),
    ):
        folder.settle(Config())


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(FolderError, match="cannot use"),
        RunFolder.opened(tmp_path / "file"),
    ):
        pass


def test_no_finished_run(tmp_path):
    with pytest.raises(FolderError, match="no finished run"):
        RunFolder(tmp_path).read("result.json", Config)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    with RunFolder.opened(tmp_path) as folder:
        folder.write("scores.npz", b"old")

        def full(number):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(FolderError, match="No space left"):
            folder.write("scores.npz", b"new")
        assert (folder / "scores.npz").read_bytes() == b"old"
        assert not (folder / "scores.npz.part").exists()


def test_half_a_file_of_a_killed_run_is_no_obstacle(tmp_path):
    (tmp_path / "scores.npz.part").write_bytes(b"half")
    with RunFolder.opened(tmp_path) as folder:
        folder.settle(Config())
        folder.write("scores.npz", b"whole")


def _hold(path, ready, leave):
    with RunFolder.opened(path):
        ready.set()
        leave.wait(30)


def test_one_process_at_a_time(tmp_path: pathlib.Path):
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready, leave))
    other.start()
    try:
        assert ready.wait(60)
        with (
            pytest.raises(FolderError, match="another process"),
            RunFolder.opened(tmp_path),
        ):
            pass
        other.kill()  # the lock goes with its holder
        other.join()
        with RunFolder.opened(tmp_path) as folder:
            assert folder.settle(Config()) is False
    finally:
        # `leave` is not set: that would wait for a killed process to take notice.
        other.kill()
        other.join()
