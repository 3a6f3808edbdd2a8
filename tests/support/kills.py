"""Runs under the virtual clock that are killed and resumed, and their files."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson

from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.virtual.pool.engine import Engine
from edgefl.clocks.virtual.run import Saving, run_virtual
from edgefl.record.files import CHECKPOINTS

KILLS = 5
REAL_TIME = ("wall_s", "evaluation_s", "evaluation_share")  # of summary.json


class Killed(BaseException):
    """Stands for a SIGKILL: only what is in the files stays."""


def whole_run(
    learned: Learning, folder: Path, watch: Callable[[int, Any], None] | None = None
) -> int:
    """Run without a break; return the number of steps. ``watch(step, run)`` sees each one."""
    steps = 0

    def progress(now: int, run: Any) -> None:
        nonlocal steps
        steps += 1
        if watch is not None:
            watch(steps, run)

    run_virtual(learned, 0, folder, progress)
    return steps


def killed_run(
    learned: Learning,
    folder: Path,
    moments: Iterable[int],
    every: int = 1,
    pool: Engine | None = None,
) -> list[str]:
    """Run, and kill the run in each of these steps; it then goes on at its newest checkpoint.

    ``moments`` count from the start of the run and rise. A checkpoint is written every ``every``
    steps. Returns what was said.
    """
    said: list[str] = []
    at = 0  # the step at which this process goes on
    for moment in [*moments, None]:
        steps = at

        def progress(now: int, run: Any, moment: int | None = moment) -> None:
            nonlocal steps
            steps += 1
            if steps == moment:
                raise Killed

        saving = Saving(every_steps=every, say=said.append)
        try:
            run_virtual(learned, 0, folder, progress, pool, resume=at > 0, saving=saving)
        except Killed:
            at += (steps - 1 - at) // every * every
            tear(folder)
    return said


def tear(folder: Path) -> None:
    """Leave what a crash leaves: half a row, and a file that came after the checkpoint."""
    for name, rest in (("events.jsonl", b'{"t":9.9,"ev'), ("links.csv", b"e000,up,upd")):
        with (folder / name).open("ab") as file:
            file.write(rest)
    (folder / "measured.csv").write_bytes(b"what,edge\n")


def some(steps: Iterable[int], count: int = KILLS, seed: int = 1) -> list[int]:
    """Choose moments at random, in order."""
    among = list(steps)
    return sorted(random.Random(seed).sample(among, min(count, len(among))))


def files_of(folder: Path) -> dict[str, Any]:
    """Return the contents of all files of a run, without wall seconds and facts of the host."""
    found: dict[str, Any] = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "config.toml" and path.parent.name != CHECKPOINTS
    }
    rows = [line.split(b",") for line in found["metrics.csv"].splitlines()]
    assert rows[0][2] == b"wall_s"
    found["metrics.csv"] = [row[:2] + row[3:] for row in rows]
    summary = orjson.loads(found["summary.json"])
    found["summary.json"] = {key: summary[key] for key in summary if key not in REAL_TIME}
    return found
