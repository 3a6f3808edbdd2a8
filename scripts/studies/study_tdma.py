"""Loss over slots for several S, with and without intentional delay, in the paper's settings.

It answers whether delay lowers the loss at small S, and whether the best S is smaller with delay.
By default: MNIST, the first 10,000 slots, mean over the seeds. Finished runs are not repeated.
mnist.toml is reading A of the paper, one gradient per turn; see docs/how-to/tdma.md for B and C.

    python scripts/studies/study_tdma.py --workers 2
    python scripts/studies/study_tdma.py --workers 2 --config configs/tdma/cifar10.toml --slots 5000
    python scripts/studies/study_tdma.py --config configs/tdma/mnist_2_1.toml --slots 50000
    python scripts/studies/study_tdma.py --config configs/tdma/mnist_five_steps.toml    # B
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from statistics import fmean

from trials import QUICK, Study, Trial, arguments, end, entries, run, say, study, tell

from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.loading.file import load
from edgefl.reports import gallery
from edgefl.reports.slots import section as slots
from edgefl.results.spread import spread
from edgefl.results.summary import number
from edgefl.results.tail import read_csv, read_events

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "tdma" / "mnist.toml"
COLUMNS = (
    "method",
    "S",
    "delay",
    "models",
    "staleness",
    "loss_at_half",
    "loss_at_end",
    "loss_dev",
    "accuracy",
    "late_mean_loss",
)
SIZE = re.compile(r"(tdma|idfl)-s(\d+)")


def main() -> None:
    parser = arguments(__doc__, "study-tdma", (1, 2))
    parser.add_argument(
        "--config",
        type=Path,
        default=CONFIG,
        metavar="FILE",
        help="default: configs/tdma/mnist.toml",
    )
    parser.add_argument(
        "--slots",
        type=int,
        default=10_000,
        metavar="T",
        help="slots of each run (default: 10000)",
    )
    parser.add_argument(
        "--methods", metavar="A,B", help="labels of the config's strategies (default: all)"
    )
    options = parser.parse_args()
    experiment = load(options.config, options.set)
    labels = (
        options.methods.split(",")
        if options.methods
        else [entry.name for entry in experiment.strategies]
    )
    seconds = QUICK["stop"]["emulated_s"] if options.quick else options.slots * _slot_s(experiment)
    ours = study(options)
    trial = Trial(
        f"{experiment.name}-{round(seconds / _slot_s(experiment))}",
        options.config,
        entries(options.config, *labels),
        {"stop": {"emulated_s": seconds}},
    )
    whole = ours.do([trial])
    rows = [row for label in labels if (row := result(ours, trial, label))]
    tell(
        f"{trial.name}: seeds {', '.join(map(str, ours.seeds))}",
        COLUMNS,
        rows,
        ours.folder / f"{trial.name}.csv",
    )
    done = [ours.folder / trial.name / label for label in labels if ours.results(trial, label)]
    if done:
        figure = gallery.write("slot-loss", done, ours.folder / "figures" / trial.name)[0]
        say(f"figure: {figure}")
    _best(rows)
    end(ours, whole)


def result(ours: Study, trial: Trial, label: str) -> tuple[object, ...] | None:
    """Return a method's row; None without a result or without a finished round."""
    runs = ours.runs(trial, label)
    curves = [curve for run in runs if (curve := _losses(run))]
    found = [slots.rounds(read_events(run / "events.jsonl")) for run in runs]
    if not curves or not all(found):
        return None
    ends, halves = [curve[-1] for curve in curves], [curve[len(curve) // 2] for curve in curves]
    accuracy = [number(read_csv(run / "metrics.csv")[-1]["accuracy"]) or 0.0 for run in runs]
    match = SIZE.fullmatch(label)
    waits, stale = found[0][-1]["waiting_groups"], found[0][-1].get("staleness_most")
    late = [fmean(curve[-max(len(curve) // 5, 1) :]) for curve in curves]
    size = int(match[2]) if match else None
    return (
        label,
        size,
        waits,
        1 + len(found[0]),
        stale,
        fmean(halves),
        fmean(ends),
        spread(ends).deviation,
        fmean(accuracy),
        fmean(late),
    )


def _losses(run: Path) -> list[float]:
    """Return the train loss of each evaluation; infinity for a model that diverged."""
    return [
        math.inf if (loss := number(row["train_loss"])) is None else loss
        for row in read_csv(run / "metrics.csv")
        if row["train_loss"]
    ]


def _best(rows: list[tuple[object, ...]]) -> None:
    """Print the S with the lowest loss over the last fifth, without and with delay."""
    for kind, name in (("tdma", "without delay"), ("idfl", "with delay")):
        ours = [row for row in rows if str(row[0]).startswith(kind) or row[4] == 0.0]
        if ours:
            best = min(ours, key=lambda row: float(str(row[-1])))
            say(
                f"best {name}: S = {best[1]} (mean train loss of the last fifth"
                f" {float(str(best[-1])):.4f})"
            )


def _slot_s(experiment: Experiment) -> float:
    if experiment.medium.slot_ms is None:
        raise UserError('expected a config with medium.kind = "tdma"')
    return experiment.medium.slot_ms / 1000


if __name__ == "__main__":
    run(main)
