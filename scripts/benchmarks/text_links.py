"""A BERT of random numbers at BERT-base's shapes on the wall clock: two edges behind LTE links.

Each edge gets the model, makes ten steps, and sends its update: every weight (438 MB), then the
adapters of LoRA alone. The rows have the bytes on the wire, the emulated time against the
arithmetic of link and device, and the run's own verdict.

    python scripts/benchmarks/text_links.py [--json FILE] [--kind lora] [--quick]

With every weight it takes 12 minutes and 8 GB of memory. --quick: a tiny model, fast links.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from table import Row, arguments, host_line, report, run, say
from text_memory import BASE, MB, TINY, write_data, write_model

from edgefl.errors import UserError
from edgefl.record.files import SUMMARY
from emulator.profiles import link_profile

KINDS = ("all", "lora")
EDGES, STEPS = 2, 10
BATCH = 5  # so that ten batches are a whole pass over an edge's 50 texts
LINK = "lte"
COMPUTE_S = 120.0  # emulated, of ten steps; a slow machine needs less for two edges at a time
CONFIG = """
name = "{kind}"
data = {{name = "sentences", dir = "{folder}", length = 16}}
model = {{name = "bert_classifier", path = "model", train = "{kind}"}}
edges = {{count = 2}}
partition = {{name = "iid"}}
devices = {{samples_per_s = {samples_per_s}}}
links = {{profile = "lte"{faster}}}
stop = {{versions = 1}}
evaluation = {{train_samples = 0}}
strategies = [{{strategy = "fedavg", clients_per_round = 2}}]

[training]
batches_per_epoch = {steps}
batch_size = {batch}
optimizer = "adamw"
learning_rate = 1e-5
"""
FASTER = ", up_mbit_s = 50.0, down_mbit_s = 50.0"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--kind",
        action="append",
        choices=KINDS,
        default=[],
        help="what is trained; may be repeated (default: both)",
    )
    parser.add_argument("--quick", action="store_true", help="a tiny model: a quick check")
    options, host = parser.parse_args(), host_line()
    with tempfile.TemporaryDirectory(prefix="bench-text-links-") as scratch:
        folder = Path(scratch)
        os.environ["EDGEFL_CACHE"] = f"{scratch}/cache"
        say("writing the model")
        size = write_model(folder / "model", TINY if options.quick else BASE)
        write_data(folder)
        rows = [Row("model file", size / MB, "MB")]
        for kind in options.kind or KINDS:
            rows += rows_of(kind, measured(folder, kind, options.quick), options.quick)
    report("BERT behind LTE links", host, rows, options.json)


def measured(folder: Path, kind: str, quick: bool) -> dict[str, Any]:
    """Run on the wall clock; return summary.json. UserError if the run ends with an error."""
    say(f"training {kind}: two edges, ten steps each, over real sockets")
    path = folder / f"{kind}.toml"
    path.write_text(
        CONFIG.format(
            kind=kind,
            folder=folder,
            steps=STEPS,
            batch=BATCH,
            samples_per_s=STEPS * BATCH / compute_s(quick),
            faster=FASTER if quick else "",
        )
    )
    words = ["run", str(path), "--clock", "wall", "--force", "--overwrite"]
    words += ["--out", str(folder / "runs")]
    done = subprocess.run(
        [sys.executable, "-m", "edgefl.cli", *words], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise UserError(f"{kind}: edgefl run: {done.stderr.strip().rpartition(chr(10))[2]}")
    found: dict[str, Any] = json.loads((folder / "runs" / kind / "fedavg" / SUMMARY).read_text())
    return found


def compute_s(quick: bool) -> float:
    return 2.0 if quick else COMPUTE_S


def rows_of(kind: str, summary: dict[str, Any], quick: bool) -> list[Row]:
    """Return the rows of a run."""
    updates = summary["updates_received"]
    if not updates:
        raise UserError(f"{kind}: no update arrived")
    one = summary["bytes_up"] / updates  # a model and an update have the same vector
    expected_s = round_s(one, one, quick)
    emulated_s = summary["emulated_s"]
    return [
        Row(f"{kind}: one update", one / MB, "MB"),
        Row(f"{kind}: updates that arrived", updates, f"of {EDGES}"),
        Row(f"{kind}: down in all", summary["bytes_down"] / MB, "MB"),
        Row(f"{kind}: link and device alone", expected_s, "emulated s"),
        Row(f"{kind}: the round", emulated_s, "emulated s"),
        Row(f"{kind}: longer than that by", 100 * (emulated_s / expected_s - 1), "%"),
        Row(f"{kind}: verdict", summary["fidelity"]["verdict"]),
    ]


def round_s(up: float, down: float, quick: bool) -> float:
    """Return the seconds of a model down, ten steps and an update up on links without jitter."""
    rates = {"up": "50mbit", "down": "50mbit"} if quick else {}
    link = link_profile(LINK, **rates)
    transfers_s = 8 * (down / link.down_bit_s + up / link.up_bit_s)
    return transfers_s + 2 * link.latency_ns / 1e9 + compute_s(quick)


if __name__ == "__main__":
    run(main)
