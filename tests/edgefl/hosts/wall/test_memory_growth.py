"""Whether a process has grown, and which turns look at each connection because of that."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest
import zmq

from edgefl.hosts.wall import connections, memory_growth
from edgefl.hosts.wall.connections import TURNS_WITHOUT_LOOK, Watch
from edgefl.hosts.wall.memory_growth import MemoryGrowth
from edgefl.hosts.wall.wire import Router

PAGE = memory_growth.PAGESIZE


@pytest.fixture
def statm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "statm"
    monkeypatch.setattr(memory_growth, "STATM", str(path))
    path.write_text("900 100 9 9 0 9 0\n")
    return path


def test_growth_counts_from_the_lowest_point_since_the_last_look(statm: Path) -> None:
    growth = MemoryGrowth(10 * PAGE)
    found = []
    for pages in (109, 110, 60, 69, 70):
        statm.write_text(f"900 {pages} 9 9 0 9 0\n")
        found.append(growth.grown())
    assert found == [False, True, False, False, True]
    growth.forget()
    assert not growth.grown()
    growth.close()


def test_without_the_kernels_file_a_process_counts_as_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_growth, "STATM", str(tmp_path / "missing"))
    growth = MemoryGrowth(1 << 20)
    growth.forget()
    assert growth.grown() and growth.grown()
    growth.close()


def test_this_process_grows_by_what_it_fills() -> None:
    """New pages from the kernel: an array could get memory that this process had freed."""
    growth = MemoryGrowth(8 << 20)
    with mmap.mmap(-1, 32 << 20) as filled:
        filled.write(os.urandom(32 << 20))
        assert growth.grown()
    growth.close()


def test_connections_are_looked_at_when_the_process_grows_and_now_and_then(
    statm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, turns = [], 0
    context = zmq.Context()
    router = Router(context, None)
    watch = Watch(router, 1 << 20, lambda *of: None, lambda reason: None)
    monkeypatch.setattr(connections, "LOOK_EVERY_S", 0)

    def take() -> None:
        nonlocal turns
        turns += 1
        grown = turns >= 2 * TURNS_WITHOUT_LOOK + 3
        statm.write_text(f"9 {10_000 if grown else 100} 9\n")
        if turns == 2 * TURNS_WITHOUT_LOOK + 8:
            watch._over.set()

    watch.take = take  # type: ignore[method-assign]  # a turn without libzmq's events
    watch.look = lambda: looked.append(turns)  # type: ignore[method-assign]  # the same
    watch.run()
    router.socket.disable_monitor()
    router.close()
    context.destroy(linger=0)
    assert looked == [TURNS_WITHOUT_LOOK, 2 * TURNS_WITHOUT_LOOK, 2 * TURNS_WITHOUT_LOOK + 3]
