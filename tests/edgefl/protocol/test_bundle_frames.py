"""Several headers in one frame: they come out as they went in, and malformed frames are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.protocol.codec import (
    MOST_BUNDLED,
    MOST_BUNDLED_BYTES,
    bundle,
    decode,
    encode,
    is_bundle,
    unbundled,
)
from edgefl.protocol.messages import Acknowledged, LimitExceeded, Piece, WireError

HEADERS = st.lists(
    st.binary(min_size=1, max_size=MOST_BUNDLED_BYTES).filter(lambda header: header[0] != 0xC1),
    min_size=1,
    max_size=MOST_BUNDLED,
)


@given(HEADERS)
def test_headers_come_out_as_they_went_in(headers: list[bytes]) -> None:
    frame = bundle(headers)
    assert is_bundle(memoryview(frame)) == (len(headers) > 1)
    assert [bytes(each) for each in unbundled(memoryview(frame))] == headers


def test_a_bundle_by_hand() -> None:
    headers = [encode(Acknowledged(3), 1, 2), encode(Piece(5, 0), 1, 2)]
    first, second = headers
    by_hand = b"\xc1" + bytes([0, len(first)]) + first + bytes([0, len(second)]) + second
    assert bundle(headers) == by_hand
    found = [decode(each)[0] for each in unbundled(memoryview(by_hand))]
    assert found == [Acknowledged(3), Piece(5, 0)]


@pytest.mark.parametrize(
    "frame",
    [
        b"\xc1",  # no header
        b"\xc1\x00",  # half a length
        b"\xc1\x00\x05abcd",  # a header is cut off
        b"\xc1\x00\x01a\x00",  # a byte after the last header
    ],
)
def test_what_is_cut_off_is_malformed(frame: bytes) -> None:
    with pytest.raises(WireError, match="malformed"):
        unbundled(memoryview(frame))


def test_a_frame_has_few_headers_and_the_rest_is_not_read() -> None:
    assert len(unbundled(memoryview(b"\xc1" + b"\x00\x01a" * MOST_BUNDLED))) == MOST_BUNDLED
    with pytest.raises(LimitExceeded, match=f"more than {MOST_BUNDLED} headers"):
        unbundled(memoryview(b"\xc1" + b"\x00\x01a" * MOST_BUNDLED + b"\xff" * 100_000))
