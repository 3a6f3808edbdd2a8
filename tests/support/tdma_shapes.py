"""Random TDMA rounds of the strategies, for a comparison with slot_by_slot.py.

Compared are senders, their models and slots, staleness, receivers, wasted slots and lost uploads.
The runs are under the virtual clock, where their times are exact to the nanosecond.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import idfl_by_hand
from slot_by_slot import NEVER, SLOT, Fault, Round, Shape

from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.config.experiment import Experiment
from edgefl.results.read import read_events

SLOTS = 50
MOST_DEVICES, MOST_TAKES, MOST_TRANSFER = 12, 9, 3
LONGEST_CUT = 12  # slots
BATCH = 32  # training.batch_size: smaller than the data of any device
STRATEGIES = {"tdma": "tdma-fl", "idfl": "idfl", "sync": "sync-tdma-fl"}


def drawn(seed: int, number: int) -> Shape:
    """Return a random shape."""
    pick = random.Random(f"{seed} {number}")
    devices = pick.randint(1, MOST_DEVICES)
    per_round = pick.randint(1, devices)
    slowest = pick.randint(0, MOST_TAKES)
    groups = -(-devices // per_round)
    missed_after = pick.randint(1, 6)
    return Shape(
        tuple(pick.randint(0, slowest) for _ in range(devices)),
        per_round,
        pick.randint(1, MOST_TRANSFER),
        3 * SLOTS,
        pick.choice(("tdma", "tdma", "idfl", "idfl", "sync")),
        pick.randint(0, groups - 1),
        pick.choice(("finished", "finished", "oldest")),
        pick.random() < 0.25,
        pick.choice(("skip", "skip", "wait")),
        tuple(faults(pick, devices)),
        missed_after,
        pick.randint(0, 12),
        pick.choice((0, SLOT // 2)),
    )


def faults(pick: random.Random, devices: int) -> list[Fault]:
    """Return random faults: at most one per device, and no two events at the same time."""
    found: list[Fault] = []
    for device in sorted(pick.sample(range(devices), pick.randint(0, min(devices, 5)))):
        at = SLOT * pick.randint(0, SLOTS // 2)
        if pick.random() < 0.4:
            until = at + SLOT * pick.randint(0, LONGEST_CUT)
            found.append(Fault(device, at + 30, until + 50, cut=True))
            continue
        back = NEVER if pick.random() < 0.4 else at + SLOT * pick.randint(1, 30)
        found.append(Fault(device, at + 60 + device, back + 60 + device if back < NEVER else NEVER))
    return found


# ------------------------------------------------------------------ the run
def experiment(shape: Shape) -> Experiment:
    """Return the experiment of a shape, on digits and without training."""
    faults = [
        {
            "kind": "cut_up" if each.cut else "kill",
            "edges": [f"e{each.device:03d}"],
            "at_s": each.at / SLOT,
            **({"for_s": (each.back - each.at) / SLOT} if each.back < NEVER else {}),
        }
        for each in shape.faults
    ]
    known = shape.missed_after < NEVER
    liveness_s = shape.missed_after if known else 10 * shape.slots
    return Experiment.model_validate(
        {
            "name": "tdma-shape",
            "model": {"name": "mlp", "hidden": [4]},
            "training": {"trainer": "none"},
            "edges": {"count": shape.devices},
            "groups": groups(shape),
            "medium": {
                "kind": "tdma",
                "slot_ms": 1000.0,
                "guard_ms": 0.0,
                "rate_mbit_s": 1.0,
                "slots_per_transfer": shape.transfer,
            },
            "network": {
                "heartbeat_s": min(liveness_s / 4, 0.5),
                "liveness_s": liveness_s,
                "grace_s": float(shape.grace) if known else 10.0 * shape.slots,
            },
            "faults": faults,
            "stop": {"emulated_s": shape.slots + 0.25},
            "evaluation": {"every_versions": 0, "train_samples": 0},
            "strategies": [strategy(shape)],
        }
    )


def by_hand(local_steps: int) -> Experiment:
    """Return the experiment that idfl_by_hand.py recomputes; the strategy chooses alpha."""
    given = experiment(idfl_by_hand.SHAPE).model_dump()
    entry = strategy(idfl_by_hand.SHAPE) | {"alpha": "auto", "local_steps": local_steps}
    given |= {
        "model": {"name": "mlp", "hidden": []},
        "training": {"batch_size": BATCH, "learning_rate": idfl_by_hand.RATE},
        "groups": groups(idfl_by_hand.SHAPE, local_steps),
        "stop": {"versions": idfl_by_hand.ROUNDS},
        "strategies": [entry],
    }
    return Experiment.model_validate(given)


def strategy(shape: Shape) -> dict[str, Any]:
    return {
        "strategy": STRATEGIES[shape.start],
        "per_round": shape.per_round,
        "order": shape.order,
        "wait_for_group": shape.wait_for_group,
        "on_lost": shape.on_lost,
        "local_steps": 1,
        **({"alpha": shape.delay} if shape.start == "idfl" else {}),
    }


def groups(shape: Shape, local_steps: int = 1) -> list[dict[str, Any]]:
    """Return one group per device, whose speed gives the number of slots for its steps."""
    samples = BATCH * local_steps
    return [
        {
            "name": f"g{number}",
            "count": 1,
            "devices": {
                "samples_per_slot": samples / (takes - shape.early / SLOT) if takes else 1e15
            },
        }
        for number, takes in enumerate(shape.takes)
    ]


@cache
def learned(devices: int) -> Learning:
    """Return data, model and shares, the same for all shapes with this number of devices."""
    return learning(experiment(Shape((1,) * devices, 1, 1, SLOTS)), None)


def on_virtual(shape: Shape, expected: list[Round]) -> tuple[list[Round], str]:
    """Run under the virtual clock; return the rounds and the verdict."""
    given = replace(learned(shape.devices), experiment=experiment(shape), _chosen={})
    with tempfile.TemporaryDirectory(prefix="tdma-shapes-") as folder:
        summary = run_virtual(given, 0, Path(folder) / "run")
        return rounds(Path(folder) / "run", shape.slots), summary["fidelity"]["verdict"]


def rounds(directory: Path, slots: int) -> list[Round]:
    """Read the rounds that ended within ``slots`` slots from a run's events.jsonl."""
    done, current, began = list[Round](), Round(), dict[str, int]()
    for event in read_events(directory / "events.jsonl"):
        decisions = event.get("decisions", [])
        if event.get("event") == "update_arrived":
            edge = event["edge"]
            current.updates.append((number(edge), int(event["base_version"]), began[edge]))
        began |= {each["edge"]: each["slots"][0] for each in decisions if each["do"] == "grant"}
        given = [each["edges"] for each in decisions if each["do"] == "assign"]
        for values in (each["values"] for each in decisions if each["do"] == "report"):
            ages = (values.get(f"staleness_{which}") for which in ("least", "most"))
            current.ages = tuple(int(age) for age in ages if age is not None)
            current.receivers = [number(edge) for edges in given for edge in edges]
            current.lost, current.wasted = int(values["lost"]), int(values["wasted_slots"])
            current.end = int(values["end_slot"])
            done.append(current)
            current = Round()
    return [each for each in done if each.end <= slots]


def number(edge: str) -> int:
    return int(edge[1:])
