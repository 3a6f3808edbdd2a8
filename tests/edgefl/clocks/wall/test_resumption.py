"""What a resumed run needs of the one before; without it, the resumption is refused."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from paths import SUPPORT
from recorded_items import HandRun, items

from edgefl import disk as disks
from edgefl.clocks.setup import rundir
from edgefl.clocks.wall.coordinator import thread_messages as messages
from edgefl.clocks.wall.coordinator.run_logic import RunLogic
from edgefl.clocks.wall.coordinator.workers import Evaluator
from edgefl.clocks.wall.system import System
from edgefl.disk import OwnDisk
from edgefl.errors import UserError
from edgefl.record.files import CHECKPOINTS, EVENTS
from edgefl.record.journal import JournalEntry
from edgefl.record.tables import Rotation, parts
from emulator.fidelity import Fidelity
from emulator.units import NS_PER_S as S

ROUNDS: dict[str, Any] = {"strategies": [{"strategy": "fedavg", "clients_per_round": 3}]}


def begun(folder: Path, **sections: Any) -> HandRun:
    run = HandRun(folder, **ROUNDS, **sections)
    for item in items(run):
        run.give(item)
        if isinstance(item, messages.Begin):
            break
    run.logic.journal.flush()
    return run


def test_a_resumed_run_is_woken_for_its_end(tmp_path: Path) -> None:
    """Nothing else is due before the run's last moment: no task is late by then."""
    end = {"stop": {"emulated_s": 2.0}}
    begun(tmp_path, **end)
    again = HandRun(tmp_path, resume=True, **ROUNDS, **end)
    assert again.logic.core.next_due() == 2 * S
    again.logic.go_on()
    assert "WakeAt(at_ns=2000000000)" in again.paper.lines


def test_the_verdict_so_far_is_kept_at_an_interruption(tmp_path: Path) -> None:
    run = begun(tmp_path)
    fidelity = Fidelity()
    fidelity.transfer(9 * S, 1 * S)
    for item in (messages.Interrupt("interrupted"), messages.Judged(1 * S, fidelity, [], {})):
        run.give(item)
    run.logic.journal.flush()
    core = HandRun(tmp_path, resume=True, **ROUNDS).logic.core
    assert core.judged is not None and core.judged.fidelity.verdict == "strained"
    assert not core.ended


def test_no_checkpoint_of_an_interrupted_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold the interruption, and a resumed run would end at once."""
    monkeypatch.setattr("edgefl.clocks.wall.coordinator.logic.REPLAY_S", -1.0)
    run = begun(tmp_path)
    run.logic.checkpoints = run.writer
    run.give(messages.Interrupt("interrupted"))
    run.give(messages.Scored(0, (None, 2.5, 0.5)))
    assert run.writer is not None
    run.writer.stop()
    again = HandRun(tmp_path, resume=True, **ROUNDS)
    assert not again.logic.ended and again.run.coordinator.finished is None


def test_a_durable_checkpoint_has_a_durable_segment_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a loss of power leaves a checkpoint whose journal goes on nowhere."""
    synced: list[str] = []
    monkeypatch.setattr(OwnDisk, "sync_folder", lambda disk, folder: synced.append(folder.name))
    run = begun(tmp_path, record={"durability": "power"})
    run.checkpoint()
    assert "journal" in synced[: synced.index("checkpoints")]


def test_a_checkpoint_has_the_model_of_an_evaluation_that_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With durability "power" its snapshot is not a file before the journal is durable."""
    run = HandRun(tmp_path, **ROUNDS, record={"durability": "power"})
    channel: Any = None
    evaluator = Evaluator(channel, tmp_path)
    assert run.writer is not None
    run.logic.evaluator = run.writer.evaluator = evaluator
    run.give(messages.Begin({"a": 10, "b": 10, "c": 10}, 1000.0))
    assert evaluator._path((0, False)).exists() is False
    run.checkpoint()
    monkeypatch.setattr(RunLogic, "forget_weights", lambda core: None)
    again = HandRun(tmp_path, resume=True, **ROUNDS, record={"durability": "power"})
    assert again.logic.core.evaluations[0, False].weights.size == 3
    run.logic.committer.sync()
    assert evaluator._path((0, False)).exists() and not evaluator._unwritten


def test_whole_numbers_of_a_job_stay_whole_in_the_journal() -> None:
    job: Any = object()
    order = messages.JobOrder(1, job, 0, 1)
    given = {"clusters": 3, "loss": float("inf")}
    row, arrays = messages.row(messages.Worked(1, order, ({"x": np.zeros(1, np.float32)}, given)))
    found = messages.from_row(orjson.loads(orjson.dumps(row)), arrays, {1: order})
    assert found.result[1] == given and isinstance(found.result[1]["clusters"], int)


def test_parts_of_tables_that_a_checkpoint_needs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With record.keep only the latest parts stay, but for those since the checkpoints."""
    monkeypatch.setattr(rundir, "Rotation", partial(Rotation, 500))
    keep = {**ROUNDS, "record": {"keep": 1}}
    run = HandRun(tmp_path, **keep)
    for number, item in enumerate(items(run)):
        run.give(item)
        if number == 8:
            run.checkpoint()
    run.logic.journal.flush()
    files = run.files()
    assert len(parts(tmp_path / "events.jsonl")) > 2
    again = HandRun(tmp_path, resume=True, **keep)
    assert (again.said, again.files()) == ([], files)
    again.run.record.hold(None)
    assert len(parts(tmp_path / "events.jsonl")) == 1


def test_a_run_that_cannot_be_resumed_keeps_its_files(tmp_path: Path) -> None:
    """Both checkpoints are damaged, and what was before them is not in the journal any more."""
    run = begun(tmp_path)
    for _ in range(3):
        run.checkpoint()
    files = run.files()
    for path in (tmp_path / "checkpoints").glob("*.json"):
        path.write_bytes(b"{}")
    with pytest.raises(UserError, match="parts of the journal are missing: journal-000000.jsonl"):
        HandRun(tmp_path, resume=True, **ROUNDS)
    assert run.files() == files


class StoppedClock(System):
    """Its time passes only where a test says so."""

    now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns


def test_a_replay_that_took_long_leads_to_a_checkpoint(tmp_path: Path) -> None:
    """Otherwise it would be longer after each of several crashes."""
    run, system = begun(tmp_path), StoppedClock()
    run.logic.checkpoints, run.logic.system = run.writer, system

    def entries() -> Iterator[JournalEntry]:
        system.now_ns += 10 * S
        yield from ()

    run.logic.replay(entries())
    run.give(messages.Noticed(S, "stranger", {}))
    assert run.writer is not None
    run.writer.stop()
    assert [path.name for path in (tmp_path / "checkpoints").glob("*.json")]


# ------------------------------------------------------------------ lost journal
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


def middle_lost(folder: Path) -> None:
    for path in (folder / "journal").glob("*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines[:2], lines[2][:30] + b"\n", *lines[3:]]))


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (no_journal, "journal: has no journal, but the run has begun: bring it back from a copy, or"),
    (empty_journal, r"jsonl: has no whole entry, but events\.jsonl has later rows: bring it back"),
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


def test_a_lost_journal_is_noticed_before_the_first_row_of_events(tmp_path: Path) -> None:
    """Its lines are gone, its arrays are there: the run must not begin anew in silence."""
    folder = broken(tmp_path, False)
    (folder / EVENTS).write_bytes(b"")
    (folder / "journal" / "journal-000000.jsonl").unlink()
    before = content(folder)
    with pytest.raises(UserError, match="of the journal are missing: journal-000000.jsonl"):
        HandRun(folder, resume=True, **SECTIONS)
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
        ("process", "write", 10),
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


# ------------------------------------------------------------------ replay
HALVING = f"{SUPPORT / 'job_strategies.py'}:Halving"
CASES: dict[str, dict[str, Any]] = {
    "rounds": {"strategies": [{"strategy": "fedavg", "clients_per_round": 3}]},
    "asynchronous": {"strategies": [{"strategy": "fedasmu", "concurrency": 2}]},
    "with jobs": {"strategies": [{"strategy": HALVING, "concurrency": 3}]},
    "with payloads": {
        "strategies": [{"strategy": "fedbuff", "concurrency": 3, "buffer_size": 2}],
        "record": {"payloads": True},
    },
}


def as_row(item: Any) -> tuple[bytes, dict[str, Any]]:
    found, arrays = messages.row(item)
    return orjson.dumps(found), {name: array.copy() for name, array in arrays.items()}


@pytest.mark.parametrize("every", [0, 4], ids=["journal", "checkpoints"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_a_run_that_is_killed_after_any_input_is_repeated(
    tmp_path: Path, case: str, every: int
) -> None:
    """Same state, same bytes in all files, and the same outputs afterwards.

    ``every``: inputs between two checkpoints; 0: there are none.
    """
    sections = {"evaluation": {"every_versions": 1}, **CASES[case]}
    run = HandRun(tmp_path / "run", **sections)
    states, rows = [], []
    for number, item in enumerate(items(run)):
        rows.append(as_row(item))
        run.give(item)
        run.logic.journal.flush()
        if every and number % every == every - 1:
            run.checkpoint()
        run.killed(tmp_path / f"killed {number}")
        states.append((run.state(), run.files(), len(run.paper.lines)))
    for number, (state, files, said) in enumerate(states):
        again = HandRun(tmp_path / f"killed {number}", resume=True, **sections)
        assert again.state() == state, number
        assert again.files() == files, number
        if number % 5 == 0:
            for row, arrays in rows[number + 1 :]:
                again.give(messages.from_row(orjson.loads(row), arrays, again.open_jobs))
            assert again.paper.lines[: len(run.paper.lines) - said] == run.paper.lines[said:]
            assert again.files() == run.files()
        again.close()
    run.close()


def test_a_journal_of_other_decisions_is_refused(tmp_path: Path) -> None:
    run = HandRun(tmp_path / "run", **CASES["rounds"])
    for item in items(run):
        run.give(item)
    run.logic.journal.flush()
    other = {"strategies": [{"strategy": "fedavg", "clients_per_round": 2}]}
    with pytest.raises(UserError, match=r"journal-000000.jsonl: the input of line 3 decided"):
        HandRun(tmp_path / "run", resume=True, **other)


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path: Path) -> None:
    run = HandRun(tmp_path, **CASES["rounds"])
    for number, item in enumerate(items(run)):
        run.give(item)
        if number in (8, 16):
            run.checkpoint()
    run.logic.journal.flush()
    state, files = run.state(), run.files()
    newest = tmp_path / "checkpoints" / "checkpoint-000002.json"
    newest.write_bytes(newest.read_bytes()[:-9])
    again = HandRun(tmp_path, resume=True, **CASES["rounds"])
    (said,) = again.said
    assert "checkpoint 2 is damaged" in said and "checkpoint 1, the one before, is used" in said
    assert (again.state(), again.files()) == (state, files)


def test_checkpoints_bound_the_journal(tmp_path: Path) -> None:
    run = HandRun(tmp_path, **CASES["rounds"])
    for item in items(run):
        run.give(item)
        run.checkpoint()
    kept = [path.name for path in sorted((tmp_path / "journal").glob("*.jsonl"))]
    assert len(kept) == 2, "those since the two checkpoints that are kept"
    assert len(list((tmp_path / "checkpoints").glob("*.json"))) == 2
