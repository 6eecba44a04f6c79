"""The documentation's site as Chromium shows it: on a phone, by axe-core's rules."""

import subprocess
import sys

import pytest

pytest.importorskip("sphinx", reason="needs the extra docs")
pytest.importorskip("furo", reason="needs the extra docs")

from tests.report.test_browser import (
    ROOT,
    chromium,  # noqa: F401  # a fixture
    faults_of,
    pytestmark,  # noqa: F401  # skipped without Chromium
)

# The start, code, the API, tables and pictures, a page beside docs/.
PAGES = ("docs/index", "docs/tutorial", "docs/api", "docs/views", "README")


@pytest.mark.full
def test_pages(chromium):  # noqa: F811
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "-c", "docs", "."]
    site = ROOT / "build/site"  # what `make docs` has built is not built again
    subprocess.run([*build, str(site)], cwd=ROOT, check=True)
    faults = {}
    for name in PAGES:
        with chromium.new_context(offline=True, color_scheme="light") as context:
            path = site / f"{name}.html"
            shown = context.new_page()
            found = list(faults_of(shown, path, name.replace("/", "-")))
            # It asks for the theme's files, which lie beside it, and nothing else.
            away = site.as_uri()
            faults[name] = [x for x in found if not str(x).startswith(away)]
    assert not {name: found for name, found in faults.items() if found}
