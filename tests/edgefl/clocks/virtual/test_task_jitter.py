"""``devices.task_jitter``: the tasks of one device vary in length."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import S, experiment, layout
from pools import bytes_of, learned_of

from edgefl.clocks.process_messages import FleetReady
from edgefl.clocks.setup.network import devices, task_jitters
from edgefl.clocks.setup.plan import task_limits, timetable
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.wall.speed_check import too_fast
from edgefl.edges.edge import TaskJitter
from edgefl.errors import UserError
from edgefl.protocol.messages import Assignment
from edgefl.results.read import read_events
from edgefl.streams import Streams

ONE = {"names": ["a"]}


def trainings(folder: Path, **sections: Any) -> tuple[list[float], list[int]]:
    """Seconds from the start of each training to its update, and the numbers of the tasks."""
    given: dict[str, Any] = {
        "strategies": [{"strategy": "fedasync", "concurrency": 3}],
        "devices": {"samples_per_s": 100.0, "task_jitter": 0.15},
        "training": {"batch_size": 16, "trainer": "none"},
        "stop": {"versions": 40},
    }
    run_virtual(learned_of(**(given | sections)), 0, folder)
    began: dict[int, float] = {}
    lasted, numbers = [], []
    for row in read_events(folder / "events.jsonl"):
        if row.get("fact") == "task_started":
            began[row["task"]] = row["t"]
        elif row.get("fact") == "update_ready":
            lasted.append(row["t"] - began[row["task"]])
            numbers.append(row["task"])
    return lasted, numbers


def factors(edge: str, numbers: list[int], variation: float = 0.15) -> list[float]:
    return [TaskJitter(variation, Streams(1), edge).factor(number) for number in numbers]


def test_factors_are_log_normal_with_mean_1_and_the_given_variation() -> None:
    """10,000 tasks: the mean is within 4 standard errors, the logarithm is normal."""
    for variation in (0.15, 1.0):
        found = np.array(factors("a", list(range(10_000)), variation))
        assert abs(found.mean() - 1) < 4 * variation / 100
        sigma = math.sqrt(math.log(1 + variation**2))
        standard = (np.log(found) + sigma**2 / 2) / sigma
        assert standard.mean() == pytest.approx(0, abs=0.04)
        assert standard.std() == pytest.approx(1, abs=0.03)
        within = [(np.abs(standard) < deviations).mean() for deviations in (1, 2)]
        assert within == pytest.approx([0.6827, 0.9545], abs=0.02)
    assert factors("a", [3]) == factors("a", [3]) != factors("b", [3])
    assert set(factors("a", [1, 2, 3], 0.0)) == {1.0}


def test_a_task_takes_its_factor_times_its_work(tmp_path: Path) -> None:
    lasted, numbers = trainings(tmp_path / "jitter", edges=ONE)
    plain, _ = trainings(tmp_path / "plain", edges=ONE, devices={"samples_per_s": 100.0})
    assert plain == pytest.approx([plain[0]] * len(plain))
    assert lasted == pytest.approx(
        [plain[0] * factor for factor in factors("a", numbers)], abs=2e-9
    )


@pytest.mark.parametrize(
    "model",
    [
        {
            "samples_per_s": 100.0,
            "throttling": {"hot_share": 0.3, "budget_s": 1.0, "recovery_s": 5.0},
        },
        {"samples_per_s": 100.0, "bursts": {"calm_s": 3.0, "burst_s": 1.0, "share": 0.2}},
        {"samples_per_s": 100.0, "spread": "exponential"},
        {"spread": "classes"},
        {"samples_per_s": 100.0, "slowest_ratio": 4.0},
    ],
    ids=["throttled", "bursty", "memoryless", "classes", "unequal"],
)
@pytest.mark.slow
def test_it_comes_on_top_of_every_other_model(model: dict[str, Any], tmp_path: Path) -> None:
    """The first task finds the same device: its work is multiplied, and so is its time, but where
    the device has a state. All tasks differ. The same again gives the same bytes.
    """
    with_jitter = model | {"task_jitter": 0.3}
    found, numbers = trainings(tmp_path / "jitter", devices=with_jitter)
    plain, others = trainings(tmp_path / "plain", devices=model)
    assert len(set(found)) > len(found) // 2 and not set(found) & set(plain)
    if model.keys() <= {"samples_per_s", "spread", "slowest_ratio"}:
        first = read_events(tmp_path / "plain/events.jsonl")
        edges = {row["task"]: row["edge"] for row in first if row.get("fact") == "update_ready"}
        for task in {0, 1, 2} & set(numbers) & set(others):
            ratio = found[numbers.index(task)] / plain[others.index(task)]
            assert ratio == pytest.approx(factors(edges[task], [task], 0.3)[0], rel=1e-6)
    trainings(tmp_path / "again", devices=with_jitter)
    assert bytes_of(tmp_path / "jitter") == bytes_of(tmp_path / "again")


def test_a_group_may_have_another_one() -> None:
    found = experiment(
        devices={"task_jitter": 0.2},
        groups=[
            {"name": "x", "count": 1},
            {"name": "y", "count": 1, "devices": {"task_jitter": 0.5}},
            {"name": "z", "count": 1, "devices": {"task_jitter": 0.0, "kind": "native"}},
        ],
    )
    assert {edge: each.variation for edge, each in task_jitters(found).items()} == {
        "a": 0.2,
        "b": 0.5,
    }


def test_the_deadline_of_a_task_follows_its_factor() -> None:
    """With a variation of 1, one task in 25 is longer than three times its mean, the limit."""
    given = experiment(
        devices={"samples_per_s": 10.0, "task_jitter": 1.0}, training={"batch_size": 4}
    )
    found = task_limits(given, given.strategies[0], None, dict.fromkeys("abc", 100))
    assert found is not None
    drawn = factors("a", list(range(50)), 1.0)
    assert max(drawn) > 3
    for number, factor in enumerate(drawn):
        limit_ns = found.training_ns("a", 100, Assignment(number, 0, {}), 0)
        assert limit_ns == pytest.approx(max(30 * factor, 10 * factor + 4) * S, abs=3)


def test_slots_are_not_planned_for_times_that_are_not_known(tmp_path: Path) -> None:
    tdma = {"medium": {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 10.0, "rate_mbit_s": 1.0}}
    jitter = {"devices": {"samples_per_s": 100.0, "task_jitter": 0.1}}
    for more, known in ((jitter, False), ({}, True)):
        given = experiment(**tdma, **more, strategies=[{"strategy": "idfl", "per_round": 1}])
        found = timetable(given, layout(), devices(given))
        assert found.known is known and (found.compute_slots("a", 10, 1) is None) is not known
    entry = {"strategy": "idfl", "per_round": 1}
    with pytest.raises(UserError, match=r"computing time of these devices is not known.*adaptive"):
        trainings(tmp_path / "auto", **tdma, strategies=[entry])
    trainings(tmp_path / "adaptive", **tdma, strategies=[entry | {"alpha": "adaptive"}])


def test_the_mean_speed_that_a_host_must_keep_stays() -> None:
    fleet = FleetReady("", 50.0, 2, {"a": 10}, "", ())
    for jitter in (0.0, 1.0):
        given = experiment(
            edges=ONE,
            devices={"samples_per_s": 60.0, "task_jitter": jitter},
            strategies=[{"strategy": "fedasync"}],
        )
        assert [str(each).count("up to 60 samples/s") for each in too_fast(given, None, fleet)] == [
            1
        ]
