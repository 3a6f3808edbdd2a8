"""Finding a coordinator by mDNS: which one is chosen, and real announcements over loopback."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from ipaddress import IPv4Network, IPv6Network
from types import SimpleNamespace

import pytest

from edgefl import __version__
from edgefl.errors import UserError
from edgefl.plugins import discovery
from edgefl.plugins.discovery import (
    Announced,
    Announcement,
    addresses_of,
    choose,
    discover,
    read,
)
from edgefl.protocol.messages import PROTOCOL, Refused, Unreachable

LAB = Announced(
    "digits@lab", "digits", str(PROTOCOL), __version__, True, ("192.0.2.10", "198.51.100.1"), 7700
)
DESK = replace(LAB, label="digits@desk", addresses=("192.0.2.11",), port=7701)
WORDS = replace(LAB, label="words@desk", experiment="words", port=7702)
TEXTS = {"experiment": "digits", "protocol": str(PROTOCOL), "version": __version__, "keys": "1"}


# ------------------------------------------------------------------ decisions


@pytest.mark.parametrize(("name", "found"), [("words", WORDS), ("digits@lab", LAB)])
def test_a_name_is_that_of_an_experiment_or_of_one_announcement(
    name: str, found: Announced
) -> None:
    assert choose([LAB, DESK, WORDS], name, keyed=True) is found


def test_several_are_listed_with_how_to_choose_one() -> None:
    with pytest.raises(UserError) as refusal:
        choose([LAB, WORDS, DESK], "digits", keyed=True)
    assert str(refusal.value) == (
        "--discover: 2 coordinators announce themselves: 'digits@desk' (tcp://192.0.2.11:7701),"
        " 'digits@lab' (tcp://192.0.2.10:7700): choose one, for example --discover digits@desk"
    )


@pytest.mark.parametrize(
    ("announced", "keyed", "reason"),
    [
        (LAB, False, "it requires keys (--keys DIR)"),
        (replace(LAB, keyed=False), True, "it has no keys (omit --keys here"),
        (replace(LAB, version="9.9"), True, f"the coordinator has 9.9, this edge {__version__}"),
    ],
)
def test_an_edge_that_fits_none_is_told_why(announced: Announced, keyed: bool, reason: str) -> None:
    with pytest.raises(Refused) as refusal:
        choose([announced], "", keyed)
    text = str(refusal.value)
    assert text.startswith("--discover: this edge fits no coordinator: 'digits@lab' (tcp://")
    assert reason in text


def test_nothing_found_names_what_is_near() -> None:
    with pytest.raises(Unreachable, match=r"no coordinator announces itself on this network: "):
        choose([], "", keyed=True)
    with pytest.raises(Unreachable, match=r"announces 'digit' on this network \(nearest: 'digits'"):
        choose([LAB, WORDS], "digit", keyed=True)


@pytest.mark.parametrize(
    ("networks", "address"),
    [
        (["198.51.100.0/24"], "tcp://198.51.100.1:7700"),
        (["10.0.0.0/8"], "tcp://192.0.2.10:7700"),  # over a router
    ],
)
def test_the_address_in_an_own_network_is_preferred(networks: list[str], address: str) -> None:
    assert LAB.address([IPv4Network(network) for network in networks]) == address


# ------------------------------------------------------------------ what comes over the network


@pytest.mark.parametrize(
    ("texts", "addresses", "port"),
    [
        ({}, ["192.0.2.10"], 7700),
        (TEXTS | {"experiment": None}, ["192.0.2.10"], 7700),
        (TEXTS | {"keys": "maybe"}, ["192.0.2.10"], 7700),
        (TEXTS, ["fe80::1"], 7700),
        (TEXTS, ["192.0.2.10"], None),
    ],
)
def test_what_is_no_announcement_of_a_coordinator_is_ignored(
    texts: dict[str, str | None], addresses: list[str], port: int | None
) -> None:
    assert read("x", texts, addresses, port) is None


def test_texts_from_the_network_are_made_printable_and_short() -> None:
    found = read("\x1b[2J" + "l" * 1000, TEXTS | {"experiment": "e\n\x07" * 1000}, ["192.0.2.1"], 1)
    assert found is not None
    for text in (found.label, found.experiment):
        assert text.isprintable() and len(text) <= 100


# ------------------------------------------------------------------ real announcements
@cache
def no_multicast() -> str:
    """The reason why loopback carries no multicast here; '' if it does."""
    try:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            receiver.bind(("", 0))
            member = struct.pack("=4s4s", *map(socket.inet_aton, ("224.0.0.251", "127.0.0.1")))
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            receiver.settimeout(2.0)
            own = socket.inet_aton("127.0.0.1")
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
            sender.sendto(b"?", ("224.0.0.251", receiver.getsockname()[1]))
            receiver.recv(1)
    except OSError as error:
        return f"no multicast on loopback: {error}"
    return ""


@contextmanager
def announced(*names: str, keyed: bool = False) -> Iterator[None]:
    """Announce runs of these experiments on ports 7700, 7701, ... of loopback.

    The block begins once the network knows all of them: a name that is taken is asked for again,
    which takes longer than a search waits for a second coordinator.
    """
    with ExitStack() as ends:
        for port, name in enumerate(names, 7700):
            one = Announcement(name, "127.0.0.1", keyed)
            ends.callback(one.close)
            for _ in range(3):
                assert one.listening(port) is None
            assert one._future is not None
            one._future.result(timeout=60.0)
        yield


@pytest.fixture
def multicast() -> None:
    if no_multicast():
        pytest.skip(no_multicast())


@pytest.mark.processes
@pytest.mark.usefixtures("multicast")
def test_an_announced_coordinator_is_found_until_it_withdraws() -> None:
    with announced("found.it"):
        its_label, address = discover("found.it", keyed=False, patience_s=30.0)
    assert its_label.startswith("found-it@") and address == "tcp://127.0.0.1:7700"
    with pytest.raises(Unreachable, match="no coordinator announces 'found.it'"):
        discover("found.it", keyed=False, patience_s=0.5)


@pytest.mark.processes
@pytest.mark.usefixtures("multicast")
def test_two_of_one_name_get_two_labels_and_either_can_be_chosen() -> None:
    with announced("twice", "twice"):
        with pytest.raises(UserError, match="--discover: 2 coordinators announce") as refusal:
            discover("twice", keyed=False, patience_s=30.0)
        second = str(refusal.value).split("'")[3]
        found, address = discover(second, keyed=False, patience_s=30.0)
    assert found == second and second.endswith("-2") and address.startswith("tcp://127.0.0.1:770")


@pytest.mark.parametrize("host", ["no such host", "[192.0.2.1]:5"])
def test_a_host_that_is_no_address_is_refused(host: str) -> None:
    with pytest.raises(UserError, match="--announce: network.host .* expected an address"):
        addresses_of(host)


def test_a_coordinator_on_all_addresses_announces_no_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interfaces(*addresses: str) -> None:
        found = {
            each: [SimpleNamespace(family=socket.AF_INET, address=each, netmask="255.0.0.0")]
            for each in addresses
        }
        monkeypatch.setattr(discovery.psutil, "net_if_addrs", lambda: found)

    interfaces("127.0.0.1", "192.0.2.10", "10.0.0.1")
    assert addresses_of("0.0.0.0") == ["192.0.2.10", "10.0.0.1"]
    interfaces("127.0.0.1")
    assert addresses_of("0.0.0.0") == ["127.0.0.1"]


def test_an_ipv6_address_is_announced_and_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = "ffff:ffff:ffff:ffff::"
    found = {
        "eth0": [
            SimpleNamespace(family=socket.AF_INET6, address="2001:db8::7", netmask=mask),
            SimpleNamespace(family=socket.AF_INET6, address="fe80::1%eth0", netmask=mask),
            SimpleNamespace(family=socket.AF_INET, address="192.0.2.10", netmask="255.255.255.0"),
        ]
    }
    monkeypatch.setattr(discovery.psutil, "net_if_addrs", lambda: found)
    assert addresses_of("::1") == addresses_of("[::1]") == ["::1"]
    assert addresses_of("::") == ["192.0.2.10", "2001:db8::7"]
    assert addresses_of("0.0.0.0") == ["192.0.2.10"]
    both = read("x", TEXTS, ["192.0.2.10", "2001:db8::7", "fe80::1"], 7700)
    assert both is not None and both.addresses == ("192.0.2.10", "2001:db8::7")
    assert both.address([IPv6Network("2001:db8::/64")]) == "tcp://[2001:db8::7]:7700"
    assert both.address([IPv4Network("192.0.2.0/24")]) == "tcp://192.0.2.10:7700"


def test_without_zeroconf_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    with pytest.raises(UserError, match=r"--announce needs the package 'zeroconf'.*\[disc"):
        Announcement("x", "127.0.0.1", keyed=False)
    with pytest.raises(UserError, match=r"--discover needs the package 'zeroconf'.*\[disc"):
        discovery.check_installed("--discover")
