"""Tests of the timeline: slices, instants and counters from rows, in any order of the files."""

import pytest

from edgefl.results.read import EventColumns, TableColumns
from edgefl.results.timeline import Instant, Slice, Timeline


def event(t, kind, decisions=(), version=0, **more):
    return {"t": t, "event": kind, "version": version, **more, "decisions": list(decisions)}


def fact(t, name, **more):
    return {"t": t, "fact": name, **more}


def assign(edges, tasks, **more):
    return {"do": "assign", "edges": edges, "tasks": tasks, "numbers": {}, **more}


def moved(edge, direction, kind, size, offered, finished):
    times = {"offered_s": offered, "scheduled_s": finished, "finished_s": finished}
    row = {"edge": edge, "direction": direction, "kind": kind, "bytes": size, **times}
    return {key: str(value) for key, value in row.items()}


# One edge, two tasks; the second one is under way at the end.
EVENTS = [
    event(0.0, "edge_joined", edge="a", samples=10),
    event(0.5, "run_started", [assign(["a"], [0])]),
    fact(1.0, "task_started", edge="a", task=0),
    fact(3.0, "update_ready", edge="a", task=0),
    event(
        4.0,
        "update_arrived",
        [{"do": "publish", "version": 1}, assign(["a"], [1])],
        edge="a",
        task=0,
        base_version=0,
    ),
    fact(4.5, "task_started", edge="a", task=1),
]
LINKS = [
    moved("a", "down", "task", 1000, 0.5, 1.0),
    moved("a", "up", "update", 500, 3.0, 4.0),
    moved("a", "down", "task", 1000, 4.0, 4.5),
]
EXPECTED = [
    Slice("a", "compute", "idle", 0.0, 0.5),
    Slice("a", "compute", "training", 1.0, 3.0, 0),
    Slice("a", "downlink", "receive", 0.5, 1.0, 0, 1000),
    Slice("a", "downlink", "receive", 4.0, 4.5, 1, 1000),
    Slice("a", "uplink", "send", 3.0, 4.0, 0, 500),
]


def take(found, events=(), links=(), slots=()):
    """Give rows as columns, in the order in which of_run does."""
    found.take_events(EventColumns.of(events, found.texts))
    found.take_slots(TableColumns.of(slots, found.texts))
    found.take_links(TableColumns.of(links, found.texts))


def timeline(events=(), links=(), slots=()):
    found = Timeline()
    take(found, events, links, slots)
    found.no_more_rows()
    return found


def story(*rows):
    """The events of edge a: joined at 0, gets task 0 at 0 and starts it at 1."""
    begin = [
        event(0.0, "edge_joined", edge="a", samples=10),
        event(0.0, "run_started", [assign(["a"], [0])]),
        fact(1.0, "task_started", edge="a", task=0),
    ]
    return [*begin, *rows]


def test_slices_instants_and_counters_of_a_short_run():
    found = timeline(EVENTS, LINKS)
    assert sorted(found.slices) == EXPECTED
    assert found.open_slices() == [Slice("a", "compute", "training", 4.5, None, 1)]
    assert found.instants == [Instant("a", "merge", 4.0, 0, 1)]
    assert found.versions == [(0.0, 0), (4.0, 1)]
    gaps = found.gap_rows()
    assert (gaps["t_s"].tolist(), gaps["versions"].tolist()) == ([4.0], [0])
    assert found.edges == ["a"] and found.emulated_s == 4.5


def test_an_update_waits_for_its_grant():
    grant = {"do": "grant", "edge": "a", "task": 0}
    events = story(
        event(2.0, "update_ready", edge="a", task=0),
        event(5.0, "alarm_rang", [grant], name="x"),
    )
    found = timeline(events)
    assert found.open_slices() == [Slice("a", "uplink", "send", 5.0, None, 0)]
    take(found, links=[moved("a", "up", "update", 10, 5.0, 6.0)])
    found.no_more_rows()
    assert [each for each in found.slices if each.lane == "uplink"] == [
        Slice("a", "uplink", "wait", 2.0, 5.0, 0),
        Slice("a", "uplink", "send", 5.0, 6.0, 0, 10),
    ]


def test_transfers_of_one_lane_do_not_overlap():
    links = [
        moved("a", "down", "task", 10, 0.0, 4.0),
        moved("a", "down", "fresh", 10, 1.0, 6.0),  # queued behind the first one
        moved("a", "up", "update", 10, 1.0, 6.0),
    ]
    slices = timeline((), links).slices
    assert [(each.lane, each.begin_s, each.end_s) for each in slices] == [
        ("downlink", 0.0, 4.0),
        ("downlink", 4.0, 6.0),
        ("uplink", 1.0, 6.0),
    ]


def test_a_transfer_that_is_broken_off_has_a_slice_without_bytes():
    cancel = {"do": "cancel", "edge": "a", "task": 0}
    events = story(
        fact(2.0, "update_ready", edge="a", task=0),
        event(3.0, "alarm_rang", [cancel, assign(["a"], [1])], name="deadline"),
        fact(5.0, "task_started", edge="a", task=1),
    )
    links = [moved("a", "down", "task", 10, 0.0, 1.0), moved("a", "down", "task", 10, 3.0, 5.0)]
    assert sorted(timeline(events, links).slices) == [
        Slice("a", "compute", "training", 1.0, 2.0, 0),
        Slice("a", "downlink", "receive", 0.0, 1.0, 0, 10),
        Slice("a", "downlink", "receive", 3.0, 5.0, 1, 10),
        Slice("a", "uplink", "send", 2.0, 3.0, 0),
    ]


def test_a_late_row_has_the_time_around_a_broken_off_transfer():
    cancel = {"do": "cancel", "edge": "a", "task": 0}
    events = story(
        fact(2.0, "update_ready", edge="a", task=0),
        event(3.0, "alarm_rang", [cancel], name="deadline"),
        fact(4.0, "discarded", edge="a", task=0, reason="late"),
    )
    found = timeline(events, [moved("a", "up", "update", 10, 2.0, 4.0)])
    assert [each for each in found.slices if each.lane == "uplink"] == [
        Slice("a", "uplink", "send", 2.0, 3.0, 0),
        Slice("a", "uplink", "send", 3.0, 4.0, 0, 10),
    ]
    assert found.instants == [Instant("a", "discard", 4.0, 0)]


def test_slots_divide_a_transfer():
    slots = [
        {"begins_s": begin, "ends_s": end, "edge": "a", "direction": "up", "kind": "update"}
        for begin, end in (("3.0", "4.0"), ("6.0", "7.0"))
    ]
    events = story(fact(2.0, "update_ready", edge="a", task=0))
    links = [moved("a", "up", "update", 11, 2.0, 7.0)]
    uplink = [each for each in timeline(events, links, slots).slices if each.lane == "uplink"]
    assert uplink == [
        Slice("a", "uplink", "wait", 2.0, 3.0, 0),
        Slice("a", "uplink", "send", 3.0, 4.0, 0, 6),
        Slice("a", "uplink", "wait", 4.0, 6.0, 0),
        Slice("a", "uplink", "send", 6.0, 7.0, 0, 5),
    ]


def test_a_broadcast_is_received_by_its_edges_only():
    events = [
        event(0.0, "edge_joined", edge=edge, samples=1) for edge in ("a", "b", "c")
    ]  # the same model goes to a and b, then another one to c
    both = [assign(["a", "b"], [0, 1], broadcast=[0]), assign(["c"], [2], broadcast=[1])]
    events.append(event(0.0, "run_started", both))
    links = [moved("*", "down", "task", 8, 0.0, 1.0), moved("*", "down", "task", 8, 0.0, 2.0)]
    slices = [each for each in timeline(events, links).slices if each.lane == "downlink"]
    assert [(each.edge, each.end_s, each.task) for each in slices] == [
        ("a", 1.0, 0),
        ("b", 1.0, 1),
        ("c", 2.0, 2),
    ]


def test_a_broadcast_push_is_received_by_its_edges_and_those_of_the_task_in_its_slots():
    events = [event(0.0, "edge_joined", edge=edge, samples=1) for edge in ("a", "b", "c")]

    def push(edges, slot):
        return {"do": "push", "edges": edges, "tasks": [9], "numbers": {}, "broadcast": [slot]}

    events.append(event(0.0, "run_started", [assign(["a"], [0], broadcast=[0]), push(["b"], 0)]))
    events.append(event(1.0, "alarm_rang", [push(["c"], 1)], name="again"))
    links = [moved("*", "down", "task", 8, 0.0, 1.0), moved("*", "down", "push", 8, 1.0, 2.0)]
    slices = [each for each in timeline(events, links).slices if each.lane == "downlink"]
    assert [(each.edge, each.end_s) for each in slices] == [("a", 1.0), ("b", 1.0), ("c", 2.0)]


@pytest.mark.parametrize("rows_first", [True, False])
def test_an_edge_that_waits_for_a_fresher_model(rows_first):
    fresh = {"do": "send_fresh", "edge": "a", "task": 0, "version": 3}
    events = story(
        event(
            2.0, "fresh_requested", [fresh], edge="a", task=0, base_version=0, step=4, until_ns=0
        ),
        fact(5.0, "update_ready", edge="a", task=0),
    )
    links = [moved("a", "down", "fresh", 10, 2.0, 3.0)]
    found = Timeline()
    if rows_first:
        take(found, links=links)
    take(found, events=events)
    take(found, links=[] if rows_first else links)
    assert sorted(each for each in found.slices if each.lane == "compute") == [
        Slice("a", "compute", "training", 1.0, 2.0, 0),
        Slice("a", "compute", "training", 3.0, 5.0, 0),
        Slice("a", "compute", "wait", 2.0, 3.0, 0),
    ]
    assert found.instants == [Instant("a", "fresh", 3.0, 0)]


def test_rows_ahead_of_the_events_end_what_goes_on():
    """As after kill -9: the transfer's row was written, the event about its end was not."""
    events = story(fact(2.0, "update_ready", edge="a", task=0))
    links = [moved("a", "up", "update", 10, 2.0, 3.0)]
    found = timeline(events, links)
    assert Slice("a", "uplink", "send", 2.0, 3.0, 0, 10) in found.slices
    assert found.open_slices() == [] and found.emulated_s == 3.0
    closed = event(4.0, "task_closed", edge="a", task=0, reason="edge lost")
    take(found, events=[closed])
    assert [each.end_s for each in found.slices if each.lane == "uplink"] == [3.0]


def test_an_edge_that_trains_on_while_it_asks_does_not_wait():
    asks = event(2.0, "fresh_requested", edge="a", task=0, base_version=0, step=4, until_ns=9)
    found = timeline(story(asks, fact(5.0, "update_ready", edge="a", task=0)))
    assert [each for each in found.slices if each.lane == "compute"] == [
        Slice("a", "compute", "training", 1.0, 5.0, 0)
    ]


def test_faults_and_absence():
    events = story(
        fact(2.0, "fault", kind="slow", edge="a", for_s=1.5),
        fact(3.0, "fault", kind="slow", edge="a", for_s=1.5),  # they overlap: one interval
        fact(5.0, "fault", kind="kill", edge="a"),
        event(6.0, "edge_lost", edge="a"),
        fact(8.0, "fault", kind="restart", edge="a"),
        event(8.0, "task_closed", edge="a", task=0, reason="edge restarted"),
        event(8.0, "edge_joined", edge="a", samples=10),
        fact(9.0, "fault", kind="freeze", edge="a", for_s=5.0),
    )
    found = timeline(events, [moved("a", "down", "task", 10, 0.0, 1.0)])
    assert sorted(found.slices) == [
        Slice("a", "away", "lost", 6.0, 8.0),
        Slice("a", "compute", "training", 1.0, 5.0, 0),
        Slice("a", "downlink", "receive", 0.0, 1.0, 0, 10),
        Slice("a", "fault", "kill", 5.0, 8.0),
        Slice("a", "fault", "slow", 2.0, 4.5),
    ]
    assert sorted(found.open_slices()) == [
        Slice("a", "compute", "idle", 8.0, None),
        Slice("a", "fault", "freeze", 9.0, None),
    ]
    assert found.instants == [Instant("a", "restart", 8.0)]


def test_a_discarded_update_is_in_no_model_and_has_no_staleness():
    discard = {"do": "discard", "task": 0, "reason": "stale"}
    arrived = event(4.0, "update_arrived", [discard], version=2, edge="a", task=0, base_version=0)
    published = event(5.0, "alarm_rang", [{"do": "publish", "version": 3}], version=2, name="x")
    found = timeline(story(arrived, published))
    assert found.instants == [Instant("a", "discard", 4.0, 0)]
    assert not len(found.gap_rows()) and found.version == 3


def test_rows_without_the_beginning_of_the_run():
    """The first parts of the files may have been deleted (``record.keep``)."""
    rows = [fact(7.0, "update_ready", edge="a", task=5)]
    found = timeline(rows, [moved("a", "down", "task", 10, 6.0, 6.5)])
    assert found.slices == [Slice("a", "downlink", "receive", 6.0, 6.5, None, 10)]
    assert found.open_slices() == [Slice("a", "uplink", "send", 7.0, None, 5)]


def test_a_reader_may_clear_the_lists_and_memory_stays_bounded():
    found = Timeline(keep=3)
    for task in range(50):
        t = 10.0 * task
        take(
            found,
            [
                event(t, "alarm_rang", [assign(["a"], [task])], name="x"),
                fact(t + 1, "task_started", edge="a", task=task),
                fact(t + 2, "update_ready", edge="a", task=task),
                event(t + 3, "update_arrived", edge="a", task=task, version=0, base_version=0),
            ],
        )
        take(found, links=[moved("a", "up", "update", 10, t + 2, t + 3)])
        new = [each.task for each in found.slices if each.lane == "uplink"]
        assert new == [task]
        found.drain()
    (edge,) = found._edges.values()
    assert 3 <= len(edge.given) <= 6 and 3 <= len(edge.ready) <= 6 and not found.versions
