"""Names and columns of the files in a run directory, for writers and readers; names of old runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]  # a line of events.jsonl as read from JSON
EVENTS, LINKS, METRICS, SLOTS = "events.jsonl", "links.csv", "metrics.csv", "slots.csv"
MEASURED = "measured.csv"
LABELS, EDGES, HOSTS = "labels.csv", "edges.csv", "hosts.csv"
CLIENTS = "clients.csv"
ENERGY = "energy.csv"
MODEL, SUMMARY, CONFIG = "model.safetensors", "summary.json", "config.toml"
LAYOUT = "layout.json"  # of the vector in MODEL
ALL_EDGES = "*"  # in links.csv and slots.csv: a broadcast to many edges
CHECKPOINTS = "checkpoints"  # the folder of a run's checkpoints
EXPERIMENT = "experiment.toml"  # in the folder of all runs of an experiment
SWEEP = "sweep.toml"  # in the folder of all runs of a sweep

METRIC_COLUMNS = (
    "version",
    "emulated_s",
    "wall_s",
    "train_loss",
    "test_loss",
    "accuracy",
    "bytes_up",
    "bytes_down",
)
# one row for each edge and evaluation. With ``evaluation.edges`` also the number of samples; an
# app whose edges evaluate by themselves has none
CLIENT_COLUMNS = ("version", "emulated_s", "edge", "loss", "accuracy")
SAMPLES_COLUMN = "samples"
LINK_COLUMNS = ("edge", "direction", "kind", "bytes", "offered_s", "scheduled_s", "finished_s")
# ``what``: a direction ("up", "down"), PING or TRAINING. ``number``: of the transfer or the task.
# ``amount``: bytes or samples. All times of a row are those of one clock.
MEASURED_COLUMNS = ("what", "edge", "number", "began_s", "ended_s", "amount")
PING, TRAINING = "ping", "training"
SLOT_COLUMNS = ("begins_s", "ends_s", "edge", "direction", "kind")
# ``joules``: above idle power. The row of state "idle" begins when its edge joins; it has the power
# in ``watts`` instead.
MEASURED_STATE = "measured"  # in energy.csv: what a meter has counted, its idle power included
ENERGY_COLUMNS = ("edge", "state", "began_s", "ended_s", "joules", "watts")
HOST_COLUMNS = (
    "emulated_s",
    "edge",
    "host",
    "machine",
    "cpu_percent",
    "temperature_c",
    "throttled",
    "sent_bytes",
    "received_bytes",
    "edge_cpu_percent",
    "rss_bytes",
    "ran_s",
    "waited_s",
)


def label_columns(labels: int) -> tuple[str, ...]:
    """Return the columns of labels.csv for ``labels`` classes."""
    return ("version", "emulated_s", *(f"label_{label}" for label in range(labels)))


# ---------------------------------------------------------------------- names in old runs
# The number of finished epochs after which a device asks for a fresher model. It is renamed only
# next to "draw" (in a task) or "asked" (in an update): a user's strategy may have its own "slot".
OLD_NAME, NEW_NAME, BESIDE = "slot", "refresh_point", ("draw", "asked")


def renamed(row: dict[str, Any]) -> dict[str, Any]:
    """Return ``row``, an event or decision, with today's names, also in its decisions."""
    numbers = row.get("numbers")
    if isinstance(numbers, dict):
        row["numbers"] = dict(zip(renamed_keys(tuple(numbers)), numbers.values()))
    for decision in row.get("decisions", ()):
        renamed(decision)
    return row


def renamed_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys of such numbers with today's names."""
    if OLD_NAME in keys and any(name in keys for name in BESIDE):
        return tuple(NEW_NAME if key == OLD_NAME else key for key in keys)
    return keys
