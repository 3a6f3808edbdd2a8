"""Kernel mode on this host: what a command gets, how it ends, and that nothing is left.

If this host cannot run kernel mode, each test checks that the command gives the reason.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from paths import ROOT

from emulator.cli import run
from emulator.errors import BadValue
from emulator.kernel import namespaces as kernel_slots
from emulator.kernel import probe as kernel_check
from emulator.kernel import run as kernel
from emulator.kernel.commands import NAMESPACES, KernelShape, KernelWay, Place, make
from emulator.kernel.probe import choose, require_tools

pytestmark = [pytest.mark.processes, pytest.mark.alone]

MS = 1_000_000
MBIT = 1_000_000


@cache
def refusal(latency_ns: int = 0) -> str:
    """The reason why kernel mode cannot shape (and delay) here; '' if it can."""
    try:
        require_tools(kernel_check.tools())
        choose(
            kernel_check.examine(),
            KernelShape(KernelWay(MBIT, latency_ns), KernelWay(MBIT, latency_ns)),
            None,
        )
    except BadValue as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str


Real = Callable[..., Done | None]


@pytest.fixture
def real(capfd: pytest.CaptureFixture[str]) -> Real:
    """Run the command; None if this host cannot and the command has said so."""

    def attempt(*arguments: str) -> Done | None:
        done = Done(run(["kernel", "run", *arguments]), *capfd.readouterr())
        reason = refusal(MS if "--latency" in arguments else 0)
        if not reason:
            return done
        assert done == Done(2, "", f"emulator: {reason}\n")
        return None

    return attempt


def place_of(address: str) -> Place:
    return next(
        place
        for place in map(Place, range(NAMESPACES))
        if address in (place.own.address, place.host.address)
    )


def traces(place: Place) -> list[str]:
    """Everything that is left of a run."""
    kept = [
        Path("/var/run/netns", place.namespace),
        Path("/sys/class/net", place.host.name),
        Path("/sys/class/net", place.own.name),
        kernel_slots.CLAIMS.lock_file(place.number),
    ]
    return [str(path) for path in kept if path.exists()]


def alive(pids: list[int]) -> list[int]:
    """The processes that still run after enough time for a killed one to end.

    Zombies do not count: their parent must reap them.
    """
    give_up = time.monotonic() + 20
    while (running := _running(pids)) and time.monotonic() < give_up:
        time.sleep(0.02)
    return running


def _running(pids: list[int]) -> list[int]:
    return [
        pid
        for pid in pids
        if (stat := Path("/proc", str(pid), "stat")).exists()
        and stat.read_text().rpartition(")")[2].split()[0] != "Z"
    ]


def test_check_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    status = run(["kernel", "check"])
    out, error = capsys.readouterr()
    names = "linux root ip tc namespaces veth sch_tbf sch_htb sch_netem"
    assert [line.split()[0] for line in out.splitlines()][:9] == names.split()
    assert (status, error) == ((2, f"emulator: {refusal()}\n") if refusal() else (0, ""))


def test_a_command_has_its_addresses_and_passes_its_status_on(tmp_path: Path, real: Real) -> None:
    log = tmp_path / "log.json"
    script = "echo $EMULATOR_HOST_ADDRESS $EMULATOR_OWN_ADDRESS; ls /sys/class/net; exit 7"
    done = real(*f"--up 2mbit --down 20mbit --log {log} -- sh -c".split(), script)
    if done is None:
        assert not log.exists()
        return
    host, own, *interfaces = done.out.split()
    place, record = place_of(own), json.loads(log.read_text())
    assert (done.status, place.host.address) == (7, host)
    assert {place.own.name, "lo"} <= set(interfaces) and place.host.name not in interfaces
    assert traces(place) == []
    assert (record["status"], record["signal"], record["relay"]) == (7, None, None)
    assert (record["shaper"], record["delay"]) == ("htb", "none")
    shape = KernelShape(KernelWay(2 * MBIT), KernelWay(20 * MBIT))
    assert record["plan"] == make(place, shape, Path("/proc/sys/net/ipv6").exists())
    assert [qdisc["kind"] for end in ("host", "own") for qdisc in record["qdiscs"][end]] == [
        "htb",
        "pfifo",
    ] * 2
    assert record["congestion_control"]["own"] and record["tcp_timestamps"]["own"] in (0, 1)


RECEIVE = """
import os, socket
with socket.create_connection((os.environ["EMULATOR_HOST_ADDRESS"], {port})) as s:
    got = b"".join(iter(lambda: s.recv(65536), b""))
print(len(got), set(got))
"""


def test_bytes_pass_in_both_directions_with_latency(tmp_path: Path, real: Real) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port, log = server.getsockname()[1], tmp_path / "log.json"
        took_s: list[float] = []

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"a" * 100_000)
                peer.shutdown(socket.SHUT_WR)
                began_s = time.monotonic()
                peer.recv(1)
                took_s.append(time.monotonic() - began_s)

        if not refusal(MS):
            threading.Thread(target=serve, daemon=True).start()
        words = f"--up 8mbit --down 8mbit --latency 20ms --log {log} --".split()
        done = real(*words, sys.executable, "-c", RECEIVE.format(port=port))
    if done is None:
        return
    assert (done.status, done.out) == (0, "100000 {97}\n")
    record = json.loads(log.read_text())
    # a connection and 100 kB at 1 MB/s, less the shaper's burst
    assert record["seconds"] >= 0.02 * 2 + 0.1 * 0.9
    if record["delay"] == "relay":
        assert "made by a relay in user space" in done.err
        down = record["relay"]["down"]
        assert down["frames"] >= 100_000 // 1448 and down["lost"] == 0


SEND_AND_GO = """
import os, socket
s = socket.create_connection((os.environ["EMULATOR_HOST_ADDRESS"], {port}))
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1000000)
s.setblocking(False)
print(s.send(bytes(200000)))
"""


def test_what_a_command_sent_before_it_ended_still_arrives(real: Real) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        got: list[int] = []

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                got.append(sum(map(len, iter(lambda: peer.recv(65536), b""))))

        thread = threading.Thread(target=serve, daemon=True)
        if not refusal():
            thread.start()
        script = SEND_AND_GO.format(port=server.getsockname()[1])
        done = real("--up", "4mbit", "--", sys.executable, "-c", script)
        if done is None:
            return
        thread.join(20)
    assert done.status == 0 and "were not delivered" not in done.err
    assert got == [int(done.out)]


def test_what_a_command_leaves_running_ends_with_it(real: Real) -> None:
    script = "sleep 77 >/dev/null 2>&1 & echo $! $EMULATOR_OWN_ADDRESS"
    done = real("--up", "4mbit", "--", "sh", "-c", script)
    if done is not None:
        pid, own = done.out.split()
        assert alive([int(pid)]) == [] and traces(place_of(own)) == []


def started(
    real: Real, *arguments: str, patch: str = ""
) -> tuple[subprocess.Popen[str], Place, list[int]] | None:
    """Start a run in a separate process that prints its address and process ids in one line.

    None if this host cannot.
    """
    if refusal(MS if "--latency" in arguments else 0):
        assert real(*arguments) is None
        return None
    script = f"{patch}import sys; from emulator.cli import run; sys.exit(run(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "kernel", "run", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    own, *pids = process.stdout.readline().split()
    process.stdout.close()
    return process, place_of(own), [int(pid) for pid in pids]


SLEEPS = ("--up", "4mbit", "--", "sh", "-c", "sleep 77 & echo $EMULATOR_OWN_ADDRESS $$ $!; wait")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_leaves_nothing(number: signal.Signals, real: Real) -> None:
    # A shell that has started nothing else: children in its background would ignore SIGINT.
    if (
        begun := started(real, *SLEEPS[:5], "echo $EMULATOR_OWN_ADDRESS $$; exec sleep 77")
    ) is None:
        return
    process, place, pids = begun
    process.send_signal(number)
    assert process.wait(30) == 128 + number
    assert traces(place) == [] and alive(pids) == []


def test_a_command_that_ignores_the_signal_is_killed(real: Real) -> None:
    arguments = (
        *SLEEPS[:5],
        'trap "" TERM; echo $EMULATOR_OWN_ADDRESS $$; while :; do sleep 0.1; done',
    )
    if (
        begun := started(
            real,
            *arguments,
            patch="import emulator.kernel.run; emulator.kernel.run.GRACE_S = 0.1\n",
        )
    ) is None:
        return
    process, place, pids = begun
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGKILL
    assert traces(place) == [] and alive(pids) == []


@pytest.mark.parametrize("latency", [(), ("--latency", "1ms")])
def test_what_a_killed_owner_left_is_removed_by_the_next_start(
    latency: tuple[str, ...], real: Real
) -> None:
    if (begun := started(real, *latency, *SLEEPS)) is None:
        return
    process, place, pids = begun
    process.kill()
    process.wait(30)
    assert len(traces(place)) >= 2  # the namespace and the lock; taps disappear with their owner
    done = real("--up", "4mbit", "--", "true")
    assert done is not None and done.status == 0
    assert traces(place) == []
    assert alive(pids) == []


def test_a_step_that_fails_is_named_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, real: Real
) -> None:
    if refusal():
        assert real("--up", "4mbit", "--", "true") is None
        return
    places: list[Place] = []

    def broken(place: Place, shape: KernelShape, ipv6: bool) -> list[list[str]]:
        places.append(place)
        return [*make(place, shape, ipv6), ["tc", "-n", place.namespace, "no-such-thing"]]

    monkeypatch.setattr(kernel, "make", broken)
    with pytest.raises(
        BadValue, match="^kernel mode: tc -n emulator-[0-9]+ no-such-thing: .*no-such-thing"
    ):
        kernel.run(KernelShape(KernelWay(MBIT), KernelWay(MBIT)), ["true"])
    assert traces(places[0]) == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--up", "2mbit", "--", "no-such-program"), "COMMAND 'no-such-program': no such program"),
        (("--up", "2mbit", "--shaper", "cake", "--", "true"), "no sch_cake"),
        (
            ("--up", "2mbit", "--log", "no/such/log.json", "--", "true"),
            "--log no/such/log.json: expected a file in a directory that exists",
        ),
    ],
)
def test_a_run_that_cannot_begin_is_one_line(
    arguments: tuple[str, ...], reason: str, real: Real
) -> None:
    done = real(*arguments)
    assert done is None or (
        (done.status, done.out, done.err.count("\n")) == (2, "", 1) and reason in done.err
    )
