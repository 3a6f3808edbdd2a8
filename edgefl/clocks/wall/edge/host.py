"""An edge process: one thread for the socket, which stamps arrivals, and one for training.

It has no emulated clock. Its stamps are of a clock that goes on while the machine sleeps, so that
one difference to the coordinator's clock holds before and after.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import zmq
from msgspec.structs import replace

import edgefl
from edgefl.clocks.wall.edge.machine import Reporter
from edgefl.clocks.wall.edge.state import StateFolder, StateKeeper
from edgefl.clocks.wall.edge.work import EdgeSide, EdgeWork, OpenNotes, Turns
from edgefl.clocks.wall.kernel_pacing import PacedConnection
from edgefl.clocks.wall.keys import EdgeKeys
from edgefl.clocks.wall.system import OWN_SYSTEM, SleepWatch, System
from edgefl.clocks.wall.wire import Dealer
from edgefl.errors import printable
from edgefl.protocol.codec import (
    MOST_BUNDLED,
    MOST_BUNDLED_BYTES,
    bundle,
    decode,
    decode_note,
    encode,
    unbundled,
)
from edgefl.protocol.errors import Refused, Unreachable, WireError
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
    RunFinished,
    Setup,
    Stamped,
    Welcome,
)

PATIENCE_S = 60.0
BACK_OFF_S = (0.05, 2.0)
HANG_UPS = 3  # closed connections, without any message, before a warning
NS_PER_S = 1_000_000_000
MOST_TEXT = 500  # characters of a line that may quote the coordinator
# Limits for a Setup: with a shorter heartbeat this process would do nothing else; with a longer
# silence it would never try again.
SHORTEST_HEARTBEAT_NS, LONGEST_SILENCE_NS = 100_000, 86_400 * NS_PER_S
OWN_HEARTBEATS = 1.5  # without a ping for so many heartbeats, an edge says that it is alive
ANYTIME = (Ping, Refuse, RunFinished)  # a coordinator may send these at any time
BEFORE_SETUP = Setup("", "")  # its timers are used until the coordinator sends its own


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


class EdgeHost:
    """One edge. ``build(setup)`` makes its EdgeSide once the coordinator has sent Setup.

    ``state``: where it keeps what its next process needs; None: nowhere.
    """

    def __init__(
        self,
        name: str,
        address: str,
        keys: EdgeKeys | None,
        build: Callable[[Setup], EdgeSide],
        turns: Turns,
        system: System = OWN_SYSTEM,
        state: StateFolder | None = None,
    ) -> None:
        self.name, self.address, self.keys = name, address, keys
        self.build, self.turns, self.system, self.state = build, turns, system, state
        self.context = zmq.Context()
        self.results = system.mailbox()
        self.work: EdgeWork | None = None  # once the coordinator has sent Setup
        self.notes = OpenNotes()
        self.setup = BEFORE_SETUP
        self.incarnation = 0  # of the coordinator that has sent the latest Setup
        self.reporter = Reporter(address)
        self.sleep_watch = SleepWatch()
        self.finished: RunFinished | None = None
        self.link: SessionLink
        self._held: list[bytes] = []  # headers that go together at the end of this turn
        self._pause_s = BACK_OFF_S[0]
        self._warned = False
        self._said = ""

    def run(
        self, first_patience_s: float = PATIENCE_S, patience_s: float = PATIENCE_S
    ) -> RunFinished:
        """Run until RunFinished.

        Refused if the coordinator refuses this edge. Unreachable if it does not answer; the first
        answer may take ``first_patience_s``. A coordinator that stops answering later has
        ``patience_s``: it may be resumed.
        """
        try:
            return self._until_finished(first_patience_s, patience_s)
        except Refused:
            if self.work is not None:
                self.work.give_up()
            raise
        finally:
            if self.work is not None:
                self.work.end(over=self._is_over())
                self.work = None  # they refer to each other, and hold models and descriptors
            self.reporter.end()
            self.context.destroy(linger=0)

    def _until_finished(self, first_patience_s: float, patience_s: float) -> RunFinished:
        reached_s = self.system.monotonic_s()
        self._connect()
        while self.finished is None:
            now_s = self.system.monotonic_s()
            timeout_s = self.setup.heartbeat_ns / NS_PER_S / 2
            woken = self.link.dealer.wait(self.results.fd, timeout_s)
            reached_s += self._stood_still_s(now_s + timeout_s)
            if self.work is not None:
                self.work.done(woken)
                self._send_held()
            if self._listen():
                reached_s = self.system.monotonic_s()
            if not self.link.greeted and self.link.dealer.cut_off():
                self._connect()  # a coordinator that has just ended got the Hello
            self._heartbeat(now_s)
            self._send_held()
            silence_s = self.setup.silence_ns / NS_PER_S
            if self.system.monotonic_s() - self.link.heard_s > silence_s:
                self._try_again(
                    reached_s,
                    first_patience_s if self.work is None else max(patience_s, 3 * silence_s),
                )
        return self.finished

    def _stood_still_s(self, until_s: float) -> float:
        """Begin a new session if this machine slept. ``until_s``: when the wait should have ended.

        Returns the seconds of a long pause of this process: nothing could reach it then, so they do
        not count as a silence of the coordinator.
        """
        late_s = self.system.monotonic_s() - until_s
        paused_s = late_s if late_s > self.setup.silence_ns / NS_PER_S else 0.0
        slept_ns = 0
        if self.sleep_watch.is_due(self.system.passed_ns()):
            slept_ns = self.sleep_watch.look(*self.system.sleep_reading())
        if slept_ns:
            self._say(f"this machine slept for {slept_ns / NS_PER_S:.0f} s; a new session begins")
            self._connect()
        elif paused_s:
            self._say(f"this process was stopped for {paused_s:.0f} s; a new session begins")
        return paused_s

    def _try_again(self, reached_s: float, patience_s: float) -> None:
        reason = self.link.dealer.turned_away()
        if reason is not None:
            raise Refused(reason)
        away_s = self.system.monotonic_s() - reached_s
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
            self.link.dealer.close()
        dealer = self.system.dealer(self.context, self.keys, self.address)
        self.link = SessionLink(dealer, self.system.random_bits(60), self.system.monotonic_s())
        self._held.clear()
        self._send(Hello(self.name, PROTOCOL, edgefl.__version__))
        self._send_held()

    def _say(self, text: str) -> None:
        if text != self._said:  # a text that repeats is printed once
            self._said = text
            print(printable(f"{self.name}: {text}"), file=sys.stderr, flush=True)

    def _heartbeat(self, now_s: float) -> None:
        """Send a heartbeat if this edge has answered no ping for a while."""
        silence_s = now_s - self.link.pinged_s
        if self.link.joined and silence_s > OWN_HEARTBEATS * self.setup.heartbeat_ns / NS_PER_S:
            self.link.pinged_s = now_s
            self._send(Pong(0, self.system.passed_ns()))
        if self.link.joined:
            for message in self.reporter.due(self.link.number):
                self._send(message)

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
            if self.finished is not None or self.link is not link:
                break
            self._send_held()
        return heard

    def _header(self, link: SessionLink, header: memoryview, body: Any) -> None:
        """Handle a header, unless an earlier one of its frame has ended the session or the run."""
        if self.finished is not None or self.link is not link:
            return
        message, incarnation, number = decode(header)
        if number == link.number:
            link.incarnation = incarnation
            self._frame(message, body)

    def _back_off(self, reason: str) -> None:
        self._say(f"{printable(reason, MOST_TEXT)}; a new session begins")
        self.system.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, BACK_OFF_S[1])
        self._connect()

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
                if self.link.paced is not None:  # an upload has ended
                    self.link.paced.limit(None)
                self._act(decode_note(message.note), message.at_ns)
            case Setup():
                self._join(message)
            case Welcome():
                self.link.joined = True
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
        self.work = EdgeWork(
            side, self.turns, self.results, self._tell, self._say, self.notes, self.system, keeper
        )
        self.reporter.begin(setup.run_id, setup.report_ns)
        # this thread did not listen during ``build``
        self.link.heard_s = self.system.monotonic_s()

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
