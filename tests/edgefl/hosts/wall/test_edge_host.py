"""The edge's process without a network: scripted messages of a coordinator, and a clock that only
waiting moves.

One test sends an update that is really too large.
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from edge_hosts import NS_PER_S, SETUP, Clock, Script, side
from processes import Coordinator, EchoRun, EchoTrainer, happened, wait_for

from edgefl.edges.edge import Edge
from edgefl.hosts.wall.edge.host import EdgeHost
from edgefl.hosts.wall.edge.worker import OwnMachine, TrainingThread, TrainOrder
from edgefl.hosts.wall.keys import EdgeKeys
from edgefl.hosts.wall.mailbox import Mailbox
from edgefl.jobs import Train
from edgefl.protocol.errors import Unreachable
from edgefl.protocol.messages import (
    Assignment,
    Hello,
    Join,
    Ping,
    Pong,
    Refuse,
    RunFinished,
    Setup,
    Trained,
    Welcome,
)
from edgefl.strategies.base.strategy import LocalRule
from emulator.compute import Native

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
@pytest.mark.parametrize(("turn", "own"), [([None, None], 5), ([(Ping(5), 7), None], 1)])
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


def test_keys_are_only_spoken_of_where_there_are_some() -> None:
    host = Script().host()
    host.keys = EdgeKeys(b"", b"", b"")
    with pytest.raises(Unreachable, match="listen there, and is coordinator.key its key?"):
        host.run()


@pytest.mark.parametrize(("hung_up", "said"), [(2, 0), (3, 1)])
def test_connections_that_are_dropped_again_and_again_are_told_once(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hung_up: int,
    said: int,
) -> None:
    script = Script()
    script.hung_up = hung_up
    with pytest.raises(Unreachable, match="no answer for 60 s"):
        script.host().run()
    assert (
        capsys.readouterr().err.count(
            "e000: tcp://192.0.2.1:1 accepts connections and closes them: is it the coordinator?"
        )
        == said
    )


def test_the_coordinator_says_how_often_and_how_long() -> None:
    script = Script(
        (Setup("{}", "fedavg", 10 * NS_PER_S, 40 * NS_PER_S), 7),
        (Welcome(), 7),
        *[None] * 18,
        (RunFinished("versions", False), 7),
    )
    script.host().run()
    assert script.waits[:2] == [0.25, 5.0] and set(script.waits[1:]) == {5.0}
    assert sum(isinstance(message, Hello) for message in script.said) == 3, (
        "90 s of silence: two new sessions"
    )
    script = Script((SETUP, 7), (Welcome(), 7), *[None] * 19, (RunFinished("versions", False), 7))
    script.host().run()
    assert (
        set(script.waits) == {0.25}
        and sum(isinstance(message, Hello) for message in script.said) == 1
    )


def test_refused_for_ever_it_asks_ever_more_slowly_but_not_beyond_two_seconds() -> None:
    script = Script(*[(AWAY, 7)] * 1100, (SETUP, 7), (RunFinished("versions", False), 7))
    assert script.host().run().reason == "versions"
    assert (
        script.clock.slept[:8] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
        and len(script.clock.slept) == 1100
    )


# ------------------------------------------------------------------ sleep and pauses
class Pausing(Script):
    """In its wait number ``at``, the machine sleeps or its process is stopped."""

    at, slept_s, stopped_s = 0, 0.0, 0.0

    def wait(self, other_fd: int, timeout_s: float) -> None:
        super().wait(other_fd, timeout_s)
        if len(self.waits) == self.at:
            self.clock.asleep_s += self.slept_s
            self.clock.s += self.stopped_s


OVER = (RunFinished("versions", False), 7)


@pytest.mark.parametrize("slept_s", [0.5, 2.0, 7200.0])
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

    edge, results = Edge("e000", Slow(), LocalRule(None), Native()), Mailbox()
    edge.rule.work = 1.5
    task = Assignment(4, 0, {"weights": np.zeros(3, np.float32)})
    edge.run = EchoRun(task.vectors["weights"], task=task)
    worker = TrainingThread(edge, Busy(), 2.0, results, clock)
    worker.orders.put(TrainOrder(Train(edge.run, 3), 5 * NS_PER_S, None))
    worker.orders.put(None)
    worker.run()
    (result,) = results.take()
    # three slices of half a second, at double speed
    assert result.at_ns == 5 * NS_PER_S + 3 * NS_PER_S
    assert result.trained == Trained(4, 45, 3 * NS_PER_S // 2)  # 30 samples that cost 1.5 each


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


def test_an_edge_that_has_run_is_freed_without_the_collector() -> None:
    """An edge that joins run after run would keep descriptors and a model of each one."""
    script = Script((SETUP, 7), (Welcome(), 7), (RunFinished("versions", False), 7))
    host = script.host()
    host.run()
    freed = weakref.ref(host)
    gc.disable()
    try:
        del host, script.edge_host, script.work
        assert freed() is None
    finally:
        gc.enable()
