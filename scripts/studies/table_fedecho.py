r"""Table of FedEcho, FedBuff, CA2FL, FedAC and FADAS at equal emulated time.

It shows the accuracy on all data and on the data of the slowest devices. Each method is tuned at
three points for TUNING_S emulated seconds, on a separate seed, with large delay on Fashion-MNIST.
Its best point is used for all tables. Finished runs are not repeated. Commands for large delay,
mild delay, CIFAR-10 (files in DIR), and a short run:

    python scripts/studies/table_fedecho.py --workers 2
    python scripts/studies/table_fedecho.py --workers 2 \
        --config configs/fedecho/fmnist_lenet_mild.toml
    python scripts/studies/table_fedecho.py --workers 2 \
        --config configs/fedecho/cifar10_lenet.toml --seeds 1 --set data.dir=DIR
    python scripts/studies/table_fedecho.py --workers 2 --methods fedbuff --emulated-s 300 \
        --tuning-s 100 --out runs/short
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reproduction.entries._distillation_measures import long_accuracy
from trial_results import mean, median_staleness, spread
from trials import QUICK, Study, Trial, arguments, end, entries, run, say, study, tell
from tuning import Points, Tuning

from edgefl.errors import UserError
from edgefl.loading.file import load
from edgefl.reports import gallery
from edgefl.results.spread import spread as spread_of

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "fedecho"
MAIN = CONFIGS / "fmnist_lenet.toml"
METHODS = ("fedecho", "fedbuff", "ca2fl", "fedac", "fadas", "fadas-adaptive")
TUNING_S = 240.0  # about 50 rounds
LOCAL: Points = {f"local-{rate:g}": {"local_learning_rate": rate} for rate in (0.003, 0.01, 0.03)}
# for Adam-like steps
SERVER: Points = {f"server-{rate:g}": {"server_learning_rate": rate} for rate in (3e-4, 1e-3, 3e-3)}
# FedAC's devices may diverge, more often with larger steps
CONTROLLED: Points = {
    f"local-{local:g}-server-{rate:g}": {"local_learning_rate": local, "server_learning_rate": rate}
    for local, rate in ((0.03, 3e-4), (0.03, 1e-3), (0.01, 1e-3))
}
# The first rate is the paper's, for ResNet-18. LeNet has 180 times fewer weights, and Adam's steps
# of this size change it very little.
DISTIL: Points = {
    f"local-{local:g}-distil-{rate:g}": {"local_learning_rate": local, "distil_learning_rate": rate}
    for local, rate in ((0.03, 3e-6), (0.03, 3e-4), (0.01, 3e-4))
}
POINTS: Mapping[str, Points] = {
    "fedecho": DISTIL,
    "fedbuff": LOCAL,
    "ca2fl": LOCAL,
    "fedac": CONTROLLED,
    "fadas": SERVER,
}
COLUMNS = (
    "method",
    "point",
    "accuracy",
    "accuracy_dev",
    "final_accuracy",
    "long_accuracy",
    "long_dev",
    "versions",
    "updates",
    "discarded",
    "median_staleness",
    "up_MB",
    "down_MB",
)


def main() -> None:
    parser = arguments(__doc__, "table-fedecho", (1, 2, 3))
    parser.add_argument(
        "--config",
        type=Path,
        default=MAIN,
        metavar="FILE",
        help="default: configs/fedecho/fmnist_lenet.toml",
    )
    parser.add_argument(
        "--methods",
        default=",".join(METHODS),
        metavar="A,B",
        help=f"labels of the config's strategies (default: {','.join(METHODS)})",
    )
    parser.add_argument(
        "--emulated-s",
        type=float,
        metavar="S",
        help="emulated seconds of each run (default: the config's)",
    )
    parser.add_argument(
        "--tuning-s",
        type=float,
        default=TUNING_S,
        metavar="S",
        help=f"emulated seconds of a tuning run (default: {TUNING_S:g})",
    )
    parser.add_argument(
        "--tuned-on",
        type=Path,
        default=MAIN,
        metavar="FILE",
        help="config of the tuning runs (default: configs/fedecho/fmnist_lenet.toml)",
    )
    options = parser.parse_args()
    seconds = options.emulated_s or load(options.config, options.set).stop.emulated_s
    if seconds is None:
        raise UserError(
            f"{options.config}: expected stop.emulated_s, since all methods get the same time; or"
            " --emulated-s"
        )
    table = Comparison(study(options), options.config, options.methods.split(","), seconds)
    tuned, best = table.tune(options.tuned_on, options.tuning_s)
    whole = table.compare(best)
    end(table.ours, tuned and whole)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs of ``methods`` (labels of ``config``'s strategies) for ``seconds`` of emulated time."""

    ours: Study
    config: Path
    methods: Sequence[str]
    seconds: float

    def tune(self, base: Path, seconds: float) -> tuple[bool, dict[str, str]]:
        """Tune for ``seconds`` on ``base``; return (whether all succeeded, best point per method).

        Values of --set are for ``config``; they do not apply to another ``base``.
        """
        ours = (
            self.ours
            if base.resolve() == self.config.resolve()
            else replace(self.ours, overrides=())
        )
        seconds = QUICK["stop"]["emulated_s"] if ours.quick else seconds
        name = load(base).name
        methods = {
            label: (entry, POINTS[entry["strategy"]])
            for label, entry in zip(self.methods, entries(base, *self.methods))
        }
        tuning = Tuning(f"{name}-tuning", base, methods, {"stop": {"emulated_s": seconds}})
        return tuning.best(ours, f"{name}: tuning, {seconds:g} emulated s")

    def compare(self, best: Mapping[str, str]) -> bool:
        """Run every method at its best point with all seeds; show table and figures."""
        name, seconds = (
            load(self.config).name,
            QUICK["stop"]["emulated_s"] if self.ours.quick else self.seconds,
        )
        there = [label for label in self.methods if label in best]
        made = [
            entry | POINTS[entry["strategy"]][best[label]]
            for label, entry in zip(there, entries(self.config, *there))
        ]
        trial = Trial(f"{name}-{seconds:g}s", self.config, made, {"stop": {"emulated_s": seconds}})
        whole = bool(made) and self.ours.do([trial])
        done = [label for label in there if self.ours.results(trial, label)]
        if not done:
            return False
        title = f"{name}: {seconds:g} emulated s, seeds {', '.join(map(str, self.ours.seeds))}"
        tell(
            title,
            COLUMNS,
            [row(self.ours, trial, label, best[label]) for label in done],
            self.ours.folder / f"{trial.name}.csv",
        )
        self._draw(trial.name, [self.ours.folder / trial.name / label for label in done])
        return whole

    def _draw(self, name: str, runs: Sequence[Path]) -> None:
        figures = self.ours.folder / "figures"
        names = {"accuracy": name}
        names |= {kind: f"{name}-{kind}" for kind in ("runtimes", "distillation")}
        paths = gallery.leave(runs, {kind: figures / each for kind, each in names.items()})
        say(f"figures: {', '.join(map(str, paths))}")


def row(ours: Study, trial: Trial, label: str, point: str) -> tuple[Any, ...]:
    """Return a method's row; ``accuracy`` is the mean of the last ten evaluations."""
    results = ours.results(trial, label)
    held = spread_of([long_accuracy(run) for run in ours.runs(trial, label)])
    accuracies = (
        *spread(results, "convergence_accuracy"),
        mean(results, "final_accuracy"),
        held.mean,
        held.deviation,
    )
    counts = [mean(results, quantity) for quantity in ("versions", "updates", "discarded")]
    return (
        label,
        point,
        *accuracies,
        *counts,
        median_staleness(results),
        mean(results, "up_MB"),
        mean(results, "down_MB"),
    )


if __name__ == "__main__":
    run(main)
