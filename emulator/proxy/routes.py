"""The routes of a proxy: addresses, and the link of each device."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.capacity import Capacity
from emulator.delay import Delay
from emulator.errors import BadValue

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
