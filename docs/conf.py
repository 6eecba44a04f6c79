"""Sphinx: every Markdown page of the project as one site, and its API; `make docs`."""

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
