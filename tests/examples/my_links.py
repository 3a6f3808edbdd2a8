"""Your own links: two devices share a cell. One of them drives along a trace, through a tunnel, and
loses packets.
"""

from emulator import (
    FOREVER,
    Bottleneck,
    Constant,
    Jitter,
    Latency,
    Lossy,
    Lowest,
    Network,
    Trace,
    Transfer,
    Windows,
    parse_duration,
    parse_rate,
    seconds_text,
)

near, far = parse_duration("10ms"), parse_duration("30ms")
slow, fast = parse_rate("1mbit"), parse_rate("4mbit")
# fast for 1 s, slow for 2 s, over and over; read_trace takes a file
drive = Trace([(fast, parse_duration("1s")), (slow, parse_duration("2s"))])
tunnel = Windows([(parse_duration("3s"), parse_duration("5s"))])  # nothing from 3 s to 5 s
cell = Bottleneck(Constant(fast))  # what its links share, fairly
car = Lossy(Lowest(drive, tunnel), loss=0.01, rtt_ns=2 * far)
network = Network()
network.add_link("car", "up", cell.link(car, Jitter(far, parse_duration("5ms"))))
network.add_link("home", "up", cell.link(Constant(slow), Latency(near)))
for number, edge in enumerate(("car", "home")):
    network.offer(Transfer(number, edge, "up", size=600_000, kind="model"), now=0)
while (now := network.next_due()) < FOREVER:
    for done in network.pop_due(now):
        sent = f"{done.transfer.edge:<4} has sent its {done.transfer.size} bytes"
        print(f"{sent} at {seconds_text(done.due_ns)} s")
