"""The busy periods of the proxy's links: from the first byte that comes until no byte is left.

A program that sends as fast as the link carries makes one period of each transfer; it takes the
latency and bytes x 8 / rate. A pause of the sender ends the period.
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from emulator.errors import BadValue
from emulator.units import NS_PER_S

COLUMNS = "listen,direction,begin_s,end_s,scheduled_end_s,bytes"


class BusyFile:
    """A CSV file with one row per busy period of each shaped link; BadValue if it cannot be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: TextIO = path.open("w", encoding="utf-8")
        except OSError as error:
            raise BadValue(f"busy {path}: cannot be written ({error.strerror})") from None
        self._fault: OSError | None = None
        self.add(COLUMNS)

    def link(self, listen: str, direction: str) -> BusyPeriods:
        """The periods of one direction ("up" or "down") of the link that listens on ``listen``."""
        return BusyPeriods(self, f"{listen},{direction}")

    def add(self, row: str) -> None:
        """Write a row; ``close`` reports errors: a full disk must not stop the traffic."""
        try:
            self._file.write(f"{row}\n")
        except OSError as error:
            self._fault = error

    def close(self) -> None:
        """Complete the file. BadValue if anything could not be written."""
        try:
            self._file.close()
            if self._fault is not None:
                raise self._fault
        except OSError as error:
            raise BadValue(f"busy {self.path}: incomplete ({error.strerror})") from None


class BusyPeriods:
    """The busy periods of one direction of a link; moments in ns since the proxy's start."""

    __slots__ = ("_begin_ns", "_bytes", "_file", "_link", "_under_way_bytes")

    def __init__(self, file: BusyFile, link: str) -> None:
        self._file, self._link = file, link
        self._begin_ns = self._bytes = self._under_way_bytes = 0

    def came(self, size_bytes: int, now: int) -> None:
        """Record bytes that came from their sender at ``now``."""
        if not self._under_way_bytes:
            self._begin_ns, self._bytes = now, 0
        self._bytes += size_bytes
        self._under_way_bytes += size_bytes

    def left(self, size_bytes: int, due_ns: int, now: int) -> None:
        """Record bytes that were due at ``due_ns`` and left for their receiver at ``now``."""
        self._under_way_bytes -= size_bytes
        if size_bytes and not self._under_way_bytes:
            times = (f"{each / NS_PER_S:.9f}" for each in (self._begin_ns, now, due_ns))
            self._file.add(f"{self._link},{','.join(times)},{self._bytes}")
