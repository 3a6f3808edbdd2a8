"""What a run directory does not say: which code made it, and how much CPU time it has used.

``CpuClock`` measures runs while they are done. ``Ledger`` keeps, next to the runs, the digest of
the code that began each, and the CPU time of those that were broken off.
"""

from __future__ import annotations

import mmap
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import psutil

from edgefl.errors import undamaged
from edgefl.results.compare import replace_file

FILE = "runs.json"
SLOT = struct.Struct("q")


class CpuClock:
    """The CPU seconds of ``runs`` runs, each with all of its processes.

    A run is done in a forked process of its own, or in this process with workers below it, one run
    after another. Workers on other machines are not counted.
    """

    def __init__(self, runs: int) -> None:
        self._pids = mmap.mmap(-1, SLOT.size * max(runs, 1))  # shared with forks
        self._owner = os.getpid()
        self._began_s: dict[int, float] = {}  # those that are done in this process

    def begin(self, run: int) -> None:
        """Run number ``run`` begins in the calling process."""
        SLOT.pack_into(self._pids, run * SLOT.size, os.getpid())
        if os.getpid() == self._owner:
            self._began_s = {run: _of_tree_s()}

    def used_s(self, run: int) -> float | None:
        """Return what a run that is going on or has just ended has used; None if unknown."""
        (pid,) = SLOT.unpack_from(self._pids, run * SLOT.size)
        if pid == self._owner:
            began_s = self._began_s.get(run)
            return None if began_s is None else _of_tree_s() - began_s
        with suppress(psutil.NoSuchProcess):
            return _of_process_s(psutil.Process(pid)) if pid else None
        return None


def _of_tree_s() -> float:
    """Return the CPU seconds of this process, of those below it, and of those that have ended."""
    own = psutil.Process()
    total_s = _of_process_s(own)
    for child in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total_s += _of_process_s(child)
    return total_s


def _of_process_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    ended_s = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + ended_s)


class Ledger:
    """runs.json in the folder of an entry's runs."""

    def __init__(self, folder: Path) -> None:
        """Read it. UserError if it is damaged."""
        self.folder, self.path = folder, folder / FILE
        self._facts: dict[str, dict[str, Any]] = {}
        if self.path.is_file():
            with undamaged(self.path):
                self._facts = dict(orjson.loads(self.path.read_bytes()))

    def digest(self, run: Path) -> str | None:
        """Return the digest of the code that began a run; None if it is not noted."""
        return self._of(run).get("digest")

    def used_s(self, run: Path) -> float:
        """Return the CPU seconds of a run in earlier commands."""
        return float(self._of(run).get("cpu_s", 0.0))

    def begin(self, digests: dict[Path, str]) -> None:
        """Note the digests of runs that are about to begin or to go on."""
        for run, digest in digests.items():
            self._facts[self._name(run)] = {**self._of(run), "digest": digest}
        self._write()

    def note(self, run: Path, cpu_s: float) -> None:
        """Note the CPU seconds of a run that was broken off, those of earlier commands included."""
        self._facts[self._name(run)] = {**self._of(run), "cpu_s": cpu_s}
        self._write()

    def _of(self, run: Path) -> dict[str, Any]:
        return self._facts.get(self._name(run), {})

    def _name(self, run: Path) -> str:
        return str(run.relative_to(self.folder))

    def _write(self) -> None:
        replace_file(self.path, orjson.dumps(self._facts, option=orjson.OPT_INDENT_2))
