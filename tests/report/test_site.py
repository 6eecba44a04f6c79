"""The site: every figure is that of its item, and nothing needs a network."""

from __future__ import annotations

import html
import json
import pathlib
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privaudit
from privaudit import ProgramSettings, audit_program
from privaudit.cli import COULD_NOT, FINE, REFUTED, main
from privaudit.files.folder import FolderError
from privaudit.report.axis import _ticks
from privaudit.report.site import Site
from privaudit.report.svg import drawn_alone, embedded
from privaudit.results import round_down
from tests.report import runs
from tests.report.test_page import Reader

pytest.importorskip("matplotlib")

DRAWN = (
    '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg" '
    'viewBox="0 0 9 9">{}<g id="a"><path d="M0 0"/></g></svg>'
)


@pytest.fixture
def trained(tmp_path):
    path = tmp_path / "mine"
    runs.write_training(path, upper=runs.accounted(), claim=1.0)
    return path


@pytest.fixture
def claims(tmp_path, capsys):
    assert main(["claims", "004", "--quick", "--json"]) == REFUTED
    path = tmp_path / "claims.json"
    path.write_text(capsys.readouterr().out)
    return path


def site_of(*paths):
    made = Site()
    for path in paths:
        made.add(path)
    return made


def checked(html):
    reader = Reader()
    reader.feed(html)
    assert not reader.open
    assert len(reader.ids) == len(set(reader.ids))
    assert not re.search(r'(src|href)="(https?:)?//', html)
    return " ".join(" ".join(reader.text).split())


def test_a_training_is_a_line_and_a_page(trained, tmp_path):
    index = site_of(trained).write(tmp_path / "site")
    text = checked(index.read_text())
    (item,) = json.loads((tmp_path / "site/site.json").read_text())["items"]
    assert item["certified"] == runs.accounted()
    assert item["claimed"] == 1.0
    assert item["verdict"] in text
    page = tmp_path / "site" / item["page"]
    assert "Training" in checked(page.read_text())
    assert f'href="{item["page"]}"' in index.read_text()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_run_that_disagrees_has_no_figures(damaged, tmp_path, capsys):
    path, out = tmp_path / "mine", tmp_path / "site"
    runs.write_training(path, upper=0.9 * runs.accounted())
    if damaged:
        (path / "ledger.json").write_text("{")
    assert main(["site", str(path), "--out", str(out), "--json"]) == REFUTED
    assert json.loads(capsys.readouterr().out)["agrees"] is False
    (item,) = json.loads((out / "site.json").read_text())["items"]
    assert ("is damaged" if damaged else "disagrees with its evidence") in item["why"]
    assert item["certified"] is None
    assert item["page"] is None


@pytest.mark.full
def test_claims_are_lines_and_have_a_picture_of_their_own(claims, tmp_path):
    site_of(claims).write(tmp_path / "site")
    known = json.loads(claims.read_text())["claims"]
    page = (tmp_path / "site/pages/claims.html").read_text()
    text = checked(page)
    for one in known:
        assert one["claim"] in text
    assert "<svg" in page
    assert 'href="../index.html"' in page
    items = json.loads((tmp_path / "site/site.json").read_text())["items"]
    assert len(items) == 1 + len(known)
    disproved = [one for one in items if one["verdict"] == "disproved"]
    assert disproved
    assert all(one["proved"] > one["claimed"] for one in disproved)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"verdict": "consistent"}, "said to be consistent, and its figures make it"),
        ({"verdict": "sound"}, "Invalid enum value 'sound'"),
        ({"claimed": None, "verdict": "disproved"}, "figures make it no theorem"),
        ({"claimed": "4"}, "Expected `float"),
        ({"claimed": -1.0}, ">= 0"),
        ({"certified_as_printed": 10**400}, "a number of more than"),
        ({"delta": 7}, "<= 1"),
        ({"relation": "x"}, "Invalid enum value"),
    ],
)
def test_claims_that_their_figures_do_not_make(claims, tmp_path, change, said):
    site_of(claims).write(tmp_path / "site")
    assert "not checked against evidence" in (tmp_path / "site/index.html").read_text()
    known = json.loads(claims.read_text())
    first = next(x for x in known["claims"] if x["verdict"] == "disproved")
    first.update(change)
    claims.write_text(json.dumps(known))
    with pytest.raises(FolderError, match=said):
        site_of(claims)


def test_pictures_of_a_study_come_first(tmp_path):
    study = tmp_path / "study"
    study.mkdir()
    (study / "results.json").write_text("{}")
    svg = DRAWN.format("")
    (study / "one.svg").write_text(svg)
    (study / "two.svg").write_text(svg)
    (study / "README.md").write_text(
        "# What we saw\n\nWords & <b>more</b>.\n\n![one](one.svg)\n\n"
        "![two](two.svg)\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    )
    site_of(study).write(tmp_path / "site")
    page = (tmp_path / "site/pages/study.html").read_text()
    assert "What we saw" in checked(page)
    assert page.index("<svg") < page.index("Words")
    assert 'aria-label="two"' in page
    assert '<td data-label="a">1</td>' in page
    assert "<b>more" not in page


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<g ", "<script>1</script><g ", "it has an element <script>"),
        ("<g ", "<g onload='f()' ", "it has onload='f"),
        ("<g ", "<g xmlns:o='urn:x' o:onload='f()' ", "it has "),
        ("<g ", "<a href='https://x'/><g ", "an element <a>"),
        ("<g ", "<use href='https://x#a'/><g ", "it has href='https"),
        ("<g ", "<image href='data:image/svg+xml;base64,AA'/><g ", "it has href='da"),
        ("<g ", "<g style='fill: url(https://x)' ", "it has style='fill"),
        ("<g ", r"<g style='fill: \75rl(https://x)' ", "it has style="),
        ("<g ", "<g style='mask-image: none' ", "it has style='mask"),
        ("<g ", "<style>body{fill: red}</style><g ", "an element <style>"),
        ("<svg", "<!DOCTYPE svg [<!ENTITY a 'b'>]><svg", "declares entities"),
        ("0 0 9 9", "0 0 x 9", "it has viewBox='0 0 x 9'"),
        ("</svg>", "", "it is no XML"),
        ("w3.org", "w4.org", "begins with no <svg>"),
    ],
)
def test_what_does_more_than_draw_is_on_no_page(old, new, said, tmp_path):
    (tmp_path / "results.json").write_text("{}")
    (tmp_path / "README.md").write_text("# What\n\n![one](one.svg)\n")
    (tmp_path / "one.svg").write_text(DRAWN.format("").replace(old, new, 1))
    (item,) = site_of(tmp_path).items
    assert re.search(f"no drawing such as matplotlib's: .*{said}", item.why)


def test_a_drawing_is_written_anew():
    """HTML reads comments and CDATA otherwise than XML."""
    hidden = "<text><![CDATA[<!-- ]]></text><text><![CDATA[--><script>]]></text>"
    assert "<script" not in embedded(drawn_alone(DRAWN.format(hidden)), "a", "b")
    for path in pathlib.Path("reports").glob("*/*.svg"):
        assert "<path" in drawn_alone(path.read_text())


def test_two_of_one_name_have_two_pages(tmp_path):
    paths = [tmp_path / name / "run" for name in "ab"]
    for path in paths:
        path.parent.mkdir()
        runs.write_training(path, upper=runs.accounted())
    made = site_of(*paths)
    assert len(made.pages) == 2
    assert len({item.page for item in made.items}) == 2


@pytest.mark.full
def test_a_function_that_was_given_has_its_name_and_a_call(
    tmp_path, monkeypatch, capsys
):
    def scores(members, seed):
        return members + np.random.default_rng(seed).normal(size=len(members))

    monkeypatch.chdir(tmp_path)
    release = privaudit.Release.of_sum(
        norm_bound=1, noise_multiplier=1, sampling=privaudit.NoSampling()
    )
    path = tmp_path / "given.json"
    path.write_text(privaudit.Ledger.of(release).to_json())
    first = audit_program(scores, ProgramSettings(runs=30, ledger=path), out="run")
    main(["show", "run"])
    main(["report", "run"])
    page = (tmp_path / "run/report.html").read_text()
    words = checked(page)
    said = [words, capsys.readouterr().out, *first.lines()]
    assert "own:" not in " ".join(said)
    assert "the attacker sees what scores scores by" in words
    (call,) = re.findall("<code>(.*?)</code>", page, re.DOTALL)
    exec(html.unescape(call), {"privaudit": privaudit, "scores": scores})
    again = (tmp_path / folder / "scores.npz" for folder in ("run", "another-folder"))
    one, other = (np.load(each)["score"] for each in again)
    assert (one == other).all()


def test_a_program_without_an_account_has_a_page_and_no_certified_figure(tmp_path):
    plan = ProgramSettings(runs=9)
    result = audit_program("numpy:copysign", plan, out=tmp_path / "run").result
    assert main(["report", str(tmp_path / "run")]) == FINE
    page = (tmp_path / "run/report.html").read_text()
    words = checked(page)
    assert f"audited ε ≥ {round_down(result.lower().epsilon)}" in words
    assert "There is no account" in words
    assert "certified ε" not in words
    site_of(tmp_path / "run").write(tmp_path / "site")
    (item,) = json.loads((tmp_path / "site/site.json").read_text())["items"]
    assert "There is no account" in checked(
        (tmp_path / "site" / item["page"]).read_text()
    )


@given(st.floats(-9, 9), st.floats(0.61, 12), st.sampled_from([5, 8]))
def test_ticks_are_few_and_some(low, decades, most):
    ticks = _ticks(10**low, 10 ** (low + decades), most)
    assert 1 <= len(ticks) <= most
    assert ticks == sorted(set(ticks))
    assert 10**low <= ticks[0]
    assert ticks[-1] <= 10 ** (low + decades)


@pytest.mark.full
def test_a_folder_of_runs_is_all_of_them(tmp_path):
    (tmp_path / "all").mkdir()
    for name in "ab":
        runs.write_training(tmp_path / "all" / name, upper=runs.accounted())
    assert [item.name for item in site_of(tmp_path / "all").items] == ["a", "b"]


def test_a_site_is_written_again_and_nothing_else_is_touched(trained, tmp_path):
    made = site_of(trained)
    first = made.write(tmp_path / "site").read_bytes()
    assert made.write(tmp_path / "site").read_bytes() == first
    (tmp_path / "other").mkdir()
    (tmp_path / "other/letter.txt").write_text("mine")
    with pytest.raises(FolderError, match="something other than a site"):
        made.write(tmp_path / "other")


def test_a_folder_that_cannot_be_read_is_a_row(trained, tmp_path):
    for name, file in (("no", "result.json"), ("sweep", "sweep.json"), ("st", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / (file or "README.md")).write_bytes(b"\xff{")
    (tmp_path / "st" / "results.json").write_text("{}")
    made = site_of(tmp_path, tmp_path / "st", tmp_path / "sweep")
    why = {item.name: bool(item.why) for item in made.items}
    assert why == {"mine": False, "no": True, "sweep": True, "st": True}
    assert made.differs


@pytest.mark.parametrize("kind", ["missing", "empty", "text"])
def test_what_is_nothing_is_one_line(kind, tmp_path, capsys):
    path = tmp_path / kind
    if kind == "empty":
        path.mkdir()
    if kind == "text":
        path.write_text("{}")
    assert main(["site", str(path), "--out", str(tmp_path / "site")]) == COULD_NOT
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(path) in error
    assert not (tmp_path / "site").exists()


def test_the_command_prints_where_it_is(trained, tmp_path, capsys):
    out = tmp_path / "site"
    assert main(["site", str(trained), "--out", str(out)]) == FINE
    assert capsys.readouterr().out.strip() == str(out / "index.html")
