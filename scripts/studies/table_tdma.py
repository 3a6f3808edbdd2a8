"""Table I of the TDMA paper with the strategies themselves: global models by slot T.

Runs under the virtual clock without training are compared with the closed form and the paper. The
setting is that of CIFAR-10: N = 20, tau_comp = 4, S = 1, 2, 5, 10, 20, with staleness, without and
with intentional delay.

    python scripts/studies/table_tdma.py            # 100,000 slots, minutes
    python scripts/studies/table_tdma.py --quick    # 5,000 slots
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table
from trials import PLAIN_WIDTH, run, say

from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.hosts.setup.learning import learning
from edgefl.hosts.virtual.run import run_virtual
from edgefl.reports.slots import section as rounds
from edgefl.results.tail import read_events
from emulator.tdma.closed_form import Tdma

DEVICES, COMPUTES, SIZES = 20, 4, (1, 2, 5, 10, 20)
PAPER = {1: 49_999, 2: 33_333, 5: 16_667, 10: 9_091, 20: 4_001}  # by slot 100,000
SLOTS, QUICK_SLOTS = 100_000, 5_000
LEAST_SLOTS = 100  # enough for some rounds if all devices send in each
STEPS = 8


def experiment(per_round: int, delayed: bool, slots: int) -> Experiment:
    """Return the experiment: tasks of eight steps on digits, without training."""
    return Experiment.model_validate(
        {
            "model": {"name": "mlp", "hidden": [4]},
            "training": {"trainer": "none", "batch_size": 32},
            "edges": {"count": DEVICES},
            "medium": {
                "kind": "tdma",
                "slot_ms": 100.0,
                "guard_ms": 0.0,
                "rate_mbit_s": 1.0,
                "slots_per_transfer": 1,
            },
            "devices": {"samples_per_slot": STEPS * 32 / COMPUTES},
            "stop": {"emulated_s": slots / 10},
            "evaluation": {"every_versions": 0, "train_samples": 0},
            "strategies": [
                {
                    "strategy": _strategy(delayed),
                    "per_round": per_round,
                    "local_steps": STEPS,
                }
            ],
        }
    )


def _strategy(delayed: bool) -> str:
    return "idfl" if delayed else "tdma-fl"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shorter = parser.add_mutually_exclusive_group()
    shorter.add_argument("--quick", action="store_true", help=f"{QUICK_SLOTS} slots")
    shorter.add_argument("--slots", type=int, metavar="T", help="another number of slots")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    slots = QUICK_SLOTS if options.quick else SLOTS if options.slots is None else options.slots
    if slots < LEAST_SLOTS:
        raise UserError(f"--slots {slots}: expected {LEAST_SLOTS} or more")
    rows = []
    for per_round in SIZES:
        say(f"S = {per_round}, {slots} slots, without and with delay")
        rows += [row(per_round, delayed, slots) for delayed in (False, True)]
    table = Table(title=f"Global models by slot {slots}, w_0 included")
    for name in rows[0]:
        table.add_column(name, justify="right")
    for each in rows:
        table.add_row(*map(str, each.values()))
    Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH).print(table)
    judged = [line for each in rows for line in judgements(each)]
    if options.json is not None:
        options.json.write_bytes(orjson.dumps(judged, option=orjson.OPT_INDENT_2) + b"\n")
    if slots != SLOTS:
        say(f"the paper's column needs {SLOTS} slots: run without --quick and --slots")
    if not all(line["pass"] in (True, None) for line in judged):
        raise SystemExit(1)


def judgements(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the numbers of a setting in the benchmarks' format: one row each, with its goal."""
    setting = f"{found['strategy']}, S = {found['S']}, delay {found['delay']}"
    models, paper = found["models"], found["paper"]
    numbers = [
        ("models", models, "", found["plan"]),
        *([] if paper == "-" else [("models of the paper", models, "", paper)]),
        ("largest staleness", found["staleness"], "rounds", None),
        ("settled staleness as planned", found["planned"], "rounds", None),
        ("time of the run", found["seconds"], "s", None),
    ]
    return [
        {
            "name": f"{name}, {setting}",
            "value": value,
            "unit": unit,
            "goal": None if goal is None else f"== {goal}",
            "pass": None if goal is None else value == goal,
        }
        for name, value, unit, goal in numbers
    ]


def row(per_round: int, delayed: bool, slots: int) -> dict[str, object]:
    """Run one setting; return its measured and planned numbers."""
    plain = Tdma(DEVICES, per_round, 1, COMPUTES)
    shape = Tdma(DEVICES, per_round, 1, COMPUTES, plain.auto_delay) if delayed else plain
    began_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        learned = learning(experiment(per_round, delayed, slots), None)
        summary = run_virtual(learned, 0, Path(folder) / "run")
        seconds = time.perf_counter() - began_s
        models = 1 + sum(
            done[rounds.MARK] <= slots
            for done in rounds.rounds(read_events(Path(folder) / "run" / "events.jsonl"))
        )
    stalest = max(map(int, summary["staleness"]))
    paper = PAPER[per_round] if slots == SLOTS else "-"
    return {
        "strategy": _strategy(delayed),
        "S": per_round,
        "delay": shape.delay,
        "models": models,
        "plan": shape.models_by(slots),
        "paper": paper,
        "staleness": stalest,
        "planned": shape.settled_staleness()[0],
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    run(main)
