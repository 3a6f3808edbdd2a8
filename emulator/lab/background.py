"""Background traffic of a lab: a process that sends datagrams at a rate, and one that counts them.

    python -m emulator.lab.background send ADDRESS PORT COUNTS RATE_BIT_S [ON_NS OFF_NS]
    python -m emulator.lab.background count ADDRESS PORT COUNTS

Each datagram fills a frame, so it takes as much of a link as a full TCP segment, and counts like
its payload. Both write {"datagrams", "bytes"} to the file COUNTS twice a second and at their end.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType

from emulator.clock import precise_timers
from emulator.lab.commands import FRAME_BYTES, PAYLOAD_BYTES
from emulator.units import NS_PER_S

DATAGRAM = bytes(FRAME_BYTES - 14 - 20 - 8)  # a frame less the headers of Ethernet, IP and UDP
FIRST_PORT = 9  # discard; each further flow has the next port
_TELL_NS = NS_PER_S // 2
_MOST_AT_ONCE = 64  # after a delay of this process; what is more is left out


def moment_ns(number: int, rate_bit_s: int, on_ns: int | None, off_ns: int | None) -> int:
    """When datagram ``number`` leaves, in ns after the start.

    With ``on_ns`` and ``off_ns`` there is a pause of ``off_ns`` after each ``on_ns`` of sending.
    """
    sending_ns = number * PAYLOAD_BYTES * 8 * NS_PER_S // rate_bit_s
    return sending_ns + (sending_ns // on_ns * off_ns if on_ns and off_ns else 0)


class _Counts:
    """Counted datagrams, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._told_ns = 0
        self.datagrams = 0

    def tell(self, now: int, at_once: bool = False) -> None:
        if at_once or now - self._told_ns >= _TELL_NS:
            self._told_ns = now
            counted = {"datagrams": self.datagrams, "bytes": self.datagrams * PAYLOAD_BYTES}
            fresh = self._file.with_suffix(".new")
            fresh.write_text(json.dumps(counted) + "\n", encoding="utf-8")
            fresh.replace(self._file)


class _Stopped(BaseException):
    """SIGTERM or Ctrl-C."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stopped


def send(counts: _Counts, to: tuple[str, int], rate_bit_s: int, *rest_ns: int) -> None:
    """Send until the end of this process."""
    on_ns, off_ns = rest_ns or (None, None)
    began_ns, number = time.monotonic_ns(), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        while True:
            now = time.monotonic_ns() - began_ns
            due_ns = moment_ns(number, rate_bit_s, on_ns, off_ns)
            if due_ns > now:
                counts.tell(now)
                time.sleep(min(due_ns - now, _TELL_NS) / NS_PER_S)
                continue
            later = moment_ns(number + _MOST_AT_ONCE, rate_bit_s, on_ns, off_ns)
            number += 1
            if later < now:  # it could not send for long: no burst afterwards
                continue
            try:
                sock.sendto(DATAGRAM, to)
                counts.datagrams += 1
            except OSError:  # its interface is down
                continue


def count(counts: _Counts, at: tuple[str, int]) -> None:
    """Count until the end of this process."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(at)
        sock.settimeout(_TELL_NS / NS_PER_S)
        while True:
            try:
                sock.recv(2048)
                counts.datagrams += 1
            except TimeoutError:
                pass
            counts.tell(time.monotonic_ns())


def main(words: list[str]) -> None:
    """Run one of the two processes until SIGTERM."""
    what, address, port, file, *numbers = words
    counts = _Counts(Path(file))
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, _stop)
    precise_timers()
    peer = (address, int(port))
    try:
        counts.tell(0, at_once=True)
        if what == "send":
            send(counts, peer, *map(int, numbers))
        else:
            count(counts, peer)
    except _Stopped:
        counts.tell(0, at_once=True)


if __name__ == "__main__":
    main(sys.argv[1:])
