"""The parts of a table that has grown: ``events-000001.jsonl.gz``, ..., then ``events.jsonl``.

A part holds the rows before those of the next part; the file without a number has the latest rows.
A part is not packed yet for a while. Each part of a CSV file begins with the names of its columns.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from edgefl.disk import Disk, OwnDisk

PACKED = ".gz"
GZIP = 16 + zlib.MAX_WBITS  # a gzip header without name and time: equal rows make equal files
CHUNK_BYTES = 1 << 20


def part_path(path: Path, number: int) -> Path:
    """The part with this number, from 1 on, before it is packed."""
    return path.with_name(f"{path.stem}-{number:06d}{path.suffix}")


def part_number(path: Path, name: str) -> int | None:
    """The number of the part of ``path`` that has this name, packed or not; None: it is none."""
    pattern = rf"{re.escape(path.stem)}-(\d{{6,}}){re.escape(path.suffix)}({re.escape(PACKED)})?"
    match = re.fullmatch(pattern, name)
    return int(match[1]) if match else None


def parts(path: Path, disk: Disk | None = None) -> dict[int, Path]:
    """The parts of ``path`` by number, in order; the packed file if a part has both."""
    found = {}
    for name in (disk or OwnDisk()).names(path.parent):  # sorted, so x.jsonl.gz is after x.jsonl
        number = part_number(path, name)
        if number is not None:
            found[number] = path.with_name(name)
    return dict(sorted(found.items()))


def unpacked(part: Path, disk: Disk | None = None) -> bytes:
    """The rows of a part. zlib.error if it is damaged."""
    data = (disk or OwnDisk()).read(part)
    return zlib.decompress(data, GZIP) if part.suffix == PACKED else data


def pack(part: Path, disk: Disk, durable: bool = False) -> None:
    """Compress a part, and replace it. ``durable``: the rows survive a loss of power."""
    packer, rows = zlib.compressobj(wbits=GZIP), disk.view(part)
    chunks = (rows[at : at + CHUNK_BYTES] for at in range(0, len(rows), CHUNK_BYTES))
    packed = [packer.compress(chunk) for chunk in chunks]
    data = b"".join([*packed, packer.flush()])
    disk.replace(part.with_name(f"{part.name}{PACKED}"), data, durable=durable)
    disk.remove(part)
