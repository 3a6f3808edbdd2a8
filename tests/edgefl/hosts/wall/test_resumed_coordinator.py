"""What an edge keeps when its coordinator ends and a resumed one answers: same run, new process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edge_hosts import SETUP, Script, side
from processes import EchoRun, EchoTrainer

from edgefl.hosts.wall.edge.host import EdgeHost
from edgefl.protocol.codec import encode_note
from edgefl.protocol.errors import Unreachable
from edgefl.protocol.messages import (
    Acknowledged,
    Arrived,
    Assignment,
    CancelTask,
    Delivered,
    FreshRequest,
    Join,
    Offer,
    Piece,
    Pong,
    Refuse,
    RunFinished,
    Stamped,
    TaskFailed,
    Update,
    Welcome,
    Working,
)
from edgefl.protocol.transfers import Outgoing

OLD, NEW = 7, 8  # incarnations
GONE = [(Refuse("this session has ended", False), NEW), (SETUP, NEW), (Welcome(), NEW)]
AGAIN = [(Refuse("ended", False), NEW), (SETUP, NEW), (Welcome(), NEW)]
OVER = (RunFinished("versions", False), NEW)
MODEL = Outgoing(5, Assignment(4, 2, {"weights": np.arange(3, dtype=np.float32)}))


def talked(*words: Any, host: EdgeHost | None = None, script: Script | None = None) -> Script:
    """Greet and join, then these words of the coordinators, then the end."""
    script = script or Script()
    script.words = [(SETUP, OLD), (Welcome(), OLD), *words, OVER]
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


def test_a_whole_download_whose_delivery_was_lost_is_delivered_by_the_resumed_one() -> None:
    words = [(MODEL.offer(0), OLD), piece(0, 12, OLD), *GONE, (Delivered(5, 20), NEW)]
    script = talked(*words, None, None)
    assert of(Join, script)[1].held == [[5, 12]] and len(of(Arrived, script)) == 1
    assert of(Working, script)[0].task == 4


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


def test_an_update_is_offered_again_until_the_resumed_one_has_it() -> None:
    script, host = with_an_update()
    acknowledged = (Stamped(40, encode_note(Acknowledged(4))), NEW)
    talked(*GONE, acknowledged, *AGAIN, host=host, script=script)
    first, second = of(Offer, script)
    assert first == second and (first.transfer, first.due_ns) == (1, 30)
    assert [join.tasks for join in of(Join, script)] == [[4], [4], []]


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


@pytest.mark.parametrize("patience_s", [90.0, 600.0])
def test_it_waits_as_long_as_it_is_told_and_says_so(
    patience_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script((SETUP, OLD), (Welcome(), OLD))
    host = script.host()
    with pytest.raises(Unreachable, match=f"no answer for {patience_s:g} s: the coordinator has"):
        host.run(60.0, patience_s)
    assert patience_s < script.clock.s - 1000 < patience_s + 10
    waits = (
        f"the coordinator does not answer; waiting for {patience_s:g} s at most, it may be resumed"
    )
    assert capsys.readouterr().err == f"e000: {waits}\n", "once"


def test_what_it_gives_up_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script()
    host = script.host()
    host.build = lambda setup: side(Endless())
    script.words = [(SETUP, OLD), (Welcome(), OLD), (MODEL.offer(0), OLD), piece(0, 12, OLD)]
    script.words += [(Delivered(5, 20), OLD)]
    with pytest.raises(Unreachable):
        host.run()
    line = "e000: this edge leaves the run: the training under way dropped"
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert not of(Pong, script)[0].sent_ns
