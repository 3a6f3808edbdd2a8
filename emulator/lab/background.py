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
from select import select

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


def _signalled() -> socket.socket:
    """Return a socket that is readable from SIGTERM or Ctrl-C on.

    A handler that raised could do so between a datagram and its count.
    """
    told, teller = socket.socketpair()
    teller.setblocking(False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(teller.detach())
    return told


def send(
    counts: _Counts, stop: socket.socket, to: tuple[str, int], rate_bit_s: int, *rest_ns: int
) -> None:
    """Send until ``stop`` is readable."""
    on_ns, off_ns = rest_ns or (None, None)
    began_ns, number, wait_ns = time.monotonic_ns(), 0, 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        while not select([stop], [], [], wait_ns / NS_PER_S)[0]:
            now = time.monotonic_ns() - began_ns
            wait_ns = max(0, moment_ns(number, rate_bit_s, on_ns, off_ns) - now)
            if wait_ns:
                counts.tell(now)
                wait_ns = min(wait_ns, _TELL_NS)
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


def count(counts: _Counts, stop: socket.socket, at: tuple[str, int]) -> None:
    """Count until ``stop`` is readable, and then what has arrived until then."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(at)
        while True:
            ready, _, _ = select([sock, stop], [], [], _TELL_NS / NS_PER_S)
            if sock in ready:
                sock.recv(2048)
                counts.datagrams += 1
            elif stop in ready:
                return
            counts.tell(time.monotonic_ns())


def main(words: list[str]) -> None:
    """Run one of the two processes until SIGTERM."""
    what, address, port, file, *numbers = words
    counts = _Counts(Path(file))
    stop = _signalled()
    precise_timers()
    peer = (address, int(port))
    counts.tell(0, at_once=True)
    if what == "send":
        send(counts, stop, peer, *map(int, numbers))
    else:
        count(counts, stop, peer)
    counts.tell(0, at_once=True)


if __name__ == "__main__":
    main(sys.argv[1:])
