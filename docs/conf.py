"""Sphinx: every Markdown page of the project as one site, and its API; `make docs`."""

import itertools
import pathlib
import re

from privaudit.version import __version__

project, author = "privaudit", "the privaudit authors"
copyright = "the privaudit authors; Apache-2.0"
release = version = __version__
root_doc = "docs/index"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = [".*", "build", "dist", "runs", "tests", "**/*.jinja"]
default_role = "py:obj"  # `single quotes` are names
smartquotes_action = "qe"  # --option stays as it is
html_theme = "furo"
html_title = f"privaudit {version}"
html_copy_source = False

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
autodoc_typehints = "none"  # the signature has them
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Returns"]  # sentences, without a type before them

# What the theme lacks for those who use no mouse, or hear pages: what scrolls takes the
# focus, headings have a level, landmarks a name, and no column has an empty head.
_HEADING = '<p class="caption" role="heading"'
_ACCESSIBLE = {
    "<pre>": '<pre tabindex="0">',
    f"{_HEADING}>": f'{_HEADING} aria-level="2">',
    '<aside class="sidebar-drawer"': '<aside aria-label="site" class="sidebar-drawer"',
    '<aside class="toc-drawer': '<aside aria-label="this page" class="toc-drawer',
    '<th class="head"><p></p></th>': '<td class="head"></td>',
}


def _accessible(text):
    for given, mended in _ACCESSIBLE.items():
        text = text.replace(given, mended)
    number = itertools.count(1)
    return re.sub(
        '<div class="(table-wrapper[^"]*)">',
        lambda found: (
            f'<div class="{found[1]}" tabindex="0" role="region" '
            f'aria-label="table {next(number)}">'
        ),
        text,
    )


def _mend_pages(app, failed):
    for path in [] if failed else pathlib.Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        path.write_text(_accessible(text), encoding="utf-8")


def setup(app):
    """Called by Sphinx."""
    app.connect("build-finished", _mend_pages)
