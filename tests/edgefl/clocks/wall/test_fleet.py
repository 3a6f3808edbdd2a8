"""The warm parent: which edges train when, and the trial training that measures this host."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from builders import experiment
from hypothesis import given
from hypothesis import strategies as st
from processes import PATIENCE_S

from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import ForkEdges, ProcessExited
from edgefl.clocks.processes import answer_of_fork, group_name
from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.wall import fleet
from edgefl.clocks.wall.fleet import SILENCE_S, EdgeGroup, Turnstile, Warm, calibrate
from edgefl.commands.check import last_batches_of_one


def test_the_earliest_deadline_goes_first_and_the_others_wait() -> None:
    turns = Turnstile(1)
    for edge, due in (("late", 300), ("early", 100), ("middle", 200)):
        turns.want(edge, due)
    assert turns.grants(0.0) == ["early"]
    assert turns.grants(0.1) == []
    turns.done("early")
    assert turns.grants(0.1) == ["middle"]
    turns.done("middle")
    assert turns.grants(0.2) == ["late"]


def test_a_frozen_edge_neither_holds_a_turn_nor_gets_one() -> None:
    turns = Turnstile(1)
    turns.want("a", 1)
    assert turns.grants(0.0) == ["a"]
    turns.freeze("a")
    turns.want("a", 2)
    turns.want("b", 3)
    assert turns.grants(0.1) == ["b"]
    turns.done("b")
    assert turns.grants(0.2) == []
    turns.thaw("a")
    assert turns.grants(0.3) == ["a"]


def test_a_silent_holder_is_passed_over() -> None:
    turns = Turnstile(1)
    turns.want("frozen", 1)
    turns.want("next", 2)
    assert turns.grants(0.0) == ["frozen"]
    assert turns.grants(SILENCE_S) == []
    assert turns.grants(SILENCE_S + 0.001) == ["next"]
    turns.done("frozen")  # it continues and gives back a turn that it no longer has
    assert turns.grants(SILENCE_S + 0.002) == []


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=60), st.integers(1, 3))
def test_never_more_holders_than_turns_and_nobody_is_forgotten(
    script: list[tuple[int, bool]], size: int
) -> None:
    turns, holding, served = Turnstile(size), [], 0
    for number, (due, give_back) in enumerate(script):
        turns.want(f"e{number}", due)
        if give_back and holding:
            turns.done(holding.pop(0))
        granted = turns.grants(0.0)
        holding += granted
        served += len(granted)
        assert len(holding) <= size
    while holding:
        turns.done(holding.pop())
        granted = turns.grants(0.0)
        holding += granted
        served += len(granted)
    assert served == len(script)


# ------------------------------------------------------------------ calibration
SPLIT = """
import numpy as np
from edgefl.api import Section
class Options(Section):
    sizes: list[int]
def split(labels, edges, options, rng):
    order = rng.permutation(len(labels))
    ends = np.cumsum(options.sizes)
    return [order[end - size:end] for end, size in zip(ends, options.sizes)]
"""
MODEL = """
from torch import nn
def build(options, shape, classes):
    pixels = shape[0] * shape[1] * shape[2]
    return nn.Sequential(
        nn.Flatten(), nn.Linear(pixels, 8), nn.BatchNorm1d(8), nn.Linear(8, classes)
    )
"""
ONE = "batch of 1 sample: ValueError: Expected more than 1 value per channel"


def learned(folder: Path, sizes: list[int], **sections: Any) -> Learning:
    """Edges a, b and c with so many samples, and a model with BatchNorm, in batches of 32."""
    (folder / "own.py").write_text(MODEL)
    (folder / "split.py").write_text(SPLIT)
    given = experiment(
        **{
            "data": {"name": "digits"},
            "model": {"name": "own.py:build"},
            "partition": {"name": "split.py:split", "sizes": sizes},
        }
        | sections
    )
    return learning(given, folder)


def test_another_edge_is_tried_if_training_fails_on_the_first(tmp_path: Path) -> None:
    rate, reason = calibrate(learned(tmp_path, [33, 33, 64]))
    assert rate is not None and rate > 0 and reason == ""


def test_the_reason_is_told_if_training_fails_on_every_edge(tmp_path: Path) -> None:
    rate, reason = calibrate(learned(tmp_path, [33, 65, 1]))
    assert rate is None
    assert reason.startswith("a trial training failed on 3 edges of 3, on a: step 2 of 2, " + ONE)


@pytest.mark.parametrize(
    ("sizes", "training", "lines"),
    [
        ([33, 64, 65], {}, [("2 edges (a, c) have a last batch of one sample", "drop_last=true")]),
        ([33, 64, 65], {"drop_last": True}, []),
        ([33, 64, 66], {"batches_per_epoch": 1}, []),  # no task comes to the last batch
        ([1, 64, 66], {"drop_last": True}, [("1 edge (a) has one sample", "two or more")]),
    ],
)
def test_edges_with_a_last_batch_of_one_sample_are_named(
    sizes: list[int], training: dict[str, Any], lines: list[tuple[str, str]], tmp_path: Path
) -> None:
    found = last_batches_of_one(learned(tmp_path, sizes, training=training))
    assert len(found) == len(lines)
    for line, parts in zip(found, lines):
        assert ONE in line and all(part in line for part in parts)


@pytest.mark.parametrize(("drop", "failed"), [(True, set()), (False, {"a"})])
def test_a_run_that_leaves_them_out_uses_every_edge(
    drop: bool, failed: set[str], tmp_path: Path
) -> None:
    sections = {"training": {"drop_last": drop}, "stop": {"versions": 4}}
    found = run_virtual(learned(tmp_path, [33, 64, 66], **sections), 0, tmp_path / "run")
    assert set(found.get("training_failed", ())) == failed == set(found.get("edges_unused", ()))
    if failed:
        (line,) = [line for line in found["warnings"] if "contributed nothing" in line]
        assert line.startswith("1 edge (a) contributed nothing: ")
        assert line.endswith("had no use, mostly because of: training failed")


# ------------------------------------------------------------------ processes of edges
def warm_parent(control: Channel) -> Warm:
    """One without data: it can fork, and hears of the end of its children."""
    given: Any = SimpleNamespace(experiment=experiment(edges={"names": ["a", "b"]}))
    return Warm(control, Channel.pair()[0], None, given, "")


@pytest.mark.processes
def test_the_last_words_of_a_process_are_heard_after_its_end() -> None:
    """Its edges were refused: the launcher must not wait for them."""

    def heard() -> str:
        (ours, control), (orders, theirs), told = Channel.pair(), Channel.pair(), list[str]()
        warm = warm_parent(control)

        def refused() -> None:
            for edge in ("a", "b"):
                theirs.send(ProcessExited(f"edge {edge}", 1, (edge,)))

        def listen() -> None:
            try:
                told.extend(ours.receive(PATIENCE_S).name for _ in range(2))
            finally:
                ours.close()

        name = group_name(("a", "b"))
        warm.fork(name, refused, 0, keep=(theirs.fileno(),))
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        warm.groups[name] = EdgeGroup(name, {"a", "b"}, ("a", "b"), 0, orders)
        Thread(target=listen).start()
        warm.run()
        return " ".join(told)

    assert answer_of_fork("warm parent", heard) == ("edge a edge b", 0)


def test_a_process_that_the_system_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(name: str, work: Any) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(fleet, "fork", refuses)
    ours, control = Channel.pair()
    thread = Thread(target=warm_parent(control).run)
    thread.start()
    ours.send(ForkEdges(("a", "b"), "tcp://127.0.0.1:9", 0))
    answer = ours.receive(PATIENCE_S)
    ours.close()
    thread.join(PATIENCE_S)
    assert answer.reason.startswith(
        "a process of this run cannot be started: Resource temporarily unavailable: expected fewer"
    )
