"""Links of one's own: two devices share a cell; one of them drives along a trace, through a
tunnel, and loses packets.
"""

from emulator.capacity.compose import Lowest
from emulator.capacity.constant import Constant
from emulator.capacity.outage import Windows
from emulator.capacity.trace import Trace
from emulator.delay.jitter import Jitter
from emulator.delay.latency import Latency
from emulator.links.bottleneck import Bottleneck
from emulator.links.loss import Lossy
from emulator.links.network import Network, Transfer
from emulator.units import FOREVER, parse_duration, parse_rate, seconds_text

near, far, slow, fast = (
    parse_duration("10ms"),
    parse_duration("30ms"),
    parse_rate("1mbit"),
    parse_rate("4mbit"),
)
drive = Trace(
    [(fast, parse_duration("1s")), (slow, parse_duration("2s"))]
)  # these two over and over; read_trace takes a file
tunnel = Windows([(parse_duration("3s"), parse_duration("5s"))])  # nothing from 3 s to 5 s
cell = Bottleneck(Constant(fast))  # what its links share, fairly
network = Network()
network.add_link(
    "car",
    "up",
    cell.link(
        Lossy(Lowest(drive, tunnel), loss=0.01, rtt_ns=2 * far), Jitter(far, parse_duration("5ms"))
    ),
)
network.add_link("home", "up", cell.link(Constant(slow), Latency(near)))
for number, edge in enumerate(("car", "home")):
    network.offer(Transfer(number, edge, "up", size=600_000, kind="model"), now=0)
while (now := network.next_due()) < FOREVER:
    for done in network.pop_due(now):
        print(
            f"{done.transfer.edge:<4} has sent its {done.transfer.size} bytes at"
            f" {seconds_text(done.due_ns)} s"
        )
