"""Logs of hosts: ``runs/NAME/hosts/HOST.log``, one line for each line that a host prints."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TextIO

from edgefl.errors import printable

FOLDER = "hosts"
MOST_BYTES = 64 << 20  # of one log; a host must not fill this machine's disk
MOST_EARLY = 1000  # lines of all hosts before ``open``


class HostLogs:
    """Writes the logs. May be used by several threads.

    Lines that come before the folder may be written are kept until ``open``. ``clock`` gives the
    seconds that each line begins with.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.failed: OSError | None = None
        self._folder: Path | None = None
        self._early: list[tuple[str, str]] = []
        self._files: dict[str, TextIO] = {}
        self._sizes: dict[str, int] = {}
        self._lock = Lock()

    def open(self, run: Path, keep: bool = False) -> None:
        """Write into the folder ``run`` from now on. ``keep``: after the logs that are there.

        Else those are of an earlier run, and are removed.
        """
        with self._lock:
            if self._folder is not None:
                return
            self._folder = run / FOLDER
            self._folder.mkdir(exist_ok=True)
            for old in () if keep else self._folder.glob("*.log"):
                old.unlink()
            for host, line in self._early:
                self._write(host, line)
            self._early.clear()

    def add(self, host: str, edge: str, text: str) -> None:
        """Add a line. ``edge``: empty if it is about the host."""
        shown = printable(text).removeprefix(f"{edge}: ")
        line = f"{self.clock():10.3f} {edge or '-'}: {shown}\n"
        with self._lock:
            if self._folder is not None:
                self._write(host, line)
            elif len(self._early) < MOST_EARLY:
                self._early.append((host, line))

    def flush(self) -> None:
        with self._lock, suppress(OSError):
            for file in self._files.values():
                file.flush()

    def close(self) -> None:
        with self._lock, suppress(OSError):
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _write(self, host: str, line: str) -> None:
        assert self._folder is not None
        self._sizes[host] = size = self._sizes.get(host, 0) + len(line.encode())
        if self.failed is not None or size - len(line.encode()) > MOST_BYTES:
            return
        if size > MOST_BYTES:
            line = f"the log ends here: more than {MOST_BYTES >> 20} MiB\n"
            self._sizes[host] += MOST_BYTES
        try:
            if host not in self._files:
                path = self._folder / f"{host.replace('/', '_')}.log"
                self._files[host] = path.open("a", encoding="utf-8")
            self._files[host].write(line)
        except OSError as error:
            self.failed = error  # a full disk; the run itself reports that
