"""What runs in the simulation: experiments, and both sides built as in a run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import orjson
from msgspec import Struct
from safetensors.numpy import save_file

from edgefl.clocks.process_messages import StartRun
from edgefl.clocks.setup import rundir
from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.wall.coordinator import logic
from edgefl.clocks.wall.edge.membership import sides
from edgefl.clocks.wall.edge.work import EdgeSide
from edgefl.config.experiment import Experiment
from edgefl.protocol.messages import Setup
from edgefl.record import files
from edgefl.strategies.base.catalog import load, strategy_names
from edgefl.strategies.base.strategy import LocalRule
from emulator import clock
from emulator.units import NS_PER_S

FOLDER = Path(__file__).resolve().parent  # its task.py is the experiments' own code
EDGES = ("e0", "e1", "e2", "e3")
PORT = 5000
RUN = Path("/simulated/run")  # a folder of the simulated disk
EVENTS_FILE, JOURNAL, CHECKPOINTS = RUN / files.EVENTS, RUN / "journal", RUN / files.CHECKPOINTS
SEED = 7
VERSIONS = 12
OFTEN_S, NEVER_S = 0.0002, 1e9  # a checkpoint is taken when a replay would take so long

SLOTS: dict[str, Any] = {
    "medium": {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 20.0, "rate_mbit_s": 0.5}
}
SERVER: dict[str, Any] = {"unlabelled": {"size": 16}}
EVALUATION: dict[str, Any] = {"every_versions": 3, "train_samples": 0}
# time for pushes; on a TDMA channel no two edges end at one moment
LONG: dict[str, Any] = {"batch_size": 4, "epochs": 4}
HEARD = EVALUATION | {"every_versions": 1, "cost_s": 0.5}  # longer than it really takes
ECHO = {"distil_learning_rate": 0.01, "distil_batch_size": 8, "predict_s": 0.2, "distil_s": 1.0}
OPTIONS: dict[str, dict[str, Any]] = {
    "fedprox": {"clients_per_round": 4},
    "fedasync": {"concurrency": 4},
    "fadas": {"server_learning_rate": 0.1},
    "fedac": {"server_learning_rate": 0.1},
    "idfl": {"per_round": 1, "alpha": 1},
    "fedecho": ECHO,
    "push-on-improvement": {"least_drop": 0.002},
    "push-stalest": {"budget_byte_s": 2000},
    "zeno-plus-plus": {"refresh_every": 3, "server_samples": 20, "gradient_s": 0.2},
}  # of single strategies
SMALL: dict[str, Any] = {
    "clients_per_round": 3,
    "clients_per_trigger": 2,
    "concurrency": 3,
    "buffer_size": 2,
    "least_updates": 2,
    "period_s": 1.0,
    "slot_s": 1.0,
    "per_round": 2,
}  # of all strategies that have such an option


def _strategy(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entry of a strategy, and what else its experiment needs."""
    kind = load(name)
    entry = {key: value for key, value in SMALL.items() if key in kind.Options.model_fields}
    more = (SLOTS if kind.schedules_slots else {}) | (SERVER if kind.needs_unlabelled else {})
    more |= {"evaluation": HEARD} if kind.hears_evaluations else {}
    more |= {"training": LONG} if kind.rule.pushed is not LocalRule.pushed else {}
    return entry | OPTIONS.get(name, {}), more


STRATEGIES = {name: _strategy(name) for name in strategy_names()}
UP = ("", "float16", "int8", "top_k", "random_k", "sign")
DOWN = ("", "float16", "int8")
COMPRESSED_SHARE = 0.35  # of the stories


class Scenario(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the run itself is, without its faults.

    ``pace``: how fast devices and links are, as a factor. ``bounded``: tasks have one limit in all
    (``network.task_timeout_s``). ``checkpoints``: they are taken, every few seconds. ``native``: no
    link is emulated, so that the coordinator has one thread where nothing waits for the disk.
    ``up``, ``down``: how updates and models are compressed. ``pushes``: in place of ``strategy``,
    the one of ``pushing.py`` with this name.
    """

    strategy: str
    durability: str
    pace: float = 1.0
    bounded: bool = False
    checkpoints: bool = False
    native: bool = False
    up: str = ""
    down: str = ""
    pushes: str = ""


def random_scenario(rng: np.random.Generator) -> Scenario:
    """Draw a scenario."""
    return Scenario(
        str(rng.choice(sorted(STRATEGIES))),
        str(rng.choice(["process", "power"])),
        float(rng.choice([0.5, 1.0, 2.0])),
        bool(rng.random() < 0.3),
        bool(rng.random() < 0.85),
        **_compressed(rng),
    )


def _compressed(rng: np.random.Generator) -> dict[str, str]:
    if rng.random() >= COMPRESSED_SHARE:
        return {}
    return {"up": str(rng.choice(UP)), "down": str(rng.choice(DOWN))}


@functools.cache
def experiment(scenario: Scenario) -> Experiment:
    """The scenario's experiment."""
    entry, more = STRATEGIES[scenario.strategy]
    strategy = scenario.strategy
    if scenario.pushes:
        strategy, (entry, more) = f"pushing.py:{scenario.pushes}", STRATEGIES["fedasync"]
    rate = scenario.pace
    sections: dict[str, Any] = {
        "name": "search",
        "seed": SEED,
        "task": "task.py:build",
        "edges": {"names": list(EDGES)},
        "training": {"batch_size": 10},
        "devices": {"samples_per_s": 60.0 * rate, "slowest_ratio": 3.0},
        "links": {"up_mbit_s": 0.1 * rate, "down_mbit_s": 0.2 * rate, "latency_ms": 10.0},
        "stop": {"versions": VERSIONS, "emulated_s": 600.0},
        "evaluation": EVALUATION,
        "network": {
            "port": PORT,
            "realtime": "off",
            "report_s": 0.0,
            "grace_s": 5.0,
            "join_timeout_s": 20.0,
            "liveness_s": 3.0,
            **({"task_timeout_s": 30.0} if scenario.bounded else {}),
        },
        "record": {"durability": scenario.durability},
        "strategies": [{"strategy": strategy, **entry}],
    }
    if scenario.native:
        sections["links"] = {"kind": "native"}
    if "medium" in more:
        sections["links"] = {"latency_ms": 10.0}
    ways = {"up": scenario.up, "down": scenario.down}
    if any(ways.values()):
        sections["compression"] = {way: name for way, name in ways.items() if name}
    return Experiment.model_validate(sections | more)


class World:
    """Data and model, loaded once in this process for all runs; and the files of w_0."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._learned: dict[str, Learning] = {}

    @contextmanager
    def during(self, scenario: Scenario, now_s: Callable[[], float]) -> Iterator[None]:
        """A run of this scenario. Two modules have clocks of their own for what they record."""
        replay_s = OFTEN_S if scenario.checkpoints else NEVER_S
        unix = SimpleNamespace(time_ns=lambda: round(now_s() * NS_PER_S))
        with (
            # git would be a new process each time
            patch.object(rundir, "git_commit", lambda folder=None: "simulated"),
            patch.object(rundir, "time", SimpleNamespace(monotonic=now_s)),
            patch.object(clock, "time", unix),
            patch.object(logic, "REPLAY_S", replay_s),
        ):
            yield

    def experiment(self, scenario: Scenario) -> Experiment:
        """The scenario's experiment."""
        return experiment(scenario)

    def learned(self, scenario: Scenario) -> Learning:
        """The data and the model, for this scenario's experiment."""
        found, strategy = self.experiment(scenario), scenario.pushes or scenario.strategy
        if strategy not in self._learned:
            self._learned[strategy] = made = learning(found, FOLDER)
            layout = orjson.dumps(made.layout.to_json())
            (self.scratch / "layout.json").write_bytes(layout)
            save_file({"weights": made.initial_weights()}, self.scratch / "initial.safetensors")
        return replace(self._learned[strategy], experiment=found, _chosen={})

    def coordinator_task(self, scenario: Scenario, resume: bool) -> StartRun:
        learned = self.learned(scenario)
        return StartRun(
            experiment=learned.experiment.model_dump_json(),
            index=0,
            directory=RUN,
            base=FOLDER,
            scratch=self.scratch,
            data_digest=learned.data_digest(),
            keys=None,
            more=False,
            strains=(),
            speed_auto=False,
            resume=resume,
            engine="",
        )

    def edge_side(self, scenario: Scenario, edge: str, setup: Setup) -> EdgeSide:
        learned = self.learned(scenario)
        return sides(learned, 0, learned.data_digest())(edge, setup)


def rows_of(text: bytes) -> list[Mapping[str, Any]]:
    """The whole lines of an events.jsonl."""
    return [orjson.loads(line) for line in text.split(b"\n")[:-1]]
