"""Shapes of what each command prints with ``--json``, and their JSON schema.

``python -m privaudit.cli.shapes`` prints the schema that the documentation has. A key
may come anew under the same number; one that changes its meaning makes another number.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from privaudit.accounting.views.figures import Pair
from privaudit.auditing.experiments.looks import Stopped
from privaudit.auditing.scores import Design
from privaudit.cli.output import SCHEMA
from privaudit.files import json as _json
from privaudit.results import Independence, Relation, Sampling, Standing, Status, Unit

# JSON has no infinity: no finite bound is the text "inf".
Figure = float | Literal["inf"]


class Shape(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An object whose keys are all said here; one with a default may be left out."""


class Bound(Shape, kw_only=True):
    """An upper bound on epsilon, by one account, and what more is known of it."""

    upper: Figure
    delta: float
    relation: Relation
    unit: Unit
    sampling: Sampling
    method: str
    standing: Standing
    lower: Figure | UnsetType = UNSET
    lower_by: str | UnsetType = UNSET
    upper_by: str | UnsetType = UNSET
    directions: dict[str, Figure] | UnsetType = UNSET
    observer: str | UnsetType = UNSET
    assumes: list[str] | UnsetType = UNSET
    overlap: int | UnsetType = UNSET
    group: int | UnsetType = UNSET
    steps: int | UnsetType = UNSET
    distance_from_limit: Figure | UnsetType = UNSET


class Noise(Shape, kw_only=True):
    """Least noise: of one multiplier, of a growing budget, or as a schedule's scale."""

    noise_multiplier: float | UnsetType = UNSET
    scale: float | UnsetType = UNSET
    noise_multiplier_least: float | UnsetType = UNSET
    noise_multiplier_most: float | UnsetType = UNSET
    mu0: float | UnsetType = UNSET
    noise_multiplier_first: float | UnsetType = UNSET
    noise_multiplier_last: float | UnsetType = UNSET


class Account(Noise, kw_only=True):
    """A row of --compare: figures where the account applies, else the reason."""

    method: str
    applies: bool
    reason: str | UnsetType = UNSET
    epsilon: Bound | UnsetType = UNSET


class Compared(Shape, kw_only=True):
    """All accounts side by side."""

    accounts: list[Account]


class NoiseFound(Noise, kw_only=True):
    """Noise for a budget, and the epsilon that it then has."""

    epsilon: Bound


class EpsilonFound(Bound, kw_only=True):
    """Epsilon of given releases."""


class Converted(Shape, kw_only=True):
    """mu-GDP and (epsilon, delta)."""

    mu: Figure
    epsilon: Figure
    delta: float


class RunAudited(Shape, kw_only=True):
    """Finding of one attacker in shadow runs of a training."""

    folder: str
    epsilon_lower: Figure
    confidence: float
    threat_model: str
    claimed: Figure
    runs: int
    verdict: Status


class Trained(Shape, kw_only=True):
    """Figures of a training; null where nothing was claimed, measured or proved."""

    algorithm: str
    claimed: Figure | None
    certified: Figure
    certified_lower: Figure | None
    standing: Standing
    assumes: list[str]
    independence: Independence | None
    gradients: str | None
    overlap: int | None
    delta: float
    relation: Relation
    observer: str | None
    everything_seen: Figure
    noise_multiplier: float | list[float]
    accuracy: float | None
    worst_accuracy: float | None
    loss: Figure | None
    worst_loss: Figure | None
    test_records: int | None
    test_size: int | None
    seconds: float
    verdict: Status | None
    remarks: list[str]
    audits: list[RunAudited]
    protected: bool
    noise: str


class TrainDone(Trained, kw_only=True):
    """`train`; with --parties also which party of how many it is."""

    unit: Unit
    claim_source: str | None
    out: str
    party: int | UnsetType = UNSET
    of: int | UnsetType = UNSET


class Counts(Shape, kw_only=True):
    """Runs with the canary, and without."""

    member: int
    non_member: int


class Gap(Shape, kw_only=True):
    """Gap between the audited figure and the certified one, in parts."""

    account: Figure
    statistics: Figure
    attack: Figure
    most_shown: Figure


class Beside(Shape, kw_only=True):
    """Another bound from the same scores, which refutes no claim."""

    epsilon_lower: Figure
    method: str
    valid_for: str
    gap: Gap | None


class Interval(Shape, kw_only=True):
    """A rate with its limits."""

    value: float
    low: float
    high: float


class Rate(Shape, kw_only=True):
    """True positive rate at a false positive rate, with its limits."""

    fpr: float
    tpr: float
    low: float
    high: float


class Audit(Shape, kw_only=True):
    """Figures of an audit; ``certified`` is null where there is no account."""

    claimed: Figure
    certified: Figure | None
    certified_lower: Figure | None
    standing: Standing | None
    epsilon_lower: Figure
    confidence: float
    delta: float
    relation: Relation
    runs: Counts
    stopped: Stopped | None
    method: str
    valid_for: str
    gap: Gap | None
    beside: Beside | None
    auroc: Interval | UnsetType = UNSET
    tpr_at_fpr: list[Rate] | UnsetType = UNSET
    seconds: float
    account_contradicted: bool
    verdict: Status


class OwnAudit(Audit, kw_only=True):
    """Figures of an audit of an algorithm of privaudit's or of a class."""

    canaries: int | None
    threat_model: str
    observer: str | None
    noise_multiplier: float
    accuracy: float | None


class AuditDone(OwnAudit, kw_only=True):
    """`audit`."""

    out: str


class RunAuditDone(Shape, kw_only=True):
    """`audit` of a run's folder: each attacker's figures by the folder they are in."""

    certified: Figure
    epsilon_lower: Figure
    verdict: Status
    audits: dict[str, OwnAudit]
    private: str
    out: str


class ProgramDone(Audit, kw_only=True):
    """`audit-program`; ``most_shown`` is by ``method``, another one's in its gap."""

    program: str
    most_shown: Figure
    out: str


class TrainingRun(Trained, tag_field="kind", tag="training", kw_only=True):
    """A training's folder."""

    folder: str


class AuditRun(OwnAudit, tag_field="kind", tag="audit", kw_only=True):
    """An audit's folder."""

    folder: str
    algorithm: str
    planted_bug: str | None


class ProgramRun(Audit, tag_field="kind", tag="program", kw_only=True):
    """The folder of a user program's audit."""

    folder: str
    program: str
    most_shown: Figure


class RecordRun(Shape, tag_field="kind", tag="record", kw_only=True):
    """The folder of a training of another tool."""

    folder: str
    recorded: str
    how: str
    claimed: Figure | None
    certified: Figure
    certified_lower: Figure | None
    standing: Standing
    assumes: list[str]
    delta: float
    relation: Relation
    releases: int
    says: dict[str, Figure]
    seconds: float
    verdict: Status | None


class Finished(OwnAudit, tag_field="state", tag="finished", kw_only=True):
    """An audit of a sweep."""

    name: str
    kind: Literal["audit"]
    folder: str
    algorithm: str
    planted_bug: str | None


class Failed(Shape, tag_field="state", tag="failed", kw_only=True):
    """One that ended without a verdict."""

    name: str
    verdict: None
    why: str


class Unfinished(Shape, tag_field="state", tag="not finished", kw_only=True):
    """One that is still to be made."""

    name: str
    verdict: None
    why: str


class Sweep(Shape, kw_only=True):
    """All audits of a sweep; the verdict is the worst of theirs."""

    folder: str
    audits: list[Finished | Failed | Unfinished]
    finished: int
    failed: int
    verdict: Status | None


class SweepDone(Sweep, kw_only=True):
    """`sweep`."""

    kind: Literal["sweep"]


class SweepRun(Sweep, tag_field="kind", tag="sweep", kw_only=True):
    """A sweep's folder."""


class DemoAudit(OwnAudit, kw_only=True):
    """One of the demo's audits, in a sentence too."""

    name: str
    sentence: str
    folder: str
    kind: Literal["audit"]
    algorithm: str
    planted_bug: str | None


class DemoDone(Shape, kw_only=True):
    """`demo`."""

    folder: str
    page: str
    audits: list[DemoAudit]


class Together(Shape, kw_only=True):
    """Joint finding of several audits of one claim."""

    claimed: Figure
    delta: float
    relation: Relation
    folders: list[str]
    unfinished: list[str]
    runs: int
    refuted_alone: int
    audited: Figure
    confidence: float
    refuted: bool


class Differing(Shape, kw_only=True):
    """A figure that is not what its evidence gives."""

    file: str
    what: str
    recorded: str
    expected: str
    expected_by: str


class Evidence(Shape, kw_only=True):
    """Comparison with a folder's evidence."""

    folder: str
    agrees: bool
    manifest: bool
    signed: bool
    signer: str | None
    proved: bool
    checked: list[str]
    not_checked: list[str]
    differences: list[Differing]


class Verified(Evidence, kw_only=True):
    """`verify`."""


class Shown(Shape, kw_only=True):
    """`show`: runs that agree with their evidence, and the evidence of all."""

    runs: list[TrainingRun | AuditRun | ProgramRun | RecordRun | SweepRun]
    together: list[Together]
    evidence: list[Evidence]


class Differences(Shape, kw_only=True):
    """`report`, `join` and `demo` where figures disagree with their evidence."""

    differences: list[str]
    page: UnsetType | None = UNSET


class Party(Shape, kw_only=True):
    """Figures of one party's folder."""

    party: int
    folder: str
    nodes: list[int]
    certified: Figure
    signer: str | None
    checked: list[str]
    not_checked: list[str]


class Joined(Shape, kw_only=True):
    """`join`."""

    algorithm: str
    parties: int
    nodes: int
    overlap: int
    claimed: Figure | None
    certified: Figure
    standing: Standing
    delta: float
    relation: Relation
    unit: Unit
    verdict: Status | None
    worst_nodes: list[int]
    protected: bool
    noise: str
    left: list[str]
    observer: str | None
    each: list[Party]


class Page(Shape, kw_only=True):
    """`report`."""

    page: str


class SiteDone(Shape, kw_only=True):
    """`site`; whether all runs agree with their evidence."""

    page: str
    agrees: bool


class Claim(Shape, kw_only=True):
    """A claim, from above and from below."""

    paper: str
    claim: str
    where: str
    quantity: str
    delta: float
    relation: Relation
    unit: Unit
    claimed: Figure | None
    certified_as_printed: Figure | None
    certified_as_printed_lower: Figure | None
    audited_as_printed: Figure | None
    certified_as_corrected: Figure | None
    audited_as_corrected: Figure | None
    verdict: Status | Literal["no theorem"]


class Claims(Shape, kw_only=True):
    """`claims`."""

    claims: list[Claim]


class Cited(Shape, kw_only=True):
    """`cite`."""

    of: str
    bibtex: str


class Limits(Shape, kw_only=True):
    """A rate of the tested threshold, with its limits."""

    rate: float
    lower: float
    upper: float


class BoundFound(Shape, kw_only=True):
    """`bound`."""

    epsilon_lower: Figure
    delta: float
    confidence: float
    method: str
    valid_for: str
    relation: Relation
    design: Design
    order: Literal["shuffled", "time"] | None
    seed: int
    runs: Counts
    threshold: Figure | Literal["-inf"] | None
    tail: str
    tpr: Limits | None
    fpr: Limits | None
    note: str
    most_shown: Figure
    claimed: Figure | None
    verdict: Status | None
    auroc: Interval
    tpr_at_fpr: list[Rate]


class Checked(Shape, kw_only=True):
    """A check: its findings, or why it was skipped."""

    name: str
    what: str
    findings: list[str]
    skipped: str
    status: Literal["ok", "finding", "not looked at"]


class Probed(Shape, kw_only=True):
    """`probe`."""

    probed: str
    checks: list[Checked]
    findings: list[str]
    cannot_see: list[str]
    seed: int


class Exceeded(Shape, kw_only=True):
    """Frequency at which an estimator exceeded the truth, beside what chance allows."""

    estimator: str
    mechanism: str
    delta: float
    runs: int
    confidence: float
    true_epsilon: Figure
    median: Figure
    exceeded: int
    repeats: int
    allowed: int


class Selfchecked(Shape, kw_only=True):
    """`selfcheck`."""

    passed: bool
    rows: list[Exceeded]


class Assumed(Shape, kw_only=True):
    """Assumptions of each figure of a view."""

    nobody_reacts: list[str]
    certified: list[str]
    everything_seen: list[str]


class Views(Shape, kw_only=True):
    """`views`."""

    algorithm: str
    noise_multiplier: float
    delta: float
    relation: Relation
    unit: Unit
    views: list[Pair]
    assumes: Assumed


class Round(Shape, kw_only=True):
    """A round: the sensitivity that was, the one that was used, and the error."""

    round: int
    real: float
    used: float
    error: float


class Averaged(Shape, kw_only=True):
    """`consensus`."""

    nodes: int
    dims: int
    rounds: list[Round]
    below_real: int
    claimed_per_round: float
    clip_norm: float | None
    clipped: int
    which_node: Bound
    whole_vector: Bound


class Recipe(Shape, kw_only=True):
    """A recipe of the package."""

    name: str
    algorithm: str
    title: str
    source: str
    epsilon: float | None
    epsilons: list[float]


class Recipes(Shape, kw_only=True):
    """`recipes list`."""

    recipes: list[Recipe]


class Copied(Shape, kw_only=True):
    """`recipes copy`."""

    file: str


class Planned(Shape, kw_only=True):
    """`plan`."""

    settings: dict[str, str | int | float]
    sizes: list[int]
    parameters: int
    epsilon: Figure | list[float]
    delta: float
    relation: Relation
    noise: Literal["one", "per-node"] | None
    noise_multiplier: list[float]
    certified: list[float]
    signal_to_noise: Figure
    seconds: float | None
    remarks: list[str]
    out: str | None


class Federated(Shape, kw_only=True):
    """`federation`: where it is, and what to do next."""

    out: str
    next: list[str]


COMMANDS: dict[str, tuple[type[Shape], ...]] = {
    "noise": (NoiseFound, Compared),
    "epsilon": (EpsilonFound, Compared),
    "convert": (Converted,),
    "plan": (Planned,),
    "train": (TrainDone,),
    "tune": (TrainDone,),
    "federation": (Federated,),
    "views": (Views,),
    "consensus": (Averaged,),
    "recipes": (Recipes, Copied),
    "demo": (DemoDone, Differences),
    "audit": (AuditDone, RunAuditDone),
    "audit-program": (ProgramDone,),
    "sweep": (SweepDone,),
    "claims": (Claims,),
    "cite": (Cited,),
    "bound": (BoundFound,),
    "probe": (Probed,),
    "selfcheck": (Selfchecked,),
    "show": (Shown,),
    "verify": (Verified,),
    "join": (Joined, Differences),
    "report": (Page, Differences),
    "site": (SiteDone,),
}


def schema() -> dict[str, Any]:
    """The JSON schema of all commands: `properties` has one by the command's name."""
    every = list(dict.fromkeys(one for shapes in COMMANDS.values() for one in shapes))
    _, defined = msgspec.json.schema_components(every, ref_template="#/$defs/{name}")
    for shape in every:  # `emit` puts it into what is printed
        printed = defined[shape.__name__]
        printed["properties"] = {"schema": {"const": SCHEMA}, **printed["properties"]}
        printed["required"] = ["schema", *printed["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What the commands of privaudit print with --json",
        "properties": {
            name: {"anyOf": [{"$ref": f"#/$defs/{one.__name__}"} for one in shapes]}
            for name, shapes in COMMANDS.items()
        },
        "$defs": defined,
    }


if __name__ == "__main__":
    whole = schema()
    tables = {name: whole.pop(name) for name in ("properties", "$defs")}
    line = lambda value: _json.encode(value, indent=0).decode()  # noqa: E731
    for name, table in tables.items():
        rows = ",\n".join(f"{line(key)}: {line(row)}" for key, row in table.items())
        whole[name] = f"{{\n{rows}\n}}"
    parts = (
        f"{line(key)}: {value if key in tables else line(value)}"
        for key, value in whole.items()
    )
    print("{" + ",\n".join(parts) + "}")
