"""A disk that takes no more: each file of a run is readable up to the last whole row, and one line
says so.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import small_run

from edgefl import disk as disks
from edgefl.disk import OwnDisk
from edgefl.errors import UserError
from edgefl.record.journal import read
from edgefl.record.tables import KEPT_BYTES, RowFile, write_whole
from edgefl.results.tail import is_torn, read_csv, read_events

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


def test_rows_before_a_refused_one_stay_from_flush_to_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Disk(monkeypatch, "rows", KEPT_BYTES + 10)
    file = RowFile(tmp_path / "rows", OwnDisk(), private=True)
    file.write(b"first\n")
    large = memoryview(bytes(KEPT_BYTES))
    file.write(large)
    assert (tmp_path / "rows").stat().st_size == 6 + KEPT_BYTES, "written at once, in order"
    with pytest.raises(UserError):
        file.write(large)
    file.close()
    assert (tmp_path / "rows").stat().st_size == 6 + KEPT_BYTES
    assert (tmp_path / "rows").stat().st_mode & 0o777 == 0o600


def test_a_device_that_cannot_be_cut_is_one_line_too() -> None:
    file = RowFile(Path("/dev/full"), OwnDisk())
    file.write(b"row\n")
    with pytest.raises(UserError, match="/dev/full: cannot be written"):
        file.close()


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "summary.json", b"{}")
    Disk(monkeypatch, "summary.json.part", 2)
    with pytest.raises(UserError, match="summary.json: cannot be written"):
        write_whole(tmp_path / "summary.json", b'{"a": 1}')
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    assert (tmp_path / "summary.json").read_bytes() == b"{}"


# ------------------------------------------------------------------ a run
def cut(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, room: int) -> Path:
    """Run with ``room`` bytes for the file ``name``; return the run's directory."""
    with monkeypatch.context() as patch:
        Disk(patch, name, room)
        with pytest.raises(UserError, match=rf"{name}: cannot be written") as refused:
            small_run(folder, stop={"versions": 30}, record={"payloads": True})
        assert "\n" not in str(refused.value)
    return folder / "fedavg"


@pytest.mark.parametrize(
    "name",
    ["events.jsonl", "links.csv", "metrics.csv", "journal-000000.jsonl", "journal-000000.bin"],
)
def test_a_run_on_a_full_disk_leaves_files_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    directory = cut(tmp_path, monkeypatch, name, 1000)
    assert not (directory / "summary.json").exists()
    for table in ("events.jsonl", "links.csv", "metrics.csv", "journal/journal-000000.jsonl"):
        assert not is_torn(directory / table)
    assert read_events(directory / "events.jsonl")
    assert read_csv(directory / "links.csv") and read_csv(directory / "metrics.csv")
    entries = list(read(directory / "journal"))
    assert entries and all(np.isfinite(a).all() for e in entries for a in e.arrays.values())
    assert not list(directory.glob("*.part"))


@pytest.mark.parametrize("name", ["summary.json", "model.safetensors", "initial.safetensors"])
def test_a_file_that_is_written_whole_is_there_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    Disk(monkeypatch, f"{name}.part", 10)
    with pytest.raises(UserError, match=rf"{name}: cannot be written \(File too large"):
        small_run(tmp_path, stop={"versions": 2}, record={"payloads": True})
    assert not list(tmp_path.rglob(f"{name}*"))
