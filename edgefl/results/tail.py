"""Reading the files of a run directory while they grow or after a crash."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any

import orjson

from edgefl.errors import UserError, undamaged
from edgefl.record.rows import renamed
from edgefl.record.tables import PACKED, parts, unpacked

AT_ONCE = 1 << 22  # bytes of a file that are read at a time
FINGERPRINT_BYTES = 256  # of the rows before: they tell whether a file has only grown


class Tail:
    """Reader of a growing text file and its parts (``edgefl.record.tables``).

    A missing file counts as empty. A last line without its newline is not returned yet. ``anew``
    counts how often the file began again, or lost rows, as when a run is resumed or done again:
    then all its rows are returned once more.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = self._offset = 0  # the last part that was read, and the bytes of the next one
        self._older = b""  # rows of parts that are not returned yet
        self._last = b""  # the bytes before the offset, which stay as long as the file only grows
        self.anew = 0

    def read_new(self, most_bytes: int | None = None) -> list[str]:
        """Return the complete lines added since the last call. UserError names a damaged part.

        ``most_bytes``: leave further lines to the next call, so that a long file needs little
        memory. One line is always returned, however long it is.
        """
        whole = self.read_bytes(most_bytes)
        # Not splitlines(): a JSON string may contain other line separators, such as U+2028.
        return [
            line.rstrip("\r") for line in whole.decode("utf-8", errors="replace").split("\n")[:-1]
        ]

    def read_bytes(self, most_bytes: int | None = None) -> bytes:
        """Return what ``read_new`` returns as one piece, each line with its newline."""
        whole, more = self._chunk(most_bytes)
        while more and most_bytes is None:
            chunk, more = self._chunk(None)
            whole += chunk
        return whole

    def _chunk(self, most: int | None) -> tuple[bytes, bool]:
        """The next complete lines, and whether they are those of a part, so that others follow."""
        while not self._older:
            found = parts(self._path)
            if max(found, default=0) < self._part:
                self._begin_again()
            new = [number for number in found if number > self._part]
            if new:
                self._older = _rows(found[new[0]])[self._offset :]
                self._part, self._offset, self._last = new[0], 0, b""
                continue
            whole, grown = self._read(most)
            if parts(self._path).keys() != found.keys():
                continue  # the file has become a part meanwhile
            if not grown:
                self._begin_again()
            self._offset += len(whole)
            self._last = (self._last + whole)[-FINGERPRINT_BYTES:]
            return whole, False
        end = _end_of_lines(self._older, most)
        data, self._older = self._older[:end], self._older[end:]
        return data, True

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


def _end_of_lines(rows: bytes, most: int | None) -> int:
    """Where the last complete line within ``most`` bytes ends, or the first line if it is longer.

    All of ``rows`` if they have no such end.
    """
    if most is None or len(rows) <= most:
        return len(rows)
    end = rows.rfind(b"\n", 0, most) + 1 or rows.find(b"\n", most) + 1
    return end or len(rows)


def _rows(part: Path) -> bytes:
    """The rows of a part, which may have been packed meanwhile."""
    packed = part.with_name(part.name.removesuffix(PACKED) + PACKED)
    for path in (part, packed):
        with undamaged(path), suppress(FileNotFoundError):
            return unpacked(path)
    return b""  # record.keep has removed it


class TableTail:
    """Reader of a growing CSV file: rows as dicts with the names of its first line as keys.

    Rows of another length are left out.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._tail = path, Tail(path)
        self._columns: list[str] = []

    @property
    def anew(self) -> int:
        """How often the file began again, see ``Tail``."""
        return self._tail.anew

    def read_new(self, most_bytes: int | None = None) -> list[dict[str, str]]:
        """Return the complete rows added since the last call, see ``Tail``."""
        try:
            rows = list(csv.reader(self._tail.read_new(most_bytes)))
        except csv.Error as error:
            raise UserError(f"{self.path}: is damaged ({error})") from error
        if rows and not self._columns:
            self._columns = rows[0]
        return [
            dict(zip(self._columns, row))
            for row in rows
            if len(row) == len(self._columns) and row != self._columns  # each part has them
        ]


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


def parse_events(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the lines that are rows of events and leave out others, for the live display."""
    events = []
    for line in lines:
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if _is_row(event):
            events.append(event)
    return events


def _is_row(event: Any) -> bool:
    """Whether it has the form of a row; which other fields it has depends on its kind."""
    if not isinstance(event, dict):
        return False
    decisions = event.get("decisions", [])
    return (
        type(event.get("t", 0.0)) in (int, float)
        and isinstance(event.get("event", event.get("fact", "")), str)
        and type(event.get("edge", "")) in (str, NoneType)
        and all(type(event.get(name, 0)) in (int, NoneType) for name in ("version", "task"))
        and isinstance(decisions, list)
        and all(isinstance(decision, dict) for decision in decisions)
    )


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return all rows of an events.jsonl without a torn last line; [] if it is missing.

    UserError names a damaged line.
    """
    return list(iter_events(path))


def iter_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what ``read_events`` returns, so that a long file needs little memory."""
    tail, number = Tail(path), 0
    while lines := tail.read_new(AT_ONCE):
        for line in lines:
            number += 1
            (event,) = parse_events([line]) or (None,)
            if event is None:
                raise UserError(f"{path}: line {number} is no row of events; the file is damaged")
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
    tail, number, columns = Tail(path), 0, list[str]()
    while lines := tail.read_new(AT_ONCE):
        with undamaged(path):
            rows = list(csv.reader(lines))
        for row in rows:
            number += 1
            if not columns and len({*row}) < len(row):
                raise UserError(f"{path}: a column comes twice ({','.join(row)})")
            columns = columns or row
            if len(row) != len(columns):
                raise UserError(
                    f"{path}: row {number} has {len(row)} fields, expected {len(columns)}"
                    f" ({','.join(columns)})"
                )
            if row != columns:  # each part has them
                yield dict(zip(columns, row))
