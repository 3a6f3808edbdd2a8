"""A check of Chrome trace JSON by the rules that Perfetto's trace processor has for it.

A slice that overlaps another one of its thread is left out by Perfetto, a thread's number must
belong to one process, and an instant at the begin of a slice of its thread is not shown.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import Any

KNOWN = {"M", "X", "C", "i"}
NAMES = ("process_name", "thread_name", "process_sort_index", "thread_sort_index")


def check_trace(trace: dict[str, Any]) -> Counter[str]:
    """Return how many events there are of each kind. AssertionError for what is wrong."""
    events = trace["traceEvents"]
    assert trace["displayTimeUnit"] in ("ms", "ns") and isinstance(trace["otherData"], dict)
    for event in events:
        assert event["ph"] in KNOWN and isinstance(event["name"], str) and event["name"], event
        assert type(event["pid"]) is int and event["pid"] > 0, event
        if event["ph"] != "M":
            assert type(event["ts"]) is int and event["ts"] >= 0, event
    _names(events)
    _slices([event for event in events if event["ph"] == "X"])
    sliced = {event["tid"] for event in events if event["ph"] == "X"}
    for event in events:
        if event["ph"] == "i":
            assert event["s"] == "t" and event["tid"] not in sliced, event
    _counters([event for event in events if event["ph"] == "C"])
    return Counter(event["ph"] for event in events)


def _names(events: list[dict[str, Any]]) -> None:
    processes, threads = {}, {}
    for event in events:
        if event["ph"] == "M":
            assert event["name"] in NAMES, event
            if event["name"] == "process_name":
                assert event["pid"] not in processes, event
                processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                assert event["tid"] not in threads, event
                threads[event["tid"]] = event["pid"]
    assert len(set(processes.values())) == len(processes)
    for event in events:
        assert event["pid"] in processes, event
        if event["ph"] in "Xi":
            assert threads[event["tid"]] == event["pid"], event


def _slices(slices: list[dict[str, Any]]) -> None:
    lanes = defaultdict(list)
    for event in slices:
        assert type(event["dur"]) is int and event["dur"] >= 0, event
        lanes[event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    for lane in lanes.values():
        lane.sort()
        for before, after in itertools.pairwise(lane):
            assert before[1] <= after[0], (before, after)


def _counters(counters: list[dict[str, Any]]) -> None:
    latest: dict[tuple[int, str], int] = {}
    for event in counters:
        (value,) = event["args"].values()
        assert isinstance(value, (int, float)) and value >= 0, event
        series = event["pid"], event["name"]
        assert event["ts"] >= latest.get(series, 0), event
        latest[series] = event["ts"]
