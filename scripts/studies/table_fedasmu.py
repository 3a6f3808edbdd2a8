r"""The main table of FedASMU, its ablations and other methods: mean and deviation over seeds.

By default LeNet on Fashion-MNIST. Finished runs are not repeated. The default, a longer run of some
methods, and other configs:

    python scripts/studies/table_fedasmu.py --workers 2
    python scripts/studies/table_fedasmu.py --workers 2 --emulated-s 10000 \
        --methods fedasmu,fedasmu-0,fedasync,fedbuff
    python scripts/studies/table_fedasmu.py --workers 2 \
        --config configs/fedasmu/fmnist_refresh_points.toml
    python scripts/studies/table_fedasmu.py --config configs/comparison/cnn_cifar10.toml \
        --set stop.updates=100 --methods fedasmu,fedavg --seeds 1
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from trial_results import mean, median_staleness, spread
from trials import (
    CONFIGS,
    QUICK,
    Study,
    Trial,
    arguments,
    end,
    entries,
    run,
    say,
    study,
    tell,
)

from edgefl.errors import UserError
from edgefl.loading.file import load
from edgefl.reports import gallery
from edgefl.reports.dissemination import table as dissemination_table
from edgefl.results import rundirs

COLUMNS = (
    "method",
    "target_s",
    "target_dev_s",
    "late_accuracy",
    "accuracy_dev",
    "final_accuracy",
    "convergence_accuracy",
    "versions",
    "updates",
    "median_staleness",
    "up_MB",
    "down_MB",
    "beta_median",
)


def main() -> None:
    options = parser().parse_args()
    experiment = load(options.config, options.set)
    labels = (
        options.methods.split(",")
        if options.methods
        else [entry.name for entry in experiment.strategies]
    )
    seconds = options.emulated_s or experiment.stop.emulated_s
    if options.quick:
        seconds = QUICK["stop"]["emulated_s"]
    if seconds is None:
        raise UserError(
            f"{options.config}: expected stop.emulated_s, since all methods get the same time; or"
            " --emulated-s"
        )
    ours = study(options)
    trial = Trial(
        f"{experiment.name}-{seconds:g}s",
        options.config,
        entries(options.config, *labels),
        {"stop": {"emulated_s": seconds}},
    )
    whole = ours.do([trial])
    target = experiment.evaluation.target_accuracy
    show(ours, trial, labels, "" if target is None else f", target {target:g}")
    end(ours, whole)


def parser() -> argparse.ArgumentParser:
    made = arguments(__doc__, "table-fedasmu", (1, 2))
    made.add_argument(
        "--config",
        type=Path,
        default=CONFIGS / "fmnist_lenet.toml",
        metavar="FILE",
        help="default: configs/fedasmu/fmnist_lenet.toml",
    )
    made.add_argument(
        "--methods", metavar="A,B", help="labels of the config's strategies (default: all)"
    )
    made.add_argument(
        "--emulated-s",
        type=float,
        metavar="S",
        help="emulated seconds of each run (default: the config's)",
    )
    return made


def show(ours: Study, trial: Trial, labels: Sequence[str], target: str) -> None:
    """Show table and figure of the finished runs."""
    name, _, seconds = trial.name.rpartition("-")
    seeds = ", ".join(map(str, ours.seeds))
    tell(
        f"{name}: {seconds.removesuffix('s')} emulated s{target}, seeds {seeds}",
        COLUMNS,
        [row for label in labels if (row := result(ours, trial, label))],
        ours.folder / f"{trial.name}.csv",
    )
    done = [ours.folder / trial.name / label for label in labels if ours.results(trial, label)]
    if done:
        figure = gallery.write("accuracy", done, ours.folder / "figures" / trial.name)[0]
        say(f"figure: {figure}; for the rest: edgefl compare {ours.folder / trial.name}")


def result(ours: Study, trial: Trial, label: str) -> tuple[object, ...] | None:
    """Return a method's row; None without a result."""
    results = ours.results(trial, label)
    if not results:
        return None
    beta = dissemination_table.mean(
        dissemination_table.load(ours.runs(trial, label)), "beta_median"
    )
    accuracies = (
        *spread(results, "late_accuracy"),
        mean(results, "final_accuracy"),
        mean(results, "convergence_accuracy"),
    )
    counts = (
        mean(results, "versions"),
        mean(results, "updates"),
        median_staleness(results),
        mean(results, "up_MB"),
        mean(results, "down_MB"),
    )
    (name,) = rundirs.find([ours.folder / trial.name / label])
    return name, *spread(results, "target_s"), *accuracies, *counts, beta


if __name__ == "__main__":
    run(main)
