"""Read any trace file: mahimahi and CSV as they are, the published formats by their readers.

A reader makes a ``Recording`` of the rate in one direction. Each says what its format holds, what
it leaves out or assumes, and where the format is from.
"""

from __future__ import annotations

import csv
import itertools
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from emulator import plain_text
from emulator.capacity.trace import MS, Trace, read_trace
from emulator.errors import BadValue, valid_name
from emulator.units import NS_PER_S, seconds_text


@dataclass(frozen=True, slots=True)
class Recording:
    """The steps (rate_bit_s, length_ns) of one direction, and what the reader left out or assumed.

    ``remarks`` are lines for the user.
    """

    steps: list[tuple[int, int]]
    remarks: tuple[str, ...] = ()

    def csv(self) -> str:
        """The text of a trace file ``seconds,bit_s``; its last row has no rate and ends it."""
        lines, at_ns = ["seconds,bit_s"], 0
        for rate_bit_s, length_ns in self.steps:
            lines.append(f"{seconds_text(at_ns)},{rate_bit_s}")
            at_ns += length_ns
        return "\n".join([*lines, f"{seconds_text(at_ns)},", ""])


def not_of(format_name: str, where: str, expected: str, found: str) -> BadValue:
    """The error for a line that the format does not have."""
    return BadValue(f"{where}: expected {expected} ({format_name}), found {found.strip()[:60]!r}")


LARGEST = 1e18  # of a number in a recording; a rate has at most 9.2e18 bit/s


def number(text: str) -> float | None:
    """A number from 0 to ``LARGEST``; None if the text is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= LARGEST else None


def moment(text: str, form: str) -> int | None:
    """The seconds of a date and time, counted from any fixed day; None if the text is none."""
    try:
        when = datetime.strptime(text.strip(), form)
    except ValueError:
        return None
    return when.toordinal() * 86400 + when.hour * 3600 + when.minute * 60 + when.second


def numbered(lines: Iterable[str], name: str) -> Iterator[tuple[str, str]]:
    """Each line that is not blank, with its place for messages."""
    for count, line in enumerate(lines, 1):
        if line.strip():
            yield f"{name}, line {count}", line


def in_order(where: str, before: float | None, now: float) -> None:
    """BadValue if the time of a row lies before that of the row above it."""
    if before is not None and now < before:
        raise BadValue(
            f"{where}: its time is {before - now:g} s before that of the row above: expected rows"
            " in order of time"
        )


def held(rows: Sequence[tuple[int, int]], name: str, longest_s: int) -> Recording:
    """Rows (second, rate_bit_s) in order of time: each rate holds until the next row.

    Rows of the same second share the time until the next second. After a pause of more than
    ``longest_s`` the last rate holds for 1 s and the rest of the pause is cut out, because nothing
    was measured in it.
    """
    if not rows:
        raise BadValue(f"{name}: empty")
    seconds = [(at_s, list(group)) for at_s, group in itertools.groupby(rows, key=lambda r: r[0])]
    steps: list[tuple[int, int]] = []
    cut_s = cuts = 0
    following = [*(at_s for at_s, _ in seconds[1:]), seconds[-1][0] + 1]
    for (at_s, group), next_s in zip(seconds, following):
        length_s = next_s - at_s
        if length_s > longest_s:
            cuts, cut_s, length_s = cuts + 1, cut_s + length_s - 1, 1
        edges = [place * length_s * NS_PER_S // len(group) for place in range(len(group) + 1)]
        steps += [
            (rate_bit_s, end - begin)
            for (_, rate_bit_s), begin, end in zip(group, edges, edges[1:])
        ]
    if not cuts:
        return Recording(steps)
    return Recording(
        steps, (f"{cuts} pauses between measurements are cut out, {cut_s / 3600:.3g} h in all",)
    )


# lines of the file, its name for messages, direction ("up", "down" or ""), series or None
Convert = Callable[[Iterable[str], str, str, str | None], Recording]


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format of rates over time.

    ``directions``: those that a file of it can have, the default first; ("",) if a file is of one
    direction that it does not name. ``known``: whether the first line of a file is of this format.
    ``no_uplink``: why the direction "up" must not be used.
    """

    name: str
    directions: tuple[str, ...]
    known: Callable[[str], bool]
    convert: Convert
    no_uplink: str = ""


TIME = "%Y-%m-%d %H:%M:%S"


def measured(
    lines: Iterable[str], name: str, format_name: str, columns: Sequence[str], rate: str, form: str
) -> list[tuple[int, float]]:
    """The second and the ``rate`` of each row of a CSV file with these ``columns``.

    The first column is a time of the ``form``, in order. With several rates, a row may lack one.
    """
    reader = csv.DictReader(lines)
    if not set(columns) <= set(reader.fieldnames or ()):
        raise not_of(format_name, name, f"columns {', '.join(columns)}", str(reader.fieldnames))
    rows: list[tuple[int, float]] = []
    for row in reader:
        where, text = f"{name}, line {reader.line_num}", row[rate] or ""
        at_s, value = moment(row[columns[0]] or "", form), number(text)
        missing = not text and len(columns) > 2
        if at_s is None or (value is None and not missing):
            texts = ",".join(str(row[column]) for column in columns)
            raise not_of(format_name, where, "a time and a rate", texts)
        if value is not None:
            in_order(where, rows[-1][0] if rows else None, at_s)
            rows.append((at_s, value))
    return rows


def starlink(lines: Iterable[str], name: str, direction: str, series: str | None) -> Recording:
    """Starlink on the Road: UDP throughput of a Starlink dish on a car, 15 s at a time.

    One direction; rows without a value for it are left out. ``timestamp_start`` is the second of a
    row, ``download`` and ``upload`` are bit/s, empty where they were not measured. Between two
    measurements of 15 s the dish was not measured: those pauses are cut out.

    Source: D. Laniewski et al., "Starlink on the road: a first look at mobile Starlink performance
    in Central Europe", TMA 2024; https://github.com/sys-uos/Starlink-on-the-Road
    """
    columns = ("timestamp_start", "download", "upload")
    rows = measured(lines, name, "starlink-road", columns, f"{direction}load", TIME)
    return held([(at_s, round(rate)) for at_s, rate in rows], name, longest_s=1)


def _is_starlink(line: str) -> bool:
    return line.startswith("timestamp_start,") and ",download,upload," in line


IPERF_UNITS: Mapping[str, int] = {
    "bits/sec": 1,
    "Kbits/sec": 10**3,
    "Mbits/sec": 10**6,
    "Gbits/sec": 10**9,
}


def nyu_mets(lines: Iterable[str], name: str, direction: str, series: str | None) -> Recording:
    """NYU Metropolitan Mobile Bandwidth Trace: iPerf over LTE in New York, a row every second.

    The rate of every second. A row is a rate and its unit: ``3.97,Mbits/sec``. iPerf's units are of
    1000. The README does not say whether it is the uplink or the downlink.

    Source: L. Mei et al., "Realtime mobile bandwidth prediction using LSTM neural network", PAM
    2019; https://github.com/NYU-METS/Main
    """
    steps = []
    for where, line in numbered(lines, name):
        value, _, unit = (word.strip() for word in line.partition(","))
        rate = number(value)
        if rate is None or unit not in IPERF_UNITS:
            raise not_of("nyu-mets", where, "a rate and its unit such as 3.97,Mbits/sec", line)
        steps.append((round(rate * IPERF_UNITS[unit]), NS_PER_S))
    if not steps:
        raise BadValue(f"{name}: empty")
    return Recording(steps)


def _is_nyu_mets(line: str) -> bool:
    return line.strip().endswith("bits/sec") and line.count(",") == 1


HSDPA_COLUMNS = 6


def hsdpa(lines: Iterable[str], name: str, direction: str, series: str | None) -> Recording:
    """Riiser et al.: TCP downloads over 3G/HSDPA in Norway, a line about every second.

    The downlink of a log; lines that last 0 ms are left out. Columns: Unix time (s), time since
    some start (ms), latitude, longitude, bytes received since the line before, ms since the line
    before. So the rate of a line is column 5 over column 6. The 4G logs of Van der Hooft et al.
    (Ghent) have the same columns, with the first in ms.

    Source: H. Riiser et al., "Commute path bandwidth traces from 3G networks", MMSys 2013;
    https://datasets.simula.no/hsdpa-tcp-logs/
    """
    steps: list[tuple[int, int]] = []
    before: float | None = None
    left_out = 0
    for where, line in numbered(lines, name):
        values = [number(word) for word in (*line.split()[1:2], *line.split()[4:])]
        if len(line.split()) != HSDPA_COLUMNS or None in values:
            raise not_of("hsdpa", where, "6 columns with ms, bytes and ms in 2, 5 and 6", line)
        at_ms, received, length_ms = (value or 0.0 for value in values)
        in_order(where, before, at_ms / 1000)
        before = at_ms / 1000
        length_ns = round(length_ms * MS)
        if length_ns == 0:
            left_out += 1
            continue
        steps.append((round(received * 8000 / length_ms), length_ns))
    if not steps:
        raise BadValue(f"{name}: empty")
    return Recording(steps, (f"{left_out} lines of 0 ms are left out",) if left_out else ())


def _is_hsdpa(line: str) -> bool:
    words = line.split()
    return len(words) == HSDPA_COLUMNS and all(
        number(word.lstrip("-")) is not None for word in words
    )


FCC_UNIT, FCC_AT, FCC_TARGET, FCC_BYTES_S = 0, 1, 2, 6
FCC_STEP_NS = 5 * NS_PER_S


def fcc_webget(lines: Iterable[str], name: str, direction: str, series: str | None) -> Recording:
    """FCC, Measuring Broadband America: downloads of web pages at homes in the United States.

    The downlink of one home: ``series`` is UNIT/TARGET; default: the one with the most rows. A row
    of ``curr_webget*.csv`` is one download: unit_id, dtime, target, address, fetch_time,
    bytes_total, bytes_sec, ... A home is measured about once an hour, so this is no recording over
    time. As in Pensieve (Mao et al., SIGCOMM 2017), the downloads of one home from one target
    follow each other, each with its rate for 5 s.

    Source: https://www.fcc.gov/oet/mba/raw-data-releases; the order of the columns in
    https://github.com/hongzimao/pensieve/tree/master/traces/fcc
    """
    homes: dict[str, tuple[array[int], array[float]]] = {}  # seconds, bytes/s
    reader = csv.reader(lines)
    for row in reader:
        if not row or row[0] == "unit_id":
            continue
        where = f"{name}, line {reader.line_num}"
        rate = number(row[FCC_BYTES_S]) if len(row) > FCC_BYTES_S else None
        at_s = moment(row[FCC_AT], TIME) if len(row) > FCC_AT else None
        if rate is None or at_s is None:
            expected = "unit_id,dtime,target,address,fetch_time,bytes_total,bytes_sec"
            raise not_of("fcc-webget", where, expected, ",".join(row))
        home = f"{row[FCC_UNIT]}/{row[FCC_TARGET]}"
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
    return Recording([(round(rates[each] * 8), FCC_STEP_NS) for each in in_time], remarks)


def _is_fcc_webget(line: str) -> bool:
    words = line.split(",")
    return words[:3] == ["unit_id", "dtime", "target"] or (
        len(words) > FCC_BYTES_S
        and moment(words[FCC_AT], TIME) is not None
        and number(words[FCC_BYTES_S]) is not None
    )


IRISH_TIME = "%Y.%m.%d_%H.%M.%S"
IRISH_LONGEST_S = 10  # the files have pauses of up to 5 s
NO_UPLINK = (
    "its UL_bitrate is not a capacity: nothing was uploaded, it is the rate of acknowledgements"
)


def irish_5g(lines: Iterable[str], name: str, direction: str, series: str | None) -> Recording:
    """Raca et al.: G-NetTrack Pro on a 5G phone of an Irish operator, a row about every second.

    The downlink, from kbit/s. ``DL_bitrate`` is in kbit/s. In the folder Download a large file was
    fetched without a pause, so its rate is what the link gave. In the folders of video streaming
    the rate is what the player asked for, and 0 is a full buffer, not an outage.

    ``UL_bitrate`` is refused: nothing was uploaded, so it is the rate of acknowledgements, not the
    capacity of the uplink.

    Source: D. Raca et al., "Beyond throughput, the next generation: a 5G dataset with channel and
    context metrics", MMSys 2020; https://github.com/uccmisl/5Gdataset
    """
    columns = ("Timestamp", "DL_bitrate")
    rows = measured(lines, name, "irish-5g", columns, "DL_bitrate", IRISH_TIME)
    recording = held([(at_s, round(kbit * 1000)) for at_s, kbit in rows], name, IRISH_LONGEST_S)
    return Recording(recording.steps, (*recording.remarks, f"only the downlink: {NO_UPLINK}"))


def _is_irish_5g(line: str) -> bool:
    return line.startswith("Timestamp,") and ",DL_bitrate,UL_bitrate," in line


FORMATS: Mapping[str, TraceFormat] = {
    reader.name: reader
    for reader in (
        TraceFormat("starlink-road", ("down", "up"), _is_starlink, starlink),
        TraceFormat("nyu-mets", ("",), _is_nyu_mets, nyu_mets),
        TraceFormat("hsdpa", ("down",), _is_hsdpa, hsdpa),
        TraceFormat("fcc-webget", ("down",), _is_fcc_webget, fcc_webget),
        TraceFormat("irish-5g", ("down",), _is_irish_5g, irish_5g, NO_UPLINK),
    )
}
NATIVE = ("mahimahi", "csv")  # formats that links.trace_up takes without a conversion
NO_WARNING_NS = 2**62  # the statistics tell of silences, so no warning does
# encrypted, packed in an unknown way, and damaged
DAMAGED_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)


def converted(
    path: Path,
    format_name: str,
    direction: str | None = None,
    series: str | None = None,
    member: str = "",
) -> Recording:
    """Read a file of a published format; ``member``: the file inside a zip archive.

    BadValue names the file and the line.
    """
    reader = FORMATS[valid_name("format", format_name, FORMATS)]
    chosen = direction or reader.directions[0]
    if chosen == "up" and reader.no_uplink:
        raise BadValue(f"trace {path}: direction up: {reader.no_uplink}")
    if chosen not in reader.directions:
        valid = (
            " or ".join(filter(None, reader.directions)) or "none, the format names no direction"
        )
        raise BadValue(f"trace {path}: direction {chosen!r}: expected {valid}")
    name = f"trace {path / member}"
    try:
        with _text(path, member) as lines:
            return reader.convert(lines, name, chosen, series)
    except csv.Error as error:
        raise BadValue(f"{name}: is no CSV ({error})") from None
    except (OSError, KeyError, *DAMAGED_ZIP) as error:
        reason = getattr(error, "strerror", None) or "not a text file of this format"
        raise BadValue(f"{name}: cannot be read ({reason})") from None


def format_of(path: Path) -> str:
    """The name of the format of a file, from its first line."""
    try:
        with _text(path, "") as lines:
            first = next((line for line in lines if line.strip()), "")
    except OSError as error:
        raise BadValue(f"trace {path}: cannot be read ({error.strerror})") from None
    found = [name for name, reader in FORMATS.items() if reader.known(first)]
    return found[0] if found else "csv" if path.suffix.lower() == ".csv" else "mahimahi"


def trace_of(recording: Recording, name: str) -> Trace:
    """The capacity that a recording becomes."""
    return Trace(recording.steps, name, dead_limit_ns=NO_WARNING_NS)


def any_trace(
    path: Path, format_name: str | None, direction: str | None, series: str | None
) -> tuple[Trace, Recording | None]:
    """Read a file of any format; the recording is None if no conversion was needed."""
    name = format_name or format_of(path)
    if valid_name("format", name, [*NATIVE, *FORMATS]) in FORMATS:
        recording = converted(path, name, direction, series)
        return trace_of(recording, f"trace {path}"), recording
    if direction or series:
        option = "--direction" if direction else "--series"
        raise BadValue(f"trace {path}: {option} is not for the format {name}, which has one rate")
    if (name == "csv") != (path.suffix.lower() == ".csv"):
        raise BadValue(f"trace {path}: expected a name that ends in .csv for csv, and only for it")
    return read_trace(path, dead_limit_ns=NO_WARNING_NS), None


@contextmanager
def _text(path: Path, member: str) -> Iterator[Iterator[str]]:
    """The lines of a file, or of a file in a zip archive."""
    name = f"trace {path / member}"
    if not member:
        with open(path, "rb") as file:
            yield plain_text.lines(file, name)
        return
    with zipfile.ZipFile(path) as archive, archive.open(member) as packed:
        yield plain_text.lines(packed, name)
