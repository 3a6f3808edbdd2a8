"""What a resumed run needs of the one before: its alarms, its checkpoints and its snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded_items import HandRun, items

from edgefl.disk import OwnDisk
from edgefl.hosts.wall.coordinator import thread_messages as messages
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
