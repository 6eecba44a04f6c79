"""Keeps freed memory in the process: fresh pages cost more than arithmetic."""

from __future__ import annotations

import ctypes
import functools
import os

# glibc's names. Blocks up to the first size are taken from what was freed before, and
# up to the second of it is kept.
_MMAP, _TRIM = -3, -1
_BLOCK, _KEPT = 32 << 20, 256 << 20


@functools.cache
def keep_freed() -> None:
    """Have the C library keep up to 256 MiB that is freed, once a process.

    By itself it gives blocks back at once, so that each round's tensors are pages that
    the system clears anew: up to half of a round's time. Where the environment says how
    (``MALLOC_TRIM_THRESHOLD_``, ``MALLOC_MMAP_THRESHOLD_``), and with other C
    libraries, nothing is changed.

    >>> keep_freed()
    """
    if any(f"MALLOC_{name}_THRESHOLD_" in os.environ for name in ("TRIM", "MMAP")):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    mallopt(_MMAP, _BLOCK)
    mallopt(_TRIM, _KEPT)
