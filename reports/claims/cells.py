"""Promises of five papers: accounts of them, and attacks on what they print.

Attacks keep their runs under runs/, which is not kept in the repository: a stopped one
goes on where it was.
"""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

from privaudit.auditing.bounds import ClopperPearson, RankWalk
from privaudit.auditing.bounds.binomial import limit_down, limit_up
from privaudit.auditing.scores import Scores
from privaudit.claims import all_claims
from privaudit.claims.attacks import audit_of, training_of
from privaudit.claims.claim import PaperClaim, judged
from privaudit.settings import AttackSettings
from privaudit.task_settings import changes_of
from reports.study import Cell, digest

HERE = pathlib.Path(__file__).parent
WORKERS = 2  # of one attack; they change no figure


def claim_named(key: str) -> PaperClaim:
    """Claim by its key, of all five papers."""
    return {claim.key: claim for claim in all_claims()}[key]


def certified(claim: str, **_: Any) -> dict[str, Any]:
    """Bounds proved of the printed and of the corrected form."""
    found = judged(claim_named(claim)).summary()
    return {name: found[name] for name in found if name.startswith("certified_")}


def attacked(
    claim: str, attack: dict[str, Any], command: str, kept: bool
) -> dict[str, Any]:
    """Bound by an attack on the running algorithm; ``command`` repeats it.

    Rates are those of a threshold that a fifth of the runs chose, on the others.
    """
    tested = claim_named(claim)
    how = {name: attack[name] for name in ("confidence", "runs", "block", "seed")}
    with tempfile.TemporaryDirectory() as other:
        folder = pathlib.Path(other)
        if kept:
            name = f"{claim.replace('/', '-')}-{digest(attack)}"
            folder = HERE / "runs" / name
            folder.mkdir(parents=True, exist_ok=True)
        audit_of(
            tested,
            training_of(attack["algorithm"], changes_of(attack["settings"]), claim),
            attack["noise_multiplier"],
            AttackSettings(
                adversary="noisy-gradients",
                canary="gradient",
                estimator="rank-walk",
                **how,
            ),
            folder / "run",
            WORKERS,
        )
        scores = Scores.load(folder / "run" / "scores.npz")
    lower = RankWalk()(
        scores,
        tested.delta,
        how["confidence"],
        relation=tested.relation,
        threat_model=attack["seen"],
        seed=how["seed"],
    )
    simple = ClopperPearson()(
        scores, tested.delta, how["confidence"], threat_model="", seed=how["seed"]
    ).evidence
    level = (1 - how["confidence"]) / 2
    rates = {}
    for rate_name, rate in (("tpr", simple.tpr), ("fpr", simple.fpr)):
        assert rate is not None
        limits = (
            limit(rate.hits, rate.runs, level) for limit in (limit_down, limit_up)
        )
        rates[rate_name] = [rate.rate, *map(float, limits)]
    return {
        "epsilon_lower": lower.epsilon,
        "confidence": how["confidence"],
        "member_runs": scores.member_runs,
        "non_member_runs": scores.non_member_runs,
        "note": lower.evidence.note,
        **rates,
        "command": command,
    }


def cells() -> Iterator[Cell]:
    """Accounts of all claims, and the attacks on those that have one."""
    for claim in all_claims():
        told = ("claimed", "delta", "relation", "unit", "quantity")
        settings = {"claim": claim.key} | {name: getattr(claim, name) for name in told}
        yield Cell(f"claim {claim.key}", certified, settings)
    for claim in all_claims():
        attack, claimed = claim.attack, claim.claimed
        if attack is None or claimed is None:
            continue
        told = ("algorithm", "settings", "confidence", "runs", "block", "seed", "seen")
        for corrected in (False, True):
            noise = attack.corrected_noise if corrected else attack.noise_multiplier
            how = {name: getattr(attack, name) for name in told}
            settings = {
                "claim": claim.key,
                "attack": how | {"noise_multiplier": noise},
                "command": attack.command(claimed, claim.delta, corrected=corrected),
                "kept": True,
            }
            name = f"attack {claim.key}" + ("/corrected" if corrected else "")
            yield Cell(name, attacked, settings)
