"""`privaudit bound`: what it takes scores for, and what it refuses."""

import json

import numpy as np
import pytest

from privaudit.cli import BAD_USAGE, FINE, main


def table(path, member, score):
    rows = [f"{int(one)},{other}" for one, other in zip(member, score, strict=True)]
    path.write_text("\n".join(["member,score", *rows]))
    return path


def call(capsys, path, *arguments):
    """Exit status, standard output and standard error of ``privaudit bound``."""
    status = main(["bound", str(path), "--delta", "1e-5", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


COINS = ("--design", "coin-flip")
BETTING = (*COINS, "--method", "betting")


@pytest.fixture
def noise(tmp_path):
    """Pure noise, 500 members before 500 others."""
    score = np.random.default_rng(0).normal(size=1000)
    return table(tmp_path / "noise.csv", np.arange(1000) < 500, score)


class TestSound:
    def test_tied_rows_sorted_by_world_show_nothing(self, capsys, tmp_path):
        """Ties broken in the file's order show a leak in every one of these."""
        shown = 0
        for file in range(12):
            random = np.random.default_rng([9, file])
            member = np.sort(random.random(952) < 0.5)[::-1]
            path = table(tmp_path / "ties.csv", member, random.integers(0, 2, 952))
            _, out, _ = call(capsys, path, *BETTING, "--json")
            shown += json.loads(out)["epsilon_lower"] > 0
        assert shown <= 5

    def test_noise_sorted_by_world_is_not_refuted(self, capsys, noise):
        status, out, _ = call(capsys, noise, *BETTING, "--epsilon", "0.5", "--json")
        found = json.loads(out)
        assert (status, found["verdict"]) == (FINE, "unproven")
        assert (found["order"], found["seed"], found["epsilon_lower"]) == (
            "shuffled",
            0,
            0,
        )

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ((*BETTING, "--order", "time"), "use the order shuffled"),
            ((*BETTING, "--order", "file"), "--order is shuffled or time, got 'file'"),
            ((*COINS, "--order", "time"), "best does not look at the order of rows"),
        ],
    )
    def test_bad_orders_are_one_line(self, capsys, noise, arguments, says):
        status, out, err = call(capsys, noise, *arguments)
        assert (status, out, err.count("\n")) == (BAD_USAGE, "", 1)
        assert says in err

    def test_counts_that_coins_do_not_give_are_refused(self, capsys, tmp_path):
        score = np.random.default_rng(1).normal(size=2200)
        path = table(tmp_path / "uneven.csv", np.arange(2200) < 2000, score)
        status, out, err = call(capsys, path, *COINS, "--epsilon", "0.5")
        assert (status, out, err.count("\n")) == (BAD_USAGE, "", 1)
        assert "2,000 member and 200 non-member runs are refused as coin-flip" in err
        status, out, _ = call(capsys, path, "--design", "fixed", "--json")
        assert (status, json.loads(out)["epsilon_lower"]) == (FINE, 0)


def test_order_of_time_says_what_it_assumes(capsys, tmp_path):
    random = np.random.default_rng(2)
    member = random.random(300) < 0.5
    path = table(tmp_path / "runs.csv", member, random.normal(size=300) + 4 * member)
    status, out, _ = call(capsys, path, *BETTING, "--order", "time", "--json")
    found = json.loads(out)
    assert (status, found["order"]) == (FINE, "time")
    assert "no run looked at later ones" in found["note"]
    assert found["epsilon_lower"] > 1
    assert json.loads(call(capsys, path, *COINS, "--json")[1])["order"] is None


class TestRates:
    def test_auroc_and_tpr_at_fixed_fpr_are_told(self, capsys, tmp_path):
        """Against scikit-learn's; one run's canaries may depend, and have none."""
        metrics = pytest.importorskip("sklearn.metrics")
        random = np.random.default_rng(2)
        member = np.arange(1000) % 2 == 0
        score = random.normal(size=1000) + member
        path = table(tmp_path / "scores.csv", member, score)
        _, out, _ = call(capsys, path, "--design", "fixed", "--json")
        found = json.loads(out)
        truth = metrics.roc_auc_score(member, score)
        assert found["auroc"]["value"] == pytest.approx(truth)
        assert found["auroc"]["low"] < truth < found["auroc"]["high"]
        assert [one["fpr"] for one in found["tpr_at_fpr"]] == [0.001, 0.01, 0.1]
        assert "AUROC 0.7" in call(capsys, path, "--design", "fixed")[1]
        assert "AUROC" not in call(capsys, path, "--design", "one-run")[1]
