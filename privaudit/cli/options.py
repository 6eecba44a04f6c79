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
        help="The run's folder; the same command goes on where it stopped. Default: "
        "one in runs, which an unfinished run of the same settings goes on in; where "
        "another run is there, NAME-2, NAME-3, ..."
    ),
]
Require = Annotated[
    Literal["consistent"] | None,
    Parameter(
        help="consistent: exit status 1 for an unproven claim too, not only for one "
        "that is refuted or disproved."
    ),
]
Changes = Annotated[
    list[str],
    Parameter(
        name="--set",
        negative=(),
        help="A setting of the training, as key=value, such as nodes=8, graph=ring, "
        "rounds=100, batch_size=32, or an option of the algorithm; may be repeated.",
    ),
]
Account = Annotated[
    str,
    Parameter(
        help="certified (tight, all numerical error bounded), pld (dp-accounting's), "
        "rdp, gdp (no sampling), gdp-clt (a limit, no guarantee), analytic-gaussian or "
        "classical-gaussian (one release)."
    ),
]
Method = Annotated[
    str,
    Parameter(
        help="For any mechanism: best, rank-walk, two-binomial, clopper-pearson, "
        "betting. For Gaussian DP only: top-half, betting-gaussian. For the canaries "
        "of one run: one-run, one-run-gaussian."
    ),
]
Flat = Parameter(name="*")  # the fields of a value of settings are options
