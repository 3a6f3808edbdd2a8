"""The simulated machine, network and disk of the search for faults."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from search.disk import ProcessDisk, SimulatedDisk
from search.machine import BOOT_NS, NS_PER_S, Process, Simulation, TurnsInACircle, running
from search.network import DOWN, UP, SimulatedDealer, SimulatedNetwork, SimulatedRouter
from search.system import SimulatedInbox

from edgefl.disk import write_all

MS = 1_000_000
LONG_NS = 100 * NS_PER_S
FILE = Path("/run/file")


def played(*mains: Callable[[Process], Any], seed: int = 1) -> tuple[Simulation, list[Process]]:
    """Run each function as the first thread of its own process, until all have ended."""
    sim = Simulation(seed)
    processes = [Process(sim, f"p{number}") for number in range(len(mains))]
    for process, main in zip(processes, mains, strict=True):
        process.start(lambda process=process, main=main: main(process), "main")
    sim.run(lambda: not any(process.alive for process in processes), LONG_NS)
    for process in processes:
        if process.error is not None:
            raise process.error
    return sim, processes


# ------------------------------------------------------------------ threads and time
def test_a_thread_sleeps_without_real_time_and_another_runs_meanwhile() -> None:
    story: list[str] = []

    def main(process: Process) -> None:
        def other() -> None:
            running(process).block(process.sim.now_ns + 36 * NS_PER_S)
            story.append("other")

        thread = process.start(other, "other")
        story.append("main")
        running(process).join(thread, None)
        story.append("joined")

    sim, _ = played(main)
    assert story == ["main", "other", "joined"] and 36 < sim.now_ns / NS_PER_S < 36.01


def test_a_killed_process_does_nothing_any_more_and_its_clean_up_is_not_seen() -> None:
    after: list[str] = []

    def main(process: Process) -> None:
        process.fuse = 2
        try:
            process.call("the first call")
            process.call("the second call")
            after.append("alive")
        finally:
            process.call("in the clean-up")
            after.append("cleaned up")

    _, (process,) = played(main)
    assert after == [] and process.killed and not process.alive


def test_a_frozen_process_goes_on_later_and_a_clock_is_its_own() -> None:
    seen: list[int] = []

    def main(process: Process) -> None:
        process.clock_ns += 5
        process.freeze(7 * NS_PER_S)
        running(process).block(NS_PER_S)
        seen.extend([process.sim.now_ns, process.monotonic_ns() - process.sim.now_ns])

    played(main)
    assert 7 * NS_PER_S <= seen[0] < 7.001 * NS_PER_S and seen[1] == BOOT_NS + 5


def test_a_queue_wakes_its_reader() -> None:
    got: list[Any] = []

    def main(process: Process) -> None:
        inbox = SimulatedInbox(process)
        reader = process.start(lambda: got.extend([inbox.get(), inbox.get(timeout=60.0)]), "reader")
        running(process).block(process.sim.now_ns + MS)
        inbox.put("a")
        running(process).block(process.sim.now_ns + MS)
        inbox.put("b")
        running(process).join(reader, None)

    sim, _ = played(main)
    assert got == ["a", "b"] and sim.now_ns < 3 * MS


def test_a_run_that_never_waits_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("search.machine.MOST_EVENTS", 100)

    def main(process: Process) -> None:
        while True:
            running(process).block(0)

    with pytest.raises(TurnsInACircle):
        played(main)


# ------------------------------------------------------------------ the network
class Net:
    """A router and a dealer of edge e0, driven by hand."""

    def __init__(self) -> None:
        self.sim = Simulation(1)
        self.network = SimulatedNetwork(self.sim)
        self.host, self.edge = Process(self.sim, "coordinator"), Process(self.sim, "e0")
        self.router = SimulatedRouter(self.network, self.host)
        self.router.bind("", 5000)
        self.dealer = self.connected()

    def connected(self) -> SimulatedDealer:
        return SimulatedDealer(self.network, self.edge, "tcp://192.0.2.1:5000")

    def pass_s(self, s: float) -> None:
        self.sim.run(lambda: False, self.sim.now_ns + round(s * NS_PER_S))

    def heard(self) -> list[bytes]:
        return [frames[0].buffer for _, _, frames in self.router.receive(100)]

    def routing(self) -> bytes:
        (routing,) = self.router.connections
        return routing


def test_messages_of_a_connection_keep_their_order_and_have_all_their_parts() -> None:
    net = Net()
    for number in range(20):
        net.dealer.send(bytes([number]))
    net.dealer.send(b"header", memoryview(b"body"))
    net.pass_s(1.0)
    taken = [[part.buffer for part in frames] for _, _, frames in net.router.receive(100)]
    assert taken == [*([bytes([number])] for number in range(20)), [b"header", b"body"]]
    assert net.router.send(net.routing(), b"answer") and not net.router.send(b"unknown", b"")
    net.pass_s(1.0)
    assert [frames[0].buffer for frames in net.dealer.receive()] == [b"answer"]


def test_a_cut_loses_the_message_at_its_byte_and_those_after_it() -> None:
    net = Net()
    net.dealer.send(b"first")
    net.pass_s(0.1)
    net.network.path("e0").cut_after[UP] = 200
    routing = net.routing()
    for _ in range(3):  # 64 bytes are of its frames
        net.dealer.send(b"x" * 36)
    net.pass_s(0.01)
    assert net.heard() == [b"first", b"x" * 36, b"x" * 36]
    assert net.dealer.cut_off() and not net.router.send(routing, b"")
    net.dealer.send(b"unsent")  # in its queue until it is connected again
    net.pass_s(1.0)
    assert net.heard() == [b"unsent"] and net.routing() != routing


def test_what_is_blocked_arrives_later_and_a_newer_connection_overtakes_a_slow_one() -> None:
    net = Net()
    net.network.block("e0", (DOWN,), 5 * NS_PER_S)
    net.dealer.send(b"hello")
    net.pass_s(1.0)
    net.router.send(net.routing(), b"answer")
    net.pass_s(1.0)
    assert net.heard() == [b"hello"] and list(net.dealer.receive()) == []
    net.pass_s(4.0)
    assert len(list(net.dealer.receive())) == 1
    path = net.network.path("e0")
    path.slow_ns, path.slow_until_ns, path.slow_of = 2 * NS_PER_S, 1 << 60, net.network.made
    net.dealer.send(b"late")
    net.dealer.close()
    other = net.connected()
    other.send(b"new")
    net.pass_s(5.0)
    assert net.heard() == [b"new", b"late"], "a closed socket's bytes still arrive"


def test_a_dead_coordinator_breaks_its_connections_and_another_can_take_its_port() -> None:
    net = Net()
    net.dealer.send(b"hello")
    net.pass_s(0.1)
    net.host.kill()
    net.pass_s(1.0)
    assert net.dealer.cut_off()
    net.host = Process(net.sim, "coordinator")
    net.router = SimulatedRouter(net.network, net.host)
    net.router.bind("", 5000)
    net.dealer.send(b"again")
    net.pass_s(1.0)
    assert net.heard() == [b"again"]


# ------------------------------------------------------------------ the disk
def on_disk(work: Callable[[ProcessDisk], Any], seed: int = 1) -> SimulatedDisk:
    """The disk after ``work`` in a process."""
    disks: list[SimulatedDisk] = []

    def main(process: Process) -> None:
        disks.append(SimulatedDisk(process.sim))
        work(ProcessDisk(disks[0], process))

    played(main, seed=seed)
    return disks[0]


def written(disk: ProcessDisk, data: bytes, sync: bool = False) -> Any:
    file = disk.append(FILE)
    write_all(file, data)
    if sync:
        file.sync()
    return file


def test_files_hold_what_was_written_and_names_change() -> None:
    seen: dict[str, Any] = {}

    def work(disk: ProcessDisk) -> None:
        file = written(disk, b"abcdef")
        file.truncate(4)
        disk.append(FILE, keep_bytes=3).write(b"X")
        disk.replace(FILE.with_name("whole"), b"new", durable=True)
        seen["content"], seen["names"] = disk.read(FILE), disk.names(FILE.parent)
        disk.remove(FILE)
        seen["there"] = disk.exists(FILE), disk.size(FILE.with_name("whole"))
        with pytest.raises(FileNotFoundError):
            disk.read(FILE)

    on_disk(work)
    assert seen["content"] == b"abcX" and seen["names"] == ["file", "whole"]
    assert seen["there"] == (False, 3)


def test_a_loss_of_power_takes_only_what_was_not_synced() -> None:
    def work(disk: ProcessDisk) -> None:
        file = written(disk, b"safe", sync=True)
        disk.sync_folder(FILE.parent)
        write_all(file, b"-" * 1000)

    kept = set()
    for seed in range(20):
        disk = on_disk(work, seed)
        disk.lose_power()
        data = bytes(disk.files[FILE].data)
        assert data == b"safe" + b"-" * (len(data) - 4)
        kept.add(len(data))
    assert len(kept) > 10, "torn at any byte"


def test_a_process_that_dies_in_a_write_leaves_a_part_of_it() -> None:
    sizes = set()
    for seed in range(20):

        def work(disk: ProcessDisk) -> None:
            file = disk.append(FILE)
            disk.process.fuse = 1
            file.write(b"x" * 1000)
            raise AssertionError("it goes on after its death")

        sizes.add(len(on_disk(work, seed).files[FILE].data))
    assert len(sizes) > 10 and max(sizes) <= 1000


def test_a_full_disk_takes_what_has_room() -> None:
    def work(disk: ProcessDisk) -> None:
        disk.disk.room_bytes = 10
        file = disk.append(FILE)
        with pytest.raises(OSError) as refused:
            write_all(file, b"x" * 20)
        assert refused.value.errno == errno.ENOSPC
        disk.disk.room_bytes = None
        assert file.write(b"y") == 1

    assert bytes(on_disk(work).files[FILE].data) == b"x" * 10 + b"y"
