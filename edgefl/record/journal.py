"""The journal of a run: what the coordinator was given, and what the strategy decided.

On the wall clock an entry is an input of the coordinator, with the events that it caused. Under the
virtual clock it is an event. Events have fingerprints of the strategy's decisions, so that a replay
can check them.

The journal is a folder of segments. ``journal-NNNNNN.jsonl`` holds one entry per line,
``CRC JSON``; ``journal-NNNNNN.bin`` holds their arrays one after another, and the lines have their
places and digests. Old runs have one segment, ``journal.jsonl`` and ``journal.bin``.

``replay``: a fresh strategy must make the same decisions, bit for bit.
"""

from __future__ import annotations

import math
import re
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import numpy as np
import orjson

from edgefl.disk import Disk, OwnDisk
from edgefl.errors import UserError, listed, own_place, told, users_place
from edgefl.record.files import renamed
from edgefl.record.rows import digest, event_row, fingerprint
from edgefl.record.tables import RowFile, not_written
from edgefl.snake_case import snake
from edgefl.strategies.base import events_and_decisions as do
from edgefl.strategies.base import events_and_decisions as ev
from edgefl.strategies.base.events_and_decisions import Decision, Event, JobDone, UpdateArrived
from edgefl.strategies.base.strategy import Strategy
from edgefl.vectors import aligned_copy, read_only

NOTHING: Mark = (0, 0)
OLD = "journal"  # the name of the only segment of an old journal, without the endings
LINES, BLOBS = ".jsonl", ".bin"
SEGMENT = re.compile(r"journal-(\d{6,})\.jsonl")
Row = dict[str, Any]
End = Literal["", "ends", "over"]
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
    written. ``at``: where the entry ends. ``end``: "ends": the input has ended the run; "over": it
    came after the end.
    """

    item: Any
    arrays: dict[str, np.ndarray]
    wall_s: float
    events: list[JournalEvent]
    caused: list[Row]
    at: Position
    end: End = ""


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
        try:
            *self.rows, torn = disk.read(self.lines).split(b"\n")
            self._bytes = disk.view(self.blobs) if disk.exists(self.blobs) else memoryview(b"")
        except OSError as error:
            raise UserError(f"{error.filename}: cannot be read ({error.strerror})") from error
        self.torn = bool(torn)  # the file ends in the middle of a line

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
        of_run: End = row.get("end", "")
        return JournalEntry(row.get("item"), of_item, wall_s, events, caused, end, of_run)

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
    missing or cannot be read, or if an earlier entry or one of its arrays is damaged.
    """
    disk = disk or OwnDisk()
    for number in (numbers := segments_from(directory, disk, since)):
        segment, end = _Segment(directory, number, disk), Position(number)
        try:
            for index in range(len(segment.rows)):
                entry = segment.entry(index, end)
                yield entry
                end = entry.at
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


# ---------------------------------------------------------------------- writing
class Journal:
    """Writer of one run's journal in ``directory``.

    ``inputs``: entries are inputs, see ``input``; else events. ``payloads``: keep the arrays of
    events and never drop a segment, so that the strategy can be replayed. ``power``: the caller
    calls ``sync``, and entries say how many before them survive a loss of power.

    One thread writes; another one may call ``sync``.
    """

    def __init__(
        self,
        directory: Path,
        disk: Disk | None = None,
        *,
        inputs: bool = False,
        payloads: bool = True,
        power: bool = False,
        resumed: bool = False,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """``resumed``: there is a journal already; call ``replay`` before anything is written.

        ``sizes``: go on with a journal of events as it was at that moment, see ``sizes()``.
        """
        self.directory, self.disk = directory, disk or OwnDisk()
        self.inputs, self.payloads, self.power = inputs, payloads, power
        self._events: list[dict[str, Any]] = []  # of the input that is being handled
        self._closing: deque[tuple[RowFile, RowFile]] = deque()  # segments that need a last sync
        self._digests = _Digests()
        self._written = self._flushed = self._durable = NOTHING
        self._new_names = False  # files whose names are not synced
        self._refused = False  # the disk could not sync, or begin a segment
        if sizes is not None:
            self._open(
                Position(0, 0, *(sizes[f"{segment_name(0)}{end}"] for end in (LINES, BLOBS)))
            )
        elif not resumed:
            self.disk.make_folder(directory)
            for number in segments(directory, self.disk):
                self._remove(number)
            self._open(Position(0))
            if power:  # before any row of the run: a run without a journal cannot go on
                self.disk.sync_folder(directory)

    # ------------------------------------------------------------------ writing
    def write(self, now: int, event: Event, decisions: list[Decision]) -> None:
        """Write an event; with ``inputs``, keep it for the entry of the input that caused it."""
        vectors = event.vectors if isinstance(event, (UpdateArrived, JobDone)) else {}
        row = {"now": now, "event": event_row(event)}
        decided = [fingerprint(decision, self._digests) for decision in decisions]
        if self.inputs:
            self._events.append({**row, "arrays": vectors, "decisions": decided})
        else:
            places = {name: self._put(array) for name, array in vectors.items()}
            self._entry({**row, "arrays": places, "decisions": decided})

    def input(
        self, item: Any, arrays: Mapping[str, np.ndarray], wall_s: float, end: End = ""
    ) -> None:
        """Write an input that was handled, with the events that it caused.

        ``item``: a row of JSON. ``arrays``: the large parts of the input. ``wall_s``: seconds of
        the run's own clock, for rows that need it in a replay. ``end``: as in JournalEntry.
        """
        known = {id(array): self._put(array) for array in arrays.values()}
        events, self._events = self._events, []
        for event in events:
            vectors = event.pop("arrays")
            if self.payloads:
                event["arrays"] = {
                    name: known.get(id(array)) or self._put(array)
                    for name, array in vectors.items()
                }
        entry = {
            "item": item,
            "arrays": {name: known[id(array)] for name, array in arrays.items()},
            "wall_s": wall_s,
            "events": events,
            **({"end": end} if end else {}),
        }
        self._entry(entry | {"durable": self._durable} if self.power else entry)

    def flush(self) -> None:
        """Hand everything to the operating system, so that it survives a crash of this process."""
        with ExitStack() as each:  # flush the lines, too, if the arrays fail: they stay whole rows
            each.callback(self._lines.flush)
            each.callback(self._blobs.flush)
        self._flushed = self._written

    def sync(self) -> None:
        """Return when all that was flushed survives a loss of power. UserError if that fails.

        The thread that writes may go on meanwhile.
        """
        # In this order: a segment that begins meanwhile has put the one before into _closing.
        reached, current = self._flushed, self._files
        try:
            while self._closing:
                files = self._closing.popleft()
                for file in files:
                    file.sync()
                    file.close()
            if self._new_names:
                self._new_names = False
                try:
                    self.disk.sync_folder(self.directory)
                except OSError as error:
                    raise not_written(self.directory, error) from error
            for file in current:
                file.sync()
        except UserError:
            self._refused = True
            raise
        self._durable = reached

    @property
    def has_durable(self) -> bool:
        """Whether a ``sync`` has made entries durable."""
        return self._durable != NOTHING

    @property
    def failed(self) -> bool:
        """Whether the disk has refused an entry; it may be lost, and so are all later ones."""
        return self._refused or any(file.failed for file in self._files)

    def close(self) -> None:
        """Close the files."""
        for files in (*self._closing, self._files):
            for file in files:
                file.close()

    def drop(self) -> None:
        """Delete the files: the run has ended, and no replay will need them.

        A journal with payloads stays. Files that cannot be deleted stay, unread.
        """
        if not self.payloads:
            with suppress(OSError):
                for number in segments(self.directory, self.disk):
                    self._remove(number)

    # ------------------------------------------------------------------ segments
    def begin_segment(self) -> int:
        """Begin the next segment between two entries, and return its number.

        A checkpoint of this number holds the state at this moment. UserError if it cannot begin.
        """
        self.flush()
        if self.power:
            self._closing.append(self._files)
        else:
            for file in self._files:
                file.close()
        try:
            self._open(Position(self._written[0] + 1))
        except OSError as error:
            self._refused = True
            raise not_written(self.directory, error) from error
        return self._written[0]

    def drop_before(self, segment: int) -> None:
        """Drop the segments before this one, because checkpoints have made them needless.

        What cannot be deleted is tried again the next time.
        """
        if not self.payloads:
            with suppress(OSError):
                for number in segments(self.directory, self.disk):
                    if number < segment:
                        self._remove(number)

    def sizes(self) -> dict[str, int]:
        """The bytes of each file of a journal of events, entries still in memory included."""
        return {file.path.name: file.size_bytes for file in self._files}

    # ------------------------------------------------------------------ replay
    def replay(
        self, since: int = 0, say: Callable[[str], None] = lambda line: None
    ) -> Iterator[JournalEntry]:
        """Yield the entries from segment ``since`` on; then be ready to write after the last one.

        The caller handles each entry, but writes nothing. UserError if the events that it caused
        differ from the journal's, and as ``read`` does. ``say`` gets a line about a torn end.
        """
        end, ends = Position(since), dict[int, Position]()
        if segments(self.directory, self.disk):
            for entry in read(self.directory, self.disk, since, say):
                yield entry
                self._check(entry)
                end = ends[entry.at.segment] = entry.at
        if self.power:  # the former process may have died before it had synced them
            self._closing.extend(
                self._files_to(at) for number, at in ends.items() if number < end.segment
            )
        for number in segments(self.directory, self.disk):
            if number > end.segment:
                self._remove(number)
        self.disk.make_folder(self.directory)
        self._open(end)

    def _check(self, entry: JournalEntry) -> None:
        events, self._events = self._events, []
        for event in events:
            del event["arrays"]
        caused = [{k: v for k, v in row.items() if k != "arrays"} for row in entry.caused]
        found = orjson.loads(_text(events))
        if entry.end == "ends":  # a run that is lengthened goes on there
            found = found[: len(caused)]
        if found != caused:
            number = entry.at.entries
            name = f"{segment_name(entry.at.segment)}{LINES}"
            raise UserError(
                f"{self.directory / name}: the input of line {number} decided {found} when it was"
                f" repeated, the journal has {caused}"
            )

    # ------------------------------------------------------------------ files
    def _files_to(self, end: Position) -> tuple[RowFile, RowFile]:
        """Open a segment's files, cut off at ``end``, in the order in which they are synced."""
        path = self.directory / segment_name(end.segment)
        # private, because updates reveal something about the training data
        lines, blobs = (
            RowFile(Path(f"{path}{ending}"), self.disk, keep_bytes, private=True)
            for ending, keep_bytes in ((LINES, end.lines_bytes), (BLOBS, end.blobs_bytes))
        )
        return blobs, lines

    def _open(self, end: Position) -> None:
        self._files = self._blobs, self._lines = self._files_to(end)
        self._written = self._flushed = (end.segment, end.entries)
        self._new_names = True

    def _remove(self, number: int) -> None:
        for ending in (BLOBS, LINES):
            self.disk.remove(self.directory / f"{segment_name(number)}{ending}")

    def _entry(self, row: dict[str, Any]) -> None:
        if row["arrays"] or any(event.get("arrays") for event in row.get("events", ())):
            self._blobs.flush()  # the arrays must reach the system before the line that names them
        text = _text(row)
        self._lines.write(b"%08x %b\n" % (crc32(text), text))
        self._written = (self._written[0], self._written[1] + 1)

    def _put(self, array: np.ndarray) -> list[Any]:
        """Append the array; return its place: offset, elements, digest[, type, shape]."""
        data = np.ascontiguousarray(array)
        place = [self._blobs.size_bytes, data.size, self._digests(array)]
        self._blobs.write(data.reshape(-1).view(np.uint8).data)
        plain = array.dtype == np.float32 and array.ndim == 1
        return place if plain else [*place, array.dtype.str, list(array.shape)]


class _Digests:
    """Digests of arrays. A model that is in several decisions is digested once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[np.ndarray], str]] = {}

    def __call__(self, array: np.ndarray) -> str:
        if array.flags.writeable:
            return digest(array)  # its content may change
        found = self._known.get(id(array))
        if found is None or found[0]() is not array:
            gone = id(array)
            found = weakref.ref(array, lambda _: self._known.pop(gone, None)), digest(array)
            self._known[gone] = found
        return found[1]


def _text(row: Any) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)


# ---------------------------------------------------------------------- replay


@dataclass(slots=True)
class Replay:
    """The result of a replay: number of events, last version, last weights."""

    weights: np.ndarray
    events: int = 0
    version: int = 0


def replay(
    directory: Path,
    strategy: Strategy,
    say: Callable[[str], None] = lambda line: None,
    received: Callable[[np.ndarray, int], np.ndarray] = lambda model, version: model,
    until: int | None = None,
) -> Replay:
    """Give ``strategy`` the events of the journal in ``directory``.

    ``say`` gets a line if the end of the journal is torn. ``received``: the model that an edge gets
    of a model that is sent as a version. ``until``: the replay ends with this version. UserError
    names the first event whose decisions differ from the journal.
    """
    result = Replay(strategy.weights)
    read_only([strategy.weights])  # as in the run, also below
    bases: dict[int, np.ndarray] = {}  # of the open tasks
    numbers = count()
    if until == 0:
        return result
    for event in (event for entry in read(directory, say=say) for event in entry.events):
        result.events += 1
        made = _event(event, bases)
        try:
            decisions = do.up_to_finish(strategy.handle(made, event.now))
        except (UserError, KeyboardInterrupt):
            raise
        except BaseException as error:  # also SystemExit
            module = type(strategy).__module__
            place = own_place(error, module) or users_place(error)
            raise UserError(
                f"{directory}: event {result.events} ({event.row['event']}):"
                f" {type(strategy).__name__} failed: {told(error, module)}{place}"
            ) from error
        found = _plain([fingerprint(decision) for decision in decisions])
        if found != event.decisions:
            raise UserError(
                f"{directory}: event {result.events} ({event.row['event']}) decided {found}, the"
                f" journal has {event.decisions}"
            )
        for decision in decisions:
            match decision:
                case do.Assign():
                    model = received(decision.vectors["weights"], result.version)
                    read_only([model, *decision.vectors.values()])
                    bases |= {next(numbers): model for _ in decision.edges}
                case do.Cancel():
                    del bases[decision.task]
                case do.Publish():
                    result.version, result.weights = result.version + 1, decision.weights
                    read_only([decision.weights])
                    if result.version == until:
                        return result
    return result


def _event(event: JournalEvent, bases: dict[int, np.ndarray]) -> ev.Event:
    """Return the event with its arrays; an update or a closing ends its task in ``bases``."""
    kind = next(kind for kind in ev.Event.__args__ if snake(kind.__name__) == event.row["event"])
    values: dict[str, Any] = {
        f.name: event.row[f.name] for f in fields(kind) if f.name in event.row
    }
    if kind in (ev.UpdateArrived, ev.TaskClosed):
        base = bases.pop(values["task"])
    if kind is ev.UpdateArrived:
        values |= {"base": base}
    if kind in (ev.UpdateArrived, ev.JobDone):
        read_only(event.arrays.values())
        values |= {"vectors": event.arrays}
    if kind is ev.Evaluated:
        values["version"] = event.row["of_version"]
        scores = values["scores"].items()  # JSON has no nan
        values["scores"] = {name: math.nan if n is None else n for name, n in scores}
    made: ev.Event = kind(**values)
    return made


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return ``rows`` as JSON would return them: tuples become lists."""
    return [
        {key: list(value) if isinstance(value, tuple) else value for key, value in row.items()}
        for row in rows
    ]
