"""Read any trace file: mahimahi and CSV as they are, the published formats by their readers."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from emulator import plain_text
from emulator.capacity.trace import Trace, read_trace
from emulator.errors import BadValue, valid_name
from emulator.traces.formats import fcc_webget, hsdpa, irish_5g, nyu_mets, starlink_road
from emulator.traces.formats.trace_format import TraceFormat
from emulator.traces.recording import Recording

FORMATS: Mapping[str, TraceFormat] = {
    reader.FORMAT.name: reader.FORMAT
    for reader in (starlink_road, nyu_mets, hsdpa, fcc_webget, irish_5g)
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
    refused = dict(reader.refused)
    if chosen in refused:
        raise BadValue(f"trace {path}: direction {chosen}: {refused[chosen]}")
    if chosen not in reader.directions:
        valid = (
            " or ".join(filter(None, reader.directions)) or "none, the format names no direction"
        )
        raise BadValue(f"trace {path}: direction {chosen!r}: expected {valid}")
    name = f"trace {path / member}"
    try:
        with _text(path, member) as lines:
            return reader.convert(lines, name, chosen, series)
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
