"""Messages between processes: what the codec carries, and what it refuses."""

from __future__ import annotations

import fcntl
import math
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from edgefl.clocks import ipc
from edgefl.clocks.ctrl_c import ctrl_c_held_back
from edgefl.clocks.ipc import BadMessage, Channel, decode, encode
from edgefl.clocks.process_messages import (
    DoJob,
    FleetReady,
    ForkEdges,
    JobFinished,
    Listening,
    RunEnded,
    SnapshotScores,
    StartRun,
    StopRun,
)

RUN, SCRATCH = Path("runs/a"), Path("scratch")
START = StartRun("{}", 1, RUN, None, SCRATCH, "d", None, True, ("slow",), False, False, "")


@pytest.mark.parametrize(
    "sent",
    [
        START,
        ForkEdges(("e000", "e001"), "tcp://127.0.0.1:1", 0),
        FleetReady("d", None, 2, {"e000": 10}, "", ()),
        FleetReady("d", 3.0, 2, {}, "too slow", ("vectorised",)),
        RunEnded({"versions": 3, "wire": {"refused": 1}, "accuracy": None}),
        SnapshotScores(3, "a.f32", (None, "nan", "0.5")),
        DoJob("7-1", 1 << 60, "job", ["module", "Job", {"weights": {"array in file": [0]}}]),
        JobFinished("7-1", "job.done", [{}, {"loss": None}], 0.25),
    ],
)
def test_a_message_arrives_as_it_was_sent(sent: Any) -> None:
    ours, theirs = Channel.pair()
    ours.send(sent)
    assert theirs.receive() == sent


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("this system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_message_arrives_on_a_descriptor_above_1023() -> None:
    """The warm parent of a large fleet has more, and a channel for each process."""
    ours, theirs = Channel.pair()
    above = Channel.inherited(fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, 1024))
    assert above.receive(timeout_s=0) is None
    ours.send(Listening(80))
    assert above.receive() == Listening(80)
    above.close()


FLEET = {"kind": "fleet_ready", "data_digest": "", "samples_per_s": None, "cores": 1}


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"kind": "stop_everything", "reason": "x"}, "'stop_everything' - at `\\$.kind`"),
        ({"reason": "x"}, "missing required field `kind`"),
        ({"kind": ["stop_run"], "reason": "x"}, "Expected `str`"),
        (["stop_run", "x"], "Expected `object`, got `array`"),
        ({"kind": "stop_run"}, "missing required field `reason`"),
        ({**FLEET, "samples": {}}, "missing required field `not_measured`"),
        ({"kind": "stop_run", "reason": "x", "more": 1}, "unknown field `more`"),
        ({"kind": "stop_run", "reason": 3}, "Expected `str`, got `int` - at `\\$.reason`"),
        ({"kind": "listening", "port": True}, "Expected `int`, got `bool`"),
        ({"kind": "listening", "port": 80.5}, "Expected `int`, got `float`"),
        ({"kind": "listening", "port": 1 << 63}, "Expected `int` <= 9223372036854775807"),
        ({"kind": "fork_edges", "edges": "e000", "address": "", "index": 0}, "Expected `array`"),
        ({"kind": "fork_edges", "edges": ["a", 1], "address": "", "index": 0}, "got `int`"),
        ({"kind": "run_ended", "summary": []}, "Expected `object`, got `array`"),
        ({**FLEET, "samples": {"a": 1}, "samples_per_s": ""}, "Expected `float | null`, got `str`"),
        ({**FLEET, "samples": {"a": 1.5}}, "Expected `int`, got `float`"),
    ],
)
def test_what_is_no_message_is_refused(row: Any, fault: str) -> None:
    with pytest.raises(BadMessage, match=fault):
        decode(orjson.dumps(row))


def test_what_json_cannot_hold_is_refused_where_it_is_sent() -> None:
    with pytest.raises(TypeError, match="complex"):
        encode(RunEnded({"z": 1j}))
    assert decode(encode(RunEnded({"loss": math.nan}))).summary == {"loss": None}


def test_a_closed_channel_raises_eof_error_after_what_was_sent() -> None:
    ours, theirs = Channel.pair()
    assert theirs.receive(timeout_s=0) is None
    ours.send(Listening(80))
    ours.close()
    assert theirs.receive() == Listening(80)
    with pytest.raises(EOFError):
        theirs.receive(timeout_s=0)
    with pytest.raises(BrokenPipeError):
        theirs.send(Listening(80))


def test_a_message_that_a_ctrl_c_interrupts_is_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = Channel.pair()
    ours.send(Listening(80))
    ours.send(Listening(81))

    def pressed(data: bytes) -> Any:
        signal.raise_signal(signal.SIGINT)
        return decode(data)

    with monkeypatch.context() as patch:
        patch.setattr(ipc, "decode", pressed)
        with pytest.raises(KeyboardInterrupt):
            theirs.receive()
    assert [theirs.receive(), theirs.receive()] == [Listening(80), Listening(81)]


def test_serve_answers_until_the_other_side_is_gone() -> None:
    ours, theirs = Channel.pair()
    for port in (1, 2, 3):
        ours.send(Listening(port))
    ours.end.shutdown(1)
    theirs.serve(lambda order: StopRun(f"port {order.port}") if order.port != 2 else None)
    assert [ours.receive(), ours.receive()] == [StopRun("port 1"), StopRun("port 3")]


def test_a_second_ctrl_c_that_was_held_back_counts_as_one() -> None:
    """The first one may ask for an end in order, the second one for an end at once."""
    pressed: list[int] = []
    former = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        with ctrl_c_held_back():
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
            assert pressed == []
        assert pressed == [signal.SIGINT] * 2
    finally:
        signal.signal(signal.SIGINT, former)
