"""Replay of a journal: the same decisions and bit-equal weights, or the first difference."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import EXAMPLES, Desk, experiment, layout, make, small_run
from safetensors.numpy import load_file

from edgefl.clocks.setup.plan import strategy
from edgefl.errors import UserError
from edgefl.protocol.messages import Joined
from edgefl.record import journal as journals
from edgefl.record.journal import Journal, Replay, replay
from edgefl.results.read import read_events
from edgefl.strategies.base.events_and_decisions import EdgeLost
from edgefl.strategies.fedasync import FedAsync
from edgefl.strategies.fedbuff import FedBuff
from edgefl.vectors import aligned_copy

SECTIONS: dict[str, Any] = {
    "devices": {"samples_per_s": 100.0, "slowest_ratio": 5.0},
    "stop": {"versions": 5},
    "record": {"payloads": True},
    "evaluation": {"every_versions": 0},
}
SORTS: list[dict[str, Any]] = [
    {"strategy": "fedavg", "clients_per_round": 2},
    {
        "strategy": "fedasync",
        "dispatch": "periodic",
        "concurrency": 2,
        "clients_per_trigger": 1,
        "period_s": 1.0,
        "max_staleness": 0,
    },
    {"strategy": "fedbuff", "buffer_size": 2, "dispatch_before_step": True},
    {"strategy": "../support/own_strategies.py:Fresher", "label": "fresher"},
]


def again(run: Path, **entry: Any) -> Replay:
    """Replay the journal of ``run`` with the strategy that ``entry`` describes."""
    given = experiment(strategies=[entry])
    weights = aligned_copy(load_file(run / "journal" / "initial.safetensors")["weights"])
    return replay(
        run / "journal",
        strategy(given, given.strategies[0], EXAMPLES, weights, layout(weights.size)),
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of FedAvg: five rounds with all three edges. Copy it before you change it."""
    return small_run(
        tmp_path_factory.mktemp("recorded"), **SECTIONS, strategies=[{"strategy": "fedavg"}]
    )[1]


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "fedavg"))


@pytest.mark.parametrize("entry", SORTS, ids=lambda entry: entry.get("label", entry["strategy"]))
def test_a_run_replays_with_the_same_decisions_and_bit_equal_weights(
    tmp_path: Path, entry: dict[str, Any]
) -> None:
    summary, directory = small_run(tmp_path, **SECTIONS, strategies=[entry])
    result = again(directory, **entry)
    assert result.version == summary["versions"] == 5
    assert (
        result.weights is not None
        and result.weights.tobytes()
        == load_file(directory / "model.safetensors")["weights"].tobytes()
    )
    assert result.events == sum(
        "event" in event for event in read_events(directory / "events.jsonl")
    )


def test_a_changed_strategy_is_found_at_its_first_other_decision(run: Path) -> None:
    """The ninth update makes version 3; 3 EdgeJoined, RunStarted and 8 updates come before."""
    with pytest.raises(UserError, match=r"event 13 \(update_arrived\) decided .*'publish'"):
        again(run, strategy="../support/own_strategies.py:Changed")
    with pytest.raises(
        UserError, match=r"event 4 \(run_started\) decided .*'a', 'c'.*journal has .*'a', 'b', 'c'"
    ):
        again(run, strategy="fedavg", clients_per_round=2)


def test_a_run_without_payloads_says_what_would_have_been_needed(tmp_path: Path) -> None:
    _, directory = small_run(tmp_path, **SECTIONS | {"record": {"payloads": False}})
    with pytest.raises(UserError, match="no journal here .*record.payloads = true"):
        list(journals.read(directory / "journal"))


# ------------------------------------------------------------------ events of the wall clock only
def desk_run(folder: Path, kind: type[Any], **options: Any) -> Desk:
    """A run with a lost edge, a late joiner, and refused and discarded updates."""
    desk = Desk(folder, make(kind, **options))
    desk.record.journal = Journal(folder / "journal")
    desk.start("a", "b", "c")
    desk.update("a", 0, np.nan, 0, 0)
    desk.update("b", 1, 4, 0.1, 0)
    desk.hear("c", EdgeLost("c"), now=10**9)
    desk.hear("d", Joined(3, []), now=2 * 10**9)
    desk.wake(99 * 10**9)
    desk.update("c", 2, 9, 9, 9)  # too late
    desk.hear("d", Joined(3, []), now=100 * 10**9)  # has no task any more
    for number in range(3, 9):
        task = desk.coordinator.tasks.open.get(number)
        if task is not None:
            desk.update(task.edge, number, 1, 0.3 * number, 2, version=task.version)
    desk.summary()
    return desk


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (FedAsync, {"concurrency": 3, "max_staleness": 1}),
        (FedBuff, {"concurrency": 3, "buffer_size": 2}),
    ],
)
def test_lost_edges_late_joiners_and_discards_replay_too(
    tmp_path: Path, kind: type[Any], options: dict[str, Any]
) -> None:
    desk = desk_run(tmp_path, kind, **options)
    result = replay(tmp_path / "journal", make(kind, **options))
    assert result.version == desk.coordinator.version > 1
    assert (
        result.weights is not None
        and result.weights.tobytes() == desk.coordinator.weights.tobytes()
    )
    assert {"not finite", "task closed"} <= set(desk.counters.discards)


def given(desk: Desk) -> list[tuple[str, int]]:
    return [(task.edge, task.number) for task in desk.coordinator.tasks.open.values()]
