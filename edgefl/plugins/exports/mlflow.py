"""Runs for MLflow: config as parameters, curves as metrics, in a SQLite file or on a server.

The step of a metric is its version; its timestamp is the begin of the run plus emulated time. A run
that was exported there before is replaced.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from edgefl.config.scores import SCORES
from edgefl.errors import UserError, needs, undamaged
from edgefl.plugins.exports.export_format import ExportFormat, file_path, folder_path
from edgefl.record.files import METRICS
from edgefl.results import run_files
from edgefl.results.compare import load_run, run_record
from edgefl.results.read import number, read_csv
from edgefl.results.run_files import began_unix_s
from edgefl.results.summary import BROKEN_OFF, UNFINISHED

AT_ONCE = 100  # values in one request; MLflow takes no more parameters at a time
LONGEST = 500  # characters of a parameter that each version of MLflow takes
WHICH = "edgefl.id"  # the tag by which a run is found again
TAKEN = re.compile(r"[\w.-]+")  # keys that MLflow takes; those of users may have others
CURVES = (*SCORES, "test_loss", "train_loss", "bytes_up", "bytes_down")
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # it would tell its makers that it is used
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # else a server that is not there costs minutes
}


def write(runs: Mapping[str, Path], out: str) -> list[str]:
    """Write the runs to a tracking store; returns a line for each run.

    ``out``: a SQLite file that ends in ``.db``, or the address of a server. UserError if the store
    refuses.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    with needs("mlflow", "MLflow"):
        import alembic  # noqa: F401  # a SQLite store needs it; mlflow-skinny does not bring it
        import sqlalchemy  # noqa: F401  # as above
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    for chatty in ("mlflow", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        client = MlflowClient(tracking_uri=_address(out))
        return [_write_run(client, name, run, out) for name, run in runs.items()]
    except MlflowException as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--out {out}: MLflow cannot write there: {reason}") from error


def _address(out: str) -> str:
    if "://" in out:
        return out
    path = file_path(out, ".db")
    folder_path(str(path.parent))
    return f"sqlite:///{path.absolute()}"


def _write_run(client: Any, name: str, run: Path, out: str) -> str:
    from mlflow.entities import Metric, Param, RunTag

    began_s = began_unix_s(run)
    with undamaged(run):
        config, loaded = run_files.read_config(run), load_run(run, name)
        curves = [Metric(*point) for point in _curves(run, began_s)]
    row, facts = run_record(loaded, [loaded]), config.pop("run", {})
    experiment = _experiment(client, str(config.get("name", run.resolve().parent.name)), out)
    which = hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:32]
    earlier = client.search_runs([experiment], f"tags.`{WHICH}` = '{which}'")
    end_s = row["emulated_s"] or 0.0
    # with the tag at once: the next export finds it, too, if this one breaks off
    made = client.create_run(experiment, _ms(began_s), {WHICH: which}, name)
    numbers = {key: number(value) for key, value in row.items() if not isinstance(value, str)}
    end = [
        Metric(key, value, _ms(began_s + end_s), row["versions"])
        for key, value in numbers.items()
        if value is not None
    ]
    for some in _batches([*curves, *end]):
        client.log_batch(made.info.run_id, metrics=some)
    for some in _batches([Param(*each) for each in _flat(config)]):
        client.log_batch(made.info.run_id, params=some)
    texts = {"edgefl.run": str(run), **{key: row[key] or "" for key in TEXTS}}
    texts |= {f"edgefl.{key}": str(value) for key, value in _flat(facts)}
    client.log_batch(made.info.run_id, tags=[RunTag(*each) for each in texts.items()])
    whole = row["verdict"] != UNFINISHED and row["finished"] not in BROKEN_OFF
    state = "FINISHED" if whole else "KILLED"
    client.set_terminated(made.info.run_id, state, _ms(began_s + end_s))
    for old in earlier:
        client.delete_run(old.info.run_id)
    return f"{out}: {name}"


TEXTS = ("strategy", "clock", "finished", "verdict", "reasons", "warnings")


def _experiment(client: Any, name: str, out: str) -> str:
    """The id of the experiment with this name, which is made if it is missing."""
    known = client.get_experiment_by_name(name)
    if known is not None:
        if known.lifecycle_stage == "deleted":
            client.restore_experiment(known.experiment_id)
        return str(known.experiment_id)
    # else MLflow names a folder in the working directory
    files = None if "://" in out else Path(out).absolute().with_suffix(".files").as_uri()
    return str(client.create_experiment(name, artifact_location=files))


def _ms(unix_s: float) -> int:
    return round(unix_s * 1000)


def _curves(run: Path, began_s: float) -> Iterator[tuple[str, float, int, int]]:
    """Yield (name, value, timestamp in ms, version)."""
    for row in read_csv(run / METRICS):
        at_ms = _ms(began_s + (number(row["emulated_s"]) or 0.0))
        for column in CURVES:
            if (value := number(row.get(column))) is not None:
                yield column, value, at_ms, int(row["version"])


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield ("links.up_mbit_s", "1.0") for each key of a config; lists are JSON.

    So are tables with a key that MLflow refuses, such as "~/net.py".
    """
    for key, value in config.items():
        if isinstance(value, dict) and all(map(TAKEN.fullmatch, value)):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
            yield f"{prefix}{key}", text[:LONGEST]


def _batches(values: Sequence[Any]) -> Iterator[list[Any]]:
    for begin in range(0, len(values), AT_ONCE):
        yield list(values[begin : begin + AT_ONCE])


FORMAT = ExportFormat(
    out="mlflow.db",
    view=lambda out: f"mlflow ui --backend-store-uri {_address(out)} (of the package mlflow)",
    write=write,
    adds=True,
)
