"""A small file system that a test fills. This needs root, and says so where it does not work."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

BLOCK_BYTES = 4096


@cache
def refusal() -> str:
    """The reason why a file system cannot be mounted here; '' if it can."""
    if os.geteuid() != 0:
        return "needs root, to mount a small file system"
    with TemporaryDirectory() as folder:
        made = _mount(Path(folder), 1 << 20)
        if made.returncode == 0:
            subprocess.run(["umount", "--lazy", folder], check=True)
    return f"no file system can be mounted: {made.stderr.strip()}" if made.returncode else ""


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Make ``folder`` a file system of this size."""
    folder.mkdir()
    made = _mount(folder, size_bytes)
    assert made.returncode == 0, made.stderr
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Write a file until there is no room."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(BLOCK_BYTES))
    assert not os.statvfs(disk).f_bavail
    return path


def _mount(folder: Path, size_bytes: int) -> subprocess.CompletedProcess[str]:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "edgefl-test", str(folder)]
    return subprocess.run(command, capture_output=True, text=True)
