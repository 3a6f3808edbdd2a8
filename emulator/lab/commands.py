"""The ip, tc and bridge commands that make a lab and change its links.

Only ``carry_out`` runs commands, many in one call of ip, tc or bridge; the others build them.

Not modelled: other queue disciplines than a plain queue, and Ethernet's preamble and gap, which tc
does not count either. A link begins with a burst of 1 ms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from emulator.errors import BadValue
from emulator.lab.system import Argv, execute
from emulator.lab.topology import LEAST_RATE_BIT_S, KernelShape, KernelWay
from emulator.lab.wiring import LabEnd, Wire, Wiring
from emulator.units import NS_PER_S, seconds_text

FRAME_BYTES = 1514
"""Bytes that tc counts for a full segment: 1500 bytes of IP and the Ethernet header."""
PAYLOAD_BYTES = 1448
"""Payload of a full segment: 1500 less 20 (IP), 20 (TCP) and 12 (TCP timestamps)."""
LEAST_BURST_BYTES = 1600
"""A little more than one frame: with a burst of exactly one frame, tbf loses 3 % of its rate."""
QUEUE_FRAMES = 1000
"""Linux's own default (txqueuelen), so that a link queues as a plain host's does."""
_QUEUE = ["pfifo", "limit", str(QUEUE_FRAMES)]
_FORWARD = "echo 1 >/proc/sys/net/ipv4/ip_forward"
_ANY_WAY = "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$f; done"


def framed_rate(rate_bit_s: int) -> int:
    """The rate for tc with which full segments carry ``rate_bit_s`` of payload, rounded up."""
    return -(-rate_bit_s * FRAME_BYTES // PAYLOAD_BYTES)


def burst_bytes(framed_bit_s: int) -> int:
    """The burst for tc: 1 ms of the rate, because kernel timers are late; at least one frame.

    A transfer may start with a burst of this size.
    """
    return max(-(-framed_bit_s // 8000), LEAST_BURST_BYTES)


def build(wiring: Wiring, shapes: Mapping[str, KernelShape], ipv6: bool = True) -> list[Argv]:
    """The commands that make the lab; ``shapes`` by name of link.

    The taps of links with a relay must exist on this machine before.
    """
    steps: list[Argv] = []
    names, hosts = wiring.names, wiring.topology.hosts
    nodes = [host.name for host in hosts if not host.here]
    for node in [*nodes, *(bridge.name for bridge in wiring.topology.bridges)]:
        namespace = names.namespace(node)
        steps += [
            ["ip", "netns", "add", namespace],
            ["ip", "-n", namespace, "link", "set", "dev", "lo", "up"],
        ]
    for bridge, device in wiring.ports:
        inside = ["ip", "-n", names.namespace(bridge), "link"]
        quiet = ["stp_state", "0", "mcast_snooping", "0"]
        steps += [[*inside, "add", "name", device, "type", "bridge", *quiet]]
        if ipv6:  # before it is up: then it sends nothing of its own
            steps += [[*inside, "set", "dev", device, "addrgenmode", "none"]]
        steps += [[*inside, "set", "dev", device, "up"]]
    for wire in wiring.wires:
        steps += _join(wire, shapes[wire.link.name], ipv6)
    for ports in wiring.ports.values():
        for mac, port in ports:
            # Without it, a frame to a host that has sent nothing would load every link.
            entry = ["fdb", "replace", mac, "dev", port.name, "master", "static"]
            steps += [["bridge", *port.inside, *entry]]
    for host in hosts:
        steps += [step for _, step in paths(wiring, host.name)]
    inside_shell = [
        ["ip", "netns", "exec", names.namespace(router), "sh", "-c", f"{_FORWARD}; {_ANY_WAY}"]
        for router in wiring.routers
    ]
    return [*steps, *inside_shell]


def paths(wiring: Wiring, host: str) -> Iterator[tuple[LabEnd, Argv]]:
    """(interface, command) for the neighbours and routes of a host.

    They disappear when the interface goes down, and may be repeated when it is up again.
    """
    for own, far in wiring.neighbours[host]:
        # the MAC of its neighbour, so that the first packet needs no ARP
        entry = [far.address, "lladdr", far.mac, "nud", "permanent", "dev", own.name]
        yield own, ["ip", *own.inside, "neighbour", "replace", *entry]
    for route in wiring.routes[host]:
        near = route.own
        over = ["dev", near.name, "src", near.address]
        if route.next_hop.node != route.target:
            over = ["via", route.next_hop.address, *over, "onlink"]
        target = f"{wiring.addresses[route.target]}/32"
        yield near, ["ip", *near.inside, "route", "replace", target, *over]


def shaping(wire: Wire, shape: KernelShape) -> list[Argv]:
    """The tc commands of both directions, on interfaces without any."""
    return [step for end in (wire.lower, wire.upper) for step in _shaped(wire, end, shape)]


def change(wire: Wire, before: KernelShape, after: KernelShape) -> list[Argv]:
    """The tc commands that change both directions, in place where the queues can stay."""
    steps: list[Argv] = []
    for end in (wire.lower, wire.upper):
        old, new = _way(wire, end, before), _way(wire, end, after)
        if old == new:
            continue
        netem = after.delay == "netem"
        if (old.rate_bit_s is None) == (new.rate_bit_s is None) and (
            not netem or old.delays == new.delays
        ):
            steps += _shaped(wire, end, after, "change")
            continue
        if old.rate_bit_s is not None or (netem and old.delays):
            steps += [_root(end, "del")]
        steps += _shaped(wire, end, after)
    return steps


def cut(wire: Wire) -> list[Argv]:
    """The tc commands after which both ends lose all frames, though their interfaces are up."""
    return [_root(end, "replace", "blackhole") for end in (wire.lower, wire.upper)]


def mend(wire: Wire, shape: KernelShape) -> list[Argv]:
    """The tc commands that undo ``cut``."""
    return [*(_root(end, "del") for end in (wire.lower, wire.upper)), *shaping(wire, shape)]


def take_down(wire: Wire) -> list[Argv]:
    """The commands that switch the interfaces of both ends off."""
    return [_switch(end, "down") for end in (wire.lower, wire.upper)]


def bring_up(wiring: Wiring, wire: Wire) -> list[Argv]:
    """The commands that undo ``take_down``, with the routes that went."""
    steps = [_switch(end, "up") for end in (wire.lower, wire.upper)]
    for end in (wire.lower, wire.upper):
        if end.device is None:
            steps += [step for over, step in paths(wiring, end.node) if over == end]
    return steps


def _join(wire: Wire, shape: KernelShape, ipv6: bool) -> list[Argv]:
    ends = (wire.lower, wire.upper)
    if shape.delay == "relay":
        steps = [
            ["ip", "link", "set", "dev", end.made_as, *_netns(end), "name", end.name]
            for end in ends
            if end.inside
        ]
    else:
        lower, upper = ([end.name, *_netns(end)] for end in ends)
        steps = [["ip", "link", "add", "name", *lower, "type", "veth", "peer", "name", *upper]]
    # One frame per packet: a super-packet of 64 KB would leave or be lost as one unit, and would
    # count with one header.
    sizes = ["gso_max_size", str(FRAME_BYTES), "gso_max_segs", "1"]
    # Without an IPv6 address there is no unwanted traffic in the shaped link.
    quiet = ["addrgenmode", "none"] if ipv6 else []
    for end in ends:
        link = ["ip", *end.inside, "link", "set", "dev", end.name]
        queue = ["mtu", "1500", "txqueuelen", str(QUEUE_FRAMES)]
        steps += [[*link, "address", end.mac, *queue, *sizes, *quiet], *_shaped(wire, end, shape)]
        if end.device is not None:
            steps += [[*link, "master", end.device]]
        else:
            address = ["address", "add", f"{end.address}/32", "dev", end.name]
            steps += [["ip", *end.inside, *address]]
        steps += [_switch(end, "up")]
    return steps


def _netns(end: LabEnd) -> Argv:
    return ["netns", end.inside[1]] if end.inside else []


def _switch(end: LabEnd, to: str) -> Argv:
    return ["ip", *end.inside, "link", "set", "dev", end.name, to]


def _root(end: LabEnd, what: str, *words: str) -> Argv:
    return ["tc", *end.inside, "qdisc", what, "dev", end.name, "root", *words]


def _way(wire: Wire, end: LabEnd, shape: KernelShape) -> KernelWay:
    return shape.up if end is wire.lower else shape.down


def _shaped(wire: Wire, end: LabEnd, shape: KernelShape, verb: str = "add") -> list[Argv]:
    """The tc commands of one direction, for the egress of ``end``.

    The shaper is at the root, and netem or a plain queue below it. With ``verb`` "change" they
    change what differs by rates and delays, and leave the queues.
    """
    way, adds = _way(wire, end, shape), verb == "add"
    netem = _netem(way) if shape.delay == "netem" and way.delays else []
    on = ["tc", *end.inside]
    qdisc = [*on, "qdisc", verb, "dev", end.name]
    if way.rate_bit_s is None:
        return [[*qdisc, "root", "handle", "10:", *netem]] if netem else []
    below = [*qdisc, "parent", "1:1", "handle", "10:"]
    if shape.shaper == "tbf":
        bucket = [*qdisc, "root", "handle", "1:", *_bucket(way.rate_bit_s)]
        return [bucket, *([[*below, *netem]] if netem else [])]
    # a class for all; with sharers, below it one for other frames and one for each
    classes = [("1:1", "1:", _class(way.rate_bit_s))]
    count = len(wire.sharers) + 1 if wire.sharers else 0
    for number in range(2, 2 + count):
        share_bit_s = max(LEAST_RATE_BIT_S, way.rate_bit_s // count)
        classes.append((f"1:{number:x}", "1:1", _class(share_bit_s, way.rate_bit_s)))
    default = "2" if count else "1"
    steps = [[*qdisc, "root", "handle", "1:", "htb", "default", default]] if adds else []
    for class_id, parent, words in classes:
        ids = ["parent", parent, "classid", class_id]
        steps += [[*on, "class", verb, "dev", end.name, *ids, *words]]
    if not count:
        return [*steps, [*below, *(netem or _QUEUE)]] if adds or netem else steps
    field = "src" if end is wire.lower else "dst"
    for number, address in enumerate(["", *wire.sharers] if adds else [], 2):
        handle = ["parent", f"1:{number:x}", "handle", f"{number + 16:x}:"]
        steps += [[*qdisc, *handle, *_QUEUE]]
        if address:
            match = ["u32", "match", "ip", field, f"{address}/32", "flowid", f"1:{number:x}"]
            chain = ["parent", "1:", "protocol", "ip", "prio", "1"]
            steps += [[*on, "filter", "add", "dev", end.name, *chain, *match]]
    return steps


def _bucket(rate_bit_s: int) -> Argv:
    """tbf with the payload rate."""
    framed_bit_s = framed_rate(rate_bit_s)
    sizes = ["burst", str(burst_bytes(framed_bit_s)), "limit", str(QUEUE_FRAMES * FRAME_BYTES)]
    return ["tbf", "rate", f"{framed_bit_s}bit", *sizes]


def _class(rate_bit_s: int, ceil_bit_s: int | None = None) -> Argv:
    """An htb class with the payload rate; it may borrow up to ``ceil_bit_s``."""
    ceil = framed_rate(rate_bit_s if ceil_bit_s is None else ceil_bit_s)
    burst = str(burst_bytes(ceil))
    rates = ["rate", f"{framed_rate(rate_bit_s)}bit", "ceil", f"{ceil}bit"]
    return ["htb", *rates, "burst", burst, "cburst", burst, "quantum", str(FRAME_BYTES)]


def _netem(way: KernelWay) -> Argv:
    """netem with latency and loss."""
    # netem drops frames above its limit: make room for the queue and for all frames in flight,
    # even if all are acknowledgements.
    rate_bit_s = 10**9 if way.rate_bit_s is None else way.rate_bit_s
    flying = rate_bit_s * way.latency_ns // (8 * 64 * NS_PER_S)
    limit, delay = min(QUEUE_FRAMES + flying, 10**7), f"{seconds_text(way.latency_ns)}s"
    loss = f" loss {100 * way.loss:.6f}%" if way.loss else ""
    return f"netem limit {limit} delay {delay}{loss}".split()


_FAILED = re.compile(r"Command failed -:(\d+)")


def carry_out(steps: Sequence[Argv]) -> None:
    """Run ``steps`` in order. BadValue, with the command, for the first that fails."""
    for head, words in batches(steps):
        if not head:
            execute(words[0])
            continue
        try:
            execute([*head, "-batch", "-"], "".join(f"{' '.join(line)}\n" for line in words))
        except BadValue as error:
            failed = _FAILED.search(str(error))
            step = " ".join([*head, *words[int(failed[1]) - 1 if failed else 0]])
            reason = _FAILED.sub("", str(error).partition("-batch -: ")[2]).strip()
            raise BadValue(f"lab: {step}: {reason or error}") from None


def batches(steps: Sequence[Argv]) -> Iterator[tuple[Argv, list[Argv]]]:
    """Group commands that one call can run: (the call, the words of each line).

    The call is empty for a command that has to run alone.
    """
    for head, group in groupby(steps, _head):
        lines = list(group)
        if not head:
            yield from ((head, [line]) for line in lines)
        else:
            yield head, [line[len(head) :] for line in lines]


def _head(step: Argv) -> Argv:
    """The beginning of a command that lines of one batch share."""
    if step[0] not in ("ip", "tc", "bridge") or step[1] == "netns":
        return []
    return step[:3] if step[1] == "-n" else step[:1]
