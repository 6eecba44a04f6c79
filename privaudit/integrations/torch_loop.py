"""Audits of a user's own torch loop: `privaudit.auditing.programs.torch_loop`.

``audit`` tests a claim by canaries in gradient space that the loop plants,
``probe_loader`` looks for batches that are not Poisson sampled. They need torch, and
are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = [  # noqa: F822  # see `__getattr__`
    "AuditedTraining",
    "GradientCanary",
    "audit",
    "probe_loader",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"privaudit.integrations.torch_loop has no {name}")
    where = "privaudit.auditing.programs.torch_loop"
    return getattr(importlib.import_module(where), name)
