"""What became of the models that the server pushed, unasked, and what they cost: a table, a CSV.

It follows from events.jsonl and links.csv, for every strategy.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.protocol.messages import DROPPED_PUSH, PUSH
from edgefl.record.files import EVENTS, LINKS, Row
from edgefl.results.families import (
    Family,
    SectionRow,
    by_strategy,
    plain_means,
    strategy_table,
)
from edgefl.results.read import read_csv, read_events
from edgefl.results.summary import unit_up_to

if TYPE_CHECKING:
    from rich.table import Table


def section(events: Iterable[Row], links: Iterable[Mapping[str, str]]) -> dict[str, Any] | None:
    """Return the "pushes" of summary.json, or None if nothing was pushed.

    Each push that was ``sent`` to an edge has ``arrived``, was ``replaced`` by a later one, or its
    task ended before (``cancelled``); others are under way when the run ends. Of those that have
    arrived, ``merged`` are in an update, and ``late`` came when no step followed; those of tasks
    without an update are neither. ``bytes``: that were sent down, of cancelled ones the part that
    was carried; a broadcast counts once. ``arrival_mean_s``: from the decision on.
    """
    count: Counter[str] = Counter()
    sent: Counter[int] = Counter()  # by task
    under_way: defaultdict[int, deque[tuple[int, float]]] = defaultdict(deque)  # by task
    took_s: list[float] = []
    for row in events:
        task = row.get("task")
        match row.get("event", row.get("fact")):
            case "push_arrived" | "push_replaced" as fact:
                sent_s = _found(under_way[row["task"]], row["of_version"], fact)
                count["arrived" if fact == "push_arrived" else "replaced"] += 1
                if fact == "push_arrived" and sent_s is not None:
                    took_s.append(row["t"] - sent_s)
            case "update_arrived":
                numbers, most = row["numbers"], sent[row["task"]]  # an edge may report anything
                for name, key in (("merged", "pushes"), ("late", "pushes_late")):
                    count[name] += int(min(max(numbers.get(key, 0), 0), most))
                count["cancelled"] += len(under_way.pop(row["task"], ()))
            case "task_closed" | "discarded" if task is not None:
                count["cancelled"] += len(under_way.pop(task, ()))
        for decision in row.get("decisions", ()):
            if decision["do"] == "push":
                count["sent"] += len(decision["tasks"])
                sent.update(decision["tasks"])
                for to in decision["tasks"]:
                    under_way[to].append((decision["version"], row["t"]))
            elif decision["do"] == "cancel":
                count["cancelled"] += len(under_way.pop(decision["task"], ()))
    if not count["sent"]:
        return None
    kinds = (PUSH, DROPPED_PUSH)
    return {
        **{name: count[name] for name in NUMBERS},
        "bytes": sum(int(row["bytes"]) for row in links if row["kind"] in kinds),
        "arrival_mean_s": math.fsum(took_s) / len(took_s) if took_s else None,
    }


def _found(pushes: deque[tuple[int, float]], version: int, fact: str) -> float | None:
    """Remove a push of this version from those under way, and return when it was decided.

    The first one arrives, the last one that waits is replaced.
    """
    places = [place for place, push in enumerate(pushes) if push[0] == version]
    if not places:
        return None
    place = places[0 if fact == "push_arrived" else -1]
    sent_s = pushes[place][1]
    del pushes[place]
    return sent_s


NUMBERS = ("sent", "arrived", "merged", "late", "replaced", "cancelled")


def table(rows: Sequence[SectionRow]) -> Table:
    """Return a table for 80 columns with the means over the seeds of each strategy."""
    strategies = by_strategy(rows)
    size, unit = unit_up_to(max(row.section["bytes"] for row in rows), "B")

    cells = partial(plain_means, strategies)
    shares = [
        [row.section["bytes"] / max(1, row.facts.get("bytes_down", 0)) for row in runs]
        for runs in strategies.values()
    ]
    return strategy_table(
        "Pushed models",
        strategies,
        {
            **{f"{name}\n": cells(name, ".4g") for name in NUMBERS},
            "after\nmean s": cells("arrival_mean_s", ".3g"),
            f"down\n{unit}": cells("bytes", ".3g", size),
            "of all\ndown": [f"{100 * math.fsum(each) / len(each):.0f}%" for each in shares],
        },
    )


class Pushes(Family):
    """A table and a CSV file."""

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        return section(read_events(run / EVENTS), read_csv(run / LINKS))

    def table_of(self, rows: Sequence[SectionRow]) -> Table | None:
        return table(rows)


FAMILY = Pushes(
    "pushes",
    order=12,
    mark=PUSH,
    csv="pushes.csv",
    about_csv="pushed models by run",
    columns=(*NUMBERS, "bytes", "arrival_mean_s"),
)
