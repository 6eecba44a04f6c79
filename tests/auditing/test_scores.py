"""Contract of privaudit.auditing.scores. Mirrors privaudit/auditing/scores.py."""

import dataclasses
import math

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privaudit.auditing.scores import Scores, chance_of_counts

numbers = st.floats(allow_nan=False, allow_infinity=False)
samples = st.lists(st.tuples(st.booleans(), numbers), min_size=2, max_size=30).filter(
    lambda rows: len({member for member, _ in rows}) == 2
)
steady = settings(deadline=None, derandomize=True)


class TestSound:
    """Nothing that is not two samples of numbers gets in."""

    @pytest.mark.parametrize(
        ("member", "score", "says"),
        [
            ([True, False], [1.0], "2 worlds and 1 scores"),
            ([], [], "0 member and 0 non-member"),
            ([True, True], [1.0, 2.0], "2 member and 0 non-member runs"),
            ([0, 2], [1.0, 2.0], "0 .* and 1 .* only"),
            ([0, np.nan], [1.0, 2.0], "0 .* and 1 .* only"),
            (pandas.array([True, None], "boolean"), [1.0, 2.0], "only, and no gaps"),
            ([0, 1], np.ma.array([1.0, 2.0], mask=[0, 1]), "hold masked entries"),
            (np.ma.array([0, 1], mask=[0, 1]), [1.0, 2.0], "hold masked entries"),
            ([0, 1], [1.0, np.nan], "the first is nan in row 1"),
            ([0, 1], [np.inf, 0.0], "the first is inf in row 0"),
            ([0, 1], ["a", "b"], "must be numbers"),
            ([0, 1], [1j, 2j], "complex128, not real numbers"),
            ([0, 1], np.array(["2020-01-01"] * 2, "M8[D]"), "not real numbers"),
            ([[0, 1]], [1.0], "one number a run"),
            ([0, 1], [[1.0, 2.0]], "one number a run"),
        ],
    )
    def test_refuses(self, member, score, says):
        with pytest.raises(ValueError, match=says):
            Scores(member, score, "coin-flip")

    def test_refuses_an_unknown_design(self):
        with pytest.raises(ValueError, match="say fixed unless"):
            Scores([0, 1], [0.0, 1.0], "random")  # type: ignore

    @pytest.mark.parametrize(
        ("members", "others", "says"),
        [
            (2000, 200, r"chance less than 1e-300, below 1e-06; declare .* fixed"),
            (200, 2000, "200 member and 2,000 non-member runs are refused"),
            # 2 (1 + 21) / 2^21 is above 1e-6, 2 (1 + 26) / 2^26 below.
            (1, 25, r"chance 8\.0e-07, below 1e-06"),
        ],
    )
    def test_coins_that_cannot_be_are_refused(self, members, others, says):
        member = np.repeat([True, False], [members, others])
        with pytest.raises(ValueError, match=says):
            Scores(member, np.zeros(len(member)), "coin-flip")
        assert len(Scores(member, np.zeros(len(member)), "fixed")) == len(member)

    @pytest.mark.parametrize(
        "counts", [(1, 20), (20, 1), (1, 1), (500, 500), (570, 430)]
    )
    def test_coins_that_can_be_are_believed(self, counts):
        member = np.repeat([True, False], counts)
        assert len(Scores(member, np.zeros(len(member)), "coin-flip")) == sum(counts)

    @pytest.mark.parametrize(
        "counts", [(0, 1), (1, 1), (3, 4), (12, 88), (1, 25), (1000, 1200)]
    )
    def test_chance_of_counts_is_that_of_whole_numbers(self, counts):
        runs, fewer = sum(counts), min(counts)
        ways = 2 * sum(math.comb(runs, hits) for hits in range(fewer + 1))
        exact = min(1.0, ways / 2**runs)
        assert chance_of_counts(*counts) == pytest.approx(exact, rel=1e-12)

    def test_cannot_be_changed(self):
        given_scores = np.array([0.0, 1.0])
        scores = Scores([0, 1], given_scores, "fixed")
        given_scores[0] = 7.0
        assert scores.score[0] == 0.0
        with pytest.raises(ValueError, match="read-only"):
            scores.score[0] = 1.0
        with pytest.raises(dataclasses.FrozenInstanceError):
            scores.design = "coin-flip"  # type: ignore

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("world,score\n1,2\n", "missing: member"),
            ("member,score\n1,2\n2,3\n", "line 3: member must be 0 or 1"),
            ("member,score\n1,2\n0,x\n", "line 3"),
            ("member,score,score\n1,2,3\n0,1,3\n", "names the column score more"),
            ("member,score\n1,2\n0,1,5\n", "line 3 has 3 cells.*with a point"),
            ("member,score\n1,2\n0\n", "line 3 has 1 cells"),
            ("member,score\n1,2\n0," + "1" * 200_000, "line 3: field larger"),
            ('member,score\n1,2\n0,"1' + "\n1,2" * 99, "line 3: unexpected end"),
            ("member,score\n1,2\n0," + "x" * 99, r"got '0' and .{1,40}$"),
            ("member,score\n1,2\n0,nan\n", "must be finite"),
            ("", "missing: member, score"),
        ],
    )
    def test_a_wrong_table_is_refused_with_its_line(self, tmp_path, text, says):
        path = tmp_path / "scores.csv"
        path.write_text(text)
        with pytest.raises(ValueError, match=says):
            Scores.load(path, "fixed")

    @pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 none"])
    def test_a_wrong_archive_is_refused(self, tmp_path, content):
        path = tmp_path / "scores.npz"
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is no scores file"):
            Scores.load(path)

    def test_an_array_by_an_archives_name_is_refused(self, tmp_path):
        np.save(tmp_path / "scores.npy", np.ones(3))
        path = (tmp_path / "scores.npy").rename(tmp_path / "scores.npz")
        with pytest.raises(ValueError, match="is no scores file"):
            Scores.load(path)

    @pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
    def test_a_table_of_other_letters_is_refused_by_name(self, tmp_path, encoding):
        path = tmp_path / "scores.csv"
        path.write_bytes("member,score,who\n1,2,\xe9\n0,1,\xe9\n".encode(encoding))
        with pytest.raises(ValueError, match=r"scores\.csv: it is no UTF-8 text"):
            Scores.load(path, "fixed")

    def test_design_must_be_known_and_may_not_be_contradicted(self, tmp_path):
        scores = Scores([0, 1], [0.0, 1.0], "fixed")
        scores.save(tmp_path / "scores.csv")
        with pytest.raises(ValueError, match="does not say how the worlds were dealt"):
            Scores.load(tmp_path / "scores.csv")
        scores.save(tmp_path / "scores.npz")
        with pytest.raises(ValueError, match="says that its design is fixed"):
            Scores.load(tmp_path / "scores.npz", "coin-flip")

    def test_other_suffixes_are_refused(self, tmp_path):
        with pytest.raises(ValueError, match=r"\.npz or \.csv"):
            Scores([0, 1], [0.0, 1.0], "fixed").save(tmp_path / "scores.txt")

    @pytest.mark.parametrize("suffix", [".npz", ".csv"])
    def test_no_link_is_followed_to_write(self, tmp_path, suffix):
        (tmp_path / "victim").write_text("dear")
        for name in (f"scores{suffix}", f"scores{suffix}.part"):
            (tmp_path / name).symlink_to(tmp_path / "victim")
        Scores([0, 1], [0.0, 1.0], "fixed").save(tmp_path / f"scores{suffix}")
        assert (tmp_path / "victim").read_text() == "dear"
        assert len(Scores.load(tmp_path / f"scores{suffix}", "fixed")) == 2


class TestLaws:
    def test_several_canaries_a_run_are_kept(self, tmp_path):
        random = np.random.default_rng(0)
        member, score = random.random((30, 3)) < 0.5, random.normal(size=(30, 3))
        scores = Scores.of_runs(member, score, "coin-flip")
        assert len(scores) == 30
        np.testing.assert_array_equal(scores.score, score[:, 0])
        scores.save(tmp_path / "scores.npz")
        read = Scores.load(tmp_path / "scores.npz")
        assert read == scores
        for kept, own in zip(read.by_run(), (member, score), strict=True):
            np.testing.assert_array_equal(kept, own)
        moved = Scores.of_runs(member, score + np.eye(3)[2], "coin-flip")
        assert moved != scores

    def test_scores_are_of_the_first_canary_that_is_in_both_worlds(self):
        member = np.array([[1, 0, 1, 0], [1, 0, 0, 1], [1, 0, 1, 1]], bool)
        score = np.arange(12.0).reshape(3, 4)
        scores = Scores.of_runs(member, score, "coin-flip")
        assert scores.score.tolist() == [2, 6, 10]
        assert scores.in_family is not None
        assert len(scores.in_family) == 12
        with pytest.raises(ValueError, match="compares two worlds"):
            Scores.of_runs(member[:, :2], score[:, :2], "coin-flip")

    @steady
    @given(samples)
    @pytest.mark.parametrize("suffix", ["npz", "csv"])
    def test_reading_undoes_writing(self, tmp_path_factory, suffix, rows):
        path = tmp_path_factory.mktemp("scores") / f"scores.{suffix}"
        scores = Scores(*zip(*rows, strict=True), "fixed")
        scores.save(path)
        assert Scores.load(path, "fixed") == scores
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    @steady
    @given(samples)
    def test_roc_is_what_counting_gives(self, rows):
        scores = Scores(*zip(*rows, strict=True), "fixed")
        roc = scores.roc()
        for threshold, fpr, tpr in zip(roc.thresholds, roc.fpr, roc.tpr, strict=True):
            assert tpr == np.mean(scores.members >= threshold)
            assert fpr == np.mean(scores.non_members >= threshold)
        assert (roc.fpr[0], roc.tpr[0]) == (0, 0)
        assert (roc.fpr[-1], roc.tpr[-1]) == (1, 1)
        assert (np.diff(roc.thresholds) < 0).all()

    def test_worlds_may_be_numbers_or_words_in_a_table(self, tmp_path):
        path = tmp_path / "scores.csv"
        path.write_text("score , member\n1.5, true\n  \n-1e3, 0.0\n")
        assert Scores.load(path, "fixed") == Scores([1, 0], [1.5, -1000], "fixed")
