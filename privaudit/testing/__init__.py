"""Assertions about privacy for your own tests, with or without hypothesis.

    assert_private      fails if runs on a pair of data sets refute (epsilon, delta)-DP
    assert_refuted      fails unless runs refute it: for a planted bug
    assert_probes       fails if sensitivity, noise or low bits of a release are wrong
    assert_accounts     fails unless a ledger is certified to meet a budget
    neighbours          a hypothesis strategy for pairs of neighbouring data sets
    ledgers             a hypothesis strategy for ledgers
    judge               the verdict on one pair; repeats what a failure reports

pytest loads the plugin, `privaudit.testing.plugin`, by itself.
Everything here is imported when it is first used.
"""

import importlib

_PLACES = {
    "assert_accounts": "privaudit.testing.assertions",
    "assert_private": "privaudit.testing.assertions",
    "assert_probes": "privaudit.testing.assertions",
    "assert_refuted": "privaudit.testing.assertions",
    "judge": "privaudit.testing.judging",
    "ledgers": "privaudit.testing.neighbouring",
    "neighbours": "privaudit.testing.neighbouring",
    "Verdict": "privaudit.testing.judging",
}
__all__ = [*_PLACES]


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(
            f"privaudit.testing has no {name}; it has {', '.join(__all__)}"
        )
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
