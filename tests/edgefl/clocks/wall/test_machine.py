"""What an edge finds out about its machine, and the thread that reports it."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from host_reports import FACTS, REPORT
from msgspec.structs import replace
from processes import wait_for

from edgefl.clocks.wall.edge import machine as edge_machine
from edgefl.clocks.wall.edge.machine import (
    BOARD,
    BOOT_ID,
    HOST_NAME,
    THERMAL_EVENTS,
    THREADS,
    HostClaim,
    Machine,
    Reporter,
    interface_to,
    machine_id,
)
from edgefl.protocol.codec import decode, encode
from edgefl.protocol.messages import HostFacts, HostReport

FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled"
ADDRESS = "tcp://127.0.0.1:7700"


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


class System:
    """In place of psutil: a system that tells everything."""

    class Error(Exception):
        pass

    def Process(self) -> Any:
        return SimpleNamespace(
            cpu_percent=lambda interval: 87.34,
            memory_info=lambda: SimpleNamespace(rss=350_000_000),
        )

    def cpu_percent(self, interval: None) -> float:
        return 42.16

    def sensors_temperatures(self) -> dict[str, Any]:
        return {
            "nvme": [SimpleNamespace(current=90.0)],
            "cpu_thermal": [SimpleNamespace(current=61.3), SimpleNamespace(current=64.25)],
        }

    def net_io_counters(self, pernic: bool) -> dict[str, Any]:
        return {"lo": SimpleNamespace(bytes_sent=1000, bytes_recv=2000)}

    def net_if_addrs(self) -> dict[str, Any]:
        addresses = {"eth0": "192.0.2.7", "lo": "127.0.0.1"}
        return {name: [SimpleNamespace(address=own)] for name, own in addresses.items()}


def machine(root: Path, system: Any = None, run: Any = lambda argv: None) -> Machine:
    return Machine(ADDRESS, root, system or System(), run)


# ------------------------------------------------------------------ reports
@pytest.mark.processes
def test_a_report_of_a_system_that_tells_everything(tmp_path: Path) -> None:
    found = machine(tmp_path)
    found.facts()
    assert found.report() == HostReport(
        cpu_permille=422,
        temperature_mk=337_400,
        throttled=None,
        sent_bytes=1000,
        received_bytes=2000,
        edge_cpu_permille=873,
        rss_bytes=350_000_000,
        ran_us=None,
        waited_us=None,
    )


def test_the_edge_that_speaks_for_its_host_reads_the_meter_that_its_user_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = "sys/class/powercap/intel-rapl:0"
    put(tmp_path, f"{zone}/name", "package-0")
    put(tmp_path, f"{zone}/energy_uj", "100")
    assert machine(tmp_path).report().energy_uj is None, "it is off unless it is named"
    monkeypatch.setenv("EDGEFL_METER", "rapl")
    found = machine(tmp_path)
    assert found.report(for_host=False).energy_uj is None
    assert found.report().energy_uj == 0
    put(tmp_path, f"{zone}/energy_uj", "350")
    assert found.report().energy_uj == 250


def test_waiting_for_a_core_is_counted_by_thread_since_the_first_report(tmp_path: Path) -> None:
    put(tmp_path, f"{THREADS}/7/schedstat", "5000000 9000000 12\n")
    found = machine(tmp_path)
    first = found.report()
    assert (first.ran_us, first.waited_us) == (0, 0)
    put(tmp_path, f"{THREADS}/7/schedstat", "6000000 9500000 13\n")
    put(tmp_path, f"{THREADS}/8/schedstat", "200000 300000 1\n")  # a new thread
    second = found.report()
    assert (second.ran_us, second.waited_us) == (1200, 800)
    (tmp_path / THREADS / "8/schedstat").unlink()  # it has ended: what it ran stays counted
    third = found.report()
    assert (third.ran_us, third.waited_us) == (1200, 800)


# ------------------------------------------------------------------ throttling
def test_the_firmware_tells_what_is_now_and_what_has_happened_since(tmp_path: Path) -> None:
    put(tmp_path, FIRMWARE, "10000\n")  # under-voltage, before this run
    found = machine(tmp_path)
    assert found.report().throttled == 0
    put(tmp_path, FIRMWARE, "10002\n")  # the frequency is capped now
    assert found.report().throttled == 2
    put(tmp_path, FIRMWARE, "50000\n")  # it was throttled between two reports
    assert found.report().throttled == 4
    assert found.report().throttled == 0, "what has happened is told once"


def test_vcgencmd_is_asked_where_there_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "vcgencmd", "#!/bin/sh\necho throttled=0x50005\n")
    (tmp_path / "vcgencmd").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    answers = ["throttled=0x0\n", "throttled=0x50005\n", None, "throttled=0x4\n"]
    asked: list[list[str]] = []

    def run(argv: list[str]) -> str | None:
        asked.append(argv)
        return answers.pop(0)

    found = machine(tmp_path, run=run)
    assert found.report().throttled == 5
    assert asked == [[str(tmp_path / "vcgencmd"), "get_throttled"]] * 2
    assert found.report().throttled is None
    assert found.report().throttled is None and len(answers) == 1, "it fails: it is asked no more"


def test_cooling_devices_and_thermal_events_tell_on_other_machines(tmp_path: Path) -> None:
    put(tmp_path, "sys/class/thermal/cooling_device0/type", "intel_powerclamp\n")
    put(tmp_path, "sys/class/thermal/cooling_device0/cur_state", "-1\n")
    assert machine(tmp_path).report().throttled is None
    put(tmp_path, "sys/class/thermal/cooling_device1/type", "thermal-cpufreq-0\n")
    put(tmp_path, "sys/class/thermal/cooling_device1/cur_state", "0\n")
    put(tmp_path, THERMAL_EVENTS, "17\n")
    found = machine(tmp_path)
    assert found.report().throttled == 0
    put(tmp_path, "sys/class/thermal/cooling_device1/cur_state", "3\n")
    assert found.report().throttled == 2
    put(tmp_path, THERMAL_EVENTS, "18\n")
    assert found.report().throttled == 2 | 16
    put(tmp_path, "sys/class/thermal/cooling_device1/cur_state", "0\n")
    assert found.report().throttled == 0


# ------------------------------------------------------------------ facts
@pytest.mark.processes
def test_facts_fit_into_their_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, BOARD, "Raspberry Pi 4 Model B Rev 1.4\0")
    monkeypatch.setenv(HOST_NAME, "pi-3")
    facts = machine(tmp_path).facts()
    assert (facts.host, facts.model) == ("pi-3", "Raspberry Pi 4 Model B Rev 1.4")
    assert facts.cores > 0 and facts.memory_bytes > 0 and facts.system and facts.architecture
    assert facts.gpus == ""
    for slot, name in enumerate(("NVIDIA H100 80GB HBM3", "NVIDIA L4")):
        path = f"proc/driver/nvidia/gpus/0000:0{slot}:00.0/information"
        put(tmp_path, path, f"Model: \t\t {name}\nIRQ:   \t\t 16\n")
    assert machine(tmp_path).facts().gpus == "NVIDIA H100 80GB HBM3, NVIDIA L4"
    monkeypatch.setenv(HOST_NAME, "x" * 1000)
    monkeypatch.setattr(edge_machine.platform, "machine", lambda: "y" * 1000)
    facts = machine(tmp_path).facts()
    assert decode(encode(facts, 1, 1))[0] == facts and isinstance(facts, HostFacts)


def test_edges_of_one_machine_have_one_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, BOOT_ID, "53073f7f-7237-43b3-a816-88130c27d666\n")
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    link = tmp_path / "proc/self/ns/net"
    link.symlink_to("net:[4026531833]")
    one = machine_id(tmp_path)
    assert one == machine_id(tmp_path) and len(one) == 16
    monkeypatch.setenv(HOST_NAME, "pi-3")  # a name of its own: a host of its own
    assert machine_id(tmp_path) != one
    monkeypatch.delenv(HOST_NAME)
    link.unlink()
    link.symlink_to("net:[4026532999]")  # another network namespace: another host
    assert machine_id(tmp_path) != one
    assert len(machine_id(tmp_path / "no such system")) == 16


@pytest.mark.processes
def test_the_interface_towards_the_coordinator() -> None:
    assert interface_to(ADDRESS, System()) == "lo"
    assert interface_to("tcp://no-such-host.invalid:7700", System()) == ""
    assert interface_to("tcp://127.0.0.1:port", System()) == ""
    if socket.has_ipv6:
        assert interface_to("tcp://[::1]:7700", System()) == "", "no interface has this address"


# ------------------------------------------------------------------ reporter


class CountedMachine:
    """Counts how often it is asked, and for whom."""

    def __init__(self, address: str) -> None:
        self.asked: list[bool] = []

    def facts(self) -> HostFacts:
        return FACTS

    def report(self, for_host: bool = True) -> HostReport:
        self.asked.append(for_host)
        return replace(REPORT, rss_bytes=len(self.asked))


def began(monkeypatch: pytest.MonkeyPatch, period_ns: int = 2_000_000_000) -> Reporter:
    monkeypatch.setattr(edge_machine, "FIRST_REPORT_S", 0.01)
    found = Reporter(ADDRESS, CountedMachine)  # type: ignore[arg-type]  # a stand-in
    found.begin(7, period_ns)
    return found


@pytest.mark.processes
def test_facts_are_known_and_each_report_is_taken_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reporter = began(monkeypatch)
    try:
        said: list[Any] = []
        wait_for(lambda: said.extend(filter(None, [reporter.take()])) or said)
        assert said == [replace(REPORT, rss_bytes=2)]  # the first one began to count
        assert reporter.facts == FACTS and reporter.take() is None
    finally:
        reporter.end()
        reporter.join(5)
    assert not reporter.is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names that leave no file")
@pytest.mark.processes
def test_one_process_speaks_for_a_host_and_another_takes_over() -> None:
    first, second, other = HostClaim("a run"), HostClaim("a run"), HostClaim("another run")
    try:
        assert [claim.take() for claim in (first, second, other)] == [True, False, True]
        assert first.take() and not second.take()
        first.release()
        assert second.take() and not first.take()
    finally:
        for claim in (first, second, other):
            claim.release()
