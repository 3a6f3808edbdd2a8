"""The disk of this machine, and waiting for room on it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from edgefl.disk import OwnDisk, PatientDisk, write_all
from edgefl.errors import UserError
from edgefl.record.tables import RowFile


class SmallDisk(OwnDisk):
    """A disk on which ``room`` bytes more can be written."""

    def __init__(self, room: int, error: int = errno.ENOSPC) -> None:
        self.room, self.error = room, error

    def append(self, path: Path, keep_bytes: int = 0, private: bool = False) -> SmallFile:
        return SmallFile(self, path, keep_bytes, private)


class SmallFile:
    def __init__(self, disk: SmallDisk, path: Path, keep_bytes: int, private: bool) -> None:
        self.disk, self.path = disk, path
        self.file = OwnDisk().append(path, keep_bytes, private)
        self.sync, self.truncate, self.close = self.file.sync, self.file.truncate, self.file.close

    def write(self, data: bytes | memoryview) -> int:
        if not self.disk.room:
            raise OSError(self.disk.error, "no room")
        written = self.file.write(memoryview(data)[: self.disk.room])
        self.disk.room -= written
        return written


class Waits:
    """Makes room after ``refusals`` refusals, or gives up."""

    def __init__(self, disk: SmallDisk, refusals: int, room: int) -> None:
        self.disk, self.left, self.room = disk, refusals, room
        self.told: list[str] = []

    def over(self, path: Path) -> None:
        self.told.append(f"{path.name} done")

    def wait(self, path: Path, error: OSError) -> bool:
        self.told.append(path.name)
        self.left -= 1
        if self.left < 0:
            return False
        if not self.left:
            self.disk.room += self.room
        return True


def test_a_file_is_appended_to_kept_or_cut(tmp_path: Path) -> None:
    disk, path = OwnDisk(), tmp_path / "rows"
    for keep_bytes, left in ((0, b"abc"), (2, b"ababc"), (99, b"ababcabc"), (0, b"abc")):
        file = disk.append(path, keep_bytes)
        write_all(file, b"abc")
        file.sync()
        file.close()
        file.close()
        assert disk.read(path) == left and disk.size(path) == len(left)
    file = disk.append(path, 3)
    file.truncate(1)
    write_all(file, memoryview(b"z"))
    file.close()
    assert disk.read(path) == b"az"


def test_a_private_file_is_private_also_if_it_was_not(tmp_path: Path) -> None:
    (tmp_path / "rows").touch(0o644)
    OwnDisk().append(tmp_path / "rows", private=True).close()
    OwnDisk().replace(tmp_path / "keys", b"k", private=True, durable=True)
    for name in ("rows", "keys"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_names_of_a_folder_and_files_that_are_missing(tmp_path: Path) -> None:
    disk, folder = OwnDisk(), tmp_path / "a" / "b"
    assert disk.names(folder) == [] and not disk.exists(folder)
    disk.make_folder(folder)
    disk.make_folder(folder)
    for name in ("two", "one"):
        disk.replace(folder / name, name.encode(), durable=name == "one")
    disk.rename(folder / "two", folder / "one")
    disk.sync_folder(folder)
    assert disk.names(folder) == ["one"] and disk.read(folder / "one") == b"two"
    disk.remove(folder / "one")
    disk.remove(folder / "one")
    for look in (disk.read, disk.size):
        with pytest.raises(FileNotFoundError):
            look(folder / "one")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_write_waits_for_room_and_is_whole(tmp_path: Path, error: int) -> None:
    small = SmallDisk(4, error)
    waits = Waits(small, refusals=3, room=100)
    file = RowFile(tmp_path / "rows", PatientDisk(small, waits))
    for row in (b"abc\n", b"defgh\n", b"i\n"):
        file.write(row)
    file.close()
    assert (tmp_path / "rows").read_bytes() == b"abc\ndefgh\ni\n"
    assert waits.told == [*["rows"] * 3, "rows done"]


def test_a_replacement_waits_too_and_leaves_nothing_partial_meanwhile(tmp_path: Path) -> None:
    small, path = SmallDisk(3), tmp_path / "state"
    OwnDisk().replace(path, b"old")

    class Looks(Waits):
        def wait(self, place: Path, error: OSError) -> bool:
            assert sorted(each.name for each in tmp_path.iterdir()) == ["state"]
            assert path.read_bytes() == b"old"
            return super().wait(place, error)

    waits = Looks(small, refusals=2, room=100)
    PatientDisk(small, waits).replace(path, b"newer")
    assert path.read_bytes() == b"newer" and waits.told == ["state", "state", "state done"]


def test_whoever_gives_up_gets_the_error_and_whole_rows(tmp_path: Path) -> None:
    small = SmallDisk(6)
    file = RowFile(tmp_path / "rows", PatientDisk(small, Waits(small, 0, 0)))
    for row in (b"abc\n", b"defgh\n"):
        file.write(row)
    with pytest.raises(UserError, match=r"rows: cannot be written \(no room\)"):
        file.flush()
    assert (tmp_path / "rows").read_bytes() == b"abc\n"


def test_an_error_that_no_room_mends_is_raised_at_once(tmp_path: Path) -> None:
    small = SmallDisk(0, errno.EIO)
    waits = Waits(small, 5, 100)
    with pytest.raises(OSError, match="no room"):
        PatientDisk(small, waits).replace(tmp_path / "state", b"data")
    assert not waits.told and not list(tmp_path.iterdir())


def test_a_file_that_is_given_up_is_closed(tmp_path: Path) -> None:
    file = OwnDisk().append(tmp_path / "rows")
    file.write(b"row")
    fd = file._fd
    os.fstat(fd)
    del file
    with pytest.raises(OSError):
        os.fstat(fd)
