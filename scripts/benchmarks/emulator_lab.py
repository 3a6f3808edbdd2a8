"""The same topologies by ``[links]`` (a run of edgefl) and by ``emulator lab`` (the kernel).

    python scripts/benchmarks/emulator_lab.py [--quick | --tiny] [--json FILE]

In each round a server sends the same bytes to all hosts at once, and they send them back. The end
of a transfer is its last byte. The last part measures whether the relay of a lab is on time. All
goals are for an idle machine with 2 cores. The lab needs root.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from emulator_app import measure, shots
from emulator_rows import Bound, Cell, Extent, Shot, error_rows
from table import Row, arguments, host_line, load, report, run, say

from emulator import BadValue, Lab

AGREE_GOAL, LATE_GOAL = "<= 2", "<= 1"
G7 = Bound("%", 1.5)
PATIENCE_S = 120.0
DIRECTIONS = ("down", "up")

# Both ends share CLOCK_MONOTONIC, because hosts of a lab are on one machine. The sender takes the
# time when it begins, the receiver when the last byte is there.
SERVER = """
import json, socket, struct, sys, threading, time
hosts, rounds, size = map(int, sys.argv[1:])
body, took, together = bytes(size), [], threading.Barrier(hosts)
def serve(peer):
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reader, buffer = peer.makefile("rb"), bytearray(1 << 16)
    for number in range(rounds):
        together.wait()
        began = time.monotonic_ns()
        peer.sendall(body)
        arrived, sent = struct.unpack("<qq", reader.read(16))
        left = size
        while left:
            left -= len(reader.read1(min(left, 1 << 16))) or sys.exit("a host has gone")
        ended = time.monotonic_ns()
        took.append((number, arrived - began, ended - sent))
        together.wait()
        peer.sendall(b"k")
with socket.create_server(("0.0.0.0", 7000), backlog=hosts) as server:
    threads = [threading.Thread(target=serve, args=(server.accept()[0],)) for _ in range(hosts)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
print(json.dumps(took))
"""
CLIENT = """
import socket, struct, sys, time
rounds, size = map(int, sys.argv[1:])
while True:
    try:
        sock = socket.create_connection(("server", 7000), timeout=60)
        break
    except ConnectionRefusedError:
        time.sleep(0.02)
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
body, reader = bytes(size), sock.makefile("rb")
for _ in range(rounds):
    left = size
    while left:
        left -= len(reader.read1(min(left, 1 << 16))) or sys.exit("the server has gone")
    arrived = time.monotonic_ns()
    sock.sendall(struct.pack("<qq", arrived, time.monotonic_ns()) + body)
    reader.read(1)
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """Hosts with equal links of ``cell``'s latency.

    With ``shared_mbit_s`` their links are twice as fast as their share of the bridge's rate, which
    is the rate of ``cell``.
    """

    name: str
    cell: Cell
    shared_mbit_s: float | None = None

    @property
    def own_mbit_s(self) -> float:
        return self.cell.rate_mbit_s * (2 if self.shared_mbit_s else 1)

    def config(self) -> dict[str, Any]:
        """The scene as sections of an experiment."""
        rates = {"up_mbit_s": self.own_mbit_s, "down_mbit_s": self.own_mbit_s}
        links = {"kind": "emulated", "latency_ms": self.cell.latency_ms, **rates}
        shared = {"up_mbit_s": self.shared_mbit_s, "down_mbit_s": self.shared_mbit_s}
        medium = {"medium": {"kind": "cell", **shared}} if self.shared_mbit_s else {}
        return {"links": links, **medium}

    def topology(self) -> dict[str, Any]:
        """The scene as a topology of a lab."""
        latency = {"latency": f"{self.cell.latency_ms:g}ms"} if self.cell.latency_ms else {}
        own = {"rate": f"{round(self.own_mbit_s * 1e6)}bit", **latency}
        hosts = f"edge-[1-{self.cell.links}]"
        found: dict[str, Any] = {"hosts": [{"name": "server"}, {"name": hosts}]}
        if self.shared_mbit_s is None:
            return found | {"links": [{"from": hosts, "to": "server", **own}]}
        rate = f"{round(self.shared_mbit_s * 1e6)}bit"
        links = [{"from": hosts, "to": "cell", **own}, {"from": "cell", "to": "server"}]
        return found | {"bridges": [{"name": "cell", "rate": rate}], "links": links}


SCENES = {
    Extent.TINY: [Scene("2 links", Cell("", 20, 50_000, links=2, latency_ms=1, repeat=1))],
    Extent.QUICK: [
        Scene("4 links", Cell("", 10, 1_000_000, links=4, latency_ms=5, repeat=2)),
        Scene("a cell of 5", Cell("", 10, 1_000_000, links=5, latency_ms=5, repeat=2), 50),
    ],
    Extent.FULL: [
        Scene("1 link", Cell("", 10, 1_000_000, links=1, repeat=10)),
        Scene("1 link", Cell("", 100, 10_000_000, links=1, repeat=10)),
        Scene("4 links", Cell("", 10, 1_000_000, links=4, repeat=5)),
        Scene("4 links", Cell("", 10, 1_000_000, links=4, latency_ms=5, repeat=5)),
        Scene("8 links", Cell("", 10, 2_000_000, links=8, latency_ms=20, repeat=3)),
        Scene("a cell of 5", Cell("", 10, 1_000_000, links=5, latency_ms=5, repeat=5), 50),
    ],
}
LATENESS = {
    Extent.TINY: Scene("2 hosts", Cell("", 20, 50_000, links=2, latency_ms=1, repeat=1)),
    Extent.QUICK: Scene("8 hosts", Cell("", 10, 1_000_000, links=8, latency_ms=30, repeat=2)),
    Extent.FULL: Scene("8 hosts", Cell("", 10, 5_000_000, links=8, latency_ms=30, repeat=3)),
}


def in_lab(scene: Scene) -> tuple[dict[str, list[Shot]], dict[str, Any] | None]:
    """Run the rounds in a lab; return the transfers by direction, and the counts of the relay."""
    cell = scene.cell
    say(f"lab: {scene.name}, {cell.name}, {cell.repeat} rounds")
    numbers = [str(cell.repeat), str(cell.size)]
    with Lab(scene.topology(), name="agreement") as lab:
        server = lab.host("server").start(
            [sys.executable, "-c", SERVER, str(cell.links), *numbers],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(1, cell.links + 1):
            lab.host(f"edge-{number}").start([sys.executable, "-c", CLIENT, *numbers])
        out, _ = server.communicate(timeout=PATIENCE_S)
        if server.returncode:
            raise BadValue(f"the server of the lab ended with status {server.returncode}")
        relay = lab.relay()
    rows = json.loads(out)
    found = {
        direction: [Shot(row[place] / 1e6, cell.ideal_ms) for row in rows]
        for place, direction in enumerate(DIRECTIONS, 1)
    }
    return found, relay


def agreement_rows(scene: Scene) -> Iterator[Row]:
    """Completion times of both, and how far their medians are apart."""
    cell, name = scene.cell, f"{scene.name}, {scene.cell.name}"
    try:
        kernel, _ = in_lab(scene)
    except BadValue as error:
        yield Row(f"{name}, lab", f"not measured: {error}")
        return
    seen = measure(cell, more=scene.config())
    for direction in DIRECTIONS:
        app = [
            shot
            for shot, row in zip(shots(cell, seen), seen.links, strict=True)
            if row["direction"] == direction
        ]
        middle = [median(shot.error_percent for shot in each) for each in (app, kernel[direction])]
        yield Row(
            f"{name}, {direction}: links against lab", abs(middle[0] - middle[1]), "%", AGREE_GOAL
        )
        yield from error_rows(f"{name}, {direction}, links", app, Bound())
        yield from error_rows(
            f"{name}, {direction}, lab", kernel[direction], Bound() if cell.latency_ms else G7
        )


def lateness_rows(scene: Scene) -> Iterator[Row]:
    """Whether 99 % of the frames of each link leave the relay less than 1 ms late."""
    name = f"relay, {scene.name}, {scene.cell.name}"
    try:
        _, relay = in_lab(scene)
    except BadValue as error:
        yield Row(name, f"not measured: {error}")
        return
    if relay is None:
        yield Row(name, "not needed: the kernel has netem")
        return
    lines = [line for ways in relay["links"].values() for line in ways.values()]
    late = [line["late_ms"] for line in lines]
    yield Row(f"{name}: frames", sum(line["frames"] for line in lines))
    yield Row(f"{name}: late, p99 of the worst link", max(e["p99"] for e in late), "ms", LATE_GOAL)
    yield Row(f"{name}: late, p50 of the worst link", max(e["p50"] for e in late), "ms")
    yield Row(f"{name}: late, most", max(e["max"] for e in late), "ms")
    yield Row(f"{name}: waited to be read, p99 at most", relay["turn_ms"]["p99"], "ms")
    yield Row(f"{name}: real-time priority", "yes" if relay["real_time_priority"] else "no")


def main() -> None:
    parser = arguments(__doc__)
    shorter = parser.add_mutually_exclusive_group()
    for extent, words in ((Extent.QUICK, "two scenes"), (Extent.TINY, "one scene, a few bytes")):
        shorter.add_argument(
            f"--{extent.name.lower()}",
            dest="extent",
            action="store_const",
            const=extent,
            help=f"{words}; ignore the goals" if extent == Extent.TINY else words,
        )
    parser.set_defaults(extent=Extent.FULL)
    options, host = parser.parse_args(), host_line()
    rows = [row for scene in SCENES[options.extent] for row in agreement_rows(scene)]
    rows += lateness_rows(LATENESS[options.extent])
    title = "The same links in the app and in the kernel"
    report(title, host, [*rows, Row("load after", float(load()))], options.json)


if __name__ == "__main__":
    run(main)
