"""The ip and tc commands that make a link between this host and a network namespace.

This file only builds the commands; it does not run them.

    host: emulator7 (egress = down)
        ----- veth pair, or two taps with a relay between them -----
    namespace: emulator7own (egress = up)
"""

from __future__ import annotations

from dataclasses import dataclass

from emulator.errors import BadValue
from emulator.units import NS_PER_S, seconds_text

Argv = list[str]

FRAME_BYTES = 1514
"""Bytes that tc counts for a full segment: 1500 bytes of IP and the Ethernet header."""
PAYLOAD_BYTES = 1448
"""Payload of a full segment: 1500 less 20 (IP), 20 (TCP) and 12 (TCP timestamps)."""
LEAST_BURST_BYTES = 1600
"""A little more than one frame: with a burst of exactly one frame, tbf loses 3 % of its rate."""
QUEUE_FRAMES = 1000
NAMESPACES = 256
LEAST_RATE_BIT_S = 8  # tc uses whole bytes/s, and 0 means no rate
MAX_RATE_BIT_S = 100_000_000_000


@dataclass(frozen=True, slots=True)
class KernelWay:
    """One direction of a link: payload rate, one-way delay, its spread, and share of lost frames.

    With rate None it is not shaped.
    """

    rate_bit_s: int | None = None
    latency_ns: int = 0
    jitter_ns: int = 0
    loss: float = 0.0

    def __post_init__(self) -> None:
        if (
            self.rate_bit_s is not None
            and not LEAST_RATE_BIT_S <= self.rate_bit_s <= MAX_RATE_BIT_S
        ):
            raise BadValue(
                f"rate {self.rate_bit_s} bit/s: kernel mode supports {LEAST_RATE_BIT_S} bit/s to"
                " 100 gbit"
            )
        if self.latency_ns < 0 or self.jitter_ns < 0:
            raise BadValue(
                f"latency {self.latency_ns} ns, jitter {self.jitter_ns} ns: must not be negative"
            )
        if not 0 <= self.loss < 1:
            raise BadValue(f"loss {self.loss}: expected a share from 0 to below 1")

    @property
    def delays(self) -> bool:
        """Whether it needs latency, jitter or loss, which only netem or the relay can provide."""
        return bool(self.latency_ns or self.jitter_ns or self.loss)


@dataclass(frozen=True, slots=True)
class KernelShape:
    """Both directions of a link, and how it is made.

    ``shaper`` is htb or tbf; ``delay`` is netem, relay or none.
    """

    up: KernelWay
    down: KernelWay
    shaper: str = "htb"
    delay: str = "none"


@dataclass(frozen=True, slots=True)
class VethEnd:
    """One interface: its name, addresses, and the options of ip and tc for its namespace."""

    name: str
    address: str
    mac: str
    inside: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """The names of namespace ``number`` on this host and of its interfaces.

    The number determines all names, so it is enough to remove everything.
    """

    number: int

    @property
    def namespace(self) -> str:
        return f"emulator-{self.number}"

    @property
    def host(self) -> VethEnd:
        # 198.18.0.0/15 is reserved for measurements (RFC 2544), so no other network uses it.
        return VethEnd(
            f"emulator{self.number}",
            f"198.19.{self.number}.1",
            f"02:65:6d:75:{self.number:02x}:01",
            (),
        )

    @property
    def own(self) -> VethEnd:
        return VethEnd(
            f"emulator{self.number}own",
            f"198.19.{self.number}.2",
            f"02:65:6d:75:{self.number:02x}:02",
            ("-n", self.namespace),
        )


def framed_rate(rate_bit_s: int) -> int:
    """The rate for tc with which full segments carry ``rate_bit_s`` of payload, rounded up."""
    return -(-rate_bit_s * FRAME_BYTES // PAYLOAD_BYTES)


def burst_bytes(framed_bit_s: int) -> int:
    """The burst for tc: 1 ms of the rate, because kernel timers are late; at least one frame.

    A transfer may start with a burst of this size.
    """
    return max(-(-framed_bit_s // 8000), LEAST_BURST_BYTES)


def make(place: Place, shape: KernelShape, ipv6: bool = True) -> list[Argv]:
    """The commands that make the link.

    With a relay, both taps must exist on the host before. ``ipv6``: whether the kernel has it.
    """
    host, own, namespace = place.host, place.own, place.namespace
    steps = [["ip", "netns", "add", namespace]]
    if shape.delay == "relay":
        steps += [["ip", "link", "set", "dev", own.name, "netns", namespace]]
    else:
        pair = f"{host.name} type veth peer name {own.name} netns {namespace}"
        steps += [f"ip link add {pair}".split()]
    steps += [["ip", "-n", namespace, "link", "set", "dev", "lo", "up"]]
    steps += _end(host, own, shape.down, shape, ipv6)
    steps += _end(own, host, shape.up, shape, ipv6)
    return [*steps, ["ip", *own.inside, "route", "add", "default", "via", host.address]]


def remove(place: Place) -> list[Argv]:
    """The commands that remove the interfaces and the namespace.

    Qdiscs disappear with their interface, and a veth with its peer.
    """
    return [
        ["ip", "link", "del", "dev", place.host.name],
        ["ip", "link", "del", "dev", place.own.name],
        ["ip", "netns", "del", place.namespace],
    ]


def _end(
    end: VethEnd, other: VethEnd, way: KernelWay, shape: KernelShape, ipv6: bool
) -> list[Argv]:
    return [
        settings(end, bool(way.rate_bit_s is not None or way.loss), ipv6),
        *qdiscs(end, way, shape),
        ["ip", *end.inside, "address", "add", f"{end.address}/30", "dev", end.name],
        ["ip", *end.inside, "link", "set", "dev", end.name, "up"],
        neighbour(end, other),
    ]


def settings(end: VethEnd, whole: bool, ipv6: bool) -> Argv:
    """The command that sets MAC, MTU and queue of an interface.

    ``whole``: one frame per packet. A super-packet of 64 KB would leave or be lost as one unit, and
    would count with one header.
    """
    sizes = ["gso_max_size", str(FRAME_BYTES), "gso_max_segs", "1"] if whole else []
    # Without an IPv6 address there is no unwanted traffic in the shaped link.
    quiet = ["addrgenmode", "none"] if ipv6 else []
    device = ["ip", *end.inside, "link", "set", "dev", end.name, "address", end.mac]
    return [*device, "mtu", "1500", "txqueuelen", str(QUEUE_FRAMES), *sizes, *quiet]


def neighbour(end: VethEnd, other: VethEnd) -> Argv:
    """The command that tells ``end`` the MAC of ``other``, so the first packet needs no ARP."""
    entry = [other.address, "lladdr", other.mac, "nud", "permanent", "dev", end.name]
    return ["ip", *end.inside, "neighbour", "replace", *entry]


def qdiscs(end: VethEnd, way: KernelWay, shape: KernelShape) -> list[Argv]:
    """The tc commands of one direction, for the egress of ``end``.

    The shaper is at the root, and netem or a plain queue below it.
    """
    add = ["tc", *end.inside, "qdisc", "add", "dev", end.name]
    netem = netem_words(way) if shape.delay == "netem" and way.delays else []
    if way.rate_bit_s is None:
        return [[*add, "root", "handle", "10:", *netem]] if netem else []
    if shape.shaper == "tbf":
        steps = [[*add, "root", "handle", "1:", *bucket(way.rate_bit_s)]]
        return steps + ([[*add, "parent", "1:1", "handle", "10:", *netem]] if netem else [])
    parent = ["parent", "1:", "classid", "1:1"]
    add_class = ["tc", *end.inside, "class", "add", "dev", end.name]
    return [
        [*add, "root", "handle", "1:", "htb", "default", "1"],
        [*add_class, *parent, *htb_class(way.rate_bit_s)],
        [*add, "parent", "1:1", "handle", "10:", *(netem or queue())],
    ]


def queue() -> Argv:
    """A plain queue below an htb class, for tc."""
    return ["pfifo", "limit", str(QUEUE_FRAMES)]


def bucket(rate_bit_s: int) -> Argv:
    """tbf with the payload rate, for tc."""
    framed_bit_s = framed_rate(rate_bit_s)
    sizes = ["burst", str(burst_bytes(framed_bit_s)), "limit", str(QUEUE_FRAMES * FRAME_BYTES)]
    return ["tbf", "rate", f"{framed_bit_s}bit", *sizes]


def htb_class(rate_bit_s: int, ceil_bit_s: int | None = None) -> Argv:
    """An htb class with the payload rate, for tc; it may borrow up to ``ceil_bit_s``."""
    framed_bit_s = framed_rate(rate_bit_s)
    ceil = framed_rate(ceil_bit_s) if ceil_bit_s is not None else framed_bit_s
    burst = str(burst_bytes(ceil))
    rates = ["rate", f"{framed_bit_s}bit", "ceil", f"{ceil}bit", "burst", burst, "cburst", burst]
    return ["htb", *rates, "quantum", str(FRAME_BYTES)]


def netem_words(way: KernelWay) -> Argv:
    """netem with latency and loss, for tc."""
    # netem drops frames above its limit: make room for the queue and for all frames in flight,
    # even if all are acknowledgements.
    rate_bit_s = 10**9 if way.rate_bit_s is None else way.rate_bit_s
    flying = rate_bit_s * way.latency_ns // (8 * 64 * NS_PER_S)
    limit, delay = min(QUEUE_FRAMES + flying, 10**7), f"{seconds_text(way.latency_ns)}s"
    loss = f" loss {100 * way.loss:.6f}%" if way.loss else ""
    return f"netem limit {limit} delay {delay}{loss}".split()
