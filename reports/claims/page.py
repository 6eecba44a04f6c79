"""Values of the pages."""

from __future__ import annotations

import math
import os
from typing import Any

from markupsafe import Markup  # what jinja2 escapes with

from privaudit.auditing.bounds import RankWalk, most_shown
from privaudit.claims import PAPERS, all_claims
from privaudit.claims.claim import Certified, PaperFinding
from privaudit.report.axis import Item, together
from privaudit.report.page import style as page_style
from privaudit.results import MEANING, round_down, round_up, stated
from reports.study import Results


def by_rates(audit: dict[str, Any], delta: float) -> str:
    """Bound by the limits of the two rates alone: ln((TPR - delta) / FPR)."""
    value = math.log((audit["tpr"][1] - delta) / audit["fpr"][2])
    return round_down(max(value, 0.0), 3)


def most(audit: dict[str, Any], delta: float) -> str:
    """Largest bound that as many runs could show."""
    runs = audit["member_runs"], audit["non_member_runs"]
    return round_down(most_shown(RankWalk(), *runs, delta, audit["confidence"]), 3)


def rows(known: Results) -> list[dict[str, Any]]:
    """The claims as the pages show them."""
    out = []
    for claim in all_claims():
        found = known[f"claim {claim.key}"]
        audit = known.get(f"attack {claim.key}")
        corrected = found["certified_as_corrected"]
        names = "certified_as_printed", "certified_as_printed_lower"
        finding = PaperFinding(
            claim,
            Certified(*(found[name] for name in names)),
            None if corrected is None else Certified(corrected),
        )
        verdict = finding.verdict
        refuted = audit is not None and audit["epsilon_lower"] > (claim.claimed or 0)
        if refuted and verdict != "no theorem":
            verdict = "refuted"
        out.append(
            {
                "claim": claim,
                "verdict": verdict,
                "claimed": "none" if claim.claimed is None else stated(claim.claimed),
                "printed": round_up(finding.printed.upper, 3),
                "lower": round_down(finding.printed.lower, 3),
                "corrected": finding.corrected and round_up(finding.corrected.upper, 5),
                "audit": audit,
                "audit_corrected": known.get(f"attack {claim.key}/corrected"),
                "audited": audit and round_down(audit["epsilon_lower"], 3),
                "line": Item(
                    name=claim.key,
                    kind="claim",
                    claimed=claim.claimed,
                    certified=finding.printed.upper,
                    proved=finding.printed.lower,
                    audited=audit and audit["epsilon_lower"],
                    verdict=verdict,
                ),
                "by_rates": audit and by_rates(audit, claim.delta),
                "most": audit and most(audit, claim.delta),
            }
        )
    return out


def sections(found: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each paper, those of one flaw at several settings together."""
    out: dict[str, list[dict[str, Any]]] = {number: [] for number in PAPERS}
    for row in found:
        claim = row["claim"]
        for section in out[claim.paper]:
            if section["plain"] == claim.plain:
                section["rows"].append(row)
                break
        else:
            out[claim.paper].append({"plain": claim.plain, "rows": [row]})
    for number in out:
        for section in out[number]:
            names = [row["claim"].name for row in section["rows"]]
            common = os.path.commonprefix(names)  # noqa: RUF071  # of letters, yes
            section["name"] = common if len(names) == 1 else common.rpartition("-")[0]
            section["facts"] = section["rows"][0]["claim"]
    return out


def values(known: Results) -> dict[str, Any]:
    """Values of the templates."""
    found = rows(known)
    attacked = [row for row in found if row["audit"]]
    lines = [row["line"] for row in found if row["claim"].quantity == "epsilon"]
    return {
        "rows": found,
        "style": Markup(page_style()),
        "all_claims": [
            (name, Markup(together(lines, width=width, name=name)))
            for name, width in (("wide", 860), ("narrow", 400))
        ],
        "meaning": MEANING,
        "papers": PAPERS,
        "sections": sections(found),
        "looks": sum(len(row["claim"].attack.looks) for row in attacked),
        "corrected_attacks": [row for row in found if row["audit_corrected"]],
        "without_corrected": [
            row["claim"].key for row in attacked if not row["audit_corrected"]
        ],
        "counts": {
            verdict: sum(row["verdict"] == verdict for row in found)
            for verdict in MEANING
        },
    }
