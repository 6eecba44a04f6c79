"""Studies in reports/: their pages say what their results say, and their cells run."""

import copy
import itertools
import pathlib
import re
import subprocess
import sys
import tomllib
import types
from typing import ClassVar
from xml.etree import ElementTree

import pytest

from privaudit.version import __version__
from reports.__main__ import compared, judged, main, untimed
from reports.pages import chart
from reports.papers.cells import PAPERS
from reports.study import Cell, Results, Study, declared, keep, names, plain, small

ROOT = pathlib.Path(__file__).parents[2]
STUDIES = [Study(name) for name in names()]
by_name = pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)


def drawn_by(picture: str) -> str:
    """The version of matplotlib that a chart names."""
    return re.search(r"Matplotlib v([\d.]+)", picture)[1]


PLACES = {"d", "x", "y", "width", "height", "viewBox", "transform"}
DRAWING = re.compile(r"<svg.*?</svg>", re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
NEAR = 0.05  # points, a sixth of a hair line; fonts and processors move less


def differences(kept: str, new: str) -> list[str]:
    """Texts, structure and styles that are not alike, and places that are not near."""
    found = []
    comments = re.compile("<!--.*?-->", re.DOTALL)
    if comments.findall(kept) != comments.findall(new):
        found.append("texts")
    one, other = (list(ElementTree.fromstring(text).iter()) for text in (kept, new))
    for old, drawn in itertools.zip_longest(one, other):
        if old is None or drawn is None:
            return [*found, "the number of parts"]
        if (old.tag, old.text, set(old.attrib)) != (
            drawn.tag,
            drawn.text,
            {*drawn.attrib},
        ):
            found.append(f"{old.tag} {old.attrib}")
        for name, value in old.attrib.items():
            there = drawn.get(name, "")
            pairs = zip(NUMBER.findall(value), NUMBER.findall(there), strict=False)
            if name in PLACES and NUMBER.sub("", value) == NUMBER.sub("", there):
                near = all(abs(float(a) - float(b)) <= NEAR for a, b in pairs)
            else:
                near = value == there
            if not near:
                found.append(f"{name}: {value} is {there}")
    return found


# Decimals in the text of templates that are no setting of a cell: printed by others,
# exact, or levels of confidence. The consensus page quotes figures that it withdrew.
TYPED = {
    "asynchronous": ["5.3", "95.0", "81.0"],  # section, Table 1
    "audits": [],
    "bounds": ["0.95", "4.377178", "2.317789"],  # exact, of two normals
    "claims": [],
    "collaborative": ["0.05"],  # the coin's last chance
    "dynamic": ["0.8", "0.2", "0.1", "7.7", "0.03"],  # 1 / rho; the paper's
    "libraries": ["99.9", "0.6", "0.16", "1.1", "1.0", "1.01"],  # versions; withdrawn
    "mechanisms": ["99.9", ".001"],
    "papers": ["97.5", ".9"],  # of Student's distribution; momentum of a code
    "pushsum": ["0.95"],  # the paper's
    "zoo": ["0.999", "0.99"],
}


def settings_in(value: object) -> set[str]:
    """Numbers of a cell's settings, also those that stand in texts."""
    if isinstance(value, (dict, list, tuple)):
        parts = value.values() if isinstance(value, dict) else value
        return set().union(*map(settings_in, parts))
    if isinstance(value, (int, float)):
        return {f"{value:g}"}
    return set(re.findall(r"\d*\.\d+", str(value)))


@pytest.mark.parametrize("name", TYPED)
def test_no_figure_of_the_text_is_typed(name):
    """Each is made of what is stored, unless it is a setting or somebody else's."""
    study = Study(name)
    text = "".join(path.read_text() for path in study.folder.glob("*.md.jinja"))
    text = re.sub(r"\{\{.*?\}\}|\{%.*?%\}|\]\([^)]*\)", "", text, flags=re.DOTALL)
    known = settings_in([cell.settings for cell in study.cells().values()])
    decimals = re.findall(r"(?<![\w.])\d*\.\d+(?![\w.]*\d\.)", text)
    typed = {each for each in decimals if f"{float(each):g}" not in known}
    assert typed <= set(TYPED[name])


@by_name
class TestPages:
    def test_they_are_what_the_stored_results_give(self, study):
        for name, text in study.rendered(study.results()).items():
            kept = (study.folder / name).read_text()
            assert DRAWING.split(kept) == DRAWING.split(text)
            drawings = zip(DRAWING.findall(kept), DRAWING.findall(text), strict=True)
            assert not any(differences(*both) for both in drawings)

    @pytest.mark.sampled(8)
    def test_charts_are_what_the_stored_results_give(self, study, tmp_path):
        for path in study.draw(study.results(), tmp_path):
            kept, new = (study.folder / path.name).read_text(), path.read_text()
            if drawn_by(kept) == drawn_by(new):
                assert not differences(kept, new)

    def test_every_chart_is_on_the_page_and_none_is_left_over(self, study):
        charts = set(study.charts)
        assert {path.name for path in study.folder.glob("*.svg")} == charts
        page = (study.folder / "README.md").read_text()
        assert all(f"]({name})" in page for name in charts)

    def test_they_say_how_they_are_made(self, study):
        page = (study.folder / "README.md").read_text()
        assert f"python -m reports {study.name}\n" in page

    def test_they_begin_with_five_sentences_on_what_was_found(self, study):
        """The fourth says for whom it matters, the last what would change it."""
        pages = [study.folder / "README.md"]
        if study.name == "papers":
            pages = [study.folder / f"{name}.md" for name in PAPERS]
        for page in pages:
            beginning = page.read_text().split("\n\n")[1:4]
            (told,) = (part for part in beginning if "It matters to who" in part)
            assert re.search(
                r"[.)] It matters to who .*\. .*\.$", told.replace("\n", " ")
            )
            assert study.name == "papers" or told.count("\n") == 4

    def test_they_need_no_cell_that_is_no_more(self, study):
        """What nobody can compute again must not stand on a page."""
        assert set(study.results()) <= set(study.cells())


@pytest.mark.parametrize(
    "study",
    [
        # In the quick tier one that trains nothing.
        pytest.param(s, marks=[pytest.mark.full] * (s.name != "mechanisms"), id=s.name)
        for s in STUDIES
    ],
)
def test_a_quick_study_is_few_small_cells_that_run(study, tmp_path):
    path = tmp_path / "quick.json"
    cells = study.cells(quick=True)
    found = study.compute(quick=True, path=path)
    assert list(found) == list(cells)
    # Whatever the machine computes at full size, a function of it is here.
    functions = {cell.compute for cell in cells.values()}
    assert functions == {cell.compute for cell in study.cells().values()}


class TestDrawings:
    """What another processor may change is not seen, and what a result does is."""

    DRAWN = (ROOT / "reports/papers/zhu.svg").read_text()

    @staticmethod
    def moved(path, share):
        """Points, and the panel that cuts them off, off by a share of their places."""
        with chart(path, figsize=(3, 3), layout="none") as axes:
            axes.set_position([0.2, 0.2, 0.7 * (1 + share), 0.7])
            axes.plot([0, 1], [1.0, 900 * (1 + share)], "o")
            axes.set_ylim(1, 2000)
            axes.set_yscale("log")
        return path.read_text()

    def test_last_bits_are_not_seen(self, tmp_path):
        one = self.moved(tmp_path / "one.svg", 0.0)
        two = self.moved(tmp_path / "two.svg", 3e-15)
        assert not differences(one, two)
        assert re.findall('id="[^"]*"', one) == re.findall('id="[^"]*"', two)
        assert not re.search("[0-9a-f]{10}", one)

    def test_a_hundredth_of_a_value_is_seen(self, tmp_path):
        one = self.moved(tmp_path / "one.svg", 0.0)
        assert differences(one, self.moved(tmp_path / "two.svg", 0.01))

    @pytest.mark.parametrize(
        ("was", "is_now"),
        [
            ('y="494.94"', 'y="495.04"'),
            ("<!-- 90 -->", "<!-- 91 -->"),
            ("#b2b2b2", "#b2b2b3"),
            ('<use xlink:href="#DejaVuSans-14"/>', ""),
            ("#DejaVuSans-14", "#DejaVuSans-13"),
            ("L 0 3.5 ", "L 0 3.5 L 1 1 "),
        ],
    )
    def test_one_change_is_seen(self, was, is_now):
        assert was in self.DRAWN
        assert differences(self.DRAWN, self.DRAWN.replace(was, is_now, 1))

    def test_a_result_that_changed_is_seen(self, tmp_path):
        study = Study("papers")
        records = copy.deepcopy(study.results().records)
        for record in records.values():
            if isinstance(record["result"], dict) and record["result"].get("accuracy"):
                change = 0.02 if isinstance(record["result"]["accuracy"], float) else 0
                record["result"]["accuracy"] += change or [0.5]
        path = tmp_path / "zhu.svg"
        study.charts["zhu.svg"](path, Results(records))
        assert differences(self.DRAWN, path.read_text())


@pytest.mark.full
@pytest.mark.sampled(1)
def test_the_command_works_from_a_clone():
    done = subprocess.run(
        [sys.executable, "-B", "-m", "reports", "bounds", "--list"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(Study("bounds").cells())


class TestCheck:
    """What is computed again is compared as it is stored, but for times."""

    @pytest.mark.parametrize(
        ("one", "other", "off"),
        [
            ({"a": [1.0, "x"]}, {"a": [1.0, "x"]}, 0.0),
            ({"a": 1.0, "b": 4}, {"a": 1.0, "b": 5}, 0.25),
            ({"a": 1.0}, {"b": 1.0}, float("inf")),
            ([1, 2], [1], float("inf")),
            (True, False, float("inf")),
            (None, 1.0, float("inf")),
            (0.0, 1e-300, float("inf")),
        ],
    )
    def test_differences(self, one, other, off):
        assert compared(one, other) == off

    def test_times_are_left_out(self):
        assert untimed({"cpu": 1.0, "least_seconds": 2.0}) is None
        assert untimed([{"a": 1, "took": 3}]) == [{"a": 1}]

    def test_a_cell_that_came_out_is_computed_again(self, capsys):
        given = ["check", "--sample", "1", "--study", "pushsum", "--most", "0.02"]
        assert main(given) == 0
        assert "1 bit by bit" in capsys.readouterr().out

    OLD: ClassVar = {"commit": "a", "libraries": "x", "result": {"a": 1.0}}

    @pytest.mark.parametrize(
        ("new", "record", "said", "fault"),
        [
            ({}, {}, "bit by bit", False),
            ({"result": {"a": 1 + 1e-9}}, {}, "otherwise, by 1e-09", True),
            ({"result": {"a": 1 + 1e-9}, "libraries": "y"}, {}, "within 1e-06", False),
            ({"result": {"a": 1.01}, "commit": "b"}, {}, "within 0.02", False),
            ({"result": {"a": 1.03}, "commit": "b"}, {}, "otherwise, by 0.03", True),
            ({"result": {"b": 1.0}, "commit": "b"}, {}, "otherwise, by inf", True),
            ({"result": {"a": 2.0}}, {"commit": None}, "not reproducible", False),
            ({"result": {"a": 2.0}}, {"again": {}}, "not reproducible", False),
        ],
    )
    def test_a_difference_is_explained_or_a_fault(self, new, record, said, fault):
        old = self.OLD | record
        off, words, found = judged(old, old | {"libraries": "x"} | new)
        assert words.startswith(said)
        assert (off > 0, found) == (said != "bit by bit", fault)

    def test_another_result_is_found(self, monkeypatch, capsys):
        monkeypatch.setattr(Cell, "run", lambda cell, found: {"result": 1})
        given = ["check", "--sample", "2", "--study", "pushsum", "--most", "0.02"]
        assert main(given) == 1
        assert "otherwise, by inf; made by" in capsys.readouterr().out


class Calls:
    """A study of four cells that counts what it computes."""

    def __init__(self, monkeypatch, path):
        self.made = []
        self.cells_ = [
            Cell("one", self.add, {"a": 1, "b": (2, 3)}),
            Cell("two", self.add, {"a": 5, "b": ()}),
            Cell("sum", self.total, {"times": 2}, needs=("one", "two")),
            Cell("last", self.add, {"a": float("inf"), "b": ()}),
        ]
        self.path = path
        monkeypatch.setattr(Study, "_module", lambda study, name: self)
        self.study = Study("none")

    def cells(self):
        return self.cells_

    def add(self, a, b):
        self.made.append(a)
        return {"value": a + sum(b)}

    def total(self, times, found):
        self.made.append("sum")
        return {"value": times * sum(cell["value"] for cell in found.values())}

    def compute(self, **more):
        self.made.clear()
        found = self.study.compute(path=self.path, **more)
        return self.made, {name: found[name]["value"] for name in found}


class TestCells:
    @pytest.fixture
    def calls(self, monkeypatch, tmp_path):
        return Calls(monkeypatch, tmp_path / "results.json")

    def test_are_computed_once(self, calls):
        values = {"one": 6, "two": 5, "sum": 22, "last": float("inf")}
        assert calls.compute() == ([1, 5, "sum", float("inf")], values)
        assert calls.compute() == ([], values)

    def test_are_kept_one_by_one(self, calls):
        calls.cells_[1] = Cell("two", lambda a: 1 / 0, {"a": 0})
        with pytest.raises(ZeroDivisionError):
            calls.compute()
        assert list(Results.read(calls.path)) == ["one"]
        calls.cells_[1] = Cell("two", calls.add, {"a": 5, "b": ()})
        assert calls.compute()[0] == [5, "sum", float("inf")]

    def test_whose_settings_changed_are_computed_again(self, calls):
        calls.compute()
        calls.cells_[3] = Cell("last", calls.add, {"a": 9, "b": ()})
        assert calls.compute()[0] == [9]

    def test_that_need_a_changed_result_are_computed_again(self, calls):
        calls.compute()
        calls.cells_[0] = Cell("one", calls.add, {"a": 2, "b": (2, 3)})
        assert calls.compute()[0] == [2, "sum"]
        # An equal result changes nothing.
        calls.cells_[0] = Cell("one", calls.add, {"a": 3, "b": (1, 3)})
        assert calls.compute()[0] == [3]

    def test_only_some_and_what_they_need(self, calls):
        assert calls.compute(only="s*")[0] == [1, 5, "sum"]
        with pytest.raises(ValueError, match="no cell of none is named 'x'"):
            calls.compute(only="x")

    def test_are_stored_in_their_order_with_cost_and_version(self, calls):
        calls.compute(only="last")
        calls.compute()
        found = Results.read(calls.path)
        assert list(found) == ["one", "two", "sum", "last"]
        for record in found.records.values():
            assert record["seconds"] >= 0
            assert record["version"] == __version__
            assert record["command"].startswith("python -m reports none --only")
        assert all(__version__ in words for words in found.origin()["versions"])

    def test_of_others_are_kept(self, tmp_path):
        path = tmp_path / "results.json"
        for name in ("b", "old", "a"):
            keep(path, (name, {"result": name}), ["a", "b"])
        assert list(Results.read(path)) == ["a", "b", "old"]

    @pytest.mark.parametrize(
        ("cells", "words"),
        [
            ([Cell("a", print), Cell("a", print)], "two cells"),
            ([Cell("a", print, needs=("b",)), Cell("b", print)], "before"),
        ],
    )
    def test_that_cannot_be_are_refused(self, calls, cells, words):
        calls.cells_ = cells
        with pytest.raises(ValueError, match=words):
            calls.compute()

    def test_small_ones(self):
        cells = [Cell("a", print, {"x": {"y": 1, "z": 2}, "n": 3}), Cell("b", print)]
        (only,) = small(cells, x={"y": 9}, n=1, other=5)
        assert only.settings == {"x": {"y": 9, "z": 2}, "n": 1}

    def test_small_ones_have_what_they_need(self):
        cells = [Cell("a", print), Cell("b", print), Cell("c", len, needs=("b",))]
        assert [cell.name for cell in small(cells)] == ["a", "b", "c"]

    def test_declared_ones_are_those_of_nested_loops(self):
        """By hand, of a grid as settings.toml may have it."""
        told = tomllib.loads(
            """
            STEPS = [1, 2]
            [BASE]
            nodes = 10
            step = 9
            [other.ring]
            graph = "ring"
            [[cells]]
            cell = "{of} {step} {epsilon:g}"
            compute = "pop"
            training = { use = ["BASE", "other/{graph}"], step = "{step}" }
            given = ["{none}", "{count}", "{epsilon}"]
            needs = ["{of}"]
            without = [{ of = "b", step = 2 }]
            [cells.over]
            of = [{ of = "a", graph = "ring", epsilon = 1.0 },
                  { of = "b", graph = "ring", epsilon = 0.5 }]
            step = "STEPS"
            [[cells]]
            cell = "last"
            compute = "number.hex"
            count = "{count}"
            """
        )
        wanted, count = [], 0
        for of, epsilon in (("a", 1.0), ("b", 0.5)):
            for step in (1, 2):
                if (of, step) != ("b", 2):
                    settings = {
                        "training": {"nodes": 10, "step": step, "graph": "ring"},
                        "given": [None, count, epsilon],
                    }
                    name = f"{of} {step} {epsilon:g}"
                    wanted.append(Cell(name, list.pop, settings, needs=(of,)))
                    count += 1
        module = types.SimpleNamespace(pop=list.pop, number=float)
        wanted.append(Cell("last", float.hex, {"count": count}))
        assert list(declared(told, module)) == wanted

    def test_settings_are_compared_as_they_are_stored(self):
        assert plain({"a": (1, 2.0)}) == {"a": [1, 2.0]}


def test_origin_counts_what_computed_and_what_came_out_again():
    new = {"version": "1.0", "commit": "abc", "again": {"equal": True}}
    changed = {"version": "1.0", "commit": "abc with changes"}
    assert Results({"a": {}, "b": new, "c": new, "d": changed}).origin() == {
        "versions": {"earlier": 1, "1.0 abc": 2, "1.0 abc with changes": 1},
        "unknown": 2,
        "again": {True: 2, False: 0},
    }


class TestCommandLine:
    def test_lists(self, capsys):
        assert main(["bounds", "--list", "--only", "power*"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "power top-half 1: kept" in lines

    def test_bad_usage_is_one_line(self, capsys):
        with pytest.raises(SystemExit) as ended:
            main(["bounds", "--only", "nothing of it"])
        assert ended.value.code == 2
        assert "error: " in capsys.readouterr().err
