"""Run `edgefl WORDS` in this process, perhaps in a network namespace, and write down what it saw.

``python watched_edgefl.py NAMESPACE WITNESS WORDS...``; "-" stands for none of them. Each line of
WITNESS is a JSON object:

{"edge": "e001", "acknowledged": 7}     the edge held the update of task 7, and it was acknowledged
{"received": 3, "at": 0, "bytes": 16384, "session": 1}    a piece of download 3, from byte 0 on
{"sent": 1, "at": 0, "bytes": 16384, "session": 1}        a piece of upload 1

"session" counts the edge's sessions. Lines are written before the edge handles what it received.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

NONE = "-"
NAMESPACES = Path("/run/netns")
CLONE_NEWNET = 0x40000000


def enter(namespace: str) -> None:
    """Move this process into a network namespace. OSError if that is not possible."""
    library = ctypes.CDLL(None, use_errno=True)
    with (NAMESPACES / namespace).open("rb") as file:
        if library.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")


class Witness:
    """Writes lines of JSON to a file, each with one call, so that a killed process tears none."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.sessions = 0

    def write(self, **line: Any) -> None:
        os.write(self.fd, orjson.dumps(line) + b"\n")

    def watch(self) -> None:
        """Watch all edges of this process from now on."""
        from edgefl.clocks.wall.edge.transfers import EdgeTransfers
        from edgefl.edges.edge import Edge
        from edgefl.protocol.messages import Acknowledged

        receive, new_session = Edge.receive, EdgeTransfers.new_session
        piece, credit = EdgeTransfers.piece, EdgeTransfers.credit

        def watched_receive(edge: Any, message: Any, now: int) -> Any:
            if isinstance(message, Acknowledged) and message.task in edge.unacknowledged:
                self.write(edge=edge.name, acknowledged=message.task)
            return receive(edge, message, now)

        def watched_session(transfers: Any) -> None:
            self.sessions += 1
            new_session(transfers)

        def watched_piece(transfers: Any, one: Any, body: Any, now_ns: int) -> Any:
            if one.transfer in transfers.downloads:
                place = {"at": one.offset, "bytes": len(body), "session": self.sessions}
                self.write(received=one.transfer, **place)
            return piece(transfers, one, body, now_ns)

        def watched_credit(transfers: Any, given: Any) -> Iterator[Any]:
            for one, view in credit(transfers, given):
                place = {"at": one.offset, "bytes": len(view), "session": self.sessions}
                self.write(sent=one.transfer, **place)
                yield one, view

        Edge.receive = watched_receive  # type: ignore[method-assign]  # that is the point
        EdgeTransfers.new_session = watched_session  # type: ignore[method-assign]  # that is the point
        EdgeTransfers.piece = watched_piece  # type: ignore[method-assign]  # that is the point
        EdgeTransfers.credit = watched_credit  # type: ignore[method-assign]  # that is the point


if __name__ == "__main__":
    namespace, path, *words = sys.argv[1:]
    if namespace != NONE:
        enter(namespace)
    if path != NONE:
        Witness(Path(path)).watch()
    sys.argv = ["edgefl", *words]
    from edgefl.cli import main

    main()
