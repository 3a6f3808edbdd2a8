"""Compare random TDMA rounds of the strategies with an independent simulation, slot_by_slot.py.

Compared are senders, their models and slots, staleness, receivers, wasted slots and lost uploads.
An IDFL run is also recomputed by idfl_by_hand.py; the result is the largest difference of weights.

The default is the wall clock, over real sockets. ``--clock virtual`` adds devices that compute for
no time, and devices that die, are given up and return. Only there such times are exact to the
nanosecond.
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

from edgefl.config.experiment import Experiment
from edgefl.hosts.setup.learning import Learning, learning
from edgefl.hosts.virtual.run import run_virtual
from edgefl.results.tail import read_events

SHAPES, SLOTS, QUICK_SLOTS = 12, 50, 20
SLOT_S, GUARD = 0.1, 0.3  # on the wall clock: slot length in s, and the guard's share of it
MOST_DEVICES, MOST_TAKES, MOST_TRANSFER = 12, 9, 3
LONGEST_CUT = 12  # slots
TRIES = 3  # attempts of a run on a machine that is too busy for the slots
BATCH = 32  # training.batch_size: smaller than the data of any device
LOCAL_STEPS, WEIGHTS_GOAL = (1, 3), "<= 1e-5"
STRATEGIES = {"tdma": "tdma-fl", "idfl": "idfl", "sync": "sync-tdma-fl"}


def drawn(seed: int, number: int, real: bool = False) -> Shape:
    """Return a random shape; ``real``: one that also works on the wall clock.

    There, devices compute for some time and the server never notices a death, because the slot of
    that moment is not exact. At least S devices stay alive. The verdict is "strained" if a device
    never finishes its work.
    """
    pick = random.Random(f"{seed} {number}")
    devices = pick.randint(1, MOST_DEVICES)
    per_round = pick.randint(1, devices)
    slowest = pick.randint(int(real), MOST_TAKES)
    groups = -(-devices // per_round)
    missed_after = NEVER if real else pick.randint(1, 6)
    return Shape(
        tuple(pick.randint(int(real), slowest) for _ in range(devices)),
        per_round,
        pick.randint(1, MOST_TRANSFER),
        SLOTS if real else 3 * SLOTS,
        pick.choice(("tdma", "tdma", "idfl", "idfl", "sync")),
        pick.randint(0, groups - 1),
        pick.choice(("finished", "finished", "oldest")),
        pick.random() < 0.25,
        pick.choice(("skip", "skip", "wait")),
        tuple(faults(pick, devices, real, devices - per_round if real else devices)),
        missed_after,
        NEVER if real else pick.randint(0, 12),
        pick.choice((0, SLOT // 2)) if not real else SLOT // 2,
    )


def faults(pick: random.Random, devices: int, real: bool, most_deaths: int) -> list[Fault]:
    """Return random faults: at most one per device, and no two events at the same time."""
    found: list[Fault] = []
    for device in sorted(pick.sample(range(devices), pick.randint(0, min(devices, 5)))):
        at = SLOT * pick.randint(0, SLOTS // 2)
        dies = pick.random() >= 0.4 and sum(not fault.cut for fault in found) < most_deaths
        if not dies:
            until = at + SLOT * pick.randint(0, LONGEST_CUT)
            found.append(Fault(device, at + 30, until + 50, cut=True))
            continue
        back = NEVER if real or pick.random() < 0.4 else at + SLOT * pick.randint(1, 30)
        found.append(Fault(device, at + 60 + device, back + 60 + device if back < NEVER else NEVER))
    return found


# ------------------------------------------------------------------ the run
def experiment(shape: Shape, slot_s: float = 1.0, guard: float = 0.0) -> Experiment:
    """Return the experiment of a shape, on digits and without training."""
    faults = [
        {
            "kind": "cut_up" if each.cut else "kill",
            "edges": [f"e{each.device:03d}"],
            "at_s": each.at / SLOT * slot_s,
            **({"for_s": (each.back - each.at) / SLOT * slot_s} if each.back < NEVER else {}),
        }
        for each in shape.faults
    ]
    known = shape.missed_after < NEVER
    liveness_s = (shape.missed_after if known else 10 * shape.slots) * slot_s
    return Experiment.model_validate(
        {
            "name": "tdma-shape",
            "model": {"name": "mlp", "hidden": [4]},
            "training": {"trainer": "none"},
            "edges": {"count": shape.devices},
            "groups": groups(shape),
            "medium": {
                "kind": "tdma",
                "slot_ms": 1000 * slot_s,
                "guard_ms": 1000 * slot_s * guard,
                "rate_mbit_s": 1.0,
                "slots_per_transfer": shape.transfer,
            },
            "network": {
                "heartbeat_s": min(liveness_s / 4, 0.5),
                "liveness_s": liveness_s,
                "grace_s": shape.grace * slot_s if known else 10.0 * shape.slots,
            },
            "faults": faults,
            "stop": {"emulated_s": (shape.slots + 0.25) * slot_s},
            "evaluation": {"every_versions": 0, "train_samples": 0},
            "strategies": [strategy(shape)],
        }
    )


def by_hand(local_steps: int, slot_s: float = 1.0, guard: float = 0.0) -> Experiment:
    """Return the experiment that idfl_by_hand.py recomputes; the strategy chooses alpha."""
    given = experiment(idfl_by_hand.SHAPE, slot_s, guard).model_dump()
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
