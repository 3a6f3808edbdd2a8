"""The ip, tc and bridge commands that make a lab and change its links.

Only ``carry_out`` runs commands, many in one call of ip, tc or bridge; the others build them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from emulator.errors import BadValue
from emulator.kernel.commands import (
    Argv,
    KernelShape,
    KernelWay,
    bucket,
    htb_class,
    neighbour,
    netem_words,
    qdiscs,
    queue,
    settings,
)
from emulator.kernel.namespaces import execute
from emulator.lab.wiring import LabEnd, Wire, Wiring

_FORWARD = "echo 1 >/proc/sys/net/ipv4/ip_forward"
_ANY_WAY = "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$f; done"


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
    steps += [
        step for (_, device), found in wiring.ports.items() for step in _learned(device, found)
    ]
    for host in wiring.topology.hosts:
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
        yield own, neighbour(own.interface, far.interface)
    for route in wiring.routes[host]:
        near, hop = route.own.interface, route.next_hop.interface
        over = ["dev", near.name, "src", near.address]
        if route.next_hop.node != route.target:
            over = ["via", hop.address, *over, "onlink"]
        target = f"{wiring.addresses[route.target]}/32"
        yield route.own, ["ip", *near.inside, "route", "replace", target, *over]


def shaping(wire: Wire, shape: KernelShape) -> list[Argv]:
    """The tc commands of both directions, on interfaces without any."""
    return [step for end in (wire.lower, wire.upper) for step in _shaped(wire, end, shape)]


def change(wire: Wire, before: KernelShape, after: KernelShape) -> list[Argv]:
    """The tc commands that change both directions, in place where the queues can stay."""
    steps: list[Argv] = []
    for end in (wire.lower, wire.upper):
        old, new = _way(wire, end, before), _way(wire, end, after)
        if old != new:
            steps += _changed(wire, end, before, after)
    return steps


def cut(wire: Wire) -> list[Argv]:
    """The tc commands after which both ends lose all frames, though their interfaces are up."""
    return [_root(end, "replace", "blackhole") for end in (wire.lower, wire.upper)]


def mend(wire: Wire, shape: KernelShape) -> list[Argv]:
    """The tc commands that undo ``cut``."""
    clear = [_root(end, "del") for end in (wire.lower, wire.upper)]
    return [*clear, *shaping(wire, shape)]


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
            ["ip", "link", "set", "dev", end.made_as, *_netns(end), "name", end.interface.name]
            for end in ends
            if end.interface.inside
        ]
    else:
        lower, upper = ([e.interface.name, *_netns(e)] for e in ends)
        steps = [["ip", "link", "add", "name", *lower, "type", "veth", "peer", "name", *upper]]
    for end in ends:
        veth = end.interface
        steps += [settings(veth, True, ipv6), *_shaped(wire, end, shape)]
        if end.device is not None:
            steps += [["ip", *veth.inside, "link", "set", "dev", veth.name, "master", end.device]]
        else:
            address = ["address", "add", f"{veth.address}/32", "dev", veth.name]
            steps += [["ip", *veth.inside, *address]]
        steps += [_switch(end, "up")]
    return steps


def _netns(end: LabEnd) -> Argv:
    return ["netns", end.interface.inside[1]] if end.interface.inside else []


def _switch(end: LabEnd, to: str) -> Argv:
    return ["ip", *end.interface.inside, "link", "set", "dev", end.interface.name, to]


def _root(end: LabEnd, what: str, *words: str) -> Argv:
    device = ["dev", end.interface.name, "root"]
    return ["tc", *end.interface.inside, "qdisc", what, *device, *words]


def _learned(device: str, ports: tuple[tuple[str, LabEnd], ...]) -> list[Argv]:
    # Without these, a frame to a host that has sent nothing would load every link of the bridge.
    steps = []
    for mac, port in ports:
        fdb = ["bridge", *port.interface.inside, "fdb", "replace", mac]
        steps += [[*fdb, "dev", port.interface.name, "master", "static"]]
    return steps


def _way(wire: Wire, end: LabEnd, shape: KernelShape) -> KernelWay:
    return shape.up if end is wire.lower else shape.down


def _shaped(wire: Wire, end: LabEnd, shape: KernelShape) -> list[Argv]:
    way = _way(wire, end, shape)
    if not _is_fair(wire, way, shape):
        return qdiscs(end.interface, way, shape)
    veth = end.interface
    on = ["tc", *veth.inside]
    steps = [[*on, "qdisc", "add", "dev", veth.name, "root", "handle", "1:", "htb", "default", "2"]]
    for class_id, parent, words in _classes(wire, way):
        ids = ["parent", parent, "classid", class_id]
        steps += [[*on, "class", "add", "dev", veth.name, *ids, *words]]
    field = "src" if end is wire.lower else "dst"
    for number, address in enumerate(["", *wire.sharers], 2):
        below = ["parent", f"1:{number:x}"]
        handle = ["handle", f"{number + 16:x}:"]
        steps += [[*on, "qdisc", "add", "dev", veth.name, *below, *handle, *queue()]]
        if address:
            match = ["u32", "match", "ip", field, f"{address}/32", "flowid", f"1:{number:x}"]
            chain = ["parent", "1:", "protocol", "ip", "prio", "1"]
            steps += [[*on, "filter", "add", "dev", veth.name, *chain, *match]]
    return steps


def _is_fair(wire: Wire, way: KernelWay, shape: KernelShape) -> bool:
    return bool(wire.sharers) and way.rate_bit_s is not None and shape.shaper == "htb"


def _classes(wire: Wire, way: KernelWay) -> Iterator[tuple[str, str, Argv]]:
    """(id, parent, words) of a class for all, one for other frames, and one per sharer."""
    rate_bit_s = way.rate_bit_s or 0
    yield "1:1", "1:", htb_class(rate_bit_s)
    count = len(wire.sharers) + 1
    share_bit_s = max(8, rate_bit_s // count)
    for number in range(2, count + 2):
        yield f"1:{number:x}", "1:1", htb_class(share_bit_s, rate_bit_s)


def _changed(wire: Wire, end: LabEnd, before: KernelShape, after: KernelShape) -> list[Argv]:
    old, new = _way(wire, end, before), _way(wire, end, after)
    veth = end.interface
    netem = after.delay == "netem"
    same_queues = (old.rate_bit_s is None) == (new.rate_bit_s is None) and (
        not netem or old.delays == new.delays
    )
    if not same_queues:
        had = old.rate_bit_s is not None or (netem and old.delays)
        return [*([_root(end, "del")] if had else []), *_shaped(wire, end, after)]
    steps: list[Argv] = []
    on = ["tc", *veth.inside]
    if new.rate_bit_s is not None and after.shaper == "tbf":
        steps += [_root(end, "change", "handle", "1:", *bucket(new.rate_bit_s))]
    elif new.rate_bit_s is not None:
        classes = (
            _classes(wire, new)
            if _is_fair(wire, new, after)
            else iter([("1:1", "1:", htb_class(new.rate_bit_s))])
        )
        for class_id, parent, words in classes:
            ids = ["parent", parent, "classid", class_id]
            steps += [[*on, "class", "change", "dev", veth.name, *ids, *words]]
    if netem and new.delays:
        where = ["root"] if new.rate_bit_s is None else ["parent", "1:1"]
        words = [*where, "handle", "10:", *netem_words(new)]
        steps += [[*on, "qdisc", "change", "dev", veth.name, *words]]
    return steps


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
