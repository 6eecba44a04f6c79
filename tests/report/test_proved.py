"""Certificates of folders: held against the ledger, proved by the kernel."""

import json

import pytest

from privaudit import PoissonSampling, Release, kernel, verify
from privaudit.accounting.certificate import Certificate, keep_witness
from privaudit.accounting.recorded import RecordedRun, write
from privaudit.auditing.experiments import experiment
from privaudit.auditing.programs.audit import ProgramAudit, digest_of_ledger, run
from privaudit.cli import COULD_NOT, FINE, REFUTED, main
from privaudit.files import manifest
from privaudit.files.folder import CERTIFICATE, RunFolder
from privaudit.ledger import Entry, Ledger
from privaudit.results import Claim
from tests.auditing.audits import audit


def ledger():
    step = Release.of_sum(
        norm_bound=1.0, noise_multiplier=1.0, sampling=PoissonSampling(0.05)
    )
    return Ledger.of(step, 20)


@pytest.fixture
def folder(tmp_path):
    own = RecordedRun.of("a tool 3.1", "read from its history", 1e-5)
    write(tmp_path / "run", own, ledger(), {})
    return tmp_path / "run"


def changed(folder, **fields):
    """Another certificate, of which the manifest knows."""
    path = folder / CERTIFICATE
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    listed = json.loads((folder / "manifest.json").read_text())
    listed["files"][CERTIFICATE]["sha256"] = manifest.digest(path.read_bytes())
    (folder / "manifest.json").write_text(json.dumps(listed))


class TestFolders:
    def test_a_folder_proves_itself(self, folder, capsys):
        assert kernel.main(str(folder / CERTIFICATE)) == 0
        found = verify(folder)
        assert found
        assert found.is_proved
        assert any(
            "proved by the kernel: upper: epsilon <=" in x for x in found.checked
        )
        assert main(["verify", str(folder), "--kernel"]) == FINE
        assert (
            CERTIFICATE
            in manifest.parsed(
                RunFolder(folder), (folder / "manifest.json").read_bytes()
            ).files
        )

    @pytest.mark.parametrize(
        ("field", "value"),
        [("upper", "0.5"), ("lower", "3"), ("delta", "x"), ("nodes", []), ("group", 2)],
    )
    def test_another_certificate_differs(self, folder, field, value, capsys):
        changed(folder, **{field: value})
        found = verify(folder)
        assert [one.file.name for one in found.differences] == [CERTIFICATE]
        assert main(["verify", str(folder)]) == REFUTED

    @pytest.mark.full  # as many as make bundles
    def test_bundles_may_differ(self, tmp_path):
        """They are the kernel's to judge; what they hold is the ledger's."""
        steps = (
            Release.of_sum(
                norm_bound=1.0,
                noise_multiplier=6 + k / 2000,
                sampling=PoissonSampling(0.05),
            )
            for k in range(210)
        )
        own = RecordedRun.of("a tool 3.1", "read from its history", 1e-5)
        some = Ledger(nodes=(tuple(Entry(one, 1) for one in steps),))
        write(tmp_path / "run", own, some, {})
        path = tmp_path / "run" / CERTIFICATE
        (node,) = json.loads(path.read_text())["nodes"]
        first = node["groups"][0]
        assert "below" in first
        lines = [line for group in node["groups"] for line in group["lines"]]
        for groups, good in (
            ([{"lines": lines}], True),
            ([{**first, "lines": lines}], False),  # above: of so many, no more
            ([{"lines": lines[1:]}], None),
            ([{"lines": lines, "pass": 1, "above": first["above"]}], None),
        ):
            changed(tmp_path / "run", nodes=[{"groups": groups}])
            found = verify(tmp_path / "run")
            assert bool(found.differences) is (good is None)
            assert found.is_proved is (good is True)

    def test_hints_of_others_are_not_run(self, folder):
        changed(folder, hints={"upper": {"spacing": "1e-12"}})
        assert verify(folder).is_proved

    def test_without_flint(self, folder, monkeypatch, capsys):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        found = verify(folder)
        assert found
        assert not found.is_proved
        assert any("python-flint" in one for one in found.unchecked)
        assert main(["verify", str(folder), "--kernel"]) == COULD_NOT


class TestAudits:
    """The ledger of an audit is proved, too, at its claim's delta."""

    def test_an_audit_proves_itself(self, tmp_path):
        with RunFolder.opened(tmp_path) as folder:
            experiment.run(audit(rounds=2, runs=20), folder)
        told = json.loads((tmp_path / CERTIFICATE).read_text())
        assert (told["delta"], told["relation"]) == ("0.01", "add-or-remove-one")
        assert main(["verify", str(tmp_path), "--kernel"]) == FINE
        changed(tmp_path, upper="0.01")
        assert main(["verify", str(tmp_path)]) == REFUTED

    @pytest.mark.parametrize("known", [ledger(), None], ids=["ledger", "no-ledger"])
    def test_an_audit_of_a_program(self, tmp_path, known):
        claim = Claim(
            epsilon=1.0, delta=1e-2, relation="replace-one", source="its authors"
        )
        digest = None if known is None else digest_of_ledger(known)
        plan = ProgramAudit(program="own:scores", claim=claim, runs=20, ledger=digest)
        with RunFolder.opened(tmp_path) as folder:
            run(plan, folder, function=lambda worlds, seed: worlds % 2, ledger=known)
        assert (tmp_path / CERTIFICATE).exists() is (known is not None)
        status = COULD_NOT if known is None else FINE
        assert main(["verify", str(tmp_path), "--kernel"]) == status

    def test_none_where_something_has_no_noise(self, tmp_path):
        bare = Release.of_sum(
            norm_bound=1.0, noise_multiplier=0.0, sampling=PoissonSampling(0.05)
        )
        with RunFolder.opened(tmp_path) as folder:
            for some, there in ((Ledger.of(bare, 1), False), (ledger(), True)):
                keep_witness(folder, some, "add-or-remove-one", 1e-5)
                assert folder.has(CERTIFICATE) is there


class TestCommands:
    def test_epsilon_and_noise(self, tmp_path, capsys):
        path = tmp_path / "one.json"
        run = ["--delta", "1e-5", "--sampling-rate", ".05", "--steps", "20"]
        many = ["--noise-multiplier", "1", "--certificate", str(path)]
        assert main(["epsilon", *run, *many]) == FINE
        assert kernel.main(str(path)) == 0
        told = json.loads(path.read_text())
        found = Certificate.of(ledger()).epsilon(1e-5)
        assert found.upper < float(told["upper"]) < 1.002 * found.upper
        more = ["--epsilon", "1", "--certificate", str(path)]
        assert main(["noise", *run, *more]) == FINE
        assert kernel.main(str(path)) == 0
        assert 1 < float(json.loads(path.read_text())["upper"]) < 1.002
