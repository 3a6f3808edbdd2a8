"""The time of a task that rate, latency and training do not explain; by hand."""

from __future__ import annotations

import pytest

from edgefl.profile.edge_profile import LinkModel, Rest, beyond, rest_of, tasks
from edgefl.results.measured import Span

# 1000 bytes take 1 s down and 2 s up, and 0.1 s of latency
MODEL = LinkModel({"down": 8000.0, "up": 4000.0}, 0.1)


def row(kind: str, offered_s: float, finished_s: float, size: int = 1000) -> dict[str, str]:
    direction = "up" if kind == "update" else "down"
    return {
        "direction": direction,
        "kind": kind,
        "bytes": str(size),
        "offered_s": str(offered_s),
        "finished_s": str(finished_s),
    }


def test_a_task_is_a_download_and_the_upload_after_it() -> None:
    rows = [
        row("update", 4.0, 6.0),
        row("task", 0.0, 1.0),
        row("fresh", 2.0, 3.0),
        row("task", 7.0, 8.0),  # cancelled: another task follows without an upload
        row("task", 9.0, 10.0),
        row("update", 11.0, 13.0),
    ]
    found = tasks(rows)
    assert [(task.down, task.fresh, task.up) for task in found] == [
        (rows[1], [rows[2]], rows[0]),
        (rows[4], [], rows[5]),
    ]


def test_a_native_device_pays_for_the_round_trips_of_the_protocol() -> None:
    """Confirmed after 0.2 s, trained for 3 s, offered after 0.1 s, granted after 0.2 s."""
    (task,) = tasks([row("task", 0.0, 1.1), row("update", 4.4, 6.6)])
    down_s, up_s, whole_s = beyond(task, [Span(1.3, 4.3, 64)], [], MODEL)
    assert (down_s, whole_s) == pytest.approx((0.0, 6.6))
    # between the download and the grant 3.3 s for 3 s of training; 2.2 s for 2.1 s on the link
    assert up_s == pytest.approx(0.3 + 0.1)


def test_an_emulated_device_is_ready_in_time() -> None:
    (task,) = tasks([row("task", 0.0, 1.25), row("update", 9.0, 11.2)])
    assert beyond(task, [], [], MODEL) == pytest.approx((0.15, 0.1, 11.2))


def test_a_request_and_its_answer_are_explained() -> None:
    """Asked at 2 s (0.1 s to the coordinator), answered by 3.2 s, trained on until 5 s."""
    rows = [row("task", 0.0, 1.1), row("fresh", 2.1, 3.2), row("update", 5.0, 7.1)]
    (task,) = tasks(rows)
    training = [Span(1.1, 2.0, 32), Span(3.2, 5.0, 32)]
    assert beyond(task, training, [2.1], MODEL) == pytest.approx((0.0, 0.0, 7.1))


def test_an_answer_without_a_model_takes_a_latency() -> None:
    (task,) = tasks([row("task", 0.0, 1.1), row("update", 4.0, 6.1)])
    training = [Span(1.1, 2.0, 32), Span(2.2, 4.0, 32)]
    assert beyond(task, training, [2.1], MODEL) == pytest.approx((0.0, 0.0, 6.1))


def test_the_rest_is_a_mean_over_tasks_without_outages() -> None:
    found = [(0.1, 0.2, 5.0), (0.3, 0.2, 6.0), (0.2, 0.5, 7.0), (0.2, 0.3, 6.0)]
    rest = rest_of([*found, (9.0, 9.0, 18.1)])  # more than three times the median, 6 s
    assert (rest.down_s, rest.up_s, rest.share) == pytest.approx((0.2, 0.3, 0.5 / 6.0))
    assert rest_of([]) == Rest(0.0, 0.0, None)
