"""What a manifest lists, and that a finished folder has one."""

import hashlib
import stat

import msgspec
import pytest

from privaudit.files.folder import FolderError, RunFolder
from privaudit.files.manifest import digest_of, evidence, read, seal, write_result


class Result(msgspec.Struct):
    epsilon: float


def finished(path, *, released=()):
    with RunFolder.opened(path) as folder:
        for name in ("config.json", "ledger.json", "checkpoint.pt"):
            folder.write(name, name.encode())
        write_result(folder, Result(0.5), released)
    return folder


class TestSound:
    def test_every_file_of_the_evidence_has_its_digest(self, tmp_path):
        folder = finished(tmp_path)
        manifest = read(folder)
        assert manifest is not None
        assert list(manifest.files) == ["config.json", "ledger.json", "result.json"]
        for name, file in manifest.files.items():
            content = (tmp_path / name).read_bytes()
            assert file.sha256 == hashlib.sha256(content).hexdigest()
            assert digest_of(tmp_path / name) == file.sha256

    def test_all_is_private_but_what_is_named(self, tmp_path):
        manifest = read(finished(tmp_path, released=("config.json",)))
        assert manifest is not None
        private = {name: file.private for name, file in manifest.files.items()}
        assert private == {
            "config.json": False,
            "ledger.json": True,
            "result.json": True,
        }

    def test_only_its_owner_may_read_it(self, tmp_path):
        finished(tmp_path)
        mode = (tmp_path / "manifest.json").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600

    def test_a_planted_link_is_replaced_and_not_followed(self, tmp_path):
        other = tmp_path / "thesis"
        other.write_text("mine")
        run = tmp_path / "run"
        run.mkdir()
        (run / "manifest.json").symlink_to(other)
        finished(run)
        assert other.read_text() == "mine"
        assert not (run / "manifest.json").is_symlink()

    def test_a_link_has_no_digest(self, tmp_path):
        (tmp_path / "file").write_text("text")
        (tmp_path / "link").symlink_to("file")
        assert digest_of(tmp_path / "link") is None
        assert digest_of(tmp_path / "none") is None

    def test_a_finished_folder_has_one(self, tmp_path, monkeypatch):
        def killed(self, name, content):
            if name == "result.json":
                raise KeyboardInterrupt
            write(self, name, content)

        write = RunFolder.write
        monkeypatch.setattr(RunFolder, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            finished(tmp_path)
        folder = RunFolder(tmp_path)
        assert folder.has("manifest.json")
        assert not folder.has("result.json")


class TestLaws:
    def test_a_signature_goes_with_the_manifest_that_it_is_of(self, tmp_path):
        folder = finished(tmp_path)
        folder.write("manifest.sig", b"signed")
        seal(folder)  # the same files, but now all are private
        assert folder.has("manifest.sig")
        folder.write("ledger.json", b"another")
        seal(folder)
        assert not folder.has("manifest.sig")

    def test_pages_and_checkpoints_are_no_evidence(self, tmp_path):
        folder = finished(tmp_path)
        before = evidence(folder)
        folder.write("report.html", b"<html>")
        assert evidence(folder) == before

    def test_a_folder_may_have_none(self, tmp_path):
        assert read(RunFolder(tmp_path)) is None

    def test_what_is_no_manifest_is_named(self, tmp_path):
        folder = finished(tmp_path)
        folder.write("manifest.json", b"[]")
        with pytest.raises(FolderError, match=r"manifest\.json is damaged"):
            read(folder)

    def test_seal_lists_more(self, tmp_path):
        with RunFolder.opened(tmp_path / "all" / "one") as folder:
            folder.write("config.json", b"{}")
            seal(folder)
        other = RunFolder(tmp_path / "all")
        other.write("config.json", b"{}")
        seal(other, ["one/manifest.json"])
        manifest = read(other)
        assert manifest is not None
        assert list(manifest.files) == ["config.json", "one/manifest.json"]
