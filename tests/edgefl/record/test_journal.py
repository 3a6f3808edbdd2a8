"""The journal of inputs: whole entries, a torn end at any byte, segments, and checked replays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from builders import vector

from edgefl.disk import DiskFile, OwnDisk
from edgefl.errors import UserError
from edgefl.record.journal import BLOBS, LINES, Journal, read, segment_name, segments
from edgefl.strategies.base.events_and_decisions import (
    Decision,
    Discard,
    Publish,
    RunStarted,
    UpdateArrived,
)

FIRST = segment_name(0)
BASE = vector(0, 0)


def arrived(number: int, weights: np.ndarray) -> UpdateArrived:
    return UpdateArrived("a", number, 0, BASE, {"weights": weights}, {"loss": 0.5})


def put(journal: Journal, number: int, decision: Decision | None = None) -> None:
    """Write the input of this number: an update with one event; "job" for odd numbers, too."""
    weights = vector(number, number + 0.5)
    decided = decision or Publish(weights)
    journal.write(number, arrived(number, weights), [decided])
    if number % 2:
        mask = np.array([[True], [False]])
        journal.write(number, RunStarted(), [Discard(number, "late")])
        journal.input({"kind": "job", "of": number}, {"w": weights, "mask": mask}, number / 8)
    else:
        journal.input({"kind": "update", "of": number}, {"w": weights}, number / 8)


def opened(folder: Path, **options: Any) -> Journal:
    return Journal(folder, **({"inputs": True, "payloads": False} | options))


def of(folder: Path, **options: Any) -> list[int]:
    """The numbers of the inputs that can be read."""
    return [entry.item["of"] for entry in read(folder, **options)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ------------------------------------------------------------------ entries
@pytest.mark.parametrize("payloads", [False, True])
def test_inputs_come_back_with_their_arrays_and_events(tmp_path: Path, payloads: bool) -> None:
    journal = opened(tmp_path, payloads=payloads)
    for number in (2, 3):
        put(journal, number)
    journal.close()
    two, three = read(tmp_path)
    assert (two.item, two.wall_s) == ({"kind": "update", "of": 2}, 0.25)
    assert two.arrays["w"].tolist() == [2.0, 2.5] and two.arrays["w"].dtype == np.float32
    assert three.arrays["mask"].tolist() == [[True], [False]]
    (event,), (_, started) = two.events, three.events
    assert (event.now, event.row["event"], event.row["task"]) == (2, "update_arrived", 2)
    assert event.decisions[0]["do"] == "publish" and len(event.decisions[0]["weights"]) == 32
    assert (started.row["event"], started.decisions[0]["reason"]) == ("run_started", "late")
    kept = [list(event.arrays) for event in (*two.events, *three.events)]
    assert kept == ([["weights"], ["weights"], []] if payloads else [[], [], []])
    size = (tmp_path / f"{FIRST}{BLOBS}").stat().st_size
    assert size == 8 + 8 + 2, "an array of an event that is the input's is kept once"


# ------------------------------------------------------------------ a torn end
@pytest.mark.slow
def test_what_a_crash_has_torn_at_any_byte_is_cut_off_and_the_journal_goes_on(
    tmp_path: Path,
) -> None:
    whole = opened(tmp_path / "whole")
    ends = [(0, 0)]
    for number in range(1, 5):
        put(whole, number)
        whole.flush()
        sizes = whole.sizes()
        ends.append((sizes[f"{FIRST}{LINES}"], sizes[f"{FIRST}{BLOBS}"]))
    whole.close()
    lines, blobs = ((tmp_path / "whole" / f"{FIRST}{end}").read_bytes() for end in (LINES, BLOBS))
    (_, before_blobs), (last_lines, last_blobs) = ends[-2:]
    last_two = ends[-3][0]
    cuts = [(at, last_blobs) for at in (*range(0, last_two, 37), *range(last_two, last_lines))]
    cuts += [(last_lines, at) for at in range(before_blobs, last_blobs)]
    for cut_lines, cut_blobs in cuts:
        folder = tmp_path / "torn"
        folder.mkdir(exist_ok=True)
        (folder / f"{FIRST}{LINES}").write_bytes(lines[:cut_lines])
        (folder / f"{FIRST}{BLOBS}").write_bytes(blobs[:cut_blobs])
        expected = sum(cut_lines >= n_lines and cut_blobs >= n for n_lines, n in ends[1:])
        told: list[str] = []
        journal = opened(folder, resumed=True)
        for entry in journal.replay(say=told.append):
            _caused(journal, entry.item["of"])
        for number in range(expected + 1, 5):
            put(journal, number)
        journal.close()
        assert (folder / f"{FIRST}{LINES}").read_bytes() == lines
        assert (folder / f"{FIRST}{BLOBS}").read_bytes() == blobs
        assert len(told) == (
            (cut_lines, cut_blobs) not in ends and cut_lines not in _line_ends(lines)
        )


def _line_ends(lines: bytes) -> set[int]:
    return {0, *(at + 1 for at, byte in enumerate(lines) if byte == ord("\n"))} - {len(lines)}


def _caused(journal: Journal, number: int, decision: Decision | None = None) -> None:
    """The events that the input of this number causes, as in ``put``."""
    weights = vector(number, number + 0.5)
    journal.write(number, arrived(number, weights), [decision or Publish(weights)])
    if number % 2:
        journal.write(number, RunStarted(), [Discard(number, "late")])


def test_damage_before_a_durable_entry_is_named(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for number in range(1, 5):
        put(journal, number)
    journal.close()
    lines, blobs = (tmp_path / f"{FIRST}{end}" for end in (LINES, BLOBS))
    good = lines.read_bytes(), blobs.read_bytes()
    lines.write_bytes(good[0].replace(b'"of":2', b'"of":9'))
    damaged = r"000000.jsonl: line 2 is damaged \(checksum differs\), and later entries are whole"
    with pytest.raises(UserError, match=damaged):
        of(tmp_path)
    lines.write_bytes(good[0][: good[0].index(b"\n") + 1])
    assert of(tmp_path) == [1], "the advice in that line works"
    lines.write_bytes(good[0])
    blobs.write_bytes(b"\1" + good[1][1:])
    with pytest.raises(UserError, match=r"000000.bin: the array 'w' of line 1 is damaged"):
        of(tmp_path)


# ------------------------------------------------------------------ a loss of power
def test_what_was_not_synced_may_be_lost_anywhere_and_what_was_may_not(tmp_path: Path) -> None:
    journal = opened(tmp_path, power=True)
    for number in range(1, 4):
        put(journal, number)
    journal.flush()
    journal.sync()
    for number in range(4, 7):
        put(journal, number)
    journal.close()
    lines = tmp_path / f"{FIRST}{LINES}"
    good = lines.read_bytes()
    lines.write_bytes(good.replace(b'"of":5', b'"of":0'))
    told: list[str] = []
    assert of(tmp_path, say=told.append) == [1, 2, 3, 4]
    assert "line 5 is damaged (checksum differs); it was written when the run broke off" in told[0]
    lines.write_bytes(good.replace(b'"of":3', b'"of":0'))
    with pytest.raises(UserError, match="line 3 is damaged"):
        of(tmp_path)


class Watched(OwnDisk):
    """A disk that notes what is synced, and may do something meanwhile or refuse."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.error: OSError | None = None

    def append(self, path: Path, keep_bytes: int = 0, private: bool = False) -> Any:
        file = super().append(path, keep_bytes, private)
        return WatchedFile(self, file)

    def sync_folder(self, folder: Path) -> None:
        self.synced.append(folder.name)


class WatchedFile:
    def __init__(self, disk: Watched, file: DiskFile) -> None:
        self.disk, self.path = disk, file.path
        self.write, self.truncate, self.close = file.write, file.truncate, file.close

    def sync(self) -> None:
        self.disk.synced.append(self.path.name)
        meanwhile, self.disk.meanwhile = self.disk.meanwhile, lambda: None
        meanwhile()
        if self.disk.error is not None:
            raise self.disk.error


def test_a_segment_that_begins_while_another_thread_syncs_is_synced_next_time(
    tmp_path: Path,
) -> None:
    """Arrays are synced before the lines that name them, and old segments before new ones."""
    disk = Watched()
    journal = opened(tmp_path / "journal", disk=disk, power=True)
    assert disk.synced == ["journal"], "no row of a run is on the disk before its journal"
    disk.synced.clear()
    put(journal, 1)
    journal.flush()

    def meanwhile() -> None:
        put(journal, 2)
        assert journal.begin_segment() == 1
        put(journal, 3)
        journal.flush()

    disk.meanwhile = meanwhile
    journal.sync()
    assert disk.synced == ["journal", f"{FIRST}.bin", f"{FIRST}.jsonl"]
    disk.synced.clear()
    put(journal, 4)
    journal.sync()
    second = segment_name(1)
    assert disk.synced == [
        *(f"{FIRST}{end}" for end in (BLOBS, LINES)),
        "journal",
        *(f"{second}{end}" for end in (BLOBS, LINES)),
    ]
    put(journal, 5)
    journal.close()
    rows = [
        orjson.loads(line.partition(b" ")[2])
        for name in (FIRST, second)
        for line in (tmp_path / "journal" / f"{name}{LINES}").read_bytes().splitlines()
    ]
    assert [row["durable"] for row in rows] == [[0, 0], [0, 0], [0, 0], [0, 1], [1, 1]]


def test_segments_of_a_process_that_died_are_synced_by_the_next_one(tmp_path: Path) -> None:
    """It goes on with entries that only the system had: they must survive before an answer."""
    first = opened(tmp_path, power=True)
    put(first, 1)
    first.begin_segment()
    put(first, 2)
    first.close()  # without a sync
    disk = Watched()
    second = opened(tmp_path, disk=disk, power=True, resumed=True)
    assert [entry.item["of"] for entry in _quietly(second, 0)] == [1, 2]
    second.sync()
    files = [f"{segment_name(number)}{end}" for number in (0, 1) for end in (BLOBS, LINES)]
    assert disk.synced == [*files[:2], tmp_path.name, *files[2:]]


# ------------------------------------------------------------------ segments
def test_segments_are_read_in_order_and_dropped_when_checkpoints_make_them_needless(
    tmp_path: Path,
) -> None:
    journal = opened(tmp_path)
    for number in range(1, 7):
        put(journal, number)
        if number % 2 == 0:
            assert journal.begin_segment() == number // 2
    assert of(tmp_path) == [1, 2, 3, 4, 5, 6] and of(tmp_path, since=2) == [5, 6]
    assert of(tmp_path, since=3) == []
    journal.drop_before(2)
    assert segments(tmp_path, OwnDisk()) == [2, 3]
    with pytest.raises(UserError, match="parts of the journal are missing: .*0.jsonl, .*1.jsonl"):
        of(tmp_path)
    journal.close()
    again = opened(tmp_path, resumed=True)
    assert [entry.item["of"] for entry in _quietly(again, 2)] == [5, 6]
    put(again, 7)
    again.close()
    again.drop()
    assert names(tmp_path) == [], "the run has ended: nothing is left to replay"


def test_a_damaged_segment_before_whole_ones_is_named(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    put(journal, 1)
    journal.begin_segment()
    put(journal, 2)
    journal.close()
    lines = tmp_path / f"{FIRST}{LINES}"
    lines.write_bytes(lines.read_bytes()[:-5])
    with pytest.raises(UserError, match=r"000000.jsonl: line 1 is torn"):
        of(tmp_path)


@pytest.mark.parametrize("kind", [LINES, BLOBS])
def test_a_segment_that_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    """Tried with a folder in its place; a disk that fails gives an OSError, too."""
    journal = opened(tmp_path)
    put(journal, 1)
    journal.close()
    (tmp_path / f"{FIRST}{kind}").unlink()
    (tmp_path / f"{FIRST}{kind}").mkdir()
    with pytest.raises(UserError, match=rf"000000{kind}: cannot be read \(Is a directory\)"):
        of(tmp_path)


def _quietly(journal: Journal, since: int) -> list[Any]:
    entries = []
    for entry in journal.replay(since):
        _caused(journal, entry.item["of"])
        entries.append(entry)
    return entries


# ------------------------------------------------------------------ checked replays
def test_a_replay_that_decides_otherwise_is_named(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for number in range(1, 4):
        put(journal, number)
    journal.close()
    again = opened(tmp_path, resumed=True)
    replay = again.replay()
    for number in (1, 2):
        next(replay)
        _caused(again, number, Publish(vector(0)) if number == 2 else None)
    with pytest.raises(UserError, match=r"000000.jsonl: the input of line 2 decided .*'publish'"):
        next(replay)
    assert of(tmp_path) == [1, 2, 3], "nothing was changed"


def test_a_journal_of_events_goes_on_at_its_sizes(tmp_path: Path) -> None:
    """As in a resumed run under the virtual clock."""
    for folder, broken in ((tmp_path / "whole", False), (tmp_path / "broken", True)):
        journal = Journal(folder)
        for number in range(6):
            journal.write(number, arrived(number, vector(number)), [Publish(vector(number))])
            if broken and number == 2:
                sizes = journal.sizes()
                journal.write(9, arrived(9, vector(9)), [])
                journal.close()
                journal = Journal(folder, sizes=sizes)
        journal.close()
    for name in names(tmp_path / "whole"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes()
