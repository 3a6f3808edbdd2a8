"""Find a coordinator on the local network by multicast DNS (zeroconf, DNS-SD).

A coordinator announces its experiment, its versions and whether it requires keys. An announcement
is a hint and proves nothing: anyone on the network can send one. The keys decide whom an edge
trusts, after it has connected.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import time
from asyncio import run_coroutine_threadsafe
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil

from edgefl import __version__
from edgefl.clocks.network_addresses import ANY, ANY_IPV6, bare, is_loopback, needs_ipv6, tcp
from edgefl.clocks.wall.wire import KEYS_FOR_NOTHING, KEYS_REQUIRED
from edgefl.commands import show
from edgefl.errors import UserError, nearest, needs, printable
from edgefl.protocol.messages import PROTOCOL, Refused, Unreachable

if TYPE_CHECKING:
    from zeroconf import ServiceInfo, Zeroconf

    from edgefl.config.experiment import Experiment

EXTRA = "discover"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
SERVICE = "_edgefl._tcp.local."
EVERY_ADDRESS = (ANY, "*", ANY_IPV6)
MOST_LABEL_BYTES = 63  # of one label in DNS
MOST_TEXT = 100  # characters of a text from an announcement
MOST_SERVICES = 100  # anyone can announce, and each may take RESOLVE_MS
# after the first coordinator was found: time for the others to answer
SETTLE_S = 1.0
LOOK_EVERY_S = 0.1
RESOLVE_MS = 300


@dataclass(frozen=True, slots=True)
class Announced:
    """A coordinator's announcement: its label on the network, and its content.

    ``protocol`` and ``version`` are those of the coordinator, ``keyed``: it requires keys.
    """

    label: str
    experiment: str
    protocol: str
    version: str
    keyed: bool
    addresses: tuple[str, ...]
    port: int

    @property
    def shown(self) -> str:
        return f"{self.label!r} ({tcp(self.addresses[0], self.port)})"

    def fault(self, keyed: bool) -> str | None:
        """Why this edge cannot join, as far as the announcement says; None if it may try.

        ``keyed``: this edge has keys.
        """
        for what, theirs, ours in (
            ("protocol version", self.protocol, str(PROTOCOL)),
            ("edgefl version", self.version, __version__),
        ):
            if theirs != ours:
                return f"{what}: the coordinator has {theirs}, this edge {ours}"
        if self.keyed != keyed:
            return KEYS_REQUIRED if self.keyed else KEYS_FOR_NOTHING
        return None

    def address(self, networks: Sequence[Network]) -> str:
        """Return the address to connect to: one in this machine's ``networks`` if there is one."""
        near = [
            each
            for each in self.addresses
            if any(ipaddress.ip_address(each) in network for network in networks)
        ]
        return tcp((near or self.addresses)[0], self.port)


def choose(found: Sequence[Announced], name: str, keyed: bool) -> Announced:
    """Return the coordinator to join.

    ``name``: that of an experiment or a label; "": any. Unreachable if there is none, Refused if
    this edge fits none of them, UserError if it fits several.
    """
    named = [each for each in found if name in ("", each.experiment, each.label)]
    if not named:
        others = sorted({each.experiment for each in found})
        what = f"no coordinator announces {name!r}" if name else "no coordinator announces itself"
        hint = nearest(name, others) or ": edgefl coordinator --announce does that"
        raise Unreachable(f"--discover: {what} on this network{hint}")
    faults = {each: each.fault(keyed) for each in named}
    fitting = sorted((each for each in named if faults[each] is None), key=lambda each: each.label)
    if not fitting:
        reasons = "; ".join(f"{each.shown}: {fault}" for each, fault in faults.items())
        raise Refused(f"--discover: this edge fits no coordinator: {reasons}")
    if len(fitting) > 1:
        listed = ", ".join(each.shown for each in fitting)
        raise UserError(
            f"--discover: {len(fitting)} coordinators announce themselves: {listed}: choose one,"
            f" for example --discover {fitting[0].label}"
        )
    return fitting[0]


def check_installed(option: str) -> None:
    """Raise UserError if zeroconf is not installed; ``option``: what needs it."""
    with needs(EXTRA, option):
        import zeroconf  # noqa: F401  # only whether it is there


# ------------------------------------------------------------------ the coordinator's end
class Announcement:
    """Announces a coordinator until ``close``, in a thread of zeroconf's.

    It belongs into the launcher's process: nothing may delay the process that paces the links.
    """

    def __init__(self, experiment: str, host: str, keyed: bool) -> None:
        """UserError if zeroconf is not installed, or this machine has no such address."""
        check_installed("--announce")
        from zeroconf import InterfaceChoice, IPVersion, Zeroconf

        self._addresses = addresses_of(host)
        self._texts = {
            "experiment": experiment,
            "protocol": str(PROTOCOL),
            "version": __version__,
            "keys": str(int(keyed)),
        }
        self._future: Future[Any] | None = None
        everywhere = host in EVERY_ADDRESS
        try:
            over_ipv4 = [each for each in self._addresses if ":" not in each]
            self._zeroconf = Zeroconf(
                InterfaceChoice.All if everywhere or not over_ipv4 else over_ipv4,
                ip_version=IPVersion.V4Only,
            )
        except OSError as error:
            raise UserError(f"--announce: no multicast on {host} ({error.strerror})") from error

    def listening(self, port: int) -> str | None:
        """The coordinator listens on ``port``: announce it, once. It does not wait.

        Returns why it failed, once it has.
        """
        if self._future is None:
            from zeroconf import ServiceInfo

            machine = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname().partition(".")[0])
            info = ServiceInfo(
                SERVICE,
                f"{label(self._texts['experiment'], machine)}.{SERVICE}",
                port,
                properties=self._texts,
                server=f"edgefl-{port}-{machine[:40]}.local.",
                parsed_addresses=self._addresses,
            )
            assert self._zeroconf.loop is not None
            self._future = run_coroutine_threadsafe(
                self._zeroconf.async_register_service(info, allow_name_change=True),
                self._zeroconf.loop,
            )
        error = self._future.exception() if self._future.done() else None
        return None if error is None else f"--announce: {type(error).__name__}: {error}"

    def close(self) -> None:
        """Withdraw the announcement."""
        self._zeroconf.close()


@contextmanager
def announced(experiment: Experiment, keyed: bool) -> Iterator[Callable[[int], None]]:
    """Announce the run on the local network from when its coordinator listens until the block ends.

    Yields what is called again and again with the coordinator's port. UserError if announcing is
    not possible. A failure during the run is one warning.
    """
    announcement, told = Announcement(experiment.name, experiment.network.host, keyed), ""

    def listening(port: int) -> None:
        nonlocal told
        failure = announcement.listening(port)
        if failure and failure != told:
            told = failure
            show.warning(failure)

    try:
        yield listening
    finally:
        announcement.close()


def label(experiment: str, machine: str) -> str:
    """Return the label of an announcement: ``EXPERIMENT@MACHINE``, without dots, which DNS splits.

    The machine's name is cut, because a label is short.
    """
    name = experiment.replace(".", "-")[: MOST_LABEL_BYTES - 9]
    return f"{name}@{machine}"[: MOST_LABEL_BYTES - 3]  # "-2" may follow if the name is taken


def addresses_of(host: str) -> list[str]:
    """Return the addresses on which a coordinator with this ``network.host`` is reached.

    Those of IPv4 come first. UserError if there are none.
    """
    host = bare(host)
    if host in EVERY_ADDRESS:
        every = [each.ip for each in _interfaces() if each.version == 4 or host == ANY_IPV6]
        own = [str(each) for each in every]
        return [each for each in own if not is_loopback(each)] or own
    family = socket.AF_INET6 if needs_ipv6(host) else socket.AF_INET
    try:
        (*_, where), *_ = socket.getaddrinfo(host, None, family, socket.SOCK_STREAM)
    except OSError as error:
        raise UserError(
            f"--announce: network.host {host!r}: expected an address of this machine, {ANY} or"
            f" {ANY_IPV6} ({error.strerror})"
        ) from error
    return [str(where[0])]


def _interfaces() -> list[ipaddress.IPv4Interface | ipaddress.IPv6Interface]:
    """The addresses of this machine with their networks, IPv4 first, without link-local ones.

    A link-local address has a meaning only together with an interface of its own machine.
    """
    found: list[ipaddress.IPv4Interface | ipaddress.IPv6Interface] = []
    for entries in psutil.net_if_addrs().values():
        for each in entries:
            if each.family is socket.AF_INET:
                found.append(ipaddress.IPv4Interface(f"{each.address}/{each.netmask or 32}"))
            elif each.family is socket.AF_INET6 and "%" not in each.address:
                mask = int(ipaddress.IPv6Address(each.netmask)) if each.netmask else (1 << 128) - 1
                found.append(ipaddress.IPv6Interface(f"{each.address}/{mask.bit_count()}"))
    return sorted(found, key=lambda each: each.version)


# ------------------------------------------------------------------ the edge's end
def finder(name: str, keyed: bool) -> Callable[[float], tuple[str, str]]:
    """Return what looks for a coordinator: ``discover`` of the patience in seconds.

    UserError if zeroconf is not installed.
    """
    check_installed("--discover")
    return partial(discover, name, keyed)


def discover(name: str, keyed: bool, patience_s: float) -> tuple[str, str]:
    """Look for a coordinator for up to ``patience_s``, and return its label and address.

    ``name`` and errors: see ``choose``.
    """
    until_s = time.monotonic() + patience_s
    with _browsing() as (zeroconf, names):
        while not any(
            name in ("", each.experiment, each.label) for each in _found(zeroconf, names)
        ):
            if time.monotonic() > until_s:
                break
            time.sleep(LOOK_EVERY_S)
        else:
            time.sleep(SETTLE_S)
        chosen = choose(_found(zeroconf, names), name, keyed)
    return chosen.label, chosen.address([each.network for each in _interfaces()])


@contextmanager
def _browsing() -> Iterator[tuple[Zeroconf, dict[str, ServiceInfo | None]]]:
    """Browse until the block ends: names of services, and what ``_found`` knows about them."""
    from zeroconf import InterfaceChoice, IPVersion, ServiceBrowser, ServiceStateChange
    from zeroconf import Zeroconf as Socket

    names: dict[str, ServiceInfo | None] = {}

    def changed(name: str, state_change: ServiceStateChange, **_: Any) -> None:
        if state_change is ServiceStateChange.Removed:
            names.pop(name, None)
        elif len(names) < MOST_SERVICES:
            names[name] = None  # what is known of it may be out of date

    try:
        zeroconf = Socket(InterfaceChoice.All, ip_version=IPVersion.V4Only)
    except OSError as error:
        raise Unreachable(f"--discover: no multicast on this machine ({error.strerror})") from error
    try:
        ServiceBrowser(zeroconf, SERVICE, handlers=[changed])
        yield zeroconf, names
    finally:
        zeroconf.close()


def _found(zeroconf: Zeroconf, names: dict[str, ServiceInfo | None]) -> list[Announced]:
    found = []
    for name in list(names):
        info = names.get(name) or zeroconf.get_service_info(SERVICE, name, RESOLVE_MS)
        if info is not None:
            names[name] = info
            announced = read(
                name.removesuffix(f".{SERVICE}"),
                info.decoded_properties,
                info.parsed_addresses(),
                info.port,
            )
            found += [] if announced is None else [announced]
    return found


def read(
    its_label: str, texts: Mapping[str, str | None], addresses: Sequence[str], port: int | None
) -> Announced | None:
    """Check what came over the network; None if it is not a coordinator's announcement."""
    shown = {
        key: printable(texts.get(key) or "", MOST_TEXT)
        for key in ("experiment", "protocol", "version", "keys")
    }
    usable = []
    for each in addresses:
        try:
            address = ipaddress.ip_address(each)
        except ValueError:
            continue
        if address.version == 4 or not address.is_link_local:  # see ``_interfaces``
            usable.append(str(address))
    if not (port and usable and shown["experiment"] and shown["keys"] in ("0", "1")):
        return None
    return Announced(
        printable(its_label, MOST_TEXT),
        shown["experiment"],
        shown["protocol"],
        shown["version"],
        shown["keys"] == "1",
        tuple(usable),
        port,
    )
