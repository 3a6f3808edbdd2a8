"""A simulated disk: bytes of files in memory, and what of them would survive a loss of power.

Writes may be short, the disk may be full, and a process may die in the middle of a write. A loss of
power takes what was not synced: a part of it, cut at any byte.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from edgefl.disk import PART, write_all
from search.machine import Process, Simulation, running

SYNC_NS = 3_000_000  # the least time of an fsync
WRITE_NS = 20_000  # of a write; one of LONG_EVERY takes LONG_TIMES as long
LONG_EVERY, LONG_TIMES = 32, 500
SHORT_EVERY = 16  # one of so many writes is short


class Inode:
    """The bytes of a file, and how many of them survive a loss of power."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""  # the content at the last sync


class SimulatedDisk:
    """The disk of the coordinator's host. ``room_bytes``: what may still be written; None: all."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.files: dict[Path, Inode] = {}
        self.synced_names: dict[Path, Inode] = {}  # names that survive a loss of power
        self.folders: set[Path] = set()
        self.room_bytes: int | None = None
        self.full_until_ns = 0
        self.refused = 0  # writes that found no room
        # kind of call -> until when one of so many fails: "read", "write" or "sync"
        self.fails: dict[str, tuple[int, int]] = {}

    def check_room(self, path: Path) -> None:
        """OSError if the disk is full."""
        if self.room_bytes is not None and self.room_bytes <= 0:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def may_fail(self, kind: str, path: Path) -> None:
        """OSError if the device fails in this call."""
        until_ns, one_of = self.fails.get(kind, (0, 1))
        if self.sim.now_ns < until_ns and self.sim.draw(one_of) == 0:
            self.sim.tell("disk: a", kind, "of", path.name, "fails")
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def lose(self, folder: Path) -> Path | None:
        """Lose a file of a folder, for good. Returns its path; None if there is none to lose."""
        path = self._one_of(folder)
        if path is not None:
            del self.files[path]
            self.synced_names.pop(path, None)
        return path

    def flip(self, folder: Path) -> Path | None:
        """Flip a bit of a file of a folder. Returns its path; None if there is no such file."""
        path = self._one_of(folder)
        if path is not None and (data := self.files[path].data):
            data[self.sim.draw(len(data))] ^= 1 << self.sim.draw(8)
            self.files[path].synced = bytes(data)
        return path

    def _one_of(self, folder: Path) -> Path | None:
        paths = sorted(path for path in self.files if path.parent == folder)
        return paths[self.sim.draw(len(paths))] if paths else None

    def inode(self, path: Path) -> Inode:
        """The file of this name. FileNotFoundError."""
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self.files[path]

    def lose_power(self) -> None:
        """Forget what was not synced, but for a random part of it: the system may have written it.

        A name that was not synced may be there or not.
        """
        kept: dict[Path, Inode] = {}
        for path in sorted({*self.files, *self.synced_names}):
            now, before = self.files.get(path), self.synced_names.get(path)
            inode = now if now is not None and (before is now or self.sim.draw(2)) else before
            if inode is not None:
                kept[path] = inode
        for inode in kept.values():
            _lose(inode, self.sim)
        self.files, self.synced_names = kept, dict(kept)


def _lose(inode: Inode, sim: Simulation) -> None:
    """Keep the synced content and a random part of what was appended since."""
    synced, data = inode.synced, bytes(inode.data)
    if data.startswith(synced):
        inode.data = bytearray(data[: len(synced) + sim.draw(len(data) - len(synced) + 1)])
    elif sim.draw(2):  # truncated since, and the system had not written that
        inode.data = bytearray(synced)
    inode.synced = bytes(inode.data)


class ProcessDisk:
    """The disk as one process uses it: an ``edgefl.disk.Disk``."""

    def __init__(self, disk: SimulatedDisk, process: Process) -> None:
        self.disk, self.process = disk, process

    def append(self, path: Path, keep_bytes: int = 0, private: bool = False) -> OpenFile:
        self.process.call("open a file")
        self.disk.may_fail("write", path)
        if path not in self.disk.files:
            self.disk.check_room(path)
            self.disk.files[path] = Inode()
        inode = self.disk.files[path]
        del inode.data[keep_bytes:]
        return OpenFile(self, path, inode)

    def read(self, path: Path) -> bytes:
        self.process.call("read")
        self.disk.may_fail("read", path)
        return bytes(self.disk.inode(path).data)

    def view(self, path: Path) -> memoryview:
        return memoryview(self.read(path))

    def size(self, path: Path) -> int:
        return len(self.disk.inode(path).data)

    def exists(self, path: Path) -> bool:
        return path in self.disk.files or path in self.disk.folders

    def names(self, folder: Path) -> list[str]:
        paths = {*self.disk.files, *self.disk.folders}
        return sorted(path.name for path in paths if path.parent == folder)

    def make_folder(self, folder: Path) -> None:
        self.process.call("make a folder")
        self.disk.folders |= {folder, *folder.parents}

    def replace(
        self, path: Path, data: bytes, *, durable: bool = False, private: bool = False
    ) -> None:
        part = path.with_name(f"{path.name}{PART}")
        file = self.append(part, private=private)
        try:
            write_all(file, data)
            if durable:
                file.sync()
        except OSError:
            self.remove(part)
            raise
        self.rename(part, path)
        if durable:
            self.sync_folder(path.parent)

    def rename(self, path: Path, to: Path) -> None:
        self.process.call("rename")
        self.disk.may_fail("write", path)
        self.disk.files[to] = self.disk.files.pop(path)

    def remove(self, path: Path) -> None:
        self.process.call("remove")
        self.disk.may_fail("write", path)
        self.disk.files.pop(path, None)

    def sync_folder(self, folder: Path) -> None:
        self.process.call("sync a folder")
        self.disk.may_fail("sync", folder)
        for path in {*self.disk.files, *self.disk.synced_names}:
            if path.parent == folder:
                if path in self.disk.files:
                    self.disk.synced_names[path] = self.disk.files[path]
                else:
                    self.disk.synced_names.pop(path, None)


class OpenFile:
    """An open file of a process."""

    def __init__(self, owner: ProcessDisk, path: Path, inode: Inode) -> None:
        self.owner, self.path, self.inode = owner, path, inode
        self.disk, self.process = owner.disk, owner.process

    def write(self, data: bytes | memoryview) -> int:
        """Append a part of ``data``; a process that dies here leaves a torn write."""
        dies = self.process.step(f"a write to {self.path.name}")
        disk, sim = self.disk, self.disk.sim
        size = len(data)
        if size and not dies:
            disk.may_fail("write", self.path)
            disk.check_room(self.path)
        if dies:
            size = sim.draw(size + 1)
        elif size > 1 and sim.draw(SHORT_EVERY) == 0:
            size = 1 + sim.draw(size)
        if disk.room_bytes is not None:
            size = min(size, max(disk.room_bytes, 0))
            disk.room_bytes -= size
        kept = bytes(data[:size])  # before others run: the caller may use its memory again
        if dies:
            self.inode.data += kept
            self.process.die()
        long = sim.draw(LONG_EVERY) == 0
        _pause(self.process, WRITE_NS * (LONG_TIMES if long else 1))
        self.inode.data += kept
        return size

    def sync(self) -> None:
        self.process.call(f"fsync of {self.path.name}")
        content = bytes(self.inode.data)
        _pause(self.process, SYNC_NS)
        self.disk.may_fail("sync", self.path)
        self.inode.synced = content

    def truncate(self, size_bytes: int) -> None:
        self.process.call("truncate")
        del self.inode.data[size_bytes:]

    def close(self) -> None:
        return None


def _pause(process: Process, pause_ns: int) -> None:
    running(process).block(process.sim.now_ns + pause_ns + process.sim.draw(pause_ns))
