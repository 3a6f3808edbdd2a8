"""The simulated machine, network and disk of the search for faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from search.disk import ProcessDisk, SimulatedDisk
from search.machine import NS_PER_S, Process, Simulation, TurnsInACircle, running
from search.network import DOWN, UP, SimulatedDealer, SimulatedNetwork, SimulatedRouter

from edgefl.disk import write_all

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
