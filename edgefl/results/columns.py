"""The rows of a run's files as columns: each file is read once, and numpy works on all rows.

Rows of events.jsonl with the same keys are grouped, because C code then turns their values into
columns. Texts are numbers of one list. The columns of 200,000 events take 40 MB; as dicts they take
300 MB. The timeline, the figures, the Parquet export and the live page all read through here.
"""

from __future__ import annotations

import csv
import gc
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from operator import methodcaller
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import orjson

from edgefl.errors import UserError, undamaged
from edgefl.record.rows import renamed, renamed_keys
from edgefl.results.summary import number
from edgefl.results.tail import AT_ONCE, Tail, iter_csv, iter_events, parse_events

# So many rows are Python objects at a time: they fit the processor's cache.
ROWS_AT_ONCE = 2000
TABLE_BYTES = 1 << 20  # of a CSV file
# Columns of CSV files that are texts; all others are numbers.
TEXTS = {"edge", "direction", "kind", "what", "host", "machine", "throttled", "runtime", "state"}
# What the timeline, figures and the page need of events.jsonl; without what a text may say freely.
NEEDED = frozenset(
    (
        *("t", "event", "fact", "edge", "task", "version", "base_version", "until_ns", "kind"),
        *("for_s", "do", "edges", "tasks", "broadcast", "made_of"),
    )
)
MISSING = -1  # in a column of texts or of whole numbers: the row has none

# which types a key of events.jsonl may have, if a row has the key
TYPES: Mapping[str, set[type]] = {
    "t": {int, float},
    "event": {str},
    "fact": {str},
    "edge": {str, NoneType},
    "version": {int, NoneType},
    "task": {int, NoneType},
}


class NotRows(ValueError):
    """Some of these values are no rows of events.jsonl."""


class Texts:
    """Texts as numbers from 0 on, in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, text: str) -> int:
        """The number of a text, which it gets now if it has none."""
        return self._numbers[text]

    def numbers(self, texts: Sequence[str]) -> np.ndarray:
        return np.fromiter(map(self._numbers.__getitem__, texts), np.int32, len(texts))

    @property
    def all(self) -> list[str]:
        """The texts, in the order of their numbers."""
        return list(self._numbers)

    def ranks(self) -> np.ndarray:
        """The place of each text among all in alphabetical order."""
        found, texts = np.empty(len(self), np.int64), self.all
        found[sorted(range(len(self)), key=texts.__getitem__)] = np.arange(len(self))
        return found


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
        self._first: dict[str, tuple[int, ...]] = {}  # the first row of a column, the place in it

    # ------------------------------------------------------------------ rows
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
        self._first[name] = min(self._first.get(name, first), first)
        self._parts[name].append(self._packed(at, values, types))

    def _packed(self, at: np.ndarray, values: Sequence[Any], types: set[type]) -> ColumnPart:
        if types == {float}:
            return ColumnPart(at, np.array(values), float)
        if types == {str}:
            return ColumnPart(at, self.texts.numbers(values), str)
        if types == {int}:
            packed = np.array(values)
            if packed.dtype == np.int64:  # else one is too large
                return ColumnPart(at, packed, int)
        if types == {list}:
            flat = list(chain.from_iterable(values))
            lengths = np.fromiter(map(len, values), np.int64, len(values))
            if not (inside := set(map(type, flat))) - {str}:
                return ColumnPart(at, Lists(lengths, self.texts.numbers(flat), str), list)
            if inside == {int} and (packed := np.array(flat)).dtype == np.int64:
                return ColumnPart(at, Lists(lengths, packed, int), list)
        return ColumnPart(at, values, None)

    # ------------------------------------------------------------------ columns
    @property
    def names(self) -> list[str]:
        """The columns, in the order in which the rows have them first."""
        return sorted(self._first, key=self._first.__getitem__)

    @property
    def order(self) -> Mapping[str, tuple[int, ...]]:
        """The first row that has a column, and the place of the column in it."""
        return self._first

    def parts(self, name: str) -> list[ColumnPart]:
        """The values of a column; [] if no row has it."""
        return self._parts.get(name, [])

    def has(self, name: str) -> np.ndarray:
        """Which rows have a column."""
        found = np.zeros(self.count, bool)
        for at, _, _ in self.parts(name):
            found[at] = True
        return found

    def floats(self, name: str) -> np.ndarray:
        """The numbers of a column; NaN where there is no finite one."""
        found = np.full(self.count, np.nan)
        for at, values, kind in self.parts(name):
            if kind in (float, int):
                found[at] = values
            else:
                found[at] = [np.nan if (n := number(each)) is None else n for each in items(values)]
        return found

    def whole(self, name: str) -> np.ndarray:
        """The whole numbers of a column; MISSING where there is none."""
        found = np.full(self.count, MISSING)
        for at, values, kind in self.parts(name):
            if kind is int:
                found[at] = values
            elif kind is None:
                found[at] = [each if type(each) is int else MISSING for each in values]
        return found

    def texts_of(self, name: str) -> np.ndarray:
        """The texts of a column as numbers of ``texts``; MISSING where there is none."""
        found = np.full(self.count, MISSING, np.int32)
        for at, values, kind in self.parts(name):
            if kind is str:
                found[at] = values
            elif kind is None:
                number_of = self.texts.number
                found[at] = [number_of(x) if isinstance(x, str) else MISSING for x in values]
        return found

    def values(self, name: str) -> list[Any]:
        """The values of a column as they are in the file; None where a row has none."""
        found: list[Any] = [None] * self.count
        for at, values, kind in self.parts(name):
            for row, value in zip(at.tolist(), self.unpacked(values, kind)):
                found[row] = value
        return found

    def unpacked(self, values: Any, kind: type | None) -> list[Any]:
        """The values of a part as they are in the file."""
        if kind is str:
            texts = self.texts.all
            return [texts[each] for each in values.tolist()]
        if kind is list:
            texts, flat = self.texts.all, values.flat.tolist()
            every = iter([texts[each] for each in flat] if values.of is str else flat)
            return [list(islice(every, length)) for length in values.lengths.tolist()]
        return list(items(values))

    def has_list(self, name: str) -> np.ndarray:
        """Which rows have a list of texts or whole numbers in a column."""
        found = np.zeros(self.count, bool)
        for at, _, kind in self.parts(name):
            found[at] = kind is list
        return found

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


def items(values: Any) -> Iterable[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else values


def spread(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """All places from each start on, as many as its length: [3, 9], [2, 1] -> [3, 4, 9]."""
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - before, lengths)


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

    def row(self, place: int) -> dict[str, Any]:
        """A row with its decisions, from ``lines``."""
        return renamed(orjson.loads(self.lines[place]))

    @classmethod
    def of(
        cls,
        rows: Iterable[Mapping[str, Any]],
        texts: Texts | None = None,
        only: Collection[str] | None = NEEDED,
    ) -> EventColumns:
        """Return these rows as columns. NotRows if one is no row of events."""
        found = cls(texts, only)
        found.add([dict(row) for row in rows])
        return found

    @property
    def count(self) -> int:
        return self.rows.count

    @property
    def decided_in(self) -> np.ndarray:
        return np.concatenate([np.zeros(0, np.int64), *self._decided_in])

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

    def assigned(self, decisions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The edges of these "assign" decisions, their tasks, and how many each decision has."""
        to_edges, edges = self.decisions.lists("edges", decisions)
        of_tasks, tasks = self.decisions.lists("tasks", decisions)
        lengths = np.minimum(to_edges, of_tasks)
        if (to_edges != of_tasks).any():
            edges = edges[spread(np.cumsum(to_edges) - to_edges, lengths)]
            tasks = tasks[spread(np.cumsum(of_tasks) - of_tasks, lengths)]
        return edges, tasks, lengths


def read_events(
    path: Path, texts: Texts | None = None, only: Collection[str] | None = NEEDED
) -> EventColumns:
    """Return all rows of an events.jsonl without a torn last line; no rows if it is missing.

    ``only``: see EventColumns. UserError names a damaged line.
    """
    found, tail = EventColumns(texts, only), Tail(path)
    try:
        while chunk := tail.read_bytes(AT_ONCE):
            _add_lines(found, chunk)
    except ValueError:  # not JSON, or no rows
        with undamaged(path):
            return EventColumns.of(iter_events(path), texts, only)  # names the line
    return found


def parsed_events(chunk: bytes, texts: Texts) -> EventColumns:
    """Return the lines that are rows of events and leave out others, for the live page."""
    try:
        found = EventColumns(texts)
        _add_lines(found, chunk)
        found.lines = chunk.split(b"\n")[:-1]
    except ValueError:
        lines = chunk.decode("utf-8", errors="replace").split("\n")[:-1]
        rows = [row for row in parse_events(lines) if _is_row(row)]
        found = EventColumns.of(rows, texts)
        found.lines = [orjson.dumps(row) for row in rows]
    return found


def _is_row(row: Mapping[str, Any]) -> bool:
    try:
        return EventColumns.of([row]).count == 1
    except NotRows:
        return False


def _add_lines(found: EventColumns, chunk: bytes) -> None:
    """ValueError if a line is no row."""
    lines = chunk.split(b"\n")[:-1]
    with without_collection():
        for first in range(0, len(lines), ROWS_AT_ONCE):
            found.add(list(map(orjson.loads, lines[first : first + ROWS_AT_ONCE])))


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


# ---------------------------------------------------------------------- CSV files
class TableColumns:
    """Rows of a CSV file as columns: numbers of ``texts`` for TEXTS, else floats.

    NaN where a field is no finite number.
    """

    def __init__(self, texts: Texts | None = None) -> None:
        self.texts = Texts() if texts is None else texts
        self.names: tuple[str, ...] = ()
        self.count = 0
        self._parts: list[list[np.ndarray]] = []

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, str]], texts: Texts | None = None) -> TableColumns:
        """Return these rows, all of which have the keys of the first one, as columns."""
        found = cls(texts)
        if rows:
            found.names = tuple(rows[0])
            found.add([[row[name] for row in rows] for name in found.names])
        return found

    def add(self, columns: Sequence[Sequence[str]]) -> None:
        """Take more rows: the fields of each column, in the order of ``names``."""
        self.count += len(columns[0])
        self._parts.append([self._packed(*each) for each in zip(self.names, columns)])

    def _packed(self, name: str, fields: Sequence[str]) -> np.ndarray:
        if name in TEXTS:
            return self.texts.numbers(fields)
        try:
            values = orjson.loads(f"[{','.join(fields)}]")  # seven times as fast as float()
        except orjson.JSONDecodeError:  # an empty field, or NaN
            values = [None]
        if not set(map(type, values)) <= {int, float}:
            values = [np.nan if (n := number(each)) is None else n for each in fields]
        return np.array(values, np.float64)

    def __getitem__(self, name: str) -> np.ndarray:
        """A column. KeyError if the file has no such column, but rows."""
        if not self.count:
            return np.zeros(0, np.int32 if name in TEXTS else np.float64)
        if name not in self.names:
            raise KeyError(name)
        place = self.names.index(name)
        if len(self._parts) > 1:
            self._parts = [[np.concatenate(each) for each in zip(*self._parts)]]
        return self._parts[0][place]

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
    found, tail = TableColumns(texts), Tail(path)
    while chunk := tail.read_bytes(TABLE_BYTES):
        columns = _fields(chunk, found)
        if columns is None:  # quotes, or another number of fields: row by row
            return TableColumns.of(list(iter_csv(path)), texts)
        if columns:
            found.add(columns)
    return found


class TableReader:
    """Reader of a growing CSV file, for the live page. Rows of another length are left out."""

    def __init__(self, path: Path, texts: Texts) -> None:
        self._path, self._tail, self._texts = path, Tail(path), texts
        self._names: tuple[str, ...] = ()

    @property
    def anew(self) -> int:
        """How often the file began again, see ``Tail``."""
        return self._tail.anew

    def read_new(self, most_bytes: int | None = None) -> TableColumns:
        """Return the complete rows added since the last call, see ``Tail``."""
        found = TableColumns(self._texts)
        found.names = self._names
        chunk = self._tail.read_bytes(most_bytes)
        columns = _fields(chunk, found) if chunk else []
        if columns is None:
            lines = chunk.decode("utf-8", errors="replace").split("\n")[:-1]
            try:
                rows = [*map(tuple, csv.reader(line.rstrip("\r") for line in lines))]
            except csv.Error as error:
                raise UserError(f"{self._path}: is damaged ({error})") from error
            found.names = self._names or rows[0]
            kept = [row for row in rows if len(row) == len(found.names) and row != found.names]
            columns = list(zip(*kept))
        if columns:
            found.add(columns)
        self._names = found.names
        return found


def _fields(chunk: bytes, table: TableColumns) -> Sequence[Sequence[str]] | None:
    """The fields of each column; None if only csv's reader can tell them."""
    if b'"' in chunk:
        return None
    text = chunk.decode("utf-8", errors="replace").replace("\r\n", "\n")
    if "\r" in text:
        return None
    lines = text.split("\n")[:-1]
    names = table.names or tuple(lines[0].split(","))
    if len(set(names)) < len(names) or set(map(methodcaller("count", ","), lines)) != {
        len(names) - 1
    }:
        return None
    table.names = names
    if (head := ",".join(names)) in lines:  # each part of the file has it
        lines = [line for line in lines if line != head]
    fields = ",".join(lines).split(",")
    return [fields[place :: len(names)] for place in range(len(names))] if lines else []
