"""The journal of a run: every event that the strategy got, its arrays and decision fingerprints.

``journal.jsonl`` holds one line per event, ``CRC JSON``. ``journal.bin`` holds the arrays one after
another; the lines have their digests. A torn last line is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import orjson

from edgefl.disk import Disk, OwnDisk
from edgefl.errors import UserError
from edgefl.record.old_names import renamed
from edgefl.record.row_file import RowFile
from edgefl.record.rows import digest, event_row, fingerprint
from edgefl.strategies.base.decisions import Decision
from edgefl.strategies.base.events import Event, JobDone, UpdateArrived
from edgefl.vectors import aligned_copy

LINES, BLOBS = "journal.jsonl", "journal.bin"


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One line of the journal; ``arrays`` are aligned copies, ``now`` is in nanoseconds."""

    now: int
    row: dict[str, Any]
    arrays: dict[str, np.ndarray]
    decisions: list[dict[str, Any]]


class Journal:
    """Writer of one run's journal in ``directory``."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        disk = disk or OwnDisk()
        disk.make_folder(directory)
        # private, because updates reveal something about the training data
        self._lines = RowFile(directory / LINES, disk, private=True)
        self._blobs = RowFile(directory / BLOBS, disk, private=True)
        self._offset = 0

    def write(self, now: int, event: Event, decisions: list[Decision]) -> None:
        arrays = event.vectors if isinstance(event, (UpdateArrived, JobDone)) else {}
        places = {name: self._put(array) for name, array in arrays.items()}
        line = {
            "now": now,
            "event": event_row(event),
            "arrays": places,
            "decisions": [fingerprint(d) for d in decisions],
        }
        if places:
            self._blobs.flush()  # the arrays must reach the system before the line that names them
        text = orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY)
        self._lines.write(b"%08x %b\n" % (crc32(text), text))

    def flush(self) -> None:
        """Hand everything to the operating system, so that it survives a crash of this process."""
        self._blobs.flush()
        self._lines.flush()

    def close(self) -> None:
        self._blobs.close()
        self._lines.close()

    def _put(self, array: np.ndarray) -> tuple[int, int, str]:
        """Append the array as float32; return (byte offset, element count, digest)."""
        data = np.ascontiguousarray(array, dtype=np.float32)
        self._blobs.write(data.reshape(-1).view(np.uint8).data)
        place = (self._offset, data.size, digest(data))
        self._offset += data.nbytes
        return place


def read(directory: Path) -> Iterator[JournalEntry]:
    """Yield the journal's entries up to the last whole line.

    UserError if there is no journal, or if a line or an array is damaged.
    """
    if not all((directory / name).exists() for name in (LINES, BLOBS)):
        raise UserError(
            f"{directory}: no journal here ({LINES} and {BLOBS}); a run keeps one with"
            " record.payloads = true"
        )
    blobs = (
        np.memmap(directory / BLOBS, dtype=np.uint8, mode="r")
        if (directory / BLOBS).stat().st_size
        else np.empty(0, np.uint8)
    )
    lines = (directory / LINES).read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        crc, _, text = line.partition(b" ")
        if crc != b"%08x" % crc32(text):
            if number == len(lines):
                return  # torn by a crash
            raise UserError(f"{directory / LINES}: line {number} is damaged (checksum differs)")
        row = orjson.loads(text)
        arrays = {}
        for name, (at, size, expected) in row["arrays"].items():
            found = blobs[at : at + 4 * size]
            if found.size != 4 * size or digest(found) != expected:
                raise UserError(
                    f"{directory / BLOBS}: the array {name!r} of line {number} is damaged (digest"
                    " differs)"
                )
            arrays[name] = aligned_copy(found.view(np.float32))
        decisions = [renamed(decision) for decision in row["decisions"]]
        yield JournalEntry(row["now"], renamed(row["event"]), arrays, decisions)
