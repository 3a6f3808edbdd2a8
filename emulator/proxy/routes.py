"""The routes of a proxy: addresses, and the link of each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emulator.capacity import Capacity
from emulator.capacity.rates import Constant, Lowest
from emulator.delay import Delay, delay_of
from emulator.errors import BadValue
from emulator.links.loss import Lossy
from emulator.profiles import LINKS, link_profile

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ProxyWay:
    """One direction of a link; with capacity None it is not shaped."""

    capacity: Capacity | None
    delay: Delay


@dataclass(frozen=True, slots=True)
class Route:
    """One device: connections to ``listen`` reach ``to`` over the link of this device.

    Port 0 of ``listen`` means any free port.
    """

    listen: Address
    to: Address
    up: ProxyWay
    down: ProxyWay

    def __post_init__(self) -> None:
        if self.listen == self.to and self.to[1]:
            raise BadValue(
                f"map {address_text(self.listen)}: LISTEN and TO are equal, so the proxy would"
                " connect to itself"
            )
        if self.to[1] == 0:
            raise BadValue(
                f"to {address_text(self.to)}: expected the port of a program, 1 to 65535"
            )


def proxy_ways(
    profile: str | None,
    said: Mapping[str, str | None],
    seed: int = 0,
    traces: Sequence[Capacity | None] = (None, None),
) -> tuple[ProxyWay, ProxyWay]:
    """Both directions (up, down) of a link.

    They are those of ``profile`` with what is ``said`` of up, down, latency, jitter and loss; what
    is not said and has no profile is not emulated. A trace of a direction replaces the rate of the
    profile; a rate that is said caps it. The jitters have the seeds ``seed`` and ``seed`` + 1.
    """
    # Without a profile, any profile serves to parse the texts.
    link = link_profile(profile or next(iter(LINKS)), **said)

    def told(key: str) -> bool:
        return bool(profile) or said.get(key) is not None

    latency_ns = link.latency_ns if told("latency") else 0
    jitter_ns = link.jitter_ns if told("jitter") else 0
    loss = link.loss if told("loss") else 0.0
    ways = []
    for number, (key, rate_bit_s) in enumerate((("up", link.up_bit_s), ("down", link.down_bit_s))):
        capacity: Capacity | None = Constant(rate_bit_s) if told(key) else None
        trace = traces[number]
        if trace is not None:
            capped = capacity is not None and said.get(key) is not None
            capacity = Lowest(capacity, trace) if capacity is not None and capped else trace
        if loss and capacity is None:
            raise BadValue(
                "loss: needs a rate in each direction, because it lowers the rate (up and down,"
                " traces or a profile)"
            )
        if loss and capacity is not None:
            capacity = Lossy(capacity, loss, 2 * latency_ns)
        ways.append(ProxyWay(capacity, delay_of(latency_ns, jitter_ns, seed + number)))
    return ways[0], ways[1]


def parse_address(text: str, what: str) -> Address:
    """Parse '127.0.0.1:9000', 'localhost:9000' or '[::1]:9000' to (host, port)."""
    host, colon, port = text.strip().rpartition(":")
    host = (
        host.removeprefix("[").removesuffix("]")
        if host.startswith("[") and host.endswith("]")
        else host
    )
    bare_ipv6 = ":" in host and not text.strip().startswith("[")
    if (
        not colon
        or not host
        or bare_ipv6
        or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535)
    ):
        raise BadValue(f"{what} {text!r}: expected HOST:PORT, such as 127.0.0.1:9000 or [::1]:9000")
    return host, int(port)


def parse_map(text: str) -> tuple[Address, Address]:
    """Parse '127.0.0.1:9000=127.0.0.1:8000' to (where to listen, where to connect)."""
    listen, equals, to = text.partition("=")
    if not equals:
        raise BadValue(f"map {text!r}: expected LISTEN=TO, such as 127.0.0.1:9000=127.0.0.1:8000")
    return parse_address(listen, "listen"), parse_address(to, "to")


def address_text(address: Address) -> str:
    """Format ``address`` in the form that ``parse_address`` reads."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
