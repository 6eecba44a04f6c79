"""Assertions about privacy for anybody's tests, with or without hypothesis.

    assert_private      runs a mechanism on a pair of data sets, and fails if refuted
    assert_refuted      the same for a planted bug: fails if it is not
    assert_probes       sensitivity, noise and low bits of what is released
    assert_accounts     a ledger's certificate meets a budget
    neighbours          a strategy of hypothesis for pairs of neighbouring data sets
    ledgers             a strategy for ledgers
    judge               one verdict on one pair, as a failure says how to repeat it

The plugin for pytest is `privaudit.testing.plugin`; pytest finds it by itself.
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
