"""Labs on this host: names, links that change while they run, and that nothing is left.

If this host cannot make a lab, each test checks that the command gives the reason.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from processes import PATIENCE_S

from emulator import BadValue, Lab, attach, lab_namespace
from emulator.cli import run
from emulator.lab import running
from emulator.lab.system import INTERFACE_FILES, NAMESPACE_FILES, require_tools, tools
from emulator.lab.wiring import HOSTS_FILES, LabNames

pytestmark = [pytest.mark.processes, pytest.mark.alone]

PAIR: dict[str, Any] = {
    "hosts": [{"name": "a"}, {"name": "b"}],
    "links": [{"from": "a", "to": "b", "rate": "8mbit", "latency": "5ms"}],
}
ENVIRON = os.environ | {"PYTHONPATH": str(ROOT)}
# Send SIZE bytes to a host, which counts them; print its answer and the seconds it took.
SERVE = """
import socket
with socket.create_server(("0.0.0.0", 7000)) as server:
    while True:
        peer, _ = server.accept()
        with peer:
            size = sum(map(len, iter(lambda: peer.recv(65536), b"")))
            peer.sendall(str(size).encode())
"""
SEND = """
import socket, sys, time
to, size = sys.argv[1], int(sys.argv[2])
for attempt in range(500):
    try:
        sock = socket.create_connection((to, 7000), timeout=20)
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
began = time.monotonic()
sock.sendall(bytes(size))
sock.shutdown(socket.SHUT_WR)
print(sock.recv(100).decode(), time.monotonic() - began)
"""


@cache
def refusal() -> str:
    """The reason why this host cannot make a lab; '' if it can."""
    try:
        require_tools(tools())
        with Lab(PAIR, name="trial"):
            return ""
    except BadValue as error:
        return str(error)


@pytest.fixture
def able() -> None:
    if refusal():
        pytest.skip(refusal())


@pytest.fixture
def pair(able: None) -> Iterator[Lab]:
    with Lab(PAIR, name="pair") as lab:
        yield lab


def traces(number: int) -> list[str]:
    """Everything that is left of a lab."""
    names = LabNames(number)
    found = [names.lock_file, names.folder]
    for folder, prefix in (
        (NAMESPACE_FILES, names.namespace_prefix),
        (HOSTS_FILES, names.namespace_prefix),
        (INTERFACE_FILES, names.prefix),
    ):
        found += folder.glob(f"{prefix}*") if folder.exists() else []
    return [str(path) for path in found if path.exists()]


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", code, *words]


def sent(lab: Lab, size: int) -> tuple[int, float]:
    """Send from a to b by name; return (bytes counted there, seconds)."""
    done = lab.host("a").run(python(SEND, "b", str(size)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count, took_s = done.stdout.split()
    return int(count), float(took_s)


def test_hosts_reach_each_other_by_name_over_their_link(pair: Lab) -> None:
    pair.host("b").start(python(SERVE))
    count, took_s = sent(pair, 200_000)
    assert count == 200_000
    assert took_s >= 0.2 * 0.9 + 2 * 0.005  # 1 MB/s, less the shaper's burst
    number = pair.number
    assert lab_namespace("a", "pair") == f"emulator-lab{number}-a"
    told = pair.host("a").run(["cat", "/etc/hosts"], capture_output=True, text=True).stdout
    assert f"198.18.{number}.2 b\n" in told
    interfaces = pair.host("a").run(["ls", "/sys/class/net"], capture_output=True, text=True).stdout
    assert {"eth0", "lo"} <= set(interfaces.split())
    relay = pair.relay()
    assert relay is None or relay["links"]["a-b"]["up"]["frames"] >= 200_000 // 1448


def test_a_link_is_cut_restored_and_changed_while_bytes_are_on_their_way(pair: Lab) -> None:
    pair.host("b").start(python(SERVE))
    link = attach("pair").link("a")
    assert sent(pair, 1000)[0] == 1000
    sender = pair.host("a").start(
        python(SEND, "b", "300000"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with link.cut():
        time.sleep(0.5)
        assert pair.state.conditions == {"a-b": "cut"} and sender.poll() is None
        assert str(link).startswith("a-b: a to b, up 8 Mbit/s 5 ms, down 8 Mbit/s 5 ms, by ")
        assert str(link).endswith(" [cut]")
        link.set(rate="16mbit", latency="1ms", loss="0%")
    out, err = sender.communicate(timeout=30)
    assert out.split()[0] == "300000", err
    assert pair.state.conditions == {"a-b": "up"}
    assert pair.state.shapes["a-b"].up.rate_bit_s == 16_000_000
    link.down()
    refused = pair.host("a").run(python(SEND, "b", "1"), capture_output=True, text=True)
    assert "unreachable" in refused.stderr
    link.restore()
    assert sent(pair, 50_000)[0] == 50_000
    with pytest.raises(BadValue, match="jitter '3': expected|the unit is missing"):
        link.set(jitter="3")


CELL = {
    "hosts": [{"name": "server"}, {"name": "e[1-2]"}, {"name": "me", "here": True}],
    "bridges": [{"name": "cell", "up": "8mbit"}],
    "links": [
        {"from": "e[1-2]", "to": "cell"},
        {"from": "cell", "to": "server"},
        {"from": "server", "to": "me"},
    ],
    "traffic": [{"from": "e1", "to": "server", "rate": "2mbit", "on": "100ms", "off": "100ms"}],
}


@pytest.mark.usefixtures("able")
def test_a_bridge_background_traffic_and_this_machine() -> None:
    with Lab(CELL) as lab:
        lab.host("server").start(python(SERVE))
        done = lab.host("e2").run(
            python(SEND, "server", "200000"), capture_output=True, text=True, check=True
        )
        count, took_s = done.stdout.split()
        assert count == "200000" and float(took_s) >= 0.2 * 0.9
        address = lab.host("server").address
        done = lab.host("me").run(
            python(SEND, address, "1000"), capture_output=True, text=True, check=True
        )
        assert done.stdout.split()[0] == "1000"
        until_s = time.monotonic() + 30
        while not lab.traffic()[0].get("arrived", {}).get("bytes") and time.monotonic() < until_s:
            time.sleep(0.05)  # on a busy machine it begins late
        (flow,) = lab.stop_traffic()
        number = lab.number
    assert (flow["from"], flow["to"]) == ("e1", "server")
    assert 0 < flow["arrived"]["bytes"] <= flow["sent"]["bytes"]
    assert flow["sent"]["bytes"] == flow["sent"]["datagrams"] * 1448
    assert traces(number) == []


@pytest.mark.usefixtures("able")
def test_background_traffic_that_is_stopped_at_once_has_counted() -> None:
    """On a busy machine its processes begin long after the lab."""
    flow = {"from": "a", "to": "b", "rate": "2mbit"}
    with Lab(
        {
            "hosts": [{"name": "a"}, {"name": "b"}],
            "links": [{"from": "a", "to": "b"}],
            "traffic": [flow],
        }
    ) as lab:
        (counted,) = lab.stop_traffic()
    assert counted["arrived"]["bytes"] <= counted["sent"]["bytes"]


# The command


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    file = tmp_path / "two.toml"
    file.write_text(
        'hosts = [{name = "a"}, {name = "b"}]\nlinks = [{from = "a", to = "b", latency = "1ms"}]\n'
    )
    return file


def started(topology: Path, *command: str) -> tuple[subprocess.Popen[str], int]:
    """Start ``emulator lab run`` in a separate process; return it and the lab's number."""
    process = subprocess.Popen(
        [sys.executable, "-m", "emulator.cli", "lab", "run", str(topology), "--", *command],
        env=ENVIRON,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    process.stdout.close()
    return process, attach(name).number


SLEEPS = ("sh", "-c", "echo $EMULATOR_LAB; exec sleep 77")


@pytest.mark.usefixtures("able")
def test_what_a_killed_owner_left_is_removed_by_the_next_call(
    topology: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    process, lab = started(topology, *SLEEPS)
    sleeper = attach("two").host("a").start(["sleep", "78"])
    process.kill()
    process.wait()
    assert len(traces(lab)) >= 4
    assert run(["lab", "list"]) == 0
    assert traces(lab) == [] and sleeper.wait(10) == -signal.SIGKILL
    assert f"{LabNames(lab).namespace_prefix}a" not in capfd.readouterr().out


@pytest.mark.usefixtures("able")
def test_the_command_runs_on_a_host_and_passes_its_status_on(
    topology: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--on", "b", str(topology), "--", "sh", "-c", "echo $EMULATOR_OWN_ADDRESS; exit 7"]
    assert run(["lab", "run", *words]) == 7
    assert capfd.readouterr().out.startswith("198.18.")


@pytest.mark.usefixtures("able")
def test_a_lab_in_the_background(topology: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "up", "--name", "mine", str(topology)]) == 0
    number = attach("mine").number
    words = [sys.executable, "-m", "emulator.cli", "lab", "exec", "--lab", "mine", "a", "--"]
    done = subprocess.run(
        [*words, "sh", "-c", "echo $EMULATOR_LAB; exit 5"],
        env=ENVIRON,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (5, "mine\n")
    assert run(["lab", "link", "--lab", "mine", "a", "set", "up=1mbit", "latency=2ms"]) == 0
    assert run(["lab", "link", "--lab", "mine", "a", "cut"]) == 0
    assert "a-b: a to b, up 1 Mbit/s 2 ms, down not shaped 2 ms" in capfd.readouterr().out
    assert run(["lab", "down", "mine"]) == 0
    assert traces(number) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["run", "no.toml"], "no.toml: No such file or directory"),
        (["up", "no.toml"], "no.toml: No such file or directory"),
        (["run", "--on", "aa", "{}", "--", "true"], "host 'aa' does not exist: did you mean a?"),
        (["run", "--on", "a", "{}"], "--on a: expected a COMMAND to run there"),
        (["run", "--log", "no/such.json", "{}", "--", "true"], "expected a file in a directory"),
        (["link", "--lab", "no-such-lab", "a", "cut"], "lab"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    words: list[str], reason: str, topology: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["lab", *(word.format(topology) for word in words)]) == 2
    out, error = capfd.readouterr()
    assert (out, error.count("\n")) == ("", 1) and error.startswith("emulator: ")
    assert (refusal() or reason) in error or reason in error


@pytest.mark.parametrize("words", [["run", "{}", "--", "true"], ["list"], ["up", "{}"]])
def test_without_root_nothing_is_tried(
    words: list[str],
    topology: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert run(["lab", *(word.format(topology) for word in words)]) == 2
    assert capfd.readouterr() == (
        "",
        "emulator: emulator lab needs root (without root: emulator proxy)\n",
    )


@pytest.mark.usefixtures("able")
def test_a_step_that_fails_is_named_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    build, numbers = running.build, []

    def broken(plan: Any, *more: Any) -> list[list[str]]:
        numbers.append(plan.names.number)
        return [*build(plan, *more), ["ip", "-n", plan.names.namespace("a"), "link", "show", "x"]]

    monkeypatch.setattr(running, "build", broken)
    with (
        pytest.raises(BadValue, match=r"^lab: ip -n emulator-lab\d+-a link show x: .*exist"),
        Lab(PAIR),
    ):
        raise AssertionError
    assert traces(numbers[0]) == []


# One program behind a link: emulator kernel


def test_check_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    status = run(["kernel", "check"])
    out, error = capsys.readouterr()
    names = "linux root ip tc namespaces veth sch_tbf sch_htb sch_netem"
    assert [line.split()[0] for line in out.splitlines()][:9] == names.split()
    assert (status, bool(error)) == ((2, True) if refusal() else (0, False))


def kernel_run(*words: str) -> tuple[subprocess.Popen[str], str, int]:
    """Run a command behind a link in a process; return it, its first line, and the lab's number."""
    process = subprocess.Popen(
        [sys.executable, "-m", "emulator.cli", "kernel", "run", "--up", "4mbit", *words],
        env=ENVIRON,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.stdout.close()
    return process, line, int(line.split()[0].split(".")[2])


@pytest.mark.usefixtures("able")
def test_a_command_behind_a_link_has_its_addresses_and_passes_its_status_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.json"
    script = "echo $EMULATOR_HOST_ADDRESS $EMULATOR_OWN_ADDRESS; sleep 77 >/dev/null 2>&1 & exit 7"
    words = f"--up 2mbit --down 20mbit --log {log} -- sh -c".split()
    assert run(["kernel", "run", *words, script]) == 7
    host, own = capfd.readouterr().out.split()
    record, number = json.loads(log.read_text()), int(own.split(".")[2])
    assert (host, traces(number)) == (f"198.18.{number}.1", [])
    assert (record["status"], record["signal"], record["relay"]) == (7, None, None)
    assert (record["shaper"], record["delay"], record["own_address"]) == ("htb", "none", own)
    assert (record["up"]["rate_bit_s"], record["down"]["rate_bit_s"]) == (2 * 10**6, 20 * 10**6)
    kinds = {end: [qdisc["kind"] for qdisc in record["qdiscs"][end]] for end in ("host", "own")}
    assert kinds == {"host": ["htb", "pfifo"], "own": ["htb", "pfifo"]}
    assert record["congestion_control"]["own"] and record["tcp_timestamps"]["own"] in (0, 1)


SEND_AND_GO = """
import os, socket
s = socket.create_connection((os.environ["EMULATOR_HOST_ADDRESS"], {port}))
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1000000)
s.setblocking(False)
print(s.send(bytes(200000)))
"""


@pytest.mark.usefixtures("able")
def test_what_a_command_sent_before_it_ended_still_arrives(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        received: list[int] = []

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                received.append(sum(map(len, iter(lambda: peer.recv(65536), b""))))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        script = SEND_AND_GO.format(port=server.getsockname()[1])
        words = ["--up", "4mbit", "--latency", "5ms", "--", sys.executable, "-c", script]
        assert run(["kernel", "run", *words]) == 0
        thread.join(20)
    out, err = capfd.readouterr()
    assert "were not delivered" not in err and received == [int(out)]


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_a_signal_ends_the_command_and_leaves_nothing(number: signal.Signals) -> None:
    script = "echo $EMULATOR_OWN_ADDRESS; exec sleep 77"
    process, _, lab = kernel_run("--", "sh", "-c", script)
    process.send_signal(number)
    assert process.wait(30) == 128 + number and traces(lab) == []


@pytest.mark.usefixtures("able")
def test_a_command_that_ignores_the_signal_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'trap "" TERM; kill -TERM $PPID; while :; do sleep 0.1; done'
    monkeypatch.setattr("emulator.lab.programs.GRACE_S", 0.1)
    assert run(["kernel", "run", "--up", "4mbit", "--", "sh", "-c", script]) == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--", "true"), "nothing to emulate: give --profile"),
        (("--up", "2mbit", "--", "no-such-program"), "COMMAND 'no-such-program': no such program"),
        (("--up", "2mbit", "--shaper", "cake", "--", "true"), "no sch_cake"),
        (
            ("--up", "2mbit", "--log", "no/such.json", "--", "true"),
            "expected a file in a directory",
        ),
    ],
)
def test_a_run_that_cannot_begin_is_one_line(
    words: tuple[str, ...], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["kernel", "run", *words]) == 2
    out, error = capfd.readouterr()
    assert (out, error.count("\n")) == ("", 1) and (reason in error or "needs" in error)


# a signal between a datagram and its count
ENDS_ITSELF = """
import os, signal, socket, sys
from emulator.lab import background

class Socket(socket.socket):
    sent = 0
    def sendto(self, *words):
        size = super().sendto(*words)
        Socket.sent += 1
        if Socket.sent == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return size

socket.socket = Socket
background.main(sys.argv[1:])
"""


def test_background_traffic_counts_what_it_has_sent_whenever_it_ends(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    words = ["send", "127.0.0.1", "9", str(counts), "1000000"]
    done = subprocess.run(python(ENDS_ITSELF, *words), env=ENVIRON, timeout=PATIENCE_S)
    assert done.returncode == 0
    assert json.loads(counts.read_text())["datagrams"] == 5
