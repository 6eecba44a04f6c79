"""Privacy accounting and auditing: which epsilon a private training run really gives.

Accounts, without torch:

    epsilon             proved bounds on epsilon, from settings, a schedule or a ledger
    noise_multiplier    the least noise that is certified to meet a budget
    Certificate         proved bounds on epsilon and delta of a ledger, node by node
    repeat_and_select   the ledger of tuning: the best of a random number of tries
    Budget              a budget for releases chosen adaptively; BudgetExceeded
    views               bounds on what each node of a training learns of each other node
    ledger_from         a ledger from dp-accounting's events, Opacus or a file
    Ledger, Release     what was released; PoissonSampling, SamplingWithoutReplacement,
                        RandomAllocation, NoSampling
    mechanisms          what else can be released: Release.of(mechanisms.ZCDP(0.1))

Training with your own model and data:

    plan                settings of a training for a budget; TrainingPlan
    train               train a model on the data of several nodes, within a budget;
                        TrainingSettings
    tune                train with several settings; the best, with the tries charged
    oracle              noisy gradients and their ledger, for your own training loop
    replace_batch_norm  a copy of a module with group instead of batch normalisation

Audits, which bound epsilon from below:

    audit               test a claim about your own training, by a function that scores
    audit_algorithm     test a claim about an algorithm by attack; AuditSettings
    audit_program       test your own program, a function or command; ProgramSettings
    canaries            records to plant in one run of your own, whose scores audit it
    sweep               many audits from one file
    probe               checks of your own release that need no statistics
    lower_bound         a lower bound on epsilon from attack scores, with a confidence
    lira, rmia          membership scores from losses under reference models
    Scores              attack scores, memberships, and how these were decided

Tests of your own mechanism, for pytest and hypothesis:

    privaudit.testing   assert_private and others; neighbouring data sets

From and to other tools, each imported when it is used:

    privaudit.integrations.opacus      LedgerCallback, write_run: folders of Opacus runs
    privaudit.integrations.lightning   PrivacyCallback: epsilon logged, and the folder

Evidence:

    verify              recompute a run's figures from its folder, and compare them
    join                one statement from the folders of all parties of a training
    demo                one training audited three times, once with a planted bug

Results, which say in which direction they bound:

    Bracket, UpperBound, LowerBound, Claim, Finding

Everything here is imported when it is first used.
"""

import importlib

from privaudit.files import shadowing as _shadowing
from privaudit.version import __version__ as __version__

_shadowing.install()

_HELD = """
privaudit.api.accounts: epsilon noise_multiplier ledger_from
privaudit.api.views: views
privaudit.api.planning: plan
privaudit.api.training_plan: TrainingPlan
privaudit.api.own_training: train
privaudit.api.tuning: tune
privaudit.api.loops: oracle
trainers.models.own: replace_batch_norm
privaudit.api.attacks: lower_bound
privaudit.auditing.membership: lira rmia
privaudit.api.audits: audit audit_algorithm audit_program sweep
privaudit.api.canaries: canaries
privaudit.api.probes: probe
privaudit.settings: AuditSettings ProgramSettings TrainingSettings
privaudit.api.evidence: verify
privaudit.report.joining: join
privaudit.api.demo: demo
privaudit.accounting.tuning: repeat_and_select
privaudit.accounting.filters: Budget BudgetExceeded
privaudit.accounting.certificate: Certificate
privaudit.ledger: Ledger
privaudit.release: Release PoissonSampling SamplingWithoutReplacement RandomAllocation
privaudit.release: NoSampling
privaudit: mechanisms
privaudit.auditing.scores: Scores
privaudit.results: Bracket UpperBound LowerBound Claim Finding
"""
_PLACES = {
    name: place
    for place, _, names in (line.partition(": ") for line in _HELD.strip().split("\n"))
    for name in names.split()
}
__all__ = [*_PLACES]


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"privaudit has no {name}; it has {', '.join(__all__)}")
    if name == "mechanisms":
        return importlib.import_module("privaudit.mechanisms")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
