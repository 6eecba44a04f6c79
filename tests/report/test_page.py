"""The page: what it says is what result.json says, and it needs nothing else."""

from __future__ import annotations

import html
import html.parser
import math
import re
import sys

import numpy as np
import pytest

from privaudit.auditing.experiments.outcome import Gap
from privaudit.cli import main
from privaudit.files.folder import FolderError
from privaudit.report import page as pages
from privaudit.report.limits import accounted
from privaudit.report.load import load
from privaudit.report.standing import WORDS
from privaudit.report.verify import verify
from privaudit.results import round_down, round_up
from tests.report import runs

pytest.importorskip("matplotlib")

VOID = {"meta", "link", "br", "hr", "img", "input", "path", "use", "rect", "stop"}


class Reader(html.parser.HTMLParser):
    """The text of a page; fails if an element is not closed in its place."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text, self.ids = [], set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "text"):
            self.text.append(data)


def write(folder):
    """The page of a folder whose figures are made up, which `pages.write` refuses."""
    path = folder / "report.html"
    path.write_text(pages.render(load(folder)), encoding="utf-8")
    return path


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    reader.words = " ".join(" ".join(reader.text).split())
    return reader


def said(text):
    """All words of a page, those in drawings and for those who do not see them too."""
    plain = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    return " ".join(html.unescape(plain).split())


@pytest.fixture
def page(tmp_path):
    """Makes the page of an audit: its text as a reader sees it, and its source."""

    def make(**made):
        folder = tmp_path / "run"
        runs.Made(**{"worlds": runs.noise(150, 150), **made}).write(folder)
        text = write(folder).read_text(encoding="utf-8")
        return read(text), text

    return make


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The page of an audit without findings, made once."""
    folder = tmp_path_factory.mktemp("plain")
    runs.Made(worlds=runs.noise(150, 150)).write(folder)
    text = write(folder).read_text(encoding="utf-8")
    return read(text), text


class TestSound:
    """It never says more than what was found."""

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("upper", [0.99991, 7.77777])
    def test_figures_are_those_of_the_result_on_the_safe_side(self, tmp_path, upper):
        result = runs.Made(worlds=runs.separated(70, 80), upper=upper).write(tmp_path)
        words = read(write(tmp_path).read_text()).words
        found, bound = result.lower().epsilon, result.upper().epsilon
        assert f"ε ≤ {round_up(bound)}" in words
        assert f"ε ≥ {round_down(found)} at least, with 95 % confidence" in words
        assert "claimed ε = 1 at δ = 0.01" in words
        assert float(round_up(bound)) >= bound
        assert float(round_down(found)) <= found

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        ("made", "heading"),
        [
            ({"worlds": runs.separated(150, 150)}, "Refuted"),
            ({"upper": 1.5}, "Unproven"),
            ({"claim": 2.0}, "Consistent"),
        ],
    )
    def test_verdict_in_words(self, page, made, heading):
        reader, text = page(**made)
        assert f"{heading}:" in reader.words
        assert f'class="statement {heading.lower()}"' in text
        others = {"Refuted:", "Unproven:", "Consistent:"} - {f"{heading}:"}
        assert not any(other in reader.words for other in others)

    @pytest.mark.full
    @pytest.mark.parametrize("estimator", ["clopper-pearson", "best"])
    def test_a_square_is_explained_where_one_is_drawn(self, tmp_path, estimator):
        runs.Made(worlds=runs.separated(70, 80), estimator=estimator).write(tmp_path)
        text = said(write(tmp_path).read_text())
        caption = "The square, both limits at once,"
        drawn = "both limits at once" in text.replace(caption, "")
        assert drawn == (caption in text) == (estimator == "clopper-pearson")

    def test_says_when_the_audit_contradicts_the_account(self, page):
        reader, _ = page(worlds=runs.separated(150, 150), upper=0.5)
        assert "exceeds the certified bound" in reader.words
        assert "Not protected" not in reader.words  # no model is kept

    @pytest.mark.full
    def test_says_what_a_perfect_attack_would_have_shown(self, tmp_path):
        worlds, _ = runs.separated(90, 60)
        perfect = runs.Made(worlds=(worlds, 1.0 * worlds)).write(tmp_path / "a")
        runs.Made(worlds=runs.noise(90, 60)).write(tmp_path / "b")
        words = read(write(tmp_path / "b").read_text()).words
        most = round_down(perfect.lower().epsilon)
        assert "The most that 90 + 60 runs can show" in words
        assert f"an attack that never errs, is ε at least {most}" in words

    def test_what_holds_under_an_assumption_is_nowhere_called_certified(self, page):
        assumes = ("nobody sees which updates are global",)
        gap = Gap(certified=0.99, attained=0.9, reachable=0.5, found=0.1, most=2.0)
        reader, text = page(assumes=assumes, gap=gap)
        spoken = said(text)
        denied = "no certified account reaches the claim"
        assert denied in spoken
        assert not re.search(
            "certif|proved|proof(?! of safety)", spoken.replace(denied, "")
        )
        assert assumes[0] in reader.words
        for label in ("most", "ruled_out", "otherwise", "is_so"):
            assert getattr(WORDS["conditional"], label) in spoken
        other = said(page(gap=gap)[1])
        for label in ("most", "ruled_out", "is_so"):
            assert getattr(WORDS["certified"], label) in other

    def test_the_page_of_deep_q_is_conditional_wherever_it_draws_a_bound(
        self, tmp_path
    ):
        out = str(tmp_path / "run")
        run = ("audit", "deep-q", "--set", "policy=deep-q", "--set", "rounds=3")
        assert main(
            [*run, *("--noise-multiplier", "5", "--runs", "60"), "--out", out]
        ) in (0, 1)
        assert main(["report", out]) == 0
        spoken = said((tmp_path / "run" / "report.html").read_text())
        denied = "no certified account reaches the claim"
        assert not re.search("certif", spoken.replace(denied, ""))
        for label in ("most", "ruled_out", "at_most"):
            assert getattr(WORDS["conditional"], label) in spoken

    def test_a_curve_pays_the_chance_of_failure(self, tmp_path):
        rates, curves = np.linspace(0, 1, 21), []
        for name, failure in (("a", 0.0), ("b", 0.005)):
            runs.Made(worlds=runs.noise(20, 20), failure=failure).write(tmp_path / name)
            curves.append(accounted(load(tmp_path / name)).trade_off(rates))
        plain, paid = curves
        # At rate 0 all of it; elsewhere no more, by the curve's mirror image.
        assert paid[0] == pytest.approx(plain[0] - 0.005, abs=1e-9)
        assert (paid >= plain - 0.005 - 1e-9).all()
        assert (paid[1:-1] < plain[1:-1]).all()

    def test_few_runs_are_said_to_be_too_few(self, page):
        reader, _ = page(worlds=runs.noise(10, 10))
        assert "no attack could have refuted it" in reader.words

    def test_no_attack_is_called_one(self, tmp_path):
        runs.write_training(tmp_path)
        words = read(write(tmp_path).read_text()).words
        assert (
            "Consistent: a certified account meets the claim, and no attack was"
            in words
        )
        assert "audited" not in words

    def test_a_trained_model_is_said_not_to_be_protected(self, tmp_path):
        result = runs.write_training(tmp_path)
        words = read(write(tmp_path).read_text()).words
        assert f"Not protected: {result.noise}" in words
        assert "by version 0.1.0 can be recovered" in result.noise
        # Above the details, below the verdict.
        assert words.index("Consistent:") < words.index("Not protected:")
        assert words.index("Not protected:") < words.index("What the figures stand on")

    def test_what_must_be_known_of_a_run_is_said(self, tmp_path, capsys):
        """As a remark: of a folder that is not signed anybody may have written it."""
        died = "worker 1 died (killed by SIGKILL) after 7 of its own steps"
        runs.write_training(tmp_path, upper=runs.accounted(), remarks=(died,))
        words = read(write(tmp_path).read_text()).words
        assert f"Remark of the run: {died}." in words
        assert main(["show", str(tmp_path)]) == 0
        assert f"remark: {died}" in capsys.readouterr().out.splitlines()
        told = verify(tmp_path).unchecked
        assert "remarks, which are the run's own words" in told

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("test", "sentence", "line"),
        [
            (
                (960, 10_000),
                "of 960 of 10,000 test records",
                "960 of 10,000 test records",
            ),
            ((397, 397), "of the test data", "test data"),
            (None, "of the test data", "test data"),  # of an earlier version
        ],
    )
    def test_on_how_many_records_it_was_measured(
        self, tmp_path, capsys, test, sentence, line
    ):
        runs.write_training(tmp_path, upper=runs.accounted(), test=test)
        words = read(write(tmp_path).read_text()).words
        assert f"The models get 70.0 % {sentence} right." in words
        assert main(["show", str(tmp_path)]) == 0
        assert f"accuracy 0.7000 on {line}, mean" in capsys.readouterr().out
        found = load(tmp_path).summary()
        assert (found["test_records"], found["test_size"]) == (test or (None, None))

    def test_training_without_a_claim_has_no_verdict(self, tmp_path):
        runs.write_training(tmp_path, claim=None, upper=math.inf)
        words = read(write(tmp_path).read_text()).words
        assert "there is no verdict" in words
        assert "no bound" in words


class TestAlone:
    """One file, without scripts, without network."""

    def test_nothing_is_fetched_or_run(self, plain):
        reader, text = plain
        assert reader.tags.isdisjoint({"script", "link", "img", "iframe", "object"})
        assert "http" not in text
        assert "@import" not in text
        assert set(re.findall(r"url\((.)", text)) <= {"#"}
        assert not re.search(r"\son\w+=", text)

    def test_ids_are_unique_and_all_that_is_referred_to_is_there(self, plain):
        reader, text = plain
        assert len(reader.ids) == len(set(reader.ids))
        used = re.findall(r'(?:url\(|href=")#([^)"]+)', text)
        assert used
        assert set(used) <= set(reader.ids)

    def test_colours_are_those_of_the_style_sheet(self, plain):
        _, text = plain
        names = set(re.findall(r"var\((--[\w-]+)\)", text))
        assert names
        assert all(f"{name}:" in text for name in names)
        drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
        assert set(re.findall(r"#[0-9a-f]{6}\b", drawn)) <= {"#000000", "#ffffff"}

    def test_text_is_escaped(self, page):
        training = {**runs.TRAINING, "graph": "<i>ring</i>"}
        reader, text = page(source="<b>me</b> & co", training=training)
        assert "<b>me</b> & co" in reader.words
        assert "&lt;b&gt;me&lt;/b&gt; &amp; co" in text
        assert "<i>ring" not in text

    @pytest.mark.full
    def test_command_is_escaped_for_a_shell(self, tmp_path):
        folder = tmp_path / "a <b>run's folder"
        runs.Made(worlds=runs.noise(20, 20)).write(folder)
        text = write(folder).read_text()
        assert "<b>run" not in text
        assert read(text).open == []


class TestLaws:
    """Equal folders, equal bytes; and no folder is too odd."""

    def test_equal_input_equal_bytes(self, tmp_path):
        runs.Made(worlds=runs.separated(20, 25)).write(tmp_path)
        first = write(tmp_path).read_bytes()
        assert write(tmp_path).read_bytes() == first

    @pytest.mark.sampled(6)
    @pytest.mark.parametrize(
        "worlds",
        [
            pytest.param((np.array([True, False]), np.zeros(2)), id="two runs"),
            pytest.param(runs.separated(2, 2), id="four runs"),
            pytest.param(runs.separated(3, 1), id="one other"),
            pytest.param((np.arange(40) % 2 == 0, np.full(40, 3.0)), id="all tied"),
            pytest.param((np.arange(40) % 2 == 0, np.full(40, 1e300)), id="huge"),
            pytest.param(
                (np.arange(60) % 2 == 0, np.arange(60) % 2 + 0.0), id="two values"
            ),
            pytest.param(
                (np.arange(99) % 2 == 0, np.r_[np.arange(98.0), 1e12]), id="tail"
            ),
            pytest.param(
                (np.arange(40) % 2 == 0, 1 - np.arange(40) % 2 * 1e-16), id="narrow"
            ),
            pytest.param(
                (np.arange(40) % 2 == 0, np.arange(40) % 2 * -1e-310), id="subnormal"
            ),
        ],
    )
    def test_odd_scores(self, page, worlds):
        page(worlds=worlds)

    @pytest.mark.full
    @pytest.mark.parametrize(
        ("claim", "upper"),
        [(1e-3, 0.0), (1e-3, 1e5), (1.0, 1e-6), (1.0, 30.0), (500.0, math.inf)],
    )
    def test_odd_figures(self, page, upper, claim):
        page(claim=claim, upper=upper, worlds=runs.noise(8, 8))

    @pytest.mark.full
    def test_scores_outside_are_counted(self, page):
        member, score = runs.noise(100, 100)
        score = score.copy()
        score[0] = 1e9
        reader, _ = page(worlds=(member, score))
        assert re.search(r"\b[1-9]\d* of 200 scores lie outside", reader.words)

    def test_no_noise(self, page):
        reader, _ = page(noise=0.0, upper=math.inf)
        assert "exact (no gaussian noise)" in reader.words

    @pytest.mark.full
    def test_passes_over_disjoint_records_have_a_curve_but_no_family(self, page):
        reader, text = page(disjoint=0)
        assert "ruled out by the certified account" in text
        assert "within the family" not in reader.words

    @pytest.mark.full
    def test_many_equal_nodes_are_one_line(self, page):
        reader, _ = page(nodes=40, upper=0.0)
        assert "0 to 39" in reader.words


class TestCommand:
    def test_report_prints_the_path(self, tmp_path, capsys):
        runs.write_training(tmp_path, upper=runs.accounted())
        assert main(["report", str(tmp_path)]) == 0
        path = capsys.readouterr().out.strip()
        assert path == str(tmp_path / "report.html")

    @pytest.mark.parametrize("module", ["matplotlib", "jinja2"])
    def test_names_the_extra_that_is_missing(
        self, tmp_path, monkeypatch, capsys, module
    ):
        runs.write_training(tmp_path, upper=runs.accounted())
        monkeypatch.setitem(sys.modules, module, None)
        assert main(["report", str(tmp_path)]) == 3
        assert "pip install '.[report]'" in capsys.readouterr().err
        assert not (tmp_path / "report.html").exists()

    def test_unfinished_folder_is_refused(self, tmp_path):
        with pytest.raises(FolderError):
            pages.write(tmp_path)
