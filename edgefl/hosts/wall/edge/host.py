"""An edge process: one thread for the socket, which stamps arrivals, and one for training.

It has no emulated clock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import zmq

import edgefl
from edgefl.actor import Output, Run, Send
from edgefl.edges.edge import Edge
from edgefl.errors import printable
from edgefl.hosts.wall.edge.reporter import Reporter
from edgefl.hosts.wall.edge.transfers import EdgeTransfers
from edgefl.hosts.wall.edge.worker import ThreadDied, TrainingThread, TrainOrder, Turns
from edgefl.hosts.wall.keys import EdgeKeys
from edgefl.hosts.wall.system import OWN_SYSTEM, System
from edgefl.hosts.wall.wire import Dealer
from edgefl.protocol.codec import decode, decode_note, encode, encode_note
from edgefl.protocol.errors import Refused, Unreachable, WireError
from edgefl.protocol.messages import (
    PROTOCOL,
    Acknowledged,
    CancelTask,
    Credit,
    Delivered,
    Hello,
    Join,
    Offer,
    Piece,
    Ping,
    Pong,
    Refuse,
    RunFinished,
    Setup,
    Stamped,
    TaskFailed,
    TooLate,
    Update,
    UrgeTask,
    Welcome,
    Working,
)

PATIENCE_S = 60.0
BACK_OFF_S = (0.05, 2.0)
HANG_UPS = 3  # closed connections, without any message, before a warning
NS_PER_S = 1_000_000_000
MOST_TEXT = 500  # characters of a line that may quote the coordinator
# Limits for a Setup: with a shorter heartbeat this process would do nothing else; with a longer
# silence it would never try again.
SHORTEST_HEARTBEAT_NS, LONGEST_SILENCE_NS = 100_000, 86_400 * NS_PER_S
ANYTIME = (Ping, Refuse, RunFinished)  # a coordinator may send these at any time
BEFORE_SETUP = Setup("", "")  # its timers are used until the coordinator sends its own


@dataclass(slots=True)
class EdgeSide:
    """What an edge has built for a run: its actor, and what its Join tells the coordinator."""

    edge: Edge
    config_digest: str
    layout_digest: str
    data_digest: str
    samples: int
    speed: float
    most_bytes: int


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


class EdgeHost:
    """One edge. ``build(setup)`` makes its EdgeSide once the coordinator has sent Setup."""

    def __init__(
        self,
        name: str,
        address: str,
        keys: EdgeKeys | None,
        build: Callable[[Setup], EdgeSide],
        turns: Turns,
        system: System = OWN_SYSTEM,
    ) -> None:
        self.name, self.address, self.keys = name, address, keys
        self.build, self.turns, self.system = build, turns, system
        self.context = zmq.Context()
        self.results = system.mailbox()
        self.side: EdgeSide | None = None
        self.setup = BEFORE_SETUP
        self.incarnation = 0  # of the coordinator that ``side`` was built for
        self.worker: TrainingThread | None = None
        self.reporter = Reporter(address)
        self.transfers: EdgeTransfers
        self.finished: RunFinished | None = None
        self.link: SessionLink
        self._pause_s = BACK_OFF_S[0]
        self._warned = False
        self._given_up = 0
        self._beyond: str | None = None
        self._failed_for = self._said = ""
        # the latest request, and failures by task: a new session repeats those that are open
        self._asked: Stamped | None = None
        self._failed: dict[int, Stamped] = {}

    def run(self, first_patience_s: float = PATIENCE_S) -> RunFinished:
        """Run until RunFinished.

        Refused if the coordinator refuses this edge. Unreachable if it does not answer; the first
        answer may take ``first_patience_s``.
        """
        try:
            return self._until_finished(first_patience_s)
        finally:
            if self.worker is not None:
                self.worker.end()
            self.reporter.end()
            self.context.destroy(linger=0)

    def _until_finished(self, first_patience_s: float) -> RunFinished:
        reached_s = self.system.monotonic_s()
        self._connect()
        while self.finished is None:
            now_s = self.system.monotonic_s()
            woken = self.link.dealer.wait(self.results.fd, self.setup.heartbeat_ns / NS_PER_S / 2)
            self._work_done(woken)
            if self._listen():
                reached_s = self.system.monotonic_s()
            if not self.link.greeted and self.link.dealer.cut_off():
                self._connect()  # a coordinator that has just ended got the Hello
            self._heartbeat(now_s)
            silence_s = self.setup.silence_ns / NS_PER_S
            if self.system.monotonic_s() - self.link.heard_s > silence_s:
                self._try_again(
                    reached_s,
                    first_patience_s if self.side is None else max(PATIENCE_S, 3 * silence_s),
                )
        return self.finished

    def _try_again(self, reached_s: float, patience_s: float) -> None:
        reason = self.link.dealer.turned_away()
        if reason is not None:
            raise Refused(reason)
        if self.system.monotonic_s() - reached_s > patience_s:
            raise Unreachable(f"no answer for {patience_s:g} s: {self._likely()}")
        if self.link.dealer.hung_up >= HANG_UPS and not self._warned:
            # only a warning: a tunnel does this, too, while nothing listens at its other end
            self._warned = True
            keys = "" if self.keys is None else ", and is coordinator.key its key"
            self._say(
                f"{self.address} accepts connections and closes them: is it the coordinator{keys}?"
                " Trying again"
            )
        self._connect()

    def _likely(self) -> str:
        """The likely reason why there is no answer."""
        if self.side is not None:
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
        self._send(Hello(self.name, PROTOCOL, edgefl.__version__))

    def _say(self, text: str) -> None:
        if text != self._said:  # a text that repeats is printed once
            self._said = text
            print(printable(f"{self.name}: {text}"), file=sys.stderr, flush=True)

    def _heartbeat(self, now_s: float) -> None:
        if self.link.joined and now_s - self.link.pinged_s > self.setup.heartbeat_ns / NS_PER_S:
            self.link.pinged_s = now_s
            self._send(Pong(0, self.system.monotonic_ns()))
        if self.link.joined:
            for message in self.reporter.due(self.link.number):
                self._send(message)

    def _send(self, message: Any, body: Any = None) -> None:
        self.link.dealer.send(encode(message, self.link.incarnation, self.link.number), body)

    def _tell(self, message: Any) -> None:
        """Send a message of the actor if the session has joined.

        Otherwise ``_welcome`` repeats later what still matters.
        """
        if self.link.joined:
            self._send(message)

    def _listen(self) -> bool:
        """Handle all waiting frames. Returns True if there were any."""
        heard, link = False, self.link
        for frames in link.dealer.receive():
            heard, link.heard_s = True, self.system.monotonic_s()
            try:
                message, incarnation, number = decode(frames[0].buffer)
                if number == link.number:
                    link.incarnation = incarnation
                    self._frame(message, frames[1].buffer if len(frames) > 1 else None)
            except WireError as error:
                self._back_off(f"protocol error: {error}")
            if self.finished is not None or self.link is not link:
                break
        return heard

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
                self._send(Pong(message.sent_ns, self.system.monotonic_ns()), body)
            case Piece() if body is not None:
                self._answer(self.transfers.piece(message, body, self.system.monotonic_ns()))
            case Offer():
                self._answer(self.transfers.offered(message, self.system.monotonic_ns()))
            case Credit():
                for piece, view in self.transfers.credit(message):
                    self._send(piece, view)
            case Delivered():
                self._act(self.transfers.delivered(message.transfer), message.at_ns)
            case Stamped():
                self._act(decode_note(message.note), message.at_ns)
            case Setup():
                self._join(message)
            case Welcome():
                self._welcome()
            case RunFinished():
                self.finished = message
            case Refuse():
                if message.final:
                    raise Refused(printable(message.reason, MOST_TEXT))
                self._back_off(message.reason)
            case _:
                raise WireError(f"{type(message).__name__} from the coordinator")

    def _join(self, setup: Setup) -> None:
        if (
            not SHORTEST_HEARTBEAT_NS
            <= setup.heartbeat_ns
            <= setup.silence_ns
            <= LONGEST_SILENCE_NS
        ):
            raise WireError("Setup with a heartbeat or a silence timeout that no run has")
        if self.side is None:
            self.side, self.setup, self.incarnation = (
                self.build(setup),
                setup,
                self.link.incarnation,
            )
            self.transfers = EdgeTransfers(self.side.most_bytes)
            self.worker = TrainingThread(
                self.side.edge, self.turns, self.side.speed, self.results, self.system
            )
            self.system.start(self.worker)
            self.reporter.begin(self.incarnation, setup.report_ns)
            self.link.heard_s = (
                self.system.monotonic_s()
            )  # this thread did not listen during ``build``
        elif (setup, self.link.incarnation) != (self.setup, self.incarnation):
            # this edge's tasks and transfers belong to the other run
            self.finished = RunFinished("another run has taken its place", more=True)
            return
        side, self.link.greeted = self.side, True
        self.transfers.new_session()
        tasks = sorted({*side.edge.open_tasks, *self.transfers.tasks})
        self._send(
            Join(
                side.config_digest,
                side.layout_digest,
                side.data_digest,
                side.samples,
                tasks,
                self.transfers.held,
            )
        )

    def _welcome(self) -> None:
        self.link.joined = True
        for outgoing, due_ns in self.transfers.unacknowledged(self._side.edge.unacknowledged):
            self._send(outgoing.offer(due_ns))
        if self._asked is not None and self._side.edge.asking:
            self._send(self._asked)
        for task in self._side.edge.failed:
            self._send(self._failed[task])

    # ------------------------------------------------------------------ the actor
    @property
    def _side(self) -> EdgeSide:
        assert self.side is not None, "only Setup is handled before this"
        return self.side

    def _answer(self, arrived: Any) -> None:
        if arrived is not None:
            self._send(arrived)

    def _act(self, message: Any, at_ns: int) -> None:
        if isinstance(message, Acknowledged):
            self.transfers.acknowledged(message.task)
        elif isinstance(message, (CancelTask, TooLate)):
            self.transfers.cancelled(message.task)
        if message is not None:
            self._pause_s = BACK_OFF_S[0]
            outputs = self._side.edge.receive(message, at_ns)
            if isinstance(message, UrgeTask) and message.task not in self._side.edge.unacknowledged:
                # a new update will replace the one that was offered
                self.transfers.acknowledged(message.task)
            self._carry_out(outputs, at_ns)

    def _work_done(self, woken: bool) -> None:
        for result in self.results.take(woken):
            if isinstance(result, ThreadDied):
                raise result.error
            if result.trained is not None:
                self._tell(result.trained)
            self._carry_out(
                self._side.edge.job_done(result.order.job, None, result.at_ns), result.at_ns
            )

    def _carry_out(self, outputs: list[Output], at_ns: int) -> None:
        for output in outputs:
            match output:
                case Run():
                    due = None if output.duration_ns is None else at_ns + output.duration_ns
                    assert self.worker is not None and self._side.edge.task is not None
                    if due is not None:
                        self._tell(Working(self._side.edge.task.number, due))
                    self.worker.orders.put(TrainOrder(output.job, at_ns, due))
                case Send(message=Update() as update):
                    self._offer(update, at_ns)
                case Send(message=TaskFailed() as failed):
                    self._task_failed(failed, at_ns)
                case Send():
                    self._asked = Stamped(at_ns, encode_note(output.message))
                    self._tell(self._asked)

    def _task_failed(self, failed: TaskFailed, at_ns: int) -> None:
        open_tasks = self._side.edge.failed
        self._failed = {task: note for task, note in self._failed.items() if task in open_tasks}
        self._failed[failed.task] = Stamped(at_ns, encode_note(failed))
        self._tell(self._failed[failed.task])
        if failed.reason != self._failed_for:  # a repeated failure gets one line, no traceback
            self._failed_for = failed.reason
            print(f"{self.name}: {failed.trace}", file=sys.stderr)
        print(
            f"{self.name}: task {failed.task} failed: {failed.reason}", file=sys.stderr, flush=True
        )

    def _offer(self, update: Update, at_ns: int) -> None:
        given_up = self._side.edge.given_up
        if given_up > self._given_up:
            self._given_up = given_up
            self._say(
                f"{given_up} updates dropped: the coordinator acknowledged none of the latest"
            )
        beyond = self._side.edge.beyond
        if beyond != self._beyond:
            self._beyond = beyond
            self._say(
                f"an update cannot be sent: {beyond}; the coordinator discards it (wrong length)"
            )
        self._tell(self.transfers.new(update, at_ns).offer(at_ns))
