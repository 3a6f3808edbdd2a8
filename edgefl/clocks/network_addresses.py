"""Network addresses as text: an IPv6 address has brackets where a port follows, and only there."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

ANY, ANY_IPV6 = "0.0.0.0", "::"  # the latter listens for IPv4, too


def bare(host: str) -> str:
    """Return ``host`` without the brackets of an IPv6 address."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def tcp(host: str, port: int | str) -> str:
    """Return ``tcp://HOST:PORT``; ``host`` with or without brackets."""
    host = bare(host)
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def split_tcp(address: str) -> tuple[str, int] | None:
    """Return host (without brackets) and port of ``tcp://HOST:PORT``; None if it is not one."""
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    bracketed = bare(host) != host
    if scheme != "tcp" or not bare(host) or not (port.isascii() and port.isdigit()):
        return None
    if bracketed != (":" in host):
        return None  # without brackets, the port could be a part of the address
    return bare(host), int(port)


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach ``host``.

    Any name other than localhost counts as reachable from other machines.
    """
    try:
        return ipaddress.ip_address(bare(host)).is_loopback
    except ValueError:
        return host == "localhost"


def needs_ipv6(host: str) -> bool:
    """Whether ``host`` has no IPv4 address, as far as this machine knows.

    A name may have both: then IPv4 is used, because a coordinator listens on it by default.
    """
    host = bare(host)
    if ":" in host:
        return True
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        pass
    else:
        return False
    try:
        found = {entry[0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False  # libzmq reports it, or tries again; it also knows names of interfaces
    return socket.AF_INET6 in found and socket.AF_INET not in found


def any_host(addresses: Iterable[str]) -> str:
    """Return where to listen so that all of these addresses of this machine are reached."""
    return ANY_IPV6 if any(":" in address for address in addresses) else ANY
