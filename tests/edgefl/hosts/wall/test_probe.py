"""The real path to an edge, measured when it joins; and the mailbox between two threads."""

from __future__ import annotations

import os
import select
from threading import Thread
from typing import Any

import pytest

from edgefl.hosts.wall.coordinator.probe import PROBE_BYTES, TRIES, Probes
from edgefl.hosts.wall.coordinator.session import Session
from edgefl.hosts.wall.coordinator.thread_messages import WakeAt
from edgefl.hosts.wall.mailbox import Mailbox, TurnOutbox
from edgefl.hosts.wall.system import System
from edgefl.protocol.messages import Ping, Pong
from edgefl.strategies.base.decisions import Finish
from emulator.capacity.rates import Constant
from emulator.fidelity import Fidelity
from emulator.links.link import Link
from emulator.links.network import Network

MS = 1_000_000
S = 1_000 * MS


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
        self.session.measured(2 * MS, 0)

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


def test_a_path_slower_than_its_link_is_named_after_some_tries() -> None:
    rig = Rig()
    rig.probes.begin("a")
    for rate in (2_000_000, 4_000_000, 3_000_000):
        assert not rig.probes.done(2.0)
        rig.comes_back(rate_time(rate))
    assert TRIES == 3 and len(rig.sent) == 1 + TRIES
    (reason,) = rig.fidelity.reasons()
    assert (
        reason == "the real path of edge a carries 4000000 bit/s, its emulated link 8000000 bit/s"
    )


def test_one_good_try_is_enough() -> None:
    rig = Rig()
    rig.probes.begin("a")
    rig.comes_back(rate_time(2_000_000))
    rig.comes_back(rate_time(8_000_000))
    assert rig.probes.done(2.0) and rig.fidelity.reasons() == []


def test_at_a_higher_speed_the_path_must_be_faster() -> None:
    rig = Rig(speed=4.0)
    rig.probes.begin("a")
    for _ in range(TRIES):
        rig.comes_back(rate_time(16_000_000))
    assert "its emulated link 32000000 bit/s" in rig.fidelity.reasons()[0]


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


@pytest.mark.parametrize("size", [0, PROBE_BYTES - 1, PROBE_BYTES + 1])
def test_another_payload_measures_nothing(size: int) -> None:
    rig = Rig()
    rig.probes.came(rig.session, Pong(1, 0), PROBE_BYTES)  # not requested
    rig.probes.begin("a")
    rig.comes_back(5 * S, size)
    assert rig.probes.of_edge["a"].best_bit_s == 0 and len(rig.sent) == 2


# ------------------------------------------------------------------ the mailbox
@pytest.fixture(params=["pipe", "sockets"])
def mailbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mailbox:
    """A mailbox with a pipe, as on Linux, and one with sockets, as elsewhere."""
    if request.param == "sockets":
        monkeypatch.delattr(os, "pipe2")
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


def test_a_mailbox_that_nobody_empties_blocks_nobody(mailbox: Mailbox) -> None:
    for number in range(70_000):  # more than a pipe can hold
        mailbox.put(number)
    assert len(mailbox.take()) == 70_000
    while readable(mailbox):
        assert mailbox.take() == []
    mailbox.put(1)
    assert readable(mailbox) and os.get_blocking(mailbox.fd) is False


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


def test_an_outbox_puts_what_was_told_in_a_turn_at_its_end() -> None:
    put: list[int] = []
    outbox = TurnOutbox(put.append)
    outbox(1)
    outbox(2)
    assert put == []
    outbox.send()
    outbox.send()
    assert put == [1, 2]


def test_a_mailbox_that_is_dropped_closes_its_descriptors() -> None:
    mailbox = Mailbox()
    fd = mailbox.fd
    assert os.fstat(fd)
    del mailbox
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
