"""Tests of the columns of a run's files: they hold what the rows say, and name what is damaged."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from builders import small_run

from edgefl.errors import UserError
from edgefl.record.tables import part_path
from edgefl.results import read
from edgefl.results.progress import Progress, usual_rows
from edgefl.results.read import (
    MISSING,
    Columns,
    EventColumns,
    TableColumns,
    TableTail,
    Texts,
    event_columns,
    iter_csv,
    parsed_events,
    read_csv,
    read_events,
    read_table,
)
from edgefl.results.timeline import Timeline

FAULTS = [
    {"kind": "slow", "edges": ["a"], "at_s": 1.0, "for_s": 3.0, "factor": 0.5},
    {"kind": "kill", "edges": ["b"], "at_s": 2.0, "for_s": 9.0},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with faults, whose edges are lost and come back."""
    folder = tmp_path_factory.mktemp("runs")
    _, directory = small_run(folder, faults=FAULTS, stop={"emulated_s": 30.0})
    return directory


# ---------------------------------------------------------------------- values
VALUES = [0, 7, -3, 2.5, "x", "", None, True, [1, 2], ["x", "y"], [], [1, "x"], {"a": 1}, {}]


@pytest.mark.parametrize("seed", range(30))
def test_columns_give_back_the_values_of_any_rows(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        {key: rng.choice(VALUES) for key in rng.sample("abcdef", rng.randint(0, 6))}
        for _ in range(rng.randint(1, 40))
    ]
    found = Columns(Texts())
    for first in range(0, len(rows), 7):
        found.add([dict(row) for row in rows[first : first + 7]])
    flat: list[dict[str, Any]] = []
    for row in rows:
        flat.append({})
        for key, value in row.items():
            inside = value.items() if isinstance(value, dict) else ()
            flat[-1] |= {f"{key}.{name}": each for name, each in inside}
            flat[-1] |= {} if isinstance(value, dict) else {key: value}
    assert found.names == list(dict.fromkeys(name for row in flat for name in row))
    for name in found.names:
        assert found.values(name) == [row.get(name) for row in flat]
        assert found.has(name).tolist() == [name in row for row in flat]


def test_numbers_and_texts_of_a_column() -> None:
    found = Columns(Texts())
    found.add([{"a": 1}, {"a": 2.5}, {"b": 1}, {"a": None}, {"a": "x"}, {"a": float("inf")}])
    assert np.isnan(found.floats("a")).tolist() == [False, False, True, True, True, True]
    assert found.floats("a")[:2].tolist() == [1.0, 2.5]
    assert found.whole("a").tolist() == [1, *[MISSING] * 5]
    assert found.texts_of("a").tolist() == [*[MISSING] * 4, found.texts.number("x"), MISSING]


# ---------------------------------------------------------------------- events.jsonl
def test_events_and_their_decisions(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    decisions = [{"do": "assign", "edges": ["a"], "tasks": [3]}, {"do": "publish", "version": 1}]
    rows = [
        {"t": 0.5, "event": "run_started", "version": 0, "decisions": decisions},
        {"t": 1.0, "fact": "task_started", "edge": "a", "task": 3},
    ]
    torn = b'{"t": 2.0, "fact": "upd'
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows) + torn)
    found = event_columns(path)
    assert found.count == 2 and found.decided_in.tolist() == [0, 0]
    assert found.rows.values("t") == [0.5, 1.0]
    edges, tasks, counts = found.assigned(np.array([0]))
    assert edges.tolist() == [found.texts.number("a")]
    assert (tasks.tolist(), counts.tolist()) == ([3], [1])
    assert event_columns(tmp_path / "none.jsonl").count == 0


@pytest.mark.parametrize(
    "line",
    [b"no json", b"[]", b'{"t": "x"}', b'{"decisions": [1]}', b'{"edge": 3}', b'{"task": 1.5}'],
)
def test_a_damaged_line_is_named_and_the_page_leaves_it_out(tmp_path: Path, line: bytes) -> None:
    good = b'{"t": 1.0, "fact": "finished"}'
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\n".join([good, line, good, b""]))
    with pytest.raises(UserError, match=r"events\.jsonl: line 2 is no row of events"):
        event_columns(path)
    found = parsed_events(path.read_bytes(), Texts())
    assert found.count == 2 and found.row(1) == orjson.loads(good)


# ---------------------------------------------------------------------- CSV files
def test_a_table_and_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    head = "edge,bytes,finished_s"
    part_path(path, 1).write_text(f"{head}\r\na,1,0.5\r\n")
    path.write_text(f"{head}\r\nb,,nan\r\na,1_0,1e3\r\nb,7")  # torn
    found = read_table(path)
    names = [found.texts.all[each] for each in found["edge"].tolist()]
    assert names == ["a", "b", "a"]
    assert np.nan_to_num(found["bytes"], nan=-1).tolist() == [1, -1, 10]
    assert np.nan_to_num(found["finished_s"], nan=-1).tolist() == [0.5, -1, 1000]
    assert np.isnan(found.get("scheduled_s")).all() and found.get("kind").size == 3
    with pytest.raises(KeyError):
        found["kind"]


def test_a_field_with_a_quote_and_a_row_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    path.write_text('edge,bytes\n"a,b",1\n')
    found = read_table(path)
    assert found.texts.all[found["edge"][0]] == "a,b" and found["bytes"].tolist() == [1]
    path.write_text("edge,bytes\na,1\nb,2,3\n")
    with pytest.raises(UserError, match="row 3 has 3 fields, expected 2"):
        read_table(path)
    live = TableTail(path).read_columns()
    assert live["bytes"].tolist() == [1], "the page leaves it out"


def test_a_single_row_with_an_empty_number(tmp_path: Path) -> None:
    (tmp_path / "energy.csv").write_text("edge,ended_s\na,\n")
    assert np.isnan(read_table(tmp_path / "energy.csv")["ended_s"]).tolist() == [True]


def test_no_row_comes_twice_if_a_run_is_resumed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "AT_ONCE", 16)
    path = tmp_path / "links.csv"
    path.write_text("edge,bytes\na,1\nb,2\nc,3\n")
    rows = iter_csv(path)
    found = [next(rows), next(rows)]
    path.write_text("edge,bytes\na,1\n")  # a checkpoint had these rows
    assert [row["edge"] for row in (*found, *rows)] == ["a", "b", "c"]


NUMBERS = ["0", "7.25", ".5", "12.", "0.024428000", "1398.123456789", "9007199254740993", "-1.5"]
NUMBERS += ["1e-3", "nan", "", ".", "1.2.3", "x", "123456789012345678901"]


@pytest.mark.parametrize("seed", range(30))
def test_a_table_of_any_fields_has_the_values_of_its_rows(tmp_path: Path, seed: int) -> None:
    """Whether numpy or csv's reader tells the fields."""
    rng, path = random.Random(seed), tmp_path / "links.csv"
    texts = ["a", "b7", "", "an edge with a long name", *(["ü"] if seed % 3 == 0 else [])]
    allowed = NUMBERS if seed % 2 else NUMBERS[:6]
    rows = [(rng.choice(texts), rng.choice(allowed), f"{rng.random():.9f}") for _ in range(20)]
    path.write_text("\r\n".join(map(",".join, [("edge", "bytes", "finished_s"), *rows])) + "\r\n")
    found, expected = read_table(path), TableColumns.of(read_csv(path))
    assert [found.texts.all[each] for each in found["edge"]] == [edge for edge, _, _ in rows]
    for name in ("bytes", "finished_s"):
        np.testing.assert_array_equal(found[name], expected[name])
    assert found.texts.all == expected.texts.all


# ---------------------------------------------------------------------- many rows at once
def timeline_of(run: Path, rows: list[dict[str, Any]], steps: int) -> Timeline:
    found = Timeline()
    for first in range(0, len(rows), steps):
        found.take_events(EventColumns.of(rows[first : first + steps], found.texts))
    found.take_links(read_table(run / "links.csv", found.texts))
    found.no_more_rows()
    return found


@pytest.mark.parametrize("steps", [1, 10, 10_000])
@pytest.mark.slow
def test_the_timeline_is_the_same_row_by_row(run: Path, steps: int) -> None:
    """A fault that takes no time changes nothing, but then no edge does only the usual."""
    rows = read_events(run / "events.jsonl")
    whole = timeline_of(run, rows, len(rows))
    strange = [
        each
        for row in rows
        for each in (row, {"t": row["t"], "fact": "fault", "kind": "corrupt", "edge": "a"})
    ]
    strange += [{"t": 99.0, "fact": "fault", "kind": "corrupt", "edge": edge} for edge in "bc"]
    for other in (timeline_of(run, rows, steps), timeline_of(run, strange, steps)):
        assert sorted(map(str, other.slices)) == sorted(map(str, whole.slices))
        told = [each for each in other.instants if each.kind != "corrupt"]
        assert (
            told == whole.instants
            and other.gap_rows()["versions"].tolist() == whole.gap_rows()["versions"].tolist()
        )
        assert other.versions == whole.versions
    assert {each.kind for each in whole.slices} >= {"training", "send", "slow", "kill", "lost"}


@pytest.mark.parametrize("steps", [1, 7, 10_000])
@pytest.mark.slow
def test_progress_is_the_same_row_by_row(run: Path, steps: int) -> None:
    rows = read_events(run / "events.jsonl")
    expected, found = Progress(), Progress()
    for row in rows:
        expected.take_row(row)
    texts, unusual = Texts(), 0
    lines = [orjson.dumps(row) + b"\n" for row in rows]
    for first in range(0, len(lines), steps):
        events = parsed_events(b"".join(lines[first : first + steps]), texts)
        usual = usual_rows(events, updates_too=True)
        unusual += int((~usual).sum())
        found.take_events(events, usual, found.take_row)
    assert (found.edges, found.counters) == (expected.edges, expected.counters)
    assert found.waits_at_s == expected.waits_at_s and found.emulated_s == expected.emulated_s
    assert found.finished == expected.finished and found.begun
    assert 0 < unusual < len(rows) / 2
