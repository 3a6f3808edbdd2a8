"""Which edges may join, which refusals they get, and how sessions end or recover; headers that
travel together.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace
from session_story import EXPECTED, HELLO, JOIN, RUN, SETUP, S, Story, refusal, told

from edgefl.clocks.wall.coordinator.pacing import Bundles
from edgefl.clocks.wall.coordinator.sessions import (
    AT_ONCE,
    MOST_FAULTS,
    MOST_RECORDS,
    MOST_TEXT,
    RECENT_PINGS,
    UNKNOWN_RTT,
    WHOLE_RUN,
    Answered,
    Entered,
    Passed,
    Reply,
    Session,
    SessionEnded,
    Sessions,
)
from edgefl.protocol.codec import MOST_BUNDLED, bundle, decode, encode, unbundled
from edgefl.protocol.messages import (
    PROTOCOL,
    Acknowledged,
    Hello,
    Join,
    Piece,
    Ping,
    Pong,
    Refuse,
    Trained,
    Welcome,
)


# ------------------------------------------------------------------ coming in
def test_an_edge_says_hello_is_set_up_joins_and_is_welcome() -> None:
    story = Story()
    assert story.says("a", HELLO, incarnation=0) == [told("a", SETUP)]
    assert not story.sessions.by_edge
    welcome, entered = story.says("a", replace(JOIN, tasks=[3], held=[[8, 500]]))
    assert welcome == told("a", Welcome())
    assert isinstance(entered, Entered) and (
        entered.session.edge,
        entered.join.tasks,
        entered.join.held,
    ) == ("pi-1", [3], [[8, 500]])
    assert story.sessions.by_edge == {"pi-1": entered.session}
    (passed,) = story.says("a", Piece(5, 0), body=b"abc")
    assert isinstance(passed, Passed) and (passed.session, passed.message, passed.body) == (
        entered.session,
        Piece(5, 0),
        b"abc",
    )


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (
            replace(HELLO, protocol=PROTOCOL + 1),
            f"protocol version: the coordinator uses {PROTOCOL}, this edge {PROTOCOL + 1}",
        ),
        (replace(HELLO, package="1.1"), "edgefl version: the coordinator runs 1.0, this edge 1.1"),
        (
            replace(HELLO, edge="pi-3"),
            "edge id: 'pi-3' is not one of this experiment's edges (edges.count, edges.names)",
        ),
    ],
)
def test_a_hello_that_does_not_fit_is_refused_for_good(hello: Hello, reason: str) -> None:
    story = Story()
    assert refusal(story.says("a", hello, incarnation=0)) == Refuse(reason, final=True)
    assert not story.sessions.by_routing
    assert sum(story.sessions.counts.values()) == 1


@pytest.mark.parametrize(
    ("join", "reason"),
    [
        (replace(JOIN, config="x"), "config differs from"),
        (replace(JOIN, config="x", data="y"), "config and data differ from"),
    ],
)
def test_a_join_that_does_not_fit_says_what_differs(join: Join, reason: str) -> None:
    story = Story()
    story.says("a", HELLO, incarnation=0)
    refused = refusal(story.says("a", join))
    assert refused.final and refused.reason == f"{reason} the coordinator's"
    assert not story.sessions.by_routing
    # without keys any peer can claim to be pi-1: the count is not the edge's
    assert story.count("refused") == 1 and not story.count("refused", "pi-1")
    assert story.sessions.faults == [("refused", WHOLE_RUN, f"as edge 'pi-1': {refused.reason}")]


def test_an_edge_without_samples_is_refused() -> None:
    """FedDyn divides by an edge's samples, and other strategies may."""
    story = Story()
    story.says("a", HELLO, incarnation=0)
    refused = refusal(story.says("a", replace(JOIN, samples=0)))
    assert refused == Refuse("it joins with 0 samples, expected at least 1", final=True)
    assert not story.sessions.by_routing and not story.sessions.by_edge


def test_an_edge_with_other_frozen_weights_is_told_what_to_compare() -> None:
    story = Story(frozen_digest="f")
    story.says("a", HELLO, incarnation=0)
    refused = refusal(story.says("a", replace(JOIN, frozen="g")))
    assert refused.final and refused.reason == (
        "frozen part of the model differs from the coordinator's: expected the same files in"
        " model.path on both machines"
    )
    assert story.count("refused") == 1


def test_with_keys_a_refusal_belongs_to_the_key_not_to_the_claimed_id() -> None:
    story = Story(keyed=True)
    story.says("a", HELLO, user="pi-2", incarnation=0)
    story.says("bb", HELLO, user="pi-1", incarnation=0)
    story.says("bb", replace(JOIN, config="x"), user="pi-1")
    assert dict(story.sessions.counts) == {("refused", "pi-2"): 1, ("refused", "pi-1"): 1}
    assert [reason for *_, reason in story.sessions.faults] == [
        "as edge 'pi-1': key: it belongs to edge 'pi-2', not to 'pi-1'",
        "config differs from the coordinator's",
    ]


def test_too_many_sessions_may_try_again() -> None:
    story = Story(max_sessions=1)
    story.joins("a")
    assert refusal(story.says("bb", replace(HELLO, edge="pi-2"), incarnation=0)) == Refuse(
        "too many sessions", final=False
    )
    story.after(5)  # the first one is silent
    assert story.says("bb", replace(HELLO, edge="pi-2"), incarnation=0) == [told("bb", SETUP)]


@pytest.mark.parametrize("message", [Piece(1, 0), Welcome(), Ping(3)])
def test_nothing_but_a_join_follows_a_hello(message: Any) -> None:
    story = Story()
    story.says("a", HELLO, incarnation=0)
    assert "before Join" in refusal(story.says("a", message)).reason
    assert story.count("wire error") == 1 and not story.sessions.by_routing


def test_joining_twice_in_one_session_ends_it() -> None:
    story = Story()
    story.joins("a")
    reply, gone = story.says("a", JOIN)
    assert isinstance(reply, Reply) and "Join after Join" in reply.message.reason
    assert gone == SessionEnded("pi-1", "wire error: Join after Join")


# ------------------------------------------------------------------ keys


def test_every_later_frame_needs_that_key_too() -> None:
    story = Story(keyed=True)
    story.joins("a", user="pi-1")
    assert isinstance(story.says("a", Piece(1, 0), b"x", user="pi-1")[0], Passed)
    reply, gone = story.says("a", Piece(1, 0), b"x", user="pi-2")
    reason = "a frame of edge pi-1 came with the key of pi-2"
    assert isinstance(reply, Reply) and reason in reply.message.reason
    assert gone == SessionEnded("pi-1", f"wire error: {reason}")
    assert story.count("wire error", "pi-1") == 1


# ------------------------------------------------------------------ one edge, several sessions
def test_a_new_session_replaces_the_old_one_when_it_joins() -> None:
    story = Story()
    story.joins("a")
    # the old session still works until the new one joins
    assert story.says("bb", HELLO, incarnation=0) == [told("bb", SETUP)]
    assert isinstance(story.says("a", Piece(1, 0), b"x")[0], Passed)
    refused, gone, welcome, entered = story.says("bb", JOIN)
    assert refused == told("a", Refuse("another process has taken over as edge pi-1", final=True))
    assert (gone, welcome) == (
        SessionEnded("pi-1", "replaced by a new session"),
        told("bb", Welcome()),
    )
    assert isinstance(entered, Entered) and list(story.sessions.by_edge.values()) == list(
        story.sessions.by_routing.values()
    ) == [entered.session]
    assert refusal(story.says("a", Piece(1, 0), b"x")) == Refuse(
        "this session has ended", final=False
    )


def test_a_new_hello_replaces_a_session_that_has_not_joined() -> None:
    story = Story(max_sessions=1)
    for who in ("a", "bb", "ccc"):
        story.says(who, HELLO, incarnation=0)
    assert list(story.sessions.by_routing) == [b"ccc"]
    assert not refusal(story.says("a", JOIN)).final
    assert isinstance(story.says("ccc", JOIN)[1], Entered)


def test_a_second_hello_on_the_same_socket_begins_again() -> None:
    story = Story()
    story.joins("a")
    gone, setup = story.says("a", HELLO, incarnation=0, number=9)
    assert gone == SessionEnded("pi-1", "replaced by a new session") and setup == Reply(
        b"a", 9, SETUP
    )
    assert not story.sessions.by_edge
    assert isinstance(story.says("a", JOIN, number=9)[1], Entered)
    assert len(story.sessions.by_routing) == len(story.sessions.by_edge) == 1


def test_a_hello_that_comes_late_does_not_end_the_newer_try() -> None:
    """A slow path delivers the first Hello after the second one.

    The newer session must not get a final refusal.
    """
    story = Story()
    story.says("newer", HELLO, incarnation=0)
    refused, setup = story.says("older try", HELLO, incarnation=0)
    assert setup == told("older try", SETUP)
    assert refused == told("newer", Refuse("another session of edge pi-1 has begun", final=False))
    # it begins again and joins; the older session is gone
    assert story.says("newer yet", HELLO, incarnation=0)[-1] == told("newer yet", SETUP)
    assert isinstance(story.says("newer yet", JOIN)[-1], Entered)


def test_a_hello_that_comes_again_after_its_session_has_ended_is_stale() -> None:
    """Otherwise the Join behind it would end the newer session for ever."""
    story = Story()
    story.says("old", HELLO, incarnation=0, number=1)
    story.says("new", HELLO, incarnation=0, number=2)
    story.says("new", JOIN, number=2)
    again = story.says("old", HELLO, incarnation=0, number=1)
    assert [type(each.message) for each in again] == [Refuse] and not again[0].message.final
    assert story.says("old", JOIN, number=1) == [], "at most one answer in a second"
    assert story.sessions.by_edge["pi-1"].number == 2


def test_a_peer_that_does_not_read_loses_its_session_and_may_come_back() -> None:
    story = Story()
    story.joins("a")
    assert story.sessions.deaf(b"a") == [
        SessionEnded("pi-1", "it does not read what is sent to it")
    ]
    assert story.sessions.deaf(b"a") == [] and story.count("queue full", "pi-1") == 1
    assert isinstance(story.joins("bb")[-1], Entered)


def test_faults_of_one_kind_and_edge_are_recorded_a_few_times_a_second() -> None:
    story = Story()
    for number in range(100):
        story.raw(f"stranger {number}", b"\xc1")
    assert len(story.sessions.faults) == MOST_RECORDS and story.count("wire error") == 100
    story.joins("a")
    story.raw("a", b"\xc1")
    assert story.sessions.faults[-1][1] == "pi-1"


# ------------------------------------------------------------------ silence
def test_a_silent_edge_is_lost_after_its_liveness_and_may_come_back() -> None:
    story = Story()
    story.joins("a")
    assert story.after(4) == [told("a", Ping(story.now))]
    assert story.after(1) == [SessionEnded("pi-1", "silent")]
    assert refusal(story.says("a", Piece(1, 0), b"x")) == Refuse(
        "this session has ended", final=False
    )
    assert story.count("stale frame") == 1
    assert isinstance(story.joins("bb")[1], Entered)


@pytest.mark.parametrize("sign_of_life", [Pong(0, 5), Piece(1, 0)])
def test_any_frame_is_a_sign_of_life(sign_of_life: Any) -> None:
    story = Story()
    story.joins("a")
    for _ in range(2):  # longer than the liveness timeout
        story.after(3)
        story.says("a", sign_of_life)
    assert "pi-1" in story.sessions.by_edge


def test_an_edge_that_answers_no_ping_is_lost_whatever_else_it_says() -> None:
    """Otherwise its heartbeats would keep its task open for ever."""
    story = Story()
    story.joins("a")
    story.joins("bb", edge="pi-2")
    ended = []
    for _ in range(8):
        ended += [each for each in story.after(1) if isinstance(each, SessionEnded)]
        story.says("a", Pong(0, 5))
        story.says("bb", Pong(story.now, 5))
    assert ended == [SessionEnded("pi-1", "it answers no ping")]
    assert story.count("deaf", "pi-1") == 1 and story.sessions.faults[-1][:2] == ("deaf", "pi-1")
    assert story.sessions.by_edge.keys() == {"pi-2"}
    assert isinstance(story.joins("ccc")[-1], Entered)


def test_a_model_under_way_delays_the_answer_to_a_ping() -> None:
    story = Story()
    session = story.joins("a")[-1].session
    session.sent_bytes += 3_200_000  # 100 s of the slowest path
    for _ in range(100):
        story.after(1)
        story.says("a", Pong(0, 5))
    assert "pi-1" in story.sessions.by_edge
    story.after(6), story.says("a", Pong(0, 5)), story.after(2)
    assert not story.sessions.by_edge


# ------------------------------------------------------------------ garbage and strays
@pytest.mark.parametrize("header", [b"", b"\x91" * 3000])
def test_strangers_get_no_answer_to_garbage_and_are_counted(header: bytes) -> None:
    story = Story()
    assert story.raw("stranger", header) == []
    assert (
        dict(story.sessions.counts) == {("wire error", WHOLE_RUN): 1}
        and not story.sessions.by_routing
    )


def test_garbage_costs_an_edge_its_session_but_not_its_place() -> None:
    story = Story()
    story.joins("a")
    story.joins("bb", "pi-2")
    reply, gone = story.raw("a", b"\x90")
    assert (
        isinstance(reply, Reply)
        and reply.message.reason.startswith("protocol error: ")
        and not reply.message.final
    )
    assert (
        isinstance(gone, SessionEnded)
        and gone.edge == "pi-1"
        and list(story.sessions.by_edge) == ["pi-2"]
    )
    assert isinstance(story.joins("ccc")[1], Entered)


@pytest.mark.parametrize(("incarnation", "number"), [(RUN - 1, 1), (RUN, 2)])
def test_frames_of_another_run_or_session_are_dropped_and_counted(
    incarnation: int, number: int
) -> None:
    story = Story()
    story.joins("a")
    stale = story.says("a", Piece(1, 0), b"x", incarnation=incarnation, number=number)
    assert stale == [Reply(b"a", number, Refuse("this session has ended", final=False))]
    assert story.count("stale frame") == 1 and "pi-1" in story.sessions.by_edge
    assert isinstance(story.says("a", Piece(1, 0), b"x")[0], Passed)


def test_a_stale_frame_is_no_sign_of_life() -> None:
    story = Story()
    story.joins("a")
    for _ in range(3):
        outcomes = story.after(2)
        story.says("a", Pong(0, 0), incarnation=RUN - 1)
    assert outcomes == [SessionEnded("pi-1", "silent")]


def test_a_fuzzed_conversation_never_breaks_the_table() -> None:
    story, rng = Story(keyed=False), random.Random(3)
    frames = [
        encode(message, RUN, 1)
        for message in (
            HELLO,
            replace(HELLO, edge="pi-2"),
            JOIN,
            Pong(0, 1),
            Piece(1, 2),
            Welcome(),
        )
    ]
    for _ in range(5000):
        frame = bytearray(rng.choice(frames))
        if rng.random() < 0.3:
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        story.raw(rng.choice("abcdef"), bytes(frame))
        story.after(rng.random())
        joined = {id(session) for session in story.sessions.by_routing.values() if session.joined}
        assert joined == {id(session) for session in story.sessions.by_edge.values()}
        assert (
            all(
                routing == session.routing for routing, session in story.sessions.by_routing.items()
            )
            and len(story.sessions.by_routing) <= 4
        )


def test_the_first_faults_are_kept_for_the_record() -> None:
    story = Story()
    story.says("a", replace(HELLO, edge="pi-9"), incarnation=0)
    story.joins("bb")
    story.raw("bb", b"\xc1")
    assert [(sort, who) for sort, who, _ in story.sessions.faults] == [
        ("refused", WHOLE_RUN),
        ("wire error", "pi-1"),
    ]
    for number in range(2 * MOST_FAULTS):
        story.raw(f"stranger {number}", b"\xc1")
        story.now += S
    assert (
        len(story.sessions.faults) == MOST_FAULTS and story.count("wire error") == 2 * MOST_FAULTS
    )


# ------------------------------------------------------------------ clocks
def test_the_quickest_recent_ping_says_how_far_the_clocks_are_apart() -> None:
    story = Story()
    session = story.joins("a")[1].session
    assert session.rtt_ns == UNKNOWN_RTT
    sent = story.now
    story.now += 8_000
    story.says("a", Pong(sent, sent + 4_000 + 5 * S))  # symmetric: the edge's clock is 5 s ahead
    assert (session.rtt_ns, session.offset_ns) == (8_000, 5 * S)
    sent, story.now = story.now, story.now + 100_000
    story.says("a", Pong(sent, sent + 90_000 + 5 * S))  # a slow ping is not used
    assert (session.rtt_ns, session.offset_ns) == (8_000, 5 * S)
    sent, story.now = story.now, story.now + 2_000
    story.says("a", Pong(sent, sent + 1_000 + 5 * S + 7))
    assert (session.rtt_ns, session.offset_ns) == (2_000, 5 * S + 7)


def test_clocks_that_drift_apart_are_followed() -> None:
    story = Story()
    session = story.joins("a")[1].session
    story.says("a", Pong(story.now - 1_000, story.now - 500))
    for second in range(1, RECENT_PINGS + 1):
        story.now += S
        story.says("a", Pong(story.now - 2_000, story.now - 1_000 + 20_000 * second))
    assert (session.rtt_ns, session.offset_ns) == (2_000, 20_000)


def test_after_a_sleep_of_this_host_all_sessions_stay_and_the_clocks_are_compared_again() -> None:
    story = Story()
    session = story.joins("a")[1].session
    story.after(0.1)
    sent, story.now = story.now, story.now + 8_000
    story.says("a", Pong(sent, sent + 4_000 + 5 * S))
    story.now += round(0.9 * EXPECTED.liveness_ns)  # nearly silent when the lid was closed
    story.sessions.host_slept(story.now)  # for 600 s, which its own clock did not count
    assert story.sessions.next_tick() <= story.now, "it pings at once"
    (ping,) = [out.message for out in story.after(0.0) if isinstance(out, Reply)]
    story.says("a", Pong(sent, sent + 4_000 + 5 * S))  # it was under way during the sleep
    assert session.rtt_ns == UNKNOWN_RTT
    story.now += 6_000
    story.says("a", Pong(ping.sent_ns, ping.sent_ns + 3_000 + 605 * S))
    assert (session.rtt_ns, session.offset_ns) == (6_000, 605 * S)
    story.sessions.host_slept(story.now)
    story.now += round(0.9 * EXPECTED.liveness_ns)
    assert "pi-1" in story.sessions.by_edge and not [
        out for out in story.after(0.0) if isinstance(out, SessionEnded)
    ]


def test_a_pause_of_this_process_is_no_silence_of_its_edges() -> None:
    story = Story()
    story.joins("a")
    story.now += 10 * EXPECTED.liveness_ns
    story.sessions.host_stood_still(10 * EXPECTED.liveness_ns, story.now)
    assert not [out for out in story.after(0.0) if isinstance(out, SessionEnded)]
    ended = [
        out for out in story.after(1.1 * EXPECTED.liveness_ns / S) if isinstance(out, SessionEnded)
    ]
    assert [out.edge for out in ended] == ["pi-1"], "an edge that stays silent is lost as always"


def test_only_the_answer_to_an_open_heartbeat_is_a_measured_round_trip() -> None:
    story = Story()
    story.joins("a")
    (ping,) = [out.message for out in story.after(0.5) if isinstance(out, Reply)]
    story.now += 7_000
    assert story.says("a", Pong(ping.sent_ns - 1, 5)) == []  # no such heartbeat
    assert story.says("a", Pong(ping.sent_ns, 5)) == [Answered("pi-1", ping.sent_ns, 7_000)]
    assert story.says("a", Pong(ping.sent_ns, 5)) == []  # answered already


def test_texts_of_edges_are_recorded_and_sent_as_plain_lines() -> None:
    story = Story()
    evil = "1.0\x1b]0;owned\x07\x9b2J\nsecond" + "x" * 600
    reason = refusal(story.says("a", replace(HELLO, package=evil), incarnation=0)).reason
    (_, _, recorded), *_ = story.sessions.faults
    assert (
        recorded == f"as edge 'pi-1': {reason}"[: MOST_TEXT - 3] + reason[-3:]
        and reason.isprintable()
        and len(reason) == MOST_TEXT
    )
    assert "this edge 1.0\\x1b]0;owned\\x07\\x9b2J secondxxx" in reason


def test_the_end_of_a_run_is_told_in_words_that_every_edge_reads() -> None:
    """The reason for the end of a run may come from a strategy or from an edge that fails."""
    story = Story()
    story.joins("a")
    (reply,) = story.sessions.finish("diverged\x1b[2J\n" + "x" * 5000, more=False)
    assert isinstance(reply, Reply)
    message = decode(encode(reply.message, RUN, 1))[0]
    assert message.reason.startswith("diverged\\x1b[2J xxx") and len(message.reason) == MOST_TEXT


# ------------------------------------------------------------------ bundles
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


def test_no_message_has_more_headers_than_a_receiver_takes() -> None:
    made, sent = bundles()
    for task in range(MOST_BUNDLED + 1):
        made.send(PEER, 1, Acknowledged(task), waits=True)
    made.flush()
    assert [len(said) for _, said, _ in sent.messages] == [MOST_BUNDLED, 1]


# ------------------------------------------------------------------ the coordinator receives
def joined() -> Story:
    story = Story()
    story.joins("ab")
    return story


def together(*messages: Any) -> bytes:
    return bundle([encode(message, RUN, 2) for message in messages])


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


# ------------------------------------------------------------------ an edge


def test_a_ping_that_waited_in_the_kernel_says_nothing_about_the_path() -> None:
    session = Session(b"a", "a", 1, 0)
    session.pinged(10)
    assert session.answered(10, 3, 7)
    session.queued_until_ns = 100
    session.pinged(50)
    assert not session.answered(50, 400, -200) and not session.unanswered
    assert (session.rtt_ns, session.offset_ns) == (3, 7)
    session.pinged(100)
    assert session.answered(100, 2, 8) and session.rtt_ns == 2


def test_an_edge_whose_messages_wait_in_the_kernel_gets_a_ping_four_times_in_its_patience() -> None:
    story = joined()
    beat, patience = EXPECTED.heartbeat_ns, EXPECTED.liveness_ns
    session, moments = story.sessions.by_edge["pi-1"], []
    session.queued_until_ns = 2 * patience
    for now in range(beat, 4 * patience, beat):
        session.heard_ns = now
        session.unanswered.clear()
        if any(isinstance(each, Reply) for each in story.sessions.tick(now)):
            moments.append(now)
    queued = [now for now in moments if now <= 2 * patience]
    assert len(queued) in (8, 9)
    assert len(moments) - len(queued) == 2 * patience // beat - 1  # each heartbeat


# ------------------------------------------------------------------ many sessions
def test_heartbeats_of_many_sessions_are_spread_over_their_period() -> None:
    """Each session gets one ping in a heartbeat, and no turn has all of them to send."""
    count, parts = 1000, 1000 // AT_ONCE
    names = frozenset(f"pi-{number}" for number in range(count))
    sessions = Sessions(replace(EXPECTED, edges=names, max_sessions=count), RUN)
    for number, name in enumerate(sorted(names)):
        routing = number.to_bytes(4, "big")
        for message, run in ((replace(HELLO, edge=name), 0), (JOIN, RUN)):
            sessions.receive(routing, None, encode(message, run, 1), None, 1)
    assert len(sessions.by_edge) == count
    pinged: list[list[bytes]] = []
    moments: list[int] = []
    for _ in range(3 * parts):
        moments.append(now := sessions.next_tick())
        pinged.append([each.routing for each in sessions.tick(now) if isinstance(each, Reply)])
    assert {len(each) for each in pinged[1:]} == {AT_ONCE}
    for first in range(0, 2 * parts, parts):
        assert len({each for turn in pinged[first : first + parts] for each in turn}) == count
    assert moments[2 * parts] - moments[parts] == EXPECTED.heartbeat_ns // parts * parts
