"""Certified accounts by privacy loss distributions, all of whose steps may differ.

`CertifiedAccountant` is loaded when it is first asked for: it imports dp-accounting,
which takes a second.
"""

from typing import TYPE_CHECKING, Any

from privaudit.accounting.pld.composition import Composition as Composition
from privaudit.accounting.pld.steps import compose_entries as compose_entries
from privaudit.accounting.pld.steps import compose_steps as compose_steps
from privaudit.accounting.pld.targets import Sides as Sides

if TYPE_CHECKING:
    from privaudit.accounting.pld.accountant import (
        CertifiedAccountant as CertifiedAccountant,
    )


def __getattr__(name: str) -> Any:
    if name == "CertifiedAccountant":
        from privaudit.accounting.pld.accountant import CertifiedAccountant

        return CertifiedAccountant
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
