"""A resumption with less of the journal than the run has shown is refused, and drops nothing."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from recorded_items import HandRun, items

from edgefl import disk as disks
from edgefl.errors import UserError
from edgefl.record.files import CHECKPOINTS, EVENTS

SECTIONS: dict[str, Any] = {"record": {"durability": "process"}}


def broken(folder: Path, checkpoint: bool, sections: dict[str, Any] = SECTIONS) -> Path:
    """What a killed process leaves, with a checkpoint in its middle or without one."""
    run = HandRun(folder / "run", **sections)
    for number, item in enumerate(items(run)):
        run.give(item)
        if checkpoint and number == 8:
            run.checkpoint()
    run.run.record.flush()
    run.killed(folder / "killed")
    run.close()
    return folder / "killed"


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def no_journal(folder: Path) -> None:
    shutil.rmtree(folder / "journal")


def empty_journal(folder: Path) -> None:
    for path in (folder / "journal").iterdir():
        path.write_bytes(b"")


def lines_lost(folder: Path) -> None:
    for path in (folder / "journal").glob("*.jsonl"):
        path.unlink()


def half_a_line(folder: Path) -> None:
    for path in (folder / "journal").glob("*.jsonl"):
        path.write_bytes(path.read_bytes()[:20])


def middle_lost(folder: Path) -> None:
    for path in (folder / "journal").glob("*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines[:2], lines[2][:30] + b"\n", *lines[3:]]))


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (no_journal, "journal: has no journal, but the run has begun: bring it back from a copy, or"),
    (lines_lost, "journal: has no journal, but the run has begun: bring it back from a copy, or"),
    (empty_journal, r"jsonl: has no whole entry, but events\.jsonl has later rows: bring it back"),
    (half_a_line, r"jsonl: has no whole entry, but events\.jsonl has later rows: bring it back"),
    (middle_lost, "line 3 is damaged .checksum differs., and later entries are whole: the disk"),
]


@pytest.mark.parametrize("checkpoint", [False, True], ids=["no checkpoint", "a checkpoint"])
@pytest.mark.parametrize(("damage", "message"), DAMAGES, ids=lambda value: "")
def test_a_resumption_without_its_journal_is_refused(
    damage: Callable[[Path], None], message: str, checkpoint: bool, tmp_path: Path
) -> None:
    folder = broken(tmp_path, checkpoint)
    damage(folder)
    before = content(folder)
    with pytest.raises(UserError, match=message) as caught:
        HandRun(folder, resume=True, **SECTIONS)
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)
    if damage is not middle_lost:
        assert content(folder) == before


@pytest.mark.parametrize("payloads", [False, True])
def test_a_checkpoint_is_not_used_without_the_rows_before_it(
    payloads: bool, tmp_path: Path
) -> None:
    """With the whole journal (payloads) the run goes on from its start, else it is refused."""
    sections = {"record": {"durability": "process", "payloads": payloads}}
    folder = broken(tmp_path, True, sections)
    whole = (folder / EVENTS).read_bytes()
    (folder / EVENTS).write_bytes(whole[:50])
    if not payloads:
        with pytest.raises(UserError, match="of the journal are missing: journal-000000.jsonl"):
            HandRun(folder, resume=True, **sections)
        return
    run = HandRun(folder, resume=True, **sections)
    (said,) = run.said
    assert "checkpoint 1 cannot be used: " in said and f"{EVENTS}: has 50 bytes" in said
    run.run.record.flush()
    assert (folder / EVENTS).read_bytes().startswith(whole)
    run.close()


def test_a_run_without_events_and_journal_begins_anew(tmp_path: Path) -> None:
    """It was killed before its first input: there is nothing to lose."""
    run = HandRun(tmp_path / "run", **SECTIONS)
    run.killed(tmp_path / "killed")
    run.close()
    shutil.rmtree(tmp_path / "killed" / "journal")
    again = HandRun(tmp_path / "killed", resume=True, **SECTIONS)
    assert again.said == [] and not (tmp_path / "killed" / CHECKPOINTS).exists()
    again.close()


class FailingJournal:
    """A disk whose calls fail for files of a journal while ``call`` is their name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.call = ""
        for name in ("write", "fsync"):
            monkeypatch.setattr(disks.os, name, self._failing(name, getattr(os, name)))

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, *data: Any) -> Any:
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
            if name == self.call and path.parent.name == "journal":
                raise OSError(errno.EIO, "Input/output error")
            return real(fd, *data)

        return call


def give_and_flush(run: HandRun, item: Any) -> None:
    run.give(item)
    run.run.record.flush()


@pytest.mark.parametrize(
    ("durability", "call", "inputs"),
    [
        ("process", "write", 0),
        ("process", "write", 10),
        ("power", "write", 0),
        ("power", "fsync", 0),
    ],
)
def test_a_run_goes_on_after_its_disk_has_refused_the_first_entries(
    durability: str, call: str, inputs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of events that were on the disk without their entries would look like a lost journal.

    ``inputs``: so many are before the checkpoint; 0: there is none.
    """
    disk, sections = FailingJournal(monkeypatch), {"record": {"durability": durability}}
    run = HandRun(tmp_path / "run", **sections)
    given = items(run)
    for _ in range(inputs):
        run.give(next(given))
    if inputs:
        run.checkpoint()
    before, rows = run.state(), (run.folder / EVENTS).read_bytes()
    disk.call = call
    with pytest.raises(UserError, match="cannot be written"):
        give_and_flush(run, next(given))
    with suppress(UserError):
        run.run.record.flush()  # as a process does that ends with an error
    assert (run.folder / EVENTS).read_bytes() == rows
    run.killed(tmp_path / "killed")
    disk.call = ""
    with suppress(UserError):
        run.close()
    assert (run.folder / EVENTS).read_bytes() == rows
    for folder in (run.folder, tmp_path / "killed"):
        again = HandRun(folder, resume=True, **sections)
        assert again.said == []
        if call == "write":
            assert again.state() == before
        again.close()


def test_rows_of_an_input_wait_for_it_however_many_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written before the input's entry, and do not fit into the buffer of their file."""
    disk, run = FailingJournal(monkeypatch), HandRun(tmp_path / "run", **SECTIONS)
    for number in range(3000):
        run.run.record.fact(0, {"fact": "edge_waits", "edge": f"e{number:06d}"})
    disk.call = "write"
    with pytest.raises(UserError, match="cannot be written"):
        give_and_flush(run, next(items(run)))
    assert (run.folder / EVENTS).read_bytes() == b""
    disk.call = ""
    with suppress(UserError):
        run.close()
    HandRun(run.folder, resume=True, **SECTIONS).close()
