"""The edge's process without a network: scripted messages of honest, resumed and evil
coordinators, and a clock that only waiting moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from edge_hosts import NS_PER_S, SETUP, Clock, Script, side
from msgspec.structs import replace
from processes import Coordinator, EchoRun, EchoTrainer, happened, wait_for
from trainers import linear_trainer

from edgefl.clocks.process_messages import InjectFault, StopRun
from edgefl.clocks.wall.edge.host import MOST_JOINING, EdgeHost, EdgeProcess
from edgefl.clocks.wall.edge.work import (
    EdgeWork,
    OpenNotes,
    OwnMachine,
    TrainingThread,
    TrainOrder,
)
from edgefl.clocks.wall.system import Mailbox
from edgefl.edges.edge import Edge
from edgefl.edges.training import TrainingPlan
from edgefl.errors import UserError
from edgefl.jobs import Train
from edgefl.protocol.codec import Outgoing, encode, encode_note
from edgefl.protocol.messages import (
    Acknowledged,
    Arrived,
    Assignment,
    CancelTask,
    Credit,
    Delivered,
    Fresh,
    FreshRequest,
    Hello,
    Join,
    NothingNewer,
    Offer,
    Piece,
    Ping,
    Pong,
    Refuse,
    Refused,
    RunFinished,
    Setup,
    Stamped,
    TaskFailed,
    TooLate,
    Trained,
    Unreachable,
    Update,
    UrgeTask,
    Welcome,
    Working,
)
from edgefl.strategies.base.strategy import LocalRule
from emulator.compute import Native
from emulator.kernel_pacing import Burst

AWAY = Refuse("this session has ended", final=False)


# ------------------------------------------------------------------ another run at the same address
@pytest.mark.parametrize(
    "again",
    [(Setup('{"seed": 1}', "fedasync"), 7), (replace(SETUP, run_id="b"), 8)],
    ids=["another strategy", "the same, started anew"],
)
def test_what_was_built_for_another_run_does_not_join_this_one(again: tuple[Setup, int]) -> None:
    script = Script((SETUP, 7), (Welcome(), 7), (AWAY, again[1]), again)
    finished = script.host().run()
    assert finished == RunFinished("another run has taken its place", more=True)
    assert [type(message) for message in script.said if not isinstance(message, Pong)] == [
        Hello,
        Join,
        Hello,
    ]


@pytest.mark.parametrize("then", [7, 8], ids=["a broken session", "a resumed coordinator"])
def test_a_new_session_of_the_same_run_goes_on(then: int) -> None:
    script = Script(
        (SETUP, 7),
        (Welcome(), 7),
        (AWAY, then),
        (SETUP, then),
        (Welcome(), then),
        (RunFinished("versions", False), then),
    )
    assert script.host().run() == RunFinished("versions", more=False)
    assert [type(message) for message in script.said if not isinstance(message, Pong)] == [
        Hello,
        Join,
        Hello,
        Join,
    ]


# ------------------------------------------------------------------ heartbeats
@pytest.mark.parametrize(("turn", "own"), [([None, None], 3), ([(Ping(5), 7), None], 1)])
def test_an_edge_that_answers_pings_sends_no_heartbeats_of_its_own(
    turn: list[Any], own: int
) -> None:
    """Sixteen waits of half a heartbeat each, after a first heartbeat at once."""
    script = Script((SETUP, 7), (Welcome(), 7), *turn * 8, (RunFinished("versions", False), 7))
    script.host().run()
    answers = [message.sent_ns for message in script.said if isinstance(message, Pong)]
    assert answers.count(5) == 8 * (turn[0] is not None) and answers.count(0) == own


# ------------------------------------------------------------------ patience
def test_the_first_join_may_be_waited_for_longer_than_a_coordinator_that_was_there() -> None:
    script = Script()
    with pytest.raises(Unreachable, match=r"^no answer for 900 s: does a coordinator .* there\?$"):
        script.host().run(900.0)
    assert 1900 < script.clock.s < 1910
    script = Script((SETUP, 7))
    ended = (
        "^no answer for 60 s: the coordinator has ended without a message, or the network .* down$"
    )
    with pytest.raises(Unreachable, match=ended):
        script.host().run(900.0)
    assert 1060 < script.clock.s < 1070


def test_a_hello_that_a_closed_connection_took_along_is_repeated_at_once() -> None:
    script = Script(None, (SETUP, 7), (Welcome(), 7), (RunFinished("versions", False), 7))
    script.cut = [True, False]
    script.host().run()
    assert [type(message) for message in script.said][:3] == [Hello, Hello, Join]
    assert script.clock.s - 1000 < 2, "without waiting for a silence of 5 s"


def test_a_connection_that_is_given_up_is_replaced_at_once() -> None:
    """libzmq does so if its peer breaks the protocol; then nothing can be sent any more."""
    words = [(SETUP, 7), (Welcome(), 7)]
    script = Script(*words, *words, (RunFinished("versions", False), 7))
    script.given_up_after = 2  # the facts of the host, after Hello and Join
    script.host().run()
    said = [message for message in script.said if isinstance(message, (Hello, Join))]
    assert [type(message) for message in said] == [Hello, Join, Hello, Join]
    assert script.clock.s - 1000 < 4, "without waiting for a silence of 5 s"


# ------------------------------------------------------------------ sleep and pauses
class Pausing(Script):
    """In its wait number ``at``, the machine sleeps or its process is stopped."""

    at, slept_s, stopped_s = 0, 0.0, 0.0

    def wait(self, timeout_s: float) -> tuple[bool, list[Any]]:
        found = super().wait(timeout_s)
        if len(self.waits) == self.at:
            self.clock.asleep_s += self.slept_s
            self.clock.s += self.stopped_s
        return found


OVER = (RunFinished("versions", False), 7)


@pytest.mark.parametrize("slept_s", [0.5, 7200.0])
def test_an_edge_whose_machine_slept_begins_a_new_session_at_once(
    capsys: pytest.CaptureFixture[str], slept_s: float
) -> None:
    script = Pausing((SETUP, 7), (Welcome(), 7), None, (SETUP, 7), (Welcome(), 7), OVER)
    script.at, script.slept_s = 3, slept_s
    if slept_s < 1:  # too short to matter
        script.words[3:5] = []
    script.host().run()
    assert sum(isinstance(message, Hello) for message in script.said) == (1 if slept_s < 1 else 2)
    told = f"e000: this machine slept for {slept_s:.0f} s; a new session begins\n"
    assert capsys.readouterr().err == ("" if slept_s < 1 else told)


def test_its_stamps_count_the_sleep_so_that_one_difference_of_clocks_holds() -> None:
    script = Pausing((SETUP, 7), (Welcome(), 7), (Ping(3), 7), (SETUP, 7), (Ping(4), 7), OVER)
    script.at, script.slept_s = 4, 600.0
    script.host().run()
    first, second = [each for each in script.said if isinstance(each, Pong) and each.sent_ns]
    assert 600 * NS_PER_S < second.clock_ns - first.clock_ns < 601 * NS_PER_S


def test_a_pause_of_this_process_does_not_use_up_its_patience(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing could reach it meanwhile: it looks for the coordinator again before it gives up."""
    script = Pausing((SETUP, 7), (Welcome(), 7), None, (SETUP, 7), (Welcome(), 7), OVER)
    script.at, script.stopped_s = 3, 100_000.0
    assert script.host().run().reason == "versions"
    said = "e000: this process was stopped for 100000 s; a new session begins\n"
    assert capsys.readouterr().err == said


# ------------------------------------------------------------------ native compute time
def test_a_native_device_reports_its_samples_and_its_time_without_waiting() -> None:
    clock, slices = Clock(), iter([False, False, True])

    class Busy(OwnMachine):
        def take(self, due_ns: int) -> None:
            clock.sleep(8.0)

    class Slow(EchoTrainer):
        def advance(self, run: EchoRun, *_: Any) -> bool:
            clock.sleep(0.5)
            run.step += 1
            return next(slices)

    made, results = side(Slow()), Mailbox()
    made.edge, made.speed = Edge("e000", Slow(), LocalRule(None), Native()), 2.0
    edge = made.edge
    edge.rule.work = 1.5
    task = Assignment(4, 0, {"weights": np.zeros(3, np.float32)})
    edge.run = EchoRun(task.vectors["weights"], task=task)
    worker = TrainingThread(Busy(), results, clock)
    work = EdgeWork(made, worker.orders.put, lambda *_: False, print, OpenNotes())
    worker.orders.put(TrainOrder(work, Train(edge.run, 3), 5 * NS_PER_S, None))
    worker.orders.put(None)
    worker.run()
    (result,) = results.take()
    # three slices of half a second, at double speed
    assert result.at_ns == 5 * NS_PER_S + 3 * NS_PER_S
    assert result.trained == Trained(4, 45, 3 * NS_PER_S // 2)  # 30 samples that cost 1.5 each


def test_a_native_device_that_may_ask_after_each_step_reports_once_for_all_steps_before() -> None:
    clock, results, orders = Clock(), Mailbox(), list[TrainOrder]()
    told: list[Any] = []

    class Asking(LocalRule):
        def asks(self, run: Any) -> bool:
            return True  # the trainer decides

    class Steps(EchoTrainer):
        def begin(self, task: Assignment, *_: Any) -> EchoRun:
            return EchoRun(task.vectors["weights"], steps=8, task=task)

        def advance(self, run: EchoRun, rule: LocalRule, until_step: int, *_: Any) -> bool:
            clock.sleep(0.5)
            run.step = until_step
            return True

        def asks(self, run: EchoRun, rule: LocalRule) -> bool:
            return run.step == 6

    made = side()
    made.edge = Edge("e000", Steps(), Asking(None), Native())
    worker = TrainingThread(OwnMachine(), results, clock)
    work = EdgeWork(
        *(made, orders.append, lambda message, *_: told.append(message) or True),
        *(print, OpenNotes()),
    )
    task = Assignment(4, 0, {"weights": np.zeros(3, np.float32)})
    for at_s, message in ((5, task), (9, NothingNewer(4))):
        work.act(message, at_s * NS_PER_S)
        while orders:
            worker.orders.put(orders.pop())
            worker.orders.put(None)
            worker.run()
            for result in results.take():
                work.trained(result)
    first, asked, second, offer = told
    assert (first, second) == (Trained(4, 60, 3 * NS_PER_S), Trained(4, 20, NS_PER_S))
    assert isinstance(asked, Stamped) and isinstance(offer, Offer)


# ------------------------------------------------------------------ an update that cannot travel
class Chatty(EchoTrainer):
    """Sends more vectors than a message may hold."""

    def payload(
        self, run: EchoRun, rule: LocalRule
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        return {f"v{number}": run.weights for number in range(65)}, {"samples": 10.0}


@pytest.mark.alone
@pytest.mark.usefixtures("warm_python")
def test_an_update_beyond_the_limits_closes_its_task(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    coordinator = Coordinator(
        tmp_path, 3, edges={"names": ["e000"]}, strategies=[{"strategy": "fedasync"}]
    )
    built = side(Chatty())
    built.config_digest, built.layout_digest, built.data_digest = coordinator.digests
    host = EdgeHost(
        "e000", f"tcp://127.0.0.1:{coordinator.port}", None, lambda setup: built, OwnMachine()
    )
    thread = Thread(target=host.run, daemon=True)
    thread.start()
    wait_for(
        lambda: (
            len(happened(coordinator.directory, event="task_closed", reason="wrong length")) >= 2
        )
    )
    summary = coordinator.end()
    thread.join(10)
    assert (
        list(summary["updates_discarded"]) == ["wrong length"]
        and summary["updates_applied"] == 0
        and summary["fidelity"]["wire"] == {}
    )
    assert (
        capfd.readouterr().err.count("e000: an update cannot be sent: 65 vectors, at most 64; ")
        == 1
    )


@pytest.mark.alone
@pytest.mark.usefixtures("warm_python")
def test_a_run_says_that_the_kernel_has_paced_nothing(tmp_path: Path) -> None:
    coordinator = Coordinator(
        tmp_path,
        3,
        edges={"names": ["e000"]},
        strategies=[{"strategy": "fedasync"}],
        network={"pacing": "kernel"},
    )
    coordinator.echo("e000")
    wait_for(lambda: happened(coordinator.directory, event="update_arrived"))
    coordinator.control.send(StopRun("interrupted"))
    said = coordinator.hear()
    assert said.line.startswith('network.pacing = "kernel": it has paced none of the ')
    assert coordinator.hear().summary["fidelity"]["pacing"]["kernel"] == 0


# ------------------------------------------------------------------ resumed coordinator
OLD, NEW = 7, 8  # incarnations
GONE = [(Refuse("this session has ended", False), NEW), (SETUP, NEW), (Welcome(), NEW)]
AGAIN = [(Refuse("ended", False), NEW), (SETUP, NEW), (Welcome(), NEW)]
RESUMED_OVER = (RunFinished("versions", False), NEW)
MODEL = Outgoing(5, Assignment(4, 2, {"weights": np.arange(3, dtype=np.float32)}))


def talked(*words: Any, host: EdgeHost | None = None, script: Script | None = None) -> Script:
    """Greet and join, then these words of the coordinators, then the end."""
    script = script or Script()
    script.words = [(SETUP, OLD), (Welcome(), OLD), *words, RESUMED_OVER]
    (host or script.host()).run()
    return script


def of(kind: type, script: Script) -> list[Any]:
    return [message for message in script.said if isinstance(message, kind)]


def piece(start: int, end: int, incarnation: int) -> tuple[Any, ...]:
    return (Piece(5, start), incarnation, bytes(MODEL.piece(start, end - start)))


def test_a_download_goes_on_at_its_byte_and_the_task_is_trained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = talked(
        *[(MODEL.offer(0), OLD), piece(0, 7, OLD), *GONE, piece(7, 12, NEW)],
        (Delivered(5, 20), NEW),
    )
    first, second = of(Join, script)
    assert (first.tasks, first.held) == ([], [])
    assert (second.tasks, second.held) == ([4], [[5, 7]])
    (arrived,) = of(Arrived, script)
    assert [size for size, _ in arrived.curve] == [0, 7, 12]
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "e000: this session has ended; a new session begins",
        "e000: the coordinator was started again and the run goes on",
    ]
    assert [each.task for each in of(Working, script)] == [4], "training began at its delivery"


class Endless(EchoTrainer):
    """Its training never ends."""

    def advance(self, run: EchoRun, *_: Any) -> bool:
        return False


def test_the_training_under_way_goes_on_and_is_told_again() -> None:
    script = Script()
    host = script.host()
    host.build = lambda setup: side(Endless())
    talked(
        *[(MODEL.offer(0), OLD), piece(0, 12, OLD), (Delivered(5, 20), OLD), *GONE],
        host=host,
        script=script,
    )
    first, second = of(Working, script)
    assert first == second and (first.task, of(Join, script)[1].tasks) == (4, [4])


def with_an_update() -> tuple[Script, EdgeHost]:
    """An edge that has offered the update of task 4, due at 30."""
    script = Script()
    host = script.host()
    built, original = side(), host._build
    update = Update(4, 2, {"weights": np.zeros(3, np.float32)}, {})
    built.edge.unacknowledged[4] = update
    built.edge._learned[4] = {}

    def build(setup: Any) -> None:
        original(setup)
        host._work.transfers.new(update, 30)

    host.build, host._build = lambda setup: built, build
    return script, host


def test_an_update_that_the_resumed_run_does_not_know_is_dropped_and_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    script, host = with_an_update()
    cancelled = (Stamped(40, encode_note(CancelTask(4))), NEW)
    talked(*GONE, cancelled, *AGAIN, host=host, script=script)
    assert [join.tasks for join in of(Join, script)] == [[4], [4], []]
    assert len(of(Offer, script)) == 2
    line = "e000: the update of task 4 is dropped: its task was closed meanwhile, or the resumed"
    assert [each.startswith(line) for each in capsys.readouterr().err.splitlines()].count(True) == 1


@pytest.mark.parametrize(
    ("note", "lifts"),
    [
        (UrgeTask(5), False),
        (CancelTask(5), False),
        (NothingNewer(5), False),
        (CancelTask(4), True),
        (Acknowledged(4), True),
    ],
)
def test_only_the_end_of_an_upload_lets_its_bytes_leave_at_once(note: Any, lifts: bool) -> None:
    script, host = with_an_update()
    asked: list[Any] = []
    connection = SimpleNamespace(
        segment=500,
        burst=lambda: Burst(4_000, 0),
        spread=lambda more, within_ns: asked.append(more),
        limit=asked.append,
    )
    script.clock.paces, script.pace = True, lambda: connection
    credit = Credit(1, 0, 8, leave_ns=2**60)
    talked((credit, OLD), (Stamped(40, encode_note(note)), OLD), host=host, script=script)
    assert asked == [8, *[None] * lifts]


def test_a_request_and_a_failure_are_told_again() -> None:
    script = Script()
    host = script.host()
    built = side()
    host.build = lambda setup: built
    built.edge.failed = {3: TaskFailed(3, "step 1 of 1: ValueError", "")}
    host.notes.failed = {3: Stamped(5, encode_note(built.edge.failed[3]))}
    host.notes.asked = Stamped(6, encode_note(FreshRequest(4, 0, 2, 9)))
    talked(*GONE, host=host, script=script)
    assert of(Stamped, script) == [host.notes.failed[3]] * 2


def test_it_waits_as_long_as_it_is_told_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    patience_s = 600.0
    script = Script((SETUP, OLD), (Welcome(), OLD))
    host = script.host()
    with pytest.raises(Unreachable, match=f"no answer for {patience_s:g} s: the coordinator has"):
        host.run(60.0, patience_s)
    assert patience_s < script.clock.s - 1000 < patience_s + 10
    waits = (
        f"the coordinator does not answer; waiting for {patience_s:g} s at most, it may be resumed"
    )
    assert capsys.readouterr().err == f"e000: {waits}\n", "once"


# ------------------------------------------------------------------ evil coordinator
ESC = "\x1b[2J\x1b]0;owned\x07\u202egpj\x9b31m\nsecond line"
LATE = 2**62
END = RunFinished("versions", more=False)
WEIGHTS = np.arange(3, dtype=np.float32)


class Words(Script):
    """A script whose messages may have a body: (message, incarnation, body)."""

    def host(self) -> EdgeHost:
        host = super().host()
        host.build = lambda setup: side(linear_trainer(TrainingPlan(1, 2, 0.1)))
        return host

    def receive(self) -> Iterator[list[Any]]:
        if self.words:
            message, incarnation, *body = self.words.pop(0)
            header = encode(message, incarnation, self.number)
            yield [SimpleNamespace(buffer=part) for part in (header, *body)]


def sent(number: int, message: Any, at_ns: int = 5) -> list[Any]:
    """A model that is sent, and its Delivered."""
    outgoing = Outgoing(number, message)
    pieces = [(Piece(number, 0), 7, outgoing.piece(0, 1 << 20))] if outgoing.body else []
    return [(outgoing.offer(0), 7), *pieces, (Delivered(number, at_ns), 7)]


def note(message: Any, at_ns: int = 9) -> tuple[Any, int]:
    return Stamped(at_ns, encode_note(message)), 7


TASK = sent(1, Assignment(1, 0, {"weights": WEIGHTS}))
STATES: dict[str, list[Any]] = {
    "before Setup": [],
    "before Welcome": [(SETUP, 7)],
    "joined": [(SETUP, 7), (Welcome(), 7)],
    "receiving": [(SETUP, 7), (Welcome(), 7), TASK[0]],
    "training": [(SETUP, 7), (Welcome(), 7), *TASK],
}
MESSAGES: dict[str, list[Any]] = {
    "Hello": [(Hello("e000", 1, "1"), 7)],
    "Setup": [(SETUP, 7)],
    "Setup of never": [(Setup("{}", "fedavg", LATE, LATE), 7)],
    "Setup of at once": [(Setup("{}", "fedavg", 0, 0), 7)],
    "Join": [(Join("c", "l", "d", 1, [], []), 7)],
    "Welcome": [(Welcome(), 7)],
    "Refuse": [(Refuse(ESC, final=False), 7)],
    "Ping": [(Ping(LATE), 7, b"probe")],
    "Pong": [(Pong(1, 1), 7)],
    "Offer": [TASK[0]],
    "Offers": [(Outgoing(n, Assignment(n, 0, {"weights": WEIGHTS})).offer(0), 7) for n in range(9)],
    "Offer of a strange kind": [(Offer(3, ESC[:60], b"", 0, "", 0), 7)],
    "task that starts": [
        (Outgoing(2, Assignment(2, 0, {"weights": WEIGHTS})).offer(LATE, 2**40, starts=True), 7),
        (Piece(2, 0), 7, WEIGHTS.tobytes()),
    ],
    "fresh model that starts": [
        (Outgoing(2, Fresh(1, 3, {"weights": WEIGHTS})).offer(0, starts=True), 7)
    ],
    "Offer of an update": sent(3, Update(1, 0, {"weights": WEIGHTS})),
    "Offer of a bomb": [(Offer(3, "task", b"\x91" * 60_000, 0, "", 0), 7)],
    "Piece": [TASK[1]],
    "Piece without bytes": [(Piece(1, 0), 7)],
    "Piece from beyond": [(Piece(1, 2**40), 7, b"x" * 12)],
    "Credit": [(Credit(1, 0, 2**40), 7)],
    "Credit from beyond": [(Credit(1, 2**40, 2**40), 7)],
    "Arrived": [(Arrived(1, [[1, 1]]), 7)],
    "Delivered": [(Delivered(1, LATE), 7)],
    "Working": [(Working(1, 1), 7)],
    "Trained": [(Trained(1, 1, 1), 7)],
    "task": sent(2, Assignment(2, 0, {"weights": WEIGHTS})),
    "task at the end of time": sent(2, Assignment(2, 0, {"weights": WEIGHTS}), LATE),
    "task without a model": sent(2, Assignment(2, 0, {})),
    "task of another vector": sent(2, Assignment(2, 0, {"v": WEIGHTS})),
    "task without end": sent(2, Assignment(2, 0, {"weights": WEIGHTS}, {"epochs": np.inf})),
    "task of no number": sent(2, Assignment(2, 0, {"weights": WEIGHTS}, {"epochs": np.nan})),
    "fresh": sent(2, Fresh(1, 3, {"weights": WEIGHTS})),
    "fresh without a model": sent(2, Fresh(1, 3, {})),
    "note of garbage": [(Stamped(1, b"\xc1"), 7)],
    "note of a frame": [(Stamped(1, encode(Welcome(), 0, 0)), 7)],
    **{
        f"note {type(said).__name__}": [note(said), note(said, LATE)]
        for said in (
            FreshRequest(1, 0, 0),
            NothingNewer(1),
            CancelTask(1),
            UrgeTask(1),
            UrgeTask(LATE),
            TooLate(1),
            Acknowledged(1),
        )
    },
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", MESSAGES)
def test_no_message_in_any_state_is_more_than_a_line_to_an_edge(
    capsys: pytest.CaptureFixture[str], kind: str, state: str
) -> None:
    script = Words(*STATES[state], *MESSAGES[kind], (END, 7))
    assert script.host().run() == END
    lines = capsys.readouterr().err.split("\n")[:-1]
    assert all(line.startswith("e000: ") and line.isprintable() for line in lines)
    assert all(line.endswith("; a new session begins") for line in lines)


def test_a_refusal_cannot_write_on_the_terminal() -> None:
    with pytest.raises(Refused) as refused:
        Words((Refuse(ESC + "x" * 1000, final=True), 7)).host().run()
    text = str(refused.value)
    assert text.isprintable() and text.startswith(
        "\\x1b[2J\\x1b]0;owned\\x07\\u202egpj\\x9b31m sec"
    )
    assert len(text) == 500


# ------------------------------------------------------------------ several edges in one process
class Machine(Clock):
    """The machine of edges that share a process: each has its own script.

    ``at``: by the number of a wait, what happens then.
    """

    def __init__(self, **scripts: Script) -> None:
        super().__init__()
        self.scripts, self.at = scripts, dict[int, Any]()
        self.waits = 0
        self.polled: dict[Script, EdgeHost] = {}
        self.made: list[str] = []  # edges of which sockets were made
        self.process = EdgeProcess(OwnMachine(), self, again=self.host)
        for script in scripts.values():
            script.clock = self

    def host(self, name: str) -> EdgeHost:
        built = side()
        built.edge.name = name
        host = EdgeHost(name, f"tcp://192.0.2.1:{name}", None, lambda setup: built, system=self)
        self.scripts[name].edge_host = host
        return host

    def run(self) -> dict[str, Any]:
        return self.process.run([self.host(name) for name in self.scripts])

    def dealer(self, context: Any, keys: Any, address: str) -> Any:
        self.made.append(address.rpartition(":")[2])
        return self.scripts[self.made[-1]]

    def poller(self, mailbox: Any) -> Any:
        return self

    def add(self, dealer: Script, of: EdgeHost) -> None:
        self.polled[dealer] = of

    def remove(self, dealer: Script) -> None:
        self.polled.pop(dealer, None)

    def used(self, dealer: Script) -> None:
        return None

    def wait(self, timeout_s: float) -> tuple[bool, list[EdgeHost]]:
        self.waits += 1
        self.s += timeout_s
        for fault, edge in self.at.pop(self.waits, ()):
            self.process.inject(InjectFault(fault, edge))
        return True, list(self.polled.values())

    def close(self) -> None:
        return None


JOINED = [(SETUP, 7), (Welcome(), 7)]


def test_an_edge_that_is_refused_ends_alone() -> None:
    one, two = (
        Script((Refuse("its data differ", final=True), 7)),
        Script(*JOINED, (Ping(3), 7), OVER),
    )
    outcomes = Machine(e0=one, e1=two).run()
    assert isinstance(outcomes["e0"], Refused) and outcomes["e1"] == OVER[0]
    assert of(Pong, two)[-1].sent_ns == 3


def test_a_frozen_edge_is_silent_until_it_thaws_and_its_neighbour_is_not() -> None:
    pings = [(Ping(number), 7) for number in range(1, 7)]
    one, two = Script(*JOINED, *pings, OVER), Script(*JOINED, *pings, OVER)
    machine = Machine(e0=one, e1=two)
    machine.at = {4: [("freeze", "e0")], 7: [("thaw", "e0")]}
    thawed: list[int] = []
    receive = one.receive
    one.receive = lambda: thawed.append(machine.waits) or receive()  # type: ignore[func-returns-value,assignment]
    assert set(machine.run()) == {"e0", "e1"}
    assert not {4, 5, 6} & {*thawed} and {3, 8} <= {*thawed}
    assert [pong.sent_ns for pong in of(Pong, one) if pong.sent_ns] == [1, 2, 3, 4, 5, 6]
    assert machine.made == ["e0", "e1"], "no new session: the freeze was shorter than the silence"


def test_an_injected_end_takes_one_edge_and_a_restart_brings_it_back() -> None:
    one = Script(*JOINED, None, None, None, *JOINED, OVER)
    two = Script(*JOINED, *[None] * 9, OVER)
    machine = Machine(e0=one, e1=two)
    machine.at = {3: [("kill", "e0")], 6: [("restart", "e0")]}
    one.words = [*JOINED, *JOINED, OVER]
    assert set(machine.run()) == {"e0", "e1"}
    assert machine.made == ["e0", "e1", "e0"]
    assert [type(each) for each in one.said if not isinstance(each, Pong)] == [Hello, Join] * 2


def test_an_edge_that_a_fault_has_ended_has_no_outcome() -> None:
    machine = Machine(e0=Script(*JOINED), e1=Script(*JOINED, None, None, OVER))
    machine.at = {3: [("kill", "e0")]}
    assert set(machine.run()) == {"e1"}


def test_few_edges_join_at_a_time() -> None:
    count = 2 * MOST_JOINING + 5
    scripts = {f"e{number}": Script(*JOINED, *[None] * 20, OVER) for number in range(count)}
    machine = Machine(**scripts)
    begun: list[int] = []
    wait = machine.wait
    machine.wait = lambda timeout_s: begun.append(len(machine.made)) or wait(timeout_s)  # type: ignore[func-returns-value,method-assign]
    assert len(machine.run()) == count
    assert begun[0] == MOST_JOINING and begun[-1] == count


def test_an_edge_that_pauses_before_a_new_session_keeps_no_neighbour_from_its_work() -> None:
    """A coordinator that ends all sessions refuses thousands of edges at the same moment."""
    refused = Script(*JOINED, (AWAY, 7), (AWAY, 7), (AWAY, 7), *JOINED, OVER)
    other = Script(*JOINED, *[(Ping(number), 7) for number in range(1, 9)], OVER)
    machine = Machine(e0=refused, e1=other)
    machine.at = {4: [("freeze", "e0")], 5: [("thaw", "e0")]}
    assert set(machine.run()) == {"e0", "e1"} and machine.slept == []
    assert machine.made == ["e0", "e1", "e0", "e0", "e0"]
    assert [pong.sent_ns for pong in of(Pong, other) if pong.sent_ns] == [*range(1, 9)]


def test_an_edge_that_cannot_connect_again_after_a_sleep_ends_alone() -> None:
    machine = Machine(e0=Script(*JOINED, None, None), e1=Script(*JOINED, *JOINED, OVER))
    dealer, wait = machine.dealer, machine.wait

    def fails(context: Any, keys: Any, address: str) -> Any:
        if machine.asleep_s and address.endswith("e0"):
            raise UserError("no more sockets")
        return dealer(context, keys, address)

    def sleeps(timeout_s: float) -> tuple[bool, list[EdgeHost]]:
        found = wait(timeout_s)
        machine.asleep_s += 600.0 if machine.waits == 3 else 0.0
        return found

    machine.dealer, machine.wait = fails, sleeps  # type: ignore[method-assign]
    outcomes = machine.run()
    assert isinstance(outcomes["e0"], UserError) and outcomes["e1"] == OVER[0]
