"""Options that several commands have."""

from __future__ import annotations

import pathlib
from typing import Annotated, Literal

from cyclopts import Parameter

Json = Annotated[
    bool, Parameter("--json", help="Print one JSON object instead of sentences.")
]
Out = Annotated[
    pathlib.Path | None,
    Parameter(
        help="The run's folder. Given again, the same command continues a run that "
        "was stopped. Default: a folder in runs, named after the command and what "
        "it runs, or that name with -2, -3, ... where another run is there."
    ),
]
Require = Annotated[
    Literal["consistent"] | None,
    Parameter(
        help="consistent: exit status 1 also if a claim is unproven (nothing proves "
        "it, or scores do not fit the account), not only if it is refuted or disproved."
    ),
]
Changes = Annotated[
    list[str],
    Parameter(
        name="--set",
        negative=(),
        show_default=False,
        help="A setting of the training or an option of the algorithm, as key=value: "
        "nodes=8, graph=ring, rounds=100, batch_size=32, ...; may be repeated. An "
        "algorithm's name before --help lists all of its settings: privaudit train "
        "dp-dsgt --help.",
    ),
]
Flat = Parameter(name="*")  # the fields of a value of settings are options
