"""The routes of a proxy: addresses, and the link of each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emulator.capacity import Capacity
from emulator.capacity.rates import Constant, Lowest
from emulator.delay import Delay, Jitter, delay_of
from emulator.errors import BadValue
from emulator.links.loss import Lossy
from emulator.profiles import link_fields

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ProxyWay:
    """One direction of a link; with capacity None it is not shaped."""

    capacity: Capacity | None
    delay: Delay

    def __str__(self) -> str:
        lossy = self.capacity if isinstance(self.capacity, Lossy) else None
        whole, delay = lossy.capacity if lossy else self.capacity, self.delay
        rate = "not shaped" if whole is None else "by its trace"
        if isinstance(whole, Constant):
            rate = f"{whole.rate_bit_s / 1e6:g} Mbit/s"
        jitter = f" +- {delay.jitter_ns / 1e6:g} ms" if isinstance(delay, Jitter) else ""
        loss = f", loss {100 * lossy.loss:g} %" if lossy else ""
        return f"{rate}, {getattr(delay, 'delay_ns', 0) / 1e6:g} ms{jitter}{loss}"


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
    fields = link_fields(profile, **said)
    latency_ns, jitter_ns = fields.get("latency_ns", 0), fields.get("jitter_ns", 0)
    loss, ways = fields.get("loss", 0.0), []
    for number, (key, trace) in enumerate(zip(("up", "down"), traces)):
        rate_bit_s = fields.get(f"{key}_bit_s")
        capacity: Capacity | None = None if rate_bit_s is None else Constant(rate_bit_s)
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
