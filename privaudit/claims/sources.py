"""Sources of the methods, as BibTeX: what `privaudit cite` prints."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

from privaudit.files import toml

_TOLD = toml.read(pathlib.Path(__file__).with_suffix(".toml"))
SOURCES: dict[str, str] = _TOLD["methods"]
OF_PAPER: dict[str, str] = _TOLD["papers"]
OF_METHOD: dict[str, list[str]] = _TOLD["accounts"]


def bibtex(methods: Iterable[str]) -> str:
    """The entries of ``methods``, each once, in the order given."""
    entries: dict[str, None] = {}
    for method in methods:
        if method not in SOURCES:
            raise ValueError(
                f"there is no source for {method!r}; there are {', '.join(SOURCES)}"
            )
        entries[SOURCES[method]] = None
    return "\n\n".join(entries)
