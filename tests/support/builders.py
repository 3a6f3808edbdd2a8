"""Helpers of many tests: vectors, experiments, a strategy and a coordinator driven by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from paths import EXAMPLES

from edgefl.actor import Output, Run, Send
from edgefl.clocks.setup.rundir import write_summary
from edgefl.config.experiment import Evaluation, Experiment
from edgefl.coordinator.coordinator import Coordinator
from edgefl.coordinator.tasks import TaskLimits
from edgefl.jobs import Evaluate
from edgefl.protocol.messages import (
    Acknowledged,
    Assignment,
    CancelTask,
    Fresh,
    NothingNewer,
    Pushed,
    Ready,
    Update,
    UrgeTask,
)
from edgefl.record.counters import Counters
from edgefl.record.record import Record
from edgefl.results.read import read_events
from edgefl.strategies.base.events_and_decisions import (
    AlarmRang,
    Assign,
    Cancel,
    Decision,
    Discard,
    EdgeJoined,
    EdgeLost,
    Event,
    Finish,
    Grant,
    Publish,
    Push,
    Report,
    RunJob,
    RunStarted,
    SendFresh,
    SetAlarm,
    TaskClosed,
    UpdateArrived,
    Urge,
)
from edgefl.strategies.base.strategy import Strategy
from edgefl.streams import Streams
from edgefl.vectors import Layout, LayoutEntry, aligned_copy

S = 1_000_000_000  # ns


def vector(*numbers: float) -> np.ndarray:
    return aligned_copy(np.array(numbers, dtype=np.float32))


def layout(size: int = 3) -> Layout:
    return Layout((LayoutEntry("w", (size,), 0, "parameter", ""),))


def experiment(**sections: Any) -> Experiment:
    """Return a validated experiment, with three named edges unless ``sections`` say otherwise."""
    return Experiment.model_validate(
        {
            "stop": {"versions": 1000},
            "edges": {"names": ["a", "b", "c"]},
            "strategies": [{"strategy": "fedavg"}],
        }
        | sections
    )


def make(
    kind: type[Strategy], start: tuple[float, ...] = (0, 0, 0), seed: int = 1, **options: Any
) -> Strategy:
    return kind(vector(*start), layout(len(start)), kind.Options(**options), Streams(seed))


def plain(array: np.ndarray | None) -> str:
    return "none" if array is None else " ".join(f"{x:g}" for x in array)


def told(decision: Decision) -> str:
    """Return a decision as one line of text."""
    match decision:
        case Assign():
            return f"assign {','.join(decision.edges)} <- {plain(decision.vectors['weights'])}"
        case Push():
            return f"push {','.join(decision.edges)} <- {plain(decision.vectors['weights'])}"
        case Publish():
            return f"publish {plain(decision.weights)}"
        case SetAlarm():
            return f"alarm {decision.name} at {decision.at_ns / S:g}"
        case Report():
            return " ".join(
                [
                    "report",
                    *([decision.edge] if decision.edge else []),
                    *(f"{name}={value:g}" for name, value in decision.values.items()),
                ]
            )
        case Discard():
            return f"discard {decision.task}: {decision.reason}"
        case Finish():
            return f"finish: {decision.reason}"
        case RunJob():
            return f"run {decision.name} for {decision.cost_ns / S:g}"
        case Urge():
            return f"urge {decision.edge}"
        case Grant() | Cancel() | SendFresh():
            return f"{type(decision).__name__.lower()} {decision.edge} {decision.task}"
    raise TypeError(decision)


def small_run(folder: Path, progress: Any = None, **sections: Any) -> tuple[dict[str, Any], Path]:
    """Run the first strategy of a small experiment (examples/my_task.py), virtual clock.

    Return (summary, run directory).
    """
    from edgefl.clocks.setup.learning import learning  # imported here, because it imports torch
    from edgefl.clocks.virtual.run import run_virtual

    given = experiment(
        **{
            "task": "my_task.py:build",
            "links": {"up_mbit_s": 0.01, "down_mbit_s": 0.04, "latency_ms": 10.0},
        }
        | sections
    )
    directory = folder / given.strategies[0].name
    return run_virtual(learning(given, EXAMPLES), 0, directory, progress), directory


class Server:
    """A strategy driven by hand: each call is one event and returns the decisions as lines.

    Tasks are numbered as by the coordinator.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.version = self.tasks = 0
        self.decisions: list[Decision] = []  # of the last event
        self.open: dict[str, tuple[int, int, np.ndarray]] = {}  # edge -> task, version, base

    @property
    def weights(self) -> list[float]:
        return self.strategy.weights.tolist()

    def give(self, event: Event, now: int = 0) -> list[str]:
        decisions = self.decisions = self.strategy.handle(event, now)
        for decision in decisions:
            if isinstance(decision, Assign):
                for edge in decision.edges:
                    assert edge not in self.open, f"{edge} is busy"
                    self.open[edge] = (self.tasks, self.version, decision.vectors["weights"])
                    self.tasks += 1
            elif isinstance(decision, Publish):
                self.version += 1
        return [told(decision) for decision in decisions]

    def start(self, *edges: str, samples: int = 1) -> list[str]:
        for edge in sorted(edges):
            assert self.join(edge, samples) == [], "nothing happens before RunStarted"
        return self.give(RunStarted())

    def join(self, edge: str, samples: int = 1) -> list[str]:
        return self.give(EdgeJoined(edge, samples))

    def lose(self, edge: str) -> list[str]:
        return self.give(EdgeLost(edge))

    def close(self, edge: str, reason: str = "edge lost", now: int = 0) -> list[str]:
        task, _, _ = self.open.pop(edge)
        return self.give(TaskClosed(edge, task, reason), now)

    def ring(self, now: int) -> list[str]:
        return self.give(AlarmRang("dispatch"), now)

    def deliver(
        self, edge: str, *weights: float, samples: float = 1, now: int = 0, **numbers: float
    ) -> list[str]:
        task, version, base = self.open.pop(edge)
        return self.give(
            UpdateArrived(
                edge,
                task,
                version,
                base,
                {"weights": vector(*weights)},
                {"samples": float(samples), **numbers},
            ),
            now,
        )

    def move(self, edge: str, *by: float, **given: float) -> list[str]:
        """Deliver the edge's model, moved by ``by``."""
        return self.deliver(edge, *(self.open[edge][2] + vector(*by)), **given)

    def drawn(self, rng: np.random.Generator) -> tuple[str, int, np.ndarray, np.ndarray]:
        """Draw an edge at work, and by what to ``move`` its model.

        Returns the edge, the version of its task, the change, and what the server gets of it (in
        float64), since the edge sends its model, which is rounded.
        """
        edge = str(rng.choice(sorted(self.open)))
        _, started, base = self.open[edge]
        change = rng.normal(size=base.size).astype(np.float32)
        return edge, started, change, (base + change).astype(np.float64) - base


def output(out: Output) -> str:
    """Return an output of an actor as one line of text."""
    match out:
        case Send(message=Assignment() as task):
            return (
                f"{out.to} <- task {task.number} v{task.version} ({plain(task.vectors['weights'])})"
            )
        case Send(message=Fresh() as fresh):
            return (
                f"{out.to} <- fresh {fresh.number} v{fresh.version}"
                f" ({plain(fresh.vectors['weights'])})"
            )
        case Send(message=Pushed() as pushed):
            return (
                f"{out.to} <- push {pushed.number} v{pushed.version}"
                f" ({plain(pushed.vectors['weights'])})"
            )
        case Send(message=Acknowledged() | NothingNewer() | CancelTask() | UrgeTask() as note):
            return f"{out.to} <- {type(note).__name__} {note.task}"
        case Grant():
            return f"grant {out.edge} {out.task}"
        case Run(job=Evaluate()):
            return f"evaluate v{out.job.version}"
        case Run():
            return f"do {type(out.job).__name__} for {out.duration_ns / S:g}"
        case Finish():
            return f"finish: {out.reason}"
    raise TypeError(out)


class Desk:
    """A coordinator with its files in ``folder``; each call returns its outputs as lines."""

    def __init__(
        self,
        folder: Path,
        strategy: Strategy,
        shares: dict[str, int] | None = None,
        limits: TaskLimits | None = None,
        **sections: Any,
    ) -> None:
        self.folder = folder
        self.record = Record(folder, lambda: 0.0, None)
        given = experiment(**sections)
        self.coordinator = Coordinator(strategy, given, self.record, shares, limits)

    @property
    def counters(self) -> Counters:
        return self.coordinator.record.counters

    def start(self, *edges: str, **samples: int) -> list[str]:
        """Start the run with these edges; an edge has one sample unless ``samples`` says more."""
        return self.lines(self.coordinator.start({**dict.fromkeys(edges, 1), **samples}, 0))

    def hear(self, edge: str, message: Any, now: int = 0) -> list[str]:
        return self.lines(self.coordinator.receive(edge, message, now))

    def wake(self, now: int) -> list[str]:
        return self.lines(self.coordinator.wake(now))

    def ready(self, edge: str, number: int) -> list[str]:
        return self.hear(edge, Ready(number))

    def update(
        self,
        edge: str,
        number: int,
        *weights: float,
        version: int = 0,
        samples: float = 1.0,
        now: int = 0,
    ) -> list[str]:
        return self.hear(
            edge, Update(number, version, {"weights": vector(*weights)}, {"samples": samples}), now
        )

    def events(self) -> list[dict[str, Any]]:
        """Return the rows of events.jsonl so far."""
        self.record.flush()
        return read_events(self.folder / "events.jsonl")

    def facts(self, *names: str) -> list[dict[str, Any]]:
        return [event for event in self.events() if event.get("fact") in names]

    def summary(self) -> dict[str, Any]:
        """Close the files and return the summary."""
        self.record.close(self.coordinator.weights)
        head = {"versions": self.coordinator.version, "emulated_s": 0.0}
        return write_summary(self.folder, head, self.counters, Evaluation(), {})

    def lines(self, outputs: list[Output]) -> list[str]:
        return [output(out) for out in outputs]
