"""Headers that travel together: in their order, and as strictly checked as each by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edge_hosts import Script
from session_story import RUN, Story, refusal, told

from edgefl.hosts.wall.coordinator.bundles import Bundles
from edgefl.hosts.wall.coordinator.session import Passed, SessionEnded
from edgefl.hosts.wall.coordinator.sessions import Sessions
from edgefl.protocol.codec import MOST_BUNDLED, bundle, decode, encode, unbundled
from edgefl.protocol.messages import (
    MAX_NOTE,
    Acknowledged,
    Arrived,
    Piece,
    Ping,
    Stamped,
    Trained,
    Welcome,
)

PEER, OTHER = b"peer", b"other"


class Sent:
    """Replaces the socket. ``messages``: (peer, what each message says, body)."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, list[Any], Any]] = []

    def send(self, routing: bytes, header: bytes, body: Any = None) -> bool:
        said = [decode(each)[0] for each in unbundled(memoryview(header))]
        self.messages.append((routing, said, body))
        return True


def bundles() -> tuple[Bundles, Sent]:
    sent, sessions = Sent(), Sessions.__new__(Sessions)
    sessions.incarnation = RUN
    return Bundles(sent, sessions), sent


# ------------------------------------------------------------------ the coordinator sends
def test_what_waits_goes_with_the_next_message_to_the_same_peer() -> None:
    made, sent = bundles()
    made.send(PEER, 1, Acknowledged(1), waits=True)
    made.send(OTHER, 2, Ping(5))
    made.send(PEER, 1, Piece(3, 0), b"body")
    made.flush()
    assert sent.messages == [
        (OTHER, [Ping(5)], None),
        (PEER, [Acknowledged(1), Piece(3, 0)], b"body"),
    ]


def test_what_waits_alone_leaves_at_the_end_of_the_turn() -> None:
    made, sent = bundles()
    made.send(PEER, 1, Acknowledged(1), waits=True)
    made.send(PEER, 1, Acknowledged(2), waits=True)
    made.send(OTHER, 1, Acknowledged(3), waits=True)
    assert sent.messages == []
    made.flush()
    made.flush()
    assert sent.messages == [
        (PEER, [Acknowledged(1), Acknowledged(2)], None),
        (OTHER, [Acknowledged(3)], None),
    ]


def test_no_message_has_more_headers_than_a_receiver_takes() -> None:
    made, sent = bundles()
    for task in range(MOST_BUNDLED + 1):
        made.send(PEER, 1, Acknowledged(task), waits=True)
    made.flush()
    assert [len(said) for _, said, _ in sent.messages] == [MOST_BUNDLED, 1]


def test_a_long_header_travels_alone_behind_what_waits() -> None:
    made, sent = bundles()
    long = Stamped(1, bytes(MAX_NOTE))
    made.send(PEER, 1, Acknowledged(1), waits=True)
    made.send(PEER, 1, long)
    made.send(PEER, 1, long, waits=True)
    made.flush()
    said = [Acknowledged(1)], [long], [long]
    assert [each for _, each, _ in sent.messages] == list(said)


# ------------------------------------------------------------------ the coordinator receives
def joined() -> Story:
    story = Story()
    story.joins("ab")
    return story


def together(*messages: Any) -> bytes:
    return bundle([encode(message, RUN, 2) for message in messages])


def test_headers_of_a_frame_are_handled_in_order_and_the_last_has_the_body() -> None:
    story = joined()
    session = story.sessions.by_edge["pi-1"]
    arrived, piece = Arrived(1, [[0, 1]]), Piece(3, 0)
    outcomes = story.raw("ab", together(arrived, piece), b"body")
    assert outcomes == [Passed(session, arrived, None), Passed(session, piece, b"body")]


def test_a_malformed_bundle_ends_its_session() -> None:
    story = joined()
    outcomes = story.raw("ab", b"\xc1\x00\x09abc")
    assert "malformed" in refusal(outcomes).reason
    assert isinstance(outcomes[-1], SessionEnded) and story.count("wire error", "pi-1") == 1


def test_a_malformed_header_ends_the_session_for_those_behind_it() -> None:
    story = joined()
    good = encode(Trained(1, 1, 1), RUN, 2)
    outcomes = story.raw("ab", bundle([good, b"\x93\x0c", good]))
    assert isinstance(outcomes[0], Passed) and not any(
        isinstance(each, Passed) for each in outcomes[1:]
    )
    assert story.count("wire error", "pi-1") == 1 and "pi-1" not in story.sessions.by_edge


def test_too_many_headers_are_quarantined() -> None:
    story = joined()
    header = encode(Trained(1, 1, 1), RUN, 2)
    frame = b"\xc1" + (len(header).to_bytes(2, "big") + header) * (MOST_BUNDLED + 1)
    assert "quarantined" in refusal(story.raw("ab", frame)).reason
    assert "pi-1" in story.sessions.quarantined.edges


def test_bundles_of_an_unknown_peer_are_counted_as_its_frames() -> None:
    story = Story()
    assert story.raw("xyz", together(Trained(1, 1, 1), Trained(1, 1, 1))) == [
        told("xyz", refusal_of_a_stale_frame(), number=2)
    ]
    assert story.count("stale frame") == 2


def refusal_of_a_stale_frame() -> Any:
    return refusal(Story().raw("q", encode(Welcome(), RUN, 1)))


# ------------------------------------------------------------------ an edge
def test_an_edge_sends_the_messages_of_a_turn_together_and_pieces_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script()
    host = script.host()
    messages: list[tuple[list[Any], Any]] = []

    def send(header: bytes, body: Any = None) -> bool:
        messages.append(([decode(each)[0] for each in unbundled(memoryview(header))], body))
        return True

    monkeypatch.setattr(script, "send", send)
    host._connect()
    assert len(messages) == 1 and messages.pop()[1] is None  # the Hello does not wait
    body = np.zeros(4, np.uint8).data
    host._send(Arrived(1, [[0, 1]]))
    host._send(Trained(2, 1, 1))
    assert messages == []
    host._send(Piece(3, 0), body)
    host._send(Trained(4, 1, 1))
    host._send_held()
    host._send_held()
    assert messages == [
        ([Arrived(1, [[0, 1]]), Trained(2, 1, 1)], None),
        ([Piece(3, 0)], body),
        ([Trained(4, 1, 1)], None),
    ]
