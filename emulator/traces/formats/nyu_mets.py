"""NYU Metropolitan Mobile Bandwidth Trace: iPerf over LTE in New York, a row every second.

A row is a rate and its unit: ``3.97,Mbits/sec``. iPerf's units are of 1000. The README does not
say whether it is the uplink or the downlink.

Source: L. Mei et al., "Realtime mobile bandwidth prediction using LSTM neural network", PAM 2019;
https://github.com/NYU-METS/Main
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from emulator.errors import BadValue
from emulator.traces.formats.trace_format import TraceFormat
from emulator.traces.recording import Recording, not_of, number, numbered
from emulator.units import NS_PER_S

UNITS: Mapping[str, int] = {
    "bits/sec": 1,
    "Kbits/sec": 10**3,
    "Mbits/sec": 10**6,
    "Gbits/sec": 10**9,
}


def convert(lines: Iterable[str], name: str, direction: str, series: str | None) -> Recording:
    """The rate of every second."""
    steps = []
    for where, line in numbered(lines, name):
        value, _, unit = (word.strip() for word in line.partition(","))
        rate = number(value)
        if rate is None or unit not in UNITS:
            raise not_of("nyu-mets", where, "a rate and its unit such as 3.97,Mbits/sec", line)
        steps.append((round(rate * UNITS[unit]), NS_PER_S))
    if not steps:
        raise BadValue(f"{name}: empty")
    return Recording(steps)


def known(line: str) -> bool:
    return line.strip().endswith("bits/sec") and line.count(",") == 1


FORMAT = TraceFormat("nyu-mets", "iPerf over LTE in New York", ("",), known, convert)
