"""Compare a run of a slotted strategy with the closed form: ends of rounds, overlaps, verdict.

    edgefl run configs/tdma/wallclock.toml
    python scripts/studies/plan_tdma.py runs/tdma-wallclock

The closed form is shifted by the wasted slots that the plan does not have. After that, at least 99
percent of the rounds should end within one slot of it.
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from edgefl.clocks.setup.network import devices
from edgefl.clocks.setup.plan import timetable
from edgefl.config.file import load
from edgefl.errors import UserError
from edgefl.exit_status import BAD_INPUT, FAILED
from edgefl.results import run_files
from edgefl.results.families import slots
from edgefl.results.read import read_csv, read_events
from edgefl.strategies.base.slotted import SlottedOptions
from edgefl.strategies.idfl import IdflOptions
from edgefl.vectors import Layout, LayoutEntry
from emulator.errors import BadValue
from emulator.tdma.closed_form import Tdma

GOAL = 0.99
PLAIN_WIDTH = 140  # width of a table in a file or a pipe
COLUMNS = (
    "run",
    "S",
    "delay",
    "rounds",
    "planned",
    "within a slot",
    "wasted",
    "lost",
    "overlaps",
    "early",
    "verdict",
)


def main() -> None:
    try:
        sys.exit(judge())
    except (UserError, BadValue) as error:
        print(error, file=sys.stderr)
        sys.exit(BAD_INPUT)


def judge() -> int:
    """Print a table of the runs; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="directories of runs or of an experiment",
    )
    options = parser.parse_args()
    rows = [
        row(name, runs[0])
        for name, runs in run_files.find(options.runs).items()
        if slots.rounds(read_events(runs[0] / "events.jsonl"))
    ]
    if not rows:
        raise UserError(f"{options.runs[0]}: no run of a slotted strategy")
    table = Table(*COLUMNS)
    for each in rows:
        table.add_row(*map(str, each))
    Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH).print(table)
    print(f"slot by slot: edgefl plot {' '.join(map(str, options.runs))}", file=sys.stderr)
    good = all(float(str(each[5]).rstrip("%")) >= 100 * GOAL and each[8] == 0 for each in rows)
    return 0 if good else FAILED


def shape_of(directory: Path) -> Tdma:
    """Return N, S, r, tau_comp and alpha of a run, from its config and its edges' samples."""
    experiment, joined = load(directory / "config.toml"), {}
    for event in read_events(directory / "events.jsonl"):
        if event.get("event") == "run_started":
            break
        if event.get("event") == "edge_joined":
            joined[event["edge"]] = event["samples"]
    label = orjson.loads((directory / "summary.json").read_bytes())["label"]
    entry = next(entry for entry in experiment.strategies if entry.name == label)
    size, options = len(joined), entry.options()
    table = timetable(
        experiment, Layout((LayoutEntry("w", (1,), 0, "parameter", ""),)), devices(experiment)
    )
    given = options.get("local_steps", SlottedOptions().local_steps)
    steps = None if given == "epochs" else int(given)
    takes = [table.compute_slots(edge, samples, steps) for edge, samples in joined.items()]
    plain = Tdma(
        size,
        options.get("per_round") or size,
        table.transfer_slots,
        max(slot for slot in takes if slot is not None),
    )
    if entry.strategy == "sync-tdma-fl":
        return Tdma(
            size, plain.per_round, plain.slots_per_transfer, plain.compute_slots, plain.groups - 1
        )
    alpha = IdflOptions.model_validate(options).alpha if entry.strategy == "idfl" else 0
    delay = plain.auto_delay if alpha in ("auto", "adaptive") else int(alpha)
    return Tdma(size, plain.per_round, plain.slots_per_transfer, plain.compute_slots, delay)


def row(name: str, directory: Path) -> tuple[object, ...]:
    """Return one run's row."""
    shape, found = shape_of(directory), slots.rounds(read_events(directory / "events.jsonl"))
    if not shape.even:
        raise UserError(
            f"{directory}: S {shape.per_round} does not divide N {shape.devices}: no closed form to"
            " compare with"
        )
    shifted, within = 0.0, 0
    for number, each in enumerate(found):
        idle = (
            shape.end_slot(number)
            - (shape.end_slot(number - 1) if number else 0)
            - shape.comm_slots
        )
        shifted += max(each["wasted_slots"] - idle, 0)
        within += abs(each["end_slot"] - shape.end_slot(number) - shifted) <= 1
    uses = sorted(
        (float(one["begins_s"]), float(one["ends_s"])) for one in read_csv(directory / "slots.csv")
    )
    overlaps = sum(first[1] > second[0] for first, second in pairwise(uses))
    summary = orjson.loads((directory / "summary.json").read_bytes())
    counted, fidelity = slots.section(found) or {}, summary["fidelity"]
    planned = shape.models_by(int(summary["emulated_s"] / slots.slot_s(directory))) - 1
    share = f"{100 * within / len(found):.1f}%"
    return (
        name,
        shape.per_round,
        shape.delay,
        len(found),
        planned,
        share,
        counted["wasted_slots"],
        counted["lost"],
        overlaps,
        fidelity.get("ahead_of_curve", 0),
        fidelity["verdict"],
    )


if __name__ == "__main__":
    main()
