"""`privaudit views`."""

import json

import pytest

from privaudit import views
from privaudit.cli import main

RUN = ["views", "dp-dsgd", "--noise-multiplier", "1", "--delta", "1e-5"]
for setting in ("nodes=4", "graph=ring", "rounds=3", "train=300", "model=softmax"):
    RUN += ["--set", setting]


def test_every_pair_as_json(capsys):
    assert main([*RUN, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    pairs = found["views"]
    assert {(one["of"], one["by"]) for one in pairs} == {
        (u, v) for u in range(4) for v in range(4) if u != v
    }
    for one in pairs:
        assert one["nobody_reacts"] <= one["certified"] <= one["everything_seen"]
        assert one["distance"] == min(
            (one["of"] - one["by"]) % 4, 4 - abs((one["of"] - one["by"]) % 4)
        )
    assert "gradients depend on" in found["assumes"]["nobody_reacts"][-1]


@pytest.mark.parametrize(
    ("observer", "by", "of"),
    [
        ("3", 3, [0, 1, 2]),
        ("3,1", "1,3", [0, 2]),
        ("edge:1-2", "edge:1-2", [0, 1, 2, 3]),
        ("everybody", "everybody", [0, 1, 2, 3]),
    ],
)
def test_one_observer(capsys, observer, by, of):
    assert main([*RUN, "--observer", observer, "--json"]) == 0
    pairs = json.loads(capsys.readouterr().out)["views"]
    assert [one["of"] for one in pairs] == of
    assert {one["by"] for one in pairs} == {by}


def test_a_table_says_what_each_column_is_worth(capsys):
    assert main([*RUN, "--observer", "2"]) == 0
    out = capsys.readouterr().out
    for words in ("nobody reacts", "certified", "everything seen", "training breaks"):
        assert words in out


@pytest.mark.full
@pytest.mark.parametrize("graph", ["butterfly", "halving"])
def test_a_picture_of_sums(capsys, tmp_path, graph):
    """Of as many releases as one likes, and of parts of vectors."""
    run = ["views", "dp-butterfly", *RUN[2:6], "--plot", str(tmp_path / "a.svg")]
    for setting in ("nodes=4", f"graph={graph}", "rounds=4000", "train=300"):
        run += ["--set", setting]
    assert main(run) == 0
    assert "<!-- of node -->" in (tmp_path / "a.svg").read_text()


@pytest.mark.full
@pytest.mark.parametrize("observer", ["any-node", "0"])
def test_a_picture_tells_what_has_no_bound(capsys, tmp_path, observer):
    """It is no colour of the scale."""
    drawn = {}
    for noise in ("0", "1"):
        run = [*RUN[:3], noise, *RUN[4:], "--plot", str(tmp_path / "a.svg")]
        assert main([*run, "--observer", observer]) == 0
        picture = (tmp_path / "a.svg").read_text()
        drawn[noise] = picture.count("<!-- ∞ -->")
        assert "<!-- \u22120.5 -->" not in picture  # ticks are nodes
    # Of each pair, or each node, in three figures; and around one node.
    assert drawn == {"0": {"any-node": 3 * (12 + 3), "0": 9}[observer], "1": 0}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--observer", "7"], "there is no node 7"),
        (["--observer", "edge:2"], "an observer is a node"),
        (["--plot", "there.xyz"], "must end in .svg, .png or .pdf"),
        (["--plot", "nowhere/a.svg"], "there is no folder nowhere"),
        (["--seed=-1"], "seed must be >= 0, got -1"),
    ],
)
def test_bad_usage_is_one_sentence(capsys, more, words):
    assert main([*RUN, *more]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"noise_multiplier": "1"}, "noise_multiplier must be a number, got '1'"),
        ({"noise_multiplier": None}, "noise_multiplier must be a number, got None"),
        ({"final_models": "yes"}, "final_models must be True or False, got 'yes'"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
    ],
)
def test_a_wrong_value_in_python_is_one_sentence(value, words):
    arguments = {"noise_multiplier": 1.0, "delta": 1e-5, "rounds": 2} | value
    with pytest.raises(ValueError, match=words):
        views("dp-dsgd", **arguments)
