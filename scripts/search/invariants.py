"""What must hold in every run, whatever strikes it. Checked after every event and at the end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

from exactly_once import ExactlyOnce

from edgefl.coordinator.tasks import DeadlineOver, GraceOver
from edgefl.edges.edge import MOST_UNACKNOWLEDGED
from edgefl.exchange.machine import MOST_PUSHES
from edgefl.protocol.codec import decode, decode_note, says, transfer_meta, unbundled
from edgefl.protocol.messages import TASK, Acknowledged, Offer, Stamped
from emulator.units import FOREVER
from search.faults import COORDINATOR, Fault
from search.machine import NS_PER_S
from search.scenario import CHECKPOINTS, EDGES, EVENTS_FILE, JOURNAL, rows_of
from search.story import Story
from search.twin import History

LATE_NS = 2 * NS_PER_S  # by how much an alarm may be late on a host that is not disturbed
UNHEARD_NS = 5 * NS_PER_S  # so long after all faults of an edge it knows its update's fate
SETTLED_NS = 5 * NS_PER_S  # so long after a disturbance of the coordinator's host
GAP_S = 1.2  # a pacing thread that stood still for so long must say so
SLOW = ("slow", "late", "busy")  # kinds whose count is in ms
ARRIVED = rb'"event":"update_arrived"[^\n]*"task":%d[,}][^\n]*\n'  # a whole line
# faults of ExactlyOnce about task numbers and pushed models, of which an edge may know more
NUMBERS = ("was given, expected task", "and had a fate before", "pushes were taken or too late")
NOTED_S = 5.0  # within this time the verdict so far is in the journal
FEW = 16  # entries of tables that are not of an offer, a task or an edge
OWN_ENDS = ("versions", "target", "no_progress_s")  # by the stop keys of the experiments
EVERY = 4  # the tables are looked at after each of so many events


class Broken(Exception):
    """An invariant does not hold."""


@dataclass(slots=True)
class Spent:
    """How long a task's time has run at least: before the present stretch, and in it.

    ``exempt``: the task was open at a resumption, where its edge may have had to begin again.
    """

    exempt: bool = False
    before_ns: int = 0
    since_ns: int | None = None
    seen_ns: int = 0


class Invariants:
    """Observes one run: rows of the record, messages to edges, and the coordinator's tables.

    ``due``, ``written``, ``read``: checkpoints.
    """

    def __init__(self, run: Any, story: Story) -> None:
        self.run, self.story = run, story
        self.record = ExactlyOnce()
        self.history = History(run.world, story.scenario)
        self.due = self.written = self.read = 0
        self._arrived: dict[int, int] = {}  # task -> how many inputs were before its update
        self._spent: dict[int, Spent] = {}  # task -> the time that counts for its deadline
        self.acknowledged: dict[tuple[str, int], int] = {}  # (edge, task) -> moment
        self.given: dict[int, tuple[str, int, str]] = {}  # task -> edge, version, digest
        # what was injected and strains the run, and when the coordinator can have noted it
        self.must_strain: list[tuple[int, str]] = []
        self._calm_ns = 0  # from then on the coordinator's host is undisturbed
        self._struck_ns: dict[str, int] = {}  # edge -> when its latest fault ends
        self._kept: dict[tuple[str, int], int] = {}  # (edge, task) not acknowledged -> since when
        run.network.seen = self._sent

    # ------------------------------------------------------------------ disturbances
    def disturb(self, until_ns: int) -> None:
        """The coordinator's host is disturbed until then: nothing is late before it has settled."""
        self._calm_ns = max(self._calm_ns, until_ns + SETTLED_NS)

    def froze(self, for_s: float) -> None:
        """The coordinator's process stands still from now on, for so long."""
        self.disturb(self.run.sim.now_ns + round(for_s * NS_PER_S))
        coordinator = self.run.coordinator
        if coordinator is None or not coordinator.pacing.started:
            return
        if for_s > GAP_S and coordinator.run.coordinator.finished is None:
            self._must_strain(f"a gap of {for_s:g} s", for_s)

    def _must_strain(self, why: str, for_s: float) -> None:
        begun_ns = max(self.run.sim.now_ns, self.run.disk.full_until_ns)
        noted_ns = begun_ns + round((for_s + NOTED_S) * NS_PER_S)
        self.must_strain.append((noted_ns, why))

    def died(self, fault: Fault | None) -> None:
        """The coordinator has died: what it had not noted for a resumption is not known.

        ``fault`` None: it has stopped itself, because its disk fails.
        """
        self.history.died()
        now_ns = self.run.sim.now_ns
        lost = fault is None or fault.way == "power"
        self.must_strain = [each for each in self.must_strain if each[0] < now_ns and not lost]

    def waited(self, process: Any) -> None:
        """There is room on the disk again, for which this process of the coordinator waited."""
        coordinator = self.run.coordinator
        if coordinator is None or not process.alive or not coordinator.pacing.started:
            return
        if process.frozen:
            self.run.sim.at(process.frozen_until_ns + NS_PER_S, self.waited, process)
            return
        if coordinator.run.coordinator.finished is None:
            self._must_strain("the disk was full", 0.0)

    def strikes(self, fault: Fault) -> None:
        lasts_s = fault.for_s + (fault.count / 1000 if fault.kind in SLOW else 0.0)
        end_ns = self.run.sim.now_ns + round(lasts_s * NS_PER_S)
        self._struck_ns[fault.target] = max(self._struck_ns.get(fault.target, 0), end_ns)
        if fault.target == COORDINATOR and fault.kind in ("freeze", "sleep", "full"):
            # it notes nothing meanwhile
            now_ns, later_ns = self.run.sim.now_ns, round(fault.for_s * NS_PER_S)
            self.must_strain = [
                (noted_ns + later_ns if noted_ns > now_ns else noted_ns, why)
                for noted_ns, why in self.must_strain
            ]

    # ------------------------------------------------------------------ the record
    def recorded_by(self, process: Any) -> None:
        """Observe the record of this coordinator's process: its rows follow those on the disk."""
        self._check_state(process)
        self.history.observe(process)
        self._count_checkpoints(process.logic.checkpoints)
        self._observe_rows(process.run.record)
        self._spent = {number: Spent(exempt=True) for number in process.run.coordinator.tasks.open}
        self.record = ExactlyOnce()
        process.run.record.flush()  # rows of inputs that were repeated
        file = self.run.disk.files.get(EVENTS_FILE)
        for row in rows_of(bytes(file.data) if file else b""):
            self.record.take(row)
        self._calm_ns = max(self._calm_ns, self.run.sim.now_ns + SETTLED_NS)

    def _check_state(self, process: Any) -> None:
        """A process that goes on has the state of a twin that was never broken off."""
        if not process.job.resume:
            return
        self.read += bool(process.logic.checkpoints._sizes)
        before = self.history.flushed, self.history.synced
        known, wrong = self.history.resumed(process)
        if wrong is not None:
            raise Broken(f"the state differs after a resumption: {wrong}")
        kept = before[self.story.scenario.durability == "power"]
        damage_told = self.story.damages and any(self.run.attempts)
        if known < kept and not self.story.loses_power and not damage_told:
            raise Broken(f"{known} inputs are known after a resumption, {kept} were in the journal")

    def _count_checkpoints(self, writer: Any) -> None:
        take, write = writer.take, writer.checkpoints.write

        def taken(wall_s: float) -> None:
            self.due += 1
            take(wall_s)
            if writer._impossible:
                raise Broken(self.run.heard[-1])

        def written(number: int, *rest: Any) -> None:
            write(number, *rest)
            self.written += 1
            self.run.sim.tell("checkpoint", number, "is written")

        writer.take, writer.checkpoints.write = taken, written

    def _observe_rows(self, record: Any) -> None:
        """See the rows as they are written. The record is the same object: checkpoints need it."""
        fact, joined = record.fact, record.joined  # an event is written as a fact, too

        def seen(now: int, row: Any) -> None:
            self.row({"t": now / NS_PER_S, **row})
            fact(now, row)

        def all_seen(now: int, events: Any, rows: Any) -> None:
            for row in rows:
                self.row({"t": now / NS_PER_S, **row})
            joined(now, events, rows)

        record.fact, record.joined = seen, all_seen

    def row(self, row: Any) -> None:
        if row.get("event") == "update_arrived":
            self._arrived[row["task"]] = len(self.history.inputs)
        self.record.take(row)
        self._check_record(self.record)

    # ------------------------------------------------------------------ what edges learn
    def _sent(self, edge: str, frames: tuple[bytes, ...]) -> None:
        """A message leaves the coordinator: what it says must stay true."""
        for header in unbundled(memoryview(frames[0])):
            self._said(edge, header)

    def _said(self, edge: str, header: memoryview) -> None:
        if says(header, Stamped):
            note = decode_note(decode(header)[0].note)
            if isinstance(note, Acknowledged):
                self.run.sim.tell("acknowledged", edge, note.task)
                self.acknowledged[edge, note.task] = self.run.sim.now_ns
                self._check_fate(edge, note.task)
                self._check_durable(note.task)
        elif says(header, Offer):
            offer = decode(header)[0]
            if offer.kind == TASK:
                meta = transfer_meta(offer.meta)
                self._check_given(meta.number, (edge, meta.version, offer.digest))

    def _check_record(self, record: ExactlyOnce, where: str = "") -> None:
        faults = record.faults
        if self.story.forgets:  # then edges know numbers of a history that is lost
            faults = [each for each in faults if not any(words in each for words in NUMBERS)]
        if faults:
            raise Broken(f"{where}{faults[0]}")

    def _check_fate(self, edge: str, task: int) -> None:
        if not self.story.forgets:
            self.record.acknowledged(edge, task)
            self._check_record(self.record)

    def _check_durable(self, task: int) -> None:
        """What is acknowledged is in the journal or in a checkpoint; see ``record.durability``."""
        given = self.record.tasks.get(task)
        if given is None or given.end != "arrived" or self.story.forgets:
            return
        files = self.run.disk.files
        for path in sorted(files, reverse=True):
            if path.parent == JOURNAL and path.suffix == ".jsonl":
                if re.search(ARRIVED % task, self._kept_bytes(path)):
                    return
            elif path.parent == CHECKPOINTS and path.suffix == ".json" and self._kept_bytes(path):
                number = int(path.stem.removeprefix("checkpoint-"))
                if self.history.before(number) > self._arrived[task]:
                    return
        raise Broken(f"task {task} was acknowledged before it was in the journal")

    def _kept_bytes(self, path: Any) -> bytes:
        """What survives of a file: a crash of the process, or a loss of power."""
        disk = self.run.disk
        if self.story.scenario.durability != "power":
            return bytes(disk.files[path].data)
        return bytes(disk.synced_names[path].synced) if path in disk.synced_names else b""

    def _check_given(self, task: int, what: tuple[str, int, str]) -> None:
        if self.story.forgets:
            return
        known = self.given.setdefault(task, what)
        if known != what:
            raise Broken(f"task {task} was {known}, and after a restart it is {what}")

    # ------------------------------------------------------------------ tables
    def check(self) -> None:
        """After an event. Broken."""
        sim, process = self.run.sim, self.run.processes["coordinator"]
        coordinator = self.run.coordinator
        if coordinator is None or not process.alive or sim.events % EVERY:
            return
        actor, pacing = coordinator.run.coordinator, coordinator.pacing
        if actor.finished or not pacing.started:
            return
        self._check_tasks(actor, pacing.clock.now() if sim.now_ns > self._calm_ns else 0)
        self._check_spent(actor, coordinator.logic.core.now)
        self._check_agenda(pacing)
        self._check_sizes(actor, coordinator)
        self._check_kept()

    def _check_tasks(self, actor: Any, now: int) -> None:
        """Each open task has an alarm that ends it, and no alarm is late."""
        for task in actor.tasks.open.values():
            names = actor.alarms.at
            if task.edge not in actor.present and GraceOver(task.number) not in names:
                raise Broken(f"task {task.number}: its edge is lost, and no alarm closes it")
            runs = task.since_ns is not None and task.left_ns < FOREVER
            if runs and DeadlineOver(task.number) not in names:
                raise Broken(f"task {task.number}: its time runs, without a deadline")
        due_ns = actor.next_due()
        if due_ns < now - LATE_NS:
            late_s = (now - due_ns) / NS_PER_S
            raise Broken(f"an alarm is late by {late_s:.1f} s: {list(actor.alarms.at)[:5]}")

    def _check_spent(self, actor: Any, now: int) -> None:
        """A task whose phases have one limit never gets more time, not even if its edge returns."""
        limits = actor.deadlines.limits
        if limits is None or limits.total_ns is None:
            return
        for task in actor.tasks.open.values():
            spent = self._spent.setdefault(task.number, Spent())
            if spent.exempt or task.left_ns >= FOREVER:
                continue
            if task.since_ns is not None and task.since_ns != spent.since_ns:
                spent.before_ns += spent.seen_ns
                spent.since_ns, spent.seen_ns = task.since_ns, 0
                if task.left_ns + spent.before_ns > limits.total_ns:
                    left_s, used_s = task.left_ns / NS_PER_S, spent.before_ns / NS_PER_S
                    raise Broken(
                        f"task {task.number} has {left_s:g} s left, and has used {used_s:g} s of"
                        f" {limits.total_ns / NS_PER_S:g} s"
                    )
            if task.since_ns is not None:
                spent.seen_ns = max(spent.seen_ns, now - task.since_ns)

    def _check_agenda(self, pacing: Any) -> None:
        """Each entry of the pacing thread's agenda belongs to an open offer, request or note."""
        if not len(pacing.agenda):
            return
        transport = pacing.transport
        held = {
            id(flow.ready)
            for flows in transport.exchange.uploads.values()
            for flow in flows.values()
        }
        notes = [told for of_kind in transport.notes.values() for told in of_kind]
        held |= {id(ticket) for told in notes for ticket in (told.closes, told.delivers)}
        for entry in pacing.agenda._heap:
            if entry[3] and isinstance(entry[2], (partial, tuple)) and id(entry) not in held:
                raise Broken(f"an entry of the agenda outlives its offer: {entry[2]}")

    def _check_sizes(self, actor: Any, coordinator: Any) -> None:
        """All tables are bounded by the number of edges and of open tasks."""
        pacing, edges = coordinator.pacing, len(EDGES)
        transport = pacing.transport
        sizes = {
            "open tasks": (len(actor.tasks.open), edges),
            "alarms": (len(actor.alarms.at), 2 * len(actor.tasks.open) + FEW),
            "agenda": (len(pacing.agenda), 8 * edges + FEW),
            "alarms of the pacing thread": (len(pacing.alarms), 1),
            "notes": (len(transport.notes), 2 * edges),
            "offers": (sum(map(len, transport.exchange.uploads.values())), 8 * edges),
            "flows": (len(transport.exchange.flows), (4 + MOST_PUSHES) * edges + FEW),
            "sessions": (len(coordinator.sessions.by_routing), 3 * edges + FEW),
            "joined sessions": (len(coordinator.sessions.by_edge), edges),
        }
        for name, (size, most) in sizes.items():
            if size > most:
                raise Broken(f"{name}: {size}, at most {most} expected")

    def _check_kept(self) -> None:
        """An edge soon learns the fate of its update."""
        now_ns = self.run.sim.now_ns
        kept: dict[tuple[str, int], int] = {}
        for name, host in self.run.hosts.items():
            updates = host.work.edge.unacknowledged if host.work is not None else ()
            if len(updates) > MOST_UNACKNOWLEDGED:
                raise Broken(f"edge {name} keeps {len(updates)} updates")
            if self.story.forgets:  # it may keep updates of a history that is lost
                continue
            for task in updates if host.link.joined else ():
                given = self.record.tasks.get(task)
                if given is not None and given.end:
                    kept[name, task] = self._kept.get((name, task), now_ns)
        self._kept = kept
        for (name, task), since_ns in kept.items():
            since_ns = max(since_ns, self._calm_ns, self._struck_ns.get(name, 0))
            if now_ns - since_ns > UNHEARD_NS:
                raise Broken(f"edge {name}: the update of task {task} is not acknowledged")

    # ------------------------------------------------------------------ the end
    def check_end(self) -> None:
        """After the run. Broken."""
        summary = self.run.summary
        if summary is None:
            raise Broken("the run does not end")
        if summary["finished"] not in OWN_ENDS:
            raise Broken(f"the run ends by {summary['finished']!r}")
        if self.story.scenario.durability == "power":
            self.run.disk.lose_power()  # nothing may be lost after the end either
        if self.run.coordinator is not None and (wrong := self.history.ended(self.run.coordinator)):
            raise Broken(f"the state differs at the end: {wrong}")
        found = ExactlyOnce()
        for row in rows_of(bytes(self.run.disk.files[EVENTS_FILE].data)):
            found.take(row)
        if not self.story.forgets:
            for edge, task in self.acknowledged:
                found.acknowledged(edge, task)
        self._check_record(found, "in the record: ")
        for name, value in (
            ("versions", found.version),
            ("updates_received", found.arrived),
            ("updates_applied", len(found.applied)),
        ):
            if summary[name] != value:
                raise Broken(f"summary: {name} is {summary[name]}, the record has {value}")
        if self.must_strain and summary["fidelity"]["verdict"] != "strained":
            raise Broken(f"it does not strain the run: {self.must_strain[0][1]}")
