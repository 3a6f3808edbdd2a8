"""A machine that slept, the mailbox between two threads, and the real path to an edge."""

from __future__ import annotations

import os
import select
import sys
import time
from threading import Thread
from typing import Any

import pytest

from edgefl.clocks.wall.coordinator.sessions import Session
from edgefl.clocks.wall.coordinator.thread_messages import WakeAt
from edgefl.clocks.wall.coordinator.transfers import PROBE_BYTES, TRIES, Probes
from edgefl.clocks.wall.system import (
    LEAST_NS,
    LOOK_EVERY_NS,
    OWN_SYSTEM,
    Mailbox,
    SleepWatch,
    System,
)
from edgefl.protocol.messages import Ping, Pong
from edgefl.strategies.base.events_and_decisions import Finish
from emulator.capacity.rates import Constant
from emulator.fidelity import Fidelity
from emulator.links.link import Link
from emulator.links.network import Network

S = 1_000_000_000


def looks(*readings: tuple[int, int, int]) -> list[int]:
    watch = SleepWatch()
    return [watch.look(*reading) for reading in readings]


def test_each_sleep_is_found_once_with_its_length() -> None:
    found = looks(
        (0, 50 * S, 0), (S, 651 * S, S), (2 * S, 652 * S, 2 * S), (3 * S, 3653 * S, 3 * S)
    )
    assert found == [0, 600 * S, 0, 3000 * S]


def test_a_thread_that_was_interrupted_between_two_readings_has_not_slept() -> None:
    """It was stopped for 30 s, first before the second reading, then after it."""
    assert looks((0, 50 * S, 0), (S, 81 * S, 31 * S), (32 * S, 82 * S, 32 * S)) == [0, 0, 0]
    assert looks((0, 50 * S, 0), (S, 51 * S, 31 * S), (32 * S, 82 * S, 32 * S)) == [0, 0, 0]
    # the first reading was inexact: a sleep after it is found by the second one on
    assert (
        looks((0, 80 * S, 30 * S), (31 * S, 81 * S, 31 * S), (32 * S, 92 * S, 32 * S))[2] == 10 * S
    )


def test_a_look_is_due_now_and_then_and_at_once_after_a_sleep() -> None:
    watch, began_ns = SleepWatch(), 7 * S
    assert watch.is_due(began_ns), "the first one"
    assert [watch.is_due(began_ns + part) for part in (0, 1, LOOK_EVERY_NS - 1)] == [False] * 3
    assert watch.is_due(began_ns + LOOK_EVERY_NS)
    assert not watch.is_due(began_ns + LOOK_EVERY_NS + 1)
    assert watch.is_due(began_ns + LOOK_EVERY_NS + 1 + LEAST_NS), "the machine slept"
    assert watch.is_due(0), "a clock that was set back"


@pytest.mark.skipif(sys.platform != "linux", reason="the clocks of Linux")
def test_the_clocks_of_this_machine() -> None:
    before, passed, after = OWN_SYSTEM.sleep_reading()
    assert before <= after <= time.monotonic_ns()
    assert passed >= before, "it counts sleep, too, since the machine has started"
    assert abs(passed - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) < 10 * S


# ------------------------------------------------------------------ probe
MS = 1_000_000


class Rig(System):
    """Probes of edge a with a clock of the test."""

    def __init__(
        self,
        up: int | None = 1_000_000,
        down: int | None = 8_000_000,
        speed: float = 1.0,
    ) -> None:
        self.now = 50 * S
        self.sent: list[tuple[str, Any, int]] = []
        self.fidelity, network = Fidelity(), Network()
        for direction, rate in (("up", up), ("down", down)):
            network.add_link("a", direction, Link(rate and Constant(rate)))
        self.probes = Probes(
            network,
            speed,
            self.fidelity,
            lambda edge, message, body=b"": self.sent.append((edge, message, len(body))),
            self,
        )
        self.session = Session(b"a", "a", 1, 0)
        self.session.answered(0, 2 * MS, 0)

    def monotonic_ns(self) -> int:
        return self.now

    def comes_back(self, taken_ns: int, size: int = PROBE_BYTES) -> None:
        """The payload of the last ping, ``taken_ns`` after it was sent."""
        sent = self.sent[-1][1].sent_ns
        self.now = sent + taken_ns
        self.probes.came(self.session, Pong(sent, 0), size)


def rate_time(rate_bit_s: int) -> int:
    """ns for the payload there and back at this rate, with the round trip of 2 ms."""
    return 2 * 8 * PROBE_BYTES * S // rate_bit_s + 2 * MS


def test_a_fast_path_is_measured_once() -> None:
    rig = Rig()
    rig.probes.begin("a")
    assert rig.sent == [
        ("a", Ping(50 * S), 0),
        ("a", Ping(50 * S), PROBE_BYTES),
    ] and not rig.probes.done(2.0)
    rig.comes_back(rate_time(9_000_000))
    assert rig.probes.done(2.0) and len(rig.sent) == 2 and rig.fidelity.reasons() == []
    assert rig.probes.too_slow("a") is None


def test_a_path_slower_than_its_link_is_named_after_some_tries() -> None:
    rig = Rig()
    rig.probes.begin("a")
    for rate in (2_000_000, 4_000_000, 3_000_000):
        assert not rig.probes.done(2.0) and rig.probes.too_slow("a") is None
        rig.comes_back(rate_time(rate))
    assert TRIES == 3 and len(rig.sent) == 1 + TRIES
    assert rig.probes.too_slow("a") == {"measured_bit_s": 4_000_000, "needed_bit_s": 8_000_000}
    (reason,) = rig.fidelity.reasons()
    assert (
        reason == "the real path of edge a carries 4000000 bit/s, its emulated link 8000000 bit/s"
    )


def test_a_native_link_has_no_rate_to_reach() -> None:
    rig = Rig(up=None, down=None)
    rig.probes.begin("a")
    rig.comes_back(5 * S)
    assert rig.probes.done(2.0) and rig.fidelity.reasons() == []


def test_the_start_waits_only_so_long_after_the_last_edge_came() -> None:
    rig = Rig()
    assert rig.probes.done(2.0)  # no edge
    rig.now += 60 * S
    rig.probes.begin("a")
    assert not rig.probes.done(2.0)
    rig.now += 3 * S
    assert rig.probes.done(2.0)


# ------------------------------------------------------------------ the mailbox
@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


def readable(mailbox: Mailbox) -> bool:
    return bool(select.select([mailbox.fd], [], [], 0)[0])


def test_a_mailbox_is_readable_while_something_is_in_it(mailbox: Mailbox) -> None:
    assert not readable(mailbox) and mailbox.take() == []
    mailbox.put(WakeAt(1), WakeAt(2))
    mailbox.put(Finish("done"))
    assert readable(mailbox)
    assert mailbox.take() == [WakeAt(1), WakeAt(2), Finish("done")]
    assert not readable(mailbox) and mailbox.take() == []


def test_a_mailbox_between_two_threads_loses_nothing(mailbox: Mailbox) -> None:
    items = 20_000
    writer = Thread(target=lambda: [mailbox.put(number) for number in range(items)])
    taken: list[int] = []
    writer.start()
    while len(taken) < items:
        woken = bool(select.select([mailbox.fd], [], [], 5)[0])
        assert woken, f"nothing came for 5 s after {len(taken)} items"
        taken += mailbox.take(woken)
    writer.join()
    assert taken == list(range(items))


def test_a_byte_that_comes_after_its_item_was_taken_wakes_once(mailbox: Mailbox) -> None:
    mailbox.put(1)
    assert mailbox.take(woken=False) == [
        1
    ]  # the reader was awake and took it: the byte is still in the pipe
    assert readable(mailbox) and mailbox.take(woken=True) == []
    assert not readable(mailbox)
    mailbox.put(2)
    assert readable(mailbox) and mailbox.take(woken=True) == [2]


def test_a_mailbox_that_is_dropped_closes_its_descriptors() -> None:
    mailbox = Mailbox()
    fd = mailbox.fd
    assert os.fstat(fd)
    del mailbox
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_what_is_put_into_a_closed_mailbox_wakes_nobody(mailbox: Mailbox) -> None:
    fd = mailbox.fd
    mailbox.close()
    mailbox.put(1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
