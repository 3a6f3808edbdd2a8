"""What random packet loss leaves of a link to one long reliable transfer.

Source: the throughput equation of Padhye, Firoiu, Towsley, Kurose, "Modeling TCP throughput"
(SIGCOMM 1998), in the form of RFC 5348, section 3.1:

    X = s / ( R sqrt(2bp/3) + T0 3 sqrt(3bp/8) p (1 + 32 p^2) ),   b = 1,   T0 = max(4R, 200 ms)

s segment size, R round trip, p loss, b segments for one acknowledgement. That form leaves out the
paper's limit by the receiver's window, and the paper's min(1, ...) around 3 sqrt(3bp/8), so that it
is below the paper's from p = 8/27 on. For small p it is Mathis et al. 1997, X = s/R sqrt(3/2) /
sqrt(p); unlike that it counts timeouts, which cost as much as the rest at 9 %, on short paths
earlier. T0 is TFRC's simple 4R, not below the least retransmission timeout of Linux. The sender
never exceeds the link, and a share p of what it sends is sent again: goodput = min(rate, X) (1 -
p).

Limits: it is the steady state of a sender that takes loss for congestion (Reno, SACK). CUBIC loses
less on long fast paths, BBR hardly reacts below 15 %. Losses are independent of each other; each is
counted as a loss event of its own, which is pessimistic where several fall into one round trip. R
is constant, without queueing. Slow start, hence short transfers, are not covered: they are carried
at the same rate. Nothing is random here: a transfer takes its mean time.
"""

from __future__ import annotations

import math

from emulator.capacity import Capacity
from emulator.capacity.compose import cycle_of
from emulator.capacity.cycle import Cycle
from emulator.errors import BadValue
from emulator.units import NS_PER_S

SEGMENT_BYTES = 1460
LEAST_TIMEOUT_NS = NS_PER_S // 5


def goodput_bit_s(
    rate_bit_s: int, loss: float, rtt_ns: int, segment_bytes: int = SEGMENT_BYTES
) -> int:
    """What a link of ``rate_bit_s`` carries of a reliable transfer when it loses the share
    ``loss`` of packets; 0 for rate 0, else at least 1.
    """
    _check(loss, rtt_ns, segment_bytes)
    if rate_bit_s == 0 or loss == 0:
        return rate_bit_s
    sent_bit_s = min(float(rate_bit_s), throughput_bit_s(loss, rtt_ns, segment_bytes))
    return min(rate_bit_s, max(1, int(sent_bit_s * (1 - loss))))


def throughput_bit_s(loss: float, rtt_ns: int, segment_bytes: int = SEGMENT_BYTES) -> float:
    """X of the module's equation: what a sender puts on an endless link, retransmissions
    included.
    """
    rtt_s = rtt_ns / NS_PER_S
    timeout_s = max(4 * rtt_ns, LEAST_TIMEOUT_NS) / NS_PER_S
    return (
        8
        * segment_bytes
        / (
            rtt_s * math.sqrt(2 * loss / 3)
            + timeout_s * 3 * math.sqrt(3 * loss / 8) * loss * (1 + 32 * loss**2)
        )
    )


class Lossy:
    """``capacity`` as one reliable transfer at a time sees it under ``loss`` and the round trip
    ``rtt_ns``, at every moment for the rate of that moment.
    """

    def __init__(
        self, capacity: Capacity, loss: float, rtt_ns: int, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        _check(loss, rtt_ns, segment_bytes)
        self.capacity, self.loss, self.rtt_ns, self.segment_bytes = (
            capacity,
            loss,
            rtt_ns,
            segment_bytes,
        )
        self._cycles: tuple[Cycle, Cycle] | None = None  # the capacity's, and the same under loss

    def segment(self, t_ns: int) -> tuple[int, int]:
        rate_bit_s, until_ns = self.capacity.segment(t_ns)
        return self._carried(rate_bit_s), until_ns

    def cycle(self, t_ns: int) -> Cycle | None:
        """The capacity's, with the rates that are left of its own."""
        whole = cycle_of(self.capacity, t_ns)
        if whole is None:
            return None
        if self._cycles is None or self._cycles[0] is not whole:
            self._cycles = whole, whole.mapped(self._carried)
        return self._cycles[1]

    def _carried(self, rate_bit_s: int) -> int:
        return goodput_bit_s(rate_bit_s, self.loss, self.rtt_ns, self.segment_bytes)


def _check(loss: float, rtt_ns: int, segment_bytes: int) -> None:
    if not 0 <= loss <= 0.5:
        raise BadValue(
            f"loss {loss!r}: expected a share of packets from 0 to 0.5, such as 0.01 for 1 %"
            " (beyond half the model says nothing)"
        )
    if rtt_ns < 0 or segment_bytes < 1:
        raise BadValue(
            f"round trip {rtt_ns} ns, segments of {segment_bytes} bytes: expected 0 or more, and 1"
            " or more"
        )
