"""Whether this process has grown: one read of a small file of the kernel."""

from __future__ import annotations

import os
from contextlib import suppress
from mmap import PAGESIZE

STATM = "/proc/self/statm"


class MemoryGrowth:
    """Compares the resident memory with the least one since ``forget``."""

    def __init__(self, least_bytes: int) -> None:
        self.least_pages = -(-least_bytes // PAGESIZE)
        self._fd = -1
        with suppress(OSError):  # not Linux: it always counts as grown
            self._fd = os.open(STATM, os.O_RDONLY | os.O_CLOEXEC)
        self._lowest = self._pages()

    def grown(self) -> bool:
        """Whether the process holds ``least_bytes`` more than at its lowest."""
        pages = self._pages()
        self._lowest = min(self._lowest, pages)
        return self._fd < 0 or pages - self._lowest >= self.least_pages

    def forget(self) -> None:
        """Compare with the present memory from now on."""
        self._lowest = self._pages()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _pages(self) -> int:
        return int(os.pread(self._fd, 64, 0).split()[1]) if self._fd >= 0 else 0
