"""What leaves the process waits until the journal is durable: at once, or in groups, in order."""

from __future__ import annotations

import errno
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from edgefl.disk import DiskFile, OwnDisk
from edgefl.errors import UserError
from edgefl.hosts.wall.coordinator.committer import Committer
from edgefl.record.journal import Journal, read


class SlowDisk(OwnDisk):
    """A disk whose syncs wait for ``may_sync``; each asks ``error`` first."""

    def __init__(self) -> None:
        self.may_sync, self.syncing = Event(), Event()
        self.syncs = 0
        self.error: OSError | None = None

    def append(self, path: Path, keep_bytes: int = 0, private: bool = False) -> Any:
        return SlowFile(self, super().append(path, keep_bytes, private))


class SlowFile:
    def __init__(self, disk: SlowDisk, file: DiskFile) -> None:
        self.disk, self.path = disk, file.path
        self.write, self.truncate, self.close = file.write, file.truncate, file.close

    def sync(self) -> None:
        self.disk.syncing.set()
        assert self.disk.may_sync.wait(20)
        self.disk.syncs += 1
        if self.disk.error is not None:
            raise self.disk.error


def opened(folder: Path, power: bool) -> tuple[SlowDisk, Journal]:
    disk = SlowDisk()
    return disk, Journal(folder, disk, inputs=True, payloads=False, power=power)


def put(journal: Journal, number: int) -> None:
    journal.input({"of": number}, {}, 0.0)


def test_without_a_journal_nothing_waits() -> None:
    committer, done = Committer(None), list[int]()
    committer.start()
    committer.commit(lambda: done.append(1))
    committer.stop()
    assert done == [1]


def test_in_a_process_entries_are_with_the_system_first(tmp_path: Path) -> None:
    _, journal = opened(tmp_path, power=False)
    committer, found = Committer(journal), list[int]()
    committer.start()
    put(journal, 1)
    assert list(read(tmp_path)) == [], "still in this process"
    committer.commit(lambda: found.append(len(list(read(tmp_path)))))
    assert found == [1]
    committer.stop()
    journal.close()


def test_a_loss_of_power_is_waited_for_in_groups_and_in_order(tmp_path: Path) -> None:
    disk, journal = opened(tmp_path, power=True)
    committer, done = Committer(journal), list[tuple[int, int]]()
    committer.start()
    for number in range(6):
        put(journal, number)
        committer.commit(lambda number=number: done.append((number, disk.syncs)))
        if number == 0:
            assert disk.syncing.wait(20), "the thread syncs for the first; the others gather"
    assert not done
    disk.may_sync.set()
    committer.stop()
    journal.close()
    assert done == [(0, 2), *((number, 4) for number in range(1, 6))], "two files each time"


def test_what_the_disk_refuses_never_leaves(tmp_path: Path) -> None:
    disk, journal = opened(tmp_path, power=True)
    failed, done = list[BaseException](), list[int]()
    committer = Committer(journal, failed.append)
    committer.start()
    disk.error = OSError(errno.EIO, "Input/output error")
    disk.may_sync.set()
    put(journal, 1)
    committer.commit(lambda: done.append(1))
    committer.stop()
    assert not done and len(failed) == 1
    with pytest.raises(UserError, match=r"cannot be written \(Input/output error\)"):
        committer.commit(lambda: done.append(2))
    assert not done
    journal.close()


def test_a_host_without_threads_syncs_itself(tmp_path: Path) -> None:
    disk, journal = opened(tmp_path, power=True)
    disk.may_sync.set()
    committer, done = Committer(journal), list[int]()
    for number in (1, 2):
        put(journal, number)
        committer.commit(lambda number=number: done.append(number))
    assert not done
    committer.sync()
    committer.sync()
    assert (done, disk.syncs) == ([1, 2], 2)
    journal.close()


def test_a_bug_in_what_waited_ends_the_run_and_not_only_the_thread(tmp_path: Path) -> None:
    disk, journal = opened(tmp_path, power=True)
    disk.may_sync.set()
    told: list[BaseException] = []
    committer = Committer(journal, told.append)
    committer.start()
    put(journal, 1)
    committer.commit(lambda: [][0])
    committer.stop()
    assert [type(each) for each in told] == [IndexError]
    with pytest.raises(IndexError):
        committer.commit(lambda: None)
    journal.close()
