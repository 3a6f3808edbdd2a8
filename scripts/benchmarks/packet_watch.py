"""Record the TCP packets with payload that pass an interface to or from one port.

    python scripts/benchmarks/packet_watch.py INTERFACE PORT FILE

Linux and root. ``over_machines.py`` starts it as a child process. It writes to FILE when it is
terminated; a line on stdout says that it listens. The times are those of the kernel.
"""

from __future__ import annotations

import array
import signal
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

SO_TIMESTAMPNS = 35  # of Linux; the module socket lacks it
ETH_P_IP, ETH_P_ALL, OUTGOING, TCP = 0x0800, 0x0003, 4, 6
BUFFER_BYTES = 32 << 20
HEADERS = 120  # the longest headers of IPv4 and TCP
ROW = struct.Struct("<q?IHI")  # Packet


@dataclass(frozen=True, slots=True)
class Packet:
    """A TCP packet of ``size`` payload bytes at ``unix_ns``, to (``up``) or from the port.

    ``address`` and ``port`` are those of the other side.
    """

    unix_ns: int
    up: bool
    address: int
    port: int
    size: int

    @property
    def peer(self) -> tuple[int, int]:
        return self.address, self.port


def read(path: Path) -> list[Packet]:
    """The packets of a file, in order."""
    return [Packet(*row) for row in ROW.iter_unpack(path.read_bytes())]


def parsed(head: bytes, port: int, unix_ns: int) -> Packet | None:
    """A packet from its IPv4 and TCP headers; None if it is another one, or has no payload."""
    if len(head) < 40 or head[9] != TCP:
        return None
    ip_bytes = 4 * (head[0] & 15)
    total, source, target = struct.unpack_from("!2xH8x4s4s", head)
    ports = struct.unpack_from("!HH", head, ip_bytes)
    size = total - ip_bytes - 4 * (head[ip_bytes + 12] >> 4)
    if port not in ports or size <= 0:
        return None
    up = ports[1] == port
    peer = (source, ports[0]) if up else (target, ports[1])
    return Packet(unix_ns, up, int.from_bytes(peer[0], "big"), peer[1], size)


def watch(interface: str, port: int, path: Path) -> None:
    """Record until SIGTERM."""
    rows = bytearray()

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit

    signal.signal(signal.SIGTERM, end)
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        raw.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        raw.bind((interface, ETH_P_ALL))  # only with all protocols are outgoing packets seen, too
        raw.settimeout(None)
        print("listening", flush=True)
        try:
            while True:
                head, more, _, sender = raw.recvmsg(HEADERS, 64)
                twice = interface == "lo" and sender[2] == OUTGOING  # seen again as it arrives
                if twice or sender[1] != ETH_P_IP:
                    continue
                seconds, ns = array.array("q", more[0][2])
                packet = parsed(head, port, seconds * 1_000_000_000 + ns)
                if packet is not None:
                    rows += ROW.pack(
                        packet.unix_ns, packet.up, packet.address, packet.port, packet.size
                    )
        finally:
            path.write_bytes(rows)


if __name__ == "__main__":
    watch(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
