"""Addresses of IPv4 and IPv6 as text."""

from __future__ import annotations

import pytest

from edgefl.clocks.network_addresses import needs_ipv6, split_tcp, tcp


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1", "tcp://127.0.0.1:7700"),
        ("::1", "tcp://[::1]:7700"),
        ("[::1]", "tcp://[::1]:7700"),
        ("fe80::1%eth0", "tcp://[fe80::1%eth0]:7700"),
        ("pi-3.local", "tcp://pi-3.local:7700"),
    ],
)
def test_an_ipv6_address_has_brackets_in_front_of_a_port(host: str, text: str) -> None:
    assert tcp(host, 7700) == text
    assert split_tcp(text) == (host.strip("[]"), 7700)


@pytest.mark.parametrize(
    "text",
    [
        "tcp://::1:7700",
        "tcp://[::1]",
        "tcp://[127.0.0.1]:7700",
        "tcp://:7700",
        "tcp://[]:7700",
        "tcp://host:",
        "tcp://host:port",
        "udp://host:1",
        "host:1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    assert split_tcp(text) is None


def test_a_name_with_both_kinds_of_addresses_uses_ipv4() -> None:
    assert needs_ipv6("::1") and needs_ipv6("[fd00::1]")
    assert not any(map(needs_ipv6, ("127.0.0.1", "localhost", "no such host", "*")))
