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
import json
import os
import shutil
import signal
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from flower_system import SUPERLINK, Setting, run_flower, slow_starts
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file

from edgefl.errors import UserError
from edgefl.exit_status import BAD_INPUT, FAILED
from emulator.errors import BadValue

APP = Path(__file__).parent / "digits_app"
UNIT_FLOATS = 64 + 1 + 10  # of each hidden unit: its weights, its bias, and those of the digits
BYTES_PER_FLOAT, BITS = 4, 8
SAMPLES = 1797  # images of the digits
LARGE = 0.01  # bytes of at least this share of the model are a part of it
WIDTH = 120  # of the table in a file or a pipe


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
        if not args.reuse:
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
    parser.add_argument(
        "--reuse", action="store_true", help="take Flower's part from an earlier run in --out"
    )
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
    if args.reuse and not (args.out / "flower" / "report.json").exists():
        raise UserError(f"--reuse: no complete run of Flower in {args.out}")
    if find_spec("flwr") is None or not SUPERLINK.exists():
        raise UserError(
            "flwr is not installed here: scripts/setup_flower.sh makes .venv-flower; start this"
            " with .venv-flower/bin/python"
        )


def flower_rounds(folder: Path) -> tuple[list[Transfer], list[Round], list[float]]:
    """The transfers behind the proxy, the rounds that the ServerApp reported, and their ends."""
    began_s = json.loads((folder / "proxy.json").read_text())["began_unix_s"]
    with (folder / "busy.csv").open() as file:
        transfers = [
            Transfer(
                row["listen"],
                row["direction"],
                began_s + float(row["begin_s"]),
                began_s + float(row["end_s"]),
                int(row["bytes"]),
            )
            for row in csv.DictReader(file)
        ]
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
    with (directory / "links.csv").open() as file:
        transfers = [
            Transfer(
                row["edge"],
                row["direction"],
                float(row["offered_s"]),
                float(row["finished_s"]),
                int(row["bytes"]),
            )
            for row in csv.DictReader(file)
        ]
    models: dict[str, list[float]] = {}
    for each in transfers:
        if each.direction == "down":
            models.setdefault(each.client, []).append(each.begin_s)
    begins = [min(times) for times in zip(*(sorted(times) for times in models.values()))]
    ends = [*begins[1 : setting.rounds], max(each.end_s for each in transfers)]
    with (directory / "measured.csv").open() as file:
        trained = [
            (float(row["began_s"]), float(row["ended_s"]))
            for row in csv.DictReader(file)
            if row["what"] == "training"
        ]
    return [
        _round("here", number, begin_s, end_s, transfers, _mean_s(trained, begin_s, end_s))
        for number, (begin_s, end_s) in enumerate(zip(begins, ends), 1)
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
