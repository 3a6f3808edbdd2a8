"""The modelled energy of a run, as a reducer over its rows and its finished transfers.

Both clocks use it. It asks no clock and opens no file, and a checkpoint saves it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgefl.protocol.messages import FRESH
from edgefl.record.files import ALL_EDGES, Row
from emulator.energy.account import IDLE, EnergyAccount, Spent
from emulator.energy.power import FJ_PER_J, UW_PER_W, EdgePower
from emulator.links.link import Completion
from emulator.units import FOREVER, NS_PER_S, seconds_text

ENDING_FACTS = ("update_ready", "training_failed", "task_timed_out", "discarded")
ENDING_EVENTS = ("update_ready", "task_closed", "update_arrived")
DEADLY = ("kill", "restart")  # faults that end an edge's process, and so its training
Fields = Sequence[Any]  # of a row of energy.csv


@dataclass(slots=True)
class EnergyBook:
    """Turns a run's rows into the energy of its edges, and into rows of energy.csv.

    ``target_fj``: the run ends when it has used this much; ``look_ns``: when to look whether it
    has. ``asked``: edges that pause until the answer to their request, and their tasks.
    ``broadcasts``: by slots, the receivers of models that are under way on a TDMA channel. A task
    and a push in the same slots are one transmission.
    """

    account: EnergyAccount
    target_fj: int | None = None
    look_ns: int = FOREVER
    asked: dict[str, int] = field(default_factory=dict)
    broadcasts: dict[tuple[int, ...], list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, powers: Mapping[str, EdgePower], target_joules: float | None) -> EnergyBook:
        book = cls(EnergyAccount(powers))
        book.aim(target_joules)
        return book

    # ------------------------------------------------------------------ what happens
    def take(self, now: int, row: Row) -> list[Fields]:
        """Take a line of events.jsonl. Returns new rows of energy.csv."""
        self.account.total.at(now)
        if "event" in row:
            rows = self._event(now, row["event"], row)
            for decision in row.get("decisions", ()):
                rows += self._decision(now, decision)
            return rows
        return self._fact(now, row["fact"], row)

    def link(self, completion: Completion, finished_ns: int) -> list[Fields]:
        """Take a transfer, finished at that moment. Returns new rows of energy.csv.

        The plan of its link counts, not a host that was late. A native link has no plan: what it
        carries is due when it is offered.
        """
        transfer, windows = completion.transfer, completion.windows_ns
        edges = [transfer.edge]
        if transfer.edge == ALL_EDGES:
            first = next(iter(self.broadcasts), None)
            edges = self.broadcasts.pop(first) if first else list(self.account.edges)
        rows: list[Fields] = []
        for edge in edges:
            power = self.account.powers.get(edge)
            if power is None:
                continue
            if windows:  # TDMA: the radio is on in the transfer's slots only
                active_ns: int | None = sum(end - begin for begin, end in windows)
                began_ns, ended_ns = windows[0][0], windows[-1][1]
            else:  # bytes need the latency to arrive, but the radio is on for their own time
                active_ns, up = None, transfer.direction == "up"
                began_ns = completion.started_ns + (0 if up else power.latency_ns)
                planned = completion.due_ns > completion.started_ns
                ended_ns = completion.due_ns if planned else finished_ns
                ended_ns -= power.latency_ns if up else 0
                ended_ns = max(began_ns, ended_ns)
            rows += _rows(
                self.account.transferred(
                    edge, transfer.direction, began_ns, ended_ns, transfer.size, active_ns
                )
            )
            if transfer.kind == FRESH and edge in self.asked:
                rows += self._begin(edge, self.asked.pop(edge), completion.due_ns)
        return rows

    # ------------------------------------------------------------------ the stop
    def aim(self, target_joules: float | None) -> None:
        """Set the target, which may be another one than before."""
        target_fj = None if target_joules is None else round(target_joules * FJ_PER_J)
        if target_fj != self.target_fj:
            self.target_fj, self.look_ns = target_fj, FOREVER

    def next_due(self) -> int:
        """When to look next whether the run has used its target; FOREVER if it has none."""
        if self.target_fj is None or self.account.ended_ns is not None:
            return FOREVER
        # Where less power flows than before, the earlier moment stays: each new one costs an alarm.
        self.look_ns = min(self.look_ns, self.account.total.reaches(self.target_fj))
        return self.look_ns

    def reached(self, now: int) -> bool:
        """Whether the run has used its target by ``now``."""
        if self.target_fj is None:
            return False
        if now >= self.look_ns:
            self.look_ns = FOREVER
        return self.account.total.at(now) >= self.target_fj

    # ------------------------------------------------------------------ what is told
    def joules(self, now: int) -> float:
        """What all edges have used by ``now``; of transfers, those that have ended."""
        return self.account.total.at(now) / FJ_PER_J

    def section(self, now: int) -> dict[str, Any]:
        """Joules and seconds by edge and state up to ``now``, for summary.json."""
        by_edge: dict[str, Any] = {}
        total_fj = 0
        for edge, states in self.account.by_edge(now).items():
            fj = sum(each for each, _ in states.values())
            total_fj += fj
            by_edge[edge] = {
                "joules": fj / FJ_PER_J,
                **{f"{state}_j": each / FJ_PER_J for state, (each, _) in states.items()},
                **{f"{state}_s": ns / NS_PER_S for state, (_, ns) in states.items()},
            }
        return {"kind": "modelled", "joules": total_fj / FJ_PER_J, "by_edge": by_edge}

    # ------------------------------------------------------------------ rows
    def _event(self, now: int, event: str, row: Row) -> list[Fields]:
        if event == "edge_joined":
            edge = row["edge"]
            if not self.account.joined(edge, now):
                return []
            watts = self.account.powers[edge].idle_uw / UW_PER_W
            return [(edge, IDLE, seconds_text(now), None, None, watts)]
        if event in ENDING_EVENTS:
            return self._end(row["edge"], row["task"], now)
        if event == "fresh_requested" and not row["until_ns"]:
            edge, task = row["edge"], row["task"]
            if edge not in self.account.edges:
                return []
            self.asked[edge] = task
            # the request has travelled for the latency; the edge has waited meanwhile
            left_ns = now - self.account.powers[edge].latency_ns
            return _rows(self.account.compute_ends(edge, task, left_ns))
        return []

    def _decision(self, now: int, decision: Mapping[str, Any]) -> list[Fields]:
        match decision["do"]:
            case "cancel":
                return self._end(decision["edge"], decision["task"], now)
            case "send_fresh" if decision["version"] is None and decision["edge"] in self.asked:
                edge = decision["edge"]
                heard_ns = now + self.account.powers[edge].latency_ns
                return self._begin(edge, self.asked.pop(edge), heard_ns)
            case "assign" | "push" if slots := tuple(decision.get("broadcast") or ()):
                self.broadcasts.setdefault(slots, []).extend(decision["edges"])
        return []

    def _fact(self, now: int, fact: str, row: Row) -> list[Fields]:
        if fact == "task_started":
            self.asked.pop(row["edge"], None)
            return self._begin(row["edge"], row["task"], now)
        if fact == "push_arrived" and row.get("restarts") and row["edge"] in self.asked:
            return self._begin(row["edge"], self.asked.pop(row["edge"]), now)
        if fact in ENDING_FACTS:
            return self._end(row["edge"], row["task"], now)
        if fact == "fault" and row["kind"] in DEADLY:
            return self._end(row["edge"], None, now)
        if fact == "finished":
            return _rows(self.account.end(now))
        return []

    def _begin(self, edge: str, task: int, at_ns: int) -> list[Fields]:
        return _rows(self.account.compute_begins(edge, task, at_ns))

    def _end(self, edge: str, task: int | None, at_ns: int) -> list[Fields]:
        if task is None or self.asked.get(edge) == task:
            self.asked.pop(edge, None)
        return _rows(self.account.compute_ends(edge, task, at_ns))


def _rows(spent: Sequence[Spent]) -> list[Fields]:
    return [
        (
            each.edge,
            each.state,
            seconds_text(each.began_ns),
            seconds_text(each.ended_ns),
            each.fj / FJ_PER_J,
            None,
        )
        for each in spent
    ]
