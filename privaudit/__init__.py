"""Which epsilon does a private training run really give?

Accounts, without torch:

    epsilon             settings, a schedule or a ledger in, a certified bracket out
    noise_multiplier    the least noise that meets a budget
    Certificate         what a ledger is worth, from both sides
    repeat_and_select   what tuning costs: the best of a random number of tries
    Budget              a budget for releases chosen as one goes; BudgetExceeded
    views               what each node of a training learns of each other one
    ledger_from         a ledger from dp-accounting's events, Opacus or a file
    Ledger, Release     what was released; PoissonSampling, SamplingWithoutReplacement,
                        RandomAllocation, NoSampling
    mechanisms          what else can be released: Release.of(mechanisms.ZCDP(0.1))

Training with a user's own model and data:

    train               models of several nodes, with noise for a budget
    oracle              noisy gradients and their ledger, for a loop of one's own
    replace_batch_norm  a copy of a module whose records do not mix

Audits, from below:

    audit               a claim about one's own training, by a function that scores it
    audit_algorithm     an algorithm's claim under attack; how, say AuditSettings
    canaries            records to plant in one run of one's own; their scores back in
    audit_program       anybody's training, as a function or a command; ProgramSettings
    sweep               many audits from one file
    probe               checks of one's own release that need no statistics
    lower_bound         attack scores in, a lower bound with its confidence out
    lira, rmia          scores of membership from losses under reference models
    Scores              scores and worlds that know how they came about

Tests of anybody's mechanism, for pytest and hypothesis:

    privaudit.testing   assert_private and others; neighbouring data sets

From and to other tools, each imported when it is used:

    privaudit.integrations.opacus      LedgerCallback, write_run: folders of Opacus runs
    privaudit.integrations.lightning   PrivacyCallback: epsilon logged, and the folder

Evidence:

    verify              a run's figures made again from its folder, and compared
    join                one statement from the folders of all parties of a training
    demo                one training audited three times, once with a planted bug

Results, which say in which direction they bound:

    Bracket, UpperBound, LowerBound, Claim, Finding

Everything here is imported when it is first used.
"""

import importlib

from privaudit.version import __version__ as __version__

_PLACES = {
    "epsilon": "privaudit.api.accounts",
    "noise_multiplier": "privaudit.api.accounts",
    "ledger_from": "privaudit.api.accounts",
    "views": "privaudit.api.views",
    "train": "privaudit.api.own_training",
    "oracle": "privaudit.api.loops",
    "replace_batch_norm": "trainers.models.own",
    "lower_bound": "privaudit.api.attacks",
    "lira": "privaudit.auditing.membership",
    "rmia": "privaudit.auditing.membership",
    "audit": "privaudit.api.audits",
    "canaries": "privaudit.api.canaries",
    "audit_algorithm": "privaudit.api.audits",
    "probe": "privaudit.api.probes",
    "audit_program": "privaudit.api.audits",
    "sweep": "privaudit.api.audits",
    "AuditSettings": "privaudit.settings",
    "ProgramSettings": "privaudit.settings",
    "verify": "privaudit.api.evidence",
    "join": "privaudit.api.evidence",
    "demo": "privaudit.api.demo",
    "repeat_and_select": "privaudit.accounting.tuning",
    "Budget": "privaudit.accounting.filters",
    "BudgetExceeded": "privaudit.accounting.filters",
    "Certificate": "privaudit.accounting.certificate",
    "Ledger": "privaudit.ledger",
    "Release": "privaudit.release",
    "PoissonSampling": "privaudit.release",
    "SamplingWithoutReplacement": "privaudit.release",
    "RandomAllocation": "privaudit.release",
    "NoSampling": "privaudit.release",
    "mechanisms": "privaudit",
    "Scores": "privaudit.auditing.scores",
    "Bracket": "privaudit.results",
    "UpperBound": "privaudit.results",
    "LowerBound": "privaudit.results",
    "Claim": "privaudit.results",
    "Finding": "privaudit.results",
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
