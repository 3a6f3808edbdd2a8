"""Readers of run directories: torn files, missing summaries, comparison, figure, live display."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import of_runs
from rich.console import Console

from edgefl.clocks.setup.rundir import write_summary
from edgefl.config.experiment import Evaluation
from edgefl.coordinator.coordinator import Ledger
from edgefl.errors import UserError
from edgefl.record.record import Record
from edgefl.record.rows import event_row
from edgefl.results import compare, run_files, summary
from edgefl.results.figures import gallery
from edgefl.results.progress import LiveView
from edgefl.results.read import Tail, is_torn, read_csv, read_events
from edgefl.results.summary import one_line, scores_not_finite
from edgefl.results.tables import table
from edgefl.strategies.base.events_and_decisions import EdgeJoined, EdgeLost, Event, JobFailed

METRICS = "version,emulated_s,wall_s,train_loss,test_loss,accuracy,bytes_up,bytes_down\n"
LINKS = "edge,direction,kind,bytes,offered_s,scheduled_s,finished_s\n"
EVENTS = [
    {"t": 0.0, "event": "edge_joined", "version": 0, "edge": "e000", "samples": 9, "decisions": []},
    {"t": 0.0, "event": "edge_joined", "version": 0, "edge": "e001", "samples": 9, "decisions": []},
    {
        "t": 0.0,
        "event": "run_started",
        "version": 0,
        "decisions": [{"do": "assign", "edges": ["e000", "e001"], "tasks": [0, 1]}],
    },
    {"t": 1.0, "fact": "task_started", "edge": "e000", "task": 0},
    {"t": 2.0, "fact": "update_ready", "edge": "e000", "task": 0},
    {
        "t": 3.0,
        "event": "update_arrived",
        "version": 0,
        "edge": "e000",
        "task": 0,
        "base_version": 0,
        "numbers": {},
        "decisions": [
            {"do": "publish", "version": 1},
            {"do": "assign", "edges": ["e000"], "tasks": [2]},
        ],
    },
    {
        "t": 4.0,
        "event": "update_arrived",
        "version": 1,
        "edge": "e001",
        "task": 1,
        "base_version": 0,
        "numbers": {},
        "decisions": [{"do": "publish", "version": 2}],
    },
    {
        "t": 5.5,
        "event": "update_arrived",
        "version": 2,
        "edge": "e000",
        "task": 2,
        "base_version": 1,
        "numbers": {},
        "decisions": [{"do": "discard", "task": 2, "reason": "too stale"}],
    },
]


def write_events(run: Path, events: list[dict[str, Any]], torn: str = "") -> None:
    run.mkdir(parents=True, exist_ok=True)
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + torn)


def write_metrics(run: Path, points: list[tuple[float, float]], torn: str = "") -> None:
    run.mkdir(parents=True, exist_ok=True)
    rows = [
        f"{v},{t:.9f},{t:.9f},,0.5,{accuracy},{1000 * v},{2000 * v}\n"
        for v, (t, accuracy) in enumerate(points)
    ]
    (run / "metrics.csv").write_text(METRICS + "".join(rows) + torn)


def finished_run(run: Path, **changes: Any) -> Path:
    write_metrics(run, [(0.0, 0.1), (1.0, 0.92)])
    facts = {
        "strategy": "fedavg",
        "clock": "wall",
        "seed": 1,
        "versions": 2,
        "updates_applied": 17,
        "updates_discarded": {"round closed": 2, "not finite": 1},
        "emulated_s": 12.5,
        "wall_s": 1.25,
        "final_accuracy": 0.92,
        "convergence_accuracy": 0.51,
        "best_accuracy": 0.92,
        "target_accuracy": 0.9,
        "time_to_target_s": 1.0,
        "bytes_up": 1_500_000,
        "bytes_down": 3_000_000,
        "staleness": {"0": 12, "1": 4, "3": 1},
        "fidelity": {"verdict": "faithful", "reasons": []},
        **changes,
    }
    (run / "summary.json").write_text(json.dumps(facts))
    return run


def shown(renderable: Any, width: int = 80, height: int = 40) -> str:
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_tail_gives_complete_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    assert tail.read_new() == []  # no file yet
    path.write_bytes(b"one\ntw")
    assert tail.read_new() == ["one"] and is_torn(path)
    with path.open("ab") as file:
        file.write("o\u2028\r\nthree".encode())
    assert tail.read_new() == ["two\u2028"]  # a JSON string may hold a line separator
    assert tail.read_new() == []
    path.write_bytes(b"new\n")
    assert tail.read_new() == ["new"] and not is_torn(path)  # the file was written anew
    assert not is_torn(tmp_path / "missing")


def test_readers_of_ended_runs(tmp_path: Path) -> None:
    write_events(tmp_path, EVENTS[:2], torn='{"t": 9, "ev')
    assert [event["edge"] for event in read_events(tmp_path / "events.jsonl")] == ["e000", "e001"]
    assert (
        read_events(tmp_path / "missing.jsonl") == [] and read_csv(tmp_path / "missing.csv") == []
    )
    (tmp_path / "events.jsonl").write_text('{"t": 0}\nrubbish\n{"t": 1}\n')
    with pytest.raises(UserError, match=r"events.jsonl: line 2 is no row of events"):
        read_events(tmp_path / "events.jsonl")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3\n4,5\n")
    with pytest.raises(UserError, match=r"t.csv: row 3 has 1 fields, expected 2 \(a,b\)"):
        read_csv(tmp_path / "t.csv")


def test_outcome() -> None:
    rows = [
        {"emulated_s": f"{t}", "accuracy": a}
        for t, a in ((0, "0.1"), (2, "0.95"), (1, "0.9"), (3, ""), (4, "nan"), (5, "0.85"))
    ]
    assert summary.outcome(rows, 0.9) == {
        "final_accuracy": 0.85,
        "convergence_accuracy": pytest.approx(0.95),  # until 5 s, the end of the window
        "convergence_window_s": [4.5, 5.0],
        "best_accuracy": 0.95,
        "stability": None,
        "target_accuracy": 0.9,
        "time_to_target_s": 1.0,
    }
    assert summary.outcome(rows, 0.96)["time_to_target_s"] is None
    assert summary.outcome(rows, None)["time_to_target_s"] is None
    assert set(summary.outcome([], 0.9).values()) == {None, 0.9}
    losses = [{"emulated_s": t, "accuracy": 0.1, "test_loss": loss} for t, loss in enumerate("295")]
    found = summary.outcome([*losses, {"emulated_s": 9, "accuracy": "", "test_loss": "7"}], None)
    assert [found[f"{which}_loss"] for which in ("initial", "highest", "final")] == [2, 9, 5]
    for not_finite in ("nan", "inf"):
        losses[2]["test_loss"] = not_finite
        found = summary.outcome(losses, None)
        assert [found[f"{which}_loss"] for which in ("highest", "final")] == [None, None]


def test_convergence_is_the_mean_over_the_last_tenth_of_the_time() -> None:
    """A model is constant between evaluations: .8 from 0 s, .2 from 96 s; the run ends at 100 s.

    From 90 s to 100 s the mean is (6 x .8 + 4 x .2) / 10; how many evaluations there were before
    does not matter.
    """
    few = [{"emulated_s": t, "accuracy": a} for t, a in ((0, 0.8), (96, 0.2))]
    many = [{"emulated_s": t, "accuracy": 0.8} for t in range(95)] + few[1:]
    for rows in (few, many):
        found = summary.outcome(rows, None, end_s=100.0)
        assert found["convergence_accuracy"] == pytest.approx(0.56)
        assert found["convergence_window_s"] == [90.0, 100.0]
    late = summary.outcome([{"emulated_s": 95, "accuracy": 0.4}], None, end_s=100.0)
    assert late["convergence_accuracy"] == 0.4, "before the first evaluation there is no value"
    early = summary.outcome(few[:1], None, end_s=100.0)
    assert early["convergence_accuracy"] == 0.8, "the last value holds until the end of the run"
    assert summary.outcome(few[:1], None)["convergence_accuracy"] == 0.8, "a run without length"
    assert summary.outcome([], None)["convergence_accuracy"] is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "faithful"),
        ({"clock": "virtual"}, "virtual"),
        ({"fidelity": {"verdict": "strained"}}, "strained"),
        ({"versions": 0}, "failed"),
        ({"versions": 0, "finished": "interrupted"}, "faithful"),
        ({"diverged_at_version": 3}, "diverged"),
        ({"diverged_at_version": 3, "fidelity": {"verdict": "strained"}}, "diverged"),
        ({"diverged_at_version": 3, "clock": "virtual"}, "diverged"),
    ],
)
def test_the_verdict_names_failures_first(changes: dict[str, Any], told: str) -> None:
    facts = {"clock": "wall", "versions": 5, "finished": "versions", "final_accuracy": 0.9}
    facts["fidelity"] = {"verdict": "faithful"}
    assert summary.verdict(facts | changes) == told


def test_counters_from_events() -> None:
    links = [{"direction": "up", "bytes": "500"}, {"direction": "down", "bytes": "400"}]
    assert summary.counters(EVENTS, links) == {
        "versions": 2,
        "updates_received": 3,
        "updates_applied": 2,
        "updates_discarded": {"too stale": 1},
        "staleness": {"0": 1, "1": 1},
        "bytes_up": 500,
        "bytes_down": 400,
        "emulated_s": 5.5,
    }
    assert summary.counters([])["versions"] == 0


def test_finished_run_is_read_from_its_summary(tmp_path: Path) -> None:
    (row,) = compare.load(finished_run(tmp_path / "fedavg"))
    assert (row.name, row.verdict, row.versions, row.updates_applied, row.updates_discarded) == (
        "fedavg",
        "faithful",
        2,
        17,
        3,
    )
    assert row.staleness_mean == pytest.approx(7 / 17) and row.staleness_max == 3


@pytest.mark.parametrize("summary_text", [None, '{"strategy": "fed'])
def test_unfinished_run_is_read_as_far_as_it_got(tmp_path: Path, summary_text: str | None) -> None:
    run = tmp_path / "fedbuff"
    write_events(run, EVENTS, torn='{"t": 9')
    write_metrics(run, [(0.0, 0.1), (3.0, 0.8)], torn="2,4.0000")
    (run / "links.csv").write_text(LINKS + "e000,down,task,400,0,1,1\ne000,up,update,500,2,3,3\n")
    (run / "config.toml").write_text("[evaluation]\ntarget_accuracy = 0.75\n")
    if summary_text:
        (run / "summary.json").write_text(summary_text)
    (row,) = compare.load(run)
    assert (
        row.verdict == "unfinished" and "torn last line in events.jsonl, metrics.csv" in row.reasons
    )
    assert (
        row.versions,
        row.updates_applied,
        row.updates_discarded,
        row.bytes_up,
        row.bytes_down,
    ) == (2, 2, 1, 500, 400)
    assert (row.final_accuracy, row.target_accuracy, row.time_to_target_s, row.emulated_s) == (
        0.8,
        0.75,
        3.0,
        5.5,
    )
    assert "unfinished" in shown(table([row]))


def test_table_fits_80_columns_and_tells_the_reasons(tmp_path: Path) -> None:
    finished_run(tmp_path / "fedavg")
    finished_run(
        tmp_path / "fedasync",
        time_to_target_s=None,
        fidelity={"verdict": "strained", "reasons": ["transfer lag p99 12 ms, limit 5 ms"]},
    )
    text = shown(table(compare.load(tmp_path)))
    fedasync, fedavg = (
        next(line for line in text.splitlines() if line.startswith(name + " "))
        for name in ("fedasync", "fedavg")
    )
    assert fedavg.split() == [
        "fedavg",
        "0.920",
        "0.920",
        "1.00",
        "2",
        "17",
        "3",
        "1.50",
        "3.00",
        "0.4/3",
        "12.5",
        "faithful",
    ]
    assert fedasync.split()[3] == "-" and fedasync.split()[-1] == "strained"
    assert (
        "fedasync: strained: transfer lag p99 12 ms, limit 5 ms" in text
        and "to 0.9" in text
        and "…" not in text
    )


def test_comparison_csv(tmp_path: Path) -> None:
    finished_run(
        tmp_path / "fedavg",
        target_accuracy=None,
        time_to_target_s=None,
        fidelity={"verdict": "strained", "reasons": ["a, b", "c"]},
    )
    compare.write_csv(compare.load(tmp_path), tmp_path / "out" / "comparison.csv")
    with (tmp_path / "out" / "comparison.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["name"], row["emulated_s"], row["time_to_target_s"], row["reasons"]) == (
        "fedavg",
        "12.500000000",
        "",
        "a, b; c",
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == [
        "comparison.csv"
    ]  # no temporary file left


def test_where_nothing_can_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = finished_run(tmp_path / "fedavg")
    with pytest.raises(UserError, match="comparison.csv: cannot be written"):
        compare.write_csv(compare.load(run), tmp_path / "file" / "comparison.csv")


def test_a_config_that_is_no_text_does_not_hide_the_results(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "fedavg")
    (run / "config.toml").write_bytes(b'name = "\xff"')
    assert [row.final_accuracy for row in compare.load(run)] == [0.92]
    (run / "summary.json").unlink()
    assert [(row.final_accuracy, row.verdict) for row in compare.load(run)] == [
        (0.92, "unfinished")
    ]


def test_find_names_runs_apart(tmp_path: Path) -> None:
    for experiment in ("one", "two"):
        finished_run(tmp_path / experiment / "fedavg")
    finished_run(tmp_path / "two" / "fedbuff")
    (tmp_path / "two" / "figures").mkdir()
    assert list(
        run_files.find([tmp_path / "one", tmp_path / "two", tmp_path / "two" / "fedbuff"])
    ) == ["one/fedavg", "two/fedavg", "fedbuff"]
    with pytest.raises(UserError, match="no such directory"):
        run_files.find([tmp_path / "three"])
    with pytest.raises(UserError, match="no run in it"):
        run_files.find([tmp_path])


@pytest.mark.parametrize(("most", "scale", "left"), [(10, "linear", 0.0), (11, "log", 1.0)])
def test_bytes_of_far_more_than_one_size_have_a_logarithmic_axis(
    tmp_path: Path, most: int, scale: str, left: float
) -> None:
    for name, sent in (("moon", 1), ("wkafl", most)):
        finished_run(tmp_path / name)
        rows = [f"{v},{v},{v},,0.5,0.5,{v * sent * 500_000},{v * sent * 500_000}\n" for v in (0, 1)]
        (tmp_path / name / "metrics.csv").write_text(METRICS + "".join(rows))
    over_time, over_bytes = of_runs("accuracy", tmp_path).axes
    assert (over_time.get_xscale(), over_bytes.get_xscale(), over_bytes.get_xlim()[0]) == (
        "linear",
        scale,
        pytest.approx(left),
    )


def test_a_name_in_brackets_is_shown_as_it_is(tmp_path: Path) -> None:
    rows = [
        replace(row, name="[old]/fedavg") for row in compare.load(finished_run(tmp_path / "fedavg"))
    ]
    assert "[old]/fedavg" in shown(table(rows, 120), width=120)


def test_figure_without_evaluations_is_refused(tmp_path: Path) -> None:
    write_metrics(tmp_path, [])
    with pytest.raises(UserError, match="nothing to draw"):
        gallery.write("accuracy", [tmp_path], tmp_path / "accuracy")


def test_live_view_follows_the_run(tmp_path: Path) -> None:
    view = LiveView(tmp_path, ["e000", "e001", "e002"])
    assert "awaited" in shown(view.update())  # nothing written yet
    write_events(tmp_path, EVENTS[:5], torn='{"t": 3.0, "event": "upd')
    view.update()
    assert view.progress.states() == {"sending": 1, "receiving": 1, "awaited": 1}
    assert (view.progress.edges["e000"].task, view.progress.edges["e000"].since_s) == (0, 2.0)
    write_events(tmp_path, [*EVENTS, {"t": 6.0, "fact": "finished", "reason": "versions"}])
    write_metrics(tmp_path, [(0.0, 0.1), (3.0, 0.8)])
    assert not view.finished
    text = shown(view.update(), width=160)
    assert view.finished and view.progress.states() == {"idle": 2, "awaited": 1}
    assert (
        "6.0 s emulated  version 2  accuracy 0.8000 (of version 1)  3 updates, 2"
        " applied, 1 discarded  finished: versions" in text
    )


def test_live_view_of_lost_edges(tmp_path: Path) -> None:
    lost = {"t": 2.0, "event": "edge_lost", "version": 0, "edge": "e001", "decisions": []}
    closed = {
        "t": 3.0,
        "event": "task_closed",
        "version": 0,
        "edge": "e001",
        "task": 1,
        "reason": "edge lost",
        "decisions": [],
    }
    write_events(
        tmp_path, [*EVENTS[:4], lost, closed, {"t": 3.0, "fact": "wire_error", "edge": "e001"}]
    )
    view = LiveView(tmp_path)
    line = view.plain()
    assert (
        view.progress.edges["e001"].state == "lost"
        and "1 lost, 1 training" in line
        and "wire errors 1" in line
        and "\n" not in line
    )


def test_live_rates_are_of_the_last_seconds(tmp_path: Path) -> None:
    write_events(
        tmp_path, [{"t": 10.0, "event": "alarm_rang", "name": "x", "version": 0, "decisions": []}]
    )
    (tmp_path / "links.csv").write_text(
        LINKS + "e000,up,update,999,0,1,1\ne000,up,update,250000,5,6,6\n"
        "e001,down,task,125000,5,7,7\ne001,down,task,125"
    )
    view = LiveView(tmp_path)
    view.update()
    assert view.progress.rates_bit_s() == {
        "e000": (400_000.0, 0.0),
        "e001": (0.0, 200_000.0),
    }  # over 5 s
    assert "up 400 kbit/s, down 200 kbit/s (transfers ended in the last 5 s)" in view.plain()


def test_live_time_goes_on_while_nothing_is_written(tmp_path: Path) -> None:
    """Devices may train for minutes. A display that stops at the latest event looks like a hang
    and shows old rates.
    """
    (tmp_path / "events.jsonl").write_text("")
    (tmp_path / "links.csv").write_text(LINKS)
    view = LiveView(tmp_path, ["e000", "e001"], speed=2.0)
    assert "  0.0 s emulated" in view.plain(100.0) and "  0.0 s emulated" in view.plain(107.0), (
        "not begun"
    )
    (tmp_path / "links.csv").write_text(LINKS + "e000,down,task,125000,0,1,1\n")
    assert "  1.0 s emulated" in view.plain(110.0) and view.progress.rates_bit_s() == {
        "e000": (0.0, 1_000_000.0)
    }
    assert "  5.0 s emulated" in view.plain(112.0) and view.progress.rates_bit_s() == {
        "e000": (0.0, 200_000.0)
    }, "two seconds at speed 2"
    assert "  7.0 s emulated" in view.plain(113.0) and view.progress.rates_bit_s() == {}, (
        "longer ago than the window"
    )
    write_events(tmp_path, [{"t": 8.0, "fact": "finished", "reason": "versions"}])
    assert "  8.0 s emulated" in view.plain(120.0) and "  8.0 s emulated" in view.plain(130.0)


def test_live_view_keeps_to_the_terminal(tmp_path: Path) -> None:
    edges = [f"e{n:03d}" for n in range(200)]
    write_events(
        tmp_path,
        [{**EVENTS[0], "edge": edge} for edge in edges]
        + [{"t": 1.0, "fact": "task_started", "edge": "e150", "task": 7}],
    )
    view = LiveView(tmp_path)
    for height in (3, 4, 10, 24):
        lines = shown(view.update(), width=100, height=height).splitlines()
        assert len(lines) <= height and "200 edges: 1 training, 199 idle" in lines[2]
    assert any(line.startswith("e150  training") for line in lines)  # the busiest are shown
    assert (
        len(shown(view.update(), width=100, height=300).splitlines()) == 203
    )  # all fit: no counts


class Ended:
    """A run without a strategy: a test writes to ``record`` and reads the summary."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder, Record(folder, lambda: 0.0, None)
        self.record = Ledger(self.written)

    def events(self, *events: Event) -> None:
        for event in events:
            self.record.event(0, 0, event, event_row(event), [], [])

    def summary(self, finished: str = "versions") -> dict[str, Any]:
        self.written.close(np.zeros(2))
        head = {"versions": 3, "emulated_s": 4.0, "wall_s": 4.0, "finished": finished}
        verdict = {"verdict": "faithful"}
        return write_summary(self.folder, head, self.record.counters, Evaluation(), verdict)


def test_a_run_that_began_without_some_edges_says_so(tmp_path: Path) -> None:
    """The verdict is about time only, so a warning must name the missing third of the edges."""
    ended = Ended(tmp_path)
    ended.record.fact(0, "edges_missing", edges=["pi-2", "pi-3"])
    told = ended.summary("emulated_s")
    assert told["edges_missing"] == ["pi-2", "pi-3"]
    assert one_line(told, "moon").endswith(
        "faithful (emulated_s); started without 2 edges (pi-2, pi-3)"
    )
    write_events(
        tmp_path,
        [
            *EVENTS[:1],
            {"t": 0.0, "fact": "edges_missing", "edges": ["pi-2", "pi-3"]},
            {**EVENTS[0], "event": "edge_lost"},
        ],
    )
    assert "started without 2 edges (pi-2, pi-3)" in shown(
        table(compare.load(tmp_path), 100), width=100
    )
    (tmp_path / "summary.json").unlink()
    assert (
        compare.load(tmp_path)[0].warnings
        == "started without 2 edges (pi-2, pi-3); lost and not rejoined at the end: 1 edge"
        f" ({EVENTS[0]['edge']})"
    )


def test_edges_that_came_back_are_not_lost(tmp_path: Path) -> None:
    ended = Ended(tmp_path)
    ended.events(
        EdgeJoined("a", 1), EdgeJoined("b", 1), EdgeLost("a"), EdgeLost("b"), EdgeJoined("b", 1)
    )
    assert ended.summary()["edges_lost"] == ["a"]
    assert summary.counters(read_events(tmp_path / "events.jsonl"))["edges_lost"] == ["a"]


def test_jobs_that_failed_are_counted_and_told(tmp_path: Path) -> None:
    """A method continues without a prediction, and the reader of its numbers should know."""
    ended = Ended(tmp_path)
    ended.events(
        JobFailed("predict 1", "not finite"),
        JobFailed("predict 2", "not finite"),
        JobFailed("distill 0", "its worker died 3 times"),
    )
    told = ended.summary()
    assert told["jobs_failed"] == {"its worker died 3 times": 1, "not finite": 2}
    assert one_line(told, "fedecho").endswith(
        "faithful (versions); failed server jobs: its worker died 3 times: 1, not finite: 2"
    )
    assert (
        summary.counters(read_events(tmp_path / "events.jsonl"))["jobs_failed"]
        == told["jobs_failed"]
    )


def test_a_model_that_is_not_finite_is_told(tmp_path: Path) -> None:
    """A run that diverges still ends normally; a tenth of the answers is right by chance."""
    ended = Ended(tmp_path)
    ended.record.fact(2, "diverged", version=2)
    told = ended.summary()
    assert told["diverged_at_version"] == 2
    said = "diverged: version 2 is not finite (NaN or infinite), so its accuracy is meaningless"
    assert one_line(told, "moon").endswith(f"diverged (versions); {said}")
    assert f"{tmp_path.name}: warning: {said}" in " ".join(
        shown(table(compare.load(tmp_path), 100), width=100).split()
    )
    (tmp_path / "summary.json").unlink()
    assert compare.load(tmp_path)[0].warnings == said


def test_who_has_joined_is_shown_before_the_run_begins(tmp_path: Path) -> None:
    waits = [{"t": 0.0, "fact": "edge_waits", "edge": edge} for edge in ("e000", "e001")]
    write_events(tmp_path, waits)
    view = LiveView(tmp_path, ["e000", "e001", "e002"])
    assert "2 joined, 1 awaited" in view.plain()
    write_events(
        tmp_path, [*waits, {"t": 0.0, "fact": "session_ended", "edge": "e001", "reason": "silent"}]
    )
    assert "1 joined, 2 awaited" in view.plain()
    write_events(
        tmp_path,
        [
            *waits,
            {"t": 0.0, "fact": "session_ended", "edge": "e001", "reason": "silent"},
            {**EVENTS[0], "edge": "e000"},
        ],
    )
    assert "1 idle, 2 awaited" in view.plain()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("summary.json", b'{"fidelity": 3}'),
        ("summary.json", b'{"staleness": [1]}'),
        ("summary.json", b'{"updates_discarded": {"x": "y"}}'),
        ("metrics.csv", b"version,accuracy\n1\r2,0.5\n"),
    ],
)
def test_a_damaged_file_of_a_run_is_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "events.jsonl").touch()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match="is damaged") as caught:
        compare.load(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))


def test_scores_that_are_not_finite_in_a_row_are_counted_in_order_of_time() -> None:
    rows = [
        {"emulated_s": str(at), "test_loss": loss, "train_loss": "", "accuracy": "0.1"}
        for at, loss in [(3, "nan"), (1, "nan"), (2, "2.0"), (5, "1.0"), (4, "inf"), (6, "nan")]
    ]
    assert scores_not_finite(rows) == {"test_loss": 2}
    assert scores_not_finite(rows[1:3]) == {} == scores_not_finite([])
