"""The coordinator process of emulator_accuracy.py.

It is the real one, and it also records each transfer and each arrival of bytes.

python emulator_watch.py CONTROL_FD NOTES_FILE
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson

from edgefl.clocks.wall.coordinator import process as coordinator_process
from edgefl.clocks.wall.coordinator.sessions import Session
from edgefl.clocks.wall.coordinator.transfers import Transport
from edgefl.exchange.pacer import PacedFlow
from edgefl.protocol.messages import Arrived, Piece
from emulator.tdma.channel import ChannelLink

TRANSFERS: list[dict[str, Any]] = []
ARRIVALS: list[tuple[int, int, int]] = []  # (transfer, total bytes, emulated ns)


class Watched(Transport):
    """Records the arrivals at both receivers: this process for uplinks, the edge for downlinks.

    The stamps are comparable, because one machine has one monotonic clock.
    """

    def frame(self, session: Session, message: Any, body: Any) -> None:
        if isinstance(message, Piece) and body is not None:
            self._note_piece(session, message, len(body))
        if isinstance(message, Arrived):
            self._note_arrivals(message)
        super().frame(session, message, body)

    def _note_piece(self, session: Session, piece: Piece, size: int) -> None:
        flow = self.exchange.uploads[session.edge].get(piece.transfer)
        if flow is not None and flow.granted:
            end = flow.meta + piece.offset + size
            ARRIVALS.append((flow.transfer.number, end, self.clock.now()))

    def _note_arrivals(self, arrived: Arrived) -> None:
        flow = self.exchange.flows.get(arrived.transfer)
        if flow is not None:
            ARRIVALS.extend(
                (arrived.transfer, flow.meta + size, self.clock.at_monotonic(stamp))
                for size, stamp in arrived.curve
            )

    def done(self, flow: PacedFlow) -> None:
        transfer, completion = flow.transfer, flow.completion
        if not flow.awaits_bytes:  # a broadcast, of which each receiver has a copy
            super().done(flow)
            return
        assert completion is not None
        link = self.pacer.network.link(transfer.edge, transfer.direction)
        uses = link.channel.log() if isinstance(link, ChannelLink) else []
        TRANSFERS.append(
            {
                "number": transfer.number,
                "edge": transfer.edge,
                "direction": transfer.direction,
                "size": transfer.size,
                "meta": flow.meta,
                "piece": flow.piece,
                "at_once_ns": flow.at_once_ns,
                "window_ns": flow.window_ns,
                "offered_ns": completion.offered_ns,
                "last_ns": flow.last_byte_ns,
                "finished_ns": flow.finished_ns(),
                "slots": [use.slot for use in uses if use.number == transfer.number],
            }
        )
        super().done(flow)


def main(control_fd: int, notes: Path) -> int:
    coordinator_process.Transport = Watched
    status = coordinator_process.main(control_fd, -1)
    notes.write_bytes(orjson.dumps({"transfers": TRANSFERS, "arrivals": ARRIVALS}))
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
