"""What a resumed run needs of the one before: its alarms, its checkpoints and its snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from recorded_items import HandRun, items

from edgefl.disk import OwnDisk
from edgefl.errors import UserError
from edgefl.hosts.setup import rundir
from edgefl.hosts.wall.coordinator import items as rows
from edgefl.hosts.wall.coordinator import thread_messages as messages
from edgefl.hosts.wall.coordinator.evaluator import Evaluator
from edgefl.hosts.wall.coordinator.job_table import JobOrder
from edgefl.hosts.wall.coordinator.run_logic import RunLogic
from edgefl.hosts.wall.system import System
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
    monkeypatch.setattr("edgefl.hosts.wall.coordinator.checkpoint_writer.REPLAY_S", -1.0)
    run = begun(tmp_path)
    run.logic.checkpoints = run.writer
    run.give(messages.Interrupt("interrupted"))
    run.give(messages.Evaluated(0, (None, 2.5, 0.5)))
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
    assert evaluator._path(0).exists() is False
    run.checkpoint()
    monkeypatch.setattr(RunLogic, "forget_weights", lambda core: None)
    again = HandRun(tmp_path, resume=True, **ROUNDS, record={"durability": "power"})
    assert again.logic.core.evaluations[0].weights.size == 3
    run.logic.committer.sync()
    assert evaluator._path(0).exists() and not evaluator._unwritten


def test_whole_numbers_of_a_job_stay_whole_in_the_journal() -> None:
    job: Any = object()
    order = JobOrder(1, job, 0, 1)
    given = {"clusters": 3, "loss": float("inf")}
    row, arrays = rows.row(messages.Worked(1, order, ({"x": np.zeros(1, np.float32)}, given)))
    found = rows.item(orjson.loads(orjson.dumps(row)), arrays, {1: order})
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


@pytest.mark.parametrize(("reason", "stays"), [("versions", False), ("interrupted", True)])
def test_checkpoints_and_journal_stay_only_if_the_run_can_be_resumed(
    tmp_path: Path, reason: str, stays: bool
) -> None:
    run = begun(tmp_path)
    run.checkpoint()
    run.run.coordinator.finished = reason
    run.run.end("wall", S, 1.0, Fidelity().summary())
    folders = [tmp_path / "checkpoints", tmp_path / "journal"]
    assert [path.exists() for path in folders] == [stays, stays]


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
