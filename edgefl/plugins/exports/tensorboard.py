"""Curves for TensorBoard: accuracy, losses, traffic and staleness, one folder per run.

The axis "Step" has versions (for staleness: arrived updates), "Relative" has emulated time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgefl.config.scores import SCORES, score_of
from edgefl.errors import needs, undamaged, written
from edgefl.plugins.exports.export_format import ExportFormat, folder_path
from edgefl.record.files import CONFIG, LABELS, METRICS
from edgefl.results.families.edge_scores import over_edges, score_on_edges, scored_versions
from edgefl.results.read import iter_csv, number
from edgefl.results.run_files import began_unix_s, read_config
from edgefl.results.timeline import of_run

SUFFIX = ".edgefl"  # at the end of our files' names, so that only these are replaced
TAGS = {  # column of metrics.csv -> tag
    **{name: f"{name}/test" for name in SCORES},
    "test_loss": "loss/test",
    "train_loss": "loss/train",
    "bytes_up": "bytes/up",
    "bytes_down": "bytes/down",
}


def write(runs: Mapping[str, Path], out: str) -> list[str]:
    """Write a folder per run with its event file; returns the folders."""
    with needs("export", "TensorBoard"):
        from torch.utils.tensorboard.writer import SummaryWriter
    folder, lines = folder_path(out), []
    for name, run in runs.items():
        place = folder / name.replace("/", "_")
        while str(place) in lines:  # of another run
            place = place.with_name(f"{place.name}_")
        with written(place), undamaged(run):
            for old in place.glob(f"*{SUFFIX}"):
                old.unlink()
            writer = SummaryWriter(str(place), filename_suffix=SUFFIX)
            try:
                _write_run(writer, run)
            finally:
                writer.close()
        lines.append(str(place))
    return lines


def _write_run(writer: Any, run: Path) -> None:
    began_s = began_unix_s(run)
    for row in iter_csv(run / METRICS):
        at_s, step = began_s + (number(row["emulated_s"]) or 0.0), int(row["version"])
        for column, tag in TAGS.items():
            if (value := number(row.get(column))) is not None:
                writer.add_scalar(tag, value, step, at_s)
    for row in iter_csv(run / LABELS):
        at_s, step = began_s + (number(row["emulated_s"]) or 0.0), int(row["version"])
        for column, text in row.items():
            if column.startswith("label_") and (value := number(text)) is not None:
                writer.add_scalar(f"accuracy by label/{column[6:]}", value, step, at_s)
    score = score_on_edges(score_of(read_config(run).get("evaluation")))
    for version in scored_versions(run, score):
        if version.scores:
            at_s = began_s + version.at_s
            for part, value in over_edges(version.scores.values(), score).items():
                writer.add_scalar(f"{score.name} on edges/{part}", value, version.number, at_s)
    gaps = of_run(run).gap_rows()
    for step, (t_s, versions) in enumerate(zip(gaps["t_s"].tolist(), gaps["versions"].tolist()), 1):
        writer.add_scalar("staleness", versions, step, began_s + t_s)
    if (run / CONFIG).is_file():
        text = (run / CONFIG).read_text(encoding="utf-8")
        writer.add_text("config", "    " + text.replace("\n", "\n    "), 0, began_s)


FORMAT = ExportFormat(
    out="tensorboard", view=lambda out: f"tensorboard --logdir {out}", write=write
)
