"""Raca et al.: G-NetTrack Pro on a 5G phone of an Irish operator, a row about every second.

``DL_bitrate`` is in kbit/s. In the folder Download a large file was fetched without a pause, so
its rate is what the link gave. In the folders of video streaming the rate is what the player asked
for, and 0 is a full buffer, not an outage.

``UL_bitrate`` is refused: nothing was uploaded, so it is the rate of acknowledgements, not the
capacity of the uplink.

Source: D. Raca et al., "Beyond throughput, the next generation: a 5G dataset with channel and
context metrics", MMSys 2020; https://github.com/uccmisl/5Gdataset
"""

from __future__ import annotations

import csv
from collections.abc import Iterable

from emulator.traces.formats.trace_format import TraceFormat
from emulator.traces.recording import Recording, held, in_order, moment, not_of, number

TIME = "%Y.%m.%d_%H.%M.%S"
NEEDED = ("Timestamp", "DL_bitrate")
LONGEST_S = 10  # the files have pauses of up to 5 s
NO_UPLINK = (
    "its UL_bitrate is not a capacity: nothing was uploaded, it is the rate of acknowledgements"
)


def convert(lines: Iterable[str], name: str, direction: str, series: str | None) -> Recording:
    """The downlink, from kbit/s."""
    reader = csv.DictReader(lines)
    if not set(NEEDED) <= set(reader.fieldnames or ()):
        raise not_of("irish-5g", name, f"columns {', '.join(NEEDED)}", str(reader.fieldnames))
    rows: list[tuple[int, int]] = []
    for row in reader:
        where = f"{name}, line {reader.line_num}"
        at_s, rate = moment(row["Timestamp"] or "", TIME), number(row["DL_bitrate"] or "")
        if at_s is None or rate is None:
            found = f"{row['Timestamp']}, {row['DL_bitrate']}"
            raise not_of("irish-5g", where, "a time and a rate in kbit/s", found)
        in_order(where, rows[-1][0] if rows else None, at_s)
        rows.append((at_s, round(rate * 1000)))
    recording = held(rows, name, LONGEST_S)
    return Recording(recording.steps, (*recording.remarks, f"only the downlink: {NO_UPLINK}"))


def known(line: str) -> bool:
    return line.startswith("Timestamp,") and ",DL_bitrate,UL_bitrate," in line


FORMAT = TraceFormat(
    "irish-5g",
    "downloads and video over 5G in Ireland",
    ("down",),
    known,
    convert,
    refused=(("up", NO_UPLINK),),
)
