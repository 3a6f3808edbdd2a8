"""A TDMA channel with round numbers."""

from __future__ import annotations

from emulator.delay.latency import Latency
from emulator.links.network import Network, Transfer
from emulator.tdma.channel import Channel
from emulator.tdma.slot_curve import Grid
from emulator.units import FOREVER, NS_PER_S

MS = NS_PER_S // 1000
BYTE_PER_MS = 8_000  # in bit/s, so that a size in bytes equals its time in milliseconds


def network(channel: Channel, delay_ns: int = 0, edges: str = "ab") -> Network:
    """Return a network in which every edge has an uplink and a downlink."""
    net = Network()
    for edge in edges:
        for direction in ("up", "down"):
            net.add_link(edge, direction, channel.link(Latency(delay_ns)))
    return net


def transfer(number: int, size: int, edge: str = "a", direction: str = "up") -> Transfer:
    return Transfer(number, edge, direction, size, "update")


def due(net: Network, now: int = FOREVER) -> list[tuple[int, int]]:
    return [(completion.transfer.number, completion.due_ns) for completion in net.pop_due(now)]


def ten(guard_ms: int = 0, **more: object) -> Channel:
    """Return a channel with slots of 10 ms."""
    return Channel(Grid(10 * MS, guard_ms * MS, frame_slots=4), BYTE_PER_MS, **more)
