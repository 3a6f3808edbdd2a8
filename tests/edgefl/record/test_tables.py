"""The files of tables: whole rows on a full disk, parts, and going on from known sizes."""

from __future__ import annotations

import errno
import gzip
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import small_run

from edgefl import disk as disks
from edgefl.disk import OwnDisk, OwnFile
from edgefl.errors import UserError
from edgefl.jobs import Evaluate
from edgefl.record.record import Record
from edgefl.record.tables import (
    RotatedFile,
    Rotation,
    RowFile,
    lost_rows,
    parts,
    unpacked,
)
from edgefl.results.read import Tail
from edgefl.results.run_files import replace_file
from edgefl.results.summary import warnings
from edgefl.vectors import aligned_copy
from emulator.links.link import Completion, Transfer

Works = list[Callable[[], None]]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def grown(path: Path, count: int, rotation: Rotation, head: bytes = b"") -> RotatedFile:
    """A table with rows of ten bytes, numbered from 0 on."""
    file = RotatedFile(path, OwnDisk(), rotation, head=head)
    for number in range(count):
        file.write(b"row %05d\n" % number)
    return file


# ------------------------------------------------------------------ writing
def test_rows_are_packed_into_parts_and_none_is_split(tmp_path: Path) -> None:
    file = grown(tmp_path / "rows.csv", 7, Rotation(part_bytes=35), head=b"name\n")
    file.close()
    assert names(tmp_path) == ["rows-000001.csv.gz", "rows-000002.csv.gz", "rows.csv"]
    first, second = parts(tmp_path / "rows.csv").values()
    assert gzip.decompress(first.read_bytes()) == b"name\nrow 00000\nrow 00001\nrow 00002\n"
    assert unpacked(second) == b"name\nrow 00003\nrow 00004\nrow 00005\n"
    assert (tmp_path / "rows.csv").read_bytes() == b"name\nrow 00006\n"


def test_as_many_parts_stay_as_the_user_wants_and_the_others_are_counted(tmp_path: Path) -> None:
    file = grown(tmp_path / "rows.csv", 8, Rotation(part_bytes=10, keep=2))
    file.close()
    assert names(tmp_path) == ["rows-000006.csv.gz", "rows-000007.csv.gz", "rows.csv"]
    assert file.deleted() == 5
    facts = {"versions": 1, "updates_received": 1, "updates_discarded": {}}
    assert warnings(facts | {"parts_deleted": {"rows.csv": file.deleted()}}) == [
        "old parts were deleted (record.keep): 5 of rows.csv; what is made from their rows is"
        " partial"
    ]


def test_parts_that_a_checkpoint_needs_stay(tmp_path: Path) -> None:
    path, rotation = tmp_path / "rows.csv", Rotation(part_bytes=20, keep=1)
    file = grown(path, 5, rotation)
    file.flush()
    sizes = file.sizes()  # rows 0 to 3 in two parts, and row 4
    file.hold(sizes)
    for number in range(5, 10):
        file.write(b"row %05d\n" % number)
    file.close()
    assert names(tmp_path) == [*(f"rows-00000{number}.csv.gz" for number in (3, 4)), "rows.csv"]
    assert file.deleted() == 2 and not lost_rows(tmp_path, OwnDisk(), sizes)
    file = RotatedFile(path, OwnDisk(), rotation, sizes)
    assert path.read_bytes() == b"row 00004\n" and names(tmp_path) == ["rows.csv"]
    for number in range(5, 10):
        file.write(b"row %05d\n" % number)
    file.hold(None)
    file.close()
    assert names(tmp_path) == ["rows-000004.csv.gz", "rows.csv"] and file.deleted() == 3


def test_full_parts_survive_a_loss_of_power_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    sync = OwnFile.sync

    def noted(file: OwnFile) -> None:
        sync(file)
        synced.add(os.fstat(file._fd).st_ino)

    monkeypatch.setattr(OwnFile, "sync", noted)
    works: Works = []
    file = grown(tmp_path / "rows.csv", 5, Rotation(25, later=works.append, durable=True))
    file.flush()
    file.sync()
    paths = [tmp_path / name for name in names(tmp_path)]
    assert len(paths) == 3 and {path.stat().st_ino for path in paths} <= synced
    for work in works:
        work()
    assert [path.suffix for path in map(Path, names(tmp_path))] == [".gz", ".gz", ".csv"]
    assert {(tmp_path / name).stat().st_ino for name in names(tmp_path)} <= synced
    file.close()


# ------------------------------------------------------------------ reading
def test_a_reader_follows_a_table_through_its_parts(tmp_path: Path) -> None:
    path, works = tmp_path / "rows.csv", list[Callable[[], None]]()
    tail, seen = Tail(path), list[str]()
    file = RotatedFile(path, OwnDisk(), Rotation(25, later=works.append), head=b"")
    for number in range(40):
        file.write(b"row %05d\n" % number)
        if number % 3 == 0:
            file.flush()
        if number % 7 == 0:
            seen += tail.read_new()
        if number % 5 == 0 and works:
            works.pop(0)()
    file.close()
    seen += tail.read_new()
    assert seen == [f"row {number:05d}" for number in range(40)]
    assert Tail(path).read_new() == seen and tail.read_new() == []


# ------------------------------------------------------------------ a full disk
# unlike on a full disk, a run does not wait until this is over
TOO_LARGE = OSError(errno.EFBIG, "File too large")


class Disk:
    """``os.write`` with ``room`` bytes left for files of this name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, room: int) -> None:
        self.name, self.room, self.real = name, room, os.write
        self.refused = 0
        monkeypatch.setattr(disks.os, "write", self.write)

    def write(self, fd: int, data: Any) -> int:
        if os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) != self.name:
            return self.real(fd, data)
        if not self.room:
            self.refused += 1
            raise TOO_LARGE
        written = self.real(fd, data[: self.room])  # the last write may be partial
        self.room -= written
        return written


# ------------------------------------------------------------------ one file
@pytest.mark.parametrize(
    ("room", "left"), [(0, b""), (3, b""), (4, b"abc\n"), (11, b"abc\ndefgh\n"), (12, None)]
)
def test_a_file_ends_with_a_whole_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, left: bytes | None
) -> None:
    rows = [b"abc\n", b"defgh\n", b"i\n"]
    disk = Disk(monkeypatch, "rows", room)
    file = RowFile(tmp_path / "rows", OwnDisk())
    for row in rows:
        file.write(row)
    if left is None:
        file.flush()
    else:
        with pytest.raises(UserError, match=r"rows: cannot be written \(File too large\)"):
            file.flush()
    file.write(b"later\n")
    if left is not None:
        file.close()
        assert disk.refused == 1, "asked no more"
    assert (tmp_path / "rows").read_bytes() == (b"".join(rows) if left is None else left)


@pytest.mark.parametrize("name", ["summary.json", "model.safetensors", "initial.safetensors"])
def test_a_file_that_is_written_whole_is_there_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    Disk(monkeypatch, f"{name}.part", 10)
    with pytest.raises(UserError, match=rf"{name}: cannot be written \(File too large"):
        small_run(tmp_path, stop={"versions": 2}, record={"payloads": True})
    assert not list(tmp_path.rglob(f"{name}*"))


def test_a_result_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").mkdir()
    with pytest.raises(UserError, match=r"runs\.csv: cannot be written \(Is a directory\)$"):
        replace_file(tmp_path / "runs.csv", b"a,b\n")
    assert names(tmp_path) == ["runs.csv"]


# ------------------------------------------------------------------ a run
def cut(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, room: int) -> Path:
    """Run with ``room`` bytes for the file ``name``; return the run's directory."""
    with monkeypatch.context() as patch:
        Disk(patch, name, room)
        with pytest.raises(UserError, match=rf"{name}: cannot be written") as refused:
            small_run(folder, stop={"versions": 30}, record={"payloads": True})
        assert "\n" not in str(refused.value)
    return folder / "fedavg"


# ------------------------------------------------------------------ going on
S = 10**9
MODEL = aligned_copy(np.ones(1, np.float32))


def rows(record: Record, begin: int, end: int) -> None:
    """Write rows number ``begin`` to ``end`` of all tables but hosts.csv."""
    for number in range(begin, end):
        now = number * S
        record.fact(now, {"fact": "noticed", "number": number})
        transfer = Transfer(number, "a", "up", 100 + number, "update")
        windows = ((now, now + S),) if number >= 3 else ()
        record.link(Completion(transfer, now, now, now, windows), now)
        record.measured("up", "a", number, (now, now + S, number))
        record.snapshot(number)
        by_label = (0.5, 0.25) if number >= 4 else ()
        job = Evaluate(number, now, MODEL, 0, 0)
        record.metrics(job, None, 0.5, 0.5, *by_label)
        if number >= 4:
            record.edge_scores(job, ["a", "b"], (0.25, 0.5, 3, math.nan, math.nan, 0))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_going_on_gives_the_bytes_of_an_unbroken_record(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    record = Record(whole, lambda: 1.5, None)
    rows(record, 1, 9)
    record.close(MODEL)
    for moment in (2, 3, 6):  # without slots.csv, labels.csv and clients.csv, and with them
        first = Record(broken, lambda: 1.5, None)
        rows(first, 1, moment)
        sizes = first.sizes()
        rows(first, moment, 8)
        first.flush()
        first.sync()
        with (broken / "events.jsonl").open("ab") as torn:
            torn.write(b'{"t":99,"fa')
        second = Record(broken, lambda: 1.5, None, sizes=sizes)
        assert (
            second.sizes() == sizes == {name: (broken / name).stat().st_size for name in sizes}
        ), "cut to these sizes"
        assert not {"slots.csv", "labels.csv", "clients.csv"} - set(sizes) & set(contents(broken))
        rows(second, moment, 9)
        second.close(MODEL)
        assert contents(broken) == contents(whole)


def rotated(folder: Path, part_bytes: int, sizes: dict[str, int] | None = None) -> Record:
    return Record(folder, lambda: 1.5, None, sizes=sizes, rotation=Rotation(part_bytes))


@pytest.mark.parametrize("part_bytes", [1, 150, 400])
@pytest.mark.slow
def test_going_on_gives_the_same_parts_too(tmp_path: Path, part_bytes: int) -> None:
    """Also if files have become parts since the moment from which the record goes on."""
    whole = rotated(tmp_path / "whole", part_bytes)
    rows(whole, 1, 9)
    whole.close(MODEL)
    expected = contents(tmp_path / "whole")
    assert len([name for name in expected if name.startswith("links-")]) >= 1
    for moment in range(1, 9):
        for later in (moment, moment + 1, 9):
            broken = tmp_path / "broken"
            first = rotated(broken, part_bytes)
            rows(first, 1, moment)
            sizes = first.sizes()
            rows(first, moment, later)
            first.flush()
            second = rotated(broken, part_bytes, sizes)
            rows(second, moment, 9)
            second.close(MODEL)
            assert contents(broken) == expected
