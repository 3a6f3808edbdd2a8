"""Checkpoints under the virtual clock: when they are written, and what is said if one is missing
or cannot be used.
"""

from __future__ import annotations

import errno
import os
import pickle
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from kills import files_of, killed_run, whole_run
from pools import RUNS, learned_of

from edgefl.checkpoints.codec import OBJECTS, Encoded
from edgefl.checkpoints.files import Checkpoints
from edgefl.disk import OwnDisk
from edgefl.errors import UserError
from edgefl.hosts.setup.learning import Learning
from edgefl.hosts.virtual import saved_run
from edgefl.hosts.virtual.run import run_virtual
from edgefl.hosts.virtual.saved_run import MOST_SHARE, SavedRun, Saving
from edgefl.record.files import CHECKPOINTS

EVERY = 5
KILLED_AT = 23  # with checkpoints in steps 15 (number 3) and 20 (number 4)


@pytest.fixture(scope="module")
def learned() -> Learning:
    return learned_of(**RUNS["plain"])


def broken(learned: Learning, folder: Path) -> Path:
    """A run that was killed. Returns the folder of its checkpoints."""

    def progress(now: int, run: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == KILLED_AT:
            raise KeyError("killed")

    steps = 0
    with pytest.raises(KeyError, match="killed"):
        run_virtual(learned, 0, folder, progress, saving=Saving(every_steps=EVERY))
    return folder / CHECKPOINTS


def resumed(learned: Learning, folder: Path) -> list[str]:
    said: list[str] = []
    run_virtual(learned, 0, folder, resume=True, saving=Saving(say=said.append))
    return said


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_two_checkpoints_are_kept_until_the_end(learned: Learning, tmp_path: Path) -> None:
    folder = broken(learned, tmp_path / "run")
    assert names(folder) == [
        f"checkpoint-00000{number}.{kind}" for number in (3, 4) for kind in ("json", "safetensors")
    ]
    assert resumed(learned, tmp_path / "run") == []
    assert not folder.exists()


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    learned: Learning, tmp_path: Path
) -> None:
    whole_run(learned, tmp_path / "whole")
    folder = broken(learned, tmp_path / "run")
    path = folder / "checkpoint-000004.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    said = resumed(learned, tmp_path / "run")
    assert len(said) == 1 and "checkpoint 4 is damaged" in said[0] and "checkpoint 3" in said[0]
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole")


def test_without_rows_of_the_checkpoint_the_one_before_is_used(
    learned: Learning, tmp_path: Path
) -> None:
    """After a loss of power a file may be shorter than it was."""
    whole_run(learned, tmp_path / "whole")
    folder = broken(learned, tmp_path / "run")
    sizes = [
        orjson.loads((folder / f"checkpoint-00000{number}.json").read_bytes())["checkpoint"]["meta"]
        for number in (3, 4)
    ]
    old, new = (each["sizes"]["events.jsonl"] for each in sizes)
    os.truncate(tmp_path / "run" / "events.jsonl", (old + new) // 2)
    (said,) = resumed(learned, tmp_path / "run")
    assert said.startswith("run: checkpoint 4 cannot be used: ")
    assert said.endswith(f"events.jsonl: has {(old + new) // 2} bytes, {new} were expected")
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole")


def test_a_run_without_a_checkpoint_begins_anew(learned: Learning, tmp_path: Path) -> None:
    whole_run(learned, tmp_path / "whole")
    for path in broken(learned, tmp_path / "run").iterdir():
        path.unlink()
    assert resumed(learned, tmp_path / "run") == ["run: has no checkpoint: it begins anew"]
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole")


def test_a_new_run_removes_the_checkpoints_of_an_earlier_one(
    learned: Learning, tmp_path: Path
) -> None:
    folder = broken(learned, tmp_path / "run")

    def progress(now: int, run: Any) -> None:
        assert not folder.exists() or names(folder) == []

    run_virtual(learned, 0, tmp_path / "run", progress)


def test_a_checkpoint_of_other_code_is_refused(
    learned: Learning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(learned, tmp_path / "run")
    monkeypatch.delattr("edgefl.hosts.virtual.host.VirtualHost._end")
    with pytest.raises(UserError, match=r"checkpoints: checkpoint 4 names the method _end of"):
        resumed(learned, tmp_path / "run")


def test_a_checkpoint_that_names_a_function_is_refused(learned: Learning, tmp_path: Path) -> None:
    """What a pickle names is called as soon as it is read. Its author could run a command."""
    mark = tmp_path / "ran"
    files = Checkpoints(OwnDisk(), broken(learned, tmp_path / "run"))
    found = files.latest(print)
    assert found is not None
    evil = pickle.dumps({"run": Evil(f"touch {mark}")})
    arrays = found.encoded.arrays | {OBJECTS: np.frombuffer(evil, np.uint8)}
    files.write(found.number + 1, Encoded(found.encoded.tree, arrays), found.meta)
    with pytest.raises(UserError, match=r"checkpoints: checkpoint 5 names posix:system; expected"):
        resumed(learned, tmp_path / "run")
    assert not mark.exists()


class Evil:
    """Its pickle runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


@pytest.mark.processes  # Ctrl-C is a signal to this process
def test_ctrl_c_saves_the_run(learned: Learning, tmp_path: Path) -> None:
    whole_run(learned, tmp_path / "whole")

    def progress(now: int, run: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == KILLED_AT:
            os.kill(os.getpid(), signal.SIGINT)

    for again in (False, True):  # a run that goes on can be interrupted, too
        steps = 0
        summary = run_virtual(learned, 0, tmp_path / "run", progress, resume=again)
        assert summary["finished"] == "interrupted"
        assert (tmp_path / "run" / "model.safetensors").exists()
    assert resumed(learned, tmp_path / "run") == []
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole")


def test_what_cannot_be_saved_is_said_once(tmp_path: Path) -> None:
    given = RUNS["plain"] | {"strategies": [{"strategy": "../support/own_strategies.py:Hooked"}]}
    learned = learned_of(**given)
    whole_run(learned, tmp_path / "whole")
    said = killed_run(learned, tmp_path / "run", [KILLED_AT], EVERY)
    anew = ": if this run is broken off, it begins anew"
    assert said[0].startswith("run: no checkpoints (strategy.hook: cannot save")
    assert said[0].endswith(anew)
    assert said[1] == "run: has no checkpoint: it begins anew"
    assert len(said) == 3 and said[2] == said[0]
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole")


def test_a_full_disk_costs_a_checkpoint_and_not_the_run(
    learned: Learning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Checkpoints, *given: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder))

    whole_run(learned, tmp_path / "whole")
    monkeypatch.setattr(Checkpoints, "write", full)
    said: list[str] = []
    saving = Saving(every_steps=KILLED_AT, say=said.append)
    run_virtual(learned, 0, tmp_path / "run", saving=saving)
    line = f"run: {tmp_path}/run/checkpoints: no checkpoint was written (No space left on device)"
    assert said and set(said) == {line}
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole")


def test_checkpoints_come_every_five_minutes_and_take_a_small_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, cost_s, saved = 0.0, 1.0, []

    def write(self: SavedRun, host: Any) -> None:
        nonlocal now_s
        saved.append(now_s)
        now_s += cost_s

    monkeypatch.setattr(saved_run.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(SavedRun, "_write", write)
    run = SavedRun(tmp_path, Saving())
    while now_s < 1000:
        run.now_and_then(None)
        now_s += 1
    assert saved == [300, 601, 902]
    cost_s = 300.0
    while now_s < 50_000:
        run.now_and_then(None)
        now_s += 1
    gaps = [later - earlier - cost_s for earlier, later in pairwise(saved[4:])]
    assert gaps and all(cost_s / gap <= MOST_SHARE for gap in gaps)
