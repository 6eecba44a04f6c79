"""Which epsilon does a private training run really give?

Accounts, without torch:

    epsilon             settings, a schedule or a ledger in, a certified bracket out
    noise_multiplier    the least noise that meets a budget
    Certificate         what a ledger is worth, from both sides
    Budget              a budget for releases chosen as one goes; BudgetExceeded
    ledger_from         a ledger from dp-accounting's events, Opacus or a file
    Ledger, Release     what was released; PoissonSampling, SamplingWithoutReplacement,
                        RandomAllocation, NoSampling

Audits of anybody's training:

    lower_bound         attack scores in, a lower bound with its confidence out
    Scores              scores and worlds that know how they came about

Results, which say in which direction they bound:

    Bracket, UpperBound, LowerBound, Claim, Finding

Training and whole audits are commands for now: ``privaudit --help``. Everything here is
imported when it is first used.
"""

import importlib

from privaudit.version import __version__ as __version__

_PLACES = {
    "epsilon": "privaudit.api.accounts",
    "noise_multiplier": "privaudit.api.accounts",
    "ledger_from": "privaudit.api.accounts",
    "lower_bound": "privaudit.api.attacks",
    "Budget": "privaudit.accounting.filters",
    "BudgetExceeded": "privaudit.accounting.filters",
    "Certificate": "privaudit.accounting.certificate",
    "Ledger": "privaudit.ledger",
    "Release": "privaudit.release",
    "PoissonSampling": "privaudit.release",
    "SamplingWithoutReplacement": "privaudit.release",
    "RandomAllocation": "privaudit.release",
    "NoSampling": "privaudit.release",
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
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
