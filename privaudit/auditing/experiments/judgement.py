"""From the scores of finished runs to a verdict and what limits it; without torch."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from privaudit.accounting import Certificate
from privaudit.accounting.certificate import keep_witness
from privaudit.accounting.views import account_observed, observed_by
from privaudit.auditing.bounds import ESTIMATORS, Bound, Estimator
from privaudit.auditing.bounds.ledger_family import BOTH, FAMILY, both, family_bound
from privaudit.auditing.conclude import Concluded, Tested, conclude, stronger
from privaudit.auditing.experiments.looks import Asked, level
from privaudit.auditing.experiments.one_run_bounds import one_run_estimator
from privaudit.auditing.experiments.outcome import AuditResult, Gap
from privaudit.auditing.experiments.reach import reachable
from privaudit.auditing.rates import attack_rates
from privaudit.auditing.scores import Design, Scores
from privaudit.files.folder import RunFolder
from privaudit.files.manifest import write_result
from privaudit.ledger import Entry, Ledger
from privaudit.records import AuditRecord
from privaudit.results import Claim, Relation, UpperBound, worst_bound


def judge(
    audit: AuditRecord[Any],
    ledger: Ledger,
    runs: tuple[np.ndarray, np.ndarray, np.ndarray],
    seconds: float,
    threat_model: str,
) -> AuditResult:
    """The verdict on finished runs: their worlds, scores and accuracies.

    ``threat_model``: what is seen. Scores are (runs,) or (runs, canaries), of which a
    bound for any mechanism reads one. Of an audit that stops, the runs up to one of its
    looks. Beside its estimator's bound stands the family's, or the best for any
    mechanism.
    """
    member, score, right = runs
    relation = audit.claim.relation  # what the two worlds differ in: see `Audit`
    nodes = accounts_of(audit, ledger)
    worst, told, node = worst_bound(nodes), ledger, attacked(audit, nodes)
    own_noise = isinstance(audit.noise_multiplier, tuple)
    if own_noise and ledger.overlap in (UNSET, 1) and audit.claim.observer is UNSET:
        # Nodes have noise and promises of their own, for their records.
        worst = nodes[node]
        told = msgspec.structs.replace(ledger, nodes=(ledger.nodes[node],))
    seen = seen_in(audit, ledger)
    design: Design = "one-run" if audit.one_run else "coin-flip"
    scores = Scores.of_runs(member, score, design)
    entries = entries_of(audit, seen)

    def named(name: str) -> Estimator:
        return estimator_of(audit, name, entries, len(scores), audit.confidence)

    tested = tested_by(audit, scores, threat_model)
    concluded = conclude(
        tested,
        audit.estimator,
        named,
        ledger=told,
        upper=worst,
        ours=True,
        stronger=stronger(audit.adversary, audit.canary),
    )
    own = Certificate.of(seen, relation).node(node) if entries else None
    return AuditResult(
        nodes=nodes,
        noise_multiplier=audit.noise_multiplier,
        accuracy=None if np.isnan(right).any() else float(right.mean()),
        **outcome_of(audit, tested, concluded, own, nodes[node], seconds),
    )


def tested_by(audit: Asked, scores: Scores, sees: str) -> Tested:
    """The scores so far; their bounds say the confidence of all looks together."""
    return Tested(
        scores=scores,
        claim=audit.claim,
        sees=sees,
        confidence=audit.confidence,
        at=level(audit, len(scores))[0],
        seed=audit.seed,
    )


def outcome_of(
    audit: Asked,
    tested: Tested,
    found: Concluded,
    own: Certificate | None,
    upper: UpperBound | None,
    seconds: float,
) -> dict[str, Any]:
    """Fields of an `Outcome`: the verdict, and what limits it.

    ``own``, ``upper``: what the canary's node released, and its account.
    """
    scores, stopped = tested.scores, level(audit, len(tested.scores))[1]
    if stopped is not None:
        stopped.check(found.verdict.status)

    def gap(by: Estimator | None, of: Bound | None) -> Gap | None:
        if by is None or of is None or own is None or upper is None:
            return None
        alone = by is found.other or not by.limited_by_runs
        most = tested.most(by) if alone else found.most
        return gap_of(tested, by, of, own, upper, most)

    return dict(
        verdict=found.verdict,
        status=found.verdict.status,
        evidence=found.main.evidence,
        member_runs=scores.member_runs,
        non_member_runs=scores.non_member_runs,
        seconds=round(seconds, 3),
        gap=gap(found.estimator, found.main),
        beside=found.shown,
        beside_gap=gap(found.other, found.beside),
        stopped=stopped,
        # Of runs that are independent, which the canaries of one run are not.
        rates=None if audit.one_run else attack_rates(scores, tested.level),
    )


def end(
    folder: RunFolder, claim: Claim, ledger: Ledger | None, result: msgspec.Struct
) -> None:
    """End an audit: write what its ledger proves at the claim's delta, and `result`."""
    if ledger is not None:
        keep_witness(folder, ledger, claim.relation, claim.delta)
    write_result(folder, result)


def accounts_of(audit: AuditRecord[Any], ledger: Ledger) -> tuple[UpperBound, ...]:
    """The account of each node, by whom the claim is about."""
    claim, observer = audit.claim, audit.claim.observer or None
    return account_observed(
        audit.algorithm, ledger, observer, claim.delta, claim.relation, audit.account
    )


def attacked(audit: AuditRecord[Any], nodes: tuple[UpperBound, ...]) -> int:
    """The canary's node; of several, that of the largest of ``nodes``' accounts."""
    return max(audit.canary_nodes, key=lambda node: nodes[node].epsilon)


def entries_of(audit: AuditRecord[Any], ledger: Ledger) -> tuple[Entry, ...]:
    """Releases of the canaries' nodes; () where these differ."""
    found = {tuple(ledger.nodes[node]) for node in audit.canary_nodes}
    return found.pop() if len(found) == 1 else ()


def seen_in(audit: AuditRecord[Any], ledger: Ledger) -> Ledger:
    """The ledger of an audit's runs, as whom its claim is about sees it."""
    claim = audit.claim
    return observed_by(audit.algorithm, ledger, claim.observer or None, claim.relation)


def is_refuted(
    audit: AuditRecord[Any],
    ledger: Ledger,
    runs: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> bool:
    """Return whether the claim is refuted at the look after these runs."""
    member, score, _ = runs
    first = member.reshape(len(member), -1)[:, 0]
    if not 0 < np.count_nonzero(first) < len(member):
        return False
    relation = audit.claim.relation
    entries = entries_of(audit, seen_in(audit, ledger))
    tested = tested_by(audit, Scores.of_runs(member, score, "coin-flip"), "")
    found = tested.bound(estimator_named(audit.estimator, entries, relation))
    return found.epsilon > audit.claim.epsilon


def estimator_of(
    audit: Asked, name: str, entries: tuple[Entry, ...], scores: int, confidence: float
) -> Estimator:
    """The estimator of that name for so many scores of an audit, at ``confidence``."""
    claim = audit.claim
    if not audit.one_run:
        return estimator_named(name, entries, claim.relation)
    return one_run_estimator(
        name, entries, claim.relation, scores, delta=claim.delta, confidence=confidence
    )


def estimator_named(
    name: str, entries: tuple[Entry, ...], relation: Relation
) -> Estimator:
    """A name in ``ESTIMATORS``, or ``FAMILY`` or ``BOTH``: those of ``entries``."""
    if name == BOTH:
        return both(entries, relation)
    return family_bound(entries, relation) if name == FAMILY else ESTIMATORS[name]


def gap_of(
    tested: Tested,
    estimator: Estimator,
    found: Bound,
    certificate: Certificate,
    upper: UpperBound,
    most: float,
) -> Gap | None:
    """Gap between the certified epsilon of a canary's node and the bound, in parts.

    ``most``: the bound of an attack that never errs. None for releases not Gaussian.
    """
    delta, relation = tested.claim.delta, found.lower.relation
    (entries,) = certificate.ledger.nodes
    noisy = bool(entries) and all(entry.release.is_private for entry in entries)
    if not noisy or certificate.has_passes:  # or some may hold no record
        return None
    reach = reachable(
        estimator,
        entries,
        relation,
        tested.scores.by_run()[0],
        delta,
        tested.level,
        tested.seed,
        tested.scores.design,
    )
    if reach is None:
        return None
    accounted = certificate
    if certificate.ledger.observer is not UNSET:
        # Of an observer no lower side is known; there is one of what is accounted.
        alone = msgspec.structs.replace(certificate.ledger, observer=UNSET, failure=0.0)
        accounted = Certificate.of(alone, relation)
    attained = accounted.epsilon(delta).lower
    return Gap(
        certified=upper.epsilon,
        attained=attained,
        reachable=min(reach, attained),  # the rest of it would be luck
        found=found.epsilon,
        counted=found.lower.counted,
        most=most,
    )
