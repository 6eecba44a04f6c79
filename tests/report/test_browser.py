"""Pages as Chromium shows them: on a phone, by axe-core's rules, without a network.

Chromium is the system's: ``make browser`` installs Debian's. ``PRIVAUDIT_SCREENSHOTS``
names a folder where pictures of all pages are kept for review.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import shutil

import pytest

from privaudit import PoissonSampling, ProgramSettings, Release, audit_program
from privaudit.accounting.recorded import RecordedRun, write
from privaudit.auditing.experiments.demo import run_demo
from privaudit.cli import main
from privaudit.ledger import Ledger
from privaudit.report import demo
from privaudit.testing.page import page
from privaudit.testing.record import Row
from tests.report import runs
from tests.trainers.runs import test_parties

BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="there is no Chromium; `make browser` installs Debian's"
)
pytest.importorskip("matplotlib")

ROOT = pathlib.Path(__file__).parents[2]
SHOTS = os.environ.get("PRIVAUDIT_SCREENSHOTS")
SIZES = (360, 800, 1400)
PAGES = {
    "training": "training/report.html",
    "audit": "audit/report.html",
    "program": "program/report.html",
    "recorded": "recorded/report.html",
    "demo": "demo/report.html",
    "joint": "joint.html",
    "site": "site/index.html",
    "sweep": "site/pages/sweep.html",
    "claims": "site/pages/claims.html",
    "study": "site/pages/bounds.html",
    "study of papers": "site/pages/papers.html",
    "privacy report": "privacy.html",
    "report on claims": ROOT / "reports/claims/index.html",
}
SWEEP = """
[all]
algorithm = "sgd"
runs = 20
model = "softmax"
[grid]
rounds = [1, 2]
"""
ROWS = [
    Row(test="tests/a.py::one", assertion="assert_private", what="count", claim="1"),
    Row(test="tests/a.py::two", assertion="assert_accounts", what="x", claim="1"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All kinds of pages, of small runs."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runs.write_training(folder / "training", upper=runs.accounted())
        audit_program("numpy:copysign", ProgramSettings(runs=9), out="program")
        release = Release.of_sum(
            norm_bound=2.0, noise_multiplier=1.0, sampling=PoissonSampling(0.01)
        )
        own = RecordedRun.of("a tool 3.1", "read from its history", 1e-5)
        write(folder / "recorded", own, Ledger.of(release, 10), {"its own": 1.9})
        run_demo(folder / "demo", runs=20, workers=1)
        demo.write(folder / "demo", demo.load_views(folder / "demo"))
        shutil.copytree("demo/neighbour", "audit")
        test_parties.together(lambda party: test_parties.train(party, folder / "both"))
        parties = [f"both/party-{party}" for party in range(2)]
        pathlib.Path("sweep.toml").write_text(SWEEP)
        claims = io.StringIO()
        with contextlib.redirect_stdout(claims):
            main(["claims", "004", "--quick", "--json"])
        pathlib.Path("claims.json").write_text(claims.getvalue())
        with contextlib.redirect_stdout(io.StringIO()):
            for name in ("training", "program", "recorded", "audit"):
                main(["report", name])
            main(["sweep", "sweep.toml", "--out", "sweep"])
            studies = [str(ROOT / "reports" / name) for name in ("bounds", "papers")]
            main(["join", *parties, "--out", "joint.html"])
            made = ["training", "demo", "both", "sweep", "claims.json", *studies]
            main(["site", *made, "--out", "site"])
        pathlib.Path("privacy.html").write_text(
            page(ROWS, {"test_it": "no (1, 0)-DP\n  pair: ([], [1])"}, as_html=True)
        )
    return folder


@pytest.fixture(scope="module")
def chromium():
    # A third of a second, and all that is here is for the full size.
    playwright = pytest.importorskip("playwright.sync_api", reason="needs extra test")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=BROWSER,
            args=["--no-sandbox"],  # there is none for root
        )
        yield browser
        browser.close()


@pytest.mark.full
def test_pages(folder, chromium):
    """One test, as each process that had some of the pages would make them all."""
    faults = {}
    for name, place in PAGES.items():
        with chromium.new_context(offline=True, color_scheme="light") as context:
            shown = context.new_page()
            faults[name] = list(faults_of(shown, folder / place, name))
            if name == "site":
                sorts(shown)
    assert not {name: found for name, found in faults.items() if found}


def faults_of(shown, path, name):
    """A page on a phone in the light, on a desk in the dark, and what it asked for."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    asked = []
    shown.on("request", lambda request: asked.append(request.url))
    for width in SIZES:
        shown.set_viewport_size({"width": width, "height": 800})
        if width == SIZES[0]:
            shown.goto(path.as_uri())
        inner = shown.evaluate("document.documentElement.scrollWidth")
        if inner > width:
            yield f"{inner} px at {width}"
        if SHOTS:
            to = pathlib.Path(SHOTS) / f"{name}-{width}.png"
            shown.screenshot(path=to, full_page=True)
        if width == SIZES[-1]:
            shown.emulate_media(color_scheme="dark")
            if SHOTS:
                shown.screenshot(path=f"{SHOTS}/{name}-dark.png", full_page=True)
        if width != SIZES[1]:
            for one in axe.Axe().run(shown).response["violations"]:
                for node in one["nodes"]:
                    yield width, one["id"], node["html"][:90], node["failureSummary"]
    yield from asked[1:]


def sorts(shown):
    """The overview's table, without a network."""
    head = shown.locator("th", has_text="certified")
    column = "rows => rows.map(row => +row.cells[3].dataset.sort)"
    for order in ("ascending", "descending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == order
        values = shown.locator("tbody tr").evaluate_all(column)
        assert values == sorted(values, reverse=order == "descending")
        assert len(set(values)) > 2
