"""How this process takes memory from the system."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
KEEP_BYTES = 1 << 30
LARGEST_ON_HEAP = 1 << 25  # glibc takes no larger value


def keep_freed_memory() -> bool:
    """Reuse the memory of freed models instead of giving it back: fresh pages cost as much as
    the copy into them. False if not glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False  # another C library
    return bool(
        mallopt(M_ARENA_MAX, 1)
        and mallopt(M_MMAP_THRESHOLD, LARGEST_ON_HEAP)
        and mallopt(M_TRIM_THRESHOLD, KEEP_BYTES)
    )
