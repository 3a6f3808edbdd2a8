"""Which training counts as late, without any I/O."""

from __future__ import annotations

import pytest

from edgefl.hosts.wall.coordinator.training_times import TrainingTimes
from edgefl.protocol.messages import Working
from emulator.fidelity import Fidelity
from emulator.units import NS_PER_S

DUE_NS = 2 * NS_PER_S


@pytest.fixture
def times() -> TrainingTimes:
    """Edge a has an emulated device and trains task 1 from 1 s to 2 s; b has a native device."""
    times = TrainingTimes(Fidelity(), stamped="a")
    for edge in "ab":
        times.begins(edge, 1, NS_PER_S)
        times.working[edge] = Working(1, DUE_NS)
    return times


def counted(times: TrainingTimes) -> tuple[int, int]:
    return times.fidelity.tasks, times.fidelity.overruns


@pytest.mark.parametrize(("now", "late"), [(DUE_NS, (0, 0)), (3 * NS_PER_S, (1, 1))])
def test_work_that_is_not_done_at_the_end_is_late_after_its_moment(
    times: TrainingTimes, now: int, late: tuple[int, int]
) -> None:
    times.overdue("a", now)
    assert counted(times) == late and "a" not in times.working
    times.overdue("a", now)
    assert counted(times) == late


def test_work_whose_update_was_offered_is_not_judged_again(times: TrainingTimes) -> None:
    assert times.offered("a", 1) == NS_PER_S and times.offered("a", 1) is None
    times.overdue("a", 9 * NS_PER_S)
    assert counted(times) == (0, 0)


def test_real_hardware_is_not_judged(times: TrainingTimes) -> None:
    times.asked("b", 1, DUE_NS, 5 * NS_PER_S)
    times.done("b", NS_PER_S, DUE_NS, 9 * NS_PER_S)
    assert counted(times) == (0, 0)


def test_training_goes_on_from_a_request(times: TrainingTimes) -> None:
    times.asked("a", 1, DUE_NS, 0)
    assert counted(times) == (1, 0) and times.offered("a", 1) == DUE_NS


def test_a_request_of_another_task_says_nothing_of_this_one(times: TrainingTimes) -> None:
    times.asked("a", 2, DUE_NS, 5 * NS_PER_S)
    assert counted(times) == (0, 0) and times.offered("a", 1) == NS_PER_S
