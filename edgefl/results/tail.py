"""Reading the files of a run directory while they grow or after a crash."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from edgefl.errors import UserError, undamaged
from edgefl.record.old_names import renamed
from edgefl.record.parts import PACKED, parts, unpacked


class Tail:
    """Reader of a growing text file and its parts (``edgefl.record.parts``).

    A missing file counts as empty. A last line without its newline is not returned yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = self._offset = 0  # the last part that was read, and the bytes of the next one

    def read_new(self) -> list[str]:
        """Return the complete lines added since the last call. UserError names a damaged part."""
        while True:
            found = parts(self._path)
            if max(found, default=0) < self._part:
                self._part = self._offset = 0  # the file was written anew
            new = [number for number in found if number > self._part]
            data, begin = _read(self._path, 0 if new else self._offset)
            if parts(self._path).keys() == found.keys():
                break  # else the file has become a part meanwhile
        older = b""
        if new:
            older = b"".join(_rows(found[number]) for number in new)[self._offset :]
            self._part = new[-1]
        whole = data[: data.rfind(b"\n") + 1]
        self._offset = begin + len(whole)
        whole = older + whole
        # Not splitlines(): a JSON string may contain other line separators, such as U+2028.
        return [
            line.rstrip("\r") for line in whole.decode("utf-8", errors="replace").split("\n")[:-1]
        ]


def _read(path: Path, begin: int) -> tuple[bytes, int]:
    """The bytes of a file from ``begin`` on, or all if it is shorter, and where they begin."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < begin:
                begin = 0  # the file was written anew
            file.seek(begin)
            return file.read(), begin
    except FileNotFoundError:
        return b"", 0


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
        self._tail = Tail(path)
        self._columns: list[str] = []

    def read_new(self) -> list[dict[str, str]]:
        """Return the complete rows added since the last call."""
        rows = list(csv.reader(self._tail.read_new()))
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
    """Return the lines that are JSON objects and leave out others, for the live display."""
    events = []
    for line in lines:
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return all rows of an events.jsonl without a torn last line; [] if it is missing.

    UserError names a damaged line.
    """
    lines = Tail(path).read_new()
    events = parse_events(lines)
    if len(events) != len(lines):
        number = next(number for number, line in enumerate(lines, 1) if not parse_events([line]))
        raise UserError(f"{path}: line {number} is not a JSON object; the file is damaged")
    return [renamed(event) for event in events]


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return all rows of a CSV file without a torn last line; [] if it is missing.

    UserError names a damaged row.
    """
    with undamaged(path):
        rows = list(csv.reader(Tail(path).read_new()))
    if not rows:
        return []
    columns = rows[0]
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(columns):
            raise UserError(
                f"{path}: row {number} has {len(row)} fields, expected {len(columns)}"
                f" ({','.join(columns)})"
            )
    return [dict(zip(columns, row)) for row in rows[1:] if row != columns]  # each part has them
