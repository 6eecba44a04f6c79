"""Folders of trainings by other tools: their evidence is held against their figures."""

import json

import dp_accounting as dpa
import pytest

import privaudit as pa
from privaudit.accounting.recorded import RecordedRun, RunWriter, write
from privaudit.cli import main
from privaudit.files.folder import FolderError
from privaudit.ledger import Ledger

RELEASE = pa.Release.of_sum(
    norm_bound=2.0, noise_multiplier=1.0, sampling=pa.PoissonSampling(0.01)
)
RUN = RecordedRun.of("a tool 3.1", "read from its history", 1e-5)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "run", RUN, Ledger.of(RELEASE, 1000), {"its own": 1.9})
    return tmp_path / "run"


def changed(folder, name, change):
    """``name`` with its fields changed; the manifest goes, as it would tell."""
    fields = json.loads((folder / name).read_text())
    change(fields)
    (folder / name).write_text(json.dumps(fields))
    (folder / "manifest.json").unlink()


class TestFigures:
    def test_they_are_those_of_the_ledger(self, folder):
        theirs = dpa.pld.PLDAccountant()
        step = dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.0))
        theirs.compose(dpa.SelfComposedDpEvent(step, 1000))
        (shown,) = json.loads((folder / "result.json").read_text())["nodes"]
        assert shown["epsilon"] == pytest.approx(theirs.get_epsilon(1e-5), rel=2e-3)

    def test_a_claim_is_judged(self, tmp_path):
        for epsilon, status in ((2.0, "consistent"), (1.0, "disproved")):
            run = RecordedRun.of("a tool", "kept", 1e-5, epsilon=epsilon)
            out = tmp_path / status
            assert write(out, run, Ledger.of(RELEASE, 1000)).status == status
            assert main(["show", str(out)]) == (status == "disproved")
            assert pa.verify(out).differences == ()


class TestCommands:
    def test_they_read_it(self, folder, capsys):
        for command in ("show", "verify", "report"):
            assert main([command, str(folder)]) == 0
        said = capsys.readouterr().out
        assert "trained by a tool 3.1, 1,000 releases" in said
        assert "itself says at delta 1e-05: epsilon 1.900 (its own)" in said
        assert "not checked: that the ledger is what a tool 3.1 did" in said

    def test_the_page_says_how_its_account_is_made_again(self, folder, capsys):
        assert main(["report", str(folder)]) == 0
        page = (folder / "report.html").read_text()
        command = page.split("<code>")[1].split("</code>")[0]
        assert "read from its history" in page
        assert "a time that was not recorded" in page
        capsys.readouterr()
        assert main(command.split()[1:]) == 0
        said = capsys.readouterr().out.split("at most ")[1].split()[0]
        assert f"≤ {said}" in page

    def test_as_json(self, folder, capsys):
        assert main(["show", str(folder), "--json"]) == 0
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        assert run["recorded"] == "a tool 3.1"
        assert run["releases"] == 1000
        assert run["standing"] == "certified"

    def test_what_a_tool_is_called_is_escaped(self, tmp_path):
        run = RecordedRun.of("<b>tool", "kept", 1e-5)
        write(tmp_path / "run", run, Ledger.of(RELEASE))
        assert main(["report", str(tmp_path / "run")]) == 0
        assert "<b>tool" not in (tmp_path / "run" / "report.html").read_text()


class TestParties:
    @pytest.fixture
    def folders(self, tmp_path):
        run = RecordedRun.of("a tool 3.1", "kept", 1e-5, run="run 7")
        for name, count in (("one", 1000), ("two", 900), ("again", 900)):
            write(tmp_path / name, run, Ledger.of(RELEASE, count))
        return [tmp_path / name for name in ("one", "two", "again")]

    def test_only_those_given_are_covered(self, folders):
        alone, two, three = (pa.join(folders[:many]) for many in (1, 2, 3))
        assert "a tool 3.1, 1 party, 1 node: " in str(alone)
        assert "3 parties, 3 nodes: " in str(three)
        for one in (alone, two):
            assert "covers those given here, and nobody else" in "".join(one.left)
            assert "same, byte by byte" not in str(one)
        assert "same, byte by byte" in three.page()

    def test_one_party_is_not_taken_twice(self, folders, tmp_path):
        from tests.files.test_signature import KEY, written

        _, signer = written(tmp_path)
        for folder in folders[:2]:
            signature = KEY.sign((folder / "manifest.json").read_bytes())
            (folder / "manifest.sig").write_bytes(signature)
        for given, signers in (
            ([folders[0], tmp_path / "two/../one"], []),
            (folders[:2], [signer, signer]),
        ):
            with pytest.raises(ValueError, match="are one party's, by folder or key"):
                pa.join(given, signers=signers)


class TestEvidence:
    def test_an_epsilon_that_was_changed(self, folder, capsys):
        changed(folder, "result.json", lambda f: f["nodes"][0].update(epsilon=0.1))
        for command in ("show", "verify", "report"):
            assert main([command, str(folder)]) == 1
        assert "nodes[0].epsilon is 0.1" in capsys.readouterr().out

    def test_noise_that_was_changed(self, folder):
        def more(fields):
            fields["nodes"][0][0]["release"]["noise"] *= 10

        changed(folder, "ledger.json", more)
        assert pa.verify(folder).differences

    def test_noise_that_was_taken_out(self, folder):
        """Its certificate remains: that of no noise would divide by it."""
        assert (folder / "certificate.json").exists()
        change = lambda ledger: ledger["nodes"][0][0]["release"].update(noise=0.0)  # noqa: E731
        changed(folder, "ledger.json", change)
        assert "of releases without noise" in str(pa.verify(folder))

    @pytest.mark.parametrize("number", [10**400, -(10**400)])
    def test_numbers_of_hundreds_of_digits(self, folder, number):
        changed(folder, "result.json", lambda found: found.update(seconds=number))
        with pytest.raises(FolderError, match=r"a number of more than 1e\+308"):
            pa.verify(folder)

    def test_a_bracket_that_was_changed(self, folder):
        changed(
            folder, "result.json", lambda f: f["certificate"].update(upper=1.8282828)
        )
        (one,) = pa.verify(folder).differences
        assert "certificate.upper" in str(one)

    def test_a_file_that_was_changed(self, folder):
        path = folder / "ledger.json"
        path.write_text(path.read_text() + " ")
        assert "its SHA-256" in str(pa.verify(folder))

    @pytest.mark.parametrize(
        ("name", "change", "said"),
        [
            ("result.json", lambda f: f.update(status="consistent"), "its status"),
            ("result.json", lambda f: f.update(nodes=[]), "its nodes"),
            ("config.json", lambda f: f.update(more=1), "unknown field"),
            ("config.json", lambda f: f.update(delta=0.0), "delta must be in"),
        ],
    )
    def test_a_file_that_is_not_of_the_others(self, folder, name, change, said, capsys):
        changed(folder, name, change)
        assert main(["show", str(folder)]) == 3
        assert said in capsys.readouterr().err


class TestWriter:
    @pytest.mark.parametrize("every", [1, 7, 1000])
    def test_what_is_on_disk_is_never_behind(self, every, tmp_path):
        other = pa.Release.of_sum(
            norm_bound=2.0, noise_multiplier=0.7, sampling=pa.PoissonSampling(0.02)
        )
        made = {RELEASE: 0, other: 0}
        with RunWriter(tmp_path, RUN, every=every) as writer:
            for place in range(60):
                release = RELEASE if place % 20 < 15 else other
                writer.record(release)
                made[release] += 1
                there = Ledger.from_json((tmp_path / "ledger.json").read_bytes())
                for one, count in made.items():
                    kept = sum(e.count for e in there.nodes[0] if e.release == one)
                    assert count <= kept < count + 2 * every
            writer.finish()
        there = Ledger.from_json((tmp_path / "ledger.json").read_bytes())
        assert there == writer.ledger
        assert sum(e.count for e in there.nodes[0]) == 60

    def test_nothing_is_added_to_what_is_over(self, tmp_path):
        with RunWriter(tmp_path, RUN) as writer:
            writer.finish()
        with pytest.raises(ValueError, match="is closed"):
            writer.record(RELEASE)

    def test_a_folder_that_holds_something(self, folder, tmp_path):
        with pytest.raises(ValueError, match="choose a new folder"):
            write(folder, RUN, Ledger.of(RELEASE))
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "notes.txt").touch()
        with pytest.raises(ValueError, match=r"it holds notes\.txt"):
            write(tmp_path / "other", RUN, Ledger.of(RELEASE))

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("", "kept", 1e-5), "say which tool"),
            (("a tool", "kept", 2.0), "delta must be in"),
        ],
    )
    def test_bad_input(self, arguments, said):
        with pytest.raises(ValueError, match=said):
            RecordedRun.of(*arguments)
        with pytest.raises(ValueError, match="epsilon must be >= 0"):
            RecordedRun.of("a tool", "kept", 1e-5, epsilon=-1.0)
        with pytest.raises(ValueError, match="every must be >= 1"):
            RunWriter("nowhere", RUN, every=0)
