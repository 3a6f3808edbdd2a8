"""Reading a journal: whole entries in order, and where a crash has torn its end.

The journal of a run is a folder of segments. ``journal-NNNNNN.jsonl`` holds one entry per line,
``CRC JSON``; ``journal-NNNNNN.bin`` holds their arrays one after another, and the lines have their
places and digests. Old runs have one segment, ``journal.jsonl`` and ``journal.bin``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import orjson

from edgefl.disk import Disk, OwnDisk
from edgefl.errors import UserError, listed
from edgefl.record.old_names import renamed
from edgefl.record.rows import digest
from edgefl.vectors import aligned_copy

OLD = "journal"  # the name of the only segment of an old journal, without the endings
LINES, BLOBS = ".jsonl", ".bin"
SEGMENT = re.compile(r"journal-(\d{6,})\.jsonl")
Row = dict[str, Any]
Mark = tuple[int, int]  # a segment, and a number of entries in it


def segment_name(number: int) -> str:
    """The name of a segment's files, without their endings."""
    return f"journal-{number:06d}"


@dataclass(frozen=True, slots=True)
class Position:
    """The end of an entry: its segment, the entries there, and the bytes of the two files."""

    segment: int
    entries: int = 0
    lines_bytes: int = 0
    blobs_bytes: int = 0


@dataclass(frozen=True, slots=True)
class JournalEvent:
    """An event of the strategy; ``now`` is in nanoseconds.

    ``arrays``: of the event, if the journal keeps them. ``decisions``: their fingerprints.
    """

    now: int
    row: Row
    arrays: dict[str, np.ndarray]
    decisions: list[Row]


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One line of the journal: an input of the coordinator, and the events that it caused.

    ``item`` and ``arrays`` are as they were given to ``Journal.input``; None in a journal of events
    alone. ``wall_s``: when the input was handled. ``caused``: the rows of ``events`` as they were
    written. ``end``: where the entry ends.
    """

    item: Any
    arrays: dict[str, np.ndarray]
    wall_s: float
    events: list[JournalEvent]
    caused: list[Row]
    end: Position


class _Damage(Exception):
    pass


class _Segment:
    """The files of one segment."""

    def __init__(self, directory: Path, number: int, disk: Disk) -> None:
        name = segment_name(number)
        if number == 0 and not disk.exists(directory / f"{name}{LINES}"):
            name = OLD
        self.number, self.lines, self.blobs = (
            number,
            directory / f"{name}{LINES}",
            directory / f"{name}{BLOBS}",
        )
        *self.rows, torn = disk.read(self.lines).split(b"\n")
        self.torn = bool(torn)  # the file ends in the middle of a line
        self._bytes = disk.view(self.blobs) if disk.exists(self.blobs) else memoryview(b"")

    def entry(self, index: int, begin: Position) -> JournalEntry:
        """The entry number ``index``, from 0 on; ``begin``: where it begins."""
        try:
            return self._entry(index, begin)
        except _Damage:
            raise
        except Exception as error:  # its checksum is right, but not its content
            what = f"{type(error).__name__}: {error}"
            raise _Damage(f"{self.lines}: line {index + 1} is damaged ({what})") from error

    def _entry(self, index: int, begin: Position) -> JournalEntry:
        row = self.row(index)
        places: list[list[Any]] = []

        def arrays(found: Mapping[str, list[Any]]) -> dict[str, np.ndarray]:
            places.extend(found.values())
            return {name: self._array(index, name, place) for name, place in found.items()}

        caused = row.get("events", [row])
        events = [
            JournalEvent(
                each["now"],
                renamed(dict(each["event"])),
                arrays(each.get("arrays", {})),
                [renamed(dict(decision)) for decision in each["decisions"]],
            )
            for each in caused
        ]
        of_item = arrays(row["arrays"]) if "events" in row else {}
        end = Position(
            self.number,
            index + 1,
            begin.lines_bytes + len(self.rows[index]) + 1,
            max([begin.blobs_bytes, *map(_end, places)]),
        )
        wall_s = float(row.get("wall_s", 0.0))
        return JournalEntry(row.get("item"), of_item, wall_s, events, caused, end)

    def row(self, index: int) -> Row:
        crc, _, text = self.rows[index].partition(b" ")
        if crc != b"%08x" % crc32(text):
            raise _Damage(f"{self.lines}: line {index + 1} is damaged (checksum differs)")
        row = orjson.loads(text)
        if not isinstance(row, dict):
            raise _Damage(f"{self.lines}: line {index + 1} is damaged (no JSON object)")
        return row

    def marks(self, since: int) -> Iterator[Mark]:
        """What was durable when the whole lines from ``since`` on were written."""
        for index in range(since, len(self.rows)):
            with suppress(_Damage, ValueError, TypeError):
                segment, entries = self.row(index).get("durable", (self.number, index))
                yield int(segment), int(entries)

    def _array(self, index: int, name: str, place: list[Any]) -> np.ndarray:
        begin, _, expected, *more = place
        data = np.frombuffer(self._bytes[begin : _end(place)], np.uint8)
        if data.size != _end(place) - begin or digest(data) != expected:
            raise _Damage(
                f"{self.blobs}: the array {name!r} of line {index + 1} is damaged (digest differs)"
            )
        if not more:
            return aligned_copy(data.view(np.float32))
        return aligned_copy(data.view(np.dtype(more[0]))).reshape(more[1])


def _end(place: list[Any]) -> int:
    """Where an array ends; its place is (begin, elements, digest[, type, shape])."""
    begin, elements, _, *more = place
    end: int = begin + elements * np.dtype(more[0] if more else np.float32).itemsize
    return end


def segments(directory: Path, disk: Disk) -> list[int]:
    """The numbers of the journal's segments, in order; an old journal is segment 0."""
    names = disk.names(directory)
    found = {int(match[1]) for name in names if (match := SEGMENT.fullmatch(name))}
    return sorted(found) or [0] * (f"{OLD}{LINES}" in names)


def segments_from(directory: Path, disk: Disk, since: int) -> list[int]:
    """The numbers of the segments from number ``since`` on; UserError if one is missing."""
    numbers = [number for number in segments(directory, disk) if number >= since]
    if not numbers:
        raise UserError(
            f"{directory}: no journal here ({segment_name(since)}{LINES}); a run keeps one with"
            " record.payloads = true"
        )
    missing = sorted(set(range(since, numbers[-1])) - set(numbers))
    if missing:
        names = listed([f"{segment_name(number)}{LINES}" for number in missing])
        raise UserError(f"{directory}: parts of the journal are missing: {names}")
    return numbers


def read(
    directory: Path,
    disk: Disk | None = None,
    since: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[JournalEntry]:
    """Yield the whole entries of the segments from number ``since`` on.

    What a crash has torn at the end is left out: entries after which nothing says that they were
    durable. ``say`` gets a line about it. UserError if there is no journal, if a segment is
    missing, or if an earlier entry or one of its arrays is damaged.
    """
    disk = disk or OwnDisk()
    for number in (numbers := segments_from(directory, disk, since)):
        segment, end = _Segment(directory, number, disk), Position(number)
        try:
            for index in range(len(segment.rows)):
                entry = segment.entry(index, end)
                yield entry
                end = entry.end
            if segment.torn:
                raise _Damage(f"{segment.lines}: line {end.entries + 1} is torn")
        except _Damage as damage:
            later = (_Segment(directory, each, disk) for each in numbers if each > number)
            marks = chain(segment.marks(end.entries + 1), *(each.marks(0) for each in later))
            if any(mark > (number, end.entries) for mark in marks):
                raise UserError(
                    f"{damage}, and later entries are whole: the disk has lost data. If you delete"
                    f" this line of {segment.lines.name} and all later ones (later segments, too),"
                    " the rest can be used"
                ) from None
            say(f"{damage}; it was written when the run broke off, so it is left out")
            return
