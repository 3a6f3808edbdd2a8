"""How the slots of a TDMA channel were used, from a run's files: rounds, staleness, slots wasted
and lost. Only slotted strategies report it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.errors import UserError
from edgefl.results.tail import read_events

MARK = "end_slot"  # of a slotted strategy's report, one a round
COUNTED = ("uploads", "lost", "missed", "wasted_slots")
MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class Bar:
    """``edge`` does ``what`` ("compute", "transmit", "receive") from one moment to another, in
    slots; where no bar is it waits.
    """

    edge: str
    what: str
    begin: float
    end: float


def rounds(events: Iterable[Mapping[str, Any]]) -> list[dict[str, float]]:
    """The reports of the finished rounds, in order: end_slot, uploads, lost, missed,
    wasted_slots, staleness_least, staleness_most.
    """
    decisions = (decision for event in events for decision in event.get("decisions", ()))
    return [
        decision["values"]
        for decision in decisions
        if decision["do"] == "report" and MARK in decision["values"]
    ]


def section(found: Sequence[Mapping[str, float]]) -> dict[str, int] | None:
    """Their sums, for summary.json; None if there are no rounds."""
    if not found:
        return None
    return {
        "rounds": len(found),
        "end_slot": int(found[-1][MARK]),
        **{name: int(sum(each[name] for each in found)) for name in COUNTED},
    }


def bars(events: Iterable[Mapping[str, Any]], slot_s: float, until_slot: float) -> list[Bar]:
    """What the edges do up to ``until_slot``."""
    found: list[Bar] = []
    began: dict[str, float] = {}
    for event in events:
        slot = event["t"] / slot_s
        if slot > until_slot and not began:
            break
        name = event.get("event", event.get("fact"))
        if name == "task_started" and slot <= until_slot:
            began[event["edge"]] = slot
        elif name == "update_ready" and event["edge"] in began:
            found.append(Bar(event["edge"], "compute", began.pop(event["edge"]), slot))
        for decision in event.get("decisions", ()):
            found += _of_decision(decision)
    found += [Bar(edge, "compute", begin, until_slot) for edge, begin in began.items()]
    return [bar for bar in found if bar.begin < until_slot]


def slot_s(run: Path) -> float:
    """Length of a slot of the run's channel. UserError if it has none."""
    try:
        return (
            tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))["medium"]["slot_ms"]
            / MS_PER_S
        )
    except (OSError, KeyError, ValueError) as error:
        raise UserError(
            f'{run}: no run on a TDMA channel (medium.kind = "tdma" in its config.toml)'
        ) from error


def is_slotted(run: Path) -> bool:
    """Did a slotted strategy finish a round there?"""
    return bool(rounds(read_events(run / "events.jsonl")))


def _of_decision(decision: Mapping[str, Any]) -> Iterable[Bar]:
    if decision["do"] == "grant" and decision.get("slots"):
        yield Bar(decision["edge"], "transmit", decision["slots"][0], decision["slots"][-1] + 1)
    elif decision["do"] == "assign" and decision.get("broadcast"):
        for edge in decision["edges"]:
            yield Bar(edge, "receive", decision["broadcast"][0], decision["broadcast"][-1] + 1)
