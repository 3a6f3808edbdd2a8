"""A process of edges: one thread for their sockets, which stamps arrivals, and one for training.

``EdgeHost`` is one edge: its socket, its sessions and its part in the run. ``EdgeProcess`` runs one
or thousands of them. They share a poller, a ZeroMQ context, the training thread with its model, and
reports about the machine. Nothing else: each edge has its own key, link, actor and state, and what
ends one of them ends no other.

The process has no emulated clock. Its stamps are of a clock that goes on while the machine sleeps,
so that one difference to the coordinator's clock holds before and after.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import zmq
from msgspec.structs import replace

import edgefl
from edgefl.clocks.process_messages import InjectFault
from edgefl.clocks.wall.edge.machine import Reporter
from edgefl.clocks.wall.edge.state import StateFolder, StateKeeper
from edgefl.clocks.wall.edge.work import (
    OWN_MACHINE,
    Deferred,
    EdgeSide,
    EdgeWork,
    OpenNotes,
    Result,
    ThreadDied,
    TrainingThread,
    TrainOrder,
    Turns,
)
from edgefl.clocks.wall.keys import EdgeKeys
from edgefl.clocks.wall.system import OWN_SYSTEM, SleepWatch, System
from edgefl.clocks.wall.wire import Dealer, Poller
from edgefl.errors import UserError, printable
from edgefl.protocol.codec import (
    MOST_BUNDLED,
    MOST_BUNDLED_BYTES,
    bundle,
    decode,
    decode_note,
    encode,
    unbundled,
)
from edgefl.protocol.messages import (
    BROKEN_OFF_ENDS,
    PROTOCOL,
    Credit,
    Delivered,
    Dropped,
    Hello,
    Offer,
    Piece,
    Ping,
    Pong,
    Refuse,
    Refused,
    RunFinished,
    Setup,
    Stamped,
    Unreachable,
    Welcome,
    WireError,
)
from emulator.kernel_pacing import PacedConnection

PATIENCE_S = 60.0
BACK_OFF_S = (0.05, 2.0)
HANG_UPS = 3  # closed connections, without any message, before a warning
NS_PER_S = 1_000_000_000
MOST_TEXT = 500  # characters of a line that may quote the coordinator
# Limits for a Setup: with a shorter heartbeat this process would do nothing else; with a longer
# silence it would never try again.
SHORTEST_HEARTBEAT_NS, LONGEST_SILENCE_NS = 100_000, 86_400 * NS_PER_S
OWN_OF_SILENCE = 3  # without a ping for this part of the silence, an edge says that it is alive
ANYTIME = (Ping, Refuse, RunFinished)  # a coordinator may send these at any time
BEFORE_SETUP = Setup("", "")  # its timers are used until the coordinator sends its own
# Edges of one process that join at the same time: with all at once, connections would wait in the
# coordinator's queue of new ones, and the system would repeat them after seconds.
MOST_JOINING = 50
LONG_TURN_S = 0.1  # a longer one is no silence of the coordinator
SOCKETS_PER_EDGE, SOCKETS_SPARE = 3, 16  # with the two that watch a connection until it has joined


@dataclass(slots=True)
class SessionLink:
    """One session's socket and number."""

    dealer: Dealer
    number: int
    heard_s: float
    incarnation: int = 0
    greeted: bool = False  # Setup was received and Join sent
    joined: bool = False
    pinged_s: float = field(default=0.0)
    paced: PacedConnection | None = None  # if the kernel may pace what it sends
    told_facts: bool = False


@dataclass(slots=True)
class Shared:
    """What the edges of a process share. ``train``: gives the training thread an order."""

    context: zmq.Context
    poller: Poller
    train: Callable[[TrainOrder], None]
    reporter: Reporter


class EdgeHost:
    """One edge. ``build(setup)`` makes its EdgeSide once the coordinator has sent Setup.

    ``state``: where it keeps what its next process needs; None: nowhere. ``turns``: of the process,
    if the edge has one for itself (``run``).
    """

    def __init__(
        self,
        name: str,
        address: str,
        keys: EdgeKeys | None,
        build: Callable[[Setup], EdgeSide],
        turns: Turns = OWN_MACHINE,
        system: System = OWN_SYSTEM,
        state: StateFolder | None = None,
    ) -> None:
        self.name, self.address, self.keys = name, address, keys
        self.build, self.turns, self.system, self.state = build, turns, system, state
        self.shared: Shared  # once it runs in a process
        self.work: EdgeWork | None = None  # once the coordinator has sent Setup
        self.notes = OpenNotes()
        self.setup = BEFORE_SETUP
        self.incarnation = 0  # of the coordinator that has sent the latest Setup
        self.finished: RunFinished | None = None
        self.frozen_s: float | None = None  # an injected fault: since when nothing is done
        self.patience_s = PATIENCE_S, PATIENCE_S
        self.link: SessionLink
        self._reached_s = 0.0  # when the coordinator was heard last, in any session
        self._held: list[bytes] = []  # headers that go together at the end of this turn
        self._pause_s = BACK_OFF_S[0]
        self._again_s: float | None = None  # when a new session begins; None: there is one
        self._warned = False
        self._said = ""

    def run(
        self, first_patience_s: float = PATIENCE_S, patience_s: float = PATIENCE_S
    ) -> RunFinished:
        """Run in a process of its own until RunFinished.

        Refused if the coordinator refuses this edge. Unreachable if it does not answer; the first
        answer may take ``first_patience_s``. A coordinator that stops answering later has
        ``patience_s``: it may be resumed.
        """
        process = EdgeProcess(self.turns, self.system)
        (outcome,) = process.run([self], first_patience_s, patience_s).values()
        if not isinstance(outcome, RunFinished):
            raise outcome
        return outcome

    # ------------------------------------------------------------------ what its process calls
    def begin(self, shared: Shared, first_patience_s: float, patience_s: float) -> None:
        """Look for the coordinator. The patience is as for ``run``."""
        self.shared, self.patience_s = shared, (first_patience_s, patience_s)
        self._reached_s = self.system.monotonic_s()
        self._connect()

    def turn(self) -> None:
        """Handle what waits in the socket, and what is due."""
        if self._again_s is None and self._listen():
            self._reached_s = self.system.monotonic_s()
        self.look()

    def look(self) -> None:
        """Do what is due: a heartbeat, or a new session after a silence.

        Refused and Unreachable as for ``run``.
        """
        if self.finished is not None:
            return
        if self._again_s is not None:
            if self.system.monotonic_s() >= self._again_s:
                self._connect()
            return
        if not self.link.greeted and self.link.dealer.cut_off():
            self._connect()  # a coordinator that has just ended got the Hello
        self._heartbeat(self.system.monotonic_s())
        self._send_held()
        silence_s = self.setup.silence_ns / NS_PER_S
        if self.system.monotonic_s() - self.link.heard_s > silence_s:
            first_s, later_s = self.patience_s
            self._try_again(first_s if self.work is None else max(later_s, 3 * silence_s))

    def trained(self, result: Result) -> None:
        """The training thread has done an order."""
        if self.work is not None:
            self.work.trained(result)
            self._send_held()

    @property
    def look_every_s(self) -> float:
        every_s = self.setup.heartbeat_ns / NS_PER_S / 2
        if self._again_s is not None and self.frozen_s is None:
            every_s = min(every_s, max(self._again_s - self.system.monotonic_s(), 0.0))
        return every_s

    def stood_still(self, paused_s: float, slept_s: float) -> None:
        """Nothing could reach this edge for ``paused_s``: it is no silence of the coordinator.

        After a longer pause than the timeout, or if the machine ``slept_s``, a new session begins.
        """
        long = paused_s > self.setup.silence_ns / NS_PER_S
        self._reached_s += paused_s if long else 0.0
        if slept_s:
            self._say(f"this machine slept for {slept_s:.0f} s; a new session begins")
            self._connect()
        elif long:
            self._say(f"this process was stopped for {paused_s:.0f} s; a new session begins")

    def was_busy(self, seconds: float) -> None:
        """The process did not listen for so long, because it worked for other edges."""
        self._reached_s += seconds
        self.link.heard_s = min(self.link.heard_s + seconds, self.system.monotonic_s())

    def freeze(self) -> None:
        """An injected fault: do nothing until ``thaw``, as if the process were stopped."""
        self.frozen_s = self.system.monotonic_s()
        self.shared.poller.remove(self.link.dealer)
        if self.work is not None:
            self.work.frozen = True

    def thaw(self) -> None:
        assert self.frozen_s is not None
        if self._again_s is None:
            self.shared.poller.add(self.link.dealer, self)
        if self.work is not None:
            self.work.frozen = False
        frozen_s, self.frozen_s = self.frozen_s, None
        self.stood_still(self.system.monotonic_s() - frozen_s, 0.0)

    def end(self, refused: bool = False) -> None:
        """Close the socket at once and stop training, as the end of a process would."""
        if self.work is not None:
            if refused:
                self.work.give_up()
            self.work.end(over=self._is_over())
            self.work = None  # they refer to each other, and hold models and descriptors
        if hasattr(self, "link"):
            self.shared.poller.remove(self.link.dealer)
            self.link.dealer.close()

    # ------------------------------------------------------------------ silence
    def _try_again(self, patience_s: float) -> None:
        reason = self.link.dealer.turned_away()
        if reason is not None:
            raise Refused(reason)
        away_s = self.system.monotonic_s() - self._reached_s
        if away_s > patience_s:
            raise Unreachable(f"no answer for {patience_s:g} s: {self._likely()}")
        if self.work is not None and away_s > self.setup.silence_ns / NS_PER_S:
            most = "" if patience_s == math.inf else f" for {patience_s:g} s at most"
            self._say(f"the coordinator does not answer; waiting{most}, it may be resumed")
        if self.link.dealer.hung_up >= HANG_UPS and not self._warned:
            # only a warning: a tunnel does this, too, while nothing listens at its other end
            self._warned = True
            keys = "" if self.keys is None else ", and is coordinator.key its key"
            self._say(
                f"{self.address} accepts connections and closes them: is it the coordinator{keys}?"
                " Trying again"
            )
        self._connect()

    def _is_over(self) -> bool:
        """Whether the run is over for good: it was not broken off, and cannot be resumed."""
        return self.finished is not None and self.finished.reason not in BROKEN_OFF_ENDS

    def _likely(self) -> str:
        """The likely reason why there is no answer."""
        if self.work is not None:
            return "the coordinator has ended without a message, or the network to it is down"
        keys = "" if self.keys is None else ", and is coordinator.key its key"
        return f"does a coordinator listen there{keys}?"

    # ------------------------------------------------------------------ sessions
    def _connect(self) -> None:
        """Open a new socket and session. Unfinished transfers continue in it."""
        if hasattr(self, "link"):
            self.shared.poller.remove(self.link.dealer)
            self.link.dealer.close()
        dealer = self.system.dealer(self.shared.context, self.keys, self.address)
        self.shared.poller.add(dealer, self)
        self.link = SessionLink(dealer, self.system.random_bits(60), self.system.monotonic_s())
        self._held.clear()
        self._again_s = None
        self._send(Hello(self.name, PROTOCOL, edgefl.__version__))
        self._send_held()

    def _say(self, text: str) -> None:
        if text != self._said:  # a text that repeats is printed once
            self._said = text
            print(printable(f"{self.name}: {text}"), file=sys.stderr, flush=True)

    def _heartbeat(self, now_s: float) -> None:
        """Send a heartbeat if this edge has answered no ping for a while."""
        silence_s = now_s - self.link.pinged_s
        if self.link.joined and silence_s > self.setup.silence_ns / OWN_OF_SILENCE / NS_PER_S:
            self.link.pinged_s = now_s
            self._send(Pong(0, self.system.passed_ns()))
        if self.link.joined and (facts := self.shared.reporter.facts) is not None:
            if not self.link.told_facts:
                self.link.told_facts = True
                self._send(facts)
            if (report := self.shared.reporter.take()) is not None:
                self._send(report)

    def _send(self, message: Any, body: Any = None) -> None:
        """Send a message; without a body it goes with others of this turn."""
        header = encode(message, self.link.incarnation, self.link.number)
        if body is not None or len(header) > MOST_BUNDLED_BYTES:
            self._send_held()
            self._put(header, body)
        else:
            self._held.append(header)
            if len(self._held) == MOST_BUNDLED:
                self._send_held()

    def _send_held(self) -> None:
        """Send what waits. A piece does not share a message with its Offer, whose arrival is that
        of the first byte.
        """
        if self._held:
            held, self._held = self._held, []
            self._put(bundle(held))

    def _put(self, header: bytes, body: Any = None) -> None:
        if not self.link.dealer.send(header, body):
            self.link.heard_s = -math.inf  # a new session begins in this turn

    def _tell(self, message: Any, body: Any = None) -> bool:
        """Send a message about the edge's work if the session has joined.

        Otherwise Welcome repeats later what still matters.
        """
        if self.link.joined:
            if isinstance(message, Offer) and self.link.paced is not None:
                message = replace(message, burst=self.link.paced.burst().size_bytes)
            self._send(message, body)
        return self.link.joined

    def _listen(self) -> bool:
        """Handle all waiting frames. Returns True if there were any."""
        heard, link = False, self.link
        for frames in link.dealer.receive():
            heard, link.heard_s = True, self.system.monotonic_s()
            try:
                *others, last = unbundled(frames[0].buffer)
                for header in others:
                    self._header(link, header, None)
                self._header(link, last, frames[1].buffer if len(frames) > 1 else None)
            except WireError as error:
                self._back_off(f"protocol error: {error}")
            if not self._goes_on(link):
                break
            self._send_held()
        return heard

    def _goes_on(self, link: SessionLink) -> bool:
        """Whether this session has not ended, nor the run."""
        return self.finished is None and self.link is link and self._again_s is None

    def _header(self, link: SessionLink, header: memoryview, body: Any) -> None:
        """Handle a header, unless an earlier one of its frame has ended the session or the run."""
        if not self._goes_on(link):
            return
        message, incarnation, number = decode(header)
        if number == link.number:
            link.incarnation = incarnation
            self._frame(message, body)

    def _back_off(self, reason: str) -> None:
        """End this session; ``look`` begins a new one after a pause, in which others work."""
        self._say(f"{printable(reason, MOST_TEXT)}; a new session begins")
        self._again_s = self.system.monotonic_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, BACK_OFF_S[1])
        self.link.joined = False
        self.shared.poller.remove(self.link.dealer)
        self.link.dealer.close()

    def _check_turn(self, message: Any) -> None:
        """Raise WireError unless a coordinator may send this message now.

        Setup follows the Hello, Welcome follows the Join, then transfers and notes.
        """
        awaited = None if self.link.joined else Welcome if self.link.greeted else Setup
        said = type(message) if isinstance(message, (Setup, Welcome)) else None
        if said is not awaited and not isinstance(message, ANYTIME):
            when = "after Welcome" if awaited is None else f"in place of {awaited.__name__}"
            raise WireError(f"{type(message).__name__} from the coordinator {when}")

    def _frame(self, message: Any, body: Any) -> None:
        self._check_turn(message)
        match message:
            case Ping():
                self.link.pinged_s = self.link.heard_s
                self._send(Pong(message.sent_ns, self.system.passed_ns()), body)
            case Piece() if body is not None:
                self._answer(self._work.transfers.piece(message, body, self.system.passed_ns()))
            case Offer():
                self._answer(self._work.transfers.offered(message, self.system.passed_ns()))
            case Credit():
                self._credit(message)
            case Delivered():
                self._act(self._work.transfers.delivered(message.transfer), message.at_ns)
            case Dropped():
                self._work.transfers.dropped(message.transfer)
            case Stamped():
                note = decode_note(message.note)
                if self.link.paced is not None and self._work.ends_upload(note):
                    self.link.paced.limit(None)
                self._act(note, message.at_ns)
            case Setup():
                self._join(message)
            case Welcome():
                self.link.joined = True
                self.link.dealer.joined()
                self._work.welcomed()
            case RunFinished():
                self.finished = message
            case Refuse():
                if message.final:
                    raise Refused(printable(message.reason, MOST_TEXT))
                self._back_off(message.reason)
            case _:
                raise WireError(f"{type(message).__name__} from the coordinator")

    def _credit(self, credit: Credit) -> None:
        """Send the pieces that the credit allows. The kernel spaces their bytes."""
        pieces, paced = list(self._work.transfers.credit(credit)), self.link.paced
        if paced is not None and pieces:
            if credit.leave_ns:
                more = sum(len(view) for _, view in pieces)
                paced.spread(more, credit.leave_ns - self.system.passed_ns())
            else:
                paced.limit(None)
        for piece, view in pieces:
            self._send(piece, view)

    def _join(self, setup: Setup) -> None:
        if (
            not SHORTEST_HEARTBEAT_NS
            <= setup.heartbeat_ns
            <= setup.silence_ns
            <= LONGEST_SILENCE_NS
        ):
            raise WireError("Setup with a heartbeat or a silence timeout that no run has")
        if self.work is None:
            self._build(setup)
        elif setup != self.setup:
            self.work.drop("another run has taken the place of this one")
            self.finished = RunFinished("another run has taken its place", more=True)
            return
        elif self.incarnation != self.link.incarnation:
            self.incarnation = self.link.incarnation
            self._say("the coordinator was started again and the run goes on")
        self.link.greeted = True
        self.link.paced = self.link.dealer.pace() if self.system.paces else None
        segment = 0 if self.link.paced is None else self.link.paced.segment
        self._send(replace(self._work.join(), segment=segment))

    def _build(self, setup: Setup) -> None:
        side = self.build(setup)
        self.setup, self.incarnation = setup, self.link.incarnation
        keeper = None
        if self.state is not None:
            keeper = StateKeeper(self.state, setup.run_id, self._say, self.system)
        self.work = EdgeWork(side, self.shared.train, self._tell, self._say, self.notes, keeper)
        self.shared.reporter.begin(setup.run_id, setup.report_ns)

    @property
    def _work(self) -> EdgeWork:
        assert self.work is not None, "only Setup is handled before this"
        return self.work

    def _answer(self, arrived: Any) -> None:
        if arrived is not None:
            self._send(arrived)
            started = self._work.transfers.started(arrived.transfer)
            if started is not None:
                self._act(*started)

    def _act(self, message: Any, at_ns: int) -> None:
        if message is not None:
            self._pause_s = BACK_OFF_S[0]
            self._work.act(message, at_ns)


Outcome = RunFinished | Refused | UserError  # of an edge: why it has ended


class EdgeProcess:
    """Runs edges in the calling thread, and trains for them in another.

    The edges join a few at a time. Trainings go one after the other, in the order of their starts,
    as with the one model of a run on the virtual clock. How long they take in emulated time does
    not depend on it: a machine that cannot keep up makes the run strained.

    ``ended(edge, outcome)``: called when an edge has ended. ``again(edge)``: makes an edge that an
    injected fault starts again.
    """

    def __init__(
        self,
        turns: Turns,
        system: System = OWN_SYSTEM,
        ended: Callable[[str, Outcome], None] = lambda edge, outcome: None,
        again: Callable[[str], EdgeHost] | None = None,
    ) -> None:
        self.turns, self.system, self.ended, self.again = turns, system, ended, again
        # what the training thread reports, and faults
        self.mailbox = system.mailbox()
        self.hosts: dict[str, EdgeHost] = {}  # those that run
        self.outcomes: dict[str, Outcome] = {}  # of those that have ended
        self._waiting: deque[EdgeHost] = deque()  # they begin when others have joined
        self._joining: set[str] = set()
        # when each edge looks next: a heap, whose entries count if ``_due`` has the same
        self._looks: list[tuple[float, int, EdgeHost]] = []
        self._due: dict[EdgeHost, tuple[float, float]] = {}  # the moment, and the period then
        self._count = count()
        self._kept: dict[str, list[Any]] = {}  # for edges that are frozen
        self._sleeps = SleepWatch()
        self._trainer: TrainingThread | None = None
        self._woke_s = 0.0

    def run(
        self,
        hosts: Sequence[EdgeHost],
        first_patience_s: float = PATIENCE_S,
        patience_s: float = PATIENCE_S,
    ) -> dict[str, Outcome]:
        """Run these edges until the last one has ended; return how each did.

        The patience is as for ``EdgeHost.run``. An edge that a fault has ended has no outcome.
        """
        context = zmq.Context()
        context.set(zmq.MAX_SOCKETS, SOCKETS_PER_EDGE * len(hosts) + SOCKETS_SPARE)
        self._patience_s = first_patience_s, patience_s
        poller = self.system.poller(self.mailbox)
        self._shared = Shared(context, poller, self._train, Reporter(hosts[0].address))
        self._waiting.extend(hosts)
        self._woke_s = self.system.monotonic_s()
        try:
            while self.hosts or self._waiting:
                self._turn()
        finally:
            for host in self.hosts.values():
                host.end()
            if self._trainer is not None:
                self._trainer.end()
            self._shared.reporter.end()
            poller.close()
            context.destroy(linger=0)
            self.mailbox.close()  # this object may wait long for a garbage collection
        return self.outcomes

    def inject(self, fault: InjectFault) -> None:
        """Inject a fault into one edge; may be called from another thread."""
        self.mailbox.put(fault)

    def _turn(self) -> None:
        self._begin_some()
        if not self.hosts:
            return
        now_s = self.system.monotonic_s()
        if now_s - self._woke_s > LONG_TURN_S:
            for host in self.hosts.values():
                host.was_busy(now_s - self._woke_s)
        until_s = max(self._looks[0][0], now_s)
        woken, ready = self._shared.poller.wait(until_s - now_s)
        self._woke_s = self.system.monotonic_s()
        self._look_for_pause(until_s)
        for item in self.mailbox.take(woken):
            self._take(item)
        for host in ready:
            if host.name in self.hosts and host.frozen_s is None:
                self._do(host, host.turn)
        while self._looks and self._looks[0][0] <= self._woke_s:
            due_s, _, host = heapq.heappop(self._looks)
            if self._due.get(host, (None, 0))[0] == due_s:
                if host.frozen_s is None:
                    self._do(host, host.look)
                self._look_later(host)

    def _begin_some(self) -> None:
        while self._waiting and len(self._joining) < MOST_JOINING:
            host = self._waiting.popleft()
            self.hosts[host.name] = host
            self._joining.add(host.name)
            self._do(host, partial(host.begin, self._shared, *self._patience_s))
            self._look_later(host)

    def _look_later(self, host: EdgeHost) -> None:
        if self.hosts.get(host.name) is host:
            due_s, period_s = self.system.monotonic_s() + host.look_every_s, host.look_every_s
            self._due[host] = due_s, period_s
            heapq.heappush(self._looks, (due_s, next(self._count), host))

    def _look_for_pause(self, until_s: float) -> None:
        """``until_s``: when the wait should have ended."""
        paused_s, slept_ns = self._woke_s - until_s, 0
        if self._sleeps.is_due(self.system.passed_ns()):
            slept_ns = self._sleeps.look(*self.system.sleep_reading())
        if slept_ns or paused_s > LONG_TURN_S:
            for host in list(self.hosts.values()):  # one that ends by this leaves them
                if host.frozen_s is None:
                    self._do(host, partial(host.stood_still, paused_s, slept_ns / NS_PER_S))

    # ------------------------------------------------------------------ one edge
    def _do(self, host: EdgeHost, work: Callable[[], None]) -> None:
        """Let an edge work. If it ends by this, it ends alone."""
        try:
            work()
            outcome: Outcome | None = host.finished
        except (Refused, UserError) as reason:
            outcome = reason
        if outcome is not None:
            self._end(host, outcome)
            return
        self._shared.poller.used(host.link.dealer)
        if host.link.joined:
            self._joining.discard(host.name)
        if host in self._due and host.look_every_s < self._due[host][1]:  # Setup has come
            self._look_later(host)

    def _end(self, host: EdgeHost, outcome: Outcome) -> None:
        self._leave(host, refused=isinstance(outcome, Refused))
        self.outcomes[host.name] = outcome
        self.ended(host.name, outcome)
        if isinstance(outcome, Unreachable):  # so would be those that have not begun
            while self._waiting:
                name = self._waiting.popleft().name
                self.outcomes[name] = outcome
                self.ended(name, outcome)

    def _leave(self, host: EdgeHost, refused: bool = False) -> None:
        del self.hosts[host.name]
        self._joining.discard(host.name)
        self._due.pop(host, None)
        self._kept.pop(host.name, None)
        host.end(refused)

    # ------------------------------------------------------------------ training and faults
    def _train(self, order: TrainOrder) -> None:
        if self._trainer is None:
            self._trainer = TrainingThread(self.turns, self.mailbox, self.system)
            self.system.start(self._trainer)
        self._trainer.orders.put(order)

    def _take(self, item: Any) -> None:
        match item:
            case ThreadDied(error):
                raise error
            case InjectFault():
                self._inject(item.fault, item.edge)
            case Result() | Deferred():
                work = item.order.work
                host = self.hosts.get(work.edge.name)
                if host is None or host.work is not work:
                    return  # the edge has ended meanwhile
                if host.frozen_s is not None:
                    self._kept.setdefault(host.name, []).append(item)
                elif isinstance(item, Deferred):
                    self._train(item.order)
                else:
                    self._do(host, partial(host.trained, item))

    def _inject(self, fault: str, edge: str) -> None:
        host = self.hosts.get(edge)
        match fault:
            case "kill" | "restart":
                self._waiting = deque(each for each in self._waiting if each.name != edge)
                if host is not None:
                    self._leave(host)
                if fault == "restart" and self.again is not None:
                    self._waiting.append(self.again(edge))
            case "freeze" if host is not None and host.frozen_s is None:
                host.freeze()
            case "thaw" if host is not None and host.frozen_s is not None:
                self._do(host, host.thaw)
                for item in self._kept.pop(edge, ()):
                    self._take(item)
