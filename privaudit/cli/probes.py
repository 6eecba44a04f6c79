"""`privaudit probe`: deterministic checks for privacy bugs."""

from __future__ import annotations

from typing import Annotated

from privaudit.cli import FINE, REFUTED
from privaudit.cli.options import Changes, Flat, Json
from privaudit.cli.output import emit
from privaudit.figure_settings import ProbeSettings
from privaudit.task_settings import changes_of


def probe(
    what: str,
    /,
    *,
    changes: Changes = (),  # type: ignore[assignment]  # cyclopts' empty list
    settings: Annotated[ProbeSettings, Flat] = ProbeSettings(),  # frozen
    json: Json = False,
) -> int:
    """Look for privacy bugs by deterministic checks, which need no statistics.

    Exit status 1 if anything was found.

    Parameters
    ----------
    what
        One of our algorithms, such as dp-dsgt, your own as module:Class, or
        module:function of yours: called with data, a float array (records, features),
        and seed, a whole number, it returns all that it releases as a vector. Equal
        seeds must draw equal noise. A second parameter named rng gets a numpy
        generator with that seed instead, as in tests with privaudit.testing.
    """
    from privaudit.api.probes import probe_named

    found = probe_named(what, settings, training=changes_of(changes))
    emit(found.summary(), found.lines(), as_json=json)
    return REFUTED if found.findings else FINE
