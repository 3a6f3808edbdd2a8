"""The files of a run: read while they grow, after a crash, as dicts, or as columns.

Start with ``Tail``: it returns the whole rows that were added to a table and its parts. Above it:
``read_csv`` and ``read_events`` give rows as dicts; ``TableTail`` follows a CSV file;
``TableColumns`` and ``EventColumns`` hold many rows as numpy columns, where each file is read once.

Rows of events.jsonl with the same keys are grouped, because C code then turns their values into
columns. Texts are numbers of one list. The columns of 200,000 events take 40 MB; as dicts they take
300 MB. The timeline, the figures, the Parquet export and the live page all read through here.
"""

from __future__ import annotations

import csv
import gc
import math
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import orjson

from edgefl.errors import UserError, undamaged
from edgefl.record.files import renamed, renamed_keys
from edgefl.record.tables import PACKED, parts, unpacked

AT_ONCE = 1 << 22  # bytes of a file that are read at a time
TABLE_BYTES = 1 << 20  # of a CSV file
FINGERPRINT_BYTES = 256  # of the rows before: they tell whether a file has only grown
# So many rows are Python objects at a time: they fit the processor's cache.
ROWS_AT_ONCE = 2000
POWERS = 10.0 ** np.arange(23)  # exact
MISSING = -1  # in a column of texts or of whole numbers: the row has none
# Columns of CSV files that are texts; all others are numbers.
TEXTS = {"edge", "direction", "kind", "what", "host", "machine", "throttled", "runtime", "state"}
# What the timeline, figures and the page need of events.jsonl; without what a text may say freely.
NEEDED = frozenset(
    (
        *("t", "event", "fact", "edge", "task", "version", "base_version", "until_ns", "kind"),
        *("for_s", "do", "edges", "tasks", "broadcast", "made_of", "of_version"),
    )
)
# Which types a key of a row of events.jsonl, or of a decision, may have, if it has the key.
TYPES: Mapping[str, set[type]] = {
    "t": {int, float},
    "event": {str},
    "fact": {str},
    "edge": {str, NoneType},
    "version": {int, NoneType},
    "task": {int, NoneType},
}


def number(text: Any) -> float | None:
    """Return a finite number from a CSV field or JSON value; None if it is not one."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


# ---------------------------------------------------------------------- files that grow
class Tail:
    """Reader of a growing text file and its parts (``edgefl.record.tables``).

    A missing file counts as empty. A last line without its newline is not returned yet. ``anew``
    counts how often the file began again, or lost rows, as when a run is resumed or done again:
    then all its rows are returned once more, or with ``once`` none any more: none comes twice.
    """

    def __init__(self, path: Path, once: bool = False) -> None:
        self._path, self._once = path, once
        self._part = self._offset = 0  # the last part that was read, and the bytes of the next one
        self._older = b""  # rows of parts that are not returned yet
        self._last = b""  # the bytes before the offset, which stay as long as the file only grows
        self.anew = 0

    def read_new(self, most_bytes: int | None = None) -> list[str]:
        """Return the complete lines added since the last call. UserError names a damaged part.

        ``most_bytes``: leave further lines to the next call, so that a long file needs little
        memory. One line is always returned, however long it is.
        """
        # Not splitlines(): a JSON string may contain other line separators, such as U+2028.
        lines = self.read_bytes(most_bytes).decode("utf-8", errors="replace").split("\n")[:-1]
        return [line.rstrip("\r") for line in lines]

    def read_bytes(self, most_bytes: int | None = None) -> bytes:
        """Return what ``read_new`` returns as one piece, each line with its newline."""
        rows, more = self._chunk(most_bytes)
        while more and most_bytes is None:
            chunk, more = self._chunk(None)
            rows += chunk
        return b"" if self._once and self.anew else rows

    def _chunk(self, most: int | None) -> tuple[bytes, bool]:
        """The next complete lines, and whether they are those of a part, so that others follow."""
        while not self._older:
            known = parts(self._path)
            if max(known, default=0) < self._part:
                self._begin_again()
            new = [number for number in known if number > self._part]
            if new:
                self._older = _rows_of_part(known[new[0]])[self._offset :]
                self._part, self._offset, self._last = new[0], 0, b""
                continue
            rows, grown = self._read(most)
            if parts(self._path).keys() != known.keys():
                continue  # the file has become a part meanwhile
            if not grown:
                self._begin_again()
            self._offset += len(rows)
            self._last = (self._last + rows)[-FINGERPRINT_BYTES:]
            return rows, False
        end = len(self._older)
        if most is not None and end > most:  # at least one line, however long it is
            older = self._older
            end = older.rfind(b"\n", 0, most) + 1 or older.find(b"\n", most) + 1 or end
        rows, self._older = self._older[:end], self._older[end:]
        return rows, True

    def _read(self, most: int | None) -> tuple[bytes, bool]:
        """The complete lines of the file from the offset on, and True.

        If the file has not only grown: its lines from the beginning on, and False.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset - len(self._last))
                grown = file.read(len(self._last)) == self._last
                file.seek(self._offset if grown else 0)
                data = file.read(-1 if most is None else most)
                while b"\n" not in data and (more := file.read(most or -1)):
                    data += more  # a long line
        except FileNotFoundError:
            return b"", self._offset == 0
        return data[: data.rfind(b"\n") + 1], grown

    def _begin_again(self) -> None:
        self._part, self._offset, self._last = 0, 0, b""
        self.anew += 1


def _rows_of_part(part: Path) -> bytes:
    """The rows of a part, which may have been packed meanwhile."""
    packed = part.with_name(part.name.removesuffix(PACKED) + PACKED)
    for path in (part, packed):
        with undamaged(path), suppress(FileNotFoundError):
            return unpacked(path)
    return b""  # record.keep has removed it


def is_torn(path: Path) -> bool:
    """Return whether the file ends in the middle of a line, as after a crash."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False


# ---------------------------------------------------------------------- rows as dicts
def parse_events(lines: Iterable[str | bytes]) -> list[dict[str, Any]]:
    """Return the lines that are rows of events and leave out others, for the live display."""
    events = []
    for line in lines:
        with suppress(orjson.JSONDecodeError):
            if _is_row(event := orjson.loads(line)):
                events.append(event)
    return events


def _is_row(event: Any) -> bool:
    """Whether it has the form of a row; which other fields it has depends on its kind."""
    decisions = event.get("decisions", []) if isinstance(event, dict) else None
    return isinstance(decisions, list) and all(
        isinstance(each, dict)
        and all(type(each[key]) in types for key, types in TYPES.items() if key in each)
        for each in (event, *decisions)
    )


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return all rows of an events.jsonl without a torn last line; [] if it is missing.

    UserError names a damaged line.
    """
    return list(iter_events(path))


def iter_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what ``read_events`` returns, so that a long file needs little memory."""
    tail, place = Tail(path, once=True), 0
    while lines := tail.read_new(AT_ONCE):
        for line in lines:
            place += 1
            (event,) = parse_events([line]) or (None,)
            if event is None:
                raise UserError(f"{path}: line {place} is no row of events; the file is damaged")
            with undamaged(path):
                row = renamed(event)
            yield row


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return all rows of a CSV file without a torn last line; [] if it is missing.

    UserError names a damaged row.
    """
    return list(iter_csv(path))


def iter_csv(path: Path) -> Iterator[dict[str, str]]:
    """Yield what ``read_csv`` returns, so that a long file needs little memory."""
    tail = TableTail(path, strict=True)
    while (columns := tail.columns(AT_ONCE)) is not None:
        for row in zip(*columns):
            yield dict(zip(tail.names, row))


# ---------------------------------------------------------------------- columns
class Texts:
    """Texts as numbers from 0 on, in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self.number: Callable[[str], int] = self._numbers.__getitem__
        """The number of a text, which it gets now if it has none."""

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, texts: Sequence[str]) -> np.ndarray:
        return np.fromiter(map(self.number, texts), np.int32, len(texts))

    @property
    def all(self) -> list[str]:
        """The texts, in the order of their numbers."""
        return list(self._numbers)

    def ranks(self) -> np.ndarray:
        """The place of each text among all in alphabetical order."""
        ranks, texts = np.empty(len(self), np.int64), self.all
        ranks[sorted(range(len(self)), key=texts.__getitem__)] = np.arange(len(self))
        return ranks


def spread(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """All places from each start on, as many as its length: [3, 9], [2, 1] -> [3, 4, 9]."""
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - before, lengths)


def as_rows(kind: np.dtype, *columns: Any) -> np.ndarray:
    """Return columns, the first of which is an array, as rows of this type with fields."""
    rows = np.empty(len(columns[0]), kind)
    for name, column in zip(kind.names or (), columns, strict=True):
        rows[name] = column
    return rows


def columns_of(rows: np.ndarray) -> list[np.ndarray]:
    """Return the fields of rows as columns."""
    return [rows[name] for name in rows.dtype.names or ()]


def tuples(rows: np.ndarray) -> Iterator[tuple[Any, ...]]:
    """Yield rows with fields as tuples; column by column, which is faster than ``tolist``."""
    return zip(*(column.tolist() for column in columns_of(rows)))


@contextmanager
def without_collection() -> Iterator[None]:
    """Stop the collector of garbage: rows are in no circle, and looking at all of them again and
    again takes longer than reading them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class NotRows(ValueError):
    """Some of these values are no rows of events.jsonl."""


class Lists(NamedTuple):
    """A list per row: ``flat`` has all of them, one after the other. ``of``: str or int."""

    lengths: np.ndarray
    flat: np.ndarray
    of: type


class ColumnPart(NamedTuple):
    """Values of a column, all of one ``type``, in the rows ``at``.

    ``values``: an array for float, int and str (numbers of ``Texts``), Lists for list; for None,
    which is any other type or several, the values as they are.
    """

    at: np.ndarray
    values: Any
    type: type | None


class Columns:
    """Rows that are dicts, as columns.

    A dict in a row is columns of its own: {"numbers": {"loss": 1.0}} has the column "numbers.loss".
    """

    def __init__(self, texts: Texts, only: Collection[str] | None = None) -> None:
        """``only``: keys that become columns; None: all."""
        self.texts, self.count, self._only = texts, 0, only
        self._parts: defaultdict[str, list[ColumnPart]] = defaultdict(list)
        # the first row that has a column, and the place of the column in it
        self.order: dict[str, tuple[int, ...]] = {}

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Take more rows. NotRows if a value has another type than TYPES say."""
        self._take(rows, np.arange(self.count, self.count + len(rows)))
        self.count += len(rows)

    def _take(
        self,
        rows: Sequence[dict[str, Any]],
        at: np.ndarray,
        prefix: str = "",
        above: tuple[int, ...] = (),
    ) -> None:
        """Take dicts that are rows ``at``, or in one of their values: at the places ``above``."""
        for keys, places in _by_keys(rows):
            own = at[places]
            alike = map(rows.__getitem__, places.tolist())
            columns: Iterable[Sequence[Any]] = zip(*map(dict.values, alike))
            if prefix == "numbers.":
                named = dict(zip(renamed_keys(keys), columns))
                keys, columns = tuple(named), named.values()
            for place, (key, column) in enumerate(zip(keys, columns)):
                if self._only is not None and key not in self._only:
                    continue
                where, types = (*above, place), set(map(type, column))
                if not types <= TYPES.get(prefix + key, types):
                    raise NotRows(f"{key}: {types}")
                if dict not in types or prefix:
                    self._keep(prefix + key, own, where, column, types)
                    continue
                is_dict = np.array([type(value) is dict for value in column])
                inside = [value for value in column if type(value) is dict]
                self._take(inside, own[is_dict], f"{key}.", where)
                if len(inside) < len(column):
                    others = [value for value in column if type(value) is not dict]
                    self._keep(key, own[~is_dict], where, others, types - {dict})

    def _keep(
        self,
        name: str,
        at: np.ndarray,
        where: tuple[int, ...],
        values: Sequence[Any],
        types: set[type],
    ) -> None:
        first = (int(at[0]), *where)
        self.order[name] = min(self.order.get(name, first), first)
        self._parts[name].append(self._packed(at, values, types))

    def _packed(self, at: np.ndarray, values: Sequence[Any], types: set[type]) -> ColumnPart:
        if types == {float}:
            return ColumnPart(at, np.array(values), float)
        if types == {str}:
            return ColumnPart(at, self.texts.numbers(values), str)
        if types == {int} and (packed := np.array(values)).dtype == np.int64:  # else too large
            return ColumnPart(at, packed, int)
        if types == {list}:
            flat = list(chain.from_iterable(values))
            lengths = np.fromiter(map(len, values), np.int64, len(values))
            if not (inside := set(map(type, flat))) - {str}:
                return ColumnPart(at, Lists(lengths, self.texts.numbers(flat), str), list)
            if inside == {int} and (packed := np.array(flat)).dtype == np.int64:
                return ColumnPart(at, Lists(lengths, packed, int), list)
        return ColumnPart(at, values, None)

    @property
    def names(self) -> list[str]:
        """The columns, in the order in which the rows have them first."""
        return sorted(self.order, key=self.order.__getitem__)

    def parts(self, name: str) -> list[ColumnPart]:
        """The values of a column; [] if no row has it."""
        return self._parts.get(name, [])

    def _filled(
        self, name: str, empty: Any, dtype: Any, values_of: Callable[[ColumnPart], Any]
    ) -> np.ndarray:
        """A column of all rows; ``values_of`` a part may be None: its rows stay empty."""
        column = np.full(self.count, empty, dtype)
        for part in self.parts(name):
            if (values := values_of(part)) is not None:
                column[part.at] = values
        return column

    def has(self, name: str) -> np.ndarray:
        """Which rows have a column."""
        return self._filled(name, False, bool, lambda part: True)

    def has_list(self, name: str) -> np.ndarray:
        """Which rows have a list of texts or whole numbers in a column."""
        return self._filled(name, False, bool, lambda part: part.type is list)

    def floats(self, name: str) -> np.ndarray:
        """The numbers of a column; NaN where there is no finite one."""

        def values(part: ColumnPart) -> Any:
            if part.type in (float, int):
                return part.values
            of_part = self.unpacked(part)
            return [np.nan if (n := number(each)) is None else n for each in of_part]

        return self._filled(name, np.nan, np.float64, values)

    def whole(self, name: str) -> np.ndarray:
        """The whole numbers of a column; MISSING where there is none."""

        def values(part: ColumnPart) -> Any:
            if part.type is None:
                return [each if type(each) is int else MISSING for each in part.values]
            return part.values if part.type is int else None

        return self._filled(name, MISSING, np.int64, values)

    def texts_of(self, name: str) -> np.ndarray:
        """The texts of a column as numbers of ``texts``; MISSING where there is none."""

        def values(part: ColumnPart) -> Any:
            if part.type is None:
                of = self.texts.number
                return [of(each) if isinstance(each, str) else MISSING for each in part.values]
            return part.values if part.type is str else None

        return self._filled(name, MISSING, np.int32, values)

    def values(self, name: str) -> list[Any]:
        """The values of a column as they are in the file; None where a row has none."""
        column: list[Any] = [None] * self.count
        for part in self.parts(name):
            for row, value in zip(part.at.tolist(), self.unpacked(part)):
                column[row] = value
        return column

    def unpacked(self, part: ColumnPart) -> list[Any]:
        """The values of a part as they are in the file."""
        if part.type is None:
            return list(part.values)
        if part.type is str:
            texts = self.texts.all
            return [texts[each] for each in part.values.tolist()]
        if part.type is list:
            texts, flat = self.texts.all, part.values.flat.tolist()
            every = iter([texts[each] for each in flat] if part.values.of is str else flat)
            return [list(islice(every, length)) for length in part.values.lengths.tolist()]
        unpacked: list[Any] = part.values.tolist()
        return unpacked

    def lists(self, name: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lists of a column in these rows: the length of each, and all items.

        Texts as their numbers. KeyError if one of the rows has no list of texts or whole numbers.
        """
        starts = np.full(self.count, MISSING)
        lengths, flats = np.zeros(self.count, np.int64), [np.zeros(0, np.int64)]
        size = 0
        for at, values, kind in self.parts(name):
            if kind is list:
                ends = np.cumsum(values.lengths)
                starts[at] = size + ends - values.lengths
                lengths[at] = values.lengths
                flats.append(values.flat)
                size += len(values.flat)
        if (starts[rows] == MISSING).any():
            raise KeyError(name)
        own = lengths[rows]
        return own, np.concatenate(flats)[spread(starts[rows], own)]


def _by_keys(rows: Sequence[dict[str, Any]]) -> list[tuple[tuple[str, ...], np.ndarray]]:
    """The places of the rows with the same keys, by these keys."""
    shapes = list(map(tuple, rows))
    numbers = {keys: number for number, keys in enumerate(dict.fromkeys(shapes))}
    of_rows = np.fromiter(map(numbers.__getitem__, shapes), np.int64, len(rows))
    return [(keys, np.flatnonzero(of_rows == number)) for keys, number in numbers.items()]


# ---------------------------------------------------------------------- events as columns
class EventColumns:
    """Lines of events.jsonl as columns: ``rows`` without their decisions, and all ``decisions``.

    ``decided_in``: the row of each decision.
    """

    def __init__(self, texts: Texts | None = None, only: Collection[str] | None = NEEDED) -> None:
        """``only``: keys that become columns; None: all."""
        self.texts = Texts() if texts is None else texts
        self.rows, self.decisions = Columns(self.texts, only), Columns(self.texts, only)
        self._decided_in: list[np.ndarray] = []
        self.lines: list[bytes] = []  # of a live page: all rows as they are in the file

    @classmethod
    def of(
        cls,
        rows: Iterable[Mapping[str, Any]],
        texts: Texts | None = None,
        only: Collection[str] | None = NEEDED,
    ) -> EventColumns:
        """Return these rows as columns. NotRows if one is no row of events."""
        events = cls(texts, only)
        events.add([dict(row) for row in rows])
        return events

    @property
    def count(self) -> int:
        return self.rows.count

    @property
    def decided_in(self) -> np.ndarray:
        return np.concatenate([np.zeros(0, np.int64), *self._decided_in])

    def row(self, place: int) -> dict[str, Any]:
        """A row with its decisions, from ``lines``."""
        return renamed(orjson.loads(self.lines[place]))

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Take more rows, which lose their decisions.

        NotRows if one is no row of events: then the columns are of no use any more.
        """
        if not set(map(type, rows)) <= {dict}:
            raise NotRows
        lists = [row.pop("decisions", ()) for row in rows]
        if not set(map(type, lists)) <= {list, tuple}:
            raise NotRows("decisions")
        decisions = list(chain.from_iterable(lists))
        if not set(map(type, decisions)) <= {dict}:
            raise NotRows("decisions")
        before = self.rows.count
        self.rows.add(rows)
        self.decisions.add(decisions)
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        self._decided_in.append(np.repeat(np.arange(before, before + len(rows)), lengths))

    def add_lines(self, chunk: bytes) -> None:
        """Take more lines. ValueError if one is no row of events."""
        lines = chunk.split(b"\n")[:-1]
        with without_collection():
            for first in range(0, len(lines), ROWS_AT_ONCE):
                self.add(list(map(orjson.loads, lines[first : first + ROWS_AT_ONCE])))

    def assigned(self, decisions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The edges of these "assign" decisions, their tasks, and how many each decision has."""
        to_edges, edges = self.decisions.lists("edges", decisions)
        of_tasks, tasks = self.decisions.lists("tasks", decisions)
        lengths = np.minimum(to_edges, of_tasks)
        if (to_edges != of_tasks).any():
            edges = edges[spread(np.cumsum(to_edges) - to_edges, lengths)]
            tasks = tasks[spread(np.cumsum(of_tasks) - of_tasks, lengths)]
        return edges, tasks, lengths


def event_columns(
    path: Path, texts: Texts | None = None, only: Collection[str] | None = NEEDED
) -> EventColumns:
    """Return all rows of an events.jsonl without a torn last line; no rows if it is missing.

    ``only``: see EventColumns. UserError names a damaged line.
    """
    events, tail = EventColumns(texts, only), Tail(path, once=True)
    try:
        while chunk := tail.read_bytes(AT_ONCE):
            events.add_lines(chunk)
    except ValueError:  # not JSON, or no rows
        with undamaged(path):
            return EventColumns.of(iter_events(path), texts, only)  # names the line
    return events


def parsed_events(chunk: bytes, texts: Texts) -> EventColumns:
    """Return the lines that are rows of events and leave out others, for the live page."""
    try:
        events = EventColumns(texts)
        events.add_lines(chunk)
        events.lines = chunk.split(b"\n")[:-1]
    except ValueError:
        lines = chunk.decode("utf-8", errors="replace").split("\n")[:-1]
        rows = parse_events(lines)
        events = EventColumns.of(rows, texts)
        events.lines = [orjson.dumps(row) for row in rows]
    return events


# ---------------------------------------------------------------------- CSV files as columns
class PlainColumn(NamedTuple):
    """A column of lines in ASCII without quotes: the bytes, and where its fields are in them."""

    data: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    def texts(self, rows: Any = slice(None)) -> list[str]:
        whole = self.data.tobytes().decode()
        places = zip(self.begins[rows].tolist(), self.ends[rows].tolist())
        return [whole[begin:end] for begin, end in places]

    def codes(self) -> np.ndarray | None:
        """Return a number for each text, equal for equal texts; None if there are long ones."""
        codes = np.zeros(len(self.ends), np.uint64)
        for characters, inside in self._characters():
            codes = codes * np.uint64(256) + np.where(inside, characters, 0)
        return codes if self._width() <= 8 else None

    def decimals(self) -> np.ndarray | None:
        """Return the numbers; None if a field is not one of few digits, such as 12 or 1.500.

        They are those of ``float``: whole numbers below 2^53 and small powers of ten are exact, so
        their ratio is rounded once.
        """
        count, width = len(self.ends), self._width()
        digits, behind = np.zeros(count, np.int64), np.zeros(count, np.int8)
        dots, others = np.zeros(count, np.int8), np.zeros(count, bool)
        if width > 17:
            return None
        for left, (characters, inside) in enumerate(self._characters(), 1 - width):
            value = characters - np.uint8(ord("0"))
            is_digit, is_dot = (value < 10) & inside, (characters == ord(".")) & inside
            others |= inside & ~is_digit & ~is_dot
            np.copyto(digits, 10 * digits + value, where=is_digit)
            np.copyto(behind, -left, where=is_dot)
            dots += is_dot
        bare = self.ends - self.begins == dots  # without a digit
        if (others | bare | (dots > 1) | (digits >= 2**53)).any():
            return None
        return digits / POWERS[behind]

    def _width(self) -> int:
        return int((self.ends - self.begins).max(initial=0))

    def _characters(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the characters of all fields from left to right, as if they stood at the right, and
        whether they are of the field.
        """
        for left in range(self._width(), 0, -1):
            at = self.ends - left
            yield self.data[at], at >= self.begins


def plain_columns(chunk: bytes, names: Sequence[str]) -> list[PlainColumn] | None:
    """Return the columns of lines of CSV, but for the head, which ``names`` are.

    None if only csv's reader can tell the fields.
    """
    head, data = ",".join(names).encode() + b"\n", np.frombuffer(chunk, np.uint8)
    borders = np.flatnonzero((data == ord(",")) | (data == ord("\n")))
    plain = chunk.isascii() and b'"' not in chunk and b"\r" not in chunk
    plain &= len({*names}) == len(names) and len(borders) % len(names) == 0
    if not plain or chunk.find(head, 1) >= 0:
        return None
    ends = borders.reshape(-1, len(names))
    if ((data[ends] == ord("\n")).sum(axis=0) != [*[0] * (len(names) - 1), len(ends)]).any():
        return None
    begins = np.append(0, borders[:-1] + 1).reshape(ends.shape)
    rows = slice(chunk.startswith(head), None)
    columns = (np.ascontiguousarray(each[rows].T) for each in (begins, ends))
    return [PlainColumn(data, *each) for each in zip(*columns)]


class TableColumns:
    """Rows of a CSV file as columns: numbers of ``texts`` for TEXTS, else floats.

    NaN where a field is no finite number.
    """

    def __init__(self, texts: Texts | None = None, names: tuple[str, ...] = ()) -> None:
        self.texts = Texts() if texts is None else texts
        self.names, self.count = names, 0
        self._parts: list[list[np.ndarray]] = []

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, str]], texts: Texts | None = None) -> TableColumns:
        """Return these rows, all of which have the keys of the first one, as columns."""
        table = cls(texts, tuple(rows[0]) if rows else ())
        if rows:
            table.add([[row[name] for row in rows] for name in table.names])
        return table

    def add(self, columns: Sequence[Sequence[str]]) -> None:
        """Take more rows: the fields of each column, in the order of ``names``."""
        self.count += len(columns[0])
        self._parts.append([self._packed(*each) for each in zip(self.names, columns)])

    def add_plain(self, columns: Sequence[PlainColumn]) -> None:
        """Take more rows, as ``add`` does."""
        self.count += len(columns[0].ends)
        self._parts.append([self._of_plain(*each) for each in zip(self.names, columns)])

    def _of_plain(self, name: str, column: PlainColumn) -> np.ndarray:
        if name not in TEXTS:
            values = column.decimals()
            return self._packed(name, column.texts()) if values is None else values
        if (codes := column.codes()) is None:
            return self.texts.numbers(column.texts())
        _, firsts, of = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        numbers = np.empty(len(firsts), np.int32)
        numbers[order] = self.texts.numbers(column.texts(firsts[order]))
        return numbers[of]

    def _packed(self, name: str, fields: Sequence[str]) -> np.ndarray:
        if name in TEXTS:
            return self.texts.numbers(fields)
        try:
            values = orjson.loads(f"[{','.join(fields)}]")  # seven times as fast as float()
        except orjson.JSONDecodeError:  # an empty field, or NaN
            values = [None]
        # one row with an empty field is a list of no values
        if len(values) != len(fields) or not set(map(type, values)) <= {int, float}:
            values = [np.nan if (n := number(each)) is None else n for each in fields]
        return np.array(values, np.float64)

    def __getitem__(self, name: str) -> np.ndarray:
        """A column. KeyError if the file has no such column, but rows."""
        if not self.count:
            return np.zeros(0, np.int32 if name in TEXTS else np.float64)
        if name not in self.names:
            raise KeyError(name)
        if len(self._parts) > 1:
            self._parts = [[np.concatenate(each) for each in zip(*self._parts)]]
        return self._parts[0][self.names.index(name)]

    def get(self, name: str) -> np.ndarray:
        """A column; empty texts or NaN if the file has no such column."""
        if self.count and name not in self.names:
            empty = self.texts.number("") if name in TEXTS else np.nan
            return np.full(self.count, empty, np.int32 if name in TEXTS else np.float64)
        return self[name]


def read_table(path: Path, texts: Texts | None = None) -> TableColumns:
    """Return all rows of a CSV file without a torn last line; no rows if it is missing.

    UserError names a damaged row.
    """
    table, tail = TableColumns(texts), TableTail(path, strict=True)
    while tail.add_to(table, TABLE_BYTES):
        pass
    return table


class TableTail:
    """Reader of a growing CSV file, as dicts or as columns. ``names``: of its columns.

    Rows of another length are left out, unless it is ``strict``: then they are an error, and no row
    comes twice, see ``Tail``.
    """

    def __init__(self, path: Path, texts: Texts | None = None, strict: bool = False) -> None:
        """``texts``: of ``read_columns``."""
        self._path, self._tail, self._texts, self._strict = path, Tail(path, strict), texts, strict
        self.names: tuple[str, ...] = ()
        self._count = 0  # lines so far

    @property
    def anew(self) -> int:
        """How often the file began again, see ``Tail``."""
        return self._tail.anew

    def read_new(self, most_bytes: int | None = None) -> list[dict[str, str]]:
        """Return the complete rows added since the last call, see ``Tail``."""
        columns = self.columns(most_bytes) or ()
        return [dict(zip(self.names, row)) for row in zip(*columns)]

    def read_columns(self, most_bytes: int | None = None) -> TableColumns:
        """Return the complete rows added since the last call as columns."""
        table = TableColumns(self._texts, self.names)
        self.add_to(table, most_bytes)
        return table

    def add_to(self, table: TableColumns, most_bytes: int | None) -> bool:
        """Add the complete rows since the last call; False if the file has not grown."""
        if not (chunk := self._tail.read_bytes(most_bytes)):
            return False
        plain, columns = self._fields(chunk)
        table.names = self.names
        if plain is not None:
            table.add_plain(plain)
        elif columns:
            table.add(columns)
        return True

    def columns(self, most_bytes: int | None) -> Sequence[Sequence[str]] | None:
        """Return the fields of each column; [] without a row; None if the file has not grown."""
        if not (chunk := self._tail.read_bytes(most_bytes)):
            return None
        plain, columns = self._fields(chunk)
        return columns if plain is None else [each.texts() for each in plain]

    def _fields(self, chunk: bytes) -> tuple[list[PlainColumn] | None, Sequence[Sequence[str]]]:
        """The columns of lines that are plain, or else the fields of each column."""
        chunk = chunk.replace(b"\r\n", b"\n")
        head = chunk[: chunk.find(b"\n")].decode("utf-8", errors="replace")
        names = self.names or tuple(head.split(","))
        if (plain := plain_columns(chunk, names)) is not None:
            self._count += chunk.count(b"\n")
            self.names = names
            return plain, ()
        return None, self._parsed(chunk.decode("utf-8", errors="replace").split("\n")[:-1])

    def _parsed(self, lines: Sequence[str]) -> Sequence[Sequence[str]]:
        """The fields of each column of lines that only csv's reader can tell."""
        with undamaged(self._path):
            rows = [*map(tuple, csv.reader(lines))]
        if self._strict and not self.names and len({*rows[0]}) < len(rows[0]):
            raise UserError(f"{self._path}: a column comes twice ({','.join(rows[0])})")
        names = self.names = self.names or rows[0]
        for place, row in enumerate(rows, self._count + 1) if self._strict else ():
            if len(row) != len(names):
                raise UserError(
                    f"{self._path}: row {place} has {len(row)} fields, expected {len(names)}"
                    f" ({','.join(names)})"
                )
        self._count += len(rows)
        return list(zip(*(row for row in rows if len(row) == len(names) and row != names)))
