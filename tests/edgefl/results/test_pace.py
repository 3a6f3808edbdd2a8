"""The pace of a run, checked by hand: updates per second, time left, the line shown."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from edgefl.commands import running
from edgefl.config.experiment import Stop
from edgefl.results.progress import Pace, Point


def pace(*points: tuple[float, float, int, int], **stop: Any) -> Pace:
    """A pace that starts at wall second 100."""
    made = Pace(Stop(**stop), 100.0)
    for point in points:
        made.take(Point(*point))
    return made


@pytest.mark.parametrize(
    ("stop", "left_s"),
    [
        ({"emulated_s": 500.0}, 40.0),  # 100 emulated s in 10 s; 400 to go
        ({"versions": 8}, 30.0),  # 2 in 10 s; 6 to go
        ({"updates": 60}, 20.0),  # 20 in 10 s; 40 to go
        ({"emulated_s": 500.0, "versions": 8, "updates": 60}, 20.0),  # the nearest condition
        ({"versions": 2}, 0.0),
    ],
)
def test_time_left_by_hand(stop: dict[str, Any], left_s: float) -> None:
    assert pace((110.0, 100.0, 2, 20), **stop).left_s == pytest.approx(left_s)


def test_nothing_is_said_of_the_end_before_anything_has_moved() -> None:
    assert pace((110.0, 0.0, 0, 0), versions=5).left_s is None
    assert pace((110.0, 50.0, 0, 0), versions=5).left_s is None, (
        "emulated time passes, but no version comes"
    )
    assert (
        pace((110.0, 50.0, 0, 0), versions=5).line()
        == "50.0 s emulated, version 0 of 5, 0 updates (0.0/s)"
    )


def test_the_pace_is_that_of_the_last_seconds() -> None:
    """A slow start no longer counts: 10 updates in the first 100 s, then 10 per second."""
    points = [
        (200.0, 10.0, 1, 10),
        *((200.0 + second, 10.0 + second, 1, 10 + 10 * second) for second in range(1, 41)),
    ]
    made = pace(*points, updates=1010)
    assert made.updates_per_s == pytest.approx(10.0)
    assert made.left_s == pytest.approx(60.0)  # 600 to go


def test_the_line() -> None:
    made = pace((110.0, 123.44, 12, 345), emulated_s=1000.0, updates=2000)
    assert (
        made.line()
        == "123.4 of 1000 s emulated, version 12, 345 of 2000 updates (34.5/s), 0:00:48 left"
    )  # 1655 / 34.5 s; 876.56 / 12.344 is more
    assert (
        pace((110.0, 1.0, 0, 0), emulated_s=1001.0).line().endswith("2:46:40 left")
    )  # 1000 times 10 s


# ------------------------------------------------------------- what the host calls after every step
class Run:
    """The part of an open run that the progress display reads."""

    class coordinator:
        version = 3

    class counters:
        updates_accepted = 7


class First:
    class coordinator:
        version = 0

    class counters:
        updates_accepted = 0


class Pool:
    busy, workers = 1, 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [1000.0]
    monkeypatch.setattr(running.time, "monotonic", lambda: moment[0])
    return moment


def test_most_steps_only_look_at_the_clock(clock: list[float]) -> None:
    said: list[str] = []
    tick = running.ProgressLines().ticker(Stop(emulated_s=4.0), said.append, Pool())
    for step in range(1001):
        clock[0] = 1000.0 + step / 100
        tick(step * 4_000_000, Run() if step else First())
    assert len(said) == 2  # 10 s; no terminal here
    assert (
        said[0]
        == "2.0 of 4 s emulated, version 3, 7 updates (1.4/s), 0:00:05 left, 1 of 2 workers busy"
    )


def test_the_pace_of_a_resumed_run_begins_where_it_goes_on(clock: list[float]) -> None:
    """What it did before took none of the time since."""
    said: list[str] = []
    tick = running.ProgressLines().ticker(Stop(emulated_s=100.0), said.append)
    for second in range(6):
        clock[0] = 1000.0 + second
        tick((80 + second) * 1_000_000_000, Run())
    assert said == ["85.0 of 100 s emulated, version 3, 7 updates (0.0/s), 0:00:15 left"]


def test_on_a_terminal_every_run_has_one_line_in_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = running.ProgressLines()
    lines.console = Console(force_terminal=True, width=60, height=10, record=True)
    lines.show("fedavg seed 1", "1.0 s emulated")
    lines.show("fedavg seed 2", "2.0 s emulated")
    assert (
        len([line for line in capsys.readouterr().out.splitlines() if "seed" in line]) == 3
    )  # one, then both
    lines.end("fedavg seed 1", "fedavg seed 1: 3 versions")
    assert "fedavg seed 1: 3 versions" in capsys.readouterr().out
    lines.show("fedavg seed 2", "3.0 s emulated")
    assert "seed 1" not in capsys.readouterr().out
    lines.close()
