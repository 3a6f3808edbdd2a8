"""Broadcasts: one transfer in the slots of a TDMA channel, heard by many edges."""

from __future__ import annotations

from edgefl.hosts.setup.network import ALL
from emulator.links.network import Network, Transfer
from emulator.tdma.channel import ChannelLink


def offer(
    network: Network, number: int, sizes: list[int], slots: tuple[int, ...], now: int
) -> Transfer:
    """Put it on the channel. The receivers' ``sizes`` may differ by a digit of their tasks'
    numbers: the largest counts.
    """
    transfer = Transfer(number, ALL, "down", max(sizes), "task")
    network.offer(transfer, now)
    network.grant(transfer, slots, now)
    return transfer


def heard_ns(network: Network, edge: str, sent_ns: int) -> int:
    """When ``edge`` makes use of what left the channel at ``sent_ns``: at the first border of a
    slot after it has arrived there.
    """
    link = network.link(edge, "down")
    assert isinstance(link, ChannelLink)
    grid = link.channel.grid
    return grid.begins(grid.next_at(link.delay.arrival(sent_ns)))
