"""WKAFL, its ablations, TWAFL, SASGD, GSGM and K-async SGD in one table: accuracy and stability on MNIST with LeNet, P/K = 1000/10, one label each.

Every method's learning rate is tuned alike, three values on a seed of its own; the best by the mean of the last ten accuracies goes into the
table. What is done already is not run again. Another of the configs, or some of the methods:

    python scripts/table_wkafl.py --workers 2
    python scripts/table_wkafl.py --workers 2 --config configs/wkafl/cifar_1000_20.toml --rates 0.0005,0.005,0.05 --methods wkafl,twafl
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench_common import run
from trials import Study, Trial, arguments, entries, numbers, say, study, tell

from edgefl.config_file import load
from edgefl.results import aggregation_plot, aggregation_table, plots
from edgefl.results.spread import spread

CONFIGS = Path(__file__).resolve().parent.parent / "configs" / "wkafl"
TUNING_SEED = 11  # of no other study
RATES = (0.005, 0.015, 0.05)
QUICK = {"stop": {"versions": 20}, "evaluation": {"every_versions": 2}, "edges": {"count": 60}}
TUNING = ("method", "rate", "accuracy", "stability", "best")
COLUMNS = ("method", "rate", "accuracy", "accuracy_dev", "stability", "stability_dev", "tau_ave", "n_ave")
KEYS = {"accuracy": "convergence_accuracy", "stability": "stability", "tau_ave": "tau_ave", "n_ave": "n_ave"}  # column -> its quantity


def main() -> None:
    parser = arguments(__doc__, "table-wkafl", (1, 2, 3))
    parser.add_argument("--config", type=Path, default=CONFIGS / "mnist_1000_10.toml", metavar="FILE", help="default: configs/wkafl/mnist_1000_10.toml")
    parser.add_argument("--methods", metavar="A,B", help="labels of the config's strategies (default: all)")
    parser.add_argument("--rates", type=numbers, default=RATES, metavar="A,B,C", help=f"learning rates tried (default: {','.join(map(str, RATES))})")
    options = parser.parse_args()
    experiment = load(options.config)
    labels = options.methods.split(",") if options.methods else [entry.name for entry in experiment.strategies]
    table = Comparison(study(options), options.config, labels, options.rates, experiment.name)
    tuned, best = table.tune()
    whole = table.compare(best)
    if not (tuned and whole):
        raise SystemExit(1)


class Comparison:
    """The trials of one config: a tuning trial for each method and rate, and one trial of all methods at their best."""

    def __init__(self, ours: Study, config: Path, labels: Sequence[str], rates: Sequence[float], name: str) -> None:
        self.ours, self.config, self.rates, self.name = ours, config, rates, name
        self.entries = {entry.get("label") or entry["strategy"]: entry for entry in entries(config, *labels)}
        self.changes: Mapping[str, Any] = QUICK if ours.quick else {}

    def tune(self) -> tuple[bool, dict[str, float]]:
        """(is it whole, the best rate of each method that has a result)."""
        alone = replace(self.ours, seeds=(TUNING_SEED,))
        trials = {(label, rate): self._tuning(label, rate) for label in self.entries for rate in self.rates}
        whole = alone.do(list(trials.values()))
        found = {key: self._values(trial, key[0], "convergence_accuracy") for key, trial in trials.items()}
        reached = {key: values[0] for key, values in found.items() if values and values[0] is not None}
        best = {label: max((accuracy, rate) for (of, rate), accuracy in reached.items() if of == label)[1] for label in {label for label, _ in reached}}
        rows = [
            (label, rate, reached.get((label, rate)), *(self._values(trial, label, "stability") or [None]), "*" if best.get(label) == rate else None)
            for (label, rate), trial in trials.items()
        ]
        tell(f"{self.name}: tuning, seed {TUNING_SEED}", TUNING, rows, self.ours.folder / f"{self.name}-tuning.csv")
        return whole, best

    def compare(self, best: Mapping[str, float]) -> bool:
        """Run every method at its best rate with all seeds; table and figures of what there is."""
        trial = Trial(self.name, self.config, [self._with_rate(label, best[label]) for label in self.entries if label in best], self.changes)
        whole = bool(trial.entries) and self.ours.do([trial])
        done = {label: self.ours.folder / trial.name / label for label in best if self.ours.results(trial, label)}
        if not done:
            return False
        rows = [self._row(trial, label, best[label]) for label in self.entries if label in done]
        tell(f"{self.name}: seeds {', '.join(map(str, self.ours.seeds))}", COLUMNS, rows, self.ours.folder / f"{self.name}.csv")
        figures = self.ours.folder / "figures"
        paths = [done[label] for label in self.entries if label in done]
        say(f"figures: {plots.accuracy(paths, figures / f'{self.name}.png')[0]}, {figures / f'{self.name}-aggregation.png'}")
        aggregation_plot.aggregation(paths, figures / f"{self.name}-aggregation.png")
        return whole

    def _tuning(self, label: str, rate: float) -> Trial:
        return Trial(f"tune-{label}-{rate:g}", self.config, [self._with_rate(label, rate)], self.changes)

    def _with_rate(self, label: str, rate: float) -> dict[str, Any]:
        return self.entries[label] | {"server_learning_rate": rate}

    def _values(self, trial: Trial, label: str, key: str) -> list[Any]:
        """Of each seed that is done."""
        directory = self.ours.folder / trial.name / label
        return [each.value(key) for each in aggregation_table.load([directory])] if directory.is_dir() else []

    def _row(self, trial: Trial, label: str, rate: float) -> tuple[Any, ...]:
        over = {column: spread(self._values(trial, label, key)) for column, key in KEYS.items()}
        return label, rate, *(over[column.removesuffix("_dev")].deviation if column.endswith("_dev") else over[column].mean for column in COLUMNS[2:])


if __name__ == "__main__":
    run(main)
