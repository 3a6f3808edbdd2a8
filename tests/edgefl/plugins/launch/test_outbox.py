"""Messages that wait for a slow reader."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgefl.plugins.launch.agent import Outbox


def drained(outbox: Outbox, portion: int = 1000) -> bytes:
    sent = b""
    while outbox:
        part = outbox.next()[:portion]
        sent += part
        outbox.sent(len(part))
    return sent


@given(st.lists(st.binary(min_size=1, max_size=20)), st.integers(1, 7))
def test_messages_come_whole_and_in_order(messages: list[bytes], portion: int) -> None:
    outbox = Outbox()
    for message in messages:
        outbox.add(message)
    assert drained(outbox, portion) == b"".join(messages)


def test_only_text_is_dropped_if_too_much_waits() -> None:
    outbox = Outbox(most_bytes=10)
    for message in (b"12345", b"67890", b"x"):
        outbox.add(message, may_drop=True)
    outbox.add(b"important" * 10)
    assert drained(outbox) == b"1234567890" + b"important" * 10
    outbox.add(b"y", may_drop=True)
    assert drained(outbox) == b"y", "there is room again"


def test_a_new_reader_gets_the_interrupted_message_from_its_beginning() -> None:
    outbox = Outbox()
    outbox.add(b"first\n")
    outbox.add(b"second\n")
    outbox.sent(3)
    outbox.rewind()
    outbox.add(b"ready\n", first=True)
    assert drained(outbox) == b"ready\nfirst\nsecond\n"
