"""The records of a proxy: connections, totals, the live status line, and busy periods of its links.

A busy period lasts from the first byte that comes until no byte is left, also of those that the
kernel got before they are due. A program that sends as fast as the link carries makes one period of
each transfer; it takes the latency and bytes x 8 / rate. A pause of the sender ends the period.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from emulator.errors import BadValue
from emulator.fidelity import Quantiles
from emulator.units import NS_PER_S

NS_PER_MS = 1_000_000


@dataclass(slots=True)
class ProxyFlow:
    """The traffic of one connection in one direction; moments in ns since the proxy's start."""

    bytes: int = 0
    chunks: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    last_due_ns: int | None = None
    lag_sum_ns: int = 0
    lag_max_ns: int = 0
    dropped_bytes: int = 0

    def passed(self, size_bytes: int, due_ns: int, now: int) -> None:
        """Record a chunk that was due at ``due_ns`` and delivered at ``now``."""
        self.bytes += size_bytes
        self.chunks += 1
        if self.first_ns is None:
            self.first_ns = now
        self.last_ns, self.last_due_ns = now, due_ns
        self.lag_sum_ns += now - due_ns
        self.lag_max_ns = max(self.lag_max_ns, now - due_ns)

    def as_json(self) -> dict[str, object]:
        return {
            "bytes": self.bytes,
            "dropped_bytes": self.dropped_bytes,
            "first_s": _seconds(self.first_ns),
            "last_s": _seconds(self.last_ns),
            "last_scheduled_s": _seconds(self.last_due_ns),
            "lag_ms": (
                {"mean": _ms(self.lag_sum_ns // self.chunks), "max": _ms(self.lag_max_ns)}
                if self.chunks
                else None
            ),
        }


@dataclass(slots=True)
class ConnectionRecord:
    """One connection, from its acceptance to its end."""

    number: int
    route: str
    peer: str
    opened_ns: int
    up: ProxyFlow = field(default_factory=ProxyFlow)
    down: ProxyFlow = field(default_factory=ProxyFlow)
    end: str = "closed"  # or the reason of another end

    def as_json(self, now: int) -> dict[str, object]:
        return {
            "number": self.number,
            "listen": self.route,
            "peer": self.peer,
            "opened_s": _seconds(self.opened_ns),
            "closed_s": _seconds(now),
            "end": self.end,
            "up": self.up.as_json(),
            "down": self.down.as_json(),
        }


class _Output:
    """A file that is written while traffic passes: ``close`` reports errors, so that a full disk
    does not stop the traffic.
    """

    def __init__(self, what: str, path: Path, written_as: Path) -> None:
        self.path, self._what, self._written_as = path, what, written_as
        self._fault: OSError | None = None
        if path.is_dir():  # its name would be refused only at the end
            raise BadValue(f"{what} {path}: cannot be written ({os.strerror(errno.EISDIR)})")
        try:
            self._file: TextIO = written_as.open("w", encoding="utf-8")
        except OSError as error:
            raise BadValue(f"{what} {path}: cannot be written ({error.strerror})") from None

    def write(self, text: str) -> None:
        try:
            self._file.write(text)
        except OSError as error:
            self._fault = error

    def finish(self) -> None:
        """Complete the file and give it its name. BadValue if anything could not be written."""
        try:
            self._file.close()
            if self._fault is not None:
                raise self._fault
            os.replace(self._written_as, self.path)
        except OSError as error:
            see = "" if self._written_as == self.path else f", see {self._written_as.name}"
            reason = f"incomplete ({error.strerror}){see}"
            raise BadValue(f"{self._what} {self.path}: {reason}") from None

    def abandon(self) -> None:
        """Close and delete the unfinished file."""
        self._file.close()
        self._written_as.unlink(missing_ok=True)


class Log(_Output):
    """A log file with one JSON object: ``connections`` and the members of the summary.

    A connection is written when it ends, so that none is kept in memory.
    """

    def __init__(self, path: Path) -> None:
        super().__init__("log", path, path.with_name(path.name + ".part"))
        self.write('{"connections": [')
        self._before = "\n"

    def add(self, connection: Mapping[str, object]) -> None:
        """Write a connection."""
        self.write(self._before + json.dumps(connection))
        self._before = ",\n"

    def close(self, summary: Mapping[str, object]) -> None:
        """Write the members of the summary, and finish."""
        members = "".join(
            f",\n{json.dumps(key)}: {json.dumps(value)}" for key, value in summary.items()
        )
        self.write("\n]" + members + "}\n")
        self.finish()


class Totals:
    """Counters of the whole proxy, and the speed since they were last shown."""

    def __init__(self) -> None:
        self.opened = self.ended = self.failed = 0
        self.up_bytes = self.down_bytes = 0
        self._shown = (0, 0, 0)

    @property
    def open(self) -> int:
        return self.opened - self.ended

    def closed(self, failed: bool) -> None:
        self.ended += 1
        self.failed += failed

    def carried(self, direction: str, size_bytes: int) -> None:
        if direction == "up":
            self.up_bytes += size_bytes
        else:
            self.down_bytes += size_bytes

    def as_json(self) -> dict[str, int]:
        return {
            "opened": self.opened,
            "failed": self.failed,
            "up_bytes": self.up_bytes,
            "down_bytes": self.down_bytes,
        }

    def line(self, now: int, wake_lag: Quantiles) -> str:
        """The status line: open connections, rates since the last line, lateness of wake-ups."""
        at_ns, up_bytes, down_bytes = self._shown
        self._shown = (now, self.up_bytes, self.down_bytes)
        lapse_ns = max(1, now - at_ns)
        up, down = (
            _rate(max(new - old, 0) * 8 * NS_PER_S // lapse_ns)  # less: bytes were dropped
            for new, old in ((self.up_bytes, up_bytes), (self.down_bytes, down_bytes))
        )
        p99_ns = wake_lag.percentile(99)
        late = "" if p99_ns is None else f", wakes late by {_ms(p99_ns):.2f} ms (p99)"
        return f"{self.open} open, {self.ended} ended, up {up}, down {down}{late}"


def _rate(rate_bit_s: int) -> str:
    for unit, factor in (("Gbit/s", 10**9), ("Mbit/s", 10**6), ("kbit/s", 10**3)):
        if rate_bit_s >= factor:
            return f"{rate_bit_s / factor:.2f} {unit}"
    return f"{rate_bit_s} bit/s"


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / NS_PER_S


def _ms(ns: int) -> float:
    return round(ns / NS_PER_MS, 3)


COLUMNS = "listen,direction,begin_s,end_s,scheduled_end_s,bytes"


class BusyFile(_Output):
    """A CSV file with one row per busy period of each shaped link; BadValue if it cannot be."""

    def __init__(self, path: Path) -> None:
        super().__init__("busy", path, path)
        self.write(f"{COLUMNS}\n")

    def link(self, listen: str, direction: str) -> BusyPeriods:
        """The periods of one direction ("up" or "down") of the link that listens on ``listen``."""
        return BusyPeriods(self, f"{listen},{direction}")


class BusyPeriods:
    """The busy periods of one direction of a link; moments in ns since the proxy's start."""

    __slots__ = (
        "_begin_ns",
        "_bytes",
        "_due_ns",
        "_end_ns",
        "_file",
        "_link",
        "_under_way_bytes",
    )

    def __init__(self, file: BusyFile, link: str) -> None:
        self._file, self._link = file, link
        self._begin_ns = self._end_ns = self._due_ns = self._bytes = self._under_way_bytes = 0

    def came(self, size_bytes: int, now: int) -> None:
        """Record bytes that came from their sender at ``now``."""
        if not self._under_way_bytes and now >= self._end_ns:
            self.stop(now)
            self._begin_ns = now
        self._bytes += size_bytes
        self._under_way_bytes += size_bytes

    def left(self, size_bytes: int, due_ns: int, now: int) -> None:
        """Record bytes that were due at ``due_ns`` and left for their receiver at ``now``.

        Both may be in the future, if the kernel spaces the bytes.
        """
        self._under_way_bytes -= size_bytes
        if size_bytes:
            self._due_ns, self._end_ns = due_ns, now

    def stop(self, now: int) -> None:
        """Write the latest period; it ends at ``now`` if it is still in progress."""
        if self._under_way_bytes:
            self._due_ns = self._end_ns = now
        if self._bytes:
            moments = self._begin_ns, min(self._end_ns, now), self._due_ns
            times = (f"{each / NS_PER_S:.9f}" for each in moments)
            self._file.write(f"{self._link},{','.join(times)},{self._bytes}\n")
        self._bytes = self._under_way_bytes = 0
