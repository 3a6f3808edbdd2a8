"""The edge's end of transfers: downloads are assembled and stamped, uploads are sent as credit
allows.
"""

from __future__ import annotations

import numpy as np
import pytest

from edgefl.hosts.wall.edge.transfers import MOST_INCOMING, EdgeTransfers
from edgefl.protocol.errors import WireError
from edgefl.protocol.messages import Assignment, Credit, Piece, Update
from edgefl.protocol.transfers import Outgoing

MOST = 1 << 20


def task(number: int = 5) -> Assignment:
    return Assignment(number, 3, {"weights": np.arange(100, dtype=np.float32)}, {"epochs": 2.0})


def update(number: int = 5) -> Update:
    return Update(number, 3, {"weights": np.arange(100, dtype=np.float32)}, {"samples": 7.0})


def test_a_download_is_stamped_piece_by_piece_and_kept_until_its_moment() -> None:
    transfers, outgoing = EdgeTransfers(MOST), Outgoing(9, task())
    assert transfers.offered(outgoing.offer(0), 10) is None
    assert transfers.piece(Piece(9, 0), outgoing.piece(0, 150), 20) is None
    assert transfers.held == [[9, 150]] and transfers.tasks == [5]
    arrived = transfers.piece(Piece(9, 150), outgoing.piece(150, 400), 30)
    assert arrived is not None and (arrived.transfer, arrived.curve) == (
        9,
        [[0, 10], [150, 20], [400, 30]],
    )
    message = transfers.delivered(9)
    assert isinstance(message, Assignment) and message.numbers == {"epochs": 2.0}
    np.testing.assert_array_equal(message.vectors["weights"], np.arange(100))
    assert transfers.delivered(9) is None and transfers.held == []


def test_a_download_with_another_digest_begins_again() -> None:
    transfers, outgoing = EdgeTransfers(MOST), Outgoing(9, task())
    transfers.offered(outgoing.offer(0), 10)
    with pytest.raises(WireError, match="digest"):
        transfers.piece(Piece(9, 0), memoryview(bytes(400)), 20)
    assert transfers.held == []


def test_pieces_of_an_unknown_transfer_are_left_alone_and_too_many_downloads_refused() -> None:
    transfers = EdgeTransfers(MOST)
    assert transfers.piece(Piece(1, 0), memoryview(b"x"), 0) is None
    for number in range(MOST_INCOMING):
        transfers.offered(Outgoing(number, task(number)).offer(0), 0)
    with pytest.raises(WireError, match="under way"):
        transfers.offered(Outgoing(99, task(99)).offer(0), 0)


def test_an_upload_goes_exactly_as_far_as_its_credit() -> None:
    transfers = EdgeTransfers(MOST)
    outgoing = transfers.new(update(), 1000)
    assert list(transfers.credit(Credit(outgoing.number, 0, 0))) == []
    first = list(transfers.credit(Credit(outgoing.number, 0, 160)))
    assert [(piece.offset, len(view)) for piece, view in first] == [(0, 160)]
    rest = list(transfers.credit(Credit(outgoing.number, 160, 10_000)))
    assert [(piece.offset, len(view)) for piece, view in rest] == [(160, 240)]
    assert list(transfers.credit(Credit(77, 0, 100))) == []


def test_after_a_broken_session_the_credit_says_where_to_go_on() -> None:
    transfers, kept = EdgeTransfers(MOST), update()
    outgoing = transfers.new(kept, 1000)
    list(transfers.credit(Credit(outgoing.number, 0, 300)))
    transfers.new_session()
    assert [(again.number, due) for again, due in transfers.unacknowledged({5: kept})] == [
        (outgoing.number, 1000)
    ]
    again = list(transfers.credit(Credit(outgoing.number, 120, 400)))  # 180 bytes had not arrived
    assert [(piece.offset, len(view)) for piece, view in again] == [(120, 280)]


def test_an_acknowledged_upload_is_forgotten() -> None:
    transfers = EdgeTransfers(MOST)
    transfers.new(update(5), 1)
    transfers.new(update(6), 2)
    transfers.acknowledged(5)
    assert [upload.outgoing.task for upload in transfers.uploads.values()] == [6]
    assert transfers.unacknowledged({}) == [] and transfers.uploads == {}
