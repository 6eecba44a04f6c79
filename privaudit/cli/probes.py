"""`privaudit probe`: deterministic checks for privacy bugs."""

from __future__ import annotations

import msgspec

from privaudit.cli import FINE, REFUTED
from privaudit.cli.accounts import Json
from privaudit.cli.output import emit
from privaudit.cli.runs import Settings, program_of
from privaudit.results import Relation


def probe(
    what: str,
    /,
    *,
    settings: Settings = (),  # type: ignore[assignment]  # cyclopts' empty list
    noise_multiplier: float = 1.0,
    relation: Relation = "replace-one",
    sensitivity: float | None = None,
    noise: float | None = None,
    rate: float | None = None,
    records: int = 20,
    features: int = 5,
    runs: int = 200,
    seed: int = 0,
    search: int | None = None,
    json: Json = False,
) -> int:
    """Look for privacy bugs that need no statistics: one record or the noise differs.

    Exit status 1 if anything was found.

    Parameters
    ----------
    what
        One of our algorithms, such as dp-dsgt, your own as module:Class, or
        module:function of yours: called with records, a float array (records,
        features), and a seed, it returns all that it releases as a vector. Equal seeds
        must draw equal noise.
    noise_multiplier
        Of our algorithm's noise.
    relation
        What neighbours of your function's data differ in.
    sensitivity
        The most that one record may move what your function releases, in L2 norm.
    noise
        Standard deviation of its noise, in each coordinate.
    rate
        How likely a record is used at all, in (0, 1].
    records
        How many the data have that your function is given.
    features
        How many numbers each of those records has.
    runs
        At once, or calls of your function.
    seed
        Seed of the random numbers: equal seeds give equal results.
    search
        How many seeds of known generators are tried, to find out whether somebody could
        make our algorithm's noise again; 4096 by default.
    """
    if program_of(what) is not None:
        from privaudit.auditing.probes import function
        from privaudit.files.user_code import function_named

        if settings:
            raise ValueError("--set is for our algorithms; a function has no settings")
        if search is not None:
            raise ValueError(
                "--search is for our algorithms; a function is given its seed"
            )
        promise = function.Promise(
            relation=relation, sensitivity=sensitivity, noise=noise, rate=rate
        )
        checks = function.probe(
            function_named(what),
            promise,
            records=records,
            features=features,
            runs=runs,
            seed=seed,
        )
    else:
        from privaudit.auditing.probes import algorithm
        from privaudit.cli.trainings import training_named

        given = {"sensitivity": sensitivity, "noise": noise, "rate": rate}
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"--{name} is for a function of yours; our algorithms are held "
                    "against their ledger"
                )
        training = training_named(what, list(settings), **algorithm.PROBED)
        checks = algorithm.probe(
            training,
            noise_multiplier=noise_multiplier,
            runs=runs,
            seed=seed,
            search=algorithm.SEARCH if search is None else search,
        )
    findings = [f"{one.name}: {found}" for one in checks for found in one.findings]
    wide = max(len(one.name) for one in checks)
    table = [
        f"{one.name:<{wide}}  {one.status:<13}  {one.skipped or one.what}"
        for one in checks
    ]
    count = "one finding" if len(findings) == 1 else f"{len(findings)} findings"
    conclusion = count if findings else "nothing was found"
    emit(
        {
            "probed": what,
            "checks": [
                {**msgspec.to_builtins(one), "status": one.status} for one in checks
            ],
            "findings": findings,
            "seed": seed,
        },
        [*table, *findings, f"{conclusion}; probes find bugs, they prove nothing"],
        as_json=json,
    )
    return REFUTED if findings else FINE
