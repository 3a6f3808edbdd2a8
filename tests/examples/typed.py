"""A file that passes ``mypy --strict``: a strategy, a selection, a model, data and a link."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from torch import nn

import edgefl
from edgefl.api import (
    Data,
    Dataset,
    Edges,
    Experiment,
    Links,
    Rounds,
    RoundsOptions,
    Section,
    Selector,
    SelectorOptions,
    Stop,
    StrategyEntry,
    UpdateArrived,
    with_changes,
)
from emulator import Constant, Link, Network, parse_rate


class HalfOptions(RoundsOptions):
    server_learning_rate: float = 0.5


class Half(Rounds):
    """w <- w + rate (mean change of the delivered models)."""

    Options = HalfOptions

    def aggregate(self, updates: list[UpdateArrived]) -> np.ndarray:
        shares = [self.options.server_learning_rate / len(updates)] * len(updates)
        ends, starts = [update.weights for update in updates], [update.base for update in updates]
        return with_changes(self.weights, ends, starts, shares, self.layout.parameters)


class Last(Selector):
    """The last edges by id."""

    def choose(
        self, idle: Sequence[str], count: int, stream: Callable[[], np.random.Generator]
    ) -> list[str]:
        return sorted(idle)[-count:]


def select(options: SelectorOptions) -> Selector:
    return Last(options)


class ModelOptions(Section):
    hidden: int = 8


def build(options: ModelOptions, shape: tuple[int, ...], classes: int) -> nn.Module:
    inputs = int(np.prod(shape))
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, options.hidden), nn.Linear(options.hidden, classes)
    )


def load(directory: Path) -> Dataset:
    y = np.arange(60) % 3
    x = np.full((60, 1, 4, 4), 80, np.uint8) * y[:, None, None, None].astype(np.uint8)
    return Dataset(x[:48], y[:48], x[48:], y[48:], classes=3, mean=(80.0,), std=(70.0,))


def link_rate(text: str) -> int:
    network = Network()
    network.add_link("a", "up", Link(Constant(parse_rate(text))))
    return parse_rate(text)


def experiment(out: Path) -> float:
    """The best final accuracy of three strategies over three seeds."""
    runs: edgefl.Runs = edgefl.run(
        "quickstart", overrides={"stop.emulated_s": 5, "seeds": [1, 2, 3]}, clock="virtual", out=out
    )
    print(runs.compare(baseline="fedavg"))
    runs.report(out / "report.html", baseline="fedavg")
    return float(runs.summary["final_accuracy"].max())


def own_experiment() -> edgefl.Runs:
    entries = (StrategyEntry(strategy=Half), StrategyEntry(strategy="fedprox", mu=0.1))
    typed = Experiment(
        name="typed",
        data=Data(name=load),
        edges=Edges(count=4),
        links=Links(up_mbit_s=1.0),
        stop=Stop(versions=3),
        strategies=entries,
    )
    return edgefl.run(typed)
