"""Upper bounds as the command line says them: fields, sentences, tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from privaudit.cli.output import emit, upper_json
from privaudit.ledger import Ledger
from privaudit.results import UpperBound, round_up


def figure_of(ledger: Ledger, bound: UpperBound) -> dict[str, Any]:
    """An upper bound as printed, with what more its account can say."""
    figure = upper_json(bound)
    worst = _worst(ledger, bound)
    if bound.method == "certified" and worst is not None:
        from privaudit.accounting.account import certified_lower

        lower, each = certified_lower(worst, bound, failure=ledger.failure)
        # A search may have proved its budget by a wider bracket than this one.
        figure = {"lower": min(lower, bound.epsilon), **figure, "directions": each}
    if bound.method == "gdp-clt" and worst:
        from privaudit.accounting.closed_forms import clt_distance
        from privaudit.accounting.parallel import views

        figure["distance_from_limit"] = max(
            clt_distance(view) for view in views(worst, bound.relation)
        )
    return figure


def _worst(ledger: Ledger, bound: UpperBound) -> Any:
    """The entries of the node that ``bound`` is of."""
    from privaudit.accounting import account_nodes

    if len(ledger.nodes) == 1:
        return ledger.nodes[0]
    nodes = account_nodes(ledger, bound.delta, bound.relation, bound.method)
    return ledger.nodes[nodes.index(bound)]


def sentence(figure: dict[str, Any]) -> str:
    """The same in words."""
    values = {
        key: value
        for key, value in figure.items()
        if key not in ("lower", "upper", "directions", "distance_from_limit")
    }
    text = str(UpperBound(epsilon=figure["upper"], source="", **values))
    if "lower" in figure:
        from privaudit.results import round_down

        text += f"; the true figure is no less than {round_down(figure['lower'])}"
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
