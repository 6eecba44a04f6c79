"""Certified accounts by privacy loss distributions, all of whose steps may differ."""

import importlib
from typing import Any

from privaudit.accounting.pld.composition import Composition as Composition
from privaudit.accounting.pld.steps import compose_entries as compose_entries
from privaudit.accounting.pld.steps import compose_steps as compose_steps
from privaudit.accounting.pld.targets import Sides as Sides


def __getattr__(name: str) -> Any:
    if name == "CertifiedAccountant":
        return importlib.import_module("privaudit.accounting.accountant").__dict__[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
