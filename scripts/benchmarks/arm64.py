"""An edge on 64-bit ARM next to one on this machine, in the same run.

Debootstrap makes a Debian root for ARM, whose programs QEMU runs. There, scripts/install_pi.sh
installs the service of an edge, as on a Raspberry Pi. The command of its unit, as the service's
user, then takes part in the three strategies of the quickstart, with a second edge on this machine,
both with their native speed. Needs root, the Debian packages debootstrap and qemu-user-static, the
network, 3 GB of disk and about ten minutes. The times are those of an emulator: a real Raspberry Pi
is faster.

--check only says whether this machine has what is needed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import machine_facts
import orjson
import psutil
from arm64_root import Arm64Root, emulated, lacking
from table import Row, arguments, host_line, report, run, say

from edgefl.errors import UserError

CHECKOUT = Path(__file__).resolve().parents[2]
CONFIG = CHECKOUT / "configs" / "quickstart.toml"
CARRIED = ("edgefl", "emulator", "configs", "scripts", "pyproject.toml", "README.md", "LICENSE")
ARM, HERE = "arm", "here"  # the two edges
VENV = "opt/edgefl/venv"
UNIT, SETTING = "etc/systemd/system/edgefl-edge@.service", f"etc/edgefl/{ARM}.env"
MB = 1e6
LOOK_S = 0.2
YES = ">= 1"
SETTINGS = [
    f'edges.names=["{ARM}","{HERE}"]',
    *("devices.kind=native", "network.join_timeout_s=600"),
    *("strategies.fedavg.clients_per_round=2", "strategies.fedasync.concurrency=2"),
    *("strategies.fedbuff.concurrency=2", "strategies.fedbuff.buffer_size=2"),
]
STRATEGIES = ("fedavg", "fedasync", "fedbuff")


def main() -> None:
    options, host = parsed(), host_line()
    missing = lacking()
    if options.check:
        rows = [Row("lacks", text) for text in missing] or [Row("lacks", "nothing")]
        free = shutil.disk_usage(existing(options.root)).free / MB
        report(
            "an edge on ARM: this machine",
            host,
            [*rows, Row("free disk", free, "MB")],
            options.json,
        )
        return
    if missing:
        raise UserError(f"this machine lacks: {'; '.join(missing)}")
    root = Arm64Root(options.root, options.cpu)
    with root.held():
        try:
            with emulated(), tempfile.TemporaryDirectory(prefix="arm64-") as scratch:
                port, folder = free_port(), Path(scratch)
                make_files(folder)
                rows = [*made(root, options.suite, options.mirror)]
                rows += [*installed(root, folder, port), *alike(root)]
                rows += trained(root, folder, port, options.seconds)
            rows.append(Row("mounts left", mounts_below(root.folder), "", "<= 0"))
        finally:
            if not options.keep:
                root.remove()
    report(f"an edge on ARM ({options.cpu})", host, rows, options.json)


def parsed() -> Any:
    parser = arguments(__doc__)
    parser.add_argument("--check", action="store_true", help="only look what this machine lacks")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(tempfile.gettempdir()) / "edgefl-arm64",
        metavar="DIR",
        help="the folder of the ARM system (default: %(default)s)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the folder; a later call needs 5 minutes less"
    )
    parser.add_argument(
        "--cpu",
        default="cortex-a72",
        metavar="NAME",
        help="QEMU's processor: cortex-a53 (Pi 3), cortex-a72 (Pi 4; default), cortex-a76 (Pi 5)",
    )
    parser.add_argument("--suite", default="bookworm", help="Debian's release (%(default)s)")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian", metavar="URL")
    parser.add_argument(
        "--seconds", type=float, default=20.0, metavar="S", help="of each strategy (%(default)s)"
    )
    options = parser.parse_args()
    if not options.seconds > 0:
        raise UserError(f"--seconds {options.seconds}: expected more than 0")
    return options


def existing(folder: Path) -> Path:
    """Return the folder, or the first one above it that exists."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())


def make_files(scratch: Path) -> None:
    """Make keys and shards for both edges."""
    edgefl(scratch, "keys", "new", "keys", "--ids", f"{ARM},{HERE}")
    edgefl(scratch, "data", "shard", str(CONFIG), SETTINGS[0], "--out", "shards")


def made(root: Arm64Root, suite: str, mirror: str) -> Iterator[Row]:
    """Make the root, if it is not there."""
    if not root.is_complete:
        say(f"{root.folder}: debootstrap {suite}, about 5 minutes")
        began_s = time.monotonic()
        root.make(suite, mirror)
        yield Row("debootstrap", time.monotonic() - began_s, "s")


def installed(root: Arm64Root, scratch: Path, port: int) -> Iterator[Row]:
    """Copy the checkout and the files of the ARM edge there, and install its service, twice."""
    home = root.folder / "root"
    for name in ("fl", "keys", "shards"):
        shutil.rmtree(home / name, ignore_errors=True)
    without_caches = shutil.ignore_patterns("__pycache__")
    (home / "fl").mkdir()
    for name in CARRIED:
        path = CHECKOUT / name
        if path.is_dir():
            shutil.copytree(path, home / "fl" / name, symlinks=True, ignore=without_caches)
        else:
            shutil.copy(path, home / "fl")
    shard = f"shards/{ARM}.safetensors"
    for name in ("keys/coordinator.key", f"keys/edges/{ARM}.key_secret", shard):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(scratch / name, home / name)
    words = ["--service", ARM, "--connect", f"tcp://127.0.0.1:{port}"]
    words += ["--keys", "keys", "--shards", "shards"]
    for what in ("install_pi.sh", "install_pi.sh, called again"):
        say(f"{what} in the ARM root")
        began_s = time.monotonic()
        told = root.run("fl/scripts/install_pi.sh", *words).stdout
        yield Row(what, time.monotonic() - began_s, "s")
    yield Row("the second call installs nothing", int("is up to date" in told), "", YES)
    yield Row("environment", size_of(root.folder / VENV) / MB, "MB")


def of_unit(root: Arm64Root) -> list[str]:
    """Return the command line of the installed unit, as its user, with its settings."""
    unit = (root.folder / UNIT).read_text()
    values = dict(re.findall(r"^(User|ExecStart)=(.*)$", unit, flags=re.MULTILINE))
    settings = (root.folder / SETTING).read_text().partition("=")[2].strip().strip('"')
    command = values["ExecStart"].replace("%i", ARM).replace("$EDGEFL_EDGE", settings)
    return ["runuser", "-u", values["User"], "--", "env", "-C", "/", *shlex.split(command)]


def size_of(folder: Path) -> int:
    """Return the bytes of disk that a folder takes."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def alike(root: Arm64Root) -> Iterator[Row]:
    """Compare what both sides of a run compute from the same config."""
    say("digests on both machines")
    program = "import machine_facts; machine_facts.tell()"
    path = "PYTHONPATH=/root/fl/scripts/benchmarks"
    told = root.run("env", path, f"/{VENV}/bin/python", "-c", program).stdout
    there = orjson.loads(told.splitlines()[-1])
    for name, value in there["versions"].items():
        yield Row(f"ARM: {name}", value)
    here = machine_facts.digests()
    for kind in ("partition", "layout", "first model"):
        names = [name for name in here if name.startswith(kind)]
        unequal = [name for name in names if here[name] != there["digests"].get(name)]
        yield Row(f"{kind}s that differ, of {len(names)}", len(unequal), "", "<= 0")


def trained(root: Arm64Root, scratch: Path, port: int, seconds: float) -> Iterator[Row]:
    """Run the quickstart's strategies with an edge in the root and one here."""
    settings = [*SETTINGS, f"stop.emulated_s={seconds}", f"network.port={port}"]
    say(f"three strategies, {seconds:g} s each")
    peaks = run_of_two(root, scratch, settings, port)
    yield Row("ARM edge: peak memory, with the emulator's", peaks[ARM] / MB, "MB")
    yield Row("edge here: peak memory", peaks[HERE] / MB, "MB")
    for strategy in STRATEGIES:
        yield from judged(scratch / "runs" / "quickstart" / strategy, strategy)


def run_of_two(root: Arm64Root, scratch: Path, settings: list[str], port: int) -> dict[str, int]:
    """Run a coordinator and both edges to its end; return each edge's peak memory in bytes."""
    joined = ["--connect", f"tcp://127.0.0.1:{port}", "--keys", "keys", "--shards", "shards"]
    commands = {
        "coordinator": [*DIRECT, "coordinator", str(CONFIG), "--keys", "keys", *settings],
        ARM: root.words(of_unit(root)),
        HERE: [*DIRECT, "edge", "--id", HERE, *joined],
    }
    with ExitStack() as ends:
        running = {
            name: ends.enter_context(started(words, scratch, name))
            for name, words in commands.items()
        }
        peaks = dict.fromkeys((ARM, HERE), 0)
        while running["coordinator"].poll() is None:
            for name in peaks:
                if running[name].poll() not in (None, 0):
                    raise UserError(f"edge {name} failed: {last_line(scratch / f'{name}.log')}")
                peaks[name] = max(peaks[name], peak_bytes(running[name].pid))
            time.sleep(LOOK_S)
        if running["coordinator"].returncode:
            raise UserError(f"the coordinator failed: {last_line(scratch / 'coordinator.log')}")
    return peaks


DIRECT = [sys.executable, "-m", "edgefl.cli"]


@contextmanager
def started(words: list[str], scratch: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that writes NAME.log and ends with this block."""
    with (scratch / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            words, cwd=scratch, env=environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()  # what it started in the root ends with it
        process.wait()


def edgefl(folder: Path, *words: str) -> None:
    """Run an edgefl command here. UserError with its last line if it fails."""
    done = subprocess.run(
        [*DIRECT, *words], cwd=folder, env=environment(), capture_output=True, text=True
    )
    if done.returncode:
        raise UserError(f"edgefl {words[0]}: {done.stderr.strip().splitlines()[-1:]}")


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(CHECKOUT)}


def free_port() -> int:
    """Return a TCP port that nothing uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def peak_bytes(pid: int) -> int:
    """Return the largest peak of resident memory of a process and its descendants."""
    peaks = [0]
    with suppress(psutil.Error):
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for each in family:
            with suppress(OSError, IndexError):
                status = Path(f"/proc/{each.pid}/status").read_text()
                peaks.append(int(status.partition("VmHWM:")[2].split()[0]) * 1024)
    return max(peaks)


def judged(folder: Path, strategy: str) -> Iterator[Row]:
    """Return the rows of one strategy's run."""
    summary = orjson.loads((folder / "summary.json").read_bytes())
    verdict = summary["fidelity"]["verdict"]
    told = "; ".join([verdict, *summary["fidelity"]["reasons"]])
    yield Row(f"{strategy}: verdict", told)
    yield Row(f"{strategy}: is faithful", int(verdict == "faithful"), "", YES)
    yield Row(f"{strategy}: accuracy", summary["final_accuracy"])
    lines = (folder / "measured.csv").read_text().splitlines()[1:]
    cells = [line.split(",") for line in lines if line.startswith("training,")]
    for edge in (ARM, HERE):
        mine = [
            (float(end) - float(began), float(n)) for _, e, _, began, end, n in cells if e == edge
        ]
        yield Row(f"{strategy}: trainings of {edge}", len(mine), "", YES)
        if mine:
            yield Row(f"{strategy}: training of {edge}", median(s for s, _ in mine), "s")
            rate = median(samples / s for s, samples in mine)
            yield Row(f"{strategy}: speed of {edge}", rate, "samples/s")


def mounts_below(folder: Path) -> int:
    """Return how many mounts this machine has in a folder."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sum(line.split()[4].startswith(f"{folder}/") for line in lines)


def last_line(log: Path) -> str:
    return (log.read_text(errors="replace").strip().splitlines() or ["it wrote nothing"])[-1]


if __name__ == "__main__":
    run(main)
