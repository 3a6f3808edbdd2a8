"""Read the text files of users (UTF-8, with or without a byte order mark, any ends of lines).

Every reader of a file that a user may have written takes its text from here, so that all of them
accept the same files and refuse the others with the same line. Functions raise BadValue for a file
that is not UTF-8; a file that cannot be opened stays an OSError. ``write_file`` writes a file.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from emulator.errors import BadValue

MARK = "\ufeff"  # the byte order mark, which editors on Windows write
WIDE = (b"\xff\xfe", b"\xfe\xff")  # the byte order marks of UTF-16


def read_text(path: Path, name: object = "") -> str:
    """Return a file's text; lines end in ``\\n``. ``name``: in the error, instead of ``path``."""
    return decoded(path.read_bytes(), name or path)


def decoded(data: bytes, name: object) -> str:
    """Return the text of the bytes of a file; lines end in ``\\n``."""
    text = _decoded(data, name, 0)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def lines(file: Iterable[bytes], name: object) -> Iterator[str]:
    """Yield the lines of an open file, with their ends, without reading all of it at once.

    Only ``\\n``, ``\\r`` and ``\\r\\n`` end a line: other separators are part of a text.
    """
    before = 0
    for raw in file:
        text = _decoded(raw, name, before)
        before += len(raw)
        if "\r" in text[:-2]:  # lines that end in "\r" alone
            yield from io.StringIO(text, newline="")
        else:
            yield text


def write_file(path: Path, data: bytes, name: object = "") -> None:
    """Write under a temporary name first, so that a reader sees the old or the new file.

    BadValue if it cannot be written; ``name``: in the error, instead of ``path``.
    """
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise BadValue(f"{name or path}: {error.strerror or error}") from error


def _decoded(data: bytes, name: object, before: int) -> str:
    """Decode bytes that begin at byte ``before`` of a file; only at its start is there a mark."""
    try:
        text = data.decode("utf-8")
        wrong = text.find("\0")  # UTF-16 without a mark decodes, to a NUL beside each letter
        wrong = len(text[:wrong].encode()) if wrong >= 0 else -1
    except UnicodeDecodeError as error:
        wrong = error.start
    if wrong >= 0:
        wide = data[wrong] == 0 or (before == 0 and data[:2] in WIDE)
        raise BadValue(
            f"{name}: is not UTF-8 text (byte {before + wrong} is 0x{data[wrong]:02x}, as in"
            f" {'UTF-16' if wide else 'Latin-1'}): save it as UTF-8"
        )
    return text.removeprefix(MARK) if before == 0 else text


def csv_rows(text: str, name: object) -> list[tuple[int, list[str]]]:
    """Return (line, cells) of the rows of a CSV text. BadValue if it is none."""
    reader = csv.reader(text.splitlines())
    try:
        return [(reader.line_num, cells) for cells in reader]
    except csv.Error as error:
        raise BadValue(f"{name}: is no CSV ({error})") from None
