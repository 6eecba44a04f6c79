"""Words for the standing of an upper bound: certified, conditional, estimate.

A page must not say "certified" or "proved" of what holds under an assumption only.
"""

from __future__ import annotations

import dataclasses

from privaudit.results import Standing


@dataclasses.dataclass(frozen=True, slots=True)
class Words:
    """Words for a bound, and for the curve that it is a point of."""

    at_most: str  # beneath the figure
    meaning: str  # among what the figures stand on
    by: str  # before what the figure means
    is_so: str  # behind the figure, within a sentence
    # most, ruled_out: the curve, and the region beyond it, in a legend
    most: str
    ruled_out: str
    otherwise: str = ""  # what else is wrong if an attack gets there


WORDS: dict[Standing, Words] = {
    "certified": Words(
        at_most="at most, proved",
        meaning="proved, numerical error included",
        by="By what is certified",
        is_so="is certified",
        most="the most that is certified",
        ruled_out="ruled out by the certified account",
    ),
    "conditional": Words(
        at_most="at most, under an assumption",
        meaning="true if what it assumes is true, no guarantee otherwise",
        by="By the account, if what it assumes is true",
        is_so="is the account's, if what it assumes is true,",
        most="the most by the account, conditional",
        ruled_out="ruled out by the account, conditional",
        otherwise=", or what its account assumes is not true",
    ),
    "asymptotic": Words(
        at_most="about, no guarantee",
        meaning="true in a limit only, no guarantee",
        by="By the asymptotic account, if it holds",
        is_so="is the asymptotic account's, no guarantee,",
        most="about the most, asymptotic",
        ruled_out="ruled out in a limit, asymptotic",
    ),
    "claimed": Words(
        at_most="at most, not checked",
        meaning="a formula that was not checked here",
        by="By the account, which was not checked",
        is_so="is the account's, which was not checked,",
        most="the most by the account, not checked",
        ruled_out="ruled out by the account, not checked",
    ),
}
