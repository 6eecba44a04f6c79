"""Deterministic probes: what most privacy bugs show in a few runs, without statistics.

Runs under equal streams differ by one record alone, or by the noise alone; what differs
is held against the ledger. What is random in a check is allowed five standard
deviations, so that right code is not accused.
"""

from privaudit.auditing.probes.contract import Check

__all__ = ["Check"]
