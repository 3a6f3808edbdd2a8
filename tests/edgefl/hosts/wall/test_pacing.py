"""The pacing thread on its own: what a late wake must not change, and who is said to be missing."""

from __future__ import annotations

import math
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from edgefl.hosts.ipc import Channel
from edgefl.hosts.wall.coordinator.evaluator import Evaluator, serve
from edgefl.hosts.wall.coordinator.pacing import Pacing
from edgefl.hosts.wall.coordinator.thread_messages import Evaluated, Heard, Rang, WakeAt
from edgefl.hosts.wall.mailbox import Mailbox
from edgefl.jobs import Evaluate
from edgefl.protocol.messages import Ready
from emulator.agenda import Agenda


class Completions:
    """Stands in for transport, pacer and network at once: completions at given moments."""

    def __init__(self, told: list[Any], *moments: int) -> None:
        self.told, self.agenda = told, Agenda()
        self.pacer = self.network = self
        for at in moments:
            self.agenda.add(at, f"completion {at}")

    def next_due(self) -> int:
        return self.agenda.next_due()

    def release(self, now: int) -> None:
        self.told.append("pieces")

    def complete(self, now: int) -> None:
        self.told += [item for _, item in self.agenda.pop_due(now)]


def test_a_late_wake_tells_completions_and_alarms_in_the_order_of_their_moments() -> None:
    told: list[Any] = []
    pacing = Pacing(None, None, None, Mailbox(), told.append, 1.0, False)
    pacing.transport = Completions(told, 10, 30, 40)
    for at in (20, 30, 99):
        pacing.said.put(WakeAt(at))
    pacing._obey(True)
    pacing._move(50)
    assert told == ["pieces", "completion 10", Rang(20), "completion 30", Rang(30), "completion 40"]


def test_alarms_ring_behind_everything_else_of_their_moment() -> None:
    """Whoever set the alarm decides with all that has come by then, in whatever order it was put
    down, and with what follows from it at once.
    """
    told: list[Any] = []
    pacing = Pacing(None, None, None, Mailbox(), told.append, 1.0, False)
    pacing.transport = Completions(told, 20)
    pacing.said.put(WakeAt(20))
    pacing._obey(True)
    pacing.agenda.add(20, ("a", Ready(1)))
    pacing.agenda.add(20, lambda at: pacing.agenda.add(at, ("b", Ready(2))))
    pacing._move(20)
    heard = [Heard(20, "a", Ready(1)), Heard(20, "b", Ready(2))]
    assert told == ["pieces", "completion 20", *heard, Rang(20)]


@pytest.mark.parametrize("scores", [(None, 0.5, 0.25), (math.nan, math.inf, 0.1)])
def test_a_diverged_model_has_scores_that_are_no_numbers(
    tmp_path: Path, scores: tuple[float | None, float, float]
) -> None:
    ours, theirs = Channel.pair()
    told: list[Any] = []
    server = Thread(target=serve, args=(theirs, lambda job: scores))
    server.start()
    evaluator = Evaluator(ours, tmp_path)
    heard = Mailbox()
    evaluator.listen(lambda item: (told.append(item), heard.put(item)))
    evaluator.submit(Evaluate(3, 7, np.ones(4, np.float32), 0, 0))
    for _ in range(500):
        if told:
            break
        server.join(0.01)
    (item,) = told
    assert isinstance(item, Evaluated) and item.version == 3
    np.testing.assert_equal(np.array(item.result, dtype=float), np.array(scores, dtype=float))
    assert list(tmp_path.iterdir()) == []  # the snapshot is gone
    ours.end.shutdown(2)
    server.join(5)
