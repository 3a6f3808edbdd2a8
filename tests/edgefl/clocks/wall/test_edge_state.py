"""What an edge keeps: transfers in memory, and on disk what its next process needs."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_hosts import SETUP, Clock, Script, side

from edgefl.clocks.wall.edge.state import KeptState, KeptUpdate, StateFolder, StateKeeper
from edgefl.clocks.wall.edge.transfers import MOST_INCOMING, EdgeTransfers
from edgefl.disk import OwnDisk
from edgefl.edges.edge import Edge
from edgefl.errors import UserError
from edgefl.protocol.codec import Outgoing, encode_note
from edgefl.protocol.messages import (
    Acknowledged,
    Assignment,
    Join,
    Offer,
    Piece,
    RunFinished,
    Stamped,
    Update,
    Welcome,
    WireError,
)

RUN = "run a"


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def update(task: int, **numbers: float) -> Update:
    return Update(task, 7, {"weights": vector(task, 2, 3), "empty": vector()}, numbers)


def kept(task: int, transfer: int = 1) -> KeptUpdate:
    return KeptUpdate(transfer, 5 * task, update(task, loss=0.1 * task), {"c": vector(task)})


def nothing(line: str) -> None:
    raise AssertionError(line)


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    found = StateFolder(tmp_path / "state", "e000", OwnDisk())
    found.claim()
    return found


def names(folder: StateFolder) -> list[str]:
    return sorted(path.name for path in folder.folder.iterdir() if path.name != "in-use.lock")


# ------------------------------------------------------------------ files
def test_an_update_comes_back_bit_by_bit_in_the_order_of_its_offers(folder: StateFolder) -> None:
    odd = {"nan": float("nan"), "inf": float("inf"), "third": 1 / 3}
    folder.keep(RUN, KeptUpdate(4, 2**62, update(12, **odd), {}))
    folder.keep(RUN, kept(3, transfer=5))
    first, second = folder.take(RUN, nothing).updates
    assert (first.transfer, first.due_ns, first.update.number, first.update.version) == (
        4,
        2**62,
        12,
        7,
    )
    assert str(first.update.numbers) == str(odd) and list(first.update.vectors) == [
        "weights",
        "empty",
    ]
    offered = Outgoing(4, update(12, **odd)).offer(2**62)
    assert Outgoing(4, first.update).offer(2**62) == offered, "the same bytes and digest"
    assert second.update.number == 3 and second.learned["c"].tolist() == [3.0]


def test_files_are_private_and_no_part_stays(folder: StateFolder) -> None:
    folder.keep(RUN, kept(1))
    folder.remember(RUN, {"c": vector(1)}, [0])
    (folder.folder / "update-9.safetensors.part").write_bytes(b"half")
    for path in folder.folder.iterdir():
        if path.suffix != ".part":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert [each.update.number for each in folder.take(RUN, nothing).updates] == [1]
    assert names(folder) == ["memory.safetensors", "update-1.safetensors"]


def test_what_is_of_another_run_is_dropped_with_a_line(folder: StateFolder) -> None:
    folder.keep("run b", kept(1))
    folder.keep("run b", kept(2))
    folder.remember("run b", {"c": vector(1)}, [])
    folder.training("run b", 3)
    said: list[str] = []
    assert folder.take(RUN, said.append) == KeptState()
    assert said == [f"{folder.folder}: 2 updates of another run: dropped"] and not names(folder)


@pytest.mark.parametrize("damage", ["cut short", "a bit", "another file"])
def test_a_damaged_file_is_dropped_with_a_line(folder: StateFolder, damage: str) -> None:
    folder.keep(RUN, kept(1))
    folder.keep(RUN, kept(2))
    path = folder.folder / "update-1.safetensors"
    data = bytearray(path.read_bytes())
    if damage == "a bit":
        data[-3] ^= 4
    path.write_bytes({"cut short": data[:-1], "a bit": data, "another file": b"{}"}[damage])
    said: list[str] = []
    assert [each.update.number for each in folder.take(RUN, said.append).updates] == [2]
    assert (
        len(said) == 1 and said[0].startswith(f"{path}: is damaged (") and said[0].count("\n") == 0
    )
    assert names(folder) == ["update-2.safetensors"]


def test_an_update_that_the_memory_has_already_is_not_offered_again(folder: StateFolder) -> None:
    """The process ended after it had written the memory and before it had removed the update."""
    folder.keep(RUN, kept(1))
    folder.keep(RUN, kept(2))
    folder.remember(RUN, {"c": vector(9)}, [1])
    state = folder.take(RUN, nothing)
    assert [each.update.number for each in state.updates] == [2]
    assert state.memory["c"].tolist() == [9.0]


def test_one_process_of_an_edge_uses_the_folder(folder: StateFolder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="state/e000: another process of this edge uses it"):
        StateFolder(tmp_path / "state", "e000", OwnDisk()).claim()
    StateFolder(tmp_path / "state", "e001", OwnDisk()).claim()
    folder.release()
    StateFolder(tmp_path / "state", "e000", OwnDisk()).claim()


# ------------------------------------------------------------------ the keeper
class Full(OwnDisk):
    """A disk without room, while ``full``."""

    full = False

    def replace(self, path: Path, data: bytes, **options: bool) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        super().replace(path, data, **options)


class Rig:
    """An edge with its transfers and its keeper."""

    def __init__(self, folder: StateFolder) -> None:
        self.said: list[str] = []
        self.folder = folder
        self.edge: Edge[Any] = side().edge
        self.transfers = EdgeTransfers(1 << 20)
        self.keeper = StateKeeper(folder, RUN, self.said.append, Clock())
        self.state = self.keeper.take()

    def trained(self, task: int, **learned: np.ndarray) -> None:
        """The edge has an update of this task to offer."""
        self.edge.unacknowledged[task] = found = update(task)
        self.edge._learned[task] = learned
        self.transfers.new(found, task)
        self.look()

    def acknowledged(self, task: int) -> None:
        self.transfers.acknowledged(task)
        self.edge.receive(Acknowledged(task), 0)
        self.look()

    def look(self) -> None:
        self.keeper.look(self.edge, self.transfers.uploads.values())

    def end(self, over: bool = False) -> list[str]:
        """What is on disk in the end."""
        self.keeper.end(over)
        return names(self.folder)


def test_an_update_is_on_disk_until_it_is_acknowledged_and_then_the_memory(
    folder: StateFolder,
) -> None:
    rig = Rig(folder)
    rig.trained(1, c=vector(1))
    rig.trained(2, c=vector(2))
    rig.acknowledged(1)
    assert rig.end() == ["memory.safetensors", "update-2.safetensors"]
    again = Rig(folder)
    assert again.state.memory["c"].tolist() == [1.0]
    (one,) = again.state.updates
    assert (one.transfer, one.due_ns, one.learned["c"].tolist()) == (2, 2, [2.0])
    again.edge.bring_back({2: (one.update, one.learned)}, again.state.memory)
    again.transfers.bring_back(one.transfer, one.update, one.due_ns)
    again.acknowledged(2)
    assert again.edge.memory["c"].tolist() == [2.0]
    assert again.transfers.new(update(5), 0).number == 3, "numbers go on"
    assert again.end() == ["memory.safetensors"]


def test_a_full_disk_is_told_once_and_the_edge_goes_on(tmp_path: Path) -> None:
    disk = Full()
    folder = StateFolder(tmp_path, "e000", disk)
    folder.claim()
    rig = Rig(folder)
    rig.trained(1, c=vector(1))
    rig.acknowledged(1)
    rig.keeper._put(setattr, disk, "full", True)
    for task in (2, 3):
        rig.trained(task, c=vector(task))
    rig.acknowledged(2)
    rig.keeper._put(setattr, disk, "full", False)
    rig.trained(4)
    assert rig.end() == ["update-4.safetensors"], "an old memory would be that of another task"
    line = (
        f"--state: {folder.folder}: cannot be written (No space left on device); going on without"
    )
    assert len(rig.said) == 1 and rig.said[0].startswith(line)


def test_the_task_in_training_is_named_after_the_end_of_the_process(folder: StateFolder) -> None:
    rig = Rig(folder)
    rig.edge.task = Assignment(2, 0, {"weights": vector(1)})
    rig.look()
    assert rig.end() == ["training.json"] and folder.take(RUN, nothing).lost == 2
    again = Rig(folder)
    again.look()  # the new process is idle
    assert again.end() == [] and folder.take(RUN, nothing).lost is None


# ------------------------------------------------------------------ the edge
def run(script: Script, folder: StateFolder) -> None:
    host = script.host()
    host.state = folder
    host.run()


@pytest.mark.parametrize(("reason", "stays"), [("interrupted", True), ("versions", False)])
def test_a_run_that_was_broken_off_may_be_resumed(
    folder: StateFolder, reason: str, stays: bool
) -> None:
    folder.keep(SETUP.run_id, kept(3))
    run(Script((SETUP, 7), (Welcome(), 7), (RunFinished(reason, False), 7)), folder)
    assert names(folder) == (["update-3.safetensors"] if stays else [])


def test_a_new_process_offers_what_the_former_one_has_kept(
    folder: StateFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.keep(SETUP.run_id, kept(3, transfer=6))
    folder.remember(SETUP.run_id, {"c": vector(1)}, [])
    folder.training(SETUP.run_id, 4)
    script = Script(
        (SETUP, 7),
        (Welcome(), 7),
        None,
        (Stamped(9, encode_note(Acknowledged(3))), 7),
        (RunFinished("versions", False), 7),
    )
    run(script, folder)
    (join,) = [each for each in script.said if isinstance(each, Join)]
    (offer,) = [each for each in script.said if isinstance(each, Offer)]
    assert join.tasks == [3] and (offer.transfer, offer.due_ns) == (6, 15)
    assert script.work.edge.memory["c"].tolist() == [3.0], "the rule's memory goes on from there"
    assert capsys.readouterr().err.splitlines() == [
        "e000: offering kept updates again: of task 3",
        "e000: the training for task 4 was lost when this edge ended",
    ]
    assert names(folder) == [], "the run is over"


# ------------------------------------------------------------------ edge transfers
MOST = 1 << 20


def task(number: int = 5) -> Assignment:
    return Assignment(number, 3, {"weights": np.arange(100, dtype=np.float32)}, {"epochs": 2.0})


def test_a_download_is_stamped_piece_by_piece_and_kept_until_its_moment() -> None:
    transfers, outgoing = EdgeTransfers(MOST), Outgoing(9, task())
    assert transfers.offered(outgoing.offer(0), 10) is None
    assert transfers.piece(Piece(9, 0), outgoing.piece(0, 150), 20) is None
    assert transfers.held == [[9, 150]] and transfers.tasks == [5]
    arrived = transfers.piece(Piece(9, 150), outgoing.piece(150, 400), 30)
    assert arrived is not None and (arrived.transfer, arrived.curve) == (
        9,
        [[0, 10], [150, 20], [400, 30]],
    )
    message = transfers.delivered(9)
    assert isinstance(message, Assignment) and message.numbers == {"epochs": 2.0}
    np.testing.assert_array_equal(message.vectors["weights"], np.arange(100))
    assert transfers.delivered(9) is None and transfers.held == []


def test_a_download_with_another_digest_begins_again() -> None:
    transfers, outgoing = EdgeTransfers(MOST), Outgoing(9, task())
    transfers.offered(outgoing.offer(0), 10)
    with pytest.raises(WireError, match="digest"):
        transfers.piece(Piece(9, 0), memoryview(bytes(400)), 20)
    assert transfers.held == []


def test_pieces_of_an_unknown_transfer_are_left_alone_and_too_many_downloads_refused() -> None:
    transfers = EdgeTransfers(MOST)
    assert transfers.piece(Piece(1, 0), memoryview(b"x"), 0) is None
    for number in range(MOST_INCOMING):
        transfers.offered(Outgoing(number, task(number)).offer(0), 0)
    with pytest.raises(WireError, match="under way"):
        transfers.offered(Outgoing(99, task(99)).offer(0), 0)
