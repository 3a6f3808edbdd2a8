"""Deadlines of tasks, computed from the config's numbers."""

from __future__ import annotations

from typing import Any

import pytest
from builders import S, experiment, vector

from edgefl.clocks.setup.plan import EmulatedLimits, task_limits
from edgefl.protocol.messages import Assignment
from emulator.units import FOREVER

LINKS = {"up_mbit_s": 1.0, "down_mbit_s": 4.0, "latency_ms": 50.0}
MS = S // 1000
TASK = Assignment(0, 0, {"weights": vector(0, 0, 0)})


def limits(**sections: Any) -> EmulatedLimits:
    given = {"links": LINKS, "devices": {"samples_per_s": 10.0}, "training": {"batch_size": 4}}
    found = experiment(**given | sections)
    made = task_limits(found, found.strategies[0], None, {"a": 100, "b": 100, "c": 100})
    assert made is not None
    return made


def test_three_times_the_emulated_time() -> None:
    found = limits()
    assert found.training_ns("a", 100, TASK, 0) == 30 * S
    assert found.download_ns("a", 5_000_000, None, 7 * S) == 3 * (10 * S + 50 * MS)
    assert found.upload_ns("a", 5_000_000, 7 * S) == 3 * (40 * S + 50 * MS)


def test_at_least_as_much_longer_as_a_silent_edge_has_until_it_is_lost() -> None:
    """4 s: a short task must not time out before its edge is lost and can come back."""
    found = limits()
    assert found.training_ns("a", 10, TASK, 0) == 5 * S
    assert found.download_ns("a", 5_000, None, 0) == 10 * MS + 50 * MS + 4 * S
    faster = limits(speed=2.0)
    assert faster.training_ns("a", 10, TASK, 0) == 9 * S, "liveness_s is real time"


@pytest.mark.parametrize(
    ("numbers", "time_s"),
    [({"epochs": 2.0}, 60), ({"most_steps": 5.0}, 6), ({"epochs": 0.0}, None)],
)
def test_the_tasks_own_numbers_count(numbers: dict[str, float], time_s: int | None) -> None:
    task = Assignment(0, 0, {"weights": vector(0, 0, 0)}, numbers)
    found = limits().training_ns("a", 100, task, 0)
    assert found == (FOREVER if time_s is None else time_s * S)


def test_slow_stretches_and_cuts_are_part_of_the_emulated_time() -> None:
    found = limits(
        faults=[
            {"kind": "slow", "edges": ["a"], "at_s": 0.0, "for_s": 1000.0, "factor": 0.5},
            {"kind": "cut", "edges": ["b"], "at_s": 0.0, "for_s": 20.0},
        ]
    )
    assert found.training_ns("a", 100, TASK, 0) == 60 * S
    assert found.training_ns("b", 100, TASK, 0) == 30 * S
    assert found.download_ns("b", 5_000_000, None, 0) == 3 * (30 * S + 50 * MS)


def test_slots_of_a_tdma_channel() -> None:
    """A model of 5000 bytes takes 5 slots of 8000 bit: 30 slots for three edges, both ways."""
    medium = {"kind": "tdma", "slot_ms": 10.0, "guard_ms": 0.0, "rate_mbit_s": 0.8}
    found = limits(medium=medium, links={"latency_ms": 0.0})
    assert found.upload_ns("a", 5_000, 0) == 300 * MS + 4 * S
    assert found.download_ns("a", 5_000, (7, 8, 9), 50 * MS) == 60 * MS + 4 * S


def test_the_config_may_say_otherwise() -> None:
    assert limits(network={"task_timeout_s": 2.5}).total_ns == 2_500 * MS
    assert limits().total_ns is None
    none = experiment(network={"task_timeout_s": 0.0})
    assert task_limits(none, none.strategies[0], None, {}) is None


def test_a_resumed_run_knows_which_devices_are_hot() -> None:
    heat = {"budget_s": 5.0, "hot_share": 0.5, "recovery_s": 1000.0}
    sections = {"devices": {"samples_per_s": 10.0, "throttling": heat}}
    unbroken, resumed = limits(**sections), limits(**sections)
    assert unbroken.training_ns("a", 100, TASK, 0) == 3 * (5 + 10) * S
    resumed.restore(unbroken.state())
    later = unbroken.training_ns("a", 100, TASK, 15 * S)
    assert later > 3 * 19 * S, "it is still hot"
    assert resumed.training_ns("a", 100, TASK, 15 * S) == later
