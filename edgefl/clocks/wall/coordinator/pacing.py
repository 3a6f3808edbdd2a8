"""The pacing thread: it owns the socket, the sessions, the emulated network and the clock.

Nothing slow may run here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from edgefl.clocks.wall.coordinator import thread_messages as messages
from edgefl.clocks.wall.coordinator.logic import Logic
from edgefl.clocks.wall.coordinator.run_logic import Continuation
from edgefl.clocks.wall.coordinator.sessions import (
    MOST_RECORDS,
    SILENT,
    Answered,
    Cut,
    Entered,
    Passed,
    PerSecond,
    Reply,
    SessionEnded,
    SessionOutcome,
    Sessions,
)
from edgefl.clocks.wall.coordinator.transfers import Transport
from edgefl.clocks.wall.system import OWN_SYSTEM, Mailbox, SleepWatch, System
from edgefl.clocks.wall.wire import MOST_FRAMES, Router, Wire
from edgefl.exchange.machine import play_moment
from edgefl.protocol.codec import MOST_BUNDLED, MOST_BUNDLED_BYTES, bundle, encode, encode_note
from edgefl.protocol.messages import (
    BROKEN_OFF_ENDS,
    Joined,
    LimitExceeded,
    Setup,
    Stamped,
    Welcome,
    WireError,
)
from edgefl.strategies.base.events_and_decisions import EdgeLost, Finish
from emulator.clock import Agenda, Ticket, WallClock, precise_timers
from emulator.fidelity import Fidelity
from emulator.units import FOREVER, NS_PER_S

MOST_MESSAGES = 500  # taken from the socket before due pieces are sent
FEW_MESSAGES = 4  # after so many, pieces that are due meanwhile are sent
MANY_FLOWS = 16
REPORT_NS = 2 * NS_PER_S  # between two reports of what the verdict is made of
PROBE_PATIENCE_S = 2.0


class Bundles:
    """Sends messages of sessions through ``router``, to each peer in their order.

    Headers that go to the same peer in one turn travel in one message.
    """

    def __init__(self, router: Router, sessions: Sessions) -> None:
        self.router, self.sessions = router, sessions
        self._held: dict[bytes, list[bytes]] = {}  # by routing id

    def send(
        self, routing: bytes, session: int, message: Any, body: Any = None, waits: bool = False
    ) -> None:
        """Send a message of the session with this number.

        One that ``waits`` goes with the next one to this peer, or at ``flush``.
        """
        header = encode(message, self.sessions.incarnation, session)
        held = self._held.pop(routing, None) if self._held else None
        if held is not None and len(header) > MOST_BUNDLED_BYTES:
            self.router.send(routing, bundle(held))
        elif held is not None:
            held.append(header)
            if waits and len(held) < MOST_BUNDLED:
                self._held[routing] = held
                return
            header = bundle(held)
        elif waits and len(header) <= MOST_BUNDLED_BYTES:
            self._held[routing] = [header]
            return
        self.router.send(routing, header, body)

    def to_edge(self, edge: str, message: Any, body: Any = None, waits: bool = False) -> None:
        """Send to an edge if it is connected; otherwise its next session repeats what matters."""
        session = self.sessions.by_edge.get(edge)
        if session is not None:
            session.sent_bytes += 0 if body is None else len(body)
            self.send(session.routing, session.number, message, body, waits)

    def flush(self) -> None:
        """Send all that waits."""
        if self._held:
            held, self._held = self._held, {}
            for routing, headers in held.items():
                self.router.send(routing, bundle(headers))


class Pauses:
    """The pacing thread's sleep between two turns, and pauses of its host.

    A gap is longer than a heartbeat: the thread woke up too late, or one turn took too long. An
    intended sleep is no gap: only the time after its intended end counts. The sessions, the verdict
    and the logic thread hear of gaps and of a sleep of the host. ``fidelity()`` is None before the
    start, when pauses do no harm.
    """

    def __init__(
        self,
        socket: Wire,
        said: Mailbox,
        sessions: Sessions,
        clock: WallClock,
        system: System,
        tell: Callable[[Any], None],
        fidelity: Callable[[], Fidelity | None],
    ) -> None:
        self.socket, self.said, self.sessions, self.clock = socket, said, sessions, clock
        self.system, self.tell, self.fidelity = system, tell, fidelity
        self._watch = SleepWatch()
        self._turn_ns = 0  # when the last turn began
        self._busy_ns: int | None = None  # since when this thread is awake
        self._until_ns: int | None = None  # intended end of the sleep

    def sleep(self, timeout_s: Callable[[], float], grain_s: float) -> bool:
        """Sleep until the socket or the mailbox has something; True: the mailbox has.

        ``timeout_s()``: the time (s) from now until something is due. ``grain_s``: passes between
        two turns unless something is due, so that one turn handles several messages.
        """
        passed_s = (self.system.monotonic_ns() - self._turn_ns) / NS_PER_S
        rest_s = min(grain_s - passed_s, timeout_s()) if grain_s > passed_s else 0.0
        if rest_s > 0:
            self._falls_asleep(rest_s)
            self.system.sleep(rest_s)
            self._wakes()
        until_s = timeout_s()
        self._falls_asleep(until_s)
        woken = self.socket.wait(self.said.fd, until_s)
        self._turn_ns = self._wakes()
        return woken

    def look_for_sleep(self) -> None:
        """If this host slept, emulated time stood still with it, but not the edges elsewhere."""
        if not self._watch.is_due(self.system.passed_ns()):
            return
        slept_ns = self._watch.look(*self.system.sleep_reading())
        if not slept_ns:
            return
        self.sessions.host_slept(self.system.monotonic_ns())
        self.tell(messages.Noticed(self.clock.now(), "host_slept", {"s": slept_ns / NS_PER_S}))
        if (fidelity := self.fidelity()) is not None:
            fidelity.strain(f"the coordinator's host slept for {slept_ns / NS_PER_S:.0f} s")

    def _falls_asleep(self, most_s: float) -> None:
        now = self.system.monotonic_ns()
        self._look_for_gap(self._busy_ns, now)
        self._until_ns = now + max(round(most_s * NS_PER_S), 0)

    def _wakes(self) -> int:
        self._busy_ns = now = self.system.monotonic_ns()
        self._look_for_gap(self._until_ns, now)
        return now

    def _look_for_gap(self, began_ns: int | None, now: int) -> None:
        if began_ns is None or now - began_ns <= self.sessions.expected.heartbeat_ns:
            return
        length_ns = now - began_ns
        self.sessions.host_stood_still(length_ns, now)
        if (fidelity := self.fidelity()) is not None:
            at_ns = max(self.clock.at_monotonic(began_ns), 0)
            fidelity.stall(at_ns, length_ns)
            lasted = {"at_s": at_ns / NS_PER_S, "s": length_ns / NS_PER_S}
            self.tell(messages.Noticed(self.clock.now(), "stall", lasted))


class Pacing:
    """The pacing thread's work; ``run`` returns at Finish.

    ``bundles`` sends to edges. ``agenda``: emulated moments, also those of ``transport``. ``told``:
    what this thread and ``transport`` tell the logic in a turn; ``logic`` takes it at the turn's
    end. ``said``: requests of the logic. ``more``: another strategy of the comparison follows at
    the same address. ``reports_verdict``: to the logic, now and then.
    """

    def __init__(
        self,
        router: Router,
        sessions: Sessions,
        clock: WallClock,
        said: Mailbox,
        bundles: Bundles,
        agenda: Agenda[Any],
        transport: Transport,
        told: list[Any],
        logic: Logic,
        join_timeout_s: float,
        more: bool,
        reports_verdict: bool = False,
        system: System = OWN_SYSTEM,
    ) -> None:
        self.router, self.sessions, self.clock, self.said = router, sessions, clock, said
        self.bundles, self.agenda, self.transport, self.logic = bundles, agenda, transport, logic
        self.told, self.tell, self.more, self.system = told, told.append, more, system
        self.alarms: Agenda[messages.WakeAt] = (
            Agenda()
        )  # the coordinator's next one: last at its moment
        self._alarm: Ticket | None = None  # of the alarm that was asked for last
        self.join_by_s = self.system.monotonic_s() + join_timeout_s
        self.waiting: dict[str, int] = {}  # edges that joined before the start -> samples
        # edges whose session ended because they sent nothing -> since when (ns)
        self.silent: dict[str, int] = {}
        self.excused: set[str] = set()  # edges that are silent because of an injected freeze
        self.started = self.over = False
        self.behind_s = 0.0  # at the end: how long models in the sockets' queues may still take
        self.pauses = Pauses(
            *(router, said, sessions, clock, system, self.tell),
            lambda: self.transport.pacer.fidelity if self.started else None,
        )
        self.continuation: Continuation | None = None  # of a run that was broken off
        self.reports_verdict = reports_verdict
        self._reported_ns = 0  # when the last report was sent
        self._forgot_ns = 0  # when connections without a session were forgotten
        self._seen: set[str] = set()  # edges that have joined
        self._records = PerSecond()
        self.rouse_ns = FOREVER  # the next turn begins at this monotonic moment or earlier

    def run(self) -> None:
        precise_timers()
        while not self.over:
            self.turn()

    def turn(self, most_s: float = inf) -> None:
        """Wait for work, at most ``most_s``, and do what there is."""
        woken = self.pauses.sleep(lambda: min(self._timeout_s(), most_s), self._grain_s())
        self.pauses.look_for_sleep()
        self._release()
        drained = self._hear()
        self.obey(self.said.take(woken))
        if self.started:
            self._move(self.clock.now())
        else:
            self._start_if_ready()
        for routing in self.router.take_full():
            self._outcomes(self.sessions.deaf(routing))
        self._tick(self.system.monotonic_ns(), drained)
        # if an item waits for room on the disk, this thread turns meanwhile
        self.rouse_ns = FOREVER
        self.rouse_ns = self.logic.turn_ends(self.told, self.obey)

    # ------------------------------------------------------------------ time
    def _tick(self, now: int, drained: bool) -> None:
        """Send heartbeats if they are due. ``drained``: no heartbeat of an edge may be unread."""
        if now >= self.sessions.next_tick():
            self._outcomes(self.sessions.tick(now, drained))
            if now - self._forgot_ns >= self.sessions.expected.heartbeat_ns:
                self._forgot_ns = now
                self.router.forget_others(self.sessions.peers())
            if self.reports_verdict and self.started and now - self._reported_ns > REPORT_NS:
                self._reported_ns = now
                self._report_verdict()

    def _report_verdict(self) -> None:
        """Let a resumed run know what this part of the run counts for the verdict."""
        counts = [[sort, who, count] for (sort, who), count in self.sessions.counts.items()]
        fidelity, edges = self.transport.pacer.fidelity, self.sessions.quarantined.edges
        self.tell(messages.Judged(self.clock.now(), fidelity.copy(), counts, dict(edges)))

    def go_on(self, continuation: Continuation) -> None:
        """Go on with a run that was broken off, once its edges are back. Call it before ``run``."""
        self.continuation, self.over = continuation, continuation.ended
        self.clock.start_from(continuation.at_ns)
        self.transport.go_on(continuation)

    def _timeout_s(self) -> float:
        until_ns = min(self.sessions.next_tick(), self.rouse_ns)
        until_s = (until_ns - self.system.monotonic_ns()) / NS_PER_S
        if self.started:
            pieces_ns = self.transport.pacer.next_due()
            due = min(self.agenda.next_due(), self.alarms.next_due(), pieces_ns)
            until_s = min(until_s, self.clock.real_s_until(due))
        else:
            until_s = min(until_s, 0.05)
        return max(until_s, 0.0)

    def _grain_s(self) -> float:
        """The least time between two turns (s).

        With many shaped links, a turn for each message would cost too much.
        """
        if not self.started or self.transport.pacer.shaped_flows < MANY_FLOWS:
            return 0.0
        return self.transport.pacer.grain_ns / self.clock.speed / NS_PER_S

    def _start_if_ready(self) -> None:
        late = self.system.monotonic_s() > self.join_by_s
        resumed = self.continuation
        awaited = (resumed and resumed.present) or self.sessions.expected.edges
        complete = len(self.waiting) >= len(awaited) and self.waiting.keys() >= set(awaited)
        if not (late or complete) or self.over:
            return
        measured = resumed is not None or self.transport.probes.done(PROBE_PATIENCE_S)
        if self.waiting and not late and not measured:
            return
        if not self.waiting:
            self.over = True  # no edge has joined: the process reports it to the launcher
            return
        self.started = True
        self.clock.start()
        if resumed is not None:
            unix_s = self.system.unix_s()
            outage_s = max(unix_s - resumed.ended_unix_s, 0.0)
            self.tell(messages.Resumed(resumed.at_ns, outage_s, unix_s))
            for edge in sorted({*awaited, *self._seen} - self.waiting.keys()):
                self.tell(messages.Heard(resumed.at_ns, edge, EdgeLost(edge)))
            return
        missing = sorted(self.sessions.expected.edges - self.waiting.keys())
        if missing:
            self.tell(messages.Noticed(0, "edges_missing", {"edges": missing}))
        self.tell(messages.Begin(dict(self.waiting), self.clock.began_unix_s or 0.0))

    def _release(self) -> None:
        """Send the pieces that are due now, before other work makes them late."""
        if self.started and self.transport.pacer.has_pieces:
            now = self.clock.now()
            if self.transport.pacer.is_due(now):
                self.transport.release(now)

    def _move(self, now: int) -> None:
        """Process everything that is due by ``now``: pieces first, then completions and alarms.

        Completions and alarms keep the order of their moments, even if this thread woke up late.
        """
        self.transport.release(now)
        while (at_ns := min(self._next_due(), self.alarms.next_due())) <= now:
            play_moment(at_ns, self._next_due, self._happen, self._ring)

    def _next_due(self) -> int:
        """The next known moment, without alarms."""
        return min(self.agenda.next_due(), self.transport.exchange.next_due())

    def _happen(self, now: int) -> None:
        self.transport.complete(now)
        for at_ns, item in self.agenda.pop_due(now):
            if isinstance(item, messages.Note):
                self.bundles.to_edge(item.edge, Stamped(at_ns, encode_note(item.note)))
            elif callable(item):
                item(at_ns)
            else:
                edge, message = item
                self.tell(messages.Heard(at_ns, edge, message))

    def _ring(self, now: int) -> None:
        for at_ns, _ in self.alarms.pop_due(now):
            self.tell(messages.Rang(at_ns))

    # ------------------------------------------------------------------ the logic's requests
    def obey(self, requests: list[Any]) -> None:
        """Carry out requests of the logic, in their order."""
        for count, request in enumerate(requests, 1):
            if count % FEW_MESSAGES == 0:
                self._release()
            match request:
                case messages.Carry():
                    self.transport.carry(
                        request.edge, request.outgoing, request.now, request.replaces
                    )
                case messages.Granted():
                    self.transport.grant(request.grant, request.number, request.now)
                case messages.UpdateTaken():
                    self.transport.no_upload(request.edge, request.transfer)
                case messages.CarryAll():
                    self.transport.carry_all(request)
                case messages.Note():
                    self._note(request)
                case messages.WakeAt():
                    if self._alarm is not None:  # it is moved; without this, alarms would gather
                        self.alarms.cancel(self._alarm)
                    self._alarm = self.alarms.add(request.at_ns, request)
                case messages.Reject():
                    session = self.sessions.by_edge.get(request.edge)
                    if session is not None:
                        self._outcomes(
                            self.sessions.wire_error(session.routing, WireError(request.reason))
                        )
                case messages.Greedy():
                    self._outcomes(self.sessions.quarantine(request.routing, request.reason))
                case messages.Stranger():
                    self.tell(
                        messages.Noticed(self.clock.now(), "stranger", {"reason": request.reason})
                    )
                case Finish():
                    self.transport.overdue(self.clock.now())
                    self.behind_s = self.transport.behind_s()
                    if self.reports_verdict and self.started and request.reason in BROKEN_OFF_ENDS:
                        self._report_verdict()
                    self._outcomes(
                        self.sessions.finish(
                            request.reason, more=self.more and request.reason not in BROKEN_OFF_ENDS
                        )
                    )
                    self.over = True
        self.bundles.flush()

    def _note(self, request: messages.Note) -> None:
        self.transport.end(request.edge, request.note, request.now)
        due_ns = self.transport.exchange.note_due_ns(request.edge, request.note, request.now)
        if due_ns > request.now:
            self.agenda.add(due_ns, request)
        else:
            self.bundles.to_edge(
                request.edge, Stamped(request.now, encode_note(request.note)), waits=True
            )

    # ------------------------------------------------------------------ the wire
    def _hear(self) -> bool:
        """Handle received messages; False if there may be more."""
        count = 0
        for routing, user, frames in self.router.receive(MOST_MESSAGES):
            now, count = self.system.monotonic_ns(), count + 1
            if not 1 <= len(frames) <= MOST_FRAMES:
                error = LimitExceeded(f"{len(frames)} frames in a message, at most {MOST_FRAMES}")
                self._outcomes(self.sessions.wire_error(routing, error))
                continue
            body = frames[1].buffer if len(frames) > 1 else None
            self._outcomes(self.sessions.receive(routing, user, frames[0].buffer, body, now))
            if count % FEW_MESSAGES == 0:
                self._release()
        return count < MOST_MESSAGES

    def _outcomes(self, outcomes: list[SessionOutcome]) -> None:
        for fact, values in self.sessions.take_faults() if self.sessions.faults else ():
            self.tell(messages.Noticed(self.clock.now(), fact, values))
        for outcome in outcomes:
            match outcome:
                case Reply():
                    match outcome.message:  # before the edge may send more
                        case Setup():
                            self.router.greeted(outcome.routing)
                        case Welcome():
                            self.router.joined(outcome.routing)
                    self.bundles.send(outcome.routing, outcome.session, outcome.message)
                case Passed():
                    self._frame(outcome)
                case Answered() if self.started:
                    self.transport.answered(outcome)
                case Entered():
                    self._entered(outcome)
                case SessionEnded():
                    self._gone(outcome)
                case Cut():
                    self.router.cut(outcome.routing)

    def _record(self, fact: str, values: dict[str, Any]) -> None:
        """Record a fact about an edge, at most MOST_RECORDS times per second."""
        if self._records.count((fact, values["edge"]), self.system.monotonic_ns()) <= MOST_RECORDS:
            self.tell(messages.Noticed(self.clock.now(), fact, values))

    def _frame(self, passed: Passed) -> None:
        session = passed.session
        if self.sessions.by_edge.get(session.edge) is not session:
            return  # an earlier header of the same frame has ended it
        try:
            self.transport.frame(session, passed.message, passed.body)
        except WireError as error:
            self._outcomes(self.sessions.wire_error(session.routing, error))

    def _entered(self, entered: Entered) -> None:
        edge, join = entered.session.edge, entered.join
        tasks = self.transport.entered(entered.session, join)
        since_ns = self.silent.pop(edge, None)
        if not self.started:
            self.waiting[edge] = join.samples
            self._seen.add(edge)
            self._record("edge_waits", {"edge": edge})
            if self.continuation is not None:
                self.tell(messages.Heard(self.clock.now(), edge, Joined(join.samples, tasks)))
            return
        # An edge that still has its tasks was alive: this host or the path was too slow. A native
        # path is part of the experiment, and so is its outage.
        if since_ns is not None and (tasks or join.held) and not all(self.transport.native(edge)):
            away_s = (self.system.monotonic_ns() - since_ns) / NS_PER_S
            self.transport.pacer.fidelity.strain(
                f"no message from edge {edge} for {away_s:.1f} s, then it came back"
            )
        self.tell(messages.Heard(self.clock.now(), edge, Joined(join.samples, tasks)))

    def _gone(self, gone: SessionEnded) -> None:
        now = self.clock.now()
        self.waiting.pop(gone.edge, None)
        self.transport.training.overdue(gone.edge, now)
        if gone.reason == SILENT and gone.edge not in self.excused:
            self.silent[gone.edge] = self.system.monotonic_ns() - self.sessions.expected.liveness_ns
        self._record("session_ended", {"edge": gone.edge, "reason": gone.reason})
        if self.started or self.continuation is not None:
            self.transport.gone(gone.edge, now)
        if self.started:
            self.tell(messages.Heard(now, gone.edge, EdgeLost(gone.edge)))
