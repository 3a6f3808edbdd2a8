"""Which edge counts as one that does not read."""

from __future__ import annotations

from edgefl.hosts.wall.coordinator.hearing import SLOWEST_BIT_S, Hearing

S = 1_000_000_000


def test_an_edge_that_answers_is_heard() -> None:
    hearing = Hearing()
    for second in range(10):
        hearing.pinged(second * S)
        hearing.answered(second * S)
    assert not hearing.is_lost(100 * S, S) and not hearing.pings


def test_an_edge_that_answers_no_ping_is_lost_after_a_while() -> None:
    hearing = Hearing()
    hearing.pinged(1 * S)
    hearing.pinged(2 * S)
    assert not hearing.is_lost(6 * S, 5 * S)
    assert hearing.is_lost(6 * S + 1, 5 * S)
    hearing.answered(1 * S)  # now the second one counts
    assert not hearing.is_lost(7 * S, 5 * S)
    assert hearing.is_lost(7 * S + 1, 5 * S)


def test_an_answer_to_a_later_ping_answers_those_before() -> None:
    hearing = Hearing()
    hearing.pinged(1 * S), hearing.pinged(2 * S)
    hearing.answered(3 * S)  # the answer to a probe, sent between two heartbeats
    assert not hearing.pings


def test_a_slow_path_has_time_for_what_was_sent_before_a_ping() -> None:
    """A model of 45 MB is sent to a native link at once; the edge reads the next ping after it."""
    hearing = Hearing()
    hearing.sent_bytes += 45_000_000
    hearing.pinged(0)
    whole_s = 45_000_000 * 8 // SLOWEST_BIT_S
    assert not hearing.is_lost(whole_s * S, S) and hearing.is_lost((whole_s + 2) * S, S)
    hearing.answered(0)
    hearing.pinged(10 * S)  # nothing was sent since then
    assert hearing.is_lost(12 * S, S)
