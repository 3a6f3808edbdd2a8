"""How the slots of a TDMA channel were used: rounds, staleness, wasted slots, lost uploads.

Computed from the files of one run. Only slotted strategies report these numbers.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.errors import UserError
from edgefl.results.tail import read_events

MARK = "end_slot"  # marks a slotted strategy's report of a round
COUNTED = ("uploads", "lost", "missed", "wasted_slots")
MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A period in which ``edge`` does ``what``: "compute", "transmit" or "receive".

    ``begin`` and ``end`` are in slots. An edge without a bar waits.
    """

    edge: str
    what: str
    begin: float
    end: float


def rounds(events: Iterable[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return the reports of the finished rounds, in order.

    Keys: end_slot, uploads, lost, missed, wasted_slots, staleness_least, staleness_most.
    """
    decisions = (decision for event in events for decision in event.get("decisions", ()))
    return [
        decision["values"]
        for decision in decisions
        if decision["do"] == "report" and MARK in decision["values"]
    ]


def section(found: Sequence[Mapping[str, float]]) -> dict[str, int] | None:
    """Return the sums over ``rounds`` for summary.json; None without rounds."""
    if not found:
        return None
    return {
        "rounds": len(found),
        "end_slot": int(found[-1][MARK]),
        **{name: int(sum(each[name] for each in found)) for name in COUNTED},
    }


def bars(events: Iterable[Mapping[str, Any]], slot_s: float, until_slot: float) -> list[Bar]:
    """Return what the edges do until slot ``until_slot``."""
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
    """Return the slot length of the run's channel in seconds; UserError if it has no slots."""
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
    """Return whether a slotted strategy finished a round in this run."""
    return bool(rounds(read_events(run / "events.jsonl")))


def _of_decision(decision: Mapping[str, Any]) -> Iterable[Bar]:
    if decision["do"] == "grant" and decision.get("slots"):
        yield Bar(decision["edge"], "transmit", decision["slots"][0], decision["slots"][-1] + 1)
    elif decision["do"] == "assign" and decision.get("broadcast"):
        for edge in decision["edges"]:
            yield Bar(edge, "receive", decision["broadcast"][0], decision["broadcast"][-1] + 1)
