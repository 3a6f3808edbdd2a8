"""Helpers of the tests of slotted strategies: small experiments on a TDMA channel, their rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builders import EXAMPLES, experiment

from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.config.experiment import Experiment
from edgefl.results.read import read_events
from emulator.tdma.closed_form import Round

SAMPLES = 200  # samples of my_task.py


@dataclass(slots=True)
class Played:
    """A round of a run.

    ``uploads``: (edge's number, base version, slot); ``receivers`` of the model; ``end_slot``: the
    slot after the broadcast.
    """

    uploads: list[tuple[int, int, int]] = field(default_factory=list)
    receivers: list[int] = field(default_factory=list)
    end_slot: int = 0


def slotted(
    edges: int,
    computes: int | Sequence[int],
    transfer: int = 1,
    slots: int = 100,
    strategy: str = "tdma-fl",
    **options: Any,
) -> Experiment:
    """Return an experiment whose tasks take ``computes`` slots of one second and do not train.

    ``computes``: one number for all edges, or one for each.
    """
    takes = [computes] * edges if isinstance(computes, int) else list(computes)
    shares = [SAMPLES // edges + (number < SAMPLES % edges) for number in range(edges)]
    rates = [
        share / (slot - 0.5) if slot else 1e15 for share, slot in zip(shares, takes)
    ]  # so that a task ends in the middle of its last slot
    groups = [
        {"name": f"g{number}", "count": 1, "devices": {"samples_per_slot": rate}}
        for number, rate in enumerate(rates)
    ]
    return experiment(
        task="my_task.py:build",
        edges={"count": edges},
        groups=groups,
        training={"trainer": "none"},
        evaluation={"every_versions": 0},
        medium={
            "kind": "tdma",
            "slot_ms": 1000.0,
            "guard_ms": 0.0,
            "rate_mbit_s": 1.0,
            "slots_per_transfer": transfer,
        },
        stop={"emulated_s": float(slots)},
        strategies=[{"strategy": strategy, "local_steps": "epochs", **options}],
    )


def play(
    folder: Path, given: Experiment, learned: Learning | None = None
) -> tuple[dict[str, Any], list[Played]]:
    """Run ``given``; return its summary and the finished rounds."""
    directory = folder / given.strategies[0].name
    summary = run_virtual(learned or learning(given, EXAMPLES), 0, directory)
    return summary, rounds(directory)


def rounds(directory: Path) -> list[Played]:
    """Read the finished rounds of a run, in order."""
    done, bases, at = [Played()], {}, {}
    for event in read_events(directory / "events.jsonl"):
        if event.get("event") == "update_arrived":
            done[-1].uploads.append(
                (int(event["edge"][1:]), bases.pop(event["edge"]), at[event["edge"]])
            )
        for decision in event.get("decisions", []):
            if decision["do"] == "grant":
                at[decision["edge"]] = decision["slots"][0]
            elif decision["do"] == "assign":
                version = event["version"] + any(
                    other["do"] == "publish" for other in event["decisions"]
                )
                bases |= dict.fromkeys(decision["edges"], version)
                done[-1].receivers = (
                    [int(edge[1:]) for edge in decision["edges"]] if decision["broadcast"] else []
                )
            elif decision["do"] == "report":
                done[-1].end_slot = int(decision["values"]["end_slot"])
                done.append(Played())
    return done[:-1]


def as_played(done: Round) -> Played:
    """Convert a round of the brute-force simulation to ``Played``."""
    return Played(
        [(upload.device, upload.base, upload.slot) for upload in done.uploads],
        list(done.receivers),
        done.end_slot,
    )
