"""What a checkpoint under the virtual clock costs: seconds and megabytes.

LeNet-5 on data of Fashion-MNIST's shape. FedBuff with a tenth of the devices at work, WKAFL with
all of them at work, and IDFL without training, late in a run of many slots. Each run is saved and
broken off; then it goes on from its checkpoint.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from table import Row, arguments, host_line, report, run, say
from virtual import FEDBUFF, HERE, WKAFL, experiment_of

from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.hosts.setup.learning import Learning, learning
from edgefl.hosts.virtual.run import EVERY_S, MOST_SHARE, SavedRun, Saving, run_virtual
from edgefl.record.files import CHECKPOINTS

DEVICES, SLOTS = 3000, 100_000
QUICK_DEVICES, QUICK_SLOTS = 60, 400
IDFL_EDGES, SLOT_S = 40, 0.1
# % of the wall time: more would put the next checkpoint off
SHARE_GOAL = f"<= {100 * MOST_SHARE:g}"
MB = 1e6


class BrokenOff(Exception):
    """Ends a run as a crash does."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--devices", type=int, default=DEVICES, metavar="N")
    parser.add_argument("--slots", type=int, default=SLOTS, metavar="N", help="slots of IDFL")
    parser.add_argument("--quick", action="store_true", help="small runs: a quick check")
    options, host = parser.parse_args(), host_line()
    devices, slots = options.devices, options.slots
    if options.quick:
        devices, slots = QUICK_DEVICES, QUICK_SLOTS
    if devices < 50 or slots < 100:
        raise UserError(
            f"--devices {devices} --slots {slots}: expected 50 or more, and 100 or more"
        )
    task = "build_small" if options.quick else "build"
    fedbuff = FEDBUFF | {"concurrency": devices // 10}
    rows = [
        *costs(
            f"FedBuff, {devices} devices, {devices // 10} at work",
            learning(experiment_of(fedbuff, devices, task, updates=devices), HERE),
            devices // 5,
        ),
        *costs(
            f"WKAFL, {devices} devices at work",
            learning(experiment_of(WKAFL, devices, task, updates=devices), HERE),
            devices // 2,
        ),
        *costs(f"IDFL, {slots} slots", learning(slotted(slots), HERE), slots // 4),
    ]
    report("Checkpoints of virtual runs", host, rows, options.json)


def slotted(slots: int) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "slots",
            "task": "virtual_task.py:build_small",
            "edges": {"count": IDFL_EDGES},
            "medium": {"kind": "tdma", "slot_ms": 1000 * SLOT_S, "rate_mbit_s": 100.0},
            "training": {"trainer": "none"},
            "evaluation": {"every_versions": 0, "train_samples": 0},
            "stop": {"emulated_s": slots * SLOT_S},
            "strategies": [{"strategy": "idfl", "per_round": 2, "local_steps": 1}],
        }
    )


def costs(what: str, learned: Learning, updates: int) -> list[Row]:
    """Save a run after so many accepted updates, break it off, and let it go on."""
    say(what)
    spent: dict[str, float] = dict.fromkeys(("save", "find", "load"), 0.0)
    steps = 0

    def count(now: int, opened: Any) -> None:
        nonlocal steps
        steps += 1
        if opened.counters.updates_accepted >= updates:
            raise BrokenOff

    def stop(now: int, opened: Any) -> None:
        raise BrokenOff

    with tempfile.TemporaryDirectory(prefix="bench-checkpoints-") as scratch:
        with broken_off():  # once without checkpoints, to know the step
            run_virtual(learned, 0, Path(scratch) / "known", count)
        saving, steps = Saving(every_steps=max(steps - 1, 1)), 0
        directory = Path(scratch) / "run"
        with timed_methods(spent):
            with broken_off():
                run_virtual(learned, 0, directory, count, saving=saving)
            size = sum(path.stat().st_size for path in (directory / CHECKPOINTS).iterdir())
            with broken_off():
                run_virtual(learned, 0, directory, stop, resume=True, saving=saving)
    return [
        Row(f"{what}: checkpoint written in", spent["save"], "s"),
        Row(f"{what}: share of the wall time", 100 * spent["save"] / EVERY_S, "%", SHARE_GOAL),
        Row(f"{what}: size of a checkpoint", size / MB, "MB"),
        Row(f"{what}: checkpoint read in", spent["find"] + spent["load"], "s"),
    ]


@contextmanager
def broken_off() -> Iterator[None]:
    try:
        yield
    except BrokenOff:
        return
    raise UserError("the run ended before it was broken off")


@contextmanager
def timed_methods(spent: dict[str, float]) -> Iterator[None]:
    """Add the seconds spent in methods of SavedRun to ``spent``, which has their names."""
    methods = {name: getattr(SavedRun, name) for name in spent}

    def measured(name: str) -> Any:
        def method(*given: Any) -> Any:
            began_s = time.perf_counter()
            try:
                return methods[name](*given)
            finally:
                spent[name] += time.perf_counter() - began_s

        return method

    for name in methods:
        setattr(SavedRun, name, measured(name))
    try:
        yield
    finally:
        for name, method in methods.items():
            setattr(SavedRun, name, method)


if __name__ == "__main__":
    run(main)
