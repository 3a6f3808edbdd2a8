"""FCC, Measuring Broadband America: downloads of web pages at homes in the United States.

A row of ``curr_webget*.csv`` is one download: unit_id, dtime, target, address, fetch_time,
bytes_total, bytes_sec, ... A home is measured about once an hour, so this is no recording over
time. As in Pensieve (Mao et al., SIGCOMM 2017), the downloads of one home from one target follow
each other, each with its rate for 5 s.

Source: https://www.fcc.gov/oet/mba/raw-data-releases; the order of the columns in
https://github.com/hongzimao/pensieve/tree/master/traces/fcc
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterable

from emulator.errors import BadValue
from emulator.traces.formats.trace_format import TraceFormat
from emulator.traces.recording import Recording, moment, not_of, number
from emulator.units import NS_PER_S

TIME = "%Y-%m-%d %H:%M:%S"
UNIT, AT, TARGET, BYTES_S = 0, 1, 2, 6
STEP_NS = 5 * NS_PER_S


def convert(lines: Iterable[str], name: str, direction: str, series: str | None) -> Recording:
    """The downlink of one home: ``series`` is UNIT/TARGET; default: the one with the most rows."""
    homes: dict[str, tuple[array[int], array[float]]] = {}  # seconds, bytes/s
    reader = csv.reader(lines)
    for row in reader:
        if not row or row[0] == "unit_id":
            continue
        where = f"{name}, line {reader.line_num}"
        rate = number(row[BYTES_S]) if len(row) > BYTES_S else None
        at_s = moment(row[AT], TIME) if len(row) > AT else None
        if rate is None or at_s is None:
            expected = "unit_id,dtime,target,address,fetch_time,bytes_total,bytes_sec"
            raise not_of("fcc-webget", where, expected, ",".join(row))
        home = f"{row[UNIT]}/{row[TARGET]}"
        seconds, rates = homes.setdefault(home, (array("q"), array("d")))
        seconds.append(at_s)
        rates.append(rate)
    if not homes:
        raise BadValue(f"{name}: empty")
    chosen = series or max(homes, key=lambda home: len(homes[home][0]))
    if chosen not in homes:
        raise BadValue(
            f"{name}: no series {chosen!r}: expected UNIT/TARGET, such as {next(iter(homes))}"
        )
    seconds, rates = homes[chosen]
    in_time = sorted(range(len(rates)), key=seconds.__getitem__)
    remarks = (
        f"series {chosen}, {len(rates)} downloads, one of {len(homes)} series",
        "each download counts for 5 s, though they are about an hour apart: no recording over time",
    )
    return Recording([(round(rates[each] * 8), STEP_NS) for each in in_time], remarks)


def known(line: str) -> bool:
    words = line.split(",")
    return words[:3] == ["unit_id", "dtime", "target"] or (
        len(words) > BYTES_S
        and moment(words[AT], TIME) is not None
        and number(words[BYTES_S]) is not None
    )


FORMAT = TraceFormat(
    "fcc-webget", "downloads of web pages in the United States", ("down",), known, convert
)
