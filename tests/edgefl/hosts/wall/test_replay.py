"""A run is killed after each of its inputs: from its journal it is repeated as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from paths import SUPPORT
from recorded_items import HandRun, items

from edgefl.errors import UserError
from edgefl.hosts.wall.coordinator.items import item as of_row
from edgefl.hosts.wall.coordinator.items import row

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
    found, arrays = row(item)
    return orjson.dumps(found), {name: array.copy() for name, array in arrays.items()}


@pytest.mark.parametrize("every", [0, 4], ids=["journal", "checkpoints"])
@pytest.mark.parametrize("case", CASES)
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
                again.give(of_row(orjson.loads(row), arrays, again.open_jobs))
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
