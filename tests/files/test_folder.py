"""Contract of privaudit.files.folder."""

import concurrent.futures
import errno
import multiprocessing
import os
import pathlib
import threading

import msgspec
import pytest

from privaudit.files.folder import FolderError, RunFolder, write_whole


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: int = 3
    name: str = "a"
    epsilon: float = 1.0


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
        with pytest.raises(FolderError, match=r"epsilon = 1\.0, not 2\.0"):
            folder.settle(Config(runs=4, epsilon=2.0))  # from which others follow


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
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "result.json").write_text("{}")
    with pytest.raises(FolderError, match=r"there is one in .*one$"):
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
        assert sorted(os.listdir(tmp_path)) == [".lock", "scores.npz"]


class TestLinks:
    """What is planted in a folder is neither followed nor harmed."""

    @pytest.fixture
    def victim(self, tmp_path):
        path = tmp_path / "victim"
        path.write_text("dear")
        yield path
        assert path.read_text() == "dear"

    @pytest.mark.parametrize("name", ["scores.npz", "scores.npz.part"])
    def test_a_link_where_a_file_is_written(self, tmp_path, victim, name):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / name).symlink_to(victim)
        with RunFolder.opened(tmp_path / "run") as folder:
            folder.write("scores.npz", b"whole")
            assert (folder / "scores.npz").read_bytes() == b"whole"
            assert not (folder / "scores.npz").is_symlink()

    @pytest.mark.parametrize("more", ["", "x"])
    def test_a_file_where_a_folder_should_be(self, tmp_path, more):
        (tmp_path / "run").touch()
        said = r"file is where a folder .* with --out"
        with (
            pytest.raises(FolderError, match=said),
            RunFolder.opened(tmp_path / "run" / more),
        ):
            pass

    def test_a_link_where_the_part_of_this_write_would_be(
        self, tmp_path, victim, monkeypatch
    ):
        monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)
        with RunFolder.opened(tmp_path / "run") as folder:
            (folder / f"scores.npz.{'0' * 16}.part").symlink_to(victim)
            with pytest.raises(FolderError, match="File exists"):
                folder.write("scores.npz", b"whole")

    def test_a_link_for_the_lock(self, tmp_path):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / ".lock").symlink_to(tmp_path / "elsewhere")
        with (
            pytest.raises(FolderError, match="symbolic link, which is not followed"),
            RunFolder.opened(tmp_path / "run"),
        ):
            pass
        assert not (tmp_path / "elsewhere").exists()

    def test_a_folder_where_a_part_would_be(self, tmp_path):
        (tmp_path / "scores.npz.part").mkdir()
        with RunFolder.opened(tmp_path) as folder:
            folder.write("scores.npz", b"whole")
        assert (tmp_path / "scores.npz.part").is_dir()


def test_half_a_file_of_a_killed_run_is_no_obstacle(tmp_path):
    for name in ("scores.npz.part", f"scores.npz.{'0a' * 8}.part"):
        (tmp_path / name).write_bytes(b"half")
    with RunFolder.opened(tmp_path) as folder:
        folder.settle(Config())
        folder.write("scores.npz", b"whole")
    assert sorted(os.listdir(tmp_path)) == [".lock", "config.json", "scores.npz"]


def test_permissions_of_a_file_are_kept(tmp_path):
    old = os.umask(0o027)
    try:
        write_whole(tmp_path / "a", b"1")
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
        (tmp_path / "a").chmod(0o604)
        write_whole(tmp_path / "a", b"2")
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o604
    finally:
        os.umask(old)


class TestTaken:
    """Without a folder from the user, each run has its own."""

    def taken(self, path, config=None, *, ends=False):
        config = config or Config()
        with RunFolder.taken(path, lambda there: there.awaits(config)) as folder:
            folder.settle(config)
            if ends:
                folder.write("result.json", b"{}")
            return folder.path.name

    def test_an_unfinished_run_goes_on_and_others_are_left_alone(self, tmp_path):
        path = tmp_path / "new" / "run"
        assert self.taken(path) == "run"
        assert self.taken(path) == "run"
        assert self.taken(path, Config(runs=4)) == "run-2"
        assert self.taken(path, ends=True) == "run"
        assert self.taken(path) == "run-3"
        assert self.taken(path, Config(runs=4)) == "run-2"

    def test_what_is_in_use_damaged_or_something_else_is_passed_over(self, tmp_path):
        path = tmp_path / "run"
        with RunFolder.opened(path) as folder:
            folder.settle(Config())
            assert self.taken(path) == "run-2"
        (path / "config.json").write_text("{")
        (tmp_path / "run-2" / "thesis.tex").write_text("dear")
        (tmp_path / "run-3").write_text("a file")
        (tmp_path / "run-4").symlink_to(tmp_path / "nowhere")
        assert self.taken(path) == "run-5"

    def test_many_at_once_have_a_folder_each(self, tmp_path):
        start, held = threading.Barrier(8), threading.Barrier(8)

        def take(number):
            start.wait()
            config = Config()
            taken = RunFolder.taken(tmp_path / "run", lambda it: it.awaits(config))
            with taken as folder:
                folder.settle(config)
                held.wait(30)
                return folder.path

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(take, range(8)))) == 8

    def test_where_none_can_be_made(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(FolderError, match="cannot make"):
            self.taken(tmp_path / "file" / "run")


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
