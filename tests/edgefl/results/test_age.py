"""The age of models and updates, against a slow and obvious recomputation and by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import small_run
from coming_and_going import sections
from recorded import EVENTS, record

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.results import age
from edgefl.results.read import EventColumns, TableColumns, Texts, read_csv, read_events
from edgefl.results.run_files import RunFiles

NS = 1_000_000_000


# ---------------------------------------------------------------------- the obvious way
@dataclass
class OneEdge:
    there: bool = False
    model: tuple[float, int] | None = None  # the moment that it is of, and the version
    task: int | None = None  # at work
    request_until_ns: int | None = None  # of an open request; 0: the edge waits
    newest: dict[int, tuple[float, int]] = field(default_factory=dict)  # of each task


@dataclass
class Piece:
    """An edge has one model, and no version is published meanwhile."""

    begin_s: float
    end_s: float
    published_s: float
    versions: int
    at_work: bool


class Story:
    """A run row by row; each edge's age is looked at between all moments at which rows are."""

    def __init__(self, run: Path) -> None:
        self.edges: dict[str, OneEdge] = {}
        self.published = {0: 0.0}
        self.version, self.t_s = 0, 0.0
        self.pieces: list[Piece] = []
        self.peaks: list[tuple[float, int]] = []
        self.work_peaks: list[tuple[float, int]] = []
        self.tasks: dict[int, int] = {}  # open ones -> version
        # task -> its base and its newest model
        self.waiting: dict[int, tuple[tuple[float, int], tuple[float, int]]] = {}
        self.merged: list[tuple[float, int, float, int]] = []
        self.took_part: set[str] = set()
        self.pushed: dict[tuple[int, int], float] = {}  # task, version -> when it was sent
        self.early: dict[int, tuple[float, int]] = {}  # of tasks whose own model is to come
        self.arrived: Counter[int] = Counter()  # pushes, by task
        self.late = self.used = self.restarted = 0
        self.ready_s: dict[int, float] = {}
        rows = read_events(run / "events.jsonl")
        fresh = [row for row in read_csv(run / "links.csv") if row["kind"] == "fresh"]
        self.takes = {
            row["task"]: row["numbers"].get("pushes", 0)
            for row in rows
            if row.get("event") == "update_arrived"
        }
        for row in rows:
            if "update_ready" in row.values():
                self.ready_s.setdefault(row["task"], row["t"])
        answers = [
            (decision["edge"], row["t"], decision["version"])
            for row in rows
            for decision in row.get("decisions", ())
            if decision["do"] == "send_fresh" and decision["version"] is not None
        ]
        moments: list[tuple[float, int, Any]] = [(row["t"], 1, row) for row in rows]
        for row in fresh:
            offered = float(row["offered_s"])
            (sent,) = [
                (t, v) for e, t, v in answers if e == row["edge"] and abs(t - offered) < 1e-9
            ]
            moments.append((float(row["finished_s"]), 0, (row["edge"], *sent)))
        end_s = rows[-1]["t"]
        at = sorted((each for each in moments if each[0] <= end_s), key=lambda each: each[:2])
        for t_s in sorted({each[0] for each in at}):
            self.until(t_s)
            for what in [each[2] for each in at if each[0] == t_s]:
                if isinstance(what, tuple):
                    self.arrives(*what)
                else:
                    self.row(what)
            self.settle(t_s)

    def until(self, t_s: float) -> None:
        self.before = {name: (e.model, e.task, e.there) for name, e in self.edges.items()}
        self.was = self.version
        for each in self.edges.values():
            if each.there and each.model is not None and t_s > self.t_s:
                of_s, version = each.model
                versions, at_work = max(0, self.version - version), each.task is not None
                self.pieces.append(Piece(self.t_s, t_s, of_s, versions, at_work))
        self.t_s = t_s

    def settle(self, t_s: float) -> None:
        """Note the peaks of this moment, after all its rows."""
        for name, (model, task, there) in self.before.items():
            now = self.edges[name]
            if model is None or not there:
                continue
            peak = t_s - model[0], max(0, self.was - model[1])
            newer = now.model is not None and now.model[::-1] > model[::-1]
            if newer:
                self.peaks.append(peak)
            ended = task is not None and now.task is None and now.model == model and now.there
            if task is not None and (newer or ended):
                self.work_peaks.append(peak)

    def edge(self, name: str) -> OneEdge:
        return self.edges.setdefault(name, OneEdge())

    def arrives(self, name: str, sent_s: float, version: int) -> None:
        edge, of_s = self.edge(name), self.published.get(version, sent_s)
        until_ns, edge.request_until_ns = edge.request_until_ns, None
        if until_ns is None or edge.task is None or 0 < until_ns <= round(self.t_s * NS):
            return
        edge.model = edge.newest[edge.task] = min(of_s, sent_s), version

    def row(self, row: dict[str, Any]) -> None:
        edge, task = row.get("edge", ""), row.get("task", -1)
        match row.get("event") or row["fact"]:
            case "edge_joined":
                self.edge(edge).there = True
                self.took_part.add(edge)
            case "edge_lost":
                self.edge(edge).there = False
            case "task_started":
                if task in self.tasks:
                    version = self.tasks[task]
                    self.edge(edge).model = self.published[version], version
                    self.edge(edge).task = task
                    if task in self.early:
                        self.takes_push(edge, task, *self.early.pop(task))
            case "push_arrived" if task in self.tasks:
                self.push(row, edge, task)
            case "fault" if row["kind"] in ("kill", "restart"):
                self.edges[edge] = OneEdge(self.edge(edge).there)
            case "fresh_requested":
                self.edge(edge).request_until_ns = row["until_ns"]
            case "update_arrived" | "task_closed":
                own = self.edge(edge)
                own.task = own.request_until_ns = None
                if "base_version" in row:
                    version = row["base_version"]
                    if version != self.tasks[task]:  # it began anew
                        self.restarted += 1
                        assert version == own.newest[task][1]
                    base = self.published[version], version
                    self.waiting[task] = base, own.newest.get(task, base)
                del self.tasks[task]
        for decision in row.get("decisions", ()):
            self.decided(decision, row["t"])

    def push(self, row: dict[str, Any], name: str, task: int) -> None:
        version, self.arrived[task] = row["of_version"], self.arrived[task] + 1
        of_s = min(self.published.get(version, math.inf), self.pushed[task, version])
        if task in self.takes:
            late = self.arrived[task] > self.takes[task]
        else:
            late = row["t"] >= self.ready_s.get(task, math.inf)
        self.late += late
        if late:
            return
        if self.edge(name).task == task:
            self.takes_push(name, task, of_s, version)
        else:
            self.early[task] = of_s, version

    def takes_push(self, name: str, task: int, of_s: float, version: int) -> None:
        edge = self.edge(name)
        edge.model = edge.newest[task] = of_s, version
        self.used += 1

    def decided(self, decision: dict[str, Any], t_s: float) -> None:
        match decision["do"]:
            case "push":
                self.pushed |= {(task, decision["version"]): t_s for task in decision["tasks"]}
            case "assign":
                self.tasks |= dict.fromkeys(decision["tasks"], self.version)
            case "cancel":
                self.edge(decision["edge"]).task = None
                self.tasks.pop(decision["task"], None)
            case "discard":
                self.waiting.pop(decision["task"])
            case "send_fresh" if decision["version"] is None:
                self.edge(decision["edge"]).request_until_ns = None
            case "publish":
                for task in decision.get("made_of") or [*self.waiting]:
                    base, newest = self.waiting.pop(task)
                    ages = t_s - base[0], self.version - base[1]
                    ages += t_s - newest[0], max(0, self.version - newest[1])
                    self.merged.append(ages)
                self.version += 1
                self.published[self.version] = t_s

    # ------------------------------------------------------------------ numbers
    def numbers(self) -> Iterator[tuple[str, Any]]:
        work = [each for each in self.pieces if each.at_work]
        for of, pieces, peaks in (
            ("model", self.pieces, self.peaks),
            ("work", work, self.work_peaks),
        ):
            lengths = [each.end_s - each.begin_s for each in pieces]
            middles = [(each.begin_s + each.end_s) / 2 - each.published_s for each in pieces]
            versions = [each.versions for each in pieces]
            yield f"mean_{of}_age_s", np.average(middles, weights=lengths)
            yield f"mean_{of}_age_versions", np.average(versions, weights=lengths)
            yield f"max_{of}_age_s", max(each.end_s - each.published_s for each in pieces)
            yield f"max_{of}_age_versions", max(versions)
            if peaks:
                yield f"peak_{of}_age_s", np.mean([seconds for seconds, _ in peaks])
                yield f"peak_{of}_age_versions", np.mean([versions for _, versions in peaks])
        if self.merged:
            for place, name in enumerate(("update_age_s", "update_age_versions")):
                values = [each[place] for each in self.merged]
                yield f"mean_{name}", np.mean(values)
                yield f"max_{name}", max(values)
                yield f"p95_{name}", sorted(values)[-(-len(values) * 95 // 100) - 1]
            if any(each[:2] != each[2:] for each in self.merged):
                yield "mean_fresh_update_age_s", np.mean([each[2] for each in self.merged])
                yield "mean_fresh_update_age_versions", np.mean([each[3] for each in self.merged])
        counted = sum(each.end_s - each.begin_s for each in self.pieces)
        yield "age_counted", counted / (len(self.took_part) * self.t_s)

    def share_up_to(self, unit: str, at: float, at_work: bool) -> float:
        """The share of the time in which the age is at most ``at``."""
        total = below = 0.0
        for each in self.pieces:
            if at_work and not each.at_work:
                continue
            length = each.end_s - each.begin_s
            total += length
            if unit == "versions":
                below += length * (each.versions <= at)
            else:
                below += min(max(each.published_s + at - each.begin_s, 0.0), length)
        return below / total


TASK = {"task": "../support/own_task.py:build", "training": {"batch_size": 17, "epochs": 3}}
SOME = {"edges": {"count": 6}, "devices": {"samples_per_s": 100.0, "slowest_ratio": 3.0}}
KILL = [
    {"kind": "kill", "at_s": 3.0, "for_s": 4.0, "edges": ["e001"]},
    {"kind": "restart", "at_s": 5.0, "edges": ["e002"]},
    {"kind": "freeze", "at_s": 6.0, "for_s": 3.0, "edges": ["e003"]},
]
ASKING = {"clients_per_trigger": 3, "concurrency": 5, "period_s": 0.7}
TDMA = {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 10.0, "rate_mbit_s": 1.0}
SLOW = {"up_mbit_s": 0.02, "down_mbit_s": 0.02, "latency_ms": 40.0}
RUNS: dict[str, dict[str, Any]] = {
    "fedasync": {"concurrency": 4, "clients_per_trigger": 2, "period_s": 0.5},
    "fedbuff": {"concurrency": 5, "buffer_size": 3, "clients_per_trigger": 5, "period_s": 0.5},
    "fedavg": {"clients_per_round": 3},
    "syncdrop": {"concurrency": 4, "clients_per_trigger": 2, "period_s": 0.5},
    "wkafl": {"buffer_size": 2},
    "fedasmu": ASKING,
    "fedasmu train_on": ASKING | {"on_request": "train_on"},
    "fedssmu": {"clients_per_round": 3, "on_request": "train_on"},
    "idfl": {"per_round": 2},
    "fedavg killed": {"clients_per_round": 6},
    "fedasync killed": {"concurrency": 6, "clients_per_trigger": 6, "period_s": 0.5},
    "fedasync away": {},
    "idfl away": {},
    "fedasync lose": {},
    "Pusher": {"push_s": 0.35, "replaces": False, "times": 2},
    "RestartPusher": {"push_s": 0.5},
    "RestlessPusher": {"push_s": 0.2},
    "RestartAskingPusher": {"push_s": 0.45},
    "Pusher killed": {"push_s": 0.3},
    "RestartPusher killed": {"push_s": 0.3},
}


def made(name: str, folder: Path) -> Path:
    strategy, _, what = name.partition(" ")
    if what in ("away", "lose"):
        leave = {"on_leave": "lose"} if what == "lose" else {}
        return small_run(folder, **sections(folder, strategy, **leave))[1]
    entry: dict[str, Any] = {"strategy": strategy} | RUNS[name]
    more = {"stop": {"emulated_s": 14.0}, "strategies": [entry]}
    more |= {"medium": TDMA} if strategy == "idfl" else {}
    if strategy.endswith("Pusher"):
        entry |= ASKING | {"strategy": f"../support/own_strategies.py:{strategy}"}
    slow = strategy.startswith(("fedas", "fedss")) or strategy.endswith("Pusher")
    more |= {"links": SLOW} if slow else {}
    more |= {"faults": KILL} if what == "killed" else {}
    return small_run(folder, **(TASK | SOME | more))[1]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Each run is made once."""
    return cache(lambda name: made(name, tmp_path_factory.mktemp("run")))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.slow
def test_ages_are_those_of_the_obvious_way(name: str, runs: Callable[[str], Path]) -> None:
    run = runs(name)
    story = Story(run)
    ages = RunFiles(run).ages
    found = age.numbers(ages)
    expected = dict(story.numbers())
    assert story.pieces and story.merged
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-7, abs=1e-9)
    for of, at_work in (("model", False), ("work", True)):
        high = found[f"p95_{of}_age_s"]
        assert high is not None
        assert story.share_up_to("s", high, at_work) == pytest.approx(0.95, abs=1e-6)
        high = found[f"p95_{of}_age_versions"]
        assert high is not None
        assert story.share_up_to("versions", high, at_work) >= 0.95 - 1e-8
        assert high == 0 or story.share_up_to("versions", high - 1, at_work) < 0.95
    fresher = name.startswith(("fedasmu", "fedssmu")) or "Pusher" in name
    fresher &= not name.startswith("Restart")  # there the latest model is the base
    assert fresher == ("mean_fresh_update_age_s" in expected)
    assert fresher == (found["mean_fresh_update_age_s"] is not None)
    assert bool(story.used and story.late) == ("Pusher" in name)
    assert bool(story.restarted) == name.startswith("Restart")


@pytest.mark.parametrize("name", ["fedasmu train_on", "fedasync killed", "idfl away"])
@pytest.mark.parametrize("at_once", [1, 7, 10_000])
def test_the_age_now_needs_no_earlier_rows(
    name: str, at_once: int, runs: Callable[[str], Path]
) -> None:
    """At the end it is the mean over the edges whose last stretch goes on."""
    run = runs(name)
    files, texts, now = RunFiles(run), Texts(), age.AgesNow()
    rows, links = read_events(run / "events.jsonl"), read_csv(run / "links.csv")
    for first in range(0, len(rows), at_once):
        part = rows[first : first + at_once]
        until_s = part[-1]["t"]
        now.take_events(EventColumns.of(part, texts))
        ended = [row for row in links if float(row["finished_s"]) <= until_s]
        now.take_links(TableColumns.of(ended, texts))
        links = links[len(ended) :]
    held, end_s = files.ages.held, files.ages.end_s
    last = held.where(held.end_s == end_s)
    current = files.ages.publications.current(np.array([end_s]))
    expected = (end_s - last.of_s).mean(), (current - last.version).mean()
    assert now.mean(end_s) == pytest.approx(expected)
    if at_once == 1:
        assert len(now._publications.moments_s) < current  # those that no edge needs are forgotten


# ---------------------------------------------------------------------- by hand
BY_HAND = {  # of tests/support/recorded.py, over 8 s
    # a: 0 s old at 0; 1-5 s: version 0, 5-8 s: version 1, of 4 s. b: 1-8 s: version 0.
    # integrals: a 12 + 7.5, b 31.5; time 7 + 7
    "mean_model_age_s": 51 / 14,
    "max_model_age_s": 8.0,  # of b at the end
    "p95_model_age_s": 7.3,  # b is older in 0.7 s of 14
    "peak_model_age_s": 5.0,  # a's, before version 1
    # 1 from 4 to 5 s and from 7 to 8 s (a); 1 from 4 to 7 s, 2 from 7 to 8 s (b)
    "mean_model_age_versions": 7 / 14,
    "p95_model_age_versions": 2,
    "max_model_age_versions": 2,
    "peak_model_age_versions": 1.0,
    # a 1-4 and 5-8 s, b 1-7 s: integrals 7.5, 7.5 and 24
    "mean_work_age_s": 39 / 12,
    "peak_work_age_s": (4 + 4 + 7) / 3,
    "mean_work_age_versions": 4 / 12,
    "peak_work_age_versions": 2 / 3,  # version 3 comes with the end of a's second task
    "mean_update_age_s": (4 + 7 + 4) / 3,
    "max_update_age_s": 7.0,
    "p95_update_age_s": 7.0,
    "mean_update_age_versions": 2 / 3,
    "mean_fresh_update_age_s": None,
    "age_counted": 14 / 16,
}


def test_the_numbers_by_hand(tmp_path: Path) -> None:
    found = age.numbers(RunFiles(record(tmp_path / "slow")).ages)
    assert {name: found[name] for name in BY_HAND} == pytest.approx(BY_HAND)


def test_rows_without_their_beginning_have_no_age_before_a_known_model(tmp_path: Path) -> None:
    """Of a run whose first part was deleted: version 1 was published before, task 2 begins."""
    rows = [row for row in EVENTS if row["t"] > 4.0]
    more = {"t": 7.5, "event": "alarm_rang", "version": 2, "key": "k"}
    assign = {"do": "assign", "edges": ["b"], "tasks": [3]}
    joins = {"t": 4.5, "event": "edge_joined", "version": 1, "edge": "b", "samples": 1}
    started = {"t": 7.6, "fact": "task_started", "edge": "b", "task": 3}
    rows = [joins | {"decisions": []}, *rows, more | {"decisions": [assign]}, started]
    ages = RunFiles(record(tmp_path / "run", events=sorted(rows, key=lambda row: row["t"]))).ages
    assert ages.held.begin_s.tolist() == [7.6] and ages.held.version.tolist() == [2]
    assert not len(ages.updates.t_s) and age.numbers(ages)["max_model_age_s"] == 1.0


def test_versions_that_do_not_follow_one_another_are_a_damage(tmp_path: Path) -> None:
    rows = [row for row in EVENTS if row["t"] != 4.0]
    with pytest.raises(UserError, match="run: is damaged .*versions do not follow"):
        _ = RunFiles(record(tmp_path / "run", events=rows)).ages


# ---------------------------------------------------------------------- figures and tables
def edgefl(*words: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["edgefl", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
