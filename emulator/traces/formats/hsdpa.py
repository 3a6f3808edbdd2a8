"""Riiser et al.: TCP downloads over 3G/HSDPA in Norway, a line about every second.

Columns: Unix time (s), time since some start (ms), latitude, longitude, bytes received since the
line before, ms since the line before. So the rate of a line is column 5 over column 6. The 4G logs
of Van der Hooft et al. (Ghent) have the same columns, with the first in ms.

Source: H. Riiser et al., "Commute path bandwidth traces from 3G networks", MMSys 2013;
https://datasets.simula.no/hsdpa-tcp-logs/
"""

from __future__ import annotations

from collections.abc import Iterable

from emulator.errors import BadValue
from emulator.traces.formats.trace_format import TraceFormat
from emulator.traces.recording import Recording, in_order, not_of, number, numbered

COLUMNS = 6
MS = 1_000_000  # ns


def convert(lines: Iterable[str], name: str, direction: str, series: str | None) -> Recording:
    """The downlink of a log; lines that last 0 ms are left out."""
    steps: list[tuple[int, int]] = []
    before: float | None = None
    left_out = 0
    for where, line in numbered(lines, name):
        values = [number(word) for word in (*line.split()[1:2], *line.split()[4:])]
        if len(line.split()) != COLUMNS or None in values:
            raise not_of("hsdpa", where, "6 columns with ms, bytes and ms in 2, 5 and 6", line)
        at_ms, received, length_ms = (value or 0.0 for value in values)
        in_order(where, before, at_ms / 1000)
        before = at_ms / 1000
        if length_ms == 0:
            left_out += 1
            continue
        steps.append((round(received * 8000 / length_ms), round(length_ms * MS)))
    if not steps:
        raise BadValue(f"{name}: empty")
    return Recording(steps, (f"{left_out} lines of 0 ms are left out",) if left_out else ())


def known(line: str) -> bool:
    words = line.split()
    return len(words) == COLUMNS and all(number(word.lstrip("-")) is not None for word in words)


FORMAT = TraceFormat("hsdpa", "TCP downloads over 3G in Norway", ("down",), known, convert)
