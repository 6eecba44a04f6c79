"""Lower bounds from scores, their selfcheck, and probes."""

from __future__ import annotations

import pathlib
from typing import Annotated

from privaudit.cli import FINE, REFUTED
from privaudit.cli.options import Changes, Flat, Json
from privaudit.cli.output import status_of, tell
from privaudit.figure_settings import ProbeSettings, ScoreSettings, SelfcheckSettings
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
    tell(found, as_json=json)
    return REFUTED if found.findings else FINE


def bound(
    scores: pathlib.Path,
    /,
    *,
    settings: Annotated[ScoreSettings, Flat],
    json: Json = False,
) -> int:
    """Bound epsilon from below by the attack scores in a file.

    Parameters
    ----------
    scores
        A .csv with the columns member (0 or 1) and score, one row for each run; or a
        .npz with arrays of these names.
    """
    from privaudit.api.attacks import bound_of_file

    found = bound_of_file(scores, settings)
    tell(found, as_json=json)
    return FINE if found.verdict is None else status_of([found.verdict.status])


def selfcheck(
    *,
    settings: Annotated[SelfcheckSettings, Flat] = SelfcheckSettings(),  # frozen
    json: Json = False,
) -> int:
    """Check that the lower bounds keep their confidence, where epsilon is known.

    At confidence c a bound may be above the true epsilon in a share 1 - c of audits.
    Prints that share for simulated audits. Exit status 1 if it is larger than chance
    explains.
    """
    from privaudit.api.attacks import selfcheck
    from privaudit.api.console import Console

    found = selfcheck(settings, Console())
    tell(found, as_json=json)
    return FINE if found.passed else REFUTED
