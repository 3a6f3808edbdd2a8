"""The goodput of one long reliable transfer on a link with random packet loss.

Source: the throughput equation of Padhye, Firoiu, Towsley, Kurose, "Modeling TCP throughput"
(SIGCOMM 1998), in the form of RFC 5348, section 3.1:

    X = s / ( R sqrt(2bp/3) + T0 3 sqrt(3bp/8) p (1 + 32 p^2) ),   b = 1,   T0 = max(4R, 200 ms)

s: segment size, R: round-trip time, p: loss, b: segments per acknowledgement. The RFC omits the
paper's limit by the receiver window and the paper's min(1, ...) around 3 sqrt(3bp/8), so X is below
the paper's value from p = 8/27 on. For small p it is Mathis et al. 1997, X = s/R sqrt(3/2) /
sqrt(p). Unlike that formula it counts timeouts, which cost as much as the rest at p = 9 %, and on
short paths already at smaller p. T0 is TFRC's simple 4R, but at least the minimum retransmission
timeout of Linux. The sender never exceeds the rate of the link, and it sends a share p again:
goodput = min(rate, X) (1 - p).

Limits: This is the steady state of a sender that treats loss as congestion (Reno, SACK). CUBIC
loses less throughput on long fast paths; BBR reacts little below 15 %. Losses are independent, and
each counts as a separate loss event. This is pessimistic if several occur in one round trip. R is
constant, without queueing. Slow start is not modelled: short transfers get the same rate. Nothing
is random here: a transfer takes its mean time.
"""

from __future__ import annotations

import math

from emulator.capacity import Capacity
from emulator.capacity.rates import Cycle, cycle_of
from emulator.errors import BadValue
from emulator.units import NS_PER_S

SEGMENT_BYTES = 1460
LEAST_TIMEOUT_NS = NS_PER_S // 5


def goodput_bit_s(
    rate_bit_s: int, loss: float, rtt_ns: int, segment_bytes: int = SEGMENT_BYTES
) -> int:
    """The goodput (bit/s) of a reliable transfer on a link of ``rate_bit_s``.

    ``loss`` is the share of lost packets. The result is 0 for rate 0, otherwise at least 1.
    """
    _check(loss, rtt_ns, segment_bytes)
    if rate_bit_s == 0 or loss == 0:
        return rate_bit_s
    sent_bit_s = min(float(rate_bit_s), throughput_bit_s(loss, rtt_ns, segment_bytes))
    return min(rate_bit_s, max(1, int(sent_bit_s * (1 - loss))))


def throughput_bit_s(loss: float, rtt_ns: int, segment_bytes: int = SEGMENT_BYTES) -> float:
    """X of the module's equation in bit/s, on a link of unlimited rate, with retransmissions.

    Infinite without loss, or with one that is too small for the numbers of this machine.
    """
    rtt_s = rtt_ns / NS_PER_S
    timeout_s = max(4 * rtt_ns, LEAST_TIMEOUT_NS) / NS_PER_S
    segment_s = rtt_s * math.sqrt(2 * loss / 3) + timeout_s * 3 * math.sqrt(3 * loss / 8) * loss * (
        1 + 32 * loss**2
    )
    return 8 * segment_bytes / segment_s if segment_s else math.inf


class Lossy:
    """The goodput of ``capacity`` for one reliable transfer at a time, as a capacity.

    ``loss`` is the share of lost packets and ``rtt_ns`` the round-trip time. At every moment the
    model uses the rate of that moment.
    """

    def __init__(
        self, capacity: Capacity, loss: float, rtt_ns: int, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        _check(loss, rtt_ns, segment_bytes)
        self.capacity, self.loss = capacity, loss
        self.rtt_ns, self.segment_bytes = rtt_ns, segment_bytes
        self._cycles: tuple[Cycle, Cycle] | None = None  # the capacity's, and the same under loss

    def segment(self, t_ns: int) -> tuple[int, int]:
        rate_bit_s, until_ns = self.capacity.segment(t_ns)
        return self._carried(rate_bit_s), until_ns

    def cycle(self, t_ns: int) -> Cycle | None:
        """The cycle of the capacity with its rates replaced by their goodput."""
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
            " (the model is not valid above 0.5)"
        )
    if rtt_ns < 0 or segment_bytes < 1:
        raise BadValue(
            f"round trip {rtt_ns} ns, segments of {segment_bytes} bytes: expected 0 or more, and 1"
            " or more"
        )
