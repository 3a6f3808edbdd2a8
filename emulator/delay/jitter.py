"""A delay that varies, and keeps the order of bytes.

Emulated time is cut into epochs of ``epoch_ns``. Each has one delay, drawn by a generator that is
keyed by (seed, block of epochs), so that it depends on nothing but the seed and the moment: not on
who asks, how often, or in which order. Within an epoch bytes keep their distance. A byte that would
overtake an earlier one arrives together with it: arrival(s) is the largest of u + delay(epoch of u)
over all u <= s. Hence the mean delay of bytes is somewhat above that of epochs when the jitter is
large against the epoch.

    normal     mean ``delay_ns``, standard deviation ``jitter_ns``, cut at 4 deviations and at 0
    uniform    from ``delay_ns`` - ``jitter_ns`` to ``delay_ns`` + ``jitter_ns``, cut at 0
    lognormal  mean ``delay_ns``, standard deviation ``jitter_ns``, cut at 4 deviations of its
    logarithm: rare long delays, none near 0
"""

from __future__ import annotations

import difflib
import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from emulator.errors import BadValue
from emulator.units import FOREVER, NS_PER_S

DISTRIBUTIONS = ("normal", "uniform", "lognormal")
CUT = 4.0
EPOCH_NS = NS_PER_S // 100
_BLOCK = 1024  # epochs drawn at a time
_KEPT_BLOCKS = 4
MAX_MEMORY_EPOCHS = 100 * _BLOCK  # how far back a byte may hold others up
MAX_DELAY_NS = 1000 * NS_PER_S


@dataclass(frozen=True, slots=True)
class _Block:
    """Per epoch of a block, in ns from the block's begin: the delay, what the epochs before hold
    back to, and when a byte of its begin arrives.
    """

    delays_ns: list[int]
    held_ns: list[int]
    arrivals_ns: list[int]


class Jitter:
    """A delay around ``delay_ns`` by one of DISTRIBUTIONS."""

    def __init__(
        self,
        delay_ns: int,
        jitter_ns: int,
        distribution: str = "normal",
        seed: int = 0,
        epoch_ns: int = EPOCH_NS,
    ) -> None:
        _check(delay_ns, jitter_ns, distribution, seed, epoch_ns)
        self.delay_ns, self.jitter_ns, self.distribution, self.seed, self.epoch_ns = (
            delay_ns,
            jitter_ns,
            distribution,
            seed,
            epoch_ns,
        )
        self.least_ns, self.most_ns = (
            int(ns)
            for ns in self._delays(
                np.array([-1.0, 1.0]) * (1.0 if distribution == "uniform" else CUT)
            )
        )
        # epochs after which a byte cannot hold others up any more
        self._memory = -(-(self.most_ns - self.least_ns) // epoch_ns)
        if self._memory > MAX_MEMORY_EPOCHS:
            raise BadValue(
                f"jitter {jitter_ns} ns: too large for epochs of {epoch_ns} ns (delays up to"
                f" {self.most_ns} ns); expected longer epochs"
            )
        self._blocks: dict[int, _Block] = {}

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
        while True:  # ends: the epoch in which arrival_ns - most_ns lies has arrived
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
        # blocks whose last bytes may still hold up the first of this one
        before = -(-self._memory // _BLOCK)
        delays_ns = np.concatenate([self._draw(number - back) for back in range(before, -1, -1)])
        begins_ns = np.arange(-before * _BLOCK, _BLOCK, dtype=np.int64) * self.epoch_ns
        # arrival of the last byte of each epoch
        lasts_ns = np.maximum.accumulate(begins_ns + self.epoch_ns - 1 + delays_ns)
        # Without an epoch before, nothing is held: its own bytes arrive later than any bound as low
        # as that.
        held_ns = np.concatenate([[begins_ns[0] + self.least_ns], lasts_ns[:-1]])[-_BLOCK:]
        arrivals_ns = np.maximum(begins_ns[-_BLOCK:] + delays_ns[-_BLOCK:], held_ns)
        return _Block(delays_ns[-_BLOCK:].tolist(), held_ns.tolist(), arrivals_ns.tolist())

    def _draw(self, number: int) -> np.ndarray:
        # seeds are not negative, moments before the run's begin are
        key = 2 * number if number >= 0 else -2 * number - 1
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, key])))
        if self.distribution == "uniform":
            return self._delays(rng.uniform(-1.0, 1.0, _BLOCK))
        return self._delays(np.clip(rng.standard_normal(_BLOCK), -CUT, CUT))

    def _delays(self, drawn: np.ndarray) -> np.ndarray:
        """Whole ns, 0 or more, from draws of a distribution of middle 0 and width 1."""
        if self.distribution == "lognormal":
            variance = math.log1p((self.jitter_ns / self.delay_ns) ** 2)
            delays = self.delay_ns * np.exp(math.sqrt(variance) * drawn - variance / 2)
        else:
            delays = self.delay_ns + self.jitter_ns * drawn
        whole: np.ndarray = np.rint(np.maximum(delays, 0.0)).astype(np.int64)
        return whole


def _check(delay_ns: int, jitter_ns: int, distribution: str, seed: int, epoch_ns: int) -> None:
    if distribution not in DISTRIBUTIONS:
        near = difflib.get_close_matches(str(distribution), DISTRIBUTIONS, n=1)
        raise BadValue(
            f"jitter distribution {distribution!r}{f', did you mean {near[0]}?' if near else ''}"
            f" (valid: {', '.join(DISTRIBUTIONS)})"
        )
    for name, value, least in (
        ("latency", delay_ns, 0),
        ("jitter", jitter_ns, 0),
        ("jitter epoch", epoch_ns, 1),
    ):
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or not least <= value <= MAX_DELAY_NS
        ):
            raise BadValue(
                f"{name} {value!r}: expected a whole number of ns from {least} to {MAX_DELAY_NS}"
            )
    if not isinstance(seed, int) or seed < 0:
        raise BadValue(f"jitter seed {seed!r}: expected a whole number, 0 or more")
    if distribution == "lognormal" and not delay_ns:
        raise BadValue("latency 0: a lognormal jitter needs a mean delay above 0")
