"""A CSV, read by public words about its columns."""

import pathlib
import re

import pytest
import torch
from safetensors.torch import load_file

from privaudit.cli import main
from trainers.data import tables

TOML = """
file = "patients.csv"
test = 3

[target]
outcome = ["home", "back"]

[node]
clinic = ["north", "south"]

[columns]
sex = ["F", "M"]
age = [20, 90]
since = [2024-01-01, 2024-12-31]
"""
CSV = """clinic,sex,age,since,outcome
north,F,55,2024-01-01,home
north,F,55,2024-07-01 08:00,back
south,M,,soon,home
south,M,20,2024-12-31,lost
north, x ,1e3,2023-01-01,back
"""


@pytest.fixture
def told(tmp_path):
    def told(old="", new="", table=CSV):
        (tmp_path / "patients.csv").write_text(table)
        (tmp_path / "patients.toml").write_text(TOML.replace(old, new, 1))
        return tables.load(tmp_path / "patients.toml")

    return told


def test_what_a_cell_becomes(told):
    found = told("test = 3", "")
    (north, y), (south, lost) = found["shares"]
    # Words, then a range and whether it is missing; beyond a range is its end.
    half = 2 * 182 / 365 - 1
    assert north[0].tolist() == [1, 0, 0, 0, -1, 0]
    assert torch.allclose(north[1], torch.tensor([1, 0, 0, 0, half, 0.0]), atol=1e-6)
    assert north[2].tolist() == [0, 0, 1, 0, -1, 0]
    assert south.tolist() == [[0, 1, 0, 1, 0, 1], [0, 1, -1, 0, 1, 0]]
    assert (y.tolist(), lost.tolist(), found["classes"]) == ([0, 1, 1], [0, -100], 2)


def test_a_record_is_read_alone(told):
    """Whatever another record holds: nothing is learned of private columns."""
    whole = told("test = 3", "")["shares"]
    other = told("test = 3", "", CSV.replace("north,F,55,2024-01", "north,M,9,2023-01"))
    assert whole[0][0][1:].equal(other["shares"][0][0][1:])
    assert whole[1][0].equal(other["shares"][1][0])
    assert whole[1][1].tolist() == [0, -100]


def test_a_record_decides_alone_whether_it_is_a_test_record(told):
    """One more at the beginning moves no other, as by its place it would."""
    rows = [f"north,F,{20 + each},2024-01-01,home\n" for each in range(60)]
    head, more = CSV.split("\n")[0] + "\n", "south,M,44,2024-01-01,home\n"
    one, other = (told(table=head + "".join(each)) for each in (rows, [more, *rows]))
    assert 10 < len(one["test"][0]) < 30
    kept = [
        {tuple(record.tolist()) for record in found["shares"][0][0]}
        for found in (one, other)
    ]
    assert kept[0] == kept[1]
    assert len(one["shares"][0][0]) + len(one["test"][0]) == 60
    assert told("test = 3", "test = 2", CSV)["test"][1].min() >= 0  # of the classes


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("n/a", "1 of 2 cells of column age that are not empty are as '1e3': beyond"),
        ('"1,055"', "3 of 4 .* as '1,055': no number, and counted as missing"),
        ("20240517", "3 of 4 .* as '20240517': beyond 20 to 90, and counted as an end"),
        ("2024-05-17", "3 of 4 .* '2024-05-17': beyond"),
    ],
)
def test_what_cannot_be_read_is_told(told, tmp_path, cell, said):
    told(table=CSV.replace(",55,", f",{cell},"))
    sex, age, since, outcome = tables.unread(tmp_path / "patients.toml")
    assert re.search(said, age)
    assert "1 of 5 cells of column sex" in sex
    assert "as 'x': none of F, M, and counts nothing" in sex
    assert "2 of 5 cells of column since that are not empty are as 'soon'" in since
    assert "as 'lost': none of home, back" in outcome
    told(table=CSV.replace(" x ,1e3,2023", "F,20,2024").replace("soon", ""))
    assert [*tables.unread(tmp_path / "patients.toml")] == [outcome]


def test_the_tutorials_trains(tmp_path, monkeypatch, capsys):
    page = pathlib.Path("docs/tutorial.md").read_text()
    monkeypatch.chdir(tmp_path)
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    pathlib.Path("patients.toml").write_text(text)
    row = "{0},F,{1},2024-05-17,'high,{2}\n".format
    lines = [
        row(clinic, 20 + each, ("home", "readmitted")[each > 30])
        for each in range(60)
        for clinic in ("north", "south", "east")
    ]
    head = "clinic,sex,age,admitted,pressure,outcome\n"
    pathlib.Path("patients.csv").write_text(head + "".join(lines))
    command = "train dp-dsgt --data patients.toml --model softmax --epsilon 2 --out run"
    assert main([*command.split(), "--set", "rounds=3"]) == 0
    printed = capsys.readouterr()
    assert "on test data" in printed.out
    assert "180 of 180 cells of column pressure" in printed.err
    assert printed.err.count("cells of column") == 1
    assert main(["verify", "run"]) == 0
    (home,) = re.findall(r"`(torch.nn.Sequential.*?)`", page)
    eval(home).load_state_dict(load_file("run/node-0.safetensors"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[20, 90]", "[90, 20]", r"column age is a range, such as .*, got 90, 20"),
        ("[20, 90]", "[0, inf]", "column age is a range"),
        ("[20, 90]", "[]", "got nothing"),
        ('["north", "south"]', '["north", "west"]', "line 4 of patients.csv is of cli"),
        ("outcome", "result", "must name, between commas, .*missing: result"),
        ("patients.csv", "none.csv", "none.csv: No such file"),
        ("test = 3", "test = 1", "Expected `int` >= 2 - at `\\$.test`"),
        ("test = 3", "tset = 3", "unknown field `tset`"),
        ("[20, 90]", "'number'", r"got `str` .* stand such as age = \[20, 90\] and"),
        ("age =", "outcome =", "outcome is the target: leave it out of columns"),
        ("[target]", "[target]\nsex = ['F', 'M']", "target names one column"),
        ('["home", "back"]', '["home"]', "length >= 2"),
        ("file =", "file", "Expected '='"),
        ("patients.csv", "/dev/zero", "it is no regular file"),
        ("[20, 90]", f"[20, {10**400}]", "column age is a range"),
        ('"F", "M"', '"F", "M", "F"', "column sex has the word F twice"),
        ('"home", "back"', '"1", 1', "column outcome has the word 1 twice"),
        ('"south"', '"south", "north"', "column clinic has the word north twice"),
    ],
)
def test_what_cannot_be(told, old, new, said):
    with pytest.raises(ValueError, match=said) as error:
        told(old, new)
    assert "patients.toml: " in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('south,"F,55,2024-01-01,home', "line 2: unexpected end of data"),
        (
            'south,"F,55,2024-01-01,home\nsouth,M",20,,home',
            "line 2: it goes on in another, within",
        ),
        ('south,M,20,"\r\n",home', "line 2: it goes on"),
    ],
)
def test_no_record_swallows_another(told, row, said):
    with pytest.raises(ValueError, match=said):
        told(table=CSV.replace("\n", f"\n{row}\n", 1))
    with pytest.raises(ValueError, match="line 1: it goes on in another"):
        told(table=CSV.replace("outcome", 'outcome,"note\na,b"', 1))


def test_a_table_that_is_not_there_is_looked_for_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = rf"data d\.toml: No such file or directory \(seen from {tmp_path}\)"
    with pytest.raises(ValueError, match=said):
        tables.load(pathlib.Path("d.toml"))
