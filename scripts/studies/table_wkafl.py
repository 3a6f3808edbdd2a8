r"""Table of WKAFL, its ablations, TWAFL, SASGD, GSGM and K-async SGD: accuracy and stability.

By default LeNet on MNIST, P/K = 1000/10, one label per device. Every method's learning rate is
tuned in the same way: three values, on a separate seed, over all iterations. (Half of them are not
enough: with one label per device, a rate that is good in the end has learned nothing by then.) The
best value, by the mean of the last ten accuracies, is used for the table. All tuning runs are one
``edgefl run``, so that each worker does whole runs. Finished runs are not repeated. There are 48
runs of one minute: 25 minutes with two workers. The default, and another config with other options:

    python scripts/studies/table_wkafl.py --workers 2
    python scripts/studies/table_wkafl.py --workers 2 --config configs/wkafl/cifar_1000_20.toml \
        --rates 0.0005,0.005,0.05 --methods wkafl,twafl
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trials import Study, Trial, arguments, end, entries, numbers, run, say, study, tell
from tuning import Tuning

from edgefl.loading.file import load
from edgefl.reports import gallery
from edgefl.reports.aggregation import table as aggregation_table
from edgefl.results.spread import spread

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "wkafl"
RATE = "server_learning_rate"  # the tuned option
RATES = (0.01, 0.02, 0.04)
OWN_RATES = {  # methods that need other rates for steps of the same size; spaced like RATES
    "wkafl-no-staleness": (
        0.005,
        0.01,
        0.02,
    ),  # its rate is not divided by 1 + 0.1 min gap, which is 2 at P/K = 100
    "twafl": (
        0.005,
        0.01,
        0.02,
        # not divided either; its steps, like WKAFL's, are dominated by one or two fresh gradients,
        # while K-async's are means of ten
    ),
    "sasgd": (
        0.2,
        0.4,
        0.8,
    ),  # its rate is divided by gap + 1: 20 at the harmonic mean of gaps around P/K = 100
    "gsgm": (
        0.00125,
        0.0025,
        0.005,
        # all P/K steps of a round use gradients at one model, together one step of 100 times the
        # rate: with 0.01 training diverges
    ),
}
QUICK = {"stop": {"versions": 20}, "evaluation": {"every_versions": 2}, "edges": {"count": 60}}
COLUMNS = (
    "method",
    "rate",
    "accuracy",
    "accuracy_dev",
    "stability",
    "stability_dev",
    "tau_ave",
    "n_ave",
)
# column -> quantity
KEYS = {
    "accuracy": "convergence_accuracy",
    "stability": "stability",
    "tau_ave": "tau_ave",
    "n_ave": "n_ave",
}


def main() -> None:
    parser = arguments(__doc__, "table-wkafl", (1, 2, 3))
    parser.add_argument(
        "--config",
        type=Path,
        default=CONFIGS / "mnist_1000_10.toml",
        metavar="FILE",
        help="default: configs/wkafl/mnist_1000_10.toml",
    )
    parser.add_argument(
        "--methods", metavar="A,B", help="labels of the config's strategies (default: all)"
    )
    parser.add_argument(
        "--rates",
        type=numbers,
        metavar="A,B,C",
        help=f"rates to try for all methods (default: {_told(RATES)}; {_told_own()})",
    )
    options = parser.parse_args()
    experiment = load(options.config, options.set)
    labels = (
        options.methods.split(",")
        if options.methods
        else [entry.name for entry in experiment.strategies]
    )
    table = Comparison(study(options), options.config, labels, options.rates)
    tuned, best = table.tune()
    whole = table.compare(best)
    end(table.ours, tuned and whole)


def _told(rates: Sequence[float]) -> str:
    return ",".join(f"{rate:g}" for rate in rates)


def _told_own() -> str:
    return ", ".join(f"{name} {_told(rates)}" for name, rates in OWN_RATES.items())


class Comparison:
    """The trials of one config: a tuning trial, and a trial of all methods at their best rates.

    ``rates``: the rates to try; None: RATES and OWN_RATES.
    """

    def __init__(
        self, ours: Study, config: Path, labels: Sequence[str], rates: Sequence[float] | None = None
    ) -> None:
        self.ours, self.config = ours, config
        self.name = load(config).name
        self.entries = {
            entry.get("label") or entry["strategy"]: entry for entry in entries(config, *labels)
        }
        self.rates = {
            label: rates or OWN_RATES.get(entry["strategy"], RATES)
            for label, entry in self.entries.items()
        }
        self.changes: Mapping[str, Any] = QUICK if ours.quick else {}

    def tune(self) -> tuple[bool, dict[str, float]]:
        """Tune; return (whether all runs succeeded, best rate of each method with a result)."""
        methods = {
            label: (entry, {f"{rate:g}": {RATE: rate} for rate in self.rates[label]})
            for label, entry in self.entries.items()
        }
        whole, best = Tuning(f"{self.name}-tuning", self.config, methods, self.changes).best(
            self.ours, f"{self.name}: tuning"
        )
        return whole, {label: float(point) for label, point in best.items()}

    def compare(self, best: Mapping[str, float]) -> bool:
        """Run every method at its best rate with all seeds; show the results as table and figures.

        Return whether all runs succeeded.
        """
        made = [
            entry | {RATE: best[label]} for label, entry in self.entries.items() if label in best
        ]
        trial = Trial(self.name, self.config, made, self.changes)
        whole = bool(made) and self.ours.do([trial])
        done = {
            label: self.ours.folder / trial.name / label
            for label in best
            if self.ours.results(trial, label)
        }
        if not done:
            return False
        rows = [self._row(trial, label, best[label]) for label in self.entries if label in done]
        tell(
            f"{self.name}: seeds {', '.join(map(str, self.ours.seeds))}",
            COLUMNS,
            rows,
            self.ours.folder / f"{self.name}.csv",
        )
        figures = self.ours.folder / "figures"
        paths = [done[label] for label in self.entries if label in done]
        names = {"accuracy": self.name, "aggregation": f"{self.name}-aggregation"}
        left = gallery.leave(paths, {kind: figures / name for kind, name in names.items()})
        say(f"figures: {', '.join(map(str, left))}")
        return whole

    def _values(self, trial: Trial, label: str, key: str) -> list[Any]:
        """Return the number ``key`` for each finished seed."""
        return [each.value(key) for each in aggregation_table.load(self.ours.runs(trial, label))]

    def _row(self, trial: Trial, label: str, rate: float) -> tuple[Any, ...]:
        over = {column: spread(self._values(trial, label, key)) for column, key in KEYS.items()}
        return (
            label,
            rate,
            *(
                (
                    over[column.removesuffix("_dev")].deviation
                    if column.endswith("_dev")
                    else over[column].mean
                )
                for column in COLUMNS[2:]
            ),
        )


if __name__ == "__main__":
    run(main)
