"""The certificate of a run's folder: held against its ledger, and proved again."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import math
from pathlib import Path
from typing import Any, Literal

from privaudit.accounting.certificate import Certificate
from privaudit.files import json as _json
from privaudit.files.folder import CERTIFICATE, content_of
from privaudit.ledger import Ledger

Status = Literal["proved", "not proved", "not covered"]

_SAME = 1e-4  # relative: claims are rounded to six digits, on two machines


@dataclasses.dataclass(frozen=True, slots=True)
class Proved:
    """Outcome of the kernel's check of a certificate."""

    status: Status | None  # what the kernel says of it; None where it was not asked
    says: tuple[str, ...]  # its lines, or why it was not asked
    # a field that is not what the ledger gives, with both values; None if all are
    wrong: tuple[str, str, str] | None = None


def proved(folder: Path, ledger: Ledger | None) -> Proved | None:
    """Check the certificate in ``folder`` against the ``ledger``; None without one."""
    path = folder / CERTIFICATE
    if ledger is None or not path.is_file() or path.is_symlink():
        return None
    try:
        held: Any = _json.decode(content_of(path), dict)
        certificate = Certificate.of(ledger, held["relation"])
        again: Any = json.loads(_json.encode(certificate.witness(float(held["delta"]))))
    except (KeyError, OSError, OverflowError, TypeError, ValueError) as error:
        return Proved(None, (), ("it", "no certificate of this ledger", str(error)))
    for name in again.keys() | held.keys():
        one, other = (of.get(name) for of in (held, again))
        if name != "hints" and not _same(name, one, other):
            return Proved(None, (), (name, _short(one), _short(other)))
    if importlib.util.find_spec("flint") is None:
        return Proved(None, ("python-flint, of the extra kernel, is not installed",))
    return _asked(json.dumps({**held, "hints": again["hints"]}))


@functools.lru_cache(maxsize=64)  # a page, what is shown and a check ask for the same
def _asked(text: str) -> Proved:
    from privaudit import kernel  # needs flint

    lines: list[str] = []
    try:
        good = kernel.Certificate(text).check(lines.append)
    except Exception as error:  # as its main does
        return Proved("not covered", (f"{error!s:.200}",))
    return Proved("proved" if good else "not proved", tuple(lines))


def _same(name: str, one: Any, other: Any) -> bool:
    if name == "nodes" and isinstance(one, list):
        return _plain(one) == _plain(other)
    if name not in ("upper", "lower") or None in (one, other):
        return one == other
    try:
        return math.isclose(float(one), float(other), rel_tol=_SAME)
    except (TypeError, ValueError):
        return False


def _plain(nodes: list[Any]) -> list[Any]:
    """Sorted releases of nodes, as before `witness` put some between two lines.

    Which ones it puts together depends on how a machine rounds; the kernel looks at
    each such group.
    """
    found = []
    for node in nodes:
        lines, others = [], []
        try:
            for group in node["groups"]:
                if {"above", "below", "lines"} == {*group} or {*group} == {"lines"}:
                    lines += group["lines"]
                else:
                    others.append(json.dumps(group, sort_keys=True))
        except (KeyError, TypeError):
            return nodes
        some = sorted(json.dumps(line, sort_keys=True) for line in lines)
        found.append([some, others, sorted({*node} - {"groups"})])
    return found


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 80 else f"{text[:77]}..."
