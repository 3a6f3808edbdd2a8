"""Does ``edgefl profile`` close the circle? Needs root.

An experiment runs natively between the hosts of a lab (``emulator lab``), whose links the kernel
shapes. ``edgefl profile`` makes a config of what the run measured, and that runs under the virtual
clock. Both should reach each version at the same time. Each strategy is profiled on its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from emulator_rows import as_child, end
from table import TIMES, Row, arguments, host_line, load, report, run, say

from edgefl.errors import UserError
from edgefl.hosts.setup.learning import learning
from edgefl.hosts.setup.plan import devices
from edgefl.hosts.virtual import run as virtual_run
from edgefl.loading.file import load as load_config
from edgefl.profile import repeat
from edgefl.profile.repeat import Match
from edgefl.protocol.messages import FRESH
from edgefl.results.tail import read_csv, read_events
from emulator.lab.attached import LabMachine
from emulator.lab.running import Lab

GOAL = "<= 5"  # percent
# host: up, down, one-way latency
PATHS = {
    "pi-1": ("5mbit", "20mbit", "10ms"),
    "pi-2": ("2mbit", "8mbit", "20ms"),
    "pi-3": ("10mbit", "30mbit", "5ms"),
    "pi-4": ("4mbit", "4mbit", "30ms"),
}
STRATEGIES = ("fedavg", "fedasync", "fedasmu")
PORT = 7700
PATIENCE_S = 600.0
CONFIG = """
name = "circle"
seed = 1

[data]
name = "digits"

[partition]
name = "iid"

[model]
name = "mlp"
hidden = [{hidden}]

[training]
epochs = {epochs}
batch_size = 16
learning_rate = 0.05

[edges]
names = {edges}

[links]
kind = "native"

[devices]
{devices}

[network]
heartbeat_s = 0.25

[stop]
versions = {versions}

[[strategies]]
strategy = "{strategy}"
{options}
"""
NATIVE, EMULATED = 'kind = "native"', "samples_per_s = 4000.0\nslowest_ratio = 2.0"
# all four edges work at a time; a device asks for a fresher model half way
OPTIONS = {
    "fedavg": "",
    "fedasync": "",
    "fedasmu": 'dispatch = "replace"\nconcurrency = 4\nselector = "fixed"\nrefresh_point = 10',
}


@dataclass(frozen=True, slots=True)
class Extent:
    """How large the experiment is."""

    edges: tuple[str, ...]
    strategies: tuple[str, ...]
    versions: Mapping[str, int]
    hidden: int  # of the model: about 0.3 kB each
    epochs: int


FULL = Extent(
    tuple(PATHS),
    STRATEGIES,
    {"fedavg": 15, "fedasync": 60, "fedasmu": 60},
    hidden=1024,
    epochs=20,
)
QUICK = Extent(("pi-1", "pi-3"), ("fedavg",), {"fedavg": 5}, hidden=256, epochs=2)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="two edges, one strategy, five versions: a quick check"
    )
    parser.add_argument(
        "--devices",
        choices=("native", "emulated"),
        default="native",
        help="native: real training, which shares this machine's cores (default)",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs in DIR")
    options, host = parser.parse_args(), host_line()
    extent = QUICK if options.quick else FULL
    with ExitStack() as stack:
        scratch = options.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-circle-"))
        )
        scratch.mkdir(parents=True, exist_ok=True)
        lab = stack.enter_context(Lab(topology(extent.edges), say=say))
        rows = [
            row
            for strategy in extent.strategies
            for row in circle(lab, extent, strategy, options.devices, scratch)
        ]
    report("The profile circle", host, [*rows, Row("load after", float(load()))], options.json)


def topology(edges: Sequence[str]) -> dict[str, Any]:
    """A star: every edge has its own link to the server."""
    links = [
        {"from": edge, "to": "server", "up": up, "down": down, "latency": latency}
        for edge, (up, down, latency) in PATHS.items()
        if edge in edges
    ]
    hosts = [{"name": name} for name in ("server", *edges)]
    return {"name": "circle", "hosts": hosts, "links": links}


def circle(lab: Lab, extent: Extent, strategy: str, kind: str, scratch: Path) -> list[Row]:
    """Run natively, profile, repeat with both ways to match, and compare."""
    folder = scratch / strategy
    folder.mkdir()
    config = folder / "circle.toml"
    config.write_text(
        CONFIG.format(
            hidden=extent.hidden,
            epochs=extent.epochs,
            edges=list(extent.edges),
            devices=NATIVE if kind == "native" else EMULATED,
            versions=extent.versions[strategy],
            strategy=strategy,
            options=OPTIONS[strategy],
        )
    )
    say(f"{strategy}: natively, between the hosts of the lab")
    run_natively(lab, extent.edges, config, folder)
    native = folder / "runs" / "circle" / strategy
    profile = repeat.read(native)
    rows = of_links(strategy, profile)
    fresh = sum(row["kind"] == FRESH for row in read_csv(native / "links.csv"))
    rows.append(Row(f"{strategy}: fresher models sent to training edges", fresh))
    for match in (Match.time, Match.rate):
        made = devices(profile.experiment)
        repeated = repeat.write(profile, folder / match.value, match, made)[0]
        learned = learning(load_config(repeated), repeated.parent)
        directory = folder / match.value / strategy
        virtual_run.run_virtual(learned, 0, directory)
        rows += compared(strategy, match, published_s(native), published_s(directory))
    return rows


# ------------------------------------------------------------------ the native run
def run_natively(lab: Lab, edges: Sequence[str], config: Path, folder: Path) -> None:
    """Run the coordinator on the lab's server and an edge on each other host, until the end.

    UserError, with the last line of the coordinator, if it fails.
    """
    server = lab.host("server")
    place = ["--out", str(folder / "runs"), "network.host=0.0.0.0", f"network.port={PORT}"]
    with ExitStack() as stack:
        log = stack.enter_context((folder / "log.txt").open("w+b"))
        coordinator = _edgefl(server, log, "coordinator", str(config), "--insecure", *place)
        stack.callback(end, coordinator)
        for edge in edges:
            words = ["--connect", f"tcp://{server.address}:{PORT}", "--id", edge, "--insecure"]
            stack.callback(end, _edgefl(lab.host(edge), log, "edge", *words))
        try:
            status = coordinator.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            status = -1
        log.seek(0)
        lines = log.read().decode(errors="replace").splitlines() or ["no output"]
        if status != 0:
            raise UserError(f"the native run ended with status {status}: {lines[-1]}")


def _edgefl(machine: LabMachine, log: Any, *words: str) -> subprocess.Popen[Any]:
    return machine.start(
        [sys.executable, "-m", "edgefl.cli", *words],
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
        preexec_fn=as_child(),
    )


# ------------------------------------------------------------------ the comparison
def published_s(directory: Path) -> dict[int, float]:
    """When each version was published, in emulated seconds."""
    return {
        decision["version"]: row["t"]
        for row in read_events(directory / "events.jsonl")
        for decision in row.get("decisions", ())
        if decision["do"] == "publish"
    }


def of_links(strategy: str, profile: repeat.NativeProfile) -> list[Row]:
    """How far the measured links are from what the kernel was told, and how even devices were.

    One number holds no speed that varies, as it does where other work shares the machine.
    """
    from emulator.units import parse_duration, parse_rate

    beyond, late, shares = [], [], []
    for edge, link in profile.links.items():
        up, down, latency = PATHS[edge]
        for way, told in (("up", up), ("down", down)):
            told_bit_s = parse_rate(told)
            beyond.append(100 * abs(link.rates[way].bit_s - told_bit_s) / told_bit_s)
        late.append(1e3 * link.latency_s - parse_duration(latency) / 1e6)
        shares.append(100 * (link.rest.share or 0.0))
    most_uneven = max((each.p95 / each.p5 for each in profile.devices.values()), default=None)
    return [
        Row(f"{strategy}: speed of a device, 95th / 5th percentile", most_uneven, TIMES),
        Row(f"{strategy}: goodput against the kernel's rate, median", median(beyond), "%"),
        Row(f"{strategy}: goodput against the kernel's rate, worst", max(beyond), "%"),
        Row(f"{strategy}: latency beyond the kernel's, median", median(late), "ms"),
        Row(f"{strategy}: of a task, not in rate and latency, worst edge", max(shares), "%"),
    ]


def compared(
    strategy: str, match: Match, native: Mapping[int, float], repeated: Mapping[int, float]
) -> list[Row]:
    """Compare the times to each version."""
    percent = [
        100 * (repeated[version] - at_s) / at_s
        for version, at_s in native.items()
        if version in repeated
    ]
    what = f"{strategy}, --match {match.value}: time to a version"
    worst = max(percent, key=abs, default=None)
    middle = median(map(abs, percent)) if percent else None
    return [
        Row(f"{what}, versions compared", len(percent)),
        Row(f"{what}, median difference", middle, "%", GOAL if match is Match.time else None),
        Row(f"{what}, worst difference", worst, "%"),
    ]


if __name__ == "__main__":
    run(main)
