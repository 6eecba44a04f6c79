"""ATen operations that may be in a graph of one record.

For each of them torch's rule of mapping over records is relied on, and tested: mapped,
it gives what it gives record by record (`tests/trainers/gradients/door`). None draws,
writes, keeps anything or looks at values.
"""

from __future__ import annotations

# What may give a view of what it is given, or not.
ALIASING = frozenset(
    "reshape contiguous flatten to type_as _to_copy view_as reshape_as".split()
)

MAPPED = frozenset("".split())
