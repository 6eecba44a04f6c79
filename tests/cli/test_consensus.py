"""`privaudit consensus`, from the command line."""

import json

import numpy as np
import pytest

from privaudit.cli import main


def run(capsys, *arguments):
    status = main(["consensus", *arguments])
    return status, capsys.readouterr()


class TestConsensus:
    def test_rounds_and_both_units(self, capsys):
        status, said = run(capsys, "--rounds", "4", "--json")
        assert status == 0
        found = json.loads(said.out)
        assert [one["round"] for one in found["rounds"]] == [0, 1, 2, 3]
        assert all(one["real"] <= one["used"] for one in found["rounds"])
        assert found["below_real"] == 0
        assert found["claimed_per_round"] == pytest.approx(100)
        # At delta 1e-4 nothing is gained over pure epsilon this large.
        assert found["which_node"]["upper"] == pytest.approx(400, rel=1e-3)
        assert found["whole_vector"]["upper"] == pytest.approx(100, rel=1e-3)
        assert found["which_node"]["unit"] == "node"

    def test_equal_seeds_equal_figures(self, capsys):
        first, second = (
            run(capsys, "--rounds", "3", "--seed", "5", "--json")[1].out
            for _ in range(2)
        )
        assert first == second
        assert first != run(capsys, "--rounds", "3", "--seed", "6", "--json")[1].out

    def test_the_paper_s_estimate_is_told_to_be_too_low(self, capsys):
        status, said = run(capsys, "--sensitivity", "paper", "--rounds", "3")
        assert status == 0
        assert "below the real one" in said.out
        assert "not even the claim holds" in said.out
        assert "no guarantee" in said.out
        assert "at most infinity" in said.out

    @pytest.mark.parametrize("name", ["empty.csv", "text.npz", "array.npz"])
    def test_files_without_vectors(self, capsys, tmp_path, name):
        path = tmp_path / name
        path.write_bytes(b"" if name == "empty.csv" else b"PK\x03\x04 no archive")
        if name == "array.npz":
            np.save(tmp_path / "array.npy", np.eye(3))
            (tmp_path / "array.npy").rename(path)
        status, said = run(capsys, "--vectors", str(path), "--json")
        assert (status, said.out) == (2, "")
        assert said.err.count("\n") == 1

    @pytest.mark.parametrize("kind", ["csv", "npz"])
    def test_vectors_of_a_file(self, capsys, tmp_path, kind):
        vectors = np.eye(4, 3) * 2
        path = tmp_path / f"vectors.{kind}"
        if kind == "csv":
            np.savetxt(path, vectors, delimiter=",")
        else:
            np.savez(path, vectors)
        options = ("--clip-norm", "1.5", "--rounds", "2", "--json")
        status, said = run(capsys, "--vectors", str(path), *options)
        found = json.loads(said.out)
        assert status == 0
        assert (found["nodes"], found["dims"], found["clipped"]) == (4, 3, 3)
        assert found["rounds"][0]["real"] == pytest.approx(3.0)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("--b", "0"), "b must be > 0"),
            (("--gamma-n", "-1"), "gamma_n must be > 0"),
            (("--rounds", "0"), "rounds must be >= 1"),
            (("--delta", "2"), "delta"),
            (("--graph", "d-out:1"), "connected"),
            (("--vectors", "nowhere.csv"), "cannot be read"),
            (("--gamma-n", "1", "--rounds", "90"), "feeds itself"),
            (("--sensitivity", "guess"), "Choose from"),
        ],
    )
    def test_bad_usage_is_one_line(self, capsys, arguments, words):
        status, said = run(capsys, *arguments)
        assert status == 2
        assert said.out == ""
        assert words in said.err
        assert said.err.count("\n") == 1
