"""What a run leaves behind while it runs: events.jsonl, links.csv, metrics.csv, and the counters
of summary.json.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from pathlib import Path
from typing import Any, Callable, TextIO

import numpy as np
import orjson
from safetensors.numpy import save_file

from edgefl.jobs import Evaluate
from edgefl.record.journal import Journal
from edgefl.record.rows import decision_row
from edgefl.reports.aggregation import section as aggregation
from edgefl.reports.by_label import section as labels
from edgefl.reports.dissemination import section as dissemination
from edgefl.reports.slots import section as slots
from edgefl.results.summary import outcome
from edgefl.results.tail import read_csv, read_events
from edgefl.strategies.base.decisions import (
    Assign,
    Decision,
    Discard,
    Publish,
    Report,
    RunJob,
    SendFresh,
    SetAlarm,
)
from edgefl.strategies.base.events import (
    EdgeJoined,
    EdgeLost,
    Event,
    FreshRequested,
    JobFailed,
    UpdateArrived,
)
from edgefl.vectors import is_finite
from emulator.links.network import Completion
from emulator.units import seconds_text

METRICS = (
    "version",
    "emulated_s",
    "wall_s",
    "train_loss",
    "test_loss",
    "accuracy",
    "bytes_up",
    "bytes_down",
)
LINKS = ("edge", "direction", "kind", "bytes", "offered_s", "scheduled_s", "finished_s")
SLOTS = ("begins_s", "ends_s", "edge", "direction", "kind")


class Record:
    """One run's files in ``directory``. ``wall_s`` gives wall seconds since the run's start (it
    never reaches events.jsonl).
    """

    def __init__(
        self, directory: Path, wall_s: Callable[[], float], journal: Journal | None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.wall_s, self.journal = directory, wall_s, journal
        self.bytes_up = self.bytes_down = self.updates_applied = self.requests = 0
        self.steps: list[
            tuple[int, dict[str, float]]
        ] = []  # (version before it, what was reported of it) of those made of gradients
        self.discards: Counter[str] = Counter()
        self.jobs_failed: Counter[str] = Counter()
        self.staleness: Counter[int] = Counter()
        self.missing: list[str] = []  # edges that had not joined when the run began
        self.lost: set[str] = set()  # edges that are gone and have not come back
        self.diverged_at: int | None = None  # the first version that is not finite
        self.rows: list[dict[str, Any]] = []
        self._wall_at: dict[int, float] = {}
        self._events = (directory / "events.jsonl").open("wb")
        self._tables: list[TextIO] = []
        self._link_rows, self._metric_rows = (
            self._table("links.csv", LINKS),
            self._table("metrics.csv", METRICS),
        )
        self._slot_rows: Any = None  # of slots.csv, once there are slots
        self._label_rows: Any = None  # of labels.csv, likewise

    # ------------------------------------------------------------------ the story
    def event(
        self,
        now: int,
        version: int,
        event: Event,
        row: dict[str, Any],
        decisions: list[Decision],
        numbers: list[list[int]],
    ) -> None:
        """An event given to the strategy (``row``: its ``event_row``) and what came of it;
        ``numbers``: each Assign's task numbers.
        """
        if self.journal is not None:
            self.journal.write(now, event, decisions)
        if isinstance(event, UpdateArrived):
            self._count(version - event.base_version, decisions)
        if isinstance(event, EdgeLost):
            self.lost.add(event.edge)
        elif isinstance(event, EdgeJoined):
            self.lost.discard(event.edge)
        elif isinstance(event, JobFailed):
            self.jobs_failed[event.reason] += 1
        self.requests += isinstance(event, FreshRequested)
        self.steps += [
            (version, one.values)
            for one in decisions
            if isinstance(one, Report) and aggregation.KEY in one.values
        ]
        self._line(
            now,
            {"event": row["event"], "version": version}
            | row
            | {"decisions": _rows(decisions, version, numbers)},
        )

    def fact(self, now: int, fact: str, **values: Any) -> None:
        """Something that the strategy is not told."""
        self.missing += values["edges"] if fact == "edges_missing" else []
        self._line(now, {"fact": fact, **values})

    def discarded(self, now: int, edge: str, task: int, reason: str, **more: Any) -> None:
        """An update that the strategy never saw."""
        self.discards[reason] += 1
        self.fact(now, "discarded", edge=edge, task=task, reason=reason, **more)

    def published(self, now: int, version: int, weights: np.ndarray) -> None:
        """The first model that holds NaN or infinity is told. Nobody's bug: a method may
        diverge, and the run goes on.
        """
        if self.diverged_at is None and not is_finite(weights):
            self.diverged_at = version
            self.fact(now, "diverged", version=version)

    def _count(self, gap: int, decisions: list[Decision]) -> None:
        """An update given to the strategy counts as applied unless the strategy discarded it."""
        reasons = [decision.reason for decision in decisions if isinstance(decision, Discard)]
        self.discards.update(reasons[:1])
        if not reasons:
            self.updates_applied += 1
            self.staleness[gap] += 1

    # ------------------------------------------------------------------ tables
    def link(self, completion: Completion, finished_ns: int) -> None:
        """A transfer ended; its bytes count from now on."""
        transfer = completion.transfer
        if transfer.direction == "up":
            self.bytes_up += transfer.size
        else:
            self.bytes_down += transfer.size
        moments = (completion.offered_ns, completion.due_ns, finished_ns)
        self._link_rows.writerow(
            [
                transfer.edge,
                transfer.direction,
                transfer.kind,
                transfer.size,
                *map(seconds_text, moments),
            ]
        )
        if completion.windows_ns:
            self._slots(completion)

    def _slots(self, completion: Completion) -> None:
        self._slot_rows = self._slot_rows or self._table("slots.csv", SLOTS)
        transfer = completion.transfer
        who = (transfer.edge, transfer.direction, transfer.kind)
        self._slot_rows.writerows(
            [seconds_text(begin_ns), seconds_text(end_ns), *who]
            for begin_ns, end_ns in completion.windows_ns
        )

    def snapshot(self, version: int) -> None:
        """The wall moment that belongs to a version's metrics row."""
        self._wall_at[version] = self.wall_s()

    def metrics(
        self,
        job: Evaluate,
        train_loss: float | None,
        test_loss: float,
        accuracy: float,
        *by_label: float,
    ) -> None:
        values = (
            job.version,
            seconds_text(job.at_ns),
            f"{self._wall_at.get(job.version, 0.0):.3f}",
            "" if train_loss is None else f"{train_loss:.6f}",
            f"{test_loss:.6f}",
            f"{accuracy:.6f}",
            job.bytes_up,
            job.bytes_down,
        )
        row = dict(zip(METRICS, values))
        self.rows.append(row)
        self._metric_rows.writerow(row.values())
        if by_label:
            self._label_rows = self._label_rows or self._table(
                labels.LABELS, labels.header(len(by_label))
            )
            self._label_rows.writerow(
                [*values[:2], *("" if math.isnan(share) else f"{share:.6f}" for share in by_label)]
            )

    def flush(self) -> None:
        """Let readers see what happened so far."""
        for file in self._tables:
            file.flush()
        self.flush_fates()

    def flush_fates(self) -> None:
        """What was decided is handed to the operating system: it survives the death of this
        process, and may be acknowledged.
        """
        self._events.flush()
        if self.journal is not None:
            self.journal.flush()

    # ------------------------------------------------------------------ the end
    def close(
        self, head: dict[str, Any], weights: np.ndarray, target_accuracy: float | None
    ) -> dict[str, Any]:
        """Write model.safetensors and summary.json (``head`` first, ours behind it) and return
        the summary.
        """
        self.flush()
        for file in (self._events, *self._tables, *([self.journal] if self.journal else [])):
            file.close()
        save_file({"weights": np.ascontiguousarray(weights)}, self.directory / "model.safetensors")
        fidelity = head.pop("fidelity")
        summary = head | {
            "updates_applied": self.updates_applied,
            "updates_discarded": dict(sorted(self.discards.items())),
            **outcome(self.rows, target_accuracy),
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "staleness": {str(gap): count for gap, count in sorted(self.staleness.items())},
            **({} if self.diverged_at is None else {"diverged_at_version": self.diverged_at}),
            **({"jobs_failed": dict(sorted(self.jobs_failed.items()))} if self.jobs_failed else {}),
            **({"edges_missing": self.missing} if self.missing else {}),
            **({"edges_lost": sorted(self.lost)} if self.lost else {}),
            **(
                {"dissemination": self._dissemination(head.get("emulated_s", 0.0))}
                if self.requests
                else {}
            ),
            **({"aggregation": aggregation.section(self.steps)} if self.steps else {}),
            **(
                {"slots": counted} if self._slot_rows and (counted := self._slots_counted()) else {}
            ),
            "fidelity": fidelity,
        }
        part = self.directory / "summary.json.part"
        part.write_bytes(orjson.dumps(summary, option=orjson.OPT_INDENT_2))
        part.replace(self.directory / "summary.json")
        return summary

    def _dissemination(self, emulated_s: float) -> dict[str, Any] | None:
        """What asking for fresher models came to, from the files: only a run in which somebody
        asked pays for reading them.
        """
        return dissemination.section(
            read_events(self.directory / "events.jsonl"),
            read_csv(self.directory / "links.csv"),
            emulated_s,
        )

    def _slots_counted(self) -> dict[str, int] | None:
        """What became of the slots, if a slotted strategy gave them out."""
        return slots.section(slots.rounds(read_events(self.directory / "events.jsonl")))

    def _table(self, name: str, columns: tuple[str, ...]) -> Any:
        self._tables.append((self.directory / name).open("w", encoding="utf-8", newline=""))
        rows = csv.writer(self._tables[-1])
        rows.writerow(columns)
        return rows

    def _line(self, now: int, row: dict[str, Any]) -> None:
        self._events.write(
            b'{"t":%b,%b\n'
            % (seconds_text(now).encode(), orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)[1:])
        )


def _rows(
    decisions: list[Decision], version: int, numbers: list[list[int]]
) -> list[dict[str, Any]]:
    """Decisions for readers: task numbers beside the edges, the version that a Publish made."""
    rows, tasks = [], iter(numbers)
    for decision in decisions:
        row = decision_row(decision)
        if isinstance(decision, Assign):
            row["tasks"] = next(tasks)
        elif isinstance(decision, Publish):
            version += 1
            row["version"] = version
        elif isinstance(decision, SendFresh):
            newer = version if decision.version is None else decision.version
            row["version"] = None if decision.weights is None else newer  # None: nothing newer
        elif isinstance(decision, SetAlarm):
            row["at"] = float(seconds_text(row.pop("at_ns")))
        elif isinstance(decision, RunJob):
            row["cost_s"] = float(seconds_text(row.pop("cost_ns")))
        rows.append(row)
    return rows
