"""Rewrites numbers such as .3 or +2 as JSON spells them."""

from __future__ import annotations

import re
from typing import Any

_NUMBER = re.compile(r"([+-]?)(?=\.?\d)(\d*)(\.?)(\d*)((?:[eE][+-]?\d+)?)")


def as_json(value: Any) -> Any:
    """``value``, where it or an item of its list is a number as text, as JSON has it.

    >>> as_json([".3", "-.5", "3.", "+2", ".5e1", "ring"])
    ['0.3', '-0.5', '3.0', '2', '0.5e1', 'ring']
    """
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    sign, whole, point, part, power = found.groups()
    fraction = f".{part or 0}" if point else ""
    return f"{sign.strip('+')}{whole or 0}{fraction}{power}"
