"""Upper bounds as the command line says them: fields, sentences, tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from privaudit.cli.output import emit, upper_json
from privaudit.results import UpperBound, check_sides, round_down, round_up

if TYPE_CHECKING:
    from privaudit.accounting import Certificate


def figure_of(
    certificate: Certificate,
    delta: float,
    method: str,
    *,
    width: float = 1e-3,
    as_json: bool = True,
) -> dict[str, Any]:
    """An account as printed, with what more can be said of it.

    The certified one has a lower side, within ``width`` of the upper side where that
    can be had, and in JSON the upper side of each direction.
    """
    from privaudit.accounting.account import bound_of

    bound = bound_of(certificate, delta, method)
    figure = upper_json(bound)
    if len(certificate.ledger.nodes) > 1:
        figure["overlap"] = certificate.overlap
    if method == "certified":
        above = certificate.epsilon(delta, sides="upper")
        below = certificate.epsilon(delta, width)
        check_sides(below.lower, above.upper, below.lower_by, above.upper_by)
        figure = {"lower": below.lower, **figure}
        figure |= {"lower_by": below.lower_by, "upper_by": above.upper_by}
        if as_json:
            figure["directions"] = {
                way: min(bracket.upper, above.upper)
                for way, bracket in certificate.directions(delta, sides="upper").items()
            }
    if method == "gdp-clt":
        from privaudit.accounting.closed_forms import clt_distance

        figure["distance_from_limit"] = certificate.upper_by(
            lambda entries, *_: clt_distance(entries), delta
        )
    return figure


def sentence(figure: dict[str, Any]) -> str:
    """The same in words."""
    names = UpperBound.__struct_fields__
    values = {key: value for key, value in figure.items() if key in names}
    by = figure.get("upper_by")
    if by is not None:
        values["method"] = by
    text = str(UpperBound(epsilon=figure["upper"], source="", **values))
    overlap = figure.get("overlap")
    if overlap is not None:
        text += (
            "; nodes hold disjoint records"
            if overlap == 1
            else f"; a record may be at {overlap} nodes"
        )
    if by is not None:
        lower = round_down(figure["lower"])
        text += f"; the true figure is no less than {lower} ({figure['lower_by']})"
    if "distance_from_limit" in figure:
        text += (
            f"; used {figure['distance_from_limit']:.2g} from its limit, to be seen "
            f"beside delta {figure['delta']:g}"
        )
    return text


def compare_accounts(
    solve: Callable[[str], dict[str, Any]],
    words: Callable[[dict[str, Any]], str] | None,
    *,
    as_json: bool,
) -> None:
    """Every account that applies, and why the others do not."""
    from privaudit.accounting import METHODS

    rows: list[dict[str, Any]] = []
    lines = []
    for name in METHODS:
        try:
            answer = solve(name)
        except ValueError as error:
            rows.append({"method": name, "applies": False, "reason": str(error)})
            lines.append(f"{name:20} -           {' '.join(str(error).split())}")
            continue
        rows.append({"method": name, "applies": True, **answer})
        figure = answer["epsilon"]
        more = f"  {words(answer)}" if words else ""
        standing = figure["standing"]
        lines.append(
            f"{name:20} {round_up(figure['upper']):11} {standing:11}{more}".rstrip()
        )
    if not any(row["applies"] for row in rows):
        raise ValueError(rows[0]["reason"])
    head = f"{'account':20} {'epsilon':11} {'standing':11}"
    emit({"accounts": rows}, [head.rstrip(), *lines], as_json=as_json)
