"""Differences of what a folder says from what its evidence gives."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Iterator
from typing import Any

from privaudit.files.json import Summary

_SAME = 1e-6  # relative: figures of one version, computed on two machines
_OTHER = 2e-3  # of two versions, whose accounts stop at .1 % of the true epsilon
# What another version may say or compute otherwise, and what time decides.
_OF_A_VERSION = {
    *("source", "method", "evidence", "gap", "misfit", "beside", "beside_gap"),
    *("proved", "rates", "overlap"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A figure of ``file`` that is not what the evidence gives."""

    file: pathlib.Path
    what: str
    recorded: str
    expected: str
    by: str  # where the other value is from
    summary = Summary("file what recorded expected expected_by=by")

    def __str__(self) -> str:
        return f"{self.file}: {self.what} is {self.recorded}, {self.by} {self.expected}"


def first_unequal(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, str, str]:
    """Return the first key, dotted, whose values are unequal, and both; "" if none."""
    for key in {**other, **one}:
        of_one, of_other = one.get(key), other.get(key)
        if isinstance(of_one, dict) and isinstance(of_other, dict):
            inner, *texts = first_unequal(of_one, of_other)
            if inner:
                return f"{key}.{inner}", texts[0], texts[1]
        elif of_one != of_other:
            return key, str(of_one), str(of_other)
    return "", "", ""


def cannot_be(
    run: Any, error: Exception, by: str = "its ledger and scores"
) -> Difference:
    file, what = run.path / "config.json", "what is to be computed"
    return Difference(file, what, "set", f"say that it cannot be: {error}", by)


def differ(
    recorded: Any, again: Any, loose: bool, where: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Differences of two trees, with both values."""
    if isinstance(recorded, dict) and isinstance(again, dict):
        for key in {**recorded, **again}:
            # 0.1.0 says no overlap; one that is said must be the ledger's.
            unsaid = key != "overlap" or recorded.get(key) is None
            if loose and key in _OF_A_VERSION and unsaid:
                continue
            inner = f"{where}.{key}" if where else key
            yield from differ(recorded.get(key), again.get(key), loose, inner)
    elif isinstance(recorded, list | tuple) and isinstance(again, list | tuple):
        if len(recorded) != len(again):
            yield f"the length of {where}", str(len(recorded)), str(len(again))
        for place, (one, other) in enumerate(zip(recorded, again, strict=False)):
            yield from differ(one, other, loose, f"{where}[{place}]")
    elif isinstance(recorded, float | int) and isinstance(again, float | int):
        if not agree(float(recorded), float(again), where, loose):
            yield where, _text(recorded), _text(again)
    elif loose and (recorded, again) == ("unproven", "disproved"):
        return  # 0.1.0 did not look from below
    elif recorded != again:
        yield where, _text(recorded), _text(again)


def agree(recorded: float, again: float, where: str, loose: bool) -> bool:
    if recorded == again:
        return True
    if loose and where.endswith("epsilon"):
        # A bound by another method is one too, if it claims no more.
        if "lower" in where:
            return recorded <= again * (1 + _OTHER)
        return recorded >= again * (1 - _OTHER)
    return math.isclose(recorded, again, rel_tol=_SAME, abs_tol=1e-12)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
