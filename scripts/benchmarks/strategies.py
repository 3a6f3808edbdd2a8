"""Time of a strategy for one update of 11 million parameters, against numpy's ``y += a * x``.

For schemes that make a step of K = 20 gradients it is the time of the whole step, from the first
gradient's arrival, and that time per gradient.

Both are timed in turn in one process and their medians are compared, so other load on the machine
affects both in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np
from reference import axpy
from table import TIMES, Row, arguments, host_line, report, run, say

from edgefl.errors import UserError
from edgefl.strategies.base.catalog import load
from edgefl.strategies.base.events_and_decisions import (
    Assign,
    Decision,
    EdgeJoined,
    RunStarted,
    UpdateArrived,
)
from edgefl.streams import Streams
from edgefl.vectors import Layout, LayoutEntry, aligned_copy

SIZE = 11_000_000
GOAL = "<= 3.6"  # multiple of y += a * x: measured 2.4 to 2.6
EDGES = ("a", "b", "c", "d")
CASES = {
    "fedasmu, controls per device": ("fedasmu", {"dispatch": "replace", "concurrency": 4}, GOAL),
    "fedasmu, shared controls": (
        "fedasmu",
        {"dispatch": "replace", "concurrency": 4, "controls": "shared"},
        GOAL,
    ),
    "fedssmu": ("fedssmu", {"clients_per_round": 4}, None),
    "fedasmu-0": ("fedasmu-0", {"dispatch": "replace", "concurrency": 4}, None),
    "fedasync": ("fedasync", {"concurrency": 4}, None),
    "fedbuff": ("fedbuff", {"concurrency": 4, "buffer_size": 1}, None),
    "ca2fl": ("ca2fl", {"concurrency": 4, "buffer_size": 1}, None),
    "fedac": ("fedac", {"concurrency": 4, "buffer_size": 1}, None),
    "fadas": ("fadas", {"concurrency": 4, "buffer_size": 1}, None),
    "port": ("port", {"concurrency": 4, "least_updates": 1}, None),
    "asofed": ("asofed", {"concurrency": 4}, None),
    "fedsa": ("fedsa", {"concurrency": 4}, None),
    "feddelay": ("feddelay", {"concurrency": 4}, None),
    "feddyn": ("feddyn", {"clients_per_round": 1}, None),
    "fedlws": ("fedlws", {"clients_per_round": 1}, None),
}
GRADIENTS = 20  # K
STEPS = ("wkafl", "wkafl-no-selection", "k-async", "twafl", "sasgd", "gsgm")


class Server:
    """A strategy with edges that answer in turn, always with the same two arrays."""

    def __init__(
        self, name: str, options: dict[str, object], size: int, edges: tuple[str, ...] = EDGES
    ) -> None:
        kind, rng = load(name), np.random.Generator(np.random.PCG64(1))
        layout = Layout((LayoutEntry("w", (size,), 0, "parameter", ""),))
        self.strategy = kind(
            aligned_copy(rng.normal(size=size).astype(np.float32)),
            layout,
            kind.Options.model_validate(options),
            Streams(1),
        )
        self.models = [aligned_copy(rng.normal(size=size).astype(np.float32)) for _ in range(2)]
        # edge -> version and vectors of its task
        self.open: dict[str, tuple[int, dict[str, np.ndarray]]] = {}
        self.tasks = self.count = 0
        for edge in edges:
            self.heed(self.strategy.handle(EdgeJoined(edge, 10), 0))
        self.heed(self.strategy.handle(RunStarted(), 0))

    def heed(self, decisions: list[Decision]) -> None:
        version = self.strategy.version
        for decision in decisions:
            if isinstance(decision, Assign):
                self.open |= dict.fromkeys(decision.edges, (version, decision.vectors))

    def update_s(self) -> float:
        """Return the strategy's seconds for the next update."""
        edge = next(iter(self.open))
        version, given = self.open.pop(edge)
        numbers = {"samples": 10.0, "steps": 10.0, "learning_rate": 0.01, "loss": 1.0}
        # FedAC also sends its control variates both ways
        names = given if self.strategy.delivers == "weights" else (self.strategy.delivers,)
        vectors = dict.fromkeys(names, self.models[self.count % 2])
        event = UpdateArrived(edge, self.count, version, given["weights"], vectors, numbers)
        self.count += 1
        began_s = time.perf_counter()
        decisions = self.strategy.handle(event, 0)
        took_s = time.perf_counter() - began_s
        self.heed(decisions)
        return took_s

    def step_s(self) -> float:
        """Return the strategy's seconds for the next K updates."""
        return sum(self.update_s() for _ in range(GRADIENTS))


def rows(size: int, repeats: int, only: list[str] | None = None) -> list[Row]:
    """Measure the cases and steps in ``only``; None: all."""
    found: list[Row] = []
    plain = axpy(size)
    for name, (strategy, options, goal) in CASES.items():
        if only is not None and name not in only:
            continue
        say(f"{name} ...")
        server = Server(strategy, options, size)
        for _ in range(2 * len(EDGES)):
            server.update_s()  # warm-up: every device gets a step to learn from
        pairs = [(plain(), server.update_s()) for _ in range(repeats)]
        base_s, update_s = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
        found += [
            Row(f"{name}: one update", update_s * 1e3, "ms"),
            Row(
                f"{name}: times y += a * x ({base_s * 1e3:.1f} ms)", update_s / base_s, TIMES, goal
            ),
        ]
    steps = [name for name in STEPS if only is None or name in only]
    return found + step_rows(steps, size, plain, max(3, repeats // 5))


def step_rows(names: list[str], size: int, plain: Callable[[], float], repeats: int) -> list[Row]:
    found: list[Row] = []
    for name in names:
        say(f"{name}, K = {GRADIENTS} ...")
        server = Server(
            name,
            {"buffer_size": GRADIENTS},
            size,
            tuple(f"e{number:02d}" for number in range(2 * GRADIENTS)),
        )
        server.step_s()
        pairs = [(plain(), server.step_s()) for _ in range(repeats)]
        base_s, step_s = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
        found.append(Row(f"{name}: one step of K = {GRADIENTS}", step_s * 1e3, "ms"))
        found.append(
            Row(
                f"{name}: one of its gradients, times y += a * x",
                step_s / GRADIENTS / base_s,
                TIMES,
            )
        )
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", type=int, default=SIZE, help="parameters of the model")
    parser.add_argument(
        "--repeats",
        type=int,
        default=15,
        help="number of timed updates, each next to one y += a * x",
    )
    parser.add_argument(
        "--case",
        action="append",
        choices=[*CASES, *STEPS],
        help="only this case (repeatable; default: all)",
    )
    given, host = parser.parse_args(), host_line()
    if given.size < 1 or given.repeats < 1:
        raise UserError(
            f"--size {given.size} --repeats {given.repeats}: expected 1 or more of each"
        )
    found = rows(given.size, given.repeats, given.case)
    report("The server's work with one update", host, found, given.json)


if __name__ == "__main__":
    run(main)
