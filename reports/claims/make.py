"""Make the page of the claims: ``python reports/claims/make.py [--audits FOLDER]``.

Accounts are recomputed. What the attacks showed is read from ``audits.json``; with
``--audits`` it is first taken from a folder in which `privaudit audit` kept its runs,
one sub-folder an attack, named as in ``ATTACKS``. Rates of the attacks are those of a
threshold that a fifth of the runs chose, on the others.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
from typing import Any

import jinja2
import numpy as np

from privaudit.auditing.bounds import ClopperPearson, RankWalk, most_shown
from privaudit.auditing.bounds.binomial import limit_down, limit_up
from privaudit.auditing.scores import Scores
from privaudit.claims import PAPERS, all_claims
from privaudit.claims.claim import PaperFinding, judged
from privaudit.results import MEANING, round_down, round_up, stated

HERE = pathlib.Path(__file__).parent
# Folder, claim, and whether the corrected form was attacked.
ATTACKS = (
    ("k2500", "000/eq6-constant-epsilon1-K2500", False),
    ("k2500c", "000/eq6-constant-epsilon1-K2500", True),
    ("k500", "000/eq6-constant-epsilon1-K500", False),
    ("k500c", "000/eq6-constant-epsilon1-K500", True),
    ("grow", "000/eq6-growing-rho0.3-epsilon1-K2500", False),
    ("growc", "000/eq6-growing-rho0.3-epsilon1-K2500", True),
    ("adp", "004/noise-on-sum-T1000-K8-B8", False),
    ("adpc", "004/noise-on-sum-T1000-K8-B8", True),
)


def read_attacks(folder: pathlib.Path) -> dict[str, Any]:
    """What each finished attack shows."""
    claims = {claim.key: claim for claim in all_claims()}
    found: dict[str, Any] = {}
    for name, key, corrected in ATTACKS:
        claim = claims[key]
        attack = claim.attack
        assert attack is not None
        assert claim.claimed is not None
        with np.load(folder / name / "scores.npz", allow_pickle=False) as file:
            scores = Scores(file["member"], file["score"], "coin-flip")
        if len(scores) != attack.runs:
            raise ValueError(f"{name} has {len(scores)} of {attack.runs} runs")
        lower = RankWalk()(
            scores,
            claim.delta,
            attack.confidence,
            relation=claim.relation,
            threat_model=attack.seen,
            seed=attack.seed,
        )
        # A second method, for the reader: threshold chosen on a fifth of the runs.
        simple = ClopperPearson()(
            scores, claim.delta, attack.confidence, threat_model="", seed=attack.seed
        ).evidence
        assert simple.tpr is not None
        assert simple.fpr is not None
        level = (1 - attack.confidence) / 2
        rates = {
            rate_name: [
                rate.rate,
                float(limit_down(rate.hits, rate.runs, level)),
                float(limit_up(rate.hits, rate.runs, level)),
            ]
            for rate_name, rate in (("tpr", simple.tpr), ("fpr", simple.fpr))
        }
        found[key + ("/corrected" if corrected else "")] = {
            "epsilon_lower": lower.epsilon,
            "confidence": attack.confidence,
            "member_runs": scores.member_runs,
            "non_member_runs": scores.non_member_runs,
            "note": lower.evidence.note,
            **rates,
            "command": attack.command(claim.claimed, claim.delta, corrected=corrected),
        }
    return found


def axis(finding: PaperFinding, audit: dict[str, Any] | None) -> dict[str, Any] | None:
    """Positions on a logarithmic axis, in percent, for the figure of one claim."""
    marks = {
        "claimed": finding.claim.claimed,
        "lower": finding.printed.lower,
        "upper": finding.printed.upper,
        "corrected": finding.corrected.upper if finding.corrected else None,
        "audited": audit["epsilon_lower"] if audit else None,
    }
    finite = [v for v in marks.values() if v is not None and 0 < v < math.inf]
    if not finite:
        return None
    low, high = math.log10(min(finite) / 1.5), math.log10(max(finite) * 1.5)

    def place(value: float | None) -> float | None:
        if value is None:
            return None
        if value in (0, math.inf):
            return 0.0 if value == 0 else 100.0
        return 100 * (math.log10(value) - low) / (high - low)

    ticks = [
        (f"{step * 10.0**power:g}", place(step * 10.0**power))
        for power in range(math.floor(low), math.ceil(high) + 1)
        for step in ((1, 2, 5) if high - low < 2 else (1,))
        if low <= math.log10(step * 10.0**power) <= high
    ]
    return {"ticks": ticks, **{name: place(value) for name, value in marks.items()}}


def by_rates(audit: dict[str, Any], delta: float) -> str:
    """What the limits of the two rates alone show: ln((TPR - delta) / FPR)."""
    value = math.log((audit["tpr"][1] - delta) / audit["fpr"][2])
    return round_down(max(value, 0.0), 3)


def most(audit: dict[str, Any], delta: float) -> str:
    """What as many runs could show at most."""
    runs = audit["member_runs"], audit["non_member_runs"]
    return round_down(most_shown(RankWalk(), *runs, delta, audit["confidence"]), 3)


def rows(audits: dict[str, Any]) -> list[dict[str, Any]]:
    """The claims as the page shows them."""
    out = []
    for claim in all_claims():
        finding, audit = judged(claim), audits.get(claim.key)
        verdict = finding.verdict
        refuted = audit is not None and audit["epsilon_lower"] > (claim.claimed or 0)
        if refuted and verdict != "no theorem":
            verdict = "refuted"
        printed, lower = finding.printed, finding.printed.lower
        out.append(
            {
                "claim": claim,
                "paper": PAPERS[claim.paper],
                "verdict": verdict,
                "claimed": "none" if claim.claimed is None else stated(claim.claimed),
                "printed": round_up(printed.upper, 3),
                "lower": round_down(lower, 3),
                "corrected": finding.corrected and round_up(finding.corrected.upper, 5),
                "audit": audit,
                "audit_corrected": audits.get(claim.key + "/corrected"),
                "audited": audit and round_down(audit["epsilon_lower"], 3),
                "axis": axis(finding, audit),
                "by_rates": audit and by_rates(audit, claim.delta),
                "most": audit and most(audit, claim.delta),
                "how": printed.how,
                "summary": finding.summary(),
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


def main() -> None:
    """Write audits.json (if asked), results.json, index.html and README.md."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--audits", type=pathlib.Path)
    given = parser.parse_args()
    kept = HERE / "audits.json"
    if given.audits is not None:
        kept.write_text(json.dumps(read_attacks(given.audits), indent=1) + "\n")
    found = rows(json.loads(kept.read_text()))
    environment = jinja2.Environment(
        autoescape=lambda name: name is not None and name.startswith("index"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=jinja2.FileSystemLoader(HERE),
    )
    results = []
    for row in found:
        audit, corrected = row["audit"], row["audit_corrected"]
        results.append(
            {
                **row["summary"],
                "audited_as_printed": audit and audit["epsilon_lower"],
                "audited_as_corrected": corrected and corrected["epsilon_lower"],
                "verdict": row["verdict"],
            }
        )
    text = json.dumps({"claims": results}, indent=1).replace("Infinity", '"inf"')
    (HERE / "results.json").write_text(text + "\n")
    for name in ("index.html", "README.md"):
        page = environment.get_template(f"{name}.jinja").render(
            rows=found,
            meaning=MEANING,
            papers=PAPERS,
            sections=sections(found),
            looks=sum(len(row["claim"].attack.looks) for row in found if row["audit"]),
            corrected_attacks=[row for row in found if row["audit_corrected"]],
            without_corrected=[
                row["claim"].key
                for row in found
                if row["audit"] and not row["audit_corrected"]
            ],
            counts={
                verdict: sum(row["verdict"] == verdict for row in found)
                for verdict in MEANING
            },
        )
        (HERE / name).write_text(page)


if __name__ == "__main__":
    main()
