"""Running a claim's attack on the algorithm itself. Imports torch when called."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from privaudit.claims.claim import PaperClaim, PaperFinding, RelayAttack
from privaudit.results import LowerBound
from privaudit.settings import AttackSettings

if TYPE_CHECKING:
    from trainers.runs.training import Training


def attacked(
    finding: PaperFinding, folder: pathlib.Path, workers: int | None
) -> PaperFinding:
    """The finding with what its attack shows of both forms; runs in ``folder``."""
    return dataclasses.replace(
        finding,
        audited=_attack(finding.claim, folder, workers, corrected=False),
        audited_corrected=_attack(finding.claim, folder, workers, corrected=True),
    )


def _attack(
    claim: PaperClaim, folder: pathlib.Path, workers: int | None, *, corrected: bool
) -> LowerBound:
    attack = claim.attack
    assert attack is not None
    noise = attack.corrected_noise if corrected else attack.noise_multiplier
    settings = dict(setting.split("=", 1) for setting in attack.settings)
    if isinstance(attack, RelayAttack):
        return _relayed(claim, attack, settings, noise)
    name = f"{claim.paper}-{claim.name}" + ("-corrected" if corrected else "")
    return audit_of(
        claim,
        training_of(attack.algorithm, settings, claim.key),
        noise,
        AttackSettings(
            adversary="noisy-gradients",
            canary="gradient",
            estimator="rank-walk",
            confidence=attack.confidence,
            runs=attack.runs,
            block=attack.block,
            seed=attack.seed,
        ),
        folder / name,
        workers,
    )


def _relayed(
    claim: PaperClaim, attack: RelayAttack, settings: dict[str, Any], noise: float
) -> LowerBound:
    """Seconds of computing: nothing is kept."""
    from privaudit.accounting.views import Observer
    from privaudit.auditing.attacks.relay import Relay
    from privaudit.auditing.bounds import ESTIMATORS

    relay = Relay.of(
        {"algorithm": attack.algorithm, **settings},
        Observer.of(attack.observer),
        noise_multiplier=noise,
        delta=claim.delta,
    )
    return ESTIMATORS["rank-walk"](
        relay.scores(attack.runs, attack.seed),
        claim.delta,
        attack.confidence,
        relation=claim.relation,
        threat_model=claim.threat_model,
        seed=attack.seed,
    ).lower


def training_of(algorithm: str, settings: Mapping[str, Any], where: str) -> Training:
    """The training of an algorithm by name, as `privaudit audit` makes it."""
    from privaudit.auditing.experiments.presets import AUDITED, training_upon

    given = dict(settings)
    if isinstance(given.get("digits"), str):
        given["digits"] = given["digits"].split(",")
    return training_upon(algorithm, given, AUDITED, where)


def audit_of(
    claim: PaperClaim,
    training: Training,
    noise_multiplier: float,
    attack: AttackSettings,
    folder: pathlib.Path,
    workers: int | None,
) -> LowerBound:
    """Lower bound by an audit of a running algorithm; runs are kept in ``folder``."""
    from privaudit.auditing.experiments.experiment import Audit, run
    from privaudit.files.folder import RunFolder

    plan = Audit(
        **AttackSettings.part_of(attack),
        claim=claim.promise(),
        training=training,
        noise_multiplier=noise_multiplier,
    )
    with RunFolder.opened(folder) as opened:
        return run(plan, opened, workers=workers).lower()
