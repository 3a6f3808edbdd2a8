"""Checkpoints under the virtual clock: when they are written, and what is said if one is missing
or cannot be used.
"""

from __future__ import annotations

import errno
import gc
import os
import pickle
import signal
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from kills import KILLS, files_of, killed_run, some, whole_run
from pools import RUNS, SPREAD, learned_of

from edgefl.checkpoints.codec import OBJECTS, Encoded
from edgefl.checkpoints.files import Checkpoints
from edgefl.clocks.setup import rundir
from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.virtual import run as virtual_run
from edgefl.clocks.virtual.pool.engine import InProcessEngine
from edgefl.clocks.virtual.run import MOST_SHARE, SavedRun, Saving, VirtualHost, run_virtual
from edgefl.clocks.virtual.run_batch import open_pool
from edgefl.disk import OwnDisk
from edgefl.edges.edge import ASKING
from edgefl.errors import UserError
from edgefl.record.files import CHECKPOINTS
from edgefl.record.tables import Rotation, parts
from edgefl.results.read import read_csv

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


@pytest.mark.slow
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


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
def test_two_checkpoints_are_kept_until_the_end(learned: Learning, tmp_path: Path) -> None:
    folder = broken(learned, tmp_path / "run")
    assert names(folder) == [
        f"checkpoint-00000{number}.{kind}" for number in (3, 4) for kind in ("json", "safetensors")
    ]
    assert resumed(learned, tmp_path / "run") == []
    assert not folder.exists()


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_checkpoint_of_other_code_is_refused(
    learned: Learning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(learned, tmp_path / "run")
    monkeypatch.delattr("edgefl.clocks.virtual.run.VirtualHost._end")
    with pytest.raises(UserError, match=r"checkpoints: checkpoint 4 names the method _end of"):
        resumed(learned, tmp_path / "run")


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


@pytest.mark.slow
def test_an_evaluation_under_way_keeps_the_wall_seconds_of_its_model(
    learned: Learning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is busy with it when the run is saved, as here all are up to the end."""
    monkeypatch.setattr(InProcessEngine, "ready", lambda self, job: False)
    told: dict[int, float] = {}

    def progress(now: int, run: Any) -> None:
        time.sleep(0.002)
        if len(told) < 3:
            told.update(run.record.wall_at)
        elif run.record.wall_at.keys() > told.keys():  # saved since
            raise KeyError("killed")

    with pytest.raises(KeyError, match="killed"):
        run_virtual(learned, 0, tmp_path / "run", progress, saving=Saving(every_steps=1))
    resumed(learned, tmp_path / "run")
    wall = {int(row["version"]): row["wall_s"] for row in read_csv(tmp_path / "run/metrics.csv")}
    assert {version: wall[version] for version in told} == {
        version: f"{wall_s:.3f}" for version, wall_s in told.items()
    }
    assert max(told.values()) > 0.001


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_checkpoints_come_every_five_minutes_and_take_a_small_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, cost_s, saved = 0.0, 1.0, []

    def write(self: SavedRun, host: Any) -> None:
        nonlocal now_s
        saved.append(now_s)
        now_s += cost_s

    monkeypatch.setattr(virtual_run.time, "monotonic", lambda: now_s)
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


# ------------------------------------------------------------------ runs under the virtual clock t
FEW = 7  # steps between two checkpoints: rows of up to so many steps are written after the last
EDGES: dict[str, Any] = SPREAD | {
    "task": None,
    "data": {"name": "digits"},
    "model": {"name": "mlp", "hidden": [8]},
    "edges": {"count": 8},
    "devices": {"samples_per_s": 400.0, "slowest_ratio": 4.0},
    "links": {"up_mbit_s": 0.1, "down_mbit_s": 0.3, "latency_ms": 10.0},
    "training": {"epochs": 3, "batch_size": 16},
    "stop": {"emulated_s": 20.0},
    "evaluation": {
        "every_versions": 3,
        "by_label": True,
        "edges": {"every_versions": 4, "every_s": 1.5},
    },
}
TDMA: dict[str, Any] = {
    "medium": {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 10.0, "rate_mbit_s": 0.5},
    "devices": {"samples_per_slot": 40.0},
    "links": {},
}
LABELLED = {"unlabelled": {"data": "held_out", "size": 20}}
REPLACE = {"dispatch": "replace", "concurrency": 4}
TRACE = "seconds,bit_s\n0,200000\n0.7,0\n1.1,90000\n2.3,400000\n3.1,\n"


@pytest.fixture(autouse=True)
def files_of_killed_runs_are_closed() -> Iterator[None]:
    """A killed run closes nothing here: the files of many would be too many for ``select``."""
    yield
    gc.collect()


def of(strategy: str, sections: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return EDGES | (sections or {}) | {"strategies": [{"strategy": strategy, **options}]}


def traced(start: str) -> dict[str, Any]:
    shape = {"latency_ms": 20.0, "jitter_ms": 15.0, "loss": 0.01}
    traces = {"trace_up": "own.csv", "trace_down": "own.csv", "trace_start": start}
    return {"links": shape | traces}


def devices(**more: Any) -> dict[str, Any]:
    return {"devices": {"samples_per_s": 400.0} | more}


# one or more of each base class, and strategies with a state of their own kind
STRATEGIES: dict[str, dict[str, Any]] = {
    "rounds, with a memory on the edges": of("moon", clients_per_round=4),
    "buffered, with vectors in a file": of("ca2fl", buffer_size=3, **REPLACE),
    "gradients": of("wkafl", buffer_size=3),
    "slotted": of("idfl", TDMA, per_round=2, local_steps=5),
    "with jobs": of("fedecho", LABELLED, buffer_size=3, concurrency=5, predict_s=0.5),
    "one's own state": of("../examples/my_state.py:Chooser", clients_per_round=5),
    "one's own, which merges": of("../support/pool_strategies.py:Rich", concurrency=3),
}
AROUND: dict[str, dict[str, Any]] = {
    "cell": of("fedasync", {"medium": {"kind": "cell", "up_mbit_s": 0.2}}, **REPLACE),
    "trace from the first byte": of("fedasync", traced("first_byte"), **REPLACE),
    "faulty traces": of(
        "fedasync",
        traced("first_byte")
        | {
            "faults": [
                {"kind": "cut", "every_s": 5.0, "for_s": 1.0},
                {"kind": "corrupt", "every_s": 4.0},
                {"kind": "duplicate", "every_s": 4.0},
                {"kind": "restart", "edges": ["e001"], "every_s": 6.0},
            ]
        },
        **REPLACE,
    ),
    "bursts": of(
        "fedasync", devices(bursts={"calm_s": 2.0, "burst_s": 1.0, "share": 0.3}), **REPLACE
    ),
    "a journal": of("fedasync", {"record": {"payloads": True}}, **REPLACE),
}


def learned_in(folder: Path, sections: dict[str, Any]) -> Learning:
    (folder / "own.csv").write_text(TRACE)
    if "trace_up" in sections["links"]:
        links = {key: str(folder / "own.csv") for key in ("trace_up", "trace_down")}
        sections = sections | {"links": sections["links"] | links}
    return learned_of(**sections)


def check_same(learned: Learning, folder: Path, every: int, moments: list[int], **how: Any) -> None:
    """Check that a run with kills has the files of one without."""
    assert len(moments) == KILLS
    said = killed_run(learned, folder / "broken", moments, every, **how)
    assert said == [], "each time it went on at a checkpoint"
    assert files_of(folder / "broken") == files_of(folder / "whole")


@pytest.mark.parametrize("case", [*STRATEGIES, *AROUND])
@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_writes_the_same_bytes(
    tmp_path: Path, case: str
) -> None:
    learned = learned_in(tmp_path, (STRATEGIES | AROUND)[case])
    steps = whole_run(learned, tmp_path / "whole")
    check_same(learned, tmp_path, FEW, some(range(FEW + 2, steps)))


@pytest.mark.slow
def test_a_run_is_saved_while_jobs_are_open(tmp_path: Path) -> None:
    learned = learned_of(**STRATEGIES["with jobs"] | {"stop": {"emulated_s": 8.0}})
    steps = []

    def watch(step: int, run: Any) -> None:
        if run.coordinator.jobs.names:
            steps.append(step + 1)  # saved after this step, killed in the next one

    whole_run(learned, tmp_path / "whole", watch)
    check_same(learned, tmp_path, 1, some(steps))


@pytest.mark.slow
def test_a_run_is_saved_while_requests_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainings are half done: what they had done is done again."""
    options = {"period_s": 1.0, "clients_per_trigger": 3, "on_request": "train_on"}
    learned = learned_of(**of("fedasmu", **options) | {"stop": {"emulated_s": 8.0}})
    hosts, steps, stepped = [], [], VirtualHost._step

    def step(self: VirtualHost) -> None:
        hosts[:] = [self]
        stepped(self)

    def watch(number: int, run: Any) -> None:
        edges = hosts[0].edges.actors.values()
        if any(edge.phase in ASKING and edge.run is not None and edge.run.step for edge in edges):
            steps.append(number + 1)

    monkeypatch.setattr(VirtualHost, "_step", step)
    whole_run(learned, tmp_path / "whole", watch)
    check_same(learned, tmp_path, 1, some(steps))


@pytest.mark.processes
def test_two_workers_train_again_what_was_lost(tmp_path: Path) -> None:
    learned = learned_of(**RUNS["rich"])
    steps = whole_run(learned, tmp_path / "whole")
    with open_pool(learned, 2) as pool:
        check_same(learned, tmp_path, FEW, some(range(FEW + 2, steps)), pool=pool)


@pytest.mark.slow
def test_tables_in_parts_of_which_few_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two checkpoints more parts are filled than stay."""
    monkeypatch.setattr(rundir, "Rotation", partial(Rotation, 700))
    learned = learned_of(**of("fedasync", {"record": {"keep": 1}}, **REPLACE))
    steps = whole_run(learned, tmp_path / "whole")
    check_same(learned, tmp_path, FEW, some(range(FEW + 2, steps)))
    (number,) = parts(tmp_path / "whole" / "events.jsonl")
    assert number > FEW, "the other parts were deleted"


@pytest.mark.parametrize(("kind", "on_leave"), [("file", "keep"), ("exponential", "lose")])
@pytest.mark.slow
def test_a_run_is_saved_while_edges_are_away(tmp_path: Path, kind: str, on_leave: str) -> None:
    """With "keep" also while a task of an edge that is away is open."""
    (tmp_path / "times.csv").write_text("".join(f"e00{n},{n},{n + 5}\n" for n in range(8)))
    where = {
        "file": {"file": str(tmp_path / "times.csv"), "period_s": 14.0},
        "exponential": {"there_s": 3.0, "away_s": 2.0},
    }[kind]
    away = {"count": 8, "availability": {"kind": kind, "on_leave": on_leave} | where}
    more = {"edges": away, "network": {"grace_s": 2.0}, "stop": {"emulated_s": 8.0}}
    learned = learned_of(**of("fedasync", more, **REPLACE))
    steps, seen = [], set()

    def watch(step: int, run: Any) -> None:
        absences, open_tasks = run.coordinator.absences, run.coordinator.tasks.by_edge
        kinds = {"away"} if absences.away else set()
        kinds |= {"open task"} if absences.away & open_tasks.keys() else set()
        seen.update(kinds)
        if kinds:
            steps.append(step + 1)  # saved after this step, killed in the next one

    whole_run(learned, tmp_path / "whole", watch)
    assert seen == ({"away", "open task"} if on_leave == "keep" else {"away"})
    check_same(learned, tmp_path, 1, some(steps))
