"""One Flower app with FedAvg: as Flower's own system behind ``emulator proxy``, and here.

Both have the same links, first model, data of each client and seed. A table shows the seconds and
bytes of each round. ``links s``: the time of the client whose transfers took longest, down and up;
``rest s`` is the remainder of the round: training (``train s``, the mean of the clients), polling,
starts of processes, serialisation.
What each model took on its link is compared with bytes x 8 / rate. Runs in Flower's environment:

    .venv-flower/bin/python scripts/studies/beside_flower.py --clients 10 --mb 10 --mbit 20
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file

from edgefl.errors import UserError
from edgefl.exit_status import BAD_INPUT, FAILED
from edgefl.results.read import read_csv
from emulator.errors import BadValue

APP = Path(__file__).parent / "digits_app"
UNIT_FLOATS = 64 + 1 + 10  # of each hidden unit: its weights, its bias, and those of the digits
BYTES_PER_FLOAT, BITS = 4, 8
SAMPLES = 1797  # images of the digits
LARGE = 0.01  # bytes of at least this share of the model are a part of it
WIDTH = 120  # of the table in a file or a pipe
LOCAL = "127.0.0.1"
BIN = Path(sys.executable).parent
SUPERLINK = BIN / "flower-superlink"
PATIENCE_S = 120.0  # for each step of the start
PAUSE_S = 0.1
GRACE_S = 5.0
LARGEST_STEP = 3.0  # x hidden units
SUBREAPER = 36  # of Linux's prctl: processes whose parent has ended become our children
CONNECTED = "Activated node_id="  # the SuperLink says it of each SuperNode
# Flower waits 30 s for the first sign of an app's process. Then it takes back the token and starts
# another process; the first one is refused with this line (status 401) and ends.
REFUSED = "[/v1/runtime/pull-task-input][ApiError:1008]"


@dataclass(frozen=True, slots=True)
class Setting:
    """What both systems run: FedAvg on links of ``rate_mbit_s`` in each direction."""

    clients: int
    rounds: int
    hidden: int
    rate_mbit_s: float
    latency_ms: float
    seed: int

    def run_config(self) -> dict[str, float]:
        """Values for the app's keys. A wider network needs smaller steps."""
        return {
            "learning-rate": min(0.1, LARGEST_STEP / self.hidden),
            "num-server-rounds": self.rounds,
            "num-clients": self.clients,
            "hidden": self.hidden,
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes that crossed a link without a pause, in seconds of one clock."""

    client: str
    direction: str
    begin_s: float
    end_s: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one system."""

    system: str
    round: int
    seconds: float
    links_s: float
    rest_s: float
    train_s: float
    up_bytes: int
    down_bytes: int


def main() -> None:
    args = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(FAILED))  # so that all programs are ended
    try:
        _check(args)
        hidden = max(1, round(args.mb * 1e6 / BYTES_PER_FLOAT / UNIT_FLOATS))
        setting = Setting(args.clients, args.rounds, hidden, args.mbit, args.latency_ms, args.seed)
        folder = args.out.resolve()
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "flower").mkdir(parents=True)
        run_flower(APP.resolve(), setting, folder / "flower", args.wait_s)
        transfers, theirs, ends_s = flower_rounds(folder / "flower")
        run_here(setting, folder)
        ours = rounds_here(folder / "here" / "fedavg", setting)
        checked = check_transfers(transfers, ends_s, setting)
        found = checked | {
            "slow_starts": slow_starts(folder / "flower"),
            "largest_difference_of_models": _difference(folder),
        }
        _tell(setting, [*theirs, *ours], found)
        _leave(folder, setting, [*theirs, *ours], found)
    except (UserError, BadValue) as error:
        print(error, file=sys.stderr)
        sys.exit(BAD_INPUT)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=10, help="default: 10")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--mb", type=float, default=10.0, help="size of the model; default: 10")
    parser.add_argument("--mbit", type=float, default=20.0, help="rate of each link; default: 20")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="default: 0")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--wait-s", type=float, default=600.0, help="longest run; default: 600")
    parser.add_argument("--out", type=Path, default=Path("beside-flower"), help="a new folder")
    return parser.parse_args()


def _check(args: argparse.Namespace) -> None:
    for name in ("clients", "rounds", "mb", "mbit", "wait_s"):
        if not 0 < getattr(args, name) < 1e6:
            raise UserError(f"--{name.replace('_', '-')} {getattr(args, name)}: expected above 0")
    if args.latency_ms < 0:
        raise UserError(f"--latency-ms {args.latency_ms}: expected 0 or more")
    # only a folder of an earlier run is replaced
    if args.out.exists() and any(args.out.iterdir()) and not (args.out / "flower").exists():
        raise UserError(f"--out {args.out}: has other files; expected a new folder")
    if find_spec("flwr") is None or not SUPERLINK.exists():
        raise UserError(
            "flwr is not installed here: scripts/setup_flower.sh makes .venv-flower; start this"
            " with .venv-flower/bin/python"
        )


# ------------------------------------------------------------------ Flower's own system
def run_flower(app: Path, setting: Setting, folder: Path, wait_s: float) -> None:
    """Run the app; leave report.json, report.npz, proxy.json, busy.csv and logs in ``folder``.

    Only what a SuperNode says to the SuperLink (the Fleet API) crosses a link. The app's processes
    talk to the SuperLink or to their SuperNode directly, as they do on one machine.
    UserError if a program of Flower ends, or if the run takes longer than ``wait_s``.
    """
    home = folder / "home"
    home.mkdir(parents=True)
    env = os.environ | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        # a process per client, so one thread each
        "OMP_NUM_THREADS": "1",
    }
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    with ExitStack() as stack:
        programs = Programs(folder, env)
        stack.callback(programs.end)
        port, *ports = free_ports(1 + setting.clients)
        _superlink(programs, port)
        links = _links(programs, setting, port)
        _supernodes(programs, setting, links, ports)
        _submit(programs, app, setting, port, home)
        report = folder / "report.json"
        programs.until(report.exists, "the run", wait_s)


class Programs:
    """The programs that have been started; each has a log in ``folder``."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder, self._env = folder, env
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, words: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                words, stdout=log, stderr=subprocess.STDOUT, env=self._env, cwd=self.folder
            )
        return self._running[name]

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def until(self, done: Callable[[], bool], what: str, wait_s: float = PATIENCE_S) -> None:
        """Wait; UserError if it takes too long, or if a program has ended."""
        limit_s = time.monotonic() + wait_s
        while not done():
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise UserError(f"{name} has ended: see {self.folder / name}.log")
            if time.monotonic() > limit_s:
                slow = slow_starts(self.folder)
                raise UserError(
                    f"{what} takes more than {wait_s:g} s ({slow} slow starts): see"
                    f" {self.folder}/*.log; an idle machine or fewer --clients may help"
                )
            time.sleep(PAUSE_S)

    def once(self, name: str, words: list[str]) -> None:
        """Run a program to its end; UserError if it fails."""
        process = self.start(name, words)
        if process.wait(PATIENCE_S):
            raise UserError(f"{name} failed: see {self.folder / name}.log")
        del self._running[name]

    def end(self) -> None:
        """End all, and what they have left: their own processes are in other sessions."""
        for process in self._running.values():
            process.send_signal(signal.SIGINT)
        limit_s = time.monotonic() + GRACE_S
        for process in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, limit_s - time.monotonic()))
        while family := psutil.Process().children(recursive=True):
            for child in family:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            psutil.wait_procs(family, GRACE_S)


def slow_starts(folder: Path) -> int:
    """How many processes of the app took more than 30 s to start, so that others took over."""
    return sum(path.read_text(errors="replace").count(REFUSED) for path in folder.glob("*.log"))


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOCAL, 0))
        return [each.getsockname()[1] for each in sockets]


def _superlink(programs: Programs, port: int) -> None:
    words = ["--insecure", "--disable-runtime-dependency-installation", "--host", LOCAL]
    programs.start("superlink", [str(SUPERLINK), *words, "--port", str(port)])

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOCAL, port)) == 0

    programs.until(listens, "the start of flower-superlink")


def _links(programs: Programs, setting: Setting, port: int) -> list[str]:
    """Start the proxy; return the address of each client's link."""
    rate = ["--up", f"{setting.rate_mbit_s:g}mbit", "--down", f"{setting.rate_mbit_s:g}mbit"]
    late = ["--latency", f"{setting.latency_ms:g}ms"]
    maps = [word for _ in range(setting.clients) for word in ("--map", f"{LOCAL}:0={LOCAL}:{port}")]
    command = [sys.executable, "-c", "from emulator.cli import main; main()", "proxy"]
    files = ["--log", "proxy.json", "--busy", "busy.csv"]
    programs.start("proxy", [*command, *maps, *rate, *late, *files])

    def addresses() -> list[str]:
        return re.findall(r"^listening on ([^ ,]+), to", programs.said("proxy"), re.MULTILINE)

    programs.until(lambda: len(addresses()) == setting.clients, "the start of the proxy")
    return addresses()


def _supernodes(programs: Programs, setting: Setting, links: list[str], ports: list[int]) -> None:
    """Start the SuperNodes one after the other: together, their start takes the whole machine."""
    for number, (link, port) in enumerate(zip(links, ports)):
        node = f"partition-id={number} num-partitions={setting.clients}"
        words = ["--insecure", "--superlink", link, "--port", str(port), "--node-config", node]
        programs.start(f"supernode{number}", [str(BIN / "flower-supernode"), *words])
        programs.until(
            lambda count=number + 1: programs.said("superlink").count(CONNECTED) >= count,
            f"the start of SuperNode {number}",
        )


def _submit(programs: Programs, app: Path, setting: Setting, port: int, home: Path) -> None:
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n\n[superlink.here]\n'
        f'address = "{LOCAL}:{port}"\ninsecure = true\n'
    )
    said = setting.run_config() | {"report": f'"{programs.folder / "report.json"}"'}
    words = " ".join(f"{key}={value}" for key, value in said.items())
    programs.once("run", [str(BIN / "flwr"), "run", str(app), "here", "--run-config", words])


# ------------------------------------------------------------------ rounds of both systems
def flower_rounds(folder: Path) -> tuple[list[Transfer], list[Round], list[float]]:
    """The transfers behind the proxy, the rounds that the ServerApp reported, and their ends."""
    began_s = json.loads((folder / "proxy.json").read_text())["began_unix_s"]
    transfers = _transfers(folder / "busy.csv", ("listen", "begin_s", "end_s"), began_s)
    report = json.loads((folder / "report.json").read_text())
    ends = report["ends_unix_s"]
    rounds = [
        _round("flower", number, begin_s, end_s, transfers, trained["train_s"])
        for number, (begin_s, end_s, trained) in enumerate(
            zip(ends, ends[1:], report["trained"]), 1
        )
    ]
    return transfers, rounds, ends


def run_here(setting: Setting, folder: Path) -> None:
    """Run the same app on our coordinator and edges, with the same links, in real time."""
    said = ", ".join(f"{key} = {value}" for key, value in setting.run_config().items())
    config = f"""name = "here"
task = "flower:{APP.resolve()}"
seed = {setting.seed}
strategies = [{{ strategy = "fedavg" }}]
flower = {{ samples = {SAMPLES}, run_config = {{ {said} }} }}
edges = {{ count = {setting.clients} }}
devices = {{ kind = "native" }}
evaluation = {{ every_versions = {setting.rounds} }}
stop = {{ versions = {setting.rounds} }}

[links]
up_mbit_s = {setting.rate_mbit_s}
down_mbit_s = {setting.rate_mbit_s}
latency_ms = {setting.latency_ms}
"""
    (folder / "here.toml").write_text(config)
    command = [sys.executable, "-c", "from edgefl.cli import main; main()", "run", "here.toml"]
    with (folder / "here.log").open("wb") as log:
        done = subprocess.run(
            [*command, "--out", ".", "--overwrite"],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    if done.returncode:
        raise UserError(f"edgefl run failed: see {folder / 'here.log'}")


def rounds_here(directory: Path, setting: Setting) -> list[Round]:
    """The rounds of our run: one begins when its first model is sent."""
    transfers = _transfers(directory / "links.csv", ("edge", "offered_s", "finished_s"))
    models: dict[str, list[float]] = {}
    for each in transfers:
        if each.direction == "down":
            models.setdefault(each.client, []).append(each.begin_s)
    begins = [min(times) for times in zip(*(sorted(times) for times in models.values()))]
    ends = [*begins[1 : setting.rounds], max(each.end_s for each in transfers)]
    trained = [
        (float(row["began_s"]), float(row["ended_s"]))
        for row in read_csv(directory / "measured.csv")
        if row["what"] == "training"
    ]
    return [
        _round("here", number, begin_s, end_s, transfers, _mean_s(trained, begin_s, end_s))
        for number, (begin_s, end_s) in enumerate(zip(begins, ends), 1)
    ]


def _transfers(path: Path, columns: tuple[str, str, str], from_s: float = 0.0) -> list[Transfer]:
    """Read transfers; ``columns``: of the client, the begin and the end, after ``from_s``."""
    client, begin, end = columns
    return [
        Transfer(
            row[client],
            row["direction"],
            from_s + float(row[begin]),
            from_s + float(row[end]),
            int(row["bytes"]),
        )
        for row in read_csv(path)
    ]


def _mean_s(trained: list[tuple[float, float]], begin_s: float, end_s: float) -> float:
    return float(np.mean([end - begin for begin, end in trained if begin_s <= begin < end_s]))


def _round(
    system: str,
    number: int,
    begin_s: float,
    end_s: float,
    transfers: Iterable[Transfer],
    train_s: float,
) -> Round:
    mine = [each for each in transfers if begin_s <= each.begin_s < end_s]
    busy_s: dict[str, float] = {}
    for each in mine:
        busy_s[each.client] = busy_s.get(each.client, 0.0) + each.end_s - each.begin_s
    carried = {
        way: sum(each.bytes for each in mine if each.direction == way) for way in ("up", "down")
    }
    seconds, links_s = end_s - begin_s, max(busy_s.values(), default=0.0)
    rest_s = seconds - links_s
    return Round(system, number, seconds, links_s, rest_s, train_s, carried["up"], carried["down"])


def check_transfers(
    transfers: list[Transfer], ends_s: list[float], setting: Setting
) -> dict[str, Any]:
    """How far the models' durations on the links are from bytes x 8 / rate, in percent.

    A model crosses a client's link in pieces, one direction after the other; their durations and
    bytes are added up.
    """
    least_bytes = LARGE * setting.hidden * UNIT_FLOATS * BYTES_PER_FLOAT
    models: dict[tuple[int, str, str], tuple[float, int]] = {}
    for each in transfers:
        number = bisect_right(ends_s, each.begin_s)
        if each.bytes >= least_bytes and 0 < number < len(ends_s):  # in a round
            key = number, each.client, each.direction
            took_s, carried = models.get(key, (0.0, 0))
            took_s += each.end_s - each.begin_s - setting.latency_ms / 1e3
            models[key] = took_s, carried + each.bytes
    if not models:
        raise UserError("no model crossed the proxy: see proxy.log")
    rate_bytes_s = setting.rate_mbit_s * 1e6 / BITS
    errors = [100 * (took_s * rate_bytes_s / carried - 1) for took_s, carried in models.values()]
    return {
        "models_sent": len(errors),
        "mean_error_percent": float(np.mean(errors)),
        "worst_error_percent": float(max(errors, key=abs)),
    }


def _difference(folder: Path) -> float:
    """The largest difference between both last models, over all their numbers."""
    with np.load(folder / "flower" / "report.npz") as arrays:
        theirs = np.concatenate([arrays[name].ravel() for name in arrays.files])
    ours = load_file(folder / "here" / "fedavg" / "model.safetensors")["weights"]
    return float(np.abs(theirs - ours).max())


def _tell(setting: Setting, rounds: list[Round], found: dict[str, Any]) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    size_mb = setting.hidden * UNIT_FLOATS * BYTES_PER_FLOAT / 1e6
    table = Table(
        title=f"{setting.clients} clients, {size_mb:.3g} MB, {setting.rate_mbit_s:g} Mbit/s",
        title_justify="left",
    )
    for heading in ("system", "round", "s", "links s", "rest s", "train s", "up MB", "down MB"):
        table.add_column(heading, justify="left" if heading == "system" else "right")
    for each in rounds:
        times = (
            f"{value:.3f}" for value in (each.seconds, each.links_s, each.rest_s, each.train_s)
        )
        carried = (f"{value / 1e6:.4g}" for value in (each.up_bytes, each.down_bytes))
        table.add_row(each.system, str(each.round), *times, *carried)
    console.print(table)
    mean, worst = found["mean_error_percent"], found["worst_error_percent"]
    for line in (
        f"behind the proxy: {found['models_sent']} models; their time on a link against"
        f" bytes x 8 / rate: mean {mean:+.3f} %, worst {worst:+.3f} %",
        f"app processes that took more than 30 s to start, so that Flower started others:"
        f" {found['slow_starts']}",
        f"largest difference between both last models: {found['largest_difference_of_models']:.2g}",
    ):
        console.print(line, soft_wrap=True, highlight=False)


def _leave(folder: Path, setting: Setting, rounds: list[Round], found: dict[str, Any]) -> None:
    """Write rounds.csv and rounds.json."""
    rows = [asdict(each) for each in rounds]
    with (folder / "rounds.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    whole = {"setting": asdict(setting), "found": found, "rounds": rows}
    (folder / "rounds.json").write_text(json.dumps(whole, indent=2) + "\n")
    print(f"rounds: {folder / 'rounds.csv'}, {folder / 'rounds.json'}", file=sys.stderr)


if __name__ == "__main__":
    main()
