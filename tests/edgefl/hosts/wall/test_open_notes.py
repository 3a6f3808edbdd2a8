"""What an edge repeats in a new session about open work."""

from __future__ import annotations

import numpy as np
from edge_hosts import side

from edgefl.edges.edge import Edge
from edgefl.hosts.wall.edge.open_notes import MOST_TRAINED, OpenNotes
from edgefl.protocol.codec import encode_note
from edgefl.protocol.messages import (
    Assignment,
    FreshRequest,
    Stamped,
    TaskFailed,
    Trained,
    Working,
)


def busy() -> Edge:
    """An edge that trains for task 3."""
    edge = side().edge
    edge.receive(Assignment(3, 0, {"weights": np.zeros(3, np.float32)}), 0)
    return edge


def test_the_training_under_way_is_repeated_until_it_ends() -> None:
    edge = busy()
    notes = OpenNotes(working=Working(3, 50))
    assert list(notes.repeated(edge)) == [Working(3, 50)] == list(notes.repeated(edge))
    notes.working = Working(2, 50)  # of the task before
    assert list(notes.repeated(edge)) == []
    assert list(OpenNotes(working=Working(3, 50)).repeated(side().edge)) == []


def test_measured_trainings_without_a_session_are_repeated_once_and_bounded() -> None:
    edge, notes = side().edge, OpenNotes()
    for number in range(MOST_TRAINED + 2):
        notes.trained.append(Trained(number, 10, 5))
    assert [each.task for each in notes.repeated(edge)] == list(range(2, MOST_TRAINED + 2))
    assert list(notes.repeated(edge)) == []


def test_a_request_is_repeated_only_while_it_is_open_and_failures_until_they_are_known() -> None:
    edge = busy()
    asked = Stamped(5, encode_note(FreshRequest(3, 0, 2, 9)))
    assert list(OpenNotes(asked=asked).repeated(edge)) == []
    notes = OpenNotes()
    for number in (4, 5):
        failed = TaskFailed(number, "reason", "trace")
        edge.failed[number] = failed
        notes.add_failed(number, Stamped(number, encode_note(failed)), edge)
    del edge.failed[4]
    assert list(notes.repeated(edge)) == [notes.failed[5]]
    edge.failed[6] = TaskFailed(6, "reason", "trace")
    notes.add_failed(6, Stamped(6, b""), edge)
    assert list(notes.failed) == [5, 6]
