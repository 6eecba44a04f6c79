"""The text of pages; templates only place it."""

from __future__ import annotations

import math
from typing import Any

from msgspec import UNSET

from privaudit.auditing.bounds.contract import Rate
from privaudit.report.load import Finished, FinishedAudit, FinishedTraining, Paged
from privaudit.report.numbers import down, seer, up
from privaudit.report.program import FinishedProgram
from privaudit.report.standing import TEXTS, WORDS
from privaudit.results import Claim, Unit, UpperBound, own_by
from privaudit.task_settings import OWN, TaskSettings, is_own
from trainers.runs.outcome import TrainingResult

CANARIES: dict[str, str] = TEXTS["canaries"]
MANY: dict[str, str] = TEXTS["many_canaries"]


def title(settings: TaskSettings) -> str:
    """Title: what was run on which data, in a few words."""
    return f"{settings.algorithm.upper()} on {settings.train:,} " + (
        "images of handwritten digits"
        if settings.data == "digits"
        else "own records"
        if settings.data == OWN
        else f"records of {settings.data}"
    )


def story(run: Finished) -> list[str]:
    """Describe what was done, in sentences."""
    settings = run.config.settings
    nodes = len(run.ledger.nodes)
    party = None if isinstance(run, FinishedAudit) else run.config.party
    every = nodes if party is None else len(party.sizes)
    times = (
        f"{len(run.scores):,} times from the same start"
        if isinstance(run, FinishedAudit) and not run.config.one_run
        else "once"
    )
    lines = [
        f"{settings.algorithm.upper()} was trained {times}, for {settings.rounds:,} "
        f"rounds, on {settings.train:,} {_records(settings)}, "
        f"{_dealt(settings, every)}."
    ]
    if isinstance(run, FinishedAudit):
        bug = run.config.planted_bug
        if bug is not None:
            lines.append(f"A bug was planted in it: {TEXTS['bugs'].get(bug, bug)}.")
        result = run.result
        lines.append(
            _worlds(run)
            + f" An attacker saw {result.lower().sees}, and had "
            + (
                "to tell which canaries were there."
                if run.config.one_run
                else "to tell which run was which."
            )
        )
        if result.accuracy is not None:
            right = f"{100 * result.accuracy:.1f} %"
            lines.append(f"The models get {right} of the test images right.")
    else:
        if party is not None:
            lines.append(
                f"All figures here are of party {party.party} of {party.parties} and "
                f"its nodes {party.nodes.start:,} to {party.nodes.stop - 1:,} of "
                f"{len(party.sizes):,}; privaudit join makes one statement of all."
            )
        lines.append(_quality(run.result, nodes))
        lines += [f"{also[0].upper()}{also[1:]}." for also in run.result.also()]
        lines += [f"Remark of the run: {each}." for each in run.result.remarks]
        if run.result.independence:
            said = own_by(run.result.independence, run.upper.unit)
            lines.append(f"{said.capitalize()}.")
        if run.result.gradients:
            lines.append(f"Gradients of a record, by layer: {run.result.gradients}.")
    return lines


def _worlds(run: FinishedAudit) -> str:
    result = run.result
    name = run.config.canary
    if run.config.one_run:
        return (
            f"{run.config.runs:,} canaries ({MANY.get(name, name)}) tossed a fair coin "
            f"each: {result.member_runs:,} were records more among the data of "
            f"{_nodes(run.config.canary_nodes)}, the other "
            f"{result.non_member_runs:,} were not. They may depend on each other in "
            "any way that the guarantee leaves."
        )
    canary = f"the canary ({CANARIES.get(name, name)})"
    if result.lower().relation == "replace-one":
        return (
            f"In {result.member_runs:,} of the runs {canary} stood in the place of the "
            f"first record of node 0; in the other {result.non_member_runs:,} that "
            "record was there."
        )
    more = f"one {result.upper().unit} more"
    said = (
        f"In {result.member_runs:,} of the runs {more}, {canary}, was among "
        f"the data of node 0; in the other {result.non_member_runs:,} it was not."
    )
    whole = run.scores.in_family
    if whole is None:
        return said
    return (
        f"{said} So were {len(whole) // len(run.scores) - 1} others at right angles to "
        f"it, each by a coin of its own ({len(whole):,} scores), of which bounds "
        "within a family alone know: "
        "the noise makes them independent there. Curves and rates are of one."
    )


def _nodes(which: tuple[int, ...]) -> str:
    """Nodes by number, in words."""
    numbers = ", ".join(map(str, which))
    return f"node {numbers}" if len(which) == 1 else f"nodes {numbers} in turn"


def _records(settings: TaskSettings) -> str:
    if settings.data == OWN:
        return "records of the user's own"
    if settings.digits is UNSET:
        return f"records of {settings.data}"
    classes = ", ".join(map(str, settings.digits))
    if settings.data == "digits":
        return f"real 8×8 images of the digits {classes} (scikit-learn's set)"
    if settings.data == "glyphs":
        return f"drawn 28×28 images of the digits {classes} (glyphs)"
    some = "" if len(settings.digits) == 10 else f", of its classes {classes} alone"
    return f"records of {settings.data}{some}"


def _dealt(settings: TaskSettings, nodes: int) -> str:
    if nodes == 1:
        return "all at one place"
    graph = f"{settings.graph} graph, {settings.weights} weights"
    if settings.partition == "given":
        return f"held by {nodes:,} nodes ({graph})"
    kind, _, value = settings.partition.partition(":")
    if kind == "dirichlet":
        how = f"each class by shares drawn from Dirichlet({value})"
    elif kind == "file":
        how = "as a file says"
    elif kind == "even":
        how = "shuffled, evenly"
    elif settings.split == 1:
        how = "each class to one node"
    elif settings.split == 0:
        how = "evenly"
    else:
        how = f"{100 * settings.split:g} % of them class by class, the rest evenly"
    return f"dealt to {nodes:,} nodes, {how} ({graph})"


def verdict(run: Finished) -> str:
    """The verdict, in a sentence."""
    found = run.result.verdict
    if found is None:
        return "Nothing was claimed of this run, so that there is no verdict."
    if found.lower is None and found.status != "disproved":
        if is_own(run.config.settings.data):
            return f"{found.reason} run.audit() of what privaudit.train gave tries."
        return f"{found.reason} privaudit audit {run.path} tries attacks."
    return found.reason


def assumptions(run: Paged | FinishedProgram) -> list[tuple[str, str]]:
    """Name and meaning of all that the figures stand on."""
    shared = isinstance(run, Finished) and len(run.ledger.nodes) > 1
    lines = of_figures(run.config.claim, run.upper, shared=shared)
    lower = None
    if isinstance(run, FinishedAudit | FinishedProgram):
        lower = run.result.lower()
        lines.append(("the attacker sees", lower.sees))
    elif isinstance(run, FinishedTraining) and (best := run.result.strongest()):
        lower = best.finding.lower
    if lower is not None:
        lines.append(
            (
                "audited",
                f"holds with {100 * lower.confidence:g} % confidence over the audit's "
                f"coins, for {lower.valid_for}; estimator: {lower.method} "
                f"({lower.source}), on {lower.member_runs:,} + "
                f"{lower.non_member_runs:,} {lower.counted}",
            )
        )
    return lines


def of_figures(
    claim: Claim | None,
    upper: UpperBound | None,
    *,
    shared: bool,
    of: str = "of the run's ledger; the worst node",
) -> list[tuple[str, str]]:
    """Name and meaning of what claim and account stand on; of ``shared`` records."""
    about = upper or claim  # a program without an account has a claim
    assert about is not None
    unit = about.unit
    lines = [
        (
            "neighbouring data sets",
            f"{about.relation}: {TEXTS['relations'][about.relation].format(unit=unit)}",
        ),
        ("unit of privacy", TEXTS["units"][unit]),
    ]
    if upper is not None:
        lines.append(("sampling", _of_unit(TEXTS["sampling"][upper.sampling], unit)))
    if shared and unit != "node":
        lines.append(("shares", _of_unit(TEXTS["shares"], unit)))
    if upper is not None and upper.overlap is not UNSET:
        where = TEXTS["at_one"] if upper.overlap == 1 else TEXTS["at_several"]
        lines.append(("overlap", _of_unit(where.format(overlap=upper.overlap), unit)))
    if upper is not None and upper.observer is not UNSET:
        lines.append(("it holds for", f"{seer(upper)}, who follows the protocol"))
    if claim is not None:
        said = f"{claim.source} ({claim.method})"
        lines.append(("claimed", f"the promise in question, from {said}"))
    if upper is not None:
        lines += _account(upper, of)
    return lines


def _account(upper: UpperBound, of: str) -> list[tuple[str, str]]:
    """Basis of the upper bound, as rows of a table."""
    stands = (
        "no bound: some release had no noise, or far too little"
        if upper.epsilon == math.inf
        else WORDS[upper.standing].meaning
    )
    account = f"{upper.method} ({upper.source})"
    if upper.method == "certified" != upper.standing:  # its name would mislead
        account = upper.source
    what = f"{stands}; account: {account}, {of}"
    return [(upper.standing, what), *(("assumed", one) for one in upper.assumes)]


def _of_unit(text: str, unit: Unit) -> str:
    """``text``, which speaks of records, for what is sampled."""
    return text.replace("record", "user") if unit == "user" else text


def attacks(run: FinishedTraining) -> dict[str, Any]:
    """Rows of the template's table of attacks on a training."""
    audits = run.result.audits or ()
    bounds = [(one, one.finding.lower) for one in audits]
    known = [(one, lower) for one, lower in bounds if lower is not None]
    strongest = run.result.strongest()
    assert strongest is not None
    together = 100 * (1 - sum(1 - lower.confidence for _, lower in known))
    claimed = any(one.finding.claim == run.config.claim for one in audits)
    columns = ("the attacker sees", "planted", "scored", "ε at least", "so")
    return {
        "attack_columns": columns,
        "attacks": [
            (
                lower.sees,
                (MANY if one.in_the_run else CANARIES).get(one.canary, one.canary),
                f"{one.runs:,} {lower.counted}",
                f"{down(lower.epsilon)} ({100 * lower.confidence:g} %)",
                one.finding.status,
            )
            for one, lower in known
        ],
        "attack_limits": [
            (lower.sees, one.finding.limits)
            for one, lower in known
            if one.finding.limits
        ],
        "attacks_say": (
            (
                "Canaries were planted in the run itself, at "
                f"{_nodes(run.config.canary_nodes)}. "
                if strongest.in_the_run
                else "The same algorithm, model and settings were trained again and "
                "again, with and without a planted record, on "
                + ("random records" if strongest.random_records else "the same data")
                + ". "
            )
            + f"All bounds hold together with {together:.4g} % confidence; the "
            f"drawings are of the largest. {' '.join(run.result.said_of_audits())}"
        ),
        **(
            {}
            if claimed or strongest.finding.status != "refuted"
            else {
                "status": "refuted",
                "heading": "Refuted",
                "verdict": strongest.finding.reason,
            }
        ),
    }


def operating_point(run: FinishedAudit | FinishedProgram) -> str:
    """Describe what the estimator tested, in sentences."""
    evidence = run.result.evidence
    note = f" Note: {evidence.note}." if evidence.note else ""
    tpr, fpr = evidence.tpr, evidence.fpr
    if tpr is None or fpr is None:
        return f"The estimator tested no single operating point.{note}"
    if evidence.tail == "both" or evidence.threshold is None:
        return (
            f"The attacker guessed in {tpr.runs:,} member runs, right in {_rate(tpr)}, "
            f"and in {fpr.runs:,} non-member runs, wrong in {_rate(fpr)}.{note}"
        )
    if (tpr.low, fpr.high) == (0.0, 1.0):  # limits that the method does not use
        lower = run.result.lower()
        several = evidence.testing_runs > lower.member_runs + lower.non_member_runs
        return (
            f"At a score of {_signed(evidence.threshold)}, on {evidence.testing_runs:,}"
            f" {'canaries' if several else 'runs'}, it caught {_rate(tpr)} of the "
            f"members and accused {_rate(fpr)} of the non-members.{note}"
        )
    side = "at or above" if evidence.tail == "upper" else "at or below"
    return (
        f"Threshold: a score {side} {_signed(evidence.threshold)} says “member”. "
        f"{evidence.choosing_runs:,} runs chose it; on the {evidence.testing_runs:,} "
        f"others it caught {_rate(tpr)} of the members (at least "
        f"{down(100 * tpr.low, 3)} %) and accused {_rate(fpr)} of the non-members (at "
        f"most {up(100 * fpr.high, 3)} %); both limits hold together with "
        f"{100 * run.result.lower().confidence:g} % confidence.{note}"
    )


def _signed(value: float) -> str:
    return f"{value:.5g}".replace("-", "\N{MINUS SIGN}").replace("inf", "∞")


def _rate(rate: Rate) -> str:
    return f"{rate.hits:,} of {rate.runs:,}"


def _quality(result: TrainingResult, nodes: int) -> str:
    """Describe the models' quality in a sentence."""
    if result.accuracy is not None and result.worst_accuracy is not None:
        worst = f" ({100 * result.worst_accuracy:.1f} % at the worst node)"
        asked = result.test_data
        asked = "the test data" if asked == "test data" else asked
        said = f"get {100 * result.accuracy:.1f} % of {asked} right"
    elif result.loss is not None and result.worst_loss is not None:
        worst = f" ({result.worst_loss:.4g} at the worst node)"
        said = f"have a mean loss of {result.loss:.4g} on {result.test_data}"
        said += " (accuracy: of cross entropy and classes alone)"
    else:
        return "There were no test data, so that nothing was measured."
    return f"The models {said}{worst if nodes > 1 else ''}."
