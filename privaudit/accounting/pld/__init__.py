"""Certified accounts by privacy loss distributions, all of whose steps may differ."""

from privaudit.accounting.pld.composition import Composition as Composition
from privaudit.accounting.pld.steps import compose_entries as compose_entries
from privaudit.accounting.pld.steps import compose_steps as compose_steps
