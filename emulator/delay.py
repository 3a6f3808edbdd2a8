"""The delay of bytes between the link and the receiver: constant, or random with their order kept.

Jitter divides emulated time into epochs of ``epoch_ns``. Each epoch has one delay, drawn by a
generator with the key (seed, block of epochs). So the delay depends only on the seed and the
moment, not on the caller or on the number and order of calls. Bytes of the same epoch keep their
distance. A byte that would overtake an earlier one arrives together with it: arrival(s) is the
largest of u + delay(epoch of u) over all u <= s. Therefore the mean delay of bytes is somewhat
above that of epochs if the jitter is large compared with the epoch.

    normal     mean ``delay_ns``, standard deviation ``jitter_ns``, cut at 4 deviations and at 0
    uniform    from ``delay_ns`` - ``jitter_ns`` to ``delay_ns`` + ``jitter_ns``, cut at 0
    lognormal  mean ``delay_ns``, standard deviation ``jitter_ns``, cut at 4 deviations of its
               logarithm: long delays are rare, and none is near 0
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from emulator.errors import BadValue, check_whole, valid_name
from emulator.units import FOREVER, NS_PER_S


class Delay(Protocol):
    """A one-way delay that keeps the order of bytes.

    ``arrival`` never decreases, so no byte overtakes another, whatever the jitter.
    """

    def arrival(self, sent_ns: int) -> int:
        """When a byte that leaves the link at ``sent_ns`` reaches the receiver.

        FOREVER for FOREVER.
        """
        ...

    def departure(self, arrival_ns: int) -> int:
        """The latest moment at which bytes can leave and arrive by ``arrival_ns``.

        This is the inverse of ``arrival``.
        """
        ...


class Latency:
    """A constant one-way delay of ``delay_ns``, an integer of 0 or more."""

    def __init__(self, delay_ns: int) -> None:
        check_whole("latency", delay_ns, unit="ns")
        self.delay_ns = delay_ns

    def arrival(self, sent_ns: int) -> int:
        return min(sent_ns + self.delay_ns, FOREVER)

    def departure(self, arrival_ns: int) -> int:
        return arrival_ns - self.delay_ns


DISTRIBUTIONS = ("normal", "uniform", "lognormal")
CUT = 4.0  # ours: beyond it lie 6 of 100 000 draws, and no delay is without a bound
EPOCH_NS = NS_PER_S // 100  # ours: about the time in which a radio link decides again
_BLOCK = 1024  # epochs drawn at a time
_KEPT_BLOCKS = 4
MAX_MEMORY_EPOCHS = 100 * _BLOCK  # for how many epochs a byte may hold back later ones
MAX_DELAY_NS = 1000 * NS_PER_S


@dataclass(frozen=True, slots=True)
class _Block:
    """The epochs of one block, in ns from the start of the block.

    For each epoch: the delay, the earliest arrival that earlier epochs permit, and the arrival of
    its first byte.
    """

    delays_ns: list[int]
    held_ns: list[int]
    arrivals_ns: list[int]


class Jitter:
    """A random delay around ``delay_ns`` with one of DISTRIBUTIONS."""

    def __init__(
        self,
        delay_ns: int,
        jitter_ns: int,
        distribution: str = "normal",
        seed: int = 0,
        epoch_ns: int = EPOCH_NS,
    ) -> None:
        valid_name("jitter distribution", distribution, DISTRIBUTIONS)
        check_whole("latency", delay_ns, most=MAX_DELAY_NS, unit="ns")
        check_whole("jitter", jitter_ns, most=MAX_DELAY_NS, unit="ns")
        check_whole("jitter epoch", epoch_ns, 1, MAX_DELAY_NS, "ns")
        check_whole("jitter seed", seed)
        if distribution == "lognormal" and not delay_ns:
            raise BadValue("latency 0: a lognormal jitter needs a mean delay above 0")
        self.delay_ns, self.jitter_ns, self.epoch_ns = delay_ns, jitter_ns, epoch_ns
        self.distribution, self.seed = distribution, seed
        cut = 1.0 if distribution == "uniform" else CUT
        self.least_ns, self.most_ns = map(int, self._delays(np.array([-cut, cut])))
        # after so many epochs a byte cannot hold back others
        self._memory = -(-(self.most_ns - self.least_ns) // epoch_ns)
        if self._memory > MAX_MEMORY_EPOCHS:
            raise BadValue(
                f"jitter {jitter_ns} ns: too large for epochs of {epoch_ns} ns (delays up to"
                f" {self.most_ns} ns); expected longer epochs"
            )
        self._blocks: dict[int, _Block] = {}

    def state(self) -> tuple[int, int, str, int, int]:
        """What a checkpoint keeps: not the blocks, which are drawn again."""
        return (self.delay_ns, self.jitter_ns, self.distribution, self.seed, self.epoch_ns)

    def restore(self, state: tuple[int, int, str, int, int]) -> None:
        self.__init__(*state)  # type: ignore[misc]  # the constructor's own arguments

    def arrival(self, sent_ns: int) -> int:
        if sent_ns >= FOREVER:
            return FOREVER
        epoch, since_ns = divmod(sent_ns, self.epoch_ns)
        number, index = divmod(epoch, _BLOCK)
        block = self._block(number)
        begin_ns = number * _BLOCK * self.epoch_ns
        return min(
            begin_ns
            + max(index * self.epoch_ns + since_ns + block.delays_ns[index], block.held_ns[index]),
            FOREVER,
        )

    def departure(self, arrival_ns: int) -> int:
        if arrival_ns >= FOREVER:
            return FOREVER
        number = (arrival_ns - self.least_ns) // (_BLOCK * self.epoch_ns)
        while True:  # ends: bytes of the epoch that contains arrival_ns - most_ns have arrived
            begin_ns = number * _BLOCK * self.epoch_ns
            block = self._block(number)
            index = bisect_right(block.arrivals_ns, arrival_ns - begin_ns) - 1
            if index >= 0:
                return min(
                    begin_ns + (index + 1) * self.epoch_ns - 1, arrival_ns - block.delays_ns[index]
                )
            number -= 1

    def _block(self, number: int) -> _Block:
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = self._make(number)
            if len(self._blocks) > _KEPT_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
        return block

    def _make(self, number: int) -> _Block:
        # earlier blocks whose last bytes may hold back the first bytes of this block
        before = -(-self._memory // _BLOCK)
        delays_ns = np.concatenate([self._draw(number - back) for back in range(before, -1, -1)])
        begins_ns = np.arange(-before * _BLOCK, _BLOCK, dtype=np.int64) * self.epoch_ns
        # arrival of the last byte of each epoch
        lasts_ns = np.maximum.accumulate(begins_ns + self.epoch_ns - 1 + delays_ns)
        # The first epoch has no earlier one. Its bound is so low that all its bytes arrive later.
        held_ns = np.concatenate([[begins_ns[0] + self.least_ns], lasts_ns[:-1]])[-_BLOCK:]
        arrivals_ns = np.maximum(begins_ns[-_BLOCK:] + delays_ns[-_BLOCK:], held_ns)
        return _Block(delays_ns[-_BLOCK:].tolist(), held_ns.tolist(), arrivals_ns.tolist())

    def _draw(self, number: int) -> np.ndarray:
        # seeds cannot be negative, but blocks before the start of the run have negative numbers
        key = 2 * number if number >= 0 else -2 * number - 1
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, key])))
        if self.distribution == "uniform":
            return self._delays(rng.uniform(-1.0, 1.0, _BLOCK))
        return self._delays(np.clip(rng.standard_normal(_BLOCK), -CUT, CUT))

    def _delays(self, drawn: np.ndarray) -> np.ndarray:
        """Whole ns, 0 or more, from draws of a distribution with center 0 and width 1."""
        if self.distribution == "lognormal":
            variance = math.log1p((self.jitter_ns / self.delay_ns) ** 2)
            delays = self.delay_ns * np.exp(math.sqrt(variance) * drawn - variance / 2)
        else:
            delays = self.delay_ns + self.jitter_ns * drawn
        whole: np.ndarray = np.rint(np.maximum(delays, 0.0)).astype(np.int64)
        return whole


def delay_of(latency_ns: int, jitter_ns: int, seed: int) -> Delay:
    """A constant delay, or a random one if it has a jitter."""
    return Jitter(latency_ns, jitter_ns, seed=seed) if jitter_ns else Latency(latency_ns)
